//! Programs of a scenario, from their command lines. Invalid ones are reported at their lines before anything runs.

use std::net::Ipv4Addr;
use std::rc::Rc;

use machine::{
    ComputerSetup, DeviceFile, DeviceSetup, Diagnostics, HostSetup, PassedSetup, PortSetup, ProgramSetup,
};
use workloads::{Disk, Link, Premises, Program};

/// The programs, in the scenario's order.
///
/// # Errors
/// Every command line that is not understood, or asks for something that its host lacks.
pub(super) fn programs(setup: &ComputerSetup) -> Result<Vec<Rc<dyn Program>>, Diagnostics> {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for entry in &setup.programs {
        let program = workloads::parse_with(&entry.command, &entry.files).and_then(|program| {
            program.check(&premises(setup, entry))?;
            Ok(program)
        });
        match program {
            Ok(program) => found.push(program),
            Err(refused) => wrong.push(entry.run.complaint(refused.message, refused.help)),
        }
    }
    match Diagnostics::together(wrong) {
        Some(wrong) => Err(wrong),
        None => Ok(found),
    }
}

/// Checks all command lines of a scenario.
///
/// # Errors
/// Everything wrong with them.
pub fn check(setup: &ComputerSetup) -> Result<(), Diagnostics> {
    programs(setup).map(drop)
}

/// Names of a host's NICs for programs that poll them, in the order in which its kernel finds them.
fn polled_nics(setup: &ComputerSetup, number: usize) -> Vec<String> {
    let host = &setup.hosts[number];
    if !host.has_user_nics() {
        return Vec::new();
    }
    let ports = machine::links_found(&setup.hosts, number).into_iter().filter_map(|at| {
        match &setup.hosts[at.host].devices[at.device].kind {
            DeviceFile::Nic(nic) if at.host == number => Some(nic.controller.ports.value.get()),
            _ => None,
        }
    });
    (0..ports.sum()).map(|n: u32| format!("uio{n}")).collect()
}

/// Functions with names that the host or guest of a program has, own or borrowed, each with the index of its host.
pub(super) fn functions(setup: &ComputerSetup, entry: &ProgramSetup) -> Vec<(String, (usize, PassedSetup))> {
    let (host, cluster) = (&setup.hosts[entry.host], &setup.cluster);
    let borrowed = cluster.borrows.iter().filter(|borrow| borrow.by == entry.host && borrow.vm == entry.vm);
    let borrowed = borrowed.map(|borrow| (borrow.name.value.clone(), (borrow.lender, borrow.function)));
    let is_gone = |own: &PassedSetup| {
        host.vms.iter().any(|vm| vm.devices.contains(own))
            || cluster.lent_by(entry.host).any(|lent| lent == *own)
    };
    let own: Vec<PassedSetup> = match entry.vm {
        Some(vm) => host.vms[vm].devices.clone(),
        None => (0..host.devices.len())
            .flat_map(|device| functions_of(host, device))
            .filter(|own| !is_gone(own))
            .collect(),
    };
    let named = own.into_iter().filter_map(|own| Some((name_of(host, own)?, (entry.host, own))));
    named.chain(borrowed).collect()
}

/// A device with one link, or its virtual functions.
fn functions_of(host: &HostSetup, device: usize) -> Vec<PassedSetup> {
    let own = &host.devices[device];
    match own.vfs * own.ports.len() as u16 {
        _ if own.links.len() != 1 => Vec::new(),
        0 => vec![PassedSetup { device, vf: None }],
        all => (0..all).map(|vf| PassedSetup { device, vf: Some(vf) }).collect(),
    }
}

/// The name of a function in events and loans, if its device has one.
fn name_of(host: &HostSetup, PassedSetup { device, vf }: PassedSetup) -> Option<String> {
    let device = host.devices[device].name.as_ref()?;
    let vf = vf.map_or_else(String::new, |vf| format!(":vf{vf}"));
    Some(format!("{}:{device}{vf}", host.name))
}

/// All addresses, with whose they are; none if a live host's Linux may choose more, or a looped card changes them.
fn peers(setup: &ComputerSetup) -> Vec<(String, Ipv4Addr)> {
    let is_looped = |device: &DeviceSetup| matches!(&device.kind, DeviceFile::Nic(nic) if nic.is_looped());
    if setup.hosts.iter().any(|host| host.live || host.devices.iter().any(is_looped)) {
        return Vec::new();
    }
    let of = |name: &str, interfaces: &[machine::InterfaceSetup]| {
        let own = interfaces.iter().map(|interface| (name.to_owned(), interface.address));
        own.collect::<Vec<_>>()
    };
    let of_host = |host: &HostSetup| {
        let guests = host.vms.iter().flat_map(|vm| of(&format!("{}/{}", host.name, vm.name), &vm.interfaces));
        of(&host.name, &host.interfaces).into_iter().chain(guests.collect::<Vec<_>>())
    };
    let sources = setup.sources.iter().map(|source| (source.name.clone(), source.address));
    let sinks = setup.sinks.iter().map(|sink| (sink.name.clone(), sink.address));
    setup.hosts.iter().flat_map(of_host).chain(sources).chain(sinks).collect()
}

