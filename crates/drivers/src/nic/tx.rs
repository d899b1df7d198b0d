//! A TX queue.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::cpu::Cpu;
use platform::dma::{Direction, DmaOps};
use platform::net::{Checksum, NetCore, Packet};
use units::Iova;
use wire::nic::TxDescriptor;
use wire::nic::completion::{Completion, FAILED, Kind};
use wire::nic::descriptor::{END, LEN, REPORT, THROUGH_FUNCTION, TRANSPORT_CHECKSUM};

use super::counters::{Count, Counters};
use super::inline::Inline;
use super::params::NicCosts;
use super::path::TxPath;
use super::ring::Broken;
use super::ring::Ring;
use super::station::{Hand, Station};

/// Longest part of a fragment for one descriptor, which has a 16-bit length.
const PIECE: u32 = 32 << 10;

/// State of a descriptor in the ring.
#[derive(Default)]
struct TxSlot {
    mapping: Option<(Iova, u64)>,
    /// The function that reads the data, if it is another one.
    hand: Option<Hand>,
    /// The packet, at its last descriptor.
    packet: Option<Packet>,
}

/// Packets that have left the ring.
#[derive(Default)]
pub(super) struct FinishedPackets {
    pub packets: u32,
    pub bytes: u64,
    /// Frames that the packets make, and those of the last packet.
    frames: u32,
    last_frames: u32,
}

/// Outcome of putting a packet into the ring.
pub(super) enum Put {
    /// In the ring; a completion will follow.
    InRing,
    /// Dropped, with so many bytes, as it cannot be sent.
    Refused(u64),
    /// No room in the ring yet.
    Full(Packet),
}

/// A running TX queue.
pub(super) struct TxQueue {
    pub ring: Ring,
    dma: Rc<dyn DmaOps>,
    station: Rc<Station>,
    costs: NicCosts,
    report_every: u16,
    max_fragments: u16,
    inline: Option<Inline>,
    /// By ring index. Empty before the first packet, as many queues never send one.
    slots: RefCell<Vec<TxSlot>>,
    /// Counts of descriptors written, announced to the device, and done.
    tail: Cell<u16>,
    rung: Cell<u16>,
    done: Cell<u16>,
    /// Count of completions seen.
    seen: Cell<u16>,
    /// Completions read early, and the descriptor count they report as done.
    looked: Cell<(u16, u16)>,
    /// Packets since a completion was last requested.
    unreported: Cell<u16>,
    /// Count of the last descriptor of the last packet.
    last: Cell<u16>,
    /// A packet was refused for lack of room.
    stopped: Cell<bool>,
}

impl TxQueue {
    pub fn new(
        ring: Ring,
        (dma, station): (Rc<dyn DmaOps>, Rc<Station>),
        costs: NicCosts,
        report_every: u16,
        max_fragments: u16,
        inline: Option<Inline>,
    ) -> Self {
        Self {
            ring,
            dma,
            station,
            costs,
            report_every: report_every.max(1),
            max_fragments,
            inline,
            slots: RefCell::default(),
            tail: Cell::new(0),
            rung: Cell::new(0),
            done: Cell::new(0),
            seen: Cell::new(0),
            looked: Cell::new((0, 0)),
            unreported: Cell::new(0),
            last: Cell::new(0),
            stopped: Cell::new(false),
        }
    }

    /// Descriptors that the device has not finished.
    fn outstanding(&self) -> u16 {
        self.tail.get().wrapping_sub(self.done.get())
    }

    fn free(&self) -> u16 {
        self.ring.entries() - self.outstanding()
    }

    /// Ring entries that a packet takes.
    fn pieces(&self, packet: &Packet) -> u32 {
        if let Some(entries) = self.inline.as_ref().and_then(|inline| inline.entries(packet)) {
            return entries.into();
        }
        packet.fragments.iter().map(|f| f.length.div_ceil(PIECE)).sum()
    }

    /// Puts a packet into the ring.
    pub fn send(&self, cpu: &Cpu, packet: Packet, more: bool, counters: &Counters) -> Put {
        let pieces = self.pieces(&packet);
        let inline = self.inline.as_ref().filter(|inline| inline.entries(&packet).is_some());
        if pieces == 0 || inline.is_none() && pieces > u32::from(self.max_fragments) {
            return refuse(cpu, packet, &counters.tx_refused);
        }
        if pieces > u32::from(self.free()) {
            self.stopped.set(true);
            self.flush(cpu);
            return Put::Full(packet);
        }
        if self.slots.borrow().is_empty() {
            self.slots.borrow_mut().resize_with(usize::from(self.ring.entries()), TxSlot::default);
        }
        let begin = cpu.now();
        cpu.work(self.costs.send);
        counters.tx_described.add(cpu.now().since(begin).as_ps());
        let first = self.tail.get();
        if let Some(inline) = inline {
            self.send_inline(cpu, inline, packet, (first, pieces as u16), more);
            return Put::InRing;
        }
        if self.map(cpu, &packet).is_err() {
            return refuse(cpu, packet, &counters.tx_map_errors);
        }
        let last = first.wrapping_add(pieces as u16 - 1);
        self.last.set(last);
        let begin = cpu.now();
        self.write(cpu, &packet, first, last, more);
        counters.tx_described.add(cpu.now().since(begin).as_ps());
        self.slots.borrow_mut()[self.ring.index(last)].packet = Some(packet);
        self.tail.set(last.wrapping_add(1));
        if !more {
            self.flush(cpu);
        }
        Put::InRing
    }

