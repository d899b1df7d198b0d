//! Cables between NTB adapters, and the services of hosts that lend devices through them.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use ::kernel::Kernel;
use drivers::ntb::{NtbAdapter, NtbDriver};
use engine::Handle;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::link::LinkId;
use hardware::ntb::NtbCableEnd;
use lending::{Counters, Lendable, LendingParams, Service};
use machine::{ClusterEnd, ComputerSetup, Ntb, PassedSetup, Placed, adapter, node};
use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::pci::PciDriver;

use super::kernel;
use super::passed::Passed;
use crate::topology;

/// Node number of the first adapter of a host, through which it lends and borrows.
fn own_node(setup: &ComputerSetup, host: usize) -> Option<u8> {
    let own = &setup.hosts[host];
    let first = (0..own.devices.len()).find(|&device| adapter(own, device).is_some())?;
    Some(node(&setup.hosts, host, first))
}

/// Connects adapters as in the scenario.
pub(super) fn connect(
    fabric: &mut Fabric,
    setup: &ComputerSetup,
    devices: &[Vec<EndpointId>],
) -> Vec<LinkId> {
    let cluster = &setup.cluster;
    let params = |(_, switch): &(String, machine::ClusterSwitch)| topology::cluster_switch_params(switch);
    let switches: Vec<_> =
        cluster.switches.iter().map(|switch| fabric.add_cluster_switch(params(switch))).collect();
    let file = |end: &ClusterEnd| -> Option<&Ntb> {
        match *end {
            ClusterEnd::Adapter(host, device) => adapter(&setup.hosts[host], device),
            ClusterEnd::Switch(_) => None,
        }
    };
    let any = setup.hosts.iter().flat_map(|host| (0..host.devices.len()).filter_map(|n| adapter(host, n)));
    let any: Option<&Ntb> = any.into_iter().next();
    let cables = cluster.cables.iter().filter_map(|cable| {
        let ends = cable.ends.map(|end| match end {
            ClusterEnd::Adapter(host, device) => NtbCableEnd::Adapter(devices[host][device]),
            ClusterEnd::Switch(switch) => NtbCableEnd::Switch(switches[switch]),
        });
        let files = [file(&cable.ends[0]), file(&cable.ends[1])];
        // A switch port behaves like the adapter at the other end; between two switches, like any adapter.
        let usual = files[0].or(files[1]).or(any)?;
        let files = files.map(|file| file.unwrap_or(usual));
        Some((ends, topology::ntb_cable_params(files, cable.lanes, cable.propagation)))
    });
    let cables: Vec<_> = cables.collect();
    cables.into_iter().map(|(ends, params)| fabric.add_ntb_cable(ends, params)).collect()
}

/// A `[[borrow]]` of a scenario.
pub(super) struct Borrow {
    /// The borrowing host, and its virtual machine if it is for one.
    pub by: usize,
    pub vm: Option<usize>,
    /// The slot of that virtual machine.
    pub slot: Rc<Cell<Option<u8>>>,
    /// Lender, its node number, and what it lends.
    pub lender: usize,
    pub node: u8,
    pub function: Passed,
    /// Name in the scenario.
    pub name: Placed<String>,
    /// Whether it starts before the programs.
    pub at_once: bool,
}

/// All borrowings of a scenario.
pub(super) fn borrows(setup: &ComputerSetup, devices: &[Vec<EndpointId>]) -> Vec<Borrow> {
    let borrows = setup.cluster.borrows.iter().map(|borrow| {
        let lender = borrow.lender;
        Borrow {
            by: borrow.by,
            vm: borrow.vm,
            slot: Rc::default(),
            lender,
            node: own_node(setup, lender).unwrap_or_default(),
            function: Passed::new(&setup.hosts[lender], &devices[lender], borrow.function),
            name: borrow.name.clone(),
            at_once: borrow.from.is_zero(),
        }
    });
    borrows.collect()
}

/// Drivers that a kernel needs before and after all others.
type OuterDrivers = [Rc<dyn PciDriver>; 2];

