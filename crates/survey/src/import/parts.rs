//! Parts for the machine's devices and switches: files that extend the nearest one that comes with the program.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use machine::{Diagnostics, Doc, Drive, Gpu, Kindred, Library, Nic, PcieSwitch, Read};

use super::{Extended, FileFigure, Plugged, plain};
use crate::fact::Sourced;
use crate::model::Survey;
use crate::pci::{PciAddress, PciClass, PciFunction};

/// What a device is in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    /// A network card.
    Nic,
    /// A GPU or another accelerator.
    Gpu,
    /// An NVMe drive.
    Drive,
}

/// The files of devices and switches.
pub struct PartFiles {
    /// Devices that can be simulated: address, kind, file.
    pub devices: Vec<(PciAddress, PartKind, String)>,
    /// Switches by the address of their upstream port: file, and downstream ports in order.
    pub switches: BTreeMap<PciAddress, (String, Vec<PciAddress>)>,
}

/// A file's name for a function, the same for all of one kind.
fn file_name(stem: &str, function: &PciFunction) -> String {
    let ids = function.vendor.value().zip(function.device.value());
    let link = function
        .max_speed
        .value()
        .or(function.speed.value())
        .zip(function.max_width.value().or(function.width.value()));
    let ids = ids.map_or("unknown".to_owned(), |(vendor, device)| format!("{vendor}-{device}"));
    let link = link.map_or(String::new(), |(speed, width)| format!("-x{width}g{}", speed.generation()));
    format!("{stem}-{ids}{link}.toml")
}

