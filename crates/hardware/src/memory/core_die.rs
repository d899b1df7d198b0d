//! Links between dies of cores and the die with the memory controllers.
//!
//! Lines that the cores of a die have missed arrive by it, and lines that they store past their caches or that are
//! written back on their account leave by it.

use super::LINE;
use super::params::CoreDieParams;
use super::slots::Slots;
use super::turns::Turns;
use units::{Bytes, Duration, Time};

/// The links of a socket's dies.
#[derive(Debug)]
pub(super) struct CoreDies {
    cores: usize,
    read: Duration,
    write: Duration,
    /// How long the last line that the queue holds may have to wait.
    backlog: Duration,
    /// By die: lines to the cores, and from them.
    links: Vec<[Turns; 2]>,
    /// By die: lines that its cores have requested.
    in_hand: Vec<Slots>,
}

impl CoreDies {
    pub(super) fn new(params: &CoreDieParams, cores: u16) -> Self {
        let dies = usize::from(cores.div_ceil(params.cores));
        let write = params.writes.time_for(Bytes::new(LINE));
        Self {
            cores: params.cores.into(),
            read: params.reads.time_for(Bytes::new(LINE)),
            write,
            backlog: write * u64::from(params.write_queue),
            links: (0..dies).map(|_| <[Turns; 2]>::default()).collect(),
            in_hand: vec![Slots::new(params.reads_in_hand.into()); dies],
        }
    }

    /// When a line that core `local` asks for at `at` can be requested.
    #[inline]
    pub(super) fn request(&self, local: usize, at: Time) -> Time {
        self.in_hand[local / self.cores].free_at(at)
    }

    /// A line for core `local`, requested at `asked`, that arrives at the die's link at `at`. Returns when it is at the core.
    #[inline]
    pub(super) fn read(&mut self, local: usize, asked: Time, at: Time) -> Time {
        let die = local / self.cores;
        let begins = self.links[die][0].reserve(at, self.read);
        self.in_hand[die].occupy(asked, begins);
        begins
    }

    /// A line from core `local` that has to leave at `at`. Returns when the link's queue has accepted it.
    #[inline]
    pub(super) fn write(&mut self, local: usize, at: Time) -> Time {
        let begins = self.links[local / self.cores][1].reserve(at, self.write);
        at + begins.since(at).saturating_sub(self.backlog)
    }

    /// Busy times of each die's link up to `now`: to the cores, and from them.
    pub(super) fn busy(&self, now: Time) -> impl Iterator<Item = [Duration; 2]> + '_ {
        self.links.iter().map(move |link| [link[0].busy(now), link[1].busy(now)])
    }

    /// Discards state that only matters before `now`.
    pub(super) fn pass(&mut self, now: Time) {
        self.links.iter_mut().flatten().for_each(|way| way.pass(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::ByteRate;

    #[test]
    fn cores_of_a_die_share_its_link_and_others_do_not() {
        let rate = |gb_per_s: u64| ByteRate::from_bytes_per_s(gb_per_s * 1_000_000_000);
        let params =
            CoreDieParams { cores: 2, reads: rate(64), writes: rate(32), write_queue: 2, reads_in_hand: 4 };
        let mut dies = CoreDies::new(&params, 4);
        let at = |ns: u64| Time::from_ps(ns * 1000);
        assert_eq!([0, 1, 0, 2].map(|core| dies.read(core, at(5), at(10))), [at(10), at(11), at(12), at(10)]);
        assert_eq!([0, 1, 1, 0].map(|core| dies.write(core, at(10))), [at(10), at(10), at(10), at(12)]);
        assert_eq!([0, 2].map(|core| dies.request(core, at(6))), [at(6); 2]);
        dies.read(1, at(5), at(10));
        assert_eq!([0, 2].map(|core| dies.request(core, at(6))), [at(10), at(6)], "four lines in hand");
        let busy: Vec<_> = dies.busy(at(20)).collect();
        assert_eq!(busy[0], [Duration::from_ns(4), Duration::from_ns(8)]);
        assert_eq!(busy[1], [Duration::from_ns(1), Duration::ZERO]);
    }
}
