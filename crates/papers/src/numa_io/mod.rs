//! "NUMA Aware I/O in Virtualized Systems", VMware, 2014 (slides).
//!
//! Each run is a point of the grid of published/notes/numa-io.md in one layout: those that the NUMA scheduler chooses
//! in each of its modes, the upper bound, and random ones. A layout drawn by several seeds is simulated once; the
//! baseline is the mean over its seeds.

mod guests;
mod layout;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use machine::Diagnostics;
use nearfar::Progress;
use nearfar::virt::placement::Thresholds;
use rayon::prelude::*;
use results::claims::ClaimFile;
use results::claims::Sample;
use results::report::{Chart, Curve, DataTable, Scale, Section};

use super::runs::{self as all, Mean, Values};
use super::{AskedClaims, Options, Reproduction, selection};
use guests::{Guest, GuestRates, Pair, Point};
use layout::Layout;

/// Nodes of the slides' two hosts; most results are for the first.
const NODES: u8 = 2;
const FOUR: u8 = 4;
/// Random placements of the baseline.
const SEEDS: u64 = 30;
/// Student's t for 29 degrees of freedom.
const STUDENT: f64 = 2.045;
/// Thresholds of the scheduler.
const THRESHOLDS: Thresholds = Thresholds::usual();
/// Frame sizes, loads (percent of line rate) and numbers of machines of the grid.
const FRAMES: [u16; 3] = [64, 512, 1500];
const LOADS: [u8; 5] = [10, 25, 50, 75, 100];
const MACHINES: [usize; 5] = [1, 2, 4, 8, 16];
/// Programs with a peer on a second host; the address is the peer's or the guest's.
const PAIRS: [Pair; 3] = [
    Pair {
        name: "netperf-tcp-stream-512",
        serves: false,
        server: "netserver",
        client: "netperf -H 10.0.0.2 -t TCP_STREAM -l 1 -- -m 512",
    },
    Pair {
        name: "netperf-tcp-rr",
        serves: false,
        server: "netserver",
        client: "netperf -H 10.0.0.2 -t TCP_RR -l 1",
    },
    Pair {
        name: "netperf-udp-rr",
        serves: false,
        server: "netserver",
        client: "netperf -H 10.0.0.2 -t UDP_RR -l 1",
    },
];
/// Enough connections to keep a machine busy, and one.
const MEMCACHED: Pair = Pair {
    name: "memcached",
    serves: true,
    server: "memcached -t 1 -m 16",
    client: "memaslap -s GUEST:11211 -c 8 -t 1s -X 1024 -w 16",
};
const MEMCACHED_1: Pair =
    Pair { name: "memcached-1", client: "memaslap -s GUEST:11211 -c 1 -t 1s -X 1024 -w 16", ..MEMCACHED };
/// Numbers of machines compared with the baseline over the whole grid.
const COMPARED: [usize; 2] = [1, 4];
/// Workloads for which the maximum number of machines that a host admits is determined.
const CROWDS: [Crowd; 2] = [
    // Each at a sixteenth of line rate.
    Crowd { name: "admitted", of: |vms| Guest::Forwards(512, (vms * 100 / 16) as u8), most: 16 },
    Crowd { name: "consolidated", of: |_| Guest::Echoes(512, 17), most: 58 },
];
/// Limits for an admitted machine: loss in percent, round trip in us.
const MOST_LOSS: f64 = 1.0;
const MOST_US: f64 = 200.0;
/// Axis label of loads.
const LOAD: &str = "load (% of the line's rate)";
/// Without direct cache access.
const NO_DDIO: &str = "change.host.llc.ddio_ways = 0";

/// Machines, and load steps with their periods, for the runs in which the scheduler decides by itself.
const LIVE: usize = 4;
const LITTLE: (u8, usize) = (10, 6);
const MUCH: (u8, usize) = (100, 6);
/// Periods within which the scheduler must follow a load step.
const FOLLOWED: usize = 3;

