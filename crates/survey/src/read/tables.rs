//! Texts of one table: `numactl -H`, `nvidia-smi topo -m`, and the files of /proc.

use std::collections::BTreeMap;

use crate::fact::Origin;
use crate::model::{NumberCounts, Survey};
use crate::numbers::NumberSet;

/// `numactl -H`.
pub fn numactl(text: &str, source: usize) -> Survey {
    let from = |what| Origin { source, what };
    let mut survey = Survey::default();
    let mut columns: Vec<u32> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["node", number, "cpus:", cpus @ ..] => {
                let Ok(number) = number.parse::<u32>() else { continue };
                let cpus: NumberSet = cpus.iter().flat_map(|cpu| cpu.parse()).collect();
                for cpu in cpus.iter() {
                    survey.cpus.entry(cpu).or_default().node.set(number, from("node cpus"));
                }
                survey.nodes.entry(number).or_default().cpus.set(cpus, from("node cpus"));
            }
            ["node", number, "size:", size, "MB"] => {
                if let (Ok(number), Ok(mib)) = (number.parse::<u32>(), size.parse::<u64>()) {
                    let bytes = mib.saturating_mul(1 << 20);
                    survey.nodes.entry(number).or_default().memory_bytes.set(bytes, from("node size"));
                }
            }
            ["node", rest @ ..]
                if !rest.is_empty() && rest.iter().all(|word| word.parse::<u32>().is_ok()) =>
            {
                columns = rest.iter().flat_map(|word| word.parse()).collect();
            }
            [row, values @ ..] => {
                let Some(Ok(row)) = row.strip_suffix(':').map(str::parse::<u32>) else { continue };
                for (&column, value) in columns.iter().zip(values) {
                    value.parse().into_iter().for_each(|value| {
                        survey.distances.insert((row, column), value);
                    });
                }
            }
            [] => {}
        }
    }
    survey
}

/// Whether a text begins with the matrix of `nvidia-smi topo -m`.
pub fn is_nvidia_smi(text: &str) -> bool {
    is_matrix_header(&plain(text)) && text.contains(" X ")
}

/// Without the underlining of the header.
fn plain(text: &str) -> String {
    text.replace("\x1b[4m", "").replace("\x1b[0m", "")
}

fn is_matrix_header(text: &str) -> bool {
    text.lines().take(8).any(|line| line.trim_start().starts_with("GPU") && !line.contains(" X "))
}

/// Cells of a line: between tabs, or several spaces where tabs were copied as such.
fn cells(line: &str) -> Vec<&str> {
    match line.contains('\t') {
        true => line.split('\t').map(str::trim).collect(),
        false => line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect(),
    }
}

/// `nvidia-smi topo -m`.
pub fn nvidia_smi(text: &str, source: usize) -> Survey {
    let from = |what| Origin { source, what };
    let mut survey = Survey::default();
    let plain = plain(text);
    let mut lines = plain.lines().skip_while(|line| !is_matrix_header(line));
    let Some(header) = lines.next() else { return survey };
    let names: Vec<&str> = cells(header).into_iter().filter(|name| !name.is_empty()).collect();
    // Names of devices have no spaces, those of the columns behind them do.
    let devices: Vec<&str> = names.iter().copied().take_while(|name| !name.contains(' ')).take(256).collect();
    // `  NIC0: mlx5_0`
    let legend = plain.lines().filter_map(|line| line.trim().split_once(": "));
    let legend: BTreeMap<&str, &str> = legend.filter(|(name, _)| devices.contains(name)).collect();
    let named = |name: &str| legend.get(name).copied().unwrap_or(name).trim().to_owned();
    for line in lines {
        let cells = cells(line);
        let Some((&row, cells)) = cells.split_first().filter(|(row, _)| devices.contains(row)) else {
            continue;
        };
        for (column, path) in devices.iter().zip(cells).filter(|(column, _)| **column != row) {
            survey.paths.insert((named(row), named(column)), (*path).to_owned());
        }
        let device = survey.devices.entry(named(row)).or_default();
        if !row.starts_with("GPU") {
            device.kind.set("infiniband".into(), from("topo -m"));
            continue;
        }
        device.kind.set("gpu".into(), from("topo -m"));
        let cell = |name: &str| cells.get(names.iter().position(|column| *column == name)?).copied();
        let cpus: Option<NumberSet> = cell("CPU Affinity").and_then(|text| text.parse().ok());
        let cpus = cpus.filter(|cpus| !cpus.is_empty());
        let node: Option<u32> = cell("NUMA Affinity").and_then(|text| text.parse().ok());
        if let Some(node) = node {
            device.node.set(node, from("NUMA Affinity"));
            let of_node = survey.nodes.entry(node).or_default();
            cpus.iter().for_each(|cpus| of_node.cpus.set(cpus.clone(), from("CPU Affinity")));
        }
        for cpu in cpus.iter().flat_map(NumberSet::iter) {
            let cpu = survey.cpus.entry(cpu).or_default();
            node.into_iter().for_each(|node| cpu.node.set(node, from("CPU Affinity")));
        }
    }
    survey
}

