//! Report section: faults on the way into a kPIO queue, in both formats, and their frequency.
//!
//! Cores of the paper's host write cache lines as a faulty driver would, after the card's own driver has started the
//! queue. The lines pass write-combining buffers, root port, link and queue; the card's loopback returns the frames
//! to memory.

use std::cell::Cell;
use std::rc::Rc;

use nearfar::drivers::nic::{KpioParams, NicDriver, NicDriverParams};
use nearfar::engine::{Rng, Seed};
use platform::cpu::Cpu;
use platform::mmio::Mmio;
use platform::net::{PacketDevice, PacketQueue};
use results::report::{DataTable, Section};
use units::Duration;
use wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use wire::kpio::{Format, LINE, framed, signature};
use wire::nic::registers::{COUNTERS, KPIO_QUEUES, counter, kpio as register};

use super::analyser::{Card, FPGA, Watched};
use super::window::WindowDriver;
use crate::Options;

const PAPERS: Format = Format::Signature(signature::EOP);
const RUNS: u64 = 100;
/// Queue positions that cannot distinguish a line of the past round from one of the next: as many as there are lines.
const NARROW: u32 = 64;
/// The formats as the card ships, and the second one with the paper's window size.
const WAYS: [(Format, Option<u32>, &str); 3] = [
    (PAPERS, None, "signature"),
    (Format::Framed, None, "length and checksum"),
    (Format::Framed, Some(NARROW), "the same, 64 positions"),
];
/// Cores that write.
const CORES: [u16; 2] = [1, 2];
/// Time for a queue to give up waiting and for all frames to return.
const REST: Duration = Duration::from_us(200);

/// A driver's state of the queue.
#[derive(Clone)]
struct Writer {
    format: Format,
    line: u32,
    number: u16,
    /// Position mask, and the offset of positions for first lines.
    mask: u64,
    first: u64,
}

impl Writer {
    /// The lines of a frame, with their positions.
    fn lines(&mut self, frame: &[u8]) -> Vec<(u64, [u8; LINE])> {
        let mut bytes = Vec::new();
        let header = framed::Header { number: self.number, ..framed::Header::default() };
        self.format.encode(header, frame, &mut bytes);
        self.number = self.number.wrapping_add(1);
        let place = |(n, line): (usize, &[u8; LINE])| {
            let half = if n == 0 && self.format == Format::Framed { self.first } else { 0 };
            let position = u64::from(self.line.wrapping_add(n as u32)) & self.mask;
            ((half + position) * LINE as u64, *line)
        };
        let lines: Vec<_> = bytes.as_chunks::<LINE>().0.iter().enumerate().map(place).collect();
        self.line = self.line.wrapping_add(lines.len() as u32);
        lines
    }
}

/// Writes lines, with a random pause of up to `pause` nanoseconds between them.
async fn write(cpu: Cpu, window: Mmio, lines: Vec<(u64, [u8; LINE])>, mut rng: Rng, pause: u64) {
    for (at, line) in lines {
        window.stream(&cpu, at, &line);
        cpu.sync().await;
        if pause > 0 {
            cpu.sleep(Duration::from_ns(rng.below(pause))).await;
        }
    }
}

/// The paper's host and card with a queue of one format.
struct FaultBench {
    rig: Watched,
    window: Rc<WindowDriver>,
    device: Rc<dyn PacketDevice>,
    /// The other interface, which receives the looped frames.
    other: Rc<dyn PacketDevice>,
    arrivals: Rc<PacketQueue>,
    format: Format,
}

