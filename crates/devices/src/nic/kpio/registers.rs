//! Registers of a function's kPIO queues.

use wire::kpio::signature;
use wire::nic::registers::{self as regs, NO_VECTOR, kpio as register};

use super::Kpio;
use crate::nic::fields::block;

/// Action required after a register write.
pub enum Due {
    /// A queue was started or stopped: recount the running ones.
    Count,
    /// The driver waits for a queue's lines.
    Drain(u8),
    Nothing,
}

impl Kpio {
    /// Reads a function's register if it belongs to programmed I/O.
    pub fn register(&self, function: u8, at: u64) -> Option<u32> {
        let queues = self.functions.get(usize::from(function))?;
        if at == regs::KPIO {
            return Some(self.limits());
        }
        let (queue, at) = block(at, regs::KPIO_QUEUES, regs::KPIO_STRIDE, queues.len())?;
        let queue = &queues[queue];
        Some(match at {
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
        })
    }

    /// Writes a function's register if it belongs to a queue.
    pub fn set_register(&mut self, function: u8, at: u64, value: u32) -> Option<Due> {
        let longest = self.longest;
        let queues = self.functions.get_mut(usize::from(function))?;
        let (number, at) = block(at, regs::KPIO_QUEUES, regs::KPIO_STRIDE, queues.len())?;
        let queue = &mut queues[number];
        let (low, high) = (u64::from(value), u64::from(value) << 32);
        match at {
            register::CONTROL => {
                let (was, is) = (queue.running, value & register::ENABLE != 0);
                if was != is {
                    queue.control = value;
                    queue.restart(is, longest);
                    return Some(Due::Count);
                }
            }
            register::REPORT_EVERY => queue.report_every = value,
            register::VECTOR => queue.vector = value,
            register::ARM_AT => {
                queue.armed = Some(value);
                return Some(Due::Drain(number as u8));
            }
            register::NEXT if queue.running => {
                queue.settle();
                return Some(Due::Drain(number as u8));
            }
            _ if queue.running => {}
            register::REPORT => queue.report_at = queue.report_at & !0xffff_ffff | low,
            0x14 => queue.report_at = queue.report_at & 0xffff_ffff | high,
            register::SIGNATURE => queue.signature = queue.signature & !0xffff_ffff | low,
            0x1c => queue.signature = queue.signature & 0xffff_ffff | high,
            _ => {}
        }
        Some(Due::Nothing)
    }

    /// Stops all queues of a function and clears the driver's settings.
    pub fn reset(&mut self, function: u8) {
        for queue in self.functions.get_mut(usize::from(function)).into_iter().flatten() {
            queue.restart(false, 0);
            (queue.control, queue.report_at, queue.report_every) = (0, 0, 1);
            (queue.signature, queue.vector) = (signature::EOP, NO_VECTOR);
        }
    }

    /// Value of the NIC's `KPIO` register.
    fn limits(&self) -> u32 {
        let params = &self.params;
        u32::from(params.queues) | u32::from(params.log2_lines) << 8 | u32::from(params.log2_positions) << 16
    }
}
