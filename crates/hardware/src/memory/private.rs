//! Private caches of one core: line states, without timing.

use super::cache::{Probe, Slot, TagArray, Victim, flag};
use super::params::PrivateParams;
use crate::growth;

/// L1 and L2 of one core. The L2 includes the L1 and holds the state of both.
#[derive(Clone, Debug)]
pub(super) struct PrivateCaches {
    l1: TagArray,
    l2: TagArray,
    /// By L2 slot: the line's slot in an inclusive LLC, which is fixed while the L2 has the line.
    places: Vec<Slot>,
}

/// A line present in a core's L2.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrivateHit {
    pub(super) slot: Slot,
    /// Whether the L1 hit, so that the L2 was not looked up.
    pub(super) first: bool,
    flags: u32,
}

impl PrivateHit {
    /// Whether the core may write the line.
    pub(super) fn is_exclusive(self) -> bool {
        self.flags & flag::EXCLUSIVE != 0
    }

    /// Whether the core has written the line.
    pub(super) fn is_dirty(self) -> bool {
        self.flags & flag::DIRTY != 0
    }
}

impl PrivateCaches {
    /// Empty caches of core number `core` of a socket.
    pub(super) fn new(params: &PrivateParams, seed: u64, core: u64) -> Self {
        Self {
            l1: TagArray::new(&params.l1, seed ^ (core << 8 | 2)),
            l2: TagArray::new(&params.l2, seed ^ (core << 8 | 3)),
            places: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.l1.clear();
        self.l2.clear();
    }

    /// An access of the core: the line's use is recorded, and an L2 hit is filled into the L1. Returns the hit, or the
    /// result of the L2 lookup.
    #[inline(always)]
    pub(super) fn access(&mut self, line: u64) -> Result<PrivateHit, Probe> {
        let l2 = self.l2.probe(line);
        let Some(slot) = l2.slot() else { return Err(l2) };
        let flags = self.l2.flags(slot);
        let l1 = self.l1.probe(line);
        let first = match l1.slot() {
            Some(first) => {
                self.l1.used_at(l1, first);
                true
            }
            None => {
                self.l2.used_at(l2, slot);
                self.fill_l1(line);
                false
            }
        };
        Ok(PrivateHit { slot, first, flags })
    }

    /// Looks a line up in the L2.
    #[inline]
    pub(super) fn probe(&self, line: u64) -> Probe {
        self.l2.probe(line)
    }

    /// Whether the caches have the line.
    #[inline]
    pub(super) fn have(&self, line: u64) -> bool {
        self.l2.find(line).is_some()
    }

    /// Whether the line is there and dirty.
    pub(super) fn is_dirty(&self, line: u64) -> bool {
        self.l2.find(line).is_some_and(|slot| self.l2.flags(slot) & flag::DIRTY != 0)
    }

    /// The slot in an inclusive LLC of the line at `slot`.
    #[inline]
    pub(super) fn place(&self, slot: Slot) -> Slot {
        self.places[slot.index()]
    }

    /// Fills a line that `absent` did not find into the L2; `place` is its slot in an inclusive LLC. Returns the line
    /// that has left the caches for it, and that one's slot in an inclusive LLC.
    #[inline]
    pub(super) fn fill(&mut self, absent: Probe, state: u32, place: Slot) -> Option<(Victim, Slot)> {
        let all = self.l2.all_ways();
        let (slot, victim) = self.l2.insert(absent, all, state);
        let before = core::mem::replace(growth::at(&mut self.places, slot.index()), place);
        let victim = victim?;
        if let Some(slot) = self.l1.find(victim.line) {
            self.l1.remove(slot);
        }
        Some((victim, before))
    }

    /// Fills a line from the L2 into the L1.
    pub(super) fn fill_l1(&mut self, line: u64) {
        let probe = self.l1.probe(line);
        if probe.slot().is_none() {
            let all = self.l1.all_ways();
            self.l1.insert(probe, all, 0);
        }
    }

    /// Grants write permission for the line at `slot`, and marks it dirty.
    pub(super) fn own(&mut self, slot: Slot) {
        self.l2.change(slot, flag::EXCLUSIVE | flag::DIRTY, 0);
    }

    /// Revokes write permission. Returns whether the line was dirty.
    pub(super) fn downgrade(&mut self, line: u64) -> bool {
        let Some(slot) = self.l2.find(line) else { return false };
        let dirty = self.l2.flags(slot) & flag::DIRTY != 0;
        self.l2.change(slot, 0, flag::EXCLUSIVE | flag::DIRTY);
        dirty
    }

    /// Removes a line. Returns whether it was dirty.
    pub(super) fn drop_line(&mut self, line: u64) -> bool {
        if let Some(slot) = self.l1.find(line) {
            self.l1.remove(slot);
        }
        self.l2.find(line).is_some_and(|slot| self.l2.remove(slot) & flag::DIRTY != 0)
    }

    /// All lines with state bits, for checks.
    pub(super) fn lines(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.l2.lines().map(|(line, _, flags)| (line, flags))
    }

    /// A line of the L1 that the L2 does not have, for checks.
    pub(super) fn not_included(&self) -> Option<u64> {
        self.l1.lines().map(|l| l.0).find(|&line| !self.have(line))
    }
}
