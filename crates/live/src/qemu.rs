//! QEMU's command line for a live host.

use std::path::{Path, PathBuf};

use machine::ComputerSetup;
use serde_json::{Value, json};

use crate::iommu;
use crate::lockstep::places;
use crate::server::LiveFunctionInfo;

/// Whose a guest's IOMMU is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IommuOf {
    /// QEMU's: it tells which memory a function may access. Of BARs it does not, so those of other functions are as without one.
    Qemu,
    /// The fabric's: requests are translated by the guest's tables.
    Fabric,
}

/// Where the table that tells a guest of the fabric's IOMMU is.
pub fn iommu_table(folder: &Path, host: &str) -> PathBuf {
    folder.join(format!("{host}.dmar"))
}

/// The socket of the IOMMU's registers.
pub fn iommu_socket(folder: &Path, host: &str) -> PathBuf {
    folder.join(format!("{host}.iommu"))
}

/// A guest's size, and what it boots.
#[derive(Clone, Debug)]
pub struct GuestSize {
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// Virtual processors.
    pub cpus: u32,
    /// NUMA nodes, which share memory and processors equally. With more than one, each function is at that of its root port in
    /// the scenario.
    pub nodes: u32,
    /// Its IOMMU, if it has one.
    pub iommu: Option<IommuOf>,
    /// Whether functions are plugged and unplugged: each has a [`latch`], and QEMU a monitor at [`monitor_place`].
    pub hot_plug: bool,
    /// In lock-step: the plugin of linux/qemu_lockstep, and the time of an instruction, as of `-icount shift=`.
    pub lockstep: Option<(PathBuf, u32)>,
}

/// The options by which QEMU loads a lock-step plugin by way of trial. It fails in any case, and says [`WORKS`] if it could.
pub fn trial(plugin: &Path) -> [String; 6] {
    let plugin = format!("{},check=on", plugin.display());
    ["-machine", "none", "-display", "none", "-plugin", &plugin].map(str::to_owned)
}

/// What a plugin says on trial.
pub const WORKS: &str = "lockstep: works";

/// Where a host's QEMU connects with its monitor.
pub fn monitor_place(folder: &Path, host: &str) -> PathBuf {
    folder.join(format!("{host}.monitor"))
}

/// What a QEMU calls the latch of its `n`th function.
pub fn latch_id(n: usize) -> String {
    format!("latch{n}")
}

/// The latch of a guest's `n`th function, as a device of QEMU: what is unplugged and plugged in its place. QEMU up to 11.1 aborts when
/// it unplugs a function of vfio-user that has MSI-X. So each function is behind a switch, whose upstream port shares a slot with
/// a small device; when that is unplugged, the guest lets all of the slot go, of which QEMU keeps the bridges that it began with;
/// when it is plugged, the guest looks for all of the slot again.
pub fn latch(n: usize) -> Value {
    let (id, bus) = (latch_id(n), format!("port{n}"));
    json!({ "driver": "pci-testdev", "id": id, "bus": bus, "addr": "0.0", "multifunction": true })
}

