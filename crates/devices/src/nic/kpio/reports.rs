//! How the driver learns that lines are free: the device writes their count to memory, and interrupts once at a count
//! that the driver asks for.

use platform::device::DeviceBus;
use units::Duration;
use wire::nic::registers::{NO_VECTOR, kpio as register};

use crate::nic::fields::{with_high, with_low};
use crate::nic::token::{Note, request};

/// The upper half of [`register::REPORT`].
const REPORT_HIGH: u64 = register::REPORT + 4;

/// A queue's reports and its interrupt.
pub struct Reports {
    /// Bus address of the count; 0 for none.
    at: u64,
    every: u32,
    vector: u32,
    /// The count that was reported last.
    reported: u32,
    /// Whether the timer runs.
    is_set: bool,
    /// Count of free lines at which the driver wants an interrupt.
    armed: Option<u32>,
}

impl Default for Reports {
    fn default() -> Self {
        Self { at: 0, every: 1, vector: NO_VECTOR, reported: 0, is_set: false, armed: None }
    }
}

impl Reports {
    /// Starts again at count 0, with the driver's settings.
    pub fn restart(&mut self) {
        (self.reported, self.is_set, self.armed) = (0, false, None);
    }

    /// Reads a register if it is one of these.
    pub fn register(&self, at: u64) -> Option<u32> {
        Some(match at {
            register::VECTOR => self.vector,
            register::ARM_AT => self.armed.unwrap_or(0),
            register::REPORT_EVERY => self.every,
            register::REPORT => self.at as u32,
            REPORT_HIGH => (self.at >> 32) as u32,
            _ => return None,
        })
    }

    /// Writes a register if it is one of these. The address is fixed while the queue runs.
    pub fn set_register(&mut self, at: u64, value: u32, is_running: bool) {
        match at {
            register::VECTOR => self.vector = value,
            register::ARM_AT => self.armed = Some(value),
            register::REPORT_EVERY => self.every = value,
            register::REPORT if !is_running => self.at = with_low(self.at, value),
            REPORT_HIGH if !is_running => self.at = with_high(self.at, value),
            _ => {}
        }
    }

    /// Whether as many lines are free as the driver waits for.
    fn is_due(&self, freed: u32) -> bool {
        self.armed.is_some_and(|at| freed.wrapping_sub(at) < 1 << 31)
    }

    /// The count that the driver waits for, if fewer lines are free.
    pub fn awaited(&self, freed: u32) -> Option<u32> {
        self.armed.filter(|_| !self.is_due(freed))
    }

    /// Reports the count now if enough lines are new, else after `delay`, by the timer with this note. Returns the vector
    /// of the interrupt if one is due; it must follow the report.
    pub fn report(
        &mut self,
        bus: &mut dyn DeviceBus,
        note: Note,
        freed: u32,
        delay: Duration,
    ) -> Option<u32> {
        let unreported = freed.wrapping_sub(self.reported);
        let has_news = unreported > 0 && self.at != 0;
        if self.is_due(freed) {
            self.armed = None;
            if has_news {
                self.write(bus, note, freed);
            }
            return Some(self.vector);
        }
        if !has_news {
            return None;
        }
        if unreported >= self.every.max(1) || delay.is_zero() {
            self.write(bus, note, freed);
        } else if !self.is_set {
            self.is_set = true;
            bus.wake_at(bus.now() + delay, note.token());
        }
        None
    }

    /// Free lines have waited long enough.
    pub fn due(&mut self, bus: &mut dyn DeviceBus, note: Note, freed: u32) {
        self.is_set = false;
        if freed != self.reported {
            self.write(bus, note, freed);
        }
    }

    fn write(&mut self, bus: &mut dyn DeviceBus, note: Note, freed: u32) {
        self.reported = freed;
        bus.write(request(note.function, self.at, 4, note), &freed.to_le_bytes());
    }
}
