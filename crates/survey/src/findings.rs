//! What holds a machine's devices up, the most costly first.
//!
//! Costs are of the closed-form model of a link (`analytic`) where a link alone decides; where cores, caches or memory do, they are left
//! to a simulation.

use analytic::{Direction, Generation, Link};
use units::Bytes;

use crate::fact::Sourced;
use crate::model::Survey;
use crate::numbers::{NumberSet, shell_word};
use crate::pci::{LaneSpeed, PciAddress, PciClass, PciFunction, PortKind};
use crate::settle::{LinkEnds, link_rate};

/// Something that costs a device, or a program that uses it.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Kind and subject; the same for the same thing in every run.
    pub id: String,
    /// The functions that it is about.
    pub functions: Vec<PciAddress>,
    /// What it is, in a sentence.
    pub title: String,
    /// What shows it.
    pub evidence: Vec<String>,
    /// What it costs.
    pub cost: FindingCost,
    /// What to type, or to do.
    pub cure: String,
    /// The link as it is, and as it could be, where that is what it is about.
    pub links: Option<[LinkSetting; 2]>,
}

/// A link and what a device asks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkSetting {
    /// Generation of PCI Express.
    pub generation: u32,
    /// Lanes.
    pub width: u32,
    /// Maximum payload, bytes.
    pub mps_bytes: u32,
    /// Maximum read request, bytes.
    pub mrrs_bytes: u32,
    /// Reads under way at most.
    pub tags: u32,
}

/// What a finding costs.
#[derive(Debug, Clone, PartialEq)]
pub struct FindingCost {
    /// The share of a rate that is lost, if it is known.
    pub share: Option<f64>,
    /// In words.
    pub text: String,
    /// Where the number is from.
    pub source: String,
}

/// Costs of the closed-form model.
pub const CLOSED_FORM: &str = "closed form of the link (nearfar model)";
/// Costs that a simulation tells.
pub const SIMULATE: &str = "not simulated: nearfar inspect --cost";

/// Bytes of a transfer that costs are told for: a page, the usual one of drives and GPUs.
const TRANSFER: Bytes = Bytes::new(4096);

impl FindingCost {
    fn lost(share: f64, text: String) -> Self {
        Self { share: Some(share.clamp(0.0, 1.0)), text, source: CLOSED_FORM.into() }
    }

    pub(crate) fn unknown(text: &str) -> Self {
        Self { share: None, text: text.to_owned(), source: SIMULATE.into() }
    }
}

impl Survey {
    /// All findings, those with the highest known cost first.
    pub fn findings(&self) -> Vec<Finding> {
        let finder = Inspection { survey: self };
        let mut all = Vec::new();
        for (address, function) in &self.functions {
            finder.link(*address, function, &mut all);
            if !self.is_device(*address) || function.physical.value().is_some() {
                continue;
            }
            finder.sizes(*address, function, &mut all);
            finder.tags(*address, function, &mut all);
            finder.ordering(*address, function, &mut all);
            finder.place(*address, function, &mut all);
            finder.interrupts(*address, function, &mut all);
            finder.translation(*address, function, &mut all);
        }
        finder.rates(&mut all);
        finder.peers(&mut all);
        finder.nics_of_gpus(&mut all);
        finder.accelerators(&mut all);
        finder.queues(&mut all);
        all.extend(self.far_processes());
        all.sort_by(|a: &Finding, b| {
            let rank = |finding: &Finding| finding.cost.share.unwrap_or(-1.0);
            rank(b).total_cmp(&rank(a)).then_with(|| a.id.cmp(&b.id))
        });
        all
    }
}

struct Inspection<'s> {
    survey: &'s Survey,
}

/// The closed form of a link, as far as it goes: up to the fifth generation.
fn closed_form(speed: LaneSpeed, width: u32, mps: u32, mrrs: u32) -> Option<Link> {
    let generation = *Generation::ALL.get(speed.generation() as usize - 1)?;
    Link::new(generation, width, Bytes::new(mps.into()), Bytes::new(mrrs.into())).ok()
}

