//! Memory and registers of a queue, TX or RX.

use std::rc::Rc;

use platform::cpu::{Cpu, Node};
use platform::dma::{Coherent, DmaOps};
use platform::mmio::Mmio;
use platform::{Error, memory::PhysAddr};
use wire::nic::Completion;
use wire::nic::completion::LEN;
use wire::nic::registers::{self as regs, queue};

/// The device wrote something invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken;

/// Descriptor ring, completion ring and their registers.
pub(super) struct Ring {
    dma: Rc<dyn DmaOps>,
    registers: Mmio,
    base: u64,
    descriptors: Coherent,
    completions: Coherent,
    pub log2: u8,
    /// Log2 of the distance between completions (bytes).
    stride: u8,
}

impl Ring {
    /// Allocates the descriptor and completion rings, each on a given node.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(
        cpu: &Cpu,
        dma: &Rc<dyn DmaOps>,
        registers: &Mmio,
        (first, number): (u64, u16),
        (log2, stride): (u8, u8),
        [node, of_completions]: [Node; 2],
    ) -> Result<Self, Error> {
        let descriptors = dma.alloc_coherent(cpu, (LEN as u64) << log2, Some(node))?;
        let completions =
            dma.alloc_coherent(cpu, 1 << (log2 + stride), Some(of_completions)).inspect_err(|_| {
                dma.free_coherent(cpu, descriptors);
            })?;
        let base = first + u64::from(number) * regs::QUEUE_STRIDE;
        Ok(Self {
            dma: Rc::clone(dma),
            registers: registers.clone(),
            base,
            descriptors,
            completions,
            log2,
            stride,
        })
    }

    /// Frees the memory. The device must have stopped.
    pub fn free(&self, cpu: &Cpu) {
        self.dma.free_coherent(cpu, self.descriptors);
        self.dma.free_coherent(cpu, self.completions);
    }

    pub fn entries(&self) -> u16 {
        1 << self.log2
    }

    /// Index in the ring for a running count.
    pub fn index(&self, count: u16) -> usize {
        usize::from(count) & (usize::from(self.entries()) - 1)
    }

    /// Passes the rings to the device and starts the queue.
    pub fn start(&self, cpu: &Cpu, vector: u16) {
        // Clear the ring, so that no old completion looks new: in the first round the owner bit is 1.
        cpu.store(self.completions.cpu, &vec![0; self.completions.length as usize]);
        let write = |register, value| self.registers.write_u32(cpu, self.base + register, value);
        write(queue::SIZE, self.log2.into());
        write(queue::VECTOR, vector.into());
        write(queue::STRIDE, self.stride.into());
        self.registers.write_u64(cpu, self.base + queue::RING, self.descriptors.bus.get());
        self.registers.write_u64(cpu, self.base + queue::COMPLETIONS, self.completions.bus.get());
        self.registers.write_u32(cpu, self.base + queue::CONTROL, queue::ENABLE | queue::TO_RING);
    }

    /// Gives an RX queue the number by which flow rules of the card name it.
    pub fn set_number(&self, cpu: &Cpu, number: u16) {
        self.registers.write_u32(cpu, self.base + queue::NUMBER, number.into());
    }

    pub fn stop(&self, cpu: &Cpu) {
        self.registers.write_u32(cpu, self.base + queue::CONTROL, 0);
    }

    /// Reads the queue's status; all ones if the device is gone.
    pub async fn status(&self, cpu: &Cpu) -> u32 {
        self.registers.read_u32(cpu, self.base + queue::STATUS).await
    }

    /// Reads how many descriptors the device has done. Their completions are in memory when this returns, since the
    /// read's answer cannot pass earlier writes.
    pub async fn head(&self, cpu: &Cpu) -> u16 {
        self.registers.read_u32(cpu, self.base + queue::HEAD).await as u16
    }

    /// Address of the descriptor for a count.
    pub fn descriptor(&self, count: u16) -> PhysAddr {
        self.descriptors.cpu + (self.index(count) * LEN) as u64
    }

    /// The completion for a count, if the device has written it.
    pub fn completion(&self, cpu: &Cpu, count: u16) -> Option<Completion> {
        let mut bytes = [0; LEN];
        cpu.load(self.inline_frame(count, 0), &mut bytes);
        let (completion, owner) = Completion::parse(&bytes);
        (owner == Completion::owner_in_ring(count, self.log2)).then_some(completion)
    }

    /// End of the completion slot for a count.
    fn slot_end(&self, count: u16) -> PhysAddr {
        self.completions.cpu + ((self.index(count) as u64 + 1) << self.stride)
    }

    /// Address of a frame stored in front of its completion.
    pub fn inline_frame(&self, count: u16, length: u16) -> PhysAddr {
        let before = LEN as u64 + u64::from(length);
        PhysAddr(self.slot_end(count).0 - before)
    }

    /// Longest frame that fits there (bytes).
    pub fn inline_room(&self) -> u16 {
        (1 << self.stride) - LEN as u16
    }

    /// Rings the doorbell.
    pub fn ring(&self, cpu: &Cpu, tail: u16) {
        self.registers.write_u32(cpu, self.base + queue::TAIL, tail.into());
    }

    /// Requests an interrupt once the device has done more than `seen`.
    pub fn arm(&self, cpu: &Cpu, seen: u16) {
        self.registers.write_u32(cpu, self.base + queue::ARM_AT, u32::from(seen) | queue::ARM);
    }
}
