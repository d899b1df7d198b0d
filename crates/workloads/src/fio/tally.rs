//! Counters and latencies of jobs.

use hdrhistogram::Histogram;
use units::Time;

use crate::latency::percentiles;
use crate::program::Report;

/// Requests of one direction.
pub(super) struct DirectionTally {
    count: u64,
    bytes: u64,
    /// Latencies from submission until the program sees the completion, in nanoseconds.
    latency: Histogram<u64>,
    /// The measured window; by default, from the first submission to the last completion.
    first: Time,
    last: Time,
}

impl DirectionTally {
    fn new() -> Self {
        // Three significant digits, automatically resized.
        let latency = Histogram::new(3).expect("three digits are supported");
        Self { count: 0, bytes: 0, latency, first: Time::NEVER, last: Time::ZERO }
    }
}

/// Reads and writes.
pub(super) struct Tally {
    sides: [DirectionTally; 2],
}

impl Tally {
    pub fn new() -> Self {
        Self { sides: [DirectionTally::new(), DirectionTally::new()] }
    }

    /// Records a completed request.
    pub fn ended(&mut self, write: bool, bytes: u64, since: Time, now: Time) {
        let side = &mut self.sides[usize::from(write)];
        side.count += 1;
        side.bytes += bytes;
        let nanoseconds = now.since(since).as_ps() / 1000;
        side.latency.record(nanoseconds).expect("a histogram that grows takes any value");
        (side.first, side.last) = (side.first.min(since), side.last.max(now));
    }

    /// Sets the measured window.
    pub fn took(&mut self, start: Time, end: Time) {
        self.sides.iter_mut().for_each(|side| (side.first, side.last) = (start, end));
    }

    /// Adds another job's tally.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.sides.iter_mut().zip(&other.sides) {
            mine.count += theirs.count;
            mine.bytes += theirs.bytes;
            mine.latency.add(&theirs.latency).expect("a histogram that grows takes any other");
            (mine.first, mine.last) = (mine.first.min(theirs.first), mine.last.max(theirs.last));
        }
    }

    /// Rates and completion latencies, as printed by fio.
    pub fn report(&self) -> Report {
        let mut report = Report::default();
        for (side, name) in self.sides.iter().zip(["read", "write"]) {
            if side.count == 0 {
                continue;
            }
            let seconds = side.last.since(side.first).as_s_f64();
            report.add(format!("{name} iops"), "1/s", side.count as f64 / seconds);
            report.add(format!("{name} bw"), "MB/s", side.bytes as f64 / seconds / 1e6);
            report.add(format!("{name} clat mean"), "µs", side.latency.mean() / 1e3);
            let wanted = [50.0, 99.0, 99.9].map(|percent| (format!("{percent} %"), percent));
            let value = |percent| side.latency.value_at_percentile(percent) as f64 / 1e3;
            percentiles(&mut report, (&format!("{name} clat"), "µs"), side.count, &wanted, value);
            report.add(format!("{name} clat max"), "µs", side.latency.max() as f64 / 1e3);
            report.add(format!("{name} requests"), "", side.count as f64);
        }
        if self.sides.iter().all(|side| side.count == 0) {
            report.notes.push("no request ended in the time that counts".into());
        }
        report
    }
}
