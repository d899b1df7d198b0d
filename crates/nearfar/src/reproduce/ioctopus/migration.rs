//! A receiving process that moves to the other socket (section 5.3, Figure 14).

use units::Duration;
use wire::nic::registers::counter;

use super::Values;
use super::server::{Bench, Organisation};
use super::streams::{CORE, receiving};
use crate::reproduce::rig::Rig;

/// The paper samples every 50 ms of some seconds; here all is so much shorter, which the report says.
const SAMPLE: Duration = Duration::from_us(50);
/// Samples before the move, and behind it.
const SAMPLES: [usize; 2] = [24, 100];
/// Samples before the first that are shown and behind the last, for steadier means: packets and their reader take turns of milliseconds.
const MORE: usize = 80;
/// Samples after the move that are no part of what comes after it: the worker that tells the NIC shares the old core with the
/// packets that still come there.
const SETTLING: usize = 60;

/// What came through each function in a sample, Gbit/s.
fn samples(rig: &Rig, count: usize) -> Vec<[f64; 2]> {
    let mut before = rig.of_functions(counter::RX_BYTES);
    let sample = |_| {
        rig.pass(SAMPLE);
        let now = rig.of_functions(counter::RX_BYTES);
        let gbit = [0, 1].map(|n: usize| (now[n] - before[n]) as f64 * 8.0 / SAMPLE.as_ns_f64());
        before = now;
        gbit
    };
    (0..count).map(sample).collect()
}

fn mean(samples: &[[f64; 2]], function: usize) -> f64 {
    samples.iter().map(|sample| sample[function]).sum::<f64>() / samples.len() as f64
}

/// A stream with 64 KB buffers whose receiver moves from socket 0 to socket 1.
pub fn run(bench: &Bench, organisation: Organisation, name: &str) -> Result<Values, String> {
    let (rig, running) = receiving(bench, organisation, 65536)?;
    rig.pass(Duration::from_us(2000));
    let dropped = rig.dropped();
    let crossed = rig.traffic(0).link_dma;
    let earlier = samples(&rig, MORE);
    let before = samples(&rig, SAMPLES[0]);
    let crossed_before = rig.traffic(0).link_dma - crossed;
    rig.move_tasks("netserver", bench.core(1, CORE))?;
    let mut after = samples(&rig, SETTLING);
    let crossed = rig.traffic(0).link_dma;
    after.extend(samples(&rig, SAMPLES[1] - SETTLING));
    let later = samples(&rig, MORE);
    let crossed_after = rig.traffic(0).link_dma - crossed;
    running.still_runs()?;
    let (before_it, after_it) = ([earlier, before.clone()].concat(), [&after[SETTLING..], &later].concat());
    let (before_it, after_it) = (&before_it[..], &after_it[..]);
    let all = |samples: &[[f64; 2]]| mean(samples, 0) + mean(samples, 1);
    let mut values = Values::new();
    let mut add = |key: String, value| values.insert(format!("migration/{name}/{key}"), value);
    add("before".to_owned(), all(before_it));
    add("after".to_owned(), all(after_it));
    add("new-share".to_owned(), 100.0 * mean(after_it, 1) / all(after_it));
    // Of what a single function carried before, how much it carries still.
    let first = if mean(before_it, 0) > mean(before_it, 1) { 0 } else { 1 };
    add("same-share".to_owned(), 100.0 * mean(after_it, first) / all(after_it));
    let share = |crossed: u64, samples: &[[f64; 2]]| {
        let bits = all(samples) * SAMPLE.as_ns_f64() * samples.len() as f64;
        100.0 * crossed as f64 * 8.0 / bits
    };
    add("crosses-before".to_owned(), share(crossed_before, before_it));
    add("crosses-after".to_owned(), share(crossed_after, after_it));
    add("crosses-once".to_owned(), share(crossed_before, before_it).max(share(crossed_after, after_it)));
    add("lost".to_owned(), (rig.dropped() - dropped) as f64);
    for (n, sample) in before.iter().chain(&after).enumerate() {
        let at = n as u64 * SAMPLE.as_ps() / 1_000_000;
        for (function, gbit) in sample.iter().enumerate() {
            add(format!("function{function}/{at}"), *gbit);
        }
    }
    Ok(values)
}
