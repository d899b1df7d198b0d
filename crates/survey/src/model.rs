//! A machine as its sources show it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::fact::{Origin, facts};
use crate::numbers::NumberSet;
use crate::pci::{PciAddress, PciFunction, PciNumber};

/// Most functions that are looked at, and most nodes: more than any machine has, and few enough for seconds.
pub(crate) const MOST_FUNCTIONS: usize = 4096;
pub(crate) const MOST_NODES: usize = 256;
/// Most functions that are taken to be at one address.
const MOST_ALIKE: usize = 64;

facts! {
    /// What concerns the whole machine.
    pub struct WholeMachine {
        /// The product's name.
        product: String,
        /// The CPU's name.
        cpu: String,
        /// The CPU's vendor, as CPUID says it.
        cpu_vendor: String,
        /// The CPU's family.
        cpu_family: u32,
        /// The CPU's model.
        cpu_model: u32,
        /// Instruction set.
        architecture: String,
        /// The kernel's release.
        kernel: String,
        /// Options of the kernel that concern IOMMUs, PCI, and CPUs' isolation.
        kernel_options: String,
        /// Memory, bytes.
        memory_bytes: u64,
        /// Flows that the whole machine remembers (RFS).
        rfs_entries: u32,
    }
}

facts! {
    /// A NUMA node.
    pub struct MemoryNode {
        /// Its CPUs.
        cpus: NumberSet,
        /// Its memory, bytes.
        memory_bytes: u64,
        /// What its memory is: DRAM, persistent, GPU.
        kind: String,
        /// The CPUs near it, if it has none of its own.
        near_cpus: NumberSet,
        /// The memory-side cache before it, bytes.
        cache_bytes: u64,
    }
}

facts! {
    /// A CPU as the operating system counts them: a hardware thread.
    pub struct LogicalCpu {
        /// Its core within its package.
        core: u32,
        /// Its package.
        package: u32,
        /// Its node.
        node: u32,
        /// The kind of its core, where there are several.
        kind: String,
        /// The highest clock, MHz.
        max_mhz: u32,
    }
}

facts! {
    /// A cache.
    pub struct CpuCache {
        /// Bytes.
        size_bytes: u64,
        /// Ways; none if it says 0.
        ways: u32,
        /// Bytes of a line.
        line_bytes: u32,
    }
}

facts! {
    /// A network interface.
    pub struct NetInterface {
        /// Its function.
        function: PciAddress,
        /// Rate, Mbit/s.
        mbit_per_s: u32,
        /// Receive queues.
        rx_queues: u32,
        /// Transmit queues.
        tx_queues: u32,
        /// CPUs that send through each transmit queue (XPS).
        xps: SetList,
        /// CPUs to which each receive queue's packets are steered (RPS).
        rps: SetList,
        /// Flows that receive queues remember (RFS).
        rfs_flows: u32,
        /// Microseconds that a receive interrupt waits.
        rx_usecs: u32,
        /// Packets that it waits for.
        rx_frames: u32,
        /// Microseconds that a transmit interrupt waits.
        tx_usecs: u32,
        /// Packets that it waits for.
        tx_frames: u32,
        /// Whether the driver changes these with the load.
        adaptive_rx: bool,
    }
}

facts! {
    /// Another device of the operating system: block device, InfiniBand device, GPU.
    pub struct OsDevice {
        /// Its function.
        function: PciAddress,
        /// What it is.
        kind: String,
        /// Queues.
        queues: u32,
        /// Its node, where no function says it.
        node: u32,
        /// CPUs that submit to each of its queues.
        queue_cpus: SetList,
    }
}

facts! {
    /// An interrupt.
    pub struct IrqLine {
        /// What has asked for it.
        action: String,
        /// CPUs that it may go to.
        affinity: NumberSet,
        /// CPUs that it goes to.
        effective: NumberSet,
        /// Its node, as the kernel has it.
        node: i32,
        /// How often each CPU has handled it.
        counts: NumberCounts,
    }
}

facts! {
    /// A process that uses devices, is bound to CPUs, or has much memory.
    pub struct HostProcess {
        /// Its name.
        name: String,
        /// CPUs that it may use.
        cpus: NumberSet,
        /// Nodes at which its memory may be.
        nodes: NumberSet,
        /// Threads.
        threads: u32,
        /// Bytes of its memory at each node.
        memory_bytes: NumberCounts,
        /// Device files that it has open.
        uses: NameList,
        /// Functions that these lead to.
        functions: NameList,
        /// The network interface by which a guest's packets leave.
        uplink: String,
    }
}

facts! {
    /// A thread that works for a guest.
    pub struct HostThread {
        /// The guest's process.
        process: u32,
        /// What it is to the guest: vCPU, I/O, vhost.
        role: String,
        /// CPUs that it may use.
        cpus: NumberSet,
    }
}

/// Names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameList(pub Vec<String>);

impl fmt::Display for NameList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// One set for each queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SetList(pub Vec<NumberSet>);

impl fmt::Display for SetList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |set: &NumberSet| if set.is_empty() { "-".to_owned() } else { set.to_string() };
        f.write_str(&self.0.iter().map(shown).collect::<Vec<_>>().join(" "))
    }
}

/// A number for each CPU or node that has one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NumberCounts(pub BTreeMap<u32, u64>);

impl NumberCounts {
    /// All together.
    pub fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, &count| sum.saturating_add(count))
    }
}

impl fmt::Display for NumberCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.0.iter().map(|(cpu, count)| format!("{cpu}:{count}"));
        f.write_str(&each.collect::<Vec<_>>().join(" "))
    }
}

