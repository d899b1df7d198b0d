//! Lines that earlier tests left in the cache of the card's socket.
//!
//! The helper thrashes its own socket only. On another socket, lines written by the card stay until the card writes
//! enough others, which takes a test with a large window, or until the helper takes them away by writing them.
//! Measured with remote memory (s0-s1-s1): a cold window of 8 KiB is found in the cache because the previous test
//! wrote it, and all later cold windows find those 8 KiB, until the card thrashes the cache.

use devices::dma_engine::Addresses;
use hardware::memory::LINE;
use results::pciebench::{Cache, Run};
use rustc_hash::FxHashSet;
use units::HostPhysical;

use super::Writes;
use super::caches::Preparation;

/// Lines found so far, searching backwards in time, newest first.
struct WrittenLines {
    lines: Vec<HostPhysical>,
    seen: FxHashSet<HostPhysical>,
    /// Most lines: the capacity of the ways for device writes.
    most: usize,
    /// Bytes of the buffer written by the helper since, whose lines moved to its own cache.
    taken: u64,
}

impl WrittenLines {
    fn is_full(&self) -> bool {
        self.lines.len() >= self.most
    }

    fn add(&mut self, line: HostPhysical, offset: Option<u64>) {
        let taken = offset.is_some_and(|offset| offset < self.taken);
        if !taken && !self.is_full() && self.seen.insert(line) {
            self.lines.push(line);
        }
    }
}

/// Lines that the runs `before` left in the ways for device writes, oldest first.
pub(super) fn lines(on: &Preparation, before: &[Run]) -> Vec<HostPhysical> {
    let most = (on.device_ways / LINE) as usize;
    let mut found = WrittenLines { lines: Vec::new(), seen: FxHashSet::default(), most, taken: 0 };
    for run in before.iter().rev() {
        if found.is_full() {
            break;
        }
        if run.test.writes() {
            written_by(on, run, &mut found);
        }
        match run.cache {
            Cache::Cold => {}
            Cache::HostWarm => found.taken = found.taken.max(run.window.get()),
            Cache::DeviceWarm => {
                for line in (0..run.window.get() / LINE).rev().take(most) {
                    command_line(on, line * LINE, &mut found);
                }
            }
            // Other lines have replaced them.
            Cache::DeviceThrash => break,
        }
    }
    found.lines.reverse();
    found.lines
}

/// Lines that a test wrote: its whole window if it fits the ways for device writes, or else the last writes.
fn written_by(on: &Preparation, run: &Run, found: &mut WrittenLines) {
    let (transfer, window) = (run.transfer.get(), run.window.get());
    let units = window.div_ceil((transfer + run.host_offset).next_multiple_of(LINE));
    let random = (window > on.device_ways).then(|| on.seed.component("what earlier runs wrote").u64());
    let mut addresses = Addresses::new(window, transfer, run.host_offset, random);
    for _ in 0..units.min(on.settling_lines()) {
        if found.is_full() {
            break;
        }
        let offset = addresses.next_offset();
        for line in offset / LINE..=(offset + transfer - 1) / LINE {
            if run.test.is_command() {
                command_line(on, line * LINE, found);
            } else {
                found.add(on.buffer.at(line * LINE), Some(line * LINE));
            }
        }
    }
}

fn command_line(on: &Preparation, offset: u64, found: &mut WrittenLines) {
    let line = on.command_target(offset);
    // Commands may reach other memory than the helper's window.
    found.add(line, (line == on.buffer.at(offset)).then_some(offset));
}

#[cfg(test)]
mod tests {
    use super::super::{Bench, Effort};
    use super::*;
    use machine::{Doc, IommuMode, Library, Machine, Part, Sockets};
    use results::pciebench::{Pattern, Test};
    use units::Bytes;

    fn run(test: Test, cache: Cache, window: Bytes) -> Run {
        let (pattern, transfer) = (Pattern::Random, Bytes::new(64));
        Run { test, pattern, cache, host_offset: 0, device_offset: 0, window, transfer }
    }

    /// A cold test finds what the previous test wrote, unless the card's socket was thrashed in between.
    #[test]
    fn a_cold_window_is_found_where_the_helper_is_elsewhere() {
        let library = Library::built_in();
        let median = |program, before: &[Run]| {
            let bench = Bench {
                machine: Doc::<Machine>::load(&library, "dell-t430").unwrap().read().unwrap(),
                card: Doc::<Part>::load(&library, "nfp6000").unwrap().read().unwrap(),
                sockets: Sockets { device: 0, memory: 0, warming: program },
                iommu: IommuMode::Off,
                seed: 1,
            };
            let effort = Effort { samples: 200, ..Effort::default() };
            let cold = run(Test::LatDmaRd, Cache::Cold, Bytes::kib(8));
            bench.run_after(before, &cold, effort).unwrap().headline()
        };
        let wrote = run(Test::LatDmaWrRd, Cache::HostWarm, Bytes::kib(8));
        let (elsewhere, beside) = (1, 0);
        let cold = median(elsewhere, &[]);
        assert!(median(elsewhere, &[wrote]) < cold - 40.0);
        assert_eq!(median(beside, &[wrote]), median(beside, &[]));
        let thrashed = run(Test::LatDmaRd, Cache::DeviceThrash, Bytes::kib(8));
        assert_eq!(median(elsewhere, &[wrote, thrashed]), cold);
        // The helper's writes take the window away; other large writes replace it.
        let warmed = run(Test::LatDmaRd, Cache::HostWarm, Bytes::kib(8));
        assert_eq!(median(elsewhere, &[wrote, warmed]), cold);
        let large = run(Test::BwDmaWr, Cache::Cold, Bytes::mib(64));
        assert_eq!(median(elsewhere, &[wrote, large]), cold);
    }
}
