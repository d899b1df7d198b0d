//! How DMA's data gets from a device's PCIe core to where the device keeps it, and back.
//!
//! Each device has its own way: a card moves it over a bus into chunked memory, another hands it straight to who asked. The
//! core knows requests, tags and TLPs; when data has passed the inside of the device it asks the device's [`DataMover`].

use units::{Duration, Time};

use crate::device::Dma;

/// What a mover notes about one read between its completions; the core keeps it with the read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// When what has come is in place.
    pub in_place: Time,
    /// Pieces that it came in so far.
    pub pieces: u32,
    /// Completions that it came in so far.
    pub completions: u32,
}

/// A completion of a read that has arrived as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When its first byte came.
    pub began: Time,
    /// Bytes that it took on the wire, header and framing included.
    pub wire_bytes: u64,
    /// Picoseconds that each of them took.
    pub ps_per_byte: f64,
    /// Whether it is the first of its request.
    pub first: bool,
    /// Place of its data in the read's data, in bytes.
    pub offset: u64,
    /// Bytes of data.
    pub bytes: u64,
}

/// A request of a read of which all completions have come.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Place of its data in the read's data, in bytes.
    pub offset: u32,
    /// Bytes that it asked for.
    pub length: u32,
    /// Bytes of its largest completion.
    pub largest: u32,
}

/// A posted TLP that is to leave.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Whether its header has four doublewords.
    pub is_long: bool,
    /// Bytes of payload.
    pub payload: u64,
    /// Bytes of the largest one that the link's settings allow.
    pub max_payload: u64,
    /// Whether it is the first of its request.
    pub first: bool,
    /// Whether it is the last of its request.
    pub last: bool,
}

/// For how long the stages that DMA passes inside a device have worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoverBusy {
    /// Taking completions out of the receive buffer.
    pub drain: Duration,
    /// Moving data between the PCIe core and the device's memory.
    pub bus: Duration,
    /// Reading the device's memory.
    pub memory_read: Duration,
    /// Writing it.
    pub memory_written: Duration,
    /// Sending posted requests.
    pub transmit: Duration,
}

/// What moves the data of one port's DMA inside a device. It knows a request by the token that the device gave it.
///
/// The core asks in order of time, once for each step of a request. A step that a device does not have takes no time.
pub trait DataMover {
    /// From a request's reaching the device's engine until its first TLP can be sent.
    fn start_latency(&self, _dma: &Dma) -> Duration {
        Duration::ZERO
    }

    /// Takes a completion of a read, which has come at `now`. Returns when it has left the receive buffer.
    fn completion(&mut self, now: Time, _dma: &Dma, read: &mut Progress, _arrival: &Arrival) -> Time {
        read.in_place = now;
        now
    }

    /// All completions of a request have come and left the receive buffer at `drained`. Returns when its tag can be used again.
    fn answered(&mut self, _dma: &Dma, _read: &Progress, _request: &Answered, drained: Time) -> Time {
        drained
    }

    /// When the device knows that a read is complete, of which the last completion came at `now`.
    fn read_known(&self, now: Time, _dma: &Dma, _read: &Progress) -> Time {
        now
    }

    /// When the data of a write that is taken in hand at `now` has been fetched.
    fn fetch(&mut self, now: Time, _dma: &Dma) -> Time {
        now
    }

    /// When a posted TLP that is `ready` leaves, and when the next one can.
    fn send(&mut self, ready: Time, _tlp: &Outgoing) -> (Time, Time) {
        (ready, ready)
    }

    /// When the device knows that a write has left which was taken in hand at `now` and is `gone` then.
    fn write_known(&self, _now: Time, _dma: &Dma, gone: Time) -> Time {
        gone
    }

    /// How long its stages have worked so far.
    fn busy(&self) -> MoverBusy {
        MoverBusy::default()
    }

    /// Forgets what is under way; how long it has worked stays.
    fn reset(&mut self) {}
}

/// Hands data straight between link and device, in no time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct {
    /// From a read's data being there until the device uses it.
    pub read_use: Duration,
}

impl DataMover for Direct {
    fn read_known(&self, now: Time, _: &Dma, _: &Progress) -> Time {
        now + self.read_use
    }
}
