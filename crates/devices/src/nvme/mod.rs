//! An NVMe drive: controllers, namespaces, media (NVM Express Base Specification 1.4; numbers in comments are its
//! sections, titles are quoted).
//!
//! Section numbers in this folder refer to it. The controllers' firmware consists of tasks ([`crate::firmware`]):
//! fetchers take commands in arbitration order, and each command is a task from decoding to interrupt. Queue entries,
//! PRP lists, SGL segments, data and completions are transferred by DMA. A command's data is written before its
//! completion, and the completion before its interrupt.
//!
//! | file | subject |
//! |---|---|
//! | `params` | parameters of a drive |
//! | `controller` | life cycle, doorbells, command processing, admin commands |
//! | `registers`, `interrupts`, `queues`, `commands`, `features`, `events` | a controller's state |
//! | `host_memory` | DMA, PRPs, SGLs, controller memory buffer |
//! | `identify`, `logs` | data structures for the host |
//! | `io` | the I/O commands |
//! | `drive`, `namespaces`, `store`, `media` | shared by the controllers: write buffer, stored bytes |
//! | `dies`, `flash`, `unmapped` | timing of the media; garbage collection; deallocated units |
//! | `faults` | fault injection |

mod commands;
mod controller;
mod dies;
mod drive;
mod events;
mod faults;
mod features;
mod flash;
mod host_memory;
mod identify;
mod interrupts;
mod io;
mod logs;
mod media;
mod namespaces;
mod params;
mod queues;
mod registers;
mod store;
mod unmapped;

use std::rc::Rc;

use platform::device::{
    BarAccess, Device, DeviceBus, DmaError, Function, FunctionIndex, PortIndex, Reset, Stage, StageKind,
    Token,
};
use units::{Duration, Time};
use wire::nvme::CLASS;
use wire::nvme::registers as regs;
use wire::pcie::config::msix::MsixLayout;
use wire::pcie::config::{ConfigEffect, ConfigError, ConfigSpace};

use crate::firmware::{Firmware, Port};
use controller::Controller;
use drive::Drive;

pub use faults::{Fault, FaultKind};
pub use media::{FileMedia, Media, MemoryMedia};
pub use params::{BUFFER_BAR, ControllerTiming, FlashParams, MediaTiming, NvmeParams};

/// BAR of the registers, doorbells, and interrupt tables.
pub const REGISTER_BAR: u8 = 0;
/// An NVMe drive.
pub struct Nvme {
    firmware: Firmware,
    controllers: Vec<Rc<Controller>>,
    drive: Rc<Drive>,
    config: ConfigSpace,
}

/// Handle to a drive for tests and experiments: faults, power.
#[derive(Clone)]
pub struct NvmeControl {
    port: Port,
    drive: Rc<Drive>,
    controllers: Vec<Rc<Controller>>,
}

impl NvmeControl {
    /// Adds a fault, which then befalls one matching command of any controller.
    pub fn inject(&self, fault: Fault) {
        self.drive.faults.borrow_mut().add(fault);
    }

    /// Cuts the power now: data not yet on the media is lost if the write buffer is volatile, and the controllers lose
    /// all state. A fundamental reset brings the drive back.
    ///
    /// # Errors
    /// If the media fail.
    pub fn power_cut(&self) -> std::io::Result<()> {
        for controller in &self.controllers {
            controller.reset();
        }
        let mut smart = self.drive.smart.borrow_mut();
        smart.unsafe_shutdowns += 1;
        smart.power_cycles += 1;
        self.drive.stop(self.port.now());
        self.drive.store.borrow_mut().power_cut(self.port.now())
    }

    /// Reads the data that a host would see, without taking simulated time.
    ///
    /// # Errors
    /// If the media fail.
    pub fn peek(&self, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.drive.store.borrow_mut().read(self.port.now(), at, into)
    }
}

impl Nvme {
    /// Creates a drive on `media`.
    ///
    /// # Errors
    /// If the parameters do not fit into a configuration space.
    pub fn new(params: NvmeParams, media: Box<dyn Media>) -> Result<Self, ConfigError> {
        let config = config_space(&params)?;
        let firmware = Firmware::new();
        let ports = params.ports;
        let drive = Rc::new(Drive::new(params, media));
        let controllers = (0..ports)
            .map(|number| Controller::new(u16::from(number), Rc::clone(&drive), firmware.port()))
            .collect();
        Ok(Self { firmware, controllers, drive, config })
    }

