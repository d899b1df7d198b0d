//! A GPU: memory, copy engines, programs that load and store, and channels through which the host submits work
//! ([`wire::gpu`]).
//!
//! Computation is simulated only by its duration; data movement is simulated byte for byte.
//!
//! | file | subject |
//! |---|---|
//! | `params` | parameters of a GPU |
//! | `channel` | channels, their commands, and the engines that serve them |
//! | `copy` | copy engines |
//! | `program` | programs that run on it |
//! | `memory` | its memory |
//! | `mover` | data rate between the GPU and the link |

mod channel;
mod copy;
mod memory;
mod mover;
mod params;
mod program;

use std::cell::RefCell;
use std::rc::Rc;

use engine::{JoinHandle, Notify};
use platform::device::{
    BarAccess, Device, DeviceBus, DmaError, Function, FunctionIndex, PortIndex, Reset, Stage, Token,
};
use platform::mover::DataMover;
use units::Duration;
use wire::gpu::{self as regs, MEMORY_BAR, WindowKind};
use wire::pcie::config::{ConfigError, ConfigSpace};

use crate::firmware::{Firmware, Port};
use channel::{Channel, Window};
use copy::CopyEngines;
use memory::GpuMemory;
use mover::LinkMover;

pub use params::GpuParams;

/// PCI class: VGA-compatible display controller.
const CLASS: u32 = 0x03_0000;
/// Largest aperture that firmware without decoding above 4 GiB, as in these GPUs' hosts, has space for. Up to this
/// size, the BAR is placed below 4 GiB.
const LOW_APERTURE: u64 = 256 << 20;

/// Counters of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuCounters {
    /// Bytes copied, by copy engine.
    pub copied: Vec<u64>,
    /// How often a channel waited for a semaphore.
    pub waits: u64,
    /// Channels stopped by a fault.
    pub faults: u64,
}

/// State shared by the tasks.
struct Chip {
    params: GpuParams,
    port: Port,
    memory: RefCell<GpuMemory>,
    windows: RefCell<Vec<Window>>,
    channels: RefCell<Vec<Channel>>,
    copies: CopyEngines,
    /// By engine: notified when there may be work.
    work: Vec<Notify>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
    counters: RefCell<GpuCounters>,
}

impl Chip {
    async fn pause(&self, time: Duration) {
        self.port.sleep_until(self.port.now() + time).await;
    }

    /// Keeps a task until a reset.
    fn keep(&self, task: JoinHandle<()>) {
        let mut tasks = self.tasks.borrow_mut();
        if tasks.len() > 4 * usize::from(regs::CHANNELS) {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(task);
    }

    /// Drives the legacy interrupt: asserted while a stopped channel is not acknowledged by its driver.
    fn drive_line(&self) {
        let is_due = self.channels.borrow().iter().any(|channel| channel.unseen);
        self.port.set_interrupt_status(FunctionIndex(0), is_due);
    }

    /// Resets all state and restarts the engines.
    fn begin(self: &Rc<Self>) {
        for task in self.tasks.take() {
            task.abort();
        }
        self.copies.reset();
        self.memory.borrow_mut().clear();
        self.windows.borrow_mut().fill(Window::NONE);
        self.channels.borrow_mut().iter_mut().for_each(Channel::end);
        for engine in 0..=self.params.copy_engines {
            self.keep(self.port.spawn(Rc::clone(self).serve(engine)));
        }
    }
}

/// Registers that describe a window or a channel, until the last one is written.
#[derive(Default)]
struct Selected {
    window: u32,
    window_base: u64,
    window_length: u64,
    channel: u32,
    ring: u64,
    entries: u32,
    engine: u32,
    context: u32,
    notifier: u64,
}

/// A GPU.
pub struct Gpu {
    firmware: Firmware,
    chip: Rc<Chip>,
    selected: Selected,
    config: ConfigSpace,
}

/// Handle to a GPU for tests and experiments.
#[derive(Clone)]
pub struct GpuHandle(Rc<Chip>);

impl GpuHandle {
    /// Reads GPU memory without taking simulated time.
    pub fn peek(&self, at: u64, into: &mut [u8]) {
        self.0.memory.borrow().read(at, into);
    }

