//! Device trees of a scenario's kernels.

use std::collections::BTreeSet;

use hardware::memory::CoreId;
use kernel::SysNode;
use machine::ComputerSetup;
use wire::pcie::Bdf;

use super::{Computer, ComputerError, Computers};

/// Boots a scenario's hosts and reads the tree of each. No program runs.
///
/// # Errors
/// If the computers cannot be assembled or do not boot.
pub fn tree(setup: &ComputerSetup) -> Result<Vec<(String, SysNode)>, ComputerError> {
    let computers = Computers::new(setup)?;
    computers.boot()?;
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
    /// Bytes of a function's configuration space.
    const SPACE: u16 = 4096;
    let computers = Computers::new(setup)?;
    computers.boot()?;
    let mut all = Vec::new();
    for host in computers.hosts() {
        let mut functions = BTreeSet::new();
        addresses(&computers.simulation().block_on(host.kernel.sys())?, &mut functions);
        let (handle, id) = (computers.simulation().handle(), host.host);
        let text = computers.simulation().block_on(async move {
            let mut text = String::new();
            for (name, address) in functions {
                text += &format!("{name} function\n");
                for line in (0..SPACE).step_by(16) {
                    text += &format!("{line:02x}:");
                    for register in (line..line + 16).step_by(4) {
                        let read = handle.with(|fabric, scheduler| {
                            let (host, mut cx) = fabric.host_in(id, scheduler);
                            host.config_read(&mut cx, CoreId(0), address, register)
                        });
                        // All ones if nothing answers, as a core would see.
                        let bytes = read.data.await.unwrap_or_else(|_| vec![0xff; 4]);
                        bytes.iter().for_each(|byte| text += &format!(" {byte:02x}"));
                    }
                    text.push('\n');
                }
                text.push('\n');
            }
            text
        })?;
        all.push((host.name.clone(), text));
    }
    Ok(all)
}

/// Functions in a tree: folders whose name is an address, with that address.
fn addresses(folder: &SysNode, found: &mut BTreeSet<(String, Bdf)>) {
    // Segment, bus, device and function: 0000:03:00.1.
    let short = folder.name.split_once(':').map_or("", |(_, short)| short);
    if let Ok(address) = short.parse() {
        found.insert((folder.name.clone(), address));
    }
    folder.children.iter().for_each(|child| addresses(child, found));
}
