//! Converts machine and kernel files to parameters of kernel and drivers.

use std::collections::BTreeMap;

use ::kernel::{
    BlockParams, CoreParams, DmaParams, FragmentParams, InetParams, KernelCosts, KernelParams, PciParams,
    SchedParams, SteeringParams,
};
use drivers::nic::{KpioCosts, NicCosts};
use drivers::nvme::NvmeCosts;
use drivers::team::TeamCosts;
use drivers::virtio_blk::VirtioBlkCosts;
use drivers::virtio_net::VirtioNetCosts;
use machine::{Diagnostics, ErrorTrigger, Figure, HostSetup, KernelFile};
use platform::costs::CostTable;
use units::Cycles;
use virt::{VhostCosts, VirtCosts};
use wire::pcie::config::dpc::TriggerEnable;

use crate::plain::{Plain, plain};

/// Kernel parameters of a host.
///
/// # Errors
/// If the kernel's file lacks a cost or has an unknown one.
pub fn params(host: &HostSetup) -> Result<KernelParams, Diagnostics> {
    let (core, file) = (&host.machine.host.core, &host.kernel);
    let KernelFile { scheduler, pci, block, dma, .. } = file;
    Ok(KernelParams {
        core: plain!(core => CoreParams {
            frequency,
            fill_buffers: core.line_fill_buffers.plain(),
            store_buffer,
            issue: core.access_interval.value,
            store_interval
        }),
        costs: costs(host)?,
        sched: plain!(scheduler => SchedParams {
            latency, granularity, wakeup_granularity,
            cores: host.cores() as usize
        }),
        pci: PciParams {
            max_read_request: file.max_read_request.plain(),
            spare_buses: pci.hpbussize.plain(),
            spare_memory: pci.hpmmiosize.plain(),
            spare_prefetchable: pci.hpmmioprefsize.plain(),
            high_space: pci.mmio_high.as_ref().map(|space| space.value.get()),
            resizable_bars: pci.resizable_bars.as_ref().map(|size| size.value.get()),
            containment: match pci.containment() {
                ErrorTrigger::Off => TriggerEnable::Off,
                ErrorTrigger::Fatal => TriggerEnable::Fatal,
                ErrorTrigger::NonFatal => TriggerEnable::NonFatal,
            },
        },
        block: plain!(block => BlockParams { read_ahead, dirty_limit, cache_limit }),
        inet: inet(file),
        dma: plain!(dma => DmaParams { flush_entries, flush_time, low_first, ..DmaParams::linux(host.iommu) }),
    })
}

fn inet(file: &KernelFile) -> InetParams {
    let KernelFile { inet, steering, .. } = file;
    plain!(inet => InetParams {
        ecn, autocorking,
        fragments: FragmentParams { memory: inet.fragment_memory.plain(), time: inet.fragment_time.value },
        steering: plain!(steering => SteeringParams { entries, rfs, arfs, idle, scan })
    })
}

fn costs(host: &HostSetup) -> Result<KernelCosts, Diagnostics> {
    // Check the drivers' costs here, where errors can be reported.
    driver_costs(host)?;
    virt_costs(host)?;
    vhost_costs(host)?;
    if host.live {
        // What hands a guest's accesses on is no part of the host.
        return Ok(KernelCosts::none());
    }
    table(host, &host.kernel.cost)
}

/// CPU costs of drivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriverCosts {
    pub nic: NicCosts,
    pub kpio: KpioCosts,
    pub team: TeamCosts,
    pub virtio_net: VirtioNetCosts,
    pub virtio_blk: VirtioBlkCosts,
    pub nvme: NvmeCosts,
}

/// CPU costs of drivers in a kernel's file.
///
/// # Errors
/// If it lacks a cost or has an unknown one.
pub fn driver_costs(host: &HostSetup) -> Result<DriverCosts, Diagnostics> {
    let file = &host.kernel;
    Ok(DriverCosts {
        nic: table(host, &file.nic_cost)?,
        kpio: table(host, &file.kpio_cost)?,
        team: table(host, &file.team_cost)?,
        virtio_net: table(host, &file.virtio_net_cost)?,
        virtio_blk: table(host, &file.virtio_blk_cost)?,
        nvme: table(host, &file.nvme_cost)?,
    })
}

/// CPU costs of exits in a kernel's file.
///
/// # Errors
/// If it lacks a cost or has an unknown one.
pub fn virt_costs(host: &HostSetup) -> Result<VirtCosts, Diagnostics> {
    table(host, &host.kernel.virt_cost)
}

/// CPU costs of virtual NICs and disks in a kernel's file.
///
/// # Errors
/// If it lacks a cost or has an unknown one.
pub fn vhost_costs(host: &HostSetup) -> Result<VhostCosts, Diagnostics> {
    table(host, &host.kernel.vhost_cost)
}

/// A table of costs by name.
fn table<T: CostTable>(host: &HostSetup, given: &BTreeMap<String, Figure<Cycles>>) -> Result<T, Diagnostics> {
    let (file, table) = (&host.kernel, T::TABLE);
    if let Some(unknown) = given.keys().find(|name| !T::NAMES.contains(&name.as_str())) {
        let message = format!("kernel `{}` has an unknown `{table}.{unknown}`", file.name);
        return Err(host.complaint(message, Some(format!("the costs are {}", T::NAMES.join(", ")))));
    }
    T::by_name(|name| given.get(name).map(|cost| cost.value.get())).map_err(|missing| {
        let message = format!("kernel `{}` does not say what `{table}.{missing}` is", file.name);
        host.complaint(message, Some("add it to the kernel's file, or `extends = \"linux\"`".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Doc, Library};

    /// Costs read at compile time equal those that scenarios read.
    #[test]
    fn the_compiler_reads_the_file_as_scenarios_do() {
        let file = Doc::<KernelFile>::load(&Library::built_in(), "linux").unwrap().read().unwrap();
        let costs = KernelCosts::by_name(|name| file.cost.get(name).map(|cost| cost.value.get()));
        assert_eq!(costs, Ok(KernelCosts::linux()));
        assert_eq!(inet(&file), InetParams::linux());
        assert_eq!(file.scheduler.latency.value, SchedParams::linux().latency);
        assert_eq!(file.block.cache_limit.value, BlockParams::default().cache_limit);
    }
}
