//! hwloc's XML, version 2.

use std::collections::BTreeMap;

use super::XmlText;
use crate::model::Survey;
use crate::numbers::NumberSet;
use crate::pci::{PciAddress, PciClass};

/// Level above all caches.
const ABOVE_CACHES: u32 = 6;

/// What is being written.
struct HwlocText<'s> {
    survey: &'s Survey,
    xml: XmlText,
    /// The number of the next object.
    next: u64,
    /// Functions by the bridge above.
    tree: BTreeMap<Option<PciAddress>, Vec<PciAddress>>,
}

/// Sets as hwloc writes them.
fn mask(set: &NumberSet) -> String {
    set.to_mask().split(',').map(|word| format!("0x{word}")).collect::<Vec<_>>().join(",")
}

impl Survey {
    /// The machine as `lstopo -i` reads it.
    pub fn to_hwloc_xml(&self) -> String {
        let mut text = HwlocText { survey: self, xml: XmlText::default(), next: 1, tree: self.tree() };
        text.xml.text =
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n".into();
        text.xml.open("topology", &[("version", "2.0".into())]);
        text.machine();
        text.distances();
        text.xml.close("topology");
        text.xml.text
    }
}

impl HwlocText<'_> {
    /// An object's attributes with its number, and its sets if it has any.
    fn attributes(
        &mut self,
        kind: &str,
        sets: Option<(&NumberSet, &NumberSet)>,
    ) -> Vec<(&'static str, String)> {
        let mut all = vec![("type", kind.to_owned())];
        if let Some((cpus, nodes)) = sets {
            all.extend([("cpuset", mask(cpus)), ("complete_cpuset", mask(cpus))]);
            all.extend([("nodeset", mask(nodes)), ("complete_nodeset", mask(nodes))]);
        }
        all.push(("gp_index", self.next.to_string()));
        self.next += 1;
        all
    }

    fn info(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.xml.empty("info", &[("name", name.to_owned()), ("value", value)]);
        }
    }

    fn machine(&mut self) {
        let survey = self.survey;
        let cpus: NumberSet = match survey.cpus.is_empty() {
            true => NumberSet::from_iter([0]),
            false => survey.cpus.keys().copied().collect(),
        };
        // hwloc has at least one node.
        let nodes: NumberSet = if survey.nodes.is_empty() {
            NumberSet::from_iter([0])
        } else {
            survey.nodes.keys().copied().collect()
        };
        let mut attributes = self.attributes("Machine", Some((&cpus, &nodes)));
        attributes.extend([
            ("os_index", "0".into()),
            ("allowed_cpuset", mask(&cpus)),
            ("allowed_nodeset", mask(&nodes)),
        ]);
        self.xml.open("object", &attributes);
        self.info("DMIProductName", survey.machine.product.get().cloned());
        self.info("Architecture", survey.machine.architecture.get().cloned());
        self.info("OSRelease", survey.machine.kernel.get().cloned());
        let own =
            |node: &u32| survey.nodes.get(node).and_then(|node| node.cpus.get().cloned()).unwrap_or_default();
        // Memory without CPUs belongs to the whole machine.
        let bare: Vec<u32> =
            nodes.iter().filter(|node| own(node).is_empty() && !survey.nodes.is_empty()).collect();
        for node in bare {
            self.memory(node, &NumberSet::default());
        }
        let packages = self.packages(&cpus);
        for (number, cpus) in &packages {
            self.package(*number, cpus, &nodes);
        }
        // Devices whose node is not known, or has no package.
        let is_elsewhere = |node: Option<u32>| {
            !node.is_some_and(|node| {
                packages.iter().any(|(_, cpus)| !own(&node).is_empty() && own(&node).meets(cpus))
            })
        };
        let elsewhere = self.roots(|survey, address| is_elsewhere(survey.node_of(address)));
        self.host_bridges(&elsewhere);
        self.xml.close("object");
    }

    /// Packages with their CPUs; a node with CPUs, or all CPUs, where packages are not told.
    fn packages(&self, all: &NumberSet) -> Vec<(u32, NumberSet)> {
        let survey = self.survey;
        let mut packages: BTreeMap<u32, NumberSet> = BTreeMap::new();
        for (cpu, own) in &survey.cpus {
            let number = own.package.value().or(own.node.value()).unwrap_or(0);
            let set = packages.entry(number).or_default();
            *set = set.iter().chain([*cpu]).collect();
        }
        match packages.is_empty() {
            true => vec![(0, all.clone())],
            false => packages.into_iter().collect(),
        }
    }

    fn package(&mut self, number: u32, cpus: &NumberSet, all_nodes: &NumberSet) {
        let survey = self.survey;
        let mut within: Vec<(u32, NumberSet)> = Vec::new();
        for node in all_nodes.iter() {
            let own = survey.nodes.get(&node).and_then(|node| node.cpus.get().cloned());
            // A machine without nodes has one.
            let own = own.or(survey.nodes.is_empty().then(|| cpus.clone())).unwrap_or_default();
            let here: NumberSet = own.iter().filter(|cpu| cpus.contains(*cpu)).collect();
            if !here.is_empty() && own.iter().next().is_some_and(|first| cpus.contains(first)) {
                within.push((node, here));
            }
        }
        let nodes: NumberSet = within.iter().map(|(node, _)| *node).collect();
        // hwloc wants each object to be near some node.
        let nodes = if nodes.is_empty() { all_nodes.clone() } else { nodes };
        let mut attributes = self.attributes("Package", Some((cpus, &nodes)));
        attributes.push(("os_index", number.to_string()));
        self.xml.open("object", &attributes);
        let name = survey.packages.get(&number).filter(|name| !name.is_empty()).cloned();
        self.info("CPUVendor", survey.machine.cpu_vendor.get().cloned());
        self.info("CPUFamilyNumber", survey.machine.cpu_family.value().map(|family| family.to_string()));
        self.info("CPUModelNumber", survey.machine.cpu_model.value().map(|model| model.to_string()));
        self.info("CPUModel", name.or_else(|| survey.machine.cpu.get().cloned()));
        match &within[..] {
            [(node, own)] if own == cpus => {
                self.memory(*node, cpus);
                self.caches(cpus, &nodes, ABOVE_CACHES);
                self.devices_of(*node);
            }
            _ => {
                let mut left: NumberSet = cpus.clone();
                for (node, own) in &within {
                    let one = NumberSet::from_iter([*node]);
                    let mut attributes = self.attributes("Group", Some((own, &one)));
                    attributes.extend([("kind", "1001".to_owned()), ("subkind", "0".to_owned())]);
                    self.xml.open("object", &attributes);
                    self.memory(*node, own);
                    self.caches(own, &one, ABOVE_CACHES);
                    self.devices_of(*node);
                    self.xml.close("object");
                    left = left.iter().filter(|cpu| !own.contains(*cpu)).collect();
                }
                if !left.is_empty() {
                    self.caches(&left, &nodes, ABOVE_CACHES);
                }
            }
        }
        self.xml.close("object");
    }

    fn memory(&mut self, node: u32, cpus: &NumberSet) {
        let own = self.survey.nodes.get(&node);
        let set = NumberSet::from_iter([node]);
        let mut attributes = self.attributes("NUMANode", Some((cpus, &set)));
        attributes.push(("os_index", node.to_string()));
        let bytes = own
            .and_then(|own| own.memory_bytes.value())
            .or_else(|| self.survey.machine.memory_bytes.value().filter(|_| own.is_none()));
        attributes.extend(bytes.map(|bytes| ("local_memory", bytes.to_string())));
        attributes.extend(own.and_then(|own| own.kind.get()).map(|kind| ("subtype", kind.clone())));
        self.xml.open("object", &attributes);
        self.xml.empty(
            "page_type",
            &[("size", "4096".into()), ("count", (bytes.unwrap_or(0) / 4096).to_string())],
        );
        self.xml.close("object");
    }

    /// Caches below a level that these CPUs share, outermost first, then cores.
    fn caches(&mut self, cpus: &NumberSet, nodes: &NumberSet, level: u32) {
        let survey = self.survey;
        let inside = |set: &NumberSet| !set.is_empty() && set.iter().all(|cpu| cpus.contains(cpu));
        let fits = survey.caches.keys().filter(|(of, kind, set)| *of < level && *kind != "i" && inside(set));
        let Some(next) = fits.clone().map(|(of, ..)| *of).max() else { return self.cores(cpus, nodes) };
        let own: Vec<_> = fits.filter(|(of, ..)| *of == next).cloned().collect();
        let mut left: NumberSet = cpus.clone();
        for key in own {
            let (_, kind, set) = &key;
            // One that overlaps another cannot be nested.
            if !set.iter().all(|cpu| left.contains(cpu)) {
                continue;
            }
            let cache = &survey.caches[&key];
            let mut attributes = self.attributes(&format!("L{next}Cache"), Some((set, nodes)));
            let kind = if *kind == "d" { "1" } else { "0" };
            attributes.extend([
                ("cache_size", cache.size_bytes.value().unwrap_or(0).to_string()),
                ("depth", next.to_string()),
                ("cache_linesize", cache.line_bytes.value().unwrap_or(64).to_string()),
                ("cache_associativity", cache.ways.value().map_or(0, |ways| ways).to_string()),
                ("cache_type", kind.to_owned()),
            ]);
            self.xml.open("object", &attributes);
            self.caches(set, nodes, next);
            self.xml.close("object");
            left = left.iter().filter(|cpu| !set.contains(*cpu)).collect();
        }
        if !left.is_empty() {
            self.caches(&left, nodes, next);
        }
    }

    fn cores(&mut self, cpus: &NumberSet, nodes: &NumberSet) {
        let mut cores: BTreeMap<(u32, u32), NumberSet> = BTreeMap::new();
        for cpu in cpus.iter() {
            let own = self.survey.cpus.get(&cpu);
            let package = own.and_then(|own| own.package.value()).unwrap_or(0);
            let core = own.and_then(|own| own.core.value());
            let set = cores.entry((package, core.unwrap_or(cpu))).or_default();
            *set = set.iter().chain([cpu]).collect();
        }
        for ((_, core), cpus) in cores {
            let mut attributes = self.attributes("Core", Some((&cpus, nodes)));
            attributes.push(("os_index", core.to_string()));
            self.xml.open("object", &attributes);
            for cpu in cpus.iter() {
                let mut attributes = self.attributes("PU", Some((&NumberSet::from_iter([cpu]), nodes)));
                attributes.push(("os_index", cpu.to_string()));
                self.xml.empty("object", &attributes);
            }
            self.xml.close("object");
        }
    }

    /// Functions without a bridge above for which this holds.
    fn roots(&self, of: impl Fn(&Survey, PciAddress) -> bool) -> Vec<PciAddress> {
        let roots = self.tree.get(&None).into_iter().flatten().copied();
        roots.filter(|address| of(self.survey, *address)).collect()
    }

    fn devices_of(&mut self, node: u32) {
        let roots = self.roots(|survey, address| survey.node_of(address) == Some(node));
        self.host_bridges(&roots);
    }

    /// Root buses, each with its functions.
    fn host_bridges(&mut self, roots: &[PciAddress]) {
        let mut buses: BTreeMap<(u32, u8), Vec<PciAddress>> = BTreeMap::new();
        for root in roots {
            buses.entry((root.segment, root.bdf.bus())).or_default().push(*root);
        }
        for ((segment, bus), functions) in buses {
            let last = functions.iter().map(|function| self.last_bus(*function)).max().unwrap_or(bus);
            let mut attributes = self.attributes("Bridge", None);
            attributes.extend([
                ("bridge_type", "0-1".to_owned()),
                ("depth", "0".to_owned()),
                ("bridge_pci", format!("{segment:04x}:[{bus:02x}-{last:02x}]")),
            ]);
            self.xml.open("object", &attributes);
            functions.iter().for_each(|function| self.function(*function, 1));
            self.xml.close("object");
        }
    }

    /// The last bus below a function.
    fn last_bus(&self, address: PciAddress) -> u8 {
        let below =
            self.tree.get(&Some(address)).into_iter().flatten().map(|child| self.last_bus(*child)).max();
        let told = self.survey.functions[&address].buses.value().map(|buses| buses.subordinate);
        below.max(told).unwrap_or(address.bdf.bus()).max(address.bdf.bus())
    }

    fn function(&mut self, address: PciAddress, depth: usize) {
        // What is nested deeper is damage.
        if depth > 64 {
            return;
        }
        let survey = self.survey;
        let function = &survey.functions[&address];
        let children = self.tree.get(&Some(address)).cloned().unwrap_or_default();
        let is_bridge = function.is(PciClass::is_bridge) || !children.is_empty();
        let mut attributes = self.attributes(if is_bridge { "Bridge" } else { "PCIDev" }, None);
        if is_bridge {
            let first = function.buses.value().map(|buses| buses.secondary);
            let first = first.or(children.first().map(|child| child.bdf.bus())).unwrap_or(address.bdf.bus());
            attributes.extend([
                ("bridge_type", "1-1".to_owned()),
                ("depth", depth.to_string()),
                (
                    "bridge_pci",
                    format!("{:04x}:[{first:02x}-{:02x}]", address.segment, self.last_bus(address)),
                ),
            ]);
        }
        let id = |id: Option<u16>| id.unwrap_or_default();
        let class = function.class.value().map_or(0x0604, |class| class.0);
        attributes.push(("pci_busid", address.to_string()));
        attributes.push((
            "pci_type",
            format!(
                "{class:04x} [{:04x}:{:04x}] [{:04x}:{:04x}] {:02x}",
                id(function.vendor.value().map(|id| id.0)),
                id(function.device.value().map(|id| id.0)),
                id(function.subsystem_vendor.value().map(|id| id.0)),
                id(function.subsystem_device.value().map(|id| id.0)),
                function.revision.value().unwrap_or(0)
            ),
        ));
        attributes.push(("pci_link_speed", format!("{:.6}", function.gb_per_s().unwrap_or(0.0))));
        self.xml.open("object", &attributes);
        self.info("PCIDevice", function.name.get().or(function.label.get()).cloned());
        children.iter().for_each(|child| self.function(*child, depth + 1));
        for name in survey.names_of(address) {
            let name = name.to_owned();
            let kind =
                survey.devices.get(&name).and_then(|device| device.kind.get()).map_or("net", String::as_str);
            // 0 block, 1 GPU, 2 network, 3 OpenFabrics.
            let (number, subtype) = match kind {
                "net" => ("2", None),
                "infiniband" => ("3", None),
                "gpu" => ("1", None),
                "block" | "nvme" => ("0", Some("Disk")),
                _ => ("5", None),
            };
            let mut attributes = self.attributes("OSDev", None);
            attributes.extend([("name", name), ("osdev_type", number.to_owned())]);
            attributes.extend(subtype.map(|subtype| ("subtype", subtype.to_owned())));
            self.xml.empty("object", &attributes);
        }
        self.xml.close("object");
    }

    fn distances(&mut self) {
        let nodes: Vec<u32> = self.survey.nodes.keys().copied().collect();
        let pairs = nodes.iter().flat_map(|a| nodes.iter().map(move |b| (*a, *b)));
        let values: Option<Vec<String>> =
            pairs.map(|pair| self.survey.distances.get(&pair).map(u32::to_string)).collect();
        let Some(values) = values.filter(|_| nodes.len() > 1) else { return };
        self.xml.open(
            "distances2",
            &[
                ("type", "NUMANode".into()),
                ("nbobjs", nodes.len().to_string()),
                ("kind", "5".into()),
                ("name", "NUMALatency".into()),
                ("indexing", "os".into()),
            ],
        );
        let list = |values: &[String]| format!("{} ", values.join(" "));
        for (name, values) in [("indexes", nodes.iter().map(u32::to_string).collect()), ("u64values", values)]
        {
            let text = list(&values);
            let indent = 2 * self.xml.depth;
            self.xml.text += &format!("{:indent$}<{name} length=\"{}\">{text}</{name}>\n", "", text.len());
        }
        self.xml.close("distances2");
    }
}
