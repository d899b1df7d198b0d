//! A program's resources on a GPU: windows, memory and channels. Closing the context releases all of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Part};
use platform::dma::{Coherent, Direction};
use platform::gpu::{GpuChannel, GpuContext, GpuInfo, GpuMemory};
use platform::memory::PhysAddr;
use platform::mmio::MemoryType;
use units::Iova;
use wire::gpu::{self as regs, Entry, Fault, GpuCommand, Place, SEMAPHORE_BYTES, WindowKind};

use super::{CALL, Gpu};

/// Ring entries of a channel, and commands per entry.
const ENTRIES: u32 = 256;
const ENTRY_COMMANDS: u32 = 8;
/// Layout of a channel's memory: offset of each part.
const COMMANDS: u64 = ENTRIES as u64 * Entry::BYTES as u64;
const SEMAPHORE: u64 = COMMANDS + (ENTRIES * ENTRY_COMMANDS) as u64 * GpuCommand::BYTES as u64;
const NOTIFIER: u64 = SEMAPHORE + SEMAPHORE_BYTES;
const CHANNEL_BYTES: u64 = NOTIFIER + 8;

/// What a window maps.
#[derive(Clone, Copy)]
enum Behind {
    Local { at: u64, bytes: u64 },
    Host { at: Iova, bytes: u64 },
    Peer { at: Iova, bytes: u64 },
    Channel,
}

/// Memory of an open channel.
struct ChannelMemory {
    memory: Coherent,
    fault: Cell<Option<Fault>>,
}

pub(super) struct Context {
    gpu: Rc<Gpu>,
    number: u16,
    windows: RefCell<BTreeMap<u16, Behind>>,
    channels: RefCell<BTreeMap<u16, ChannelMemory>>,
    closed: Cell<bool>,
}

impl Context {
    pub fn new(gpu: Rc<Gpu>, number: u16) -> Self {
        let (windows, channels) = (RefCell::default(), RefCell::default());
        Self { gpu, number, windows, channels, closed: Cell::new(false) }
    }

    fn free_window(&self) -> Result<u16, Error> {
        if self.closed.get() || self.gpu.gone.get() {
            return Err(Error::NoDevice);
        }
        let windows = self.windows.borrow();
        (0..regs::WINDOWS).find(|number| !windows.contains_key(number)).ok_or(Error::NoSpace)
    }

    /// Maps a window to GPU or host memory.
    fn set_window(&self, cpu: &Cpu, number: u16, (kind, base, length): (WindowKind, u64, u64)) {
        let registers = &self.gpu.registers;
        let select = u32::from(self.number) << 16 | u32::from(number);
        registers.write_u32(cpu, regs::WINDOW_SELECT, select);
        registers.write_u64(cpu, regs::WINDOW_BASE, base);
        registers.write_u64(cpu, regs::WINDOW_LENGTH, length);
        registers.write_u32(cpu, regs::WINDOW_KIND, kind as u32);
    }

    /// Maps a window to bus addresses.
    fn open_bus(&self, cpu: &Cpu, number: u16, behind: Behind, at: Iova, bytes: u64) -> Place {
        self.set_window(cpu, number, (WindowKind::Bus, at.get(), bytes));
        self.windows.borrow_mut().insert(number, behind);
        Place { window: number, offset: 0 }
    }

    /// Unmaps a window and releases what it mapped.
    fn shut(&self, cpu: &Cpu, number: u16) {
        let Some(behind) = self.windows.borrow_mut().remove(&number) else { return };
        self.set_window(cpu, number, (WindowKind::None, 0, 0));
        let dma = &self.gpu.dma;
        match behind {
            Behind::Local { at, bytes } => self.gpu.memory.borrow_mut().give(at, bytes),
            Behind::Host { at, bytes } => dma.unmap(cpu, at, bytes, Direction::Bidirectional),
            Behind::Peer { at, bytes } => dma.unmap_resource(cpu, at, bytes, Direction::Bidirectional),
            Behind::Channel => {}
        }
    }

    /// Looks for channels that have stopped, and returns how many are new.
    pub fn look(&self, cpu: &Cpu) -> usize {
        let mut found = 0;
        for (number, channel) in &*self.channels.borrow() {
            let fault = Fault::from_number(cpu.load_u64(channel.memory.cpu + NOTIFIER));
            if let Some(fault) = fault.filter(|_| channel.fault.get().is_none()) {
                channel.fault.set(Some(fault));
                self.gpu.registers.write_u32(cpu, regs::FAULT_SEEN, (*number).into());
                self.gpu
                    .kernel
                    .log(format!("{}: channel {number} stopped: {fault:?}", self.gpu.name.borrow()));
                found += 1;
            }
        }
        found
    }
}

impl GpuContext for Context {
    fn info(&self) -> GpuInfo {
        self.gpu.info
    }

