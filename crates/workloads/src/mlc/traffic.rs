//! Loads on memory: cores that read and write buffers of their own.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use platform::cpu::{Cpu, CpuId, Node, Sweep};
use platform::kernel::TaskParams;
use platform::sync::Completion;
use units::{Duration, Time};

use super::{Buffers, LINE, NodeBuffer};
use crate::program::Failure;
use crate::random::Random;

/// Bytes of a core's buffer for each of reads, stores and streaming stores: more than it comes to in a test.
const REGION: u64 = 4 << 20;
/// The same if caches have to be filled first: more than a core's part of them.
const LARGE_REGION: u64 = 16 << 20;
/// The same in random order: so much that few lines come again while caches have them.
const RANDOM_REGION: u64 = 128 << 20;

/// Bytes of a core's buffers at most.
pub(super) const fn largest(is_random: bool) -> u64 {
    3 * if is_random { RANDOM_REGION } else { LARGE_REGION }
}
/// Bytes that a core moves between two reads of the clock.
const BLOCK: u64 = 2048;
/// Cycles of the loop for each line (two vectors).
const CYCLES: u64 = 2;
/// Bytes a nanosecond that a core reads at most from another node.
const FAR_RATE: f64 = 8.0;
/// Time in which a load becomes steady: prefetchers, queues, open rows.
const SETTLING: Duration = Duration::from_us(10);

/// Lines that are read, written and stored past the caches in each round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TrafficMix {
    reads: u64,
    /// Read before they are written, and written back.
    stores: u64,
    streams: u64,
    name: &'static str,
}

impl TrafficMix {
    const fn new(reads: u64, stores: u64, streams: u64, name: &'static str) -> Self {
        Self { reads, stores, streams, name }
    }

    /// Reads only.
    pub(super) const READS: Self = Self::new(1, 0, 0, "reads");
    /// What the original's `--peak_injection_bandwidth` has; last what leaves lines to be written back in the caches.
    pub(super) const PEAK: [Self; 5] = [
        Self::READS,
        Self::new(2, 0, 1, "stream triad"),
        Self::new(2, 1, 0, "3:1"),
        Self::new(1, 1, 0, "2:1"),
        Self::new(0, 1, 0, "1:1"),
    ];

    /// Whether lines are written back.
    pub(super) const fn writes(self) -> bool {
        self.stores > 0
    }
}

impl fmt::Display for TrafficMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for TrafficMix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "2" => Self::PEAK[3],
            "3" => Self::PEAK[2],
            "5" => Self::PEAK[4],
            "6" => Self::new(0, 0, 1, "streaming stores"),
            "7" => Self::new(2, 0, 1, "2:1 streaming"),
            "8" => Self::new(1, 0, 1, "1:1 streaming"),
            "10" => Self::PEAK[1],
            _ => return Err("2, 3, 5, 6, 7, 8 or 10".into()),
        })
    }
}

/// What each core does.
#[derive(Clone, Copy)]
pub(super) struct MemoryLoad {
    pub mix: TrafficMix,
    /// Cycles after each line.
    pub delay: u64,
    /// Random order, by this seed.
    pub random: Option<u64>,
    /// How long bytes are counted.
    pub time: Duration,
}

impl MemoryLoad {
    /// When its bytes are counted, if all cores are ready at `now`.
    fn window(self, now: Time) -> (Time, Time) {
        let begin = now + SETTLING;
        (begin, begin + self.time)
    }
}

/// A core with a load.
#[derive(Clone, Copy)]
pub(super) struct LoadingCore {
    pub core: CpuId,
    /// The node of its buffer.
    pub memory: Node,
    /// Bytes of caches that it first fills with lines that it writes.
    pub share: u64,
    /// Whether the memory is another node's.
    pub is_far: bool,
}

/// When bytes are counted: known once all cores have filled their caches.
pub(super) type Window = Rc<Cell<Option<(Time, Time)>>>;

/// A load that runs.
pub(super) struct MemoryTraffic {
    window: Window,
    threads: Vec<Completion<u64>>,
}

