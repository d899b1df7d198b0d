//! A read of no bytes flushes all earlier writes of a device (base spec 2.3.1): those too that wait in the device, as its link is busy.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{config, dma, function, write_registers};
use engine::{Simulation, Trace};
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::link::{LinkId, LinkParams, Packet, Side};
use hardware::memory::{MemoryParams, MemorySystem};
use hardware::root::RootPortParams;
use platform::device::{Device, DeviceBus, DmaError, Function, Reset, Token};
use units::{Duration, HostPhysical, Time};
use wire::pcie::{Generation, Tlp, TlpKind, Width};

const CARD: EndpointId = EndpointId(0);
const BAR: u64 = 0xa000_0000;
const WRITES: u64 = 400;

/// Writes, reads, and writes again, at once.
struct Writer {
    /// Bytes of the read.
    length: u32,
    /// When the read was complete.
    done: Rc<RefCell<Vec<Time>>>,
}

impl Device for Writer {
    fn functions(&self) -> Vec<Function> {
        function(config(256).bar32(0, 4096, false))
    }

    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}

    fn timer(&mut self, bus: &mut dyn DeviceBus, _: Token) {
        (0..WRITES).for_each(|n| bus.write(dma(n * 128, 128, n), &[7; 128]));
        bus.read(dma((WRITES - 1) * 128, self.length, 100));
        (0..WRITES).for_each(|n| bus.write(dma(0x10_0000 + n * 128, 128, n), &[9; 128]));
    }

    fn read_done(&mut self, bus: &mut dyn DeviceBus, _: Token, outcome: Result<&[u8], DmaError>) {
        assert!(outcome.is_ok());
        self.done.borrow_mut().push(bus.now());
    }
}

/// Writes and reads that the card has sent, in order (reads are true), and when its read was complete.
fn run(length: u32) -> (Vec<bool>, Vec<Time>) {
    let mut fabric = Fabric::new();
    let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
    // Slow enough for writes to wait.
    let link = LinkParams::example(Generation::Gen1, Width::X1);
    let link = fabric.add_root_port(host, RootPortParams::ideal(), link, 1..=1);
    fabric.host_mut(host).add_window(HostPhysical::new(BAR), 4096, 0);
    let done = Rc::default();
    fabric.add_endpoint(
        EndpointParams::ideal(8),
        &[link],
        Box::new(Writer { length, done: Rc::clone(&done) }),
    );
    let core = &mut fabric.endpoint_mut(CARD).core;
    write_registers(&mut core.registers, &[(0x10, BAR as u32), (4, 6)]);
    core.heed_registers();
    let (trace, passed) = Trace::collect();
    fabric.wires.tap(LinkId(0), trace);
    let simulation = Simulation::new(fabric);
    simulation.with(|fabric, scheduler| {
        fabric.running(scheduler).with_device(CARD, |_, bus| bus.wake_at(Time::ZERO, Token(0)));
    });
    simulation.run_until(Time::ZERO + Duration::from_ms(1));
    let from_card = passed.borrow();
    let from_card = from_card.iter().filter(|passed| passed.from == Side::Downstream);
    let sent = from_card.filter_map(|passed| match &passed.packet {
        Packet::Tlp { bytes, .. } => {
            Some(matches!(Tlp::parse(bytes).unwrap().0.kind, TlpKind::MemoryRead(_)))
        }
        Packet::Dllp(_) => None,
    });
    (sent.collect(), done.take())
}

#[test]
fn a_flush_waits_for_writes_that_have_not_started() {
    let place = |sent: &[bool]| sent.iter().position(|&is_read| is_read).expect("a read");
    let (flushed, done) = run(0);
    assert_eq!((flushed.len() as u64, done.len()), (2 * WRITES + 1, 1));
    assert_eq!(place(&flushed) as u64, WRITES, "behind the writes before it, before those after it");
    // Most writes had not started: another read passes them.
    let (passed, done) = run(64);
    assert_eq!((passed.len() as u64, done.len()), (2 * WRITES + 1, 1));
    assert!((place(&passed) as u64) < WRITES / 2, "{}", place(&passed));
}
