//! lstopo's text, of versions 1 and 2: one object on a line, or several that hold each other, joined by `+`.

use crate::fact::{LOGICAL, Origin, ROUNDED};
use crate::model::Survey;
use crate::numbers::NumberSet;
use crate::pci::{BusRange, PciAddress, PciClass, PciNumber};

/// Objects that hold each other at most; what is nested deeper is damage.
const DEEPEST: usize = 64;
/// Objects that are read.
const MOST_OBJECTS: usize = 1 << 18;
/// Nodes that are read, as many as kernels have.
const MOST_NODES: usize = 1024;
/// CPUs near a device that are kept for each.
const MOST_NEAR: usize = 4096;

/// Whether a text is lstopo's. Before the machine, it may tell what it takes its input for.
pub fn is(text: &str) -> bool {
    let begins =
        |line: &str| ["Machine (", "Machine L#", "Machine P#"].iter().any(|begin| line.starts_with(begin));
    text.lines().take(4).any(begins)
}

/// An object, and those around it.
struct LstopoObject<'t> {
    kind: &'t str,
    text: &'t str,
    /// The object around it.
    within: Option<usize>,
    /// CPUs in it.
    cpus: NumberSet,
}

impl<'t> LstopoObject<'t> {
    /// A number behind a mark, such as `P#3`.
    fn number(&self, mark: &str) -> Option<u32> {
        let rest = self.text.split(mark).nth(1)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok().filter(|&number| number < 1 << 20)
    }

    /// The operating system's number, or lstopo's own; whether it is the former.
    fn any_number(&self) -> Option<(u32, bool)> {
        self.number("P#").map(|number| (number, true)).or(self.number("L#").map(|number| (number, false)))
    }

    /// `key=value` or `key="value"` in the brackets.
    fn attribute(&self, key: &str) -> Option<&'t str> {
        let key = format!("{key}=");
        let start = self
            .text
            .match_indices(&key)
            .find(|(at, _)| *at > 0 && matches!(self.text.as_bytes()[at - 1], b' ' | b'('))?;
        let rest = &self.text[start.0 + key.len()..];
        if let Some(quoted) = rest.strip_prefix('"') {
            return quoted.split('"').next();
        }
        // A value may have spaces: it ends where the next key begins.
        let is_key = |word: &str| word.contains('=');
        let mut end = 0;
        for word in rest.split_inclusive(' ') {
            if end > 0 && is_key(word) {
                break;
            }
            end += word.len();
        }
        Some(rest[..end].trim().trim_end_matches(')').trim())
    }

    /// A size in bytes: of an attribute, or alone in the brackets.
    fn bytes(&self, keys: &[&str]) -> Option<u64> {
        let of_key = keys.iter().find_map(|key| bytes(self.attribute(key)?.split(' ').next()?));
        let words = || self.text.split_once('(')?.1.split([' ', ')']).find_map(bytes);
        of_key.or_else(words)
    }

    /// The name in quotes.
    fn name(&self) -> Option<&'t str> {
        self.text.split('"').nth(1).filter(|name| !name.is_empty() && name.len() < 64)
    }
}

