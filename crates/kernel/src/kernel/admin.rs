//! What an administrator tells a running kernel.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{CpuId, Part};
use platform::irq::Irq;
use platform::kernel::TaskParams;
use platform::sync::Completion;
use wire::pcie::Bdf;

use super::Kernel;

impl Kernel {
    /// Lets an interrupt arrive at another core (Linux: writing to `smp_affinity`), in a task of its own. The future ends when
    /// that is done, and need not be polled for it to happen: with an error if there is no such interrupt or core, or the
    /// core has no vector left.
    pub fn set_irq_affinity(&self, irq: Irq, to: CpuId) -> impl Future<Output = Result<(), Error>> + use<> {
        let done = Completion::new();
        let (inner, told) = (Rc::clone(&self.inner), done.clone());
        self.inner.spawn_program(
            TaskParams::named("smp_affinity"),
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Kernel);
                    told.complete(inner.move_irq(&cpu, irq, to).await);
                })
            }),
        );
        async move { done.wait().await }
    }

    /// Gives a function `count` virtual functions, or takes all with 0 (Linux: writing to `sriov_numvfs`), in a task of its
    /// own. The future ends when that is done, and need not be polled for it to happen: with [`Error::NoDevice`] if
    /// there is no such function or no driver has it, or with what its driver says.
    pub fn set_virtual_functions(
        &self,
        of: Bdf,
        count: u16,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        let done = Completion::new();
        let (inner, told) = (Rc::clone(&self.inner), done.clone());
        self.inner.spawn_program(
            TaskParams::named("sriov_numvfs"),
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Kernel);
                    let binding = inner.pci.function(of).and_then(|function| function.binding());
                    told.complete(match binding {
                        Some(binding) => binding.configure_sriov(&cpu, count).await,
                        None => Err(Error::NoDevice),
                    });
                })
            }),
        );
        async move { done.wait().await }
    }
}
