//! What a scenario's kernels find and make of it: a tree of attributes for each host.

use kernel::SysNode;
use machine::ComputerSetup;

use super::{Computer, ComputerError, Computers};

/// Boots a scenario's hosts and reads each one's tree. No program runs.
///
/// # Errors
/// If the computers cannot be put together or do not boot.
pub fn tree(setup: &ComputerSetup) -> Result<Vec<(String, SysNode)>, ComputerError> {
    let computers = Computers::new(setup)?;
    computers.boot()?;
    let read = |host: &Computer| {
        let tree = computers.simulation().block_on(host.kernel.sys())?;
        Ok((host.name.clone(), tree))
    };
    computers.hosts().iter().map(read).collect()
}
