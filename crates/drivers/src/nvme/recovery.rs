//! Recovery of a controller that misbehaves: aborts, resets, and giving up.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Part};
use platform::kernel::Program;
use units::Duration;
use wire::nvme::ControllerStatus;
use wire::nvme::registers as regs;

use super::controller::{Controller, ControllerState};
use super::queue::{InFlight, Parked, Queue, Work};

/// Poll interval while requests drain before a shutdown.
const LOOK: Duration = Duration::from_us(20);

impl Controller {
    /// Handles a request timeout, in a new task since it takes time.
    pub(super) fn overdue(&self, cpu: &Cpu, namespace: u32, queue: u16, tag: u16) {
        let Some(me) = self.me.upgrade() else { return };
        let queue = self.queues.borrow().get(usize::from(queue)).cloned();
        let Some(queue) = queue else { return };
        let work: Program = Box::new(move |cpu| {
            Box::pin(async move {
                let _part = cpu.book(Part::Driver);
                me.rescue(&cpu, namespace, &queue, tag).await;
            })
        });
        self.kernel.queue_work(cpu, work);
    }

    /// Like Linux's `nvme_timeout`: first checks for a lost interrupt, then aborts, then resets.
    async fn rescue(&self, cpu: &Cpu, namespace: u32, queue: &Rc<Queue>, tag: u16) {
        if !queue.has(namespace, tag) {
            return;
        }
        self.count(|c| c.timeouts += 1);
        cpu.sync().await;
        self.reap(cpu, queue);
        if !queue.has(namespace, tag) {
            self.count(|c| c.lost_interrupts += 1);
            return;
        }
        let at = self.device.address();
        match self.registers.read_u32(cpu, regs::CSTS).await {
            // No answer during a bus reset; the controller is restarted afterwards.
            u32::MAX if self.frozen.get() => return,
            u32::MAX => return self.abandon(cpu, Error::NoDevice).await,
            bits if ControllerStatus::from_bits(bits).fatal => {
                self.kernel.log(format!("nvme {at}: fatal error"));
                return self.reset(cpu).await;
            }
            _ => {}
        }
        match queue.abort(namespace, tag) {
            Some((id, false)) => {
                self.kernel.log(format!("nvme {at}: queue {} command {id:#x} timed out", queue.id));
                if matches!(self.abort(cpu, queue.id, id).await, Err(Error::TimedOut)) {
                    self.reset(cpu).await;
                }
            }
            Some((_, true)) => self.reset(cpu).await,
            None => {}
        }
    }

    /// Resets the controller and resumes the requests in flight; gives it up on failure. Does nothing if a reset or
    /// removal is already under way.
    pub(super) async fn reset(&self, cpu: &Cpu) {
        if self.state.get() != ControllerState::Live || !self.change.try_acquire() {
            return;
        }
        self.kernel.log(format!("nvme {}: reset", self.device.address()));
        self.freeze();
        match self.restart(cpu).await {
            // A bus reset is in progress; whoever does it restarts the controller.
            Err(_) if self.frozen.get() => {}
            Err(error) => {
                self.kernel.log(format!("nvme {}: reset failed: {error}", self.device.address()));
                self.abandon(cpu, error).await;
                self.unregister();
            }
            Ok(()) => {}
        }
        self.change.release();
    }

    /// Called after the function was reset, when the controller has lost all state.
    pub(super) async fn after_reset(&self, cpu: &Cpu) -> Result<(), Error> {
        // A restart in progress would wait for answers that never come.
        self.cancel_admin(Error::Cancelled);
        self.change.acquire().await;
        self.frozen.set(false);
        let done = self.restart(cpu).await;
        self.change.release();
        done
    }

    /// Stops accepting commands; requests wait.
    pub(super) fn freeze(&self) {
        if self.state.get() != ControllerState::Dead {
            self.state.set(ControllerState::Resetting);
        }
        self.admin.live.set(false);
        self.queues.borrow().iter().for_each(|queue| queue.live.set(false));
    }

    /// Fails if the controller was removed or a bus reset began meanwhile.
    pub(super) fn check(&self) -> Result<(), Error> {
        match () {
            () if self.state.get() == ControllerState::Dead => Err(Error::NoDevice),
            () if self.frozen.get() => Err(Error::Cancelled),
            () => Ok(()),
        }
    }

