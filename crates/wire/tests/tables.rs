//! VT-d's tables as software edits them, against what is mapped by plain ranges.

use std::cell::Cell;

use proptest::prelude::*;
use units::{Bytes, HostPhysical, Iova};
use wire::pcie::Bdf;
use wire::vtd::tables::{
    ContextTables, FrameAllocator, Mapping, PageTable, TABLE_BYTES, TableError, TableMemory,
};
use wire::vtd::{ContextEntry, DomainId, Features, PageSize, Permissions, TranslationType};

/// Memory for tables, which counts the words that are written one at a time.
struct Memory {
    bytes: Vec<u8>,
    words_written: Cell<u64>,
}

impl Memory {
    fn new(tables: usize) -> Self {
        Self { bytes: vec![0xff; tables * TABLE_BYTES as usize], words_written: Cell::new(0) }
    }

    fn place(&self, at: HostPhysical, len: usize) -> Option<std::ops::Range<usize>> {
        let at = at.get() as usize;
        (at + len <= self.bytes.len()).then_some(at..at + len)
    }
}

impl TableMemory for Memory {
    fn read(&self, at: HostPhysical, into: &mut [u8]) -> bool {
        self.place(at, into.len()).map(|place| into.copy_from_slice(&self.bytes[place])).is_some()
    }

    fn write(&mut self, at: HostPhysical, from: &[u8]) -> bool {
        let Some(place) = self.place(at, from.len()) else { return false };
        self.bytes[place].copy_from_slice(from);
        self.words_written.set(self.words_written.get() + u64::from(from.len() == 8));
        true
    }
}

/// Hands out one table after another, up to a limit.
struct Frames {
    next: u64,
    end: u64,
}

impl FrameAllocator for Frames {
    fn allocate_frame(&mut self) -> Option<HostPhysical> {
        let frame = (self.next < self.end).then(|| HostPhysical::new(self.next * TABLE_BYTES));
        self.next += u64::from(frame.is_some());
        frame
    }
}

const TABLES: usize = 64;
const PAGE: u64 = 4096;
const MIB_2: u64 = 2 << 20;
const GIB_1: u64 = 1 << 30;

/// A page table with its memory, and pages that ought to be mapped: address, end, frame.
struct World {
    memory: Memory,
    frames: Frames,
    table: PageTable,
    wanted: Vec<(u64, u64, u64)>,
}

impl World {
    fn new(levels: u8, features: Features) -> Self {
        let (mut memory, mut frames) = (Memory::new(TABLES), Frames { next: 1, end: TABLES as u64 });
        let table = PageTable::new(&mut memory, &mut frames, levels, features).expect("there is room");
        Self { memory, frames, table, wanted: Vec::new() }
    }

    fn map(&mut self, (at, len, frame): (u64, u64, u64), largest: PageSize) -> Result<u64, TableError> {
        let (memory, frames) = (&mut self.memory, &mut self.frames);
        let (iova, frame_at, len_in_bytes) = (Iova::new(at), HostPhysical::new(frame), Bytes::new(len));
        let written =
            self.table.map(memory, frames, iova, frame_at, len_in_bytes, Permissions::READ, largest)?;
        self.wanted.push((at, at + len, frame));
        Ok(written)
    }

    /// Takes `[at, end)` out of what is wanted; returns the bytes that were in it.
    fn forget(&mut self, at: u64, end: u64) -> u64 {
        let mut bytes = 0;
        let old = std::mem::take(&mut self.wanted);
        for (a, b, frame) in old {
            bytes += b.min(end).saturating_sub(a.max(at));
            self.wanted.extend((a < b.min(at)).then_some((a, b.min(at), frame)));
            self.wanted.extend((a.max(end) < b).then(|| (a.max(end), b, frame + (a.max(end) - a))));
        }
        bytes
    }

    fn frame_of(&self, at: u64) -> Option<u64> {
        self.wanted.iter().find(|(a, b, _)| (*a..*b).contains(&at)).map(|(a, _, frame)| frame + (at - a))
    }

    /// All mappings are aligned, wanted, and all that is.
    fn check(&self) {
        let mappings = self.table.mappings(&self.memory).expect("the tables are valid");
        let mut bytes = 0;
        for Mapping { iova, frame, size, permissions } in &mappings {
            assert_eq!((iova.get() % size.get(), frame.get() % size.get()), (0, 0));
            assert_eq!(self.frame_of(iova.get()), Some(frame.get()));
            let last = iova.get() + size.get() - 1;
            assert_eq!(self.frame_of(last), Some(frame.get() + size.get() - 1));
            assert_eq!(*permissions, Permissions::READ);
            let found = self.table.lookup(&self.memory, Iova::new(last)).expect("the tables are valid");
            assert_eq!(found.map(|found| (found.iova, found.resolve(Iova::new(last)))), {
                Some((*iova, HostPhysical::new(frame.get() + size.get() - 1)))
            });
            let leaf_table = self.table.leaf_table(&self.memory, *iova).expect("the tables are valid");
            assert_eq!(leaf_table.is_some(), *size == PageSize::Size4KiB);
            bytes += size.get();
        }
        assert!(mappings.is_sorted_by_key(|mapping| mapping.iova));
        assert_eq!(bytes, self.wanted.iter().map(|(a, b, _)| b - a).sum::<u64>());
    }

