//! Scenarios that run at once: two GPUs as peers, two hosts over their NICs, a drive.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Plugged;
use super::host::HostFile;
use super::parts::{PartFiles, PartKind, switches_above};
use crate::model::Survey;
use crate::pci::PciAddress;

/// Writes what the machine has devices for; returns the first one's name.
pub fn write(
    survey: &Survey,
    machine: &str,
    host: &HostFile,
    parts: &PartFiles,
    plugged: &[Plugged],
    files: &mut Vec<(String, String)>,
    notes: &mut Vec<String>,
) -> Option<String> {
    let writer = ScenarioWriter { survey, machine, host, parts, plugged };
    let before = files.len();
    let of =
        |kind| parts.devices.iter().filter(move |(_, own, _)| *own == kind).map(|(address, ..)| *address);
    let gpus: Vec<_> = of(PartKind::Gpu).filter(|address| writer.slot_of(*address).is_some()).collect();
    if gpus.len() > 1 {
        files.push(("p2p.toml".into(), writer.p2p(&gpus)));
    }
    // The fastest card, by its ports if they say, else by its link.
    let rate = |address: &PciAddress| {
        let ports = survey.interfaces.values().filter(|of| of.function.value() == Some(*address));
        let ports = ports.filter_map(|of| of.mbit_per_s.value()).max().unwrap_or_default();
        (ports, survey.functions[address].gb_per_s().map_or(0, |rate| (rate * 1e3) as u64))
    };
    let nics = of(PartKind::Nic).filter(|address| writer.slot_of(*address).is_some());
    if let Some(nic) = nics.max_by_key(|address| (rate(address), std::cmp::Reverse(*address))) {
        files.push(("netperf.toml".into(), writer.netperf(nic)));
        files.push(("streams.toml".into(), writer.streams(nic)));
    }
    if let Some(drive) = of(PartKind::Drive).find(|address| writer.slot_of(*address).is_some()) {
        files.push(("fio.toml".into(), writer.fio(drive)));
    }
    let first = files.get(before).map(|(name, _)| name.clone());
    if first.is_none() {
        notes.push(
            "no NIC, drive or pair of GPUs was found: there is no scenario; `nearfar bench --machine` runs"
                .into(),
        );
    }
    first
}

struct ScenarioWriter<'a> {
    survey: &'a Survey,
    machine: &'a str,
    host: &'a HostFile,
    parts: &'a PartFiles,
    plugged: &'a [Plugged],
}

