//! A controller's life cycle from enable to reset (sections 3.1.5 and 7.3).

use std::rc::Rc;

use wire::nvme::{Configuration, ControllerStatus};

use super::{Controller, MAX_PAGE_SHIFT, State};
use crate::nvme::queues::{CompletionQueue, SubmissionQueue};

impl Controller {
    /// Handles a write of CC (section 3.1.5).
    pub fn configure(self: &Rc<Self>, new: Configuration) {
        if self.state.borrow().deaf {
            return;
        }
        let old = std::mem::replace(&mut self.state.borrow_mut().configuration, new);
        if old.enable && !new.enable {
            self.stop();
        }
        if !old.enable && new.enable {
            self.start(new);
        }
        if new.shutdown != old.shutdown && matches!(new.shutdown, 1 | 2) {
            self.state.borrow_mut().status.shutdown = 1;
            let this = Rc::clone(self);
            self.keep(self.port.spawn(async move {
                // A normal shutdown flushes everything; an abrupt one does its best, which is the same here.
                let _ = this.flush().await;
                this.state.borrow_mut().status.shutdown = 2;
            }));
        } else if new.shutdown == 0 {
            self.state.borrow_mut().status.shutdown = 0;
        }
    }

    fn start(self: &Rc<Self>, configuration: Configuration) {
        let params = &self.drive.params;
        let arbitration = configuration.arbitration == 0;
        {
            let mut state = self.state.borrow_mut();
            let aligned = (state.admin_submission | state.admin_completion) % 4096 == 0;
            let sizes = state.admin.submission > 0 && state.admin.completion > 0;
            let command_set = configuration.command_set == 0 && configuration.page_shift <= MAX_PAGE_SHIFT;
            if !(arbitration && aligned && sizes && command_set) {
                state.status.fatal = true;
                return;
            }
            let (base, entries) = (state.admin_submission, u32::from(state.admin.submission) + 1);
            state.submission.insert(0, SubmissionQueue::new(base, entries, 0));
            let entries = u32::from(state.admin.completion) + 1;
            let queue = CompletionQueue::new(state.admin_completion, entries, Some(0));
            state.completion.insert(0, queue);
        }
        let this = Rc::clone(self);
        let ready = self.port.now() + params.timing.enable;
        self.keep(self.port.spawn(async move {
            this.port.sleep_until(ready).await;
            this.state.borrow_mut().status.ready = true;
            for _ in 0..this.drive.params.timing.fetches {
                let fetcher = Rc::clone(&this);
                this.keep(this.port.spawn(async move { fetcher.fetch_commands().await }));
            }
        }));
    }

    /// Controller reset: queues and commands are lost, but the admin queue registers are kept (section 7.3.2).
    pub fn stop(&self) {
        let mut state = self.state.borrow_mut();
        for task in state.tasks.drain(..) {
            task.abort();
        }
        let subsystem_reset = state.status.subsystem_reset;
        *state = State {
            configuration: state.configuration,
            status: ControllerStatus { subsystem_reset, ..ControllerStatus::default() },
            admin: state.admin,
            admin_submission: state.admin_submission,
            admin_completion: state.admin_completion,
            uses_messages: state.uses_messages,
            interrupts: state.interrupts,
            buffer_control: state.buffer_control,
            buffer: std::mem::take(&mut state.buffer),
            ..State::default()
        };
        self.heed_causes_of(&mut state);
    }

    /// Function or conventional reset, which also clears the registers.
    pub fn reset(&self) {
        self.stop();
        let mut state = self.state.borrow_mut();
        let buffer = std::mem::take(&mut state.buffer);
        *state = State { buffer, ..State::default() };
    }

    /// Fatal error (CSTS.CFS): nothing is processed until a reset.
    pub fn fail(&self) {
        let mut state = self.state.borrow_mut();
        state.status.fatal = true;
        for queue in state.submission.values_mut() {
            queue.closed = true;
        }
    }
}
