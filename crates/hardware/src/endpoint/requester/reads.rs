//! DMA reads: split into requests of the size that the host allows, and put together from completions.

use engine::{Busy, Scheduler, WaitTime};
use platform::device::{Dma, DmaError, FunctionIndex, Token};
use platform::mover::{Arrival, Progress};
use units::{Duration, Time};
use wire::pcie::split::split_read;
use wire::pcie::tlp::{CompletionHeader, CompletionStatus, MemoryRequest};
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::port::RequesterPort;
use super::tags::{Lack, TaggedRead, Tags};
use crate::detected::Detected;
use crate::endpoint::{EndpointEvent, PortLife};
use crate::event::Event;
use crate::link::{Link, LinkEnd, Side};
use crate::table::{Queue, Table};
use crate::wires::Context;

/// A DMA read in progress.
#[derive(Default)]
struct Read {
    dma: Option<Dma>,
    end: Option<LinkEnd>,
    requester: Bdf,
    data: Vec<u8>,
    /// When its engine can send the first request.
    ready: Time,
    /// Address of the data not yet requested.
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

/// Outcome of a read, as reported to the device.
pub struct Finished {
    read: u32,
    /// Life of the port in which it was asked for.
    of: PortLife,
    /// The device's token.
    pub token: Token,
    /// The data; return it with [`Requester::recycle`](super::Requester::recycle).
    pub data: Vec<u8>,
    /// Error, if the read failed.
    pub failed: Option<DmaError>,
}

/// A completion that arrived.
pub struct Arrived<'a> {
    /// The link by which it came.
    pub link: &'a Link,
    /// The port's side of it.
    pub side: Side,
    /// Its header.
    pub header: &'a CompletionHeader,
    /// Whether its data is poisoned.
    pub poisoned: bool,
    /// Padding bytes of its sender.
    pub padding: u16,
    /// Its data.
    pub payload: &'a [u8],
}

/// Error of a completion, and the function whose request it belongs to.
pub type ReadFault = Option<(FunctionIndex, Detected)>;

/// Reads of a port.
pub(super) struct Reads {
    reads: Table<Read>,
    /// Reads not fully requested yet, oldest first.
    to_issue: Queue,
    tags: Tags,
    /// When the next read request can be sent.
    next_issue: Time,
    /// Time of the scheduled retry.
    issue_wake: Option<Time>,
    /// Time of sending requests at the core's minimum interval.
    issuing: Busy,
    /// Time during which the oldest read has waited, by what it lacked.
    starved: [WaitTime; 2],
    /// Time of the scheduled timeout check.
    timeout_check: Time,
}

impl Reads {
    /// No reads, and all tags free that the host allows.
    pub fn new(port: &RequesterPort) -> Self {
        let mut new = Self {
            reads: Table::default(),
            to_issue: Queue::default(),
            tags: Tags::default(),
            next_issue: Time::ZERO,
            issue_wake: None,
            issuing: Busy::default(),
            starved: Default::default(),
            timeout_check: Time::NEVER,
        };
        new.heed_allowance(port);
        new
    }

    /// No reads any more: the port was reset at `now`. Times until then are kept.
    pub fn anew(&mut self, now: Time, port: &RequesterPort) -> Self {
        self.fed(now);
        self.issuing.cancel(now);
        let Self { issuing, starved, .. } = *self;
        Self { issuing, starved, ..Self::new(port) }
    }

    /// Tags and the requests that use them.
    pub fn tags(&self) -> &Tags {
        &self.tags
    }

    /// The host's settings may have changed.
    pub fn heed_allowance(&mut self, port: &RequesterPort) {
        let allowed = &port.allowance().tags;
        self.tags.allow(allowed.start..allowed.end.min(allowed.start + port.params.tags));
    }

    fn allocate(&mut self) -> u32 {
        self.reads.take().unwrap_or_else(|| self.reads.add(Read::default()))
    }

