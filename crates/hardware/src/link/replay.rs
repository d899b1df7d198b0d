//! Replay buffer: sequence numbers of unacknowledged TLPs, and copies of them where they can be corrupted.

use std::collections::VecDeque;

use units::{Duration, Time};

use super::due::Due;
use crate::packet::PacketId;

/// Replays without progress after which the link is retrained (base spec 3.6.2.1: REPLAY_NUM has two bits).
const ATTEMPTS: u8 = 4;

/// A TLP that can be sent again.
#[derive(Clone, Copy, Debug)]
pub struct Replayable {
    /// Its sequence number.
    pub sequence: u16,
    /// Its bytes.
    pub copy: PacketId,
    /// Its length on the wire in bytes.
    pub wire_bytes: u32,
    /// When it had been sent first.
    pub sent: Time,
}

/// Replay buffer of a transmitter.
#[derive(Debug)]
pub struct ReplayBuffer {
    /// Capacity in TLPs.
    places: usize,
    /// Sequence number of the next TLP.
    next: u16,
    /// Sequence number of the oldest unacknowledged TLP.
    oldest: u16,
    /// Oldest first; only kept where TLPs can be corrupted or lost.
    copies: VecDeque<Replayable>,
    /// Acks in flight: when they take effect, and the last sequence number covered.
    acks: Due<u16>,
    /// When the oldest TLP is replayed if there is no Ack.
    deadline: Option<Time>,
    /// Replays without progress.
    in_a_row: u8,
}

impl ReplayBuffer {
    /// Creates an empty buffer for `places` TLPs.
    pub fn new(places: usize) -> Self {
        Self {
            places,
            next: 0,
            oldest: 0,
            copies: VecDeque::new(),
            acks: Due::default(),
            deadline: None,
            in_a_row: 0,
        }
    }

    /// Whether there is room for one more TLP in addition to `promised`.
    #[inline]
    pub fn has_room(&self, promised: usize) -> bool {
        self.unacknowledged() + promised < self.places
    }

    /// Assigns the next sequence number.
    #[inline]
    pub fn number(&mut self) -> u16 {
        let sequence = self.next;
        self.next = (sequence + 1) & 0xfff;
        sequence
    }

    /// Keeps a copy of the TLP numbered last.
    pub fn keep(&mut self, replayable: Replayable) {
        self.copies.push_back(replayable);
    }

    /// Kept copies, oldest first.
    pub fn copies(&self) -> &VecDeque<Replayable> {
        &self.copies
    }

    /// Sequence number of the next TLP.
    pub fn next_sequence(&self) -> u16 {
        self.next
    }

    /// Sequence number of the oldest unacknowledged TLP.
    pub fn oldest(&self) -> u16 {
        self.oldest
    }

    #[inline]
    fn unacknowledged(&self) -> usize {
        usize::from(self.next.wrapping_sub(self.oldest) & 0xfff)
    }

    /// Records an Ack or Nak for everything up to `sequence`, which takes effect at `at`.
    pub fn acknowledge(&mut self, at: Time, sequence: u16) {
        self.acks.push(at, sequence);
    }

    /// Whether an Ack that arrived by `now` has not been processed.
    #[inline]
    pub fn has_heard(&self, now: Time) -> bool {
        self.acks.first() <= now
    }

    /// When the first Ack that arrives after `now` takes effect.
    pub fn next_ack(&self, now: Time) -> Option<Time> {
        self.acks.iter().map(|&(at, _)| at).find(|&at| at > now)
    }

    /// Removes TLPs acknowledged by `now` and passes their copies to `free`. Returns whether there were any.
    pub fn retire(&mut self, now: Time, mut free: impl FnMut(PacketId)) -> bool {
        let mut progress = false;
        while let Some((_, sequence)) = self.acks.take(now) {
            if !is_covered(self.oldest, sequence) {
                continue;
            }
            self.oldest = (sequence + 1) & 0xfff;
            self.in_a_row = 0;
            progress = true;
            while let Some(first) = self.copies.front().filter(|first| is_covered(first.sequence, sequence)) {
                free(first.copy);
                self.copies.pop_front();
            }
        }
        progress
    }

    /// Starts the timer if it is not running. Returns whether it was started.
    pub fn start_timer(&mut self, deadline: Time) -> bool {
        let is_stopped = self.deadline.is_none();
        self.deadline.get_or_insert(deadline);
        is_stopped
    }

    /// Restarts the timer after progress. Returns when it expires, if anything is unacknowledged.
    pub fn restart_timer(&mut self, now: Time, timeout: Duration) -> Option<Time> {
        self.deadline = (self.unacknowledged() > 0).then_some(now + timeout);
        self.deadline
    }

    /// Stops the timer: no copies are kept from now on.
    pub fn stop_timer(&mut self) {
        self.deadline = None;
    }

    /// Stops the timer if it has expired by `now`. Returns whether a replay is needed.
    pub fn has_timed_out(&mut self, now: Time) -> bool {
        self.deadline.take_if(|deadline| *deadline <= now).is_some() && self.unacknowledged() > 0
    }

    /// Counts a replay. Returns whether there have been too many without progress, so that the link has to retrain
    /// first.
    pub fn begin_replay(&mut self) -> bool {
        self.in_a_row = (self.in_a_row + 1) % ATTEMPTS;
        self.in_a_row == 0
    }

    /// Discards all state when the link goes down, and passes the copies to `free`.
    pub fn clear(&mut self, mut free: impl FnMut(PacketId)) {
        self.copies.drain(..).for_each(|replayable| free(replayable.copy));
        *self = Self::new(self.places);
    }
}

/// Whether an Ack of `acknowledged` covers `sequence`. Numbers are compared modulo 4096, at most half of that apart.
#[inline]
fn is_covered(sequence: u16, acknowledged: u16) -> bool {
    acknowledged.wrapping_sub(sequence) & 0xfff < 2048
}
