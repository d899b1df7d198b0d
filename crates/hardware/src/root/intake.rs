//! A root port's intake: requests of devices, in order, on their way to memory.

use units::{Duration, Time};

use super::recent::RecentLines;

/// How exactly the order is kept in which requests touch bytes. A request whose translation takes longer reaches memory
/// in an event of its own; the bytes of others are touched when the request arrives, which saves that event. Their times
/// are the same either way: this is no figure of a machine.
const AT_ONCE: Duration = Duration::from_ns(20);

/// How far the requests of a port have come.
#[derive(Default)]
pub(super) struct Intake {
    free: Time,
    /// When all writes received so far are globally ordered.
    ordered: Time,
    /// When all requests received so far are translated.
    translated: Time,
    /// Requests that wait for a page walk.
    waiting: u32,
    /// When the last of the posted writes among them goes on.
    writes_waiting: Time,
    /// Lines whose reads may be under way.
    recent: RecentLines,
}

impl Intake {
    /// A request that came at `now` occupies the intake for `time`: when it is through.
    pub fn take(&mut self, now: Time, time: Duration) -> Time {
        self.free = self.free.max(now) + time;
        self.free
    }

    /// A request is through at `start` and translated at `ready`. If it has to wait for its page walk, or behind others that do: until
    /// when.
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

    /// A request that waited goes on.
    pub fn goes_on(&mut self) {
        self.waiting -= 1;
    }

    /// When all writes that have gone on are globally ordered.
    pub fn ordered(&self) -> Time {
        self.ordered
    }

    /// The same with the writes before what came last.
    pub fn set_ordered(&mut self, at: Time) {
        self.ordered = at;
    }

    /// When all writes are globally ordered, as far as it is known.
    pub fn writes_done(&self) -> Time {
        if self.waiting > 0 { self.ordered.max(self.writes_waiting) } else { self.ordered }
    }

    /// Until when what may not pass posted writes has to stay behind those that wait.
    pub fn held_until(&self, now: Time) -> Option<Time> {
        (self.waiting > 0 && self.writes_waiting >= now).then_some(self.writes_waiting)
    }

    /// A line that is read from `start` on is there at `ready`; when, if an earlier read of it that is still under way costs `wait`.
    pub fn line_read(&mut self, line: u64, start: Time, ready: Time, wait: Duration) -> Time {
        if wait.is_zero() {
            return ready;
        }
        let there = if self.recent.is_under_way(line, start) { ready + wait } else { ready };
        self.recent.replace(line, there);
        there
    }
}
