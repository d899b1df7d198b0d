//! A ground without any fabric: plain memory, a copier that is a few lines, and an IOMMU that is a page of code. The kernel, its PCI
//! core, its interrupts, its DMA API and an unmodified driver work on it as on a host.

mod iommu;
mod plain;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use crate::common::behind::{BEHIND, Behind};
use crate::common::{self, CopierBinding, CopierDriver, VENDOR};
use engine::Simulation;
use hardware::Fabric;
use kernel::{DmaMode, Kernel};
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::dma::{Direction, DmaOps};
use platform::irq::Affinity;
use platform::kernel::TaskParams;
use platform::memory::Policy;
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use platform::sync::Completion;
use units::{Duration, Iova};
use wire::pcie::{Bdf, FunctionAddress, Segment};

use iommu::Iommu;
use plain::{COPIER, COPY, Plain};

/// A kernel that has booted on the ground, and the driver of its copier.
struct Machine {
    simulation: Simulation<Fabric>,
    ground: Rc<Plain>,
    kernel: Rc<Kernel>,
    copier: Rc<CopierBinding>,
}

impl Machine {
    fn boot(mode: DmaMode) -> Self {
        let simulation = Simulation::new(Fabric::new());
        let iommu = (mode != DmaMode::Off).then(Iommu::default);
        let ground = Rc::new(Plain::new(simulation.handle(), iommu));
        let kernel = Kernel::on(&simulation.handle(), Rc::clone(&ground) as _, common::params(mode));
        let driver = Rc::new(CopierDriver::default());
        *driver.affinity.borrow_mut() = Affinity::Spread;
        kernel.add_driver(Rc::clone(&driver) as _);
        simulation.block_on(kernel.boot()).expect("the kernel boots");
        let copier = Rc::clone(&driver.bound.borrow()[0]);
        Self { simulation, ground, kernel: Rc::new(kernel), copier }
    }

    /// Runs a program to its end.
    fn run<T: 'static>(&self, program: impl AsyncFnOnce(&Cpu) -> T + 'static) -> T {
        let (ended, result) = (Completion::new(), Completion::new());
        let end = ended.clone();
        self.kernel.spawn(TaskParams::named("test").on(CpuId(1)), move |cpu| {
            Box::pin(async move { end.complete(program(&cpu).await) })
        });
        let told = result.clone();
        self.simulation.spawn(async move { told.complete(ended.wait().await) });
        self.simulation.block_on(async move { result.wait().await }).expect("the program ends")
    }

    /// What a function reads at a bus address; `None` if it may not.
    fn read(&self, from: Bdf, at: Iova) -> Option<u64> {
        self.ground.board.borrow_mut().dma_read(from, at).map(u64::from_le_bytes)
    }
}

#[test]
fn a_kernel_boots_and_drives_a_device_on_another_ground() {
    let machine = Machine::boot(DmaMode::Off);
    assert_eq!(machine.kernel.pci().len(), 1, "{}", machine.kernel.pci_text());
    let copier = Rc::clone(&machine.copier);
    let (core, took) = machine.run(async move |cpu: &Cpu| {
        let memory = copier.memory;
        cpu.store(memory.cpu, b"from one ground to another");
        cpu.sync().await;
        let began = cpu.now();
        let core = copier.copy(cpu, memory.bus, memory.bus + 4096, 26, 1).await.unwrap();
        let mut bytes = [0; 26];
        cpu.load(memory.cpu + 4096, &mut bytes);
        cpu.sync().await;
        assert_eq!(&bytes, b"from one ground to another");
        (core, cpu.now().since(began))
    });
    assert!(core.0 < 2 && (COPY..COPY * 10).contains(&took), "{core:?}, {took}");
    assert_eq!(machine.kernel.irq_counters().handled, 1);
    assert!(machine.kernel.busy() > Duration::ZERO);
    machine.kernel.halt();
    assert!(machine.ground.board.borrow().sink.is_none(), "a kernel that has stopped takes no interrupts");
}

#[test]
fn a_device_reaches_what_is_mapped_for_it_until_it_is_unmapped() {
    let machine = Machine::boot(DmaMode::Strict);
    let (kernel, copier) = (Rc::clone(&machine.kernel), Rc::clone(&machine.copier));
    machine.run(async move |cpu: &Cpu| {
        let memory = copier.memory;
        let to = kernel.face().alloc_pages(cpu, 0, Policy::Local).unwrap().start + 0x140;
        let mut outcomes = Vec::new();
        let mut copy = async |value: u64, bus: Iova| {
            cpu.store_u64(memory.cpu, value);
            let copied = copier.copy(cpu, memory.bus, bus, 8, 1).await;
            outcomes.push((copied.is_ok(), cpu.load_u64(to)));
        };
        copy(1, Iova::new(to.0)).await;
        let bus = copier.dma.map(cpu, to, 8, Direction::FromDevice).unwrap();
        copy(2, bus).await;
        copier.dma.unmap(cpu, bus, 8, Direction::FromDevice);
        copy(3, bus).await;
        let bus = copier.dma.map(cpu, to, 8, Direction::ToDevice).unwrap();
        copy(4, bus).await;
        assert_eq!(outcomes, [(false, 0), (true, 2), (false, 2), (false, 2)]);
    });
    assert_eq!(machine.kernel.iommu_faults(), [(COPIER, 3)]);
}

