//! What goes wrong, as Python's exceptions: the classes are those of the package.

use machine::{Diagnostic, Diagnostics};
use nearfar::bench::BenchError;
use nearfar::compare::CompareError;
use nearfar::computer::ComputerError;
use nearfar::experiment::ExperimentError;
use nearfar::fit::FitError;
use nearfar::prototype::PrototypeError;
use nearfar::trace::computers::TraceError;
use pyo3::prelude::*;

/// Why something could not be done.
#[derive(Debug)]
pub enum Failure {
    /// A file, a change or an argument is wrong.
    Input(Diagnostics),
    /// It cannot be simulated.
    Run(String),
    /// Nobody waits for it any more.
    Unwanted,
}

impl Failure {
    /// An argument is wrong.
    pub fn argument(name: &str, message: String, help: impl Into<String>) -> Self {
        Self::Input(Diagnostics::about(name, message, Some(help.into())))
    }
}

impl From<Diagnostics> for Failure {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Input(diagnostics)
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Unwanted => Self::Unwanted,
            other => Self::Run(other.to_string()),
        }
    }
}

impl From<ComputerError> for Failure {
    fn from(error: ComputerError) -> Self {
        match error {
            ComputerError::Unwanted => Self::Unwanted,
            ComputerError::Files(diagnostics) => Self::Input(diagnostics),
            other => Self::Run(other.to_string()),
        }
    }
}

impl From<ExperimentError> for Failure {
    fn from(error: ExperimentError) -> Self {
        match error {
            ExperimentError::Files(diagnostics) => Self::Input(diagnostics),
            ExperimentError::Bench(error) => error.into(),
            ExperimentError::Computer(error) => error.into(),
            ExperimentError::NotRepeatable(_) => {
                Self::argument("uncertainty", error.to_string(), "leave `uncertainty` out")
            }
            ExperimentError::NoKernel => {
                Self::argument("accounting", error.to_string(), "leave `accounting` out")
            }
        }
    }
}

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Self {
        match error {
            CompareError::Machine(diagnostics) => Self::Input(diagnostics),
            other => Self::argument("directory", other.to_string(), "name a folder of results of pcie-bench"),
        }
    }
}

impl From<FitError> for Failure {
    fn from(error: FitError) -> Self {
        match error {
            FitError::Unwanted => Self::Unwanted,
            FitError::Machine(diagnostics) => Self::Input(diagnostics),
            FitError::Compare(error) => error.into(),
            other => Self::argument(
                "directories",
                other.to_string(),
                "name folders of results of pcie-bench, all of one machine",
            ),
        }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        match error {
            TraceError::Computer(error) => error.into(),
            other => Self::argument("links", other.to_string(), "leave `links` out to see all"),
        }
    }
}

impl From<PrototypeError> for Failure {
    fn from(error: PrototypeError) -> Self {
        match error {
            PrototypeError::Files(diagnostics) => Self::Input(diagnostics),
            PrototypeError::Computer(error) => error.into(),
            other => Self::Run(other.to_string()),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| match failure {
            Failure::Input(diagnostics) => {
                let problem = |one: &Diagnostic| {
                    let help = one.help.clone().unwrap_or_default();
                    (one.file.clone(), one.line, one.column, one.message.clone(), help)
                };
                let problems: Vec<_> = diagnostics.iter().map(problem).collect();
                raised(py, "InputError", |class| class.call1((diagnostics.render(false), problems)))
            }
            Failure::Run(message) => raised(py, "RunError", |class| class.call1((message,))),
            Failure::Unwanted => raised(py, "RunError", |class| class.call1(("the run was given up",))),
        })
    }
}

/// An exception of a class of the package.
fn raised<'py>(
    py: Python<'py>,
    class: &str,
    make: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
) -> PyErr {
    let class = py.import("nearfar.errors").and_then(|errors| errors.getattr(class));
    match class.and_then(|class| make(&class)) {
        Ok(made) => PyErr::from_value(made),
        Err(error) => error,
    }
}
