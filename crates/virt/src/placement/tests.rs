//! Tests of placement decisions: every machine is served, actions are valid, decisions settle, capacity is respected.

use std::collections::{BTreeMap, BTreeSet};

use engine::Seed;
use platform::cpu::Node;
use proptest::prelude::*;
use units::{Bytes, Duration};

use super::*;

const PERIOD: Duration = Duration::from_ms(1);

/// A host that carries out decisions. CPU time of its threads follows from the offered load.
struct Host {
    loads: Loads,
    /// For each virtual machine: I/O load that it offers to its device, and vCPU load, in cores.
    offers: BTreeMap<VmId, (f64, f64)>,
    moves: usize,
    scheduler: Scheduler,
}

fn time(cores: f64) -> Duration {
    Duration::from_ps((cores * PERIOD.as_ps() as f64) as u64)
}

impl Host {
    fn new(policy: Policy, nodes: usize, cores: usize, devices: &[Vec<Node>]) -> Self {
        let threads = (0..nodes).map(|node| (Node(node as u8), Duration::ZERO)).collect::<Vec<_>>();
        let capacity = Capacity { cores, free: Bytes::gib(16) };
        let devices = devices.iter().map(|nodes| {
            let mut threads = threads.clone();
            // Threads of the device's node first, as the driver creates them.
            threads.sort_by_key(|(node, _)| Some(node) != nodes.first());
            DeviceLoad { nodes: nodes.clone(), threads }
        });
        let loads = Loads {
            period: PERIOD,
            nodes: vec![capacity; nodes],
            devices: devices.collect(),
            vms: BTreeMap::new(),
        };
        let rng = Seed::new(1).component("placement");
        Self {
            loads,
            offers: BTreeMap::new(),
            moves: 0,
            scheduler: Scheduler::new(policy, Thresholds::usual(), rng),
        }
    }

    fn add(&mut self, number: usize, device: usize, io: f64, busy: f64, home: Option<u8>) {
        let memory = Bytes::gib(1);
        let Some(home) = home.map(Node).or_else(|| self.scheduler.home(&self.loads, memory)) else { return };
        let own = &mut self.loads.nodes[usize::from(home.0)];
        own.free = Bytes::new(own.free.get() - memory.get());
        let io_of = vec![VmIo { device: DeviceId(device), thread: 0, packets: 0 }];
        let load =
            VmLoad { home, vcpus: 1, memory, pinned: false, moving: false, busy: Duration::ZERO, io: io_of };
        self.loads.vms.insert(VmId(number), load);
        self.offers.insert(VmId(number), (io, busy));
    }

    fn remove(&mut self, number: usize) {
        let vm = VmId(number);
        if let Some(load) = self.loads.vms.remove(&vm) {
            let own = &mut self.loads.nodes[usize::from(load.home.0)];
            own.free = Bytes::new(own.free.get() + load.memory.get());
        }
        self.offers.remove(&vm);
    }

    /// Simulates a period and returns the decisions.
    fn pass(&mut self) -> Vec<Action> {
        for device in &mut self.loads.devices {
            device.threads.iter_mut().for_each(|(_, time)| *time = Duration::ZERO);
        }
        for (vm, load) in &mut self.loads.vms {
            let (io, busy) = self.offers[vm];
            load.busy = time(busy);
            let [own] = &mut load.io[..] else { continue };
            own.packets = (io * 1e6) as u64;
            let own = &mut self.loads.devices[own.device.0].threads[own.thread].1;
            // A thread has one core.
            *own = time(io + own.as_ps() as f64 / PERIOD.as_ps() as f64).min(PERIOD);
        }
        let actions = self.scheduler.decide(&self.loads);
        for action in &actions {
            match *action {
                Action::Pin(device, thread, node) => {
                    assert!(self.loads.nodes[usize::from(node.0)].cores > 0, "a pin to a node without cores");
                    assert!(thread < self.loads.devices[device.0].threads.len());
                }
                Action::Serve(vm, _, thread) => {
                    let load = self.loads.vms.get_mut(&vm).expect("one that is there");
                    load.io[0].thread = thread;
                }
                Action::Move(vm, to) => {
                    self.moves += 1;
                    let load = self.loads.vms.get_mut(&vm).expect("one that is there");
                    let [from, here] = [load.home, to].map(|node| usize::from(node.0));
                    let memory = load.memory.get();
                    load.home = to;
                    let nodes = &mut self.loads.nodes;
                    assert!(nodes[here].free.get() >= memory, "more than the node has");
                    nodes[here].free = Bytes::new(nodes[here].free.get() - memory);
                    nodes[from].free = Bytes::new(nodes[from].free.get() + memory);
                }
            }
        }
        actions
    }