    /// Current counters.
    pub fn counters(&self) -> GpuCounters {
        self.0.counters.borrow().clone()
    }
}

impl Gpu {
    /// Creates a GPU in its power-on state.
    ///
    /// # Errors
    /// If the parameters do not fit into a configuration space.
    pub fn new(params: GpuParams) -> Result<Self, ConfigError> {
        let aperture = params.aperture.get();
        let mut config = ConfigSpace::endpoint(params.ids.0, params.ids.1, CLASS)
            .bar64(regs::REGISTER_BAR, regs::REGISTER_BYTES, false)
            .bar64(MEMORY_BAR, aperture, aperture > LOW_APERTURE)
            .interrupt_pin(1)
            .power_management()
            .pcie(params.pcie);
        if params.message {
            config = config.msi(1);
        }
        let config = config.aer().build()?;
        let firmware = Firmware::new();
        let windows = usize::from(regs::CONTEXTS) * usize::from(regs::WINDOWS);
        let chip = Rc::new(Chip {
            port: firmware.port(),
            memory: RefCell::new(GpuMemory::new(params.memory.get())),
            windows: RefCell::new(vec![Window::NONE; windows]),
            channels: RefCell::new((0..regs::CHANNELS).map(|_| Channel::default()).collect()),
            copies: CopyEngines::new(&params),
            work: (0..=params.copy_engines).map(|_| Notify::new()).collect(),
            tasks: RefCell::default(),
            counters: RefCell::new(GpuCounters {
                copied: vec![0; params.copy_engines.into()],
                ..GpuCounters::default()
            }),
            params,
        });
        chip.begin();
        Ok(Self { firmware, chip, selected: Selected::default(), config })
    }

    /// A handle to the GPU, which stays valid when the GPU itself has been given away.
    pub fn handle(&self) -> GpuHandle {
        GpuHandle(Rc::clone(&self.chip))
    }

    /// Runs tasks and engines until neither has anything to do now.
    fn run(&mut self, bus: &mut dyn DeviceBus) {
        self.firmware.run(bus);
        while self.chip.copies.go(bus, &self.chip.memory) {
            self.firmware.run(bus);
        }
    }

    fn register(&self, at: u64) -> u32 {
        let params = &self.chip.params;
        match at {
            regs::COPY_ENGINES => params.copy_engines.into(),
            regs::MEMORY_MIB => (params.memory.get() >> 20) as u32,
            regs::APERTURE_MIB => (params.aperture.get() >> 20) as u32,
            regs::CHANNEL_COUNT => regs::CHANNELS.into(),
            _ => 0,
        }
    }

    fn write_register(&mut self, at: u64, value: u32) {
        if let Some(page) = at.checked_sub(regs::DOORBELLS) {
            if page % regs::DOORBELL_STRIDE == 0 {
                self.ring((page / regs::DOORBELL_STRIDE) as usize, value);
            }
            return;
        }
        let half = |word: &mut u64, high: bool| {
            let shift = if high { 32 } else { 0 };
            *word = *word & !(0xffff_ffff << shift) | u64::from(value) << shift;
        };
        let s = &mut self.selected;
        match at {
            regs::WINDOW_SELECT => s.window = value,
            0x28 | 0x2c => half(&mut s.window_base, at == 0x2c),
            0x30 | 0x34 => half(&mut s.window_length, at == 0x34),
            regs::WINDOW_KIND => self.set_window(value),
            regs::CHANNEL_SELECT => s.channel = value,
            0x48 | 0x4c => half(&mut s.ring, at == 0x4c),
            regs::CHANNEL_ENTRIES => s.entries = value,
            regs::CHANNEL_ENGINE => s.engine = value,
            regs::CHANNEL_CONTEXT => s.context = value,
            0x60 | 0x64 => half(&mut s.notifier, at == 0x64),
            regs::CHANNEL_ENABLE => self.set_channel(value == 1),
            regs::FAULT_SEEN => {
                if let Some(channel) = self.chip.channels.borrow_mut().get_mut(value as usize) {
                    channel.unseen = false;
                }
                self.chip.drive_line();
            }
            _ => {}
        }
    }

