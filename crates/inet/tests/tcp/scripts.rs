//! Scripts in the manner of packetdrill: what arrives and what the program does, line by line, and exactly what must be sent.
//!
//! A line is a time in milliseconds and one of
//! - `< FLAGS FROM:TO [ack N] [win N] [mss N] [sackOK] [wscale N] [sack A-B ...]`: a segment arrives,
//! - `> FLAGS FROM:TO [ack N] [win N] [sack A-B ...]`: a segment is sent then; what is not named is not compared,
//! - `write N`, `read`, `finish`, `close`, `abort`: the program's calls,
//! - `state NAME`: where the connection is; `failure None` or `failure Some(NAME)`: how it failed.
//!
//! Numbers count from each side's SYN. Everything that is sent must stand in the script, at its time. `connect` or `listen`
//! stands first; without timestamps, so that sizes are round.

use inet::tcp::{Connection, Segment, TcpParams};
use units::{Duration, Time};
use wire::ip::tcp::SackBlocks;
use wire::ip::{TcpFlags, TcpHeader, TcpOptions};

const OURS: u32 = 7_000;
const PEERS: u32 = 0xffff_ff00;

fn flags(word: &str) -> TcpFlags {
    word.chars().fold(TcpFlags::default(), |flags, letter| {
        flags.with(match letter {
            'S' => TcpFlags::SYN,
            'F' => TcpFlags::FIN,
            'R' => TcpFlags::RST,
            'P' => TcpFlags::PSH,
            'E' => TcpFlags::ECE,
            'W' => TcpFlags::CWR,
            '.' => TcpFlags::ACK,
            _ => panic!("no flag is called {letter}"),
        })
    })
}

/// A segment as a script tells it.
#[derive(Debug)]
struct Line<'a> {
    flags: TcpFlags,
    from: u32,
    to: u32,
    words: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Self {
        let mut words = text.split_whitespace();
        let flags = flags(words.next().expect("flags"));
        let (from, to) = words.next().and_then(|range| range.split_once(':')).expect("FROM:TO");
        let number = |word: &str| word.parse().expect("a number");
        Self { flags, from: number(from), to: number(to), words: words.collect() }
    }

    fn number(&self, name: &str) -> Option<u32> {
        let at = self.words.iter().position(|&word| word == name)?;
        self.words[at + 1].parse().ok()
    }

    fn sack(&self, base: u32) -> SackBlocks {
        let ranges = self.words.iter().filter_map(|word| word.split_once('-'));
        let number = |word: &str| base.wrapping_add(word.parse().expect("a number"));
        SackBlocks::new(&ranges.map(|(a, b)| (number(a), number(b))).collect::<Vec<_>>())
    }

    fn header(&self) -> TcpHeader {
        let options = TcpOptions {
            mss: self.number("mss").map(|mss| mss as u16),
            window_scale: self.number("wscale").map(|shift| shift as u8),
            sack_permitted: self.words.contains(&"sackOK"),
            sack: self.sack(OURS),
            ..TcpOptions::default()
        };
        TcpHeader {
            source: 2,
            destination: 1,
            sequence: PEERS.wrapping_add(self.from),
            acknowledgement: self.number("ack").map_or(0, |ack| OURS.wrapping_add(ack)),
            flags: self.flags,
            window: self.number("win").unwrap_or(1_000) as u16,
            urgent: 0,
            options,
        }
    }

    fn compare(&self, sent: &Segment) {
        let header = &sent.header;
        assert_eq!(header.flags.0, self.flags.0, "flags of {sent:?}");
        if !self.flags.contains(TcpFlags::RST) {
            let length = (sent.data.end - sent.data.start) as u32;
            assert_eq!(
                (header.sequence.wrapping_sub(OURS), length),
                (self.from, self.to - self.from),
                "{sent:?}"
            );
        }
        if let Some(ack) = self.number("ack") {
            assert_eq!(header.acknowledgement.wrapping_sub(PEERS), ack, "acknowledgement of {sent:?}");
        }
        if let Some(window) = self.number("win") {
            assert_eq!(u32::from(header.window), window, "window of {sent:?}");
        }
        assert_eq!(header.options.sack.as_slice(), self.sack(PEERS).as_slice(), "ranges of {sent:?}");
    }
}