    fn homes(&self) -> Vec<u8> {
        self.loads.vms.values().map(|vm| vm.home.0).collect()
    }
}

#[test]
fn light_load_draws_intensive_machines_to_the_device_and_leaves_others() {
    let mut host = Host::new(Policy::Numa, 2, 6, &[vec![Node(0)]]);
    host.add(0, 0, 0.1, 0.3, Some(1));
    host.add(1, 0, 0.2, 0.3, Some(1));
    host.add(2, 0, 0.001, 0.6, Some(1));
    let first: Vec<_> = host.pass();
    assert!(first.contains(&Action::Pin(DeviceId(0), 0, Node(0))), "{first:?}");
    assert!(first.contains(&Action::Move(VmId(1), Node(0))), "the one with the most first: {first:?}");
    assert!(host.pass().contains(&Action::Move(VmId(0), Node(0))));
    for _ in 0..20 {
        assert_eq!(host.pass(), []);
    }
    assert_eq!((host.homes(), host.scheduler.mode(DeviceId(0))), (vec![0, 0, 1], Mode::Light));
}

#[test]
fn heavy_load_gives_each_machine_the_thread_of_its_home_and_moves_none() {
    let mut host = Host::new(Policy::Numa, 2, 6, &[vec![Node(0)]]);
    // More load than the device's node has cores for.
    for vm in 0..10 {
        host.add(vm, 0, 0.15, 0.5, Some((vm % 2) as u8));
    }
    host.pass();
    let drawn = host.moves;
    host.pass();
    assert_eq!(host.scheduler.mode(DeviceId(0)), Mode::Heavy, "after the second period");
    for _ in 0..50 {
        host.pass();
    }
    assert_eq!((host.scheduler.switches(), host.moves), (1, drawn), "it settles");
    for (vm, load) in &host.loads.vms {
        let thread = load.io[0].thread;
        assert_eq!(host.loads.devices[0].threads[thread].0, load.home, "{vm:?}");
    }
    // When the load drops, the mode follows within the hysteresis periods.
    host.offers.values_mut().for_each(|(io, _)| *io = 0.03);
    (0..3).for_each(|_| drop(host.pass()));
    assert_eq!((host.scheduler.mode(DeviceId(0)), host.scheduler.switches()), (Mode::Light, 2));
}

/// A moving machine is waited for, and no machine moves to a device that is about to get more threads.
#[test]
fn machines_move_one_after_the_other_and_not_before_a_change_of_mode() {
    let mut host = Host::new(Policy::Numa, 2, 6, &[vec![Node(0)]]);
    host.add(0, 0, 0.1, 0.3, Some(1));
    host.add(1, 0, 0.2, 0.3, Some(1));
    host.loads.vms.get_mut(&VmId(0)).expect("one that is there").moving = true;
    (0..5).for_each(|_| drop(host.pass()));
    assert_eq!(host.moves, 0);
    host.loads.vms.get_mut(&VmId(0)).expect("one that is there").moving = false;
    host.offers.values_mut().for_each(|(io, _)| *io = 0.45);
    (0..5).for_each(|_| drop(host.pass()));
    assert_eq!((host.moves, host.scheduler.mode(DeviceId(0))), (0, Mode::Heavy));
}

/// Between the two thresholds, the mode does not change.
#[test]
fn between_the_thresholds_the_mode_stays() {
    let mut host = Host::new(Policy::Numa, 2, 6, &[vec![Node(0)]]);
    host.add(0, 0, 0.325, 1.0, Some(0));
    host.add(1, 0, 0.325, 1.0, Some(1));
    (0..50).for_each(|_| drop(host.pass()));
    assert_eq!(host.scheduler.switches(), 0);
    host.offers.values_mut().for_each(|(io, _)| *io = 0.45);
    (0..4).for_each(|_| drop(host.pass()));
    host.offers.values_mut().for_each(|(io, _)| *io = 0.325);
    (0..50).for_each(|_| drop(host.pass()));
    assert_eq!((host.scheduler.switches(), host.scheduler.mode(DeviceId(0))), (1, Mode::Heavy));
}

