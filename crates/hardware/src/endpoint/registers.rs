//! A device's configuration spaces, BAR decoding and interrupt vectors.

use std::ops::Range;

use platform::device::{BarAccess, Device, FunctionIndex, PortIndex, Reset};
use wire::pcie::config::msi::MsiState;
use wire::pcie::config::msix::{self, MsixLayout};
use wire::pcie::config::{CompletionTimeout, ConfigEffect, ConfigSpace, ResetKind, pcie_cap};
use wire::pcie::tlp::ConfigRequest;
use wire::pcie::{Bdf, IntxLines};
use wire::vtd::MsiMessage;

/// Bytes of an MSI-X table entry: address, data, vector control.
const VECTOR_BYTES: usize = msix::ENTRY_LEN as usize;
/// Mask bit of the vector control word.
const VECTOR_MASKED: u8 = msix::ENTRY_MASKED as u8;

/// Settings of the host for a device's requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Largest payload in bytes (MPS).
    pub max_payload: u32,
    /// Largest read request in bytes (MRRS).
    pub max_read_request: u32,
    /// Tags that may be used.
    pub tags: Range<u16>,
    /// Whether requests may use relaxed ordering.
    pub relaxed_ordering: bool,
    /// Whether requests may set no-snoop.
    pub no_snoop: bool,
    /// Whether requests may use ID-based ordering.
    pub id_based_ordering: bool,
}

impl Allowance {
    fn of(config: &ConfigSpace) -> Self {
        let control = |bit| config.device_control() & bit != 0;
        Self {
            max_payload: config.max_payload(),
            max_read_request: config.max_read_request(),
            tags: config.tags(),
            relaxed_ordering: control(pcie_cap::CONTROL_RELAXED_ORDERING),
            no_snoop: control(pcie_cap::CONTROL_NO_SNOOP),
            id_based_ordering: config.device_control_2() & pcie_cap::CONTROL_2_IDO_REQUESTS != 0,
        }
    }

    /// The settings that two functions have in common.
    fn and(self, other: Self) -> Self {
        Self {
            max_payload: self.max_payload.min(other.max_payload),
            max_read_request: self.max_read_request.min(other.max_read_request),
            tags: if self.tags.len() <= other.tags.len() { self.tags } else { other.tags },
            relaxed_ordering: self.relaxed_ordering && other.relaxed_ordering,
            no_snoop: self.no_snoop && other.no_snoop,
            id_based_ordering: self.id_based_ordering && other.id_based_ordering,
        }
    }
}

impl Default for Allowance {
    /// Values after a reset (base spec 7.5.3.4).
    fn default() -> Self {
        Self {
            max_payload: 128,
            max_read_request: 512,
            tags: 0..32,
            relaxed_ordering: true,
            no_snoop: true,
            id_based_ordering: false,
        }
    }
}

/// ECRC settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ecrc {
    /// ECRC generation.
    pub generated: bool,
    /// ECRC checking.
    pub checked: bool,
}

struct State {
    port: PortIndex,
    config: ConfigSpace,
    /// Bus and device number captured from the last configuration write.
    id: Bdf,
    msix: Option<MsixState>,
    /// For a virtual function: the index of its physical function, and its number in it.
    part_of: Option<(usize, u16)>,
}

struct MsixState {
    layout: MsixLayout,
    table: Vec<u8>,
    pending: Vec<u8>,
}

/// The parts of a device that its PCIe core serves without firmware.
pub struct Registers {
    functions: Vec<State>,
}

impl Registers {
    /// Creates the registers of a device.
    pub fn new(device: &dyn Device) -> Self {
        let state = |port, config: ConfigSpace, index, part_of| State {
            port,
            msix: config.msix_layout().map(MsixState::new),
            config,
            id: Bdf::new(0, 0, index),
            part_of,
        };
        let physical = device.functions().into_iter();
        let mut functions: Vec<State> =
            (0..).zip(physical).map(|(n, function)| state(function.port, function.config, n, None)).collect();
        for function in device.virtual_functions() {
            let of = usize::from(function.physical.0);
            let siblings = functions.iter().filter(|f| f.part_of.is_some_and(|(owner, _)| owner == of));
            let number = siblings.count() as u16;
            functions.push(state(functions[of].port, function.config, 0, Some((of, number))));
        }
        Self { functions }
    }

    /// Highest port number used by a function, plus one.
    pub fn ports(&self) -> usize {
        self.functions.iter().map(|f| usize::from(f.port.0) + 1).max().unwrap_or(0)
    }

    /// A function's configuration space.
    ///
    /// # Panics
    /// If the device has no such function.
    pub fn config(&self, function: FunctionIndex) -> &ConfigSpace {
        &self.functions[usize::from(function.0)].config
    }

