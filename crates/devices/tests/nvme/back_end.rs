//! Interface of a test to the machine that contains the drive.

use devices::nvme::Nvme;
use platform::device::{FunctionIndex, Reset};
use platform::testing::Bench;
use units::Duration;

/// A host with the drive.
pub trait BackEnd {
    fn read(&mut self, address: u64, into: &mut [u8]);
    fn write(&mut self, address: u64, from: &[u8]);
    fn bar_read(&mut self, function: u8, bar: u8, offset: u64) -> u32;
    fn bar_write(&mut self, function: u8, bar: u8, offset: u64, data: &[u8]);
    fn run_for(&mut self, time: Duration);
    /// Vectors of the interrupts since the last call.
    fn interrupts(&mut self) -> Vec<u16>;
    /// A fundamental reset, followed by the host firmware's setup.
    fn reset(&mut self);
}

/// Bytes of host memory.
pub const MEMORY: usize = 8 << 20;

impl BackEnd for Bench<Nvme> {
    fn read(&mut self, address: u64, into: &mut [u8]) {
        let at = address as usize;
        into.copy_from_slice(&self.world.memory[at..at + into.len()]);
    }
    fn write(&mut self, address: u64, from: &[u8]) {
        let at = address as usize;
        self.world.memory[at..at + from.len()].copy_from_slice(from);
    }
    fn bar_read(&mut self, function: u8, bar: u8, offset: u64) -> u32 {
        let mut data = [0; 4];
        Bench::bar_read(self, FunctionIndex(function), bar, offset, &mut data);
        u32::from_le_bytes(data)
    }
    fn bar_write(&mut self, function: u8, bar: u8, offset: u64, data: &[u8]) {
        Bench::bar_write(self, FunctionIndex(function), bar, offset, data);
    }
    fn run_for(&mut self, time: Duration) {
        Bench::run_for(self, time);
    }
    fn interrupts(&mut self) -> Vec<u16> {
        self.world.interrupts.drain(..).map(|(_, vector)| vector).collect()
    }
    fn reset(&mut self) {
        Bench::reset(self, Reset::Fundamental);
    }
}
