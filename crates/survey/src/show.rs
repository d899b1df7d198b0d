//! A survey as text: all of it for comparison, and a screen of it for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::model::Survey;
use crate::pci::{LaneSpeed, PciAddress, PciFunction};

impl Survey {
    /// Everything that is known, one line each, with where it was read.
    pub fn dump(&self) -> String {
        let mut text = String::new();
        let mut write = |about: &str, known: Vec<(&'static str, String, crate::Origin)>| {
            // Facts of one place are on one line.
            let mut by_place: Vec<(String, Vec<String>)> = Vec::new();
            for (name, value, origin) in known {
                let place = self.shown(origin);
                let entry = format!("{name}={value}");
                match by_place.iter_mut().find(|(known, _)| *known == place) {
                    Some((_, entries)) => entries.push(entry),
                    None => by_place.push((place, vec![entry])),
                }
            }
            let _ = writeln!(text, "{about}");
            for (place, entries) in by_place {
                let _ = writeln!(text, "  {} ({place})", entries.join(" "));
            }
        };
        write("machine", self.machine.known());
        self.nodes.iter().for_each(|(number, node)| write(&format!("node {number}"), node.known()));
        self.cpus.iter().for_each(|(number, cpu)| write(&format!("cpu {number}"), cpu.known()));
        self.caches.iter().for_each(|((level, kind, cpus), cache)| {
            write(&format!("L{level}{kind} of {cpus}"), cache.known())
        });
        for (address, function) in &self.functions {
            let parent = self.parent(*address).map_or("a root".to_owned(), |parent| parent.to_string());
            write(&format!("{address} below {parent}"), function.known());
        }
        self.interfaces.iter().for_each(|(name, of)| write(name, of.known()));
        self.devices.iter().for_each(|(name, of)| write(name, of.known()));
        self.irqs.iter().for_each(|(number, of)| write(&format!("irq {number}"), of.known()));
        self.processes.iter().for_each(|(pid, of)| write(&format!("process {pid}"), of.known()));
        self.threads.iter().for_each(|(number, of)| write(&format!("thread {number}"), of.known()));
        for ((a, b), distance) in &self.distances {
            let _ = writeln!(text, "distance {a} {b} {distance}");
        }
        for ((a, b), join) in self.paths.iter().chain(&self.fabric) {
            let _ = writeln!(text, "between {a} {b} {join}");
        }
        for (number, name) in &self.packages {
            let _ = writeln!(text, "package {number} {name}");
        }
        for doubt in &self.doubts {
            let _ = writeln!(text, "doubt {}: {}", doubt.about, doubt.message);
        }
        text
    }

    /// What the machine is, in a few lines, and its devices as a tree.
    pub fn overview(&self) -> String {
        let mut text = String::new();
        let name = self.machine.product.get().map_or("a machine", |name| name.as_str());
        let cpu = self.cpu_name();
        let packages = self.packages.len();
        let of =
            |count: usize, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
        let _ = write!(text, "{name}: ");
        if packages > 0 {
            let _ = write!(text, "{} x ", of(packages, "socket", "sockets"));
        }
        let _ = writeln!(text, "{}", cpu.as_deref().unwrap_or("CPUs of unknown name"));
        if !self.cpus.is_empty() {
            let _ =
                write!(text, "{}, {}", of(self.cores(), "core", "cores"), of(self.cpus.len(), "CPU", "CPUs"));
            let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
            self.cpus
                .values()
                .flat_map(|cpu| cpu.kind.get())
                .for_each(|kind| *kinds.entry(kind).or_default() += 1);
            if kinds.len() > 1 {
                let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
                let _ = write!(text, " ({})", kinds.join(", "));
            }
            text.push('\n');
        }
        for (number, node) in &self.nodes {
            let cpus = node.cpus.get().filter(|cpus| !cpus.is_empty());
            let _ = write!(text, "node {number}: ");
            let memory = node.memory_bytes.value().map_or("memory of unknown size".into(), size);
            let kind = node.kind.get().map_or(String::new(), |kind| format!(" ({kind})"));
            let cache = node.cache_bytes.value();
            let cache = cache.map_or(String::new(), |bytes| format!(" behind {} of cache", size(bytes)));
            let _ = write!(text, "{memory}{kind}{cache}, ");
            match cpus {
                Some(cpus) => {
                    let _ = write!(text, "CPUs {}", shortened(&cpus.to_string(), 60));
                }
                None => match node.near_cpus.get() {
                    Some(cpus) => {
                        let _ = write!(text, "no CPUs, near {}", shortened(&cpus.to_string(), 60));
                    }
                    None => text.push_str("no CPUs"),
                },
            }
            let others: Vec<_> = self
                .distances
                .iter()
                .filter(|((a, b), _)| a == number && a != b)
                .map(|((_, b), far)| format!("{b}:{far}"))
                .collect();
            if !others.is_empty() {
                let _ = write!(text, ", distances {}", shortened(&others.join(" "), 40));
            }
            text.push('\n');
        }
        let tree = self.tree();
        for root in tree.get(&None).into_iter().flatten() {
            self.branch(&tree, *root, 0, &mut text);
        }
        if let Some(functions) = Some(self.functions.len()).filter(|&count| count > 0) {
            let shown = text
                .lines()
                .filter(|line| {
                    line.trim_start().split(' ').next().is_some_and(|word| word.parse::<PciAddress>().is_ok())
                })
                .count();
            if shown < functions {
                let _ = writeln!(
                    text,
                    "(and {} of chipset, uncore and empty slots)",
                    of(functions - shown, "function", "functions")
                );
            }
        }
        text
    }

