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
    lines: RefCell<VecDeque<LogLine>>,
}

/// A line of the log.
struct LogLine {
    at: Time,
    text: String,
    /// Whether something is lacking or fails (Linux: `dmesg --level=err,warn`).
    is_warning: bool,
}

impl Log {
    pub fn new(cores: Rc<Cores>) -> Self {
        Self { cores, lines: RefCell::default() }
    }

    /// Adds a line, and drops the oldest if there are too many.
    pub fn write(&self, line: String) {
        self.add(line, false);
    }

    /// As [`write`](Self::write), for something that is lacking or fails.
    pub fn warn(&self, line: String) {
        self.add(line, true);
    }

    fn add(&self, text: String, is_warning: bool) {
        let mut lines = self.lines.borrow_mut();
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(LogLine { at: self.cores.now(), text, is_warning });
    }

    pub fn lines(&self) -> Vec<(Time, String)> {
        self.lines.borrow().iter().map(|line| (line.at, line.text.clone())).collect()
    }

    pub fn warnings(&self) -> Vec<(Time, String)> {
        let lines = self.lines.borrow();
        lines.iter().filter(|line| line.is_warning).map(|line| (line.at, line.text.clone())).collect()
    }
}
