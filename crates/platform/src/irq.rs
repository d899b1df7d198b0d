//! Interrupts as a driver sees them.

use std::rc::Rc;

use crate::cpu::{Async, Cpu, CpuId};

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
}

/// A driver's hold on its [`Napi`].
pub type NapiHandle = Rc<dyn NapiOps>;
