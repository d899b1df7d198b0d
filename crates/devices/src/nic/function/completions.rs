//! Writing of completions: in place, to a separate ring, or the head index alone; several per write.

use platform::device::DeviceBus;
use wire::nic::Completion;
use wire::nic::completion::{END, FAILED, Kind as CompletionKind, LEN};
use wire::nic::registers::{counter, feature};

use super::{NicFunction, ring_of};
use crate::nic::ring::CompletionMode;
use crate::nic::token::{Kind, Note, request};

/// A packet that has been sent, for the completion of its descriptors.
#[derive(Clone, Copy)]
pub struct Sent {
    pub function: u8,
    pub queue: u8,
    pub life: u16,
    pub descriptors: u16,
    pub failed: bool,
    pub report: bool,
}

impl NicFunction {
    /// Completes a packet's descriptors.
    pub fn sent(&mut self, bus: &mut dyn DeviceBus, sent: Sent) {
        let Sent { queue, life, descriptors, failed, report, .. } = sent;
        let ring = self.ring(queue, true);
        if ring.life != life {
            return;
        }
        let mode = ring.setup.mode();
        if failed {
            ring.dropped += 1;
            self.count(counter::TX_ERRORS, 1);
        }
        let flags = if failed { FAILED } else { 0 };
        let now = bus.now();
        for n in 1..=descriptors {
            let ring = self.ring(queue, true);
            ring.done = ring.done.wrapping_add(1);
            let (count, is_last) = (ring.done, n == descriptors);
            if is_last {
                ring.note_filled(now);
            }
            let is_told = match mode {
                CompletionMode::InPlace => true,
                CompletionMode::Ring => is_last && (report || failed),
                CompletionMode::Word | CompletionMode::Register => is_last,
            };
            if is_told {
                let flags = if is_last { flags | END } else { flags };
                let kind = CompletionKind::Sent;
                let completion = Completion { count, flags, kind, ..Completion::default() };
                self.complete(bus, queue, true, completion, is_last.into());
            }
        }
    }

    /// Records a completion of a queue, to be written now or together with others. `packets` is how many packets it
    /// ends.
    pub fn complete(
        &mut self,
        bus: &mut dyn DeviceBus,
        queue: u8,
        is_tx: bool,
        completion: Completion,
        packets: u16,
    ) {
        if self.ring(queue, is_tx).has_slots().is_some() {
            self.complete_slot(bus, (queue, is_tx), completion, packets, &[]);
            return;
        }
        let mut bytes = completion.emit(false);
        if self.handle.spoils_completion() {
            bytes[..15].fill(0xa5);
        }
        let path = if is_tx { self.nic.tx } else { self.nic.rx };
        let ring = ring_of(&mut self.tx, &mut self.rx, queue, is_tx);
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
        self.flush_if_due(bus, queue, is_tx, path.write_back, path.write_back_delay);
    }

    /// Writes a completion that has a ring entry of its own, together with its frame, in one DMA write.
    pub fn complete_slot(
        &mut self,
        bus: &mut dyn DeviceBus,
        (queue, is_tx): (u8, bool),
        completion: Completion,
        packets: u16,
        frame: &[u8],
    ) {
        let are_wide = self.nic.features & feature::WIDE_COMPLETIONS != 0;
        let ring = ring_of(&mut self.tx, &mut self.rx, queue, is_tx);
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
        let note = Note::new(kind, ring.life, self.number, queue).with(packets, ring.reported);
        let length = self.scratch.len() as u32;
        self.handle.add(self.number, counter::WRITE_BACKS, 1);
        self.handle.add(self.number, counter::WRITTEN_BACK, (self.scratch.len() - frame.len()) as u64);
        bus.write(request(self.number, end - u64::from(length), length, note), &self.scratch);
    }

    fn flush_if_due(
        &mut self,
        bus: &mut dyn DeviceBus,
        queue: u8,
        is_tx: bool,
        part_batch: u16,
        part_delay: units::Duration,
    ) {
        let ring = ring_of(&mut self.tx, &mut self.rx, queue, is_tx);
        if ring.waiting_packets == 0 {
            return;
        }
        let batch = ring.batch(part_batch);
        let waiting = match ring.setup.mode() {
            CompletionMode::InPlace => ring.waiting.len() as u16,
            _ => ring.waiting_packets,
        };
        if waiting >= batch || ring.delay(part_delay).is_zero() {
            self.flush(bus, queue, is_tx);
        } else if let Some(at) = ring.set_flush(bus.now(), part_delay) {
            let kind = if is_tx { Kind::TxFlush } else { Kind::RxFlush };
            bus.wake_at(at, Note::new(kind, ring.life, self.number, queue).token());
        }
    }

    /// Timer: completions have waited long enough.
    pub fn flush_due(&mut self, bus: &mut dyn DeviceBus, note: Note, is_tx: bool) {
        let ring = self.ring(note.queue, is_tx);
        if ring.life == note.life {
            ring.flush_set = false;
            self.flush(bus, note.queue, is_tx);
        }
    }

    /// Writes all pending completions of a queue.
    pub fn flush(&mut self, bus: &mut dyn DeviceBus, queue: u8, is_tx: bool) {
        let ring = ring_of(&mut self.tx, &mut self.rx, queue, is_tx);
        let packets = std::mem::take(&mut ring.waiting_packets);
        if !ring.running || packets == 0 {
            return;
        }
        let kind = if is_tx { Kind::TxCompletion } else { Kind::RxCompletion };
        let note = Note::new(kind, ring.life, self.number, queue);
        let log2 = ring.setup.log2;
        let (mask, entries) = (ring.entries() - 1, ring.waiting.len());
        match ring.setup.mode() {
            CompletionMode::Register => {
                let visible = ring.reported;
                self.completed(bus, queue, is_tx, (packets, visible));
            }
            CompletionMode::Word => {
                let note = note.with(packets, ring.reported);
                let written = request(self.number, ring.setup.completions, 4, note);
                let head = u32::from(ring.done).to_le_bytes();
                ring.waiting.clear();
                self.handle.add(self.number, counter::WRITE_BACKS, 1);
                self.handle.add(self.number, counter::WRITTEN_BACK, head.len() as u64);
                bus.write(written, &head);
            }
            mode => {
                let base =
                    if mode == CompletionMode::Ring { ring.setup.completions } else { ring.setup.ring };
                let mut begin = 0;
                while begin < entries {
                    // A write must not wrap around the end of the ring.
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
                    // Only the last write counts the packets.
                    let packets = if begin == entries { packets } else { 0 };
                    let visible = ring.reported;
                    let address = base.wrapping_add(u64::from(index) * LEN as u64);
                    let written =
                        request(self.number, address, self.scratch.len() as u32, note.with(packets, visible));
                    self.handle.add(self.number, counter::WRITE_BACKS, 1);
                    self.handle.add(self.number, counter::WRITTEN_BACK, self.scratch.len() as u64);
                    bus.write(written, &self.scratch);
                }
                ring.waiting.clear();
            }
        }
    }

    /// A completion write has left, so the driver can see it before any interrupt that follows.
    pub fn completion_written(&mut self, bus: &mut dyn DeviceBus, note: Note, is_tx: bool) {
        let ring = self.ring(note.queue, is_tx);
        if ring.life == note.life && note.first > 0 {
            self.completed(bus, note.queue, is_tx, (note.first, note.second));
        }
    }
}
