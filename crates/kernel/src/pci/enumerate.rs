//! Finding functions and setting them up, through configuration reads and writes alone.

use std::rc::Rc;

use platform::cpu::Cpu;
use platform::pci::Identity;
use units::Duration;
use wire::pcie::Bdf;
use wire::pcie::config::caps::{Found, Walk, id};
use wire::pcie::config::header::{self, Window};
use wire::pcie::config::{Bar, bars, pcie_cap};

use super::function::Draft;
use super::resources::{Layout, WINDOW, window_of};
use super::{Aperture, Function};
use crate::kernel::Inner;

/// What one thing behind a bridge needs address space for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Need {
    Bar(Bdf, u8),
    /// A BAR of all virtual functions of a function.
    VirtualBar(Bdf, u8),
    Bridge(Bdf),
    /// Kept free for what is plugged in later.
    Spare,
}

/// Added to the number of a BAR of virtual functions where one of the function itself could be meant.
pub(super) const VIRTUAL: u8 = 8;

impl Inner {
    /// Finds everything below the root ports and sets it up.
    pub async fn enumerate(self: &Rc<Self>, cpu: &Cpu) {
        let roots = self.scan_bus(cpu, 0, None).await;
        for root in roots {
            self.set_up(cpu, &root).await;
        }
    }

    /// Gives what is below a bridge of bus 0 addresses and settings.
    async fn set_up(self: &Rc<Self>, cpu: &Cpu, root: &Rc<Function>) {
        if root.is_bridge() {
            for window in 0..2 {
                let (length, alignment) = self.needs(root, window);
                let start = self.pci.apertures.borrow_mut()[window].take(length, alignment.max(WINDOW));
                match start {
                    Some(start) => self.assign(cpu, root, window, start, length).await,
                    None => self.log(format!("pci {}: no address space for {length} bytes", root.bdf)),
                }
            }
        }
        self.tune(cpu, root).await;
    }

    /// Finds the functions of a bus and what is behind its bridges.
    async fn scan_bus(
        self: &Rc<Self>,
        cpu: &Cpu,
        bus: u8,
        parent: Option<&Rc<Function>>,
    ) -> Vec<Rc<Function>> {
        // A link has one device at its end; bus 0 and the inside of a switch have more.
        let devices = if parent.is_some_and(|p| p.has_link_below()) { 1 } else { 32 };
        let mut found = Vec::new();
        for device in 0..devices {
            let mut functions = 1;
            for number in 0..8 {
                if number >= functions {
                    break;
                }
                let bdf = Bdf::new(bus, device, number);
                let Some(function) = self.discover(cpu, bdf, parent).await else { continue };
                if function.multi_function {
                    functions = 8;
                }
                if let Some(parent) = parent.filter(|_| number == 0) {
                    self.forward_ari(cpu, &function, parent).await;
                }
                found.push(function);
            }
        }
        for function in &found {
            if function.is_bridge() {
                self.scan_bridge(cpu, function).await;
            }
        }
        found
    }

    /// Gives a bridge its bus numbers and looks behind it.
    async fn scan_bridge(self: &Rc<Self>, cpu: &Cpu, bridge: &Rc<Function>) {
        let secondary = self.pci.next_bus.get();
        if secondary == u8::MAX {
            self.log(format!("pci {}: no bus number is left", bridge.bdf));
            return;
        }
        self.pci.next_bus.set(secondary + 1);
        let numbers =
            |last: u8| u32::from(bridge.bdf.bus()) | u32::from(secondary) << 8 | u32::from(last) << 16;
        self.config_write(cpu, bridge.bdf, header::BUS_NUMBERS, numbers(u8::MAX), 7).await;
        bridge.secondary.set(secondary);
        if self.link_is_active(cpu, bridge).await {
            Box::pin(self.scan_bus(cpu, secondary, Some(bridge))).await;
        }
        let spare = if bridge.slot { self.pci.params.spare_buses } else { 0 };
        let least = secondary.saturating_add(spare);
        let last = least.max(self.pci.next_bus.get() - 1);
        self.pci.next_bus.set(last.saturating_add(1));
        self.config_write(cpu, bridge.bdf, header::BUS_NUMBERS, numbers(last), 7).await;
        bridge.subordinate.set(last);
    }

