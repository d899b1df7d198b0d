//! Legacy interrupt lines. All functions on a line share one vector. Their handlers run in turn, and the line stays
//! masked until all are done.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::cpu::Cpu;
use wire::pcie::IntxLine;

use super::Line;
use crate::cpu::Cores;

/// A line of the host's interrupt controller that is in use.
pub(crate) struct Intx {
    pub line: IntxLine,
    /// The line's own interrupt.
    pub own: Rc<Line>,
    cores: Rc<Cores>,
    /// Interrupts of the functions on the line.
    members: RefCell<Vec<Rc<Line>>>,
    /// It has fired, and the controller holds back the next message.
    serving: Cell<bool>,
}

impl Intx {
    pub(super) fn new(line: IntxLine, own: Rc<Line>, cores: Rc<Cores>) -> Self {
        Self { line, own, cores, members: RefCell::default(), serving: Cell::new(false) }
    }

    /// Interrupts of the functions on the line.
    pub fn members(&self) -> Vec<Rc<Line>> {
        self.members.borrow().clone()
    }

    pub(super) fn join(&self, member: &Rc<Line>) {
        self.members.borrow_mut().push(Rc::clone(member));
    }

    /// Removes a function's interrupt. Returns whether it was the last.
    pub fn leave(&self, cpu: &Cpu, member: &Line) -> bool {
        self.members.borrow_mut().retain(|other| other.irq != member.irq);
        // Its handler thread will not run any more.
        self.end_if_done(cpu);
        self.members.borrow().is_empty()
    }

    /// Drops the functions, which hold a reference to the line.
    pub(super) fn clear(&self) {
        self.members.borrow_mut().clear();
    }

    pub(super) fn begin(&self) {
        self.serving.set(true);
    }

    /// Unmasks the line unless a handler thread still has to run.
    pub(super) fn end_if_done(&self, cpu: &Cpu) {
        if self.serving.get() && !self.members.borrow().iter().any(|member| member.is_in_thread()) {
            self.serving.set(false);
            self.cores.ground.end_line(cpu.id(), self.line);
        }
    }
}