impl FaultBench {
    fn new(options: &Options, fault: Fault, format: Format, positions: Option<u32>) -> Result<Self, String> {
        let kpio = KpioParams { framed: format == Format::Framed, ..KpioParams::default() };
        let params = NicDriverParams { channels: Some(1), kpio: Some(kpio), ..NicDriverParams::default() };
        let window = WindowDriver::beside(NicDriver::new(params));
        // An overrun needs interfaces slower than the link.
        let slow = if fault == Fault::Overrun { "change.controller.rate = \"1 Gbit/s\"\n" } else { "" };
        let narrow = positions.map(|positions| format!("change.kpio.positions = {positions}\n"));
        let change = &format!("{slow}{}", narrow.unwrap_or_default());
        let rig = Watched::new(options, Card { change, ..FPGA }, vec![window.clone()])?;
        let device = rig.device()?;
        let other = rig.kernel().packet_device("eth1").ok_or("the card has one port")?;
        let arrivals = other.listen(None, 1 << 16);
        let all = Rc::clone(&other);
        let done = rig.spawn(0, async move |cpu| all.set_promiscuous(&cpu, true));
        rig.wait(&done)?;
        Ok(Self { rig, window, device, other, arrivals, format })
    }

    /// Reopens an interface.
    fn reopen(&self, device: &Rc<dyn PacketDevice>) -> Result<(), String> {
        let device = Rc::clone(device);
        let done = self.rig.spawn(0, async move |cpu| {
            device.stop(&cpu).await;
            device.open(&cpu).await
        });
        self.rig.wait(&done)?.map_err(|error| error.to_string())
    }

    /// Restarts the queue.
    fn restart(&self) -> Result<Writer, String> {
        self.reopen(&self.device)?;
        let window = self.window.get()?;
        // The second half of the positions is for lines that start a frame.
        let first = window.length() / LINE as u64 / 2;
        let positions = if self.format == Format::Framed { first } else { NARROW.into() };
        Ok(Writer { format: self.format, line: 0, number: 0, mask: positions - 1, first })
    }

    /// Lets cores write lines, with pauses of up to `pause` nanoseconds, until all are written and processed.
    fn write(&self, lines: Vec<Vec<(u64, [u8; LINE])>>, rng: &mut Rng, pause: u64) -> Result<(), String> {
        let writers = self.begin(lines, rng, pause)?;
        self.rig.wait_all(&writers)?;
        self.rig.run_for(REST);
        Ok(())
    }

    fn begin(
        &self,
        lines: Vec<Vec<(u64, [u8; LINE])>>,
        rng: &mut Rng,
        pause: u64,
    ) -> Result<Vec<platform::sync::Completion<()>>, String> {
        let window = self.window.get()?;
        let start = |(core, lines): (u16, Vec<_>)| {
            let (window, rng) = (window.clone(), Seed::new(rng.below(u64::MAX)).component("writer"));
            self.rig.spawn(core, move |cpu| Box::pin(write(cpu, window, lines, rng, pause)))
        };
        Ok(CORES.into_iter().zip(lines).map(start).collect())
    }

    /// Reads a register of the queue.
    fn register(&self, at: u64) -> Result<u32, String> {
        self.window.read(&self.rig, KPIO_QUEUES + at)
    }

    /// Number of frames that the card has taken from the queue since its start.
    fn taken(&self) -> Result<u32, String> {
        self.window.read(&self.rig, COUNTERS + 8 * counter::KPIO_FRAMES as u64)
    }

    /// Frames received since the last call.
    fn arrived(&self) -> Result<Vec<Vec<u8>>, String> {
        let arrivals = Rc::clone(&self.arrivals);
        let read = self.rig.spawn(3, async move |cpu| {
            let mut frames = Vec::new();
            while let Some(packet) = arrivals.try_take() {
                let mut bytes = vec![0; packet.length() as usize];
                packet.load(&cpu, &mut bytes);
                packet.release(&cpu);
                frames.push(bytes);
            }
            frames
        });
        self.rig.wait(&read)
    }
}

/// An injected fault.
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
    (Fault::Retraining, "the link retrains in mid-packet"),
    (Fault::LinkLost, "the link goes down in mid-packet, the rest is lost"),
    (Fault::Stops, "the driver stops in mid-packet and goes on with the next"),
    (Fault::Signature, "the payload holds the signature"),
    (Fault::TwoCores, "two cores write to the queue without a lock"),
];

/// Counts over all runs of a fault.
#[derive(Default)]
struct Tally {
    /// Runs in which a frame was sent that no driver intended.
    spoilt: u64,
    wrong: u64,
    meant: u64,
    /// Frames that did not return. Of these, the ones that the card had sent: the link lost them on the way back.
    lost: u64,
    behind: u64,
    counted: u64,
    /// Runs after which the next packet was damaged.
    lasting: u64,
}

