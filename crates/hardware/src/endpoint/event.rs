//! What can happen inside an endpoint, and what follows.

use engine::Scheduler;
use platform::device::Token;

use super::{Endpoint, Life, PortLife};
use crate::detected::Detected;
use crate::event::Event;
use crate::link::LinkEnd;
use crate::packet::PacketId;
use crate::wires::Wires;

/// What can happen inside an endpoint. Events of before a reset carry an older life and are dropped.
#[derive(Clone, Copy, Debug)]
pub enum EndpointEvent {
    /// The core gets to send a TLP.
    Transmit {
        /// Through which port.
        end: LinkEnd,
        /// The TLP.
        packet: PacketId,
        /// Life of the port.
        of: PortLife,
    },
    /// The oldest read that waits may be able to go on.
    IssueReads {
        /// Life of the port.
        of: PortLife,
    },
    /// The oldest write that waits may be able to go on.
    StartWrites {
        /// Life of the port.
        of: PortLife,
    },
    /// The data of a write has been fetched.
    WriteFetched {
        /// Life of the port.
        of: PortLife,
    },
    /// The data of a tag has been dealt with.
    TagFree {
        /// The tag.
        tag: u16,
        /// Life of the port.
        of: PortLife,
    },
    /// The device learns that a read has ended.
    ReadDone {
        /// Which.
        read: u32,
        /// Life of the port.
        of: PortLife,
    },
    /// The device learns that a write has left.
    WriteDone {
        /// The device's number for it.
        token: Token,
        /// Life of the port.
        of: PortLife,
        /// Which life of the function it was asked for in.
        function: Life,
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
        /// Life of the port.
        of: PortLife,
    },
    /// Requests may have waited too long.
    CheckTimeouts {
        /// Life of the port.
        of: PortLife,
    },
}

impl Endpoint {
    /// Something inside the endpoint is due.
    pub fn handle(&mut self, wires: &mut Wires, scheduler: &mut Scheduler<Event>, event: EndpointEvent) {
        let is_over = |of: PortLife| self.core.requester(of.port).life() != of;
        match event {
            EndpointEvent::Transmit { packet, of, .. } | EndpointEvent::Answer { packet, of, .. }
                if is_over(of) =>
            {
                wires.packets.free(packet);
            }
            EndpointEvent::Transmit { end, packet, .. } | EndpointEvent::Answer { end, packet, .. } => {
                wires.send(scheduler, end, packet);
            }
            EndpointEvent::Timer { token, epoch } => {
                if epoch == self.core.epoch {
                    self.with_device(wires, scheduler, |device, bus| device.timer(bus, token));
                }
            }
            // What was under way before a reset is forgotten.
            EndpointEvent::IssueReads { of }
            | EndpointEvent::StartWrites { of }
            | EndpointEvent::WriteFetched { of }
            | EndpointEvent::TagFree { of, .. }
            | EndpointEvent::ReadDone { of, .. }
            | EndpointEvent::WriteDone { of, .. }
            | EndpointEvent::CheckTimeouts { of }
                if is_over(of) => {}
            EndpointEvent::IssueReads { of } => {
                self.core.requester_mut(of.port).issue_reads(wires, scheduler);
            }
            EndpointEvent::StartWrites { of } => {
                self.core.requester_mut(of.port).start_writes(wires, scheduler);
            }
            EndpointEvent::WriteFetched { of } => {
                self.core.requester_mut(of.port).write_fetched(wires, scheduler);
            }
            EndpointEvent::TagFree { tag, of } => {
                self.core.requester_mut(of.port).tag_free(wires, scheduler, tag);
            }
            EndpointEvent::ReadDone { read, of } => {
                if let Some(read) = self.core.requester_mut(of.port).take_finished(read) {
                    let outcome = read.failed.map_or(Ok(&read.data[..]), Err);
                    self.with_device(wires, scheduler, |device, bus| {
                        device.read_done(bus, read.token, outcome)
                    });
                    self.core.requester_mut(of.port).recycle(read);
                }
            }
            EndpointEvent::WriteDone { token, of, function } => {
                if function == self.core.requester(of.port).function_life(function.function) {
                    self.with_device(wires, scheduler, |device, bus| device.write_done(bus, token));
                }
            }
            EndpointEvent::CheckTimeouts { of } => {
                for function in self.core.requester_mut(of.port).check_timeouts(scheduler) {
                    self.core.report(wires, scheduler, function, Detected::CompletionTimeout, None);
                }
            }
        }
    }
}
