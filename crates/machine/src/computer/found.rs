//! Predicts the devices that a host's kernel will find, with their kernel names, so that references to them can be
//! checked before boot.
//!
//! Kernels enumerate root ports in the order in which devices are plugged in: by host, device and link. Virtual
//! functions are enabled after everything else.

use std::net::Ipv4Addr;

use super::slot::{FoundLink, links_found};
use super::{DeviceFile, DeviceSetup, DriveSetup, HostSetup, PassedSetup};
use crate::cluster::{self, ClusterSetup};
use crate::nic::Nic;
use crate::program::ProgramEntry;
use crate::scalar::Count;
use units::Bytes;

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceSetup {
    /// Kernel name, such as `eth0`.
    pub name: String,
    /// Host of the device, index of the device on that host, and its Ethernet port.
    pub port: (usize, usize, u8),
    /// The upstream links through which it is reached: one, or those of all its functions.
    pub links: Vec<usize>,
    /// PCI segment in the kernel: 0 for the host's own fabric, others for borrowed devices.
    pub segment: u16,
    /// Whether it belongs to a virtual function or is a stacked device.
    pub is_virtual: bool,
    /// Whether it is the only device of a network namespace.
    pub alone: bool,
    /// IPv4 address: the scenario's, or the default that follows from the device's number.
    pub address: Ipv4Addr,
    /// Prefix length.
    pub prefix: u8,
    /// Pairs of queues that the driver uses.
    pub channels: u32,
    /// Maximum frame size without check sequence.
    pub max_frame: Bytes,
}

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSetup {
    /// Kernel name, such as `nvme0n1`.
    pub name: String,
    /// Name below `/dev/disk/by-id`, see [`settings::disk_id`].
    pub id: Option<String>,
    /// Capacity.
    pub size: Bytes,
    /// Block size.
    pub block: Bytes,
    /// Host of the drive, and the drive's index there; `None` for a virtual disk.
    pub device: Option<(usize, usize)>,
}

/// Fills in the devices that each host's kernel will find.
pub(super) fn find(hosts: &mut [HostSetup], programs: &[ProgramEntry], cluster: &ClusterSetup) {
    let is_only = hosts.len() == 1;
    let all = &*hosts;
    let networks = all.iter().enumerate().map(|(number, host)| {
        let runs_here = |program: &&ProgramEntry| match &program.host {
            Some(name) => name.value == host.name,
            None => is_only,
        };
        let namespaces = programs.iter().filter(runs_here).filter_map(|program| program.namespace.as_ref());
        let namespaces: Vec<&str> = namespaces.map(|name| name.value.as_str()).collect();
        interfaces(number, all, cluster, &namespaces)
    });
    let networks: Vec<_> = networks.collect();
    let drives = |number| {
        let found = links_found(all, number).into_iter();
        let is_passed = |(host, device): (usize, usize)| all[host].passes(device);
        let own = found.map(|link| (link.host, link.device));
        let own = own.filter(move |&at| !cluster.lends(all, at.0, at.1) && !is_passed(at));
        // Borrowed devices come after the host's own.
        let borrowed = cluster.first_borrows(move |borrow| borrow.is_by_host(number));
        own.chain(borrowed.map(|borrow| (borrow.lender, borrow.function.device))).filter_map(
            |(host, device)| match &all[host].devices[device].kind {
                DeviceFile::Drive(drive) => Some(((host, device), &**drive)),
                _ => None,
            },
        )
    };
    let as_one = |number: usize| all[number].nvme_driver.as_ref().is_some_and(|d| d.multipath == Some(true));
    let disks = |number: usize| match all[number].has_user_drives() {
        true => Vec::new(),
        false => disks(&drives(number).collect::<Vec<_>>(), as_one(number)),
    };
    let disks: Vec<_> = (0..all.len()).map(disks).collect();
    // A guest finds the devices passed through to it and those that it borrows.
    let guest_disks = |number: usize, vm: usize| {
        let borrows = cluster.first_borrows(move |borrow| borrow.is_by_vm(number, vm));
        let own = all[number].vms[vm].devices.iter().map(|passed| (number, passed.device));
        let drives =
            own.chain(borrows.map(|borrow| (borrow.lender, borrow.function.device))).filter_map(|at| {
                match &all[at.0].devices[at.1].kind {
                    DeviceFile::Drive(drive) => Some((at, &**drive)),
                    _ => None,
                }
            });
        let mut disks = match all[number].has_user_drives() {
            true => Vec::new(),
            false => self::disks(&drives.collect::<Vec<_>>(), false),
        };
        disks.extend(all[number].vms[vm].disk.iter().map(|disk| disk.found.clone()));
        disks
    };
    let of_guests: Vec<Vec<_>> =
        (0..all.len()).map(|n| (0..all[n].vms.len()).map(|vm| guest_disks(n, vm)).collect()).collect();
    let guests: Vec<Vec<_>> = (0..all.len())
        .map(|n| (0..all[n].vms.len()).map(|vm| guest_interfaces((n, vm), all, cluster)).collect())
        .collect();
    for (host, found) in hosts.iter_mut().zip(of_guests.into_iter().zip(guests)) {
        let (disks, interfaces) = found;
        for (vm, found) in host.vms.iter_mut().zip(disks.into_iter().zip(interfaces)) {
            let virtual_nic;
            (vm.disks, (vm.interfaces, virtual_nic)) = found;
            if let Some(nic) = &mut vm.nic {
                nic.number = virtual_nic;
            }
        }
    }
    for (host, (interfaces, disks)) in hosts.iter_mut().zip(networks.into_iter().zip(disks)) {
        (host.interfaces, host.disks) = (interfaces, disks);
    }
}

