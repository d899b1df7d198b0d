//! CPU time while programs ran, by task and by part of program and kernel.

use std::collections::BTreeMap;

use kernel::{TaskTimes, Times};
use platform::cpu::{CpuId, Part};
use units::{Duration, Time};

use super::observer::Observer;
use super::{Computer, Computers};
use crate::counters::part_name;

/// CPU time of one account of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// The host's name in the scenario.
    pub host: String,
    /// Name of the tasks, or [`INTERRUPTS`](Self::INTERRUPTS) or [`IDLE`](Self::IDLE).
    pub name: String,
    /// Number of tasks with that name; 0 for other accounts.
    pub tasks: u64,
    /// Context switches from another task to these.
    pub switches: u64,
    /// Migrations to another core.
    pub migrations: u64,
    /// Length of the accounted time.
    pub span: Duration,
    /// Packets that the host's NICs sent and received in that time, and their bytes.
    pub packets: (u64, u64),
    /// Time by part: all parts in order, with `idle` last.
    pub parts: Vec<(&'static str, Duration)>,
}

impl Account {
    /// Interrupt handlers and deferred work outside of tasks.
    pub const INTERRUPTS: &'static str = "(interrupts)";
    /// Idle time.
    pub const IDLE: &'static str = "(idle)";

    /// Total time.
    pub fn total(&self) -> Duration {
        self.parts.iter().map(|(_, time)| *time).sum()
    }

    /// A time as a percentage of one core.
    pub fn share_pct(&self, time: Duration) -> f64 {
        100.0 * time.as_ps() as f64 / self.span.as_ps().max(1) as f64
    }

    /// Time per packet (ns); `None` without packets.
    pub fn ns_per_packet(&self, time: Duration) -> Option<f64> {
        (self.packets.0 > 0).then(|| time.as_ns_f64() / self.packets.0 as f64)
    }

    /// Time per byte of packets (ps); `None` without packets.
    pub fn ps_per_byte(&self, time: Duration) -> Option<f64> {
        (self.packets.1 > 0).then(|| time.as_ps() as f64 / self.packets.1 as f64)
    }

    /// Time of one part.
    pub fn of(&self, part: &str) -> Duration {
        self.parts.iter().find(|(name, _)| *name == part).map_or(Duration::ZERO, |(_, time)| *time)
    }
}

/// CPU time accounted up to a point in time.
#[derive(Default)]
pub(super) struct Booked {
    at: Time,
    tasks: BTreeMap<String, TaskTimes>,
    cores: Vec<Times>,
    /// Packets of the NICs, and their bytes.
    packets: (u64, u64),
}

impl Booked {
    /// Of all kernels that a host has had.
    pub fn of(host: &Computer, at: Time) -> Self {
        let cores = (0..host.kernel.face().cpus()).map(|core| host.kernel.core_times(CpuId(core))).collect();
        let mut packets = (0, 0);
        // Packets of a stacked device also pass its members; count them once.
        let is_above = |name: &str| host.teams.iter().any(|team| team.name == name);
        for totals in host.kernel.net().totals(at).iter().filter(|totals| !is_above(&totals.name)) {
            let counters = &totals.counters;
            packets.0 += counters.tx_packets + counters.rx_packets;
            packets.1 += counters.tx_bytes + counters.rx_bytes;
        }
        let mut booked = Self { at, tasks: host.kernel.task_times(), cores, packets };
        booked.include(&host.earlier.booked);
        booked
    }

    /// Of a kernel that has ended, to be added to what the next one books.
    pub fn ended(self) -> Self {
        Self { at: Time::ZERO, ..self }
    }

    fn include(&mut self, other: &Self) {
        for (name, times) in &other.tasks {
            let own = self.tasks.entry(name.clone()).or_default();
            own.tasks += times.tasks;
            own.switches += times.switches;
            own.migrations += times.migrations;
            own.times += &times.times;
        }
        self.cores.iter_mut().zip(&other.cores).for_each(|(own, other)| *own += other);
        self.packets.0 += other.packets.0;
        self.packets.1 += other.packets.1;
    }

    /// CPU time since `before`, and the length of that span; no core can exceed it.
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

/// Accounts CPU time from the start of the programs to their end.
#[derive(Default)]
pub struct Accounting {
    before: Vec<Booked>,
    accounts: Vec<Account>,
}

impl Accounting {
    /// Accounts of each host: tasks by name, interrupts and idle time. They add up to the cores' total time.
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

/// What is left of times without others that are part of them.
fn less(all: &Times, others: &Times) -> Times {
    let mut times = Times::default();
    Part::ALL.into_iter().for_each(|part| times.add(part, all.of(part) - others.of(part)));
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
