//! Latency of dependent loads.

use platform::cpu::Cpu;
use platform::memory::PhysAddr;

use super::traffic::Window;
use super::{LINE, NodeBuffer};
use crate::random::Random;

/// Dependent loads of a measurement.
const LOADS: u64 = 4000;
/// Lines that another core's L2 is asked for: more than an L1 holds, less than an L2.
const CACHED: u64 = 2000;
/// Loads between two reads of the clock.
const TURN: usize = 4;

/// The lines of a buffer that are loaded, in order.
pub(super) fn order(buffer: &NodeBuffer, is_random: bool, seed: u64) -> Vec<PhysAddr> {
    let (lines, mut random) = (buffer.bytes / LINE, Random::new(seed, 0));
    let first = random.below(lines);
    let line = |n: u64| if is_random { random.below(lines) } else { (first + n) % lines };
    (0..LOADS.min(lines)).map(line).map(|line| buffer.memory.at(line * LINE)).collect()
}

/// Lines of a buffer that fit into an L2, in random order.
pub(super) fn some(buffer: &NodeBuffer, seed: u64) -> Vec<PhysAddr> {
    let mut order: Vec<PhysAddr> = (0..CACHED).map(|line| buffer.memory.at(line * LINE)).collect();
    Random::new(seed, 1).shuffle(&mut order);
    order
}

/// Brings lines into this core's caches: read, or written.
pub(super) async fn own(cpu: &Cpu, order: &[PhysAddr], modified: bool) {
    cpu.set_prefetchers(false);
    for &line in order {
        match modified {
            true => cpu.store_u64(line, line.0),
            false => _ = cpu.load_u64(line),
        }
        cpu.sync().await;
    }
    cpu.set_prefetchers(true);
}

/// Mean latency of loads that each need the one before, in nanoseconds.
pub(super) async fn chase(cpu: &Cpu, order: &[PhysAddr], prefetchers: bool) -> f64 {
    cpu.set_prefetchers(prefetchers);
    cpu.sync().await;
    let began = cpu.now();
    for (n, &line) in order.iter().enumerate() {
        cpu.load_u64(line);
        if n % TURN == 0 {
            cpu.sync().await;
        }
    }
    let took = cpu.now().since(began);
    cpu.set_prefetchers(true);
    took.as_ns_f64() / order.len() as f64
}

/// As [`chase`] within a window that begins some time, and the number of loads.
pub(super) async fn chase_during(
    cpu: &Cpu,
    order: &[PhysAddr],
    prefetchers: bool,
    window: &Window,
) -> (f64, u64) {
    cpu.set_prefetchers(prefetchers);
    let (mut loads, mut began) = (0u64, None);
    for (n, &line) in order.iter().cycle().enumerate() {
        if n % TURN == 0 {
            cpu.sync().await;
            let now = cpu.now();
            match window.get() {
                Some((_, end)) if now >= end => break,
                Some((begin, _)) if now >= begin && began.is_none() => (loads, began) = (0, Some(now)),
                _ => {}
            }
        }
        cpu.load_u64(line);
        loads += 1;
    }
    let took = began.map_or(0.0, |began| cpu.now().since(began).as_ns_f64());
    cpu.set_prefetchers(true);
    (took / loads.max(1) as f64, loads)
}
