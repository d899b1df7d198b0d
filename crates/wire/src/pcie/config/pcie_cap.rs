//! PCI Express capability (base spec 7.5.3). Offsets are relative to its header.

use super::image::Image;
use super::slot::{self, SlotParams};
use crate::pcie::link::{Generation, Width};
use units::Duration;

/// PCI Express capabilities (7.5.3.2): type of device or port, slot.
pub const CAPABILITIES: u16 = 0x02;
/// Device capabilities (7.5.3.3): largest payload, tags, function-level reset.
pub const DEVICE_CAPABILITIES: u16 = 0x04;
/// Device control (7.5.3.4): payload and read request sizes, tags, error reports.
pub const DEVICE_CONTROL: u16 = 0x08;
/// Device status (7.5.3.5): errors detected, requests pending.
pub const DEVICE_STATUS: u16 = 0x0a;
/// Link capabilities (7.5.3.6): highest speed and width.
pub const LINK_CAPABILITIES: u16 = 0x0c;
/// Link control (7.5.3.7): disabling and retraining the link, power states.
pub const LINK_CONTROL: u16 = 0x10;
/// Link status (7.5.3.8): negotiated speed and width.
pub const LINK_STATUS: u16 = 0x12;
/// Root control (7.5.3.12): which errors below become system errors.
pub const ROOT_CONTROL: u16 = 0x1c;
/// Root capabilities (7.5.3.13): whether software can see configuration retries.
pub const ROOT_CAPABILITIES: u16 = 0x1e;
/// Root status (7.5.3.14): power management events.
pub const ROOT_STATUS: u16 = 0x20;
/// Device capabilities 2 (7.5.3.15): completion timeouts, 10-bit tags.
pub const DEVICE_CAPABILITIES_2: u16 = 0x24;
/// Device control 2 (7.5.3.16): completion timeout, 10-bit tags.
pub const DEVICE_CONTROL_2: u16 = 0x28;
/// Link capabilities 2 (7.5.3.18): supported speeds.
pub const LINK_CAPABILITIES_2: u16 = 0x2c;
/// Link control 2 (7.5.3.19): target speed.
pub const LINK_CONTROL_2: u16 = 0x30;
/// Bytes of the capability.
pub const LEN: u16 = 0x3c;

/// Device control: enable relaxed ordering.
pub const CONTROL_RELAXED_ORDERING: u16 = 1 << 4;
/// Device control: enable 8-bit tags instead of 5-bit ones.
pub const CONTROL_EXTENDED_TAGS: u16 = 1 << 8;
/// Device control: enable no snoop.
pub const CONTROL_NO_SNOOP: u16 = 1 << 11;
/// Device capabilities: function-level reset.
pub const CAPABLE_OF_FLR: u32 = 1 << 28;
/// Device control: initiate function-level reset.
pub const CONTROL_FLR: u16 = 1 << 15;
/// Device control 2: completion timeout range.
pub const CONTROL_2_TIMEOUT: u16 = 0xf;
/// Device control 2: completion timeout disable.
pub const CONTROL_2_TIMEOUT_DISABLE: u16 = 1 << 4;
/// Device capabilities: 8-bit tags as a requester.
pub const CAPABILITIES_EXTENDED_TAGS: u32 = 1 << 5;
/// Device capabilities 2: 10-bit tags as a completer.
pub const CAPABILITIES_2_TEN_BIT_COMPLETER: u32 = 1 << 16;
/// Device capabilities 2: 10-bit tags as a requester.
pub const CAPABILITIES_2_TEN_BIT_REQUESTER: u32 = 1 << 17;
/// Device control 2: enable ID-based ordering for requests.
pub const CONTROL_2_IDO_REQUESTS: u16 = 1 << 8;
/// Device control 2: enable 10-bit tags.
pub const CONTROL_2_TEN_BIT_TAGS: u16 = 1 << 12;
/// Device capabilities 2: ARI forwarding, by which a downstream port passes configuration requests to all functions of
/// an ARI device.
pub const CAPABILITIES_2_ARI_FORWARDING: u32 = 1 << 5;
/// Device control 2: enable ARI forwarding.
pub const CONTROL_2_ARI_FORWARDING: u16 = 1 << 5;
/// Device capabilities 2: latency tolerance reporting.
pub const CAPABILITIES_2_LATENCY: u32 = 1 << 11;
/// Device control 2: enable latency tolerance reporting.
pub const CONTROL_2_LATENCY: u16 = 1 << 10;
/// Link control: read completion boundary of 128 bytes.
pub const LINK_CONTROL_RCB_128: u16 = 1 << 3;
/// Link control: link disable (downstream ports).
pub const LINK_CONTROL_DISABLE: u16 = 1 << 4;
/// Link control: retrain link (downstream ports).
pub const LINK_CONTROL_RETRAIN: u16 = 1 << 5;
/// Link status: link training in progress.
pub const LINK_STATUS_TRAINING: u16 = 1 << 11;
/// Link status: the data link layer is active.
pub const LINK_STATUS_ACTIVE: u16 = 1 << 13;

