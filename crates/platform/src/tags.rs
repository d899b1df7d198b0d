//! Tags: the right to one of a hardware queue's places, for all block devices that share the queue.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::cpu::Cpu;

/// Called once, when there may be a tag again.
pub type TagWaiter = Box<dyn FnOnce(&Cpu)>;

#[derive(Default)]
struct Queue {
    free: Vec<u16>,
    waiting: VecDeque<TagWaiter>,
}

/// The tags of a controller's hardware queues (Linux: `blk_mq_tag_set`). A driver makes one for each controller and
/// gives it to all of its block devices, so that together they never ask for more than the controller has.
pub struct TagSet {
    queues: Vec<RefCell<Queue>>,
    depth: u16,
}

impl TagSet {
    /// Tags below `depth` for each of so many queues, one of each at least.
    pub fn new(queues: u16, depth: u16) -> Self {
        let depth = depth.max(1);
        let queue = || RefCell::new(Queue { free: (0..depth).rev().collect(), waiting: VecDeque::new() });
        Self { queues: (0..queues.max(1)).map(|_| queue()).collect(), depth }
    }

    /// Hardware queues.
    pub fn queues(&self) -> u16 {
        self.queues.len() as u16
    }

    /// Tags of each queue.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Takes a tag of a queue.
    pub fn take(&self, queue: u16) -> Option<u16> {
        self.queues[usize::from(queue)].borrow_mut().free.pop()
    }

    /// Gives a tag back. Who waits is told by [`wake`](Self::wake).
    pub fn give(&self, queue: u16, tag: u16) {
        self.queues[usize::from(queue)].borrow_mut().free.push(tag);
    }

    /// Calls `waiter` when there may be a tag, after those who asked before.
    pub fn wait(&self, queue: u16, waiter: TagWaiter) {
        self.queues[usize::from(queue)].borrow_mut().waiting.push_back(waiter);
    }

    /// Lets those who wait for a queue's tags take them, in the order in which they asked, each once at most.
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
