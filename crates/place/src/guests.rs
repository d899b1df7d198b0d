//! Loads of guests for the scheduler, and its decisions as writes.
//!
//! Linux has a vhost thread for each of a guest's virtual NICs where the simulated host has I/O threads that guests share. Here, a
//! device's I/O thread of a node stands for all vhost threads that are to run at this node.

use std::collections::BTreeMap;
use std::time::Duration as Elapsed;

use engine::Seed;
use platform::cpu::Node;
use units::{Bytes, Duration};
use virt::placement::{
    Action, Capacity, DeviceId, DeviceLoad, Loads, Mode, Policy, Scheduler, Thresholds, VmId, VmIo, VmLoad,
};

use crate::plan::{HostPlan, SetForm};
use crate::view::{GuestProcess, HostView};

/// Bytes of a page, and nanoseconds of a tick of /proc/stat.
const PAGE: u64 = 4096;
const TICK: u64 = 10_000_000;

/// Counters of threads, CPUs and taps at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadSample {
    /// Nanoseconds that a thread computed and waited for a CPU.
    threads: BTreeMap<(u32, u32), u64>,
    /// Nanoseconds of interrupts of each CPU.
    interrupts: BTreeMap<u32, u64>,
    /// Packets of each tap.
    packets: BTreeMap<String, u64>,
}

impl LoadSample {
    /// Reads all counters that loads are of.
    pub fn new(view: &HostView) -> Self {
        let mut sample = Self::default();
        let root = &view.root;
        for guest in &view.guests {
            let own = guest.vcpus.iter().chain(&guest.io).map(|&thread| (guest.pid, thread));
            for (process, thread) in own.chain(guest.vhost.iter().copied()) {
                let text = root.text(&format!("/proc/{process}/task/{thread}/schedstat")).unwrap_or_default();
                let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().unwrap_or(0));
                let (ran, waited) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                let waited = if guest.vcpus.contains(&thread) { 0 } else { waited };
                sample.threads.insert((process, thread), ran.saturating_add(waited));
            }
            for tap in &guest.taps {
                let count = |way: &str| -> u64 {
                    root.text(&format!("/sys/class/net/{tap}/statistics/{way}_packets"))
                        .and_then(|text| text.parse().ok())
                        .unwrap_or(0)
                };
                sample.packets.insert(tap.clone(), count("rx").saturating_add(count("tx")));
            }
        }
        for line in root.text("/proc/stat").unwrap_or_default().lines() {
            let mut words = line.split_whitespace();
            let cpu = words.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            let of_interrupts: u64 = words
                .skip(5)
                .take(2)
                .filter_map(|word| word.parse::<u64>().ok())
                .fold(0, u64::saturating_add);
            if let Some(cpu) = cpu {
                sample.interrupts.insert(cpu, of_interrupts.saturating_mul(TICK));
            }
        }
        sample
    }

    fn thread(&self, since: &Self, thread: (u32, u32)) -> u64 {
        let now = self.threads.get(&thread).copied().unwrap_or(0);
        now.saturating_sub(since.threads.get(&thread).copied().unwrap_or(now))
    }
}

/// Decides for the guests of a host, period by period.
pub struct GuestPlacer {
    scheduler: Scheduler,
    /// Devices by name: the position is the scheduler's number.
    devices: Vec<String>,
    /// The node of each I/O thread of a device, the device's own first.
    threads: Vec<Vec<u32>>,
    /// What is decided for a guest: the I/O thread, and its home with whether it was moved there.
    guests: BTreeMap<u32, PlacedGuest>,
}

#[derive(Clone, Copy, Debug)]
struct PlacedGuest {
    device: Option<usize>,
    thread: usize,
    home: u32,
    moved: bool,
}

impl Default for GuestPlacer {
    fn default() -> Self {
        let rng = Seed::new(1).component("placement");
        let scheduler = Scheduler::new(Policy::Numa, Thresholds::usual(), rng);
        Self { scheduler, devices: Vec::new(), threads: Vec::new(), guests: BTreeMap::new() }
    }
}

