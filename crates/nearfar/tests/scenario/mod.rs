//! Scenarios of computers, put together as tests and benchmarks need them.

// Nobody needs all of it.
#![allow(dead_code)]

pub mod octo;

use machine::{ComputerScenario, ComputerSetup, Diagnostics, Doc, Library};
use nearfar::computer::{self, ComputerError, Computers, Observer};

/// What a scenario begins with.
pub const HEAD: &str = "name = \"test\"\nsummary = \"test\"\n";

/// Looks at the hosts when the programs have ended.
pub struct AtEnd<F>(pub F);

impl<F: FnMut(&Computers)> Observer for AtEnd<F> {
    fn booted(&mut self, _: &Computers) {}

    fn has_enough(&self) -> bool {
        false
    }

    fn ended(&mut self, computers: &Computers) {
        (self.0)(computers);
    }
}

/// A host with other lines of it.
pub fn host(name: &str, machine: &str, lines: &str) -> String {
    format!("[[host]]\nname = \"{name}\"\nmachine = \"{machine}\"\n{lines}\n")
}

/// A host with a fast NIC.
pub fn host_with_nic(name: &str) -> String {
    host(name, "dell-t430", "[[host.device]]\nnic = \"modern\"")
}

/// A host with a drive, of which other lines follow.
pub fn host_with_drive(drive: &str, iommu: &str) -> String {
    host("a", "dell-t430", &format!("iommu = \"{iommu}\"\n[[host.device]]\ndrive = \"{drive}\""))
}

/// A cable with other lines of it.
pub fn cable(from: &str, to: &str, lines: &str) -> String {
    format!("[[cable]]\nends = [\"{from}\", \"{to}\"]\n{lines}\n")
}

/// Two hosts, `a` and `b`, with a NIC each and a cable between them.
pub fn two_hosts(lines_of_cable: &str) -> String {
    [HEAD, &host_with_nic("a"), &host_with_nic("b"), &cable("a", "b", lines_of_cable)].concat()
}

/// A program on a host's cores.
pub fn program(host: &str, cpus: &str, run: &str) -> String {
    format!("[[program]]\nhost = \"{host}\"\ncpus = \"{cpus}\"\nrun = \"{run}\"\n")
}

/// An event at a time, with other lines of it.
pub fn event(at: &str, deed: &str, what: &str, lines: &str) -> String {
    format!("[[event]]\nat = \"{at}\"\ndo = \"{deed}\"\nwhat = \"{what}\"\n{lines}\n")
}

/// A scenario with this text, ready to run.
pub fn load(text: &str) -> Result<ComputerSetup, Diagnostics> {
    let library = Library::built_in();
    ComputerSetup::load(&library, &Doc::<ComputerScenario>::from_text(&library, "test.toml", text))
}

/// Checks what a scenario says of its kernels.
pub fn check(setup: &ComputerSetup) -> Result<(), Diagnostics> {
    computer::check(setup).map_err(|error| match error {
        ComputerError::Files(wrong) => wrong,
        other => panic!("{other}"),
    })
}

/// As [`load`], of a scenario that has nothing wrong.
pub fn loaded(text: &str) -> ComputerSetup {
    load(text).unwrap_or_else(|error| panic!("{}\n{text}", error.render(false)))
}
