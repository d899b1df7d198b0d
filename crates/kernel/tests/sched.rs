//! Tasks share cores: fairly, by priority, within their affinity, and interrupts come first.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::{Machine, machine_with, params};
use kernel::{DmaMode, Kernel, KernelCosts, TaskInfo};
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::kernel::{Priority, TaskId, TaskParams};
use proptest::prelude::*;
use units::{Duration, Time};

fn info(kernel: &Kernel, id: TaskId) -> TaskInfo {
    kernel.tasks().into_iter().find(|task| task.id == id).unwrap()
}

/// Computes for ever in steps of 100 µs at 2.5 GHz.
fn spin(kernel: &Kernel, params: TaskParams) -> TaskId {
    kernel.spawn(params, |cpu| {
        Box::pin(async move {
            loop {
                cpu.cycles(250_000).await;
            }
        })
    })
}

fn free_of_cost() -> Machine {
    let mut params = params(DmaMode::Off);
    params.costs = KernelCosts::none();
    machine_with(params)
}

#[test]
fn equals_share_a_core_equally() {
    let machine = free_of_cost();
    let tasks: Vec<_> =
        (0..3).map(|n| spin(&machine.kernel, TaskParams::named(format!("spin{n}")).on(CpuId(2)))).collect();
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(900));
    for task in tasks {
        let used = info(&machine.kernel, task).times.total();
        assert!(used > Duration::from_ms(290) && used < Duration::from_ms(310), "{used}");
        // It either had the core or waited for it.
        let all = used + machine.kernel.task_waited(task);
        assert!(all >= Duration::from_us(899_900) && all <= Duration::from_us(900_100), "{all}");
    }
    assert_eq!(machine.kernel.core_times(CpuId(3)).total(), Duration::ZERO);
}

#[test]
fn who_comes_late_shares_with_who_has_computed_for_long() {
    let machine = free_of_cost();
    let used = |task| info(&machine.kernel, task).times.total();
    let shares = |tasks: [TaskId; 2]| {
        let before = tasks.map(used);
        machine.simulation.run_until(machine.simulation.now() + Duration::from_ms(100));
        for (task, before) in tasks.into_iter().zip(before) {
            let got = used(task) - before;
            assert!(got > Duration::from_ms(45) && got < Duration::from_ms(55), "{got}");
        }
    };
    let first = spin(&machine.kernel, TaskParams::named("first").on(CpuId(2)));
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(1_000));
    let second = spin(&machine.kernel, TaskParams::named("second").on(CpuId(2)));
    shares([first, second]);
    // What a task has used on one core is nothing to those of another that it comes to.
    let other = spin(&machine.kernel, TaskParams::named("other").on(CpuId(3)));
    machine.simulation.run_until(machine.simulation.now() + Duration::from_ms(10));
    machine.kernel.face().set_affinity(second, &[CpuId(3)]).unwrap();
    shares([second, other]);
    let sleeper = machine.kernel.spawn(TaskParams::named("sleeper").on(CpuId(4)), |cpu| {
        Box::pin(async move {
            cpu.cycles(2_500_000_000).await;
            cpu.sleep(Duration::from_ms(10)).await;
            loop {
                cpu.cycles(250_000).await;
            }
        })
    });
    machine.simulation.run_until(machine.simulation.now() + Duration::from_ms(1_005));
    machine.kernel.face().set_affinity(sleeper, &[CpuId(5)]).unwrap();
    let awake = spin(&machine.kernel, TaskParams::named("awake").on(CpuId(5)));
    machine.simulation.run_until(machine.simulation.now() + Duration::from_ms(20));
    shares([sleeper, awake]);
}

