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
//! | `controller` | enable, reset, doorbells, command processing, completions, interrupts |
//! | `queues` | queues and arbitration |
//! | `transfer` | PRPs, SGLs, controller memory buffer |
//! | `admin`, `io` | the commands |
//! | `events` | asynchronous events, error log |
//! | `drive`, `store`, `media` | shared by the controllers: namespaces, write buffer, stored bytes |
//! | `dies`, `flash`, `unmapped` | timing of the media; garbage collection; deallocated units |
//! | `faults` | fault injection |

mod admin;
mod controller;
mod dies;
mod drive;
mod events;
mod faults;
mod flash;
mod io;
mod media;
mod params;
mod queues;
mod store;
mod transfer;
mod unmapped;

use std::rc::Rc;

use platform::device::{
    BarAccess, Device, DeviceBus, DmaError, Function, FunctionIndex, PortIndex, Reset, Stage, Token,
};
use units::Duration;
use wire::nvme::registers::{self as regs, MemoryBufferControl, MemoryBufferLocation, MemoryBufferSize};
use wire::nvme::{AdminQueues, CLASS, Capabilities, Configuration};
use wire::pcie::config::msix::MsixLayout;
use wire::pcie::config::{ConfigEffect, ConfigError, ConfigSpace};

use crate::firmware::Firmware;
use controller::{Controller, MAX_PAGE_SHIFT};
use drive::Drive;

pub use faults::{Fault, FaultKind};
pub use media::{FileMedia, Media, MemoryMedia};
pub use params::{ControllerTiming, FlashParams, MediaTiming, NvmeParams};

/// BAR of the registers, doorbells, and interrupt tables.
pub const REGISTER_BAR: u8 = 0;
/// BAR of the controller memory buffer.
pub const BUFFER_BAR: u8 = 2;

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
    drive: Rc<Drive>,
    controllers: Vec<Rc<Controller>>,
}

