//! Placement of virtual machines and of the I/O threads of their devices.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | decisions: loads in, actions out, independent of the simulation |
//! | `manager` | the host task that measures loads and carries out decisions |
//!
//! docs/numa-io.md describes the algorithm and its thresholds.

mod manager;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use engine::Rng;
use platform::cpu::Node;
use units::{Bytes, Duration};

pub use manager::{Client, Done, IoThreads, Managed, Manager};

/// Number of a virtual machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VmId(pub usize);

/// Number of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DeviceId(pub usize);

/// What decides where virtual machines and I/O threads run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Considers load only.
    Blind,
    /// Considers load and the device's node.
    Numa,
    /// Everything at the device's node.
    Local,
}

/// Thresholds for decisions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Thresholds {
    /// Load of a device's I/O threads from which there is one per node. In cores, including interrupts and waiting on
    /// those cores.
    pub heavy: f64,
    /// Load below which there is one thread again.
    pub light: f64,
    /// Consecutive periods that a condition has to hold.
    pub periods: u32,
    /// I/O time of a virtual machine from which it is I/O-intensive, in cores. Also the I/O time of all but the most
    /// active machine from which several threads are useful.
    pub intensive: f64,
    /// The same as a share of the machine's vCPU time.
    pub share: f64,
    /// Difference in vCPU time between nodes from which a machine is moved, as a share of a node's cores.
    pub imbalance: f64,
}

impl Thresholds {
    /// The values of docs/numa-io.md.
    pub const fn usual() -> Self {
        Self { heavy: 0.8, light: 0.5, periods: 2, intensive: 0.02, share: 0.1, imbalance: 0.25 }
    }
}

/// Resources of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Number of cores.
    pub cores: usize,
    /// Free memory.
    pub free: Bytes,
}

/// Activity of a device's I/O threads in a period.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceLoad {
    /// Nodes local to it; empty if it is gone.
    pub nodes: Vec<Node>,
    /// For each I/O thread: node of its rings, and CPU time of the thread and of its core's interrupts.
    pub threads: Vec<(Node, Duration)>,
}

/// Activity of a virtual machine in a period.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VmLoad {
    /// Node of its memory and its vCPUs.
    pub home: Node,
    /// Number of vCPUs.
    pub vcpus: usize,
    /// Memory to copy in a move.
    pub memory: Bytes,
    /// Whether its memory cannot move, because it is pinned or an attempt failed.
    pub pinned: bool,
    /// Whether it is being moved.
    pub moving: bool,
    /// CPU time of its vCPUs.
    pub busy: Duration,
    /// Its use of devices.
    pub io: Vec<VmIo>,
}

/// A virtual machine's use of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmIo {
    /// The uplink of its NIC, or the drive of its disk.
    pub device: DeviceId,
    /// The I/O thread that serves it.
    pub thread: usize,
    /// Packets or requests in the period.
    pub packets: u64,
}

/// Measurements of a period.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loads {
    /// Length of the period.
    pub period: Duration,
    /// Nodes, by number.
    pub nodes: Vec<Capacity>,
    /// Devices, by number.
    pub devices: Vec<DeviceLoad>,
    /// Virtual machines.
    pub vms: BTreeMap<VmId, VmLoad>,
}

/// What the scheduler has decided, to be carried out by the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Run an I/O thread of a device at a node.
    Pin(DeviceId, usize, Node),
    /// Serve a virtual machine by an I/O thread of a device.
    Serve(VmId, DeviceId, usize),
    /// Move a virtual machine to another home.
    Move(VmId, Node),
}

/// Number of I/O threads of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Mode {
    /// One thread.
    #[default]
    Light,
    /// One thread per node.
    Heavy,
}

/// State of a device across periods.
#[derive(Clone, Default)]
struct DeviceState {
    mode: Mode,
    /// Consecutive periods whose load asked for the other mode.
    streak: u32,
    /// Node of each thread.
    places: Vec<Node>,
}

/// State of a virtual machine.
#[derive(Clone, Copy, Default)]
struct VmState {
    intensive: bool,
    /// Its position in the round-robin assignment to threads.
    turn: usize,
}

