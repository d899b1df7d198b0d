//! The paper's programs on GPUs: `bandwidthTest` (Figure 10), single copies (Figure 12), the ping-pong (Figure 14).

use super::Values;
use super::topology::Scenario;
use crate::Options;
use crate::rig::{Rig, of};

/// Sizes of Figures 10 and 12: powers of two from 1 KiB to 64 and 128 MiB.
const SMALLEST: u64 = 1 << 10;
const LARGEST: [u64; 2] = [64 << 20, 128 << 20];
/// Largest simulated size; larger ones are extrapolated.
pub const SIMULATED: u64 = 4 << 20;
/// Maximum bytes copied per size in Figure 12.
const BYTES: u64 = 4 << 20;
/// Round trips of a ping-pong: so many that the clocks of the GPUs drift apart by many looks at their own memory. The
/// paper has 100,000.
const ROUND_TRIPS: u32 = 20_000;

/// Direction of a copy between host and GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyDirection {
    /// To the GPU, which reads.
    In,
    /// From the GPU, which writes.
    Out,
}

/// Powers of two.
fn sizes(first: u64, last: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(first), |size| Some(2 * size)).take_while(move |&size| size <= last)
}

/// Times of all sizes: those above the simulated ones are extrapolated from the last two.
fn compose(times: &[(u64, f64)], largest: u64) -> Vec<(u64, f64)> {
    let mut all = times.to_vec();
    if let [.., (less, early), (most, late)] = *times {
        let each = (late - early) / (most - less) as f64;
        all.extend(sizes(2 * most, largest).map(|size| (size, late + (size - most) as f64 * each)));
    }
    all
}

/// Bandwidths in GB/s by size, from times in microseconds.
fn values(key: &str, times: &[(u64, f64)]) -> Values {
    times.iter().map(|&(size, us)| (format!("{key}/{size}"), size as f64 / us / 1e3)).collect()
}

/// `bandwidthTest` in one direction: GB/s by size, as in Figure 10.
pub fn bandwidth(options: &Options, scenario: &Scenario, way: CopyDirection) -> Result<Values, String> {
    let rig = Rig::boot(options, "device-lending", &scenario.text())?;
    let (option, name, direction) = match way {
        CopyDirection::In => ("--htod", "host to device", "dma_read"),
        CopyDirection::Out => ("--dtoh", "device to host", "dma_write"),
    };
    let line = format!("bandwidthTest --mode=range --start={SMALLEST} --end={SIMULATED} {option}");
    let report = rig.run(&line)?;
    let time = |size| Ok((size, size as f64 / of(&report, &format!("{name} {size} B"))? / 1e3));
    let times: Vec<(u64, f64)> = sizes(SMALLEST, SIMULATED).map(time).collect::<Result<_, String>>()?;
    Ok(values(&format!("bandwidth/{}/{direction}", scenario.name), &compose(&times, LARGEST[0])))
}

/// Single copies from GPU to GPU, of all sizes.
pub fn copies(options: &Options, scenario: &Scenario) -> Result<Values, String> {
    let rig = Rig::boot(options, "device-lending", &scenario.text())?;
    let through = if scenario.through_ram { "ram" } else { "peer" };
    let time = |size: u64| {
        let count = (BYTES / size).clamp(1, 16);
        let report = rig.run(&format!("gpu-copy --bytes={size} --count={count} --through={through}"))?;
        Ok((size, size as f64 / of(&report, "bandwidth")? / 1e3))
    };
    let times: Vec<(u64, f64)> = sizes(SMALLEST, SIMULATED).map(time).collect::<Result<_, String>>()?;
    Ok(values(&format!("copy/{}", scenario.name), &compose(&times, LARGEST[1])))
}

/// Ping-pong between two GPUs.
pub fn ping_pong(options: &Options, scenario: &Scenario) -> Result<Values, String> {
    let rig = Rig::boot(options, "device-lending", &scenario.text())?;
    let memory = if scenario.through_ram { "ram" } else { "peer" };
    let report = rig.run(&format!("gpu-pingpong --count={ROUND_TRIPS} --memory={memory}"))?;
    let name = scenario.name;
    Ok([(format!("ping-pong/{name}"), of(&report, "round trip")?)].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_sizes_go_on_as_the_largest_simulated_ones() {
        let all = compose(&[(1, 10.0), (2, 11.0), (4, 13.0)], 16);
        assert_eq!(all[3..], [(8, 17.0), (16, 25.0)]);
    }
}