/// One machine uses one thread, however many there are: it moves to the device. Once others have load too, there is a
/// thread per node, and one again when they stop.
#[test]
fn the_load_of_one_machine_asks_for_no_second_thread() {
    let mut host = Host::new(Policy::Numa, 2, 6, &[vec![Node(0)]]);
    host.add(0, 0, 1.0, 1.0, Some(1));
    host.add(1, 0, 0.015, 0.1, Some(1));
    (0..20).for_each(|_| drop(host.pass()));
    assert_eq!((host.homes(), host.scheduler.switches()), (vec![0, 1], 0));
    host.offers.insert(VmId(1), (0.2, 0.3));
    (0..20).for_each(|_| drop(host.pass()));
    assert_eq!((host.homes(), host.scheduler.mode(DeviceId(0))), (vec![0, 1], Mode::Heavy));
    host.remove(1);
    host.add(2, 0, 0.015, 0.1, Some(1));
    (0..20).for_each(|_| drop(host.pass()));
    assert_eq!(host.scheduler.mode(DeviceId(0)), Mode::Heavy, "between the thresholds it stays");
    host.remove(2);
    (0..20).for_each(|_| drop(host.pass()));
    assert_eq!((host.homes(), host.scheduler.mode(DeviceId(0))), (vec![0], Mode::Light));
}

/// A card with a link to each node is local everywhere: nothing moves.
#[test]
fn a_device_at_every_node_moves_nobody() {
    let mut host = Host::new(Policy::Numa, 2, 6, &[vec![Node(0), Node(1)]]);
    for vm in 0..4 {
        host.add(vm, 0, 0.1, 0.3, Some((vm % 2) as u8));
    }
    (0..50).for_each(|_| drop(host.pass()));
    assert_eq!(host.moves, 0);
}

#[test]
fn machines_of_devices_at_different_nodes_go_to_different_nodes() {
    let mut host = Host::new(Policy::Numa, 4, 4, &[vec![Node(1)], vec![Node(3)]]);
    for vm in 0..4 {
        host.add(vm, vm % 2, 0.1, 0.3, Some(0));
    }
    (0..20).for_each(|_| drop(host.pass()));
    assert_eq!(host.homes(), [1, 3, 1, 3]);
}

#[test]
fn a_node_without_memory_or_cores_gets_nothing() {
    for (cores, free) in [(6, Bytes::mib(512)), (0, Bytes::gib(16))] {
        let mut host = Host::new(Policy::Numa, 2, 6, &[vec![Node(0)]]);
        host.add(0, 0, 0.2, 0.3, Some(1));
        host.loads.nodes[0] = Capacity { cores, free };
        (0..20).for_each(|_| drop(host.pass()));
        assert_eq!(host.homes(), [1]);
    }
    // There is no home if no node has memory.
    let mut host = Host::new(Policy::Numa, 2, 6, &[vec![Node(0)]]);
    host.loads.nodes.iter_mut().for_each(|node| node.free = Bytes::mib(1));
    assert_eq!(host.scheduler.home(&host.loads, Bytes::gib(1)), None);
}

proptest! {
    /// Machines and devices come and go, and loads change: every machine is served by an existing thread, no node
    /// gets more memory than it has, and decisions end once nothing changes.
    #[test]
    fn everybody_is_served_and_decisions_settle(
        policy in prop::sample::select(vec![Policy::Blind, Policy::Numa, Policy::Local]),
        nodes in 1usize..=4,
        steps in prop::collection::vec((0usize..24, 0usize..2, 0.0..0.5f64, 0.0..1.0f64, 0u8..8), 1..60),
    ) {
        let devices = [vec![Node(0)], vec![Node(nodes as u8 - 1)]];
        let mut host = Host::new(policy, nodes, 6, &devices);
        for (vm, device, io, busy, what) in steps {
            match what {
                0 => host.remove(vm),
                1 => host.loads.devices[device].nodes.clear(),
                2 => host.loads.devices[device].nodes.clone_from(&devices[device]),
                _ if host.loads.vms.contains_key(&VmId(vm)) => _ = host.offers.insert(VmId(vm), (io, busy)),
                _ => host.add(vm, device, io, busy, None),
            }
            host.pass();
            for load in host.loads.vms.values() {
                let io = load.io[0];
                prop_assert!(io.thread < host.loads.devices[io.device.0].threads.len());
            }
        }
        // One machine moves per period, each at most once per node.
        let enough = 8 + nodes * host.loads.vms.len().max(1) * 4;
        for _ in 0..enough {
            host.pass();
        }
        let switches = host.scheduler.switches();
        let late: BTreeSet<String> = (0..20).flat_map(|_| host.pass()).map(|action| format!("{action:?}")).collect();
        prop_assert!(late.is_empty(), "{:?}", late);
        prop_assert_eq!(host.scheduler.switches(), switches);
    }
}
