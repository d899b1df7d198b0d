//! The host: nodes, network interfaces, guests.

use std::collections::BTreeMap;

use survey::{NumberSet, Survey};

use crate::root::HostRoot;

/// Numbers of nodes from here on are taken for damage: the scheduler has a byte for them.
const NODES: u32 = 256;

/// A host as it is now.
#[derive(Debug)]
pub struct HostView {
    /// Its files.
    pub root: HostRoot,
    survey: Survey,
    /// CPUs of each node that has any: the first thread of each core, then the others.
    pub nodes: BTreeMap<u32, Vec<u32>>,
    /// Its virtual machines.
    pub guests: Vec<GuestProcess>,
}

/// A virtual machine of QEMU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuestProcess {
    /// QEMU's process.
    pub pid: u32,
    /// Threads of vCPUs; empty if they have no names.
    pub vcpus: Vec<u32>,
    /// Threads for drives (`iothread`).
    pub io: Vec<u32>,
    /// vhost's threads: process and thread.
    pub vhost: Vec<(u32, u32)>,
    /// Its tap devices.
    pub taps: Vec<String>,
    /// The network interface that its packets leave by.
    pub uplink: Option<String>,
    /// Pages of its memory at each node.
    pub pages: BTreeMap<u32, u64>,
    /// Whether a passed-through device holds its memory in place.
    pub pinned: bool,
    /// Its folder of libvirt below the root, with a cgroup for each vCPU.
    pub cgroup: Option<String>,
}

impl GuestProcess {
    /// The node that has most of its memory.
    pub fn home(&self) -> Option<u32> {
        self.pages
            .iter()
            .max_by_key(|(node, pages)| (**pages, std::cmp::Reverse(**node)))
            .map(|(node, _)| *node)
    }
}

impl HostView {
    /// Looks at a host.
    ///
    /// # Errors
    /// If nothing of it can be read.
    pub fn new(root: HostRoot) -> Result<Self, survey::SourceError> {
        let survey = Survey::read(&[root.path()])?;
        let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let all = survey.nodes.iter().filter_map(|(number, node)| Some((*number, node.cpus.get()?.clone())));
        for (number, cpus) in all.filter(|(number, _)| *number < NODES) {
            let online = cpus.iter().filter(|cpu| survey.cpus.is_empty() || survey.cpus.contains_key(cpu));
            let own: Vec<u32> = online.collect();
            if !own.is_empty() {
                nodes.insert(number, ordered(&survey, own));
            }
        }
        if nodes.is_empty() {
            let own: Vec<u32> = survey.cpus.keys().copied().collect();
            nodes.insert(0, ordered(&survey, if own.is_empty() { vec![0] } else { own }));
        }
        let mut view = Self { root, survey, nodes, guests: Vec::new() };
        view.guests = view.find_guests();
        Ok(view)
    }

    /// Looks for guests again.
    pub fn refresh(&mut self) {
        self.guests = self.find_guests();
    }

    /// Network interfaces with a device.
    pub fn interfaces(&self) -> Vec<String> {
        let all = self.root.list("/sys/class/net");
        all.into_iter().filter(|name| self.root.exists(&format!("/sys/class/net/{name}/device"))).collect()
    }

    /// What is known of the machine.
    pub(crate) fn survey(&self) -> &Survey {
        &self.survey
    }

    /// All CPUs, node by node.
    pub(crate) fn cpus(&self) -> Vec<u32> {
        self.nodes.values().flatten().copied().collect()
    }

    /// CPUs of a node as a set.
    pub(crate) fn set_of(&self, node: u32) -> NumberSet {
        self.nodes.get(&node).into_iter().flatten().copied().collect()
    }

