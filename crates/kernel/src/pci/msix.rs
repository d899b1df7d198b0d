//! Message-signalled interrupts (MSI, MSI-X): allocation of vectors, and programming of messages.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::irq::{Affinity, Irq};
use platform::mmio::MemoryType;
use platform::pci::PciOps;
use wire::pcie::config::caps::id;
use wire::pcie::config::msi;
use wire::pcie::config::msix::{self, ENTRY_LEN, MsixLayout};

use super::backend::Message;
use super::{Function, Pci};
use crate::dma::MessageSource;
use crate::irq::Line;

impl Function {
    /// The register and the bit that enable messages.
    fn message_control(&self) -> (u16, u16) {
        match self.capability(id::MSIX) {
            Some(at) => (at + msix::CONTROL, msix::ENABLE),
            None => (self.capability(id::MSI).unwrap_or_default() + msi::CONTROL, msi::ENABLE),
        }
    }

    /// Sender of its messages.
    pub fn message_source(&self) -> MessageSource {
        MessageSource { node: self.node, requester: self.backend.requester() }
    }
}

impl Pci {
    /// The core for a function's `n`-th vector.
    pub(super) fn core_for(&self, function: &Function, affinity: &Affinity, n: usize) -> CpuId {
        match affinity {
            Affinity::Cpu(cpu) => *cpu,
            Affinity::Cpus(cpus) if !cpus.is_empty() => cpus[n % cpus.len()],
            _ => {
                // Cores of the function's node first; with more vectors than cores, those with the fewest.
                let mut cores: Vec<_> = self.cores.all.iter().map(|core| (core.node, core.id)).collect();
                cores.sort_by_key(|&(node, id)| (node != function.node, id));
                cores[n % cores.len()].1
            }
        }
    }

    /// Allocates an interrupt, with a remapping entry if interrupts are remapped.
    fn alloc_line(&self, cpu: &Cpu, function: &Function, to: CpuId) -> Result<Rc<Line>, Error> {
        let line = self.irqs.allocate(to)?;
        let remapped = self.dma.remap_line(cpu, &line, function.message_source());
        remapped.inspect_err(|_| self.irqs.release(line.irq)).map(|()| line)
    }

    /// Allocates `least` to `most` interrupts, as many as there are vectors and remapping entries.
    pub(super) async fn alloc_irqs(
        self: &Rc<Self>,
        cpu: &Cpu,
        function: &Function,
        least: u16,
        most: u16,
        affinity: &Affinity,
    ) -> Result<Vec<Irq>, Error> {
        if !function.irqs.borrow().is_empty() {
            return Err(Error::Busy);
        }
        let named = match affinity {
            Affinity::Spread => &[][..],
            Affinity::Cpu(cpu) => std::slice::from_ref(cpu),
            Affinity::Cpus(cpus) => cpus,
        };
        if least == 0 || named.iter().any(|cpu| usize::from(cpu.0) >= self.cores.all.len()) {
            return Err(Error::Invalid);
        }
        let msix = function.capability(id::MSIX);
        let available = match msix {
            Some(at) => self.msix_layout(cpu, function, at).await.vectors,
            None => u16::from(function.capability(id::MSI).is_some()),
        };
        if (available, least) == (0, 1) {
            return self.alloc_intx(cpu, function, affinity).await.map(|irq| vec![irq]);
        }
        if available < least {
            return Err(Error::NoSpace);
        }
        let mut lines: Vec<Rc<Line>> = Vec::new();
        for n in 0..usize::from(most.min(available)) {
            match self.alloc_line(cpu, function, self.core_for(function, affinity, n)) {
                Ok(line) => lines.push(line),
                Err(_) => break,
            }
        }
        if lines.len() < usize::from(least) {
            for line in lines {
                self.dma.unmap_line(cpu, &line);
                self.irqs.release(line.irq);
            }
            return Err(Error::NoSpace);
        }
        let irqs: Vec<Irq> = lines.iter().map(|line| line.irq).collect();
        function.irqs.borrow_mut().clone_from(&irqs);
        for (n, line) in (0u16..).zip(&lines) {
            self.program(cpu, function, n, line).await;
        }
        self.enable_messages(cpu, function).await;
        Ok(irqs)
    }

    /// Programs a function's messages again after a reset.
    pub(super) async fn restore_irqs(&self, cpu: &Cpu, function: &Function) {
        let irqs = function.irqs.borrow().clone();
        if irqs.first().is_some_and(|&irq| self.is_intx(irq)) {
            return function.enable_intx(cpu, true).await;
        }
        for (n, irq) in (0u16..).zip(&irqs) {
            if let Some(line) = self.irqs.line(*irq) {
                self.program(cpu, function, n, &line).await;
            }
        }
        if !irqs.is_empty() {
            self.enable_messages(cpu, function).await;
        }
    }

    fn is_intx(&self, irq: Irq) -> bool {
        self.irqs.line(irq).is_some_and(|line| line.intx().is_some())
    }

