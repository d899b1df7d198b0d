//! Interrupts: which vector, when, and for how many packets.

use platform::device::{DeviceBus, FunctionIndex};
use units::Duration;
use wire::nic::registers::counter;

use super::Nic;
use super::token::{Kind, Note};

/// With adaptive coalescing: an interrupt for so few packets halves the delay, one for so many doubles it. The shape
/// of ixgbe's and DIM's latency classes.
const FEW_PACKETS: u32 = 4;
const MANY_PACKETS: u32 = 32;
/// Adaptive coalescing does not go below this share of the delay that the driver set.
const LEAST_SHARE: u64 = 16;

impl Nic {
    /// A driver can see `packets` more completions of a queue, up to `visible`.
    pub(super) fn completed(
        &mut self,
        bus: &mut dyn DeviceBus,
        function: u8,
        queue: u8,
        is_tx: bool,
        (packets, visible): (u16, u16),
    ) {
        let ring = self.functions[usize::from(function)].ring(queue, is_tx);
        ring.visible = visible;
        let (vector, armed) = (ring.setup.vector, ring.armed || ring.setup.is_always_armed());
        if self.handle.has_spurious_interrupt() {
            self.raise(bus, function, vector);
        }
        if armed {
            self.tell(bus, function, vector, packets.max(1).into());
        }
    }

    /// The driver has seen `seen` completions of a queue and wants to be told of more.
    pub(super) fn arm(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8, is_tx: bool, seen: u16) {
        let ring = self.functions[usize::from(function)].ring(queue, is_tx);
        ring.armed = true;
        let (unseen, vector) = (ring.visible.wrapping_sub(seen), ring.setup.vector);
        // More than half the range is a driver that is ahead of the device: nothing is unseen.
        if ring.running && (1..1 << 15).contains(&unseen) {
            self.tell(bus, function, vector, unseen.into());
        }
    }

    /// Counts packets towards a vector's interrupt.
    fn tell(&mut self, bus: &mut dyn DeviceBus, function: u8, number: u32, packets: u32) {
        let Some(vector) = self.functions[usize::from(function)].vectors.get_mut(number as usize) else {
            return;
        };
        vector.pending += packets;
        if vector.current.is_zero() || (vector.packets > 0 && vector.pending >= vector.packets) {
            self.fire(bus, function, number);
        } else if vector.due.is_none() {
            let due = bus.now() + vector.current;
            vector.due = Some(due);
            let note = Note::new(Kind::Vector, 0, function, 0).with(number as u16, 0);
            bus.wake_at(due, note.token());
        }
    }

    /// A vector's timer went off.
    pub(super) fn vector_due(&mut self, bus: &mut dyn DeviceBus, function: u8, number: u32) {
        let Some(vector) = self.functions[usize::from(function)].vectors.get_mut(number as usize) else {
            return;
        };
        // Otherwise it has fired since, for packets; what the timer was set for has been told.
        if vector.due.is_some_and(|due| due <= bus.now()) {
            vector.due = None;
            if vector.pending > 0 {
                self.fire(bus, function, number);
            }
        }
    }

    fn fire(&mut self, bus: &mut dyn DeviceBus, function: u8, number: u32) {
        let state = &mut self.functions[usize::from(function)];
        let vector = &mut state.vectors[number as usize];
        if vector.adaptive {
            let (least, most) = (vector.delay.as_ps() / LEAST_SHARE, vector.delay.as_ps());
            let next = match vector.pending {
                ..=FEW_PACKETS => vector.current.as_ps() / 2,
                MANY_PACKETS.. => vector.current.as_ps() * 2,
                _ => vector.current.as_ps(),
            };
            vector.current = Duration::from_ps(next.clamp(least, most));
        }
        vector.pending = 0;
        vector.due = None;
        for ring in state.rings_of(number) {
            ring.armed = false;
        }
        if self.handle.loses_interrupt() {
            return;
        }
        self.raise(bus, function, number);
    }

    pub(super) fn raise(&mut self, bus: &mut dyn DeviceBus, function: u8, vector: u32) {
        if (vector as usize) < self.functions[usize::from(function)].vectors.len() {
            self.handle.add(function, counter::INTERRUPTS, 1);
            bus.interrupt(FunctionIndex(function), vector as u16);
        }
    }

    /// Something happened that is no packet.
    pub(super) fn event(&mut self, bus: &mut dyn DeviceBus, function: u8, event: u32) {
        let state = &mut self.functions[usize::from(function)];
        state.events |= event;
        let vector = state.event_vector;
        self.raise(bus, function, vector);
    }
}
