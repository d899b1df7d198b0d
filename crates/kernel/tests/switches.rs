//! What is behind a switch, there from the beginning or put in later: it gets bus numbers and addresses of the room that was kept
//! free, is driven, and shares a domain with its neighbours where the switch would let them reach each other.

use std::rc::Rc;

use crate::common::{Copier, CopierDriver, MAGIC, Model, link, params};
use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::EndpointParams;
use hardware::iommu::{Iommu, IommuParams};
use hardware::link::LinkId;
use hardware::memory::{MemoryParams, MemorySystem, NodeId};
use hardware::root::RootPortParams;
use hardware::switch::SwitchParams;
use kernel::{DmaMode, FunctionInfo, Kernel, KernelParams};
use platform::cpu::CpuId;
use platform::kernel::TaskParams;
use platform::pci::PciDriver;
use platform::sync::Completion;
use units::Iova;

/// A host whose first slot holds a switch with two copiers, one of them behind another switch.
struct Host {
    // Dropped first: tasks hold what the kernel holds.
    simulation: Simulation<Fabric>,
    kernel: Kernel,
    driver: Rc<CopierDriver>,
    /// Above the first switch.
    slot: LinkId,
}

fn host(params: KernelParams, model: Model, acs: u16) -> Host {
    let memory = MemorySystem::new(&MemoryParams::example());
    let iommus = match params.dma.mode {
        DmaMode::Off => Vec::new(),
        _ => (0..2).map(|n| Iommu::new(IommuParams::default(), NodeId(n), Seed::new(7)).unwrap()).collect(),
    };
    let mut fabric = Fabric::new();
    let id = fabric.add_host(memory, iommus);
    let slot = fabric.add_root_port(id, RootPortParams::ideal(), link(), 0..=0);
    let other = fabric.add_root_port(id, RootPortParams::ideal(), link(), 0..=0);
    let parts = SwitchParams { acs, ..SwitchParams::ideal() };
    let first = fabric.add_switch(parts.clone(), slot);
    let between = fabric.add_switch_slot(first, 1, link());
    let near = fabric.add_switch_slot(first, 2, link());
    let second = fabric.add_switch(parts, between);
    let far = fabric.add_switch_slot(second, 4, link());
    for link in [near, far, other] {
        let model = if link == other { Model::default() } else { model };
        fabric.add_endpoint(EndpointParams::ideal(256), &[link], Box::new(Copier::of(model)));
    }
    let simulation = Simulation::new(fabric);
    let kernel = Kernel::new(&simulation.handle(), id, params);
    let driver = Rc::new(CopierDriver::default());
    kernel.add_driver(Rc::clone(&driver) as Rc<dyn PciDriver>);
    Host { simulation, kernel, driver, slot }
}

impl Host {
    fn pull(&self) {
        self.simulation.with(|fabric, scheduler| fabric.running(scheduler).pull(self.slot));
        self.simulation.run();
    }

    fn plug(&self) {
        self.simulation.with(|fabric, scheduler| fabric.running(scheduler).plug(self.slot));
        self.simulation.run();
    }

    fn boot(&self) {
        self.simulation.block_on(self.kernel.boot()).expect("the kernel boots");
    }

    /// Functions with a driver, by address.
    fn driven(&self) -> Vec<FunctionInfo> {
        self.kernel.pci().into_iter().filter(|function| function.driver.is_some()).collect()
    }

    /// Each copier copies 64 B.
    fn copies(&self) {
        for copier in self.driver.bound.borrow().iter().filter(|copier| !copier.removed.get()).cloned() {
            let done = Completion::new();
            let end: Completion<()> = done.clone();
            self.kernel.spawn(TaskParams::named("test").on(CpuId(3)), move |cpu| {
                Box::pin(async move {
                    assert_eq!(copier.magic(&cpu).await, MAGIC);
                    cpu.store_u64(copier.memory.cpu, 0x1234);
                    let to = Iova::new(copier.memory.bus.get() + 4096);
                    copier.copy(&cpu, copier.memory.bus, to, 64, 1).await.unwrap();
                    assert_eq!(cpu.load_u64(copier.memory.cpu + 4096), 0x1234);
                    end.complete(());
                })
            });
            self.simulation.block_on(async move { done.wait().await }).expect("it copies");
        }
    }

