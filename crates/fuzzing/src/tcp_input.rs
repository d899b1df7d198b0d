//! A connection that receives any segments, in any state, between any calls of its program: no invariant is violated,
//! and each piece of received data is read or returned.

use crate::pieces::{Numbers, Piece};
use inet::tcp::{Connection, Payload, State, TcpParams};
use units::{Duration, Time};
use wire::ip::{TcpFlags, TcpHeader, TcpOptions, tcp::SackBlocks};

/// A segment close to what the connection expects, or arbitrary.
fn segment(numbers: &mut Numbers<'_>, (next, acknowledged): (u32, u32)) -> TcpHeader {
    let near = |numbers: &mut Numbers<'_>, to: u32| to.wrapping_add_signed(i32::from(numbers.word() as i16));
    let shape = numbers.byte();
    let sequence = if shape & 1 == 0 { next } else { near(numbers, next) };
    let acknowledgement = if shape & 2 == 0 { acknowledged } else { near(numbers, acknowledged) };
    let mut options = TcpOptions::default();
    if shape & 4 != 0 {
        options.timestamps = Some((near(numbers, 0), near(numbers, 0)));
    }
    if shape & 8 != 0 {
        let (a, b) = (near(numbers, acknowledged), near(numbers, acknowledged));
        options.sack = SackBlocks::new(&[(a, b), (near(numbers, a), near(numbers, b))]);
    }
    if shape & 16 != 0 {
        options.mss = Some(numbers.word());
        options.window_scale = Some(numbers.byte());
        options.sack_permitted = true;
    }
    let flags = if shape & 32 == 0 { TcpFlags::ACK } else { TcpFlags(numbers.byte()) };
    let window = if shape & 64 == 0 { 1_000 } else { numbers.word() };
    TcpHeader { source: 2, destination: 1, sequence, acknowledgement, flags, window, urgent: 0, options }
}

/// Tests an input.
pub fn run(bytes: &[u8]) {
    let mut numbers = Numbers(bytes);
    let mut now = Time::ZERO + Duration::from_ms(1);
    let initial = u32::from(numbers.word()) << 16;
    let peer = u32::from(numbers.word()) << 16;
    let params = TcpParams::linux(1_500);
    let mut all = if numbers.byte() & 1 == 0 {
        Connection::<Piece>::connect(params, (1, 2), initial)
    } else {
        let mut syn = segment(&mut numbers, (peer, 0));
        syn.flags = TcpFlags::SYN;
        match Connection::accept(params, initial, &syn) {
            Some(connection) => connection,
            None => return,
        }
    };
    let mut acknowledged = initial;
    let mut next = peer;
    while !numbers.0.is_empty() {
        match numbers.byte() % 10 {
            0..=4 => {
                let header = segment(&mut numbers, (next, acknowledged));
                let length = u32::from(numbers.word() & 0x7ff);
                let segments = 1 + u16::from(numbers.byte() & 7);
                all.receive(now, &header, Piece::new(length), segments);
                next = header.sequence.wrapping_add(length);
            }
            5 => {
                let step = Duration::from_us(u64::from(numbers.word()) * 10);
                now = all.deadline().unwrap_or(now + step).max(now);
                all.timer(now);
            }
            6 => now += Duration::from_us(u64::from(numbers.word())),
            7 if all.may_write() => all.write(numbers.word().into()),
            8 => {
                if let Some(mut piece) = all.read(now) {
                    let most = u32::from(numbers.byte());
                    if most > 0 && most < piece.len() {
                        piece.drop_front(most);
                        all.unread(piece);
                    } else {
                        piece.give_back();
                    }
                    all.reading_done();
                }
            }
            9 => match numbers.byte() % 8 {
                0 => all.close(now),
                1 => all.abort(),
                2 | 3 if all.may_write() => all.finish(),
                4 => all.set_no_delay(true),
                _ => {}
            },
            _ => {}
        }
        // A window's worth, segmented by the device.
        let limit = if numbers.byte() & 1 == 0 { 0 } else { 65_000 };
        // A peer may request segments of 24 bytes (64 less 40 of options) and open its window wide: at most as many of
        // them as the written data fills, each sent at most once more, and a few without data.
        let most = 16 + 2 * (all.unacknowledged() / 24 + 1);
        let mut count = 0;
        while let Some(segment) = all.transmit(now, limit) {
            assert!(segment.data.end - segment.data.start <= 65_535 && segment.header.len() <= 60);
            acknowledged = acknowledged.max(segment.header.sequence.wrapping_add(1));
            count += 1;
            assert!(count < most, "it never stops sending");
        }
        all.discarded().for_each(Piece::give_back);
    }
    if all.state() != State::Closed {
        all.abort();
    }
    while let Some(piece) = all.read(now) {
        piece.give_back();
    }
    all.discarded().for_each(Piece::give_back);
}
