//! hwloc's XML, versions 1 to 3.

use std::collections::BTreeSet;

use roxmltree::Node;

use super::xml;
use crate::fact::Origin;
use crate::model::{MemoryNode, Survey};
use crate::numbers::NumberSet;
use crate::pci::{BusRange, LaneSpeed, PciAddress, PciClass, PciFunction, PciNumber};

/// Where an object is: its ancestors' numbers.
#[derive(Clone, Copy, Default)]
struct Within<'a> {
    package: Option<u32>,
    node: Option<u32>,
    core: Option<u32>,
    bridge: Option<PciAddress>,
    /// The CPUs near it, from the nearest ancestor that has any.
    cpus: Option<&'a str>,
    /// The PCI function whose parts these are.
    function: Option<PciAddress>,
    /// Bytes of the memory-side cache before its memory.
    memory_cache: Option<u64>,
    depth: usize,
}

/// Reads a text.
///
/// # Errors
/// If it is not XML.
pub fn read(text: &str, source: usize) -> Result<Survey, String> {
    let document = xml::parse(text)?;
    let root = document.root_element();
    let has_type_bits = root
        .attribute("version")
        .and_then(|version| version.split('.').next()?.parse::<u32>().ok())
        .is_some_and(|version| version >= 3);
    let mut reader = HwlocReader { survey: Survey::default(), source, anonymous: 0, has_type_bits };
    for child in xml::children(root) {
        match child.tag_name().name() {
            "object" => reader.object(child, Within::default()),
            "info" => reader.info(child),
            "distances" | "distances2" if child.attribute("name") != Some("NVLinkBandwidth") => {
                reader.distances(child);
            }
            "distances2" | "distances2hetero" => reader.joins(child, root),
            "cpukind" => reader.kind(child),
            _ => {}
        }
    }
    let mut survey = reader.survey;
    owners_of_cpus(&mut survey, source);
    if survey.cpus.is_empty() && survey.functions.is_empty() {
        survey.doubt("hwloc's XML", "it has neither processors nor PCI devices");
    }
    Ok(survey)
}

/// Gives each CPU to one node. Version 2 has CPUs near a node as its own, also of memory that has none (persistent, attached, a GPU's):
/// then the CPUs are those of the DRAM, or of the node that has the fewest.
fn owners_of_cpus(survey: &mut Survey, source: usize) {
    let from = Origin { source, what: "cpuset of its NUMANode" };
    let of_node = |(number, node): (&u32, &MemoryNode)| Some((*number, node.cpus.get()?.clone()));
    let mut nodes: Vec<_> = survey.nodes.iter().filter_map(of_node).collect();
    let is_special = |number: &u32| survey.nodes[number].kind.get().is_some_and(|kind| kind != "DRAM");
    nodes.sort_by_key(|(number, cpus)| (is_special(number), cpus.len(), *number));
    let mut taken = BTreeSet::new();
    for (number, cpus) in nodes {
        if cpus.iter().any(|cpu| taken.contains(&cpu)) {
            let node = survey.nodes.entry(number).or_default();
            node.near_cpus = std::mem::take(&mut node.cpus);
            node.cpus.set(NumberSet::default(), from);
            continue;
        }
        for cpu in cpus.iter() {
            taken.insert(cpu);
            if let Some(cpu) = survey.cpus.get_mut(&cpu) {
                cpu.node.set(number, from);
            }
        }
    }
}

struct HwlocReader {
    survey: Survey,
    source: usize,
    /// Packages without a number.
    anonymous: u32,
    /// Whether types of devices are bits of a mask, as of version 3; before, they are numbers.
    has_type_bits: bool,
}

fn parsed<T: std::str::FromStr>(node: Node<'_, '_>, name: &str) -> Option<T> {
    node.attribute(name)?.trim().parse().ok()
}

/// `name` and `value` of an `info`.
fn pair<'a>(node: Node<'a, '_>) -> Option<(&'a str, &'a str)> {
    Some((node.attribute("name")?, node.attribute("value")?))
}

