//! What cores have asked devices for: requests that wait for a tag, and tags that wait for their completions.

use std::collections::VecDeque;

use engine::{Completion, Scheduler, oneshot};
use units::Time;
use wire::pcie::tlp::{CompletionHeader, CompletionStatus};
use wire::pcie::{Tlp, TlpKind};

use super::{Host, ReadCompleter, RootEvent};
use crate::event::Event;
use crate::memory::{Cause, CoreId};
use crate::wires::Context;

/// Tags of a root complex: 8 bits of them, which every completer has to return (base spec 2.2.6.2).
const TAGS: usize = 256;

/// A request of a core to a device.
struct Request {
    port: u8,
    /// When it is at the port.
    arrives: Time,
    /// Without its tag.
    tlp: Tlp,
    /// Data of a write to configuration space.
    value: Option<u32>,
    waiting: Waiting,
}

/// Who waits for the completions of a request, and what has come.
pub(super) struct Waiting {
    pub core: CoreId,
    pub completer: ReadCompleter,
    /// The bytes asked for; ones until they have come.
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

    /// Nothing will come, or nothing more: the core reads all ones.
    pub fn give_up(self) {
        self.completer.complete(vec![0xff; self.data.len()]);
    }
}

#[derive(Default)]
struct Slot {
    waiting: Option<(u8, Waiting)>,
    /// How often the tag has been used.
    generation: u32,
    /// Until when a completion of an earlier request may come late.
    unsafe_until: Time,
}

/// A root complex's tags.
#[derive(Default)]
pub(super) struct Tags {
    slots: Vec<Slot>,
    /// Requests that found no tag free, oldest first.
    queue: VecDeque<Request>,
}

impl Tags {
    /// Takes the lowest free tag.
    fn take(&mut self, now: Time, most: usize) -> Option<usize> {
        let is_free = |slot: &Slot| slot.waiting.is_none() && slot.unsafe_until <= now;
        self.slots.iter().position(is_free).or_else(|| {
            (self.slots.len() < most).then(|| {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            })
        })
    }

    /// Who waits for a completion that came through `port`, if it is the next one of a request.
    pub fn answered(&mut self, port: u8, header: &CompletionHeader) -> Option<Waiting> {
        let slot = self.slots.get_mut(usize::from(header.tag))?;
        let (_, waiting) =
            slot.waiting.take_if(|(to, waiting)| *to == port && waiting.is_answered_by(header))?;
        Some(waiting)
    }

    /// More is to come for a tag.
    pub fn put_back(&mut self, tag: u16, port: u8, waiting: Waiting) {
        self.slots[usize::from(tag)].waiting = Some((port, waiting));
    }

    /// The port through which the `generation`th request with a tag went, if it still waits.
    pub fn waits(&self, tag: u16, generation: u32) -> Option<u8> {
        let slot = self.slots.get(usize::from(tag)).filter(|slot| slot.generation == generation)?;
        slot.waiting.as_ref().map(|&(port, _)| port)
    }

    /// A request has waited too long: its tag stays out of use `until` then.
    pub fn expire(&mut self, tag: u16, until: Time) {
        let slot = &mut self.slots[usize::from(tag)];
        slot.unsafe_until = until;
        if let Some((_, waiting)) = slot.waiting.take() {
            waiting.give_up();
        }
    }

    /// No completion will come through a port any more: accesses under way read all ones.
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
    /// Sends a request of a core as soon as there is a tag for it; gives what will come back.
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

    /// Sends the requests that wait for tags while there are tags.
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

    /// Until when a completion of a request that is given up now may come after all, as long again as a request waits.
    /// Those that wait for tags are looked at again then.
    pub(super) fn quarantine(&self, scheduler: &mut Scheduler<Event>, port: u8) -> Time {
        let port = self.port(port);
        let until = scheduler.now() + port.completion_timeout().unwrap_or(port.params.completion_timeout);
        scheduler.at(until, Event::Root(self.id, RootEvent::TagsFree));
        until
    }
}
