//! Domains that their owner fills: a function reaches what was mapped for it where it was mapped, in one domain after another, and
//! functions that the IOMMU cannot tell apart are in the same one.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::behind::Behind;
use crate::common::{DEVICE, Machine, VENDOR, machine, reg};
use kernel::{DmaMode, IommuDomain};
use platform::Error;
use platform::cpu::{Async, Cpu, Node};
use platform::dma::Direction;
use platform::memory::{PAGE, Pages, Policy};
use platform::mmio::{MemoryType, Mmio};
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use units::{Duration, Iova};
use wire::pcie::{Bdf, FunctionAddress, Segment};

/// Passes a function on to who asks, as a driver for guests does: it maps nothing.
#[derive(Default)]
struct PassOn {
    devices: RefCell<Vec<(FunctionAddress, Mmio)>>,
}

struct Passed(#[allow(dead_code)] PciDevice);

impl PciBinding for Passed {
    fn remove<'a>(&'a self, _: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async {})
    }
}

impl PciDriver for PassOn {
    fn name(&self) -> &'static str {
        "pass-on"
    }
    fn ids(&self) -> &[PciMatch] {
        const IDS: [PciMatch; 1] = [PciMatch::device(VENDOR, DEVICE)];
        &IDS
    }
    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            device.set_master(cpu, true).await;
            let registers = device.ioremap_bar(0, MemoryType::Uncached)?;
            self.devices.borrow_mut().push((device.address(), registers));
            Ok(Rc::new(Passed(device)) as Rc<dyn PciBinding>)
        })
    }
}

/// A machine whose copiers are passed on; the first one is on node 0, the other on node 1.
fn passed_on(mode: DmaMode) -> (Machine, Vec<(FunctionAddress, Mmio)>) {
    let machine = machine(mode);
    machine.driver.least.set(99);
    let driver = Rc::new(PassOn::default());
    machine.kernel.add_driver(Rc::clone(&driver) as Rc<dyn PciDriver>);
    machine.boot();
    let devices = driver.devices.take();
    assert_eq!(devices.len(), 2);
    (machine, devices)
}

/// Lets a copier copy 64 B.
async fn copy(cpu: &Cpu, registers: &Mmio, from: u64, to: u64) {
    registers.write_u64(cpu, reg::SOURCE, from);
    registers.write_u64(cpu, reg::TARGET, to);
    registers.write_u64(cpu, reg::LENGTH, 64);
    registers.write_u64(cpu, reg::START, 0);
    cpu.sleep(Duration::from_us(100)).await;
}

fn pages(machine: &Machine, cpu: &Cpu) -> Pages {
    machine.kernel.face().alloc_pages(cpu, 0, Policy::Bind(Node(0))).unwrap()
}

const FAR: u64 = 0x7f_0000_0000;

#[test]
fn a_function_reaches_what_is_mapped_in_the_domain_it_is_in() {
    let (machine, devices) = passed_on(DmaMode::Strict);
    let machine = Rc::new(machine);
    let domain = || machine.kernel.iommu().domain(Node(0)).unwrap();
    let (first, second) = (domain(), domain());
    let free = machine.kernel.memory()[0].free;
    let kernel = Rc::clone(&machine);
    let seen = machine.run(0, move |cpu| {
        Box::pin(async move {
            let (at, registers) = &devices[0];
            let (from, to, other) = (pages(&kernel, &cpu), pages(&kernel, &cpu), pages(&kernel, &cpu));
            let map = |domain: &IommuDomain, iova: u64, pages: Pages, direction| {
                domain.map_at(&cpu, Iova::new(iova), pages.start, PAGE, direction).unwrap();
            };
            map(&first, 0, from, Direction::ToDevice);
            map(&first, FAR, to, Direction::FromDevice);
            map(&second, 0, from, Direction::ToDevice);
            map(&second, FAR, other, Direction::FromDevice);
            let mut seen = Vec::new();
            let look = |value: u64| {
                cpu.store_u64(from.start, value);
                (cpu.load_u64(to.start), cpu.load_u64(other.start))
            };
            // In none: it reaches nothing.
            look(1);
            copy(&cpu, registers, 0, FAR).await;
            seen.push(look(2));
            first.attach(&cpu, *at).unwrap();
            assert_eq!(first.attach(&cpu, *at), Err(Error::Busy));
            assert_eq!(second.attach(&cpu, *at), Err(Error::Busy));
            assert_eq!(first.attach(&cpu, devices[1].0), Err(Error::Invalid), "another IOMMU's");
            copy(&cpu, registers, 0, FAR).await;
            seen.push(look(3));
            // What is unmapped is out of reach when that returns.
            first.unmap(&cpu, Iova::new(FAR), PAGE).unwrap();
            copy(&cpu, registers, 0, FAR).await;
            seen.push(look(4));
            first.detach(&cpu, *at).unwrap();
            assert_eq!(first.detach(&cpu, *at), Err(Error::Invalid));
            second.attach(&cpu, *at).unwrap();
            copy(&cpu, registers, 0, FAR).await;
            seen.push(look(5));
            second.close(&cpu);
            copy(&cpu, registers, 0, FAR).await;
            seen.push(look(6));
            first.close(&cpu);
            for pages in [from, to, other] {
                kernel.kernel.face().free_pages(&cpu, pages);
            }
            seen
        })
    });
    assert_eq!(seen, [(0, 0), (2, 0), (2, 0), (2, 4), (2, 4)]);
    assert!(machine.kernel.iommu_faults().iter().map(|fault| fault.1).sum::<u64>() >= 3);
    assert!(machine.kernel.memory()[0].free >= free, "all tables have come back");
}

