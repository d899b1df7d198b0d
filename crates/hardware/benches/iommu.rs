//! Wall-clock cost of translating one request.
//!
//! Each iteration translates [`BATCH`] requests; divan's items per second are requests per second.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use engine::Seed;
use hardware::iommu::{DmaRequest, FixedDomains, Iommu, IommuParams, Translation, WalkMemory, WalkRead};
use hardware::memory::{MemoryRange, NodeId, PhysicalMemory};
use units::{Bytes, Duration, HostPhysical, Iova, Time};
use wire::pcie::Bdf;
use wire::vtd::{Access, PageSize};

/// Requests in one iteration.
const BATCH: u64 = 10_000;
/// Time between requests.
const STEP: Duration = Duration::from_ns(5);
const NIC: Bdf = Bdf::new(3, 0, 0);

fn main() {
    divan::main();
}

/// Memory that always takes 80 ns, so that the bench shows the IOMMU alone.
struct FlatMemory(PhysicalMemory);

impl WalkMemory for FlatMemory {
    fn walk_read(&mut self, now: Time, _: NodeId, address: HostPhysical) -> WalkRead {
        WalkRead { ready: now + Duration::from_ns(80), value: self.0.read_u64(address).ok() }
    }
    fn same_line(&self, address: HostPhysical) -> Option<u64> {
        self.0.read_u64(address).ok()
    }
}

/// An IOMMU whose one function reaches 64 MiB in pages of 4 KiB.
fn machine() -> (Iommu, FlatMemory) {
    let range = MemoryRange { base: HostPhysical::new(0), size: Bytes::mib(128) };
    let mut bytes = PhysicalMemory::new(&[(NodeId(0), range)]);
    let mut iommu = Iommu::new(IommuParams::default(), NodeId(0), Seed::new(1)).unwrap();
    let mut domains = FixedDomains::new(&mut bytes, HostPhysical::new(0x10_1000), iommu.features()).unwrap();
    let range = (Iova::new(0), HostPhysical::new(64 << 20), Bytes::mib(64));
    domains.add(&mut bytes, iommu.features(), &[NIC], [range], PageSize::Size4KiB).unwrap();
    domains.enable(&mut iommu);
    (iommu, FlatMemory(bytes))
}

/// Looks at an answer as a root complex does, in registers.
fn consume(translation: Translation) {
    black_box(translation.ready);
    if let Ok(translated) = translation.outcome {
        black_box(translated.address);
    }
}

/// Reads of random pages out of the first so many: 64 all hit, 256 hit half the time, 16,384 always miss.
#[divan::bench(args = [1, 64, 256, 16_384])]
fn random_pages(bencher: Bencher, pages: u64) {
    let (mut iommu, mut memory) = machine();
    let mut now = Time::ZERO;
    let mut state = 1u64;
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            now += STEP;
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let iova = Iova::new(((state >> 33) % pages) << 12);
            consume(iommu.translate(now, DmaRequest::new(NIC, iova, Access::Read), &mut memory));
        }
    });
}

/// What a disabled IOMMU costs.
#[divan::bench]
fn disabled(bencher: Bencher) {
    let (mut iommu, mut memory) = machine();
    iommu.set_enabled(false);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for n in 0..BATCH {
            let iova = Iova::new(n << 12);
            let request = DmaRequest::new(NIC, black_box(iova), Access::Read);
            consume(iommu.translate(Time::ZERO, request, &mut memory));
        }
    });
}
