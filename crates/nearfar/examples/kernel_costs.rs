//! What paths through Linux take as published, beside the sum of the costs of `machines/kernels/linux.toml` in the simulation. Prints
//! the table of `docs/kernel-costs.md`; words choose lines: `cargo run --release -p nearfar --example kernel_costs -- UDP`.
//!
//! Each runs on one core, with a local device or none.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use kernel::KernelCosts;
use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::computer::{self, Account, Computer, Computers};
use nearfar::progress::Silent;
use platform::block::Segment;
use platform::cpu::{Cpu, CpuId};
use platform::kernel::TaskParams;
use platform::memory::Policy;
use platform::sync::Completion;
use rayon::prelude::*;
use units::Duration;

/// A published figure of a path through the kernel.
struct Check {
    what: &'static str,
    unit: &'static str,
    published: f64,
    /// A word for it; `docs/kernel-costs.md` says what it is.
    source: &'static str,
    /// Costs of the kernel were chosen to meet it.
    calibration: bool,
    measure: fn() -> f64,
}

const CHECKS: &[Check] = &[
    Check {
        what: "page taken and given back",
        unit: "cycles",
        published: 211.0,
        source: "xdp-project",
        calibration: true,
        measure: || on_a_core(&core("3.6 GHz", "1.11 ns", "3.33 ns", BROADWELL), 3.6, pages),
    },
    Check {
        what: "nanosleep, beyond the time asked for",
        unit: "us",
        published: 1.97,
        source: "gms.tf",
        calibration: false,
        measure: || on_a_core(&core("4.1 GHz", "0.98 ns", "3.41 ns", SKYLAKE), 1e-3, naps),
    },
    Check {
        what: "UDP datagrams to a port that nobody reads",
        unit: "million/s",
        published: 3.327,
        source: "xdp-project",
        calibration: true,
        measure: || datagrams(false),
    },
    Check {
        what: "UDP datagrams read on another core",
        unit: "million/s",
        published: 2.312,
        source: "xdp-project",
        calibration: false,
        measure: || datagrams(true),
    },
    Check {
        what: "invalidation of a strict unmap, with its wait",
        unit: "cycles",
        published: 2127.0,
        source: "rIOMMU",
        calibration: true,
        measure: invalidation,
    },
    Check {
        what: "4 KiB writes at depth 8, io_uring with interrupts",
        unit: "thousand/s",
        published: 687.0,
        source: "fio",
        calibration: false,
        measure: writes,
    },
    Check {
        what: "TCP received with GRO, frames of 1,500 B",
        unit: "Gbit/s a core",
        published: 28.3,
        source: "Terabit-Ethernet",
        calibration: false,
        measure: received,
    },
];

const BROADWELL: &str = "dolphin-e5-1650v4";
const SKYLAKE: &str = "xeon-8160";

/// The change of a machine to one with cores of this clock, and L1 and L2 that follow it.
fn core(frequency: &str, l1: &str, l2: &str, machine: &str) -> String {
    let change = |(key, value): (&str, &str)| {
        format!("change.host.{key} = {{ value = \"{value}\", source = \"datasheet: the processor's\" }}\n")
    };
    let changes: String =
        [("core.frequency", frequency), ("l1.hit", l1), ("l2.hit", l2)].into_iter().map(change).collect();
    format!("machine = \"{machine}\"\n{changes}")
}

fn setup(text: &str) -> ComputerSetup {
    let library = Library::built_in();
    let text = format!("name = \"costs\"\nsummary = \"costs\"\n{text}");
    let doc = Doc::<ComputerScenario>::from_text(&library, "costs.toml", &text);
    ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

fn booted(text: &str) -> Computers {
    let computers = Computers::new(&setup(text)).unwrap_or_else(|error| panic!("{error}"));
    computers.boot().unwrap_or_else(|error| panic!("{error}"));
    computers
}

fn wait<T: 'static>(computers: &Computers, done: Completion<T>) -> T {
    computers.simulation().block_on(async move { done.wait().await }).expect("it ends")
}

/// What a program that repeats something finds it to take, in nanoseconds times `scale`.
fn on_a_core(host: &str, scale: f64, program: fn(&Computers) -> Completion<f64>) -> f64 {
    let computers = booted(&format!("[[host]]\nname = \"a\"\n{host}"));
    let done = program(&computers);
    wait(&computers, done) * scale
}

fn task() -> TaskParams {
    TaskParams::named("test").on(CpuId(0))
}

