//! The two tables: the core that uses each socket, and the core that processes each flow.
//!
//! Both are in simulated memory; lookups and updates go through the caches.

use std::cell::{Cell, RefCell};

use crate::mm::Memory;
use platform::cpu::{Cpu, CpuId};
use platform::memory::{Pages, PhysAddr, Policy};
use platform::net::FlowKey;

/// Flow hash, as Linux's `skb_get_hash` computes if the device provides none.
pub fn hash_of(key: &FlowKey) -> u32 {
    let ports = u32::from(key.ports.0) << 16 | u32::from(key.ports.1);
    let words = [u32::from_be_bytes(key.source), u32::from_be_bytes(key.destination), ports];
    let mixed = words
        .into_iter()
        .fold(u32::from(key.protocol), |h, word| (h ^ word).wrapping_mul(0x9e37_79b1).rotate_left(15));
    mixed ^ mixed >> 16
}

/// A table in memory, allocated on first use.
struct Table<T> {
    /// Number of entries: a power of two.
    size: usize,
    /// Bytes per entry in the kernel's layout.
    bytes: u64,
    place: Cell<Option<PhysAddr>>,
    entries: RefCell<Vec<T>>,
}

impl<T: Copy + Default> Table<T> {
    fn new(entries: u32, bytes: u64) -> Self {
        let size = entries.next_power_of_two() as usize;
        Self { size, bytes, place: Cell::new(None), entries: RefCell::default() }
    }

    fn index(&self, hash: u32) -> usize {
        hash as usize & (self.size - 1)
    }

    /// Address of a hash's entry; `None` if there is no memory for the table.
    fn place(&self, memory: &Memory, cpu: &Cpu, hash: u32) -> Option<PhysAddr> {
        if self.place.get().is_none() {
            let pages = memory.take(cpu, Pages::order_for(self.size as u64 * self.bytes), Policy::Local);
            self.place.set(Some(pages.ok()?.start));
        }
        self.place.get().map(|start| start + self.index(hash) as u64 * self.bytes)
    }

    /// Contents of a hash's entry.
    fn get(&self, hash: u32) -> T {
        self.entries.borrow().get(self.index(hash)).copied().unwrap_or_default()
    }

    fn set(&self, hash: u32, entry: T) {
        let mut entries = self.entries.borrow_mut();
        if entries.is_empty() {
            entries.resize(self.size, T::default());
        }
        entries[self.index(hash)] = entry;
    }
}

/// The core that last used each flow's socket (Linux: `rps_sock_flow_table`), with the hash to detect collisions.
pub struct SocketFlows(Table<Option<(u32, CpuId)>>);

impl SocketFlows {
    pub fn new(entries: u32) -> Self {
        // Upper bits of the hash plus the core (Linux: `u32`).
        Self(Table::new(entries, 4))
    }

    /// Records that a flow's socket is used on this core. Writes only on a change.
    pub fn note(&self, memory: &Memory, cpu: &Cpu, hash: u32) {
        let Some(at) = self.0.place(memory, cpu, hash) else { return };
        cpu.load_u32(at);
        let own = Some((hash, cpu.id()));
        if self.0.get(hash) != own {
            self.0.set(hash, own);
            cpu.store_u32(at, hash ^ u32::from(cpu.id().0));
        }
    }

    /// The core that used it last.
    pub fn find(&self, memory: &Memory, cpu: &Cpu, hash: u32) -> Option<CpuId> {
        cpu.load_u32(self.0.place(memory, cpu, hash)?);
        self.0.get(hash).filter(|&(known, _)| known == hash).map(|(_, core)| core)
    }
}

/// The core that processes each flow (Linux: `rps_dev_flow_table`).
pub struct Flows(Table<FlowPlace>);

/// An entry, shared by all flows with the same index.
#[derive(Clone, Copy, Default)]
struct FlowPlace {
    core: Option<CpuId>,
    /// Packets that the core's backlog has had, including the last of this entry.
    until: u64,
}

impl Flows {
    pub fn new(entries: u32) -> Self {
        // Linux: `struct rps_dev_flow`.
        Self(Table::new(entries, 8))
    }

    /// The core for a packet, and the backlog count after which no packet of the flow waits there. That is the core
    /// of its socket (`wanted`), unless older packets wait at another core.
    pub fn core_for(
        &self,
        memory: &Memory,
        cpu: &Cpu,
        hash: u32,
        wanted: Option<CpuId>,
        is_done: impl Fn(CpuId, u64) -> bool,
    ) -> Option<(CpuId, u64)> {
        let at = self.0.place(memory, cpu, hash);
        if let Some(at) = at {
            cpu.load_u64(at);
        }
        let mut flow = self.0.get(hash);
        let is_free = flow.core.is_none_or(|core| is_done(core, flow.until));
        if flow.core != wanted && is_free {
            flow = FlowPlace { core: wanted, until: 0 };
            self.0.set(hash, flow);
            if let Some(at) = at {
                cpu.store_u64(at, wanted.map_or(u64::MAX, |core| core.0.into()));
            }
        }
        flow.core.map(|core| (core, flow.until))
    }

    /// Records a packet in the core's backlog. Free of charge, as the entry was just loaded.
    pub fn set_until(&self, hash: u32, until: u64) {
        self.0.set(hash, FlowPlace { until, ..self.0.get(hash) });
    }
}
