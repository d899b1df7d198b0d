//! TLPs that have been sent and are not acknowledged: their numbers, and copies of them where something can damage them.

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
}

/// The replay buffer of one sender.
#[derive(Debug)]
pub struct ReplayBuffer {
    /// TLPs that it has room for.
    places: usize,
    /// Sequence number of the next TLP.
    next: u16,
    /// Sequence number of the oldest TLP that is not acknowledged.
    oldest: u16,
    /// Oldest first; kept only where something can damage or lose them.
    copies: VecDeque<Replayable>,
    /// Acks under way: when they take effect, the last sequence number they cover.
    acks: Due<u16>,
    /// When the oldest TLP is sent again without an Ack.
    deadline: Option<Time>,
    /// Replays since the last progress.
    in_a_row: u8,
}

impl ReplayBuffer {
    /// An empty buffer for so many TLPs.
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

    /// Whether there is room for one TLP more than `promised`.
    #[inline]
    pub fn has_room(&self, promised: usize) -> bool {
        self.unacknowledged() + promised < self.places
    }

    /// Gives the next TLP its sequence number and its place.
    #[inline]
    pub fn number(&mut self) -> u16 {
        let sequence = self.next;
        self.next = (sequence + 1) & 0xfff;
        sequence
    }

    /// Keeps a copy of the TLP that has been numbered last.
    pub fn keep(&mut self, replayable: Replayable) {
        self.copies.push_back(replayable);
    }

    /// The copies that are kept, oldest first.
    pub fn copies(&self) -> &VecDeque<Replayable> {
        &self.copies
    }

    /// Sequence number of the next TLP.
    pub fn next_sequence(&self) -> u16 {
        self.next
    }

    /// Sequence number of the oldest TLP that is not acknowledged.
    pub fn oldest(&self) -> u16 {
        self.oldest
    }

    #[inline]
    fn unacknowledged(&self) -> usize {
        usize::from(self.next.wrapping_sub(self.oldest) & 0xfff)
    }

    /// An Ack or Nak that covers all up to `sequence` takes effect at `at`.
    pub fn acknowledge(&mut self, at: Time, sequence: u16) {
        self.acks.push(at, sequence);
    }

    /// Whether an Ack has arrived by `now` that has not been looked at.
    #[inline]
    pub fn has_heard(&self, now: Time) -> bool {
        self.acks.first() <= now
    }

    /// When the next Ack takes effect of those that arrive after `now`.
    pub fn next_ack(&self, now: Time) -> Option<Time> {
        self.acks.iter().map(|&(at, _)| at).find(|&at| at > now)
    }

    /// Drops what Acks covered up to `now`; hands the copies to `free`. Returns whether anything was acknowledged.
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

    /// Lets the timer run from now on if it does not. Whether it was started.
    pub fn start_timer(&mut self, deadline: Time) -> bool {
        let is_stopped = self.deadline.is_none();
        self.deadline.get_or_insert(deadline);
        is_stopped
    }

    /// Starts the timer anew as there is progress. When it runs out, if anything is left to wait for.
    pub fn restart_timer(&mut self, now: Time, timeout: Duration) -> Option<Time> {
        self.deadline = (self.unacknowledged() > 0).then_some(now + timeout);
        self.deadline
    }

    /// Stops the timer: no copies are kept any more.
    pub fn stop_timer(&mut self) {
        self.deadline = None;
    }

    /// Stops the timer if it has run out by `now`. Whether something is to be sent again for it.
    pub fn has_timed_out(&mut self, now: Time) -> bool {
        self.deadline.take_if(|deadline| *deadline <= now).is_some() && self.unacknowledged() > 0
    }

    /// Counts a replay. Whether it is one too many without progress, so that the link is to be retrained first.
    pub fn begin_replay(&mut self) -> bool {
        self.in_a_row = (self.in_a_row + 1) % ATTEMPTS;
        self.in_a_row == 0
    }

    /// Forgets everything, as when the link goes down; hands the copies to `free`.
    pub fn clear(&mut self, mut free: impl FnMut(PacketId)) {
        self.copies.drain(..).for_each(|replayable| free(replayable.copy));
        *self = Self::new(self.places);
    }
}

/// Whether an Ack of `acknowledged` covers `sequence`: numbers are compared modulo 4096, at most half of it apart.
#[inline]
fn is_covered(sequence: u16, acknowledged: u16) -> bool {
    acknowledged.wrapping_sub(sequence) & 0xfff < 2048
}
