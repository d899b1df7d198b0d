//! A hierarchical timing wheel: a priority queue for keys in the near future.
//!
//! It has two wheels of buckets and an ordered map:
//!
//! - *near*: one bucket per [`TICK_PS`] for the next few microseconds. A bucket is a circular list in order of time,
//!   then of insertion; it rarely holds more than a few events.
//! - *far*: one bucket per turn of the near wheel. A bucket is a plain stack, sorted only when the
//!   near wheel reaches it (the *cascade*).
//! - *overflow*: events beyond the far wheel.
//!
//! The wheels need no sequence numbers to keep order. Both windows slide forward with time, so an event is only
//! inserted directly into an inner level after all events for the same instant that went to an outer level. A cascade
//! therefore inserts its events *before* equal ones, the latest first.
//!
//! Nodes live in a slab with a free list: nothing is allocated once the slab has reached its size, except in the
//! overflow map, which only holds timers that are milliseconds ahead.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use crate::Epoch;

/// log2 of a tick in picoseconds: a near bucket spans 1.024 ns.
const TICK_SHIFT: u32 = 10;
/// log2 of the number of buckets per wheel: the near wheel spans 4.2 us, the far wheel 17 ms.
const SLOT_BITS: u32 = 12;
const SLOTS: usize = 1 << SLOT_BITS;
const MASK: u64 = SLOTS as u64 - 1;
/// Buckets of a word of the bitmaps of occupied ones.
const WORD: u64 = 64;
/// No node: the bucket is empty.
const NIL: u32 = u32::MAX;

struct Node<T> {
    time: u64,
    next: u32,
    /// Ends with each use, so that a key of an earlier one is stale.
    epoch: Epoch,
    value: Option<T>,
}

impl<T> Node<T> {
    /// Makes this node, number `index`, the first free one.
    #[inline(always)]
    fn release(&mut self, free: &mut u32, index: u32) {
        self.epoch.end();
        self.next = core::mem::replace(free, index);
    }
}

/// Identifies a pending entry; stale once the entry has left the wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    node: u32,
    epoch: Epoch,
}

impl Default for Key {
    fn default() -> Self {
        Self { node: NIL, epoch: Epoch::default() }
    }
}

/// A priority queue of `T` by time in picoseconds, FIFO among equals.
pub(crate) struct Wheel<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    /// By bucket: the *last* node of a circular list.
    near: Box<[u32; SLOTS]>,
    near_occupied: Occupancy,
    /// By bucket: the top node of a stack.
    far: Box<[u32; SLOTS]>,
    far_occupied: Occupancy,
    /// By time; latest insertion first among equals.
    overflow: BTreeMap<(u64, Reverse<u64>), u32>,
    overflow_sequence: u64,
    /// First tick of the windows, a multiple of [`WORD`]; no pending event is earlier.
    base: u64,
    /// First tick of the earliest turn with events in `far` or `overflow`.
    cascade_at: u64,
}

fn empty_slots() -> Box<[u32; SLOTS]> {
    vec![NIL; SLOTS].into_boxed_slice().try_into().expect("as long as it was made")
}

