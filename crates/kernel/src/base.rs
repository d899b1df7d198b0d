//! State shared by all parts of a kernel.

use std::rc::Rc;

use crate::costs::KernelCosts;
use crate::cpu::Cores;
use crate::ground::Inventory;
use crate::log::Log;
use crate::mm::Memory;
use crate::tasks::Tasks;

/// Cores, memory and log, which nearly every part needs.
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

    /// CPU costs of kernel code.
    pub fn costs(&self) -> &KernelCosts {
        &self.cores.costs
    }
}
