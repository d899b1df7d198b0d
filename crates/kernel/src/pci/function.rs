//! A function: what its configuration space says, and the registers that the PCI core writes.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Node};
use platform::memory::PhysAddr;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::{BarRange, Identity};
use wire::pcie::config::caps::extended_id;
use wire::pcie::config::header::{self, Window};
use wire::pcie::config::{Bar, BarKind, ltr, pcie_cap, slot};
use wire::pcie::{Bdf, FunctionAddress, Segment};

use super::addresses::{BaseAddresses, Forwards};
use super::backend::{Backend, OWN_SEGMENT};
use super::capabilities::CapabilityLists;
use super::mmio::{Reach, Region};
use super::resize::Resizable;
use super::resources::WINDOW;
use crate::cpu::Cores;
use crate::dma::{FunctionDma, MessageSource};

/// Slot control: interrupt on presence and link changes (base spec 7.5.3.10: bits 3, 5, 12).
pub(super) const SLOT_INTERRUPTS: u16 =
    slot::STATUS_PRESENCE_CHANGED | slot::CONTROL_INTERRUPTS | slot::CONTROL_LINK_CHANGED;
/// Slot status: event bits, cleared by writing ones (7.5.3.11).
pub(super) const SLOT_EVENTS: u16 = 0x011f;

/// Errors that functions reported (AER), and what recovery made of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorCounters {
    /// Errors corrected by hardware.
    pub correctable: u64,
    /// Non-fatal errors: a request was lost.
    pub non_fatal: u64,
    /// Fatal errors: the link or the function is unreliable.
    pub fatal: u64,
    /// Functions that work again after an error.
    pub recovered: u64,
    /// Functions that were given up.
    pub failed: u64,
    /// Ports that took their link down (downstream port containment), whose errors are among those above.
    pub contained: u64,
}

/// Error counters that several parts add to.
#[derive(Default)]
pub(super) struct ErrorTally(Cell<ErrorCounters>);

impl ErrorTally {
    pub fn get(&self) -> ErrorCounters {
        self.0.get()
    }

    pub fn count(&self, change: impl FnOnce(&mut ErrorCounters)) {
        let mut counters = self.0.get();
        change(&mut counters);
        self.0.set(counters);
    }
}

/// What is known of a function: a record that all parts read.
pub(crate) struct Function {
    // Written by nobody.
    /// Access to the function, also for its driver.
    pub(super) backend: Rc<dyn Backend>,
    pub(super) segment: Segment,
    pub(super) bdf: Bdf,
    /// Root port that its requests arrive at; itself if it is one.
    pub(super) root: Bdf,
    /// Bridge above it, in its own segment; `None` for a borrowed function.
    pub(super) parent: Option<Bdf>,
    /// Physical function of a virtual one.
    pub(super) physical: Option<Bdf>,
    pub(super) identity: Identity,
    header_type: u8,
    pub(super) node: Node,
    pub(super) capabilities: CapabilityLists,

    /// BARs that can be resized.
    pub(super) resizable: Vec<Resizable>,

    // Written by `space`.
    pub(super) bars: BaseAddresses,

    // Buses written by `enumerate`, windows by `space`.
    pub(super) forwards: Forwards,

    // Written by `settings`; the size also by `hotplug` and `iov`.
    pub(super) max_payload: Cell<u32>,
    /// Whether requests and completions from below only go upstream, and cannot reach neighbouring ports.
    pub(super) isolates: Cell<bool>,
    /// Whether it may report the latency that it tolerates, or pass on such reports (Linux: `ltr_path`).
    pub latency_path: Cell<bool>,
    /// Whether all possible completers support 10-bit tags.
    pub(super) ten_bit_tags: Cell<bool>,

    // Written by `drivers`, `hotplug` and `recovery`.
    pub(super) reach: Reach,

    // Written by `aer`.
    /// Errors that it reported.
    pub(super) errors: ErrorTally,

    // Written by `topology` and `drivers`.
    pub(super) dma: RefCell<Option<Rc<FunctionDma>>>,
}

/// What a function says of itself.
pub(super) struct Probed {
    pub identity: Identity,
    /// As in the register.
    pub header_type: u8,
    pub capabilities: CapabilityLists,
    pub bars: [Option<Bar>; 6],
    /// Those of them that can be resized.
    pub resizable: Vec<Resizable>,
}

