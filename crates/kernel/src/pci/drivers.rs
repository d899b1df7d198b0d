//! Binding and unbinding of drivers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use platform::pci::{ChannelState, PciBinding, PciDevice, PciDriver, PciMatch};
use platform::sync::Semaphore;
use wire::pcie::FunctionAddress;
use wire::pcie::config::header;

use super::base::PciBase;
use super::function::Function;
use super::interrupts::Interrupts;
use super::iov::VirtualFunctions;
use super::topology::Topology;

/// Makes what a driver gets of a function.
pub(super) type DeviceOf = Box<dyn Fn(&Rc<Function>) -> PciDevice>;

/// A driver and its binding to a function.
struct Bound {
    driver: Rc<dyn PciDriver>,
    binding: Rc<dyn PciBinding>,
}

/// The place for a function's driver.
struct DriverSlot {
    /// Serialises bind and unbind.
    turn: Semaphore,
    bound: RefCell<Option<Bound>>,
}

/// The drivers of a kernel, and the functions that they are bound to.
pub(crate) struct Drivers {
    base: PciBase,
    topology: Rc<Topology>,
    interrupts: Rc<Interrupts>,
    iov: Rc<VirtualFunctions>,
    drivers: RefCell<Vec<Rc<dyn PciDriver>>>,
    slots: RefCell<BTreeMap<FunctionAddress, Rc<DriverSlot>>>,
    device: DeviceOf,
}

impl Drivers {
    pub(super) fn new(
        base: PciBase,
        topology: Rc<Topology>,
        interrupts: Rc<Interrupts>,
        iov: Rc<VirtualFunctions>,
        device: DeviceOf,
    ) -> Self {
        let (drivers, slots) = Default::default();
        Self { base, topology, interrupts, iov, drivers, slots, device }
    }

    fn slot(&self, function: &Function) -> Rc<DriverSlot> {
        let mut slots = self.slots.borrow_mut();
        let new = || Rc::new(DriverSlot { turn: Semaphore::new(1), bound: RefCell::new(None) });
        Rc::clone(slots.entry(function.at()).or_insert_with(new))
    }

    fn of<T>(&self, function: &Function, get: impl FnOnce(&Bound) -> T) -> Option<T> {
        let slot = self.slots.borrow().get(&function.at()).cloned()?;
        let bound = slot.bound.borrow();
        bound.as_ref().map(get)
    }

    /// The binding of a function's driver.
    pub fn binding_of(&self, function: &Function) -> Option<Rc<dyn PciBinding>> {
        self.of(function, |bound| Rc::clone(&bound.binding))
    }

