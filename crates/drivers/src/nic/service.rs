//! The service task: it finds what an interrupt should have told of.

use platform::cpu::{Async, Cpu};
use platform::kernel::TaskParams;

use super::adapter::{Adapter, State};

/// How often the service task looks although nothing has moved.
const IDLE_LOOKS: u32 = 30;

impl Adapter {
    /// Packets move: the service task has something to look after.
    pub fn notice_activity(&self) {
        if !self.active.replace(true) {
            self.service.wake_all();
        }
    }

    /// The task that finds what an interrupt should have told of: it looks at all queues once a while, and sleeps without a
    /// timer when nothing has moved for long (as a simulation ends when nothing is left to happen).
    pub fn start_service(&self) {
        let me = self.me.clone();
        let interval = self.params.service;
        let program = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                let Some(me) = me.upgrade() else { return };
                let mut idle = 0;
                loop {
                    let up = || me.state.get() == State::Up;
                    let goes_on = || me.active.get() || idle < IDLE_LOOKS || !up();
                    me.service.wait_for(|| goes_on().then_some(())).await;
                    if !up() {
                        return;
                    }
                    idle = if me.active.replace(false) { 0 } else { idle + 1 };
                    cpu.sleep(interval).await;
                    if up() {
                        me.channels.borrow().iter().for_each(|channel| channel.kick(&cpu));
                        cpu.sync().await;
                    }
                }
            })
        };
        self.kernel.spawn(TaskParams::named(format!("nic/{}", self.name())), Box::new(program));
    }

    /// Lets the service task end.
    pub fn end_service(&self) {
        self.service.wake_all();
    }
}