struct Script {
    tcp: Option<Connection<Vec<u8>>>,
    params: TcpParams,
    now: Time,
    sent: std::collections::VecDeque<(Time, Segment)>,
}

impl Script {
    fn collect(&mut self) {
        let Some(tcp) = &mut self.tcp else { return };
        tcp.discarded().for_each(drop);
        while let Some(segment) = tcp.transmit(self.now, 0) {
            self.sent.push_back((self.now, segment));
        }
    }

    fn advance(&mut self, to: Time) {
        while let Some(at) = self.tcp.as_ref().and_then(|tcp| tcp.deadline()).filter(|&at| at < to) {
            self.now = self.now.max(at);
            self.tcp.as_mut().unwrap().timer(self.now);
            self.collect();
        }
        self.now = to;
        if let Some(tcp) = &mut self.tcp {
            tcp.timer(to);
        }
        self.collect();
    }

    fn line(&mut self, text: &str) {
        let (time, what) = text.split_once(' ').expect("a time and what happens");
        let microseconds = (time.parse::<f64>().expect("milliseconds") * 1e3).round() as u64;
        let at = Time::ZERO + Duration::from_us(microseconds);
        let what = what.trim();
        if let Some(expected) = what.strip_prefix('>') {
            self.advance(at);
            let (when, segment) = self.sent.pop_front().expect("something is sent");
            assert_eq!(when, at, "when it is sent: {segment:?}");
            return Line::parse(expected).compare(&segment);
        }
        self.advance(at);
        assert!(self.sent.is_empty(), "not in the script: {:?}", self.sent);
        if let Some(arrives) = what.strip_prefix('<') {
            let line = Line::parse(arrives);
            match &mut self.tcp {
                Some(tcp) => {
                    tcp.receive(at, &line.header(), vec![7; (line.to - line.from) as usize], 1);
                }
                None => self.tcp = Connection::accept(self.params, OURS, &line.header()),
            }
            return self.collect();
        }
        let (call, number) = what.split_once(' ').unwrap_or((what, ""));
        if call == "connect" {
            self.tcp = Some(Connection::connect(self.params, (1, 2), OURS));
        } else if call != "listen" {
            self.call(call, number);
        }
        self.collect();
    }

    fn call(&mut self, call: &str, word: &str) {
        let tcp = self.tcp.as_mut().expect("there is a connection");
        match call {
            "write" => tcp.write(word.parse().expect("a number")),
            "read" => {
                while tcp.read(self.now).is_some() {}
                tcp.reading_done();
            }
            "finish" => tcp.finish(),
            "close" => tcp.close(self.now),
            "abort" => tcp.abort(),
            "state" => assert_eq!(format!("{:?}", tcp.state()), word),
            "failure" => assert_eq!(format!("{:?}", tcp.failure()), word),
            _ => panic!("no call is called {call}"),
        }
    }
}

fn run(text: &str) {
    run_with(TcpParams { timestamps: false, ..TcpParams::linux(1_040) }, text);
}

fn run_with(params: TcpParams, text: &str) {
    let mut script = Script { tcp: None, params, now: Time::ZERO, sent: Default::default() };
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| script.line(line.trim())));
        assert!(outcome.is_ok(), "line {} of the script: {}", number + 1, line.trim());
    }
    assert!(script.sent.is_empty(), "sent after the script: {:?}", script.sent);
}

/// A connection that we opened, with segments of 1000 bytes.
const OPENED: &str = "
    0   connect
    0   > S  0:0
    1   < S. 0:0 ack 1 win 60000 mss 1000 sackOK
    1   > .  1:1 ack 1
    1   state Established";

fn opened(rest: &str) {
    run(&format!("{OPENED}{rest}"));
}