/// The scheduler by itself: mode changes under constant load, and periods until it follows a load step.
fn live(options: &Options) -> Result<Values, String> {
    let run = |loads: &[(u8, usize)]| guests::live(options, LIVE, loads);
    let late = |switches: &[u64]| switches[switches.len() - 1] - switches[FOLLOWED];
    let constant = late(&run(&[LITTLE])?) + late(&run(&[MUCH])?);
    let steps = run(&[LITTLE, MUCH, LITTLE])?;
    // For each step, the number of mode changes before the step could take effect.
    let after = |step: usize| {
        let begins = steps[step - 1];
        let until = steps[step..].iter().position(|&switches| switches > begins);
        until.map_or(f64::INFINITY, |periods| periods as f64 + 1.0)
    };
    let followed = after(LITTLE.1).max(after(LITTLE.1 + MUCH.1));
    let values = [("live/late", constant as f64), ("live/followed", followed)];
    Ok(values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A run: a point in a layout, with changes to the machine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PointRun {
    name: String,
    point: Point,
    layout: Layout,
    more: &'static str,
}

impl PointRun {
    fn new(point: Point, layout: Layout) -> Self {
        let name = format!("{}{}/{}", place(layout.nodes), point.name(), layout.name());
        Self { name, point, layout, more: "" }
    }

    fn without_ddio(point: Point, layout: Layout) -> Self {
        Self { name: format!("no-ddio/{}/{}", point.name(), layout.name()), point, layout, more: NO_DDIO }
    }
}

/// Prefix of the values of a host's runs.
fn place(nodes: u8) -> &'static str {
    if nodes == FOUR { "four/" } else { "" }
}

/// Points at which scheduler, baseline and bound are compared, with the host's number of nodes.
fn compared() -> Vec<(u8, Point)> {
    let mut points = Vec::new();
    let mut add = |nodes: u8, guest: Guest, machines: &[usize]| {
        points.extend(machines.iter().map(|&vms| (nodes, Point { guest, vms })));
    };
    for vms in COMPARED {
        for frame in FRAMES {
            LOADS.into_iter().for_each(|load| add(NODES, Guest::Forwards(frame, load), &[vms]));
        }
        add(NODES, Guest::Sends, &[vms]);
        add(NODES, Guest::Receives, &[vms]);
    }
    PAIRS.into_iter().for_each(|pair| add(NODES, Guest::Runs(pair), &[1]));
    add(NODES, Guest::Forwards(512, 10), &[2, 8, 16]);
    add(NODES, Guest::Forwards(512, 100), &[2, 8]);
    add(NODES, Guest::Runs(MEMCACHED_1), &[1, 4]);
    add(NODES, Guest::Runs(MEMCACHED), &MACHINES);
    add(FOUR, Guest::Forwards(512, 100), &[1, 4, 8]);
    add(FOUR, Guest::Receives, &[1]);
    add(FOUR, Guest::Runs(MEMCACHED), &[1, 8]);
    points
}

/// Points of the phase diagram: numbers of machines and loads, frames of 512 B.
fn phases() -> Vec<Point> {
    let of = |vms| LOADS.map(|load| Point { guest: Guest::Forwards(512, load), vms });
    MACHINES.into_iter().flat_map(of).collect()
}

/// Identical machines, as many as a host admits.
struct Crowd {
    name: &'static str,
    /// Workload for a number of machines.
    of: fn(usize) -> Guest,
    /// Maximum number that the line can carry.
    most: usize,
}

impl Crowd {
    /// Number of machines admitted by the scheduler, and by the baseline on average; both with one thread per node.
    fn admitted(&self, options: &Options) -> Result<Values, String> {
        let known = Mutex::new(BTreeMap::new());
        let keeps = |layout: Layout| {
            let lock = || known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let found = lock().get(&layout).copied();
            if let Some(keeps) = found {
                return Ok(keeps);
            }
            let vms = layout.vms.len();
            let rates = guests::measure(options, Point { guest: (self.of)(vms), vms }, &layout, "")?;
            let keeps = rates.loss < MOST_LOSS && rates.us < MOST_US;
            lock().insert(layout, keeps);
            Ok::<bool, String>(keeps)
        };
        let (mut numa, mut refused) = (0, self.most + 1);
        while refused - numa > 1 {
            let vms = usize::midpoint(numa, refused);
            if keeps(Layout::heavy(NODES, vms))? { numa = vms } else { refused = vms }
        }
        let of_seed = |seed: u64| {
            let keeps = |vms| keeps(Layout::blind(NODES, vms, NODES.into(), seed));
            let mut vms = numa;
            while vms > 0 && !keeps(vms)? {
                vms -= 1;
            }
            while vms >= numa && vms < self.most && keeps(vms + 1)? {
                vms += 1;
            }
            Ok(vms as f64)
        };
        let blind = (1..=SEEDS).into_par_iter().map(of_seed).collect::<Result<Vec<_>, String>>()?;
        let (numa, blind) = (numa as f64, Mean::of(&blind, STUDENT));
        let values = [
            ("numa", numa),
            ("blind", blind.value),
            ("blind-half", blind.half),
            ("more", 100.0 * (numa / blind.value - 1.0)),
        ];
        Ok(values.into_iter().map(|(what, value)| (format!("{}/{what}", self.name), value)).collect())
    }
}

/// Threads in use at a point, given the load of one; a single machine's transmit load always fits one thread.
fn threads((nodes, point): (u8, Point), load: f64) -> usize {
    if load >= THRESHOLDS.heavy && point.vms > 1 { nodes.into() } else { 1 }
}

/// Layouts in which the scheduler can end: light load, without and with attracted machines, and heavy load.
fn ends(nodes: u8, vms: usize) -> [Layout; 3] {
    [Layout::still, Layout::light, Layout::heavy].map(|of| of(nodes, vms))
}

/// Runs in order, the longest first.
fn ordered(runs: BTreeSet<PointRun>) -> Vec<PointRun> {
    let mut runs: Vec<PointRun> = runs.into_iter().collect();
    runs.sort_by_key(|run| std::cmp::Reverse(run.point.vms));
    runs
}

/// The first set of runs: with one I/O thread, whose load decides which others are needed; the phase diagram; without
/// DDIO.
fn runs() -> Vec<PointRun> {
    let mut runs = BTreeSet::new();
    for (nodes, point) in compared() {
        let blind = (1..=SEEDS).map(|seed| Layout::blind(nodes, point.vms, 1, seed));
        let [still, light, _] = ends(nodes, point.vms);
        let own = [still, light].into_iter().chain(Layout::near(nodes, point.vms, 1));
        runs.extend(own.chain(blind).map(|layout| PointRun::new(point, layout)));
    }
    for point in phases() {
        runs.extend(ends(NODES, point.vms).map(|layout| PointRun::new(point, layout)));
    }
    for vms in COMPARED {
        for frame in FRAMES {
            let point = Point { guest: Guest::Forwards(frame, 100), vms };
            runs.extend(Layout::near(NODES, vms, 1).map(|near| PointRun::without_ddio(point, near)));
        }
    }
    ordered(runs)
}

/// The second set: points where one thread's load requires a thread per node.
fn further(table: &Table<'_>) -> Vec<PointRun> {
    let mut runs = BTreeSet::new();
    for at @ (nodes, point) in compared() {
        if let Some(heavy) = table.ends(at).filter(|layout| layout.threads.len() > 1) {
            let near = Layout::near(nodes, point.vms, heavy.threads.len());
            runs.extend(near.into_iter().chain([heavy]).map(|layout| PointRun::new(point, layout)));
        }
        runs.extend(table.blind(at).into_iter().flatten());
    }
    runs.retain(|run| table.of("load", run).is_none());
    ordered(runs)
}

/// Values of a run, prefixed by its name.
fn values(name: &str, rates: &GuestRates) -> Values {
    let each = [
        ("mpps", rates.mpps),
        ("gbit", rates.gbit),
        ("interval", rates.interval),
        ("loss", rates.loss),
        ("us", rates.us),
        ("threads", rates.threads),
        ("load", rates.load),
        ("vcpus", rates.vcpus),
        ("cores", rates.cores),
        ("memory", rates.memory),
        ("interrupts", rates.interrupts),
        ("link", rates.link),
        ("link-dma", rates.link_dma),
    ];
    each.into_iter().map(|(what, value)| (format!("run/{what}/{name}"), value)).collect()
}

/// Results by point and layout.
struct Table<'a>(&'a Values);

