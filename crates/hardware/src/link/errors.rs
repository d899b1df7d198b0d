//! Injected errors on the wire and at its ends, for tests and fault scenarios.

use engine::Rng;
use units::Duration;
use wire::pcie::{FlowClass, Generation};

use super::Side;
use crate::packet::{PacketId, PacketPool};

/// Corrupts, poisons and drops TLPs, and drops DLLPs, at random.
///
/// A link without an injector keeps no replay copies and computes no CRC, since nothing could need them.
#[derive(Debug)]
pub struct ErrorInjector {
    /// Probability that a bit of a TLP arrives flipped.
    pub bit_error_rate: f64,
    /// Probability that a DLLP is lost (the receiver drops a corrupted one).
    pub dllp_loss: f64,
    /// Probability that a sender poisons a TLP with data.
    pub poisoned: f64,
    /// Probability that a bit of a TLP is flipped before the LCRC is computed, as in a sender's buffer: only ECRC
    /// detects it.
    pub unseen: f64,
    /// Probability that a header is damaged like that, so that its TLP is malformed.
    pub malformed: f64,
    /// Probability that a completion is lost after the receiver has acknowledged it.
    pub completion_loss: f64,
    /// Ack timeout after which a TLP is replayed.
    pub replay_timeout: Duration,
    rng: Rng,
    /// By transmitting side, once errors have ended: the first sequence number free of errors, until all earlier ones
    /// have been acknowledged.
    ended: Option<[Option<u16>; 2]>,
}

/// Minimum Ack timeout (base spec 3.6.2.1, the simplified REPLAY_TIMER): 24,000 symbol times, 80,000 from 16 GT/s on.
const fn replay_timeout(generation: Generation) -> Duration {
    match generation {
        Generation::Gen1 => Duration::from_us(96),
        Generation::Gen2 => Duration::from_us(48),
        Generation::Gen3 => Duration::from_us(24),
        Generation::Gen4 => Duration::from_us(40),
        Generation::Gen5 => Duration::from_us(20),
        // By FLITs: between 1,500 and 2,000 of them, on x16 and less on others, so this is the longest (6.0, 4.2.3.4.2.1).
        Generation::Gen6 => Duration::from_us(20),
    }
}

/// The EP bit in the third byte of a TLP's header (base spec 2.2.1).
const POISONED: u8 = 1 << 6;
/// Format bit of TLPs with data.
const WITH_DATA: u8 = 1 << 6;
/// Type bits that no TLP has together.
const RESERVED_TYPE: u8 = 0x1f;
/// Format bit of four-doubleword headers.
const LONG: u8 = 1 << 5;

impl ErrorInjector {
    /// Creates an injector of wire errors that draws from `rng`.
    pub fn new(bit_error_rate: f64, dllp_loss: f64, replay_timeout: Duration, rng: Rng) -> Self {
        Self {
            bit_error_rate,
            dllp_loss,
            poisoned: 0.0,
            unseen: 0.0,
            malformed: 0.0,
            completion_loss: 0.0,
            replay_timeout,
            rng,
            ended: None,
        }
    }

    /// Creates an injector with a bit error rate for a link of a `generation`; it applies to 8-byte DLLPs as well.
    pub fn of_wire(bit_error_rate: f64, generation: Generation, rng: Rng) -> Self {
        let dllp_loss = 1.0 - (1.0 - bit_error_rate).powi(64);
        Self::new(bit_error_rate, dllp_loss, replay_timeout(generation), rng)
    }

    /// Poisons TLPs with data with probability `poisoned`.
    pub fn poisoning(self, poisoned: f64) -> Self {
        Self { poisoned, ..self }
    }

    /// Corrupts data undetected by the link with probability `unseen`.
    pub fn damaging_unseen(self, unseen: f64) -> Self {
        Self { unseen, ..self }
    }

    /// Damages headers undetected by the link with probability `malformed`.
    pub fn damaging_headers(self, malformed: f64) -> Self {
        Self { malformed, ..self }
    }

    /// Loses completions with probability `completion_loss`.
    pub fn losing_completions(self, completion_loss: f64) -> Self {
        Self { completion_loss, ..self }
    }

