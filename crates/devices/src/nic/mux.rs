//! The multiplexer in front of a port (Larsen and Lee, Figure 2): frames from DMA and frames from programmed I/O alternate
//! one by one. Frames of different queues for programmed I/O leave in the order in which they became complete, so a flow
//! stays in order when its sender moves to another core and hence to another queue.
//!
//! It is used only while such a queue of the port runs, or with flow control, as a pause stops all frames not yet handed
//! to the wire. Then a frame is handed to the wire when the one before it has left, and DMA
//! completions wait until their frame has been handed over.

use std::collections::VecDeque;

use units::{Duration, Time};

use super::function::Sent;
use super::params::QueueWindow;

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
    /// The oldest frame in this window.
    Written(QueueWindow),
    /// Nothing until this time; then it has to be asked again.
    Wake(Time),
}

/// Multiplexer of a port.
#[derive(Default)]
pub struct Mux {
    dma: VecDeque<FromDma>,
    /// Complete frames from programmed I/O, by window.
    written: VecDeque<QueueWindow>,
    written_was_last: bool,
    /// When the wire can take the next frame.
    free: Time,
    /// The link partner's pause lasts until then.
    paused: Time,
    wake: Option<Time>,
}

impl Mux {
    /// Whether frames or completions from DMA wait.
    pub fn holds_dma(&self) -> bool {
        !self.dma.is_empty()
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

    /// Queues so many complete frames in a window.
    pub fn list_written(&mut self, of: QueueWindow, frames: u64) {
        self.written.extend((0..frames).map(|_| of));
    }

    /// What can be handed on now.
    pub fn next(&mut self, now: Time) -> Option<Turn> {
        if let Some(FromDma::Sent(_)) = self.dma.front() {
            return self.dma.pop_front().map(Turn::Dma);
        }
        if self.dma.is_empty() && self.written.is_empty() {
            return None;
        }
        let at = self.free.max(self.paused);
        if at > now {
            let is_set = self.wake.is_some_and(|set| set <= at && set > now);
            return (!is_set).then(|| Turn::Wake(*self.wake.insert(at)));
        }
        self.written_was_last = !self.written.is_empty() && (self.dma.is_empty() || !self.written_was_last);
        if self.written_was_last {
            self.written.pop_front().map(Turn::Written)
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
