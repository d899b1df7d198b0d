//! Adapters with a non-transparent bridge: their windows, tables and doorbells, for who shares devices or memory over them.
//!
//! The driver keeps account of what is in use and writes the adapter's tables. Whom segments lead to, and why, is the business of
//! who asks for them.

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

/// Called in a task when a doorbell has rung or a cable has changed, with the bits that were set.
pub type Rung = Rc<dyn Fn(Cpu, u32) -> Async<'static, ()>>;

/// Who hears of adapters.
pub type Found = Rc<dyn Fn(Rc<NtbAdapter>)>;

/// Finds NTB adapters and hands each to whoever lends and borrows by it.
pub struct NtbDriver {
    found: Found,
}

impl NtbDriver {
    /// Tells `found` of each adapter that it is given.
    pub fn new(found: Found) -> Self {
        Self { found }
    }
}

/// A range of the window that leads to another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Where cores and devices of this host find its first byte.
    pub at: PhysAddr,
    /// Bytes.
    pub length: u64,
    /// Its segments.
    first: usize,
    count: usize,
}

impl Mapping {
    /// How many segments it takes.
    pub fn segments(&self) -> usize {
        self.count
    }
}

/// An adapter with its driver.
pub struct NtbAdapter {
    device: PciDevice,
    registers: Mmio,
    window: BarRange,
    node: u8,
    segment_bytes: u64,
    /// Held while a place is taken or given, and written: who has it next writes after that.
    tables: SpinLock,
    segments: RefCell<Places<WindowSegment>>,
    local: RefCell<Places<Bdf>>,
    remote: RefCell<Places<(u8, u8)>>,
    /// Places of each of the two tables.
    requesters: usize,
    rung: RefCell<Option<Rung>>,
}

impl NtbAdapter {
    async fn bind(cpu: &Cpu, device: PciDevice) -> Result<Rc<Self>, Error> {
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
        // Requests of others come in by it.
        adapter.device.set_master(cpu, true).await;
        Ok(adapter)
    }

    async fn ring_heard(&self, cpu: Cpu) {
        let bits = self.registers.read_u32(&cpu, regs::DOORBELL).await;
        if bits == u32::MAX {
            return;
        }
        self.registers.write_u32(&cpu, regs::DOORBELL_CLEAR, bits);
        // A read pushes what came before the bits were cleared.
        self.registers.read_u32(&cpu, regs::NODE).await;
        let rung = self.rung.borrow().clone();
        if let Some(rung) = rung {
            rung(cpu, bits).await;
        }
    }

    /// Calls `rung` when a doorbell has rung, from now on.
    pub fn on_ring(&self, rung: Rung) {
        *self.rung.borrow_mut() = Some(rung);
    }

    /// Where the adapter is.
    pub fn address(&self) -> FunctionAddress {
        self.device.address()
    }

    /// Its number in the cluster.
    pub fn node(&self) -> u8 {
        self.node
    }

    /// Segments of its window.
    pub fn segments(&self) -> usize {
        self.segments.borrow().places()
    }

    /// Bytes of a segment of its window.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Memory that other nodes reach by it, at the addresses that they use.
    pub fn dma(&self) -> Rc<dyn DmaOps> {
        self.device.dma()
    }

    /// A bit for each node to which a cable is up, and was all the time since it was last [admitted](Self::admit_nodes); none if the
    /// adapter does not answer.
    pub async fn reachable(&self, cpu: &Cpu) -> u64 {
        match self.registers.read_u64(cpu, regs::REACHABLE).await {
            u64::MAX => 0,
            nodes => nodes,
        }
    }

    /// Requests may pass again to and from nodes, a bit each, that were not [reachable](Self::reachable): all that went before has
    /// ended.
    pub fn admit_nodes(&self, cpu: &Cpu, nodes: u64) {
        self.registers.write_u64(cpu, regs::REACHABLE, nodes);
    }

    /// Sets one of its words, which other nodes read.
    pub fn set_scratchpad(&self, cpu: &Cpu, number: usize, value: u32) {
        self.registers.write_u32(cpu, regs::SCRATCHPADS + 4 * number as u64, value);
    }

    /// Lets a range of the window lead to `length` bytes from `target` on in another node.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are not so many segments free in a row.
    pub fn map(&self, cpu: &Cpu, node: u8, target: u64, length: u64) -> Result<Mapping, Error> {
        self.map_segments(cpu, node, false, (target, length))
    }

    /// Lets a segment lead to what another node's adapter shares of its registers.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if no segment is free.
    pub fn map_registers(&self, cpu: &Cpu, node: u8) -> Result<(Mmio, Mapping), Error> {
        let mapping = self.map_segments(cpu, node, true, (0, regs::SHARED_END))?;
        Ok((self.remap(mapping, MemoryType::Uncached)?, mapping))
    }

    /// A mapped range for cores, as memory of a type.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not one of the window.
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
        // An address that a device which is gone has told reads as all ones.
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

    /// Lets a range lead nowhere.
    pub fn unmap(&self, cpu: &Cpu, mapping: Mapping) {
        let _held = self.tables.lock(cpu);
        for index in mapping.first..mapping.first + mapping.count {
            self.segments.borrow_mut().give(index);
            self.write_segment(cpu, index, None);
        }
    }

    /// Lets a range lead nowhere, and keeps it.
    pub fn sever(&self, cpu: &Cpu, mapping: Mapping) {
        let _held = self.tables.lock(cpu);
        (mapping.first..mapping.first + mapping.count).for_each(|index| self.write_segment(cpu, index, None));
    }

    /// Lets a requester of this host ask other nodes; gives its place in the table. As often as it is added it has to be
    /// removed.
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

    /// Takes that back.
    pub fn remove_local(&self, cpu: &Cpu, place: u8) {
        let _held = self.tables.lock(cpu);
        if self.local.borrow_mut().give(place.into()) {
            self.registers.write_u32(cpu, regs::LOCAL_TABLE + 4 * u64::from(place), 0);
        }
    }

    /// Lets a requester of another node ask here, which is in that `place` of its table; gives what it is called here.
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

    /// Takes that back; says whether nobody has it any more.
    pub fn remove_remote(&self, cpu: &Cpu, alias: Bdf) -> bool {
        let place = regs::place_of(alias);
        let _held = self.tables.lock(cpu);
        let is_free = self.remote.borrow_mut().give(place.into());
        if is_free {
            self.registers.write_u32(cpu, regs::REMOTE_TABLE + 4 * u64::from(place), 0);
        }
        is_free
    }

    /// Lets requests that come under a name of [`add_remote`](Self::add_remote) reach what [`dma`](Self::dma) maps.
    ///
    /// # Errors
    /// As [`PciOps::add_dma_alias`](platform::pci::PciOps::add_dma_alias).
    pub fn admit(&self, cpu: &Cpu, alias: Bdf) -> Result<(), Error> {
        self.device.add_dma_alias(cpu, alias)
    }

    /// Ends that.
    pub fn dismiss(&self, cpu: &Cpu, alias: Bdf) {
        self.device.remove_dma_alias(cpu, alias);
    }

    /// Whether half of the places for requesters are taken, its own or those of others.
    pub fn is_half_full(&self) -> bool {
        let [_, local, remote] = self.in_use();
        2 * local.max(remote) >= self.requesters
    }

    /// Segments, own requesters and those of others that are in use.
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
            (self.found)(Rc::clone(&adapter));
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
        })
    }
}
