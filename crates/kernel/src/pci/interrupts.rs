//! Interrupts of functions: vectors and messages (MSI, MSI-X), and legacy lines of the host's interrupt controller.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, CpuId, Node};
use platform::irq::{Affinity, Irq};
use platform::mmio::{MemoryType, Mmio};
use wire::pcie::config::caps::id;
use wire::pcie::config::msix::{self, ENTRY_LEN, MsixLayout};
use wire::pcie::config::{header, msi};
use wire::pcie::{FunctionAddress, IntxLine};

use super::backend::Message;
use super::base::PciBase;
use super::function::Function;
use super::topology::Topology;
use crate::dma::MessageSource;
use crate::irq::{Intx, Line};

/// Interrupts of a function.
#[derive(Clone, Default)]
struct Allocated {
    irqs: Vec<Irq>,
    /// BAR and offset of the MSI-X table.
    table: Option<(u8, u64)>,
}

/// Interrupts of all functions.
pub(crate) struct Interrupts {
    base: PciBase,
    topology: Rc<Topology>,
    allocated: RefCell<BTreeMap<FunctionAddress, Allocated>>,
}

/// The register and the bit that enable a function's messages.
fn message_control(function: &Function) -> (u16, u16) {
    match function.capability(id::MSIX) {
        Some(at) => (at + msix::CONTROL, msix::ENABLE),
        None => (function.capability(id::MSI).unwrap_or_default() + msi::CONTROL, msi::ENABLE),
    }
}

async fn msix_layout(cpu: &Cpu, function: &Function, at: u16) -> MsixLayout {
    let mut words = [0; 3];
    for (n, word) in (0u16..).zip(&mut words) {
        *word = function.backend.config_read(cpu, at + 4 * n).await;
    }
    MsixLayout::read(&|offset| words[usize::from((offset - at) / 4) % 3], at)
}

async fn enable_messages(cpu: &Cpu, function: &Function) {
    let (at, control) = message_control(function);
    let before = function.backend.read_u16(cpu, at).await;
    function.backend.write_u16(cpu, at, before | control).await;
}

impl Interrupts {
    pub(super) fn new(base: PciBase, topology: Rc<Topology>) -> Self {
        Self { base, topology, allocated: RefCell::default() }
    }

    /// A function's interrupts.
    pub fn of(&self, function: &Function) -> Vec<Irq> {
        self.allocated.borrow().get(&function.at()).map(|own| own.irqs.clone()).unwrap_or_default()
    }

    fn allocate(&self, function: &Function, irqs: Vec<Irq>) {
        self.allocated.borrow_mut().insert(function.at(), Allocated { irqs, table: None });
    }

    /// The core for a function's `n`-th vector: cores in turn, those that the driver names or all, with those of the
    /// function's node first. In place of one that has no free vector: the one with the most, of the function's node
    /// if it has any. (Linux takes that in any case: kernel/irq/matrix.c, `matrix_find_best_cpu`.)
    fn core_for(&self, function: &Function, affinity: &Affinity, n: usize) -> CpuId {
        let all = self.base.cores.all.iter();
        let mut cores: Vec<_> = all.map(|core| (core.node != function.node, core.id)).collect();
        cores.sort_unstable();
        let next = match affinity {
            Affinity::Cpu(cpu) => return *cpu,
            Affinity::Cpus(cpus) if !cpus.is_empty() => cpus[n % cpus.len()],
            _ => cores[n % cores.len()].1,
        };
        let free = |id| self.base.irqs.free_vectors(id);
        if free(next) > 0 {
            return next;
        }
        let most = cores.iter().min_by_key(|&&(is_far, id)| (free(id) == 0, is_far, Reverse(free(id))));
        most.map_or(next, |&(_, id)| id)
    }

    /// Allocates an interrupt, with a remapping entry if interrupts are remapped.
    fn alloc_line(&self, cpu: &Cpu, function: &Function, to: CpuId) -> Result<Rc<Line>, Error> {
        let line = self.base.irqs.allocate(to)?;
        let remapped = self.base.dma.remapping.remap_line(cpu, &line, function.message_source());
        remapped.inspect_err(|_| self.base.irqs.release(line.irq)).map(|()| line)
    }

