//! Plain memory that takes no time, and a copier that is a few lines.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{Completion as Answer, Handle, oneshot};
use hardware::Fabric;
use kernel::{
    DeviceGround, Ground, InterruptSink, Inventory, IommuGround, IommuTables, LineGround, MemoryGround, Swept,
};
use platform::cpu::{CpuId, Node, StoreMark, Sweep};
use platform::memory::PhysAddr;
use platform::mmio::Store;
use units::{Duration, HostPhysical, Iova, Time};
use wire::pcie::config::msix::MsixLayout;
use wire::pcie::config::{ConfigSpace, PcieParams};
use wire::pcie::{Bdf, Generation, Width};
use wire::vtd::Features;
use wire::vtd::tables::TableMemory;

use super::iommu::{FEATURES, Iommu};
use crate::common::{DEVICE, MAGIC, VENDOR, reg};

/// What an access to memory takes here.
const ACCESS: Duration = Duration::from_ns(10);
/// What a copy by the device takes.
pub const COPY: Duration = Duration::from_us(1);
const MEMORY: u64 = 64 << 20;
pub const COPIER: Bdf = Bdf::new(0, 3, 0);
const TABLE: u64 = 0x2000;

/// Memory from address 0.
pub struct Memory(Vec<u8>);

impl TableMemory for Memory {
    fn read(&self, at: HostPhysical, into: &mut [u8]) -> bool {
        let found = self.0.get(at.get() as usize..).and_then(|bytes| bytes.get(..into.len()));
        found.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }

    fn write(&mut self, at: HostPhysical, from: &[u8]) -> bool {
        let place = self.0.get_mut(at.get() as usize..).and_then(|bytes| bytes.get_mut(..from.len()));
        place.map(|bytes| bytes.copy_from_slice(from)).is_some()
    }
}

pub struct Board {
    memory: Memory,
    iommu: Option<Iommu>,
    config: ConfigSpace,
    /// The copier's first BAR, with its MSI-X table.
    registers: Vec<u8>,
    pub sink: Option<InterruptSink>,
}

impl Board {
    fn register(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.registers[at as usize..][..8].try_into().unwrap())
    }

    /// A function accesses memory, byte by byte. `false` if it may not.
    fn dma(&mut self, from: Bdf, at: u64, bytes: &mut [u8], writes: bool) -> bool {
        for (at, byte) in (at..).zip(bytes) {
            let place = match &mut self.iommu {
                Some(iommu) => iommu.translate(&self.memory, from, at, writes),
                None => Some(at),
            };
            let Some(place) = place.map(HostPhysical::new) else { return false };
            let byte = std::slice::from_mut(byte);
            let done = if writes { self.memory.write(place, byte) } else { self.memory.read(place, byte) };
            assert!(done, "it is memory");
        }
        true
    }

    /// A function reads as many bytes as there are in `N`; `None` if it may not.
    pub fn dma_read<const N: usize>(&mut self, from: Bdf, at: Iova) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.dma(from, at.get(), &mut bytes, false).then_some(bytes)
    }

    /// Copies, and sends what the table says of the vector, or of vector 7 if the copier may not.
    fn copy(&mut self, vector: u64) {
        let [source, target, length] = [reg::SOURCE, reg::TARGET, reg::LENGTH].map(|at| self.register(at));
        let mut bytes = vec![0; length as usize];
        let copied =
            self.dma(COPIER, source, &mut bytes, false) && self.dma(COPIER, target, &mut bytes, true);
        let vector = if copied { vector } else { 7 };
        let (address, data) = (self.register(TABLE + 16 * vector), self.register(TABLE + 16 * vector + 8));
        let to = match &self.iommu {
            Some(iommu) => iommu.interrupt(&self.memory, address, data),
            None => Some(((address >> 12 & 0xff) as u32, data as u8)),
        };
        if let (Some(sink), Some((core, vector))) = (&mut self.sink, to) {
            sink(core, vector);
        }
    }
}

pub struct Plain {
    hw: Handle<Fabric>,
    pub board: Rc<RefCell<Board>>,
}

impl Plain {
    pub fn new(hw: Handle<Fabric>, iommu: Option<Iommu>) -> Self {
        let layout = MsixLayout {
            vectors: 8,
            table_bar: 0,
            table_offset: TABLE as u32,
            pending_bar: 0,
            pending_offset: 0x3000,
        };
        let config = ConfigSpace::endpoint(VENDOR, DEVICE, 0x08_8000)
            .bar64(0, 16 << 10, false)
            .pcie(PcieParams::endpoint(Generation::Gen3, Width::X8))
            .msix(layout)
            .build()
            .unwrap();
        let mut registers = vec![0; 16 << 10];
        registers[..4].copy_from_slice(&MAGIC.to_le_bytes());
        let memory = Memory(vec![0; MEMORY as usize]);
        let board = Board { memory, iommu, config, registers, sink: None };
        Self { hw, board: Rc::new(RefCell::new(board)) }
    }

    fn now(&self, data: Vec<u8>) -> Answer<Vec<u8>> {
        let (completer, answer) = oneshot();
        completer.complete(data);
        answer
    }
}

impl Ground for Plain {
    fn inventory(&self) -> Inventory {
        Inventory { cores: vec![Node(0); 2], memory: vec![vec![(PhysAddr(0), MEMORY)]] }
    }

