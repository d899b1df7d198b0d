//! Commands in flight and their abort (section 5.1).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wire::nvme::Status;

/// Abort state of a command in flight.
#[derive(Default)]
pub(super) struct Running {
    abort: Cell<Option<Status>>,
    begun: Cell<bool>,
}

impl Running {
    /// Status with which to end the command instead of executing it.
    pub fn aborted(&self) -> Option<Status> {
        self.abort.get()
    }

    /// Execution begins: from now on it is too late to abort.
    pub fn begin(&self) {
        self.begun.set(true);
    }
}

/// Commands in flight, by submission queue and identifier.
#[derive(Default)]
pub(super) struct Commands(BTreeMap<(u16, u16), Rc<Running>>);

impl Commands {
    /// Adds a command, unless its identifier is in use.
    pub fn add(&mut self, queue: u16, id: u16) -> Option<Rc<Running>> {
        if self.0.contains_key(&(queue, id)) {
            return None;
        }
        Some(Rc::clone(self.0.entry((queue, id)).or_default()))
    }

    /// Removes a command that has ended.
    pub fn remove(&mut self, queue: u16, id: u16) {
        self.0.remove(&(queue, id));
    }

    /// Aborts a command, unless it has begun.
    pub fn abort(&self, queue: u16, id: u16) -> bool {
        let running = self.0.get(&(queue, id)).filter(|running| !running.begun.get());
        running.inspect(|running| running.abort.set(Some(Status::ABORT_REQUESTED))).is_some()
    }

    /// Aborts what has not begun of a queue that is to be deleted. Returns whether any command is left.
    pub fn abort_queue(&self, queue: u16) -> bool {
        let mut any = false;
        for (_, running) in self.0.range((queue, 0)..=(queue, u16::MAX)) {
            any = true;
            running.abort.set(Some(Status::SQ_DELETED));
        }
        any
    }
}
