//! The kernel log (Linux: `dmesg`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use units::Time;

use crate::cpu::Cores;

/// Lines kept (assumed: Linux's ring of 256 KiB holds some thousand).
const LINES: usize = 4096;

/// Recent lines with their times.
pub(crate) struct Log {
    cores: Rc<Cores>,
    lines: RefCell<VecDeque<(Time, String)>>,
}

impl Log {
    pub fn new(cores: Rc<Cores>) -> Self {
        Self { cores, lines: RefCell::default() }
    }

    /// Adds a line, and drops the oldest if there are too many.
    pub fn write(&self, line: String) {
        let mut lines = self.lines.borrow_mut();
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back((self.cores.now(), line));
    }

    pub fn lines(&self) -> Vec<(Time, String)> {
        self.lines.borrow().iter().cloned().collect()
    }
}
