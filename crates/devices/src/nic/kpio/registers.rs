//! The registers of a function's kPIO queues.

use wire::kpio::signature;
use wire::nic::registers::{NO_VECTOR, kpio as register};

use super::Kpio;

/// What a queue has to do because its registers were written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// It was started or stopped.
    Running,
    /// The driver waits for lines.
    Armed,
    /// Nothing at once.
    Setting,
}

impl Kpio {
    /// Reads a register of a queue.
    pub fn register(&self, function: u8, queue: usize, at: u64) -> u32 {
        let queue = &self.functions[usize::from(function)][queue];
        match at {
            register::CONTROL => queue.control,
            register::STATUS if queue.running => register::RUNNING,
            register::FREED => queue.lines.freed(),
            register::VECTOR => queue.vector,
            register::ARM_AT => queue.armed.unwrap_or(0),
            register::NEXT => queue.lines.head(),
            register::REPORT_EVERY => queue.report_every,
            register::REPORT => queue.report_at as u32,
            0x14 => (queue.report_at >> 32) as u32,
            register::SIGNATURE => queue.signature as u32,
            0x1c => (queue.signature >> 32) as u32,
            register::DROPPED => queue.dropped() as u32,
            register::MISSING => queue.missing() as u32,
            _ => 0,
        }
    }

    /// Writes a register of a queue.
    pub fn set_register(&mut self, function: u8, queue: usize, at: u64, value: u32) -> Changed {
        let longest = self.longest;
        let queue = &mut self.functions[usize::from(function)][queue];
        let (low, high) = (u64::from(value), u64::from(value) << 32);
        match at {
            register::CONTROL => {
                let (was, is) = (queue.running, value & register::ENABLE != 0);
                if was != is {
                    queue.control = value;
                    queue.restart(is, longest);
                    return Changed::Running;
                }
            }
            register::REPORT_EVERY => queue.report_every = value,
            register::VECTOR => queue.vector = value,
            register::ARM_AT => {
                queue.armed = Some(value);
                return Changed::Armed;
            }
            _ if queue.running => {}
            register::REPORT => queue.report_at = queue.report_at & !0xffff_ffff | low,
            0x14 => queue.report_at = queue.report_at & 0xffff_ffff | high,
            register::SIGNATURE => queue.signature = queue.signature & !0xffff_ffff | low,
            0x1c => queue.signature = queue.signature & 0xffff_ffff | high,
            _ => {}
        }
        Changed::Setting
    }

    /// Stops all queues of a function and forgets what the driver set.
    pub fn reset(&mut self, function: u8) {
        for queue in self.functions.get_mut(usize::from(function)).into_iter().flatten() {
            queue.restart(false, 0);
            (queue.control, queue.report_at, queue.report_every) = (0, 0, 1);
            (queue.signature, queue.vector) = (signature::EOP, NO_VECTOR);
        }
    }

    /// What the NIC's register `KPIO` reads.
    pub fn limits(&self) -> u32 {
        let params = &self.params;
        u32::from(params.queues) | u32::from(params.log2_lines) << 8 | u32::from(params.log2_positions) << 16
    }
}
