//! Misses of a socket: the home node, its DRAM, and snoops of the other sockets.

use super::access::{NodeId, Source};
use super::counters::Cause;
use super::params::{RemoteHit, SnoopMode};
use super::socket::Held;
use super::system::MemorySystem;
use units::Time;

/// What the requester wants to do with the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Intent {
    /// Read it once: no line state changes.
    Observe,
    /// Keep it for reading: owners lose write permission.
    Share,
    /// Write it: no other cache keeps it.
    Own,
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
    /// Whether it differs from DRAM; the requester is then responsible for write-back.
    pub(super) dirty: bool,
    /// Whether DRAM was read.
    pub(super) memory_read: bool,
}

/// Combined snoop responses of other sockets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snooped {
    /// When the last response was at the home node.
    pub(super) at: Time,
    /// The socket that can supply the data, and when; a socket with a dirty copy if there is one.
    pub(super) holder: Option<(usize, Time)>,
    /// Whether another socket still has the line.
    pub(super) shared: bool,
    /// Whether another socket had it dirty.
    pub(super) dirty: bool,
}

impl MemorySystem {
    /// Fetches a line that socket `to` does not have.
    ///
    /// `at` is when the miss was detected there. Time and traffic are only modelled if `TIMED`.
    pub(super) fn fetch<const TIMED: bool>(
        &mut self,
        at: Time,
        to: NodeId,
        home: NodeId,
        line: u64,
        cause: Cause,
        intent: Intent,
    ) -> Fetched {
        let remote = to != home;
        let mut home_at = at;
        if TIMED {
            if remote {
                home_at = self.ask_home(at, to, home, cause);
            }
            home_at = self.homes[home.index()].admit(home_at, line);
        }
        let snooped = self.snoop::<TIMED>(home_at, to, home, line, intent);
        let from_cache = snooped.holder.is_some() && self.params.remote_hit == RemoteHit::FromCache;
        let memory_read = !from_cache;
        let source = if snooped.dirty || from_cache {
            Source::RemoteLlc
        } else if remote {
            Source::RemoteDram
        } else {
            Source::Dram
        };
        // A line that is only observed remains the holder's responsibility.
        let dirty = snooped.dirty && intent == Intent::Own;
        let mut fetched = Fetched { at, source, shared: snooped.shared, dirty, memory_read };
        if !TIMED {
            self.keep_directory::<false>(at, to, home, line, intent);
            return fetched;
        }
        let home_node = home.index();
        fetched.at = match snooped.holder {
            Some((holder, ready)) if from_cache => {
                let way = (NodeId(holder as u8), to);
                self.net.line(ready, way, cause, &mut self.counters)
            }
            holder => {
                let memory = self.dram[home_node].read(home_at, line);
                self.counters.nodes[home_node].dram_read.add(cause, super::LINE);
                let mut ready = memory.max(snooped.at);
                if let Some((holder, found)) = holder.filter(|_| snooped.dirty) {
                    // The newer data goes to the home node, which responds.
                    let way = (NodeId(holder as u8), home);
                    ready = ready.max(self.net.line(found, way, cause, &mut self.counters));
                }
                self.homes[home_node].work_on(line, home_at, ready);
                self.keep_directory::<true>(memory, to, home, line, intent);
                if remote { self.net.line(ready, (home, to), cause, &mut self.counters) } else { ready }
            }
        };
        fetched
    }

    /// Invalidates a line in all sockets except `from`. Returns when `from` may write it.
    ///
    /// A remote `home` is asked in any case.
    pub(super) fn take_ownership<const TIMED: bool>(
        &mut self,
        at: Time,
        from: NodeId,
        home: NodeId,
        line: u64,
    ) -> Time {
        let remote = from != home;
        let home_at = if TIMED && remote { self.ask_home(at, from, home, Cause::Snoop) } else { at };
        let snooped = self.snoop::<TIMED>(home_at, from, home, line, Intent::Own);
        let mut at = snooped.at;
        if TIMED
            && remote
            && self.has_directory()
            && !self.sockets[home.index()].directory.may_be_changed(line)
        {
            // The directory bits have to be read; they are written with the line's data.
            at = at.max(self.dram[home.index()].read(home_at, line));
            self.counters.nodes[home.index()].dram_read.add(Cause::Directory, super::LINE);
        }
        self.keep_directory::<TIMED>(at, from, home, line, Intent::Own);
        if TIMED && remote {
            at = self.net.message(at, (home, from), Cause::Snoop, &mut self.counters);
        }
        at
    }

