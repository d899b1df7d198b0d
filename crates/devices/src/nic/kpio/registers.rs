//! The registers of a function's kPIO queues.

use platform::device::DeviceBus;
use wire::kpio::{Decoder, signature};
use wire::nic::registers::{NO_VECTOR, kpio as register};

use super::super::Nic;

impl Nic {
    /// Reads a register of a queue.
    pub(in crate::nic) fn kpio_register(&self, function: u8, queue: usize, at: u64) -> u32 {
        let state = &self.functions[usize::from(function)].kpio[queue];
        match at {
            register::CONTROL => state.control,
            register::STATUS if state.running => register::RUNNING,
            register::FREED => state.lines.freed(),
            register::VECTOR => state.vector,
            register::ARM_AT => state.armed.unwrap_or(0),
            register::NEXT => state.lines.head(),
            register::REPORT_EVERY => state.report_every,
            register::REPORT => state.report_at as u32,
            0x14 => (state.report_at >> 32) as u32,
            register::SIGNATURE => state.signature as u32,
            0x1c => (state.signature >> 32) as u32,
            register::DROPPED => state.dropped() as u32,
            register::MISSING => match &state.decoder {
                Decoder::Framed(decoder) => decoder.missing() as u32,
                Decoder::Signature(_) => 0,
            },
            _ => 0,
        }
    }

    /// Writes a register of a queue.
    pub(in crate::nic) fn set_kpio_register(
        &mut self,
        bus: &mut dyn DeviceBus,
        function: u8,
        queue: usize,
        at: u64,
        value: u32,
    ) {
        let longest = self.kpio_longest();
        let state = &mut self.functions[usize::from(function)].kpio[queue];
        let (low, high) = (u64::from(value), u64::from(value) << 32);
        match at {
            register::CONTROL => {
                let (was, is) = (state.running, value & register::ENABLE != 0);
                if was != is {
                    state.control = value;
                    state.restart(is, longest);
                    self.count_kpio();
                }
            }
            register::REPORT_EVERY => state.report_every = value,
            register::VECTOR => state.vector = value,
            register::ARM_AT => {
                state.armed = Some(value);
                self.kpio_drain(bus, function, queue as u8);
            }
            _ if state.running => {}
            register::REPORT => state.report_at = state.report_at & !0xffff_ffff | low,
            0x14 => state.report_at = state.report_at & 0xffff_ffff | high,
            register::SIGNATURE => state.signature = state.signature & !0xffff_ffff | low,
            0x1c => state.signature = state.signature & 0xffff_ffff | high,
            _ => {}
        }
    }

    /// Stops all kPIO queues of a function and forgets what the driver set.
    pub(in crate::nic) fn kpio_reset(&mut self, function: u8) {
        for state in &mut self.functions[usize::from(function)].kpio {
            state.restart(false, 0);
            (state.control, state.report_at, state.report_every) = (0, 0, 1);
            (state.signature, state.vector) = (signature::EOP, NO_VECTOR);
        }
        self.count_kpio();
    }

    /// Notes how many queues run at each port.
    fn count_kpio(&mut self) {
        for (port, mux) in self.muxes.iter_mut().enumerate() {
            let here = self.functions.iter().filter(|f| usize::from(f.port().0) == port);
            mux.queues = here.flat_map(|f| &f.kpio).filter(|queue| queue.running).count() as u16;
        }
    }

    /// What `KPIO` reads.
    pub(in crate::nic) fn kpio_limits(&self) -> u32 {
        self.params.kpio.map_or(0, |kpio| {
            u32::from(kpio.queues) | u32::from(kpio.log2_lines) << 8 | u32::from(kpio.log2_positions) << 16
        })
    }
}
