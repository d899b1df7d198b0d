//! Downstream port containment: the port above an error takes its link down, and the kernel recovers what is below.

use std::rc::Rc;

use crate::common::{Copier, CopierDriver, MAGIC, Model, link, params};
use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::EndpointParams;
use hardware::link::{ErrorInjector, LinkId};
use hardware::memory::{MemoryParams, MemorySystem};
use hardware::root::RootPortParams;
use hardware::switch::SwitchParams;
use kernel::{DmaMode, ErrorCounters, Kernel};
use platform::Error;
use platform::cpu::CpuId;
use platform::kernel::TaskParams;
use platform::pci::PciDriver;
use platform::sync::Completion;
use units::{Duration, Iova};
use wire::pcie::config::dpc::TriggerEnable;

/// A copier below a root port, or below a switch there.
struct Host {
    // Dropped first: tasks hold what the kernel holds.
    simulation: Simulation<Fabric>,
    kernel: Kernel,
    driver: Rc<CopierDriver>,
    /// Above the copier.
    link: LinkId,
}

fn host(behind_switch: bool, containment: bool, trigger: TriggerEnable) -> Host {
    let mut fabric = Fabric::new();
    let id = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
    let port = RootPortParams { containment: containment && !behind_switch, ..RootPortParams::ideal() };
    let slot = fabric.add_root_port(id, port, link(), 0..=0);
    let below = match behind_switch {
        true => {
            let switch = fabric.add_switch(SwitchParams { containment, ..SwitchParams::ideal() }, slot);
            fabric.add_switch_slot(switch, 3, link())
        }
        false => slot,
    };
    fabric.add_endpoint(EndpointParams::ideal(64), &[below], Box::new(Copier::of(Model::default())));
    let simulation = Simulation::new(fabric);
    let mut params = params(DmaMode::Off);
    params.pci.containment = trigger;
    let kernel = Kernel::new(&simulation.handle(), id, params);
    let driver = Rc::new(CopierDriver::default());
    kernel.add_driver(Rc::clone(&driver) as Rc<dyn PciDriver>);
    let host = Host { simulation, kernel, driver, link: below };
    host.simulation.block_on(host.kernel.boot()).expect("the kernel boots");
    host
}

impl Host {
    fn inject(&self, injector: Option<ErrorInjector>) {
        self.simulation.with(|fabric, scheduler| {
            fabric.context(scheduler).with(self.link, |link, _| link.inject_errors(injector));
        });
    }

    /// The copier's link makes errors for a microsecond, in which its driver writes to it.
    fn suffers(&self, errors: impl FnOnce(ErrorInjector) -> ErrorInjector) -> ErrorCounters {
        let none = ErrorInjector::new(0.0, 0.0, Duration::from_us(20), Seed::new(5).component("faults"));
        self.inject(Some(errors(none)));
        let copier = Rc::clone(&self.driver.bound.borrow()[0]);
        self.kernel.spawn(TaskParams::named("test").on(CpuId(0)), move |cpu| {
            Box::pin(async move {
                copier.registers.write_u32(&cpu, 0x08, 0xbad);
                cpu.sync().await;
            })
        });
        self.simulation.run_until(self.simulation.now() + Duration::from_us(2));
        self.inject(None);
        self.simulation.run();
        self.kernel.pci_errors()
    }

    /// Whether the copier copies, bound as it was at the beginning.
    fn works(&self) -> bool {
        let copier = Rc::clone(&self.driver.bound.borrow()[0]);
        if copier.removed.get() || self.driver.bound.borrow().len() > 1 {
            return false;
        }
        let done = Completion::new();
        let end = done.clone();
        self.kernel.spawn(TaskParams::named("test").on(CpuId(0)), move |cpu| {
            Box::pin(async move {
                cpu.store_u64(copier.memory.cpu, 0xfeed);
                let to = Iova::new(copier.memory.bus.get() + 4096);
                let copied = copier.copy(&cpu, copier.memory.bus, to, 8, 1).await.is_ok();
                let magic = copier.magic(&cpu).await == MAGIC;
                end.complete(copied && magic && cpu.load_u64(copier.memory.cpu + 4096) == 0xfeed);
            })
        });
        self.simulation.block_on(async move { done.wait().await }).expect("the test ends")
    }

