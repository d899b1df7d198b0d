//! What a store to a device costs to simulate: through write-combining buffers, link and device.

#[path = "../tests/common/mod.rs"]
mod common;

use common::sink::{Machine, setup};
use divan::counter::ItemsCount;
use platform::mmio::MemoryType;

fn main() {
    divan::main();
}

/// Stores of one run.
const N: u64 = 16_000;

/// Streaming stores of 16 bytes, four to a line and a TLP.
#[divan::bench]
fn streaming_stores(bencher: divan::Bencher) {
    let machine = Machine::new(&setup());
    bencher.counter(ItemsCount::new(N)).bench_local(|| {
        machine.seen.borrow_mut().clear();
        machine.run(async |cpu, device| {
            let map = device.ioremap_bar(0, MemoryType::WriteCombining).unwrap();
            for line in 0..N / 4 {
                map.stream(&cpu, line * 64 % (32 << 10), &[1; 64]);
                cpu.sync().await;
            }
        })
    });
}

/// Uncached stores of 8 bytes, each a TLP.
#[divan::bench]
fn uncached_stores(bencher: divan::Bencher) {
    let machine = Machine::new(&setup());
    bencher.counter(ItemsCount::new(N)).bench_local(|| {
        machine.seen.borrow_mut().clear();
        machine.run(async |cpu, device| {
            let map = device.ioremap_bar(0, MemoryType::Uncached).unwrap();
            for n in 0..N {
                map.write_u64(&cpu, n * 8 % (32 << 10), n);
                cpu.sync().await;
            }
        })
    });
}
