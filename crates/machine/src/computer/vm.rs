//! Virtual machines of a host.

use std::collections::BTreeSet;

use super::found::DiskSetup;
use super::{DeviceFile, DmaMode, HostEntry, HostSetup};
use crate::diagnostic::Diagnostic;
use crate::limits::check_name;
use crate::placed::Placed;
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
        /// Names of the host's devices that are passed through to it.
        devices: Vec<Placed<String>>,
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
    /// Numbers of the host's devices that are passed through, in the order in which the guest finds them.
    pub devices: Vec<usize>,
    /// The block devices that its kernel will find.
    pub disks: Vec<DiskSetup>,
    place: Placed<String>,
}

impl VmSetup {
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
    for (entry, host) in entries.iter().zip(hosts) {
        let (mut names, mut passed) = (BTreeSet::new(), BTreeSet::new());
        let mut vms = Vec::new();
        for vm in &entry.vm {
            check_name(&vm.name, wrong);
            if !names.insert(&vm.name.value) {
                let message = format!("there are two virtual machines called `{}`", vm.name.value);
                wrong.push(Diagnostic::new(&vm.name.place, message).help("a name of its own for each"));
            }
            vms.extend(one(vm, host, &mut passed, wrong));
        }
        host.vms = vms;
    }
}

fn one(
    vm: &VmEntry,
    host: &HostSetup,
    passed: &mut BTreeSet<usize>,
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
    let installed = host.machine.host.dram.size.value;
    if vm.memory.value >= installed {
        let message = format!("a node of the host has {installed}");
        wrong.push(Diagnostic::new(&vm.memory.place, message).help("less, so that the host has some, too"));
        return None;
    }
    let mut devices = Vec::new();
    for name in &vm.devices {
        let known = || host.devices.iter().filter_map(|device| device.name.as_deref());
        let Some(number) = host.devices.iter().position(|device| device.name.as_ref() == Some(&name.value))
        else {
            let help = match suggest::list(known()) {
                names if names.is_empty() => "give a `[[host.device]]` a `name`".to_owned(),
                names => format!("there are {names}; other devices need a `name`"),
            };
            wrong.push(
                Diagnostic::new(&name.place, format!("there is no device `{}`", name.value)).help(help),
            );
            return None;
        };
        let device = &host.devices[number];
        let refused = match &device.kind {
            _ if !passed.insert(number) => {
                Some(("it is passed through already", "to one virtual machine, once"))
            }
            _ if host.iommu == DmaMode::Off => Some((
                "without an IOMMU nothing keeps it from the host's memory",
                "give the host `iommu = \"strict\"`",
            )),
            DeviceFile::Drive(_) | DeviceFile::Gpu(_) if device.links.len() == 1 => None,
            _ => Some(("only drives and GPUs with one link can be passed through", "name one of those")),
        };
        if let Some((message, help)) = refused {
            wrong.push(Diagnostic::new(&name.place, format!("`{}`: {message}", name.value)).help(help));
            return None;
        }
        devices.push(number);
    }
    let (name, place) = (vm.name.value.clone(), vm.name.clone());
    Some(VmSetup {
        name,
        vcpus,
        memory: vm.memory.value,
        node: node as u8,
        devices,
        disks: Vec::new(),
        place,
    })
}
