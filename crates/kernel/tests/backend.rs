//! A function that is reached otherwise than over the own fabric, though its address there is that of a local one in another
//! segment, is a function of its own: nothing that is meant for the one comes to the other.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::{MAGIC, Machine, machine, report};
use engine::Handle;
use hardware::Fabric;
use hardware::memory::CoreId;
use hardware::root::HostId;
use kernel::{Backend, DmaMode, ErrorCounters, FunctionInfo, Message};
use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::dma::DmaOps;
use platform::pci::BarRange;
use proptest::prelude::*;
use units::Iova;
use wire::pcie::config::aer::{self, uncorrectable};
use wire::pcie::config::header;
use wire::pcie::tlp::MessageCode;
use wire::pcie::{Bdf, FunctionAddress, Segment};

/// What a lender would be: it passes on everything to a function of the same host.
struct Lender {
    hw: Handle<Fabric>,
    host: HostId,
    lent: Bdf,
    mapped: RefCell<Vec<u8>>,
    messages: RefCell<Vec<u16>>,
    closed: Cell<u32>,
}

impl Backend for Lender {
    fn config_read<'a>(&'a self, cpu: &'a Cpu, register: u16) -> Async<'a, u32> {
        Box::pin(async move {
            cpu.sync().await;
            let answer = self.hw.with(|fabric, scheduler| {
                let (host, mut cx) = fabric.host_in(self.host, scheduler);
                host.config_read(&mut cx, CoreId(cpu.id().0), self.lent, register)
            });
            let data = cpu.stall_on(answer.data).await.unwrap_or_default();
            data.first_chunk().map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes))
        })
    }

    fn config_write<'a>(&'a self, cpu: &'a Cpu, register: u16, value: u32, enables: u8) -> Async<'a, ()> {
        Box::pin(async move {
            cpu.sync().await;
            let answer = self.hw.with(|fabric, scheduler| {
                let (host, mut cx) = fabric.host_in(self.host, scheduler);
                host.config_write(&mut cx, CoreId(cpu.id().0), self.lent, register, value, enables)
            });
            let _ = cpu.stall_on(answer.data).await;
        })
    }

    fn map_bar(&self, bar: u8, range: BarRange) -> Result<BarRange, Error> {
        self.mapped.borrow_mut().push(bar);
        Ok(range)
    }

    fn requester(&self) -> Bdf {
        self.lent
    }

    fn root_port(&self) -> Bdf {
        Bdf::new(0, 2, 0)
    }

    fn virtual_function(&self, _: Bdf) -> Option<Rc<dyn Backend>> {
        None
    }

    fn dma(&self, own: Rc<dyn DmaOps>) -> Rc<dyn DmaOps> {
        own
    }

    fn message(&self, n: u16, message: Message) -> Result<Message, Error> {
        self.messages.borrow_mut().push(n);
        Ok(message)
    }

    fn close(&self) {
        self.closed.set(self.closed.get() + 1);
    }
}

/// The first copier's address is the local one; the second copier, which has no driver here, is lent under it.
struct Lent {
    machine: Machine,
    lender: Rc<Lender>,
    local: FunctionInfo,
    at: FunctionAddress,
}

fn lent(mode: DmaMode) -> Lent {
    let machine = machine(mode);
    machine.driver.least.set(99);
    machine.boot();
    machine.driver.least.set(1);
    let copiers: Vec<_> = machine.kernel.pci().into_iter().filter(|f| f.parent.is_some()).collect();
    let [local, lent] = &copiers[..] else { panic!("{}", machine.kernel.pci_text()) };
    assert_eq!(machine.kernel.pci_text().matches("driver copier").count(), 0);
    let lender = Rc::new(Lender {
        hw: machine.simulation.handle(),
        host: machine.host,
        lent: lent.bdf,
        mapped: RefCell::default(),
        messages: RefCell::default(),
        closed: Cell::new(0),
    });
    let (local, at) = (local.clone(), FunctionAddress { segment: Segment(1), bdf: local.bdf });
    Lent { machine, lender, local, at }
}

impl Lent {
    fn add(&self) -> Result<(), Error> {
        let added = self.machine.kernel.add_function(self.at, Rc::clone(&self.lender) as _);
        self.machine.simulation.block_on(added).unwrap()
    }

    fn remove(&self, gone: bool) -> Result<(), Error> {
        self.machine.simulation.block_on(self.machine.kernel.remove_function(self.at, gone)).unwrap()
    }

    fn local_command(&self) -> u16 {
        let (hw, host, bdf) = (self.machine.simulation.handle(), self.machine.host, self.local.bdf);
        let lender = Lender {
            hw,
            host,
            lent: bdf,
            mapped: RefCell::default(),
            messages: RefCell::default(),
            closed: Cell::new(0),
        };
        self.machine.run(7, move |cpu| {
            Box::pin(async move { lender.config_read(&cpu, header::COMMAND).await as u16 })
        })
    }

    /// Copies 64 B through the copier of the driver's `n`th binding.
    fn copies(&self, n: usize) -> bool {
        let copier = self.machine.copier(n);
        self.machine.run(3, move |cpu| {
            Box::pin(async move {
                assert_eq!(copier.magic(&cpu).await, MAGIC);
                cpu.store_u64(copier.memory.cpu, 0x1234_5678 + n as u64);
                let to = Iova::new(copier.memory.bus.get() + 4096);
                let copied = copier.copy(&cpu, copier.memory.bus, to, 64, 3).await;
                copied.is_ok() && cpu.load_u64(copier.memory.cpu + 4096) == 0x1234_5678 + n as u64
            })
        })
    }