impl Table<'_> {
    fn of(&self, what: &str, run: &PointRun) -> Option<f64> {
        self.0.get(&format!("run/{what}/{}", run.name)).copied()
    }

    /// The layout in which the scheduler ends, starting from balanced machines.
    fn ends(&self, (nodes, point): (u8, Point)) -> Option<Layout> {
        let [still, light, heavy] = ends(nodes, point.vms);
        let load = self.of("load", &PointRun::new(point, still.clone()))?;
        if threads((nodes, point), load) > 1 {
            return Some(heavy);
        }
        let busy = self.of("vcpus", &PointRun::new(point, still.clone()))?;
        let is_intensive = load >= THRESHOLDS.intensive * point.vms as f64 && load >= THRESHOLDS.share * busy;
        Some(if is_intensive { light } else { still })
    }

    /// The baseline's runs at a point, one per seed, in the mode required by its own load.
    fn blind(&self, (nodes, point): (u8, Point)) -> Option<Vec<PointRun>> {
        let of_seed = |seed| {
            let run = |threads| PointRun::new(point, Layout::blind(nodes, point.vms, threads, seed));
            let load = self.of("load", &run(1))?;
            Some(run(threads((nodes, point), load)))
        };
        (1..=SEEDS).map(of_seed).collect()
    }

    /// Compares scheduler, baseline and bound at a point.
    fn compare(&self, at @ (nodes, point): (u8, Point)) -> Option<PolicyPoint> {
        let numa = PointRun::new(point, self.ends(at)?);
        let own = numa.layout.threads.len();
        let blind = self.blind(at)?;
        let bound = Layout::near(nodes, point.vms, own).map(|near| PointRun::new(point, near));
        let mean = |of: &dyn Fn(&PointRun) -> Option<f64>| {
            Some(Mean::of(&blind.iter().map(of).collect::<Option<Vec<_>>>()?, STUDENT))
        };
        let gbit = |run: &PointRun| self.of("gbit", run);
        let spent = |run: &PointRun| Some(self.of("threads", run)? / gbit(run)?);
        let cores = |run: &PointRun| Some(self.of("cores", run)? / gbit(run)?);
        Some(PolicyPoint {
            nodes,
            point,
            modes: (own, mean(&|run| Some(run.layout.threads.len() as f64))?.value),
            gbit: (gbit(&numa)?, mean(&gbit)?),
            bound: bound.and_then(|bound| gbit(&bound)),
            interval: self.of("interval", &numa)?,
            spent: (spent(&numa)?, mean(&spent)?),
            cores: (cores(&numa)?, mean(&cores)?),
            worst: blind.iter().map(gbit).try_fold(f64::MAX, |least, gbit| Some(least.min(gbit?)))?,
            memory: (self.of("memory", &numa)?, mean(&|run| self.of("memory", run))?),
            link: (self.of("link", &numa)?, mean(&|run| self.of("link", run))?),
        })
    }
}