    /// Initialises the controller again and resubmits waiting requests. The caller holds `change`.
    async fn restart(&self, cpu: &Cpu) -> Result<(), Error> {
        self.check()?;
        self.count(|c| c.resets += 1);
        self.freeze();
        // Only a disabled controller is known not to access memory.
        self.disable(cpu).await?;
        self.check()?;
        self.take_back(cpu, None);
        self.restore_buffer(cpu);
        self.enable(cpu).await?;
        let queues = self.queues();
        if self.ask_for_queues(cpu, queues).await? < queues {
            return Err(Error::Io);
        }
        self.create_queues(cpu).await?;
        self.check()?;
        self.state.set(ControllerState::Live);
        self.listen(cpu).await;
        self.check()?;
        let queues = self.queues.borrow().clone();
        for queue in &queues {
            self.unpark(cpu, queue);
        }
        Ok(())
    }

    /// Submits the requests that wait for this queue.
    pub(super) fn unpark(&self, cpu: &Cpu, queue: &Queue) {
        loop {
            let next = queue.parked.borrow_mut().pop_front();
            let Some(io) = next else { break };
            if let Err(io) = self.start(cpu, queue, io) {
                queue.parked.borrow_mut().push_front(io);
                break;
            }
        }
        queue.ring(cpu, &self.registers);
    }

    /// Fails all pending admin commands.
    fn cancel_admin(&self, error: Error) {
        for work in self.admin.take_all() {
            if let Work::Admin(waiting) = work {
                waiting.complete(Err(error));
            }
        }
    }

    /// Takes back all commands. Their requests fail with `error`, or wait for resubmission if there is none.
    fn take_back(&self, cpu: &Cpu, error: Option<Error>) {
        self.cancel_admin(error.unwrap_or(Error::Cancelled));
        let queues = self.queues.borrow().clone();
        for queue in &queues {
            for work in queue.take_all() {
                let Work::Block(io) = work else { continue };
                let InFlight { namespace, request, mapped, tries, aborted } = *io;
                mapped.unmap(cpu, &*self.dma);
                // Do not retry forever a command that may have hung the controller.
                let verdict = error.or((tries >= self.options.retries).then_some(match aborted {
                    true => Error::TimedOut,
                    false => Error::Io,
                }));
                match verdict {
                    Some(error) => {
                        self.count(|c| c.errors += 1);
                        request.end(cpu, Err(error));
                    }
                    None => {
                        self.count(|c| c.retries += 1);
                        let again = Parked { namespace, request, tries: tries + 1 };
                        queue.parked.borrow_mut().push_back(again);
                    }
                }
            }
            if let Some(error) = error {
                let parked = std::mem::take(&mut *queue.parked.borrow_mut());
                for io in parked {
                    self.count(|c| c.errors += 1);
                    io.request.end(cpu, Err(error));
                }
            }
        }
    }

    /// Marks the controller as dead and fails all its requests with `error`.
    pub(super) fn give_up(&self, cpu: &Cpu, error: Error) {
        self.state.set(ControllerState::Dead);
        self.admin.live.set(false);
        self.queues.borrow().iter().for_each(|queue| queue.live.set(false));
        self.take_back(cpu, Some(error));
    }

    /// Like [`give_up`](Self::give_up), but first stops a controller that may still access memory.
    async fn abandon(&self, cpu: &Cpu, error: Error) {
        // The read inside returns after all requests that the device has sent.
        self.device.set_master(cpu, false).await;
        self.give_up(cpu, error);
    }

    /// Shuts down, cleanly if the controller still responds.
    pub(super) async fn shut_down(&self, cpu: &Cpu) {
        // Users with open block devices see the removal.
        self.unregister();
        let deadline = cpu.now() + self.admin_timeout();
        // A controller in reset may still complete them.
        let hopes = || self.state.get() == ControllerState::Live || self.change.available() == 0;
        while self.busy() && cpu.now() < deadline && self.device.is_present() && hopes() {
            cpu.sleep(LOOK).await;
        }
        self.change.acquire().await;
        if self.state.get() == ControllerState::Live && self.device.is_present() {
            let _ = self.announce_shutdown(cpu).await;
        }
        self.end(cpu, Error::NoDevice).await;
        self.change.release();
    }

    /// Stops the controller and frees its resources.
    pub(super) async fn end(&self, cpu: &Cpu, error: Error) {
        if self.device.is_present() {
            let _ = self.disable(cpu).await;
        }
        self.abandon(cpu, error).await;
        self.unregister();
        self.release(cpu).await;
    }

    fn busy(&self) -> bool {
        self.queues.borrow().iter().any(|queue| queue.in_flight() > 0)
    }
}
