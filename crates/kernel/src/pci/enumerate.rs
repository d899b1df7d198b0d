//! Enumeration: finds functions and configures them, through configuration accesses alone.

use std::cell::Cell;
use std::rc::Rc;

use platform::cpu::Cpu;
use wire::pcie::config::caps::extended_id;
use wire::pcie::config::{header, pcie_cap};
use wire::pcie::{Bdf, FunctionAddress};

use super::backend::{Backend, OWN_SEGMENT, Own};
use super::base::PciBase;
use super::function::Function;
use super::iov::VirtualFunctions;
use super::probe::probe;
use super::settings::Settings;
use super::space::AddressSpace;
use super::topology::Topology;

/// Finds and configures functions.
pub(super) struct Enumerator {
    pub base: PciBase,
    pub topology: Rc<Topology>,
    pub settings: Rc<Settings>,
    pub iov: Rc<VirtualFunctions>,
    pub space: Rc<AddressSpace>,
}

impl Enumerator {
    /// Finds and configures everything below the root ports.
    pub async fn enumerate(&self, cpu: &Cpu) {
        let buses = Buses { next: Cell::new(1), last: u8::MAX };
        let roots = self.scan_bus(cpu, 0, None, &buses, buses.last).await;
        let (ports, others): (Vec<_>, Vec<_>) = roots.into_iter().partition(|root| root.is_bridge());
        self.space.resize(cpu, &ports).await;
        let reserved = self.space.reserve(&ports);
        for (port, windows) in ports.iter().zip(reserved) {
            self.space.assign_below(cpu, port, windows).await;
            self.tune(cpu, port).await;
        }
        for other in &others {
            self.tune(cpu, other).await;
        }
    }

    /// Applies the settings of a hierarchy.
    async fn tune(&self, cpu: &Cpu, root: &Function) {
        let mut hierarchy = self.topology.hierarchy(root);
        hierarchy.retain(|function| function.physical.is_none());
        self.settings.tune(cpu, &hierarchy).await;
    }

