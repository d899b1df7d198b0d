//! Which cores may have the lines of a directory.

use std::ops::Range;

/// For each place in a directory a set of cores, as narrow as the socket's cores allow: it is read at every place of the
/// LLC, and the machine that runs this has caches, too.
#[derive(Clone, Debug)]
pub(super) enum Presence {
    /// Up to 16 cores.
    Few(Vec<u16>),
    /// Up to 64.
    Many(Vec<u64>),
}

impl Presence {
    /// No core anywhere.
    pub(super) fn new(cores: u16) -> Self {
        if cores <= 16 { Self::Few(Vec::new()) } else { Self::Many(Vec::new()) }
    }

    /// The cores of a place, one bit for each.
    #[inline]
    pub(super) fn get(&self, place: usize) -> u64 {
        match self {
            Self::Few(sets) => sets.get(place).copied().unwrap_or(0).into(),
            Self::Many(sets) => sets.get(place).copied().unwrap_or(0),
        }
    }

    /// Reads both ends of `places`, and returns something of them.
    #[inline]
    pub(super) fn warm(&self, places: Range<usize>) -> u32 {
        (self.get(places.start) ^ self.get(places.end - 1)) as u32
    }

    /// Changes the cores of a place, and returns those before.
    #[inline]
    pub(super) fn replace(&mut self, place: usize, cores: u64) -> u64 {
        match self {
            Self::Few(sets) => core::mem::replace(at(sets, place), cores as u16).into(),
            Self::Many(sets) => core::mem::replace(at(sets, place), cores),
        }
    }
}

/// An item of a list that is as long as its last item that was wanted.
#[inline]
pub(super) fn at<T: Copy + Default>(list: &mut Vec<T>, place: usize) -> &mut T {
    if place >= list.len() {
        lengthen(list, place);
    }
    &mut list[place]
}

#[cold]
fn lengthen<T: Copy + Default>(list: &mut Vec<T>, place: usize) {
    if place >= list.capacity() {
        list.reserve_exact((place + 1 - list.len()).max(list.len() / 8));
    }
    list.resize(place + 1, T::default());
}