impl GuestPlacer {
    /// Decides by what passed between two samples.
    pub fn decide(&mut self, view: &HostView, [since, now]: [&LoadSample; 2], period: Elapsed) {
        self.meet(view);
        let loads = self.loads(view, [since, now], period);
        for action in self.scheduler.decide(&loads) {
            match action {
                Action::Pin(DeviceId(device), thread, node) => {
                    if let Some(place) = self.threads.get_mut(device).and_then(|own| own.get_mut(thread)) {
                        *place = u32::from(node.0);
                    }
                }
                Action::Serve(VmId(pid), _, thread) => {
                    if let Some(own) = self.guests.get_mut(&(pid as u32)) {
                        own.thread = thread;
                    }
                }
                Action::Move(VmId(pid), node) => {
                    if let Some(own) = self.guests.get_mut(&(pid as u32)) {
                        (own.home, own.moved) = (node.0.into(), true);
                    }
                }
            }
        }
    }

    /// How many times a device has changed between one I/O thread and one for each node.
    pub fn switches(&self) -> u64 {
        self.scheduler.switches()
    }

    /// Learns of new guests and devices, and forgets old ones.
    fn meet(&mut self, view: &HostView) {
        for guest in &view.guests {
            let device = guest.uplink.as_ref().map(|uplink| {
                match self.devices.iter().position(|name| name == uplink) {
                    Some(place) => place,
                    None => {
                        let near = view.node_of(uplink);
                        let others = view.nodes.keys().copied().filter(|node| Some(*node) != near);
                        self.devices.push(uplink.clone());
                        self.threads.push(near.into_iter().chain(others).collect());
                        self.devices.len() - 1
                    }
                }
            });
            let first = view.nodes.keys().next().copied().unwrap_or(0);
            let home = guest.home().unwrap_or(first);
            let placed = PlacedGuest { device, thread: 0, home, moved: false };
            let own = self.guests.entry(guest.pid).or_insert(placed);
            // Its interface may be known later than itself.
            own.device = own.device.or(device);
        }
        self.guests.retain(|pid, _| view.guests.iter().any(|guest| guest.pid == *pid));
    }

    fn loads(&self, view: &HostView, [since, now]: [&LoadSample; 2], period: Elapsed) -> Loads {
        let ns = |ns: u64| Duration::from_ps(ns.saturating_mul(1000));
        let most = view.nodes.keys().max().copied().unwrap_or(0);
        let nodes = (0..=most).map(|node| Capacity {
            cores: view.nodes.get(&node).map_or(0, Vec::len),
            free: Bytes::new(view.free(node)),
        });
        let io_ns = |guest: &GuestProcess| -> u64 {
            let own = guest.vhost.iter().copied().chain(guest.io.iter().map(|&thread| (guest.pid, thread)));
            own.map(|thread| now.thread(since, thread)).fold(0, u64::saturating_add)
        };
        let devices = self.devices.iter().zip(&self.threads).enumerate().map(|(device, (name, nodes))| {
            let threads = nodes.iter().enumerate().map(|(thread, node)| {
                let served = view.guests.iter().filter(|guest| {
                    self.guests
                        .get(&guest.pid)
                        .is_some_and(|own| own.device == Some(device) && own.thread == thread)
                });
                let mut time = served.map(io_ns).fold(0, u64::saturating_add);
                if time > 0 {
                    time = time.saturating_add(self.interrupt_ns(view, name, *node, [since, now]));
                }
                (Node(*node as u8), ns(time))
            });
            DeviceLoad {
                nodes: view.node_of(name).map(|node| Node(node as u8)).into_iter().collect(),
                threads: threads.collect(),
            }
        });
        let vms = view.guests.iter().filter_map(|guest| {
            let own = self.guests.get(&guest.pid)?;
            let packets = |tap: &String| {
                let count = now.packets.get(tap).copied().unwrap_or(0);
                count.saturating_sub(since.packets.get(tap).copied().unwrap_or(count))
            };
            let packets = guest.taps.iter().map(packets).fold(0, u64::saturating_add);
            let io = own.device.map(|device| VmIo { device: DeviceId(device), thread: own.thread, packets });
            let busy = guest.vcpus.iter().map(|&thread| now.thread(since, (guest.pid, thread)));
            let busy = busy.fold(0, u64::saturating_add);
            let load = VmLoad {
                home: Node(own.home as u8),
                vcpus: guest.vcpus.len(),
                memory: Bytes::new(
                    guest
                        .pages
                        .values()
                        .fold(0u64, |sum, pages| sum.saturating_add(*pages))
                        .saturating_mul(PAGE),
                ),
                // Without names of threads, vCPUs cannot be told from others.
                pinned: guest.pinned || guest.vcpus.is_empty(),
                moving: false,
                busy: ns(busy),
                io: io.into_iter().collect(),
            };
            Some((VmId(guest.pid as usize), load))
        });
        let vms = vms.collect();
        Loads {
            period: Duration::from_ps((period.as_nanos() as u64).max(1).saturating_mul(1000)),
            nodes: nodes.collect(),
            devices: devices.collect(),
            vms,
        }
    }

