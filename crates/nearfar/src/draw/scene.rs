//! What a scenario's picture shows.

use std::collections::BTreeSet;

use machine::{
    BorrowSetup, ClusterEnd, ComputerSetup, DeviceSetup, HostSetup, LinkCapability, LinkSetup, Machine,
    PortSetup, SlotSetup,
};
use units::BitRate;
use wire::pcie::link::data_rate;
use wire::pcie::{Generation, Width};

use crate::experiment::Experiment;

/// A scenario's hosts, what is between them, and the cables.
#[derive(Default)]
pub(super) struct Scene {
    pub title: String,
    pub hosts: Vec<DrawnHost>,
    /// Switches and stations between or beside the hosts.
    pub outside: Vec<Thing>,
    pub cables: Vec<DrawnCable>,
}

pub(super) struct DrawnHost {
    pub title: String,
    pub sockets: Vec<DrawnSocket>,
    /// Bandwidth of the link between two sockets, and its description.
    pub interconnect: Option<(f64, String)>,
    /// Virtual machines, one line each.
    pub guests: Vec<String>,
}

pub(super) struct DrawnSocket {
    pub cores: String,
    /// The bandwidth of its memory (GB/s), and its description; `None` for a node without.
    pub memory: Option<(f64, String)>,
    pub slots: Vec<Thing>,
    /// Slots without a device.
    pub free: Vec<String>,
}

/// A device, a switch or a station.
pub(super) struct Thing {
    pub key: Anchor,
    pub look: Appearance,
    pub name: String,
    pub model: String,
    pub detail: Vec<String>,
    /// Bandwidth of the link that leads here (GB/s).
    pub carries: f64,
    /// What is below its ports.
    pub below: Vec<Thing>,
}

/// How a thing is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Appearance {
    Device,
    Switch,
    Ntb,
    Station,
    /// A further link of a device that is drawn elsewhere.
    Further,
}

/// Identifies what a cable leads to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Anchor {
    /// A device of a host, and which of its links.
    Device(usize, usize, usize),
    PcieSwitch(usize, usize),
    EthernetSwitch(usize),
    ClusterSwitch(usize),
    Source(usize),
    Sink(usize),
    Generator(usize),
}

