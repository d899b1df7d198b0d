//! A host that has borrowed the device.
#![allow(dead_code, reason = "suites use what they need")]

mod pair;

use std::rc::Rc;

use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::root::HostId;
use kernel::{DmaMode, Kernel};
use platform::device::Device;

pub use pair::{board, settle};

use board::Board;
use pair::{LENDER, Pair, Parts};

pub fn parts(fabric: &mut Fabric, board: Board, device: Box<dyn Device>) -> Parts {
    let borrower = (board.memory, board.kernel.dma.mode != DmaMode::Off);
    Parts::with(fabric, board, device, borrower)
}

/// A computer with a device of another.
pub struct Computer {
    /// The borrower's.
    pub kernel: Rc<Kernel>,
    pub device: EndpointId,
    /// Whose memory its kernel has.
    pub host: HostId,
    pair: Pair,
}

impl Computer {
    /// The lender is.
    pub const HEARS_OF_BUS_ERRORS: bool = false;
    /// Whether legacy interrupts of the device can come here.
    pub const HAS_LINES: bool = false;

    /// One that is to boot when it has its drivers, while the lender has.
    pub fn new(simulation: &Simulation<Fabric>, parts: Parts) -> Self {
        let pair = Pair::new(simulation, &parts, parts.board.kernel.clone());
        Self { kernel: pair.kernel(), device: pair.device, host: pair.host, pair }
    }

    pub fn boot(&self, simulation: &Simulation<Fabric>) {
        self.pair.boot(simulation);
        self.borrow(simulation);
    }

    /// The device comes back to who had it.
    pub fn plug(&self, simulation: &Simulation<Fabric>) {
        self.pair.insert(simulation);
        self.borrow(simulation);
        settle(simulation);
    }

    /// What both services hold.
    pub fn held(&self) -> [lending::Counters; 2] {
        self.pair.counters().map(|counters| lending::Counters { messages: 0, ..counters })
    }

    /// Gives all its functions back.
    pub fn give_back(&self, simulation: &Simulation<Fabric>) {
        for function in self.pair.functions(simulation) {
            let given = simulation.block_on(self.pair.service().give_back(LENDER, function));
            given.expect("it ends").expect("it was borrowed");
        }
    }

    /// Borrows all its functions, if it is there.
    pub fn borrow(&self, simulation: &Simulation<Fabric>) {
        for function in self.pair.functions(simulation) {
            let asked = self.pair.service().borrow(LENDER, function);
            let _ = simulation.block_on(asked).expect("it ends");
        }
    }
}
