//! A ground without any fabric: plain memory that takes no time, and a copier that is a few lines. The kernel, its PCI core, its
//! interrupts and an unmodified driver work on it as on a host.

mod common;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use common::{CopierDriver, DEVICE, MAGIC, VENDOR, reg};
use engine::{Completion as Answer, Handle, Simulation, oneshot};
use hardware::Fabric;
use kernel::{
    DeviceGround, DmaMode, Ground, InterruptSink, Inventory, IommuGround, Kernel, LineGround, MemoryGround,
    Store, StoreMark, Swept,
};
use platform::cpu::{CpuId, Node, Sweep};
use platform::irq::Affinity;
use platform::kernel::TaskParams;
use platform::memory::PhysAddr;
use platform::sync::Completion;
use units::{Duration, Time};
use wire::pcie::Bdf;
use wire::pcie::config::msix::MsixLayout;
use wire::pcie::config::{ConfigSpace, PcieParams};
use wire::pcie::{Generation, Width};

/// What an access to memory takes here.
const ACCESS: Duration = Duration::from_ns(10);
/// What a copy by the device takes.
const COPY: Duration = Duration::from_us(1);
const MEMORY: usize = 64 << 20;
const COPIER: Bdf = Bdf::new(0, 3, 0);
const TABLE: u64 = 0x2000;

struct Board {
    memory: Vec<u8>,
    config: ConfigSpace,
    /// The copier's first BAR, with its MSI-X table.
    registers: Vec<u8>,
    sink: Option<InterruptSink>,
}

impl Board {
    fn register(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.registers[at as usize..][..8].try_into().unwrap())
    }

    /// Copies, and sends what the table says of a vector.
    fn copy(&mut self, vector: u64) {
        let [source, target, length] =
            [reg::SOURCE, reg::TARGET, reg::LENGTH].map(|at| self.register(at) as usize);
        self.memory.copy_within(source..source + length, target);
        let (address, data) = (self.register(TABLE + 16 * vector), self.register(TABLE + 16 * vector + 8));
        if let Some(sink) = &mut self.sink {
            sink((address >> 12 & 0xff) as u32, data as u8);
        }
    }
}

struct Plain {
    hw: Handle<Fabric>,
    board: Rc<RefCell<Board>>,
}

impl Plain {
    fn new(hw: Handle<Fabric>) -> Self {
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
        let board = Board { memory: vec![0; MEMORY], config, registers, sink: None };
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
        Inventory { cores: vec![Node(0); 2], memory: vec![vec![(PhysAddr(0), MEMORY as u64)]] }
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
        at.0 + length <= MEMORY as u64
    }

    fn peek(&self, at: PhysAddr, into: &mut [u8]) -> bool {
        let is_memory = self.is_memory(at, into.len() as u64);
        if is_memory {
            into.copy_from_slice(&self.board.borrow().memory[at.0 as usize..][..into.len()]);
        }
        is_memory
    }

    fn poke(&self, at: PhysAddr, from: &[u8]) -> bool {
        let is_memory = self.is_memory(at, from.len() as u64);
        if is_memory {
            self.board.borrow_mut().memory[at.0 as usize..][..from.len()].copy_from_slice(from);
        }
        is_memory
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

impl IommuGround for Plain {}

#[test]
fn a_kernel_boots_and_drives_a_device_on_another_ground() {
    let simulation = Simulation::new(Fabric::new());
    let ground = Rc::new(Plain::new(simulation.handle()));
    let kernel = Kernel::on(&simulation.handle(), Rc::clone(&ground) as _, common::params(DmaMode::Off));
    let driver = Rc::new(CopierDriver::default());
    *driver.affinity.borrow_mut() = Affinity::Spread;
    kernel.add_driver(Rc::clone(&driver) as _);
    simulation.block_on(kernel.boot()).expect("the kernel boots");
    assert_eq!(kernel.pci().len(), 1, "{}", kernel.pci_text());
    let copier = Rc::clone(&driver.bound.borrow()[0]);
    let (done, ended) = (Completion::new(), Completion::new());
    let told = done.clone();
    kernel.spawn(TaskParams::named("test").on(CpuId(1)), move |cpu| {
        Box::pin(async move {
            let memory = copier.memory;
            cpu.store(memory.cpu, b"from one ground to another");
            cpu.sync().await;
            let began = cpu.now();
            let core = copier.copy(&cpu, memory.bus, memory.bus + 4096, 26, 1).await.unwrap();
            let mut bytes = [0; 26];
            cpu.load(memory.cpu + 4096, &mut bytes);
            cpu.sync().await;
            assert_eq!(&bytes, b"from one ground to another");
            told.complete((core, cpu.now().since(began)));
        })
    });
    let waits = done.clone();
    let end = ended.clone();
    simulation.spawn(async move { end.complete(waits.wait().await) });
    let (core, took) = simulation.block_on(async move { ended.wait().await }).expect("the task ends");
    assert!(core.0 < 2 && (COPY..COPY * 10).contains(&took), "{core:?}, {took}");
    assert_eq!(kernel.irq_counters().handled, 1);
    assert!(kernel.busy() > Duration::ZERO);
    kernel.halt();
    assert!(ground.board.borrow().sink.is_none(), "a kernel that has stopped takes no interrupts");
}

/// What a kernel does to hardware goes through its ground: no other file names any, but for the simulation that all are part of.
#[test]
fn nothing_but_the_ground_names_hardware() {
    fn look(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                if entry.file_name().unwrap() != "ground" {
                    look(&entry, found);
                }
                continue;
            }
            let text = std::fs::read_to_string(&entry).unwrap();
            let names = |line: &&str| line.contains("hardware::") && !line.trim_start().starts_with("//");
            let simulation = ["use hardware::Fabric;", "use hardware::root::HostId;"];
            let all = text.lines().filter(names).filter(|line| !simulation.contains(line));
            found.extend(all.map(|line| format!("{}: {line}", entry.display())));
        }
    }
    let mut found = Vec::new();
    look(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.is_empty(), "{found:#?}");
}