impl NvmeControl {
    /// Injects a fault.
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
        let Some(controller) = self.controllers.first() else { return Ok(()) };
        let mut smart = self.drive.smart.borrow_mut();
        smart.unsafe_shutdowns += 1;
        smart.power_cycles += 1;
        self.drive.store.borrow_mut().power_cut(controller.port.now())
    }

    /// Reads the data that a host would see, without taking simulated time.
    ///
    /// # Errors
    /// If the media fail.
    pub fn peek(&self, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        let Some(controller) = self.controllers.first() else { return Ok(()) };
        self.drive.store.borrow_mut().read(controller.port.now(), at, into)
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
        NvmeControl { drive: Rc::clone(&self.drive), controllers: self.controllers.clone() }
    }

    fn capabilities(&self) -> Capabilities {
        let params = &self.drive.params;
        Capabilities {
            max_queue_entries: (params.queue_entries - 1).min(0xffff) as u16,
            contiguous_queues: true,
            weighted_round_robin: false,
            timeout: 20,
            doorbell_stride: params.doorbell_stride,
            subsystem_reset: true,
            nvm_command_set: true,
            min_page_shift: 0,
            max_page_shift: MAX_PAGE_SHIFT,
            memory_buffer: params.memory_buffer > 0,
        }
    }

    /// Current values of the registers up to the last one.
    fn registers(&self, controller: &Controller) -> [u8; 0x60] {
        let state = controller.state.borrow();
        let mut bytes = [0; 0x60];
        let mut put = |at: u64, value: &[u8]| {
            bytes[at as usize..at as usize + value.len()].copy_from_slice(value);
        };
        put(regs::CAP, &self.capabilities().to_bits().to_le_bytes());
        put(regs::VS, &regs::VERSION_1_4.to_le_bytes());
        put(regs::INTMS, &state.interrupt_mask.to_le_bytes());
        put(regs::INTMC, &state.interrupt_mask.to_le_bytes());
        put(regs::CC, &state.configuration.to_bits().to_le_bytes());
        put(regs::CSTS, &state.status.to_bits().to_le_bytes());
        put(regs::AQA, &state.admin.to_bits().to_le_bytes());
        put(regs::ASQ, &state.admin_submission.to_le_bytes());
        put(regs::ACQ, &state.admin_completion.to_le_bytes());
        put(regs::CMBMSC, &state.buffer_control.to_bits().to_le_bytes());
        if state.buffer_control.registers {
            let location = MemoryBufferLocation { bar: BUFFER_BAR, offset: 0 };
            let size = MemoryBufferSize {
                submission_queues: true,
                completion_queues: true,
                lists: true,
                read_data: true,
                write_data: true,
                unit: 0,
                size: (state.buffer.len() / 4096) as u32,
            };
            put(regs::CMBLOC, &location.to_bits().to_le_bytes());
            put(regs::CMBSZ, &size.to_bits().to_le_bytes());
        }
        bytes
    }

    /// Handles a write of one doubleword of the registers.
    fn write_register(&self, controller: &Rc<Controller>, at: u64, value: u32) {
        let half = |old: u64, low: bool| {
            if low {
                old & !0xffff_ffff | u64::from(value)
            } else {
                old & 0xffff_ffff | u64::from(value) << 32
            }
        };
        if at >= regs::DOORBELLS {
            let stride = 4 << self.drive.params.doorbell_stride;
            let number = (at - regs::DOORBELLS) / stride;
            if (at - regs::DOORBELLS) % stride == 0 {
                controller.doorbell(number, value);
            }
            return;
        }
        let mut state = controller.state.borrow_mut();
        match at {
            regs::INTMS | regs::INTMC => {
                state.interrupt_mask = match at {
                    regs::INTMS => state.interrupt_mask | value,
                    _ => state.interrupt_mask & !value,
                };
                drop(state);
                controller.heed_causes();
            }
            regs::CC => {
                drop(state);
                controller.configure(Configuration::from_bits(value));
            }
            regs::NSSR if value == regs::SUBSYSTEM_RESET => {
                drop(state);
                for controller in &self.controllers {
                    controller.reset();
                    controller.state.borrow_mut().status.subsystem_reset = true;
                }
            }
            // Write one to clear: "NSSRO" (section 3.1.6).
            regs::CSTS if value >> 4 & 1 == 1 => state.status.subsystem_reset = false,
            // The admin queue registers are only writable while the controller is disabled.
            regs::AQA if !state.configuration.enable => state.admin = AdminQueues::from_bits(value),
            0x28 | 0x2c if !state.configuration.enable => {
                state.admin_submission = half(state.admin_submission, at == 0x28) & !0xfff;
            }
            0x30 | 0x34 if !state.configuration.enable => {
                state.admin_completion = half(state.admin_completion, at == 0x30) & !0xfff;
            }
            0x50 | 0x54 if self.drive.params.memory_buffer > 0 => {
                let bits = half(state.buffer_control.to_bits(), at == 0x50);
                state.buffer_control = MemoryBufferControl::from_bits(bits);
            }
            _ => {}
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

    fn stages(&self) -> Vec<Stage> {
        self.drive.stages()
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
        let latency = self.drive.params.timing.register;
        let Some(controller) = self.controllers.get(usize::from(at.function.0)) else { return latency };
        let offset = at.offset.get() as usize;
        let place = offset..offset.saturating_add(data.len());
        let from = match at.bar {
            BUFFER_BAR => controller.state.borrow().buffer.get(place).map(<[u8]>::to_vec),
            _ => self.registers(controller).get(place).map(<[u8]>::to_vec),
        };
        match from {
            Some(bytes) => data.copy_from_slice(&bytes),
            None => data.fill(0),
        }
        latency
    }

    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        self.firmware.catch_up(bus);
        let offset = at.offset.get();
        if let Some(controller) = self.controllers.get(usize::from(at.function.0)) {
            if at.bar == BUFFER_BAR {
                let mut state = controller.state.borrow_mut();
                let place = offset as usize..(offset as usize).saturating_add(data.len());
                if let Some(place) = state.buffer.get_mut(place) {
                    place.copy_from_slice(data);
                }
            } else if offset % 4 == 0 {
                let words = data.chunks_exact(4).filter_map(|word| word.first_chunk::<4>());
                for (n, word) in words.enumerate() {
                    self.write_register(controller, offset + 4 * n as u64, u32::from_le_bytes(*word));
                }
            }
        }
        self.firmware.run(bus);
    }

    fn config_changed(&mut self, bus: &mut dyn DeviceBus, function: FunctionIndex, effect: &ConfigEffect) {
        let Some(controller) = self.controllers.get(usize::from(function.0)) else { return };
        if let ConfigEffect::Msix { enabled, .. } = *effect {
            self.firmware.catch_up(bus);
            controller.state.borrow_mut().uses_messages = enabled;
            controller.heed_causes();
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
