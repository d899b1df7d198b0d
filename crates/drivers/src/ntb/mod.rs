//! Adapters with a non-transparent bridge (NTB): windows, tables and doorbells, for services that share devices or
//! memory across hosts.
//!
//! The driver tracks what is in use and writes the adapter's tables. Its callers decide where segments lead, and why.

mod places;

use std::cell::RefCell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::dma::DmaOps;
use platform::irq::{Affinity, IrqReturn};
use platform::lock::SpinLock;
use platform::memory::PhysAddr;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::{BarRange, PciBinding, PciDevice, PciDriver, PciMatch};
use wire::ntb::{self as regs, WindowSegment};
use wire::pcie::{Bdf, FunctionAddress};

use places::Places;

/// Runs in a task, with the bits that were set, after a doorbell has rung or a cable has changed.
pub type Rung = Rc<dyn Fn(Cpu, u32) -> Async<'static, ()>>;

/// Runs while the driver binds to an adapter.
pub type Found = Rc<dyn Fn(Cpu, Rc<NtbAdapter>) -> Async<'static, ()>>;

/// Runs while the driver lets go of an adapter, which was removed or lost its link.
pub type Lost = Rc<dyn Fn(Cpu) -> Async<'static, ()>>;

/// Finds NTB adapters and passes each to the service that lends and borrows through it.
pub struct NtbDriver {
    found: Found,
}

impl NtbDriver {
    /// A driver that calls `found` for each adapter, also for one that comes back.
    pub fn new(found: Found) -> Self {
        Self { found }
    }
}

/// A range of the window that maps to another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Address of the first byte for cores and devices of this host.
    pub at: PhysAddr,
    /// Bytes.
    pub length: u64,
    /// Index of its first segment.
    first: usize,
    count: usize,
}

impl Mapping {
    /// Number of segments that it takes.
    pub fn segments(&self) -> usize {
        self.count
    }
}

/// An adapter, bound to the driver.
pub struct NtbAdapter {
    device: PciDevice,
    registers: Mmio,
    window: BarRange,
    node: u8,
    segment_bytes: u64,
    /// Held while a table entry is allocated or freed and written, so that hardware writes come in the same order.
    tables: SpinLock,
    segments: RefCell<Places<WindowSegment>>,
    local: RefCell<Places<Bdf>>,
    remote: RefCell<Places<(u8, u8)>>,
    /// Entries in each of the two requester tables.
    requesters: usize,
    rung: RefCell<Option<Rung>>,
    lost: RefCell<Option<Lost>>,
}

