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
    let GuestSize { memory_mib, cpus, iommu, lockstep } = guest;
    let mut line: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| line.extend([option.to_owned(), value]);
    add("-name", name.clone());
    // Devices access the guest's memory by its file, which has to be shared.
    add(
        "-machine",
        format!("q35,memory-backend=memory{}", if *iommu { ",kernel-irqchip=split" } else { "" }),
    );
    add("-object", format!("memory-backend-memfd,id=memory,size={memory_mib}M,share=on"));
    add("-m", format!("{memory_mib}M"));
    add("-smp", cpus.to_string());
    // Firmware leaves devices alone that it does not boot from.
    add("-boot", "strict=on".to_owned());
    if *iommu {
        add("-device", "intel-iommu,intremap=on,caching-mode=on".to_owned());
    }
    for (n, function) in (1..).zip(functions.iter().filter(|function| function.host == host)) {
        add("-device", format!("pcie-root-port,id=port{n},bus=pcie.0,chassis={n},slot={n}"));
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
