//! Programs of a scenario, from their command lines. Invalid ones are reported at their lines before any runs: what is
//! not understood before the hosts boot, what asks for something that is not there when they have booted.

use std::net::Ipv4Addr;
use std::rc::Rc;

use ::kernel::Kernel;
use machine::{ComputerSetup, DeviceFile, DeviceSetup, Diagnostics, HostSetup, PassedSetup, ProgramSetup};
use workloads::{Link, Premises, Program, Refused};

use super::found;

/// The programs, in the scenario's order.
///
/// # Errors
/// Every command line that is not understood.
pub(super) fn parse(setup: &ComputerSetup) -> Result<Vec<Rc<dyn Program>>, Diagnostics> {
    each(setup, |entry| workloads::parse_with(&entry.command, &entry.files))
}

/// Checks programs against what the kernels of their hosts and guests have. `kernel` returns that of a place.
///
/// # Errors
/// Every command line that asks for something that its host lacks.
pub(super) fn check_all(
    setup: &ComputerSetup,
    kernel: impl Fn((usize, Option<usize>)) -> Option<Rc<Kernel>>,
    programs: &[Rc<dyn Program>],
) -> Result<(), Diagnostics> {
    let mut programs = programs.iter();
    each(setup, |entry| {
        let program = programs.next().expect("one for each entry");
        let kernel = kernel((entry.host, entry.vm));
        program.check(&premises(setup, kernel.as_deref(), entry))
    })
    .map(drop)
}

/// Does something for each entry; tells all that is refused.
fn each<T>(
    setup: &ComputerSetup,
    mut of: impl FnMut(&ProgramSetup) -> Result<T, Refused>,
) -> Result<Vec<T>, Diagnostics> {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for entry in &setup.programs {
        match of(entry) {
            Ok(program) => found.push(program),
            Err(refused) => {
                wrong.extend(
                    refused.apart().into_iter().map(|one| entry.run.complaint(one.message, one.help)),
                );
            }
        }
    }
    match Diagnostics::together(wrong) {
        Some(wrong) => Err(wrong),
        None => Ok(found),
    }
}

/// Checks that all command lines of a scenario are understood. Whether they ask for what is there is known when the
/// hosts have booted.
///
/// # Errors
/// Everything wrong with them.
pub fn check_syntax(setup: &ComputerSetup) -> Result<(), Diagnostics> {
    parse(setup).map(drop)
}

/// Names of a host's NICs for programs that poll them, in the order in which its kernel finds them, each with whether it has a
/// link partner.
fn polled_nics(setup: &ComputerSetup, number: usize) -> Vec<(String, bool)> {
    let host = &setup.hosts[number];
    if !host.has_user_nics() {
        return Vec::new();
    }
    let links = machine::links_found(&setup.hosts, number).into_iter().filter(|at| at.host == number);
    let ports = links.flat_map(|at| {
        let nic = setup.hosts[at.host].devices[at.device].kind.nic();
        let ports = nic.map_or(0, |nic| nic.controller.ports.value.get()) as u8;
        (0..ports).map(move |port| (at.host, at.device, port))
    });
    ports.enumerate().map(|(n, port)| (format!("uio{n}"), found::has_partner(setup, port))).collect()
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
    let is_looped = |device: &DeviceSetup| device.kind.nic().is_some_and(|nic| nic.is_looped());
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

/// What a program finds on its host.
fn premises(setup: &ComputerSetup, kernel: Option<&Kernel>, entry: &ProgramSetup) -> Premises {
    let (host, place) = (&setup.hosts[entry.host], (entry.host, entry.vm));
    let described = &host.machine.host;
    let link = |interface: &machine::InterfaceSetup| found::link(setup, kernel, interface);
    let devices = found::devices_of(setup, place);
    let count = |is_it: fn(&DeviceFile) -> bool| {
        devices.iter().filter(|&&(of, device)| is_it(&setup.hosts[of].devices[device].kind)).count() as u32
    };
    let user_drives = match host.has_user_drives() {
        true => count(|kind| kind.drive().is_some()),
        false => 0,
    };
    let vm = entry.vm.map(|vm| &host.vms[vm]);
    let all_cores = vm.map_or(host.cores() as usize, |vm| vm.vcpus.len());
    let node_of = |core| if vm.is_some() { 0 } else { host.node_of(core) };
    let cpus = (0..all_cores as u16).filter(|core| entry.cpus.is_empty() || entry.cpus.contains(core));
    // A virtual NIC reaches other guests even without a cable.
    let guest_link = |vm: &machine::VmSetup, (n, interface)| match vm.nic.filter(|nic| nic.number == n) {
        None => Some(link(interface)),
        Some(nic) => (!nic.polled).then(|| Link { has_carrier: true, ..link(interface) }),
    };
    let (nodes, memory, links, polled) = match vm {
        Some(vm) => {
            let links = vm.interfaces.iter().enumerate().filter_map(|own| guest_link(vm, own));
            let polled = vm.nic.filter(|nic| nic.polled).map(|_| ("uio0".to_owned(), true));
            (1, vm.memory.get(), links.collect(), polled.into_iter().collect())
        }
        None => {
            let links = host.interfaces.iter().map(link).collect();
            let memory = described.memory_size().get();
            (described.nodes() as u8, memory, links, polled_nics(setup, entry.host))
        }
    };
    Premises {
        cores: if entry.cpus.is_empty() { all_cores } else { entry.cpus.len() },
        all_cores,
        cpus: cpus.map(|core| (core, node_of(core))).collect(),
        nodes,
        memory,
        disks: found::disks(setup, kernel, place),
        links,
        polled,
        gpus: count(|kind| kind.gpu().is_some()),
        user_drives,
        cards: count(|kind| kind.card().is_some()),
        functions: functions(setup, entry).into_iter().map(|(name, _)| name).collect(),
        peers: peers(setup),
    }
}
