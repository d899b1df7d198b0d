//! The path of requests through the IOMMU: bounded, and in order if the part is.

use super::ids::Access;
use super::params::{IommuParams, PipelineOrder};
use units::{Duration, Time};

/// Places of one direction: each request takes the place that the one `depth` before it leaves.
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
    /// Whether a request for `page` follows one for the same page, and becomes the last one.
    #[inline]
    fn follows(&mut self, page: u64) -> bool {
        self.page.replace(page) == Some(page)
    }
    /// A request that shares the place of the one before leaves.
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

/// Both directions.
#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    lanes: [Lane; 2],
    order: PipelineOrder,
    interval: Duration,
    /// Whether requests for one page, one right after the other, share a place.
    pages_share: bool,
    /// Whether the request being looked up shares the place of the one before it.
    shares: bool,
    last_lookup: Option<Time>,
    /// Least time between two requests that are looked up again.
    retry: Duration,
    /// Requests that wait for walks, in the order of their arrival.
    waiting: Vec<WaitingRequest>,
}

/// A request that waits for a walk, its own or another's.
#[derive(Debug, Clone, Copy)]
struct WaitingRequest {
    until: Time,
    /// How many lookups it takes.
    pieces: u32,
    /// Whether it shares the place of the one before it.
    shares: bool,
}

impl Pipeline {
    pub(crate) fn new(params: &IommuParams) -> Self {
        Self {
            lanes: [Lane::new(params.read_depth), Lane::new(params.write_depth)],
            order: params.order,
            interval: params.lookup_interval,
            pages_share: params.same_page_shares_place,
            shares: false,
            last_lookup: None,
            retry: params.retry_interval,
            waiting: Vec::new(),
        }
    }

    /// When a request for `page` that arrives at `now` gets its place.
    #[inline]
    pub(crate) fn enter(&mut self, now: Time, access: Access, page: u64) -> Time {
        let lane = &mut self.lanes[access as usize];
        self.shares = self.pages_share && lane.follows(page);
        if self.shares { now } else { lane.enter(now) }
    }

    /// When another piece of the request that entered last gets a place.
    #[inline]
    pub(crate) fn enter_piece(&mut self, now: Time, access: Access) -> Time {
        self.shares = self.pages_share;
        if self.shares { now } else { self.lanes[access as usize].enter(now) }
    }

    /// When anything else gets a place of its own.
    #[inline]
    pub(crate) fn enter_alone(&mut self, now: Time, access: Access) -> Time {
        self.shares = false;
        self.lanes[access as usize].enter(now)
    }

    /// When a request that has its place from `at` on is looked up.
    #[inline]
    pub(crate) fn lookup_at(&mut self, mut at: Time) -> Time {
        if !self.interval.is_zero() {
            if let Some(last) = self.last_lookup {
                at = at.max(last + self.interval);
            }
            self.last_lookup = Some(at);
        }
        at
    }

    /// When a request that came at `now` is looked up again, the walk that it waited for having ended at `end`.
    ///
    /// Whoever waits is looked up again when a walk ends, one after the other and the oldest first, also those that will
    /// have to wait for other walks.
    #[inline]
    pub(crate) fn again(&mut self, now: Time, end: Time) -> Time {
        self.after(now, end, |_| true)
    }

    /// The same for one that finds a walk to begin: of those that share a place only the first is ahead of it.
    #[inline]
    pub(crate) fn again_for_walk(&mut self, now: Time, end: Time) -> Time {
        self.after(now, end, |waiting| !waiting.shares)
    }

    fn after(&mut self, now: Time, end: Time, counts: impl Fn(&WaitingRequest) -> bool) -> Time {
        self.forget(now);
        let before = self.waiting.iter().filter(|waiting| waiting.until >= end && counts(waiting));
        end + self.retry * before.map(|waiting| u64::from(waiting.pieces)).sum::<u64>()
    }

    /// Those that wait no longer.
    fn forget(&mut self, now: Time) {
        self.waiting.retain(|waiting| waiting.until > now);
    }

    /// The request that was looked up last, at `now`, waits until then, and takes a lookup for each of its `pieces`.
    #[inline]
    pub(crate) fn waits(&mut self, now: Time, until: Time, pieces: u32) {
        // Misses that meet no others are looked at by nobody else.
        if self.waiting.len() == self.waiting.capacity() {
            self.forget(now);
        }
        self.waiting.push(WaitingRequest { until, pieces, shares: self.shares });
    }

    /// When the request that entered last leaves, its translation being known at `ready`.
    #[inline]
    pub(crate) fn leave(&mut self, ready: Time, access: Access) -> Time {
        let at = match self.order {
            PipelineOrder::Unordered => ready,
            PipelineOrder::PerDirection => ready.max(self.lanes[access as usize].last_leave),
            PipelineOrder::Global => ready.max(self.last_leave()),
        };
        let lane = &mut self.lanes[access as usize];
        if self.shares {
            lane.leave_along(at)
        } else {
            lane.leave(at)
        }
        at
    }

    /// When everything of one direction that entered so far has left.
    #[inline]
    pub(crate) fn last_leave_of(&self, access: Access) -> Time {
        self.lanes[access as usize].last_leave
    }

    #[inline]
    fn last_leave(&self) -> Time {
        self.last_leave_of(Access::Read).max(self.last_leave_of(Access::Write))
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
            pipeline.waits(now, now + Duration::from_ns(300), 1);
        }
        assert!(pipeline.waiting.len() < 16, "{} wait", pipeline.waiting.len());
    }
}