    /// Ends all errors; `next` are the sequence numbers of the next TLPs. TLPs corrupted earlier, and those sent behind
    /// them, still have to be replayed, so copies are kept until they have been acknowledged.
    pub(super) fn end(&mut self, next: [u16; 2]) {
        (self.bit_error_rate, self.dllp_loss, self.poisoned) = (0.0, 0.0, 0.0);
        (self.unseen, self.malformed, self.completion_loss) = (0.0, 0.0, 0.0);
        self.ended = Some(next.map(Some));
    }

    /// Whether errors have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// All TLPs of a side before `oldest` have been acknowledged. Returns whether the link no longer needs the
    /// injector.
    pub(super) fn acknowledged(&mut self, side: Side, oldest: u16) -> bool {
        let Some(ended) = &mut self.ended else { return false };
        let first = &mut ended[side as usize];
        if first.is_some_and(|first| oldest.wrapping_sub(first) & 0xfff < 2048) {
            *first = None;
        }
        *ended == [None, None]
    }

    /// Adds the LCRC to a TLP being sent, and flips a bit at random.
    pub(super) fn damage(&mut self, packets: &mut PacketPool, packet: PacketId, sequence: u16) {
        let sum = packets.change_bytes(packet, |bytes| self.flip(sequence, bytes));
        packets.hop_mut(packet).lcrc = Some(sum);
    }

