//! Tasks, timers and the world together.

use engine::{
    Cancelled, Completer, Deadlock, Handle, Oneshots, Scheduler, Simulation, World, oneshot, yield_now,
};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use units::{Duration, Time};

/// A world that answers requests and counts events.
#[derive(Default)]
struct Echo {
    requests: Vec<Option<Completer<u64>>>,
    handled: Vec<(u64, usize)>,
}

enum Event {
    Answer(usize),
    Lose(usize),
}

impl World for Echo {
    type Event = Event;
    fn handle(&mut self, event: Event, scheduler: &mut Scheduler<Event>) {
        let (Event::Answer(i) | Event::Lose(i)) = event;
        self.handled.push((scheduler.now().as_ps(), i));
        let completer = self.requests[i].take().unwrap();
        if let Event::Answer(_) = event {
            completer.complete(scheduler.now().as_ps());
        }
    }
}

fn request(handle: &Handle<Echo>, delay_ps: u64, event: fn(usize) -> Event) -> engine::Completion<u64> {
    handle.with(|world, scheduler| {
        let (completer, completion) = oneshot();
        world.requests.push(Some(completer));
        scheduler.after(Duration::from_ps(delay_ps), event(world.requests.len() - 1));
        completion
    })
}

fn simulation() -> Simulation<Echo> {
    Simulation::new(Echo::default())
}

#[test]
fn a_request_is_awaited() {
    let simulation = simulation();
    let handle = simulation.handle();
    let answer = simulation.block_on(async move { request(&handle, 70, Event::Answer).await });
    assert_eq!(answer, Ok(Ok(70)));
    assert_eq!(simulation.now(), Time::from_ps(70));
}

#[test]
fn a_lost_request_is_an_error() {
    let simulation = simulation();
    let handle = simulation.handle();
    let answer = simulation.block_on(async move { request(&handle, 70, Event::Lose).await });
    assert_eq!(answer, Ok(Err(Cancelled)));
}

#[test]
fn a_completion_dropped_early_is_no_fault() {
    let simulation = simulation();
    drop(request(&simulation.handle(), 5, Event::Answer));
    assert!(simulation.with(|world, _| world.requests[0].as_ref().unwrap().is_abandoned()));
    simulation.run();
    assert_eq!(simulation.processed(), 1);
}

#[test]
fn a_completion_can_be_looked_at() {
    let (completer, mut completion) = oneshot();
    assert_eq!(completion.try_take(), None);
    completer.complete(3);
    assert_eq!(completion.try_take(), Some(3));
}

#[test]
fn waiting_for_nothing_is_a_deadlock() {
    let simulation = simulation();
    let handle = simulation.handle();
    let outcome = simulation.block_on(async move {
        handle.sleep(Duration::from_ps(9)).await;
        std::future::pending::<()>().await;
    });
    assert_eq!(outcome, Err(Deadlock { at: Time::from_ps(9), waiting: 1 }));
}

#[test]
fn block_on_goes_no_further_than_its_task() {
    let simulation = simulation();
    let handle = simulation.handle();
    let ticks = Rc::new(Cell::new(0));
    let counter = Rc::clone(&ticks);
    let clock = simulation.handle();
    simulation.spawn(async move {
        loop {
            clock.sleep(Duration::from_ns(1)).await;
            counter.set(counter.get() + 1);
        }
    });
    simulation.block_on(async move { handle.sleep(Duration::from_ps(5_500)).await }).unwrap();
    assert_eq!((ticks.get(), simulation.now().as_ps()), (5, 5_500));
}

#[test]
fn run_until_stops_between_events_and_goes_on() {
    let simulation = simulation();
    let handle = simulation.handle();
    let task = simulation.spawn(async move {
        handle.sleep(Duration::from_us(30)).await;
        handle.now()
    });
    for us in [1, 4, 5, 8, 29] {
        let time = Time::ZERO + Duration::from_us(us);
        simulation.run_until(time);
        assert_eq!(simulation.now(), time);
        // Events scheduled between two stops must be queued before those already pending.
        drop(request(&simulation.handle(), 10, Event::Answer));
        assert!(!task.is_finished());
    }
    simulation.run_until(Time::ZERO + Duration::from_us(30));
    assert_eq!(task.take(), Some(Time::ZERO + Duration::from_us(30)), "due at the limit is due");
    assert_eq!(simulation.with(|world, _| world.handled.len()), 5);
}

#[test]
fn run_while_asks_before_every_event() {
    let simulation = simulation();
    let answers: Vec<_> = (1..10).map(|i| request(&simulation.handle(), i * 10, Event::Answer)).collect();
    simulation.run_while(|world| world.handled.len() < 4);
    assert_eq!(simulation.now(), Time::from_ps(40));
    drop(answers);
}