    /// Windows hold those below and what belongs to functions, which are apart; so do bus numbers.
    fn check_places(&self) {
        let all = self.kernel.pci();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for function in &all {
            let parent = all.iter().find(|other| function.is_below(other));
            for (_, bar) in &function.bars {
                ranges.push((bar.address, bar.size));
                let inside = parent.is_none_or(|parent| {
                    let windows = parent.windows.iter().flatten();
                    windows
                        .clone()
                        .any(|(at, length)| *at <= bar.address && bar.address + bar.size <= at + length)
                });
                assert!(inside, "{}", self.kernel.pci_text());
                assert_eq!(bar.address % bar.size, 0);
            }
            let Some(parent) = parent else { continue };
            let (first, last) = parent.buses.unwrap();
            assert_eq!(function.bdf.bus(), first);
            if let Some((own, end)) = function.buses {
                assert!(first < own && own <= end && end <= last, "{}", self.kernel.pci_text());
            }
            for (window, above) in function.windows.iter().zip(&parent.windows) {
                if let Some((at, length)) = window {
                    let (start, whole) = above.expect("the bridge above has a window");
                    assert!(start <= *at && at + length <= start + whole, "{}", self.kernel.pci_text());
                }
            }
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{ranges:x?}");
    }
}

/// Parameters with room for what is in the first slot.
fn roomy(mode: DmaMode) -> KernelParams {
    let mut params = params(mode);
    params.pci.spare_buses = 12;
    params.pci.spare_memory = 64 << 20;
    params.pci.spare_prefetchable = 64 << 30;
    params
}

/// Windows of many GiB.
fn large() -> Model {
    Model { bar: 16 << 30, ..Model::default() }
}

#[test]
fn what_is_behind_switches_is_found_when_the_host_boots() {
    let host = host(roomy(DmaMode::Strict), large(), 0);
    host.boot();
    assert_eq!(host.driven().len(), 3, "{}", host.kernel.pci_text());
    host.check_places();
    host.copies();
}

#[test]
fn switches_that_are_put_in_later_get_numbers_and_windows_and_what_is_behind_them_binds() {
    let host = host(roomy(DmaMode::Strict), large(), 0);
    host.pull();
    host.boot();
    assert_eq!(host.driven().len(), 1, "{}", host.kernel.pci_text());
    for _ in 0..3 {
        host.plug();
        assert_eq!(host.driven().len(), 3, "{}\n{:?}", host.kernel.pci_text(), host.kernel.log());
        host.check_places();
        host.copies();
        let text = host.kernel.pci_text();
        host.pull();
        assert_eq!(host.driven().len(), 1, "{}", host.kernel.pci_text());
        host.copies();
        assert_eq!(text.lines().count() - host.kernel.pci_text().lines().count(), 7);
    }
    assert_eq!(host.kernel.interrupts().iter().filter(|irq| irq.1 == "copier").count(), 8);
}

#[test]
fn where_no_room_is_left_what_does_not_fit_is_not_driven_and_all_else_is() {
    // The driver does without the large BAR.
    for (buses, memory, drives) in [(0, 64 << 30, 1), (4, 64 << 30, 2), (12, 1 << 20, 3)] {
        let mut params = roomy(DmaMode::Off);
        (params.pci.spare_buses, params.pci.spare_prefetchable) = (buses, memory);
        let host = host(params, large(), 0);
        host.pull();
        host.boot();
        host.plug();
        assert_eq!(host.driven().len(), drives, "{buses} buses, {memory} B: {}", host.kernel.pci_text());
        host.copies();
        let told = host
            .kernel
            .log()
            .iter()
            .any(|(_, line)| line.contains("out of bus numbers") || line.contains("no space"));
        assert!(told, "{:?}", host.kernel.log());
    }
}

/// Below the first slot are six buses. Slots get numbers from what is left, so all others beside them have theirs.
#[test]
fn however_many_bus_numbers_slots_ask_for_what_is_present_has_its_own() {
    for buses in [5, 6, 7, 8, 20, 60, 120, 255] {
        let mut params = roomy(DmaMode::Off);
        params.pci.spare_buses = buses;
        let host = host(params, Model::default(), 0);
        host.boot();
        for _ in 0..2 {
            assert_eq!(
                host.driven().len(),
                3,
                "{buses}: {}\n{:?}",
                host.kernel.pci_text(),
                host.kernel.log()
            );
            host.check_places();
            host.pull();
            host.plug();
        }
    }
}

/// Without access control below a switch, one function could reach another past the IOMMU.
#[test]
fn functions_share_a_domain_unless_the_switch_keeps_them_apart() {
    for (acs, domains) in [(0, 2), (wire::pcie::config::acs::USUAL, 3)] {
        let host = host(roomy(DmaMode::Strict), Model::default(), acs);
        host.boot();
        host.copies();
        let mut ids: Vec<_> = host.driven().iter().map(|function| function.domain.unwrap()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), domains, "{acs:#x}");
        // One of two that share a domain goes, and the other is not disturbed.
        host.pull();
        host.copies();
        host.plug();
        host.copies();
        assert!(host.kernel.iommu_faults().is_empty());
    }
}
