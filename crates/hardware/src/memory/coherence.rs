//! What sockets ask of each other and of the memory's home nodes: fetching lines, ownership, snoops, writes to memory.
//!
//! A line's home node orders its requests. Time and traffic are only modelled if `TIMED`.

use super::LINE_SHIFT;
use super::access::{Coverage, Intent, Line, NodeId, Source};
use super::cache::{Probe, Slot};
use super::counters::{CacheCounters, CacheUser, Cause, MemoryBusy, MemoryCounters};
use super::dram::Dram;
use super::home::{Directory, Home};
use super::interconnect::Interconnect;
use super::params::{LlcParams, MemoryParams, RemoteHit};
use super::physical::MemoryMap;
use super::socket::{Held, Socket};
use engine::Seed;
use units::{Bytes, Duration, HostPhysical, Time};

/// Cache state without its host: set up once, it can initialise any number of hosts. Lines in the caches of a host,
/// with their states and order of use.
#[derive(Clone, Debug)]
pub struct CacheState {
    sockets: Vec<Socket>,
    /// By node: directory of its memory.
    directories: Vec<Directory>,
}

impl CacheState {
    pub(super) fn empty(params: &MemoryParams) -> Self {
        let numbered = params.sockets.iter().enumerate();
        Self {
            sockets: numbered.map(|(n, s)| Socket::new(s, params.seed ^ (n as u64 + 1) << 32)).collect(),
            directories: vec![Directory::default(); params.sockets.len()],
        }
    }
}

/// A line that arrived at the requesting socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fetched {
    /// When it arrived.
    pub(super) at: Time,
    /// Its origin.
    pub(super) source: Source,
    /// Whether another socket still has it.
    pub(super) shared: bool,
    /// Whether DRAM was read.
    pub(super) memory_read: bool,
}

/// A line that was written to memory past the caches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streamed {
    /// When the data was at the home node.
    pub(super) there: Time,
    /// When all other sockets had responded.
    pub(super) snooped: Time,
    /// When DRAM accepted it.
    pub(super) accepted: Time,
}

/// Combined snoop responses of other sockets.
#[derive(Clone, Copy, Debug)]
struct Snooped {
    /// When the last response was at the home node.
    at: Time,
    /// The socket that can supply the data, and when; a socket with a dirty copy if there is one.
    holder: Option<(NodeId, Time)>,
    /// Whether another socket still has the line.
    shared: bool,
    /// Whether another socket had it dirty.
    dirty: bool,
}

/// The sockets' caches, the homes of memory, and the interconnect between them.
#[derive(Debug)]
pub(super) struct Coherence {
    map: MemoryMap,
    sockets: Vec<Socket>,
    homes: Vec<Home>,
    net: Interconnect,
    /// Latencies by socket.
    llc: Vec<LlcParams>,
    home_agent: Duration,
    remote_hit: RemoteHit,
    /// By socket and user.
    uses: Vec<[CacheCounters; 3]>,
    /// Dirty lines written back to DRAM, for any reason.
    written_back: u64,
    /// Lines that cores and their prefetchers got from another socket's caches.
    from_other_caches: u64,
    /// All lines written back.
    #[cfg(test)]
    pub(super) log: Vec<u64>,
}

impl Coherence {
    pub(super) fn new(params: &MemoryParams, caches: CacheState, map: MemoryMap) -> Self {
        let (seed, interconnect) = (Seed::new(params.seed), &params.interconnect);
        let home = |(n, directory): (usize, _)| {
            let dram = Dram::new(&params.sockets[n].dram, seed.component(&format!("dram{n}")));
            Home::new(interconnect, dram, directory)
        };
        Self {
            map,
            sockets: caches.sockets,
            homes: caches.directories.into_iter().enumerate().map(home).collect(),
            net: Interconnect::new(interconnect, params.sockets.len()),
            llc: params.sockets.iter().map(|s| s.llc).collect(),
            home_agent: interconnect.home_agent,
            remote_hit: params.remote_hit,
            uses: vec![Default::default(); params.sockets.len()],
            written_back: 0,
            from_other_caches: 0,
            #[cfg(test)]
            log: Vec::new(),
        }
    }

    pub(super) fn into_cache_state(self) -> CacheState {
        let directories = self.homes.into_iter().map(Home::into_directory).collect();
        CacheState { sockets: self.sockets, directories }
    }

    /// Empties all caches without write-back.
    pub(super) fn clear(&mut self) {
        self.sockets.iter_mut().for_each(Socket::clear);
        self.homes.iter_mut().for_each(Home::clear);
    }