/// The lending part of a host.
pub(super) struct Lending {
    lendable: Lendable,
    /// Drivers of the host itself that use the functions until they are borrowed, through VFIO.
    pub used: Rc<RefCell<Vec<Passed>>>,
    /// The node number of its adapter.
    node: u8,
    adapter: RefCell<Option<Rc<NtbAdapter>>>,
    /// Its kernel, once it lends and borrows.
    kernel: RefCell<Weak<Kernel>>,
    pub service: RefCell<Option<Rc<Service>>>,
    params: LendingParams,
}

impl Lending {
    /// For a host with an adapter.
    pub fn new(
        setup: &ComputerSetup,
        number: usize,
        hw: &Handle<Fabric>,
        devices: &[EndpointId],
    ) -> Option<(Rc<Self>, OuterDrivers)> {
        let node = own_node(setup, number)?;
        let passed = |function| Passed::new(&setup.hosts[number], devices, function);
        let lent: Vec<Passed> = setup.cluster.lent_by(number).map(passed).collect();
        let serves = |lent: &PassedSetup| lent.vf.is_none() && setup.hosts[number].serves_vms(lent.device);
        let used: Vec<Passed> = setup.cluster.lent_by(number).filter(serves).map(passed).collect();
        let used = Rc::new(RefCell::new(used));
        let (hw, of_vms) = (hw.clone(), Rc::clone(&used));
        let (lender, lendable) = Lendable::new(Rc::new(move |at| {
            hw.with(|fabric, _| {
                let is_of = |all: &[Passed]| all.iter().any(|own| own.functions(fabric).contains(&at.bdf));
                is_of(&lent) && !is_of(&of_vms.borrow())
            })
        }));
        let host = &setup.hosts[number];
        let usual = LendingParams::default();
        let params = LendingParams {
            window: host.dma_window.get(),
            iommu: host.iommu,
            // Invalid costs were reported when they were read.
            forward: kernel::virt_costs(host).map_or(usual.forward, |costs| costs.forward),
            ..usual
        };
        let (adapter, kernel, service) = Default::default();
        let lending = Rc::new(Self { lendable, used, node, adapter, kernel, service, params });
        let me = Rc::downgrade(&lending);
        let driver = NtbDriver::new(Rc::new(move |cpu, adapter| -> Async<'static, ()> {
            let me = me.upgrade();
            Box::pin(async move {
                if let Some(me) = me {
                    me.found(&cpu, adapter).await;
                }
            })
        }));
        Some((lending, [Rc::new(lender), Rc::new(driver)]))
    }

    /// The kernel has found an adapter. With one that comes when the host has booted, the service starts at once.
    async fn found(&self, cpu: &Cpu, adapter: Rc<NtbAdapter>) {
        if adapter.node() != self.node {
            return;
        }
        *self.adapter.borrow_mut() = Some(Rc::clone(&adapter));
        let Some(kernel) = self.kernel.borrow().upgrade() else { return };
        match Service::begin(cpu, &kernel, adapter, &self.lendable, self.params).await {
            Ok(service) => *self.service.borrow_mut() = Some(service),
            Err(error) => kernel.face().log(format!("lending: the service does not start: {error}")),
        }
    }

    /// Starts the service of a booted host.
    pub fn start(self: &Rc<Self>, kernel: &Rc<Kernel>) -> impl Future<Output = Result<(), Error>> + use<> {
        *self.kernel.borrow_mut() = Rc::downgrade(kernel);
        let adapter = self.adapter.borrow().clone();
        let started = adapter.map(|adapter| Service::start(kernel, adapter, &self.lendable, self.params));
        let me = Rc::clone(self);
        async move {
            // An adapter without power, or out of its slot, may come later.
            if let Some(started) = started {
                *me.service.borrow_mut() = Some(started.await?);
            }
            Ok(())
        }
    }

    /// The adapter, once the kernel has found it.
    pub fn adapter(&self) -> Option<Rc<NtbAdapter>> {
        self.adapter.borrow().clone()
    }

    /// Counters of the service.
    pub fn counters(&self) -> Option<Counters> {
        self.service.borrow().as_ref().map(|service| service.counters())
    }
}
