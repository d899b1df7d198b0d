//! What tasks share: fairness, and that nothing is lost when someone gives up waiting.

use engine::sync::SendError;
use engine::{
    Handle, JoinHandle, Mutex, Notify, Scheduler, Seed, Semaphore, Signal, Simulation, World, channel,
    unbounded,
};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use units::{Duration, Time};

struct Nothing;

impl World for Nothing {
    type Event = ();
    fn handle(&mut self, (): (), _: &mut Scheduler<()>) {}
}

type Log<T> = Rc<RefCell<Vec<T>>>;

async fn pause(handle: &Handle<Nothing>, ps: u64) {
    handle.sleep(Duration::from_ps(ps)).await;
}

#[test]
fn a_mutex_serves_in_order_of_arrival() {
    let simulation = Simulation::new(Nothing);
    let (mutex, log) = (Rc::new(Mutex::new(0)), Log::default());
    for i in 0..5u64 {
        let (handle, mutex, log) = (simulation.handle(), Rc::clone(&mutex), Rc::clone(&log));
        simulation.spawn(async move {
            pause(&handle, 100 - i).await;
            let mut value = mutex.lock().await;
            pause(&handle, 1_000).await;
            *value += 1;
            log.borrow_mut().push((i, *value));
        });
    }
    simulation.run();
    assert_eq!(*log.borrow(), [(4, 1), (3, 2), (2, 3), (1, 4), (0, 5)]);
}

#[test]
fn who_comes_late_does_not_overtake() {
    let simulation = Simulation::new(Nothing);
    let semaphore = Rc::new(Semaphore::new(2));
    let log = Log::default();
    let worker = |at: u64, permits: usize| {
        let (handle, semaphore, log) = (simulation.handle(), Rc::clone(&semaphore), Rc::clone(&log));
        simulation.spawn(async move {
            pause(&handle, at).await;
            let _permit = semaphore.acquire(permits).await;
            log.borrow_mut().push((handle.now().as_ps(), permits));
            pause(&handle, 100).await;
        });
    };
    worker(1, 1);
    worker(2, 2);
    worker(3, 1);
    simulation.run_until(Time::from_ps(50));
    assert_eq!(semaphore.available(), 1);
    assert!(semaphore.try_acquire(1).is_none(), "one is free, but others were first");
    simulation.run();
    assert_eq!(*log.borrow(), [(1, 1), (101, 2), (201, 1)]);
    assert_eq!((semaphore.available(), semaphore.waiting()), (2, 0));
}

#[test]
fn a_request_given_up_lets_those_behind_it_through() {
    let simulation = Simulation::new(Nothing);
    let semaphore = Rc::new(Semaphore::new(1));
    let acquire = |permits: usize| {
        let semaphore = Rc::clone(&semaphore);
        simulation.spawn(async move { semaphore.acquire(permits).await.forget() })
    };
    let (greedy, modest) = (acquire(5), acquire(1));
    simulation.run();
    assert!(!greedy.is_finished() && !modest.is_finished());
    greedy.abort();
    simulation.run();
    assert!(modest.is_finished());
    assert_eq!(semaphore.available(), 0);
}

#[test]
fn permits_granted_to_someone_who_has_gone_return() {
    let simulation = Simulation::new(Nothing);
    let semaphore = Rc::new(Semaphore::new(0));
    let waiter = Rc::clone(&semaphore);
    let task = simulation.spawn(async move { waiter.acquire(1).await.forget() });
    simulation.run();
    task.abort();
    // The grant comes before the abort takes effect.
    semaphore.release(1);
    assert_eq!(semaphore.available(), 0);
    simulation.run();
    assert_eq!(semaphore.available(), 1);
}

#[test]
fn a_signal_is_a_level() {
    let simulation = Simulation::new(Nothing);
    let (signal, passed) = (Rc::new(Signal::new()), Rc::new(Cell::new(0)));
    let waiter = || {
        let (signal, passed) = (Rc::clone(&signal), Rc::clone(&passed));
        simulation.spawn(async move {
            signal.wait().await;
            passed.set(passed.get() + 1);
        })
    };
    let (_a, _b) = (waiter(), waiter());
    simulation.run();
    assert_eq!(passed.get(), 0);
    signal.raise();
    signal.lower();
    let late = waiter();
    simulation.run();
    assert_eq!(passed.get(), 2, "who waited saw the edge");
    assert!(!late.is_finished());
    signal.raise();
    let at_once = waiter();
    simulation.run();
    assert!(late.is_finished() && at_once.is_finished() && signal.is_raised());
}

