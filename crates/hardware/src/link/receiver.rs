//! One end of a link as the receiver of TLPs: sequence check, buffers, Acks.

use std::collections::VecDeque;

use units::Time;
use wire::pcie::FlowClass;

use super::params::{Credits, ReceiverParams};

/// A data link layer packet that waits to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dllp {
    /// All TLPs accepted so far are acknowledged.
    Ack,
    /// Like an Ack, and everything after the last good one is to be sent again.
    Nak,
    /// Buffer space of a class has been freed.
    UpdateCredits(FlowClass),
}

/// What became of a TLP that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceptance {
    /// It is the one expected: hand it on.
    Accepted,
    /// It came a second time and is dropped.
    Duplicate,
    /// It is damaged or follows one that was lost, and is dropped.
    Rejected,
}

/// Receiver of one direction of a link.
#[derive(Debug)]
pub struct Receiver {
    /// What it is made of.
    pub params: ReceiverParams,
    expected: u16,
    nak_outstanding: bool,
    /// Accepted and not yet acknowledged: when, sequence number.
    unacknowledged: VecDeque<(Time, u16)>,
    /// Freed and not yet announced, by class.
    freed: [VecDeque<(Time, Credits)>; 3],
    /// DLLPs to be sent on the opposite direction, by the time at which each is due.
    due: Vec<(Time, Dllp)>,
    /// The earliest of them.
    next_due: Time,
    /// Buffer space in use, by class.
    pub occupied: [Credits; 3],
}

impl Receiver {
    /// An empty receiver.
    pub fn new(params: ReceiverParams) -> Self {
        Self {
            params,
            expected: 0,
            nak_outstanding: false,
            unacknowledged: VecDeque::new(),
            freed: Default::default(),
            due: Vec::with_capacity(8),
            next_due: Time::NEVER,
            occupied: Default::default(),
        }
    }

    /// Judges a TLP with `sequence` that arrived at `now`, `intact` if its LCRC matched.
    pub fn accept(&mut self, now: Time, sequence: u16, intact: bool) -> Acceptance {
        let ahead = sequence.wrapping_sub(self.expected) & 0xfff;
        if intact && ahead == 0 {
            self.expected = (self.expected + 1) & 0xfff;
            self.nak_outstanding = false;
            self.unacknowledged.push_back((now, sequence));
            self.schedule(now + self.params.ack_delay, Dllp::Ack);
            Acceptance::Accepted
        } else if intact && ahead >= 2048 {
            // The Ack of the first copy was lost: say it again.
            self.unacknowledged.push_back((now, self.expected.wrapping_sub(1) & 0xfff));
            self.schedule(now + self.params.ack_delay, Dllp::Ack);
            Acceptance::Duplicate
        } else {
            // One Nak until the expected TLP comes; more would replay it more than once.
            if !self.nak_outstanding {
                self.nak_outstanding = true;
                self.schedule(now, Dllp::Nak);
            }
            Acceptance::Rejected
        }
    }

    /// Notes that `credits` of `class` are free again from `at` on.
    pub fn release(&mut self, at: Time, class: FlowClass, credits: Credits) {
        let occupied = &mut self.occupied[class as usize];
        occupied.header -= credits.header;
        occupied.data -= credits.data;
        if self.params.credits.of(class).is_none() {
            return;
        }
        let queue = &mut self.freed[class as usize];
        // Space is freed in order of arrival within a class.
        let at = queue.back().map_or(at, |&(last, _)| at.max(last));
        queue.push_back((at, credits));
        self.schedule(at + self.params.credit_update_delay, Dllp::UpdateCredits(class));
    }

    /// Notes that `credits` of `class` are taken.
    pub fn occupy(&mut self, class: FlowClass, credits: Credits) {
        let occupied = &mut self.occupied[class as usize];
        occupied.header += credits.header;
        occupied.data += credits.data;
    }

    fn schedule(&mut self, at: Time, dllp: Dllp) {
        if !self.due.iter().any(|&(_, pending)| pending == dllp) {
            self.due.push((at, dllp));
            self.next_due = self.next_due.min(at);
        }
    }

    /// Sends a DLLP again at `at`, since the last one was lost.
    pub fn repeat(&mut self, at: Time, dllp: Dllp) {
        self.schedule(at, dllp);
    }

    /// Time of the next DLLP that is due, if any.
    pub fn next_due(&self) -> Option<Time> {
        (!self.due.is_empty()).then_some(self.next_due)
    }

    /// Takes the earliest DLLP that is due at `now` or before.
    pub fn take_due(&mut self, now: Time) -> Option<(Time, Dllp)> {
        let (index, _) =
            self.due.iter().enumerate().filter(|(_, (at, _))| *at <= now).min_by_key(|(_, (at, _))| *at)?;
        let taken = self.due.swap_remove(index);
        self.next_due = self.due.iter().map(|&(at, _)| at).min().unwrap_or(Time::NEVER);
        Some(taken)
    }

    /// The last sequence number that an Ack or Nak sent at `at` covers.
    pub fn acknowledge(&mut self, at: Time) -> u16 {
        while self.unacknowledged.front().is_some_and(|&(arrived, _)| arrived <= at) {
            self.unacknowledged.pop_front();
        }
        if let Some(&(arrived, sequence)) = self.unacknowledged.front() {
            // Later arrivals need an Ack of their own.
            self.schedule(arrived + self.params.ack_delay, Dllp::Ack);
            return sequence.wrapping_sub(1) & 0xfff;
        }
        self.expected.wrapping_sub(1) & 0xfff
    }

    /// Credits of `class` that an UpdateFC sent at `at` announces.
    pub fn announce(&mut self, at: Time, class: FlowClass) -> Credits {
        let queue = &mut self.freed[class as usize];
        let mut sum = Credits::default();
        while let Some(&(freed, credits)) = queue.front() {
            if freed > at {
                break;
            }
            sum.header += credits.header;
            sum.data += credits.data;
            queue.pop_front();
        }
        if let Some(&(freed, _)) = queue.front() {
            self.schedule(freed + self.params.credit_update_delay, Dllp::UpdateCredits(class));
        }
        sum
    }

    /// Credits of `class` freed and not yet announced.
    pub fn unannounced(&self, class: FlowClass) -> Credits {
        self.freed[class as usize].iter().fold(Credits::default(), |sum, (_, c)| Credits {
            header: sum.header + c.header,
            data: sum.data + c.data,
        })
    }

    /// Forgets everything, as when the link goes down.
    pub fn clear(&mut self) {
        *self = Self::new(self.params.clone());
    }
}
