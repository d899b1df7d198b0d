//! A connection: its variables, opening, closing, reading, writing.

use units::{Duration, Time};
use wire::ip::{TcpFlags, TcpHeader};

use super::Payload;
use super::congestion::CongestionControl;
use super::ecn::Ecn;
use super::flight::Flight;
use super::output::Segment;
use super::params::{KeepAlive, TcpParams};
use super::rack::Rack;
use super::receive::Receive;
use super::rtt::RttEstimator;
use super::tail::TailProbe;
use super::undo::Undo;

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

/// How loss is being recovered from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recovery {
    /// Nothing is known to be lost.
    Open,
    /// Fast recovery until `point` is acknowledged.
    Fast { point: u64 },
    /// After a timeout, until `point` is acknowledged.
    Timeout { point: u64 },
}

/// A connection.
pub struct Connection<P> {
    pub(super) params: TcpParams,
    pub(super) state: State,
    pub(super) failure: Option<Failure>,
    pub(super) ports: (u16, u16),

    // Sending. Positions are counted from the SYN, which is 0; data begins at 1.
    pub(super) initial: u32,
    /// Oldest position that is not acknowledged.
    pub(super) una: u64,
    /// Next position to send.
    pub(super) nxt: u64,
    /// Position behind the last byte written.
    pub(super) end: u64,
    /// Nothing more will be written.
    pub(super) finished: bool,
    /// Small segments wait for more data.
    pub(super) corked: bool,
    /// Right edge of the peer's window.
    pub(super) peer_edge: u64,
    /// The largest window that the peer ever offered.
    pub(super) peer_window_most: u64,
    /// Segment and acknowledgement that changed the window last.
    pub(super) window_by: (u64, u64),
    pub(super) peer_shift: u8,
    pub(super) peer_mss: u16,
    /// End of the last segment that was not full.
    pub(super) small_end: u64,
    pub(super) flight: Flight,
    pub(super) rack: Rack,
    pub(super) tail: TailProbe,
    pub(super) ecn: Ecn,
    pub(super) sack: bool,
    pub(super) duplicates: u64,
    pub(super) recovery: Recovery,
    /// The next that is lost goes out whatever the congestion window says.
    pub(super) must_resend: bool,
    /// What may turn out not to have been lost.
    pub(super) undo: Undo,
    pub(super) congestion: Box<dyn CongestionControl>,
    /// Where the congestion window last stopped us.
    pub(super) limited_at: u64,
    pub(super) rtt: RttEstimator,
    /// A position whose acknowledgement ends a measurement, and when it was sent.
    pub(super) timing: Option<(u64, Time)>,
    pub(super) last_sent: Time,

    // Receiving.
    pub(super) peer_initial: u32,
    pub(super) receive: Receive<P>,
    pub(super) shift: u8,
    pub(super) timestamps: bool,
    /// The peer's clock to echo.
    pub(super) recent: u32,
    /// Position that the last acknowledgement sent.
    pub(super) acked_to: u64,
    pub(super) ack_now: bool,
    pub(super) ack_at: Option<Time>,
    pub(super) quick: u8,
    /// Payload of the peer's largest segment.
    pub(super) peer_segment: u32,

    // Timers.
    pub(super) resend_at: Option<Time>,
    /// When more counts as lost, if it has not arrived.
    pub(super) reorder_at: Option<Time>,
    pub(super) retries: u8,
    pub(super) probe: bool,
    pub(super) linger_until: Option<Time>,
    /// When the peer was heard last, and the probes since then.
    pub(super) heard: (Time, u8),
    /// Nobody will read any more.
    pub(super) orphan: bool,
    /// A reset to be sent: sequence number, and acknowledgement if it has one.
    pub(super) reset: Option<(u32, Option<u32>)>,
    pub(super) counters: Counters,
}

