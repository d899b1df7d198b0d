//! Errors of commands.

use std::fmt;

/// An error message for the user, as it is shown.
pub struct Failure(String);

impl Failure {
    pub fn new(message: impl fmt::Display) -> Self {
        Self(files::shown(&format!("error: {message}")).into_owned())
    }

    /// Writes it to standard error, with its colours.
    pub fn tell(&self) {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr().lock(), "{self}");
    }

    /// A name that is not among the known ones: the nearest, if one is close, then `rest`, each on a line of its own.
    pub fn unknown<'a>(
        what: &str,
        given: &str,
        known: impl IntoIterator<Item = &'a str>,
        rest: &str,
    ) -> Self {
        Self::with_nearest(format!("there is no {what} called `{given}`"), given, known, rest)
    }

    /// A message about the name `given`, with the nearest of the known ones, if one is close, and `rest`, if there is any.
    pub fn with_nearest<'a>(
        message: impl fmt::Display,
        given: &str,
        known: impl IntoIterator<Item = &'a str>,
        rest: &str,
    ) -> Self {
        let help = machine::did_you_mean(given, known, rest);
        let lines = help.lines().map(|line| format!("\n  {line}"));
        Self::new(format!("{message}{}", lines.collect::<String>()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Problems of a file, with its source lines.
pub fn render(diagnostics: &machine::Diagnostics) -> String {
    diagnostics.render(crate::colour::of_errors())
}

impl From<machine::Diagnostics> for Failure {
    fn from(diagnostics: machine::Diagnostics) -> Self {
        Self(render(&diagnostics))
    }
}

impl From<nearfar::compare::CompareError> for Failure {
    fn from(error: nearfar::compare::CompareError) -> Self {
        match error {
            nearfar::compare::CompareError::Machine(diagnostics) => diagnostics.into(),
            other => Self::new(other),
        }
    }
}

impl From<nearfar::bench::BenchError> for Failure {
    fn from(error: nearfar::bench::BenchError) -> Self {
        Self::new(error)
    }
}

impl From<nearfar::computer::ComputerError> for Failure {
    fn from(error: nearfar::computer::ComputerError) -> Self {
        match error {
            nearfar::computer::ComputerError::Files(diagnostics) => diagnostics.into(),
            other => Self::new(other),
        }
    }
}

impl From<nearfar::experiment::ExperimentError> for Failure {
    fn from(error: nearfar::experiment::ExperimentError) -> Self {
        use nearfar::experiment::ExperimentError;
        match error {
            ExperimentError::Files(diagnostics) => diagnostics.into(),
            ExperimentError::Computer(error) => error.into(),
            other => Self::new(other),
        }
    }
}

impl From<nearfar::trace::computers::TraceError> for Failure {
    fn from(error: nearfar::trace::computers::TraceError) -> Self {
        match error {
            nearfar::trace::computers::TraceError::Computer(error) => error.into(),
            other => Self::new(other),
        }
    }
}
