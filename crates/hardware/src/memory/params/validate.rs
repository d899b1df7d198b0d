//! Validation of memory parameters.

use thiserror::Error;

use super::{
    CacheGeometry, DramParams, InterconnectParams, MemoryParams, ReplacementPolicy, SetIndex, SocketParams,
};
use crate::memory::LINE;
use crate::memory::cache::TAG_BITS;

/// An invalid parameter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {problem}")]
pub struct ParamError {
    /// Path of the parameter.
    pub place: String,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

impl CacheGeometry {
    /// Number of sets.
    pub const fn sets(&self) -> u32 {
        (self.size.get() / LINE / self.ways as u64) as u32
    }

    fn check(&self, place: &str) -> Result<(), ParamError> {
        ensure(place, (1..=32).contains(&self.ways), || format!("{} ways; 1 to 32 are allowed", self.ways))?;
        let set = LINE * u64::from(self.ways);
        ensure(place, self.size.get() > 0 && self.size.get() % set == 0, || {
            format!("{} is not a multiple of a set's {set} B", self.size)
        })?;
        ensure(place, self.size.get() / set <= 1 << 22, || format!("{} has too many sets", self.size))?;
        if let SetIndex::Sliced { slices, .. } = self.index {
            let whole = (1..=16).contains(&slices) && self.sets() % u32::from(slices) == 0;
            ensure(place, whole && (self.sets() / u32::from(slices)).is_power_of_two(), || {
                format!("{slices} slices; 1 to 16, each with a power of two of sets, are allowed")
            })?;
        }
        ensure(place, self.replacement != ReplacementPolicy::TreePlru || self.ways.is_power_of_two(), || {
            format!("tree PLRU needs a power of two ways, not {}", self.ways)
        })
    }
}

fn ensure(place: &str, good: bool, problem: impl FnOnce() -> String) -> Result<(), ParamError> {
    if good { Ok(()) } else { Err(ParamError { place: place.into(), problem: problem() }) }
}

impl MemoryParams {
    /// Checks that a memory system can be built.
    ///
    /// # Errors
    /// Names the first invalid parameter.
    pub fn validate(&self) -> Result<(), ParamError> {
        ensure("sockets", (1..=8).contains(&self.sockets.len()), || {
            format!("{} sockets; 1 to 8 are allowed", self.sockets.len())
        })?;
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (n, socket) in self.sockets.iter().enumerate() {
            socket.check(&format!("sockets[{n}]"))?;
            ranges.extend(socket.memory.iter().map(|r| (r.base.get(), r.size.get())));
        }
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            ensure("sockets[].memory", pair[0].0 + pair[0].1 <= pair[1].0, || {
                format!("the range at {:#x} overlaps the one at {:#x}", pair[1].0, pair[0].0)
            })?;
        }
        let top = ranges.iter().map(|r| (r.0 + r.1) / LINE).max().unwrap_or(0);
        for (n, socket) in self.sockets.iter().enumerate() {
            for (name, cache) in socket.caches() {
                let sets = match cache.index {
                    SetIndex::Sliced { slices, .. } => cache.sets() / u32::from(slices),
                    SetIndex::Plain | SetIndex::Hashed => cache.sets(),
                };
                ensure(&format!("sockets[{n}].{name}"), top / u64::from(sets) < 1 << TAG_BITS, || {
                    format!("{sets} sets are too few to tell the lines of all memory apart")
                })?;
            }
        }
        self.interconnect.check(self.sockets.len())
    }
}

impl SocketParams {
    /// All caches, by name.
    fn caches(&self) -> impl Iterator<Item = (&'static str, &CacheGeometry)> {
        let filter = self.llc.snoop_filter.as_ref().map(|filter| ("llc.snoop_filter", filter));
        [("private.l1", &self.private.l1), ("private.l2", &self.private.l2), ("llc", &self.llc.geometry)]
            .into_iter()
            .chain(filter)
    }

