//! Processes that matter to devices: guests of KVM, what has device files open, what is bound to CPUs, what has much memory.

use std::collections::{BTreeMap, BTreeSet};

use super::files::RootFiles;
use crate::fact::Origin;
use crate::model::{HostProcess, HostThread, NameList, NumberCounts, Survey};
use crate::numbers::NumberSet;
use crate::pci::PciAddress;

/// Processes that are looked at, and files and threads of each.
const MOST_PROCESSES: usize = 1 << 15;
const MOST_PARTS: usize = 4096;
/// Memory of a process that is worth a look, KiB.
const MUCH_KIB: u64 = 1 << 20;
/// Device files that belong to functions.
pub const DEVICE_FILES: [&str; 6] =
    ["/dev/vfio/", "/dev/nvme", "/dev/nvidia", "/dev/infiniband/", "/dev/dri/", "/dev/uio"];

/// Words of a process's `status` that are read.
pub const STATUS: [&str; 4] = ["VmRSS:", "Threads:", "Cpus_allowed_list:", "Mems_allowed_list:"];

/// Adds processes and their threads.
pub fn read(files: &dyn RootFiles, source: usize, survey: &mut Survey) {
    let numbers = |folder: &str| -> Vec<u32> {
        let mut all: Vec<u32> = files.list(folder).iter().filter_map(|name| name.parse().ok()).collect();
        all.sort_unstable();
        all
    };
    let mut reader = ProcessReader { files, source, survey, workers: BTreeMap::new() };
    let mut guests = BTreeSet::new();
    for pid in numbers("/proc").into_iter().take(MOST_PROCESSES) {
        let Some(name) = files.text(&format!("/proc/{pid}/comm")) else { continue };
        if let Some(owner) = name.strip_prefix("vhost-").and_then(|owner| owner.parse().ok()) {
            // Older kernels have vhost's threads as processes of their own.
            reader.workers.entry(owner).or_default().push(pid);
        } else if name.starts_with("qemu-") || name == "kvm" {
            guests.insert(pid);
            reader.process(pid, name, true);
        } else {
            reader.process(pid, name, false);
        }
    }
    for pid in guests {
        let threads = numbers(&format!("/proc/{pid}/task")).into_iter().take(MOST_PARTS);
        let workers = reader.workers.remove(&pid).unwrap_or_default();
        let all =
            threads.map(|thread| (pid, thread)).chain(workers.into_iter().map(|worker| (worker, worker)));
        all.for_each(|(process, thread)| reader.thread(pid, process, thread));
        reader.uplink(pid);
    }
}

struct ProcessReader<'f> {
    files: &'f dyn RootFiles,
    source: usize,
    survey: &'f mut Survey,
    /// vhost's threads by the guest's process.
    workers: BTreeMap<u32, Vec<u32>>,
}

fn status<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

