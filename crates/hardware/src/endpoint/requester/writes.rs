//! DMA writes and interrupt messages: posted requests, in program order.

use std::collections::VecDeque;

use platform::device::{Dma, FunctionIndex};
use platform::mover::Outgoing;
use units::Time;
use wire::pcie::split::split_aligned;
use wire::pcie::tlp::MemoryRequest;
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::port::RequesterPort;
use crate::endpoint::EndpointEvent;
use crate::endpoint::life::Lives;
use crate::link::LinkEnd;
use crate::packet::PacketId;
use crate::wires::Context;

/// A DMA write waiting for an engine.
struct Write {
    dma: Dma,
    end: LinkEnd,
    requester: Bdf,
    data: Vec<u8>,
    ready: Time,
    /// A read of no bytes, which waits here for the writes before it.
    is_flush: bool,
}

/// A read of no bytes, before which all writes have started.
pub(super) struct Flush {
    pub dma: Dma,
    pub end: LinkEnd,
    pub requester: Bdf,
}

/// Posted requests of a port.
#[derive(Default)]
pub(super) struct Writes {
    /// Writes not started yet, oldest first, and flushes among them.
    waiting: VecDeque<Write>,
    /// Writes whose data is being fetched.
    in_hand: u16,
    /// Time of the scheduled retry.
    wake: Option<Time>,
    spare_buffers: Vec<Vec<u8>>,
    /// When the last posted request starts to leave; later ones follow it.
    last_posted: Time,
}

impl Writes {
    /// Whether no writes wait to be started.
    #[inline(always)]
    pub fn have_started(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the last posted request starts to leave.
    #[inline(always)]
    pub fn last_posted(&self) -> Time {
        self.last_posted
    }

    /// Appends a write of `data` through `end` with the ID `requester`, which can start at `ready`.
    pub fn push(&mut self, (end, requester): (LinkEnd, Bdf), dma: Dma, data: &[u8], ready: Time) {
        debug_assert_eq!(data.len(), dma.length as usize);
        let mut buffer = self.spare_buffers.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(data);
        self.waiting.push_back(Write { dma, end, requester, data: buffer, ready, is_flush: false });
    }

    /// Lets a read of no bytes wait for the writes before it.
    pub fn push_flush(&mut self, (end, requester): (LinkEnd, Bdf), dma: Dma, ready: Time) {
        self.waiting.push_back(Write { dma, end, requester, data: Vec::new(), ready, is_flush: true });
    }

    /// Lets idle engines start the next writes, up to a flush, which is returned. The caller starts it and asks again.
    pub fn start(&mut self, cx: &mut Context<'_>, port: &mut RequesterPort, lives: &Lives) -> Option<Flush> {
        let now = cx.now();
        self.wake.take_if(|at| *at <= now);
        while self.in_hand < port.params.writes_in_hand.max(1) {
            let write = self.waiting.front()?;
            // Writes that the link cannot accept yet stay here; the link calls back when it has sent what waits.
            if cx.wires.link(write.end.link).waiting(write.end.side) > 0 {
                return None;
            }
            if write.ready > now {
                if self.wake.is_none_or(|at| at > write.ready) {
                    self.wake = Some(write.ready);
                    cx.scheduler.at(write.ready, port.event(EndpointEvent::StartWrites { of: port.life }));
                }
                return None;
            }
            let write = self.waiting.pop_front()?;
            if write.is_flush {
                let Write { dma, end, requester, .. } = write;
                return Some(Flush { dma, end, requester });
            }
            self.start_one(cx, port, lives, write);
        }
        None
    }

    /// Fetches a write's data, and sends its TLPs as they pass the pipeline stages.
    fn start_one(&mut self, cx: &mut Context<'_>, port: &mut RequesterPort, lives: &Lives, write: Write) {
        let now = cx.now();
        let length = write.data.len() as u64;
        let fetched = port.mover.fetch(now, &write.dma);
        if fetched > now {
            self.in_hand += 1;
            cx.scheduler.at(fetched, port.event(EndpointEvent::WriteFetched { of: port.life }));
        }
        let mut gone = fetched;
        let mut done = 0usize;
        let max_payload = port.allowance().max_payload;
        for (address, piece) in split_aligned(write.dma.address.get(), length, max_payload) {
            let request = MemoryRequest::for_bytes(write.requester, 0, address, piece);
            let common = port.common(write.dma.attributes);
            let tlp = Tlp { common, kind: TlpKind::MemoryWrite(request) };
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
                max_payload: max_payload.into(),
                first,
                last,
            };
            let (start, free) = port.mover.send(now, fetched, &outgoing);
            gone = free;
            port.counters.write_requests += 1;
            self.post(cx, port, write.end, packet, start);
        }
        let known = port.mover.write_known(now, &write.dma, gone);
        let (token, of) = (write.dma.token, lives.of(write.dma.function));
        let event = EndpointEvent::WriteDone { token, port: port.life.port, of };
        cx.scheduler.at(known, port.event(event));
        self.spare_buffers.push(write.data);
    }

    /// The data of a write has been fetched: its engine is free.
    pub fn fetched(&mut self) {
        self.in_hand -= 1;
    }

    /// Sends an interrupt's TLP behind the completed writes. Writes that no engine has started have not been
    /// acknowledged to the device either.
    pub fn send_message(
        &mut self,
        cx: &mut Context<'_>,
        port: &mut RequesterPort,
        end: LinkEnd,
        tlp: &Tlp,
        data: &[u8],
    ) {
        let packet = cx.wires.packets.encode(tlp, data);
        let payload = data.len() as u64;
        let outgoing = Outgoing {
            is_long: tlp.header_len() == 16,
            payload,
            max_payload: payload,
            first: true,
            last: true,
        };
        let (start, _) = port.mover.send(cx.now(), cx.now(), &outgoing);
        self.post(cx, port, end, packet, start);
    }

    /// Passes a posted TLP to the link at `at`, behind earlier ones.
    fn post(&mut self, cx: &mut Context<'_>, port: &RequesterPort, end: LinkEnd, packet: PacketId, at: Time) {
        let at = at.max(self.last_posted);
        self.last_posted = at;
        if at == cx.now() {
            cx.send(end, packet);
        } else if !cx.plan(end, packet, at) {
            cx.scheduler.at(at, port.event(EndpointEvent::Transmit { end, packet, of: port.life }));
        }
    }

    /// Drops the writes of a function that have not started.
    pub fn forget(&mut self, function: FunctionIndex) {
        self.waiting.retain(|write| write.dma.function != function);
    }
}