/// `/proc/cpuinfo`.
pub fn cpuinfo(text: &str, source: usize) -> Survey {
    let from = |what| Origin { source, what };
    let mut survey = Survey::default();
    let mut cpu: Option<u32> = None;
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let (name, value) = (name.trim(), value.trim());
        let number = || value.parse::<u32>().ok();
        let machine = &mut survey.machine;
        match name {
            "processor" => {
                cpu = number().filter(|&cpu| cpu < 1 << 17);
                if let Some(cpu) = cpu {
                    survey.cpus.entry(cpu).or_default();
                }
            }
            "vendor_id" => machine.cpu_vendor.set(value.to_owned(), from("vendor_id")),
            "model name" => machine.cpu.set(value.to_owned(), from("model name")),
            "CPU implementer" => {
                machine.architecture.set("aarch64".to_owned(), from("CPU implementer"));
                machine.cpu_vendor.set(format!("implementer {value}"), from("CPU implementer"));
            }
            "CPU part" => machine.cpu.set(format!("Arm part {value}"), from("CPU part")),
            "cpu family" => {
                number().into_iter().for_each(|family| machine.cpu_family.set(family, from("cpu family")))
            }
            "model" => number().into_iter().for_each(|model| machine.cpu_model.set(model, from("model"))),
            "physical id" | "core id" => {
                let Some((cpu, number)) = cpu.zip(number()) else { continue };
                let cpu = survey.cpus.entry(cpu).or_default();
                match name {
                    "core id" => cpu.core.set(number, from("core id")),
                    _ => {
                        cpu.package.set(number, from("physical id"));
                        let name = machine.cpu.get().cloned().unwrap_or_default();
                        survey.packages.entry(number).or_insert(name);
                    }
                }
            }
            "cache size" => {
                // Of the last level; which CPUs share it, other sources say.
            }
            _ => {}
        }
    }
    survey
}

/// `/proc/meminfo`.
pub fn meminfo(text: &str, source: usize) -> Survey {
    let mut survey = Survey::default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.trim().parse().ok());
    if let Some(bytes) = kib.and_then(|kib: u64| kib.checked_mul(1024)) {
        survey.machine.memory_bytes.set(bytes, Origin { source, what: "MemTotal" });
    }
    survey
}

/// Words of the kernel's command line that concern devices' access to memory, or which CPUs there are to use.
const OPTIONS: [&str; 11] = [
    "intel_iommu",
    "amd_iommu",
    "iommu",
    "iommu.",
    "pci",
    "pcie_",
    "isolcpus",
    "nohz_full",
    "numa",
    "nosmt",
    "default_hugepagesz",
];

/// `/proc/cmdline`; what else stands there is left.
pub fn command_line(text: &str, source: usize) -> Survey {
    let mut survey = Survey::default();
    let is_ours = |word: &&str| {
        let name = word.split('=').next().unwrap_or_default();
        OPTIONS
            .iter()
            .any(|option| name == *option || option.ends_with(['.', '_']) && name.starts_with(option))
    };
    let words: Vec<&str> = text.split_whitespace().filter(is_ours).collect();
    survey.machine.kernel_options.set(words.join(" "), Origin { source, what: "command line" });
    survey
}

/// `uname -a`: the release and the architecture; the host's name is left.
pub fn uname(text: &str, source: usize) -> Survey {
    let mut survey = Survey::default();
    let words: Vec<&str> = text.split_whitespace().collect();
    if let Some(release) = words.get(2) {
        survey.machine.kernel.set((*release).to_owned(), Origin { source, what: "release" });
    }
    let known = ["x86_64", "aarch64", "ppc64le", "riscv64", "s390x", "loongarch64"];
    if let Some(architecture) = words.iter().find(|word| known.contains(word)) {
        survey.machine.architecture.set((*architecture).to_owned(), Origin { source, what: "machine" });
    }
    survey
}

/// `/proc/interrupts`.
pub fn interrupts(text: &str, source: usize) -> Survey {
    let from = |what| Origin { source, what };
    let mut survey = Survey::default();
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let cpus: Vec<u32> =
        header.split_whitespace().flat_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
    for line in lines {
        let Some((number, rest)) = line.split_once(':') else { continue };
        let Ok(number) = number.trim().parse::<u32>() else { continue };
        let mut words = rest.split_whitespace();
        let counts = cpus.iter().zip(words.by_ref().take(cpus.len()));
        let counts = counts.flat_map(|(&cpu, count)| Some((cpu, count.parse::<u64>().ok()?)));
        let counts = NumberCounts(counts.filter(|&(_, count)| count > 0).collect());
        let line = survey.irqs.entry(number).or_default();
        line.counts.set(counts, from("interrupts"));
        // Controller, hardware number and trigger come before what has asked for it.
        let rest: Vec<&str> = words.collect();
        if let Some(action) = rest.last().filter(|_| rest.len() > 1) {
            line.action.set((*action).to_owned(), from("interrupts"));
        }
    }
    survey
}