/// Mean of a thousand, after a few that do not count.
async fn mean(cpu: &Cpu, mut one: impl AsyncFnMut(&Cpu)) -> f64 {
    const TIMES: u32 = 1000;
    let mut start = cpu.now();
    for n in 0..TIMES + 10 {
        if n == 10 {
            start = cpu.now();
        }
        one(cpu).await;
        cpu.sync().await;
    }
    cpu.now().since(start).as_ns_f64() / f64::from(TIMES)
}

fn pages(computers: &Computers) -> Completion<f64> {
    let kernel = &computers.hosts()[0].kernel;
    let face = kernel.face();
    kernel.run(task(), async move |cpu| {
        mean(&cpu, async |cpu| {
            let page = face.alloc_pages(cpu, 0, Policy::Local).expect("memory");
            face.free_pages(cpu, page);
        })
        .await
    })
}

/// Longer than what goes to sleep takes, so that it does sleep.
const NAP: Duration = Duration::from_us(20);

fn naps(computers: &Computers) -> Completion<f64> {
    computers.hosts()[0].kernel.run(task(), async |cpu| {
        let syscall = KernelCosts::linux().syscall;
        mean(&cpu, async |cpu| {
            cpu.work(syscall);
            cpu.sleep(NAP).await;
        })
        .await
            - NAP.as_ns_f64()
    })
}

/// Millions of small datagrams a second that a host takes from one sending queue of another, read on a core that gets no
/// interrupts or dropped for lack of a reader.
fn datagrams(read: bool) -> f64 {
    let other = core("3.8 GHz", "1.05 ns", "3.16 ns", BROADWELL);
    let nic = "[[host.device]]\nnic = \"connectx4\"\n";
    let text = format!(
        "[[host]]\nname = \"a\"\n{other}{nic}[[host]]\nname = \"b\"\n{other}nic_driver.channels = 1\n{nic}\
         [[cable]]\nends = [\"a\", \"b\"]\n\
         [[program]]\nhost = \"a\"\ncpus = \"0-3\"\nrun = \"pktgen -s 60 -n 25000 -c 1000 -b 32 -t 4 -d 10.0.0.2\"\n"
    );
    struct Seen {
        reader: Option<Rc<Cell<u32>>>,
        read: bool,
        rate: f64,
        began: Option<(units::Time, u64)>,
    }
    impl Seen {
        fn count(&self, b: &Computer) -> u64 {
            match &self.reader {
                Some(reader) => reader.get().into(),
                None => b.kernel.face().network().counters().unwanted,
            }
        }
    }
    impl computer::Observer for Seen {
        fn booted(&mut self, computers: &Computers) {
            let b = &computers.hosts()[1];
            if !self.read {
                return;
            }
            let (face, count) = (b.kernel.face(), Rc::new(Cell::new(0)));
            self.reader = Some(Rc::clone(&count));
            b.kernel.run(TaskParams::named("sink").on(CpuId(2)), async move |cpu| {
                let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 9);
                let socket = face.network().udp(&cpu, at).expect("a port");
                let page = face.alloc_pages(&cpu, 0, Policy::Local).expect("memory");
                loop {
                    let into = Segment { at: page.start, length: 64 };
                    if socket.recv_from(&cpu, into).await.is_err() {
                        break;
                    }
                    count.set(count.get() + 1);
                }
            });
        }
        fn began(&mut self, _: &[usize], computers: &Computers) {
            self.began = Some((computers.simulation().now(), self.count(&computers.hosts()[1])));
        }
        fn done(&mut self, _: &[usize], computers: &Computers) {
            let (since, before) = self.began.expect("it began");
            let time = computers.simulation().now().since(since);
            self.rate = (self.count(&computers.hosts()[1]) - before) as f64 / time.as_ns_f64() * 1e3;
        }
        fn has_enough(&self) -> bool {
            self.rate > 0.0
        }
        fn ended(&mut self, _: &Computers) {}
    }
    let mut seen = Seen { reader: None, read, rate: 0.0, began: None };
    computer::run_watched(&setup(&text), &Silent, &mut seen).unwrap_or_else(|error| panic!("{error}"));
    seen.rate
}

