//! A controller: its state, features and doorbells; its life from enable to reset, and how commands run.

mod commands;
mod life;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use engine::{JoinHandle, Notify};
use platform::device::FunctionIndex;
use units::Time;
use wire::nvme::log::ErrorEntry;
use wire::nvme::registers::MemoryBufferControl;
use wire::nvme::{AdminQueues, AsyncEvent, Configuration, ControllerStatus, Feature, Status, feature};

use super::drive::Drive;
use super::events::Events;
use super::queues::{Arbiter, CompletionQueue, SubmissionQueue};
use crate::firmware::Port;

/// Largest page size: 4 KiB times two to this.
pub(super) const MAX_PAGE_SHIFT: u8 = 4;

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
    /// The host has enabled messages: there are no legacy interrupts.
    pub uses_messages: bool,
    /// It has said that it has a cause for a legacy interrupt.
    pub interrupts: bool,
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

    /// A doorbell was written (SQyTDBL, CQyHDBL).
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
                        queue.unread = queue.unread.saturating_sub(taken);
                        self.room.notify_all();
                        None
                    }
                }
            }
        };
        if number % 2 == 1 {
            self.heed_causes_of(&mut state);
        }
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

    /// Legacy interrupts: there is a cause as long as a queue holds entries that the host has not taken, unless it has masked the
    /// vector, which is the only one (sections 3.1.3 and 7.5.1).
    pub fn heed_causes(&self) {
        self.heed_causes_of(&mut self.state.borrow_mut());
    }

    pub(super) fn heed_causes_of(&self, state: &mut State) {
        let is_due =
            || state.interrupt_mask & 1 == 0 && state.completion.values().any(|queue| queue.unread > 0);
        let pending = !state.uses_messages && is_due();
        if std::mem::replace(&mut state.interrupts, pending) != pending {
            self.port.set_interrupt_status(self.function, pending);
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
}