/// Maps a page for each function that is behind something: the first one's says 1, the next one's 2.
#[derive(Default)]
struct PageDriver {
    mapped: RefCell<Vec<Iova>>,
}

struct Mapping(Rc<dyn DmaOps>, Iova);

impl PciBinding for Mapping {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move { self.0.unmap(cpu, self.1, 8, Direction::ToDevice) })
    }
}

impl PciDriver for PageDriver {
    fn name(&self) -> &'static str {
        "page"
    }
    fn ids(&self) -> &[PciMatch] {
        const IDS: [PciMatch; 1] = [PciMatch::device(VENDOR, BEHIND)];
        &IDS
    }
    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let dma = device.dma();
            let memory = device.kernel().alloc_pages(cpu, 0, Policy::Local)?.start;
            let bus = dma.map(cpu, memory, 8, Direction::ToDevice)?;
            self.mapped.borrow_mut().push(bus);
            cpu.store_u64(memory, self.mapped.borrow().len() as u64);
            Ok(Rc::new(Mapping(dma, bus)) as _)
        })
    }
}

#[test]
fn functions_share_a_domain_by_requester_id_and_not_by_address() {
    const BRIDGE: Bdf = Bdf::new(0x40, 0, 0);
    const OTHER: Bdf = Bdf::new(0x41, 0, 0);
    let machine = Machine::boot(DmaMode::Strict);
    let driver = Rc::new(PageDriver::default());
    machine.kernel.add_driver(Rc::clone(&driver) as _);
    let at = |bdf| FunctionAddress { segment: Segment(1), bdf };
    let [first, second] = [1, 2].map(|bus| at(Bdf::new(bus, 0, 0)));
    for (at, requester) in [(first, BRIDGE), (second, BRIDGE), (at(COPIER), OTHER)] {
        let added = machine.kernel.add_function(at, Rc::new(Behind(requester)));
        assert_eq!(machine.simulation.block_on(added), Ok(Ok(())));
    }
    let mapped = driver.mapped.borrow();
    assert_eq!(mapped.len(), 3);
    assert_eq!((machine.read(BRIDGE, mapped[0]), machine.read(BRIDGE, mapped[1])), (Some(1), Some(2)));
    assert_eq!(machine.read(OTHER, mapped[2]), Some(3));
    // In the copier's domain, that address is no other's memory.
    assert_ne!(machine.read(COPIER, mapped[2]), Some(3));
    // One function goes; the ID is still the other one's.
    let removed = machine.kernel.remove_function(first, false);
    assert_eq!(machine.simulation.block_on(removed), Ok(Ok(())));
    assert_eq!((machine.read(BRIDGE, mapped[0]), machine.read(BRIDGE, mapped[1])), (None, Some(2)));
    let removed = machine.kernel.remove_function(second, false);
    assert_eq!(machine.simulation.block_on(removed), Ok(Ok(())));
    assert_eq!(machine.read(BRIDGE, mapped[1]), None);
}

/// What a kernel does to hardware goes through its ground. But for the simulation that all are part of, only the ground that is a
/// host names any, and the one of these tests does not.
#[test]
fn only_a_host_as_ground_names_hardware() {
    fn look(at: &Path, found: &mut Vec<String>) {
        if at.is_dir() {
            return std::fs::read_dir(at).unwrap().for_each(|entry| look(&entry.unwrap().path(), found));
        }
        if ["ground/host.rs", "ground/access.rs", "tests/ground/mod.rs"].iter().any(|file| at.ends_with(file))
        {
            return;
        }
        let text = std::fs::read_to_string(at).unwrap();
        let names = |line: &&str| line.contains("hardware::") && !line.trim_start().starts_with("//");
        let simulation = ["use hardware::Fabric;", "use hardware::root::HostId;"];
        let all = text.lines().filter(names).filter(|line| !simulation.contains(line));
        found.extend(all.map(|line| format!("{}: {line}", at.display())));
    }
    let mut found = Vec::new();
    ["src", "tests/ground"]
        .iter()
        .for_each(|folder| look(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found));
    assert!(found.is_empty(), "{found:#?}");
}
