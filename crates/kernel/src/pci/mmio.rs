//! MMIO: accesses of cores to BARs.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use engine::Completion;
use platform::cpu::{Async, Cpu};
use platform::memory::PhysAddr;
use platform::mmio::{MemoryType, MmioOps, Store};

use crate::cpu::Cores;

/// Bytes of a cache line.
const LINE: u64 = wire::LINE as u64;
/// Largest uncached access: a general-purpose register (bytes).
const WORD: u64 = 8;

/// A mapping of a BAR or a part of it.
pub(super) struct Region {
    cores: Rc<Cores>,
    base: PhysAddr,
    length: u64,
    kind: MemoryType,
    reach: Reach,
}

/// Whether accesses reach a function, which its mappings share.
#[derive(Clone)]
pub(super) struct Reach {
    present: Rc<Cell<bool>>,
    frozen: Rc<Cell<bool>>,
}

impl Default for Reach {
    fn default() -> Self {
        Self { present: Rc::new(Cell::new(true)), frozen: Rc::default() }
    }
}

impl Reach {
    /// Whether the function is there, as far as is known.
    pub fn is_present(&self) -> bool {
        self.present.get()
    }

    /// The function was removed.
    pub fn end(&self) {
        self.present.set(false);
    }

    /// Error recovery begins or ends; in between, drivers' accesses are blocked.
    pub fn freeze(&self, on: bool) {
        self.frozen.set(on);
    }

    pub fn is_open(&self) -> bool {
        self.present.get() && !self.frozen.get()
    }
}

impl Region {
    pub fn new(cores: Rc<Cores>, base: PhysAddr, length: u64, kind: MemoryType, reach: Reach) -> Self {
        Self { cores, base, length, kind, reach }
    }

    fn answers(&self) -> bool {
        self.reach.is_open()
    }

    fn inside(&self, offset: u64, length: usize) -> bool {
        offset.checked_add(length as u64).is_some_and(|end| end <= self.length)
    }
}

/// Splits an access at multiples of `unit`.
fn pieces(at: PhysAddr, length: usize, unit: u64) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        (start < length).then(|| {
            let here = (at + start as u64).offset_in(unit);
            let end = length.min(start + (unit - here) as usize);
            let piece = start..end;
            start = end;
            piece
        })
    })
}

/// Waits for a line and copies the requested part; all ones if nothing answered.
async fn arrived(
    cores: &Cores,
    cpu: &Cpu,
    (lead, access): (usize, Option<Completion<Vec<u8>>>),
    into: &mut [u8],
) {
    let data = match access {
        Some(access) => cores.stall_on_device(cpu, access).await.unwrap_or_default(),
        None => Vec::new(),
    };
    into.fill(0xff);
    if let Some(bytes) = data.get(lead..lead + into.len()) {
        into.copy_from_slice(bytes);
    }
}

impl MmioOps for Region {
    fn length(&self) -> u64 {
        self.length
    }

    fn address(&self) -> PhysAddr {
        self.base
    }

    fn read<'a>(&'a self, cpu: &'a Cpu, offset: u64, into: &'a mut [u8]) -> Async<'a, ()> {
        Box::pin(async move {
            if !self.inside(offset, into.len()) || !self.answers() {
                into.fill(0xff);
                return;
            }
            let at = self.base + offset;
            if self.is_cached() {
                return self.read_cached(cpu, at, into).await;
            }
            for piece in pieces(at, into.len(), WORD) {
                cpu.sync().await;
                self.flush(cpu).await;
                self.fetch(cpu, at + piece.start as u64, &mut into[piece]).await;
            }
        })
    }

    fn read_stream<'a>(&'a self, cpu: &'a Cpu, offset: u64, into: &'a mut [u8]) -> Async<'a, ()> {
        Box::pin(async move {
            if self.kind != MemoryType::WriteCombining || !self.inside(offset, into.len()) || !self.answers()
            {
                return self.read(cpu, offset, into).await;
            }
            cpu.sync().await;
            self.flush(cpu).await;
            // Combined stores have left; lines being fetched ahead may still hold buffers.
            let most = self.cores.ground.free_fill_buffers(cpu.id(), cpu.now()).max(1);
            let mut under_way = VecDeque::with_capacity(most);
            for piece in pieces(self.base + offset, into.len(), LINE) {
                if under_way.len() == most
                    && let Some((piece, data)) = under_way.pop_front()
                {
                    arrived(&self.cores, cpu, data, &mut into[piece]).await;
                }
                cpu.cycles(self.cores.params.issue.get()).await;
                let at = (self.base + offset + piece.start as u64).align_down(LINE);
                let lead = (self.base + offset + piece.start as u64).offset_in(LINE) as usize;
                let access = self.cores.ground.read_device(cpu.id(), at, LINE as usize);
                under_way.push_back((piece, (lead, access)));
            }
            for (piece, data) in under_way {
                arrived(&self.cores, cpu, data, &mut into[piece]).await;
            }
        })
    }

    fn write(&self, cpu: &Cpu, offset: u64, from: &[u8]) {
        self.store(cpu, offset, from, WORD);
    }

    fn stream(&self, cpu: &Cpu, offset: u64, from: &[u8]) {
        self.store(cpu, offset, from, 2 * WORD);
    }

    fn write_direct(&self, cpu: &Cpu, offset: u64, line: &[u8; LINE as usize]) {
        let at = self.base + offset;
        if !self.inside(offset, line.len()) || !self.answers() || at.offset_in(LINE) != 0 {
            return;
        }
        cpu.work(self.cores.params.store_interval.get());
        self.cores.store(cpu.id(), cpu.now(), Store::Direct(at.0, line));
    }
}

