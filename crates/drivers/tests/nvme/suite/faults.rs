//! What goes wrong is told to the program, counted, and does not stop the rest.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use devices::nvme::{Fault, FaultKind};
use drivers::nvme::ControllerState;
use kernel::DmaMode;
use platform::Error;
use platform::block::{BlockOp, Segment};
use platform::device::FunctionIndex;
use platform::kernel::TaskParams;
use platform::memory::{PAGE, Policy};
use platform::storage::{IoCompletions, IoRequest};
use proptest::prelude::*;
use units::{Bytes, Duration};
use wire::nvme::Status;
use wire::pcie::Bdf;
use wire::pcie::config::aer::{self, uncorrectable};
use wire::pcie::tlp::MessageCode;

use super::machine::{Machine, Setup};

const WRITE: BlockOp = BlockOp::Write { fua: false };
const READ_OPCODE: u8 = 2;

fn fault(kind: FaultKind) -> Fault {
    Fault { queue: None, opcode: Some(READ_OPCODE), after: 0, kind }
}

/// A machine whose drive does `kind` to the first read, and what became of that read.
fn with_fault(kind: FaultKind) -> (Machine, Result<(), Error>) {
    let machine = Machine::new(&Setup { mode: DmaMode::Strict, ..Setup::default() });
    let at = machine.memory(2, 0);
    machine.put(at, &[0x5a; 4096]);
    let memory = vec![Segment { at, length: 4096 }];
    machine.direct(0, WRITE, 0, memory.clone(), 4096).unwrap();
    machine.put(at, &[0; 4096]);
    machine.control.inject(fault(kind));
    let result = machine.direct(2, BlockOp::Read, 0, memory.clone(), 4096);
    if result.is_ok() {
        assert_eq!(machine.get(at, 4096), [0x5a; 4096], "{kind:?}");
    }
    // The next one is as if nothing had been.
    machine.put(at, &[0; 4096]);
    machine.direct(2, BlockOp::Read, 0, memory, 4096).unwrap();
    assert_eq!(machine.get(at, 4096), [0x5a; 4096], "{kind:?}");
    assert_eq!(machine.mapped(), 0, "{kind:?}");
    assert_eq!(machine.file().counters().in_flight, 0, "{kind:?}");
    (machine, result)
}

#[test]
fn a_lost_interrupt_is_found_when_the_time_is_over() {
    let (machine, result) = with_fault(FaultKind::DropInterrupt);
    assert_eq!(result, Ok(()));
    let counters = machine.controller().counters();
    assert_eq!((counters.timeouts, counters.lost_interrupts, counters.aborts), (1, 1, 0));
}

#[test]
fn a_slow_command_survives_the_attempt_to_abort_it() {
    let setup = Setup { drive: |drive| drive.media.read = Duration::from_us(1500), ..Setup::default() };
    let machine = Machine::new(&setup);
    let at = machine.memory(1, 0);
    let result = machine.direct(0, BlockOp::Read, 0, vec![Segment { at, length: 512 }], 512);
    assert_eq!(result, Ok(()));
    let counters = machine.controller().counters();
    assert_eq!((counters.timeouts, counters.aborts, counters.resets), (1, 1, 0));
}

#[test]
fn a_changed_timeout_holds_for_what_starts_later() {
    let setup = Setup { drive: |drive| drive.media.read = Duration::from_us(150), ..Setup::default() };
    let machine = Machine::new(&setup);
    let (at, file) = (machine.memory(1, 0), machine.file());
    let device = machine.kernel.block().device("nvme0n1").unwrap();
    let timeouts = machine.run(0, move |cpu| {
        Box::pin(async move {
            let completions = IoCompletions::new();
            let read = || {
                let memory = vec![Segment { at, length: 512 }];
                let request = IoRequest { op: BlockOp::Read, offset: 0, length: 512, memory, token: 0 };
                file.submit(&cpu, vec![request], &completions);
            };
            read();
            cpu.sleep(Duration::from_us(20)).await;
            device.set_timeout(Duration::from_us(100));
            assert_eq!(completions.next().await.result, Ok(()));
            let first = device.counters().timeouts;
            read();
            assert_eq!(completions.next().await.result, Ok(()));
            (first, device.counters().timeouts)
        })
    });
    assert_eq!(timeouts, (0, 1));
}

