//! A function, with its interface for drivers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node};
use platform::dma::DmaOps;
use platform::irq::{Affinity, Irq, IrqHandler, IrqMoved, IrqThread};
use platform::memory::PhysAddr;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::{BarRange, Identity, PciBinding, PciDriver, PciOps};
use platform::sync::Semaphore;
use units::Duration;
use wire::pcie::config::caps::{Found, extended_id};
use wire::pcie::config::{Bar, BarKind, header, pcie_cap};
use wire::pcie::{Bdf, FunctionAddress, Segment};

use super::backend::{Backend, OWN_SEGMENT};
use super::iov::Iov;
use super::mmio::{Reach, Region};
use super::{Aperture, ErrorCounters, Pci};
use crate::dma::{FunctionDma, Member};

/// Port types with a link below: root port, downstream port.
const LINK_BELOW: [u16; 2] = [4, 6];

pub(crate) struct Function {
    pci: Weak<Pci>,
    /// Access to the function, also for its driver.
    pub(super) backend: Rc<dyn Backend>,
    pub(super) segment: Segment,
    pub(super) bdf: Bdf,
    /// Root port that its requests arrive at; itself if it is one.
    pub(super) root: Bdf,
    /// Bridge above it, in its own segment; `None` for a borrowed function.
    pub(super) parent: Option<Bdf>,
    pub(super) identity: Identity,
    pub(super) header_type: u8,
    pub(super) multi_function: bool,
    pub(super) node: Node,
    pub(super) caps: Vec<Found>,
    pub(super) extended: Vec<Found>,
    pub(super) pcie: Option<u16>,
    port_type: u16,
    /// Whether it is a bridge with a hot-plug slot.
    pub(super) slot: bool,
    pub(super) bars: RefCell<[Option<Bar>; 6]>,
    pub(super) secondary: Cell<u8>,
    pub(super) subordinate: Cell<u8>,
    /// Start and length of a bridge's windows.
    pub(super) windows: RefCell<[Option<(u64, u64)>; 2]>,
    /// Free space in the windows.
    pub(super) spare: RefCell<[Aperture; 2]>,
    /// Former addresses and sizes of BARs of removed functions below.
    pub(super) kept: RefCell<BTreeMap<(Bdf, u8), (u64, u64)>>,
    pub(super) max_payload: Cell<u32>,
    /// Whether requests and completions from below only go upstream, and cannot reach neighbouring ports.
    pub(super) isolates: Cell<bool>,
    /// Whether all possible completers support 10-bit tags.
    pub(super) ten_bit_tags: Cell<bool>,
    /// Cleared on removal. Shared with mappings of its BARs.
    pub(super) present: Rc<Cell<bool>>,
    /// Set during error recovery, when drivers' accesses are blocked. Shared with mappings of its BARs.
    pub(super) frozen: Rc<Cell<bool>>,
    /// Errors that it reported.
    pub(super) errors: Cell<ErrorCounters>,
    pub(super) dma: RefCell<Option<Rc<FunctionDma>>>,
    pub(super) irqs: RefCell<Vec<Irq>>,
    /// BAR and offset of the MSI-X table.
    pub(super) msix_table: Cell<Option<(u8, u64)>>,
    pub(super) driver: RefCell<Option<Bound>>,
    /// Serialises bind and unbind.
    pub(super) binds: Semaphore,
    /// SR-IOV state, if it supports virtual functions.
    pub(super) iov: RefCell<Option<Iov>>,
    /// Physical function of a virtual one.
    pub(super) physical: Option<Bdf>,
}

/// The bound driver and its binding.
pub(super) struct Bound {
    pub driver: Rc<dyn PciDriver>,
    pub binding: Rc<dyn PciBinding>,
}

/// A function under construction.
pub(super) struct Draft(Function);

