//! A device with two upstream links: events at one port do not affect the other.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{config, dma};
use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::link::{CreditLimits, Credits, LinkParams, Side};
use hardware::memory::{CoreId, MemoryParams, MemorySystem};
use hardware::root::{HostId, RootPortParams};
use platform::device::{Device, DeviceBus, Dma, DmaError, Function, FunctionIndex, PortIndex, Reset, Token};
use units::{Duration, HostPhysical, Time};
use wire::pcie::config::{header, pcie_cap};
use wire::pcie::{Bdf, FlowClass, Generation, Width};

const DEVICE: EndpointId = EndpointId(0);
const SOURCE: u64 = 0x10_0000;
const REGION: u64 = 0x10_0000;
const PIECE: u32 = 1024;

/// DMA results: function, success, time.
type Outcomes = Rc<RefCell<Vec<(u8, bool, Time)>>>;

/// A device with two ports and a function below each.
struct TwoPorts {
    outcomes: Outcomes,
}

impl Device for TwoPorts {
    fn functions(&self) -> Vec<Function> {
        let function = |port| Function { port: PortIndex(port), config: config(512).build().unwrap() };
        (0..2).map(function).collect()
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}
    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        if let Ok(data) = outcome {
            assert!(data.iter().all(|&byte| byte == 0x5a));
        }
        self.outcomes.borrow_mut().push((token.0 as u8, outcome.is_ok(), bus.now()));
    }
    fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        self.outcomes.borrow_mut().push((token.0 as u8, true, bus.now()));
    }
}

struct Rig {
    simulation: Simulation<Fabric>,
    host: HostId,
    outcomes: Outcomes,
}

impl Rig {
    /// The first root port holds the buffer of each write for `release`.
    fn new(release: Duration) -> Self {
        let mut fabric = Fabric::new();
        let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
        let few = Some(Credits { header: 4, data: 128 });
        let mut link = LinkParams::example(Generation::Gen3, Width::X8);
        link.receivers[Side::Upstream as usize].credits =
            CreditLimits { posted: few, non_posted: few, completion: None };
        let links = [release, Duration::ZERO].map(|posted_release_latency| {
            let port = RootPortParams { posted_release_latency, max_payload: 512, ..RootPortParams::ideal() };
            fabric.add_root_port(host, port, link.clone(), 0..=0)
        });
        let outcomes = Outcomes::default();
        let device = TwoPorts { outcomes: Rc::clone(&outcomes) };
        fabric.add_endpoint(EndpointParams::ideal(4), &links, Box::new(device));
        for region in 0..2 {
            let at = HostPhysical::new(SOURCE + region * REGION);
            fabric.host_mut(host).memory.bytes_mut().write(at, &[0x5a; 65_536]).unwrap();
        }
        let rig = Self { simulation: Simulation::new(fabric), host, outcomes };
        for port in 0..2u8 {
            let bus = port + 1;
            let root = Bdf::new(0, bus, 0);
            rig.config(root, header::BUS_NUMBERS, u32::from(bus) << 8 | u32::from(bus) << 16);
            let master = header::COMMAND_MEMORY | header::COMMAND_BUS_MASTER;
            rig.config(Bdf::new(bus, 0, 0), header::COMMAND, master.into());
        }
        rig
    }

    fn config(&self, target: Bdf, register: u16, value: u32) {
        let host = self.host;
        let access = self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(host, scheduler);
            host.config_write(&mut cx, CoreId(0), target, register, value, 0xf)
        });
        self.simulation.block_on(access.data).unwrap().unwrap();
    }

    /// Sets maximum payload and read request size of the function below a port.
    fn set_sizes(&self, port: u8, payload: u32, request: u32) {
        let at = self.simulation.with(|fabric, _| {
            fabric.endpoint(DEVICE).core.registers.config(FunctionIndex(port)).pcie_offset().unwrap()
        });
        let code = |bytes| u32::from(pcie_cap::size_code(bytes).unwrap());
        let value = code(payload) << 5 | code(request) << 12;
        self.config(Bdf::new(port + 1, 0, 0), at + pcie_cap::DEVICE_CONTROL, value);
    }

    /// Starts `count` transfers of a function.
    fn transfer(&self, function: u8, count: u64, write: bool) {
        self.simulation.with(|fabric, scheduler| {
            fabric.running(scheduler).with_device(DEVICE, |_, bus| {
                for n in 0..count {
                    let at = SOURCE + u64::from(function) * REGION + n * u64::from(PIECE);
                    let dma = Dma { function: FunctionIndex(function), ..dma(at, PIECE, function.into()) };
                    if write { bus.write(dma, &[0x5a; PIECE as usize]) } else { bus.read(dma) }
                }
            });
        });
    }

    fn run(&self) {
        let end = self.simulation.now() + Duration::from_ms(200);
        self.simulation.run_until(end);
    }

    /// Completion times of a function's successful requests, relative to `from`.
    fn times(&self, function: u8, from: Time) -> Vec<Duration> {
        let outcomes = self.outcomes.borrow();
        outcomes.iter().filter(|o| o.0 == function && o.1).map(|&(.., at)| at.since(from)).collect()
    }
}