fn report(text: &str, program: &str, quantity: &str) -> f64 {
    let done = computer::run(&setup(text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let done = done.iter().find(|done| done.run.starts_with(program)).expect("it ran");
    let report = done.outcome.as_ref().unwrap_or_else(|error| panic!("{error}"));
    report.get(quantity).unwrap_or_else(|| panic!("{quantity} of {report:?}"))
}

/// Cycles of what a strict unmap does and a lazy one does not.
fn invalidation() -> f64 {
    const READS: u64 = 1000;
    let [lazy, strict] = ["lazy", "strict"].map(|iommu| {
        let host = core("3.1 GHz", "1.29 ns", "3.87 ns", "dell-t620-sandy");
        let text = format!(
            "[[host]]\nname = \"a\"\n{host}iommu = \"{iommu}\"\n[[host.device]]\ndrive = \"optane-900p\"\n\
             [[program]]\ncpus = \"0\"\nrun = \"fio --rw=randread --bs=4k --iodepth=1 --size={}k\"\n",
            4 * READS
        );
        let counts = computer::run_counted(&setup(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
        let interrupts = counts.accounts.iter().find(|account| account.name == Account::INTERRUPTS);
        interrupts.expect("reads end").of("dma").as_ns_f64() / READS as f64
    });
    (strict - lazy) * 3.1 + KernelCosts::linux().flush_queue as f64
}

/// Thousands a second to a drive that is faster than a core.
fn writes() -> f64 {
    let change =
        |key, value| format!("change.{key} = {{ value = {value}, source = \"datasheet: P5800X\" }}\n");
    let host = core("3.0 GHz", "1.33 ns", "4.67 ns", SKYLAKE) + &change("host.port.bay.generation", "4");
    let drive = [
        ("link.generation", "4"),
        ("controller.command_interval", "\"650 ns\""),
        ("media.channel_write_rate", "\"0.89 GB/s\""),
    ]
    .map(|(key, value)| change(key, value))
    .concat();
    let text = format!(
        "[[host]]\nname = \"a\"\n{host}[[host.device]]\ndrive = \"optane-p4800x\"\n{drive}\n\
         [[program]]\ncpus = \"0\"\nrun = \"fio --rw=randwrite --bs=4k --ioengine=libaio --iodepth=8 --runtime=5ms --ramp_time=1ms\"\n"
    );
    report(&text, "fio", "write iops") / 1e3
}

/// Gbit/s of payload of one stream for each core that it takes, the interrupts on its reader's own core.
fn received() -> f64 {
    let host = core("3.4 GHz", "1.18 ns", "3.53 ns", "dell-r730");
    let text = format!(
        "[[host]]\nname = \"a\"\n{host}change_kernel.steering = {{ rfs = true, arfs = true }}\n\
         [[host.device]]\nnic = \"connectx4\"\n[[source]]\nname = \"tester\"\nto = \"10.0.0.1:5001\"\ntime = \"20 ms\"\n\
         [[cable]]\nends = [\"a\", \"tester\"]\n[[program]]\ncpus = \"0\"\nrun = \"iperf -s\"\n"
    );
    let counts = computer::run_counted(&setup(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let accounts = counts.accounts.iter().filter(|account| account.name != Account::IDLE);
    let busy: f64 = accounts.clone().map(|account| account.total().as_ns_f64()).sum();
    let bytes = accounts.map(|account| account.packets.1).max().unwrap_or(0);
    // Of frames of 1,514 bytes, 1,448 are the stream's.
    bytes as f64 * 8.0 * (1448.0 / 1514.0) / busy
}

/// Rows of the table.
fn rows(wanted: impl Fn(&Check) -> bool) -> Vec<String> {
    let wanted: Vec<_> = CHECKS.iter().filter(|check| wanted(check)).collect();
    let row = |check: &&Check| {
        let value = (check.measure)();
        format!(
            "| {} | {} | {value:.3} | {} | {:+.1} % | {} | {} |",
            check.what,
            check.published,
            check.unit,
            100.0 * (value / check.published - 1.0),
            if check.calibration { "calibration" } else { "prediction" },
            check.source
        )
    };
    wanted.par_iter().with_max_len(1).map(row).collect()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rows = rows(|check| words.iter().all(|word| check.what.contains(word) || check.source == word));
    println!("| What | Published | Simulated | Unit | Error | Role | Source |");
    println!("|---|---|---|---|---|---|---|");
    rows.iter().for_each(|row| println!("{row}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_what_is_simulated() {
        let page = include_str!("../../../docs/kernel-costs.md");
        let rows = rows(|_| true);
        let wrong: Vec<_> = rows.iter().filter(|row| !page.contains(*row)).collect();
        assert!(wrong.is_empty(), "not in docs/kernel-costs.md: {wrong:#?}");
    }
}