impl Function {
    pub(super) fn draft(
        pci: &Rc<Pci>,
        at: FunctionAddress,
        backend: Rc<dyn Backend>,
        parent: Option<Bdf>,
        identity: Identity,
        header_type: u8,
    ) -> Draft {
        let root = backend.root_port();
        let node = pci.cores.ground.node_of_port(root).unwrap_or(Node(0));
        Draft(Self {
            pci: Rc::downgrade(pci),
            backend,
            segment: at.segment,
            bdf: at.bdf,
            root,
            parent,
            identity,
            header_type: header_type & 0x7f,
            multi_function: header_type & 0x80 != 0,
            node,
            caps: Vec::new(),
            extended: Vec::new(),
            pcie: None,
            port_type: 0,
            slot: false,
            bars: RefCell::default(),
            secondary: Cell::new(0),
            subordinate: Cell::new(0),
            windows: RefCell::default(),
            spare: RefCell::default(),
            kept: RefCell::default(),
            max_payload: Cell::new(128),
            isolates: Cell::new(true),
            ten_bit_tags: Cell::new(false),
            present: Rc::new(Cell::new(true)),
            frozen: Rc::default(),
            errors: Cell::default(),
            dma: RefCell::new(None),
            irqs: RefCell::default(),
            msix_table: Cell::new(None),
            driver: RefCell::new(None),
            binds: Semaphore::new(1),
            iov: RefCell::new(None),
            physical: None,
        })
    }

    /// NUMA node of the function.
    pub const fn node(&self) -> Node {
        self.node
    }

    /// Root port that its requests arrive at.
    pub const fn root(&self) -> Bdf {
        self.root
    }

    /// Its interrupts.
    pub fn irqs(&self) -> Vec<Irq> {
        self.irqs.borrow().clone()
    }

    /// Errors that it reported; `None` if it cannot report any.
    pub fn errors(&self) -> Option<ErrorCounters> {
        self.aer().map(|_| self.errors.get())
    }

    /// Pages mapped in the IOMMU, if the driver has used the DMA API.
    pub fn mapped_pages(&self) -> Option<u64> {
        self.dma.borrow().as_ref().map(|dma| dma.mapped_pages())
    }

    /// Link capabilities and link status registers.
    pub async fn link(&self, cpu: &Cpu) -> Option<(u32, u32)> {
        let at = self.pcie.filter(|_| self.physical.is_none())?;
        let most = self.backend.config_read(cpu, at + pcie_cap::LINK_CAPABILITIES).await;
        let status = self.backend.config_read(cpu, at + pcie_cap::LINK_CONTROL).await >> 16;
        Some((most, status))
    }

    /// Segment and BDF.
    pub const fn at(&self) -> FunctionAddress {
        self.beside(self.bdf)
    }

    /// Another address in its segment.
    pub const fn beside(&self, bdf: Bdf) -> FunctionAddress {
        FunctionAddress { segment: self.segment, bdf }
    }

    /// Whether it is on the host's own fabric.
    pub fn is_own(&self) -> bool {
        self.segment == OWN_SEGMENT
    }

    /// Whether it is directly below `bridge`.
    pub fn is_below(&self, bridge: &Self) -> bool {
        self.segment == bridge.segment && self.parent == Some(bridge.bdf)
    }

    /// Whether its bus is behind `bridge`.
    pub fn is_behind(&self, bridge: &Self) -> bool {
        let buses = bridge.secondary.get()..=bridge.subordinate.get();
        self.segment == bridge.segment && self.bdf != bridge.bdf && buses.contains(&self.bdf.bus())
    }

    pub fn is_bridge(&self) -> bool {
        self.header_type == 1
    }

    pub fn has_link_below(&self) -> bool {
        self.is_bridge() && LINK_BELOW.contains(&self.port_type)
    }

    /// Its driver's binding.
    pub fn binding(&self) -> Option<Rc<dyn PciBinding>> {
        self.driver.borrow().as_ref().map(|bound| Rc::clone(&bound.binding))
    }

    /// Offset of the ACS capability.
    pub fn access_control(&self) -> Option<u16> {
        self.extended.iter().find(|c| c.id == extended_id::ACS).map(|c| c.offset)
    }

    /// Offset of the AER capability.
    pub fn aer(&self) -> Option<u16> {
        self.extended.iter().find(|c| c.id == extended_id::AER).map(|c| c.offset)
    }

    /// Whether drivers' accesses reach it.
    pub fn answers(&self) -> bool {
        self.present.get() && !self.frozen.get()
    }

    pub(super) fn count_error(&self, change: impl FnOnce(&mut ErrorCounters)) {
        let mut errors = self.errors.get();
        change(&mut errors);
        self.errors.set(errors);
    }

    fn pci(&self) -> Result<Rc<Pci>, Error> {
        self.pci.upgrade().ok_or(Error::NoDevice)
    }