#[test]
fn what_an_abort_does_not_help_a_reset_does() {
    for kind in [
        FaultKind::Hang,
        FaultKind::DropCompletion,
        FaultKind::WrongPhase,
        FaultKind::WrongId,
        FaultKind::Fatal,
    ] {
        let (machine, result) = with_fault(kind);
        assert_eq!(result, Ok(()), "{kind:?}");
        let counters = machine.controller().counters();
        assert_eq!(counters.resets, 1, "{kind:?} {counters:?}");
        assert_eq!(counters.unknown_completions, u64::from(kind == FaultKind::WrongId), "{kind:?}");
        assert_eq!(machine.controller().state(), ControllerState::Live);
    }
}

#[test]
fn an_error_that_will_not_go_is_told() {
    let (machine, result) = with_fault(FaultKind::Fail(Status::READ_ERROR.dnr()));
    assert_eq!(result, Err(Error::Io));
    assert_eq!(machine.file().counters().errors, 1);
    let (machine, result) = with_fault(FaultKind::Fail(Status::READ_ERROR));
    assert_eq!(result, Ok(()));
    assert_eq!(machine.controller().counters().retries, 1);
}

#[test]
fn a_device_that_always_hangs_fails_its_requests_in_the_end() {
    let machine = Machine::new(&Setup::default());
    for _ in 0..20 {
        machine.control.inject(fault(FaultKind::Hang));
    }
    let at = machine.memory(1, 0);
    let result = machine.direct(0, BlockOp::Read, 0, vec![Segment { at, length: 512 }], 512);
    assert_eq!(result, Err(Error::TimedOut));
    assert_eq!(machine.mapped(), 0);
}

#[test]
fn interrupts_with_nothing_to_say_do_no_harm() {
    let machine = Machine::new(&Setup::default());
    let at = machine.memory(1, 0);
    let file = machine.file();
    machine.run(0, move |cpu| {
        Box::pin(async move {
            let completions = IoCompletions::new();
            // The interrupt comes behind the completion, how far depends on where the drive is: who polls sees some before it.
            for token in 0..64 {
                let memory = vec![Segment { at, length: 512 }];
                let request = IoRequest { op: BlockOp::Read, offset: 0, length: 512, memory, token };
                cpu.sleep(Duration::from_ns(100 * token)).await;
                file.submit(&cpu, vec![request], &completions);
                while completions.try_next().is_none() {
                    file.poll(&cpu);
                    cpu.sync().await;
                }
                cpu.sleep(Duration::from_us(20)).await;
            }
        })
    });
    let counters = machine.controller().counters();
    assert!(counters.idle_interrupts > 0 && counters.unknown_completions == 0, "{counters:?}");
}

#[test]
fn a_drive_that_goes_fails_what_is_under_way_and_comes_back() {
    let machine = Machine::new(&Setup { mode: DmaMode::Strict, ..Setup::default() });
    let (at, file, drive) = (machine.memory(64, 0), machine.file(), machine.drive);
    let hw = machine.simulation.handle();
    let results = machine.run(3, move |cpu| {
        Box::pin(async move {
            let completions = IoCompletions::new();
            let request = |n: u64| {
                let memory = vec![Segment { at: at + n * PAGE, length: PAGE as u32 }];
                // Far apart, so that they are not merged.
                IoRequest { op: BlockOp::Read, offset: n * 16384, length: PAGE, memory, token: n }
            };
            file.submit(&cpu, (0..64).map(request).collect(), &completions);
            cpu.sleep(Duration::from_us(30)).await;
            hw.with(|fabric, scheduler| fabric.running(scheduler).remove_device(drive));
            let mut results = BTreeMap::new();
            for _ in 0..64 {
                let done = completions.next().await;
                assert!(results.insert(done.token, done.result).is_none(), "ended twice");
            }
            // The name is gone; who has it open hears that the device is.
            file.submit(&cpu, vec![request(0)], &completions);
            assert_eq!(completions.next().await.result, Err(Error::NoDevice));
            assert_eq!(file.sync(&cpu).await, Err(Error::NoDevice));
            results
        })
    });
    let failed = results.values().filter(|result| **result == Err(Error::NoDevice)).count();
    assert!(failed > 0 && failed < 64, "{failed} of 64 failed");
    assert!(results.values().all(|result| matches!(result, Ok(()) | Err(Error::NoDevice))));
    machine.settle();
    assert!(machine.kernel.face().open_block("nvme0n1").is_none());
    assert!(
        !machine.kernel.log().iter().any(|(_, line)| line.contains("left")),
        "{:?}",
        machine.kernel.log()
    );
    machine.plug(true);
    let memory = vec![Segment { at, length: 4096 }];
    assert_eq!(machine.direct(0, BlockOp::Read, 0, memory, 4096), Ok(()));
}

