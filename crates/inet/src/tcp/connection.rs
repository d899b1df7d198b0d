//! A connection: opening, closing, reading, writing, and what happens when nothing happens.

use units::{Duration, Time};
use wire::ip::{TcpFlags, TcpHeader};

use super::Payload;
use super::output::Segment;
use super::params::{KeepAlive, TcpParams};
use super::receiver::Receiver;
use super::sender::Sender;

/// Where a connection is in its life (RFC 9293, 3.3.2). Listening is its owner's business.
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

/// Why a connection ended before its time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// Nobody listens there.
    Refused,
    /// The peer reset it.
    Reset,
    /// The peer does not answer.
    TimedOut,
    /// This side gave it up.
    Aborted,
}

/// What happened to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Segments sent again.
    pub retransmissions: u64,
    /// Times that the retransmission timer went off.
    pub timeouts: u64,
    /// Fast recoveries begun.
    pub recoveries: u64,
    /// Acknowledgements that acknowledged nothing new.
    pub duplicate_acks: u64,
    /// Times that the peer told of something that had come again (D-SACK).
    pub repetitions: u64,
    /// Times that a reduction of the window was undone, as nothing had been lost.
    pub undone: u64,
    /// Segments that came before others that were sent earlier.
    pub out_of_order: u64,
    /// Segments refused for their numbers, timestamps or flags.
    pub refused: u64,
    /// Probes of a window of zero.
    pub probes: u64,
    /// Probes of a tail of which nothing was heard.
    pub tail_probes: u64,
    /// Segments that routers had marked.
    pub marked: u64,
    /// Times that the peer told of marked ones, and the window was reduced.
    pub echoes: u64,
    /// Probes whether the peer is still there.
    pub keep_alives: u64,
}

/// A connection: two halves, and what concerns both.
pub struct Connection<P> {
    pub(super) params: TcpParams,
    pub(super) state: State,
    failure: Option<Failure>,
    pub(super) ports: (u16, u16),
    pub(super) sender: Sender,
    pub(super) receiver: Receiver<P>,
    /// Nobody will read any more.
    pub(super) orphan: bool,
    /// When a connection that waits for its peer's last word ends without it.
    pub(super) linger_until: Option<Time>,
    /// When the peer was heard last, and the probes since then.
    pub(super) heard: (Time, u8),
    keep_alive: Option<KeepAlive>,
    /// A reset to be sent: sequence number, and acknowledgement if it has one.
    pub(super) reset: Option<(u32, Option<u32>)>,
    /// Segments refused, and probes of an idle connection.
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

    /// Opens a connection from a port to a port, with an initial sequence number.
    pub fn connect(params: TcpParams, ports: (u16, u16), initial: u32) -> Self {
        Self::new(params, ports, initial, State::SynSent)
    }

    /// Answers a SYN; `None` if the segment is none that could open a connection.
    pub fn accept(params: TcpParams, initial: u32, syn: &TcpHeader) -> Option<Self> {
        let wrong = TcpFlags::ACK.with(TcpFlags::RST).with(TcpFlags::FIN);
        if !syn.flags.contains(TcpFlags::SYN) || syn.flags.0 & wrong.0 != 0 {
            return None;
        }
        let mut connection = Self::new(params, (syn.destination, syn.source), initial, State::SynReceived);
        connection.take_syn(syn);
        Some(connection)
    }

    /// Where it is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it ended, if it did not end by closing.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Own port and the peer's.
    pub fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// What happened to it.
    pub fn counters(&self) -> Counters {
        Counters {
            out_of_order: self.receiver.out_of_order(),
            marked: self.receiver.marked(),
            refused: self.refused,
            keep_alives: self.keep_alives,
            ..self.sender.counters()
        }
    }

    /// The smoothed round-trip time, if one was measured.
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

    /// So many bytes follow in the stream.
    ///
    /// # Panics
    /// Behind the end of the stream.
    pub fn write(&mut self, bytes: u64) {
        assert!(!self.sender.is_finished(), "nothing follows the end of a stream");
        self.sender.write(bytes);
    }

