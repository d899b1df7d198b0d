//! A root port's intake: keeps devices' requests in order on their way to memory.

use engine::Busy;
use units::{Duration, Time};

use super::RootPortParams;
use super::recent::RecentLines;

/// Granularity of the order of memory accesses. A request whose translation takes longer accesses memory in a separate
/// event; others access it on arrival, which saves that event. Timing is the same either way: this is not a machine
/// parameter.
const AT_ONCE: Duration = Duration::from_ns(20);

/// Progress of the requests of a port.
pub(super) struct Intake {
    per_request: Duration,
    per_line: Duration,
    /// Delay of a line whose earlier read is still in flight.
    same_line_wait: Duration,
    free: Time,
    busy: Busy,
    /// When all writes received so far are globally ordered.
    ordered: Time,
    /// When all requests received so far are translated.
    translated: Time,
    /// Number of requests that wait for a page walk.
    waiting: u32,
    /// When the last posted write among them proceeds.
    writes_waiting: Time,
    /// Lines that may have a read in flight.
    recent: RecentLines,
}

impl Intake {
    /// An empty intake of a port.
    pub fn new(params: &RootPortParams) -> Self {
        Self {
            per_request: params.intake_per_request,
            per_line: params.intake_per_line,
            same_line_wait: params.same_line_wait,
            free: Time::ZERO,
            busy: Busy::default(),
            ordered: Time::ZERO,
            translated: Time::ZERO,
            waiting: 0,
            writes_waiting: Time::ZERO,
            recent: RecentLines::default(),
        }
    }

    /// Occupies the intake with a request for `lines` that arrived at `now`. Returns when it leaves the intake.
    pub fn take(&mut self, now: Time, lines: u64) -> Time {
        let time = self.per_request + self.per_line * lines;
        self.busy.add(now, time);
        self.free = self.free.max(now) + time;
        self.free
    }

    /// How long it was busy up to `now`.
    pub fn busy(&self, now: Time) -> Duration {
        self.busy.until(now)
    }

    /// Returns until when a request that leaves the intake at `start` and is translated at `ready` has to wait for its
    /// page walk, or behind others that wait; `None` if it need not wait.
    pub fn wait_for_walk(&mut self, start: Time, ready: Time, is_write: bool) -> Option<Time> {
        self.translated = self.translated.max(ready);
        if ready <= start + AT_ONCE && self.waiting == 0 {
            return None;
        }
        self.waiting += 1;
        if is_write {
            self.writes_waiting = self.translated;
        }
        Some(self.translated)
    }

    /// A waiting request proceeds.
    pub fn goes_on(&mut self) {
        self.waiting -= 1;
    }

    /// When all writes that have proceeded are globally ordered.
    pub fn ordered(&self) -> Time {
        self.ordered
    }

    /// Sets the time at which all writes up to the latest are globally ordered.
    pub fn set_ordered(&mut self, at: Time) {
        self.ordered = at;
    }

    /// When all writes are globally ordered, as far as known.
    pub fn writes_done(&self) -> Time {
        if self.waiting > 0 { self.ordered.max(self.writes_waiting) } else { self.ordered }
    }

    /// Until when requests that must not pass posted writes are held behind waiting ones.
    pub fn held_until(&self, now: Time) -> Option<Time> {
        (self.waiting > 0 && self.writes_waiting >= now).then_some(self.writes_waiting)
    }

    /// Records a read of a line from `start` to `ready`. Returns when its data is available, which an earlier read of the
    /// same line still in flight delays.
    pub fn line_read(&mut self, line: u64, start: Time, ready: Time) -> Time {
        if self.same_line_wait.is_zero() {
            return ready;
        }
        let is_late = self.recent.is_under_way(line, start);
        let there = if is_late { ready + self.same_line_wait } else { ready };
        self.recent.replace(line, there);
        there
    }
}
