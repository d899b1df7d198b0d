//! TLPs planned for later: their delivery is scheduled ahead, which saves the event of their departure.
//!
//! A completion whose data is in flight, or a write in a device's pipeline, leaves at a known future time. Other wire
//! traffic until then is unknown, so its delivery is scheduled for the earliest possible time. Any later use of the
//! link first sends the planned TLPs that are due, each at its own time, and postpones the deliveries that turn out to
//! be later.

use engine::EventKey;
use units::Time;

use super::on_wire::WireTimes;
use crate::packet::{PacketId, PacketPool};
use crate::table::Queue;

/// A TLP that will leave later. Its credits have been consumed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planned {
    /// When it leaves.
    pub at: Time,
    /// Its way over the link if nothing else comes before it.
    pub expected: WireTimes,
    /// Event of its delivery in that case.
    pub delivery: EventKey,
}

/// Planned TLPs of a direction, in time order. The pool of TLPs keeps when each leaves.
#[derive(Debug)]
pub struct Plans {
    queue: Queue,
    length: usize,
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
            queue: Queue::default(),
            length: 0,
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
        self.length
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
    pub fn push(&mut self, packets: &mut PacketPool, packet: PacketId, planned: Planned) {
        if self.queue.is_empty() {
            self.first = planned.at;
        }
        self.last = (planned.at, planned.expected.end);
        self.length += 1;
        packets.plan(&mut self.queue, packet, planned);
    }

    /// Takes the first one.
    #[inline]
    pub fn pop(&mut self, packets: &mut PacketPool) -> Option<(PacketId, Planned)> {
        let taken = packets.pop_planned(&mut self.queue)?;
        self.length -= 1;
        self.first = packets.first_planned(&self.queue);
        Some(taken)
    }

    /// All of them.
    pub fn packets(&self, packets: &PacketPool) -> impl Iterator<Item = PacketId> {
        packets.planned(&self.queue)
    }

    /// Takes all of them, to be planned again.
    pub fn take(&mut self, packets: &mut PacketPool) -> Vec<(PacketId, Planned)> {
        std::iter::from_fn(|| self.pop(packets)).collect()
    }
}
