//! A queue pair: rings, doorbells and commands in flight.

use std::cell::{Cell, RefCell};

use platform::Error;
use platform::cpu::Cpu;
use platform::dma::{Coherent, DmaOps};
use platform::lock::SpinLock;
use platform::memory::PAGE;
use platform::mmio::Mmio;
use wire::nvme::command::LEN as COMMAND_LEN;
use wire::nvme::completion::LEN as COMPLETION_LEN;
use wire::nvme::registers::{completion_doorbell, submission_doorbell};
use wire::nvme::{Command, CompletionEntry, CompletionRing, SubmissionRing};

/// Low bits of a command ID: the slot. The upper bits count the slot's uses.
const SLOT_BITS: u16 = 12;

struct CommandSlot<W> {
    uses: u8,
    work: Option<W>,
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

struct RingPair {
    submission: SubmissionRing,
    completion: CompletionRing,
    /// Tail value last written to the doorbell.
    rung: u16,
}

/// A queue pair, with `W` for each command in flight.
pub(super) struct Queue<W> {
    id: u16,
    entries: u16,
    submission: Entries,
    completion: Coherent,
    /// Register offsets of the two doorbells.
    doorbells: [u64; 2],
    /// Submission and completion locks. Each also covers the doorbell write, so that doorbells ring in order.
    locks: [SpinLock; 2],
    rings: RefCell<RingPair>,
    slots: RefCell<Vec<CommandSlot<W>>>,
    free: RefCell<Vec<u16>>,
    /// Whether the queue exists in the controller.
    pub live: Cell<bool>,
    lost: Cell<bool>,
}

/// Contents of a completion queue.
pub(super) struct Reaped<W> {
    /// Completed commands.
    pub ended: Vec<(CompletionEntry, W)>,
    /// Entries that name no command in flight.
    pub unknown: u64,
    /// Entries with an impossible submission queue head.
    pub wrong_heads: u64,
}

impl<W> Default for Reaped<W> {
    fn default() -> Self {
        Self { ended: Vec::new(), unknown: 0, wrong_heads: 0 }
    }
}

impl<W> Reaped<W> {
    /// Number of entries.
    pub fn found(&self) -> usize {
        self.ended.len() + self.unknown as usize
    }
}

impl<W> Queue<W> {
    /// Allocates a queue pair. `place` is where the submission queue is, if not in host memory.
    pub fn new(
        cpu: &Cpu,
        dma: &dyn DmaOps,
        id: u16,
        entries: u16,
        stride: u8,
        place: Option<Entries>,
    ) -> Result<Self, Error> {
        // Queues must be page-aligned; coherent memory of less than a page may not be.
        let bytes = |entry: usize| (u64::from(entries) * entry as u64).next_multiple_of(PAGE);
        let completion = dma.alloc_coherent(cpu, bytes(COMPLETION_LEN), None)?;
        let submission = match place {
            Some(place) => place,
            None => match dma.alloc_coherent(cpu, bytes(COMMAND_LEN), None) {
                Ok(memory) => Entries::Memory(memory),
                Err(error) => {
                    dma.free_coherent(cpu, completion);
                    return Err(error);
                }
            },
        };
        // One ring entry always stays free.
        let slots = (entries - 1).min(1 << SLOT_BITS);
        Ok(Self {
            id,
            entries,
            submission,
            completion,
            doorbells: [submission_doorbell(id, stride), completion_doorbell(id, stride)],
            locks: Default::default(),
            rings: RefCell::new(Self::rings(entries)),
            slots: RefCell::new(
                (0..slots).map(|_| CommandSlot { uses: 0, work: None, list: None }).collect(),
            ),
            free: RefCell::new((0..slots).rev().collect()),
            live: Cell::new(false),
            lost: Cell::new(false),
        })
    }

    fn rings(entries: u16) -> RingPair {
        RingPair {
            submission: SubmissionRing::new(entries),
            completion: CompletionRing::new(entries),
            rung: 0,
        }
    }

    /// Queue identifier.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Entries of each ring.
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// Addresses of the submission and the completion queue, for the controller.
    pub fn bases(&self) -> (u64, u64) {
        let submission = match &self.submission {
            Entries::Memory(memory) => memory.bus.get(),
            Entries::Buffer(_, bus) => *bus,
        };
        (submission, self.completion.bus.get())
    }

    /// Whether the submission queue is in the controller memory buffer.
    pub fn is_in_buffer(&self) -> bool {
        matches!(self.submission, Entries::Buffer(..))
    }

    /// The controller is gone for good.
    pub fn lose(&self) {
        self.live.set(false);
        self.lost.set(true);
    }

    /// Whether the controller is gone for good.
    pub fn is_lost(&self) -> bool {
        self.lost.get()
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
            None => Ok(*slot.list.insert(dma.alloc_coherent(cpu, PAGE, None)?)),
        }
    }

    /// Writes a command to the ring; [`ring`](Self::ring) announces it.
    pub fn push(&self, cpu: &Cpu, slot: u16, command: Command, work: W) {
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
        let at = u64::from(place.unwrap_or(0)) * COMMAND_LEN as u64;
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
    pub fn reap(&self, cpu: &Cpu, registers: &Mmio) -> Reaped<W> {
        let _held = self.locks[1].lock(cpu);
        let mut reaped = Reaped::default();
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
    fn take_work(&self, entry: &CompletionEntry) -> Option<W> {
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
    pub fn take_all(&self) -> Vec<W> {
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

    /// Command ID and result of the first command in flight for which `meant` gives one.
    pub fn find<R>(&self, mut meant: impl FnMut(&mut W) -> Option<R>) -> Option<(u16, R)> {
        let mut slots = self.slots.borrow_mut();
        (0u16..).zip(slots.iter_mut()).find_map(|(number, slot)| {
            let result = meant(slot.work.as_mut()?)?;
            Some((u16::from(slot.uses) << SLOT_BITS | number, result))
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
