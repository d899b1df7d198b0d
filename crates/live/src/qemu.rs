//! QEMU's command line for a live host.

use machine::ComputerSetup;

use std::path::{Path, PathBuf};

use crate::lockstep::places;
use crate::server::LiveFunctionInfo;

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
    /// Whether it has a virtual IOMMU.
    pub iommu: bool,
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

/// The options of `qemu-system-x86_64` for a host of a scenario with these functions. Each is below a root port of its own.
pub fn options(
    setup: &ComputerSetup,
    host: usize,
    functions: &[LiveFunctionInfo],
    guest: &GuestSize,
) -> Vec<String> {
    let name = &setup.hosts[host].name;
    let GuestSize { memory_mib, cpus, nodes, iommu, lockstep } = guest;
    let has_nodes = *nodes > 1;
    let mut line: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| line.extend([option.to_owned(), value]);
    add("-name", name.clone());
    let backend = if has_nodes { "" } else { ",memory-backend=memory0" };
    add("-machine", format!("q35{backend}{}", if *iommu { ",kernel-irqchip=split" } else { "" }));
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
    if *iommu {
        add("-device", "intel-iommu,intremap=on,caching-mode=on".to_owned());
    }
    for (n, function) in (1..).zip(functions.iter().filter(|function| function.host == host)) {
        let bus =
            if has_nodes { format!("node{}", u32::from(function.node) % nodes) } else { "pcie.0".to_owned() };
        add("-device", format!("pcie-root-port,id=port{n},bus={bus},chassis={n},slot={n}"));
        let socket = function.socket.display();
        let socket = format!(r#"{{"type":"unix","path":"{socket}"}}"#);
        // In lock-step, writes are waited for as well, and however long another guest takes.
        let waits = match lockstep {
            Some(_) => r#","x-no-posted-writes":true,"x-msg-timeout":3600000"#,
            None => "",
        };
        add(
            "-device",
            format!(r#"{{"driver":"vfio-user-pci","bus":"port{n}","rombar":0,"socket":{socket}{waits}}}"#),
        );
    }
    let folder = functions.first().and_then(|function| function.socket.parent());
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