/// Gbit/s of reads and writes of a page at once, each way.
fn both_ways(link: Option<Link>) -> Option<f64> {
    Some(link?.goodput(Direction::Both, TRANSFER).as_gbit_per_s_f64())
}

pub(crate) fn link_words(speed: LaneSpeed, width: u32) -> String {
    format!("x{width} {speed}")
}

impl Inspection<'_> {
    fn function(&self, address: PciAddress) -> Option<&PciFunction> {
        self.survey.functions.get(&address)
    }

    /// A device's link as it is; what is not known is as usual.
    fn setting(&self, own: &PciFunction) -> Option<LinkSetting> {
        let has = |fact: &Sourced<bool>| fact.value() == Some(true);
        let tags = match () {
            () if has(&own.ten_bit_tags) => 768,
            () if own.extended_tags.value() == Some(false) => 32,
            () => 256,
        };
        Some(LinkSetting {
            generation: own.speed.value()?.generation(),
            width: own.width.value()?,
            mps_bytes: own.mps_bytes.value().unwrap_or(256),
            mrrs_bytes: own.mrrs_bytes.value().unwrap_or(512),
            tags,
        })
    }

    /// The same, and changed.
    fn settings(
        &self,
        own: &PciFunction,
        change: impl Fn(LinkSetting) -> LinkSetting,
    ) -> Option<[LinkSetting; 2]> {
        let now = self.setting(own)?;
        Some([now, change(now)])
    }

    /// Where a fact was read, for evidence.
    fn read<T: std::fmt::Display + PartialEq>(
        &self,
        what: &str,
        address: PciAddress,
        fact: &Sourced<T>,
    ) -> Option<String> {
        let (value, origin) = (fact.get()?, fact.origin()?);
        Some(format!("{address}: {what} {value} ({})", self.survey.shown(origin)))
    }

    /// A device and its name, for sentences.
    fn named(&self, address: PciAddress) -> String {
        let names = self.survey.names_of(address);
        let what = self
            .function(address)
            .and_then(|function| function.class.value())
            .map_or("function", |class| class.name());
        match names.first() {
            Some(name) => format!("{name} ({address})"),
            None => format!("the {what} {address}"),
        }
    }

    /// A link below what both of its ends can do, and a device in a slot that cannot do what it can.
    fn link(&self, address: PciAddress, own: &PciFunction, all: &mut Vec<Finding>) {
        // Each link is told once: by its lower end, and of that by function 0.
        let is_lower = !matches!(
            own.kind.value(),
            Some(PortKind::RootPort | PortKind::Downstream | PortKind::Integrated)
        );
        let Some(link) = self.survey.link_above(address).filter(|_| is_lower && address.bdf.function() == 0)
        else {
            return;
        };
        if own.physical.value().is_some() {
            return;
        }
        let LinkEnds { above, now: (speed, width), device, port } = link;
        let Some(upper) = self.function(above) else { return };
        let both = link.both();
        let rate = link_rate;
        let evidence = || {
            let facts = [
                self.read("rate", address, &own.speed),
                self.read("width", address, &own.width),
                self.read("highest rate", address, &own.max_speed),
                self.read("greatest width", address, &own.max_width),
                self.read("highest rate", above, &upper.max_speed),
                self.read("greatest width", above, &upper.max_width),
            ];
            facts.into_iter().flatten().collect::<Vec<_>>()
        };
        if link.is_lowered() {
            let lost = 1.0 - rate((speed, width)) / rate(both);
            let idles = self.survey.idles(address, &link);
            let note = if idles { " GPUs lower their rate when idle: look again under load." } else { "" };
            all.push(Finding {
                id: format!("link-below-possible/{address}"),
                links: self.settings(own, |now| LinkSetting { generation: both.0.generation(), width: both.1, ..now }),
                functions: vec![address, above],
                title: format!(
                    "the link of {} is {}, both of its ends can {}.{note}",
                    self.named(address),
                    link_words(speed, width),
                    link_words(both.0, both.1)
                ),
                evidence: evidence(),
                cost: FindingCost::lost(
                    lost,
                    format!("{:.1} of {:.1} GB/s each way", rate((speed, width)), rate(both)),
                ),
                cure: if width < both.1 {
                    format!("reseat the card and its riser, look for lanes shared with another slot; then: lspci -vv -s {address} | grep LnkSta")
                } else {
                    format!("setpci -s {above} CAP_EXP+30.w={:x}:f CAP_EXP+10.w=20:20   # target rate, then retrain", both.0.generation())
                },
            });
        } else if rate(port) < rate(device) * 0.999 && self.survey.is_device(address) {
            let lost = 1.0 - rate(port) / rate(device);
            all.push(Finding {
                id: format!("slot-below-device/{address}"),
                links: self.settings(own, |now| LinkSetting {
                    generation: device.0.generation(),
                    width: device.1,
                    ..now
                }),
                functions: vec![address, above],
                title: format!(
                    "{} can {}, its slot gives {}",
                    self.named(address),
                    link_words(device.0, device.1),
                    link_words(port.0.min(device.0), port.1.min(device.1))
                ),
                evidence: evidence(),
                cost: FindingCost::lost(
                    lost,
                    format!("{:.1} of {:.1} GB/s each way", rate(both), rate(device)),
                ),
                cure: "move it to a slot of more lanes or a higher rate, if it is to carry so much".into(),
            });
        }
    }

    /// Payload and read request sizes.
    fn sizes(&self, address: PciAddress, own: &PciFunction, all: &mut Vec<Finding>) {
        let (Some(speed), Some(width)) = (own.speed.value(), own.width.value()) else { return };
        let (mps, mrrs) = (own.mps_bytes.value(), own.mrrs_bytes.value().unwrap_or(512));
        let Some(mps) = mps else { return };
        let chain: Vec<u32> = std::iter::once(address)
            .chain(self.survey.above(address))
            .filter_map(|address| self.function(address)?.max_mps_bytes.value())
            .collect();
        let possible = chain.iter().copied().min().filter(|_| chain.len() > 1).unwrap_or(mps);
        let now = both_ways(closed_form(speed, width, mps, mrrs.max(128)));
        if possible > mps
            && let Some((now, then)) = now.zip(both_ways(closed_form(speed, width, possible, mrrs.max(128))))
        {
            all.push(Finding {
                id: format!("mps-small/{address}"),
                links: self.settings(own, |now| LinkSetting { mps_bytes: possible, ..now }),
                functions: vec![address],
                title: format!(
                    "{} sends payloads of {mps} B; it and all above it can {possible}",
                    self.named(address)
                ),
                evidence: [
                    self.read("MaxPayload", address, &own.mps_bytes),
                    self.read("can", address, &own.max_mps_bytes),
                ]
                .into_iter()
                .flatten()
                .collect(),
                cost: FindingCost::lost(
                    1.0 - now / then,
                    format!("{now:.1} of {then:.1} Gbit/s each way, pages read and written at once"),
                ),
                cure: "pci=pcie_bus_perf   # kernel command line, then boot".into(),
            });
        }
        if own.mrrs_bytes.value().is_some_and(|mrrs| mrrs <= 512)
            && let Some((now, then)) = now.zip(both_ways(closed_form(speed, width, mps, 4096)))
            && then > now
        {
            all.push(Finding {
                id: format!("mrrs-small/{address}"),
                links: self.settings(own, |now| LinkSetting { mrrs_bytes: 4096, ..now }),
                functions: vec![address],
                title: format!("{} asks for {mrrs} B at a time", self.named(address)),
                evidence: self.read("MaxReadReq", address, &own.mrrs_bytes).into_iter().collect(),
                cost: FindingCost::lost(
                    1.0 - now / then,
                    format!("{now:.1} of {then:.1} Gbit/s each way, pages read and written at once; more where tags are few"),
                ),
                cure: format!("setpci -s {address} CAP_EXP+8.w=5000:7000   # 4096 B, until the next boot"),
            });
        }
    }

    /// Tags that could be enabled.
    fn tags(&self, address: PciAddress, own: &PciFunction, all: &mut Vec<Finding>) {
        let rate = own.gb_per_s().unwrap_or_default();
        let mrrs = f64::from(own.mrrs_bytes.value().unwrap_or(512));
        let mut add = |tags: f64, evidence: Vec<String>, words: &str, cure: String| {
            // With so many requests of so many bytes under way, what latency still fills the link (Little's law).
            let covers_ns = tags * mrrs / rate;
            let small_ns = tags * 64.0 / rate;
            all.push(Finding {
                id: format!("few-tags/{address}"),
                links: self.settings(own, |now| LinkSetting { tags: if now.tags < 256 { 256 } else { 768 }, ..now }),
                functions: vec![address],
                title: format!("{} has {words}", self.named(address)),
                evidence,
                cost: FindingCost {
                    share: None,
                    text: format!(
                        "{tags} reads under way fill the link up to {covers_ns:.0} ns of latency with {mrrs} B each, {small_ns:.0} ns with 64 B"
                    ),
                    source: CLOSED_FORM.into(),
                },
                cure,
            });
        };
        if own.can_extend_tags.value() == Some(true) && own.extended_tags.value() == Some(false) && rate > 3.0
        {
            let evidence = [
                self.read("can extend", address, &own.can_extend_tags),
                self.read("extended", address, &own.extended_tags),
            ];
            add(
                32.0,
                evidence.into_iter().flatten().collect(),
                "32 tags, and could have 256",
                format!("setpci -s {address} CAP_EXP+8.w=100:100   # with its traffic stopped"),
            );
        } else if own.can_use_10_bit_tags.value() == Some(true)
            && own.ten_bit_tags.value() == Some(false)
            && rate > 31.0
        {
            let evidence = [self.read("10-bit tags", address, &own.ten_bit_tags)];
            add(
                256.0,
                evidence.into_iter().flatten().collect(),
                "256 tags, and could have 768",
                "enable 10-bit tags in the firmware's setup; the kernel takes what that left".into(),
            );
        }
    }

    /// Relaxed ordering, where hosts are known to want it.
    fn ordering(&self, address: PciAddress, own: &PciFunction, all: &mut Vec<Finding>) {
        let machine = &self.survey.machine;
        let vendor = machine.cpu_vendor.get().map_or("", |vendor| vendor.as_str());
        let wants = vendor == "AuthenticAMD"
            || vendor.starts_with("implementer")
            || machine.architecture.get().is_some_and(|of| of == "aarch64");
        let is_fast = own.gb_per_s().is_some_and(|rate| rate > 7.0);
        if own.relaxed_ordering.value() == Some(false) && wants && is_fast {
            all.push(Finding {
                id: format!("relaxed-ordering-off/{address}"),
                links: self.settings(own, |now| now),
                functions: vec![address],
                title: format!(
                    "{} may not relax the order of its writes, which this host's root complex gains from",
                    self.named(address)
                ),
                evidence: self.read("relaxed ordering", address, &own.relaxed_ordering).into_iter().collect(),
                cost: FindingCost::unknown(
                    "writes of a device wait for each other at roots that spread them over nodes",
                ),
                cure: format!("setpci -s {address} CAP_EXP+8.w=10:10"),
            });
        }
    }

    /// A device whose node nobody knows.
    fn place(&self, address: PciAddress, own: &PciFunction, all: &mut Vec<Finding>) {
        let with_cpus =
            self.survey.nodes.values().filter(|node| node.cpus.get().is_some_and(|cpus| !cpus.is_empty()));
        let count = with_cpus.count();
        // One of the nodes of a package is as near as can be told.
        let is_known = self.survey.node_of(address).is_some() || self.survey.near_cpus(address).is_some();
        if count < 2 || is_known {
            return;
        }
        let told = own.node.value() == Some(-1);
        let evidence = self.read("numa_node", address, &own.node);
        let evidence = evidence.or_else(|| self.read("CPUs near it", address, &own.local_cpus));
        all.push(Finding {
            id: format!("node-unknown/{address}"),
            links: None,
            functions: vec![address],
            title: format!(
                "the node of {} is not known{}",
                self.named(address),
                if told { ": firmware does not say it, so the kernel places its memory and interrupts anywhere" } else { " from these sources" }
            ),
            evidence: evidence.into_iter().collect(),
            cost: FindingCost::unknown("as a device at the wrong node, by chance"),
            cure: if told {
                format!("echo NODE > /sys/bus/pci/devices/{address}/numa_node   # NODE of its slot: dmidecode -t slot, or the board's manual")
            } else {
                format!("cat /sys/bus/pci/devices/{address}/numa_node")
            },
        });
    }

    /// Where a device's interrupts go.
    fn interrupts(&self, address: PciAddress, own: &PciFunction, all: &mut Vec<Finding>) {
        let Some(irqs) = own.msi_irqs.get() else { return };
        let lines: Vec<_> =
            irqs.iter().filter_map(|number| Some((number, self.survey.irqs.get(&number)?))).collect();
        let goes_to = |line: &crate::model::IrqLine| line.effective.get().or(line.affinity.get()).cloned();
        let placed: Vec<(u32, NumberSet, u64)> = lines
            .iter()
            .filter_map(|(number, line)| {
                let count = line.counts.get().map_or(0, crate::model::NumberCounts::total);
                Some((*number, goes_to(line).filter(|cpus| !cpus.is_empty())?, count))
            })
            .collect();
        let evidence = |which: &[&(u32, NumberSet, u64)]| -> Vec<String> {
            let shown = which
                .iter()
                .take(4)
                .map(|(number, cpus, count)| format!("IRQ {number} goes to CPUs {cpus}, {count} so far"));
            let more = which.len().saturating_sub(4);
            shown.chain((more > 0).then(|| format!("and {more} more"))).collect()
        };
        let node = self.survey.node_of(address);
        let near =
            node.and_then(|node| self.survey.nodes.get(&node)?.cpus.get()).filter(|cpus| !cpus.is_empty());
        if let Some((node, near)) = node.zip(near).filter(|_| self.survey.nodes.len() > 1) {
            let far: Vec<_> = placed.iter().filter(|(_, cpus, _)| !cpus.meets(near)).collect();
            let sum = |lines: &mut dyn Iterator<Item = u64>| lines.fold(0_u64, u64::saturating_add);
            let (of_far, of_all) =
                (sum(&mut far.iter().map(|line| line.2)), sum(&mut placed.iter().map(|line| line.2)));
            if !far.is_empty() && (of_all == 0 || of_far > 0) {
                let share = if of_all == 0 {
                    String::new()
                } else {
                    format!(", {:.0} % of its interrupts", 100.0 * of_far as f64 / of_all as f64)
                };
                let first = far.first().map_or(0, |line| line.0);
                all.push(Finding {
                    id: format!("far-interrupts/{address}"),
                    links: None,
                    functions: vec![address],
                    title: format!(
                        "{} is at node {node}; {} of its {} IRQs go to other nodes{share}",
                        self.named(address),
                        far.len(),
                        placed.len()
                    ),
                    evidence: evidence(&far),
                    cost: FindingCost::unknown("each packet's or command's lines come from the other socket"),
                    cure: match far.len() {
                        _ if self.survey.interfaces.values().any(|net| net.function.value() == Some(address)) => {
                            let name = self.survey.names_of(address).first().copied().unwrap_or_default().to_owned();
                            let name = shell_word(&name);
                            format!("nearfar place {name} --apply   # or, of the first: echo {near} > /proc/irq/{first}/smp_affinity_list")
                        }
                        1 => format!("echo {near} > /proc/irq/{first}/smp_affinity_list"),
                        _ => {
                            let numbers: NumberSet = far.iter().map(|line| line.0).collect();
                            let numbers =
                                numbers.iter().map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
                            format!(
                                "for i in {numbers}; do echo {near} > /proc/irq/$i/smp_affinity_list; done"
                            )
                        }
                    },
                });
            }
        }
        let busy: Vec<_> = placed.iter().filter(|line| line.2 > 0).collect();
        let first = busy.first().map(|line| &line.1);
        if busy.len() >= 4
            && first.is_some_and(|cpus| cpus.len() == 1 && busy.iter().all(|line| line.1 == *cpus))
        {
            all.push(Finding {
                id: format!("one-core/{address}"),
                links: None,
                functions: vec![address],
                title: format!("all {} IRQs in use of {} go to one CPU", busy.len(), self.named(address)),
                evidence: evidence(&busy),
                cost: FindingCost::unknown("one core handles what its queues were made to spread"),
                cure: "systemctl start irqbalance   # or one CPU of its node for each: /proc/irq/N/smp_affinity_list".into(),
            });
        }
    }

    /// Page tables of 4 KiB or strict invalidation before a device of small packets.
    fn translation(&self, address: PciAddress, own: &PciFunction, all: &mut Vec<Finding>) {
        if !own.is(PciClass::is_network)
            || own.driver.get().is_none_or(|driver| driver.starts_with("vfio") || driver.starts_with("uio"))
        {
            return;
        }
        let options = self.survey.machine.kernel_options.get().map_or("", |options| options.as_str());
        let has = |word: &str| {
            options
                .split_whitespace()
                .any(|option| option == word || option.split(['=', ',']).any(|part| part == word))
        };
        let is_on = has("intel_iommu=on") || options.contains("intel_iommu=on");
        let passes = has("iommu=pt") || has("pt") || has("iommu.passthrough=1");
        let small_pages = options.contains("sp_off");
        let strict = own.iommu_mode.get().is_some_and(|mode| mode == "DMA")
            || has("iommu.strict=1")
            || options.contains("intel_iommu=on") && options.contains("strict");
        let told = own.iommu_mode.get().map_or(is_on && !passes, |mode| mode != "identity");
        if !told || !(strict || small_pages || own.iommu_mode.get().is_none()) {
            return;
        }
        let words = if strict { "which are taken back strictly" } else { "in pages of 4 KiB" };
        let mode = self.read("IOMMU group's mode", address, &own.iommu_mode);
        let options_at = self.survey.machine.kernel_options.origin().filter(|_| !options.is_empty());
        let option = options_at.map(|origin| format!("`{options}` ({})", self.survey.shown(origin)));
        all.push(Finding {
            id: format!("translated/{address}"),
            links: None,
            functions: vec![address],
            title: format!("an IOMMU translates the addresses of {}, {words}", self.named(address)),
            evidence: mode.into_iter().chain(option).collect(),
            cost: FindingCost::unknown("a walk for what the IOTLB does not hold, an invalidation for what is taken back"),
            cure: "iommu=pt   # kernel command line, if its driver is trusted; iommu.strict=0 defers invalidations".into(),
        });
    }

    /// Network interfaces that are faster than their links.
    fn rates(&self, all: &mut Vec<Finding>) {
        for (name, interface) in &self.survey.interfaces {
            let Some((address, rate)) = interface.function.value().zip(interface.mbit_per_s.value()) else {
                continue;
            };
            let Some(own) = self.function(address) else { continue };
            let Some((speed, width)) = own.speed.value().zip(own.width.value()) else { continue };
            let mps = own.mps_bytes.value().unwrap_or(256);
            let link = closed_form(speed, width, mps, own.mrrs_bytes.value().unwrap_or(512).max(128));
            let Some(link) =
                link.map(|link| link.goodput(Direction::Both, Bytes::new(1500)).as_gbit_per_s_f64())
            else {
                continue;
            };
            let wire = f64::from(rate) / 1e3;
            // The closed form is pessimistic by up to a tenth.
            if wire > 1.1 * link {
                all.push(Finding {
                    id: format!("rate-above-link/{name}"),
                    links: self.settings(own, |now| now),
                    functions: vec![address],
                    title: format!(
                        "{name} has {wire} Gbit/s, its link {} carries packets at {link:.1}",
                        link_words(speed, width)
                    ),
                    evidence: [
                        self.read("rate", address, &own.speed),
                        self.read("width", address, &own.width),
                    ]
                    .into_iter()
                    .flatten()
                    .collect(),
                    cost: FindingCost::lost(
                        1.0 - link / wire,
                        format!("{link:.1} of {wire} Gbit/s each way, packets of 1500 B"),
                    ),
                    cure: "a slot with more lanes or a higher rate".into(),
                });
            }
        }
    }

    /// Peers below one switch whose traffic access control sends to the root.
    fn peers(&self, all: &mut Vec<Finding>) {
        for (port, of_port) in &self.survey.functions {
            if of_port.kind.value() != Some(PortKind::Downstream)
                || !of_port.acs.value().is_some_and(|acs| acs.redirects())
            {
                continue;
            }
            let below = |port: PciAddress| {
                let devices = self.survey.functions.keys().copied();
                devices
                    .filter(move |address| {
                        self.survey.is_device(*address) && self.survey.above(*address).contains(&port)
                    })
                    .collect::<Vec<_>>()
            };
            let Some(upstream) = self.survey.parent(*port) else { continue };
            let own = below(*port);
            let peers = below(upstream).into_iter().filter(|address| !own.contains(address)).count();
            let Some(device) = own.first().filter(|_| peers > 0) else { continue };
            let uplink = self.survey.functions.get(&upstream).and_then(PciFunction::gb_per_s);
            let carries = uplink.map_or(String::new(), |rate| format!(", of {rate:.1} GB/s"));
            all.push(Finding {
                id: format!("peers-redirected/{port}"),
                links: None,
                functions: vec![*port, *device],
                title: format!("requests of {} to its {peers} peers below the same switch go up to the root and back: ReqRedir is on", self.named(*device)),
                evidence: self.read("ACS", *port, &of_port.acs).into_iter().collect(),
                cost: FindingCost::unknown(&format!("peers share the switch's uplink{carries} with each other, twice, and wait for the root")),
                cure: format!("setpci -s {port} ECAP_ACS+6.w=0:2c   # no isolation between these devices any more; pci=disable_acs_redir={port} keeps it"),
            });
        }
    }

    /// GPUs whose nearest network device hangs on another root or socket.
    fn nics_of_gpus(&self, all: &mut Vec<Finding>) {
        let of = |is: fn(PciClass) -> bool| {
            let functions = self.survey.functions.iter();
            let all =
                functions.filter(|(_, function)| function.is(is) && function.physical.value().is_none());
            all.map(|(address, _)| *address).collect::<Vec<_>>()
        };
        let gpus = of(|class| matches!(class.0, 0x0302 | 0x1200 | 0x0380));
        let fabric = of(|class| matches!(class.0, 0x0207 | 0x0c06));
        let nics = if fabric.is_empty() { of(PciClass::is_network) } else { fabric };
        if nics.is_empty() {
            return;
        }
        for gpu in gpus {
            let above = self.survey.above(gpu);
            let shares =
                |nic: &PciAddress| self.survey.above(*nic).iter().any(|bridge| above.contains(bridge));
            if nics.iter().any(shares) {
                continue;
            }
            let node = self.survey.node_of(gpu);
            let same = nics.iter().find(|nic| node.is_some() && self.survey.node_of(**nic) == node);
            let nearest = same.or(nics.first()).copied().unwrap_or(gpu);
            let (id, where_) = match (same, node, self.survey.node_of(nearest)) {
                (Some(_), Some(node), _) => {
                    ("gpu-nic-other-root", format!("on another root port of node {node}"))
                }
                (None, Some(own), Some(other)) => {
                    ("gpu-nic-other-node", format!("at node {other}, the GPU at node {own}"))
                }
                _ => ("gpu-nic-other-root", "on another root port".to_owned()),
            };
            all.push(Finding {
                id: format!("{id}/{gpu}"),
                links: None,
                functions: vec![gpu, nearest],
                title: format!("the network device nearest to the GPU {gpu}, {nearest}, is {where_}"),
                evidence: [gpu, nearest]
                    .into_iter()
                    .map(|address| {
                        let chain: Vec<_> = self.survey.above(address).iter().map(ToString::to_string).collect();
                        let chain = if chain.is_empty() { "no bridge".to_owned() } else { chain.join(", ") };
                        format!("{address}: above it {chain}")
                    })
                    .collect(),
                cost: FindingCost::unknown("what the GPU sends passes a root complex, which cuts requests of peers, and perhaps the way between sockets"),
                cure: "a slot below the same switch or root port; until then, copies through memory may be faster: NCCL_NET_GDR_LEVEL=PXB".into(),
            });
        }
    }

    /// Accelerators of one machine at several sockets, or at several root ports of one.
    fn accelerators(&self, all: &mut Vec<Finding>) {
        let gpus: Vec<PciAddress> = self
            .survey
            .functions
            .keys()
            .copied()
            .filter(|address| self.survey.is_accelerator(*address))
            .collect();
        let physical = |address: &&PciAddress| self.survey.functions[*address].physical.value().is_none();
        let gpus: Vec<PciAddress> = gpus.iter().filter(physical).copied().collect();
        // Joined directly, they do not need PCIe.
        if gpus.len() < 2 || !self.survey.fabric.is_empty() {
            return;
        }
        let (mut roots, mut nodes) = (Vec::new(), Vec::new());
        for (place, a) in gpus.iter().enumerate() {
            let above = self.survey.above(*a);
            for b in &gpus[place + 1..] {
                if self.survey.above(*b).iter().any(|bridge| above.contains(bridge)) {
                    continue;
                }
                match self.survey.node_of(*a).zip(self.survey.node_of(*b)) {
                    Some((a_node, b_node)) if a_node != b_node => nodes.push((*a, *b)),
                    _ => roots.push((*a, *b)),
                }
            }
        }
        let of = |count: usize| if count == 1 { "1 pair".to_owned() } else { format!("{count} pairs") };
        for (id, pairs, way, cost) in [
            (
                "peers-cross-root",
                roots,
                "a root complex",
                "requests of peers are cut into those of a line or two, and share what the root moves between its ports",
            ),
            (
                "peers-cross-socket",
                nodes,
                "the way between sockets",
                "it carries less than a link of x16, and memory's traffic as well",
            ),
        ] {
            let Some((a, b)) = pairs.first() else { continue };
            let mut functions: Vec<PciAddress> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
            functions.sort();
            functions.dedup();
            let place = |address: PciAddress| {
                let node = self.survey.node_of(address).map_or("unknown".to_owned(), |node| node.to_string());
                format!(
                    "{address}: node {node}, root port {}",
                    self.survey.above(address).last().copied().unwrap_or(address)
                )
            };
            all.push(Finding {
                id: format!("{id}/{a}"),
                links: None,
                evidence: vec![place(*a), place(*b)],
                title: format!("copies between {} of {} accelerators pass {way}", of(pairs.len()), gpus.len()),
                functions,
                cost: FindingCost::unknown(cost),
                cure: "nearfar p2p SCENARIO   # of the import: what each pair carries; keep neighbours of a ring below one switch".into(),
            });
        }
    }

    /// Transmit queues whose CPUs are at other nodes than the device, while near CPUs have none.
    fn queues(&self, all: &mut Vec<Finding>) {
        for (name, interface) in &self.survey.interfaces {
            let Some(address) = interface.function.value() else { continue };
            let own = self
                .survey
                .node_of(address)
                .and_then(|node| self.survey.nodes.get(&node)?.cpus.get().cloned());
            let (Some(near), Some(sets)) = (own, interface.xps.get()) else { continue };
            let used: Vec<&NumberSet> = sets.0.iter().filter(|set| !set.is_empty()).collect();
            if used.is_empty() || used.iter().any(|set| set.meets(&near)) {
                continue;
            }
            let read = self.read("XPS", address, &interface.xps);
            all.push(Finding {
                id: format!("far-queues/{name}"),
                links: None,
                functions: vec![address],
                title: format!("no transmit queue of {name} is for CPUs of its node"),
                evidence: read.into_iter().collect(),
                cost: FindingCost::unknown(
                    "each packet's descriptors and completions pass the way between sockets",
                ),
                cure: format!("nearfar place {} --apply", shell_word(name)),
            });
        }
    }
}