    async fn enable_messages(&self, cpu: &Cpu, function: &Function) {
        let (at, control) = function.message_control();
        let before = function.backend.read_u16(cpu, at).await;
        function.backend.write_u16(cpu, at, before | control).await;
    }

    async fn msix_layout(&self, cpu: &Cpu, function: &Function, at: u16) -> MsixLayout {
        let mut words = [0; 3];
        for (n, word) in (0u16..).zip(&mut words) {
            *word = function.backend.config_read(cpu, at + 4 * n).await;
        }
        MsixLayout::read(&|offset| words[usize::from((offset - at) / 4) % 3], at)
    }

    /// Programs the message of a function's `n`-th vector.
    async fn program(&self, cpu: &Cpu, function: &Function, n: u16, line: &Line) {
        let (address, data) = self.dma.message_for(line);
        let Ok(Message { address, data }) = function.backend.message(n, Message { address, data }) else {
            return self.log.write(format!("{}: no window for interrupt {n}", function.at()));
        };
        if let Some(at) = function.capability(id::MSIX) {
            let layout = self.msix_layout(cpu, function, at).await;
            function.msix_table.set(Some((layout.table_bar, layout.table_offset.into())));
            let offset = u64::from(layout.table_offset) + u64::from(n) * ENTRY_LEN;
            let Ok(entry) = function.ioremap(layout.table_bar, offset, ENTRY_LEN, MemoryType::Uncached)
            else {
                return;
            };
            // Masked while it changes, so that no mixed message is sent.
            entry.write_u32(cpu, 12, msix::ENTRY_MASKED);
            entry.write_u32(cpu, 0, address as u32);
            entry.write_u32(cpu, 4, (address >> 32) as u32);
            entry.write_u32(cpu, 8, data);
            entry.write_u32(cpu, 12, 0);
            // The read flushes the writes before it.
            entry.read_u32(cpu, 12).await;
        } else if let Some(at) = function.capability(id::MSI) {
            let way = &function.backend;
            way.config_write(cpu, at + msi::ADDRESS, address as u32, 0xf).await;
            way.config_write(cpu, at + msi::ADDRESS_UPPER, (address >> 32) as u32, 0xf).await;
            function.backend.write_u16(cpu, at + msi::DATA, data as u16).await;
        }
    }

    /// Masks or unmasks one vector in the function's MSI-X table.
    pub(super) fn mask_irq(&self, cpu: &Cpu, function: &Function, irq: Irq, masked: bool) {
        let n = function.irqs.borrow().iter().position(|&i| i == irq);
        let Some((n, (bar, table))) = n.zip(function.msix_table.get()) else { return };
        let entry = table + n as u64 * ENTRY_LEN;
        if let Ok(entry) = function.ioremap(bar, entry, ENTRY_LEN, MemoryType::Uncached) {
            entry.write_u32(cpu, 12, if masked { msix::ENTRY_MASKED } else { 0 });
        }
    }

    /// Frees all interrupts of a function.
    pub(super) async fn free_irqs(&self, cpu: &Cpu, function: &Function) {
        let irqs = std::mem::take(&mut *function.irqs.borrow_mut());
        if irqs.is_empty() {
            return;
        }
        if function.present.get() && self.is_intx(irqs[0]) {
            function.enable_intx(cpu, false).await;
        } else if function.present.get() {
            let (at, bit) = function.message_control();
            let control = function.backend.read_u16(cpu, at).await;
            function.backend.write_u16(cpu, at, control & !bit).await;
        }
        for irq in irqs {
            self.irqs.free(irq);
            if let Some(line) = self.irqs.line(irq) {
                match line.intx() {
                    Some(intx) => self.leave_line(cpu, &intx, irq),
                    None => self.dma.unmap_line(cpu, &line),
                }
            }
            self.irqs.release(irq);
        }
    }

    /// The function that sends an interrupt, and the index of the vector.
    pub fn owner_of_irq(&self, irq: Irq) -> Option<(Rc<Function>, u16)> {
        self.all().into_iter().find_map(|function| {
            let n = function.irqs.borrow().iter().position(|&i| i == irq)?;
            Some((function, n as u16))
        })
    }

    /// Moves an interrupt to another core.
    pub async fn move_irq(self: &Rc<Self>, cpu: &Cpu, irq: Irq, to: CpuId) -> Result<(), Error> {
        let line = self.irqs.line(irq).ok_or(Error::Invalid)?;
        if usize::from(to.0) >= self.cores.all.len() {
            return Err(Error::Invalid);
        }
        if let Some(intx) = line.intx() {
            self.irqs.move_line(&intx.own, to)?;
            self.route(cpu, &intx)?;
            for member in intx.members() {
                self.irqs.move_member(&member, to);
            }
            cpu.sync().await;
            return Ok(());
        }
        let (function, n) = self.owner_of_irq(irq).ok_or(Error::Invalid)?;
        self.irqs.move_line(&line, to)?;
        self.dma.remap_line(cpu, &line, function.message_source())?;
        if line.remapped.get().is_none() {
            self.program(cpu, &function, n, &line).await;
        }
        self.irqs.moved(&line);
        cpu.sync().await;
        Ok(())
    }
}
