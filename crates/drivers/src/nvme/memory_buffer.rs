//! The controller memory buffer, used for submission queues (section 4.7).

use std::cell::Cell;

use platform::cpu::Cpu;
use platform::memory::PAGE;
use platform::mmio::MemoryType;
use wire::nvme::registers::{self as regs, MemoryBufferControl, MemoryBufferLocation, MemoryBufferSize};

use super::means::Means;
use super::queue::Entries;

/// The buffer, as a range of a BAR.
pub(super) struct MemoryBuffer {
    bar: u8,
    /// Offset and length in bytes.
    offset: u64,
    length: u64,
    /// The address that the controller uses.
    bus: u64,
    /// Bytes allocated.
    used: Cell<u64>,
}

impl MemoryBuffer {
    /// Finds the buffer, if there is one for submission queues, and sets its address.
    pub async fn find(cpu: &Cpu, means: &Means) -> Option<Self> {
        let registers = &means.registers;
        if !registers.capabilities.memory_buffer || !means.options.use_memory_buffer {
            return None;
        }
        let seen = MemoryBufferControl { registers: true, ..MemoryBufferControl::default() };
        registers.mmio.write_u64(cpu, regs::CMBMSC, seen.to_bits());
        let size = MemoryBufferSize::from_bits(registers.mmio.read_u32(cpu, regs::CMBSZ).await);
        let at = MemoryBufferLocation::from_bits(registers.mmio.read_u32(cpu, regs::CMBLOC).await);
        let bar = means.device.bar(at.bar).filter(|_| size.submission_queues)?;
        let offset = u64::from(at.offset) << (12 + 4 * u32::from(size.unit));
        let bus = bar.start.0 + offset;
        let buffer = Self { bar: at.bar, offset, length: size.bytes(), bus, used: Cell::new(0) };
        buffer.set_address(cpu, means);
        Some(buffer)
    }

    /// Sets the address by which the controller tells its buffer from host memory. A reset clears it.
    pub fn set_address(&self, cpu: &Cpu, means: &Means) {
        let on = MemoryBufferControl { registers: true, memory_space: true, base: self.bus };
        means.registers.mmio.write_u64(cpu, regs::CMBMSC, on.to_bits());
    }

    /// Allocates a submission queue, if it fits.
    pub fn allocate(&self, means: &Means, entries: u16) -> Option<Entries> {
        let used = self.used.get();
        let bytes = (u64::from(entries) * wire::nvme::command::LEN as u64).next_multiple_of(PAGE);
        if used + bytes > self.length {
            return None;
        }
        let mapping =
            means.device.ioremap(self.bar, self.offset + used, bytes, MemoryType::WriteCombining).ok()?;
        self.used.set(used + bytes);
        Some(Entries::Buffer(mapping, self.bus + used))
    }
}
