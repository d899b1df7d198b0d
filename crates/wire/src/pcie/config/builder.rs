//! Builds a configuration space.

use super::image::{Image, word};
use super::msix::MsixLayout;
use super::space::Offsets;
use super::{
    Bar, BarKind, ConfigSpace, EXTENDED, PcieParams, PortType, SIZE, SriovParams, acs, aer, ari, ats, caps,
    dpc, header, ltr, msi, msix, pcie_cap, power_management, rebar, secondary, serial, sriov,
};
use crate::pcie::{Generation, Width};
use std::fmt;

/// Error of an invalid configuration space: the part, its value and the valid values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    what: &'static str,
    value: u64,
    allowed: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuration space: {} is {:#x}, allowed: {}", self.what, self.value, self.allowed)
    }
}

impl std::error::Error for ConfigError {}

/// Builder for a function's configuration space. Capabilities are laid out in call order, from 0x40 and 0x100 on.
pub struct Builder {
    image: Image,
    bars: [Option<Bar>; 6],
    offsets: Offsets,
    /// For each capability list, the offset of the last link and the first free offset.
    standard: (u16, u16),
    extended: (Option<u16>, u16),
    is_virtual: bool,
    /// ACS and ATS settings of [`PcieParams`].
    services: (Option<u16>, Option<u8>),
    /// Whether it reports tolerated latency to a link above.
    reports_latency: bool,
    error: Option<ConfigError>,
}

impl Builder {
    fn new(vendor: u16, device: u16, class: u32, header_type: u8) -> Self {
        let mut image = Image::default();
        header::common(&mut image, vendor, device, class, header_type);
        Self {
            image,
            bars: [None; 6],
            offsets: Offsets { bridge: header_type == 1, ..Offsets::default() },
            standard: (header::CAPABILITIES, 0x40),
            extended: (None, EXTENDED),
            is_virtual: false,
            services: (None, None),
            reports_latency: false,
            error: None,
        }
    }

    pub(super) fn endpoint(vendor: u16, device: u16, class: u32) -> Self {
        Self::new(vendor, device, class, 0)
    }

    pub(super) fn virtual_function(class: u32) -> Self {
        let mut builder = Self::new(u16::MAX, u16::MAX, class, 0);
        builder.is_virtual = true;
        header::virtual_function(&mut builder.image);
        builder
    }

    pub(super) fn bridge(vendor: u16, device: u16) -> Self {
        let mut builder = Self::new(vendor, device, 0x06_0400, 1);
        header::bridge(&mut builder.image);
        builder
    }

    fn fail(&mut self, what: &'static str, value: impl Into<u64>, allowed: &'static str) {
        let value = value.into();
        self.error.get_or_insert(ConfigError { what, value, allowed });
    }

    /// Revision ID.
    pub fn revision(mut self, revision: u8) -> Self {
        self.image.value8(header::REVISION, revision);
        self
    }

    /// Subsystem vendor ID and subsystem ID (type 0 only).
    pub fn subsystem(mut self, vendor: u16, id: u16) -> Self {
        if self.offsets.bridge {
            self.fail("subsystem of a bridge", id, "none");
        } else {
            self.image.value16(header::SUBSYSTEM, vendor).value16(header::SUBSYSTEM + 2, id);
        }
        self
    }

    /// Marks the device as multi-function.
    pub fn multi_function(mut self) -> Self {
        let kind = u8::from(self.offsets.bridge);
        self.image.value8(header::HEADER_TYPE, 0x80 | kind);
        self
    }

    /// Interrupt pin: INTA (1) to INTD (4).
    pub fn interrupt_pin(mut self, pin: u8) -> Self {
        if !(1..=4).contains(&pin) {
            self.fail("interrupt pin", pin, "1 to 4");
        }
        self.image.value8(header::INTERRUPT_PIN, pin);
        self
    }

    /// A 64-bit memory BAR in registers `index` and `index + 1`.
    pub fn bar64(self, index: u8, size: u64, prefetchable: bool) -> Self {
        self.bar(index, size, BarKind::Memory64 { prefetchable })
    }

