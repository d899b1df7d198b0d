//! Parts for the machine's devices and switches: files that extend the nearest one that comes with the program.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use machine::{Diagnostics, Doc, Drive, Gpu, Kindred, Library, Nic, PcieSwitch, Read};

use super::{Extended, FileFigure, PartRelative, Plugged, plain};
use crate::fact::Sourced;
use crate::model::Survey;
use crate::pci::{LaneSpeed, PciAddress, PciClass, PciFunction};

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

impl PartKind {
    /// Its key in scenarios.
    pub fn key(self) -> &'static str {
        match self {
            Self::Nic => "nic",
            Self::Gpu => "gpu",
            Self::Drive => "drive",
        }
    }
}

/// A part's file, and what it extends.
struct PartText {
    text: String,
    relative: String,
    /// Whether the relative is this very part.
    is_own: bool,
}

/// The files of devices and switches.
pub struct PartFiles {
    /// Devices that can be simulated: address, kind, file.
    pub devices: Vec<(PciAddress, PartKind, String)>,
    /// The part that stands for each device.
    pub relatives: Vec<PartRelative>,
    /// Switches by the address of their upstream port: file, and downstream ports in order.
    pub switches: BTreeMap<PciAddress, (String, Vec<PciAddress>)>,
}

/// Rate and width of a device's link as far as the device itself decides them: what it can, unless its link is less than both ends can
/// and no port of the machine's file says so.
fn own_link<'s>(survey: &'s Survey, device: &Plugged) -> (&'s Sourced<LaneSpeed>, &'s Sourced<u32>) {
    let function = &survey.functions[&device.address];
    let is_lowered = survey.link_above(device.address).is_some_and(|link| {
        link.above != device.root() && link.is_lowered() && !survey.idles(device.address, &link)
    });
    fn first<'f, T: std::fmt::Display + PartialEq>(a: &'f Sourced<T>, b: &'f Sourced<T>) -> &'f Sourced<T> {
        if a.get().is_some() { a } else { b }
    }
    match is_lowered {
        true => (&function.speed, &function.width),
        false => (first(&function.max_speed, &function.speed), first(&function.max_width, &function.width)),
    }
}

/// A file's name for a function, the same for all of one kind.
fn file_name(stem: &str, survey: &Survey, device: &Plugged) -> String {
    let function = &survey.functions[&device.address];
    let ids = function.vendor.value().zip(function.device.value());
    let (speed, width) = own_link(survey, device);
    // Without numbers, a name tells cards apart.
    let named = || {
        let name = function.name.get().map_or("unknown", String::as_str).to_ascii_lowercase();
        let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.take(8).collect::<Vec<_>>().join("-")
    };
    let ids = ids.map_or_else(named, |(vendor, device)| format!("{vendor}-{device}"));
    let link = speed.value().zip(width.value());
    let link = link.map_or(String::new(), |(speed, width)| format!("-x{width}g{}", speed.generation()));
    format!("{stem}-{ids}{link}.toml")
}

/// Vendor and device as files spell them; empty if they are not known.
fn ids_of(function: &PciFunction) -> String {
    let ids = function.vendor.value().zip(function.device.value());
    ids.map_or(String::new(), |(vendor, device)| format!("{vendor}:{device}"))
}

/// The library's part that a function is: the one of its name, of those that have its numbers; otherwise the one that the others of
/// these extend.
fn with_id<T: Kindred + Read>(
    library: &Library,
    function: &PciFunction,
    id_of: impl Fn(&T) -> String,
) -> Result<Option<String>, Diagnostics> {
    let ids = ids_of(function);
    let is_name = |own: &str| {
        [&function.label, &function.name].iter().any(|fact| fact.get().is_some_and(|name| name == own))
    };
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    for name in library.names(T::FOLDER) {
        let doc = Doc::<T>::load(&library.aside(), &name)?;
        let has_ids = id_of(&doc.read()?) == ids;
        if is_name(&name) && (has_ids || ids.is_empty()) {
            return Ok(Some(name));
        }
        if has_ids {
            let extends = doc.text().lines().find_map(|line| line.strip_prefix("extends = "));
            found.push((name, extends.map(|text| text.trim().trim_matches('"').to_owned())));
        }
    }
    let is_base = |(_, extends): &&(String, Option<String>)| {
        !extends.as_ref().is_some_and(|extends| found.iter().any(|(other, _)| other == extends))
    };
    Ok(found.iter().find(is_base).map(|(name, _)| name.clone()))
}

