//! Legacy interrupts: as long as a function has a cause it is heard, whoever shares its line, wherever it is, and no other is
//! asked for nothing for ever.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::iommu::{Iommu, IommuParams};
use hardware::link::LinkParams;
use hardware::memory::{MemoryParams, MemorySystem, NodeId};
use hardware::root::RootPortParams;
use hardware::switch::SwitchParams;
use kernel::{CoreParams, DmaMode, Kernel, KernelParams};
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::device::{BarAccess, Device, DeviceBus, Function, FunctionIndex, PortIndex, Reset};
use platform::irq::{Affinity, Irq, IrqHandler, IrqReturn, IrqThread};
use platform::kernel::TaskParams;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use platform::sync::Completion;
use proptest::prelude::*;
use units::{Duration, Frequency};
use wire::pcie::config::{ConfigSpace, PcieParams};
use wire::pcie::{Generation, Width};

/// A device of two functions on one line. A function has a cause as long as a number that tests raise and drivers lower is not 0.
#[derive(Default)]
struct Bells {
    causes: [u32; 2],
}

impl Bells {
    fn change(&mut self, bus: &mut dyn DeviceBus, function: u8, causes: u32) {
        self.causes[usize::from(function)] = causes;
        bus.set_interrupt_status(FunctionIndex(function), causes > 0);
    }
}

impl Device for Bells {
    fn functions(&self) -> Vec<Function> {
        let space = ConfigSpace::endpoint(0x1af4, 0x00c9, 0x08_8000).multi_function().interrupt_pin(2);
        let pcie = PcieParams::endpoint(Generation::Gen3, Width::X8);
        let config = space.bar64(0, 4096, false).pcie(pcie).build().unwrap();
        vec![Function { port: PortIndex(0), config: config.clone() }, Function { port: PortIndex(0), config }]
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {
        self.causes = [0; 2];
    }
    fn bar_read(&mut self, _: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        data.fill(0);
        data[0] = self.causes[usize::from(at.function.0)] as u8;
        Duration::from_ns(50)
    }
    /// At 0: one cause less; at 4: one more.
    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, _: &[u8]) {
        let now = self.causes[usize::from(at.function.0)];
        let now = if at.offset.get() == 0 { now.saturating_sub(1) } else { now + 1 };
        self.change(bus, at.function.0, now);
    }
}

/// What the driver has for each function.
struct Bell {
    device: PciDevice,
    registers: Mmio,
    irq: Cell<Irq>,
    heard: Rc<Cell<u32>>,
    threaded: bool,
}

impl Bell {
    /// Takes one cause away each time, by a handler or by its thread.
    fn listen(&self) -> Result<(), Error> {
        let (registers, heard) = (self.registers.clone(), Rc::clone(&self.heard));
        let (answers, tally) = (self.registers.clone(), Rc::clone(&self.heard));
        let thread: IrqThread = Rc::new(move |cpu: Cpu| -> Async<'static, ()> {
            let (registers, heard) = (registers.clone(), Rc::clone(&heard));
            Box::pin(async move {
                if registers.read_u32(&cpu, 0).await > 0 {
                    registers.write_u32(&cpu, 0, 0);
                    // The function has it when it answers.
                    registers.read_u32(&cpu, 0).await;
                    heard.set(heard.get() + 1);
                }
            })
        });
        let threaded = self.threaded;
        let handler: IrqHandler = Rc::new(move |cpu: &Cpu| {
            if threaded {
                return IrqReturn::WakeThread;
            }
            answers.write_u32(cpu, 0, 0);
            tally.set(tally.get() + 1);
            IrqReturn::Handled
        });
        self.device.request_irq(self.irq.get(), "bell", handler, Some(thread))
    }
}

struct Unbound(Rc<Bell>);

impl PciBinding for Unbound {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move { self.0.device.free_irqs(cpu).await })
    }
}

#[derive(Default)]
struct BellDriver {
    threaded: bool,
    bound: RefCell<Vec<Rc<Bell>>>,
}

impl PciDriver for BellDriver {
    fn name(&self) -> &'static str {
        "bell"
    }
    fn ids(&self) -> &[PciMatch] {
        const { &[PciMatch::device(0x1af4, 0x00c9)] }
    }
    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let registers = device.ioremap_bar(0, MemoryType::Uncached)?;
            assert_eq!(device.alloc_irqs(cpu, 2, 4, Affinity::Spread).await, Err(Error::NoSpace));
            let irqs = device.alloc_irqs(cpu, 1, 4, Affinity::Cpu(CpuId(3))).await?;
            assert_eq!(irqs.len(), 1);
            assert_eq!(device.alloc_intx(cpu, Affinity::Spread).await, Err(Error::Busy));
            let bell = Bell {
                device,
                registers,
                irq: Cell::new(irqs[0]),
                heard: Rc::default(),
                threaded: self.threaded,
            };
            bell.listen()?;
            let bell = Rc::new(bell);
            self.bound.borrow_mut().push(Rc::clone(&bell));
            Ok(Rc::new(Unbound(bell)) as Rc<dyn PciBinding>)
        })
    }
}

