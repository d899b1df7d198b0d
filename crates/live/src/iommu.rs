//! A guest's IOMMU: VT-d's registers, and its tables in the guest's memory, which the guest's own kernel writes.
//!
//! Section numbers refer to the *Intel Virtualization Technology for Directed I/O Architecture Specification*, legacy mode. It caches
//! nothing, so every request sees the tables as they are, and remaps no interrupts. What it does takes no time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;

use units::{HostPhysical, Iova};
use vfio_user::request::CONFIG_REGION;
use vfio_user::{ClientMemory, DmaMap, ServedFunction, VfioRefusal};
use wire::iommu::{COMMAND_BYTES, decode_command, decode_page};
use wire::pcie::Bdf;
use wire::vtd::{
    Access, ContextEntry, FaultReason, Features, InvalidationDescriptor, PageEntry, RootEntry, TableFormat,
    TranslationType, entry_offset,
};

/// Where the guest finds the registers. They are a BAR, and firmware has one place below 4 GiB for one so large: so the table that
/// tells of them can be made beforehand.
const REGISTERS: u64 = 0xc000_0000;
/// Bytes of that BAR.
const BAR_BYTES: u32 = 512 << 20;
/// Vendor and device ID, and class: system peripheral, IOMMU.
const IDENTITY: u32 = 0x0806_4e46;
const CLASS: u32 = 0x0806_0000;
/// Bytes of configuration space.
const CONFIG_BYTES: u64 = 4096;

/// Slot of the guest's first bus in which the registers are.
pub const SLOT: u8 = 0x1e;

/// What the guest's kernel may rely on.
const FEATURES: Features = Features {
    format: TableFormat::VtD,
    host_address_bits: 52,
    five_level: false,
    pages_2mib: true,
    pages_1gib: true,
    posts_interrupts: false,
};

/// Registers (10.4), each of 32 bits or the lower half of one of 64.
mod register {
    pub const VERSION: u64 = 0x00;
    pub const CAPABILITY: u64 = 0x08;
    pub const EXTENDED: u64 = 0x10;
    pub const COMMAND: u64 = 0x18;
    pub const STATUS: u64 = 0x1c;
    pub const ROOT: u64 = 0x20;
    pub const CONTEXT_COMMAND_HIGH: u64 = 0x2c;
    pub const FAULT_STATUS: u64 = 0x34;
    pub const FAULT_CONTROL: u64 = 0x38;
    pub const QUEUE_HEAD: u64 = 0x80;
    pub const QUEUE_TAIL: u64 = 0x88;
    pub const QUEUE: u64 = 0x90;
    pub const RECORDS: u64 = 0x220;
    pub const IOTLB_HIGH: u64 = 0x50c;
    pub const END: u64 = 0x1000;
}

/// Fault recording registers.
const RECORDS: usize = 8;

/// Capabilities: 64 Ki domains, tables of four levels, 48 bits, large pages, page-selective invalidation, drains.
const CAPABILITY: u64 = 6
    | 1 << 10
    | 47 << 16
    | 1 << 22
    | (register::RECORDS / 16) << 24
    | 0b11 << 34
    | 1 << 39
    | (RECORDS as u64 - 1) << 40
    | 18 << 48
    | 0b11 << 54;
/// Tables are read from caches, there is a queue for invalidation, functions may pass.
const EXTENDED: u64 = 1 | 1 << 1 | 1 << 6 | ((register::IOTLB_HIGH - 0xc) / 16) << 8;

/// Bits of command and status.
const TRANSLATES: u32 = 1 << 31;
const SETS_ROOT: u32 = 1 << 30;
const QUEUES: u32 = 1 << 26;
/// Bits of the fault status: more faults than registers, a fault is recorded, an invalidation descriptor is wrong.
const OVERFLOW: u32 = 1;
const PENDING: u32 = 1 << 1;
const QUEUE_ERROR: u32 = 1 << 4;

/// Tables that are looked through for what a function reaches: as many as map 8 GiB by small pages.
const MOST_TABLES: u32 = 4096;

/// What a function may access, by its guest's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Whatever there is: nothing is translated.
    Everything,
    /// So many bytes.
    Mapped(u64),
}

#[derive(Default)]
struct Registers {
    status: u32,
    /// What the guest wrote, and the root table that is in use.
    words: BTreeMap<u64, u32>,
    root: u64,
    head: u64,
    fault_status: u32,
    records: [[u64; 2]; RECORDS],
}

