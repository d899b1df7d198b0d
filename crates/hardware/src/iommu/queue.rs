//! The invalidation queue: a ring of descriptors in memory, executed in order.

use super::Iommu;
use super::ids::Access;
use super::invalidation::{ContextScope, Descriptor, Scope};
use super::memory::WalkMemory;
use std::collections::VecDeque;
use units::{HostPhysical, Iova, Time};
use wire::pcie::Bdf;

/// Actions for the platform after executing descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueAction {
    /// Store a wait descriptor's status: everything before it is complete, and no invalidated translation is used any
    /// more.
    WriteStatus {
        /// Time of the store.
        at: Time,
        /// Address of the store.
        address: HostPhysical,
        /// The descriptor's status data.
        value: u32,
    },
    /// Send the invalidation completion interrupt.
    CompletionInterrupt {
        /// Time of the interrupt.
        at: Time,
    },
    /// Send an ATS Invalidate Request message; its completion comes back through
    /// [`Iommu::device_tlb_completed`].
    InvalidateDeviceTlb {
        /// Time of the message.
        at: Time,
        /// Target function.
        destination: Bdf,
        /// The tag that the completion will carry, 0 to 31.
        tag: u8,
        /// Start of the range, with the size encoded in its low bits if `size`.
        address: Iova,
        /// Whether the range is larger than 4 KiB.
        size: bool,
    },
}

/// Why the queue stopped (fault status register).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueError {
    /// IQE: an invalid descriptor, one outside memory, or a tail outside the ring.
    Queue,
    /// ITE: a function did not complete a device-TLB invalidation in time.
    Timeout,
}

/// A wait descriptor blocked by device-TLB invalidations.
#[derive(Debug, Clone, Copy)]
struct BlockedWait {
    due: Time,
    tags: u32,
    status: Option<(HostPhysical, u32)>,
    interrupt: bool,
}

/// Registers and progress.
#[derive(Debug, Clone, Default)]
pub(crate) struct InvalidationQueue {
    base: HostPhysical,
    /// Bytes; zero until configured.
    size: u64,
    head: u64,
    tail: u64,
    /// When the unit has executed everything submitted.
    free: Time,
    error: Option<QueueError>,
    /// Tags of device-TLB invalidations in progress, and whose.
    tags: u32,
    owners: [Bdf; 32],
    waits: VecDeque<BlockedWait>,
    fenced: bool,
}

/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 16;

impl Iommu {
    /// Places the invalidation queue: 2^`order` pages of 4 KiB, 256 descriptors each (queue address register).
    pub fn set_invalidation_queue(&mut self, base: HostPhysical, order: u8) {
        self.queue = InvalidationQueue {
            base,
            size: 4096 << order.min(7),
            free: self.queue.free,
            ..Default::default()
        };
    }

    /// Byte offset of the next descriptor to execute (queue head register).
    pub const fn invalidation_queue_head(&self) -> u64 {
        self.queue.head
    }

    /// Why the queue stopped, if it did.
    pub const fn invalidation_queue_error(&self) -> Option<QueueError> {
        self.queue.error
    }

    /// Clears the error; execution goes on with the next write of the tail.
    pub fn clear_invalidation_queue_error(&mut self) {
        self.queue.error = None;
    }

    /// Handles a write of the queue tail register: executes all descriptors up to byte offset `tail`.
    ///
    /// Entries are invalidated at once in call order: no later call uses an invalidated translation. `actions` say when
    /// the invalidation is *complete*, including reads and writes translated earlier.
    pub fn write_invalidation_tail<M: WalkMemory>(
        &mut self,
        now: Time,
        tail: u64,
        memory: &mut M,
        actions: &mut Vec<QueueAction>,
    ) {
        if tail % DESCRIPTOR != 0 || tail >= self.queue.size {
            self.queue.error = Some(QueueError::Queue);
            return;
        }
        self.queue.tail = tail;
        self.run_queue(now, memory, actions);
    }

    /// A function completes Invalidate Requests: `tags` is the bit vector of its message.
    pub fn device_tlb_completed<M: WalkMemory>(
        &mut self,
        now: Time,
        requester: Bdf,
        tags: u32,
        memory: &mut M,
        actions: &mut Vec<QueueAction>,
    ) {
        let queue = &mut self.queue;
        // A tag of another function is a forged completion and is ignored.
        let owned = (0..32).filter(|&t| queue.owners[t] == requester).fold(0u32, |bits, t| bits | 1 << t);
        let done = tags & owned & queue.tags;
        queue.tags &= !done;
        for wait in &mut queue.waits {
            if wait.tags & done != 0 {
                wait.tags &= !done;
                wait.due = wait.due.max(now + self.params.status_write_latency);
            }
        }
        self.release_waits(actions);
        self.run_queue(now, memory, actions);
    }

