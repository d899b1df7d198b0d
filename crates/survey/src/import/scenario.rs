//! Scenarios that run at once: two GPUs as peers, two hosts over their NICs, a drive.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use machine::Library;

use super::host::HostFile;
use super::parts::{PartFiles, PartKind, switches_above};
use super::{FarPlace, Plugged};
use crate::model::Survey;
use crate::pci::PciAddress;

/// What was written.
pub struct WrittenScenarios {
    /// The first one's name, if there is one.
    pub first: Option<String>,
    /// How a scenario's device is put at another socket.
    pub far: Vec<FarPlace>,
}

/// Writes what the machine has devices for.
pub fn write(
    (survey, library): (&Survey, &Library),
    machine: &str,
    host: &mut HostFile,
    parts: &PartFiles,
    plugged: &[Plugged],
    files: &mut Vec<(String, String)>,
    notes: &mut Vec<String>,
) -> WrittenScenarios {
    let writer = ScenarioWriter { survey, machine, host, parts, plugged };
    let before = files.len();
    let of = |kind| {
        let own = parts.devices.iter().filter(move |(_, own, _)| *own == kind).map(|(address, ..)| *address);
        own.filter(|address| writer.slot_of(*address).is_some()).collect::<Vec<_>>()
    };
    let gpus = of(PartKind::Gpu);
    // The fastest card, by its ports if they say, else by its link.
    let rate = |address: &PciAddress| {
        let ports = survey.interfaces.values().filter(|of| of.function.value() == Some(*address));
        let ports = ports.filter_map(|of| of.mbit_per_s.value()).max().unwrap_or_default();
        (ports, survey.functions[address].gb_per_s().map_or(0, |rate| (rate * 1e3) as u64))
    };
    let nic =
        of(PartKind::Nic).into_iter().max_by_key(|address| (rate(address), std::cmp::Reverse(*address)));
    let drive = of(PartKind::Drive).into_iter().next();
    let mut far = Vec::new();
    for (scenario, name, device, slot) in
        [("netperf.toml", "b", nic, "elsewhere"), ("fio.toml", "a", drive, "drive-elsewhere")]
    {
        let writer = ScenarioWriter { survey, machine, host, parts, plugged };
        let place = device.and_then(|device| writer.far_place(scenario, name, device, slot));
        let Some((place, like)) = place else { continue };
        if host.add_far_slot(survey, library, &like, slot) {
            far.push(place);
        }
    }
    let writer = ScenarioWriter { survey, machine, host, parts, plugged };
    if gpus.len() > 1 {
        files.push(("p2p.toml".into(), writer.p2p(&gpus, notes)));
    }
    if let Some(nic) = nic {
        let place = far.iter().find(|place| place.scenario == "netperf.toml");
        files.push(("netperf.toml".into(), writer.netperf(nic, place)));
        files.push(("streams.toml".into(), writer.streams(nic)));
    }
    if let Some(drive) = drive {
        let place = far.iter().find(|place| place.scenario == "fio.toml");
        files.push(("fio.toml".into(), writer.fio(drive, place)));
    }
    let first = files.get(before).map(|(name, _)| name.clone());
    if first.is_none() {
        notes.push(
            "no NIC, drive or pair of GPUs was found: there is no scenario; `nearfar bench --machine` runs"
                .into(),
        );
    }
    WrittenScenarios { first, far }
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
        self.host.slots.iter().find(|slot| slot.root == device.root()).map(|slot| slot.name.as_str())
    }

    /// How a device of a scenario's host is put into a slot elsewhere, with the root's slot that leads to it now. What is below a switch
    /// goes there with it.
    fn far_place(
        &self,
        scenario: &str,
        host: &str,
        address: PciAddress,
        far: &str,
    ) -> Option<(FarPlace, String)> {
        let device = self.device(address)?;
        let near = self.root_slot(device)?.to_owned();
        let what = if switches_above(self.survey, device).is_empty() { "device" } else { "switch" };
        let place = FarPlace {
            scenario: scenario.to_owned(),
            device: address,
            key: format!("host.{host}.{what}.0.slot"),
            near: near.clone(),
            far: far.to_owned(),
        };
        Some((place, near))
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
            let key = kind.key();
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

    /// All GPUs, with copies between two as near to each other as any, and two as far.
    fn p2p(&self, gpus: &[PciAddress], notes: &mut Vec<String>) -> String {
        /// As many as a kernel of a simulated host has BARs' room for.
        const MOST_GPUS: usize = 16;
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
        let far = far.filter(|far| *far != near && shared(first, *far) != shared(first, near));
        let mut chosen: Vec<PciAddress> = [Some(first), Some(near), far].into_iter().flatten().collect();
        let others = gpus.iter().copied().filter(|gpu| !chosen.contains(gpu)).collect::<Vec<_>>();
        chosen.extend(others.iter().take(MOST_GPUS.saturating_sub(chosen.len())));
        chosen.sort();
        let left = gpus.len() - chosen.len();
        if left > 0 {
            notes.push(format!(
                "{left} of {} GPUs are left out of p2p.toml: {MOST_GPUS} can be simulated",
                gpus.len()
            ));
        }
        let place = |address: PciAddress| chosen.iter().position(|own| *own == address).unwrap_or_default();
        let names: Vec<String> = (0..chosen.len()).map(|number| format!("gpu{number}")).collect();
        let devices: Vec<_> = chosen.iter().copied().zip(names.iter().map(String::as_str)).collect();
        let mut text = format!(
            "# {} GPUs: copies between two as near to each other as any of this machine{}. What each pair carries:\n\
             #   nearfar p2p p2p.toml\n\
             name = \"p2p\"\nsummary = \"GPUs of {} as peers\"\n\n{}",
            chosen.len(),
            if far.is_some() { ", then between two as far apart" } else { "" },
            self.machine,
            self.host("a", &devices)
        );
        let core = self.core_near(first);
        let mut start = 0;
        for other in std::iter::once(near).chain(far) {
            let pair = (place(first), place(other));
            for program in ["gpu-copy --bytes=4m --count=2", "gpu-copy --bytes=4m --count=2 --through=ram"] {
                let at = if start == 0 { String::new() } else { format!("start = \"{start} ms\"\n") };
                let _ = write!(
                    text,
                    "\n[[program]]\ncpus = \"{core}\"\n{at}run = \"{program} --from={} --to={} --verify\"\n",
                    pair.0, pair.1
                );
                start += 20;
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

    /// The line that asks what a device costs at another socket.
    fn question(place: Option<&FarPlace>, what: &str, core: u32) -> String {
        place.map_or(String::new(), |place| {
            format!(
                "# What does the {what} cost at another socket? Its programs stay at core {core}:\n#   nearfar {}\n",
                place.command("")
            )
        })
    }

    fn netperf(&self, nic: PciAddress, place: Option<&FarPlace>) -> String {
        let core = self.core_near(nic);
        let question = Self::question(place, "NIC", core);
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
        let streams = if count == 1 { "1 stream".to_owned() } else { format!("{count} streams") };
        format!(
            "# {streams} at once, each with a core. What if one core took all interrupts?\n\
             #   nearfar sweep streams.toml --over host.b.nic_driver.channels=1,{count}\n\
             name = \"streams\"\nsummary = \"{streams} between two of {}\"\n\n{}\
             [[program]]\nhost = \"b\"\ncpus = \"{cores}\"\nrun = \"iperf -s\"\n\n\
             [[program]]\nhost = \"a\"\ncpus = \"{cores}\"\nrun = \"iperf -c 10.0.0.2 -P {count} -t 0.005\"\n",
            self.machine,
            self.pair(nic)
        )
    }

    fn fio(&self, drive: PciAddress, place: Option<&FarPlace>) -> String {
        let core = self.core_near(drive);
        let question = Self::question(place, "drive", core);
        let fio = "fio --direct=1 --filename=/dev/nvme0n1 --rw=randread --bs=4k";
        format!(
            "# Random reads of the drive {drive}: one at a time, then 32.\n{question}\
             name = \"fio\"\nsummary = \"fio on a drive of {}\"\n\n{}\n\
             [[program]]\ncpus = \"{core}\"\nrun = \"{fio} --name=latency --iodepth=1 --runtime=2ms\"\n\n\
             [[program]]\ncpus = \"{core}\"\nstart = \"3 ms\"\nrun = \"{fio} --name=rate --ioengine=libaio --iodepth=32 --runtime=4ms\"\n",
            self.machine,
            self.host("a", &[(drive, "drive")])
        )
    }
}
