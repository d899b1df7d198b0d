//! What passes between the link and the GPU's memory: writes no faster than the copy engines give them.

use platform::device::Dma;
use platform::mover::{Answered, Arrival, DataMover, MoverBusy, Outgoing, Progress};
use units::{ByteRate, Bytes, Duration, Time};

pub(super) struct Mover {
    /// As fast as the link takes them if there is none.
    write_rate: Option<ByteRate>,
    /// When the next write can leave.
    free: Time,
    busy: MoverBusy,
}

impl Mover {
    pub fn new(write_rate: Option<ByteRate>) -> Self {
        Self { write_rate, free: Time::ZERO, busy: MoverBusy::default() }
    }
}

impl DataMover for Mover {
    fn start_latency(&self, _: &Dma) -> Duration {
        Duration::ZERO
    }

    fn completion(&mut self, now: Time, _: &Dma, read: &mut Progress, _: &Arrival) -> Time {
        read.in_place = now;
        now
    }

    fn answered(&mut self, _: &Dma, _: &Progress, _: &Answered, drained: Time) -> Time {
        drained
    }

    fn read_known(&self, now: Time, _: &Dma, _: &Progress) -> Time {
        now
    }

    fn fetch(&mut self, now: Time, _: &Dma) -> Time {
        now
    }

    fn send(&mut self, ready: Time, tlp: &Outgoing) -> (Time, Time) {
        let Some(rate) = self.write_rate else { return (ready, ready) };
        let start = self.free.max(ready);
        let time = rate.time_for(Bytes::new(tlp.payload));
        self.busy.transmit += time;
        self.free = start + time;
        (start, self.free)
    }

    fn write_known(&self, _: Time, _: &Dma, gone: Time) -> Time {
        gone
    }

    fn busy(&self) -> MoverBusy {
        self.busy
    }

    fn reset(&mut self) {
        self.free = Time::ZERO;
    }
}
