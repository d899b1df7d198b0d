//! What a write to configuration space sets off beyond the register itself.

use super::PowerState;

/// Something that hardware has to act upon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigEffect {
    /// Memory Space Enable of the command register.
    MemoryEnable(bool),
    /// I/O Space Enable of the command register.
    IoEnable(bool),
    /// Bus Master Enable of the command register.
    BusMaster(bool),
    /// Interrupt Disable of the command register.
    IntxDisable(bool),
    /// A BAR has a new value; of a 64-bit BAR, the number of its lower half.
    BarMoved {
        /// 0 to 5.
        bar: u8,
    },
    /// The expansion ROM's BAR has a new value.
    RomMoved,
    /// A bridge's bus numbers.
    BusNumbers {
        /// Bus above the bridge.
        primary: u8,
        /// Bus just below it.
        secondary: u8,
        /// Highest bus below it.
        subordinate: u8,
    },
    /// One of a bridge's windows has new limits.
    WindowMoved,
    /// A bridge's Secondary Bus Reset: everything below is in hot reset while it is set.
    SecondaryBusReset(bool),
    /// Power management: the function goes to another state.
    PowerState(PowerState),
    /// Enable, address, data, or masks of MSI.
    Msi,
    /// Enable or Function Mask of MSI-X.
    Msix {
        /// MSI-X Enable.
        enabled: bool,
        /// Function Mask.
        masked: bool,
    },
    /// Device Control or Device Control 2: sizes, tags, error reporting, timeouts, ...
    DeviceControl,
    /// Initiate Function Level Reset. The function answers with [`super::ConfigSpace::reset`].
    FunctionLevelReset,
    /// Link Control or Link Control 2 (ASPM, target speed, ...).
    LinkControl,
    /// Link Disable of a downstream port.
    LinkDisable(bool),
    /// Retrain Link of a downstream port.
    RetrainLink,
    /// Slot Control: a hot-plug command, to be answered with Command Completed.
    SlotCommand {
        /// The new value of Slot Control.
        control: u16,
    },
    /// Bits of a status register were cleared.
    StatusCleared {
        /// The doubleword's offset.
        offset: u16,
        /// Bits that were 1 and are 0 now.
        bits: u32,
    },
    /// Masks, severities or ECRC enables of AER; Root Error Command.
    ErrorReporting,
    /// ACS Control.
    Acs {
        /// The new value.
        control: u16,
    },
    /// ATS Control.
    Ats {
        /// Enable.
        enabled: bool,
        /// Smallest translation unit: 4096 bytes times 2 to this.
        smallest_unit: u8,
    },
    /// SR-IOV Control or NumVFs.
    Sriov {
        /// VF Enable.
        enabled: bool,
        /// VF Memory Space Enable.
        memory: bool,
        /// NumVFs.
        functions: u16,
    },
    /// A VF BAR has a new value.
    VfBarMoved {
        /// 0 to 5; of a 64-bit BAR, the number of its lower half.
        bar: u8,
    },
}
