//! Enumeration: finds functions and configures them, through configuration accesses alone.

use std::cell::Cell;
use std::rc::Rc;

use platform::cpu::Cpu;
use platform::pci::Identity;
use units::Duration;
use wire::pcie::config::caps::{Found, Walk, id};
use wire::pcie::config::header::{self, Window};
use wire::pcie::config::{Bar, acs, bars, pcie_cap};
use wire::pcie::{Bdf, FunctionAddress};

use super::backend::{Backend, OWN_SEGMENT, Own};
use super::function::Draft;
use super::resources::{Layout, WINDOW, window_of};
use super::{Aperture, Function, Pci};

/// Something behind a bridge that needs address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Need {
    Bar(Bdf, u8),
    /// A BAR of all virtual functions together.
    VirtualBar(Bdf, u8),
    Bridge(Bdf),
    /// Kept free for hot-plug.
    Spare,
}

/// Used for a bridge's windows in place of a BAR number.
const WINDOWS: u8 = 16;

/// Offset added to BAR numbers of virtual functions, to tell them from the function's own.
pub(super) const VIRTUAL: u8 = 8;

impl Pci {
    /// Finds and configures everything below the root ports.
    pub async fn enumerate(self: &Rc<Self>, cpu: &Cpu) {
        let buses = Buses { next: Cell::new(1), last: u8::MAX };
        let roots = self.scan_bus(cpu, 0, None, &buses).await;
        for root in roots {
            self.set_up(cpu, &root).await;
        }
    }

    /// Assigns addresses and settings below a bridge of bus 0.
    async fn set_up(self: &Rc<Self>, cpu: &Cpu, root: &Rc<Function>) {
        if root.is_bridge() {
            for window in 0..2 {
                let (length, alignment) = self.needs(root, window, true);
                let start = self.apertures.borrow_mut()[window].take(length, alignment.max(WINDOW));
                match start {
                    Some(start) => self.assign(cpu, root, window, (start, length), true).await,
                    None => self.log.write(format!("pci {}: no address space for {length} bytes", root)),
                }
            }
        }
        self.tune(cpu, root).await;
    }

    /// Finds the functions of a bus, and what is behind its bridges.
    async fn scan_bus(
        self: &Rc<Self>,
        cpu: &Cpu,
        bus: u8,
        parent: Option<&Rc<Function>>,
        buses: &Buses,
    ) -> Vec<Rc<Function>> {
        // A link has one device at its end. Bus 0 and the inside of a switch have more.
        let devices = if parent.is_some_and(|p| p.has_link_below()) { 1 } else { 32 };
        let mut found = Vec::new();
        for device in 0..devices {
            let mut functions = 1;
            for number in 0..8 {
                if number >= functions {
                    break;
                }
                let bdf = Bdf::new(bus, device, number);
                let root = parent.map_or(bdf, |parent| parent.root);
                let way = Rc::new(Own { cores: Rc::clone(&self.cores), bdf, root });
                let at = FunctionAddress { segment: OWN_SEGMENT, bdf };
                let found_here = self.discover(cpu, at, way, parent.map(|parent| parent.bdf)).await;
                let Some(function) = found_here else { continue };
                if function.multi_function {
                    functions = 8;
                }
                if let Some(parent) = parent.filter(|_| number == 0) {
                    self.forward_ari(cpu, &function, parent).await;
                }
                found.push(function);
            }
        }
        let bridges: Vec<_> = found.iter().filter(|function| function.is_bridge()).collect();
        for (n, bridge) in bridges.iter().enumerate() {
            self.scan_bridge(cpu, bridge, buses, bridges.len() - n - 1).await;
        }
        found
    }

    /// Assigns bus numbers to a bridge and scans behind it. `others` is the number of bridges on its bus still to
    /// come.
    async fn scan_bridge(self: &Rc<Self>, cpu: &Cpu, bridge: &Rc<Function>, buses: &Buses, others: usize) {
        let Some(secondary) = buses.take() else {
            self.log.write(format!("pci {bridge}: out of bus numbers"));
            return;
        };
        let numbers =
            |last: u8| u32::from(bridge.bdf.bus()) | u32::from(secondary) << 8 | u32::from(last) << 16;
        bridge.backend.config_write(cpu, header::BUS_NUMBERS, numbers(buses.last), 7).await;
        bridge.secondary.set(secondary);
        if self.link_is_active(cpu, bridge).await {
            Box::pin(self.scan_bus(cpu, secondary, Some(bridge), buses)).await;
        }
        if bridge.slot {
            buses.leave_behind(secondary, self.params.spare_buses, others);
        }
        let last = buses.taken();
        bridge.backend.config_write(cpu, header::BUS_NUMBERS, numbers(last), 7).await;
        bridge.subordinate.set(last);
    }