    /// Allocates `least` to `most` interrupts, as many as there are vectors and remapping entries.
    pub async fn alloc(
        &self,
        cpu: &Cpu,
        function: &Function,
        least: u16,
        most: u16,
        affinity: &Affinity,
    ) -> Result<Vec<Irq>, Error> {
        if !self.of(function).is_empty() {
            return Err(Error::Busy);
        }
        let named = match affinity {
            Affinity::Spread => &[][..],
            Affinity::Cpu(cpu) => std::slice::from_ref(cpu),
            Affinity::Cpus(cpus) => cpus,
        };
        if least == 0 || named.iter().any(|cpu| usize::from(cpu.0) >= self.base.cores.all.len()) {
            return Err(Error::Invalid);
        }
        let msix = function.capability(id::MSIX);
        let available = match msix {
            Some(at) => msix_layout(cpu, function, at).await.vectors,
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
                self.base.dma.remapping.unmap_line(cpu, &line);
                self.base.irqs.release(line.irq);
            }
            return Err(Error::NoSpace);
        }
        let irqs: Vec<Irq> = lines.iter().map(|line| line.irq).collect();
        self.allocate(function, irqs.clone());
        for (n, line) in (0u16..).zip(&lines) {
            self.program(cpu, function, n, line).await;
        }
        enable_messages(cpu, function).await;
        Ok(irqs)
    }

    /// The controller's line for a function. Windows to other hosts forward none.
    async fn line_of(&self, cpu: &Cpu, function: &Function) -> Option<IntxLine> {
        let pin = function.backend.config_read(cpu, header::INTERRUPT_LINE).await >> 8;
        let mut line = IntxLine::from_pin(pin as u8).filter(|_| function.is_own())?;
        let (mut device, mut above) = (function.bdf.device(), function.parent);
        loop {
            let bridge = above.and_then(|at| self.topology.function(function.beside(at)));
            // The device at the end of a link is number 0, also for routing (ARI).
            if !bridge.as_ref().is_some_and(|bridge| bridge.has_link_below()) {
                line = line.above(device);
            }
            let Some(bridge) = bridge else { return Some(line) };
            (device, above) = (bridge.bdf.device(), bridge.parent);
        }
    }

    /// Allocates the legacy interrupt of a function that has no others.
    pub async fn alloc_intx(
        &self,
        cpu: &Cpu,
        function: &Function,
        affinity: &Affinity,
    ) -> Result<Irq, Error> {
        let line = self.line_of(cpu, function).await.ok_or(Error::NotSupported)?;
        if self.base.cores.ground.line_source().is_none() {
            return Err(Error::NotSupported);
        }
        if !self.of(function).is_empty() {
            return Err(Error::Busy);
        }
        let (member, is_new) = self.base.irqs.join(line, self.core_for(function, affinity, 0))?;
        if let Some(intx) = member.intx().filter(|_| is_new)
            && let Err(error) = self.route(cpu, &intx)
        {
            self.leave_line(cpu, &intx, member.irq);
            return Err(error);
        }
        self.allocate(function, vec![member.irq]);
        function.enable_intx(cpu, true).await;
        Ok(member.irq)
    }

    /// Routes a line to the core and vector of its interrupt.
    fn route(&self, cpu: &Cpu, intx: &Intx) -> Result<(), Error> {
        let ground = &self.base.cores.ground;
        // The controller belongs to the first socket.
        let requester = ground.line_source().ok_or(Error::NotSupported)?;
        self.base.dma.remapping.remap_line(cpu, &intx.own, MessageSource { node: Node(0), requester })?;
        ground.set_line(cpu.id(), intx.line, Some(self.base.dma.remapping.message_for(&intx.own)));
        Ok(())
    }

    /// Removes a function's interrupt from its line.
    fn leave_line(&self, cpu: &Cpu, intx: &Intx, member: Irq) {
        let Some(member) = self.base.irqs.line(member) else { return };
        if intx.leave(cpu, &member) {
            self.base.cores.ground.set_line(cpu.id(), intx.line, None);
            self.base.dma.remapping.unmap_line(cpu, &intx.own);
            self.base.irqs.forget(intx);
        }
    }

    /// Programs a function's messages again after a reset.
    pub async fn restore(&self, cpu: &Cpu, function: &Function) {
        let irqs = self.of(function);
        if irqs.first().is_some_and(|&irq| self.is_intx(irq)) {
            return function.enable_intx(cpu, true).await;
        }
        for (n, irq) in (0u16..).zip(&irqs) {
            if let Some(line) = self.base.irqs.line(*irq) {
                self.program(cpu, function, n, &line).await;
            }
        }
        if !irqs.is_empty() {
            enable_messages(cpu, function).await;
        }
    }

    fn is_intx(&self, irq: Irq) -> bool {
        self.base.irqs.line(irq).is_some_and(|line| line.intx().is_some())
    }

    /// Maps an entry of a function's MSI-X table.
    fn entry(&self, function: &Function, (bar, table): (u8, u64), n: u64) -> Result<Mmio, Error> {
        function.map(&self.base.cores, bar, table + n * ENTRY_LEN, ENTRY_LEN, MemoryType::Uncached)
    }

    /// Programs the message of a function's `n`-th vector.
    async fn program(&self, cpu: &Cpu, function: &Function, n: u16, line: &Line) {
        let (address, data) = self.base.dma.remapping.message_for(line);
        let Ok(Message { address, data }) = function.backend.message(n, Message { address, data }) else {
            return self.base.log.warn(format!("{}: no window for interrupt {n}", function.at()));
        };
        if let Some(at) = function.capability(id::MSIX) {
            let layout = msix_layout(cpu, function, at).await;
            let table = (layout.table_bar, layout.table_offset.into());
            if let Some(own) = self.allocated.borrow_mut().get_mut(&function.at()) {
                own.table = Some(table);
            }
            let Ok(entry) = self.entry(function, table, n.into()) else { return };
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
    pub fn mask(&self, cpu: &Cpu, function: &Function, irq: Irq, masked: bool) {
        let Some(own) = self.allocated.borrow().get(&function.at()).cloned() else { return };
        let n = own.irqs.iter().position(|&i| i == irq);
        let Some((n, table)) = n.zip(own.table) else { return };
        if let Ok(entry) = self.entry(function, table, n as u64) {
            entry.write_u32(cpu, 12, if masked { msix::ENTRY_MASKED } else { 0 });
        }
    }

    /// Masks or unmasks interrupts of one function: all by its function mask, some in its MSI-X table.
    pub async fn mask_some(&self, cpu: &Cpu, irqs: &[Irq], masked: bool) -> Result<(), Error> {
        let owner = irqs.first().and_then(|&irq| self.owner_of(irq));
        let (function, _) = owner.ok_or(Error::Invalid)?;
        let own = self.of(&function);
        if !irqs.iter().all(|irq| own.contains(irq)) {
            return Err(Error::Invalid);
        }
        let at = function.capability(id::MSIX).ok_or(Error::NotSupported)?;
        if irqs.len() == own.len() {
            let control = function.backend.read_u16(cpu, at + msix::CONTROL).await;
            let mask = if masked { msix::FUNCTION_MASK } else { 0 };
            let control = control & !msix::FUNCTION_MASK | mask;
            function.backend.write_u16(cpu, at + msix::CONTROL, control).await;
        }
        if irqs.len() < own.len() || !masked {
            irqs.iter().for_each(|&irq| self.mask(cpu, &function, irq, masked));
        }
        // Posted writes to the table have arrived when this returns.
        function.backend.config_read(cpu, at).await;
        Ok(())
    }

    /// Frees all interrupts of a function.
    pub async fn free(&self, cpu: &Cpu, function: &Function) {
        let own = self.allocated.borrow_mut().remove(&function.at());
        let Some(irqs) = own.map(|own| own.irqs).filter(|irqs| !irqs.is_empty()) else { return };
        if function.reach.is_present() && self.is_intx(irqs[0]) {
            function.enable_intx(cpu, false).await;
        } else if function.reach.is_present() {
            let (at, bit) = message_control(function);
            let control = function.backend.read_u16(cpu, at).await;
            function.backend.write_u16(cpu, at, control & !bit).await;
        }
        for irq in irqs {
            self.base.irqs.free(irq);
            if let Some(line) = self.base.irqs.line(irq) {
                match line.intx() {
                    Some(intx) => self.leave_line(cpu, &intx, irq),
                    None => self.base.dma.remapping.unmap_line(cpu, &line),
                }
            }
            self.base.irqs.release(irq);
        }
    }

    /// The function that sends an interrupt, and the index of the vector.
    pub fn owner_of(&self, irq: Irq) -> Option<(Rc<Function>, u16)> {
        self.allocated.borrow().iter().find_map(|(&at, own)| {
            let n = own.irqs.iter().position(|&i| i == irq)?;
            Some((self.topology.function(at)?, n as u16))
        })
    }

    /// Moves an interrupt to another core.
    pub async fn move_to(&self, cpu: &Cpu, irq: Irq, to: CpuId) -> Result<(), Error> {
        let line = self.base.irqs.line(irq).ok_or(Error::Invalid)?;
        if usize::from(to.0) >= self.base.cores.all.len() {
            return Err(Error::Invalid);
        }
        if let Some(intx) = line.intx() {
            self.base.irqs.move_line(&intx.own, to)?;
            self.route(cpu, &intx)?;
            for member in intx.members() {
                self.base.irqs.move_member(&member, to);
            }
            cpu.sync().await;
            return Ok(());
        }
        let (function, n) = self.owner_of(irq).ok_or(Error::Invalid)?;
        self.base.irqs.move_line(&line, to)?;
        self.base.dma.remapping.remap_line(cpu, &line, function.message_source())?;
        if !self.base.dma.remapping.has_entry(&line) {
            self.program(cpu, &function, n, &line).await;
        }
        self.base.irqs.moved(&line);
        cpu.sync().await;
        Ok(())
    }
}
