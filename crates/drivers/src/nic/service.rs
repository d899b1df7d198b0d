//! The service task: it finds what an interrupt should have told of.

use std::cell::Cell;

use platform::cpu::Cpu;
use platform::sync::WaitQueue;
use units::Duration;

use super::state::AdapterState;

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

    /// Looks at all queues of a function that is up once a while, and sleeps without a timer when nothing has moved for long (as a
    /// simulation ends when nothing is left to happen).
    pub async fn run(&self, cpu: &Cpu, state: &Cell<AdapterState>, interval: Duration, look: impl Fn()) {
        let mut idle = 0;
        let up = || state.get() == AdapterState::Up;
        loop {
            let goes_on = || self.active.get() || idle < IDLE_LOOKS || !up();
            self.wait.wait_for(|| goes_on().then_some(())).await;
            if !up() {
                return;
            }
            idle = if self.active.replace(false) { 0 } else { idle + 1 };
            cpu.sleep(interval).await;
            if up() {
                look();
                cpu.sync().await;
            }
        }
    }

    /// Lets the task end.
    pub fn end(&self) {
        self.wait.wake_all();
    }
}
