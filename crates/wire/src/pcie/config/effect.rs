//! Side effects of configuration writes.

use super::PowerState;

/// A change that the hardware has to act on.
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
    /// A BAR has changed; a 64-bit BAR is named by its lower half.
    BarMoved {
        /// BAR number, 0 to 5.
        bar: u8,
    },
    /// The expansion ROM BAR has changed.
    RomMoved,
    /// A bridge's bus numbers have changed.
    BusNumbers {
        /// Primary bus number.
        primary: u8,
        /// Secondary bus number.
        secondary: u8,
        /// Subordinate bus number.
        subordinate: u8,
    },
    /// A bridge window has changed.
    WindowMoved,
    /// A bridge's Secondary Bus Reset: everything below stays in hot reset while it is set.
    SecondaryBusReset(bool),
    /// The function enters another power state.
    PowerState(PowerState),
    /// Enable, address, data or masks of MSI have changed.
    Msi,
    /// Enable or Function Mask of MSI-X has changed.
    Msix {
        /// MSI-X Enable.
        enabled: bool,
        /// Function Mask.
        masked: bool,
    },
    /// Device Control or Device Control 2 has changed: sizes, tags, error reporting, timeouts, ...
    DeviceControl,
    /// Initiate Function Level Reset. The function responds with [`super::ConfigSpace::reset`].
    FunctionLevelReset,
    /// Link Control or Link Control 2 has changed (ASPM, target speed, ...).
    LinkControl,
    /// Link Disable of a downstream port.
    LinkDisable(bool),
    /// Retrain Link of a downstream port.
    RetrainLink,
    /// Slot Control was written: a hot-plug command, to be acknowledged with Command Completed.
    SlotCommand {
        /// The new value of Slot Control.
        control: u16,
    },
    /// Status bits were cleared.
    StatusCleared {
        /// The doubleword's offset.
        offset: u16,
        /// Bits that changed from 1 to 0.
        bits: u32,
    },
    /// Masks, severities or ECRC enables of AER, or Root Error Command, have changed.
    ErrorReporting,
    /// Software triggers downstream port containment (`true`), or ends it by clearing its status.
    Containment(bool),
    /// ACS Control was written.
    Acs {
        /// The new value.
        control: u16,
    },
    /// ATS Control was written.
    Ats {
        /// Whether the function may send translation requests.
        enabled: bool,
        /// Smallest translation unit: binary logarithm, in units of 4096 bytes.
        smallest_unit: u8,
    },
    /// SR-IOV Control or NumVFs was written.
    Sriov {
        /// VF Enable.
        enabled: bool,
        /// VF Memory Space Enable.
        memory: bool,
        /// NumVFs.
        functions: u16,
    },
    /// A VF BAR has changed.
    VfBarMoved {
        /// BAR number, 0 to 5; the lower half of a 64-bit BAR.
        bar: u8,
    },
}
