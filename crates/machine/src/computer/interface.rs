//! Network devices by the names and addresses that a scenario gives to their places, as rules of udev do.
//!
//! A host's are numbered by slots: the ports of NICs, then virtual functions, then what is borrowed. A guest's are
//! numbered as they are given to it: passed through, borrowed at boot, the virtual NIC, borrowed later.

use std::net::Ipv4Addr;

use super::place::{FoundLink, PassedSetup};
use super::setup::{HostSetup, InterfaceSetup};
use super::slot::links_found;
use crate::cluster::{self, ClusterSetup};
use crate::nic::Nic;
use crate::program::ProgramEntry;

/// What becomes a network device: all but number and default address.
struct Unnumbered {
    port: (usize, usize, u8),
    links: Vec<usize>,
    segment: u16,
    is_virtual: bool,
    address: Option<(Ipv4Addr, u8)>,
}

impl Unnumbered {
    /// The `n`th network device of a kernel.
    fn numbered(self, n: usize, usual: (Ipv4Addr, u8)) -> InterfaceSetup {
        let Self { port, links, segment, is_virtual, address } = self;
        let (address, prefix) = address.unwrap_or(usual);
        InterfaceSetup { name: name(n), port, links, segment, is_virtual, alone: false, address, prefix }
    }
}

fn name(number: usize) -> String {
    format!("eth{number}")
}

/// Fills in the network devices of hosts and guests.
pub(super) fn find(hosts: &mut [HostSetup], programs: &[ProgramEntry], cluster: &ClusterSetup) {
    let all = &*hosts;
    let guests =
        |number: usize| (0..all[number].vms.len()).map(move |vm| of_guest((number, vm), all, cluster));
    let found: Vec<(Vec<_>, Vec<_>)> =
        (0..all.len()).map(|n| (of_host(n, all, cluster, programs), guests(n).collect())).collect();
    for (host, (interfaces, guests)) in hosts.iter_mut().zip(found) {
        host.interfaces = interfaces;
        for (vm, (interfaces, virtual_nic)) in host.vms.iter_mut().zip(guests) {
            vm.interfaces = interfaces;
            if let Some(nic) = &mut vm.nic {
                nic.number = virtual_nic;
            }
        }
    }
}

/// Network devices of the scenario's host `number`.
///
/// Without a configured address, device `n` of host `h`, counted from 0, gets 10.0.`n`.`h`+1. The prefix is
/// 10.0.0.0/16 for the first device and for a device alone in its namespace, and 10.0.`n`.0/24 for others.
fn of_host(
    number: usize,
    hosts: &[HostSetup],
    cluster: &ClusterSetup,
    programs: &[ProgramEntry],
) -> Vec<InterfaceSetup> {
    let host = &hosts[number];
    if host.has_user_nics() {
        return Vec::new();
    }
    let runs_here = |program: &&ProgramEntry| match &program.host {
        Some(name) => name.value == host.name,
        None => hosts.len() == 1,
    };
    let namespaces = programs.iter().filter(runs_here).filter_map(|program| program.namespace.as_ref());
    let namespaces: Vec<&str> = namespaces.map(|name| name.value.as_str()).collect();
    let all = links_found(hosts, number);
    let is_own =
        |at: &FoundLink| !cluster.lends(hosts, at.host, at.device) && !hosts[at.host].passes(at.device);
    let own = || all.iter().filter(|at| is_own(at)).filter_map(|&at| Some((at, nic(hosts, at)?)));
    let same =
        |at: FoundLink| all.iter().filter(move |other| (other.host, other.device) == (at.host, at.device));
    let physical = own().flat_map(|(at, nic)| {
        let links: Vec<usize> = match host.combines(nic) {
            true => same(at).map(|other| other.link).collect(),
            false => vec![at.link],
        };
        // A device that combines its functions is found by the first of them.
        let ports = if links[0] == at.link { ports_of(hosts, at, 0) } else { Vec::new() };
        ports.into_iter().map(move |port| Unnumbered { links: links.clone(), ..port })
    });
    let virtual_functions = own().flat_map(|(at, nic)| {
        let vfs = hosts[at.host].devices[at.device].vfs;
        let is_own = move |&vf: &u16| {
            let function = PassedSetup { device: at.device, vf: Some(vf) };
            !hosts[at.host].passes_function(function) && !cluster.lends_function(at.host, function)
        };
        let each = (0..ports(nic)).flat_map(move |port| (0..vfs).map(move |n| u16::from(port) * vfs + n));
        each.filter(is_own).map(move |vf| virtual_function(at, (vf / vfs) as u8, 0))
    });
    let borrowed = cluster.first_borrows(|borrow| borrow.is_by_host(number)).flat_map(|borrow| {
        let segment = cluster::segment(hosts, borrow.lender);
        ports_of_function(hosts, borrow.lender, borrow.function, segment)
    });
    let numbered = |(n, port): (usize, Unnumbered)| {
        let alone = namespaces.contains(&name(n).as_str());
        let prefix = if n == 0 || alone { 16 } else { 24 };
        let address = (Ipv4Addr::new(10, 0, n as u8, number as u8 + 1), prefix);
        InterfaceSetup { alone, ..port.numbered(n, address) }
    };
    physical.chain(virtual_functions).chain(borrowed).enumerate().map(numbered).collect()
}

