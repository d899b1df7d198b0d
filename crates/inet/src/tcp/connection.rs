//! A connection: opening, closing, reading, writing, timers, and segments in and out.

use units::{Duration, Time};
use wire::ip::{TcpFlags, TcpHeader, TcpOptions};

use super::Payload;
use super::counters::Counters;
use super::ecn;
use super::params::{Agreed, KeepAlive, TcpParams};
use super::receiver::Receiver;
use super::segment::Segment;
use super::sender::{Sender, Span};

/// State of a connection (RFC 9293, 3.3.2). The owner handles listening.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)] // the RFC's names
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// Why a connection failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// No listener at the port.
    Refused,
    /// The peer reset it.
    Reset,
    /// The peer did not respond.
    TimedOut,
    /// Aborted locally.
    Aborted,
}

/// A connection: sending half, receiving half, and common state.
pub struct Connection<P> {
    params: TcpParams,
    state: State,
    failure: Option<Failure>,
    ports: (u16, u16),
    sender: Sender,
    receiver: Receiver<P>,
    /// No reader is left.
    orphan: bool,
    /// When a connection that waits for its peer's FIN ends without it.
    linger_until: Option<Time>,
    /// When the peer was last heard, and the number of probes since then.
    heard: (Time, u8),
    keep_alive: Option<KeepAlive>,
    /// A reset to send: sequence number, and acknowledgement if any.
    reset: Option<(u32, Option<u32>)>,
    /// Rejected segments, and keep-alive probes.
    refused: u64,
    keep_alives: u64,
}

impl<P: Payload> Connection<P> {
    fn new(params: TcpParams, ports: (u16, u16), initial: u32, state: State) -> Self {
        Self {
            state,
            failure: None,
            ports,
            sender: Sender::new(params, initial),
            receiver: Receiver::new(params),
            orphan: false,
            linger_until: None,
            heard: (Time::ZERO, 0),
            keep_alive: params.keep_alive,
            reset: None,
            refused: 0,
            keep_alives: 0,
            params,
        }
    }

    /// Opens a connection between two ports, with an initial sequence number.
    pub fn connect(params: TcpParams, ports: (u16, u16), initial: u32) -> Self {
        Self::new(params, ports, initial, State::SynSent)
    }

    /// Answers a SYN; `None` if the segment cannot open a connection.
    pub fn accept(params: TcpParams, initial: u32, syn: &TcpHeader) -> Option<Self> {
        let wrong = TcpFlags::ACK.with(TcpFlags::RST).with(TcpFlags::FIN);
        if !syn.flags.contains(TcpFlags::SYN) || syn.flags.0 & wrong.0 != 0 {
            return None;
        }
        let mut connection = Self::new(params, (syn.destination, syn.source), initial, State::SynReceived);
        connection.take_syn(syn);
        Some(connection)
    }

    /// Where it stands between opening and closing.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it failed, unless it was closed normally.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Local and remote port.
    pub fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// What both directions have counted so far.
    pub fn counters(&self) -> Counters {
        Counters {
            out_of_order: self.receiver.out_of_order(),
            marked: self.receiver.marked(),
            refused: self.refused,
            keep_alives: self.keep_alives,
            ..self.sender.counters()
        }
    }

    /// The smoothed round-trip time, if measured.
    pub fn round_trip(&self) -> Option<Duration> {
        self.sender.rtt().smoothed()
    }

    /// The next sequence number to send.
    pub fn sequence(&self) -> u32 {
        self.sender.number(self.sender.next())
    }

    /// Congestion window in bytes.
    pub fn congestion_window(&self) -> u64 {
        self.sender.congestion_window()
    }

    /// Whether data can be written, now or later.
    pub fn may_write(&self) -> bool {
        !self.sender.is_finished() && self.state != State::Closed
    }

    /// Appends `bytes` to the stream.
    ///
    /// # Panics
    /// If the stream has been closed for writing.
    pub fn write(&mut self, bytes: u64) {
        assert!(!self.sender.is_finished(), "nothing follows the end of a stream");
        self.sender.write(bytes);
    }

