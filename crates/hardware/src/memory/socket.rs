//! Caches of one socket: line states, without timing.
//!
//! Invariants after every operation (checked by [`Socket::check`]): a line that a private cache may write is in no
//! other private cache; a line is dirty in at most one place; an inclusive LLC contains every line of the private
//! caches; the directory (core-valid bits of an inclusive LLC, or the snoop filter) names at least the cores that have
//! a line.

use super::cache::{Probe, Slot, TagArray, Victim, flag};
use super::params::{EvictionNotice, SocketParams};
use super::presence::{CoreSet, Presence};
use super::private::{PrivateCaches, PrivateHit};
use super::regions::Regions;

/// Where a socket holds a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Its slot in the LLC, if it is there.
    pub(super) llc: Option<Slot>,
    /// Its slot in the directory, if cores may have it.
    pub(super) directory: Option<Slot>,
}

impl Held {
    /// Whether any cache of the socket has the line.
    pub(super) fn any(self) -> bool {
        self.llc.is_some() || self.directory.is_some()
    }
}

/// Lines evicted from the LLC during an operation.
#[derive(Clone, Debug, Default)]
struct Evicted {
    /// Number of evicted lines.
    lines: u64,
    /// Lines that have to be written back to DRAM.
    dirty: Vec<u64>,
}

/// The caches of one socket.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    llc: TagArray,
    filter: Option<TagArray>,
    /// By directory slot: the cores that may have the line.
    presence: Presence,
    /// Regions of the lines in LLC and directory.
    regions: Regions,
    cores: Vec<PrivateCaches>,
    notice: EvictionNotice,
    evicted: Evicted,
}

impl Socket {
    /// Whether it may have lines at all: CXL memory is a node without caches.
    pub(super) fn has_cores(&self) -> bool {
        !self.cores.is_empty()
    }

    pub(super) fn new(params: &SocketParams, seed: u64) -> Self {
        let llc = TagArray::new(&params.llc.geometry, seed);
        let filter = params.llc.snoop_filter.map(|filter| TagArray::new(&filter, seed ^ 1));
        Self {
            presence: Presence::new(params.cores),
            llc,
            filter,
            regions: Regions::default(),
            cores: (0..u64::from(params.cores))
                .map(|core| PrivateCaches::new(&params.private, seed, core))
                .collect(),
            notice: params.llc.eviction_notice,
            evicted: Evicted::default(),
        }
    }

    /// Empties all caches without write-back.
    pub(super) fn clear(&mut self) {
        self.llc.clear();
        self.regions.clear();
        if let Some(filter) = &mut self.filter {
            filter.clear();
        }
        self.cores.iter_mut().for_each(PrivateCaches::clear);
    }

    /// A core's access to its private caches: see [`PrivateCaches::access`].
    #[inline(always)]
    pub(super) fn access_private(&mut self, core: usize, line: u64) -> Result<PrivateHit, Probe> {
        self.cores[core].access(line)
    }

    /// Looks a line up in a core's L2.
    #[inline]
    pub(super) fn probe_l2(&self, core: usize, line: u64) -> Probe {
        self.cores[core].probe(line)
    }

    /// Fills a line from a core's L2 into its L1.
    pub(super) fn fill_l1(&mut self, core: usize, line: u64) {
        self.cores[core].fill_l1(line);
    }

    /// Looks a line up in the LLC and the directory.
    #[inline(always)]
    pub(super) fn look_up(&self, line: u64) -> (Probe, Held) {
        let probe = self.llc.probe(line);
        (probe, self.held_at(probe.slot(), line))
    }

    /// Records a use of the line that `probe` looked up, if the LLC has it.
    #[inline(always)]
    pub(super) fn used(&mut self, probe: Probe, held: Held) {
        if let Some(slot) = held.llc {
            self.llc.used_at(probe, slot);
        }
    }

    /// A use that changes only the LLC's replacement order.
    pub(super) fn touch(&mut self, line: u64) {
        if let Some(slot) = self.llc.find(line) {
            self.llc.used(slot);
        }
    }

