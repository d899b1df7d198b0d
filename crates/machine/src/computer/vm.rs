//! Virtual machines of a host.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::device::DeviceFile;
use super::place::PassedSetup;
use super::setup::{HostSetup, VirtualDiskSetup, VirtualNicSetup, VmSetup};
use crate::diagnostic::Diagnostic;
use crate::limits::check_name;
use crate::names;
use crate::placed::Placed;
use crate::placement::{cores_help, cpu_list};
use crate::port::ipv4;
use crate::read::{Check, record};
use settings::{FunctionHolder, isolation};
use units::Bytes;

record! {
    /// A virtual machine of a host.
    pub struct VmEntry {
        /// Name; programs run in `HOST/NAME`.
        name: Placed<String>,
        /// The host's cores in taskset syntax. Each gets a vCPU, which is a task there.
        vcpus: Placed<String>,
        /// Size of its memory.
        memory: Placed<Bytes>,
        /// Node of its memory; that of its first core if not given.
        node: Option<Placed<u64>>,
        /// Names of the host's devices to pass through: drives, GPUs, NICs; `nic:vf0` is the first virtual function
        /// of the NIC `nic`.
        devices: Vec<Placed<String>>,
        /// Name of the host's drive that provides its virtual disk, `/dev/vda`. Virtual machines that share a drive
        /// get equal parts of its first namespace. No virtual disk if not given.
        disk: Option<Placed<String>>,
        /// Name of the host's NIC that provides its virtual NIC; no virtual NIC if not given.
        uplink: Option<Placed<String>>,
        /// IPv4 address of its first network device, such as `10.0.128.1/16`, unless the device itself has one. By
        /// default, device *d* of the *n*th virtual machine of host *h*, all counted from 0, gets
        /// 10.*d*.*h*+128.*n*+1.
        address: Option<Placed<String>>,
        /// Whether a program polls the virtual NIC (`l2fwd`), so that the guest's kernel does not use it.
        polled: Option<bool>,
    }
    check |vm: &VmEntry, check: &mut Check<'_>| {
        let mib = Bytes::mib(2).get();
        let (bytes, least) = (vm.memory.value.get(), Bytes::mib(64).get());
        check.require(
            bytes >= least && bytes % mib == 0,
            "memory",
            format!("no guest has {} of memory", vm.memory.value),
            "64 MiB or more, a multiple of 2 MiB",
        );
    }
}

/// Resolves cores and devices of each host's virtual machines. Devices passed through are not the host's, so this
/// comes before the host's devices are enumerated.
pub(super) fn find(entries: &[&[VmEntry]], hosts: &mut [HostSetup], wrong: &mut Vec<Diagnostic>) {
    for (number, (&entries, host)) in entries.iter().zip(hosts).enumerate() {
        let (mut names, mut passed) = (BTreeSet::new(), BTreeSet::new());
        let mut vms = Vec::new();
        for vm in entries {
            check_name(&vm.name, wrong);
            if !names.insert(&vm.name.value) {
                let message = format!("there are two virtual machines called `{}`", vm.name.value);
                wrong.push(Diagnostic::new(&vm.name.place, message).help("a name of its own for each"));
            }
            let own = (number as u8, vms.len() as u8);
            vms.extend(one((vm, entries), own, host, &mut passed, wrong));
        }
        for name in entries.iter().filter_map(|vm| vm.uplink.as_ref()) {
            let device = names::find_device(host, &name.value);
            if device.is_some_and(|device| passed.contains(&PassedSetup { device, vf: None })) {
                let message = format!("`{}` is passed through to a virtual machine", name.value);
                wrong.push(Diagnostic::new(&name.place, message).help("another NIC, which stays the host's"));
            }
        }
        host.vms = vms;
    }
}

/// Index of a host's device by name.
fn device(host: &HostSetup, name: &Placed<String>, wrong: &mut Vec<Diagnostic>) -> Option<usize> {
    let told = |(message, help)| wrong.push(Diagnostic::new(&name.place, message).help(help));
    names::device(host, &name.value).map_err(told).ok()
}

/// The virtual disk of a virtual machine; `entries` share the drive.
fn virtual_disk(
    vm: &VmEntry,
    entries: &[VmEntry],
    host: &HostSetup,
    wrong: &mut Vec<Diagnostic>,
) -> Option<VirtualDiskSetup> {
    let name = vm.disk.as_ref()?;
    let number = device(host, name, wrong)?;
    let is_passed = entries.iter().flat_map(|vm| &vm.devices).any(|passed| passed.value == name.value);
    let drive = match &host.devices[number].kind {
        DeviceFile::Drive(drive) if !is_passed && !host.has_user_drives() => drive,
        kind => {
            let (message, help) = match kind {
                DeviceFile::Drive(_) if is_passed => ("is passed through to a guest", "name another drive"),
                DeviceFile::Drive(_) => ("is a program's", "leave the host's drives to its kernel"),
                _ => ("is not a drive", "the name of a device with `drive`"),
            };
            wrong.push(Diagnostic::new(&name.place, format!("`{}` {message}", name.value)).help(help));
            return None;
        }
    };
    let shares = entries.iter().filter(|other| other.disk.as_ref().is_some_and(|d| d.value == name.value));
    let (mut count, mut place) = (0, 0);
    for other in shares {
        if std::ptr::eq(other, vm) {
            place = count;
        }
        count += 1;
    }
    let mib = Bytes::mib(1).get();
    let size = drive.namespaces.first()?.get() / count / mib * mib;
    Some(VirtualDiskSetup { drive: number, part: place * size..(place + 1) * size })
}

