//! The device as a completer: host accesses to its configuration spaces and BARs.

use platform::device::{BarAccess, FunctionIndex, Reset};
use units::{BarOffset, Duration};
use wire::pcie::config::ConfigEffect;
use wire::pcie::tlp::{CompletionHeader, CompletionStatus, ConfigType, MemoryRequest};
use wire::pcie::{Tlp, TlpKind};

use super::EndpointEvent;
use super::means::Means;
use crate::detected::Detected;
use crate::enables::enabled_runs;
use crate::link::LinkEnd;
use crate::packet::PacketId;

/// Read completion boundary in bytes of every completer other than a root complex (base spec 2.3.1.1).
const COMPLETION_BOUNDARY: u32 = 128;

/// Completer side of a device.
#[derive(Default)]
pub(super) struct Completer {
    /// Buffer for the data of one BAR access, reused.
    access: Vec<u8>,
}

impl Completer {
    /// Handles a host's read or write. Returns how long the request holds its receive buffer.
    pub fn request(
        &mut self,
        means: &mut Means<'_, '_>,
        end: LinkEnd,
        packet: PacketId,
        tlp: &Tlp,
    ) -> Duration {
        match &tlp.kind {
            // Type 1 requests address a bus below, which a device does not have (base spec 7.3.3).
            TlpKind::ConfigRead(request) | TlpKind::ConfigWrite(request)
                if request.config_type == ConfigType::Type1 =>
            {
                let id = means.core.registers.id(FunctionIndex(0));
                let status = CompletionStatus::UnsupportedRequest;
                let answer = CompletionHeader::for_register(id, request.requester, request.tag, status, 0);
                refuse(means, end, packet, answer);
            }
            TlpKind::ConfigRead(request) => {
                let value = means.core.registers.read(means.core.port_at(end), request);
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
                let latency = means.core.config_latency();
                respond(means, end, answer, &value.unwrap_or(0).to_le_bytes(), latency);
            }
            TlpKind::ConfigWrite(request) => {
                let value = means
                    .cx
                    .wires
                    .packets
                    .decode(packet)
                    .and_then(|(_, payload)| payload.first_chunk::<4>().copied());
                let port = means.core.port_at(end);
                let effects =
                    means.core.registers.write(port, request, u32::from_le_bytes(value.unwrap_or_default()));
                let status = match &effects {
                    Some(_) => CompletionStatus::Successful,
                    None => CompletionStatus::UnsupportedRequest,
                };
                let answer =
                    CompletionHeader::for_register(request.target, request.requester, request.tag, status, 0);
                let latency = means.core.config_latency();
                respond(means, end, answer, &[], latency);
                config_effects(means, effects);
            }
            TlpKind::MemoryRead(request) => self.bar_read(means, end, packet, request),
            TlpKind::MemoryWrite(request) => {
                return self.bar_write(means, end, packet, request, tlp.common.poisoned);
            }
            TlpKind::Message(_) => {}
            // Devices have no I/O space.
            TlpKind::IoRead(request) | TlpKind::IoWrite(request) => {
                let id = means.core.registers.id(FunctionIndex(0));
                let status = CompletionStatus::UnsupportedRequest;
                let answer = CompletionHeader::for_register(id, request.requester, request.tag, status, 0);
                refuse(means, end, packet, answer);
            }
            TlpKind::Completion(_) | TlpKind::CompletionData(_) => {
                unreachable!("completions are no requests")
            }
        }
        Duration::ZERO
    }

    fn bar_read(
        &mut self,
        means: &mut Means<'_, '_>,
        end: LinkEnd,
        packet: PacketId,
        request: &MemoryRequest,
    ) {
        let (address, length) = request.byte_range();
        let port = means.core.port_at(end);
        let Some((function, bar, offset)) = means.core.registers.decode(port, address, length) else {
            let id = means.core.registers.id(FunctionIndex(0));
            let answer = CompletionHeader::for_read_error(id, request, CompletionStatus::UnsupportedRequest);
            refuse(means, end, packet, answer);
            return;
        };
        let mut data = std::mem::take(&mut self.access);
        data.clear();
        data.resize(length as usize, 0);
        let at = BarAccess { function, bar, offset: BarOffset::new(offset) };
        let took = if means.core.registers.interrupt_table_read(at, &mut data) {
            means.core.config_latency()
        } else {
            means.with_device(|device, bus| device.bar_read(bus, at, &mut data))
        };
        let id = means.core.registers.id(function);
        let max_payload = means.core.requester(port).allowance().max_payload;
        let mut done = 0u32;
        for (piece, piece_length) in
            wire::pcie::split::split_completion(address, u64::from(length), COMPLETION_BOUNDARY, max_payload)
        {
            let answer = CompletionHeader::with_data(id, request, piece, piece_length, length - done);
            let bytes = &data[done as usize..(done + piece_length) as usize];
            respond(means, end, answer, bytes, took);
            done += piece_length;
        }
        self.access = data;
    }

