//! Processing of arriving segments (RFC 9293, 3.10.7).

use units::Time;
use wire::ip::{TcpFlags, TcpHeader};

use super::Payload;
use super::connection::{Connection, Failure, State};
use super::params::Agreed;

impl<P: Payload> Connection<P> {
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
    pub(super) fn take_syn(&mut self, syn: &TcpHeader) {
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
}
