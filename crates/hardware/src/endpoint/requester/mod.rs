//! The requester side of a device's PCIe core: tags, splitting, reassembly, engines.

mod completions;
mod reads;
mod writes;

use std::collections::VecDeque;
use std::ops::Range;

use platform::device::{Dma, DmaAttributes, DmaError, FunctionIndex, PortIndex};
use platform::mover::{DataMover, Direct, MoverBusy, Progress};
use units::{Duration, Time};
use wire::pcie::Bdf;
use wire::pcie::config::CompletionTimeout;
use wire::pcie::tlp::Common;

use super::params::EndpointParams;
use super::registers::Allowance;
use super::{EndpointEvent, EndpointId};
use crate::detected::Detected;
use crate::event::Event;
use crate::link::LinkEnd;

/// A DMA read of the device, from its request to its outcome.
#[derive(Default)]
struct Read {
    dma: Option<Dma>,
    end: Option<LinkEnd>,
    requester: Bdf,
    data: Vec<u8>,
    /// When its engine can send the first request.
    ready: Time,
    /// What has not been asked for yet.
    next: u64,
    left: u32,
    /// Requests whose data has not all come.
    outstanding: u32,
    /// What the device's mover notes about what has come.
    progress: Progress,
    failed: Option<DmaError>,
    /// Its function was reset since: the device is not told.
    forgotten: bool,
}

/// A function between two resets of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// The function.
    pub function: FunctionIndex,
    number: u16,
}

/// A port of a device between two resets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortLife {
    /// The port.
    pub port: PortIndex,
    number: u16,
}

/// A DMA write that waits for its engine.
struct Write {
    dma: Dma,
    end: LinkEnd,
    requester: Bdf,
    data: Vec<u8>,
    ready: Time,
}

/// A non-posted request on its way.
#[derive(Clone, Copy, Default)]
struct Outstanding {
    /// Which read it belongs to; `None` if the tag is free.
    read: Option<u32>,
    /// Place in the read's data at which the request's bytes begin.
    offset: u32,
    /// Bytes that the request asked for.
    length: u32,
    /// Bytes that have not come yet.
    left: u32,
    /// All that will come has come: an error, or the last byte; of a flush read, which asks for none, its completion.
    answered: bool,
    /// Largest completion so far, in bytes.
    largest: u32,
    /// When it will have waited too long.
    deadline: Time,
}

/// Counts of the requester side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Bytes read, as asked for by the device.
    pub bytes_read: u64,
    /// Bytes written, as asked for by the device.
    pub bytes_written: u64,
    /// Read requests sent.
    pub read_requests: u64,
    /// Write requests sent.
    pub write_requests: u64,
    /// Completions received that answered a request.
    pub completions: u64,
    /// Completions received that answered none.
    pub unexpected_completions: u64,
    /// Requests that no completion answered in time.
    pub timeouts: u64,
    /// Completions with a status other than success.
    pub failed_completions: u64,
    /// Completions whose payload was marked as damaged.
    pub poisoned_completions: u64,
    /// Largest number of tags in use at once.
    pub most_tags: u16,
    /// Time during which a read waited for a tag.
    pub waited_for_tags: Duration,
    /// Time during which a read had a tag, and waited for room for its data.
    pub waited_for_buffer: Duration,
}

/// What a read that is not issued waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lack {
    Tag,
    Buffer,
}

/// The requester side of one port of a device, and what moves its data inside the device.
pub struct Requester {
    id: EndpointId,
    port: PortIndex,
    params: EndpointParams,
    reads: Vec<Read>,
    free_reads: Vec<u32>,
    /// Reads that still have something to ask for, oldest first.
    to_issue: VecDeque<u32>,
    /// By tag.
    tags: Vec<Outstanding>,
    free_tags: VecDeque<u16>,
    in_use: u16,
    /// Bytes that outstanding requests have asked for.
    buffered: u32,
    /// When the next read request can be sent.
    next_issue: Time,
    /// When the core will look again whether a read can go on.
    issue_wake: Option<Time>,
    to_write: VecDeque<Write>,
    writes_in_hand: u16,
    write_wake: Option<Time>,
    spare_buffers: Vec<Vec<u8>>,
    /// The device's way for its data.
    mover: Box<dyn DataMover>,
    /// When the last posted request begins to leave: others follow it.
    last_posted: Time,
    /// What the host allows requests to be.
    allowance: Allowance,
    /// How long the requests of each function wait; `None` is for ever.
    timeouts: Vec<Option<Duration>>,
    /// When the core will look whether a request has waited too long.
    timeout_check: Time,
    starved: Option<(Time, Lack)>,
    counters: RequesterCounters,
    /// What was wrong with the last completion, and whose request it answered: for the core to report.
    pub(super) detected: Option<(FunctionIndex, Detected)>,
    /// Counts resets: events of before the last one mean nothing any more.
    epoch: u16,
    /// Counts each function's own resets.
    lives: Vec<u16>,
}