pub(super) struct DrawnCable {
    pub kind: CableKind,
    pub ends: [Anchor; 2],
    /// Bandwidth (GB/s).
    pub carries: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CableKind {
    Ethernet,
    Ntb,
    /// Two links of one device.
    SameDevice,
}

/// The scene of a scenario.
pub(super) fn of(experiment: &Experiment) -> Scene {
    match experiment {
        Experiment::Computers(setup) => of_computers(setup),
        Experiment::Bench(setup) => {
            let port = &setup.machine.host.port[&setup.slot];
            let at = (setup.slot.as_str(), port.generation.value.get(), port.width.value.get());
            let (carries, detail) = link(at, &setup.card.link, setup.card.link.width.value.get());
            let card = Thing {
                key: Anchor::Device(0, 0, 0),
                look: Appearance::Device,
                name: setup.card.name.clone(),
                model: "card".to_owned(),
                detail: vec![detail],
                carries,
                below: Vec::new(),
            };
            let mut sockets = sockets(&setup.machine, &BTreeSet::from([setup.slot.as_str()]));
            sockets[port.socket.value as usize].slots.push(card);
            let host = DrawnHost {
                title: setup.machine.name.clone(),
                sockets,
                interconnect: interconnect(&setup.machine),
                guests: Vec::new(),
            };
            Scene {
                title: setup.scenario.name.clone(),
                hosts: vec![host],
                outside: Vec::new(),
                cables: Vec::new(),
            }
        }
    }
}

fn of_computers(setup: &ComputerSetup) -> Scene {
    let mut cables = cables(setup);
    cables.extend(further_links(setup));
    Scene {
        title: setup.name.clone(),
        hosts: (0..setup.hosts.len()).map(|number| host(setup, number)).collect(),
        outside: outside(setup),
        cables,
    }
}

fn host(setup: &ComputerSetup, number: usize) -> DrawnHost {
    let own = &setup.hosts[number];
    let placed = InSlots { setup, host: number };
    let mut sockets = sockets(&own.machine, &placed.taken());
    for (port, thing) in placed.below_roots() {
        sockets[own.machine.host.port[port].socket.value as usize].slots.push(thing);
    }
    let guest = |vm: &machine::VmSetup| {
        let devices = vm.devices.iter().map(|passed| name_of(own, passed.device));
        let devices: Vec<String> = devices.collect();
        let passed = if devices.is_empty() { String::new() } else { format!(", {}", devices.join(", ")) };
        let (cores, memory, node) = (vm.vcpus.len(), vm.memory, vm.node);
        format!("VM {}: {}, {memory} of node {node}{passed}", vm.name, several(cores, "vCPU"))
    };
    DrawnHost {
        title: format!("{}: {}, {}, IOMMU {}", own.name, own.machine.name, own.kernel.name, own.iommu),
        sockets,
        interconnect: interconnect(&own.machine),
        guests: own.vms.iter().map(guest).collect(),
    }
}

fn several(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The sockets of a machine without devices. `taken` has the names of slots in use.
fn sockets(machine: &Machine, taken: &BTreeSet<&str>) -> Vec<DrawnSocket> {
    let host = &machine.host;
    let dram = &host.dram;
    let channels = dram.channels.value.get();
    let bandwidth = f64::from(channels) * dram.channel_bandwidth.value.bytes_per_s() as f64 / 1e9;
    let with_memory = host.memory_nodes();
    let socket = |number: u32| DrawnSocket {
        cores: format!("{} cores, {}", host.core.count.value.get(), host.core.frequency.value),
        memory: (number < with_memory)
            .then(|| (bandwidth, format!("{} at {}", dram.size.value, gb_per_s(bandwidth)))),
        slots: Vec::new(),
        free: host
            .port
            .iter()
            .filter(|(_, port)| port.socket.value == number)
            .filter_map(|(name, port)| {
                let named = |number| if number == 0 { name.clone() } else { format!("{name}.{number}") };
                let free = (0..port.count()).map(named).filter(|name| !taken.contains(name.as_str()));
                let free: Vec<String> = free.collect();
                let names = match &free[..] {
                    [] => return None,
                    [first, .., last] => format!("{first} to {last}"),
                    [only] => only.clone(),
                };
                Some(format!("{names} ({} {})", port.generation.value, port.width.value))
            })
            .collect(),
    };
    (0..host.sockets.value.get()).map(socket).collect()
}

fn interconnect(machine: &Machine) -> Option<(f64, String)> {
    let between = machine.host.interconnect.as_ref().filter(|_| machine.host.sockets.value.get() > 1)?;
    let each = between.bandwidth.value.bytes_per_s() as f64 / 1e9;
    let text = match between.links.value.len() {
        1 => format!("interconnect: {} each way", gb_per_s(each)),
        links => format!("interconnect: {links} links of {} each way", gb_per_s(each)),
    };
    Some((each, text))
}

fn gb_per_s(rate: f64) -> String {
    format!("{rate:.1} GB/s")
}

/// What is in the slots of one host, also if it belongs to another.
struct InSlots<'a> {
    setup: &'a ComputerSetup,
    host: usize,
}

impl<'a> InSlots<'a> {
    /// Links of devices to slots of the host: host and number of the device, number of the link.
    fn links(&self) -> impl Iterator<Item = (Anchor, &'a DeviceSetup, &'a LinkSetup)> {
        let (at, all) = (self.host, &self.setup.hosts);
        all.iter().enumerate().flat_map(move |(owner, host)| {
            let devices = host.devices.iter().enumerate();
            devices.flat_map(move |(number, device)| {
                let links = device.links.iter().enumerate().filter(move |(_, link)| link.host == at);
                links.map(move |(link, setup)| (Anchor::Device(owner, number, link), device, setup))
            })
        })
    }

    /// The slots of root ports that are in use. Links that share a slot have numbers behind `#`.
    fn taken(&self) -> BTreeSet<&'a str> {
        let own = &self.setup.hosts[self.host];
        let switches = own.switches.iter().flat_map(|switch| switch.links.iter());
        let all = self.links().map(|(_, _, link)| link).chain(switches);
        let all = all.flat_map(|link| std::iter::once(link).chain(&link.others));
        let at_roots = all.filter(|link| matches!(link.slot, SlotSetup::Root(_)));
        at_roots.map(|link| link.name.split('#').next().unwrap_or(&link.name)).collect()
    }