/// The block devices of controllers: one per namespace and controller, or per namespace and drive (`as_one`), named
/// after its first controller.
pub(super) fn disks(controllers: &[((usize, usize), &DriveSetup)], as_one: bool) -> Vec<DiskSetup> {
    let is_first = |(n, (whose, _)): &(usize, &((usize, usize), &DriveSetup))| {
        !as_one || !controllers[..*n].iter().any(|(other, _)| other == whose)
    };
    let of = |(controller, &(whose, drive)): (usize, &((usize, usize), &DriveSetup))| {
        let block = drive.file.controller.block.value;
        let named = move |(id, &size): (usize, &Bytes)| DiskSetup {
            name: format!("nvme{controller}n{}", id + 1),
            id: Some(settings::disk_id(&drive.serial, id as u32 + 1)),
            size,
            block,
            device: Some(whose),
        };
        drive.namespaces.iter().enumerate().map(named).collect::<Vec<_>>()
    };
    controllers.iter().enumerate().filter(is_first).flat_map(of).collect()
}

/// For each network device: link and Ethernet port, NIC, configured address, whether it is a virtual function, and
/// PCI segment.
type Role<'a> = ((FoundLink, u8), &'a Nic, Option<&'a crate::Placed<(Ipv4Addr, u8)>>, bool, u16);