/// The name of the library's part with this PCI ID.
fn with_id<T: Kindred + Read>(
    library: &Library,
    ids: &str,
    id_of: impl Fn(&T) -> String,
) -> Result<Option<String>, Diagnostics> {
    for name in library.names(T::FOLDER) {
        if id_of(&Doc::<T>::load(&library.aside(), &name)?.read()?) == ids {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

pub fn write(
    survey: &Survey,
    library: &Library,
    (plugged, likely): (&[Plugged], u32),
    files: &mut Vec<(String, String)>,
    notes: &mut Vec<String>,
) -> Result<PartFiles, Diagnostics> {
    let mut parts = PartFiles { devices: Vec::new(), switches: BTreeMap::new() };
    for device in plugged {
        let function = &survey.functions[&device.address];
        let ids = function
            .vendor
            .value()
            .zip(function.device.value())
            .map_or(String::new(), |(a, b)| format!("{a}:{b}"));
        let is = |of: fn(PciClass) -> bool| function.is(of);
        let kind = match () {
            () if is(PciClass::is_network) => PartKind::Nic,
            () if is(PciClass::is_nvme) => PartKind::Drive,
            () if survey.is_accelerator(device.address) => PartKind::Gpu,
            () => {
                notes.push(format!(
                    "{} is left out: its kind is not simulated",
                    survey.describe(device.address)
                ));
                continue;
            }
        };
        let stem = match kind {
            PartKind::Nic => "nic",
            PartKind::Gpu => "gpu",
            PartKind::Drive => "drive",
        };
        let name = file_name(stem, function);
        if !files.iter().any(|(known, _)| *known == name) {
            let (text, relative) = match kind {
                PartKind::Nic => nic((survey, likely), library, device.address, &ids, &name)?,
                PartKind::Gpu => gpu((survey, likely), library, function, &ids, &name)?,
                PartKind::Drive => drive((survey, likely), library, function, &ids, &name)?,
            };
            notes.push(format!(
                "{} is simulated as {relative} with its own link ({name})",
                survey.describe(device.address)
            ));
            files.push((name.clone(), text));
        }
        parts.devices.push((device.address, kind, name));
        for upstream in switches_above(survey, device) {
            if let Entry::Vacant(new) = parts.switches.entry(upstream) {
                new.insert(switch(survey, library, upstream, files, notes)?);
            }
        }
    }
    Ok(parts)
}

/// The upstream ports of switches above a device, those near the root first. A bridge with several devices directly below, as NCCL
/// writes a switch, is one, too.
pub fn switches_above(survey: &Survey, device: &Plugged) -> Vec<PciAddress> {
    use crate::pci::PortKind;
    let is_upstream = |address: &PciAddress| match survey.functions[address].kind.value() {
        Some(kind) => kind == PortKind::Upstream,
        // Without port types: what has bridges or several cards below it.
        None => {
            let below = survey.functions.keys().filter(|other| survey.parent(**other) == Some(*address));
            let cards = below.filter(|other| {
                let function = &survey.functions[*other];
                let is_card = other.bdf.function() == 0 && function.physical.get().is_none();
                is_card || function.is(PciClass::is_bridge)
            });
            cards.count() > 1
        }
    };
    device.above.iter().rev().copied().filter(is_upstream).collect()
}

/// Opens a file that extends a part.
fn extended<'l>(library: &'l Library, name: &str, relative: &str, what: &str) -> Extended<'l> {
    let own = name.trim_end_matches(".toml");
    let what = plain(what);
    let text = format!(
        "# {what}. What was read says where; all else is {relative}'s.\n\
         name = \"{own}\"\n\
         extends = \"{relative}\"\n\
         summary = \"{what}, as {relative}\"\n\n"
    );
    Extended { library, name: name.to_owned(), text }
}

/// What was read of a link.
fn link<T: Kindred + Read>(survey: &Survey, function: &PciFunction, likely: u32, file: &mut Extended<'_>) {
    let source = |origin: Option<crate::fact::Origin>| {
        origin.map_or("assumed".to_owned(), |origin| survey.figure_source(origin))
    };
    fn first<'f, T: std::fmt::Display + PartialEq>(a: &'f Sourced<T>, b: &'f Sourced<T>) -> &'f Sourced<T> {
        if a.get().is_some() { a } else { b }
    }
    let (speed, width) =
        (first(&function.max_speed, &function.speed), first(&function.max_width, &function.width));
    let add = |file: &mut Extended<'_>, key: &str, value: Option<u32>, origin| {
        if let Some(value) = value {
            let _ = file.add::<T>(&[(format!("link.{key}"), value.to_string(), source(origin))]);
        }
    };
    add(file, "generation", speed.value().map(|speed| speed.generation().min(5)), speed.origin());
    add(file, "width", width.value(), width.origin());
    if let Some((speed, width)) = function.assumed_link(likely).filter(|_| speed.get().is_none()) {
        let told = |value: u32, key: &str| {
            (
                format!("link.{key}"),
                value.to_string(),
                "assumed: a link that carries what is measured".to_owned(),
            )
        };
        let _ = file.add::<T>(&[told(speed.generation().min(5), "generation"), told(width, "width")]);
    }
    add(file, "mps_bytes", function.max_mps_bytes.value(), function.max_mps_bytes.origin());
    let bits = match (function.can_use_10_bit_tags.value(), function.can_extend_tags.value()) {
        (Some(true), _) => Some(10),
        (_, Some(true)) => Some(8),
        (_, Some(false)) => Some(5),
        _ => None,
    };
    add(file, "tag_bits", bits, function.can_extend_tags.origin());
}

fn id_line(survey: &Survey, function: &PciFunction, ids: &str) -> Option<FileFigure> {
    let origin = function.vendor.origin()?;
    Some(("controller.pci_id".into(), format!("\"{ids}\""), survey.figure_source(origin)))
}

fn nic(
    (survey, likely): (&Survey, u32),
    library: &Library,
    address: PciAddress,
    ids: &str,
    name: &str,
) -> Result<(String, String), Diagnostics> {
    let function = &survey.functions[&address];
    let known = with_id::<Nic>(library, ids, |nic| nic.controller.pci_id.value.clone())?;
    let rate = survey
        .interfaces
        .values()
        .filter(|of| of.function.value() == Some(address))
        .find_map(|of| Some((of.mbit_per_s.value()?, of.mbit_per_s.origin()?)));
    let is_mellanox = function.vendor.value().is_some_and(|id| id.0 == 0x15b3)
        || function.name.get().is_some_and(|name| name.contains("Mellanox") || name.contains("ConnectX"))
        || function.is(|class| class.0 == 0x0207);
    let relative = known.unwrap_or_else(|| if is_mellanox { "connectx4" } else { "modern" }.to_owned());
    let mut file = extended(library, name, &relative, &survey.describe(address));
    link::<Nic>(survey, function, likely, &mut file);
    if let Some((mbit, origin)) = rate {
        let _ = file.add::<Nic>(&[(
            "controller.rate".into(),
            format!("\"{mbit} Mbit/s\""),
            survey.figure_source(origin),
        )]);
    }
    // The scenario's cable is between the first ports of two cards.
    let one =
        ("controller.ports".into(), "1".into(), "assumed: the first port is the one of the scenario".into());
    let _ = file.add::<Nic>(&[one]);
    Ok((file.text, relative))
}

