//! What can happen inside an endpoint, and what follows.

use engine::Scheduler;
use platform::device::Token;

use super::{Endpoint, Life};
use crate::detected::Detected;
use crate::event::Event;
use crate::link::LinkEnd;
use crate::packet::PacketId;
use crate::wires::Wires;

/// What can happen inside an endpoint. Events of before a reset carry an older epoch and are dropped.
#[derive(Clone, Copy, Debug)]
pub enum EndpointEvent {
    /// The core gets to send a TLP.
    Transmit {
        /// Through which port.
        end: LinkEnd,
        /// The TLP.
        packet: PacketId,
        /// Life of the device.
        epoch: u16,
    },
    /// The oldest read that waits may be able to go on.
    IssueReads {
        /// Life of the device.
        epoch: u16,
    },
    /// The oldest write that waits may be able to go on.
    StartWrites {
        /// Life of the device.
        epoch: u16,
    },
    /// The data of a write has been fetched.
    WriteFetched {
        /// Life of the device.
        epoch: u16,
    },
    /// The data of a tag has been dealt with.
    TagFree {
        /// The tag.
        tag: u16,
        /// Life of the device.
        epoch: u16,
    },
    /// The device learns that a read has ended.
    ReadDone {
        /// Which.
        read: u32,
        /// Life of the device.
        epoch: u16,
    },
    /// The device learns that a write has left.
    WriteDone {
        /// The device's number for it.
        token: Token,
        /// Life of the device.
        epoch: u16,
        /// Which life of the function it was asked for in.
        life: Life,
    },
    /// A timer of the device ran out.
    Timer {
        /// The device's number for it.
        token: Token,
        /// Life of the device.
        epoch: u16,
    },
    /// An answer of the device to the host is ready.
    Answer {
        /// Through which port.
        end: LinkEnd,
        /// The completion.
        packet: PacketId,
        /// Life of the device.
        epoch: u16,
    },
    /// Requests may have waited too long.
    CheckTimeouts {
        /// Life of the device.
        epoch: u16,
    },
}

impl Endpoint {
    /// Something inside the endpoint is due.
    pub fn handle(&mut self, wires: &mut Wires, scheduler: &mut Scheduler<Event>, event: EndpointEvent) {
        let epoch = self.core.requester.epoch();
        match event {
            EndpointEvent::Transmit { end, packet, epoch: sent }
            | EndpointEvent::Answer { end, packet, epoch: sent }
                if sent == epoch =>
            {
                wires.send(scheduler, end, packet);
            }
            EndpointEvent::Transmit { packet, .. } | EndpointEvent::Answer { packet, .. } => {
                wires.packets.free(packet);
            }
            EndpointEvent::IssueReads { epoch: sent } if sent == epoch => {
                self.core.requester.issue_reads(wires, scheduler);
            }
            EndpointEvent::StartWrites { epoch: sent } if sent == epoch => {
                self.core.requester.start_writes(wires, scheduler);
            }
            EndpointEvent::WriteFetched { epoch: sent } if sent == epoch => {
                self.core.requester.write_fetched(wires, scheduler);
            }
            EndpointEvent::TagFree { tag, epoch: sent } if sent == epoch => {
                self.core.requester.tag_free(wires, scheduler, tag);
            }
            EndpointEvent::ReadDone { read, epoch: sent } if sent == epoch => {
                if let Some(read) = self.core.requester.take_finished(read) {
                    let outcome = read.failed.map_or(Ok(&read.data[..]), Err);
                    self.with_device(wires, scheduler, |device, bus| {
                        device.read_done(bus, read.token, outcome)
                    });
                    self.core.requester.recycle(read);
                }
            }
            EndpointEvent::WriteDone { token, epoch: sent, life }
                if sent == epoch && life == self.core.requester.life(life.function) =>
            {
                self.with_device(wires, scheduler, |device, bus| device.write_done(bus, token));
            }
            EndpointEvent::Timer { token, epoch: sent } if sent == epoch => {
                self.with_device(wires, scheduler, |device, bus| device.timer(bus, token));
            }
            EndpointEvent::CheckTimeouts { epoch: sent } if sent == epoch => {
                for function in self.core.requester.check_timeouts(scheduler) {
                    self.core.report(wires, scheduler, function, Detected::CompletionTimeout, None);
                }
            }
            // What was under way before a reset is forgotten.
            _ => {}
        }
    }
}
