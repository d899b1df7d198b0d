//! Records that are found by number, and queues through them: TLPs in flight, a port's reads and tags; free tags, reads
//! to be requested, TLPs planned by a direction of a link.

use std::ops::{Index, IndexMut};

use crate::growth::make_room;

/// Instead of a number: none.
const NONE: u32 = u32::MAX;

struct Place<T> {
    record: T,
    /// The next record of the queue that this one is in.
    next: u32,
}

/// Records in places that are reused, with the buffers that they own. Each is in at most one [`Queue`] at a time, which
/// therefore needs no memory of its own.
pub(crate) struct Table<T> {
    places: Vec<Place<T>>,
    /// The first free place; the others are linked behind it.
    free: u32,
}

/// Records of a [`Table`], first in, first out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    first: u32,
    last: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl Queue {
    /// Whether it holds no records.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Its first record.
    #[inline(always)]
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: NONE }
    }
}

impl<T> Table<T> {
    /// Number of places.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Adds a place, which is not free. Returns its number.
    pub fn add(&mut self, record: T) -> u32 {
        make_room(&mut self.places, 1);
        self.places.push(Place { record, next: NONE });
        self.places.len() as u32 - 1
    }

    /// Takes a free place; its record is as it was. `None` if there is none.
    #[inline(always)]
    pub fn take(&mut self) -> Option<u32> {
        let number = self.free;
        if number == NONE {
            return None;
        }
        self.free = self.places[number as usize].next;
        Some(number)
    }

    /// Frees a place.
    #[inline(always)]
    pub fn free(&mut self, number: u32) {
        self.places[number as usize].next = self.free;
        self.free = number;
    }

    /// Number of places in use, counted.
    pub fn in_use(&self) -> usize {
        self.len() - self.from(self.free).count()
    }

    /// A record; `None` if there is no such number.
    #[inline(always)]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize).map(|place| &mut place.record)
    }

    /// Two different records.
    pub fn pair_mut(&mut self, one: u32, other: u32) -> Option<[&mut T; 2]> {
        let places = self.places.get_disjoint_mut([one as usize, other as usize]).ok()?;
        Some(places.map(|place| &mut place.record))
    }

    /// All records by number, free ones included.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(self.places.iter_mut().map(|place| &mut place.record))
    }

    /// Appends a record to a queue. It must be in no other.
    #[inline(always)]
    pub fn append(&mut self, queue: &mut Queue, number: u32) {
        self.places[number as usize].next = NONE;
        if queue.first == NONE {
            queue.first = number;
        } else {
            self.places[queue.last as usize].next = number;
        }
        queue.last = number;
    }

    /// Takes the first record from a queue.
    #[inline(always)]
    pub fn pop(&mut self, queue: &mut Queue) -> Option<u32> {
        let first = queue.first()?;
        queue.first = self.places[first as usize].next;
        Some(first)
    }

    /// Takes a record from a queue, wherever it is there. Returns whether it was.
    pub fn remove(&mut self, queue: &mut Queue, number: u32) -> bool {
        let all: Vec<u32> = self.queued(queue).collect();
        *queue = Queue::default();
        all.iter().filter(|&&other| other != number).for_each(|&other| self.append(queue, other));
        all.contains(&number)
    }

    /// The records of a queue.
    pub fn queued(&self, queue: &Queue) -> impl Iterator<Item = u32> {
        self.from(queue.first)
    }

    fn from(&self, first: u32) -> impl Iterator<Item = u32> {
        let some = |number: u32| (number != NONE).then_some(number);
        std::iter::successors(some(first), move |&number| some(self.places[number as usize].next))
    }
}

impl<T> Index<u32> for Table<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, number: u32) -> &T {
        &self.places[number as usize].record
    }
}

impl<T> IndexMut<u32> for Table<T> {
    #[inline(always)]
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.places[number as usize].record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Compares two queues and the free places with ordinary containers.
        #[test]
        fn a_record_is_in_one_queue_in_order(steps in prop::collection::vec((0u8..5, any::<prop::sample::Index>()), 1..200)) {
            let mut table = Table::<u8>::default();
            let mut queues = [Queue::default(); 2];
            let (mut naive, mut loose) = ([VecDeque::new(), VecDeque::new()], Vec::new());
            for (step, which) in steps {
                let (side, other) = (which.index(2), loose.len());
                match step {
                    0 => {
                        let number = table.take().unwrap_or_else(|| table.add(0));
                        prop_assert!(!loose.contains(&number) && naive.iter().all(|queue| !queue.contains(&number)));
                        loose.push(number);
                    }
                    1 if other > 0 => table.free(loose.swap_remove(which.index(other))),
                    2 if other > 0 => {
                        let number = loose.swap_remove(which.index(other));
                        table.append(&mut queues[side], number);
                        naive[side].push_back(number);
                    }
                    3 => {
                        let popped = table.pop(&mut queues[side]);
                        prop_assert_eq!(popped, naive[side].pop_front());
                        loose.extend(popped);
                    }
                    4 if !naive[side].is_empty() => {
                        let at = which.index(naive[side].len());
                        let number = naive[side].remove(at).unwrap();
                        prop_assert!(table.remove(&mut queues[side], number));
                        prop_assert!(!table.remove(&mut queues[side], number));
                        loose.push(number);
                    }
                    _ => {}
                }
                for (queue, naive) in queues.iter().zip(&naive) {
                    prop_assert!(table.queued(queue).eq(naive.iter().copied()));
                    prop_assert_eq!((queue.is_empty(), queue.first()), (naive.is_empty(), naive.front().copied()));
                }
                prop_assert_eq!(table.in_use(), loose.len() + naive.iter().map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
