//! An IOMMU without a model of time: the kernel's tables as VT-d lays them out, four levels and small pages only. It remembers every
//! translation of a page until a descriptor says otherwise, so that a kernel that forgets to invalidate is found out. Contexts and
//! interrupt entries are read anew each time.

use std::collections::BTreeMap;

use kernel::IommuTables;
use units::HostPhysical;
use wire::pcie::Bdf;
use wire::vtd::tables::TableMemory;
use wire::vtd::{Features, TableFormat};

use super::plain::Memory;

pub const FEATURES: Features = Features {
    format: TableFormat::VtD,
    host_address_bits: 46,
    five_level: false,
    pages_2mib: false,
    pages_1gib: false,
    posts_interrupts: false,
};

/// Bits of a page table entry.
const READ: u64 = 1;
const WRITE: u64 = 2;
/// Bytes of the invalidation queue.
const QUEUE: u64 = 4096;

#[derive(Default)]
pub struct Iommu {
    translates: bool,
    tables: Option<IommuTables>,
    head: u64,
    /// Page table entries, by domain and page.
    cached: BTreeMap<(u64, u64), u64>,
    pub faults: BTreeMap<Bdf, u64>,
}

/// The 4 KiB-aligned address in an entry.
const fn table(entry: u64) -> u64 {
    entry & 0x000f_ffff_ffff_f000
}

fn word(memory: &Memory, at: u64) -> u64 {
    let mut bytes = [0; 8];
    assert!(memory.read(HostPhysical::new(at), &mut bytes));
    u64::from_le_bytes(bytes)
}

fn words(memory: &Memory, at: u64) -> [u64; 2] {
    [word(memory, at), word(memory, at + 8)]
}

impl Iommu {
    pub fn set(&mut self, translates: bool, tables: Option<IommuTables>) {
        *self = Self { translates, tables, ..Self::default() };
    }

    /// Where a request goes; `None`, and a fault counted, if it may not.
    pub fn translate(&mut self, memory: &Memory, from: Bdf, at: u64, writes: bool) -> Option<u64> {
        if !self.translates {
            return Some(at);
        }
        let right = if writes { WRITE } else { READ };
        let entry = self.entry(memory, from, at).filter(|entry| entry & right != 0);
        if entry.is_none() {
            *self.faults.entry(from).or_default() += 1;
        }
        Some(table(entry?) | at & 0xfff)
    }

    fn entry(&mut self, memory: &Memory, from: Bdf, at: u64) -> Option<u64> {
        let present = |[low, high]: [u64; 2]| (low & 1 != 0).then_some([low, high]);
        let [buses, _] = present(words(memory, self.tables?.root.0 + 16 * u64::from(from.bus())))?;
        let [top, tag] = present(words(memory, table(buses) + 16 * u64::from(from.ari_function())))?;
        let place = (tag >> 8 & 0xffff, at >> 12);
        if let Some(known) = self.cached.get(&place) {
            return Some(*known);
        }
        let mut entry = top;
        for level in (0..4).rev() {
            let index = at >> (12 + 9 * level) & 0x1ff;
            entry = word(memory, table(entry) + 8 * index);
            if entry & (READ | WRITE) == 0 {
                return None;
            }
        }
        self.cached.insert(place, entry);
        Some(entry)
    }

    /// Core and vector of a message: those of its entry in the remapping table, if it names one.
    pub fn interrupt(&self, memory: &Memory, address: u64, data: u64) -> Option<(u32, u8)> {
        if address & 1 << 4 == 0 {
            return Some(((address >> 12 & 0xff) as u32, data as u8));
        }
        let index = address >> 5 & 0x7fff | (address >> 2 & 1) << 15;
        let [entry, _] = words(memory, self.tables?.interrupts?.base.get() + 16 * index);
        (entry & 1 != 0).then_some(((entry >> 32) as u32, (entry >> 16) as u8))
    }

    /// Executes descriptors up to byte `tail` of the queue.
    pub fn invalidate(&mut self, memory: &Memory, tail: u64) {
        while self.head != tail {
            let queue = self.tables.expect("it is on").queue.0;
            let [low, high] = words(memory, queue + self.head);
            self.head = (self.head + 16) % QUEUE;
            let (of, first, pages) = (low >> 16 & 0xffff, high >> 12, 1 << (high & 0x3f));
            // Other descriptors are about what it does not remember.
            match (low & 0xf, low >> 4 & 3) {
                (2, 1) => self.cached.clear(),
                (2, 2) => self.cached.retain(|&(domain, _), _| domain != of),
                (2, 3) => self
                    .cached
                    .retain(|&(domain, page), _| domain != of || !(first..first + pages).contains(&page)),
                _ => {}
            }
        }
    }
}
