//! A function's configuration space as implemented by its hardware.

use super::image::{Image, put, word};
use super::msi::MsiState;
use super::msix::{self, MsixLayout};
use super::pcie_cap::CompletionTimeout;
use super::{
    Bar, BarKind, Builder, ConfigEffect, EXTENDED, PortType, PowerState, SIZE, acs, aer, ats, dpc, header,
    ltr, pcie_cap, power_management, rebar, slot, sriov,
};
use crate::pcie::IntxLine;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use units::Duration;

/// Capability offsets; `None` if absent.
#[derive(Clone, Copy, Default)]
pub(super) struct Offsets {
    pub bridge: bool,
    pub port_type: Option<PortType>,
    pub power_management: Option<u16>,
    pub msi: Option<u16>,
    pub msix: Option<u16>,
    pub pcie: Option<u16>,
    pub aer: Option<u16>,
    pub dpc: Option<u16>,
    pub ltr: Option<u16>,
    /// The capability, and the BAR that can be resized.
    pub rebar: Option<(u16, u8)>,
    /// Latency that the function tolerates, if it reports that.
    pub tolerated: Option<Duration>,
    pub acs: Option<u16>,
    pub ats: Option<u16>,
    pub sriov: Option<u16>,
    pub vf_bars: [Option<(BarKind, u64)>; 6],
}

/// Type of a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetKind {
    /// Power-on or PERST#: resets everything.
    Fundamental,
    /// Hot reset or link down: resets all but the sticky bits (error logs and their masks).
    Hot,
    /// Function-level reset: like hot, but keeps payload size and link control (base spec 6.6.2).
    Function,
}

/// The 4096 bytes of a configuration space, with write masks.
#[derive(Clone)]
pub struct ConfigSpace {
    /// Registers as far as there are any: all beyond read as zero.
    registers: Vec<u8>,
    image: Arc<Image>,
    bars: [Option<Bar>; 6],
    pub(super) offsets: Offsets,
}

impl ConfigSpace {
    /// Builds an endpoint function (type 0 header); `class` is base class, subclass and interface, e.g. 0x020000 for
    /// Ethernet.
    pub fn endpoint(vendor: u16, device: u16, class: u32) -> Builder {
        Builder::endpoint(vendor, device, class)
    }

    /// Builds a virtual function (SR-IOV): registers that its physical function provides read as 0 or all ones and are
    /// read-only (base spec 9.3.4.1). Its BARs are the physical function's VF BARs, which determine where tables may
    /// be.
    pub fn virtual_function(class: u32) -> Builder {
        Builder::virtual_function(class)
    }

    /// Builds a bridge (type 1 header): a root port or a switch port.
    pub fn bridge(vendor: u16, device: u16) -> Builder {
        Builder::bridge(vendor, device)
    }

    pub(super) fn from_parts(image: Image, bars: [Option<Bar>; 6], offsets: Offsets) -> Self {
        Self { registers: image.all(), image: Arc::new(image), bars, offsets }
    }

    /// The doubleword that contains `offset`; all ones beyond the end.
    pub fn dword(&self, offset: u16) -> u32 {
        if usize::from(offset) < SIZE { word(&self.registers, offset) } else { u32::MAX }
    }

    /// `len` (1, 2 or 4) bytes at `offset` as a little-endian number; all ones beyond the end or across a doubleword.
    pub fn read(&self, offset: u16, len: u8) -> u32 {
        let ones = u32::MAX >> (32 - 8 * u32::from(len.clamp(1, 4)));
        if u16::from(len) + (offset & 3) > 4 {
            return ones;
        }
        self.dword(offset) >> (8 * (offset & 3)) & ones
    }

