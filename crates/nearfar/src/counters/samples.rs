//! Utilization over parts of a window: what a whole window hides if a program does one thing after the other.

use units::{Duration, Time};

use super::HostCounters;
use super::read::{self, Reading, Used};

/// Samples kept; with more, every second one goes and the interval doubles.
const MOST: usize = 17;
/// First interval: shorter phases are not told apart.
const FIRST: Duration = Duration::from_us(250);

/// What resources have been used up to a time.
struct UsedUntil {
    at: Time,
    hosts: Vec<Vec<Used>>,
}

/// Samples at equal intervals, of a number that does not grow with the run.
pub(crate) struct Samples {
    interval: Duration,
    next: Time,
    kept: Vec<UsedUntil>,
}

impl Default for Samples {
    fn default() -> Self {
        Self { interval: FIRST, next: Time::NEVER, kept: Vec::new() }
    }
}

impl Samples {
    /// When the next sample is due; never before they have begun.
    pub fn next(&self) -> Time {
        self.next
    }

    /// Whether the first sample has been taken.
    pub fn have_begun(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Takes a sample.
    pub fn take(&mut self, at: Time, hosts: impl Iterator<Item = Reading>) {
        let used = |reading: Reading| reading.resources.into_iter().filter(Used::is_used).collect();
        self.kept.push(UsedUntil { at, hosts: hosts.map(used).collect() });
        if self.kept.len() == MOST {
            let mut number = 0;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.interval = self.interval + self.interval;
        }
        self.next = at + self.interval;
    }

    /// The parts of a window: their lengths, and the resources of each host, by name, in them. `on_path` says of a host
    /// and a resource whether it counts.
    pub fn between(
        &self,
        from: Time,
        until: Time,
        names: &[String],
        mark: impl Fn(&str, &mut super::Resource),
    ) -> Vec<(f64, Vec<HostCounters>)> {
        let inside: Vec<&UsedUntil> = self.kept.iter().filter(|s| from <= s.at && s.at <= until).collect();
        let part = |pair: &[&UsedUntil]| {
            let length = pair[1].at.since(pair[0].at);
            let pairs = pair[0].hosts.iter().zip(&pair[1].hosts);
            let hosts = names.iter().zip(pairs).map(|(name, (before, after))| {
                let mut resources = read::between(before, after, length);
                resources.iter_mut().for_each(|resource| mark(name, resource));
                HostCounters { host: name.clone(), counters: Vec::new(), resources }
            });
            (length.as_s_f64(), hosts.collect())
        };
        inside.windows(2).map(part).filter(|(length, _)| *length > 0.0).collect()
    }
}