#[test]
fn tasks_woken_by_one_event_run_before_the_next_event_of_that_instant() {
    let simulation = simulation();
    let log = Rc::new(RefCell::new(Vec::new()));
    for name in ["a", "b"] {
        let (handle, log) = (simulation.handle(), Rc::clone(&log));
        simulation.spawn(async move {
            request(&handle, 10, Event::Answer).await.unwrap();
            log.borrow_mut().push((name, handle.with(|world, _| world.handled.len())));
            yield_now().await;
            log.borrow_mut().push((name, handle.with(|world, _| world.handled.len())));
        });
    }
    simulation.run();
    assert_eq!(*log.borrow(), [("a", 1), ("a", 1), ("b", 2), ("b", 2)]);
}

#[test]
fn ready_tasks_take_turns() {
    let simulation = simulation();
    let log = Rc::new(RefCell::new(Vec::new()));
    for name in 0..3 {
        let log = Rc::clone(&log);
        simulation.spawn(async move {
            for _ in 0..2 {
                log.borrow_mut().push(name);
                yield_now().await;
            }
        });
    }
    simulation.run();
    assert_eq!(*log.borrow(), [0, 1, 2, 0, 1, 2]);
}

#[test]
fn an_aborted_task_is_dropped_where_it_waits() {
    struct OnDrop(Handle<Echo>, Rc<Cell<Option<Time>>>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            // The world must not be borrowed here.
            self.1.set(Some(self.0.with(|_, scheduler| scheduler.now())));
        }
    }
    let simulation = simulation();
    let (handle, dropped) = (simulation.handle(), Rc::new(Cell::new(None)));
    let guard = OnDrop(simulation.handle(), Rc::clone(&dropped));
    let task = simulation.spawn(async move {
        let _guard = guard;
        handle.sleep(Duration::from_ms(1)).await;
    });
    simulation.run_until(Time::from_ps(10));
    simulation.with(|_, _| task.abort());
    assert!(!task.is_finished());
    simulation.run();
    assert!(task.is_finished() && simulation.tasks() == 0);
    assert_eq!(dropped.get(), Some(Time::from_ps(10)));
    assert_eq!(simulation.now(), Time::from_ps(10), "its timer went with it");
    assert_eq!(simulation.block_on(task), Ok(Err(Cancelled)));
}

#[test]
fn what_is_spawned_after_the_simulation_is_dropped() {
    let simulation = simulation();
    let handle = simulation.handle();
    drop(simulation);
    let held = Rc::new(());
    let guard = Rc::clone(&held);
    let task = handle.spawn(async move {
        let _guard = guard;
        core::future::pending::<()>().await;
    });
    assert!(task.is_finished());
    assert_eq!(Rc::strong_count(&held), 1);
}

#[test]
fn a_task_is_awaited_by_another() {
    let simulation = simulation();
    let handle = simulation.handle();
    let outcome = simulation.block_on(async move {
        let clock = handle.clone();
        let inner = handle.spawn(async move {
            clock.sleep(Duration::from_ps(3)).await;
            "done"
        });
        (inner.await, handle.now().as_ps())
    });
    assert_eq!(outcome, Ok((Ok("done"), 3)));
}

#[test]
fn dropping_the_simulation_drops_its_tasks() {
    let alive = Rc::new(());
    let simulation = simulation();
    for i in 0..3 {
        let (alive, handle) = (Rc::clone(&alive), simulation.handle());
        simulation.spawn(async move {
            let _alive = alive;
            request(&handle, 1_000 * i, Event::Answer).await.unwrap();
            std::future::pending::<()>().await;
        });
    }
    simulation.run_until(Time::from_ps(1_500));
    assert_eq!(Rc::strong_count(&alive), 4);
    drop(simulation);
    assert_eq!(Rc::strong_count(&alive), 1);
}

#[test]
#[should_panic(expected = "by its own tasks")]
fn a_task_cannot_run_its_simulation() {
    let simulation = Rc::new(simulation());
    let inner = Rc::clone(&simulation);
    simulation.spawn(async move { inner.run() });
    simulation.run();
}

/// Polls two futures with the task's own waker until the first is ready.
async fn race(a: impl Future, b: impl Future) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    std::future::poll_fn(move |context| {
        if a.as_mut().poll(context).is_ready() || b.as_mut().poll(context).is_ready() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

#[test]
fn the_loser_of_a_race_leaves_no_timer() {
    let simulation = simulation();
    let handle = simulation.handle();
    simulation.spawn(async move {
        race(handle.sleep(Duration::from_ms(100)), handle.sleep(Duration::from_ps(7))).await;
        race(handle.sleep(Duration::from_ps(7)), handle.sleep(Duration::from_us(100))).await;
    });
    simulation.run();
    assert_eq!(simulation.now(), Time::from_ps(14));
}

type Part = Pin<Box<dyn Future<Output = ()>>>;

/// Polls its parts with separate wakers, as `FuturesUnordered` does.
struct Each {
    parts: Vec<(Arc<Flag>, Option<Part>)>,
}

struct Flag(std::sync::Mutex<(bool, Option<Waker>)>);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        let mut flag = self.0.lock().unwrap();
        flag.0 = true;
        if let Some(waker) = flag.1.take() {
            waker.wake();
        }
    }
}