    /// Starts a read from `end` with the ID `requester`, whose engine is `ready` at that time.
    #[inline(always)]
    pub fn begin(
        &mut self,
        cx: &mut Context<'_>,
        port: &mut RequesterPort,
        (end, requester): (LinkEnd, Bdf),
        dma: Dma,
        ready: Time,
    ) {
        let index = self.allocate();
        let read = &mut self.reads[index];
        // Stale bytes in the buffer are never visible: all are overwritten, or the read fails.
        read.data.resize(dma.length as usize, 0);
        (read.dma, read.end, read.requester, read.ready) = (Some(dma), Some(end), requester, ready);
        (read.next, read.left, read.outstanding) = (dma.address.get(), dma.length, 0);
        (read.progress, read.failed, read.forgotten) = (Progress::default(), None, false);
        port.counters.bytes_read += u64::from(dma.length);
        // A read behind others waits for the same thing as they do.
        let is_alone = self.to_issue.is_empty();
        self.reads.append(&mut self.to_issue, index);
        if is_alone {
            self.issue(cx, port);
        }
    }

    /// Reports a failed read to the device without sending a TLP.
    pub fn refuse(&mut self, cx: &mut Context<'_>, port: &RequesterPort, dma: Dma) {
        let index = self.allocate();
        let data = std::mem::take(&mut self.reads[index].data);
        let failed = Some(DmaError::NotAllowed);
        self.reads[index] = Read { dma: Some(dma), data, failed, ..Read::default() };
        let event = port.event(EndpointEvent::ReadDone { read: index, of: port.life });
        cx.scheduler.at(cx.now(), event);
    }

    /// The oldest read waits for `lack`, since `since` unless it already did.
    fn starve(&mut self, since: Time, lack: Lack) {
        let [tag, buffer] = &mut self.starved;
        let (lacked, other) = if lack == Lack::Tag { (tag, buffer) } else { (buffer, tag) };
        other.end(since);
        lacked.begin(since);
    }

    /// The oldest read no longer waits.
    #[inline]
    fn fed(&mut self, now: Time) {
        self.starved.iter_mut().for_each(|waited| waited.end(now));
    }

    /// How long the oldest read has waited for `lack` up to `now`.
    pub fn waited_for(&self, lack: Lack, now: Time) -> Duration {
        self.starved[lack as usize].until(now)
    }

    /// How long requests were sent at the core's minimum interval up to `now`.
    pub fn issue_busy(&self, now: Time) -> Duration {
        self.issuing.until(now)
    }

    /// Sends read requests while tags are free.
    #[inline(never)]
    pub fn issue(&mut self, cx: &mut Context<'_>, port: &mut RequesterPort) {
        let now = cx.now();
        if self.issue_wake.is_some_and(|at| at <= now) {
            self.issue_wake = None;
        }
        while let Some(index) = self.to_issue.first() {
            let read = &self.reads[index];
            if self.tags.are_used_up() {
                // The next tag to become free triggers a retry.
                let since = read.ready.max(now);
                return self.starve(since, Lack::Tag);
            }
            let due = read.ready.max(self.next_issue);
            if due > now {
                if self.issue_wake.is_none_or(|at| at > due) {
                    self.issue_wake = Some(due);
                    cx.scheduler.at(due, port.event(EndpointEvent::IssueReads { of: port.life }));
                }
                return;
            }
            match self.tags.take(read.left.min(port.largest_read), port.params.read_buffer) {
                Some(tag) => self.send_request(cx, port, index, tag),
                None => return self.starve(now, Lack::Buffer),
            }
        }
    }

    /// Sends the next request of a read.
    // Out of line, as a loop around it would load all that it uses before.
    #[inline(never)]
    fn send_request(&mut self, cx: &mut Context<'_>, port: &mut RequesterPort, index: u32, tag: u16) {
        let now = cx.now();
        let read = &mut self.reads[index];
        // A zero-length read is a request with all byte enables clear (a flush of earlier writes).
        let mut pieces = split_read(read.next, u64::from(read.left), port.largest_read);
        let (address, length) = pieces.next().unwrap_or((read.next, 0));
        let dma = read.dma.as_ref().expect("a read that is issued has been asked for");
        let end = read.end.expect("a read that is issued has a port");
        let deadline = port.timeout(dma.function).map_or(Time::NEVER, |timeout| now + timeout);
        let request = MemoryRequest::for_bytes(read.requester, tag, address, length);
        let tlp = Tlp { common: port.common(dma.attributes), kind: TlpKind::MemoryRead(request) };
        let offset = dma.length - read.left;
        let request =
            TaggedRead { read: index, offset, length, left: length, answered: false, largest: 0, deadline };
        self.tags.assign(tag, request);
        read.next = address + u64::from(length);
        read.left -= length;
        read.outstanding += 1;
        if read.left == 0 {
            self.reads.pop(&mut self.to_issue);
        }
        self.next_issue = now + port.params.issue_interval;
        self.issuing.add(now, port.params.issue_interval);
        port.counters.read_requests += 1;
        port.counters.most_tags = port.counters.most_tags.max(self.tags.in_use());
        self.fed(now);
        let packet = cx.wires.packets.encode(&tlp, &[]);
        self.check_timeouts_at(cx.scheduler, port, deadline);
        cx.send(end, packet);
    }