impl ProcessReader<'_> {
    fn process(&mut self, pid: u32, name: String, is_guest: bool) {
        let from = |what| Origin { source: self.source, what };
        let text = self.files.text(&format!("/proc/{pid}/status")).unwrap_or_default();
        // Kernel threads have no memory.
        let Some(kib) = status(&text, "VmRSS:").and_then(|size| size.strip_suffix("kB")?.trim().parse().ok())
        else {
            if !is_guest {
                return;
            }
            self.survey.processes.entry(pid).or_default().name.set(name, from("comm"));
            return;
        };
        let kib: u64 = kib;
        let cpus: Option<NumberSet> = status(&text, "Cpus_allowed_list:").and_then(|list| list.parse().ok());
        let is_bound =
            cpus.as_ref().is_some_and(|cpus| self.survey.cpus.keys().any(|cpu| !cpus.contains(*cpu)));
        let uses = self.device_files(pid);
        if !is_guest && !is_bound && uses.is_empty() && kib < MUCH_KIB {
            return;
        }
        let mut process = HostProcess::default();
        process.name.set(name, from("comm"));
        cpus.into_iter().for_each(|cpus| process.cpus.set(cpus, from("Cpus_allowed_list")));
        let nodes = status(&text, "Mems_allowed_list:").and_then(|list| list.parse().ok());
        nodes.into_iter().for_each(|nodes| process.nodes.set(nodes, from("Mems_allowed_list")));
        let threads = status(&text, "Threads:").and_then(|count| count.parse().ok());
        threads.into_iter().for_each(|count| process.threads.set(count, from("Threads")));
        let functions = uses.iter().filter_map(|file| self.function_of(file)).collect::<BTreeSet<_>>();
        if !uses.is_empty() {
            process.uses.set(NameList(uses), from("open files"));
        }
        if !functions.is_empty() {
            let functions = functions.iter().map(ToString::to_string).collect();
            process.functions.set(NameList(functions), from("open files"));
        }
        let pages = pages(&self.files.text(&format!("/proc/{pid}/numa_maps")).unwrap_or_default());
        if !pages.0.is_empty() {
            process.memory_bytes.set(pages, from("numa_maps"));
        }
        self.survey.processes.insert(pid, process);
    }

    /// Device files that a process has open.
    fn device_files(&self, pid: u32) -> Vec<String> {
        let folder = format!("/proc/{pid}/fd");
        let names = self.files.list(&folder).into_iter().take(MOST_PARTS);
        let links = names.filter_map(|name| self.files.link(&format!("{folder}/{name}")));
        let own: BTreeSet<String> =
            links.filter(|link| DEVICE_FILES.iter().any(|start| link.starts_with(start))).collect();
        own.into_iter().collect()
    }

    /// The function that a device file leads to.
    fn function_of(&self, file: &str) -> Option<PciAddress> {
        let below = |path: String| -> Option<PciAddress> {
            self.files.resolved(&path)?.rsplit('/').find_map(|name| name.parse().ok())
        };
        let name = file.rsplit('/').next()?;
        match file {
            _ if file.starts_with("/dev/vfio/") => {
                let group: u32 = name.parse().ok()?;
                let of_group =
                    |(_, own): &(&PciAddress, &crate::PciFunction)| own.iommu_group.value() == Some(group);
                self.survey.functions.iter().find(of_group).map(|(address, _)| *address)
            }
            _ if file.starts_with("/dev/nvme") => {
                // `nvme0n1p2` is of `nvme0`.
                let digits = name.strip_prefix("nvme")?;
                let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
                below(format!("/sys/class/nvme/nvme{}/device", &digits[..end]))
            }
            _ if file.starts_with("/dev/nvidia") => {
                let minor: u32 = name.strip_prefix("nvidia")?.parse().ok()?;
                const GPUS: &str = "/proc/driver/nvidia/gpus";
                let is_it = |address: &String| {
                    let text = self.files.text(&format!("{GPUS}/{address}/information")).unwrap_or_default();
                    status(&text, "Device Minor:").and_then(|own| own.parse().ok()) == Some(minor)
                };
                self.files.list(GPUS).into_iter().take(256).find(is_it)?.parse().ok()
            }
            _ if file.starts_with("/dev/infiniband/") => {
                below(format!("/sys/class/infiniband_verbs/{name}/device"))
            }
            _ if file.starts_with("/dev/dri/") => below(format!("/sys/class/drm/{name}/device")),
            _ => below(format!("/sys/class/uio/{name}/device")),
        }
    }

    /// A thread of a guest that has a part in its devices' work.
    fn thread(&mut self, guest: u32, process: u32, thread: u32) {
        let from = |what| Origin { source: self.source, what };
        let folder = format!("/proc/{process}/task/{thread}");
        let name = self.files.text(&format!("{folder}/comm")).unwrap_or_default();
        let role = match name.as_str() {
            _ if process != guest => "vhost",
            name if name.starts_with("CPU ") && name.ends_with("/KVM") => "vCPU",
            name if name.starts_with("IO ") && !name.contains("mon_") => "I/O",
            name if name.starts_with("vhost-") => "vhost",
            _ => return,
        };
        let text = self.files.text(&format!("{folder}/status")).unwrap_or_default();
        let cpus: Option<NumberSet> = status(&text, "Cpus_allowed_list:").and_then(|list| list.parse().ok());
        let mut own = HostThread::default();
        own.process.set(guest, from("task"));
        own.role.set(role.to_owned(), from("comm"));
        cpus.into_iter().for_each(|cpus| own.cpus.set(cpus, from("Cpus_allowed_list")));
        self.survey.threads.insert(thread, own);
    }

    /// The network interface with a device that a guest's packets leave by: below its tap, or at the same bridge.
    fn uplink(&mut self, pid: u32) {
        let folder = format!("/proc/{pid}/fdinfo");
        let names = self.files.list(&folder).into_iter().take(MOST_PARTS);
        let texts = names.filter_map(|name| self.files.text(&format!("{folder}/{name}")));
        let taps = texts.filter_map(|text| status(&text, "iff:").map(str::to_owned));
        let taps: BTreeSet<String> = taps.filter(|tap| !tap.is_empty() && !tap.contains('/')).collect();
        let has_device = |name: &String| self.survey.interfaces.contains_key(name);
        let found = taps.iter().find_map(|tap| {
            let net = format!("/sys/class/net/{tap}");
            let mut below = self.files.list(&net).into_iter();
            let below =
                below.find_map(|name| name.strip_prefix("lower_").map(str::to_owned)).filter(has_device);
            below.or_else(|| {
                let bridge = self.files.link(&format!("{net}/master"))?;
                let bridge = bridge.rsplit('/').next()?;
                self.files.list(&format!("/sys/class/net/{bridge}/brif")).into_iter().find(has_device)
            })
        });
        if let Some(uplink) = found {
            let from = Origin { source: self.source, what: "its tap" };
            self.survey.processes.entry(pid).or_default().uplink.set(uplink, from);
        }
    }
}

/// Bytes of memory at each node, as `numa_maps` says: pages of each mapping, whose size it says too.
fn pages(maps: &str) -> NumberCounts {
    let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
    for line in maps.lines() {
        let words = || line.split_whitespace();
        let kib = words().find_map(|word| word.strip_prefix("kernelpagesize_kB=")?.parse().ok());
        let page = kib.unwrap_or(4_u64).saturating_mul(1024);
        for word in words() {
            let of_node = word.strip_prefix('N').and_then(|word| word.split_once('='));
            let of_node = of_node.and_then(|(node, pages)| Some((node.parse().ok()?, pages.parse().ok()?)));
            if let Some((node, pages)) = of_node.filter(|(node, _): &(u32, u64)| *node < 1024) {
                let all = bytes.entry(node).or_default();
                *all = all.saturating_add(page.saturating_mul(pages));
            }
        }
    }
    NumberCounts(bytes)
}
