//! Errors detected by a function: logging in its registers and reporting to the root complex (base spec 6.2).

use wire::pcie::Bdf;
use wire::pcie::config::aer::{self, correctable, root_command, root_status, uncorrectable};
use wire::pcie::config::{ConfigSpace, header, pcie_cap};
use wire::pcie::tlp::MessageCode;

/// An error detected by a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Detected {
    /// A TLP arrived corrupted or out of sequence and is replayed.
    BadTlp,
    /// A DLLP arrived corrupted.
    BadDllp,
    /// The replay timer expired.
    ReplayTimeout,
    /// REPLAY_NUM rolled over after four replays: the link retrains.
    ReplayRollover,
    /// A poisoned TLP.
    Poisoned,
    /// ECRC mismatch: a TLP was corrupted between requester and completer, undetected by any link.
    Ecrc,
    /// A request timed out.
    CompletionTimeout,
    /// A completion without a request. Advisory: the requester detects the loss itself.
    UnexpectedCompletion,
    /// A malformed TLP.
    Malformed,
    /// An unsupported posted request.
    UnsupportedPosted,
    /// A request blocked by access control services.
    AcsViolation,
    /// An unsupported non-posted request. Advisory: its completion tells the requester.
    UnsupportedNonPosted,
}

/// Device status: correctable, non-fatal, fatal error and unsupported request detected. The bits at the same positions
/// of device control enable their reporting.
const CORRECTABLE: u16 = 1 << 0;
const NON_FATAL: u16 = 1 << 1;
const FATAL: u16 = 1 << 2;
const UNSUPPORTED: u16 = 1 << 3;

impl Detected {
    /// Bit in the correctable status register, for a correctable error.
    const fn correctable(self) -> Option<u32> {
        Some(match self {
            Self::BadTlp => correctable::BAD_TLP,
            Self::BadDllp => correctable::BAD_DLLP,
            Self::ReplayTimeout => correctable::REPLAY_TIMEOUT,
            Self::ReplayRollover => correctable::REPLAY_ROLLOVER,
            _ => return None,
        })
    }

    /// Bit in the uncorrectable status register.
    const fn uncorrectable(self) -> u32 {
        match self {
            Self::Poisoned => uncorrectable::POISONED,
            Self::Ecrc => uncorrectable::ECRC,
            Self::CompletionTimeout => uncorrectable::COMPLETION_TIMEOUT,
            Self::UnexpectedCompletion => uncorrectable::UNEXPECTED_COMPLETION,
            Self::Malformed => uncorrectable::MALFORMED,
            Self::AcsViolation => uncorrectable::ACS_VIOLATION,
            Self::UnsupportedPosted | Self::UnsupportedNonPosted => uncorrectable::UNSUPPORTED_REQUEST,
            Self::BadTlp | Self::BadDllp | Self::ReplayTimeout | Self::ReplayRollover => 0,
        }
    }

    const fn is_unsupported(self) -> bool {
        matches!(self, Self::UnsupportedPosted | Self::UnsupportedNonPosted)
    }

    /// Advisory unless fatal, as another agent is better placed to handle it (base spec 6.2.3.2.4).
    const fn is_advisory(self) -> bool {
        matches!(self, Self::UnexpectedCompletion | Self::UnsupportedNonPosted)
    }

