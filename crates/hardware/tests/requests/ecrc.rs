//! End-to-end ECRC: damage that no link detects is found by the final receiver (base spec 2.7.1).

use engine::Seed;
use hardware::link::{ErrorInjector, Side};
use platform::device::DmaError;
use units::{Duration, HostPhysical};
use wire::pcie::config::ConfigSpace;
use wire::pcie::config::aer::{self, uncorrectable};
use wire::pcie::config::pcie_cap;
use wire::pcie::tlp::MemoryRequest;
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::{Bench, CARD, ID, LINK, Setup, bench, pattern};
use crate::common::F0;

/// Enables ECRC generation at both ends and, with `check`, ECRC checking.
fn protect(bench: &Bench, check: bool) {
    let at = |config: &ConfigSpace| config.aer_offset().unwrap() + aer::CONTROL;
    let (root, card) = bench.simulation.with(|fabric, _| {
        (at(fabric.host(bench.host).port(0).config()), at(fabric.endpoint(CARD).core.registers.config(F0)))
    });
    let bits = aer::ECRC_GENERATION_ENABLE | if check { aer::ECRC_CHECK_ENABLE } else { 0 };
    bench.config_write(ID, card, bits);
    bench.config_write(Bdf::new(0, 1, 0), root, bits);
}

/// Uncorrectable error status of the card and of the root port.
fn uncorrectable_errors(bench: &Bench) -> (u32, u32) {
    let of = |config: &ConfigSpace| config.dword(config.aer_offset().unwrap() + aer::UNCORRECTABLE_STATUS);
    bench.simulation.with(|fabric, _| {
        (of(fabric.endpoint(CARD).core.registers.config(F0)), of(fabric.host(bench.host).port(0).config()))
    })
}

/// Damages all data in a way that no link detects.
fn damage_unseen(bench: &Bench) {
    let injector = ErrorInjector::new(0.0, 0.0, Duration::from_us(3), Seed::new(7).component("faults"))
        .damaging_unseen(1.0);
    bench.simulation.with(|fabric, scheduler| {
        fabric.context(scheduler).with(LINK, |link, _| link.inject_errors(Some(injector)));
    });
}

#[test]
fn an_ecrc_is_sent_where_the_host_asks_for_it_and_changes_nothing_else() {
    let reads = vec![(0x1000, 64), (0x2003, 500), (0x3000, 0)];
    let bytes = |protected: bool| {
        let bench = bench(Setup { reads: reads.clone(), tags: 4, ..Setup::default() });
        if protected {
            protect(&bench, true);
        }
        let counted = || {
            bench.simulation.with(|fabric, _| {
                [Side::Upstream, Side::Downstream].map(|side| {
                    fabric.wires.link(LINK).counters(side).tlp_bytes.iter().map(|b| b.get()).sum::<u64>()
                })
            })
        };
        let before = counted();
        bench.start();
        bench.simulation.run();
        bench.check_outcomes(&reads).unwrap();
        assert!(bench.outcomes.borrow().iter().all(|(_, _, outcome)| outcome.is_ok()));
        assert_eq!(uncorrectable_errors(&bench), (0, 0));
        let after = counted();
        [after[0] - before[0], after[1] - before[1]]
    };
    let (plain, protected) = (bytes(false), bytes(true));
    assert_eq!(protected[1] - plain[1], 4 * 3, "one more doubleword for each request");
    assert!(protected[0] > plain[0] && (protected[0] - plain[0]) % 4 == 0, "and for each completion");
}

#[test]
fn data_damaged_where_no_link_sees_it_is_found_by_ecrc() {
    // Device control: report uncorrectable errors.
    const NON_FATAL: u32 = 1 << 1;
    let bench = bench(Setup { reads: vec![(0x1000, 64)], ..Setup::default() });
    protect(&bench, true);
    bench.config_write(ID, bench.pcie() + pcie_cap::DEVICE_CONTROL, NON_FATAL);
    damage_unseen(&bench);
    bench.start();
    // A write by the device, which the root complex drops.
    let request = MemoryRequest::for_bytes(ID, 0, 0x5000, 64);
    bench.send(Side::Downstream, &Tlp::new(TlpKind::MemoryWrite(request)), &[0xaa; 64]);
    bench.simulation.run();
    assert_eq!(bench.outcomes.borrow()[0].2, Err(DmaError::Timeout), "the completion was dropped");
    let (card, root) = uncorrectable_errors(&bench);
    assert_eq!(card, uncorrectable::ECRC | uncorrectable::COMPLETION_TIMEOUT);
    assert_eq!(root, uncorrectable::ECRC);
    bench.simulation.with(|fabric, _| {
        let host = fabric.host(bench.host);
        assert_eq!((host.counters().damaged, host.counters().device_write_bytes), (1, 0));
        let mut there = [0; 64];
        host.memory.bytes().read(HostPhysical::new(0x5000), &mut there).unwrap();
        assert_eq!(there[0], pattern(0x5000), "memory is as it was");
        let port = host.port(0).config();
        let at = port.aer_offset().unwrap();
        let logged = fabric.endpoint(CARD).core.registers.config(F0);
        let first = logged.dword(logged.aer_offset().unwrap() + aer::HEADER_LOG);
        assert_eq!(first >> 24, 0x4a, "the header of the completion with data is kept");
        assert_ne!(port.dword(at + aer::ROOT_STATUS) & 1 << 2, 0, "ERR_NONFATAL reached the root port");
    });
}

#[test]
fn what_nobody_checks_passes() {
    let bench = bench(Setup { reads: vec![(0x1000, 64)], ..Setup::default() });
    protect(&bench, false);
    damage_unseen(&bench);
    bench.start();
    bench.simulation.run();
    let outcomes = bench.outcomes.borrow();
    let data = outcomes[0].2.as_ref().unwrap();
    let wrong: u32 = (0x1000..).zip(data).map(|(at, byte)| (byte ^ pattern(at)).count_ones()).sum();
    assert_eq!((data.len(), wrong), (64, 1), "one bit is wrong, and nobody knows");
    assert_eq!(uncorrectable_errors(&bench), (0, 0));
}
