//! DMA reads, split into requests of the size that the host allows.

use engine::Scheduler;
use platform::device::{Dma, DmaError, Token};
use platform::mover::Progress;
use units::Time;
use wire::pcie::split::split_read;
use wire::pcie::tlp::MemoryRequest;
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::{EndpointEvent, Lack, Outstanding, Read, Requester, Write, common, timeout_of};
use crate::event::Event;
use crate::link::LinkEnd;
use crate::wires::Context;

/// Outcome of a read, as reported to the device.
pub struct Finished {
    read: u32,
    epoch: u16,
    /// The device's token.
    pub token: Token,
    /// The data; return it with [`Requester::recycle`].
    pub data: Vec<u8>,
    /// Error, if the read failed.
    pub failed: Option<DmaError>,
}

impl Requester {
    fn allocate_read(&mut self) -> u32 {
        self.free_reads.pop().unwrap_or_else(|| {
            self.reads.push(Read::default());
            self.reads.len() as u32 - 1
        })
    }

    /// Starts a DMA read from `end` with the ID `requester`. A read of no bytes flushes all earlier writes, those that
    /// have not started included.
    #[inline(always)]
    pub fn read(&mut self, cx: &mut Context<'_>, end: LinkEnd, requester: Bdf, dma: Dma) {
        if dma.length == 0 && !self.to_write.is_empty() {
            let ready = cx.now() + self.mover.start_latency(&dma);
            self.to_write.push_back(Write { dma, end, requester, data: Vec::new(), ready, is_flush: true });
        } else {
            self.begin_read(cx, end, requester, dma);
        }
    }

    #[inline(always)]
    pub(super) fn begin_read(&mut self, cx: &mut Context<'_>, end: LinkEnd, requester: Bdf, dma: Dma) {
        // A read never passes writes that have started.
        let ready = (cx.now() + self.mover.start_latency(&dma)).max(self.last_posted);
        let index = self.allocate_read();
        let read = &mut self.reads[index as usize];
        // Stale bytes in the buffer are never visible: all are overwritten, or the read fails.
        read.data.resize(dma.length as usize, 0);
        (read.dma, read.end, read.requester, read.ready) = (Some(dma), Some(end), requester, ready);
        (read.next, read.left, read.outstanding) = (dma.address.get(), dma.length, 0);
        (read.progress, read.failed, read.forgotten) = (Progress::default(), None, false);
        self.counters.bytes_read += u64::from(dma.length);
        self.to_issue.push_back(index);
        // A read behind others waits for the same thing as they do.
        if self.to_issue.len() == 1 {
            self.issue_reads(cx);
        }
    }

    /// Reports a failed read to the device without sending a TLP.
    pub fn refuse_read(&mut self, scheduler: &mut Scheduler<Event>, dma: Dma) {
        let index = self.allocate_read();
        let data = std::mem::take(&mut self.reads[index as usize].data);
        let failed = Some(DmaError::NotAllowed);
        self.reads[index as usize] = Read { dma: Some(dma), data, failed, ..Read::default() };
        let event = self.event(EndpointEvent::ReadDone { read: index, of: self.life() });
        scheduler.at(scheduler.now(), event);
    }

    /// A read waits for `lack`, since `since` unless it already did.
    fn starve(&mut self, since: Time, lack: Lack) {
        if self.starved.is_none_or(|(_, other)| other != lack) {
            self.fed(since);
            self.starved = Some((since, lack));
        }
    }

    /// A read no longer waits.
    #[inline]
    fn fed(&mut self, now: Time) {
        if self.starved.is_some() {
            self.count_wait(now);
        }
    }

    fn count_wait(&mut self, now: Time) {
        match self.starved.take() {
            Some((since, Lack::Tag)) => self.counters.waited_for_tags += now.since(since),
            Some((since, Lack::Buffer)) => self.counters.waited_for_buffer += now.since(since),
            None => {}
        }
    }

    /// Sends read requests while tags are free.
    #[inline(never)]
    pub fn issue_reads(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        if self.issue_wake.is_some_and(|at| at <= now) {
            self.issue_wake = None;
        }
        while let Some(&index) = self.to_issue.front() {
            let read = &mut self.reads[index as usize];
            let ready = read.ready;
            let due = ready.max(self.next_issue);
            if due > now {
                if self.free_tags.is_empty() {
                    // The next tag to become free triggers a retry.
                    self.starve(ready.max(now), Lack::Tag);
                } else if self.issue_wake.is_none_or(|at| at > due) {
                    self.issue_wake = Some(due);
                    cx.scheduler.at(due, self.event(EndpointEvent::IssueReads { of: self.life() }));
                }
                break;
            }
            let largest = self.allowance.max_read_request.min(self.params.max_read_request);
            let next = read.left.min(largest);
            let has_room = self.buffered == 0 || self.buffered + next <= self.params.read_buffer;
            let Some(tag) = has_room.then(|| self.free_tags.pop_front()).flatten() else {
                self.starve(now, if self.free_tags.is_empty() { Lack::Tag } else { Lack::Buffer });
                break;
            };
            // A zero-length read is a request with all byte enables clear (a flush of earlier writes).
            let (address, length) =
                split_read(read.next, u64::from(read.left), largest).next().unwrap_or((read.next, 0));
            let dma = read.dma.as_ref().expect("a read that is issued has been asked for");
            let timeout = timeout_of(&self.timeouts, &self.params, dma.function);
            let deadline = timeout.map_or(Time::NEVER, |timeout| now + timeout);
            let request = MemoryRequest::for_bytes(read.requester, tag, address, length);
            let tlp =
                Tlp { common: common(dma.attributes, &self.allowance), kind: TlpKind::MemoryRead(request) };
            self.tags[usize::from(tag)] = Outstanding {
                read: Some(index),
                offset: dma.length - read.left,
                length,
                left: length,
                answered: false,
                largest: 0,
                deadline,
            };
            read.next = address + u64::from(length);
            read.left -= length;
            read.outstanding += 1;
            let end = read.end.expect("a read that is issued has a port");
            if read.left == 0 {
                self.to_issue.pop_front();
            }
            self.in_use += 1;
            self.buffered += length;
            self.next_issue = now + self.params.issue_interval;
            self.counters.read_requests += 1;
            self.counters.most_tags = self.counters.most_tags.max(self.in_use);
            self.fed(now);
            let packet = cx.wires.packets.encode(&tlp, &[]);
            cx.send(end, packet);
            self.check_timeouts_at(cx.scheduler, deadline);
        }
    }

    /// Takes the outcome of a finished read.
    #[inline]
    pub fn take_finished(&mut self, read: u32) -> Option<Finished> {
        let slot = &mut self.reads[read as usize];
        let token = slot.dma.take()?.token;
        if slot.forgotten {
            self.free_reads.push(read);
            return None;
        }
        Some(Finished {
            read,
            epoch: self.epoch,
            token,
            data: std::mem::take(&mut slot.data),
            failed: slot.failed,
        })
    }

    /// Recycles a finished read's index and buffer.
    #[inline]
    pub fn recycle(&mut self, finished: Finished) {
        // After a reset the index is no longer valid.
        if finished.epoch == self.epoch {
            self.reads[finished.read as usize].data = finished.data;
            self.free_reads.push(finished.read);
        }
    }
}
