//! Virtual machines of a host.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::ops::Range;

use super::found::{DiskSetup, InterfaceSetup};
use super::{DeviceFile, DeviceSetup, DmaMode, HostEntry, HostSetup};
use crate::diagnostic::Diagnostic;
use crate::limits::check_name;
use crate::placed::Placed;
use crate::port::ipv4;
use crate::program::{cores_help, cpu_list};
use crate::read::{Check, record};
use crate::suggest;
use units::Bytes;

record! {
    /// A virtual machine of a host.
    pub struct VmEntry {
        /// What the scenario calls it; programs run in `HOST/NAME`.
        name: Placed<String>,
        /// The host's cores, as taskset spells them: it has a core for each, which is a task there.
        vcpus: Placed<String>,
        /// Its memory.
        memory: Placed<Bytes>,
        /// The node of the host that its memory is from; that of the first of its cores if not given.
        node: Option<Placed<u64>>,
        /// Names of the host's devices that are passed through to it: drives, GPUs, NICs; `nic:vf0` for the first virtual function
        /// of the NIC `nic`.
        devices: Vec<Placed<String>>,
        /// The host's drive of which it has a part as its virtual disk, `/dev/vda`, by name: those who share a drive have equal parts of
        /// its first namespace. It has none if not given.
        disk: Option<Placed<String>>,
        /// The host's NIC above which it has a virtual one, by name; it has none if not given.
        uplink: Option<Placed<String>>,
        /// The IPv4 address of its first network device, such as `10.0.128.1/16`, where the device itself has none given. Device *d* of
        /// the *n*th virtual machine of host *h*, all counted from 0, has 10.*d*.*h*+128.*n*+1 else.
        address: Option<Placed<String>>,
        /// Whether a program polls the virtual NIC (`l2fwd`), so that the guest's kernel leaves it alone.
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

/// A virtual NIC of a virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualNicSetup {
    /// The number of the host's device that is the uplink.
    pub uplink: usize,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// A program polls it.
    pub polled: bool,
    /// Its number among the guest's network devices.
    pub number: usize,
}

/// A device of a host, or a virtual function of one, that is passed through or lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PassedSetup {
    /// The number of the host's device.
    pub device: usize,
    /// That of the virtual function; none if it is the whole device. Those of the first Ethernet port come first.
    pub vf: Option<u16>,
}

/// A virtual disk of a virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualDiskSetup {
    /// The number of the host's device that is the drive.
    pub drive: usize,
    /// Its bytes there.
    pub part: Range<u64>,
    /// What the guest's kernel finds.
    pub found: DiskSetup,
}

/// A virtual machine with its places.
#[derive(Debug, Clone)]
pub struct VmSetup {
    /// What the scenario calls it.
    pub name: String,
    /// For each of its cores: the host's.
    pub vcpus: Vec<u16>,
    /// Its memory.
    pub memory: Bytes,
    /// The node that it is from.
    pub node: u8,
    /// What is passed through, in the order in which the guest finds it.
    pub devices: Vec<PassedSetup>,
    /// The block devices that its kernel will find.
    pub disks: Vec<DiskSetup>,
    /// Its virtual disk.
    pub disk: Option<VirtualDiskSetup>,
    /// The network devices that it will find.
    pub interfaces: Vec<InterfaceSetup>,
    /// Its virtual NIC.
    pub nic: Option<VirtualNicSetup>,
    /// The address that is given for its first network device.
    pub(super) address: Option<(Ipv4Addr, u8)>,
    place: Placed<String>,
}

impl VmSetup {
    /// Its virtual NIC, with the network device that its kernel has for it.
    pub fn virtual_nic(&self) -> Option<(&VirtualNicSetup, &InterfaceSetup)> {
        let nic = self.nic.as_ref()?;
        Some((nic, self.interfaces.get(nic.number)?))
    }

    /// A complaint about this virtual machine, at its name in the scenario.
    pub fn complaint(
        &self,
        message: impl Into<String>,
        help: Option<String>,
    ) -> crate::diagnostic::Diagnostics {
        self.place.complaint(message, help)
    }
}