/// The virtual NIC of a host's `number`th virtual machine.
fn virtual_nic(
    vm: &VmEntry,
    (of, number): (u8, u8),
    host: &HostSetup,
    wrong: &mut Vec<Diagnostic>,
) -> Option<VirtualNicSetup> {
    let name = vm.uplink.as_ref()?;
    let uplink = device(host, name, wrong)?;
    let Some(nic) = host.devices[uplink].kind.nic() else {
        let message = format!("`{}` is not a NIC", name.value);
        wrong.push(Diagnostic::new(&name.place, message).help("the name of a device with `nic`"));
        return None;
    };
    if nic.controller.addresses.as_ref().is_none_or(|addresses| addresses.value == 0) {
        let message = format!("`{}` cannot sort frames by Ethernet address", nic.name);
        let help = "a NIC with `controller.addresses`, such as `82599`";
        wrong.push(Diagnostic::new(&name.place, message).help(help));
        return None;
    }
    let polled = vm.polled.unwrap_or(false);
    Some(VirtualNicSetup { uplink, mac: [0x52, 0x54, 0, 0, of, number], polled, number: 0 })
}

/// Resolves an entry of a guest's `devices` and checks that it is not used elsewhere.
fn pass(
    name: &Placed<String>,
    host: &HostSetup,
    passed: &mut BTreeSet<PassedSetup>,
    wrong: &mut Vec<Diagnostic>,
) -> Option<PassedSetup> {
    let of = name.value.split_once(':').map_or(name.value.as_str(), |(of, _)| of);
    let number = match names::device(host, of) {
        Ok(number) => number,
        Err((message, help)) => {
            wrong.push(Diagnostic::new(&name.place, message).help(help));
            return None;
        }
    };
    let named = names::function(host, &name.value);
    let kind = &host.devices[number].kind;
    let (message, help) = match (isolation(host.iommu, FunctionHolder::OwnGuest), kind, named) {
        (Err(refusal), ..) => (refusal.to_string(), refusal.remedy(&host.name, &host.name)),
        (.., Err(refused)) => refused,
        (_, DeviceFile::Drive(_) | DeviceFile::Gpu(_) | DeviceFile::Nic(_), Ok(own)) => {
            if passed.insert(own) {
                return Some(own);
            }
            ("it is passed through already".to_owned(), "to one virtual machine, once".to_owned())
        }
        _ => ("only drives, GPUs and NICs can be passed through".to_owned(), "name one of those".to_owned()),
    };
    wrong.push(Diagnostic::new(&name.place, format!("`{}`: {message}", name.value)).help(help));
    None
}

/// The address of a guest's first network device.
fn first_address(given: &Placed<String>, wrong: &mut Vec<Diagnostic>) -> Option<(Ipv4Addr, u8)> {
    let address = ipv4(&given.value).map_err(|help| {
        let message = format!("`{}` is not an address", given.value);
        wrong.push(Diagnostic::new(&given.place, message).help(help));
    });
    address.ok()
}

fn one(
    (vm, all): (&VmEntry, &[VmEntry]),
    own: (u8, u8),
    host: &HostSetup,
    passed: &mut BTreeSet<PassedSetup>,
    wrong: &mut Vec<Diagnostic>,
) -> Option<VmSetup> {
    let cores = host.cores();
    let vcpus = cpu_list(&vm.vcpus.value, cores).map_err(|message| {
        wrong.push(Diagnostic::new(&vm.vcpus.place, message).help(cores_help(cores)));
    });
    let vcpus = vcpus.ok()?;
    let per_node = host.machine.host.core.count.value.get();
    let nodes = u64::from(host.machine.host.sockets.value.get());
    let node = vm.node.as_ref().map_or(u64::from(vcpus[0]) / u64::from(per_node), |node| node.value);
    if let Some(given) = vm.node.as_ref().filter(|_| node >= nodes) {
        let message = format!("there is no node {node}");
        wrong.push(Diagnostic::new(&given.place, message).help(format!("from 0 to {}", nodes - 1)));
        return None;
    }
    let with_memory = u64::from(host.machine.host.memory_nodes());
    if node >= with_memory {
        let place = vm.node.as_ref().map_or(&vm.vcpus.place, |node| &node.place);
        let message = format!("node {node} of the host has no memory");
        let help = format!("`node = N` with N from 0 to {}, or other `vcpus`", with_memory - 1);
        wrong.push(Diagnostic::new(place, message).help(help));
        return None;
    }
    let installed = host.machine.host.dram.size.value;
    if vm.memory.value >= installed {
        let message = format!("a node of the host has {installed}");
        wrong.push(Diagnostic::new(&vm.memory.place, message).help("less, so that the host has some, too"));
        return None;
    }
    let devices: Option<Vec<_>> = vm.devices.iter().map(|name| pass(name, host, passed, wrong)).collect();
    let devices = devices?;
    let disk = virtual_disk(vm, all, host, wrong);
    let nic = virtual_nic(vm, own, host, wrong);
    let address = vm.address.as_ref().and_then(|given| first_address(given, wrong));
    let (name, place) = (vm.name.value.clone(), vm.name.clone());
    Some(VmSetup {
        name,
        vcpus,
        memory: vm.memory.value,
        node: node as u8,
        devices,
        disk,
        interfaces: Vec::new(),
        nic,
        address,
        place,
    })
}
