//! Guest driver of virtio's block device.

use std::rc::{Rc, Weak};

use platform::Error;
use platform::block::{BlockDriver, BlockLimits, BlockOp, BlockRequest};
use platform::costs;
use platform::cpu::{Cpu, CpuId, Part};
use platform::irq::IrqReturn;
use platform::kernel::Kernel;
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use platform::tags::TagSet;
use platform::virtio::VirtualDisk;
use units::Duration;
use wire::virtio::{BlockHeader, Descriptor};

use crate::virtio_ring::DriverRing;

costs! {
    /// CPU costs in cycles. Loads and stores are charged separately; exits are charged by the hypervisor.
    VirtioBlkCosts in "virtio_blk_cost" {
        /// To put a request into the ring.
        submit,
        /// To complete a request.
        complete,
        /// The interrupt handler.
        handler,
    }
}

/// Ring entries (QEMU's default).
const ENTRIES: u16 = 256;
/// Most requests in flight.
const TAGS: u16 = 128;
/// Most data segments of a request; header and status take one descriptor each.
const MOST_SEGMENTS: u16 = 126;
/// Bytes of a request's header plus its status.
const PLACE: u64 = 32;
const _: () = assert!(PLACE * TAGS as u64 <= PAGE);

/// A virtual disk in a guest.
pub struct VirtioBlk {
    disk: Rc<dyn VirtualDisk>,
    costs: VirtioBlkCosts,
    ring: DriverRing<BlockRequest>,
    /// Headers and status bytes, by tag.
    places: Pages,
    tags: Rc<TagSet>,
}

impl VirtioBlk {
    /// Creates the ring, passes it to the hypervisor and registers the block device. Returns its name.
    ///
    /// # Errors
    /// [`Error::NoMemory`], or an error of [`VirtualDisk`].
    pub async fn probe(
        kernel: &Rc<dyn Kernel>,
        cpu: &Cpu,
        disk: Rc<dyn VirtualDisk>,
        costs: VirtioBlkCosts,
    ) -> Result<String, Error> {
        let _part = cpu.book(Part::Driver);
        let own = Rc::new(Self {
            ring: DriverRing::new(cpu, kernel, ENTRIES)?,
            places: kernel.alloc_pages(cpu, 0, Policy::Local)?,
            tags: Rc::new(TagSet::new(1, TAGS)),
            disk,
            costs,
        });
        let me: Weak<Self> = Rc::downgrade(&own);
        let handler = move |cpu: &Cpu| match me.upgrade() {
            Some(own) => own.interrupt(cpu),
            None => IrqReturn::None,
        };
        own.disk.request_irq(cpu, Rc::new(handler))?;
        own.disk.start(cpu, own.ring.place()).await?;
        Ok(kernel.register_block(own))
    }

    /// Address of a request's header; its status follows.
    fn place(&self, tag: u16) -> PhysAddr {
        self.places.start + u64::from(tag) * PLACE
    }

    fn answer(&self, tag: u16) -> PhysAddr {
        self.place(tag) + BlockHeader::LEN as u64
    }

    fn interrupt(&self, cpu: &Cpu) -> IrqReturn {
        let _part = cpu.book(Part::Driver);
        cpu.work(self.costs.handler);
        while let Some((request, _)) = self.ring.take(cpu) {
            cpu.work(self.costs.complete);
            let mut answer = [0];
            cpu.load(self.answer(request.tag), &mut answer);
            let result = match answer {
                [BlockHeader::OK] => Ok(()),
                [BlockHeader::UNSUPPORTED] => Err(Error::NotSupported),
                _ => Err(Error::Io),
            };
            request.end(cpu, result);
        }
        IrqReturn::Handled
    }
}

impl BlockDriver for VirtioBlk {
    fn limits(&self) -> BlockLimits {
        BlockLimits {
            id: None,
            name: "vda".into(),
            sectors: self.disk.sectors(),
            block_bytes: self.disk.block_bytes(),
            max_bytes: u32::from(MOST_SEGMENTS - 1) * PAGE as u32,
            max_segments: MOST_SEGMENTS,
            boundary_mask: 0,
            // The hypervisor makes every write durable (QEMU: `cache=directsync`).
            write_cache: false,
            discard: false,
            write_zeroes: false,
            // The hypervisor handles timeouts of the drive.
            timeout: Duration::ZERO,
        }
    }

    fn tags(&self) -> Rc<TagSet> {
        Rc::clone(&self.tags)
    }

    fn queue_for(&self, _: CpuId) -> u16 {
        0
    }

    fn submit(&self, cpu: &Cpu, _: u16, request: BlockRequest) -> Result<(), BlockRequest> {
        let _part = cpu.book(Part::Driver);
        let (kind, flags) = match request.op {
            BlockOp::Read => (BlockHeader::READ, Descriptor::WRITE),
            BlockOp::Write { .. } => (BlockHeader::WRITE, 0),
            BlockOp::Flush | BlockOp::Discard | BlockOp::WriteZeroes => {
                request.end(cpu, Err(Error::NotSupported));
                return Ok(());
            }
        };
        if self.ring.room() < request.segments.len() + 2 {
            return Err(request);
        }
        cpu.work(self.costs.submit);
        let (tag, sector) = (request.tag, request.sector);
        cpu.store(self.place(tag), &BlockHeader { kind, sector }.emit());
        let mut pieces = Vec::with_capacity(request.segments.len() + 2);
        pieces.push((self.place(tag), BlockHeader::LEN as u32, 0));
        pieces.extend(request.segments.iter().map(|segment| (segment.at, segment.length, flags)));
        pieces.push((self.answer(tag), 1, Descriptor::WRITE));
        self.ring.offer(cpu, pieces.into_iter(), request);
        Ok(())
    }

    fn commit(&self, cpu: &Cpu, _: u16) {
        let _part = cpu.book(Part::Driver);
        if self.ring.publish(cpu) {
            self.disk.notify(cpu);
        }
    }

    /// The physical drive has its own timeouts.
    fn timed_out(self: Rc<Self>, _: &Cpu, _: u16, _: u16) {}
}