    /// Handles a completion. Returns when it has left the receive buffer, and its error, if it has one.
    #[inline(always)]
    pub fn completion(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        port: &mut RequesterPort,
        Arrived { link, side, header, poisoned, padding, payload }: Arrived<'_>,
    ) -> (Time, ReadFault) {
        let now = scheduler.now();
        let Some(request) = self.tags.outstanding(header.tag) else { return unexpected(port, now) };
        let read = &mut self.reads[request.read];
        let dma = read.dma.as_ref().expect("a read with a tag has been asked for");
        if !request.is_answered_by(read.requester, dma, header) {
            return unexpected(port, now);
        }
        port.counters.completions += 1;
        let first = request.largest == 0;
        let offset = request.place();
        let (mut here, mut fault) = (0, None);
        if header.status != CompletionStatus::Successful {
            port.counters.failed_completions += 1;
            read.failed = Some(match header.status {
                CompletionStatus::CompleterAbort => DmaError::CompleterAbort,
                _ => DmaError::UnsupportedRequest,
            });
            // An error ends the request, even if partly completed.
            request.left = 0;
            request.answered = true;
        } else {
            let lead = usize::from(header.lower_address & 3);
            here = header.bytes_here().min(request.left);
            let place = offset as usize;
            match (poisoned, payload.get(lead..lead + here as usize)) {
                (false, Some(bytes)) => read.data[place..place + bytes.len()].copy_from_slice(bytes),
                _ => {
                    port.counters.poisoned_completions += 1;
                    fault = Some((dma.function, Detected::Poisoned));
                    read.failed = Some(DmaError::Poisoned);
                }
            }
            request.answered = here == request.left;
            request.left -= here;
        }
        request.largest = request.largest.max(here.max(1));
        let wire_bytes = link.framing_bytes() + 12 + u64::from(header.length_dw) * 4 + u64::from(padding);
        // The link may have become slower since it was sent.
        let on_wire = link.wire_time(side.opposite(), wire_bytes);
        let arrival = Arrival {
            began: Time::from_ps(now.as_ps().saturating_sub(on_wire.as_ps())),
            wire_bytes,
            ps_per_byte: link.wire_time_per_byte_ps(),
            first,
            offset: offset.into(),
            bytes: here.into(),
        };
        if !request.answered {
            return (port.mover.completion(now, dma, &mut read.progress, &arrival), fault);
        }
        let last = port.mover.last_completion(now, dma, &mut read.progress, &arrival, &request.as_answered());
        answered(&mut self.reads, &mut self.to_issue, scheduler, port, request, last.known);
        free_tag_at(scheduler, port, header.tag, last.tag_free);
        (last.drained, fault)
    }

    /// A tag's data has been processed: the tag is free again.
    #[inline]
    pub fn tag_free(&mut self, cx: &mut Context<'_>, port: &mut RequesterPort, tag: u16) {
        self.tags.free(tag);
        self.issue(cx, port);
    }

    /// Takes the outcome of a finished read.
    #[inline]
    pub fn take_finished(&mut self, port: &RequesterPort, read: u32) -> Option<Finished> {
        let slot = &mut self.reads[read];
        let token = slot.dma.take()?.token;
        if slot.forgotten {
            self.reads.free(read);
            return None;
        }
        let data = std::mem::take(&mut slot.data);
        Some(Finished { read, of: port.life, token, data, failed: slot.failed })
    }

