//! The DMA-engine card on both back-ends.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::back_end::BackEnd;
use crate::on_both_back_ends;
use devices::dma_engine::{DmaEngine, DmaEngineParams, Journal, MoverParams};
use engine::Seed;
use platform::device::Device;
use units::Duration;
use wire::dma_engine::{self as regs, START, Test};
use wire::pcie::config::PcieParams;
use wire::pcie::{Generation, Width};

struct Parts {
    journal: Rc<RefCell<Journal>>,
}

fn card() -> (Vec<Box<dyn Device>>, Parts) {
    let params = DmaEngineParams {
        tick: Duration::from_ns(4),
        workers: 8,
        sample_gap: Duration::from_ns(200),
        command_write_then_read: Duration::from_ns(50),
        command_largest: 128,
        command_granule: 4,
        command_address_bits: 64,
        command_window_change: Duration::from_ns(300),
        register_latency: Duration::from_ns(100),
        mover: MoverParams::default(),
        pcie: PcieParams::endpoint(Generation::Gen3, Width::X8),
        ids: (0x1234, 0x5678),
    };
    let (card, journal) = DmaEngine::new(params, Seed::new(3).component("card")).unwrap();
    (vec![Box::new(card)], Parts { journal })
}

/// Where the host's buffer begins.
const BUFFER: u64 = 0x10_0000;
const ALL: [Test; 5] = [
    Test::LatencyRead,
    Test::LatencyWriteRead,
    Test::BandwidthRead,
    Test::BandwidthWrite,
    Test::BandwidthReadWrite,
];

fn set(host: &mut dyn BackEnd, register: u64, value: u32) {
    host.register_write(0, 0, register, &value.to_le_bytes());
}

/// Starts a test of so many transfers in a window of 64 KiB.
fn start(host: &mut dyn BackEnd, test: u32, transfer: u32, count: u32) {
    for (register, value) in
        [(regs::TEST, test), (regs::TRANSFER, transfer), (regs::WINDOW, 65_536), (regs::TRANSACTIONS, count)]
    {
        set(host, register, value);
    }
    for chunk in 0..regs::CHUNKS as u64 {
        let at = BUFFER + chunk * regs::CHUNK_BYTES;
        host.register_write(0, 0, regs::CHUNK_ADDRESSES + 8 * chunk, &at.to_le_bytes());
    }
    set(host, regs::CONTROL, START);
}

fn wait(host: &mut dyn BackEnd) {
    for _ in 0..200 {
        if host.register_read(0, 0, regs::STATUS) == 2 {
            return;
        }
        host.pass(Duration::from_us(10));
    }
    panic!("the test does not end");
}

on_both_back_ends! { card;
    fn registers_hold_what_was_written(host, _) {
        assert_eq!(host.register_read(0, 0, regs::STATUS), 0);
        for (n, register) in [regs::TEST, regs::TRANSFER, regs::WINDOW, regs::SEED, regs::SEED + 4].into_iter().enumerate() {
            set(host, register, 0x1111 * (n as u32 + 1));
        }
        for (n, register) in [regs::TEST, regs::TRANSFER, regs::WINDOW, regs::SEED, regs::SEED + 4].into_iter().enumerate() {
            assert_eq!(host.register_read(0, 0, register), 0x1111 * (n as u32 + 1));
        }
    }

    fn every_test_does_all_its_transactions(host, parts) {
        for test in ALL {
            for interface in 0..2 {
                for random in 0..2 {
                    set(host, regs::INTERFACE, interface);
                    set(host, regs::RANDOM, random);
                    start(host, test as u32, 64, 300);
                    wait(host);
                    let journal = parts.journal.borrow();
                    assert!(journal.progress.is_done(), "{test:?}");
                    assert_eq!((journal.progress.transactions(), journal.failed, journal.corrupt), (300, 0, 0), "{test:?}");
                    assert_eq!(journal.samples(), if test.is_latency() { 300 } else { 0 });
                }
            }
        }
    }

    fn what_it_writes_is_in_memory(host, _) {
        host.memory_write(0, BUFFER, &[0xee; 65_536]);
        start(host, Test::BandwidthWrite as u32, 200, 10);
        wait(host);
        host.pass(Duration::from_us(10));
        let mut memory = vec![0; 65_536];
        host.memory_read(0, BUFFER, &mut memory);
        // A unit is the transfer rounded up to lines.
        for (n, unit) in memory.chunks(256).enumerate() {
            let expected: Vec<u8> = (0..256).map(|i| if n < 10 && i < 200 { i as u8 } else { 0xee }).collect();
            assert!(unit == expected, "unit {n}");
        }
    }

    fn a_test_that_makes_no_sense_ends_at_once(host, parts) {
        for (test, transfer, count) in [(9, 64, 10), (0, 0, 10), (0, 5000, 10), (0, 64, 0)] {
            start(host, test, transfer, count);
            assert_eq!(host.register_read(0, 0, regs::STATUS), 2);
            assert_eq!(parts.journal.borrow().progress.transactions(), 0);
        }
    }

    fn reads_of_nowhere_are_counted(host, parts) {
        start(host, Test::BandwidthRead as u32, 64, 1);
        wait(host);
        for chunk in 0..regs::CHUNKS as u64 {
            host.register_write(0, 0, regs::CHUNK_ADDRESSES + 8 * chunk, &(1u64 << 45).to_le_bytes());
        }
        set(host, regs::TRANSACTIONS, 20);
        set(host, regs::CONTROL, START);
        wait(host);
        assert_eq!((parts.journal.borrow().failed, parts.journal.borrow().progress.transactions()), (20, 20));
    }

    fn a_reset_ends_what_runs(host, parts) {
        start(host, Test::LatencyRead as u32, 256, 1_000_000);
        host.pass(Duration::from_us(2));
        assert_eq!(host.register_read(0, 0, regs::STATUS), 1);
        host.restart(0);
        assert_eq!(host.register_read(0, 0, regs::STATUS), 0);
        let before = parts.journal.borrow().progress.transactions();
        host.pass(Duration::from_us(20));
        assert_eq!(parts.journal.borrow().progress.transactions(), before);
        start(host, Test::LatencyRead as u32, 8, 10);
        wait(host);
        assert_eq!(parts.journal.borrow().progress.transactions(), 10);
    }
}