    /// Puts a short packet into the ring, and into the doorbell if nothing else waits for the doorbell.
    fn send_inline(
        &self,
        cpu: &Cpu,
        inline: &Inline,
        packet: Packet,
        (first, entries): (u16, u16),
        more: bool,
    ) {
        let offload = matches!(packet.checksum, Checksum::Offload { .. });
        let report = self.reports(more);
        let flags = END | if report { REPORT } else { 0 } | if offload { TRANSPORT_CHECKSUM } else { 0 };
        let descriptor = TxDescriptor { flags, ..TxDescriptor::default() };
        inline.fill(cpu, &self.ring, first, &packet, descriptor);
        self.last.set(first);
        let tail = first.wrapping_add(entries);
        self.slots.borrow_mut()[self.ring.index(tail.wrapping_sub(1))].packet = Some(packet);
        self.tail.set(tail);
        if !more && self.rung.get() == first {
            self.rung.set(tail);
            inline.ring(cpu, first);
        } else if !more {
            self.flush(cpu);
        }
    }

    /// Whether to request a completion for this packet.
    fn reports(&self, more: bool) -> bool {
        let unreported = self.unreported.get() + 1;
        let report = !more || unreported >= self.report_every;
        self.unreported.set(if report { 0 } else { unreported });
        report
    }

    /// Maps all parts of a packet for DMA.
    fn map(&self, cpu: &Cpu, packet: &Packet) -> Result<(), platform::Error> {
        let mut slots = self.slots.borrow_mut();
        let mut count = self.tail.get();
        for fragment in &packet.fragments {
            cpu.work(self.costs.fragment);
            let mut done = 0;
            while done < fragment.length {
                let length = u64::from((fragment.length - done).min(PIECE));
                let at = fragment.at + u64::from(done);
                let hand = self.station.nearer(at);
                let dma = hand.as_ref().map_or(&self.dma, |hand| &hand.dma);
                match dma.map(cpu, at, length, Direction::ToDevice) {
                    Ok(bus) => {
                        let slot = &mut slots[self.ring.index(count)];
                        (slot.mapping, slot.hand) = (Some((bus, length)), hand);
                    }
                    Err(error) => {
                        while count != self.tail.get() {
                            count = count.wrapping_sub(1);
                            self.unmap(cpu, &mut slots[self.ring.index(count)]);
                        }
                        return Err(error);
                    }
                }
                count = count.wrapping_add(1);
                done += length as u32;
            }
        }
        Ok(())
    }

    fn unmap(&self, cpu: &Cpu, slot: &mut TxSlot) {
        let hand = slot.hand.take();
        let dma = hand.as_ref().map_or(&self.dma, |hand| &hand.dma);
        if let Some((bus, length)) = slot.mapping.take() {
            dma.unmap(cpu, bus, length, Direction::ToDevice);
        }
    }

    fn write(&self, cpu: &Cpu, packet: &Packet, first: u16, last: u16, more: bool) {
        let report = self.reports(more);
        let offload = matches!(packet.checksum, Checksum::Offload { .. });
        let slots = self.slots.borrow();
        let mut count = first;
        loop {
            let mut descriptor = TxDescriptor::default();
            if count == first {
                descriptor.segment = packet.segment;
                descriptor.headers = packet.headers as u8;
                descriptor.flags = if offload { TRANSPORT_CHECKSUM } else { 0 };
            }
            let slot = &slots[self.ring.index(count)];
            if let Some((bus, length)) = slot.mapping {
                (descriptor.address, descriptor.length) = (bus.get(), length as u16);
            }
            if let Some(hand) = &slot.hand {
                descriptor.flags |= THROUGH_FUNCTION;
                descriptor.function = hand.function;
            }
            if count == last {
                descriptor.flags |= END | if report { REPORT } else { 0 };
            }
            cpu.store(self.ring.descriptor(count), &descriptor.emit());
            if count == last {
                return;
            }
            count = count.wrapping_add(1);
        }
    }

    /// Rings the doorbell if there are new descriptors. The last packet always requests a completion, as no later
    /// packet may come to do so.
    pub fn flush(&self, cpu: &Cpu) {
        if self.rung.get() == self.tail.get() {
            return;
        }
        if self.unreported.replace(0) > 0 {
            let at = self.ring.descriptor(self.last.get());
            let mut bytes = [0; LEN];
            cpu.load(at, &mut bytes);
            let mut descriptor = TxDescriptor::parse(&bytes);
            descriptor.flags |= REPORT;
            cpu.store(at, &descriptor.emit());
        }
        self.rung.set(self.tail.get());
        self.ring.ring(cpu, self.tail.get());
    }

