//! Requests with late, wrong or missing completions (base spec 2.3.2 and 2.8).

mod ecrc;

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{F0, config, dma, function, write_registers};
use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::link::{LinkEnd, LinkId, LinkParams, Side};
use hardware::memory::{CoreId, MemoryParams, MemorySystem};
use hardware::root::{HostId, RootPortParams};
use platform::device::{BarAccess, Device, DeviceBus, DmaError, Function, PortIndex, Reset, Token};
use proptest::prelude::*;
use units::{Duration, HostPhysical, Time};
use wire::pcie::config::aer::{self, root_command, root_status, uncorrectable};
use wire::pcie::config::{ConfigSpace, caps, msi, pcie_cap};
use wire::pcie::tlp::{CompletionHeader, MemoryRequest, Message, MessageCode};
use wire::pcie::{Bdf, FlowClass, Generation, Tlp, TlpKind, Width};

const LINK: LinkId = LinkId(0);
const CARD: EndpointId = EndpointId(0);
const ID: Bdf = Bdf::new(1, 0, 0);
/// The device's registers.
const BAR: u64 = 0xa000_0000;

/// Results of reads, in order: time, token, data.
type Outcomes = Rc<RefCell<Vec<(Time, u64, Result<Vec<u8>, DmaError>)>>>;

/// Issues the given DMA reads, and completes register reads after given delays.
struct Card {
    reads: Vec<(u64, u32)>,
    answers: Vec<Duration>,
    answered: usize,
    outcomes: Outcomes,
}

impl Device for Card {
    fn functions(&self) -> Vec<Function> {
        function(config(256).bar32(0, 4096, false).aer().ecrc())
    }

    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}

    /// The first read returns bytes of 1, the second bytes of 2, and so on.
    fn bar_read(&mut self, _: &mut dyn DeviceBus, _: BarAccess, data: &mut [u8]) -> Duration {
        self.answered += 1;
        data.fill(self.answered as u8);
        self.answers.get(self.answered - 1).or(self.answers.last()).copied().unwrap_or_default()
    }

    fn timer(&mut self, bus: &mut dyn DeviceBus, _: Token) {
        for (number, &(address, length)) in self.reads.iter().enumerate() {
            bus.read(dma(address, length, number as u64));
        }
    }

    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        self.outcomes.borrow_mut().push((bus.now(), token.0, outcome.map(<[u8]>::to_vec)));
    }
}

struct Bench {
    simulation: Simulation<Fabric>,
    host: HostId,
    outcomes: Outcomes,
}

#[derive(Clone, Default)]
struct Setup {
    /// DMA reads of the device.
    reads: Vec<(u64, u32)>,
    /// Latency of the root complex per request.
    latency: Duration,
    tags: u16,
    /// Delay of each register read; the last one applies to all further reads.
    answers: Vec<Duration>,
}

/// Memory content at an address.
fn pattern(address: u64) -> u8 {
    (address.wrapping_mul(0x9e37_79b9) >> 16) as u8
}

fn bench(setup: Setup) -> Bench {
    let mut fabric = Fabric::new();
    let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
    let bytes: Vec<u8> = (0..0x2_0000).map(pattern).collect();
    fabric.host_mut(host).memory.bytes_mut().write(HostPhysical::new(0), &bytes).unwrap();
    let port = RootPortParams { request_latency: setup.latency, ..RootPortParams::ideal() };
    let link = fabric.add_root_port(host, port, LinkParams::example(Generation::Gen3, Width::X8), 1..=1);
    fabric.host_mut(host).add_window(HostPhysical::new(BAR), 4096, 0);
    let outcomes = Outcomes::default();
    let Setup { reads, answers, .. } = setup;
    let card = Card { reads, answers, answered: 0, outcomes: Rc::clone(&outcomes) };
    let params = EndpointParams { completion_timeout: TIMEOUT, ..EndpointParams::ideal(setup.tags.max(1)) };
    fabric.add_endpoint(params, &[link], Box::new(card));
    let bench = Bench { simulation: Simulation::new(fabric), host, outcomes };
    bench.write_card(0x10, BAR as u32);
    bench.write_card(4, 6);
    bench
}

/// Completion timeout of the device.
const TIMEOUT: Duration = Duration::from_us(10);

