//! Interrupts, as a driver sees them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::cpu::{Async, Cpu, CpuId};
use crate::sync::WaitQueue;

/// An interrupt number of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Irq(pub u32);

/// Result of a handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IrqReturn {
    /// No work for this device.
    None,
    /// The device had work, which is done or deferred.
    Handled,
    /// The handler thread has to run.
    WakeThread,
}

/// An interrupt handler: runs with interrupts off, must be short and not wait.
pub type IrqHandler = Rc<dyn Fn(&Cpu) -> IrqReturn>;

/// A handler thread: a task that the handler can start.
pub type IrqThread = Rc<dyn Fn(Cpu) -> Async<'static, ()>>;

/// Called with the new core when an interrupt moves (Linux: `irq_affinity_notify`).
pub type IrqMoved = Rc<dyn Fn(CpuId)>;

/// Cores for a function's vectors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Affinity {
    /// Spread over the device's node, then over other cores.
    #[default]
    Spread,
    /// All on one core.
    Cpu(CpuId),
    /// One vector per core of the list, in turn.
    Cpus(Vec<CpuId>),
}

/// Deferred interrupt work, polled in softirq context with a budget (Linux: NAPI).
pub trait Napi {
    /// Does at most `budget` units of work and returns how many. Below the budget, it has called
    /// [`NapiOps::complete`] and re-enabled the device's interrupts; otherwise it is polled again.
    fn poll<'a>(&'a self, cpu: &'a Cpu, budget: usize) -> Async<'a, usize>;
}

/// The kernel's side of a [`Napi`].
pub trait NapiOps {
    /// Schedules a poll on this core, unless one is pending.
    fn schedule(&self, cpu: &Cpu) -> bool;
    /// Ends polling; `false` if it was scheduled again meanwhile and continues.
    fn complete(&self, cpu: &Cpu) -> bool;
    /// Allows scheduling.
    fn enable(&self);
    /// Waits until it is not being polled, and prevents scheduling.
    fn disable(&self) -> Async<'static, ()>;
    /// Lets a task poll it, which [takes](Pollers::take) it from a list, instead of softirq context (Linux: threaded
    /// NAPI).
    fn set_thread(&self, list: &Rc<Pollers>);
    /// Polls in the task that took it from its list. Returns the units of work.
    fn poll<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, usize>;
}

/// A task's list of work to poll.
#[derive(Default)]
pub struct Pollers {
    list: RefCell<VecDeque<NapiHandle>>,
    /// Woken when something is added.
    pub arrived: WaitQueue,
}

impl Pollers {
    /// For kernels: adds to the list.
    pub fn put(&self, napi: NapiHandle) {
        self.list.borrow_mut().push_back(napi);
        self.arrived.wake_one();
    }

    /// Takes the first entry.
    pub fn take(&self) -> Option<NapiHandle> {
        self.list.borrow_mut().pop_front()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }
}

/// A driver's handle for its [`Napi`].
pub type NapiHandle = Rc<dyn NapiOps>;
