//! What hardware has counted adds up when a run ends.

use super::computers::Computers;
use super::observer::Observer;

/// Checks sums of the hardware's counters at the end of a run.
#[derive(Default)]
pub(super) struct Balance {
    /// Sums that do not add up.
    pub found: Vec<String>,
}

impl Observer for Balance {
    fn booted(&mut self, _: &Computers) {}

    fn has_enough(&self) -> bool {
        false
    }

    fn ended(&mut self, computers: &Computers) {
        computers.simulation().with(|fabric, _| {
            let unaccounted = fabric.wires.ethernet.unaccounted();
            if unaccounted != 0 {
                self.found.push(format!("{unaccounted} frames are lost on cables without being counted"));
            }
            for host in computers.hosts() {
                if let Err(imbalance) = fabric.host(host.host).memory.counters().check_conservation() {
                    self.found.push(format!("memory of {}: {imbalance}", host.name));
                }
            }
        });
    }
}
