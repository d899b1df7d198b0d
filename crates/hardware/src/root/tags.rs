//! Outstanding requests of cores to devices: requests that wait for a tag, and tags that wait for completions.

use std::collections::VecDeque;

use engine::{Completion, Scheduler, oneshot};
use units::Time;
use wire::pcie::tlp::{CompletionHeader, CompletionStatus};
use wire::pcie::{Tlp, TlpKind};

use super::{Host, ReadCompleter, RootEvent};
use crate::event::Event;
use crate::memory::{Cause, CoreId};
use crate::wires::Context;

/// Tags of a root complex: 8 bits, which every completer has to return (base spec 2.2.6.2).
const TAGS: usize = 256;

/// A request of a core to a device.
struct Request {
    port: u8,
    /// When it reaches the port.
    arrives: Time,
    /// The request, without its tag.
    tlp: Tlp,
    /// Data of a configuration write.
    value: Option<u32>,
    waiting: Waiting,
}

/// An outstanding request and the data received so far.
pub(super) struct Waiting {
    pub core: CoreId,
    pub completer: ReadCompleter,
    /// Requested bytes; all ones until they arrive.
    pub data: Vec<u8>,
    pub received: usize,
    /// Address of the first byte; 0 for configuration space.
    pub address: u64,
}

impl Waiting {
    /// Whether a completion is the next one of the request (base spec 2.3.2).
    fn is_answered_by(&self, header: &CompletionHeader) -> bool {
        if header.status != CompletionStatus::Successful || header.length_dw == 0 {
            return true;
        }
        let lower_address = (self.address + self.received as u64) as u8 & 0x7f;
        usize::from(header.byte_count) == self.data.len() - self.received
            && header.lower_address == lower_address
    }

    /// No further completion will come: the core reads all ones.
    pub fn give_up(self) {
        self.completer.complete(vec![0xff; self.data.len()]);
    }
}

#[derive(Default)]
struct Slot {
    waiting: Option<(u8, Waiting)>,
    /// Number of uses of the tag.
    generation: u32,
    /// Until when a late completion of an earlier request may arrive.
    unsafe_until: Time,
}

/// Tags of a root complex.
#[derive(Default)]
pub(super) struct Tags {
    slots: Vec<Slot>,
    /// Requests that wait for a tag, oldest first.
    queue: VecDeque<Request>,
}

impl Tags {
    /// Allocates the lowest free tag.
    fn take(&mut self, now: Time, most: usize) -> Option<usize> {
        let is_free = |slot: &Slot| slot.waiting.is_none() && slot.unsafe_until <= now;
        self.slots.iter().position(is_free).or_else(|| {
            (self.slots.len() < most).then(|| {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            })
        })
    }

    /// Takes the request that a completion from `port` answers, if the completion is the expected one.
    pub fn answered(&mut self, port: u8, header: &CompletionHeader) -> Option<Waiting> {
        let slot = self.slots.get_mut(usize::from(header.tag))?;
        let (_, waiting) =
            slot.waiting.take_if(|(to, waiting)| *to == port && waiting.is_answered_by(header))?;
        Some(waiting)
    }

    /// Restores a request of which more completions are to come.
    pub fn put_back(&mut self, tag: u16, port: u8, waiting: Waiting) {
        self.slots[usize::from(tag)].waiting = Some((port, waiting));
    }

    /// The port through which the `generation`th request with a tag was sent, if it is still outstanding.
    pub fn waits(&self, tag: u16, generation: u32) -> Option<u8> {
        let slot = self.slots.get(usize::from(tag)).filter(|slot| slot.generation == generation)?;
        slot.waiting.as_ref().map(|&(port, _)| port)
    }

    /// A request timed out: its tag is quarantined until `until`.
    pub fn expire(&mut self, tag: u16, until: Time) {
        let slot = &mut self.slots[usize::from(tag)];
        slot.unsafe_until = until;
        if let Some((_, waiting)) = slot.waiting.take() {
            waiting.give_up();
        }
    }

    /// No completion will come through a port any more: outstanding accesses read all ones.
    pub fn abandon(&mut self, port: u8, until: Time) {
        for slot in &mut self.slots {
            if let Some((_, waiting)) = slot.waiting.take_if(|(to, _)| *to == port) {
                waiting.give_up();
                slot.unsafe_until = until;
            }
        }
        let (lost, kept): (VecDeque<_>, _) =
            std::mem::take(&mut self.queue).into_iter().partition(|request| request.port == port);
        self.queue = kept;
        lost.into_iter().for_each(|request| request.waiting.give_up());
    }
}

impl Host {
    /// Sends a core's request as soon as a tag is free. The result resolves to the completion data.
    pub(super) fn ask(
        &mut self,
        cx: &mut Context<'_>,
        (core, port): (CoreId, u8),
        tlp: Tlp,
        value: Option<u32>,
    ) -> Completion<Vec<u8>> {
        let (address, length) = match &tlp.kind {
            TlpKind::MemoryRead(request) => request.byte_range(),
            _ => (0, 4),
        };
        let (completer, completion) = oneshot();
        let waiting = Waiting { core, completer, data: vec![0xff; length as usize], received: 0, address };
        let bytes = if value.is_some() { 4 } else { 0 };
        let arrives = self.reach_port(core, cx.now(), port, Cause::MmioRegister, bytes);
        self.outbound.tags.queue.push_back(Request { port, arrives, tlp, value, waiting });
        self.issue(cx);
        completion
    }

    /// Issues requests that wait for tags while tags are free.
    pub(super) fn issue(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        while !self.outbound.tags.queue.is_empty()
            && let Some(tag) = self.outbound.tags.take(now, TAGS - self.peers.tags())
            && let Some(Request { port, arrives, mut tlp, value, waiting }) =
                self.outbound.tags.queue.pop_front()
        {
            match &mut tlp.kind {
                TlpKind::MemoryRead(request) => request.tag = tag as u16,
                TlpKind::ConfigRead(request) | TlpKind::ConfigWrite(request) => request.tag = tag as u16,
                _ => unreachable!("cores ask for memory and configuration space"),
            }
            let slot = &mut self.outbound.tags.slots[tag];
            slot.generation = slot.generation.wrapping_add(1);
            slot.waiting = Some((port, waiting));
            let generation = slot.generation;
            let packet = match value {
                Some(value) => cx.wires.packets.encode(&tlp, &value.to_le_bytes()),
                None => cx.wires.packets.encode(&tlp, &[]),
            };
            self.send_outbound(cx, now.max(arrives), port, packet);
            if let Some(timeout) = self.port(port).completion_timeout() {
                let event = RootEvent::Timeout { tag: tag as u16, generation };
                cx.scheduler.at(now + timeout, Event::Root(self.id, event));
            }
        }
    }

    /// Returns until when a completion of a request that times out now may still arrive, which is one more timeout.
    /// Schedules the waiting requests to be retried then.
    pub(super) fn quarantine(&self, scheduler: &mut Scheduler<Event>, port: u8) -> Time {
        let port = self.port(port);
        let until = scheduler.now() + port.completion_timeout().unwrap_or(port.params.completion_timeout);
        scheduler.at(until, Event::Root(self.id, RootEvent::TagsFree));
        until
    }
}