#[test]
fn a_port_that_stalls_holds_up_nothing_of_the_other() {
    let alone = {
        let rig = Rig::new(Duration::from_us(50));
        let from = rig.simulation.now();
        rig.transfer(1, 32, true);
        rig.transfer(1, 8, false);
        rig.run();
        rig.times(1, from)
    };
    let rig = Rig::new(Duration::from_us(50));
    let from = rig.simulation.now();
    rig.transfer(0, 32, true);
    rig.transfer(0, 8, false);
    rig.transfer(1, 32, true);
    rig.transfer(1, 8, false);
    rig.run();
    // The two ports share only the memory.
    let apart = rig.times(1, from).iter().zip(&alone).map(|(a, b)| a.as_ps().abs_diff(b.as_ps())).max();
    assert_eq!(rig.times(1, from).len(), 40);
    assert!(apart < Some(20_000), "{apart:?} ps");
    let stalled = rig.times(0, from);
    assert_eq!(stalled.len(), 40);
    assert!(stalled.last().unwrap().as_ps() > 10 * alone.last().unwrap().as_ps(), "{stalled:?}");
}

#[test]
fn each_port_has_tags_and_sizes_of_its_own() {
    let rig = Rig::new(Duration::ZERO);
    rig.set_sizes(0, 128, 256);
    rig.set_sizes(1, 512, 1024);
    for port in 0..2 {
        rig.transfer(port, 16, false);
        rig.transfer(port, 4, true);
    }
    rig.run();
    rig.simulation.with(|fabric, _| {
        let counters = |port| fabric.endpoint(DEVICE).core.requester(PortIndex(port)).counters().clone();
        let sent =
            |port| (counters(port).read_requests, counters(port).write_requests, counters(port).most_tags);
        assert_eq!((sent(0), sent(1)), ((64, 32, 4), (16, 8, 4)));
    });
}

#[test]
fn a_path_that_is_pulled_leaves_nothing_behind_and_the_other_does_not_notice() {
    for after in [0, 100, 300, 500, 800, 1_200, 2_000, 5_000] {
        let rig = Rig::new(Duration::from_ns(500));
        for port in 0..2 {
            rig.transfer(port, 24, false);
            rig.transfer(port, 24, true);
        }
        rig.simulation.run_until(rig.simulation.now() + Duration::from_ns(after));
        rig.simulation.with(|fabric, scheduler| fabric.running(scheduler).remove_path(DEVICE, PortIndex(0)));
        rig.run();
        assert_eq!(rig.times(1, Time::ZERO).len(), 48, "after {after} ns");
        rig.simulation.with(|fabric, _| {
            for port in 0..2 {
                assert_eq!(fabric.endpoint(DEVICE).core.requester(PortIndex(port)).tags_in_use(), 0);
            }
            assert_eq!(fabric.wires.packets.in_flight(), 0, "after {after} ns");
            for link in fabric.endpoint(DEVICE).links().collect::<Vec<_>>() {
                for side in [Side::Upstream, Side::Downstream] {
                    for class in FlowClass::ALL {
                        let link = fabric.wires.link(link);
                        let limit = link.params().receivers[side.opposite() as usize].credits.of(class);
                        assert_eq!(
                            link.credits_in_all_places(&fabric.wires.packets, side, class),
                            limit,
                            "after {after} ns"
                        );
                    }
                }
            }
        });
        // After it is reinserted, the port works again.
        rig.simulation.with(|fabric, scheduler| fabric.running(scheduler).insert_path(DEVICE, PortIndex(0)));
        rig.config(Bdf::new(1, 0, 0), header::COMMAND, header::COMMAND_BUS_MASTER.into());
        rig.outcomes.borrow_mut().clear();
        rig.transfer(0, 8, false);
        rig.run();
        assert_eq!(rig.times(0, Time::ZERO).len(), 8, "after {after} ns");
    }
}
