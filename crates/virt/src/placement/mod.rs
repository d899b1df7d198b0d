//! Where virtual machines and the I/O threads of their virtual NICs run.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | decisions: loads in, actions out; nothing of the simulation |
//! | `manager` | the task of the host that measures loads and does what was decided |
//!
//! docs/numa-io.md says what is decided by which figures.

mod manager;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use engine::Rng;
use platform::cpu::Node;
use units::{Bytes, Duration};

pub use manager::{Client, Done, IoThreads, Managed, Manager};

/// A virtual machine's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VmId(pub usize);

/// A device's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DeviceId(pub usize);

/// By what is placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// By load alone.
    Blind,
    /// By load and by the device's node.
    Numa,
    /// All at the device's node.
    Local,
}

/// Figures by which it is decided.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Thresholds {
    /// Load of a device's I/O threads in cores, with interrupts of their cores and waits for cores, from which there is one for each node.
    pub heavy: f64,
    /// The same up to which there is one again.
    pub light: f64,
    /// Periods for which that has to hold.
    pub periods: u32,
    /// I/O time of a virtual machine, in cores, from which it is I/O-intensive; of all but the one with the most, from which there
    /// is load for several threads.
    pub intensive: f64,
    /// The same as a share of what its vCPUs compute.
    pub share: f64,
    /// Difference of what vCPUs of two nodes compute, as a share of a node's cores, from which one is moved.
    pub imbalance: f64,
}

impl Thresholds {
    /// Those of docs/numa-io.md.
    pub const fn usual() -> Self {
        Self { heavy: 0.8, light: 0.5, periods: 2, intensive: 0.02, share: 0.1, imbalance: 0.25 }
    }
}

/// What a node has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Cores of the node, whatever runs on them.
    pub cores: usize,
    /// Its free memory.
    pub free: Bytes,
}

/// What a device's I/O threads did in a period.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceLoad {
    /// The nodes to which it is local; empty if it has gone.
    pub nodes: Vec<Node>,
    /// By I/O thread: the node of its queues' rings, and for how long it and interrupts of its core computed.
    pub threads: Vec<(Node, Duration)>,
}

/// What a virtual machine did in a period.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VmLoad {
    /// Where its memory is and its vCPUs run.
    pub home: Node,
    /// Its vCPUs.
    pub vcpus: usize,
    /// What a move would copy.
    pub memory: Bytes,
    /// Its memory has to stay where it is, as a device reaches it, or could not be moved.
    pub pinned: bool,
    /// It is on its way to its home.
    pub moving: bool,
    /// For how long its vCPUs computed.
    pub busy: Duration,
    /// What it has of devices.
    pub io: Vec<VmIo>,
}

/// What a virtual machine has of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmIo {
    /// The uplink that its packets pass, or the drive of its disk.
    pub device: DeviceId,
    /// Which of its I/O threads serves the machine.
    pub thread: usize,
    /// Packets or requests that were passed for the machine.
    pub packets: u64,
}

/// What was counted in a period.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loads {
    /// How long it was.
    pub period: Duration,
    /// Nodes, by number.
    pub nodes: Vec<Capacity>,
    /// Devices, by number.
    pub devices: Vec<DeviceLoad>,
    /// Virtual machines.
    pub vms: BTreeMap<VmId, VmLoad>,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// An I/O thread of a device runs at a node from now on.
    Pin(DeviceId, usize, Node),
    /// A virtual machine is served by an I/O thread of a device from now on.
    Serve(VmId, DeviceId, usize),
    /// A virtual machine has another home.
    Move(VmId, Node),
}

/// How many I/O threads a device has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Mode {
    /// One.
    #[default]
    Light,
    /// One for each node.
    Heavy,
}

/// What is known of a device from one period to the next.
#[derive(Clone, Default)]
struct DeviceState {
    mode: Mode,
    /// Periods in which the load asked for the other mode, one after the other.
    streak: u32,
    /// Where its threads run.
    places: Vec<Node>,
}

/// What is known of a virtual machine.
#[derive(Clone, Copy, Default)]
struct VmState {
    intensive: bool,
    /// Its turn among those that were given to threads one after the other.
    turn: usize,
}

