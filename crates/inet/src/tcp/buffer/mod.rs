//! Received data, in order and [out of order](early), within a memory limit, and the resulting receive window.

mod early;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use units::{Duration, Time};

use super::Payload;
use early::{Early, put_together};

/// Received data of a connection.
#[derive(Debug)]
pub(super) struct ReceiveBuffer<P> {
    next: u64,
    /// Position of the end of the peer's stream, once known.
    fin: Option<u64>,
    ready: VecDeque<P>,
    ready_bytes: u64,
    /// Memory used by these pieces.
    ready_memory: u64,
    early: Early<P>,
    /// The last duplicate range, until it has been reported to the peer (RFC 2883).
    repeated: Option<(u64, u64)>,
    /// Right edge of the last offered window.
    offered: u64,
    /// Maximum bytes of payload, if they use no more than twice that memory.
    buffer: u64,
    most: u64,
    tuning: Tuning,
    /// Discarded pieces, for the owner.
    discarded: Vec<P>,
    pruned: u64,
}

/// Measures how much the reader consumes per round trip, and allows the buffer twice that (dynamic right-sizing).
#[derive(Clone, Copy, Debug, Default)]
struct Tuning {
    since: Time,
    taken: u64,
    space: u64,
}

impl<P: Payload> ReceiveBuffer<P> {
    pub fn new(next: u64, buffer: u64, most: u64) -> Self {
        Self {
            next,
            fin: None,
            ready: VecDeque::new(),
            ready_bytes: 0,
            ready_memory: 0,
            early: Early::default(),
            repeated: None,
            offered: next,
            buffer,
            most: most.max(buffer),
            tuning: Tuning { space: buffer / 2, ..Tuning::default() },
            discarded: Vec::new(),
            pruned: 0,
        }
    }

    /// The next expected position.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Number of pieces dropped for lack of memory.
    pub fn pruned(&self) -> u64 {
        self.pruned
    }

    /// The peer ends its stream at `position`; the first such report is final.
    pub fn ends_at(&mut self, position: u64) {
        self.fin.get_or_insert(position);
    }

    /// Whether the peer's stream ends at `position`.
    pub fn is_end(&self, position: u64) -> bool {
        self.fin == Some(position)
    }