fn frame(rng: &mut Rng, number: u32) -> Vec<u8> {
    // Whole words, as the paper's format requires.
    let mut frame = vec![number as u8; 64 + 8 * rng.below(50) as usize];
    EthernetHeader::new(MacAddr::local(1), MacAddr::local(2), EtherType::EXPERIMENTAL).emit(&mut frame);
    frame[14..18].copy_from_slice(&number.to_le_bytes());
    frame
}

fn run(bench: &FaultBench, fault: Fault, rng: &mut Rng, tally: &mut Tally) -> Result<(), String> {
    let mut writer = bench.restart()?;
    let taken_before = bench.taken()?;
    let meant: Cell<Vec<Vec<u8>>> = Cell::default();
    let new = |rng: &mut Rng| {
        let mut all = meant.take();
        let new = frame(rng, all.len() as u32);
        all.push(new.clone());
        meant.set(all);
        new
    };
    let first = writer.lines(&new(rng));
    bench.write(vec![first], rng, 0)?;
    match fault {
        Fault::Overrun => {
            let lines = (0..30).flat_map(|_| writer.lines(&new(rng))).collect();
            bench.write(vec![lines], rng, 0)?;
        }
        Fault::Retraining | Fault::LinkLost => {
            let lines = writer.lines(&new(rng));
            let writers = bench.begin(vec![lines], rng, 200)?;
            bench.rig.run_for(Duration::from_ns(1_000 + rng.below(1_500)));
            bench.rig.disturb_link(fault == Fault::LinkLost);
            bench.rig.wait_all(&writers)?;
            bench.rig.run_for(REST);
            if fault == Fault::LinkLost {
                // The receiving interface may also have lost completions and doorbells, so its ring restarts, as
                // after an error that the port reports.
                bench.reopen(&bench.other)?;
            }
        }
        Fault::Stops => {
            let mut lines = writer.lines(&new(rng));
            lines.truncate(1 + rng.below(lines.len() as u64 - 1) as usize);
            bench.write(vec![lines], rng, 0)?;
        }
        Fault::Signature => {
            let mut frame = new(rng);
            let at = 8 * (3 + rng.below(frame.len() as u64 / 8 - 4)) as usize;
            frame[at..at + 8].copy_from_slice(&signature::EOP.to_le_bytes());
            let mut all = meant.take();
            let last = all.len() - 1;
            all[last].clone_from(&frame);
            meant.set(all);
            bench.write(vec![writer.lines(&frame)], rng, 0)?;
        }
        Fault::TwoCores => {
            for _ in 0..4 {
                // Both start with the same state; the last one to write it back wins.
                let mut writers = [writer.clone(), writer.clone()];
                let lines = writers.iter_mut().map(|writer| writer.lines(&new(rng))).collect();
                bench.write(lines, rng, 300)?;
                let [a, b] = writers;
                writer = if rng.below(2) == 0 { a } else { b };
            }
        }
    }
    // From here on, a single writer, which has read its position from the device.
    writer.line = bench.register(register::NEXT)?;
    let last = new(rng);
    bench.write(vec![writer.lines(&last)], rng, 0)?;
    let (sent, meant) = (bench.arrived()?, meant.take());
    // Each frame was intended once; a repetition was not.
    let mut missing: Vec<&Vec<u8>> = meant.iter().collect();
    let is_meant = |frame: &&Vec<u8>| missing.extract_if(.., |other| other == frame).next().is_some();
    let wrong = sent.len() as u64 - sent.iter().filter(is_meant).count() as u64;
    let lost = missing.len() as u64;
    let counted = bench.register(register::DROPPED)?.max(bench.register(register::MISSING)?);
    let taken = u64::from(bench.taken()?.wrapping_sub(taken_before));
    tally.spoilt += u64::from(wrong > 0);
    tally.wrong += wrong;
    tally.meant += meant.len() as u64;
    tally.lost += lost;
    tally.behind += taken.saturating_sub(sent.len() as u64);
    tally.counted += u64::from(counted);
    tally.lasting += u64::from(sent.last() != Some(&last));
    Ok(())
}