    /// A function's configuration space, if the device has such a function.
    pub fn get(&self, function: FunctionIndex) -> Option<&ConfigSpace> {
        self.functions.get(usize::from(function.0)).map(|state| &state.config)
    }

    /// A function's configuration space, for hardware-controlled fields.
    ///
    /// # Panics
    /// If the device has no such function.
    pub fn config_mut(&mut self, function: FunctionIndex) -> &mut ConfigSpace {
        &mut self.functions[usize::from(function.0)].config
    }

    /// Requester ID of a function.
    pub fn id(&self, function: FunctionIndex) -> Bdf {
        self.functions.get(usize::from(function.0)).map_or(Bdf::default(), |f| self.id_of(f))
    }

    fn id_of(&self, state: &State) -> Bdf {
        let Some((owner, number)) = state.part_of else { return state.id };
        let owner = &self.functions[owner];
        owner.config.virtual_functions().map_or(owner.id, |all| all.id(owner.id, number))
    }

    /// Whether a function exists: a virtual one only while enabled.
    fn is_there(&self, state: &State) -> bool {
        state.part_of.is_none_or(|(owner, number)| {
            self.functions[owner].config.virtual_functions().is_some_and(|all| all.has(number))
        })
    }

    /// Virtual functions of a physical one.
    pub fn virtual_functions(&self, of: FunctionIndex) -> impl Iterator<Item = FunctionIndex> + use<> {
        let owner = usize::from(of.0);
        let belongs = |state: &State| state.part_of.is_some_and(|(of, _)| of == owner);
        let indices: Vec<u8> =
            (0..).zip(&self.functions).filter(|(_, f)| belongs(f)).map(|(n, _)| n).collect();
        indices.into_iter().map(FunctionIndex)
    }

    /// The function whose registers report a function's errors: for a virtual one its physical one, whose settings
    /// apply to both (base spec 9.4).
    pub fn reporter(&self, function: FunctionIndex) -> FunctionIndex {
        let part_of = self.functions.get(usize::from(function.0)).and_then(|f| f.part_of);
        part_of.map_or(function, |(owner, _)| FunctionIndex(owner as u8))
    }

    /// Port and requester ID of a function.
    ///
    /// # Panics
    /// If the device has no such function.
    pub fn port_and_id(&self, function: FunctionIndex) -> (PortIndex, Bdf) {
        let state = &self.functions[usize::from(function.0)];
        (state.port, self.id_of(state))
    }

    /// The port of a function; the first for one that the device does not have.
    pub fn port_of(&self, function: FunctionIndex) -> PortIndex {
        self.functions.get(usize::from(function.0)).map_or(PortIndex(0), |f| f.port)
    }

