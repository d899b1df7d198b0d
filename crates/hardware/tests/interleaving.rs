//! Bytes read equal bytes written, under any interleaving that the ordering rules allow (base spec 2.4).
//!
//! Two devices of one host write and read two small regions of memory at random: sizes, places, times, payload sizes,
//! credits, damaged TLPs and an IOMMU with next to no room for translations are drawn. A read may return, byte by byte,
//! what was there when it was asked for or what was written while it was under way, nothing older and nothing else. A
//! core that has read a register of a device finds in memory what the device had written before it answered.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{F0, config, dma, function};
use engine::{Handle, Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::iommu::{FixedDomains, Geometry, Iommu, IommuParams, IotlbReplacement, PipelineOrder};
use hardware::link::{CreditLimits, Credits, ErrorInjector, LinkId, LinkParams, ReceiverParams, Side};
use hardware::memory::{CoreId, DeviceCounters, LINE, MemoryParams, MemorySystem, NodeId};
use hardware::root::{HostId, RootPortParams};
use platform::device::{BarAccess, Device, DeviceBus, Dma, DmaError, Function, PortIndex, Reset, Token};
use proptest::prelude::*;
use units::{Bytes, Duration, HostPhysical, Iova, Time};
use wire::pcie::tlp::{ConfigRequest, ConfigType};
use wire::pcie::{Bdf, FlowClass, Generation, Width};
use wire::vtd::PageSize;

/// Each device writes its own region; both are read.
const REGIONS: [u64; 2] = [0x10_0000, 0x20_0f00];
const REGION: u64 = 1024;
/// Offset added to addresses by the IOMMU's tables, if there is an IOMMU.
const IOVA: u64 = 0x8000_0000;
/// The devices' registers, one page each.
const REGISTERS: u64 = 0xa000_0000;

#[derive(Clone, Debug)]
struct Step {
    /// Time since the previous step.
    pause: u64,
    write: bool,
    /// Region of a read; a device only writes its own region.
    region: usize,
    offset: u64,
    length: u32,
}

/// A write as requested, and when it left the device.
struct Written {
    asked: Time,
    left: Option<Time>,
    offset: u64,
    length: u32,
    value: u8,
}

struct ReadBack {
    reader: usize,
    asked: Time,
    done: Time,
    region: usize,
    offset: u64,
    data: Vec<u8>,
}

/// A core read a register of a device, then the device's region of memory.
struct CoreRead {
    device: usize,
    /// When the device responded.
    answered: Time,
    done: Time,
    data: Vec<u8>,
}

#[derive(Default)]
struct Journal {
    /// By region, in request order.
    written: [Vec<Written>; 2],
    read: Vec<ReadBack>,
    outcomes: usize,
    /// When a device last responded to a core.
    answered: Time,
    by_core: Vec<CoreRead>,
}

/// Writes and reads according to its script.
struct Scribbler {
    own: usize,
    /// Offset added to addresses.
    base: u64,
    script: Vec<Step>,
    asked: Vec<Time>,
    journal: Rc<RefCell<Journal>>,
    /// Index of each step's write in the journal.
    places: Vec<usize>,
}

impl Scribbler {
    fn dma(&self, step: usize) -> Dma {
        let Step { write, region, offset, length, .. } = self.script[step];
        let region = if write { self.own } else { region };
        dma(self.base + REGIONS[region] + offset, length, step as u64)
    }
}

impl Device for Scribbler {
    fn functions(&self) -> Vec<Function> {
        function(config(4096).bar32(0, 4096, false).aer())
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}
    fn bar_read(&mut self, bus: &mut dyn DeviceBus, _: BarAccess, _: &mut [u8]) -> Duration {
        self.journal.borrow_mut().answered = bus.now();
        Duration::ZERO
    }

    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let step = token.0 as usize;
        let Some(Step { write, .. }) = self.script.get(step) else { return };
        let dma = self.dma(step);
        self.asked.push(bus.now());
        let mut place = 0;
        if *write {
            let mut journal = self.journal.borrow_mut();
            let written = &mut journal.written[self.own];
            place = written.len();
            let (offset, length) = (self.script[step].offset, dma.length);
            let value = (place % 255) as u8 + 1;
            written.push(Written { asked: bus.now(), left: None, offset, length, value });
            drop(journal);
            bus.write(dma, &vec![value; dma.length as usize]);
        } else {
            bus.read(dma);
        }
        self.places.push(place);
        if let Some(next) = self.script.get(step + 1) {
            bus.wake_at(bus.now() + Duration::from_ns(next.pause), Token(token.0 + 1));
        }
    }

    fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let mut journal = self.journal.borrow_mut();
        journal.outcomes += 1;
        let written = &mut journal.written[self.own][self.places[token.0 as usize]];
        assert!(written.left.replace(bus.now()).is_none(), "a write ends once");
    }

    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        let step = &self.script[token.0 as usize];
        let mut journal = self.journal.borrow_mut();
        journal.outcomes += 1;
        journal.read.push(ReadBack {
            reader: self.own,
            asked: self.asked[token.0 as usize],
            done: bus.now(),
            region: step.region,
            offset: step.offset,
            data: outcome.expect("memory answers").to_vec(),
        });
    }
}

