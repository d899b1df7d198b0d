//! One end of a link as the receiver of TLPs: sequence check, buffers, Acks.

use units::Time;
use wire::pcie::FlowClass;

use super::due::Due;
use super::params::{Credits, ReceiverParams};

/// A data link layer packet that is due, with what it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dllp {
    /// All TLPs up to this sequence number are acknowledged.
    Ack(u16),
    /// Like an Ack, and everything after it is to be sent again.
    Nak(u16),
    /// Buffer space of a class has been freed.
    UpdateCredits(FlowClass, Credits),
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
///
/// DLLPs are not sent when they are due but worked out later, when somebody asks. What each of them
/// says is fixed as it comes up: a DLLP speaks of everything up to the instant at which it is due,
/// and what comes later needs another one.
#[derive(Debug)]
pub struct Receiver {
    /// What it is made of.
    pub params: ReceiverParams,
    /// By class: whether there is an end of its buffer space. Of the others nothing is noted.
    limited: [bool; 3],
    expected: u16,
    nak_outstanding: bool,
    /// Acks to be sent: when each is due, the last sequence number that it covers.
    acks: Due<u16>,
    /// The Nak to be sent.
    nak: Option<(Time, u16)>,
    /// By class: UpdateFCs to be sent, when each is due and what it announces.
    updates: [Due<Credits>; 3],
    /// By class: when the last space was freed.
    last_freed: [Time; 3],
    /// When the first of all these is due.
    next_due: Time,
    /// Buffer space in use, by class, where there is an end of it.
    occupied: [Credits; 3],
}

impl Receiver {
    /// An empty receiver.
    pub fn new(params: ReceiverParams) -> Self {
        Self {
            limited: FlowClass::ALL.map(|class| params.credits.of(class).is_some()),
            params,
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

    /// Judges a TLP with `sequence` that arrived at `now`, `intact` if its LCRC matched.
    #[inline]
    pub fn accept(&mut self, now: Time, sequence: u16, intact: bool) -> Acceptance {
        let ahead = sequence.wrapping_sub(self.expected) & 0xfff;
        if intact && ahead == 0 {
            self.expected = (self.expected + 1) & 0xfff;
            self.nak_outstanding = false;
            self.acknowledge(now, sequence);
            Acceptance::Accepted
        } else if intact && ahead >= 2048 {
            // The Ack of the first copy was lost: say it again.
            self.acknowledge(now, self.last_accepted());
            Acceptance::Duplicate
        } else {
            // One Nak until the expected TLP comes; more would replay it more than once.
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
                let due = now + self.params.ack_delay;
                self.acks.push(due, sequence);
                self.next_due = self.next_due.min(due);
            }
        }
    }

    /// Notes that `credits` of `class` are free again from `at` on.
    #[inline]
    pub fn release(&mut self, at: Time, class: FlowClass, credits: Credits) {
        if !self.is_limited(class) {
            return;
        }
        self.occupied[class as usize] -= credits;
        // Space is freed in order of arrival within a class.
        let last = &mut self.last_freed[class as usize];
        let at = at.max(*last);
        *last = at;
        match self.updates[class as usize].last_mut() {
            Some((due, announced)) if at <= due => *announced += credits,
            _ => self.announce(at + self.params.credit_update_delay, class, credits),
        }
    }

    /// Lets an UpdateFC of `class` be sent at `due`.
    fn announce(&mut self, due: Time, class: FlowClass, credits: Credits) {
        self.updates[class as usize].push(due, credits);
        self.next_due = self.next_due.min(due);
    }

    /// Whether there is an end of the buffer space of `class`.
    #[inline]
    pub fn is_limited(&self, class: FlowClass) -> bool {
        self.limited[class as usize]
    }

    /// Notes that `credits` of `class` are taken, if there is an end of them.
    #[inline]
    pub fn occupy(&mut self, class: FlowClass, credits: Credits) {
        if self.is_limited(class) {
            self.occupied[class as usize] += credits;
        }
    }

    /// Makes up for the UpdateFC that was sent at `sent` and lost: the next one says what it said, too, since it gives a
    /// running total; if none is to come, one is sent later.
    pub fn repeat(&mut self, sent: Time, class: FlowClass, credits: Credits) {
        match self.updates[class as usize].first_mut() {
            Some(next) => *next += credits,
            None => self.announce(sent + self.params.credit_update_delay, class, credits),
        }
    }

    /// Whether a DLLP is due at `now` or before.
    #[inline]
    pub fn is_due(&self, now: Time) -> bool {
        self.next_due <= now
    }

    /// Time of the next DLLP that is due, if any.
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

    /// Credits of `class` freed and not yet announced.
    pub fn unannounced(&self, class: FlowClass) -> Credits {
        self.updates[class as usize].iter().map(|&(_, credits)| credits).sum()
    }

    /// Forgets everything, as when the link goes down.
    pub fn clear(&mut self) {
        *self = Self::new(self.params.clone());
    }
}