    /// Whether home nodes keep a directory.
    pub(super) fn has_directory(&self) -> bool {
        self.params.interconnect.snoop == SnoopMode::Directory
    }

    /// Writes the directory state of a line that socket `to` obtained at `at`, if it has changed.
    ///
    /// A line that another socket may write is marked, even if it was only read, since the only reader gets it
    /// exclusively. The mark is cleared when the home's own socket has snooped all others, which also writes the whole
    /// line.
    fn keep_directory<const TIMED: bool>(
        &mut self,
        at: Time,
        to: NodeId,
        home: NodeId,
        line: u64,
        intent: Intent,
    ) {
        if !self.has_directory() || intent == Intent::Observe {
            return;
        }
        if self.sockets[home.index()].directory.set_changed(line, to != home) && TIMED {
            self.counters.nodes[home.index()].dram_written.add(Cause::Directory, super::LINE);
            self.dram[home.index()].write(at, line);
        }
    }

    /// Sends a request to the home node. Returns when its processing starts there.
    pub(super) fn ask_home(&mut self, at: Time, from: NodeId, home: NodeId, cause: Cause) -> Time {
        self.net.message(at, (from, home), cause, &mut self.counters) + self.params.interconnect.home_agent
    }

    /// Snoops all sockets except `to` for a line on behalf of its home node.
    pub(super) fn snoop<const TIMED: bool>(
        &mut self,
        home_at: Time,
        to: NodeId,
        home: NodeId,
        line: u64,
        intent: Intent,
    ) -> Snooped {
        let mut result = Snooped { at: home_at, holder: None, shared: false, dirty: false };
        let all = TIMED
            && match self.params.interconnect.snoop {
                SnoopMode::Broadcast => true,
                SnoopMode::Directory => self.sockets[home.index()].directory.may_be_changed(line),
            };
        for n in 0..self.sockets.len() {
            if n == to.index() {
                continue;
            }
            let held = self.sockets[n].locate(line);
            if !held.any() && !all {
                continue;
            }
            let mut found = home_at;
            if TIMED {
                let node = NodeId(n as u8);
                found = self.net.message(found, (home, node), Cause::Snoop, &mut self.counters)
                    + self.params.sockets[n].llc.snoop_lookup;
                if self.sockets[n].owned(held, None) {
                    found += self.params.sockets[n].llc.core_snoop;
                }
                let answered = self.net.message(found, (node, home), Cause::Snoop, &mut self.counters);
                result.at = result.at.max(answered);
            }
            if held.any() {
                let dirty = self.apply::<TIMED>(found, n, home, line, held, intent);
                result.dirty |= dirty;
                result.shared |= intent != Intent::Own;
                if dirty || result.holder.is_none() {
                    result.holder = Some((n, found));
                }
            }
        }
        result
    }

    /// Changes the state of a line in a snooped socket. Returns whether it was dirty there.
    fn apply<const TIMED: bool>(
        &mut self,
        at: Time,
        n: usize,
        home: NodeId,
        line: u64,
        held: Held,
        intent: Intent,
    ) -> bool {
        match intent {
            Intent::Observe => self.sockets[n].dirty(line, held),
            Intent::Own => self.sockets[n].invalidate(line, held),
            Intent::Share => {
                let held = self.sockets[n].downgrade(line, held);
                let dirty = self.sockets[n].dirty(line, held);
                self.sockets[n].set_exclusive(held, false);
                if dirty {
                    // There is no owned state, so a line that becomes shared is written back.
                    self.sockets[n].cleaned(held);
                    self.write_back::<TIMED>(at, n, home, line);
                }
                self.settle::<TIMED>(at, n, None);
                dirty
            }
        }
    }

    /// Writes a dirty line of socket `from` back to its home's DRAM. Returns when it has been accepted there.
    pub(super) fn write_back<const TIMED: bool>(
        &mut self,
        at: Time,
        from: usize,
        home: NodeId,
        line: u64,
    ) -> Time {
        #[cfg(test)]
        self.log.push(line);
        if self.has_directory() {
            // The write of the line includes its directory state.
            self.sockets[home.index()].directory.set_changed(line, false);
        }
        if !TIMED {
            return at;
        }
        let way = (NodeId(from as u8), home);
        let at = self.net.line_or_nothing(at, way, Cause::WriteBack, &mut self.counters);
        self.counters.written_back += 1;
        self.counters.nodes[home.index()].dram_written.add(Cause::WriteBack, super::LINE);
        self.dram[home.index()].write(at, line)
    }
}
