//! Tags of a port, and the outstanding requests that use them.

use std::ops::Range;

use platform::device::Dma;
use platform::mover::Answered;
use units::Time;
use wire::pcie::Bdf;
use wire::pcie::tlp::{CompletionHeader, CompletionStatus};

use crate::table::{Queue, Table};

/// What a request waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lack {
    Tag,
    Buffer,
}

/// A non-posted request with a tag.
#[derive(Clone, Copy)]
pub(super) struct TaggedRead {
    /// The read that it belongs to.
    pub read: u32,
    /// Offset of the request's bytes in the read's data.
    pub offset: u32,
    /// Bytes requested.
    pub length: u32,
    /// Bytes outstanding.
    pub left: u32,
    /// No more completions will come: after an error or the last byte, or the completion of a flush read, which has no
    /// bytes.
    pub answered: bool,
    /// Largest completion so far, in bytes.
    pub largest: u32,
    /// Completion timeout.
    pub deadline: Time,
}

impl TaggedRead {
    /// Whether a completion is the next one of this request, sent by `requester` for `dma` (base spec 2.3.2).
    #[inline(always)]
    pub fn is_answered_by(&self, requester: Bdf, dma: &Dma, header: &CompletionHeader) -> bool {
        if header.requester != requester || header.status != CompletionStatus::Successful {
            return header.requester == requester;
        }
        // A flush read starts at its doubleword, and counts as one byte.
        let first = if dma.length == 0 { dma.address.get() & !3 } else { dma.address.get() };
        let lower_address = (first + u64::from(self.place())) as u8 & 0x7f;
        header.lower_address == lower_address && u32::from(header.byte_count) == self.left.max(1)
    }

    /// Offset of the next outstanding byte in the read's data.
    #[inline(always)]
    pub fn place(&self) -> u32 {
        self.offset + self.length - self.left
    }

    /// The request as reported once it is complete.
    #[inline(always)]
    pub fn as_answered(&self) -> Answered {
        Answered { offset: self.offset, length: self.length, largest: self.largest }
    }
}

/// Tags of a port, with the space for the data that they bring.
#[derive(Default)]
pub(super) struct Tags {
    /// By tag; `None` if it is free.
    requests: Table<Option<TaggedRead>>,
    free: Queue,
    /// Tags usable under the host's settings.
    usable: Range<u16>,
    in_use: u16,
    /// Bytes requested and outstanding.
    buffered: u32,
}

impl Tags {
    /// Sets which tags can be used; outstanding requests keep theirs.
    pub fn allow(&mut self, usable: Range<u16>) {
        while self.requests.len() < usize::from(usable.end) {
            self.requests.add(None);
        }
        if usable != self.usable || self.free.is_empty() {
            self.free = Queue::default();
            for tag in usable.clone().map(u32::from) {
                if self.requests[tag].is_none() {
                    self.requests.append(&mut self.free, tag);
                }
            }
        }
        self.usable = usable;
    }

    /// Number of usable tags.
    pub fn usable(&self) -> u16 {
        self.usable.end.saturating_sub(self.usable.start)
    }

    /// Number of tags in use.
    pub fn in_use(&self) -> u16 {
        self.in_use
    }

    /// Whether no tag is free.
    #[inline(always)]
    pub fn are_used_up(&self) -> bool {
        self.free.is_empty()
    }

    /// Takes a tag, of which there is one, for a request of `length` bytes, if `buffer` bytes are room for the data. A
    /// single request may be larger than the buffer.
    #[inline(always)]
    pub fn take(&mut self, length: u32, buffer: u32) -> Option<u16> {
        let has_room = self.buffered == 0 || self.buffered + length <= buffer;
        if !has_room {
            return None;
        }
        self.requests.pop(&mut self.free).map(|tag| tag as u16)
    }

    /// Assigns a tag that has been taken.
    #[inline(always)]
    pub fn assign(&mut self, tag: u16, request: TaggedRead) {
        self.in_use += 1;
        self.buffered += request.length;
        self.requests[tag.into()] = Some(request);
    }

    /// The request with a tag, if completions may still come for it.
    #[inline(always)]
    pub fn outstanding(&mut self, tag: u16) -> Option<&mut TaggedRead> {
        self.requests.get_mut(tag.into())?.as_mut().filter(|request| !request.answered)
    }

    /// All tags with requests for which completions may still come.
    pub fn all_outstanding(&mut self) -> impl Iterator<Item = (u16, &mut TaggedRead)> {
        self.requests.iter_mut().filter_map(|(tag, request)| {
            Some((tag as u16, request.as_mut().filter(|request| !request.answered)?))
        })
    }

    /// Frees a tag.
    #[inline(always)]
    pub fn free(&mut self, tag: u16) {
        let request = self.requests[tag.into()].take().expect("a tag in use has a request");
        self.buffered -= request.length;
        self.in_use -= 1;
        // The host may have reduced the number of tags meanwhile.
        if self.usable.contains(&tag) {
            self.requests.append(&mut self.free, tag.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(length: u32) -> TaggedRead {
        TaggedRead {
            read: 0,
            offset: 0,
            length,
            left: length,
            answered: false,
            largest: 0,
            deadline: Time::ZERO,
        }
    }

    #[test]
    fn tags_and_room_for_data_are_taken_and_come_back() {
        let mut tags = Tags::default();
        assert_eq!((tags.usable(), tags.are_used_up()), (0, true));
        tags.allow(0..2);
        assert_eq!((tags.usable(), tags.are_used_up(), tags.in_use()), (2, false, 0));
        // One may be larger than all room; others have to fit.
        let take = |tags: &mut Tags, length, buffer| {
            tags.take(length, buffer).inspect(|&tag| tags.assign(tag, read(length)))
        };
        assert_eq!(take(&mut tags, 100, 10), Some(0));
        assert_eq!((take(&mut tags, 1, 100), take(&mut tags, 1, 101)), (None, Some(1)));
        assert_eq!((tags.are_used_up(), tags.in_use()), (true, 2));
        assert!(tags.outstanding(0).is_some_and(|read| read.length == 100) && tags.outstanding(2).is_none());
        tags.outstanding(1).unwrap().answered = true;
        assert!(tags.outstanding(1).is_none());
        assert_eq!(tags.all_outstanding().map(|(tag, _)| tag).collect::<Vec<_>>(), [0]);
        tags.free(0);
        assert_eq!((take(&mut tags, 50, 50), take(&mut tags, 50, 51)), (None, Some(0)));
        // Ten-bit tags, which differ from all others; those in use keep theirs until they are free.
        tags.allow(256..258);
        assert_eq!((tags.usable(), tags.in_use()), (2, 2));
        tags.free(0);
        tags.free(1);
        assert_eq!([0; 3].map(|_| take(&mut tags, 8, 100)), [Some(256), Some(257), None]);
        assert_eq!(tags.in_use(), 2);
    }
}