    /// A 32-bit memory BAR.
    pub fn bar32(self, index: u8, size: u64, prefetchable: bool) -> Self {
        self.bar(index, size, BarKind::Memory32 { prefetchable })
    }

    /// An I/O BAR.
    pub fn bar_io(self, index: u8, size: u64) -> Self {
        self.bar(index, size, BarKind::Io)
    }

    fn bar(mut self, index: u8, size: u64, kind: BarKind) -> Self {
        let registers = if self.offsets.bridge { 2 } else { 6 };
        let taken = |i: u8| {
            let below = i.checked_sub(1).and_then(|j| self.bars[usize::from(j)]);
            self.bars[usize::from(i)].is_some() || below.is_some_and(|b| b.kind.is_64())
        };
        let last = u64::from(index) + u64::from(kind.is_64());
        if last >= registers {
            self.fail("BAR number", last, "0 to 5, 0 and 1 of a bridge, one less if 64 bits wide");
            return self;
        }
        if taken(index) || kind.is_64() && taken(index + 1) {
            self.fail("BAR number", index, "registers that no other BAR takes");
            return self;
        }
        // The registers of a virtual function's BARs are in the physical function.
        if !self.is_virtual && !self.emit_bar(header::BAR0 + 4 * u16::from(index), size, kind) {
            return self;
        }
        self.bars[usize::from(index)] = Some(Bar { kind, size, address: 0 });
        self
    }

    fn emit_bar(&mut self, at: u16, size: u64, kind: BarKind) -> bool {
        let (smallest, largest) = match kind {
            BarKind::Io => (4, 256),
            BarKind::Memory32 { .. } => (128, 1 << 31),
            BarKind::Memory64 { .. } => (128, 1 << 63),
        };
        if !size.is_power_of_two() || !(smallest..=largest).contains(&size) {
            self.fail(
                "BAR size",
                size,
                "powers of two: 4 to 256 for I/O, 128 to 2^31 for 32-bit, to 2^63 for 64-bit memory",
            );
            return false;
        }
        let mask = !(size - 1);
        self.image.value32(at, kind.flags()).rw32(at, mask as u32);
        if kind.is_64() {
            self.image.rw32(at + 4, (mask >> 32) as u32);
        }
        true
    }

    /// An expansion ROM of 2 KiB to 16 MiB.
    pub fn rom(mut self, size: u32) -> Self {
        if !size.is_power_of_two() || !(2048..=1 << 24).contains(&size) {
            self.fail("expansion ROM size", size, "powers of two from 2 KiB to 16 MiB");
            return self;
        }
        let at = if self.offsets.bridge { header::ROM_TYPE1 } else { header::ROM_TYPE0 };
        self.image.rw32(at, !(size - 1) | 1);
        self
    }

    /// Allocates a capability in the first 256 bytes and links it.
    fn standard(&mut self, id: u8, len: u16) -> Option<u16> {
        let (link, at) = self.standard;
        if at + len > EXTENDED {
            self.fail("end of the capabilities", at + len, "0 to 0x100");
            return None;
        }
        self.image.value16(header::STATUS, header::STATUS_CAPABILITIES);
        self.image.value8(link, at as u8).value8(at, id);
        self.standard = (at + 1, (at + len).next_multiple_of(4));
        Some(at)
    }

    /// Allocates an extended capability and links it.
    fn extended(&mut self, id: u16, version: u8, len: u16) -> Option<u16> {
        let (previous, at) = self.extended;
        if usize::from(at + len) > SIZE {
            self.fail("end of the extended capabilities", at + len, "0x100 to 0x1000");
            return None;
        }
        self.image.extended_header(at, id, version);
        if let Some(previous) = previous {
            let linked = word(&self.image.value, previous) & 0x000f_ffff | u32::from(at) << 20;
            self.image.value32(previous, linked);
        }
        self.extended = (Some(at), (at + len).next_multiple_of(4));
        Some(at)
    }

    /// Power management: the function can be put into D3hot.
    pub fn power_management(mut self) -> Self {
        if let Some(at) = self.standard(caps::id::POWER_MANAGEMENT, power_management::LEN) {
            power_management::emit(&mut self.image, at);
            self.offsets.power_management = Some(at);
        }
        self
    }

