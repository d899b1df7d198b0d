//! Data mover between the link and the GPU's memory: limits the rate of writes to that of the copy engines.

use engine::Busy;
use platform::mover::{DataMover, MoverBusy, Outgoing};
use units::{ByteRate, Bytes, Time};

pub(super) struct LinkMover {
    /// Unlimited if `None`.
    write_rate: Option<ByteRate>,
    /// When the next write can leave.
    free: Time,
    busy: Busy,
}

impl LinkMover {
    pub fn new(write_rate: Option<ByteRate>) -> Self {
        Self { write_rate, free: Time::ZERO, busy: Busy::default() }
    }
}

impl DataMover for LinkMover {
    fn send(&mut self, now: Time, ready: Time, tlp: &Outgoing) -> (Time, Time) {
        let Some(rate) = self.write_rate else { return (ready, ready) };
        let start = self.free.max(ready);
        let time = rate.time_for(Bytes::new(tlp.payload));
        self.busy.add(now, time);
        self.free = start + time;
        (start, self.free)
    }

    fn busy(&self, now: Time) -> MoverBusy {
        MoverBusy { transmit: self.busy.until(now), ..MoverBusy::default() }
    }

    fn reset(&mut self, now: Time) {
        self.free = Time::ZERO;
        self.busy.cancel(now);
    }
}