    /// Whether the end of the peer's stream has been reached.
    pub fn has_ended(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// Consumes the end of the peer's stream if nothing before it is missing.
    pub fn pass_end(&mut self) -> bool {
        let passes = self.is_end(self.next);
        if passes {
            self.next += 1;
            // Data beyond the end of a stream are invalid.
            self.forget_early();
        }
        passes
    }

    /// Records a duplicate range, to be reported to the peer (RFC 2883).
    pub fn came_again(&mut self, start: u64, end: u64) {
        self.repeated = Some((start, end));
    }

    /// The peer has been informed.
    pub fn told(&mut self) {
        self.repeated = None;
    }

    /// Fixes the buffer size.
    pub fn set_buffer(&mut self, bytes: u64) {
        (self.buffer, self.most) = (bytes, bytes);
    }

    /// Adds data at `position`, not beyond the window. Returns whether any of it was in order.
    pub fn take(&mut self, mut position: u64, mut data: P) -> bool {
        let edge = self.fin.unwrap_or(u64::MAX).min(self.offered);
        if position < self.next {
            let known = (self.next - position).min(u64::from(data.len()));
            self.repeated = (known > 0).then_some((position, position + known));
            data.drop_front(known as u32);
            position += known;
        }
        if position + u64::from(data.len()) > edge {
            data.truncate(edge.saturating_sub(position) as u32);
        }
        if data.is_empty() {
            self.discarded.push(data);
            return false;
        }
        if !self.make_room(position, data.true_size().into()) {
            self.pruned += 1;
            self.discarded.push(data);
            return false;
        }
        if position > self.next {
            let whole = (position, position + u64::from(data.len()));
            if !self.early.hold(position, data, &mut self.discarded) {
                self.repeated = Some(whole);
            }
            return false;
        }
        self.accept(data);
        self.join();
        true
    }

    /// Memory limit in bytes (Linux: `sk_rcvbuf`, half of which is for payload).
    fn limit(&self) -> u64 {
        2 * self.buffer
    }

    /// Whether there is no memory for a piece, unless others are merged or dropped.
    pub fn lacks_memory(&self, piece: &P) -> bool {
        !piece.is_empty() && self.memory() + u64::from(piece.true_size()) > self.limit()
    }

    /// Drops out-of-order data after `position`, from the end, until there is memory for a piece there (Linux:
    /// `tcp_prune_ofo_queue`). Returns whether there is; always true for the next expected piece if the reader has
    /// consumed everything.
    fn make_room(&mut self, position: u64, bytes: u64) -> bool {
        while self.memory() + bytes > self.limit()
            && let Some(data) = self.early.pop_behind(position)
        {
            self.pruned += 1;
            self.discarded.push(data);
        }
        self.memory() + bytes <= self.limit() || position == self.next && self.memory() == 0
    }

    /// Merges adjacent pieces that use more than twice the memory that they show (Linux: `tcp_collapse`): `join`
    /// merges several, or returns them if it cannot.
    pub fn collapse(&mut self, mut join: impl FnMut(Vec<P>) -> Result<P, Vec<P>>) {
        let mut position = self.next - self.ready_bytes;
        let ready = std::mem::take(&mut self.ready).into_iter().map(|data| {
            let at = position;
            position += u64::from(data.len());
            (at, data)
        });
        self.ready = put_together(ready, &mut join).into_iter().map(|(_, data)| data).collect();
        self.ready_memory = self.ready.iter().map(|data| u64::from(data.true_size())).sum();
        self.early.collapse(&mut join);
    }

    fn accept(&mut self, data: P) {
        self.next += u64::from(data.len());
        self.enter(&data);
        self.ready.push_back(data);
    }

    fn enter(&mut self, data: &P) {
        self.ready_bytes += u64::from(data.len());
        self.ready_memory += u64::from(data.true_size());
    }

    /// Moves out-of-order data that have become in order.
    fn join(&mut self) {
        if self.early.is_empty() {
            return;
        }
        let mut early = std::mem::take(&mut self.early);
        let mut discarded = std::mem::take(&mut self.discarded);
        early.follow(self.next, &mut discarded, |data| self.accept(data));
        (self.early, self.discarded) = (early, discarded);
    }

    /// Contents of the SACK option: a duplicate range, once, and the out-of-order ranges.
    pub fn ranges_to_tell(&self) -> ([(u64, u64); 4], usize) {
        let (mut ranges, mut count) = self.early.ranges();
        if let Some(repeated) = self.repeated {
            ranges.rotate_right(1);
            ranges[0] = repeated;
            count = (count + 1).min(ranges.len());
        }
        (ranges, count)
    }

    /// Whether there is anything to report.
    pub fn has_ranges(&self) -> bool {
        self.has_early() || self.repeated.is_some()
    }

    pub fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Right edge of the window that can be offered now, assuming that half of the free memory is payload (Linux:
    /// `tcp_space`). It never moves left, and moves right by at least a segment or half the buffer (RFC 9293,
    /// 3.8.6.2.2).
    pub fn edge(&self, mss: u64) -> u64 {
        let free = self.limit().saturating_sub(self.memory()) / 2;
        let edge = self.next + free;
        let step = mss.min(self.buffer / 2);
        if edge >= self.offered + step { edge } else { self.offered.max(self.next) }
    }

    /// Records the offered window.
    pub fn offer(&mut self, edge: u64) {
        self.offered = self.offered.max(edge);
    }

    /// Right edge of the last offered window.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Bytes ready to be read.
    pub fn ready_bytes(&self) -> u64 {
        self.ready_bytes
    }

    /// Bytes held, including out-of-order data.
    pub fn held_bytes(&self) -> u64 {
        self.ready_bytes + self.early.bytes()
    }

    /// Memory used, in bytes (Linux: `sk_rmem_alloc`).
    pub fn memory(&self) -> u64 {
        self.ready_memory + self.early.memory()
    }

    /// The first piece ready to be read.
    pub fn front(&self) -> Option<&P> {
        self.ready.front()
    }

    /// Takes the first piece, or its first `most` bytes if it can be split.
    pub fn read(&mut self, now: Time, rtt: Option<Duration>) -> Option<P> {
        let data = self.ready.pop_front()?;
        self.ready_bytes -= u64::from(data.len());
        self.ready_memory -= u64::from(data.true_size());
        self.tune(now, u64::from(data.len()), rtt);
        Some(data)
    }

    /// Puts back what is left of a piece.
    pub fn unread(&mut self, data: P) {
        self.enter(&data);
        self.tuning.taken = self.tuning.taken.saturating_sub(u64::from(data.len()));
        self.ready.push_front(data);
    }

    fn tune(&mut self, now: Time, bytes: u64, rtt: Option<Duration>) {
        let Some(rtt) = rtt else { return };
        self.tuning.taken += bytes;
        if now.since(self.tuning.since) < rtt {
            return;
        }
        if self.tuning.taken > self.tuning.space {
            self.tuning.space = self.tuning.taken;
            self.buffer = self.buffer.max((2 * self.tuning.taken).min(self.most));
        }
        self.tuning.since = now;
        self.tuning.taken = 0;
    }

    /// Lets what came too early go: what it waited for will not come.
    pub fn forget_early(&mut self) {
        self.discarded.extend(self.early.drain());
    }

    /// Lets everything go.
    pub fn clear(&mut self) {
        self.forget_early();
        self.discarded.extend(self.ready.drain(..));
        (self.ready_bytes, self.ready_memory) = (0, 0);
    }

    /// Gives what nobody wants to `each`.
    pub fn discarded(&mut self) -> std::vec::Drain<'_, P> {
        self.discarded.drain(..)
    }

    pub fn discard(&mut self, data: P) {
        self.discarded.push(data);
    }
}
