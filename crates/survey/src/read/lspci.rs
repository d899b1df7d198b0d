//! `lspci`, with any of `-v`, `-n`, `-nn`, `-D`, `-x` and more of them; the tree of `-t` is `lspci_tree`.

use std::collections::BTreeMap;

use super::config_space;
use crate::fact::Origin;
use crate::model::Survey;
use crate::pci::{AcsBits, BusRange, LaneSpeed, PciAddress, PciClass, PciFunction, PciNumber, PortKind};

/// The address that a function's first line begins with, and the rest of the line.
fn begins(line: &str) -> Option<(PciAddress, &str)> {
    let (address, rest) = line.split_once(' ')?;
    Some((address.parse().ok()?, rest))
}

/// Whether a text begins like lspci's.
pub fn is(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("lspci: "));
    let first = lines.next().unwrap_or_default();
    let of_machines = |line: &str| slot(line).is_some();
    let mut is_dump = || lines.next().is_some_and(|line| line.starts_with("00: "));
    begins(first).is_some_and(|(_, rest)| rest.contains(": ") || rest.starts_with('"') || is_dump())
        || of_machines(first)
}

/// The address of `Slot:` in the output for machines, `-vmm`.
fn slot(line: &str) -> Option<PciAddress> {
    line.strip_prefix("Slot:")?.trim().parse().ok()
}

/// Reads all functions of a text.
pub fn read(text: &str, source: usize) -> Survey {
    let mut survey = Survey::default();
    let mut current: Option<(PciAddress, Described)> = None;
    for line in text.lines() {
        if let Some(address) = slot(line) {
            finish(&mut survey, current.take(), source);
            current = Some((address, Described::default()));
        } else if let Some((address, rest)) = begins(line) {
            finish(&mut survey, current.take(), source);
            let mut described = Described::default();
            described.first_line(rest, source);
            current = Some((address, described));
        } else if let Some((_, described)) = &mut current {
            described.line(line, source);
        }
    }
    finish(&mut survey, current, source);
    if survey.functions.is_empty() {
        survey.doubt("lspci", "it has no function");
    }
    survey
}

fn finish(survey: &mut Survey, current: Option<(PciAddress, Described)>, source: usize) {
    let Some((address, mut described)) = current else { return };
    if described.is_denied {
        survey.doubt(
            address,
            "its capabilities were not readable; run lspci as root to see links, payloads and ACS",
        );
    }
    if described.is_gone {
        survey.doubt(address, "it does not answer: its configuration space reads as ones");
    }
    let bytes = described.dump_bytes();
    if bytes.len() >= 64 && config_space::read(&bytes, source, &mut described.function).is_none() {
        survey.doubt(address, "its configuration space reads as ones or zeros");
    }
    survey.add_function(address, described.function);
}

/// A function while its lines are read.
#[derive(Default)]
struct Described {
    function: PciFunction,
    /// The register whose lines are being read; they continue on lines of their own.
    register: &'static str,
    dump: BTreeMap<usize, u8>,
    /// Vendor and device as `-mm` names them.
    words: Vec<String>,
    is_denied: bool,
    is_gone: bool,
}

/// Registers whose lines are understood.
const REGISTERS: [&str; 14] = [
    "DevCap:", "DevCtl:", "LnkCap:", "LnkCtl:", "LnkSta:", "DevCap2:", "DevCtl2:", "ACSCap:", "ACSCtl:",
    "ATSCtl:", "IOVCap:", "LnkCap2:", "LnkCtl2:", "LnkSta2:",
];

/// Two numbers in brackets, `[8086:6f04]`.
fn pair(text: &str) -> Option<[PciNumber; 2]> {
    let (vendor, device) = text.split_once(':')?;
    let number = |text: &str| match text.len() {
        4 => u16::from_str_radix(text, 16).ok().map(PciNumber),
        _ => None,
    };
    Some([number(vendor)?, number(device)?])
}

