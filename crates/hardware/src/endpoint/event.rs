//! Events inside an endpoint and their handling.

use platform::device::Token;

use super::{Endpoint, Life, PortLife, Requester};
use crate::detected::Detected;
use crate::link::LinkEnd;
use crate::packet::PacketId;
use crate::wires::Context;

/// Events inside an endpoint. Events from before a reset carry an older life and are dropped.
#[derive(Clone, Copy, Debug)]
pub enum EndpointEvent {
    /// The core can send a TLP.
    Transmit {
        /// Port through which it leaves.
        end: LinkEnd,
        /// The TLP.
        packet: PacketId,
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// The oldest waiting read may be able to proceed.
    IssueReads {
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// The oldest waiting write may be able to proceed.
    StartWrites {
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// The data of a write has been fetched.
    WriteFetched {
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// The data of a tag has been processed.
    TagFree {
        /// Tag of a request whose data is complete.
        tag: u16,
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// Reports the end of a read to the device.
    ReadDone {
        /// Index of the read in the requester.
        read: u32,
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// Reports to the device that a write has left.
    WriteDone {
        /// The device's token for it.
        token: Token,
        /// Life of the port when this was scheduled.
        of: PortLife,
        /// Life of the function when it requested the write.
        function: Life,
    },
    /// A timer of the device has expired.
    Timer {
        /// The device's token for it.
        token: Token,
        /// Epoch of the device when the timer was set.
        epoch: u16,
    },
    /// A completion of the device for the host is ready.
    Answer {
        /// Port through which it leaves.
        end: LinkEnd,
        /// The completion.
        packet: PacketId,
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// A TLP that crosses the bridge has reached its egress port.
    Pass {
        /// Egress port.
        end: LinkEnd,
        /// The TLP.
        packet: PacketId,
    },
    /// Another node's request for the bridge's registers is due.
    CableAccess {
        /// Cable through which it arrived.
        cable: LinkEnd,
        /// The request.
        packet: PacketId,
    },
    /// Check for completion timeouts.
    CheckTimeouts {
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
}

impl Endpoint {
    /// Handles an event inside the endpoint.
    #[inline(never)]
    pub fn handle(&mut self, cx: &mut Context<'_>, event: EndpointEvent) {
        // Events from before a reset are dropped.
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