    /// Physical functions below a port.
    pub fn physical_below(&self, port: PortIndex) -> impl Iterator<Item = FunctionIndex> + '_ {
        let all = (0..).zip(&self.functions);
        all.filter(move |(_, f)| f.port == port && f.part_of.is_none()).map(|(n, _)| FunctionIndex(n))
    }

    /// Physical functions below a port, if the device has other ports.
    pub fn alone_below(&self, port: PortIndex) -> Option<Vec<FunctionIndex>> {
        (self.ports() > 1).then(|| self.physical_below(port).collect())
    }

    /// The first function below a port, which reports link errors.
    pub fn first_below(&self, port: PortIndex) -> FunctionIndex {
        FunctionIndex(self.functions.iter().position(|f| f.port == port).unwrap_or(0) as u8)
    }

    /// ECRC settings below a port: what is enabled in all physical functions.
    pub fn ecrc(&self, port: PortIndex) -> Ecrc {
        let mut below = self.functions.iter().filter(|f| f.port == port && f.part_of.is_none()).peekable();
        let any = below.peek().is_some();
        below.fold(Ecrc { generated: any, checked: any }, |all, f| Ecrc {
            generated: all.generated && f.config.generates_ecrc(),
            checked: all.checked && f.config.checks_ecrc(),
        })
    }

    /// Port and requester ID of a function with bus master enable.
    #[inline(always)]
    pub fn master(&self, function: FunctionIndex) -> Option<(PortIndex, Bdf)> {
        let state = self.functions.get(usize::from(function.0))?;
        let may = state.config.bus_master_enabled() && self.is_there(state);
        may.then(|| (state.port, self.id_of(state)))
    }

    /// Settings common to all physical functions below a port; they apply to the virtual ones too.
    pub fn allowance(&self, port: PortIndex) -> Allowance {
        let physical = self.functions.iter().filter(|f| f.port == port && f.part_of.is_none());
        physical.map(|f| Allowance::of(&f.config)).reduce(Allowance::and).unwrap_or_default()
    }

    /// Completion timeouts of all functions, in order; virtual ones use their physical one's register.
    pub fn completion_timeouts(&self) -> impl Iterator<Item = CompletionTimeout> + '_ {
        (0..self.functions.len() as u8)
            .map(|number| self.config(self.reporter(FunctionIndex(number))).completion_timeout())
    }

    /// The function addressed by a configuration request below `port`, if it exists.
    fn target(&self, port: PortIndex, request: &ConfigRequest) -> Option<usize> {
        // A device captures the bus and device number by which it is addressed; ARI functions use all eight bits.
        let number = request.target.ari_function();
        let below_port = || (0..self.functions.len()).filter(|&i| self.functions[i].port == port);
        let physical = || below_port().filter(|&i| self.functions[i].part_of.is_none());
        physical().nth(usize::from(number)).or_else(|| {
            // Virtual function offset and stride come from the physical function's registers.
            let place = |of: usize| physical().position(|i| i == of).unwrap_or(0) as u8;
            below_port().find(|&i| {
                let Some((owner, n)) = self.functions[i].part_of else { return false };
                let all = self.functions[owner].config.virtual_functions();
                all.is_some_and(|all| {
                    all.has(n) && all.id(Bdf::new_ari(0, place(owner)), n).bits() == number.into()
                })
            })
        })
    }

    /// Reads a doubleword of configuration space; `None` if there is no such function.
    pub fn read(&self, port: PortIndex, request: &ConfigRequest) -> Option<u32> {
        let index = self.target(port, request)?;
        Some(self.functions[index].config.dword(request.register))
    }

    /// Writes to configuration space; `None` if there is no such function.
    pub fn write(
        &mut self,
        port: PortIndex,
        request: &ConfigRequest,
        value: u32,
    ) -> Option<(FunctionIndex, Vec<ConfigEffect>)> {
        let index = self.target(port, request)?;
        let state = &mut self.functions[index];
        state.id = request.target;
        let effects = state.config.write(request.register, value, request.first_be);
        Some((FunctionIndex(index as u8), effects))
    }

    /// Decodes a memory address below `port` to function, BAR and offset.
    pub fn decode(&self, port: PortIndex, address: u64, length: u32) -> Option<(FunctionIndex, u8, u64)> {
        let below_port = || self.functions.iter().enumerate().filter(|(_, f)| f.port == port);
        let physical = below_port().find_map(|(index, f)| {
            let (bar, offset) =
                f.config.memory_enabled().then(|| f.config.find_bar(address, length.max(1)))??;
            Some((FunctionIndex(index as u8), bar, offset))
        });
        physical.or_else(|| {
            below_port().find_map(|(owner, f)| {
                let (number, bar, offset) = f.config.virtual_functions()?.find_bar(address, length.max(1))?;
                let index = self.functions.iter().position(|f| f.part_of == Some((owner, number)))?;
                Some((FunctionIndex(index as u8), bar, offset))
            })
        })
    }

    /// Reads from the MSI-X table or pending bits; `false` if `at` is neither.
    pub fn interrupt_table_read(&self, at: BarAccess, data: &mut [u8]) -> bool {
        let Some(msix) = &self.functions[usize::from(at.function.0)].msix else { return false };
        let Some((is_table, offset)) = msix.place(at, data.len()) else { return false };
        let bytes = if is_table { &msix.table } else { &msix.pending };
        data.copy_from_slice(&bytes[offset..offset + data.len()]);
        true
    }

    /// Writes to the MSI-X table; `false` if `at` is neither in it nor in the pending bits, which are read-only.
    pub fn interrupt_table_write(&mut self, at: BarAccess, data: &[u8]) -> bool {
        let Some(msix) = &mut self.functions[usize::from(at.function.0)].msix else { return false };
        let Some((is_table, offset)) = msix.place(at, data.len()) else { return false };
        if is_table {
            msix.table[offset..offset + data.len()].copy_from_slice(data);
        }
        true
    }

    /// The message of a function's interrupt vector, if enabled. A masked one becomes pending.
    pub fn message(&mut self, function: FunctionIndex, vector: u16) -> Option<MsiMessage> {
        let state = self.functions.get_mut(usize::from(function.0))?;
        let (enabled, unmasked) = state.config.msix_enabled();
        if let (true, Some(msix)) = (enabled, &mut state.msix) {
            return msix.raise(vector, !unmasked);
        }
        let msi = state.config.msi().filter(|msi| msi.enabled)?;
        // A function with fewer vectors than requested combines them.
        let number = u32::from(vector) % u32::from(msi.vectors);
        if msi.mask >> number & 1 == 1 {
            state.config.set_msi_pending(msi.pending | 1 << number);
            return None;
        }
        Some(msi_message(&msi, number))
    }

    /// Active legacy interrupt lines of the functions below a port, combined.
    pub fn lines(&self, port: PortIndex) -> IntxLines {
        let mut lines = IntxLines::default();
        let below = self.functions.iter().filter(|f| f.port == port && f.part_of.is_none());
        below.filter_map(|f| f.config.active_line()).for_each(|line| lines.set(line, true));
        lines
    }

    /// Takes pending messages that are no longer masked.
    pub fn unmasked(&mut self, function: FunctionIndex) -> Vec<MsiMessage> {
        let Some(state) = self.functions.get_mut(usize::from(function.0)) else { return Vec::new() };
        let (enabled, unmasked) = state.config.msix_enabled();
        if let (true, Some(msix)) = (enabled, &mut state.msix) {
            return if unmasked { msix.take_pending() } else { Vec::new() };
        }
        let Some(msi) = state.config.msi().filter(|msi| msi.enabled) else { return Vec::new() };
        let ready = msi.pending & !msi.mask;
        state.config.set_msi_pending(msi.pending & msi.mask);
        (0..u32::BITS)
            .filter(|number| ready >> number & 1 == 1)
            .map(|number| msi_message(&msi, number))
            .collect()
    }

    /// Resets registers.
    pub fn reset(&mut self, reset: Reset) {
        for (index, state) in self.functions.iter_mut().enumerate() {
            let kind = match reset {
                Reset::Fundamental => ResetKind::Fundamental,
                Reset::Hot => ResetKind::Hot,
                Reset::Function(FunctionIndex(only)) if usize::from(only) == index => ResetKind::Function,
                Reset::Function(_) => continue,
            };
            state.config.reset(kind);
            state.msix = state.config.msix_layout().map(MsixState::new);
        }
    }
}

