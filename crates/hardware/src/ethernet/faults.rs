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

#[cfg(test)]
mod tests {
    use super::*;

    /// Fates of 20,000 frames of 125 bytes, in percent: lost, corrupted, duplicated, delayed, arrived.
    fn fates(change: impl Fn(&mut FaultParams)) -> [u32; 5] {
        let mut params = FaultParams::none(Seed::new(7));
        change(&mut params);
        let mut faults = Faults::new(&params, 0);
        let mut counts = [0; 5];
        for _ in 0..20_000 {
            let fate = match faults.next(125) {
                Fate::Lost => 0,
                Fate::Corrupted => 1,
                Fate::Duplicated => 2,
                Fate::Delayed(by) => {
                    assert!(by > Duration::ZERO && by <= params.longest_delay.max(Duration::from_ps(1)));
                    3
                }
                Fate::Arrive => 4,
            };
            counts[fate] += 1;
        }
        counts.map(|count| (count + 100) / 200)
    }

    #[test]
    fn each_fate_has_its_share() {
        assert_eq!(fates(|_| ()), [0, 0, 0, 0, 100]);
        assert_eq!(fates(|p| p.loss = 1.0), [100, 0, 0, 0, 0]);
        let all = fates(|p| {
            (p.loss, p.corruption, p.duplication, p.reordering) = (0.1, 0.2, 0.3, 0.25);
            p.longest_delay = Duration::from_ps(3);
        });
        for (found, expected) in all.into_iter().zip([10_u32, 20, 30, 25, 15]) {
            assert!(found.abs_diff(expected) <= 1, "{all:?}");
        }
        // A bit of a thousand, as 1 - (1 - 0.0005)^1000 is 0.39; and on top of what is corrupted anyway.
        let bits = fates(|p| p.bit_error_rate = 0.0005);
        assert!(bits[1].abs_diff(39) <= 1 && bits[4].abs_diff(61) <= 1, "{bits:?}");
        let both = fates(|p| (p.bit_error_rate, p.corruption) = (0.0005, 0.3));
        assert!(both[1].abs_diff(69) <= 1, "{both:?}");
    }

    #[test]
    fn one_bit_is_damaged_any_of_them() {
        let mut faults = Faults::new(&FaultParams::none(Seed::new(7)), 1);
        let mut hit = [0u8; 16];
        for _ in 0..2_000 {
            let mut bytes = [0x5a; 16];
            faults.damage(&mut bytes);
            let flipped = bytes.map(|byte| byte ^ 0x5a);
            assert_eq!(flipped.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
            hit.iter_mut().zip(flipped).for_each(|(hit, flipped)| *hit |= flipped);
        }
        assert_eq!(hit, [0xff; 16]);
        faults.damage(&mut []);
    }
}