    /// Writes the doubleword that contains `offset`, as the host does; bit n of `byte_enables` enables byte n of
    /// `value`. Read-only bits keep their value.
    pub fn write(&mut self, offset: u16, value: u32, byte_enables: u8) -> Vec<ConfigEffect> {
        let at = offset & !3;
        if usize::from(at) >= SIZE {
            return Vec::new();
        }
        let lanes = (0..4).filter(|n| byte_enables >> n & 1 == 1).fold(0u32, |m, n| m | 0xff << (8 * n));
        let value_in = value & lanes;
        let mut rw = word(&self.image.rw, at) & lanes;
        let old = word(&self.registers, at);
        if self.offsets.power_management.is_some_and(|pm| pm + power_management::CONTROL == at)
            && matches!(PowerState::from_bits(value), PowerState::D1 | PowerState::D2)
        {
            // An unsupported power state: the write is dropped (base spec 7.5.2.2).
            rw &= !3;
        }
        if self.offsets.sriov.is_some_and(|s| s + sriov::NUMBER == at && self.vf_enabled(s)) {
            // NumVFs is read-only while VFs are enabled (base spec 9.3.3.7).
            rw &= !0xffff;
        }
        if let Some((control, index)) = self.offsets.rebar {
            let low = header::BAR0 + 4 * u16::from(index);
            let address = !(self.bar_size(index, 0) - 1);
            match at.checked_sub(low) {
                Some(0) => rw = address as u32 & lanes,
                Some(4) => rw = (address >> 32) as u32 & lanes,
                _ => {}
            }
            let sizes = self.dword(control + rebar::CAPABILITY);
            if at == control + rebar::CONTROL && !rebar::can_be(sizes, rebar::size(old & !rw | value_in & rw))
            {
                // Another size is undefined: the write is dropped.
                rw = 0;
            }
        }
        let cleared = old & value_in & word(&self.image.rw1c, at);
        let new = (old & !rw | value_in & rw) & !cleared;
        let triggered = value_in & word(&self.image.trigger, at);
        self.store(at, new);
        if let Some((control, index)) =
            self.offsets.rebar.filter(|(control, _)| at == control + rebar::CONTROL)
        {
            // Address bits that the new size does not have become 0.
            let low = header::BAR0 + 4 * u16::from(index);
            let offset = rebar::size(self.dword(control + rebar::CONTROL)) - 1;
            self.update(low, offset as u32 & !0xf, 0);
            self.update(low + 4, (offset >> 32) as u32, 0);
        }
        let mut effects = Vec::new();
        self.report(at, old, new, triggered, cleared, &mut effects);
        effects
    }

    fn store(&mut self, at: u16, value: u32) {
        if value != word(&self.registers, at) {
            put(&mut self.registers, at & 0xffc, &value.to_le_bytes());
        }
    }

    /// Hardware update of the doubleword that contains `offset`: clears the bits of `clear`, then sets those of `set`.
    /// Masks do not apply.
    pub fn update(&mut self, offset: u16, clear: u32, set: u32) {
        if usize::from(offset) < SIZE {
            self.store(offset, word(&self.registers, offset) & !clear | set);
        }
    }

    /// Resets the registers.
    pub fn reset(&mut self, kind: ResetKind) {
        let kept = self.offsets.pcie.map(|at| {
            (at, self.dword(at + pcie_cap::DEVICE_CONTROL) & 0xe0, self.dword(at + pcie_cap::LINK_CONTROL))
        });
        for at in (0..SIZE as u16).step_by(4) {
            let sticky = if kind == ResetKind::Fundamental { 0 } else { word(&self.image.sticky, at) };
            self.store(at, self.dword(at) & sticky | word(&self.image.value, at) & !sticky);
        }
        if let (ResetKind::Function, Some((at, payload, link))) = (kind, kept) {
            self.update(at + pcie_cap::DEVICE_CONTROL, 0xe0, payload);
            self.update(at + pcie_cap::LINK_CONTROL, u32::MAX, link);
        }
    }

    fn vf_enabled(&self, at: u16) -> bool {
        self.dword(at + sriov::CONTROL) as u16 & sriov::ENABLE != 0
    }

