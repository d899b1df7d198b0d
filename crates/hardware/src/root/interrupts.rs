//! Interrupt messages from a root port to a core: remapped, noted for guests, or sent on.

use engine::Scheduler;
use units::{Bytes, Time};
use wire::pcie::{Bdf, IntxLine, IntxLines};

use super::lines::LineController;
use super::{HostId, RootEvent};
use crate::event::Event;
use crate::iommu::{Delivery, Interrupt, Iommu, MsiMessage, PostedDescriptor, PostedInterrupt};
use crate::memory::{Cause, CoreId, Coverage, MemorySystem, NodeId};

/// The data of an interrupt message (base spec 6.1.4: a write of one doubleword).
const MESSAGE: Bytes = Bytes::new(4);

/// The function whose name the messages of legacy lines carry: the one that Xeon E5 v4 has in each socket (Intel 330784, volume 2,
/// device 5 function 4).
pub const IO_APIC: Bdf = Bdf::new(0, 5, 4);

/// An interrupt message that reached the cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterruptMessage {
    /// When.
    pub at: Time,
    /// Who sent it.
    pub requester: Bdf,
    /// Which vector of which core.
    pub interrupt: Interrupt,
}

/// Receives the interrupt messages of a host: the kernel's interrupt controller.
pub trait InterruptSink {
    /// A message arrived.
    fn deliver(&mut self, message: InterruptMessage);
}

/// What became of interrupt messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InterruptCounters {
    /// Delivered to a core.
    pub delivered: u64,
    /// Noted for guests.
    pub posted: u64,
    /// Refused by interrupt remapping, or without sense.
    pub blocked: u64,
}

/// The socket by which a message comes, and what it passes there.
pub(super) struct Entrance<'a> {
    pub node: NodeId,
    pub iommu: Option<&'a mut Iommu>,
    pub memory: &'a mut MemorySystem,
}

/// The way of interrupts to a host's cores.
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

    /// What has come so far.
    pub const fn counters(&self) -> &InterruptCounters {
        &self.counters
    }

    /// Sends messages to `sink` from now on.
    pub fn connect(&mut self, sink: Box<dyn InterruptSink>) {
        self.sink = Some(sink);
    }

    /// A message reached the root complex: it is remapped, if that is on, and goes to the cores.
    pub(super) fn message(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        Entrance { node, iommu, memory }: Entrance<'_>,
        requester: Bdf,
        message: MsiMessage,
    ) {
        let now = scheduler.now();
        let (at, interrupt) = match iommu.filter(|iommu| iommu.remaps_interrupts()) {
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
        // It leaves the socket `node` for that of its core. A set of cores is told at once: no kernel here asks for one.
        let core = (!interrupt.logical).then_some(CoreId(interrupt.destination as u16));
        let to = core.and_then(|core| memory.node_of_core(core)).unwrap_or(node);
        let there = memory.charge_interconnect(at, Cause::Interrupt, node, to, MESSAGE);
        if there == now {
            self.deliver(there, requester, interrupt);
        } else {
            scheduler.at(there, Event::Root(self.host, RootEvent::CoreInterrupt { requester, interrupt }));
        }
    }

    /// An interrupt for a guest's core is noted in its descriptor, which the IOMMU reads, changes and writes at once. Gives who is to be
    /// notified, and when.
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
        // It was read there.
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

    /// These legacy lines are active from now on.
    pub(super) fn set_active(&mut self, scheduler: &mut Scheduler<Event>, active: IntxLines) {
        for message in self.lines.set_active(active) {
            self.send_line(scheduler, message);
        }
    }

    /// Lets a line send this while it is active, or nothing. In legacy routing a line of a root port has the name that its device
    /// number gives it on the bus above.
    pub fn program_line(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        line: IntxLine,
        message: Option<MsiMessage>,
    ) {
        if let Some(message) = self.lines.program(line, message) {
            self.send_line(scheduler, message);
        }
    }

    /// A core has dealt with a line's interrupt.
    pub fn end_line(&mut self, scheduler: &mut Scheduler<Event>, line: IntxLine) {
        if let Some(message) = self.lines.end(line) {
            self.send_line(scheduler, message);
        }
    }

    fn send_line(&self, scheduler: &mut Scheduler<Event>, MsiMessage { address, data }: MsiMessage) {
        let event = RootEvent::Interrupt { requester: IO_APIC, address, data };
        scheduler.at(scheduler.now(), Event::Root(self.host, event));
    }
}