/// Comparison at a point.
struct PolicyPoint {
    nodes: u8,
    point: Point,
    /// Number of threads of the scheduler, and of the baseline on average.
    modes: (usize, f64),
    gbit: (f64, Mean),
    /// Throughput with everything at the device's node.
    bound: Option<f64>,
    /// Relative half-width of the scheduler's interval.
    interval: f64,
    /// Throughput of the baseline's worst placement.
    worst: f64,
    /// Cores per Gbit/s, of I/O threads and of all cores.
    spent: (f64, Mean),
    cores: (f64, Mean),
    memory: (f64, Mean),
    link: (f64, Mean),
}

impl PolicyPoint {
    /// Throughput gain of the scheduler over the baseline, percent.
    fn gain(&self) -> f64 {
        100.0 * (self.gbit.0 / self.gbit.1.value - 1.0)
    }

    /// Half-width of its 95 % interval.
    fn gain_half(&self) -> f64 {
        let (own, mean) = (self.gbit.0, self.gbit.1);
        100.0 * own / mean.value * self.interval.hypot(mean.half / mean.value)
    }

    /// Throughput gain over the baseline's worst placement, percent.
    fn gain_over_worst(&self) -> f64 {
        100.0 * (self.gbit.0 / self.worst - 1.0)
    }

