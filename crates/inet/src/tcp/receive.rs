//! The receiving half: data in order, data that came too early, and the window that is offered.

use std::collections::VecDeque;

use units::{Duration, Time};

use super::Payload;

/// Segments of different places that came too early and are held (as many as a window of full-size ones).
const MOST_EARLY: usize = 4096;

/// Received data of a connection.
#[derive(Debug)]
pub(super) struct Receive<P> {
    /// The next position that is expected.
    pub next: u64,
    /// Where the peer's stream ends, once it has said so.
    pub fin: Option<u64>,
    ready: VecDeque<P>,
    ready_bytes: u64,
    /// What came too early, by position: in order and apart.
    early: Vec<(u64, P)>,
    early_bytes: u64,
    /// What came again last, until the peer has been told (RFC 2883).
    pub repeated: Option<(u64, u64)>,
    /// The range that came last, which is reported first (RFC 2018, section 4).
    latest: Option<(u64, u64)>,
    /// Right edge of the window that was offered last.
    offered: u64,
    /// Bytes that may be held.
    buffer: u64,
    most: u64,
    tuning: Tuning,
    /// What nobody wants.
    discarded: Vec<P>,
}

/// Finds how much the reader takes in a round trip, and lets the buffer hold twice that (dynamic right-sizing).
#[derive(Clone, Copy, Debug, Default)]
struct Tuning {
    since: Time,
    taken: u64,
    space: u64,
}

impl<P: Payload> Receive<P> {
    pub fn new(next: u64, buffer: u64, most: u64) -> Self {
        Self {
            next,
            fin: None,
            ready: VecDeque::new(),
            ready_bytes: 0,
            early: Vec::new(),
            early_bytes: 0,
            repeated: None,
            latest: None,
            offered: next,
            buffer,
            most: most.max(buffer),
            tuning: Tuning { space: buffer / 2, ..Tuning::default() },
            discarded: Vec::new(),
        }
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
        if position > self.next {
            self.hold(position, data);
            return false;
        }
        self.accept(data);
        self.join();
        true
    }

    fn accept(&mut self, data: P) {
        self.next += u64::from(data.len());
        self.ready_bytes += u64::from(data.len());
        self.ready.push_back(data);
    }

    /// Lets what came too early follow what came now.
    fn join(&mut self) {
        let mut used = 0;
        while let Some((position, data)) = self.early.get_mut(used)
            && *position <= self.next
        {
            let mut data = std::mem::replace(data, P::empty());
            self.early_bytes -= u64::from(data.len());
            let known = (self.next - *position).min(u64::from(data.len()));
            data.drop_front(known as u32);
            if data.is_empty() {
                self.discarded.push(data);
            } else {
                self.accept(data);
            }
            used += 1;
        }
        self.early.drain(..used);
        if self.early.is_empty() {
            self.latest = None;
        }
    }

    /// Keeps data that came too early, without what is held already.
    fn hold(&mut self, mut position: u64, mut data: P) {
        let whole = (position, position + u64::from(data.len()));
        let at = self.early.partition_point(|(p, _)| *p <= position);
        if let Some((before, held)) = at.checked_sub(1).and_then(|i| self.early.get(i)) {
            let end = before + u64::from(held.len());
            let known = end.saturating_sub(position).min(u64::from(data.len()));
            data.drop_front(known as u32);
            position += known;
        }
        let mut behind = at;
        while let Some((after, held)) = self.early.get(behind) {
            let end = position + u64::from(data.len());
            if *after >= end {
                break;
            }
            if after + u64::from(held.len()) > end {
                data.truncate((after - position) as u32);
                break;
            }
            behind += 1;
        }
        if data.is_empty() || self.early.len() >= MOST_EARLY {
            if data.is_empty() {
                self.repeated = Some(whole);
            }
            self.discarded.push(data);
            return;
        }
        let length = u64::from(data.len());
        self.early_bytes += length;
        let replaced = self.early.splice(at..behind, [(position, data)]);
        for (_, old) in replaced {
            self.early_bytes -= u64::from(old.len());
            self.discarded.push(old);
        }
        self.latest = Some((position, position + length));
    }

    /// What the SACK option says: what came again, once, and what came too early.
    pub fn ranges_to_tell(&self) -> ([(u64, u64); 4], usize) {
        let (mut ranges, mut count) = self.early_ranges();
        if let Some(repeated) = self.repeated {
            ranges.rotate_right(1);
            ranges[0] = repeated;
            count = (count + 1).min(ranges.len());
        }
        (ranges, count)
    }