#[derive(Clone, Debug)]
struct Setting {
    scripts: [Vec<Step>; 2],
    /// Pauses before the core's reads, and the device that each reads.
    core: Vec<(u64, usize)>,
    payload_code: u32,
    request_code: u32,
    credits: Option<(u32, u32)>,
    damage: bool,
    iommu: Option<PipelineOrder>,
    /// Retrainings: ns since the previous one, link, generation and width.
    retrains: Vec<(u64, u16, Generation, Width)>,
    seed: u64,
}

/// Maps the regions for both devices with pages of 4 KiB.
fn map(fabric: &mut Fabric, host: HostId) {
    let host = fabric.host_mut(host);
    let (memory, iommu) = (host.memory.bytes_mut(), &mut host.iommus[0]);
    let mut domains = FixedDomains::new(memory, HostPhysical::new(0x100_0000), iommu.features()).unwrap();
    let ranges = REGIONS.map(|region| {
        let page = HostPhysical::new(region).align_down(4096);
        (Iova::new(IOVA + page.get()), page, Bytes::kib(8))
    });
    let devices = [1, 2].map(|bus| Bdf::new(bus, 0, 0));
    domains.add(memory, iommu.features(), &devices, ranges, PageSize::Size4KiB).unwrap();
    domains.enable(iommu);
}

fn step() -> impl Strategy<Value = Step> {
    (0..400u64, any::<bool>(), 0..2usize, 0..REGION, 1..=600u32).prop_map(
        |(pause, write, region, offset, length)| Step {
            pause,
            write,
            region,
            offset,
            length: length.min((REGION - offset) as u32),
        },
    )
}

fn setting() -> impl Strategy<Value = Setting> {
    let script = || prop::collection::vec(step(), 1..60);
    let credits = prop::option::of((1..8u32, 40..80u32));
    let orders = vec![PipelineOrder::Unordered, PipelineOrder::PerDirection, PipelineOrder::Global];
    let iommu = prop::option::of(prop::sample::select(orders));
    let core = prop::collection::vec((0..3000u64, 0..2usize), 0..12);
    // Packets in FLITs have no framing, which their bytes are counted with here.
    let framed = &Generation::ALL[..Generation::Gen5 as usize];
    let speeds = (prop::sample::select(framed), prop::sample::select(&Width::ALL[..]));
    let retrain = (0..4000u64, 0..2u16, speeds).prop_map(|(ns, link, (to, width))| (ns, link, to, width));
    let retrains = prop::collection::vec(retrain, 0..6);
    ([script(), script()], core, 0..3u32, 0..4u32, credits, any::<bool>(), iommu, retrains, any::<u64>())
        .prop_map(|(scripts, core, payload_code, request_code, credits, damage, iommu, retrains, seed)| {
            Setting { scripts, core, payload_code, request_code, credits, damage, iommu, retrains, seed }
        })
}

fn link(credits: Option<(u32, u32)>) -> LinkParams {
    let few = credits.map(|(header, data)| Credits { header, data });
    let receiver = ReceiverParams {
        credits: CreditLimits { posted: few, non_posted: few, completion: None },
        ack_delay: Duration::from_ns(50),
        credit_update_delay: Duration::from_ns(30),
        replay_tlps: 16,
        cut_through: false,
    };
    LinkParams {
        generation: Generation::Gen3,
        width: Width::X8,
        latency: Duration::from_ns(60),
        beats: [1, 1],
        receivers: [receiver.clone(), receiver],
        retrain_time: Duration::from_us(1),
    }
}

