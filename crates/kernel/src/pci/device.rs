//! A function's interface for its driver.

use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node};
use platform::dma::DmaOps;
use platform::irq::{Affinity, Irq, IrqHandler, IrqMoved, IrqThread};
use platform::mmio::{MemoryType, Mmio};
use platform::pci::{BarRange, Identity, PciOps};
use wire::pcie::config::header;
use wire::pcie::{Bdf, FunctionAddress};

use super::Pci;
use super::function::Function;
use crate::dma::FunctionDma;

/// A function, as its driver sees it.
pub(super) struct DriverFunction {
    pub function: Rc<Function>,
    pub pci: Weak<Pci>,
}

impl DriverFunction {
    fn pci(&self) -> Result<Rc<Pci>, Error> {
        self.pci.upgrade().ok_or(Error::NoDevice)
    }

    fn dma_api(&self) -> Rc<FunctionDma> {
        self.pci().expect("a driver does not outlive its kernel").topology.dma_of(&self.function)
    }
}

impl PciOps for DriverFunction {
    fn address(&self) -> FunctionAddress {
        self.function.at()
    }

    fn identity(&self) -> Identity {
        self.function.identity
    }

    fn node(&self) -> Node {
        self.function.node
    }

    fn kernel(&self) -> Rc<dyn platform::kernel::Kernel> {
        self.pci().ok().and_then(|pci| pci.face.upgrade()).expect("a driver does not outlive its kernel")
    }

    fn dma(&self) -> Rc<dyn DmaOps> {
        self.function.backend.dma(self.dma_api())
    }

    fn is_present(&self) -> bool {
        self.function.reach.is_present()
    }

    fn config_read<'a>(&'a self, cpu: &'a Cpu, offset: u16) -> Async<'a, u32> {
        Box::pin(async move {
            if self.function.answers() {
                self.function.backend.config_read(cpu, offset).await
            } else {
                u32::MAX
            }
        })
    }

    fn config_write<'a>(&'a self, cpu: &'a Cpu, offset: u16, value: u32, enables: u8) -> Async<'a, ()> {
        Box::pin(async move {
            if self.function.answers() {
                self.function.backend.config_write(cpu, offset, value, enables).await;
            }
        })
    }

    fn capability(&self, id: u8) -> Option<u16> {
        self.function.capability(id)
    }

    fn extended_capability(&self, id: u16) -> Option<u16> {
        self.function.extended_capability(id)
    }

    fn bar(&self, bar: u8) -> Option<BarRange> {
        self.function.bar(bar)
    }

    fn ioremap(&self, bar: u8, offset: u64, length: u64, kind: MemoryType) -> Result<Mmio, Error> {
        self.function.map(&self.pci()?.base.cores, bar, offset, length, kind)
    }

    fn set_master<'a>(&'a self, cpu: &'a Cpu, on: bool) -> Async<'a, ()> {
        Box::pin(async move {
            if !self.function.answers() {
                return;
            }
            let command = self.function.backend.config_read(cpu, header::COMMAND).await;
            let bit = u32::from(header::COMMAND_BUS_MASTER);
            let command = if on { command | bit } else { command & !bit };
            // Write one byte only: masking of a legacy interrupt may change the upper byte at the same time.
            self.function.backend.config_write(cpu, header::COMMAND, command, 1).await;
        })
    }

    fn alloc_irqs<'a>(
        &'a self,
        cpu: &'a Cpu,
        least: u16,
        most: u16,
        affinity: Affinity,
    ) -> Async<'a, Result<Vec<Irq>, Error>> {
        Box::pin(
            async move { self.pci()?.interrupts.alloc(cpu, &self.function, least, most, &affinity).await },
        )
    }

    fn alloc_intx<'a>(&'a self, cpu: &'a Cpu, affinity: Affinity) -> Async<'a, Result<Irq, Error>> {
        Box::pin(async move { self.pci()?.interrupts.alloc_intx(cpu, &self.function, &affinity).await })
    }

    fn free_irqs<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            if let Ok(pci) = self.pci() {
                pci.interrupts.free(cpu, &self.function).await;
            }
        })
    }

    fn request_irq(
        &self,
        irq: Irq,
        name: &str,
        handler: IrqHandler,
        thread: Option<IrqThread>,
    ) -> Result<(), Error> {
        let pci = self.pci()?;
        if !pci.interrupts.of(&self.function).contains(&irq) {
            return Err(Error::Invalid);
        }
        pci.base.irqs.request(irq, name, handler, thread)
    }

    fn mask_irq(&self, cpu: &Cpu, irq: Irq, masked: bool) {
        if let Ok(pci) = self.pci() {
            pci.interrupts.mask(cpu, &self.function, irq, masked);
        }
    }

    fn set_irq_affinity<'a>(&'a self, cpu: &'a Cpu, irq: Irq, to: CpuId) -> Async<'a, Result<(), Error>> {
        Box::pin(async move { self.pci()?.interrupts.move_to(cpu, irq, to).await })
    }

    fn on_irq_moved(&self, irq: Irq, moved: IrqMoved) {
        let Ok(pci) = self.pci() else { return };
        if let Some(line) = pci.base.irqs.line(irq)
            && pci.interrupts.of(&self.function).contains(&irq)
        {
            line.on_moved(moved);
        }
    }

    fn free_irq(&self, irq: Irq) {
        if let Ok(pci) = self.pci() {
            pci.base.irqs.free(irq);
        }
    }

    fn reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move { self.pci()?.recovery.reset(cpu, &self.function).await })
    }

    fn add_dma_alias(&self, cpu: &Cpu, requester: Bdf) -> Result<(), Error> {
        self.dma_api().add_alias(cpu, requester)
    }

    fn remove_dma_alias(&self, cpu: &Cpu, requester: Bdf) {
        self.dma_api().remove_alias(cpu, requester);
    }

    fn enable_sriov<'a>(&'a self, cpu: &'a Cpu, count: u16) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let pci = self.pci()?;
            let me = pci.topology.function(self.function.at()).ok_or(Error::NoDevice)?;
            pci.drivers.enable_virtual_functions(cpu, &me, count).await
        })
    }

    fn disable_sriov<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            if let Ok(pci) = self.pci()
                && let Some(me) = pci.topology.function(self.function.at())
            {
                pci.drivers.disable_virtual_functions(cpu, &me).await;
            }
        })
    }
}