impl NtbAdapter {
    async fn bind(cpu: &Cpu, device: PciDevice) -> Result<Rc<Self>, Error> {
        device.dma().set_mask(64)?;
        let registers = device.ioremap_bar(regs::REGISTER_BAR, MemoryType::Uncached)?;
        let window = device.bar(regs::WINDOW_BAR).ok_or(Error::NoSpace)?;
        let node = registers.read_u32(cpu, regs::NODE).await;
        let segments = registers.read_u32(cpu, regs::SEGMENTS).await;
        let segment_bytes = registers.read_u64(cpu, regs::SEGMENT_BYTES).await;
        let requesters = registers.read_u32(cpu, regs::REQUESTERS).await;
        if segments > regs::MOST_SEGMENTS || requesters > regs::MOST_REQUESTERS {
            return Err(Error::NoDevice);
        }
        let adapter = Rc::new(Self {
            registers,
            window,
            node: node as u8,
            segment_bytes,
            tables: SpinLock::default(),
            segments: RefCell::new(Places::new(segments as usize)),
            local: RefCell::new(Places::new(requesters as usize)),
            remote: RefCell::new(Places::new(requesters as usize)),
            requesters: requesters as usize,
            rung: RefCell::new(None),
            lost: RefCell::new(None),
            device,
        });
        let irqs = adapter.device.alloc_irqs(cpu, 1, 1, Affinity::Spread).await?;
        let weak = Rc::downgrade(&adapter);
        let thread = Rc::new(move |cpu: Cpu| -> Async<'static, ()> {
            let adapter = weak.upgrade();
            Box::pin(async move {
                if let Some(adapter) = adapter {
                    adapter.ring_heard(cpu).await;
                }
            })
        });
        adapter.device.request_irq(irqs[0], "ntb", Rc::new(|_| IrqReturn::WakeThread), Some(thread))?;
        // Bits that were set before would hide the same ones to come.
        adapter.registers.write_u32(cpu, regs::DOORBELL_CLEAR, u32::MAX);
        // The adapter forwards other hosts' requests, so it must be a bus master.
        adapter.device.set_master(cpu, true).await;
        Ok(adapter)
    }

    async fn ring_heard(&self, cpu: Cpu) {
        let bits = self.registers.read_u32(&cpu, regs::DOORBELL).await;
        if bits == u32::MAX {
            return;
        }
        self.registers.write_u32(&cpu, regs::DOORBELL_CLEAR, bits);
        // This read flushes writes that arrived before the bits were cleared.
        self.registers.read_u32(&cpu, regs::NODE).await;
        let rung = self.rung.borrow().clone();
        if let Some(rung) = rung {
            rung(cpu, bits).await;
        }
    }

    /// Sets the function called when a doorbell rings.
    pub fn on_ring(&self, rung: Rung) {
        *self.rung.borrow_mut() = Some(rung);
    }

    /// Sets the function called when the adapter is lost.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if it is lost already.
    pub fn on_loss(&self, lost: Lost) -> Result<(), Error> {
        if !self.is_present() {
            return Err(Error::NoDevice);
        }
        *self.lost.borrow_mut() = Some(lost);
        Ok(())
    }

    /// Whether it is there, as far as the kernel knows.
    pub fn is_present(&self) -> bool {
        self.device.is_present()
    }

    /// PCI address of the adapter.
    pub fn address(&self) -> FunctionAddress {
        self.device.address()
    }

    /// Its node number in the cluster.
    pub fn node(&self) -> u8 {
        self.node
    }

    /// Number of segments in its window.
    pub fn segments(&self) -> usize {
        self.segments.borrow().places()
    }

    /// Size of a window segment (bytes).
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// DMA API for memory that other nodes reach through this adapter, at the addresses that they use.
    pub fn dma(&self) -> Rc<dyn DmaOps> {
        self.device.dma()
    }

    /// A bit for each node whose cable is up and has been since the node was last [admitted](Self::admit_nodes). Zero
    /// if the adapter does not answer.
    pub async fn reachable(&self, cpu: &Cpu) -> u64 {
        match self.registers.read_u64(cpu, regs::REACHABLE).await {
            u64::MAX => 0,
            nodes => nodes,
        }
    }

    /// Lets requests pass again to and from nodes (a bit each) that were not [reachable](Self::reachable). All
    /// earlier requests have ended by then.
    pub fn admit_nodes(&self, cpu: &Cpu, nodes: u64) {
        self.registers.write_u64(cpu, regs::REACHABLE, nodes);
    }

    /// Writes a scratchpad register, which other nodes can read.
    pub fn set_scratchpad(&self, cpu: &Cpu, number: usize, value: u32) {
        self.registers.write_u32(cpu, regs::SCRATCHPADS + 4 * number as u64, value);
    }

    /// Maps `length` bytes from `target` in another node to a range of the window.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are not enough consecutive free segments.
    pub fn map(&self, cpu: &Cpu, node: u8, target: u64, length: u64) -> Result<Mapping, Error> {
        self.map_segments(cpu, node, false, (target, length))
    }

    /// Maps the shared registers of another node's adapter to a segment.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if no segment is free.
    pub fn map_registers(&self, cpu: &Cpu, node: u8) -> Result<(Mmio, Mapping), Error> {
        let mapping = self.map_segments(cpu, node, true, (0, regs::SHARED_END))?;
        Ok((self.remap(mapping, MemoryType::Uncached)?, mapping))
    }

    /// Maps a range for cores, with this memory type.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the range is not in the window.
    pub fn remap(&self, mapping: Mapping, kind: MemoryType) -> Result<Mmio, Error> {
        let offset = mapping.at.0 - self.window.start.0;
        self.device.ioremap(regs::WINDOW_BAR, offset, mapping.length, kind)
    }

    fn map_segments(
        &self,
        cpu: &Cpu,
        node: u8,
        registers: bool,
        (target, length): (u64, u64),
    ) -> Result<Mapping, Error> {
        let bytes = self.segment_bytes;
        let start = target & !(bytes - 1);
        // All ones if the peer that reported the address is gone.
        let end = target.checked_add(length.max(1)).ok_or(Error::Invalid)?;
        let count = (end - start).div_ceil(bytes) as usize;
        let _held = self.tables.lock(cpu);
        let first = self.segments.borrow_mut().take_row(count, |n| {
            let target = if registers { 0 } else { start + n as u64 * bytes };
            WindowSegment { node, registers, target }
        });
        let first = first.ok_or(Error::NoSpace)?;
        for index in first..first + count {
            let segment = self.segments.borrow().get(index);
            self.write_segment(cpu, index, segment);
        }
        let at = self.window.start + first as u64 * bytes + (target - start);
        Ok(Mapping { at, length, first, count })
    }

    fn write_segment(&self, cpu: &Cpu, index: usize, segment: Option<WindowSegment>) {
        let words = segment.map_or([0, 0], WindowSegment::words);
        for (n, word) in (0..).zip(words) {
            self.registers.write_u64(cpu, regs::SEGMENT_TABLE + 16 * index as u64 + 8 * n, word);
        }
    }

    /// Unmaps a range and frees its segments.
    pub fn unmap(&self, cpu: &Cpu, mapping: Mapping) {
        let _held = self.tables.lock(cpu);
        for index in mapping.first..mapping.first + mapping.count {
            self.segments.borrow_mut().give(index);
            self.write_segment(cpu, index, None);
        }
    }

    /// Unmaps a range but keeps its segments.
    pub fn sever(&self, cpu: &Cpu, mapping: Mapping) {
        let _held = self.tables.lock(cpu);
        (mapping.first..mapping.first + mapping.count).for_each(|index| self.write_segment(cpu, index, None));
    }

    /// Lets a requester of this host send requests to other nodes, and returns its table index. Each call needs a
    /// matching [`remove_local`](Self::remove_local).
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the table is full.
    pub fn add_local(&self, cpu: &Cpu, requester: Bdf) -> Result<u8, Error> {
        let _held = self.tables.lock(cpu);
        let place = self.local.borrow_mut().take(requester).ok_or(Error::NoSpace)?;
        let at = regs::LOCAL_TABLE + 4 * place as u64;
        self.registers.write_u32(cpu, at, regs::local_entry(Some(requester)));
        Ok(place as u8)
    }

    /// Undoes one [`add_local`](Self::add_local).
    pub fn remove_local(&self, cpu: &Cpu, place: u8) {
        let _held = self.tables.lock(cpu);
        if self.local.borrow_mut().give(place.into()) {
            self.registers.write_u32(cpu, regs::LOCAL_TABLE + 4 * u64::from(place), 0);
        }
    }

    /// Lets a requester of another node, at index `place` of that node's table, send requests here. Returns its
    /// requester ID on this host.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the table is full.
    pub fn add_remote(&self, cpu: &Cpu, node: u8, place: u8) -> Result<Bdf, Error> {
        let _held = self.tables.lock(cpu);
        let own = self.remote.borrow_mut().take((node, place)).ok_or(Error::NoSpace)?;
        let at = regs::REMOTE_TABLE + 4 * own as u64;
        self.registers.write_u32(cpu, at, regs::remote_entry(Some((node, place))));
        Ok(regs::alias(self.device.address().bdf.bus(), own as u8))
    }

    /// Undoes one [`add_remote`](Self::add_remote). Returns whether that was the last.
    pub fn remove_remote(&self, cpu: &Cpu, alias: Bdf) -> bool {
        let place = regs::place_of(alias);
        let _held = self.tables.lock(cpu);
        let is_free = self.remote.borrow_mut().give(place.into());
        if is_free {
            self.registers.write_u32(cpu, regs::REMOTE_TABLE + 4 * u64::from(place), 0);
        }
        is_free
    }

    /// Lets requests with an ID from [`add_remote`](Self::add_remote) reach memory mapped by [`dma`](Self::dma).
    ///
    /// # Errors
    /// As [`PciOps::add_dma_alias`](platform::pci::PciOps::add_dma_alias).
    pub fn admit(&self, cpu: &Cpu, alias: Bdf) -> Result<(), Error> {
        self.device.add_dma_alias(cpu, alias)
    }

    /// Undoes [`admit`](Self::admit).
    pub fn dismiss(&self, cpu: &Cpu, alias: Bdf) {
        self.device.remove_dma_alias(cpu, alias);
    }

    /// Whether half of the entries of either requester table are in use.
    pub fn is_half_full(&self) -> bool {
        let [_, local, remote] = self.in_use();
        2 * local.max(remote) >= self.requesters
    }

    /// Used segments, own requesters and requesters of others.
    pub fn in_use(&self) -> [usize; 3] {
        [self.segments.borrow().used(), self.local.borrow().used(), self.remote.borrow().used()]
    }
}

impl PciDriver for NtbDriver {
    fn name(&self) -> &'static str {
        "ntb"
    }

    fn ids(&self) -> &[PciMatch] {
        const { &[PciMatch { vendor: None, device: None, class: Some((0x06_8000, 0xff_ffff)) }] }
    }

    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let adapter = NtbAdapter::bind(cpu, device).await?;
            (self.found)(cpu.clone(), Rc::clone(&adapter)).await;
            Ok(Rc::new(NtbBinding(adapter)) as Rc<dyn PciBinding>)
        })
    }
}

struct NtbBinding(Rc<NtbAdapter>);

impl PciBinding for NtbBinding {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            self.0.rung.borrow_mut().take();
            self.0.device.free_irqs(cpu).await;
            let lost = self.0.lost.borrow_mut().take();
            if let Some(lost) = lost {
                lost(cpu.clone()).await;
            }
        })
    }
}
