//! The sending half: data written, sent, acknowledged and lost, and what to send next.

use units::Time;
use wire::ip::{TcpFlags, TcpHeader};

use super::congestion::{Acked, CongestionControl};
use super::counters::Counters;
use super::ecn::WindowReduction;
use super::flight::Flight;
use super::params::{Agreed, TcpParams};
use super::rack::{Rack, Rtts};
use super::rtt::RttEstimator;
use super::seq::{narrow, widen};
use super::tail::TailProbe;
use super::undo::Undo;

/// Duplicate acknowledgements that indicate loss (RFC 5681, 3.2).
const DUPLICATES: u64 = 3;

/// State of loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Recovery {
    /// No known loss.
    Open,
    /// Fast recovery until `point` is acknowledged.
    Fast { point: u64 },
    /// After a timeout, until `point` is acknowledged.
    Timeout { point: u64 },
}

/// The peer's offered window.
#[derive(Clone, Copy, Debug)]
struct PeerWindow {
    /// Its right edge.
    edge: u64,
    /// The largest ever offered.
    largest: u64,
    /// Position and acknowledgement of the segment that last updated it.
    told_by: (u64, u64),
}

impl PeerWindow {
    /// Of two windows with the same numbers, the larger is newer whatever the order of arrival, since an offered
    /// window is never reduced (RFC 9293, 3.8.6; Linux: `tcp_may_update_window`).
    fn update(&mut self, position: u64, ack: u64, window: u64) {
        let (told, edge) = ((position, ack), ack + window);
        if told > self.told_by || told == self.told_by && edge > self.edge {
            *self = Self { edge, largest: self.largest.max(window), told_by: told };
        }
    }
}

/// Positions to send as one segment, or as several to be segmented by a device. The SYN is position 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub from: u64,
    pub to: u64,
    /// Whether they are retransmitted.
    pub again: bool,
}

/// The retransmission timer has expired too often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GivesUp;

/// The sending half of a connection. Positions count from the SYN, which is 0; data start at 1.
///
/// Many calls take `size`: the current maximum data per segment, next to the receiver's options.
pub(super) struct Sender {
    params: TcpParams,
    agreed: Agreed,
    initial: u32,
    /// Oldest unacknowledged position.
    una: u64,
    /// Next position to send.
    nxt: u64,
    /// Position after the last byte written.
    end: u64,
    /// Closed for writing.
    finished: bool,
    /// Nagle's algorithm is disabled.
    no_delay: bool,
    peer_mss: u16,
    peer: PeerWindow,
    /// End of the last segment below full size.
    small_end: u64,

    flight: Flight,
    rack: Rack,
    tail: TailProbe,
    undo: Undo,
    answer: WindowReduction,
    recovery: Recovery,
    duplicates: u64,
    /// The next lost segment is sent regardless of the congestion window.
    must_resend: bool,
    congestion: Box<dyn CongestionControl>,
    /// Position at which the congestion window last limited sending.
    limited_at: u64,

    rtt: RttEstimator,
    /// A position whose acknowledgement ends a round-trip measurement, and when it was sent.
    timing: Option<(u64, Time)>,
    last_sent: Time,
    resend_at: Option<Time>,
    /// When more data become lost unless they arrive.
    reorder_at: Option<Time>,
    retries: u8,
    /// A probe is to be sent.
    probe: bool,
    counters: Counters,
}

