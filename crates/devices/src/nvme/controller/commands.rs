//! Command processing: fetch, execution, completion, abort (sections 4, 5 and 7).

use std::rc::Rc;

use units::Duration;
use wire::nvme::command::LEN as COMMAND_LEN;
use wire::nvme::log::ErrorEntry;
use wire::nvme::{Command, CompletionEntry, IoCommand, Status, feature};

use super::{Controller, Running};
use crate::nvme::faults::FaultKind;
use crate::nvme::queues::Fetch;

impl Controller {
    /// Task: fetches commands in arbitration order.
    pub(super) async fn fetch_commands(self: Rc<Self>) {
        loop {
            let Some(fetch) = self.pick() else {
                self.kick.notified().await;
                continue;
            };
            // Wakes other fetchers, which may have work as well.
            self.kick.notify_one();
            self.port.sleep_until(self.port.now() + self.drive.params.timing.fetch).await;
            let read = self.begin_read(fetch.address, fetch.count * COMMAND_LEN as u32);
            let Ok(bytes) = read.data().await else {
                self.fail();
                continue;
            };
            {
                let mut state = self.state.borrow_mut();
                let Some(queue) = state.submission.get_mut(&fetch.queue) else { continue };
                queue.head = (queue.head + fetch.count) % queue.entries;
                queue.fetching = false;
            }
            for entry in bytes.chunks_exact(COMMAND_LEN).filter_map(|entry| entry.first_chunk()) {
                self.begin(fetch.queue, Command::parse(entry));
            }
        }
    }

    fn pick(&self) -> Option<Fetch> {
        let arbitration = self.feature(feature::ARBITRATION);
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let slots = u32::from(self.drive.params.timing.commands_in_hand).saturating_sub(state.in_hand);
        let fetch = state.arbiter.pick(&mut state.submission, arbitration, slots)?;
        if fetch.queue != 0 {
            state.in_hand += fetch.count;
        }
        Some(fetch)
    }

    fn begin(self: &Rc<Self>, queue: u16, command: Command) {
        let running = Rc::new(Running::default());
        let conflict = {
            let mut state = self.state.borrow_mut();
            // The identifier is in use by a command or by a waiting event request.
            let conflict = state.commands.contains_key(&(queue, command.id))
                || queue == 0 && state.events.requests.contains(&command.id);
            if !conflict {
                state.commands.insert((queue, command.id), Rc::clone(&running));
            }
            conflict
        };
        let this = Rc::clone(self);
        self.keep(self.port.spawn(async move {
            if conflict {
                this.post(queue, command.id, 0, Status::ID_CONFLICT.dnr(), None).await;
            } else {
                this.execute(queue, &command, &running).await;
                this.state.borrow_mut().commands.remove(&(queue, command.id));
            }
            if queue != 0 {
                this.state.borrow_mut().in_hand -= 1;
                this.kick.notify_one();
            }
            this.ended.notify_all();
        }));
    }

    /// Runs one command from decoding to completion.
    async fn execute(self: &Rc<Self>, queue: u16, command: &Command, running: &Running) {
        let fault = self.drive.faults.borrow_mut().take(queue, command.opcode);
        match fault {
            Some(FaultKind::Hang) => core::future::pending::<()>().await,
            Some(FaultKind::Fatal) => return self.fail(),
            Some(FaultKind::Deaf) => {
                self.state.borrow_mut().deaf = true;
                core::future::pending::<()>().await;
            }
            _ => {}
        }
        let timing = self.drive.params.timing;
        let start = {
            let mut state = self.state.borrow_mut();
            let start = state.next_start.max(self.port.now());
            state.next_start = start + timing.command_interval;
            self.drive.begin();
            start
        };
        self.port.sleep_until(start + timing.decode).await;
        let outcome = match (running.abort.get(), fault) {
            (Some(status), _) | (None, Some(FaultKind::Fail(status))) => Err(status),
            _ => {
                running.begun.set(true);
                match queue {
                    0 => match self.admin(command).await {
                        // Waits for an event.
                        Ok(None) => return,
                        Ok(Some(result)) => Ok(result),
                        Err(status) => Err(status),
                    },
                    _ => self.io(command).await,
                }
            }
        };
        self.port.sleep_until(self.port.now() + timing.completion).await;
        // A command that finished counts as done, but for a deleted queue its success is not reported.
        let (result, status) = match outcome {
            Ok(result) => (result, Status::SUCCESS),
            Err(status) => (0, status),
        };
        if !status.is_success() {
            let entry = ErrorEntry {
                queue,
                command: command.id,
                status,
                location: 0xffff,
                // First block of a command that addresses blocks: nothing of it was executed.
                lba: match queue {
                    0 => 0,
                    _ => IoCommand::parse(command).and_then(|command| command.first_block()).unwrap_or(0),
                },
                namespace: command.namespace,
                ..ErrorEntry::default()
            };
            self.state.borrow_mut().events.error(entry);
            self.drive.smart.borrow_mut().error_entries += 1;
        }
        self.post(queue, command.id, result, status, fault).await;
    }

