//! Misses in flight of a core's L2, and its prefetchers.
//!
//! There are two prefetchers, as described in Intel's optimisation manual from Sandy Bridge on. The streamer follows
//! access sequences within a page of 4 KiB, in either direction, and requests lines ahead of them; the adjacent-line
//! prefetcher completes pairs of 128 bytes. Each prefetched line goes into the L2 and, like a miss, holds a place in
//! the super queue until it arrives; without a free place nothing is prefetched. Not modelled: a busy L2's prefetches
//! end in the LLC. Lines in flight beyond the super queue would let one core read 15 to 20 GB/s, while measured cores
//! read 10 to 13 (docs/memory.md). Not modelled either: the L1's prefetchers, which fetch from the L2, whose latency a
//! core hides without them (docs/memory.md).

use super::params::PrefetchParams;
use super::slots::Slots;
use units::Time;

/// Lines of a page.
const PAGE: u64 = 64;

/// A sequence of accesses within a page.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Last access.
    last: u64,
    /// Line up to which prefetches were issued; the last access before the first prefetch.
    ahead: u64,
    /// 1 upwards, -1 downwards, 0 while unknown.
    direction: i8,
}

/// A core's L2: super queue and prefetchers.
#[derive(Clone, Debug)]
pub(super) struct Prefetcher {
    params: PrefetchParams,
    /// Whether software has left it on.
    is_on: bool,
    pub(super) queue: Slots,
    streams: Vec<Stream>,
    /// Page of each stream.
    pages: Vec<u64>,
    /// Stream of the last access.
    recent: usize,
    /// Stream to be replaced next, round robin.
    next: usize,
}

/// Lines to prefetch, at most [`Ahead::MOST`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    lines: [u64; Self::MOST],
    count: usize,
}

impl Ahead {
    /// The streamer's maximum for one access, the first line of the next page, and one adjacent line.
    const MOST: usize = 10;

    fn push(&mut self, line: u64) {
        if self.count < Self::MOST {
            self.lines[self.count] = line;
            self.count += 1;
        }
    }

    pub(super) fn lines(&self) -> &[u64] {
        &self.lines[..self.count]
    }
}

impl Prefetcher {
    pub(super) fn new(params: &PrefetchParams) -> Self {
        let none = Stream { last: 0, ahead: 0, direction: 0 };
        Self {
            params: *params,
            is_on: true,
            queue: Slots::new(params.super_queue.into()),
            streams: vec![none; usize::from(params.streams)],
            pages: vec![u64::MAX; usize::from(params.streams)],
            recent: 0,
            next: 0,
        }
    }

    /// Switches both prefetchers on or off.
    pub(super) fn switch(&mut self, on: bool) {
        self.is_on = on;
    }

    /// The core accessed `line` in its L2 at `now`; `missed` if it missed. Returns the lines to prefetch.
    #[inline]
    pub(super) fn train(&mut self, now: Time, line: u64, missed: bool) -> Ahead {
        let mut ahead = Ahead::default();
        if !self.is_on {
            return ahead;
        }
        if missed && self.params.adjacent_line && self.queue.more_than(0, now) {
            ahead.push(line ^ 1);
        }
        let (page, at) = (line / PAGE, line % PAGE);
        if self.streams.is_empty() {
            return ahead;
        }
        if self.pages[self.recent] != page {
            let mut known = 0;
            while known < self.pages.len() && self.pages[known] != page {
                known += 1;
            }
            if known == self.pages.len() {
                self.recent = self.next;
                self.next = (self.next + 1) % self.pages.len();
                self.pages[self.recent] = page;
                self.streams[self.recent] = Stream { last: at, ahead: at, direction: 0 };
                return ahead;
            }
            self.recent = known;
        }
        self.follow(now, at, &mut ahead);
        ahead
    }

    /// Advances the stream of the last access to line `at` of its page.
    fn follow(&mut self, now: Time, at: u64, ahead: &mut Ahead) {
        let PrefetchParams { distance, degree, next_page, .. } = self.params;
        let (page, stream) = (self.pages[self.recent], &mut self.streams[self.recent]);
        let direction: i8 = match at.cmp(&stream.last) {
            core::cmp::Ordering::Equal => return,
            core::cmp::Ordering::Greater => 1,
            core::cmp::Ordering::Less => -1,
        };
        if direction != stream.direction {
            *stream = Stream { last: at, ahead: at, direction };
        }
        stream.last = at;
        for _ in 0..degree {
            // Accesses may have overtaken the prefetches.
            let from = match direction {
                1 => stream.ahead.max(at),
                _ => stream.ahead.min(at),
            };
            if from.abs_diff(at) >= u64::from(distance) || !self.queue.more_than(ahead.count, now) {
                break;
            }
            let Some(next) = from.checked_add_signed(direction.into()).filter(|&next| next < PAGE) else {
                if next_page && direction == 1 && stream.ahead < PAGE {
                    stream.ahead = PAGE;
                    ahead.push((page + 1) * PAGE);
                }
                break;
            };
            stream.ahead = next;
            ahead.push(page * PAGE + next);
        }
    }
}