    /// Saving in cores per bit, percent: of I/O threads if guests poll, else of all cores.
    fn saved(&self) -> f64 {
        let (own, blind) = match self.point.guest {
            Guest::Forwards(..) => (self.spent.0, self.spent.1),
            Guest::Echoes(..) | Guest::Sends | Guest::Receives | Guest::Runs(_) => {
                (self.cores.0, self.cores.1)
            }
        };
        100.0 * (1.0 - own / blind.value)
    }

    fn name(&self) -> String {
        format!("{}{}", place(self.nodes), self.point.name())
    }

    fn values(&self) -> Values {
        let name = self.name();
        let each = [
            ("gain", self.gain()),
            ("gain-half", self.gain_half()),
            ("gain-over-worst", self.gain_over_worst()),
            ("saved", self.saved()),
            ("gbit/numa", self.gbit.0),
            ("gbit/blind", self.gbit.1.value),
            ("gbit/blind-half", self.gbit.1.half),
            ("memory/numa", self.memory.0),
            ("memory/blind", self.memory.1.value),
            ("link/numa", self.link.0),
            ("link/blind", self.link.1.value),
        ];
        let bound = self.bound.map(|bound| ("gbit/bound", bound));
        each.into_iter().chain(bound).map(|(what, value)| (format!("{what}/{name}"), value)).collect()
    }

    fn row(&self) -> Vec<String> {
        let number = |value: f64| format!("{value:.2}");
        let mut row = vec![self.name(), format!("{}/{:.1}", self.modes.0, self.modes.1)];
        row.extend([self.gbit.0, self.gbit.1.value, self.gbit.1.half].map(number));
        row.push(self.bound.map_or("too few cores".into(), number));
        row.extend(
            [
                self.gain(),
                self.gain_half(),
                self.gain_over_worst(),
                self.saved(),
                self.memory.0,
                self.memory.1.value,
                self.link.0,
                self.link.1.value,
            ]
            .map(number),
        );
        row
    }
}

/// By load for a number of machines: which mode wins, and which the scheduler chooses.
struct Phase {
    vms: usize,
    /// For each load: throughput of both modes, and load of the single thread.
    loads: Vec<(u8, f64, f64, f64)>,
}

impl Phase {
    /// Index of the first load at which a thread per node has more than 1 % higher throughput; past the end if none.
    fn best(&self) -> usize {
        self.loads.iter().position(|(_, light, heavy, _)| *heavy > 1.01 * light).unwrap_or(self.loads.len())
    }

    /// The load in percent at an index; past the end, above the last one.
    fn percent(&self, place: usize) -> f64 {
        self.loads.get(place).map_or(f64::from(LOADS[LOADS.len() - 1]) + 25.0, |&(load, ..)| load.into())
    }