/// The last text in square brackets, and what is before it.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let (before, rest) = text.rsplit_once('[')?;
    let (inner, _) = rest.split_once(']')?;
    Some((before.trim_end(), inner))
}

/// The number that follows a word.
fn after<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let rest = &text[text.find(word)? + word.len()..];
    rest.split([' ', ',', ';', '(']).next()
}

fn number(text: &str, word: &str) -> Option<u32> {
    after(text, word)?.parse().ok()
}

/// Whether `NAME+` or `NAME-` is among the words.
fn flag(text: &str, name: &str) -> Option<bool> {
    let mut words = text.split([' ', '\t', ',']);
    words.find_map(|word| match word.strip_prefix(name)? {
        "+" => Some(true),
        "-" => Some(false),
        _ => None,
    })
}

impl Described {
    /// `Ethernet controller [0200]: Intel Corporation 82599 [8086:10fb] (rev 01)`, in all variants.
    fn first_line(&mut self, rest: &str, source: usize) {
        let from = Origin { source, what: "first line" };
        if rest.starts_with('"') {
            return self.quoted(rest, source);
        }
        let function = &mut self.function;
        let Some((class, mut name)) = rest.split_once(": ") else { return };
        let code = |text: &str| u16::from_str_radix(text, 16).ok().filter(|_| text.len() == 4).map(PciClass);
        // `Class 0604` is how older versions write an unknown one.
        let class = class.trim_start_matches("Class ").trim();
        let known = bracketed(class).and_then(|(_, inner)| code(inner)).or_else(|| code(class));
        if let Some(class) = known.or_else(|| PciClass::from_name(class)) {
            function.class.set(class, from);
        }
        if let Some(at) = name.find(" (prog-if") {
            name = &name[..at];
        }
        if let Some((before, revision)) = name.rsplit_once(" (rev ") {
            if let Ok(revision) = u8::from_str_radix(revision.trim_end_matches(')'), 16) {
                function.revision.set(revision, from);
            }
            name = before;
        }
        let ids = bracketed(name).and_then(|(before, inner)| Some((before, pair(inner)?)));
        if let Some((before, ids)) = ids {
            name = before;
            function.set_ids(ids, from);
        } else if let Some(ids) = pair(name.trim()) {
            function.set_ids(ids, from);
            return;
        }
        if !name.is_empty() {
            function.name.set(name.to_owned(), from);
        }
    }

    /// `"Ethernet controller [0200]" "Intel Corporation [8086]" "82599 [10fb]" -r01 "Intel Corporation" "X520"`, of `-mm`.
    fn quoted(&mut self, rest: &str, source: usize) {
        let mut texts = rest.split('"').skip(1).step_by(2);
        for (key, text) in ["Class:", "Vendor:", "Device:"].into_iter().zip(&mut texts) {
            self.of_machines(key, text, source);
        }
    }

    /// A key of `-vmm`, or a field of `-mm`: a name, a number, or both.
    fn of_machines(&mut self, key: &str, text: &str, source: usize) {
        let from = Origin { source, what: "-mm" };
        let hex = |text: &str| u16::from_str_radix(text, 16).ok().filter(|_| text.len() == 4);
        let number = bracketed(text).and_then(|(_, inner)| hex(inner)).or_else(|| hex(text));
        let name =
            bracketed(text).filter(|(_, inner)| hex(inner).is_some()).map_or(text, |(before, _)| before);
        let function = &mut self.function;
        match key {
            "Class:" => {
                let class = number.map(PciClass).or_else(|| PciClass::from_name(name));
                class.into_iter().for_each(|class| function.class.set(class, from));
            }
            "Vendor:" | "Device:" => {
                let fact = if key == "Vendor:" { &mut function.vendor } else { &mut function.device };
                number.into_iter().for_each(|number| fact.set(PciNumber(number), from));
                self.words.push(name.to_owned());
                if key == "Device:" && hex(text).is_none() {
                    function.name.set(self.words.join(" "), from);
                }
            }
            _ => {}
        }
    }