    fn check(&self, place: &str) -> Result<(), ParamError> {
        ensure(place, self.cores <= 128, || format!("{} cores; at most 128 are allowed", self.cores))?;
        if let Some(die) = &self.core_die {
            let moves = die.reads.bytes_per_s() > 0 && die.writes.bytes_per_s() > 0;
            ensure(&format!("{place}.core_die"), die.cores > 0 && moves, || {
                "a die has cores, and a link that carries something".into()
            })?;
        }
        for (name, cache) in self.caches() {
            cache.check(&format!("{place}.{name}"))?;
        }
        let all = u32::MAX >> (32 - u32::from(self.llc.geometry.ways));
        ensure(&format!("{place}.llc.ddio.ways"), self.llc.ddio.ways & !all == 0, || {
            format!("{:#x} names ways that a {}-way cache lacks", self.llc.ddio.ways, self.llc.geometry.ways)
        })?;
        self.dram.check(&format!("{place}.dram"))?;
        for range in &self.memory {
            let aligned = (range.base.get() | range.size.get()) % LINE == 0;
            let fits = range.base.get().checked_add(range.size.get()).is_some_and(|end| end <= 1 << 39);
            ensure(&format!("{place}.memory"), aligned && fits && range.size.get() > 0, || {
                format!("{} at {}: whole lines of 64 B below 512 GiB are allowed", range.size, range.base)
            })?;
        }
        Ok(())
    }
}

impl DramParams {
    fn check(&self, place: &str) -> Result<(), ParamError> {
        ensure(place, self.channels > 0 && self.ranks > 0, || "needs a channel and a rank".into())?;
        ensure(place, self.interleave.get() >= LINE && self.interleave.get() % LINE == 0, || {
            format!("an interleave of {} is not a multiple of 64 B", self.interleave)
        })?;
        ensure(place, self.channel_bandwidth.bytes_per_s() > 0, || "needs a bandwidth".into())?;
        ensure(place, self.write_queue > 0, || "a write queue of 0 accepts no write".into())?;
        ensure(place, (1..=self.write_queue).contains(&self.write_batch), || {
            format!("{} writes do not leave a queue of {} at once", self.write_batch, self.write_queue)
        })?;
        if let Some(r) = &self.refresh {
            ensure(&format!("{place}.refresh"), r.duration < r.interval, || {
                format!("a refresh of {} does not end within its interval of {}", r.duration, r.interval)
            })?;
        }
        ensure(place, self.banks.is_power_of_two(), || format!("{} banks are no power of two", self.banks))?;
        if let Some(r) = &self.row_buffer {
            ensure(&format!("{place}.row_buffer"), r.row.get() >= LINE, || {
                "needs rows of at least 64 B".into()
            })?;
            ensure(&format!("{place}.row_buffer"), r.activate <= self.access, || {
                format!("a hit cannot save {} of {}", r.activate, self.access)
            })?;
        }
        Ok(())
    }
}

impl InterconnectParams {
    fn check(&self, sockets: usize) -> Result<(), ParamError> {
        for (i, link) in self.links.iter().enumerate() {
            let place = format!("interconnect.links[{i}]");
            let (a, b) = (usize::from(link.between.0), usize::from(link.between.1));
            ensure(&place, a != b && a < sockets && b < sockets, || {
                format!("connects {a} and {b}, but there are nodes 0 to {}", sockets - 1)
            })?;
            ensure(&place, link.bandwidth.bytes_per_s() > 0, || "needs a bandwidth".into())?;
        }
        let mut reached = 1u32;
        for _ in 0..sockets {
            for link in &self.links {
                let (a, b) = (1 << link.between.0, 1 << link.between.1);
                if reached & (a | b) != 0 {
                    reached |= a | b;
                }
            }
        }
        ensure("interconnect.links", reached == u32::MAX >> (32 - sockets), || {
            "some sockets cannot be reached from node 0".into()
        })
    }
}