/// `25MB`, `256KB`.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..end].parse().ok()?;
    let unit = match &text[end..] {
        "KB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        "TB" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// hwloc's short names of classes.
const CLASSES: [(&str, u16); 22] = [
    ("SCSI", 0x0100),
    ("IDE", 0x0101),
    ("RAID", 0x0104),
    ("ATA", 0x0105),
    ("SATA", 0x0106),
    ("SAS", 0x0107),
    ("NVMExp", 0x0108),
    ("Storage", 0x0180),
    ("Ethernet", 0x0200),
    ("InfiniBand", 0x0207),
    ("Fabric", 0x0208),
    ("Network", 0x0280),
    ("VGA", 0x0300),
    ("3D", 0x0302),
    ("Display", 0x0380),
    ("HostBridge", 0x0600),
    ("ISABridge", 0x0601),
    ("PCIBridge", 0x0604),
    ("USB", 0x0c03),
    ("Co-Processor", 0x0b40),
    ("CoProcessor", 0x0b40),
    ("ProcessingAccelerator", 0x1200),
];

/// Parts of a line that are joined by `+`, outside of quotes.
fn parts(line: &str) -> Vec<&str> {
    let (mut parts, mut start, mut is_quoted) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            '+' if !is_quoted && line[..at].ends_with(' ') && line[at + 1..].starts_with(' ') => {
                parts.push(line[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(line[start..].trim());
    parts
}

/// Objects in the order of the text, each with the CPUs in it.
fn objects<'t>(text: &'t str, survey: &mut Survey) -> Vec<LstopoObject<'t>> {
    let mut all: Vec<LstopoObject<'t>> = Vec::new();
    // Places of those that are open, with how far in they are.
    let mut open: Vec<(usize, usize)> = Vec::new();
    let begins = |line: &&str| !line.starts_with("Machine");
    for line in text.lines().skip_while(begins) {
        let depth = line.len() - line.trim_start().len();
        if depth == 0 && !all.is_empty() || line.trim().is_empty() {
            // Tables of objects' levels follow.
            break;
        }
        while open.last().is_some_and(|(far, _)| *far >= depth) {
            open.pop();
        }
        for part in parts(line.trim()) {
            if open.len() >= DEEPEST || all.len() >= MOST_OBJECTS {
                survey.doubt(
                    "lstopo",
                    "objects are more, or nested deeper, than in any machine; those are left",
                );
                return all;
            }
            let kind = part.split([' ', '(']).next().unwrap_or_default();
            let object = LstopoObject {
                kind,
                text: part,
                within: open.last().map(|(_, place)| *place),
                cpus: NumberSet::default(),
            };
            open.push((depth, all.len()));
            all.push(object);
        }
    }
    let mut inside: Vec<Vec<u32>> = vec![Vec::new(); all.len()];
    for place in 0..all.len() {
        let number = (all[place].kind == "PU").then(|| all[place].any_number()).flatten();
        let Some((number, _)) = number.filter(|(number, _)| *number < 1 << 17) else { continue };
        let mut around = Some(place);
        while let Some(at) = around {
            inside[at].push(number);
            around = all[at].within;
        }
    }
    // What is told of sets is all of them, those that are offline included.
    for (object, inside) in all.iter_mut().zip(inside) {
        object.cpus = inside.into_iter().collect();
        let mask = object.text.split("cpuset=").nth(1).and_then(|rest| rest.split_whitespace().next());
        if let Some(cpus) = mask.and_then(NumberSet::from_mask).filter(|_| object.cpus.is_empty()) {
            object.cpus = cpus;
        }
    }
    all
}

/// Reads a text.
pub fn read(text: &str, source: usize) -> Survey {
    let mut survey = Survey::default();
    let objects = objects(text, &mut survey);
    let mut reader = LstopoReader { survey, source, objects: &objects, nodes: Vec::new() };
    // Nodes first: what is near them is told by them.
    for (place, _) in objects.iter().enumerate().filter(|(_, object)| object.kind == "NUMANode") {
        reader.node(place);
    }
    for place in 0..objects.len() {
        reader.object(place);
    }
    reader.distances(text);
    reader.survey
}

struct LstopoReader<'t> {
    survey: Survey,
    source: usize,
    objects: &'t [LstopoObject<'t>],
    /// Places and numbers of nodes, in the order of the text, which is lstopo's own.
    nodes: Vec<(usize, u32)>,
}

impl<'t> LstopoReader<'t> {
    fn from(&self, what: &'static str) -> Origin {
        Origin { source: self.source, what }
    }

    /// Where an object's memory is told: exactly, in KB, or rounded.
    fn of_size(&self, object: &LstopoObject<'_>) -> Origin {
        let is_exact =
            object.attribute("local").or(object.attribute("total")).is_some_and(|text| text.contains("KB"));
        self.from(if is_exact { "lstopo, memory" } else { ROUNDED })
    }

