//! Slots: which device is in which slot, and the order in which a kernel finds them.
//!
//! A slot is one link of a root port of a socket or of a downstream port of a switch. Devices that specify their
//! number of lanes can share the slot of a root port, as with bifurcation by a riser; each then has its own link.

use std::collections::BTreeMap;

use super::device::{DeviceEntry, DeviceFile, file};
use super::entry::HostEntry;
use super::place::{FoundLink, LinkSetup, PcieSwitchEntry, SlotSetup};
use super::setup::{HostSetup, PcieSwitchSetup};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::host::RootPort;
use crate::library::Library;
use crate::link::LinkWidth;
use crate::names;
use crate::placed::Placed;
use crate::source::Place;

/// Loads the file of a switch, which has no place yet.
pub(super) fn load_switch(
    library: &Library,
    entry: &PcieSwitchEntry,
) -> Result<PcieSwitchSetup, Diagnostics> {
    let file = file(library, &entry.part, entry.change.as_ref())?;
    Ok(PcieSwitchSetup { name: entry.name.value.clone(), file, links: Vec::new() })
}

/// Identifies a slot, to detect conflicts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Which {
    host: usize,
    slot: Slot,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    /// One of the machine's slots that its file describes together, and its number.
    Root(String, u32),
    Switch(usize, u8),
}

impl Which {
    fn name(&self, hosts: &[HostSetup]) -> String {
        match &self.slot {
            Slot::Root(port, 0) => port.clone(),
            Slot::Root(port, number) => format!("{port}.{number}"),
            Slot::Switch(switch, port) => format!("{}:{port}", hosts[self.host].switches[*switch].name),
        }
    }

    fn lanes(&self, hosts: &[HostSetup]) -> u32 {
        match &self.slot {
            Slot::Root(port, _) => hosts[self.host].machine.host.port[port].width.value.get(),
            Slot::Switch(switch, _) => hosts[self.host].switches[*switch].file.link.width.value.get(),
        }
    }
}

/// The owner of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Switch(usize),
    Device(usize),
}

/// A link that needs a slot.
struct LinkRequest<'a> {
    host: usize,
    who: Who,
    slot: Option<&'a Placed<String>>,
    of: Option<&'a Placed<String>>,
    lanes: Option<&'a Placed<LinkWidth>>,
    /// Where to report errors, if nothing else is named.
    place: &'a Place,
    /// Maximum generation and lanes, limited by its owner.
    generation: u32,
    most: u32,
    /// Whether it is another slot of the preceding request's link.
    is_other: bool,
}

/// The user of a slot.
struct Taken {
    lanes: u32,
    shares: bool,
    /// Whether it is only a slot to which a link can be moved.
    is_other: bool,
    place: Place,
}

/// Assigns a slot to each link of each switch and device; links with an explicit slot come first. A link without one
/// that finds no slot of its generation and width is a doubt.
pub(super) fn place(
    entries: &[HostEntry],
    hosts: &mut [HostSetup],
    wrong: &mut Vec<Diagnostic>,
    doubts: &mut Vec<Diagnostic>,
) {
    let mut wanted = Vec::new();
    for (host, entry) in entries.iter().enumerate() {
        for (number, switch) in entry.switch.iter().enumerate() {
            let link = &hosts[host].switches[number].file.link;
            let (generation, most) = (link.generation.value.get(), link.width.value.get());
            let (slot, lanes, place) = (switch.slot.as_ref(), switch.lanes.as_ref(), &switch.part.place);
            wanted.push(LinkRequest {
                host,
                who: Who::Switch(number),
                slot,
                of: None,
                lanes,
                place,
                generation,
                most,
                is_other: false,
            });
        }
        for (number, device) in entry.device.iter().enumerate() {
            wanted.extend(links_of(host, number, device, &hosts[host].devices[number].kind, wrong));
        }
    }
    let mut taken: BTreeMap<Which, Vec<Taken>> = BTreeMap::new();
    let mut found: Vec<Option<(Which, u32)>> = wanted.iter().map(|_| None).collect();
    for named in [true, false] {
        for (want, found) in wanted.iter().zip(&mut found).filter(|(want, _)| want.slot.is_some() == named) {
            match find(want, hosts, &mut taken, doubts) {
                Ok(place) => *found = Some(place),
                Err(diagnostic) => wrong.push(*diagnostic),
            }
        }
    }
    let mut seen: BTreeMap<Which, u32> = BTreeMap::new();
    for (want, found) in wanted.iter().zip(found) {
        let Some((which, lanes)) = found else { continue };
        let mut name = which.name(hosts);
        if taken[&which].len() > 1 {
            let part = seen.entry(which.clone()).or_default();
            name = format!("{name}#{part}");
            *part += 1;
        }
        let slot = match which.slot {
            Slot::Root(port, _) => SlotSetup::Root(port),
            Slot::Switch(switch, port) => SlotSetup::Switch(switch, port),
        };
        let link = LinkSetup { host: which.host, slot, lanes, name, others: Vec::new() };
        let of = &mut hosts[want.host];
        let links = match want.who {
            Who::Switch(switch) => &mut of.switches[switch].links,
            Who::Device(device) => &mut of.devices[device].links,
        };
        match links.last_mut().filter(|_| want.is_other) {
            Some(usual) => usual.others.push(link),
            None => links.push(link),
        }
    }
    if wrong.is_empty() {
        check_switches(entries, hosts, wrong);
    }
}

