//! Transmit by programmed I/O: frames leave as written, for any order and pieces of their lines, and next to frames
//! from descriptors.

use devices::nic::{KpioParams, LoopbackParams, NicHandle, NicParams};
use engine::{Rng, Seed};
use platform::device::FunctionIndex;
use proptest::prelude::*;
use units::Duration;
use wire::ethernet::{FCS_LEN, LEAST_FRAME};
use wire::kpio::{Format, LINE, framed, signature};
use wire::nic::TxDescriptor;
use wire::nic::registers::{self as regs, counter, feature, kpio, queue};

use super::bench::Bench;
use super::driver::{Queue, enable};
use super::steering::two_ports;
use super::{datagram, frame, mac, pair_of};

pub const PAPERS: Format = Format::Signature(signature::EOP);
const F0: FunctionIndex = FunctionIndex(0);

/// Two NICs back to back, the first with kPIO queues.
pub fn kpio_pair(params: KpioParams) -> (Bench, [NicHandle; 2]) {
    let mut a = NicParams::modern(mac(1));
    a.kpio = Some(params);
    let (mut bench, handles) = pair_of(a, NicParams::modern(mac(2)));
    enable(&mut bench, 0, 0, 0);
    (bench, handles)
}

/// Driver-side state of a kPIO queue.
#[derive(Clone)]
pub struct Writer {
    pub queue: u8,
    pub format: Format,
    /// Total of lines written.
    pub line: u32,
    pub number: u16,
    log2_positions: u8,
    pub depth: u32,
}

impl Writer {
    pub fn start(bench: &mut Bench, queue: u8, format: Format, control: u32) -> Self {
        let limits = bench.read32(0, 0, regs::WINDOWS);
        assert!(u32::from(queue) < limits & 0xff);
        let writer = Self {
            queue,
            format,
            line: 0,
            number: 0,
            log2_positions: (limits >> 16) as u8,
            depth: 1 << (limits >> 8 & 0xff),
        };
        let mode = if format == Format::Framed { kpio::FRAMED } else { 0 };
        bench.write32(0, 0, writer.register(kpio::CONTROL), 0);
        bench.write32(0, 0, writer.register(kpio::CONTROL), kpio::ENABLE | mode | control);
        writer
    }

    pub fn register(&self, register: u64) -> u64 {
        regs::KPIO_QUEUES + u64::from(self.queue) * regs::KPIO_STRIDE + register
    }

    pub fn freed(&self, bench: &mut Bench) -> u32 {
        bench.read32(0, 0, self.register(kpio::FREED))
    }

    pub fn room(&self, bench: &mut Bench) -> u32 {
        self.depth - self.line.wrapping_sub(self.freed(bench))
    }

    /// A frame's lines and their offsets, without writing them.
    pub fn lines(&mut self, frame: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let header = framed::Header { number: self.number, ..framed::Header::default() };
        self.lines_with(header, frame)
    }

    pub fn lines_with(&mut self, header: framed::Header, frame: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut bytes = Vec::new();
        self.format.encode(header, frame, &mut bytes);
        self.number = self.number.wrapping_add(1);
        let window = u64::from(self.queue) * (2 << self.log2_positions) * LINE as u64;
        let first_half = (1u64 << self.log2_positions) * LINE as u64;
        let mut lines = Vec::new();
        for (n, line) in bytes.chunks(LINE).enumerate() {
            let position = u64::from(self.line) & ((1 << self.log2_positions) - 1);
            let half = if n == 0 && self.format == Format::Framed { first_half } else { 0 };
            lines.push((window + half + position * LINE as u64, line.to_vec()));
            self.line = self.line.wrapping_add(1);
        }
        lines
    }

    pub fn send(&mut self, bench: &mut Bench, frame: &[u8]) {
        for (at, line) in self.lines(frame) {
            bench.write_bar(0, 0, regs::WINDOW_BAR, at, &line);
        }
    }
}

/// Frames on the wire, without padding and check sequence.
pub fn sent(bench: &Bench) -> Vec<Vec<u8>> {
    bench.world.sent.iter().map(|(_, _, frame)| frame[..frame.len() - FCS_LEN].to_vec()).collect()
}

pub fn padded(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame.resize(frame.len().max(LEAST_FRAME - FCS_LEN), 0);
    frame
}