    /// A device's write to the line at `slot` of the LLC, which `probe` looked up. The line also goes to memory unless
    /// it gets `dirty`.
    #[inline(always)]
    pub(super) fn overwrite(&mut self, probe: Probe, slot: Slot, dirty: bool) {
        let (set, clear) = if dirty { (flag::DIRTY, 0) } else { (0, flag::DIRTY) };
        self.llc.change(slot, flag::EXCLUSIVE | set, clear);
        self.llc.used_at(probe, slot);
    }

    /// All ways of the LLC.
    #[inline]
    pub(super) fn all_ways(&self) -> u32 {
        self.llc.all_ways()
    }

    /// Number of lines evicted from the LLC since the last call, and how many of them [have to be written
    /// back](Self::next_evicted); `None` if there are none.
    #[inline(always)]
    pub(super) fn count_evicted(&mut self) -> Option<(u64, u64)> {
        let lines = core::mem::take(&mut self.evicted.lines);
        (lines != 0).then_some((lines, self.evicted.dirty.len() as u64))
    }

    /// Takes a line evicted from the LLC that has to be written back.
    #[inline]
    pub(super) fn next_evicted(&mut self) -> Option<u64> {
        self.evicted.dirty.pop()
    }

    /// Where the socket holds the line.
    #[inline]
    pub(super) fn locate(&self, line: u64) -> Held {
        match self.regions.may_have(line) {
            true => self.held_at(self.llc.find(line), line),
            false => Held::default(),
        }
    }

    /// Reads the host memory that an access of a device or `core` to `line` will need beyond the core's own caches, and
    /// returns a value derived from it (see [`TagArray::warm`]).
    #[inline]
    pub(super) fn warm(&self, core: Option<usize>, line: u64) -> u32 {
        if core.is_some_and(|core| self.cores[core].have(line)) {
            return 0;
        }
        let (read, places) = self.llc.warm(line);
        let (more, places) = self.filter.as_ref().map_or((0, places), |filter| filter.warm(line));
        read ^ more ^ self.presence.warm(places)
    }

    /// Like [`locate`](Self::locate), after an LLC lookup.
    #[inline]
    pub(super) fn held_at(&self, llc: Option<Slot>, line: u64) -> Held {
        let directory = match &self.filter {
            None => llc.filter(|&slot| self.llc.flags(slot) & flag::PRIVATE != 0),
            Some(filter) if filter.occupied() > 0 => filter.find(line),
            Some(_) => None,
        };
        Held { llc, directory }
    }

    /// Where the socket holds the line that is at `slot` of a core's L2.
    #[inline]
    pub(super) fn held_by(&self, core: usize, slot: Slot, line: u64) -> Held {
        match self.filter {
            None => self.held_at(Some(self.cores[core].place(slot)), line),
            Some(_) => self.locate(line),
        }
    }

    /// Whether the LLC includes the private caches.
    pub(super) fn inclusive(&self) -> bool {
        self.filter.is_none()
    }

    #[inline]
    fn filter(&mut self) -> &mut TagArray {
        self.filter.as_mut().unwrap_or(&mut self.llc)
    }

    fn directory_flags(&self, held: Held) -> u32 {
        held.directory.map_or(0, |slot| self.filter.as_ref().unwrap_or(&self.llc).flags(slot))
    }

    /// Whether a core other than `but` owns the line according to the directory.
    #[inline]
    pub(super) fn owned(&self, held: Held, but: Option<usize>) -> bool {
        self.directory_flags(held) & flag::OWNED != 0 && self.others(held, but) != 0
    }

    /// The cores other than `but` that may have the line.
    #[inline]
    pub(super) fn others(&self, held: Held, but: Option<usize>) -> CoreSet {
        let mask = held.directory.map_or(0, |slot| self.presence.get(slot.index()));
        mask & !but.map_or(0, |core| 1 << core)
    }

