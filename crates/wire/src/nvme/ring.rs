//! The host's side of a queue pair: indices, phase, and what is free. No memory, no doorbells.

use super::completion::{CompletionEntry, LEN as COMPLETION_LEN};

/// A submission queue as its producer sees it (section 4.1).
///
/// One entry always stays free: a queue is full when the next entry is the controller's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmissionRing {
    entries: u16,
    tail: u16,
    head: u16,
}

impl SubmissionRing {
    /// An empty queue of `entries` entries, at least 2.
    pub const fn new(entries: u16) -> Self {
        Self { entries, tail: 0, head: 0 }
    }

    /// Entries that may be written now.
    pub const fn free(&self) -> u16 {
        (self.head + self.entries - self.tail - 1) % self.entries
    }

    /// Takes the next entry: its index. Writing it and then the [tail](Self::tail) to the doorbell submits it.
    pub const fn push(&mut self) -> Option<u16> {
        if self.free() == 0 {
            return None;
        }
        let at = self.tail;
        self.tail = (self.tail + 1) % self.entries;
        Some(at)
    }

    /// What the doorbell is to be told.
    pub const fn tail(&self) -> u16 {
        self.tail
    }

    /// Notes the head that a completion reported. `false`, and nothing noted, if it is none of what was submitted.
    pub const fn completed(&mut self, head: u16) -> bool {
        if head >= self.entries {
            return false;
        }
        let used = (self.tail + self.entries - self.head) % self.entries;
        let taken = (head + self.entries - self.head) % self.entries;
        if taken <= used {
            self.head = head;
        }
        taken <= used
    }
}

/// A completion queue as its consumer sees it (section 4.6, phase tag).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionRing {
    entries: u16,
    head: u16,
    phase: bool,
}

impl CompletionRing {
    /// An empty queue of `entries` entries, at least 2, whose memory is zero.
    pub const fn new(entries: u16) -> Self {
        Self { entries, head: 0, phase: true }
    }

    /// The entry to look at next; also what the doorbell is to be told.
    pub const fn head(&self) -> u16 {
        self.head
    }

    /// The entry in `bytes`, which stand at the head, if it is new: the head then moves on.
    pub fn take(&mut self, bytes: &[u8; COMPLETION_LEN]) -> Option<CompletionEntry> {
        let entry = CompletionEntry::parse(bytes);
        if entry.phase != self.phase {
            return None;
        }
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
        Some(entry)
    }
}