    fn report(&self, at: u16, old: u32, new: u32, triggered: u32, cleared: u32, out: &mut Vec<ConfigEffect>) {
        let changed = old ^ new;
        if cleared != 0 {
            out.push(ConfigEffect::StatusCleared { offset: at, bits: cleared });
            let triggered = u32::from(dpc::STATUS_TRIGGERED);
            if self.offsets.dpc.is_some_and(|c| at == c + dpc::STATUS) && cleared & triggered != 0 {
                out.push(ConfigEffect::Containment(false));
            }
        }
        if triggered | changed & !cleared == 0 {
            return;
        }
        match at {
            _ if at >= EXTENDED => self.report_extended(at, new, triggered, out),
            0x00..=0x3f => self.report_header(at, new, changed, out),
            _ => self.report_capability(at, new, changed, triggered, out),
        }
    }

    fn report_header(&self, at: u16, new: u32, changed: u32, out: &mut Vec<ConfigEffect>) {
        match at {
            header::COMMAND => {
                let on = |bit: u16| new as u16 & bit != 0;
                let toggles = [
                    (header::COMMAND_IO, ConfigEffect::IoEnable(on(header::COMMAND_IO))),
                    (header::COMMAND_MEMORY, ConfigEffect::MemoryEnable(on(header::COMMAND_MEMORY))),
                    (header::COMMAND_BUS_MASTER, ConfigEffect::BusMaster(on(header::COMMAND_BUS_MASTER))),
                    (
                        header::COMMAND_INTX_DISABLE,
                        ConfigEffect::IntxDisable(on(header::COMMAND_INTX_DISABLE)),
                    ),
                ];
                out.extend(
                    toggles.iter().filter(|(bit, _)| changed as u16 & bit != 0).map(|(_, effect)| effect),
                );
            }
            header::BUS_NUMBERS if self.offsets.bridge => {
                let [primary, secondary, subordinate, _] = new.to_le_bytes();
                out.push(ConfigEffect::BusNumbers { primary, secondary, subordinate });
            }
            0x1c..=0x33 if self.offsets.bridge => out.push(ConfigEffect::WindowMoved),
            0x10..=0x27 => {
                let i = (at - header::BAR0) / 4;
                // A register without its own BAR is the upper half of the previous one.
                let own = self.bars[usize::from(i)].is_some();
                out.push(ConfigEffect::BarMoved { bar: if own { i as u8 } else { i as u8 - 1 } });
            }
            header::ROM_TYPE0 | header::ROM_TYPE1 => out.push(ConfigEffect::RomMoved),
            header::INTERRUPT_LINE => {
                let bit = u32::from(header::BRIDGE_SECONDARY_RESET) << 16;
                if changed & bit != 0 {
                    out.push(ConfigEffect::SecondaryBusReset(new & bit != 0));
                }
            }
            _ => {}
        }
    }

    fn report_capability(
        &self,
        at: u16,
        new: u32,
        changed: u32,
        triggered: u32,
        out: &mut Vec<ConfigEffect>,
    ) {
        let offsets = &self.offsets;
        if offsets.power_management.is_some_and(|c| at == c + power_management::CONTROL) && changed & 3 != 0 {
            out.push(ConfigEffect::PowerState(PowerState::from_bits(new)));
        }
        if offsets.msi.is_some_and(|c| (c..c + super::msi::LEN).contains(&at)) {
            out.push(ConfigEffect::Msi);
        }
        if offsets.msix == Some(at) {
            out.push(self.msix_effect(at));
        }
        let Some(register) = offsets.pcie.and_then(|c| at.checked_sub(c)) else { return };
        match register {
            pcie_cap::DEVICE_CONTROL => {
                if changed as u16 != 0 {
                    out.push(ConfigEffect::DeviceControl);
                }
                if triggered as u16 & pcie_cap::CONTROL_FLR != 0 {
                    out.push(ConfigEffect::FunctionLevelReset);
                }
            }
            pcie_cap::DEVICE_CONTROL_2 => out.push(ConfigEffect::DeviceControl),
            pcie_cap::LINK_CONTROL => {
                let disable = pcie_cap::LINK_CONTROL_DISABLE;
                if changed as u16 & disable != 0 {
                    out.push(ConfigEffect::LinkDisable(new as u16 & disable != 0));
                }
                if changed as u16 & !disable != 0 {
                    out.push(ConfigEffect::LinkControl);
                }
                if triggered as u16 & pcie_cap::LINK_CONTROL_RETRAIN != 0 {
                    out.push(ConfigEffect::RetrainLink);
                }
            }
            pcie_cap::LINK_CONTROL_2 => out.push(ConfigEffect::LinkControl),
            slot::CONTROL => out.push(ConfigEffect::SlotCommand { control: new as u16 }),
            _ => {}
        }
    }