#[test]
fn addresses_are_whole_pages_that_are_free_and_no_interrupts() {
    let (machine, _) = passed_on(DmaMode::Strict);
    let domain = machine.kernel.iommu().domain(Node(0)).unwrap();
    let machine = Rc::new(machine);
    let kernel = Rc::clone(&machine);
    machine.run(0, move |cpu| {
        Box::pin(async move {
            let page = pages(&kernel, &cpu).start;
            let map = |iova: u64, length: u64| {
                domain.map_at(&cpu, Iova::new(iova), page, length, Direction::Bidirectional)
            };
            assert_eq!(
                (map(1, PAGE), map(0, 100), map(0, 0)),
                (Err(Error::Invalid), Err(Error::Invalid), Err(Error::Invalid))
            );
            assert_eq!(
                (map(0xfee0_0000, PAGE), map(1 << 48, PAGE)),
                (Err(Error::Invalid), Err(Error::Invalid))
            );
            assert_eq!((map(0x5000, PAGE), map(0x5000, PAGE)), (Ok(()), Err(Error::Busy)));
            // One that is not chosen is elsewhere, and what has gone can be taken again.
            let other = domain.map(&cpu, page, PAGE, Direction::ToDevice).unwrap();
            assert_eq!(map(other.get(), PAGE), Err(Error::Busy));
            domain.unmap(&cpu, other, PAGE).unwrap();
            domain.unmap(&cpu, Iova::new(0x5000), PAGE).unwrap();
            assert_eq!(domain.unmap(&cpu, Iova::new(0x5000), PAGE), Err(Error::Invalid));
            assert_eq!((map(0x5000, PAGE), map(other.get(), PAGE)), (Ok(()), Ok(())));
            domain.close(&cpu);
        })
    });
    assert_eq!(passed_on(DmaMode::Off).0.kernel.iommu().domain(Node(0)).err(), Some(Error::NotSupported));
}

const BRIDGE: Bdf = Bdf::new(0x40, 0, 0);

#[test]
fn functions_of_one_requester_id_share_a_domain() {
    let (machine, _) = passed_on(DmaMode::Strict);
    let at = |n| FunctionAddress { segment: Segment(1), bdf: Bdf::new(n, 0, 0) };
    for n in 1..=3 {
        let added = machine.kernel.add_function(at(n), Rc::new(Behind(BRIDGE)));
        assert_eq!(machine.simulation.block_on(added).unwrap(), Ok(()));
    }
    let domain = || machine.kernel.iommu().domain(Node(0)).unwrap();
    let (first, second) = (domain(), domain());
    machine.run(0, move |cpu| {
        Box::pin(async move {
            assert_eq!((first.attach(&cpu, at(1)), first.attach(&cpu, at(2))), (Ok(()), Ok(())));
            assert_eq!(second.attach(&cpu, at(3)), Err(Error::Busy));
            first.detach(&cpu, at(1)).unwrap();
            assert_eq!(second.attach(&cpu, at(1)), Err(Error::Busy), "another one is still in the first");
            first.detach(&cpu, at(2)).unwrap();
            assert_eq!((second.attach(&cpu, at(3)), second.attach(&cpu, at(1))), (Ok(()), Ok(())));
            second.close(&cpu);
            assert_eq!(first.attach(&cpu, at(3)), Ok(()));
            first.close(&cpu);
        })
    });
}
