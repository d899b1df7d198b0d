//! The device's counters, kept across its resets.

use std::cell::RefCell;

use platform::cpu::Cpu;
use platform::mmio::Mmio;
use wire::nic::registers::{self as regs, counter};

/// Counters of the outcome of each transmit.
pub const SENDING: [usize; 3] = [counter::TX_FRAMES, counter::TX_ERRORS, counter::TX_NO_CARRIER];
/// Other counters that are reported.
pub const OTHERS: [usize; 6] = [
    counter::RX_NO_BUFFER,
    counter::RX_OVERFLOW,
    counter::RX_FCS_ERRORS,
    counter::RX_LENGTH_ERRORS,
    counter::RX_FILTERED,
    counter::RX_NO_QUEUE,
];

/// The device's counters, plus their sums before each reset.
pub struct Counted {
    registers: Mmio,
    /// Counters known to be zero. They are not read, as a read across the link takes long.
    silent: &'static [usize],
    /// Sums of the counters before the last reset.
    kept: RefCell<[u64; counter::COUNT]>,
}

impl Counted {
    pub fn new(registers: Mmio, silent: &'static [usize]) -> Self {
        Self { registers, silent, kept: RefCell::new([0; counter::COUNT]) }
    }

    /// Saves counters that a reset is about to clear.
    pub async fn keep(&self, cpu: &Cpu, places: &[usize]) {
        let mut counted = Vec::new();
        for &place in places {
            counted.push(self.read(cpu, place).await);
        }
        let mut kept = self.kept.borrow_mut();
        places.iter().zip(counted).for_each(|(&place, more)| kept[place] += more);
    }

    /// Totals since the driver was loaded. The device is not read if it is down, since nothing has changed.
    pub async fn sums<const N: usize>(&self, cpu: &Cpu, is_up: bool, places: [usize; N]) -> [u64; N] {
        let mut sums = places.map(|place| self.kept.borrow()[place]);
        if is_up {
            for (sum, place) in sums.iter_mut().zip(places) {
                *sum += self.read(cpu, place).await;
            }
        }
        sums
    }

    /// Total since the device was last reset.
    async fn read(&self, cpu: &Cpu, place: usize) -> u64 {
        if self.silent.contains(&place) {
            return 0;
        }
        let value = self.registers.read_u64(cpu, regs::COUNTERS + 8 * place as u64).await;
        // All ones: the device does not answer.
        if value == u64::MAX { 0 } else { value }
    }
}