    fn bar_write(
        &mut self,
        means: &mut Means<'_, '_>,
        end: LinkEnd,
        packet: PacketId,
        request: &MemoryRequest,
        poisoned: bool,
    ) -> Duration {
        let (address, length) = request.byte_range();
        let port = means.core.port_at(end);
        let (Some((function, bar, offset)), false) =
            (means.core.registers.decode(port, address, length), poisoned)
        else {
            means.core.unsupported_requests += 1;
            let error = if poisoned { Detected::Poisoned } else { Detected::UnsupportedPosted };
            means.core.report(means.cx, FunctionIndex(0), error, Some(packet));
            return Duration::ZERO;
        };
        let at = BarAccess { function, bar, offset: BarOffset::new(offset) };
        let held = means.with_device(|device, bus| device.bar_write_holds(bus, at, length));
        let mut data = std::mem::take(&mut self.access);
        data.clear();
        let lead = (address & 3) as usize;
        if let Some((_, payload)) = means.cx.wires.packets.decode(packet)
            && let Some(bytes) = payload.get(lead..lead + length as usize)
        {
            data.extend_from_slice(bytes);
        }
        data.resize(length as usize, 0);
        for run in enabled_runs(request) {
            let (start, end) = (run.start - lead, run.end - lead);
            let at = BarAccess { function, bar, offset: BarOffset::new(offset + start as u64) };
            let bytes = &data[start..end];
            if means.core.registers.interrupt_table_write(at, bytes) {
                means.send_unmasked(function);
            } else {
                means.with_device(|device, bus| device.bar_write(bus, at, bytes));
            }
        }
        self.access = data;
        held
    }
}

/// Applies the effects of a write of configuration space.
fn config_effects(means: &mut Means<'_, '_>, effects: Option<(FunctionIndex, Vec<ConfigEffect>)>) {
    let Some((function, effects)) = effects else { return };
    means.core.heed_registers();
    for effect in effects {
        match effect {
            ConfigEffect::FunctionLevelReset => means.reset(Reset::Function(function)),
            ConfigEffect::Sriov { enabled: false, .. } => {
                means.reset_virtual_functions(function);
            }
            ConfigEffect::Msi | ConfigEffect::Msix { .. } => {
                means.core.drive_lines(means.cx);
                means.send_unmasked(function);
            }
            ConfigEffect::ErrorReporting => means.core.protect(means.cx.wires),
            ConfigEffect::DeviceControl => means.core.report_latency(means.cx),
            ConfigEffect::IntxDisable(_) => means.core.drive_lines(means.cx),
            _ => {}
        }
        means.with_device(|device, bus| device.config_changed(bus, function, &effect));
    }
}

/// Reports an unsupported request, and completes it as such (base spec 2.3.1).
pub(super) fn refuse(means: &mut Means<'_, '_>, end: LinkEnd, packet: PacketId, answer: CompletionHeader) {
    means.core.unsupported_requests += 1;
    let error = Detected::UnsupportedNonPosted;
    means.core.report(means.cx, FunctionIndex(0), error, Some(packet));
    let latency = means.core.config_latency();
    respond(means, end, answer, &[], latency);
}

/// Sends a completion with `data` after a time.
fn respond(means: &mut Means<'_, '_>, end: LinkEnd, header: CompletionHeader, data: &[u8], after: Duration) {
    let packets = &mut means.cx.wires.packets;
    let packet = if header.length_dw > 0 {
        let lead = usize::from(header.lower_address & 3);
        let tlp = Tlp::new(TlpKind::CompletionData(header));
        packets.encode_with(&tlp, |room| room[lead..lead + data.len()].copy_from_slice(data))
    } else {
        packets.encode(&Tlp::new(TlpKind::Completion(header)), &[])
    };
    let of = means.core.requester(means.core.port_at(end)).life();
    means.cx.scheduler.after(after, means.core.event(EndpointEvent::Answer { end, packet, of }));
}