#[test]
fn memory_that_runs_out_is_told_to_who_asked() {
    let machine = Machine::new(&Setup { memory: Bytes::mib(4), ..Setup::default() });
    let (kernel, file) = (machine.kernel.face(), machine.file());
    let user = machine.memory(16, 1);
    machine.run(0, move |cpu| {
        Box::pin(async move {
            let mut held = Vec::new();
            while let Ok(pages) = kernel.alloc_pages(&cpu, 0, Policy::Local) {
                held.push(pages);
            }
            let memory = [Segment { at: user, length: 16384 }];
            assert_eq!(file.read(&cpu, 0, &memory).await, Err(Error::NoMemory));
            assert_eq!(file.write(&cpu, 0, &memory).await, Err(Error::NoMemory));
            held.drain(..16).for_each(|pages| kernel.free_pages(&cpu, pages));
            assert_eq!(file.read(&cpu, 0, &memory).await, Ok(()));
            // The cache gives its pages to who needs them more.
            for chunk in 0..32 {
                assert_eq!(file.read(&cpu, chunk * 16384, &memory).await, Ok(()));
            }
            held.into_iter().for_each(|pages| kernel.free_pages(&cpu, pages));
        })
    });
    assert_eq!(machine.mapped(), 0);
}

#[test]
fn a_controller_that_will_not_stop_reaches_no_memory_that_was_its() {
    let slow = |drive: &mut devices::nvme::NvmeParams| {
        drive.media.read = Duration::from_ms(20_000);
    };
    let machine = Machine::new(&Setup { mode: DmaMode::Strict, drive: slow, ..Setup::default() });
    // A drive that does not say it is disabled is waited for, for 10.5 s. The first is never answered; the others would arrive after the drive was given up.
    machine.control.inject(fault(FaultKind::Deaf));
    let (at, file) = (machine.memory(4, 0), machine.file());
    let results = machine.run(3, move |cpu| {
        Box::pin(async move {
            let completions = IoCompletions::new();
            let request = |n: u64| {
                let memory = vec![Segment { at: at + n * PAGE, length: PAGE as u32 }];
                IoRequest { op: BlockOp::Read, offset: n * 16384, length: PAGE, memory, token: n }
            };
            file.submit(&cpu, (0..4).map(request).collect(), &completions);
            let mut results = Vec::new();
            for _ in 0..4 {
                results.push(completions.next().await.result);
            }
            results
        })
    });
    assert!(results.iter().all(Result::is_err), "{results:?}");
    machine.settle();
    assert_eq!((machine.controller().state(), machine.is_master()), (ControllerState::Dead, false));
    assert_eq!((machine.kernel.iommu_faults(), machine.mapped()), (Vec::new(), 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Resets that the driver wants, resets of the bus and removals come in each other's way as they like.
    #[test]
    fn resets_and_removals_do_not_meet(
        kind in prop::sample::select(vec![FaultKind::Hang, FaultKind::Fatal, FaultKind::WrongPhase]),
        errors in prop::collection::vec(1_000u64..4_000, 0..3),
        removed_after in prop::option::of(prop_oneof![1_000u64..4_000, 100_000u64..110_000]),
    ) {
        let machine = Machine::new(&Setup { mode: DmaMode::Strict, ..Setup::default() });
        let (controller, drive, host) = (machine.controller(), machine.drive, machine.host);
        machine.control.inject(fault(kind));
        for after in errors.into_iter().filter(|_| Machine::HEARS_OF_BUS_ERRORS) {
            let hw = machine.simulation.handle();
            machine.simulation.spawn(async move {
                hw.sleep(Duration::from_us(after)).await;
                hw.with(|fabric, scheduler| {
                    let config = fabric.endpoint_mut(drive).core.registers.config_mut(FunctionIndex(0));
                    let at = config.aer_offset().unwrap();
                    config.update(at + aer::UNCORRECTABLE_STATUS, 0, uncorrectable::MALFORMED);
                    let from = Bdf::new(1, 0, 0);
                    let (host, mut cx) = fabric.host_in(host, scheduler);
                    host.port_mut(0).report(&mut cx, from, MessageCode::ERR_FATAL);
                });
            });
        }
        if let Some(after) = removed_after {
            let hw = machine.simulation.handle();
            machine.simulation.spawn(async move {
                hw.sleep(Duration::from_us(after)).await;
                hw.with(|fabric, scheduler| fabric.running(scheduler).remove_device(drive));
            });
        }
        let (at, file) = (machine.memory(16, 0), machine.file());
        let ended = Rc::new(RefCell::new(Vec::new()));
        for core in 0..4 {
            let (file, ended) = (Rc::clone(&file), Rc::clone(&ended));
            machine.kernel.spawn(TaskParams::named("reader").on(platform::cpu::CpuId(4 * core)), move |cpu| {
                Box::pin(async move {
                    let completions = IoCompletions::new();
                    for n in 0..20 {
                        let memory = vec![Segment { at: at + u64::from(core) * PAGE, length: PAGE as u32 }];
                        let offset = (u64::from(core) * 20 + n) * 16384;
                        let request = IoRequest { op: BlockOp::Read, offset, length: PAGE, memory, token: n };
                        file.submit(&cpu, vec![request], &completions);
                        let done = completions.next().await;
                        ended.borrow_mut().push((core, done.token));
                        cpu.sleep(Duration::from_us(150)).await;
                    }
                })
            });
        }
        machine.settle();
        let mut ended = ended.take();
        ended.sort_unstable();
        ended.dedup();
        prop_assert_eq!(ended.len(), 80, "{:?} {:?}", controller.counters(), machine.kernel.log());
        prop_assert_eq!(machine.kernel.iommu_faults(), Vec::new());
        let counters = controller.dma_counters();
        prop_assert_eq!(counters.maps, counters.unmaps);
        if removed_after.is_some() {
            prop_assert_eq!((controller.state(), counters.live()), (ControllerState::Dead, 0));
            // Its name is free when nobody knows it any more.
            drop((controller, file));
            machine.plug(true);
        } else {
            prop_assert_eq!(controller.state(), ControllerState::Live, "{:?}", machine.kernel.log());
        }
        let memory = vec![Segment { at, length: 4096 }];
        prop_assert_eq!(machine.direct(0, BlockOp::Read, 0, memory, 4096), Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// However requests are spread over cores and whatever goes wrong, each ends once, and nothing stays mapped.
    #[test]
    fn every_request_ends_once(
        mode in prop::sample::select(vec![DmaMode::Off, DmaMode::Strict, DmaMode::Lazy]),
        queues in 1u16..6,
        depth in prop::sample::select(vec![2u16, 4, 16, 256]),
        plans in prop::collection::vec((0u16..16, 0u64..900, 1u64..64, any::<bool>(), any::<bool>()), 1..60),
        faults in prop::collection::vec((0u64..12, 0usize..7), 0..4),
        removed_after in prop::option::of(0u64..3000),
    ) {
        const KINDS: [FaultKind; 7] = [
            FaultKind::Hang,
            FaultKind::DropCompletion,
            FaultKind::DropInterrupt,
            FaultKind::WrongPhase,
            FaultKind::WrongId,
            FaultKind::Fail(Status::INTERNAL_ERROR),
            FaultKind::Fatal,
        ];
        let mut setup = Setup { mode, ..Setup::default() };
        setup.options.queues = Some(queues);
        setup.options.queue_entries = depth;
        let machine = Machine::new(&setup);
        let controller = machine.controller();
        // Before anything can take the drive away. Both namespaces go through the same queues.
        let (first, second) = (machine.file(), machine.kernel.face().open_block("nvme0n2").unwrap());
        let at = machine.memory(64, 1);
        for (after, kind) in faults {
            machine.control.inject(Fault { queue: None, opcode: Some(READ_OPCODE), after, kind: KINDS[kind] });
        }
        if let Some(after) = removed_after {
            let (hw, drive) = (machine.simulation.handle(), machine.drive);
            machine.simulation.spawn(async move {
                hw.sleep(Duration::from_us(after)).await;
                hw.with(|fabric, scheduler| fabric.running(scheduler).remove_device(drive));
            });
        }
        let completions = IoCompletions::new();
        let ended = Rc::new(RefCell::new(BTreeMap::<u64, u32>::new()));
        for (n, &(core, block, blocks, write, other)) in plans.iter().enumerate() {
            let file = Rc::clone(if other { &second } else { &first });
            let completions = Rc::clone(&completions);
            machine.kernel.spawn(TaskParams::named("submitter").on(platform::cpu::CpuId(core)), move |cpu| {
                Box::pin(async move {
                    let length = blocks * 512;
                    let memory = vec![Segment { at, length: length as u32 }];
                    let op = if write { WRITE } else { BlockOp::Read };
                    let request = IoRequest { op, offset: block * 512, length, memory, token: n as u64 };
                    file.submit(&cpu, vec![request], &completions);
                })
            });
        }
        machine.settle();
        while let Some(done) = completions.try_next() {
            *ended.borrow_mut().entry(done.token).or_default() += 1;
        }
        let ended = ended.take();
        prop_assert_eq!(ended.len(), plans.len(), "{:?} {:?}", controller.counters(), machine.kernel.log());
        prop_assert!(ended.values().all(|times| *times == 1));
        let counters = controller.dma_counters();
        prop_assert_eq!(counters.maps, counters.unmaps);
    }
}

#[test]
fn a_reset_of_one_function_leaves_the_other_alone() {
    use platform::device::{FunctionIndex, Reset};
    // A port of its own for each controller of the drive.
    let machine = Machine::new(&Setup { drive: |drive| drive.ports = 2, ..Setup::default() });
    let (at, drive) = (machine.memory(64, 0), machine.drive);
    let file = machine.kernel.face().open_block("nvme1n1").unwrap();
    let hw = machine.simulation.handle();
    machine.run(3, move |cpu| {
        Box::pin(async move {
            let completions = IoCompletions::new();
            for op in [BlockOp::Read, WRITE] {
                let request = |n: u64| {
                    let memory = vec![Segment { at: at + n * PAGE, length: PAGE as u32 }];
                    IoRequest { op, offset: n * 16384, length: PAGE, memory, token: n }
                };
                file.submit(&cpu, (0..64).map(request).collect(), &completions);
                for _ in 0..4 {
                    cpu.sleep(Duration::from_us(7)).await;
                    let reset = Reset::Function(FunctionIndex(0));
                    hw.with(|fabric, scheduler| fabric.running(scheduler).reset_device(drive, reset));
                }
                for _ in 0..64 {
                    assert_eq!(completions.next().await.result, Ok(()));
                }
            }
        })
    });
    let counters = machine.driver.controllers()[1].counters();
    assert_eq!((counters.timeouts, counters.retries, counters.errors), (0, 0, 0));
}

#[test]
fn a_namespace_is_served_while_another_keeps_all_slots_busy() {
    let mut setup = Setup::default();
    setup.options.queues = Some(1);
    setup.options.queue_entries = 2;
    let machine = Machine::new(&setup);
    let at = machine.memory(16, 0);
    let completions = IoCompletions::new();
    let second = machine.kernel.face().open_block("nvme0n2").unwrap();
    for (number, file) in [machine.file(), second].into_iter().enumerate() {
        let completions = Rc::clone(&completions);
        machine.kernel.spawn(TaskParams::named("submitter").on(platform::cpu::CpuId(3)), move |cpu| {
            Box::pin(async move {
                let request = |n: u64| {
                    let token = 8 * number as u64 + n;
                    let memory = vec![Segment { at: at + token * PAGE, length: PAGE as u32 }];
                    IoRequest { op: BlockOp::Read, offset: n * 16384, length: PAGE, memory, token }
                };
                file.submit(&cpu, (0..8).map(request).collect(), &completions);
            })
        });
    }
    machine.settle();
    let mut ended: Vec<u64> = std::iter::from_fn(|| completions.try_next())
        .map(|done| {
            assert_eq!(done.result, Ok(()));
            done.token
        })
        .collect();
    // They take turns, so that neither waits for all of the other.
    assert!(ended.iter().take(8).any(|token| *token < 8) && ended.iter().take(8).any(|token| *token >= 8));
    ended.sort_unstable();
    assert_eq!(ended, (0..16).collect::<Vec<_>>());
}
