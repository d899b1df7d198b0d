//! The receiving half: data in order, data that came too early, and the window that is offered.

use std::collections::VecDeque;

use units::{Duration, Time};

use super::Payload;

/// Segments of different places that came too early and are held (as many as a window of full-size ones).
const MOST_EARLY: usize = 4096;
/// Bytes beyond which no more pieces are put together, so that a reader soon gives memory back.
const MOST_JOINED: u64 = 32 << 10;

/// Received data of a connection.
#[derive(Debug)]
pub(super) struct Receive<P> {
    /// The next position that is expected.
    pub next: u64,
    /// Where the peer's stream ends, once it has said so.
    pub fin: Option<u64>,
    ready: VecDeque<P>,
    ready_bytes: u64,
    /// Bytes of memory that all pieces keep (Linux: `sk_rmem_alloc`).
    memory: u64,
    /// What came too early, by position: in order and apart.
    early: Vec<(u64, P)>,
    early_bytes: u64,
    /// What came again last, until the peer has been told (RFC 2883).
    pub repeated: Option<(u64, u64)>,
    /// The range that came last, which is reported first (RFC 2018, section 4).
    latest: Option<(u64, u64)>,
    /// Right edge of the window that was offered last.
    offered: u64,
    /// Bytes of payload that may be held, if they keep no more than as much memory again.
    buffer: u64,
    most: u64,
    tuning: Tuning,
    /// What nobody wants.
    discarded: Vec<P>,
    /// Pieces that were let go for want of memory.
    pub pruned: u64,
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
            memory: 0,
            early: Vec::new(),
            early_bytes: 0,
            repeated: None,
            latest: None,
            offered: next,
            buffer,
            most: most.max(buffer),
            tuning: Tuning { space: buffer / 2, ..Tuning::default() },
            discarded: Vec::new(),
            pruned: 0,
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
        if !self.make_room(position, data.true_size().into()) {
            self.pruned += 1;
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

    /// Bytes of memory that may be kept (Linux: `sk_rcvbuf`, half of which is for payload).
    fn limit(&self) -> u64 {
        2 * self.buffer
    }

    /// Whether there is no memory for a piece, unless something is put together or let go.
    pub fn lacks_memory(&self, piece: &P) -> bool {
        !piece.is_empty() && self.memory + u64::from(piece.true_size()) > self.limit()
    }

    /// Lets go what came too early and lies behind `position`, the last first, until there is memory for a piece there
    /// (Linux: `tcp_prune_ofo_queue`). Whether there is: for the next piece always when the reader has nothing else.
    fn make_room(&mut self, position: u64, bytes: u64) -> bool {
        while self.memory + bytes > self.limit()
            && let Some((_, data)) = self.early.pop_if(|(last, _)| *last > position)
        {
            self.early_bytes -= u64::from(data.len());
            self.memory -= u64::from(data.true_size());
            self.pruned += 1;
            self.discarded.push(data);
        }
        if self.early.is_empty() {
            self.latest = None;
        }
        self.memory + bytes <= self.limit() || position == self.next && self.memory == 0
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
        self.ready = put_together(ready, &mut join).map(|(_, data)| data).collect();
        self.early = put_together(std::mem::take(&mut self.early).into_iter(), &mut join).collect();
        let all = self.ready.iter().chain(self.early.iter().map(|(_, data)| data));
        self.memory = all.map(|data| u64::from(data.true_size())).sum();
    }

    fn accept(&mut self, data: P) {
        self.next += u64::from(data.len());
        self.ready_bytes += u64::from(data.len());
        self.memory += u64::from(data.true_size());
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
            self.memory -= u64::from(data.true_size());
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
        self.memory += u64::from(data.true_size());
        let replaced = self.early.splice(at..behind, [(position, data)]);
        for (_, old) in replaced {
            self.early_bytes -= u64::from(old.len());
            self.memory -= u64::from(old.true_size());
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

    /// The right edge of the window that can be offered now, of which half the memory that is left is reckoned to be payload
    /// (Linux: `tcp_space`): it never moves to the left, and to the right by no less than a segment or half the buffer
    /// (RFC 9293, 3.8.6.2.2).
    pub fn edge(&self, mss: u64) -> u64 {
        let free = self.limit().saturating_sub(self.memory) / 2;
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

    /// Bytes of memory that they keep.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// The first piece that waits to be read.
    pub fn front(&self) -> Option<&P> {
        self.ready.front()
    }

    /// Takes the first piece, or its first `most` bytes, if it can be cut.
    pub fn read(&mut self, now: Time, rtt: Option<Duration>) -> Option<P> {
        let data = self.ready.pop_front()?;
        self.ready_bytes -= u64::from(data.len());
        self.memory -= u64::from(data.true_size());
        self.tune(now, u64::from(data.len()), rtt);
        Some(data)
    }

    /// Puts back what is left of a piece.
    pub fn unread(&mut self, data: P) {
        self.ready_bytes += u64::from(data.len());
        self.memory += u64::from(data.true_size());
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
        self.memory -= self.early.iter().map(|(_, data)| u64::from(data.true_size())).sum::<u64>();
        self.discarded.extend(self.early.drain(..).map(|(_, data)| data));
        (self.early_bytes, self.latest) = (0, None);
    }

    /// Lets everything go.
    pub fn clear(&mut self) {
        self.forget_early();
        self.discarded.extend(self.ready.drain(..));
        (self.ready_bytes, self.memory) = (0, 0);
    }

    /// Gives what nobody wants to `each`.
    pub fn discarded(&mut self) -> std::vec::Drain<'_, P> {
        self.discarded.drain(..)
    }

    pub fn discard(&mut self, data: P) {
        self.discarded.push(data);
    }
}

/// Pieces that follow each other, with neighbours that keep more than twice the memory that they show made one by `join`.
fn put_together<P: Payload>(
    pieces: impl Iterator<Item = (u64, P)>,
    join: &mut impl FnMut(Vec<P>) -> Result<P, Vec<P>>,
) -> impl Iterator<Item = (u64, P)> {
    let (mut done, mut group) = (Vec::new(), Vec::new());
    let (mut from, mut end) = (0, 0);
    let mut close = |done: &mut Vec<(u64, P)>, mut from, group: &mut Vec<P>| {
        if group.is_empty() {
            return;
        }
        match join(std::mem::take(group)) {
            Ok(one) => done.push((from, one)),
            Err(same) => same.into_iter().for_each(|data| {
                let at = from;
                from += u64::from(data.len());
                done.push((at, data));
            }),
        }
    };
    for (position, data) in pieces {
        let loose = data.true_size() > 2 * data.len();
        if !loose || position != end || end - from >= MOST_JOINED {
            close(&mut done, from, &mut group);
        }
        end = position + u64::from(data.len());
        if loose {
            if group.is_empty() {
                from = position;
            }
            group.push(data);
        } else {
            done.push((position, data));
        }
    }
    close(&mut done, from, &mut group);
    done.into_iter()
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

    /// A piece that keeps a whole buffer, however little it shows.
    #[derive(Debug, PartialEq)]
    struct Wide(Vec<u8>, u32);

    impl Payload for Wide {
        fn empty() -> Self {
            Self(Vec::new(), 0)
        }
        fn len(&self) -> u32 {
            self.0.len() as u32
        }
        fn drop_front(&mut self, bytes: u32) {
            self.0.drain(..bytes as usize);
        }
        fn truncate(&mut self, bytes: u32) {
            self.0.truncate(bytes as usize);
        }
        fn true_size(&self) -> u32 {
            self.1
        }
    }

    proptest! {
        /// Whatever arrives, it keeps no more memory than allowed, but for a single piece; and it is the stream, put together
        /// or not, that is read.
        #[test]
        fn no_more_memory_than_allowed(
            pieces in prop::collection::vec((0usize..300, 1usize..60, any::<bool>(), 0usize..20), 1..200),
            joins in any::<bool>(),
        ) {
            let stream: Vec<u8> = (0..400usize).map(|n| (n * 7 + n / 256) as u8).collect();
            let mut receive = Receive::<Wide>::new(0, 500, 500);
            receive.offer(receive.edge(10));
            let mut read = Vec::new();
            for (start, length, in_order, reads) in pieces {
                let start = if in_order { receive.next as usize } else { start };
                let end = (start + length).min(400);
                let piece = Wide(stream[start..end].to_vec(), 120);
                if receive.lacks_memory(&piece) && joins {
                    receive.collapse(|pieces| {
                        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.0.clone()).collect();
                        let size = bytes.len() as u32 + 40;
                        Ok(Wide(bytes, size))
                    });
                }
                receive.take(start as u64, piece);
                let held = receive.ready.iter().chain(receive.early.iter().map(|(_, data)| data));
                let memory: u64 = held.map(|data| u64::from(data.1)).sum();
                prop_assert_eq!(receive.memory(), memory);
                prop_assert!(memory <= 1000, "{} bytes", memory);
                prop_assert!(receive.edge(10) <= receive.offered().max(receive.next + 500 - memory / 2));
                receive.offer(receive.edge(10));
                for _ in 0..reads / 19 {
                    read.extend(receive.read(Time::ZERO, None).into_iter().flat_map(|data| data.0));
                }
            }
            while let Some(data) = receive.read(Time::ZERO, None) {
                read.extend(data.0);
            }
            prop_assert_eq!(&read[..], &stream[..read.len()]);
            prop_assert_eq!(read.len() as u64, receive.next);
            receive.forget_early();
            prop_assert_eq!(receive.memory(), 0);
        }
    }

    /// A thousand bytes that came one by one find room in little memory, as they are put together.
    #[test]
    fn single_bytes_are_put_together() {
        let mut receive = Receive::<Wide>::new(0, 10_000, 10_000);
        receive.offer(receive.edge(100));
        for n in 0..1000 {
            let piece = Wide(vec![n as u8], 2304);
            if receive.lacks_memory(&piece) {
                receive.collapse(|pieces| {
                    Ok(Wide(pieces.into_iter().flat_map(|piece| piece.0).collect(), 4352))
                });
            }
            assert!(receive.take(n, piece), "byte {n} finds room");
        }
        assert!(receive.next == 1000 && receive.pruned == 0 && receive.memory() <= 20_000);
    }
}
