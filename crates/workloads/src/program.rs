//! The program interface: environment, report and failure.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::kernel::Kernel;
use serde::{Deserialize, Serialize};
use units::{Duration, Time};

use crate::premises::{Premises, Refused};

/// A program's environment.
#[derive(Clone)]
pub struct Environment {
    /// The kernel that it runs on: a host's, a guest's, or a network namespace of one.
    pub kernel: Rc<dyn Kernel>,
    /// The cores that it may run on; never empty.
    pub cpus: Vec<CpuId>,
    /// Seed of its random numbers.
    pub seed: u64,
    /// The devices' firmware, where programs can replace it.
    pub firmware: Option<Rc<dyn Firmware>>,
    /// Where a program that only the run's end ends leaves what it has counted.
    pub so_far: ReportSoFar,
    /// Where it says when it measures.
    pub span: MeasuredSpan,
}

/// Tells when a program measures, if it has more to do: the host's counters are of that time then.
#[derive(Clone, Default)]
pub struct MeasuredSpan {
    /// Beginnings (true) and ends of programs, by number, that nobody has looked at yet.
    pub marks: Rc<RefCell<Vec<(usize, bool)>>>,
    /// The program's number.
    pub program: usize,
}

impl MeasuredSpan {
    /// What it prepares is done.
    pub(crate) fn begin(&self) {
        self.marks.borrow_mut().push((self.program, true));
    }

    /// What it measures is done.
    pub(crate) fn end(&self) {
        self.marks.borrow_mut().push((self.program, false));
    }
}

/// Makes a report of what a program has counted until a time.
type ReportMaker = Box<dyn Fn(Time) -> Report>;

/// What a program that does not end has counted.
#[derive(Clone, Default)]
pub struct ReportSoFar(Rc<RefCell<Option<ReportMaker>>>);

impl ReportSoFar {
    /// From now on, `report` tells what was counted.
    pub(crate) fn by(&self, report: impl Fn(Time) -> Report + 'static) {
        *self.0.borrow_mut() = Some(Box::new(report));
    }

    /// The report at a time; `None` if the program has none.
    pub fn at(&self, now: Time) -> Option<Report> {
        self.0.borrow().as_ref().map(|report| report(now))
    }
}

/// The firmware of devices, which a program can replace.
pub trait Firmware {
    /// Lets a function ignore its driver, for that many requests, and reports where each has ended.
    fn turn_rogue(&self, function: &str, tries: u32, seed: u64) -> Async<'static, Result<Report, Failure>>;
}

/// A measured value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reading {
    /// The quantity in lower case, such as `read iops`.
    pub quantity: String,
    /// Its unit, such as `1/s`; empty for a count.
    pub unit: Cow<'static, str>,
    /// The value in `unit`.
    pub value: f64,
    /// Direction and origin, for link traffic.
    pub way: Option<TrafficKind>,
}

/// Direction and origin of a reading of link traffic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TrafficKind {
    /// The direction, such as `from the NIC`.
    pub direction: Cow<'static, str>,
    /// Computed by an analytic model rather than measured.
    pub is_model: bool,
}

impl Reading {
    /// A reading.
    pub fn new(quantity: impl Into<String>, unit: impl Into<Cow<'static, str>>, value: f64) -> Self {
        Self { quantity: quantity.into(), unit: unit.into(), value, way: None }
    }

    /// Its unique name: quantity, direction and origin.
    pub fn name(&self) -> String {
        match &self.way {
            None => self.quantity.clone(),
            Some(TrafficKind { direction, is_model: false }) => format!("{}, {direction}", self.quantity),
            Some(TrafficKind { direction, is_model: true }) => {
                format!("{}, {direction}, model", self.quantity)
            }
        }
    }
}

/// Results of a program.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Values in the order in which the real tool prints them.
    pub readings: Vec<Reading>,
    /// Notes on problems or peculiarities.
    pub notes: Vec<String>,
    /// Repeated measurements in order, in microseconds: latencies, or times of equal parts of its work. They give the
    /// precision of the readings. Stored results are without them.
    #[serde(skip)]
    pub samples: Vec<f64>,
    /// What the real tool prints, if its options ask for that form: JSON, terse, or its usual text.
    pub text: Option<String>,
    /// The option that sets its pace, if it kept up: more of anything would bring no more.
    pub pace: Option<String>,
}

/// Share of a rate from which on it was kept: the rest is lost at the ends of what was measured.
pub(crate) const KEPT_PACE: f64 = 0.98;

impl Report {
    /// Says that `option` asked for a rate, of which it has reached some.
    pub(crate) fn set_pace(&mut self, option: &str, asked: f64, reached: f64) {
        if reached >= KEPT_PACE * asked {
            self.pace = Some(option.to_owned());
        }
    }

    /// Adds a reading.
    pub fn add(&mut self, quantity: impl Into<String>, unit: &'static str, value: f64) {
        self.readings.push(Reading::new(quantity, unit, value));
    }

    /// Adds a reading of link traffic.
    pub fn add_way(&mut self, quantity: &str, way: &TrafficKind, unit: &'static str, value: f64) {
        self.readings.push(Reading { way: Some(way.clone()), ..Reading::new(quantity, unit, value) });
    }

    /// The reading with this [name](Reading::name).
    pub fn get(&self, name: &str) -> Option<f64> {
        self.readings.iter().find(|reading| reading.name() == name).map(|reading| reading.value)
    }
}

/// Why a program failed, as told to its user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

    /// An error of a connection, with the program that accepts it if there is none.
    pub(crate) fn of_connection(what: impl fmt::Display, error: Error, server: &str) -> Self {
        match error {
            Error::Refused => Self(format!("{what}: {error}: no `{server}` runs there at this time")),
            error => Self::about(what, error),
        }
    }
}

/// A program with its parsed command line.
pub trait Program {
    /// Whether it is a server, which runs until all other programs have ended.
    fn serves(&self) -> bool {
        false
    }

    /// How long it will run in simulated time, if its options say so.
    fn lasts(&self) -> Option<Duration> {
        None
    }

    /// Names of what it does one after the other, if that is measured apart; it says when each begins and ends.
    fn parts(&self) -> Vec<String> {
        Vec::new()
    }

    /// Notes on its command line: options that change nothing here.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Checks whether its options are possible on its host. Called before the simulation.
    ///
    /// # Errors
    /// The first problem.
    fn check(&self, premises: &Premises) -> Result<(), Refused>;

    /// Runs it as a task on the core of `cpu`. A server need not return.
    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>>;
}
