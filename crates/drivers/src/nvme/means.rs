//! What all parts of a controller's driver use.

use std::cell::Cell;
use std::rc::Rc;

use platform::cpu::{Cpu, Part};
use platform::dma::DmaOps;
use platform::kernel::Kernel;
use platform::pci::PciDevice;

use super::counters::NvmeCounters;
use super::options::NvmeOptions;
use super::queue::{Queue, Reaped};
use super::registers::Registers;

/// The function, its kernel, options and counters.
pub(super) struct Means {
    pub device: PciDevice,
    pub dma: Rc<dyn DmaOps>,
    pub kernel: Rc<dyn Kernel>,
    pub registers: Registers,
    pub options: NvmeOptions,
    /// Average segment size (bytes) from which SGLs are used; 0 for never.
    pub sgl_threshold: Cell<u32>,
    pub counters: Cell<NvmeCounters>,
}

impl Means {
    /// Updates the counters.
    pub fn count(&self, change: impl FnOnce(&mut NvmeCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Writes a line to the kernel's log.
    pub fn log(&self, text: &str) {
        self.kernel.log(format!("nvme {}: {text}", self.device.address()));
    }

    /// Takes all completions of a queue. An empty look is accounted to the caller.
    pub fn reap<W>(&self, cpu: &Cpu, queue: &Queue<W>) -> Reaped<W> {
        // The commands of a lost queue have been taken back, and its rings may be gone.
        if queue.is_lost() {
            return Reaped::default();
        }
        cpu.work(self.options.costs.look);
        let reaped = queue.reap(cpu, &self.registers.mmio);
        let _part = cpu.book(Part::Driver);
        self.count(|c| {
            c.completions += reaped.ended.len() as u64;
            c.unknown_completions += reaped.unknown;
            c.wrong_heads += reaped.wrong_heads;
        });
        reaped
    }
}