impl Bench {
    /// Writes a register of the card's configuration space directly, without a TLP.
    fn write_card(&self, register: u16, value: u32) {
        self.simulation.with(|fabric, _| {
            write_registers(&mut fabric.endpoint_mut(CARD).core.registers, &[(register, value)]);
        });
    }

    fn pcie(&self) -> u16 {
        self.simulation
            .with(|fabric, _| fabric.endpoint(CARD).core.registers.config(F0).pcie_offset().unwrap())
    }

    /// Writes a register of a function's configuration space from a core.
    fn config_write(&self, target: Bdf, register: u16, value: u32) {
        let access = self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(self.host, scheduler);
            host.config_write(&mut cx, CoreId(0), target, register, value, 0xf)
        });
        let _ = self.simulation.block_on(access.data);
    }

    fn start(&self) {
        self.simulation.with(|fabric, scheduler| {
            fabric.running(scheduler).with_device(CARD, |_, bus| bus.wake_at(bus.now(), Token(0)));
        });
    }

    fn send(&self, side: Side, tlp: &Tlp, payload: &[u8]) {
        self.simulation.with(|fabric, scheduler| {
            let packet = fabric.wires.packets.encode(tlp, payload);
            fabric.context(scheduler).send(LinkEnd { link: LINK, side }, packet);
        });
    }

    fn register(&self) -> Vec<u8> {
        let access = self.read_register();
        self.simulation.block_on(access.data).unwrap().unwrap()
    }

    fn read_register(&self) -> hardware::root::CoreAccess {
        self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(self.host, scheduler);
            host.mmio_read(&mut cx, CoreId(0), HostPhysical::new(BAR), 4).unwrap()
        })
    }

    fn check_outcomes(&self, reads: &[(u64, u32)]) -> Result<(), TestCaseError> {
        let outcomes = self.outcomes.borrow();
        let mut ended: Vec<u64> = outcomes.iter().map(|&(_, number, _)| number).collect();
        ended.sort_unstable();
        prop_assert_eq!(ended, (0..reads.len() as u64).collect::<Vec<_>>(), "each read ends once");
        for (_, number, outcome) in outcomes.iter() {
            let (address, length) = reads[*number as usize];
            match outcome {
                Ok(data) => {
                    let expected: Vec<u8> = (address..address + u64::from(length)).map(pattern).collect();
                    prop_assert_eq!(data, &expected, "read {}", number);
                }
                Err(error) => prop_assert_eq!(*error, DmaError::Timeout),
            }
        }
        Ok(())
    }
}

#[test]
fn a_flush_read_that_is_lost_ends_too() {
    let bench = bench(Setup { reads: vec![(0x1000, 0)], ..Setup::default() });
    bench.start();
    bench.simulation.run_until(Time::ZERO + Duration::from_ns(20));
    bench.simulation.with(|fabric, scheduler| {
        fabric.context(scheduler).with(LINK, |link, cx| {
            link.take_down(cx);
            link.bring_up(cx);
        });
    });
    bench.simulation.run();
    let outcomes = bench.outcomes.borrow();
    assert_eq!(outcomes.len(), 1);
    assert_eq!(outcomes[0].2, Err(DmaError::Timeout));
}

#[test]
fn a_flush_read_ends_with_its_completion() {
    let bench = bench(Setup { reads: vec![(0x1001, 0), (0x1000, 0)], ..Setup::default() });
    bench.start();
    bench.simulation.run();
    assert!(bench.outcomes.borrow().iter().all(|(_, _, outcome)| outcome == &Ok(Vec::new())));
    assert_eq!(bench.outcomes.borrow().len(), 2);
}

#[test]
fn a_late_completion_is_not_taken_for_another_request() {
    let reads = vec![(0x1000, 64), (0x2000, 64)];
    // The first completion arrives 5 us after the device's timeout.
    let bench =
        bench(Setup { reads: reads.clone(), latency: Duration::from_us(15), tags: 1, ..Setup::default() });
    bench.start();
    bench.simulation.run();
    bench.check_outcomes(&reads).unwrap();
    let counters = bench
        .simulation
        .with(|fabric, _| fabric.endpoint(CARD).core.requester(PortIndex(0)).counters().clone());
    assert_eq!((counters.timeouts, counters.unexpected_completions), (2, 2));
}

