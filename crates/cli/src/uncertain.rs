//! `--uncertainty N`: runs with drawn figures.

use machine::{Doc, Machine, Part};
use nearfar::bench::Bench;
use nearfar::experiment::{self, Combination, Experiment};
use nearfar::records::{self, Record};
use nearfar::suite;
use nearfar::uncertainty::{Draws, intervals};
use results::pciebench::PlannedFile;
use std::sync::Arc;

use crate::failure::Failure;
use crate::{Common, progress};

/// The option of several commands.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Uncertainty {
    /// Simulate N times more, each time with the figures of all files drawn anew within their uncertainties: each
    /// result becomes an interval, with the figures that it hangs on. N:SEED gives other draws.
    #[arg(long = "uncertainty", value_name = "N")]
    pub draws: Option<Draws>,
}

impl Uncertainty {
    /// Whether an experiment can be run again and again, if that is asked for.
    ///
    /// # Errors
    /// If it writes files of its own.
    pub fn check(self, experiment: &Experiment) -> Result<(), Failure> {
        match self.draws {
            Some(_) => Ok(experiment.check_repeatable()?),
            None => Ok(()),
        }
    }

    /// The intervals of an experiment's results (`rows`) at these points of a sweep, as records. `figures` are those
    /// in use.
    pub fn of_points(
        self,
        common: &Common,
        (scenario, changes): (&str, &[(String, String)]),
        points: &[Combination],
        (rows, figures): (&[Record], &[Record]),
    ) -> Result<Vec<Record>, Failure> {
        let Some(draws) = self.draws else { return Ok(Vec::new()) };
        let library = crate::input::library(common);
        let load = |point: &Combination| experiment::load_point(&library, scenario, "--set", changes, point);
        let drawn = experiment::sample(draws, points, load, progress::of(common).as_ref())?;
        Ok(intervals(draws, rows, &drawn, figures))
    }

    /// The intervals of a suite's rows, as records.
    pub fn of_suite(
        self,
        common: &Common,
        (machine, card, bench): (&Doc<Machine>, &Doc<Part>, &Bench),
        plan: &[PlannedFile],
        (rows, figures): (&[Record], &[Record]),
    ) -> Result<Vec<Record>, Failure> {
        let Some(draws) = self.draws else { return Ok(Vec::new()) };
        let drawn = draws.all().map(|draw| {
            let (machine, card) =
                (machine.redrawn(Arc::new(draw)).read()?, card.redrawn(Arc::new(draw)).read()?);
            let bench = Bench { machine, card, ..bench.clone() };
            let done = suite::measure(&bench, plan, progress::of(common).as_ref())?;
            Ok(records::of_suite(&done))
        });
        let drawn: Vec<Vec<Record>> = drawn.collect::<Result<_, Failure>>()?;
        Ok(intervals(draws, rows, &drawn, figures))
    }
}
