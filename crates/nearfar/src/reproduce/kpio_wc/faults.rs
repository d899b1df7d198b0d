//! What goes wrong on the way into a kPIO queue, in both formats, and how often: a section of the report.
//!
//! The queue is the device's; the lines are written as cores and links do when something fails, without either.

use std::collections::{BTreeMap, VecDeque};

use devices::nic::{KpioParams, Nic, NicHandle, NicParams};
use engine::{Rng, Seed};
use platform::device::{BarAccess, Device, DeviceBus, Dma, FunctionIndex, Token};
use platform::ethernet::{EthernetBus, EthernetPort};
use results::report::{DataTable, Section};
use units::{BarOffset, BitRate, Bytes, Duration, Time};
use wire::ethernet::{EtherType, EthernetHeader, FCS_LEN, MacAddr};
use wire::kpio::{Format, LINE, framed, signature};
use wire::nic::registers::{self as regs, counter, kpio as register};
use wire::pcie::config::ConfigSpace;

const PAPERS: Format = Format::Signature(signature::EOP);
const F0: FunctionIndex = FunctionIndex(0);
/// Runs of each fault.
const RUNS: u64 = 100;

/// Clock and wire.
struct World {
    now: Time,
    timers: BTreeMap<(Time, u64), Token>,
    number: u64,
    sent: Vec<Vec<u8>>,
    wire_free: Time,
    rate: BitRate,
    config: ConfigSpace,
}

impl DeviceBus for World {
    fn now(&self) -> Time {
        self.now
    }
    fn read(&mut self, _: Dma) {}
    fn write(&mut self, _: Dma, _: &[u8]) {}
    fn interrupt(&mut self, _: FunctionIndex, _: u16) {}
    fn wake_at(&mut self, when: Time, token: Token) {
        self.number += 1;
        self.timers.insert((when.max(self.now), self.number), token);
    }
    fn config(&self, _: FunctionIndex) -> &ConfigSpace {
        &self.config
    }
    fn ethernet(&mut self) -> Option<&mut dyn EthernetBus> {
        Some(self)
    }
}

impl EthernetBus for World {
    fn send(&mut self, _: EthernetPort, ready: Time, frame: &[u8]) -> Option<Time> {
        let begin = self.wire_free.max(ready);
        self.wire_free = begin + self.rate.time_for(Bytes::new(frame.len() as u64 + 20));
        self.sent.push(frame[..frame.len() - FCS_LEN].to_vec());
        Some(self.wire_free)
    }
    fn has_carrier(&self, _: EthernetPort) -> bool {
        true
    }
}

/// A device with one queue, and who writes to it.
struct Bench {
    world: World,
    nic: Nic,
    handle: NicHandle,
}

/// What a driver keeps of the queue.
#[derive(Clone)]
struct Writer {
    format: Format,
    line: u32,
    number: u16,
    mask: u64,
}

impl Writer {
    /// A frame's lines and their places.
    fn lines(&mut self, frame: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut bytes = Vec::new();
        let header = framed::Header { number: self.number, ..framed::Header::default() };
        self.format.encode(header, frame, &mut bytes);
        self.number = self.number.wrapping_add(1);
        let place = |(n, line): (usize, &[u8])| {
            let half = if n == 0 && self.format == Format::Framed { self.mask + 1 } else { 0 };
            let position = u64::from(self.line.wrapping_add(n as u32)) & self.mask;
            ((half + position) * LINE as u64, line.to_vec())
        };
        let lines: Vec<_> = bytes.chunks(LINE).enumerate().map(place).collect();
        self.line = self.line.wrapping_add(lines.len() as u32);
        lines
    }
}

impl Bench {
    fn new(format: Format, rate: BitRate) -> Result<(Self, Writer), String> {
        let params = KpioParams::example();
        // The paper's queue is 4 KB in a window of 4 KB.
        let log2_positions = if format == PAPERS { params.log2_lines } else { params.log2_positions };
        let params = KpioParams { queues: 1, log2_positions, ..params };
        let nic = NicParams { kpio: Some(params), rate, ..NicParams::modern(MacAddr::local(1)) };
        let (nic, handle) = Nic::new(nic).map_err(|error| error.to_string())?;
        let config = nic.functions().swap_remove(0).config;
        let (now, timers, sent) = (Time::ZERO, BTreeMap::new(), Vec::new());
        let world = World { now, timers, number: 0, sent, wire_free: Time::ZERO, rate, config };
        let mut bench = Self { world, nic, handle };
        let framed = if format == Format::Framed { register::FRAMED } else { 0 };
        let control = (register::ENABLE | framed).to_le_bytes();
        bench.write(0, regs::KPIO_QUEUES + register::CONTROL, &control);
        Ok((bench, Writer { format, line: 0, number: 0, mask: (1 << log2_positions) - 1 }))
    }

