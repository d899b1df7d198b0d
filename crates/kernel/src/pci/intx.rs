//! Legacy interrupts: which line of the host's interrupt controller a function's leads to, and functions on lines.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Node};
use platform::irq::{Affinity, Irq};
use wire::pcie::IntxLine;
use wire::pcie::config::header;

use super::{Function, Pci};
use crate::dma::MessageSource;
use crate::irq::Intx;

impl Pci {
    /// The line of the host's interrupt controller that a function's own one leads to. Windows pass none.
    async fn line_of(&self, cpu: &Cpu, function: &Function) -> Option<IntxLine> {
        let pin = function.backend.config_read(cpu, header::INTERRUPT_LINE).await >> 8;
        let mut line = IntxLine::from_pin(pin as u8).filter(|_| function.is_own())?;
        let (mut device, mut above) = (function.bdf.device(), function.parent);
        loop {
            let bridge = above.and_then(|at| self.function(function.beside(at)));
            // What is at the end of a link is device 0 there, whatever its function number.
            if !bridge.as_ref().is_some_and(|bridge| bridge.has_link_below()) {
                line = line.above(device);
            }
            let Some(bridge) = bridge else { return Some(line) };
            (device, above) = (bridge.bdf.device(), bridge.parent);
        }
    }

    /// Gives a function, which has no interrupts, its legacy one.
    pub(super) async fn alloc_intx(
        self: &Rc<Self>,
        cpu: &Cpu,
        function: &Function,
        affinity: &Affinity,
    ) -> Result<Irq, Error> {
        let line = self.line_of(cpu, function).await.ok_or(Error::NotSupported)?;
        if self.cores.ground.line_source().is_none() {
            return Err(Error::NotSupported);
        }
        if !function.irqs.borrow().is_empty() {
            return Err(Error::Busy);
        }
        let (member, is_new) = self.irqs.join(line, self.core_for(function, affinity, 0))?;
        if let Some(intx) = member.intx().filter(|_| is_new)
            && let Err(error) = self.route(cpu, &intx)
        {
            self.leave_line(cpu, &intx, member.irq);
            return Err(error);
        }
        function.msix_table.set(None);
        function.irqs.borrow_mut().push(member.irq);
        function.enable_intx(cpu, true).await;
        Ok(member.irq)
    }

    /// Lets a line arrive where it is to.
    pub(super) fn route(&self, cpu: &Cpu, intx: &Intx) -> Result<(), Error> {
        let ground = &self.cores.ground;
        // The controller is the first socket's.
        let requester = ground.line_source().ok_or(Error::NotSupported)?;
        self.dma.remap_line(cpu, &intx.own, MessageSource { node: Node(0), requester })?;
        ground.set_line(cpu.id(), intx.line, Some(self.dma.message_for(&intx.own)));
        Ok(())
    }

    /// Takes a function's interrupt off its line.
    pub(super) fn leave_line(&self, cpu: &Cpu, intx: &Intx, member: Irq) {
        let Some(member) = self.irqs.line(member) else { return };
        if intx.leave(cpu, &member) {
            self.cores.ground.set_line(cpu.id(), intx.line, None);
            self.dma.unmap_line(cpu, &intx.own);
            self.irqs.forget(intx);
        }
    }
}

impl Function {
    /// Lets it use its line, or not.
    pub(super) async fn enable_intx(&self, cpu: &Cpu, on: bool) {
        let command = self.backend.read_u16(cpu, header::COMMAND).await;
        let disable = header::COMMAND_INTX_DISABLE;
        let command = if on { command & !disable } else { command | disable };
        self.backend.write_u16(cpu, header::COMMAND, command).await;
    }
}
