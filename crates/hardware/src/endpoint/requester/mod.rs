//! Requester side of a device's PCIe core: DMA and interrupts of one port.
//!
//! | file | subject |
//! |---|---|
//! | `reads` | reads: requests and completions |
//! | `tags` | tags and outstanding requests |
//! | `writes` | writes and interrupt messages |
//! | `port` | what reads and writes share |

mod counters;
mod port;
mod reads;
mod tags;
mod writes;

use engine::{Epoch, Scheduler};
use platform::device::{Dma, FunctionIndex, PortIndex};
use platform::mover::{DataMover, MoverBusy};
use units::{Duration, Time};
use wire::pcie::config::CompletionTimeout;
use wire::pcie::{Bdf, Tlp};

use super::EndpointId;
use super::life::{Life, Lives, PortLife};
use super::params::EndpointParams;
use super::registers::Allowance;
use crate::event::Event;
use crate::link::LinkEnd;
use crate::wires::Context;
pub use counters::RequesterCounters;
use port::RequesterPort;
pub use reads::{Arrived, Finished};
use reads::{ReadFault, Reads};
use tags::Lack;
use writes::Writes;

/// Requester side of one port of a device, with the device's data mover.
pub struct Requester {
    port: RequesterPort,
    reads: Reads,
    writes: Writes,
    lives: Lives,
}

impl Requester {
    /// Creates an idle requester with all tags free.
    pub fn new(id: EndpointId, port: PortIndex, params: EndpointParams, mover: Box<dyn DataMover>) -> Self {
        let port = RequesterPort::new(id, PortLife { port, epoch: Epoch::default() }, params, mover);
        Self { reads: Reads::new(&port), writes: Writes::default(), lives: Lives::default(), port }
    }

    /// Settings of the host for requests.
    pub fn allowance(&self) -> &Allowance {
        self.port.allowance()
    }

    /// Applies new settings of the host; outstanding requests keep their tags.
    pub fn allow(&mut self, allowance: Allowance) {
        self.port.allow(allowance);
        self.reads.heed_allowance(&self.port);
    }

    /// Sets the completion timeouts of all functions.
    pub fn set_timeouts(&mut self, timeouts: impl Iterator<Item = CompletionTimeout>) {
        let default = self.port.params.completion_timeout;
        self.port.timeouts.clear();
        self.port.timeouts.extend(timeouts.map(|timeout| timeout.longest(default)));
    }

    /// Current life of the port, since its last reset.
    #[inline(always)]
    pub fn life(&self) -> PortLife {
        self.port.life
    }

    /// Current life of a function, since its last reset or the port's.
    pub fn function_life(&self, function: FunctionIndex) -> Life {
        self.lives.of(function)
    }

    /// Counters so far.
    pub fn counters(&self) -> &RequesterCounters {
        &self.port.counters
    }

    /// Busy time of the data mover's stages up to `now`.
    pub fn mover_busy(&self, now: Time) -> MoverBusy {
        self.port.mover.busy(now)
    }

    /// Time up to `now` spent sending read requests at the core's minimum interval.
    pub fn issue_busy(&self, now: Time) -> Duration {
        self.reads.issue_busy(now)
    }

    /// Time up to `now` during which a read was stalled for lack of a tag.
    pub fn waited_for_tags(&self, now: Time) -> Duration {
        self.reads.waited_for(Lack::Tag, now)
    }

    /// Time up to `now` during which a read had a tag but lacked buffer space.
    pub fn waited_for_buffer(&self, now: Time) -> Duration {
        self.reads.waited_for(Lack::Buffer, now)
    }

    /// Number of usable tags.
    pub fn tags(&self) -> u16 {
        self.reads.tags().usable()
    }

    /// Number of tags in use.
    pub fn tags_in_use(&self) -> u16 {
        self.reads.tags().in_use()
    }

