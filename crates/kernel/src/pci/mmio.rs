//! Accesses of cores to BARs.

use std::cell::Cell;
use std::rc::Rc;

use hardware::memory::LINE;
use platform::cpu::{Async, Cpu};
use platform::memory::PhysAddr;
use platform::mmio::{MemoryType, MmioOps};

use crate::convert;
use crate::cpu::Cores;

/// Largest uncached access: a general register.
const WORD: u64 = 8;

/// (A part of) a BAR, mapped.
pub(super) struct Region {
    cores: Rc<Cores>,
    base: PhysAddr,
    length: u64,
    kind: MemoryType,
    present: Rc<Cell<bool>>,
}

impl Region {
    pub fn new(
        cores: Rc<Cores>,
        base: PhysAddr,
        length: u64,
        kind: MemoryType,
        present: Rc<Cell<bool>>,
    ) -> Self {
        Self { cores, base, length, kind, present }
    }

    fn inside(&self, offset: u64, length: usize) -> bool {
        offset.checked_add(length as u64).is_some_and(|end| end <= self.length)
    }
}

/// Cuts an access where multiples of `unit` are.
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

impl MmioOps for Region {
    fn length(&self) -> u64 {
        self.length
    }

    fn address(&self) -> PhysAddr {
        self.base
    }

    fn read<'a>(&'a self, cpu: &'a Cpu, offset: u64, into: &'a mut [u8]) -> Async<'a, ()> {
        Box::pin(async move {
            if !self.inside(offset, into.len()) || !self.present.get() {
                into.fill(0xff);
                return;
            }
            let at = self.base + offset;
            for piece in pieces(at, into.len(), WORD) {
                cpu.sync().await;
                let target = convert::physical(at + piece.start as u64);
                let length = piece.len();
                let access = self
                    .cores
                    .with(|host, wires, scheduler| host.mmio_read(wires, scheduler, target, length));
                match access {
                    Ok(access) => {
                        let data = cpu.stall_on(access.data).await.unwrap_or_default();
                        let bytes = &mut into[piece];
                        bytes.fill(0xff);
                        let length = data.len().min(bytes.len());
                        bytes[..length].copy_from_slice(&data[..length]);
                    }
                    Err(_) => into[piece].fill(0xff),
                }
            }
        })
    }

    fn write(&self, cpu: &Cpu, offset: u64, from: &[u8]) {
        self.store(cpu, offset, from, WORD);
    }

    fn stream(&self, cpu: &Cpu, offset: u64, from: &[u8]) {
        self.store(cpu, offset, from, 2 * WORD);
    }

    fn write_direct(&self, cpu: &Cpu, offset: u64, line: &[u8; 64]) {
        self.store(cpu, offset, line, LINE);
    }
}

impl Region {
    fn store(&self, cpu: &Cpu, offset: u64, from: &[u8], width: u64) {
        if !self.inside(offset, from.len()) || !self.present.get() {
            return;
        }
        let at = self.base + offset;
        let unit = match self.kind {
            // Stores to one line leave together when nothing else wants its buffer first.
            MemoryType::WriteCombining => LINE,
            _ if width == LINE => LINE,
            _ => WORD,
        };
        for piece in pieces(at, from.len(), unit) {
            let target = convert::physical(at + piece.start as u64);
            let stores = piece.len().div_ceil(width as usize) as u64;
            match self.kind {
                MemoryType::WriteCombining => cpu.work(stores * self.cores.params.issue.get()),
                _ => cpu.work(self.cores.costs.mmio_write),
            }
            let when = cpu.now();
            // Where no window is, a write is lost, as on a real bus.
            let _ = self.cores.with(|host, wires, scheduler| {
                host.mmio_write_at(wires, scheduler, when, target, &from[piece])
            });
        }
    }
}
