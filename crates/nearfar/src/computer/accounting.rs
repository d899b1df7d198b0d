//! Where the cores' time went while programs ran: by task, and by part of program and kernel.

use std::collections::BTreeMap;

use kernel::{TaskTimes, Times};
use platform::cpu::{CpuId, Part};
use units::{Duration, Time};

use super::run::Observer;
use super::{Computer, Computers};

/// What one account of a host has taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// The host's name in the scenario.
    pub host: String,
    /// The tasks' name, [`INTERRUPTS`](Self::INTERRUPTS) or [`IDLE`](Self::IDLE).
    pub name: String,
    /// How many tasks of that name there were; 0 if it is none's.
    pub tasks: u64,
    /// How often they were given a core that another task had had.
    pub switches: u64,
    /// How often they went to another core.
    pub migrations: u64,
    /// How long was accounted for.
    pub span: Duration,
    /// Packets that the host's NICs sent and received in that time, and their bytes.
    pub packets: (u64, u64),
    /// Time by part: all parts by name in their order, and `idle` last.
    pub parts: Vec<(&'static str, Duration)>,
}

impl Account {
    /// Interrupts' handlers and deferred work outside of tasks.
    pub const INTERRUPTS: &'static str = "(interrupts)";
    /// Nobody.
    pub const IDLE: &'static str = "(idle)";

    /// All of it.
    pub fn total(&self) -> Duration {
        self.parts.iter().map(|(_, time)| *time).sum()
    }

    /// A time as a share of one core's, in per cent.
    pub fn share_pct(&self, time: Duration) -> f64 {
        100.0 * time.as_ps() as f64 / self.span.as_ps().max(1) as f64
    }

    /// A time for each packet, in nanoseconds; nothing where none passed.
    pub fn ns_per_packet(&self, time: Duration) -> Option<f64> {
        (self.packets.0 > 0).then(|| time.as_ns_f64() / self.packets.0 as f64)
    }

    /// A time for each byte of packets, in picoseconds; nothing where none passed.
    pub fn ps_per_byte(&self, time: Duration) -> Option<f64> {
        (self.packets.1 > 0).then(|| time.as_ps() as f64 / self.packets.1 as f64)
    }

    /// Time of one part.
    pub fn of(&self, part: &str) -> Duration {
        self.parts.iter().find(|(name, _)| *name == part).map_or(Duration::ZERO, |(_, time)| *time)
    }
}

pub(crate) fn part_name(part: Part) -> &'static str {
    match part {
        Part::User => "user",
        Part::Kernel => "kernel",
        Part::Irq => "irq",
        Part::Softirq => "softirq",
        Part::Scheduler => "scheduler",
        Part::Net => "net",
        Part::Block => "block",
        Part::Driver => "driver",
        Part::Dma => "dma",
        Part::Memory => "memory",
        Part::Copy => "copy",
        Part::Virt => "virt",
        Part::Poll => "poll",
    }
}

/// What had been booked at one time.
#[derive(Default)]
struct Booked {
    at: Time,
    tasks: BTreeMap<String, TaskTimes>,
    cores: Vec<Times>,
    /// Packets of the NICs, and their bytes.
    packets: (u64, u64),
}

impl Booked {
    fn of(host: &Computer, at: Time) -> Self {
        let cores = (0..host.kernel.face().cpus()).map(|core| host.kernel.core_times(CpuId(core))).collect();
        let mut packets = (0, 0);
        // What passes a device above others passes these as well.
        let is_above = |name: &str| host.teams.iter().any(|team| team.name == name);
        for device in host.kernel.net().devices().iter().filter(|device| !is_above(device.name())) {
            let counters = device.counters();
            packets.0 += counters.tx_packets + counters.rx_packets;
            packets.1 += counters.tx_bytes + counters.rx_bytes;
        }
        Self { at, tasks: host.kernel.task_times(), cores, packets }
    }

    /// What the cores have taken after `before`: none more than has passed.
    fn since(&self, before: &Self) -> (Times, Duration) {
        let passed = self.at.since(before.at);
        let (mut busy, mut idle) = (Times::default(), Duration::ZERO);
        for (after, before) in self.cores.iter().zip(&before.cores) {
            let times = less(after, before);
            assert!(times.total() <= passed, "a core was busy for {} of {passed}", times.total());
            busy += &times;
            idle += passed - times.total();
        }
        (busy, idle)
    }
}

/// Books the cores' time from when programs start to when they have ended.
#[derive(Default)]
pub struct Accounting {
    before: Vec<Booked>,
    accounts: Vec<Account>,
}

impl Accounting {
    /// What was booked, host by host: tasks by name, interrupts, and idle time. Together they are the cores' time.
    pub fn accounts(self) -> Vec<Account> {
        self.accounts
    }

    fn close(&mut self, n: usize, host: &Computer, at: Time) {
        let (before, after) = (&self.before[n], Booked::of(host, at));
        let span = after.at.since(before.at);
        let packets = (after.packets.0 - before.packets.0, after.packets.1 - before.packets.1);
        let account = |name: &str, sums: TaskTimes, idle: Duration| {
            let parts = Part::ALL.iter().map(|&part| (part_name(part), sums.times.of(part)));
            Account {
                host: host.name.clone(),
                name: name.to_owned(),
                tasks: sums.tasks,
                switches: sums.switches,
                migrations: sums.migrations,
                span,
                packets,
                parts: parts.chain([("idle", idle)]).collect(),
            }
        };
        let (mut left, idle) = after.since(before);
        for (name, now) in &after.tasks {
            let then = before.tasks.get(name).copied().unwrap_or_default();
            let sums = TaskTimes {
                tasks: now.tasks,
                switches: now.switches - then.switches,
                migrations: now.migrations - then.migrations,
                times: less(&now.times, &then.times),
            };
            left = less(&left, &sums.times);
            if !sums.times.total().is_zero() {
                self.accounts.push(account(name, sums, Duration::ZERO));
            }
        }
        let interrupts = TaskTimes { times: left, ..TaskTimes::default() };
        self.accounts.push(account(Account::INTERRUPTS, interrupts, Duration::ZERO));
        self.accounts.push(account(Account::IDLE, TaskTimes::default(), idle));
    }
}

/// What was booked after `before`.
fn less(after: &Times, before: &Times) -> Times {
    let mut times = Times::default();
    for part in Part::ALL {
        times.add(part, after.of(part).saturating_sub(before.of(part)));
    }
    times
}

impl Observer for Accounting {
    fn booted(&mut self, computers: &Computers) {
        let now = computers.simulation().now();
        self.before = computers.hosts().iter().map(|host| Booked::of(host, now)).collect();
    }

    fn has_enough(&self) -> bool {
        false
    }

    fn ended(&mut self, computers: &Computers) {
        let now = computers.simulation().now();
        for (n, host) in computers.hosts().iter().enumerate() {
            self.close(n, host, now);
        }
    }
}
