//! NVMe drives.

use devices::nvme::{ControllerTiming, FlashParams, MediaTiming, Nvme, NvmeParams};
use drivers::nvme::NvmeOptions;
use hardware::endpoint::{EndpointId, EndpointParams};
use machine::{Drive, DriveSetup, NvmeDriverEntry};
use wire::pcie::{Generation, Width};

use super::Slot;
use crate::computer::error::ComputerError;
use crate::counters::Kind;
use crate::plain::{Plain, given, pci_id, plain};
use crate::tenth::{faster, larger, more, shorter};
use crate::topology::{TopologyError, attributes, endpoint_port};

/// Bytes that a power cut does not tear (assumed: a page, as enterprise drives have it; AWUPF of the P4800X is not known).
const ATOMIC: u64 = 4096;

pub fn plug(mut slot: Slot<'_>, setup: &DriveSetup) -> Result<EndpointId, ComputerError> {
    let drive = &setup.file;
    let (links, generation, width) = slot.links(&drive.link);
    let seed = slot.seed.component("media").u64();
    let mut params = NvmeParams {
        // A port that leads nowhere has no part in anything.
        ports: links.len() as u8,
        namespaces: setup.namespaces.clone(),
        serial: setup.serial.clone(),
        ..nvme_params(drive, generation, width, seed)
    };
    let capacity: u64 = setup.namespaces.iter().map(|bytes| bytes.get()).sum();
    params.media.flash = drive.media.flash.as_ref().filter(|_| setup.worn_in).map(|flash| FlashParams {
        pages: (flash.block.value.get() / drive.media.unit.value.get()) as u32,
        // What belongs to no namespace is room to spare: a smaller one is how operators make drives write faster.
        filled: capacity as f64 / flash.raw.value.get() as f64,
        erase: flash.erase.value,
    });
    let device = Nvme::new(params, slot.blocks.open(setup.backing.as_ref(), capacity)?)
        .map_err(|error| TopologyError::Card(error.to_string()))?;
    let tags = drive.controller.tags.value.get() as u16;
    let core = EndpointParams { attributes: attributes(&drive.link), ..EndpointParams::ideal(tags) };
    Ok(slot.fabric.add_endpoint(core, &links, Box::new(device)))
}

/// Raises what stands for a stage, tags or a buffer by a tenth.
pub fn raise(drive: &mut Drive, kind: Kind, part: &str) -> Option<()> {
    let (controller, media) = (&mut drive.controller, &mut drive.media);
    match (kind, part) {
        (Kind::Tags, "") => more(&mut controller.tags.value),
        (Kind::Buffer, "write-buffer") => larger(&mut media.write_buffer.value),
        (_, "commands") => shorter(&mut controller.command_interval.value),
        (_, "data-path") => faster(&mut controller.data_path.value),
        (_, "channels") => {
            faster(&mut media.channel_rate.value);
            media.channel_write_rate.iter_mut().for_each(|rate| faster(&mut rate.value));
        }
        (_, "dies") => {
            shorter(&mut media.read.value);
            shorter(&mut media.program.value);
        }
        _ => return None,
    }
    Some(())
}

/// How the driver is loaded.
pub fn options(entry: Option<&NvmeDriverEntry>) -> NvmeOptions {
    let usual = NvmeOptions::default();
    let Some(entry) = entry else { return usual };
    NvmeOptions {
        queues: entry.queues.as_ref().map(|count| count.value.get() as u16).or(usual.queues),
        legacy_interrupt: entry.legacy_interrupt.unwrap_or(usual.legacy_interrupt),
        queue_entries: entry
            .queue_entries
            .as_ref()
            .map_or(usual.queue_entries, |count| count.value.get() as u16),
        use_memory_buffer: entry.memory_buffer.as_ref().map_or(usual.use_memory_buffer, |own| own.value),
        multipath: entry.multipath.unwrap_or(usual.multipath),
        sgl_threshold: entry.sgl_threshold.map_or(usual.sgl_threshold, |bytes| bytes.get() as u32),
        io_timeout: entry.io_timeout.unwrap_or(usual.io_timeout),
        ..usual
    }
}

/// The controller that a drive's file describes, on a link of `generation` and `width`.
pub fn nvme_params(drive: &Drive, generation: Generation, width: Width, seed: u64) -> NvmeParams {
    let (controller, media) = (&drive.controller, &drive.media);
    let block = controller.block.value.get();
    let pairs: u16 = controller.queue_pairs.plain();
    plain!(controller => NvmeParams {
        ids: pci_id(&controller.pci_id),
        serial: drive.name.to_uppercase().chars().take(20).collect(),
        model: drive.summary.chars().take(40).collect(),
        firmware: "1".into(),
        pcie: endpoint_port(&drive.link, generation, width),
        ports, queue_entries,
        io_queues: pairs,
        // One for each I/O queue pair and one for the admin queue.
        vectors: pairs + 1,
        doorbell_stride: 0,
        max_transfer_shift: (controller.max_transfer.value.get() / 4096).max(1).ilog2() as u8,
        memory_buffer: given(&controller.memory_buffer, 0),
        namespaces: vec![controller.capacity.value],
        block_shift: block.ilog2() as u8,
        atomic_blocks: (ATOMIC / block).max(1) as u16 - 1,
        volatile_buffer: controller.volatile_write_cache.value,
        // What Linux's driver meets in most drives: four of each.
        aborts: 4,
        event_requests: 4,
        timing: plain!(controller => ControllerTiming {
            register: controller.register_read.value,
            fetch, fetches, decode, command_interval, completion, data_path, commands_in_hand, enable
        }),
        media: plain!(media => MediaTiming {
            channels,
            dies: media.dies_per_channel.plain(),
            unit, read, program,
            channel: media.channel_rate.value,
            channel_write: given(&media.channel_write_rate, media.channel_rate.value),
            write_buffer,
            flash: None
        }),
        seed: seed
    })
}
