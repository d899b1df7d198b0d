//! Two hosts with a cable between them: the second has the device, and lends it.
#![allow(dead_code, reason = "suites use what they need")]

#[path = "../../../drivers/tests/ground/board.rs"]
pub mod board;
#[path = "../common/host.rs"]
mod host;

use std::cell::RefCell;
use std::rc::Rc;

use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::iommu::IommuParams;
use hardware::link::LinkParams;
use hardware::ntb::{NtbCableEnd, NtbParams};
use hardware::root::{HostId, RootPortParams};
use kernel::{DmaMode, Kernel, KernelParams};
use lending::{LendingParams, Service};
use platform::device::Device;
use units::{Bytes, Duration};
use wire::pcie::config::PcieParams;
use wire::pcie::{Bdf, Generation, Width};

use board::Board;
use host::Host;

/// The lender's number in the cluster; the borrower's is 1.
pub const LENDER: u8 = 2;
/// Longer than anything waits: a drive that does not stop for 10.5 s, a read for 20 s. As long as something is lent, both hosts ask
/// each other for ever whether they are still there.
const ALL_IS_OVER: Duration = Duration::from_ms(40_000);

/// What both have without their software.
pub struct Parts {
    pub board: Board,
    hosts: [HostId; 2],
    pub device: EndpointId,
}

impl Parts {
    /// With a borrower that has so much memory at each node, and an IOMMU if it `translates`.
    pub fn with(
        fabric: &mut Fabric,
        board: Board,
        device: Box<dyn Device>,
        (memory, translates): (Bytes, bool),
    ) -> Self {
        let iommu = Some(IommuParams::default());
        let hosts = [
            board.add_host(fabric, memory, iommu.filter(|_| translates)),
            board.add_host(fabric, Bytes::mib(64), iommu),
        ];
        let device = board.add_device(fabric, hosts[1], device);
        let link = || LinkParams::example(Generation::Gen3, Width::X8);
        let adapters = [(1, hosts[0]), (LENDER, hosts[1])].map(|(node, host)| {
            let slot = fabric.add_root_port(host, RootPortParams::ideal(), link(), 0..=0);
            let params = NtbParams {
                latency: Duration::from_ns(150),
                window: 64 << 30,
                segments: 256,
                ..NtbParams::ideal(node, PcieParams::endpoint(Generation::Gen3, Width::X8))
            };
            NtbCableEnd::Adapter(fabric.add_ntb(EndpointParams::ideal(8), params, slot).unwrap())
        });
        fabric.add_ntb_cable(adapters, link());
        Self { board, hosts, device }
    }
}

/// Both.
pub struct Pair {
    borrower: RefCell<Host>,
    lender: RefCell<Host>,
    pub device: EndpointId,
    /// The borrower.
    pub host: HostId,
}

impl Pair {
    /// The lender has booted; the borrower, whose kernel is such a one, has not.
    pub fn new(simulation: &Simulation<Fabric>, parts: &Parts, borrower: KernelParams) -> Self {
        let borrower = Host::new(simulation, parts.hosts[0], borrower, Vec::new());
        let lender = board::kernel(DmaMode::Strict);
        let lender = Host::new(simulation, parts.hosts[1], lender, vec![parts.device]);
        simulation.block_on(lender.kernel.boot()).expect("the lender boots");
        Self {
            borrower: RefCell::new(borrower),
            lender: RefCell::new(lender),
            device: parts.device,
            host: parts.hosts[0],
        }
    }

    /// The borrower's kernel.
    pub fn kernel(&self) -> Rc<Kernel> {
        Rc::clone(&self.borrower.borrow().kernel)
    }

    /// Boots the borrower, and starts both services.
    pub fn boot(&self, simulation: &Simulation<Fabric>) {
        simulation.block_on(self.kernel().boot()).expect("the borrower boots");
        let params = LendingParams {
            patience: Duration::from_ms(1_000),
            heartbeat: Duration::from_ms(1_000),
            ..LendingParams::default()
        };
        for host in [&self.lender, &self.borrower] {
            host.borrow_mut().start(simulation, params).expect("the service starts");
        }
    }

    /// The borrower's service.
    pub fn service(&self) -> Rc<Service> {
        self.borrower.borrow().service.clone().expect("it has started")
    }

    /// What the services of borrower and lender have done, and what they hold.
    pub fn counters(&self) -> [lending::Counters; 2] {
        [&self.borrower, &self.lender].map(|host| host.borrow().service.as_ref().expect("it runs").counters())
    }

    /// Its functions, as the lender calls them.
    pub fn functions(&self, simulation: &Simulation<Fabric>) -> Vec<Bdf> {
        simulation.with(|fabric, _| host::functions(fabric, self.device))
    }

    /// The lender has it again.
    pub fn insert(&self, simulation: &Simulation<Fabric>) {
        simulation.with(|fabric, scheduler| fabric.running(scheduler).insert_device(self.device));
        settle(simulation);
    }
}

/// Until nothing happens any more but that hosts ask each other.
pub fn settle(simulation: &Simulation<Fabric>) {
    simulation.run_until(simulation.now() + ALL_IS_OVER);
}
