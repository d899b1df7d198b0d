//! Line fill buffers, as seen by a core that runs ahead of the clock.

use units::Time;

/// Maximum number of buffers: the limit of a machine file.
pub(super) const MOST: usize = 32;

/// When each of a core's fill buffers is available. Buffers that are combining stores are excluded.
#[derive(Clone, Debug)]
pub struct FillBuffers {
    free: [Time; MOST],
    /// Start of the last line fetched by each, if any.
    began: [Option<Time>; MOST],
    size: usize,
    /// The buffer that becomes free first.
    first: usize,
}

impl FillBuffers {
    /// One buffer for each time at which it is free, but at least one.
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

    /// When another line can be fetched.
    #[inline]
    pub fn free_at(&self) -> Time {
        self.free[self.first]
    }

    /// Number of buffers free at a time.
    pub fn free_by(&self, when: Time) -> usize {
        self.free[..self.size].iter().filter(|&&free| free <= when).count()
    }

    /// Fetches a line from `begin` to `end` with the buffer that becomes free first.
    #[inline]
    pub fn fetch(&mut self, begin: Time, end: Time) {
        self.free[self.first] = end;
        self.began[self.first] = Some(begin);
        self.find_first();
    }

    /// The last fetch of each buffer: start and end.
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
