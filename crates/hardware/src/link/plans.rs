//! TLPs planned for later: their delivery is scheduled ahead, which saves the event of their departure.
//!
//! A completion whose data is in flight, or a write in a device's pipeline, leaves at a known future time. Other wire
//! traffic until then is unknown, so its delivery is scheduled for the earliest possible time. Any later use of the
//! link first sends the planned TLPs that are due, each at its own time, and postpones the deliveries that turn out to
//! be later.

use std::collections::VecDeque;

use engine::EventKey;
use units::Time;

use super::on_wire::WireTimes;
use crate::packet::PacketId;

/// A TLP that will leave later. Its credits have been consumed.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// When it leaves.
    pub at: Time,
    pub packet: PacketId,
    /// Its way over the link if nothing else comes before it.
    pub expected: WireTimes,
    /// Event of its delivery in that case.
    pub delivery: EventKey,
}

/// Planned TLPs of a direction, in time order.
#[derive(Debug)]
pub struct Plans {
    queue: VecDeque<Planned>,
    /// When the first one leaves; [`Time::NEVER`] if there is none.
    first: Time,
    /// When the last one leaves, and when the wire is free after it.
    last: (Time, Time),
    /// When the last TLP leaves that could not be planned.
    refused_until: Time,
}

impl Default for Plans {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            first: Time::NEVER,
            last: (Time::ZERO, Time::ZERO),
            refused_until: Time::ZERO,
        }
    }
}

impl Plans {
    /// When the first one leaves; [`Time::NEVER`] if there is none.
    #[inline(always)]
    pub fn first(&self) -> Time {
        self.first
    }

    /// Number of planned TLPs.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether another TLP can be planned for `at` behind the last one. Refused TLPs come first, also for credits.
    #[inline]
    pub fn accept(&self, now: Time, at: Time) -> bool {
        self.refused_until < now && (self.queue.is_empty() || self.last.0 <= at)
    }

    /// A TLP for `at` could not be planned.
    pub fn refuse(&mut self, at: Time) {
        self.refused_until = self.refused_until.max(at);
    }

    /// When a wire that is otherwise `free` is free after the last one.
    #[inline]
    pub fn wire_free(&self, free: Time) -> Time {
        if self.queue.is_empty() { free } else { self.last.1 }
    }

    /// Appends one.
    #[inline]
    pub fn push(&mut self, planned: Planned) {
        if self.queue.is_empty() {
            self.first = planned.at;
        }
        self.last = (planned.at, planned.expected.end);
        self.queue.push_back(planned);
    }

    /// Takes the first one.
    #[inline]
    pub fn pop(&mut self) -> Option<Planned> {
        let planned = self.queue.pop_front();
        self.first = self.queue.front().map_or(Time::NEVER, |planned| planned.at);
        planned
    }

    /// Lets `expect` find each one's way and delivery anew, from when the wire is free before it.
    pub fn expect(&mut self, mut free: Time, mut expect: impl FnMut(&mut Planned, Time)) {
        for planned in &mut self.queue {
            expect(planned, planned.at.max(free));
            free = planned.expected.end;
        }
        self.last.1 = free;
    }

    /// The packets of all.
    pub fn packets(&self) -> impl Iterator<Item = PacketId> {
        self.queue.iter().map(|planned| planned.packet)
    }
}