    fn line(&mut self, line: &str, source: usize) {
        let text = line.trim();
        if let Some((
            key @ ("Class:" | "Vendor:" | "Device:" | "Driver:" | "NUMANode:" | "IOMMUGroup:"),
            value,
        )) = line.split_once('\t')
        {
            let from = Origin { source, what: "-vmm" };
            match key {
                "Driver:" => self.function.driver.set(value.to_owned(), from),
                "NUMANode:" => value.parse().into_iter().for_each(|node| self.function.node.set(node, from)),
                "IOMMUGroup:" => {
                    value.parse().into_iter().for_each(|group| self.function.iommu_group.set(group, from))
                }
                _ => self.of_machines(key, value, source),
            }
            return;
        }
        if self.dumped(line) {
            return;
        }
        if let Some(register) = REGISTERS.iter().find(|name| text.starts_with(**name)) {
            self.register = register;
        } else if line.starts_with('\t') && !line.starts_with("\t\t") || text.contains(":\t") {
            // Another capability or register: what follows is its.
            self.register = "";
        }
        let from = |what| Origin { source, what };
        let function = &mut self.function;
        match self.register {
            "" | "LnkCap2:" | "LnkCtl2:" | "LnkSta2:" => {}
            register => return function.register(register, text, source),
        }
        let value = |name: &str| text.strip_prefix(name).map(str::trim);
        if let Some(driver) = value("Kernel driver in use:") {
            function.driver.set(driver.to_owned(), from("driver in use"));
        } else if let Some(Ok(node)) = value("NUMA node:").map(str::parse) {
            function.node.set(node, from("NUMA node"));
        } else if let Some(Ok(group)) = value("IOMMU group:").map(str::parse) {
            function.iommu_group.set(group, from("IOMMU group"));
        } else if let Some(subsystem) = value("Subsystem:") {
            let ids = bracketed(subsystem).and_then(|(_, inner)| pair(inner)).or_else(|| pair(subsystem));
            if let Some([vendor, device]) = ids {
                function.subsystem_vendor.set(vendor, from("Subsystem"));
                function.subsystem_device.set(device, from("Subsystem"));
            }
        } else if let Some(buses) = value("Bus:") {
            let bus = |word| u8::from_str_radix(after(buses, word)?, 16).ok();
            if let Some((secondary, subordinate)) = bus("secondary=").zip(bus("subordinate=")) {
                function.buses.set(BusRange { secondary, subordinate }, from("Bus"));
            }
        } else if let Some(capability) = value("Capabilities:") {
            self.is_denied |= capability.contains("access denied");
            function.capability(capability, source);
        } else if text.starts_with("Initial VFs:") {
            if let Some((most, now)) = number(text, "Total VFs: ").zip(number(text, "Number of VFs: ")) {
                function.most_vfs.set(most, from("SR-IOV"));
                function.vfs.set(now, from("SR-IOV"));
            }
        } else if text.starts_with("VF offset:") {
            if let Some((offset, stride)) = number(text, "VF offset: ").zip(number(text, "stride: ")) {
                function.vf_offset.set(offset, from("SR-IOV"));
                function.vf_stride.set(stride, from("SR-IOV"));
            }
        } else if text.starts_with("!!! Unknown header type 7f") {
            self.is_gone = true;
        }
    }

    /// A line of a dump, `10: 04 00 ...`.
    fn dumped(&mut self, line: &str) -> bool {
        let Some((at, bytes)) = line.split_once(": ") else { return false };
        let is_hex = |text: &str, digits| text.len() == digits && text.bytes().all(|c| c.is_ascii_hexdigit());
        if !(is_hex(at, 2) || is_hex(at, 3)) || !bytes.split_whitespace().all(|byte| is_hex(byte, 2)) {
            return false;
        }
        let at = usize::from_str_radix(at, 16).unwrap_or_default();
        let values = bytes.split_whitespace().flat_map(|byte| u8::from_str_radix(byte, 16));
        self.dump.extend((at..).zip(values));
        true
    }