/// Link requests of a device.
fn links_of<'a>(
    host: usize,
    number: usize,
    device: &'a DeviceEntry,
    kind: &DeviceFile,
    wrong: &mut Vec<Diagnostic>,
) -> impl Iterator<Item = LinkRequest<'a>> + use<'a> {
    let (each, all) = kind.model().lanes();
    let given: Vec<_> = match &device.links {
        Some(links) => links
            .value
            .iter()
            .map(|link| {
                (link.slot.as_ref(), link.host.as_ref(), link.lanes.as_ref(), link.other_slots.as_deref())
            })
            .collect(),
        None => vec![(device.slot.as_ref(), None, None, None)],
    };
    let most = LinkWidth::at_most(each.min(all / given.len().max(1) as u32));
    let generation = kind.model().link().generation.value.get();
    let asked: u32 = given.iter().map(|(_, _, lanes, _)| lanes.map_or(most, |lanes| lanes.value.get())).sum();
    if let Some(links) = device.links.as_ref().filter(|_| asked > all) {
        let message = format!("{asked} lanes are more than {} has", kind.model().name());
        wrong.push(Diagnostic::new(&links.place, message).help(format!("{all} for all links together")));
    }
    given.into_iter().flat_map(move |(slot, of, lanes, others)| {
        let slots = std::iter::once(slot).chain(others.unwrap_or_default().iter().map(Some));
        let who = Who::Device(number);
        let wanted = move |(n, slot)| LinkRequest {
            host,
            who,
            slot,
            of,
            lanes,
            place: device.place(),
            generation,
            most,
            is_other: n > 0,
        };
        slots.enumerate().map(wanted)
    })
}

/// Resolves a link's slot and its number of lanes.
fn find(
    want: &LinkRequest<'_>,
    hosts: &[HostSetup],
    taken: &mut BTreeMap<Which, Vec<Taken>>,
    doubts: &mut Vec<Diagnostic>,
) -> Result<(Which, u32), Box<Diagnostic>> {
    let host = match want.of {
        None => want.host,
        Some(name) => names::host(hosts, &name.value)
            .map_err(|(message, help)| Diagnostic::new(&name.place, message).help(help))?,
    };
    let machine = &hosts[host].machine;
    let place = want.slot.map_or(want.place, |slot| &slot.place);
    let which = match want.slot {
        Some(slot) => match slot.value.split_once(':') {
            Some((name, port)) => port_of_switch(hosts, host, slot, name, port)?,
            None => roots(host, &machine.host.port).find(|which| which.name(hosts) == slot.value).ok_or_else(|| {
                let message = format!("{} has no slot `{}`", machine.name, slot.value);
                let names: Vec<_> = roots(host, &machine.host.port).map(|which| which.name(hosts)).collect();
                let known = crate::suggest::among(&slot.value, names.iter().map(String::as_str), "its slots are");
                let switch = hosts[host].switches.first().map(|switch| format!("; a switch's are `{}:1` and so on", switch.name));
                Diagnostic::new(place, message).help(known + &switch.unwrap_or_default())
            })?,
        },
        None => free(want, hosts, host, taken, doubts).ok_or_else(|| {
            let message = format!("{} has no free slot left", machine.name);
            Diagnostic::new(place, message).help(
                "a `[[host.switch]]`, `links` with `lanes`, which share a slot, or another `slots` of the machine's `host.port`",
            )
        })?,
    };
    let has = which.lanes(hosts);
    let lanes = want.lanes.map_or(has, |lanes| lanes.value.get());
    let others = taken.entry(which.clone()).or_default();
    if let Some(other) = others.iter().find(|other| !other.shares || want.lanes.is_none()) {
        let message = format!("slot `{}` is taken", which.name(hosts));
        let (line, _) = other.place.line_and_column();
        let help = format!("by what is in line {line}; another slot, or `links` with `lanes` for both");
        return Err(Diagnostic::new(place, message).help(help).into());
    }
    if let Some(other) = others.iter().find(|other| want.is_other || other.is_other) {
        let message = format!("slot `{}` is taken", which.name(hosts));
        let (line, _) = other.place.line_and_column();
        let help = format!("by what is in line {line}; `other_slots` are empty ones, each of one link");
        return Err(Diagnostic::new(place, message).help(help).into());
    }
    if let (Slot::Switch(..), Some(other)) = (&which.slot, others.first()) {
        let message = format!("port `{}` is taken", which.name(hosts));
        let (line, _) = other.place.line_and_column();
        return Err(Diagnostic::new(place, message)
            .help(format!("by what is in line {line}; another port"))
            .into());
    }
    let used: u32 = others.iter().map(|other| other.lanes).sum();
    if used + lanes > has {
        let place = want.lanes.map_or(place, |lanes| &lanes.place);
        let message = format!("slot `{}` has no {lanes} lanes left", which.name(hosts));
        let help = format!("it has {has}, of which {used} are taken");
        return Err(Diagnostic::new(place, message).help(help).into());
    }
    let (shares, is_other) = (want.lanes.is_some(), want.is_other);
    others.push(Taken { lanes, shares, is_other, place: place.clone() });
    Ok((which, want.lanes.map_or(want.most, |lanes| lanes.value.get()).min(has)))
}

