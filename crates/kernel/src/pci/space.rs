//! Address space of functions: layout of bridge windows, and room behind hot-plug slots.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::cpu::Cpu;
use units::Bytes;
use wire::pcie::config::Bar;
use wire::pcie::{Bdf, FunctionAddress};

use super::base::PciBase;
use super::function::Function;
use super::iov::VirtualFunctions;
use super::resources::{Aperture, Layout, WINDOW, window_of};
use super::topology::Topology;

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
const VIRTUAL: u8 = 8;

/// Space behind a hot-plug slot.
#[derive(Default)]
struct SlotSpace {
    /// Free space in the slot's windows.
    free: [Aperture; 2],
    /// Former addresses and sizes of BARs of removed functions.
    kept: BTreeMap<(Bdf, u8), (u64, u64)>,
}

/// Space reserved for a bridge's window.
#[derive(Clone, Copy)]
pub(super) struct Reserved {
    start: u64,
    /// Bytes.
    length: u64,
    /// Whether it has room for hot-plug.
    with_spare: bool,
}

/// Assigns address space to functions.
pub(super) struct AddressSpace {
    base: PciBase,
    topology: Rc<Topology>,
    iov: Rc<VirtualFunctions>,
    /// Free address space below and above 4 GiB.
    free: RefCell<[Aperture; 2]>,
    /// By address of the slot's port.
    slots: RefCell<BTreeMap<FunctionAddress, SlotSpace>>,
}

impl AddressSpace {
    pub fn new(
        base: PciBase,
        topology: Rc<Topology>,
        iov: Rc<VirtualFunctions>,
        free: [Aperture; 2],
    ) -> Self {
        Self { base, topology, iov, free: RefCell::new(free), slots: RefCell::default() }
    }

    /// Layout of a bridge's window, with or without spare room for hot-plug.
    fn layout(&self, bridge: &Function, window: usize, with_spare: bool) -> Layout<Need> {
        let mut layout = Layout::new();
        for child in self.topology.all().iter().filter(|f| f.is_below(bridge)) {
            for (n, bar) in child.bars.numbered() {
                if window_of(bar.kind) == Some(window) {
                    layout.add(bar.size, bar.size, Need::Bar(child.bdf, n));
                }
            }
            for (n, bar, all) in self.iov.bars(child) {
                if window_of(bar.kind) == Some(window) {
                    layout.add(all, bar.size, Need::VirtualBar(child.bdf, n));
                }
            }
            if child.is_bridge() {
                let (length, alignment) = self.needs(child, window, with_spare);
                if length > 0 {
                    layout.add(length, alignment, Need::Bridge(child.bdf));
                }
            }
        }
        if bridge.slot().is_some() && with_spare {
            layout.add(self.spare(window), WINDOW, Need::Spare);
        }
        layout
    }

    /// Bytes of a window kept free for a hot-plug slot.
    fn spare(&self, window: usize) -> u64 {
        [self.base.params.spare_memory, self.base.params.spare_prefetchable][window]
    }

    fn needs(&self, bridge: &Function, window: usize, with_spare: bool) -> (u64, u64) {
        let (_, length, alignment) = self.layout(bridge, window, with_spare).place();
        (length.next_multiple_of(WINDOW), alignment.max(WINDOW))
    }

    /// Programs a window of a bridge and everything in it.
    async fn assign(
        &self,
        cpu: &Cpu,
        bridge: &Rc<Function>,
        window: usize,
        (start, length): (u64, u64),
        with_spare: bool,
    ) {
        let (placed, _, _) = self.layout(bridge, window, with_spare).place();
        bridge.forwards.set_window(window, start, length);
        for (offset, need) in placed {
            let at = start + offset;
            match need {
                Need::Bar(bdf, number) => {
                    if let Some(function) = self.topology.function(bridge.beside(bdf)) {
                        function.set_bar(cpu, number, at).await;
                    }
                }
                Need::VirtualBar(bdf, number) => {
                    if let Some(function) = self.topology.function(bridge.beside(bdf)) {
                        self.iov.set_bar(cpu, &function, number, at).await;
                    }
                }
                Need::Bridge(bdf) => {
                    if let Some(child) = self.topology.function(bridge.beside(bdf)) {
                        let (length, _) = self.needs(&child, window, with_spare);
                        Box::pin(self.assign(cpu, &child, window, (at, length), with_spare)).await;
                    }
                }
                Need::Spare => {
                    let mut slots = self.slots.borrow_mut();
                    slots.entry(bridge.at()).or_default().free[window] =
                        Aperture::new(at, at + self.spare(window));
                }
            }
        }
        bridge.set_window(cpu, window, start, length).await;
    }