    /// A function has timed out: pending waits are aborted and the queue stops.
    pub fn device_tlb_timed_out(&mut self) {
        self.queue.tags = 0;
        self.queue.waits.clear();
        self.queue.fenced = false;
        self.queue.error = Some(QueueError::Timeout);
    }

    /// Outstanding device-TLB invalidations.
    pub const fn device_tlb_invalidations_in_flight(&self) -> u32 {
        self.queue.tags.count_ones()
    }

    fn release_waits(&mut self, actions: &mut Vec<QueueAction>) {
        let mut after = Time::ZERO;
        while let Some(wait) = self.queue.waits.front().filter(|w| w.tags == 0) {
            let at = wait.due.max(after);
            after = at;
            if let Some((address, value)) = wait.status {
                actions.push(QueueAction::WriteStatus { at, address, value });
            }
            if wait.interrupt {
                actions.push(QueueAction::CompletionInterrupt { at });
            }
            self.queue.waits.pop_front();
        }
        if self.queue.waits.is_empty() {
            self.queue.fenced = false;
        }
    }

    fn run_queue<M: WalkMemory>(&mut self, now: Time, memory: &mut M, actions: &mut Vec<QueueAction>) {
        self.queue.free = self.queue.free.max(now);
        while self.queue.head != self.queue.tail && self.queue.error.is_none() && !self.queue.fenced {
            let place = self.queue.base.checked_add(self.queue.head);
            let fetched = place.map(|a| memory.walk_read_pair(self.queue.free, self.node, a));
            let (ready, words) = fetched.unwrap_or((self.queue.free, None));
            let Some(descriptor) = words.and_then(Descriptor::decode) else {
                self.queue.error = Some(QueueError::Queue);
                return;
            };
            if !self.execute(ready, descriptor, actions) {
                // All tags are in use: the descriptor is fetched again when one is free.
                return;
            }
            self.queue.head = (self.queue.head + DESCRIPTOR) % self.queue.size;
        }
    }

    /// Executes a descriptor fetched at `at`; `false` if it has to wait for a tag.
    fn execute(&mut self, at: Time, descriptor: Descriptor, actions: &mut Vec<QueueAction>) -> bool {
        let mut done = at + self.params.invalidation_time;
        match descriptor {
            Descriptor::Context(scope) => self.invalidate_contexts(scope),
            Descriptor::Iotlb { scope, drain_reads, drain_writes, leaf_only } => {
                self.invalidate_translations(scope, leaf_only);
                for (drain, access) in [(drain_reads, Access::Read), (drain_writes, Access::Write)] {
                    if drain {
                        done = done.max(self.drained(access));
                    }
                }
            }
            Descriptor::DeviceTlb { source, address, size } => {
                let tag = self.queue.tags.trailing_ones() as u8;
                if tag == 32 {
                    return false;
                }
                self.queue.tags |= 1 << tag;
                self.queue.owners[tag as usize] = source;
                self.counters.device_tlb_invalidations += 1;
                actions.push(QueueAction::InvalidateDeviceTlb {
                    at: done,
                    destination: source,
                    tag,
                    address,
                    size,
                });
            }
            Descriptor::InterruptEntry { index } => self.invalidate_interrupt_entries(index),
            Descriptor::Wait { status, interrupt, fence } => {
                self.counters.waits += 1;
                let due = at + self.params.status_write_latency;
                self.queue.waits.push_back(BlockedWait { due, tags: self.queue.tags, status, interrupt });
                self.queue.fenced = fence;
                self.release_waits(actions);
                done = at;
            }
        }
        self.queue.free = done;
        true
    }

    fn invalidate_contexts(&mut self, scope: ContextScope) {
        self.counters.context_invalidations += 1;
        self.recent_context = None;
        self.contexts.remove_where(|tag, c| scope.covers(c.entry.domain, Bdf::from_bits(tag as u16)));
    }

    fn invalidate_translations(&mut self, scope: Scope, leaf_only: bool) {
        self.counters.iotlb_invalidations += 1;
        self.counters.iotlb_entries_invalidated += self.iotlb.invalidate(scope) as u64;
        self.walks.invalidate(scope);
        self.next_fill = self.walks.next_end();
        if !leaf_only {
            self.structures.invalidate(scope);
        }
    }

    /// When all requests of this direction translated so far have been served.
    fn drained(&self, access: Access) -> Time {
        self.pipeline.last_leave_of(access).max(self.in_use_until) + self.params.drain_latency
    }
}
