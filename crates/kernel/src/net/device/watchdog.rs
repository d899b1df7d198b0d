//! Watchdog for TX queues that stay full or at their byte limit.

use platform::cpu::{Async, Cpu};
use platform::kernel::TaskParams;
use units::Duration;

use super::NetDevice;
use crate::net::queue::TxQueue;

/// Time until the driver is told (Linux: 5 s, `watchdog_timeo`'s default).
const STUCK_AFTER: Duration = Duration::from_ms(5_000);

impl NetDevice {
    /// The watchdog task. It sleeps without a timer while no queue is full.
    pub(super) fn start_watchdog(&self) {
        let me = self.me.clone();
        let program = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                let Some(me) = me.upgrade() else { return };
                while me.up.get() {
                    let oldest = || me.queues.iter().filter_map(TxQueue::stuck_since).min();
                    let since =
                        me.stuck.wait_for(|| Some(oldest()).filter(|o| o.is_some() || !me.up.get())).await;
                    let Some(since) = since else { return };
                    cpu.sleep_until(since + STUCK_AFTER).await;
                    me.tell_stuck(&cpu).await;
                }
            })
        };
        self.base.tasks.spawn(TaskParams::named(format!("watchdog/{}", self.name)), Box::new(program));
    }

    /// Tells the driver about queues that have been stuck for too long.
    async fn tell_stuck(&self, cpu: &Cpu) {
        for (number, queue) in (0u16..).zip(&self.queues) {
            let is_stuck = queue.stuck_since().is_some_and(|since| cpu.now() >= since + STUCK_AFTER);
            let Some(driver) = self.driver().filter(|_| is_stuck && self.up.get()) else { continue };
            self.count(|c| c.tx_timeouts += 1);
            self.base.log.write(format!("{}: TX queue {number} is stuck", self.name));
            queue.allow_again(cpu.now());
            driver.timed_out(cpu, number).await;
        }
    }
}
