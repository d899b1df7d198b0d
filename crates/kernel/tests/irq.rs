//! Interrupts arrive where they should, as often as they should, and nowhere else.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::{self, Machine, Model, machine};
use kernel::DmaMode;
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::device::{DeviceBus, Dma, FunctionIndex, Token};
use platform::irq::{Affinity, IrqReturn, Napi, NapiHandle};
use platform::kernel::TaskParams;
use proptest::prelude::*;
use units::{Duration, Iova, Time};

/// Lets the n-th copier act as its firmware might.
fn device(machine: &Machine, n: usize, act: impl FnOnce(&mut dyn DeviceBus)) {
    let id = machine.copiers[n];
    machine.simulation.with(|fabric, scheduler| fabric.running(scheduler).with_device(id, |_, bus| act(bus)));
}

#[test]
fn an_interrupt_follows_its_affinity() {
    for mode in [DmaMode::Off, DmaMode::Strict] {
        let machine = machine(mode);
        *machine.driver.affinity.borrow_mut() = Affinity::Cpu(CpuId(2));
        machine.boot();
        let copier = machine.copier(0);
        let cores = machine.run(0, move |cpu| {
            Box::pin(async move {
                let mut cores = Vec::new();
                for to in [2, 11, 5] {
                    copier.device.set_irq_affinity(&cpu, copier.irqs[0], CpuId(to)).await.unwrap();
                    let bus = copier.memory.bus;
                    cores.push(copier.copy(&cpu, bus, bus, 64, 0).await.unwrap().0);
                }
                assert!(copier.device.set_irq_affinity(&cpu, copier.irqs[0], CpuId(77)).await.is_err());
                cores
            })
        });
        assert_eq!(cores, [2, 11, 5], "{mode:?}");
        assert_eq!(machine.kernel.irq_counters().spurious, 0);
    }
}

#[test]
fn a_full_remapping_table_gives_as_many_interrupts_as_it_has() {
    // Two entries, one of which is the port's; and eight: the copier asks for as many, or at least one.
    for (order, expected) in [(0, 1), (2, 7)] {
        let mut params = common::params(DmaMode::Strict);
        params.dma.interrupt_order = order;
        let machine = common::machine_with(params);
        machine.boot();
        for _ in 0..3 {
            let copier = machine.driver.bound.borrow().last().cloned().unwrap();
            assert_eq!(copier.irqs.len(), expected);
            machine.run(0, move |cpu| {
                Box::pin(async move {
                    for vector in 0..expected as u16 {
                        let bus = copier.memory.bus;
                        copier.copy(&cpu, bus, bus, 64, vector).await.unwrap();
                    }
                })
            });
            // What it had is free again.
            machine.unplug(machine.copiers[1]);
            machine.plug(machine.copiers[1]);
        }
    }
    let mut params = common::params(DmaMode::Strict);
    params.dma.interrupt_order = 0;
    let machine = common::machine_with(params);
    machine.driver.least.set(2);
    machine.boot();
    assert!(machine.driver.bound.borrow().is_empty());
    let refused = |line: &str| line.contains("copier failed");
    assert!(machine.kernel.log().iter().any(|(_, line)| refused(line)), "{:?}", machine.kernel.log());
    assert_eq!(machine.kernel.interrupts().len(), 2, "those of the ports");
}

#[test]
fn a_core_whose_vectors_are_taken_is_passed_over() {
    let machine =
        common::machine_of(common::params(DmaMode::Off), Model { vectors: 256, ..Model::default() });
    // The first core of the second copier's node.
    let full = CpuId(8);
    machine.driver.most.set(256);
    *machine.driver.affinity.borrow_mut() = Affinity::Cpu(full);
    machine.boot();
    // From 32 on, those below the timer's are for devices; one is the port's.
    let first = machine.copier(0);
    assert_eq!(first.irqs.len(), 0xec - 32 - 1);
    assert_eq!(machine.driver.bound.borrow().len(), 1, "no vector is left for the second");
    let last = first.irqs.len() as u16 - 1;
    let came_to = machine.run(0, move |cpu| {
        Box::pin(async move { first.copy(&cpu, first.memory.bus, first.memory.bus, 64, last).await })
    });
    assert_eq!(came_to, Ok(full));

    machine.driver.most.set(8);
    for (n, affinity) in [(1, Affinity::Spread), (2, Affinity::Cpus(vec![full]))] {
        *machine.driver.affinity.borrow_mut() = affinity;
        machine.unplug(machine.copiers[1]);
        machine.plug(machine.copiers[1]);
        let second = machine.copier(n);
        assert_eq!(second.irqs.len(), 8);
        let came_to = machine.run(0, move |cpu| {
            Box::pin(async move { second.copy(&cpu, second.memory.bus, second.memory.bus, 64, 0).await })
        });
        assert!(came_to.is_ok_and(|core| core > full), "another core of its node: {came_to:?}");
    }
}