impl Registers {
    fn word(&self, at: u64) -> u32 {
        let half = |value: u64, low: u64| (value >> (8 * (at - low))) as u32;
        match at {
            register::VERSION => 0x10,
            0x08 | 0x0c => half(CAPABILITY, register::CAPABILITY),
            0x10 | 0x14 => half(EXTENDED, register::EXTENDED),
            register::STATUS => self.status,
            register::COMMAND => 0,
            register::FAULT_STATUS => self.fault_status(),
            register::QUEUE_HEAD => self.head as u32,
            at => match self.record(at) {
                Some((record, part)) => (self.records[record][part / 2] >> (32 * (part % 2))) as u32,
                None => self.words.get(&at).copied().unwrap_or_default(),
            },
        }
    }

    /// The fault recording register at an offset, and which of its words.
    fn record(&self, at: u64) -> Option<(usize, usize)> {
        let inside = at.checked_sub(register::RECORDS)? as usize;
        (inside / 16 < RECORDS).then_some((inside / 16, inside % 16 / 4))
    }

    fn fault_status(&self) -> u32 {
        let first = self.records.iter().position(|record| record[1] >> 63 == 1);
        self.fault_status | first.map_or(0, |first| PENDING | (first as u32) << 8)
    }

    /// A 64-bit register as the guest wrote it.
    fn long(&self, at: u64) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }

    /// Records a fault, if a register is free.
    fn refuse(&mut self, source: Bdf, address: u64, access: Access, reason: FaultReason) {
        let is_read = u64::from(access == Access::Read);
        let high = 1 << 63 | is_read << 62 | u64::from(reason.code()) << 32 | u64::from(source.bits());
        match self.records.iter_mut().find(|record| record[1] >> 63 == 0) {
            Some(record) => *record = [address & !0xfff, high],
            None => self.fault_status |= OVERFLOW,
        }
    }
}

/// A guest's IOMMU.
#[derive(Default)]
pub struct GuestIommu {
    registers: RefCell<Registers>,
    /// Command, first BAR and interrupt line, as the guest wrote them.
    config: RefCell<[u32; 3]>,
    /// The guest's memory.
    memory: RefCell<ClientMemory>,
    /// Requests that were stopped, by the guest's ID of the function.
    stopped: RefCell<BTreeMap<u16, u64>>,
    /// The functions behind it, by the guest's IDs, and what they could access when the guest last turned it off.
    functions: Vec<Bdf>,
    last: RefCell<BTreeMap<u16, Reach>>,
}

impl GuestIommu {
    /// For functions, by the guest's IDs.
    pub fn new(functions: Vec<Bdf>) -> Self {
        Self { functions, ..Self::default() }
    }

    /// The ACPI table that tells a guest of it, without its header (8.1): it is for what is below the root ports in these slots of the
    /// first bus.
    pub fn table(slots: impl Iterator<Item = u8>) -> Vec<u8> {
        let scopes: Vec<u8> = slots.flat_map(|slot| [2, 8, 0, 0, 0, 0, slot, 0]).collect();
        let mut table = vec![47, 0];
        table.extend([0; 10]);
        table.extend([0, 0]);
        table.extend((16 + scopes.len() as u16).to_le_bytes());
        table.extend([0; 4]);
        table.extend(REGISTERS.to_le_bytes());
        table.extend(scopes);
        table
    }

