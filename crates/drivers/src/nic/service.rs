//! The service task: it finds what an interrupt should have told of.

use std::cell::Cell;
use std::rc::Rc;

use platform::cpu::{Async, Cpu};
use platform::kernel::TaskParams;
use platform::sync::WaitQueue;

use super::adapter::{Adapter, State};

/// How often the service task looks although nothing has moved.
const IDLE_LOOKS: u32 = 30;

/// What the task waits for.
pub struct Service {
    /// Something has happened since it looked.
    active: Cell<bool>,
    wait: WaitQueue,
}

impl Service {
    pub fn new() -> Self {
        Self { active: Cell::new(false), wait: WaitQueue::new() }
    }

    /// Packets move: there is something to look after.
    pub fn notice_activity(&self) {
        if !self.active.replace(true) {
            self.wait.wake_all();
        }
    }

    /// Starts the task of a function that is up: it looks at all queues once a while, and sleeps without a timer when nothing has
    /// moved for long (as a simulation ends when nothing is left to happen).
    pub fn start(of: &Adapter) {
        let me = of.me.clone();
        let program = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                if let Some(me) = me.upgrade() {
                    me.service.run(&cpu, &me).await;
                }
            })
        };
        of.kernel.spawn(TaskParams::named(format!("nic/{}", of.name())), Box::new(program));
    }

    async fn run(&self, cpu: &Cpu, of: &Rc<Adapter>) {
        let mut idle = 0;
        let up = || of.state.get() == State::Up;
        loop {
            let goes_on = || self.active.get() || idle < IDLE_LOOKS || !up();
            self.wait.wait_for(|| goes_on().then_some(())).await;
            if !up() {
                return;
            }
            idle = if self.active.replace(false) { 0 } else { idle + 1 };
            cpu.sleep(of.params.service).await;
            if up() {
                of.channels.borrow().iter().for_each(|channel| channel.kick(cpu));
                cpu.sync().await;
            }
        }
    }

    /// Lets the task end.
    pub fn end(&self) {
        self.wait.wake_all();
    }
}
