//! Capabilities of a function.

use platform::cpu::Cpu;
use wire::pcie::config::caps::{Found, Walk, id};

use super::backend::Backend;

/// Port types with a link below: root port, downstream port.
const LINK_BELOW: [u16; 2] = [4, 6];
/// Capabilities register: a slot is below the port.
const SLOT: u16 = 1 << 8;

/// What the two lists of a function's capabilities say.
pub(super) struct CapabilityLists {
    found: Vec<Found>,
    extended: Vec<Found>,
    /// Offset and first register of the PCI Express capability.
    pcie: Option<(u16, u16)>,
}

impl CapabilityLists {
    /// Reads a function's lists.
    pub async fn read(cpu: &Cpu, way: &dyn Backend) -> Self {
        let found = walk(cpu, way, Walk::standard()).await;
        let extended = walk(cpu, way, Walk::extended()).await;
        let mut read = Self { found, extended, pcie: None };
        if let Some(at) = read.offset(id::PCI_EXPRESS) {
            read.pcie = Some((at, (way.config_read(cpu, at).await >> 16) as u16));
        }
        read
    }

    /// Offset of a capability.
    pub fn offset(&self, id: u8) -> Option<u16> {
        self.found.iter().find(|found| found.id == u16::from(id)).map(|found| found.offset)
    }

    /// Offset of an extended capability.
    pub fn extended_offset(&self, id: u16) -> Option<u16> {
        self.extended.iter().find(|found| found.id == id).map(|found| found.offset)
    }

    /// Offset of the PCI Express capability.
    pub fn pcie(&self) -> Option<u16> {
        self.pcie.map(|(at, _)| at)
    }

    /// The same, of a bridge with a hot-plug slot below.
    pub fn slot(&self) -> Option<u16> {
        self.pcie.filter(|(_, register)| register & SLOT != 0).map(|(at, _)| at)
    }

    /// Whether it is that of a port with a link below.
    pub fn is_above_link(&self) -> bool {
        self.pcie.is_some_and(|(_, register)| LINK_BELOW.contains(&(register >> 4 & 0xf)))
    }
}

async fn walk(cpu: &Cpu, way: &dyn Backend, mut walk: Walk) -> Vec<Found> {
    let mut found = Vec::new();
    while let Some(register) = walk.wants() {
        let value = way.config_read(cpu, register).await;
        found.extend(walk.take(value));
    }
    found
}