/// The first free slot of a host that has all that the link can use. If there is none, the first of those that carry
/// most, which is a doubt: nobody may have meant it.
fn free(
    want: &LinkRequest<'_>,
    hosts: &[HostSetup],
    host: usize,
    taken: &BTreeMap<Which, Vec<Taken>>,
    doubts: &mut Vec<Diagnostic>,
) -> Option<Which> {
    let machine = &hosts[host].machine;
    let lanes = want.lanes.map_or(want.most, |lanes| lanes.value.get());
    let port = |which: &Which| match &which.slot {
        Slot::Root(name, _) => machine.host.port.get(name),
        Slot::Switch(..) => None,
    };
    // Each generation has twice the rate of the one before, so the shift compares rates.
    let carries = |which: &Which| {
        let (generation, width) =
            port(which).map_or((0, 0), |port| (port.generation.value.get(), port.width.value.get()));
        width.min(lanes) << generation.min(want.generation)
    };
    // The last of several largest would be the maximum: reversed, it is the first.
    let mut all: Vec<Which> =
        roots(host, &machine.host.port).filter(|which| !taken.contains_key(which)).collect();
    all.reverse();
    let first = all.last().cloned()?;
    let chosen = all.into_iter().max_by_key(carries)?;
    let shape = |port: &RootPort| format!("{} {}", port.generation.value, port.width.value);
    if let (Some(nearer), Some(port)) = (port(&first), port(&chosen))
        && nearer.socket.value != port.socket.value
    {
        let message = format!(
            "this is in `{}`, at another socket than `{}`, which is free but has {}",
            chosen.name(hosts),
            first.name(hosts),
            shape(nearer)
        );
        doubts
            .push(Diagnostic::new(want.place, message).help("name its `slot` to say which is meant").doubt());
    }
    if carries(&chosen) < lanes << want.generation
        && let Some(port) = port(&chosen)
    {
        let slot = shape(port);
        let message = format!(
            "no free slot of {} has Gen{} x{lanes}: this is in `{}`, which has {slot}",
            machine.name,
            want.generation,
            chosen.name(hosts)
        );
        let help = "name its `slot` to say that it is meant, or change the machine's `host.port`";
        doubts.push(Diagnostic::new(want.place, message).help(help).doubt());
    }
    Some(chosen)
}

/// A downstream port of a host's switch.
fn port_of_switch(
    hosts: &[HostSetup],
    host: usize,
    slot: &Placed<String>,
    name: &str,
    port: &str,
) -> Result<Which, Box<Diagnostic>> {
    let switches = &hosts[host].switches;
    let Some(switch) = switches.iter().position(|switch| switch.name == name) else {
        let message = format!("host `{}` has no switch `{name}`", hosts[host].name);
        let help = match crate::suggest::list(switches.iter().map(|switch| switch.name.as_str())) {
            names if names.is_empty() => "add a `[[host.switch]]`".to_owned(),
            names => format!("it has {names}"),
        };
        return Err(Diagnostic::new(&slot.place, message).help(help).into());
    };
    let most = switches[switch].file.ports.value.get() - 1;
    match port.parse::<u8>() {
        Ok(port) if (1..=most).contains(&port.into()) => Ok(Which { host, slot: Slot::Switch(switch, port) }),
        _ => {
            let message = format!("{} has no downstream port `{port}`", switches[switch].file.name);
            let help = format!("`{name}:1` to `{name}:{most}`");
            Err(Diagnostic::new(&slot.place, message).help(help).into())
        }
    }
}

