//! Interrupts as a driver sees them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::cpu::{Async, Cpu, CpuId};
use crate::sync::WaitQueue;

/// An interrupt number of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Irq(pub u32);

/// What a handler found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IrqReturn {
    /// The device had nothing to say.
    None,
    /// Dealt with.
    Handled,
    /// The handler's thread does the rest.
    WakeThread,
}

/// Runs with interrupts off: short, and never waits.
pub type IrqHandler = Rc<dyn Fn(&Cpu) -> IrqReturn>;

/// Runs as a task of its own after the handler asked for it.
pub type IrqThread = Rc<dyn Fn(Cpu) -> Async<'static, ()>>;

/// Hears on which core an interrupt arrives from now on (Linux: `irq_affinity_notify`).
pub type IrqMoved = Rc<dyn Fn(CpuId)>;

/// On which cores vectors are to arrive.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Affinity {
    /// Over the cores of the device's node, then over the others.
    #[default]
    Spread,
    /// All on this core.
    Cpu(CpuId),
    /// Vector by vector on these cores, from the first again behind the last.
    Cpus(Vec<CpuId>),
}

/// Deferred work of an interrupt, run in softirq context with a budget, as Linux's NAPI.
pub trait Napi {
    /// Does at most `budget` pieces of work and says how many. One who stays below the budget has called
    /// [`NapiOps::complete`] and lets its device interrupt again; one who uses it up is polled again.
    fn poll<'a>(&'a self, cpu: &'a Cpu, budget: usize) -> Async<'a, usize>;
}

/// A kernel's hold on a [`Napi`].
pub trait NapiOps {
    /// Polls on this core as soon as it may, unless that is under way already.
    fn schedule(&self, cpu: &Cpu) -> bool;
    /// Ends the polling; `false` if it was scheduled again meanwhile and goes on.
    fn complete(&self, cpu: &Cpu) -> bool;
    /// Lets it be scheduled.
    fn enable(&self);
    /// Waits until it is not polled and keeps it so.
    fn disable(&self) -> Async<'static, ()>;
    /// From now on it is polled by a task that [takes](Pollers::take) it from a list, in place of softirq context (Linux:
    /// threaded NAPI).
    fn set_thread(&self, list: &Rc<Pollers>);
    /// Polls, in the task that has taken it from its list: as many pieces of work as it says.
    fn poll<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, usize>;
}

/// What a task has to poll.
#[derive(Default)]
pub struct Pollers {
    list: RefCell<VecDeque<NapiHandle>>,
    /// Told when something is put on it.
    pub arrived: WaitQueue,
}

impl Pollers {
    /// For kernels: puts something on the list.
    pub fn put(&self, napi: NapiHandle) {
        self.list.borrow_mut().push_back(napi);
        self.arrived.wake_one();
    }

    /// Takes the first.
    pub fn take(&self) -> Option<NapiHandle> {
        self.list.borrow_mut().pop_front()
    }

    /// Whether there is nothing to poll.
    pub fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }
}

/// A driver's hold on its [`Napi`].
pub type NapiHandle = Rc<dyn NapiOps>;
