//! The receiving half: received data, acknowledgements and the offered window.

use units::Time;
use wire::ip::{TcpFlags, TcpHeader, tcp::SackBlocks};

use super::Payload;
use super::buffer::ReceiveBuffer;
use super::ecn::Echo;
use super::params::{Agreed, TcpParams};
use super::seq::{narrow, widen};

/// The receiving half of a connection. Positions count from the peer's SYN; its data start at 1.
pub(super) struct Receiver<P> {
    params: TcpParams,
    agreed: Agreed,
    /// The peer's initial sequence number.
    initial: u32,
    /// The data.
    pub buffer: ReceiveBuffer<P>,
    /// The peer's last timestamp, to be echoed.
    clock: u32,
    echo: Echo,
    /// Position of the last acknowledgement.
    acked_to: u64,
    ack_now: bool,
    ack_at: Option<Time>,
    /// Number of acknowledgements that will not be delayed.
    quick: u8,
    /// Payload of the peer's largest segment.
    segment: u32,
    out_of_order: u64,
    marked: u64,
}

impl<P: Payload> Receiver<P> {
    pub fn new(params: TcpParams) -> Self {
        Self {
            agreed: Agreed::default(),
            initial: 0,
            buffer: ReceiveBuffer::new(1, params.receive_buffer.into(), params.receive_buffer_max.into()),
            clock: 0,
            echo: Echo::default(),
            acked_to: 0,
            ack_now: false,
            ack_at: None,
            quick: params.quick_acks,
            segment: 0,
            out_of_order: 0,
            marked: 0,
            params,
        }
    }

    /// Processes the peer's SYN.
    pub fn begin(&mut self, syn: &TcpHeader, agreed: Agreed) {
        self.initial = syn.sequence;
        self.agreed = agreed;
        self.echo = Echo::new(agreed.ecn);
        if let (Some((value, _)), true) = (syn.options.timestamps, agreed.timestamps) {
            self.clock = value;
        }
    }

    /// What both ends have agreed on.
    pub fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// Segments that came before others that were sent earlier.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// Segments that routers had marked.
    pub fn marked(&self) -> u64 {
        self.marked
    }

    /// The position of a sequence number; `None` before the stream's beginning.
    pub fn position(&self, sequence: u32) -> Option<u64> {
        widen(sequence, self.initial, self.buffer.next())
    }

    /// The sequence number of the next byte.
    pub fn acknowledgement(&self) -> u32 {
        narrow(self.buffer.next(), self.initial)
    }

    /// Protection against wrapped sequence numbers (RFC 7323, 5.3).
    pub fn is_too_old(&self, header: &TcpHeader) -> bool {
        let Some((value, _)) = header.options.timestamps else { return false };
        self.agreed.timestamps && (value.wrapping_sub(self.clock) as i32) < 0
    }

    /// Table 6 of RFC 9293, 3.10.7.4.
    pub fn is_in_window(&self, position: u64, length: u64, flags: TcpFlags) -> bool {
        let taken =
            length + u64::from(flags.contains(TcpFlags::FIN)) + u64::from(flags.contains(TcpFlags::SYN));
        let (next, edge) = (self.buffer.next(), self.buffer.offered());
        if taken == 0 {
            // The edge itself too, unlike the table: a sender that has filled the window is there, and two such would
            // answer each other's acknowledgements for ever.
            return (next..=edge.max(next)).contains(&position);
        }
        let last = position + taken - 1;
        next < edge && ((next..edge).contains(&position) || (next..edge).contains(&last))
            || position <= next && last >= edge && next < edge
            // With a closed window a FIN alone may still end the stream.
            || position == next && length == 0
    }

    /// Notes the peer's clock from a segment at a position (RFC 7323, 4.3).
    pub fn take_clock(&mut self, position: u64, header: &TcpHeader) {
        if let (Some((value, _)), true) = (header.options.timestamps, self.agreed.timestamps)
            && position <= self.acked_to
            && value.wrapping_sub(self.clock) as i32 >= 0
        {
            self.clock = value;
        }
    }

    /// A router has marked the segment that arrives next.
    pub fn mark(&mut self) {
        self.echo.mark();
    }

    /// What a segment says about marks.
    pub fn take_marks(&mut self, flags: TcpFlags) {
        let heard = self.echo.take(flags);
        self.marked += u64::from(heard.marked);
        // The peer shall know soon.
        self.ack_now |= heard.is_news;
    }

