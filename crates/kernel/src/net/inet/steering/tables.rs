//! The two tables: on which core sockets are used, and on which core flows are dealt with.
//!
//! Both lie in memory, and what is looked up or changed there goes through the caches.

use std::cell::{Cell, RefCell};

use crate::mm::Memory;
use platform::cpu::{Cpu, CpuId};
use platform::memory::{Pages, PhysAddr, Policy};
use platform::net::FlowKey;

/// A hash of a flow, as Linux's `skb_get_hash` gives without the device's.
pub fn hash_of(key: &FlowKey) -> u32 {
    let ports = u32::from(key.ports.0) << 16 | u32::from(key.ports.1);
    let words = [u32::from_be_bytes(key.source), u32::from_be_bytes(key.destination), ports];
    let mixed = words
        .into_iter()
        .fold(u32::from(key.protocol), |h, word| (h ^ word).wrapping_mul(0x9e37_79b1).rotate_left(15));
    mixed ^ mixed >> 16
}

/// Where a table lies, once it has been used.
#[derive(Default)]
struct Place(Cell<Option<PhysAddr>>);

impl Place {
    fn entry(&self, memory: &Memory, cpu: &Cpu, bytes: u64, size: u64, index: usize) -> Option<PhysAddr> {
        if self.0.get().is_none() {
            let pages = memory.take(cpu, Pages::order_for(bytes), Policy::Local);
            match pages {
                Ok(pages) => self.0.set(Some(pages.start)),
                Err(_) => return None,
            }
        }
        self.0.get().map(|start| start + index as u64 * size)
    }
}

/// On which core the socket of a flow was used last (Linux: `rps_sock_flow_table`).
pub struct Cores {
    place: Place,
    /// The flow's hash, to know it from others of this place, and the core.
    entries: RefCell<Vec<Option<(u32, CpuId)>>>,
}

/// Bytes of an entry: the hash's upper bits with the core (Linux: `u32`).
const CORE_BYTES: u64 = 4;

impl Cores {
    pub fn new(entries: u32) -> Self {
        let entries = vec![None; entries.next_power_of_two() as usize];
        Self { place: Place::default(), entries: RefCell::new(entries) }
    }

    fn touch(&self, memory: &Memory, cpu: &Cpu, hash: u32) -> Option<(usize, PhysAddr)> {
        let number = self.entries.borrow().len();
        let index = hash as usize & (number - 1);
        let at = self.place.entry(memory, cpu, number as u64 * CORE_BYTES, CORE_BYTES, index)?;
        cpu.load(at, &mut [0; CORE_BYTES as usize]);
        Some((index, at))
    }

    /// A program uses the flow's socket here. The entry is written only if it changes.
    pub fn note(&self, memory: &Memory, cpu: &Cpu, hash: u32) {
        let Some((index, at)) = self.touch(memory, cpu, hash) else { return };
        let own = Some((hash, cpu.id()));
        let entry = &mut self.entries.borrow_mut()[index];
        if *entry != own {
            *entry = own;
            cpu.store_u32(at, hash ^ u32::from(cpu.id().0));
        }
    }

    /// Where it was used.
    pub fn find(&self, memory: &Memory, cpu: &Cpu, hash: u32) -> Option<CpuId> {
        let (index, _) = self.touch(memory, cpu, hash)?;
        self.entries.borrow()[index].filter(|&(known, _)| known == hash).map(|(_, core)| core)
    }
}

/// Where flows are dealt with (Linux: `rps_dev_flow_table`).
pub struct Flows {
    place: Place,
    entries: RefCell<Vec<Flow>>,
}

/// Flows of one place in the table, which stay together.
#[derive(Clone, Copy, Default)]
struct Flow {
    core: Option<CpuId>,
    /// How many packets that core's backlog has had with the last of these.
    until: u64,
}

/// Bytes of an entry (Linux: `struct rps_dev_flow`).
const FLOW_BYTES: u64 = 8;

impl Flows {
    pub fn new(entries: u32) -> Self {
        let entries = vec![Flow::default(); entries.next_power_of_two() as usize];
        Self { place: Place::default(), entries: RefCell::new(entries) }
    }

    /// The core for a packet, and how many packets its backlog must have done until none of the flow waits there: the one
    /// where the flow's socket is used (`wanted`), unless older ones wait at another.
    pub fn core_for(
        &self,
        memory: &Memory,
        cpu: &Cpu,
        hash: u32,
        wanted: Option<CpuId>,
        is_done: impl Fn(CpuId, u64) -> bool,
    ) -> Option<(CpuId, u64)> {
        let mut entries = self.entries.borrow_mut();
        let number = entries.len();
        let index = hash as usize & (number - 1);
        let at = self.place.entry(memory, cpu, number as u64 * FLOW_BYTES, FLOW_BYTES, index);
        if let Some(at) = at {
            cpu.load_u64(at);
        }
        let flow = &mut entries[index];
        let is_free = flow.core.is_none_or(|core| is_done(core, flow.until));
        if flow.core != wanted && is_free {
            *flow = Flow { core: wanted, until: 0 };
            if let Some(at) = at {
                cpu.store_u64(at, wanted.map_or(u64::MAX, |core| core.0.into()));
            }
        }
        flow.core.map(|core| (core, flow.until))
    }

    /// A packet went into the core's backlog. Its line has been looked at just before.
    pub fn set_until(&self, hash: u32, until: u64) {
        let mut entries = self.entries.borrow_mut();
        let index = hash as usize & (entries.len() - 1);
        entries[index].until = until;
    }
}