struct Host {
    // Dropped first: tasks hold what the kernel holds.
    simulation: Simulation<Fabric>,
    kernel: Kernel,
    driver: Rc<BellDriver>,
    devices: Vec<EndpointId>,
}

/// Three devices: two on one line of the host, though one of them is behind a switch, and one on another line.
fn host(mode: DmaMode, threaded: bool) -> Host {
    let memory = MemorySystem::new(&MemoryParams::example());
    let iommus = match mode {
        DmaMode::Off => Vec::new(),
        _ => (0..2).map(|n| Iommu::new(IommuParams::default(), NodeId(n), Seed::new(7)).unwrap()).collect(),
    };
    let mut fabric = Fabric::new();
    let id = fabric.add_host(memory, iommus);
    let link = || LinkParams::example(Generation::Gen3, Width::X8);
    let mut slot = || fabric.add_root_port(id, RootPortParams::ideal(), link(), 0..=0);
    let [first, second, third] = [slot(), slot(), slot()];
    let switch = fabric.add_switch(SwitchParams::ideal(), third);
    // Port 6 of device 3 of bus 0 is on the line of device 1: 6 + 3 and 1 are the same but for 4.
    let behind = fabric.add_switch_slot(switch, 6, link());
    let devices = [first, second, behind]
        .map(|link| fabric.add_endpoint(EndpointParams::ideal(32), &[link], Box::new(Bells::default())));
    let simulation = Simulation::new(fabric);
    let params = KernelParams::linux(CoreParams::haswell(Frequency::mhz(2_500)), mode);
    let kernel = Kernel::new(&simulation.handle(), id, params);
    let driver = Rc::new(BellDriver { threaded, ..BellDriver::default() });
    kernel.add_driver(Rc::clone(&driver) as Rc<dyn PciDriver>);
    simulation.block_on(kernel.boot()).expect("the kernel boots");
    assert_eq!(driver.bound.borrow().len(), 6, "{:#?}", kernel.log());
    Host { simulation, kernel, driver, devices: devices.to_vec() }
}

impl Host {
    fn bell(&self, n: usize) -> Rc<Bell> {
        Rc::clone(&self.driver.bound.borrow()[n])
    }

    fn heard(&self) -> Vec<u32> {
        self.driver.bound.borrow().iter().map(|bell| bell.heard.get()).collect()
    }

    /// Gives functions causes in the order given, the n-th two to a device, and lets all end.
    fn ring(&self, bells: &[usize]) {
        for &n in bells {
            let registers = self.bell(n).registers.clone();
            self.run(0, move |cpu| Box::pin(async move { registers.write_u32(&cpu, 4, 0) }));
        }
        self.simulation.run();
    }

    fn run<T: 'static>(&self, on: u16, program: impl FnOnce(Cpu) -> Async<'static, T> + 'static) -> T {
        let result = Completion::new();
        let end = result.clone();
        self.kernel.spawn(TaskParams::named("test").on(CpuId(on)), move |cpu| {
            Box::pin(async move { end.complete(program(cpu).await) })
        });
        self.simulation.block_on(async move { result.wait().await }).expect("the program ends")
    }

    /// Of each function: where its interrupt arrives, and how often it was asked.
    fn interrupts(&self) -> Vec<(CpuId, u64)> {
        let all = self.kernel.interrupts().into_iter();
        all.filter(|(_, name, ..)| name == "bell").map(|(_, _, core, count)| (core, count)).collect()
    }

    fn causes(&self) -> u32 {
        let registers: Vec<Mmio> =
            self.driver.bound.borrow().iter().map(|bell| bell.registers.clone()).collect();
        self.run(0, move |cpu| {
            Box::pin(async move {
                let mut all = 0;
                for registers in registers {
                    all += registers.read_u32(&cpu, 0).await;
                }
                all
            })
        })
    }
}

#[test]
fn functions_share_a_line_and_each_is_heard_as_often_as_it_has_a_cause() {
    for mode in [DmaMode::Off, DmaMode::Strict] {
        let host = host(mode, true);
        host.ring(&[0]);
        assert_eq!(host.heard(), [1, 0, 0, 0, 0, 0], "{mode:?}");
        host.ring(&[0, 1, 0, 4, 5, 2, 0]);
        assert_eq!(host.heard(), [4, 1, 1, 0, 1, 1], "{mode:?}");
        assert_eq!((host.causes(), host.kernel.irq_counters().spurious), (0, 0), "{mode:?}");
        // Those on the line are asked for each other's, and nobody else is.
        let counts: Vec<u64> = host.interrupts().iter().map(|&(_, count)| count).collect();
        let [a, b, c, d, e, f] = counts[..] else { panic!("{counts:?}") };
        assert!(a == b && b == e && e == f && (4..=7).contains(&a), "{counts:?}");
        assert!(c == d && (1..a).contains(&c), "{counts:?}");
    }
}

