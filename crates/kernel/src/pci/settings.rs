//! Settings of functions that concern a whole hierarchy: TLP sizes, tags, isolation.

use std::rc::Rc;

use platform::cpu::Cpu;
use units::Duration;
use wire::pcie::config::caps::extended_id;
use wire::pcie::config::{acs, dpc, header, ltr, pcie_cap};

use super::function::Function;
use super::recovery::SETTLES;
use crate::dma::Dma;

/// Longest latency that devices may report (lspci of Intel workstations: Max snoop latency 3145728ns).
const LONGEST_LATENCY: Duration = Duration::from_ns(3_145_728);

/// Programs these settings.
pub(super) struct Settings {
    /// Max read request size (bytes).
    pub max_read_request: u32,
    /// Errors that ports contain.
    pub containment: dpc::TriggerEnable,
    pub dma: Rc<Dma>,
}

impl Settings {
    /// Makes a switch port redirect requests between devices below it to the root complex if an IOMMU is on to check
    /// them (Linux: `pci_enable_acs`). Records whether the port isolates completely.
    pub async fn isolate(&self, cpu: &Cpu, function: &Function) {
        const ALL: u16 = acs::SOURCE_VALIDATION
            | acs::REQUEST_REDIRECT
            | acs::COMPLETION_REDIRECT
            | acs::UPSTREAM_FORWARDING;
        let mut able = 0;
        if let Some(at) = function.access_control().filter(|_| self.dma.is_on()) {
            able = function.backend.read_u16(cpu, at + acs::CAPABILITY).await & ALL;
            function.backend.write_u16(cpu, at + acs::CONTROL, able).await;
        }
        if function.has_link_below() && function.bdf != function.root {
            function.isolates.set(able == ALL);
        }
    }

    /// Lets a function report the latency that it tolerates if all ports `above` it take that, the root port first (Linux:
    /// `pci_configure_ltr`).
    pub async fn report_latency(&self, cpu: &Cpu, above: &[Rc<Function>], function: &Function) {
        for port in above.iter().map(|port| &**port).chain([function]) {
            let Some(pcie) = port.pcie() else { return };
            let capabilities = port.backend.config_read(cpu, pcie + pcie_cap::DEVICE_CAPABILITIES_2).await;
            if capabilities & pcie_cap::CAPABILITIES_2_LATENCY == 0 {
                return;
            }
        }
        for port in above.iter().map(|port| &**port).chain([function]) {
            if !port.latency_path.replace(true) {
                self.enable_latency(cpu, port).await;
            }
        }
    }

    /// Enables reports of tolerated latency. What firmware leaves as their maximum is written here, too.
    pub async fn enable_latency(&self, cpu: &Cpu, function: &Function) {
        let Some(pcie) = function.pcie().filter(|_| function.latency_path.get()) else { return };
        if let Some(at) = function.extended_capability(extended_id::LTR) {
            let most = u32::from(ltr::encode(LONGEST_LATENCY));
            function.backend.config_write(cpu, at + ltr::MAX_SNOOP, most | most << 16, 0xf).await;
        }
        let at = pcie + pcie_cap::DEVICE_CONTROL_2;
        let control = function.backend.read_u16(cpu, at).await;
        function.backend.write_u16(cpu, at, control | pcie_cap::CONTROL_2_LATENCY).await;
    }

    /// Lets a port with error reporting contain errors below it, if it can (Linux: `dpc_enable`).
    pub async fn contain(&self, cpu: &Cpu, port: &Function) {
        let Some(at) = port.containment().filter(|_| port.aer().is_some()) else { return };
        let before = port.backend.read_u16(cpu, at + dpc::CONTROL).await & !dpc::CONTROL_TRIGGER;
        let control = before | self.containment as u16 | dpc::CONTROL_INTERRUPT;
        port.backend.write_u16(cpu, at + dpc::CONTROL, control).await;
    }

    /// Lets a port's link train again if an earlier kernel has left it contained.
    pub async fn release(&self, cpu: &Cpu, port: &Function) {
        let Some(at) = port.containment() else { return };
        if port.backend.read_u16(cpu, at + dpc::STATUS).await & dpc::STATUS_TRIGGERED != 0 {
            self.end_containment(cpu, port, at).await;
        }
    }