    /// The CPU's name, or what family and model are.
    pub fn cpu_name(&self) -> Option<String> {
        let machine = &self.machine;
        let named = self.packages.values().find(|name| !name.is_empty());
        machine.cpu.get().or(named).cloned().or_else(|| {
            let numbers = machine.cpu_family.value().zip(machine.cpu_model.value())?;
            let vendor = machine.cpu_vendor.get().map_or("", |vendor| vendor.as_str());
            Some(format!("{vendor} family {} model {}", numbers.0, numbers.1))
        })
    }

    /// Whether anything below is worth a line.
    pub(crate) fn matters(
        &self,
        tree: &BTreeMap<Option<PciAddress>, Vec<PciAddress>>,
        address: PciAddress,
    ) -> bool {
        // Where classes are not told, all that is below a bridge.
        let is_unclear = self.functions[&address].class.get().is_none() && self.parent(address).is_some();
        self.is_device(address)
            || is_unclear
            || tree.get(&Some(address)).into_iter().flatten().any(|child| self.matters(tree, *child))
    }

    fn branch(
        &self,
        tree: &BTreeMap<Option<PciAddress>, Vec<PciAddress>>,
        address: PciAddress,
        depth: usize,
        text: &mut String,
    ) {
        if depth > 64 || !self.matters(tree, address) {
            return;
        }
        let function = &self.functions[&address];
        let _ = write!(text, "{:1$}{address} {2}", "", 2 * depth, self.describe(address));
        if depth == 0
            && let Some(node) = self.node_of(address)
        {
            let _ = write!(text, ", node {node}");
        }
        let link = link_text(function);
        if !link.is_empty() {
            let _ = write!(text, ", {link}");
        }
        text.push('\n');
        let children = tree.get(&Some(address)).map_or(&[][..], Vec::as_slice);
        // Virtual functions of one physical function are one line.
        let is_vf = |child: &&PciAddress| self.functions[child].physical.value().is_some();
        let vfs = children.iter().filter(is_vf).count();
        for child in children.iter().filter(|child| vfs <= 4 || !is_vf(child)) {
            self.branch(tree, *child, depth + 1, text);
        }
        if vfs > 4 {
            let first = children.iter().find(is_vf).copied().unwrap_or(address);
            let _ =
                writeln!(text, "{:1$}{first} and {2} further virtual functions", "", 2 * depth + 2, vfs - 1);
        }
    }

    /// What a function is, in words.
    pub fn describe(&self, address: PciAddress) -> String {
        let function = &self.functions[&address];
        let mut words = match (function.class.value(), function.kind.value()) {
            (Some(class), _) if !class.is_bridge() => class.name().to_owned(),
            (_, Some(kind)) => kind.to_string(),
            (Some(class), _) => class.name().to_owned(),
            _ => "function".to_owned(),
        };
        match function.name.get() {
            Some(name) if !function.is(crate::PciClass::is_bridge) => words = shortened(name, 56),
            _ => {
                if let Some((vendor, device)) =
                    function.vendor.value().zip(function.device.value()).filter(|ids| ids.0.0 != 0xffff)
                {
                    let _ = write!(words, " {vendor}:{device}");
                }
            }
        }
        let names = self.names_of(address);
        if !names.is_empty() {
            let _ = write!(words, " [{}]", shortened(&names.join(" "), 40));
        }
        words
    }
}

/// A link as negotiated, and what else it could be.
pub(crate) fn link_text(function: &PciFunction) -> String {
    let of = |speed: Option<LaneSpeed>, width: Option<u32>| match (speed, width) {
        (Some(speed), Some(width)) => Some(format!("x{width} {speed}")),
        (Some(speed), None) => Some(speed.to_string()),
        (None, Some(width)) => Some(format!("x{width}")),
        (None, None) => None,
    };
    let now = of(function.speed.value(), function.width.value());
    let most = of(function.max_speed.value(), function.max_width.value());
    match (now, most) {
        (Some(now), Some(most)) if now != most => format!("{now} (can {most})"),
        (Some(now), _) => now,
        (None, Some(most)) => format!("no link (can {most})"),
        (None, None) => {
            function.link_gb_per_s.value().map_or(String::new(), |rate| format!("{rate:.2} GB/s"))
        }
    }
}

/// A size in the largest unit that leaves a number above one.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..0x100000 => format!("{} KiB", bytes >> 10),
        0x100000..0x40000000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// A text's beginning, if all of it is too long.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 3).chain("...".chars()).collect(),
        false => text.to_owned(),
    }
}
