//! Facts about the measured host from the `sys-*.txt` files next to the results.

use super::IommuMode;
use std::path::Path;

/// Facts about the host; `None` if the file is absent or does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// IOMMU setting of the kernel (`sys-kernel-cmdline.txt`).
    pub iommu: Option<IommuMode>,
    /// Memory of each node that has any, in GiB, rounded to module sizes (`sys-numactl.txt`, else `sys-meminfo.txt`
    /// as one node).
    pub node_gib: Vec<u64>,
    /// The CPU's name (`sys-cpuinfo.txt`).
    pub cpu: Option<String>,
    /// Maximum payload of the card, bytes (`sys-lspci.txt`, the Netronome's `DevCtl`).
    pub payload_bytes: Option<u32>,
}

/// Reported sizes exclude what firmware and kernel reserve, so they are rounded up to this many GiB.
const MODULE_GIB: u64 = 4;
/// PCI vendor of the measured cards, as number and name.
const NETRONOME: [&str; 2] = ["19ee", "Netronome"];

impl HostFacts {
    /// Reads the available files in `directory`.
    pub fn read(directory: &Path) -> Self {
        let text = |name: &str| {
            let bytes = files::read(&directory.join(name)).unwrap_or_default();
            String::from_utf8_lossy(files::unmarked(&bytes)).into_owned()
        };
        let mut node_gib = nodes(&text("sys-numactl.txt"));
        if node_gib.is_empty() {
            node_gib.extend(total(&text("sys-meminfo.txt")));
        }
        Self {
            iommu: iommu(&text("sys-kernel-cmdline.txt")),
            node_gib,
            cpu: cpu(&text("sys-cpuinfo.txt")),
            payload_bytes: payload(&text("sys-lspci.txt")),
        }
    }
}

fn iommu(command_line: &str) -> Option<IommuMode> {
    if command_line.trim().is_empty() {
        return None;
    }
    let options = command_line.split_whitespace().filter_map(|word| word.strip_prefix("intel_iommu="));
    let options: Vec<&str> = options.flat_map(|list| list.split(',')).collect();
    Some(match (options.contains(&"on"), options.contains(&"sp_off")) {
        (false, _) => IommuMode::Off,
        (true, true) => IommuMode::Pages4k,
        (true, false) => IommuMode::Superpages,
    })
}

/// `node 0 size: 64324 MB`
fn nodes(text: &str) -> Vec<u64> {
    let size = |line: &str| -> Option<u64> {
        let (node, size) = line.trim().split_once(" size: ")?;
        node.starts_with("node ").then_some(())?;
        size.strip_suffix(" MB")?.trim().parse::<u64>().ok()
    };
    text.lines().filter_map(size).filter(|&mib| mib > 0).map(|mib| modules(mib << 20)).collect()
}

/// `MemTotal:       16381372 kB`
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib = line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?;
    Some(modules(kib.checked_mul(1024)?))
}

fn modules(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 30).next_multiple_of(MODULE_GIB)
}

fn cpu(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches(['\t', ' ', ':']).trim().to_owned())
}

/// `MaxPayload 256 bytes` below the card's `DevCtl:`.
fn payload(text: &str) -> Option<u32> {
    let mut lines = text.lines().skip_while(|line| {
        line.starts_with([' ', '\t']) || !NETRONOME.iter().any(|name| line.contains(name))
    });
    lines.next()?;
    let mut lines = lines.take_while(|line| line.is_empty() || line.starts_with([' ', '\t']));
    lines.find(|line| line.trim_start().starts_with("DevCtl:"))?;
    let limit = lines.find_map(|line| line.trim_start().strip_prefix("MaxPayload "))?;
    limit.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_says_whether_the_iommu_is_on() {
        assert_eq!(iommu(""), None);
        assert_eq!(iommu("ro quiet"), Some(IommuMode::Off));
        assert_eq!(iommu("ro intel_iommu=on single"), Some(IommuMode::Superpages));
        assert_eq!(iommu("ro intel_iommu=on,sp_off"), Some(IommuMode::Pages4k));
        assert_eq!(iommu("intel_iommu=off"), Some(IommuMode::Off));
    }

    #[test]
    fn memory_is_that_of_the_modules() {
        assert_eq!(
            nodes("available: 2 nodes (0-1)\nnode 0 size: 64324 MB\nnode 1 size: 64493 MB\n"),
            [64, 64]
        );
        assert_eq!(nodes("node 0 size: 16001 MB\nnode 0 free: 3 MB"), [16]);
        assert_eq!(total("MemTotal:       16381372 kB\nMemFree: 3 kB"), Some(16));
    }

    #[test]
    fn the_card_is_found_among_devices() {
        let text = "00:01.0 PCI bridge\n\t\tDevCtl: x\n\t\t\tMaxPayload 128 bytes\n04:00.0 Ethernet: Device 19ee:6000\n\
                    \tCap: y\n\t\tDevCtl:\tReport\n\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes\n";
        assert_eq!(payload(text), Some(256));
        assert_eq!(payload("00:01.0 PCI bridge"), None);
    }
}