    fn drivers(&self) -> Vec<(FunctionAddress, Option<&'static str>)> {
        let all = self.machine.kernel.pci();
        all.iter().filter(|f| f.identity == self.local.identity).map(|f| (f.address(), f.driver)).collect()
    }
}

#[test]
fn a_lent_function_is_driven_by_its_way_alone() {
    for mode in [DmaMode::Off, DmaMode::PassThrough, DmaMode::Strict, DmaMode::Lazy] {
        let lent = lent(mode);
        let before = lent.local_command();
        assert_eq!(lent.add(), Ok(()), "{:?}", lent.machine.kernel.log());
        assert!(lent.copies(0), "{mode:?}");
        assert_eq!(lent.local_command(), before, "nobody drives the local one");
        assert!(!lent.lender.mapped.borrow().is_empty());
        assert_eq!(lent.lender.messages.borrow()[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
        let own = FunctionAddress { segment: Segment(0), bdf: lent.at.bdf };
        let drivers = lent.drivers();
        assert!(
            drivers.contains(&(own, None)) && drivers.contains(&(lent.at, Some("copier"))),
            "{drivers:?}"
        );
        assert!(lent.machine.kernel.iommu_faults().is_empty());
        assert_eq!(lent.add(), Err(Error::Busy));
        // Interrupts go where they are sent.
        let irq = lent.machine.copier(0).irqs[3];
        let moved = lent.machine.kernel.set_irq_affinity(irq, platform::cpu::CpuId(5));
        assert_eq!(lent.machine.simulation.block_on(moved).unwrap(), Ok(()));
        assert!(lent.copies(0), "{mode:?}");

        let copier = lent.machine.copier(0);
        assert_eq!(lent.remove(false), Ok(()));
        assert!(copier.removed.get() && !copier.gone.get());
        assert_eq!((lent.lender.closed.get(), lent.remove(false)), (1, Err(Error::NoDevice)));
        assert_eq!(copier.dma.counters().live(), 0);
    }
}

/// Errors of the local function, which are recovered from by resets, are no business of its namesake.
#[test]
fn a_namesake_hears_of_no_error() {
    let lent = lent(DmaMode::Strict);
    let machine = &lent.machine;
    machine.unplug(machine.copiers[0]);
    machine.plug(machine.copiers[0]);
    assert_eq!(lent.add(), Ok(()));
    let (local, namesake) = (machine.copier(0), machine.copier(1));
    let mut expected = ErrorCounters::default();
    for (code, bits) in [
        (MessageCode::ERR_NONFATAL, uncorrectable::COMPLETION_TIMEOUT),
        (MessageCode::ERR_FATAL, uncorrectable::MALFORMED),
    ] {
        report(machine, aer::UNCORRECTABLE_STATUS, bits, code);
        expected.non_fatal += u64::from(code == MessageCode::ERR_NONFATAL);
        expected.fatal += u64::from(code == MessageCode::ERR_FATAL);
        expected.recovered += 1;
        assert_eq!(machine.kernel.pci_errors(), expected);
        assert!(lent.copies(0) && lent.copies(1), "{code:?}");
    }
    assert_eq!((local.troubles.get(), namesake.troubles.get()), (3, 0));
    // A driver that gives up loses the local function only.
    local.recovers.set(false);
    report(machine, aer::UNCORRECTABLE_STATUS, uncorrectable::MALFORMED, MessageCode::ERR_FATAL);
    assert!(local.removed.get() && !namesake.removed.get());
    assert!(lent.copies(1));
}

#[test]
fn the_own_segment_is_the_fabrics() {
    let mut lent = lent(DmaMode::Off);
    lent.at.segment = Segment(0);
    assert_eq!((lent.add(), lent.remove(false)), (Err(Error::Invalid), Err(Error::NoDevice)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Two functions of one address in two segments come and go: whoever is there works, and keeps its driver.
    #[test]
    fn namesakes_come_and_go_without_each_other(steps in prop::collection::vec((any::<bool>(), any::<bool>()), 1..6)) {
        let lent = lent(DmaMode::Strict);
        let (mut is_local, mut is_lent) = (None, None);
        for (of_lent, gone) in steps {
            let next = lent.machine.driver.bound.borrow().len();
            match (of_lent, is_local, is_lent) {
                (true, _, None) => {
                    prop_assert_eq!(lent.add(), Ok(()));
                    is_lent = Some(next);
                }
                (true, _, Some(_)) => {
                    prop_assert_eq!(lent.remove(gone), Ok(()));
                    is_lent = None;
                }
                // It is driven from when it is put in anew.
                (false, None, _) => {
                    lent.machine.unplug(lent.machine.copiers[0]);
                    lent.machine.plug(lent.machine.copiers[0]);
                    is_local = Some(next);
                }
                (false, Some(_), _) => {
                    lent.machine.unplug(lent.machine.copiers[0]);
                    is_local = None;
                    prop_assert!(!lent.drivers().iter().any(|(at, _)| at.segment == Segment(0) && at.bdf == lent.at.bdf));
                    lent.machine.driver.least.set(99);
                    lent.machine.plug(lent.machine.copiers[0]);
                    lent.machine.driver.least.set(1);
                }
            }
            for n in is_local.into_iter().chain(is_lent) {
                prop_assert!(lent.copies(n));
            }
            let driven = lent.drivers().iter().filter(|(_, driver)| driver.is_some()).count();
            prop_assert_eq!(driven, usize::from(is_local.is_some()) + usize::from(is_lent.is_some()));
            prop_assert!(lent.machine.kernel.iommu_faults().is_empty());
        }
    }
}