/// Network devices of the scenario's host `number`: ports of each NIC, then virtual functions, then borrowed ones.
///
/// Without a configured address, device `n` of host `h`, counted from 0, gets 10.0.`n`.`h`+1. The prefix is
/// 10.0.0.0/16 for the first device and for a device alone in its namespace, and 10.0.`n`.0/24 for others.
fn interfaces(
    number: usize,
    hosts: &[HostSetup],
    cluster: &ClusterSetup,
    namespaces: &[&str],
) -> Vec<InterfaceSetup> {
    let host = &hosts[number];
    if host.has_user_nics() {
        return Vec::new();
    }
    let is_own = |link: &FoundLink| {
        !cluster.lends(hosts, link.host, link.device) && !hosts[link.host].passes(link.device)
    };
    let nics =
        || links_found(hosts, number).into_iter().filter(is_own).filter_map(|link| nic_at(hosts, link));
    let all = links_found(hosts, number);
    let physical = all.iter().enumerate().filter(|(_, link)| is_own(link)).filter_map(|(n, &link)| {
        let found = nic_at(hosts, link)?;
        (!is_behind_another(host, found.1, &all, n)).then(|| ports_of(found, 0))
    });
    let physical = physical.flatten();
    let borrowed = cluster.first_borrows(|borrow| borrow.is_by_host(number)).flat_map(|borrow| {
        let segment = cluster::segment(hosts, borrow.lender);
        ports_of_function(hosts, borrow.lender, borrow.function, segment)
    });
    let virtual_functions = nics().flat_map(|(link, nic, device, ports)| {
        let of: &DeviceSetup = device;
        let is_own = move |vf: u16| {
            let function = PassedSetup { device: link.device, vf: Some(vf) };
            !hosts[link.host].passes_function(function) && !cluster.lends_function(link.host, function)
        };
        let each = move |port: u8| {
            let own = (0..of.vfs).filter(move |n| is_own(u16::from(port) * of.vfs + n));
            own.map(move |_| ((link, port), nic, None, true, 0))
        };
        (0..ports).flat_map(each)
    });
    let named = |(n, role): (usize, Role<'_>)| {
        let alone = namespaces.contains(&format!("eth{n}").as_str());
        let prefix = if n == 0 || alone { 16 } else { 24 };
        let address = (Ipv4Addr::new(10, 0, n as u8, number as u8 + 1), prefix);
        let ((link, _), nic, _, is_virtual, segment) = role;
        let mut own = InterfaceSetup { alone, ..interface(n, role, host, host.cores(), address) };
        if segment == 0 && !is_virtual && host.combines(nic) {
            let same = all.iter().filter(|other| (other.host, other.device) == (link.host, link.device));
            own.links = same.map(|other| other.link).collect();
            own.channels *= own.links.len() as u32;
        }
        own
    };
    physical.chain(virtual_functions).chain(borrowed).enumerate().map(named).collect()
}

/// The `n`th network device of a kernel with `cores` cores, and its default address.
fn interface(
    n: usize,
    ((link, port), nic, given, is_virtual, segment): Role<'_>,
    host: &HostSetup,
    cores: u32,
    usual: (Ipv4Addr, u8),
) -> InterfaceSetup {
    let (address, prefix) = given.map_or(usual, |given| given.value);
    InterfaceSetup {
        name: format!("eth{n}"),
        port: (link.host, link.device, port),
        links: vec![link.link],
        segment,
        is_virtual,
        alone: false,
        address,
        prefix,
        channels: channels(host, nic, is_virtual, cores),
        max_frame: nic.controller.max_frame.value,
    }
}

