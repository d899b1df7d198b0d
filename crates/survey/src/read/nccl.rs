//! NCCL's topology XML, as `NCCL_TOPO_DUMP_FILE` writes it and clouds give it.

use roxmltree::Node;

use super::xml;
use crate::fact::Origin;
use crate::model::Survey;
use crate::numbers::NumberSet;
use crate::pci::{LaneSpeed, PciAddress, PciClass, PciFunction, PciNumber};

/// Reads a text.
///
/// # Errors
/// If it is not XML.
pub fn read(text: &str, source: usize) -> Result<Survey, String> {
    let document = xml::parse(text)?;
    let mut reader = NcclReader { survey: Survey::default(), source };
    for cpu in xml::children(document.root_element()) {
        if cpu.tag_name().name() == "cpu" {
            reader.cpu(cpu);
        }
    }
    Ok(reader.survey)
}

struct NcclReader {
    survey: Survey,
    source: usize,
}

/// What is above an element.
#[derive(Clone, Copy)]
struct Above<'a> {
    node: Option<i32>,
    cpus: Option<&'a NumberSet>,
    bridge: Option<PciAddress>,
    depth: usize,
}

fn hex(node: Node<'_, '_>, name: &str) -> Option<u32> {
    u32::from_str_radix(node.attribute(name)?.trim().trim_start_matches("0x"), 16).ok()
}

/// The family as CPUID's users count it, which is that of /proc/cpuinfo: base and extended family added. NCCL adds the extended one
/// four bits higher (`familyId + (extFamilyId << 4)` in its graph/xml.cc).
fn family_of(told: u32) -> u32 {
    let (base, extended) = (told & 0xf, told >> 4);
    if base == 0xf { base + extended } else { told }
}

impl NcclReader {
    fn from(&self, what: &'static str) -> Origin {
        Origin { source: self.source, what }
    }

    fn cpu(&mut self, cpu: Node<'_, '_>) {
        let node: Option<i32> = cpu.attribute("numaid").and_then(|text| text.trim().parse().ok());
        let cpus = cpu.attribute("affinity").and_then(NumberSet::from_mask).filter(|cpus| !cpus.is_empty());
        if let Some(number) = node.and_then(|node| u32::try_from(node).ok()) {
            let from = self.from("cpu affinity");
            let node = self.survey.nodes.entry(number).or_default();
            cpus.iter().for_each(|cpus| node.cpus.set(cpus.clone(), from));
            for number_of_cpu in cpus.iter().flat_map(NumberSet::iter) {
                self.survey.cpus.entry(number_of_cpu).or_default().node.set(number, from);
            }
        }
        let (arch, vendor) = (self.from("cpu arch"), self.from("cpu vendor"));
        let (family, model) = (self.from("cpu familyid"), self.from("cpu modelid"));
        let machine = &mut self.survey.machine;
        cpu.attribute("arch").into_iter().for_each(|text| machine.architecture.set(text.to_owned(), arch));
        cpu.attribute("vendor").into_iter().for_each(|text| machine.cpu_vendor.set(text.to_owned(), vendor));
        let number = |name: &str| cpu.attribute(name).and_then(|text| text.trim().parse().ok());
        number("familyid")
            .map(family_of)
            .into_iter()
            .for_each(|number| machine.cpu_family.set(number, family));
        number("modelid").into_iter().for_each(|number| machine.cpu_model.set(number, model));
        let above = Above { node, cpus: cpus.as_ref(), bridge: None, depth: 0 };
        xml::children(cpu).for_each(|child| self.below(child, above));
    }

    fn below(&mut self, element: Node<'_, '_>, above: Above<'_>) {
        if above.depth >= xml::DEEPEST {
            return self
                .survey
                .doubt("NCCL's XML", "elements are nested deeper than in any machine; those are left");
        }
        match element.tag_name().name() {
            "pci" => self.function(element, above),
            "nic" => xml::children(element).for_each(|net| self.net(net, above)),
            "gpu" => self.gpu(element, above),
            _ => {}
        }
    }

    fn function(&mut self, pci: Node<'_, '_>, above: Above<'_>) {
        let from = |what| Origin { source: self.source, what };
        let id = pci.attribute("busid").unwrap_or_default();
        let Ok(address) = id.trim().parse::<PciAddress>() else {
            return self.survey.doubt("NCCL's XML", format!("`{id}` is no busid; the element is left"));
        };
        let mut function = PciFunction::default();
        let half = |name| hex(pci, name).and_then(|number| u16::try_from(number).ok()).map(PciNumber);
        if let Some(class) = hex(pci, "class") {
            function.class.set(PciClass((class >> 8) as u16), from("class"));
        }
        half("vendor").into_iter().for_each(|id| function.vendor.set(id, from("vendor")));
        half("device").into_iter().for_each(|id| function.device.set(id, from("device")));
        half("subsystem_vendor")
            .into_iter()
            .for_each(|id| function.subsystem_vendor.set(id, from("subsystem_vendor")));
        half("subsystem_device")
            .into_iter()
            .for_each(|id| function.subsystem_device.set(id, from("subsystem_device")));
        if let Some(speed) = pci.attribute("link_speed").and_then(LaneSpeed::from_text) {
            function.speed.set(speed, from("link_speed"));
        }
        let width = pci.attribute("link_width").and_then(|text| text.trim().parse().ok());
        width
            .filter(|&width| width > 0)
            .into_iter()
            .for_each(|width| function.width.set(width, from("link_width")));
        above.node.into_iter().for_each(|node| function.node.set(node, from("cpu numaid")));
        above.cpus.into_iter().for_each(|cpus| function.local_cpus.set(cpus.clone(), from("cpu affinity")));
        above.bridge.into_iter().for_each(|bridge| function.parent.set(bridge, from("the element above")));
        let address = self.survey.add_function(address, function);
        let within = Above { bridge: Some(address), depth: above.depth + 1, ..above };
        xml::children(pci).for_each(|child| self.below(child, within));
    }

    fn net(&mut self, net: Node<'_, '_>, above: Above<'_>) {
        let Some(name) = net.attribute("name").filter(|name| !name.is_empty() && name.len() < 64) else {
            return;
        };
        let (function, speed) = (self.from("the element above"), self.from("net speed"));
        let interface = self.survey.interfaces.entry(name.to_owned()).or_default();
        above.bridge.into_iter().for_each(|address| interface.function.set(address, function));
        let rate = net.attribute("speed").and_then(|text| text.trim().parse().ok());
        rate.into_iter().for_each(|rate| interface.mbit_per_s.set(rate, speed));
    }

    fn gpu(&mut self, gpu: Node<'_, '_>, above: Above<'_>) {
        let from = self.from("gpu");
        let (Some(address), Some(number)) = (above.bridge, gpu.attribute("dev")) else { return };
        let device = self.survey.devices.entry(format!("GPU{}", number.trim())).or_default();
        device.function.set(address, from);
        device.kind.set("gpu".to_owned(), from);
        for link in xml::children(gpu).filter(|link| link.tag_name().name() == "nvlink").take(64) {
            let count = link.attribute("count").unwrap_or("1");
            // Some dumps have a GPU's links to itself.
            let is_other = |target: &&str| target.parse() != Ok(address);
            if let Some(target) = link.attribute("target").filter(is_other) {
                let key = (address.to_string(), target.to_owned());
                self.survey.fabric.insert(key, format!("{count} links"));
            }
        }
    }
}