    /// Frees packets that the device has sent, and returns their number and bytes.
    ///
    /// # Errors
    /// If a completion is malformed.
    pub fn reap(
        &self,
        cpu: &Cpu,
        number: u16,
        core: &dyn NetCore,
        counters: &Counters,
    ) -> Result<u32, Broken> {
        let mut sent = FinishedPackets::default();
        let mut broken = false;
        while self.outstanding() > 0
            && let Some(completion) = self.look(cpu, counters)
        {
            let newly = completion.count.wrapping_sub(self.done.get());
            if completion.kind != Kind::Sent || newly == 0 || newly > self.outstanding() {
                broken = true;
                break;
            }
            self.seen.set(self.seen.get().wrapping_add(1));
            if completion.has(FAILED) {
                counters.tx_failed.add(1);
            }
            let finished = self.finish_all(cpu, newly);
            // A packet that fails is the last one of its completion.
            let failed = if completion.has(FAILED) { finished.last_frames } else { 0 };
            counters.tx_completed.add(u64::from(finished.frames - failed));
            sent.packets += finished.packets;
            sent.bytes += finished.bytes;
        }
        if sent.packets > 0 {
            core.sent(cpu, number, sent.packets, sent.bytes);
        }
        if self.stopped.get() && self.free() >= 2 * self.max_fragments.min(self.ring.entries() / 4) {
            self.stopped.set(false);
            core.wake_queue(cpu, number);
        }
        if broken { Err(Broken) } else { Ok(sent.packets) }
    }

    /// The next completion.
    fn look(&self, cpu: &Cpu, counters: &Counters) -> Option<Completion> {
        let begin = cpu.now();
        let completion = self.ring.completion(cpu, self.seen.get());
        counters.tx_cleaned.add(cpu.now().since(begin).as_ps());
        completion
    }

    /// Whether the device has done work whose completion is missing.
    pub async fn misses_completion(&self, cpu: &Cpu) -> bool {
        let (done, seen) = (self.done.get(), self.seen.get());
        let head = self.ring.head(cpu).await;
        self.outstanding() > 0 && head != done && self.ring.completion(cpu, seen).is_none()
    }

    /// Frees the oldest `descriptors`.
    fn finish_all(&self, cpu: &Cpu, descriptors: u16) -> FinishedPackets {
        let mut finished = FinishedPackets::default();
        for _ in 0..descriptors {
            let mut slot = core::mem::take(&mut self.slots.borrow_mut()[self.ring.index(self.done.get())]);
            self.done.set(self.done.get().wrapping_add(1));
            self.unmap(cpu, &mut slot);
            let Some(packet) = slot.packet else { continue };
            cpu.work(self.costs.sent);
            finished.packets += 1;
            finished.bytes += u64::from(packet.length());
            finished.last_frames = packet.frames();
            finished.frames += finished.last_frames;
            packet.release(cpu);
        }
        finished
    }

    /// Whether a completion is waiting.
    pub fn has_news(&self, cpu: &Cpu) -> bool {
        self.outstanding() > 0 && self.ring.completion(cpu, self.seen.get()).is_some()
    }

    /// Requests an interrupt for the next completion.
    pub fn arm(&self, cpu: &Cpu) {
        self.ring.arm(cpu, self.done.get());
    }

    /// Drops everything after the device has stopped, and returns what was not sent.
    pub fn abandon(&self, cpu: &Cpu) -> FinishedPackets {
        self.finish_all(cpu, self.outstanding())
    }
}

/// Marks are counts of descriptors.
impl TxPath for TxQueue {
    fn mark_behind(&self, packet: &Packet) -> u32 {
        self.tail.get().wrapping_add(self.pieces(packet) as u16).into()
    }

    fn is_past(&self, cpu: &Cpu, mark: u32) -> bool {
        let tail = self.tail.get();
        let mark = if tail.wrapping_sub(mark as u16) < 1 << 15 { mark as u16 } else { tail };
        let is_past = |done: u16| done.wrapping_sub(mark) < 1 << 15;
        let (mut seen, mut done) = self.looked.get();
        if self.seen.get().wrapping_sub(seen) < 1 << 15 {
            (seen, done) = (self.seen.get(), self.done.get());
        }
        while !is_past(done)
            && let Some(completion) = self.ring.completion(cpu, seen)
        {
            (seen, done) = (seen.wrapping_add(1), completion.count);
        }
        self.looked.set((seen, done));
        is_past(done)
    }

    fn is_empty(&self, _: &Cpu) -> bool {
        self.outstanding() == 0
    }
}

fn refuse(cpu: &Cpu, packet: Packet, count: &Count) -> Put {
    let bytes = packet.length();
    count.add(1);
    packet.release(cpu);
    Put::Refused(bytes.into())
}