/// Network devices of a virtual machine in order of discovery, and the index of its virtual NIC: devices passed
/// through, devices borrowed at boot, the virtual NIC, devices borrowed later.
fn guest_interfaces(
    (number, vm): (usize, usize),
    hosts: &[HostSetup],
    cluster: &ClusterSetup,
) -> (Vec<InterfaceSetup>, usize) {
    let (host, of) = (&hosts[number], &hosts[number].vms[vm]);
    let passed = of.devices.iter().flat_map(|&passed| ports_of_function(hosts, number, passed, 0));
    let borrowed = |at_once: bool| {
        let all = cluster.first_borrows(|borrow| borrow.is_by_vm(number, vm));
        let borrows = all.filter(|borrow| borrow.from.is_zero() == at_once);
        borrows
            .flat_map(|borrow| ports_of_function(hosts, borrow.lender, borrow.function, 0))
            .collect::<Vec<_>>()
    };
    let first: Vec<_> = passed.chain(borrowed(true)).collect();
    let usual = |n: usize| match of.address.filter(|_| n == 0) {
        Some(address) => address,
        None => (Ipv4Addr::new(10, n as u8, 128 + number as u8, vm as u8 + 1), 16),
    };
    let cores = of.vcpus.len() as u32;
    let named = |(n, role): (usize, Role<'_>)| interface(n, role, host, cores, usual(n));
    let mut found: Vec<_> = first.into_iter().enumerate().map(named).collect();
    let virtual_nic = found.len();
    if let Some(nic) = &of.nic {
        let (address, prefix) = usual(virtual_nic);
        found.push(InterfaceSetup {
            name: format!("eth{virtual_nic}"),
            port: (number, nic.uplink, 0),
            links: vec![0],
            segment: 0,
            is_virtual: true,
            alone: false,
            address,
            prefix,
            channels: 1,
            max_frame: VIRTUAL_FRAME,
        });
    }
    let next = found.len();
    found.extend((next..).zip(borrowed(false)).map(named));
    (found, virtual_nic)
}

/// Maximum frame size of a virtual NIC: Ethernet's.
const VIRTUAL_FRAME: Bytes = Bytes::new(1514);

/// Whether the function behind the `n`th of a host's links is part of the network device of an earlier link.
pub(super) fn is_behind_another(host: &HostSetup, nic: &Nic, links: &[FoundLink], n: usize) -> bool {
    let same = |other: &FoundLink| (other.host, other.device) == (links[n].host, links[n].device);
    host.combines(nic) && links[..n].iter().any(same)
}

/// The NIC at a link, if it is one.
fn nic_at(hosts: &[HostSetup], link: FoundLink) -> Option<NicLink<'_>> {
    let device = &hosts[link.host].devices[link.device];
    let DeviceFile::Nic(nic) = &device.kind else { return None };
    Some((link, nic, device, nic.controller.ports.value.get() as u8))
}

/// A NIC's link, its file, its device, and the number of Ethernet ports at the link.
type NicLink<'a> = (FoundLink, &'a Nic, &'a DeviceSetup, u8);

/// Network devices for the Ethernet ports of a NIC's link.
fn ports_of((link, nic, device, ports): NicLink<'_>, segment: u16) -> Vec<Role<'_>> {
    let of_link = device.ports.iter().skip(link.link * usize::from(ports));
    let each = (0..ports).zip(of_link);
    each.map(|(port, said)| ((link, port), nic, said.address.as_ref(), false, segment)).collect()
}

/// Network devices of a passed-through or lent NIC, or of one of its virtual functions.
fn ports_of_function(hosts: &[HostSetup], host: usize, function: PassedSetup, segment: u16) -> Vec<Role<'_>> {
    let found = nic_at(hosts, FoundLink { host, device: function.device, link: 0 });
    let Some((link, nic, device, ports)) = found else { return Vec::new() };
    match function.vf {
        None => ports_of((link, nic, device, ports), segment),
        Some(vf) => vec![((link, (vf / device.vfs) as u8), nic, None, true, segment)],
    }
}

/// Pairs of queues that the driver uses for a function.
fn channels(host: &HostSetup, nic: &Nic, is_virtual: bool, cores: u32) -> u32 {
    let driver = host.nic_driver.as_ref();
    let asked = match driver.is_some_and(|driver| driver.legacy_interrupt == Some(true)) {
        true => 1,
        false => driver.and_then(|d| d.channels.as_ref()).map_or(u32::MAX, |channels| channels.value.get()),
    };
    most_channels(nic, is_virtual, cores).min(asked).max(1)
}

/// Maximum pairs of queues for a function on a number of cores: each needs an interrupt, and one more is for events.
pub(super) fn most_channels(nic: &Nic, is_virtual: bool, cores: u32) -> u32 {
    let (controller, get) = (&nic.controller, |figure: &crate::Figure<Count>| figure.value.get());
    let (queues, vectors) = match nic.virtual_functions.as_ref().filter(|_| is_virtual) {
        Some(own) => (get(&own.queue_pairs), get(&own.vectors)),
        None => (get(&controller.tx_queues).min(get(&controller.rx_queues)), get(&controller.vectors)),
    };
    queues.min(vectors.saturating_sub(1)).min(cores)
}
