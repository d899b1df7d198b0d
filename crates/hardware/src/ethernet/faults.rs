//! Faults of a cable.

use engine::{Rng, Seed};
use units::Duration;

/// Rates of faults; each frame has at most one.
#[derive(Clone, Debug)]
pub struct FaultParams {
    /// Fraction of frames lost.
    pub loss: f64,
    /// Fraction of frames with a flipped bit.
    pub corruption: f64,
    /// Probability that a bit arrives flipped.
    pub bit_error_rate: f64,
    /// Fraction of frames duplicated.
    pub duplication: f64,
    /// Fraction of frames delayed.
    pub reordering: f64,
    /// Upper limit of the delay, drawn evenly, of a frame that `reordering` delays.
    pub longest_delay: Duration,
    /// Seed of the random numbers.
    pub seed: Seed,
}

impl FaultParams {
    /// No faults.
    pub const fn none(seed: Seed) -> Self {
        Self {
            loss: 0.0,
            corruption: 0.0,
            bit_error_rate: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            longest_delay: Duration::ZERO,
            seed,
        }
    }
}

/// Outcome for a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Arrive,
    Lost,
    Corrupted,
    Duplicated,
    Delayed(Duration),
}

/// Fault generator of one direction.
pub struct Faults {
    params: FaultParams,
    rng: Rng,
}

impl Faults {
    pub fn new(params: &FaultParams, end: u8) -> Self {
        let name = if end == 0 { "cable/0" } else { "cable/1" };
        Self { rng: params.seed.component(name), params: params.clone() }
    }

    pub fn set_bit_error_rate(&mut self, rate: f64) {
        self.params.bit_error_rate = rate;
    }

    /// Draws the outcome for a frame of `bytes` bytes.
    pub fn next(&mut self, bytes: usize) -> Fate {
        // Several errors in one frame count as one.
        let flipped = 1.0 - (1.0 - self.params.bit_error_rate).powf(bytes as f64 * 8.0);
        let mut draw = self.rng.unit_f64();
        let mut falls_in = |share: f64| {
            let hit = draw < share;
            draw -= share;
            hit
        };
        let p = &self.params;
        if falls_in(p.loss) {
            Fate::Lost
        } else if falls_in(p.corruption + flipped) {
            Fate::Corrupted
        } else if falls_in(p.duplication) {
            Fate::Duplicated
        } else if falls_in(p.reordering) {
            Fate::Delayed(Duration::from_ps(self.rng.below(p.longest_delay.as_ps().max(1)) + 1))
        } else {
            Fate::Arrive
        }
    }

    /// Flips a bit; the check sequence detects any single one.
    pub fn damage(&mut self, bytes: &mut [u8]) {
        if !bytes.is_empty() {
            let bit = self.rng.below(bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }
}
