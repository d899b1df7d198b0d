//! GPUs.

use devices::gpu::GpuParams;
use engine::Rng;
use hardware::endpoint::{EndpointId, EndpointParams};
use machine::{GPU_OTHER_TAGS, Gpu};
use wire::pcie::{Generation, Width};

use super::Slot;
use crate::counters::Kind;
use crate::plain::{Plain, given, narrow, pci_id, plain};
use crate::tenth::{faster, more, shorter};
use crate::topology::{TopologyError, attributes, endpoint_port};

pub fn plug(mut slot: Slot<'_>, gpu: &Gpu) -> Result<EndpointId, TopologyError> {
    let (links, generation, width) = slot.links(&gpu.link);
    let clock_error_ppb = clock_error(gpu, &mut slot.seed.component("clock"));
    let seed = slot.seed.component("copy engines").u64();
    let params = GpuParams { clock_error_ppb, seed, ..gpu_params(gpu, generation, width) };
    let device = devices::gpu::Gpu::new(params).map_err(|error| TopologyError::Card(error.to_string()))?;
    Ok(slot.fabric.add_endpoint(endpoint_params(gpu), &links, Box::new(device)))
}

/// Raises what stands for a stage, tags or a buffer by a tenth.
pub fn raise(gpu: &mut Gpu, kind: Kind, part: &str) -> Option<()> {
    let engine = &mut gpu.copy_engine;
    match (kind, part) {
        (Kind::Tags, _) => more(&mut engine.tags.value),
        (_, "issue") => shorter(&mut engine.read_interval.value),
        (_, "transmit") => faster(&mut engine.write_rate.as_mut()?.value),
        _ => return None,
    }
    Some(())
}

/// The port of the GPU that a file describes.
fn endpoint_params(gpu: &Gpu) -> EndpointParams {
    let engine = &gpu.copy_engine;
    let tags = gpu.copy_tags() + GPU_OTHER_TAGS;
    EndpointParams {
        max_read_request: engine.read_request.plain(),
        issue_interval: engine.read_interval.value,
        attributes: attributes(&gpu.link),
        ..EndpointParams::ideal(narrow(tags))
    }
}

/// How far a board's clock is off: anywhere within its tolerance.
fn clock_error(gpu: &Gpu, random: &mut Rng) -> i32 {
    let most = gpu.controller.clock_tolerance_ppm.value.get() as i32 * 1000;
    random.below(2 * most as u64 + 1) as i32 - most
}

/// The GPU that a file describes, with an exact clock, on a link of `generation` and `width`.
pub fn gpu_params(gpu: &Gpu, generation: Generation, width: Width) -> GpuParams {
    let (controller, engine) = (&gpu.controller, &gpu.copy_engine);
    plain!(controller => GpuParams {
        ids: pci_id(&controller.pci_id),
        pcie: endpoint_port(&gpu.link, generation, width),
        message: given(&controller.message, true),
        memory, aperture, memory_rate,
        aperture_most: controller.aperture_most.as_ref().map(|most| most.value),
        copy_engines: engine.count.plain(),
        tags: engine.tags.plain(),
        all_tags: gpu.copy_tags() as u16,
        read_request: engine.read_request.plain(),
        writes: engine.writes.plain(),
        write_rate: engine.write_rate.plain(),
        copy_start: engine.start.value,
        clock_error_ppb: 0,
        seed: 0,
        command, fetch_entries, channel_load, acquire_interval, launch, access, store, local_load, incoming,
        poll_interval,
        register: controller.register_read.value
    })
}
