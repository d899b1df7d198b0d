//! What all of a kernel stands on.

use std::rc::Rc;

use crate::costs::KernelCosts;
use crate::cpu::Cores;
use crate::ground::Inventory;
use crate::log::Log;
use crate::mm::Memory;
use crate::tasks::Tasks;

/// The parts that nearly every other part needs.
#[derive(Clone)]
pub(crate) struct Base {
    pub cores: Rc<Cores>,
    pub log: Rc<Log>,
    pub memory: Rc<Memory>,
    pub tasks: Rc<Tasks>,
}

impl Base {
    pub fn new(cores: Cores, inventory: &Inventory) -> Self {
        let cores = Rc::new(cores);
        Self {
            log: Rc::new(Log::new(Rc::clone(&cores))),
            memory: Rc::new(Memory::new(Rc::clone(&cores), inventory)),
            tasks: Tasks::new(Rc::clone(&cores)),
            cores,
        }
    }

    /// What kernel code costs.
    pub fn costs(&self) -> &KernelCosts {
        &self.cores.costs
    }
}
