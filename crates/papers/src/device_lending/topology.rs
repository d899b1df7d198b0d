//! Hosts, switches, GPUs and adapters as in Figures 9, 11, 15 and 20.

/// A scenario of the paper and its relevant properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// The paper's name.
    pub name: &'static str,
    /// Location of the GPUs.
    pub place: GpuPlaces,
    /// Whether data goes through host memory.
    pub through_ram: bool,
    /// Whether the lenders' IOMMU is on, so that all requests go through their roots.
    pub iommu: bool,
}

/// Location of GPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GpuPlaces {
    /// One below a switch of the using host (Figure 9).
    One,
    /// Both below one switch of the using host (Figure 11a).
    Switch,
    /// Each below its own switch.
    Root,
    /// One below a switch of the lender, with the adapter (Figure 9).
    LentOne,
    /// Both below one switch of one lender; the adapter is below another (Figure 11b).
    OneLender,
    /// Each below a switch of its own lender, with the adapter (Figure 11c).
    TwoLenders,
    /// Both below one switch of the lender's expansion chassis, with the adapter (Figures 15 and 20).
    Chassis,
    /// As `Chassis`, used by a virtual machine of the lender.
    OwnGuest,
    /// As `Chassis`, used by a virtual machine of the borrower.
    RemoteGuest,
}

const fn scenario(name: &'static str, place: GpuPlaces, through_ram: bool, iommu: bool) -> Scenario {
    Scenario { name, place, through_ram, iommu }
}

/// Scenarios of Figure 10.
pub const ONE_GPU: [Scenario; 3] = [
    scenario("Loc", GpuPlaces::One, false, false),
    scenario("Rem-SW", GpuPlaces::LentOne, false, false),
    scenario("Rem-IOMMU", GpuPlaces::LentOne, false, true),
];

/// Scenarios of Table 1.
pub const TWO_GPUS: [Scenario; 11] = [
    scenario("Loc-P2P-SW", GpuPlaces::Switch, false, false),
    scenario("Loc-P2P-Root", GpuPlaces::Root, false, false),
    scenario("Loc-RAM-Root", GpuPlaces::Root, true, false),
    scenario("1L-P2P-SW", GpuPlaces::OneLender, false, false),
    scenario("1L-P2P-IOMMU", GpuPlaces::OneLender, false, true),
    scenario("1L-RAM-SW", GpuPlaces::OneLender, true, false),
    scenario("1L-RAM-IOMMU", GpuPlaces::OneLender, true, true),
    scenario("2L-P2P-SW", GpuPlaces::TwoLenders, false, false),
    scenario("2L-P2P-IOMMU", GpuPlaces::TwoLenders, false, true),
    scenario("2L-RAM-SW", GpuPlaces::TwoLenders, true, false),
    scenario("2L-RAM-IOMMU", GpuPlaces::TwoLenders, true, true),
];

/// Scenarios of Table 2 without virtual machines.
pub const CHASSIS: [Scenario; 2] = [
    scenario("NatRem-P2P-IOMMU", GpuPlaces::Chassis, false, true),
    scenario("NatRem-RAM-IOMMU", GpuPlaces::Chassis, true, true),
];

/// Scenarios of Table 2 with virtual machines.
pub const IN_GUESTS: [Scenario; 4] = [
    scenario("VMLoc-P2P", GpuPlaces::OwnGuest, false, true),
    scenario("VMLoc-RAM", GpuPlaces::OwnGuest, true, true),
    scenario("VMRem-P2P", GpuPlaces::RemoteGuest, false, true),
    scenario("VMRem-RAM", GpuPlaces::RemoteGuest, true, true),
];

/// Main machine.
pub const MACHINE: &str = "dolphin-e5-2603v4";
/// Machine of lender B.
const OTHER_MACHINE: &str = "dolphin-e5-1650v4";
/// Model of its on-board switches.
const SWITCH: &str = "dolphin-board";

/// A host, with its further lines.
pub fn host(name: &str, machine: &str, iommu: &str) -> String {
    format!("[[host]]\nname = \"{name}\"\nmachine = \"{machine}\"\niommu = \"{iommu}\"\n")
}

/// A switch in the host's `n`th slot.
pub fn switch(n: usize) -> String {
    let slot = ["slot", "slot.1"][n];
    format!("[[host.switch]]\nname = \"sw{n}\"\npart = \"{SWITCH}\"\nslot = \"{slot}\"\n")
}

/// An expansion chassis behind a pair of adapters, each with a switch; its switch has the ports.
pub fn chassis() -> String {
    let switch = |name: &str, part: &str, slot: &str| {
        format!("[[host.switch]]\nname = \"{name}\"\npart = \"{part}\"\nslot = \"{slot}\"\n")
    };
    [
        switch("adapter", "pex8733", "slot"),
        switch("cable", "pex8733", "adapter:1"),
        switch("chassis", "pex8796", "cable:1"),
    ]
    .concat()
}

