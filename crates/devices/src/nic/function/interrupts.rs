//! Interrupts: vectors and coalescing.

use platform::device::{DeviceBus, FunctionIndex};
use units::{Duration, Time};
use wire::nic::EventEntry;
use wire::nic::event_entry::LEN;
use wire::nic::registers::{NO_VECTOR, counter, event, vector};

use super::NicFunction;
use crate::nic::registers::{with_high, with_low};
use crate::nic::token::{Kind, Note, request};

/// Adaptive coalescing: an interrupt for at most `FEW_PACKETS` halves the delay, one for at least `MANY_PACKETS`
/// doubles it. Modelled on the latency classes of ixgbe and DIM.
const FEW_PACKETS: u32 = 4;
const MANY_PACKETS: u32 = 32;
/// Adaptive coalescing never goes below this fraction of the delay that the driver set.
const LEAST_SHARE: u64 = 16;

/// The upper half of [`vector::EVENTS`].
const EVENTS_HIGH: u64 = vector::EVENTS + 4;
/// Indices of entries have 16 bits, and a full queue must differ from an empty one.
const MOST_EVENTS_LOG2: u8 = 15;

/// A vector's event queue.
#[derive(Clone, Copy, Debug, Default)]
struct Events {
    ring: u64,
    /// 0 for none.
    log2: u8,
    written: u16,
    read: u16,
}

impl Events {
    /// The address of the next entry and its bytes, if there is room.
    fn next(&mut self, entry: EventEntry) -> Option<(u64, [u8; LEN])> {
        let number = self.written;
        if self.log2 == 0 || number.wrapping_sub(self.read) >= 1 << self.log2 {
            return None;
        }
        self.written = number.wrapping_add(1);
        let index = u64::from(number) & ((1 << self.log2) - 1);
        Some((self.ring.wrapping_add(index * LEN as u64), entry.emit(number, self.log2)))
    }
}

/// Coalescing state of a vector, and its event queue.
#[derive(Clone, Copy, Debug, Default)]
struct Vector {
    delay: Duration,
    packets: u32,
    adaptive: bool,
    /// Current delay, adapted to the load.
    current: Duration,
    /// Packets not yet signalled to the driver.
    pending: u32,
    /// When the coalescing timer expires, if it runs.
    due: Option<Time>,
    events: Events,
}

impl Vector {
    /// An interrupt was sent: adapts the delay to the number of packets that it signalled.
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

/// A function's interrupt vectors, and its events other than packets.
pub struct Interrupts {
    vectors: Vec<Vector>,
    /// Whether vectors can have event queues.
    have_events: bool,
    events: u32,
    /// The vector for events.
    pub event_vector: u32,
}

impl Interrupts {
    pub fn new(vectors: u16, have_events: bool) -> Self {
        let vectors = vec![Vector::default(); usize::from(vectors)];
        Self { vectors, have_events, events: 0, event_vector: NO_VECTOR }
    }

    /// How many vectors there are.
    pub fn vectors(&self) -> usize {
        self.vectors.len()
    }

    /// Reads a vector's register.
    pub fn register(&self, number: usize, register: u64) -> u32 {
        let vector = &self.vectors[number];
        match register {
            vector::DELAY_NS => (vector.delay.as_ps() / 1000) as u32,
            vector::PACKETS => vector.packets,
            vector::ADAPTIVE => vector.adaptive.into(),
            vector::EVENTS_SIZE => vector.events.log2.into(),
            vector::EVENTS => vector.events.ring as u32,
            EVENTS_HIGH => (vector.events.ring >> 32) as u32,
            vector::EVENTS_READ => vector.events.read.into(),
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
            vector::EVENTS_SIZE if self.have_events => {
                let log2 = (value as u8).min(MOST_EVENTS_LOG2);
                vector.events = Events { ring: vector.events.ring, log2, ..Events::default() };
            }
            vector::EVENTS => vector.events.ring = with_low(vector.events.ring, value),
            EVENTS_HIGH => vector.events.ring = with_high(vector.events.ring, value),
            vector::EVENTS_READ => vector.events.read = value as u16,
            _ => {}
        }
    }
}

impl NicFunction {
    /// `packets` more completions of a queue are visible to the driver, up to index `visible`.
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

    /// The driver has processed completions up to `seen` and asks to be interrupted for more.
    pub fn arm(&mut self, bus: &mut dyn DeviceBus, queue: u8, is_tx: bool, seen: u16) {
        let ring = self.ring(queue, is_tx);
        ring.armed = true;
        let (unseen, vector) = (ring.visible.wrapping_sub(seen), ring.setup.vector);
        // A difference of more than half the range means that the driver is ahead of the device: nothing is unseen.
        if ring.running && (1..1 << 15).contains(&unseen) {
            self.tell(bus, vector, unseen.into());
        }
    }

    /// Counts packets towards a vector's next interrupt.
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

    /// A vector's timer expired.
    pub fn vector_due(&mut self, bus: &mut dyn DeviceBus, number: u32) {
        let Some(vector) = self.interrupts.vectors.get_mut(number as usize) else { return };
        // Otherwise the vector has fired since because of its packet count, which covered what the timer was set for.
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

    /// Signals an event other than a packet.
    pub fn event(&mut self, bus: &mut dyn DeviceBus, event: u32) {
        self.interrupts.events |= event;
        self.interrupt(bus, self.interrupts.event_vector, event);
    }

    /// Returns and clears the events since the last call.
    pub fn take_events(&mut self, bus: &mut dyn DeviceBus) -> u32 {
        let events = std::mem::take(&mut self.interrupts.events);
        self.drive_line(bus);
        events
    }

    /// Sends a message, or drives the legacy line for an event.
    fn interrupt(&mut self, bus: &mut dyn DeviceBus, vector: u32, event: u32) {
        let hears_line = self.hears_line(bus);
        let Some(Vector { events, .. }) = self.interrupts.vectors.get_mut(vector as usize) else { return };
        let vector = vector as u16;
        if hears_line {
            self.interrupts.events |= event;
            self.drive_line(bus);
        } else if let Some((address, entry)) = events.next(EventEntry { vector }) {
            let note = Note::new(Kind::Event, 0, self.number, 0).with(vector, 0);
            bus.write(request(self.number, address, entry.len() as u32, note), &entry);
        } else {
            bus.interrupt(FunctionIndex(self.number), vector);
        }
        self.count(counter::INTERRUPTS, 1);
    }

    /// An entry of a vector's event queue has left, so the driver can see it before the message that follows.
    pub fn event_written(&self, bus: &mut dyn DeviceBus, vector: u16) {
        let events = self.interrupts.vectors.get(usize::from(vector)).map(|vector| vector.events);
        // Otherwise the function has been reset meanwhile.
        if events.is_some_and(|events| events.log2 > 0) {
            bus.interrupt(FunctionIndex(self.number), vector);
        }
    }

    /// Whether the driver has enabled the legacy interrupt.
    fn hears_line(&self, bus: &dyn DeviceBus) -> bool {
        self.interrupts.event_vector != NO_VECTOR
            && bus.config(FunctionIndex(self.number)).interrupts_by_line()
    }

    /// Drives the legacy interrupt, which stays asserted while there are events that the driver has not read.
    pub fn drive_line(&self, bus: &mut dyn DeviceBus) {
        let is_due = self.interrupts.events != 0 && self.hears_line(bus);
        bus.set_interrupt_status(FunctionIndex(self.number), is_due);
    }
}
