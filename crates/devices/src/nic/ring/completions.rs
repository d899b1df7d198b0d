//! Writing of completions: in place, to a separate ring, or the head index alone; several per write.

use platform::device::DeviceBus;
use wire::nic::Completion;
use wire::nic::completion::LEN;
use wire::nic::registers::{counter, feature};

use super::setup::{CompletionMode, Setup};
use crate::nic::token::{Kind, Note, request};

/// A queue's completions: those to be written, and what the driver can see.
#[derive(Default)]
pub(super) struct Completions {
    /// Pending entries, in order, without owner bits.
    waiting: Vec<[u8; LEN]>,
    /// Index of the first of them: of descriptors (in place) or of completions (ring).
    written: u16,
    /// Packets that the pending completions end.
    packets: u16,
    /// Index up to which the last completion completes descriptors.
    reported: u16,
    /// Whether a timer is set to write them.
    is_timer_set: bool,
    /// Index up to which the driver can see completions, and whether it wants an interrupt for more.
    visible: u16,
    is_armed: bool,
    /// Reused so that completions do not allocate.
    scratch: Vec<u8>,
}

impl Completions {
    /// Index up to which the driver can see completions.
    pub const fn visible(&self) -> u16 {
        self.visible
    }

    /// Whether the driver wants an interrupt for further completions.
    pub const fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// The driver has processed completions up to `seen` and asks to be interrupted for more. Returns how many are
    /// visible already.
    pub fn arm(&mut self, seen: u16) -> u16 {
        self.is_armed = true;
        let unseen = self.visible.wrapping_sub(seen);
        // A difference of more than half the range means that the driver is ahead of the device: nothing is unseen.
        if unseen < 1 << 15 { unseen } else { 0 }
    }

    /// The driver has been interrupted.
    pub const fn disarm(&mut self) {
        self.is_armed = false;
    }

    /// Adds a completion, to be written now or together with others. It ends `packets` packets. Returns the packets that
    /// the driver can see from now on.
    pub fn add(
        &mut self,
        bus: &mut dyn DeviceBus,
        setup: &Setup,
        completion: Completion,
        packets: u16,
    ) -> Option<u16> {
        if let Some(slot) = setup.slot() {
            self.write_slot(bus, setup, slot, completion, packets, &[]);
            return None;
        }
        let mut bytes = completion.emit(false);
        if setup.handle.spoils_completion() {
            bytes[..15].fill(0xa5);
        }
        match setup.mode() {
            CompletionMode::Register => {}
            CompletionMode::Word => {
                self.waiting.clear();
                self.waiting.push(bytes);
            }
            CompletionMode::InPlace | CompletionMode::Ring => self.waiting.push(bytes),
        }
        self.packets += packets;
        self.reported = completion.count.wrapping_add(u16::from(!setup.id.is_tx));
        self.flush_if_due(bus, setup)
    }

    /// Writes a completion that has a `slot` of the ring to itself, together with its frame, in one DMA write.
    pub fn write_slot(
        &mut self,
        bus: &mut dyn DeviceBus,
        setup: &Setup,
        slot: u64,
        completion: Completion,
        packets: u16,
        frame: &[u8],
    ) {
        let handle = &setup.handle;
        let owner = Completion::owner_in_ring(self.written, setup.registers.log2) ^ handle.flips_owner();
        self.scratch.clear();
        self.scratch.extend_from_slice(frame);
        if frame.is_empty() && setup.nic.features & feature::WIDE_COMPLETIONS != 0 {
            self.scratch.resize(slot as usize - LEN, 0);
        }
        let mut bytes = completion.emit(owner);
        if handle.spoils_completion() {
            bytes[..15].fill(0xa5);
        }
        self.scratch.extend_from_slice(&bytes);
        let index = u32::from(self.written) & (setup.entries() - 1);
        let end = setup.registers.completions.wrapping_add(u64::from(index + 1) * slot);
        self.written = self.written.wrapping_add(1);
        self.reported = completion.count.wrapping_add(u16::from(!setup.id.is_tx));
        let at = end - self.scratch.len() as u64;
        let frame = frame.len();
        self.write(bus, setup, at, packets, frame);
    }

