//! CompletionInterrupts of a controller: messages with coalescing, or a legacy interrupt (sections 3.1.3 and 7.5).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use platform::device::FunctionIndex;
use units::{Duration, Time};

use super::features::Coalescing;
use crate::firmware::Port;

/// Interrupt state of a controller.
pub(super) struct CompletionInterrupts {
    function: FunctionIndex,
    port: Port,
    /// INTMS and INTMC.
    mask: Cell<u32>,
    /// The host has enabled MSI-X, so the legacy interrupt is off.
    uses_messages: Cell<bool>,
    /// The legacy interrupt is pending.
    is_pending: Cell<bool>,
    /// By vector: completions that have not raised an interrupt yet.
    waiting: RefCell<BTreeMap<u16, u32>>,
}

impl CompletionInterrupts {
    pub fn new(function: FunctionIndex, port: Port) -> Self {
        Self {
            function,
            port,
            mask: Cell::default(),
            uses_messages: Cell::default(),
            is_pending: Cell::default(),
            waiting: RefCell::default(),
        }
    }

    pub fn mask(&self) -> u32 {
        self.mask.get()
    }

    pub fn set_mask(&self, mask: u32) {
        self.mask.set(mask);
    }

    pub fn use_messages(&self, enabled: bool) {
        self.uses_messages.set(enabled);
    }

    /// Updates the legacy interrupt: pending while queues hold `unread` entries, unless the host has masked the only
    /// vector (sections 3.1.3 and 7.5.1).
    pub fn update_legacy(&self, unread: impl FnOnce() -> bool) {
        let pending = !self.uses_messages.get() && self.mask.get() & 1 == 0 && unread();
        if self.is_pending.replace(pending) != pending {
            self.port.set_interrupt_status(self.function, pending);
        }
    }

    /// Raises an interrupt, or lets it wait for others. For the first that waits, returns when [`Self::flush`] is due.
    pub fn raise(&self, vector: u16, coalescing: Option<Coalescing>) -> Option<Time> {
        let Some(Coalescing { threshold, time }) = coalescing else {
            self.port.interrupt(self.function, vector);
            return None;
        };
        let mut waiting = self.waiting.borrow_mut();
        let count = waiting.entry(vector).or_default();
        *count += 1;
        if *count > u32::from(threshold) {
            *count = 0;
            self.port.interrupt(self.function, vector);
            return None;
        }
        (*count == 1).then(|| self.port.now() + Duration::from_us(100) * u64::from(time))
    }

    /// Raises the interrupt of completions that still wait for others.
    pub fn flush(&self, vector: u16) {
        if self.waiting.borrow_mut().insert(vector, 0).is_some_and(|count| count > 0) {
            self.port.interrupt(self.function, vector);
        }
    }

    /// Controller reset, which keeps what MSI-X is set to.
    pub fn controller_reset(&self) {
        self.mask.set(0);
        self.waiting.borrow_mut().clear();
        self.update_legacy(|| false);
    }
}