#[test]
fn both_formats_send_what_they_can() {
    for format in [PAPERS, Format::Framed] {
        let (mut bench, handles) = kpio_pair(KpioParams::example());
        assert!(bench.read32(0, 0, regs::FEATURES) & feature::KPIO != 0);
        let mut writer = Writer::start(&mut bench, 3, format, 0);
        let mut expected = Vec::new();
        for length in (60..1519).step_by(7) {
            let mut frame = frame(1, mac(2), length, length as u32);
            writer.send(&mut bench, &frame);
            if format == PAPERS {
                frame.resize(length.next_multiple_of(8), 0);
            }
            expected.push(frame);
            bench.run_for(Duration::from_us(1));
            assert_eq!(writer.room(&mut bench), 64);
        }
        assert!(sent(&bench) == expected);
        assert_eq!(handles[0].counter(F0, counter::KPIO_FRAMES), expected.len() as u64);
        assert_eq!(handles[0].counter(F0, counter::FETCHES), 0, "no descriptor, no read");
    }
}

#[test]
fn lines_in_any_order_and_in_pieces() {
    let (mut bench, handles) = kpio_pair(KpioParams::example());
    let mut writer = Writer::start(&mut bench, 0, Format::Framed, 0);
    let mut rng = Seed::new(3).component("order");
    let mut expected = Vec::new();
    for n in 0..200 {
        let frame = frame(1, mac(2), 60 + rng.below(1400) as usize, n);
        let mut pieces = Vec::new();
        for (at, line) in writer.lines(&frame) {
            let cut = rng.below(LINE as u64 + 1) as usize;
            pieces.push((at, line[..cut].to_vec()));
            pieces.push((at + cut as u64, line[cut..].to_vec()));
        }
        shuffle(&mut rng, &mut pieces);
        for (at, piece) in pieces {
            bench.write_bar(0, 0, regs::WINDOW_BAR, at, &piece);
        }
        expected.push(frame);
        bench.run_for(Duration::from_us(1));
    }
    assert!(sent(&bench) == expected);
    assert!(handles[0].counter(F0, counter::KPIO_AHEAD) > 100);
    assert_eq!(handles[0].counter(F0, counter::KPIO_TWICE), 0);
}

fn shuffle<T>(rng: &mut Rng, items: &mut [T]) {
    for n in (1..items.len()).rev() {
        items.swap(n, rng.below(n as u64 + 1) as usize);
    }
}

#[test]
fn a_short_last_line_is_enough_where_that_is_agreed() {
    let (mut bench, _) = kpio_pair(KpioParams::example());
    let mut writer = Writer::start(&mut bench, 0, Format::Framed, kpio::SHORT_LINES);
    let frames: Vec<Vec<u8>> = (0..12).map(|n| frame(1, mac(2), 60 + 13 * n as usize, n)).collect();
    for frame in &frames {
        let mut left = frame.len() + framed::OVERHEAD;
        for (at, line) in writer.lines(frame) {
            // As written by uncached stores of eight bytes.
            let wanted = left.min(LINE);
            for (n, word) in line[..wanted].chunks(8).enumerate() {
                bench.write_bar(0, 0, regs::WINDOW_BAR, at + 8 * n as u64, word);
            }
            left -= wanted;
        }
    }
    bench.run_for(Duration::from_us(20));
    assert!(sent(&bench) == frames);
}

#[test]
fn the_driver_is_told_of_room() {
    let (mut bench, handles) = kpio_pair(KpioParams::example());
    let mut writer = Writer::start(&mut bench, 1, Format::Framed, 0);
    bench.write32(0, 0, writer.register(kpio::CONTROL), 0);
    bench.write(0, 0, writer.register(kpio::REPORT), &0x8000u64.to_le_bytes());
    bench.write32(0, 0, writer.register(kpio::REPORT_EVERY), 16);
    bench.write32(0, 0, writer.register(kpio::CONTROL), kpio::ENABLE | kpio::FRAMED);
    let word =
        |bench: &mut Bench| u32::from_le_bytes(bench.world.bytes(0, 0x8000, 4).unwrap().try_into().unwrap());
    // The wire is slow: frames wait in the queue's memory, which has 64 lines.
    bench.world.rate = units::BitRate::gbit_per_s(1);
    for n in 0..10 {
        writer.send(&mut bench, &frame(1, mac(2), 300, n));
    }
    assert_eq!((writer.line, writer.freed(&mut bench)), (50, 5), "one frame is with the wire");
    assert_eq!(word(&mut bench), 0);
    bench.run_for(Duration::from_us(10));
    assert_eq!((word(&mut bench), writer.freed(&mut bench)), (20, 20), "four frames");
    bench.run_for(Duration::from_us(30));
    assert_eq!(word(&mut bench), 50, "what is below the number is told, too");
    // Reported by an interrupt on request.
    bench.write32(0, 0, writer.register(kpio::VECTOR), 5);
    bench.write32(0, 0, writer.register(kpio::ARM_AT), 53);
    assert!(bench.world.interrupts.is_empty());
    writer.send(&mut bench, &frame(1, mac(2), 300, 10));
    bench.run_for(Duration::from_us(1));
    assert_eq!((word(&mut bench), &bench.world.interrupts[..]), (55, &[(0, 0, 5)][..]));
    bench.run_for(Duration::from_us(10));
    // Overrun: lines without room are rejected, and earlier ones stay intact.
    for n in 11..41 {
        writer.send(&mut bench, &frame(1, mac(2), 300, n));
    }
    bench.run_for(Duration::from_us(200));
    let frames = sent(&bench);
    assert!((20..25).contains(&frames.len()));
    assert!(frames.iter().enumerate().all(|(n, f)| *f == frame(1, mac(2), 300, n as u32)));
    assert!(handles[0].counter(F0, counter::KPIO_OUTSIDE) > 0);
}

