//! Interrupts: which vector, when, and for how many packets.

use platform::device::{DeviceBus, FunctionIndex};
use units::{Duration, Time};
use wire::nic::registers::{NO_VECTOR, counter, event, vector};

use super::NicFunction;
use crate::nic::token::{Kind, Note};

/// With adaptive coalescing: an interrupt for so few packets halves the delay, one for so many doubles it. The shape
/// of ixgbe's and DIM's latency classes.
const FEW_PACKETS: u32 = 4;
const MANY_PACKETS: u32 = 32;
/// Adaptive coalescing does not go below this share of the delay that the driver set.
const LEAST_SHARE: u64 = 16;

/// Coalescing of a vector.
#[derive(Clone, Copy, Debug, Default)]
struct Vector {
    delay: Duration,
    packets: u32,
    adaptive: bool,
    /// What the device makes of the delay by the load.
    current: Duration,
    /// Packets that nobody has been told of.
    pending: u32,
    /// When the timer goes off that will tell.
    due: Option<Time>,
}

impl Vector {
    /// It has told of what was pending: adapts to how much that was.
    fn fired(&mut self) {
        if self.adaptive {
            let (least, most) = (self.delay.as_ps() / LEAST_SHARE, self.delay.as_ps());
            let next = match self.pending {
                ..=FEW_PACKETS => self.current.as_ps() / 2,
                MANY_PACKETS.. => self.current.as_ps() * 2,
                _ => self.current.as_ps(),
            };
            self.current = Duration::from_ps(next.clamp(least, most));
        }
        self.pending = 0;
        self.due = None;
    }
}

/// A function's vectors, and the events that are no packets.
pub struct Interrupts {
    vectors: Vec<Vector>,
    events: u32,
    /// By which events are told.
    pub event_vector: u32,
}

impl Interrupts {
    pub fn new(vectors: u16) -> Self {
        let vectors = vec![Vector::default(); usize::from(vectors)];
        Self { vectors, events: 0, event_vector: NO_VECTOR }
    }

    /// How many vectors there are.
    pub fn vectors(&self) -> usize {
        self.vectors.len()
    }

    /// A register of a vector.
    pub fn register(&self, number: usize, register: u64) -> u32 {
        let vector = &self.vectors[number];
        match register {
            vector::DELAY_NS => (vector.delay.as_ps() / 1000) as u32,
            vector::PACKETS => vector.packets,
            vector::ADAPTIVE => vector.adaptive.into(),
            _ => 0,
        }
    }

    pub fn set_register(&mut self, number: usize, register: u64, value: u32) {
        let vector = &mut self.vectors[number];
        match register {
            vector::DELAY_NS => {
                vector.delay = Duration::from_ns(value.into());
                vector.current = vector.delay;
            }
            vector::PACKETS => vector.packets = value,
            vector::ADAPTIVE => vector.adaptive = value & 1 != 0,
            _ => {}
        }
    }
}

impl NicFunction {
    /// A driver can see `packets` more completions of a queue, up to `visible`.
    pub(super) fn completed(
        &mut self,
        bus: &mut dyn DeviceBus,
        queue: u8,
        is_tx: bool,
        (packets, visible): (u16, u16),
    ) {
        let ring = self.ring(queue, is_tx);
        ring.visible = visible;
        let (vector, armed) = (ring.setup.vector, ring.armed || ring.setup.is_always_armed());
        if self.handle.has_spurious_interrupt() {
            self.raise(bus, vector);
        }
        if armed {
            self.tell(bus, vector, packets.max(1).into());
        }
    }

    /// The driver has seen `seen` completions of a queue and wants to be told of more.
    pub fn arm(&mut self, bus: &mut dyn DeviceBus, queue: u8, is_tx: bool, seen: u16) {
        let ring = self.ring(queue, is_tx);
        ring.armed = true;
        let (unseen, vector) = (ring.visible.wrapping_sub(seen), ring.setup.vector);
        // More than half the range is a driver that is ahead of the device: nothing is unseen.
        if ring.running && (1..1 << 15).contains(&unseen) {
            self.tell(bus, vector, unseen.into());
        }
    }

    /// Counts packets towards a vector's interrupt.
    fn tell(&mut self, bus: &mut dyn DeviceBus, number: u32, packets: u32) {
        let Some(vector) = self.interrupts.vectors.get_mut(number as usize) else { return };
        vector.pending += packets;
        if vector.current.is_zero() || (vector.packets > 0 && vector.pending >= vector.packets) {
            self.fire(bus, number);
        } else if vector.due.is_none() {
            let due = bus.now() + vector.current;
            vector.due = Some(due);
            let note = Note::new(Kind::Vector, 0, self.number, 0).with(number as u16, 0);
            bus.wake_at(due, note.token());
        }
    }

    /// A vector's timer went off.
    pub fn vector_due(&mut self, bus: &mut dyn DeviceBus, number: u32) {
        let Some(vector) = self.interrupts.vectors.get_mut(number as usize) else { return };
        // Otherwise it has fired since, for packets; what the timer was set for has been told.
        if vector.due.is_some_and(|due| due <= bus.now()) {
            vector.due = None;
            if vector.pending > 0 {
                self.fire(bus, number);
            }
        }
    }

    fn fire(&mut self, bus: &mut dyn DeviceBus, number: u32) {
        self.interrupts.vectors[number as usize].fired();
        for ring in self.rings_of(number) {
            ring.armed = false;
        }
        if self.handle.loses_interrupt() {
            return;
        }
        self.raise(bus, number);
    }

    pub fn raise(&mut self, bus: &mut dyn DeviceBus, vector: u32) {
        self.interrupt(bus, vector, event::QUEUES);
    }

    /// Something happened that is no packet.
    pub fn event(&mut self, bus: &mut dyn DeviceBus, event: u32) {
        self.interrupts.events |= event;
        self.interrupt(bus, self.interrupts.event_vector, event);
    }

    /// Events since this was asked last.
    pub fn take_events(&mut self, bus: &mut dyn DeviceBus) -> u32 {
        let events = std::mem::take(&mut self.interrupts.events);
        self.drive_line(bus);
        events
    }

    /// Interrupts by message, or by the line for the sake of an event.
    fn interrupt(&mut self, bus: &mut dyn DeviceBus, vector: u32, event: u32) {
        if (vector as usize) >= self.interrupts.vectors.len() {
            return;
        }
        self.count(counter::INTERRUPTS, 1);
        if self.hears_line(bus) {
            self.interrupts.events |= event;
            self.drive_line(bus);
        } else {
            bus.interrupt(FunctionIndex(self.number), vector as u16);
        }
    }

    /// Whether the driver waits for the legacy interrupt.
    fn hears_line(&self, bus: &dyn DeviceBus) -> bool {
        self.interrupts.event_vector != NO_VECTOR
            && bus.config(FunctionIndex(self.number)).interrupts_by_line()
    }

    /// The legacy interrupt is due as long as there are events that the driver has not read.
    pub fn drive_line(&self, bus: &mut dyn DeviceBus) {
        let is_due = self.interrupts.events != 0 && self.hears_line(bus);
        bus.set_interrupt_status(FunctionIndex(self.number), is_due);
    }
}
