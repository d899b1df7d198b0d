//! Interrupt messages from a root port to a core: remapped, posted to guests, or delivered.

use units::{Bytes, Time};
use wire::pcie::{Bdf, IntxLine, IntxLines};
use wire::vtd::{Delivery, Interrupt, MsiMessage, PostedDescriptor, PostedInterrupt};

use super::lines::LineController;
use super::means::Means;
use super::{HostId, RootEvent};
use crate::event::Event;
use crate::memory::{Cause, CoreId, Coverage, MemorySystem, NodeId};
use crate::wires::Context;

/// Payload of an interrupt message (base spec 6.1.4: a write of one doubleword).
const MESSAGE: Bytes = Bytes::new(4);

/// Requester ID of the messages of legacy lines: the function that Xeon E5 v4 has in each socket (Intel 330784, volume
/// 2, device 5 function 4).
pub const IO_APIC: Bdf = Bdf::new(0, 5, 4);

/// An interrupt message that reached a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterruptMessage {
    /// Time of delivery.
    pub at: Time,
    /// Function that sent it.
    pub requester: Bdf,
    /// Vector and target core.
    pub interrupt: Interrupt,
}

/// Receives the interrupt messages of a host: implemented by the kernel's interrupt controller.
pub trait InterruptSink {
    /// Called when a message arrives.
    fn deliver(&mut self, message: InterruptMessage);
}

/// Counts of interrupt messages by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InterruptCounters {
    /// Delivered to a core.
    pub delivered: u64,
    /// Posted to a guest's descriptor.
    pub posted: u64,
    /// Blocked by interrupt remapping, or malformed.
    pub blocked: u64,
}

/// Interrupt delivery to a host's cores.
pub struct Interrupts {
    host: HostId,
    sink: Option<Box<dyn InterruptSink>>,
    lines: LineController,
    counters: InterruptCounters,
}

impl Interrupts {
    pub(super) fn new(host: HostId) -> Self {
        Self { host, sink: None, lines: LineController::default(), counters: InterruptCounters::default() }
    }

    pub(super) fn reset(&mut self) {
        self.lines = LineController::default();
    }

    /// Counts so far.
    pub const fn counters(&self) -> &InterruptCounters {
        &self.counters
    }

    /// Delivers messages to `sink` from now on.
    pub fn connect(&mut self, sink: Box<dyn InterruptSink>) {
        self.sink = Some(sink);
    }

    /// Handles a message that reached the root complex: remaps it if remapping is enabled, and delivers it.
    pub(super) fn message(&mut self, means: &mut Means<'_, '_>, requester: Bdf, message: MsiMessage) {
        let (now, node) = (means.cx.now(), means.ports.entrance_of(requester));
        let memory = &mut *means.memory;
        let iommu = means.iommus.get_mut(node.index()).filter(|iommu| iommu.remaps_interrupts());
        let (at, interrupt) = match iommu {
            Some(iommu) => {
                let remapped = iommu.remap_interrupt(now, requester, message, memory);
                let at = remapped.ready.max(now);
                match remapped.outcome {
                    Ok(Delivery::Core(interrupt)) => (at, Some(interrupt)),
                    Ok(Delivery::Posted(posted)) => match self.post(at, node, memory, posted) {
                        Some((done, notification)) => (done, Some(notification)),
                        None => return,
                    },
                    Err(_) => (at, None),
                }
            }
            None => (now, message.unremapped().ok()),
        };
        let Some(interrupt) = interrupt else {
            self.counters.blocked += 1;
            return;
        };
        // The message crosses from the socket `node` to the socket of its core. A logical destination is delivered at
        // once, since no kernel here uses one.
        let core = (!interrupt.logical).then_some(CoreId(interrupt.destination as u16));
        let to = core.and_then(|core| memory.node_of_core(core)).unwrap_or(node);
        let there = memory.charge_interconnect(at, Cause::Interrupt, node, to, MESSAGE);
        if there == now {
            self.deliver(there, requester, interrupt);
        } else {
            means.at(there, RootEvent::CoreInterrupt { requester, interrupt });
        }
    }

    /// Posts an interrupt for a guest: the IOMMU reads, modifies and writes the posted-interrupt descriptor atomically.
    /// Returns the notification to send, and when.
    fn post(
        &mut self,
        at: Time,
        node: NodeId,
        memory: &mut MemorySystem,
        posted: PostedInterrupt,
    ) -> Option<(Time, Interrupt)> {
        let place = posted.descriptor;
        let mut bytes = [0; PostedDescriptor::BYTES];
        if memory.bytes().read(place, &mut bytes).is_err() {
            self.counters.blocked += 1;
            return None;
        }
        let read = memory.dma_read(at, node, place);
        let done = memory.dma_write(read.ready, node, place, Coverage::FullLine).ready;
        let mut descriptor = PostedDescriptor::decode(&bytes);
        let notification = descriptor.post(posted.vector, posted.urgent);
        // Cannot fail: the descriptor was read from the same place.
        let _ = memory.bytes_mut().write(place, &descriptor.encode());
        self.counters.posted += 1;
        notification.map(|notification| (done, notification))
    }

    pub(super) fn deliver(&mut self, at: Time, requester: Bdf, interrupt: Interrupt) {
        self.counters.delivered += 1;
        if let Some(sink) = &mut self.sink {
            sink.deliver(InterruptMessage { at, requester, interrupt });
        }
    }

    /// Sets the legacy lines that are active from now on.
    pub(super) fn set_active(&mut self, cx: &mut Context<'_>, active: IntxLines) {
        for message in self.lines.set_active(active) {
            self.send_line(cx, message);
        }
    }

    /// Sets the message that a line sends while active, if any. In legacy routing, a root port's line is swizzled by
    /// its device number on the bus above.
    pub fn program_line(&mut self, cx: &mut Context<'_>, line: IntxLine, message: Option<MsiMessage>) {
        if let Some(message) = self.lines.program(line, message) {
            self.send_line(cx, message);
        }
    }

    /// End of interrupt: a core has served a line's interrupt.
    pub fn end_line(&mut self, cx: &mut Context<'_>, line: IntxLine) {
        if let Some(message) = self.lines.end(line) {
            self.send_line(cx, message);
        }
    }

    fn send_line(&self, cx: &mut Context<'_>, MsiMessage { address, data }: MsiMessage) {
        let event = RootEvent::Interrupt { requester: IO_APIC, address, data };
        cx.scheduler.at(cx.now(), Event::Root(self.host, event));
    }
}
