//! A kernel that lends and borrows.

use std::cell::RefCell;
use std::rc::Rc;

use drivers::ntb::{NtbAdapter, NtbDriver};
use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::root::HostId;
use kernel::{DmaMode, Kernel, KernelParams};
use lending::{Lendable, LendingParams, Service};
use platform::Error;
use platform::cpu::Async;
use platform::device::PortIndex;
use wire::pcie::{Bdf, FunctionAddress};

/// A kernel with the drivers that lending needs, and its service once that has started.
pub struct Host {
    pub kernel: Rc<Kernel>,
    pub service: Option<Rc<Service>>,
    mode: DmaMode,
    lendable: Lendable,
    found: Rc<RefCell<Option<Rc<NtbAdapter>>>>,
}

/// The functions of a device that are lent, as its own host calls them: the virtual ones, if there may be any.
pub fn functions(fabric: &Fabric, device: EndpointId) -> Vec<Bdf> {
    let registers = &fabric.endpoint(device).core.registers;
    let physical = (0..registers.ports() as u8).flat_map(|port| registers.physical_below(PortIndex(port)));
    let lent = physical.flat_map(|of| {
        let virtuals: Vec<_> = registers.virtual_functions(of).collect();
        if virtuals.is_empty() { vec![of] } else { virtuals }
    });
    lent.map(|function| registers.id(function)).collect()
}

impl Host {
    /// One that has not booted, and lends these devices.
    pub fn new(
        simulation: &Simulation<Fabric>,
        host: HostId,
        params: KernelParams,
        lent: Vec<EndpointId>,
    ) -> Self {
        let mode = params.dma.mode;
        let kernel = Rc::new(Kernel::new(&simulation.handle(), host, params));
        let hw = simulation.handle();
        let (lender, lendable) = Lendable::new(Rc::new(move |at: FunctionAddress| {
            let is = |&device: &EndpointId| hw.with(|fabric, _| functions(fabric, device).contains(&at.bdf));
            lent.iter().any(is)
        }));
        let found: Rc<RefCell<Option<Rc<NtbAdapter>>>> = Rc::default();
        let seen = Rc::clone(&found);
        kernel.add_driver(Rc::new(lender));
        kernel.add_driver(Rc::new(NtbDriver::new(Rc::new(move |_, adapter| -> Async<'static, ()> {
            *seen.borrow_mut() = Some(adapter);
            Box::pin(async {})
        }))));
        Self { kernel, service: None, mode, lendable, found }
    }

    /// Its adapter, once it has booted.
    pub fn adapter(&self) -> Rc<NtbAdapter> {
        self.found.borrow().clone().expect("the adapter is found")
    }

    /// Its service, once it has booted.
    pub fn start(&mut self, simulation: &Simulation<Fabric>, params: LendingParams) -> Result<(), Error> {
        let adapter = self.adapter();
        let params = LendingParams { iommu: self.mode, ..params };
        let started = Service::start(&self.kernel, adapter, &self.lendable, params);
        self.service = Some(simulation.block_on(started).expect("it ends")?);
        Ok(())
    }
}
