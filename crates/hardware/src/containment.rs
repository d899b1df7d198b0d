//! Downstream port containment: a port above an error takes its link down, and keeps it down until software lets it train (base
//! spec 2.9.3, 6.2.11). Root ports and switch ports share it.

use wire::pcie::Bdf;
use wire::pcie::config::ConfigSpace;
use wire::pcie::config::dpc::{self, Reason, TriggerEnable};
use wire::pcie::tlp::{CompletionStatus, MessageCode};

/// Control and status; zero without the capability, whose triggers are then off.
fn registers(config: &ConfigSpace) -> (u16, u16) {
    let Some(at) = config.containment_offset() else { return (0, 0) };
    ((config.dword(at + dpc::CAPABILITY) >> 16) as u16, config.dword(at + dpc::STATUS) as u16)
}

/// Whether the port contains what is below.
pub(crate) fn is_triggered(config: &ConfigSpace) -> bool {
    registers(config).1 & dpc::STATUS_TRIGGERED != 0
}

/// Whether software can trigger: it has enabled some trigger, and none is on.
pub(crate) fn is_armed(config: &ConfigSpace) -> bool {
    let (control, status) = registers(config);
    TriggerEnable::from_control(control) != TriggerEnable::Off && status & dpc::STATUS_TRIGGERED == 0
}

/// Why an error message, from below or for an error that the port itself detected, triggers; `None` if it does not.
pub(crate) fn reason(config: &ConfigSpace, code: MessageCode) -> Option<Reason> {
    let enabled = TriggerEnable::from_control(registers(config).0);
    match code {
        _ if !is_armed(config) => None,
        MessageCode::ERR_FATAL => Some(Reason::Fatal),
        MessageCode::ERR_NONFATAL if enabled == TriggerEnable::NonFatal => Some(Reason::NonFatal),
        _ => None,
    }
}

/// Records that the port contains what is below from now on. `source` sent the message, or is the port.
pub(crate) fn trigger(config: &mut ConfigSpace, reason: Reason, source: Bdf) {
    let Some(at) = config.containment_offset() else { return };
    let (control, status) = registers(config);
    let interrupt = if control & dpc::CONTROL_INTERRUPT != 0 { dpc::STATUS_INTERRUPT } else { 0 };
    let status = status & !dpc::STATUS_NEW | dpc::STATUS_TRIGGERED | interrupt | reason.bits();
    config.update(at + dpc::STATUS, u32::MAX, u32::from(status) | u32::from(source.bits()) << 16);
}

/// Whether it has an interrupt to send.
pub(crate) fn demands_interrupt(config: &ConfigSpace) -> bool {
    let (control, status) = registers(config);
    control & dpc::CONTROL_INTERRUPT != 0 && status & dpc::STATUS_INTERRUPT != 0
}

/// How the port completes requests to below while it contains that; `None` if it does not.
pub(crate) fn completes_as(config: &ConfigSpace) -> Option<CompletionStatus> {
    let (control, _) = registers(config);
    is_triggered(config).then_some(match control & dpc::CONTROL_UNSUPPORTED {
        0 => CompletionStatus::CompleterAbort,
        _ => CompletionStatus::UnsupportedRequest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::pcie::config::{PcieParams, PortType};
    use wire::pcie::{Generation, Width};

    fn port() -> ConfigSpace {
        ConfigSpace::bridge(1, 2)
            .pcie(PcieParams::port(PortType::DownstreamPort, Generation::Gen3, Width::X8))
            .aer()
            .containment()
            .build()
            .unwrap()
    }

    fn control(config: &mut ConfigSpace, value: u16) {
        config.write(config.containment_offset().unwrap() + dpc::CAPABILITY, u32::from(value) << 16, 0b1100);
    }

    const ALL: [MessageCode; 3] = [MessageCode::ERR_COR, MessageCode::ERR_NONFATAL, MessageCode::ERR_FATAL];

    /// Base spec 7.9.14.3, bits 1:0.
    #[test]
    fn the_enabled_errors_trigger_and_no_others() {
        let (some, fatal) = (Some(Reason::NonFatal), Some(Reason::Fatal));
        for (value, expected) in
            [(0b00, [None; 3]), (0b01, [None, None, fatal]), (0b10, [None, some, fatal]), (0b11, [None; 3])]
        {
            let mut port = port();
            control(&mut port, value);
            assert_eq!(ALL.map(|code| reason(&port, code)), expected, "{value:#b}");
            assert_eq!(is_armed(&port), expected[2].is_some());
        }
        let plain = ConfigSpace::bridge(1, 2).build().unwrap();
        assert_eq!(ALL.map(|code| reason(&plain, code)), [None; 3]);
        assert!(!is_triggered(&plain) && !demands_interrupt(&plain) && completes_as(&plain).is_none());
    }

    /// Base spec 7.9.14.4 and 7.9.14.5: bit 0 trigger, bits 2:1 reason, bit 3 interrupt, bits 6:5 the reason's extension; the source
    /// in the upper half.
    #[test]
    fn the_status_tells_why_and_who() {
        let source = Bdf::new(0x12, 3, 4);
        for (value, why, status) in [
            (0b0001, Reason::Detected, 0x01),
            (0b1001, Reason::NonFatal, 0x0b),
            (0b1001, Reason::Fatal, 0x0d),
            (0b1001, Reason::Software, 0x2f),
            (0b0101, Reason::Other, 0x47),
        ] {
            let mut port = port();
            let at = port.containment_offset().unwrap() + dpc::STATUS;
            control(&mut port, value);
            trigger(&mut port, why, source);
            assert_eq!(port.dword(at), 0x121c_0000 | status, "{why:?}");
            assert_eq!(Reason::from_status(port.dword(at) as u16), why);
            assert_eq!(demands_interrupt(&port), value & 8 != 0);
            assert!(is_triggered(&port) && !is_armed(&port));
            assert_eq!(reason(&port, MessageCode::ERR_FATAL), None, "it triggers once");
            let unsupported = value & 4 != 0;
            assert_eq!(completes_as(&port) == Some(CompletionStatus::UnsupportedRequest), unsupported);
            port.write(at, 1 | 1 << 3, 0b0011);
            assert!(!is_triggered(&port) && !demands_interrupt(&port) && is_armed(&port));
        }
    }
}