    /// Lets the link below a port that contains it train, and gives it time to; `at` is the capability's offset.
    pub async fn end_containment(&self, cpu: &Cpu, port: &Function, at: u16) {
        let done = dpc::STATUS_TRIGGERED | dpc::STATUS_INTERRUPT;
        port.backend.write_u16(cpu, at + dpc::STATUS, done).await;
        cpu.sleep(SETTLES).await;
    }

    /// Sets payload and read request sizes of a hierarchy, given without virtual functions, and enables memory decoding.
    pub async fn tune(&self, cpu: &Cpu, hierarchy: &[Rc<Function>]) {
        let mut payload = 4096;
        for function in hierarchy {
            if let Some(pcie) = function.pcie() {
                let caps = function.backend.config_read(cpu, pcie + pcie_cap::DEVICE_CAPABILITIES).await;
                payload = payload.min(pcie_cap::size_bytes(caps as u16));
            }
        }
        let answers_ten_bits = self.all_answer_ten_bits(cpu, hierarchy).await;
        for function in hierarchy {
            function.ten_bit_tags.set(answers_ten_bits);
            self.set_sizes(cpu, function, payload).await;
            let command = function.backend.read_u16(cpu, header::COMMAND).await;
            let bridge = if function.is_bridge() { header::COMMAND_BUS_MASTER } else { 0 };
            let on = header::COMMAND_MEMORY | header::COMMAND_INTX_DISABLE | bridge;
            function.backend.write_u16(cpu, header::COMMAND, command | on).await;
        }
    }

    /// Sets a function's payload and read request sizes, tags and error reporting.
    pub async fn set_sizes(&self, cpu: &Cpu, function: &Function, payload: u32) {
        let Some(pcie) = function.pcie() else { return };
        let at = pcie + pcie_cap::DEVICE_CONTROL;
        let code = |bytes| pcie_cap::size_code(bytes).unwrap_or(0);
        let capabilities = function.backend.config_read(cpu, pcie + pcie_cap::DEVICE_CAPABILITIES).await;
        let can_extend = capabilities & pcie_cap::CAPABILITIES_EXTENDED_TAGS != 0;
        let extended = if can_extend { pcie_cap::CONTROL_EXTENDED_TAGS } else { 0 };
        let before = function.backend.read_u16(cpu, at).await & !(7 << 5 | 7 << 12);
        // Report correctable, non-fatal and fatal errors and unsupported requests.
        let control = before | code(payload) << 5 | code(self.max_read_request) << 12 | extended | 0xf;
        function.backend.write_u16(cpu, at, control).await;
        function.max_payload.set(payload);
        let at = pcie + pcie_cap::DEVICE_CONTROL_2;
        let capabilities = function.backend.config_read(cpu, pcie + pcie_cap::DEVICE_CAPABILITIES_2).await;
        if capabilities & pcie_cap::CAPABILITIES_2_TEN_BIT_REQUESTER != 0 {
            let before = function.backend.read_u16(cpu, at).await & !pcie_cap::CONTROL_2_TEN_BIT_TAGS;
            let on = if function.ten_bit_tags.get() { pcie_cap::CONTROL_2_TEN_BIT_TAGS } else { 0 };
            function.backend.write_u16(cpu, at, before | on).await;
        }
    }

    /// Whether 10-bit tags may be used in a hierarchy: all possible completers must support them (base spec 2.2.6.2).
    async fn all_answer_ten_bits(&self, cpu: &Cpu, hierarchy: &[Rc<Function>]) -> bool {
        for function in hierarchy {
            let Some(pcie) = function.pcie() else { return false };
            let at = pcie + pcie_cap::DEVICE_CAPABILITIES_2;
            let capabilities = function.backend.config_read(cpu, at).await;
            if capabilities & pcie_cap::CAPABILITIES_2_TEN_BIT_COMPLETER == 0 {
                return false;
            }
        }
        true
    }
}
