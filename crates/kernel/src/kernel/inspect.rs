//! What a kernel knows, for whoever looks from outside.

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
    /// Functions, by address.
    pub fn pci(&self) -> Vec<FunctionInfo> {
        self.inner.pci.inspect()
    }

    /// The root port by which the requests of a function come in.
    pub fn root_port_of(&self, at: FunctionAddress) -> Option<Bdf> {
        self.inner.pci.function(at).map(|function| function.root())
    }

    /// The first address behind all memory, holes included.
    pub fn memory_end(&self) -> PhysAddr {
        let inventory = self.inner.cores.ground.inventory();
        PhysAddr(inventory.memory.iter().flatten().map(|&(base, bytes)| base.0 + bytes).max().unwrap_or(0))
    }

    /// The PCI tree as text.
    pub fn pci_text(&self) -> String {
        TreeText(&self.pci()).to_string()
    }

    /// The last tasks that ended, and then those that have not, by number.
    pub fn tasks(&self) -> Vec<TaskInfo> {
        self.inner.cores.settle_accounts();
        self.inner.tasks.all()
    }

    /// What all tasks have used, ended or not, together for each name.
    pub fn task_times(&self) -> BTreeMap<String, TaskTimes> {
        self.inner.cores.settle_accounts();
        self.inner.tasks.by_name()
    }

    /// What a task that has not ended has computed so far on account of a part.
    pub fn task_time(&self, task: TaskId, part: Part) -> Duration {
        let Some(task) = self.inner.tasks.get(task) else { return Duration::ZERO };
        task.context.settle_account();
        task.times.borrow().of(part)
    }

    /// What a task that has not ended has computed so far.
    pub fn task_busy(&self, task: TaskId) -> Duration {
        Part::ALL.iter().map(|&part| self.task_time(task, part)).sum()
    }

    /// For how long a task that has not ended has been ready so far, but had no core.
    pub fn task_waited(&self, task: TaskId) -> Duration {
        self.inner.tasks.get(task).map_or(Duration::ZERO, |task| task.waited(self.inner.cores.now()))
    }

    /// The core on which a task that has not ended runs or ran last.
    pub fn core_of(&self, task: TaskId) -> Option<CpuId> {
        self.inner.tasks.get(task).map(|task| task.context.cpu().id())
    }

    /// Time that interrupts have taken of a core (Linux: `irq` and `softirq` of /proc/stat).
    pub fn interrupt_time(&self, cpu: CpuId) -> Duration {
        self.inner.cores.interrupt_time(cpu)
    }

    /// Busy time of a core by part.
    pub fn core_times(&self, cpu: CpuId) -> Times {
        self.inner.cores.times(cpu)
    }

    /// Interrupts: number, name, core, and how often.
    pub fn interrupts(&self) -> Vec<(Irq, String, CpuId, u64)> {
        let states = self.inner.irqs.lines().into_iter().map(|line| line.state());
        states.map(|line| (line.irq, line.name, line.cpu, line.count)).collect()
    }

    /// Requests that IOMMUs have refused: by whom, and how many.
    pub fn iommu_faults(&self) -> Vec<(Bdf, u64)> {
        let mut faults = BTreeMap::new();
        for (requester, count) in self.inner.cores.ground.iommu_faults() {
            *faults.entry(requester).or_default() += count;
        }
        faults.into_iter().collect()
    }

    /// Counts of errors that PCI functions reported.
    pub fn pci_errors(&self) -> ErrorCounters {
        self.inner.pci.errors()
    }

    /// Counts of interrupts.
    pub fn irq_counters(&self) -> IrqCounters {
        self.inner.irqs.counters()
    }

    /// Memory by node.
    pub fn memory(&self) -> Vec<NodeMemory> {
        self.inner.memory.usage()
    }

    /// How often memory came from another node than the policy preferred.
    pub fn memory_fallbacks(&self) -> u64 {
        self.inner.memory.fallbacks()
    }

    /// The last lines of the log with their times.
    pub fn log(&self) -> Vec<(Time, String)> {
        self.inner.log.lines()
    }

    /// How long the cores have been busy, all together.
    pub fn busy(&self) -> Duration {
        let cores = &self.inner.cores;
        cores.all.iter().map(|core| cores.times(core.id).total()).sum()
    }
}
