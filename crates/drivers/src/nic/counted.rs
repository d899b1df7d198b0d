//! What the device counts, over its resets too.

use platform::cpu::Cpu;
use wire::nic::registers::{self as regs, counter};

use super::adapter::{Adapter, State};

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

impl Adapter {
    pub async fn keep<const N: usize>(&self, cpu: &Cpu, places: [usize; N]) {
        let counted = self.read_counters(cpu, places).await;
        let mut kept = self.kept.borrow_mut();
        places.into_iter().zip(counted).for_each(|(place, more)| kept[place] += more);
    }

    /// What the device has counted since the driver came.
    pub async fn counted<const N: usize>(&self, cpu: &Cpu, places: [usize; N]) -> [u64; N] {
        let mut sums = places.map(|place| self.kept.borrow()[place]);
        if self.state.get() == State::Up {
            let now = self.read_counters(cpu, places).await;
            sums.iter_mut().zip(now).for_each(|(sum, now)| *sum += now);
        }
        sums
    }

    /// What the device has counted since it was reset.
    async fn read_counters<const N: usize>(&self, cpu: &Cpu, places: [usize; N]) -> [u64; N] {
        let mut counted = [0; N];
        for (counted, place) in counted.iter_mut().zip(places) {
            if !self.can_count(place) {
                continue;
            }
            let value = self.registers.read_u64(cpu, regs::COUNTERS + 8 * place as u64).await;
            // All ones: nobody answers.
            *counted = if value == u64::MAX { 0 } else { value };
        }
        counted
    }

    /// Whether a counter can be anything but zero: a read across the link is long.
    fn can_count(&self, place: usize) -> bool {
        match place {
            counter::KPIO_DROPPED | counter::KPIO_WAITS => self.kpio.is_some(),
            // The other format has no numbers.
            counter::KPIO_MISSING => self.kpio.as_ref().is_some_and(|kpio| kpio.params.framed),
            _ => true,
        }
    }
}