    /// Recycles a finished read's index and buffer.
    #[inline]
    pub fn recycle(&mut self, port: &RequesterPort, finished: Finished) {
        // After a reset the index is no longer valid.
        if finished.of == port.life {
            self.reads[finished.read].data = finished.data;
            self.reads.free(finished.read);
        }
    }

    /// Schedules a completion timeout check at `at`.
    #[inline]
    fn check_timeouts_at(&mut self, scheduler: &mut Scheduler<Event>, port: &RequesterPort, at: Time) {
        if at < self.timeout_check {
            self.timeout_check = at;
            scheduler.at(at, port.event(EndpointEvent::CheckTimeouts { of: port.life }));
        }
    }

    /// Ends requests that have timed out. Returns their functions, once for each request.
    ///
    /// Their tags are quarantined for one more timeout, so that a late completion is not taken for that of another
    /// request.
    pub fn check_timeouts(&mut self, cx: &mut Context<'_>, port: &mut RequesterPort) -> Vec<FunctionIndex> {
        let mut late = Vec::new();
        let now = cx.now();
        if self.timeout_check > now {
            return late;
        }
        self.timeout_check = Time::NEVER;
        let mut next = Time::NEVER;
        let Self { reads, to_issue, tags, .. } = self;
        // A request whose last completion is being processed does not time out.
        for (tag, request) in tags.all_outstanding() {
            if request.deadline > now {
                next = next.min(request.deadline);
                continue;
            }
            port.counters.timeouts += 1;
            request.answered = true;
            let read = &mut reads[request.read];
            read.failed = Some(DmaError::Timeout);
            let dma = read.dma.expect("a read with a tag has been asked for");
            late.push(dma.function);
            let whole = request.as_answered();
            let (free, known) = port.mover.answered(now, &dma, &read.progress, &whole, now);
            answered(reads, to_issue, cx.scheduler, port, request, known);
            let quarantine = port.timeout(dma.function).unwrap_or(port.params.completion_timeout);
            free_tag_at(cx.scheduler, port, tag, free + quarantine);
        }
        self.check_timeouts_at(cx.scheduler, port, next);
        late
    }

    /// Drops what one function has in progress. Tags are shared, so those of its outstanding requests stay in use until
    /// completed; the data is dropped (base spec 6.6.2).
    pub fn forget(&mut self, function: FunctionIndex) {
        for number in 0..self.reads.len() as u32 {
            let read = &mut self.reads[number];
            if read.dma.is_none_or(|dma| dma.function != function) {
                continue;
            }
            (read.forgotten, read.left) = (true, 0);
            // Reads not requested yet are dropped.
            if self.reads.remove(&mut self.to_issue, number) && self.reads[number].outstanding == 0 {
                self.reads[number].dma = None;
                self.reads.free(number);
            }
        }
    }
}

/// A completion matches no request.
#[cold]
fn unexpected(port: &mut RequesterPort, now: Time) -> (Time, ReadFault) {
    port.counters.unexpected_completions += 1;
    (now, Some((FunctionIndex(0), Detected::UnexpectedCompletion)))
}

/// All completions of a request have arrived, or it has been given up. The device learns at `known` of the end of the
/// read, if this was its last request.
#[inline(always)]
fn answered(
    reads: &mut Table<Read>,
    to_issue: &mut Queue,
    scheduler: &mut Scheduler<Event>,
    port: &RequesterPort,
    request: &TaggedRead,
    known: Time,
) {
    let read = &mut reads[request.read];
    read.outstanding -= 1;
    if read.outstanding == 0 && (read.left == 0 || read.failed.is_some()) {
        if read.left > 0 {
            // The rest of a failed read is not requested.
            read.left = 0;
            reads.remove(to_issue, request.read);
        }
        scheduler.at(known, port.event(EndpointEvent::ReadDone { read: request.read, of: port.life }));
    }
}

/// Schedules the release of a tag, which starts at `at`.
#[inline(always)]
fn free_tag_at(scheduler: &mut Scheduler<Event>, port: &RequesterPort, tag: u16, at: Time) {
    scheduler.at(at + port.params.tag_release, port.event(EndpointEvent::TagFree { tag, of: port.life }));
}
