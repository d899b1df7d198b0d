//! Registers of a controller (section 3.1).

use wire::nvme::registers as regs;
use wire::nvme::{AdminQueues, Capabilities, Configuration, ControllerStatus};

use super::host_memory::{HostMemory, replace_half};
use super::params::NvmeParams;
use super::queues::{CompletionQueue, SubmissionQueue};

/// Log2 of the largest page size in units of 4 KiB.
const MAX_PAGE_SHIFT: u8 = 4;

/// Registers whose values the controller keeps for the host.
#[derive(Default)]
pub(super) struct Registers {
    /// CC.
    pub configuration: Configuration,
    /// CSTS.
    pub status: ControllerStatus,
    admin: AdminQueues,
    admin_submission: u64,
    admin_completion: u64,
}

impl Registers {
    /// Current values of the registers up to the last one, with the interrupt mask and those of the memory buffer.
    pub fn emit(&self, params: &NvmeParams, mask: u32, memory: &HostMemory) -> [u8; 0x60] {
        let mut bytes = [0; 0x60];
        let mut put = |at: u64, value: &[u8]| {
            bytes[at as usize..at as usize + value.len()].copy_from_slice(value);
        };
        put(regs::CAP, &capabilities(params).to_bits().to_le_bytes());
        put(regs::VS, &regs::VERSION_1_4.to_le_bytes());
        put(regs::INTMS, &mask.to_le_bytes());
        put(regs::INTMC, &mask.to_le_bytes());
        put(regs::CC, &self.configuration.to_bits().to_le_bytes());
        put(regs::CSTS, &self.status.to_bits().to_le_bytes());
        put(regs::AQA, &self.admin.to_bits().to_le_bytes());
        put(regs::ASQ, &self.admin_submission.to_le_bytes());
        put(regs::ACQ, &self.admin_completion.to_le_bytes());
        put(regs::CMBMSC, &memory.control().to_bits().to_le_bytes());
        if let Some((location, size)) = memory.buffer_registers() {
            put(regs::CMBLOC, &location.to_bits().to_le_bytes());
            put(regs::CMBSZ, &size.to_bits().to_le_bytes());
        }
        bytes
    }

    /// Handles a write of one doubleword that changes nothing but these registers.
    pub fn write(&mut self, at: u64, value: u32) {
        let is_disabled = !self.configuration.enable;
        match at {
            // Write one to clear: "NSSRO" (section 3.1.6).
            regs::CSTS if value >> 4 & 1 == 1 => self.status.subsystem_reset = false,
            // The admin queue registers are only writable while the controller is disabled.
            regs::AQA if is_disabled => self.admin = AdminQueues::from_bits(value),
            _ if is_disabled && at & !4 == regs::ASQ => {
                self.admin_submission = replace_half(self.admin_submission, at, value) & !0xfff;
            }
            _ if is_disabled && at & !4 == regs::ACQ => {
                self.admin_completion = replace_half(self.admin_completion, at, value) & !0xfff;
            }
            _ => {}
        }
    }

    /// The admin queues as configured, or `None` if the controller cannot be enabled like this.
    pub fn admin_queues(&self) -> Option<(SubmissionQueue, CompletionQueue)> {
        let Configuration { arbitration, command_set, page_shift, .. } = self.configuration;
        let aligned = (self.admin_submission | self.admin_completion) % 4096 == 0;
        let sizes = self.admin.submission > 0 && self.admin.completion > 0;
        if !(arbitration == 0 && aligned && sizes && command_set == 0 && page_shift <= MAX_PAGE_SHIFT) {
            return None;
        }
        let entries = |last: u16| u32::from(last) + 1;
        Some((
            SubmissionQueue::new(self.admin_submission, entries(self.admin.submission), 0),
            CompletionQueue::new(self.admin_completion, entries(self.admin.completion), Some(0)),
        ))
    }

    /// Controller reset, which keeps CC, the admin queue registers and NSSRO (section 7.3.2).
    pub fn controller_reset(&mut self) {
        let subsystem_reset = self.status.subsystem_reset;
        self.status = ControllerStatus { subsystem_reset, ..ControllerStatus::default() };
    }
}

fn capabilities(params: &NvmeParams) -> Capabilities {
    Capabilities {
        max_queue_entries: (params.queue_entries - 1).min(0xffff) as u16,
        contiguous_queues: true,
        weighted_round_robin: false,
        timeout: 20,
        doorbell_stride: params.doorbell_stride,
        subsystem_reset: true,
        nvm_command_set: true,
        min_page_shift: 0,
        max_page_shift: MAX_PAGE_SHIFT,
        memory_buffer: params.memory_buffer > 0,
    }
}
