//! Inspection of a kernel from outside.

use std::collections::BTreeMap;

use platform::cpu::{CpuId, Part};
use platform::irq::Irq;
use platform::kernel::TaskId;
use platform::memory::PhysAddr;
use units::{Duration, Time};
use wire::pcie::{Bdf, FunctionAddress};

use super::Kernel;
use crate::account::Times;
use crate::irq::IrqCounters;
use crate::mm::NodeMemory;
use crate::pci::{ErrorCounters, FunctionInfo, TreeText};
use crate::tasks::{TaskInfo, TaskTimes};

impl Kernel {
    /// PCI functions by address.
    pub fn pci(&self) -> Vec<FunctionInfo> {
        self.inner.pci.inspect()
    }

    /// The root port above a function.
    pub fn root_port_of(&self, at: FunctionAddress) -> Option<Bdf> {
        self.inner.pci.function(at).map(|function| function.root())
    }

    /// End of the highest memory range.
    pub fn memory_end(&self) -> PhysAddr {
        let inventory = self.inner.cores.ground.inventory();
        PhysAddr(inventory.memory.iter().flatten().map(|&(base, bytes)| base.0 + bytes).max().unwrap_or(0))
    }

    /// The PCI tree as text.
    pub fn pci_text(&self) -> String {
        TreeText(&self.pci()).to_string()
    }

    /// Tasks by ID: recently ended ones first, then running ones.
    pub fn tasks(&self) -> Vec<TaskInfo> {
        self.inner.cores.settle_accounts();
        self.inner.tasks.all()
    }

    /// CPU time of all tasks, ended or not, by name.
    pub fn task_times(&self) -> BTreeMap<String, TaskTimes> {
        self.inner.cores.settle_accounts();
        self.inner.tasks.by_name()
    }

    /// CPU time of a running task for one part.
    pub fn task_time(&self, task: TaskId, part: Part) -> Duration {
        let Some(task) = self.inner.tasks.get(task) else { return Duration::ZERO };
        task.context.settle_account();
        task.times.borrow().of(part)
    }

    /// CPU time of a running task.
    pub fn task_busy(&self, task: TaskId) -> Duration {
        Part::ALL.iter().map(|&part| self.task_time(task, part)).sum()
    }

    /// Time that a running task spent runnable without a core.
    pub fn task_waited(&self, task: TaskId) -> Duration {
        self.inner.tasks.get(task).map_or(Duration::ZERO, |task| task.waited(self.inner.cores.now()))
    }

    /// Core on which a running task runs or last ran.
    pub fn core_of(&self, task: TaskId) -> Option<CpuId> {
        self.inner.tasks.get(task).map(|task| task.context.cpu().id())
    }

    /// Time that interrupts took on a core (Linux: `irq` and `softirq` of /proc/stat).
    pub fn interrupt_time(&self, cpu: CpuId) -> Duration {
        self.inner.cores.interrupt_time(cpu)
    }

    /// Busy time of a core by part.
    pub fn core_times(&self, cpu: CpuId) -> Times {
        self.inner.cores.times(cpu)
    }

    /// Interrupts: number, name, core and count.
    pub fn interrupts(&self) -> Vec<(Irq, String, CpuId, u64)> {
        let states = self.inner.irqs.lines().into_iter().map(|line| line.state());
        states.map(|line| (line.irq, line.name, line.cpu, line.count)).collect()
    }

    /// Requests blocked by IOMMUs: requester and count.
    pub fn iommu_faults(&self) -> Vec<(Bdf, u64)> {
        let mut faults = BTreeMap::new();
        for (requester, count) in self.inner.cores.ground.iommu_faults() {
            *faults.entry(requester).or_default() += count;
        }
        faults.into_iter().collect()
    }

    /// Errors reported by PCI functions.
    pub fn pci_errors(&self) -> ErrorCounters {
        self.inner.pci.errors()
    }

    /// Interrupt counters.
    pub fn irq_counters(&self) -> IrqCounters {
        self.inner.irqs.counters()
    }

    /// Memory by node.
    pub fn memory(&self) -> Vec<NodeMemory> {
        self.inner.memory.usage()
    }

    /// Allocations from another node than the policy prefers.
    pub fn memory_fallbacks(&self) -> u64 {
        self.inner.memory.fallbacks()
    }

    /// Recent log lines with their times.
    pub fn log(&self) -> Vec<(Time, String)> {
        self.inner.log.lines()
    }

    /// Total busy time of all cores.
    pub fn busy(&self) -> Duration {
        let cores = &self.inner.cores;
        cores.all.iter().map(|core| cores.times(core.id).total()).sum()
    }
}