    /// The dumped bytes from address 0 on.
    fn dump_bytes(&self) -> Vec<u8> {
        (0..4096).map_while(|at| self.dump.get(&at).copied()).collect()
    }
}

impl PciFunction {
    fn set_ids(&mut self, [vendor, device]: [PciNumber; 2], from: Origin) {
        self.vendor.set(vendor, from);
        self.device.set(device, from);
    }

    /// What stands behind `Capabilities:`.
    fn capability(&mut self, text: &str, source: usize) {
        let from = |what| Origin { source, what };
        if text.contains("] Express ") {
            const KINDS: [(&str, PortKind); 9] = [
                ("Root Complex Integrated Endpoint", PortKind::Integrated),
                ("Root Complex Event Collector", PortKind::Integrated),
                ("Legacy Endpoint", PortKind::Endpoint),
                ("Endpoint", PortKind::Endpoint),
                ("Root Port", PortKind::RootPort),
                ("Upstream Port", PortKind::Upstream),
                ("Downstream Port", PortKind::Downstream),
                ("PCI-Express to PCI", PortKind::Bridge),
                ("PCI/PCI-X to PCI-Express", PortKind::Bridge),
            ];
            if let Some((_, kind)) = KINDS.iter().find(|(name, _)| text.contains(name)) {
                self.kind.set(*kind, from("PCIe capability"));
            }
        } else if text.contains("] MSI-X:") {
            if let Some(vectors) = number(text, "Count=") {
                self.msix_vectors.set(vectors, from("MSI-X"));
            }
        } else if text.contains("Resizable BAR") {
            self.resizable_bars.set(true, from("Resizable BAR"));
        }
    }

    /// A line of a register.
    fn register(&mut self, register: &str, text: &str, source: usize) {
        let from = |what| Origin { source, what };
        let lanes = |text: &str| {
            let speed = text.split("Speed ").nth(1).and_then(LaneSpeed::from_text);
            (speed, number(text, "Width x").filter(|&width| width > 0))
        };
        macro_rules! set {
            ($what:literal: $($field:ident = $value:expr),+) => {{
                $(if let Some(value) = $value { self.$field.set(value, from($what)); })+
            }};
        }
        match register {
            "DevCap:" => {
                set!("DevCap": max_mps_bytes = number(text, "MaxPayload "), can_extend_tags = flag(text, "ExtTag"))
            }
            "DevCtl:" => {
                set!("DevCtl": mps_bytes = number(text, "MaxPayload "), mrrs_bytes = number(text, "MaxReadReq "),
                relaxed_ordering = flag(text, "RlxdOrd"), extended_tags = flag(text, "ExtTag"), no_snoop = flag(text, "NoSnoop"))
            }
            "LnkCap:" => {
                let (speed, width) = lanes(text);
                set!("LnkCap": max_speed = speed, max_width = width);
            }
            "LnkSta:" => {
                let (speed, width) = lanes(text);
                set!("LnkSta": speed = speed.filter(|_| width.is_some()), width = width);
            }
            "LnkCtl:" => set!("LnkCtl": rcb_bytes = number(text, "RCB ")),
            "DevCap2:" => set!("DevCap2": can_use_10_bit_tags = flag(text, "10BitTagReq")),
            "DevCtl2:" => set!("DevCtl2": ten_bit_tags = flag(text, "10BitTagReq")),
            "ACSCap:" => {
                set!("ACSCap": can_acs = Some(AcsBits::from_text(text)).filter(|_| text.starts_with("ACSCap")))
            }
            "ACSCtl:" => {
                set!("ACSCtl": acs = Some(AcsBits::from_text(text)).filter(|_| text.starts_with("ACSCtl")))
            }
            "ATSCtl:" => set!("ATSCtl": ats = flag(text, "Enable")),
            _ => {}
        }
    }
}

/// lspci's tree, as `-t` and `-tv` draw it.
pub mod tree {
    use super::*;