impl ScenarioWriter<'_> {
    fn device(&self, address: PciAddress) -> Option<&Plugged> {
        self.plugged.iter().find(|device| device.address == address)
    }

    /// The root's slot that leads to a device.
    fn root_slot(&self, device: &Plugged) -> Option<&str> {
        let root = device.above.last().copied().unwrap_or(device.address);
        self.host.slots.iter().find(|(own, _)| *own == root).map(|(_, name)| name.as_str())
    }

    /// A switch's name in a scenario.
    fn switch_name(upstream: PciAddress) -> String {
        format!("sw-{}", upstream.to_string().replace([':', '.'], "-"))
    }

    /// The slot of a device, below a switch or of a root port.
    fn slot_of(&self, address: PciAddress) -> Option<String> {
        let device = self.device(address)?;
        match switches_above(self.survey, device).last() {
            Some(upstream) => self.port_of(*upstream, device),
            None => self.root_slot(device).map(str::to_owned),
        }
    }

    /// The port of a switch that leads to a device.
    fn port_of(&self, upstream: PciAddress, device: &Plugged) -> Option<String> {
        let (_, ports) = self.parts.switches.get(&upstream)?;
        let leads = |port: &PciAddress| *port == device.address || device.above.contains(port);
        let place = ports.iter().position(leads)?;
        Some(format!("{}:{}", Self::switch_name(upstream), place + 1))
    }

    /// A host with the switches and devices that a scenario needs.
    fn host(&self, name: &str, devices: &[(PciAddress, &str)]) -> String {
        let mut text = format!("[[host]]\nname = \"{name}\"\nmachine = \"{}.toml\"\n", self.machine);
        let modes = devices.iter().filter_map(|(address, _)| self.survey.functions[address].iommu_mode.get());
        let mut modes = modes.filter_map(|mode| match mode.as_str() {
            "identity" => Some("pass-through"),
            "DMA" => Some("strict"),
            "DMA-FQ" => Some("lazy"),
            _ => None,
        });
        if let Some(mode) = modes.next().filter(|_| self.host.has_iommu) {
            let _ = writeln!(text, "iommu = \"{mode}\"  # the type of its group there");
        }
        let mut written: BTreeMap<PciAddress, ()> = BTreeMap::new();
        for (address, _) in devices {
            let Some(device) = self.device(*address) else { continue };
            let mut slot = self.root_slot(device).unwrap_or("slot").to_owned();
            for upstream in switches_above(self.survey, device) {
                let Some((file, _)) = self.parts.switches.get(&upstream) else { continue };
                if written.insert(upstream, ()).is_none() {
                    let _ = write!(
                        text,
                        "\n[[host.switch]]\nname = \"{}\"\npart = \"{file}\"\nslot = \"{slot}\"\n",
                        Self::switch_name(upstream)
                    );
                }
                slot = self.port_of(upstream, device).unwrap_or(slot);
            }
        }
        for (address, name) in devices {
            let Some((_, kind, file)) = self.parts.devices.iter().find(|(own, ..)| own == address) else {
                continue;
            };
            let key = match kind {
                PartKind::Nic => "nic",
                PartKind::Gpu => "gpu",
                PartKind::Drive => "drive",
            };
            let slot = self.slot_of(*address).unwrap_or_default();
            let _ = write!(
                text,
                "\n# {address}\n[[host.device]]\nname = \"{name}\"\n{key} = \"{file}\"\nslot = \"{slot}\"\n"
            );
        }
        text
    }

    /// The first core of the socket that a device is at.
    fn core_near(&self, address: PciAddress) -> u32 {
        self.survey.socket_of(address).0.min(self.host.sockets - 1) * self.host.cores
    }

    /// Two GPUs as near to each other as any, and two as far.
    fn p2p(&self, gpus: &[PciAddress]) -> String {
        let shared = |a: PciAddress, b: PciAddress| {
            let (above, other) = (self.survey.above(a), self.survey.above(b));
            let common = above.iter().filter(|bridge| other.contains(bridge)).count();
            let same_node =
                self.survey.node_of(a).is_some() && self.survey.node_of(a) == self.survey.node_of(b);
            (common, same_node)
        };
        let first = gpus[0];
        let near =
            gpus[1..].iter().copied().max_by_key(|other| (shared(first, *other), std::cmp::Reverse(*other)));
        let far = gpus[1..].iter().copied().min_by_key(|other| (shared(first, *other), *other));
        let near = near.unwrap_or(gpus[1]);
        let mut chosen = vec![first, near];
        chosen.extend(far.filter(|far| *far != near && shared(first, *far) != shared(first, near)));
        chosen.sort();
        let place = |address: PciAddress| chosen.iter().position(|own| *own == address).unwrap_or_default();
        let names: Vec<String> = (0..chosen.len()).map(|number| format!("gpu{number}")).collect();
        let devices: Vec<_> = chosen.iter().copied().zip(names.iter().map(String::as_str)).collect();
        let mut text = format!(
            "# Copies between two GPUs as near to each other as any of this machine{}.\n\
             name = \"p2p\"\nsummary = \"GPUs of {} as peers\"\n\n{}",
            if chosen.len() > 2 { ", then between two as far apart" } else { "" },
            self.machine,
            self.host("a", &devices)
        );
        let core = self.core_near(first);
        let mut start = 0;
        let apart = chosen.iter().copied().filter(|other| ![first, near].contains(other));
        for other in std::iter::once(near).chain(apart) {
            let pair = (place(first), place(other));
            for program in
                ["gpu-copy --bytes=256k --count=4", "gpu-copy --bytes=256k --count=4 --through=ram"]
            {
                let at = if start == 0 { String::new() } else { format!("start = \"{start} ms\"\n") };
                let _ = write!(
                    text,
                    "\n[[program]]\ncpus = \"{core}\"\n{at}run = \"{program} --from={} --to={} --verify\"\n",
                    pair.0, pair.1
                );
                start += 8;
            }
        }
        text
    }

    /// Two hosts with a cable between their NICs.
    fn pair(&self, nic: PciAddress) -> String {
        let mut steering = "change_kernel.steering = { rfs = true, arfs = true }\n".to_owned();
        // As ethtool has it there.
        let own = self.survey.interfaces.values().find(|of| of.function.value() == Some(nic));
        if let Some((own, us)) = own.and_then(|own| Some((own, own.rx_usecs.value()?))) {
            let adaptive = own.adaptive_rx.value().unwrap_or(false);
            let packets = own
                .rx_frames
                .value()
                .map_or(String::new(), |count| format!(", coalescing_packets = {count}"));
            let _ = writeln!(
                steering,
                "nic_driver = {{ coalescing = \"{us} us\", adaptive = {adaptive}{packets} }}  # rx-usecs and rx-frames there"
            );
        }
        let one = |name: &str| {
            let host = self.host(name, &[(nic, "nic")]);
            host.replacen(".toml\"\n", &format!(".toml\"\n{steering}"), 1)
        };
        format!("{}\n{}\n[[cable]]\nends = [\"a\", \"b\"]\n\n", one("a"), one("b"))
    }

    fn netperf(&self, nic: PciAddress) -> String {
        let core = self.core_near(nic);
        let question = match self.host.sockets > 1 {
            true => format!(
                "# What does the NIC cost at another socket? Its programs stay at core {core}:\n\
                 #   nearfar sweep netperf.toml --over host.b.device.0.slot={},elsewhere\n",
                self.slot_of(nic).unwrap_or_default()
            ),
            false => String::new(),
        };
        format!(
            "# Two machines like this one, by their NICs {nic}.\n{question}\
             name = \"netperf\"\nsummary = \"netperf between two of {}\"\n\n{}\
             [[program]]\nhost = \"b\"\ncpus = \"{core}\"\nrun = \"netserver\"\n\n\
             [[program]]\nhost = \"a\"\ncpus = \"{core}\"\nrun = \"netperf -H 10.0.0.2 -t TCP_STREAM -l 0.005\"\n\n\
             [[program]]\nhost = \"a\"\ncpus = \"{core}\"\nstart = \"10 ms\"\nrun = \"netperf -H 10.0.0.2 -t TCP_RR -l 0.002\"\n",
            self.machine,
            self.pair(nic)
        )
    }

    fn streams(&self, nic: PciAddress) -> String {
        /// As many as show what one core for all costs.
        const MOST_STREAMS: u32 = 8;
        let (first, count) = (self.core_near(nic), MOST_STREAMS.min(self.host.cores));
        let cores = format!("{first}-{}", first + count - 1);
        format!(
            "# {count} streams at once, each with a core. What if one core took all interrupts?\n\
             #   nearfar sweep streams.toml --over host.b.nic_driver.channels=1,{count}\n\
             name = \"streams\"\nsummary = \"{count} streams between two of {}\"\n\n{}\
             [[program]]\nhost = \"b\"\ncpus = \"{cores}\"\nrun = \"iperf -s\"\n\n\
             [[program]]\nhost = \"a\"\ncpus = \"{cores}\"\nrun = \"iperf -c 10.0.0.2 -P {count} -t 0.005\"\n",
            self.machine,
            self.pair(nic)
        )
    }

    fn fio(&self, drive: PciAddress) -> String {
        let core = self.core_near(drive);
        let fio = "fio --direct=1 --filename=/dev/nvme0n1 --rw=randread --bs=4k";
        format!(
            "# Random reads of the drive {drive}: one at a time, then 32.\n\
             name = \"fio\"\nsummary = \"fio on a drive of {}\"\n\n{}\n\
             [[program]]\ncpus = \"{core}\"\nrun = \"{fio} --name=latency --iodepth=1 --runtime=2ms\"\n\n\
             [[program]]\ncpus = \"{core}\"\nstart = \"3 ms\"\nrun = \"{fio} --name=rate --ioengine=libaio --iodepth=32 --runtime=4ms\"\n",
            self.machine,
            self.host("a", &[(drive, "drive")])
        )
    }
}