/// Decides, period after period.
pub struct Scheduler {
    policy: Policy,
    thresholds: Thresholds,
    rng: Rng,
    devices: Vec<DeviceState>,
    vms: BTreeMap<VmId, VmState>,
    turns: usize,
    switches: u64,
}

impl Scheduler {
    /// A scheduler that has seen nothing; `rng` chooses among what is alike to it.
    pub fn new(policy: Policy, thresholds: Thresholds, rng: Rng) -> Self {
        Self { policy, thresholds, rng, devices: Vec::new(), vms: BTreeMap::new(), turns: 0, switches: 0 }
    }

    /// A device's mode.
    fn mode(&self, device: DeviceId) -> Mode {
        self.devices.get(device.0).map_or(Mode::Light, |device| device.mode)
    }

    /// Whether a device has one I/O thread, and nothing speaks for more.
    fn stays_light(&self, device: DeviceId) -> bool {
        self.mode(device) == Mode::Light && self.devices[device.0].streak == 0
    }

    /// How often modes have changed.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Whether a virtual machine is I/O-intensive.
    fn is_intensive(&self, vm: VmId) -> bool {
        self.vms.get(&vm).is_some_and(|vm| vm.intensive)
    }

    /// The home of a virtual machine that comes, of so much memory: of the nodes with room for it the one with the fewest vCPUs
    /// for each core; none if no node has room.
    pub fn home(&mut self, loads: &Loads, memory: Bytes) -> Option<Node> {
        let crowd = |node: usize| {
            let here = loads.vms.values().filter(|vm| usize::from(vm.home.0) == node);
            (here.map(|vm| vm.vcpus).sum::<usize>() * 1000).checked_div(loads.nodes[node].cores)
        };
        let fits = (0..loads.nodes.len()).filter(|&node| loads.nodes[node].free >= memory);
        let crowds: Vec<_> = fits.filter_map(|node| Some((node, crowd(node)?))).collect();
        let least = crowds.iter().map(|&(_, crowd)| crowd).min()?;
        let alike: Vec<usize> =
            crowds.into_iter().filter(|&(_, crowd)| crowd == least).map(|(node, _)| node).collect();
        let chosen = self.rng.below(alike.len() as u64) as usize;
        Some(Node(alike[chosen] as u8))
    }

    /// What is to be done after a period.
    pub fn decide(&mut self, loads: &Loads) -> Vec<Action> {
        let mut actions = Vec::new();
        self.devices.resize(loads.devices.len(), DeviceState::default());
        self.vms.retain(|vm, _| loads.vms.contains_key(vm));
        for &vm in loads.vms.keys() {
            if !self.vms.contains_key(&vm) {
                let turn = self.turns;
                self.turns += 1;
                self.vms.insert(vm, VmState { turn, ..VmState::default() });
            }
        }
        for device in (0..loads.devices.len()).map(DeviceId) {
            self.look_at_load(device, loads);
            self.place_threads(device, loads, &mut actions);
        }
        self.tell_intensive(loads);
        let moved = match self.policy {
            // One after the other: what the next one finds is not known before.
            _ if loads.vms.values().any(|vm| vm.moving) => None,
            Policy::Blind => self.balance(loads),
            Policy::Numa => self.draw(loads).or_else(|| self.balance(loads)),
            Policy::Local => self.gather(loads),
        };
        self.assign(loads, moved, &mut actions);
        actions.extend(moved.map(|(vm, to)| Action::Move(vm, to)));
        actions
    }

    /// Whether a device's mode changes.
    fn look_at_load(&mut self, device: DeviceId, loads: &Loads) {
        let own = &loads.devices[device.0];
        let state = &mut self.devices[device.0];
        let period = loads.period.as_ps() as f64;
        let load: f64 = own.threads.iter().map(|(_, time)| time.as_ps() as f64 / period).sum();
        let most = loads.of_device(device).map(|io| loads.io(io)).fold(0.0, f64::max);
        let (others, least) = (load - most, self.thresholds.intensive);
        let wants = match state.mode {
            Mode::Light if own.threads.len() > 1 && load >= self.thresholds.heavy && others >= least => {
                Mode::Heavy
            }
            Mode::Heavy if load <= self.thresholds.light || others < 0.5 * least => Mode::Light,
            same => same,
        };
        state.streak = if wants == state.mode { 0 } else { state.streak + 1 };
        if state.streak >= self.thresholds.periods {
            (state.mode, state.streak) = (wants, 0);
            self.switches += 1;
        }
    }

