//! Tests of the whole IOMMU with real tables in memory of fixed latency.

mod ats;
mod faults;
mod formats;
mod interrupts;
mod invalidations;
mod properties;
mod timing;

use super::*;
use crate::memory::{MemoryRange, NodeId, PhysicalMemory};
use engine::Seed;
use units::{Bytes, Duration, HostPhysical, Iova, Time};
use wire::iommu::encode_command;
use wire::pcie::Bdf;
use wire::vtd::tables::{ContextTables, FrameAllocator, PageTable};
use wire::vtd::*;

/// Latency of every table read.
const READ: Duration = Duration::from_ns(80);
/// The function under test.
const NIC: Bdf = Bdf::new(3, 0, 0);
const DOMAIN: DomainId = DomainId(5);

/// Memory with a latency of [`READ`] that records when it was read.
struct FlatMemory {
    bytes: PhysicalMemory,
    reads: Vec<Time>,
}

impl WalkMemory for FlatMemory {
    fn walk_read(&mut self, now: Time, _: NodeId, address: HostPhysical) -> WalkRead {
        self.reads.push(now);
        WalkRead { ready: now + READ, value: self.bytes.read_u64(address).ok() }
    }
    fn same_line(&self, address: HostPhysical) -> Option<u64> {
        self.bytes.read_u64(address).ok()
    }
}

/// Allocates frames from 1 MiB upwards.
struct Frames(u64);

impl FrameAllocator for Frames {
    fn allocate_frame(&mut self) -> Option<HostPhysical> {
        self.allocate_frames(0)
    }

    fn allocate_frames(&mut self, order: u8) -> Option<HostPhysical> {
        let bytes = 0x1000 << order;
        let first = self.0.next_multiple_of(bytes);
        self.0 = first + bytes;
        (self.0 <= 16 << 20).then(|| HostPhysical::new(first))
    }
}

/// An IOMMU with one function in one domain with an empty page table.
struct Machine {
    iommu: Iommu,
    memory: FlatMemory,
    frames: Frames,
    contexts: ContextTables,
    table: PageTable,
    /// Byte offset of the next invalidation descriptor.
    tail: u64,
    actions: Vec<QueueAction>,
}

const QUEUE: HostPhysical = HostPhysical::new(0x8_0000);

impl Machine {
    fn new(params: IommuParams) -> Self {
        let range = MemoryRange { base: HostPhysical::new(0), size: Bytes::mib(16) };
        let mut memory = FlatMemory { bytes: PhysicalMemory::new(&[(NodeId(0), range)]), reads: Vec::new() };
        let mut frames = Frames(1 << 20);
        let mut iommu = Iommu::new(params, NodeId(0), Seed::new(42)).unwrap();
        let contexts = ContextTables::new(&mut memory.bytes, &mut frames, iommu.features()).unwrap();
        let table = PageTable::new(&mut memory.bytes, &mut frames, 4, iommu.features()).unwrap();
        iommu.set_root_table(contexts.root());
        iommu.set_enabled(true);
        iommu.set_invalidation_queue(QUEUE, 0);
        let mut machine = Self { iommu, memory, frames, contexts, table, tail: 0, actions: Vec::new() };
        machine.join(NIC, TranslationType::Untranslated);
        machine
    }

    fn join(&mut self, function: Bdf, translation: TranslationType) {
        let entry = ContextEntry {
            domain: DOMAIN,
            translation,
            levels: 4,
            page_table: self.table.root(),
            fault_processing_disabled: false,
        };
        self.contexts.set(&mut self.memory.bytes, &mut self.frames, function, entry).unwrap();
    }

    fn map(&mut self, iova: u64, frame: u64, length: u64, permissions: Permissions) {
        let (iova, frame, length) = (Iova::new(iova), HostPhysical::new(frame), Bytes::new(length));
        let (memory, frames) = (&mut self.memory.bytes, &mut self.frames);
        self.table.map(memory, frames, iova, frame, length, permissions, PageSize::Size1GiB).unwrap();
    }

    fn unmap(&mut self, iova: u64, length: u64) {
        let (memory, frames) = (&mut self.memory.bytes, &mut self.frames);
        self.table.unmap(memory, frames, Iova::new(iova), Bytes::new(length)).unwrap();
    }

    fn translate(&mut self, now: Time, iova: u64, access: Access) -> Translation {
        self.iommu.translate(now, DmaRequest::new(NIC, Iova::new(iova), access), &mut self.memory)
    }

    /// Reads `iova` long after all earlier accesses, and returns the latency.
    fn latency(&mut self, now: Time, iova: u64) -> Duration {
        let reply = self.translate(now, iova, Access::Read);
        reply.outcome.unwrap();
        reply.ready.since(now)
    }

    /// Adds descriptors to the queue and rings the doorbell.
    fn submit(&mut self, now: Time, descriptors: &[InvalidationDescriptor]) {
        for d in descriptors {
            let [low, high] = encode_command(*d, self.iommu.params().format()).unwrap();
            self.memory.bytes.write_u64(QUEUE + self.tail, low).unwrap();
            self.memory.bytes.write_u64(QUEUE + self.tail + 8, high).unwrap();
            self.tail = (self.tail + 16) % 4096;
        }
        self.iommu.write_invalidation_tail(now, self.tail, &mut self.memory, &mut self.actions);
    }

    /// Invalidates a range of pages; returns when the following wait descriptor completes.
    fn invalidate(&mut self, now: Time, scope: Scope) -> Time {
        self.actions.clear();
        self.submit(
            now,
            &[
                InvalidationDescriptor::iotlb(scope),
                InvalidationDescriptor::wait(HostPhysical::new(0x9000), 1),
            ],
        );
        match self.actions[..] {
            [QueueAction::WriteStatus { at, address, value: 1 }] if address.get() == 0x9000 => at,
            ref other => panic!("expected one status write, got {other:?}"),
        }
    }
}

/// Parameters with no delay but that of memory and, by default, one walk at a time.
fn bare() -> IommuParams {
    IommuParams {
        hit_latency: Duration::ZERO,
        read_depth: 0,
        write_depth: 0,
        walk_overhead: Duration::ZERO,
        walker_hold_read: Duration::ZERO,
        replay_latency: Duration::ZERO,
        ..IommuParams::default()
    }
}

fn us(n: u64) -> Time {
    Time::ZERO + Duration::from_us(n)
}

fn address(reply: &Translation) -> u64 {
    reply.outcome.unwrap().address.get()
}
