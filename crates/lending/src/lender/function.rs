//! A function claimed for lending: whether it is lent, and its configuration space as its borrower sees it.

use std::cell::RefCell;

use platform::Error;
use platform::cpu::Cpu;
use platform::pci::PciDevice;
use wire::pcie::config::caps::id;
use wire::pcie::config::{header, pcie_cap};

use super::lease::Lease;
use super::sizes::Sizes;
use crate::host::{LEAST_PAYLOAD, LocalHost};
use crate::message::{Bars, Terms};

/// Expansion ROM base address register.
const ROM: u16 = 0x30;

enum State {
    Free,
    /// Being lent or returned.
    Changing,
    Lent(Box<Lease>),
    /// It holds data of its last borrower, as it could not be reset.
    Unclean,
}

/// A function claimed for lending.
pub(super) struct LentFunction {
    pub device: PciDevice,
    state: RefCell<State>,
    /// BAR registers as the borrower sees them; the real addresses stay with the lender.
    bars: RefCell<[u32; 6]>,
}

/// Addresses of a function's BARs.
fn own_bars(device: &PciDevice) -> Bars {
    let mut bars = Bars::default();
    for (number, bar) in (0..).zip(&mut bars) {
        *bar = device.bar(number).map_or((0, 0), |range| (range.start.0, range.length));
    }
    bars
}

/// Checks a register number from another host: a doubleword of configuration space.
fn in_config(register: u16) -> Result<u16, Error> {
    if register < 4096 && register % 4 == 0 { Ok(register) } else { Err(Error::Invalid) }
}

fn bar_number(register: u16) -> Option<usize> {
    let number = usize::from(register.checked_sub(header::BAR0)? / 4);
    (number < 6).then_some(number)
}

impl LentFunction {
    pub fn new(device: PciDevice) -> Self {
        Self { device, state: RefCell::new(State::Free), bars: RefCell::default() }
    }

    /// The node that has it.
    pub fn to(&self) -> Option<u8> {
        match &*self.state.borrow() {
            State::Lent(lease) => Some(lease.to()),
            _ => None,
        }
    }

    /// Calls a function with the lease, if there is one.
    pub fn with_lease<T>(&self, act: impl FnOnce(&mut Lease) -> T) -> Option<T> {
        match &mut *self.state.borrow_mut() {
            State::Lent(lease) => Some(act(lease)),
            _ => None,
        }
    }

    /// Lends it to a node, unless it is lent. For a guest there is no `window`.
    ///
    /// # Errors
    /// As [`Lender::lend`](super::Lender::lend).
    pub async fn lend(
        &self,
        cpu: &Cpu,
        host: &LocalHost,
        to: u8,
        (window, payload): (Option<u64>, u16),
    ) -> Result<Terms, Error> {
        match *self.state.borrow() {
            State::Free => {}
            State::Changing | State::Lent(_) => return Err(Error::Busy),
            State::Unclean => return Err(Error::NotSupported),
        }
        // Legacy interrupts are not memory writes, so windows do not forward them. For guests, software does.
        let has_messages = self.device.capability(id::MSI).or(self.device.capability(id::MSIX)).is_some();
        if window.is_some() && !has_messages {
            return Err(Error::NotSupported);
        }
        self.state.replace(State::Changing);
        let lease = self.make_lease(cpu, host, to, (window, payload)).await;
        let terms = lease.as_ref().map(Lease::terms).map_err(|error| *error);
        self.state.replace(lease.map_or(State::Free, |lease| State::Lent(Box::new(lease))));
        terms
    }

    async fn make_lease(
        &self,
        cpu: &Cpu,
        host: &LocalHost,
        to: u8,
        (window, payload): (Option<u64>, u16),
    ) -> Result<Lease, Error> {
        let sizes = self.sizes(host, payload)?;
        let registers = self.bar_registers(cpu).await;
        *self.bars.borrow_mut() = registers;
        let lease = Lease::new(cpu, host, &self.device, to, (window, sizes))?;
        let command = u32::from(header::COMMAND_MEMORY | header::COMMAND_INTX_DISABLE);
        self.device.config_write(cpu, header::COMMAND, command, 3).await;
        self.limit(cpu, sizes).await;
        Ok(lease)
    }

    /// Takes the lease from a node that returns it, or from which it is taken.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the node does not have it.
    pub fn take_lease(&self, from: u8) -> Result<Box<Lease>, Error> {
        if self.to() != Some(from) {
            return Err(Error::Invalid);
        }
        match self.state.replace(State::Changing) {
            State::Lent(lease) => Ok(lease),
            _ => Err(Error::Invalid),
        }
    }

    /// The lease has ended. Unless it `is_clean`, it is not lent again.
    pub fn end_lease(&self, is_clean: bool) {
        self.state.replace(if is_clean { State::Free } else { State::Unclean });
    }

    /// Reads configuration space as its borrower sees it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such register.
    pub async fn shown_read(&self, cpu: &Cpu, register: u16) -> Result<u32, Error> {
        let register = in_config(register)?;
        match register {
            ROM => Ok(0),
            header::BAR0..ROM if bar_number(register).is_some() => {
                Ok(self.bars.borrow()[bar_number(register).unwrap_or_default()])
            }
            _ => Ok(self.read(cpu, register).await),
        }
    }