    /// Poisons, corrupts, computes the LCRC, and corrupts again, each at random. Returns the LCRC sent.
    fn flip(&mut self, sequence: u16, bytes: &mut [u8]) -> u32 {
        if bytes[0] & WITH_DATA != 0 && self.rng.chance(self.poisoned) {
            bytes[2] |= POISONED;
        }
        if bytes[0] & WITH_DATA != 0 && self.rng.chance(self.unseen) {
            // Only data bits are flipped, so the header stays valid.
            let header = if bytes[0] & LONG != 0 { 16 } else { 12 };
            let bit = self.rng.below((bytes.len() - header) as u64 * 8);
            bytes[header + (bit / 8) as usize] ^= 1 << (bit % 8);
        }
        if self.malformed > 0.0 && self.rng.chance(self.malformed) {
            // A reserved type.
            bytes[0] |= RESERVED_TYPE;
        }
        let sum = lcrc(sequence, bytes);
        let bits = bytes.len() as u64 * 8;
        // Several errors in one TLP count as one, so use the probability of at least one.
        if self.rng.chance(1.0 - (1.0 - self.bit_error_rate).powf(bits as f64)) {
            let bit = self.rng.below(bits);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        sum
    }

    /// Whether an acknowledged TLP is lost.
    pub(super) fn loses(&mut self, class: FlowClass) -> bool {
        class == FlowClass::Completion && self.rng.chance(self.completion_loss)
    }

    pub(super) fn loses_dllp(&mut self) -> bool {
        self.rng.chance(self.dllp_loss)
    }
}

/// LCRC of a TLP with its sequence number.
pub(super) fn lcrc(sequence: u16, bytes: &[u8]) -> u32 {
    wire::pcie::crc::lcrc(sequence, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    use engine::Seed;

    fn injector() -> ErrorInjector {
        ErrorInjector::new(0.0, 0.0, Duration::from_us(1), Seed::new(7).component("errors"))
    }

    /// What 4,000 TLPs with 32 bytes of data, or without any, look like: shares that are poisoned, whose LCRC is not that of
    /// their bytes, and whose bytes differ although it is; which bits differ at all.
    fn shares(mut injector: ErrorInjector, first: u8) -> ([u32; 3], Vec<u8>) {
        let header = if first & LONG != 0 { 16 } else { 12 };
        let original = [vec![first; 1], vec![0; header + 31]].concat();
        let (mut counts, mut hit) = ([0; 3], vec![0; original.len()]);
        for sequence in 0..4_000 {
            let mut bytes = original.clone();
            let sum = injector.flip(sequence, &mut bytes);
            let is_poisoned = bytes[2] & 0x40 != 0;
            let is_wrong = lcrc(sequence, &bytes) != sum;
            counts[0] += u32::from(is_poisoned);
            counts[1] += u32::from(is_wrong);
            counts[2] += u32::from(bytes != original && !is_wrong);
            hit.iter_mut().zip(bytes.iter().zip(&original)).for_each(|(hit, (a, b))| *hit |= a ^ b);
        }
        (counts.map(|count| (count + 20) / 40), hit)
    }

    #[test]
    fn errors_hit_what_they_are_meant_for() {
        let near = |found: u32, expected: u32| found.abs_diff(expected) <= 3;
        let (with_data, without) = (0x40, 0x00);
        assert_eq!(shares(injector(), with_data).0, [0, 0, 0]);
        let (counts, hit) = shares(injector().poisoning(0.25), with_data);
        assert!(near(counts[0], 25) && counts[1] == 0, "{counts:?}");
        assert_eq!(hit.iter().position(|&byte| byte != 0), Some(2));
        assert_eq!(shares(injector().poisoning(1.0), without).0, [0, 0, 0]);
        for (first, header) in [(0x40, 12), (0x60, 16)] {
            let (counts, _) = shares(injector().damaging_unseen(0.25), first);
            assert!(near(counts[2], 25) && counts[1] == 0, "{counts:?}");
            let (_, hit) = shares(injector().damaging_unseen(1.0), first);
            assert_eq!(hit, [vec![0; header], vec![0xff; 32]].concat(), "any bit of data, and no other");
        }
        assert_eq!(shares(injector().damaging_unseen(1.0), 0x20).0, [0, 0, 0]);
        let (counts, hit) = shares(injector().damaging_headers(0.25), 0x40);
        assert!(near(counts[2], 25) && counts[1] == 0, "{counts:?}");
        assert_eq!(hit, [vec![0x1f], vec![0; 43]].concat(), "the type, of any TLP");
        assert!((0..8).all(|format| wire::pcie::Tlp::parse(&[format << 5 | 0x1f; 16]).is_err()));
        // 44 bytes: 1 - (1 - 0.001)^352 is 0.30.
        let (counts, _) = shares(ErrorInjector { bit_error_rate: 0.001, ..injector() }, with_data);
        assert!(near(counts[1], 30) && counts[2] == 0, "{counts:?}");
        let (_, hit) = shares(ErrorInjector { bit_error_rate: 1.0, ..injector() }, with_data);
        assert_eq!(hit, [0xff; 44], "any bit");
    }

    #[test]
    fn only_completions_are_lost_and_dllps_as_often_as_64_bits_say() {
        let mut lossy = injector().losing_completions(1.0);
        assert!(lossy.loses(FlowClass::Completion));
        assert!(!lossy.loses(FlowClass::Posted) && !lossy.loses(FlowClass::NonPosted) && !lossy.loses_dllp());
        let mut wire = ErrorInjector::of_wire(0.005, Generation::Gen3, Seed::new(7).component("errors"));
        let lost = (0..10_000).filter(|_| wire.loses_dllp()).count();
        // 1 - (1 - 0.005)^64 is 0.274.
        assert!((2_600..2_900).contains(&lost), "{lost}");
        assert_eq!(wire.replay_timeout, Duration::from_us(24));
    }

    #[test]
    fn an_injector_is_needed_until_the_last_error_is_acknowledged() {
        let mut all = ErrorInjector { bit_error_rate: 0.1, dllp_loss: 1.0, ..injector() };
        all = all.poisoning(1.0).damaging_unseen(1.0).damaging_headers(1.0).losing_completions(1.0);
        assert!(!all.has_ended() && !all.acknowledged(Side::Upstream, 0));
        all.end([10, 4090]);
        assert!(all.has_ended() && !all.loses_dllp() && !all.loses(FlowClass::Completion));
        assert_eq!(shares(ErrorInjector { ended: None, ..injector() }, 0x40).0, [0; 3]);
        // Numbers are modulo 4096: the nearer half is ahead.
        for (side, oldest, is_done) in [
            (Side::Upstream, 9, false),
            (Side::Downstream, 4089, false),
            (Side::Downstream, 4090 - 2048, false),
            (Side::Downstream, 1, false),
            (Side::Upstream, 10 + 2048, false),
            (Side::Upstream, 9, false),
            (Side::Upstream, 10, true),
            (Side::Upstream, 9, true),
        ] {
            assert_eq!(all.acknowledged(side, oldest), is_done, "{side:?} {oldest}");
        }
        let (counts, _) = shares(all, 0x40);
        assert_eq!(counts, [0; 3]);
    }
}
