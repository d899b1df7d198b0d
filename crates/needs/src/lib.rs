//! Tests with external requirements: measured data, another program.
//!
//! A test that returns early without its data counts as passed. Such tests are therefore in files of their own, which end with
//! [`tests!`], of a test program of their own, `tests/external.rs` with `harness = false`, which ends with [`main!`]. They are
//! `ignored` in the summary if a requirement is missing.
//! If `NEARFAR_REQUIRE_DATA` is set to anything but `0`, they run, and fail.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Trial};

/// External requirement of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The directories of measured results: `measured/pcie-bench` in [`data`].
    Data,
    /// A program by name, which has to support `--version`.
    Program(&'static str),
    /// A program too large to be required: if it is missing, the test is always ignored.
    LargeProgram(&'static str),
}

/// The folder of measured data: `$NEARFAR_DATA`, or `shared` beside the repository.
pub fn data() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    std::env::var_os("NEARFAR_DATA").map_or_else(|| PathBuf::from(beside), PathBuf::from)
}

/// The directories of measured results, by name; none where they are absent.
pub fn measured() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data().join("measured/pcie-bench")).into_iter().flatten();
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|p| p.is_dir()).collect();
    found.sort();
    found
}

impl Need {
    /// Describes what is missing in a sentence; `None` if nothing is.
    fn missing(self) -> Option<String> {
        match self {
            Self::Data if measured().is_empty() => Some(format!(
                "there are no measured directories in `{}`; set NEARFAR_DATA to the folder that has `measured/pcie-bench`",
                data().display()
            )),
            Self::Program(name) | Self::LargeProgram(name) => {
                let mut command = Command::new(name);
                command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                command.status().is_err().then(|| format!("`{name}` is not installed"))
            }
            Self::Data => None,
        }
    }

    /// Label in the summary for tests with this requirement.
    fn kind(self) -> String {
        match self {
            Self::Data => "measured data".to_owned(),
            Self::Program(name) | Self::LargeProgram(name) => name.to_owned(),
        }
    }
}

/// How tests with a requirement run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Run,
    Ignored,
    Fail(String),
}

fn fate(missing: Option<String>, required: bool) -> Fate {
    match (missing, required) {
        (None, _) => Fate::Run,
        (Some(_), false) => Fate::Ignored,
        (Some(what), true) => Fate::Fail(what),
    }
}

/// Tests by name, with what they need.
pub type Tests = (Need, Vec<(&'static str, fn())>);

/// Runs tests with the options of `cargo test`. For [`main!`].
pub fn run(all: impl IntoIterator<Item = Tests>) -> ExitCode {
    let is_required =
        std::env::var_os("NEARFAR_REQUIRE_DATA").is_some_and(|value| !value.is_empty() && value != "0");
    let mut trials = Vec::new();
    for (need, tests) in all {
        let fate = fate(need.missing(), is_required && !matches!(need, Need::LargeProgram(_)));
        trials.extend(tests.into_iter().map(|(name, test)| {
            let failure = if let Fate::Fail(what) = &fate { Some(what.clone()) } else { None };
            let body = move || match failure {
                Some(what) => Err(format!("{what}, and NEARFAR_REQUIRE_DATA is set").into()),
                None => {
                    test();
                    Ok(())
                }
            };
            // Without the test program's own name.
            let name = name.split_once("::").map_or(name, |(_, name)| name);
            Trial::test(name, body).with_kind(need.kind()).with_ignored_flag(fate == Fate::Ignored)
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The tests of a file, with their requirement.
#[macro_export]
macro_rules! tests {
    ($need:expr; $($test:ident),+ $(,)?) => {
        pub fn tests() -> $crate::Tests {
            ($need, vec![$((concat!(module_path!(), "::", stringify!($test)), $test as fn())),+])
        }
    };
}

/// The `main` of a program of such files.
#[macro_export]
macro_rules! main {
    ($($file:ident),+ $(,)?) => {
        fn main() -> std::process::ExitCode {
            $crate::run([$($file::tests()),+])
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_ignored_unless_it_is_required() {
        assert_eq!(fate(None, true), Fate::Run);
        assert_eq!(fate(Some("x".into()), false), Fate::Ignored);
        assert_eq!(fate(Some("x".into()), true), Fate::Fail("x".into()));
        let missing = Need::Program("a-program-that-nobody-has").missing();
        assert_eq!(missing.as_deref(), Some("`a-program-that-nobody-has` is not installed"));
        assert_eq!(Need::Program("cargo").missing(), None);
    }
}