impl Requester {
    /// An idle requester with all tags free.
    pub fn new(id: EndpointId, port: PortIndex, params: EndpointParams, mover: Box<dyn DataMover>) -> Self {
        let mut new = Self {
            id,
            port,
            reads: Vec::new(),
            free_reads: Vec::new(),
            to_issue: VecDeque::new(),
            tags: Vec::new(),
            free_tags: VecDeque::new(),
            in_use: 0,
            buffered: 0,
            next_issue: Time::ZERO,
            issue_wake: None,
            to_write: VecDeque::new(),
            writes_in_hand: 0,
            write_wake: None,
            spare_buffers: Vec::new(),
            mover,
            last_posted: Time::ZERO,
            allowance: Allowance::default(),
            timeouts: Vec::new(),
            timeout_check: Time::NEVER,
            starved: None,
            counters: RequesterCounters::default(),
            detected: None,
            epoch: 0,
            lives: Vec::new(),
            params,
        };
        new.allow(Allowance::default());
        new
    }

    /// What the host allows requests to be.
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Obeys what the host allows from now on; what has been sent keeps its tag.
    pub fn allow(&mut self, allowance: Allowance) {
        let tags = self.usable(&allowance);
        self.tags.resize(self.tags.len().max(usize::from(tags.end)), Outstanding::default());
        if tags != self.usable(&self.allowance) || self.free_tags.is_empty() {
            self.free_tags = tags.filter(|&tag| self.tags[usize::from(tag)].read.is_none()).collect();
        }
        self.allowance = allowance;
    }

    /// The tags that it uses of those that the host allows.
    fn usable(&self, allowance: &Allowance) -> Range<u16> {
        let first = allowance.tags.start;
        first..allowance.tags.end.min(first + self.params.tags)
    }

    /// The current life of the port, since its last reset.
    pub fn life(&self) -> PortLife {
        PortLife { port: self.port, number: self.epoch }
    }

    /// What it has done so far.
    pub fn counters(&self) -> &RequesterCounters {
        &self.counters
    }

    /// How long the stages of the device's mover have worked so far.
    pub fn mover_busy(&self) -> MoverBusy {
        self.mover.busy()
    }

    /// How long it has been sending read requests, no closer than the core can.
    pub fn issue_busy(&self) -> Duration {
        self.params.issue_interval * self.counters.read_requests
    }

    /// Tags that it may use.
    pub fn tags(&self) -> u16 {
        let usable = self.usable(&self.allowance);
        usable.end.saturating_sub(usable.start)
    }

    /// Tags in use.
    pub fn tags_in_use(&self) -> u16 {
        self.in_use
    }

    /// Says how long the requests of each function wait from now on.
    pub fn set_timeouts(&mut self, timeouts: impl Iterator<Item = CompletionTimeout>) {
        self.timeouts.clear();
        let default = self.params.completion_timeout;
        self.timeouts.extend(timeouts.map(|timeout| timeout.longest(default)));
    }

    /// How long a request of a function waits; `None` is for ever.
    fn timeout(&self, function: FunctionIndex) -> Option<Duration> {
        let said = self.timeouts.get(usize::from(function.0));
        said.copied().unwrap_or(Some(self.params.completion_timeout))
    }

    fn event(&self, event: EndpointEvent) -> Event {
        Event::Endpoint(self.id, event)
    }

    /// What a function is between two resets of its own.
    pub fn function_life(&self, function: FunctionIndex) -> Life {
        let number = self.lives.get(usize::from(function.0)).copied().unwrap_or_default();
        Life { function, number }
    }

    /// Forgets what one function has under way. Requests that have been sent keep their tags until they are
    /// answered, since the tags are everybody's; what is answered then is dropped (base spec 6.6.2).
    pub fn reset_function(&mut self, function: FunctionIndex) {
        let index = usize::from(function.0);
        self.lives.resize(self.lives.len().max(index + 1), 0);
        self.lives[index] = self.lives[index].wrapping_add(1);
        self.to_write.retain(|write| write.dma.function != function);
        for number in 0..self.reads.len() as u32 {
            let read = &mut self.reads[number as usize];
            if read.dma.is_none_or(|dma| dma.function != function) {
                continue;
            }
            read.forgotten = true;
            // What it has not asked for yet it never will.
            let waiting = self.to_issue.len();
            self.to_issue.retain(|&other| other != number);
            read.left = 0;
            if read.outstanding == 0 && self.to_issue.len() < waiting {
                read.dma = None;
                self.free_reads.push(number);
            }
        }
    }

    /// Forgets everything under way: the port was reset.
    pub fn reset(&mut self) {
        let mut mover = std::mem::replace(&mut self.mover, Box::new(Direct::default()));
        mover.reset();
        let counters = std::mem::take(&mut self.counters);
        let epoch = self.epoch.wrapping_add(1);
        *self = Self { counters, epoch, ..Self::new(self.id, self.port, self.params, mover) };
    }
}

/// A request's attributes, as far as the host allows them.
fn common(attributes: DmaAttributes, allowed: &Allowance) -> Common {
    Common {
        relaxed_ordering: attributes.relaxed_ordering && allowed.relaxed_ordering,
        no_snoop: attributes.no_snoop && allowed.no_snoop,
        id_based_ordering: attributes.id_based_ordering && allowed.id_based_ordering,
        ..Common::default()
    }
}
