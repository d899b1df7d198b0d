//! One interrupt, and the vectors of one core.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::cpu::{Cpu, CpuId};
use platform::irq::{Irq, IrqHandler, IrqMoved};
use platform::kernel::{IrqState, TaskId};
use platform::memory::PhysAddr;
use platform::sync::WaitQueue;

use super::{FIRST_VECTOR, IPI_VECTOR, Intx};

/// An interrupt: where it arrives and who handles it.
pub(crate) struct Line {
    pub irq: Irq,
    pub(super) name: RefCell<String>,
    pub(super) cpu: Cell<CpuId>,
    pub(super) vector: Cell<u8>,
    /// Where it arrived before it was moved: messages under way still go there.
    pub(super) before: RefCell<Vec<(CpuId, u8)>>,
    pub(super) handler: RefCell<Option<IrqHandler>>,
    pub(super) thread: RefCell<Option<Rc<WaitQueue>>>,
    /// The task in which the thread runs.
    pub(super) task: Cell<Option<TaskId>>,
    /// Told when it is moved.
    pub(super) moved: RefCell<Option<IrqMoved>>,
    pub(super) wanted: Cell<bool>,
    pub(super) count: Cell<u64>,
    /// Its entry in an interrupt remapping table: whoever looks after those sets it.
    pub remapped: Cell<Option<Remapped>>,
    /// Its thread is to run, or runs.
    pub(super) in_thread: Cell<bool>,
    /// Of a function's legacy interrupt: the line that it is on.
    intx: Option<Rc<Intx>>,
    /// The guest's core that it is noted for there, by its descriptor and its vector.
    pub posted: Cell<Option<(PhysAddr, u8)>>,
}

/// An entry of an interrupt remapping table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remapped {
    /// The IOMMU whose table it is.
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

    /// The legacy interrupt of a function on a line.
    pub fn on(intx: &Rc<Intx>, irq: Irq) -> Self {
        let (cpu, vector) = intx.own.arrives_at();
        Self { intx: Some(Rc::clone(intx)), ..Self::new(irq, cpu, vector) }
    }

    /// Of a function's legacy interrupt: the line that it is on.
    pub fn intx(&self) -> Option<Rc<Intx>> {
        self.intx.clone()
    }

    /// Its thread has run.
    pub(super) async fn thread_ended(&self, cpu: &Cpu) {
        self.in_thread.set(false);
        if let Some(intx) = &self.intx {
            cpu.sync().await;
            intx.end_if_done(cpu);
        }
    }

    /// The core where it arrives, and its vector there.
    pub fn arrives_at(&self) -> (CpuId, u8) {
        (self.cpu.get(), self.vector.get())
    }

    /// What there is to say about it.
    pub fn state(&self) -> IrqState {
        let Self { irq, name, cpu, count, .. } = self;
        IrqState { irq: *irq, name: name.borrow().clone(), cpu: cpu.get(), count: count.get() }
    }

    /// Tells when it is moved, from now on.
    pub fn on_moved(&self, moved: IrqMoved) {
        *self.moved.borrow_mut() = Some(moved);
    }
}

/// Which interrupt each vector of a core means.
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
