//! A simulation: a world, its clock and its tasks.

use crate::queue::{Entry, Scheduler};
use crate::task::{Executor, JoinHandle, Scope, Wakeup};
use crate::wheel::Key;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::rc::Rc;
use units::{Duration, Time};

/// The hardware: state that events change.
pub trait World {
    /// Events of the world.
    type Event;

    /// Handles `event` at the current time.
    fn handle(&mut self, event: Self::Event, scheduler: &mut Scheduler<Self::Event>);
}

/// Tasks are waiting, but no event or timer is left to wake them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// Time of the last event or timer.
    pub at: Time,
    /// Number of tasks that wait forever.
    pub waiting: usize,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing is left to happen after {}, yet {} tasks wait", self.at, self.waiting)
    }
}

impl core::error::Error for Deadlock {}

struct State<W: World> {
    world: W,
    scheduler: Scheduler<W::Event>,
}

struct Shared<W: World> {
    state: RefCell<State<W>>,
    /// The scheduler's clock, readable while the world is borrowed.
    now: Cell<Time>,
    executor: Rc<Executor>,
    running: Cell<bool>,
}

impl<W: World> Shared<W> {
    fn with<R>(&self, f: impl FnOnce(&mut W, &mut Scheduler<W::Event>) -> R) -> R {
        let State { world, scheduler } = &mut *self.state.borrow_mut();
        f(world, scheduler)
    }

    /// Runs until `stop` returns true (called before every event, when no task is ready), or nothing is due at or
    /// before `limit`. Returns whether `stop` ended the run.
    fn drive(&self, limit: Time, mut stop: impl FnMut(&W) -> bool) -> bool {
        assert!(!self.running.replace(true), "a simulation cannot be run by its own tasks");
        let running = Running(&self.running);
        let stopped = 'tasks: loop {
            self.executor.run_ready();
            let State { world, scheduler } = &mut *self.state.borrow_mut();
            loop {
                if stop(world) {
                    break 'tasks true;
                }
                let Some((time, entry)) = scheduler.pop_entry(limit) else { break 'tasks false };
                self.now.set(time);
                match entry.take() {
                    Some(Entry::World(event)) => world.handle(event, scheduler),
                    Some(Entry::Wake(wakeup)) => wakeup.wake(),
                    None => unreachable!("a pending node has a value"),
                }
                if self.executor.has_ready() {
                    continue 'tasks;
                }
            }
        };
        drop(running);
        stopped
    }
}

/// Clears the running flag when dropped, also on a panic.
struct Running<'a>(&'a Cell<bool>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// A world with its clock and tasks. Single-threaded.
///
/// Dropping it drops its tasks. A [`Handle`] stored in the world itself would keep the world alive forever, so only
/// tasks should hold handles.
pub struct Simulation<W: World> {
    shared: Rc<Shared<W>>,
}

impl<W: World> Drop for Simulation<W> {
    fn drop(&mut self) {
        self.shared.executor.shut_down();
    }
}

impl<W: World + 'static> Simulation<W> {
    /// Creates a simulation of `world` at [`Time::ZERO`], without events or tasks.
    pub fn new(world: W) -> Self {
        Self {
            shared: Rc::new(Shared {
                state: RefCell::new(State { world, scheduler: Scheduler::new() }),
                now: Cell::new(Time::ZERO),
                executor: Rc::new(Executor::default()),
                running: Cell::new(false),
            }),
        }
    }

    /// Access to the world and the clock, for tasks.
    pub fn handle(&self) -> Handle<W> {
        Handle { shared: Rc::clone(&self.shared), scope: Scope::default() }
    }

    /// Adds a task, which first runs when the simulation does.
    pub fn spawn<F: Future + 'static>(&self, task: F) -> JoinHandle<F::Output> {
        self.shared.executor.spawn(Scope::default(), task)
    }

    /// Calls `f` with the world and its scheduler.
    ///
    /// # Panics
    /// Inside another `with`, and inside [`World::handle`].
    pub fn with<R>(&self, f: impl FnOnce(&mut W, &mut Scheduler<W::Event>) -> R) -> R {
        self.shared.with(f)
    }

    /// Runs until no event is pending and no task is ready.
    ///
    /// # Panics
    /// If called by a task of this simulation; the same holds for the other ways to run.
    pub fn run(&self) {
        self.shared.drive(Time::NEVER, |_| false);
    }

    /// Runs everything due at or before `time`, then advances the clock to `time`.
    pub fn run_until(&self, time: Time) {
        self.run_until_unless(time, |_| false);
    }

    /// As [`run_until`](Self::run_until), unless `stop` returns true earlier (called before every event, when no task is
    /// ready): the clock then stays. Returns whether it reached `time`.
    pub fn run_until_unless(&self, time: Time, stop: impl FnMut(&W) -> bool) -> bool {
        let stopped = self.shared.drive(time, stop);
        if !stopped {
            self.shared.with(|_, scheduler| scheduler.advance_to(time));
            self.shared.now.set(self.shared.now.get().max(time));
        }
        !stopped
    }

    /// Time of the next event or timer.
    pub fn next_time(&self) -> Option<Time> {
        self.shared.with(|_, scheduler| scheduler.next_time())
    }

    /// Runs while `go_on` returns true (called before every event, when no task is ready) and anything is pending.
    pub fn run_while(&self, mut go_on: impl FnMut(&W) -> bool) {
        self.shared.drive(Time::NEVER, |world| !go_on(world));
    }

    /// Runs until `task` has finished, and returns its output.
    ///
    /// # Errors
    /// [`Deadlock`] if nothing is pending and the task has not finished.
    pub fn block_on<F: Future + 'static>(&self, task: F) -> Result<F::Output, Deadlock> {
        let task = self.spawn(task);
        self.shared.drive(Time::NEVER, |_| task.is_finished());
        task.take().ok_or_else(|| Deadlock { at: self.now(), waiting: self.shared.executor.alive() })
    }

    /// Current time.
    pub fn now(&self) -> Time {
        self.shared.now.get()
    }

    /// Number of events and timers processed.
    pub fn processed(&self) -> u64 {
        self.shared.with(|_, scheduler| scheduler.processed())
    }

    /// Number of unfinished tasks.
    pub fn tasks(&self) -> usize {
        self.shared.executor.alive()
    }
}