    /// Its membership in an IOMMU group. It shares a domain with everything below the topmost switch above it whose
    /// ports do not isolate. Root ports always isolate.
    pub fn member(&self) -> Member {
        let requester = self.backend.requester();
        let leader = self.backend.shares_domain_of().unwrap_or(requester);
        let mut member = Member { requester, leader };
        let bridge = |at: Option<Bdf>| at.and_then(|at| self.pci.upgrade()?.function(self.beside(at)));
        let mut above = bridge(self.parent);
        while let Some(port) = above.filter(|port| port.bdf != self.root) {
            if !port.isolates.get() {
                member.leader = port.parent.unwrap_or(port.bdf);
            }
            above = bridge(port.parent);
        }
        member
    }

    /// Its DMA API, created on first use.
    pub fn dma_api(&self) -> Rc<FunctionDma> {
        let mut dma = self.dma.borrow_mut();
        let made = dma.get_or_insert_with(|| {
            let pci = self.pci().expect("a driver does not outlive its kernel");
            let owners = Weak::<Pci>::clone(&self.pci);
            FunctionDma::new(Rc::clone(&pci.dma), owners, self.member(), self.root, self.node)
        });
        Rc::clone(made)
    }
}

impl Draft {
    pub fn with_capabilities(
        mut self,
        caps: Vec<Found>,
        extended: Vec<Found>,
        pcie: Option<u16>,
        pcie_caps: u16,
    ) -> Self {
        self.0.caps = caps;
        self.0.extended = extended;
        self.0.pcie = pcie;
        self.0.port_type = pcie_caps >> 4 & 0xf;
        self.0.slot = self.0.header_type == 1 && pcie_caps & 1 << 8 != 0;
        self
    }

    pub fn with_bars(self, bars: [Option<Bar>; 6]) -> Self {
        *self.0.bars.borrow_mut() = bars;
        self
    }

    pub fn part_of(mut self, physical: Bdf) -> Self {
        self.0.physical = Some(physical);
        self
    }

    pub fn finish(self) -> Rc<Function> {
        Rc::new(self.0)
    }
}

/// As in logs: functions of the own fabric without a segment.
impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.segment {
            OWN_SEGMENT => self.bdf.fmt(f),
            _ => self.at().fmt(f),
        }
    }
}

