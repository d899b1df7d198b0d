//! SR-IOV (base spec chapter 9): address space for virtual functions, enabling and disabling them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use platform::pci::Identity;
use units::Duration;
use wire::pcie::config::VirtualFunctions as Enabled;
use wire::pcie::config::{Bar, header, pcie_cap, sriov};
use wire::pcie::{Bdf, FunctionAddress};

use super::addresses::BaseAddresses;
use super::backend::Backend;
use super::base::PciBase;
use super::capabilities::CapabilityLists;
use super::function::{Function, Probed};
use super::probe::size_bars_at;
use super::topology::Topology;

/// From setting VF Enable until virtual functions must answer (base spec 9.3.3.3.1).
const BEFORE_FIRST_ACCESS: Duration = Duration::from_ms(100);
/// From clearing VF Enable until other fields may change (same section).
const AFTER_DISABLING: Duration = Duration::from_ms(1000);

/// SR-IOV state of a physical function.
struct Iov {
    /// Offset of the capability.
    at: u16,
    /// TotalVFs: most virtual functions that can be enabled.
    total: u16,
    /// Device ID of the virtual functions.
    device: u16,
    /// BARs of the first virtual function, followed by those of the others.
    bars: BaseAddresses,
    enabled: RefCell<Vec<Rc<Function>>>,
    /// The number of virtual functions is being changed.
    busy: Cell<bool>,
}

/// The virtual functions of all physical ones.
pub(super) struct VirtualFunctions {
    base: PciBase,
    topology: Rc<Topology>,
    /// By address of the physical function.
    iovs: RefCell<BTreeMap<FunctionAddress, Rc<Iov>>>,
}

impl VirtualFunctions {
    pub fn new(base: PciBase, topology: Rc<Topology>) -> Self {
        Self { base, topology, iovs: RefCell::default() }
    }

    fn of(&self, function: &Function) -> Option<Rc<Iov>> {
        self.iovs.borrow().get(&function.at()).cloned()
    }

    /// Drops all functions.
    pub fn clear(&self) {
        self.iovs.borrow_mut().clear();
    }

    /// Reads a function's SR-IOV capability.
    pub async fn find(&self, cpu: &Cpu, function: &Function) {
        self.iovs.borrow_mut().remove(&function.at());
        let Some(at) = function.sriov() else { return };
        let total = (function.backend.config_read(cpu, at + sriov::INITIAL).await >> 16) as u16;
        let device = (function.backend.config_read(cpu, at + sriov::DEVICE - 2).await >> 16) as u16;
        if total == 0 {
            return;
        }
        // Page size: 4 KiB, as the IOMMU's.
        function.backend.config_write(cpu, at + sriov::SYSTEM_PAGES, 1, 0xf).await;
        let first = at + sriov::BAR0;
        let bars = BaseAddresses::new(first, size_bars_at(cpu, &*function.backend, first, 6).await);
        let iov = Iov { at, total, device, bars, enabled: RefCell::default(), busy: Cell::new(false) };
        self.iovs.borrow_mut().insert(function.at(), Rc::new(iov));
    }

    /// Tells a function whether the port above forwards by all eight bits of the function number, as soon as that is known (Linux:
    /// `sriov_init`; lspci shows it without virtual functions, too).
    pub async fn tell_hierarchy(&self, cpu: &Cpu, function: &Function) {
        let Some(iov) = self.of(function) else { return };
        let hierarchy = self.hierarchy(cpu, function).await;
        function.backend.write_u16(cpu, iov.at + sriov::CONTROL, hierarchy).await;
    }

    /// BARs of a function's virtual functions: number, first BAR, bytes of all.
    pub fn bars(&self, function: &Function) -> Vec<(u8, Bar, u64)> {
        let Some(iov) = self.of(function) else { return Vec::new() };
        iov.bars.numbered().map(|(n, bar)| (n, bar, bar.size * u64::from(iov.total))).collect()
    }

    /// Sets a virtual-function BAR.
    pub async fn set_bar(&self, cpu: &Cpu, function: &Function, number: u8, address: u64) {
        if let Some(iov) = self.of(function) {
            iov.bars.set(cpu, &*function.backend, number, address).await;
        }
    }

    /// Enables `count` virtual functions, which still need drivers. None may be enabled before.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if there is no SR-IOV capability, [`Error::Invalid`] if `count` is too large,
    /// [`Error::Busy`] if some are enabled, [`Error::NoSpace`] if their BARs have no address space.
    pub async fn enable(
        &self,
        cpu: &Cpu,
        function: &Rc<Function>,
        count: u16,
    ) -> Result<Vec<Rc<Function>>, Error> {
        let iov = self.of(function).ok_or(Error::NotSupported)?;
        if iov.busy.get() || !iov.enabled.borrow().is_empty() {
            return Err(Error::Busy);
        }
        iov.busy.set(true);
        let bars = iov.bars.all();
        let outcome = match () {
            () if count == 0 || count > iov.total => Err(Error::Invalid),
            () if bars.iter().flatten().any(|bar| bar.address == 0) => Err(Error::NoSpace),
            () => Ok(self.switch_on(cpu, function, (iov.at, iov.device, count), bars).await),
        };
        iov.busy.set(false);
        if let Ok(found) = &outcome {
            iov.enabled.borrow_mut().clone_from(found);
        }
        outcome
    }

