//! Parsers for arguments shared by several commands.

use std::path::Path;

use machine::{IommuMode, Library, Sockets};
pub use nearfar::changes::{setting, values};
use nearfar::experiment::Experiment;
use results::pciebench::Sockets as NamedSockets;

use crate::Common;
use crate::failure::Failure;
use crate::output::Places;

/// A scenario as a command line names it.
pub struct Named<'a> {
    /// Name or path.
    pub scenario: &'a str,
    /// The folder for its own files, if not its own.
    pub folder: Option<&'a Path>,
}

/// Loads a scenario, with changes from `option` of the command line.
pub fn scenario(
    library: &Library,
    named: &Named<'_>,
    option: &str,
    changes: &[(String, String)],
) -> Result<Experiment, Failure> {
    let mut experiment = Experiment::load(library, named.scenario, option, changes)?;
    if let Some(folder) = named.folder.filter(|folder| !folder.is_dir()) {
        return Err(Failure::new(format!("--folder: there is no folder `{}`", folder.display())));
    }
    if let Experiment::Computers(setup) = &mut experiment {
        if let Some(folder) = named.folder {
            setup.folder = files::Folder::new(folder);
        }
        let provenance = crate::output::provenance(setup.seed, &[(option, changes)], library);
        setup.network.comment = provenance.lines().join("\n");
    }
    Ok(experiment)
}

/// Adds what an experiment reads and writes.
pub fn places(places: &mut Places, library: &Library, experiment: &Experiment) -> Result<(), Failure> {
    if let Experiment::Computers(setup) = experiment {
        places.writes_of(setup)?;
    }
    places.reads_through(library)
}

/// A number or `all`.
pub fn misses(text: &str) -> Result<usize, String> {
    match text {
        "all" => Ok(usize::MAX),
        _ => text.parse().map_err(|_| "a number or `all`".into()),
    }
}

/// `s0-s1-s1`.
pub fn sockets(text: &str) -> Result<Sockets, String> {
    let named: NamedSockets = text.parse().map_err(|error| format!("{error}"))?;
    Ok(Sockets { device: named.device, memory: named.memory, warming: named.program })
}

/// `off`, `4k` or `superpages`.
pub fn iommu(text: &str) -> Result<IommuMode, String> {
    let named = IommuMode::ALL.iter().find(|(name, _)| *name == text);
    named.map(|&(_, mode)| mode).ok_or_else(|| "one of off, 4k, superpages".into())
}

/// Where to look for files by name.
pub fn library(common: &Common) -> Library {
    match &common.library {
        Some(folder) => Library::built_in().with_folder(folder),
        None => Library::built_in(),
    }
}