#[test]
fn a_syn_is_repeated_after_one_and_three_seconds() {
    run("
        0    connect
        0    > S 0:0
        1000 > S 0:0
        3000 > S 0:0
        3500 < S. 0:0 ack 1 win 60000 mss 1000
        3500 > . 1:1 ack 1");
}

#[test]
fn a_syn_is_answered_and_nothing_is_sent_before_its_acknowledgement() {
    run("
        0  listen
        0  < S 0:0 win 60000 mss 1000 sackOK
        0  > S. 0:0 ack 1
        1  < . 1:1 ack 1 win 60000
        1  state Established
        2  write 500
        2  > P. 1:501 ack 1");
}

#[test]
fn the_first_window_is_ten_segments_and_each_acknowledgement_lets_out_as_much_again() {
    opened(
        "
        2 write 20000
        2 > . 1:1001 ack 1
        2 > . 1001:2001
        2 > . 2001:3001
        2 > . 3001:4001
        2 > . 4001:5001
        2 > . 5001:6001
        2 > . 6001:7001
        2 > . 7001:8001
        2 > . 8001:9001
        2 > . 9001:10001
        3 < . 1:1 ack 2001 win 60000
        3 > . 10001:11001
        3 > . 11001:12001
        3 > . 12001:13001
        3 > . 13001:14001",
    );
}

#[test]
fn a_hole_of_three_segments_behind_it_is_filled_at_once_and_the_rest_is_not_sent_again() {
    opened(
        "
        2 write 5000
        2 > . 1:1001
        2 > . 1001:2001
        2 > . 2001:3001
        2 > . 3001:4001
        2 > P. 4001:5001
        3 < . 1:1 ack 1 win 60000 sack 1001-2001
        3.1 < . 1:1 ack 1 win 60000 sack 1001-3001
        3.2 < . 1:1 ack 1 win 60000 sack 1001-4001
        3.2 > . 1:1001
        4 < . 1:1 ack 5001 win 60000",
    );
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips_and_the_slack() {
    // One round trip of 1 ms was measured: 2 ms of two, 2 of slack; more than one segment is under way.
    opened(
        "
        2 write 2000
        2 > . 1:1001
        2 > P. 1001:2001
        6 > P. 1001:2001
        7 < . 1:1 ack 1 win 60000 sack 1001-2001
        7 > . 1:1001
        8 < . 1:1 ack 2001 win 60000",
    );
}

#[test]
fn a_closed_window_is_probed_ever_more_seldom_and_opens() {
    opened(
        "
        2 < . 1:1 ack 1 win 0
        2 write 500
        203 > . 0:0 ack 1
        204 < . 1:1 ack 1 win 0
        605 > . 0:0 ack 1
        606 < . 1:1 ack 1 win 60000
        606 > P. 1:501",
    );
}

#[test]
fn small_writes_wait_for_the_acknowledgement_of_the_first() {
    opened(
        "
        2 write 100
        2 > P. 1:101
        3 write 100
        4 write 100
        5 < . 1:1 ack 101 win 60000
        5 > P. 101:301",
    );
}

#[test]
fn later_acknowledgements_wait_for_a_second_segment_or_40_ms() {
    let params = TcpParams { timestamps: false, quick_acks: 0, ..TcpParams::linux(1_040) };
    run_with(
        params,
        &format!(
            "{OPENED}
        10 < . 1:1001 ack 1 win 60000
        50 > . 1:1 ack 1001
        60 < . 1001:2001 ack 1 win 60000
        61 < . 2001:3001 ack 1 win 60000
        61 > . 1:1 ack 3001"
        ),
    );
}

#[test]
fn a_buffer_larger_than_the_window_field_is_not_announced_at_every_read() {
    let params = TcpParams {
        timestamps: false,
        window_scaling: false,
        receive_buffer: 300_000,
        quick_acks: 0,
        ..TcpParams::linux(1_040)
    };
    run_with(
        params,
        &format!(
            "{OPENED}
        10 < . 1:1001 ack 1 win 60000
        11 read
        50 > . 1:1 ack 1001 win 65535"
        ),
    );
}

#[test]
fn what_comes_too_early_is_told_and_what_comes_twice_too() {
    opened(
        "
        2 < . 1001:2001 ack 1 win 60000
        2 > . 1:1 ack 1 sack 1001-2001
        3 < . 3001:4001 ack 1 win 60000
        3 > . 1:1 ack 1 sack 3001-4001 1001-2001
        4 < . 1:1001 ack 1 win 60000
        4 > . 1:1 ack 2001 sack 3001-4001
        5 < . 1:1001 ack 1 win 60000
        5 > . 1:1 ack 2001 sack 1-1001 3001-4001
        6 < . 2001:3001 ack 1 win 60000
        6 > . 1:1 ack 4001",
    );
}

#[test]
fn only_a_reset_at_the_very_next_position_is_believed() {
    opened(
        "
        2 < R 100:100
        2 > . 1:1 ack 1
        2 state Established
        3 < S 5:5 win 100
        3 > . 1:1 ack 1
        3 state Established
        4 < R 1:1
        4 state Closed
        4 failure Some(Reset)",
    );
}

#[test]
fn a_reset_after_both_ends_have_closed_is_no_failure() {
    opened(
        "
        2 finish
        2 > F. 1:1
        3 < F. 1:1 ack 2 win 60000
        3 > . 2:2 ack 2
        3 state TimeWait
        4 < R 2:2
        4 state Closed
        4 failure None",
    );
}

#[test]
fn we_close_first_and_remember_the_connection_for_a_minute() {
    opened(
        "
        2 write 100
        2 > P. 1:101
        2 finish
        2 > F. 101:101
        3 < . 1:1 ack 102 win 60000
        3 state FinWait2
        4 < F. 1:1 ack 102 win 60000
        4 > . 102:102 ack 2
        4 state TimeWait
        5 < F. 1:1 ack 102 win 60000
        5 > . 102:102 ack 2
        60004 state TimeWait
        60006 state Closed",
    );
}

#[test]
fn the_peer_closes_first_and_hears_the_rest() {
    opened(
        "
        2 < F. 1:1 ack 1 win 60000
        2 > . 1:1 ack 2
        2 state CloseWait
        3 write 100
        3 > P. 1:101 ack 2
        4 finish
        4 > F. 101:101 ack 2
        4 state LastAck
        5 < . 2:2 ack 102 win 60000
        5 state Closed",
    );
}

#[test]
fn both_ends_open_at_once() {
    run("
        0 connect
        0 > S 0:0
        1 < S 0:0 win 60000 mss 1000
        1 > S. 0:0 ack 1
        1 state SynReceived
        2 < S. 0:0 ack 1 win 60000 mss 1000
        2 state Established
        3 write 100
        3 > P. 1:101 ack 1");
}

#[test]
fn both_ends_close_at_once() {
    opened(
        "
        2 finish
        2 > F. 1:1 ack 1
        3 < F. 1:1 ack 1 win 60000
        3 > . 2:2 ack 2
        3 state Closing
        4 < . 2:2 ack 2 win 60000
        4 state TimeWait",
    );
}

#[test]
fn data_for_a_reader_who_has_gone_is_answered_with_a_reset() {
    opened(
        "
        2 close
        2 > F. 1:1 ack 1
        3 < . 1:101 ack 2 win 60000
        3 > R. 2:2 ack 1
        3 state Closed",
    );
}

#[test]
fn a_timeout_sends_the_first_segment_again_and_waits_twice_as_long() {
    let params = TcpParams { timestamps: false, tail_probes: false, ..TcpParams::linux(1_040) };
    run_with(
        params,
        &format!(
            "{OPENED}
        2 write 1000
        2 > P. 1:1001
        203 > P. 1:1001
        605 > P. 1:1001
        700 < . 1:1 ack 1001 win 60000"
        ),
    );
}
