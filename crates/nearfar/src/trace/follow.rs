//! Determines which packets, lines, frames and core activities belong to one network frame.
//!
//! As with an analyser, this is inferred from the bytes. A TLP whose data occur in a frame carries the frame; a read
//! belongs to the completion with its tag; a descriptor is data that contain a read's address. On a core, it takes
//! the activity at the time when the frame's first packet left, and the first activity after its last packet.

use std::collections::BTreeSet;

use hardware::link::{LinkId, Packet, Passed, Side};
use rustc_hash::{FxHashMap, FxHashSet};
use units::{Duration, Time};
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::Capture;
use super::timeline::Timeline;

/// Maximum time between a frame and its packets, before and after.
const REACH: Duration = Duration::from_us(200);
/// Maximum pause of a core within one piece of work.
const PAUSE: Duration = Duration::from_us(2);
/// Minimum number of matching bytes.
const WINDOW: usize = 16;
/// Maximum packet that a card loops internally: a segmented packet before segmentation, with headers.
const LONGEST: usize = (64 << 10) + 512;
/// Address range of interrupt messages (Intel SDM volume 3, 11.11: MSI addresses).
const INTERRUPTS: std::ops::Range<u64> = 0xfee0_0000..0xfef0_0000;

/// A frame on a cable and its slice.
pub struct FrameSlice {
    /// The frame without check sequence.
    pub bytes: Box<[u8]>,
    /// Start of the frame.
    pub at: Time,
    /// End of its last bit.
    pub until: Time,
    /// Index of its slice.
    pub slice: usize,
}

/// An activity of a core and its slice.
pub struct WorkSlice {
    /// Index of the host.
    pub host: usize,
    /// The core's number and the priority level.
    pub context: (u16, u8),
    /// Work of the network driver, or of mapping memory for it.
    pub is_driver: bool,
    /// Work of a program.
    pub is_user: bool,
    /// Start.
    pub from: Time,
    /// End.
    pub to: Time,
    /// Index of its slice.
    pub slice: usize,
}

/// A line in a write-combining buffer and its slice.
pub struct LineSlice {
    /// Indices of host and core.
    pub host: usize,
    /// Address of the line.
    pub line: u64,
    /// When its buffer was allocated.
    pub opened: Time,
    /// Index of its slice.
    pub slice: usize,
}

/// A TLP prepared for matching.
struct KnownTlp {
    tlp: Tlp,
    /// Index of its packet.
    index: usize,
    taken: bool,
}

/// Builds a story for each frame. Lookups go through indices, since a trace can be arbitrarily long.
pub struct Follower<'a> {
    capture: &'a Capture,
    /// The slice of each packet.
    slices: &'a [usize],
    /// The host of each link of the capture.
    hosts: &'a [usize],
    /// By host, in order of time.
    work: Vec<Vec<&'a WorkSlice>>,
    /// By host and address, in order of time.
    lines: FxHashMap<(usize, u64), Vec<&'a LineSlice>>,
    /// In order of time.
    known: Vec<KnownTlp>,
    index: Index,
    stays: Vec<Stay>,
}

/// Lookup tables of TLPs: indices into the known ones, in order of time.
#[derive(Default)]
struct Index {
    /// By the first bytes of their data, if distinctive, and by sender.
    data: FxHashMap<(u64, Side), Carriers>,
    /// Reads, and completions with data, by link, requester and tag.
    reads: FxHashMap<(LinkId, Bdf, u16), Vec<usize>>,
    completions: FxHashMap<(LinkId, Bdf, u16), Vec<usize>>,
    /// Completions by link and by each aligned word that is the address of a read.
    words: FxHashMap<(LinkId, u64), Vec<usize>>,
    /// Doorbell-sized writes of cores, by link.
    doorbells: FxHashMap<LinkId, Vec<usize>>,
    /// Writes of cores into a line, by link and line address.
    stores: FxHashMap<(LinkId, u64), Vec<usize>>,
    /// Interrupt messages, by link.
    interrupts: FxHashMap<LinkId, Vec<usize>>,
}

