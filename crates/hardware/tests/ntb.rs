//! Non-transparent bridges: TLPs reach the right place in another host, with a latency that is the sum of the parts,
//! and leave no stale state.

use crate::common;
use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::link::{CreditLimits, Credits, LinkId, LinkParams, LinkState, Side};
use hardware::memory::{CoreId, MemoryParams, MemorySystem};
use hardware::ntb::{ClusterSwitchId, ClusterSwitchParams, NtbCableEnd, NtbCounters, NtbParams};
use hardware::root::{HostId, RootPortParams};
use platform::device::{Device, DeviceBus, DmaError, Function, Reset, Token};
use proptest::prelude::*;
use units::{Duration, HostPhysical};
use wire::ntb::{self as regs, WindowSegment};
use wire::pcie::config::{PcieParams, header};
use wire::pcie::{Bdf, FlowClass, Generation, Width};

const REGISTERS: u64 = 0xe000_0000;
const WINDOW: u64 = 0x100_0000_0000;
const SEGMENT: u64 = 1 << 20;
/// Memory of each host; the first address of a segment.
const MEMORY: u64 = 0x10_0000;
/// Root ports that cores use, and the adapter and device below them.
const ROOT: Bdf = Bdf::new(0, 1, 0);
const ADAPTER: Bdf = Bdf::new(1, 0, 0);
const DEVICE: Bdf = Bdf::new(2, 0, 0);

#[derive(Clone, Debug)]
struct Shape {
    hosts: usize,
    /// Whether all cables lead to one switch; otherwise each pair has its own cable.
    switched: bool,
    adapter: Duration,
    cable: Duration,
    switch: Duration,
    credits: CreditLimits,
}

impl Shape {
    fn pair() -> Self {
        Self {
            hosts: 2,
            switched: false,
            adapter: Duration::from_ns(150),
            cable: Duration::from_ns(30),
            switch: Duration::from_ns(150),
            credits: CreditLimits::default(),
        }
    }
}

/// A device that only requests DMA.
#[derive(Default)]
struct Asker;

impl Device for Asker {
    fn functions(&self) -> Vec<Function> {
        common::function(common::config(256).bar32(0, 4096, false))
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}
    fn read_done(&mut self, _: &mut dyn DeviceBus, _: Token, _: Result<&[u8], DmaError>) {}
}

struct Cluster {
    simulation: Simulation<Fabric>,
    hosts: Vec<HostId>,
    adapters: Vec<EndpointId>,
    devices: Vec<EndpointId>,
    cables: Vec<LinkId>,
    switch: Option<ClusterSwitchId>,
}

impl Cluster {
    fn new(shape: &Shape) -> Self {
        let mut fabric = Fabric::new();
        let (mut hosts, mut adapters, mut devices) = (Vec::new(), Vec::new(), Vec::new());
        let root = RootPortParams { completion_timeout: Duration::from_us(200), ..RootPortParams::ideal() };
        let link = |latency: Option<Duration>| {
            let mut link = LinkParams::example(Generation::Gen3, Width::X8);
            link.receivers.iter_mut().for_each(|receiver| receiver.credits = shape.credits);
            link.latency = latency.unwrap_or(link.latency);
            link
        };
        for node in 0..shape.hosts {
            let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
            let slot = fabric.add_root_port(host, root.clone(), link(None), 1..=1);
            let params = NtbParams {
                latency: shape.adapter,
                ..NtbParams::ideal(node as u8 + 1, PcieParams::endpoint(Generation::Gen3, Width::X8))
            };
            adapters.push(fabric.add_ntb(EndpointParams::ideal(8), params, slot).unwrap());
            let slot = fabric.add_root_port(host, root.clone(), link(None), 2..=2);
            devices.push(fabric.add_endpoint(EndpointParams::ideal(8), &[slot], Box::<Asker>::default()));
            fabric.host_mut(host).add_window(HostPhysical::new(REGISTERS), regs::REGISTER_BYTES, 0);
            fabric.host_mut(host).add_window(HostPhysical::new(WINDOW), 16 * SEGMENT, 0);
            hosts.push(host);
        }
        let switch = shape.switched.then(|| {
            fabric.add_cluster_switch(ClusterSwitchParams { latency: shape.switch, cut_through: true })
        });
        let mut cables = Vec::new();
        for (n, &a) in adapters.iter().enumerate() {
            match switch {
                Some(switch) => {
                    let ends = [NtbCableEnd::Adapter(a), NtbCableEnd::Switch(switch)];
                    cables.push(fabric.add_ntb_cable(ends, link(Some(shape.cable))));
                }
                None => {
                    for &b in &adapters[n + 1..] {
                        let ends = [NtbCableEnd::Adapter(a), NtbCableEnd::Adapter(b)];
                        cables.push(fabric.add_ntb_cable(ends, link(Some(shape.cable))));
                    }
                }
            }
        }
        let cluster = Self { simulation: Simulation::new(fabric), hosts, adapters, devices, cables, switch };
        (0..shape.hosts).for_each(|host| cluster.set_up(host));
        cluster
    }