impl Sender {
    pub fn new(params: TcpParams, initial: u32) -> Self {
        let mss = u64::from(params.mss).max(1);
        Self {
            agreed: Agreed::default(),
            initial,
            una: 0,
            nxt: 0,
            end: 1,
            finished: false,
            no_delay: params.no_delay,
            // RFC 9293, 3.7.1, until the peer announces its own.
            peer_mss: 536,
            peer: PeerWindow { edge: 1, largest: 0, told_by: (0, 0) },
            small_end: 0,
            flight: Flight::default(),
            rack: Rack::default(),
            tail: TailProbe::default(),
            undo: Undo::default(),
            answer: WindowReduction::default(),
            recovery: Recovery::Open,
            duplicates: 0,
            must_resend: false,
            congestion: params.congestion.start(mss, params.initial_window.into()),
            limited_at: 0,
            rtt: RttEstimator::new(params.rto_initial, params.rto_min, params.rto_max),
            timing: None,
            last_sent: Time::ZERO,
            resend_at: None,
            reorder_at: None,
            retries: 0,
            probe: false,
            counters: Counters::default(),
            params,
        }
    }

    /// Processes the peer's SYN.
    pub fn begin(&mut self, syn: &TcpHeader, agreed: Agreed, options: u64) {
        self.agreed = agreed;
        self.answer = WindowReduction::new(agreed.ecn);
        self.peer_mss = syn.options.mss.unwrap_or(536);
        // The window of a SYN is never scaled.
        self.peer.edge = self.una.max(1) + u64::from(syn.window);
        self.peer.largest = syn.window.into();
        self.congestion =
            self.params.congestion.start(self.mss() - options, self.params.initial_window.into());
    }

    /// The peer's SYN acknowledges ours.
    pub fn opened(&mut self, now: Time, syn: &TcpHeader) {
        self.una = 1;
        self.flight.acknowledge(1, |_| ());
        self.peer.edge = 1 + u64::from(syn.window);
        self.peer.told_by = (0, 1);
        self.measured(now);
        (self.resend_at, self.retries) = (None, 0);
        self.recovery = Recovery::Open;
    }

    /// The SYN must be sent again after a simultaneous open.
    pub fn open_again(&mut self) {
        self.nxt = 0;
        self.flight = Flight::default();
        self.resend_at = None;
    }

    /// Processes the first acknowledgement of an answered SYN.
    pub fn take_first_window(&mut self, position: u64, ack: u64, window: u16) {
        self.peer.edge = ack + self.scaled(window);
        self.peer.told_by = (position, ack);
    }

    fn scaled(&self, window: u16) -> u64 {
        u64::from(window) << self.agreed.peer_shift
    }

    /// The position of an acknowledgement number; `None` before the start of the stream.
    pub fn position(&self, acknowledgement: u32) -> Option<u64> {
        widen(acknowledgement, self.initial, self.una)
    }

    /// The sequence number of a position.
    pub fn number(&self, position: u64) -> u32 {
        narrow(position, self.initial)
    }

    /// Oldest unacknowledged position.
    pub fn una(&self) -> u64 {
        self.una
    }

    /// Next position to send.
    pub fn next(&self) -> u64 {
        self.nxt
    }

    /// Position after the last byte written.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Appends `bytes`.
    pub fn write(&mut self, bytes: u64) {
        self.end += bytes;
    }

    /// Closes the stream for writing.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether the stream is closed for writing.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether the peer has acknowledged the end of the stream.
    pub fn is_end_acknowledged(&self) -> bool {
        self.finished && self.una > self.end
    }

    /// Whether no acknowledgement is outstanding.
    pub fn is_idle(&self) -> bool {
        self.resend_at.is_none()
    }