/// Runs the scripts. Returns the journal and the final contents of memory.
fn run(setting: &Setting) -> (Journal, [Vec<u8>; 2]) {
    let journal = Rc::new(RefCell::new(Journal::default()));
    let mut fabric = Fabric::new();
    let iommu = setting.iommu.map(|order| {
        let iotlb = Geometry::fully_associative(1, IotlbReplacement::Lru);
        let params = IommuParams { iotlb, order, ..IommuParams::default() };
        Iommu::new(params, NodeId(0), Seed::new(setting.seed)).unwrap()
    });
    let base = if iommu.is_some() { IOVA } else { 0 };
    let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), iommu.into_iter().collect());
    for (own, script) in setting.scripts.iter().enumerate() {
        let bus = own as u8 + 1;
        let link = fabric.add_root_port(host, RootPortParams::ideal(), link(setting.credits), bus..=bus);
        let (script, journal) = (script.clone(), Rc::clone(&journal));
        let device = Scribbler { own, base, script, asked: Vec::new(), journal, places: Vec::new() };
        let id = fabric.add_endpoint(EndpointParams::ideal(8), &[link], Box::new(device));
        let core = &mut fabric.endpoint_mut(id).core;
        let config = core.registers.config_mut(F0);
        let control = config.pcie_offset().unwrap() + 8;
        config.update(control, 0x70e0, setting.payload_code << 5 | setting.request_code << 12);
        // Enable memory and bus mastering; the write also tells the function its bus.
        let command = ConfigRequest {
            requester: Bdf::new(0, 0, 0),
            tag: 0,
            target: Bdf::new(bus, 0, 0),
            register: 4,
            first_be: 0b0011,
            config_type: ConfigType::Type0,
        };
        core.registers.write(PortIndex(0), &command, 6).expect("the function is there");
        let bar = ConfigRequest { register: 0x10, first_be: 0xf, ..command };
        let registers = REGISTERS + 4096 * own as u64;
        core.registers.write(PortIndex(0), &bar, registers as u32).expect("the function is there");
        core.heed_registers();
        fabric.host_mut(host).add_window(HostPhysical::new(registers), 4096, own as u8);
    }
    if setting.iommu.is_some() {
        map(&mut fabric, host);
    }
    let simulation = Simulation::new(fabric);
    simulation.with(|fabric, scheduler| {
        for device in 0..2u16 {
            if setting.damage {
                let rng = Seed::new(setting.seed).component(if device == 0 { "left" } else { "right" });
                let injector = ErrorInjector::new(2e-5, 0.02, Duration::from_us(5), rng);
                let id = LinkId(device);
                fabric.context(scheduler).with(id, |link, _| link.inject_errors(Some(injector)));
            }
            fabric
                .running(scheduler)
                .with_device(EndpointId(device), |_, bus| bus.wake_at(Time::ZERO, Token(0)));
        }
    });
    simulation.spawn(read_registers(simulation.handle(), host, setting.core.clone(), Rc::clone(&journal)));
    for &(ns, link, generation, width) in &setting.retrains {
        simulation.run_until(simulation.now() + Duration::from_ns(ns));
        simulation.with(|fabric, scheduler| {
            fabric.context(scheduler).with(LinkId(link), |link, cx| {
                link.retrain_to(cx, generation, width);
            });
        });
    }
    simulation.run();
    let memory = REGIONS.map(|region| {
        let mut bytes = vec![0; REGION as usize];
        simulation.with(|fabric, _| {
            fabric.host(host).memory.bytes().read(HostPhysical::new(region), &mut bytes).unwrap();
        });
        bytes
    });
    simulation.with(|fabric, _| check_conservation(fabric, host, &setting.scripts));
    (journal.take(), memory)
}