    /// Bytes written and not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        self.sender.end() - self.acknowledged() - 1
    }

    /// Bytes written but never sent.
    pub fn unsent(&self) -> u64 {
        self.sender.end().saturating_sub(self.sender.next().max(1))
    }

    /// Stream offset of the first unacknowledged byte.
    pub fn acknowledged(&self) -> u64 {
        self.sender.una().clamp(1, self.sender.end()) - 1
    }

    /// Disables or enables Nagle's algorithm.
    pub fn set_no_delay(&mut self, no_delay: bool) {
        self.sender.set_no_delay(no_delay);
    }

    /// Enables or disables keep-alive probes.
    pub fn set_keep_alive(&mut self, keep_alive: Option<KeepAlive>) {
        self.keep_alive = keep_alive;
    }

    /// Fixes the receive buffer size, independent of the reader's speed. The window offered so far stays valid.
    pub fn set_receive_buffer(&mut self, bytes: u32) {
        self.receiver.buffer.set_buffer(bytes.into());
    }

    /// The first piece ready to be read.
    pub fn peek(&self) -> Option<&P> {
        self.receiver.buffer.front()
    }

    /// Takes the first piece of received data. [`unread`](Self::unread) returns the unused rest.
    pub fn read(&mut self, now: Time) -> Option<P> {
        let rtt = self.sender.rtt().least();
        self.receiver.buffer.read(now, rtt)
    }

    /// Returns the unused rest of a piece.
    pub fn unread(&mut self, rest: P) {
        self.receiver.buffer.unread(rest);
    }

    /// Must be called when the reader pauses or has read everything: sends a window update or acknowledgement if
    /// needed.
    pub fn reading_done(&mut self) {
        if self.state != State::Closed {
            self.receiver.reading_done();
        }
    }

    /// Bytes ready to be read.
    pub fn readable(&self) -> u64 {
        self.receiver.buffer.ready_bytes()
    }

    /// Whether there is no memory for an arriving piece unless held data are [merged](Self::collapse).
    pub fn lacks_memory(&self, piece: &P) -> bool {
        self.receiver.buffer.lacks_memory(piece)
    }

    /// Merges pieces that use more than twice the memory that they show: `join` merges several adjacent ones, or
    /// returns them if it cannot. Data for which memory is still lacking are dropped and retransmitted later.
    pub fn collapse(&mut self, join: impl FnMut(Vec<P>) -> Result<P, Vec<P>>) {
        self.receiver.buffer.collapse(join);
    }

    /// Memory used by received data, bytes.
    pub fn memory(&self) -> u64 {
        self.receiver.buffer.memory()
    }

    /// Number of pieces dropped for lack of memory.
    pub fn pruned(&self) -> u64 {
        self.receiver.buffer.pruned()
    }

    /// Bytes held for the reader, including out-of-order data.
    pub fn held(&self) -> u64 {
        self.receiver.buffer.held_bytes()
    }

    /// Whether the peer has ended its stream and all of it has been read.
    pub fn at_end(&self) -> bool {
        let over = self.receiver.buffer.has_ended() || self.state == State::Closed;
        over && self.readable() == 0
    }

    /// Received data that are no longer needed; must be taken after each call.
    pub fn discarded(&mut self) -> std::vec::Drain<'_, P> {
        self.receiver.buffer.discarded()
    }

    /// Closes the stream for writing, after all data have been sent. Data can still be received.
    pub fn finish(&mut self) {
        match self.state {
            State::SynSent => self.end_now(None),
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => {}
        }
        self.sender.finish();
    }

    /// Closes the stream in both directions: data that still arrive are answered with a reset.
    pub fn close(&mut self, now: Time) {
        self.orphan = true;
        if self.readable() > 0 {
            // RFC 1122, 4.2.2.13: the peer must learn that data were lost.
            self.abort();
            return;
        }
        self.finish();
        if self.state == State::FinWait2 {
            self.linger_until = Some(now + self.params.fin_timeout);
        }
    }

    /// Aborts the connection and informs the peer.
    pub fn abort(&mut self) {
        if !matches!(self.state, State::SynSent | State::TimeWait | State::Closed) {
            self.reset = Some((self.sequence(), Some(self.receiver.acknowledgement())));
        }
        self.end_now(Some(Failure::Aborted));
    }

    /// Ends the connection.
    fn end_now(&mut self, failure: Option<Failure>) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.failure = self.failure.or(failure);
        self.linger_until = None;
        self.sender.stop();
        self.receiver.stop();
        match failure {
            Some(_) => self.receiver.buffer.clear(),
            // In-order data can still be read.
            None => self.receiver.buffer.forget_early(),
        }
    }

    /// Maximum data in a segment next to its current options.
    pub fn segment_room(&self) -> u64 {
        self.sender.mss() - self.receiver.options_len()
    }

    /// The connection's clock in milliseconds, as used in timestamps.
    fn clock(&self, now: Time) -> u32 {
        self.sender.number(now.as_ps() / 1_000_000_000)
    }

    /// When [`timer`](Self::timer) must be called at the latest.
    pub fn deadline(&self) -> Option<Time> {
        let all = [self.sender.deadline(), self.receiver.deadline(), self.linger_until, self.keep_alive_at()];
        all.into_iter().flatten().min()
    }

    /// Does whatever is due.
    pub fn timer(&mut self, now: Time) {
        if self.linger_until.is_some_and(|at| at <= now) {
            self.end_now(None);
        }
        self.receiver.timer(now);
        if self.sender.timer(now, self.segment_room()).is_err() {
            self.end_now(Some(Failure::TimedOut));
        }
        if self.keep_alive_at().is_some_and(|at| at <= now) {
            self.keep_alive_timer();
        }
    }

    /// When the next keep-alive probe is due, if nothing is in flight.
    fn keep_alive_at(&self) -> Option<Time> {
        let idle = (State::Established..State::TimeWait).contains(&self.state) && self.sender.is_idle();
        let keep = self.keep_alive.filter(|_| idle)?;
        let (heard, probes) = self.heard;
        Some(heard + keep.idle + Duration::from_ps(keep.interval.as_ps() * u64::from(probes)))
    }

    fn keep_alive_timer(&mut self) {
        if self.keep_alive.is_some_and(|keep| self.heard.1 >= keep.probes) {
            return self.end_now(Some(Failure::TimedOut));
        }
        self.heard.1 += 1;
        self.sender.probe();
        self.keep_alives += 1;
    }

    /// A segment of at most one MSS, for tests and owners that do not segment.
    pub fn transmit_one(&mut self, now: Time) -> Option<Segment> {
        self.transmit(now, 0)
    }

    // Processing of arriving segments (RFC 9293, 3.10.7).

    /// Processes a segment. `segments` is the number of segments that were aggregated into it, at least 1.
    pub fn receive(&mut self, now: Time, header: &TcpHeader, data: P, segments: u16) {
        self.heard = (now, 0);
        match self.state {
            State::Closed => self.receiver.buffer.discard(data),
            State::SynSent => {
                self.receiver.buffer.discard(data);
                self.receive_in_syn_sent(now, header);
            }
            _ => self.receive_synchronised(now, header, data, segments),
        }
    }

    /// A router has marked the segment that is [received](Self::receive) next.
    pub fn congestion_experienced(&mut self) {
        self.receiver.mark();
    }

    /// Takes over the options of a SYN.
    fn take_syn(&mut self, syn: &TcpHeader) {
        let agreed = Agreed::with(&self.params, syn);
        self.receiver.begin(syn, agreed);
        self.sender.begin(syn, agreed, self.receiver.options_len());
    }

    fn receive_in_syn_sent(&mut self, now: Time, header: &TcpHeader) {
        let has_ack = header.flags.contains(TcpFlags::ACK);
        let ack = self.sender.position(header.acknowledgement);
        let good_ack = has_ack && ack.is_some_and(|ack| ack > 0 && ack <= self.sender.next());
        if has_ack && !good_ack {
            if !header.flags.contains(TcpFlags::RST) {
                self.reset = Some((header.acknowledgement, None));
            }
            self.refused += 1;
            return;
        }
        if header.flags.contains(TcpFlags::RST) {
            if good_ack {
                self.end_now(Some(Failure::Refused));
            }
            return;
        }
        if !header.flags.contains(TcpFlags::SYN) {
            self.refused += 1;
            return;
        }
        self.take_syn(header);
        if good_ack {
            self.sender.opened(now, header);
            self.state = State::Established;
            self.receiver.acknowledge_now();
        } else {
            // Simultaneous open: the SYN is sent again, now with an acknowledgement.
            self.state = State::SynReceived;
            self.sender.open_again();
        }
    }

    fn receive_synchronised(&mut self, now: Time, header: &TcpHeader, data: P, segments: u16) {
        let flags = header.flags;
        let length = u64::from(data.len());
        let position = self.receiver.position(header.sequence);
        if self.receiver.is_too_old(header) && !flags.contains(TcpFlags::RST) {
            return self.refuse(data);
        }
        let Some(position) = position else { return self.refuse(data) };
        // Simultaneous open: the peer's answer repeats its known SYN (RFC 9293, figure 8).
        let answers = TcpFlags::SYN.with(TcpFlags::ACK);
        let (position, flags) = match self.state == State::SynReceived && position == 0 && flags == answers {
            true => (1, TcpFlags::ACK),
            false => (position, flags),
        };
        if !self.receiver.is_in_window(position, length, flags) {
            if flags.contains(TcpFlags::RST) {
                self.receiver.buffer.discard(data);
                self.refused += 1;
                return;
            }
            if self.state == State::TimeWait && flags.contains(TcpFlags::FIN) {
                self.linger_until = Some(now + self.params.time_wait);
            }
            if length > 0 && position + length <= self.receiver.buffer.next() {
                self.receiver.buffer.came_again(position, position + length);
            }
            // Its acknowledgement still counts: a peer probing a closed window may have no other way to report an
            // open one.
            self.take_ack_of_old(now, header, position);
            return self.refuse(data);
        }
        if flags.contains(TcpFlags::RST) {
            self.receiver.buffer.discard(data);
            // RFC 5961, 3.2: only a reset at exactly the next position is accepted.
            match position == self.receiver.buffer.next() {
                true => self.end_now(self.failure_of_reset()),
                false => self.receiver.acknowledge_now(),
            }
            return;
        }
        if flags.contains(TcpFlags::SYN) && position > 0 {
            // RFC 5961, 4.2.
            return self.refuse(data);
        }
        if !flags.contains(TcpFlags::ACK) {
            return self.refuse(data);
        }
        self.receiver.take_clock(position, header);
        let Some(ack) = self.sender.position(header.acknowledgement) else { return self.refuse(data) };
        if self.state == State::SynReceived {
            if ack == 0 || ack > self.sender.next() {
                self.receiver.buffer.discard(data);
                self.reset = Some((header.acknowledgement, None));
                return;
            }
            self.state = if self.sender.is_finished() { State::FinWait1 } else { State::Established };
            self.sender.take_first_window(position, ack, header.window);
        }
        if ack > self.sender.next() {
            return self.refuse(data);
        }
        self.receiver.take_marks(flags);
        self.sender.take_marks(now, flags, ack);
        self.take_ack(now, header, (position, ack), length > 0);
        if self.state == State::Closed {
            self.receiver.buffer.discard(data);
            return;
        }
        // A retransmitted SYN occupies one position.
        let position = position + u64::from(flags.contains(TcpFlags::SYN));
        self.take_data(now, position, data, flags.contains(TcpFlags::FIN), segments);
    }

    /// Only acknowledges what has been received.
    fn refuse(&mut self, data: P) {
        self.receiver.buffer.discard(data);
        self.refused += 1;
        self.receiver.acknowledge_now();
    }

    /// What the user is told. Once both ends have closed, a reset ends the connection without an error (RFC 9293, 3.10.7.4): the
    /// peer may answer a late acknowledgement with one when it has forgotten the connection.
    fn failure_of_reset(&self) -> Option<Failure> {
        match self.state {
            State::SynReceived => Some(Failure::Refused),
            State::Closing | State::LastAck | State::TimeWait => None,
            _ => Some(Failure::Reset),
        }
    }

    /// Processes the acknowledgement of a segment with useless data.
    fn take_ack_of_old(&mut self, now: Time, header: &TcpHeader, position: u64) {
        if !header.flags.contains(TcpFlags::ACK) || self.state <= State::SynReceived {
            return;
        }
        let ack = self.sender.position(header.acknowledgement);
        if let Some(ack) = ack.filter(|&ack| ack > self.sender.una() && ack <= self.sender.next()) {
            self.take_ack(now, header, (position, ack), true);
        }
    }

    /// Processes an acknowledgement up to `ack`, in a segment at `position`, with or without data.
    fn take_ack(&mut self, now: Time, header: &TcpHeader, (position, ack): (u64, u64), data: bool) {
        self.sender.take_ack(now, header, (position, ack), data, self.segment_room());
        if self.sender.is_end_acknowledged() {
            self.after_end_acknowledged(now);
        }
    }

    fn after_end_acknowledged(&mut self, now: Time) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.orphan {
                    self.linger_until = Some(now + self.params.fin_timeout);
                }
            }
            State::Closing => self.begin_time_wait(now),
            State::LastAck => self.end_now(None),
            _ => {}
        }
    }

    fn begin_time_wait(&mut self, now: Time) {
        self.state = State::TimeWait;
        self.linger_until = Some(now + self.params.time_wait);
    }

    fn take_data(&mut self, now: Time, position: u64, data: P, fin: bool, segments: u16) {
        let length = u64::from(data.len());
        let takes = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        if fin && takes && position + length <= self.receiver.buffer.offered() {
            self.receiver.buffer.ends_at(position + length);
        }
        if length > 0 {
            if !takes {
                self.receiver.buffer.discard(data);
                return self.receiver.acknowledge_now();
            }
            if self.orphan {
                self.receiver.buffer.discard(data);
                return self.abort();
            }
            self.receiver.take(now, position, data, segments);
        } else {
            self.receiver.buffer.discard(data);
        }
        if fin && !takes {
            self.receiver.acknowledge_now();
        }
        if self.receiver.pass_end() {
            self.after_peers_end(now);
        }
    }

    /// The end of the peer's stream has been reached.
    fn after_peers_end(&mut self, now: Time) {
        match self.state {
            State::Established => self.state = State::CloseWait,
            // The acknowledgement of our FIN came before, or is still to come.
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.begin_time_wait(now),
            _ => {}
        }
    }

    // Building of segments.

    /// The next segment to send, with up to `limit` bytes of data, but at least one segment's; `None` if there is
    /// nothing to send now.
    pub fn transmit(&mut self, now: Time, limit: u32) -> Option<Segment> {
        if let Some((sequence, ack)) = self.reset.take() {
            return Some(self.reset_segment(sequence, ack));
        }
        if self.state == State::Closed {
            return None;
        }
        let size = self.segment_room();
        match self.sender.take_span(now, limit, size) {
            Some(span) if span.from == 0 => Some(self.syn(now, span.again)),
            Some(span) => Some(self.segment(now, span, size)),
            None => self.bare(now),
        }
    }

    /// The next segment that must not wait in a queue of data: a reset, a SYN, an acknowledgement or a probe.
    pub fn transmit_control(&mut self, now: Time) -> Option<Segment> {
        if self.reset.is_some() || self.sender.next() == 0 {
            return self.transmit(now, 0);
        }
        if self.state == State::Closed { None } else { self.bare(now) }
    }

    fn header(&self, sequence: u32, flags: TcpFlags) -> TcpHeader {
        TcpHeader { source: self.ports.0, destination: self.ports.1, sequence, flags, ..TcpHeader::default() }
    }

    /// A header including the receiver's information.
    fn header_with_ack(&mut self, now: Time, position: u64, flags: TcpFlags) -> TcpHeader {
        let mut header = self.header(self.sender.number(position), flags);
        self.receiver.acknowledge(&mut header, self.sender.mss(), self.clock(now));
        header
    }

    fn syn(&mut self, now: Time, again: bool) -> Segment {
        let answers = self.state != State::SynSent;
        let agreed = self.receiver.agreed();
        // Only answers what the peer offered.
        let may = |wanted: bool, offered: bool| wanted && (offered || !answers);
        let flags = ecn::syn_flags(self.params.ecn, answers, agreed.ecn, again);
        let mut header = self.header(self.sender.number(0), TcpFlags::SYN.with(flags));
        header.options = TcpOptions {
            mss: Some(self.params.mss),
            window_scale: may(self.params.window_scaling, agreed.scaling).then(|| self.params.window_shift()),
            sack_permitted: may(self.params.sack, agreed.sack),
            ..TcpOptions::default()
        };
        self.receiver.open(&mut header, answers, self.clock(now));
        Segment { header, data: 0..0, size: 0, again, ecn: false }
    }

    fn reset_segment(&self, sequence: u32, ack: Option<u32>) -> Segment {
        let flags = if ack.is_some() { TcpFlags::RST.with(TcpFlags::ACK) } else { TcpFlags::RST };
        let header = TcpHeader { acknowledgement: ack.unwrap_or(0), ..self.header(sequence, flags) };
        Segment { header, data: 0..0, size: 0, again: false, ecn: false }
    }

    /// A span as a segment; its segments on the wire hold at most `size` bytes.
    fn segment(&mut self, now: Time, span: Span, size: u64) -> Segment {
        let Span { from, to, again } = span;
        let end = self.sender.end();
        let data = from..to.min(end).max(from);
        let fresh = !again && !data.is_empty();
        let mut flags = TcpFlags::default();
        // The end of the stream occupies a position.
        if to > end {
            flags = flags.with(TcpFlags::FIN);
        }
        if data.end == end && !data.is_empty() {
            flags = flags.with(TcpFlags::PSH);
        }
        if fresh {
            flags = flags.with(self.sender.take_answer());
            self.receiver.answers_with_data();
        }
        let ecn = self.sender.may_mark(fresh);
        let header = self.header_with_ack(now, from, flags);
        Segment { header, data: data.start - 1..data.end - 1, size: size as u16, again, ecn }
    }

    /// An acknowledgement or a probe, without data.
    fn bare(&mut self, now: Time) -> Option<Segment> {
        let probe = self.sender.take_probe();
        if !probe && (!self.receiver.must_acknowledge() || self.state == State::SynSent) {
            return None;
        }
        // A probe repeats an old position, so the peer answers with its window.
        let position = if probe { self.sender.una() - 1 } else { self.sender.next() };
        let header = self.header_with_ack(now, position, TcpFlags::default());
        Some(Segment { header, data: 0..0, size: 0, again: false, ecn: false })
    }
}