impl HwlocReader {
    fn from(&self, what: &'static str) -> Origin {
        Origin { source: self.source, what }
    }

    fn object<'a>(&mut self, object: Node<'a, '_>, mut within: Within<'a>) {
        within.depth += 1;
        if within.depth > xml::DEEPEST {
            return self
                .survey
                .doubt("hwloc's XML", "objects are nested deeper than in any machine; those are left");
        }
        let kind = object.attribute("type").unwrap_or_default();
        let number: Option<u32> = parsed(object, "os_index").filter(|&number| number != u32::MAX);
        let cpus = object.attribute("cpuset").filter(|set| !set.is_empty());
        within.cpus = cpus.or(within.cpus);
        let set = within.cpus.and_then(NumberSet::from_mask);
        match kind {
            "Machine" => {
                xml::children(object).for_each(|child| self.info(child));
                // Version 1 has memory here if there are no nodes.
                if let Some(bytes) = parsed(object, "local_memory").filter(|&bytes: &u64| bytes > 0) {
                    let from = self.from("Machine's local_memory");
                    self.survey.machine.memory_bytes.set(bytes, from);
                }
            }
            "Package" | "Socket" => {
                let number = number.unwrap_or_else(|| {
                    self.anonymous += 1;
                    self.anonymous - 1
                });
                within.package = Some(number);
                let infos = || xml::children(object).filter_map(pair);
                let model = infos().find(|(name, _)| *name == "CPUModel").map(|(_, value)| value.trim());
                self.survey.packages.entry(number).or_insert_with(|| model.unwrap_or_default().to_owned());
                infos().for_each(|(name, value)| self.machine(name, value));
            }
            "NUMANode" => {
                if let Some(number) = number {
                    within.node = Some(number);
                    self.node(object, number, set.as_ref());
                    if let Some(bytes) = within.memory_cache {
                        let from = self.from("object MemCache");
                        self.survey.nodes.entry(number).or_default().cache_bytes.set(bytes, from);
                    }
                }
            }
            "Core" => within.core = number,
            "PU" => {
                if let Some(number) = number {
                    let from = self.from("object PU");
                    let cpu = self.survey.cpus.entry(number).or_default();
                    within.core.into_iter().for_each(|core| cpu.core.set(core, from));
                    within.package.into_iter().for_each(|package| cpu.package.set(package, from));
                    within.node.into_iter().for_each(|node| cpu.node.set(node, from));
                }
            }
            "Bridge" | "PCIDev" => {
                if let Some(address) = self.function(object, &within, set) {
                    within.function = Some(address);
                    if kind == "Bridge" {
                        within.bridge = Some(address);
                    }
                }
            }
            "OSDev" => self.os_device(object, within.function),
            "MemCache" => within.memory_cache = parsed(object, "cache_size").filter(|&bytes| bytes > 0),
            _ if kind.ends_with("Cache") => self.cache(object, kind, set),
            _ => {}
        }
        for child in xml::children(object) {
            match child.tag_name().name() {
                "object" => self.object(child, within),
                // Version 1 has distances within objects.
                "distances" => self.distances(child),
                _ => {}
            }
        }
    }

    fn info(&mut self, node: Node<'_, '_>) {
        if node.tag_name().name() == "info"
            && let Some((name, value)) = pair(node)
        {
            self.machine(name, value);
        }
    }

    /// What an `info` says of the whole machine. Host names and serial numbers are left.
    fn machine(&mut self, name: &str, value: &str) {
        let machine = &mut self.survey.machine;
        let value = value.trim();
        if value.is_empty() {
            return;
        }
        let from = |what| Origin { source: self.source, what };
        match name {
            "DMIProductName" => machine.product.set(value.to_owned(), from("DMIProductName")),
            "PlatformModel" => machine.product.set(value.to_owned(), from("PlatformModel")),
            "CPUModel" => machine.cpu.set(value.to_owned(), from("CPUModel")),
            "CPUVendor" => machine.cpu_vendor.set(value.to_owned(), from("CPUVendor")),
            "Architecture" => machine.architecture.set(value.to_owned(), from("Architecture")),
            "CPUImplementer" => {
                machine.cpu_vendor.set(format!("implementer {value}"), from("CPUImplementer"));
            }
            "CPUPart" => machine.cpu.set(format!("Arm part {value}"), from("CPUPart")),
            "OSRelease" => machine.kernel.set(value.to_owned(), from("OSRelease")),
            "CPUFamilyNumber" => {
                value
                    .parse()
                    .into_iter()
                    .for_each(|number| machine.cpu_family.set(number, from("CPUFamilyNumber")));
            }
            "CPUModelNumber" => {
                value
                    .parse()
                    .into_iter()
                    .for_each(|number| machine.cpu_model.set(number, from("CPUModelNumber")));
            }
            _ => {}
        }
    }

    fn node(&mut self, object: Node<'_, '_>, number: u32, cpus: Option<&NumberSet>) {
        let from = self.from("object NUMANode");
        let node = self.survey.nodes.entry(number).or_default();
        if let Some(cpus) = cpus.filter(|_| object.has_attribute("cpuset")) {
            node.cpus.set(cpus.clone(), from);
        }
        if let Some(bytes) = parsed::<u64>(object, "local_memory") {
            node.memory_bytes.set(bytes, from);
        }
        // HBM, DRAM, NVM, SPM or GPUMemory.
        let info = |name: &str| {
            xml::children(object).filter_map(pair).find(|pair| pair.0 == name).map(|(_, value)| value)
        };
        let persistent = info("DAXDevice").map(|_| "NVM");
        let kind = object.attribute("subtype").or(info("MemoryTier")).or(persistent);
        if let Some(kind) = kind {
            node.kind.set(kind.to_owned(), from);
        }
    }

    fn cache(&mut self, object: Node<'_, '_>, kind: &str, cpus: Option<NumberSet>) {
        let from = self.from("object Cache");
        let level = parsed(object, "depth").or_else(|| kind.get(1..2)?.parse().ok());
        let letter = match object.attribute("cache_type") {
            Some("1") => "d",
            Some("2") => "i",
            _ => "",
        };
        let Some((level, cpus)) = level.zip(cpus) else { return };
        let cache = self.survey.caches.entry((level, letter, cpus)).or_default();
        if let Some(size) = parsed(object, "cache_size").filter(|&size: &u64| size > 0) {
            cache.size_bytes.set(size, from);
        }
        // -1 stands for fully associative.
        if let Some(ways) = parsed(object, "cache_associativity").filter(|&ways: &u32| ways > 0) {
            cache.ways.set(ways, from);
        }
        if let Some(line) = parsed(object, "cache_linesize").filter(|&line: &u32| line > 0) {
            cache.line_bytes.set(line, from);
        }
    }

    /// `pci_type="0604 [8086:340a] [0000:0000] 22 00"`.
    fn function(
        &mut self,
        object: Node<'_, '_>,
        within: &Within<'_>,
        cpus: Option<NumberSet>,
    ) -> Option<PciAddress> {
        let from = |what| Origin { source: self.source, what };
        let address: PciAddress = parsed(object, "pci_busid")?;
        let mut function = PciFunction::default();
        let of_type = object.attribute("pci_type").unwrap_or_default();
        let mut words = of_type.split([' ', '[', ']', ':']).filter(|word| !word.is_empty());
        let mut next = || u16::from_str_radix(words.next()?, 16).ok();
        if let Some(class) = next() {
            function.class.set(PciClass(class), from("pci_type"));
        }
        if let Some((vendor, device)) = next().zip(next()) {
            function.vendor.set(PciNumber(vendor), from("pci_type"));
            function.device.set(PciNumber(device), from("pci_type"));
        }
        if let Some((vendor, device)) = next().zip(next()).filter(|&(vendor, _)| vendor != 0) {
            function.subsystem_vendor.set(PciNumber(vendor), from("pci_type"));
            function.subsystem_device.set(PciNumber(device), from("pci_type"));
        }
        if let Some(revision) = next().and_then(|number| u8::try_from(number).ok()) {
            function.revision.set(revision, from("pci_type"));
        }
        if let Some(rate) =
            parsed::<f64>(object, "pci_link_speed").filter(|rate| *rate > 0.0 && rate.is_finite())
        {
            function.link_gb_per_s.set(rate, from("pci_link_speed"));
            if let Some((speed, width)) = lanes(rate) {
                function.speed.set(speed, from("pci_link_speed"));
                function.width.set(width, from("pci_link_speed"));
            }
        }
        // `0000:[02-05]`.
        if let Some(buses) = object.attribute("bridge_pci").and_then(|text| text.split('[').nth(1)) {
            let numbers = buses.trim_end_matches(']').split_once('-');
            let hex = |text: &str| u8::from_str_radix(text, 16).ok();
            if let Some((Some(secondary), Some(subordinate))) = numbers.map(|(a, b)| (hex(a), hex(b))) {
                function.buses.set(BusRange { secondary, subordinate }, from("bridge_pci"));
            }
        }
        if let Some(bridge) = within.bridge {
            function.parent.set(bridge, from("the object above"));
        }
        if let Some(cpus) = cpus {
            function.local_cpus.set(cpus, from("the object above"));
        }
        if let Some(node) = within.node {
            function.node.set(node as i32, from("the object above"));
        }
        let infos = || xml::children(object).filter_map(pair);
        let info = |name: &str| infos().find(|pair| pair.0 == name).map(|(_, value)| value.trim());
        let words: Vec<&str> = ["PCIVendor", "PCIDevice"].into_iter().filter_map(info).collect();
        if !words.is_empty() {
            function.name.set(words.join(" "), from("PCIVendor, PCIDevice"));
        }
        let address = self.survey.add_function(address, function);
        Some(address)
    }

    fn os_device(&mut self, object: Node<'_, '_>, function: Option<PciAddress>) {
        let from = self.from("object OSDev");
        let Some(name) = object.attribute("name").filter(|name| name.len() < 64) else { return };
        let of_type: u32 = parsed(object, "osdev_type").unwrap_or(u32::MAX);
        let subtype = object.attribute("subtype");
        let kind = match (self.has_type_bits, of_type) {
            (false, 0) | (true, 1) => "block",
            (false, 1) | (true, 4) => "gpu",
            (false, 2) | (true, 16) => "net",
            (false, 3) | (true, 32 | 48) => "infiniband",
            (false, 4) | (true, 64) => "dma",
            (true, 2) => "memory",
            _ => "device",
        };
        // Memory modules' and interfaces' numbers were the same once.
        if kind == "net" && !name.starts_with("mem") {
            let interface = self.survey.interfaces.entry(name.to_owned()).or_default();
            function.into_iter().for_each(|function| interface.function.set(function, from));
            return;
        }
        let kind = subtype.filter(|_| ["gpu", "device"].contains(&kind)).unwrap_or(kind);
        let device = self.survey.devices.entry(name.to_owned()).or_default();
        function.into_iter().for_each(|function| device.function.set(function, from));
        device.kind.set(kind.to_owned(), from);
    }

    /// Latencies between nodes, as versions 1 and 2 have them.
    fn distances(&mut self, node: Node<'_, '_>) {
        if node.tag_name().name() == "distances" {
            let count: usize = parsed(node, "nbobjs").unwrap_or_default();
            let base: f64 = parsed(node, "latency_base").unwrap_or(10.0);
            let values = xml::children(node).filter_map(|child| parsed::<f64>(child, "value"));
            let values: Vec<f64> = values.map(|value| (value * base).round()).collect();
            let numbers: Vec<u32> = self.survey.nodes.keys().copied().collect();
            // They come with the object whose nodes they are about, before these.
            let numbers: Vec<u32> =
                if numbers.len() == count { numbers } else { (0..count as u32).take(1024).collect() };
            return self.matrix(&numbers, &values);
        }
        if node.attribute("type") != Some("NUMANode") {
            return;
        }
        let words = |name: &str| {
            let of_name = xml::children(node).filter(|child| child.tag_name().name() == name);
            let texts = of_name.filter_map(|child| child.text()).flat_map(str::split_whitespace);
            texts.map(str::to_owned).collect::<Vec<_>>()
        };
        let numbers: Vec<u32> = words("indexes").iter().flat_map(|word| word.parse()).collect();
        let values: Vec<f64> = words("u64values").iter().flat_map(|word| word.parse()).collect();
        self.matrix(&numbers, &values);
    }

    fn matrix(&mut self, numbers: &[u32], values: &[f64]) {
        if values.len() != numbers.len() * numbers.len() {
            return self
                .survey
                .doubt("distances", "there are not as many values as nodes squared; none is taken");
        }
        for (place, value) in values.iter().enumerate() {
            let key = (numbers[place / numbers.len()], numbers[place % numbers.len()]);
            self.survey.distances.insert(key, *value as u32);
        }
    }

    /// NVLinks between GPUs, switches and packages, in MB/s.
    fn joins(&mut self, node: Node<'_, '_>, root: Node<'_, '_>) {
        if node.attribute("name") != Some("NVLinkBandwidth") {
            return;
        }
        let of_all = node.attribute("type");
        let words = |name: &str| -> Vec<&str> {
            let of_name = xml::children(node).filter(|child| child.tag_name().name() == name);
            of_name.filter_map(|child| child.text()).flat_map(str::split_whitespace).collect()
        };
        let name = |index: &str| -> Option<String> {
            let (kind, number) = index.split_once(':').or(of_all.map(|kind| (kind, index)))?;
            let is_it = |found: &Node<'_, '_>| {
                found.attribute("type") == Some(kind) && found.attribute("gp_index") == Some(number)
            };
            let found = root.descendants().find(is_it)?;
            let parent = || found.parent()?.attribute("pci_busid")?.parse::<PciAddress>().ok();
            match kind {
                "OSDev" => Some(parent()?.to_string()),
                "PCIDev" => found.attribute("pci_busid").map(str::to_owned),
                _ => Some(format!("{kind} {}", found.attribute("os_index")?)),
            }
        };
        let names: Vec<_> = words("indexes").into_iter().take(256).map(name).collect();
        let values = words("u64values");
        if values.len() != names.len() * names.len() {
            return;
        }
        for (place, value) in values.iter().enumerate() {
            let (a, b) = (&names[place / names.len()], &names[place % names.len()]);
            // Several devices of one function are no two ends of a link.
            let is_pair = *value != "0" && place / names.len() < place % names.len() && a != b;
            if let (Some(a), Some(b), true) = (a, b, is_pair) {
                self.survey.fabric.insert((a.clone(), b.clone()), format!("{value} MB/s"));
            }
        }
    }

    fn kind(&mut self, node: Node<'_, '_>) {
        let from = self.from("cpukind");
        let cpus = node.attribute("cpuset").and_then(NumberSet::from_mask).unwrap_or_default();
        let infos: Vec<_> = xml::children(node).filter_map(pair).collect();
        for number in cpus.iter() {
            let Some(cpu) = self.survey.cpus.get_mut(&number) else { continue };
            for (name, value) in &infos {
                match *name {
                    "FrequencyMaxMHz" => {
                        value.parse().into_iter().for_each(|mhz| cpu.max_mhz.set(mhz, from));
                    }
                    "CoreType" => cpu.kind.set((*value).to_owned(), from),
                    _ => {}
                }
            }
        }
    }
}

/// Rate and width of a link that carries so much, where only one pair does.
fn lanes(gb_per_s: f64) -> Option<(LaneSpeed, u32)> {
    let speeds = (1..=6).filter_map(LaneSpeed::from_generation);
    let pairs = speeds.flat_map(|speed| [1, 2, 4, 8, 12, 16, 32].map(|width| (speed, width)));
    let is_it = |&(speed, width): &(LaneSpeed, u32)| {
        (speed.lane_gb_per_s() * f64::from(width) / gb_per_s - 1.0).abs() < 1e-3
    };
    let mut found = pairs.filter(is_it);
    let first = found.next()?;
    found.next().is_none().then_some(first)
}
