//! Legacy interrupts: routing of functions to lines of the host's interrupt controller.

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
    /// The controller's line for a function. Windows to other hosts forward none.
    async fn line_of(&self, cpu: &Cpu, function: &Function) -> Option<IntxLine> {
        let pin = function.backend.config_read(cpu, header::INTERRUPT_LINE).await >> 8;
        let mut line = IntxLine::from_pin(pin as u8).filter(|_| function.is_own())?;
        let (mut device, mut above) = (function.bdf.device(), function.parent);
        loop {
            let bridge = above.and_then(|at| self.function(function.beside(at)));
            // The device at the end of a link is number 0, also for routing (ARI).
            if !bridge.as_ref().is_some_and(|bridge| bridge.has_link_below()) {
                line = line.above(device);
            }
            let Some(bridge) = bridge else { return Some(line) };
            (device, above) = (bridge.bdf.device(), bridge.parent);
        }
    }

    /// Allocates the legacy interrupt of a function that has no others.
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

    /// Routes a line to the core and vector of its interrupt.
    pub(super) fn route(&self, cpu: &Cpu, intx: &Intx) -> Result<(), Error> {
        let ground = &self.cores.ground;
        // The controller belongs to the first socket.
        let requester = ground.line_source().ok_or(Error::NotSupported)?;
        self.dma.remap_line(cpu, &intx.own, MessageSource { node: Node(0), requester })?;
        ground.set_line(cpu.id(), intx.line, Some(self.dma.message_for(&intx.own)));
        Ok(())
    }

    /// Removes a function's interrupt from its line.
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
    /// Enables or disables its legacy interrupt.
    pub(super) async fn enable_intx(&self, cpu: &Cpu, on: bool) {
        let command = self.backend.read_u16(cpu, header::COMMAND).await;
        let disable = header::COMMAND_INTX_DISABLE;
        let command = if on { command & !disable } else { command | disable };
        self.backend.write_u16(cpu, header::COMMAND, command).await;
    }
}