impl PciOps for Function {
    fn address(&self) -> FunctionAddress {
        self.at()
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn node(&self) -> Node {
        self.node
    }

    fn kernel(&self) -> Rc<dyn platform::kernel::Kernel> {
        self.pci().ok().and_then(|pci| pci.face.upgrade()).expect("a driver does not outlive its kernel")
    }

    fn dma(&self) -> Rc<dyn DmaOps> {
        self.backend.dma(self.dma_api())
    }

    fn is_present(&self) -> bool {
        self.present.get()
    }

    fn config_read<'a>(&'a self, cpu: &'a Cpu, offset: u16) -> Async<'a, u32> {
        Box::pin(async move {
            if self.answers() { self.backend.config_read(cpu, offset).await } else { u32::MAX }
        })
    }

    fn config_write<'a>(&'a self, cpu: &'a Cpu, offset: u16, value: u32, enables: u8) -> Async<'a, ()> {
        Box::pin(async move {
            if self.answers() {
                self.backend.config_write(cpu, offset, value, enables).await;
            }
        })
    }

    fn capability(&self, id: u8) -> Option<u16> {
        self.caps.iter().find(|c| c.id == u16::from(id)).map(|c| c.offset)
    }

    fn extended_capability(&self, id: u16) -> Option<u16> {
        self.extended.iter().find(|c| c.id == id).map(|c| c.offset)
    }

    fn bar(&self, bar: u8) -> Option<BarRange> {
        let bar = (*self.bars.borrow().get(usize::from(bar))?)?;
        let prefetchable = match bar.kind {
            BarKind::Io => return None,
            BarKind::Memory32 { prefetchable } | BarKind::Memory64 { prefetchable } => prefetchable,
        };
        Some(BarRange { start: PhysAddr(bar.address), length: bar.size, prefetchable })
    }

    fn ioremap(&self, bar: u8, offset: u64, length: u64, kind: MemoryType) -> Result<Mmio, Error> {
        let range = self.bar(bar).ok_or(Error::Invalid)?;
        if length == 0 || offset.checked_add(length).is_none_or(|end| end > range.length) {
            return Err(Error::Invalid);
        }
        let cores = Rc::clone(&self.pci()?.cores);
        let range = self.backend.map_bar(bar, range)?;
        let reach = Reach { present: Rc::clone(&self.present), frozen: Rc::clone(&self.frozen) };
        let region = Region::new(cores, range.start + offset, length, kind, reach);
        Ok(Mmio::new(Rc::new(region)))
    }

    fn set_master<'a>(&'a self, cpu: &'a Cpu, on: bool) -> Async<'a, ()> {
        Box::pin(async move {
            if !self.answers() {
                return;
            }
            let command = self.backend.config_read(cpu, header::COMMAND).await;
            let bit = u32::from(header::COMMAND_BUS_MASTER);
            let command = if on { command | bit } else { command & !bit };
            // Write one byte only: masking of a legacy interrupt may change the upper byte at the same time.
            self.backend.config_write(cpu, header::COMMAND, command, 1).await;
        })
    }

    fn alloc_irqs<'a>(
        &'a self,
        cpu: &'a Cpu,
        least: u16,
        most: u16,
        affinity: Affinity,
    ) -> Async<'a, Result<Vec<Irq>, Error>> {
        Box::pin(async move { self.pci()?.alloc_irqs(cpu, self, least, most, &affinity).await })
    }

    fn alloc_intx<'a>(&'a self, cpu: &'a Cpu, affinity: Affinity) -> Async<'a, Result<Irq, Error>> {
        Box::pin(async move { self.pci()?.alloc_intx(cpu, self, &affinity).await })
    }

    fn free_irqs<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            if let Ok(pci) = self.pci() {
                pci.free_irqs(cpu, self).await;
            }
        })
    }

    fn request_irq(
        &self,
        irq: Irq,
        name: &str,
        handler: IrqHandler,
        thread: Option<IrqThread>,
    ) -> Result<(), Error> {
        if !self.irqs.borrow().contains(&irq) {
            return Err(Error::Invalid);
        }
        self.pci()?.irqs.request(irq, name, handler, thread)
    }

    fn mask_irq(&self, cpu: &Cpu, irq: Irq, masked: bool) {
        if let Ok(pci) = self.pci() {
            pci.mask_irq(cpu, self, irq, masked);
        }
    }

    fn set_irq_affinity<'a>(&'a self, cpu: &'a Cpu, irq: Irq, to: CpuId) -> Async<'a, Result<(), Error>> {
        Box::pin(async move { self.pci()?.move_irq(cpu, irq, to).await })
    }

    fn on_irq_moved(&self, irq: Irq, moved: IrqMoved) {
        let line = self.pci().ok().and_then(|pci| pci.irqs.line(irq));
        if let Some(line) = line.filter(|_| self.irqs.borrow().contains(&irq)) {
            line.on_moved(moved);
        }
    }

    fn free_irq(&self, irq: Irq) {
        if let Ok(pci) = self.pci() {
            pci.irqs.free(irq);
        }
    }

    fn reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let pci = self.pci()?;
            let pcie = self.pcie.ok_or(Error::NotSupported)?;
            let capabilities = self.backend.config_read(cpu, pcie + pcie_cap::DEVICE_CAPABILITIES).await;
            if capabilities & pcie_cap::CAPABLE_OF_FLR == 0 {
                let me = pci.function(self.at()).ok_or(Error::NoDevice)?;
                return pci.reset_by_bus(cpu, &me).await;
            }
            let control = self.backend.read_u16(cpu, pcie + pcie_cap::DEVICE_CONTROL).await;
            let control = control | pcie_cap::CONTROL_FLR;
            self.backend.write_u16(cpu, pcie + pcie_cap::DEVICE_CONTROL, control).await;
            // The function must answer within 100 ms (base spec 6.6.2).
            cpu.sleep(Duration::from_ms(100)).await;
            pci.restore(cpu, self).await;
            Ok(())
        })
    }

    fn add_dma_alias(&self, cpu: &Cpu, requester: Bdf) -> Result<(), Error> {
        self.dma_api().add_alias(cpu, requester)
    }

    fn remove_dma_alias(&self, cpu: &Cpu, requester: Bdf) {
        self.dma_api().remove_alias(cpu, requester);
    }

    fn enable_sriov<'a>(&'a self, cpu: &'a Cpu, count: u16) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let pci = self.pci()?;
            let me = pci.function(self.at()).ok_or(Error::NoDevice)?;
            pci.enable_virtual_functions(cpu, &me, count).await
        })
    }

    fn disable_sriov<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            if let Ok(pci) = self.pci()
                && let Some(me) = pci.function(self.at())
            {
                pci.disable_virtual_functions(cpu, &me).await;
            }
        })
    }
}
