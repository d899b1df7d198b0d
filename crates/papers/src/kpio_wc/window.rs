//! A window of the card, mapped for programs.

use std::cell::RefCell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::mmio::{MemoryType, Mmio};
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use wire::nic::CLASS;
use wire::nic::registers::WINDOW_BAR;

use super::analyser::Watched;

/// A driver that maps a card's window for programs, next to the card's own driver.
pub struct WindowDriver {
    kind: MemoryType,
    driver: Rc<dyn PciDriver>,
    mapped: RefCell<Option<(Mmio, Mmio)>>,
}

impl WindowDriver {
    /// Maps the window as write-combining.
    pub fn beside(driver: Rc<dyn PciDriver>) -> Rc<Self> {
        Self::mapped(MemoryType::WriteCombining, driver)
    }

    /// Maps the window with this memory type.
    pub fn mapped(kind: MemoryType, driver: Rc<dyn PciDriver>) -> Rc<Self> {
        Rc::new(Self { kind, driver, mapped: RefCell::new(None) })
    }

    /// The card's window.
    ///
    /// # Errors
    /// If the card has none.
    pub fn get(&self) -> Result<Mmio, String> {
        Ok(self.both()?.0)
    }

    /// The card's registers.
    ///
    /// # Errors
    /// If the card has none.
    pub fn registers(&self) -> Result<Mmio, String> {
        Ok(self.both()?.1)
    }

    /// Reads a register of the card from a program.
    ///
    /// # Errors
    /// If the card has none.
    pub fn read(&self, rig: &Watched, at: u64) -> Result<u32, String> {
        let registers = self.registers()?;
        let read = rig.spawn(0, async move |cpu| registers.read_u32(&cpu, at).await);
        rig.wait(&read)
    }

    fn both(&self) -> Result<(Mmio, Mmio), String> {
        self.mapped.borrow().clone().ok_or_else(|| "the card has no window".to_owned())
    }
}

impl PciDriver for WindowDriver {
    fn name(&self) -> &'static str {
        "window"
    }

    fn ids(&self) -> &[PciMatch] {
        const IDS: [PciMatch; 1] = [PciMatch::class(CLASS)];
        &IDS
    }

    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            // Only that of the first function.
            if self.mapped.borrow().is_none() {
                let window = device.ioremap_bar(WINDOW_BAR, self.kind)?;
                let registers = device.ioremap_bar(0, MemoryType::Uncached)?;
                *self.mapped.borrow_mut() = Some((window, registers));
            }
            self.driver.probe(cpu, device).await
        })
    }
}
