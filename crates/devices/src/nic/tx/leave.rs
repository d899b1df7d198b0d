//! Frames leave for the wire or for another function, and the driver is told of their descriptors.

use platform::device::DeviceBus;
use units::Time;
use wire::ethernet::FCS_LEN;
use wire::nic::Completion;
use wire::nic::completion::{END as COMPLETION_END, FAILED, Kind as CompletionKind};
use wire::nic::registers::counter;

use crate::nic::Nic;
use crate::nic::mux::FromDma;
use crate::nic::ring::CompletionMode;

/// A packet that is done with, for the completion of its descriptors.
#[derive(Clone, Copy)]
pub struct Done {
    pub(super) function: u8,
    pub(super) queue: u8,
    pub(super) life: u16,
    pub(super) descriptors: u16,
    pub(super) failed: bool,
    pub(super) report: bool,
}

impl Nic {
    /// A frame is whole: it goes to the wire, at once or in its turn.
    pub(super) fn emit(&mut self, bus: &mut dyn DeviceBus, function: u8, frame: &[u8], held: u32) {
        let port = self.functions[usize::from(function)].port();
        if self.is_muxed(port) {
            let mut bytes = self.sender.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(frame);
            self.mux_dma(bus, port, FromDma::Frame { function, bytes, held });
        } else {
            let now = bus.now();
            self.hand_on(bus, function, frame, now, held);
        }
    }

    /// Hands a frame, not before `ready`, to the wire, or to another function behind the same port. Gives when it will
    /// have left by the wire.
    pub(in crate::nic) fn hand_on(
        &mut self,
        bus: &mut dyn DeviceBus,
        function: u8,
        frame: &[u8],
        ready: Time,
        held: u32,
    ) -> Option<Time> {
        let length = frame.len() - FCS_LEN;
        let port = self.functions[usize::from(function)].port();
        if self.is_spoofed(function, frame) {
            self.sender.held -= held;
            self.handle.add(function, counter::TX_SPOOFED, 1);
            return None;
        }
        if self.functions.len() > 1 && !self.send_inside(bus, function, frame) {
            self.sender.held -= held;
            self.handle.add(function, counter::TX_FRAMES, 1);
            self.handle.add(function, counter::TX_BYTES, length as u64);
            return None;
        }
        let ready = ready.max(bus.now() + self.params.tx.latency);
        let left = match self.params.loopback {
            Some(latency) => Some(self.send_around(bus, port, ready, latency, frame)),
            None => bus.ethernet().and_then(|ethernet| ethernet.send(port, ready, frame)),
        };
        match left {
            Some(left) => {
                self.handle.add(function, counter::TX_FRAMES, 1);
                self.handle.add(function, counter::TX_BYTES, length as u64);
                self.sender.leaving.push_back((left, held));
            }
            None => {
                self.sender.held -= held;
                self.handle.add(function, counter::TX_NO_CARRIER, 1);
            }
        }
        left
    }

    /// Tells the driver of a packet's descriptors.
    pub(in crate::nic) fn report_done(&mut self, bus: &mut dyn DeviceBus, done: Done) {
        let Done { function, queue, life, descriptors, failed, report } = done;
        let ring = &mut self.functions[usize::from(function)].tx[usize::from(queue)].ring;
        if ring.life != life {
            return;
        }
        if failed {
            ring.dropped += 1;
            self.handle.add(function, counter::TX_ERRORS, 1);
        }
        let mode = ring.setup.mode();
        let flags = if failed { FAILED } else { 0 };
        let now = bus.now();
        for n in 1..=descriptors {
            let ring = &mut self.functions[usize::from(function)].tx[usize::from(queue)].ring;
            ring.done = ring.done.wrapping_add(1);
            let is_last = n == descriptors;
            if is_last {
                ring.note_filled(now);
            }
            let is_told = match mode {
                CompletionMode::InPlace => true,
                CompletionMode::Ring => is_last && (report || failed),
                CompletionMode::Word | CompletionMode::Register => is_last,
            };
            if is_told {
                let flags = if is_last { flags | COMPLETION_END } else { flags };
                let completion = Completion {
                    count: ring.done,
                    flags,
                    kind: CompletionKind::Sent,
                    ..Completion::default()
                };
                self.functions[usize::from(function)].complete(bus, queue, true, completion, is_last.into());
            }
        }
    }
}
