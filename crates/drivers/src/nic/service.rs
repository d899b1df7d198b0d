//! The service task, which detects lost interrupts.

use std::cell::Cell;

use platform::cpu::Cpu;
use platform::sync::WaitQueue;
use units::Duration;

use super::state::AdapterState;

/// Looks without any traffic before the task goes to sleep.
const IDLE_LOOKS: u32 = 30;

/// State of the service task.
pub struct Service {
    /// Packets have moved since the last look.
    active: Cell<bool>,
    wait: WaitQueue,
}

impl Service {
    pub fn new() -> Self {
        Self { active: Cell::new(false), wait: WaitQueue::new() }
    }

    /// Called when packets move; wakes the task.
    pub fn notice_activity(&self) {
        if !self.active.replace(true) {
            self.wait.wake_all();
        }
    }

    /// Checks all queues of a running function at intervals. After a long idle time it sleeps without a timer,
    /// because a simulation ends when no event is left.
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

    /// Ends the task.
    pub fn end(&self) {
        self.wait.wake_all();
    }
}
