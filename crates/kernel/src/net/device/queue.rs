//! Queue in front of a driver's TX queue, with a byte limit for the driver.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use platform::lock::SpinLock;
use platform::net::Packet;
use platform::sync::WaitQueue;
use units::{Duration, Time};

/// Most packets that wait (Linux: the default `txqueuelen`).
const LENGTH: usize = 1000;
/// Initial byte limit: two packets of 64 KiB that the driver segments (assumed; Linux's dynamic queue limits start at
/// 0 and grow within a few rounds).
const FIRST_LIMIT: u64 = 128 << 10;

/// Limit of the bytes that a driver holds: enough never to run dry, and no more (as Linux's byte queue limits). It
/// grows when the driver ran dry while packets waited.
#[derive(Debug)]
pub(super) struct ByteLimit {
    limit: u64,
    held: u64,
    /// Since when packets have waited because of the limit, if any since the last completion.
    held_back: Option<Time>,
}

impl Default for ByteLimit {
    fn default() -> Self {
        Self { limit: FIRST_LIMIT, held: 0, held_back: None }
    }
}

impl ByteLimit {
    /// Whether the driver may take more. If not, records that packets wait.
    fn allows(&mut self, now: Time) -> bool {
        let allows = self.held < self.limit;
        if !allows {
            self.held_back.get_or_insert(now);
        }
        allows
    }

    fn take(&mut self, bytes: u64) {
        self.held += bytes;
    }

    fn done(&mut self, bytes: u64) {
        self.held = self.held.saturating_sub(bytes);
        if self.held_back.take().is_some() && self.held == 0 {
            self.limit = self.limit.saturating_add(bytes.max(1));
        }
    }
}

/// A TX queue of a device: packets that the driver's ring or the byte limit does not yet admit.
#[derive(Default)]
pub(super) struct TxQueue {
    waiting: RefCell<VecDeque<Packet>>,
    bytes: RefCell<ByteLimit>,
    /// Since when the driver's ring has been full.
    stopped: Cell<Option<Time>>,
    /// Earlier time with a full ring.
    stopped_for: Cell<Duration>,
    /// Sent with `more`, and the doorbell was not rung yet.
    pub unrung: Cell<bool>,
    /// Packets in the driver.
    outstanding: Cell<u64>,
    /// A core is passing packets to the driver.
    pub busy: Cell<bool>,
    /// Held by the core that calls the driver.
    pub lock: SpinLock,
    pub room: WaitQueue,
}

impl TxQueue {
    /// Whether the driver can take a packet now.
    pub fn is_open(&self, now: Time) -> bool {
        self.stopped.get().is_none() && self.bytes.borrow_mut().allows(now)
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// Since when packets have waited without progress: the driver's ring is full, or it is at its byte limit and
    /// reports no completions.
    pub fn stuck_since(&self) -> Option<Time> {
        [self.stopped.get(), self.bytes.borrow().held_back].into_iter().flatten().min()
    }

    /// Restarts the timeout after the driver was told.
    pub fn allow_again(&self, now: Time) {
        if self.is_stopped() {
            self.start(now);
            self.stop(now);
        }
        let held_back = &mut self.bytes.borrow_mut().held_back;
        *held_back = held_back.and(Some(now));
    }

    /// Total time with a full ring, up to `now`.
    pub fn stopped_until(&self, now: Time) -> Duration {
        self.stopped_for.get() + self.stopped.get().map_or(Duration::ZERO, |since| now.since(since))
    }

    pub fn stop(&self, now: Time) {
        self.stopped.set(Some(self.stopped.get().unwrap_or(now)));
    }

    pub fn start(&self, now: Time) {
        self.stopped_for.set(self.stopped_until(now));
        self.stopped.set(None);
        self.room.wake_all();
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// Returns it if there is no room.
    pub fn put(&self, packet: Packet) -> Result<(), Packet> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= LENGTH {
            return Err(packet);
        }
        waiting.push_back(packet);
        Ok(())
    }

    /// Puts a packet back that the driver refused.
    pub fn put_back(&self, packet: Packet) {
        self.waiting.borrow_mut().push_front(packet);
    }

    pub fn take(&self) -> Option<Packet> {
        self.waiting.borrow_mut().pop_front()
    }

    /// The driver has taken a packet.
    pub fn given(&self, bytes: u64) {
        self.bytes.borrow_mut().take(bytes);
        self.outstanding.set(self.outstanding.get() + 1);
    }

    /// The driver has finished packets.
    pub fn done(&self, packets: u32, bytes: u64) {
        self.bytes.borrow_mut().done(bytes);
        self.outstanding.set(self.outstanding.get().saturating_sub(packets.into()));
    }

    /// Resets the state: no packet is in flight.
    pub fn reset(&self) {
        *self.bytes.borrow_mut() = ByteLimit::default();
        self.outstanding.set(0);
        self.unrung.set(false);
        // Time with a full ring ends with a reset.
        self.start(self.stopped.get().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_grows_only_when_the_driver_ran_dry_and_packets_waited() {
        let mut bytes = ByteLimit::default();
        bytes.take(FIRST_LIMIT);
        bytes.done(FIRST_LIMIT);
        assert_eq!(bytes.limit, FIRST_LIMIT, "nothing waited");
        bytes.take(FIRST_LIMIT);
        assert!(!bytes.allows(Time::ZERO));
        bytes.done(FIRST_LIMIT / 2);
        assert_eq!(bytes.limit, FIRST_LIMIT, "it had enough");
        bytes.take(FIRST_LIMIT / 2);
        assert!(!bytes.allows(Time::ZERO));
        bytes.done(FIRST_LIMIT);
        assert_eq!(bytes.limit, 2 * FIRST_LIMIT);
        assert!(bytes.allows(Time::ZERO));
    }
}