    /// Logs the error in a function's registers. `tlp` is the TLP in error, if any. Returns the message to send to the
    /// root complex, if any (the flow of base spec figure 6-2).
    pub fn record(self, config: &mut ConfigSpace, tlp: Option<&[u8]>) -> Option<MessageCode> {
        if let Some(bit) = self.correctable() {
            return record_correctable(config, bit, CORRECTABLE);
        }
        let bit = self.uncorrectable();
        let advanced = config.aer_offset();
        let severity = advanced
            .map_or(uncorrectable::FATAL_BY_DEFAULT, |at| config.dword(at + aer::UNCORRECTABLE_SEVERITY));
        let fatal = severity & bit != 0;
        let unsupported = if self.is_unsupported() { UNSUPPORTED } else { 0 };
        if self.is_advisory() && !fatal {
            let message =
                record_correctable(config, correctable::ADVISORY_NON_FATAL, CORRECTABLE | unsupported);
            if advanced.is_none_or(|at| {
                config.dword(at + aer::CORRECTABLE_MASK) & correctable::ADVISORY_NON_FATAL != 0
            }) {
                return None;
            }
            log_uncorrectable(config, bit, tlp);
            return message.filter(|_| unsupported == 0 || enabled(config, UNSUPPORTED));
        }
        let kind = if fatal { FATAL } else { NON_FATAL };
        set_device_status(config, kind | unsupported);
        if !log_uncorrectable(config, bit, tlp) {
            return None;
        }
        let wanted = enabled(config, kind) && (unsupported == 0 || enabled(config, UNSUPPORTED));
        let system_error = config.read(header::COMMAND, 2) as u16 & header::COMMAND_SERR != 0;
        let message = if fatal { MessageCode::ERR_FATAL } else { MessageCode::ERR_NONFATAL };
        (wanted || system_error).then_some(message)
    }
}

/// Logs a correctable error.
fn record_correctable(config: &mut ConfigSpace, bit: u32, status: u16) -> Option<MessageCode> {
    set_device_status(config, status);
    if let Some(at) = config.aer_offset() {
        config.update(at + aer::CORRECTABLE_STATUS, 0, bit);
        if config.dword(at + aer::CORRECTABLE_MASK) & bit != 0 {
            return None;
        }
    }
    enabled(config, CORRECTABLE).then_some(MessageCode::ERR_COR)
}

/// Logs an uncorrectable error, with the TLP of the first one; `false` if it is masked.
fn log_uncorrectable(config: &mut ConfigSpace, bit: u32, tlp: Option<&[u8]>) -> bool {
    const FIRST_ERROR: u32 = 0x1f;
    let Some(at) = config.aer_offset() else { return true };
    let before = config.dword(at + aer::UNCORRECTABLE_STATUS);
    config.update(at + aer::UNCORRECTABLE_STATUS, 0, bit);
    let mask = config.dword(at + aer::UNCORRECTABLE_MASK);
    if mask & bit != 0 {
        return false;
    }
    if before & !mask == 0 {
        config.update(at + aer::CONTROL, FIRST_ERROR, bit.trailing_zeros());
        for (word, at) in (at + aer::HEADER_LOG..).step_by(4).take(4).enumerate() {
            // A header's first byte is the most significant of the register.
            let bytes = tlp.and_then(|tlp| tlp.get(4 * word..)?.first_chunk::<4>());
            config.update(at, u32::MAX, bytes.map_or(0, |&bytes| u32::from_be_bytes(bytes)));
        }
    }
    true
}

/// Records an error message in the registers of the root port that received it, with its source if it is the first of its
/// kind (base spec 7.8.4.10, 7.8.4.11).
pub(crate) fn collect(config: &mut ConfigSpace, source: Bdf, code: MessageCode) {
    let Some(aer) = config.aer_offset() else { return };
    let (first, more, source_shift) = match code {
        MessageCode::ERR_COR => (root_status::CORRECTABLE, root_status::MORE_CORRECTABLE, 0),
        _ => (root_status::UNCORRECTABLE, root_status::MORE_UNCORRECTABLE, 16),
    };
    let is_first = config.dword(aer + aer::ROOT_STATUS) & first == 0;
    let severity = match code {
        MessageCode::ERR_COR => 0,
        MessageCode::ERR_NONFATAL => root_status::NON_FATAL,
        MessageCode::ERR_FATAL if is_first => root_status::FATAL | root_status::FIRST_FATAL,
        MessageCode::ERR_FATAL => root_status::FATAL,
        _ => return,
    };
    if is_first {
        config.update(
            aer + aer::ROOT_SOURCE,
            0xffff << source_shift,
            u32::from(source.bits()) << source_shift,
        );
    }
    config.update(aer + aer::ROOT_STATUS, 0, severity | if is_first { first } else { more });
}

