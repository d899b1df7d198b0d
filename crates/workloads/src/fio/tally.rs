//! Counters and latencies of jobs.

use hdrhistogram::Histogram;
use units::Time;

use super::pattern::RequestKind;
use crate::latency::percentiles;
use crate::program::Report;

/// Latencies in nanoseconds: three significant digits, automatically resized.
fn latencies() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are supported")
}

/// Requests of one kind.
pub(super) struct WayTally {
    pub count: u64,
    pub bytes: u64,
    /// Latencies from submission until the program sees the completion, in nanoseconds.
    pub latency: Histogram<u64>,
    /// The measured time.
    first: Time,
    last: Time,
}

impl WayTally {
    /// The measured time in seconds.
    pub fn seconds(&self) -> f64 {
        if self.first > self.last { 0.0 } else { self.last.since(self.first).as_s_f64() }
    }
}

/// Requests of all kinds.
pub(super) struct RequestTally {
    pub ways: [WayTally; 3],
    /// Latencies of flushes, in nanoseconds.
    pub flushes: Histogram<u64>,
    /// Requests by the number in flight when they were submitted: 1, 2, 4, ... 32 and 64 or more.
    pub depths: [u64; 7],
    /// Requests that failed, where the job goes on.
    pub errors: u64,
}

impl Default for RequestTally {
    fn default() -> Self {
        let ways = [(); 3].map(|()| WayTally {
            count: 0,
            bytes: 0,
            latency: latencies(),
            first: Time::NEVER,
            last: Time::ZERO,
        });
        Self { ways, flushes: latencies(), depths: [0; 7], errors: 0 }
    }
}

impl RequestTally {
    /// Records a completed request.
    pub fn ended(&mut self, way: RequestKind, bytes: u64, since: Time, now: Time) {
        let tally = &mut self.ways[way as usize];
        tally.count += 1;
        tally.bytes += bytes;
        let nanoseconds = now.since(since).as_ps() / 1000;
        tally.latency.record(nanoseconds).expect("a histogram that grows takes any value");
    }

    /// Records a flush.
    pub fn flushed(&mut self, since: Time, now: Time) {
        let nanoseconds = now.since(since).as_ps() / 1000;
        self.flushes.record(nanoseconds).expect("a histogram that grows takes any value");
    }

    /// Records how many requests are in flight with the one that is submitted.
    pub fn submitted(&mut self, in_flight: usize) {
        self.depths[in_flight.max(1).ilog2().min(6) as usize] += 1;
    }

    /// Sets the measured time of requests of these kinds.
    pub fn took(&mut self, ways: &[RequestKind], first: Time, last: Time) {
        for way in ways {
            let tally = &mut self.ways[*way as usize];
            (tally.first, tally.last) = (first, last.max(first));
        }
    }

    /// Adds another job's tally.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.ways.iter_mut().zip(&other.ways) {
            mine.count += theirs.count;
            mine.bytes += theirs.bytes;
            mine.latency.add(&theirs.latency).expect("a histogram that grows takes any other");
            (mine.first, mine.last) = (mine.first.min(theirs.first), mine.last.max(theirs.last));
        }
        self.flushes.add(&other.flushes).expect("a histogram that grows takes any other");
        self.errors += other.errors;
        self.depths.iter_mut().zip(other.depths).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Requests and bytes per second.
    pub fn rates(&self, way: RequestKind) -> (f64, f64) {
        let tally = &self.ways[way as usize];
        (tally.count as f64 / tally.seconds(), tally.bytes as f64 / tally.seconds())
    }

    /// Adds rates and completion latencies, as printed by fio; all names begin with `before`.
    pub fn report(&self, report: &mut Report, before: &str, of: &[f64]) {
        let wanted = labelled(of);
        for (way, tally) in RequestKind::ALL.into_iter().zip(&self.ways).filter(|(_, tally)| tally.count > 0)
        {
            let (name, seconds) = (format!("{before}{}", way.name()), tally.seconds());
            report.add(format!("{name} iops"), "1/s", tally.count as f64 / seconds);
            report.add(format!("{name} bw"), "MB/s", tally.bytes as f64 / seconds / 1e6);
            latency(report, &format!("{name} clat"), &tally.latency, &wanted);
            report.add(format!("{name} requests"), "", tally.count as f64);
        }
        if !self.flushes.is_empty() {
            latency(report, &format!("{before}fsync"), &self.flushes, &wanted);
            report.add(format!("{before}fsync requests"), "", self.flushes.len() as f64);
        }
        if self.errors > 0 {
            report.add(format!("{before}errors"), "", self.errors as f64);
        }
        if self.ways.iter().all(|tally| tally.count == 0) {
            report.notes.push(format!("{before}no request ended in the time that counts"));
        }
    }
}

fn labelled(percentiles: &[f64]) -> Vec<(String, f64)> {
    percentiles.iter().map(|percent| (format!("{percent} %"), *percent)).collect()
}

fn latency(report: &mut Report, name: &str, latency: &Histogram<u64>, wanted: &[(String, f64)]) {
    report.add(format!("{name} mean"), "µs", latency.mean() / 1e3);
    let value = |percent| latency.value_at_percentile(percent) as f64 / 1e3;
    percentiles(report, (name, "µs"), latency.len(), wanted, value);
    report.add(format!("{name} max"), "µs", latency.max() as f64 / 1e3);
}
