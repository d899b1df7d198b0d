//! A cable: two directions with a rate and a propagation delay.

use engine::{Busy, Epoch, Scheduler, Seed, Trace};
use units::{BitRate, Bytes, Duration, Time};
use wire::ethernet::BETWEEN_FRAMES;
use wire::pcap::Direction;

use super::capture::CaptureTap;
use super::event::{CableEnd, EthernetEvent, Plug};
use super::faults::{Fate, FaultParams, Faults};
use super::frames::FramePool;
use crate::event::Event;

/// Inter-frame gap in bytes, during which the wire carries nothing.
const GAP: usize = 12;

/// What a cable between two Ethernet ports is like, in both directions.
#[derive(Clone, Debug)]
pub struct CableParams {
    /// Rate of the ports at its ends.
    pub rate: BitRate,
    /// One-way delay: about 5 ns per metre, plus the transceivers.
    pub propagation: Duration,
    /// Injected faults.
    pub faults: Option<FaultParams>,
}

/// What has passed in one direction, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CableCounters {
    /// Frames sent.
    pub frames: u64,
    /// Their bytes, including the check sequence.
    pub bytes: u64,
    /// Frames that have arrived, whole or corrupted.
    pub arrived: u64,
    /// Frames in flight when the cable was cut.
    pub cut: u64,
    /// Frames lost.
    pub lost: u64,
    /// Frames that arrived corrupted.
    pub corrupted: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames delayed, so that later ones could pass.
    pub delayed: u64,
}

/// A frame that has passed a cable, as traces show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedFrame {
    /// Sending end.
    pub from: CableEnd,
    /// When the first bit of its preamble left.
    pub at: Time,
    /// When its last bit left.
    pub until: Time,
    /// The frame with its check sequence.
    pub bytes: Box<[u8]>,
}

#[derive(Default)]
struct SendingEnd {
    /// When the next frame can start.
    free: Time,
    /// Time of frames with preambles and gaps.
    busy: Busy,
    faults: Option<Faults>,
    counters: CableCounters,
}

/// A cable between two ports.
pub struct Cable {
    pub params: CableParams,
    pub ends: [Plug; 2],
    pub taps: [Option<CaptureTap>; 2],
    pub trace: Trace<PassedFrame>,
    pub is_up: bool,
    /// Counts changes of `is_up`.
    pub epoch: Epoch,
    /// Picoseconds per byte, if an integer, as for all standard rates.
    ps_per_byte: Option<u64>,
    /// By sending end.
    ways: [SendingEnd; 2],
}

impl Cable {
    pub fn new(ends: [Plug; 2], params: CableParams) -> Self {
        let bits = params.rate.bits_per_s();
        let way = |end: u8| SendingEnd {
            faults: params.faults.as_ref().map(|f| Faults::new(f, end)),
            ..SendingEnd::default()
        };
        Self {
            ends,
            taps: [None, None],
            trace: Trace::off(),
            is_up: true,
            epoch: Epoch::default(),
            ps_per_byte: (8_000_000_000_000 % bits == 0).then_some(8_000_000_000_000 / bits),
            ways: [way(0), way(1)],
            params,
        }
    }

    pub fn counters(&self, end: u8) -> &CableCounters {
        &self.ways[usize::from(end)].counters
    }

    /// A frame from one end has arrived, or was in flight when the cable was cut.
    pub fn count_end(&mut self, end: u8, has_arrived: bool) {
        let counters = &mut self.ways[usize::from(end)].counters;
        if has_arrived { counters.arrived += 1 } else { counters.cut += 1 }
    }

    /// How long the wire from one end was busy up to `now`.
    pub fn busy(&self, end: u8, now: Time) -> Duration {
        self.ways[usize::from(end)].busy.until(now)
    }

    /// Sets the bit error rate; `seed` is used unless other faults are injected already.
    pub fn set_bit_error_rate(&mut self, rate: f64, seed: Seed) {
        for (end, way) in (0u8..).zip(&mut self.ways) {
            let faults = way.faults.get_or_insert_with(|| Faults::new(&FaultParams::none(seed), end));
            faults.set_bit_error_rate(rate);
        }
    }

    fn time_for(&self, bytes: usize) -> Duration {
        match self.ps_per_byte {
            Some(ps) => Duration::from_ps(ps * bytes as u64),
            None => self.params.rate.time_for(Bytes::new(bytes as u64)),
        }
    }

    /// Sends a frame from one end.
    pub fn send(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        frames: &mut FramePool,
        from: CableEnd,
        ready: Time,
        bytes: &[u8],
    ) -> Option<Time> {
        if !self.is_up {
            return None;
        }
        let busy = self.time_for(bytes.len() + BETWEEN_FRAMES);
        let gap = self.time_for(GAP);
        let way = &mut self.ways[usize::from(from.end)];
        way.free = way.free.max(ready).max(scheduler.now()) + busy;
        way.busy.add(scheduler.now(), busy);
        let left = way.free - gap;
        way.counters.frames += 1;
        way.counters.bytes += bytes.len() as u64;
        if let Some(tap) = &self.taps[usize::from(from.end)] {
            tap.record(scheduler.now(), left, Direction::Out, bytes);
        }
        self.trace.record(|| PassedFrame { from, at: left + gap - busy, until: left, bytes: bytes.into() });
        let to = from.other();
        let latency = match self.ends[usize::from(to.end)] {
            Plug::Device(_, _, latency) => latency,
            Plug::Switch(..) => Duration::ZERO,
        };
        let mut arrival = left + self.params.propagation + latency;
        let frame = frames.put(bytes, self.epoch);
        let arrive = |frame| Event::Ethernet(EthernetEvent::Arrive { at: to, frame });
        if let Some(faults) = &mut way.faults {
            match faults.next(bytes.len()) {
                Fate::Arrive => {}
                Fate::Lost => {
                    way.counters.lost += 1;
                    let (bytes, _) = frames.take(frame);
                    frames.recycle(bytes);
                    return Some(left);
                }
                Fate::Corrupted => {
                    way.counters.corrupted += 1;
                    faults.damage(frames.bytes_mut(frame));
                }
                Fate::Duplicated => {
                    way.counters.duplicated += 1;
                    let copy = frames.put(bytes, self.epoch);
                    scheduler.at(arrival + busy, arrive(copy));
                }
                Fate::Delayed(by) => {
                    way.counters.delayed += 1;
                    arrival += by;
                }
            }
        }
        scheduler.at(arrival, arrive(frame));
        Some(left)
    }
}
