//! What booted kernels have found, under the names that they have given.

use ::kernel::Kernel;
use machine::{ComputerSetup, DeviceSetup, InterfaceSetup, PortSetup};
use platform::block::SECTOR;
use workloads::{Disk, Link};

/// Largest Ethernet header, which an MTU leaves out.
const HEADER: u64 = wire::ethernet::HEADER_LEN as u64;

/// The devices that a host or one of its guests has, now or at another time: own, passed through and borrowed.
pub(super) fn devices_of(setup: &ComputerSetup, (number, vm): (usize, Option<usize>)) -> Vec<(usize, usize)> {
    let borrows = setup.cluster.borrows.iter().filter(|borrow| (borrow.by, borrow.vm) == (number, vm));
    let borrowed = borrows.map(|borrow| (borrow.lender, borrow.function.device));
    match vm {
        Some(vm) => {
            let own = setup.hosts[number].vms[vm].devices.iter().map(|passed| (number, passed.device));
            own.chain(borrowed).collect()
        }
        None => {
            let all = machine::links_found(&setup.hosts, number).into_iter().map(|at| (at.host, at.device));
            let is_own = |&(of, device): &(usize, usize)| {
                !setup.cluster.lends(&setup.hosts, of, device) && !setup.hosts[of].passes(device)
            };
            all.filter(is_own).chain(borrowed).collect()
        }
    }
}

/// The block devices of a host or guest: those that its kernel has, then those that are to come, without a name.
pub(super) fn disks(
    setup: &ComputerSetup,
    kernel: Option<&Kernel>,
    place: (usize, Option<usize>),
) -> Vec<Disk> {
    let found = kernel.into_iter().flat_map(|kernel| kernel.block().devices()).map(|device| {
        let limits = device.limits();
        Disk {
            name: Some(device.name().to_owned()),
            id: limits.id.clone(),
            bytes: limits.sectors * SECTOR,
            block: limits.block_bytes.into(),
        }
    });
    let mut all: Vec<Disk> = found.collect();
    let devices = match setup.hosts[place.0].has_user_drives() {
        true => Vec::new(),
        false => devices_of(setup, place),
    };
    for (of, device) in devices {
        let drive = setup.hosts[of].devices[device].kind.drive();
        for disk in drive.into_iter().flat_map(|drive| drive.disks()) {
            if !all.iter().any(|known| known.id.as_ref() == Some(&disk.id)) {
                let (bytes, block) = (disk.size.get(), disk.block.get());
                all.push(Disk { name: None, id: Some(disk.id), bytes, block });
            }
        }
    }
    all
}

/// Whether an Ethernet port is at a cable, or leads back to its own card.
pub(super) fn has_partner(setup: &ComputerSetup, (host, device, port): (usize, usize, u8)) -> bool {
    let own = PortSetup::Host(host, device, port);
    let is_cabled = setup.network.cables.iter().any(|cable| cable.ends.contains(&own));
    is_cabled || setup.hosts[host].devices[device].kind.nic().is_some_and(|nic| nic.is_looped())
}

/// A network device that the scenario names, as the kernel has it. One that is to come can have any queues and frames.
pub(super) fn link(setup: &ComputerSetup, kernel: Option<&Kernel>, interface: &InterfaceSetup) -> Link {
    let found = kernel.and_then(|kernel| kernel.net().device(&interface.name));
    let limits = found.as_ref().map(|device| device.limits());
    Link {
        name: interface.name.clone(),
        queues: limits.map_or(u16::MAX, |limits| limits.rx_queues),
        max_frame: limits.map_or(u64::MAX, |limits| u64::from(limits.max_mtu) + HEADER),
        has_carrier: has_partner(setup, interface.port),
        shares_packets: limits.is_none_or(|limits| limits.shares_packets),
    }
}

/// The host and index of the drive with a block device at this path below `/dev/disk/by-id`.
pub(super) fn drive_of(setup: &ComputerSetup, path: &str) -> Option<(usize, usize)> {
    let all = setup.hosts.iter().enumerate().flat_map(|(host, own)| {
        own.devices.iter().enumerate().map(move |(device, own)| ((host, device), own))
    });
    let has = |device: &DeviceSetup| {
        device.kind.drive().is_some_and(|drive| drive.disks().any(|disk| disk.is_at(path)))
    };
    all.into_iter().find(|(_, device)| has(device)).map(|(at, _)| at)
}