    fn report_extended(&self, at: u16, new: u32, triggered: u32, out: &mut Vec<ConfigEffect>) {
        let offsets = &self.offsets;
        let software = u32::from(dpc::CONTROL_SOFTWARE) << 16;
        if offsets.dpc.is_some_and(|c| at == c + dpc::CAPABILITY) && triggered & software != 0 {
            out.push(ConfigEffect::Containment(true));
        }
        if offsets.aer.is_some_and(|c| (c..c + aer::LEN).contains(&at)) {
            out.push(ConfigEffect::ErrorReporting);
        }
        if let Some((_, bar)) = offsets.rebar.filter(|(control, _)| at == control + rebar::CONTROL) {
            out.push(ConfigEffect::BarMoved { bar });
        }
        if offsets.acs.is_some_and(|c| at == c + acs::CAPABILITY) {
            out.push(ConfigEffect::Acs { control: (new >> 16) as u16 });
        }
        if offsets.ats.is_some_and(|c| at == c + ats::CAPABILITY) {
            let control = (new >> 16) as u16;
            out.push(ConfigEffect::Ats {
                enabled: control & ats::ENABLE != 0,
                smallest_unit: control as u8 & 0x1f,
            });
        }
        let Some((c, register)) = offsets.sriov.and_then(|c| Some((c, at.checked_sub(c)?))) else { return };
        match register {
            sriov::CONTROL | sriov::NUMBER => {
                let control = self.dword(c + sriov::CONTROL) as u16;
                out.push(ConfigEffect::Sriov {
                    enabled: control & sriov::ENABLE != 0,
                    memory: control & sriov::MEMORY != 0,
                    functions: self.dword(c + sriov::NUMBER) as u16,
                });
            }
            sriov::BAR0..=0x3b => {
                let i = (register - sriov::BAR0) / 4;
                let own = offsets.vf_bars[usize::from(i)].is_some();
                out.push(ConfigEffect::VfBarMoved {
                    bar: if own { i as u8 } else { i.saturating_sub(1) as u8 },
                });
            }
            _ => {}
        }
    }

    fn msix_effect(&self, at: u16) -> ConfigEffect {
        let control = (self.dword(at) >> 16) as u16;
        ConfigEffect::Msix {
            enabled: control & msix::ENABLE != 0,
            masked: control & msix::FUNCTION_MASK != 0,
        }
    }
}

/// Decoded settings, for the hardware.
impl ConfigSpace {
    fn command(&self, bit: u16) -> bool {
        self.dword(header::COMMAND) as u16 & bit != 0
    }

    /// Memory Space Enable.
    pub fn memory_enabled(&self) -> bool {
        self.command(header::COMMAND_MEMORY)
    }

    /// Bus Master Enable: the function, or everything below the bridge, may issue requests.
    pub fn bus_master_enabled(&self) -> bool {
        self.command(header::COMMAND_BUS_MASTER)
    }

    /// The legacy interrupt line of the function, if it has one.
    fn interrupt_line(&self) -> Option<IntxLine> {
        IntxLine::from_pin(self.read(header::INTERRUPT_PIN, 1) as u8)
    }

    /// Whether it uses legacy interrupts, masked or not: it has an interrupt line, and neither MSI nor MSI-X is
    /// enabled.
    pub fn interrupts_by_line(&self) -> bool {
        let messages = self.msix_enabled().0 || self.msi().is_some_and(|msi| msi.enabled);
        self.interrupt_line().is_some() && !messages
    }

    /// The interrupt line, if the host lets the function use it: Interrupt Disable is clear, and neither MSI nor MSI-X
    /// is enabled.
    pub fn enabled_line(&self) -> Option<IntxLine> {
        let is_open = self.interrupts_by_line() && !self.command(header::COMMAND_INTX_DISABLE);
        self.interrupt_line().filter(|_| is_open)
    }