    /// Whether the link below a port is up.
    pub(super) async fn link_is_active(&self, cpu: &Cpu, bridge: &Function) -> bool {
        let Some(pcie) = bridge.pcie.filter(|_| bridge.has_link_below()) else { return true };
        let link = bridge.backend.config_read(cpu, pcie + pcie_cap::LINK_CONTROL).await;
        (link >> 16) as u16 & pcie_cap::LINK_STATUS_ACTIVE != 0
    }

    /// Reads the identity of a function, if there is one.
    pub(super) async fn discover(
        self: &Rc<Self>,
        cpu: &Cpu,
        at: FunctionAddress,
        way: Rc<dyn Backend>,
        parent: Option<Bdf>,
    ) -> Option<Rc<Function>> {
        let ids = way.config_read(cpu, header::VENDOR).await;
        if ids == u32::MAX || ids as u16 == 0 {
            return None;
        }
        let class = way.config_read(cpu, header::REVISION).await;
        let kind = (way.config_read(cpu, header::CACHE_LINE).await >> 16) as u8;
        let is_bridge = kind & 0x7f == 1;
        let subsystem = match is_bridge {
            true => 0,
            false => way.config_read(cpu, header::SUBSYSTEM).await,
        };
        let identity = Identity::from_registers(ids, class, subsystem);
        let bars = if is_bridge { 2 } else { 6 };
        let draft = Function::draft(self, at, Rc::clone(&way), parent, identity, kind);
        let draft = capabilities(cpu, &*way, draft).await;
        let bars = size_bars(cpu, &*way, bars).await;
        let function = draft.with_bars(bars).finish();
        self.find_virtual_functions(cpu, &function).await;
        self.isolate(cpu, &function).await;
        self.log.write(format!(
            "pci {function}: [{:04x}:{:04x}] class {:06x}",
            identity.vendor, identity.device, identity.class
        ));
        self.add(&function);
        Some(function)
    }

    /// Makes a switch port redirect requests between devices below it to the root complex if an IOMMU is on to check
    /// them (Linux: `pci_enable_acs`). Records whether the port isolates completely.
    pub(super) async fn isolate(&self, cpu: &Cpu, function: &Function) {
        const ALL: u16 = acs::SOURCE_VALIDATION
            | acs::REQUEST_REDIRECT
            | acs::COMPLETION_REDIRECT
            | acs::UPSTREAM_FORWARDING;
        let mut able = 0;
        if let Some(at) = function.access_control().filter(|_| self.dma.is_on()) {
            able = function.backend.read_u16(cpu, at + acs::CAPABILITY).await & ALL;
            function.backend.write_u16(cpu, at + acs::CONTROL, able).await;
        }
        if function.has_link_below() && function.bdf != function.root {
            function.isolates.set(able == ALL);
        }
    }

    fn children(&self, bridge: &Function) -> Vec<Rc<Function>> {
        self.all().into_iter().filter(|f| f.is_below(bridge)).collect()
    }

    /// Layout of a bridge's window, with or without spare room for hot-plug.
    fn layout(&self, bridge: &Function, window: usize, with_spare: bool) -> Layout<Need> {
        let mut layout = Layout::new();
        for child in self.children(bridge) {
            for (n, bar) in (0u8..).zip(child.bars.borrow().iter()) {
                if let Some(bar) = bar.filter(|bar| window_of(bar.kind) == Some(window)) {
                    layout.add(bar.size, bar.size, Need::Bar(child.bdf, n));
                }
            }
            for (n, bar, all) in child.virtual_bars() {
                if window_of(bar.kind) == Some(window) {
                    layout.add(all, bar.size, Need::VirtualBar(child.bdf, n));
                }
            }
            if child.is_bridge() {
                let (length, alignment) = self.needs(&child, window, with_spare);
                if length > 0 {
                    layout.add(length, alignment, Need::Bridge(child.bdf));
                }
            }
        }
        if bridge.slot && with_spare {
            layout.add(self.spare(window), WINDOW, Need::Spare);
        }
        layout
    }

    /// Bytes of a window kept free for a hot-plug slot.
    const fn spare(&self, window: usize) -> u64 {
        [self.params.spare_memory, self.params.spare_prefetchable][window]
    }