    /// Writes the bytes in `scratch`, `frame` of which are no completion, and after which `packets` more are visible.
    fn write(&self, bus: &mut dyn DeviceBus, setup: &Setup, at: u64, packets: u16, frame: usize) {
        let length = self.scratch.len();
        let note = setup.note(Kind::TxCompletion, Kind::RxCompletion).with(packets, self.reported);
        setup.count(counter::WRITE_BACKS, 1);
        setup.count(counter::WRITTEN_BACK, (length - frame) as u64);
        bus.write(request(setup.id.function, at, length as u32, note), &self.scratch);
    }

    fn flush_if_due(&mut self, bus: &mut dyn DeviceBus, setup: &Setup) -> Option<u16> {
        if self.packets == 0 {
            return None;
        }
        let waiting = match setup.mode() {
            CompletionMode::InPlace => self.waiting.len() as u16,
            _ => self.packets,
        };
        let delay = setup.delay();
        if waiting >= setup.batch() || delay.is_zero() {
            return self.flush(bus, setup);
        }
        if !self.is_timer_set {
            self.is_timer_set = true;
            bus.wake_at(bus.now() + delay, setup.note(Kind::TxFlush, Kind::RxFlush).token());
        }
        None
    }

    /// Writes all pending completions. Returns the packets that the driver can see from now on.
    pub fn flush(&mut self, bus: &mut dyn DeviceBus, setup: &Setup) -> Option<u16> {
        let packets = std::mem::take(&mut self.packets);
        if !setup.is_running || packets == 0 {
            return None;
        }
        let (base, owners) = match setup.mode() {
            CompletionMode::Register => {
                self.visible = self.reported;
                return Some(packets);
            }
            CompletionMode::Word => {
                self.waiting.clear();
                self.scratch.clear();
                self.scratch.extend_from_slice(&u32::from(self.reported).to_le_bytes());
                self.write(bus, setup, setup.registers.completions, packets, 0);
                return None;
            }
            CompletionMode::InPlace => (setup.registers.ring, false),
            CompletionMode::Ring => (setup.registers.completions, true),
        };
        let (mask, entries) = (setup.entries() - 1, self.waiting.len());
        let mut begin = 0;
        while begin < entries {
            // A write must not wrap around the end of the ring.
            let index = u32::from(self.written) & mask;
            let end = begin + (entries - begin).min((mask + 1 - index) as usize);
            self.scratch.clear();
            for entry in &self.waiting[begin..end] {
                self.scratch.extend_from_slice(entry);
                let owner = !owners || Completion::owner_in_ring(self.written, setup.registers.log2);
                if let Some(last) = self.scratch.last_mut() {
                    *last = u8::from(owner ^ setup.handle.flips_owner());
                }
                self.written = self.written.wrapping_add(1);
            }
            begin = end;
            // Only the last write counts the packets.
            let packets = if end == entries { packets } else { 0 };
            self.write(bus, setup, base.wrapping_add(u64::from(index) * LEN as u64), packets, 0);
        }
        self.waiting.clear();
        None
    }

    /// A write has left, so the driver can see its completions before any interrupt that follows, or completions have
    /// waited long enough. Returns the packets that the driver can see from now on.
    pub fn due(&mut self, bus: &mut dyn DeviceBus, setup: &Setup, note: Note) -> Option<u16> {
        if matches!(note.kind, Kind::TxFlush | Kind::RxFlush) {
            self.is_timer_set = false;
            self.flush(bus, setup)
        } else {
            self.written(note)
        }
    }

    pub fn written(&mut self, note: Note) -> Option<u16> {
        let packets = Some(note.first).filter(|&packets| packets > 0)?;
        self.visible = note.second;
        Some(packets)
    }
}
