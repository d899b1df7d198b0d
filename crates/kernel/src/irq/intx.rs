//! Legacy interrupt lines. All functions on a line share one vector. Their handlers run in turn, and the line stays
//! masked until all are done.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::cpu::{Cpu, CpuId};
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
    /// No handler knew why it fired last.
    unexplained: Cell<bool>,
}

impl Intx {
    pub(super) fn new(line: IntxLine, own: Rc<Line>, cores: Rc<Cores>) -> Self {
        Self {
            line,
            own,
            cores,
            members: RefCell::default(),
            serving: Cell::new(false),
            unexplained: Cell::new(false),
        }
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
        self.end_if_done(cpu.id());
        self.members.borrow().is_empty()
    }

    /// Drops the functions, which hold a reference to the line.
    pub(super) fn clear(&self) {
        self.members.borrow_mut().clear();
    }

    /// It has fired: each handler finds out whether its function has a cause. Returns whether one had.
    pub(super) fn serve(&self, cpu: &Cpu) -> bool {
        self.serving.set(true);
        let mut is_handled = false;
        self.members().iter().for_each(|member| is_handled |= member.call(cpu));
        self.unexplained.set(!is_handled);
        is_handled
    }

    /// Unmasks the line unless a handler thread still has to run. A line that is active for a function without a handler waits for
    /// that, or would keep a core busy.
    pub(super) fn end_if_done(&self, core: CpuId) {
        let is_awaited =
            |member: &Rc<Line>| member.is_in_thread() || (self.unexplained.get() && !member.has_handler());
        if self.serving.get() && !self.members.borrow().iter().any(is_awaited) {
            self.serving.set(false);
            self.cores.ground.end_line(core, self.line);
        }
    }
}