/// Level, kind (`d`, `i`, or nothing for both), and CPUs of a cache.
pub type CacheKey = (u32, &'static str, NumberSet);

/// What two sources differ about: the subject, the fact, and both values with where they were read.
type Disagreement = (String, String, [(String, Origin); 2]);

/// Something that a source says and that cannot be so, or does not say and should.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Doubt {
    /// What it is about: a function, a node, a file.
    pub about: String,
    /// What is wrong, in a sentence.
    pub message: String,
}

/// A source: its name, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceNote {
    /// As the user named it.
    pub name: String,
    /// Its format.
    pub format: &'static str,
}

/// A machine, as its sources show it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Survey {
    /// What was read.
    pub sources: Vec<SourceNote>,
    /// What concerns all of it.
    pub machine: WholeMachine,
    /// Nodes by number.
    pub nodes: BTreeMap<u32, MemoryNode>,
    /// Distances between nodes, as firmware gives them: 10 is a node's own.
    pub distances: BTreeMap<(u32, u32), u32>,
    /// CPUs by number.
    pub cpus: BTreeMap<u32, LogicalCpu>,
    /// Packages (sockets) with their names.
    pub packages: BTreeMap<u32, String>,
    /// Caches.
    pub caches: BTreeMap<CacheKey, CpuCache>,
    /// PCI functions by address.
    pub functions: BTreeMap<PciAddress, PciFunction>,
    /// Network interfaces by name.
    pub interfaces: BTreeMap<String, NetInterface>,
    /// Other devices of the operating system by name.
    pub devices: BTreeMap<String, OsDevice>,
    /// Interrupts by number.
    pub irqs: BTreeMap<u32, IrqLine>,
    /// Processes by number.
    pub processes: BTreeMap<u32, HostProcess>,
    /// Threads of guests by number.
    pub threads: BTreeMap<u32, HostThread>,
    /// How devices reach each other in nvidia-smi's words, such as `PXB`, by their names there.
    pub paths: BTreeMap<(String, String), String>,
    /// Joins between GPUs, NVLink or the like, by name or address: how many links.
    pub fabric: BTreeMap<(String, String), String>,
    /// Devices that a source places at a node by their numbers alone, without addresses.
    pub(crate) placed: Vec<((PciNumber, PciNumber), u32, Origin)>,
    /// What cannot be so.
    pub doubts: BTreeSet<Doubt>,
}

impl Survey {
    /// Notes what cannot be so.
    pub(crate) fn doubt(&mut self, about: impl fmt::Display, message: impl Into<String>) {
        // A source of nothing but nonsense is told in so many sentences as anybody reads.
        if self.doubts.len() < 200 {
            self.doubts.insert(Doubt { about: about.to_string(), message: message.into() });
        }
    }

    /// Adds a function. If there is one at its address already, it gets a segment of its own, up to [`MOST_ALIKE`]; returns its address.
    pub(crate) fn add_function(&mut self, address: PciAddress, function: PciFunction) -> PciAddress {
        const FIRST: u32 = 0xffff_0001;
        let at = |segment| PciAddress { segment, ..address };
        let segments = std::iter::once(address.segment).chain((FIRST..).take(MOST_ALIKE));
        let Some(free) = segments.map(at).find(|free| !self.functions.contains_key(free)) else {
            self.doubt(
                address,
                format!("more than {MOST_ALIKE} functions have this address; the rest is not read"),
            );
            return address;
        };
        if free != address {
            self.doubt(
                address,
                format!("two functions have this address; the second one is shown as {free}"),
            );
        }
        self.functions.insert(free, function);
        free
    }

    /// A source's name, and what was read there.
    pub fn shown(&self, origin: Origin) -> String {
        let source = self.sources.get(origin.source).map_or("?", |source| &source.name);
        // The folder is the same for all, and long.
        let name = source.rsplit('/').find(|part| !part.is_empty()).unwrap_or(source);
        format!("{name}, {}", origin.what)
    }

    /// Takes what another survey of the same machine says. What is known already stays; where they differ, that is told.
    pub(crate) fn merge(&mut self, other: Self) {
        self.sources.extend(other.sources);
        let mut differences = Vec::new();
        fn differ<'d>(
            about: &'d str,
            into: &'d mut Vec<Disagreement>,
        ) -> impl FnMut(&str, [(String, Origin); 2]) + 'd {
            move |what, both| into.push((about.to_owned(), what.to_owned(), both))
        }
        self.machine.merge(other.machine, &mut differ("the machine", &mut differences));
        macro_rules! merge_maps {
            ($($map:ident as $what:literal),+) => {
                $(for (key, value) in other.$map {
                    let about = format!($what, key);
                    self.$map.entry(key).or_default().merge(value, &mut differ(&about, &mut differences));
                })+
            };
        }
        merge_maps!(
            nodes as "node {}", cpus as "CPU {}", caches as "cache {:?}", functions as "{}",
            interfaces as "{}", devices as "{}", irqs as "IRQ {}", processes as "process {}", threads as "thread {}"
        );
        for (about, what, [(own, here), (value, there)]) in differences {
            // Clocks, counts and free memory change between two looks; a shorter name is no other one.
            if ["name", "counts", "memory_bytes", "max_mhz", "cpu", "local_cpus"].contains(&what.as_str()) {
                continue;
            }
            let message = format!(
                "{what} is {own} in {}, {value} in {}; the first is taken",
                self.shown(here),
                self.shown(there)
            );
            self.doubt(about, message);
        }
        for (key, value) in other.distances {
            self.distances.entry(key).or_insert(value);
        }
        for (key, value) in other.packages {
            self.packages.entry(key).or_insert(value);
        }
        self.paths.extend(other.paths);
        self.fabric.extend(other.fabric);
        self.placed.extend(other.placed);
        self.doubts.extend(other.doubts);
    }
}