#[test]
fn a_notification_waits_for_the_next_who_comes() {
    let simulation = Simulation::new(Nothing);
    let notify = Rc::new(Notify::new());
    let waiter = || {
        let notify = Rc::clone(&notify);
        simulation.spawn(async move { notify.notified().await })
    };
    let finished = |tasks: &[JoinHandle<()>]| tasks.iter().map(JoinHandle::is_finished).collect::<Vec<_>>();
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
fn a_full_channel_makes_senders_wait_in_order() {
    let simulation = Simulation::new(Nothing);
    let (sender, mut receiver) = channel(2);
    for i in 0..4 {
        let sender = sender.clone();
        simulation.spawn(async move { sender.send(i).await.unwrap() });
    }
    simulation.run();
    assert_eq!((receiver.len(), simulation.tasks()), (2, 2));
    assert_eq!(sender.try_send(9), Err(SendError::Full(9)));
    drop(sender);
    let handle = simulation.handle();
    let all = simulation.block_on(async move {
        let mut all = Vec::new();
        while let Some(value) = receiver.recv().await {
            all.push(value);
            pause(&handle, 1).await;
        }
        all
    });
    assert_eq!(all, Ok(vec![0, 1, 2, 3]));
}

#[test]
fn senders_learn_that_the_receiver_has_gone() {
    let simulation = Simulation::new(Nothing);
    let (sender, receiver) = channel(1);
    sender.try_send(1).unwrap();
    let waiting = sender.clone();
    let task = simulation.spawn(async move { waiting.send(2).await });
    simulation.run();
    drop(receiver);
    simulation.run();
    assert_eq!(task.take(), Some(Err(SendError::Closed(2))));
    assert_eq!(sender.try_send(3), Err(SendError::Closed(3)));
}

#[test]
fn an_unbounded_channel_never_waits() {
    let (sender, mut receiver) = unbounded();
    (0..1000).for_each(|i| sender.try_send(i).unwrap());
    assert!((0..1000).all(|i| receiver.try_recv() == Some(i)) && receiver.is_empty());
}

/// A program that uses everything, at random; what it did, in order.
fn random_program(seed: u64, tasks: u64) -> Vec<(u64, u64, &'static str)> {
    let simulation = Simulation::new(Nothing);
    let log = Log::default();
    let mutex = Rc::new(Mutex::new(()));
    let semaphore = Rc::new(Semaphore::new(3));
    let notify = Rc::new(Notify::new());
    let (sender, mut receiver) = channel(2);
    let say = {
        let (handle, log) = (simulation.handle(), Rc::clone(&log));
        move |who: u64, what| log.borrow_mut().push((handle.now().as_ps(), who, what))
    };
    for i in 0..tasks {
        let mut rng = Seed::new(seed).component(&format!("task{i}"));
        let (handle, say, sender) = (simulation.handle(), say.clone(), sender.clone());
        let (mutex, semaphore, notify) = (Rc::clone(&mutex), Rc::clone(&semaphore), Rc::clone(&notify));
        simulation.spawn(async move {
            for _ in 0..20 {
                let pause_ps = rng.below(4) * 500;
                match rng.below(5) {
                    0 => {
                        let _guard = mutex.lock().await;
                        say(i, "locked");
                        pause(&handle, pause_ps).await;
                    }
                    1 => {
                        let _permit = semaphore.acquire(1 + rng.below(3) as usize).await;
                        say(i, "acquired");
                        pause(&handle, pause_ps).await;
                    }
                    2 => {
                        sender.send(i).await.unwrap();
                        say(i, "sent");
                    }
                    3 => {
                        notify.notify_one();
                        notify.notified().await;
                        say(i, "notified");
                    }
                    _ => pause(&handle, pause_ps).await,
                }
            }
        });
    }
    drop(sender);
    simulation.spawn(async move {
        while let Some(from) = receiver.recv().await {
            say(from, "received");
        }
    });
    simulation.run();
    assert_eq!(simulation.tasks(), 0, "all ran to their ends");
    assert_eq!((semaphore.available(), semaphore.waiting()), (3, 0));
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

    #[test]
    fn permits_are_conserved(holds in prop::collection::vec((1..4usize, 0..50u64, 0..50u64, any::<bool>()), 1..40)) {
        let simulation = Simulation::new(Nothing);
        let semaphore = Rc::new(Semaphore::new(4));
        let in_use = Rc::new(Cell::new(0));
        let mut gone = Vec::new();
        for &(permits, arrive, hold, give_up) in &holds {
            let (handle, semaphore, in_use) = (simulation.handle(), Rc::clone(&semaphore), Rc::clone(&in_use));
            let task = simulation.spawn(async move {
                pause(&handle, arrive).await;
                let permit = semaphore.acquire(permits).await;
                in_use.set(in_use.get() + permits);
                assert!(in_use.get() <= 4);
                // Not a guard: an aborted holder is told apart by the number of permits alone.
                if !give_up {
                    pause(&handle, hold).await;
                }
                in_use.set(in_use.get() - permits);
                drop(permit);
            });
            if give_up {
                gone.push(task);
            }
        }
        simulation.run_until(Time::from_ps(25));
        gone.iter().for_each(JoinHandle::abort);
        simulation.run();
        prop_assert_eq!((semaphore.available(), semaphore.waiting(), simulation.tasks()), (4, 0, 0));
    }
}
