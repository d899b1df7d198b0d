//! Asynchronous events and the error log (sections 5.2 and 5.14.1.1).

use std::collections::VecDeque;

use wire::nvme::log::ErrorEntry;
use wire::nvme::{AsyncEvent, Status};

/// Maximum number of entries of the error log.
pub(super) const ERRORS: usize = 64;

/// Event requests, pending events, masked event types, and the error log.
#[derive(Default)]
pub(super) struct AsyncEvents {
    /// Identifiers of outstanding Asynchronous Event Requests.
    requests: VecDeque<u16>,
    waiting: VecDeque<AsyncEvent>,
    /// Event types that were reported and are masked until their log is read, with that log.
    masked: Vec<(u8, u8)>,
    /// Newest first.
    errors: VecDeque<ErrorEntry>,
    error_count: u64,
}

impl AsyncEvents {
    /// Adds the identifier of an Asynchronous Event Request, unless there are already `limit`.
    pub fn request(&mut self, id: u16, limit: u8) -> Result<(), Status> {
        if self.requests.len() >= usize::from(limit) {
            return Err(Status::EVENT_LIMIT.dnr());
        }
        self.requests.push_back(id);
        Ok(())
    }

    /// An Asynchronous Event Request with this identifier is outstanding.
    pub fn is_requested_by(&self, id: u16) -> bool {
        self.requests.contains(&id)
    }

    /// Removes an Asynchronous Event Request. Returns whether there was one.
    pub fn withdraw(&mut self, id: u16) -> bool {
        let at = self.requests.iter().position(|&request| request == id);
        at.and_then(|at| self.requests.remove(at)).is_some()
    }

    /// Records an event, unless it is already pending or its type is masked.
    pub fn raise(&mut self, event: AsyncEvent) {
        let masked = self.masked.iter().any(|&(kind, _)| kind == event.kind);
        if !masked && !self.waiting.contains(&event) {
            self.waiting.push_back(event);
        }
    }

    /// Takes an event and the request that it completes.
    pub fn take(&mut self) -> Option<(u16, AsyncEvent)> {
        let masked = &self.masked;
        let n = self.waiting.iter().position(|event| masked.iter().all(|&(kind, _)| kind != event.kind))?;
        let id = self.requests.pop_front()?;
        let event = self.waiting.remove(n)?;
        self.masked.push((event.kind, event.log));
        Some((id, event))
    }

    /// A log was read: unmasks the events that pointed to it.
    pub fn log_read(&mut self, log: u8) {
        self.masked.retain(|&(_, masked)| masked != log);
    }

    /// The error log, newest first.
    pub fn errors(&self) -> impl Iterator<Item = &ErrorEntry> {
        self.errors.iter()
    }

    /// Adds an entry to the error log.
    pub fn error(&mut self, entry: ErrorEntry) {
        self.error_count += 1;
        self.errors.push_front(ErrorEntry { count: self.error_count, ..entry });
        self.errors.truncate(ERRORS);
    }
}