    fn set_window(&mut self, kind: u32) {
        let (context, window) = (self.selected.window >> 16, self.selected.window & 0xffff);
        let (Some(kind), true) = (WindowKind::from_number(kind), window < regs::WINDOWS.into()) else {
            return;
        };
        let index = context as usize * usize::from(regs::WINDOWS) + window as usize;
        if let Some(window) = self.chip.windows.borrow_mut().get_mut(index) {
            let (base, length) = (self.selected.window_base, self.selected.window_length);
            *window = Window { kind, base, length };
        }
    }

    fn set_channel(&mut self, on: bool) {
        let s = &self.selected;
        let mut channels = self.chip.channels.borrow_mut();
        let Some(channel) = channels.get_mut(s.channel as usize) else { return };
        let is_possible = s.entries.is_power_of_two()
            && s.engine <= self.chip.params.copy_engines.into()
            && s.context < regs::CONTEXTS.into();
        if !on || !is_possible {
            channel.end();
            drop(channels);
            return self.chip.drive_line();
        }
        (channel.ring, channel.entries, channel.notifier) = (s.ring, s.entries, s.notifier);
        (channel.engine, channel.context) = (s.engine as u8, s.context as u16);
        channel.begin();
    }

    /// Handles a doorbell: the total of entries put into a ring, modulo 2 to the 32.
    fn ring(&mut self, channel: usize, count: u32) {
        let mut channels = self.chip.channels.borrow_mut();
        let Some(channel) = channels.get_mut(channel).filter(|channel| channel.enabled) else { return };
        let more = count.wrapping_sub(channel.put as u32);
        // A count beyond the ring's size, or going backwards, is invalid.
        if more <= channel.entries {
            channel.put += u64::from(more);
            self.chip.work[usize::from(channel.engine)].notify_one();
        }
    }
}

impl Device for Gpu {
    fn functions(&self) -> Vec<Function> {
        vec![Function { port: PortIndex(0), config: self.config.clone() }]
    }

    fn data_mover(&self, _: PortIndex) -> Box<dyn DataMover> {
        Box::new(LinkMover::new(self.chip.params.write_rate))
    }

    fn stages(&self) -> Vec<Stage> {
        self.chip.copies.stages()
    }

    fn reset(&mut self, bus: &mut dyn DeviceBus, _: Reset) {
        self.firmware.catch_up(bus);
        self.selected = Selected::default();
        self.chip.begin();
        self.firmware.forget();
        self.chip.drive_line();
        self.run(bus);
    }

    fn bar_read(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        self.firmware.catch_up(bus);
        let offset = at.offset.get();
        if at.bar == MEMORY_BAR {
            self.chip.memory.borrow().read(offset, data);
        } else {
            for (n, bytes) in (0..).zip(data.chunks_mut(4)) {
                let value = self.register(offset + 4 * n).to_le_bytes();
                bytes.copy_from_slice(&value[..bytes.len()]);
            }
        }
        self.chip.params.register
    }

    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        let offset = at.offset.get();
        if at.bar == MEMORY_BAR {
            self.chip.memory.borrow_mut().write(offset, data);
            return;
        }
        self.firmware.catch_up(bus);
        if offset % 4 == 0 {
            let words = data.chunks_exact(4).filter_map(|word| word.first_chunk::<4>());
            for (n, word) in (0..).zip(words) {
                self.write_register(offset + 4 * n, u32::from_le_bytes(*word));
            }
        }
        self.run(bus);
    }

    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        if copy::is_copy(token) {
            self.firmware.catch_up(bus);
            // Most reads end no copy and wake no task.
            if !self.chip.copies.read_done(bus, &self.chip.memory, token, outcome) {
                return;
            }
        } else {
            self.firmware.read_done(bus, token, outcome);
        }
        self.run(bus);
    }

    fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        if copy::is_copy(token) {
            self.firmware.catch_up(bus);
            if !self.chip.copies.write_done(bus, &self.chip.memory, token) {
                return;
            }
        } else {
            self.firmware.write_done(bus, token);
        }
        self.run(bus);
    }

    fn timer(&mut self, bus: &mut dyn DeviceBus, _: Token) {
        self.run(bus);
    }
}
