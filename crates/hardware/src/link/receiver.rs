//! Receiving end of a link: sequence check, buffers, Acks.

use units::{Duration, Time};
use wire::pcie::FlowClass;

use super::due::Due;
use super::params::{Credits, ReceiverParams};

/// A pending data link layer packet, with its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dllp {
    /// All TLPs up to this sequence number are acknowledged.
    Ack(u16),
    /// Acknowledges like an Ack, and requests a replay of everything after it.
    Nak(u16),
    /// Buffer space of a class was freed.
    UpdateCredits(FlowClass, Credits),
}

/// Result of the sequence and LCRC check of a TLP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceptance {
    /// Expected TLP: deliver it.
    Accepted,
    /// Received before; dropped.
    Duplicate,
    /// Corrupted, or behind a lost one; dropped.
    Rejected,
}

/// Receiver of one direction of a link.
///
/// DLLPs are not sent when they are due but computed lazily. The content of a DLLP is fixed as it becomes due: it
/// covers everything up to that time, and later TLPs need another one.
#[derive(Debug)]
pub struct Receiver {
    /// How long the first unacknowledged TLP waits for more before an Ack is sent.
    ack_delay: Duration,
    /// How long freed buffer space waits for more before an UpdateFC is sent.
    credit_update_delay: Duration,
    /// By class: whether its buffer space is limited. Unlimited space is not tracked.
    limited: [bool; 3],
    expected: u16,
    nak_outstanding: bool,
    /// Pending Acks: due time and last sequence number covered.
    acks: Due<u16>,
    /// The pending Nak.
    nak: Option<(Time, u16)>,
    /// By class: pending UpdateFCs, with due time and credits announced.
    updates: [Due<Credits>; 3],
    /// By class: when space was last freed.
    last_freed: [Time; 3],
    /// When the first of all these DLLPs is due.
    next_due: Time,
    /// Buffer space in use by class, where limited.
    occupied: [Credits; 3],
}

impl Receiver {
    /// An empty receiver.
    pub fn new(params: &ReceiverParams) -> Self {
        Self {
            ack_delay: params.ack_delay,
            credit_update_delay: params.credit_update_delay,
            limited: FlowClass::ALL.map(|class| params.credits.of(class).is_some()),
            expected: 0,
            nak_outstanding: false,
            acks: Due::default(),
            nak: None,
            updates: Default::default(),
            last_freed: [Time::ZERO; 3],
            next_due: Time::NEVER,
            occupied: Default::default(),
        }
    }

    /// Whether `sequence` is the number of the next TLP.
    #[inline]
    pub fn expects(&self, sequence: u16) -> bool {
        sequence == self.expected
    }

    /// Takes the next TLP, which arrived at `now`.
    #[inline]
    pub fn accept(&mut self, now: Time, sequence: u16) {
        self.expected = (sequence + 1) & 0xfff;
        self.nak_outstanding = false;
        self.acknowledge(now, sequence);
    }

    /// Checks a TLP with `sequence` that arrived at `now`; `intact` if its LCRC matched.
    pub fn judge(&mut self, now: Time, sequence: u16, intact: bool) -> Acceptance {
        let ahead = sequence.wrapping_sub(self.expected) & 0xfff;
        if intact && ahead == 0 {
            self.accept(now, sequence);
            Acceptance::Accepted
        } else if intact && ahead >= 2048 {
            // The Ack of the first copy was lost: repeat it.
            self.acknowledge(now, self.last_accepted());
            Acceptance::Duplicate
        } else {
            // One Nak until the expected TLP arrives; more would cause more than one replay.
            if !self.nak_outstanding {
                self.nak_outstanding = true;
                self.nak = Some((now, self.last_accepted()));
                self.next_due = self.next_due.min(now);
            }
            Acceptance::Rejected
        }
    }

    fn last_accepted(&self) -> u16 {
        self.expected.wrapping_sub(1) & 0xfff
    }

