//! The device as a completer: host accesses to its configuration spaces and BARs.

use platform::device::{BarAccess, FunctionIndex, Reset};
use units::{BarOffset, Duration};
use wire::pcie::config::ConfigEffect;
use wire::pcie::tlp::{CompletionHeader, CompletionStatus, ConfigType, MemoryRequest};
use wire::pcie::{Tlp, TlpKind};

use super::{Endpoint, EndpointEvent};
use crate::detected::Detected;
use crate::enables::enabled_runs;
use crate::event::Event;
use crate::link::LinkEnd;
use crate::packet::PacketId;
use crate::wires::Context;

/// Read completion boundary in bytes of every completer other than a root complex (base spec 2.3.1.1).
const COMPLETION_BOUNDARY: u32 = 128;

impl Endpoint {
    /// Handles a host's read or write. Returns how long the request holds its receive buffer.
    pub(super) fn host_request(
        &mut self,
        cx: &mut Context<'_>,
        end: LinkEnd,
        packet: PacketId,
        tlp: &Tlp,
    ) -> Duration {
        match &tlp.kind {
            // Type 1 requests address a bus below, which a device does not have (base spec 7.3.3).
            TlpKind::ConfigRead(request) | TlpKind::ConfigWrite(request)
                if request.config_type == ConfigType::Type1 =>
            {
                let id = self.core.registers.id(FunctionIndex(0));
                let status = CompletionStatus::UnsupportedRequest;
                let answer = CompletionHeader::for_register(id, request.requester, request.tag, status, 0);
                self.refuse(cx, end, packet, answer);
            }
            TlpKind::ConfigRead(request) => {
                let value = self.core.registers.read(self.core.port_at(end), request);
                let id = request.target;
                let answer = match value {
                    Some(_) => CompletionHeader::for_register(
                        id,
                        request.requester,
                        request.tag,
                        CompletionStatus::Successful,
                        1,
                    ),
                    None => CompletionHeader::for_register(
                        id,
                        request.requester,
                        request.tag,
                        CompletionStatus::UnsupportedRequest,
                        0,
                    ),
                };
                let latency = self.core.params.config_latency;
                self.answer(cx, end, answer, &value.unwrap_or(0).to_le_bytes(), latency);
            }
            TlpKind::ConfigWrite(request) => {
                let value = cx
                    .wires
                    .packets
                    .decode(packet)
                    .and_then(|(_, payload)| payload.first_chunk::<4>().copied());
                let port = self.core.port_at(end);
                let effects =
                    self.core.registers.write(port, request, u32::from_le_bytes(value.unwrap_or_default()));
                let status = match &effects {
                    Some(_) => CompletionStatus::Successful,
                    None => CompletionStatus::UnsupportedRequest,
                };
                let answer =
                    CompletionHeader::for_register(request.target, request.requester, request.tag, status, 0);
                let latency = self.core.params.config_latency;
                self.answer(cx, end, answer, &[], latency);
                self.config_effects(cx, effects);
            }
            TlpKind::MemoryRead(request) => self.bar_read(cx, end, packet, request),
            TlpKind::MemoryWrite(request) => {
                return self.bar_write(cx, end, packet, request, tlp.common.poisoned);
            }
            TlpKind::Message(_) => {}
            // Devices have no I/O space.
            TlpKind::IoRead(request) | TlpKind::IoWrite(request) => {
                let id = self.core.registers.id(FunctionIndex(0));
                let status = CompletionStatus::UnsupportedRequest;
                let answer = CompletionHeader::for_register(id, request.requester, request.tag, status, 0);
                self.refuse(cx, end, packet, answer);
            }
            TlpKind::Completion(_) | TlpKind::CompletionData(_) => {
                unreachable!("completions are no requests")
            }
        }
        Duration::ZERO
    }

    fn config_effects(&mut self, cx: &mut Context<'_>, effects: Option<(FunctionIndex, Vec<ConfigEffect>)>) {
        let Some((function, effects)) = effects else { return };
        self.core.heed_registers();
        for effect in effects {
            match effect {
                ConfigEffect::FunctionLevelReset => self.reset(cx, Reset::Function(function)),
                ConfigEffect::Sriov { enabled: false, .. } => {
                    self.reset_virtual_functions(cx, function);
                }
                ConfigEffect::Msix { .. } => {
                    self.core.drive_lines(cx);
                    self.send_unmasked(cx, function);
                }
                ConfigEffect::Msi => self.core.drive_lines(cx),
                ConfigEffect::ErrorReporting => self.core.protect(cx.wires),
                ConfigEffect::IntxDisable(_) => self.core.drive_lines(cx),
                _ => {}
            }
            self.with_device(cx, |device, bus| device.config_changed(bus, function, &effect));
        }
    }

