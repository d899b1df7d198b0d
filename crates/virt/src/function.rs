//! A function as the guest sees it: virtual configuration space, BARs at guest addresses, and messages to vCPUs. Used
//! for passed-through and for paravirtual functions.

use std::cell::RefCell;
use std::ops::Range;

use platform::memory::{PAGE, PhysAddr};
use wire::pcie::IntxLine;
use wire::pcie::config::msix::{ENTRY_LEN, ENTRY_MASKED, MsixLayout};
use wire::pcie::config::{BarKind, ConfigEffect, ConfigSpace, ResetKind};

/// A memory write that is an interrupt for the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestMessage {
    /// Address, which encodes the core.
    pub address: u64,
    /// Data, which encodes the vector.
    pub data: u32,
}

/// An MSI-X table entry.
#[derive(Clone, Copy)]
struct MsixEntry {
    /// Address, data and control.
    words: [u32; 4],
    /// An interrupt is pending while masked.
    waits: bool,
}

impl MsixEntry {
    const RESET: Self = Self { words: [0, 0, 0, ENTRY_MASKED], waits: false };

    fn is_masked(&self) -> bool {
        self.words[3] & ENTRY_MASKED != 0
    }
}

/// A function as the guest sees it.
pub struct GuestFunction {
    config: RefCell<ConfigSpace>,
    layout: Option<MsixLayout>,
    table: RefCell<Vec<MsixEntry>>,
}

impl GuestFunction {
    /// A function with this configuration space, which also locates the MSI-X table.
    pub fn new(config: ConfigSpace) -> Self {
        let layout = config.msix_layout();
        let vectors = layout.map_or(0, |layout| layout.vectors);
        Self {
            config: RefCell::new(config),
            layout,
            table: RefCell::new(vec![MsixEntry::RESET; vectors.into()]),
        }
    }

    /// Reads configuration space.
    pub fn config_read(&self, register: u16) -> u32 {
        self.config.borrow().dword(register)
    }

    /// Writes configuration space, and returns the effects to carry out.
    pub fn config_write(&self, register: u16, value: u32, enables: u8) -> Vec<ConfigEffect> {
        self.config.borrow_mut().write(register, value, enables)
    }

    /// Resets configuration space and table.
    pub fn reset(&self, kind: ResetKind) {
        self.config.borrow_mut().reset(kind);
        self.table.borrow_mut().fill(MsixEntry::RESET);
    }

    /// Guest address and size of a memory BAR; `None` while memory decoding is off.
    pub fn bar(&self, bar: u8) -> Option<(PhysAddr, u64)> {
        let config = self.config.borrow();
        let bar = config.bar(bar).filter(|bar| config.memory_enabled() && bar.kind != BarKind::Io)?;
        Some((PhysAddr(bar.address), bar.size))
    }

    /// The BAR with the MSI-X table, and the pages with the table.
    pub fn table_pages(&self) -> Option<(u8, Range<u64>)> {
        let layout = self.layout?;
        let start = u64::from(layout.table_offset);
        let end = (start + layout.table_len()).next_multiple_of(PAGE);
        Some((layout.table_bar, start / PAGE * PAGE..end))
    }

    /// Reads bytes of the table's BAR.
    pub fn table_read(&self, offset: u64, into: &mut [u8]) {
        let table = self.table.borrow();
        let start = self.layout.map_or(0, |layout| layout.table_offset.into());
        for (n, byte) in into.iter_mut().enumerate() {
            let at = (offset + n as u64).wrapping_sub(start);
            let entry = table.get((at / ENTRY_LEN) as usize);
            *byte = entry.map_or(0, |entry| {
                entry.words[(at % ENTRY_LEN / 4) as usize].to_le_bytes()[(at % 4) as usize]
            });
        }
    }

    /// Writes bytes of the table's BAR. Returns the vector whose entry was written.
    pub fn table_write(&self, offset: u64, from: &[u8]) -> Option<u16> {
        let mut table = self.table.borrow_mut();
        let start = self.layout.map_or(0, |layout| layout.table_offset.into());
        for (n, &byte) in from.iter().enumerate() {
            let at = (offset + n as u64).wrapping_sub(start);
            let Some(entry) = table.get_mut((at / ENTRY_LEN) as usize) else { continue };
            let word = &mut entry.words[(at % ENTRY_LEN / 4) as usize];
            let mut bytes = word.to_le_bytes();
            bytes[(at % 4) as usize] = byte;
            *word = u32::from_le_bytes(bytes);
        }
        let vector = (offset.wrapping_sub(start) / ENTRY_LEN) as usize;
        (vector < table.len()).then_some(vector as u16)
    }

    /// The legacy interrupt line, if the guest has enabled it.
    pub fn line(&self) -> Option<IntxLine> {
        self.config.borrow().enabled_line()
    }

    /// Sets or clears the legacy interrupt's cause. Returns the line that is asserted now.
    pub fn set_interrupt_status(&self, pending: bool) -> Option<IntxLine> {
        let mut config = self.config.borrow_mut();
        config.set_interrupt_status(pending);
        config.active_line()
    }

    /// Whether the guest uses MSI-X.
    pub fn uses_table(&self) -> bool {
        self.config.borrow().msix_enabled().0
    }

    /// Number of interrupts that the guest uses; with MSI-X, up to the last unmasked one.
    pub fn vectors(&self) -> u16 {
        let config = self.config.borrow();
        if self.uses_table() {
            let last = self.table.borrow().iter().rposition(|entry| !entry.is_masked());
            return last.map_or(0, |last| last as u16 + 1);
        }
        config.msi().filter(|msi| msi.enabled).map_or(0, |msi| msi.vectors.into())
    }

    /// Message of an interrupt, masked or not; `None` if the guest has not enabled it.
    pub fn target(&self, number: u16) -> Option<GuestMessage> {
        let config = self.config.borrow();
        if self.uses_table() {
            let table = self.table.borrow();
            let words = table.get(usize::from(number))?.words;
            return Some(GuestMessage {
                address: u64::from(words[1]) << 32 | u64::from(words[0]),
                data: words[2],
            });
        }
        let msi = config.msi().filter(|msi| msi.enabled && number < msi.vectors.into())?;
        let data = msi.data & !(u16::from(msi.vectors) - 1) | number;
        Some(GuestMessage { address: msi.address, data: data.into() })
    }

    /// Message to send now for an interrupt. A masked one becomes pending instead.
    pub fn message(&self, number: u16) -> Option<GuestMessage> {
        let message = self.target(number)?;
        match self.is_held(number) {
            true => {
                if let Some(entry) = self.table.borrow_mut().get_mut(usize::from(number)) {
                    entry.waits = true;
                }
                None
            }
            false => Some(message),
        }
    }

    /// Whether the guest has masked an interrupt.
    pub fn is_held(&self, number: u16) -> bool {
        let config = self.config.borrow();
        match config.msix_enabled() {
            (true, unmasked) => {
                let table = self.table.borrow();
                !unmasked || table.get(usize::from(number)).is_none_or(MsixEntry::is_masked)
            }
            _ => config.msi().is_some_and(|msi| msi.mask >> number.min(31) & 1 != 0),
        }
    }

    /// Takes a pending interrupt that is no longer masked.
    pub fn take_waiting(&self) -> Option<u16> {
        let waits = |n: u16| self.table.borrow()[usize::from(n)].waits;
        let vectors = self.table.borrow().len() as u16;
        let free = (0..vectors).find(|&n| waits(n) && !self.is_held(n))?;
        self.table.borrow_mut()[usize::from(free)].waits = false;
        Some(free)
    }
}