/// Table of a device, which `what` gives by its key and file.
pub fn device(name: &str, what: &str, slot: &str) -> String {
    format!("[[host.device]]\nname = \"{name}\"\n{what}\nslot = \"{slot}\"\n")
}

pub fn adapter(slot: &str) -> String {
    device("ntb", "ntb = \"pxh830\"", slot)
}

/// A virtual machine with four cores and 8 GiB as in section 7.5, and these devices of the host.
pub fn guest(devices: &[&str]) -> String {
    format!("[[host.vm]]\nname = \"x\"\nvcpus = \"0-3\"\nmemory = \"8 GiB\"\ndevices = {devices:?}\n")
}

/// A borrowing host, with the adapter directly at its root.
pub fn borrower() -> String {
    host("borrower", MACHINE, "strict") + &adapter("slot")
}

/// Cables between each pair of these hosts, and the borrowed devices.
pub fn cluster(hosts: &[&str], borrowed: &[&str]) -> String {
    cluster_by(hosts, borrowed, "borrower")
}

/// As [`cluster`], for another borrower.
pub fn cluster_by(hosts: &[&str], borrowed: &[&str], by: &str) -> String {
    let pairs = hosts.iter().enumerate().flat_map(|(n, a)| hosts[n + 1..].iter().map(move |b| (a, b)));
    let cable = |(a, b)| format!("[[ntb_cable]]\nends = [\"{a}:ntb\", \"{b}:ntb\"]\n");
    let borrow = |function| format!("[[borrow]]\nfunction = \"{function}\"\nby = \"{by}\"\n");
    pairs.map(cable).chain(borrowed.iter().map(borrow)).collect()
}

impl Scenario {
    /// Looks up a scenario by name.
    ///
    /// # Panics
    /// If no scenario has the name.
    pub fn named(name: &str) -> Self {
        *ONE_GPU
            .iter()
            .chain(&TWO_GPUS)
            .find(|scenario| scenario.name == name)
            .expect("a scenario of the paper")
    }

    /// The scenario file. The first host runs the programs.
    pub fn text(&self) -> String {
        let gpu = |name: &str, port: &str| device(name, "gpu = \"k420\"", port);
        let (near, far) = (switch(0), switch(1));
        let lender = |name: &str| host(name, MACHINE, if self.iommu { "strict" } else { "off" });
        let other = host("other", OTHER_MACHINE, if self.iommu { "strict" } else { "off" });
        match self.place {
            GpuPlaces::One => [lender("lender"), near, gpu("gpu0", "sw0:1")].concat(),
            GpuPlaces::Switch => {
                [lender("lender"), near, gpu("gpu0", "sw0:1"), gpu("gpu1", "sw0:2")].concat()
            }
            GpuPlaces::Root => {
                [lender("lender"), near, far, gpu("gpu0", "sw0:1"), gpu("gpu1", "sw1:1")].concat()
            }
            GpuPlaces::LentOne => {
                let lender = [lender("lender"), near, gpu("gpu0", "sw0:1"), adapter("sw0:2")].concat();
                borrower() + &lender + &cluster(&["borrower", "lender"], &["lender:gpu0"])
            }
            GpuPlaces::OneLender => {
                let gpus = [gpu("gpu0", "sw0:1"), gpu("gpu1", "sw0:2")].concat();
                let lender = [lender("lender"), near, far, gpus, adapter("sw1:1")].concat();
                let third = other + &adapter("slot");
                let cluster = cluster(&["borrower", "lender", "other"], &["lender:gpu0", "lender:gpu1"]);
                borrower() + &lender + &third + &cluster
            }
            GpuPlaces::TwoLenders => {
                let lender =
                    [lender("lender"), near.clone(), gpu("gpu0", "sw0:1"), adapter("sw0:2")].concat();
                let third = [other, near, gpu("gpu1", "sw0:1"), adapter("sw0:2")].concat();
                let cluster = cluster(&["borrower", "lender", "other"], &["lender:gpu0", "other:gpu1"]);
                borrower() + &lender + &third + &cluster
            }
            GpuPlaces::Chassis | GpuPlaces::OwnGuest | GpuPlaces::RemoteGuest => {
                let gpu =
                    |n: u32| device(&format!("gpu{n}"), "gpu = \"k40c\"", &format!("chassis:{}", n + 1));
                let lender = [lender("lender"), chassis(), gpu(0), gpu(1)].concat();
                let (hosts, lent) = (["borrower", "lender"], ["lender:gpu0", "lender:gpu1"]);
                match self.place {
                    GpuPlaces::OwnGuest => lender + &guest(&["gpu0", "gpu1"]),
                    GpuPlaces::RemoteGuest => {
                        let borrower = borrower() + &guest(&[]);
                        borrower + &lender + &adapter("chassis:3") + &cluster_by(&hosts, &lent, "borrower/x")
                    }
                    _ => borrower() + &lender + &adapter("chassis:3") + &cluster(&hosts, &lent),
                }
            }
        }
    }
}