/// Lines in flight to the caches of a socket: their state is set before they arrive.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    /// By the low bits of the line: the line, when it was requested, and when it arrives.
    places: Vec<(u64, Time, Time)>,
}

impl Arrivals {
    /// Several times the lines that a socket's cores have in flight.
    const PLACES: usize = 2048;

    pub(super) fn new() -> Self {
        Self { places: Vec::new() }
    }

    /// Records that `line` was requested at `asked` and arrives at `there`.
    #[inline]
    pub(super) fn note(&mut self, line: u64, asked: Time, there: Time) {
        if self.places.is_empty() {
            self.places = vec![(u64::MAX, Time::ZERO, Time::ZERO); Self::PLACES];
        }
        self.places[line as usize % Self::PLACES] = (line, asked, there);
    }

    /// When an access to `line` completes that started at `at` and would otherwise complete at `ready`.
    #[inline]
    pub(super) fn wait(&self, line: u64, at: Time, ready: Time) -> Time {
        match self.places.get(line as usize % Self::PLACES) {
            Some(&(which, asked, there)) if which == line && asked <= at => ready.max(there),
            _ => ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> PrefetchParams {
        PrefetchParams {
            super_queue: 16,
            streams: 4,
            distance: 20,
            degree: 2,
            adjacent_line: false,
            next_page: true,
        }
    }

    fn trained(prefetcher: &mut Prefetcher, lines: impl IntoIterator<Item = u64>) -> Vec<u64> {
        lines.into_iter().flat_map(|line| prefetcher.train(Time::ZERO, line, true).lines().to_vec()).collect()
    }

    #[test]
    fn a_stream_is_followed_in_either_direction_to_the_end_of_its_page() {
        let mut up = Prefetcher::new(&params());
        assert_eq!(trained(&mut up, [0]), [] as [u64; 0], "one access is no stream");
        assert_eq!(trained(&mut up, [1]), [2, 3]);
        let rest = trained(&mut up, 2..64);
        assert_eq!(rest, (4..65).collect::<Vec<_>>(), "each line once, and the first of the next page");
        let mut down = Prefetcher::new(&params());
        assert_eq!(trained(&mut down, [130, 129]), [128], "not beyond the page");
    }

    #[test]
    fn prefetches_stay_within_their_distance() {
        let mut prefetcher = Prefetcher::new(&PrefetchParams { degree: 8, ..params() });
        let mut farthest = 0;
        for line in 0..40u64 {
            farthest = farthest
                .max(prefetcher.train(Time::ZERO, line, true).lines().iter().copied().max().unwrap_or(0));
            assert!(farthest <= line + 20);
        }
        assert_eq!(farthest, 59);
    }

    #[test]
    fn prefetches_want_places_in_the_super_queue() {
        let mut prefetcher = Prefetcher::new(&PrefetchParams { degree: 8, ..params() });
        let later = Time::from_ps(1);
        (0..13).for_each(|_| prefetcher.queue.occupy(Time::ZERO, later));
        assert_eq!(trained(&mut prefetcher, [0, 1]), [2, 3, 4]);
        assert_eq!(
            prefetcher.train(later, 2, true).lines(),
            [5, 6, 7, 8, 9, 10, 11, 12],
            "none is passed over"
        );
    }

    #[test]
    fn more_streams_than_are_followed_push_each_other_out() {
        let mut prefetcher = Prefetcher::new(&params());
        let round = |prefetcher: &mut Prefetcher, pages: u64, line: u64| {
            trained(prefetcher, (0..pages).map(|page| page * 64 + line)).len()
        };
        round(&mut prefetcher, 4, 0);
        assert_eq!(round(&mut prefetcher, 4, 1), 8);
        let mut prefetcher = Prefetcher::new(&params());
        round(&mut prefetcher, 5, 0);
        assert_eq!(round(&mut prefetcher, 5, 1), 0);
    }

    #[test]
    fn the_adjacent_line_comes_with_a_miss() {
        let mut prefetcher = Prefetcher::new(&PrefetchParams { streams: 0, adjacent_line: true, ..params() });
        assert_eq!(prefetcher.train(Time::ZERO, 7, true).lines(), [6]);
        assert_eq!(prefetcher.train(Time::ZERO, 6, false).lines(), [] as [u64; 0]);
    }
}
