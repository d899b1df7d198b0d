//! NCCL's topology: CPUs by node, with switches, GPUs and NICs below them. Root ports have no place there.

use super::XmlText;
use crate::model::Survey;
use crate::pci::{PciAddress, PciClass};

/// NCCL adds a CPU's extended family four bits higher than CPUID's users do.
fn told_family(family: u32) -> u32 {
    if family > 0xf { 0xf + ((family - 0xf) << 4) } else { family }
}

/// What a copy from one GPU to another moves, by the GPUs' numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NcclRate {
    /// The source.
    pub from: usize,
    /// The destination.
    pub to: usize,
    /// Of one copy, in GB/s.
    pub one_way: f64,
    /// Of two, one each way, in GB/s.
    pub both_ways: Option<f64>,
    /// Time of a flag, in microseconds.
    pub flag: Option<f64>,
}

/// What NCCL takes a lane of a link to carry, in GB/s, by the speed that the kernel names (`kvDictPciGen` of its topology code).
fn lane(speed: &str) -> f64 {
    match speed.split('.').next() {
        Some("2") => 0.1875,
        Some("5") => 0.375,
        Some("16") => 1.5,
        Some("32") => 3.0,
        Some("64") => 6.0,
        _ => 0.75,
    }
}

impl Survey {
    /// The machine as `NCCL_TOPO_FILE` takes it.
    pub fn to_nccl_xml(&self) -> String {
        self.to_nccl_xml_with(&[])
    }

    /// The same with rates between its GPUs. As NCCL counts a link's bandwidth by speed and lanes alone, each has as many lanes as carry
    /// the fastest copy that passes it; and each GPU has a `peer` for each other one, which NCCL skips.
    pub fn to_nccl_xml_with(&self, rates: &[NcclRate]) -> String {
        let mut xml = XmlText::default();
        xml.open("system", &[("version", "1".into())]);
        let devices: Vec<PciAddress> = self
            .functions
            .keys()
            .copied()
            .filter(|address| {
                self.is_accelerator(*address) || self.functions[address].is(PciClass::is_network)
            })
            .collect();
        // What is on the way to them, outermost first.
        let ways: Vec<Vec<PciAddress>> = devices.iter().map(|device| self.nccl_way(*device)).collect();
        let nodes: Vec<Option<u32>> = match self.nodes.is_empty() {
            true => vec![None],
            false => self.nodes.keys().map(|node| Some(*node)).collect(),
        };
        for (place, node) in nodes.iter().enumerate() {
            // What is nowhere is at the first.
            let here = |way: &&Vec<PciAddress>| {
                let of = way.last().and_then(|device| self.node_of(*device));
                of == *node || place == 0 && (of.is_none() || !nodes.contains(&of))
            };
            let own: Vec<&Vec<PciAddress>> = ways.iter().filter(here).collect();
            let cpus = node.and_then(|node| self.nodes[&node].cpus.get().cloned()).unwrap_or_default();
            if own.is_empty() && cpus.is_empty() {
                continue;
            }
            let number = node.map_or("-1".to_owned(), |node| node.to_string());
            let mut attributes = vec![("numaid", number), ("affinity", cpus.to_mask())];
            let machine = &self.machine;
            attributes.push(("arch", machine.architecture.get().cloned().unwrap_or_else(|| "x86_64".into())));
            attributes.extend(machine.cpu_vendor.get().map(|vendor| ("vendor", vendor.clone())));
            attributes.extend(
                machine.cpu_family.value().map(|family| ("familyid", told_family(family).to_string())),
            );
            attributes.extend(machine.cpu_model.value().map(|model| ("modelid", model.to_string())));
            xml.open("cpu", &attributes);
            self.nccl_below(&mut xml, &own.iter().map(|way| way.as_slice()).collect::<Vec<_>>(), rates);
            xml.close("cpu");
        }
        xml.close("system");
        xml.text
    }

    /// The upstream ports of the switches above a device, outermost first, and the device.
    fn nccl_way(&self, device: PciAddress) -> Vec<PciAddress> {
        // Nearest first, ports alternate: downstream, upstream, ..., and the root port is the last.
        let above = self.above(device);
        let mut way: Vec<PciAddress> = above.iter().copied().skip(1).step_by(2).collect();
        way.reverse();
        way.push(device);
        way
    }

