//! Where devices and switches are plugged in: as a scenario writes it, and as it was resolved.

use crate::link::LinkWidth;
use crate::placed::Placed;
use crate::read::record;
use crate::scenario::Changes;

record! {
    /// An upstream link of a device.
    pub struct LinkEntry {
        /// The slot, like a device's `slot`; the host's default slot if not given.
        slot: Option<Placed<String>>,
        /// The host of the slot; the device's own if not given.
        host: Option<Placed<String>>,
        /// Lanes of the slot that it uses; all if not given, or an even share of the device's lanes if that has
        /// several links.
        lanes: Option<Placed<LinkWidth>>,
        /// Further slots of the same host to which an event can move the link (`do = "assign"`), like a programmable
        /// switch on the board, such as `["sw1:2"]`. They must be empty.
        other_slots: Option<Vec<Placed<String>>>,
    }
}

record! {
    /// A PCIe switch of a host.
    pub struct PcieSwitchEntry {
        /// Name; its ports are `NAME:1` and so on.
        name: Placed<String>,
        /// The switch: a name, or the path of a file.
        part: Placed<String>,
        /// The slot of its upstream link; the machine's first free one that has its generation and lanes if not given.
        slot: Option<Placed<String>>,
        /// Lanes of the slot that it uses; all if not given.
        lanes: Option<Placed<LinkWidth>>,
        /// Changes to the switch, with the keys of its file.
        change: Option<Changes>,
    }
}

/// The slot of an upstream link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSetup {
    /// Index of the slot's host.
    pub host: usize,
    /// The slot in the host's tree of root ports and switches.
    pub slot: SlotSetup,
    /// Maximum lanes, limited by slot and device.
    pub lanes: u32,
    /// Name of the slot in the scenario; numbered if several links share it.
    pub name: String,
    /// Other slots to which events can move it.
    pub others: Vec<LinkSetup>,
}

/// A slot of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotSetup {
    /// Of a root port: its name in the machine's file.
    Root(String),
    /// Of a switch: index of the switch, and its port.
    Switch(usize, u8),
}

/// A link of a device, in the order of discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundLink {
    /// Index of the device's host.
    pub host: usize,
    /// Index of the device.
    pub device: usize,
    /// Index of the link.
    pub link: usize,
}

/// A device of a host, or one of its virtual functions, that is passed through or lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PassedSetup {
    /// Index of the host's device.
    pub device: usize,
    /// Index of the virtual function; `None` for the whole device. Those of the first Ethernet port come first.
    pub vf: Option<u16>,
}