impl Function {
    /// A function below `parent`; of a `physical` one if it is virtual.
    pub(super) fn new(
        at: FunctionAddress,
        backend: Rc<dyn Backend>,
        (parent, physical): (Option<Bdf>, Option<Bdf>),
        node: Node,
        probed: Probed,
    ) -> Self {
        let Probed { identity, header_type, capabilities, bars, resizable } = probed;
        Self {
            segment: at.segment,
            bdf: at.bdf,
            root: backend.root_port(),
            backend,
            parent,
            physical,
            identity,
            header_type,
            node,
            capabilities,
            resizable,
            bars: BaseAddresses::new(header::BAR0, bars),
            forwards: Forwards::default(),
            max_payload: Cell::new(128),
            isolates: Cell::new(true),
            latency_path: Cell::new(false),
            ten_bit_tags: Cell::new(false),
            reach: Reach::default(),
            errors: ErrorTally::default(),
            dma: RefCell::new(None),
        }
    }

    /// NUMA node of the function.
    pub const fn node(&self) -> Node {
        self.node
    }

    /// Root port that its requests arrive at.
    pub const fn root(&self) -> Bdf {
        self.root
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
        let at = self.pcie().filter(|_| self.physical.is_none())?;
        let most = self.backend.config_read(cpu, at + pcie_cap::LINK_CAPABILITIES).await;
        let status = self.backend.config_read(cpu, at + pcie_cap::LINK_CONTROL).await >> 16;
        Some((most, status))
    }

    /// Longest latency that it may report, in nanoseconds, if it reports any.
    pub async fn latency_maximum(&self, cpu: &Cpu) -> Option<u64> {
        let at = self.extended_capability(extended_id::LTR)?;
        let register = self.backend.config_read(cpu, at + ltr::MAX_SNOOP).await;
        Some(ltr::decode(register as u16).as_ps() / 1000)
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
        let buses = bridge.forwards.secondary()..=bridge.forwards.subordinate();
        self.segment == bridge.segment && self.bdf != bridge.bdf && buses.contains(&self.bdf.bus())
    }

    pub fn is_bridge(&self) -> bool {
        self.header_type & 0x7f == 1
    }

    /// Whether its device has other functions.
    pub(super) fn has_others_beside(&self) -> bool {
        self.header_type & 0x80 != 0
    }

    pub fn has_link_below(&self) -> bool {
        self.is_bridge() && self.capabilities.is_above_link()
    }

    /// Offset of the ACS capability.
    pub fn access_control(&self) -> Option<u16> {
        self.extended_capability(extended_id::ACS)
    }

    /// Offset of the AER capability.
    pub fn aer(&self) -> Option<u16> {
        self.extended_capability(extended_id::AER)
    }

    /// Offset of the capability of downstream port containment.
    pub(super) fn containment(&self) -> Option<u16> {
        self.extended_capability(extended_id::DPC)
    }

    /// Whether drivers' accesses reach it.
    pub fn answers(&self) -> bool {
        self.reach.is_open()
    }

    /// Offset of the PCI Express capability.
    pub(super) fn pcie(&self) -> Option<u16> {
        self.capabilities.pcie()
    }

    /// The same, of a bridge with a hot-plug slot.
    pub(super) fn slot(&self) -> Option<u16> {
        self.capabilities.slot().filter(|_| self.is_bridge())
    }

    /// Offset of the SR-IOV capability.
    pub(super) fn sriov(&self) -> Option<u16> {
        self.extended_capability(extended_id::SRIOV)
    }

    /// Offset of a capability.
    pub(super) fn capability(&self, id: u8) -> Option<u16> {
        self.capabilities.offset(id)
    }

    /// Offset of an extended capability.
    pub(super) fn extended_capability(&self, id: u16) -> Option<u16> {
        self.capabilities.extended_offset(id)
    }

    /// Sender of its messages.
    pub fn message_source(&self) -> MessageSource {
        MessageSource { node: self.node, requester: self.backend.requester() }
    }

