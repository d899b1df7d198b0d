//! A receiving process that migrates to the other socket (section 5.3, Figure 14).

use units::Duration;
use wire::nic::registers::counter;

use super::Values;
use super::server::{HEADERS, Organisation, Server, ServerBench};
use super::streams::{CORE, SETTLED, receiving};
use crate::rig::{Rig, SteadyBatches};
use crate::runs::set_known;

/// The paper samples every 50 ms for seconds; here time is scaled down, as the report says.
const SAMPLE: Duration = Duration::from_us(50);
/// Samples before the migration and after it.
const SAMPLES: usize = 1000;
/// Of these, the last and the first ones, which the figure shows.
const SHOWN: [usize; 2] = [24, 100];
/// Samples that are looked at together for a drop: packets and their reader alternate within half a millisecond.
const TOGETHER: usize = 20;

/// Bytes of payload through each function, and bytes crossing between the sockets for DMA.
struct MigrationCounts {
    received: [u64; 2],
    crossed: u64,
}

fn look(rig: &Rig) -> MigrationCounts {
    let [bytes, frames] =
        [counter::RX_BYTES, counter::RX_FRAMES].map(|which| Server(rig).of_functions(which));
    let payload = |n: usize| bytes[n] - (HEADERS * frames[n]).min(bytes[n]);
    MigrationCounts { received: [payload(0), payload(1)], crossed: rig.traffic(0).link_dma }
}

/// Counters before each of `count` samples and after the last.
fn samples(rig: &Rig, count: usize) -> Vec<MigrationCounts> {
    let sample = |_| {
        rig.pass(SAMPLE);
        look(rig)
    };
    std::iter::once(look(rig)).chain((0..count).map(sample)).collect()
}

/// Bytes through a function between two samples.
fn through(function: usize, before: &MigrationCounts, after: &MigrationCounts) -> f64 {
    (after.received[function] - before.received[function]) as f64
}

/// Bytes through both functions.
fn all(before: &MigrationCounts, after: &MigrationCounts) -> f64 {
    through(0, before, after) + through(1, before, after)
}

/// The lowest rate of a millisecond, Gbit/s.
fn lowest(counts: &[MigrationCounts]) -> f64 {
    let rate = |part: &[MigrationCounts]| {
        all(&part[0], &part[TOGETHER]) * 8.0 / (SAMPLE * TOGETHER as u64).as_ns_f64()
    };
    counts.windows(TOGETHER + 1).map(rate).fold(f64::INFINITY, f64::min)
}

/// A stream with 64 KB buffers whose receiver migrates from socket 0 to socket 1.
pub fn run(bench: &ServerBench, organisation: Organisation, name: &str) -> Result<Values, String> {
    let (rig, running) = receiving(bench, organisation, 65536)?;
    rig.pass(SETTLED);
    let harmed = || [Server(&rig).lost(), Server(&rig).overtaking()];
    let first_harmed = harmed();
    let before = samples(&rig, SAMPLES);
    Server(&rig).move_tasks("netserver", bench.core(1, CORE))?;
    let after = samples(&rig, SAMPLES);
    running.still_runs()?;
    let [lost, overtaking] = [0, 1].map(|n| (harmed()[n] - first_harmed[n]) as f64);
    let mut values = Values::new();
    let shown = [&before[SAMPLES - SHOWN[0]..], &after[..=SHOWN[1]]].map(|counts| counts.windows(2));
    for (n, sample) in shown.into_iter().flatten().enumerate() {
        let at = n as u64 * SAMPLE.as_ps() / 1_000_000;
        for function in 0..2 {
            let gbit = through(function, &sample[0], &sample[1]) * 8.0 / SAMPLE.as_ns_f64();
            values.insert(format!("migration/{name}/function{function}/{at}"), gbit);
        }
    }
    let lowest = [&before, &after].map(|counts| lowest(counts));
    let [before, after] = [before, after].map(|counts| SteadyBatches::all(counts, SAMPLE));
    let gbit =
        |part: &SteadyBatches<MigrationCounts>| part.of(|before, after, ns| all(before, after) * 8.0 / ns);
    let share = |part: &SteadyBatches<MigrationCounts>, function| {
        part.of(|before, after, _| 100.0 * through(function, before, after) / all(before, after))
    };
    let crosses = |part: &SteadyBatches<MigrationCounts>| {
        part.of(|before, after, _| 100.0 * (after.crossed - before.crossed) as f64 / all(before, after))
    };
    // The share still carried by the function that carried everything before.
    let first = usize::from(share(&before, 0).0 < 50.0);
    let once = [crosses(&before), crosses(&after)].into_iter().max_by(|one, other| one.0.total_cmp(&other.0));
    for (key, known) in [
        ("before", gbit(&before)),
        // Extremes, without an interval.
        ("lowest-before", (lowest[0], f64::NAN)),
        ("lowest-after", (lowest[1], f64::NAN)),
        ("after", gbit(&after)),
        ("new-share", share(&after, 1)),
        ("same-share", share(&after, first)),
        ("crosses-once", once.expect("two of them")),
        // Counted, not estimated.
        ("lost", (lost, 0.0)),
        ("overtaking", (overtaking, 0.0)),
        ("lost-or-overtaking", (lost + overtaking, 0.0)),
    ] {
        set_known(&mut values, &format!("migration/{name}/{key}"), known);
    }
    Ok(values)
}