    /// Where a device's threads are to run.
    fn place_threads(&mut self, device: DeviceId, loads: &Loads, actions: &mut Vec<Action>) {
        let own = &loads.devices[device.0];
        let near = own.nodes.first().copied();
        for (thread, &(rings, _)) in own.threads.iter().enumerate() {
            let placed = self.devices[device.0].places.get(thread).copied();
            let wanted = match (self.policy, near) {
                // Once chosen, there is no reason for another.
                (Policy::Blind, _) | (_, None) => placed.unwrap_or_else(|| self.least_crowded(device, loads)),
                (Policy::Local, Some(near)) => near,
                (Policy::Numa, Some(_)) => rings,
            };
            let wanted =
                if loads.nodes[usize::from(wanted.0)].cores > 0 { wanted } else { with_cores(loads) };
            if placed != Some(wanted) {
                let places = &mut self.devices[device.0].places;
                places.truncate(thread);
                places.push(wanted);
                actions.push(Action::Pin(device, thread, wanted));
            }
        }
    }

    /// A node with the fewest of a device's threads that have a place: any of several.
    fn least_crowded(&mut self, device: DeviceId, loads: &Loads) -> Node {
        let places = &self.devices[device.0].places;
        let threads = |node: u8| places.iter().filter(|place| place.0 == node).count();
        let nodes = || (0..loads.nodes.len() as u8).filter(|&node| loads.nodes[usize::from(node)].cores > 0);
        let least = nodes().map(threads).min().unwrap_or_default();
        let alike: Vec<u8> = nodes().filter(|&node| threads(node) == least).collect();
        Node(alike[self.rng.below(alike.len() as u64) as usize])
    }

    /// Which virtual machines are I/O-intensive.
    fn tell_intensive(&mut self, loads: &Loads) {
        let period = loads.period.as_ps() as f64;
        for (vm, load) in &loads.vms {
            let io: f64 = load.io.iter().map(|io| loads.io(io)).sum();
            let busy = load.busy.as_ps() as f64 / period;
            let Some(state) = self.vms.get_mut(vm) else { continue };
            let factor = if state.intensive { 0.5 } else { 1.0 };
            state.intensive =
                io >= self.thresholds.intensive * factor && io >= self.thresholds.share * factor * busy;
        }
    }

    /// Whether a node has room for a virtual machine: memory, and a core for each vCPU and I/O thread.
    fn has_room(&self, loads: &Loads, node: Node, vm: &VmLoad) -> bool {
        let own = loads.nodes[usize::from(node.0)];
        let vcpus: usize = loads.vms.values().filter(|vm| vm.home == node).map(|vm| vm.vcpus).sum();
        let threads = self.devices.iter().map(|device| {
            let used = if device.mode == Mode::Light { 1 } else { device.places.len() };
            device.places[..used.min(device.places.len())].iter().filter(|&&place| place == node).count()
        });
        own.free >= vm.memory && vcpus + vm.vcpus + threads.sum::<usize>() <= own.cores
    }

    /// In light mode, unless the other is about to begin: the I/O-intensive virtual machine that moves to its device's node next.
    fn draw(&self, loads: &Loads) -> Option<(VmId, Node)> {
        let mut far: Vec<(VmId, &VmLoad, f64, Node)> = loads
            .vms
            .iter()
            .filter(|&(vm, load)| self.is_intensive(*vm) && !load.pinned)
            .filter_map(|(&vm, load)| {
                // Of several devices the one that it uses most; of like ones the first.
                let io = load.io.iter().rev().max_by(|a, b| loads.io(a).total_cmp(&loads.io(b)))?;
                let own = &loads.devices[io.device.0];
                let near = *own.nodes.first()?;
                let is_far = !own.nodes.contains(&load.home);
                (is_far && self.stays_light(io.device)).then_some((vm, load, loads.io(io), near))
            })
            .collect();
        far.sort_by(|(a, _, one, _), (b, _, other, _)| other.total_cmp(one).then(a.cmp(b)));
        far.into_iter()
            .find(|(_, load, _, near)| self.has_room(loads, *near, load))
            .map(|(vm, .., near)| (vm, near))
    }