impl<T> Wheel<T> {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NIL,
            near: empty_slots(),
            near_occupied: Occupancy::new(),
            far: empty_slots(),
            far_occupied: Occupancy::new(),
            overflow: BTreeMap::new(),
            overflow_sequence: 0,
            base: 0,
            cascade_at: u64::MAX,
        }
    }

    /// Number of entries, counted.
    pub(crate) fn len(&self) -> usize {
        self.nodes.iter().filter(|node| node.value.is_some()).count()
    }

    /// Adds `value` at `time`, which must not be before the last popped time.
    // Inlined, so that a value moves once: only the search for its place is a call.
    #[inline(always)]
    pub(crate) fn insert(&mut self, time: u64, value: T) -> Key {
        let (index, node) = self.place(time);
        // A free node holds no value; this says so to the compiler, which then does not look for one to drop.
        core::mem::forget(node.value.replace(value));
        Key { node: index, epoch: node.epoch }
    }

    /// A node without a value, linked in at `time`.
    #[inline(never)]
    fn place(&mut self, time: u64) -> (u32, &mut Node<T>) {
        let index = self.free;
        let tick = time >> TICK_SHIFT;
        debug_assert!(tick >= self.base, "time must not run backwards");
        let slot = (tick & MASK) as usize;
        // What is rare is a tail call, so that nothing has to be saved here.
        if index == NIL {
            return self.place_in_a_new_node(time);
        }
        if tick - self.base >= SLOTS as u64 || self.near[slot] != NIL {
            return self.place_among_others(time);
        }
        self.near[slot] = index;
        self.near_occupied.set(slot);
        let node = &mut self.nodes[index as usize];
        self.free = core::mem::replace(&mut node.next, index);
        node.time = time;
        (index, node)
    }

    /// [`place`](Self::place) while no node is free.
    #[cold]
    #[inline(never)]
    fn place_in_a_new_node(&mut self, time: u64) -> (u32, &mut Node<T>) {
        self.grow();
        self.place(time)
    }

    /// [`place`](Self::place) for a bucket that is not empty, or beyond the near wheel.
    #[inline(never)]
    fn place_among_others(&mut self, time: u64) -> (u32, &mut Node<T>) {
        let tick = time >> TICK_SHIFT;
        let is_near = tick - self.base < SLOTS as u64;
        let index = self.free;
        let node = &mut self.nodes[index as usize];
        self.free = node.next;
        node.time = time;
        if is_near {
            self.link_after_equals((tick & MASK) as usize, index, time);
        } else {
            self.insert_beyond(tick, time, index);
        }
        (index, &mut self.nodes[index as usize])
    }

    #[cold]
    fn insert_beyond(&mut self, tick: u64, time: u64, node: u32) {
        let turn = tick >> SLOT_BITS;
        if turn - (self.base >> SLOT_BITS) < SLOTS as u64 {
            let slot = (turn & MASK) as usize;
            self.nodes[node as usize].next = self.far[slot];
            self.far[slot] = node;
            self.far_occupied.set(slot);
        } else {
            self.overflow.insert((time, Reverse(self.overflow_sequence)), node);
            self.overflow_sequence += 1;
        }
        self.cascade_at = self.cascade_at.min(turn << SLOT_BITS);
    }

    /// Removes the first entry unless it is later than `limit`, and gives its time and its value, which has to be taken
    /// out. After `None` the caller must advance its clock to `limit` or later before the next insertion.
    // Called for each event: when inlined, the value moves straight from its node to the handler.
    #[inline(always)]
    pub(crate) fn pop_until(&mut self, limit: u64) -> Option<(u64, &mut Option<T>)> {
        loop {
            if let Some((slot, tick)) = self.first_near()
                && tick < self.cascade_at
            {
                let last = self.near[slot];
                if self.nodes[last as usize].next != last {
                    return self.pop_first_of_many(tick, last, limit);
                }
                let node = &mut self.nodes[last as usize];
                if node.time > limit {
                    return None;
                }
                self.near[slot] = NIL;
                self.near_occupied.clear(slot);
                self.base = tick & !(WORD - 1);
                node.release(&mut self.free, last);
                return Some((node.time, &mut node.value));
            }
            // Ticks have 54 bits, so there is no cascade here only if the wheel is empty.
            if self.cascade_at == u64::MAX || self.cascade_at << TICK_SHIFT > limit {
                return None;
            }
            self.cascade();
        }
    }

    /// [`pop_until`](Self::pop_until) for a near bucket with several nodes, of which `last` is the last.
    #[inline(never)]
    fn pop_first_of_many(&mut self, tick: u64, last: u32, limit: u64) -> Option<(u64, &mut Option<T>)> {
        let first = self.nodes[last as usize].next;
        let Node { time, next, .. } = self.nodes[first as usize];
        if time > limit {
            return None;
        }
        self.nodes[last as usize].next = next;
        self.base = tick & !(WORD - 1);
        let node = &mut self.nodes[first as usize];
        node.release(&mut self.free, first);
        Some((time, &mut node.value))
    }

    /// Time of the first entry.
    pub(crate) fn next_time(&self) -> Option<u64> {
        let near = self.first_near().map(|(slot, tick)| {
            let first = self.nodes[self.near[slot] as usize].next;
            (self.nodes[first as usize].time, tick)
        });
        if let Some((time, tick)) = near
            && tick < self.cascade_at
        {
            return Some(time);
        }
        let far = self.far_occupied.first_from(((self.base >> SLOT_BITS) & MASK) as usize).and_then(|slot| {
            let mut earliest: Option<u64> = None;
            let mut node = self.far[slot];
            while node != NIL {
                let time = self.nodes[node as usize].time;
                earliest = Some(earliest.map_or(time, |t| t.min(time)));
                node = self.nodes[node as usize].next;
            }
            earliest
        });
        let overflow = self.overflow.keys().next().map(|&(time, _)| time);
        [near.map(|(time, _)| time), far, overflow].into_iter().flatten().min()
    }

    /// Moves the windows forward to `time`; no pending entry may be earlier.
    pub(crate) fn advance_to(&mut self, time: u64) {
        let tick = time >> TICK_SHIFT;
        if tick >= self.cascade_at {
            self.cascade();
        }
        debug_assert!(tick < self.cascade_at && self.next_time().is_none_or(|next| next >= time));
        self.base = self.base.max(tick & !(WORD - 1));
    }

    /// Removes the entry of `key` if it is still pending.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let node = self.nodes.get(key.node as usize)?;
        if node.epoch != key.epoch || node.value.is_none() {
            return None;
        }
        let time = node.time;
        let tick = time >> TICK_SHIFT;
        // An entry stays at the level of its insertion until its turn is cascaded, so more than one level may have to
        // be searched.
        let found = (tick - self.base < SLOTS as u64 && self.unlink_near((tick & MASK) as usize, key.node))
            || self.unlink_far(tick >> SLOT_BITS, key.node)
            || self.unlink_overflow(time, key.node);
        debug_assert!(found, "a pending node is on one of the levels");
        let node = &mut self.nodes[key.node as usize];
        node.release(&mut self.free, key.node);
        node.value.take()
    }

    fn unlink_near(&mut self, slot: usize, wanted: u32) -> bool {
        let last = self.near[slot];
        if last == NIL {
            return false;
        }
        let mut previous = last;
        loop {
            let node = self.nodes[previous as usize].next;
            if node == wanted {
                break;
            }
            if node == last {
                return false;
            }
            previous = node;
        }
        if previous == wanted {
            self.near[slot] = NIL;
            self.near_occupied.clear(slot);
        } else {
            self.nodes[previous as usize].next = self.nodes[wanted as usize].next;
            if last == wanted {
                self.near[slot] = previous;
            }
        }
        true
    }

    fn unlink_far(&mut self, turn: u64, wanted: u32) -> bool {
        if turn - (self.base >> SLOT_BITS) >= SLOTS as u64 {
            return false;
        }
        let slot = (turn & MASK) as usize;
        let (mut previous, mut node) = (NIL, self.far[slot]);
        while node != wanted {
            if node == NIL {
                return false;
            }
            previous = node;
            node = self.nodes[node as usize].next;
        }
        let next = self.nodes[wanted as usize].next;
        if previous == NIL {
            self.far[slot] = next;
            if next == NIL {
                self.far_occupied.clear(slot);
            }
        } else {
            self.nodes[previous as usize].next = next;
        }
        self.find_cascade();
        true
    }

    fn unlink_overflow(&mut self, time: u64, wanted: u32) -> bool {
        let equals = (time, Reverse(u64::MAX))..=(time, Reverse(0));
        let Some(key) = self.overflow.range(equals).find(|&(_, &node)| node == wanted).map(|(&key, _)| key)
        else {
            return false;
        };
        self.overflow.remove(&key);
        self.find_cascade();
        true
    }

    /// Adds a free node.
    #[cold]
    fn grow(&mut self) {
        let index = u32::try_from(self.nodes.len())
            .ok()
            .filter(|&i| i != NIL)
            .expect("fewer than 2^32 pending events");
        self.nodes.push(Node { time: 0, next: NIL, epoch: Epoch::default(), value: None });
        self.free = index;
    }

    /// The first occupied near bucket and its tick.
    #[inline]
    fn first_near(&self) -> Option<(usize, u64)> {
        let start = (self.base & MASK) as usize;
        // Usually in the first word of the window, which starts with it.
        let bits = self.near_occupied.words[start / WORD as usize];
        if bits != 0 {
            let ahead = bits.trailing_zeros();
            return Some(((start + ahead as usize) & MASK as usize, self.base + u64::from(ahead)));
        }
        let slot = self.near_occupied.first_from(start)? & MASK as usize;
        Some((slot, self.base + (slot.wrapping_sub(start) as u64 & MASK)))
    }

    /// Links `node` behind entries of its bucket, which is not empty, due at or before its time.
    #[inline]
    fn link_after_equals(&mut self, slot: usize, node: u32, time: u64) {
        let last = self.near[slot];
        if self.nodes[last as usize].time <= time {
            self.link_behind(last, node);
            self.near[slot] = node;
        } else {
            self.link_among(last, node, time);
        }
    }

    /// Links `node` behind entries due at or before its time, in a bucket whose `last` node is due later.
    fn link_among(&mut self, last: u32, node: u32, time: u64) {
        let mut previous = last;
        loop {
            let next = self.nodes[previous as usize].next;
            if self.nodes[next as usize].time > time {
                break;
            }
            previous = next;
        }
        self.link_behind(previous, node);
    }

    /// Links `node` behind entries due strictly before its time.
    fn link_before_equals(&mut self, slot: usize, node: u32, time: u64) {
        let last = self.near[slot];
        if last == NIL {
            self.nodes[node as usize].next = node;
            self.near[slot] = node;
            self.near_occupied.set(slot);
        } else if self.nodes[last as usize].time < time {
            self.link_behind(last, node);
            self.near[slot] = node;
        } else {
            let mut previous = last;
            loop {
                let next = self.nodes[previous as usize].next;
                if self.nodes[next as usize].time >= time {
                    break;
                }
                previous = next;
            }
            self.link_behind(previous, node);
        }
    }

    #[inline]
    fn link_behind(&mut self, previous: u32, node: u32) {
        self.nodes[node as usize].next = self.nodes[previous as usize].next;
        self.nodes[previous as usize].next = node;
    }

    /// Moves the events of the turn at `cascade_at` into the near wheel.
    #[cold]
    fn cascade(&mut self) {
        // Nothing is pending before `cascade_at`, so the window may start there; it then holds the whole turn.
        self.base = self.cascade_at;
        let turn = self.base >> SLOT_BITS;
        let slot = (turn & MASK) as usize;
        let mut node = core::mem::replace(&mut self.far[slot], NIL);
        self.far_occupied.clear(slot);
        while node != NIL {
            let Node { time, next, .. } = self.nodes[node as usize];
            self.link_before_equals(((time >> TICK_SHIFT) & MASK) as usize, node, time);
            node = next;
        }
        while let Some(entry) = self.overflow.first_entry()
            && entry.key().0 >> (TICK_SHIFT + SLOT_BITS) == turn
        {
            let ((time, _), node) = entry.remove_entry();
            self.link_before_equals(((time >> TICK_SHIFT) & MASK) as usize, node, time);
        }
        self.find_cascade();
    }

    fn find_cascade(&mut self) {
        let turn = self.base >> SLOT_BITS;
        let far = self.far_occupied.first_from((turn & MASK) as usize).map_or(u64::MAX, |slot| {
            let ahead = (slot as u64).wrapping_sub(turn) & MASK;
            (turn + ahead) << SLOT_BITS
        });
        let overflow =
            self.overflow.keys().next().map_or(u64::MAX, |&(time, _)| (time >> TICK_SHIFT) & !MASK);
        self.cascade_at = far.min(overflow);
    }
}

/// Bitmap of occupied buckets, with a summary bit for each word.
struct Occupancy {
    words: [u64; SLOTS / WORD as usize],
    summary: u64,
}

impl Occupancy {
    fn new() -> Self {
        Self { words: [0; SLOTS / WORD as usize], summary: 0 }
    }

    #[inline]
    fn set(&mut self, slot: usize) {
        self.words[slot / 64] |= 1 << (slot % 64);
        self.summary |= 1 << (slot / 64);
    }

    #[inline]
    fn clear(&mut self, slot: usize) {
        let word = &mut self.words[slot / 64];
        *word &= !(1 << (slot % 64));
        if *word == 0 {
            self.summary &= !(1 << (slot / 64));
        }
    }

    /// First occupied bucket at or after `start`, wrapping around once.
    #[inline]
    fn first_from(&self, start: usize) -> Option<usize> {
        let word = start / 64;
        let bits = self.words[word] & (!0 << (start % 64));
        if bits != 0 {
            return Some(word * 64 + bits.trailing_zeros() as usize);
        }
        let behind = self.summary & (!0 << word << 1);
        let summary = if behind != 0 { behind } else { self.summary };
        if summary == 0 {
            return None;
        }
        let word = summary.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }
}