/// Device or port type (base spec table 7-17).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PortType {
    /// A PCIe endpoint.
    Endpoint = 0,
    /// A legacy endpoint, which may use I/O space.
    LegacyEndpoint = 1,
    /// A port of a root complex.
    RootPort = 4,
    /// A switch's upstream port.
    UpstreamPort = 5,
    /// A switch's downstream port.
    DownstreamPort = 6,
    /// An endpoint integrated in the root complex, without a link.
    RootComplexEndpoint = 9,
}

impl PortType {
    /// Whether it has a link below, which it can train and disable.
    pub const fn has_link_below(self) -> bool {
        matches!(self, Self::RootPort | Self::DownstreamPort)
    }

    /// Whether it is a bridge, with a type 1 header.
    pub const fn is_bridge(self) -> bool {
        matches!(self, Self::RootPort | Self::UpstreamPort | Self::DownstreamPort)
    }
}

/// Parameters of the PCI Express capability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcieParams {
    /// Device or port type.
    pub port_type: PortType,
    /// Maximum link speed.
    pub generation: Generation,
    /// Maximum link width.
    pub width: Width,
    /// Maximum payload in bytes: 128, 256, ... 4096.
    pub max_payload: u32,
    /// Supports 8-bit tags as a requester.
    pub extended_tags: bool,
    /// Supports 10-bit tags as a requester and completer; as a completer, so does anything that can run at 16 GT/s
    /// (base spec 2.2.6.2).
    pub ten_bit_tags: bool,
    /// Supports function-level reset.
    pub function_level_reset: bool,
    /// Port number in Link Capabilities; zero for endpoints.
    pub port_number: u8,
    /// Slot below the port.
    pub slot: Option<SlotParams>,
    /// Access control services that it advertises, bits of [`acs`](super::acs). A function of a multi-function device
    /// that passes no requests on to the others advertises zero. Virtual functions advertise none.
    pub access_control: Option<u16>,
    /// Depth of the invalidate queue, 1 to 32, if it advertises address translation services. Virtual functions
    /// advertise none.
    pub translation_queue: Option<u8>,
    /// Latency that the function tolerates, if it reports that. Virtual functions report none.
    pub latency_tolerance: Option<Duration>,
    /// Whether a port with a link below forwards by all eight bits of the function number (ARI).
    pub ari_forwarding: bool,
    /// Whether a port takes reports of tolerated latency, and passes them on.
    pub latency_reports: bool,
}

impl PcieParams {
    /// Whether it has the bits of latency tolerance reporting.
    pub(super) const fn has_latency(&self) -> bool {
        self.latency_tolerance.is_some() || self.latency_reports
    }
}

impl PcieParams {
    /// An endpoint with 8-bit tags, function-level reset and payloads up to 256 bytes.
    pub const fn endpoint(generation: Generation, width: Width) -> Self {
        Self {
            port_type: PortType::Endpoint,
            generation,
            width,
            max_payload: 256,
            extended_tags: true,
            ten_bit_tags: false,
            function_level_reset: true,
            port_number: 0,
            slot: None,
            access_control: None,
            translation_queue: None,
            ari_forwarding: false,
            latency_tolerance: None,
            latency_reports: false,
        }
    }

    /// A port of a switch or root complex.
    pub const fn port(port_type: PortType, generation: Generation, width: Width) -> Self {
        let (function_level_reset, ari_forwarding) = (false, port_type.has_link_below());
        Self { port_type, function_level_reset, ari_forwarding, ..Self::endpoint(generation, width) }
    }
}

/// Completion timeout of a function's requests (base spec 7.5.3.16).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompletionTimeout {
    /// The function's default, 50 us to 50 ms.
    Default,
    /// Range of the timeout: minimum and maximum.
    Within(Duration, Duration),
    /// No timeout.
    Disabled,
}

impl CompletionTimeout {
    /// Decodes a device control 2 register; reserved codes count as the default.
    pub const fn of(control_2: u16) -> Self {
        if control_2 & CONTROL_2_TIMEOUT_DISABLE != 0 {
            return Self::Disabled;
        }
        let (least, most) = match control_2 & CONTROL_2_TIMEOUT {
            0x1 => (Duration::from_us(50), Duration::from_us(100)),
            0x2 => (Duration::from_ms(1), Duration::from_ms(10)),
            0x5 => (Duration::from_ms(16), Duration::from_ms(55)),
            0x6 => (Duration::from_ms(65), Duration::from_ms(210)),
            0x9 => (Duration::from_ms(260), Duration::from_ms(900)),
            0xa => (Duration::from_ms(1_000), Duration::from_ms(3_500)),
            0xd => (Duration::from_ms(4_000), Duration::from_ms(13_000)),
            0xe => (Duration::from_ms(17_000), Duration::from_ms(64_000)),
            _ => return Self::Default,
        };
        Self::Within(least, most)
    }

    /// The longest permitted timeout, for a function with this default; `None` for no timeout.
    pub const fn longest(self, default: Duration) -> Option<Duration> {
        match self {
            Self::Default => Some(default),
            Self::Within(_, most) => Some(most),
            Self::Disabled => None,
        }
    }
}

