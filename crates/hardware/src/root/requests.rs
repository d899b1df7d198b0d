//! Requests of cores to devices: they wait for a tag, then for their completions.

use std::collections::VecDeque;

use engine::{Completer, Completion, Epoch, oneshot};
use units::Time;
use wire::pcie::tlp::{CompletionHeader, CompletionStatus};
use wire::pcie::{Tlp, TlpKind};

use super::RootEvent;
use super::means::Means;
use crate::detected::Detected;
use crate::memory::CoreId;
use crate::packet::PacketId;

/// Tags of a root complex: 8 bits, which every completer has to return (base spec 2.2.6.2).
const TAGS: usize = 256;

/// Receives the data of a core's read of a device; all ones if nothing answered.
type ReadCompleter = Completer<Vec<u8>>;

/// A request of a core to a device.
struct Request {
    port: u8,
    /// When it reaches the port.
    arrives: Time,
    /// The request, without its tag.
    tlp: Tlp,
    /// Data of a configuration write.
    value: Option<u32>,
    outstanding: Outstanding,
}

/// An outstanding request and the data received so far.
struct Outstanding {
    core: CoreId,
    completer: ReadCompleter,
    /// Requested bytes; all ones until they arrive.
    data: Vec<u8>,
    received: usize,
    /// Address of the first byte; 0 for configuration space.
    address: u64,
}

impl Outstanding {
    /// Whether a completion is the next one of the request (base spec 2.3.2).
    fn is_answered_by(&self, header: &CompletionHeader) -> bool {
        if header.status != CompletionStatus::Successful || header.length_dw == 0 {
            return true;
        }
        let lower_address = (self.address + self.received as u64) as u8 & 0x7f;
        usize::from(header.byte_count) == self.data.len() - self.received
            && header.lower_address == lower_address
    }

    /// Takes the data of a completion; `decoded` is `None` if it is damaged. Returns whether more will follow.
    fn receive(&mut self, header: &CompletionHeader, decoded: Option<(&Tlp, &[u8])>) -> bool {
        let payload = decoded.filter(|(tlp, _)| !tlp.common.poisoned).map(|(_, payload)| payload);
        let Some(payload) = payload.filter(|_| header.status == CompletionStatus::Successful) else {
            return false;
        };
        let lead = usize::from(header.lower_address & 3);
        let here = (header.bytes_here() as usize).min(self.data.len() - self.received);
        if let Some(bytes) = payload.get(lead..lead + here) {
            self.data[self.received..self.received + here].copy_from_slice(bytes);
            self.received += here;
        }
        // The completion of a configuration write has no data.
        self.received < self.data.len() && header.length_dw > 0
    }

    /// No further completion will come: the core reads all ones.
    fn give_up(self) {
        self.completer.complete(vec![0xff; self.data.len()]);
    }
}

#[derive(Default)]
struct Tag {
    outstanding: Option<(u8, Outstanding)>,
    /// Ends with each use of the tag, so that a timeout finds its own request only.
    epoch: Epoch,
    /// Until when a late completion of an earlier request may arrive.
    unsafe_until: Time,
}

/// The root complex as a requester.
pub(super) struct Requests {
    /// State of each tag, by its number.
    tags: Vec<Tag>,
    /// Largest number of tags.
    most: usize,
    /// Requests that wait for a tag, oldest first.
    queue: VecDeque<Request>,
    /// Data on its way from the root complex to the requesting core.
    finished: Vec<Option<(ReadCompleter, Vec<u8>)>>,
}

impl Requests {
    /// No requests yet.
    pub fn new() -> Self {
        Self { tags: Vec::new(), most: TAGS, queue: VecDeque::new(), finished: Vec::new() }
    }

    /// Leaves the highest `tags` to others.
    pub fn leave(&mut self, tags: usize) {
        self.most = TAGS - tags;
    }

    /// Number of requests that wait for a tag, for completions or for the way of their data to a core.
    pub fn under_way(&self) -> usize {
        let outstanding = self.tags.iter().filter(|tag| tag.outstanding.is_some()).count();
        self.queue.len() + outstanding + self.finished.iter().flatten().count()
    }

    /// Allocates the lowest free tag.
    fn take(&mut self, now: Time) -> Option<usize> {
        let is_free = |entry: &Tag| entry.outstanding.is_none() && entry.unsafe_until <= now;
        self.tags.iter().position(is_free).or_else(|| {
            (self.tags.len() < self.most).then(|| {
                self.tags.push(Tag::default());
                self.tags.len() - 1
            })
        })
    }

    /// Sends a core's request that `arrives` at its port, as soon as a tag is free. The result resolves to the
    /// completion data.
    pub fn ask(
        &mut self,
        means: &mut Means<'_, '_>,
        (core, port): (CoreId, u8),
        arrives: Time,
        tlp: Tlp,
        value: Option<u32>,
    ) -> Completion<Vec<u8>> {
        let (address, length) = match &tlp.kind {
            TlpKind::MemoryRead(request) => request.byte_range(),
            _ => (0, 4),
        };
        let (completer, completion) = oneshot();
        let outstanding =
            Outstanding { core, completer, data: vec![0xff; length as usize], received: 0, address };
        self.queue.push_back(Request { port, arrives, tlp, value, outstanding });
        self.issue(means);
        completion
    }