#[cfg(test)]
mod tests {
    use units::{ByteRate, Bytes, Duration, HostPhysical};

    use super::*;
    use crate::memory::params::{InterconnectLink, MemoryRange};

    #[test]
    fn impossible_machines_are_named() {
        let good = MemoryParams::example();
        assert_eq!(good.validate(), Ok(()));
        let wrong = |change: fn(&mut MemoryParams)| {
            let mut params = MemoryParams::example();
            change(&mut params);
            params.validate().unwrap_err().to_string()
        };
        assert!(wrong(|p| p.interconnect.links.clear()).contains("reached"));
        assert!(wrong(|p| p.sockets[1].llc.ddio.ways = 1 << 16).contains("sockets[1].llc.ddio.ways"));
        assert!(wrong(|p| p.sockets[1].cores = 129).contains("at most 128"));
        assert!(wrong(|p| p.sockets[0].llc.geometry.ways = 33).contains("1 to 32"));
        assert!(wrong(|p| p.sockets[0].llc.geometry.size = Bytes::new(1000)).contains("multiple"));
        assert!(wrong(|p| p.sockets[1].memory = p.sockets[0].memory.clone()).contains("overlaps"));
        assert!(wrong(|p| p.sockets.truncate(1)).contains("nodes 0 to 0"));
    }

