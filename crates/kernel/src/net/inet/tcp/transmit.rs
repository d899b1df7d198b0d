//! TCP transmit: sends as many segments as allowed, each in as few pieces as the device takes.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use inet::tcp::{Connection, Segment as TcpSegment};
use platform::Error;
use platform::cpu::{Cpu, Part};
use platform::memory::{Pages, PhysAddr};
use platform::net::{Fragment, TxFlow};
use units::{Duration, Time};
use wire::ip::{TcpFlags, protocol};

use super::super::buffers::{Hold, Piece, Sender, waits_below};
use super::super::output::Outgoing;
use super::super::upward::Ends;
use super::Tcp;
use super::buffer::{ORDER, SendBuffer};

/// Most bytes of a connection in the device and its queue (Linux: TCP small queues, `tcp_limit_output_bytes`).
const MOST_BELOW: u64 = 262_144;

/// How long to keep pages for future writes once all data is acknowledged (assumed: Linux keeps such pages with the
/// writing task, so that idle connections have none).
const KEEP_PAGES: Duration = Duration::from_ms(1000);

/// What a connection sends: its data, and how much of it may be below.
pub(super) struct Transmit {
    ends: Ends,
    /// Charged for packets.
    socket: Weak<dyn Sender>,
    buffer: RefCell<SendBuffer>,
    flow: Rc<TxFlow>,
    /// Data waits until the device has sent more.
    held_back: Cell<bool>,
    /// When the pages kept for future writes are freed.
    pages_until: Cell<Option<Time>>,
}

impl Transmit {
    pub fn new(ends: Ends, socket: Weak<dyn Sender>) -> Self {
        Self {
            ends,
            socket,
            buffer: RefCell::default(),
            flow: Rc::default(),
            held_back: Cell::new(false),
            pages_until: Cell::new(None),
        }
    }

    /// Copies user memory into the buffer's pages. Returns the bytes copied.
    pub fn copy_in(&self, cpu: &Cpu, tcp: &Tcp, from: PhysAddr, most: u64) -> Result<u64, Error> {
        let room = self.buffer.borrow().room();
        let (at, room) = match room {
            Some(room) => room,
            None => {
                let pages = Hold::pages(tcp.means.memory(), cpu, ORDER)?;
                self.buffer.borrow_mut().open(cpu, pages);
                self.buffer.borrow().room().ok_or(Error::NoMemory)?
            }
        };
        let length = room.min(most);
        {
            let _part = cpu.book(Part::Copy);
            cpu.copy(at, from, length);
        }
        self.buffer.borrow_mut().filled(length as u32);
        Ok(length)
    }

    /// Adds memory to the data without a copy.
    pub fn append(&self, at: PhysAddr, length: u32, hold: Hold) {
        self.buffer.borrow_mut().append(at, length, hold);
    }

    /// When pages kept for future writes should be freed.
    pub fn deadline(&self) -> Option<Time> {
        self.pages_until.get()
    }

    /// Frees pages kept for future writes, if that is due.
    pub fn timer(&self, cpu: &Cpu) {
        if self.pages_until.get().is_some_and(|until| until <= cpu.now()) {
            self.clear(cpu);
        }
    }

    /// Frees all memory: nothing will be sent any more.
    pub fn clear(&self, cpu: &Cpu) {
        self.buffer.borrow_mut().clear(cpu);
    }

    /// Whether data waits that can be sent now.
    pub fn may_go_on(&self) -> bool {
        self.held_back.get() && !self.is_full_below()
    }

    /// Whether the connection has reached its limit in the device and its queue.
    fn is_full_below(&self) -> bool {
        waits_below(&self.flow) >= MOST_BELOW
    }

    /// Sends what can be sent.
    pub fn send_segments(&self, cpu: &Cpu, tcp: &Tcp, shared: &RefCell<Connection<Piece>>) {
        let (limit, pieces) = self.limits(tcp);
        self.held_back.set(false);
        loop {
            let full = self.is_full_below();
            let mut connection = shared.borrow_mut();
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
        let (acknowledged, may_write) = (shared.borrow().acknowledged(), shared.borrow().may_write());
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
    fn whole_packet(&self, tcp: &Tcp, connection: &Connection<Piece>) -> u64 {
        let segment = connection.segment_room();
        (u64::from(self.limits(tcp).0) / segment * segment).max(segment)
    }

    /// Number of full packets that wait to be sent.
    pub fn whole_packets(&self, tcp: &Tcp, connection: &Connection<Piece>) -> u64 {
        connection.unsent() / self.whole_packet(tcp, connection)
    }

    /// Whether the end of a program's write is held back. With autocorking, a partial packet waits while the device
    /// still has packets of the connection, as the program may write more (Linux: `tcp_autocorking`, on since 3.14).
    pub fn corks(&self, tcp: &Tcp, connection: &Connection<Piece>) -> bool {
        let rest = connection.unsent();
        let corks = tcp.params.autocorking
            && rest > 0
            && rest < self.whole_packet(tcp, connection)
            && waits_below(&self.flow) > 0;
        if corks {
            self.held_back.set(true);
        }
        corks
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
                socket: Some(self.socket.clone()),
                ecn: segment.ecn,
                ..Outgoing::bare(own, peer, protocol::TCP, &bytes[..length])
            },
        );
    }

    /// Sends a segment from a copy of its data, which has too many pieces.
    fn send_in_one(&self, cpu: &Cpu, tcp: &Tcp, segment: &TcpSegment, header: &[u8]) {
        let (runs, holds) = self.buffer.borrow().runs(segment.data.clone(), usize::MAX);
        let length: u64 = runs.iter().map(|f| u64::from(f.length)).sum();
        let order = Pages::order_for(length);
        let copy = Hold::pages(tcp.means.memory(), cpu, order);
        if let Ok(copy) = copy {
            if copy.pages.len() >= length {
                let mut done = 0;
                for run in &runs {
                    cpu.copy(copy.pages.start + done, run.at, run.length.into());
                    done += u64::from(run.length);
                }
                let fragment = Fragment { pages: None, at: copy.pages.start, length: length as u32 };
                let (own, peer) = (*self.ends.local.ip(), *self.ends.peer.ip());
                let _ = tcp.output.send(
                    cpu,
                    Outgoing {
                        payload: vec![fragment],
                        holds: vec![Hold::Pages(copy)],
                        segment: if length > u64::from(segment.size) { segment.size } else { 0 },
                        flow: Some(&self.flow),
                        socket: Some(self.socket.clone()),
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