    /// Set-up by firmware and drivers: everything that a host's cores and device need to reach segment `n` of each
    /// other host `n`.
    fn set_up(&self, host: usize) {
        let on = u32::from(header::COMMAND_MEMORY | header::COMMAND_BUS_MASTER);
        for (register, value) in [
            (header::BAR0, REGISTERS as u32),
            (header::BAR0 + 8, WINDOW as u32),
            (header::BAR0 + 12, (WINDOW >> 32) as u32),
            (header::COMMAND, on),
        ] {
            self.configure(host, ADAPTER, register, value);
        }
        self.configure(host, DEVICE, header::COMMAND, on);
        for (index, requester) in [ROOT, DEVICE].into_iter().enumerate() {
            self.register(host, regs::LOCAL_TABLE + 4 * index as u64, regs::local_entry(Some(requester)));
        }
        for other in (0..self.hosts.len()).filter(|&other| other != host) {
            let node = other as u8 + 1;
            self.segment(host, other, Some(WindowSegment { node, registers: false, target: MEMORY }));
            for index in 0..2u8 {
                let place = 4 * (2 * other as u64 + u64::from(index));
                self.register(host, regs::REMOTE_TABLE + place, regs::remote_entry(Some((node, index))));
            }
        }
        self.settle();
    }

    fn configure(&self, host: usize, target: Bdf, register: u16, value: u32) {
        let access = self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(self.hosts[host], scheduler);
            host.config_write(&mut cx, CoreId(0), target, register, value, 0xf)
        });
        self.simulation.block_on(access.data).unwrap().unwrap();
    }

    fn segment(&self, host: usize, index: usize, to: Option<WindowSegment>) {
        let words = to.map_or([0, 0], WindowSegment::words);
        for (n, word) in (0..).zip(words) {
            let at = regs::SEGMENT_TABLE + 16 * index as u64 + 8 * n;
            self.store(host, REGISTERS + at, &word.to_le_bytes());
        }
    }

    fn register(&self, host: usize, at: u64, value: u32) {
        self.store(host, REGISTERS + at, &value.to_le_bytes());
    }

    /// A host's software acknowledges that cables were down.
    fn admit(&self, host: usize) {
        self.store(host, REGISTERS + regs::REACHABLE, &u64::MAX.to_le_bytes());
        self.settle();
    }

    fn store(&self, host: usize, at: u64, data: &[u8]) {
        self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(self.hosts[host], scheduler);
            host.mmio_write(&mut cx, CoreId(0), HostPhysical::new(at), data).unwrap();
        });
    }

    /// Result of a core's read, all ones if nothing responds, and its latency.
    fn load(&self, host: usize, at: u64) -> (u64, Duration) {
        let began = self.simulation.now();
        let access = self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(self.hosts[host], scheduler);
            host.mmio_read(&mut cx, CoreId(0), HostPhysical::new(at), 8).unwrap()
        });
        let data = self.simulation.block_on(access.data).unwrap().unwrap_or_default();
        let value = data.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
        (value, self.simulation.now().since(began))
    }

    fn settle(&self) {
        self.simulation.run_until(self.simulation.now() + Duration::from_us(300));
    }

    fn memory(&self, host: usize, at: u64) -> u64 {
        self.simulation.with(|fabric, _| {
            fabric.host(self.hosts[host]).memory.bytes().read_u64(HostPhysical::new(at)).unwrap()
        })
    }

    fn counters(&self, host: usize) -> NtbCounters {
        self.simulation.with(|fabric, _| fabric.endpoint(self.adapters[host]).ntb_counters().unwrap())
    }

    /// Latency of a store until it is in the other host's memory.
    fn write_latency(&self, from: usize, to: usize, value: u64) -> Duration {
        let began = self.simulation.now();
        self.store(from, WINDOW + to as u64 * SEGMENT, &value.to_le_bytes());
        let host = self.hosts[to];
        self.simulation.run_while(|fabric| {
            fabric.host(host).memory.bytes().read_u64(HostPhysical::new(MEMORY)).unwrap() != value
        });
        let took = self.simulation.now().since(began);
        self.settle();
        took
    }

    fn cut(&self, cable: usize, up: bool) {
        self.simulation
            .with(|fabric, scheduler| fabric.running(scheduler).set_ntb_cable_up(self.cables[cable], up));
    }

    /// Nothing is in flight: no tag, credit or buffer is in use.
    fn check_clean(&self) {
        self.simulation.with(|fabric, scheduler| {
            fabric.context(scheduler).report_dllps();
            for &device in &self.devices {
                assert_eq!(fabric.endpoint(device).core.requester(Default::default()).tags_in_use(), 0);
            }
            for link in (0..fabric.wires.len() as u16).map(LinkId) {
                let link = fabric.wires.link(link);
                for side in [Side::Upstream, Side::Downstream] {
                    assert_eq!(link.waiting(side), 0);
                    for class in FlowClass::ALL {
                        let limit = link.params().receivers[side.opposite() as usize].credits.of(class);
                        assert_eq!(link.credits_in_all_places(&fabric.wires.packets, side, class), limit);
                    }
                }
            }
            assert_eq!(fabric.wires.packets.in_flight(), 0);
        });
    }
}