    /// A handle to the drive, which stays valid when the drive itself has been given away.
    pub fn control(&self) -> NvmeControl {
        NvmeControl {
            port: self.firmware.port(),
            drive: Rc::clone(&self.drive),
            controllers: self.controllers.clone(),
        }
    }

    fn register_write(&self, controller: &Rc<Controller>, at: u64, value: u32) {
        if at == regs::NSSR && value == regs::SUBSYSTEM_RESET {
            self.controllers.iter().for_each(|controller| controller.subsystem_reset());
        } else {
            controller.register_write(at, value);
        }
    }
}

/// The MSI-X table follows the doorbells, and the pending bits follow the table.
fn config_space(params: &NvmeParams) -> Result<ConfigSpace, ConfigError> {
    let doorbells = 2 * (u64::from(params.io_queues) + 1) * (4 << params.doorbell_stride);
    let table = (regs::DOORBELLS + doorbells).next_multiple_of(0x1000);
    let pending = (table + u64::from(params.vectors) * 16).next_multiple_of(0x1000);
    let size = (pending + 0x1000).next_power_of_two();
    let layout = MsixLayout {
        vectors: params.vectors,
        table_bar: REGISTER_BAR,
        table_offset: table as u32,
        pending_bar: REGISTER_BAR,
        pending_offset: pending as u32,
    };
    let mut builder =
        ConfigSpace::endpoint(params.ids.0, params.ids.1, CLASS).bar64(REGISTER_BAR, size, false);
    if params.memory_buffer > 0 {
        builder = builder.bar64(BUFFER_BAR, params.memory_buffer, true);
    }
    builder = builder.interrupt_pin(1).power_management().pcie(params.pcie);
    if params.vectors > 0 {
        builder = builder.msix(layout);
    }
    builder.aer().ecrc().build()
}

impl Device for Nvme {
    fn functions(&self) -> Vec<Function> {
        (0..self.drive.params.ports)
            .map(|port| Function { port: PortIndex(port), config: self.config.clone() })
            .collect()
    }

    fn stages(&self, now: Time) -> Vec<Stage> {
        let busy = self.controllers.iter().map(|controller| controller.busy(now)).sum();
        let of = self.drive.params.ports.into();
        let commands = Stage { name: "commands".to_owned(), kind: StageKind::Server, of, busy };
        [commands].into_iter().chain(self.drive.stages(now)).collect()
    }

    fn reset(&mut self, bus: &mut dyn DeviceBus, reset: Reset) {
        self.firmware.catch_up(bus);
        match reset {
            Reset::Function(function) => {
                if let Some(controller) = self.controllers.get(usize::from(function.0)) {
                    controller.reset();
                }
                self.firmware.forget_function(function);
            }
            Reset::Fundamental | Reset::Hot => {
                for controller in &self.controllers {
                    controller.reset();
                }
                self.firmware.forget();
            }
        }
        self.firmware.run(bus);
    }

    fn bar_read(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        self.firmware.catch_up(bus);
        if let Some(controller) = self.controllers.get(usize::from(at.function.0)) {
            controller.bar_read(at.bar, at.offset.get(), data);
        }
        self.drive.params.timing.register
    }

    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        self.firmware.catch_up(bus);
        let offset = at.offset.get();
        if let Some(controller) = self.controllers.get(usize::from(at.function.0)) {
            if at.bar == BUFFER_BAR {
                controller.buffer_write(offset, data);
            } else if offset % 4 == 0 {
                let words = data.chunks_exact(4).filter_map(|word| word.first_chunk::<4>());
                for (word, at) in words.zip((offset..).step_by(4)) {
                    self.register_write(controller, at, u32::from_le_bytes(*word));
                }
            }
        }
        self.firmware.run(bus);
    }

    fn config_changed(&mut self, bus: &mut dyn DeviceBus, function: FunctionIndex, effect: &ConfigEffect) {
        let Some(controller) = self.controllers.get(usize::from(function.0)) else { return };
        if let ConfigEffect::Msix { enabled, .. } = *effect {
            self.firmware.catch_up(bus);
            controller.use_messages(enabled);
            self.firmware.run(bus);
        }
    }

    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        self.firmware.read_done(bus, token, outcome);
    }

    fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        self.firmware.write_done(bus, token);
    }

    fn timer(&mut self, bus: &mut dyn DeviceBus, _: Token) {
        self.firmware.run(bus);
    }
}