pub fn write(
    survey: &Survey,
    library: &Library,
    (plugged, likely): (&[Plugged], u32),
    files: &mut Vec<(String, String)>,
    notes: &mut Vec<String>,
) -> Result<PartFiles, Diagnostics> {
    let mut parts = PartFiles { devices: Vec::new(), relatives: Vec::new(), switches: BTreeMap::new() };
    let mut known_parts: BTreeMap<String, (String, bool)> = BTreeMap::new();
    // NICs whose Ethernet rate no source says.
    let mut unknown: Vec<String> = Vec::new();
    for device in plugged {
        let function = &survey.functions[&device.address];
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
        let stem = kind.key();
        let name = file_name(stem, survey, device);
        if !known_parts.contains_key(&name) {
            let part = match kind {
                PartKind::Nic => nic((survey, likely), library, device, &name, &mut unknown)?,
                PartKind::Gpu => gpu((survey, likely), library, device, &name)?,
                PartKind::Drive => drive((survey, likely), library, device, &name)?,
            };
            let PartText { text, relative, is_own } = part;
            notes.push(format!(
                "{} is simulated as {relative} with its own link ({name})",
                survey.describe(device.address)
            ));
            files.push((name.clone(), text));
            known_parts.insert(name.clone(), (relative, is_own));
        }
        let (relative, is_own) = known_parts[&name].clone();
        parts.relatives.push(PartRelative { device: device.address, kind: stem, relative, is_own });
        parts.devices.push((device.address, kind, name));
        for upstream in switches_above(survey, device) {
            if let Entry::Vacant(new) = parts.switches.entry(upstream) {
                new.insert(switch(survey, library, upstream, files, notes)?);
            }
        }
    }
    if !unknown.is_empty() {
        notes.push(format!(
            "no source says the Ethernet rate of {}: it is assumed, as that of the part that stands for it (controller.rate in its file)",
            unknown.join(", ")
        ));
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
fn link<T: Kindred + Read>(survey: &Survey, device: &Plugged, likely: u32, file: &mut Extended<'_>) {
    let function = &survey.functions[&device.address];
    let source = |origin: Option<crate::fact::Origin>| {
        origin.map_or("assumed".to_owned(), |origin| survey.figure_source(origin))
    };
    let (speed, width) = own_link(survey, device);
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
    device: &Plugged,
    name: &str,
    unknown: &mut Vec<String>,
) -> Result<PartText, Diagnostics> {
    let address = device.address;
    let function = &survey.functions[&address];
    let known = with_id::<Nic>(library, function, |nic| nic.controller.pci_id.value.clone())?;
    let rate = survey
        .interfaces
        .values()
        .filter(|of| of.function.value() == Some(address))
        .find_map(|of| Some((of.mbit_per_s.value()?, of.mbit_per_s.origin()?)));
    let is_mellanox = function.vendor.value().is_some_and(|id| id.0 == 0x15b3)
        || function.name.get().is_some_and(|name| name.contains("Mellanox") || name.contains("ConnectX"))
        || function.is(|class| class.0 == 0x0207);
    let is_own = known.is_some();
    let relative = known.unwrap_or_else(|| if is_mellanox { "connectx4" } else { "modern" }.to_owned());
    let mut file = extended(library, name, &relative, &survey.describe(address));
    link::<Nic>(survey, device, likely, &mut file);
    match rate {
        Some((mbit, origin)) => {
            let _ = file.add::<Nic>(&[(
                "controller.rate".into(),
                format!("\"{mbit} Mbit/s\""),
                survey.figure_source(origin),
            )]);
        }
        None => {
            let rate = Doc::<Nic>::load(&library.aside(), &relative)?.read()?.controller.rate.value;
            unknown.push(format!("{} ({rate})", survey.describe(address)));
            let line = ("controller.rate".into(), format!("\"{rate}\""), "assumed: no source says it".into());
            let _ = file.add::<Nic>(&[line]);
        }
    }
    // The scenario's cable is between the first ports of two cards.
    let looped = Doc::<Nic>::load(&library.aside(), &relative)?.read()?.controller.looped;
    if looped.is_some_and(|looped| looped.value) {
        let line = ("controller.looped".into(), "false".into(), "assumed: the scenario has a cable".into());
        let _ = file.add::<Nic>(&[line]);
    }
    let one =
        ("controller.ports".into(), "1".into(), "assumed: the first port is the one of the scenario".into());
    let _ = file.add::<Nic>(&[one]);
    Ok(PartText { text: file.text, relative, is_own })
}

/// The GPU nearest to one that no file is about: by NVIDIA's numbers and chips' names, else by the link's generation.
fn nearest_gpu(function: &PciFunction) -> &'static str {
    /// The first number of Volta, after which all are of later ones.
    const VOLTA: u16 = 0x1d80;
    let name = function.name.get().map_or("", String::as_str);
    let chips = ["GV1", "TU1", "GA1", "AD1", "GH1", "GB1", "GB2"];
    let is_nvidia = function.vendor.value().is_some_and(|id| id.0 == 0x10de);
    let by_number = function.device.value().filter(|_| is_nvidia).map(|id| id.0 >= VOLTA);
    let by_name = || chips.iter().any(|chip| name.contains(chip)).then_some(true);
    let by_link = || {
        let speed = function.max_speed.value().or(function.speed.value());
        speed.map_or(function.is(|class| class.0 == 0x0302), |speed| speed.generation() >= 4)
    };
    let is_modern = by_number.or_else(by_name).unwrap_or_else(by_link);
    match is_modern {
        // What shows a picture, too, is a workstation's.
        true if function.is(|class| class.0 == 0x0300) => "rtx-pro-6000",
        true => "h100-pcie",
        false => "k40c",
    }
}

fn gpu(
    (survey, likely): (&Survey, u32),
    library: &Library,
    device: &Plugged,
    name: &str,
) -> Result<PartText, Diagnostics> {
    let function = &survey.functions[&device.address];
    let known = with_id::<Gpu>(library, function, |gpu| gpu.controller.pci_id.value.clone())?;
    let is_own = known.is_some();
    let relative = known.unwrap_or_else(|| nearest_gpu(function).to_owned());
    let mut file = extended(library, name, &relative, function.name.get().map_or("a GPU", String::as_str));
    link::<Gpu>(survey, device, likely, &mut file);
    if let Some(line) = id_line(survey, function, &ids_of(function)) {
        let _ = file.add::<Gpu>(&[line]);
    }
    Ok(PartText { text: file.text, relative, is_own })
}

fn drive(
    (survey, likely): (&Survey, u32),
    library: &Library,
    device: &Plugged,
    name: &str,
) -> Result<PartText, Diagnostics> {
    let function = &survey.functions[&device.address];
    let known = with_id::<Drive>(library, function, |drive| drive.controller.pci_id.value.clone())?;
    let is_own = known.is_some();
    let is_optane = function.vendor.value().is_some_and(|id| id.0 == 0x8086);
    let speed = function.max_speed.value().or(function.speed.value());
    let flash = if speed.is_some_and(|speed| speed.generation() >= 5) { "pm1753" } else { "pm1725a" };
    let relative = known.unwrap_or_else(|| if is_optane { "optane-p4800x" } else { flash }.to_owned());
    let mut file =
        extended(library, name, &relative, function.name.get().map_or("an NVMe drive", String::as_str));
    link::<Drive>(survey, device, likely, &mut file);
    Ok(PartText { text: file.text, relative, is_own })
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
    let known = with_id::<PcieSwitch>(library, function, |switch| switch.pci_id.value.clone())?;
    // Each port of the model is as fast as the fastest one; a link is what both of its ends can.
    let children = survey.functions.keys().copied().filter(|other| survey.parent(*other) == Some(upstream));
    let below: Vec<PciAddress> = children
        .filter(|child| child.bdf.function() == 0 || survey.functions[child].is(PciClass::is_bridge))
        .collect();
    let all = || std::iter::once(&upstream).chain(&below).map(|address| &survey.functions[address]);
    let speed = all().filter_map(|of| of.max_speed.value().or(of.speed.value())).max();
    let width = all().filter_map(|of| of.max_width.value().or(of.width.value())).max();
    let is_late = speed.is_some_and(|speed| speed.generation() >= 4);
    let relative = known.unwrap_or_else(|| if is_late { "pex89104" } else { "pex8796" }.to_owned());
    let name = format!("switch-{}.toml", upstream.to_string().replace([':', '.'], "-"));
    let mut file = extended(library, &name, &relative, &format!("the switch {upstream}"));
    let read = |origin: Option<crate::fact::Origin>| {
        origin.map_or("assumed: as its devices".to_owned(), |origin| survey.figure_source(origin))
    };
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