    /// Translates a request of a function, by the guest's ID of it.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn translate(&self, source: Bdf, address: u64, access: Access) -> Result<u64, FaultReason> {
        let Some(entry) = self.context(source)? else { return Ok(address) };
        let iova = Iova::new(address);
        if !entry.spans(iova) {
            return Err(FaultReason::BeyondAddressWidth);
        }
        let mut table = entry.page_table;
        for level in (1..=entry.levels).rev() {
            let word = self.word(table.get() + entry_offset(iova, level));
            let word = word.ok_or(FaultReason::PageTableUnreachable)?;
            match decode_page(word, level, FEATURES)? {
                PageEntry::Table { table: next, permissions } if permissions.allow(access) => table = next,
                PageEntry::Leaf { frame, size, permissions } if permissions.allow(access) => {
                    return Ok(frame.get() | address & (size.get() - 1));
                }
                _ => break,
            }
        }
        Err(FaultReason::not_permitted(access))
    }

    /// Counts and records a request that is refused.
    pub fn refuse(&self, source: Bdf, address: u64, access: Access, reason: FaultReason) {
        *self.stopped.borrow_mut().entry(source.bits()).or_default() += 1;
        self.registers.borrow_mut().refuse(source, address, access, reason);
    }

    /// Requests of a function that were stopped.
    pub fn stopped(&self, source: Bdf) -> u64 {
        self.stopped.borrow().get(&source.bits()).copied().unwrap_or_default()
    }

    /// What a function may access now.
    pub fn reach(&self, source: Bdf) -> Reach {
        match self.context(source) {
            Ok(None) => Reach::Everything,
            Ok(Some(entry)) => Reach::Mapped(self.mapped(entry.page_table, entry.levels, &mut 0)),
            Err(_) => Reach::Mapped(0),
        }
    }

    /// What a function could access in the end: a kernel that ends turns its IOMMU off.
    pub fn last_reach(&self, source: Bdf) -> Reach {
        let last = self.last.borrow().get(&source.bits()).copied();
        match self.is_on() {
            true => self.reach(source),
            false => last.unwrap_or(Reach::Everything),
        }
    }

    fn is_on(&self) -> bool {
        self.registers.borrow().status & TRANSLATES != 0
    }

    /// It is about to be turned off.
    fn note(&self) {
        if self.is_on() {
            let reaches = self.functions.iter().map(|own| (own.bits(), self.reach(*own)));
            *self.last.borrow_mut() = reaches.collect();
        }
    }

    /// Bytes that a table maps. A guest's tables may be anything: after [`MOST_TABLES`] it is enough.
    fn mapped(&self, table: HostPhysical, level: u8, tables: &mut u32) -> u64 {
        *tables += 1;
        if level == 0 || *tables > MOST_TABLES {
            return 0;
        }
        let entry = |number: u64| match self
            .word(table.get() + 8 * number)
            .map(|w| decode_page(w, level, FEATURES))
        {
            Some(Ok(PageEntry::Table { table, .. })) => self.mapped(table, level - 1, tables),
            Some(Ok(PageEntry::Leaf { size, .. })) => size.get(),
            _ => 0,
        };
        (0..512).map(entry).sum()
    }

    /// A function's context entry; `None` if its requests pass as they are.
    fn context(&self, source: Bdf) -> Result<Option<ContextEntry>, FaultReason> {
        if !self.is_on() {
            return Ok(None);
        }
        let registers = self.registers.borrow();
        let root = self.pair(registers.root + 16 * u64::from(source.bus()));
        let root = RootEntry::decode(root.ok_or(FaultReason::RootTableUnreachable)?, FEATURES)?;
        let entry = self.pair(root.context_table.get() + 16 * u64::from(source.bits() & 0xff));
        let entry = ContextEntry::decode(entry.ok_or(FaultReason::ContextTableUnreachable)?, FEATURES)?;
        Ok(Some(entry).filter(|entry| entry.translation != TranslationType::PassThrough))
    }

    fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.borrow().read(at, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    fn pair(&self, at: u64) -> Option<[u64; 2]> {
        Some([self.word(at)?, self.word(at + 8)?])
    }

    /// As before the guest came.
    pub fn leave(&self) {
        *self.registers.borrow_mut() = Registers::default();
        *self.config.borrow_mut() = [0; 3];
        self.memory.borrow_mut().clear();
    }

    fn write_register(&self, at: u64, value: u32) {
        if at == register::COMMAND && value & TRANSLATES == 0 {
            self.note();
        }
        let mut registers = self.registers.borrow_mut();
        match at {
            register::COMMAND => {
                registers.status = registers.status & SETS_ROOT | value & (TRANSLATES | QUEUES);
                if value & SETS_ROOT != 0 {
                    registers.root = registers.long(register::ROOT) & !0xfff;
                    registers.status |= SETS_ROOT;
                }
            }
            register::FAULT_STATUS => registers.fault_status &= !(value & (OVERFLOW | QUEUE_ERROR)),
            register::QUEUE => {
                registers.words.insert(at, value);
                registers.head = 0;
            }
            register::QUEUE_TAIL => {
                registers.words.insert(at, value);
                self.run_queue(&mut registers, u64::from(value) & 0x7_fff0);
            }
            // Nothing is cached, so an invalidation by register is done at once.
            register::CONTEXT_COMMAND_HIGH | register::IOTLB_HIGH => {
                registers.words.insert(at, value & !(1 << 31));
            }
            register::FAULT_CONTROL => drop(registers.words.insert(at, value & 1 << 31)),
            at => match registers.record(at) {
                Some((record, 3)) if value >> 31 == 1 => registers.records[record] = [0; 2],
                Some(_) => {}
                None => drop(registers.words.insert(at, value)),
            },
        }
    }

    /// Executes invalidation descriptors up to a tail (6.5.2). Only waits have an effect.
    fn run_queue(&self, registers: &mut Registers, tail: u64) {
        let queue = registers.long(register::QUEUE);
        let (base, bytes) = (queue & !0xfff, 4096 << (queue & 0b111));
        if tail >= bytes {
            registers.fault_status |= QUEUE_ERROR;
        }
        while registers.head != tail
            && registers.status & QUEUES != 0
            && registers.fault_status & QUEUE_ERROR == 0
        {
            let words = self.pair(base + registers.head);
            match words.and_then(|words| decode_command(words, FEATURES.format)) {
                Some(InvalidationDescriptor::Wait { status: Some((address, value)), .. }) => {
                    self.memory.borrow().write(address.get(), &value.to_le_bytes());
                }
                Some(_) => {}
                None => {
                    registers.fault_status |= QUEUE_ERROR;
                    return;
                }
            }
            registers.head = (registers.head + COMMAND_BYTES) % bytes;
        }
    }

    fn config_word(&self, at: u64) -> u32 {
        let [command, bar, line] = *self.config.borrow();
        match at {
            0x00 | 0x2c => IDENTITY,
            0x04 => command,
            0x08 => CLASS,
            0x10 => bar,
            0x3c => line,
            _ => 0,
        }
    }

    fn write_config(&self, at: u64, value: u32) {
        let mut config = self.config.borrow_mut();
        match at {
            0x04 => config[0] = value & 0x0407,
            0x10 => config[1] = value & !(BAR_BYTES - 1),
            0x3c => config[2] = value & 0xff,
            _ => {}
        }
    }
}

