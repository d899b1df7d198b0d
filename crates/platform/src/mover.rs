//! How DMA data moves between a device's PCIe core and its internal memory.
//!
//! Devices differ: one moves data over a bus into chunked memory, another hands it over directly. The PCIe core
//! handles requests, tags and TLPs, and asks the device's [`DataMover`] when data has passed the inside of the
//! device.

use units::{Duration, Time};

use crate::device::Dma;

/// A mover's state of a read in progress, stored with the read by the PCIe core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// When the data received so far is in place.
    pub in_place: Time,
    /// Pieces received so far.
    pub pieces: u32,
    /// Completions received so far.
    pub completions: u32,
}

/// A complete completion TLP of a read.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When its first byte arrived.
    pub began: Time,
    /// Bytes on the wire, including header and framing.
    pub wire_bytes: u64,
    /// Picoseconds per byte.
    pub ps_per_byte: f64,
    /// Whether it is the first of its request.
    pub first: bool,
    /// Offset of its data within the read (bytes).
    pub offset: u64,
    /// Bytes of data.
    pub bytes: u64,
}

/// A request of a read with all completions received.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Offset of its data within the read (bytes).
    pub offset: u32,
    /// Bytes requested.
    pub length: u32,
    /// Bytes of its largest completion.
    pub largest: u32,
}

/// When the last completion of a request has been processed.
#[derive(Clone, Copy, Debug)]
pub struct Processed {
    /// When it has left the receive buffer.
    pub drained: Time,
    /// When the request's tag is free.
    pub tag_free: Time,
    /// When the device learns that the read is complete, if this was the last request.
    pub known: Time,
}

/// A posted TLP to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Whether its header has four doublewords.
    pub is_long: bool,
    /// Bytes of payload.
    pub payload: u64,
    /// Max payload size of the link (bytes).
    pub max_payload: u64,
    /// Whether it is the first of its request.
    pub first: bool,
    /// Whether it is the last of its request.
    pub last: bool,
}

/// Busy time of a device's internal DMA stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoverBusy {
    /// Draining completions from the receive buffer.
    pub drain: Duration,
    /// Moving data between PCIe core and device memory.
    pub bus: Duration,
    /// Reading device memory.
    pub memory_read: Duration,
    /// Writing device memory.
    pub memory_written: Duration,
    /// Sending posted requests.
    pub transmit: Duration,
}

/// Model of a port's internal DMA data path. Requests are identified by the device's token. The PCIe core calls in
/// order of time, once per step of a request. Steps that a device does not have take no time.
pub trait DataMover {
    /// From a request's arrival at the device's engine until its first TLP can be sent.
    fn start_latency(&self, _dma: &Dma) -> Duration {
        Duration::ZERO
    }

    /// A completion of a read has arrived at `now`. Returns when it has left the receive buffer.
    fn completion(&mut self, now: Time, _dma: &Dma, read: &mut Progress, _arrival: &Arrival) -> Time {
        read.in_place = now;
        now
    }

    /// All completions of a request have arrived, the last one at `now`, and left the receive buffer at `drained`.
    /// Returns when its tag is free, and when the device learns that the read is complete if this was the last request.
    fn answered(
        &mut self,
        now: Time,
        _dma: &Dma,
        _read: &Progress,
        _request: &Answered,
        drained: Time,
    ) -> (Time, Time) {
        (drained, now)
    }

    /// The last completion of a request has arrived. One dynamic call asks what two would; movers implement those two.
    fn last_completion(
        &mut self,
        now: Time,
        dma: &Dma,
        read: &mut Progress,
        arrival: &Arrival,
        request: &Answered,
    ) -> Processed {
        let drained = self.completion(now, dma, read, arrival);
        let (tag_free, known) = self.answered(now, dma, read, request, drained);
        Processed { drained, tag_free, known }
    }

    /// When the data of a write that starts at `now` has been fetched.
    fn fetch(&mut self, now: Time, _dma: &Dma) -> Time {
        now
    }

    /// When a posted TLP, asked for at `now` and `ready` then or later, leaves, and when the next one can.
    fn send(&mut self, _now: Time, ready: Time, _tlp: &Outgoing) -> (Time, Time) {
        (ready, ready)
    }

    /// When the device learns that a write, started at `now`, has left at `gone`.
    fn write_known(&self, _now: Time, _dma: &Dma, gone: Time) -> Time {
        gone
    }

    /// Busy time of the stages up to `now`.
    fn busy(&self, _now: Time) -> MoverBusy {
        MoverBusy::default()
    }

    /// Drops requests in flight at `now`; busy times until then are kept.
    fn reset(&mut self, _now: Time) {}
}

/// Passes data between link and device without delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct {
    /// From the arrival of a read's data until the device uses it.
    pub read_use: Duration,
}

impl DataMover for Direct {
    fn answered(&mut self, now: Time, _: &Dma, _: &Progress, _: &Answered, drained: Time) -> (Time, Time) {
        (drained, now + self.read_use)
    }
}