impl<P: Payload> Connection<P> {
    fn new(params: TcpParams, ports: (u16, u16), initial: u32, state: State) -> Self {
        let mss = u64::from(params.mss).max(1);
        Self {
            state,
            failure: None,
            ports,
            initial,
            una: 0,
            nxt: 0,
            end: 1,
            finished: false,
            corked: false,
            peer_edge: 1,
            peer_window_most: 0,
            window_by: (0, 0),
            peer_shift: 0,
            // RFC 9293, 3.7.1, until the peer says otherwise.
            peer_mss: 536,
            small_end: 0,
            flight: Flight::default(),
            rack: Rack::default(),
            tail: TailProbe::default(),
            ecn: Ecn::default(),
            sack: false,
            duplicates: 0,
            recovery: Recovery::Open,
            must_resend: false,
            undo: Undo::default(),
            congestion: params.congestion.start(mss, params.initial_window.into()),
            limited_at: 0,
            rtt: RttEstimator::new(params.rto_initial, params.rto_min, params.rto_max),
            timing: None,
            last_sent: Time::ZERO,
            peer_initial: 0,
            receive: Receive::new(1, params.receive_buffer.into(), params.receive_buffer_max.into()),
            shift: 0,
            timestamps: false,
            recent: 0,
            acked_to: 0,
            ack_now: false,
            ack_at: None,
            quick: params.quick_acks,
            peer_segment: 0,
            resend_at: None,
            reorder_at: None,
            retries: 0,
            probe: false,
            linger_until: None,
            heard: (Time::ZERO, 0),
            orphan: false,
            reset: None,
            counters: Counters::default(),
            params,
        }
    }

    /// Opens a connection from a port to a port, with an initial sequence number.
    pub fn connect(params: TcpParams, ports: (u16, u16), initial: u32) -> Self {
        Self::new(params, ports, initial, State::SynSent)
    }

    /// Answers a SYN; `None` if the segment is none that could open a connection.
    pub fn accept(params: TcpParams, initial: u32, now: Time, syn: &TcpHeader) -> Option<Self> {
        let wrong = TcpFlags::ACK.with(TcpFlags::RST).with(TcpFlags::FIN);
        if !syn.flags.contains(TcpFlags::SYN) || syn.flags.0 & wrong.0 != 0 {
            return None;
        }
        let mut connection = Self::new(params, (syn.destination, syn.source), initial, State::SynReceived);
        connection.take_syn(now, syn);
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
        self.counters
    }

    /// The smoothed round-trip time, if one was measured.
    pub fn round_trip(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// The next sequence number to send.
    pub fn sequence(&self) -> u32 {
        super::seq::narrow(self.nxt, self.initial)
    }

    /// Congestion window in bytes.
    pub fn congestion_window(&self) -> u64 {
        self.congestion.window()
    }

    /// Whether data can be written, now or later.
    pub fn may_write(&self) -> bool {
        !self.finished && self.state != State::Closed
    }

    /// So many bytes follow in the stream.
    ///
    /// # Panics
    /// Behind the end of the stream.
    pub fn write(&mut self, bytes: u64) {
        assert!(!self.finished, "nothing follows the end of a stream");
        self.end += bytes;
    }

    /// Bytes written and not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        self.end - self.acknowledged() - 1
    }

    /// Bytes written and never sent.
    pub fn unsent(&self) -> u64 {
        self.end.saturating_sub(self.nxt.max(1))
    }