#[test]
fn a_rogue_message_is_refused_where_interrupts_are_remapped() {
    for (mode, refused) in [(DmaMode::Off, false), (DmaMode::Strict, true)] {
        let machine = Machine::booted(mode);
        let before = machine.kernel.irq_counters();
        let message = Dma {
            function: FunctionIndex(0),
            // Core 5, and a vector of its own choice; then the remapping entry of somebody else.
            address: Iova::new(0xfee0_5000),
            length: 4,
            token: Token(9),
            attributes: Default::default(),
        };
        device(&machine, 0, |bus| bus.write(message, &0xf0u32.to_le_bytes()));
        machine.simulation.run();
        for entry in 0..64u64 {
            let address = Iova::new(0xfee0_0010 | entry << 5);
            device(&machine, 1, |bus| bus.write(Dma { address, ..message }, &[0; 4]));
            machine.simulation.run();
        }
        let after = machine.kernel.irq_counters();
        let blocked = machine.simulation.with(|f, _| f.host(machine.host).interrupts.counters().blocked);
        if refused {
            // Its own eight entries it may use; and the copier interrupts after each of the 65 writes.
            assert_eq!(after.spurious, before.spurious);
            assert_eq!((blocked, after.handled - before.handled), (1 + 64 - 8, 8 + 65));
        } else {
            assert!(after.spurious > before.spurious);
        }
    }
}

#[test]
fn a_threaded_handler_runs_as_a_task() {
    let machine = Machine::booted(DmaMode::Off);
    let copier = machine.copier(0);
    let ran = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&ran);
    copier.device.free_irq(copier.irqs[3]);
    let thread = Rc::new(move |cpu: Cpu| -> Async<'static, ()> {
        let seen = Rc::clone(&seen);
        Box::pin(async move {
            cpu.sleep(Duration::from_us(5)).await;
            seen.borrow_mut().push(cpu.id());
        })
    });
    copier
        .device
        .request_irq(copier.irqs[3], "slow", Rc::new(|_| IrqReturn::WakeThread), Some(thread))
        .unwrap();
    assert!(copier.device.request_irq(copier.irqs[3], "again", Rc::new(|_| IrqReturn::None), None).is_err());
    for _ in 0..3 {
        device(&machine, 0, |bus| bus.interrupt(FunctionIndex(0), 3));
        machine.simulation.run();
    }
    assert_eq!(*ran.borrow(), [CpuId(3); 3]);
}

/// Has so much work, and does it at a cost.
struct Work {
    left: Cell<usize>,
    polls: Cell<usize>,
    handle: RefCell<Option<NapiHandle>>,
}

impl Napi for Work {
    fn poll<'a>(&'a self, cpu: &'a Cpu, budget: usize) -> Async<'a, usize> {
        Box::pin(async move {
            self.polls.set(self.polls.get() + 1);
            let done = self.left.get().min(budget);
            for _ in 0..done {
                cpu.cycles(1_000).await;
                self.left.set(self.left.get() - 1);
            }
            if done < budget {
                self.handle.borrow().as_ref().unwrap().complete(cpu);
            }
            done
        })
    }
}

fn with_work(machine: &Machine, amount: usize) -> Rc<Work> {
    let work = Rc::new(Work { left: Cell::new(0), polls: Cell::new(0), handle: RefCell::new(None) });
    let napi = machine.kernel.face().napi(Rc::clone(&work) as Rc<dyn Napi>);
    napi.enable();
    *work.handle.borrow_mut() = Some(Rc::clone(&napi));
    let copier = machine.copier(0);
    copier.device.free_irq(copier.irqs[4]);
    let mine = Rc::clone(&work);
    let handler = Rc::new(move |cpu: &Cpu| {
        mine.left.set(mine.left.get() + amount);
        napi.schedule(cpu);
        IrqReturn::Handled
    });
    copier.device.request_irq(copier.irqs[4], "napi", handler, None).unwrap();
    work
}

