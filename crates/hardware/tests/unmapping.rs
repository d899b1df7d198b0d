//! No stale translation is used after its invalidation has completed, whatever DMA is in flight.
//!
//! A device reads and writes a few pages at random through an IOTLB of one entry. A core unmaps one page after another
//! with draining invalidations; once its wait ends, the page's frame must not change.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{config, dma, function, write_registers};
use engine::{Handle, Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::iommu::{
    ConsecutiveFrames, FixedDomains, Geometry, Iommu, IommuParams, IotlbReplacement, PipelineOrder,
    QueueAction,
};
use hardware::link::LinkParams;
use hardware::memory::{MemoryParams, MemorySystem, NodeId};
use hardware::root::{HostId, RootPortParams};
use platform::device::{Device, DeviceBus, DmaError, Function, Reset, Token};
use proptest::prelude::*;
use units::{Bytes, Duration, HostPhysical, Iova, Time};
use wire::pcie::{Bdf, Generation, Width};
use wire::vtd::tables::PageTable;
use wire::vtd::{DomainId, InvalidationDescriptor, PageSize, Scope};

const ID: Bdf = Bdf::new(1, 0, 0);
const DOMAIN: DomainId = DomainId(1);
const PAGE: u64 = 4096;
const PAGES: u64 = 4;
/// IOVA and physical address of the pages.
const IOVA: u64 = 0x8000_0000;
const FRAMES: u64 = 0x10_0000;
const QUEUE: HostPhysical = HostPhysical::new(0x8_0000);
const STATUS: HostPhysical = HostPhysical::new(0x9_0000);

#[derive(Clone, Debug)]
struct Step {
    /// Nanoseconds since the previous step.
    pause: u64,
    write: bool,
    /// Offset into the pages, in units of 64 B.
    line: u64,
    length: u32,
}

struct Scribbler {
    script: Vec<Step>,
}

impl Device for Scribbler {
    fn functions(&self) -> Vec<Function> {
        function(config(256).aer())
    }

    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}

    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let number = token.0 as usize;
        let Some(Step { write, line, length, .. }) = self.script.get(number).cloned() else { return };
        let dma = dma(IOVA + line * 64, length, token.0);
        if write {
            // Always differs from the previous data.
            bus.write(dma, &vec![(number % 255) as u8 + 1; length as usize]);
        } else {
            bus.read(dma);
        }
        if let Some(next) = self.script.get(number + 1) {
            bus.wake_at(bus.now() + Duration::from_ns(next.pause), Token(token.0 + 1));
        }
    }

    /// Reads of unmapped pages fail.
    fn read_done(&mut self, _: &mut dyn DeviceBus, _: Token, _: Result<&[u8], DmaError>) {}
}

fn map(fabric: &mut Fabric, host: HostId) -> PageTable {
    let host = fabric.host_mut(host);
    let (memory, iommu) = (host.memory.bytes_mut(), &mut host.iommus[0]);
    let mut domains = FixedDomains::new(memory, HostPhysical::new(0x100_0000), iommu.features()).unwrap();
    let range = (Iova::new(IOVA), HostPhysical::new(FRAMES), Bytes::new(PAGES * PAGE));
    let table = domains.add(memory, iommu.features(), &[ID], [range], PageSize::Size4KiB).unwrap();
    iommu.set_invalidation_queue(QUEUE, 0);
    domains.enable(iommu);
    table
}

fn contents(fabric: &Fabric, host: HostId, page: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE as usize];
    fabric.host(host).memory.bytes().read(HostPhysical::new(FRAMES + page * PAGE), &mut bytes).unwrap();
    bytes
}

/// When the wait after an invalidation ended, and the content of the page's frame then.
type Kept = (Time, Vec<u8>);

