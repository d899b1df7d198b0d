//! Devices, from their files into slots.

mod card;
mod drive;
mod nic;

use devices::nic::NicHandle;
use std::rc::Rc;

use drivers::nic::{NicDriver, NicDriverParams};
use drivers::nvme::NvmeDriver;
use engine::Seed;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::root::HostId;
use machine::{DeviceFile, DeviceSetup, Host, HostSetup, LinkCapability};
use platform::pci::PciDriver;

use super::ComputerError;

/// Where a device goes, and what a device's file may ask for on the way.
struct Slot<'a> {
    fabric: &'a mut Fabric,
    host: HostId,
    machine: &'a Host,
    /// The slot's name; several devices may be in slots like one another, each with its own link.
    name: &'a str,
    /// Where a second port leads: host, its machine, the slot's name.
    second: Option<(HostId, &'a Host, &'a str)>,
    /// The device's number in its host.
    number: usize,
    seed: Seed,
}

impl Slot<'_> {
    /// The link to a device that can do `device`.
    fn link(
        &mut self,
        device: &LinkCapability,
    ) -> (hardware::link::LinkId, wire::pcie::Generation, wire::pcie::Width) {
        let port = &self.machine.port[self.name];
        // The kernel numbers the buses.
        crate::topology::add_slot(self.fabric, self.host, self.machine, port, device, 0..=0)
    }

    /// The link to its second port, if that leads anywhere.
    fn second_link(&mut self, device: &LinkCapability) -> Option<hardware::link::LinkId> {
        let (host, machine, name) = self.second?;
        let port = &machine.port[name];
        Some(crate::topology::add_slot(self.fabric, host, machine, port, device, 0..=0).0)
    }
}

/// Puts a device into its slot.
///
/// # Errors
/// If the device cannot be built.
pub fn plug(
    fabric: &mut Fabric,
    hosts: &[(HostId, &Host)],
    own: usize,
    (number, device): (usize, &DeviceSetup),
    seed: Seed,
) -> Result<(EndpointId, Option<NicHandle>), ComputerError> {
    let (host, machine) = hosts[own];
    let second = device.second.as_ref().map(|(host, slot)| (hosts[*host].0, hosts[*host].1, slot.as_str()));
    let slot = Slot { fabric, host, machine, name: &device.slot, second, number, seed };
    match &device.kind {
        DeviceFile::Drive(drive) => Ok((drive::plug(slot, drive)?, None)),
        DeviceFile::Nic(nic) => {
            nic::plug(slot, nic, &device.ports).map(|(nic, handle)| (nic, Some(handle))).map_err(Into::into)
        }
        DeviceFile::Card(part) => Ok((card::plug(slot, part)?, None)),
    }
}

/// The drivers of a host's kernel.
pub fn drivers(host: &HostSetup) -> Vec<Rc<dyn PciDriver>> {
    let mut nvme = drive::options(host.nvme_driver.as_ref());
    // What is wrong with them has been said when the kernel's parameters were read.
    if let Ok(costs) = super::kernel::driver_costs(host) {
        nvme.costs = costs.nvme;
    }
    vec![nic_driver(host, nic_driver_params(host)), Rc::new(NvmeDriver::new(nvme))]
}

/// How a scenario has the NIC's driver loaded.
pub fn nic_driver_params(host: &HostSetup) -> NicDriverParams {
    nic::driver_params(host.nic_driver.as_ref())
}

/// The NIC's driver, whose code costs what the host's kernel file says.
pub fn nic_driver(host: &HostSetup, mut params: NicDriverParams) -> Rc<NicDriver> {
    if let Ok(costs) = super::kernel::driver_costs(host) {
        params.costs = costs.nic;
        if let Some(kpio) = &mut params.kpio {
            kpio.costs = costs.kpio;
        }
    }
    NicDriver::new(params)
}
