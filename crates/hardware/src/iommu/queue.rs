//! The invalidation queue: a ring of descriptors in memory, executed in order.

use super::memory::{TableReader, WalkMemory};
use super::params::IommuParams;
use super::pipeline::Pipeline;
use super::remapper::InterruptRemapper;
use super::translator::Translator;
use units::{Duration, HostPhysical, Time};
use wire::iommu::{COMMAND_BYTES, decode_command};
use wire::vtd::{Access, InvalidationDescriptor, TableFormat};

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
}

/// What descriptors act on.
pub(super) struct Targets<'a> {
    pub pipeline: &'a Pipeline,
    pub translator: &'a mut Translator,
    pub interrupts: &'a mut InterruptRemapper,
}

/// Registers and progress.
#[derive(Debug, Clone)]
pub(super) struct InvalidationQueue {
    format: TableFormat,
    invalidation_time: Duration,
    status_write_latency: Duration,
    base: HostPhysical,
    /// Bytes; zero until configured.
    size: u64,
    head: u64,
    /// When the unit has executed everything submitted.
    free: Time,
    has_error: bool,
}

impl InvalidationQueue {
    pub fn new(params: &IommuParams) -> Self {
        Self {
            format: params.format(),
            invalidation_time: params.invalidation_time,
            status_write_latency: params.status_write_latency,
            base: HostPhysical::new(0),
            size: 0,
            head: 0,
            free: Time::ZERO,
            has_error: false,
        }
    }

    /// Places the ring at `base`: 2^`order` pages of 4 KiB.
    pub fn place(&mut self, base: HostPhysical, order: u8) {
        *self = Self { base, size: 4096 << order.min(7), head: 0, has_error: false, ..*self };
    }

    /// Byte offset of the next descriptor to execute.
    pub const fn head(&self) -> u64 {
        self.head
    }

    pub const fn has_error(&self) -> bool {
        self.has_error
    }

    pub const fn clear_error(&mut self) {
        self.has_error = false;
    }

    /// Executes all descriptors up to byte offset `tail`.
    pub fn write_tail<M: WalkMemory>(
        &mut self,
        now: Time,
        tail: u64,
        targets: &mut Targets<'_>,
        reader: &mut TableReader<'_, M>,
        actions: &mut Vec<QueueAction>,
    ) {
        if tail % COMMAND_BYTES != 0 || tail >= self.size {
            self.has_error = true;
            return;
        }
        self.free = self.free.max(now);
        while self.head != tail && !self.has_error {
            let (ready, words) = reader.pair(self.free, self.base, self.head);
            match words.and_then(|words| decode_command(words, self.format)) {
                Some(descriptor) => {
                    self.free = self.execute(ready, descriptor, targets, actions);
                    self.head = (self.head + COMMAND_BYTES) % self.size;
                }
                None => self.has_error = true,
            }
        }
    }

    /// Executes a descriptor fetched at `at`. Returns when the next one can be fetched.
    fn execute(
        &self,
        at: Time,
        descriptor: InvalidationDescriptor,
        Targets { pipeline, translator, interrupts }: &mut Targets<'_>,
        actions: &mut Vec<QueueAction>,
    ) -> Time {
        let mut done = at + self.invalidation_time;
        match descriptor {
            InvalidationDescriptor::Context(scope) => translator.contexts.invalidate(scope),
            InvalidationDescriptor::Iotlb { scope, drain_reads, drain_writes, leaf_only } => {
                translator.pages.invalidate(scope, !leaf_only);
                for (drain, access) in [(drain_reads, Access::Read), (drain_writes, Access::Write)] {
                    if drain {
                        done = done.max(pipeline.drained(access));
                    }
                }
            }
            InvalidationDescriptor::InterruptEntry { index } => interrupts.invalidate(index),
            InvalidationDescriptor::Wait { status, interrupt } => {
                let due = at + self.status_write_latency;
                if let Some((address, value)) = status {
                    actions.push(QueueAction::WriteStatus { at: due, address, value });
                }
                if interrupt {
                    actions.push(QueueAction::CompletionInterrupt { at: due });
                }
                done = at;
            }
        }
        done
    }
}