    /// Offset in the stream of the first byte that the peer has not acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.una.clamp(1, self.end) - 1
    }

    /// Lets small segments wait for more data, or no longer.
    pub fn set_cork(&mut self, corked: bool) {
        self.corked = corked;
    }

    /// Sends what there is at once, or waits as Nagle's algorithm does.
    pub fn set_no_delay(&mut self, no_delay: bool) {
        self.params.no_delay = no_delay;
    }

    /// Asks an idle connection's peer now and then whether it is still there, or does not.
    pub fn set_keep_alive(&mut self, keep_alive: Option<KeepAlive>) {
        self.params.keep_alive = keep_alive;
    }

    /// Holds so many bytes for the reader from now on, whatever it takes at once. What has been offered stays offered.
    pub fn set_receive_buffer(&mut self, bytes: u32) {
        self.receive.set_buffer(bytes.into());
    }

    /// The first piece that waits to be read.
    pub fn peek(&self) -> Option<&P> {
        self.receive.front()
    }

    /// Takes the first piece of received data. What is not used up can be [put back](Self::unread).
    pub fn read(&mut self, now: Time) -> Option<P> {
        let rtt = self.rtt.least();
        self.receive.read(now, rtt)
    }

    /// Puts back what is left of a piece.
    pub fn unread(&mut self, rest: P) {
        self.receive.unread(rest);
    }

    /// The reader pauses or has read all: is the window to be announced, or an acknowledgement due?
    pub fn reading_done(&mut self) {
        if self.state == State::Closed {
            return;
        }
        let next = self.receive.next;
        let (now, new) = (
            self.receive.offered().saturating_sub(next),
            self.receive.edge(self.params.mss.into()).saturating_sub(next),
        );
        // As Linux (tcp_cleanup_rbuf): the window has doubled, or more than a segment waits for an acknowledgement.
        let waits = self.ack_at.is_some() && next - self.acked_to > u64::from(self.peer_segment);
        if new > now && new >= 2 * now || waits {
            self.ack_now = true;
        }
    }

    /// Bytes that wait to be read.
    pub fn readable(&self) -> u64 {
        self.receive.ready_bytes()
    }

    /// Whether a piece that arrives finds no memory, unless what is held is [put together](Self::collapse).
    pub fn lacks_memory(&self, piece: &P) -> bool {
        self.receive.lacks_memory(piece)
    }

    /// Puts pieces together that keep more than twice the memory that they show: `join` makes one of several that follow
    /// each other, or gives them back if it cannot. What finds no memory afterwards is let go and comes again.
    pub fn collapse(&mut self, join: impl FnMut(Vec<P>) -> Result<P, Vec<P>>) {
        self.receive.collapse(join);
    }

    /// Bytes of memory that received data keeps.
    pub fn memory(&self) -> u64 {
        self.receive.memory()
    }

    /// Pieces that were let go for want of memory.
    pub fn pruned(&self) -> u64 {
        self.receive.pruned
    }

    /// Bytes held for the reader, those that came too early among them.
    pub fn held(&self) -> u64 {
        self.receive.held_bytes()
    }

    /// The peer has ended its stream and all of it has been read.
    pub fn at_end(&self) -> bool {
        let over = self.receive.fin.is_some_and(|fin| self.receive.next > fin) || self.state == State::Closed;
        over && self.receive.ready_bytes() == 0
    }

    /// What was received and is of no use; to be taken away after each call.
    pub fn discarded(&mut self) -> std::vec::Drain<'_, P> {
        self.receive.discarded()
    }

    /// Ends the stream: the peer is told when all has been sent. Data can still be received.
    pub fn finish(&mut self) {
        match self.state {
            State::SynSent => self.end_now(None),
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => {}
        }
        self.finished = true;
    }

    /// Ends the stream, and nobody will read: data that still comes is answered with a reset.
    pub fn close(&mut self, now: Time) {
        self.orphan = true;
        if self.receive.ready_bytes() > 0 {
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
            let ack = super::seq::narrow(self.receive.next, self.peer_initial);
            self.reset = Some((super::seq::narrow(self.nxt, self.initial), Some(ack)));
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
        (self.resend_at, self.ack_at, self.linger_until) = (None, None, None);
        self.reorder_at = None;
        self.tail = TailProbe::default();
        (self.ack_now, self.probe) = (false, false);
        match failure {
            Some(_) => self.receive.clear(),
            // What came in order can still be read.
            None => self.receive.forget_early(),
        }
    }

    /// The largest payload of a segment, apart from what its options take.
    pub(super) fn mss(&self) -> u64 {
        u64::from(self.params.mss.min(self.peer_mss)).max(64)
    }

    /// The connection's time in milliseconds, as its timestamps tell it.
    pub(super) fn clock(&self, now: Time) -> u32 {
        ((now.as_ps() / 1_000_000_000) as u32).wrapping_add(self.initial)
    }

    /// Bytes under way.
    pub(super) fn in_flight(&self) -> u64 {
        let left = self.flight.in_network();
        match self.sack {
            true => left,
            // Each duplicate says that a segment has left the network (RFC 5681, 3.2).
            false => left.saturating_sub(self.duplicates * self.mss()),
        }
    }

    /// A segment for tests and owners that do not cut: at most one MSS.
    pub fn transmit_one(&mut self, now: Time) -> Option<Segment> {
        self.transmit(now, 0)
    }
}
