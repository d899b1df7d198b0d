//! Binding and unbinding of drivers.

use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use platform::pci::{ChannelState, PciDevice, PciDriver};
use wire::pcie::FunctionAddress;
use wire::pcie::config::{header, pcie_cap};

use super::backend::{Backend, OWN_SEGMENT};
use super::function::Bound;
use super::{Function, Pci};

impl Pci {
    /// Offers all unbound functions to all drivers.
    pub async fn bind_all(self: &Rc<Self>, cpu: &Cpu) {
        for function in self.all() {
            self.bind(cpu, &function).await;
        }
    }

    /// Adds a function that is not on the host's own fabric.
    pub async fn add_function(
        self: &Rc<Self>,
        cpu: &Cpu,
        at: FunctionAddress,
        way: Rc<dyn Backend>,
    ) -> Result<(), Error> {
        if at.segment == OWN_SEGMENT {
            return Err(Error::Invalid);
        }
        if self.function(at).is_some() {
            return Err(Error::Busy);
        }
        let function = self.discover(cpu, at, way, None).await.ok_or(Error::NoDevice)?;
        if let Some(pcie) = function.pcie {
            // The lender has set these sizes; remember them for after a reset.
            let control = function.backend.read_u16(cpu, pcie + pcie_cap::DEVICE_CONTROL).await;
            function.max_payload.set(pcie_cap::size_bytes(control >> 5));
        }
        let command = function.backend.read_u16(cpu, header::COMMAND).await;
        let on = command | header::COMMAND_MEMORY | header::COMMAND_INTX_DISABLE;
        function.backend.write_u16(cpu, header::COMMAND, on).await;
        self.bind(cpu, &function).await;
        Ok(())
    }

    /// Removes an added function. With `gone`, it was removed without notice and is not accessed.
    pub async fn remove_function(
        self: &Rc<Self>,
        cpu: &Cpu,
        at: FunctionAddress,
        gone: bool,
    ) -> Result<(), Error> {
        let function = self.function(at).filter(|function| !function.is_own()).ok_or(Error::NoDevice)?;
        if !gone {
            self.unbind(cpu, &function).await;
        }
        self.lose(cpu, &[function]).await;
        Ok(())
    }

    /// Unbinds a function and offers it to all drivers again (Linux: `unbind`, then `drivers_probe`).
    pub async fn rebind(self: &Rc<Self>, cpu: &Cpu, at: FunctionAddress) -> Result<(), Error> {
        let function = self.function(at).ok_or(Error::NoDevice)?;
        self.unbind(cpu, &function).await;
        self.bind(cpu, &function).await;
        Ok(())
    }

    /// Offers a function to the drivers in order of registration.
    pub async fn bind(self: &Rc<Self>, cpu: &Cpu, function: &Rc<Function>) {
        function.binds.acquire().await;
        self.find_driver(cpu, function).await;
        function.binds.release();
    }

    async fn find_driver(self: &Rc<Self>, cpu: &Cpu, function: &Rc<Function>) {
        if function.driver.borrow().is_some() || function.is_bridge() {
            return;
        }
        let drivers: Vec<Rc<dyn PciDriver>> = self.drivers.borrow().clone();
        for driver in drivers {
            if !function.present.get() || !driver.ids().iter().any(|id| id.matches(&function.identity)) {
                continue;
            }
            let ops: Rc<dyn platform::pci::PciOps> = Rc::clone(function) as _;
            match driver.probe(cpu, PciDevice::new(ops)).await {
                // Removed during probe, so the driver does not know yet.
                Ok(binding) if !function.present.get() => {
                    binding.error_detected(cpu, ChannelState::Gone);
                    binding.remove(cpu).await;
                }
                Ok(binding) => {
                    self.log.write(format!("pci {}: bound to {}", function, driver.name()));
                    *function.driver.borrow_mut() = Some(Bound { driver, binding });
                    return;
                }
                Err(error) => {
                    self.log.write(format!("pci {}: {} failed: {error}", function, driver.name()));
                }
            }
            self.let_go(cpu, function, driver.name()).await;
        }
    }

    /// Unbinds a function from its driver.
    pub async fn unbind(self: &Rc<Self>, cpu: &Cpu, function: &Rc<Function>) {
        function.binds.acquire().await;
        let bound = function.driver.borrow_mut().take();
        if let Some(Bound { driver, binding }) = bound {
            // Virtual functions need a driver of the physical function.
            Box::pin(self.disable_virtual_functions(cpu, function)).await;
            binding.remove(cpu).await;
            self.let_go(cpu, function, driver.name()).await;
            self.log.write(format!("pci {}: unbound from {}", function, driver.name()));
        }
        function.binds.release();
    }

    /// Revokes what a driver may have left behind: interrupts, bus mastering and DMA mappings, which are logged.
    async fn let_go(&self, cpu: &Cpu, function: &Function, driver: &str) {
        self.free_irqs(cpu, function).await;
        if function.present.get() {
            let command = function.backend.read_u16(cpu, header::COMMAND).await;
            let command = command & !header::COMMAND_BUS_MASTER;
            function.backend.write_u16(cpu, header::COMMAND, command).await;
        }
        let dma = function.dma.borrow_mut().take();
        if let Some(dma) = dma {
            let left = dma.close(cpu);
            if left > 0 {
                self.log.write(format!("pci {}: {driver} left {left} mappings", function));
            }
        }
    }

    /// Restores BARs and settings after a reset.
    pub(super) async fn restore(self: &Rc<Self>, cpu: &Cpu, function: &Function) {
        if function.physical.is_some() {
            // The physical function controls everything else.
            function.backend.write_u16(cpu, header::COMMAND, header::COMMAND_BUS_MASTER).await;
            self.restore_irqs(cpu, function).await;
            return;
        }
        let bars = *function.bars.borrow();
        for (n, bar) in (0u16..).zip(bars) {
            let Some(bar) = bar else { continue };
            let at = header::BAR0 + 4 * n;
            function.backend.config_write(cpu, at, bar.address as u32, 0xf).await;
            if bar.kind.is_64() {
                function.backend.config_write(cpu, at + 4, (bar.address >> 32) as u32, 0xf).await;
            }
        }
        if function.is_bridge() {
            let buses = [function.bdf.bus(), function.secondary.get(), function.subordinate.get(), 0];
            function.backend.config_write(cpu, header::BUS_NUMBERS, u32::from_le_bytes(buses), 7).await;
            let windows = *function.windows.borrow();
            for (number, window) in windows.into_iter().enumerate() {
                let (start, length) = window.unwrap_or_default();
                self.set_window(cpu, function, number, start, length).await;
            }
            self.isolate(cpu, function).await;
        }
        self.set_sizes(cpu, function, function.max_payload.get()).await;
        let on = header::COMMAND_MEMORY | header::COMMAND_INTX_DISABLE | header::COMMAND_BUS_MASTER;
        function.backend.write_u16(cpu, header::COMMAND, on).await;
        self.restore_irqs(cpu, function).await;
        self.restore_virtual_functions(cpu, function).await;
    }
}
