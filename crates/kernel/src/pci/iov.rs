//! SR-IOV (base spec chapter 9): address space for virtual functions, enabling and disabling them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use platform::pci::Identity;
use units::Duration;
use wire::pcie::Bdf;
use wire::pcie::config::caps::extended_id;
use wire::pcie::config::{Bar, VirtualFunctions, header, pcie_cap, sriov};

use super::backend::Backend;
use super::enumerate::{capabilities, size_bars_at};
use super::{Function, Pci};

/// From setting VF Enable until virtual functions must answer (base spec 9.3.3.3.1).
const BEFORE_FIRST_ACCESS: Duration = Duration::from_ms(100);
/// From clearing VF Enable until other fields may change (same section).
const AFTER_DISABLING: Duration = Duration::from_ms(1000);

/// SR-IOV state of a physical function.
pub(crate) struct Iov {
    /// Offset of the capability.
    at: u16,
    /// TotalVFs.
    pub total: u16,
    /// Device ID of the virtual functions.
    device: u16,
    /// BARs of the first virtual function, followed by those of the others.
    pub bars: RefCell<[Option<Bar>; 6]>,
    enabled: RefCell<Vec<Rc<Function>>>,
    /// The number of virtual functions is being changed.
    busy: Cell<bool>,
}

impl Function {
    fn sriov(&self) -> Option<u16> {
        self.extended.iter().find(|c| c.id == extended_id::SRIOV).map(|c| c.offset)
    }

    /// BARs of its virtual functions: number, first BAR, bytes of all.
    pub(super) fn virtual_bars(&self) -> Vec<(u8, Bar, u64)> {
        let iov = self.iov.borrow();
        let Some(iov) = &*iov else { return Vec::new() };
        let bars = (0u8..).zip(*iov.bars.borrow()).filter_map(|(n, bar)| Some((n, bar?)));
        bars.map(|(n, bar)| (n, bar, bar.size * u64::from(iov.total))).collect()
    }
}

impl Pci {
    /// Reads a function's SR-IOV capability.
    pub(super) async fn find_virtual_functions(&self, cpu: &Cpu, function: &Function) {
        let Some(at) = function.sriov() else { return };
        let total = (function.backend.config_read(cpu, at + sriov::INITIAL).await >> 16) as u16;
        let device = (function.backend.config_read(cpu, at + sriov::DEVICE - 2).await >> 16) as u16;
        if total == 0 {
            return;
        }
        // Page size: 4 KiB, as the IOMMU's.
        function.backend.config_write(cpu, at + sriov::SYSTEM_PAGES, 1, 0xf).await;
        let bars = size_bars_at(cpu, &*function.backend, at + sriov::BAR0, 6).await;
        let (bars, enabled) = (RefCell::new(bars), RefCell::default());
        *function.iov.borrow_mut() = Some(Iov { at, total, device, bars, enabled, busy: Cell::new(false) });
    }

    /// Enables ARI forwarding in the port above a device if both support it.
    pub(super) async fn forward_ari(&self, cpu: &Cpu, function: &Function, parent: &Function) {
        let has_ari = function.extended.iter().any(|c| c.id == extended_id::ARI);
        let Some(at) = parent.pcie.filter(|_| has_ari) else { return };
        let capabilities = parent.backend.config_read(cpu, at + pcie_cap::DEVICE_CAPABILITIES_2).await;
        if capabilities & pcie_cap::CAPABILITIES_2_ARI_FORWARDING != 0 {
            let control = parent.backend.read_u16(cpu, at + pcie_cap::DEVICE_CONTROL_2).await;
            let control = control | pcie_cap::CONTROL_2_ARI_FORWARDING;
            parent.backend.write_u16(cpu, at + pcie_cap::DEVICE_CONTROL_2, control).await;
        }
    }

    /// Sets a virtual-function BAR.
    pub(super) async fn set_virtual_bar(&self, cpu: &Cpu, function: &Function, number: u8, address: u64) {
        let Some(at) = function.sriov() else { return };
        let mut wide = false;
        if let Some(iov) = &*function.iov.borrow()
            && let Some(bar) = &mut iov.bars.borrow_mut()[usize::from(number)]
        {
            bar.address = address;
            wide = bar.kind.is_64();
        }
        let at = at + sriov::BAR0 + 4 * u16::from(number);
        function.backend.config_write(cpu, at, address as u32, 0xf).await;
        if wide {
            function.backend.config_write(cpu, at + 4, (address >> 32) as u32, 0xf).await;
        }
    }