/// Encodes a payload or request size: 0 for 128 bytes to 5 for 4096.
pub const fn size_code(bytes: u32) -> Option<u16> {
    match bytes {
        128 | 256 | 512 | 1024 | 2048 | 4096 => Some(bytes.ilog2() as u16 - 7),
        _ => None,
    }
}

/// Decodes a payload or request size in bytes; the two reserved codes count as 4096.
pub const fn size_bytes(code: u16) -> u32 {
    let code = code & 7;
    128 << if code > 5 { 5 } else { code }
}

/// Makes read-only what a virtual function does not control: sizes, tags, error reporting, the link (base spec 9.3.5).
pub(super) fn make_virtual(image: &mut Image, at: u16) {
    image.value16(at + DEVICE_CONTROL, 0).rw16(at + DEVICE_CONTROL, 0).rw16(at + DEVICE_CONTROL_2, 0);
    image.rw16(at + LINK_CONTROL, 0).rw16(at + LINK_CONTROL_2, 0);
    // The link's state is in the physical function: speed and width of a virtual one are unknown (lspci: "Speed
    // unknown, Width x0").
    image.value16(at + LINK_STATUS, 0).value16(at + LINK_CONTROL_2, 0);
}

pub(super) fn emit(image: &mut Image, at: u16, p: &PcieParams) {
    let below = p.port_type.has_link_below();
    let link = u16::from(p.generation.number()) | u16::from(p.width.lanes()) << 4;
    let bit = |on: bool, n: u32| u32::from(on) << n;
    image
        .value16(at + CAPABILITIES, 2 | (p.port_type as u16) << 4 | u16::from(p.slot.is_some()) << 8)
        .value32(
            at + DEVICE_CAPABILITIES,
            u32::from(size_code(p.max_payload).unwrap_or(0))
                | if p.extended_tags { CAPABILITIES_EXTENDED_TAGS } else { 0 }
                | 1 << 15
                | bit(p.function_level_reset, 28),
        )
        // Reset values: relaxed ordering, no snoop and read requests of 512 bytes.
        .value16(at + DEVICE_CONTROL, CONTROL_RELAXED_ORDERING | CONTROL_NO_SNOOP | 2 << 12)
        .rw16(at + DEVICE_CONTROL, 0x78ff | if p.extended_tags { CONTROL_EXTENDED_TAGS } else { 0 })
        .rw1c16(at + DEVICE_STATUS, 0xf);
    if p.function_level_reset {
        image.trigger16(at + DEVICE_CONTROL, CONTROL_FLR);
    }
    if p.port_type != PortType::RootComplexEndpoint {
        image
            .value32(
                at + LINK_CAPABILITIES,
                u32::from(link)
                    // Data Link Layer Link Active Reporting.
                    | bit(below, 20)
                    | 1 << 22
                    | u32::from(p.port_number) << 24,
            )
            .rw16(at + LINK_CONTROL, if below { 0x0fd3 } else { 0x03cb })
            .value16(at + LINK_STATUS, link | 1 << 12)
            .value32(at + LINK_CAPABILITIES_2, ((1 << p.generation.number()) - 1) << 1)
            .value16(at + LINK_CONTROL_2, u16::from(p.generation.number()))
            .rw16(at + LINK_CONTROL_2, 0xffbf)
            .sticky32(at + LINK_CONTROL_2, 0xffff);
    }
    if below {
        image.trigger16(at + LINK_CONTROL, LINK_CONTROL_RETRAIN).rw1c16(at + LINK_STATUS, 0xc000);
    }
    if let Some(slot) = &p.slot {
        slot::emit(image, at, slot);
    }
    if p.port_type == PortType::RootPort {
        image
            .rw16(at + ROOT_CONTROL, 0x001f)
            .value16(at + ROOT_CAPABILITIES, 1)
            .rw1c32(at + ROOT_STATUS, 1 << 16);
    }
    let answers_ten_bits = p.ten_bit_tags || p.generation >= Generation::Gen4;
    // Completion timeout: ranges A to D, disable supported.
    image
        .value32(
            at + DEVICE_CAPABILITIES_2,
            0x1f | if p.ari_forwarding { CAPABILITIES_2_ARI_FORWARDING } else { 0 }
                | if p.has_latency() { CAPABILITIES_2_LATENCY } else { 0 }
                | if answers_ten_bits { CAPABILITIES_2_TEN_BIT_COMPLETER } else { 0 }
                | if p.ten_bit_tags { CAPABILITIES_2_TEN_BIT_REQUESTER } else { 0 },
        )
        .rw16(
            at + DEVICE_CONTROL_2,
            0x031f
                | if p.ari_forwarding { CONTROL_2_ARI_FORWARDING } else { 0 }
                | if p.has_latency() { CONTROL_2_LATENCY } else { 0 }
                | if p.ten_bit_tags { CONTROL_2_TEN_BIT_TAGS } else { 0 },
        );
}