    /// As many as fit at their devices' nodes.
    fn gather(&self, loads: &Loads) -> Option<(VmId, Node)> {
        loads.vms.iter().find_map(|(&vm, load)| {
            let near = *loads.devices[load.io.first()?.device.0].nodes.first()?;
            let fits = loads.nodes[usize::from(near.0)].free >= load.memory;
            (load.home != near && !load.pinned && fits).then_some((vm, near))
        })
    }

    /// The virtual machine that goes from the node that computes most to the one that computes least, if they are far apart and
    /// closer afterwards.
    fn balance(&self, loads: &Loads) -> Option<(VmId, Node)> {
        let period = loads.period.as_ps() as f64;
        let busy = |node: usize| -> f64 {
            let here = loads.vms.values().filter(|vm| usize::from(vm.home.0) == node);
            let cores = loads.nodes[node].cores.max(1) as f64;
            here.map(|vm| vm.busy.as_ps() as f64).sum::<f64>() / period / cores
        };
        let nodes = || (0..loads.nodes.len()).filter(|&node| loads.nodes[node].cores > 0);
        let most = nodes().max_by(|&a, &b| busy(a).total_cmp(&busy(b)))?;
        let least = nodes().min_by(|&a, &b| busy(a).total_cmp(&busy(b)))?;
        let gap = busy(most) - busy(least);
        if gap <= self.thresholds.imbalance {
            return None;
        }
        let (to, cores) = (Node(least as u8), loads.nodes[least].cores.max(1) as f64);
        let may = |vm: VmId, load: &VmLoad| {
            let share = load.busy.as_ps() as f64 / period / cores;
            let keeps = self.policy == Policy::Numa && self.is_intensive(vm);
            usize::from(load.home.0) == most
                && !load.pinned
                && !keeps
                && share > 0.0
                && share < gap
                && loads.nodes[least].free >= load.memory
        };
        loads.vms.iter().find(|&(&vm, load)| may(vm, load)).map(|(&vm, _)| (vm, to))
    }

    /// Which thread serves whom.
    fn assign(&self, loads: &Loads, moved: Option<(VmId, Node)>, actions: &mut Vec<Action>) {
        let all = loads.vms.iter().flat_map(|(vm, load)| load.io.iter().map(move |io| (vm, load, *io)));
        for (vm, load, VmIo { device, thread, .. }) in all {
            let own = &loads.devices[device.0];
            let home = moved.filter(|(other, _)| other == vm).map_or(load.home, |(_, to)| to);
            let mode = self.mode(device);
            let Some(state) = self.vms.get(vm) else { continue };
            let wanted = match (mode, self.policy) {
                _ if own.threads.is_empty() => continue,
                (Mode::Light, _) => 0,
                (Mode::Heavy, Policy::Blind | Policy::Local) => state.turn % own.threads.len(),
                (Mode::Heavy, Policy::Numa) => {
                    own.threads.iter().position(|&(node, _)| node == home).unwrap_or(0)
                }
            };
            if thread != wanted {
                actions.push(Action::Serve(*vm, device, wanted));
            }
        }
    }
}

impl Loads {
    /// What virtual machines have of a device.
    fn of_device(&self, device: DeviceId) -> impl Iterator<Item = &VmIo> {
        self.vms.values().flat_map(|vm| &vm.io).filter(move |io| io.device == device)
    }

    /// The time that a device's I/O threads computed for a virtual machine, in cores: its share by packets.
    fn io(&self, io: &VmIo) -> f64 {
        let all: u64 = self.of_device(io.device).map(|io| io.packets).sum();
        let time: u64 = self.devices[io.device.0].threads.iter().map(|(_, time)| time.as_ps()).sum();
        if all == 0 { 0.0 } else { io.packets as f64 / all as f64 * time as f64 / self.period.as_ps() as f64 }
    }
}

/// A node that has cores.
fn with_cores(loads: &Loads) -> Node {
    Node(loads.nodes.iter().position(|node| node.cores > 0).unwrap_or(0) as u8)
}