    /// Free memory of a node, bytes.
    pub(crate) fn free(&self, node: u32) -> u64 {
        let meminfo =
            self.root.text(&format!("/sys/devices/system/node/node{node}/meminfo")).unwrap_or_default();
        let free = meminfo.lines().find_map(|line| {
            line.split("MemFree:").nth(1)?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        free.map_or(0, |kib| kib.saturating_mul(1024))
    }

    /// The node of a network interface's device.
    pub(crate) fn node_of(&self, interface: &str) -> Option<u32> {
        let told =
            self.root.text(&format!("/sys/class/net/{interface}/device/numa_node"))?.parse::<u32>().ok();
        told.filter(|node| self.nodes.contains_key(node)).or_else(|| {
            let function = self.survey.interfaces.get(interface)?.function.value()?;
            self.survey.node_of(function).filter(|node| self.nodes.contains_key(node))
        })
    }

    /// Numbers in a folder.
    pub(crate) fn numbers(&self, folder: &str) -> Vec<u32> {
        let mut numbers: Vec<u32> =
            self.root.list(folder).iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Processes with this name, or this number.
    pub(crate) fn processes(&self, wanted: &str) -> Vec<u32> {
        let is_it = |pid: &u32| {
            wanted.parse() == Ok(*pid)
                || self.root.text(&format!("/proc/{pid}/comm")).as_deref() == Some(wanted)
        };
        self.numbers("/proc").into_iter().filter(is_it).collect()
    }

    fn find_guests(&self) -> Vec<GuestProcess> {
        let mut guests = Vec::new();
        let mut workers: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for pid in self.numbers("/proc") {
            let name = self.root.text(&format!("/proc/{pid}/comm")).unwrap_or_default();
            // Older kernels have them as processes of their own.
            if let Some(owner) = name.strip_prefix("vhost-").and_then(|owner| owner.parse().ok()) {
                workers.entry(owner).or_default().push((pid, pid));
            } else if name.starts_with("qemu-") || name == "kvm" {
                guests.push(self.guest(pid));
            }
        }
        for guest in &mut guests {
            guest.vhost.extend(workers.remove(&guest.pid).unwrap_or_default());
        }
        guests
    }

    fn guest(&self, pid: u32) -> GuestProcess {
        let mut guest = GuestProcess { pid, ..GuestProcess::default() };
        for thread in self.numbers(&format!("/proc/{pid}/task")) {
            let name = self.root.text(&format!("/proc/{pid}/task/{thread}/comm")).unwrap_or_default();
            match name.as_str() {
                name if name.starts_with("CPU ") && name.ends_with("/KVM") => guest.vcpus.push(thread),
                name if name.starts_with("IO ") && !name.contains("mon_") => guest.io.push(thread),
                name if name.starts_with("vhost-") => guest.vhost.push((pid, thread)),
                _ => {}
            }
        }
        for name in self.root.list(&format!("/proc/{pid}/fdinfo")) {
            let info = self.root.text(&format!("/proc/{pid}/fdinfo/{name}")).unwrap_or_default();
            let tap = info.lines().find_map(|line| line.strip_prefix("iff:"));
            guest.taps.extend(tap.map(|tap| tap.trim().to_owned()).filter(|tap| !tap.is_empty()));
        }
        guest.taps.dedup();
        guest.pinned = self.root.list(&format!("/proc/{pid}/fd")).iter().any(|name| {
            self.root.leads_to(&format!("/proc/{pid}/fd/{name}")).is_some_and(|_| self.is_vfio(pid, name))
        });
        guest.uplink = guest.taps.iter().find_map(|tap| self.uplink(tap));
        let maps = self.root.text(&format!("/proc/{pid}/numa_maps")).unwrap_or_default();
        for word in maps.split_whitespace() {
            let of_node = word.strip_prefix('N').and_then(|word| word.split_once('='));
            if let Some((Ok(node), Ok(pages))) =
                of_node.map(|(node, pages)| (node.parse(), pages.parse::<u64>()))
            {
                let all = guest.pages.entry(node).or_default();
                *all = all.saturating_add(pages);
            }
        }
        guest.pages.retain(|node, _| self.nodes.contains_key(node));
        // `0::/machine.slice/machine-qemu\x2d1.scope/libvirt/emulator`
        let cgroup = self.root.text(&format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let cgroup = cgroup.lines().find_map(|line| line.strip_prefix("0::")?.split_once("/libvirt"));
        guest.cgroup = cgroup
            .map(|(scope, _)| format!("/sys/fs/cgroup{scope}/libvirt"))
            .filter(|folder| self.root.exists(folder));
        guest
    }

    fn is_vfio(&self, pid: u32, name: &str) -> bool {
        let path = self.root.path().join(format!("proc/{pid}/fd/{name}"));
        std::fs::read_link(path).is_ok_and(|target| target.starts_with("/dev/vfio"))
    }

    /// The interface with a device that a tap's packets leave by: below it, or at the same bridge.
    fn uplink(&self, tap: &str) -> Option<String> {
        let has_device = |name: &String| self.root.exists(&format!("/sys/class/net/{name}/device"));
        let below = self.root.list(&format!("/sys/class/net/{tap}"));
        let below =
            below.iter().find_map(|name| name.strip_prefix("lower_").map(str::to_owned)).filter(has_device);
        below.or_else(|| {
            let bridge = self.root.leads_to(&format!("/sys/class/net/{tap}/master"))?;
            self.root.list(&format!("/sys/class/net/{bridge}/brif")).into_iter().find(has_device)
        })
    }
}

/// The first thread of each core, then the second ones.
fn ordered(survey: &Survey, cpus: Vec<u32>) -> Vec<u32> {
    let mut seen: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, u32)> = Vec::new();
    for cpu in cpus {
        let core = survey
            .cpus
            .get(&cpu)
            .map(|own| (own.package.value().unwrap_or(0), own.core.value().unwrap_or(cpu)));
        let rank = seen.entry(core.unwrap_or((0, cpu))).or_default();
        ranked.push((*rank, cpu));
        *rank += 1;
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, cpu)| cpu).collect()
}