    /// MSI with 1, 2, 4, ... 32 vectors.
    pub fn msi(mut self, vectors: u8) -> Self {
        if !vectors.is_power_of_two() || vectors > 32 {
            self.fail("MSI vectors", vectors, "1, 2, 4, 8, 16, 32");
        } else if let Some(at) = self.standard(caps::id::MSI, msi::LEN) {
            msi::emit(&mut self.image, at, vectors);
            self.offsets.msi = Some(at);
        }
        self
    }

    /// MSI-X. The BARs it refers to must already be defined.
    pub fn msix(mut self, layout: MsixLayout) -> Self {
        if !(1..=2048).contains(&layout.vectors) {
            self.fail("MSI-X vectors", layout.vectors, "1 to 2048");
            return self;
        }
        for (bar, offset, len) in [
            (layout.table_bar, layout.table_offset, layout.table_len()),
            (layout.pending_bar, layout.pending_offset, layout.pending_len()),
        ] {
            let size = self.bars.get(usize::from(bar)).copied().flatten().map_or(0, |b| b.size);
            if offset % 8 != 0 || u64::from(offset) + len > size {
                self.fail(
                    "end of the MSI-X table or pending bits",
                    u64::from(offset) + len,
                    "ends within a BAR named before, offset a multiple of 8",
                );
                return self;
            }
        }
        if let Some(at) = self.standard(caps::id::MSIX, msix::LEN) {
            msix::emit(&mut self.image, at, &layout);
            self.offsets.msix = Some(at);
        }
        self
    }

    /// PCI Express.
    pub fn pcie(mut self, params: PcieParams) -> Self {
        if pcie_cap::size_code(params.max_payload).is_none() {
            self.fail("largest payload", params.max_payload, "128, 256, 512, 1024, 2048, 4096");
        } else if params.port_type.is_bridge() != self.offsets.bridge {
            self.fail("port type", params.port_type as u8, "ports for bridges, endpoints for others");
        } else if params.slot.is_some() && !params.port_type.has_link_below() {
            self.fail("port type with a slot", params.port_type as u8, "root and downstream ports");
        } else if let Some(at) = self.standard(caps::id::PCI_EXPRESS, pcie_cap::LEN) {
            pcie_cap::emit(&mut self.image, at, &params);
            if self.is_virtual {
                pcie_cap::make_virtual(&mut self.image, at);
            }
            self.offsets.pcie = Some(at);
            self.offsets.port_type = Some(params.port_type);
            self.services = (params.access_control, params.translation_queue);
            self.reports_latency =
                !self.is_virtual && !params.port_type.has_link_below() && params.has_latency();
            self.offsets.tolerated = params.latency_tolerance.filter(|_| self.reports_latency);
        }
        self
    }

    /// Advanced error reporting; includes the root port's registers if PCI Express was added as a root port before.
    pub fn aer(mut self) -> Self {
        let root = self.offsets.port_type == Some(PortType::RootPort);
        if let Some(at) = self.extended(caps::extended_id::AER, 2, aer::LEN) {
            aer::emit(&mut self.image, at, root);
            self.offsets.aer = Some(at);
        }
        self
    }

    /// Secondary PCI Express, for links of generation 3 and up (base spec 7.7.3); ignored for slower ones.
    pub fn secondary_pcie(mut self, generation: Generation, width: Width) -> Self {
        let len = secondary::len(width);
        if generation >= Generation::Gen3
            && let Some(at) = self.extended(caps::extended_id::SECONDARY_PCIE, 1, len)
        {
            secondary::emit(&mut self.image, at);
        }
        self
    }

    /// Makes ECRC generation and checking available, for functions that support it. Call after [`aer`](Self::aer).
    pub fn ecrc(mut self) -> Self {
        match self.offsets.aer {
            Some(at) => aer::emit_ecrc(&mut self.image, at),
            None => self.fail("ECRC without AER", 0_u64, "AER first"),
        }
        self
    }

    /// Alternative routing-ID interpretation; `next_function` 0 ends the list.
    pub fn ari(mut self, next_function: u8) -> Self {
        if let Some(at) = self.extended(caps::extended_id::ARI, 1, ari::LEN) {
            ari::emit(&mut self.image, at, next_function);
        }
        self
    }