impl Region {
    /// Whether loads may hit in a cache.
    fn is_cached(&self) -> bool {
        matches!(self.kind, MemoryType::WriteThrough | MemoryType::WriteBack)
    }

    /// Reads from the device in one TLP, while the core waits.
    async fn fetch(&self, cpu: &Cpu, at: PhysAddr, into: &mut [u8]) {
        let access = self.cores.ground.read_device(cpu.id(), at, into.len());
        into.fill(0xff);
        if let Some(access) = access {
            let data = self.cores.stall_on_device(cpu, access).await.unwrap_or_default();
            let length = data.len().min(into.len());
            into[..length].copy_from_slice(&data[..length]);
        }
    }

    async fn read_cached(&self, cpu: &Cpu, at: PhysAddr, into: &mut [u8]) {
        for piece in pieces(at, into.len(), LINE) {
            let at = at + piece.start as u64;
            cpu.work(self.cores.params.issue.get());
            if self.cores.device_lines.read(at.0, &mut into[piece.clone()]) {
                continue;
            }
            cpu.sync().await;
            let mut bytes = [0; LINE as usize];
            let line = at.align_down(LINE);
            self.fetch(cpu, line, &mut bytes).await;
            self.cores.device_lines.fill(line.0, &bytes);
            self.cores.device_lines.read(at.0, &mut into[piece]);
            self.cores.device_lines.trim(&*self.cores.ground, cpu.id(), cpu.now());
        }
    }

    /// Stores in units of `width` bytes.
    fn store(&self, cpu: &Cpu, offset: u64, from: &[u8], width: u64) {
        if !self.inside(offset, from.len()) || !self.answers() {
            return;
        }
        let at = self.base + offset;
        let combines = self.kind != MemoryType::Uncached;
        for piece in pieces(at, from.len(), if combines { LINE } else { WORD }) {
            let address = (at + piece.start as u64).0;
            let bytes = &from[piece];
            if self.kind == MemoryType::WriteBack {
                cpu.work(self.cores.params.issue.get());
                self.cores.device_lines.write(address, bytes, true, true);
                self.cores.device_lines.trim(&*self.cores.ground, cpu.id(), cpu.now());
                continue;
            }
            if self.is_cached() {
                self.cores.device_lines.write(address, bytes, false, false);
            }
            if combines {
                // Stores are aligned to their width.
                let first = address / width;
                let last = (address + bytes.len() as u64 - 1) / width;
                cpu.work((last - first + 1) * self.cores.params.store_interval.get());
                let store = Store::Combining { address, bytes, width: width as u8 };
                self.cores.store(cpu.id(), cpu.now(), store);
            } else {
                cpu.work(self.cores.costs.mmio_write);
                self.cores.store(cpu.id(), cpu.now(), Store::Uncached(address, bytes));
            }
        }
    }

    /// Drains all earlier stores to devices, as an uncached access requires.
    async fn flush(&self, cpu: &Cpu) {
        if self.cores.ground.holds_stores(cpu.id()) {
            self.cores.store(cpu.id(), cpu.now(), Store::Barrier);
            if let Some(accepted) = self.cores.ground.stores_pending_at_most(cpu.id(), 0) {
                // The core owns the completer, so it cannot go away.
                let _ = self.cores.stall_on_device(cpu, accepted).await;
            }
        }
    }
}
