//! Writing completions: in place, to a ring of their own, or the head alone; several at once.

use platform::device::{DeviceBus, Dma, DmaAttributes, FunctionIndex, Token};
use units::Iova;
use wire::nic::Completion;
use wire::nic::completion::LEN;
use wire::nic::registers::{counter, feature};

use super::Nic;
use super::ring::CompletionMode;
use super::token::{Kind, Note};

impl Nic {
    /// Notes a completion of a queue; it is written now or with others. `packets` says how many it ends.
    pub(super) fn complete(
        &mut self,
        bus: &mut dyn DeviceBus,
        function: u8,
        queue: u8,
        is_tx: bool,
        completion: Completion,
        packets: u16,
    ) {
        if self.functions[usize::from(function)].ring(queue, is_tx).has_slots().is_some() {
            self.complete_slot(bus, function, (queue, is_tx), completion, packets, &[]);
            return;
        }
        let mut bytes = completion.emit(false);
        if self.handle.spoils_completion() {
            bytes[..15].fill(0xa5);
        }
        let path = if is_tx { self.params.tx } else { self.params.rx };
        let ring = self.functions[usize::from(function)].ring(queue, is_tx);
        match ring.setup.mode() {
            CompletionMode::Register => {}
            CompletionMode::Word => {
                ring.waiting.clear();
                ring.waiting.push(bytes);
            }
            CompletionMode::InPlace | CompletionMode::Ring => ring.waiting.push(bytes),
        }
        ring.waiting_packets += packets;
        ring.reported = if is_tx { completion.count } else { completion.count.wrapping_add(1) };
        self.flush_if_due(bus, function, queue, is_tx, path.write_back, path.write_back_delay);
    }

    /// Writes a completion with an entry of its own, and the frame that goes with it, in one.
    pub(super) fn complete_slot(
        &mut self,
        bus: &mut dyn DeviceBus,
        function: u8,
        (queue, is_tx): (u8, bool),
        completion: Completion,
        packets: u16,
        frame: &[u8],
    ) {
        let are_wide = self.params.features & feature::WIDE_COMPLETIONS != 0;
        let ring = self.functions[usize::from(function)].ring(queue, is_tx);
        let Some(slot) = ring.has_slots() else { return };
        let owner = Completion::owner_in_ring(ring.written, ring.setup.log2) ^ self.handle.flips_owner();
        self.scratch.clear();
        self.scratch.extend_from_slice(frame);
        if are_wide && frame.is_empty() {
            self.scratch.resize(slot as usize - LEN, 0);
        }
        let spoilt = self.handle.spoils_completion();
        let mut bytes = completion.emit(owner);
        if spoilt {
            bytes[..15].fill(0xa5);
        }
        self.scratch.extend_from_slice(&bytes);
        let index = u32::from(ring.written) & (ring.entries() - 1);
        let end = ring.setup.completions.wrapping_add(u64::from(index + 1) * slot);
        ring.written = ring.written.wrapping_add(1);
        ring.reported = completion.count.wrapping_add(u16::from(!is_tx));
        let kind = if is_tx { Kind::TxCompletion } else { Kind::RxCompletion };
        let note = Note::new(kind, ring.life, function, queue).with(packets, ring.reported);
        let length = self.scratch.len() as u32;
        self.handle.add(function, counter::WRITE_BACKS, 1);
        self.handle.add(function, counter::WRITTEN_BACK, (self.scratch.len() - frame.len()) as u64);
        bus.write(write(function, end - u64::from(length), length, note.token()), &self.scratch);
    }

    fn flush_if_due(
        &mut self,
        bus: &mut dyn DeviceBus,
        function: u8,
        queue: u8,
        is_tx: bool,
        part_batch: u16,
        part_delay: units::Duration,
    ) {
        let ring = self.functions[usize::from(function)].ring(queue, is_tx);
        if ring.waiting_packets == 0 {
            return;
        }
        let batch = ring.batch(part_batch);
        let waiting = match ring.setup.mode() {
            CompletionMode::InPlace => ring.waiting.len() as u16,
            _ => ring.waiting_packets,
        };
        if waiting >= batch || ring.delay(part_delay).is_zero() {
            self.flush(bus, function, queue, is_tx);
        } else if let Some(at) = ring.set_flush(bus.now(), part_delay) {
            let kind = if is_tx { Kind::TxFlush } else { Kind::RxFlush };
            bus.wake_at(at, Note::new(kind, ring.life, function, queue).token());
        }
    }