    /// Index of the first load at which the scheduler uses a thread per node.
    fn switch(&self) -> usize {
        self.loads
            .iter()
            .position(|(.., load)| *load >= THRESHOLDS.heavy && self.vms > 1)
            .unwrap_or(self.loads.len())
    }
}

fn phase_diagram(table: &Table<'_>) -> Vec<Phase> {
    let of = |vms: usize| {
        let loads = LOADS.map(|load| {
            let point = Point { guest: Guest::Forwards(512, load), vms };
            let [still, light, heavy] = ends(NODES, vms).map(|layout| PointRun::new(point, layout));
            let one = match table.ends((NODES, point))? {
                own if own == still.layout => &still,
                _ => &light,
            };
            Some((load, table.of("gbit", one)?, table.of("gbit", &heavy)?, table.of("load", &still)?))
        });
        Some(Phase { vms, loads: loads.into_iter().collect::<Option<Vec<_>>>()? })
    };
    MACHINES.into_iter().filter_map(of).collect()
}

/// Values derived from several runs.
fn derived(values: &Values, compared: &[PolicyPoint], phases: &[Phase]) -> Values {
    let table = Table(values);
    let mut derived: Values = compared.iter().flat_map(|one| one.values()).collect();
    let most = |of: fn(&PolicyPoint) -> f64, such: &dyn Fn(&PolicyPoint) -> bool| {
        compared.iter().filter(|one| such(one)).map(of).fold(f64::MIN, f64::max)
    };
    let least = |of: fn(&PolicyPoint) -> f64, such: &dyn Fn(&PolicyPoint) -> bool| {
        compared.iter().filter(|one| such(one)).map(of).fold(f64::MAX, f64::min)
    };
    let is_two = |one: &PolicyPoint| one.nodes == NODES;
    let is_four = |one: &PolicyPoint| one.nodes == FOUR;
    let is_light = |one: &PolicyPoint| is_two(one) && one.modes.0 == 1;
    let is_heavy = |one: &PolicyPoint| is_two(one) && one.modes.0 > 1;
    let is_dpdk = |one: &PolicyPoint| {
        is_two(one) && one.point.vms == 1 && matches!(one.point.guest, Guest::Forwards(..))
    };
    if compared.len() == self::compared().len() {
        for (name, such) in [
            ("all", &(|_: &PolicyPoint| true) as &dyn Fn(&PolicyPoint) -> bool),
            ("two", &is_two),
            ("light", &is_light),
            ("heavy", &is_heavy),
            ("dpdk", &is_dpdk),
            ("four", &is_four),
        ] {
            if !compared.iter().any(such) {
                continue;
            }
            for (end, of) in [("most", 1.0), ("least", -1.0)] {
                let found = compared.iter().filter(|one| such(one));
                if let Some(one) = found.max_by(|a, b| (of * a.gain()).total_cmp(&(of * b.gain()))) {
                    let key = format!("{end}-gain/{name}");
                    all::set_half_width(&mut derived, &key, one.gain_half());
                    derived.insert(key, one.gain());
                }
            }
            derived.insert(format!("most-saved/{name}"), most(PolicyPoint::saved, such));
            derived.insert(format!("least-saved/{name}"), least(PolicyPoint::saved, such));
        }
        let over = |one: &PolicyPoint| Some(100.0 * (one.gbit.0 / one.bound? - 1.0));
        let highest = compared.iter().filter(|one| is_two(one)).filter_map(over).fold(f64::MIN, f64::max);
        derived.insert("below-bound".into(), -highest);
    }
    for vms in COMPARED {
        let gain = |frame: u16| {
            let point = Point { guest: Guest::Forwards(frame, 100), vms };
            let near = Layout::near(NODES, vms, 1)?;
            let with = table.of("gbit", &PointRun::new(point, near.clone()))?;
            Some(100.0 * (with / table.of("gbit", &PointRun::without_ddio(point, near))? - 1.0))
        };
        let gains: Option<Vec<f64>> = FRAMES.into_iter().map(gain).collect();
        if let Some(gains) = gains {
            derived.insert(format!("ddio-most/{vms}"), gains.iter().copied().fold(f64::MIN, f64::max));
            derived.insert(format!("ddio-least/{vms}"), gains.iter().copied().fold(f64::MAX, f64::min));
        }
    }
    if phases.len() == MACHINES.len() {
        let off = phases.iter().map(|phase| phase.best().abs_diff(phase.switch())).max().unwrap_or(0);
        derived.insert("switch-off-by".into(), off as f64);
    }
    derived
}