    /// Ranges that came too early, for the SACK option: the one that changed last, then from the lowest.
    pub fn early_ranges(&self) -> ([(u64, u64); 4], usize) {
        let mut all = [(0, 0); 4];
        let mut count = 0;
        let Some(latest) = self.latest else { return (all, 0) };
        let mut index = 0;
        let mut first = None;
        let mut rest = 1;
        while let Some((start, data)) = self.early.get(index) {
            let (start, mut end) = (*start, start + u64::from(data.len()));
            index += 1;
            while let Some((next, more)) = self.early.get(index)
                && *next == end
            {
                end += u64::from(more.len());
                index += 1;
            }
            if start <= latest.0 && latest.1 <= end {
                first = Some((start, end));
            } else if rest < all.len() {
                all[rest] = (start, end);
                rest += 1;
            }
            if first.is_some() && rest == all.len() {
                break;
            }
        }
        match first {
            Some(range) => {
                all[0] = range;
                count = rest;
            }
            None => {
                all.rotate_left(1);
                count += rest - 1;
            }
        }
        (all, count)
    }

    pub fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// The right edge of the window that can be offered now: it never moves to the left, and to the right by no less
    /// than a segment or half the buffer (RFC 9293, 3.8.6.2.2).
    pub fn edge(&self, mss: u64) -> u64 {
        let free = self.buffer.saturating_sub(self.ready_bytes);
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
        self.ready_bytes + self.early_bytes
    }

    /// The first piece that waits to be read.
    pub fn front(&self) -> Option<&P> {
        self.ready.front()
    }

    /// Takes the first piece, or its first `most` bytes, if it can be cut.
    pub fn read(&mut self, now: Time, rtt: Option<Duration>) -> Option<P> {
        let data = self.ready.pop_front()?;
        self.ready_bytes -= u64::from(data.len());
        self.tune(now, u64::from(data.len()), rtt);
        Some(data)
    }

    /// Puts back what is left of a piece.
    pub fn unread(&mut self, data: P) {
        self.ready_bytes += u64::from(data.len());
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
        self.discarded.extend(self.early.drain(..).map(|(_, data)| data));
        (self.early_bytes, self.latest) = (0, None);
    }

    /// Lets everything go.
    pub fn clear(&mut self) {
        self.forget_early();
        self.discarded.extend(self.ready.drain(..));
        self.ready_bytes = 0;
    }

    /// Gives what nobody wants to `each`.
    pub fn discarded(&mut self) -> std::vec::Drain<'_, P> {
        self.discarded.drain(..)
    }

    pub fn discard(&mut self, data: P) {
        self.discarded.push(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_in_any_order_make_the_stream(
            mut pieces in prop::collection::vec((0usize..300, 1usize..60), 1..80), whole in any::<bool>(),
        ) {
            let stream: Vec<u8> = (0..400usize).map(|n| (n * 7 + n / 256) as u8).collect();
            if whole {
                pieces.extend((0..10).map(|n| (n * 40, 40)));
            }
            let mut receive = Receive::<Vec<u8>>::new(0, 1000, 1000);
            receive.offer(receive.edge(10));
            let mut known = [false; 400];
            for (start, length) in pieces {
                let end = (start + length).min(400);
                receive.take(start as u64, stream[start..end].to_vec());
                known[start..end].fill(true);
                let next = known.iter().position(|k| !k).unwrap_or(400);
                prop_assert_eq!(receive.next, next as u64);
                let (ranges, count) = receive.early_ranges();
                for &(a, b) in &ranges[..count] {
                    prop_assert!(a > receive.next && a < b);
                    prop_assert!(known[a as usize..b as usize].iter().all(|k| *k));
                    prop_assert!(!known[a as usize - 1] && known.get(b as usize).is_none_or(|k| !k), "whole ranges");
                }
                let early = known[next..].iter().filter(|k| **k).count() as u64;
                prop_assert_eq!(receive.held_bytes(), receive.next + early);
            }
            let mut read = Vec::new();
            while let Some(data) = receive.read(Time::ZERO, None) {
                read.extend(data);
            }
            prop_assert_eq!(&read[..], &stream[..read.len()]);
            prop_assert_eq!(read.len() as u64, receive.next);
        }
    }
}