    /// Whether no other socket has the line.
    #[inline]
    pub(super) fn exclusive(&self, held: Held) -> bool {
        let llc = held.llc.map_or(0, |slot| self.llc.flags(slot));
        (llc | self.directory_flags(held)) & flag::EXCLUSIVE != 0
    }

    /// Records whether other sockets may have the line.
    pub(super) fn set_exclusive(&mut self, held: Held, exclusive: bool) {
        let (set, clear) = if exclusive { (flag::EXCLUSIVE, 0) } else { (0, flag::EXCLUSIVE) };
        if let Some(slot) = held.llc {
            self.llc.change(slot, set, clear);
        }
        if let (Some(slot), Some(filter)) = (held.directory, &mut self.filter) {
            filter.change(slot, set, clear);
        }
    }

    /// Invalidates the line in all private caches except those of `but`. Returns whether it was dirty in one of them.
    pub(super) fn drop_private(&mut self, line: u64, held: Held, but: Option<usize>) -> bool {
        let Some(slot) = held.directory else { return false };
        let mut left = self.others(held, but);
        let mut dirty = false;
        while left != 0 {
            dirty |= self.cores[left.trailing_zeros() as usize].drop_line(line);
            left &= left - 1;
        }
        let kept = self.presence.get(slot.index()) & but.map_or(0, |core| 1 << core);
        self.set_presence(slot, kept);
        dirty
    }

    /// Invalidates the line in all caches of the socket. Returns whether it was dirty.
    pub(super) fn invalidate(&mut self, line: u64, held: Held) -> bool {
        let private = self.drop_private(line, held, None);
        let llc = held.llc.is_some_and(|slot| self.llc.remove(slot) & flag::DIRTY != 0);
        private || llc
    }

    /// Revokes write permission of all cores. Dirty data moves to the LLC.
    pub(super) fn downgrade(&mut self, line: u64, held: Held) -> Held {
        let Some(slot) = held.directory else { return held };
        let (mut left, mut dirty) = (self.presence.get(slot.index()), false);
        while left != 0 {
            dirty |= self.cores[left.trailing_zeros() as usize].downgrade(line);
            left &= left - 1;
        }
        self.filter().change(slot, 0, flag::OWNED);
        if !dirty {
            return held;
        }
        match held.llc {
            Some(llc) => {
                self.llc.change(llc, flag::DIRTY, 0);
                held
            }
            None => {
                let exclusive = self.directory_flags(held) & flag::EXCLUSIVE;
                let all = self.llc.all_ways();
                Held { llc: Some(self.insert(line, all, flag::DIRTY | exclusive)), ..held }
            }
        }
    }

    /// Whether the line is dirty in any cache of the socket.
    pub(super) fn dirty(&self, line: u64, held: Held) -> bool {
        if held.llc.is_some_and(|slot| self.llc.flags(slot) & flag::DIRTY != 0) {
            return true;
        }
        let mut left = self.others(held, None);
        while left != 0 {
            if self.cores[left.trailing_zeros() as usize].is_dirty(line) {
                return true;
            }
            left &= left - 1;
        }
        false
    }

    /// Marks the line clean in the LLC, as it is being written back.
    pub(super) fn cleaned(&mut self, held: Held) {
        if let Some(slot) = held.llc {
            self.llc.change(slot, 0, flag::DIRTY);
        }
    }

    /// Inserts an absent line into one of the `allowed` ways of the LLC.
    pub(super) fn insert(&mut self, line: u64, allowed: u32, flags: u32) -> Slot {
        self.insert_at(line, self.llc.probe(line), allowed, flags)
    }

    /// Like [`insert`](Self::insert), after an LLC lookup.
    pub(super) fn insert_at(&mut self, line: u64, probe: Probe, allowed: u32, flags: u32) -> Slot {
        self.regions.enters(line);
        let (slot, victim) = self.llc.insert(probe, allowed, flags);
        if let Some(victim) = victim {
            self.evicted.lines += 1;
            let mut dirty = victim.flags & flag::DIRTY != 0;
            // An inclusive LLC back-invalidates the private copies.
            if victim.flags & flag::PRIVATE != 0 {
                let mut left = self.presence.replace(victim.slot.index(), 0);
                while left != 0 {
                    dirty |= self.cores[left.trailing_zeros() as usize].drop_line(victim.line);
                    left &= left - 1;
                }
            }
            if dirty {
                self.evicted.dirty.push(victim.line);
            }
        }
        slot
    }

