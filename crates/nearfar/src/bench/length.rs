//! How long a run is simulated.
//!
//! The card is told to do as much as may be needed. During the run, its journal shows how much is really needed, and
//! the simulation stops there. So nothing is simulated twice.

use std::cell::RefCell;
use std::rc::Rc;

use devices::dma_engine::Journal;
use engine::Simulation;
use hardware::Fabric;
use results::pciebench::{Run, Test};
use units::Duration;

use super::Effort;
use super::steady::{Steady, latency_half_width};

/// Length of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Until the estimate of latency or bandwidth is steady.
    Steady,
    /// A fixed number of samples or transactions.
    Exactly(Effort),
}

/// Transactions of a bandwidth test before the first check.
const SHORT: u64 = 4_000;
/// Relative half-width of the 95 % confidence interval of a bandwidth or mean latency that counts as steady.
const STEADY: f64 = 0.004;
/// Most samples of a latency test. A mean over samples of which half are misses is steady with fewer.
const MOST_SAMPLES: u64 = 24_000;
/// Transactions and bytes from which the undisturbed pace of a machine with long pauses is estimated: long enough for
/// its wake-up not to matter, and over before the next pause.
const UNDISTURBED: (u64, u64) = (4_000, 2 << 20);
/// Periods of the power controller for which such a machine is observed awake. A transition takes two or three
/// periods in addition, so about a dozen pass.
const AWAKE_PERIODS: u64 = 5;

/// What the card is told to do, and how much of it is simulated.
pub(super) struct Plan {
    /// Effort told to the card.
    pub told: Effort,
    look: Look,
}

/// What to check in the journal during the run.
enum Look {
    /// Nothing: simulate everything.
    Never,
    /// Whether the estimate is steady after so many samples or transactions.
    WhetherSteady(u64),
    /// After so many transactions, how many more fit into a time.
    AtThePace(u64, Duration),
}

impl Plan {
    /// The plan for `run` on a machine that pauses with this period, if it does.
    ///
    /// A machine that pauses for milliseconds has to be observed accordingly, whatever the requested length: reads
    /// are paused rarely, writes often. A bandwidth test runs for a fixed number of the controller's periods, not
    /// counting pauses, however long its transactions take.
    pub(super) fn new(pauses: Option<Duration>, run: &Run, length: Length) -> Self {
        let usual = Effort::default();
        if let Some(period) = pauses {
            let asked = match length {
                Length::Steady => Effort { transactions: SHORT, ..usual },
                Length::Exactly(effort) => effort,
            };
            let times = if run.test == Test::BwDmaWr { 50 } else { 6 };
            let told =
                Effort { samples: asked.samples.max(12_000), transactions: asked.transactions * times };
            let undisturbed = UNDISTURBED.0.min(UNDISTURBED.1 / run.transfer.get().max(1)).max(1);
            let look = match run.test.is_latency() {
                true => Look::Never,
                false => Look::AtThePace(undisturbed, period * AWAKE_PERIODS),
            };
            return Self { told, look };
        }
        match length {
            Length::Exactly(told) => Self { told, look: Look::Never },
            Length::Steady => {
                let first = if run.test.is_latency() { usual.samples } else { SHORT };
                Self { told: Effort { samples: MOST_SAMPLES, ..usual }, look: Look::WhetherSteady(first) }
            }
        }
    }

    /// Runs `simulation` for as long as the card's `journal` shows to be needed.
    pub(super) fn watch(&self, simulation: &Simulation<Fabric>, journal: &RefCell<Journal>, run: &Run) {
        let progress = Rc::clone(&journal.borrow().progress);
        let until =
            |enough: u64| simulation.run_while(|_| !progress.is_done() && progress.transactions() < enough);
        let first = match self.look {
            Look::Never => u64::MAX,
            Look::WhetherSteady(first) | Look::AtThePace(first, _) => first,
        };
        until(first);
        let enough = self.enough(&journal.borrow(), run);
        until(enough);
    }

    /// Samples or transactions needed, judging by the first ones.
    fn enough(&self, journal: &Journal, run: &Run) -> u64 {
        let steady = || Steady::of(journal);
        match self.look {
            Look::Never => u64::MAX,
            Look::AtThePace(first, time) => steady().map_or(u64::MAX, |steady| {
                let pace = steady.transactions as f64 / steady.time.as_s_f64();
                first.max((pace * time.as_s_f64()) as u64)
            }),
            Look::WhetherSteady(first) if run.test.is_latency() => {
                let missing = latency_half_width(journal).unwrap_or(f64::INFINITY) / STEADY;
                if missing <= 1.0 {
                    return first;
                }
                // The interval shrinks with the square root of the samples. Add a tenth, as it is only an estimate.
                ((first as f64 * 1.1 * missing.powi(2)) as u64).clamp(first, MOST_SAMPLES)
            }
            Look::WhetherSteady(first) => match steady().is_some_and(|steady| steady.half_width <= STEADY) {
                true => first,
                false => u64::MAX,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::example;
    use units::Bytes;

    /// A run that is checked and continues equals the longer run.
    #[test]
    fn a_run_that_goes_on_is_one_run() {
        let bench = example::bench();
        // Every other sample misses the IOTLB, so the first check finds it not steady.
        let run = example::run(Test::LatDmaRd, Bytes::mib(1));
        let first = bench.run(&run, Effort::default()).unwrap();
        assert!(first.half_width > STEADY);
        let steady = bench.run_for(&[], &run, Length::Steady).unwrap();
        assert!(steady.half_width < 1.2 * STEADY, "{}", steady.half_width);
        let samples = (2_000.0 * 1.1 * (first.half_width / STEADY).powi(2)) as u64;
        let longer = bench.run(&run, Effort { samples, ..Effort::default() }).unwrap();
        assert_eq!(steady.distribution, longer.distribution);
    }
}