    pub fn set_no_delay(&mut self, no_delay: bool) {
        self.no_delay = no_delay;
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    pub fn congestion_window(&self) -> u64 {
        self.congestion.window()
    }

    /// Maximum payload per segment, without options.
    pub fn mss(&self) -> u64 {
        u64::from(self.params.mss.min(self.peer_mss)).max(64)
    }

    /// Stops sending.
    pub fn stop(&mut self) {
        (self.resend_at, self.reorder_at) = (None, None);
        self.tail.forget();
        self.probe = false;
    }

    // Input.

    /// Processes a segment's ECN flags.
    pub fn take_marks(&mut self, now: Time, flags: TcpFlags, ack: u64) {
        if self.nxt == self.una || !self.answer.is_asked(flags, ack) {
            return;
        }
        self.counters.echoes += 1;
        if self.recovery == Recovery::Open {
            self.congestion.lost(now, self.flight.in_network());
            // Whatever was duplicated, this reduction was justified.
            self.undo.forget();
        }
        self.answer.reduced(self.nxt);
    }

    /// Processes an acknowledgement up to `ack`, in a segment at the peer's `position`, with or without data.
    pub fn take_ack(
        &mut self,
        now: Time,
        header: &TcpHeader,
        (position, ack): (u64, u64),
        data: bool,
        size: u64,
    ) {
        let news = self.take_sack(now, header, ack);
        let repeated = repetition(header).filter(|_| self.agreed.sack);
        if let Some((start, end)) = repeated {
            self.counters.repetitions += 1;
            self.rack.repeated(self.una, self.nxt);
            if let (Some(start), Some(end)) = (self.position(start), self.position(end)) {
                self.undo.came_twice(start, end);
            }
        }
        let edge_before = self.peer.edge;
        if ack >= self.una {
            self.peer.update(position, ack, self.scaled(header.window));
        }
        if self.nxt == self.una && self.retries > 0 {
            // It answers probes.
            self.retries = 0;
        }
        if self.nxt == self.una && self.peer.edge > edge_before {
            self.resend_at = None;
            self.rtt.settle();
        }
        let selective = repeated.is_none() && !header.options.sack.as_slice().is_empty();
        if self.tail.has_mended(ack, !data && !selective && ack == self.una) {
            // A repaired loss is congestion, too.
            self.congestion.lost(now, self.flight.in_network());
            self.undo.forget();
            self.answer.reduced(self.nxt);
        }
        if ack > self.una {
            self.take_new_ack(now, ack, size);
        } else if ack == self.una && self.nxt > self.una && !data && (news || self.peer.edge == edge_before) {
            self.duplicates += 1;
            self.counters.duplicate_acks += 1;
        }
        self.look_for_loss(now, size);
        if self.undo.is_needless() && self.recovery == Recovery::Open {
            self.undo.forget();
            self.congestion.undo();
            self.counters.undone += 1;
        }
    }

    /// Processes the SACK option. Returns whether it had news.
    fn take_sack(&mut self, now: Time, header: &TcpHeader, ack: u64) -> bool {
        if !self.agreed.sack {
            return false;
        }
        let mut news = false;
        for &(start, end) in header.options.sack.as_slice() {
            let (Some(start), Some(end)) = (self.position(start), self.position(end)) else { continue };
            // Ranges before the acknowledgement report duplicates (RFC 2883).
            if start >= ack.max(self.una) && end <= self.nxt {
                let (rack, least) = (&mut self.rack, self.rtt.least());
                news |= self.flight.hold(start, end, |sent| rack.delivered(now, sent, least));
            }
        }
        news
    }

    fn take_new_ack(&mut self, now: Time, ack: u64, size: u64) {
        let flight = self.nxt - self.una;
        let bytes = ack - self.una;
        let slow = self.congestion.window() < self.congestion.threshold();
        let limited = self.limited_at >= self.una || slow && self.congestion.window() < 2 * flight;
        self.una = ack;
        let (rack, least) = (&mut self.rack, self.rtt.least());
        self.flight.acknowledge(ack, |sent| rack.delivered(now, sent, least));
        self.duplicates = 0;
        self.retries = 0;
        self.measured(now);
        self.rtt.settle();
        let acked = Acked { now, bytes, rtt: self.rtt.smoothed(), limited };
        match self.recovery {
            Recovery::Open => self.congestion.acked(acked),
            Recovery::Fast { point } if ack >= point => {
                self.congestion.recovered();
                self.rack.recovered();
                self.recovery = Recovery::Open;
            }
            // Partial acknowledgement without SACK: the next segment is lost, too (RFC 6582, 3.2).
            Recovery::Fast { .. } if !self.agreed.sack => {
                self.flight.lose_range(ack, (ack + size).min(self.nxt));
                self.must_resend = true;
            }
            Recovery::Fast { .. } => {}
            Recovery::Timeout { point } => {
                self.congestion.acked(Acked { limited: true, ..acked });
                if ack >= point {
                    self.rack.recovered();
                    self.recovery = Recovery::Open;
                }
            }
        }
        self.resend_at = (self.nxt > self.una).then(|| now + self.rtt.rto());
        self.arm_tail(now, size);
    }

    /// Ends a round-trip measurement.
    fn measured(&mut self, now: Time) {
        if let Some((position, sent)) = self.timing
            && self.una >= position
        {
            self.rtt.sample(now.since(sent));
            self.timing = None;
        }
    }

    /// Detects loss and starts recovery.
    fn look_for_loss(&mut self, now: Time, size: u64) {
        self.reorder_at = None;
        if self.nxt == self.una {
            return;
        }
        let is_open = self.recovery == Recovery::Open;
        if self.agreed.sack {
            let least = self.rtt.least().unwrap_or(self.rtt.rto());
            let rtts = Rtts { least, smoothed: self.rtt.smoothed().unwrap_or(least), mss: size };
            self.reorder_at = self.rack.look(now, &mut self.flight, rtts, !is_open);
        } else if is_open && self.duplicates >= DUPLICATES {
            self.flight.lose_range(self.una, (self.una + size).min(self.nxt));
        }
        if is_open && self.flight.lost() > 0 {
            self.congestion.lost(now, self.flight.in_network() + self.flight.lost());
            self.undo.reduced(self.una);
            self.recovery = Recovery::Fast { point: self.nxt };
            self.must_resend = true;
            self.answer.reduced(self.nxt);
            self.counters.recoveries += 1;
            self.tail.forget();
        }
    }

    // Timers.

    /// When [`timer`](Self::timer) must be called at the latest.
    pub fn deadline(&self) -> Option<Time> {
        [self.resend_at, self.reorder_at, self.tail.at()].into_iter().flatten().min()
    }

    /// Does whatever is due.
    pub fn timer(&mut self, now: Time, size: u64) -> Result<(), GivesUp> {
        if self.reorder_at.is_some_and(|at| at <= now) {
            self.look_for_loss(now, size);
        }
        if self.tail.at().is_some_and(|at| at <= now) {
            self.tail.timer();
            self.resend_at = Some(now + self.rtt.rto());
        }
        if self.resend_at.is_some_and(|at| at <= now) {
            self.resend_timer(now)?;
        }
        Ok(())
    }

    fn resend_timer(&mut self, now: Time) -> Result<(), GivesUp> {
        let most = if self.una == 0 { self.params.syn_retries } else { self.params.retries };
        if self.retries >= most {
            return Err(GivesUp);
        }
        self.retries += 1;
        if self.nxt == self.una {
            self.probe = true;
            self.counters.probes += 1;
        } else {
            self.timed_out(now);
        }
        self.rtt.back_off();
        self.resend_at = Some(now + self.rtt.rto());
        Ok(())
    }

    /// RFC 6298, 5.4 to 5.6, and RFC 6675, 5.1.
    fn timed_out(&mut self, now: Time) {
        self.counters.timeouts += 1;
        // A repeated timeout of the same data does not lower the threshold again (RFC 5681, 3.1).
        if !matches!(self.recovery, Recovery::Timeout { .. }) || self.retries == 1 {
            self.congestion.timed_out(now, self.nxt - self.una);
            self.undo.reduced(self.una);
        }
        // The peer would have acknowledged the first range if it still held it: it has dropped its out-of-order data.
        if self.flight.first_is_held() {
            self.flight.forget_held();
        }
        let (una, sack, rack) = (self.una, self.agreed.sack, self.rack);
        self.flight.lose(|sent| !sack || sent.start == una || rack.is_late(now, sent));
        self.must_resend = true;
        self.answer.reduced(self.nxt);
        self.tail.forget();
        self.duplicates = 0;
        self.timing = None;
        self.recovery = Recovery::Timeout { point: self.nxt };
    }

    /// Rearms the tail loss probe after new data were sent or acknowledged (RFC 8985, 7.2).
    fn arm_tail(&mut self, now: Time, size: u64) {
        self.tail.arm(None);
        let may = self.params.tail_probes
            && self.agreed.sack
            && self.recovery == Recovery::Open
            && self.nxt > self.una
            && self.flight.held() == 0
            && !self.tail.is_out();
        let Some(smoothed) = self.rtt.smoothed().filter(|_| may) else { return };
        let mut at = now + smoothed + smoothed + self.params.tail_slack;
        if self.nxt - self.una <= size {
            at += self.params.peer_delayed_ack;
        }
        self.tail.arm(Some(self.resend_at.map_or(at, |resend| at.min(resend))));
    }

    // Output.

    /// The next positions to send, up to `limit` bytes, but at least one segment's. They count as sent.
    pub fn take_span(&mut self, now: Time, limit: u32, size: u64) -> Option<Span> {
        if self.nxt == 0 {
            return Some(self.syn(now, false));
        }
        self.tail_probe(now, size)
            .or_else(|| self.lost_span(now, limit, size))
            .or_else(|| self.new_span(now, limit, size))
    }

    fn syn(&mut self, now: Time, again: bool) -> Span {
        self.nxt = 1;
        self.sent(now, Span { from: 0, to: 1, again }, 1)
    }

    /// Records that a span was sent in segments of `size`.
    fn sent(&mut self, now: Time, span: Span, size: u64) -> Span {
        let Span { from, to, again } = span;
        if again {
            self.flight.resend(from, to, now);
            self.timing = None;
            self.undo.sent_again(to - from);
            // Counts the segments that it will be split into; the end of the stream occupies a position but no data.
            self.counters.retransmissions += to.min(self.end).saturating_sub(from).div_ceil(size).max(1);
        } else {
            self.flight.push(from, to, now);
            self.timing = self.timing.or(Some((to, now)));
        }
        if self.resend_at.is_none() {
            self.resend_at = Some(now + self.rtt.rto());
        }
        self.last_sent = now;
        span
    }

    /// A tail loss probe (RFC 8985, 7.3): new data if the peer's window allows, else the last segment again.
    fn tail_probe(&mut self, now: Time, size: u64) -> Option<Span> {
        if !self.tail.take_due() || self.nxt == self.una {
            return None;
        }
        self.counters.tail_probes += 1;
        let fresh = self.end.saturating_sub(self.nxt).min(size);
        let (from, again) = match fresh > 0 && self.nxt + fresh <= self.peer.edge {
            true => (self.nxt, false),
            false => (self.last_segment(size), true),
        };
        if !again {
            self.nxt += fresh;
        }
        self.tail.sent(self.nxt, again);
        Some(self.sent(now, Span { from, to: self.nxt, again }, size))
    }

    /// Start of the last segment sent.
    fn last_segment(&self, size: u64) -> u64 {
        let (start, end) = self.flight.last().unwrap_or((self.una, self.nxt));
        let data = end.min(self.end).saturating_sub(start);
        start + data.saturating_sub(1) / size * size
    }

    /// Bytes in flight.
    fn in_flight(&self) -> u64 {
        let left = self.flight.in_network();
        match self.agreed.sack {
            true => left,
            // Each duplicate indicates that a segment has left the network (RFC 5681, 3.2).
            false => left.saturating_sub(self.duplicates * self.mss()),
        }
    }

    /// The first lost span.
    fn lost_span(&mut self, now: Time, limit: u32, size: u64) -> Option<Span> {
        let room = self.congestion.window().saturating_sub(self.in_flight());
        let most = u64::from(limit).min(room).max(size) / size * size;
        let (from, to) = self.flight.first_lost(most)?;
        if room < size.min(to - from) && !self.must_resend {
            return None;
        }
        self.must_resend = false;
        if from == 0 {
            return Some(self.syn(now, true));
        }
        if from == self.una {
            self.resend_at = Some(now + self.rtt.rto());
        }
        Some(self.sent(now, Span { from, to, again: true }, size))
    }

    /// Unsent data, as far as windows and Nagle's algorithm allow.
    fn new_span(&mut self, now: Time, limit: u32, size: u64) -> Option<Span> {
        let waiting = self.end.saturating_sub(self.nxt);
        let fin_waits = self.finished && self.nxt <= self.end;
        if self.una == 0 || waiting == 0 && !fin_waits {
            return None;
        }
        let flight = self.in_flight();
        if self.nxt == self.una && self.resend_at.is_none() && now.since(self.last_sent) > self.rtt.rto() {
            self.congestion.idle();
        }
        let window = self.peer.edge.saturating_sub(self.nxt);
        let congestion = self.congestion.window().saturating_sub(flight);
        let mut length = waiting.min(window).min(u64::from(limit).max(size));
        if length > congestion {
            // Segments are sent whole if the window has any room and nothing else is in flight.
            length = if flight == 0 { length.min(congestion.max(size)) } else { congestion / size * size };
            self.limited_at = self.nxt;
        }
        if length > size {
            length -= if length == waiting && self.may_send_small(length % size) { 0 } else { length % size };
        }
        let last = length == waiting;
        if waiting > 0 && (length == 0 || length < size && !(last && self.may_send_small(length))) {
            // Silly window avoidance (RFC 9293, 3.8.6.2.1): half of the largest window seen is worth a segment.
            let worth = length > 0 && !last && length >= self.peer.largest / 2 && length == window;
            if !worth {
                self.wait_for_window(now, window.min(waiting) < size.min(waiting));
                return None;
            }
        }
        let fin = fin_waits && length == waiting;
        let from = self.nxt;
        self.nxt += length + u64::from(fin);
        if !length.is_multiple_of(size) {
            self.small_end = self.nxt;
        }
        let span = self.sent(now, Span { from, to: self.nxt, again: false }, size);
        self.arm_tail(now, size);
        Some(span)
    }

    /// Whether a segment below full size may be sent (Minshall's variant of Nagle's algorithm).
    fn may_send_small(&self, length: u64) -> bool {
        if length == 0 || self.finished {
            return true;
        }
        self.no_delay || self.small_end <= self.una
    }

    /// No acknowledgement is expected, so the window must be probed.
    fn wait_for_window(&mut self, now: Time, closed: bool) {
        if closed && self.nxt == self.una && self.resend_at.is_none() {
            self.resend_at = Some(now + self.rtt.rto());
        }
    }

    /// Requests a keep-alive probe.
    pub fn probe(&mut self) {
        self.probe = true;
    }

    /// Whether a probe is to be sent. It repeats an old position, so the peer answers with its window.
    pub fn take_probe(&mut self) -> bool {
        std::mem::take(&mut self.probe)
    }

    /// The CWR flag for a segment with new data.
    pub fn take_answer(&mut self) -> TcpFlags {
        self.answer.take_flag()
    }

    /// Whether routers may mark a segment, depending on whether it has new data.
    pub fn may_mark(&self, fresh: bool) -> bool {
        self.answer.may_mark(fresh)
    }
}

/// The duplicate range reported by the first SACK block (RFC 2883, 4), if any: it is before the acknowledgement, or
/// within the second block.
fn repetition(header: &TcpHeader) -> Option<(u32, u32)> {
    let before = |a: u32, b: u32| b.wrapping_sub(a) as i32 >= 0;
    match *header.options.sack.as_slice() {
        [first @ (_, end), ..] if before(end, header.acknowledgement) => Some(first),
        [first @ (start, end), (from, to), ..] if before(from, start) && before(end, to) => Some(first),
        _ => None,
    }
}