    fn tables(&self) -> Vec<HostPhysical> {
        let mut tables = self.table.tables(&self.memory).expect("the tables are valid");
        tables.sort();
        tables
    }

    fn allocated(&self, from: u64) -> impl Iterator<Item = HostPhysical> + use<> {
        (from..self.frames.next).map(|n| HostPhysical::new(n * TABLE_BYTES))
    }
}

/// Where pages meet: a few pages around a boundary of 2 MiB or 1 GiB.
fn place() -> impl Strategy<Value = u64> {
    (0u64..3, 0u64..3, 0u64..4).prop_map(|(gib, mib, pages)| gib * GIB_1 + mib * MIB_2 + pages * PAGE)
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    let length =
        prop_oneof![1u64..4, Just(MIB_2 / PAGE), Just(GIB_1 / PAGE), Just(GIB_1 / PAGE + 513), 511u64..1030];
    (place(), length).prop_map(|(at, pages)| (at, pages * PAGE))
}

fn sizes() -> impl Strategy<Value = PageSize> {
    prop_oneof![Just(PageSize::Size4KiB), Just(PageSize::Size2MiB), Just(PageSize::Size1GiB)]
}

/// An IOMMU with pages of 1 GiB has those of 2 MiB.
fn features() -> impl Strategy<Value = Features> {
    (0..3).prop_map(|n| Features { pages_2mib: n > 0, pages_1gib: n > 1, ..Features::ALL })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Maps and unmaps ranges. What each says of its work is what memory has seen.
    #[test]
    fn what_is_mapped_is_found_until_it_is_unmapped(
        steps in proptest::collection::vec((any::<bool>(), range(), place(), sizes()), 1..8),
        levels in 3u8..=5,
        features in features(),
    ) {
        let mut world = World::new(levels, features);
        prop_assert_eq!((world.table.levels(), world.table.address_bits()), (levels, 12 + 9 * u32::from(levels)));
        for (maps, (at, len), frame, largest) in steps {
            let (before, next) = (world.tables(), world.frames.next);
            let was = world.memory.words_written.get();
            let free = (at..at + len).step_by(PAGE as usize).find(|&page| world.frame_of(page).is_some());
            let mut removed = Vec::new();
            if maps {
                match (world.map((at, len, frame), largest), free) {
                    (Ok(written), None) => {
                        prop_assert_eq!(written, world.memory.words_written.get() - was);
                    }
                    (Err(TableError::AlreadyMapped { iova }), Some(taken)) => prop_assert_eq!(iova.get(), taken),
                    // What had been mapped is taken back.
                    (Err(TableError::NoFrame), None) => {}
                    (result, taken) => prop_assert!(false, "{result:?} {taken:?}"),
                }
            } else {
                let (memory, frames) = (&mut world.memory, &mut world.frames);
                let done = match world.table.unmap(memory, frames, Iova::new(at), Bytes::new(len)) {
                    // No room for a table that splits a page.
                    Err(TableError::NoFrame) => return Ok(()),
                    result => result.expect("the tables are valid"),
                };
                prop_assert_eq!(done.entries_written, world.memory.words_written.get() - was);
                prop_assert_eq!(done.bytes.get(), world.forget(at, at + len));
                removed = done.tables;
            }
            world.check();
            let mut expected: Vec<_> = before.into_iter().chain(world.allocated(next)).collect();
            expected.retain(|table| !removed.contains(table));
            prop_assert_eq!(world.tables(), expected);
        }
    }

    /// In tables without anything else, each page is as large as can be.
    #[test]
    fn pages_are_as_large_as_they_can_be(
        (at, len) in range(),
        frame in place(),
        largest in sizes(),
        features in features(),
    ) {
        let mut world = World::new(4, features);
        let supported = match world.table.largest_page() {
            PageSize::Size1GiB => (true, true),
            PageSize::Size2MiB => (true, false),
            PageSize::Size4KiB => (false, false),
        };
        prop_assert_eq!((features.pages_2mib, features.pages_1gib), supported);
        if world.map((at, len, frame), largest).is_err() {
            return Ok(()); // too many tables
        }
        let largest = largest.min(world.table.largest_page());
        for mapping in world.table.mappings(&world.memory).expect("the tables are valid") {
            let fits = |size: &PageSize| {
                let from = mapping.iova.get() & !(size.get() - 1);
                at <= from && from + size.get() <= at + len && at % size.get() == frame % size.get()
            };
            let expected = PageSize::ALL.into_iter().rev().filter(|size| *size <= largest).find(fits);
            prop_assert_eq!(Some(mapping.size), expected);
        }
    }
}