    /// Discards state that only matters before `clock`.
    pub(super) fn pass(&mut self, clock: Time) {
        self.homes.iter_mut().for_each(|home| home.pass(clock));
        self.net.pass(clock);
    }

    /// How long DRAM and links were busy up to `now`.
    pub(super) fn busy_into(&self, busy: &mut MemoryBusy, now: Time) {
        busy.dram = self.homes.iter().map(|home| home.busy(now)).collect();
        busy.links = self.net.busy(now).collect();
    }

    /// Adds what it has counted.
    pub(super) fn count_into(&self, counters: &mut MemoryCounters) {
        for ((node, home), uses) in counters.nodes.iter_mut().zip(&self.homes).zip(&self.uses) {
            (node.dram_read, node.dram_written) = home.traffic();
            node.llc = *uses;
        }
        (counters.links, counters.sent) = (self.net.links(), self.net.sent());
        counters.written_back = self.written_back;
        counters.from_other_caches = self.from_other_caches;
    }

    /// A line, by number; `None` where no memory is installed.
    #[inline]
    pub(super) fn line(&self, number: u64) -> Option<Line> {
        self.map.node_of(HostPhysical::new(number << LINE_SHIFT)).map(|home| Line { number, home })
    }

    /// Line states in the caches of a socket. Lines that leave them have to be [settled](Self::settle).
    #[inline]
    pub(super) fn socket(&mut self, node: NodeId) -> &mut Socket {
        &mut self.sockets[node.index()]
    }

    /// Reads the host memory that accesses to `lines` will need: see [`Socket::warm`].
    pub(super) fn warm(&self, node: NodeId, core: Option<usize>, lines: std::ops::Range<u64>) -> u32 {
        let socket = &self.sockets[node.index()];
        lines.fold(0, |read, line| read ^ socket.warm(core, line))
    }

    /// Counts a hit or miss in the LLC of a socket.
    #[inline]
    pub(super) fn count<const TIMED: bool>(&mut self, node: NodeId, user: CacheUser, hit: bool) {
        if TIMED {
            let uses = &mut self.uses[node.index()][user as usize];
            uses.hits += u64::from(hit);
            uses.misses += u64::from(!hit);
        }
    }

    /// Allocates a line that `absent` did not find in the LLC of a socket, in one of `ways`.
    #[inline]
    pub(super) fn allocate<const TIMED: bool>(
        &mut self,
        node: NodeId,
        user: CacheUser,
        (line, absent): (Line, Probe),
        ways: u32,
        state: u32,
    ) -> Slot {
        self.uses[node.index()][user as usize].allocations += u64::from(TIMED);
        self.sockets[node.index()].insert_at(line.number, absent, ways, state)
    }

    /// Writes back the lines evicted from the LLC of a socket, on account of `user`. Returns when the last one was
    /// accepted, if any was dirty.
    #[inline(always)]
    pub(super) fn settle<const TIMED: bool>(
        &mut self,
        at: Time,
        node: NodeId,
        user: CacheUser,
    ) -> Option<Time> {
        let evicted = self.sockets[node.index()].count_evicted()?;
        self.settle_all::<TIMED>(at, node, user, evicted)
    }

    fn settle_all<const TIMED: bool>(
        &mut self,
        at: Time,
        node: NodeId,
        user: CacheUser,
        (lines, dirty): (u64, u64),
    ) -> Option<Time> {
        if TIMED {
            let uses = &mut self.uses[node.index()][user as usize];
            uses.evictions += lines;
            uses.dirty_evictions += dirty;
        }
        let mut accepted = None;
        while let Some(line) = self.sockets[node.index()].next_evicted() {
            let line = self.line(line).expect("cached lines are installed");
            accepted = accepted.max(Some(self.write_back::<TIMED>(at, node, line)));
        }
        accepted
    }