    /// What is in the slots of root ports, with the port's name, in the order of slots.
    fn below_roots(&self) -> Vec<(&'a str, Thing)> {
        let own = &self.setup.hosts[self.host];
        let is_root = |link: &'a LinkSetup| match &link.slot {
            SlotSetup::Root(port) => Some((link.name.as_str(), port.as_str())),
            SlotSetup::Switch(..) => None,
        };
        let devices = self
            .links()
            .filter_map(|(key, device, link)| Some((is_root(link)?, self.device(key, device, link))));
        let switches = own.switches.iter().enumerate().filter_map(|(number, switch)| {
            let link = switch.links.first()?;
            Some((is_root(link)?, self.switch(number, link)))
        });
        let mut all: Vec<_> = devices.chain(switches).collect();
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|((_, port), thing)| (port, thing)).collect()
    }

    fn switch(&self, number: usize, link: &LinkSetup) -> Thing {
        let own = &self.setup.hosts[self.host];
        let switch = &own.switches[number];
        let (carries, detail) = self.link(link, &switch.file.link);
        let port_of = |link: &LinkSetup| match link.slot {
            SlotSetup::Switch(of, port) if of == number => Some(port),
            _ => None,
        };
        let devices = self
            .links()
            .filter_map(|(key, device, link)| Some((port_of(link)?, self.device(key, device, link))));
        let switches = own.switches.iter().enumerate().filter_map(|(below, switch)| {
            let link = switch.links.first()?;
            Some((port_of(link)?, self.switch(below, link)))
        });
        let mut below: Vec<_> = devices.chain(switches).collect();
        below.sort_by_key(|&(port, _)| port);
        Thing {
            key: Anchor::PcieSwitch(self.host, number),
            look: Appearance::Switch,
            name: switch.name.clone(),
            model: format!("{}, PCIe switch", switch.file.name),
            detail: vec![detail],
            carries,
            below: below.into_iter().map(|(_, thing)| thing).collect(),
        }
    }

    fn device(&self, key: Anchor, device: &DeviceSetup, at: &LinkSetup) -> Thing {
        let Anchor::Device(owner, number, which) = key else { unreachable!("a device's link") };
        let of = &self.setup.hosts[owner];
        let (carries, text) = self.link(at, device.kind.model().link());
        let mut detail = vec![text];
        let own_name = name_of(of, number);
        let name = if owner == self.host { own_name } else { format!("{}:{own_name}", of.name) };
        if which > 0 {
            let model = format!("link {} of {}", which + 1, device.links.len());
            return Thing { key, look: Appearance::Further, name, model, detail, carries, below: Vec::new() };
        }
        let of_ports = |cable: &&machine::CableSetup| {
            cable
                .ends
                .iter()
                .any(|end| matches!(end, PortSetup::Host(h, d, _) if (*h, *d) == (owner, number)))
        };
        let cables = self.setup.network.cables.iter().filter(of_ports);
        detail.extend(cables.map(|cable| format!("Ethernet, {}", gbit_per_s(cable.rate))));
        if device.vfs > 0 {
            detail.push(several(device.vfs.into(), "virtual function"));
        }
        if !device.is_plugged {
            detail.push("plugged in later".to_owned());
        }
        let lent = |borrow: &&BorrowSetup| (borrow.lender, borrow.function.device) == (owner, number);
        let borrows = self.setup.cluster.borrows.iter().filter(lent);
        let borrowers: BTreeSet<String> = borrows.map(|borrow| borrower(self.setup, borrow)).collect();
        if !borrowers.is_empty() {
            detail.push(format!("lent to {}", Vec::from_iter(borrowers).join(", ")));
        }
        let kind = device.kind.model().what();
        let look = if device.kind.ntb().is_some() { Appearance::Ntb } else { Appearance::Device };
        let model = match device.name {
            Some(_) => format!("{}, {kind}", device.kind.model().name()),
            None => kind.to_owned(),
        };
        Thing { key, look, name, model, detail, carries, below: Vec::new() }
    }

    /// Bandwidth and description of a link to a slot of the host.
    fn link(&self, at: &LinkSetup, device: &LinkCapability) -> (f64, String) {
        let own = &self.setup.hosts[self.host];
        let (generation, width) = match &at.slot {
            SlotSetup::Root(port) => {
                let port = &own.machine.host.port[port];
                (port.generation.value.get(), port.width.value.get())
            }
            SlotSetup::Switch(switch, _) => {
                let link = &own.switches[*switch].file.link;
                (link.generation.value.get(), link.width.value.get())
            }
        };
        link((&at.name, generation, width.min(at.lanes)), device, at.lanes)
    }
}

/// A device's name on its host, or its model's.
fn name_of(host: &HostSetup, device: usize) -> String {
    let device = &host.devices[device];
    device.name.clone().unwrap_or_else(|| device.kind.model().name().to_owned())
}

fn borrower(setup: &ComputerSetup, borrow: &BorrowSetup) -> String {
    let host = &setup.hosts[borrow.by];
    match borrow.vm {
        Some(vm) => format!("{}/{}", host.name, host.vms[vm].name),
        None => host.name.clone(),
    }
}

