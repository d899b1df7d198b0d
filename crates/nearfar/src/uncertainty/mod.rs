//! How uncertain a result is: it is simulated again and again, each time with the figures of its files drawn anew
//! within their uncertainties.
//!
//! A figure that its file calls uncertain by so much varies by that; others by what is usual for their kind of source
//! ([`deviation`]). One draw holds for all that states a figure in the same words: hosts of the same machine have the
//! same error. The draws of one figure are spread evenly over its distribution and independent of those of others
//! (Latin hypercube: M. D. McKay et al., Technometrics 21(2), 1979), so that few runs do. They depend on their seed
//! alone, not on threads, other figures or the order of runs.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | the draws |
//! | `draw` | a figure's deviation, and its value in one run |
//! | `influence` | the figures that a result hangs on |
//! | `intervals` | results as intervals |
//! | `jitter` | latencies that are off by little |

mod draw;
mod influence;
mod intervals;
mod jitter;

use std::fmt;
use std::str::FromStr;

pub use draw::{Deviation, Draw, deviation};
pub use intervals::{Explainer, Spread, intervals};
pub(crate) use intervals::{MISSED_BANDWIDTH, MISSED_LATENCY, missing};
pub use jitter::Jitter;

/// Number of runs with drawn figures, and the seed of the draws: `40`, or `40:7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    /// Number of runs, at least two.
    pub runs: u32,
    /// Seed of the draws; 1 if not given.
    pub seed: u64,
}

impl FromStr for Draws {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const MOST: u32 = 10_000;
        let (runs, seed) = text.split_once(':').unwrap_or((text, "1"));
        let runs: u32 =
            runs.trim().parse().map_err(|_| format!("`{runs}` is no number of runs, such as 40"))?;
        let seed = seed.trim().parse().map_err(|_| format!("`{seed}` is no seed, such as in 40:7"))?;
        match runs {
            0 | 1 => {
                Err("an interval takes several runs: 2 at least, 20 or more for its ends to mean something"
                    .into())
            }
            _ if runs > MOST => Err(format!("so many runs are not needed: {MOST} at most")),
            _ => Ok(Self { runs, seed }),
        }
    }
}

impl fmt::Display for Draws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seed {
            1 => write!(f, "{}", self.runs),
            seed => write!(f, "{}:{seed}", self.runs),
        }
    }
}

/// The key that, among the values of a point of a sweep, says which draw it is.
pub const DRAW: &str = "draw";

impl Draws {
    /// All draws.
    pub fn all(self) -> impl Iterator<Item = Draw> {
        (1..=self.runs).map(move |number| Draw::new(number, self))
    }
}
