//! A vCPU: a task of the host. The guest computes while the task has a core, and the task handles the guest's exits
//! ([`running`]).

pub mod running;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use engine::Notify;
use kernel::GuestMode;
use platform::cpu::{Async, Cpu, CpuId};
use platform::kernel::TaskId;
use platform::sync::Completion;
use units::{Duration, Time};

use crate::exits::Exit;
use crate::interrupts::Postbox;

/// An exit that the hypervisor has to handle.
pub struct Request {
    /// Cause.
    pub exit: Exit,
    /// The hypervisor's action.
    pub work: Box<dyn FnOnce(Cpu) -> Async<'static, ()>>,
}

/// A host task that runs one of the guest's cores.
pub struct Vcpu {
    pub task: Cell<Option<TaskId>>,
    /// The first host core that it may use.
    home: CpuId,
    /// The CPU handle of its task.
    cpu: RefCell<Option<Cpu>>,
    /// Whether the guest has work for it.
    busy: Cell<bool>,
    /// Whether it has left the guest and released its core.
    halted: Cell<bool>,
    /// Whether it is in guest mode.
    in_guest: Cell<bool>,
    /// Whether a host interrupt has forced an exit.
    left: Cell<bool>,
    requests: RefCell<VecDeque<Request>>,
    pub postbox: Postbox,
    /// Registered with its host core while it is in guest mode.
    pub mode: OnceCell<Rc<dyn GuestMode>>,
    /// Woken when an interrupt is posted in guest mode.
    posted: Rc<Notify>,
    notify: Notify,
    /// Its clock when last read.
    pub clock: Cell<Time>,
    /// Since when it has been runnable without a core.
    put_aside: Cell<Option<Time>>,
    stolen: Cell<Duration>,
    /// How long the guest has polled, by the host core that it did on.
    polled: RefCell<BTreeMap<CpuId, Duration>>,
    /// Of the guest's current kernel, what is among these.
    polled_before: Cell<Duration>,
    /// Resolves when its task has ended.
    pub ended: Completion<()>,
}

impl Vcpu {
    pub fn new(home: CpuId, postbox: Postbox) -> Self {
        Self {
            task: Cell::new(None),
            home,
            cpu: RefCell::new(None),
            busy: Cell::new(false),
            halted: Cell::new(true),
            in_guest: Cell::new(false),
            left: Cell::new(false),
            requests: RefCell::default(),
            postbox,
            mode: OnceCell::new(),
            posted: Rc::default(),
            notify: Notify::new(),
            clock: Cell::new(Time::ZERO),
            put_aside: Cell::new(None),
            stolen: Cell::new(Duration::ZERO),
            polled: RefCell::default(),
            polled_before: Cell::default(),
            ended: Completion::new(),
        }
    }

    /// Current or last host core.
    pub fn core(&self) -> CpuId {
        self.cpu.borrow().as_ref().map_or(self.home, |cpu| cpu.id())
    }

    /// The first host core that it may use.
    pub fn home(&self) -> CpuId {
        self.home
    }

    /// Whether it is in guest mode.
    pub fn is_in_guest(&self) -> bool {
        self.in_guest.get()
    }

    /// Whether it has released its core.
    pub fn is_halted(&self) -> bool {
        self.halted.get()
    }

    /// Time spent runnable without a core (steal time).
    pub fn stolen(&self) -> Duration {
        self.stolen.get()
    }

    /// The guest's kernel has polled so long.
    pub fn note_polled(&self, all: Duration) {
        let before = self.polled_before.replace(all);
        // A new kernel counts from zero.
        let new = if all < before { all } else { all - before };
        if !new.is_zero() {
            *self.polled.borrow_mut().entry(self.core()).or_default() += new;
        }
    }

    /// How long the guest has polled on each host core.
    pub fn polled(&self) -> BTreeMap<CpuId, Duration> {
        self.polled.borrow().clone()
    }

    /// Sets whether the guest has work for it.
    pub fn set_busy(&self, busy: bool) {
        if self.busy.replace(busy) != busy {
            self.notify.notify_one();
        }
    }

    /// Queues an exit.
    pub fn ask(&self, request: Request) {
        self.requests.borrow_mut().push_back(request);
        self.notify.notify_one();
    }

    /// An interrupt was posted while it is in guest mode.
    pub fn note_posted(&self) {
        self.posted.notify_one();
    }

    /// Makes it check for work.
    pub fn kick(&self) {
        self.notify.notify_one();
    }

    /// A host interrupt forces an exit.
    pub fn leave(&self) {
        self.left.set(true);
        self.notify.notify_one();
    }

    /// Drops pending exits, as the guest was reset.
    pub fn forget(&self) {
        self.requests.borrow_mut().clear();
        self.postbox.take();
        self.busy.set(false);
    }

    fn next_request(&self) -> Option<Request> {
        self.requests.borrow_mut().pop_front()
    }
}