    /// Downstream port containment, of a port with a link below that was added as such before.
    pub fn containment(mut self) -> Self {
        if !self.offsets.port_type.is_some_and(PortType::has_link_below) {
            self.fail("containment of a function without a link below", 0_u64, "root and downstream ports");
        } else if let Some(at) = self.extended(caps::extended_id::DPC, 1, dpc::LEN) {
            dpc::emit(&mut self.image, at);
            self.offsets.dpc = Some(at);
        }
        self
    }

    /// Lets the memory BAR `index`, which was added before, be resized from its size up to `most`, both powers of two from 1 MiB.
    pub fn resizable_bar(mut self, index: u8, most: u64) -> Self {
        let bar = self.bars.get(usize::from(index)).copied().flatten();
        let Some(bar) = bar.filter(|bar| bar.kind.is_64() && rebar::can_express(bar.size, most)) else {
            self.fail(
                "largest size of a BAR",
                most,
                "powers of two from its size, of 1 MiB or more, to 128 TiB",
            );
            return self;
        };
        if let Some(at) = self.extended(caps::extended_id::REBAR, 1, rebar::LEN) {
            rebar::emit(&mut self.image, at, index, (bar.size, most));
            self.offsets.rebar = Some((at, index));
        }
        self
    }

    /// Serial number.
    pub fn serial(mut self, serial: u64) -> Self {
        if let Some(at) = self.extended(caps::extended_id::SERIAL, 1, serial::LEN) {
            serial::emit(&mut self.image, at, serial);
        }
        self
    }

    /// Single-root I/O virtualisation.
    pub fn sriov(mut self, params: SriovParams) -> Self {
        let Some(at) = self.extended(caps::extended_id::SRIOV, 1, sriov::LEN) else {
            return self;
        };
        sriov::emit(&mut self.image, at, &params);
        self.offsets.sriov = Some(at);
        let mut upper_half = false;
        for (i, bar) in (0u16..).zip(params.bars) {
            let Some((kind, size)) = bar else {
                upper_half = false;
                continue;
            };
            if upper_half || kind == BarKind::Io || kind.is_64() && i == 5 {
                self.fail("VF BAR number", i, "memory BARs, the entry behind a 64-bit one empty");
                return self;
            }
            if !self.emit_bar(at + sriov::BAR0 + 4 * i, size.max(4096), kind) {
                return self;
            }
            upper_half = kind.is_64();
        }
        self.offsets.vf_bars = params.bars;
        self
    }

    /// Access control, latency reporting and address translation services, which come after everything else.
    fn emit_services(&mut self) {
        let (access_control, queue) = if self.is_virtual { (None, None) } else { self.services };
        if let Some(services) = access_control {
            if services & !acs::USUAL != 0 {
                self.fail("ACS services", services, "0x5f and less, egress control not supported");
            } else if let Some(at) = self.extended(caps::extended_id::ACS, 1, acs::LEN) {
                acs::emit(&mut self.image, at, services);
                self.offsets.acs = Some(at);
            }
        }
        if self.reports_latency
            && let Some(at) = self.extended(caps::extended_id::LTR, 1, ltr::LEN)
        {
            ltr::emit(&mut self.image, at);
            self.offsets.ltr = Some(at);
        }
        if let Some(depth) = queue {
            if !(1..=32).contains(&depth) {
                self.fail("ATS invalidate queue depth", depth, "1 to 32");
            } else if let Some(at) = self.extended(caps::extended_id::ATS, 1, ats::LEN) {
                ats::emit(&mut self.image, at, depth);
                self.offsets.ats = Some(at);
            }
        }
    }

    /// Returns the configuration space as after a fundamental reset.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn build(mut self) -> Result<ConfigSpace, ConfigError> {
        self.emit_services();
        let bars = if self.is_virtual { [None; 6] } else { self.bars };
        match self.error {
            Some(error) => Err(error),
            None => Ok(ConfigSpace::from_parts(self.image, bars, self.offsets)),
        }
    }
}