/// One page of 4 KiB goes out of one of 1 GiB: of 512 of 2 MiB then, and one of these of 512 of 4 KiB.
#[test]
fn a_large_page_is_split_around_what_is_unmapped() {
    let mut world = World::new(4, Features::ALL);
    assert_eq!(world.map((GIB_1, GIB_1, 3 * GIB_1), PageSize::Size1GiB), Ok(2));
    let (at, next) = (GIB_1 + 5 * MIB_2 + 7 * PAGE, world.frames.next);
    let (memory, frames) = (&mut world.memory, &mut world.frames);
    let done = world.table.unmap(memory, frames, Iova::new(at), Bytes::new(PAGE)).expect("there is room");
    assert_eq!((done.entries_written, done.bytes.get()), (513 + 513 + 1, world.forget(at, at + PAGE)));
    assert_eq!((done.tables, world.frames.next), (vec![], next + 2));
    world.check();
    assert_eq!(world.table.mappings(&world.memory).map(|all| all.len()), Ok(511 + 511));
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    let mut world = World::new(3, Features::ALL);
    let mut map = |at, len, frame| world.map((at, len, frame), PageSize::Size1GiB).map(|_| ());
    let misaligned = |at, len| Err(TableError::Misaligned { iova: Iova::new(at), length: Bytes::new(len) });
    assert_eq!(map(1, PAGE, 0), misaligned(1, PAGE));
    assert_eq!(map(0, PAGE + 1, 0), misaligned(0, PAGE + 1));
    assert_eq!(map(0, 0, 0), misaligned(0, 0));
    assert_eq!(map(0, PAGE, 2), misaligned(0, PAGE));
    let end = 1 << 39;
    let beyond = |at| Err(TableError::BeyondAddressWidth { iova: Iova::new(at), bits: 39 });
    assert_eq!(map(end - PAGE, 2 * PAGE, 0), beyond(end));
    assert_eq!(map(2 * end, PAGE, 0), beyond(2 * end));
    assert_eq!(map(!0xfff, PAGE, 0), beyond(!0xfff));
    assert_eq!(map(end - PAGE, PAGE, 0), Ok(()));
    world.check();
    assert_eq!(world.table.lookup(&world.memory, Iova::new(end)), Ok(None));
    let entry = world.table.context_entry(DomainId(7));
    assert_eq!((entry.domain, entry.levels, entry.page_table), (DomainId(7), 3, world.table.root()));
}

#[test]
fn each_function_has_an_entry_of_its_own() {
    let (mut memory, mut frames) = (Memory::new(8), Frames { next: 1, end: 4 });
    let contexts = ContextTables::new(&mut memory, &mut frames, Features::ALL).expect("there is room");
    let entry = |n: u16| ContextEntry {
        domain: DomainId(n),
        translation: TranslationType::WithAts,
        levels: 4,
        page_table: HostPhysical::new(u64::from(n) << 12),
        fault_processing_disabled: false,
    };
    let functions = [Bdf::new(0, 0, 0), Bdf::new(0, 0, 1), Bdf::new(0, 31, 7), Bdf::new(0xff, 0, 0)];
    for (n, function) in (1..).zip(functions) {
        assert_eq!(contexts.set(&mut memory, &mut frames, function, entry(n)), Ok(()));
    }
    assert_eq!(contexts.set(&mut memory, &mut frames, Bdf::new(1, 0, 0), entry(5)), Err(TableError::NoFrame));
    // Two tables of contexts, in the order of their first use; 16 bytes an entry.
    let word = |memory: &Memory, at: u64| {
        let mut bytes = [0; 8];
        assert!(memory.read(HostPhysical::new(at), &mut bytes));
        u64::from_le_bytes(bytes)
    };
    assert_eq!([0, 0xff].map(|bus| word(&memory, contexts.root().get() + 16 * bus)), [0x2001, 0x3001]);
    assert_eq!([0, 1, 0xff].map(|n| word(&memory, 0x2008 + 16 * n)), [0x102, 0x202, 0x302]);
    assert_eq!(word(&memory, 0x3000), 0x4005);
    let get = |memory: &Memory| functions.map(|function| contexts.get(memory, function));
    assert_eq!(get(&memory), [1, 2, 3, 4].map(|n| Ok(Some(entry(n)))));
    assert_eq!(contexts.get(&memory, Bdf::new(1, 0, 0)), Ok(None));
    assert_eq!(contexts.block(&mut memory, functions[1]), Ok(Some(entry(2))));
    assert_eq!(get(&memory), [1, 0, 3, 4].map(|n| Ok((n > 0).then(|| entry(n)))));
    assert_eq!(contexts.block(&mut memory, functions[1]), Ok(None));
    assert_eq!([0x2008, 0x2010, 0x2018, 0x2020].map(|at| word(&memory, at)), [0x102, 0, 0, 0]);
    assert_eq!(contexts.block(&mut memory, Bdf::new(2, 0, 0)), Ok(None));
    let at = HostPhysical::new(16 << 12);
    let mut outside = Frames { next: 16, end: 17 };
    let refused = ContextTables::new(&mut memory, &mut outside, Features::ALL).map(|_| ());
    assert_eq!(refused, Err(TableError::NotMemory { at }));
}
