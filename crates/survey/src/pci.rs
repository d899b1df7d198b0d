//! PCI functions: addresses, identities, links, and what they may do.

use std::fmt;
use std::str::FromStr;

use wire::pcie::Bdf;
use wire::pcie::config::acs;

use crate::fact::facts;
use crate::numbers::NumberSet;

/// Segment, bus, device and function: `0000:03:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    /// The segment. Those of volume management devices have more than 16 bits.
    pub segment: u32,
    /// Bus, device and function.
    pub bdf: Bdf,
}

impl FromStr for PciAddress {
    type Err = ();

    /// Takes `03:00.0`, `0000:03:00.0` and nvidia-smi's `00000000:03:00.0`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str, digits: usize| match text.len() {
            1.. if text.len() <= digits && text.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                u32::from_str_radix(text, 16).map_err(drop)
            }
            _ => Err(()),
        };
        let (rest, function) = text.rsplit_once('.').ok_or(())?;
        let (rest, device) = rest.rsplit_once(':').ok_or(())?;
        let (segment, bus) = rest.split_once(':').unwrap_or(("0", rest));
        let (bus, device, function) = (number(bus, 2)?, number(device, 2)?, number(function, 1)?);
        if device > 31 || function > 7 {
            return Err(());
        }
        Ok(Self { segment: number(segment, 8)?, bdf: Bdf::new(bus as u8, device as u8, function as u8) })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{}", self.segment, self.bdf)
    }
}

/// A vendor's or a device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciNumber(pub u16);

impl fmt::Display for PciNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

/// Base class and subclass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciClass(pub u16);

/// Classes by number, with lspci's names.
const CLASSES: [(u16, &str); 53] = [
    (0x0001, "VGA compatible unclassified device"),
    (0x0100, "SCSI storage controller"),
    (0x0101, "IDE interface"),
    (0x0104, "RAID bus controller"),
    (0x0105, "ATA controller"),
    (0x0106, "SATA controller"),
    (0x0107, "Serial Attached SCSI controller"),
    (0x0108, "Non-Volatile memory controller"),
    (0x0180, "Mass storage controller"),
    (0x0200, "Ethernet controller"),
    (0x0207, "Infiniband controller"),
    (0x0207, "InfiniBand controller"),
    (0x0208, "Fabric controller"),
    (0x0280, "Network controller"),
    (0x0300, "VGA compatible controller"),
    (0x0302, "3D controller"),
    (0x0380, "Display controller"),
    (0x0400, "Multimedia video controller"),
    (0x0401, "Multimedia audio controller"),
    (0x0403, "Audio device"),
    (0x0480, "Multimedia controller"),
    (0x0500, "RAM memory"),
    (0x0502, "CXL"),
    (0x0580, "Memory controller"),
    (0x0600, "Host bridge"),
    (0x0601, "ISA bridge"),
    (0x0604, "PCI bridge"),
    (0x0609, "Semi-transparent PCI-to-PCI bridge"),
    (0x060a, "InfiniBand to PCI host bridge"),
    (0x0680, "Bridge"),
    (0x0700, "Serial controller"),
    (0x0703, "Modem"),
    (0x0780, "Communication controller"),
    (0x0800, "PIC"),
    (0x0801, "DMA controller"),
    (0x0802, "Timer"),
    (0x0805, "SD Host controller"),
    (0x0806, "IOMMU"),
    (0x0880, "System peripheral"),
    (0x0b40, "Co-processor"),
    (0x0c03, "USB controller"),
    (0x0c04, "Fibre Channel"),
    (0x0c05, "SMBus"),
    (0x0c06, "InfiniBand"),
    (0x0c07, "IPMI Interface"),
    (0x0d00, "IRDA controller"),
    (0x0d11, "Bluetooth"),
    (0x1000, "Network and computing encryption device"),
    (0x1080, "Encryption controller"),
    (0x1101, "Performance counters"),
    (0x1180, "Signal processing controller"),
    (0x1200, "Processing accelerators"),
    (0x1300, "Non-Essential Instrumentation"),
];

impl PciClass {
    /// The class of that name in lspci's words.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        CLASSES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|&(code, _)| Self(code))
    }

    /// lspci's name for it.
    pub fn name(self) -> &'static str {
        CLASSES.iter().find(|(code, _)| *code == self.0).map_or("device", |(_, name)| name)
    }

    /// A bridge from one bus to others.
    pub fn is_bridge(self) -> bool {
        matches!(self.0, 0x0604 | 0x0609)
    }

    /// A network or fabric controller.
    pub fn is_network(self) -> bool {
        self.0 >> 8 == 0x02 || self.0 == 0x0c06
    }

    /// A GPU or another accelerator.
    pub fn is_accelerator(self) -> bool {
        matches!(self.0, 0x0302 | 0x0380 | 0x0b40 | 0x1200)
    }

    /// An NVMe controller.
    pub fn is_nvme(self) -> bool {
        self.0 == 0x0108
    }

    /// Other storage.
    pub fn is_storage(self) -> bool {
        self.0 >> 8 == 0x01
    }
}

