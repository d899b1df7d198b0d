//! The multiplexer in front of a port (kPIO+WC, Figure 2): frames that DMA brought and frames that came by programmed
//! I/O take turns, one each. Those of different kPIO queues leave in the order in which they became whole, so that a
//! flow whose sender moves to another core, and so to another queue, stays in order.
//!
//! It is in the way only while a function of the port has a kPIO queue that runs, or with flow control: a pause stops what has not
//! been handed on. Then a frame is handed to the wire
//! when the one before it has left, and completions of DMA wait until their frame has been handed on.

use std::collections::VecDeque;

use units::{Duration, Time};

use super::function::Sent;

/// What DMA has for the wire, in order.
pub enum FromDma {
    /// A frame, check sequence included, and the bytes of packet memory that it holds.
    Frame { function: u8, bytes: Vec<u8>, held: u32 },
    /// All frames of a packet are before this.
    Sent(Sent),
}

/// What a multiplexer lets go.
pub enum Turn {
    Dma(FromDma),
    /// The oldest frame of a kPIO queue.
    Kpio {
        function: u8,
        queue: u8,
    },
    /// Nothing: it has to be looked at again then.
    Wake(Time),
}

/// A port's multiplexer.
#[derive(Default)]
pub struct Mux {
    dma: VecDeque<FromDma>,
    /// Frames in kPIO queues, by queue.
    kpio: VecDeque<(u8, u8)>,
    kpio_was_last: bool,
    /// kPIO queues that run.
    queues: usize,
    /// When the wire takes the next frame.
    free: Time,
    /// Until when the other end of the cable wants no frame.
    paused: Time,
    wake: Option<Time>,
}

impl Mux {
    /// Whether frames go through it for the sake of those by programmed I/O.
    pub fn is_needed(&self) -> bool {
        self.queues > 0 || !self.dma.is_empty()
    }

    /// So many kPIO queues run at the port.
    pub fn set_queues(&mut self, queues: usize) {
        self.queues = queues;
    }

    /// When the wire takes the next frame.
    pub fn free(&self) -> Time {
        self.free
    }

    /// The other end of the cable wants no frame until then.
    pub fn pause(&mut self, until: Time) {
        (self.paused, self.wake) = (until, None);
    }

    /// The time has come for which it asked.
    pub fn woken(&mut self) {
        self.wake = None;
    }

    /// Something from DMA waits for its turn.
    pub fn list_dma(&mut self, what: FromDma) {
        self.dma.push_back(what);
    }

    /// A frame in a kPIO queue is whole.
    pub fn list_kpio(&mut self, function: u8, queue: u8) {
        self.kpio.push_back((function, queue));
    }

    /// What can be handed on now.
    pub fn next(&mut self, now: Time) -> Option<Turn> {
        if let Some(FromDma::Sent(_)) = self.dma.front() {
            return self.dma.pop_front().map(Turn::Dma);
        }
        if self.dma.is_empty() && self.kpio.is_empty() {
            return None;
        }
        let at = self.free.max(self.paused);
        if at > now {
            let is_set = self.wake.is_some_and(|set| set <= at && set > now);
            return (!is_set).then(|| Turn::Wake(*self.wake.insert(at)));
        }
        self.kpio_was_last = !self.kpio.is_empty() && (self.dma.is_empty() || !self.kpio_was_last);
        if self.kpio_was_last {
            self.kpio.pop_front().map(|(function, queue)| Turn::Kpio { function, queue })
        } else {
            self.dma.pop_front().map(Turn::Dma)
        }
    }

    /// The wire has taken a frame, which will have left then. The next one is to be there when the wire is free, and takes `latency`
    /// to it.
    pub fn taken(&mut self, now: Time, left: Time, latency: Duration) {
        self.free = now + left.since(now).saturating_sub(latency);
    }
}
