//! Device trees of a scenario's kernels.

use std::collections::BTreeSet;

use hardware::memory::CoreId;
use kernel::SysNode;
use machine::ComputerSetup;
use wire::pcie::Bdf;

use super::checks::checked;
use super::computers::Computers;
use super::error::ComputerError;
use super::host::Computer;

/// Boots a scenario's hosts and reads the tree of each. No program runs.
///
/// # Errors
/// If the computers cannot be assembled or do not boot, or cannot run the programs.
pub fn tree(setup: &ComputerSetup) -> Result<Vec<(String, SysNode)>, ComputerError> {
    let computers = checked(setup)?;
    let read = |host: &Computer| {
        let tree = computers.simulation().block_on(host.kernel.sys())?;
        Ok((host.name.clone(), tree))
    };
    computers.hosts().iter().map(read).collect()
}

/// Boots a scenario's hosts and reads the configuration spaces of all functions of each kernel, register by register.
/// Returns text for each host that `lspci -F` reads.
///
/// # Errors
/// As [`tree`].
pub fn configuration(setup: &ComputerSetup) -> Result<Vec<(String, String)>, ComputerError> {
    let computers = checked(setup)?;
    let text = |host: &Computer| {
        let tree = computers.simulation().block_on(host.kernel.sys())?;
        let spaces = spaces(&computers, host, &tree)?;
        Ok((host.name.clone(), spaces.iter().map(|(name, bytes)| dump(name, bytes)).collect()))
    };
    computers.hosts().iter().map(text).collect()
}

/// A function's configuration space as `lspci -x` writes it.
fn dump(name: &str, bytes: &[u8]) -> String {
    let mut text = format!("{name} function\n");
    for (line, bytes) in (0..).step_by(16).zip(bytes.chunks(16)) {
        text += &format!("{line:02x}:");
        bytes.iter().for_each(|byte| text += &format!(" {byte:02x}"));
        text.push('\n');
    }
    text.push('\n');
    text
}

/// The configuration space of each function in a host's tree, by its name.
pub(super) fn spaces(
    computers: &Computers,
    host: &Computer,
    tree: &SysNode,
) -> Result<Vec<(String, Vec<u8>)>, ComputerError> {
    /// Bytes of a function's configuration space.
    const SPACE: u16 = 4096;
    let mut functions = BTreeSet::new();
    addresses(tree, &mut functions);
    let (handle, id) = (computers.simulation().handle(), host.host);
    let read = computers.simulation().block_on(async move {
        let mut all = Vec::new();
        for (name, address) in functions {
            let mut space = Vec::with_capacity(SPACE.into());
            for register in (0..SPACE).step_by(4) {
                let read = handle.with(|fabric, scheduler| {
                    let (host, mut cx) = fabric.host_in(id, scheduler);
                    host.config_read(&mut cx, CoreId(0), address, register)
                });
                // All ones if nothing answers, as a core would see.
                space.extend(read.data.await.unwrap_or_else(|_| vec![0xff; 4]));
            }
            all.push((name, space));
        }
        all
    })?;
    Ok(read)
}

/// Functions in a tree: folders whose name is an address, with that address.
fn addresses(folder: &SysNode, found: &mut BTreeSet<(String, Bdf)>) {
    if let Some(address) = address(&folder.name) {
        found.insert((folder.name.clone(), address));
    }
    folder.children.iter().for_each(|child| addresses(child, found));
}

/// The address that a function's folder is called by.
pub(super) fn address(name: &str) -> Option<Bdf> {
    // Segment, bus, device and function: 0000:03:00.1.
    name.split_once(':')?.1.parse().ok()
}
