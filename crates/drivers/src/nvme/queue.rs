//! A queue pair: rings, doorbells and commands in flight.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use platform::Error;
use platform::block::BlockRequest;
use platform::cpu::Cpu;
use platform::dma::{Coherent, DmaOps};
use platform::lock::SpinLock;
use platform::mmio::Mmio;
use platform::sync::Completion;
use wire::nvme::completion::LEN as COMPLETION_LEN;
use wire::nvme::{Command, CompletionEntry, CompletionRing, SubmissionRing};

use super::data::Mapped;

/// Low bits of a command ID: the slot. The upper bits count the slot's uses.
const SLOT_BITS: u16 = 12;

/// The purpose of a slot's command.
pub(super) enum Work {
    /// A caller waits for the completion entry.
    Admin(Completion<Result<CompletionEntry, Error>>),
    /// An asynchronous event request, which completes when an event occurs.
    Event,
    /// A block request.
    Block(Box<InFlight>),
}

/// A block request in flight.
pub(super) struct InFlight {
    pub namespace: u32,
    pub request: BlockRequest,
    pub mapped: Mapped,
    /// Earlier attempts.
    pub tries: u8,
    /// An abort has been sent.
    pub aborted: bool,
}

/// A request that waits until the controller is back.
pub(super) struct Parked {
    pub namespace: u32,
    pub request: BlockRequest,
    pub tries: u8,
}

#[derive(Default)]
struct CommandSlot {
    uses: u8,
    work: Option<Work>,
    /// Memory for a PRP list or SGL, allocated on first use.
    list: Option<Coherent>,
}

/// Location of the submission queue entries.
pub(super) enum Entries {
    /// In host memory.
    Memory(Coherent),
    /// In the controller memory buffer: its mapping, and the address that the controller uses.
    Buffer(Mmio, u64),
}

impl Entries {
    pub fn bus(&self) -> u64 {
        match self {
            Self::Memory(memory) => memory.bus.get(),
            Self::Buffer(_, bus) => *bus,
        }
    }
}

struct RingPair {
    submission: SubmissionRing,
    completion: CompletionRing,
    /// Tail value last written to the doorbell.
    rung: u16,
}

/// A queue pair.
pub(super) struct Queue {
    pub id: u16,
    pub entries: u16,
    pub submission: Entries,
    pub completion: Coherent,
    /// Register offsets of the two doorbells.
    doorbells: [u64; 2],
    /// Submission and completion locks. Each also covers the doorbell write, so that doorbells ring in order.
    locks: [SpinLock; 2],
    rings: RefCell<RingPair>,
    slots: RefCell<Vec<CommandSlot>>,
    free: RefCell<Vec<u16>>,
    pub parked: RefCell<VecDeque<Parked>>,
    /// Whether the queue exists in the controller.
    pub live: Cell<bool>,
}

/// Contents of a completion queue.
pub(super) struct Reaped {
    /// Completed commands.
    pub ended: Vec<(CompletionEntry, Work)>,
    /// Entries that name no command in flight.
    pub unknown: u64,
    /// Entries with an impossible submission queue head.
    pub wrong_heads: u64,
}

impl Queue {
    pub fn new(
        id: u16,
        entries: u16,
        submission: Entries,
        completion: Coherent,
        doorbells: [u64; 2],
    ) -> Self {
        // One ring entry always stays free.
        let slots = (entries - 1).min(1 << SLOT_BITS);
        Self {
            id,
            entries,
            submission,
            completion,
            doorbells,
            locks: Default::default(),
            rings: RefCell::new(Self::rings(entries)),
            slots: RefCell::new((0..slots).map(|_| CommandSlot::default()).collect()),
            free: RefCell::new((0..slots).rev().collect()),
            parked: RefCell::default(),
            live: Cell::new(false),
        }
    }

    fn rings(entries: u16) -> RingPair {
        RingPair {
            submission: SubmissionRing::new(entries),
            completion: CompletionRing::new(entries),
            rung: 0,
        }
    }

    /// Most commands in flight.
    pub fn depth(&self) -> u16 {
        self.slots.borrow().len() as u16
    }

    /// Commands in flight.
    pub fn in_flight(&self) -> usize {
        usize::from(self.depth()) - self.free.borrow().len()
    }

    /// Allocates a slot.
    pub fn take_slot(&self) -> Option<u16> {
        self.free.borrow_mut().pop()
    }

    /// Frees a slot that was not used.
    pub fn give_slot(&self, slot: u16) {
        self.free.borrow_mut().push(slot);
    }

    /// The slot's memory for PRP lists and SGLs.
    pub fn list(&self, cpu: &Cpu, dma: &dyn DmaOps, slot: u16) -> Result<Coherent, Error> {
        let slot = &mut self.slots.borrow_mut()[usize::from(slot)];
        match slot.list {
            Some(list) => Ok(list),
            None => Ok(*slot.list.insert(dma.alloc_coherent(cpu, platform::memory::PAGE, None)?)),
        }
    }

