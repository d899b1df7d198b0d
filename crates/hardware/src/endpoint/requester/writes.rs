//! DMA writes and interrupt messages: posted requests, in program order.

use platform::device::Dma;
use platform::mover::Outgoing;
use units::Time;
use wire::pcie::split::split_aligned;
use wire::pcie::tlp::MemoryRequest;
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::{EndpointEvent, Requester, Write, common};
use crate::link::LinkEnd;
use crate::packet::PacketId;
use crate::wires::Context;

impl Requester {
    /// Writes `data` through `end` with the ID `requester`.
    pub fn write(&mut self, cx: &mut Context<'_>, end: LinkEnd, requester: Bdf, dma: Dma, data: &[u8]) {
        debug_assert_eq!(data.len(), dma.length as usize);
        let mut buffer = self.spare_buffers.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(data);
        self.counters.bytes_written += data.len() as u64;
        let ready = cx.now() + self.mover.start_latency(&dma);
        self.to_write.push_back(Write { dma, end, requester, data: buffer, ready, is_flush: false });
        self.start_writes(cx);
    }

    /// Lets idle engines start the next writes.
    pub fn start_writes(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        if self.write_wake.is_some_and(|at| at <= now) {
            self.write_wake = None;
        }
        while self.writes_in_hand < self.params.writes_in_hand.max(1) {
            let Some(write) = self.to_write.front() else { return };
            // Writes that the link cannot accept yet stay here; the link calls back when it has sent what waits.
            if cx.wires.link(write.end.link).waiting(write.end.side) > 0 {
                return;
            }
            if write.ready > now {
                if self.write_wake.is_none_or(|at| at > write.ready) {
                    self.write_wake = Some(write.ready);
                    cx.scheduler.at(write.ready, self.event(EndpointEvent::StartWrites { of: self.life() }));
                }
                return;
            }
            let Some(write) = self.to_write.pop_front() else { return };
            if write.is_flush {
                self.begin_read(cx, write.end, write.requester, write.dma);
            } else {
                self.start_write(cx, write);
            }
        }
    }

    /// Fetches a write's data, and sends its TLPs as they pass the pipeline stages.
    fn start_write(&mut self, cx: &mut Context<'_>, write: Write) {
        let now = cx.now();
        let length = write.data.len() as u64;
        let fetched = self.mover.fetch(now, &write.dma);
        if fetched > now {
            self.writes_in_hand += 1;
            cx.scheduler.at(fetched, self.event(EndpointEvent::WriteFetched { of: self.life() }));
        }
        let mut gone = fetched;
        let mut done = 0usize;
        for (address, piece) in split_aligned(write.dma.address.get(), length, self.allowance.max_payload) {
            let request = MemoryRequest::for_bytes(write.requester, 0, address, piece);
            let tlp = Tlp {
                common: common(write.dma.attributes, &self.allowance),
                kind: TlpKind::MemoryWrite(request),
            };
            let lead = (address & 3) as usize;
            let bytes = &write.data[done..done + piece as usize];
            let packet = cx.wires.packets.encode_with(&tlp, |payload| {
                payload[lead..lead + bytes.len()].copy_from_slice(bytes);
            });
            let (first, last) = (done == 0, done + piece as usize == write.data.len());
            done += piece as usize;
            let outgoing = Outgoing {
                is_long: tlp.header_len() == 16,
                payload: tlp.payload_len() as u64,
                max_payload: self.allowance.max_payload.into(),
                first,
                last,
            };
            let (start, free) = self.mover.send(fetched, &outgoing);
            gone = free;
            self.counters.write_requests += 1;
            self.send_posted(cx, write.end, packet, start);
        }
        let known = self.mover.write_known(now, &write.dma, gone);
        let event = EndpointEvent::WriteDone {
            token: write.dma.token,
            of: self.life(),
            function: self.function_life(write.dma.function),
        };
        cx.scheduler.at(known, self.event(event));
        self.spare_buffers.push(write.data);
    }

    /// The data of a write has been fetched: its engine is free.
    pub fn write_fetched(&mut self, cx: &mut Context<'_>) {
        self.writes_in_hand -= 1;
        self.start_writes(cx);
    }

    /// Sends an interrupt's TLP behind the completed writes.
    pub fn send_message(&mut self, cx: &mut Context<'_>, end: LinkEnd, tlp: &Tlp, data: &[u8]) {
        let packet = cx.wires.packets.encode(tlp, data);
        let now = cx.now();
        // Writes that no engine has started have not been acknowledged to the device either.
        let payload = data.len() as u64;
        let outgoing = Outgoing {
            is_long: tlp.header_len() == 16,
            payload,
            max_payload: payload,
            first: true,
            last: true,
        };
        let (start, _) = self.mover.send(now, &outgoing);
        self.send_posted(cx, end, packet, start);
    }

    /// Passes a posted TLP to the link at `at`, behind earlier ones.
    fn send_posted(&mut self, cx: &mut Context<'_>, end: LinkEnd, packet: PacketId, at: Time) {
        let at = at.max(self.last_posted);
        self.last_posted = at;
        if at == cx.now() {
            cx.send(end, packet);
        } else if !cx.plan(end, packet, at) {
            cx.scheduler.at(at, self.event(EndpointEvent::Transmit { end, packet, of: self.life() }));
        }
    }
}