    /// Enlarges BARs that can be resized as far as the kernel's parameter asks and the address space suffices for what is present:
    /// while it does not, the largest gets the next smaller size.
    pub async fn resize(&self, cpu: &Cpu, roots: &[Rc<Function>]) {
        let Some(wanted) = self.base.params.resizable_bars else { return };
        let mut all = Vec::new();
        for function in self.topology.all() {
            for (number, bar) in function.bars.numbered() {
                let sizes = function.sizes_of(number, &bar, Some(wanted));
                if sizes.len() > 1 {
                    function.bars.resize(number, sizes[0]);
                    all.push((Rc::clone(&function), number, sizes, 0));
                }
            }
        }
        while !self.all_fit(roots) {
            let smaller = all.iter_mut().filter(|(_, _, sizes, chosen)| chosen + 1 < sizes.len());
            let Some((function, number, sizes, chosen)) =
                smaller.max_by_key(|(_, _, sizes, chosen)| sizes[*chosen])
            else {
                break;
            };
            *chosen += 1;
            function.bars.resize(*number, sizes[*chosen]);
        }
        for (function, number, sizes, chosen) in all {
            self.tell_size(&function, number, &sizes, chosen);
            function.write_sizes(cpu).await;
        }
    }

    /// Logs which of its sizes a BAR has got, with a warning if it is not the first.
    fn tell_size(&self, function: &Function, number: u8, sizes: &[u64], chosen: usize) {
        let [wanted, got] = [sizes[0], sizes[chosen]].map(Bytes::new);
        match chosen {
            0 => self.base.log.write(format!("pci {function}: BAR {number} resized to {got}")),
            _ => self
                .base
                .log
                .warn(format!("pci {function}: BAR {number} gets {got}: no address space for {wanted}")),
        }
    }

    /// Whether the address space suffices for everything below root ports, without room for hot-plug.
    fn all_fit(&self, roots: &[Rc<Function>]) -> bool {
        (0..2).all(|window| {
            let mut free = self.free.borrow()[window].clone();
            roots.iter().all(|root| {
                let (length, alignment) = self.needs(root, window, false);
                free.take(length, alignment).is_some()
            })
        })
    }

    /// Reserves windows for everything below root ports. If address space is short, room for hot-plug is only given from
    /// what is left when everything present has its own.
    pub fn reserve(&self, roots: &[Rc<Function>]) -> Vec<[Option<Reserved>; 2]> {
        let [low, high] = [0, 1].map(|window| self.reserve_window(roots, window));
        low.into_iter().zip(high).map(|(low, high)| [low, high]).collect()
    }

    fn reserve_window(&self, roots: &[Rc<Function>], window: usize) -> Vec<Option<Reserved>> {
        let free = &mut self.free.borrow_mut()[window];
        let take = |free: &mut Aperture, root: &Function, with_spare| {
            let (length, alignment) = self.needs(root, window, with_spare);
            Some(Reserved { start: free.take(length, alignment)?, length, with_spare })
        };
        let mut enough = free.clone();
        let all: Option<Vec<_>> = roots.iter().map(|root| take(&mut enough, root, true).map(Some)).collect();
        if let Some(all) = all {
            *free = enough;
            return all;
        }
        let mut reserved: Vec<_> = roots.iter().map(|root| take(free, root, false)).collect();
        for (root, reserved) in roots.iter().zip(&mut reserved) {
            let Some(own) = reserved else {
                let (length, _) = self.needs(root, window, false);
                self.base.log.warn(format!("pci {root}: no address space for {length} bytes"));
                continue;
            };
            let mut larger = free.clone();
            larger.give(own.start, own.length);
            if let Some(with_spare) = take(&mut larger, root, true) {
                (*own, *free) = (with_spare, larger);
            } else {
                let (length, _) = self.needs(root, window, true);
                self.base
                    .log
                    .warn(format!("pci {root}: no address space for {length} bytes with room for hot-plug"));
            }
        }
        reserved
    }

    /// Assigns addresses to everything below a root port, in the windows reserved for it.
    pub async fn assign_below(&self, cpu: &Cpu, root: &Rc<Function>, windows: [Option<Reserved>; 2]) {
        for (window, reserved) in windows.into_iter().enumerate() {
            self.assign_or_forget(cpu, root, window, reserved).await;
        }
    }

    /// Assigns a bridge a window and addresses to what is behind it; without a window, it forwards nothing.
    async fn assign_or_forget(
        &self,
        cpu: &Cpu,
        bridge: &Rc<Function>,
        window: usize,
        reserved: Option<Reserved>,
    ) {
        let Some(Reserved { start, length, with_spare }) = reserved else {
            self.forget_bars(bridge, window);
            bridge.set_window(cpu, window, 0, 0).await;
            return;
        };
        self.assign(cpu, bridge, window, (start, length), with_spare).await;
    }

