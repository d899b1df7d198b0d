//! /sys and /proc: of this machine, of a folder, or of an archive.

use std::str::FromStr;

use super::files::{ETHTOOL, RootFiles};
use super::{config_space, ethtool, tables};
use crate::fact::Origin;
use crate::model::{MOST_NODES, SetList, Survey};
use crate::numbers::NumberSet;
use crate::pci::{LaneSpeed, PciAddress, PciClass, PciFunction, PciNumber};

/// Entries of one folder that are looked at: more is damage.
const MOST_ENTRIES: usize = 1 << 17;

/// Whether there is anything of the kind.
pub fn is(files: &dyn RootFiles) -> bool {
    ["/sys/devices", "/sys/bus", "/proc"].iter().any(|folder| !files.list(folder).is_empty())
}

/// Reads all that is there.
pub fn read(files: &dyn RootFiles, source: usize) -> Survey {
    let mut reader = SysfsReader { files, source, survey: Survey::default() };
    reader.proc();
    reader.cpus();
    reader.caches();
    reader.nodes();
    reader.functions();
    reader.interfaces();
    reader.devices();
    reader.irqs();
    super::processes::read(files, source, &mut reader.survey);
    reader.survey
}

struct SysfsReader<'f> {
    files: &'f dyn RootFiles,
    source: usize,
    survey: Survey,
}

/// The number behind a name's letters: `cpu12`.
fn numbered(name: &str, stem: &str) -> Option<u32> {
    name.strip_prefix(stem)?.parse().ok().filter(|&number| number < 1 << 17)
}

/// The last part of a path.
fn last(path: &str) -> Option<&str> {
    path.rsplit('/').next().filter(|name| !name.is_empty())
}