/// One task after the other is started on a core, each for a millisecond; a task that sleeps in between wakes at its times.
#[test]
fn who_keeps_starting_others_does_not_get_ahead_of_who_sleeps() {
    let machine = free_of_cost();
    let kernel = machine.kernel.face();
    machine.kernel.spawn(TaskParams::named("starter").on(CpuId(2)), |cpu| {
        Box::pin(async move {
            loop {
                let short =
                    |cpu: Cpu| -> Async<'static, ()> { Box::pin(async move { cpu.cycles(2_500_000).await }) };
                kernel.spawn(TaskParams::named("short").on(CpuId(2)), Box::new(short));
                cpu.sleep(Duration::from_us(1_010)).await;
            }
        })
    });
    let latest = Rc::new(Cell::new(Duration::ZERO));
    let told = Rc::clone(&latest);
    machine.kernel.spawn(TaskParams::named("sleeper").on(CpuId(2)), |cpu| {
        Box::pin(async move {
            loop {
                let due = cpu.now() + Duration::from_us(700);
                cpu.sleep(Duration::from_us(700)).await;
                // At first nobody has computed long enough to be behind.
                if due > Time::ZERO + Duration::from_ms(25) {
                    told.set(told.get().max(cpu.now().since(due)));
                }
            }
        })
    });
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(50));
    assert!(latest.get() < Duration::from_us(200), "it waited {}", latest.get());
}

#[test]
fn nice_tasks_get_less_and_idle_ones_nothing() {
    let machine = free_of_cost();
    let on = |name: &str, priority| TaskParams { priority, ..TaskParams::named(name).on(CpuId(0)) };
    let normal = spin(&machine.kernel, on("normal", Priority::Nice(0)));
    let nice = spin(&machine.kernel, on("nice", Priority::Nice(5)));
    let idle = spin(&machine.kernel, on("idle", Priority::Idle));
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(2_000));
    let used = |id| info(&machine.kernel, id).times.total().as_s_f64();
    let ratio = used(normal) / used(nice);
    // Five steps of 1.25.
    assert!((2.7..3.4).contains(&ratio), "{ratio}");
    assert!(used(idle) < 0.001);
}

#[test]
fn a_real_time_task_takes_the_core_at_once() {
    let machine = free_of_cost();
    spin(&machine.kernel, TaskParams::named("spin").on(CpuId(0)));
    let late = Rc::new(Cell::new(Duration::ZERO));
    let seen = Rc::clone(&late);
    let params = TaskParams { priority: Priority::RealTime(10), ..TaskParams::named("rt").on(CpuId(0)) };
    machine.kernel.spawn(params, move |cpu| {
        Box::pin(async move {
            for n in 1..50 {
                let due = Time::ZERO + Duration::from_us(333) * n;
                cpu.sleep_until(due).await;
                cpu.cycles(25).await;
                seen.set(seen.get().max(cpu.now().since(due)));
            }
        })
    });
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(50));
    assert_eq!(late.get(), Duration::from_ns(10));
}

#[test]
fn tasks_spread_over_idle_cores_and_balance_when_some_end() {
    let machine = free_of_cost();
    let tasks: Vec<_> =
        (0..32).map(|n| spin(&machine.kernel, TaskParams::named(format!("spin{n}")))).collect();
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(500));
    for task in tasks {
        let used = info(&machine.kernel, task).times.total();
        assert!(used > Duration::from_ms(200) && used < Duration::from_ms(300), "{used}");
    }
    for core in 0..16 {
        let busy = machine.kernel.core_times(CpuId(core)).total();
        assert!(busy > Duration::from_ms(499), "core {core}: {busy}");
    }
}

#[test]
fn an_idle_core_takes_waiting_tasks_of_its_node_first() {
    let machine = free_of_cost();
    // Fill all cores, two tasks each on cores 1 (node 0) and 9 (node 1); the one on core 0 ends.
    for core in 1..16 {
        spin(&machine.kernel, TaskParams::named("fixed").on(CpuId(core)));
    }
    machine.kernel.spawn(TaskParams::named("short").on(CpuId(0)), |cpu| {
        Box::pin(async move { cpu.cycles(25_000_000).await })
    });
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(1));
    let near =
        spin(&machine.kernel, TaskParams { cpus: vec![CpuId(1), CpuId(0)], ..TaskParams::named("near") });
    let far =
        spin(&machine.kernel, TaskParams { cpus: vec![CpuId(9), CpuId(0)], ..TaskParams::named("far") });
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(300));
    let (near, far) = (info(&machine.kernel, near), info(&machine.kernel, far));
    assert!(near.times.total() > Duration::from_ms(100), "{near:?}");
    assert!(far.times.total() > Duration::from_ms(50), "{far:?}");
}