/// Whether a root port has recorded an error whose interrupt is enabled.
pub(crate) fn demands_interrupt(config: &ConfigSpace) -> bool {
    let Some(aer) = config.aer_offset() else { return false };
    let status = config.dword(aer + aer::ROOT_STATUS);
    let command = config.dword(aer + aer::ROOT_COMMAND);
    [
        (root_status::CORRECTABLE, root_command::CORRECTABLE),
        (root_status::NON_FATAL, root_command::NON_FATAL),
        (root_status::FATAL, root_command::FATAL),
    ]
    .iter()
    .any(|(reported, enabled)| status & reported != 0 && command & enabled != 0)
}

/// Whether device control enables reporting of a kind of error.
fn enabled(config: &ConfigSpace, kind: u16) -> bool {
    config.device_control() & kind != 0
}

fn set_device_status(config: &mut ConfigSpace, bits: u16) {
    if let Some(at) = config.pcie_offset() {
        // Control and status share a doubleword.
        config.update(at + pcie_cap::DEVICE_CONTROL, 0, u32::from(bits) << 16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::pcie::config::{PcieParams, examples};
    use wire::pcie::{Generation, Width};

    /// Device control: reporting of all four kinds.
    const ALL: u16 = 0xf;

    fn function(control: u16) -> ConfigSpace {
        let mut config = ConfigSpace::endpoint(0x1234, 0x5678, 0x02_0000)
            .pcie(PcieParams::endpoint(Generation::Gen3, Width::X8))
            .aer()
            .build()
            .unwrap();
        let at = config.pcie_offset().unwrap();
        config.update(at + pcie_cap::DEVICE_CONTROL, 0xf, control.into());
        config
    }

    fn advanced(config: &ConfigSpace, register: u16) -> u32 {
        config.dword(config.aer_offset().unwrap() + register)
    }

    fn status(config: &ConfigSpace) -> u16 {
        (config.dword(config.pcie_offset().unwrap() + pcie_cap::DEVICE_CONTROL) >> 16) as u16
    }

    #[test]
    fn each_error_has_its_bit_and_message() {
        let cases = [
            (Detected::BadTlp, Some(MessageCode::ERR_COR), CORRECTABLE),
            (Detected::BadDllp, Some(MessageCode::ERR_COR), CORRECTABLE),
            (Detected::ReplayTimeout, Some(MessageCode::ERR_COR), CORRECTABLE),
            (Detected::ReplayRollover, Some(MessageCode::ERR_COR), CORRECTABLE),
            (Detected::Poisoned, Some(MessageCode::ERR_NONFATAL), NON_FATAL),
            (Detected::Ecrc, Some(MessageCode::ERR_NONFATAL), NON_FATAL),
            (Detected::CompletionTimeout, Some(MessageCode::ERR_NONFATAL), NON_FATAL),
            (Detected::Malformed, Some(MessageCode::ERR_FATAL), FATAL),
            (Detected::UnsupportedPosted, Some(MessageCode::ERR_NONFATAL), NON_FATAL | UNSUPPORTED),
            // Advisory errors are masked after a reset.
            (Detected::UnsupportedNonPosted, None, CORRECTABLE | UNSUPPORTED),
            (Detected::UnexpectedCompletion, None, CORRECTABLE),
        ];
        for (error, message, bits) in cases {
            let mut config = function(ALL);
            assert_eq!(error.record(&mut config, None), message, "{error:?}");
            assert_eq!(status(&config), bits, "{error:?}");
        }
        assert_eq!([CORRECTABLE, NON_FATAL, FATAL, UNSUPPORTED], [1, 2, 4, 8]);
    }

    /// Bits of the status registers (base spec 7.8.4.2, 7.8.4.5), of correctable errors in the upper half here.
    #[test]
    fn each_error_is_kept_by_its_number() {
        for (error, bit) in [
            (Detected::BadTlp, 32 + 6),
            (Detected::BadDllp, 32 + 7),
            (Detected::ReplayRollover, 32 + 8),
            (Detected::ReplayTimeout, 32 + 12),
            (Detected::Poisoned, 12),
            (Detected::CompletionTimeout, 14),
            (Detected::Malformed, 18),
            (Detected::Ecrc, 19),
            (Detected::UnsupportedPosted, 20),
            (Detected::AcsViolation, 21),
        ] {
            let mut config = function(ALL);
            error.record(&mut config, None);
            let (correctable, uncorrectable) =
                (advanced(&config, aer::CORRECTABLE_STATUS), advanced(&config, aer::UNCORRECTABLE_STATUS));
            assert_eq!(u64::from(correctable) << 32 | u64::from(uncorrectable), 1 << bit, "{error:?}");
            let mut masked = function(ALL);
            let at = masked.aer_offset().unwrap();
            masked.update(at + aer::CORRECTABLE_MASK, 0, u32::MAX);
            masked.update(at + aer::UNCORRECTABLE_MASK, 0, u32::MAX);
            assert_eq!(error.record(&mut masked, None), None, "{error:?}");
        }
    }

    /// Base spec 6.2.3.2.4: if software unmasks advisory errors, both registers keep them and ERR_COR tells of them.
    #[test]
    fn an_advisory_error_is_told_where_software_wants_it() {
        let unmasked = |control| {
            let mut config = function(control);
            let at = config.aer_offset().unwrap();
            config.update(at + aer::CORRECTABLE_MASK, correctable::ADVISORY_NON_FATAL, 0);
            config
        };
        for (control, error, message) in [
            (ALL, Detected::UnexpectedCompletion, Some(MessageCode::ERR_COR)),
            (ALL & !UNSUPPORTED, Detected::UnexpectedCompletion, Some(MessageCode::ERR_COR)),
            (ALL & !CORRECTABLE, Detected::UnexpectedCompletion, None),
            (ALL, Detected::UnsupportedNonPosted, Some(MessageCode::ERR_COR)),
            (ALL & !UNSUPPORTED, Detected::UnsupportedNonPosted, None),
        ] {
            let mut config = unmasked(control);
            assert_eq!(error.record(&mut config, Some(&[7; 16])), message, "{control:#x} {error:?}");
            assert_eq!(advanced(&config, aer::CORRECTABLE_STATUS), correctable::ADVISORY_NON_FATAL);
            assert_eq!(advanced(&config, aer::UNCORRECTABLE_STATUS), error.uncorrectable());
            assert_eq!(advanced(&config, aer::HEADER_LOG), 0x0707_0707);
            let mut masked = function(control);
            assert_eq!(error.record(&mut masked, Some(&[7; 16])), None);
            assert_eq!(advanced(&masked, aer::UNCORRECTABLE_STATUS), 0);
        }
    }

    /// Base spec 7.5.1.1.3: SERR# Enable sends what device control does not.
    #[test]
    fn system_errors_are_sent_if_the_command_register_says_so() {
        for error in [Detected::Poisoned, Detected::Malformed, Detected::UnsupportedPosted] {
            let mut config = function(0);
            config.update(header::COMMAND, 0, 1 << 8);
            assert!(error.record(&mut config, None).is_some(), "{error:?}");
        }
        assert_eq!(Detected::BadTlp.record(&mut function(0), None), None);
        // Without AER, severities are those after a reset.
        let mut plain = ConfigSpace::endpoint(1, 2, 3)
            .pcie(PcieParams::endpoint(Generation::Gen3, Width::X8))
            .build()
            .unwrap();
        let at = plain.pcie_offset().unwrap();
        plain.update(at + pcie_cap::DEVICE_CONTROL, 0, ALL.into());
        assert_eq!(Detected::Malformed.record(&mut plain, None), Some(MessageCode::ERR_FATAL));
        assert_eq!(Detected::Poisoned.record(&mut plain, None), Some(MessageCode::ERR_NONFATAL));
        assert_eq!(Detected::UnexpectedCompletion.record(&mut plain, None), None);
    }

    #[test]
    fn nothing_is_sent_that_is_not_enabled_but_all_is_kept() {
        for error in [Detected::BadTlp, Detected::Poisoned, Detected::Malformed, Detected::UnsupportedPosted]
        {
            let mut config = function(0);
            assert_eq!(error.record(&mut config, None), None, "{error:?}");
            assert_ne!(status(&config), 0, "{error:?}");
        }
        let mut config = function(ALL & !UNSUPPORTED);
        assert_eq!(Detected::UnsupportedPosted.record(&mut config, None), None);
    }

    #[test]
    fn a_masked_error_is_kept_and_neither_logged_nor_sent() {
        let mut config = function(ALL);
        let at = config.aer_offset().unwrap();
        config.update(at + aer::UNCORRECTABLE_MASK, 0, uncorrectable::POISONED);
        assert_eq!(Detected::Poisoned.record(&mut config, Some(&[1; 16])), None);
        assert_eq!(advanced(&config, aer::UNCORRECTABLE_STATUS), uncorrectable::POISONED);
        assert_eq!(advanced(&config, aer::HEADER_LOG), 0);
    }

    #[test]
    fn the_first_errors_header_stays_until_it_is_cleared() {
        let mut config = function(ALL);
        let header: Vec<u8> = (1..=16).collect();
        Detected::Poisoned.record(&mut config, Some(&header));
        Detected::Malformed.record(&mut config, Some(&[0xff; 16]));
        assert_eq!(advanced(&config, aer::HEADER_LOG), 0x0102_0304);
        assert_eq!(advanced(&config, aer::HEADER_LOG + 12), 0x0d0e_0f10);
        assert_eq!(advanced(&config, aer::CONTROL) & 0x1f, 12, "first error pointer");
        assert_eq!(
            advanced(&config, aer::UNCORRECTABLE_STATUS),
            uncorrectable::POISONED | uncorrectable::MALFORMED
        );
    }

    #[test]
    fn severity_is_the_hosts_choice() {
        let mut config = function(ALL);
        let at = config.aer_offset().unwrap();
        config.update(at + aer::UNCORRECTABLE_SEVERITY, 0, uncorrectable::UNEXPECTED_COMPLETION);
        assert_eq!(
            Detected::UnexpectedCompletion.record(&mut config, None),
            Some(MessageCode::ERR_FATAL),
            "what is fatal is not advisory"
        );
    }

    #[test]
    fn a_root_port_keeps_the_first_message_and_counts_to_many() {
        let (a, b) = (Bdf::new(0x12, 3, 4), Bdf::new(0x56, 7, 1));
        let (correctable, non_fatal, fatal) =
            (MessageCode::ERR_COR, MessageCode::ERR_NONFATAL, MessageCode::ERR_FATAL);
        for (messages, status, sources) in [
            (&[(a, correctable)][..], 0b000_0001, 0x0000_121c),
            (&[(a, correctable), (b, correctable)], 0b000_0011, 0x0000_121c),
            (&[(a, non_fatal)], 0b010_0100, 0x121c_0000),
            (&[(a, non_fatal), (b, fatal)], 0b110_1100, 0x121c_0000),
            (&[(a, fatal)], 0b101_0100, 0x121c_0000),
            (&[(a, fatal), (b, non_fatal)], 0b111_1100, 0x121c_0000),
            (&[(a, fatal), (b, correctable)], 0b101_0101, 0x121c_5639),
            (&[(a, MessageCode::PM_PME)], 0, 0),
        ] {
            let mut config = examples::root_port();
            messages.iter().for_each(|&(source, code)| collect(&mut config, source, code));
            assert!(!demands_interrupt(&config));
            let found = [aer::ROOT_STATUS, aer::ROOT_SOURCE].map(|register| advanced(&config, register));
            assert_eq!(found, [status, sources], "{messages:?}");
        }
        for (command, expected) in
            [(1, [true, false, false]), (2, [false, true, false]), (4, [false, false, true])]
        {
            let interrupts = [correctable, non_fatal, fatal].map(|code| {
                let mut config = examples::root_port();
                config.write(config.aer_offset().unwrap() + aer::ROOT_COMMAND, command, 1);
                collect(&mut config, a, code);
                demands_interrupt(&config)
            });
            assert_eq!(interrupts, expected);
        }
        let mut plain = ConfigSpace::bridge(1, 2).build().unwrap();
        collect(&mut plain, a, fatal);
        assert!(!demands_interrupt(&plain));
    }
}