impl Future for Each {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        for (flag, part) in &mut self.parts {
            let woken = {
                let mut flag = flag.0.lock().unwrap();
                flag.1 = Some(context.waker().clone());
                std::mem::take(&mut flag.0)
            };
            if !woken {
                continue;
            }
            let waker = Waker::from(Arc::clone(flag));
            if let Some(future) = part
                && future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
            {
                *part = None;
            }
        }
        if self.parts.iter().all(|(_, part)| part.is_none()) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[test]
fn combinators_with_wakers_of_their_own_work() {
    let simulation = simulation();
    let handle = simulation.handle();
    let outcome = simulation.block_on(async move {
        let answer = request(&handle, 40, Event::Answer);
        let parts: Vec<Part> = vec![
            Box::pin(handle.sleep(Duration::from_ps(30))),
            Box::pin(handle.sleep(Duration::from_ps(20))),
            Box::pin(async move { assert_eq!(answer.await, Ok(40)) }),
        ];
        let flag = || Arc::new(Flag(std::sync::Mutex::new((true, None))));
        Each { parts: parts.into_iter().map(|part| (flag(), Some(part))).collect() }.await;
        handle.now().as_ps()
    });
    assert_eq!(outcome, Ok(40));
}

proptest! {
    #[test]
    fn stops_change_nothing(steps in prop::collection::vec((any::<bool>(), 0..5u64, 0..3_000u64), 1..100)) {
        let simulation = simulation();
        let mut expected = Vec::new();
        for (stop, scale, amount) in steps {
            // Picoseconds to milliseconds: every level of the queue.
            let delay = amount << (scale * 6);
            if stop {
                simulation.run_until(simulation.now() + Duration::from_ps(delay));
            } else {
                expected.push((simulation.now().as_ps() + delay, expected.len()));
                drop(request(&simulation.handle(), delay, Event::Answer));
            }
            let done = expected.iter().filter(|&&(time, _)| time < simulation.now().as_ps()).count();
            prop_assert!(simulation.with(|world, _| world.handled.len()) >= done);
        }
        simulation.run();
        expected.sort_unstable();
        prop_assert_eq!(simulation.with(|world, _| world.handled.clone()), expected);
    }

    #[test]
    fn timers_end_in_order_of_time_then_of_setting(delays in prop::collection::vec(0..60_000_000_000u64, 1..60)) {
        let simulation = simulation();
        let log = Rc::new(RefCell::new(Vec::new()));
        // Coarse, so that equal times occur.
        let delays: Vec<_> = delays.iter().map(|d| d / 3_000_000_000 * 1_000_000_000).collect();
        for (i, &delay) in delays.iter().enumerate() {
            let (handle, log) = (simulation.handle(), Rc::clone(&log));
            simulation.spawn(async move {
                handle.sleep(Duration::from_ps(delay)).await;
                log.borrow_mut().push((handle.now().as_ps(), i));
            });
        }
        simulation.run();
        let mut expected: Vec<_> = delays.into_iter().enumerate().map(|(i, d)| (d, i)).collect();
        expected.sort_unstable();
        prop_assert_eq!(&*log.borrow(), &expected);
    }
}

#[test]
fn oneshots_are_used_again_and_forget_what_they_were() {
    let oneshots = Oneshots::new();
    for round in 0..3 {
        let (completer, mut completion) = oneshots.pair();
        assert_eq!(completion.try_take(), None);
        completer.complete(round);
        assert_eq!(completion.try_take(), Some(round));
        // Dropped in either order, used or not, with or without their pool.
        let (completer, completion) = oneshots.pair();
        assert!(!completer.is_abandoned());
        drop(completion);
        assert!(completer.is_abandoned());
        let (completer, mut completion) = oneshots.pair();
        drop(completer);
        assert_eq!(completion.try_take(), None);
    }
    let (completer, mut completion) = oneshots.pair();
    drop(oneshots);
    completer.complete(9);
    assert_eq!(completion.try_take(), Some(9));
}

#[test]
fn tasks_of_a_handle_end_together_and_begin_no_more() {
    struct Tells(Rc<RefCell<Vec<&'static str>>>, Handle<Echo>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.borrow_mut().push("dropped");
            let told = Rc::clone(&self.0);
            self.1.spawn(async move { told.borrow_mut().push("begun too late") });
        }
    }
    let simulation = simulation();
    let told = Rc::new(RefCell::new(Vec::new()));
    let (all, one) = (simulation.handle(), simulation.handle().scoped());
    let tells = Tells(Rc::clone(&told), one.clone());
    let inner = one.clone();
    one.spawn(async move {
        let _tells = tells;
        // A task added by a task belongs to the same scope.
        let sleeps = inner.sleep(Duration::from_ns(100));
        inner.spawn(sleeps).await.unwrap();
        unreachable!("it is ended before");
    });
    let (others, clock) = (Rc::clone(&told), all.clone());
    all.spawn(async move {
        clock.sleep(Duration::from_ns(50)).await;
        one.end_all();
        clock.end_all();
        clock.sleep(Duration::from_ns(100)).await;
        others.borrow_mut().push("goes on");
    });
    simulation.run();
    assert_eq!(*told.borrow(), ["dropped", "goes on"]);
    assert_eq!(simulation.tasks(), 0);
}
