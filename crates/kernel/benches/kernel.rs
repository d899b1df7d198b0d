//! What the kernel's services cost to simulate: loads, computing, switches, interrupts, mappings.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Machine, machine};
use divan::counter::ItemsCount;
use kernel::DmaMode;
use platform::cpu::CpuId;
use platform::dma::Direction;
use platform::kernel::TaskParams;
use platform::memory::{PAGE, Policy};

fn main() {
    divan::main();
}

const N: u32 = 10_000;

#[divan::bench]
fn loads_that_hit(bencher: divan::Bencher) {
    let machine = machine(DmaMode::Off);
    let kernel = machine.kernel.face();
    bencher.counter(ItemsCount::new(N)).bench_local(|| {
        let kernel = kernel.clone();
        machine.run(0, move |cpu| {
            Box::pin(async move {
                let page = kernel.alloc_pages(&cpu, 0, Policy::Local).unwrap();
                for n in 0..u64::from(N) {
                    cpu.load_u64(page.start + n % 64 * 64);
                }
                kernel.free_pages(&cpu, page);
            })
        })
    });
}

#[divan::bench]
fn computing_and_synchronising(bencher: divan::Bencher) {
    let machine = machine(DmaMode::Off);
    bencher.counter(ItemsCount::new(N)).bench_local(|| {
        machine.run(0, move |cpu| {
            Box::pin(async move {
                for _ in 0..N {
                    cpu.cycles(100).await;
                }
            })
        })
    });
}

#[divan::bench]
fn sleeping_and_switching(bencher: divan::Bencher) {
    let machine = machine(DmaMode::Off);
    bencher.counter(ItemsCount::new(2 * N)).bench_local(|| {
        machine.kernel.spawn(TaskParams::named("other").on(CpuId(0)), |cpu| {
            Box::pin(async move {
                for _ in 0..N {
                    cpu.sleep(units::Duration::from_us(1)).await;
                }
            })
        });
        machine.run(0, move |cpu| {
            Box::pin(async move {
                for _ in 0..N {
                    cpu.sleep(units::Duration::from_us(1)).await;
                }
            })
        })
    });
}

#[divan::bench(args = [DmaMode::Off, DmaMode::Strict, DmaMode::Lazy])]
fn mapping_and_unmapping(bencher: divan::Bencher, mode: DmaMode) {
    let machine = Machine::booted(mode);
    let copier = machine.copier(0);
    bencher.counter(ItemsCount::new(N)).bench_local(|| {
        let copier = copier.clone();
        machine.run(0, move |cpu| {
            Box::pin(async move {
                let at = copier.memory.cpu;
                for _ in 0..N {
                    let bus = copier.dma.map(&cpu, at, PAGE, Direction::FromDevice).unwrap();
                    copier.dma.unmap(&cpu, bus, PAGE, Direction::FromDevice);
                    cpu.sync().await;
                }
            })
        })
    });
}

#[divan::bench]
fn copies_by_a_device_with_interrupts(bencher: divan::Bencher) {
    let machine = Machine::booted(DmaMode::Off);
    let copier = machine.copier(0);
    bencher.counter(ItemsCount::new(N / 10)).bench_local(|| {
        let copier = copier.clone();
        machine.run(0, move |cpu| {
            Box::pin(async move {
                for _ in 0..N / 10 {
                    copier.copy(&cpu, copier.memory.bus, copier.memory.bus, 64, 0).await.unwrap();
                }
            })
        })
    });
}

#[divan::bench]
fn boots(bencher: divan::Bencher) {
    bencher.bench_local(|| drop(Machine::booted(DmaMode::Strict)));
}