/// A task's access to its simulation.
pub struct Handle<W: World> {
    shared: Rc<Shared<W>>,
    /// Scope of the tasks that it adds.
    scope: Scope,
}

impl<W: World> Clone for Handle<W> {
    fn clone(&self) -> Self {
        Self { shared: Rc::clone(&self.shared), scope: self.scope }
    }
}

impl<W: World> Handle<W> {
    /// Current time.
    #[inline]
    pub fn now(&self) -> Time {
        self.shared.now.get()
    }

    /// Calls `f` with the world and its scheduler; for tasks, which run while the world is not borrowed.
    ///
    /// # Panics
    /// Inside another `with`, and inside [`World::handle`].
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut W, &mut Scheduler<W::Event>) -> R) -> R {
        self.shared.with(f)
    }

    /// Adds a task, behind those that are ready.
    pub fn spawn<F: Future + 'static>(&self, task: F) -> JoinHandle<F::Output> {
        self.shared.executor.spawn(self.scope, task)
    }

    /// A handle with a scope of its own: its tasks, and those of its clones, can be ended together.
    #[must_use]
    pub fn scoped(&self) -> Self {
        Self { shared: Rc::clone(&self.shared), scope: self.shared.executor.new_scope() }
    }

    /// Ends all waiting tasks that were added by this handle or a clone of it. Each is dropped at its turn in the ready
    /// queue, at the current simulated time. Tasks that they or their destructors add are dropped before they start.
    /// Has no effect on a handle that is not [`scoped`](Self::scoped).
    pub fn end_all(&self) {
        self.shared.executor.end_scope(self.scope);
    }

    /// Waits for `delay`, which starts now, not at the first poll.
    pub fn sleep(&self, delay: Duration) -> Sleep<W> {
        self.sleep_until(self.now() + delay)
    }

    /// Waits until `deadline`; returns immediately if it is not in the future.
    pub fn sleep_until(&self, deadline: Time) -> Sleep<W> {
        Sleep { shared: Rc::clone(&self.shared), deadline, timer: None }
    }
}

/// A wait for a point in time. Dropping it removes its timer from the queue.
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep<W: World> {
    shared: Rc<Shared<W>>,
    deadline: Time,
    /// The pending timer, and the address of the waker for which it was set.
    timer: Option<(Key, *const ())>,
}

impl<W: World> Future for Sleep<W> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.now.get() >= self.deadline {
            return Poll::Ready(());
        }
        let poller = context.waker().data();
        match self.timer {
            Some((_, set_for)) if set_for == poller => {}
            stale => {
                let key = self.shared.with(|_, scheduler| {
                    if let Some((key, _)) = stale {
                        scheduler.remove(key);
                    }
                    scheduler.insert(self.deadline, Entry::Wake(Wakeup::of(context)))
                });
                self.timer = Some((key, poller));
            }
        }
        Poll::Pending
    }
}

impl<W: World> Drop for Sleep<W> {
    fn drop(&mut self) {
        // Usually the timer has fired, which the clock tells at no cost. A sleep dropped by the world itself cannot
        // reach the queue; its timer then wakes a task in vain.
        if let Some((key, _)) = self.timer
            && self.shared.now.get() < self.deadline
            && let Ok(mut state) = self.shared.state.try_borrow_mut()
        {
            state.scheduler.remove(key);
        }
    }
}