    /// Fetches a line that socket `to` does not have. `at` is when the miss was detected there.
    pub(super) fn fetch<const TIMED: bool>(
        &mut self,
        at: Time,
        to: NodeId,
        line: Line,
        cause: Cause,
        intent: Intent,
    ) -> Fetched {
        let (remote, h) = (to != line.home, line.home.index());
        let mut home_at = self.ask_home::<TIMED>(at, to, line.home, cause);
        if TIMED {
            home_at = self.homes[h].admit(home_at, line.number);
        }
        // The directory's state comes with the line.
        let is_told = TIMED && self.homes[h].reads_before_asking(line.number);
        let told = is_told.then(|| self.homes[h].read(home_at, line.number, cause));
        let snooped = self.snoop::<TIMED>(told.unwrap_or(home_at), to, line, intent);
        let from_cache = snooped.holder.is_some() && self.remote_hit == RemoteHit::FromCache;
        let source = if snooped.dirty || from_cache { Source::RemoteLlc } else { line.memory_from(to) };
        let mut fetched = Fetched { at, source, shared: snooped.shared, memory_read: !from_cache };
        if !TIMED {
            self.homes[h].keep_directory::<false>(at, line.number, remote, intent);
            return fetched;
        }
        fetched.at = match snooped.holder {
            Some((holder, ready)) if from_cache => {
                self.from_other_caches += u64::from(matches!(cause, Cause::Core | Cause::Prefetch));
                self.net.line(ready, (holder, to), cause)
            }
            holder => {
                let own = holder.filter(|(node, _)| snooped.dirty && *node == line.home);
                let memory = match (told, own) {
                    (Some(told), _) => told,
                    (None, Some((_, found))) if self.homes[h].looks_up_first() => {
                        fetched.memory_read = false;
                        self.from_other_caches += u64::from(matches!(cause, Cause::Core | Cause::Prefetch));
                        found
                    }
                    _ => self.homes[h].read(home_at, line.number, cause),
                };
                let mut ready = memory.max(snooped.at);
                if let Some((holder, found)) = holder.filter(|_| snooped.dirty) {
                    // The newer data goes to the home node, which responds.
                    ready = ready.max(self.net.line(found, (holder, line.home), cause));
                }
                self.homes[h].work_on(line.number, home_at, ready);
                self.homes[h].keep_directory::<true>(memory, line.number, remote, intent);
                if remote { self.net.line(ready, (line.home, to), cause) } else { ready }
            }
        };
        fetched
    }

    /// Invalidates a line in all sockets except `from`. Returns when `from` may write it.
    ///
    /// A remote `home` is asked in any case.
    pub(super) fn take_ownership<const TIMED: bool>(&mut self, at: Time, from: NodeId, line: Line) -> Time {
        let (remote, h) = (from != line.home, line.home.index());
        let home_at = self.ask_home::<TIMED>(at, from, line.home, Cause::Snoop);
        let mut at = self.snoop::<TIMED>(home_at, from, line, Intent::Own).at;
        if TIMED && remote && !self.homes[h].may_be_changed(line.number) {
            // The directory bits have to be read; they are written with the line's data.
            at = at.max(self.homes[h].read_directory(home_at, line.number));
        }
        self.homes[h].keep_directory::<TIMED>(at, line.number, remote, Intent::Own);
        self.answer::<TIMED>(at, line.home, from, Cause::Snoop)
    }

    /// A core's store of a full line past the caches: no cache keeps a copy.
    pub(super) fn stream<const TIMED: bool>(&mut self, at: Time, from: NodeId, line: Line) -> Streamed {
        self.invalidate(from, line.number);
        let there = if TIMED { self.net.line(at, (from, line.home), Cause::Core) } else { at };
        let snooped = self.snoop::<TIMED>(there, from, line, Intent::Own).at;
        let accepted = self.homes[line.home.index()].write::<TIMED>(snooped, line.number, Cause::Core);
        Streamed { there, snooped, accepted }
    }

    /// Writes a line back if it is dirty anywhere, and invalidates it everywhere. Returns when socket `from` knows.
    pub(super) fn flush<const TIMED: bool>(&mut self, at: Time, from: NodeId, line: Line) -> Time {
        let was_dirty = self.invalidate(from, line.number);
        let asked = self.ask_home::<TIMED>(at, from, line.home, Cause::Snoop);
        let snooped = self.snoop::<TIMED>(asked, from, line, Intent::Own);
        let mut ready = snooped.at;
        if let Some(holder) = snooped.dirty_holder().or(was_dirty.then_some(from)) {
            ready = self.write_back::<TIMED>(ready, holder, line);
        }
        self.answer::<TIMED>(ready, line.home, from, Cause::Snoop)
    }