/// Unmaps one page after another, optionally draining reads; records each frame's content once no write may reach it
/// any more.
async fn unmap(
    fabric: Handle<Fabric>,
    host: HostId,
    table: PageTable,
    pauses: Vec<(u64, bool)>,
    kept: Rc<RefCell<Vec<Kept>>>,
) {
    for (page, (pause, drain_reads)) in (0..PAGES).zip(pauses) {
        fabric.sleep(Duration::from_ns(pause)).await;
        let done = fabric.with(|fabric, scheduler| {
            let host = fabric.host_mut(host);
            let address = Iova::new(IOVA + page * PAGE);
            // None is needed: no page of 2 MiB is split.
            let mut frames = ConsecutiveFrames::new(HostPhysical::new(0));
            table.unmap(host.memory.bytes_mut(), &mut frames, address, Bytes::new(PAGE)).unwrap();
            let scope = Scope::Pages { domain: DOMAIN, address, mask: 0 };
            let forget =
                InvalidationDescriptor::Iotlb { scope, drain_reads, drain_writes: true, leaf_only: false };
            let ring = [forget, InvalidationDescriptor::wait(STATUS, 1)];
            for (place, descriptor) in (page * 32..).step_by(16).zip(ring) {
                let [low, high] = descriptor.encode();
                host.memory.bytes_mut().write_u64(QUEUE + place, low).unwrap();
                host.memory.bytes_mut().write_u64(QUEUE + place + 8, high).unwrap();
            }
            let mut actions = Vec::new();
            let tail = page * 32 + 32;
            host.iommus[0].write_invalidation_tail(scheduler.now(), tail, &mut host.memory, &mut actions);
            match actions[..] {
                [QueueAction::WriteStatus { at, .. }] => at,
                ref other => panic!("expected one status write, got {other:?}"),
            }
        });
        fabric.sleep_until(done).await;
        kept.borrow_mut().push((done, fabric.with(|fabric, _| contents(fabric, host, page))));
    }
}

fn step() -> impl Strategy<Value = Step> {
    (0..60u64, any::<bool>(), 0..PAGES * 64, 1..=64u32).prop_map(|(pause, write, line, length)| Step {
        pause,
        write,
        line,
        length,
    })
}

/// Runs the script while pages are unmapped; returns the frames' content at unmapping and at the end.
fn run(
    script: Vec<Step>,
    pauses: Vec<(u64, bool)>,
    params: IommuParams,
    port: RootPortParams,
) -> Vec<(Kept, Vec<u8>)> {
    let mut fabric = Fabric::new();
    let iommu = Iommu::new(params, NodeId(0), Seed::new(1)).unwrap();
    let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), vec![iommu]);
    let link = fabric.add_root_port(host, port, LinkParams::example(Generation::Gen3, Width::X8), 1..=1);
    fabric.add_endpoint(EndpointParams::ideal(32), &[link], Box::new(Scribbler { script }));
    let table = map(&mut fabric, host);
    write_registers(&mut fabric.endpoint_mut(EndpointId(0)).core.registers, &[(4, 6)]);
    let simulation = Simulation::new(fabric);
    simulation.with(|fabric, scheduler| {
        fabric.running(scheduler).with_device(EndpointId(0), |_, bus| bus.wake_at(Time::ZERO, Token(0)));
    });
    let kept = Rc::new(RefCell::new(Vec::new()));
    simulation.spawn(unmap(simulation.handle(), host, table, pauses, Rc::clone(&kept)));
    simulation.run();
    let at_end = |page| simulation.with(|fabric, _| contents(fabric, host, page));
    kept.take().into_iter().zip(0..).map(|(kept, page)| (kept, at_end(page))).collect()
}

#[test]
fn a_drained_invalidation_waits_for_writes_that_are_not_ordered_yet() {
    let merge = Duration::from_us(5);
    let port = RootPortParams { partial_line: merge, ..RootPortParams::ideal() };
    let write = Step { pause: 0, write: true, line: 0, length: 3 };
    let kept = run(vec![write], vec![(2_000, true)], IommuParams::default(), port);
    let (done, _) = kept[0].0;
    assert!(done >= Time::ZERO + merge, "complete at {done}, while a line is merged until after {merge}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_page_does_not_change_once_its_invalidation_is_complete(
        script in prop::collection::vec(step(), 50..150),
        pauses in prop::collection::vec((100..1500u64, any::<bool>()), PAGES as usize),
        order in prop::sample::select(vec![
            PipelineOrder::Unordered, PipelineOrder::PerDirection, PipelineOrder::Global,
        ]),
        walkers in 1..6usize,
    ) {
        let iotlb = Geometry::fully_associative(1, IotlbReplacement::Lru);
        let params = IommuParams { iotlb, order, walkers, ..IommuParams::default() };
        let kept = run(script, pauses, params, RootPortParams::ideal());
        prop_assert_eq!(kept.len() as u64, PAGES);
        for (page, ((_, kept), at_end)) in kept.iter().enumerate() {
            prop_assert!(kept == at_end, "page {page} was written after its invalidation was complete");
        }
    }
}
