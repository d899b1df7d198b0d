//! A controller: registers, features and doorbells, life cycle, and command processing.

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

/// Log2 of the largest page size in units of 4 KiB.
pub(super) const MAX_PAGE_SHIFT: u8 = 4;

/// Abort state of a command in flight.
#[derive(Default)]
pub(super) struct Running {
    /// Status with which to abort it.
    abort: Cell<Option<Status>>,
    /// Execution has begun, so it is too late to abort.
    begun: Cell<bool>,
}

/// State that a reset clears: registers, queues, features.
#[derive(Default)]
pub(super) struct State {
    pub configuration: Configuration,
    pub status: ControllerStatus,
    pub admin: AdminQueues,
    pub admin_submission: u64,
    pub admin_completion: u64,
    pub interrupt_mask: u32,
    /// The host has enabled MSI-X, so legacy interrupts are off.
    pub uses_messages: bool,
    /// A legacy interrupt is pending.
    pub interrupts: bool,
    /// Injected fault: writes to CC are ignored.
    pub deaf: bool,
    pub buffer_control: MemoryBufferControl,
    /// Contents of the controller memory buffer.
    pub buffer: Vec<u8>,
    pub submission: BTreeMap<u16, SubmissionQueue>,
    pub completion: BTreeMap<u16, CompletionQueue>,
    pub arbiter: Arbiter,
    pub features: BTreeMap<u8, u32>,
    /// Vectors with coalescing disabled.
    pub uncoalesced: BTreeMap<u16, bool>,
    /// By vector: completions that have not raised an interrupt yet.
    coalescing: BTreeMap<u16, u32>,
    pub events: Events,
    commands: BTreeMap<(u16, u16), Rc<Running>>,
    /// I/O commands being processed.
    in_hand: u32,
    next_start: Time,
    tasks: Vec<JoinHandle<()>>,
}

/// A controller of the drive.
pub(super) struct Controller {
    pub number: u16,
    pub function: FunctionIndex,
    pub drive: Rc<Drive>,
    pub port: Port,
    pub state: RefCell<State>,
    /// Notified when there may be something to fetch.
    kick: Notify,
    /// Notified when a completion queue gets room.
    room: Notify,
    /// Notified when a command ends.
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

    /// Page size in bytes, as chosen by the host.
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

    /// Handles a doorbell write (SQyTDBL, CQyHDBL).
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

    /// Updates the legacy interrupt: pending while a queue holds entries that the host has not consumed, unless the
    /// host has masked the only vector (sections 3.1.3 and 7.5.1).
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

    /// Reports an event to the host, now or with its next request.
    pub fn raise(self: &Rc<Self>, event: AsyncEvent) {
        self.state.borrow_mut().events.raise(event);
        self.tell_events();
    }

    /// Completes Asynchronous Event Requests while there are events.
    pub fn tell_events(self: &Rc<Self>) {
        loop {
            let Some((id, event)) = self.state.borrow_mut().events.take() else { return };
            self.answer_later(id, event.to_bits(), Status::SUCCESS);
        }
    }

    /// Completes an admin command that has no waiting task.
    pub fn answer_later(self: &Rc<Self>, id: u16, result: u32, status: Status) {
        let this = Rc::clone(self);
        self.keep(self.port.spawn(async move { this.post(0, id, result, status, None).await }));
    }
}
