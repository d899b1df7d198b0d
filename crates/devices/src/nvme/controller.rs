//! A controller: its state, its life from enable to reset, and how commands run (sections 3, 4 and 7).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use engine::{JoinHandle, Notify};
use platform::device::FunctionIndex;
use units::{Duration, Time};
use wire::nvme::command::LEN as COMMAND_LEN;
use wire::nvme::log::ErrorEntry;
use wire::nvme::registers::MemoryBufferControl;
use wire::nvme::{
    AdminQueues, AsyncEvent, Command, CompletionEntry, Configuration, ControllerStatus, Feature, Status,
    feature,
};

use super::drive::Drive;
use super::events::Events;
use super::faults::FaultKind;
use super::queues::{Arbiter, CompletionQueue, Fetch, SubmissionQueue};
use crate::firmware::Port;

/// Fetches under way at once, of different queues.
const FETCHERS: usize = 4;
/// CC.AMS: weighted round robin with urgent priority class.
const WEIGHTED: u8 = 1;

/// What the host can do to a command that is under way.
#[derive(Default)]
pub(super) struct Running {
    /// Why it is to end.
    abort: Cell<Option<Status>>,
    /// Too late.
    begun: Cell<bool>,
}

/// Registers, queues, features: what a reset changes.
#[derive(Default)]
pub(super) struct State {
    pub configuration: Configuration,
    pub status: ControllerStatus,
    pub admin: AdminQueues,
    pub admin_submission: u64,
    pub admin_completion: u64,
    pub interrupt_mask: u32,
    /// A fault: CC is not heeded.
    pub deaf: bool,
    pub buffer_control: MemoryBufferControl,
    /// The controller memory buffer.
    pub buffer: Vec<u8>,
    pub submission: BTreeMap<u16, SubmissionQueue>,
    pub completion: BTreeMap<u16, CompletionQueue>,
    pub arbiter: Arbiter,
    pub features: BTreeMap<u8, u32>,
    /// Vectors whose interrupts do not wait for more.
    pub uncoalesced: BTreeMap<u16, bool>,
    /// Completions that have raised no interrupt yet, by vector.
    coalescing: BTreeMap<u16, u32>,
    pub events: Events,
    commands: BTreeMap<(u16, u16), Rc<Running>>,
    /// I/O commands in hand.
    in_hand: u32,
    next_start: Time,
    tasks: Vec<JoinHandle<()>>,
}

/// A controller.
pub(super) struct Controller {
    pub number: u16,
    pub function: FunctionIndex,
    pub drive: Rc<Drive>,
    pub port: Port,
    pub state: RefCell<State>,
    /// There may be something to fetch.
    kick: Notify,
    /// A completion queue got room.
    room: Notify,
    /// A command ended.
    ended: Notify,
}

impl Controller {
    pub fn new(number: u16, drive: Rc<Drive>, port: Port) -> Rc<Self> {
        let buffer = vec![0; drive.params.memory_buffer as usize];
        Rc::new(Self {
            number,
            function: FunctionIndex(number as u8),
            drive,
            port,
            state: RefCell::new(State { buffer, ..State::default() }),
            kick: Notify::new(),
            room: Notify::new(),
            ended: Notify::new(),
        })
    }

    /// Bytes of a page, as the host chose.
    pub fn page_bytes(&self) -> u64 {
        4096 << self.state.borrow().configuration.page_shift
    }

    /// A feature's value, or its default.
    pub fn feature(&self, id: u8) -> u32 {
        self.state.borrow().features.get(&id).copied().unwrap_or_else(|| self.default_feature(id))
    }

    /// A feature's value after a reset.
    pub fn default_feature(&self, id: u8) -> u32 {
        match id {
            feature::ARBITRATION => Feature::Arbitration { burst: 3, low: 0, medium: 0, high: 0 }.to_bits(),
            // 70 °C, in kelvin.
            feature::TEMPERATURE_THRESHOLD => 343,
            feature::VOLATILE_WRITE_CACHE => u32::from(self.has_volatile_cache()),
            feature::NUMBER_OF_QUEUES => {
                let last = self.drive.params.io_queues.saturating_sub(1);
                Feature::NumberOfQueues { submission: last, completion: last }.to_bits()
            }
            _ => 0,
        }
    }

