//! Two ends, what lies between them, and a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use inet::tcp::{Connection, Failure, Segment, State, TcpParams, reset_for};
use units::{Duration, Time};
use wire::ip::{TcpFlags, TcpHeader};

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

/// A small generator (SplitMix64), so that a failure is reproduced by its seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn chance(&mut self, per_mille: u16) -> bool {
        self.below(1000) < per_mille.into()
    }
}

/// What a network does to packets, in thousandths of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u16,
    pub damage: u16,
    pub repeat: u16,
    pub reorder: u16,
}

pub struct End {
    pub tcp: Connection<Vec<u8>>,
    pub to_send: Vec<u8>,
    pub written: usize,
    /// What has been written and not acknowledged may be no more.
    pub send_buffer: usize,
    pub received: Vec<u8>,
    pub limit: u32,
    /// Reads at most so many bytes at a time.
    pub reads: usize,
}

impl End {
    pub fn new(tcp: Connection<Vec<u8>>, to_send: Vec<u8>) -> Self {
        Self {
            tcp,
            to_send,
            written: 0,
            send_buffer: 1 << 20,
            received: Vec::new(),
            limit: 1448,
            reads: usize::MAX,
        }
    }

    pub fn bytes(&self, segment: &Segment) -> Vec<u8> {
        let payload = &self.to_send[segment.data.start as usize..segment.data.end as usize];
        let mut bytes = vec![0; segment.header.len()];
        segment.header.emit(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }
}

pub struct Network {
    pub now: Time,
    pub ends: [Option<End>; 2],
    pub wire: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    /// Numbers of packets that were marked.
    pub with_mark: BTreeSet<u64>,
    pub count: u64,
    pub faults: Faults,
    pub random: Random,
    pub delay: Duration,
    pub params: TcpParams,
    pub answer: Vec<u8>,
    pub segments: u64,
    pub listening: bool,
    /// Ends do not close when they have written everything.
    pub keep_open: bool,
    /// Microseconds by which a packet may be late, if any is.
    pub latest: u64,
    /// Marks packets that may be marked, in thousandths of them.
    pub marks: u16,
    pub marked: u64,
}

impl Network {
    pub fn new(params: TcpParams, faults: Faults, seed: u64, question: Vec<u8>, answer: Vec<u8>) -> Self {
        let mut random = Random(seed);
        let initial = random.next() as u32;
        let client = Connection::connect(params, (40_000, 80), initial);
        Self {
            now: Time::from_ps(1_000_000_000_000),
            ends: [Some(End::new(client, question)), None],
            wire: BTreeMap::new(),
            with_mark: BTreeSet::new(),
            count: 0,
            faults,
            random,
            delay: Duration::from_us(50),
            params,
            answer,
            segments: 0,
            listening: true,
            keep_open: false,
            latest: 200,
            marks: 0,
            marked: 0,
        }
    }

    pub fn send(&mut self, from: usize, mut bytes: Vec<u8>, ecn: bool) {
        self.segments += 1;
        TcpHeader::fill_checksum(&mut bytes, ADDRESSES[from], ADDRESSES[1 - from]);
        if self.random.chance(self.faults.loss) {
            return;
        }
        let copies = 1 + u64::from(self.random.chance(self.faults.repeat));
        for _ in 0..copies {
            let mut bytes = bytes.clone();
            if self.random.chance(self.faults.damage) {
                let bit = self.random.below(bytes.len() as u64 * 8);
                bytes[bit as usize / 8] ^= 1 << (bit % 8);
            }
            let extra =
                if self.random.chance(self.faults.reorder) { self.random.below(self.latest) } else { 0 };
            self.count += 1;
            if ecn && self.random.chance(self.marks) {
                self.with_mark.insert(self.count);
                self.marked += 1;
            }
            let at = self.now + self.delay + Duration::from_us(extra);
            self.wire.insert((at, self.count), (1 - from, bytes));
        }
    }

    /// Lets an end write, send and read.
    pub fn serve(&mut self, who: usize) {
        let Some(mut end) = self.ends[who].take() else { return };
        let before = self.segments;
        loop {
            assert!(self.segments - before < 20_000, "it sends without end: {:?}", end.tcp.state());
            let room = end.send_buffer.saturating_sub(end.tcp.unacknowledged() as usize);
            let more = (end.to_send.len() - end.written).min(room);
            let open = !matches!(end.tcp.state(), State::SynSent | State::SynReceived);
            if open && end.tcp.may_write() {
                end.tcp.write(more as u64);
                end.written += more;
                if end.written == end.to_send.len() && !self.keep_open {
                    end.tcp.finish();
                }
            }
            let mut left = end.reads;
            while left > 0
                && let Some(mut data) = end.tcp.read(self.now)
            {
                let rest = data.split_off(data.len().min(left));
                left -= data.len();
                end.received.extend(data);
                if !rest.is_empty() {
                    end.tcp.unread(rest);
                }
            }
            end.tcp.reading_done();
            end.tcp.discarded().for_each(drop);
            let Some(segment) = end.tcp.transmit(self.now, end.limit) else { break };
            let bytes = end.bytes(&segment);
            self.cut(who, &segment, bytes);
        }
        self.ends[who] = Some(end);
    }

