//! Pipeline of requests in the IOMMU: limited depth, in order if the part is.

use engine::{Busy, WaitTime};

use super::params::{IommuParams, PipelineOrder};
use units::{Duration, Time};
use wire::vtd::Access;

/// Places of one direction: each request takes the place of the one `depth` before it.
#[derive(Debug, Clone)]
struct Lane {
    leaves: Vec<Time>,
    next: usize,
    last_leave: Time,
    /// The page of the request that entered last.
    page: Option<u64>,
}

impl Lane {
    fn new(depth: usize) -> Self {
        Self { leaves: vec![Time::ZERO; depth], next: 0, last_leave: Time::ZERO, page: None }
    }
    #[inline]
    fn enter(&self, now: Time) -> Time {
        if self.leaves.is_empty() { now } else { now.max(self.leaves[self.next]) }
    }
    /// Whether a request for `page` directly follows one for the same page. Records it as the last one.
    #[inline]
    fn follows(&mut self, page: u64) -> bool {
        self.page.replace(page) == Some(page)
    }
    /// A request that shares its predecessor's place leaves.
    #[inline]
    fn leave_along(&mut self, at: Time) {
        self.last_leave = self.last_leave.max(at);
        let last = self.next.checked_sub(1).unwrap_or(self.leaves.len().saturating_sub(1));
        if let Some(leave) = self.leaves.get_mut(last) {
            *leave = (*leave).max(at);
        }
    }
    #[inline]
    fn leave(&mut self, at: Time) {
        self.last_leave = self.last_leave.max(at);
        if !self.leaves.is_empty() {
            self.leaves[self.next] = at;
            self.next += 1;
            if self.next == self.leaves.len() {
                self.next = 0;
            }
        }
    }
}

/// The lanes of both directions.
#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    lanes: [Lane; 2],
    order: PipelineOrder,
    interval: Duration,
    /// Whether consecutive requests for one page share a place.
    pages_share: bool,
    last_lookup: Option<Time>,
    /// Time of lookups, each of which keeps others out for the interval.
    looking_up: Busy,
    /// Minimum interval between repeated lookups.
    retry: Duration,
    /// Requests waiting for walks, in order of arrival.
    waiting: Vec<WaitingRequest>,
    /// When the last request that has left is no longer in use, as far as known.
    in_use_until: Time,
    drain_latency: Duration,
    /// Time that requests waited for a place, of all together.
    queueing: Duration,
    /// Time in which at least one waited for a place, by direction.
    waited: [WaitTime; 2],
}

/// The place of a request, from its entry until it leaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PipelinePlace {
    /// When it has it.
    pub at: Time,
    /// Whether it shares its predecessor's place.
    shares: bool,
}

/// A request that waits for its own walk or another's.
#[derive(Debug, Clone, Copy)]
struct WaitingRequest {
    until: Time,
    /// Number of lookups it needs.
    pieces: u32,
    /// Whether it shares its predecessor's place.
    shares: bool,
}

impl Pipeline {
    pub(crate) fn new(params: &IommuParams) -> Self {
        Self {
            lanes: [Lane::new(params.read_depth), Lane::new(params.write_depth)],
            order: params.order,
            interval: params.lookup_interval,
            pages_share: params.same_page_shares_place,
            last_lookup: None,
            looking_up: Busy::default(),
            retry: params.retry_interval,
            waiting: Vec::new(),
            in_use_until: Time::ZERO,
            drain_latency: params.drain_latency,
            queueing: Duration::ZERO,
            waited: Default::default(),
        }
    }

    /// Time that requests waited for a place.
    pub(crate) const fn queueing(&self) -> Duration {
        self.queueing
    }

    /// Time up to `now` in which requests of a direction waited for a place.
    pub(crate) fn waited(&self, access: Access, now: Time) -> Duration {
        self.waited[access as usize].until(now)
    }

    /// When a request that arrives at `now` gets a place of its own.
    #[inline]
    fn enter_lane(&mut self, now: Time, access: Access) -> Time {
        let at = self.lanes[access as usize].enter(now);
        self.waited[access as usize].pass(now, at);
        at
    }

    /// Time of lookups up to `now`.
    pub(crate) fn lookups_busy(&self, now: Time) -> Duration {
        self.looking_up.until(now)
    }

