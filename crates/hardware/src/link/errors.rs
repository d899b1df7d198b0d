//! Errors on the wire, for tests and fault scenarios.

use engine::Rng;
use units::Duration;

use crate::packet::{PacketId, PacketPool};

/// Damages TLPs and loses DLLPs at random.
///
/// A link without one keeps no copies for replay and computes no CRC, since
/// nothing could make use of them.
#[derive(Debug)]
pub struct ErrorInjector {
    /// Probability that a bit of a TLP arrives flipped.
    pub bit_error_rate: f64,
    /// Probability that a DLLP is lost (a damaged one is dropped by its receiver).
    pub dllp_loss: f64,
    /// How long a TLP waits for its Ack before it is replayed.
    pub replay_timeout: Duration,
    rng: Rng,
}

impl ErrorInjector {
    /// An injector that draws from `rng`.
    pub fn new(bit_error_rate: f64, dllp_loss: f64, replay_timeout: Duration, rng: Rng) -> Self {
        Self { bit_error_rate, dllp_loss, replay_timeout, rng }
    }

    /// Adds the LCRC to a TLP that is being sent and perhaps flips one of its bits on the way.
    pub(super) fn damage(&mut self, packets: &mut PacketPool, packet: PacketId, sequence: u16) {
        let bytes = packets.bytes_mut(packet);
        let sum = lcrc(sequence, bytes);
        let bits = bytes.len() as u64 * 8;
        // Several errors in one TLP are as good as one: the probability of at least one decides.
        if self.rng.chance(1.0 - (1.0 - self.bit_error_rate).powf(bits as f64)) {
            let bit = self.rng.below(bits);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        packets.hop_mut(packet).lcrc = Some(sum);
    }

    pub(super) fn loses_dllp(&mut self) -> bool {
        self.rng.chance(self.dllp_loss)
    }
}

/// The LCRC of a TLP with its sequence number.
pub(super) fn lcrc(sequence: u16, bytes: &[u8]) -> u32 {
    wire::pcie::crc::lcrc(sequence, bytes)
}