    /// Whether a text is such a tree.
    pub fn is(text: &str) -> bool {
        text.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| {
            line.trim_start_matches(['-', '+', ' ']).starts_with('[') && line.contains("]-")
        })
    }

    /// Words of devices' names, with the class that they tell: a tree has no classes.
    const NAMED: [(&str, u16); 10] = [
        ("Audio", 0x0403),
        ("USB", 0x0c03),
        ("Matrox", 0x0300),
        ("ASPEED", 0x0300),
        ("NVMe", 0x0108),
        ("Ethernet", 0x0200),
        ("ConnectX", 0x0200),
        ("Network Connection", 0x0200),
        ("NVIDIA Corporation", 0x0302),
        ("Instinct", 0x1200),
    ];

    /// A bridge whose buses are being listed.
    struct Above {
        /// Where on the line its children begin.
        column: usize,
        bridge: Option<PciAddress>,
        segment: u32,
        bus: u8,
    }

    /// Reads a tree: addresses, buses and what is above what.
    pub fn read(text: &str, source: usize) -> Survey {
        let from = Origin { source, what: "tree" };
        let mut survey = Survey::default();
        let mut above: Vec<Above> = Vec::new();
        for line in text.lines() {
            let mut at = line.len() - line.trim_start_matches([' ', '|', '+', '-', '\\']).len();
            above.retain(|bridge| bridge.column <= at);
            while at < line.len() && above.len() < 64 {
                let rest = &line[at..];
                if let Some(inner) = rest.strip_prefix('[') {
                    // `[0000:00]` begins a root bus, `[02-05]` the buses below the bridge before it.
                    let Some((inner, _)) = inner.split_once(']') else { break };
                    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
                    let last = above.last().map(|bridge| (bridge.bridge, bridge.segment));
                    let (segment, buses) = match inner.split_once(':') {
                        Some((segment, buses)) => (hex(segment), buses),
                        None => (last.map(|(_, segment)| segment).or(Some(0)), inner),
                    };
                    let (first, end) = buses.split_once('-').unwrap_or((buses, buses));
                    let (Some(segment), Some(first), Some(end)) = (segment, hex(first), hex(end)) else {
                        break;
                    };
                    let (secondary, subordinate) = (first as u8, end as u8);
                    let bridge = last.and_then(|(bridge, _)| bridge).filter(|_| !inner.contains(':'));
                    if let Some(function) = bridge.and_then(|bridge| survey.functions.get_mut(&bridge)) {
                        function.buses.set(BusRange { secondary, subordinate }, from);
                    }
                    at += inner.len() + 2;
                    at += line[at..].len() - line[at..].trim_start_matches(['-', '+']).len();
                    if bridge.is_some() {
                        above.pop();
                    }
                    above.push(Above { column: at, bridge, segment, bus: secondary });
                    continue;
                }
                let Some((device, function)) = rest.get(..4).and_then(|text| text.split_once('.')) else {
                    break;
                };
                let Some(place) = above.last() else { break };
                let address = format!("{:x}:{:02x}:{device}.{function}", place.segment, place.bus);
                let Ok(address) = address.parse::<PciAddress>() else { break };
                let (bridge, segment, bus, column) = (place.bridge, place.segment, place.bus, place.column);
                let entry = survey.functions.entry(address).or_default();
                if let Some(bridge) = bridge {
                    entry.parent.set(bridge, from);
                }
                at += 4;
                if line[at..].starts_with("-[") {
                    at += 1;
                    // Until its buses are read, the bridge stands where its siblings do.
                    above.push(Above { column: column + 1, bridge: Some(address), segment, bus });
                } else {
                    let name = line[at..].trim();
                    if !name.is_empty() {
                        entry.name.set(name.to_owned(), from);
                        let class = NAMED.iter().find(|(word, _)| name.contains(word));
                        let from = Origin { source, what: "its name" };
                        class.into_iter().for_each(|(_, class)| entry.class.set(PciClass(*class), from));
                    }
                    break;
                }
            }
        }
        if survey.functions.is_empty() {
            survey.doubt("lspci -t", "the tree has no function");
        }
        survey
    }
}