    /// The place of a request for `page` that arrives at `now`.
    #[inline]
    pub(crate) fn enter(&mut self, now: Time, access: Access, page: u64) -> PipelinePlace {
        let shares = self.pages_share && self.lanes[access as usize].follows(page);
        let at = if shares { now } else { self.enter_lane(now, access) };
        self.queueing += at.since(now);
        PipelinePlace { at, shares }
    }

    /// The place of another piece of the last request.
    #[inline]
    pub(crate) fn enter_piece(&mut self, now: Time, access: Access) -> PipelinePlace {
        let shares = self.pages_share;
        PipelinePlace { at: if shares { now } else { self.enter_lane(now, access) }, shares }
    }

    /// A place of its own, for any other operation.
    #[inline]
    pub(crate) fn enter_alone(&mut self, now: Time, access: Access) -> PipelinePlace {
        PipelinePlace { at: self.enter_lane(now, access), shares: false }
    }

    /// When a request that has had a place since `at` is looked up.
    #[inline]
    pub(crate) fn lookup_at(&mut self, mut at: Time) -> Time {
        if !self.interval.is_zero() {
            if let Some(last) = self.last_lookup {
                at = at.max(last + self.interval);
            }
            self.last_lookup = Some(at);
            self.looking_up.add(at, self.interval);
        }
        at
    }

    /// When a request that arrived at `now` is looked up again after the walk it waited for has ended at `end`.
    ///
    /// When a walk ends, all waiting requests are looked up again one after another, oldest first, including those that
    /// will have to wait for other walks.
    #[inline]
    pub(crate) fn again(&mut self, now: Time, end: Time) -> Time {
        self.after(now, end, |_| true)
    }

    /// The same for a request that then starts a walk: of requests that share a place, only the first is ahead of it.
    #[inline]
    pub(crate) fn again_for_walk(&mut self, now: Time, end: Time) -> Time {
        self.after(now, end, |waiting| !waiting.shares)
    }

    fn after(&mut self, now: Time, end: Time, counts: impl Fn(&WaitingRequest) -> bool) -> Time {
        self.forget(now);
        let before = self.waiting.iter().filter(|waiting| waiting.until >= end && counts(waiting));
        end + self.retry * before.map(|waiting| u64::from(waiting.pieces)).sum::<u64>()
    }

    /// Removes requests that no longer wait.
    fn forget(&mut self, now: Time) {
        self.waiting.retain(|waiting| waiting.until > now);
    }

    /// A request that was looked up at `now` waits until `until`, and needs a lookup for each of its `pieces`.
    #[inline]
    pub(crate) fn waits(&mut self, place: PipelinePlace, now: Time, until: Time, pieces: u32) {
        // Without overlapping misses nobody reads the list.
        if self.waiting.len() == self.waiting.capacity() {
            self.forget(now);
        }
        self.waiting.push(WaitingRequest { until, pieces, shares: place.shares });
    }

    /// When a request leaves its place, given that its translation is available at `ready`.
    #[inline]
    pub(crate) fn leave(&mut self, place: PipelinePlace, ready: Time, access: Access) -> Time {
        let at = match self.order {
            PipelineOrder::Unordered => ready,
            PipelineOrder::PerDirection => ready.max(self.lanes[access as usize].last_leave),
            PipelineOrder::Global => ready.max(self.last_leave()),
        };
        let lane = &mut self.lanes[access as usize];
        if place.shares {
            lane.leave_along(at)
        } else {
            lane.leave(at)
        }
        at
    }

    /// A request that has left is in use until `until`.
    #[inline]
    pub(crate) fn in_use_until(&mut self, until: Time) {
        self.in_use_until = self.in_use_until.max(until);
    }

    /// When all requests of one direction so far have been served.
    pub(crate) fn drained(&self, access: Access) -> Time {
        self.lanes[access as usize].last_leave.max(self.in_use_until) + self.drain_latency
    }

    #[inline]
    fn last_leave(&self) -> Time {
        self.lanes[0].last_leave.max(self.lanes[1].last_leave)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Duration;

    #[test]
    fn misses_that_meet_no_others_are_forgotten() {
        let mut pipeline = Pipeline::new(&IommuParams::default());
        for n in 0..10_000 {
            let now = Time::ZERO + Duration::from_us(n);
            let place = pipeline.enter_alone(now, Access::Read);
            pipeline.waits(place, now, now + Duration::from_ns(300), 1);
        }
        assert!(pipeline.waiting.len() < 16, "{} wait", pipeline.waiting.len());
    }
}
