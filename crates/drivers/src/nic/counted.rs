//! What the device counts, over its resets too.

use std::cell::RefCell;

use platform::cpu::Cpu;
use platform::mmio::Mmio;
use wire::nic::registers::{self as regs, counter};

/// Counters that say what became of packets.
pub const SENDING: [usize; 5] = [
    counter::TX_FRAMES,
    counter::TX_ERRORS,
    counter::TX_NO_CARRIER,
    counter::KPIO_DROPPED,
    counter::KPIO_MISSING,
];
/// Others that are told.
pub const OTHERS: [usize; 7] = [
    counter::RX_NO_BUFFER,
    counter::RX_OVERFLOW,
    counter::RX_FCS_ERRORS,
    counter::RX_LENGTH_ERRORS,
    counter::RX_FILTERED,
    counter::RX_NO_QUEUE,
    counter::KPIO_WAITS,
];

/// The device's counters, and what they had come to before it was reset.
pub struct Counted {
    registers: Mmio,
    /// Those that are zero, as a read across the link is long.
    silent: &'static [usize],
    /// As far as they are read.
    kept: RefCell<[u64; counter::COUNT]>,
}

impl Counted {
    pub fn new(registers: Mmio, silent: &'static [usize]) -> Self {
        Self { registers, silent, kept: RefCell::new([0; counter::COUNT]) }
    }

    /// Keeps what a reset is about to clear.
    pub async fn keep<const N: usize>(&self, cpu: &Cpu, places: [usize; N]) {
        let counted = self.read(cpu, places).await;
        let mut kept = self.kept.borrow_mut();
        places.into_iter().zip(counted).for_each(|(place, more)| kept[place] += more);
    }

    /// What the device has counted since the driver came; one that is not up has nothing new.
    pub async fn sums<const N: usize>(&self, cpu: &Cpu, is_up: bool, places: [usize; N]) -> [u64; N] {
        let mut sums = places.map(|place| self.kept.borrow()[place]);
        if is_up {
            let now = self.read(cpu, places).await;
            sums.iter_mut().zip(now).for_each(|(sum, now)| *sum += now);
        }
        sums
    }

    /// What the device has counted since it was reset.
    async fn read<const N: usize>(&self, cpu: &Cpu, places: [usize; N]) -> [u64; N] {
        let mut counted = [0; N];
        for (counted, place) in counted.iter_mut().zip(places) {
            if self.silent.contains(&place) {
                continue;
            }
            let value = self.registers.read_u64(cpu, regs::COUNTERS + 8 * place as u64).await;
            // All ones: nobody answers.
            *counted = if value == u64::MAX { 0 } else { value };
        }
        counted
    }
}
