//! A guest that has a device of another host than its own.
#![allow(dead_code, reason = "suites use what they need")]

mod pair;
#[path = "../../../virt/tests/ground/vm.rs"]
mod vm;

use std::rc::Rc;

use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::root::HostId;
use kernel::{DmaMode, Kernel};
use platform::device::Device;
use virt::{InterruptSupport, Vm};

pub use pair::{board, settle};

use board::Board;
use pair::{LENDER, Pair, Parts};

pub fn parts(fabric: &mut Fabric, board: Board, device: Box<dyn Device>) -> Parts {
    let borrower = (board.memory + vm::HOSTS_OWN, true);
    Parts::with(fabric, board, device, borrower)
}

/// A guest with a device of another host.
pub struct Computer {
    /// The guest's.
    pub kernel: Rc<Kernel>,
    pub device: EndpointId,
    /// Whose memory its kernel has.
    pub host: HostId,
    pair: Pair,
    vm: Rc<Vm>,
}

impl Computer {
    /// The lender is.
    pub const HEARS_OF_BUS_ERRORS: bool = false;
    /// Whether legacy interrupts of the device can come here.
    pub const HAS_LINES: bool = true;

    /// A guest that is to boot when it has its drivers, on a host that has.
    pub fn new(simulation: &Simulation<Fabric>, parts: Parts) -> Self {
        let pair = Pair::new(simulation, &parts, parts.board.kernel_with(DmaMode::Strict));
        pair.boot(simulation);
        let host = pair.kernel();
        let mut params = vm::params(&host, &parts.board, InterruptSupport::Software);
        params.slots = pair.functions(simulation).len() as u8;
        let vm = simulation.block_on(Vm::start(&simulation.handle(), &host, params, Vec::new()));
        let vm = vm.expect("it ends").expect("it is put together");
        let computer = Self { kernel: vm.kernel(), device: pair.device, host: pair.host, pair, vm };
        computer.lend(simulation);
        computer
    }

    pub fn boot(&self, simulation: &Simulation<Fabric>) {
        simulation.block_on(self.kernel.boot()).expect("the guest boots");
    }

    /// The device comes back to who had it.
    pub fn plug(&self, simulation: &Simulation<Fabric>) {
        self.pair.insert(simulation);
        self.lend(simulation);
        settle(simulation);
    }

    /// Puts all its functions into slots of the guest.
    fn lend(&self, simulation: &Simulation<Fabric>) {
        for function in self.pair.functions(simulation) {
            let memory = Rc::clone(self.vm.memory());
            let offered = self.pair.service().mediate(LENDER, function, memory, self.vm.costs().eventfd);
            let offered = simulation.block_on(offered).expect("it ends").expect("the lender has it");
            let added = simulation.block_on(self.vm.add(offered)).expect("it ends");
            added.expect("there is a slot for it");
        }
    }
}
