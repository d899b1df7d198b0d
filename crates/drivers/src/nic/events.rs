//! A vector's event queue: the device says in memory why it interrupts.

use std::cell::Cell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Barrier, Cpu, Node};
use platform::dma::{Coherent, DmaOps};
use platform::memory::PhysAddr;
use platform::mmio::Mmio;
use wire::nic::EventEntry;
use wire::nic::event_entry::LEN;
use wire::nic::registers::{self as regs, vector};

/// Log2 of the entries: a page of them. Few are ever unread, since the queues of a channel are armed again only after
/// the handler has run.
const LOG2: u8 = 6;

pub(super) struct EventQueue {
    dma: Rc<dyn DmaOps>,
    registers: Mmio,
    /// The vector's registers.
    base: u64,
    entries: Coherent,
    /// Total of entries read.
    read: Cell<u16>,
}

impl EventQueue {
    /// Allocates the queue of a vector in a node's memory, and passes it to the device.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn start(
        cpu: &Cpu,
        (dma, registers): (&Rc<dyn DmaOps>, &Mmio),
        number: u16,
        node: Node,
    ) -> Result<Self, Error> {
        let entries = dma.alloc_coherent(cpu, (LEN as u64) << LOG2, Some(node))?;
        // No old entry looks new: in the first round the owner bit is 1.
        cpu.store(entries.cpu, &vec![0; entries.length as usize]);
        let base = regs::VECTORS + u64::from(number) * regs::VECTOR_STRIDE;
        registers.write_u64(cpu, base + vector::EVENTS, entries.bus.get());
        registers.write_u32(cpu, base + vector::EVENTS_SIZE, LOG2.into());
        let (dma, registers) = (Rc::clone(dma), registers.clone());
        Ok(Self { dma, registers, base, entries, read: Cell::new(0) })
    }

    fn entry(&self, number: u16) -> PhysAddr {
        let index = u64::from(number) & ((1 << LOG2) - 1);
        self.entries.cpu + index * LEN as u64
    }

    /// Reads all new entries, in the interrupt handler. As in Linux's mlx5 (`mlx5_eq_int`, `eq_update_ci`), the write
    /// that tells the device is followed by a full barrier.
    pub fn take(&self, cpu: &Cpu) {
        let before = self.read.get();
        loop {
            let mut bytes = [0; LEN];
            let number = self.read.get();
            cpu.load(self.entry(number), &mut bytes);
            if EventEntry::parse(&bytes, number, LOG2).is_none() {
                break;
            }
            self.read.set(number.wrapping_add(1));
        }
        if self.read.get() != before {
            self.registers.write_u32(cpu, self.base + vector::EVENTS_READ, self.read.get().into());
            cpu.barrier(Barrier::All);
        }
    }

    /// Takes the queue from the device.
    pub fn stop(&self, cpu: &Cpu) {
        self.registers.write_u32(cpu, self.base + vector::EVENTS_SIZE, 0);
    }

    /// Frees the memory. The device must have stopped.
    pub fn free(&self, cpu: &Cpu) {
        self.dma.free_coherent(cpu, self.entries);
    }
}
