//! Write-combining buffers, shared with the lines that the core fetches.

use engine::Rng;
use units::Time;

use super::fills::{FillBuffers, MOST};
use super::pieces::{LINE, next_piece};
use super::{EvictionOrder, StoreParams};

/// Line fills that are kept: a core that computes ahead of the clock reserves some that start later.
const MOST_FILLS: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BufferState {
    /// Combining stores.
    Open,
    /// Has bytes that the root complex has not accepted.
    Leaving,
    /// All bytes are in flight; free at that time.
    Gone(Time),
}

/// A line being combined.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// Address of the line.
    pub line: u64,
    /// Root port that it goes to.
    pub port: u8,
    pub bytes: [u8; LINE as usize],
    /// Bytes stored and not sent.
    pub mask: u64,
    pub state: BufferState,
    /// Holds a direct store, and takes no other store.
    pub direct: bool,
    /// Position in the order in which buffers were evicted.
    pub order: u64,
    /// Number of lines evicted later that have left before it.
    passed: usize,
    /// Times of its first store and of its first bytes leaving, for observers.
    pub opened: Time,
    pub left: Option<Time>,
}

pub(super) struct Buffers {
    fill_buffers: usize,
    combining_buffers: usize,
    held: Vec<Buffer>,
    /// Start and end of each line fill.
    fills: Vec<(Time, Time)>,
    order: EvictionOrder,
    rng: Rng,
    leaving: u64,
    /// Highest `order` of the buffers that have left.
    last_gone: u64,
}

impl Buffers {
    pub fn new(params: &StoreParams, rng: Rng) -> Self {
        let fill_buffers = params.fill_buffers.max(1);
        Self {
            fill_buffers: usize::from(fill_buffers),
            combining_buffers: usize::from(params.combining_buffers.clamp(1, fill_buffers)),
            order: params.eviction_order,
            held: Vec::new(),
            fills: Vec::new(),
            rng,
            leaving: 0,
            last_gone: 0,
        }
    }

    /// Number of buffers combining or not accepted yet.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Records a line fill from `begin` to `end`.
    pub fn line_fill(&mut self, begin: Time, end: Time) {
        if self.fills.len() == MOST_FILLS
            && let Some(first) = (0..MOST_FILLS).min_by_key(|&n| self.fills[n].1)
        {
            self.fills.swap_remove(first);
        }
        self.fills.push((begin, end));
    }

    /// Frees buffers accepted, and fills ended, by `now`.
    pub fn settle(&mut self, now: Time) {
        self.held.retain(|buffer| !matches!(buffer.state, BufferState::Gone(at) if at <= now));
        self.fills.retain(|&(_, end)| end > now);
    }

