//! Files from which a surveyed machine is simulated: a machine, parts for its devices, and scenarios that run.
//!
//! Each figure says whether it was read, and where, or that it was assumed; all others are those of the nearest machine or part that
//! comes with the program, which the files extend.

mod assumed;
mod host;
mod parts;
mod scenario;

use machine::{Diagnostics, Doc, Kindred, Library, Read};

use crate::fact::Origin;
use crate::model::Survey;
use crate::pci::{PciAddress, PortKind};

/// What an import gives.
#[derive(Debug, Clone)]
pub struct Imported {
    /// Files with their names, the machine's first.
    pub files: Vec<(String, String)>,
    /// The machine whose figures stand for what sources do not say.
    pub relative: String,
    /// What was assumed, left out, or taken from a relative although it matters.
    pub notes: Vec<String>,
    /// The scenario to begin with, if the machine has devices for one.
    pub first: Option<String>,
}

/// How an import is done.
#[derive(Debug, Clone, Copy)]
pub struct ImportOptions<'a> {
    /// The machine's name.
    pub name: &'a str,
    /// The machine that stands for what is not known; the nearest one if not given.
    pub from: Option<&'a str>,
}

/// A device of the machine, and the port of the root or of a switch that it is in.
#[derive(Debug, Clone)]
struct Plugged {
    /// Function 0, or the lowest that there is.
    address: PciAddress,
    /// The bridges above, the nearest first.
    above: Vec<PciAddress>,
}

/// Files of a machine.
///
/// # Errors
/// If there is no machine of the name in `from`, or the survey has nothing to simulate.
pub fn import(
    survey: &Survey,
    library: &Library,
    options: ImportOptions<'_>,
) -> Result<Imported, Diagnostics> {
    if survey.cpus.is_empty() && survey.functions.is_empty() && survey.devices.is_empty() {
        return Err(Diagnostics::about(
            options.name,
            "the sources name neither CPUs nor devices: there is nothing to simulate",
            Some("add lspci -vvv and numactl -H, or a topology".into()),
        ));
    }
    let named = survey.with_named_devices().filter(|_| survey.plugged().is_empty());
    let told = named.is_some().then_some(
        "the sources name devices without their addresses: which switch and socket each is at is as the sources have it, and the \
         addresses are made up; lspci -vvv tells them",
    );
    let survey = named.as_ref().unwrap_or(survey);
    let mut imported = import_as_it_is(survey, library, options)?;
    if imported.first.is_none() {
        // To ask what a NIC would cost is possible without one.
        let with_nic = survey.with_assumed_nic();
        if let Ok(other) = import_as_it_is(&with_nic, library, options)
            && other.first.is_some()
        {
            imported = other;
            let message = "the sources have no NIC, drive or pair of GPUs that can be simulated: a NIC at the first node is assumed";
            imported.notes.insert(0, message.into());
        }
    }
    imported.notes.splice(0..0, told.map(str::to_owned));
    Ok(imported)
}

fn import_as_it_is(
    survey: &Survey,
    library: &Library,
    options: ImportOptions<'_>,
) -> Result<Imported, Diagnostics> {
    let plugged = survey.plugged();
    let mut notes = Vec::new();
    let host = host::write(survey, library, options, &plugged, &mut notes)?;
    let mut files = vec![(format!("{}.toml", options.name), host.text.clone())];
    let parts = parts::write(survey, library, (&plugged, host.generation), &mut files, &mut notes)?;
    let first = scenario::write(survey, options.name, &host, &parts, &plugged, &mut files, &mut notes);
    Ok(Imported { files, relative: host.relative, notes, first })
}

/// A text as it may stand in a string or a comment of a TOML file.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).filter(|c| !['"', '\\'].contains(c)).collect()
}

/// Lines of a file that extends another one, each kept only if the file is right with it.
struct Extended<'l> {
    library: &'l Library,
    name: String,
    text: String,
}

/// A figure: its dotted key, its value as the file spells it, and its source.
type FileFigure = (String, String, String);

impl<'l> Extended<'l> {
    /// Adds figures that go together. If the file is wrong with them, they are left, and the reason is returned.
    fn add<T: Kindred + Read>(&mut self, lines: &[FileFigure]) -> Result<(), String> {
        let mut longer = self.text.clone();
        for (key, value, source) in lines {
            let source = plain(source);
            longer += &format!("{key} = {{ value = {value}, source = \"{source}\" }}\n");
        }
        match Doc::<T>::from_text(&self.library.aside(), &self.name, &longer).read() {
            Ok(_) => {
                self.text = longer;
                Ok(())
            }
            Err(wrong) => Err(first_line(&wrong)),
        }
    }
}

/// What is wrong, without the place.
fn first_line(wrong: &Diagnostics) -> String {
    let text = wrong.render(false);
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

impl Survey {
    /// The source of a figure that was read.
    fn figure_source(&self, origin: Origin) -> String {
        match origin.what {
            assumed::FROM => "assumed: no source says it".into(),
            _ => format!("measured: {}", self.shown(origin)),
        }
    }

    /// Devices that are worth a place in a scenario: one for each card, in the order of their addresses.
    fn plugged(&self) -> Vec<Plugged> {
        let mut all: Vec<Plugged> = Vec::new();
        for (address, function) in &self.functions {
            let is_card = self.is_device(*address)
                && function.physical.value().is_none()
                && function.kind.value() != Some(PortKind::Integrated);
            let above = self.above(*address);
            // Parts of the chipset have no link, and are at the root's own bus.
            let has_link = !above.is_empty()
                || function.gb_per_s().is_some()
                || address.segment != 0
                || address.bdf.bus() != 0;
            let same_card = |other: &Plugged| {
                other.address.segment == address.segment
                    && other.address.bdf.bus() == address.bdf.bus()
                    && other.address.bdf.device() == address.bdf.device()
            };
            if is_card && has_link && !all.iter().any(same_card) {
                all.push(Plugged { address: *address, above });
            }
        }
        all
    }

    /// The node whose socket a device is at, counted among nodes with CPUs; 0 if it is not known.
    fn socket_of(&self, address: PciAddress) -> (u32, bool) {
        let nodes = self.nodes_with_cpus();
        let of_node = self.node_of(address).and_then(|node| nodes.iter().position(|own| *own == node));
        // Near several nodes, but not all: those of its package.
        let near = |node: &u32| {
            self.nodes[node]
                .cpus
                .get()
                .zip(self.near_cpus(address))
                .is_some_and(|(own, near)| own.meets(near))
        };
        let place = of_node.or_else(|| nodes.iter().position(near));
        (place.unwrap_or_default() as u32, place.is_some())
    }

    /// Nodes that have CPUs, in order.
    fn nodes_with_cpus(&self) -> Vec<u32> {
        let has_cpus =
            self.nodes.iter().filter(|(_, node)| node.cpus.get().is_some_and(|cpus| !cpus.is_empty()));
        has_cpus.map(|(number, _)| *number).collect()
    }
}