/// A handler that answers by a posted write is called again if the write has not reached the function when it ends.
#[test]
fn a_handler_without_a_thread_takes_all_causes_away() {
    let host = host(DmaMode::Off, false);
    host.ring(&[2, 2, 2]);
    assert_eq!(host.causes(), 0);
    assert!(host.heard()[2] >= 3, "{:?}", host.heard());
}

#[test]
fn a_line_follows_its_affinity_with_all_that_are_on_it() {
    for mode in [DmaMode::Off, DmaMode::Strict] {
        let host = host(mode, true);
        for to in [CpuId(11), CpuId(2)] {
            let bell = host.bell(4);
            host.run(0, move |cpu| {
                Box::pin(async move { bell.device.set_irq_affinity(&cpu, bell.irq.get(), to).await.unwrap() })
            });
            host.ring(&[0, 4]);
            let cores: Vec<CpuId> = host.interrupts().iter().map(|&(core, _)| core).collect();
            assert_eq!(cores, [to, to, CpuId(3), CpuId(3), to, to], "{mode:?}");
        }
        assert_eq!((host.causes(), host.kernel.irq_counters().spurious), (0, 0), "{mode:?}");
    }
}

#[test]
fn a_masked_function_is_not_heard_and_neither_is_one_without_a_driver_nor_one_that_is_gone() {
    let host = host(DmaMode::Strict, true);
    let bell = host.bell(0);
    // Without a cause there is nothing to mask.
    let masked =
        host.run(0, move |cpu| Box::pin(async move { bell.device.set_intx_masked_if_due(&cpu, true).await }));
    assert!(!masked);
    // Its interrupts given back, it may ring as it likes.
    let bell = host.bell(0);
    host.run(0, move |cpu| Box::pin(async move { bell.device.free_irqs(&cpu).await }));
    host.ring(&[0, 1]);
    assert_eq!(host.heard()[..2], [0, 1]);
    assert_eq!(host.causes(), 1);
    // It is heard when somebody listens again.
    let bell = host.bell(0);
    host.run(0, move |cpu| {
        Box::pin(async move {
            bell.irq.set(bell.device.alloc_intx(&cpu, Affinity::Spread).await.unwrap());
            bell.listen().unwrap();
        })
    });
    host.simulation.run();
    assert_eq!((host.heard()[0], host.causes()), (1, 0));
    // One that is pulled out in the middle leaves no line active behind it, under a port or under a switch.
    for device in [host.devices[0], host.devices[2]] {
        let handle = host.simulation.handle();
        handle.with(|fabric, scheduler| {
            fabric
                .running(scheduler)
                .with_device(device, |_, bus| bus.set_interrupt_status(FunctionIndex(1), true));
        });
        host.simulation.run_until(host.simulation.now() + Duration::from_us(1));
        host.simulation.with(|fabric, scheduler| fabric.running(scheduler).remove_device(device));
        host.simulation.run();
    }
    host.ring(&[2]);
    assert_eq!(host.heard()[2], 1);
}

/// Between the allocation of an interrupt and its handler, a line that is active fires once.
#[test]
fn an_active_line_waits_for_the_handler_of_a_function_without_one() {
    let host = host(DmaMode::Off, true);
    let bell = host.bell(0);
    host.run(0, move |cpu| Box::pin(async move { bell.device.free_irqs(&cpu).await }));
    host.ring(&[0]);
    let bell = host.bell(0);
    host.run(0, move |cpu| {
        Box::pin(async move { bell.irq.set(bell.device.alloc_intx(&cpu, Affinity::Spread).await.unwrap()) })
    });
    let before = host.interrupts()[1].1;
    host.simulation.run_until(host.simulation.now() + Duration::from_ms(1));
    let asked = host.interrupts()[1].1 - before;
    assert!(asked <= 1, "the others on the line were asked {asked} times");
    let bell = host.bell(0);
    host.run(0, move |_| Box::pin(async move { bell.listen().unwrap() }));
    host.simulation.run();
    assert_eq!((host.heard()[0], host.causes()), (1, 0));
    host.ring(&[1, 0]);
    assert_eq!((host.heard()[..2].to_vec(), host.causes()), (vec![2, 1], 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Nothing is lost and nothing rings for ever, whoever rings whenever.
    #[test]
    fn no_cause_is_left(rings in proptest::collection::vec((0usize..6, 0u64..4_000), 1..30), threaded in any::<bool>()) {
        let host = host(DmaMode::Off, threaded);
        let mut expected = [0; 6];
        for &(n, wait) in &rings {
            expected[n] += 1;
            host.simulation.run_until(host.simulation.now() + Duration::from_ns(wait));
            let registers = host.bell(n).registers.clone();
            host.run(0, move |cpu| Box::pin(async move { registers.write_u32(&cpu, 4, 0) }));
        }
        host.simulation.run();
        prop_assert_eq!(host.causes(), 0);
        for (heard, expected) in host.heard().into_iter().zip(expected) {
            let is_right = if threaded { heard == expected } else { heard >= expected };
            prop_assert!(is_right, "{} of {}", heard, expected);
        }
    }
}