/// Bandwidth and description of a link between a slot, with its generation and width, and a device.
fn link((slot, generation, width): (&str, u32, u32), device: &LinkCapability, lanes: u32) -> (f64, String) {
    let generation = generation.min(device.generation.value.get());
    let lanes = width.min(lanes).min(device.width.value.get());
    let carries = Generation::from_number(generation as u8)
        .zip(Width::from_lanes(lanes as u8))
        .map_or(0.0, |(generation, width)| data_rate(generation, width).as_gbit_per_s_f64() / 8.0);
    (carries, format!("{slot}: Gen{generation} x{lanes}, {}", gb_per_s(carries)))
}

fn gbit_per_s(rate: BitRate) -> String {
    format!("{} Gbit/s", rate.as_gbit_per_s_f64())
}

fn cables(setup: &ComputerSetup) -> Vec<DrawnCable> {
    let port = |end: PortSetup| match end {
        PortSetup::Host(host, device, port) => {
            // The ports of a device's first link come first.
            let links = setup.hosts[host].devices[device].links.len().max(1);
            let ports = setup.hosts[host].devices[device].ports.len().max(1).div_ceil(links);
            Anchor::Device(host, device, usize::from(port) / ports.max(1) % links)
        }
        PortSetup::Switch(number, _) => Anchor::EthernetSwitch(number),
        PortSetup::Source(number) => Anchor::Source(number),
        PortSetup::Sink(number) => Anchor::Sink(number),
        PortSetup::Generator(number) => Anchor::Generator(number),
    };
    let ethernet = setup.network.cables.iter().map(|cable| DrawnCable {
        kind: CableKind::Ethernet,
        ends: cable.ends.map(port),
        carries: cable.rate.as_gbit_per_s_f64() / 8.0,
    });
    let ntb = setup.cluster.cables.iter().map(|cable| {
        let generation = cable.ends.iter().find_map(|end| match end {
            ClusterEnd::Adapter(host, device) => {
                Some(setup.hosts[*host].devices[*device].kind.model().link().generation.value.get())
            }
            ClusterEnd::Switch(_) => None,
        });
        let rate = Generation::from_number(generation.unwrap_or(3) as u8)
            .zip(Width::from_lanes(cable.lanes as u8))
            .map_or(0.0, |(generation, width)| data_rate(generation, width).as_gbit_per_s_f64() / 8.0);
        let end = |end: ClusterEnd| match end {
            ClusterEnd::Adapter(host, device) => Anchor::Device(host, device, 0),
            ClusterEnd::Switch(number) => Anchor::ClusterSwitch(number),
        };
        DrawnCable { kind: CableKind::Ntb, ends: cable.ends.map(end), carries: rate }
    });
    ethernet.chain(ntb).collect()
}

/// What joins the links of one device.
fn further_links(setup: &ComputerSetup) -> impl Iterator<Item = DrawnCable> {
    setup.hosts.iter().enumerate().flat_map(|(host, own)| {
        own.devices.iter().enumerate().flat_map(move |(device, own)| {
            (1..own.links.len()).map(move |link| DrawnCable {
                kind: CableKind::SameDevice,
                ends: [Anchor::Device(host, device, 0), Anchor::Device(host, device, link)],
                carries: 0.0,
            })
        })
    })
}

fn outside(setup: &ComputerSetup) -> Vec<Thing> {
    let thing = |key, look, name: &str, model: &str, detail: String| Thing {
        key,
        look,
        name: name.to_owned(),
        model: model.to_owned(),
        detail: if detail.is_empty() { Vec::new() } else { vec![detail] },
        carries: 0.0,
        below: Vec::new(),
    };
    let mut all = Vec::new();
    for (number, (switch, ports)) in setup.network.switches.iter().enumerate() {
        let ports = several((*ports).into(), "port");
        let rate = switch.rate.map_or_else(String::new, |rate| format!(" of {}", gbit_per_s(rate)));
        let key = Anchor::EthernetSwitch(number);
        all.push(thing(key, Appearance::Switch, &switch.name.value, "Ethernet switch", ports + &rate));
    }
    for (number, (name, file)) in setup.cluster.switches.iter().enumerate() {
        let model = format!("{}, cluster switch", file.name);
        all.push(thing(Anchor::ClusterSwitch(number), Appearance::Switch, name, &model, String::new()));
    }
    for (number, source) in setup.sources.iter().enumerate() {
        let rate = gbit_per_s(source.rate);
        all.push(thing(Anchor::Source(number), Appearance::Station, &source.name, "traffic source", rate));
    }
    for (number, sink) in setup.sinks.iter().enumerate() {
        let rate = gbit_per_s(sink.rate);
        all.push(thing(Anchor::Sink(number), Appearance::Station, &sink.name, "sink", rate));
    }
    for (number, generator) in setup.generators.iter().enumerate() {
        let rate = gbit_per_s(generator.rate);
        all.push(thing(Anchor::Generator(number), Appearance::Station, &generator.name, "generator", rate));
    }
    all
}