#[test]
fn writes_wait_in_the_port_for_room() {
    for format in [PAPERS, Format::Framed] {
        let (mut bench, handles) = kpio_pair(KpioParams::example());
        let mut writer = Writer::start(&mut bench, 0, format, kpio::HOLD);
        bench.world.rate = units::BitRate::gbit_per_s(1);
        let frames: Vec<Vec<u8>> = (0..40).map(|n| frame(1, mac(2), 304, n)).collect();
        let mut held = Duration::ZERO;
        for frame in &frames {
            for (at, line) in writer.lines(frame) {
                let access = platform::device::BarAccess {
                    function: F0,
                    bar: regs::WINDOW_BAR,
                    offset: units::BarOffset::new(at),
                };
                held = held.max(bench.with(0, |device, bus| device.bar_write_holds(bus, access, 64)));
                bench.write_bar(0, 0, regs::WINDOW_BAR, at, &line);
            }
        }
        assert!(held > Duration::from_us(2), "{held:?}");
        bench.run_for(Duration::from_us(200));
        assert!(sent(&bench) == frames, "{format:?}");
        assert_eq!(handles[0].counter(F0, counter::KPIO_OUTSIDE), 0);
    }
}

#[test]
fn checksums_are_filled_in_where_the_header_asks() {
    let (mut bench, _) = kpio_pair(KpioParams::example());
    let mut writer = Writer::start(&mut bench, 0, Format::Framed, 0);
    let whole = datagram((7, 9), &[5; 40]);
    let mut open = whole.clone();
    open[24..26].fill(0);
    open[40..42].fill(0);
    let header = framed::Header { network_checksum: true, transport_checksum: true, ..Default::default() };
    for (at, line) in writer.lines_with(header, &open) {
        bench.write_bar(0, 0, regs::WINDOW_BAR, at, &line);
    }
    bench.run_for(Duration::from_us(1));
    assert!(sent(&bench) == [whole]);
}

#[test]
fn descriptors_and_lines_take_turns() {
    let (mut bench, _) = kpio_pair(KpioParams::example());
    let mut writer = Writer::start(&mut bench, 0, Format::Framed, 0);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    bench.world.rate = units::BitRate::gbit_per_s(1);
    for n in 0..40 {
        tx.send(&mut bench, &frame(10, mac(2), 300, n), 2000, TxDescriptor::default());
    }
    tx.ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(5));
    assert!(bench.world.sent.len() < 4, "the wire is not given more than it can take");
    for n in 0..12 {
        writer.send(&mut bench, &frame(11, mac(2), 300, n));
    }
    bench.run_for(Duration::from_us(500));
    let from: Vec<u8> = sent(&bench).iter().map(|frame| frame[11]).collect();
    assert_eq!(from.len(), 52);
    let first = from.iter().position(|&from| from == 11).unwrap();
    assert!(first < 5, "it does not wait for all of the others");
    let while_both = &from[first..first + 23];
    assert!(while_both.windows(2).all(|two| two[0] != two[1]), "{while_both:?}");
    let done = std::iter::from_fn(|| tx.poll(&mut bench)).count();
    assert_eq!((done, tx.done), (40, 40));
}