    /// Issues requests that wait for tags while tags are free.
    pub fn issue(&mut self, means: &mut Means<'_, '_>) {
        let now = means.cx.now();
        while !self.queue.is_empty()
            && let Some(tag) = self.take(now)
            && let Some(Request { port, arrives, mut tlp, value, outstanding }) = self.queue.pop_front()
        {
            match &mut tlp.kind {
                TlpKind::MemoryRead(request) => request.tag = tag as u16,
                TlpKind::ConfigRead(request) | TlpKind::ConfigWrite(request) => request.tag = tag as u16,
                _ => unreachable!("cores ask for memory and configuration space"),
            }
            let entry = &mut self.tags[tag];
            entry.epoch.end();
            entry.outstanding = Some((port, outstanding));
            let packets = &mut means.cx.wires.packets;
            let packet = match value {
                Some(value) => packets.encode(&tlp, &value.to_le_bytes()),
                None => packets.encode(&tlp, &[]),
            };
            means.send(now.max(arrives), port, packet);
            if let Some(timeout) = means.ports[port].completion_timeout() {
                let event = RootEvent::Timeout { tag: tag as u16, epoch: entry.epoch };
                means.at(now + timeout, event);
            }
        }
    }

    /// Handles a completion that arrived at `port` and is ordered behind posted writes at `at`. Consumes the packet.
    pub fn answered(
        &mut self,
        means: &mut Means<'_, '_>,
        port: u8,
        packet: PacketId,
        header: &CompletionHeader,
        at: Time,
    ) {
        let (cx, state) = (&mut *means.cx, &mut means.ports[port]);
        let entry = self.tags.get_mut(usize::from(header.tag)).filter(|_| header.requester == state.id());
        let answers =
            |(to, outstanding): &mut (u8, Outstanding)| *to == port && outstanding.is_answered_by(header);
        match entry
            .and_then(|entry| entry.outstanding.take_if(answers).map(|(_, outstanding)| (entry, outstanding)))
        {
            None => {
                means.counters.unexpected_completions += 1;
                state.detect(cx, Detected::UnexpectedCompletion, Some(packet));
            }
            Some((entry, mut outstanding)) => {
                if outstanding.receive(header, cx.wires.packets.decode(packet)) {
                    entry.outstanding = Some((port, outstanding));
                } else {
                    let leaves = at + state.params().inbound_completion_latency;
                    let Outstanding { core, completer, data, .. } = outstanding;
                    let there = means.reach_core(core, leaves, port, data.len());
                    if there == means.cx.now() {
                        completer.complete(data);
                    } else {
                        self.deliver(means, there, completer, data);
                    }
                    self.issue(means);
                }
            }
        }
        let now = means.cx.now();
        means.cx.consume(packet, now);
    }

    /// Delivers data to its core at `at`.
    pub fn deliver(&mut self, means: &mut Means<'_, '_>, at: Time, completer: ReadCompleter, data: Vec<u8>) {
        let slot = self.finished.iter().position(Option::is_none).unwrap_or_else(|| {
            self.finished.push(None);
            self.finished.len() - 1
        });
        self.finished[slot] = Some((completer, data));
        means.at(at, RootEvent::CoreHasData { slot: slot as u16 });
    }

    /// The data of an access has reached the core.
    pub fn delivered(&mut self, slot: u16) {
        if let Some((completer, data)) = self.finished[usize::from(slot)].take() {
            completer.complete(data);
        }
    }

    /// A request timed out: it reads all ones, as from a removed device, and its tag is quarantined.
    pub fn timeout(&mut self, means: &mut Means<'_, '_>, tag: u16, epoch: Epoch) {
        let entry = self.tags.get_mut(usize::from(tag)).filter(|entry| entry.epoch == epoch);
        let Some((entry, (port, outstanding))) =
            entry.and_then(|entry| entry.outstanding.take().map(|was| (entry, was)))
        else {
            return;
        };
        entry.unsafe_until = quarantine(means, port);
        outstanding.give_up();
        means.counters.timeouts += 1;
        means.ports[port].detect(means.cx, Detected::CompletionTimeout, None);
    }

    /// No completion will come through a port any more: outstanding accesses read all ones.
    pub fn abandon(&mut self, means: &mut Means<'_, '_>, port: u8) {
        let until = quarantine(means, port);
        for entry in &mut self.tags {
            if let Some((_, outstanding)) = entry.outstanding.take_if(|(to, _)| *to == port) {
                outstanding.give_up();
                entry.unsafe_until = until;
            }
        }
        let (lost, kept): (VecDeque<_>, _) =
            std::mem::take(&mut self.queue).into_iter().partition(|request| request.port == port);
        self.queue = kept;
        lost.into_iter().for_each(|request| request.outstanding.give_up());
    }
}

/// Returns until when a completion of a request that times out now may still arrive, which is one more timeout.
/// Schedules the outstanding requests to be retried then.
fn quarantine(means: &mut Means<'_, '_>, port: u8) -> Time {
    let port = &means.ports[port];
    let timeout = port.completion_timeout().unwrap_or(port.params().completion_timeout);
    let until = means.cx.now() + timeout;
    means.at(until, RootEvent::TagsFree);
    until
}