    /// Fills an absent line into a core's L2.
    ///
    /// `exclusive`: no other cache of the host has the line, so the core may write it; `dirty`: the core writes it now.
    /// `absent` is the result of the L2 lookup.
    pub(super) fn fill(
        &mut self,
        core: usize,
        line: u64,
        absent: Probe,
        held: Held,
        exclusive: bool,
        dirty: bool,
    ) {
        let mut state = if exclusive { flag::EXCLUSIVE } else { 0 } | if dirty { flag::DIRTY } else { 0 };
        let owned = if exclusive { flag::OWNED } else { 0 };
        match (&self.filter, held.llc) {
            (None, llc) => {
                let slot = llc.expect("an inclusive LLC is filled first");
                let is_private = self.llc.flags(slot) & flag::PRIVATE != 0;
                let before = if is_private { self.presence.get(slot.index()) } else { 0 };
                self.presence.replace(slot.index(), before | 1 << core);
                // The core's dirty copy makes that of the LLC stale.
                let clear = if dirty { flag::DIRTY } else { 0 };
                self.llc.change(slot, flag::PRIVATE | owned, clear | (flag::OWNED & !owned));
            }
            (Some(_), llc) => {
                if let Some(slot) = llc.filter(|_| exclusive) {
                    // The line moves up and stays dirty.
                    state |= self.llc.remove(slot) & flag::DIRTY;
                }
                let socket_exclusive = exclusive || self.exclusive(held);
                self.track(core, line, owned | if socket_exclusive { flag::EXCLUSIVE } else { 0 });
            }
        }
        let place = held.llc.unwrap_or_default();
        if let Some((victim, place)) = self.cores[core].fill(absent, state, place) {
            self.evicted_from_l2(core, victim, place);
        }
    }

    /// Grants write permission to the core that has the line at `slot` of its L2, and marks it dirty.
    pub(super) fn own(&mut self, core: usize, slot: Slot, held: Held) {
        self.cores[core].own(slot);
        if let Some(slot) = held.llc {
            if self.filter.is_some() {
                self.llc.remove(slot);
            } else {
                self.llc.change(slot, 0, flag::DIRTY);
            }
        }
        if let Some(slot) = held.directory {
            self.filter().change(slot, flag::OWNED, 0);
        }
    }

    /// Records in the snoop filter that a core has a line.
    fn track(&mut self, core: usize, line: u64, flags: u32) {
        let filter = self.filter.as_mut().expect("only with a snoop filter");
        let probe = filter.probe(line);
        if let Some(slot) = probe.slot() {
            filter.change(slot, flags, flag::OWNED & !flags);
            filter.used_at(probe, slot);
            self.presence.replace(slot.index(), self.presence.get(slot.index()) | 1 << core);
            return;
        }
        self.regions.enters(line);
        let all = filter.all_ways();
        let (slot, victim) = filter.insert(probe, all, flags);
        let before = self.presence.replace(slot.index(), 1 << core);
        let Some(victim) = victim else { return };
        // A line that the filter no longer tracks must leave the private caches.
        let (mut left, mut dirty) = (before, false);
        while left != 0 {
            dirty |= self.cores[left.trailing_zeros() as usize].drop_line(victim.line);
            left &= left - 1;
        }
        if dirty {
            let all = self.llc.all_ways();
            self.insert(victim.line, all, flag::DIRTY | (victim.flags & flag::EXCLUSIVE));
        }
    }

