//! What happens when a controller does not do what it should: aborts, resets, and giving up.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Part};
use platform::kernel::Program;
use units::Duration;
use wire::nvme::ControllerStatus;
use wire::nvme::registers as regs;

use super::controller::{Controller, ControllerState};
use super::queue::{InFlight, Parked, Queue, Work};

/// Between two looks whether requests have ended, before a shutdown.
const LOOK: Duration = Duration::from_us(20);

impl Controller {
    /// Somebody has waited too long for a request. What follows takes time, and a task.
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

    /// As Linux's `nvme_timeout`: looks whether the interrupt was lost, then aborts, then resets.
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
            // Nobody answers while the bus is reset, after which it will be restarted.
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
                self.kernel.log(format!("nvme {at}: queue {} command {id:#x} takes too long", queue.id));
                if matches!(self.abort(cpu, queue.id, id).await, Err(Error::TimedOut)) {
                    self.reset(cpu).await;
                }
            }
            Some((_, true)) => self.reset(cpu).await,
            None => {}
        }
    }

    /// Resets the controller and goes on with what was under way; gives it up if that fails. If somebody else is about to
    /// reset or to remove it, that is enough.
    pub(super) async fn reset(&self, cpu: &Cpu) {
        if self.state.get() != ControllerState::Live || !self.change.try_acquire() {
            return;
        }
        self.kernel.log(format!("nvme {}: reset", self.device.address()));
        self.freeze();
        match self.restart(cpu).await {
            // The bus is reset beneath it: who does that will restart it.
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

    /// The function has been reset, and the controller knows nothing any more.
    pub(super) async fn after_reset(&self, cpu: &Cpu) -> Result<(), Error> {
        // A restart that was under way waits for answers that will not come.
        self.cancel_admin(Error::Cancelled);
        self.change.acquire().await;
        self.frozen.set(false);
        let done = self.restart(cpu).await;
        self.change.release();
        done
    }

    /// Takes no more commands; requests wait.
    pub(super) fn freeze(&self) {
        if self.state.get() != ControllerState::Dead {
            self.state.set(ControllerState::Resetting);
        }
        self.admin.live.set(false);
        self.queues.borrow().iter().for_each(|queue| queue.live.set(false));
    }

    /// Whether it may go on with what it does to the controller: that may have gone, or be reset beneath it.
    pub(super) fn check(&self) -> Result<(), Error> {
        match () {
            () if self.state.get() == ControllerState::Dead => Err(Error::NoDevice),
            () if self.frozen.get() => Err(Error::Cancelled),
            () => Ok(()),
        }
    }

    /// Sets the controller up again, and gives it what waits. Who calls it holds `change`.
    async fn restart(&self, cpu: &Cpu) -> Result<(), Error> {
        self.check()?;
        self.count(|c| c.resets += 1);
        self.freeze();
        // Only a disabled controller leaves memory alone.
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

    /// Gives the controller what waits for it.
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

    /// Those who wait for admin commands wait no longer.
    fn cancel_admin(&self, error: Error) {
        for work in self.admin.take_all() {
            if let Work::Admin(waiting) = work {
                waiting.complete(Err(error));
            }
        }
    }

    /// Takes back all that the controller had: requests fail with `error`, or else wait to be given again.
    fn take_back(&self, cpu: &Cpu, error: Option<Error>) {
        self.cancel_admin(error.unwrap_or(Error::Cancelled));
        let queues = self.queues.borrow().clone();
        for queue in &queues {
            for work in queue.take_all() {
                let Work::Block(io) = work else { continue };
                let InFlight { namespace, request, mapped, tries, aborted } = *io;
                mapped.unmap(cpu, &*self.dma);
                // What hung the controller once is not tried for ever.
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

    /// The controller is gone, or past help: everything that it has and will be asked fails with `error`.
    pub(super) fn give_up(&self, cpu: &Cpu, error: Error) {
        self.state.set(ControllerState::Dead);
        self.admin.live.set(false);
        self.queues.borrow().iter().for_each(|queue| queue.live.set(false));
        self.take_back(cpu, Some(error));
    }

    /// As [`give_up`](Self::give_up), when the controller is perhaps still there: it reaches no memory any more.
    async fn abandon(&self, cpu: &Cpu, error: Error) {
        // Requests that it has sent come before the answer.
        self.device.set_master(cpu, false).await;
        self.give_up(cpu, error);
    }

    /// Ends everything, orderly if the controller is still there.
    pub(super) async fn shut_down(&self, cpu: &Cpu) {
        // Those who have the block devices open hear that they are gone.
        self.unregister();
        let deadline = cpu.now() + self.admin_timeout();
        // One that is being reset may yet end them.
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

    /// Stops the controller and lets go of all that it had.
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
