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
}

impl Presence {
    /// Creates a table without cores.
    pub(super) fn new(cores: u16) -> Self {
        if cores <= 16 { Self::Few(Vec::new()) } else { Self::Many(Vec::new()) }
    }

    /// Cores of a place, as a bit mask.
    #[inline]
    pub(super) fn get(&self, place: usize) -> u64 {
        match self {
            Self::Few(sets) => sets.get(place).copied().unwrap_or(0).into(),
            Self::Many(sets) => sets.get(place).copied().unwrap_or(0),
        }
    }

    /// Reads both ends of `places`, and returns a value derived from them.
    #[inline]
    pub(super) fn warm(&self, places: Range<usize>) -> u32 {
        (self.get(places.start) ^ self.get(places.end - 1)) as u32
    }

    /// Replaces the cores of a place. Returns the previous ones.
    #[inline]
    pub(super) fn replace(&mut self, place: usize, cores: u64) -> u64 {
        match self {
            Self::Few(sets) => core::mem::replace(at(sets, place), cores as u16).into(),
            Self::Many(sets) => core::mem::replace(at(sets, place), cores),
        }
    }
}