    /// Whether somebody can answer below a port.
    pub(super) async fn link_is_active(&self, cpu: &Cpu, bridge: &Function) -> bool {
        let Some(pcie) = bridge.pcie.filter(|_| bridge.has_link_below()) else { return true };
        let link = self.config_read(cpu, bridge.bdf, pcie + pcie_cap::LINK_CONTROL).await;
        (link >> 16) as u16 & pcie_cap::LINK_STATUS_ACTIVE != 0
    }

    /// Reads what a function is, if there is one.
    async fn discover(
        self: &Rc<Self>,
        cpu: &Cpu,
        bdf: Bdf,
        parent: Option<&Rc<Function>>,
    ) -> Option<Rc<Function>> {
        let ids = self.config_read(cpu, bdf, header::VENDOR).await;
        if ids == u32::MAX || ids as u16 == 0 {
            return None;
        }
        let class = self.config_read(cpu, bdf, header::REVISION).await;
        let kind = (self.config_read(cpu, bdf, header::CACHE_LINE).await >> 16) as u8;
        let is_bridge = kind & 0x7f == 1;
        let subsystem = match is_bridge {
            true => 0,
            false => self.config_read(cpu, bdf, header::SUBSYSTEM).await,
        };
        let identity = Identity {
            vendor: ids as u16,
            device: (ids >> 16) as u16,
            subsystem_vendor: subsystem as u16,
            subsystem: (subsystem >> 16) as u16,
            class: class >> 8,
            revision: class as u8,
        };
        let root = parent.map_or(bdf, |parent| parent.root);
        let draft = Function::draft(self, bdf, root, parent.map(|p| p.bdf), identity, kind);
        let draft = self.capabilities(cpu, bdf, draft).await;
        let bars = self.size_bars(cpu, bdf, if is_bridge { 2 } else { 6 }).await;
        let function = draft.with_bars(bars).finish();
        self.find_virtual_functions(cpu, &function).await;
        self.log(format!(
            "pci {bdf}: [{:04x}:{:04x}] class {:06x}",
            identity.vendor, identity.device, identity.class
        ));
        self.pci.add(&function);
        Some(function)
    }

    /// Reads what a function can do.
    pub(super) async fn capabilities(&self, cpu: &Cpu, bdf: Bdf, draft: Draft) -> Draft {
        let caps = self.walk(cpu, bdf, Walk::standard()).await;
        let extended = self.walk(cpu, bdf, Walk::extended()).await;
        let pcie = caps.iter().find(|c| c.id == u16::from(id::PCI_EXPRESS)).map(|c| c.offset);
        let pcie_caps = match pcie {
            Some(at) => (self.config_read(cpu, bdf, at).await >> 16) as u16,
            None => 0,
        };
        draft.with_capabilities(caps, extended, pcie, pcie_caps)
    }

    async fn walk(&self, cpu: &Cpu, bdf: Bdf, mut walk: Walk) -> Vec<Found> {
        let mut found = Vec::new();
        while let Some(register) = walk.wants() {
            let value = self.config_read(cpu, bdf, register).await;
            found.extend(walk.take(value));
        }
        found
    }

    /// Sizes BARs with decoding off.
    async fn size_bars(&self, cpu: &Cpu, bdf: Bdf, count: u8) -> [Option<Bar>; 6] {
        let command = self.config_read_u16(cpu, bdf, header::COMMAND).await;
        let decoding = header::COMMAND_MEMORY | header::COMMAND_IO;
        self.config_write_u16(cpu, bdf, header::COMMAND, command & !decoding).await;
        self.size_bars_at(cpu, bdf, header::BAR0, count).await
    }

    /// Sizes the BARs whose registers begin at `first`.
    pub(super) async fn size_bars_at(&self, cpu: &Cpu, bdf: Bdf, first: u16, count: u8) -> [Option<Bar>; 6] {
        let mut found = [None; 6];
        let mut index = 0;
        while index < count {
            let at = first + 4 * u16::from(index);
            let (low, sized_low) = self.probe_bar(cpu, bdf, at).await;
            let wide =
                bars::BarKind::from_register(low).is_some_and(bars::BarKind::is_64) && index + 1 < count;
            let (high, sized_high) = if wide { self.probe_bar(cpu, bdf, at + 4).await } else { (0, 0) };
            found[usize::from(index)] = bars::from_sizing(low, high, sized_low, sized_high);
            index += if wide { 2 } else { 1 };
        }
        found
    }

