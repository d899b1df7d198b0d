//! Administrative operations on a running kernel. Those that take time run in a task of their own; dropping the
//! returned future does not stop it.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, CpuId, Part};
use platform::irq::{Irq, IrqHandler};
use platform::kernel::{Kernel as KernelFace, TaskId, TaskParams};
use platform::memory::Policy;
use wire::pcie::FunctionAddress;

use super::{Inner, Kernel};
use crate::pci::Backend;
use crate::sched::TaskWatcher;

impl Kernel {
    /// Moves an interrupt to another core (Linux: writing to `smp_affinity`). Fails if there is no such interrupt or
    /// core, or the core has no free vector.
    pub fn set_irq_affinity(&self, irq: Irq, to: CpuId) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("smp_affinity", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            inner.pci.move_irq(cpu, irq, to).await
        })
    }

    /// Moves a program and all its tasks to other cores (`taskset -ap`). Fails if no task of the program is left, or
    /// there is no such core.
    pub fn move_process(
        &self,
        process: TaskId,
        to: Vec<CpuId>,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("taskset", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            let tasks = inner.tasks.of_process(process);
            if tasks.is_empty() {
                return Err(Error::Invalid);
            }
            for task in tasks {
                cpu.work(inner.cores.costs.syscall);
                KernelFace::set_affinity(&**inner, task.id, &to)?;
            }
            Ok(())
        })
    }

    /// Sets the memory policy of a program and all its tasks, for future allocations.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no task of the program is left, or there is no such node.
    pub fn set_process_policy(&self, process: TaskId, policy: Policy) -> Result<(), Error> {
        let tasks = self.inner.tasks.of_process(process);
        if tasks.is_empty() {
            return Err(Error::Invalid);
        }
        tasks.iter().try_for_each(|task| KernelFace::set_policy(&*self.inner, task.id, policy))
    }

    /// Interrupts of a network or block device, in vector order; empty if there is no such device.
    pub fn interrupts_of(&self, device: &str) -> Vec<Irq> {
        let inner = &self.inner;
        let net = inner.net.device(device).and_then(|device| device.driver()?.function());
        let at = net.or_else(|| inner.block.device(device)?.function());
        let function = at.and_then(|at| inner.pci.function(at));
        function.map_or_else(Vec::new, |function| inner.pci.irqs_of(&function))
    }

    /// Creates `count` virtual functions, or removes all with 0 (Linux: writing to `sriov_numvfs`). Fails with
    /// [`Error::NoDevice`] if there is no such function or it has no driver, or with the driver's error.
    pub fn set_virtual_functions(
        &self,
        of: FunctionAddress,
        count: u16,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("sriov_numvfs", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            let binding = inner.pci.function(of).and_then(|function| inner.pci.binding_of(&function));
            match binding {
                Some(binding) => binding.configure_sriov(cpu, count).await,
                None => Err(Error::NoDevice),
            }
        })
    }

    /// Adds a function reached through `way`, at an address outside the fabric's own segment, and offers it to the
    /// drivers. Fails with [`Error::Invalid`] if the segment is the fabric's own, [`Error::Busy`] if the address is
    /// in use, [`Error::NoDevice`] if nothing answers.
    pub fn add_function(
        &self,
        at: FunctionAddress,
        way: Rc<dyn Backend>,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("pci", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            inner.pci.add_function(cpu, at, way).await
        })
    }

    /// Unbinds and removes a function that was added. With `gone`, the function was removed without notice and is not
    /// accessed. Fails with [`Error::NoDevice`] if no such function was added.
    pub fn remove_function(
        &self,
        at: FunctionAddress,
        gone: bool,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("pci", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            inner.pci.remove_function(cpu, at, gone).await
        })
    }

    /// Reports when a task gets and loses a core.
    pub fn watch_task(&self, task: TaskId, watcher: Rc<dyn TaskWatcher>) {
        if let Some(task) = self.inner.tasks.get(task) {
            *task.watcher.borrow_mut() = Some(watcher);
        }
    }

    /// A core of a [ground whose cores do not always run](crate::CoreClocks) starts to run.
    pub fn core_runs(&self, core: CpuId) {
        if let Some(context) = self.inner.cores.get(core).running() {
            context.wake();
        }
    }

    /// Allocates an interrupt that no PCI function sends, and returns the vector for the hypervisor to raise.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the core has no free vector.
    pub fn add_interrupt(&self, cpu: CpuId, name: &str, handler: IrqHandler) -> Result<u8, Error> {
        let line = self.inner.irqs.allocate(cpu)?;
        self.inner.irqs.request(line.irq, name, handler, None)?;
        Ok(line.arrives_at().1)
    }

    /// Runs `work` in a task; the future resolves to its result.
    fn as_task<W>(&self, name: &str, work: W) -> impl Future<Output = Result<(), Error>> + use<W>
    where
        W: AsyncFnOnce(&Rc<Inner>, &Cpu) -> Result<(), Error> + 'static,
    {
        let inner = Rc::clone(&self.inner);
        let done = self.run(TaskParams::named(name), async move |cpu: Cpu| {
            let _part = cpu.book(Part::Kernel);
            work(&inner, &cpu).await
        });
        async move { done.wait().await }
    }
}