/// Finds cores and devices of each host's virtual machines. What is passed through is not the host's: this comes before it is
/// said what the host's kernel finds.
pub(super) fn find(entries: &[HostEntry], hosts: &mut [HostSetup], wrong: &mut Vec<Diagnostic>) {
    for (number, (entry, host)) in entries.iter().zip(hosts).enumerate() {
        let (mut names, mut passed) = (BTreeSet::new(), BTreeSet::new());
        let mut vms = Vec::new();
        for vm in &entry.vm {
            check_name(&vm.name, wrong);
            if !names.insert(&vm.name.value) {
                let message = format!("there are two virtual machines called `{}`", vm.name.value);
                wrong.push(Diagnostic::new(&vm.name.place, message).help("a name of its own for each"));
            }
            let own = (number as u8, vms.len() as u8);
            vms.extend(one((vm, &entry.vm), own, host, &mut passed, wrong));
        }
        for name in entry.vm.iter().filter_map(|vm| vm.uplink.as_ref()) {
            let device = host.devices.iter().position(|device| device.name.as_ref() == Some(&name.value));
            if device.is_some_and(|device| passed.contains(&PassedSetup { device, vf: None })) {
                let message = format!("`{}` is passed through to a virtual machine", name.value);
                wrong.push(Diagnostic::new(&name.place, message).help("another NIC, which stays the host's"));
            }
        }
        host.vms = vms;
    }
}

/// The number of a device of a host by its name.
fn device(host: &HostSetup, name: &Placed<String>, wrong: &mut Vec<Diagnostic>) -> Option<usize> {
    find_device(host, &name.value, name, wrong)
}

/// As [`device`], by a name that stands in a longer one.
fn find_device(
    host: &HostSetup,
    device: &str,
    name: &Placed<String>,
    wrong: &mut Vec<Diagnostic>,
) -> Option<usize> {
    let found = host.devices.iter().position(|own| own.name.as_deref() == Some(device));
    if found.is_none() {
        let help = match suggest::list(host.devices.iter().filter_map(|device| device.name.as_deref())) {
            names if names.is_empty() => "give a `[[host.device]]` a `name`".to_owned(),
            names => format!("there are {names}; other devices need a `name`"),
        };
        wrong.push(Diagnostic::new(&name.place, format!("there is no device `{device}`")).help(help));
    }
    found
}

/// The virtual disk of a virtual machine, of those in `entries` that share a drive.
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
                _ => ("is no drive", "the name of a device with `drive`"),
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
    let found =
        DiskSetup { name: "vda".into(), size: Bytes::new(size), block: drive.file.controller.block.value };
    Some(VirtualDiskSetup { drive: number, part: place * size..(place + 1) * size, found })
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
    let DeviceFile::Nic(nic) = &host.devices[uplink].kind else {
        let message = format!("`{}` is no NIC", name.value);
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

/// What `name` and `vf0` behind its colon, if there is one, stand for, of the host's device `number`; else what is wrong, and what
/// would be right.
pub(crate) fn named_function(
    device: &DeviceSetup,
    number: usize,
    (name, function): (&str, Option<&str>),
) -> Result<PassedSetup, (String, String)> {
    let all = device.vfs * device.ports.len() as u16;
    let vf = function.map(|text| text.strip_prefix("vf").and_then(|n| n.parse().ok()).filter(|&n| n < all));
    let refused = |message: &str, help: String| Err((message.to_owned(), help));
    match vf {
        _ if device.links.len() != 1 => refused("it has several links", "a device with one".to_owned()),
        Some(None) if all == 0 => refused("it has no virtual functions", "give the NIC `vfs`".to_owned()),
        Some(None) => {
            let last = all - 1;
            refused("it has no such virtual function", format!("`{name}:vf0` to `{name}:vf{last}`"))
        }
        None if all > 0 => refused(
            "it has virtual functions, which hosts enable",
            format!("those, such as `{name}:vf0`, or a NIC without `vfs`"),
        ),
        vf => Ok(PassedSetup { device: number, vf: vf.flatten() }),
    }
}

/// What a name of a guest's `devices` stands for, which nobody else may have.
fn pass(
    name: &Placed<String>,
    host: &HostSetup,
    passed: &mut BTreeSet<PassedSetup>,
    wrong: &mut Vec<Diagnostic>,
) -> Option<PassedSetup> {
    let (of, function) = match name.value.split_once(':') {
        Some((of, function)) => (of, Some(function)),
        None => (name.value.as_str(), None),
    };
    let number = find_device(host, of, name, wrong)?;
    let device = &host.devices[number];
    let named = named_function(device, number, (of, function));
    let (message, help) = match (&device.kind, named) {
        _ if host.iommu == DmaMode::Off => (
            "without an IOMMU nothing keeps it from the host's memory".to_owned(),
            "give the host `iommu = \"strict\"`".to_owned(),
        ),
        (_, Err(refused)) => refused,
        (DeviceFile::Drive(_) | DeviceFile::Gpu(_) | DeviceFile::Nic(_), Ok(own)) => {
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

/// The address that a guest's first network device is to have.
fn first_address(given: &Placed<String>, wrong: &mut Vec<Diagnostic>) -> Option<(Ipv4Addr, u8)> {
    let address = ipv4(&given.value).map_err(|help| {
        let message = format!("`{}` is no address", given.value);
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
        disks: Vec::new(),
        disk,
        interfaces: Vec::new(),
        nic,
        address,
        place,
    })
}
