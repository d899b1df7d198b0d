//! CPU time while programs ran, by task and by part of program and kernel.

use std::borrow::Cow;

use kernel::TaskTimes;
use platform::cpu::Part;
use serde::{Deserialize, Serialize};
use units::{Duration, Time};

use super::booked::{Booked, less};
use super::computers::Computers;
use super::host::Computer;
use super::observer::Observer;
use crate::counters::part_name;

/// CPU time of one account of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    pub parts: Vec<(Cow<'static, str>, Duration)>,
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
        let (before, after) = (&self.before[n], host.booked(at));
        let span = after.at.since(before.at);
        let packets = (after.packets.0 - before.packets.0, after.packets.1 - before.packets.1);
        let account = |name: &str, sums: TaskTimes, idle: Duration| {
            let parts = Part::ALL.iter().map(|&part| (part_name(part).into(), sums.times.of(part)));
            Account {
                host: host.name.clone(),
                name: name.to_owned(),
                tasks: sums.tasks,
                switches: sums.switches,
                migrations: sums.migrations,
                span,
                packets,
                parts: parts.chain([("idle".into(), idle)]).collect(),
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

impl Observer for Accounting {
    fn booted(&mut self, computers: &Computers) {
        let now = computers.simulation().now();
        self.before = computers.hosts().iter().map(|host| host.booked(now)).collect();
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