    fn connect_interrupts(&self, sink: Option<InterruptSink>) {
        self.board.borrow_mut().sink = sink;
    }
}

impl MemoryGround for Plain {
    fn load(&self, _: CpuId, now: Time, at: PhysAddr, into: &mut [u8]) -> Time {
        self.peek(at, into);
        now + ACCESS
    }

    fn store(&self, _: CpuId, now: Time, at: PhysAddr, from: &[u8]) -> Time {
        self.poke(at, from);
        now + ACCESS
    }

    fn stream(&self, core: CpuId, now: Time, at: PhysAddr, from: &[u8]) -> Time {
        self.store(core, now, at, from)
    }

    fn sweep(&self, _: CpuId, now: Time, arrays: Sweep<'_>, step: Duration) -> Swept {
        let done = now + step * arrays.length.div_ceil(64);
        Swept { issued: done, loaded: done }
    }

    fn gather(&self, _: CpuId, now: Time, places: &[PhysAddr], step: Duration) -> Time {
        now + step * places.len() as u64
    }

    fn prefetch(&self, _: CpuId, now: Time, _: PhysAddr, _: u64) -> Time {
        now
    }

    fn flush(&self, _: CpuId, _: Time, at: PhysAddr) -> bool {
        self.is_memory(at, 1)
    }

    fn is_memory(&self, at: PhysAddr, length: u64) -> bool {
        at.0 + length <= MEMORY
    }

    fn peek(&self, at: PhysAddr, into: &mut [u8]) -> bool {
        self.board.borrow().memory.read(HostPhysical::new(at.0), into)
    }

    fn poke(&self, at: PhysAddr, from: &[u8]) -> bool {
        self.board.borrow_mut().memory.write(HostPhysical::new(at.0), from)
    }
}

impl DeviceGround for Plain {
    fn store_to_device(&self, _: CpuId, _: Time, store: Store<'_>) {
        let Store::Uncached(address, bytes) = store else { return };
        let mut board = self.board.borrow_mut();
        let Some((0, offset)) = board.config.find_bar(address, bytes.len() as u32) else { return };
        board.registers[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        if offset == reg::START {
            let (hw, board, vector) = (self.hw.clone(), Rc::clone(&self.board), board.register(reg::START));
            self.hw.spawn(async move {
                hw.sleep(COPY).await;
                board.borrow_mut().copy(vector);
            });
        }
    }

    fn store_mark(&self, _: CpuId, _: Time) -> StoreMark {
        StoreMark::default()
    }

    fn uncached_accepted_by(&self, _: CpuId, when: Time) -> Time {
        when
    }

    fn follow_stores(&self, _: CpuId, when: Time, _: (CpuId, StoreMark)) -> Time {
        when
    }

    fn stores_pending_at_most(&self, _: CpuId, _: usize) -> Option<Answer<()>> {
        None
    }

    fn holds_stores(&self, _: CpuId) -> bool {
        false
    }

    fn free_fill_buffers(&self, _: CpuId, _: Time) -> usize {
        1
    }

    fn read_device(&self, _: CpuId, at: PhysAddr, length: usize) -> Option<Answer<Vec<u8>>> {
        let board = self.board.borrow();
        let (_, offset) = board.config.find_bar(at.0, length as u32)?;
        Some(self.now(board.registers[offset as usize..][..length].to_vec()))
    }

    fn config_read(&self, _: CpuId, function: Bdf, register: u16) -> Answer<Vec<u8>> {
        let value = match function == COPIER {
            true => self.board.borrow().config.dword(register),
            false => u32::MAX,
        };
        self.now(value.to_le_bytes().to_vec())
    }

    fn config_write(
        &self,
        _: CpuId,
        function: Bdf,
        register: u16,
        value: u32,
        enables: u8,
    ) -> Answer<Vec<u8>> {
        if function == COPIER {
            self.board.borrow_mut().config.write(register, value, enables);
        }
        self.now(Vec::new())
    }

    fn node_of_port(&self, _: Bdf) -> Option<Node> {
        None
    }

    fn has_way(&self, _: Bdf, _: PhysAddr, _: u64) -> bool {
        false
    }
}

impl LineGround for Plain {}

impl IommuGround for Plain {
    fn iommus(&self) -> usize {
        self.board.borrow().iommu.iter().len()
    }

    fn iommu_features(&self, _: usize) -> Features {
        FEATURES
    }

    fn set_iommu(&self, _: usize, translates: bool, tables: Option<IommuTables>) {
        self.board.borrow_mut().iommu.as_mut().unwrap().set(translates, tables);
    }

    fn invalidate(&self, _: usize, now: Time, tail: u64) -> Option<Time> {
        let Board { iommu, memory, .. } = &mut *self.board.borrow_mut();
        iommu.as_mut().unwrap().invalidate(memory, tail);
        Some(now)
    }

    fn iommu_faults(&self) -> Vec<(Bdf, u64)> {
        let board = self.board.borrow();
        board.iommu.iter().flat_map(|iommu| &iommu.faults).map(|(&from, &count)| (from, count)).collect()
    }

    fn edit_tables(&self, edit: &mut dyn FnMut(&mut dyn TableMemory)) {
        edit(&mut self.board.borrow_mut().memory);
    }
}
