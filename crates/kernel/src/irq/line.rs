//! An interrupt, and the vector table of a core.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::cpu::{Cpu, CpuId};
use platform::irq::{Irq, IrqHandler, IrqMoved};
use platform::kernel::{IrqState, TaskId};
use platform::memory::PhysAddr;
use platform::sync::WaitQueue;

use super::{FIRST_VECTOR, IPI_VECTOR, Intx};

/// An interrupt: its destination and its handler.
pub(crate) struct Line {
    pub irq: Irq,
    pub(super) name: RefCell<String>,
    pub(super) cpu: Cell<CpuId>,
    pub(super) vector: Cell<u8>,
    /// Previous destinations: messages in flight still go there.
    pub(super) before: RefCell<Vec<(CpuId, u8)>>,
    pub(super) handler: RefCell<Option<IrqHandler>>,
    pub(super) thread: RefCell<Option<Rc<WaitQueue>>>,
    /// Task of the handler thread.
    pub(super) task: Cell<Option<TaskId>>,
    /// Called when the destination changes.
    pub(super) moved: RefCell<Option<IrqMoved>>,
    pub(super) wanted: Cell<bool>,
    pub(super) count: Cell<u64>,
    /// Its interrupt remapping entry, set by `dma`.
    pub remapped: Cell<Option<Remapped>>,
    /// Whether its handler thread is due or running.
    pub(super) in_thread: Cell<bool>,
    /// The legacy line, for a function's INTx interrupt.
    intx: Option<Rc<Intx>>,
    /// Where it is posted in a guest: the core's descriptor and the vector.
    pub posted: Cell<Option<(PhysAddr, u8)>>,
}

/// An entry of an interrupt remapping table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remapped {
    /// Index of the IOMMU.
    pub unit: usize,
    pub index: u16,
}

impl Line {
    pub fn new(irq: Irq, cpu: CpuId, vector: u8) -> Self {
        Self {
            irq,
            name: RefCell::default(),
            cpu: Cell::new(cpu),
            vector: Cell::new(vector),
            before: RefCell::default(),
            handler: RefCell::new(None),
            thread: RefCell::new(None),
            task: Cell::new(None),
            moved: RefCell::new(None),
            wanted: Cell::new(false),
            count: Cell::new(0),
            remapped: Cell::new(None),
            in_thread: Cell::new(false),
            intx: None,
            posted: Cell::new(None),
        }
    }

    /// The INTx interrupt of a function on a line.
    pub fn on(intx: &Rc<Intx>, irq: Irq) -> Self {
        let (cpu, vector) = intx.own.arrives_at();
        Self { intx: Some(Rc::clone(intx)), ..Self::new(irq, cpu, vector) }
    }

    /// The legacy line, for a function's INTx interrupt.
    pub fn intx(&self) -> Option<Rc<Intx>> {
        self.intx.clone()
    }

    /// The handler thread has finished.
    pub(super) async fn thread_ended(&self, cpu: &Cpu) {
        self.in_thread.set(false);
        if let Some(intx) = &self.intx {
            cpu.sync().await;
            intx.end_if_done(cpu);
        }
    }

    /// Core and vector of its destination.
    pub fn arrives_at(&self) -> (CpuId, u8) {
        (self.cpu.get(), self.vector.get())
    }

    /// State for display.
    pub fn state(&self) -> IrqState {
        let Self { irq, name, cpu, count, .. } = self;
        IrqState { irq: *irq, name: name.borrow().clone(), cpu: cpu.get(), count: count.get() }
    }

    /// Sets the function called when the destination changes.
    pub fn on_moved(&self, moved: IrqMoved) {
        *self.moved.borrow_mut() = Some(moved);
    }
}

/// The interrupt of each vector of a core.
pub(super) struct Vectors([Option<Irq>; 256]);

impl Default for Vectors {
    fn default() -> Self {
        Self([None; 256])
    }
}

impl Vectors {
    pub fn take(&mut self, irq: Irq) -> Option<u8> {
        let free = (FIRST_VECTOR..IPI_VECTOR).find(|&v| self.0[usize::from(v)].is_none())?;
        self.0[usize::from(free)] = Some(irq);
        Some(free)
    }

    pub fn give(&mut self, vector: u8) {
        self.0[usize::from(vector)] = None;
    }

    pub fn of(&self, vector: u8) -> Option<Irq> {
        self.0[usize::from(vector)]
    }
}