/// A core alternately reads a register of a device and the data that the device has written.
async fn read_registers(
    fabric: Handle<Fabric>,
    host: HostId,
    script: Vec<(u64, usize)>,
    journal: Rc<RefCell<Journal>>,
) {
    for (pause, device) in script {
        fabric.sleep(Duration::from_ns(pause)).await;
        let register = HostPhysical::new(REGISTERS + 4096 * device as u64);
        let access = fabric.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(host, scheduler);
            host.mmio_read(&mut cx, CoreId(0), register, 4)
        });
        access.expect("the register is behind a port").data.await.expect("the read ends");
        let mut data = vec![0; REGION as usize];
        fabric.with(|fabric, _| {
            let memory = fabric.host(host).memory.bytes();
            memory.read(HostPhysical::new(REGIONS[device]), &mut data).unwrap();
        });
        let mut journal = journal.borrow_mut();
        let answered = journal.answered;
        journal.by_core.push(CoreRead { device, answered, done: fabric.now(), data });
    }
}

/// No byte is lost or counted twice between devices, links, root complex and memory.
fn check_conservation(fabric: &Fabric, host: HostId, scripts: &[Vec<Step>; 2]) {
    let bytes = |device: usize, write: bool| -> u64 {
        scripts[device].iter().filter(|s| s.write == write).map(|s| u64::from(s.length)).sum()
    };
    for device in 0..2 {
        let link = fabric.wires.link(LinkId(device as u16));
        // Header of three doublewords, framing, sequence number, LCRC; whole doublewords of data at both ends.
        for (side, class, moved) in [
            (Side::Downstream, FlowClass::Posted, bytes(device, true)),
            (Side::Upstream, FlowClass::Completion, bytes(device, false)),
        ] {
            let counters = link.counters(side);
            let tlps = counters.tlps[class.index()];
            let data = counters.tlp_bytes[class.index()].get() - tlps * 20;
            assert!(
                (moved..=moved + tlps * 6).contains(&data),
                "{side:?}: {data} for {moved} bytes, {tlps} TLPs"
            );
        }
    }
    let host = fabric.host(host);
    let root = host.counters();
    assert_eq!(root.device_write_bytes, bytes(0, true) + bytes(1, true));
    assert_eq!(root.device_read_bytes, bytes(0, false) + bytes(1, false));
    let memory = host.memory.counters();
    let lines =
        |of: fn(&DeviceCounters) -> u64| memory.nodes.iter().map(|n| of(&n.device)).sum::<u64>() * LINE;
    assert!(lines(|d| d.writes) >= root.device_write_bytes && lines(|d| d.reads) >= root.device_read_bytes);
    memory.check_conservation().unwrap();
}

/// Values that a byte may have between two times, given the writes to it.
fn allowed(written: &[Written], byte: u64, asked: Time, done: Time) -> Vec<u8> {
    let mut values = vec![0];
    for write in written.iter().filter(|w| (w.offset..w.offset + u64::from(w.length)).contains(&byte)) {
        if write.asked > done {
            break;
        }
        // A read cannot pass writes that left the device before it was requested.
        if write.left.is_some_and(|left| left < asked) {
            values.clear();
        }
        values.push(write.value);
    }
    values
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn bytes_read_are_bytes_written(setting in setting()) {
        let (journal, memory) = run(&setting);
        let steps: usize = setting.scripts.iter().map(Vec::len).sum();
        prop_assert_eq!(journal.outcomes, steps, "each request has one outcome");
        for read in &journal.read {
            for (byte, &value) in (read.offset..).zip(&read.data) {
                // Writes of another device may be in flight arbitrarily long; a device's read cannot pass its own.
                let since = if read.reader == read.region { read.asked } else { Time::ZERO };
                let values = allowed(&journal.written[read.region], byte, since, read.done);
                prop_assert!(values.contains(&value), "byte {byte}: {value} is not one of {values:?}");
            }
        }
        for read in &journal.by_core {
            for (byte, &value) in (0u64..).zip(&read.data) {
                let values = allowed(&journal.written[read.device], byte, read.answered, read.done);
                prop_assert!(values.contains(&value), "byte {byte}, by a core: {value} is not one of {values:?}");
            }
        }
        for (written, memory) in journal.written.iter().zip(&memory) {
            for (byte, &value) in (0u64..).zip(memory) {
                let end = Time::ZERO + Duration::from_ms(1_000);
                let last = *allowed(written, byte, end, end).last().unwrap();
                prop_assert_eq!(value, last, "byte {}: writes of one device stay in order", byte);
            }
        }
    }
}