/// Minimum of several measurements: some meet an ordered set on a wire, or a memory refresh.
fn least(measure: impl FnMut(u64) -> Duration) -> Duration {
    (1..7).map(measure).min().unwrap()
}

#[test]
fn what_one_host_writes_it_reads_back_from_the_memory_of_another() {
    for switched in [false, true] {
        let cluster = Cluster::new(&Shape { hosts: 3, switched, ..Shape::pair() });
        for (n, (from, to)) in [(0, 1), (1, 0), (0, 2), (2, 1)].into_iter().enumerate() {
            let (at, value) = (0x100 * n as u64, 0x1111_2222_3333_0000 + n as u64);
            cluster.store(from, WINDOW + to as u64 * SEGMENT + at, &value.to_le_bytes());
            cluster.settle();
            assert_eq!(cluster.memory(to, MEMORY + at), value);
            assert_eq!(cluster.load(from, WINDOW + to as u64 * SEGMENT + at).0, value);
            assert_ne!(cluster.memory(from, MEMORY + at), value, "it is in the other host alone");
        }
        cluster.check_clean();
        if let Some(switch) = cluster.switch {
            let passed = cluster.simulation.with(|fabric, _| fabric.cluster_switch(switch).forwarded);
            assert_eq!(passed, 4 * 3, "a write, a read and its completion each");
        }
    }
}

#[test]
fn a_write_takes_each_part_once_and_a_read_twice() {
    const X: Duration = Duration::from_ns(37);
    let shape = Shape { switched: true, ..Shape::pair() };
    let times = |shape: &Shape| {
        let cluster = Cluster::new(shape);
        let write = least(|n| cluster.write_latency(0, 1, n));
        (write, least(|_| cluster.load(0, WINDOW + SEGMENT).1))
    };
    let (write, read) = times(&shape);
    let more = |change: fn(&mut Shape)| {
        let mut shape = shape.clone();
        change(&mut shape);
        let (slow_write, slow_read) = times(&shape);
        (slow_write - write, slow_read - read)
    };
    // Two adapters and two cables, one switch.
    assert_eq!(more(|shape| shape.adapter += X), (X * 2, X * 4));
    assert_eq!(more(|shape| shape.cable += X), (X * 2, X * 4));
    assert_eq!(more(|shape| shape.switch += X), (X, X * 2));
}