    /// The objects around one, the nearest first.
    fn around(&self, place: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.objects[place].within, |at| self.objects[*at].within)
    }

    /// A node: in version 1, it holds its CPUs; from version 2 on, it is beside them.
    fn node(&mut self, place: usize) {
        let object = &self.objects[place];
        let Some((number, _)) = object.any_number().filter(|_| self.nodes.len() < MOST_NODES) else { return };
        self.nodes.push((place, number));
        let beside = || self.around(place).map(|at| &self.objects[at].cpus).find(|cpus| !cpus.is_empty());
        let cpus = match object.cpus.is_empty() {
            true => beside().cloned().unwrap_or_default(),
            false => object.cpus.clone(),
        };
        // A CPU belongs to one node: memory beside it has none.
        let is_taken =
            self.survey.nodes.values().any(|node| node.cpus.get().is_some_and(|own| own.meets(&cpus)));
        let (from, of_cpu) = (self.from("lstopo, NUMANode"), self.from("lstopo, PU"));
        let node = self.survey.nodes.entry(number).or_default();
        if is_taken {
            node.cpus.set(NumberSet::default(), from);
            node.near_cpus.set(cpus, from);
        } else {
            for cpu in cpus.iter() {
                self.survey.cpus.entry(cpu).or_default().node.set(number, of_cpu);
            }
            node.cpus.set(cpus, from);
        }
        let of_size = self.of_size(object);
        let subtype = object.kind_in_brackets().filter(|kind| *kind != "DRAM");
        let node = self.survey.nodes.entry(number).or_default();
        object.bytes(&["local", "total"]).into_iter().for_each(|bytes| node.memory_bytes.set(bytes, of_size));
        subtype.into_iter().for_each(|kind| node.kind.set(kind.to_owned(), from));
    }

    fn object(&mut self, place: usize) {
        let object = &self.objects[place];
        match object.kind {
            "Machine" => {
                let from = self.from("lstopo, Machine");
                let product = object.attribute("DMIProductName").filter(|name| !name.is_empty());
                product.into_iter().for_each(|name| self.survey.machine.product.set(name.to_owned(), from));
                let total = object.bytes(&["total", "local"]);
                let from = self.of_size(object);
                total.into_iter().for_each(|bytes| self.survey.machine.memory_bytes.set(bytes, from));
            }
            "Socket" | "Package" => {
                let Some((number, _)) = object.any_number() else { return };
                let name = object.attribute("CPUModel").unwrap_or_default().trim().to_owned();
                self.survey.packages.entry(number).or_insert(name);
            }
            "PU" => self.cpu(place),
            "HostBridge" | "PCIBridge" | "PCI" => self.function(place),
            kind if kind.starts_with('L') && kind.get(1..2).is_some_and(|level| "12345".contains(level)) => {
                let level = kind[1..2].parse().unwrap_or_default();
                let letter = match kind.get(2..3) {
                    Some("d") => "d",
                    Some("i") => "i",
                    _ => "",
                };
                let from = self.from("lstopo");
                let small =
                    |key| object.attribute(key).and_then(|text| text.split(' ').next()?.parse::<u32>().ok());
                if let Some(bytes) = object.bytes(&["size"]).filter(|_| !object.cpus.is_empty()) {
                    let cache = self.survey.caches.entry((level, letter, object.cpus.clone())).or_default();
                    cache.size_bytes.set(bytes, from);
                    small("ways")
                        .filter(|&ways| ways > 0)
                        .into_iter()
                        .for_each(|ways| cache.ways.set(ways, from));
                    let line = small("linesize").filter(|&line| line > 0);
                    line.into_iter().for_each(|line| cache.line_bytes.set(line, from));
                }
            }
            kind => self.os_device(place, kind),
        }
    }

    /// A CPU with its core and package. lstopo's own numbers of these, where it shows no others, are of no use to other sources.
    fn cpu(&mut self, place: usize) {
        let Some((number, _)) = self.objects[place].any_number().filter(|(number, _)| *number < 1 << 17)
        else {
            return;
        };
        let find = |kinds: &[&str]| {
            let mut around = self.around(place).map(|at| &self.objects[at]);
            around.find(|object| kinds.contains(&object.kind))?.any_number()
        };
        let (core, package) = (find(&["Core"]), find(&["Package", "Socket"]));
        let from = |is_told: bool| self.from(if is_told { "lstopo, PU" } else { LOGICAL });
        let (core_from, package_from) =
            (from(core.is_some_and(|(_, told)| told)), from(package.is_some_and(|(_, told)| told)));
        let cpu = self.survey.cpus.entry(number).or_default();
        core.into_iter().for_each(|(core, _)| cpu.core.set(core, core_from));
        package.into_iter().for_each(|(package, _)| cpu.package.set(package, package_from));
    }

    /// The node that an object is in or beside, if it is one alone, and the CPUs near it.
    fn near(&self, place: usize) -> (Option<u32>, Option<&'t NumberSet>) {
        let mut around = self.around(place);
        let Some(cpus) = around.find_map(|at| Some(&self.objects[at].cpus).filter(|cpus| !cpus.is_empty()))
        else {
            return (None, None);
        };
        (self.survey.node_of_cpus(cpus), Some(cpus))
    }

    /// The address of a bridge or device: of its `busid`, or alone.
    fn address(&self, place: usize) -> Option<PciAddress> {
        let object = &self.objects[place];
        let alone = || object.text.split_whitespace().nth(1)?.parse().ok();
        object.attribute("busid").and_then(|id| id.split([' ', ')']).next()?.parse().ok()).or_else(alone)
    }

    fn function(&mut self, place: usize) {
        let object = &self.objects[place];
        let (node, cpus) = self.near(place);
        let from = |what| Origin { source: self.source, what };
        let numbers = |text: &str| -> Option<(PciNumber, PciNumber)> {
            let (vendor, device) = text.split([' ', ')']).next()?.split_once(':')?;
            let hex =
                |text: &str| u16::from_str_radix(text, 16).ok().filter(|_| text.len() == 4).map(PciNumber);
            hex(vendor).zip(hex(device))
        };
        let ids = object.attribute("id").and_then(numbers);
        let Some(address) = self.address(place) else {
            // Version 1 shows numbers alone, which tell of the device's node what other sources do not.
            let ids = object.text.split_whitespace().nth(1).and_then(numbers);
            if let Some((ids, node)) = ids.zip(node) {
                self.survey.placed.push((ids, node, from("lstopo, PCI")));
            }
            return;
        };
        let parent = self.around(place).find_map(|at| self.address(at));
        let function = self.survey.functions.entry(address).or_default();
        if let Some((vendor, device)) = ids {
            function.vendor.set(vendor, from("lstopo, id"));
            function.device.set(device, from("lstopo, id"));
        }
        let by_name = |name: &str| CLASSES.iter().find(|(own, _)| *own == name).map(|(_, class)| *class);
        let class = object.attribute("class").and_then(|text| u16::from_str_radix(text.get(..4)?, 16).ok());
        let class = class.or_else(|| object.kind_in_brackets().and_then(by_name));
        class.into_iter().for_each(|class| function.class.set(PciClass(class), from("lstopo, class")));
        parent.into_iter().for_each(|parent| function.parent.set(parent, from("lstopo, the object above")));
        node.into_iter().for_each(|node| function.node.set(node as i32, from("lstopo, the object above")));
        // Of several nodes, the CPUs near it tell what is known.
        let cpus = cpus.filter(|cpus| node.is_none() && cpus.len() <= MOST_NEAR);
        cpus.into_iter()
            .for_each(|cpus| function.local_cpus.set(cpus.clone(), from("lstopo, the object above")));
        let rate: Option<f64> =
            object.attribute("link").and_then(|text| text.split("GB/s").next()?.trim().parse().ok());
        if let Some(rate) = rate.filter(|rate| *rate > 0.0) {
            // Two digits behind the point tell a pair of rate and width apart less well than hwloc's XML does.
            function.link_gb_per_s.set(rate, from("lstopo, link"));
        }
        if let Some(buses) = object.attribute("buses").and_then(|text| text.split('[').nth(1)) {
            let hex = |text: &str| u8::from_str_radix(text, 16).ok();
            let ends = buses.split(']').next().and_then(|buses| buses.split_once('-'));
            if let Some((Some(secondary), Some(subordinate))) = ends.map(|(a, b)| (hex(a), hex(b))) {
                function.buses.set(BusRange { secondary, subordinate }, from("lstopo, buses"));
            }
        }
    }

    fn os_device(&mut self, place: usize, kind: &str) {
        let object = &self.objects[place];
        let Some(name) = object.name() else { return };
        let kind = kind.split('(').next().unwrap_or_default();
        let function = self.around(place).find_map(|at| self.address(at));
        let from = self.from("lstopo");
        let kind = match kind {
            "Net" | "Network" => {
                let entry = self.survey.interfaces.entry(name.to_owned()).or_default();
                function.into_iter().for_each(|address| entry.function.set(address, from));
                return;
            }
            "Block" => "block",
            "OpenFabrics" => "infiniband",
            "GPU" => "gpu",
            "CoProc" | "Co-Processor" => "coproc",
            _ => return,
        };
        let entry = self.survey.devices.entry(name.to_owned()).or_default();
        function.into_iter().for_each(|address| entry.function.set(address, from));
        entry.kind.set(kind.to_owned(), from);
    }

    /// The matrix of latencies behind the objects, by lstopo's own numbers: version 1 has them as multiples of the nearest.
    fn distances(&mut self, text: &str) {
        let mut lines = text.lines().skip_while(|line| {
            let line = line.to_ascii_lowercase();
            !(line.starts_with("relative latency matrix") && line.contains("numanode"))
        });
        let own = |number: &str| {
            let place: usize = number.parse().ok()?;
            self.nodes.get(place).map(|(_, number)| *number)
        };
        let Some(header) = lines.nth(1) else { return };
        let columns: Vec<Option<u32>> = header.split_whitespace().skip(1).take(1024).map(own).collect();
        for line in lines.take(columns.len()) {
            let mut words = line.split_whitespace();
            let Some(row) = words.next().and_then(own) else { break };
            for (column, value) in columns.iter().zip(words) {
                let scale = if value.contains('.') { 10.0 } else { 1.0 };
                if let Some((column, value)) = column.zip(value.parse::<f64>().ok()) {
                    self.survey.distances.insert((row, column), (value * scale).round() as u32);
                }
            }
        }
    }
}

impl<'t> LstopoObject<'t> {
    /// The first word in the brackets, such as a class, or a kind of memory: `NUMANode(HBM)`.
    fn kind_in_brackets(&self) -> Option<&'t str> {
        let word = self.text.split_once('(')?.1.split([' ', ')']).next()?;
        let is_word = !word.is_empty() && !word.contains(['#', '=']) && bytes(word).is_none();
        is_word.then_some(word)
    }
}