    fn needs(&self, bridge: &Function, window: usize, with_spare: bool) -> (u64, u64) {
        let (_, length, alignment) = self.layout(bridge, window, with_spare).place();
        (length.next_multiple_of(WINDOW), alignment.max(WINDOW))
    }

    /// Programs a window of a bridge and everything in it.
    async fn assign(
        self: &Rc<Self>,
        cpu: &Cpu,
        bridge: &Rc<Function>,
        window: usize,
        (start, length): (u64, u64),
        with_spare: bool,
    ) {
        let (placed, _, _) = self.layout(bridge, window, with_spare).place();
        bridge.windows.borrow_mut()[window] = (length > 0).then_some((start, length));
        for (offset, need) in placed {
            let at = start + offset;
            match need {
                Need::Bar(bdf, number) => {
                    if let Some(function) = self.function(bridge.beside(bdf)) {
                        self.set_bar(cpu, &function, number, at).await;
                    }
                }
                Need::VirtualBar(bdf, number) => {
                    if let Some(function) = self.function(bridge.beside(bdf)) {
                        self.set_virtual_bar(cpu, &function, number, at).await;
                    }
                }
                Need::Bridge(bdf) => {
                    if let Some(child) = self.function(bridge.beside(bdf)) {
                        let (length, _) = self.needs(&child, window, with_spare);
                        Box::pin(self.assign(cpu, &child, window, (at, length), with_spare)).await;
                    }
                }
                Need::Spare => {
                    bridge.spare.borrow_mut()[window] = Aperture::new(at, at + self.spare(window));
                }
            }
        }
        self.set_window(cpu, bridge, window, start, length).await;
    }

    pub(super) async fn set_window(
        &self,
        cpu: &Cpu,
        bridge: &Function,
        window: usize,
        start: u64,
        length: u64,
    ) {
        // A window is disabled by a limit below its base.
        let range = match length {
            0 => Window { base: WINDOW, limit: 0 },
            _ => Window { base: start, limit: start + length - 1 },
        };
        if window == 0 {
            bridge.backend.config_write(cpu, header::MEMORY_WINDOW, range.to_memory(), 0xf).await;
        } else {
            let at = header::PREFETCHABLE_WINDOW;
            bridge.backend.config_write(cpu, at + 4, (range.base >> 32) as u32, 0xf).await;
            bridge.backend.config_write(cpu, at + 8, (range.limit >> 32) as u32, 0xf).await;
            bridge.backend.config_write(cpu, at, range.to_memory(), 0xf).await;
        }
    }

    async fn set_bar(&self, cpu: &Cpu, function: &Function, number: u8, address: u64) {
        let at = header::BAR0 + 4 * u16::from(number);
        let mut wide = false;
        if let Some(bar) = &mut function.bars.borrow_mut()[usize::from(number)] {
            bar.address = address;
            wide = bar.kind.is_64();
        }
        function.backend.config_write(cpu, at, address as u32, 0xf).await;
        if wide {
            function.backend.config_write(cpu, at + 4, (address >> 32) as u32, 0xf).await;
        }
    }

    /// Sets payload and read request sizes of a hierarchy, and enables memory decoding.
    async fn tune(self: &Rc<Self>, cpu: &Cpu, root: &Rc<Function>) {
        let below: Vec<_> = self.hierarchy(root).into_iter().filter(|f| f.physical.is_none()).collect();
        let mut payload = 4096;
        for function in &below {
            if let Some(pcie) = function.pcie {
                let caps = function.backend.config_read(cpu, pcie + pcie_cap::DEVICE_CAPABILITIES).await;
                payload = payload.min(pcie_cap::size_bytes(caps as u16));
            }
        }
        let answers_ten_bits = self.all_answer_ten_bits(cpu, &below).await;
        for function in &below {
            function.ten_bit_tags.set(answers_ten_bits);
            self.set_sizes(cpu, function, payload).await;
            let command = function.backend.read_u16(cpu, header::COMMAND).await;
            let bridge = if function.is_bridge() { header::COMMAND_BUS_MASTER } else { 0 };
            let on = header::COMMAND_MEMORY | header::COMMAND_INTX_DISABLE | bridge;
            function.backend.write_u16(cpu, header::COMMAND, command | on).await;
        }
    }