    /// Interrupts of a device's CPUs at a node.
    fn interrupt_ns(
        &self,
        view: &HostView,
        interface: &str,
        node: u32,
        [since, now]: [&LoadSample; 2],
    ) -> u64 {
        let messages = view.numbers(&format!("/sys/class/net/{interface}/device/msi_irqs"));
        let survey = view.survey();
        let irqs = messages.iter().filter_map(|irq| survey.irqs.get(irq));
        let mut cpus: Vec<u32> =
            irqs.filter_map(|irq| irq.effective.get().or(irq.affinity.get())?.iter().next()).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let own = cpus.iter().filter(|cpu| view.nodes.get(&node).is_some_and(|all| all.contains(cpu)));
        own.map(|cpu| {
            let count = now.interrupts.get(cpu).copied().unwrap_or(0);
            count.saturating_sub(since.interrupts.get(cpu).copied().unwrap_or(count))
        })
        .fold(0, u64::saturating_add)
    }

    /// What was decided, as writes.
    pub(crate) fn writes(&self, view: &HostView, plan: &mut HostPlan) {
        for guest in &view.guests {
            let Some(own) = self.guests.get(&guest.pid) else { continue };
            let Some(device) = own.device else {
                plan.notes.push(format!(
                    "guest {}: no network interface with a device is known to carry its packets",
                    guest.pid
                ));
                continue;
            };
            let node = self.threads[device].get(own.thread).copied().unwrap_or(own.home);
            let uplink = &self.devices[device];
            let why = match self.scheduler.mode(DeviceId(device)) {
                Mode::Light => format!("light load: I/O threads of {uplink}'s guests at its node {node}"),
                Mode::Heavy => format!("heavy load: I/O threads at node {node}, the guest's home"),
            };
            for thread in
                guest.vhost.iter().copied().chain(guest.io.iter().map(|&thread| (guest.pid, thread)))
            {
                plan.thread(view, thread, node, &why);
            }
            if own.moved {
                self.moved(view, guest, own.home, uplink, plan);
            }
            if guest.vcpus.is_empty() {
                plan.notes.push(format!(
                    "guest {}: its vCPUs are not told from other threads (`-name NAME,debug-threads=on`), and stay where they are",
                    guest.pid
                ));
            }
        }
    }

    /// vCPUs to another home, with the memory where a cgroup moves it.
    fn moved(&self, view: &HostView, guest: &GuestProcess, home: u32, uplink: &str, plan: &mut HostPlan) {
        let why = format!("the guest uses {uplink}, and has room at node {home}");
        let cpus = view.set_of(home).to_string();
        let folders = guest.cgroup.iter().flat_map(|folder| {
            let names = view.root.list(folder).into_iter().filter(|name| name.starts_with("vcpu"));
            names.map(move |name| format!("{folder}/{name}"))
        });
        let folders: Vec<String> =
            folders.filter(|folder| view.root.exists(&format!("{folder}/cpuset.cpus"))).collect();
        for folder in &folders {
            plan.file(view, &format!("{folder}/cpuset.cpus"), SetForm::List, &cpus, &why);
            plan.file(view, &format!("{folder}/cpuset.mems"), SetForm::List, &home.to_string(), &why);
        }
        let emulator = guest.cgroup.as_ref().map(|folder| format!("{folder}/emulator/cpuset.mems"));
        let emulator = emulator.filter(|path| view.root.exists(path));
        if let Some(path) = &emulator {
            plan.file(view, path, SetForm::List, &home.to_string(), "its memory follows");
        }
        if folders.is_empty() {
            for &thread in &guest.vcpus {
                plan.thread(view, (guest.pid, thread), home, &why);
            }
        }
        if emulator.is_none() {
            plan.notes.push(format!("guest {0}: `migratepages {0} all {home}` moves its memory", guest.pid));
        }
    }
}