/// TLPs with the same leading data, in order of time.
#[derive(Default)]
struct Carriers {
    all: Vec<usize>,
    /// Number of leading ones already assigned to frames.
    taken: usize,
}

/// A frame's time inside a card, seen from outside: from its last byte on one side to its first on the other.
struct Stay {
    link: LinkId,
    from: Time,
    to: Time,
    flow: u64,
}

impl<'a> Follower<'a> {
    /// Prepares a capture.
    pub fn new(
        capture: &'a Capture,
        slices: &'a [usize],
        hosts: &'a [usize],
        work: &'a [WorkSlice],
        lines: &'a [LineSlice],
    ) -> Self {
        let parsed = |(index, passed): (usize, &Passed)| match &passed.packet {
            Packet::Tlp { bytes, .. } => {
                let (tlp, _) = Tlp::parse(bytes).ok()?;
                Some(KnownTlp { tlp, index, taken: false })
            }
            Packet::Dllp(_) => None,
        };
        let known: Vec<KnownTlp> = capture.packets.iter().enumerate().filter_map(parsed).collect();
        let mut by_host: Vec<Vec<&WorkSlice>> = Vec::new();
        for work in work {
            by_host.resize_with(by_host.len().max(work.host + 1), Vec::new);
            by_host[work.host].push(work);
        }
        by_host.iter_mut().for_each(|work| work.sort_by_key(|work| work.from));
        let mut by_line: FxHashMap<_, Vec<&LineSlice>> = FxHashMap::default();
        for line in lines {
            by_line.entry((line.host, line.line)).or_default().push(line);
        }
        by_line.values_mut().for_each(|lines| lines.sort_by_key(|line| line.opened));
        let mut follower = Self {
            capture,
            slices,
            hosts,
            work: by_host,
            lines: by_line,
            known,
            index: Index::default(),
            stays: Vec::new(),
        };
        follower.index = follower.indexed();
        follower
    }

    fn indexed(&self) -> Index {
        let mut index = Index::default();
        let read = |known: &KnownTlp| match &known.tlp.kind {
            TlpKind::MemoryRead(request) => Some(request.byte_range().0),
            _ => None,
        };
        let addresses: FxHashSet<u64> = self.known.iter().filter_map(read).collect();
        for (number, known) in self.known.iter().enumerate() {
            let (passed, payload) = (self.passed(number), self.payload(number));
            let (link, of) = (passed.link, (passed.link, known.tlp.requester(), known.tlp.tag()));
            for window in windows(payload) {
                let numbers = &mut index.data.entry((first_word(window), passed.from)).or_default().all;
                if numbers.last() != Some(&number) {
                    numbers.push(number);
                }
            }
            match &known.tlp.kind {
                TlpKind::MemoryRead(_) => index.reads.entry(of).or_default().push(number),
                TlpKind::CompletionData(_) => {
                    index.completions.entry(of).or_default().push(number);
                    let words = payload.chunks_exact(8).map(first_word);
                    for word in words.filter(|word| addresses.contains(word)) {
                        index.words.entry((link, word)).or_default().push(number);
                    }
                }
                TlpKind::MemoryWrite(request) if passed.from == Side::Upstream => {
                    index.stores.entry((link, request.address & !63)).or_default().push(number);
                    if payload.len() <= 8 {
                        index.doorbells.entry(link).or_default().push(number);
                    }
                }
                TlpKind::MemoryWrite(request) if INTERRUPTS.contains(&request.address) => {
                    index.interrupts.entry(link).or_default().push(number);
                }
                _ => {}
            }
        }
        index
    }

