//! The multiplexer in front of a port (kPIO+WC, Figure 2): frames from DMA and frames from programmed I/O alternate one
//! by one. Frames of different kPIO queues leave in the order in which they became complete, so a flow stays in order
//! when its sender moves to another core and hence to another queue.
//!
//! It is used only while a function of the port has a running kPIO queue, or with flow control, as a pause stops all
//! frames not yet handed to the wire. Then a frame is handed to the wire when the one before it has left, and DMA
//! completions wait until their frame has been handed over.

use std::collections::VecDeque;

use units::{Duration, Time};

use super::function::Sent;

/// What DMA has queued for the wire, in order.
pub enum FromDma {
    /// A frame with check sequence, and the bytes of packet memory that it occupies.
    Frame { function: u8, bytes: Vec<u8>, held: u32 },
    /// Completion of a packet, queued behind all its frames.
    Sent(Sent),
}

/// What the multiplexer hands out next.
pub enum Turn {
    Dma(FromDma),
    /// The oldest frame of a kPIO queue.
    Kpio {
        function: u8,
        queue: u8,
    },
    /// Nothing until this time; then it has to be asked again.
    Wake(Time),
}

/// Multiplexer of a port.
#[derive(Default)]
pub struct Mux {
    dma: VecDeque<FromDma>,
    /// Complete frames in kPIO queues, as (function, queue).
    kpio: VecDeque<(u8, u8)>,
    kpio_was_last: bool,
    /// Number of running kPIO queues.
    queues: usize,
    /// When the wire can take the next frame.
    free: Time,
    /// The link partner's pause lasts until then.
    paused: Time,
    wake: Option<Time>,
}

impl Mux {
    /// Whether frames have to pass through the multiplexer because of programmed I/O.
    pub fn is_needed(&self) -> bool {
        self.queues > 0 || !self.dma.is_empty()
    }

    /// Sets the number of running kPIO queues at the port.
    pub fn set_queues(&mut self, queues: usize) {
        self.queues = queues;
    }

    /// When the wire can take the next frame.
    pub fn free(&self) -> Time {
        self.free
    }

    /// The link partner requested a pause until then.
    pub fn pause(&mut self, until: Time) {
        (self.paused, self.wake) = (until, None);
    }

    /// The requested wake-up has arrived.
    pub fn woken(&mut self) {
        self.wake = None;
    }

    /// Queues a frame or completion from DMA.
    pub fn list_dma(&mut self, what: FromDma) {
        self.dma.push_back(what);
    }

    /// Queues a complete frame of a kPIO queue.
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

    /// The wire has taken a frame, which will have left at `left`. The next one should arrive just as the wire becomes
    /// free, `latency` after it is handed over.
    pub fn taken(&mut self, now: Time, left: Time, latency: Duration) {
        self.free = now + left.since(now).saturating_sub(latency);
    }
}