    async fn probe_bar(&self, cpu: &Cpu, bdf: Bdf, at: u16) -> (u32, u32) {
        let before = self.config_read(cpu, bdf, at).await;
        self.config_write(cpu, bdf, at, u32::MAX, 0xf).await;
        let sized = self.config_read(cpu, bdf, at).await;
        self.config_write(cpu, bdf, at, before, 0xf).await;
        (before, sized)
    }

    fn children(&self, bridge: &Function) -> Vec<Rc<Function>> {
        self.pci.all().into_iter().filter(|f| f.parent == Some(bridge.bdf)).collect()
    }

    /// What goes into one window of a bridge.
    fn layout(&self, bridge: &Function, window: usize) -> Layout<Need> {
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
                let (length, alignment) = self.needs(&child, window);
                if length > 0 {
                    layout.add(length, alignment, Need::Bridge(child.bdf));
                }
            }
        }
        if bridge.slot {
            layout.add(self.spare(window), WINDOW, Need::Spare);
        }
        layout
    }

    /// Bytes of a window that are kept free behind a slot.
    const fn spare(&self, window: usize) -> u64 {
        [self.pci.params.spare_memory, self.pci.params.spare_prefetchable][window]
    }

    fn needs(&self, bridge: &Function, window: usize) -> (u64, u64) {
        let (_, length, alignment) = self.layout(bridge, window).place();
        (length.next_multiple_of(WINDOW), alignment.max(WINDOW))
    }

    /// Programs one window of a bridge and everything that goes through it.
    async fn assign(
        self: &Rc<Self>,
        cpu: &Cpu,
        bridge: &Rc<Function>,
        window: usize,
        start: u64,
        length: u64,
    ) {
        let (placed, _, _) = self.layout(bridge, window).place();
        bridge.windows.borrow_mut()[window] = (length > 0).then_some((start, length));
        for (offset, need) in placed {
            let at = start + offset;
            match need {
                Need::Bar(bdf, number) => {
                    if let Some(function) = self.pci.function(bdf) {
                        self.set_bar(cpu, &function, number, at).await;
                    }
                }
                Need::VirtualBar(bdf, number) => {
                    if let Some(function) = self.pci.function(bdf) {
                        self.set_virtual_bar(cpu, &function, number, at).await;
                    }
                }
                Need::Bridge(bdf) => {
                    if let Some(child) = self.pci.function(bdf) {
                        let (length, _) = self.needs(&child, window);
                        Box::pin(self.assign(cpu, &child, window, at, length)).await;
                    }
                }
                Need::Spare => {
                    bridge.spare.borrow_mut()[window] = Aperture::new(at, at + self.spare(window));
                }
            }
        }
        self.set_window(cpu, bridge.bdf, window, start, length).await;
    }

    pub(super) async fn set_window(&self, cpu: &Cpu, bridge: Bdf, window: usize, start: u64, length: u64) {
        // A window whose limit is below its base is shut.
        let range = match length {
            0 => Window { base: WINDOW, limit: 0 },
            _ => Window { base: start, limit: start + length - 1 },
        };
        if window == 0 {
            self.config_write(cpu, bridge, header::MEMORY_WINDOW, range.to_memory(), 0xf).await;
        } else {
            let at = header::PREFETCHABLE_WINDOW;
            self.config_write(cpu, bridge, at + 4, (range.base >> 32) as u32, 0xf).await;
            self.config_write(cpu, bridge, at + 8, (range.limit >> 32) as u32, 0xf).await;
            self.config_write(cpu, bridge, at, range.to_memory(), 0xf).await;
        }
    }

    async fn set_bar(&self, cpu: &Cpu, function: &Function, number: u8, address: u64) {
        let at = header::BAR0 + 4 * u16::from(number);
        let mut wide = false;
        if let Some(bar) = &mut function.bars.borrow_mut()[usize::from(number)] {
            bar.address = address;
            wide = bar.kind.is_64();
        }
        self.config_write(cpu, function.bdf, at, address as u32, 0xf).await;
        if wide {
            self.config_write(cpu, function.bdf, at + 4, (address >> 32) as u32, 0xf).await;
        }
    }

    /// Sets payload and request sizes and lets a hierarchy answer to addresses.
    async fn tune(self: &Rc<Self>, cpu: &Cpu, root: &Rc<Function>) {
        let below: Vec<_> =
            self.pci.all().into_iter().filter(|f| f.root == root.bdf && f.physical.is_none()).collect();
        let mut payload = 4096;
        for function in &below {
            if let Some(pcie) = function.pcie {
                let caps = self.config_read(cpu, function.bdf, pcie + pcie_cap::DEVICE_CAPABILITIES).await;
                payload = payload.min(pcie_cap::size_bytes(caps as u16));
            }
        }
        let answers_ten_bits = self.all_answer_ten_bits(cpu, &below).await;
        for function in &below {
            function.ten_bit_tags.set(answers_ten_bits);
            self.set_sizes(cpu, function, payload).await;
            let command = self.config_read_u16(cpu, function.bdf, header::COMMAND).await;
            let bridge = if function.is_bridge() { header::COMMAND_BUS_MASTER } else { 0 };
            let on = header::COMMAND_MEMORY | header::COMMAND_INTX_DISABLE | bridge;
            self.config_write_u16(cpu, function.bdf, header::COMMAND, command | on).await;
        }
    }

    pub(super) async fn set_sizes(&self, cpu: &Cpu, function: &Function, payload: u32) {
        let Some(pcie) = function.pcie else { return };
        let at = pcie + pcie_cap::DEVICE_CONTROL;
        let code = |bytes| pcie_cap::size_code(bytes).unwrap_or(0);
        let capabilities = self.config_read(cpu, function.bdf, pcie + pcie_cap::DEVICE_CAPABILITIES).await;
        let can_extend = capabilities & pcie_cap::CAPABILITIES_EXTENDED_TAGS != 0;
        let extended = if can_extend { pcie_cap::CONTROL_EXTENDED_TAGS } else { 0 };
        let before = self.config_read_u16(cpu, function.bdf, at).await & !(7 << 5 | 7 << 12);
        // Correctable, non-fatal, fatal errors and unsupported requests are reported.
        let control =
            before | code(payload) << 5 | code(self.pci.params.max_read_request) << 12 | extended | 0xf;
        self.config_write_u16(cpu, function.bdf, at, control).await;
        function.max_payload.set(payload);
        let at = pcie + pcie_cap::DEVICE_CONTROL_2;
        let capabilities = self.config_read(cpu, function.bdf, pcie + pcie_cap::DEVICE_CAPABILITIES_2).await;
        if capabilities & pcie_cap::CAPABILITIES_2_TEN_BIT_REQUESTER != 0 {
            let before =
                self.config_read_u16(cpu, function.bdf, at).await & !pcie_cap::CONTROL_2_TEN_BIT_TAGS;
            let on = if function.ten_bit_tags.get() { pcie_cap::CONTROL_2_TEN_BIT_TAGS } else { 0 };
            self.config_write_u16(cpu, function.bdf, at, before | on).await;
        }
    }

    /// Whether requests with 10-bit tags may go anywhere in a hierarchy: to the root, through switches, to each other
    /// (base spec 2.2.6.2: none may be sent to a completer that does not answer them).
    async fn all_answer_ten_bits(&self, cpu: &Cpu, hierarchy: &[Rc<Function>]) -> bool {
        for function in hierarchy {
            let Some(pcie) = function.pcie else { return false };
            let at = pcie + pcie_cap::DEVICE_CAPABILITIES_2;
            let capabilities = self.config_read(cpu, function.bdf, at).await;
            if capabilities & pcie_cap::CAPABILITIES_2_TEN_BIT_COMPLETER == 0 {
                return false;
            }
        }
        true
    }

    /// Looks again below a port into whose slot something was put; what is new is set up in the space kept free.
    pub async fn rescan(self: &Rc<Self>, cpu: &Cpu, bridge: &Rc<Function>) -> Vec<Rc<Function>> {
        // A function needs a while after its link came up (base spec 6.6.1: 100 ms).
        cpu.sleep(Duration::from_ms(100)).await;
        self.forget_slot_events(cpu, bridge).await;
        let found = self.scan_bus(cpu, bridge.secondary.get(), Some(bridge)).await;
        for function in &found {
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
                        self.log(format!("pci {}: no space for BAR {number}", function.bdf));
                        function.bars.borrow_mut()[usize::from(number)] = None;
                    }
                }
            }
            for (number, bar, all) in function.virtual_bars() {
                let Some(window) = window_of(bar.kind) else { continue };
                let place = bridge.take_space(window, (function.bdf, VIRTUAL + number), all, bar.size);
                // Without room they cannot be enabled.
                if let Some(at) = place {
                    self.set_virtual_bar(cpu, function, number, at).await;
                }
            }
        }
        if let Some(root) = self.pci.function(bridge.root) {
            self.tune(cpu, &root).await;
        }
        found
    }
}