#[test]
fn frames_go_round_inside() {
    let mut params = two_ports([mac(1), mac(2)]);
    params.kpio = Some(KpioParams::example());
    params.loopback = Some(LoopbackParams { latency: Duration::from_ns(100), between_subnets: false });
    params.rate = units::BitRate::gbit_per_s(8);
    let (mut bench, _) = pair_of(params, NicParams::modern(mac(3)));
    enable(&mut bench, 0, 0, 0);
    enable(&mut bench, 0, 1, 0);
    assert!(bench.read32(0, 0, regs::STATUS) & regs::status::LINK_UP != 0);
    let mut rx = Queue::start(&mut bench, (0, 1, 0, false), 6, queue::TO_RING);
    rx.give(&mut bench, 32);
    let mut writer = Writer::start(&mut bench, 0, PAPERS, 0);
    bench.run_for(Duration::from_us(2));
    let frames: Vec<Vec<u8>> = (0..20).map(|n| frame(1, mac(2), 104 + 8 * n as usize, n)).collect();
    for frame in &frames {
        writer.send(&mut bench, frame);
        bench.run_for(Duration::from_us(1));
    }
    bench.run_for(Duration::from_us(5));
    let received: Vec<Vec<u8>> = std::iter::from_fn(|| rx.receive(&mut bench)).map(|(f, _)| f).collect();
    assert!(received == frames);
    assert!(bench.world.sent.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any mix of lengths, paths and queues, with one writer at a time per queue: each frame is sent once, in queue
    /// order.
    #[test]
    fn every_frame_leaves_once(
        frames in proptest::collection::vec((60usize..1515, 0u8..4, any::<bool>()), 1..120), seed in any::<u64>(),
        slow in any::<bool>(),
    ) {
        let (mut bench, _) = kpio_pair(KpioParams::example());
        bench.world.rate = units::BitRate::gbit_per_s(if slow { 1 } else { 40 });
        let mut rng = Seed::new(seed).component("order");
        let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
        let mut writers: Vec<Writer> = [Format::Framed, PAPERS, Format::Framed]
            .into_iter()
            .enumerate()
            .map(|(n, format)| Writer::start(&mut bench, n as u8, format, 0))
            .collect();
        let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 4];
        for (n, (length, way, waits)) in frames.into_iter().enumerate() {
            let way = usize::from(way);
            let papers = writers.get(way).is_some_and(|w| w.format == PAPERS);
            let length = if papers { length / 8 * 8 + 8 } else { length };
            let frame = frame(way as u32 + 10, mac(2), length.min(1512 + 6 * usize::from(!papers)), n as u32);
            match writers.get_mut(way) {
                Some(writer) => {
                    while writer.room(&mut bench) < writer.format.lines(frame.len()) as u32 {
                        bench.run_for(Duration::from_us(1));
                    }
                    let mut lines = writer.lines(&frame);
                    shuffle(&mut rng, &mut lines);
                    for (at, line) in lines {
                        bench.write_bar(0, 0, regs::WINDOW_BAR, at, &line);
                    }
                }
                None => {
                    while tx.room() < 1 {
                        bench.run_for(Duration::from_us(1));
                        while tx.poll(&mut bench).is_some() {}
                    }
                    tx.send(&mut bench, &frame, 2000, TxDescriptor::default());
                    tx.ring_doorbell(&mut bench);
                }
            }
            expected[way].push(frame);
            if waits {
                bench.run_for(Duration::from_ns(300));
            }
        }
        bench.run_for(Duration::from_us(2000));
        let mut left: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 4];
        for frame in sent(&bench) {
            left[usize::from(frame[11]) - 10].push(frame);
        }
        prop_assert!(left == expected);
    }

    /// Arbitrary writes to the windows cause no panic, and with length and checksum no unintended frame leaves.
    #[test]
    fn no_write_upsets_it(
        writes in proptest::collection::vec((any::<u32>(), 1usize..300, any::<u8>()), 1..200), papers in any::<bool>(),
        short in any::<bool>(),
    ) {
        let (mut bench, _) = kpio_pair(KpioParams::example());
        let control = if short { kpio::SHORT_LINES } else { 0 };
        let writer = Writer::start(&mut bench, 0, if papers { PAPERS } else { Format::Framed }, control);
        let span = 1u64 << 17;
        for (at, length, fill) in writes {
            bench.write_bar(0, 0, regs::WINDOW_BAR, u64::from(at) % span, &vec![fill; length]);
            if fill % 16 == 0 {
                bench.run_for(Duration::from_us(9));
            }
        }
        bench.run_for(Duration::from_us(200));
        prop_assert!(papers || bench.world.sent.is_empty());
        let _ = writer.freed(&mut bench);
    }
}