/// The options of `qemu-system-x86_64` for a host of a scenario with these functions. Each is below a root port of its own.
pub fn options(
    setup: &ComputerSetup,
    host: usize,
    functions: &[LiveFunctionInfo],
    guest: &GuestSize,
) -> Vec<String> {
    let name = &setup.hosts[host].name;
    let GuestSize { memory_mib, cpus, nodes, iommu, hot_plug, lockstep } = guest;
    let has_nodes = *nodes > 1;
    let has_qemus = *iommu == Some(IommuOf::Qemu);
    let mut line: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| line.extend([option.to_owned(), value]);
    add("-name", name.clone());
    let backend = if has_nodes { "" } else { ",memory-backend=memory0" };
    add("-machine", format!("q35{backend}{}", if has_qemus { ",kernel-irqchip=split" } else { "" }));
    add("-m", format!("{memory_mib}M"));
    add("-smp", format!("{cpus},sockets={nodes}"));
    for node in 0..*nodes {
        // Devices access the guest's memory by its files, which have to be shared.
        let size = memory_mib / nodes;
        add("-object", format!("memory-backend-memfd,id=memory{node},size={size}M,share=on"));
        if has_nodes {
            let (first, next) = (cpus * node / nodes, cpus * (node + 1) / nodes);
            add("-numa", format!("node,nodeid={node},memdev=memory{node},cpus={first}-{}", next - 1));
            // Numbers of buses that leave room for root ports below each.
            let bus = 0x100 * (node + 1) / (nodes + 1);
            add("-device", format!("pxb-pcie,id=node{node},bus=pcie.0,bus_nr={bus},numa_node={node}"));
        }
    }
    // Firmware leaves devices alone that it does not boot from.
    add("-boot", "strict=on".to_owned());
    if has_qemus {
        add("-device", "intel-iommu,intremap=on,caching-mode=on".to_owned());
    }
    let folder = functions.first().and_then(|function| function.socket.parent());
    let fabrics = folder.filter(|_| *iommu == Some(IommuOf::Fabric));
    if let Some(folder) = fabrics {
        let table = iommu_table(folder, name).to_string_lossy().replace(',', ",,");
        add("-acpitable", format!("sig=DMAR,rev=1,data={table}"));
        let socket = json!({ "type": "unix", "path": iommu_socket(folder, name).to_string_lossy() });
        let slot = format!("{:x}.0", iommu::SLOT);
        let driver = "vfio-user-pci";
        let unit = json!({ "driver": driver, "bus": "pcie.0", "addr": slot, "rombar": 0, "socket": socket, "x-msg-timeout": 60_000 });
        add("-device", unit.to_string());
    }
    for (n, function) in (1..).zip(functions.iter().filter(|function| function.host == host)) {
        let bus =
            if has_nodes { format!("node{}", u32::from(function.node) % nodes) } else { "pcie.0".to_owned() };
        // Firmware numbers the buses below in the order of slots.
        let place = if fabrics.is_some() { format!(",addr={n:x}.0") } else { String::new() };
        add("-device", format!("pcie-root-port,id=port{n},bus={bus},chassis={n},slot={n}{place}"));
        let mut below = format!("port{n}");
        if *hot_plug {
            add("-device", latch(n).to_string());
            add("-device", format!("x3130-upstream,id=up{n},bus=port{n},addr=0.1,multifunction=on"));
            add("-device", format!("xio3130-downstream,id=down{n},bus=up{n},slot={n},hotplug=off"));
            below = format!("down{n}");
        }
        let socket = json!({ "type": "unix", "path": function.socket.to_string_lossy() });
        let mut device = json!({ "driver": "vfio-user-pci", "bus": below, "rombar": 0, "socket": socket });
        // A machine that others keep busy answers late; QEMU gives a device up after 5 s by itself.
        device["x-msg-timeout"] = 60_000.into();
        if lockstep.is_some() {
            // Writes are waited for as well, and however long another guest takes.
            device["x-no-posted-writes"] = true.into();
            device["x-msg-timeout"] = 3_600_000.into();
        }
        add("-device", device.to_string());
    }
    if let Some(folder) = folder.filter(|_| *hot_plug) {
        // A comma in a value is written twice.
        let path = monitor_place(folder, name).to_string_lossy().replace(',', ",,");
        add("-qmp", format!("unix:{path}"));
    }
    if let (Some((plugin, shift)), Some(folder)) = (lockstep, folder) {
        let (socket, page) = places(folder, name);
        let [plugin, socket, page] = [plugin, &socket, &page].map(|path| path.display());
        add("-icount", format!("shift={shift},sleep=off"));
        add("-plugin", format!("{plugin},socket={socket},page={page}"));
    }
    line
}

/// A command line as a shell reads it.
pub fn in_shell(words: &[String]) -> String {
    let quoted =
        |word: &String| match word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=.,/:+".contains(c)) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}