    /// Ways with the same first element share it.
    fn nccl_below(&self, xml: &mut XmlText, ways: &[&[PciAddress]], rates: &[NcclRate]) {
        let mut done: Vec<PciAddress> = Vec::new();
        for first in ways.iter().filter_map(|way| way.first().copied()) {
            if done.contains(&first) {
                continue;
            }
            done.push(first);
            let rest: Vec<&[PciAddress]> =
                ways.iter().filter(|way| way.first() == Some(&first)).map(|way| &way[1..]).collect();
            let function = &self.functions[&first];
            let hex = |value: Option<u16>| format!("0x{:04x}", value.unwrap_or_default());
            let class = function.class.value().map_or(0, |class| class.0);
            // As the kernel spells it, `8.0 GT/s PCIe`.
            let spelled = |speed: String| match speed.contains('.') {
                true => format!("{speed} PCIe"),
                false => format!("{} PCIe", speed.replace(" GT/s", ".0 GT/s")),
            };
            let speed = function.speed.value().map_or("Unknown".into(), |speed| spelled(speed.to_string()));
            let ends: Vec<PciAddress> = ways
                .iter()
                .filter(|way| way.first() == Some(&first))
                .filter_map(|way| way.last().copied())
                .collect();
            let below: Vec<usize> = ends
                .iter()
                .filter(|end| self.is_accelerator(**end))
                .map(|end| self.accelerator_number(*end))
                .collect();
            let passes = |rate: &&NcclRate| below.contains(&rate.from) != below.contains(&rate.to);
            let fastest = rates.iter().filter(passes).map(|rate| rate.one_way).fold(0.0, f64::max);
            let lanes = match fastest > 0.0 {
                true => (fastest / lane(&speed)).round().max(1.0) as u32,
                false => function.width.value().unwrap_or_default(),
            };
            xml.open(
                "pci",
                &[
                    ("busid", first.to_string()),
                    ("class", format!("0x{class:04x}00")),
                    ("vendor", hex(function.vendor.value().map(|id| id.0))),
                    ("device", hex(function.device.value().map(|id| id.0))),
                    ("subsystem_vendor", hex(function.subsystem_vendor.value().map(|id| id.0))),
                    ("subsystem_device", hex(function.subsystem_device.value().map(|id| id.0))),
                    ("link_speed", speed),
                    ("link_width", lanes.to_string()),
                ],
            );
            if self.is_accelerator(first) {
                let number = self.accelerator_number(first);
                xml.open("gpu", &[("dev", number.to_string()), ("gdr", "1".to_owned())]);
                for ((from, to), joined) in &self.fabric {
                    let count = joined.strip_suffix(" links").filter(|_| *from == first.to_string());
                    if let Some(count) = count {
                        xml.empty(
                            "nvlink",
                            &[
                                ("target", to.clone()),
                                ("count", count.to_owned()),
                                ("tclass", "0x068000".into()),
                            ],
                        );
                    }
                }
                for rate in rates.iter().filter(|rate| rate.from == number) {
                    let mut attributes =
                        vec![("dev", rate.to.to_string()), ("gb_per_s", format!("{:.2}", rate.one_way))];
                    attributes
                        .extend(rate.both_ways.map(|both| ("both_ways_gb_per_s", format!("{both:.2}"))));
                    attributes.extend(rate.flag.map(|flag| ("flag_us", format!("{flag:.3}"))));
                    xml.empty("peer", &attributes);
                }
                xml.close("gpu");
            }
            let own: Vec<_> =
                self.interfaces.iter().filter(|(_, net)| net.function.value() == Some(first)).collect();
            if !own.is_empty() {
                xml.open("nic", &[]);
                for (number, (name, net)) in own.iter().enumerate() {
                    let mut attributes = vec![("name", (*name).clone()), ("dev", number.to_string())];
                    attributes.extend(net.mbit_per_s.value().map(|rate| ("speed", rate.to_string())));
                    xml.empty("net", &attributes);
                }
                xml.close("nic");
            }
            self.nccl_below(xml, &rest, rates);
            xml.close("pci");
        }
    }

    /// An accelerator's number among all of them.
    fn accelerator_number(&self, own: PciAddress) -> usize {
        let all = self.functions.keys().filter(|address| self.is_accelerator(**address));
        all.filter(|address| **address < own).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_machine_is_a_system() {
        let xml = Survey::default().to_nccl_xml();
        assert!(
            xml.starts_with("<system version=\"1\">\n")
                && crate::numbers::NumberSet::default().to_mask() == "00000000",
            "{xml}"
        );
    }
}