    /// Address and size of a memory BAR.
    pub(super) fn bar(&self, bar: u8) -> Option<BarRange> {
        let bar = self.bars.get(bar)?;
        let prefetchable = match bar.kind {
            BarKind::Io => return None,
            BarKind::Memory32 { prefetchable } | BarKind::Memory64 { prefetchable } => prefetchable,
        };
        Some(BarRange { start: PhysAddr(bar.address), length: bar.size, prefetchable })
    }

    /// Maps a part of a BAR for cores.
    pub(super) fn map(
        &self,
        cores: &Rc<Cores>,
        bar: u8,
        offset: u64,
        length: u64,
        kind: MemoryType,
    ) -> Result<Mmio, Error> {
        let range = self.bar(bar).ok_or(Error::Invalid)?;
        if length == 0 || offset.checked_add(length).is_none_or(|end| end > range.length) {
            return Err(Error::Invalid);
        }
        let range = self.backend.map_bar(bar, range)?;
        let region = Region::new(Rc::clone(cores), range.start + offset, length, kind, self.reach.clone());
        Ok(Mmio::new(Rc::new(region)))
    }

    /// Sizes that a BAR can get, the largest first: up to `most`, but not below what it has after a reset.
    pub(super) fn sizes_of(&self, number: u8, bar: &Bar, most: Option<u64>) -> Vec<u64> {
        let resizable = self.resizable.iter().find(|own| own.bar == number);
        let most = most.unwrap_or(bar.size).max(bar.size);
        let sizes: Vec<u64> = resizable.map(|own| own.sizes(bar.size, most).collect()).unwrap_or_default();
        if sizes.is_empty() { vec![bar.size] } else { sizes }
    }

    /// Writes the sizes of BARs that can be resized.
    pub(super) async fn write_sizes(&self, cpu: &Cpu) {
        for own in &self.resizable {
            if let Some(bar) = self.bars.get(own.bar) {
                own.set(cpu, &*self.backend, bar.size).await;
            }
        }
    }

    /// Possible sizes of the BARs that can be resized, bit n for 2^n MiB.
    pub fn resizable_bars(&self) -> impl Iterator<Item = (u8, u32)> + '_ {
        self.resizable.iter().map(|own| (own.bar, own.mask()))
    }

    /// Writes a BAR's address to its register, or registers if it has 64 bits.
    pub(super) async fn set_bar(&self, cpu: &Cpu, number: u8, address: u64) {
        self.bars.set(cpu, &*self.backend, number, address).await;
    }

    /// Writes the address range of a bridge's window; none with length 0.
    pub(super) async fn set_window(&self, cpu: &Cpu, window: usize, start: u64, length: u64) {
        // A window is disabled by a limit below its base.
        let range = match length {
            0 => Window { base: WINDOW, limit: 0 },
            _ => Window { base: start, limit: start + length - 1 },
        };
        if window == 0 {
            self.backend.config_write(cpu, header::MEMORY_WINDOW, range.to_memory(), 0xf).await;
        } else {
            let at = header::PREFETCHABLE_WINDOW;
            self.backend.config_write(cpu, at + 4, (range.base >> 32) as u32, 0xf).await;
            self.backend.config_write(cpu, at + 8, (range.limit >> 32) as u32, 0xf).await;
            self.backend.config_write(cpu, at, range.to_memory(), 0xf).await;
        }
    }

    /// Whether the link below a port is up.
    pub(super) async fn link_is_active(&self, cpu: &Cpu) -> bool {
        let Some(pcie) = self.pcie().filter(|_| self.has_link_below()) else { return true };
        let link = self.backend.config_read(cpu, pcie + pcie_cap::LINK_CONTROL).await;
        (link >> 16) as u16 & pcie_cap::LINK_STATUS_ACTIVE != 0
    }

    /// Clears a slot's pending events before its current state is read.
    pub(super) async fn forget_slot_events(&self, cpu: &Cpu) {
        if let Some(pcie) = self.slot() {
            self.backend.write_u16(cpu, pcie + slot::STATUS, SLOT_EVENTS).await;
        }
    }

    /// Enables or disables its legacy interrupt.
    pub(super) async fn enable_intx(&self, cpu: &Cpu, on: bool) {
        let command = self.backend.read_u16(cpu, header::COMMAND).await;
        let disable = header::COMMAND_INTX_DISABLE;
        let command = if on { command & !disable } else { command | disable };
        self.backend.write_u16(cpu, header::COMMAND, command).await;
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
