//! A root port of a guest, with the slot below it: where its functions are put in and taken out.

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
    /// Legacy interrupt lines that the function below makes active.
    lines: Cell<IntxLines>,
}

impl Port {
    /// The port of a slot, with nothing in it.
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

    /// The function below it.
    pub fn device(&self) -> Option<Rc<dyn GuestDevice>> {
        self.device.borrow().clone()
    }

    /// Legacy interrupt lines that the function below makes active.
    pub fn lines(&self) -> IntxLines {
        self.lines.get()
    }

    /// The function below makes this line active, or none.
    pub fn set_line(&self, line: Option<IntxLine>) {
        let mut lines = IntxLines::default();
        line.into_iter().for_each(|line| lines.set(line, true));
        self.lines.set(lines);
    }

    /// The bus below it; 0 before it has got one.
    pub fn bus(&self) -> u8 {
        (self.config.borrow().dword(header::BUS_NUMBERS) >> 8) as u8
    }

    /// Reads a doubleword of its configuration space.
    pub fn config_read(&self, register: u16) -> u32 {
        self.config.borrow().dword(register)
    }

    /// Writes the bytes of a doubleword; gives the interrupt that follows.
    pub async fn config_write(
        &self,
        cpu: &Cpu,
        register: u16,
        value: u32,
        enables: u8,
    ) -> Option<GuestMessage> {
        let effects = self.config.borrow_mut().write(register, value, enables);
        let resets = effects.iter().any(|effect| matches!(effect, ConfigEffect::SecondaryBusReset(true)));
        if let Some(device) = self.device().filter(|_| resets) {
            device.reset(cpu).await;
        }
        let commanded = effects.iter().any(|effect| matches!(effect, ConfigEffect::SlotCommand { .. }));
        if commanded { self.change(0, slot::STATUS_COMMAND_COMPLETED) } else { None }
    }

    /// Puts a function in; gives the interrupt that follows.
    ///
    /// # Errors
    /// [`Error::Busy`] if there is one.
    pub fn plug(&self, device: Rc<dyn GuestDevice>) -> Result<Option<GuestMessage>, Error> {
        if self.device.borrow().is_some() {
            return Err(Error::Busy);
        }
        *self.device.borrow_mut() = Some(device);
        bridge::show_link(&mut self.config.borrow_mut(), true);
        let changed = slot::STATUS_PRESENCE_CHANGED | slot::STATUS_LINK_CHANGED;
        Ok(self.change(0, slot::STATUS_PRESENT | changed))
    }

    /// Takes the function out; gives it, and the interrupt that follows.
    pub fn unplug(&self) -> Option<(Rc<dyn GuestDevice>, Option<GuestMessage>)> {
        let device = self.device.borrow_mut().take()?;
        self.set_line(None);
        bridge::show_link(&mut self.config.borrow_mut(), false);
        let changed = slot::STATUS_PRESENCE_CHANGED | slot::STATUS_LINK_CHANGED;
        Some((device, self.change(slot::STATUS_PRESENT, changed)))
    }

    /// The guest is reset.
    pub fn reset(&self) {
        self.config.borrow_mut().reset(ResetKind::Fundamental);
        self.set_line(None);
        if self.device.borrow().is_some() {
            bridge::show_link(&mut self.config.borrow_mut(), true);
            self.change(0, slot::STATUS_PRESENT);
        }
    }

    /// Changes slot status; gives the message, if the slot is to interrupt.
    fn change(&self, clear: u16, set: u16) -> Option<GuestMessage> {
        let mut config = self.config.borrow_mut();
        let interrupts = bridge::change_slot_status(&mut config, clear, set);
        let msi = config.msi().filter(|msi| msi.enabled && interrupts)?;
        Some(GuestMessage { address: msi.address, data: msi.data.into() })
    }
}
