//! Who looks whether requests take too long.

use platform::cpu::Part;
use platform::kernel::TaskParams;

use super::BlockDevice;

impl BlockDevice {
    /// Sees to it that somebody looks after the requests as long as there are any.
    pub(super) fn watch(&self, cpu: &platform::cpu::Cpu) {
        let Some(kernel) = self.kernel.upgrade() else { return };
        if self.limits.timeout.is_zero() || self.watched.replace(true) {
            return;
        }
        let me = self.me.clone();
        let params = TaskParams::named("kblockd").on(cpu.id());
        kernel.tasks.spawn(
            params,
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Block);
                    loop {
                        let Some(device) = me.upgrade() else { return };
                        let (late, next) = device.overdue(cpu.now());
                        device.count(|c| c.timeouts += late.len() as u64);
                        // Without a driver its end of the requests is under way.
                        if let Ok((_, driver)) = device.alive() {
                            for (queue, tag) in late {
                                std::rc::Rc::clone(&driver).timed_out(&cpu, queue, tag);
                            }
                        }
                        let Some(next) = next else {
                            device.watched.set(false);
                            return;
                        };
                        drop(device);
                        cpu.sleep_until(next).await;
                    }
                })
            }),
        );
    }
}
