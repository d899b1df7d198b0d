//! Device lines in the CPU caches: cached (WT, WB) mappings of BARs.
//!
//! Device memory is not coherent. Cores do not see the device's changes, and the device sees a core's writes only
//! when the line is flushed or evicted. Simplified: all cores of the host share these lines, and a hit costs as much
//! as one in L1.

use std::cell::RefCell;
use std::collections::BTreeMap;

use platform::cpu::CpuId;
use platform::mmio::Store;
use units::Time;
use wire::LINE;

use crate::ground::Ground;

/// Lines kept, as many as in a 32 KiB L1.
const CAPACITY: usize = 512;

type Bytes = [u8; LINE];

#[derive(Clone)]
struct CachedLine {
    bytes: Bytes,
    /// Valid bytes: read or written before.
    valid: u64,
    /// Bytes not yet written to the device.
    dirty: u64,
    used: u64,
}

#[derive(Default)]
pub(crate) struct DeviceLines {
    lines: RefCell<BTreeMap<u64, CachedLine>>,
    uses: std::cell::Cell<u64>,
}

impl DeviceLines {
    fn next_use(&self) -> u64 {
        self.uses.set(self.uses.get() + 1);
        self.uses.get()
    }

    /// Reads bytes of one line; `false` if not all are valid.
    pub fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let start = at as usize % LINE;
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(&(at - start as u64)) else { return false };
        if !(start..start + into.len()).all(|n| line.valid >> n & 1 == 1) {
            return false;
        }
        line.used = self.next_use();
        into.copy_from_slice(&line.bytes[start..start + into.len()]);
        true
    }

    /// Fills a line with data read from the device, keeping bytes already valid.
    pub fn fill(&self, line: u64, from: &Bytes) {
        let used = self.next_use();
        let mut lines = self.lines.borrow_mut();
        let place = lines.entry(line).or_insert(CachedLine { bytes: *from, valid: 0, dirty: 0, used });
        for (n, (to, &byte)) in place.bytes.iter_mut().zip(from).enumerate() {
            if place.dirty >> n & 1 == 0 {
                *to = byte;
            }
        }
        (place.valid, place.used) = (u64::MAX, used);
    }

    /// Writes bytes to a line if it is cached, or always with `allocate`. `dirty` bytes are written back later.
    pub fn write(&self, at: u64, from: &[u8], allocate: bool, dirty: bool) {
        let start = at as usize % LINE;
        let used = self.next_use();
        let mut lines = self.lines.borrow_mut();
        if allocate {
            let empty = CachedLine { bytes: [0; LINE], valid: 0, dirty: 0, used };
            lines.entry(at - start as u64).or_insert(empty);
        }
        let Some(line) = lines.get_mut(&(at - start as u64)) else { return };
        line.bytes[start..start + from.len()].copy_from_slice(from);
        line.used = used;
        for n in start..start + from.len() {
            line.valid |= 1 << n;
            line.dirty |= u64::from(dirty) << n;
        }
    }

    fn take(&self, line: u64) -> Option<CachedLine> {
        self.lines.borrow_mut().remove(&line)
    }

    /// The least recently used line, if there are too many.
    fn surplus(&self) -> Option<u64> {
        let lines = self.lines.borrow();
        let oldest = || lines.iter().min_by_key(|(_, line)| line.used).map(|(&at, _)| at);
        (lines.len() > CAPACITY).then(oldest).flatten()
    }

    /// Evicts a line and writes its dirty bytes to the device.
    pub fn evict(&self, ground: &dyn Ground, core: CpuId, when: Time, line: u64) {
        let Some(CachedLine { bytes, dirty, .. }) = self.take(line) else { return };
        if dirty == u64::MAX {
            ground.store_to_device(core, when, Store::Direct(line, &bytes));
            return;
        }
        let mut left = dirty;
        while left != 0 {
            let start = left.trailing_zeros() as usize;
            let length = (!(left >> start)).trailing_zeros() as usize;
            let run = &bytes[start..start + length];
            ground.store_to_device(
                core,
                when,
                Store::Combining { address: line + start as u64, bytes: run, width: 64 },
            );
            left &= !(u64::MAX >> (64 - length) << start);
        }
        if dirty != 0 {
            ground.store_to_device(core, when, Store::Flush(line));
        }
    }

    /// Evicts lines beyond the capacity.
    pub fn trim(&self, ground: &dyn Ground, core: CpuId, when: Time) {
        while let Some(line) = self.surplus() {
            self.evict(ground, core, when, line);
        }
    }
}
