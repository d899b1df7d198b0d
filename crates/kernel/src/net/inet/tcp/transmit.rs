//! Segments on their way down: as many as may go, each in as few pieces as the device takes.

use inet::tcp::Segment as TcpSegment;
use platform::cpu::Cpu;
use units::Duration;
use wire::ip::{TcpFlags, protocol};

use super::super::buffers::{Hold, waits_below};
use super::super::output::Outgoing;
use super::Tcp;
use super::socket::TcpSocket;

/// For how long pages are kept for what may be written next when all that was has been acknowledged (assumed: Linux keeps
/// such pages with the task that writes, so that connections at rest have none).
const KEEP_PAGES: Duration = Duration::from_ms(1000);

impl TcpSocket {
    pub(super) fn send_segments(&self, cpu: &Cpu, tcp: &Tcp) {
        let (limit, pieces) = self.limits(tcp);
        self.held_back.set(false);
        loop {
            let full = self.is_full_below();
            let mut connection = self.connection.borrow_mut();
            let segment = if full && connection.unsent() > 0 {
                // Acknowledgements and resets go out whatever the queues below hold.
                self.held_back.set(true);
                connection.transmit_control(cpu.now())
            } else {
                // Not more than fits into a packet's pieces.
                let next = connection.acknowledged() + connection.unacknowledged() - connection.unsent();
                let reach = self.buffer.borrow().reach(next, pieces).min(limit.into()) as u32;
                connection.transmit(cpu.now(), if limit == 0 { 0 } else { reach })
            };
            drop(connection);
            let Some(segment) = segment else { break };
            cpu.work(tcp.means.costs().tcp_output);
            tcp.means.count(|c| c.tcp_packets_out += 1);
            self.send_segment(cpu, tcp, &segment, pieces);
        }
        let (acknowledged, may_write) =
            (self.connection.borrow().acknowledged(), self.connection.borrow().may_write());
        let mut buffer = self.buffer.borrow_mut();
        buffer.acknowledge(cpu, acknowledged);
        // What has sent its last keeps no pages while it waits for the peer, or for old segments to die.
        if buffer.is_empty() && !may_write {
            buffer.clear(cpu);
        }
        let rests = buffer.is_empty() && buffer.is_open();
        self.pages_until.set(rests.then(|| self.pages_until.get().unwrap_or(cpu.now() + KEEP_PAGES)));
    }

    /// The bytes of a packet that can hold no more (Linux: `size_goal`).
    fn whole_packet(&self, tcp: &Tcp) -> u64 {
        let segment = self.connection.borrow().segment_room();
        (u64::from(self.limits(tcp).0) / segment * segment).max(segment)
    }

    /// How many such packets wait to be sent.
    pub(super) fn whole_packets(&self, tcp: &Tcp) -> u64 {
        self.connection.borrow().unsent() / self.whole_packet(tcp)
    }

    /// Sends what a program has written last. If the device has packets of the connection, the rest that fills none waits until
    /// one has gone, as the program may write more until then (Linux: `tcp_autocorking`, on since 3.14), if it is set so.
    pub(super) fn push_rest(&self, cpu: &Cpu, tcp: &Tcp) {
        let rest = self.connection.borrow().unsent();
        if tcp.params.autocorking && rest > 0 && rest < self.whole_packet(tcp) && waits_below(&self.flow) > 0
        {
            self.held_back.set(true);
        } else {
            self.push(cpu);
        }
    }

    /// Bytes that a packet may carry beyond a segment's, and its pieces beside the headers.
    fn limits(&self, tcp: &Tcp) -> (u32, usize) {
        let device = tcp
            .interfaces
            .way(*self.ends.peer.ip())
            .and_then(|(interface, _, _)| tcp.interfaces.device(interface));
        let Some(device) = device else { return (0, usize::MAX) };
        let features = device.features();
        let pieces = usize::from(features.max_fragments).saturating_sub(1).max(1);
        // Headers, and no more than IPv4 can say.
        let most = features.tso_max.min(65_535).saturating_sub(120);
        (if features.tso { most } else { 0 }, pieces)
    }

    fn send_segment(&self, cpu: &Cpu, tcp: &Tcp, segment: &TcpSegment, pieces: usize) {
        let mut bytes = [0; 60];
        let length = segment.header.emit(&mut bytes);
        let data = segment.data.end - segment.data.start;
        let (payload, holds) = match data {
            0 => (Vec::new(), Vec::new()),
            _ => self.buffer.borrow().runs(segment.data.clone(), pieces),
        };
        let carried: u64 = payload.iter().map(|f| u64::from(f.length)).sum();
        if carried < data {
            // A segment in more pieces than the device takes: into one.
            holds.into_iter().for_each(|hold| hold.let_go(cpu));
            return self.send_in_one(cpu, tcp, segment, &bytes[..length]);
        }
        let cut = data > u64::from(segment.size);
        // A bare acknowledgement may pass what was sent before it, and keeps nothing from moving to another queue (Linux:
        // `skb_set_tcp_pure_ack`).
        let others = TcpFlags::SYN.with(TcpFlags::FIN).with(TcpFlags::RST);
        let is_bare = data == 0 && segment.header.flags.without(others) == segment.header.flags;
        let (own, peer) = (*self.ends.local.ip(), *self.ends.peer.ip());
        let _ = tcp.output.send(
            cpu,
            Outgoing {
                payload,
                holds,
                segment: if cut { segment.size } else { 0 },
                flow: (!is_bare).then_some(&self.flow),
                socket: Some(self.me.clone() as _),
                ecn: segment.ecn,
                ..Outgoing::bare(own, peer, protocol::TCP, &bytes[..length])
            },
        );
    }

    /// Sends a segment whose data lies in many pieces from a copy.
    fn send_in_one(&self, cpu: &Cpu, tcp: &Tcp, segment: &TcpSegment, header: &[u8]) {
        let (runs, holds) = self.buffer.borrow().runs(segment.data.clone(), usize::MAX);
        let length: u64 = runs.iter().map(|f| u64::from(f.length)).sum();
        let order = platform::memory::Pages::order_for(length);
        let copy = Hold::pages(tcp.means.memory(), cpu, order);
        if let Ok(copy) = copy {
            if copy.pages.len() >= length {
                let mut done = 0;
                for run in &runs {
                    cpu.copy(copy.pages.start + done, run.at, run.length.into());
                    done += u64::from(run.length);
                }
                let fragment =
                    platform::net::Fragment { pages: None, at: copy.pages.start, length: length as u32 };
                let (own, peer) = (*self.ends.local.ip(), *self.ends.peer.ip());
                let _ = tcp.output.send(
                    cpu,
                    Outgoing {
                        payload: vec![fragment],
                        holds: vec![Hold::Pages(copy)],
                        segment: if length > u64::from(segment.size) { segment.size } else { 0 },
                        flow: Some(&self.flow),
                        socket: Some(self.me.clone() as _),
                        ecn: segment.ecn,
                        ..Outgoing::bare(own, peer, protocol::TCP, header)
                    },
                );
            } else {
                Hold::Pages(copy).let_go(cpu);
                tcp.means.count(|c| c.no_memory += 1);
            }
        } else {
            // It is sent again when the timer goes off.
            tcp.means.count(|c| c.no_memory += 1);
        }
        holds.into_iter().for_each(|hold| hold.let_go(cpu));
    }
}