    pub(super) async fn set_sizes(&self, cpu: &Cpu, function: &Function, payload: u32) {
        let Some(pcie) = function.pcie else { return };
        let at = pcie + pcie_cap::DEVICE_CONTROL;
        let code = |bytes| pcie_cap::size_code(bytes).unwrap_or(0);
        let capabilities = function.backend.config_read(cpu, pcie + pcie_cap::DEVICE_CAPABILITIES).await;
        let can_extend = capabilities & pcie_cap::CAPABILITIES_EXTENDED_TAGS != 0;
        let extended = if can_extend { pcie_cap::CONTROL_EXTENDED_TAGS } else { 0 };
        let before = function.backend.read_u16(cpu, at).await & !(7 << 5 | 7 << 12);
        // Report correctable, non-fatal and fatal errors and unsupported requests.
        let control = before | code(payload) << 5 | code(self.params.max_read_request) << 12 | extended | 0xf;
        function.backend.write_u16(cpu, at, control).await;
        function.max_payload.set(payload);
        let at = pcie + pcie_cap::DEVICE_CONTROL_2;
        let capabilities = function.backend.config_read(cpu, pcie + pcie_cap::DEVICE_CAPABILITIES_2).await;
        if capabilities & pcie_cap::CAPABILITIES_2_TEN_BIT_REQUESTER != 0 {
            let before = function.backend.read_u16(cpu, at).await & !pcie_cap::CONTROL_2_TEN_BIT_TAGS;
            let on = if function.ten_bit_tags.get() { pcie_cap::CONTROL_2_TEN_BIT_TAGS } else { 0 };
            function.backend.write_u16(cpu, at, before | on).await;
        }
    }

    /// Whether 10-bit tags may be used in a hierarchy: all possible completers must support them (base spec 2.2.6.2).
    async fn all_answer_ten_bits(&self, cpu: &Cpu, hierarchy: &[Rc<Function>]) -> bool {
        for function in hierarchy {
            let Some(pcie) = function.pcie else { return false };
            let at = pcie + pcie_cap::DEVICE_CAPABILITIES_2;
            let capabilities = function.backend.config_read(cpu, at).await;
            if capabilities & pcie_cap::CAPABILITIES_2_TEN_BIT_COMPLETER == 0 {
                return false;
            }
        }
        true
    }

    /// Scans below a port again after a hot-plug, and configures new functions in the space kept free.
    pub async fn rescan(self: &Rc<Self>, cpu: &Cpu, bridge: &Rc<Function>) -> Vec<Rc<Function>> {
        // A function needs time after its link has come up (base spec 6.6.1: 100 ms).
        cpu.sleep(Duration::from_ms(100)).await;
        self.forget_slot_events(cpu, bridge).await;
        let buses =
            Buses { next: Cell::new(u16::from(bridge.secondary.get()) + 1), last: bridge.subordinate.get() };
        for function in &self.scan_bus(cpu, bridge.secondary.get(), Some(bridge), &buses).await {
            let mut bars: Vec<(u8, Bar)> = {
                let bars = function.bars.borrow();
                (0u8..).zip(bars.iter()).filter_map(|(n, bar)| Some((n, (*bar)?))).collect()
            };
            bars.sort_by_key(|(n, bar)| (core::cmp::Reverse(bar.size), *n));
            for (number, bar) in bars {
                let Some(window) = window_of(bar.kind) else { continue };
                let place = bridge.take_space(window, (function.bdf, number), bar.size, bar.size);
                match place {
                    Some(at) => self.set_bar(cpu, function, number, at).await,
                    None => {
                        self.log.write(format!("pci {}: no space for BAR {number}", function));
                        function.bars.borrow_mut()[usize::from(number)] = None;
                    }
                }
            }
            for (number, bar, all) in function.virtual_bars() {
                let Some(window) = window_of(bar.kind) else { continue };
                let place = bridge.take_space(window, (function.bdf, VIRTUAL + number), all, bar.size);
                // Without addresses, virtual functions cannot be enabled.
                if let Some(at) = place {
                    self.set_virtual_bar(cpu, function, number, at).await;
                }
            }
            if function.is_bridge() {
                self.place_windows(cpu, bridge, function).await;
            }
        }
        if let Some(root) = self.function(bridge.beside(bridge.root)) {
            self.tune(cpu, &root).await;
        }
        let mut found: Vec<_> = self.all().into_iter().filter(|f| f.is_behind(bridge)).collect();
        found.sort_by_key(|function| function.bdf.bus());
        found
    }

