//! `nearfar reproduce --stability` and `--uncertainty`: claims over repetitions.

use std::collections::BTreeMap;

use nearfar::uncertainty::{Draws, Explainer};
use papers::{Options, Reproduction, Variation, repeat};
use results::claims::{ClaimResult, Stability, Verdict};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{self, Fit, TextTable};
use crate::uncertain::Uncertainty;
use crate::{Common, progress};

/// How often, and how different.
#[derive(clap::Args)]
pub struct Repetitions {
    /// Judge N times more, each time with another seed and with latencies off by about half a percent where no more is
    /// known of them. Verdicts that change are undetermined, and what has two states is named: it hangs on a phase.
    #[arg(long, value_name = "N", conflicts_with = "draws", value_parser = clap::value_parser!(u32).range(1..=1000))]
    stability: Option<u32>,
    #[command(flatten)]
    uncertainty: Uncertainty,
}

/// What repetitions gave, by claim.
#[derive(Default)]
pub struct Repeated {
    by_id: BTreeMap<String, (Stability, Vec<String>)>,
    draws: Option<Draws>,
}

impl Repetitions {
    /// Repeats a paper's runs.
    pub fn of(
        &self,
        common: &Common,
        seed: &str,
        options: &Options,
        done: &Reproduction,
    ) -> Result<Repeated, Failure> {
        let draws = self.uncertainty.draws;
        let variation = match (self.stability, draws) {
            (Some(runs), _) => Variation::Stability(runs),
            (None, Some(draws)) => Variation::Uncertainty(draws),
            (None, None) => return Ok(Repeated::default()),
        };
        let repetitions = repeat(seed, options, variation, progress::of(common).as_ref())?;
        let explainer = draws.map(|draws| Explainer::new(draws, &done.origins.records()));
        let all: Vec<BTreeMap<&str, &ClaimResult>> =
            repetitions.iter().map(|run| run.iter().map(|claim| (&*claim.id, claim)).collect()).collect();
        let of_claim = |own: &ClaimResult| {
            let others: Vec<Option<&ClaimResult>> =
                all.iter().map(|run| run.get(&*own.id).copied()).collect();
            let runs: Vec<&ClaimResult> = [own].into_iter().chain(others.iter().flatten().copied()).collect();
            let values: Vec<Option<f64>> =
                others.iter().map(|other| other.and_then(|other| other.simulated)).collect();
            let hangs = explainer.as_ref().map_or_else(Vec::new, |explainer| explainer.of(&values));
            (own.id.clone(), (Stability::of(&runs), hangs))
        };
        let by_id = done.claims().iter().chain(&done.points()).map(of_claim).collect();
        Ok(Repeated { by_id, draws })
    }
}

impl Repeated {
    /// The claims, with those undetermined whose verdicts change under another seed. Verdicts under other figures are
    /// about other machines.
    pub fn judged(&self, mut claims: Vec<ClaimResult>) -> Vec<ClaimResult> {
        let flips =
            |id: &str| self.draws.is_none() && self.by_id.get(id).is_some_and(|(found, _)| found.flips);
        claims
            .iter_mut()
            .filter(|claim| flips(&claim.id))
            .for_each(|claim| claim.verdict = Verdict::Undetermined);
        claims
    }

    /// Adds to a claim's record what repetitions gave.
    pub fn add(&self, row: &mut Value) -> Result<(), Failure> {
        let Some((stability, hangs)) = row["id"].as_str().and_then(|id| self.by_id.get(id)) else {
            return Ok(());
        };
        let found = serde_json::to_value(stability).map_err(Failure::new)?;
        for (key, value) in found.as_object().into_iter().flatten() {
            row[key.as_str()] = value.clone();
        }
        if self.draws.is_some() {
            row["hangs_on"] = hangs.join(", ").into();
        }
        Ok(())
    }

    /// Prints the claims that change, and what they hang on.
    pub fn show(&self, claims: &[ClaimResult]) {
        if self.by_id.is_empty() {
            return;
        }
        let what = if self.draws.is_some() { "hangs on" } else { "states" };
        let mut table =
            TextTable::new(["claim", "least", "most", "verdict", what], Fit::LastBelow).numbers(1..3);
        let mut count = 0;
        for claim in claims {
            let Some((found, hangs)) = self.by_id.get(&claim.id) else { continue };
            if !found.flips && (found.states.is_none() || self.draws.is_some()) {
                continue;
            }
            count += 1;
            let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.4}"));
            table.add(vec![
                claim.id.split_once('/').map_or(&*claim.id, |(_, rest)| rest).to_owned(),
                number(found.low),
                number(found.high),
                if found.flips { "flips" } else { "the same" }.to_owned(),
                match found.states {
                    Some([low, high]) if self.draws.is_none() => format!("bistable: {low:.4} and {high:.4}"),
                    _ => hangs.join(", "),
                },
            ]);
        }
        let runs = self.by_id.values().map(|(found, _)| found.runs).max().unwrap_or(0);
        match count {
            0 => output::print(&format!("no verdict changes in {runs} runs, and nothing has two states\n")),
            _ => output::print(&format!("over {runs} runs\n{}\n", table.render(output::width()))),
        }
    }
}