#[test]
fn a_running_task_moves_when_its_affinity_does() {
    let machine = free_of_cost();
    let task = spin(&machine.kernel, TaskParams::named("spin").on(CpuId(4)));
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(10));
    let face = machine.kernel.face();
    face.set_affinity(task, &[CpuId(12)]).unwrap();
    assert!(face.set_affinity(task, &[CpuId(99)]).is_err());
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(20));
    let found = info(&machine.kernel, task);
    assert_eq!((found.cpu, found.migrations), (CpuId(12), 1));
    let there = machine.kernel.core_times(CpuId(12)).total();
    assert!(there > Duration::from_us(9_800), "{there}");
}

/// One that has to leave its core does not wait behind another while a core that it may use is idle.
#[test]
fn a_task_that_must_leave_goes_to_an_idle_core() {
    let machine = free_of_cost();
    let task = spin(&machine.kernel, TaskParams::named("spin").on(CpuId(12)));
    for core in [2, 3] {
        spin(&machine.kernel, TaskParams::named("busy").on(CpuId(core)));
    }
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(10));
    machine.kernel.face().set_affinity(task, &[CpuId(2), CpuId(3), CpuId(4)]).unwrap();
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(20));
    assert_eq!(info(&machine.kernel, task).cpu, CpuId(4));
}

#[test]
fn interrupts_stop_a_task_for_as_long_as_they_take() {
    let machine = machine_with(params(DmaMode::Off));
    machine.boot();
    *machine.driver.affinity.borrow_mut() = platform::irq::Affinity::Cpu(CpuId(6));
    // A boot with the vectors elsewhere: take the device out and put it back.
    machine.unplug(machine.copiers[0]);
    machine.plug(machine.copiers[0]);
    let copier = machine.driver.bound.borrow().last().cloned().unwrap();
    let begin = machine.simulation.now();
    let took = Rc::new(RefCell::new(None));
    let out = Rc::clone(&took);
    machine.kernel.spawn(TaskParams::named("compute").on(CpuId(6)), move |cpu| {
        Box::pin(async move {
            let start = cpu.now();
            cpu.cycles(2_500_000).await;
            *out.borrow_mut() = Some(cpu.now().since(start));
        })
    });
    machine.run(0, move |cpu| {
        Box::pin(async move {
            for _ in 0..100 {
                copier.copy(&cpu, copier.memory.bus, copier.memory.bus, 64, 0).await.unwrap();
            }
        })
    });
    machine.simulation.run();
    let irq = machine.kernel.core_times(CpuId(6)).of(Part::Irq);
    let took = took.borrow().unwrap();
    // 1 ms of computing, and the handlers: entry and exit are 900 cycles of 400 ps.
    assert_eq!(took, Duration::from_ms(1) + Duration::from_ps(900 * 400) * 100);
    assert!(irq >= Duration::from_ps(900 * 400) * 100);
    assert!(machine.simulation.now() > begin);
}

/// Time from a deadline until a task that sleeps `nap` runs again, after a first sleep that does not count.
fn late(costs: KernelCosts, nap: Duration) -> (Duration, u64) {
    let mut params = params(DmaMode::Off);
    params.costs = costs;
    let machine = machine_with(params);
    let late = Rc::new(Cell::new(Duration::ZERO));
    let told = Rc::clone(&late);
    machine.kernel.spawn(TaskParams::named("sleeper").on(CpuId(3)), move |cpu| {
        Box::pin(async move {
            cpu.sleep(Duration::from_us(50)).await;
            let due = cpu.now() + nap;
            cpu.sleep_until(due).await;
            cpu.sync().await;
            told.set(cpu.now().since(due));
        })
    });
    machine.simulation.run();
    (late.get(), machine.kernel.irq_counters().timer)
}

#[test]
fn a_sleeper_waits_for_interrupt_idle_loop_and_switch() {
    let costs = |change: fn(&mut KernelCosts)| {
        let mut costs = KernelCosts::none();
        change(&mut costs);
        costs
    };
    let (nap, cycle) = (Duration::from_us(20), Duration::from_ps(400));
    assert_eq!(late(KernelCosts::none(), nap), (Duration::ZERO, 2));
    assert_eq!(late(costs(|c| c.irq_entry = 600), nap).0, cycle * 600);
    assert_eq!(late(costs(|c| c.irq_exit = 300), nap).0, cycle * 300);
    let both = costs(|c| (c.idle_exit, c.irq_exit) = (500, 300));
    assert_eq!(late(both, nap).0, cycle * 800, "the interrupt ends the idle loop, not the task");
    assert_eq!(late(costs(|c| c.wake_up = 700), nap).0, cycle * 700);
    // The way into the idle loop passes while it sleeps.
    assert_eq!(late(costs(|c| c.context_switch = 2_000), nap).0, cycle * 2_000);
}

