//! Events, and the restart of a device that hangs.

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::kernel::TaskParams;
use wire::nic::registers::{self as regs, event};

use super::adapter::Adapter;
use super::state::AdapterState;

impl Adapter {
    /// Handles an interrupt that is not about packets.
    pub async fn events(&self, cpu: &Cpu) {
        let events = self.registers.read_u32(cpu, regs::EVENTS).await;
        if events == u32::MAX {
            return;
        }
        if events & event::LINK != 0 {
            self.look_at_link(cpu).await;
        }
        if events & event::QUEUES != 0 {
            self.channels.borrow().iter().for_each(|channel| channel.kick(cpu));
        }
        if events & event::QUEUE_ERROR != 0 {
            self.recover("a queue stopped");
        }
    }

    /// Restarts the device in a task of its own.
    pub fn recover(&self, why: &str) {
        if self.state.get() != AdapterState::Up || self.recovering.replace(true) {
            return;
        }
        self.kernel.log(format!("{}: reset: {why}", self.name()));
        let me = self.me.clone();
        let work = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                if let Some(me) = me.upgrade() {
                    me.restart(&cpu).await;
                    me.recovering.set(false);
                }
            })
        };
        // Any core will do (Linux: mlx5's work queue is unbound): the one that noticed may be busy for long.
        self.kernel.spawn(TaskParams::named(format!("nic/{}-reset", self.name())), Box::new(work));
    }

    async fn restart(&self, cpu: &Cpu) {
        self.change.acquire().await;
        if self.state.get() == AdapterState::Up {
            self.restart_alone(cpu).await;
        }
        self.change.release();
    }

    /// Takes the carrier down, so that another function with this one's address stands in (Linux: `netif_carrier_off`,
    /// as mlx5 does while it exchanges its channels). Without another, the carrier stays: packets wait for the rings,
    /// where they would be dropped otherwise.
    pub fn give_way(&self) {
        if self.station.has_stand_in()
            && let Some(core) = self.core()
        {
            core.set_carrier(false);
        }
    }

    async fn restart_alone(&self, cpu: &Cpu) {
        self.give_way();
        self.counters.resets.add(1);
        let lost = self.halt(cpu).await;
        self.counters.tx_lost.add(lost.into());
        if self.state.get() == AdapterState::Broken && self.device.is_present() {
            // Its firmware does not respond, so reset the function over the bus.
            let reset = self.device.reset(cpu).await;
            self.state.set(if reset.is_ok() { AdapterState::Down } else { AdapterState::Broken });
        }
        if self.state.get() == AdapterState::Down
            && let Err(error) = self.start(cpu).await
        {
            self.kernel.log(format!("{}: restart failed: {error}", self.name()));
            self.state.set(if error == Error::NoDevice { AdapterState::Gone } else { AdapterState::Broken });
        }
        let Some(core) = self.core() else { return };
        if self.state.get() == AdapterState::Up {
            (0..self.channels.borrow().len() as u16).for_each(|n| core.wake_queue(cpu, n));
        } else {
            core.set_carrier(false);
        }
    }
}
