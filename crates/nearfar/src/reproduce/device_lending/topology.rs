//! Hosts, switches and GPUs as in Figures 9 and 11.

/// A scenario of Table 1, or of Figure 10.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Figure 10: one GPU below a switch.
    Loc,
    /// Both GPUs below one switch.
    LocP2pSw,
    /// Each GPU below a switch of its own.
    LocP2pRoot,
    /// The same, and copies go through host memory.
    LocRamRoot,
}

/// The machine.
pub const MACHINE: &str = "dolphin-e5-2603v4";
/// The switches on its board.
pub const SWITCH: &str = "dolphin-board";

impl Scenario {
    /// As the paper calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loc => "Loc",
            Self::LocP2pSw => "Loc-P2P-SW",
            Self::LocP2pRoot => "Loc-P2P-Root",
            Self::LocRamRoot => "Loc-RAM-Root",
        }
    }

    /// Whether GPUs reach each other by host memory.
    pub const fn is_through_ram(self) -> bool {
        matches!(self, Self::LocRamRoot)
    }

    /// The ports in which its GPUs are.
    const fn ports(self) -> &'static [&'static str] {
        match self {
            Self::Loc => &["sw0:1"],
            Self::LocP2pSw => &["sw0:1", "sw0:2"],
            Self::LocP2pRoot | Self::LocRamRoot => &["sw0:1", "sw1:1"],
        }
    }

    /// As a scenario's file has it.
    pub fn text(self) -> String {
        let switch = |n: usize| {
            let slot = ["slot", "slot.1"][n];
            format!("[[host.switch]]\nname = \"sw{n}\"\npart = \"{SWITCH}\"\nslot = \"{slot}\"\n")
        };
        let gpu = |(n, port): (usize, &&str)| {
            format!("[[host.device]]\nname = \"gpu{n}\"\ngpu = \"k420\"\nslot = \"{port}\"\n")
        };
        let switches: String = [0, 1].map(switch).concat();
        let gpus: String = self.ports().iter().enumerate().map(gpu).collect();
        format!("[[host]]\nname = \"lender\"\nmachine = \"{MACHINE}\"\n{switches}{gpus}")
    }
}
