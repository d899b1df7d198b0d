//! The multiplexer in front of a port (kPIO+WC, Figure 2): frames that DMA brought and frames that came by programmed
//! I/O take turns, one each. Those of different kPIO queues leave in the order in which they became whole, so that a
//! flow whose sender moves to another core, and so to another queue, stays in order.
//!
//! It is in the way only while a function of the port has a kPIO queue that runs, or with flow control: a pause stops what has not
//! been handed on. Then a frame is handed to the wire
//! when the one before it has left, and completions of DMA wait until their frame has been handed on.

use std::collections::VecDeque;

use platform::device::DeviceBus;
use platform::ethernet::EthernetPort;
use units::Time;
use wire::nic::registers::counter;

use super::Nic;
use super::token::{Kind, Note};
use super::tx::Done;

/// What DMA has for the wire, in order.
pub enum FromDma {
    /// A frame, check sequence included, and the bytes of packet memory that it holds.
    Frame { function: u8, bytes: Vec<u8>, held: u32 },
    /// All frames of a packet are before this.
    Done(Done),
}

/// A port's multiplexer.
#[derive(Default)]
pub struct Mux {
    dma: VecDeque<FromDma>,
    /// Frames in kPIO queues, by queue.
    kpio: VecDeque<(u8, u8)>,
    kpio_was_last: bool,
    /// kPIO queues that run.
    pub queues: u16,
    /// When the wire takes the next frame.
    free: Time,
    /// Until when the other end of the cable wants no frame.
    paused: Time,
    wake: Option<Time>,
}

impl Nic {
    /// Whether frames of a port go through its multiplexer.
    pub(super) fn is_muxed(&self, port: EthernetPort) -> bool {
        let mux = &self.muxes[usize::from(port.0)];
        self.params.flow_control.is_some() || mux.queues > 0 || !mux.dma.is_empty()
    }

    /// When a port's wire takes the next frame.
    pub(super) fn mux_free(&self, port: EthernetPort) -> Time {
        self.muxes[usize::from(port.0)].free
    }

    /// The other end of the cable wants no frame until then.
    pub(super) fn mux_pause(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, until: Time) {
        self.muxes[usize::from(port.0)].paused = until;
        self.mux_due(bus, port.0.into());
    }

    /// Something from DMA waits for its turn.
    pub(super) fn mux_dma(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, what: FromDma) {
        self.muxes[usize::from(port.0)].dma.push_back(what);
        self.mux_pump(bus, port);
    }

    /// A frame in a kPIO queue is whole.
    pub(super) fn mux_list(&mut self, function: u8, queue: u8) {
        let port = self.functions[usize::from(function)].port();
        self.muxes[usize::from(port.0)].kpio.push_back((function, queue));
    }

    /// Hands on what can be.
    pub(super) fn mux_pump(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort) {
        let now = bus.now();
        loop {
            let mux = &mut self.muxes[usize::from(port.0)];
            if let Some(FromDma::Done(_)) = mux.dma.front() {
                if let Some(FromDma::Done(done)) = mux.dma.pop_front() {
                    self.report_done(bus, done);
                }
                continue;
            }
            if mux.dma.is_empty() && mux.kpio.is_empty() {
                return;
            }
            let at = mux.free.max(mux.paused);
            if at > now {
                if mux.wake.is_none_or(|set| set > at || set <= now) {
                    mux.wake = Some(at);
                    let note = Note::new(Kind::Mux, 0, 0, 0).with(port.0.into(), 0);
                    bus.wake_at(at, note.token());
                }
                return;
            }
            let takes_kpio = !mux.kpio.is_empty() && (mux.dma.is_empty() || !mux.kpio_was_last);
            mux.kpio_was_last = takes_kpio;
            if takes_kpio {
                let Some((function, queue)) = mux.kpio.pop_front() else { continue };
                let kpio = self.kpio.as_mut();
                let Some(frame) = kpio.and_then(|kpio| kpio.take_frame(function, queue)) else { continue };
                let left = self.hand_on(bus, function, &frame.bytes, frame.at, 0);
                self.handle.add(function, counter::KPIO_FRAMES, u64::from(left.is_some()));
                self.mux_taken(bus, port, left);
                if let Some(kpio) = &mut self.kpio {
                    kpio.frame_left(function, queue, frame);
                }
                // Room for what waits in the port; and what was missing may not be any more.
                self.kpio_goes_on(bus, function, queue);
            } else {
                let Some(FromDma::Frame { function, bytes, held }) = mux.dma.pop_front() else { continue };
                let left = self.hand_on(bus, function, &bytes, now, held);
                self.mux_taken(bus, port, left);
                self.sender.spare.push(bytes);
            }
        }
    }

    /// The wire has taken a frame, which will have left then: the next one is to be there when the wire is free.
    fn mux_taken(&mut self, bus: &dyn DeviceBus, port: EthernetPort, left: Option<Time>) {
        if let Some(left) = left {
            let ahead = left.since(bus.now()).saturating_sub(self.params.tx.latency);
            self.muxes[usize::from(port.0)].free = bus.now() + ahead;
        }
    }

    /// A frame's turn may have come.
    pub(super) fn mux_due(&mut self, bus: &mut dyn DeviceBus, port: u16) {
        self.muxes[usize::from(port)].wake = None;
        self.mux_pump(bus, EthernetPort(port as u8));
        self.pump(bus);
    }
}