fn sections(compared: &[PolicyPoint], phases: &[Phase]) -> Vec<Section> {
    let header = [
        "point",
        "I/O threads, scheduler/baseline",
        "Gbit/s",
        "baseline",
        "±",
        "bound",
        "gain %",
        "±",
        "over the worst %",
        "CPU saved %",
        "memory Gbit/s",
        "baseline",
        "sockets Gbit/s",
        "baseline",
    ];
    let grid = DataTable {
        title: "Scheduler, baseline, bound".into(),
        header: header.map(str::to_owned).to_vec(),
        rows: compared.iter().map(PolicyPoint::row).collect(),
        numbers_from: 2,
    };
    let row = |phase: &Phase| {
        let cell = |(n, (_, light, heavy, load)): (usize, &(u8, f64, f64, f64))| {
            let wins = if *heavy > 1.01 * light {
                "heavy"
            } else if *light > 1.01 * heavy {
                "light"
            } else {
                "alike"
            };
            let has = if n >= phase.switch() { "heavy" } else { "light" };
            format!("{wins} wins, is {has} ({light:.2}/{heavy:.2} Gbit/s, load {load:.2})")
        };
        let cells = phase.loads.iter().enumerate().map(cell);
        [phase.vms.to_string()].into_iter().chain(cells).collect()
    };
    let loads = LOADS.map(|load| format!("{load} %"));
    let charts = charts(phases);
    let phases = DataTable {
        title: "Which mode wins, and which the scheduler has (frames of 512 B)".into(),
        header: ["machines".to_owned()].into_iter().chain(loads).collect(),
        rows: phases.iter().map(row).collect(),
        numbers_from: 1,
    };
    let prose = vec![
        "Each row is a point of the grid: what guests do, percent of the line's rate, machines. The baseline is the mean over 30 \
         seeded placements. CPU is that of I/O threads where guests poll, of all cores where they do not, for a bit."
            .to_owned(),
    ];
    vec![Section { title: "The grid".into(), prose, charts, tables: vec![grid, phases] }]
}

/// The phase diagram: where a thread per node has higher throughput, and by how much.
fn charts(phases: &[Phase]) -> Vec<Chart> {
    let sample = |x: f64, y: f64| Sample { x, y, low: None, high: None };
    let curve = |label: String, simulated: Vec<Sample>| Curve { label, simulated, measured: Vec::new() };
    let border = |label: &str, at: fn(&Phase) -> usize| {
        let samples = phases.iter().map(|phase| sample(phase.vms as f64, phase.percent(at(phase))));
        curve(label.to_owned(), samples.collect())
    };
    let more = phases.iter().map(|phase| {
        let samples = phase
            .loads
            .iter()
            .map(|&(load, light, heavy, _)| sample(load.into(), 100.0 * (heavy / light - 1.0)));
        curve(format!("{} machines", phase.vms), samples.collect())
    });
    let chart = |id: &str, title: &str, text: &str, x: &str, y: &str, curves: Vec<Curve>| Chart {
        id: id.into(),
        title: title.into(),
        text: text.into(),
        x: (x.into(), if x == LOAD { Scale::Linear } else { Scale::Log2 }),
        names: Vec::new(),
        y: (y.into(), Scale::Linear),
        from_zero: true,
        rings: String::new(),
        curves,
    };
    vec![
        chart(
            "phases",
            "Where the modes change",
            "The first load of the grid at which an I/O thread for each node passes more than one does, and the first at which the \
             scheduler has one for each. 125 stands for none of them.",
            "machines",
            LOAD,
            vec![
                border("each passes more", Phase::best),
                border("the scheduler has one for each", Phase::switch),
            ],
        ),
        chart(
            "phases-gain",
            "What a thread for each node passes more",
            "Frames of 512 B: throughput with an I/O thread for each node above that with one at the device's node.",
            LOAD,
            "more throughput (%)",
            more.collect(),
        ),
    ]
}

