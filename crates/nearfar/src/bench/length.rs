//! How long a machine has to be watched that stops now and then.

use results::pciebench::{Row, Run, Test};

use super::{Bench, BenchError, Effort, Outcome};

/// Most transactions and most bytes of the run that tells the pace of a machine that stops now and then: long enough
/// for its waking up to be forgotten, over before it stops.
const UNDISTURBED: (u64, u64) = (4_000, 2 << 20);
/// For how many periods of the controller that stops it such a machine is watched awake. A transition takes two or three
/// periods beside, so that a dozen pass.
const AWAKE_PERIODS: u64 = 5;

impl Bench {
    /// Whether the machine stops for milliseconds now and then.
    pub fn stops(&self) -> bool {
        self.machine.host.power.as_ref().is_some_and(|power| power.controller.is_some())
    }

    /// A machine that stops for milliseconds has to be watched for as long: reads are stopped seldom, writes often.
    ///
    /// A bandwidth test runs for a number of the controller's periods, stops not counted, however long its
    /// transactions take: how many those are is told by a run that ends before the first stop.
    pub(super) fn long_enough(&self, run: &Run, effort: Effort) -> Result<Effort, BenchError> {
        let Some(controller) = self.machine.host.power.as_ref().and_then(|power| power.controller.as_ref())
        else {
            return Ok(effort);
        };
        let times = if run.test == Test::BwDmaWr { 50 } else { 6 };
        let longest =
            Effort { samples: effort.samples.max(12_000), transactions: effort.transactions * times };
        if run.test.is_latency() {
            return Ok(longest);
        }
        let undisturbed = UNDISTURBED.0.min(UNDISTURBED.1 / run.transfer.get().max(1)).max(1);
        let short = Effort { transactions: undisturbed, ..effort };
        let Some(Outcome { row: Row::Bandwidth(row), .. }) = self.simulate_exactly(&[], run, short, None)?
        else {
            return Ok(longest);
        };
        let awake = controller.period.value * AWAKE_PERIODS;
        let transactions = (row.transactions_per_s * awake.as_s_f64()) as u64;
        Ok(Effort { transactions: longest.transactions.min(transactions.max(undisturbed)), ..longest })
    }
}