    /// Writes configuration space for its borrower.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such register, [`Error::NotPermitted`] if it is not lent, or the error of its reset.
    pub async fn shown_write(
        &self,
        cpu: &Cpu,
        register: u16,
        (value, enables): (u32, u8),
    ) -> Result<(), Error> {
        let register = in_config(register)?;
        if register == ROM {
            return Ok(());
        }
        if let Some(number) = bar_number(register) {
            self.set_bar(number, value);
            return Ok(());
        }
        let sizes = self.with_lease(|lease| lease.sizes()).ok_or(Error::NotPermitted)?;
        let is_control = self.device_control() == Some(register);
        if is_control && enables & 2 != 0 && value as u16 & pcie_cap::CONTROL_FLR != 0 {
            // The lender restores its own addresses and sizes.
            let reset = self.device.reset(cpu).await;
            self.limit(cpu, sizes).await;
            return reset;
        }
        let value = match register {
            // Memory decoding stays on, since windows lead to its registers.
            header::COMMAND if enables & 1 != 0 => value | u32::from(header::COMMAND_MEMORY),
            _ if is_control => value & 0xffff_0000 | u32::from(sizes.limit(value as u16)),
            _ => value,
        };
        self.device.config_write(cpu, register, value, enables).await;
        Ok(())
    }

    /// Reads configuration space, whoever has it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such register.
    pub async fn inspect(&self, cpu: &Cpu, register: u16) -> Result<u32, Error> {
        Ok(self.read(cpu, in_config(register & !3)?).await)
    }

    /// Addresses of its BARs.
    pub fn own_bars(&self) -> Bars {
        own_bars(&self.device)
    }

    /// Reads configuration space. A virtual function's vendor and device IDs read as ones (base spec 9.3.4.1.1), but
    /// its borrower does not know the physical function, so they are filled in here.
    async fn read(&self, cpu: &Cpu, register: u16) -> u32 {
        let found = self.device.config_read(cpu, register).await;
        if register == header::VENDOR && found == u32::MAX && self.device.is_present() {
            let identity = self.device.identity();
            return u32::from(identity.device) << 16 | u32::from(identity.vendor);
        }
        found
    }

    /// Register with the TLP sizes.
    fn device_control(&self) -> Option<u16> {
        self.device.capability(id::PCI_EXPRESS).map(|at| at + pcie_cap::DEVICE_CONTROL)
    }

    /// TLP sizes for lending to a host that accepts payloads of at most `borrower` bytes.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a virtual function that needs smaller ones: its sizes are those of the physical
    /// function (base spec 9.3.5.4).
    fn sizes(&self, host: &LocalHost, borrower: u16) -> Result<Sizes, Error> {
        let own = host.function(self.device.address());
        let passes = own.as_ref().map_or(LEAST_PAYLOAD, |own| own.max_payload as u16);
        let lender = passes.min(host.payload());
        let sizes = Sizes::between(lender, borrower);
        let is_virtual = own.is_some_and(|own| own.physical.is_some());
        if is_virtual && sizes != Sizes::between(passes, passes) {
            host.log(format!(
                "{} cannot be lent: payloads of {passes} B pass to it, of {lender} B to the adapter, of {borrower} B to the \
                 borrower",
                self.device.address().bdf
            ));
            return Err(Error::NotSupported);
        }
        Ok(sizes)
    }

    /// Reduces its TLP sizes.
    async fn limit(&self, cpu: &Cpu, sizes: Sizes) {
        let Some(register) = self.device_control() else { return };
        let control = self.device.config_read(cpu, register).await as u16;
        if sizes.limit(control) != control {
            self.device.config_write(cpu, register, sizes.limit(control).into(), 3).await;
        }
    }

    /// Initial BAR registers for the borrower. A virtual function has no BAR registers (base spec 9.3.4.1.11); its
    /// BARs are presented as 64-bit ones.
    async fn bar_registers(&self, cpu: &Cpu) -> [u32; 6] {
        let mut registers = [0; 6];
        for (number, register) in (0u16..).zip(&mut registers) {
            *register = self.device.config_read(cpu, header::BAR0 + 4 * number).await;
        }
        for (number, (at, length)) in own_bars(&self.device).into_iter().enumerate() {
            if length > 0 && registers[number] == 0 && number < 5 {
                registers[number] = at as u32 | header::BAR_WIDE;
                registers[number + 1] = (at >> 32) as u32;
            }
        }
        registers
    }

    /// The borrower writes a BAR register. Reading it back gives the size, as on the real function.
    fn set_bar(&self, number: usize, value: u32) {
        let own = |number: usize| self.device.bar(number as u8).map(|bar| !(bar.length - 1));
        let (mask, fixed) = match (own(number), number.checked_sub(1).and_then(own)) {
            (Some(mask), _) => (mask as u32, self.bars.borrow()[number] & 0xf),
            (None, Some(mask)) => ((mask >> 32) as u32, 0),
            (None, None) => (0, 0),
        };
        self.bars.borrow_mut()[number] = value & mask | fixed;
    }
}
