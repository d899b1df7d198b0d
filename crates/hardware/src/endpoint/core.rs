//! Services of the PCIe core for all functions: requests, errors, interrupts.

use platform::device::{FunctionIndex, PortIndex};
use wire::pcie::tlp::{MemoryRequest, Message};
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::{Core, PortLife, Requester};
use crate::detected::Detected;
use crate::iommu::MsiMessage;
use crate::link::LinkEnd;
use crate::packet::PacketId;
use crate::wires::{Context, Wires};

impl Core {
    /// The requester, link end and requester ID for a function's requests, if it has bus master enable.
    #[inline(always)]
    pub(super) fn master(&mut self, function: FunctionIndex) -> Option<(&mut Requester, LinkEnd, Bdf)> {
        let (port, id) = self.registers.master(function)?;
        let end = *self.ends.get(usize::from(port.0))?;
        Some((self.requester_mut(port), end, id))
    }

    /// The requester of a port.
    ///
    /// # Panics
    /// If the device has no such port.
    pub fn requester(&self, port: PortIndex) -> &Requester {
        &self.requesters[usize::from(port.0)]
    }

    pub(super) fn requester_mut(&mut self, port: PortIndex) -> &mut Requester {
        &mut self.requesters[usize::from(port.0)]
    }

    /// The requester of a port, if the port has not been reset since.
    #[inline]
    pub(super) fn current(&mut self, of: PortLife) -> Option<&mut Requester> {
        self.requesters.get_mut(usize::from(of.port.0)).filter(|requester| requester.life() == of)
    }

    /// The requester that a function uses; the first one for a function that the device does not have.
    pub(super) fn requester_of(&mut self, function: FunctionIndex) -> &mut Requester {
        let port = self.registers.port_of(function);
        self.requester_mut(port)
    }

    /// Applies the register settings to the requesters.
    pub fn heed_registers(&mut self) {
        for (port, requester) in (0..).zip(&mut self.requesters) {
            requester.allow(self.registers.allowance(PortIndex(port)));
            requester.set_timeouts(self.registers.completion_timeouts());
        }
    }

    /// Enables ECRC generation on the links as the registers say.
    pub(super) fn protect(&self, wires: &mut Wires) {
        for (port, &end) in (0..).zip(&self.ends) {
            wires.set_protected(end, self.registers.ecrc(PortIndex(port)).generated);
        }
    }

    pub(super) fn send_interrupt(
        &mut self,
        cx: &mut Context<'_>,
        function: FunctionIndex,
        message: MsiMessage,
    ) {
        let Some((port, end, requester)) = self.master(function) else { return };
        let request = MemoryRequest::for_bytes(requester, 0, message.address, 4);
        let (tlp, data) = (Tlp::new(TlpKind::MemoryWrite(request)), message.data.to_le_bytes());
        port.send_message(cx, end, &tlp, &data);
    }

    /// Signals changed legacy interrupt lines to the link partners.
    pub(super) fn drive_lines(&mut self, cx: &mut Context<'_>) {
        for ((port, &end), driven) in (0..).zip(&self.ends).zip(&mut self.lines) {
            let now = self.registers.lines(PortIndex(port));
            for (line, active) in now.changes(std::mem::replace(driven, now)) {
                // The lines belong to the port; the function number is reserved (base spec 2.2.8.1).
                let id = self.registers.id(self.registers.first_below(PortIndex(port)));
                let message = Message::intx(Bdf::new(id.bus(), id.device(), 0), line, active);
                let tlp = Tlp::new(TlpKind::Message(message));
                self.requesters[usize::from(port)].send_message(cx, end, &tlp, &[]);
            }
        }
    }

    /// Records an error in a function's registers, and reports it to the root complex if enabled.
    pub(super) fn report(
        &mut self,
        cx: &mut Context<'_>,
        function: FunctionIndex,
        error: Detected,
        packet: Option<PacketId>,
    ) {
        let tlp = packet.map(|packet| cx.wires.packets.bytes(packet));
        let function = self.registers.reporter(function);
        let Some(code) = error.record(self.registers.config_mut(function), tlp) else { return };
        let (port, id) = self.registers.port_and_id(function);
        let message = Tlp::new(TlpKind::Message(Message::error(id, code)));
        // A device in no slot cannot report.
        let Some(&end) = self.ends.get(usize::from(port.0)) else { return };
        let packet = cx.wires.packets.encode(&message, &[]);
        cx.send(end, packet);
    }

    /// The port whose link ends at `end`.
    #[inline]
    pub(super) fn port_at(&self, end: LinkEnd) -> PortIndex {
        if self.ends.len() == 1 {
            return PortIndex(0);
        }
        PortIndex(self.ends.iter().position(|&own| own == end).unwrap_or(0) as u8)
    }
}
