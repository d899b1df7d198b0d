//! The device's counters, kept across its resets.

use std::cell::RefCell;

use platform::cpu::Cpu;
use platform::mmio::Mmio;
use wire::nic::registers::{self as regs, counter};

/// Counters of the outcome of each transmit.
pub const SENDING: [usize; 5] = [
    counter::TX_FRAMES,
    counter::TX_ERRORS,
    counter::TX_NO_CARRIER,
    counter::KPIO_DROPPED,
    counter::KPIO_MISSING,
];
/// Other counters that are reported.
pub const OTHERS: [usize; 7] = [
    counter::RX_NO_BUFFER,
    counter::RX_OVERFLOW,
    counter::RX_FCS_ERRORS,
    counter::RX_LENGTH_ERRORS,
    counter::RX_FILTERED,
    counter::RX_NO_QUEUE,
    counter::KPIO_WAITS,
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
    pub async fn keep<const N: usize>(&self, cpu: &Cpu, places: [usize; N]) {
        let counted = self.read(cpu, places).await;
        let mut kept = self.kept.borrow_mut();
        places.into_iter().zip(counted).for_each(|(place, more)| kept[place] += more);
    }

    /// Totals since the driver was loaded. The device is not read if it is down, since nothing has changed.
    pub async fn sums<const N: usize>(&self, cpu: &Cpu, is_up: bool, places: [usize; N]) -> [u64; N] {
        let mut sums = places.map(|place| self.kept.borrow()[place]);
        if is_up {
            let now = self.read(cpu, places).await;
            sums.iter_mut().zip(now).for_each(|(sum, now)| *sum += now);
        }
        sums
    }

    /// Totals since the device was last reset.
    async fn read<const N: usize>(&self, cpu: &Cpu, places: [usize; N]) -> [u64; N] {
        let mut counted = [0; N];
        for (counted, place) in counted.iter_mut().zip(places) {
            if self.silent.contains(&place) {
                continue;
            }
            let value = self.registers.read_u64(cpu, regs::COUNTERS + 8 * place as u64).await;
            // All ones: the device does not answer.
            *counted = if value == u64::MAX { 0 } else { value };
        }
        counted
    }
}
