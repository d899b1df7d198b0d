//! Memory's bandwidth and latency as published for machines of known processors, beside the simulation's. Prints the table of
//! `docs/memory.md`; words choose hosts, lines or sources: `cargo run --release -p nearfar --example memory -- "E5-2680 v3" read`.

use hardware::memory::{CoreId, CoreOp, MemorySystem};
use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::computer;
use nearfar::progress::Silent;
use nearfar::topology::memory_params;
use rayon::prelude::*;
use units::{HostPhysical, Time};

/// A machine of which figures are published, as a change of one that the library has.
struct Host {
    name: &'static str,
    machine: &'static str,
    /// What its data sheet says otherwise, and the idle latencies that are taken from the same source.
    changes: &'static [(&'static str, &'static str)],
    cores: u16,
    lines: &'static [Line],
}

/// A published figure.
struct Line {
    what: &'static str,
    unit: &'static str,
    published: f64,
    /// A word for it; `docs/memory.md` says what it is.
    source: &'static str,
    /// The host's figures were chosen to meet it.
    calibration: bool,
    load: Load,
    cores: Cores,
    memory: &'static str,
}

#[derive(Clone, Copy)]
enum Cores {
    One,
    Socket,
}

/// What is run, and how many bytes of DRAM traffic one that it reports stands for.
#[derive(Clone, Copy)]
enum Load {
    /// Loads of line after line that wait for each other, without prefetchers, as Intel's Memory Latency Checker does.
    Chase,
    Read,
    /// Fetched, changed and written back: a read for each write.
    Write,
    /// STREAM as compiled without streaming stores, in its own bytes.
    Stream(&'static str),
    /// The same in bytes of DRAM's traffic.
    Traffic(&'static str),
    /// A C library's memcpy of more than the LLC, which has streaming stores; in bytes copied.
    Copied,
    /// STREAM with streaming stores.
    Streaming(&'static str),
}

impl Load {
    /// Command line, quantity reported, and what it is multiplied with. Arrays are four times as large as the caches.
    fn program(self) -> (&'static str, &'static str, f64) {
        const STREAM: &str = "stream --array-size 1000000 --ntimes 2";
        const STREAMING: &str = "stream --array-size 1000000 --ntimes 2 --nontemporal";
        const GB: f64 = 1e-3;
        match self {
            Self::Chase => unreachable!("no program can switch prefetchers off"),
            Self::Read => ("stream --array-size 1500000 --ntimes 2 --only read", "read", GB),
            Self::Write => ("stream --array-size 1500000 --ntimes 2 --only write", "write", 2.0 * GB),
            Self::Stream(which) => (STREAM, which, GB),
            Self::Copied => (STREAMING, "copy", 0.5 * GB),
            Self::Traffic("copy") => (STREAM, "copy", 1.5 * GB),
            Self::Traffic(which) => (STREAM, which, 4.0 / 3.0 * GB),
            Self::Streaming(which) => (STREAMING, which, GB),
        }
    }
}

/// A small LLC, so that small arrays exceed it.
const SMALL: &[(&str, &str)] = &[("llc.size", "\"5 MiB\""), ("llc.slices", "2")];

const VSC: &str = "Thinking";
const fn line(what: &'static str, published: f64, load: Load, cores: Cores, memory: &'static str) -> Line {
    Line { what, unit: "GB/s", published, source: VSC, calibration: false, load, cores, memory }
}
const fn idle(what: &'static str, published: f64, memory: &'static str) -> Line {
    Line { what, unit: "ns", ..line(what, published, Load::Chase, Cores::One, memory) }
}
const fn from(source: &'static str, line: Line) -> Line {
    Line { source, ..line }
}
const fn calibration(line: Line) -> Line {
    Line { calibration: true, ..line }
}

const TRIAD: &str = "STREAM triad, streaming stores";
const ADD: &str = "3 reads, 1 write (STREAM add)";
const COPY: &str = "2 reads, 1 write (STREAM copy)";
const WRITE: &str = "1 read, 1 write";
const IDLE: &str = "idle, own memory";
const REMOTE_IDLE: &str = "idle, the other's";
const ONE_MEMCPY: &str = "memcpy, one core";
const ONE_TRIAD: &str = "STREAM triad, streaming stores, one core";
const READ: &str = "socket reads its own memory";
const REMOTE: &str = "socket reads the other's memory";
const HOSTS: &[Host] = &[
    Host {
        name: "2 x E5-2680 v2",
        machine: "dell-t620-ivy",
        changes: &[
            ("core.count", "10"),
            ("core.frequency", "\"3.1 GHz\""),
            ("l1.hit", "\"1.3 ns\""),
            ("l2.hit", "\"3.9 ns\""),
            ("llc.core_hit", "\"15 ns\""),
            ("dram.channel_bandwidth", "\"14.933 GB/s\""),
            ("dram.access", "\"46 ns\""),
            ("interconnect.bandwidth", "\"32 GB/s\""),
            ("interconnect.latency", "\"17 ns\""),
            ("interconnect.home_agent", "\"17 ns\""),
        ],
        cores: 10,
        lines: &[
            calibration(from(VSC, idle(IDLE, 61.5, "node0"))),
            calibration(from(VSC, idle(REMOTE_IDLE, 114.9, "node1"))),
            line(READ, 55.3, Load::Read, Cores::Socket, "node0"),
            calibration(line(REMOTE, 25.4, Load::Read, Cores::Socket, "node1")),
            calibration(line(ADD, 46.7, Load::Traffic("add"), Cores::Socket, "node0")),
            calibration(line(COPY, 44.4, Load::Traffic("copy"), Cores::Socket, "node0")),
            calibration(line(WRITE, 40.6, Load::Write, Cores::Socket, "node0")),
            line(TRIAD, 46.5, Load::Streaming("triad"), Cores::Socket, "node0"),
        ],
    },
    Host {
        name: "2 x E5-2680 v3",
        machine: "dell-t430",
        changes: &[
            ("core.count", "12"),
            ("core.frequency", "\"2.9 GHz\""),
            ("l1.hit", "\"1.4 ns\""),
            ("l2.hit", "\"4.1 ns\""),
            ("llc.core_hit", "\"21.2 ns\""),
            ("dram.access", "\"72 ns\""),
            ("interconnect.bandwidth", "\"38.4 GB/s\""),
            ("interconnect.latency", "\"17.5 ns\""),
        ],
        cores: 12,
        lines: &[
            calibration(from(VSC, idle(IDLE, 91.0, "node0"))),
            calibration(from(VSC, idle(REMOTE_IDLE, 128.2, "node1"))),
            line(READ, 61.1, Load::Read, Cores::Socket, "node0"),
            calibration(line(REMOTE, 30.6, Load::Read, Cores::Socket, "node1")),
            calibration(line(ADD, 56.4, Load::Traffic("add"), Cores::Socket, "node0")),
            calibration(line(COPY, 55.2, Load::Traffic("copy"), Cores::Socket, "node0")),
            calibration(line(WRITE, 49.6, Load::Write, Cores::Socket, "node0")),
            line(TRIAD, 54.6, Load::Streaming("triad"), Cores::Socket, "node0"),
            from(
                MCCALPIN,
                line(
                    "STREAM triad, streaming stores, one core of an E5-2690 v3",
                    19.9,
                    Load::Streaming("triad"),
                    Cores::One,
                    "node0",
                ),
            ),
        ],
    },
    Host {
        name: "2 x E5-2680 v3 at 2.5 GHz",
        machine: "dell-t430",
        changes: &[
            ("core.count", "12"),
            ("core.frequency", "\"2.5 GHz\""),
            ("l1.hit", "\"1.6 ns\""),
            ("l2.hit", "\"4.8 ns\""),
            ("llc.core_hit", "\"21.2 ns\""),
            ("dram.access", "\"78 ns\""),
            ("interconnect.bandwidth", "\"38.4 GB/s\""),
            ("interconnect.latency", "\"23 ns\""),
        ],
        cores: 12,
        lines: &[
            calibration(from(MOLKA, idle(IDLE, 96.4, "node0"))),
            calibration(from(MOLKA, idle(REMOTE_IDLE, 146.0, "node1"))),
            from(MOLKA, line("own memory, reads, one core", 10.3, Load::Read, Cores::One, "node0")),
            from(MOLKA, line("the other's, reads, one core", 8.0, Load::Read, Cores::One, "node1")),
        ],
    },
    Host {
        name: "2 x E5-2670",
        // The library's Sandy Bridge has one socket.
        machine: "dell-t620-ivy",
        changes: &[
            ("core.count", "8"),
            ("core.frequency", "\"3.3 GHz\""),
            ("l1.hit", "\"1.2 ns\""),
            ("l2.hit", "\"3.6 ns\""),
            ("prefetch.next_page", "false"),
            ("dram.channel_bandwidth", "\"12.8 GB/s\""),
        ],
        cores: 8,
        lines: &[from(INTEL, line(ONE_MEMCPY, 5.9, Load::Copied, Cores::One, "node0"))],
    },
    Host {
        name: "2 x E5-2650 v2",
        machine: "dell-t620-ivy",
        changes: &[
            ("core.count", "8"),
            ("core.frequency", "\"3.4 GHz\""),
            ("l1.hit", "\"1.2 ns\""),
            ("l2.hit", "\"3.5 ns\""),
            ("dram.channel_bandwidth", "\"14.933 GB/s\""),
        ],
        cores: 8,
        lines: &[calibration(from(INTEL, line(ONE_MEMCPY, 6.2, Load::Copied, Cores::One, "node0")))],
    },
    Host {
        name: "i7-3960X",
        machine: "dell-t620-sandy",
        changes: &[
            ("core.count", "6"),
            ("core.frequency", "\"3.9 GHz\""),
            ("l1.hit", "\"1.03 ns\""),
            ("l2.hit", "\"3.1 ns\""),
            ("dram.channel_bandwidth", "\"12.8 GB/s\""),
        ],
        cores: 6,
        lines: &[from(INTEL, line(ONE_MEMCPY, 11.5, Load::Copied, Cores::One, "node0"))],
    },
    Host {
        name: "2 x E5-2695 v2",
        machine: "dell-t620-ivy",
        changes: &[
            ("core.count", "12"),
            ("core.frequency", "\"3.2 GHz\""),
            ("l1.hit", "\"1.25 ns\""),
            ("l2.hit", "\"3.75 ns\""),
            ("dram.channel_bandwidth", "\"12.8 GB/s\""),
        ],
        cores: 12,
        lines: &[
            from(PUGET, line(ONE_TRIAD, 8.7, Load::Streaming("triad"), Cores::One, "node0")),
            from(PUGET, line(TRIAD, 37.5, Load::Streaming("triad"), Cores::Socket, "node0")),
        ],
    },
    Host {
        name: "2 x E5-2687W v3",
        machine: "dell-t430",
        changes: &[
            ("core.count", "10"),
            ("core.frequency", "\"3.5 GHz\""),
            ("l1.hit", "\"1.15 ns\""),
            ("l2.hit", "\"3.45 ns\""),
            ("interconnect.bandwidth", "\"38.4 GB/s\""),
        ],
        cores: 10,
        lines: &[
            from(PUGET, line(ONE_TRIAD, 20.0, Load::Streaming("triad"), Cores::One, "node0")),
            from(PUGET, line(TRIAD, 51.0, Load::Streaming("triad"), Cores::Socket, "node0")),
        ],
    },
    Host {
        name: "2 x E5-2699 v3",
        machine: "dell-t430",
        changes: &[
            ("core.count", "18"),
            ("core.frequency", "\"2.3 GHz\""),
            ("l1.hit", "\"1.74 ns\""),
            ("l2.hit", "\"5.2 ns\""),
            ("llc.core_hit", "\"21.2 ns\""),
            ("dram.access", "\"82 ns\""),
            ("interconnect.bandwidth", "\"38.4 GB/s\""),
            ("interconnect.latency", "\"17.5 ns\""),
        ],
        cores: 18,
        lines: &[
            calibration(from(CSIT, idle(IDLE, 99.9, "node0"))),
            from(CSIT, idle(REMOTE_IDLE, 136.5, "node1")),
            from(CSIT, line(READ, 58.2, Load::Read, Cores::Socket, "node0")),
            from(CSIT, line(REMOTE, 30.3, Load::Read, Cores::Socket, "node1")),
            from(CSIT, line(ADD, 53.0, Load::Traffic("add"), Cores::Socket, "node0")),
            from(CSIT, line(WRITE, 44.0, Load::Write, Cores::Socket, "node0")),
            from(CSIT, line(TRIAD, 51.5, Load::Streaming("triad"), Cores::Socket, "node0")),
        ],
    },
    Host {
        name: "2 x E5-2680 v4, half a socket (cluster on die)",
        machine: "dell-t430",
        changes: &[
            ("core.count", "7"),
            ("core.frequency", "\"2.9 GHz\""),
            ("l1.hit", "\"1.4 ns\""),
            ("l2.hit", "\"4.1 ns\""),
            ("dram.channels", "2"),
            ("dram.channel_bandwidth", "\"19.2 GB/s\""),
        ],
        cores: 7,
        lines: &[
            from(BRENIAC, line(READ, 36.4, Load::Read, Cores::Socket, "node0")),
            from(BRENIAC, line(ADD, 32.6, Load::Traffic("add"), Cores::Socket, "node0")),
            from(BRENIAC, line(COPY, 31.7, Load::Traffic("copy"), Cores::Socket, "node0")),
            from(BRENIAC, line(WRITE, 28.7, Load::Write, Cores::Socket, "node0")),
            from(BRENIAC, line(TRIAD, 31.4, Load::Streaming("triad"), Cores::Socket, "node0")),
        ],
    },
    Host {
        name: "2 x E5-2682 v4",
        machine: "dell-t430",
        changes: &[],
        cores: 10,
        lines: &[from(ALIYUN, idle(IDLE, 84.6, "node0")), from(ALIYUN, idle(REMOTE_IDLE, 136.8, "node1"))],
    },
    Host {
        name: "2 x E5-2697A v4",
        machine: "dell-t430",
        changes: &[("core.frequency", "\"3.6 GHz\""), ("l1.hit", "\"1.1 ns\""), ("l2.hit", "\"3.3 ns\"")],
        cores: 10,
        lines: &[
            from(GOOD, line("STREAM copy, one core", 10.2, Load::Stream("copy"), Cores::One, "node0")),
            from(GOOD, line("STREAM scale, one core", 10.4, Load::Stream("scale"), Cores::One, "node0")),
            from(GOOD, line("STREAM add, one core", 11.0, Load::Stream("add"), Cores::One, "node0")),
            from(GOOD, line("STREAM triad, one core", 11.0, Load::Stream("triad"), Cores::One, "node0")),
            from(
                GOOD,
                line(
                    "STREAM copy, streaming stores, one core",
                    16.9,
                    Load::Streaming("copy"),
                    Cores::One,
                    "node0",
                ),
            ),
        ],
    },
];
const BRENIAC: &str = "Breniac";
const MCCALPIN: &str = "McCalpin";
const INTEL: &str = "Benson";
const PUGET: &str = "Puget";
const CSIT: &str = "CSIT";
const MOLKA: &str = "Molka";
const ALIYUN: &str = "plantegg";
const GOOD: &str = "GoodCommand";

fn simulate(host: &Host, line: &Line) -> f64 {
    let change = |(key, value): &(&str, &str)| {
        format!("change.host.{key} = {{ value = {value}, source = \"datasheet: {}\" }}\n", host.name)
    };
    let changes: String = SMALL.iter().chain(host.changes).map(change).collect();
    let last = match line.cores {
        Cores::One => 0,
        Cores::Socket => host.cores - 1,
    };
    let chase = matches!(line.load, Load::Chase);
    let (run, quantity, times) = if chase { ("stream", "", 1.0) } else { line.load.program() };
    let text = format!(
        "name = \"memory\"\nsummary = \"memory\"\nseed = 1\n[[host]]\nname = \"a\"\nmachine = \"{}\"\n{changes}\
         [[program]]\ncpus = \"0-{last}\"\nrun = \"{run}\"\nmemory = \"{}\"\n",
        host.machine, line.memory
    );
    let library = Library::built_in();
    let doc = Doc::<ComputerScenario>::from_text(&library, "memory.toml", &text);
    let setup = ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{}", error.render(false)));
    if chase {
        return walk(&setup.hosts[0].machine.host, line.memory);
    }
    let done = computer::run(&setup, &Silent).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let report = done[0].outcome.as_ref().unwrap_or_else(|error| panic!("{error}\n{text}"));
    times * report.get(quantity).unwrap_or_else(|| panic!("no {quantity}"))
}

/// How long a load of core 0 takes on average that begins when the one before is there, over 16 MiB of a node's memory.
fn walk(host: &machine::Host, memory: &str) -> f64 {
    let mut params = memory_params(host, 1);
    params.sockets.iter_mut().for_each(|socket| socket.private.prefetch = None);
    let base = params.sockets[usize::from(memory == "node1")].memory[0].base.get();
    let mut system = MemorySystem::new(&params);
    let (lines, mut now) = (16 << 14, Time::ZERO);
    for line in 0..lines {
        now =
            system.core(now, CoreId(0), HostPhysical::new(base + (1 << 30) + line * 64), CoreOp::Load).ready;
    }
    now.as_ns_f64() / lines as f64
}

/// A row of the table.
fn row(host: &Host, line: &Line) -> String {
    let value = simulate(host, line);
    format!(
        "| {} | {} | {} | {value:.1} | {} | {:+.1} % | {} | {} |",
        host.name,
        line.what,
        line.published,
        line.unit,
        100.0 * (value / line.published - 1.0),
        if line.calibration { "calibration" } else { "prediction" },
        line.source
    )
}

fn rows(wanted: impl Fn(&Host, &Line) -> bool) -> Vec<String> {
    let lines = HOSTS.iter().flat_map(|host| host.lines.iter().map(move |line| (host, line)));
    let wanted: Vec<_> = lines.filter(|(host, line)| wanted(host, line)).collect();
    wanted.par_iter().with_max_len(1).map(|(host, line)| row(host, line)).collect()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rows = rows(|host, line| {
        words.iter().all(|word| host.name.contains(word) || line.what.contains(word) || line.source == word)
    });
    println!("| Processors | What | Published | Simulated | Unit | Error | Role | Source |");
    println!("|---|---|---|---|---|---|---|---|");
    rows.iter().for_each(|row| println!("{row}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sockets are left out, which take a minute.
    #[test]
    fn the_page_shows_what_one_core_gets() {
        let page = include_str!("../../../docs/memory.md");
        let rows = rows(|_, line| matches!(line.cores, Cores::One));
        let wrong: Vec<_> = rows.iter().filter(|row| !page.contains(*row)).collect();
        assert!(rows.len() >= 17 && wrong.is_empty(), "not in docs/memory.md: {wrong:#?}");
        let table = page.lines().filter(|line| line.starts_with("| ") && line.matches('|').count() == 9);
        let all = HOSTS.iter().map(|host| host.lines.len()).sum::<usize>();
        assert_eq!(table.skip(1).count(), all, "rows of the page");
    }
}