    /// The name of a function's driver.
    pub fn name_of(&self, function: &Function) -> Option<&'static str> {
        self.of(function, |bound| bound.driver.name())
    }

    /// Adds a driver for functions bound from now on.
    pub fn add(&self, driver: Rc<dyn PciDriver>) {
        self.drivers.borrow_mut().push(driver);
    }

    /// Drops all bindings.
    pub fn clear_bindings(&self) {
        for slot in self.slots.take().into_values() {
            slot.bound.borrow_mut().take();
        }
    }

    /// Drops all drivers.
    pub fn clear_drivers(&self) {
        self.drivers.borrow_mut().clear();
    }

    /// Offers all unbound functions to all drivers.
    pub async fn bind_all(&self, cpu: &Cpu) {
        for function in self.topology.all() {
            self.bind(cpu, &function).await;
        }
    }

    /// Offers a function to the drivers in order of registration.
    pub async fn bind(&self, cpu: &Cpu, function: &Rc<Function>) {
        let slot = self.slot(function);
        slot.turn.acquire().await;
        self.find_driver(cpu, function, &slot).await;
        slot.turn.release();
    }

    async fn find_driver(&self, cpu: &Cpu, function: &Rc<Function>, slot: &DriverSlot) {
        if slot.bound.borrow().is_some() || function.is_bridge() {
            return;
        }
        let drivers: Vec<Rc<dyn PciDriver>> = self.drivers.borrow().clone();
        let mut failed = Vec::new();
        for driver in drivers {
            if !function.reach.is_present() || !driver.ids().iter().any(|id| id.matches(&function.identity)) {
                continue;
            }
            match driver.probe(cpu, (self.device)(function)).await {
                // Removed during probe, so the driver does not know yet.
                Ok(binding) if !function.reach.is_present() => {
                    binding.error_detected(cpu, ChannelState::Gone);
                    binding.remove(cpu).await;
                }
                Ok(binding) => {
                    self.base.log.write(format!("pci {}: bound to {}", function, driver.name()));
                    *slot.bound.borrow_mut() = Some(Bound { driver, binding });
                    return;
                }
                Err(error) => {
                    self.base.log.write(format!("pci {}: {} failed: {error}", function, driver.name()));
                    // Drivers for every function take few.
                    if driver.ids().iter().all(|id| *id != PciMatch::ANY) {
                        failed.push((driver.name(), error));
                    }
                }
            }
            self.let_go(cpu, function, driver.name()).await;
        }
        for (name, error) in failed.into_iter().filter(|_| function.reach.is_present()) {
            let group = if error == Error::Busy { self.group_text(function) } else { String::new() };
            self.base.log.warn(format!("pci {function}: {name} failed: {error}{group}"));
        }
    }

    /// Who else is in a function's IOMMU group, if anyone.
    fn group_text(&self, function: &Function) -> String {
        let name = |other: &Rc<Function>| format!("{other} ({})", self.name_of(other).unwrap_or("no driver"));
        let others: Vec<String> = self.topology.group_of(function).iter().map(name).collect();
        match others.is_empty() {
            true => String::new(),
            false => format!(", its IOMMU group also has {}", others.join(", ")),
        }
    }

    /// Unbinds a function from its driver.
    pub async fn unbind(&self, cpu: &Cpu, function: &Rc<Function>) {
        let slot = self.slot(function);
        slot.turn.acquire().await;
        let bound = slot.bound.borrow_mut().take();
        if let Some(Bound { driver, binding }) = bound {
            // Virtual functions need a driver of the physical function.
            Box::pin(self.disable_virtual_functions(cpu, function)).await;
            binding.remove(cpu).await;
            self.let_go(cpu, function, driver.name()).await;
            self.base.log.write(format!("pci {}: unbound from {}", function, driver.name()));
        }
        slot.turn.release();
    }

    /// Revokes what a driver may have left behind: interrupts, bus mastering and DMA mappings, which are logged.
    async fn let_go(&self, cpu: &Cpu, function: &Function, driver: &str) {
        self.interrupts.free(cpu, function).await;
        if function.reach.is_present() {
            let command = function.backend.read_u16(cpu, header::COMMAND).await;
            let command = command & !header::COMMAND_BUS_MASTER;
            function.backend.write_u16(cpu, header::COMMAND, command).await;
        }
        let dma = function.dma.borrow_mut().take();
        if let Some(dma) = dma {
            let left = dma.close(cpu);
            if left > 0 {
                self.base.log.warn(format!("pci {}: {driver} left {left} mappings", function));
            }
        }
    }

    /// Enables virtual functions and binds drivers to them.
    ///
    /// # Errors
    /// As [`VirtualFunctions::enable`].
    pub async fn enable_virtual_functions(
        &self,
        cpu: &Cpu,
        function: &Rc<Function>,
        count: u16,
    ) -> Result<(), Error> {
        for virtual_function in self.iov.enable(cpu, function, count).await? {
            self.bind(cpu, &virtual_function).await;
        }
        Ok(())
    }

    /// Unbinds and disables the virtual functions of a function.
    pub async fn disable_virtual_functions(&self, cpu: &Cpu, function: &Function) {
        let gone = self.iov.take_enabled(function);
        for virtual_function in &gone {
            self.unbind(cpu, virtual_function).await;
            virtual_function.reach.end();
            self.topology.remove(virtual_function);
        }
        if !gone.is_empty() {
            self.iov.switch_off(cpu, function).await;
        }
    }
}
