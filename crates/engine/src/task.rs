//! Tasks: wake-ups, ready queue and polling, independent of simulated time.
//!
//! # How a task is woken
//! A future of this crate that has to wait calls [`Wakeup::of`]. Usually the task itself polls it: it then gets a
//! counted pointer to the task, and waking pushes the task onto the ready queue, without atomics, locks or allocation.
//! If a combinator polls it with a waker of its own (such as `FuturesUnordered`), it gets a clone of that waker, and
//! the standard contract applies.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

/// The awaited value will never come: its sender was dropped, or its task was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cancelled before it was complete")
    }
}

impl core::error::Error for Cancelled {}

/// A task: a future and its place in the executor.
pub(crate) struct Task {
    /// `None` while being polled, and once finished.
    future: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
    queued: Cell<bool>,
    aborted: Cell<bool>,
    executor: Rc<Executor>,
    slot: usize,
    id: u64,
    scope: Scope,
    waker: Waker,
}

/// A group of tasks that can be ended together; the first scope is never ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope(u32);

impl Task {
    /// Puts the task on the ready queue, unless it is already there.
    #[inline]
    fn schedule(self: &Rc<Self>) {
        if !self.queued.replace(true) {
            self.executor.any_ready.set(true);
            self.executor.ready.borrow_mut().push_back(Rc::clone(self));
        }
    }
}

/// Wakes one waiting task.
pub(crate) enum Wakeup {
    Task(Rc<Task>),
    Foreign(Waker),
}

thread_local! {
    /// The task being polled.
    static CURRENT: RefCell<Option<Rc<Task>>> = const { RefCell::new(None) };
}

impl Wakeup {
    /// How to wake the task that polls with `context`.
    #[inline]
    pub(crate) fn of(context: &Context<'_>) -> Self {
        CURRENT.with_borrow(|current| match current {
            Some(task) if task.waker.will_wake(context.waker()) => Self::Task(Rc::clone(task)),
            _ => Self::Foreign(context.waker().clone()),
        })
    }

    /// Whether this wakes the task that polls with `context`.
    #[inline]
    pub(crate) fn is_for(&self, context: &Context<'_>) -> bool {
        match self {
            Self::Task(task) => task.waker.will_wake(context.waker()),
            Self::Foreign(waker) => waker.will_wake(context.waker()),
        }
    }

    #[inline]
    pub(crate) fn wake(self) {
        match self {
            Self::Task(task) => task.schedule(),
            Self::Foreign(waker) => waker.wake(),
        }
    }
}

/// Standard waker of a task. It must be `Send`, which the ready queue is not, so it leaves a note for the executor.
struct Note {
    slot: usize,
    id: u64,
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct Inbox {
    /// Whether `notes` is nonempty; avoids the lock at every step.
    any: AtomicBool,
    notes: Mutex<Vec<(usize, u64)>>,
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.inbox.notes.lock().unwrap_or_else(PoisonError::into_inner).push((self.slot, self.id));
        self.inbox.any.store(true, Ordering::Release);
    }
}

/// All tasks of a simulation and the ready queue.
#[derive(Default)]
pub(crate) struct Executor {
    ready: RefCell<VecDeque<Rc<Task>>>,
    /// Whether `ready` may be nonempty; it is asked after every event.
    any_ready: Cell<bool>,
    tasks: RefCell<Vec<Option<Rc<Task>>>>,
    free: RefCell<Vec<usize>>,
    alive: Cell<usize>,
    spawned: Cell<u64>,
    inbox: Arc<Inbox>,
    scopes: Cell<u32>,
    ended: RefCell<BTreeSet<Scope>>,
    /// Set on shutdown: no task will run any more.
    over: Cell<bool>,
}