/// A task wakes another, pinned to its own core, so long after that has begun to wait. Returns when it runs.
fn woken_after(wait: Duration) -> Duration {
    let mut params = params(DmaMode::Off);
    params.costs = KernelCosts { context_switch: 2_000, idle_exit: 500, ..KernelCosts::none() };
    let machine = machine_with(params);
    let queue = Rc::new(platform::sync::WaitQueue::new());
    let (asleep, told) = (Rc::clone(&queue), Rc::new(Cell::new(Time::ZERO)));
    let (ran, is_woken) = (Rc::clone(&told), Rc::new(Cell::new(false)));
    let wakes = Rc::clone(&is_woken);
    let begin = Time::ZERO + Duration::from_us(10);
    machine.kernel.spawn(TaskParams::named("waiter").on(CpuId(3)), move |cpu| {
        Box::pin(async move {
            cpu.sync().await;
            cpu.stall(begin.since(cpu.now()));
            cpu.sync().await;
            asleep.wait_for(|| is_woken.get().then_some(())).await;
            cpu.sync().await;
            told.set(cpu.now());
        })
    });
    let hw = machine.simulation.handle();
    machine.simulation.spawn(async move {
        hw.sleep_until(begin + wait).await;
        wakes.set(true);
        queue.wake_all();
    });
    machine.simulation.run();
    ran.get().since(begin + wait)
}

#[test]
fn who_is_woken_on_the_way_to_the_idle_loop_waits_for_its_end() {
    let cycle = Duration::from_ps(400);
    assert_eq!(woken_after(Duration::from_us(5)), cycle * 2_500, "out of the idle loop, and a switch");
    // 800 ns of switching to the idle loop, 300 passed. The core has not halted yet.
    assert_eq!(woken_after(Duration::from_ns(300)), Duration::from_ns(500) + cycle * 2_000);
}

#[test]
fn a_core_is_not_booked_twice_while_it_waits_for_a_device() {
    let machine = machine_with(params(DmaMode::Off));
    machine.boot();
    *machine.driver.affinity.borrow_mut() = platform::irq::Affinity::Cpu(CpuId(6));
    machine.unplug(machine.copiers[0]);
    machine.plug(machine.copiers[0]);
    let copier = machine.driver.bound.borrow().last().cloned().unwrap();
    let before = machine.kernel.core_times(CpuId(6)).total();
    let begin = machine.simulation.now();
    // Reads from the device and more stores to it than the store buffer holds, on the core that its interrupts stop.
    for task in 0..2 {
        let device = Rc::clone(&copier);
        machine.kernel.spawn(TaskParams::named(format!("mmio{task}")).on(CpuId(6)), move |cpu| {
            Box::pin(async move {
                loop {
                    device.magic(&cpu).await;
                    for n in 0..200 {
                        device.registers.write_u64(&cpu, 0x40, n);
                        cpu.sync().await;
                    }
                    cpu.cycles(1_000).await;
                }
            })
        });
    }
    machine.kernel.spawn(TaskParams::named("copy").on(CpuId(0)), move |cpu| {
        Box::pin(async move {
            loop {
                let _ = copier.copy(&cpu, copier.memory.bus, copier.memory.bus, 64, 0).await;
            }
        })
    });
    for step in 1..=100 {
        machine.simulation.run_until(begin + Duration::from_us(100) * step);
        let times = machine.kernel.core_times(CpuId(6));
        let (booked, passed) = (times.total() - before, machine.simulation.now().since(begin));
        assert!(booked <= passed, "{booked} of {passed}");
        assert!(booked * 100 > passed * 98, "{booked} of {passed}");
    }
    let irq = machine.kernel.core_times(CpuId(6)).of(Part::Irq);
    assert!(irq > Duration::from_us(100), "{irq}");
}