impl fmt::Display for PciClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

/// What a function is to PCI Express: its port type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortKind {
    /// A device, as PCI Express or older ones have them.
    Endpoint,
    /// A device within the root complex, without a link.
    Integrated,
    /// A port of a root complex.
    RootPort,
    /// A switch's port towards the root.
    Upstream,
    /// A switch's port away from the root.
    Downstream,
    /// A bridge to or from another bus.
    Bridge,
}

impl PortKind {
    /// By the four bits of the PCI Express capability (base spec 7.5.3.2).
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 | 1 => Self::Endpoint,
            4 => Self::RootPort,
            5 => Self::Upstream,
            6 => Self::Downstream,
            7 | 8 => Self::Bridge,
            9 | 10 => Self::Integrated,
            _ => return None,
        })
    }
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Endpoint => "endpoint",
            Self::Integrated => "integrated endpoint",
            Self::RootPort => "root port",
            Self::Upstream => "upstream port",
            Self::Downstream => "downstream port",
            Self::Bridge => "bridge",
        })
    }
}

/// The rate of a lane, by the generation that brought it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneSpeed(u8);

/// Transfers per second of each generation, in tenths of GT/s.
const TENTHS: [u32; 6] = [25, 50, 80, 160, 320, 640];

impl LaneSpeed {
    /// Generation 1 to 6.
    pub fn from_generation(generation: u32) -> Option<Self> {
        (1..=6).contains(&generation).then_some(Self(generation as u8))
    }

    /// The generation, 1 to 6.
    pub fn generation(self) -> u32 {
        self.0.into()
    }

    /// GB/s of a lane, after line encoding.
    pub fn lane_gb_per_s(self) -> f64 {
        let rate = f64::from(TENTHS[usize::from(self.0) - 1]) / 80.0;
        match self.0 {
            1 | 2 => rate * 0.8,
            3..=5 => rate * 128.0 / 130.0,
            _ => rate,
        }
    }

    /// `8GT/s`, `8.0 GT/s PCIe`, `2.5 GT/s`.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let rate: f64 = text.split("GT/s").next()?.trim().parse().ok()?;
        let place = TENTHS.iter().position(|&tenths| (f64::from(tenths) - rate * 10.0).abs() < 0.5)?;
        Self::from_generation(place as u32 + 1)
    }
}

impl fmt::Display for LaneSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = TENTHS[usize::from(self.0) - 1];
        match tenths % 10 {
            0 => write!(f, "{} GT/s", tenths / 10),
            part => write!(f, "{}.{part} GT/s", tenths / 10),
        }
    }
}

/// Bits of access control services, those that are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcsBits(pub u16);

/// In lspci's words.
const ACS: [(u16, &str); 6] = [
    (acs::SOURCE_VALIDATION, "SrcValid"),
    (acs::TRANSLATION_BLOCKING, "TransBlk"),
    (acs::REQUEST_REDIRECT, "ReqRedir"),
    (acs::COMPLETION_REDIRECT, "CmpltRedir"),
    (acs::UPSTREAM_FORWARDING, "UpstreamFwd"),
    (acs::DIRECT_TRANSLATED, "DirectTrans"),
];

impl AcsBits {
    /// `SrcValid+ TransBlk- ...`.
    pub(crate) fn from_text(text: &str) -> Self {
        let is_set = |name: &str| text.split_whitespace().any(|word| word.strip_suffix('+') == Some(name));
        Self(ACS.iter().filter(|(_, name)| is_set(name)).map(|(bit, _)| bit).sum())
    }

    /// Whether requests of one port to another one's device are sent to the root.
    pub fn redirects(self) -> bool {
        self.0 & acs::REQUEST_REDIRECT != 0
    }
}

impl fmt::Display for AcsBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set: Vec<_> =
            ACS.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, name)| format!("{name}+")).collect();
        f.write_str(if set.is_empty() { "none".into() } else { set.join(" ") }.as_str())
    }
}

/// The buses below a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusRange {
    /// The bus directly below.
    pub secondary: u8,
    /// The last one.
    pub subordinate: u8,
}

impl fmt::Display for BusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}-{:02x}", self.secondary, self.subordinate)
    }
}

