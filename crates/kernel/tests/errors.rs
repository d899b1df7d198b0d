//! Errors that functions report: corrected ones are counted, others cured or the function is given up.

mod common;

use common::Machine;
use kernel::{DmaMode, ErrorCounters};
use platform::device::FunctionIndex;
use units::Iova;
use wire::pcie::Bdf;
use wire::pcie::config::aer::{self, correctable, uncorrectable};
use wire::pcie::tlp::MessageCode;

/// The first copier's hardware reports an error.
fn report(machine: &Machine, register: u16, bits: u32, code: MessageCode) {
    let device = machine.copiers[0];
    machine.simulation.with(|fabric, scheduler| {
        let config = fabric.endpoint_mut(device).core.registers.config_mut(FunctionIndex(0));
        let at = config.aer_offset().unwrap();
        config.update(at + register, 0, bits);
        fabric.host_mut(machine.host).report_error(scheduler, 0, Bdf::new(1, 0, 0), code);
    });
    machine.simulation.run();
}

fn works(machine: &Machine) -> bool {
    let copier = machine.copier(0);
    machine.run(0, move |cpu| {
        Box::pin(async move {
            cpu.store_u64(copier.memory.cpu, 0xfeed);
            let to = Iova::new(copier.memory.bus.get() + 4096);
            copier.copy(&cpu, copier.memory.bus, to, 8, 1).await.is_ok()
                && cpu.load_u64(copier.memory.cpu + 4096) == 0xfeed
        })
    })
}

#[test]
fn corrected_errors_are_counted_and_cleared() {
    let machine = Machine::booted(DmaMode::Off);
    for _ in 0..3 {
        report(&machine, aer::CORRECTABLE_STATUS, correctable::BAD_TLP, MessageCode::ERR_COR);
    }
    assert_eq!(machine.kernel.pci_errors(), ErrorCounters { correctable: 3, ..Default::default() });
    assert!(works(&machine));
}

#[test]
fn a_driver_can_shrug_off_a_non_fatal_error() {
    let machine = Machine::booted(DmaMode::Off);
    let bits = uncorrectable::COMPLETION_TIMEOUT;
    report(&machine, aer::UNCORRECTABLE_STATUS, bits, MessageCode::ERR_NONFATAL);
    let expected = ErrorCounters { non_fatal: 1, recovered: 1, ..Default::default() };
    assert_eq!(machine.kernel.pci_errors(), expected);
    assert!(works(&machine));
}

#[test]
fn a_function_is_reset_after_a_fatal_error_and_goes_on() {
    for mode in [DmaMode::Off, DmaMode::Strict] {
        let machine = Machine::booted(mode);
        report(&machine, aer::UNCORRECTABLE_STATUS, uncorrectable::MALFORMED, MessageCode::ERR_FATAL);
        let expected = ErrorCounters { fatal: 1, recovered: 1, ..Default::default() };
        assert_eq!(machine.kernel.pci_errors(), expected);
        assert!(works(&machine), "{mode:?}");
    }
}

#[test]
fn a_function_whose_driver_gives_up_is_unbound() {
    let machine = Machine::booted(DmaMode::Lazy);
    machine.copier(0).recovers.set(false);
    report(&machine, aer::UNCORRECTABLE_STATUS, uncorrectable::MALFORMED, MessageCode::ERR_FATAL);
    assert_eq!(machine.kernel.pci_errors().failed, 1);
    assert!(machine.copier(0).removed.get());
    let functions = machine.kernel.pci();
    let info = functions.iter().find(|f| f.bdf == Bdf::new(1, 0, 0)).unwrap();
    assert_eq!((info.driver, info.mapped_pages, info.irqs.len()), (None, 0, 0));
}