    fn take(&self, cpu: &Cpu, bytes: u64) -> Result<GpuMemory, Error> {
        let _part = cpu.book(Part::Driver);
        cpu.work(CALL);
        let window = self.free_window()?;
        let at = self.gpu.memory.borrow_mut().take(bytes).ok_or(Error::NoMemory)?;
        self.set_window(cpu, window, (WindowKind::Local, at, bytes));
        self.windows.borrow_mut().insert(window, Behind::Local { at, bytes });
        let shown = (at + bytes <= self.gpu.info.aperture).then(|| self.gpu.aperture + at);
        Ok(GpuMemory { place: Place { window, offset: 0 }, bytes, shown })
    }

    fn give(&self, cpu: &Cpu, memory: GpuMemory) {
        let _part = cpu.book(Part::Driver);
        cpu.work(CALL);
        self.shut(cpu, memory.place.window);
    }

    fn map_host(&self, cpu: &Cpu, at: PhysAddr, bytes: u64) -> Result<Place, Error> {
        let _part = cpu.book(Part::Driver);
        cpu.work(CALL);
        let window = self.free_window()?;
        let bus = self.gpu.dma.map(cpu, at, bytes, Direction::Bidirectional)?;
        Ok(self.open_bus(cpu, window, Behind::Host { at: bus, bytes }, bus, bytes))
    }

    fn map_peer(&self, cpu: &Cpu, at: PhysAddr, bytes: u64) -> Result<Place, Error> {
        let _part = cpu.book(Part::Driver);
        cpu.work(CALL);
        let window = self.free_window()?;
        let bus = self.gpu.dma.map_resource(cpu, at, bytes, Direction::Bidirectional)?;
        Ok(self.open_bus(cpu, window, Behind::Peer { at: bus, bytes }, bus, bytes))
    }

    fn unmap(&self, cpu: &Cpu, place: Place) {
        let _part = cpu.book(Part::Driver);
        cpu.work(CALL);
        self.shut(cpu, place.window);
    }

    fn channel(&self, cpu: &Cpu, engine: u8) -> Result<GpuChannel, Error> {
        let _part = cpu.book(Part::Driver);
        cpu.work(CALL);
        if engine > self.gpu.info.copy_engines {
            return Err(Error::Invalid);
        }
        let window = self.free_window()?;
        let number = self.gpu.channels.borrow().iter().position(|taken| !taken).ok_or(Error::NoSpace)? as u16;
        let doorbell =
            self.gpu.device.ioremap(regs::REGISTER_BAR, regs::doorbell(number), 4, MemoryType::Uncached)?;
        let memory = self.gpu.dma.alloc_coherent(cpu, CHANNEL_BYTES, None)?;
        self.gpu.channels.borrow_mut()[usize::from(number)] = true;
        self.open_bus(cpu, window, Behind::Channel, memory.bus, CHANNEL_BYTES);
        let registers = &self.gpu.registers;
        registers.write_u32(cpu, regs::CHANNEL_SELECT, number.into());
        registers.write_u64(cpu, regs::CHANNEL_RING, memory.bus.get());
        registers.write_u32(cpu, regs::CHANNEL_ENTRIES, ENTRIES);
        registers.write_u32(cpu, regs::CHANNEL_ENGINE, engine.into());
        registers.write_u32(cpu, regs::CHANNEL_CONTEXT, self.number.into());
        registers.write_u64(cpu, regs::CHANNEL_NOTIFIER, memory.bus.get() + NOTIFIER);
        registers.write_u32(cpu, regs::CHANNEL_ENABLE, 1);
        self.channels.borrow_mut().insert(number, ChannelMemory { memory, fault: Cell::new(None) });
        let place = |offset| Place { window, offset };
        Ok(GpuChannel {
            number,
            ring: memory.cpu,
            entries: ENTRIES,
            commands: memory.cpu + COMMANDS,
            commands_at: place(COMMANDS),
            entry_commands: ENTRY_COMMANDS,
            semaphore: memory.cpu + SEMAPHORE,
            semaphore_at: place(SEMAPHORE),
            doorbell,
        })
    }

    fn fault(&self, cpu: &Cpu, channel: u16) -> Option<Fault> {
        self.look(cpu);
        self.channels.borrow().get(&channel)?.fault.get()
    }

    fn is_present(&self) -> bool {
        !self.gpu.gone.get()
    }

    fn close(&self, cpu: &Cpu) {
        if self.closed.replace(true) {
            return;
        }
        let _part = cpu.book(Part::Driver);
        cpu.work(CALL);
        let registers = &self.gpu.registers;
        for number in self.channels.borrow().keys() {
            registers.write_u32(cpu, regs::CHANNEL_SELECT, (*number).into());
            registers.write_u32(cpu, regs::CHANNEL_ENABLE, 0);
            self.gpu.channels.borrow_mut()[usize::from(*number)] = false;
        }
        let windows: Vec<u16> = self.windows.borrow().keys().copied().collect();
        windows.into_iter().for_each(|window| self.shut(cpu, window));
        for held in self.channels.take().into_values() {
            self.gpu.dma.free_coherent(cpu, held.memory);
        }
        self.gpu.contexts.borrow_mut()[usize::from(self.number)] = None;
    }
}
