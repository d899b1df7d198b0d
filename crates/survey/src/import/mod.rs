//! Files from which a surveyed machine is simulated: a machine, parts for its devices, and scenarios that run.
//!
//! Each figure says whether it was read, and where, or that it was assumed; all others are those of the nearest machine or part that
//! comes with the program, which the files extend.

mod assumed;
mod host;
mod parts;
mod scenario;

use std::collections::BTreeSet;

use machine::{Diagnostics, Doc, Kindred, Library, Read};

use crate::fact::Origin;
use crate::findings::link_words;
use crate::model::Survey;
use crate::pci::{PciAddress, PciClass, PortKind};
use crate::settle::LinkEnds;

pub use host::credits_at;

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
    /// What puts a NIC or a drive of a scenario at another socket than its programs; nothing if there is one socket.
    pub far: Vec<FarPlace>,
    /// The part that stands for each device.
    pub parts: Vec<PartRelative>,
}

/// How a scenario's device is put at another socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarPlace {
    /// The scenario's file.
    pub scenario: String,
    /// The device.
    pub device: PciAddress,
    /// The key that says its slot, or that of the switch above it.
    pub key: String,
    /// The slot where it is.
    pub near: String,
    /// One at another socket.
    pub far: String,
}

impl FarPlace {
    /// The command line, without the program's name, whose answer is what the device costs there; `folder` is where the scenario is.
    pub fn command(&self, folder: &str) -> String {
        let file =
            if folder.is_empty() { self.scenario.clone() } else { format!("{folder}/{}", self.scenario) };
        format!("sweep {file} --over {}={},{}", self.key, self.near, self.far)
    }
}

/// The part that stands for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRelative {
    /// The device.
    pub device: PciAddress,
    /// Its kind in scenarios: `nic`, `gpu`, `drive`.
    pub kind: &'static str,
    /// The part.
    pub relative: String,
    /// Whether the part is about this very device.
    pub is_own: bool,
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
pub(crate) struct Plugged {
    /// Function 0, or the lowest that there is.
    address: PciAddress,
    /// The bridges above, the nearest first.
    above: Vec<PciAddress>,
}

impl Plugged {
    /// The root port, or the device itself if none is known.
    fn root(&self) -> PciAddress {
        self.above.last().copied().unwrap_or(self.address)
    }
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
    let told = survey.has_made_up_addresses().then_some(
        "the sources name devices without their addresses: which switch and socket each is at is as the sources have it, and the \
         addresses are made up; lspci -vvv tells them",
    );
    let mut imported = import_as_it_is(survey, library, options)?;
    if imported.first.is_none() {
        // To ask what a NIC would cost is possible without one.
        let with_nic = survey.with_assumed_nic();
        if let Ok(other) = import_as_it_is(&with_nic, library, options)
            && other.first.is_some()
        {
            imported = other;
            let of_root = survey.functions.iter().filter(|(_, function)| function.is(PciClass::is_network));
            let left: Vec<String> =
                of_root.map(|(address, _)| format!("{} ({address})", survey.describe(*address))).collect();
            let message = match left.is_empty() {
                true => "the sources have no NIC, drive or pair of GPUs that can be simulated: a NIC at the first node is assumed".to_owned(),
                false => format!(
                    "{} has no link of its own, as a virtual machine's or a chipset's, and is not simulated: a NIC at the first node is assumed",
                    left.join(", ")
                ),
            };
            imported.notes.insert(0, message);
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
    let mut host = host::write(survey, library, options, &plugged, &mut notes)?;
    let mut files = vec![(host.file_name.clone(), String::new())];
    let parts = parts::write(survey, library, (&plugged, host.generation), &mut files, &mut notes)?;
    let written =
        scenario::write((survey, library), options.name, &mut host, &parts, &plugged, &mut files, &mut notes);
    lowered_links(survey, &host, &parts, &plugged, &mut notes);
    files[0].1 = host.text;
    Ok(Imported {
        files,
        relative: host.relative,
        notes,
        first: written.first,
        far: written.far,
        parts: parts.relatives,
    })
}

/// Notes links that are less than both of their ends can, and how they are simulated.
fn lowered_links(
    survey: &Survey,
    host: &host::HostFile,
    parts: &parts::PartFiles,
    plugged: &[Plugged],
    notes: &mut Vec<String>,
) {
    let all = plugged.iter().flat_map(|device| {
        std::iter::once((device, device.address))
            .chain(device.above.iter().map(move |above| (device, *above)))
    });
    let mut told = BTreeSet::new();
    let mut idle = Vec::new();
    for (device, lower) in all {
        let Some(link) = survey.link_above(lower).filter(LinkEnds::is_lowered).filter(|_| told.insert(lower))
        else {
            continue;
        };
        let both = link.both();
        let words = format!(
            "the link of {} ({lower}) is {} now, both of its ends can {}: ",
            survey.describe(lower),
            link_words(link.now.0, link.now.1),
            link_words(both.0, both.1)
        );
        let slot = host.slots.iter().find(|slot| slot.root == link.above);
        let part = parts.devices.iter().find(|(address, ..)| *address == lower);
        let generation = both.0.generation().min(5);
        let remedy = match (slot, part) {
            _ if survey.idles(lower, &link) => {
                idle.push(lower.to_string());
                continue;
            }
            (Some(slot), _) => format!(
                "it is simulated as it is; for what it could be, set port.{0}.generation to {generation} and port.{0}.width to {1} in {2}",
                slot.name, both.1, host.file_name
            ),
            (None, Some((.., file))) if device.address == lower => format!(
                "it is simulated as it is; for what it could be, set link.generation to {generation} and link.width to {} in {file}",
                both.1
            ),
            _ => "it is simulated as what both can".to_owned(),
        };
        notes.push(words + &remedy);
    }
    if !idle.is_empty() {
        notes.push(format!(
            "links of {} have a lower rate now than both of their ends can, as GPUs that have nothing to do: they are simulated at the \
             higher one",
            idle.join(", ")
        ));
    }
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
    pub(crate) fn plugged(&self) -> Vec<Plugged> {
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
    pub(crate) fn socket_of(&self, address: PciAddress) -> (u32, bool) {
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