/// Network devices of a virtual machine, and the index of its virtual NIC.
fn of_guest(
    (number, vm): (usize, usize),
    hosts: &[HostSetup],
    cluster: &ClusterSetup,
) -> (Vec<InterfaceSetup>, usize) {
    let of = &hosts[number].vms[vm];
    let passed = of.devices.iter().flat_map(|&passed| ports_of_function(hosts, number, passed, 0));
    let borrowed = |at_once: bool| {
        let all = cluster.first_borrows(|borrow| borrow.is_by_vm(number, vm));
        let borrows = all.filter(move |borrow| borrow.from.is_zero() == at_once);
        borrows.flat_map(|borrow| ports_of_function(hosts, borrow.lender, borrow.function, 0))
    };
    let mut all: Vec<_> = passed.chain(borrowed(true)).collect();
    let virtual_nic = all.len();
    all.extend(of.nic.map(|nic| {
        let port = (number, nic.uplink, 0);
        Unnumbered { port, links: vec![0], segment: 0, is_virtual: true, address: None }
    }));
    all.extend(borrowed(false));
    let usual = |n: usize| match of.address.filter(|_| n == 0) {
        Some(address) => address,
        None => (Ipv4Addr::new(10, n as u8, 128 + number as u8, vm as u8 + 1), 16),
    };
    let numbered = all.into_iter().enumerate().map(|(n, port)| port.numbered(n, usual(n)));
    (numbered.collect(), virtual_nic)
}

/// The NIC at a link, if it is one.
fn nic(hosts: &[HostSetup], at: FoundLink) -> Option<&Nic> {
    hosts[at.host].devices[at.device].kind.nic()
}

/// Ethernet ports at each link of a NIC.
fn ports(nic: &Nic) -> u8 {
    nic.controller.ports.value.get() as u8
}

/// The Ethernet ports at a NIC's link.
fn ports_of(hosts: &[HostSetup], at: FoundLink, segment: u16) -> Vec<Unnumbered> {
    let count = nic(hosts, at).map_or(0, ports);
    let of_link = hosts[at.host].devices[at.device].ports.iter().skip(at.link * usize::from(count));
    let each = (0..count).zip(of_link).map(|(port, said)| Unnumbered {
        port: (at.host, at.device, port),
        links: vec![at.link],
        segment,
        is_virtual: false,
        address: said.address.as_ref().map(|address| address.value),
    });
    each.collect()
}

/// A virtual function of a port.
fn virtual_function(at: FoundLink, port: u8, segment: u16) -> Unnumbered {
    let port = (at.host, at.device, port);
    Unnumbered { port, links: vec![at.link], segment, is_virtual: true, address: None }
}

/// Network devices of a passed-through or lent NIC, or of one of its virtual functions.
fn ports_of_function(
    hosts: &[HostSetup],
    host: usize,
    function: PassedSetup,
    segment: u16,
) -> Vec<Unnumbered> {
    let at = FoundLink { host, device: function.device, link: 0 };
    match function.vf {
        _ if nic(hosts, at).is_none() => Vec::new(),
        None => ports_of(hosts, at, segment),
        Some(vf) => vec![virtual_function(at, (vf / hosts[host].devices[at.device].vfs) as u8, segment)],
    }
}
