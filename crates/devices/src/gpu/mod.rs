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
//! | `space` | what engines and programs reach |
//! | `memory` | its memory |
//! | `mover` | data rate between the GPU and the link |

mod channel;
mod copy;
mod memory;
mod mover;
mod params;
mod program;
mod space;

use std::rc::Rc;

use platform::device::{BarAccess, Device, DeviceBus, DmaError, Function, PortIndex, Reset, Stage, Token};
use platform::mover::DataMover;
use units::{Bytes, Duration, Time};
use wire::gpu::{self as regs, MEMORY_BAR, WindowKind};
use wire::pcie::config::{ConfigError, ConfigSpace};

use crate::firmware::Firmware;
use channel::{ChannelSetup, Channels};
use copy::CopyEngines;
use mover::LinkMover;
use space::{Space, Window};

pub use params::GpuParams;

/// PCI class: VGA-compatible display controller.
const CLASS: u32 = 0x03_0000;
/// Largest aperture that firmware without decoding above 4 GiB, as in these GPUs' hosts, has space for. Up to this
/// size, the BAR is placed below 4 GiB.
const LOW_APERTURE: u64 = 256 << 20;

/// What the channels of a GPU have done since it was created; resets do not clear it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuCounters {
    /// Bytes copied, by copy engine.
    pub copied: Vec<u64>,
    /// How often a channel waited for a semaphore.
    pub waits: u64,
    /// Channels stopped by a fault.
    pub faults: u64,
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

/// A GPU as a device on the bus: configuration space, registers and firmware.
pub struct Gpu {
    params: Rc<GpuParams>,
    firmware: Firmware,
    space: Rc<Space>,
    copies: Rc<CopyEngines>,
    channels: Rc<Channels>,
    selected: Selected,
    config: ConfigSpace,
}

/// Handle to a GPU for tests and experiments.
#[derive(Clone)]
pub struct GpuHandle {
    space: Rc<Space>,
    channels: Rc<Channels>,
}

impl GpuHandle {
    /// Reads GPU memory without taking simulated time.
    pub fn peek(&self, at: u64, into: &mut [u8]) {
        self.space.memory().borrow().read(at, into);
    }

    /// Current counters.
    pub fn counters(&self) -> GpuCounters {
        self.channels.counters()
    }
}

impl Gpu {
    /// Creates a GPU in its power-on state.
    ///
    /// # Errors
    /// If the parameters do not fit into a configuration space.
    pub fn new(params: GpuParams) -> Result<Self, ConfigError> {
        let (aperture, most) = (params.aperture.get(), params.aperture_most.map(Bytes::get));
        let mut config = ConfigSpace::endpoint(params.ids.0, params.ids.1, CLASS)
            .bar64(regs::REGISTER_BAR, regs::REGISTER_BYTES, false)
            .bar64(MEMORY_BAR, aperture, aperture.max(most.unwrap_or(0)) > LOW_APERTURE)
            .interrupt_pin(1)
            .power_management()
            .pcie(params.pcie);
        if params.message {
            config = config.msi(1);
        }
        let config = config.aer();
        let config = match most {
            Some(most) => config.resizable_bar(MEMORY_BAR, most),
            None => config,
        };
        let config = config.build()?;
        let firmware = Firmware::new();
        let params = Rc::new(params);
        let space = Rc::new(Space::new(firmware.port(), params.memory.get()));
        let copies = Rc::new(CopyEngines::new(&params));
        let channels = Rc::new(Channels::new(Rc::clone(&params), firmware.port(), &space, &copies));
        channels.reset();
        Ok(Self { params, firmware, space, copies, channels, selected: Selected::default(), config })
    }

    /// A handle to the GPU, which stays valid when the GPU itself has been given away.
    pub fn handle(&self) -> GpuHandle {
        GpuHandle { space: Rc::clone(&self.space), channels: Rc::clone(&self.channels) }
    }

    /// Runs tasks and engines until neither has anything to do now.
    fn run(&mut self, bus: &mut dyn DeviceBus) {
        self.firmware.run(bus);
        while self.copies.go(bus, self.space.memory()) {
            self.firmware.run(bus);
        }
    }

    fn register(&self, at: u64) -> u32 {
        let params = &self.params;
        match at {
            regs::COPY_ENGINES => params.copy_engines.into(),
            regs::MEMORY_MIB => (params.memory.get() >> 20) as u32,
            regs::CHANNEL_COUNT => regs::CHANNELS.into(),
            _ => 0,
        }
    }

    fn write_register(&mut self, at: u64, value: u32) {
        if let Some(page) = at.checked_sub(regs::DOORBELLS) {
            if page % regs::DOORBELL_STRIDE == 0 {
                self.channels.ring((page / regs::DOORBELL_STRIDE) as usize, value);
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
            regs::FAULT_SEEN => self.channels.acknowledge(value),
            _ => {}
        }
    }

    fn set_window(&self, kind: u32) {
        let s = &self.selected;
        if let Some(kind) = WindowKind::from_number(kind) {
            let window = Window { kind, base: s.window_base, length: s.window_length };
            self.space.set_window(s.window >> 16, s.window & 0xffff, window);
        }
    }

    fn set_channel(&self, on: bool) {
        let &Selected { channel, ring, entries, engine, context, notifier, .. } = &self.selected;
        let setup = ChannelSetup { ring, entries, engine, context, notifier };
        self.channels.set(channel, on.then_some(setup));
    }
}

impl Device for Gpu {
    fn functions(&self) -> Vec<Function> {
        vec![Function { port: PortIndex(0), config: self.config.clone() }]
    }

    fn data_mover(&self, _: PortIndex) -> Box<dyn DataMover> {
        Box::new(LinkMover::new(self.params.write_rate))
    }

    fn stages(&self, now: Time) -> Vec<Stage> {
        self.copies.stages(now)
    }

    fn reset(&mut self, bus: &mut dyn DeviceBus, _: Reset) {
        self.firmware.catch_up(bus);
        self.selected = Selected::default();
        self.space.reset();
        self.channels.reset();
        self.firmware.forget();
        self.channels.drive_line();
        self.run(bus);
    }

    fn bar_read(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        self.firmware.catch_up(bus);
        let offset = at.offset.get();
        if at.bar == MEMORY_BAR {
            self.space.memory().borrow().read(offset, data);
        } else {
            for (n, bytes) in (0..).zip(data.chunks_mut(4)) {
                let value = self.register(offset + 4 * n).to_le_bytes();
                bytes.copy_from_slice(&value[..bytes.len()]);
            }
        }
        self.params.register
    }

    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        let offset = at.offset.get();
        if at.bar == MEMORY_BAR {
            self.space.memory().borrow_mut().write(offset, data);
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
            if !self.copies.read_done(bus, self.space.memory(), token, outcome) {
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
            if !self.copies.write_done(bus, self.space.memory(), token) {
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
