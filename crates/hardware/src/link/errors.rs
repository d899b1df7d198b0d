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
    }
}

/// The EP bit in the third byte of a TLP's header (base spec 2.2.1).
const POISONED: u8 = 1 << 6;
/// Format bit of TLPs with data.
const WITH_DATA: u8 = 1 << 6;
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

    /// Loses completions with probability `completion_loss`.
    pub fn losing_completions(self, completion_loss: f64) -> Self {
        Self { completion_loss, ..self }
    }

    /// Ends all errors; `next` are the sequence numbers of the next TLPs. TLPs corrupted earlier, and those sent behind
    /// them, still have to be replayed, so copies are kept until they have been acknowledged.
    pub(super) fn end(&mut self, next: [u16; 2]) {
        (self.bit_error_rate, self.dllp_loss, self.poisoned) = (0.0, 0.0, 0.0);
        (self.unseen, self.completion_loss) = (0.0, 0.0);
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
