//! What an administrator tells a running kernel.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, CpuId, Part};
use platform::irq::Irq;
use platform::kernel::{Kernel as KernelFace, TaskId, TaskParams};
use platform::sync::Completion;
use wire::pcie::Bdf;

use super::{Inner, Kernel};

impl Kernel {
    /// Lets an interrupt arrive at another core (Linux: writing to `smp_affinity`), in a task of its own. The future ends when
    /// that is done, and need not be polled for it to happen: with an error if there is no such interrupt or core, or the
    /// core has no vector left.
    pub fn set_irq_affinity(&self, irq: Irq, to: CpuId) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("smp_affinity", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            inner.move_irq(cpu, irq, to).await
        })
    }

    /// Lets a program and all that it has started run on other cores (`taskset -ap`), in a task of its own. The future ends when
    /// that is done, and need not be polled for it to happen: with an error if no task of the program is left, or there is no
    /// such core.
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

    /// The interrupts of a network or block device, in the order of its vectors; none if there is no such device.
    pub fn interrupts_of(&self, device: &str) -> Vec<Irq> {
        let inner = &self.inner;
        let net = inner.net.device(device).and_then(|device| device.driver()?.function());
        let at = net.or_else(|| inner.block.device(device)?.function());
        let function = at.and_then(|at| inner.pci.function(at.bdf));
        function.map_or_else(Vec::new, |function| function.irqs.borrow().clone())
    }

    /// Gives a function `count` virtual functions, or takes all with 0 (Linux: writing to `sriov_numvfs`), in a task of its
    /// own. The future ends when that is done, and need not be polled for it to happen: with [`Error::NoDevice`] if
    /// there is no such function or no driver has it, or with what its driver says.
    pub fn set_virtual_functions(
        &self,
        of: Bdf,
        count: u16,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("sriov_numvfs", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            let binding = inner.pci.function(of).and_then(|function| function.binding());
            match binding {
                Some(binding) => binding.configure_sriov(cpu, count).await,
                None => Err(Error::NoDevice),
            }
        })
    }

    /// Does `work` in a task of its own; the future ends with what came of it.
    fn as_task<W>(&self, name: &str, work: W) -> impl Future<Output = Result<(), Error>> + use<W>
    where
        W: AsyncFnOnce(&Rc<Inner>, &Cpu) -> Result<(), Error> + 'static,
    {
        let done = Completion::new();
        let (inner, told) = (Rc::clone(&self.inner), done.clone());
        self.inner.spawn_program(
            TaskParams::named(name),
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Kernel);
                    told.complete(work(&inner, &cpu).await);
                })
            }),
        );
        async move { done.wait().await }
    }
}
