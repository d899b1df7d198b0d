//! Where completions are split: at multiples of the read completion boundary, 64 or 128 bytes at a root complex and 128
//! elsewhere, and at most at the largest payload (base spec 2.3.1.1).

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{config, dma, function, write_registers};
use engine::{Simulation, Trace};
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::link::{LinkId, LinkParams, Packet, Passed, Side};
use hardware::memory::{CoreId, MemoryParams, MemorySystem};
use hardware::root::{CompletionSplit, HostId, RootPortParams};
use platform::device::{Device, DeviceBus, DmaError, Function, FunctionIndex, Reset, Token};
use proptest::prelude::*;
use units::{Duration, HostPhysical, Time};
use wire::pcie::config::pcie_cap;
use wire::pcie::{Generation, Tlp, TlpKind, Width};

const CARD: EndpointId = EndpointId(0);
const BAR: u64 = 0xa000_0000;

/// Reads memory once.
struct Reader {
    address: u64,
    length: u32,
}

impl Device for Reader {
    fn functions(&self) -> Vec<Function> {
        function(config(512).bar32(0, 4096, false))
    }

    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}

    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        bus.read(dma(self.address, self.length, token.0));
    }

    fn read_done(&mut self, _: &mut dyn DeviceBus, _: Token, outcome: Result<&[u8], DmaError>) {
        assert!(outcome.is_ok());
    }
}

struct Bench {
    simulation: Simulation<Fabric>,
    host: HostId,
    passed: Rc<RefCell<Vec<Passed>>>,
}

/// A card that reads on request, with a payload size by its code in device control.
fn bench(split: CompletionSplit, max_payload: u32, (address, length): (u64, u32)) -> Bench {
    let mut fabric = Fabric::new();
    let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
    let port = RootPortParams { split, max_payload, ..RootPortParams::ideal() };
    let link = fabric.add_root_port(host, port, LinkParams::example(Generation::Gen3, Width::X8), 1..=1);
    fabric.host_mut(host).add_window(HostPhysical::new(BAR), 4096, 0);
    fabric.add_endpoint(EndpointParams::ideal(8), &[link], Box::new(Reader { address, length }));
    let core = &mut fabric.endpoint_mut(CARD).core;
    write_registers(&mut core.registers, &[(0x10, BAR as u32), (4, 6)]);
    let config = core.registers.config_mut(FunctionIndex(0));
    let control = config.pcie_offset().unwrap() + pcie_cap::DEVICE_CONTROL;
    let code = |bytes| u32::from(pcie_cap::size_code(bytes).unwrap());
    config.update(control, 0x70e0, code(max_payload) << 5 | code(4096) << 12);
    core.heed_registers();
    let (trace, passed) = Trace::collect();
    fabric.wires.tap(LinkId(0), trace);
    Bench { simulation: Simulation::new(fabric), host, passed }
}

impl Bench {
    /// Start and length of each completion sent by `side` for a request at `address`.
    fn completions(&self, side: Side, address: u64) -> Vec<(u64, u64)> {
        let mut at = address;
        let passed = self.passed.borrow();
        let tlps =
            passed.iter().filter(|passed| passed.from == side).filter_map(|passed| match &passed.packet {
                Packet::Tlp { bytes, .. } => Some(Tlp::parse(bytes).unwrap().0),
                Packet::Dllp(_) => None,
            });
        let mut pieces = Vec::new();
        for tlp in tlps {
            let TlpKind::CompletionData(header) = tlp.kind else { continue };
            assert_eq!(u64::from(header.lower_address), at & 0x7f);
            pieces.push((at, u64::from(header.bytes_here())));
            at += u64::from(header.bytes_here());
        }
        pieces
    }
}

fn check(
    pieces: &[(u64, u64)],
    address: u64,
    length: u32,
    boundary: u64,
    largest: u64,
) -> Result<(), TestCaseError> {
    let end = address + u64::from(length);
    for &(start, bytes) in pieces {
        let (from, to) = (start & !3, (start + bytes).next_multiple_of(4));
        prop_assert!(to - from <= largest, "{} bytes at {:#x}", bytes, start);
        prop_assert!(start + bytes == end || (start + bytes) % boundary == 0, "cut at {:#x}", start + bytes);
    }
    prop_assert_eq!(pieces.iter().map(|(_, bytes)| bytes).sum::<u64>(), u64::from(length));
    Ok(())
}

fn split() -> impl Strategy<Value = CompletionSplit> {
    let payload = || prop::sample::select(vec![64u32, 128, 256]);
    (payload(), payload(), payload(), prop::sample::select(vec![64u32, 128]), any::<[bool; 3]>()).prop_map(
        |(tiny, small, large, boundary, [hasty, splits_last, splits_partial])| CompletionSplit {
            tiny,
            small,
            large,
            boundary,
            combine_window: if hasty { Duration::ZERO } else { Duration::from_ns(8) },
            splits_last,
            splits_partial,
            ..CompletionSplit::simple(256)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_root_complex_cuts_at_its_boundary(
        split in split(), max_payload in prop::sample::select(vec![128u32, 256, 512]),
        offset in 0..4096u64, length in 1..=4096u32,
    ) {
        let (address, length) = (0x10_0000 + offset, length.min(4096 - offset as u32));
        let boundary = split.boundary;
        let bench = bench(split, max_payload, (address, length));
        bench.simulation.with(|fabric, scheduler| {
            fabric.running(scheduler).with_device(CARD, |_, bus| bus.wake_at(Time::ZERO, Token(0)));
        });
        bench.simulation.run();
        let pieces = bench.completions(Side::Upstream, address);
        check(&pieces, address, length, boundary.into(), max_payload.into())?;
        let shown = bench.simulation.with(|fabric, _| fabric.host(bench.host).port(0).config().read_completion_boundary());
        prop_assert_eq!(shown, boundary);
    }

    #[test]
    fn a_device_cuts_at_128_bytes(
        max_payload in prop::sample::select(vec![128u32, 256, 512]), offset in 0..4096u64, length in 1..=4096u32,
    ) {
        let (address, length) = (BAR + offset, length.min(4096 - offset as u32));
        let bench = bench(CompletionSplit::simple(256), max_payload, (0, 4));
        let access = bench.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(bench.host, scheduler);
            host.mmio_read(&mut cx, CoreId(0), HostPhysical::new(address), length as usize).unwrap()
        });
        bench.simulation.block_on(access.data).unwrap().unwrap();
        let pieces = bench.completions(Side::Downstream, address);
        check(&pieces, address, length, 128, max_payload.into())?;
    }
}
