//! Faults on the way to a kPIO queue, in both formats. With length and checksum, no unintended frame is sent, every
//! frame is sent or counted, and the next one is complete. With the paper's format, the tests record what is sent.

use devices::nic::KpioParams;
use engine::{Rng, Seed};
use platform::device::FunctionIndex;
use units::Duration;
use wire::kpio::{Format, LINE, signature};
use wire::nic::registers::{self as regs, counter, kpio as register};

use super::bench::Bench;
use super::kpio::{PAPERS, Writer, kpio_pair, padded, sent};
use super::{frame, mac};

const F0: FunctionIndex = FunctionIndex(0);

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The driver writes more than there is room for.
    Overrun,
    /// The link is down in mid-frame for longer than the device waits, so its lines arrive late.
    Retraining,
    /// The same, and data in flight is lost.
    LinkLost,
    /// The driver stops in mid-frame and continues with another frame.
    Stops,
    /// The payload contains a signature.
    Signature,
    /// Two writers with copies of the same state.
    TwoCores,
}

const FAULTS: [Fault; 6] =
    [Fault::Overrun, Fault::Retraining, Fault::LinkLost, Fault::Stops, Fault::Signature, Fault::TwoCores];

/// Outcome of the frames of one fault.
#[derive(Default, Debug)]
struct Outcome {
    meant: usize,
    right: usize,
    /// Sent, but never intended.
    wrong: usize,
    /// Counted by the device as dropped or missing.
    counted: u64,
    /// The frame after the fault, once the queue has settled, was complete.
    next_is_whole: bool,
}

fn length(rng: &mut Rng) -> usize {
    // Whole words, which the paper's format needs.
    64 + 8 * rng.below(50) as usize
}

fn write(bench: &mut Bench, lines: &[(u64, Vec<u8>)]) {
    for (at, line) in lines {
        bench.write_bar(0, 0, regs::WINDOW_BAR, *at, line);
    }
}

