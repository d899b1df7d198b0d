//! What a program is, what it finds and what it leaves.

use std::fmt;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::kernel::Kernel;
use units::Duration;

use crate::premises::{Premises, Refused};

/// What a program finds where it runs.
#[derive(Clone)]
pub struct Environment {
    /// The kernel.
    pub kernel: Rc<dyn Kernel>,
    /// The cores that it may run on, never empty.
    pub cpus: Vec<CpuId>,
    /// Seed of its random choices.
    pub seed: u64,
}

/// Something that a program measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// What it is, in lower case, such as `read iops`.
    pub quantity: String,
    /// Its unit, such as `1/s`; empty for a count.
    pub unit: &'static str,
    /// The value.
    pub value: f64,
    /// Which way it went, if it crossed a link.
    pub way: Option<Way>,
}

/// Of what crosses a link: which way, and who says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The direction, such as `from the NIC`.
    pub direction: &'static str,
    /// An analytic model says so; nobody measured it.
    pub is_model: bool,
}

impl Reading {
    /// A reading.
    pub fn new(quantity: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self { quantity: quantity.into(), unit, value, way: None }
    }

    /// All that tells it from the others: quantity, direction and whether it is a model's.
    pub fn name(&self) -> String {
        match self.way {
            None => self.quantity.clone(),
            Some(Way { direction, is_model: false }) => format!("{}, {direction}", self.quantity),
            Some(Way { direction, is_model: true }) => format!("{}, {direction}, model", self.quantity),
        }
    }
}

/// What a program leaves.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// What it measured, in the order in which the real tool prints it.
    pub readings: Vec<Reading>,
    /// Lines about what went wrong on the way, or deserves a word.
    pub notes: Vec<String>,
    /// What it measured again and again, in the order in which it did, in microseconds: latencies, or times of equal parts of
    /// its work. How well the readings are known follows from them.
    pub samples: Vec<f64>,
}

impl Report {
    /// Adds a reading.
    pub fn add(&mut self, quantity: impl Into<String>, unit: &'static str, value: f64) {
        self.readings.push(Reading::new(quantity, unit, value));
    }

    /// Adds a reading of what went one way over a link.
    pub fn add_way(&mut self, quantity: &str, way: Way, unit: &'static str, value: f64) {
        self.readings.push(Reading { way: Some(way), ..Reading::new(quantity, unit, value) });
    }

    /// The reading with this [name](Reading::name).
    pub fn get(&self, name: &str) -> Option<f64> {
        self.readings.iter().find(|reading| reading.name() == name).map(|reading| reading.value)
    }
}

/// Why a program gave up, as it tells its user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

impl Failure {
    /// `what: error`, as perror writes it.
    pub fn about(what: impl fmt::Display, error: Error) -> Self {
        Self(format!("{what}: {error}"))
    }
}

/// A program with its command line.
pub trait Program {
    /// It serves others until all who do not serve have ended.
    fn serves(&self) -> bool {
        false
    }

    /// For how long it means to run, in simulated time, where its options say so.
    fn lasts(&self) -> Option<Duration> {
        None
    }

    /// Whether what its options ask for is possible where it will run. Asked before anything runs.
    ///
    /// # Errors
    /// The first that is not.
    fn check(&self, premises: &Premises) -> Result<(), Refused>;

    /// Runs it as a task on the core of `cpu`. A server need not end.
    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>>;
}