/// Runs everything and judges the claims by the results.
///
/// # Errors
/// If a machine, part or scenario file is invalid.
pub(super) fn reproduce(options: &Options, progress: &dyn Progress) -> Result<Reproduction, Diagnostics> {
    let mut file = ClaimFile::of("numa-io");
    selection::keep_figure(&mut file, options);
    // Its claims are about the whole grid.
    let wants = |name: &str| options.only.is_empty() || options.is_named(name);
    let run = |run: &PointRun, options: &Options| {
        let rates = guests::measure(options, run.point, &run.layout, run.more)?;
        Ok(values(&run.name, &rates))
    };
    let make = |mut runs: Vec<PointRun>| {
        runs.retain(|run| wants(&run.name));
        all::make(("numa-io", options), &runs, progress, |run| &run.name, run)
    };
    let first = make(runs());
    let later = make(further(&Table(&first.values)));
    let mut made = first.and(later);
    let alone = ["live"].into_iter().chain(CROWDS.iter().map(|crowd| crowd.name));
    for name in alone.filter(|name| wants(name)) {
        let options = options.of_run();
        let values = match CROWDS.iter().find(|crowd| crowd.name == name) {
            Some(crowd) => crowd.admitted(&options),
            None => live(&options),
        };
        made.rests.push((name.to_owned(), options.basis.origins()));
        match values {
            Ok(values) => made.values.extend(values),
            Err(reason) => made.failed.push(format!("{name}: {reason}.")),
        }
    }
    let (compared, phases) = {
        let table = Table(&made.values);
        let compared = compared().into_iter().filter_map(|at| table.compare(at));
        (compared.collect::<Vec<_>>(), phase_diagram(&table))
    };
    let mut observed = made.values.clone();
    observed.extend(derived(&observed, &compared, &phases));
    selection::keep_known(&mut file, &observed, &made.failed, options);
    let evidence = all::evidence(&file, &observed, &made, gives, options);
    let values = all::told(&observed, options);
    let sections = sections(&compared, &phases);
    let of = Reproduction::new("NUMA I/O, simulated", file, evidence, made.count, sections, made.failed);
    Ok(of.with_values(values).resting_on(made.rests))
}

/// What of the paper is asked for. Its claims are about the whole grid, whose further points the first ones decide.
pub(super) fn asked(options: &Options) -> AskedClaims {
    let names = runs().into_iter().map(|run| run.name);
    let own = CROWDS.iter().map(|crowd| crowd.name).chain(["live"]).map(str::to_owned);
    AskedClaims::new(ClaimFile::of("numa-io"), names.chain(own).collect(), gives, options)
}

/// Whether a run gives a value, or one that is derived from it.
fn gives(run: &str, key: &str) -> bool {
    let own = |of: &str| CROWDS.iter().any(|crowd| crowd.name == of) || of == "live";
    match key.split_once('/') {
        Some((of, _)) if own(of) => run == of,
        // Of one host or of both.
        Some((_, host)) if host.starts_with("two") => !run.starts_with(place(FOUR)),
        Some((_, host)) if host.starts_with("four") => run.starts_with(place(FOUR)),
        _ => true,
    }
}
