//! The buffers for the lines that a core fetches, as a core that runs ahead of the clock sees them.

use units::Time;

/// Buffers that are kept track of: as many as a machine file may give a core.
pub(super) const MOST: usize = 32;

/// When each of a core's fill buffers can take a line. Those that combine stores are not among them.
#[derive(Clone, Debug)]
pub struct FillBuffers {
    free: [Time; MOST],
    /// When the last line of each began, if it was fetched here.
    began: [Option<Time>; MOST],
    size: usize,
    /// The one that is free first.
    first: usize,
}

impl FillBuffers {
    /// As many buffers as there are times, and no fewer than one, which are free then.
    pub(super) fn new(times: impl IntoIterator<Item = Time>) -> Self {
        let mut new = Self { free: [Time::ZERO; MOST], began: [None; MOST], size: 0, first: 0 };
        for (free, time) in new.free.iter_mut().zip(times) {
            *free = time;
            new.size += 1;
        }
        new.size = new.size.max(1);
        new.find_first();
        new
    }

    fn find_first(&mut self) {
        self.first = (0..self.size).min_by_key(|&n| self.free[n]).unwrap_or(0);
    }

    /// From when on another line can be fetched.
    #[inline]
    pub fn free_at(&self) -> Time {
        self.free[self.first]
    }

    /// How many are free at a time.
    pub fn free_by(&self, when: Time) -> usize {
        self.free[..self.size].iter().filter(|&&free| free <= when).count()
    }

    /// The buffer that is free first fetches a line from `begin` until `end`.
    #[inline]
    pub fn fetch(&mut self, begin: Time, end: Time) {
        self.free[self.first] = end;
        self.began[self.first] = Some(begin);
        self.find_first();
    }

    /// The last line that each has fetched: from when until when.
    pub fn fetched(&self) -> impl Iterator<Item = (Time, Time)> + '_ {
        let both = self.began.iter().zip(&self.free).take(self.size);
        both.filter_map(|(began, &end)| began.map(|began| (began, end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_that_is_free_first_is_next() {
        let at = |ns: u64| Time::from_ps(ns * 1000);
        let mut buffers = FillBuffers::new([at(30), at(10), at(20)]);
        assert_eq!((buffers.free_at(), buffers.free_by(at(20))), (at(10), 2));
        buffers.fetch(at(10), at(90));
        buffers.fetch(at(20), at(25));
        assert_eq!(buffers.free_at(), at(25));
        assert_eq!(buffers.fetched().collect::<Vec<_>>(), [(at(10), at(90)), (at(20), at(25))]);
        assert_eq!(FillBuffers::new([]).free_at(), Time::ZERO, "there is always one");
    }
}