    fn bar_read(&mut self, cx: &mut Context<'_>, end: LinkEnd, packet: PacketId, request: &MemoryRequest) {
        let (address, length) = request.byte_range();
        let port = self.core.port_at(end);
        let Some((function, bar, offset)) = self.core.registers.decode(port, address, length) else {
            let id = self.core.registers.id(FunctionIndex(0));
            let answer = CompletionHeader::for_read_error(id, request, CompletionStatus::UnsupportedRequest);
            self.refuse(cx, end, packet, answer);
            return;
        };
        let mut data = std::mem::take(&mut self.access);
        data.clear();
        data.resize(length as usize, 0);
        let at = BarAccess { function, bar, offset: BarOffset::new(offset) };
        let took = if self.core.registers.interrupt_table_read(at, &mut data) {
            self.core.params.config_latency
        } else {
            self.with_device(cx, |device, bus| device.bar_read(bus, at, &mut data))
        };
        let id = self.core.registers.id(function);
        let max_payload = self.core.requester(port).allowance().max_payload;
        let mut done = 0u32;
        for (piece, piece_length) in
            wire::pcie::split::split_completion(address, u64::from(length), COMPLETION_BOUNDARY, max_payload)
        {
            let answer = CompletionHeader::with_data(id, request, piece, piece_length, length - done);
            let bytes = &data[done as usize..(done + piece_length) as usize];
            self.answer(cx, end, answer, bytes, took);
            done += piece_length;
        }
        self.access = data;
    }

    fn bar_write(
        &mut self,
        cx: &mut Context<'_>,
        end: LinkEnd,
        packet: PacketId,
        request: &MemoryRequest,
        poisoned: bool,
    ) -> Duration {
        let (address, length) = request.byte_range();
        let port = self.core.port_at(end);
        let (Some((function, bar, offset)), false) =
            (self.core.registers.decode(port, address, length), poisoned)
        else {
            self.core.unsupported_requests += 1;
            let error = if poisoned { Detected::Poisoned } else { Detected::UnsupportedPosted };
            self.core.report(cx, FunctionIndex(0), error, Some(packet));
            return Duration::ZERO;
        };
        let at = BarAccess { function, bar, offset: BarOffset::new(offset) };
        let held = self.with_device(cx, |device, bus| device.bar_write_holds(bus, at, length));
        let mut data = std::mem::take(&mut self.access);
        data.clear();
        let lead = (address & 3) as usize;
        if let Some((_, payload)) = cx.wires.packets.decode(packet)
            && let Some(bytes) = payload.get(lead..lead + length as usize)
        {
            data.extend_from_slice(bytes);
        }
        data.resize(length as usize, 0);
        for run in enabled_runs(request) {
            let (start, end) = (run.start - lead, run.end - lead);
            let at = BarAccess { function, bar, offset: BarOffset::new(offset + start as u64) };
            let bytes = &data[start..end];
            if self.core.registers.interrupt_table_write(at, bytes) {
                self.send_unmasked(cx, function);
            } else {
                self.with_device(cx, |device, bus| device.bar_write(bus, at, bytes));
            }
        }
        self.access = data;
        held
    }

    /// Sends interrupts that were pending while masked.
    fn send_unmasked(&mut self, cx: &mut Context<'_>, function: FunctionIndex) {
        for message in self.core.registers.unmasked(function) {
            self.core.send_interrupt(cx, function, message);
        }
    }

    /// Reports an unsupported request, and completes it as such (base spec 2.3.1).
    pub(super) fn refuse(
        &mut self,
        cx: &mut Context<'_>,
        end: LinkEnd,
        packet: PacketId,
        answer: CompletionHeader,
    ) {
        self.core.unsupported_requests += 1;
        let error = Detected::UnsupportedNonPosted;
        self.core.report(cx, FunctionIndex(0), error, Some(packet));
        self.answer(cx, end, answer, &[], self.core.params.config_latency);
    }

    fn answer(
        &mut self,
        cx: &mut Context<'_>,
        end: LinkEnd,
        header: CompletionHeader,
        data: &[u8],
        after: Duration,
    ) {
        let packet = if header.length_dw > 0 {
            let lead = usize::from(header.lower_address & 3);
            let tlp = Tlp::new(TlpKind::CompletionData(header));
            cx.wires.packets.encode_with(&tlp, |room| room[lead..lead + data.len()].copy_from_slice(data))
        } else {
            cx.wires.packets.encode(&Tlp::new(TlpKind::Completion(header)), &[])
        };
        let of = self.core.requester(self.core.port_at(end)).life();
        let event = EndpointEvent::Answer { end, packet, of };
        cx.scheduler.after(after, Event::Endpoint(self.core.id, event));
    }
}