    /// Adds a story for each frame, in order of time.
    pub fn follow(&mut self, timeline: &mut Timeline, frames: &[FrameSlice]) {
        for frame in frames {
            let mut story = BTreeSet::from([frame.slice]);
            let sent = self.sender(&mut story, frame);
            let received = self.receiver(&mut story, frame);
            let flow = timeline.flow();
            let stays = [(sent, frame.at), (received, frame.until)];
            for (seen, on_cable) in stays {
                self.stays.extend(seen.map(|(link, at)| {
                    let (from, to) = (at.min(on_cable), at.max(on_cable));
                    Stay { link, from, to, flow }
                }));
            }
            for slice in story {
                timeline.slices[slice].flows.push(flow);
            }
        }
        self.inside(timeline);
        self.add_cards(timeline);
    }

    /// Adds tracks for the cards: each frame's stay goes on the first free one.
    fn add_cards(&mut self, timeline: &mut Timeline) {
        self.stays.sort_by_key(|stay| (stay.from, stay.flow));
        let mut free: Vec<(LinkId, Time, usize)> = Vec::new();
        for stay in self.stays.iter().filter(|stay| stay.from < stay.to) {
            let place = free.iter().position(|&(link, at, _)| link == stay.link && at <= stay.from);
            let place = place.unwrap_or_else(|| {
                let known = free.iter().filter(|(link, ..)| *link == stay.link).count();
                let link = self.capture.links.iter().find(|info| info.id == stay.link);
                let process = format!("card at {}", link.map_or("a link", |info| info.name.as_str()));
                let track = timeline.track(&process, &format!("frames {known}"));
                free.push((stay.link, Time::ZERO, track));
                free.len() - 1
            });
            free[place].1 = stay.to;
            let slice = timeline.slice(free[place].2, (stay.from, stay.to), "frame");
            timeline.slices[slice].flows.push(stay.flow);
        }
    }

    /// Adds a story for each frame that a card wrote to memory without a cable: it was looped internally.
    fn inside(&mut self, timeline: &mut Timeline) {
        let mut next = 0;
        while next < self.known.len() {
            let Some((frame, parts, after)) = self.written(next) else {
                next += 1;
                continue;
            };
            next = after;
            let mut story = BTreeSet::new();
            let Some((link, at)) = self.sender(&mut story, &frame) else { continue };
            story.extend(parts.iter().map(|&known| self.slice(known)));
            let last = parts[parts.len() - 1];
            self.arrival(&mut story, last);
            let flow = timeline.flow();
            self.stays.push(Stay { link, from: at, to: frame.at, flow });
            for slice in story {
                timeline.slices[slice].flows.push(flow);
            }
        }
    }

    /// Consecutive writes of a card from a packet on: the bytes, their packets, and the index that follows.
    fn written(&self, from: usize) -> Option<(FrameSlice, Vec<usize>, usize)> {
        let write = |known: usize| match &self.known[known].tlp.kind {
            TlpKind::MemoryWrite(request) if self.passed(known).from == Side::Downstream => {
                Some(request.byte_range())
            }
            _ => None,
        };
        let (mut end, length) = write(from)?;
        if self.known[from].taken || length < 2 * WINDOW as u32 {
            return None;
        }
        let (mut bytes, mut parts, mut next) = (Vec::new(), Vec::new(), from);
        while next < self.known.len() {
            let Some((address, length)) = write(next) else {
                next += 1;
                continue;
            };
            let is_far = |&first: &usize| self.passed(next).at > self.passed(first).at + REACH;
            if !parts.is_empty() && address != end
                || bytes.len() >= LONGEST
                || parts.first().is_some_and(is_far)
            {
                break;
            }
            bytes.extend_from_slice(self.payload(next));
            parts.push(next);
            end = address + u64::from(length);
            next += 1;
        }
        let (first, last) = (self.passed(parts[0]), self.passed(parts[parts.len() - 1]));
        let frame =
            FrameSlice { bytes: bytes.into(), at: first.at, until: last.until, slice: self.slice(parts[0]) };
        Some((frame, parts, next))
    }