    /// The control bit that tells a function whether the port above forwards to functions beyond the eighth; only the
    /// device's first physical function has it.
    async fn hierarchy(&self, cpu: &Cpu, function: &Function) -> u16 {
        let (own, iovs) = (function.at(), self.iovs.borrow().keys().copied().collect::<Vec<_>>());
        let is_sibling = |at: &FunctionAddress| (at.segment, at.bdf.bus()) == (own.segment, own.bdf.bus());
        if iovs.iter().any(|at| is_sibling(at) && at.bdf < own.bdf) {
            return 0;
        }
        let Some(above) = self.topology.above(function) else { return 0 };
        let Some(pcie) = above.pcie() else { return 0 };
        let control = above.backend.config_read(cpu, pcie + pcie_cap::DEVICE_CONTROL_2).await as u16;
        if control & pcie_cap::CONTROL_2_ARI_FORWARDING != 0 { sriov::ARI_HIERARCHY } else { 0 }
    }

    async fn switch_on(
        &self,
        cpu: &Cpu,
        function: &Rc<Function>,
        (at, device, count): (u16, u16, u16),
        bars: [Option<Bar>; 6],
    ) -> Vec<Rc<Function>> {
        let way = &function.backend;
        // Offset and stride may depend on this, too (base spec 9.3.3.3.5).
        let hierarchy = self.hierarchy(cpu, function).await;
        way.write_u16(cpu, at + sriov::CONTROL, hierarchy).await;
        way.write_u16(cpu, at + sriov::NUMBER, count).await;
        // Offset and stride may depend on the number of virtual functions.
        let placing = way.config_read(cpu, at + sriov::OFFSET_STRIDE).await;
        let control = sriov::ENABLE | sriov::MEMORY | hierarchy;
        way.write_u16(cpu, at + sriov::CONTROL, control).await;
        cpu.sleep(BEFORE_FIRST_ACCESS).await;
        let (first_offset, stride) = (placing as u16, (placing >> 16) as u16);
        let all = Enabled { enabled: true, memory: true, count, first_offset, stride, bars };
        let mut found = Vec::new();
        for n in 0..count {
            let id = all.id(function.bdf, n);
            let Some(way) = function.backend.virtual_function(id) else { break };
            let class = way.config_read(cpu, header::REVISION).await;
            if class == u32::MAX {
                self.base.log.warn(format!("pci {id}: virtual function {n} does not answer"));
                continue;
            }
            let identity = Identity { device, class: class >> 8, revision: class as u8, ..function.identity };
            let bars = core::array::from_fn(|bar| all.bar(bar as u8, n));
            found.push(self.create(cpu, function, (id, way), identity, bars).await);
        }
        self.base.log.write(format!("pci {function}: {} virtual functions", found.len()));
        found
    }

    async fn create(
        &self,
        cpu: &Cpu,
        physical: &Rc<Function>,
        (id, way): (Bdf, Rc<dyn Backend>),
        identity: Identity,
        bars: [Option<Bar>; 6],
    ) -> Rc<Function> {
        let node = self.base.node_of(&*way);
        let capabilities = CapabilityLists::read(cpu, &*way).await;
        let resizable = Vec::new();
        let probed = Probed { identity, header_type: 0, capabilities, bars, resizable };
        let above = (physical.parent, Some(physical.bdf));
        let function = Rc::new(Function::new(physical.beside(id), way, above, node, probed));
        function.max_payload.set(physical.max_payload.get());
        self.topology.add(&function);
        function
    }

    /// The enabled virtual functions of a function, which are about to be disabled; none while their number changes.
    pub fn take_enabled(&self, function: &Function) -> Vec<Rc<Function>> {
        self.of(function).filter(|iov| !iov.busy.get()).map(|iov| iov.enabled.take()).unwrap_or_default()
    }

    /// Disables a function's virtual functions, which have been [taken](Self::take_enabled) and removed.
    pub async fn switch_off(&self, cpu: &Cpu, function: &Function) {
        if let Some(at) = function.sriov().filter(|_| function.reach.is_present()) {
            let hierarchy = self.hierarchy(cpu, function).await;
            function.backend.write_u16(cpu, at + sriov::CONTROL, hierarchy).await;
            cpu.sleep(AFTER_DISABLING).await;
            function.backend.write_u16(cpu, at + sriov::NUMBER, 0).await;
        }
        self.base.log.write(format!("pci {}: no virtual functions", function));
    }

    /// Enables virtual functions again after a reset of their physical function, and returns them.
    pub async fn restore(&self, cpu: &Cpu, function: &Function) -> Vec<Rc<Function>> {
        let Some(iov) = self.of(function) else { return Vec::new() };
        let (at, enabled) = (iov.at, iov.enabled.borrow().clone());
        function.backend.config_write(cpu, at + sriov::SYSTEM_PAGES, 1, 0xf).await;
        for (number, bar) in iov.bars.numbered() {
            iov.bars.set(cpu, &*function.backend, number, bar.address).await;
        }
        if !enabled.is_empty() {
            let hierarchy = self.hierarchy(cpu, function).await;
            function.backend.write_u16(cpu, at + sriov::CONTROL, hierarchy).await;
            function.backend.write_u16(cpu, at + sriov::NUMBER, enabled.len() as u16).await;
            let control = sriov::ENABLE | sriov::MEMORY | hierarchy;
            function.backend.write_u16(cpu, at + sriov::CONTROL, control).await;
            cpu.sleep(BEFORE_FIRST_ACCESS).await;
        }
        enabled
    }
}
