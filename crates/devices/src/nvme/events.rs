//! Asynchronous events and the error log (sections 5.2 and 5.14.1.1).

use std::collections::VecDeque;

use wire::nvme::AsyncEvent;
use wire::nvme::log::ErrorEntry;

/// Most entries of the error log.
pub(super) const ERRORS: usize = 64;

/// Requests for events, events without request, and what is masked.
#[derive(Default)]
pub(super) struct Events {
    /// Identifiers of Asynchronous Event Requests that wait.
    pub requests: VecDeque<u16>,
    waiting: VecDeque<AsyncEvent>,
    /// Types that were told and whose log has not been read since, with that log.
    masked: Vec<(u8, u8)>,
    /// Newest first.
    pub errors: VecDeque<ErrorEntry>,
    error_count: u64,
}

impl Events {
    /// Notes an event; one that waits already or whose type is masked is not noted again.
    pub fn raise(&mut self, event: AsyncEvent) {
        let masked = self.masked.iter().any(|&(kind, _)| kind == event.kind);
        if !masked && !self.waiting.contains(&event) {
            self.waiting.push_back(event);
        }
    }

    /// An event and the request that it answers.
    pub fn take(&mut self) -> Option<(u16, AsyncEvent)> {
        let masked = &self.masked;
        let n = self.waiting.iter().position(|event| masked.iter().all(|&(kind, _)| kind != event.kind))?;
        let id = self.requests.pop_front()?;
        let event = self.waiting.remove(n)?;
        self.masked.push((event.kind, event.log));
        Some((id, event))
    }

    /// A log was read: events that it was announced by may come again.
    pub fn log_read(&mut self, log: u8) {
        self.masked.retain(|&(_, masked)| masked != log);
    }

    /// Adds an entry to the error log.
    pub fn error(&mut self, entry: ErrorEntry) {
        self.error_count += 1;
        self.errors.push_front(ErrorEntry { count: self.error_count, ..entry });
        self.errors.truncate(ERRORS);
    }
}
