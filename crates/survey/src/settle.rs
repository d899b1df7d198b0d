//! What follows from all sources together, and what cannot be so.

use std::collections::{BTreeMap, BTreeSet};

use wire::pcie::Bdf;

use crate::fact::Origin;
use crate::model::{MOST_FUNCTIONS, Survey};
use crate::numbers::NumberSet;
use crate::pci::{LaneSpeed, PciAddress, PciClass, PciFunction, PortKind};

/// A link: what it is now, and what each of its ends can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkEnds {
    /// The bridge at its upper end.
    pub above: PciAddress,
    /// Rate and width as negotiated.
    pub now: (LaneSpeed, u32),
    /// What the lower end can.
    pub device: (LaneSpeed, u32),
    /// What the upper end can; as the lower one, if it does not say.
    pub port: (LaneSpeed, u32),
}

/// What a link of a rate and width carries, GB/s.
pub(crate) fn link_rate((speed, width): (LaneSpeed, u32)) -> f64 {
    speed.lane_gb_per_s() * f64::from(width)
}

impl LinkEnds {
    /// What both of its ends can.
    pub fn both(&self) -> (LaneSpeed, u32) {
        (self.device.0.min(self.port.0), self.device.1.min(self.port.1))
    }

    /// Whether it carries less than both of its ends can.
    pub fn is_lowered(&self) -> bool {
        link_rate(self.now) < link_rate(self.both()) * 0.999
    }
}

impl Survey {
    /// Names what cannot be so, once all sources are read.
    pub(crate) fn settle(&mut self) {
        if let Some((&first_left, _)) = self.functions.iter().nth(MOST_FUNCTIONS) {
            let all = self.functions.len();
            self.functions.split_off(&first_left);
            self.doubt(
                "the machine",
                format!("it has {all} functions; the first {MOST_FUNCTIONS} are looked at"),
            );
        }
        self.add_named_devices();
        self.find_virtual_functions();
        self.place_by_numbers();
        let mut doubts = Vec::new();
        let known: BTreeSet<u32> = self.nodes.keys().copied().collect();
        for (address, function) in &self.functions {
            match function.node.value() {
                Some(node) if node >= 0 && !known.is_empty() && !known.contains(&(node as u32)) => {
                    doubts.push((
                        address.to_string(),
                        format!("it is said to be at node {node}, which does not exist"),
                    ));
                }
                _ => {}
            }
            if self.is_in_circle(*address) {
                doubts.push((
                    address.to_string(),
                    "the bridges above it lead in a circle; it is shown at a root".into(),
                ));
            }
            let beyond =
                function.width.value().zip(function.max_width.value()).is_some_and(|(now, most)| now > most);
            if beyond {
                doubts
                    .push((address.to_string(), "its link is wider than it can be, as registers say".into()));
            }
        }
        for (number, node) in &self.nodes {
            let gone =
                node.cpus.get().map(|cpus| cpus.iter().filter(|cpu| !self.cpus.contains_key(cpu)).count());
            if let Some(gone @ 1..) = gone.filter(|_| !self.cpus.is_empty()) {
                doubts.push((format!("node {number}"), format!("{gone} of its CPUs do not exist")));
            }
        }
        doubts.into_iter().for_each(|(about, message)| self.doubt(about, message));
    }

    /// Says at which node devices are that a source places by their numbers, where all of these numbers are at one node.
    fn place_by_numbers(&mut self) {
        let placed = std::mem::take(&mut self.placed);
        for function in self.functions.values_mut().filter(|function| function.node.get().is_none()) {
            let Some(ids) = function.vendor.value().zip(function.device.value()) else { continue };
            let mut own = placed.iter().filter(|(other, ..)| *other == ids);
            if let Some((_, node, from)) = own.next()
                && own.all(|(_, other, _)| other == node)
            {
                function.node.set(*node as i32, *from);
            }
        }
        self.placed = placed;
    }

