//! Reception of completions.

use engine::Scheduler;
use platform::device::{Dma, DmaError, FunctionIndex};
use platform::mover::{Answered, Arrival};
use units::Time;
use wire::pcie::Bdf;
use wire::pcie::tlp::{CompletionHeader, CompletionStatus};

use super::{EndpointEvent, Outstanding, Requester};
use crate::detected::Detected;
use crate::event::Event;
use crate::link::LinkEnd;
use crate::wires::{Context, Wires};

impl Outstanding {
    /// Whether a completion is the next one of this request, sent by `requester` (base spec 2.3.2).
    #[inline(always)]
    fn is_answered_by(&self, requester: Bdf, dma: &Dma, header: &CompletionHeader) -> bool {
        if header.requester != requester || header.status != CompletionStatus::Successful {
            return header.requester == requester;
        }
        let done = self.offset + self.length - self.left;
        // A flush read starts at its doubleword, and counts as one byte.
        let first = if dma.length == 0 { dma.address.get() & !3 } else { dma.address.get() };
        let lower_address = (first + u64::from(done)) as u8 & 0x7f;
        header.lower_address == lower_address && u32::from(header.byte_count) == self.left.max(1)
    }

    /// The request as reported once it is complete.
    fn as_answered(&self) -> Answered {
        Answered { offset: self.offset, length: self.length, largest: self.largest }
    }
}