impl MemoryTraffic {
    /// Starts a thread on each core.
    pub(super) async fn start(
        memory: &Buffers,
        cpu: &Cpu,
        load: MemoryLoad,
        threads: &[LoadingCore],
    ) -> Result<Self, Failure> {
        let (window, cold) = (Window::default(), Rc::new(Cell::new(threads.len())));
        let mut own = Self { window: Rc::clone(&window), threads: Vec::new() };
        let mut places = Vec::new();
        for thread in threads {
            let mix = load.mix;
            let mut regions = Vec::new();
            let bytes = match load.random {
                Some(_) => RANDOM_REGION,
                None if thread.share > 0 => LARGE_REGION,
                None => REGION,
            };
            for lines in [mix.reads, mix.stores, mix.streams] {
                regions.push(memory.take(cpu, thread.memory, if lines > 0 { bytes } else { 0 })?);
            }
            let order = load.random.map(|seed| Random::new(seed, places.len() as u64 + 1));
            places.push(LoadPlace { regions, load, at: [0; 3], order });
        }
        for (&LoadingCore { core, share, is_far, .. }, mut place) in threads.iter().zip(places) {
            cpu.sync().await;
            let (window, cold) = (Rc::clone(&window), Rc::clone(&cold));
            let task = TaskParams::named(format!("mlc/{}", core.0)).on(core).of(cpu);
            own.threads.push(memory.kernel.run(task, async move |cpu: Cpu| {
                if is_far && place.order.is_none() {
                    place.know(&cpu).await;
                }
                place.fill(&cpu, share).await;
                cold.set(cold.get() - 1);
                if cold.get() == 0 {
                    window.set(Some(load.window(cpu.now())));
                }
                let length = if load.delay == 0 { BLOCK } else { LINE };
                let mut bytes = 0;
                while window.get().is_none_or(|(_, end)| cpu.now() < end) {
                    let counted = |moved| {
                        let is_within = |(begin, end)| (begin..end).contains(&cpu.now());
                        bytes += if window.get().is_some_and(is_within) { moved } else { 0 };
                    };
                    place.round(&cpu, length, counted).await;
                }
                bytes
            }));
        }
        if threads.is_empty() {
            own.window.set(Some(load.window(cpu.now())));
        }
        Ok(own)
    }

    /// When bytes are counted.
    pub(super) fn window(&self) -> Window {
        Rc::clone(&self.window)
    }

    /// Waits for its end. Returns the bytes that memory has moved.
    pub(super) async fn bytes(self) -> u64 {
        let mut sum = 0;
        for thread in &self.threads {
            sum += thread.wait().await;
        }
        sum
    }
}

/// Where a core is in its buffer.
struct LoadPlace {
    /// For reads, stores and streaming stores.
    regions: Vec<Rc<NodeBuffer>>,
    load: MemoryLoad,
    /// Offsets in the regions.
    at: [u64; 3],
    /// A random order instead.
    order: Option<Random>,
}

impl LoadPlace {
    /// Goes over the next bytes of a region.
    fn step(&mut self, cpu: &Cpu, region: usize, length: u64) {
        let lines = self.regions[region].bytes / LINE;
        match &mut self.order {
            Some(order) => {
                let at: Vec<u64> = (0..length / LINE).map(|_| order.below(lines) * LINE).collect();
                at.into_iter().for_each(|at| self.access(cpu, region, at, LINE));
            }
            None => {
                let at = self.at[region];
                self.at[region] = (at + length) % self.regions[region].bytes;
                self.access(cpu, region, at, length);
            }
        }
    }

    fn access(&self, cpu: &Cpu, region: usize, at: u64, length: u64) {
        let place = [self.regions[region].memory.at(at)];
        let (to, from) = match region {
            0 => (None, &place[..]),
            1 => (Some(place[0]), &place[..]),
            _ => (Some(place[0]), &[][..]),
        };
        cpu.sweep(Sweep { to, from, length, streaming: region == 2 }, CYCLES, |_| {});
    }

    /// Reads the lines that it will read, as the original has before: homes that keep a directory beside their memory then know who
    /// may have them, and need not write it.
    async fn know(&mut self, cpu: &Cpu) {
        let buffer = Rc::clone(&self.regions[0]);
        let window = SETTLING + self.load.time;
        // They would take the second time for a part of the first one.
        cpu.set_prefetchers(false);
        let most = ((window.as_ns_f64() * FAR_RATE) as u64).next_multiple_of(BLOCK).min(buffer.bytes);
        for at in (0..most).step_by(BLOCK as usize) {
            let place = buffer.memory.at(at);
            cpu.sweep(Sweep { to: None, from: &[place], length: BLOCK, streaming: false }, CYCLES, |_| {});
            cpu.clflush(place, BLOCK);
            cpu.sync().await;
        }
        cpu.set_prefetchers(true);
    }

    /// Replaces its part of the caches some times over, as not all sets fill at once: what it fetches then evicts as many
    /// written lines as it leaves.
    async fn fill(&mut self, cpu: &Cpu, share: u64) {
        let each = BLOCK * (self.load.mix.reads + self.load.mix.stores);
        for _ in 0..(3 * share).div_ceil(each.max(1)) {
            self.round(cpu, BLOCK, |_| {}).await;
        }
    }

    /// Goes over a block for each part of the mix, and tells of the bytes that memory moves for it.
    async fn round(&mut self, cpu: &Cpu, length: u64, mut done: impl FnMut(u64)) {
        let MemoryLoad { mix, delay, .. } = self.load;
        for (region, (count, lines)) in
            [(mix.reads, 1), (mix.stores, 2), (mix.streams, 1)].into_iter().enumerate()
        {
            for _ in 0..count {
                self.step(cpu, region, length);
                cpu.work(delay);
                cpu.sync().await;
                done(lines * length);
            }
        }
    }
}