    /// Says which functions are virtual, where sources do not: by the numbers that SR-IOV gives them, or by their place on the bus.
    fn find_virtual_functions(&mut self) {
        let mut found: Vec<(PciAddress, PciAddress, Origin)> = Vec::new();
        for (address, function) in &self.functions {
            let numbers = function.vf_offset.value().zip(function.vf_stride.value());
            if let (Some((offset, stride)), Some(origin)) = (numbers, function.vf_offset.origin()) {
                for number in 0..function.vfs.value().unwrap_or(0).min(1 << 16) {
                    let routing = u32::from(address.bdf.bits()) + offset + number.saturating_mul(stride);
                    let Ok(routing) = u16::try_from(routing) else { break };
                    let own = PciAddress { bdf: Bdf::from_bits(routing), ..*address };
                    found.push((own, *address, origin));
                }
            }
            found.extend(self.physical_by_place(*address));
        }
        for (address, physical, origin) in found {
            if let Some(function) = self.functions.get_mut(&address).filter(|_| address != physical) {
                function.physical.set(physical, origin);
            }
        }
    }

    /// A link has one device, whose number is 0. Another number of the same vendor and class is of its virtual functions, and so is a
    /// bus behind the link's own.
    fn physical_by_place(&self, address: PciAddress) -> Option<(PciAddress, PciAddress, Origin)> {
        let own = &self.functions[&address];
        if own.physical.get().is_some() || own.is(PciClass::is_bridge) {
            return None;
        }
        let (above, class) = (self.parent(address)?, own.class.get()?);
        let port = &self.functions[&above];
        let has_link = match port.kind.value() {
            Some(kind) => matches!(kind, PortKind::RootPort | PortKind::Downstream),
            None => port.gb_per_s().is_some(),
        };
        let bus = port.buses.value().map_or(address.bdf.bus(), |buses| buses.secondary);
        if !has_link || bus == address.bdf.bus() && address.bdf.device() == 0 {
            return None;
        }
        let physical = PciAddress { bdf: Bdf::new(bus, 0, 0), ..address };
        let of = self.functions.get(&physical)?;
        let is_same = of.vendor.get() == own.vendor.get() && of.class.get() == Some(class);
        is_same.then_some((
            address,
            physical,
            Origin { source: own.class.origin()?.source, what: "place on the bus" },
        ))
    }

    /// The bridge above a function, as a source says it, or as the numbers of its buses do.
    pub fn parent(&self, address: PciAddress) -> Option<PciAddress> {
        let own = self.functions.get(&address)?;
        if let Some(parent) = own.parent.value() {
            return Some(parent).filter(|parent| self.functions.contains_key(parent));
        }
        let bus = address.bdf.bus();
        let ranges = self.functions.iter().filter(|(other, _)| other.segment == address.segment);
        let above = ranges.filter_map(|(other, function)| {
            let buses = function
                .buses
                .value()
                .filter(|buses| (buses.secondary..=buses.subordinate).contains(&bus))?;
            // A bridge is above its buses; one that says otherwise leads in a circle.
            (other.bdf.bus() < buses.secondary && *other != address).then_some((buses.secondary, *other))
        });
        above.max().map(|(_, bridge)| bridge)
    }

    /// The link above a function, if its ends say what it is and could be.
    pub(crate) fn link_above(&self, address: PciAddress) -> Option<LinkEnds> {
        let own = self.functions.get(&address)?;
        let above = self.parent(address)?;
        let upper = self.functions.get(&above)?;
        let now = own.speed.value().or(upper.speed.value()).zip(own.width.value().or(upper.width.value()))?;
        let can = |of: &PciFunction| of.max_speed.value().zip(of.max_width.value());
        let device = can(own)?;
        Some(LinkEnds { above, now, device, port: can(upper).unwrap_or(device) })
    }

    /// Whether a link's rate alone is lowered, as that of a GPU which has nothing to do.
    pub(crate) fn idles(&self, address: PciAddress, link: &LinkEnds) -> bool {
        let both = link.both();
        self.is_accelerator(address) && link.now.0 < both.0 && link.now.1 == both.1
    }

    fn is_in_circle(&self, address: PciAddress) -> bool {
        let mut seen = BTreeSet::from([address]);
        let mut at = address;
        while let Some(next) = self.functions.get(&at).and_then(|function| function.parent.value()) {
            if !seen.insert(next) {
                return true;
            }
            at = next;
        }
        false
    }