/// What a program will find on its host.
fn premises(setup: &ComputerSetup, entry: &ProgramSetup) -> Premises {
    let host = &setup.hosts[entry.host];
    let described = &host.machine.host;
    let is_cabled = |(host, device, port): (usize, usize, u8)| {
        let own = PortSetup::Host(host, device, port);
        setup.network.cables.iter().any(|cable| cable.ends.contains(&own))
    };
    let is_looped = |(host, device, _): (usize, usize, u8)| {
        let device = &setup.hosts[host].devices[device];
        matches!(&device.kind, DeviceFile::Nic(nic) if nic.is_looped())
    };
    let link = |interface: &machine::InterfaceSetup| Link {
        name: interface.name.clone(),
        queues: interface.channels as u16,
        max_frame: interface.max_frame.get(),
        has_carrier: is_cabled(interface.port) || is_looped(interface.port),
        shares_packets: host.teams.iter().all(|team| team.name != interface.name),
    };
    let disk = |disk: &machine::DiskSetup| Disk {
        name: disk.name.clone(),
        id: disk.id.clone(),
        bytes: disk.size.get(),
        block: disk.block.get(),
    };
    let found = machine::links_found(&setup.hosts, entry.host).into_iter();
    let own = found
        .map(|at| (at.host, at.device))
        .filter(|&(of, device)| !setup.cluster.lends(&setup.hosts, of, device));
    let borrowed =
        setup.cluster.borrows.iter().filter(|borrow| borrow.by == entry.host && borrow.vm == entry.vm);
    let borrowed = borrowed.map(|borrow| (borrow.lender, borrow.function.device));
    let devices: Vec<_> = match entry.vm {
        Some(vm) => {
            let own = host.vms[vm].devices.iter().map(|passed| (entry.host, passed.device));
            own.chain(borrowed).collect()
        }
        None => own.filter(|&(of, device)| !setup.hosts[of].passes(device)).chain(borrowed).collect(),
    };
    let count = |is_it: fn(&DeviceFile) -> bool| {
        devices.iter().filter(|&&(of, device)| is_it(&setup.hosts[of].devices[device].kind)).count() as u32
    };
    let user_drives = match host.has_user_drives() {
        true => count(|kind| matches!(kind, DeviceFile::Drive(_))),
        false => 0,
    };
    let cards = count(|kind| matches!(kind, DeviceFile::Card(_)));
    let functions = functions(setup, entry).into_iter().map(|(name, _)| name).collect();
    let cpus = |all: u16| (0..all).filter(|core| entry.cpus.is_empty() || entry.cpus.contains(core));
    if let Some(vm) = entry.vm.map(|vm| &host.vms[vm]) {
        // A virtual NIC reaches other guests even without a cable.
        let guest_link = |(n, interface)| match vm.nic.filter(|nic| nic.number == n) {
            None => Some(link(interface)),
            Some(nic) => (!nic.polled).then(|| Link { has_carrier: true, ..link(interface) }),
        };
        return Premises {
            cores: if entry.cpus.is_empty() { vm.vcpus.len() } else { entry.cpus.len() },
            all_cores: vm.vcpus.len(),
            cpus: cpus(vm.vcpus.len() as u16).map(|core| (core, 0)).collect(),
            nodes: 1,
            memory: vm.memory.get(),
            disks: vm.disks.iter().map(disk).collect(),
            links: vm.interfaces.iter().enumerate().filter_map(guest_link).collect(),
            polled: vm.nic.filter(|nic| nic.polled).map(|_| "uio0".to_owned()).into_iter().collect(),
            gpus: count(|kind| matches!(kind, DeviceFile::Gpu(_))),
            user_drives,
            cards,
            functions,
            peers: peers(setup),
        };
    }
    Premises {
        cores: if entry.cpus.is_empty() { host.cores() as usize } else { entry.cpus.len() },
        all_cores: host.cores() as usize,
        cpus: cpus(host.cores() as u16).map(|core| (core, host.node_of(core))).collect(),
        nodes: described.nodes() as u8,
        memory: described.memory_size().get(),
        disks: host.disks.iter().map(disk).collect(),
        links: host.interfaces.iter().map(link).collect(),
        polled: polled_nics(setup, entry.host),
        gpus: count(|kind| matches!(kind, DeviceFile::Gpu(_))),
        user_drives,
        cards,
        functions,
        peers: peers(setup),
    }
}