#[test]
fn deferred_work_is_polled_to_its_end() {
    let machine = Machine::booted(DmaMode::Off);
    let work = with_work(&machine, 130);
    device(&machine, 0, |bus| bus.interrupt(FunctionIndex(0), 4));
    machine.simulation.run();
    assert_eq!((work.left.get(), work.polls.get()), (0, 3));
    let softirq = machine.kernel.core_times(CpuId(4)).of(Part::Softirq);
    assert!(softirq >= Duration::from_ns(400) * 130, "{softirq}");
}

#[test]
fn too_much_deferred_work_goes_to_a_task_and_others_get_their_turns() {
    let machine = Machine::booted(DmaMode::Off);
    let begin = machine.simulation.now();
    // 40 ms of work at 400 ns each.
    let work = with_work(&machine, 100_000);
    let task = machine.kernel.spawn(TaskParams::named("spin").on(CpuId(4)), |cpu| {
        Box::pin(async move {
            loop {
                cpu.cycles(100_000).await;
            }
        })
    });
    machine.simulation.run_until(begin + Duration::from_ms(1));
    device(&machine, 0, |bus| bus.interrupt(FunctionIndex(0), 4));
    machine.simulation.run_until(begin + Duration::from_ms(60));
    let spun = machine.kernel.tasks().iter().find(|t| t.id == task).unwrap().times.total();
    assert!(spun > Duration::from_ms(18), "{spun}");
    machine.simulation.run_until(begin + Duration::from_ms(120));
    assert_eq!(work.left.get(), 0);
}

#[test]
fn a_disabled_napi_is_not_polled() {
    let machine = Machine::booted(DmaMode::Off);
    let work = with_work(&machine, 10);
    let handle = work.handle.borrow().clone().unwrap();
    machine.run(0, move |_| Box::pin(async move { handle.disable().await }));
    device(&machine, 0, |bus| bus.interrupt(FunctionIndex(0), 4));
    machine.simulation.run();
    assert_eq!((work.left.get(), work.polls.get()), (10, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Spaced interrupts come once each; those raised behind a mask come once when it is lifted.
    #[test]
    fn every_interrupt_is_delivered_once(
        steps in prop::collection::vec((0u16..8, 0u8..3), 1..40),
        mode in prop::sample::select(vec![DmaMode::Off, DmaMode::Lazy]),
    ) {
        let machine = Machine::booted(mode);
        let copier = machine.copier(0);
        let mut expected = [0u64; 8];
        let mut masked = [false; 8];
        let mut pending = [false; 8];
        for (vector, what) in steps {
            let n = usize::from(vector);
            if what == 0 {
                device(&machine, 0, |bus| bus.interrupt(FunctionIndex(0), vector));
                if masked[n] { pending[n] = true } else { expected[n] += 1 }
            } else {
                masked[n] = what == 1;
                if !masked[n] && std::mem::take(&mut pending[n]) {
                    expected[n] += 1;
                }
                let (copier, on) = (Rc::clone(&copier), masked[n]);
                machine.run(0, move |cpu| Box::pin(async move {
                    copier.device.mask_irq(&cpu, copier.irqs[n], on);
                    cpu.sync().await;
                }));
            }
            machine.simulation.run();
        }
        let counts: Vec<u64> = machine.kernel.interrupts().iter()
            .filter(|line| copier.irqs.contains(&line.0)).map(|line| line.3).collect();
        prop_assert_eq!(counts, expected.to_vec());
        prop_assert!(machine.simulation.now() > Time::ZERO);
    }
}

#[test]
fn no_interrupt_is_lost_while_it_moves() {
    for mode in [DmaMode::Off, DmaMode::Strict] {
        let machine = Machine::booted(mode);
        let copier = machine.copier(0);
        let hw = machine.simulation.handle();
        let id = machine.copiers[0];
        let raised = 200;
        machine.simulation.spawn(async move {
            for _ in 0..raised {
                hw.sleep(Duration::from_ns(2_300)).await;
                hw.with(|fabric, scheduler| {
                    fabric.running(scheduler).with_device(id, |_, bus| bus.interrupt(FunctionIndex(0), 6));
                });
            }
        });
        let irq = copier.irqs[6];
        machine.run(0, move |cpu| {
            Box::pin(async move {
                for n in 0..60 {
                    copier.device.set_irq_affinity(&cpu, irq, CpuId(n * 7 % 16)).await.unwrap();
                }
            })
        });
        machine.simulation.run();
        let count = machine.kernel.interrupts().iter().find(|line| line.0 == irq).unwrap().3;
        let counters = machine.kernel.irq_counters();
        assert_eq!((count, counters.spurious), (raised, 0), "{mode:?}");
    }
}
