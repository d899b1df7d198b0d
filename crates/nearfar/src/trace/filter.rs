//! Filters packets by type.

use hardware::link::{Packet, Passed};
use thiserror::Error;
use wire::pcie::{Dllp, Tlp, TlpKind};

/// The known types. `TLP` and `DLLP` stand for all packets of that kind, `MRd` for both address widths.
pub const TYPES: [&str; 23] = [
    "TLP", "DLLP", "MRd", "MRd(32)", "MRd(64)", "MWr", "MWr(32)", "MWr(64)", "Cpl", "CplD", "IORd", "IOWr",
    "CfgRd0", "CfgRd1", "CfgWr0", "CfgWr1", "Msg", "MsgD", "Ack", "Nak", "UpdateFC", "PM", "FC",
];

/// A set of packet types; the empty set selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Vec<&'static str>);

/// Error: an unknown packet type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no packet is of type `{0}`; there are {list}", list = TYPES.join(", "))]
pub struct UnknownType(String);

impl std::str::FromStr for Filter {
    type Err = UnknownType;

    /// Parses comma-separated names, ignoring case.
    fn from_str(text: &str) -> Result<Self, UnknownType> {
        let name = |name: &str| {
            let known = TYPES.iter().find(|known| known.eq_ignore_ascii_case(name.trim()));
            known.copied().ok_or_else(|| UnknownType(name.trim().to_owned()))
        };
        text.split(',').map(name).collect::<Result<_, _>>().map(Self)
    }
}

impl Filter {
    /// Whether a packet is of a selected type.
    pub fn shows(&self, passed: &Passed) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let (kind, all) = match &passed.packet {
            Packet::Tlp { bytes, .. } => (Tlp::parse(bytes).map_or("", |(tlp, _)| mnemonic(&tlp)), "TLP"),
            Packet::Dllp(bytes) => (Dllp::parse(bytes).map_or("", |dllp| family(&dllp)), "DLLP"),
        };
        // The type without width selects both forms of a memory request.
        let short = kind.split('(').next().unwrap_or(kind);
        self.0.iter().any(|&wanted| wanted == kind || wanted == all || wanted == short)
    }
}

fn family(dllp: &Dllp) -> &'static str {
    match dllp {
        Dllp::Ack(_) => "Ack",
        Dllp::Nak(_) => "Nak",
        Dllp::FlowControl(fc) if fc.kind == wire::pcie::dllp::FlowControlKind::Update => "UpdateFC",
        Dllp::FlowControl(_) => "FC",
        Dllp::PowerManagement(_) => "PM",
        Dllp::Feature { .. } | Dllp::Nop | Dllp::Vendor(_) => "DLLP",
    }
}

/// A TLP's abbreviated type; memory requests with their address width.
pub fn mnemonic(tlp: &Tlp) -> &'static str {
    use wire::pcie::tlp::ConfigType::Type0;
    match &tlp.kind {
        TlpKind::MemoryRead(r) if r.header_len() == 16 => "MRd(64)",
        TlpKind::MemoryRead(_) => "MRd(32)",
        TlpKind::MemoryWrite(r) if r.header_len() == 16 => "MWr(64)",
        TlpKind::MemoryWrite(_) => "MWr(32)",
        TlpKind::IoRead(_) => "IORd",
        TlpKind::IoWrite(_) => "IOWr",
        TlpKind::ConfigRead(r) if r.config_type == Type0 => "CfgRd0",
        TlpKind::ConfigRead(_) => "CfgRd1",
        TlpKind::ConfigWrite(r) if r.config_type == Type0 => "CfgWr0",
        TlpKind::ConfigWrite(_) => "CfgWr1",
        TlpKind::Message(m) if m.length_dw > 0 => "MsgD",
        TlpKind::Message(_) => "Msg",
        TlpKind::Completion(_) => "Cpl",
        TlpKind::CompletionData(_) => "CplD",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_any_case_and_wrong_ones_told() {
        assert_eq!("mrd, CPLD".parse(), Ok(Filter(vec!["MRd", "CplD"])));
        let error = "MRD,MWrr".parse::<Filter>().unwrap_err().to_string();
        assert!(error.contains("`MWrr`") && error.contains("MWr,"), "{error}");
    }
}
