//! The figures that values rest on.

use std::sync::{Arc, Mutex, PoisonError};

use machine::ComputerSetup;
use nearfar::computer::Computers;
use nearfar::origins::Origins;

use super::Options;

/// Collects the figures in use in the simulations of a run.
#[derive(Clone, Debug, Default)]
pub struct Basis(Arc<Mutex<Origins>>);

impl Basis {
    /// Adds the figures in use on these computers so far.
    pub(super) fn add(&self, computers: &Computers, setup: &ComputerSetup) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(Origins::so_far(computers, setup));
    }

    /// The figures so far.
    pub(super) fn origins(&self) -> Origins {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Options {
    /// For one of several runs, whose figures are its own.
    pub(super) fn of_run(&self) -> Self {
        Self { basis: Basis::default(), ..self.clone() }
    }
}
