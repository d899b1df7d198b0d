//! The stream that is read is the one that was sent, in no more memory than allowed.

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
        let mut receive = ReceiveBuffer::<Vec<u8>>::new(0, 1000, 1000);
        receive.offer(receive.edge(10));
        let mut known = [false; 400];
        for (start, length) in pieces {
            let end = (start + length).min(400);
            receive.take(start as u64, stream[start..end].to_vec());
            known[start..end].fill(true);
            let next = known.iter().position(|k| !k).unwrap_or(400);
            prop_assert_eq!(receive.next, next as u64);
            let (ranges, count) = receive.early.ranges();
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
        let mut receive = ReceiveBuffer::<Wide>::new(0, 500, 500);
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
            let held = receive.ready.iter().chain(receive.early.pieces());
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
    let mut receive = ReceiveBuffer::<Wide>::new(0, 10_000, 10_000);
    receive.offer(receive.edge(100));
    for n in 0..1000 {
        let piece = Wide(vec![n as u8], 2304);
        if receive.lacks_memory(&piece) {
            receive.collapse(|pieces| Ok(Wide(pieces.into_iter().flat_map(|piece| piece.0).collect(), 4352)));
        }
        assert!(receive.take(n, piece), "byte {n} finds room");
    }
    assert!(receive.next == 1000 && receive.pruned == 0 && receive.memory() <= 20_000);
}