impl MsixState {
    fn new(layout: MsixLayout) -> Self {
        let mut table = vec![0; layout.table_len() as usize];
        for vector in table.chunks_exact_mut(VECTOR_BYTES) {
            vector[12] = VECTOR_MASKED;
        }
        Self { table, pending: vec![0; layout.pending_len() as usize], layout }
    }

    /// Whether an access is to the table (`true`) or the pending bits (`false`), and its offset.
    fn place(&self, at: BarAccess, length: usize) -> Option<(bool, usize)> {
        let within = |bar: u8, start: u32, bytes: &[u8]| {
            let offset = at.offset.get().checked_sub(u64::from(start))? as usize;
            (at.bar == bar && offset + length <= bytes.len()).then_some(offset)
        };
        let table = within(self.layout.table_bar, self.layout.table_offset, &self.table);
        let pending = within(self.layout.pending_bar, self.layout.pending_offset, &self.pending);
        table.map(|offset| (true, offset)).or(pending.map(|offset| (false, offset)))
    }

    fn entry(&self, vector: u16) -> Option<&[u8]> {
        self.table.chunks_exact(VECTOR_BYTES).nth(usize::from(vector))
    }

    fn message(entry: &[u8]) -> MsiMessage {
        let word = |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
        MsiMessage { address: u64::from(word(4)) << 32 | u64::from(word(0)), data: word(8) }
    }

    fn raise(&mut self, vector: u16, all_masked: bool) -> Option<MsiMessage> {
        let entry = self.entry(vector)?;
        if all_masked || entry[12] & VECTOR_MASKED != 0 {
            self.pending[usize::from(vector / 8)] |= 1 << (vector % 8);
            return None;
        }
        Some(Self::message(entry))
    }

    fn take_pending(&mut self) -> Vec<MsiMessage> {
        let vectors = (self.table.len() / VECTOR_BYTES) as u16;
        let ready: Vec<u16> = (0..vectors)
            .filter(|&vector| self.pending[usize::from(vector / 8)] >> (vector % 8) & 1 == 1)
            .filter(|&vector| self.entry(vector).is_some_and(|entry| entry[12] & VECTOR_MASKED == 0))
            .collect();
        for &vector in &ready {
            self.pending[usize::from(vector / 8)] &= !(1 << (vector % 8));
        }
        ready.iter().filter_map(|&vector| self.entry(vector)).map(Self::message).collect()
    }
}

/// The message of vector `number`, which is in the low bits of the data.
fn msi_message(msi: &MsiState, number: u32) -> MsiMessage {
    let vectors = u32::from(msi.vectors);
    MsiMessage { address: msi.address, data: u32::from(msi.data) & !(vectors - 1) | number }
}

#[cfg(test)]
mod tests;