    /// Takes data within the window, put together from so many segments.
    pub fn take(&mut self, now: Time, position: u64, data: P, segments: u16) {
        let (length, held_before) = (u64::from(data.len()), self.buffer.has_early());
        let each = (length / u64::from(segments.max(1))) as u32;
        self.segment = self.segment.max(each.min(self.params.mss.into()));
        if position > self.buffer.next() {
            self.out_of_order += 1;
        }
        let in_order = self.buffer.take(position, data);
        // At once for what came too early, closes a hole, or was there already (RFC 5681, 4.2).
        if !in_order || held_before || self.quick > 0 {
            self.ack_now = true;
            self.quick = self.quick.saturating_sub(segments.min(255) as u8);
        } else if self.buffer.next() - self.acked_to > u64::from(self.segment) {
            self.ack_now = true;
        } else if self.ack_at.is_none() {
            self.ack_at = Some(now + self.params.delayed_ack);
        }
    }

    /// Passes the end of the peer's stream if nothing is missing before it.
    pub fn pass_end(&mut self) -> bool {
        let passes = self.buffer.pass_end();
        self.ack_now |= passes;
        passes
    }

    /// An acknowledgement is to be sent at once.
    pub fn acknowledge_now(&mut self) {
        self.ack_now = true;
    }

    /// Whether one is.
    pub fn must_acknowledge(&self) -> bool {
        self.ack_now
    }

    /// Data goes to the peer. Who answers at once is in a conversation: acknowledgements go with answers.
    pub fn answers_with_data(&mut self) {
        if self.ack_at.is_some() {
            self.quick = 0;
        }
    }

    /// The reader pauses or has read all: is the window to be announced, or an acknowledgement due?
    pub fn reading_done(&mut self) {
        let next = self.buffer.next();
        let now = self.buffer.offered().saturating_sub(next);
        let new = u64::from(self.window(self.params.mss.into())) << self.agreed.shift;
        // As Linux (tcp_cleanup_rbuf): the window has doubled, or more than a segment waits for an acknowledgement.
        let waits = self.ack_at.is_some() && next - self.acked_to > u64::from(self.segment);
        if new > now && new >= 2 * now || waits {
            self.ack_now = true;
        }
    }

    /// When an acknowledgement is due.
    pub fn deadline(&self) -> Option<Time> {
        self.ack_at
    }

    /// Does what is due.
    pub fn timer(&mut self, now: Time) {
        if self.ack_at.is_some_and(|at| at <= now) {
            self.ack_at = None;
            self.ack_now = true;
        }
    }

    /// Nothing is acknowledged any more.
    pub fn stop(&mut self) {
        (self.ack_now, self.ack_at) = (false, None);
    }

    /// Length of the options that the next segment has.
    pub fn options_len(&self) -> u64 {
        let stamps = if self.agreed.timestamps { 12 } else { 0 };
        if !self.tells_ranges() {
            return stamps;
        }
        let (_, count) = self.buffer.ranges_to_tell();
        stamps + 4 + 8 * count.min(if self.agreed.timestamps { 3 } else { 4 }) as u64
    }

    /// The window that a header can tell now.
    fn window(&self, mss: u64) -> u16 {
        let window = self.buffer.edge(mss).saturating_sub(self.buffer.next()) >> self.agreed.shift;
        window.min(u16::MAX.into()) as u16
    }

    fn tells_ranges(&self) -> bool {
        self.agreed.sack && self.buffer.has_ranges()
    }

    fn selective(&self) -> SackBlocks {
        let (ranges, count) = self.buffer.ranges_to_tell();
        // If the last byte arrived, so did the FIN with it; otherwise it would be retransmitted.
        let with_fin = |end: u64| end + u64::from(self.buffer.is_end(end));
        let narrowed = ranges.map(|(a, b)| (narrow(a, self.initial), narrow(with_fin(b), self.initial)));
        SackBlocks::new(&narrowed[..count])
    }

    /// Fills in the receiver's information; the acknowledgement counts as sent.
    pub fn acknowledge(&mut self, header: &mut TcpHeader, mss: u64, clock: u32) {
        header.window = self.window(mss);
        self.buffer.offer(self.buffer.next() + (u64::from(header.window) << self.agreed.shift));
        header.options.timestamps = self.agreed.timestamps.then_some((clock, self.clock));
        if self.tells_ranges() {
            header.options.sack = self.selective();
        }
        self.buffer.told();
        header.flags = header.flags.with(self.echo.flag());
        self.told(header);
    }

    /// Fills in the information of a SYN, which may be an answer.
    pub fn open(&mut self, header: &mut TcpHeader, answers: bool, clock: u32) {
        // The window of a SYN is never scaled.
        let window = self.params.receive_buffer.min(u16::MAX.into());
        self.buffer.offer(self.buffer.next() + u64::from(window));
        header.window = window as u16;
        // Only answers what the peer offered.
        let stamps = if answers { self.agreed.timestamps } else { self.params.timestamps };
        header.options.timestamps = stamps.then_some((clock, self.clock));
        if answers {
            self.told(header);
        }
    }

    fn told(&mut self, header: &mut TcpHeader) {
        header.flags = header.flags.with(TcpFlags::ACK);
        header.acknowledgement = self.acknowledgement();
        self.acked_to = self.buffer.next();
        self.stop();
    }
}
