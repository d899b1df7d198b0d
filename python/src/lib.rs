//! The simulator as a Python module: what the package `nearfar` is made on. Its face, with types and documentation, is
//! written in Python beside; here is what runs.

mod device;
mod failure;
mod file;
mod run;
mod table;
mod trace;
mod watch;

use pyo3::prelude::*;

/// Which simulator this is: a digest of its sources and of the files that come with it.
const BUILD: &str = env!("NEARFAR_BUILD");

#[pymodule]
mod _nearfar {
    #[pymodule_export]
    use super::device::{Bus, Prototype};
    #[pymodule_export]
    use super::file::{File, Library, kinds};
    #[pymodule_export]
    use super::run::{ablate, bench, check, compare, fit, keep, leave_out, look, run, sweep, with_intervals};
    #[pymodule_export]
    use super::table::{Records, Table};
    #[pymodule_export]
    use super::trace::trace;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("BUILD", BUILD)?;
        module.add("VERSION", env!("CARGO_PKG_VERSION"))
    }

    /// Keeps results in a folder from now on; in the usual one if none is given.
    #[pyfunction]
    fn keep_in(folder: Option<std::path::PathBuf>) -> PyResult<()> {
        match folder.or_else(nearfar::cache::usual_folder) {
            Some(folder) => Ok(nearfar::cache::keep_in(&folder, BUILD.to_owned())?),
            None => Ok(()),
        }
    }

    /// Keeps nothing from now on.
    #[pyfunction]
    fn keep_nothing() {
        nearfar::cache::keep_nothing();
    }

    /// How many results were found where they are kept, and how many were added.
    #[pyfunction]
    fn kept() -> (u64, u64) {
        nearfar::cache::used()
    }
}