    /// Handles a line evicted from a core's L2; `place` is its slot in an inclusive LLC.
    fn evicted_from_l2(&mut self, core: usize, victim: Victim, place: Slot) {
        let dirty = victim.flags & flag::DIRTY;
        if self.filter.is_none() {
            debug_assert_eq!(self.llc.find(victim.line), Some(place), "the LLC includes the L2");
            if dirty != 0 {
                self.llc.change(place, dirty, 0);
            }
            let told = match self.notice {
                EvictionNotice::Silent => false,
                EvictionNotice::Dirty => dirty != 0,
                EvictionNotice::Always => true,
            };
            if told {
                self.set_presence(place, self.presence.get(place.index()) & !(1 << core));
            }
            return;
        }
        let held = self.locate(victim.line);
        let Some(slot) = held.directory else {
            debug_assert!(false, "the directory has lost a private line");
            return;
        };
        let rest = self.presence.get(slot.index()) & !(1 << core);
        let exclusive = self.directory_flags(held) & flag::EXCLUSIVE;
        self.set_presence(slot, rest);
        if rest == 0 && held.llc.is_none() {
            let all = self.llc.all_ways();
            self.insert(victim.line, all, dirty | exclusive);
        }
    }

    /// Sets the cores that may have a line; none removes its entry.
    fn set_presence(&mut self, slot: Slot, cores: CoreSet) {
        self.presence.replace(slot.index(), cores);
        if cores == 0 {
            match &mut self.filter {
                Some(filter) => {
                    filter.remove(slot);
                }
                None => self.llc.change(slot, 0, flag::PRIVATE | flag::OWNED),
            }
        }
    }

    #[cfg(test)]
    pub(super) fn llc(&self) -> &TagArray {
        &self.llc
    }

    /// Lines that no other socket has according to this one, for checks.
    pub(super) fn exclusive_lines(&self) -> Vec<u64> {
        let filter = self.filter.iter().flat_map(|f| f.lines());
        self.llc.lines().chain(filter).filter(|l| l.2 & flag::EXCLUSIVE != 0).map(|l| l.0).collect()
    }

    /// Lines that are dirty anywhere in the socket, one entry for each copy, for checks.
    pub(super) fn dirty_lines(&self) -> Vec<u64> {
        let private = self.cores.iter().flat_map(PrivateCaches::lines);
        let shared = self.llc.lines().map(|(line, _, flags)| (line, flags));
        let mut lines: Vec<u64> =
            shared.chain(private).filter(|l| l.1 & flag::DIRTY != 0).map(|l| l.0).collect();
        lines.sort_unstable();
        lines
    }

    /// Checks the invariants at the top of this file.
    ///
    /// # Errors
    /// Names the first line that violates one, and how.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(pair) = self.dirty_lines().windows(2).find(|p| p[0] == p[1]) {
            return Err(format!("line {:#x} is dirty in two places", pair[0]));
        }
        for (core, caches) in self.cores.iter().enumerate() {
            if let Some(line) = caches.not_included() {
                return Err(format!("line {line:#x} is in core {core}'s L1 but not in its L2"));
            }
            for (line, flags) in caches.lines() {
                let held = self.locate(line);
                let rule = if flags & flag::DIRTY != 0 && flags & flag::EXCLUSIVE == 0 {
                    "is dirty without the right to write"
                } else if self.filter.is_none() && held.llc.is_none() {
                    "is missing from the inclusive LLC"
                } else if self.others(held, None) & (1 << core) == 0 {
                    "is not in the directory"
                } else if flags & flag::EXCLUSIVE != 0 && !self.exclusive(held) {
                    "may be written, yet another socket may have it"
                } else if flags & flag::EXCLUSIVE != 0 && self.directory_flags(held) & flag::OWNED == 0 {
                    "may be written without the directory's knowledge"
                } else if flags & flag::EXCLUSIVE != 0
                    && self.cores.iter().filter(|c| c.have(line)).count() > 1
                {
                    "may be written while another core has it"
                } else {
                    continue;
                };
                return Err(format!("line {line:#x} of core {core} {rule}"));
            }
        }
        Ok(())
    }
}
