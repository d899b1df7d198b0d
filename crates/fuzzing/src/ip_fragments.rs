//! Any fragments in any order and at any time: no piece is leaked or duplicated, and memory use is bounded.

use std::net::Ipv4Addr;

use crate::pieces::{Numbers, Piece};
use inet::fragments::{Fate, FragmentKey, FragmentParams, Reassembly};
use inet::tcp::Payload;
use units::{Duration, Time};

/// Tests an input.
pub fn run(bytes: &[u8]) {
    let mut numbers = Numbers(bytes);
    let params = FragmentParams { memory: u64::from(numbers.word()) * 4, time: Duration::from_ms(30_000) };
    let mut all = Reassembly::new(params);
    let mut now = Time::ZERO;
    while !numbers.0.is_empty() {
        let what = numbers.byte();
        let (offset, length) = (u32::from(numbers.word()), u32::from(numbers.word()));
        let key = FragmentKey {
            source: Ipv4Addr::LOCALHOST,
            destination: Ipv4Addr::LOCALHOST,
            protocol: what & 1,
            identification: u16::from(what >> 1 & 3),
        };
        // The offset has 13 bits in units of 8 bytes, and a packet at most 16 bits of length.
        let (offset, more) = ((offset & 0x1fff) * 8, what & 8 != 0);
        let length = if what & 16 != 0 { length } else { length & 0x1f8 };
        if let Fate::Whole(parts) = all.take(now, key, offset, more, Piece::new(length)) {
            let total: u32 = parts.iter().map(Payload::len).sum();
            assert_eq!(total, offset.max(total - length) + length);
            parts.into_iter().for_each(Piece::give_back);
        }
        all.discarded().for_each(Piece::give_back);
        assert!(all.memory() <= params.memory);
        if what & 32 != 0 {
            now += Duration::from_ms(u64::from(what) * 100);
            all.timer(now);
            all.discarded().for_each(Piece::give_back);
        }
    }
    all.timer(now + params.time);
    all.discarded().for_each(Piece::give_back);
    assert_eq!(all.memory(), 0);
}
