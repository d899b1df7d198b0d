//! TCP transmit: sends as many segments as allowed, each in as few pieces as the device takes.

use inet::tcp::Segment as TcpSegment;
use platform::cpu::Cpu;
use units::Duration;
use wire::ip::{TcpFlags, protocol};

use super::super::buffers::{Hold, waits_below};
use super::super::output::Outgoing;
use super::Tcp;
use super::socket::TcpSocket;

/// How long to keep pages for future writes once all data is acknowledged (assumed: Linux keeps such pages with the
/// writing task, so that idle connections have none).
const KEEP_PAGES: Duration = Duration::from_ms(1000);

impl TcpSocket {
    pub(super) fn send_segments(&self, cpu: &Cpu, tcp: &Tcp) {
        let (limit, pieces) = self.limits(tcp);
        self.held_back.set(false);
        loop {
            let full = self.is_full_below();
            let mut connection = self.connection.borrow_mut();
            let segment = if full && connection.unsent() > 0 {
                // Acknowledgements and resets are sent even if the queues below are full.
                self.held_back.set(true);
                connection.transmit_control(cpu.now())
            } else {
                // No more than fits into a packet's pieces.
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
        // After its last data, a connection keeps no pages while it waits for the peer or in TIME-WAIT.
        if buffer.is_empty() && !may_write {
            buffer.clear(cpu);
        }
        let rests = buffer.is_empty() && buffer.is_open();
        self.pages_until.set(rests.then(|| self.pages_until.get().unwrap_or(cpu.now() + KEEP_PAGES)));
    }

    /// Size of a full packet (Linux: `size_goal`).
    fn whole_packet(&self, tcp: &Tcp) -> u64 {
        let segment = self.connection.borrow().segment_room();
        (u64::from(self.limits(tcp).0) / segment * segment).max(segment)
    }

    /// Number of full packets that wait to be sent.
    pub(super) fn whole_packets(&self, tcp: &Tcp) -> u64 {
        self.connection.borrow().unsent() / self.whole_packet(tcp)
    }

    /// Sends the end of a program's write. With autocorking, a partial packet waits while the device still has
    /// packets of the connection, as the program may write more (Linux: `tcp_autocorking`, on since 3.14).
    pub(super) fn push_rest(&self, cpu: &Cpu, tcp: &Tcp) {
        let rest = self.connection.borrow().unsent();
        if tcp.params.autocorking && rest > 0 && rest < self.whole_packet(tcp) && waits_below(&self.flow) > 0
        {
            self.held_back.set(true);
        } else {
            self.push(cpu);
        }
    }

    /// Most bytes of a packet beyond one segment, and most data pieces.
    fn limits(&self, tcp: &Tcp) -> (u32, usize) {
        let device = tcp
            .interfaces
            .way(*self.ends.peer.ip())
            .and_then(|(interface, _, _)| tcp.interfaces.device(interface));
        let Some(device) = device else { return (0, usize::MAX) };
        let features = device.features();
        let pieces = usize::from(features.max_fragments).saturating_sub(1).max(1);
        // Leave room for headers within IPv4's length limit.
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
            // More pieces than the device takes: copy them into one.
            holds.into_iter().for_each(|hold| hold.let_go(cpu));
            return self.send_in_one(cpu, tcp, segment, &bytes[..length]);
        }
        let cut = data > u64::from(segment.size);
        // Pure acknowledgements may be reordered, and do not keep the flow in its queue (Linux:
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

    /// Sends a segment from a copy of its data, which has too many pieces.
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
            // The timer will send it again.
            tcp.means.count(|c| c.no_memory += 1);
        }
        holds.into_iter().for_each(|hold| hold.let_go(cpu));
    }
}