    /// Assigns addresses to a function that was plugged in below a slot, in the space kept free there.
    pub async fn assign_hotplugged(&self, cpu: &Cpu, slot: &Function, function: &Rc<Function>) {
        let mut bars: Vec<(u8, Bar)> = function.bars.numbered().collect();
        bars.sort_by_key(|(n, bar)| (core::cmp::Reverse(bar.size), *n));
        for (number, bar) in bars {
            let Some(window) = window_of(bar.kind) else { continue };
            let sizes = function.sizes_of(number, &bar, self.base.params.resizable_bars);
            let place = sizes.iter().enumerate().find_map(|(chosen, &size)| {
                Some((chosen, self.take(slot, window, (function.bdf, number), size, size)?))
            });
            match place {
                Some((chosen, at)) => {
                    if sizes.len() > 1 {
                        function.bars.resize(number, sizes[chosen]);
                        self.tell_size(function, number, &sizes, chosen);
                        function.write_sizes(cpu).await;
                    }
                    function.set_bar(cpu, number, at).await;
                }
                None => {
                    self.base.log.warn(format!("pci {}: no space for BAR {number}", function));
                    function.bars.give_up(|lacking, _| lacking == number);
                }
            }
        }
        for (number, bar, all) in self.iov.bars(function) {
            let Some(window) = window_of(bar.kind) else { continue };
            let place = self.take(slot, window, (function.bdf, VIRTUAL + number), all, bar.size);
            // Without addresses, virtual functions cannot be enabled.
            if let Some(at) = place {
                self.iov.set_bar(cpu, function, number, at).await;
            }
        }
        if function.is_bridge() {
            self.place_windows(cpu, slot, function).await;
        }
    }

    /// Assigns a hot-plugged bridge windows in the slot's spare room, and addresses to what is behind it. If the room
    /// is short, the bridge's own slots get no spare room.
    async fn place_windows(&self, cpu: &Cpu, slot: &Function, bridge: &Rc<Function>) {
        for window in 0..2 {
            let reserved = [true, false].into_iter().find_map(|with_spare| {
                let (length, alignment) = self.needs(bridge, window, with_spare);
                let start = match length {
                    0 => Some(0),
                    _ => self.take(slot, window, (bridge.bdf, WINDOWS), length, alignment),
                };
                Some(Reserved { start: start?, length, with_spare })
            });
            if reserved.is_none() {
                let (length, _) = self.needs(bridge, window, false);
                self.base.log.warn(format!("pci {bridge}: no space for a window of {length} bytes"));
            }
            self.assign_or_forget(cpu, bridge, window, reserved).await;
        }
    }

    /// Removes the addresses of functions behind a bridge in one of its windows.
    fn forget_bars(&self, bridge: &Function, window: usize) {
        for function in self.topology.behind(bridge) {
            function.bars.give_up(|_, bar| window_of(bar.kind) == Some(window));
        }
    }

    /// Allocates address space behind a slot. A BAR of the same size as the last one there gets the same place, if it
    /// is still free.
    fn take(
        &self,
        slot: &Function,
        window: usize,
        place: (Bdf, u8),
        length: u64,
        alignment: u64,
    ) -> Option<u64> {
        let mut slots = self.slots.borrow_mut();
        let SlotSpace { free, kept } = slots.entry(slot.at()).or_default();
        let kept = kept.get(&place).copied();
        match kept.filter(|&(at, size)| size == length && free[window].take_at(at, size)) {
            Some((at, _)) => Some(at),
            None => free[window].take(length, alignment),
        }
    }

    /// Frees the address space of a function directly below a slot, and of everything below it.
    pub fn free(&self, slot: &Function, function: &Function) {
        let mut slots = self.slots.borrow_mut();
        let SlotSpace { free, kept } = slots.entry(slot.at()).or_default();
        let own = function.bars.numbered().map(|(n, bar)| (n, bar, bar.size));
        let virtual_bars = self.iov.bars(function).into_iter().map(|(n, bar, all)| (VIRTUAL + n, bar, all));
        for (n, bar, length) in own.chain(virtual_bars) {
            let Some(window) = window_of(bar.kind) else { continue };
            // A function that got no space has an address of its own choice.
            let had_space = slot.forwards.windows()[window]
                .is_some_and(|(start, length)| (start..start + length).contains(&bar.address));
            if had_space {
                kept.insert((function.bdf, n), (bar.address, length));
                free[window].give(bar.address, length);
            }
        }
        for (window, free) in function.forwards.windows().into_iter().zip(free.iter_mut()) {
            if let Some((start, length)) = window {
                free.give(start, length);
            }
        }
    }

    /// Forgets the space behind a bridge that was removed.
    pub fn forget(&self, bridge: &Function) {
        self.slots.borrow_mut().remove(&bridge.at());
    }
}