fn try_fault(fault: Fault, format: Format, seed: u64) -> Outcome {
    let mut rng = Seed::new(seed).component("fault");
    // The paper's queue is 4 KB in a window of 4 KB.
    let params = KpioParams::example();
    let papers = KpioParams { log2_positions: params.log2_lines, ..params };
    let (mut bench, handles) = kpio_pair(if format == PAPERS { papers } else { params });
    let mut writer = Writer::start(&mut bench, 0, format, 0);
    let mut meant: Vec<Vec<u8>> = Vec::new();
    let new = |meant: &mut Vec<Vec<u8>>, rng: &mut Rng| {
        let frame = frame(1, mac(2), length(rng), meant.len() as u32);
        meant.push(frame.clone());
        frame
    };
    for _ in 0..3 {
        writer.send(&mut bench, &new(&mut meant, &mut rng));
        bench.run_for(Duration::from_us(1));
    }
    match fault {
        Fault::Overrun => {
            bench.world.rate = units::BitRate::gbit_per_s(1);
            for _ in 0..30 {
                writer.send(&mut bench, &new(&mut meant, &mut rng));
            }
        }
        Fault::Retraining | Fault::LinkLost => {
            let lines = writer.lines(&new(&mut meant, &mut rng));
            let cut = 1 + rng.below(lines.len() as u64 - 1) as usize;
            write(&mut bench, &lines[..cut]);
            bench.run_for(Duration::from_us(60));
            if matches!(fault, Fault::Retraining) {
                write(&mut bench, &lines[cut..]);
            }
        }
        Fault::Stops => {
            let lines = writer.lines(&new(&mut meant, &mut rng));
            let cut = 1 + rng.below(lines.len() as u64 - 1) as usize;
            write(&mut bench, &lines[..cut]);
        }
        Fault::Signature => {
            let mut frame = new(&mut meant, &mut rng);
            let at = 16 + 8 * rng.below((frame.len() as u64 - 24) / 8) as usize;
            frame[at..at + 8].copy_from_slice(&signature::EOP.to_le_bytes());
            *meant.last_mut().unwrap() = frame.clone();
            writer.send(&mut bench, &frame);
        }
        Fault::TwoCores => {
            let mut other = writer.clone();
            for _ in 0..4 {
                let (a, b) = (new(&mut meant, &mut rng), new(&mut meant, &mut rng));
                let mut pieces: Vec<Vec<(u64, Vec<u8>)>> = vec![Vec::new(); 2];
                for (n, (at, line)) in writer
                    .lines(&a)
                    .into_iter()
                    .map(|l| (0, l))
                    .chain(other.lines(&b).into_iter().map(|l| (1, l)))
                {
                    // A core's buffer leaves whole, or early in two pieces.
                    let cut = if rng.below(4) == 0 { 16 * rng.below(4) as usize } else { 0 };
                    if cut > 0 {
                        pieces[n].push((at, line[..cut].to_vec()));
                    }
                    pieces[n].push((at + cut as u64, line[cut..LINE].to_vec()));
                }
                let mut queues: Vec<_> = pieces.into_iter().map(std::collections::VecDeque::from).collect();
                while queues.iter().any(|queue| !queue.is_empty()) {
                    let n = rng.below(2) as usize;
                    if let Some((at, piece)) = queues[n].pop_front() {
                        bench.write_bar(0, 0, regs::WINDOW_BAR, at, &piece);
                    }
                }
                // The last writer of the shared state wins.
                let last = if rng.below(2) == 0 { writer.clone() } else { other.clone() };
                (writer, other) = (last.clone(), last);
            }
        }
    }
    bench.run_for(Duration::from_us(500));
    // From now on, a single writer that knows the device's position, which some faults do not need.
    let last = frame(1, mac(2), 200, 9999);
    if matches!(fault, Fault::Overrun | Fault::TwoCores) || seed % 2 == 0 {
        writer.line = bench.read32(0, 0, writer.register(register::NEXT));
    }
    writer.send(&mut bench, &last);
    bench.run_for(Duration::from_us(100));
    let out = sent(&bench);
    let next_is_whole = out.last() == Some(&last);
    meant.push(last);
    let right = meant.iter().filter(|m| out.contains(&padded(m))).count();
    let wrong = out.iter().filter(|sent| !meant.iter().any(|m| padded(m) == **sent)).count();
    let mut unique = out.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), out.len(), "a frame was sent twice");
    let count = |which| handles[0].counter(F0, which);
    // Frames that began are counted as dropped; those that did not are counted by their missing numbers.
    let counted = count(counter::KPIO_DROPPED).max(count(counter::KPIO_MISSING));
    Outcome { meant: meant.len(), right, wrong, counted, next_is_whole }
}

#[test]
fn with_length_and_checksum_nothing_is_sent_that_was_not_meant() {
    for fault in FAULTS {
        for seed in 0..30 {
            let outcome = try_fault(fault, Format::Framed, seed);
            assert_eq!(outcome.wrong, 0, "{fault:?} {seed}: {outcome:?}");
            assert!(outcome.next_is_whole, "{fault:?} {seed}: {outcome:?}");
            let lost = (outcome.meant - outcome.right) as u64;
            assert!(outcome.counted >= lost, "{fault:?} {seed}: {outcome:?}");
            if matches!(fault, Fault::Signature | Fault::Retraining) {
                assert_eq!(lost, 0);
            }
        }
    }
}

#[test]
fn with_the_papers_format_it_is_seen_what_is_sent() {
    let wrong = |fault| {
        let outcomes: Vec<Outcome> = (0..30).map(|seed| try_fault(fault, PAPERS, seed)).collect();
        let spoilt = outcomes.iter().filter(|o| o.wrong > 0).count();
        let lost: usize = outcomes.iter().map(|o| o.meant - o.right).sum();
        eprintln!("{fault:?}: {spoilt} of 30 runs send what was not meant, {lost} frames lost");
        spoilt
    };
    // An aligned signature always cuts a frame in two.
    assert_eq!(wrong(Fault::Signature), 30);
    for fault in [Fault::Overrun, Fault::LinkLost, Fault::Stops, Fault::TwoCores] {
        assert!(wrong(fault) > 0, "{fault:?}");
    }
    // Late lines still arrive.
    assert_eq!(wrong(Fault::Retraining), 0);
}
