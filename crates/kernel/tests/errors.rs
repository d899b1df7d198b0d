//! Errors that functions report: corrected ones are counted, others cured or the function is given up.

use crate::common::{MAGIC, Machine, Model, machine_of, params, report};
use engine::Seed;
use hardware::link::{ErrorInjector, LinkId};
use kernel::{DmaMode, ErrorCounters};
use platform::cpu::{Async, Cpu};
use platform::device::FunctionIndex;
use units::{Duration, Iova};
use wire::pcie::Bdf;
use wire::pcie::config::aer::{self, correctable, uncorrectable};
use wire::pcie::tlp::MessageCode;

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

/// Lets a fault be while `act` runs on a core and for a while afterwards.
fn during(
    machine: &Machine,
    fault: ErrorInjector,
    afterwards: Duration,
    act: impl FnOnce(Cpu) -> Async<'static, ()> + 'static,
) {
    let link = LinkId(0);
    let inject = |injector: Option<ErrorInjector>| {
        machine.simulation.with(|fabric, scheduler| {
            fabric.context(scheduler).with(link, |link, _| link.inject_errors(injector));
        });
    };
    inject(Some(fault));
    machine.run(0, act);
    let now = machine.simulation.now();
    machine.simulation.run_until(now + afterwards);
    inject(None);
    machine.simulation.run();
}

fn injector() -> ErrorInjector {
    ErrorInjector::new(0.0, 0.0, Duration::from_us(20), Seed::new(5).component("faults"))
}

#[test]
fn damaged_tlps_are_sent_again_and_counted() {
    let machine = Machine::booted(DmaMode::Off);
    let mut noise = injector();
    noise.bit_error_rate = 2e-5;
    let copier = machine.copier(0);
    during(&machine, noise, Duration::from_ms(1), move |cpu| {
        Box::pin(async move {
            for round in 0..20u64 {
                cpu.store_u64(copier.memory.cpu + 4088, round);
                let to = Iova::new(copier.memory.bus.get() + 4096);
                copier.copy(&cpu, copier.memory.bus, to, 4096, 1).await.unwrap();
                assert_eq!(cpu.load_u64(copier.memory.cpu + 8184), round);
            }
        })
    });
    let errors = machine.kernel.pci_errors();
    assert!(errors.correctable > 0, "{errors:?}");
    assert_eq!((errors.non_fatal, errors.fatal), (0, 0));
}

#[test]
fn a_lost_completion_times_out_and_is_reported() {
    let machine = Machine::booted(DmaMode::Strict);
    let copier = machine.copier(0);
    during(&machine, injector().losing_completions(1.0), Duration::from_ms(1), move |cpu| {
        Box::pin(async move { copier.start(&cpu, copier.memory.bus, copier.memory.bus, 64, 1) })
    });
    let expected = ErrorCounters { non_fatal: 1, recovered: 1, ..Default::default() };
    assert_eq!(machine.kernel.pci_errors(), expected);
    assert_eq!(
        machine.run(0, {
            let copier = machine.copier(0);
            move |_| Box::pin(async move { copier.done.wait().await.0 })
        }),
        7
    );
    assert!(works(&machine));
}

#[test]
fn a_poisoned_write_is_dropped_and_reported() {
    let machine = Machine::booted(DmaMode::Off);
    let copier = machine.copier(0);
    // Over before the kernel reads what was wrong.
    during(&machine, injector().poisoning(1.0), Duration::from_us(1), move |cpu| {
        Box::pin(async move {
            copier.registers.write_u32(&cpu, 0x08, 0xbad);
            cpu.sync().await;
        })
    });
    let expected = ErrorCounters { non_fatal: 1, recovered: 1, ..Default::default() };
    assert_eq!(machine.kernel.pci_errors(), expected);
    assert!(works(&machine));
}

/// A machine whose first copier has two functions, which report errors together.
fn twins() -> Machine {
    let machine = machine_of(params(DmaMode::Off), Model { functions: 2, ..Model::default() });
    machine.boot();
    assert_eq!(machine.driver.bound.borrow().len(), 4);
    machine
}

fn report_both(machine: &Machine, register: u16, bits: u32, code: MessageCode) {
    let device = machine.copiers[0];
    machine.simulation.with(|fabric, scheduler| {
        for n in 0..2 {
            let config = fabric.endpoint_mut(device).core.registers.config_mut(FunctionIndex(n));
            let at = config.aer_offset().unwrap();
            config.update(at + register, 0, bits);
            let (host, mut cx) = fabric.host_in(machine.host, scheduler);
            host.port_mut(0).report(&mut cx, Bdf::new(1, 0, n), code);
        }
    });
    machine.simulation.run();
}

#[test]
fn of_two_functions_that_report_at_once_both_are_heard() {
    let machine = twins();
    report_both(&machine, aer::CORRECTABLE_STATUS, correctable::BAD_TLP, MessageCode::ERR_COR);
    assert_eq!(machine.kernel.pci_errors(), ErrorCounters { correctable: 2, ..Default::default() });
    let bits = uncorrectable::COMPLETION_TIMEOUT;
    report_both(&machine, aer::UNCORRECTABLE_STATUS, bits, MessageCode::ERR_NONFATAL);
    let expected = ErrorCounters { correctable: 2, non_fatal: 2, recovered: 2, ..Default::default() };
    assert_eq!(machine.kernel.pci_errors(), expected);
    // Nothing is left to be reported.
    report_both(&machine, aer::UNCORRECTABLE_STATUS, 0, MessageCode::ERR_NONFATAL);
    assert_eq!(machine.kernel.pci_errors(), expected);
}

#[test]
fn a_fatal_error_of_one_function_resets_the_bus_of_both() {
    let machine = twins();
    let other = machine.copier(1);
    report(&machine, aer::UNCORRECTABLE_STATUS, uncorrectable::MALFORMED, MessageCode::ERR_FATAL);
    let expected = ErrorCounters { fatal: 1, recovered: 2, ..Default::default() };
    assert_eq!(machine.kernel.pci_errors(), expected, "{:?}", machine.kernel.log());
    assert!(machine.kernel.log().iter().any(|(_, line)| line.contains("reset of the bus below")));
    assert!(works(&machine));
    assert!(!other.removed.get() && !other.gone.get(), "the reset is no removal");
}

#[test]
fn a_frozen_function_is_not_reached() {
    let machine = Machine::booted(DmaMode::Off);
    let copier = machine.copier(0);
    let device = machine.copiers[0];
    let host = machine.host;
    let hw = machine.simulation.handle();
    let seen = machine.run(3, move |cpu| {
        Box::pin(async move {
            hw.with(|fabric, scheduler| {
                let config = fabric.endpoint_mut(device).core.registers.config_mut(FunctionIndex(0));
                let at = config.aer_offset().unwrap();
                config.update(at + aer::UNCORRECTABLE_STATUS, 0, uncorrectable::MALFORMED);
                let (host, mut cx) = fabric.host_in(host, scheduler);
                host.port_mut(0).report(&mut cx, Bdf::new(1, 0, 0), MessageCode::ERR_FATAL);
            });
            let mut seen = Vec::new();
            for _ in 0..60 {
                seen.push(copier.magic(&cpu).await);
                cpu.sleep(Duration::from_ms(3)).await;
            }
            seen
        })
    });
    let frozen = seen.iter().filter(|&&magic| magic == u32::MAX).count();
    assert!((30..50).contains(&frozen), "{frozen} of 60 reads, 3 ms apart, while it was frozen for 102 ms");
    assert!(seen.first() == Some(&MAGIC) && seen.last() == Some(&MAGIC));
    assert!(works(&machine));
}