impl ServedFunction for &GuestIommu {
    fn region_size(&self, region: u32) -> u64 {
        match region {
            0 => BAR_BYTES.into(),
            CONFIG_REGION => CONFIG_BYTES,
            _ => 0,
        }
    }

    fn vectors(&self, _: u32) -> u32 {
        0
    }

    fn read(&mut self, region: u32, offset: u64, into: &mut [u8]) {
        for (at, byte) in (offset..).zip(into) {
            let word = match region {
                CONFIG_REGION => self.config_word(at & !3),
                _ if at < register::END => self.registers.borrow().word(at & !3),
                _ => 0,
            };
            *byte = (word >> (8 * (at & 3))) as u8;
        }
    }

    fn write(&mut self, region: u32, offset: u64, from: &[u8]) {
        let end = offset + from.len() as u64;
        for at in (offset & !3..end).step_by(4) {
            let mut word = [0; 4];
            (&mut &**self).read(region, at, &mut word);
            for n in 0..4 {
                if (offset..end).contains(&(at + n)) {
                    word[n as usize] = from[(at + n - offset) as usize];
                }
            }
            let value = u32::from_le_bytes(word);
            match region {
                CONFIG_REGION => self.write_config(at, value),
                _ if at < register::END => self.write_register(at, value),
                _ => {}
            }
        }
    }

    fn connect(&mut self, _: u32, _: u32, _: Vec<Option<File>>) -> Result<(), VfioRefusal> {
        Ok(())
    }

    fn disconnect(&mut self, _: u32) {}

    fn raise(&mut self, _: u32, _: std::ops::Range<u32>) {}

    fn mask(&mut self, _: bool) {}

    fn map(&mut self, address: u64, map: DmaMap) -> Result<(), VfioRefusal> {
        self.memory.borrow_mut().map(address, map)
    }

    fn unmap(&mut self, range: Option<(u64, u64)>) -> Result<(), VfioRefusal> {
        let mut memory = self.memory.borrow_mut();
        match range {
            Some((address, size)) => memory.unmap(address, size),
            None => {
                memory.clear();
                Ok(())
            }
        }
    }