#[test]
fn a_completion_has_to_fit_its_request() {
    let latency = Duration::from_us(5);
    let bench = bench(Setup { reads: vec![(0x1010, 64)], latency, tags: 1, ..Setup::default() });
    bench.start();
    bench.simulation.run_until(Time::ZERO + Duration::from_us(1));
    let request = MemoryRequest::for_bytes(ID, 0, 0x1010, 64);
    let right = CompletionHeader::with_data(Bdf::new(0, 1, 0), &request, 0x1010, 64, 64);
    let wrong = [
        CompletionHeader { requester: Bdf::new(1, 0, 1), ..right },
        CompletionHeader { byte_count: 128, ..right },
        CompletionHeader { lower_address: 0x14, ..right },
        CompletionHeader { tag: 1, ..right },
    ];
    for header in wrong {
        bench.send(Side::Upstream, &Tlp::new(TlpKind::CompletionData(header)), &[0xee; 64]);
    }
    bench.simulation.run();
    bench.check_outcomes(&[(0x1010, 64)]).unwrap();
    assert!(bench.outcomes.borrow()[0].2.is_ok());
    let counters = bench
        .simulation
        .with(|fabric, _| fabric.endpoint(CARD).core.requester(PortIndex(0)).counters().clone());
    assert_eq!(counters.unexpected_completions, wrong.len() as u64);
}

#[test]
fn a_poisoned_interrupt_message_interrupts_nobody() {
    let bench = bench(Setup::default());
    let request = MemoryRequest::for_bytes(ID, 0, 0xfee0_0000, 4);
    let mut tlp = Tlp::new(TlpKind::MemoryWrite(request));
    tlp.common.poisoned = true;
    bench.send(Side::Downstream, &tlp, &[0x41, 0, 0, 0]);
    bench.simulation.run();
    let counted = bench.simulation.with(|fabric, _| {
        let host = fabric.host(bench.host);
        (host.interrupts.counters().delivered, host.counters().poisoned_writes)
    });
    assert_eq!(counted, (0, 1));
}

/// A root port interrupts for the first of the errors that wait for software, or when software enables their interrupt
/// (base spec 6.2.4.1.2).
#[test]
fn errors_interrupt_once_until_all_are_cleared() {
    const ROOT: Bdf = Bdf::new(0, 1, 0);
    let bench = bench(Setup::default());
    let registers = |read: &dyn Fn(&ConfigSpace) -> u16| {
        bench.simulation.with(|fabric, _| read(fabric.host(bench.host).port(0).config()))
    };
    let msi = registers(&|config| caps::find(&|at| config.dword(at), caps::id::MSI).unwrap());
    let aer = registers(&|config| config.aer_offset().unwrap());
    bench.config_write(ROOT, msi + msi::ADDRESS, 0xfee0_0000);
    bench.config_write(ROOT, msi + msi::DATA, 0x41);
    bench.config_write(ROOT, msi, u32::from(msi::ENABLE) << 16);
    let enable = |errors: u32| bench.config_write(ROOT, aer + aer::ROOT_COMMAND, errors);
    let clear = |errors: u32| bench.config_write(ROOT, aer + aer::ROOT_STATUS, errors);
    let interrupts = |errors: &[MessageCode]| {
        for &code in errors {
            let tlp = Tlp::new(TlpKind::Message(Message::error(ID, code)));
            bench.send(Side::Downstream, &tlp, &[]);
            bench.simulation.run();
        }
        bench.simulation.run();
        bench.simulation.with(|fabric, _| fabric.host(bench.host).interrupts.counters().delivered)
    };
    let (corrected, fatal) = (MessageCode::ERR_COR, MessageCode::ERR_FATAL);
    assert_eq!(interrupts(&[corrected]), 0, "none is enabled");
    enable(root_command::CORRECTABLE);
    assert_eq!(interrupts(&[]), 1, "one waits");
    assert_eq!(interrupts(&[corrected, fatal, corrected]), 1);
    enable(root_command::ALL);
    clear(root_status::CORRECTABLE | root_status::MORE_CORRECTABLE);
    assert_eq!(interrupts(&[corrected]), 1, "the fatal one still waits");
    clear(root_status::ALL);
    assert_eq!(interrupts(&[fatal]), 2);
    clear(root_status::ALL);
    assert_eq!(interrupts(&[MessageCode::ERR_NONFATAL, fatal]), 3);
}

