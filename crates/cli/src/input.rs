//! What several commands take, and how it is spelt.

use machine::{ComputerScenario, ComputerSetup, Doc, IommuMode, Library, Scenario, Setup, Sockets};
use results::pciebench::Sockets as NamedSockets;

use crate::Common;
use crate::failure::Failure;

/// `PATH=VALUE`.
pub fn setting(text: &str) -> Result<(String, String), String> {
    let (path, value) = text
        .split_once('=')
        .ok_or("write PATH=VALUE, such as host.llc.ddio_ways=4 or host.dram.access=\"70 ns\"")?;
    Ok((path.trim().to_owned(), value.trim().to_owned()))
}

/// The table in which a scenario with a machine and a card states what the machine's or the card's file calls `key`.
fn table_in_scenario(key: &str) -> Option<&'static str> {
    match key.split('.').next().unwrap_or(key) {
        "host" => Some("change"),
        "dma_engine" | "link" => Some("change_card"),
        _ => None,
    }
}

/// `KEY=VALUES`.
pub fn values(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, values)) if !values.trim().is_empty() => {
            Ok((key.trim().to_owned(), values.trim().to_owned()))
        }
        _ => Err("write KEY=VALUES, such as host.llc.ddio_ways=1,2,4 or host.a.iommu=off,strict".into()),
    }
}

/// A scenario with its machines and devices.
pub enum Loaded {
    /// Programs on computers.
    Computers(Box<ComputerSetup>),
    /// pcie-bench on a machine with a card.
    Bench(Box<Setup>),
}

/// The scenario of that name or path with changes that `option` of the command line asks for.
pub fn scenario(
    library: &Library,
    name: &str,
    option: &str,
    changes: &[(String, String)],
) -> Result<Loaded, Failure> {
    let mut doc = Doc::<ComputerScenario>::load(library, name)?;
    if doc.has("host")? {
        changes.iter().try_for_each(|(path, value)| doc.set_by(option, None, path, value))?;
        let setup = ComputerSetup::load(library, &doc)?;
        nearfar::computer::check(&setup)?;
        return Ok(Loaded::Computers(Box::new(setup)));
    }
    let mut doc = Doc::<Scenario>::load(library, name)?;
    changes.iter().try_for_each(|(key, value)| doc.set_by(option, table_in_scenario(key), key, value))?;
    Ok(Loaded::Bench(Box::new(Setup::load(library, &doc)?)))
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
    match text {
        "off" => Ok(IommuMode::Off),
        "4k" => Ok(IommuMode::Pages4k),
        "superpages" => Ok(IommuMode::Superpages),
        _ => Err("one of off, 4k, superpages".into()),
    }
}

/// Where files are found by name.
pub fn library(common: &Common) -> Library {
    match &common.library {
        Some(folder) => Library::built_in().with_folder(folder),
        None => Library::built_in(),
    }
}
