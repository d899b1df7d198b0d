//! CPU time of a host up to a point in time.

use std::collections::BTreeMap;

use ::kernel::{Kernel, TaskTimes, Times};
use drivers::team::TeamParams;
use platform::cpu::{CpuId, Part};
use units::{Duration, Time};

/// CPU time accounted up to a point in time.
#[derive(Default)]
pub(super) struct Booked {
    pub at: Time,
    pub tasks: BTreeMap<String, TaskTimes>,
    cores: Vec<Times>,
    /// Packets of the NICs, and their bytes.
    pub packets: (u64, u64),
}

impl Booked {
    /// Of a kernel and those that its host had `earlier`.
    pub fn of(kernel: &Kernel, teams: &[TeamParams], earlier: &Self, at: Time) -> Self {
        let cores = (0..kernel.face().cpus()).map(|core| kernel.core_times(CpuId(core))).collect();
        let mut packets = (0, 0);
        // Packets of a stacked device also pass its members; count them once.
        let is_above = |name: &str| teams.iter().any(|team| team.name == name);
        for totals in kernel.net().totals(at).iter().filter(|totals| !is_above(&totals.name)) {
            let counters = &totals.counters;
            packets.0 += counters.tx_packets + counters.rx_packets;
            packets.1 += counters.tx_bytes + counters.rx_bytes;
        }
        let mut booked = Self { at, tasks: kernel.task_times(), cores, packets };
        booked.include(earlier);
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
    pub fn since(&self, before: &Self) -> (Times, Duration) {
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

/// What is left of times without others that are part of them.
pub(super) fn less(all: &Times, others: &Times) -> Times {
    let mut times = Times::default();
    Part::ALL.into_iter().for_each(|part| times.add(part, all.of(part) - others.of(part)));
    times
}