    fn write(&mut self, bar: u8, at: u64, data: &[u8]) {
        let at = BarAccess { function: F0, bar, offset: BarOffset::new(at) };
        self.nic.bar_write(&mut self.world, at, data);
    }

    fn line(&mut self, (at, line): &(u64, Vec<u8>)) {
        self.write(regs::KPIO_BAR, *at, line);
    }

    fn lines(&mut self, lines: &[(u64, Vec<u8>)]) {
        lines.iter().for_each(|line| self.line(line));
    }

    fn next_position(&mut self) -> u32 {
        let at = BarOffset::new(regs::KPIO_QUEUES + register::NEXT);
        let mut bytes = [0; 4];
        self.nic.bar_read(&mut self.world, BarAccess { function: F0, bar: 0, offset: at }, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.world.now + time;
        while self.world.timers.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
            let Some(((at, _), token)) = self.world.timers.pop_first() else { break };
            self.world.now = at;
            self.nic.timer(&mut self.world, token);
        }
        self.world.now = end;
    }
}

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Overrun,
    Retraining,
    LinkLost,
    Stops,
    Signature,
    TwoCores,
}

const FAULTS: [(Fault, &str); 6] = [
    (Fault::Overrun, "the driver writes more than there is room for"),
    (Fault::Retraining, "the link retrains in mid-packet for 60 µs"),
    (Fault::LinkLost, "the link goes down in mid-packet, the rest is lost"),
    (Fault::Stops, "the driver stops in mid-packet and goes on with the next"),
    (Fault::Signature, "the payload holds the signature"),
    (Fault::TwoCores, "two cores write to the queue without a lock"),
];

/// What came of all runs of a fault.
#[derive(Default)]
struct Tally {
    /// Runs in which something was sent that nobody meant.
    spoilt: u64,
    wrong: u64,
    meant: u64,
    lost: u64,
    counted: u64,
    /// Runs after which the next packet was not whole.
    lasting: u64,
}

fn frame(rng: &mut Rng, number: u32) -> Vec<u8> {
    // Whole words, so that the paper's format has its chance.
    let mut frame = vec![number as u8; 64 + 8 * rng.below(50) as usize];
    EthernetHeader::new(MacAddr::local(1), MacAddr::local(2), EtherType::EXPERIMENTAL).emit(&mut frame);
    frame[14..18].copy_from_slice(&number.to_le_bytes());
    frame
}

