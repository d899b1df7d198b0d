//! Wall-clock cost of single accesses to the memory system.
//!
//! Each iteration makes [`BATCH`] accesses; divan's items per second are accesses per second.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hardware::memory::{
    Agent, CacheGeometry, CoreId, CoreOp, Coverage, MemoryParams, MemorySystem, NodeId, ReplacementPolicy,
    SetIndex, SliceFold,
};
use units::{Bytes, Duration, HostPhysical, Time};

/// Accesses in one iteration.
const BATCH: u64 = 10_000;
/// Time between accesses: 64 B at about 100 Gbit/s.
const STEP: Duration = Duration::from_ps(5_000);

fn main() {
    divan::main();
}

/// A two-socket machine with the LLC of a ten-core Xeon E5 v4.
fn memory() -> MemorySystem {
    let mut params = MemoryParams::example();
    for socket in &mut params.sockets {
        socket.llc.geometry = CacheGeometry {
            size: Bytes::mib(25),
            ways: 20,
            index: SetIndex::Sliced { slices: 10, fold: SliceFold::Wrap },
            replacement: ReplacementPolicy::Lru,
        };
    }
    MemorySystem::new(&params)
}

/// Addresses spread over `window` bytes in an order without pattern.
fn addresses(window: u64) -> impl Iterator<Item = HostPhysical> {
    let lines = window / 64;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    core::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        HostPhysical::new((state >> 20) % lines * 64)
    })
}

/// Runs `access` over random addresses of `window`, after `warm` has seen the window's lines in turn.
fn bench(
    bencher: Bencher,
    window: u64,
    mut warm: impl FnMut(&mut MemorySystem, HostPhysical),
    access: impl Fn(&mut MemorySystem, Time, HostPhysical),
) {
    let mut memory = memory();
    for line in 0..window / 64 {
        warm(&mut memory, HostPhysical::new(line * 64));
    }
    let order: Vec<_> = addresses(window).take(1 << 20).collect();
    let (mut now, mut next) = (Time::ZERO, 0);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            access(&mut memory, now, order[next]);
            next = (next + 1) % order.len();
            now += STEP;
        }
    });
    memory.counters().check_conservation().expect("sums agree");
}

fn nothing(_: &mut MemorySystem, _: HostPhysical) {}

fn by_device(memory: &mut MemorySystem, address: HostPhysical) {
    memory.touch(Agent::Device(NodeId(0)), address, true);
}

fn by_core(memory: &mut MemorySystem, address: HostPhysical) {
    memory.touch(Agent::Core(CoreId(0)), address, true);
}

fn read(memory: &mut MemorySystem, now: Time, address: HostPhysical) {
    black_box(memory.dma_read(now, NodeId(0), address));
}

fn write(memory: &mut MemorySystem, now: Time, address: HostPhysical) {
    black_box(memory.dma_write(now, NodeId(0), address, Coverage::FullLine));
}

#[divan::bench(args = [8, 1024, 2048])]
fn dma_read_llc_hit(bencher: Bencher, window_kib: u64) {
    bench(bencher, window_kib << 10, by_device, read);
}

#[divan::bench]
fn dma_read_owned_by_core(bencher: Bencher) {
    bench(bencher, 8 << 20, by_core, read);
}

#[divan::bench]
fn dma_read_dram(bencher: Bencher) {
    bench(bencher, 1 << 20, nothing, read);
}

#[divan::bench]
fn dma_read_64_mib_window(bencher: Bencher) {
    bench(bencher, 64 << 20, by_device, read);
}

#[divan::bench]
fn dma_read_remote_dram(bencher: Bencher) {
    bench(bencher, 1 << 20, nothing, |memory, now, address| {
        black_box(memory.dma_read(now, NodeId(1), address));
    });
}

#[divan::bench]
fn dma_write_update(bencher: Bencher) {
    bench(bencher, 1 << 20, by_device, write);
}

#[divan::bench]
fn dma_write_64_mib_window(bencher: Bencher) {
    bench(bencher, 64 << 20, by_device, write);
}

#[divan::bench]
fn core_load_l1_hit(bencher: Bencher) {
    bench(bencher, 16 << 10, by_core, |memory, now, address| {
        black_box(memory.core(now, CoreId(0), address, CoreOp::Load));
    });
}

/// As a program does that fills a buffer before a device uses it.
#[divan::bench]
fn touch_64_mib_in_turn_by_core(bencher: Bencher) {
    let mut memory = memory();
    let mut line = 0;
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            by_core(&mut memory, HostPhysical::new(line * 64));
            line = (line + 1) % (1 << 20);
        }
    });
}

#[divan::bench]
fn core_store_64_mib_window(bencher: Bencher) {
    bench(bencher, 64 << 20, by_core, |memory, now, address| {
        black_box(memory.core(now, CoreId(0), address, CoreOp::Store));
    });
}

#[divan::bench]
fn bytes_write_64(bencher: Bencher) {
    bench(bencher, 16 << 20, nothing, |memory, now, address| {
        memory.bytes_mut().write(address, &[now.as_ps() as u8; 64]).expect("installed");
    });
}