    #[inline]
    fn acknowledge(&mut self, now: Time, sequence: u16) {
        match self.acks.last_mut() {
            Some((due, covered)) if now <= due => *covered = sequence,
            _ => {
                let due = now + self.ack_delay;
                self.acks.push(due, sequence);
                self.next_due = self.next_due.min(due);
            }
        }
    }

    /// Frees `credits` of `class` at `at`.
    #[inline]
    pub fn release(&mut self, at: Time, class: FlowClass, credits: Credits) {
        if !self.is_limited(class) {
            return;
        }
        self.occupied[class as usize] -= credits;
        // Space of a class is freed in order of arrival.
        let last = &mut self.last_freed[class as usize];
        let at = at.max(*last);
        *last = at;
        match self.updates[class as usize].last_mut() {
            Some((due, announced)) if at <= due => *announced += credits,
            _ => self.announce(at + self.credit_update_delay, class, credits),
        }
    }

    /// Schedules an UpdateFC of `class` for `due`.
    fn announce(&mut self, due: Time, class: FlowClass, credits: Credits) {
        self.updates[class as usize].push(due, credits);
        self.next_due = self.next_due.min(due);
    }

    /// Whether the buffer space of `class` is limited.
    #[inline]
    pub fn is_limited(&self, class: FlowClass) -> bool {
        self.limited[class as usize]
    }

    /// Takes `credits` of `class`. Returns whether they are limited; otherwise, nothing has to be released.
    #[inline]
    pub fn occupy(&mut self, class: FlowClass, credits: Credits) -> bool {
        let is_limited = self.is_limited(class);
        if is_limited {
            self.occupied[class as usize] += credits;
        }
        is_limited
    }

    /// Compensates for the UpdateFC sent at `sent` that was lost. UpdateFCs carry running totals, so the next one makes
    /// up for it; if none is pending, one is sent later.
    pub fn repeat(&mut self, sent: Time, class: FlowClass, credits: Credits) {
        match self.updates[class as usize].first_mut() {
            Some(next) => *next += credits,
            None => self.announce(sent + self.credit_update_delay, class, credits),
        }
    }

    /// Whether a DLLP is due at `now` or before.
    #[inline]
    pub fn is_due(&self, now: Time) -> bool {
        self.next_due <= now
    }

    /// When the next DLLP is due, if any.
    pub fn next_due(&self) -> Option<Time> {
        (self.next_due < Time::NEVER).then_some(self.next_due)
    }

    /// Takes the earliest DLLP that is due at `now` or before.
    pub fn take_due(&mut self, now: Time) -> Option<(Time, Dllp)> {
        if !self.is_due(now) {
            return None;
        }
        let due = self.next_due;
        let dllp = if let Some((_, sequence)) = self.nak.take_if(|(at, _)| *at == due) {
            Some(Dllp::Nak(sequence))
        } else if let Some((_, sequence)) = self.acks.take(due) {
            Some(Dllp::Ack(sequence))
        } else {
            FlowClass::ALL.into_iter().find_map(|class| {
                let (_, credits) = self.updates[class as usize].take(due)?;
                Some(Dllp::UpdateCredits(class, credits))
            })
        };
        let nak = self.nak.map_or(Time::NEVER, |(at, _)| at);
        self.next_due = self.updates.iter().map(Due::first).fold(nak.min(self.acks.first()), Time::min);
        dllp.map(|dllp| (due, dllp))
    }

    /// Credits of `class` in use.
    pub fn occupied(&self, class: FlowClass) -> Credits {
        self.occupied[class as usize]
    }

    /// Credits of `class` freed but not yet announced.
    pub fn unannounced(&self, class: FlowClass) -> Credits {
        self.updates[class as usize].iter().map(|&(_, credits)| credits).sum()
    }

    /// Discards all state when the link goes down.
    pub fn clear(&mut self) {
        (self.expected, self.nak_outstanding) = (0, false);
        (self.acks, self.nak, self.updates) = (Due::default(), None, Default::default());
        (self.last_freed, self.next_due) = ([Time::ZERO; 3], Time::NEVER);
        self.occupied = Default::default();
    }
}