    /// Cuts a large segment as a device would.
    pub fn cut(&mut self, who: usize, segment: &Segment, bytes: Vec<u8>) {
        let head = segment.header.len();
        if bytes.len() - head <= usize::from(segment.size).max(1) {
            return self.send(who, bytes, segment.ecn);
        }
        let pieces: Vec<&[u8]> = bytes[head..].chunks(segment.size.into()).collect();
        for (n, piece) in pieces.iter().enumerate() {
            let mut header = segment.header;
            header.sequence = header.sequence.wrapping_add(n as u32 * u32::from(segment.size));
            if n + 1 < pieces.len() {
                header.flags = header.flags.without(TcpFlags::FIN).without(TcpFlags::PSH);
            }
            if n > 0 {
                header.flags = header.flags.without(TcpFlags::CWR);
            }
            let mut bytes = vec![0; head];
            header.emit(&mut bytes);
            bytes.extend_from_slice(piece);
            self.send(who, bytes, segment.ecn);
        }
    }

    pub fn arrive(&mut self, who: usize, bytes: &[u8], marked: bool) {
        if !TcpHeader::checksum_is_right(bytes, ADDRESSES[1 - who], ADDRESSES[who]) {
            return;
        }
        let (header, len) = TcpHeader::parse(bytes).expect("what has its checksum is whole");
        let data = bytes[len..].to_vec();
        if let Some(end) = &mut self.ends[who] {
            if marked {
                end.tcp.congestion_experienced();
            }
            return end.tcp.receive(self.now, &header, data, 1);
        }
        let initial = self.random.next() as u32;
        match Connection::accept(self.params, initial, &header).filter(|_| self.listening) {
            Some(tcp) => {
                let limit = self.ends[0].as_ref().map_or(1448, |end| end.limit);
                let mut end = End::new(tcp, self.answer.clone());
                end.limit = limit;
                self.ends[who] = Some(end);
            }
            None => {
                if let Some(reset) = reset_for(&header, data.len() as u32) {
                    let mut bytes = vec![0; reset.len()];
                    reset.emit(&mut bytes);
                    self.send(who, bytes, false);
                }
            }
        }
    }

    /// The next thing that happens; `false` if nothing will.
    pub fn step(&mut self) -> bool {
        let deadline = |end: &Option<End>| end.as_ref().and_then(|end| end.tcp.deadline());
        let timers = self.ends.iter().filter_map(deadline).min();
        let arrival = self.wire.first_key_value().map(|(key, _)| key.0);
        let Some(next) = timers.into_iter().chain(arrival).min() else { return false };
        self.now = self.now.max(next);
        if arrival == Some(next) {
            let ((_, number), (who, bytes)) = self.wire.pop_first().unwrap();
            let marked = self.with_mark.remove(&number);
            self.arrive(who, &bytes, marked);
            self.serve(who);
        } else {
            for who in 0..2 {
                let now = self.now;
                if let Some(end) = &mut self.ends[who] {
                    end.tcp.timer(now);
                }
                self.serve(who);
            }
        }
        true
    }

    pub fn run(&mut self) {
        self.serve(0);
        let mut steps = 0;
        loop {
            // A slow reader goes on reading, whether anything arrives or not.
            let waits = |end: &Option<End>| end.as_ref().is_some_and(|e| e.tcp.readable() > 0 && e.reads > 0);
            let readers: Vec<usize> = (0..2).filter(|&who| waits(&self.ends[who])).collect();
            readers.iter().for_each(|&who| self.serve(who));
            if !self.step() && readers.is_empty() {
                break;
            }
            steps += 1;
            assert!(steps < 100_000, "it goes on for ever: {:?}", self.states());
        }
    }

    pub fn states(&self) -> Vec<Option<(State, Option<Failure>, usize)>> {
        let state = |end: &Option<End>| {
            end.as_ref().map(|end| (end.tcp.state(), end.tcp.failure(), end.received.len()))
        };
        self.ends.iter().map(state).collect()
    }

    pub fn end_state(&self, who: usize) -> Option<State> {
        self.ends[who].as_ref().map(|end| end.tcp.state())
    }

    pub fn end(&self, who: usize) -> &End {
        self.ends[who].as_ref().expect("it is open")
    }

    pub fn assert_identical(&self) {
        let (a, b) = (self.end(0), self.end(1));
        assert_eq!(b.received.len(), a.to_send.len(), "{:?}", self.states());
        assert!(b.received == a.to_send, "the question differs");
        assert!(a.received == b.to_send, "the answer differs");
        for who in 0..2 {
            assert_eq!(self.end(who).tcp.state(), State::Closed);
            assert_eq!(self.end(who).tcp.failure(), None);
        }
    }
}

pub fn stream(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..length).map(|_| random.next() as u8).collect()
}

pub fn params() -> TcpParams {
    // Enough retries for networks that lose a quarter.
    TcpParams { retries: 60, syn_retries: 60, rto_max: Duration::from_ms(2000), ..TcpParams::linux(1500) }
}
