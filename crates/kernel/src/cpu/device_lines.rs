//! Lines of devices in the cores' caches: what mappings that are cached (WT, WB) keep of a BAR.
//!
//! A device is no coherent memory: nothing tells the cores what it changes, and it sees what a core wrote only when the
//! line is flushed or makes room. What is simpler than in the real thing: the host's cores share these lines, and a hit
//! costs as much as one in L1.

use std::cell::RefCell;
use std::collections::BTreeMap;

use platform::cpu::CpuId;
use units::Time;

use super::Cores;
use crate::ground::{LINE, Store};

/// Lines kept: as many as a 32 KiB L1 has.
const CAPACITY: usize = 512;

type Bytes = [u8; LINE as usize];

#[derive(Clone)]
struct CachedLine {
    bytes: Bytes,
    /// Bytes that are there: those read or written.
    valid: u64,
    /// Bytes that the device has not seen.
    dirty: u64,
    used: u64,
}

/// All lines of devices that are cached.
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

    /// Reads bytes of one line; `false` if they are not there.
    pub fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let start = (at % LINE) as usize;
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(&(at - start as u64)) else { return false };
        if !(start..start + into.len()).all(|n| line.valid >> n & 1 == 1) {
            return false;
        }
        line.used = self.next_use();
        into.copy_from_slice(&line.bytes[start..start + into.len()]);
        true
    }

    /// Puts what has been read of a line where nothing newer is.
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

    /// Writes bytes of one line: into it if it is there, and with `allocate` in any case; they stay there if `dirty`.
    pub fn write(&self, at: u64, from: &[u8], allocate: bool, dirty: bool) {
        let start = (at % LINE) as usize;
        let used = self.next_use();
        let mut lines = self.lines.borrow_mut();
        if allocate {
            let empty = CachedLine { bytes: [0; LINE as usize], valid: 0, dirty: 0, used };
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

    /// The line that was not used for longest, if there are too many.
    fn surplus(&self) -> Option<u64> {
        let lines = self.lines.borrow();
        let oldest = || lines.iter().min_by_key(|(_, line)| line.used).map(|(&at, _)| at);
        (lines.len() > CAPACITY).then(oldest).flatten()
    }
}

impl Cores {
    /// Evicts a line of a device: the device gets what it has not seen.
    pub fn evict_device_line(&self, core: CpuId, when: Time, line: u64) {
        let Some(CachedLine { bytes, dirty, .. }) = self.device_lines.take(line) else { return };
        if dirty == u64::MAX {
            self.store(core, when, Store::Direct(line, &bytes));
            return;
        }
        let mut left = dirty;
        while left != 0 {
            let start = left.trailing_zeros() as usize;
            let length = (!(left >> start)).trailing_zeros() as usize;
            let run = &bytes[start..start + length];
            self.store(core, when, Store::Combining { address: line + start as u64, bytes: run, width: 64 });
            left &= !(u64::MAX >> (64 - length) << start);
        }
        if dirty != 0 {
            self.store(core, when, Store::Flush(line));
        }
    }

    /// Lets lines go that have no room.
    pub fn trim_device_lines(&self, core: CpuId, when: Time) {
        while let Some(line) = self.device_lines.surplus() {
            self.evict_device_line(core, when, line);
        }
    }
}