    /// Writes a command to the ring; [`ring`](Self::ring) announces it.
    pub fn push(&self, cpu: &Cpu, slot: u16, command: Command, work: Work) {
        let _held = self.locks[0].lock(cpu);
        let id = {
            let slots = &mut self.slots.borrow_mut();
            let entry = &mut slots[usize::from(slot)];
            entry.work = Some(work);
            entry.uses = entry.uses.wrapping_add(1) & (u16::MAX >> SLOT_BITS) as u8;
            u16::from(entry.uses) << SLOT_BITS | slot
        };
        let place = self.rings.borrow_mut().submission.push();
        // There are fewer slots than entries, and a slot is only freed after its entry was fetched.
        let at = u64::from(place.unwrap_or(0)) * wire::nvme::command::LEN as u64;
        let bytes = Command { id, ..command }.emit();
        match &self.submission {
            Entries::Memory(memory) => cpu.store(memory.cpu + at, &bytes),
            Entries::Buffer(buffer, _) => buffer.stream(cpu, at, &bytes),
        }
    }

    /// Rings the doorbell if there are new commands.
    pub fn ring(&self, cpu: &Cpu, registers: &Mmio) {
        let _held = self.locks[0].lock(cpu);
        let mut rings = self.rings.borrow_mut();
        let tail = rings.submission.tail();
        if rings.rung != tail {
            rings.rung = tail;
            // An uncached register write first drains the write-combining buffers.
            registers.write_u32(cpu, self.doorbells[0], tail.into());
        }
    }

    /// Takes all completions.
    pub fn reap(&self, cpu: &Cpu, registers: &Mmio) -> Reaped {
        let _held = self.locks[1].lock(cpu);
        let mut reaped = Reaped { ended: Vec::new(), unknown: 0, wrong_heads: 0 };
        let mut rings = self.rings.borrow_mut();
        let before = rings.completion.head();
        // Bounded: a faulty controller could fill the queue as fast as it is drained.
        for _ in 0..self.entries {
            let mut bytes = [0; COMPLETION_LEN];
            let at = u64::from(rings.completion.head()) * COMPLETION_LEN as u64;
            cpu.load(self.completion.cpu + at, &mut bytes);
            let Some(entry) = rings.completion.take(&bytes) else { break };
            if !rings.submission.completed(entry.submission_head) {
                reaped.wrong_heads += 1;
            }
            match self.take_work(&entry) {
                Some(work) => reaped.ended.push((entry, work)),
                None => reaped.unknown += 1,
            }
        }
        if rings.completion.head() != before {
            registers.write_u32(cpu, self.doorbells[1], rings.completion.head().into());
        }
        reaped
    }

    /// The work of the command that a completion names.
    fn take_work(&self, entry: &CompletionEntry) -> Option<Work> {
        let number = entry.id & ((1 << SLOT_BITS) - 1);
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(usize::from(number))?;
        if entry.submission_queue != self.id || u16::from(slot.uses) != entry.id >> SLOT_BITS {
            return None;
        }
        let work = slot.work.take()?;
        self.free.borrow_mut().push(number);
        Some(work)
    }

    /// Takes back all commands in flight. The controller must have dropped them.
    pub fn take_all(&self) -> Vec<Work> {
        let mut slots = self.slots.borrow_mut();
        let mut free = self.free.borrow_mut();
        let mut all = Vec::new();
        for (number, slot) in (0..).zip(slots.iter_mut()) {
            if let Some(work) = slot.work.take() {
                free.push(number);
                all.push(work);
            }
        }
        all
    }

    /// Marks the command of a block request as aborted. Returns its ID, and whether it was marked before.
    pub fn abort(&self, namespace: u32, tag: u16) -> Option<(u16, bool)> {
        let mut slots = self.slots.borrow_mut();
        for (number, slot) in (0u16..).zip(slots.iter_mut()) {
            if let Some(Work::Block(io)) = &mut slot.work
                && io.namespace == namespace
                && io.request.tag == tag
            {
                let before = std::mem::replace(&mut io.aborted, true);
                return Some((u16::from(slot.uses) << SLOT_BITS | number, before));
            }
        }
        None
    }

    /// Whether a block request is in flight.
    pub fn has(&self, namespace: u32, tag: u16) -> bool {
        self.slots.borrow().iter().any(|slot| {
            matches!(&slot.work, Some(Work::Block(io)) if io.namespace == namespace && io.request.tag == tag)
        })
    }

    /// Resets the rings, as the controller does in a reset.
    pub fn rewind(&self, cpu: &Cpu) {
        *self.rings.borrow_mut() = Self::rings(self.entries);
        let zeros = [0; 64];
        for at in (0..self.completion.length).step_by(zeros.len()) {
            let length = (self.completion.length - at).min(zeros.len() as u64) as usize;
            cpu.store(self.completion.cpu + at, &zeros[..length]);
        }
    }

    /// Frees the queue's memory.
    pub fn free_memory(&self, cpu: &Cpu, dma: &dyn DmaOps) {
        if let Entries::Memory(memory) = &self.submission {
            dma.free_coherent(cpu, *memory);
        }
        dma.free_coherent(cpu, self.completion);
        for list in self.slots.borrow_mut().iter_mut().filter_map(|slot| slot.list.take()) {
            dma.free_coherent(cpu, list);
        }
    }
}