    /// Starts a DMA read from `end` with the ID `requester`. A read of no bytes flushes all earlier writes, those that
    /// have not started included.
    #[inline(always)]
    pub fn read(&mut self, cx: &mut Context<'_>, end: LinkEnd, requester: Bdf, dma: Dma) {
        if dma.length == 0 && !self.writes.have_started() {
            let ready = cx.now() + self.port.mover.start_latency(&dma);
            self.writes.push_flush((end, requester), dma, ready);
        } else {
            self.begin_read(cx, end, requester, dma);
        }
    }

    /// Starts a read, which never passes writes that have started.
    #[inline(always)]
    fn begin_read(&mut self, cx: &mut Context<'_>, end: LinkEnd, requester: Bdf, dma: Dma) {
        let ready = (cx.now() + self.port.mover.start_latency(&dma)).max(self.writes.last_posted());
        self.reads.begin(cx, &mut self.port, (end, requester), dma, ready);
    }

    /// Reports a failed read to the device without sending a TLP.
    pub fn refuse_read(&mut self, cx: &mut Context<'_>, dma: Dma) {
        self.reads.refuse(cx, &self.port, dma);
    }

    /// Sends read requests while tags are free.
    pub fn issue_reads(&mut self, cx: &mut Context<'_>) {
        self.reads.issue(cx, &mut self.port);
    }

    /// Handles a completion. Returns when it has left the receive buffer, and its error, if it has one.
    #[inline(always)]
    pub fn completion(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        arrived: Arrived<'_>,
    ) -> (Time, ReadFault) {
        self.reads.completion(scheduler, &mut self.port, arrived)
    }

    /// A tag's data has been processed: the tag is free again.
    #[inline]
    pub fn tag_free(&mut self, cx: &mut Context<'_>, tag: u16) {
        self.reads.tag_free(cx, &mut self.port, tag);
    }

    /// Takes the outcome of a finished read.
    #[inline]
    pub fn take_finished(&mut self, read: u32) -> Option<Finished> {
        self.reads.take_finished(&self.port, read)
    }

    /// Recycles a finished read's index and buffer.
    #[inline]
    pub fn recycle(&mut self, finished: Finished) {
        self.reads.recycle(&self.port, finished);
    }

    /// Ends requests that have timed out. Returns their functions, once for each request.
    pub fn check_timeouts(&mut self, cx: &mut Context<'_>) -> Vec<FunctionIndex> {
        self.reads.check_timeouts(cx, &mut self.port)
    }

    /// Writes `data` through `end` with the ID `requester`.
    pub fn write(&mut self, cx: &mut Context<'_>, end: LinkEnd, requester: Bdf, dma: Dma, data: &[u8]) {
        self.port.counters.bytes_written += data.len() as u64;
        let ready = cx.now() + self.port.mover.start_latency(&dma);
        self.writes.push((end, requester), dma, data, ready);
        self.start_writes(cx);
    }

    /// Lets idle engines start the next writes.
    pub fn start_writes(&mut self, cx: &mut Context<'_>) {
        while let Some(flush) = self.writes.start(cx, &mut self.port, &self.lives) {
            self.begin_read(cx, flush.end, flush.requester, flush.dma);
        }
    }

    /// The data of a write has been fetched: its engine is free.
    pub fn write_fetched(&mut self, cx: &mut Context<'_>) {
        self.writes.fetched();
        self.start_writes(cx);
    }

    /// Sends an interrupt's TLP behind the completed writes.
    pub fn send_message(&mut self, cx: &mut Context<'_>, end: LinkEnd, tlp: &Tlp, data: &[u8]) {
        self.writes.send_message(cx, &mut self.port, end, tlp, data);
    }

    /// Drops what one function has in progress.
    pub fn reset_function(&mut self, function: FunctionIndex) {
        self.lives.end(function);
        self.writes.forget(function);
        self.reads.forget(function);
    }

    /// Drops everything in progress: the port was reset at `now`.
    pub fn reset(&mut self, now: Time) {
        self.port.reset(now);
        self.reads = self.reads.anew(now, &self.port);
        self.writes = Writes::default();
        self.lives.end_all();
    }
}
