//! `Notify`: fairness, and no lost notification when a waiter gives up.

use engine::{Handle, JoinHandle, Notify, Scheduler, Seed, Simulation, World};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use units::Duration;

struct Nothing;

impl World for Nothing {
    type Event = ();
    fn handle(&mut self, (): (), _: &mut Scheduler<()>) {}
}

async fn pause(handle: &Handle<Nothing>, ps: u64) {
    handle.sleep(Duration::from_ps(ps)).await;
}

/// Adds a waiting task.
fn waiter(simulation: &Simulation<Nothing>, notify: &Rc<Notify>) -> JoinHandle<()> {
    let notify = Rc::clone(notify);
    simulation.spawn(async move { notify.notified().await })
}

fn finished(tasks: &[JoinHandle<()>]) -> Vec<bool> {
    tasks.iter().map(JoinHandle::is_finished).collect()
}

#[test]
fn a_notification_waits_for_the_next_who_comes() {
    let (simulation, notify) = (Simulation::new(Nothing), Rc::new(Notify::new()));
    let waiter = || waiter(&simulation, &notify);
    notify.notify_one();
    notify.notify_one();
    let mut tasks = vec![waiter(), waiter(), waiter()];
    simulation.run();
    assert_eq!(finished(&tasks), [true, false, false], "two are kept as one");
    notify.notify_one();
    simulation.run();
    assert_eq!(finished(&tasks), [true, true, false]);
    tasks.push(waiter());
    simulation.run();
    notify.notify_all();
    tasks.push(waiter());
    simulation.run();
    assert_eq!(finished(&tasks), [true, true, true, true, false], "none is kept for later");
}

#[test]
fn who_gives_up_after_being_told_passes_it_on() {
    let (simulation, notify) = (Simulation::new(Nothing), Rc::new(Notify::new()));
    let tasks = [waiter(&simulation, &notify), waiter(&simulation, &notify), waiter(&simulation, &notify)];
    simulation.run();
    // One gives up before it is notified, one after.
    tasks[0].abort();
    simulation.run();
    notify.notify_one();
    tasks[1].abort();
    simulation.run();
    assert!(tasks[2].is_finished());
}

/// Runs a random program. Returns what it did, in order.
fn random_program(seed: u64, tasks: u64) -> Vec<(u64, u64, &'static str)> {
    let simulation = Simulation::new(Nothing);
    let log = Rc::new(RefCell::new(Vec::new()));
    let (notify, running) = (Rc::new(Notify::new()), Rc::new(Cell::new(tasks)));
    for i in 0..tasks {
        let mut rng = Seed::new(seed).component(&format!("task{i}"));
        let (handle, log) = (simulation.handle(), Rc::clone(&log));
        let (notify, running) = (Rc::clone(&notify), Rc::clone(&running));
        simulation.spawn(async move {
            for _ in 0..20 {
                pause(&handle, rng.below(4) * 500).await;
                let what = if rng.bool() {
                    notify.notify_one();
                    "tells"
                } else {
                    notify.notify_one();
                    notify.notified().await;
                    "is told"
                };
                log.borrow_mut().push((handle.now().as_ps(), i, what));
            }
            running.set(running.get() - 1);
            // Nobody else would notify the remaining waiters.
            notify.notify_all();
        });
    }
    simulation.run();
    assert_eq!((running.get(), simulation.tasks()), (0, 0), "all ran to their ends");
    log.take()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_same_program_does_the_same(seed in any::<u64>(), tasks in 1..12u64) {
        prop_assert_eq!(random_program(seed, tasks), random_program(seed, tasks));
    }

    #[test]
    fn another_thread_does_the_same(seed in any::<u64>()) {
        let there = std::thread::spawn(move || random_program(seed, 6)).join().unwrap();
        prop_assert_eq!(random_program(seed, 6), there);
    }
}
