//! Legacy interrupt lines: one vector for all functions on a line, asked in turn, and no more of it until all have done their part.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::cpu::Cpu;
use wire::pcie::IntxLine;

use super::Line;
use crate::cpu::Cores;

/// A line of the host's interrupt controller that somebody uses.
pub(crate) struct Intx {
    pub line: IntxLine,
    /// Where it arrives.
    pub own: Rc<Line>,
    cores: Rc<Cores>,
    /// The interrupts of the functions on it.
    members: RefCell<Vec<Rc<Line>>>,
    /// It has arrived, and the controller holds the next one back.
    serving: Cell<bool>,
}

impl Intx {
    pub(super) fn new(line: IntxLine, own: Rc<Line>, cores: Rc<Cores>) -> Self {
        Self { line, own, cores, members: RefCell::default(), serving: Cell::new(false) }
    }

    /// The interrupts of the functions on it.
    pub fn members(&self) -> Vec<Rc<Line>> {
        self.members.borrow().clone()
    }

    pub(super) fn join(&self, member: &Rc<Line>) {
        self.members.borrow_mut().push(Rc::clone(member));
    }

    /// Takes a function's interrupt off the line; says whether it was the last.
    pub fn leave(&self, cpu: &Cpu, member: &Line) -> bool {
        self.members.borrow_mut().retain(|other| other.irq != member.irq);
        // What it was still to do about an interrupt it will not do.
        self.end_if_done(cpu);
        self.members.borrow().is_empty()
    }

    /// Lets go of the functions, which hold it.
    pub(super) fn clear(&self) {
        self.members.borrow_mut().clear();
    }

    pub(super) fn begin(&self) {
        self.serving.set(true);
    }

    /// Lets the next one come, if no thread of a function on it has still to run.
    pub(super) fn end_if_done(&self, cpu: &Cpu) {
        if self.serving.get() && !self.members.borrow().iter().any(|member| member.in_thread.get()) {
            self.serving.set(false);
            self.cores.ground.end_line(cpu.id(), self.line);
        }
    }
}