facts! {
    /// A PCI function, as far as it is known.
    pub struct PciFunction {
        /// Base class and subclass.
        class: PciClass,
        /// Vendor.
        vendor: PciNumber,
        /// Device.
        device: PciNumber,
        /// Vendor of the board.
        subsystem_vendor: PciNumber,
        /// The board.
        subsystem_device: PciNumber,
        /// Revision.
        revision: u8,
        /// Vendor and device in words.
        name: String,
        /// Firmware's name for it.
        label: String,
        /// The driver that has it.
        driver: String,
        /// Port type.
        kind: PortKind,
        /// The bridge above it.
        parent: PciAddress,
        /// The buses below it.
        buses: BusRange,
        /// Rate of its link's lanes, as negotiated.
        speed: LaneSpeed,
        /// Width of its link, as negotiated.
        width: u32,
        /// The highest rate that it can have.
        max_speed: LaneSpeed,
        /// The greatest width that it can have.
        max_width: u32,
        /// What its link carries as negotiated, where rate and width are not told, GB/s.
        link_gb_per_s: f64,
        /// Maximum payload, as set, bytes.
        mps_bytes: u32,
        /// Maximum payload that it can have, bytes.
        max_mps_bytes: u32,
        /// Maximum read request, as set, bytes.
        mrrs_bytes: u32,
        /// Read completion boundary, bytes.
        rcb_bytes: u32,
        /// Whether it can have 8-bit tags.
        can_extend_tags: bool,
        /// Whether 8-bit tags are enabled.
        extended_tags: bool,
        /// Whether it can ask with 10-bit tags.
        can_use_10_bit_tags: bool,
        /// Whether 10-bit tags are enabled.
        ten_bit_tags: bool,
        /// Whether it may set the relaxed-ordering attribute.
        relaxed_ordering: bool,
        /// Whether it may set the no-snoop attribute.
        no_snoop: bool,
        /// Access control services that it has.
        can_acs: AcsBits,
        /// Access control services that are on.
        acs: AcsBits,
        /// Whether it may ask the IOMMU for translations, if it can.
        ats: bool,
        /// Whether it has resizable BARs.
        resizable_bars: bool,
        /// Virtual functions that it can have.
        most_vfs: u32,
        /// Virtual functions that are enabled.
        vfs: u32,
        /// Distance of its first virtual function's number from its own.
        vf_offset: u32,
        /// Distance of one virtual function from the next.
        vf_stride: u32,
        /// The physical function of a virtual one.
        physical: PciAddress,
        /// NUMA node; -1 if firmware does not say.
        node: i32,
        /// The CPUs near it.
        local_cpus: NumberSet,
        /// IOMMU group.
        iommu_group: u32,
        /// How the IOMMU treats its group: identity, DMA, DMA-FQ.
        iommu_mode: String,
        /// Its interrupts by message.
        msi_irqs: NumberSet,
        /// Interrupt messages that it can have.
        msix_vectors: u32,
    }
}

impl PciFunction {
    /// What the negotiated link carries, GB/s each way; `None` if it is not known.
    pub fn gb_per_s(&self) -> Option<f64> {
        let by_lanes = self.speed.value().zip(self.width.value());
        let by_lanes = by_lanes.map(|(speed, width)| speed.lane_gb_per_s() * f64::from(width));
        by_lanes.or(self.link_gb_per_s.value())
    }

    /// Rate and width of a link that carries what is told of it: of the likely generation, or the next below, or the next above.
    pub(crate) fn assumed_link(&self, likely: u32) -> Option<(LaneSpeed, u32)> {
        let told = self.link_gb_per_s.value()?;
        let order = (1..=likely.min(6)).rev().chain(likely + 1..=6).filter_map(LaneSpeed::from_generation);
        let mut pairs = order.flat_map(|speed| [1, 2, 4, 8, 12, 16, 32].map(|width| (speed, width)));
        pairs.find(|(speed, width)| (speed.lane_gb_per_s() * f64::from(*width) / told - 1.0).abs() < 1e-2)
    }

    /// Whether it is of a class that says so; false if the class is not known.
    pub fn is(&self, of: fn(PciClass) -> bool) -> bool {
        self.class.value().is_some_and(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_all_tools_write_them() {
        for (text, shown) in [
            ("03:00.1", "0000:03:00.1"),
            ("0000:af:1f.7", "0000:af:1f.7"),
            ("00000000:0A:00.0", "0000:0a:00.0"),
            ("10000:e1:00.0", "10000:e1:00.0"),
        ] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), shown);
        }
        for wrong in ["", "03:00", "03:20.0", "03:00.8", "x:00.0", "+3:00.0", "0:0:0:0.0"] {
            assert!(wrong.parse::<PciAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_are_those_of_the_specification() {
        let speed = |text: &str| LaneSpeed::from_text(text).map(|speed| speed.to_string());
        assert_eq!(speed("2.5GT/s").as_deref(), Some("2.5 GT/s"));
        assert_eq!(speed("8.0 GT/s PCIe").as_deref(), Some("8 GT/s"));
        assert_eq!(speed("unknown"), None);
        let x16 = LaneSpeed::from_generation(3).unwrap().lane_gb_per_s() * 16.0;
        assert!((x16 - 15.753_846).abs() < 1e-5, "{x16}");
    }
}