impl Executor {
    /// Adds a task and puts it on the ready queue. Drops it instead after shutdown, or if its scope has ended.
    pub(crate) fn spawn<F>(self: &Rc<Self>, scope: Scope, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        let join = Rc::new(Join {
            output: RefCell::new(None),
            finished: Cell::new(false),
            waiter: RefCell::new(None),
        });
        let ending = Ending(Rc::clone(&join));
        let body = Box::pin(async move {
            let output = future.await;
            *ending.0.output.borrow_mut() = Some(output);
            drop(ending);
        });
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            self.tasks.borrow_mut().push(None);
            self.tasks.borrow().len() - 1
        });
        let id = self.spawned.replace(self.spawned.get() + 1);
        let task = Rc::new(Task {
            future: RefCell::new(Some(body)),
            queued: Cell::new(false),
            aborted: Cell::new(self.ended.borrow().contains(&scope)),
            executor: Rc::clone(self),
            slot,
            id,
            scope,
            waker: Waker::from(Arc::new(Note { slot, id, inbox: Arc::clone(&self.inbox) })),
        });
        self.tasks.borrow_mut()[slot] = Some(Rc::clone(&task));
        self.alive.set(self.alive.get() + 1);
        task.schedule();
        if self.over.get() {
            self.shut_down();
        }
        JoinHandle { join, task }
    }

    /// Creates a scope without tasks.
    pub(crate) fn new_scope(&self) -> Scope {
        self.scopes.set(self.scopes.get() + 1);
        Scope(self.scopes.get())
    }

    /// Ends all tasks of a scope where they wait, and tasks added to it later before they start.
    pub(crate) fn end_scope(&self, scope: Scope) {
        if scope == Scope::default() {
            return;
        }
        self.ended.borrow_mut().insert(scope);
        let tasks: Vec<_> = self.tasks.borrow().iter().flatten().cloned().collect();
        for task in tasks.iter().filter(|task| task.scope == scope) {
            task.aborted.set(true);
            task.schedule();
        }
    }

    /// Number of unfinished tasks.
    pub(crate) fn alive(&self) -> usize {
        self.alive.get()
    }

    /// Whether any task is ready.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.any_ready.get() || self.inbox.any.load(Ordering::Relaxed)
    }

    /// Polls tasks in wake-up order until all of them wait.
    #[inline]
    pub(crate) fn run_ready(&self) {
        loop {
            if self.inbox.any.load(Ordering::Relaxed) {
                self.read_inbox();
            }
            let Some(task) = self.ready.borrow_mut().pop_front() else {
                self.any_ready.set(false);
                return;
            };
            self.poll(task);
        }
    }

    #[cold]
    fn read_inbox(&self) {
        self.inbox.any.store(false, Ordering::Relaxed);
        let notes = core::mem::take(&mut *self.inbox.notes.lock().unwrap_or_else(PoisonError::into_inner));
        for (slot, id) in notes {
            let task = self.tasks.borrow()[slot].clone();
            if let Some(task) = task.filter(|task| task.id == id) {
                task.schedule();
            }
        }
    }

    fn poll(&self, task: Rc<Task>) {
        task.queued.set(false);
        let Some(mut future) = task.future.borrow_mut().take() else { return };
        if task.aborted.get() {
            drop(future);
            self.retire(&task);
            return;
        }
        // Restore the current task afterwards, as a task may run another simulation.
        let before = CURRENT.replace(Some(Rc::clone(&task)));
        let polled = future.as_mut().poll(&mut Context::from_waker(&task.waker));
        CURRENT.set(before);
        match polled {
            Poll::Pending => *task.future.borrow_mut() = Some(future),
            Poll::Ready(()) => {
                drop(future);
                self.retire(&task);
            }
        }
    }

    fn retire(&self, task: &Task) {
        self.tasks.borrow_mut()[task.slot] = None;
        self.free.borrow_mut().push(task.slot);
        self.alive.set(self.alive.get() - 1);
    }

    /// Drops all tasks, which breaks the reference cycle between them and the simulation.
    pub(crate) fn shut_down(&self) {
        // Repeat until none is left: a destructor may spawn tasks.
        loop {
            let tasks = core::mem::take(&mut *self.tasks.borrow_mut());
            self.free.borrow_mut().clear();
            if tasks.is_empty() {
                break;
            }
            for task in tasks.into_iter().flatten() {
                let future = task.future.borrow_mut().take();
                drop(future);
            }
        }
        self.alive.set(0);
        self.ready.borrow_mut().clear();
        // Destructors that run later may spawn tasks, too, which nobody would drop.
        self.over.set(true);
    }
}

/// Output of a task for its join handle.
struct Join<T> {
    output: RefCell<Option<T>>,
    finished: Cell<bool>,
    waiter: RefCell<Option<Wakeup>>,
}

/// Owned by the task's future: marks its end, however it comes.
struct Ending<T>(Rc<Join<T>>);

impl<T> Drop for Ending<T> {
    fn drop(&mut self) {
        self.0.finished.set(true);
        if let Some(waiter) = self.0.waiter.borrow_mut().take() {
            waiter.wake();
        }
    }
}

/// A spawned task, to be awaited, polled or aborted. Dropping the handle leaves the task running.
///
/// Awaiting it returns the task's output, or [`Cancelled`] if the task was aborted or its output taken.
pub struct JoinHandle<T> {
    join: Rc<Join<T>>,
    task: Rc<Task>,
}

impl<T> JoinHandle<T> {
    /// Whether the task has finished, or was dropped after an abort.
    pub fn is_finished(&self) -> bool {
        self.join.finished.get()
    }

    /// Takes the task's output, once.
    pub fn take(&self) -> Option<T> {
        self.join.output.borrow_mut().take()
    }

    /// Ends the task where it waits. It is dropped at its turn in the ready queue, at the current simulated time, so
    /// that its destructors can use the world.
    pub fn abort(&self) {
        self.task.aborted.set(true);
        self.task.schedule();
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Cancelled>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_finished() {
            return Poll::Ready(self.take().ok_or(Cancelled));
        }
        *self.join.waiter.borrow_mut() = Some(Wakeup::of(context));
        Poll::Pending
    }
}

/// Waits for either of two futures. If both are ready, the second one is not polled.
pub async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| {
        match one.as_mut().poll(context).is_ready() || other.as_mut().poll(context).is_ready() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

/// Lets all other ready tasks run first; no time passes.
pub fn yield_now() -> impl Future<Output = ()> {
    let mut yielded = false;
    core::future::poll_fn(move |context| {
        if core::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        Wakeup::of(context).wake();
        Poll::Pending
    })
}
