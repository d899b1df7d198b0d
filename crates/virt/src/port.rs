//! A root port of a guest, with the hot-plug slot below it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hardware::bridge;
use platform::Error;
use platform::cpu::Cpu;
use wire::pcie::config::{
    ConfigEffect, ConfigSpace, PcieParams, PortType, ResetKind, SlotParams, header, slot,
};
use wire::pcie::{Generation, IntxLine, IntxLines, Width};

use crate::bus::GuestDevice;
use crate::function::GuestMessage;

/// Vendor and device ID (QEMU: `pcie-root-port`).
const ID: (u16, u16) = (0x1b36, 0x000c);

/// A root port.
pub struct Port {
    config: RefCell<ConfigSpace>,
    device: RefCell<Option<Rc<dyn GuestDevice>>>,
    /// Legacy interrupt lines asserted by the function below.
    lines: Cell<IntxLines>,
}

impl Port {
    /// The port of an empty slot.
    pub fn new(number: u8) -> Self {
        let mut port = PcieParams::port(PortType::RootPort, Generation::Gen3, Width::X16);
        port.port_number = number;
        port.slot = Some(SlotParams {
            number: number.into(),
            power_controller: false,
            attention_button: false,
            surprise: true,
            power_limit_w: 75,
        });
        let config = ConfigSpace::bridge(ID.0, ID.1).msi(1).pcie(port).power_management().build();
        let config = config.expect("the registers of a port can be laid out");
        Self { config: RefCell::new(config), device: RefCell::new(None), lines: Cell::default() }
    }

    /// The function below the port.
    pub fn device(&self) -> Option<Rc<dyn GuestDevice>> {
        self.device.borrow().clone()
    }

    /// Legacy interrupt lines asserted by the function below.
    pub fn lines(&self) -> IntxLines {
        self.lines.get()
    }

    /// Sets the line that the function below asserts, if any.
    pub fn set_line(&self, line: Option<IntxLine>) {
        let mut lines = IntxLines::default();
        line.into_iter().for_each(|line| lines.set(line, true));
        self.lines.set(lines);
    }

    /// Its secondary bus; 0 before enumeration.
    pub fn bus(&self) -> u8 {
        (self.config.borrow().dword(header::BUS_NUMBERS) >> 8) as u8
    }

    /// Reads a doubleword of configuration space.
    pub fn config_read(&self, register: u16) -> u32 {
        self.config.borrow().dword(register)
    }

    /// Writes bytes of a doubleword. Returns the hot-plug interrupt to send, if any.
    pub async fn config_write(
        &self,
        cpu: &Cpu,
        register: u16,
        value: u32,
        enables: u8,
    ) -> Option<GuestMessage> {
        let (effects, interrupt) = self.change(|config| config.write(register, value, enables));
        let resets = effects.iter().any(|effect| matches!(effect, ConfigEffect::SecondaryBusReset(true)));
        if let Some(device) = self.device().filter(|_| resets) {
            device.reset(cpu).await;
        }
        let commanded = effects.iter().any(|effect| matches!(effect, ConfigEffect::SlotCommand { .. }));
        let completed = if commanded { self.set_status(0, slot::STATUS_COMMAND_COMPLETED) } else { None };
        interrupt.or(completed)
    }

    /// Plugs a function in. Returns the hot-plug interrupt to send, if any.
    ///
    /// # Errors
    /// [`Error::Busy`] if the slot is occupied.
    pub fn plug(&self, device: Rc<dyn GuestDevice>) -> Result<Option<GuestMessage>, Error> {
        if self.device.borrow().is_some() {
            return Err(Error::Busy);
        }
        *self.device.borrow_mut() = Some(device);
        bridge::show_link(&mut self.config.borrow_mut(), true);
        let changed = slot::STATUS_PRESENCE_CHANGED | slot::STATUS_LINK_CHANGED;
        Ok(self.set_status(0, slot::STATUS_PRESENT | changed))
    }

    /// Unplugs the function. Returns it, and the hot-plug interrupt to send, if any.
    pub fn unplug(&self) -> Option<(Rc<dyn GuestDevice>, Option<GuestMessage>)> {
        let device = self.device.borrow_mut().take()?;
        self.set_line(None);
        bridge::show_link(&mut self.config.borrow_mut(), false);
        let changed = slot::STATUS_PRESENCE_CHANGED | slot::STATUS_LINK_CHANGED;
        Some((device, self.set_status(slot::STATUS_PRESENT, changed)))
    }

    /// Resets the port.
    pub fn reset(&self) {
        self.config.borrow_mut().reset(ResetKind::Fundamental);
        self.set_line(None);
        if self.device.borrow().is_some() {
            bridge::show_link(&mut self.config.borrow_mut(), true);
            self.set_status(0, slot::STATUS_PRESENT);
        }
    }

    /// Updates slot status. Returns the hot-plug interrupt to send, if any.
    fn set_status(&self, clear: u16, set: u16) -> Option<GuestMessage> {
        self.change(|config| bridge::change_slot_status(config, clear, set)).1
    }

    /// Changes registers. Also returns the hot-plug interrupt to send, if any.
    fn change<T>(&self, change: impl FnOnce(&mut ConfigSpace) -> T) -> (T, Option<GuestMessage>) {
        let mut config = self.config.borrow_mut();
        let (changed, interrupts) = bridge::change(&mut config, change);
        let msi = config.msi().filter(|msi| msi.enabled && interrupts);
        (changed, msi.map(|msi| GuestMessage { address: msi.address, data: msi.data.into() }))
    }
}