    #[test]
    fn values_are_taken_up_to_their_limits() {
        use crate::memory::params::{RefreshParams, RowBufferParams, SliceFold};
        let check = |change: &dyn Fn(&mut MemoryParams)| {
            let mut params = MemoryParams::example();
            change(&mut params);
            params.validate().map_err(|error| error.to_string())
        };
        let (one, none) = (Duration::from_ns(1), Duration::ZERO);
        let llc = |size: u64, ways: u8, index: SetIndex, replacement| {
            let geometry = CacheGeometry { size: Bytes::new(size), ways, index, replacement };
            move |p: &mut MemoryParams| {
                (p.sockets[0].llc.geometry, p.sockets[0].llc.ddio.ways) = (geometry, 0)
            }
        };
        let (plain, lru) = (SetIndex::Plain, ReplacementPolicy::Lru);
        let sliced = |slices, sets: u64| {
            llc(64 * 16 * sets, 16, SetIndex::Sliced { slices, fold: SliceFold::Wrap }, lru)
        };
        let dram = |change: &'static dyn Fn(&mut DramParams)| {
            move |p: &mut MemoryParams| change(&mut p.sockets[0].dram)
        };
        let memory = |base, size| {
            let range = MemoryRange { base: HostPhysical::new(base), size: Bytes::new(size) };
            move |p: &mut MemoryParams| p.sockets[1].memory = vec![range]
        };
        let refresh = |duration| {
            let refresh = RefreshParams { interval: Duration::from_ns(2), duration, staggered: false };
            move |p: &mut MemoryParams| p.sockets[0].dram.refresh = Some(refresh)
        };
        let rows = |row, activate| {
            let rows = RowBufferParams { row: Bytes::new(row), activate, precharge: none, idle: none };
            move |p: &mut MemoryParams| {
                p.sockets[0].dram.access = Duration::from_ns(1);
                p.sockets[0].dram.row_buffer = Some(rows);
            }
        };
        let link = |between| move |p: &mut MemoryParams| p.interconnect.links[0].between = between;
        let mib = 1 << 20;
        type Change<'a> = &'a dyn Fn(&mut MemoryParams);
        let cases: [(Change<'_>, &str); 43] = [
            (&llc(16 * mib, 16, plain, lru), ""),
            (&llc(0, 16, plain, lru), "multiple"),
            (&llc(16 * mib, 0, plain, lru), "0 ways"),
            (&llc(64 << 22, 1, plain, lru), ""),
            (&llc(64 * ((1 << 22) + 1), 1, plain, lru), "too many sets"),
            (&llc(15 * mib, 15, plain, ReplacementPolicy::TreePlru), "power of two ways"),
            (&llc(16 * mib, 16, plain, ReplacementPolicy::TreePlru), ""),
            (&llc(15 * mib, 15, plain, lru), ""),
            (&sliced(16, 16 << 12), ""),
            (&sliced(17, 17 << 12), "17 slices"),
            (&sliced(0, 1 << 12), "0 slices"),
            (&sliced(3, 3 << 12), ""),
            (&sliced(3, 1 << 14), "3 slices"),
            (&sliced(2, 6 << 12), "2 slices"),
            (&dram(&|d| (d.channels, d.ranks) = (1, 1)), ""),
            (&dram(&|d| d.channels = 0), "channel"),
            (&dram(&|d| d.ranks = 0), "rank"),
            (&dram(&|d| d.interleave = Bytes::new(64)), ""),
            (&dram(&|d| d.interleave = Bytes::new(0)), "interleave"),
            (&dram(&|d| d.interleave = Bytes::new(96)), "interleave"),
            (&dram(&|d| d.channel_bandwidth = ByteRate::from_bytes_per_s(0)), "bandwidth"),
            (&dram(&|d| (d.write_queue, d.write_batch) = (0, 0)), "accepts no write"),
            (&dram(&|d| (d.write_queue, d.write_batch) = (4, 4)), ""),
            (&dram(&|d| (d.write_queue, d.write_batch) = (4, 5)), "at once"),
            (&dram(&|d| (d.write_queue, d.write_batch) = (4, 0)), "at once"),
            (&dram(&|d| d.banks = 12), "power of two"),
            (&refresh(one), ""),
            (&refresh(Duration::from_ns(2)), "does not end"),
            (&rows(64, one), ""),
            (&rows(63, one), "at least 64 B"),
            (&rows(64, Duration::from_ps(1_001)), "cannot save"),
            (&memory((1 << 39) - 8192, 4096), ""),
            (&memory((1 << 39) - 4096, 4096), "too few"),
            (&memory((1 << 39) - 4096, 8192), "below 512 GiB"),
            (&memory(!63, 64), "below 512 GiB"),
            (&memory(8 << 30, 0), "whole lines"),
            (&memory(8 << 30, 96), "whole lines"),
            (&memory((8 << 30) + 32, 4096), "whole lines"),
            (&memory((8 << 30) + 32, 4096 + 32), "whole lines"),
            (&link((0, 0)), "connects 0 and 0"),
            (&link((0, 2)), "nodes 0 to 1"),
            (&link((2, 1)), "nodes 0 to 1"),
            (&|p| p.interconnect.links[0].bandwidth = ByteRate::from_bytes_per_s(0), "bandwidth"),
        ];
        for (n, (change, expected)) in cases.into_iter().enumerate() {
            match check(change) {
                Ok(()) => assert_eq!(expected, "", "case {n}"),
                Err(error) => assert!(!expected.is_empty() && error.contains(expected), "case {n}: {error}"),
            }
        }
    }

    #[test]
    fn every_socket_has_to_be_reached() {
        let chain = |links: &[(u8, u8)]| {
            let mut params = MemoryParams::example();
            let link = params.interconnect.links[0];
            for n in 2..4 {
                let mut socket = params.sockets[1].clone();
                socket.memory[0].base = HostPhysical::new(n << 36);
                params.sockets.push(socket);
            }
            params.interconnect.links =
                links.iter().map(|&between| InterconnectLink { between, ..link }).collect();
            params.validate().is_ok()
        };
        assert!(chain(&[(0, 1), (1, 2), (2, 3)]) && chain(&[(3, 2), (2, 1), (1, 0)]));
        assert!(chain(&[(0, 3), (3, 1), (0, 2)]));
        assert!(!chain(&[(1, 2), (2, 3), (3, 1)]) && !chain(&[(0, 1), (2, 3)]) && !chain(&[(0, 1), (1, 2)]));
    }
}
