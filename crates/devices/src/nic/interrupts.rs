//! A function's interrupts: vectors, coalescing, and events.

use platform::device::{DeviceBus, FunctionIndex};
use units::{Duration, Time};
use wire::nic::EventEntry;
use wire::nic::event_entry::LEN;
use wire::nic::registers::{NO_VECTOR, counter, event, vector};

use super::NicHandle;
use super::fields::{with_high, with_low};
use super::token::{Kind, Note, request};

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
    function: u8,
    handle: NicHandle,
    vectors: Vec<Vector>,
    /// Whether vectors can have event queues.
    have_events: bool,
    events: u32,
    /// The vector for events.
    event_vector: u32,
}

impl Interrupts {
    pub fn new(function: u8, handle: &NicHandle, vectors: u16, have_events: bool) -> Self {
        let (handle, vectors) = (handle.clone(), vec![Vector::default(); usize::from(vectors)]);
        Self { function, handle, vectors, have_events, events: 0, event_vector: NO_VECTOR }
    }

    /// The vector for events.
    pub const fn event_vector(&self) -> u32 {
        self.event_vector
    }

    pub const fn set_event_vector(&mut self, vector: u32) {
        self.event_vector = vector;
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

    /// `packets` more packets have completions that the driver can see: counts them towards a vector's next interrupt.
    /// Returns whether that was sent.
    pub fn tell(&mut self, bus: &mut dyn DeviceBus, number: u32, packets: u32) -> bool {
        let Some(vector) = self.vectors.get_mut(number as usize) else { return false };
        vector.pending += packets;
        if vector.current.is_zero() || (vector.packets > 0 && vector.pending >= vector.packets) {
            if vector.due.is_some() {
                self.handle.holds_back_no_longer(bus.now());
            }
            self.fire(bus, number);
            return true;
        }
        if vector.due.is_none() {
            let due = bus.now() + vector.current;
            vector.due = Some(due);
            self.handle.holds_back(bus.now(), due);
            let note = Note::of_function(Kind::Vector, self.function).with(number as u16, 0);
            bus.wake_at(due, note.token());
        }
        false
    }

    /// A vector's timer expired. Returns whether an interrupt was sent.
    pub fn due(&mut self, bus: &mut dyn DeviceBus, number: u32) -> bool {
        let Some(vector) = self.vectors.get_mut(number as usize) else { return false };
        // Otherwise the vector has fired since because of its packet count, which covered what the timer was set for.
        if vector.due.is_none_or(|due| due > bus.now()) {
            return false;
        }
        vector.due = None;
        let is_due = vector.pending > 0;
        if is_due {
            self.fire(bus, number);
        }
        is_due
    }

    fn fire(&mut self, bus: &mut dyn DeviceBus, number: u32) {
        self.vectors[number as usize].fired();
        if !self.handle.loses_interrupt() {
            self.raise(bus, number);
        }
    }

    /// Interrupts the driver because of a queue.
    pub fn raise(&mut self, bus: &mut dyn DeviceBus, vector: u32) {
        self.interrupt(bus, vector, event::QUEUES);
    }

    /// Signals an event other than a packet.
    pub fn event(&mut self, bus: &mut dyn DeviceBus, event: u32) {
        self.events |= event;
        self.interrupt(bus, self.event_vector, event);
    }

    /// Returns and clears the events since the last call.
    pub fn take_events(&mut self, bus: &mut dyn DeviceBus) -> u32 {
        let events = std::mem::take(&mut self.events);
        self.drive_line(bus);
        events
    }

    /// Sends a message, or drives the legacy line for an event.
    fn interrupt(&mut self, bus: &mut dyn DeviceBus, vector: u32, event: u32) {
        let hears_line = self.hears_line(bus);
        let Some(Vector { events, .. }) = self.vectors.get_mut(vector as usize) else { return };
        let vector = vector as u16;
        if hears_line {
            self.events |= event;
            self.drive_line(bus);
        } else if let Some((address, entry)) = events.next(EventEntry { vector }) {
            let note = Note::of_function(Kind::Event, self.function).with(vector, 0);
            bus.write(request(self.function, address, entry.len() as u32, note), &entry);
        } else {
            bus.interrupt(FunctionIndex(self.function), vector);
        }
        self.handle.add(self.function, counter::INTERRUPTS, 1);
    }

    /// An entry of a vector's event queue has left, so the driver can see it before the message that follows.
    pub fn event_written(&self, bus: &mut dyn DeviceBus, vector: u16) {
        let events = self.vectors.get(usize::from(vector)).map(|vector| vector.events);
        // Otherwise the function has been reset meanwhile.
        if events.is_some_and(|events| events.log2 > 0) {
            bus.interrupt(FunctionIndex(self.function), vector);
        }
    }

    /// Whether the driver has enabled the legacy interrupt.
    fn hears_line(&self, bus: &dyn DeviceBus) -> bool {
        self.event_vector != NO_VECTOR && bus.config(FunctionIndex(self.function)).interrupts_by_line()
    }

    /// Drives the legacy interrupt, which stays asserted while there are events that the driver has not read.
    pub fn drive_line(&self, bus: &mut dyn DeviceBus) {
        let is_due = self.events != 0 && self.hears_line(bus);
        bus.set_interrupt_status(FunctionIndex(self.function), is_due);
    }
}