    /// Known times at which buffers become free.
    fn known_ends(&self) -> impl Iterator<Item = Time> + '_ {
        let gone = self.held.iter().filter_map(|buffer| match buffer.state {
            BufferState::Gone(at) => Some(at),
            _ => None,
        });
        gone.chain(self.fills.iter().map(|fill| fill.1))
    }

    /// When the next of them becomes free.
    pub fn next_free(&self) -> Option<Time> {
        self.known_ends().min()
    }

    /// Line fills in flight at a time.
    fn filling(&self, at: Time) -> usize {
        self.fills.iter().filter(|&&(begin, end)| begin <= at && at < end).count()
    }

    /// When each buffer that is not combining or waiting to leave is free for misses at `when`; `None` if there is
    /// none.
    pub fn for_fills(&self, when: Time) -> Option<FillBuffers> {
        let stays = |buffer: &&Buffer| !matches!(buffer.state, BufferState::Gone(_));
        let staying = self.held.iter().filter(stays).count();
        let most = self.fill_buffers.checked_sub(staying).filter(|&most| most > 0)?;
        let mut ends = [when; MOST + MOST_FILLS];
        let mut taken = 0;
        for (place, end) in ends.iter_mut().zip(self.known_ends().filter(|&end| end > when)) {
            *place = end;
            taken += 1;
        }
        // Use the last ones: lines fetched one after the other used the same buffer.
        ends[..taken].sort_unstable_by(|a, b| b.cmp(a));
        Some(FillBuffers::new(ends.into_iter().take(most)))
    }

    /// The buffer that holds a line, in any state.
    pub fn find(&mut self, line: u64) -> Option<&mut Buffer> {
        self.held.iter_mut().find(|buffer| buffer.line == line)
    }

    /// Allocates a free buffer for a line; `None` if there is none.
    pub fn allocate(&mut self, line: u64, port: u8, opened: Time) -> Option<&mut Buffer> {
        let taken = self.held.len();
        if taken >= self.combining_buffers || taken + self.filling(opened) >= self.fill_buffers {
            return None;
        }
        let bytes = [0; LINE as usize];
        self.held.push(Buffer {
            line,
            port,
            bytes,
            mask: 0,
            state: BufferState::Open,
            direct: false,
            order: 0,
            passed: 0,
            opened,
            left: None,
        });
        self.held.last_mut()
    }

    /// Evicts a line if it is being combined. Returns whether it was.
    pub fn evict(&mut self, line: u64) -> bool {
        let next = self.leaving + 1;
        let open = self.held.iter_mut().find(|b| b.line == line && b.state == BufferState::Open);
        let Some(buffer) = open else { return false };
        buffer.state = BufferState::Leaving;
        buffer.order = next;
        self.leaving = next;
        true
    }

    /// Evicts all lines. Returns how many.
    pub fn evict_all(&mut self) -> u64 {
        let mut count = 0;
        for buffer in self.held.iter_mut().filter(|buffer| buffer.state == BufferState::Open) {
            self.leaving += 1;
            count += 1;
            buffer.state = BufferState::Leaving;
            buffer.order = self.leaving;
        }
        count
    }

    /// Evicts some line to make room, unless one is leaving already. Returns whether it did.
    pub fn press(&mut self) -> bool {
        if self.held.iter().any(|buffer| buffer.state != BufferState::Open) || self.held.is_empty() {
            return false;
        }
        let victim = self.rng.below(self.held.len() as u64) as usize;
        let line = self.held[victim].line;
        self.evict(line)
    }

    /// Whether lines are waiting to leave.
    pub fn any_leaving(&self) -> bool {
        self.held.iter().any(|buffer| buffer.state == BufferState::Leaving)
    }

    /// Ports through which lines are waiting to leave.
    pub fn leaving_ports(&self) -> impl Iterator<Item = u8> + '_ {
        self.held.iter().filter(|buffer| buffer.state == BufferState::Leaving).map(|buffer| buffer.port)
    }

    /// Selects one of the lines waiting to leave whose port has room. If the order is free, the line evicted first is
    /// selected once it has been passed by as many as there are buffers; no other can have been passed by more.
    pub fn choose(&mut self, mut has_room: impl FnMut(u8) -> bool) -> Option<usize> {
        let mut candidates = 0;
        let (mut oldest, mut drawn) = (None::<usize>, None);
        for (index, buffer) in self.held.iter().enumerate() {
            if buffer.state != BufferState::Leaving || !has_room(buffer.port) {
                continue;
            }
            candidates += 1;
            if oldest.is_none_or(|other| buffer.order < self.held[other].order) {
                oldest = Some(index);
            }
            // Each of n is kept with probability 1/n.
            if self.order == EvictionOrder::Any && (candidates == 1 || self.rng.below(candidates) == 0) {
                drawn = Some(index);
            }
        }
        oldest.filter(|&index| self.held[index].passed >= self.combining_buffers).or(drawn).or(oldest)
    }

    /// Takes the next bytes of a leaving line: the line, and a mask of the bytes.
    pub fn take_piece(&mut self, index: usize, chunk: u32, now: Time) -> (Buffer, u64) {
        let buffer = &mut self.held[index];
        buffer.left.get_or_insert(now);
        let piece = next_piece(buffer.mask, chunk);
        let line = buffer.clone();
        buffer.mask &= !piece;
        (line, piece)
    }

    /// The bytes taken of a line are accepted at `accepted`. If they were its last, which is returned, the buffer is
    /// then free.
    pub fn accept_if_last(&mut self, index: usize, accepted: Time) -> bool {
        let buffer = &mut self.held[index];
        let last = buffer.mask == 0;
        if last {
            buffer.state = BufferState::Gone(accepted);
        }
        last
    }

    /// Records that the last bytes of a line have left. Returns whether a line evicted later left before it.
    pub fn left(&mut self, order: u64) -> bool {
        let passes = |buffer: &&mut Buffer| buffer.state == BufferState::Leaving && buffer.order < order;
        self.held.iter_mut().filter(passes).for_each(|buffer| buffer.passed += 1);
        let overtaken = order < self.last_gone;
        self.last_gone = self.last_gone.max(order);
        overtaken
    }
}