    /// A device's write of a line or part of it to memory; no cache keeps a copy. Returns when DRAM has accepted it,
    /// and whether the rest was read from there.
    pub(super) fn write_memory<const TIMED: bool>(
        &mut self,
        mut at: Time,
        from: NodeId,
        line: Line,
        coverage: Coverage,
    ) -> (Time, bool) {
        let socket = &mut self.sockets[from.index()];
        let held = socket.locate(line.number);
        if TIMED && socket.owned(held, None) {
            at += self.llc[from.index()].core_snoop;
        }
        let was_dirty = socket.invalidate(line.number, held);
        // The data serves as the request: the home node gets no separate one.
        let there = self.line_to_home::<TIMED>(at, from, line.home);
        let snooped = self.snoop::<TIMED>(there, from, line, Intent::Own);
        let (mut at, mut is_merged) = (snooped.at, false);
        if coverage == Coverage::Partial {
            // DRAM writes whole lines: the rest is merged from the dirty copy or from DRAM.
            match snooped.dirty_holder().or(was_dirty.then_some(from)) {
                Some(holder) => at = self.write_back::<TIMED>(at, holder, line),
                None if TIMED => {
                    at = self.homes[line.home.index()].read(at, line.number, Cause::Dma);
                    is_merged = true;
                }
                None => {}
            }
        }
        (self.homes[line.home.index()].write::<TIMED>(at, line.number, Cause::Dma), is_merged)
    }

    /// Grants a device of socket `from` ownership of a line or part of it that it will [write](Self::write_granted) to
    /// another node's memory. The home takes `grant` for that. Returns when `from` knows, and whether the rest was read
    /// from DRAM.
    ///
    /// The home node grants ownership without reading its directory: its I/O directory cache tracks the line until the
    /// data arrives with the directory's state. Only if no entry is free, the directory is read first, and written.
    pub(super) fn grant<const TIMED: bool>(
        &mut self,
        at: Time,
        from: NodeId,
        line: Line,
        coverage: Coverage,
        grant: Duration,
    ) -> (Time, bool) {
        let home_at = self.ask_home::<TIMED>(at, from, line.home, Cause::Dma);
        let mut at = self.snoop::<TIMED>(home_at, from, line, Intent::Own).at;
        if !TIMED {
            return (at, false);
        }
        let is_merged = coverage == Coverage::Partial;
        let memory = &mut self.homes[line.home.index()];
        if is_merged {
            at = at.max(memory.read(home_at, line.number, Cause::Dma));
        } else if !memory.tracks_io_write(home_at) {
            at = at.max(memory.read(home_at, line.number, Cause::Directory));
            memory.write::<TIMED>(at, line.number, Cause::Directory);
        }
        (self.net.message(at + grant, (line.home, from), Cause::Dma), is_merged)
    }

    /// Writes a line that a device of socket `from` has been granted at `granted`, and of which `from` keeps a copy, to
    /// another node's memory. Returns when `from` knows that DRAM has accepted it.
    pub(super) fn write_granted<const TIMED: bool>(
        &mut self,
        granted: Time,
        from: NodeId,
        line: Line,
    ) -> Time {
        let memory = &mut self.homes[line.home.index()];
        memory.set_changed(line.number, true);
        if !TIMED {
            return granted;
        }
        let arrives = self.net.line(granted, (from, line.home), Cause::Dma);
        let accepted = memory.write_granted(granted, arrives, line.number);
        self.net.message(accepted, (line.home, from), Cause::Dma)
    }

    /// Sends a device's line to its home node, where it serves as a request. Returns when its processing starts there.
    pub(super) fn line_to_home<const TIMED: bool>(&mut self, at: Time, from: NodeId, home: NodeId) -> Time {
        match TIMED && from != home {
            true => self.net.line(at, (from, home), Cause::Dma) + self.home_agent,
            false => at,
        }
    }

    /// Sends a request to the home node. Returns when its processing starts there.
    fn ask_home<const TIMED: bool>(&mut self, at: Time, from: NodeId, home: NodeId, cause: Cause) -> Time {
        match TIMED && from != home {
            true => self.net.message(at, (from, home), cause) + self.home_agent,
            false => at,
        }
    }

    /// Answers a request without data. Returns when socket `to` knows.
    pub(super) fn answer<const TIMED: bool>(
        &mut self,
        at: Time,
        home: NodeId,
        to: NodeId,
        cause: Cause,
    ) -> Time {
        if TIMED && home != to { self.net.message(at, (home, to), cause) } else { at }
    }

    /// Sends `bytes` and a header between nodes. Returns when they arrive.
    pub(super) fn send(&mut self, at: Time, way: (NodeId, NodeId), cause: Cause, bytes: Bytes) -> Time {
        self.net.bytes(at, way, cause, bytes)
    }