/// Reports switches that have too few lanes or that are not connected to a root port.
fn check_switches(entries: &[HostEntry], hosts: &[HostSetup], wrong: &mut Vec<Diagnostic>) {
    for (host, entry) in entries.iter().enumerate() {
        for (number, said) in entry.switch.iter().enumerate() {
            let switch = &hosts[host].switches[number];
            let is_below = |link: &&LinkSetup| {
                link.host == host && matches!(link.slot, SlotSetup::Switch(n, _) if n == number)
            };
            let below = hosts.iter().flat_map(|host| {
                let devices = host.devices.iter().flat_map(|device| &device.links);
                devices.chain(host.switches.iter().flat_map(|switch| &switch.links))
            });
            let below = below.flat_map(|link| std::iter::once(link).chain(&link.others));
            let used: u32 = below.filter(is_below).chain(&switch.links).map(|link| link.lanes).sum();
            let has = switch.file.lanes.value.get();
            if used > has {
                let message = format!("the links of `{}` take {used} lanes", switch.name);
                let help = format!("{} has {has}; `lanes` lets a link have fewer", switch.file.name);
                wrong.push(Diagnostic::new(&said.name.place, message).help(help));
            }
            let mut at = number;
            for _ in 0..=entry.switch.len() {
                match hosts[host].switches[at].links.first().map(|link| &link.slot) {
                    Some(&SlotSetup::Switch(above, _)) => at = above,
                    _ => break,
                }
                if at == number {
                    let message = format!("switch `{}` is below itself", switch.name);
                    let place = said.slot.as_ref().map_or(&said.name.place, |slot| &slot.place);
                    wrong.push(Diagnostic::new(place, message).help("one of them in a slot of the machine"));
                    break;
                }
            }
        }
    }
}

fn roots(host: usize, ports: &BTreeMap<String, RootPort>) -> impl Iterator<Item = Which> + '_ {
    ports.iter().flat_map(move |(name, port)| {
        (0..port.count()).map(move |number| Which { host, slot: Slot::Root(name.clone(), number) })
    })
}

/// The links of devices in the order in which a host's kernel finds them: below its switches, then in its other
/// slots.
pub fn links_found(hosts: &[HostSetup], host: usize) -> Vec<FoundLink> {
    let mut found = Vec::new();
    for (number, switch) in hosts[host].switches.iter().enumerate() {
        if matches!(switch.links[..], [LinkSetup { slot: SlotSetup::Root(_), .. }]) {
            below_switch(hosts, host, number, &mut found);
        }
    }
    let is_root = |slot: &SlotSetup| matches!(slot, SlotSetup::Root(_));
    found.extend(device_links(hosts, host).filter(|(_, slot)| is_root(slot)).map(|(link, _)| link));
    found
}

/// The links below a switch, in order of its ports.
fn below_switch(hosts: &[HostSetup], host: usize, switch: usize, found: &mut Vec<FoundLink>) {
    let port_of = |slot: &SlotSetup| match *slot {
        SlotSetup::Switch(of, port) if of == switch => Some(port),
        _ => None,
    };
    let devices = device_links(hosts, host).filter_map(|(link, slot)| Some((port_of(slot)?, Ok(link))));
    let switches = hosts[host].switches.iter().enumerate();
    let switches = switches.filter_map(|(n, at)| Some((port_of(&at.links.first()?.slot)?, Err(n))));
    let mut ports: Vec<(u8, Result<FoundLink, usize>)> = devices.chain(switches).collect();
    ports.sort_by_key(|&(port, _)| port);
    for (_, below) in ports {
        match below {
            Ok(link) => found.push(link),
            Err(switch) => below_switch(hosts, host, switch, found),
        }
    }
}

/// All links of devices to slots of a host, and these slots.
fn device_links(hosts: &[HostSetup], host: usize) -> impl Iterator<Item = (FoundLink, &SlotSetup)> {
    let devices = hosts.iter().enumerate().flat_map(|(owner, setup)| {
        setup.devices.iter().enumerate().map(move |(number, device)| (owner, number, device))
    });
    devices.flat_map(move |(owner, device, setup)| {
        let links = setup.links.iter().enumerate().filter(move |(_, link)| link.host == host);
        links.map(move |(link, at)| (FoundLink { host: owner, device, link }, &at.slot))
    })
}