    /// Finds the functions of a bus, and what is behind its bridges, whose slots reserve bus numbers up to `last`.
    async fn scan_bus(
        &self,
        cpu: &Cpu,
        bus: u8,
        parent: Option<&Rc<Function>>,
        buses: &Buses,
        last: u8,
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
                let way = Rc::new(Own { cores: Rc::clone(&self.base.cores), bdf, root });
                let at = FunctionAddress { segment: OWN_SEGMENT, bdf };
                let found_here = self.discover(cpu, at, way, parent.map(|parent| parent.bdf)).await;
                let Some(function) = found_here else { continue };
                if function.has_others_beside() {
                    functions = 8;
                }
                if let Some(parent) = parent.filter(|_| number == 0) {
                    forward_ari(cpu, &function, parent).await;
                }
                self.iov.tell_hierarchy(cpu, &function).await;
                found.push(function);
            }
        }
        let bridges: Vec<_> = found.iter().filter(|function| function.is_bridge()).collect();
        for (n, bridge) in bridges.iter().enumerate() {
            let last = buses.share(last, bridges.len() - n - 1, self.base.params.spare_buses);
            self.scan_bridge(cpu, bridge, buses, last).await;
        }
        found
    }

    /// Assigns bus numbers to a bridge and scans behind it. Its slots reserve numbers up to `last`; what is present may
    /// have later ones.
    async fn scan_bridge(&self, cpu: &Cpu, bridge: &Rc<Function>, buses: &Buses, last: u8) {
        let Some(secondary) = buses.take() else {
            self.base.log.warn(format!("pci {bridge}: out of bus numbers"));
            return;
        };
        let numbers =
            |last: u8| u32::from(bridge.bdf.bus()) | u32::from(secondary) << 8 | u32::from(last) << 16;
        bridge.backend.config_write(cpu, header::BUS_NUMBERS, numbers(buses.last), 7).await;
        bridge.forwards.begin_at(secondary);
        self.settings.release(cpu, bridge).await;
        if bridge.link_is_active(cpu).await {
            Box::pin(self.scan_bus(cpu, secondary, Some(bridge), buses, last)).await;
        }
        if bridge.slot().is_some() {
            buses.reserve(secondary.saturating_add(self.base.params.spare_buses).min(last));
        }
        let last = buses.taken();
        bridge.backend.config_write(cpu, header::BUS_NUMBERS, numbers(last), 7).await;
        bridge.forwards.end_at(last);
    }

    /// Adds a function, if there is one.
    pub async fn discover(
        &self,
        cpu: &Cpu,
        at: FunctionAddress,
        way: Rc<dyn Backend>,
        parent: Option<Bdf>,
    ) -> Option<Rc<Function>> {
        let node = self.base.node_of(&*way);
        let function = probe(cpu, at, way, parent, node).await?;
        self.iov.find(cpu, &function).await;
        self.settings.isolate(cpu, &function).await;
        let identity = function.identity;
        self.base.log.write(format!(
            "pci {function}: [{:04x}:{:04x}] class {:06x}",
            identity.vendor, identity.device, identity.class
        ));
        self.topology.add(&function);
        // What another host lends reports to that host's ports.
        let is_own = at.segment == OWN_SEGMENT && !function.is_bridge();
        if is_own && function.extended_capability(extended_id::LTR).is_some() {
            let above = self.topology.path_to(&function);
            self.settings.report_latency(cpu, &above, &function).await;
        }
        Some(function)
    }

    /// Scans below a port again after a hot-plug, and configures new functions in the space kept free. Returns
    /// everything below.
    pub async fn rescan(&self, cpu: &Cpu, bridge: &Rc<Function>) -> Vec<Rc<Function>> {
        let buses = Buses {
            next: Cell::new(u16::from(bridge.forwards.secondary()) + 1),
            last: bridge.forwards.subordinate(),
        };
        let found = self.scan_bus(cpu, bridge.forwards.secondary(), Some(bridge), &buses, buses.last).await;
        for function in &found {
            self.space.assign_hotplugged(cpu, bridge, function).await;
        }
        if let Some(root) = self.topology.function(bridge.beside(bridge.root)) {
            self.tune(cpu, &root).await;
        }
        let mut found = self.topology.behind(bridge);
        found.sort_by_key(|function| function.bdf.bus());
        found
    }
}

/// Enables ARI forwarding in the port above a device if both support it.
async fn forward_ari(cpu: &Cpu, function: &Function, parent: &Function) {
    let has_ari = function.extended_capability(extended_id::ARI).is_some();
    let Some(at) = parent.pcie().filter(|_| has_ari) else { return };
    let capabilities = parent.backend.config_read(cpu, at + pcie_cap::DEVICE_CAPABILITIES_2).await;
    if capabilities & pcie_cap::CAPABILITIES_2_ARI_FORWARDING != 0 {
        let control = parent.backend.read_u16(cpu, at + pcie_cap::DEVICE_CONTROL_2).await;
        let control = control | pcie_cap::CONTROL_2_ARI_FORWARDING;
        parent.backend.write_u16(cpu, at + pcie_cap::DEVICE_CONTROL_2, control).await;
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

    /// The last of the numbers up to `last` that a bridge may reserve from, so that each of the `others` still to be
    /// scanned beside it has its share: a bus of its own and `spare` more, or as many as there are for all alike.
    fn share(&self, last: u8, others: usize, spare: u8) -> u8 {
        let left = (usize::from(last) + 1).saturating_sub(usize::from(self.next.get()));
        let each = (left / (others + 1)).min(usize::from(spare) + 1);
        last - (others * each) as u8
    }

    /// Reserves numbers up to `last`.
    fn reserve(&self, last: u8) {
        self.next.set(self.next.get().max(u16::from(last) + 1));
    }
}