    /// Latency of a message without data over idle links.
    pub(super) fn latency(&self, from: NodeId, to: NodeId) -> Duration {
        self.net.latency(from, to)
    }

    /// Invalidates a line in a socket. Returns whether it was dirty.
    fn invalidate(&mut self, node: NodeId, line: u64) -> bool {
        let socket = &mut self.sockets[node.index()];
        let held = socket.locate(line);
        socket.invalidate(line, held)
    }

    /// Snoops all sockets except `to` for a line on behalf of its home node.
    fn snoop<const TIMED: bool>(&mut self, home_at: Time, to: NodeId, line: Line, intent: Intent) -> Snooped {
        let mut result = Snooped { at: home_at, holder: None, shared: false, dirty: false };
        let all = TIMED && self.homes[line.home.index()].may_be_changed(line.number);
        for n in 0..self.sockets.len() {
            if n == to.index() || !self.sockets[n].has_cores() {
                continue;
            }
            let held = self.sockets[n].locate(line.number);
            if !held.any() && !all {
                continue;
            }
            let (node, mut found) = (NodeId(n as u8), home_at);
            if TIMED {
                found = self.net.message(found, (line.home, node), Cause::Snoop) + self.llc[n].snoop_lookup;
                if self.sockets[n].owned(held, None) {
                    found += self.llc[n].core_snoop;
                }
                let answered = self.net.message(found, (node, line.home), Cause::Snoop);
                result.at = result.at.max(answered);
            }
            if held.any() {
                let dirty = self.apply::<TIMED>(found, node, line, held, intent);
                result.dirty |= dirty;
                result.shared |= intent != Intent::Own;
                if dirty || result.holder.is_none() {
                    result.holder = Some((node, found));
                }
            }
        }
        result
    }

    /// Changes the state of a line in a snooped socket. Returns whether it was dirty there.
    fn apply<const TIMED: bool>(
        &mut self,
        at: Time,
        node: NodeId,
        line: Line,
        held: Held,
        intent: Intent,
    ) -> bool {
        let socket = &mut self.sockets[node.index()];
        match intent {
            Intent::Observe => socket.dirty(line.number, held),
            Intent::Own => socket.invalidate(line.number, held),
            Intent::Share => {
                let held = socket.downgrade(line.number, held);
                let dirty = socket.dirty(line.number, held);
                socket.set_exclusive(held, false);
                if dirty {
                    // There is no owned state, so a line that becomes shared is written back.
                    socket.cleaned(held);
                    self.write_back::<TIMED>(at, node, line);
                }
                self.settle::<TIMED>(at, node, CacheUser::Core);
                dirty
            }
        }
    }

    /// Writes a dirty line of socket `from` back to its home's DRAM. Returns when it has been accepted there.
    fn write_back<const TIMED: bool>(&mut self, at: Time, from: NodeId, line: Line) -> Time {
        #[cfg(test)]
        self.log.push(line.number);
        // The write of the line includes its directory state.
        self.homes[line.home.index()].set_changed(line.number, false);
        if !TIMED {
            return at;
        }
        self.written_back += 1;
        let at = self.net.line(at, (from, line.home), Cause::WriteBack);
        self.homes[line.home.index()].write::<true>(at, line.number, Cause::WriteBack)
    }

    /// Checks the coherence invariants over all caches. Slow: looks at every line.
    ///
    /// # Errors
    /// Names the first line that violates an invariant, and how.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut dirty: Vec<u64> = Vec::new();
        for (n, socket) in self.sockets.iter().enumerate() {
            socket.check().map_err(|e| format!("node {n}: {e}"))?;
            for line in socket.exclusive_lines() {
                let mut others = self.sockets.iter().enumerate().filter(|(other, _)| *other != n);
                if others.any(|(_, s)| s.locate(line).any()) {
                    return Err(format!("node {n} has line {line:#x} for itself, yet so has another"));
                }
            }
            dirty.extend(socket.dirty_lines());
        }
        dirty.sort_unstable();
        match dirty.windows(2).find(|p| p[0] == p[1]) {
            Some(pair) => Err(format!("line {:#x} is dirty in two sockets", pair[0])),
            None => Ok(()),
        }
    }

    #[cfg(test)]
    pub(super) fn sockets(&self) -> &[Socket] {
        &self.sockets
    }
}

impl Snooped {
    /// The socket that had the line dirty.
    fn dirty_holder(&self) -> Option<NodeId> {
        self.holder.filter(|_| self.dirty).map(|(holder, _)| holder)
    }
}