/// Makes decisions, period by period.
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
    /// A scheduler without history; `rng` breaks ties.
    pub fn new(policy: Policy, thresholds: Thresholds, rng: Rng) -> Self {
        Self { policy, thresholds, rng, devices: Vec::new(), vms: BTreeMap::new(), turns: 0, switches: 0 }
    }

    /// Changes the policy, from the next period on. What is known of devices and machines stays.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// How many I/O threads a device has.
    pub fn mode(&self, device: DeviceId) -> Mode {
        self.devices.get(device.0).map_or(Mode::Light, |device| device.mode)
    }

    /// Whether a device has one I/O thread, with no sign of a change.
    fn stays_light(&self, device: DeviceId) -> bool {
        self.mode(device) == Mode::Light && self.devices[device.0].streak == 0
    }

    /// Number of mode changes.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Whether a virtual machine is I/O-intensive.
    fn is_intensive(&self, vm: VmId) -> bool {
        self.vms.get(&vm).is_some_and(|vm| vm.intensive)
    }

    /// Home for a new virtual machine: the node with room for its memory and the fewest vCPUs per core; `None` if no
    /// node has room.
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

    /// Actions after a period.
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
            // Move one machine at a time, since its effect on loads is not known before.
            _ if loads.vms.values().any(|vm| vm.moving) => None,
            Policy::Blind => self.balance(loads),
            Policy::Numa => self.draw(loads).or_else(|| self.balance(loads)),
            Policy::Local => self.gather(loads),
        };
        self.assign(loads, moved, &mut actions);
        actions.extend(moved.map(|(vm, to)| Action::Move(vm, to)));
        actions
    }

    /// Updates a device's mode.
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

    /// Chooses nodes for a device's threads.
    fn place_threads(&mut self, device: DeviceId, loads: &Loads, actions: &mut Vec<Action>) {
        let own = &loads.devices[device.0];
        let near = own.nodes.first().copied();
        for (thread, &(rings, _)) in own.threads.iter().enumerate() {
            let placed = self.devices[device.0].places.get(thread).copied();
            let wanted = match (self.policy, near) {
                // Keep the first choice.
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

    /// A random one of the nodes with the fewest placed threads.
    fn least_crowded(&mut self, device: DeviceId, loads: &Loads) -> Node {
        let places = &self.devices[device.0].places;
        let threads = |node: u8| places.iter().filter(|place| place.0 == node).count();
        let nodes = || (0..loads.nodes.len() as u8).filter(|&node| loads.nodes[usize::from(node)].cores > 0);
        let least = nodes().map(threads).min().unwrap_or_default();
        let alike: Vec<u8> = nodes().filter(|&node| threads(node) == least).collect();
        Node(alike[self.rng.below(alike.len() as u64) as usize])
    }

    /// Updates which virtual machines are I/O-intensive.
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

    /// Light mode, unless heavy mode is near: the next I/O-intensive virtual machine to move to its device's node.
    fn draw(&self, loads: &Loads) -> Option<(VmId, Node)> {
        let mut far: Vec<(VmId, &VmLoad, f64, Node)> = loads
            .vms
            .iter()
            .filter(|&(vm, load)| self.is_intensive(*vm) && !load.pinned)
            .filter_map(|(&vm, load)| {
                // If it uses several devices, the one that it uses most, or the first of equals.
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

    /// Local policy: the next virtual machine to move to its device's node, while there is room.
    fn gather(&self, loads: &Loads) -> Option<(VmId, Node)> {
        loads.vms.iter().find_map(|(&vm, load)| {
            let near = *loads.devices[load.io.first()?.device.0].nodes.first()?;
            let fits = loads.nodes[usize::from(near.0)].free >= load.memory;
            (load.home != near && !load.pinned && fits).then_some((vm, near))
        })
    }

    /// The virtual machine to move from the busiest to the least busy node, if they differ by more than the threshold
    /// and the move makes them more equal.
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

    /// Assigns virtual machines to threads.
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
    /// All virtual machines' use of a device.
    fn of_device(&self, device: DeviceId) -> impl Iterator<Item = &VmIo> {
        self.vms.values().flat_map(|vm| &vm.io).filter(move |io| io.device == device)
    }

    /// CPU time of a device's I/O threads for a virtual machine, in cores, shared by packets.
    fn io(&self, io: &VmIo) -> f64 {
        let all: u64 = self.of_device(io.device).map(|io| io.packets).sum();
        let time: u64 = self.devices[io.device.0].threads.iter().map(|(_, time)| time.as_ps()).sum();
        if all == 0 { 0.0 } else { io.packets as f64 / all as f64 * time as f64 / self.period.as_ps() as f64 }
    }
}

/// The first node with cores, for what prefers one without.
fn with_cores(loads: &Loads) -> Node {
    Node(loads.nodes.iter().position(|node| node.cores > 0).unwrap_or(0) as u8)
}
