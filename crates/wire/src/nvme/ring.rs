//! The host's side of a queue pair: indices, phase and free entries, without memory or doorbells.

use super::completion::{CompletionEntry, LEN as COMPLETION_LEN};

/// A submission queue from the producer's side (section 4.1).
///
/// One entry always stays free: the queue is full when the entry after the tail is the controller's head.
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
        self.entries - 1 - self.behind_head(self.tail)
    }

    /// Allocates the next entry and returns its index. To submit it, write the entry, then the [tail](Self::tail) to
    /// the doorbell.
    pub const fn push(&mut self) -> Option<u16> {
        if self.free() == 0 {
            return None;
        }
        let at = self.tail;
        self.tail = (self.tail + 1) % self.entries;
        Some(at)
    }

    /// Value for the doorbell.
    pub const fn tail(&self) -> u16 {
        self.tail
    }

    /// Updates the head from a completion. Returns `false`, without change, if the value is not within the submitted
    /// entries.
    pub const fn completed(&mut self, head: u16) -> bool {
        if head >= self.entries {
            return false;
        }
        let is_submitted = self.behind_head(head) <= self.behind_head(self.tail);
        if is_submitted {
            self.head = head;
        }
        is_submitted
    }

    /// Entries from the head to `place`.
    const fn behind_head(&self, place: u16) -> u16 {
        if place >= self.head { place - self.head } else { self.entries - (self.head - place) }
    }
}

/// A completion queue from the consumer's side (section 4.6, phase tag).
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

    /// Index of the next entry; also the value for the doorbell.
    pub const fn head(&self) -> u16 {
        self.head
    }

    /// Decodes `bytes`, the entry at the head, and advances if it is new.
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
