//! A program finds out where things are and puts itself, its memory and its interrupts elsewhere.

use crate::common::{Machine, machine, machine_with, params};
use kernel::{DmaMode, KernelCosts};
use platform::Error;
use platform::cpu::{CpuId, Node};
use platform::irq::Irq;
use platform::kernel::{Priority, TaskId, TaskParams};
use platform::memory::{PhysAddr, Policy};
use units::{Duration, Time};

/// The number of the task with a name.
fn task(kernel: &dyn platform::kernel::Kernel, name: &str) -> TaskId {
    kernel.tasks().into_iter().find(|task| task.name == name).expect("it is there").id
}

#[test]
fn memory_comes_from_where_a_program_lets_it_come_from() {
    let machine = machine(DmaMode::Off);
    let face = machine.kernel.face();
    assert_eq!(face.nodes(), 2, "this needs two nodes");
    let nodes = machine.run(0, move |cpu| {
        Box::pin(async move {
            let me = face.tasks().into_iter().rfind(|task| task.cpu == cpu.id() && !task.ended).unwrap();
            let mut nodes = Vec::new();
            for policy in [
                Policy::Task,
                Policy::Bind(Node(1)),
                Policy::Preferred(Node(0)),
                Policy::Bind(Node(1)),
                Policy::Local,
            ] {
                face.set_policy(me.id, policy).unwrap();
                let pages = face.alloc_pages(&cpu, 0, Policy::Task).unwrap();
                nodes.push(face.node_of_address(pages.start + 100));
                face.free_pages(&cpu, pages);
            }
            assert_eq!(face.set_policy(me.id, Policy::Bind(Node(2))), Err(Error::Invalid));
            assert_eq!(face.set_policy(TaskId(9_999), Policy::Local), Err(Error::Invalid));
            assert_eq!(face.node_of_address(PhysAddr(u64::MAX)), None);
            nodes
        })
    });
    let on = |node| Some(Node(node));
    assert_eq!(nodes, [on(0), on(1), on(0), on(1), on(0)]);
}

/// Two tasks on a core, one of which is made less urgent and then more while they compute.
#[test]
fn a_task_gets_what_its_new_priority_gives_it() {
    let mut params = params(DmaMode::Off);
    params.costs = KernelCosts::none();
    let machine: Machine = machine_with(params);
    let face = machine.kernel.face();
    let spin = |name: &str| {
        machine.kernel.spawn(TaskParams::named(name).on(CpuId(2)), |cpu| {
            Box::pin(async move {
                loop {
                    cpu.cycles(250_000).await;
                }
            })
        })
    };
    let (first, second) = (spin("first"), spin("second"));
    assert_eq!((task(&*face, "first"), task(&*face, "second")), (first, second));
    let busy = |id| face.tasks().into_iter().find(|task| task.id == id).unwrap().busy;
    let mut now = Time::ZERO;
    let mut share = |ms| {
        let before = busy(first);
        now += Duration::from_ms(ms);
        machine.simulation.run_until(now);
        (busy(first) - before).as_ns_f64() / Duration::from_ms(ms).as_ns_f64()
    };
    let near = |share: f64, expected: f64| assert!((share - expected).abs() < 0.04, "{share} {expected}");
    near(share(200), 0.5);
    // Five steps of nice: 335 to 1024 (sched(7): a step is a quarter).
    face.set_priority(first, Priority::Nice(5)).unwrap();
    near(share(400), 0.25);
    face.set_priority(first, Priority::RealTime(1)).unwrap();
    near(share(100), 1.0);
    face.set_priority(first, Priority::Idle).unwrap();
    near(share(100), 0.0);
    face.set_priority(first, Priority::Nice(0)).unwrap();
    near(share(200), 0.5);
    assert_eq!(face.set_priority(first, Priority::Nice(20)), Err(Error::Invalid));
    assert_eq!(face.set_priority(first, Priority::RealTime(0)), Err(Error::Invalid));
    let state = face.tasks().into_iter().find(|task| task.id == second).unwrap();
    assert_eq!((state.priority, state.cpu, state.cpus), (Priority::Nice(0), CpuId(2), vec![CpuId(2)]));
}

#[test]
fn a_program_moves_an_interrupt() {
    for mode in [DmaMode::Off, DmaMode::Strict] {
        let machine = machine(mode);
        machine.boot();
        let (face, copier) = (machine.kernel.face(), machine.copier(0));
        let irq = copier.irqs[0];
        let cores = machine.run(0, move |cpu| {
            Box::pin(async move {
                let state = || face.interrupts().into_iter().find(|state| state.irq == irq).unwrap();
                let mut cores = Vec::new();
                for to in [9, 3] {
                    face.set_irq_affinity(&cpu, irq, CpuId(to)).await.unwrap();
                    let (bus, before) = (copier.memory.bus, state().count);
                    cores.push(copier.copy(&cpu, bus, bus, 64, 0).await.unwrap().0);
                    assert_eq!((state().cpu, state().count), (CpuId(to), before + 1));
                }
                assert_eq!(face.set_irq_affinity(&cpu, irq, CpuId(77)).await, Err(Error::Invalid));
                assert_eq!(face.set_irq_affinity(&cpu, Irq(9_999), CpuId(1)).await, Err(Error::Invalid));
                cores
            })
        });
        assert_eq!(cores, [9, 3], "{mode:?}");
    }
}