    /// The bridges above a function, the nearest first.
    pub fn above(&self, address: PciAddress) -> Vec<PciAddress> {
        let (mut all, mut at) = (Vec::new(), address);
        while let Some(next) = self.parent(at).filter(|next| !all.contains(next) && *next != address) {
            all.push(next);
            at = next;
        }
        all
    }

    /// Functions by the bridge above; `None` has those at roots.
    pub fn tree(&self) -> BTreeMap<Option<PciAddress>, Vec<PciAddress>> {
        let mut tree: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for address in self.functions.keys() {
            let parent = if self.is_in_circle(*address) { None } else { self.parent(*address) };
            tree.entry(parent).or_default().push(*address);
        }
        tree
    }

    /// The node of a function: as it says, or as the bridges above it do, or where the CPUs near it are.
    pub fn node_of(&self, address: PciAddress) -> Option<u32> {
        let mut chain = vec![address];
        chain.extend(self.above(address));
        let of = |address: &PciAddress| {
            let node = self.functions.get(address)?.node.value()?;
            u32::try_from(node).ok().filter(|node| self.nodes.is_empty() || self.nodes.contains_key(node))
        };
        chain
            .iter()
            .find_map(of)
            .or_else(|| self.node_of_cpus(self.functions.get(&address)?.local_cpus.get()?))
    }

    /// The only node that has any of these CPUs.
    pub fn node_of_cpus(&self, cpus: &NumberSet) -> Option<u32> {
        let mut nodes =
            self.nodes.iter().filter(|(_, node)| node.cpus.get().is_some_and(|own| own.meets(cpus)));
        let (number, _) = nodes.next()?;
        nodes.next().is_none().then_some(*number)
    }

    /// The CPUs near a function, if these are not all.
    pub(crate) fn near_cpus(&self, address: PciAddress) -> Option<&NumberSet> {
        let chain = std::iter::once(address).chain(self.above(address));
        let near = chain.filter_map(|address| self.functions.get(&address)?.local_cpus.get()).next()?;
        Some(near).filter(|near| !near.is_empty() && self.cpus.keys().any(|cpu| !near.contains(*cpu)))
    }

    /// The names that the operating system has for a function.
    pub fn names_of(&self, address: PciAddress) -> Vec<&str> {
        let interfaces =
            self.interfaces.iter().filter(|(_, interface)| interface.function.value() == Some(address));
        let devices = self.devices.iter().filter(|(_, device)| device.function.value() == Some(address));
        interfaces.map(|(name, _)| name.as_str()).chain(devices.map(|(name, _)| name.as_str())).collect()
    }

    /// Number of cores: pairs of package and core, or of CPUs if cores are not told.
    pub fn cores(&self) -> usize {
        let pairs: BTreeSet<_> = self
            .cpus
            .iter()
            .map(|(number, cpu)| match cpu.core.value() {
                Some(core) => {
                    (cpu.package.value(), cpu.node.value().filter(|_| cpu.package.value().is_none()), core)
                }
                None => (None, None, *number),
            })
            .collect();
        pairs.len()
    }

    /// Whether a function is one that people buy: no bridge and no part of the chipset.
    pub fn is_device(&self, address: PciAddress) -> bool {
        let Some(function) = self.functions.get(&address) else { return false };
        function.is(PciClass::is_network) || function.is(PciClass::is_storage) || self.is_accelerator(address)
    }

    /// Whether a function is a GPU or another accelerator, rather than what shows a server's console.
    pub fn is_accelerator(&self, address: PciAddress) -> bool {
        let Some(function) = self.functions.get(&address) else { return false };
        match function.class.value() {
            // Consoles' controllers have a lane at most.
            Some(PciClass(0x0300)) => {
                let vendor = function.vendor.value().map(|id| [0x10de, 0x1002].contains(&id.0));
                let names = ["NVIDIA", "AMD/ATI"];
                let named =
                    || function.name.get().is_some_and(|name| names.iter().any(|own| name.contains(own)));
                match function.gb_per_s() {
                    Some(rate) => vendor.unwrap_or(true) && rate > 1.5,
                    None => vendor.unwrap_or_else(named),
                }
            }
            Some(class) => class.is_accelerator(),
            None => false,
        }
    }
}
