//! What can happen inside an endpoint, and what follows.

use platform::device::Token;

use super::{Endpoint, Life, PortLife, Requester};
use crate::detected::Detected;
use crate::link::LinkEnd;
use crate::packet::PacketId;
use crate::wires::Context;

/// What can happen inside an endpoint. Events of before a reset carry an older life and are dropped.
#[derive(Clone, Copy, Debug)]
pub enum EndpointEvent {
    /// The core gets to send a TLP.
    Transmit {
        /// Through which port.
        end: LinkEnd,
        /// The TLP.
        packet: PacketId,
        /// The port's life in which this was planned.
        of: PortLife,
    },
    /// The oldest read that waits may be able to go on.
    IssueReads {
        /// The port's life in which this was planned.
        of: PortLife,
    },
    /// The oldest write that waits may be able to go on.
    StartWrites {
        /// The port's life in which this was planned.
        of: PortLife,
    },
    /// The data of a write has been fetched.
    WriteFetched {
        /// The port's life in which this was planned.
        of: PortLife,
    },
    /// The data of a tag has been dealt with.
    TagFree {
        /// The tag whose read has all its data.
        tag: u16,
        /// The port's life in which this was planned.
        of: PortLife,
    },
    /// The device learns that a read has ended.
    ReadDone {
        /// The read's place in the requester.
        read: u32,
        /// The port's life in which this was planned.
        of: PortLife,
    },
    /// The device learns that a write has left.
    WriteDone {
        /// The device's number for it.
        token: Token,
        /// The port's life in which this was planned.
        of: PortLife,
        /// Which life of the function it was asked for in.
        function: Life,
    },
    /// A timer of the device ran out.
    Timer {
        /// The device's number for it.
        token: Token,
        /// The device's life in which the timer was set.
        epoch: u16,
    },
    /// An answer of the device to the host is ready.
    Answer {
        /// Through which port.
        end: LinkEnd,
        /// The completion.
        packet: PacketId,
        /// The port's life in which this was planned.
        of: PortLife,
    },
    /// A TLP that crosses a bridge has come to the port by which it leaves.
    Pass {
        /// Where it leaves.
        end: LinkEnd,
        /// The TLP.
        packet: PacketId,
    },
    /// A request of another node for a bridge's registers is due.
    CableAccess {
        /// The cable by which it came.
        cable: LinkEnd,
        /// The request.
        packet: PacketId,
    },
    /// Requests may have waited too long.
    CheckTimeouts {
        /// The port's life in which this was planned.
        of: PortLife,
    },
}

impl Endpoint {
    /// Something inside the endpoint is due.
    #[inline]
    pub fn handle(&mut self, cx: &mut Context<'_>, event: EndpointEvent) {
        // What was under way before a reset is forgotten.
        match event {
            EndpointEvent::Transmit { end, packet, of } | EndpointEvent::Answer { end, packet, of } => {
                match self.core.current(of) {
                    Some(_) => cx.send(end, packet),
                    None => cx.wires.packets.free(packet),
                }
            }
            EndpointEvent::IssueReads { of } => {
                if let Some(requester) = self.core.current(of) {
                    requester.issue_reads(cx);
                }
            }
            EndpointEvent::StartWrites { of } => {
                if let Some(requester) = self.core.current(of) {
                    requester.start_writes(cx);
                }
            }
            EndpointEvent::WriteFetched { of } => {
                if let Some(requester) = self.core.current(of) {
                    requester.write_fetched(cx);
                }
            }
            EndpointEvent::TagFree { tag, of } => {
                if let Some(requester) = self.core.current(of) {
                    requester.tag_free(cx, tag);
                }
            }
            EndpointEvent::ReadDone { read, of } => {
                if let Some(read) = self.core.current(of).and_then(|requester| requester.take_finished(read))
                {
                    let outcome = read.failed.map_or(Ok(&read.data[..]), Err);
                    self.with_device(cx, |device, bus| device.read_done(bus, read.token, outcome));
                    self.core.requester_mut(of.port).recycle(read);
                }
            }
            EndpointEvent::WriteDone { token, of, function } => {
                let is_current = |port: &mut Requester| function == port.function_life(function.function);
                if self.core.current(of).is_some_and(is_current) {
                    self.with_device(cx, |device, bus| device.write_done(bus, token));
                }
            }
            EndpointEvent::Timer { token, epoch } => {
                if epoch == self.core.epoch {
                    self.with_device(cx, |device, bus| device.timer(bus, token));
                }
            }
            EndpointEvent::Pass { end, packet } => cx.send_tied(end, packet),
            EndpointEvent::CableAccess { cable, packet } => {
                self.cable_access(cx, cable, packet);
            }
            EndpointEvent::CheckTimeouts { of } => {
                let Some(requester) = self.core.current(of) else { return };
                for function in requester.check_timeouts(cx.scheduler) {
                    self.core.report(cx, function, Detected::CompletionTimeout, None);
                }
            }
        }
    }
}
