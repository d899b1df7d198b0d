//! The device's counters, kept across its resets.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::cpu::Cpu;
use platform::mmio::Mmio;
use wire::nic::registers::{self as regs, counter};

use super::counters::Counters;

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

/// The device's counters, plus their sums before each reset. They never go back, also when the device is gone: what it
/// has sent is then what the driver has seen completed.
pub struct Counted {
    registers: Mmio,
    driver: Rc<Counters>,
    /// Sums of the counters before the last reset.
    kept: RefCell<[u64; counter::COUNT]>,
    /// The counters since then, as last read.
    read: RefCell<[u64; counter::COUNT]>,
    /// Frames that the driver had seen completed at the last reset.
    completed_before: Cell<u64>,
    /// Times that counters were kept: what was read before that is not added again.
    kept_times: Cell<u64>,
}

impl Counted {
    pub fn new(registers: Mmio, driver: Rc<Counters>) -> Self {
        let zeros = || RefCell::new([0; counter::COUNT]);
        let (completed_before, kept_times) = Default::default();
        Self { registers, driver, kept: zeros(), read: zeros(), completed_before, kept_times }
    }

    /// Saves counters that a reset is about to clear.
    pub async fn keep(&self, cpu: &Cpu, places: &[usize]) {
        for &place in places {
            self.read(cpu, place).await;
        }
        for &place in places {
            let since = self.since_reset(place);
            self.kept.borrow_mut()[place] += since;
        }
        places.iter().for_each(|&place| self.read.borrow_mut()[place] = 0);
        self.kept_times.set(self.kept_times.get() + 1);
        if places.contains(&counter::TX_FRAMES) {
            self.completed_before.set(self.driver.tx_completed.get());
        }
    }

    /// Totals since the driver was loaded. The device is not read if it is down, since nothing has changed.
    pub async fn sums<const N: usize>(&self, cpu: &Cpu, is_up: bool, places: [usize; N]) -> [u64; N] {
        if !is_up {
            return places.map(|place| self.kept.borrow()[place] + self.since_reset(place));
        }
        for place in places {
            self.read(cpu, place).await;
        }
        places.map(|place| self.kept.borrow()[place] + self.read.borrow()[place])
    }

    /// What is known of a counter since the device was last reset.
    fn since_reset(&self, place: usize) -> u64 {
        let read = self.read.borrow();
        if place != counter::TX_FRAMES {
            return read[place];
        }
        // Completions do not say whether there was a carrier.
        let completed = self.driver.tx_completed.get() - self.completed_before.get();
        read[place].max(completed.saturating_sub(read[counter::TX_NO_CARRIER]))
    }

    /// Reads a counter.
    async fn read(&self, cpu: &Cpu, place: usize) {
        let kept_times = self.kept_times.get();
        let value = self.registers.read_u64(cpu, regs::COUNTERS + 8 * place as u64).await;
        // All ones: the device does not answer.
        if value != u64::MAX && kept_times == self.kept_times.get() {
            let known = &mut self.read.borrow_mut()[place];
            *known = value.max(*known);
        }
    }
}