impl SysfsReader<'_> {
    fn from(&self, what: &'static str) -> Origin {
        Origin { source: self.source, what }
    }

    fn parsed<T: FromStr>(&self, path: &str) -> Option<T> {
        self.files.text(path)?.parse().ok()
    }

    /// Names in a folder with the number that each ends with, in the order of these.
    fn numbered(&self, folder: &str, stem: &str) -> Vec<(u32, String)> {
        let names = self.files.list(folder).into_iter().take(MOST_ENTRIES);
        let mut all: Vec<_> =
            names.filter_map(|name| Some((numbered(&name, stem)?, format!("{folder}/{name}")))).collect();
        all.sort();
        all
    }

    fn proc(&mut self) {
        let readers: [(&str, super::TextReader); 4] = [
            ("/proc/cpuinfo", tables::cpuinfo),
            ("/proc/meminfo", tables::meminfo),
            ("/proc/cmdline", tables::command_line),
            ("/proc/interrupts", tables::interrupts),
        ];
        for (path, read) in readers {
            if let Some(text) = self.files.text(path).filter(|text| !text.is_empty()) {
                self.survey.merge(read(&text, self.source));
            }
        }
        let from = |what| Origin { source: self.source, what };
        let machine = &mut self.survey.machine;
        if let Some(release) = self.files.text("/proc/sys/kernel/osrelease") {
            machine.kernel.set(release, from("osrelease"));
        }
        let flows = self.files.text("/proc/sys/net/core/rps_sock_flow_entries");
        let flows = flows.and_then(|flows| flows.parse().ok());
        flows.into_iter().for_each(|flows| machine.rfs_entries.set(flows, from("rps_sock_flow_entries")));
        let names = ["/sys/class/dmi/id/product_name", "/sys/devices/virtual/dmi/id/product_name"];
        let product = names.iter().find_map(|path| self.files.text(path)).filter(|name| !name.is_empty());
        product.into_iter().for_each(|product| machine.product.set(product, from("product_name")));
    }

    fn cpus(&mut self) {
        let cpus = self.numbered("/sys/devices/system/cpu", "cpu");
        for (number, folder) in &cpus {
            if self.parsed::<u32>(&format!("{folder}/online")) == Some(0) {
                self.survey.cpus.remove(number);
                continue;
            }
            let number_of = |name: &str| self.parsed::<u32>(&format!("{folder}/{name}"));
            let (core, package) = (number_of("topology/core_id"), number_of("topology/physical_package_id"));
            let clock = number_of("cpufreq/cpuinfo_max_freq").map(|khz| khz / 1000);
            if core.is_none() && package.is_none() && !self.survey.cpus.is_empty() {
                continue;
            }
            let from = |what| Origin { source: self.source, what };
            let cpu = self.survey.cpus.entry(*number).or_default();
            core.into_iter().for_each(|core| cpu.core.set(core, from("core_id")));
            clock.into_iter().for_each(|mhz| cpu.max_mhz.set(mhz, from("cpuinfo_max_freq")));
            if let Some(package) = package {
                cpu.package.set(package, from("physical_package_id"));
                self.survey.packages.entry(package).or_default();
            }
        }
        // Cores of several kinds are performance counters' devices of their own.
        for (kind, name) in
            [("performance", "cpu_core"), ("efficiency", "cpu_atom"), ("low power", "cpu_lowpower")]
        {
            let Some(cpus) = self.parsed::<NumberSet>(&format!("/sys/devices/{name}/cpus")) else { continue };
            let from = self.from("kind of its counters");
            for number in cpus.iter() {
                if let Some(cpu) = self.survey.cpus.get_mut(&number) {
                    cpu.kind.set(kind.to_owned(), from);
                }
            }
        }
    }

    fn caches(&mut self) {
        let from = self.from("cache");
        let numbers: Vec<u32> = self.survey.cpus.keys().copied().collect();
        for number in numbers {
            for (_, folder) in self.numbered(&format!("/sys/devices/system/cpu/cpu{number}/cache"), "index") {
                let text = |name: &str| self.files.text(&format!("{folder}/{name}"));
                let list = text("shared_cpu_list").and_then(|list| list.parse::<NumberSet>().ok());
                let cpus = list.or_else(|| NumberSet::from_mask(&text("shared_cpu_map")?));
                let Some((level, cpus)) = text("level").and_then(|level| level.parse().ok()).zip(cpus) else {
                    continue;
                };
                // Each is told by the first of its CPUs.
                if cpus.iter().next() != Some(number) {
                    continue;
                }
                let letter = match text("type").as_deref() {
                    Some("Data") => "d",
                    Some("Instruction") => "i",
                    _ => "",
                };
                let size = text("size").and_then(|size| size.strip_suffix('K')?.parse::<u64>().ok());
                let (ways, line) = (text("ways_of_associativity"), text("coherency_line_size"));
                let cache = self.survey.caches.entry((level, letter, cpus)).or_default();
                let some = |text: Option<String>| {
                    text.and_then(|text| text.parse().ok()).filter(|&number: &u32| number > 0)
                };
                size.into_iter().for_each(|kib| cache.size_bytes.set(kib.saturating_mul(1024), from));
                some(ways).into_iter().for_each(|ways| cache.ways.set(ways, from));
                some(line).into_iter().for_each(|line| cache.line_bytes.set(line, from));
            }
        }
    }

    fn nodes(&mut self) {
        let mut nodes = self.numbered("/sys/devices/system/node", "node");
        if nodes.len() > MOST_NODES {
            self.survey.doubt(
                "the machine",
                format!("it has {} nodes; the first {MOST_NODES} are read", nodes.len()),
            );
            nodes.truncate(MOST_NODES);
        }
        let numbers: Vec<u32> = nodes.iter().map(|(number, _)| *number).collect();
        for (number, folder) in &nodes {
            let from = |what| Origin { source: self.source, what };
            let list = self.parsed::<NumberSet>(&format!("{folder}/cpulist"));
            let cpus = list.or_else(|| NumberSet::from_mask(&self.files.text(&format!("{folder}/cpumap"))?));
            let meminfo = self.files.text(&format!("{folder}/meminfo")).unwrap_or_default();
            let kib = meminfo.lines().find_map(|line| {
                let rest = line.split("MemTotal:").nth(1)?;
                rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
            });
            for cpu in cpus.iter().flat_map(NumberSet::iter) {
                if let Some(cpu) = self.survey.cpus.get_mut(&cpu) {
                    cpu.node.set(*number, from("cpulist of its node"));
                }
            }
            let cache: Option<u64> = self.parsed(&format!("{folder}/memory_side_cache/index1/size"));
            let cache = cache.filter(|&bytes| bytes > 0);
            let node = self.survey.nodes.entry(*number).or_default();
            cpus.into_iter().for_each(|cpus| node.cpus.set(cpus, from("cpulist")));
            kib.into_iter().for_each(|kib| node.memory_bytes.set(kib.saturating_mul(1024), from("meminfo")));
            cache.into_iter().for_each(|bytes| node.cache_bytes.set(bytes, from("memory_side_cache")));
            let distances = self.files.text(&format!("{folder}/distance")).unwrap_or_default();
            for (other, distance) in numbers.iter().zip(distances.split_whitespace()) {
                if let Ok(distance) = distance.parse() {
                    self.survey.distances.insert((*number, *other), distance);
                }
            }
        }
        // Memory that is not DRAM is brought up as DAX devices, each on a node.
        for name in self.files.list("/sys/bus/dax/devices").into_iter().take(MOST_ENTRIES) {
            let node = self.parsed::<u32>(&format!("/sys/bus/dax/devices/{name}/target_node"));
            let from = self.from("target_node of a DAX device");
            if let Some(node) = node.and_then(|node| self.survey.nodes.get_mut(&node)) {
                node.kind.set("persistent or attached".to_owned(), from);
            }
        }
    }

    fn functions(&mut self) {
        const DEVICES: &str = "/sys/bus/pci/devices";
        for name in self.files.list(DEVICES).into_iter().take(MOST_ENTRIES) {
            let Ok(address) = name.parse::<PciAddress>() else {
                self.survey.doubt(DEVICES, format!("`{name}` is no address; it is left"));
                continue;
            };
            let Some(folder) = self.files.resolved(&format!("{DEVICES}/{name}")) else {
                self.survey.doubt(address, "its links in sysfs lead in a circle; it is left");
                continue;
            };
            let function = self.function(address, &folder);
            self.survey.functions.insert(address, function);
        }
    }

    fn function(&mut self, address: PciAddress, folder: &str) -> PciFunction {
        let from = |what| Origin { source: self.source, what };
        let text = |name: &str| self.files.text(&format!("{folder}/{name}"));
        let hex = |name: &str| u32::from_str_radix(text(name)?.trim_start_matches("0x"), 16).ok();
        let mut function = PciFunction::default();
        let half = |name| hex(name).and_then(|number| u16::try_from(number).ok()).map(PciNumber);
        macro_rules! set {
            ($($field:ident = $value:expr, $what:literal;)+) => {
                $(if let Some(value) = $value { function.$field.set(value, from($what)); })+
            };
        }
        set! {
            class = hex("class").map(|class| PciClass((class >> 8) as u16)), "class";
            vendor = half("vendor"), "vendor";
            device = half("device"), "device";
            subsystem_vendor = half("subsystem_vendor").filter(|id| id.0 != 0), "subsystem_vendor";
            subsystem_device = half("subsystem_device").filter(|id| id.0 != 0), "subsystem_device";
            revision = hex("revision").and_then(|number| u8::try_from(number).ok()), "revision";
            label = text("label").filter(|label| !label.is_empty() && label.len() < 64), "label";
            driver = self.files.link(&format!("{folder}/driver")).as_deref().and_then(last).map(str::to_owned), "driver";
            max_speed = text("max_link_speed").as_deref().and_then(LaneSpeed::from_text), "max_link_speed";
            max_width = text("max_link_width").and_then(|width| width.parse().ok()).filter(|width| (1..64).contains(width)), "max_link_width";
            node = text("numa_node").and_then(|node| node.parse().ok()), "numa_node";
            local_cpus = text("local_cpulist").and_then(|list| list.parse().ok()), "local_cpulist";
            local_cpus = text("local_cpus").and_then(|mask| NumberSet::from_mask(&mask)), "local_cpus";
            most_vfs = text("sriov_totalvfs").and_then(|number| number.parse().ok()), "sriov_totalvfs";
            vfs = text("sriov_numvfs").and_then(|number| number.parse().ok()), "sriov_numvfs";
        }
        let width = text("current_link_width")
            .and_then(|width| width.parse().ok())
            .filter(|width| (1..64).contains(width));
        if let Some(width) = width {
            set! {
                width = Some(width), "current_link_width";
                speed = text("current_link_speed").as_deref().and_then(LaneSpeed::from_text), "current_link_speed";
            }
        }
        // The folder that a function's is in is the bridge above.
        let above = folder.rsplit('/').nth(1).and_then(|name| name.parse().ok());
        set! { parent = above, "path"; }
        let physical = self.files.link(&format!("{folder}/physfn"));
        set! { physical = physical.as_deref().and_then(last).and_then(|name| name.parse().ok()), "physfn"; }
        let group = self.files.link(&format!("{folder}/iommu_group"));
        if let Some(group) = group.as_deref().and_then(last).and_then(|name| name.parse::<u32>().ok()) {
            let mode = self.files.text(&format!("/sys/kernel/iommu_groups/{group}/type"));
            set! { iommu_group = Some(group), "iommu_group"; iommu_mode = mode, "iommu group's type"; }
        }
        let irqs: NumberSet = self
            .files
            .list(&format!("{folder}/msi_irqs"))
            .iter()
            .take(8192)
            .flat_map(|name| name.parse())
            .collect();
        set! { msi_irqs = Some(irqs).filter(|irqs| !irqs.is_empty()), "msi_irqs"; }
        match self.files.bytes(&format!("{folder}/config")) {
            Some(config) => {
                if config_space::read(&config, self.source, &mut function).is_none() {
                    self.survey
                        .doubt(address, "its configuration space reads as ones or zeros, or is cut off");
                }
            }
            None => self.survey.doubt(address, "it has no configuration space to read"),
        }
        function
    }

    fn interfaces(&mut self) {
        const NET: &str = "/sys/class/net";
        for name in self.files.list(NET).into_iter().take(MOST_ENTRIES) {
            let folder = format!("{NET}/{name}");
            // Those without a device are made of software.
            let Some(device) = self.files.resolved(&format!("{folder}/device")) else { continue };
            let Some(function) = device.rsplit('/').find_map(|name| name.parse::<PciAddress>().ok()) else {
                continue;
            };
            let from = |what| Origin { source: self.source, what };
            let rate =
                self.parsed::<i64>(&format!("{folder}/speed")).and_then(|rate| u32::try_from(rate).ok());
            let rx = self.numbered(&format!("{folder}/queues"), "rx-");
            let tx = self.numbered(&format!("{folder}/queues"), "tx-");
            let masks = |queues: &[(u32, String)], name: &str| {
                let mask = |(_, queue): &(u32, String)| {
                    NumberSet::from_mask(&self.files.text(&format!("{queue}/{name}"))?)
                };
                let masks: Vec<_> = queues.iter().filter_map(mask).collect();
                Some(SetList(masks)).filter(|list| !list.0.is_empty())
            };
            let (xps, rps) = (masks(&tx, "xps_cpus"), masks(&rx, "rps_cpus"));
            let flows = rx.first().and_then(|(_, queue)| self.parsed(&format!("{queue}/rps_flow_cnt")));
            if let Some(text) = self.files.text(&format!("{ETHTOOL}{name}")) {
                self.survey.merge(ethtool::read(&text, self.source));
            }
            let interface = self.survey.interfaces.entry(name).or_default();
            interface.function.set(function, from("device"));
            rate.into_iter().for_each(|rate| interface.mbit_per_s.set(rate, from("speed")));
            if !rx.is_empty() {
                interface.rx_queues.set(rx.len() as u32, from("queues"));
            }
            if !tx.is_empty() {
                interface.tx_queues.set(tx.len() as u32, from("queues"));
            }
            xps.into_iter().for_each(|sets| interface.xps.set(sets, from("xps_cpus")));
            rps.into_iter().for_each(|sets| interface.rps.set(sets, from("rps_cpus")));
            flows.into_iter().for_each(|flows| interface.rfs_flows.set(flows, from("rps_flow_cnt")));
        }
    }

    fn devices(&mut self) {
        for (class, kind) in
            [("nvme", "nvme"), ("infiniband", "infiniband"), ("drm", "gpu"), ("block", "block")]
        {
            let folder = format!("/sys/class/{class}");
            for name in self.files.list(&folder).into_iter().take(MOST_ENTRIES) {
                // Connectors, partitions and render nodes are parts of others.
                if class == "drm" && (name.contains('-') || !name.starts_with("card")) {
                    continue;
                }
                let Some(path) = self.files.resolved(&format!("{folder}/{name}")) else { continue };
                if class == "block"
                    && (path.contains("/nvme/") || self.files.text(&format!("{path}/partition")).is_some())
                {
                    continue;
                }
                let Some(function) = path.rsplit('/').find_map(|name| name.parse::<PciAddress>().ok()) else {
                    continue;
                };
                let from = |what| Origin { source: self.source, what };
                let queues = self.parsed(&format!("{folder}/{name}/queue_count"));
                let lists = self.queue_cpus(class, &path);
                let device = self.survey.devices.entry(name).or_default();
                device.function.set(function, from("path"));
                device.kind.set(kind.to_owned(), from("class"));
                queues.into_iter().for_each(|queues| device.queues.set(queues, from("queue_count")));
                lists.into_iter().for_each(|lists| device.queue_cpus.set(lists, from("cpu_list")));
            }
        }
    }

    /// CPUs of each queue of a block device, or of a controller's first namespace.
    fn queue_cpus(&self, class: &str, path: &str) -> Option<SetList> {
        let folder = match class {
            "block" => path.to_owned(),
            "nvme" => {
                let controller = last(path)?;
                let is_own = |name: &String| name.starts_with(controller) && name.contains('n');
                let namespace = self.files.list(path).into_iter().find(|name| {
                    is_own(name)
                        && name.strip_prefix(controller).is_some_and(|rest| rest.starts_with(['n', 'c']))
                })?;
                format!("{path}/{namespace}")
            }
            _ => return None,
        };
        let queues = self.numbered(&format!("{folder}/mq"), "");
        let lists = queues.iter().filter_map(|(_, queue)| self.parsed(&format!("{queue}/cpu_list")));
        Some(SetList(lists.collect())).filter(|list| !list.0.is_empty())
    }

    fn irqs(&mut self) {
        for (number, folder) in self.numbered("/proc/irq", "") {
            let from = |what| Origin { source: self.source, what };
            let affinity = self.parsed::<NumberSet>(&format!("{folder}/smp_affinity_list"));
            let effective = self.parsed::<NumberSet>(&format!("{folder}/effective_affinity_list"));
            let node = self.parsed::<i32>(&format!("{folder}/node"));
            let line = self.survey.irqs.entry(number).or_default();
            affinity.into_iter().for_each(|cpus| line.affinity.set(cpus, from("smp_affinity_list")));
            effective
                .filter(|cpus| !cpus.is_empty())
                .into_iter()
                .for_each(|cpus| line.effective.set(cpus, from("effective_affinity_list")));
            node.into_iter().for_each(|node| line.node.set(node, from("node")));
        }
    }
}
