//! Starting the virtual machines of booted hosts.

use std::collections::BTreeMap;
use std::rc::Rc;

use ::kernel::Kernel;
use drivers::virtio_blk::VirtioBlk;
use drivers::virtio_net::VirtioNet;
use engine::{Seed, Simulation};
use hardware::Fabric;
use machine::VmSetup;
use platform::Error;
use platform::kernel::TaskParams;
use virt::disk::ServedDisk;
use virt::net::ServedNic;
use virt::{Vm, VmError};
use wire::ethernet::MacAddr;

use super::computers::Computers;
use super::error::ComputerError;
use super::host::Computer;
use super::init::Init;
use super::passed::help_with_group;
use super::rules::Rules;
use super::vms::{Served, params};
use super::{device, kernel};

/// Starts and boots the hosts' virtual machines one after the other.
pub(super) fn start(computers: &Computers) -> Result<(), ComputerError> {
    let simulation = &computers.simulation;
    let hw = simulation.handle();
    for (number, host) in computers.hosts.iter().enumerate() {
        let Some(own) = &host.software.vms else { continue };
        for (n, vm) in own.setup.vms.iter().enumerate() {
            let functions = own.vms.functions(&hw, n);
            let started = Vm::start(&hw, &host.kernel, params(&own.setup, vm)?, functions);
            let started = simulation.block_on(started)?;
            let started = started.map_err(|error| {
                let help = match error {
                    VmError::Memory(_) => {
                        Some("less `memory`, another `node`, or fewer virtual machines".to_owned())
                    }
                    VmError::Function(at, Error::Busy) => {
                        help_with_group(&host.kernel, at, "virtual machine")
                    }
                    VmError::Function(..) => Some("`iommu = \"strict\"` of its host".to_owned()),
                };
                vm.complaint(format!("it does not start: {error}"), help)
            })?;
            started.follow(&own.vms.vfio);
            own.running.borrow_mut().push(Rc::clone(&started));
            computers.cluster().start_borrowings(|borrow| borrow.by == number && borrow.vm == Some(n))?;
            device::drivers(&own.setup).into_iter().for_each(|driver| started.kernel().add_driver(driver));
            simulation.block_on(started.kernel().boot())?;
            let mut served = Served::new();
            if let Some(disk) = &vm.disk {
                let storage = own.storage(&host.kernel, &hw, (disk.drive, host.devices[disk.drive]), vm)?;
                let (vdisk, way) = storage.add(&started, disk.part.clone());
                let costs = kernel::driver_costs(&own.setup)?.virtio_blk;
                let face = started.kernel().face();
                let probed = started.kernel().run(TaskParams::named("virtio-blk"), async move |cpu| {
                    VirtioBlk::probe(&face, &cpu, way, costs).await
                });
                let probed = simulation.block_on(async move { probed.wait().await })?;
                probed.map_err(|problem| {
                    vm.complaint(format!("its virtual disk does not start: {problem}"), None)
                })?;
                own.vdisks.borrow_mut().push(Rc::clone(&vdisk));
                served.push((disk.drive, Rc::new(ServedDisk { storage, vdisk })));
            }
            if let Some(nic) = &vm.nic {
                let network = own.network(&host.kernel, nic.uplink)?;
                let (vnic, way) = network.add(&started, MacAddr(nic.mac), 0);
                let costs = kernel::driver_costs(&own.setup)?.virtio_net;
                VirtioNet::new(started.kernel().face(), way, costs);
                own.vnics.borrow_mut().push(Rc::clone(&vnic));
                served.push((nic.uplink, Rc::new(ServedNic { network, vnic })));
            }
            start_interfaces(simulation, host, vm, &started.kernel())?;
            own.served.borrow_mut().push(served);
        }
        own.manage(&host.kernel, Seed::new(computers.seed).part(&host.name));
    }
    Ok(())
}

/// Starts the network devices that a guest has at boot; later ones are started when they appear.
fn start_interfaces(
    simulation: &Simulation<Fabric>,
    host: &Computer,
    vm: &VmSetup,
    kernel: &Rc<Kernel>,
) -> Result<(), ComputerError> {
    let init = Init {
        host: format!("{}/{}", host.name, vm.name),
        kernel: Rc::clone(kernel),
        namespaces: BTreeMap::new(),
        routes: Vec::new(),
    };
    let polled = vm.nic.filter(|nic| nic.polled).map(|nic| nic.number);
    let is_there = |name: &str| kernel.net().devices().iter().any(|device| device.name() == name);
    for (n, interface) in vm.interfaces.iter().enumerate() {
        if Some(n) != polled && is_there(&interface.name) {
            simulation.block_on(init.start(interface))??;
        }
    }
    let rules = Rules::of_guest(simulation.handle(), kernel, &vm.interfaces);
    kernel.net().set_rules(rules);
    Ok(())
}
