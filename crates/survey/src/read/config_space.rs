//! A function's configuration space: what `lspci -x` dumps and sysfs has as `config`.

use wire::pcie::config::{caps, header};

use crate::fact::Origin;
use crate::pci::{AcsBits, BusRange, LaneSpeed, PciClass, PciFunction, PciNumber, PortKind};

/// Resizable BARs (base spec 7.8.6); `caps` has the others, which devices here have.
const RESIZABLE_BARS: u16 = 0x15;

/// What the bytes from address 0 on say, as many as there are; `None` if no function answered.
pub fn read(bytes: &[u8], source: usize, into: &mut PciFunction) -> Option<()> {
    let from = |what| Origin { source, what };
    let word = |at: u16| -> u32 {
        let at = usize::from(at & !3);
        bytes.get(at..at + 4).map_or(0, |four| u32::from_le_bytes(four.try_into().unwrap_or_default()))
    };
    let half = |at: u16| (word(at) >> (8 * (at & 2))) as u16;
    let byte = |at: u16| (word(at) >> (8 * (at & 3))) as u8;
    if bytes.len() < 64 || matches!(half(header::VENDOR), 0 | 0xffff) {
        return None;
    }
    into.vendor.set(PciNumber(half(header::VENDOR)), from("config, vendor"));
    into.device.set(PciNumber(half(header::DEVICE)), from("config, device"));
    into.revision.set(byte(header::REVISION), from("config, revision"));
    into.class.set(PciClass((word(header::REVISION) >> 16) as u16), from("config, class"));
    let is_bridge = byte(header::HEADER_TYPE) & 0x7f == 1;
    if is_bridge {
        let numbers = word(header::BUS_NUMBERS).to_le_bytes();
        let buses = BusRange { secondary: numbers[1], subordinate: numbers[2] };
        if buses.secondary != 0 {
            into.buses.set(buses, from("config, bus numbers"));
        }
    } else {
        let subsystem = word(header::SUBSYSTEM);
        if subsystem as u16 != 0 {
            into.subsystem_vendor.set(PciNumber(subsystem as u16), from("config, subsystem"));
            into.subsystem_device.set(PciNumber((subsystem >> 16) as u16), from("config, subsystem"));
        }
    }
    if half(header::STATUS) & header::STATUS_CAPABILITIES != 0 && bytes.len() >= 256 {
        if let Some(at) = caps::find(&word, caps::id::PCI_EXPRESS) {
            express(at, &half, &word, &from, into);
        }
        if let Some(at) = caps::find(&word, caps::id::MSIX) {
            into.msix_vectors.set(u32::from(half(at + 2) & 0x7ff) + 1, from("config, MSI-X"));
        }
    }
    if bytes.len() >= 4096 {
        extended(&half, &word, &from, into);
    }
    Some(())
}

/// The PCI Express capability (base spec 7.5.3).
fn express(
    at: u16,
    half: &dyn Fn(u16) -> u16,
    word: &dyn Fn(u16) -> u32,
    from: &dyn Fn(&'static str) -> Origin,
    into: &mut PciFunction,
) {
    let flags = half(at + 2);
    let kind = PortKind::from_bits((flags >> 4 & 0xf) as u8);
    if let Some(kind) = kind {
        into.kind.set(kind, from("PCIe capability"));
    }
    let payload = |bits: u32| (bits < 6).then(|| 128 << bits);
    let (can, control) = (word(at + 4), half(at + 8));
    if let Some(bytes) = payload(can & 7) {
        into.max_mps_bytes.set(bytes, from("DevCap"));
    }
    into.can_extend_tags.set(can >> 5 & 1 == 1, from("DevCap"));
    if let Some(bytes) = payload(u32::from(control >> 5 & 7)) {
        into.mps_bytes.set(bytes, from("DevCtl"));
    }
    if let Some(bytes) = payload(u32::from(control >> 12 & 7)) {
        into.mrrs_bytes.set(bytes, from("DevCtl"));
    }
    into.relaxed_ordering.set(control >> 4 & 1 == 1, from("DevCtl"));
    into.extended_tags.set(control >> 8 & 1 == 1, from("DevCtl"));
    into.no_snoop.set(control >> 11 & 1 == 1, from("DevCtl"));
    if kind != Some(PortKind::Integrated) {
        let (can, control, status) = (word(at + 12), half(at + 16), half(at + 18));
        let speed = |fact: &mut crate::fact::Sourced<LaneSpeed>, bits: u32, what| {
            if let Some(speed) = LaneSpeed::from_generation(bits) {
                fact.set(speed, from(what));
            }
        };
        speed(&mut into.max_speed, can & 0xf, "LnkCap");
        let width = can >> 4 & 0x3f;
        if width != 0 {
            into.max_width.set(width, from("LnkCap"));
        }
        let width = u32::from(status >> 4 & 0x3f);
        if width != 0 {
            speed(&mut into.speed, u32::from(status & 0xf), "LnkSta");
            into.width.set(width, from("LnkSta"));
        }
        into.rcb_bytes.set(if control >> 3 & 1 == 1 { 128 } else { 64 }, from("LnkCtl"));
    }
    // The second version of the capability has further registers.
    if flags & 0xf >= 2 {
        into.can_use_10_bit_tags.set(word(at + 36) >> 17 & 1 == 1, from("DevCap2"));
        into.ten_bit_tags.set(half(at + 40) >> 12 & 1 == 1, from("DevCtl2"));
    }
}

fn extended(
    half: &dyn Fn(u16) -> u16,
    word: &dyn Fn(u16) -> u32,
    from: &dyn Fn(&'static str) -> Origin,
    into: &mut PciFunction,
) {
    let find = |id| caps::find_extended(word, id).filter(|&at| at < 4096 - 64);
    if let Some(at) = find(caps::extended_id::ACS) {
        into.can_acs.set(AcsBits(half(at + 4) & 0x5f), from("ACSCap"));
        into.acs.set(AcsBits(half(at + 6) & 0x5f), from("ACSCtl"));
    }
    if let Some(at) = find(caps::extended_id::ATS) {
        into.ats.set(half(at + 6) >> 15 == 1, from("ATSCtl"));
    }
    if let Some(at) = find(caps::extended_id::SRIOV) {
        into.most_vfs.set(half(at + 14).into(), from("SR-IOV"));
        into.vfs.set(half(at + 16).into(), from("SR-IOV"));
        into.vf_offset.set(half(at + 20).into(), from("SR-IOV"));
        into.vf_stride.set(half(at + 22).into(), from("SR-IOV"));
    }
    into.resizable_bars.set(find(RESIZABLE_BARS).is_some(), from("config"));
}
