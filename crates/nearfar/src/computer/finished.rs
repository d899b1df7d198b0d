//! What a run of a scenario's programs leaves.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use units::Duration;
use workloads::{Failure, Report, ReportSoFar};

use super::accounting::Account;
use super::counting::Counted;
use crate::links::LinkState;
use crate::trace::human;

/// What a report is about, by its number in the scenario. Reports are in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Subject {
    /// A program, or a traffic source: these follow the programs.
    Program(usize),
    /// An event.
    Event(usize),
    /// The start of a borrowing, or its end.
    Loan {
        /// Its number.
        number: usize,
        /// Whether it is the end.
        ends: bool,
    },
    /// The traffic on a NIC's link.
    Link,
}

/// A program that has ended, or something else that is reported like one.
#[derive(Debug, Serialize, Deserialize)]
pub struct FinishedProgram {
    /// What it is.
    pub subject: Subject,
    /// Name of the host that it ran on.
    pub host: String,
    /// Its command line.
    pub run: String,
    /// Run time.
    pub took: Duration,
    /// Its report, or why it failed.
    pub outcome: Result<Report, Failure>,
    /// Whether it failed because an event stopped its host.
    pub was_stopped: bool,
}

impl FinishedProgram {
    pub(super) fn new(
        subject: Subject,
        host: String,
        run: String,
        took: Duration,
        outcome: Result<Report, Failure>,
    ) -> Self {
        Self { subject, host, run, took, outcome, was_stopped: false }
    }

    /// One that an event stopped at a time after the programs' start.
    pub(super) fn stopped(
        subject: Subject,
        host: String,
        run: String,
        took: Duration,
        (why, at): (&str, Duration),
    ) -> Self {
        let outcome = Err(Failure(format!("its {why} at {at}")));
        Self { was_stopped: true, ..Self::new(subject, host, run, took, outcome) }
    }

    /// Its number, if it is a program or a traffic source.
    pub fn number(&self) -> Option<usize> {
        match self.subject {
            Subject::Program(number) => Some(number),
            Subject::Event(_) | Subject::Loan { .. } | Subject::Link => None,
        }
    }

    /// Its failure, unless intended by the scenario.
    pub fn failure(&self) -> Option<&Failure> {
        self.outcome.as_ref().err().filter(|_| !self.was_stopped)
    }
}

/// What has been reported so far, in order of time.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) done: RefCell<Vec<FinishedProgram>>,
    /// Names of the devices that each program has opened.
    pub(super) opened: RefCell<BTreeMap<usize, BTreeSet<String>>>,
    /// What programs that do not end have counted.
    pub(super) so_far: RefCell<BTreeMap<usize, ReportSoFar>>,
    /// Programs that begin (true) or end to measure.
    pub(super) marks: Rc<RefCell<Vec<(usize, bool)>>>,
}

impl Ended {
    /// Reports something.
    pub fn tell(&self, report: FinishedProgram) {
        self.done.borrow_mut().push(report);
    }

    /// Whether something has been reported.
    pub fn has(&self, subject: Subject) -> bool {
        self.done.borrow().iter().any(|done| done.subject == subject)
    }
}

/// A line of a kernel's log that tells what is lacking, or what failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Warning {
    /// The host's name in the scenario, and that of the virtual machine if it is of one.
    pub host: String,
    /// When, in picoseconds after the programs' start; `None` while the host booted.
    pub at_ps: Option<u64>,
    /// The line of the kernel's log.
    pub line: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at_ps {
            Some(at) => {
                write!(f, "kernel of {}, at {}: {}", self.host, human(Duration::from_ps(at)), self.line)
            }
            None => write!(f, "kernel of {}, at boot: {}", self.host, self.line),
        }
    }
}

/// Results of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Counts {
    /// Reports of programs and links.
    pub done: Vec<FinishedProgram>,
    /// CPU time.
    pub accounts: Vec<Account>,
    /// Counters during each program, except servers.
    pub counted: Vec<Counted>,
    /// Negotiated state of the links to devices.
    pub links: Vec<LinkState>,
    /// What kernels lack, and drivers that failed.
    pub warnings: Vec<Warning>,
}

impl Counts {
    /// The host of a program, by its number in the scenario.
    pub fn host_of(&self, program: usize) -> &str {
        self.done.iter().find(|done| done.number() == Some(program)).map_or("", |done| &done.host)
    }

    /// What binds a program, in words; empty if nothing was counted while it ran.
    pub fn binding_of(&self, program: usize) -> String {
        let counted = self.counted.iter().filter(|counted| counted.program == program);
        let sentences = counted.map(|counted| counted.window.binding(self.host_of(program)).sentence());
        sentences.collect::<Vec<_>>().join("; ")
    }
}
