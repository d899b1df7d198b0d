//! Counters of the driver.

use std::cell::Cell;

/// A counter shared between writer and readers.
#[derive(Debug, Default)]
pub struct Count(Cell<u64>);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.set(self.0.get() + more);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// Error and event counters of one function.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames of packets whose completions reported no failure.
    pub tx_completed: Count,
    /// Packets that the device failed to send.
    pub tx_failed: Count,
    /// Packets refused because they have no fragments or too many.
    pub tx_refused: Count,
    /// Packets that could not be mapped for DMA.
    pub tx_map_errors: Count,
    /// Packets sent by programmed I/O.
    pub tx_lines: Count,
    /// Packets meant for programmed I/O that went by descriptor because their channel has no queue for it: the
    /// device has fewer than there are channels.
    pub tx_no_queue: Count,
    /// Packets meant for programmed I/O that went by descriptor because they are too long for it. Packets that wait are
    /// counted at every attempt.
    pub tx_too_long: Count,
    /// Packets that waited for earlier ones on the other path, or for room on that of programmed I/O.
    pub tx_held: Count,
    /// Times that the driver's position in a queue for programmed I/O differed from the device's, because a line came
    /// too late.
    pub tx_places_lost: Count,
    /// Packets that were in the device when it was stopped or reset.
    pub tx_lost: Count,
    /// Time (ps) that sending cores spent on descriptors: counting, filling and writing them. Excludes mapping,
    /// doorbells and packet handling.
    pub tx_described: Count,
    /// Time (ps) that cores spent checking completions of sent descriptors.
    pub tx_cleaned: Count,
    /// Frames that the device failed to write to their buffers.
    pub rx_failed: Count,
    /// Frames held in the device and fetched by programmed I/O.
    pub rx_fetched: Count,
    /// Allocations of a receive buffer that failed.
    pub rx_no_memory: Count,
    /// Malformed completions.
    pub malformed: Count,
    /// Polls without work, started by spurious interrupts or the service task.
    pub empty_polls: Count,
    /// Queues that made no progress because of a lost interrupt.
    pub lost_interrupts: Count,
    /// Restarts of the function.
    pub resets: Count,
}
