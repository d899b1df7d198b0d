//! A simulated host's files as its Linux would have them in /sys and /proc, for tools that read those of real ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hardware::Fabric;
use kernel::SysNode;
use machine::{ComputerSetup, HostSetup, Machine};
use platform::device::FunctionIndex;
use wire::pcie::Bdf;

use super::checks::checked;
use super::error::ComputerError;
use super::host::Computer;
use super::tree::{address, spaces};

/// A host's files and links, by paths from `/`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemFiles {
    /// The host's name in the scenario.
    pub host: String,
    /// Files with their bytes.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Links with what they lead to.
    pub links: BTreeMap<String, String>,
}

/// Boots a scenario's hosts and writes what each kernel has found as files. No program runs.
///
/// # Errors
/// If the computers cannot be assembled or do not boot, or cannot run the programs.
pub fn system_files(setup: &ComputerSetup) -> Result<Vec<SystemFiles>, ComputerError> {
    let computers = checked(setup)?;
    let files = |(host, own): (&Computer, &HostSetup)| {
        let tree = computers.simulation().block_on(host.kernel.sys())?;
        let mut all = SystemFiles { host: host.name.clone(), ..SystemFiles::default() };
        let mut interrupts = Vec::new();
        all.folder("/sys", &tree, &mut interrupts);
        for (name, bytes) in spaces(&computers, host, &tree)? {
            all.space(&name, bytes);
        }
        for (device, part) in host.devices.iter().zip(&own.devices) {
            let registers = |fabric: &Fabric| fabric.endpoint(*device).core.registers.id(FunctionIndex(0));
            let at = computers.simulation().with(|fabric, _| registers(fabric));
            all.label(at, part.kind.model().name());
        }
        all.processors(&own.machine, &interrupts);
        Ok(all)
    };
    computers.hosts().iter().zip(&setup.hosts).map(files).collect()
}

/// An interrupt as /proc/interrupts has it.
struct InterruptLine {
    irq: String,
    count: String,
    name: String,
}

/// The numbers of a list such as `0-3,8`.
fn numbers(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// A mask of CPUs as Linux writes it: words of 32 bits, the highest first.
fn mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |last| last / 32 + 1);
    let word = |place: u32| {
        let own = cpus.iter().filter(|cpu| *cpu / 32 == place);
        format!("{:08x}", own.fold(0u32, |bits, cpu| bits | 1 << (cpu % 32)))
    };
    (0..words).rev().map(word).collect::<Vec<_>>().join(",")
}

impl SystemFiles {
    fn add(&mut self, path: String, text: impl AsRef<str>) {
        self.files.insert(path, format!("{}\n", text.as_ref()).into_bytes());
    }

    fn folder(&mut self, path: &str, node: &SysNode, interrupts: &mut Vec<InterruptLine>) {
        for (name, value) in &node.attributes {
            match name.as_str() {
                // Addresses of network cards stay out of captures.
                "address" => {}
                // Linux has masks there.
                "xps_cpus" | "rps_cpus" => self.add(format!("{path}/{name}"), mask(&numbers(value))),
                "memory_total" => {
                    self.add(format!("{path}/meminfo"), format!("Node {} MemTotal: {value}", node.name))
                }
                name => self.add(format!("{path}/{name}"), value),
            }
        }
        for child in &node.children {
            let below = format!("{path}/{}", child.name);
            let device = path.trim_start_matches('/');
            match node.name.as_str() {
                // An interrupt is a file there, and a folder of /proc.
                "msi_irqs" => {
                    self.add(below, "msix");
                    let irq = &child.name;
                    let get = |name: &str| {
                        child.attributes.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
                    };
                    let cpus = get("smp_affinity_list").unwrap_or_default();
                    self.add(format!("/proc/irq/{irq}/smp_affinity_list"), cpus);
                    self.add(format!("/proc/irq/{irq}/effective_affinity_list"), cpus);
                    interrupts.push(InterruptLine {
                        irq: irq.clone(),
                        count: get("count").unwrap_or("0").to_owned(),
                        name: get("name").unwrap_or("irq").to_owned(),
                    });
                    continue;
                }
                "net" => {
                    self.links.insert(
                        format!("/sys/class/net/{}", child.name),
                        format!("../../../{device}/{}", child.name),
                    );
                    self.links.insert(format!("{below}/device"), "../..".into());
                }
                class @ ("nvme" | "infiniband") => {
                    self.links.insert(
                        format!("/sys/class/{class}/{}", child.name),
                        format!("../../../{device}/{}", child.name),
                    );
                }
                _ if address(&child.name).is_some() => {
                    self.links.insert(
                        format!("/sys/bus/pci/devices/{}", child.name),
                        format!("../../../../{device}/{}", child.name),
                    );
                }
                _ => {}
            }
            self.folder(&below, child, interrupts);
        }
    }

