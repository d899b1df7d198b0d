//! Received data, in order and [too early](early), in no more memory than allowed, and the window that follows from it.

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
    /// Where the peer's stream ends, once it has said so.
    fin: Option<u64>,
    ready: VecDeque<P>,
    ready_bytes: u64,
    /// Bytes of memory that these pieces keep.
    ready_memory: u64,
    early: Early<P>,
    /// What came again last, until the peer has been told (RFC 2883).
    repeated: Option<(u64, u64)>,
    /// Right edge of the window that was offered last.
    offered: u64,
    /// Bytes of payload that may be held, if they keep no more than as much memory again.
    buffer: u64,
    most: u64,
    tuning: Tuning,
    /// What nobody wants.
    discarded: Vec<P>,
    pruned: u64,
}

/// Finds how much the reader takes in a round trip, and lets the buffer hold twice that (dynamic right-sizing).
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

    /// The next position that is expected.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Pieces that were let go for want of memory.
    pub fn pruned(&self) -> u64 {
        self.pruned
    }

    /// The peer says that its stream ends at `position`; what it said first holds.
    pub fn ends_at(&mut self, position: u64) {
        self.fin.get_or_insert(position);
    }

    /// Whether the peer's stream ends at `position`.
    pub fn is_end(&self, position: u64) -> bool {
        self.fin == Some(position)
    }

    /// Whether the end of the peer's stream has been passed.
    pub fn has_ended(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// Passes the end of the peer's stream if nothing is missing before it.
    pub fn pass_end(&mut self) -> bool {
        let passes = self.is_end(self.next);
        if passes {
            self.next += 1;
            // Nothing lies behind the end of a stream, whatever had been said to.
            self.forget_early();
        }
        passes
    }

    /// A range came that had been here: the peer is to be told (RFC 2883).
    pub fn came_again(&mut self, start: u64, end: u64) {
        self.repeated = Some((start, end));
    }

    /// The peer has been told.
    pub fn told(&mut self) {
        self.repeated = None;
    }

    /// May hold so many bytes, no more and no fewer.
    pub fn set_buffer(&mut self, bytes: u64) {
        (self.buffer, self.most) = (bytes, bytes);
    }

    /// Takes data at `position`, not beyond the window. Whether anything of it came in order.
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

    /// Bytes of memory that may be kept (Linux: `sk_rcvbuf`, half of which is for payload).
    fn limit(&self) -> u64 {
        2 * self.buffer
    }

    /// Whether there is no memory for a piece, unless something is put together or let go.
    pub fn lacks_memory(&self, piece: &P) -> bool {
        !piece.is_empty() && self.memory() + u64::from(piece.true_size()) > self.limit()
    }

    /// Lets go what came too early and lies behind `position`, the last first, until there is memory for a piece there
    /// (Linux: `tcp_prune_ofo_queue`). Whether there is: for the next piece always when the reader has nothing else.
    fn make_room(&mut self, position: u64, bytes: u64) -> bool {
        while self.memory() + bytes > self.limit()
            && let Some(data) = self.early.pop_behind(position)
        {
            self.pruned += 1;
            self.discarded.push(data);
        }
        self.memory() + bytes <= self.limit() || position == self.next && self.memory() == 0
    }

    /// Puts neighbours together that keep more than twice the memory that they show (Linux: `tcp_collapse`): `join` makes
    /// one of several, or gives them back if it cannot.
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

    /// Lets what came too early follow what came now.
    fn join(&mut self) {
        if self.early.is_empty() {
            return;
        }
        let mut early = std::mem::take(&mut self.early);
        let mut discarded = std::mem::take(&mut self.discarded);
        early.follow(self.next, &mut discarded, |data| self.accept(data));
        (self.early, self.discarded) = (early, discarded);
    }

    /// What the SACK option says: what came again, once, and what came too early.
    pub fn ranges_to_tell(&self) -> ([(u64, u64); 4], usize) {
        let (mut ranges, mut count) = self.early.ranges();
        if let Some(repeated) = self.repeated {
            ranges.rotate_right(1);
            ranges[0] = repeated;
            count = (count + 1).min(ranges.len());
        }
        (ranges, count)
    }

    /// Whether there is anything to tell.
    pub fn has_ranges(&self) -> bool {
        self.has_early() || self.repeated.is_some()
    }

    pub fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// The right edge of the window that can be offered now, of which half the memory that is left is reckoned to be payload
    /// (Linux: `tcp_space`): it never moves to the left, and to the right by no less than a segment or half the buffer
    /// (RFC 9293, 3.8.6.2.2).
    pub fn edge(&self, mss: u64) -> u64 {
        let free = self.limit().saturating_sub(self.memory()) / 2;
        let edge = self.next + free;
        let step = mss.min(self.buffer / 2);
        if edge >= self.offered + step { edge } else { self.offered.max(self.next) }
    }

    /// The window was offered up to here.
    pub fn offer(&mut self, edge: u64) {
        self.offered = self.offered.max(edge);
    }

    /// Right edge of the window that was offered last.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Bytes that wait to be read.
    pub fn ready_bytes(&self) -> u64 {
        self.ready_bytes
    }

    /// Bytes held, those that came too early among them.
    pub fn held_bytes(&self) -> u64 {
        self.ready_bytes + self.early.bytes()
    }

    /// Bytes of memory that they keep (Linux: `sk_rmem_alloc`).
    pub fn memory(&self) -> u64 {
        self.ready_memory + self.early.memory()
    }

    /// The first piece that waits to be read.
    pub fn front(&self) -> Option<&P> {
        self.ready.front()
    }

    /// Takes the first piece, or its first `most` bytes, if it can be cut.
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