fn run(fault: Fault, format: Format, seed: Seed, tally: &mut Tally) -> Result<(), String> {
    let mut rng = seed.component("fault");
    // An overrun takes a wire that is slower than the link.
    let rate = BitRate::gbit_per_s(if fault == Fault::Overrun { 1 } else { 10 });
    let (mut bench, mut writer) = Bench::new(format, rate)?;
    let mut meant: Vec<Vec<u8>> = Vec::new();
    let new = |meant: &mut Vec<Vec<u8>>, rng: &mut Rng| {
        meant.push(frame(rng, meant.len() as u32));
        meant[meant.len() - 1].clone()
    };
    bench.lines(&writer.lines(&new(&mut meant, &mut rng)));
    bench.run_for(Duration::from_us(10));
    match fault {
        Fault::Overrun => {
            for _ in 0..30 {
                bench.lines(&writer.lines(&new(&mut meant, &mut rng)));
            }
        }
        Fault::Retraining | Fault::LinkLost | Fault::Stops => {
            let lines = writer.lines(&new(&mut meant, &mut rng));
            let (first, rest) = lines.split_at(1 + rng.below(lines.len() as u64 - 1) as usize);
            bench.lines(first);
            bench.run_for(Duration::from_us(60));
            if fault == Fault::Retraining {
                bench.lines(rest);
            }
        }
        Fault::Signature => {
            new(&mut meant, &mut rng);
            let last = meant.len() - 1;
            let words = meant[last].len() as u64 / 8;
            let at = 8 * (3 + rng.below(words - 4)) as usize;
            meant[last][at..at + 8].copy_from_slice(&signature::EOP.to_le_bytes());
            bench.lines(&writer.lines(&meant[last]));
        }
        Fault::TwoCores => {
            for _ in 0..4 {
                // Both begin with the same state, and who writes it back last wins.
                let mut writers = [writer.clone(), writer.clone()];
                let mut left: Vec<VecDeque<(u64, Vec<u8>)>> = Vec::new();
                for writer in &mut writers {
                    left.push(writer.lines(&new(&mut meant, &mut rng)).into());
                }
                while left.iter().any(|lines| !lines.is_empty()) {
                    if let Some(line) = left[rng.below(2) as usize].pop_front() {
                        bench.line(&line);
                    }
                }
                let [a, b] = writers;
                writer = if rng.below(2) == 0 { a } else { b };
            }
        }
    }
    bench.run_for(Duration::from_us(500));
    // From here on one writer, which has asked the device for its place.
    writer.line = bench.next_position();
    let last = new(&mut meant, &mut rng);
    bench.lines(&writer.lines(&last));
    bench.run_for(Duration::from_us(200));
    let sent = &bench.world.sent;
    let wrong = sent.iter().filter(|frame| !meant.contains(frame)).count() as u64;
    let lost = meant.iter().filter(|frame| !sent.contains(frame)).count() as u64;
    let count = |which| bench.handle.counter(F0, which);
    tally.spoilt += u64::from(wrong > 0);
    tally.wrong += wrong;
    tally.meant += meant.len() as u64;
    tally.lost += lost;
    tally.counted += count(counter::KPIO_DROPPED).max(count(counter::KPIO_MISSING));
    tally.lasting += u64::from(sent.last() != Some(&last));
    Ok(())
}

fn tally(fault: Fault, format: Format, seed: Seed) -> Result<Tally, String> {
    let mut all = Tally::default();
    for n in 0..RUNS {
        run(fault, format, seed.part(&format!("{fault:?}{n}")), &mut all)?;
    }
    Ok(all)
}

/// The report's section.
pub fn section(seed: u64) -> Result<Section, String> {
    let seed = Seed::new(seed).part("kpio-wc faults");
    let mut rows = Vec::new();
    for (fault, name) in FAULTS {
        for (format, label) in [(PAPERS, "signature"), (Format::Framed, "length and checksum")] {
            let t = tally(fault, format, seed)?;
            let numbers = [t.spoilt, t.wrong, t.meant, t.lost, t.counted, t.lasting];
            let texts = [name.to_owned(), label.to_owned()].into_iter();
            rows.push(texts.chain(numbers.map(|n| n.to_string())).collect());
        }
    }
    let header = [
        "fault",
        "format",
        "runs of 100 that send what was not meant",
        "such packets",
        "packets meant",
        "lost",
        "counted as lost",
        "runs after which the next is not whole",
    ];
    Ok(Section {
        title: "When something goes wrong".into(),
        prose: vec![
            "The paper's format ends a packet with a signature. It cannot know that lines are missing, mixed or a \
             payload, and sends what it has: it takes a false signature to be as good as a dropped packet, but two \
             packets leave that nobody meant. The second format costs no more lines: length and number in front, \
             checksum behind, and the address of its first line says where a packet begins. Then nothing is sent that \
             was not meant, but for one mixture of lines in four thousand million, and all that is lost is counted."
                .into(),
        ],
        tables: vec![DataTable {
            title: String::new(),
            header: header.map(String::from).to_vec(),
            rows,
            numbers_from: 2,
        }],
        ..Section::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_format_sends_nothing_that_was_not_meant_and_counts_the_rest() {
        for (fault, name) in FAULTS {
            let t = tally(fault, Format::Framed, Seed::new(2)).unwrap();
            assert_eq!((t.spoilt, t.wrong, t.lasting), (0, 0, 0), "{name}");
            assert!(t.counted >= t.lost, "{name}: {} of {} counted", t.counted, t.lost);
        }
        let signature = tally(Fault::Signature, PAPERS, Seed::new(2)).unwrap();
        assert_eq!(signature.spoilt, RUNS);
    }
}
