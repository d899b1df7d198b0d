//! NVMe drives.

use devices::nvme::{ControllerTiming, MediaTiming, MemoryMedia, Nvme, NvmeParams};
use hardware::endpoint::{EndpointId, EndpointParams};
use machine::Drive;
use wire::pcie::config::PcieParams;
use wire::pcie::{Generation, Width};

use super::Slot;
use crate::topology::TopologyError;

/// Bytes that a power cut does not tear (assumed: a page, as enterprise drives have it; AWUPF of the P4800X is not known).
const ATOMIC: u64 = 4096;

pub fn plug(mut slot: Slot<'_>, drive: &Drive) -> Result<EndpointId, TopologyError> {
    // A second port would lead to a slot of its own, and there is one.
    let (link, generation, width) = slot.link(&drive.link);
    let params =
        NvmeParams { ports: 1, ..nvme_params(drive, generation, width, slot.seed.component("media").u64()) };
    let device = Nvme::new(params, Box::new(MemoryMedia::default()))
        .map_err(|error| TopologyError::Card(error.to_string()))?;
    let core = EndpointParams::ideal(drive.controller.tags.value.get() as u16);
    Ok(slot.fabric.add_endpoint(core, &[link], Box::new(device)))
}

/// The controller that a drive's file describes, on a link of `generation` and `width`.
pub fn nvme_params(drive: &Drive, generation: Generation, width: Width, seed: u64) -> NvmeParams {
    let (controller, media) = (&drive.controller, &drive.media);
    let block = controller.block.value.get();
    let count = |figure: &machine::Figure<machine::Count>| figure.value.get();
    NvmeParams {
        ids: pci_id(&controller.pci_id.value),
        serial: drive.name.to_uppercase().chars().take(20).collect(),
        model: drive.summary.chars().take(40).collect(),
        firmware: "1".into(),
        pcie: PcieParams {
            max_payload: drive.link.mps_bytes.value.get(),
            extended_tags: drive.link.extended_tags.value,
            ..PcieParams::endpoint(generation, width)
        },
        ports: count(&controller.ports) as u8,
        queue_entries: count(&controller.queue_entries),
        io_queues: count(&controller.queue_pairs) as u16,
        // One for each I/O queue pair and one for the admin queue.
        vectors: count(&controller.queue_pairs) as u16 + 1,
        doorbell_stride: 0,
        max_transfer_shift: (controller.max_transfer.value.get() / 4096).max(1).ilog2() as u8,
        weighted_round_robin: false,
        memory_buffer: 0,
        namespaces: vec![controller.capacity.value],
        block_shift: block.ilog2() as u8,
        atomic_blocks: (ATOMIC / block).max(1) as u16 - 1,
        volatile_buffer: controller.volatile_write_cache.value,
        // What Linux's driver meets in most drives: four of each.
        aborts: 4,
        event_requests: 4,
        timing: ControllerTiming {
            register: controller.register_read.value,
            fetch: controller.fetch.value,
            decode: controller.decode.value,
            command_interval: controller.command_interval.value,
            completion: controller.completion.value,
            data_path: controller.data_path.value,
            commands_in_hand: count(&controller.commands_in_hand) as u16,
            enable: controller.enable.value,
        },
        media: MediaTiming {
            channels: count(&media.channels) as u16,
            dies: count(&media.dies_per_channel) as u16,
            unit: media.unit.value,
            read: media.read.value,
            program: media.program.value,
            channel: media.channel_rate.value,
            write_buffer: media.write_buffer.value,
        },
        seed,
    }
}

/// `8086:2700`, as reading the file has checked.
pub(super) fn pci_id(text: &str) -> (u16, u16) {
    let number = |text: &str| u16::from_str_radix(text, 16).unwrap_or(0xffff);
    let (vendor, device) = text.split_once(':').unwrap_or((text, ""));
    (number(vendor), number(device))
}