impl Requester {
    /// Handles a completion with its payload and `padding` bytes. Returns when it has left the receive buffer.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub fn completion(
        &mut self,
        wires: &Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        header: &CompletionHeader,
        poisoned: bool,
        padding: u16,
        payload: &[u8],
    ) -> Time {
        let now = scheduler.now();
        let waiting = self.tags.get_mut(usize::from(header.tag)).filter(|entry| !entry.answered);
        let Some((entry, index)) = waiting.and_then(|entry| entry.read.map(|index| (entry, index))) else {
            return self.unexpected(now);
        };
        let read = &mut self.reads[index as usize];
        let dma = read.dma.as_ref().expect("a read with a tag has been asked for");
        if !entry.is_answered_by(read.requester, dma, header) {
            return self.unexpected(now);
        }
        self.counters.completions += 1;
        let first = entry.largest == 0;
        let offset = entry.offset + entry.length - entry.left;
        let mut here = 0;
        if header.status != CompletionStatus::Successful {
            self.counters.failed_completions += 1;
            read.failed = Some(match header.status {
                CompletionStatus::CompleterAbort => DmaError::CompleterAbort,
                _ => DmaError::UnsupportedRequest,
            });
            // An error ends the request, even if partly completed.
            entry.left = 0;
            entry.answered = true;
        } else {
            let lead = usize::from(header.lower_address & 3);
            here = header.bytes_here().min(entry.left);
            let place = offset as usize;
            match (poisoned, payload.get(lead..lead + here as usize)) {
                (false, Some(bytes)) => read.data[place..place + bytes.len()].copy_from_slice(bytes),
                _ => {
                    self.counters.poisoned_completions += 1;
                    self.detected = Some((dma.function, Detected::Poisoned));
                    read.failed = Some(DmaError::Poisoned);
                }
            }
            entry.answered = here == entry.left;
            entry.left -= here;
        }
        entry.largest = entry.largest.max(here.max(1));
        let link = wires.link(end.link);
        let wire_bytes = link.framing_bytes() + 12 + u64::from(header.length_dw) * 4 + u64::from(padding);
        // The link may have become slower since it was sent.
        let on_wire = link.wire_time(end.side.opposite(), wire_bytes);
        let arrival = Arrival {
            began: Time::from_ps(now.as_ps().saturating_sub(on_wire.as_ps())),
            wire_bytes,
            ps_per_byte: link.wire_time_per_byte_ps(),
            first,
            offset: offset.into(),
            bytes: here.into(),
        };
        let drained = self.mover.completion(now, dma, &mut read.progress, &arrival);
        if entry.answered {
            let request = entry.as_answered();
            let free = self.request_answered(scheduler, index, &request, drained);
            self.free_tag_at(scheduler, header.tag, free);
        }
        drained
    }

    /// A completion matches no request.
    #[cold]
    fn unexpected(&mut self, now: Time) -> Time {
        self.counters.unexpected_completions += 1;
        self.detected = Some((FunctionIndex(0), Detected::UnexpectedCompletion));
        now
    }

    /// All completions of a request have arrived, or it has been given up. Returns when its data has been processed.
    #[inline(always)]
    fn request_answered(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        index: u32,
        request: &Answered,
        drained: Time,
    ) -> Time {
        let read = &mut self.reads[index as usize];
        let dma = read.dma.as_ref().expect("a read with a tag has been asked for");
        read.outstanding -= 1;
        let (free, known) = self.mover.answered(scheduler.now(), dma, &read.progress, request, drained);
        if read.outstanding == 0 && (read.left == 0 || read.failed.is_some()) {
            if read.left > 0 {
                // The rest of a failed read is not requested.
                read.left = 0;
                self.to_issue.retain(|&waiting| waiting != index);
            }
            scheduler.at(known, self.event(EndpointEvent::ReadDone { read: index, of: self.life() }));
        }
        free
    }

    /// Schedules the release of a tag, which starts at `at`.
    #[inline(always)]
    fn free_tag_at(&self, scheduler: &mut Scheduler<Event>, tag: u16, at: Time) {
        let event = self.event(EndpointEvent::TagFree { tag, of: self.life() });
        scheduler.at(at + self.params.tag_release, event);
    }

    /// A tag's data has been processed: the tag is free again.
    #[inline]
    pub fn tag_free(&mut self, cx: &mut Context<'_>, tag: u16) {
        let entry = &mut self.tags[usize::from(tag)];
        entry.read = None;
        self.buffered -= entry.length;
        self.in_use -= 1;
        // The host may have reduced the number of tags meanwhile.
        if self.usable(&self.allowance).contains(&tag) {
            self.free_tags.push_back(tag);
        }
        self.issue_reads(cx);
    }

    /// Schedules a completion timeout check at `at`.
    #[inline]
    pub(super) fn check_timeouts_at(&mut self, scheduler: &mut Scheduler<Event>, at: Time) {
        if at < self.timeout_check {
            self.timeout_check = at;
            scheduler.at(at, self.event(EndpointEvent::CheckTimeouts { of: self.life() }));
        }
    }

    /// Ends requests that have timed out. Returns their functions, once for each request.
    ///
    /// Their tags are quarantined for one more timeout, so that a late completion is not taken for that of another
    /// request.
    pub fn check_timeouts(&mut self, scheduler: &mut Scheduler<Event>) -> Vec<FunctionIndex> {
        let mut late = Vec::new();
        let now = scheduler.now();
        if self.timeout_check > now {
            return late;
        }
        self.timeout_check = Time::NEVER;
        let mut next = Time::NEVER;
        for tag in 0..self.tags.len() as u16 {
            let entry = self.tags[usize::from(tag)];
            // A request whose last completion is being processed does not time out.
            let (Some(index), false) = (entry.read, entry.answered) else { continue };
            if entry.deadline <= now {
                self.counters.timeouts += 1;
                self.reads[index as usize].failed = Some(DmaError::Timeout);
                self.tags[usize::from(tag)].answered = true;
                let dma = self.reads[index as usize].dma.expect("a read with a tag has been asked for");
                late.push(dma.function);
                let free = self.request_answered(scheduler, index, &entry.as_answered(), now);
                let quarantine = self.timeout(dma.function).unwrap_or(self.params.completion_timeout);
                self.free_tag_at(scheduler, tag, free + quarantine);
            } else {
                next = next.min(entry.deadline);
            }
        }
        self.check_timeouts_at(scheduler, next);
        late
    }
}