#[test]
fn who_is_in_no_table_and_what_leads_nowhere_is_refused_at_once() {
    let cluster = Cluster::new(&Shape::pair());
    let at = WINDOW + SEGMENT;
    // An unmapped segment.
    assert_eq!(cluster.load(0, WINDOW + 5 * SEGMENT).0, u64::MAX);
    cluster.store(0, WINDOW + 5 * SEGMENT, &[7; 8]);
    cluster.settle();
    assert_eq!(cluster.counters(0), NtbCounters { unmapped: 2, ..NtbCounters::default() });
    // A requester unknown to its own adapter, then one unknown to the other.
    cluster.register(0, regs::LOCAL_TABLE, 0);
    let (value, took) = cluster.load(0, at);
    assert!(value == u64::MAX && took < Duration::from_us(2), "{value:#x} after {took}");
    assert_eq!((cluster.counters(0).unknown_requesters, cluster.counters(0).sent), (1, 0));
    cluster.register(0, regs::LOCAL_TABLE, regs::local_entry(Some(ROOT)));
    cluster.register(1, regs::REMOTE_TABLE, 0);
    cluster.settle();
    assert_eq!(cluster.load(0, at).0, u64::MAX);
    assert_eq!(cluster.counters(1).unknown_requesters, 1);
    // A node that does not exist.
    cluster.segment(0, 1, Some(WindowSegment { node: 9, registers: false, target: MEMORY }));
    assert_eq!(cluster.load(0, at).0, u64::MAX);
    assert_eq!(cluster.counters(0).unreachable, 1);
    cluster.settle();
    cluster.check_clean();
}

#[test]
fn a_segment_leads_to_a_multiple_of_its_size() {
    let cluster = Cluster::new(&Shape::pair());
    let lead_to = |target| cluster.segment(0, 1, Some(WindowSegment { node: 2, registers: false, target }));
    lead_to(MEMORY + SEGMENT / 4);
    cluster.store(0, WINDOW + SEGMENT + 0x40, &0x1234u64.to_le_bytes());
    cluster.settle();
    lead_to(MEMORY);
    assert_eq!(cluster.load(0, WINDOW + SEGMENT + 0x40).0, 0x1234);
    cluster.settle();
    cluster.check_clean();
}

#[test]
fn a_neighbour_rings_and_reads_words_but_reaches_no_table() {
    let cluster = Cluster::new(&Shape::pair());
    cluster.segment(0, 3, Some(WindowSegment { node: 2, registers: true, target: 0 }));
    let there = WINDOW + 3 * SEGMENT;
    cluster.store(0, there + regs::SCRATCHPADS + 4, &0xabcdu32.to_le_bytes());
    cluster.store(0, there + regs::DOORBELL, &5u32.to_le_bytes());
    assert_eq!(cluster.load(0, there + regs::SCRATCHPADS).0, 0xabcd << 32);
    assert_eq!(cluster.load(1, REGISTERS + regs::SCRATCHPADS).0, 0xabcd << 32);
    assert_eq!(cluster.load(1, REGISTERS + regs::DOORBELL).0 as u32, 5);
    cluster.register(1, regs::DOORBELL_CLEAR, 4);
    assert_eq!(cluster.load(1, REGISTERS + regs::DOORBELL).0 as u32, 1);
    // Its tables are not accessible to others.
    assert_eq!(cluster.load(0, there + regs::LOCAL_TABLE).0, u64::MAX);
    cluster.store(0, there + regs::LOCAL_TABLE, &0u64.to_le_bytes());
    cluster.settle();
    assert_eq!(cluster.load(1, REGISTERS + regs::LOCAL_TABLE).0 as u32, regs::local_entry(Some(ROOT)));
    assert_eq!(cluster.counters(1).unmapped, 2);
    cluster.check_clean();
}

#[test]
fn a_cable_that_goes_and_comes_is_told() {
    let cluster = Cluster::new(&Shape::pair());
    let state = |host: usize| {
        let ring = cluster.load(host, REGISTERS + regs::DOORBELL).0 as u32;
        cluster.register(host, regs::DOORBELL_CLEAR, u32::MAX);
        (cluster.load(host, REGISTERS + regs::REACHABLE).0, ring)
    };
    assert_eq!([state(0), state(1)], [(1 << 2, 0), (1 << 1, 0)]);
    cluster.cut(0, false);
    assert_eq!([state(0), state(1)], [(0, regs::LINK_CHANGED); 2]);
    assert_eq!(cluster.load(0, WINDOW + SEGMENT).0, u64::MAX);
    // Requests are not forwarded after some may have been lost, until software acknowledges it.
    cluster.cut(0, true);
    cluster.settle();
    assert_eq!([state(0), state(1)], [(0, 0); 2]);
    assert_eq!(cluster.load(0, WINDOW + SEGMENT).0, u64::MAX);
    cluster.admit(0);
    assert_eq!(cluster.load(0, WINDOW + SEGMENT).0, u64::MAX, "the other host has not said that it knows");
    cluster.admit(1);
    assert_eq!([state(0), state(1)], [(1 << 2, regs::LINK_CHANGED), (1 << 1, regs::LINK_CHANGED)]);
    assert_ne!(cluster.load(0, WINDOW + SEGMENT).0, u64::MAX);
}

