//! Requester side of a device's PCIe core: tags, splitting, reassembly, engines.

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

/// A DMA read in progress.
#[derive(Default)]
struct Read {
    dma: Option<Dma>,
    end: Option<LinkEnd>,
    requester: Bdf,
    data: Vec<u8>,
    /// When its engine can send the first request.
    ready: Time,
    /// Offset of the data not yet requested.
    next: u64,
    left: u32,
    /// Requests with data outstanding.
    outstanding: u32,
    /// State of the device's data mover for this read.
    progress: Progress,
    failed: Option<DmaError>,
    /// Its function has been reset since: the device is not notified.
    forgotten: bool,
}

/// A function between two of its own resets.
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

/// A DMA write waiting for an engine.
struct Write {
    dma: Dma,
    end: LinkEnd,
    requester: Bdf,
    data: Vec<u8>,
    ready: Time,
    /// A read of no bytes, which waits here for the writes before it.
    is_flush: bool,
}

/// An outstanding non-posted request.
#[derive(Clone, Copy, Default)]
struct Outstanding {
    /// The read that it belongs to; `None` if the tag is free.
    read: Option<u32>,
    /// Offset of the request's bytes in the read's data.
    offset: u32,
    /// Bytes requested.
    length: u32,
    /// Bytes outstanding.
    left: u32,
    /// No more completions will come: after an error or the last byte, or the completion of a flush read, which has no
    /// bytes.
    answered: bool,
    /// Largest completion so far, in bytes.
    largest: u32,
    /// Completion timeout.
    deadline: Time,
}

/// Counters of the requester side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Bytes read, as requested by the device.
    pub bytes_read: u64,
    /// Bytes written, as requested by the device.
    pub bytes_written: u64,
    /// Read requests sent.
    pub read_requests: u64,
    /// Write requests sent.
    pub write_requests: u64,
    /// Completions that matched a request.
    pub completions: u64,
    /// Completions that matched none.
    pub unexpected_completions: u64,
    /// Requests that timed out.
    pub timeouts: u64,
    /// Completions with a status other than success.
    pub failed_completions: u64,
    /// Poisoned completions.
    pub poisoned_completions: u64,
    /// Largest number of tags in use at once.
    pub most_tags: u16,
    /// Time during which a read was stalled for lack of a tag.
    pub waited_for_tags: Duration,
    /// Time during which a read had a tag but lacked buffer space.
    pub waited_for_buffer: Duration,
}

/// What a stalled read waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lack {
    Tag,
    Buffer,
}

/// Requester side of one port of a device, with the device's data mover.
pub struct Requester {
    id: EndpointId,
    port: PortIndex,
    params: EndpointParams,
    reads: Vec<Read>,
    free_reads: Vec<u32>,
    /// Reads not fully requested yet, oldest first.
    to_issue: VecDeque<u32>,
    /// Outstanding requests by tag.
    tags: Vec<Outstanding>,
    free_tags: VecDeque<u16>,
    in_use: u16,
    /// Bytes requested and outstanding.
    buffered: u32,
    /// When the next read request can be sent.
    next_issue: Time,
    /// Time of the scheduled retry.
    issue_wake: Option<Time>,
    /// Writes not started yet, oldest first, and flushes among them.
    to_write: VecDeque<Write>,
    writes_in_hand: u16,
    write_wake: Option<Time>,
    spare_buffers: Vec<Vec<u8>>,
    /// Data path inside the device.
    mover: Box<dyn DataMover>,
    /// When the last posted request starts to leave; later ones follow it.
    last_posted: Time,
    /// Settings of the host for requests.
    allowance: Allowance,
    /// Completion timeout by function; `None` is none.
    timeouts: Vec<Option<Duration>>,
    /// Time of the scheduled timeout check.
    timeout_check: Time,
    starved: Option<(Time, Lack)>,
    counters: RequesterCounters,
    /// Error of the last completion and the function of its request, for the core to report.
    pub(super) detected: Option<(FunctionIndex, Detected)>,
    /// Counts resets. Events of an earlier epoch are dropped.
    epoch: u16,
    /// Counts the resets of each function.
    lives: Vec<u16>,
}

