//! A paper judged again and again: with other seeds and latencies that are off by little, or with drawn figures.

use std::sync::Arc;

use machine::Diagnostics;
use nearfar::Progress;
use nearfar::uncertainty::{Draws, Jitter};
use results::claims::ClaimResult;

use super::{Options, reproduce};

/// How repetitions differ from the run itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variation {
    /// This many runs, each with another seed and with latencies that are off by about half a percent where no more
    /// is known of them.
    Stability(u32),
    /// The figures of all files are drawn within their uncertainties.
    Uncertainty(Draws),
}

impl Variation {
    /// The options of each repetition.
    fn options(self, options: &Options) -> Vec<Options> {
        let alone = Options { claims_alone: true, ..options.of_run() };
        match self {
            Self::Stability(runs) => (1..=runs)
                .map(|run| Options {
                    library: options.library.redrawn(Arc::new(Jitter::new(run))),
                    seed: options.seed.wrapping_add(u64::from(run)),
                    ..alone.clone()
                })
                .collect(),
            Self::Uncertainty(draws) => {
                let drawn = |draw| options.library.redrawn(Arc::new(draw));
                draws.all().map(|draw| Options { library: drawn(draw), ..alone.clone() }).collect()
            }
        }
    }
}

/// Judges the claims and points of the paper `seed` in each repetition: one list for each, in the order of the run
/// itself.
///
/// # Errors
/// If a machine, part or scenario file is invalid.
///
/// # Panics
/// If `seed` is no paper.
pub fn repeat(
    seed: &str,
    options: &Options,
    variation: Variation,
    progress: &dyn Progress,
) -> Result<Vec<Vec<ClaimResult>>, Diagnostics> {
    let judge = |options: &Options| {
        let done = reproduce(seed, options, progress)?;
        Ok(done.claims().into_iter().chain(done.points()).collect())
    };
    variation.options(options).iter().map(judge).collect()
}