/// The other hosts must not write to what an adapter led to before.
#[test]
fn an_adapter_that_is_reset_tells_its_neighbours() {
    let cluster = Cluster::new(&Shape::pair());
    let slot =
        cluster.simulation.with(|fabric, _| fabric.endpoint(cluster.adapters[1]).links().next().unwrap());
    cluster.simulation.with(|fabric, scheduler| fabric.running(scheduler).pull(slot));
    cluster.settle();
    assert_eq!(cluster.load(0, REGISTERS + regs::DOORBELL).0 as u32, regs::LINK_CHANGED);
    assert_eq!(cluster.load(0, REGISTERS + regs::REACHABLE).0, 0);
    cluster.admit(0);
    assert_eq!(cluster.load(0, REGISTERS + regs::REACHABLE).0, 1 << 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Cores and devices of all hosts access each other's memory while cables go down and up: data arrives as sent, and
    /// nothing stays in use.
    #[test]
    fn cables_that_go_and_come_leave_nothing_behind(
        switched in any::<bool>(),
        tight in any::<bool>(),
        steps in prop::collection::vec((0usize..3, 0usize..3, 0u8..6, 1u64..3_000), 1..60),
    ) {
        let few = Some(Credits { header: 2, data: 32 });
        let credits = match tight {
            true => CreditLimits { posted: few, non_posted: few, completion: few },
            false => CreditLimits::default(),
        };
        let cluster = Cluster::new(&Shape { hosts: 3, switched, credits, ..Shape::pair() });
        let mut lost = false;
        let mut sent = Vec::new();
        for (n, &(from, to, what, pause)) in steps.iter().enumerate() {
            let (at, value) = (8 * n as u64, 0x7700_0000 + n as u64);
            let there = WINDOW + to as u64 * SEGMENT + at;
            match what {
                _ if from == to && what < 4 => {}
                0 | 1 => {
                    cluster.store(from, there, &value.to_le_bytes());
                    sent.push((to, at, value));
                }
                2 | 3 => {
                    let mut data = [0; 256];
                    data[..8].copy_from_slice(&value.to_le_bytes());
                    let (length, at) = if what == 2 { (8, at) } else { (256, 0x8000 + 256 * n as u64) };
                    let address = WINDOW + to as u64 * SEGMENT + at;
                    cluster.simulation.with(|fabric, scheduler| {
                        fabric.running(scheduler).with_device(cluster.devices[from], |_, bus| {
                            let request = common::dma(address, length, n as u64);
                            bus.write(request, &data[..length as usize]);
                            bus.read(common::dma(address, length, 1000 + n as u64));
                        });
                    });
                    sent.push((to, at, value));
                }
                _ => {
                    let up = cluster.simulation.with(|fabric, _| {
                        fabric.wires.link(cluster.cables[from]).state() == LinkState::Up
                    });
                    cluster.cut(from, !up);
                    lost = true;
                }
            }
            cluster.simulation.run_until(cluster.simulation.now() + Duration::from_ns(pause));
        }
        for cable in 0..3 {
            cluster.cut(cable, true);
        }
        (0..3).for_each(|host| cluster.admit(host));
        // Devices' completion timeout is 50 ms.
        cluster.simulation.run_until(cluster.simulation.now() + Duration::from_ms(120));
        cluster.check_clean();
        for (to, at, value) in sent {
            let found = cluster.memory(to, MEMORY + at);
            prop_assert!(found == value || lost && found == 0, "{:#x} at {:#x} of {}", found, at, to);
        }
        // All goes on as before.
        cluster.store(0, WINDOW + SEGMENT + 0x4000, &0x55u64.to_le_bytes());
        prop_assert_eq!(cluster.load(0, WINDOW + SEGMENT + 0x4000).0, 0x55);
    }
}