    pub fn has_volatile_cache(&self) -> bool {
        self.drive.params.volatile_buffer && self.drive.store.borrow().has_buffer()
    }

    pub fn writes_are_buffered(&self) -> bool {
        let allowed =
            !self.drive.params.volatile_buffer || self.feature(feature::VOLATILE_WRITE_CACHE) & 1 == 1;
        allowed && self.drive.store.borrow().has_buffer()
    }

    fn keep(&self, task: JoinHandle<()>) {
        let mut state = self.state.borrow_mut();
        if state.tasks.len() > 2 * usize::from(self.drive.params.timing.commands_in_hand) {
            state.tasks.retain(|task| !task.is_finished());
        }
        state.tasks.push(task);
    }

    /// CC was written (section 3.1.5).
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
                // A normal shutdown leaves nothing behind; an abrupt one does what it can, which is the same here.
                let _ = this.flush().await;
                this.state.borrow_mut().status.shutdown = 2;
            }));
        } else if new.shutdown == 0 {
            self.state.borrow_mut().status.shutdown = 0;
        }
    }

    fn start(self: &Rc<Self>, configuration: Configuration) {
        let params = &self.drive.params;
        let arbitration = configuration.arbitration == 0
            || configuration.arbitration == WEIGHTED && params.weighted_round_robin;
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
            let queue = SubmissionQueue {
                base,
                entries,
                tail: 0,
                head: 0,
                fetching: false,
                closed: false,
                priority: 0,
                completion_queue: 0,
            };
            state.submission.insert(0, queue);
            let entries = u32::from(state.admin.completion) + 1;
            let queue = CompletionQueue::new(state.admin_completion, entries, Some(0));
            state.completion.insert(0, queue);
        }
        let this = Rc::clone(self);
        let ready = self.port.now() + params.timing.enable;
        self.keep(self.port.spawn(async move {
            this.port.sleep_until(ready).await;
            this.state.borrow_mut().status.ready = true;
            for _ in 0..FETCHERS {
                let fetcher = Rc::clone(&this);
                this.keep(this.port.spawn(async move { fetcher.fetch_commands().await }));
            }
        }));
    }

    /// A controller reset: queues and commands are gone, the admin queues' registers stay (section 7.3.2).
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
            buffer_control: state.buffer_control,
            buffer: std::mem::take(&mut state.buffer),
            ..State::default()
        };
    }

    /// A reset from outside: the registers are cleared too.
    pub fn reset(&self) {
        self.stop();
        let mut state = self.state.borrow_mut();
        let buffer = std::mem::take(&mut state.buffer);
        *state = State { buffer, ..State::default() };
    }

    /// The controller cannot go on (CSTS.CFS): nothing is processed until it is reset.
    pub fn fail(&self) {
        let mut state = self.state.borrow_mut();
        state.status.fatal = true;
        for queue in state.submission.values_mut() {
            queue.closed = true;
        }
    }

    /// A doorbell was written (section 3.1.20 and following).
    pub fn doorbell(self: &Rc<Self>, number: u64, value: u32) {
        if !self.state.borrow().status.ready {
            return;
        }
        let queue = (number / 2) as u16;
        let mut state = self.state.borrow_mut();
        let event = if number / 2 > u64::from(u16::MAX) {
            Some(AsyncEvent::INVALID_DOORBELL)
        } else if number % 2 == 0 {
            match state.submission.get_mut(&queue) {
                None => Some(AsyncEvent::INVALID_DOORBELL),
                Some(queue) if value >= queue.entries => Some(AsyncEvent::INVALID_DOORBELL_VALUE),
                Some(queue) => {
                    queue.tail = value;
                    self.kick.notify_one();
                    None
                }
            }
        } else {
            match state.completion.get_mut(&queue) {
                None => Some(AsyncEvent::INVALID_DOORBELL),
                Some(queue) => {
                    let used = (queue.tail + queue.entries - queue.head) % queue.entries;
                    let taken = (value + queue.entries - queue.head) % queue.entries;
                    if value >= queue.entries || taken > used {
                        Some(AsyncEvent::INVALID_DOORBELL_VALUE)
                    } else {
                        queue.head = value;
                        self.room.notify_all();
                        None
                    }
                }
            }
        };
        if let Some(event) = event {
            state.events.error(ErrorEntry {
                queue,
                command: 0xffff,
                location: 0xffff,
                ..ErrorEntry::default()
            });
            drop(state);
            self.raise(event);
        }
    }

    /// Tells the host of an event, now or when it asks.
    pub fn raise(self: &Rc<Self>, event: AsyncEvent) {
        self.state.borrow_mut().events.raise(event);
        self.tell_events();
    }

    /// Answers Asynchronous Event Requests as long as there are events.
    pub fn tell_events(self: &Rc<Self>) {
        loop {
            let Some((id, event)) = self.state.borrow_mut().events.take() else { return };
            self.answer_later(id, event.to_bits(), Status::SUCCESS);
        }
    }

    /// Completes an admin command that waited without a task.
    pub fn answer_later(self: &Rc<Self>, id: u16, result: u32, status: Status) {
        let this = Rc::clone(self);
        self.keep(self.port.spawn(async move { this.post(0, id, result, status, None).await }));
    }

    /// Fetches commands as arbitration has it, for ever.
    async fn fetch_commands(self: Rc<Self>) {
        loop {
            let Some(fetch) = self.pick() else {
                self.kick.notified().await;
                continue;
            };
            // Others may have something to fetch as well.
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
        let weighted = state.configuration.arbitration == WEIGHTED;
        let fetch = state.arbiter.pick(&mut state.submission, weighted, arbitration, slots)?;
        if fetch.queue != 0 {
            state.in_hand += fetch.count;
        }
        Some(fetch)
    }

    fn begin(self: &Rc<Self>, queue: u16, command: Command) {
        let running = Rc::new(Running::default());
        let conflict = {
            let mut state = self.state.borrow_mut();
            // An identifier in use, or an event request with the identifier of one that waits.
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

    /// Runs one command from decoding to its completion.
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
            start
        };
        self.port.sleep_until(start + timing.decode).await;
        let outcome = match (running.abort.get(), fault) {
            (Some(status), _) | (None, Some(FaultKind::Fail(status))) => Err(status),
            _ => {
                running.begun.set(true);
                match queue {
                    0 => match self.admin(command).await {
                        // It waits for an event.
                        Ok(None) => return,
                        Ok(Some(result)) => Ok(result),
                        Err(status) => Err(status),
                    },
                    _ => self.io(command).await,
                }
            }
        };
        self.port.sleep_until(self.port.now() + timing.completion).await;
        // A command that was done is done, but one of a deleted queue is not told of its success.
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
                namespace: command.namespace,
                ..ErrorEntry::default()
            };
            self.state.borrow_mut().events.error(entry);
            self.drive.smart.borrow_mut().error_entries += 1;
        }
        self.post(queue, command.id, result, status, fault).await;
    }

    /// Posts a completion as soon as its queue has room, then raises the interrupt.
    async fn post(
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
        // Behind the command's data: posted writes do not pass each other.
        if let Some(sent) = self.send(address, &entry.emit()) {
            let _ = sent.await;
        }
        if let Some(vector) = vector.filter(|_| fault != Some(FaultKind::DropInterrupt)) {
            self.interrupt(number, vector);
        }
    }

    /// Takes an entry of the completion queue of `queue`: its number, address, phase, vector; the submission head.
    fn take_entry(&self, queue: u16) -> Option<(u16, u64, bool, Option<u16>, u16)> {
        let mut state = self.state.borrow_mut();
        let submission = state.submission.get(&queue)?;
        let (number, head) = (submission.completion_queue, submission.head as u16);
        let completion = state.completion.get_mut(&number)?;
        let (address, phase) = completion.take()?;
        Some((number, address, phase, completion.vector, head))
    }

    /// Raises an interrupt, or lets it wait for more (section 7.5, feature 08h).
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

    /// Fetches nothing more from a queue, ends its commands and waits for the last of them (section 5.6).
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

/// Largest page size: 4 KiB times two to this.
pub(super) const MAX_PAGE_SHIFT: u8 = 4;