    fn contain(&self) -> Result<(), Error> {
        let at = self.driver.bound.borrow()[0].device.address();
        let contained = self.kernel.contain(at);
        let told = self.simulation.block_on(contained).expect("the task ends");
        self.simulation.run();
        told
    }

    fn log(&self) -> Vec<String> {
        self.kernel.log().into_iter().map(|(_, line)| line).collect()
    }
}

#[test]
fn a_fatal_error_is_contained_and_what_is_below_recovers() {
    for behind_switch in [false, true] {
        let host = host(behind_switch, true, TriggerEnable::Fatal);
        let errors = host.suffers(|link| link.damaging_headers(1.0));
        let expected = ErrorCounters { fatal: 1, recovered: 1, contained: 1, ..Default::default() };
        assert_eq!(errors, expected, "{behind_switch}: {:#?}", host.log());
        assert!(host.log().iter().any(|line| line.contains("contains what is below: fatal error")));
        assert!(!host.log().iter().any(|line| line.contains("slot") || line.contains("reset of the bus")));
        assert!(host.works());
        // It contains the next one, too.
        assert_eq!(host.suffers(|link| link.damaging_headers(1.0)).contained, 2, "{:#?}", host.log());
        assert!(host.works());
    }
}

#[test]
fn which_errors_are_contained_is_the_kernels_choice() {
    for behind_switch in [false, true] {
        for (trigger, contained) in
            [(TriggerEnable::Off, 0), (TriggerEnable::Fatal, 0), (TriggerEnable::NonFatal, 1)]
        {
            let host = host(behind_switch, true, trigger);
            let errors = host.suffers(|link| link.poisoning(1.0));
            assert_eq!(errors.contained, contained, "{behind_switch} {trigger:?}: {:#?}", host.log());
            assert_eq!((errors.non_fatal, errors.fatal, errors.failed), (1, 0, 0), "{:#?}", host.log());
            assert!(host.works(), "{behind_switch} {trigger:?}");
        }
    }
}

#[test]
fn without_containment_a_fatal_error_resets_the_bus() {
    for (containment, trigger) in [(false, TriggerEnable::Fatal), (true, TriggerEnable::Off)] {
        let host = host(false, containment, trigger);
        let errors = host.suffers(|link| link.damaging_headers(1.0));
        assert_eq!((errors.fatal > 0, errors.contained), (true, 0), "{errors:?}");
        assert!(host.log().iter().any(|line| line.contains("reset of the bus")), "{:#?}", host.log());
        assert!(host.works());
        assert_eq!(host.contain(), Err(Error::NotSupported));
    }
}

#[test]
fn software_can_let_a_port_contain_what_is_below() {
    for behind_switch in [false, true] {
        let host = host(behind_switch, true, TriggerEnable::Fatal);
        assert_eq!(host.contain(), Ok(()));
        let expected = ErrorCounters { recovered: 1, contained: 1, ..Default::default() };
        assert_eq!(host.kernel.pci_errors(), expected, "{:#?}", host.log());
        assert!(host.log().iter().any(|line| line.contains("software triggered it")));
        assert!(host.works());
    }
}

/// The device is pulled while the kernel still recovers it.
#[test]
fn what_is_removed_while_it_is_contained_is_gone_and_comes_back() {
    for behind_switch in [false, true] {
        let host = host(behind_switch, true, TriggerEnable::Fatal);
        let at = host.driver.bound.borrow()[0].device.address();
        let contained = host.kernel.contain(at);
        host.simulation.block_on(contained).expect("the task ends").unwrap();
        host.simulation.with(|fabric, scheduler| fabric.running(scheduler).pull(host.link));
        host.simulation.run();
        assert!(host.driver.bound.borrow()[0].removed.get(), "{:#?}", host.log());
        let driven = |host: &Host| host.kernel.pci().iter().filter(|f| f.driver.is_some()).count();
        assert_eq!(driven(&host), 0);
        host.simulation.with(|fabric, scheduler| fabric.running(scheduler).plug(host.link));
        host.simulation.run();
        assert_eq!(driven(&host), 1, "{:#?}", host.log());
    }
}