    /// Assigns a hot-plugged bridge windows in the slot's spare room, and addresses to what is behind it. If the room
    /// is short, the bridge's own slots get no spare room.
    async fn place_windows(self: &Rc<Self>, cpu: &Cpu, slot: &Function, bridge: &Rc<Function>) {
        for window in 0..2 {
            let place = [true, false].into_iter().find_map(|with_spare| {
                let (length, alignment) = self.needs(bridge, window, with_spare);
                let at = match length {
                    0 => Some(0),
                    _ => slot.take_space(window, (bridge.bdf, WINDOWS), length, alignment),
                };
                Some((at?, length, with_spare))
            });
            match place {
                Some((at, length, with_spare)) => {
                    self.assign(cpu, bridge, window, (at, length), with_spare).await;
                }
                None => {
                    let (length, _) = self.needs(bridge, window, false);
                    self.log.write(format!("pci {bridge}: no space for a window of {length} bytes"));
                    self.forget_bars(bridge, window);
                    self.set_window(cpu, bridge, window, 0, 0).await;
                }
            }
        }
    }

    /// Removes the addresses of functions behind a bridge in one of its windows.
    fn forget_bars(&self, bridge: &Function, window: usize) {
        for function in self.all().iter().filter(|function| function.is_behind(bridge)) {
            for bar in function.bars.borrow_mut().iter_mut() {
                *bar = bar.filter(|bar| window_of(bar.kind) != Some(window));
            }
        }
    }
}

/// Allocator for bus numbers.
struct Buses {
    next: Cell<u16>,
    last: u8,
}

impl Buses {
    fn take(&self) -> Option<u8> {
        let taken = u8::try_from(self.next.get()).ok().filter(|&bus| bus <= self.last)?;
        self.next.set(self.next.get() + 1);
        Some(taken)
    }

    /// The last number allocated.
    fn taken(&self) -> u8 {
        (self.next.get() - 1) as u8
    }

    /// Reserves bus numbers for a slot whose secondary bus is `secondary`: `wanted`, or an even share of those left
    /// for this slot and `others`, each of which needs a bus for itself.
    fn leave_behind(&self, secondary: u8, wanted: u8, others: usize) {
        let left = (u16::from(self.last) + 1).saturating_sub(self.next.get());
        let share = left.saturating_sub(others as u16) / (others as u16 + 1);
        let used = self.taken() - secondary;
        self.next.set(self.next.get() + u16::from(wanted.saturating_sub(used)).min(share));
    }
}

/// Reads the capabilities of a function.
pub(super) async fn capabilities(cpu: &Cpu, way: &dyn Backend, draft: Draft) -> Draft {
    let caps = walk(cpu, way, Walk::standard()).await;
    let extended = walk(cpu, way, Walk::extended()).await;
    let pcie = caps.iter().find(|c| c.id == u16::from(id::PCI_EXPRESS)).map(|c| c.offset);
    let pcie_caps = match pcie {
        Some(at) => (way.config_read(cpu, at).await >> 16) as u16,
        None => 0,
    };
    draft.with_capabilities(caps, extended, pcie, pcie_caps)
}

async fn walk(cpu: &Cpu, way: &dyn Backend, mut walk: Walk) -> Vec<Found> {
    let mut found = Vec::new();
    while let Some(register) = walk.wants() {
        let value = way.config_read(cpu, register).await;
        found.extend(walk.take(value));
    }
    found
}

/// Sizes the BARs with decoding disabled.
async fn size_bars(cpu: &Cpu, way: &dyn Backend, count: u8) -> [Option<Bar>; 6] {
    let command = way.read_u16(cpu, header::COMMAND).await;
    let decoding = header::COMMAND_MEMORY | header::COMMAND_IO;
    way.write_u16(cpu, header::COMMAND, command & !decoding).await;
    size_bars_at(cpu, way, header::BAR0, count).await
}

/// Sizes the BARs whose registers start at `first`.
pub(super) async fn size_bars_at(cpu: &Cpu, way: &dyn Backend, first: u16, count: u8) -> [Option<Bar>; 6] {
    let mut found = [None; 6];
    let mut index = 0;
    while index < count {
        let at = first + 4 * u16::from(index);
        let (low, sized_low) = probe_bar(cpu, way, at).await;
        let wide = bars::BarKind::from_register(low).is_some_and(bars::BarKind::is_64) && index + 1 < count;
        let (high, sized_high) = if wide { probe_bar(cpu, way, at + 4).await } else { (0, 0) };
        found[usize::from(index)] = bars::from_sizing(low, high, sized_low, sized_high);
        index += if wide { 2 } else { 1 };
    }
    found
}

async fn probe_bar(cpu: &Cpu, way: &dyn Backend, at: u16) -> (u32, u32) {
    let before = way.config_read(cpu, at).await;
    way.config_write(cpu, at, u32::MAX, 0xf).await;
    let sized = way.config_read(cpu, at).await;
    way.config_write(cpu, at, before, 0xf).await;
    (before, sized)
}