    /// The interrupt line, if the function asserts it.
    pub fn active_line(&self) -> Option<IntxLine> {
        let pending = self.read(header::STATUS, 2) as u16 & header::STATUS_INTERRUPT != 0;
        self.enabled_line().filter(|_| pending)
    }

    /// Sets whether a legacy interrupt is pending.
    pub fn set_interrupt_status(&mut self, pending: bool) {
        let bit = u32::from(header::STATUS_INTERRUPT) << 16;
        self.update(header::COMMAND, bit, if pending { bit } else { 0 });
    }

    /// BAR `index` with its current address.
    pub fn bar(&self, index: u8) -> Option<Bar> {
        let bar = (*self.bars.get(usize::from(index))?)?;
        let at = header::BAR0 + 4 * u16::from(index);
        let high = if bar.kind.is_64() { u64::from(self.dword(at + 4)) << 32 } else { 0 };
        let flags = if bar.kind == BarKind::Io { 3 } else { 0xf };
        let size = self.bar_size(index, bar.size);
        Some(Bar { address: high | u64::from(self.dword(at) & !flags), size, ..bar })
    }

    /// Current size of a BAR that can be resized, or else `size`.
    fn bar_size(&self, index: u8, size: u64) -> u64 {
        match self.offsets.rebar {
            Some((at, resizable)) if resizable == index => rebar::size(self.dword(at + rebar::CONTROL)),
            _ => size,
        }
    }

    /// The memory BAR that contains all `len` bytes from `address` on, and the offset in it; `None` while memory is
    /// disabled.
    pub fn find_bar(&self, address: u64, len: u32) -> Option<(u8, u64)> {
        if !self.memory_enabled() {
            return None;
        }
        (0..6).find_map(|i| {
            let bar = self.bar(i).filter(|b| b.kind != BarKind::Io)?;
            Some((i, bar.offset_of(address, len)?))
        })
    }

    /// Device Control; 0 without a PCI Express capability.
    pub fn device_control(&self) -> u16 {
        self.offsets.pcie.map_or(0, |at| self.dword(at + pcie_cap::DEVICE_CONTROL) as u16)
    }

    /// Max_Payload_Size in bytes.
    pub fn max_payload(&self) -> u32 {
        pcie_cap::size_bytes(self.device_control() >> 5)
    }

    /// Max_Read_Request_Size in bytes.
    pub fn max_read_request(&self) -> u32 {
        pcie_cap::size_bytes(self.device_control() >> 12)
    }

    /// Completion timeout of the function's requests.
    pub fn completion_timeout(&self) -> CompletionTimeout {
        let control = self.offsets.pcie.map_or(0, |at| self.dword(at + pcie_cap::DEVICE_CONTROL_2));
        CompletionTimeout::of(control as u16)
    }

    /// Read completion boundary in bytes, 64 or 128.
    pub fn read_completion_boundary(&self) -> u32 {
        let control = self.offsets.pcie.map_or(0, |at| self.dword(at + pcie_cap::LINK_CONTROL) as u16);
        if control & pcie_cap::LINK_CONTROL_RCB_128 != 0 { 128 } else { 64 }
    }

    /// Device Control 2; 0 without a PCI Express capability.
    pub fn device_control_2(&self) -> u16 {
        self.offsets.pcie.map_or(0, |at| self.dword(at + pcie_cap::DEVICE_CONTROL_2) as u16)
    }

    /// Tags that the function may use: 32, 256, or the 768 10-bit tags that differ from every 8-bit tag (base spec
    /// 2.2.6.2).
    pub fn tags(&self) -> Range<u16> {
        if self.device_control_2() & pcie_cap::CONTROL_2_TEN_BIT_TAGS != 0 {
            256..1024
        } else if self.device_control() & pcie_cap::CONTROL_EXTENDED_TAGS != 0 {
            0..256
        } else {
            0..32
        }
    }

    /// Power state; D0 without a power management capability.
    pub fn power_state(&self) -> PowerState {
        let control =
            self.offsets.power_management.map_or(0, |at| self.dword(at + power_management::CONTROL));
        PowerState::from_bits(control)
    }

