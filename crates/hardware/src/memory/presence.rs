//! Cores that may have the lines of a directory.

use std::ops::Range;

use crate::growth::at;

/// A set of cores for each place of a directory. It is as narrow as the number of cores allows, since every LLC lookup
/// reads it and it should fit into real caches.
#[derive(Clone, Debug)]
pub(super) enum Presence {
    /// Up to 16 cores.
    Few(Vec<u16>),
    /// Up to 64 cores.
    Many(Vec<u64>),
    /// Up to 128 cores.
    Most(Vec<CoreSet>),
}

/// A set of cores of a socket, as a bit mask.
pub(super) type CoreSet = u128;

impl Presence {
    /// Creates a table without cores.
    pub(super) fn new(cores: u16) -> Self {
        match cores {
            0..=16 => Self::Few(Vec::new()),
            17..=64 => Self::Many(Vec::new()),
            _ => Self::Most(Vec::new()),
        }
    }

    /// Cores of a place.
    #[inline]
    pub(super) fn get(&self, place: usize) -> CoreSet {
        match self {
            Self::Few(sets) => sets.get(place).copied().unwrap_or(0).into(),
            Self::Many(sets) => sets.get(place).copied().unwrap_or(0).into(),
            Self::Most(sets) => sets.get(place).copied().unwrap_or(0),
        }
    }

    /// Reads both ends of `places`, and returns a value derived from them.
    #[inline]
    pub(super) fn warm(&self, places: Range<usize>) -> u32 {
        (self.get(places.start) ^ self.get(places.end - 1)) as u32
    }

    /// Replaces the cores of a place. Returns the previous ones.
    #[inline]
    pub(super) fn replace(&mut self, place: usize, cores: CoreSet) -> CoreSet {
        match self {
            Self::Few(sets) => core::mem::replace(at(sets, place), cores as u16).into(),
            Self::Many(sets) => core::mem::replace(at(sets, place), cores as u64).into(),
            Self::Most(sets) => core::mem::replace(at(sets, place), cores),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_of_a_socket_has_a_place() {
        for cores in [1, 16, 17, 64, 65, 72, 128] {
            let mut presence = Presence::new(cores);
            let last: CoreSet = 1 << (cores - 1);
            assert_eq!(presence.replace(3, last | 1), 0, "{cores} cores");
            assert_eq!(
                (presence.get(3), presence.get(2), presence.get(9)),
                (last | 1, 0, 0),
                "{cores} cores"
            );
            assert_eq!(presence.replace(3, 0), last | 1);
        }
    }
}