    /// Bytes written and not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        self.sender.end() - self.acknowledged() - 1
    }

    /// Bytes written and never sent.
    pub fn unsent(&self) -> u64 {
        self.sender.end().saturating_sub(self.sender.next().max(1))
    }

    /// Offset in the stream of the first byte that the peer has not acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.sender.una().clamp(1, self.sender.end()) - 1
    }

    /// Sends what there is at once, or waits as Nagle's algorithm does.
    pub fn set_no_delay(&mut self, no_delay: bool) {
        self.sender.set_no_delay(no_delay);
    }

    /// Asks an idle connection's peer now and then whether it is still there, or does not.
    pub fn set_keep_alive(&mut self, keep_alive: Option<KeepAlive>) {
        self.keep_alive = keep_alive;
    }

    /// Holds so many bytes for the reader from now on, whatever it takes at once. What has been offered stays offered.
    pub fn set_receive_buffer(&mut self, bytes: u32) {
        self.receiver.buffer.set_buffer(bytes.into());
    }

    /// The first piece that waits to be read.
    pub fn peek(&self) -> Option<&P> {
        self.receiver.buffer.front()
    }

    /// Takes the first piece of received data. What is not used up can be [put back](Self::unread).
    pub fn read(&mut self, now: Time) -> Option<P> {
        let rtt = self.sender.rtt().least();
        self.receiver.buffer.read(now, rtt)
    }

    /// Puts back what is left of a piece.
    pub fn unread(&mut self, rest: P) {
        self.receiver.buffer.unread(rest);
    }

    /// The reader pauses or has read all: is the window to be announced, or an acknowledgement due?
    pub fn reading_done(&mut self) {
        if self.state != State::Closed {
            self.receiver.reading_done();
        }
    }

    /// Bytes that wait to be read.
    pub fn readable(&self) -> u64 {
        self.receiver.buffer.ready_bytes()
    }

    /// Whether a piece that arrives finds no memory, unless what is held is [put together](Self::collapse).
    pub fn lacks_memory(&self, piece: &P) -> bool {
        self.receiver.buffer.lacks_memory(piece)
    }

    /// Puts pieces together that keep more than twice the memory that they show: `join` makes one of several that follow
    /// each other, or gives them back if it cannot. What finds no memory afterwards is let go and comes again.
    pub fn collapse(&mut self, join: impl FnMut(Vec<P>) -> Result<P, Vec<P>>) {
        self.receiver.buffer.collapse(join);
    }

    /// Bytes of memory that received data keeps.
    pub fn memory(&self) -> u64 {
        self.receiver.buffer.memory()
    }

    /// Pieces that were let go for want of memory.
    pub fn pruned(&self) -> u64 {
        self.receiver.buffer.pruned()
    }

    /// Bytes held for the reader, those that came too early among them.
    pub fn held(&self) -> u64 {
        self.receiver.buffer.held_bytes()
    }

    /// The peer has ended its stream and all of it has been read.
    pub fn at_end(&self) -> bool {
        let over = self.receiver.buffer.has_ended() || self.state == State::Closed;
        over && self.readable() == 0
    }

    /// What was received and is of no use; to be taken away after each call.
    pub fn discarded(&mut self) -> std::vec::Drain<'_, P> {
        self.receiver.buffer.discarded()
    }

    /// Ends the stream: the peer is told when all has been sent. Data can still be received.
    pub fn finish(&mut self) {
        match self.state {
            State::SynSent => self.end_now(None),
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => {}
        }
        self.sender.finish();
    }

    /// Ends the stream, and nobody will read: data that still comes is answered with a reset.
    pub fn close(&mut self, now: Time) {
        self.orphan = true;
        if self.readable() > 0 {
            // RFC 1122, 4.2.2.13: the peer shall know that data was lost.
            self.abort();
            return;
        }
        self.finish();
        if self.state == State::FinWait2 {
            self.linger_until = Some(now + self.params.fin_timeout);
        }
    }

    /// Gives the connection up and tells the peer.
    pub fn abort(&mut self) {
        if !matches!(self.state, State::SynSent | State::TimeWait | State::Closed) {
            self.reset = Some((self.sequence(), Some(self.receiver.acknowledgement())));
        }
        self.end_now(Some(Failure::Aborted));
    }

    /// It is over.
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
            // What came in order can still be read.
            None => self.receiver.buffer.forget_early(),
        }
    }

    /// Data that fits into a segment beside the options that it has now.
    pub fn segment_room(&self) -> u64 {
        self.sender.mss() - self.receiver.options_len()
    }

    /// The connection's time in milliseconds, as its timestamps tell it.
    pub(super) fn clock(&self, now: Time) -> u32 {
        self.sender.number(now.as_ps() / 1_000_000_000)
    }

    /// When [`timer`](Self::timer) is to be called at the latest.
    pub fn deadline(&self) -> Option<Time> {
        let all = [self.sender.deadline(), self.receiver.deadline(), self.linger_until, self.keep_alive_at()];
        all.into_iter().flatten().min()
    }

    /// Does what is due.
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

    /// When the peer is to be asked whether it is there: only of a connection on which nothing is under way.
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

    /// A segment for tests and owners that do not cut: at most one MSS.
    pub fn transmit_one(&mut self, now: Time) -> Option<Segment> {
        self.transmit(now, 0)
    }
}