#[test]
fn time_adds_up() {
    let mut params = params(DmaMode::Off);
    // Of no task and no interrupt is only the switch to the idle loop.
    params.costs.context_switch = 0;
    let machine = machine_with(params);
    machine.boot();
    let tasks: Duration = machine.kernel.tasks().iter().map(|task| task.times.total()).sum();
    let irqs: Duration = (0..16).map(|n| machine.kernel.core_times(CpuId(n)).of(Part::Irq)).sum();
    let threads = machine.kernel.busy();
    assert!(tasks + irqs >= threads && tasks <= threads, "{tasks} {irqs} {threads}");
}

#[test]
fn busy_cores_even_out() {
    let machine = free_of_cost();
    // 48 tasks on 16 cores, 16 of them confined to node 0. Between nodes a difference of two tasks a core is left.
    let confined: Vec<CpuId> = (0..8).map(CpuId).collect();
    let tasks: Vec<_> = (0..48)
        .map(|n| {
            let cpus = if n % 3 == 0 { confined.clone() } else { Vec::new() };
            spin(&machine.kernel, TaskParams { cpus, ..TaskParams::named(format!("spin{n}")) })
        })
        .collect();
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(1_000));
    let used: Vec<_> =
        tasks.iter().map(|&task| info(&machine.kernel, task).times.total().as_s_f64()).collect();
    let (least, most) = used.iter().fold((1.0f64, 0.0f64), |(l, m), &u| (l.min(u), m.max(u)));
    assert!(least > 0.24 && most < 0.55, "{least} {most}");
    assert!(used.iter().sum::<f64>() > 15.99);
}

/// Sleeps, then computes `us` microseconds; says when it had finished.
fn real_time(
    kernel: &Kernel,
    priority: u8,
    cpus: Vec<CpuId>,
    begin: Duration,
    us: u64,
) -> Rc<Cell<Option<Time>>> {
    let finished = Rc::new(Cell::new(None));
    let told = Rc::clone(&finished);
    let params = TaskParams { priority: Priority::RealTime(priority), cpus, ..TaskParams::named("rt") };
    kernel.spawn(params, move |cpu| {
        Box::pin(async move {
            cpu.sleep(begin).await;
            cpu.cycles(2_500 * us).await;
            told.set(Some(cpu.now()));
        })
    });
    finished
}

#[test]
fn real_time_tasks_wait_for_none_but_more_urgent_ones() {
    let machine = free_of_cost();
    for core in 0..16 {
        spin(&machine.kernel, TaskParams::named("nice").on(CpuId(core)));
    }
    let us = |us: u64| Time::ZERO + Duration::from_us(us);
    machine.simulation.run_until(us(10_000));
    let at = |task: &Rc<Cell<Option<Time>>>| task.get().map(|at| at.since(us(10_000)));
    let pair = vec![CpuId(2), CpuId(3)];
    // Two that wake at once where either could run on either core, and one that must run on one of them a little later:
    // it pushes a lesser one away, to the core whose work is less urgent still.
    let first = real_time(&machine.kernel, 10, pair.clone(), Duration::from_us(100), 400);
    let pinned = real_time(&machine.kernel, 50, vec![CpuId(2)], Duration::from_us(200), 400);
    let second = real_time(&machine.kernel, 20, pair.clone(), Duration::from_us(300), 400);
    machine.simulation.run_until(us(20_000));
    assert_eq!(at(&pinned), Some(Duration::from_us(600)));
    assert_eq!(at(&second), Some(Duration::from_us(700)), "core 3 leaves the first for it");
    // The first ran from 100 to 300 and goes on when the pinned one has ended, at 600.
    assert_eq!(at(&first), Some(Duration::from_us(800)));
    // As many as there are cores all run at once.
    let all: Vec<_> =
        (0..16).map(|_| real_time(&machine.kernel, 1, Vec::new(), Duration::from_us(100), 400)).collect();
    machine.simulation.run_until(us(30_000));
    for task in all {
        assert_eq!(task.get(), Some(us(20_500)));
    }
}