    /// Enables `count` virtual functions and binds drivers to them. None may be enabled before.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if there is no SR-IOV capability, [`Error::Invalid`] if `count` is too large,
    /// [`Error::Busy`] if some are enabled, [`Error::NoSpace`] if their BARs have no address space.
    pub(super) async fn enable_virtual_functions(
        self: &Rc<Self>,
        cpu: &Cpu,
        function: &Rc<Function>,
        count: u16,
    ) -> Result<(), Error> {
        let (at, total, device, bars) = {
            let iov = function.iov.borrow();
            let iov = iov.as_ref().ok_or(Error::NotSupported)?;
            if iov.busy.get() || !iov.enabled.borrow().is_empty() {
                return Err(Error::Busy);
            }
            iov.busy.set(true);
            (iov.at, iov.total, iov.device, *iov.bars.borrow())
        };
        let outcome = match () {
            () if count == 0 || count > total => Err(Error::Invalid),
            () if bars.iter().flatten().any(|bar| bar.address == 0) => Err(Error::NoSpace),
            () => Ok(self.switch_on(cpu, function, (at, device, count), bars).await),
        };
        if let Some(iov) = &*function.iov.borrow() {
            iov.busy.set(false);
            if let Ok(found) = &outcome {
                iov.enabled.borrow_mut().clone_from(found);
            }
        }
        for virtual_function in outcome? {
            self.bind(cpu, &virtual_function).await;
        }
        Ok(())
    }

    async fn switch_on(
        self: &Rc<Self>,
        cpu: &Cpu,
        function: &Rc<Function>,
        (at, device, count): (u16, u16, u16),
        bars: [Option<Bar>; 6],
    ) -> Vec<Rc<Function>> {
        let way = &function.backend;
        way.write_u16(cpu, at + sriov::NUMBER, count).await;
        // Offset and stride may depend on the number of virtual functions.
        let placing = way.config_read(cpu, at + sriov::OFFSET_STRIDE).await;
        let control = sriov::ENABLE | sriov::MEMORY;
        way.write_u16(cpu, at + sriov::CONTROL, control).await;
        cpu.sleep(BEFORE_FIRST_ACCESS).await;
        let (first_offset, stride) = (placing as u16, (placing >> 16) as u16);
        let all = VirtualFunctions { enabled: true, memory: true, count, first_offset, stride, bars };
        let mut found = Vec::new();
        for n in 0..count {
            let id = all.id(function.bdf, n);
            let Some(way) = function.backend.virtual_function(id) else { break };
            let class = way.config_read(cpu, header::REVISION).await;
            if class == u32::MAX {
                self.log.write(format!("pci {id}: virtual function {n} does not answer"));
                continue;
            }
            let identity = Identity { device, class: class >> 8, revision: class as u8, ..function.identity };
            let bars = core::array::from_fn(|bar| all.bar(bar as u8, n));
            found.push(self.virtual_function(cpu, function, (id, way), identity, bars).await);
        }
        self.log.write(format!("pci {function}: {} virtual functions", found.len()));
        found
    }

    async fn virtual_function(
        self: &Rc<Self>,
        cpu: &Cpu,
        physical: &Rc<Function>,
        (id, way): (Bdf, Rc<dyn Backend>),
        identity: Identity,
        bars: [Option<Bar>; 6],
    ) -> Rc<Function> {
        let draft = Function::draft(self, physical.beside(id), Rc::clone(&way), physical.parent, identity, 0);
        let draft = capabilities(cpu, &*way, draft).await;
        let function = draft.with_bars(bars).part_of(physical.bdf).finish();
        function.max_payload.set(physical.max_payload.get());
        self.add(&function);
        function
    }

    /// Enables virtual functions again after a reset of their physical function; their drivers restart them.
    pub(super) async fn restore_virtual_functions(self: &Rc<Self>, cpu: &Cpu, function: &Function) {
        let (at, bars, enabled) = match &*function.iov.borrow() {
            Some(iov) => (iov.at, *iov.bars.borrow(), iov.enabled.borrow().clone()),
            None => return,
        };
        function.backend.config_write(cpu, at + sriov::SYSTEM_PAGES, 1, 0xf).await;
        for (n, bar) in (0u8..).zip(bars) {
            if let Some(bar) = bar {
                self.set_virtual_bar(cpu, function, n, bar.address).await;
            }
        }
        if enabled.is_empty() {
            return;
        }
        function.backend.write_u16(cpu, at + sriov::NUMBER, enabled.len() as u16).await;
        let control = sriov::ENABLE | sriov::MEMORY;
        function.backend.write_u16(cpu, at + sriov::CONTROL, control).await;
        cpu.sleep(BEFORE_FIRST_ACCESS).await;
        for virtual_function in enabled {
            Box::pin(self.restore(cpu, &virtual_function)).await;
            if let Some(binding) = virtual_function.binding() {
                binding.resume(cpu);
            }
        }
    }

    /// Unbinds and disables the virtual functions of a function.
    pub(super) async fn disable_virtual_functions(self: &Rc<Self>, cpu: &Cpu, function: &Rc<Function>) {
        let (at, gone) = match &*function.iov.borrow() {
            Some(iov) if !iov.busy.get() => (iov.at, iov.enabled.take()),
            _ => return,
        };
        if gone.is_empty() {
            return;
        }
        for virtual_function in &gone {
            self.unbind(cpu, virtual_function).await;
            virtual_function.present.set(false);
            self.remove(virtual_function);
        }
        if function.present.get() {
            function.backend.write_u16(cpu, at + sriov::CONTROL, 0).await;
            cpu.sleep(AFTER_DISABLING).await;
            function.backend.write_u16(cpu, at + sriov::NUMBER, 0).await;
        }
        self.log.write(format!("pci {}: no virtual functions", function));
    }
}
