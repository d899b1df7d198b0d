//! One interrupt, and the vectors of one core.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::cpu::CpuId;
use platform::irq::{Irq, IrqHandler, IrqMoved};
use platform::kernel::TaskId;
use platform::memory::PhysAddr;
use platform::sync::WaitQueue;

use super::{FIRST_VECTOR, IPI_VECTOR};

/// An interrupt: where it arrives and who handles it.
pub(crate) struct Line {
    pub irq: Irq,
    pub name: RefCell<String>,
    pub cpu: Cell<CpuId>,
    pub vector: Cell<u8>,
    /// Where it arrived before it was moved: messages under way still go there.
    pub before: RefCell<Vec<(CpuId, u8)>>,
    /// Its entry in the interrupt remapping table, where there is one.
    pub remapped: Cell<Option<u16>>,
    /// The guest's core that it is noted for there, by its descriptor and its vector.
    pub posted: Cell<Option<(PhysAddr, u8)>>,
    /// The IOMMU whose table that is.
    pub unit: Cell<usize>,
    pub handler: RefCell<Option<IrqHandler>>,
    pub thread: RefCell<Option<Rc<WaitQueue>>>,
    /// The task in which the thread runs.
    pub task: Cell<Option<TaskId>>,
    /// Told when it is moved.
    pub moved: RefCell<Option<IrqMoved>>,
    pub wanted: Cell<bool>,
    pub count: Cell<u64>,
}

impl Line {
    pub fn new(irq: Irq, cpu: CpuId, vector: u8) -> Self {
        Self {
            irq,
            name: RefCell::default(),
            cpu: Cell::new(cpu),
            vector: Cell::new(vector),
            before: RefCell::default(),
            remapped: Cell::new(None),
            posted: Cell::new(None),
            unit: Cell::new(0),
            handler: RefCell::new(None),
            thread: RefCell::new(None),
            task: Cell::new(None),
            moved: RefCell::new(None),
            wanted: Cell::new(false),
            count: Cell::new(0),
        }
    }
}

/// Which interrupt each vector of a core means.
pub(crate) struct Vectors([Option<Irq>; 256]);

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
