//! Tags for slots of a hardware queue, shared by all block devices that use the queue.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::cpu::Cpu;

/// Called once, when a tag may be free.
pub type TagWaiter = Box<dyn FnOnce(&Cpu)>;

#[derive(Default)]
struct Queue {
    free: Vec<u16>,
    waiting: VecDeque<TagWaiter>,
}

/// The tags of a controller's hardware queues (Linux: `blk_mq_tag_set`). A driver creates one per controller and
/// shares it among all its block devices, so that together they do not exceed the controller's limits.
pub struct TagSet {
    queues: Vec<RefCell<Queue>>,
    depth: u16,
}

impl TagSet {
    /// Tags below `depth` for each of `queues` queues; at least one of each.
    pub fn new(queues: u16, depth: u16) -> Self {
        let depth = depth.max(1);
        let queue = || RefCell::new(Queue { free: (0..depth).rev().collect(), waiting: VecDeque::new() });
        Self { queues: (0..queues.max(1)).map(|_| queue()).collect(), depth }
    }

    /// Number of hardware queues.
    pub fn queues(&self) -> u16 {
        self.queues.len() as u16
    }

    /// Tags per queue.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Allocates a tag of a queue.
    pub fn take(&self, queue: u16) -> Option<u16> {
        self.queues[usize::from(queue)].borrow_mut().free.pop()
    }

    /// Frees a tag. [`wake`](Self::wake) notifies waiters.
    pub fn give(&self, queue: u16, tag: u16) {
        self.queues[usize::from(queue)].borrow_mut().free.push(tag);
    }

    /// Calls `waiter` when a tag may be free, after earlier waiters.
    pub fn wait(&self, queue: u16, waiter: TagWaiter) {
        self.queues[usize::from(queue)].borrow_mut().waiting.push_back(waiter);
    }

    /// Calls the waiters of a queue while it has free tags, in order, each at most once.
    pub fn wake(&self, cpu: &Cpu, queue: u16) {
        let queue = &self.queues[usize::from(queue)];
        let most = queue.borrow().waiting.len();
        for _ in 0..most {
            let waiter = {
                let mut queue = queue.borrow_mut();
                if queue.free.is_empty() { None } else { queue.waiting.pop_front() }
            };
            match waiter {
                Some(waiter) => waiter(cpu),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_its_own_tags() {
        let tags = TagSet::new(2, 2);
        assert_eq!([tags.take(0), tags.take(0), tags.take(0)], [Some(0), Some(1), None]);
        assert_eq!(tags.take(1), Some(0));
        tags.give(0, 1);
        assert_eq!(tags.take(0), Some(1));
    }
}