#[test]
fn a_core_that_falls_idle_takes_the_most_urgent_first() {
    let machine = free_of_cost();
    // Both cores are taken, the second for 1 ms; a nice and an idle task wait for the first.
    for core in 0..2 {
        machine.kernel.spawn(
            TaskParams { priority: Priority::RealTime(1), ..TaskParams::named("rt").on(CpuId(core)) },
            move |cpu| Box::pin(async move { cpu.cycles(2_500_000 * (1 + 9 * u64::from(core == 0))).await }),
        );
    }
    let waits = |name: &str, priority| {
        spin(&machine.kernel, TaskParams { priority, ..TaskParams::named(name).on(CpuId(0)) })
    };
    let nice = waits("nice", Priority::Nice(0));
    let idle = waits("idle", Priority::Idle);
    machine.simulation.run_until(Time::ZERO + Duration::from_us(500));
    for task in [nice, idle] {
        machine.kernel.face().set_affinity(task, &[CpuId(0), CpuId(1)]).unwrap();
    }
    machine.simulation.run_until(Time::ZERO + Duration::from_ms(9));
    assert!(info(&machine.kernel, nice).times.total() > Duration::from_ms(7));
    assert!(info(&machine.kernel, idle).times.total() < Duration::from_ms(1));
}

#[test]
fn what_is_kept_of_ended_tasks_and_of_the_log_does_not_grow() {
    let machine = free_of_cost();
    let face = machine.kernel.face();
    for round in 0..5 {
        for n in 0..2_000u64 {
            let line = face.clone();
            machine.kernel.spawn(TaskParams::named("short"), move |cpu| {
                Box::pin(async move {
                    cpu.cycles(2_500).await;
                    line.log(format!("{round} {n}"));
                })
            });
        }
        machine.simulation.run();
    }
    assert!(machine.kernel.tasks().len() < 1_100, "{} tasks", machine.kernel.tasks().len());
    assert!(machine.kernel.log().len() < 5_000, "{} lines", machine.kernel.log().len());
    assert_eq!(machine.kernel.log().last().map(|(_, line)| line.as_str()), Some("4 1999"));
    // None of their time is forgotten.
    let short = machine.kernel.task_times()["short"];
    assert_eq!((short.tasks, short.times.total()), (10_000, Duration::from_us(10_000)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Every task gets done just what it asked for, where it may, and no core does two things at once.
    #[test]
    fn all_work_gets_done_once(
        tasks in prop::collection::vec(
            (
                prop::collection::vec((0u64..3_000_000, 0u64..4_000), 1..6),
                prop::collection::vec(0u16..16, 0..4),
                prop::sample::select(vec![
                    Priority::Idle, Priority::Nice(0), Priority::Nice(-5), Priority::Nice(10), Priority::RealTime(3),
                ]),
            ),
            1..40,
        ),
        moves in prop::collection::vec((0usize..40, prop::collection::vec(0u16..16, 1..3), 0u64..20), 0..10),
    ) {
        let machine = free_of_cost();
        let mut expected = Vec::new();
        for (n, (steps, cpus, priority)) in tasks.iter().enumerate() {
            let cycles: u64 = steps.iter().map(|s| s.0).sum();
            let params = TaskParams {
                priority: *priority,
                cpus: cpus.iter().copied().map(CpuId).collect(),
                ..TaskParams::named(format!("task{n}"))
            };
            let steps = steps.clone();
            let id = machine.kernel.spawn(params, move |cpu| Box::pin(async move {
                for (cycles, pause) in steps {
                    cpu.work(cycles);
                    cpu.sync().await;
                    cpu.sleep(Duration::from_us(pause)).await;
                }
            }));
            expected.push((id, Duration::from_ps(cycles * 400)));
        }
        let face = machine.kernel.face();
        for (which, cpus, at) in moves {
            machine.simulation.run_until(machine.simulation.now() + Duration::from_ms(at));
            let task = expected[which % expected.len()].0;
            let cpus: Vec<_> = cpus.into_iter().map(CpuId).collect();
            // A task that has ended is no more.
            let ended = info(&machine.kernel, task).ended;
            prop_assert_eq!(face.set_affinity(task, &cpus).is_err(), ended);
        }
        machine.simulation.run();
        for (id, time) in expected {
            let found = info(&machine.kernel, id);
            prop_assert!(found.ended);
            prop_assert_eq!(found.times.total(), time);
        }
        let elapsed = machine.simulation.now().since(Time::ZERO);
        for core in 0..16 {
            prop_assert!(machine.kernel.core_times(CpuId(core)).total() <= elapsed);
        }
    }
}