    fn passed(&self, known: usize) -> &'a Passed {
        &self.capture.packets[self.known[known].index]
    }

    fn payload(&self, known: usize) -> &'a [u8] {
        match &self.passed(known).packet {
            Packet::Tlp { bytes, .. } => &bytes[self.known[known].tlp.header_len()..],
            Packet::Dllp(_) => &[],
        }
    }

    fn slice(&self, known: usize) -> usize {
        self.slices[self.known[known].index]
    }

    fn host(&self, known: usize) -> usize {
        let link = self.passed(known).link;
        let place = self.capture.links.iter().position(|info| info.id == link);
        place.and_then(|place| self.hosts.get(place).copied()).unwrap_or(0)
    }

    /// Unassigned TLPs from `side` in a time span that carry part of a frame.
    fn carriers(&mut self, frame: &FrameSlice, side: Side, (from, to): (Time, Time)) -> Vec<usize> {
        let mut candidates = BTreeSet::new();
        // Enough to cover the frame, from each start.
        let most = frame.bytes.len() / WINDOW + 2;
        let (all, packets) = (&self.known, &self.capture.packets);
        let at = |&known: &usize| packets[all[known].index].at;
        for part in frame.bytes.windows(8) {
            let Some(same) = self.index.data.get_mut(&(first_word(part), side)) else { continue };
            while same.all.get(same.taken).is_some_and(|&known| all[known].taken) {
                same.taken += 1;
            }
            let left = &same.all[same.taken..];
            let left = &left[left.partition_point(|known| at(known) < from)..];
            let in_time = left.iter().take_while(|known| at(known) <= to);
            candidates.extend(in_time.filter(|&&known| !all[known].taken).take(most));
        }
        let mut found = Vec::new();
        let mut bytes = 0;
        for known in candidates {
            if bytes < frame.bytes.len() && carries(&frame.bytes, self.payload(known)) {
                self.known[known].taken = true;
                bytes += self.payload(known).len();
                found.push(known);
            }
        }
        found
    }

    /// The last of some time-ordered TLPs before a time, if within reach.
    fn last_before(&self, numbers: Option<&Vec<usize>>, time: Time) -> Option<usize> {
        let numbers = numbers?;
        let behind = numbers.partition_point(|&known| self.passed(known).at < time);
        let last = *numbers[..behind].last()?;
        (self.passed(last).at + REACH >= time).then_some(last)
    }

    /// Link, requester and tag.
    fn transaction(&self, known: usize) -> (LinkId, Bdf, u16) {
        let tlp = &self.known[known].tlp;
        (self.passed(known).link, tlp.requester(), tlp.tag())
    }

    /// The read that a completion answers.
    fn read_of(&self, completion: usize) -> Option<usize> {
        let reads = self.index.reads.get(&self.transaction(completion));
        self.last_before(reads, self.passed(completion).at)
    }

    fn completions_of(&self, read: usize) -> Vec<usize> {
        let Some(numbers) = self.index.completions.get(&self.transaction(read)) else { return Vec::new() };
        let mut found = Vec::new();
        for &known in &numbers[numbers.partition_point(|&known| known < read)..] {
            found.push(known);
            if matches!(&self.known[known].tlp.kind, TlpKind::CompletionData(c) if c.is_last()) {
                break;
            }
        }
        found
    }

    /// Lines that a core wrote after a frame's first one, up to the frame's length.
    fn lines_behind(&self, first: usize, bytes: usize) -> Vec<usize> {
        let TlpKind::MemoryWrite(request) = &self.known[first].tlp.kind else { return Vec::new() };
        let (begin, link) = (request.address, self.passed(first).link);
        let end = begin + bytes as u64;
        let reach = self.passed(first).at + REACH;
        let mut found = Vec::new();
        for line in (begin & !63..end).step_by(64) {
            let Some(numbers) = self.index.stores.get(&(link, line)) else { continue };
            let later = &numbers[numbers.partition_point(|&known| known <= first)..];
            let in_time = later.iter().take_while(|&&known| self.passed(known).at <= reach);
            found.extend(in_time.filter(|&&known| match &self.known[known].tlp.kind {
                TlpKind::MemoryWrite(request) => {
                    !self.known[known].taken && (begin + 1..end).contains(&request.address)
                }
                _ => false,
            }));
        }
        found.sort_unstable();
        found
    }

    /// The write-combining buffer of a write.
    fn line_of(&self, write: usize) -> Option<usize> {
        let TlpKind::MemoryWrite(request) = &self.known[write].tlp.kind else { return None };
        let (host, at) = (self.host(write), self.passed(write).at);
        let lines = self.lines.get(&(host, request.address & !63))?;
        let last = lines[..lines.partition_point(|line| line.opened <= at)].last()?;
        (last.opened + REACH >= at).then_some(last.slice)
    }

    /// The completion with the descriptor that contains a read's address.
    fn descriptor_of(&self, read: usize) -> Option<usize> {
        let TlpKind::MemoryRead(request) = &self.known[read].tlp.kind else { return None };
        let passed = self.passed(read);
        self.last_before(self.index.words.get(&(passed.link, request.byte_range().0)), passed.at)
    }

    /// Adds the cause of the frame. Returns the link and time at which its last byte went to the card.
    fn sender(&mut self, story: &mut BTreeSet<usize>, frame: &FrameSlice) -> Option<(LinkId, Time)> {
        let reach = Time::from_ps(frame.at.as_ps().saturating_sub(REACH.as_ps()));
        let carriers = self.carriers(frame, Side::Upstream, (reach, frame.until));
        let &first = carriers.first()?;
        let is_completion =
            |known: &&usize| matches!(self.known[**known].tlp.kind, TlpKind::CompletionData(_));
        let completions = carriers.iter().filter(is_completion);
        let reads: Vec<usize> = completions.filter_map(|&known| self.read_of(known)).collect();
        let rest = match self.known[first].tlp.kind {
            TlpKind::MemoryWrite(_) => self.lines_behind(first, frame.bytes.len()),
            _ => reads.iter().flat_map(|&read| self.completions_of(read)).collect(),
        };
        for &known in carriers.iter().chain(&rest) {
            self.known[known].taken = true;
            story.insert(self.slice(known));
            story.extend(self.line_of(known));
        }
        let descriptors: Vec<usize> = reads.iter().filter_map(|&read| self.descriptor_of(read)).collect();
        let fetches: Vec<usize> = descriptors.iter().filter_map(|&known| self.read_of(known)).collect();
        let all = reads.iter().chain(&descriptors).chain(&fetches);
        story.extend(all.clone().map(|&known| self.slice(known)));
        // With descriptors, a doorbell precedes; with lines, the lines themselves are the start.
        let earliest =
            all.chain([&first]).copied().min_by_key(|&known| self.passed(known).at).unwrap_or(first);
        let begin = match self.known[first].tlp.kind {
            // A partial line is as short as a doorbell.
            TlpKind::MemoryWrite(_) => first,
            _ => {
                let passed = self.passed(earliest);
                self.last_before(self.index.doorbells.get(&passed.link), passed.at).unwrap_or(earliest)
            }
        };
        story.insert(self.slice(begin));
        story.extend(self.work_before(self.host(begin), self.passed(begin).at));
        let last = carriers.iter().chain(&rest).map(|&known| self.passed(known).until).max()?;
        Some((self.passed(first).link, last))
    }

    /// Adds the effect of the frame. Returns the link and time at which its first byte left the card.
    fn receiver(&mut self, story: &mut BTreeSet<usize>, frame: &FrameSlice) -> Option<(LinkId, Time)> {
        let carriers = self.carriers(frame, Side::Downstream, (frame.at, frame.until + REACH));
        let &last = carriers.last()?;
        story.extend(carriers.iter().map(|&known| self.slice(known)));
        self.arrival(story, last);
        let first = carriers.iter().map(|&known| self.passed(known).at).min()?;
        Some((self.passed(last).link, first))
    }

    /// Adds what follows a card's last write of a frame: interrupt and core activities.
    fn arrival(&self, story: &mut BTreeSet<usize>, last: usize) {
        let (link, host, end) = (self.passed(last).link, self.host(last), self.passed(last).until);
        let interrupt = self.index.interrupts.get(&link).and_then(|numbers| {
            let first = numbers.partition_point(|&known| self.passed(known).at < end);
            numbers.get(first).copied().filter(|&known| self.passed(known).at <= end + REACH)
        });
        story.extend(interrupt.map(|known| self.slice(known)));
        let from = interrupt.map_or(end, |known| self.passed(known).until);
        story.extend(self.work_after(host, from));
    }

    /// The driver activity that a packet comes from, and the preceding activities on that core without a pause, back
    /// to the program's own or to driver work on an earlier packet.
    fn work_before(&self, host: usize, at: Time) -> Vec<usize> {
        let Some(all) = self.work.get(host) else { return Vec::new() };
        let all = &all[..all.partition_point(|work| work.from <= at)];
        let in_reach = all.iter().rev().take_while(|work| work.from + REACH >= at);
        let Some(driver) = in_reach.clone().find(|work| work.is_driver) else { return Vec::new() };
        let mut chain = vec![driver.slice];
        let (mut begin, mut is_above) = (driver.from, false);
        for work in in_reach.filter(|work| work.context == driver.context && work.from < driver.from) {
            if work.to + PAUSE < begin || (work.is_driver && is_above) {
                break;
            }
            chain.push(work.slice);
            begin = work.from;
            is_above = !work.is_driver;
            if work.is_user {
                break;
            }
        }
        chain
    }

    /// The first activity on each level after a time, up to the program's own.
    fn work_after(&self, host: usize, at: Time) -> Vec<usize> {
        let mut chain = Vec::new();
        let mut from = at;
        let Some(all) = self.work.get(host) else { return chain };
        for wanted in [2, 1, 0] {
            let later = &all[all.partition_point(|work| work.from < from)..];
            let fits = |work: &&&WorkSlice| work.context.1 == wanted && (wanted > 0 || work.is_user);
            if let Some(work) = later.iter().take_while(|work| work.from <= at + REACH).find(fits) {
                chain.push(work.slice);
                from = work.from;
            }
        }
        chain
    }
}

/// Samples of a TLP's data to look up in a frame: at the start, or after a header of eight bytes. Samples that are
/// not distinctive are skipped.
fn windows(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let window = |at: usize| data.get(at..(at + WINDOW).min(data.len())).filter(|window| window.len() >= 8);
    // Runs of equal bytes are not distinctive.
    let says = |window: &&[u8]| window.windows(2).filter(|pair| pair[0] != pair[1]).count() >= 4;
    [0, 8, WINDOW].into_iter().filter_map(window).filter(says)
}

/// The first eight bytes as a number.
fn first_word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Whether the data occur in a frame.
fn carries(frame: &[u8], data: &[u8]) -> bool {
    windows(data).any(|window| frame.windows(window.len()).any(|part| part == window))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_found_in_a_frame_behind_a_header_or_not() {
        let frame: Vec<u8> = (0..100u8).map(|n| n.wrapping_mul(37)).collect();
        assert!(carries(&frame, &frame[20..84]));
        let with_header = [&[0xaa; 8][..], &frame[..56]].concat();
        assert!(carries(&frame, &with_header));
        assert!(!carries(&frame, &[0; 64]));
        assert!(!carries(&frame, &[1, 2, 3, 4]), "too short to say");
    }
}
