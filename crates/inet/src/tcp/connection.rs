//! A connection: opening, closing, reading, writing, and timers.

use units::{Duration, Time};
use wire::ip::{TcpFlags, TcpHeader};

use super::Payload;
use super::output::Segment;
use super::params::{KeepAlive, TcpParams};
use super::receiver::Receiver;
use super::sender::Sender;

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

/// Counters of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Retransmitted segments.
    pub retransmissions: u64,
    /// Expirations of the retransmission timer.
    pub timeouts: u64,
    /// Fast recoveries started.
    pub recoveries: u64,
    /// Acknowledgements without progress.
    pub duplicate_acks: u64,
    /// Duplicates reported by the peer (D-SACK).
    pub repetitions: u64,
    /// Window reductions undone because nothing was lost.
    pub undone: u64,
    /// Segments that arrived out of order.
    pub out_of_order: u64,
    /// Segments rejected for their numbers, timestamps or flags.
    pub refused: u64,
    /// Zero-window probes.
    pub probes: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// Segments marked by routers.
    pub marked: u64,
    /// Reports of marks by the peer that reduced the window.
    pub echoes: u64,
    /// Keep-alive probes.
    pub keep_alives: u64,
}

/// A connection: sending half, receiving half, and common state.
pub struct Connection<P> {
    pub(super) params: TcpParams,
    pub(super) state: State,
    failure: Option<Failure>,
    pub(super) ports: (u16, u16),
    pub(super) sender: Sender,
    pub(super) receiver: Receiver<P>,
    /// No reader is left.
    pub(super) orphan: bool,
    /// When a connection that waits for its peer's FIN ends without it.
    pub(super) linger_until: Option<Time>,
    /// When the peer was last heard, and the number of probes since then.
    pub(super) heard: (Time, u8),
    keep_alive: Option<KeepAlive>,
    /// A reset to send: sequence number, and acknowledgement if any.
    pub(super) reset: Option<(u32, Option<u32>)>,
    /// Rejected segments, and keep-alive probes.
    pub(super) refused: u64,
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

    /// Its state.
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

    /// Its counters.
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
    pub(super) fn end_now(&mut self, failure: Option<Failure>) {
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
    pub(super) fn clock(&self, now: Time) -> u32 {
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
}