fn gpu(
    (survey, likely): (&Survey, u32),
    library: &Library,
    function: &PciFunction,
    ids: &str,
    name: &str,
) -> Result<(String, String), Diagnostics> {
    let known = with_id::<Gpu>(library, ids, |gpu| gpu.controller.pci_id.value.clone())?;
    let relative = known.unwrap_or_else(|| "k40c".to_owned());
    let mut file = extended(library, name, &relative, function.name.get().map_or("a GPU", String::as_str));
    link::<Gpu>(survey, function, likely, &mut file);
    if let Some(line) = id_line(survey, function, ids) {
        let _ = file.add::<Gpu>(&[line]);
    }
    Ok((file.text, relative))
}

fn drive(
    (survey, likely): (&Survey, u32),
    library: &Library,
    function: &PciFunction,
    _: &str,
    name: &str,
) -> Result<(String, String), Diagnostics> {
    let is_optane = function.vendor.value().is_some_and(|id| id.0 == 0x8086);
    let relative = if is_optane { "optane-p4800x" } else { "pm1725a" };
    let mut file =
        extended(library, name, relative, function.name.get().map_or("an NVMe drive", String::as_str));
    link::<Drive>(survey, function, likely, &mut file);
    Ok((file.text, relative.to_owned()))
}

/// A switch's file, and its downstream ports.
fn switch(
    survey: &Survey,
    library: &Library,
    upstream: PciAddress,
    files: &mut Vec<(String, String)>,
    notes: &mut Vec<String>,
) -> Result<(String, Vec<PciAddress>), Diagnostics> {
    let function = &survey.functions[&upstream];
    let ids = function
        .vendor
        .value()
        .zip(function.device.value())
        .map_or(String::new(), |(a, b)| format!("{a}:{b}"));
    let known = with_id::<PcieSwitch>(library, &ids, |switch| switch.pci_id.value.clone())?;
    let relative = known.unwrap_or_else(|| "pex8796".to_owned());
    let children = survey.functions.keys().copied().filter(|other| survey.parent(*other) == Some(upstream));
    let below: Vec<PciAddress> = children
        .filter(|child| child.bdf.function() == 0 || survey.functions[child].is(PciClass::is_bridge))
        .collect();
    let name = format!("switch-{}.toml", upstream.to_string().replace([':', '.'], "-"));
    let mut file = extended(library, &name, &relative, &format!("the switch {upstream}"));
    let read = |origin: Option<crate::fact::Origin>| {
        origin.map_or("assumed: as its devices".to_owned(), |origin| survey.figure_source(origin))
    };
    // Each port of the model is as fast as the fastest one; a link is what both of its ends can.
    let all = || std::iter::once(&upstream).chain(&below).map(|address| &survey.functions[address]);
    let speed = all().filter_map(|of| of.max_speed.value().or(of.speed.value())).max();
    let width = all().filter_map(|of| of.max_width.value().or(of.width.value())).max();
    let origin = all().find_map(|of| of.max_speed.origin().or(of.speed.origin()));
    let ports = below.len() as u32 + 1;
    let lanes = width.unwrap_or(16) * ports;
    let count = "measured: the bridges below it".to_owned();
    let mut lines: Vec<FileFigure> = vec![
        ("ports".into(), ports.to_string(), count.clone()),
        ("lanes".into(), lanes.max(ports).to_string(), count),
    ];
    if let Some(speed) = speed {
        lines.push(("link.generation".into(), speed.generation().min(5).to_string(), read(origin)));
    }
    if let Some(width) = width {
        lines.push(("link.width".into(), width.to_string(), read(origin)));
    }
    if let Err(reason) = file.add::<PcieSwitch>(&lines) {
        notes.push(format!("the switch {upstream} has {relative}'s ports and links: {reason}"));
    }
    notes.push(format!("the switch {upstream} has {relative}'s latencies"));
    files.push((name.clone(), file.text));
    Ok((name, below))
}
