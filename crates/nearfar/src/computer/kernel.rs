//! From machine and kernel files to a kernel's parameters.

use ::kernel::{
    BlockParams, CoreParams, DmaParams, KernelCosts, KernelParams, PciParams, SchedParams, SteeringParams,
};
use machine::{Diagnostics, DmaMode, HostSetup};

/// The parameters of a host's kernel.
///
/// # Errors
/// If the kernel's file lacks a cost or names one that there is not.
pub fn params(host: &HostSetup) -> Result<KernelParams, Diagnostics> {
    let (core, file) = (&host.machine.host.core, &host.kernel);
    Ok(KernelParams {
        core: CoreParams {
            frequency: core.frequency.value,
            fill_buffers: core.line_fill_buffers.value.get() as u16,
            store_buffer: core.store_buffer.value.get() as u16,
            issue: core.access_interval.value,
            store_interval: core.store_interval.value,
        },
        costs: costs(host)?,
        sched: SchedParams {
            latency: file.scheduler.latency.value,
            granularity: file.scheduler.granularity.value,
            wakeup_granularity: file.scheduler.wakeup_granularity.value,
        },
        pci: PciParams { max_read_request: file.max_read_request.value.get(), ..PciParams::default() },
        block: BlockParams::default(),
        steering: SteeringParams {
            entries: file.steering.entries.value.get(),
            rfs: file.steering.rfs.value,
            arfs: file.steering.arfs.value,
            idle: file.steering.idle.value,
            scan: file.steering.scan.value,
        },
        dma: DmaParams {
            flush_entries: file.dma.flush_entries.value.get() as usize,
            flush_time: file.dma.flush_time.value,
            low_first: file.dma.low_first.value,
            ..DmaParams::linux(match host.iommu {
                DmaMode::Off => ::kernel::DmaMode::Off,
                DmaMode::PassThrough => ::kernel::DmaMode::PassThrough,
                DmaMode::Strict => ::kernel::DmaMode::Strict,
                DmaMode::Lazy => ::kernel::DmaMode::Lazy,
            })
        },
    })
}

fn costs(host: &HostSetup) -> Result<KernelCosts, Diagnostics> {
    let (file, names) = (&host.kernel, KernelCosts::NAMES);
    if let Some(unknown) = file.cost.keys().find(|name| !names.contains(&name.as_str())) {
        let message = format!("kernel `{}` has an unknown `cost.{unknown}`", file.name);
        return Err(host.complaint(message, Some(format!("the costs are {}", names.join(", ")))));
    }
    let costs = KernelCosts::by_name(|name| file.cost.get(name).map(|cost| cost.value.get()));
    costs.map_err(|missing| {
        let message = format!("kernel `{}` does not say what `cost.{missing}` is", file.name);
        host.complaint(message, Some("add it to the kernel's file, or `extends = \"linux\"`".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Doc, KernelFile, Library};

    /// Tests of the kernel use the same costs as scenarios do.
    #[test]
    fn the_file_says_what_the_code_says() {
        let library = Library::built_in();
        let file = Doc::<KernelFile>::load(&library, "linux").unwrap().read().unwrap();
        let costs = KernelCosts::by_name(|name| file.cost.get(name).map(|cost| cost.value.get()));
        assert_eq!(costs, Ok(KernelCosts::linux()));
        assert_eq!(file.cost.len(), KernelCosts::NAMES.len());
        assert_eq!(file.scheduler.latency.value, SchedParams::linux().latency);
        let (said, own) = (file.steering, SteeringParams::linux());
        assert_eq!((said.idle.value, said.scan.value), (own.idle, own.scan));
        assert_eq!((said.rfs.value, said.arfs.value), (own.rfs, own.arfs));
        assert_eq!(said.entries.value.get(), own.entries);
    }
}
