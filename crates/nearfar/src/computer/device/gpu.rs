//! GPUs.

use devices::gpu::GpuParams;
use hardware::endpoint::{EndpointId, EndpointParams};
use machine::{GPU_OTHER_TAGS, Gpu};
use wire::pcie::{Generation, Width};

use super::Slot;
use super::drive::pci_id;
use crate::topology::{TopologyError, endpoint_port, narrow};

pub fn plug(mut slot: Slot<'_>, gpu: &Gpu) -> Result<EndpointId, TopologyError> {
    let (links, generation, width) = slot.links(&gpu.link);
    let device = devices::gpu::Gpu::new(gpu_params(gpu, generation, width))
        .map_err(|error| TopologyError::Card(error.to_string()))?;
    Ok(slot.fabric.add_endpoint(endpoint_params(gpu), &links, Box::new(device)))
}

/// The port of the GPU that a file describes.
fn endpoint_params(gpu: &Gpu) -> EndpointParams {
    let engine = &gpu.copy_engine;
    let tags = engine.tags.value.get() * engine.count.value.get() + GPU_OTHER_TAGS;
    EndpointParams {
        max_read_request: narrow(engine.read_request.value.get()),
        issue_interval: engine.read_interval.value,
        ..EndpointParams::ideal(narrow(tags))
    }
}

/// The GPU that a file describes, on a link of `generation` and `width`.
pub fn gpu_params(gpu: &Gpu, generation: Generation, width: Width) -> GpuParams {
    let (controller, engine) = (&gpu.controller, &gpu.copy_engine);
    GpuParams {
        ids: pci_id(&controller.pci_id.value),
        pcie: endpoint_port(&gpu.link, generation, width),
        message: controller.message.as_ref().is_none_or(|message| message.value),
        memory: controller.memory.value,
        aperture: controller.aperture.value,
        memory_rate: controller.memory_rate.value,
        copy_engines: narrow(engine.count.value.get()),
        tags: narrow(engine.tags.value.get()),
        read_request: narrow(engine.read_request.value.get()),
        writes: narrow(engine.writes.value.get()),
        write_rate: engine.write_rate.as_ref().map(|rate| rate.value),
        copy_start: engine.start.value,
        command: controller.command.value,
        fetch_entries: narrow(controller.fetch_entries.value.get()),
        channel_load: controller.channel_load.value,
        acquire_interval: controller.acquire_interval.value,
        launch: controller.launch.value,
        access: controller.access.value,
        store: controller.store.value,
        local_load: controller.local_load.value,
        incoming: controller.incoming.value,
        poll_interval: controller.poll_interval.value,
        register: controller.register_read.value,
    }
}
