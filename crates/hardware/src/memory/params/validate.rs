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
        ensure(place, (1..=64).contains(&self.cores), || {
            format!("{} cores; 1 to 64 are allowed", self.cores)
        })?;
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
    use units::Bytes;

    use super::*;

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
        assert!(wrong(|p| p.sockets[0].llc.geometry.ways = 33).contains("1 to 32"));
        assert!(wrong(|p| p.sockets[0].llc.geometry.size = Bytes::new(1000)).contains("multiple"));
        assert!(wrong(|p| p.sockets[1].memory = p.sockets[0].memory.clone()).contains("overlaps"));
        assert!(wrong(|p| p.sockets.truncate(1)).contains("nodes 0 to 0"));
    }
}