#[test]
fn a_core_never_gets_the_answer_to_another_read() {
    // The first completion arrives 10 ms after the root complex's timeout, while the second read is still waiting.
    let answers = vec![Duration::from_ms(60), Duration::from_ms(20)];
    let bench = bench(Setup { answers, ..Setup::default() });
    assert_eq!(bench.register(), [0xff; 4]);
    let (counters, errors) = bench.simulation.with(|fabric, _| {
        let host = fabric.host(bench.host);
        let config = host.port(0).config();
        (host.counters().clone(), config.dword(config.aer_offset().unwrap() + aer::UNCORRECTABLE_STATUS))
    });
    assert_eq!(counters.timeouts, 1);
    assert_eq!(errors, uncorrectable::COMPLETION_TIMEOUT);
    assert_eq!(bench.register(), [2; 4]);
    let counters = bench.simulation.with(|fabric, _| fabric.host(bench.host).counters().clone());
    assert_eq!((counters.timeouts, counters.unexpected_completions), (1, 1));
}

#[test]
fn a_root_complex_asks_no_more_at_once_than_it_has_tags() {
    let bench = bench(Setup { answers: vec![Duration::from_ms(1)], ..Setup::default() });
    let accesses: Vec<_> = (0..300).map(|_| bench.read_register()).collect();
    bench.simulation.run_until(Time::ZERO + Duration::from_us(500));
    let asked = || {
        bench.simulation.with(|fabric, _| {
            fabric.wires.link(LINK).counters(Side::Upstream).tlps[FlowClass::NonPosted.index()]
        })
    };
    assert_eq!(asked(), 256);
    for (number, access) in accesses.into_iter().enumerate() {
        let data = bench.simulation.block_on(access.data).unwrap().unwrap();
        assert_eq!(data, [(number + 1) as u8; 4], "reads of one device are answered in order");
    }
    assert_eq!(asked(), 300);
}

/// Device control 2, and the resulting timeouts of a core's read at the root port and of a DMA read at the device.
const RANGES: [(u16, Option<Duration>, Option<Duration>); 4] = [
    (0, Some(Duration::from_ms(50)), Some(TIMEOUT)),
    (0x1, Some(Duration::from_us(100)), Some(Duration::from_us(100))),
    (0x6, Some(Duration::from_ms(210)), Some(Duration::from_ms(210))),
    (0x10, None, None),
];

#[test]
fn the_root_port_waits_as_long_as_its_register_says() {
    for (control, limit, _) in RANGES {
        let limit = limit.unwrap_or(Duration::from_ms(500));
        for (took, in_time) in [(limit * 2, control == 0x10), (limit * 9 / 10, true)] {
            let bench = bench(Setup { answers: vec![took], ..Setup::default() });
            let port = Bdf::new(0, 1, 0);
            let pcie =
                bench.simulation.with(|f, _| f.host(bench.host).port(0).config().pcie_offset().unwrap());
            bench.config_write(port, pcie + pcie_cap::DEVICE_CONTROL_2, control.into());
            let expected = if in_time { [1; 4] } else { [0xff; 4] };
            assert_eq!(bench.register(), expected, "{control:#x}, answered after {took}");
        }
    }
}

#[test]
fn a_device_waits_as_long_as_its_register_says() {
    for (control, _, limit) in RANGES {
        let limit = limit.unwrap_or(Duration::from_ms(500));
        for (latency, in_time) in [(limit * 2, control == 0x10), (limit * 9 / 10, true)] {
            let bench = bench(Setup { reads: vec![(0x1000, 64)], latency, ..Setup::default() });
            bench.config_write(ID, bench.pcie() + pcie_cap::DEVICE_CONTROL_2, control.into());
            bench.start();
            bench.simulation.run();
            let outcomes = bench.outcomes.borrow();
            assert_eq!(outcomes.len(), 1);
            assert_eq!(outcomes[0].2.is_ok(), in_time, "{control:#x}, answered after {latency}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Completions delayed beyond the timeout, up to twice its length.
    #[test]
    fn a_read_brings_its_own_bytes_or_fails(
        reads in prop::collection::vec((0..0x1_0000u64, 0..=512u32), 1..40),
        tags in 1..6u16,
        latency in 2_000..19_000u64,
    ) {
        let latency = Duration::from_ns(latency);
        let bench = bench(Setup { reads: reads.clone(), latency, tags, ..Setup::default() });
        bench.start();
        bench.simulation.run();
        bench.check_outcomes(&reads)?;
    }
}