impl Requester {
    /// Creates an idle requester with all tags free.
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

    /// Settings of the host for requests.
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Applies new settings of the host; outstanding requests keep their tags.
    pub fn allow(&mut self, allowance: Allowance) {
        let tags = self.usable(&allowance);
        self.tags.resize(self.tags.len().max(usize::from(tags.end)), Outstanding::default());
        if tags != self.usable(&self.allowance) || self.free_tags.is_empty() {
            self.free_tags = tags.filter(|&tag| self.tags[usize::from(tag)].read.is_none()).collect();
        }
        self.allowance = allowance;
    }

    /// Tags usable under the host's settings.
    fn usable(&self, allowance: &Allowance) -> Range<u16> {
        let first = allowance.tags.start;
        first..allowance.tags.end.min(first + self.params.tags)
    }

    /// Current life of the port, since its last reset.
    pub fn life(&self) -> PortLife {
        PortLife { port: self.port, number: self.epoch }
    }

    /// Counters so far.
    pub fn counters(&self) -> &RequesterCounters {
        &self.counters
    }

    /// Busy time of the data mover's stages so far.
    pub fn mover_busy(&self) -> MoverBusy {
        self.mover.busy()
    }

    /// Time spent sending read requests at the core's minimum interval.
    pub fn issue_busy(&self) -> Duration {
        self.params.issue_interval * self.counters.read_requests
    }

    /// Number of usable tags.
    pub fn tags(&self) -> u16 {
        let usable = self.usable(&self.allowance);
        usable.end.saturating_sub(usable.start)
    }

    /// Number of tags in use.
    pub fn tags_in_use(&self) -> u16 {
        self.in_use
    }

    /// Sets the completion timeouts of all functions.
    pub fn set_timeouts(&mut self, timeouts: impl Iterator<Item = CompletionTimeout>) {
        self.timeouts.clear();
        let default = self.params.completion_timeout;
        self.timeouts.extend(timeouts.map(|timeout| timeout.longest(default)));
    }

    /// Completion timeout of a function; `None` is none.
    fn timeout(&self, function: FunctionIndex) -> Option<Duration> {
        timeout_of(&self.timeouts, &self.params, function)
    }

    fn event(&self, event: EndpointEvent) -> Event {
        Event::Endpoint(self.id, event)
    }

    /// Current life of a function, since its last reset.
    pub fn function_life(&self, function: FunctionIndex) -> Life {
        let number = self.lives.get(usize::from(function.0)).copied().unwrap_or_default();
        Life { function, number }
    }

    /// Drops what one function has in progress. Tags are shared, so those of its outstanding requests stay in use until
    /// completed; the data is dropped (base spec 6.6.2).
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
            // Reads not requested yet are dropped.
            let waiting = self.to_issue.len();
            self.to_issue.retain(|&other| other != number);
            read.left = 0;
            if read.outstanding == 0 && self.to_issue.len() < waiting {
                read.dma = None;
                self.free_reads.push(number);
            }
        }
    }

    /// Drops everything in progress: the port was reset.
    pub fn reset(&mut self) {
        let mut mover = std::mem::replace(&mut self.mover, Box::new(Direct::default()));
        mover.reset();
        let counters = std::mem::take(&mut self.counters);
        let epoch = self.epoch.wrapping_add(1);
        *self = Self { counters, epoch, ..Self::new(self.id, self.port, self.params, mover) };
    }
}

/// Completion timeout of a function, as set by the host; `None` is none.
#[inline]
fn timeout_of(
    set: &[Option<Duration>],
    params: &EndpointParams,
    function: FunctionIndex,
) -> Option<Duration> {
    set.get(usize::from(function.0)).copied().unwrap_or(Some(params.completion_timeout))
}

/// Attributes of a request, limited to what the host allows.
fn common(attributes: DmaAttributes, allowed: &Allowance) -> Common {
    Common {
        relaxed_ordering: attributes.relaxed_ordering && allowed.relaxed_ordering,
        no_snoop: attributes.no_snoop && allowed.no_snoop,
        id_based_ordering: attributes.id_based_ordering && allowed.id_based_ordering,
        ..Common::default()
    }
}