    /// Completions have waited long enough.
    pub(super) fn flush_due(&mut self, bus: &mut dyn DeviceBus, note: Note, is_tx: bool) {
        let ring = self.functions[usize::from(note.function)].ring(note.queue, is_tx);
        if ring.life == note.life {
            ring.flush_set = false;
            self.flush(bus, note.function, note.queue, is_tx);
        }
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8, is_tx: bool) {
        let ring = self.functions[usize::from(function)].ring(queue, is_tx);
        let packets = std::mem::take(&mut ring.waiting_packets);
        if !ring.running || packets == 0 {
            return;
        }
        let kind = if is_tx { Kind::TxCompletion } else { Kind::RxCompletion };
        let note = Note::new(kind, ring.life, function, queue);
        let log2 = ring.setup.log2;
        let (mask, entries) = (ring.entries() - 1, ring.waiting.len());
        match ring.setup.mode() {
            CompletionMode::Register => {
                let visible = ring.reported;
                self.completed(bus, function, queue, is_tx, (packets, visible));
            }
            CompletionMode::Word => {
                let note = note.with(packets, ring.reported);
                let request = write(function, ring.setup.completions, 4, note.token());
                let head = u32::from(ring.done).to_le_bytes();
                ring.waiting.clear();
                self.handle.add(function, counter::WRITE_BACKS, 1);
                self.handle.add(function, counter::WRITTEN_BACK, head.len() as u64);
                bus.write(request, &head);
            }
            mode => {
                let base =
                    if mode == CompletionMode::Ring { ring.setup.completions } else { ring.setup.ring };
                let mut begin = 0;
                while begin < entries {
                    // A write ends where the ring does.
                    let index = u32::from(ring.written) & mask;
                    let number = (entries - begin).min((mask + 1 - index) as usize);
                    self.scratch.clear();
                    for entry in &ring.waiting[begin..begin + number] {
                        self.scratch.extend_from_slice(entry);
                        let owner =
                            mode == CompletionMode::InPlace || Completion::owner_in_ring(ring.written, log2);
                        if let Some(last) = self.scratch.last_mut() {
                            *last = u8::from(owner ^ self.handle.flips_owner());
                        }
                        ring.written = ring.written.wrapping_add(1);
                    }
                    begin += number;
                    // Only the last write tells of the packets.
                    let packets = if begin == entries { packets } else { 0 };
                    let visible = ring.reported;
                    let address = base.wrapping_add(u64::from(index) * LEN as u64);
                    let request = write(
                        function,
                        address,
                        self.scratch.len() as u32,
                        note.with(packets, visible).token(),
                    );
                    self.handle.add(function, counter::WRITE_BACKS, 1);
                    self.handle.add(function, counter::WRITTEN_BACK, self.scratch.len() as u64);
                    bus.write(request, &self.scratch);
                }
                ring.waiting.clear();
            }
        }
    }

    /// A completion write has left: the driver can see it before any interrupt that follows.
    pub(super) fn completion_written(&mut self, bus: &mut dyn DeviceBus, note: Note, is_tx: bool) {
        let ring = self.functions[usize::from(note.function)].ring(note.queue, is_tx);
        if ring.life == note.life && note.first > 0 {
            self.completed(bus, note.function, note.queue, is_tx, (note.first, note.second));
        }
    }
}

pub(super) fn write(function: u8, address: u64, length: u32, token: Token) -> Dma {
    Dma {
        function: FunctionIndex(function),
        address: Iova::new(address),
        length,
        token,
        attributes: DmaAttributes::default(),
    }
}