    /// A function's configuration space.
    fn space(&mut self, name: &str, bytes: Vec<u8>) {
        if let Some(target) = self.links.get(&format!("/sys/bus/pci/devices/{name}")) {
            let path = format!("/{}/config", target.trim_start_matches("../"));
            self.files.insert(path, bytes);
        }
    }

    /// The name that firmware has for a device, which is its part's: several parts have the same numbers.
    fn label(&mut self, at: Bdf, name: &str) {
        let device = self
            .links
            .iter()
            .find(|(link, _)| link.strip_prefix("/sys/bus/pci/devices/").and_then(address) == Some(at));
        if let Some((_, target)) = device {
            let path = format!("/{}/label", target.trim_start_matches("../"));
            self.add(path, name);
        }
    }

    /// What the machine's file says of cores, caches and memory.
    fn processors(&mut self, machine: &Machine, interrupts: &[InterruptLine]) {
        const NODES: &str = "/sys/devices/system/node";
        let host = &machine.host;
        let nodes: Vec<(u32, Vec<u32>)> = (0..64)
            .filter_map(|node| {
                let list = self.files.get(&format!("{NODES}/node{node}/cpulist"))?;
                Some((node, numbers(&String::from_utf8_lossy(list))))
            })
            .collect();
        let clock = host.core.frequency.value.to_string().replace(' ', "");
        let mut cpuinfo = String::new();
        for (node, cpus) in &nodes {
            let shared = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            for (core, cpu) in cpus.iter().enumerate() {
                let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
                self.add(format!("{folder}/topology/core_id"), core.to_string());
                self.add(format!("{folder}/topology/physical_package_id"), node.to_string());
                let caches = [
                    ("Data", 1, host.l1.size.value.get(), host.l1.ways.value.get(), cpu.to_string()),
                    ("Unified", 2, host.l2.size.value.get(), host.l2.ways.value.get(), cpu.to_string()),
                    ("Unified", 3, host.llc.size.value.get(), host.llc.ways.value.get(), shared.clone()),
                ];
                for (place, (kind, level, size, ways, shared)) in caches.into_iter().enumerate() {
                    let folder = format!("{folder}/cache/index{place}");
                    self.add(format!("{folder}/type"), kind);
                    self.add(format!("{folder}/level"), level.to_string());
                    self.add(format!("{folder}/size"), format!("{}K", size >> 10));
                    self.add(format!("{folder}/ways_of_associativity"), ways.to_string());
                    self.add(format!("{folder}/coherency_line_size"), "64");
                    self.add(format!("{folder}/shared_cpu_list"), shared);
                }
                let _ = write!(cpuinfo, "processor\t: {cpu}\nmodel name\t: {} @ {clock}\n\n", host.cpu);
            }
        }
        self.add("/proc/cpuinfo".into(), cpuinfo.trim_end());
        self.add("/sys/class/dmi/id/product_name".into(), &machine.name);
        let header: String =
            nodes.iter().flat_map(|(_, cpus)| cpus).map(|cpu| format!(" CPU{cpu}")).collect();
        let count = nodes.iter().map(|(_, cpus)| cpus.len()).sum::<usize>();
        // A kernel counts each interrupt in all; here, at the first CPU.
        let padding = " 0".repeat(count.saturating_sub(1));
        let line = |InterruptLine { irq, count, name }: &InterruptLine| {
            format!("{irq}: {count}{padding} PCI-MSI {irq}-edge {name}\n")
        };
        self.add(
            "/proc/interrupts".into(),
            format!("    {header}\n{}", interrupts.iter().map(line).collect::<String>()),
        );
    }
}