    /// MSI settings, if it has the capability.
    pub fn msi(&self) -> Option<MsiState> {
        Some(MsiState::read(&|at| self.dword(at), self.offsets.msi?))
    }

    /// Sets the pending bits of MSI, if it has the capability.
    pub fn set_msi_pending(&mut self, pending: u32) {
        if let Some(at) = self.offsets.msi {
            self.update(at + super::msi::PENDING, u32::MAX, pending);
        }
    }

    /// Location of the MSI-X table, if it has the capability.
    pub fn msix_layout(&self) -> Option<MsixLayout> {
        Some(MsixLayout::read(&|at| self.dword(at), self.offsets.msix?))
    }

    /// MSI-X Enable, and whether Function Mask is clear.
    pub fn msix_enabled(&self) -> (bool, bool) {
        match self.offsets.msix.map(|at| self.msix_effect(at)) {
            Some(ConfigEffect::Msix { enabled, masked }) => (enabled, !masked),
            _ => (false, false),
        }
    }

    /// Device or port type, if it has a PCI Express capability.
    pub fn port_type(&self) -> Option<PortType> {
        self.offsets.port_type
    }

    /// Offset of the PCI Express capability.
    pub fn pcie_offset(&self) -> Option<u16> {
        self.offsets.pcie
    }

    /// ACS Control: the enabled services, bits of [`acs`]; none without the capability.
    pub fn acs_control(&self) -> u16 {
        self.offsets.acs.map_or(0, |at| (self.dword(at + acs::CAPABILITY) >> 16) as u16)
    }

    /// Whether the function may report the latency that it tolerates, or a port takes such reports.
    pub fn latency_enabled(&self) -> bool {
        let bit = u32::from(pcie_cap::CONTROL_2_LATENCY);
        self.offsets.pcie.is_some_and(|at| self.dword(at + pcie_cap::DEVICE_CONTROL_2) & bit != 0)
    }

    /// The latencies that the function reports for requests that snoop and for those that do not: what it tolerates, within the
    /// maxima that software has set. `None` if it reports none.
    pub fn tolerated_latencies(&self) -> Option<[Duration; 2]> {
        let (at, tolerated) = self.offsets.ltr.zip(self.offsets.tolerated)?;
        let most = self.dword(at + ltr::MAX_SNOOP);
        Some([most, most >> 16].map(|most| tolerated.min(ltr::decode(most as u16))))
    }

    /// Offset of the AER capability.
    pub fn aer_offset(&self) -> Option<u16> {
        self.offsets.aer
    }

    /// Offset of the capability of downstream port containment.
    pub fn containment_offset(&self) -> Option<u16> {
        self.offsets.dpc
    }

    /// Whether ECRC generation is enabled.
    pub fn generates_ecrc(&self) -> bool {
        self.error_control(aer::ECRC_GENERATION_ENABLE)
    }

    /// Whether ECRC checking is enabled.
    pub fn checks_ecrc(&self) -> bool {
        self.error_control(aer::ECRC_CHECK_ENABLE)
    }

    fn error_control(&self, bit: u32) -> bool {
        self.offsets.aer.is_some_and(|at| self.dword(at + aer::CONTROL) & bit != 0)
    }

    /// Whether the header is of type 1.
    pub fn is_bridge(&self) -> bool {
        self.offsets.bridge
    }
}

impl fmt::Debug for ConfigSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, class) = (self.dword(0), self.dword(8) >> 8);
        write!(f, "ConfigSpace({:04x}:{:04x} class {class:06x})", id & 0xffff, id >> 16)
    }
}

impl fmt::Display for ConfigSpace {
    /// Formats the dump that `lspci -xxxx` prints and `lspci -F` reads, without the line that names the slot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..SIZE as u16).step_by(16).try_for_each(|row| {
            write!(f, "{row:02x}:")?;
            (row..row + 16).try_for_each(|at| write!(f, " {:02x}", self.read(at, 1)))?;
            writeln!(f)
        })
    }
}
