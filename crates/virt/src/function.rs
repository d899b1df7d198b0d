//! What a guest sees of a function that is passed through: a configuration space of its own, BARs at its own addresses, and an MSI-X
//! table whose entries are messages to its own cores. Registers behind the BARs are the function's.

use std::cell::RefCell;

use platform::Error;
use platform::cpu::Cpu;
use platform::memory::{PAGE, PhysAddr};
use platform::pci::{BarRange, PciDevice};
use wire::pcie::config::caps::id;
use wire::pcie::config::header;
use wire::pcie::config::msix::{ENTRY_LEN, ENTRY_MASKED, MsixLayout};
use wire::pcie::config::{ConfigEffect, ConfigSpace, PcieParams};
use wire::pcie::{Bdf, Generation, Width};

/// Where an access of a guest to a device leads.
pub enum Target {
    /// To a register, at an address of the host.
    Register(PhysAddr),
    /// To a byte of the MSI-X table, or of what else is in its pages: the hypervisor answers.
    Table(u64),
}

/// A function that is passed through.
pub struct Passed {
    /// Where the guest finds it.
    pub at: Bdf,
    /// The host's function.
    pub device: PciDevice,
    config: RefCell<ConfigSpace>,
    bars: [Option<BarRange>; 6],
    layout: Option<MsixLayout>,
    /// The guest's entries: address, data, control; and whether an interrupt waits for its mask.
    table: RefCell<Vec<([u32; 4], bool)>>,
}

impl Passed {
    /// A function of the host, with what the guest is to see of it.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if its registers make no sense.
    pub async fn new(cpu: &Cpu, at: Bdf, device: PciDevice) -> Result<Self, Error> {
        let identity = device.identity();
        let mut config = ConfigSpace::endpoint(identity.vendor, identity.device, identity.class)
            .revision(identity.revision)
            .subsystem(identity.subsystem_vendor, identity.subsystem);
        let mut bars = [None; 6];
        for n in 0..6u8 {
            let Some(range) = device.bar(n) else { continue };
            let register = device.config_read(cpu, header::BAR0 + 4 * u16::from(n)).await;
            config = match register >> 1 & 3 {
                2 => config.bar64(n, range.length, range.prefetchable),
                _ => config.bar32(n, range.length, range.prefetchable),
            };
            bars[usize::from(n)] = Some(range);
        }
        config = config.power_management().pcie(PcieParams::endpoint(Generation::Gen3, Width::X4));
        let layout = match device.capability(id::MSIX) {
            None => None,
            Some(at) => {
                let mut words = [0; 3];
                for (n, word) in (0..).zip(&mut words) {
                    *word = device.config_read(cpu, at + 4 * n).await;
                }
                Some(MsixLayout::read(&|offset| words[usize::from((offset - at) / 4) % 3], at))
            }
        };
        if let Some(layout) = layout {
            config = config.msix(layout);
        }
        let vectors = layout.map_or(0, |layout| layout.vectors);
        Ok(Self {
            at,
            device,
            config: RefCell::new(config.build().map_err(|_| Error::NotSupported)?),
            bars,
            layout,
            table: RefCell::new(vec![([0, 0, 0, ENTRY_MASKED], false); vectors.into()]),
        })
    }

    /// Interrupts that it can send.
    pub fn vectors(&self) -> u16 {
        self.layout.map_or(0, |layout| layout.vectors)
    }

    /// What the guest reads of its configuration space.
    pub fn config_read(&self, register: u16) -> u32 {
        self.config.borrow().dword(register)
    }

    /// What the guest writes there, and what that is to have for a consequence.
    pub fn config_write(&self, register: u16, value: u32, enables: u8) -> Vec<ConfigEffect> {
        self.config.borrow_mut().write(register, value, enables)
    }

    /// Where an access to an address leads.
    pub fn target(&self, address: PhysAddr, length: usize) -> Option<Target> {
        let (bar, offset) = self.config.borrow().find_bar(address.0, length as u32)?;
        if let Some(layout) = self.layout.filter(|layout| layout.table_bar == bar) {
            let start = u64::from(layout.table_offset);
            let end = (start + layout.table_len()).next_multiple_of(PAGE);
            if (start / PAGE * PAGE..end).contains(&offset) {
                return Some(Target::Table(offset.wrapping_sub(start)));
            }
        }
        Some(Target::Register(self.bars[usize::from(bar)]?.start + offset))
    }

    /// Reads bytes of the table.
    pub fn table_read(&self, offset: u64, into: &mut [u8]) {
        let table = self.table.borrow();
        for (n, byte) in into.iter_mut().enumerate() {
            let at = offset.wrapping_add(n as u64);
            let entry = table.get((at / ENTRY_LEN) as usize);
            *byte = entry.map_or(0, |(entry, _)| {
                entry[(at % ENTRY_LEN / 4) as usize].to_le_bytes()[(at % 4) as usize]
            });
        }
    }

    /// Writes bytes of the table; gives the vector whose interrupt need not wait any more.
    pub fn table_write(&self, offset: u64, from: &[u8]) -> Option<u16> {
        let mut table = self.table.borrow_mut();
        for (n, &byte) in from.iter().enumerate() {
            let at = offset.wrapping_add(n as u64);
            let Some((entry, _)) = table.get_mut((at / ENTRY_LEN) as usize) else { continue };
            let word = &mut entry[(at % ENTRY_LEN / 4) as usize];
            let mut bytes = word.to_le_bytes();
            bytes[(at % 4) as usize] = byte;
            *word = u32::from_le_bytes(bytes);
        }
        let vector = (offset / ENTRY_LEN) as usize;
        let (entry, waits) = table.get_mut(vector)?;
        (entry[3] & ENTRY_MASKED == 0 && std::mem::take(waits)).then_some(vector as u16)
    }

    /// The core and the vector that the guest has given one of the function's interrupts. One that is masked waits.
    pub fn message(&self, number: u16) -> Option<(u16, u8)> {
        let (enabled, unmasked) = self.config.borrow().msix_enabled();
        let mut table = self.table.borrow_mut();
        let (entry, waits) = table.get_mut(usize::from(number)).filter(|_| enabled)?;
        if !unmasked || entry[3] & ENTRY_MASKED != 0 {
            *waits = true;
            return None;
        }
        Some(((entry[0] >> 12 & 0xff) as u16, entry[2] as u8))
    }
}