fn tally(
    options: &Options,
    fault: Fault,
    format: Format,
    positions: Option<u32>,
    runs: u64,
) -> Result<Tally, String> {
    let bench = FaultBench::new(options, fault, format, positions)?;
    let mut rng = Seed::new(options.seed).part("kpio-wc faults").component(&format!("{fault:?}"));
    let mut all = Tally::default();
    for _ in 0..runs {
        run(&bench, fault, &mut rng, &mut all)?;
    }
    Ok(all)
}

/// Builds the report section.
pub fn section(options: &Options) -> Result<Section, String> {
    let mut rows = Vec::new();
    for (fault, name) in FAULTS {
        for (format, positions, label) in WAYS {
            let t = tally(options, fault, format, positions, RUNS)?;
            let numbers = [t.spoilt, t.wrong, t.meant, t.lost, t.behind, t.counted, t.lasting];
            let texts = [name.to_owned(), label.to_owned()].into_iter();
            rows.push(texts.chain(numbers.map(|n| n.to_string())).collect());
        }
    }
    let header = [
        "fault",
        "format",
        "spoilt runs",
        "not meant",
        "meant",
        "lost",
        "on the way back",
        "counted",
        "next spoilt",
    ];
    Ok(Section {
        title: "When something goes wrong".into(),
        prose: vec![
            "The paper's format ends a packet with a signature. It cannot know that lines are missing, mixed or a \
             payload, and sends what it has: it takes a false signature to be as good as a dropped packet, but two \
             packets leave that nobody meant. The second format costs no more lines: length and number in front, \
             checksum behind, and the address of its first line says where a packet begins. Then nothing is sent that \
             was not meant, but for one mixture of lines in four thousand million, what the queue does not send it counts, and the \
             next packet is whole. A link that goes down also loses packets that the queue has sent, on their way back into memory, \
             and completions of the receiving ring, which begins anew after that: such packets have a column of their \
             own."
                .into(),
            "The second format takes room to tell a line of the past from one that comes early. The paper's 4 KB range has a \
             position for each of the 64 lines that it keeps, and the paper's format is written there. For the second one the card \
             that comes with this program has four times as many positions (assumed: the paper has no such format): a line \
             that comes too late, or again, is known to be over and thrown away. A third row shows what it would do in \
             the paper's range: two cores that write over each other lose packets that are not counted, and the next one may \
             be lost with them."
                .into(),
            format!(
                "Of {RUNS} runs of each fault: those in which a packet was sent that nobody meant, and how many such packets; \
                 packets that were meant and that did not come back, those among them that the card had sent, and what \
                 the queue counts as lost; runs after which the next packet is not whole. Before that packet its writer reads \
                 from the card which line it waits for (register NEXT), as the card's own driver does where the card tells of \
                 more free lines than were written. Lines that the driver waits for and that do not come are given up by \
                 the card after its patience, and it goes on behind them."
            ),
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
        // The card as it ships, the report's runs, several seeds.
        for seed in 1..=3 {
            let options = Options::whole(seed);
            for (fault, _) in FAULTS {
                let t = tally(&options, fault, Format::Framed, None, RUNS).unwrap();
                assert_eq!((t.spoilt, t.wrong, t.lasting), (0, 0, 0), "{fault:?}, seed {seed}");
                assert_eq!(t.counted + t.behind, t.lost, "{fault:?}, seed {seed}: each once");
            }
        }
        let options = Options::whole(2);
        let signature = tally(&options, Fault::Signature, PAPERS, None, 20).unwrap();
        assert_eq!(signature.spoilt, 20);
        // With the paper's number of positions, interleaved lines of two cores may also cost the next packet.
        for (fault, _) in FAULTS {
            let t = tally(&options, fault, Format::Framed, Some(NARROW), 20).unwrap();
            assert_eq!((t.spoilt, t.wrong), (0, 0), "{fault:?}");
            if fault != Fault::TwoCores {
                assert!(t.lasting == 0 && t.counted + t.behind >= t.lost, "{fault:?}");
            }
        }
    }
}