    fn reset(&mut self) {
        self.note();
        *self.registers.borrow_mut() = Registers::default();
        *self.config.borrow_mut() = [0; 3];
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use wire::vtd::{DomainId, PageSize, Permissions};

    use super::*;

    /// A guest with 1 MiB: root table at 0x1000, context table at 0x2000, page tables from 0x3000, queue at 0x8000.
    struct Guest(GuestIommu, File);

    impl Guest {
        fn new() -> Self {
            let (iommu, file) = (GuestIommu::new(vec![SOURCE]), tempfile::tempfile().unwrap());
            file.set_len(1 << 20).unwrap();
            let map =
                DmaMap { size: 1 << 20, offset: 0, file: file.try_clone().ok(), reads: true, writes: true };
            (&mut &iommu).map(0, map).unwrap();
            Self(iommu, file)
        }

        fn store(&self, at: u64, words: [u64; 2]) {
            let bytes = words.map(u64::to_le_bytes).concat();
            self.1.write_all_at(&bytes, at).unwrap();
        }

        fn set(&self, at: u64, value: u64) {
            (&mut &self.0).write(0, at, &value.to_le_bytes());
        }

        fn get(&self, at: u64) -> u32 {
            let mut word = [0; 4];
            (&mut &self.0).read(0, at, &mut word);
            u32::from_le_bytes(word)
        }

        fn command(&self, bits: u32) {
            (&mut &self.0).write(0, register::COMMAND, &bits.to_le_bytes());
        }
    }

    const SOURCE: Bdf = Bdf::from_bits(0x0200);

    #[test]
    fn a_function_reaches_what_its_domain_maps_and_no_more() {
        let guest = Guest::new();
        let translate = |source, address, access| guest.0.translate(source, address, access);
        assert_eq!(translate(SOURCE, 0x1234, Access::Write), Ok(0x1234), "off, it lets all pass");
        assert_eq!(guest.0.reach(SOURCE), Reach::Everything);
        guest.set(register::ROOT, 0x1000);
        guest.command(SETS_ROOT);
        guest.command(TRANSLATES);
        assert_eq!(guest.get(register::STATUS), TRANSLATES | SETS_ROOT);
        assert_eq!(translate(SOURCE, 0x1234, Access::Read), Err(FaultReason::RootNotPresent));
        guest.store(0x1020, RootEntry { context_table: HostPhysical::new(0x2000) }.encode());
        assert_eq!(translate(SOURCE, 0x1234, Access::Read), Err(FaultReason::ContextNotPresent));
        assert_eq!(guest.0.reach(SOURCE), Reach::Mapped(0));
        let entry = ContextEntry {
            domain: DomainId(1),
            translation: TranslationType::Untranslated,
            levels: 4,
            page_table: HostPhysical::new(0x3000),
            fault_processing_disabled: false,
        };
        guest.store(0x2000, entry.encode());
        let table = |at| {
            PageEntry::Table { table: HostPhysical::new(at), permissions: Permissions::READ_WRITE }.encode()
        };
        let leaf = |frame, size, permissions| {
            PageEntry::Leaf { frame: HostPhysical::new(frame), size, permissions }.encode()
        };
        guest.store(0x3000, [table(0x4000), 0]);
        guest.store(0x4000, [table(0x5000), 0]);
        guest.store(0x5000, [table(0x6000), leaf(0x4020_0000, PageSize::Size2MiB, Permissions::READ_WRITE)]);
        guest.store(0x6000, [0, leaf(0x7_7000, PageSize::Size4KiB, Permissions::READ)]);
        assert_eq!(translate(SOURCE, 0x1234, Access::Read), Ok(0x7_7234));
        assert_eq!(translate(SOURCE, 0x1234, Access::Write), Err(FaultReason::WriteNotPermitted));
        assert_eq!(translate(SOURCE, 0x2000, Access::Read), Err(FaultReason::ReadNotPermitted));
        assert_eq!(translate(SOURCE, 0x21_2345, Access::Write), Ok(0x4021_2345));
        assert_eq!(translate(SOURCE, 1 << 48, Access::Read), Err(FaultReason::BeyondAddressWidth));
        assert_eq!(
            translate(Bdf::from_bits(0x0201), 0x1234, Access::Read),
            Err(FaultReason::ContextNotPresent)
        );
        assert_eq!(guest.0.reach(SOURCE), Reach::Mapped((2 << 20) + 4096));
        assert_eq!(guest.0.last_reach(SOURCE), guest.0.reach(SOURCE));
        guest.command(0);
        let last = [SOURCE, Bdf::from_bits(0x0300)].map(|own| guest.0.last_reach(own));
        assert_eq!(
            last,
            [Reach::Mapped((2 << 20) + 4096), Reach::Everything],
            "as it was when it was turned off"
        );
        guest.command(TRANSLATES);
        guest.store(0x2000, ContextEntry { translation: TranslationType::PassThrough, ..entry }.encode());
        assert_eq!(translate(SOURCE, 0x9999, Access::Write), Ok(0x9999));
        // A table that is its own entry, and one outside of memory.
        guest.store(0x2000, ContextEntry { page_table: HostPhysical::new(1 << 30), ..entry }.encode());
        assert_eq!(translate(SOURCE, 0, Access::Read), Err(FaultReason::PageTableUnreachable));
        guest.1.write_all_at(&table(0x9000).to_le_bytes().repeat(512), 0x9000).unwrap();
        guest.store(0x2000, ContextEntry { page_table: HostPhysical::new(0x9000), ..entry }.encode());
        assert!(matches!(guest.0.reach(SOURCE), Reach::Mapped(_)), "it ends");
    }

    #[test]
    fn faults_are_counted_and_as_many_recorded_as_there_are_registers() {
        let guest = Guest::new();
        for n in 0..RECORDS as u64 + 1 {
            guest.0.refuse(SOURCE, n << 12 | 0x123, Access::Write, FaultReason::WriteNotPermitted);
        }
        assert_eq!(guest.0.stopped(SOURCE), RECORDS as u64 + 1);
        assert_eq!(guest.get(register::FAULT_STATUS), OVERFLOW | PENDING);
        assert_eq!(
            [0x10, 0x18, 0x1c].map(|at| guest.get(register::RECORDS + at)),
            [0x1000, 0x0200, 0x8000_0005]
        );
        (&mut &guest.0).write(0, register::RECORDS + 12, &(1u32 << 31).to_le_bytes());
        (&mut &guest.0).write(0, register::FAULT_STATUS, &OVERFLOW.to_le_bytes());
        assert_eq!(guest.get(register::FAULT_STATUS), PENDING | 1 << 8, "the first is free again");
    }

    #[test]
    fn the_queue_tells_when_it_is_done_and_stops_at_what_is_wrong() {
        let guest = Guest::new();
        guest.set(register::QUEUE, 0x8000);
        guest.command(QUEUES);
        guest.store(0x8000, InvalidationDescriptor::Context(wire::vtd::ContextScope::Global).encode());
        guest.store(0x8010, InvalidationDescriptor::wait(HostPhysical::new(0xa000), 77).encode());
        guest.store(0x8020, [u64::MAX; 2]);
        guest.set(register::QUEUE_TAIL, 0x20);
        let mut status = [0; 4];
        guest.1.read_exact_at(&mut status, 0xa000).unwrap();
        assert_eq!((u32::from_le_bytes(status), guest.get(register::QUEUE_HEAD)), (77, 0x20));
        assert_eq!(guest.get(register::FAULT_STATUS), 0);
        guest.set(register::QUEUE_TAIL, 0x30);
        assert_eq!((guest.get(register::QUEUE_HEAD), guest.get(register::FAULT_STATUS)), (0x20, QUEUE_ERROR));
        (&mut &guest.0).write(0, register::FAULT_STATUS, &QUEUE_ERROR.to_le_bytes());
        guest.set(register::QUEUE_TAIL, 0x1000);
        assert_eq!(guest.get(register::FAULT_STATUS), QUEUE_ERROR, "a tail outside");
    }

    #[test]
    fn its_bar_is_found_as_others_are() {
        let iommu = GuestIommu::default();
        let config = |at| {
            let mut word = [0; 4];
            (&mut &iommu).read(CONFIG_REGION, at, &mut word);
            u32::from_le_bytes(word)
        };
        (&mut &iommu).write(CONFIG_REGION, 0x10, &u32::MAX.to_le_bytes());
        assert_eq!(config(0x10), !(BAR_BYTES - 1));
        (&mut &iommu).write(CONFIG_REGION, 0x10, &(REGISTERS as u32).to_le_bytes());
        (&mut &iommu).write(CONFIG_REGION, 0x05, &[0xff]);
        assert_eq!((config(0x10), config(0x04), config(0x00)), (REGISTERS as u32, 0x0400, IDENTITY));
        let table = GuestIommu::table([1, 2].into_iter());
        assert_eq!((table.len(), table[14], table[table.len() - 2]), (12 + 32, 32, 2));
    }
}