    /// Posts a completion once its queue has room, then raises the interrupt.
    pub(super) async fn post(
        self: &Rc<Self>,
        queue: u16,
        id: u16,
        result: u32,
        status: Status,
        fault: Option<FaultKind>,
    ) {
        if fault == Some(FaultKind::DropCompletion) {
            return;
        }
        let (number, address, vector, entry) = loop {
            if let Some(place) = self.take_entry(queue) {
                let (number, address, phase, vector, head) = place;
                let entry = CompletionEntry {
                    result,
                    submission_head: head,
                    submission_queue: queue,
                    id: if fault == Some(FaultKind::WrongId) { !id } else { id },
                    phase: phase ^ (fault == Some(FaultKind::WrongPhase)),
                    status,
                };
                break (number, address, vector, entry);
            }
            if !self.state.borrow().submission.contains_key(&queue) {
                return;
            }
            self.room.notified().await;
        };
        // Follows the command's data, as posted writes do not pass each other.
        if let Some(sent) = self.send(address, &entry.emit()) {
            let _ = sent.await;
        }
        if let Some(vector) = vector.filter(|_| fault != Some(FaultKind::DropInterrupt)) {
            if let Some(queue) = self.state.borrow_mut().completion.get_mut(&number) {
                queue.unread += 1;
            }
            self.heed_causes();
            self.interrupt(number, vector);
        }
    }

    /// Allocates an entry of the completion queue of `queue`. Returns the completion queue's number, the entry's
    /// address and phase, the vector, and the submission queue head.
    fn take_entry(&self, queue: u16) -> Option<(u16, u64, bool, Option<u16>, u16)> {
        let mut state = self.state.borrow_mut();
        let submission = state.submission.get(&queue)?;
        let (number, head) = (submission.completion_queue, submission.head as u16);
        let completion = state.completion.get_mut(&number)?;
        let (address, phase) = completion.take()?;
        Some((number, address, phase, completion.vector, head))
    }

    /// Raises an interrupt, or coalesces it (section 7.5, feature 08h).
    fn interrupt(self: &Rc<Self>, queue: u16, vector: u16) {
        let value = self.feature(feature::INTERRUPT_COALESCING);
        let [threshold, time, ..] = value.to_le_bytes();
        let mut state = self.state.borrow_mut();
        let at_once = queue == 0 || time == 0 || state.uncoalesced.get(&vector).copied().unwrap_or(false);
        if at_once {
            self.port.interrupt(self.function, vector);
            return;
        }
        let waiting = state.coalescing.entry(vector).or_default();
        *waiting += 1;
        let count = *waiting;
        if count > u32::from(threshold) {
            *waiting = 0;
            self.port.interrupt(self.function, vector);
        } else if count == 1 {
            drop(state);
            let this = Rc::clone(self);
            let due = self.port.now() + Duration::from_us(100) * u64::from(time);
            self.keep(self.port.spawn(async move {
                this.port.sleep_until(due).await;
                let waiting = this.state.borrow_mut().coalescing.insert(vector, 0);
                if waiting.is_some_and(|count| count > 0) {
                    this.port.interrupt(this.function, vector);
                }
            }));
        }
    }

    /// Aborts a command if that is still possible (section 5.1).
    pub fn abort(self: &Rc<Self>, queue: u16, id: u16) -> bool {
        let mut state = self.state.borrow_mut();
        if queue == 0
            && let Some(n) = state.events.requests.iter().position(|&request| request == id)
        {
            state.events.requests.remove(n);
            drop(state);
            self.answer_later(id, 0, Status::ABORT_REQUESTED);
            return true;
        }
        match state.commands.get(&(queue, id)) {
            Some(running) if !running.begun.get() => {
                running.abort.set(Some(Status::ABORT_REQUESTED));
                true
            }
            _ => false,
        }
    }

    /// Stops fetching from a queue, ends its commands and waits for the last of them (section 5.6).
    pub async fn close_queue(&self, queue: u16) {
        if let Some(queue) = self.state.borrow_mut().submission.get_mut(&queue) {
            queue.closed = true;
        }
        loop {
            {
                let state = self.state.borrow();
                let commands = state.commands.range((queue, 0)..=(queue, u16::MAX));
                let mut any = state.submission.get(&queue).is_some_and(|queue| queue.fetching);
                for (_, running) in commands {
                    any = true;
                    running.abort.set(Some(Status::SQ_DELETED));
                }
                if !any {
                    return;
                }
            }
            self.ended.notified().await;
        }
    }
}
