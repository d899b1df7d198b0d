//! Data link layer packets: six bytes, the last two a CRC (base spec 3.5).
//!
//! ```text
//!             byte 0      byte 1             byte 2             byte 3     byte 4, 5
//! Ack, Nak   | type     | 0                | 0     seq [11:8] | seq [7:0]  | CRC |
//! FC         | type  VC | scale hdr [7:2]  | hdr[1:0] scale data [11:0]    | CRC |
//! PM         | type     | 0                | 0                | 0          | CRC |
//! ```

use super::FlowClass;
use super::crc::dllp_crc;
use std::fmt;

/// Sequence number of a TLP on a link, modulo 4096.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Sequence(u16);

impl Sequence {
    /// Takes the lower 12 bits.
    pub const fn new(n: u16) -> Self {
        Self(n & 0xfff)
    }

    /// 0 to 4095.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The next number.
    pub const fn next(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// The previous number, which a receiver that expects `self` acknowledges.
    pub const fn previous(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// `(self - earlier) mod 4096`.
    pub const fn since(self, earlier: Self) -> u16 {
        self.0.wrapping_sub(earlier.0) & 0xfff
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Scale of a credit count (base spec 3.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Scale {
    /// Scaled flow control is not in use.
    #[default]
    None = 0,
    /// Scaled flow control with a factor of 1.
    By1 = 1,
    /// One count is four credits.
    By4 = 2,
    /// One count is sixteen credits.
    By16 = 3,
}

impl Scale {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::None,
            1 => Self::By1,
            2 => Self::By4,
            _ => Self::By16,
        }
    }

    /// Binary logarithm of credits per count.
    pub const fn shift(self) -> u32 {
        match self {
            Self::None | Self::By1 => 0,
            Self::By4 => 2,
            Self::By16 => 4,
        }
    }

    /// The smallest scale that can advertise `credits` headers (at most 127, 508 or 2032; base spec table 3-2).
    pub const fn for_headers(credits: u32) -> Option<Self> {
        match credits {
            0..=127 => Some(Self::By1),
            128..=508 => Some(Self::By4),
            509..=2032 => Some(Self::By16),
            _ => None,
        }
    }

    /// The smallest scale that can advertise `credits` units of data (at most 2047, 8188 or 32752).
    pub const fn for_data(credits: u32) -> Option<Self> {
        match credits {
            0..=2047 => Some(Self::By1),
            2048..=8188 => Some(Self::By4),
            8189..=32752 => Some(Self::By16),
            _ => None,
        }
    }
}

/// Type of a flow control DLLP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowControlKind {
    /// First phase of initialisation.
    Init1,
    /// Second phase of initialisation.
    Init2,
    /// Credit update during operation.
    Update,
}

/// A flow control DLLP: credits granted to the transmitter at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowControl {
    /// Initialisation or update.
    pub kind: FlowControlKind,
    /// Credit type.
    pub class: FlowClass,
    /// Virtual channel, 0 to 7.
    pub virtual_channel: u8,
    /// What one count of `header` is worth.
    pub header_scale: Scale,
    /// Header credits as encoded, 8 bits: the total granted modulo the counter size, shifted right by the scale. 0 in
    /// an Init means infinite.
    pub header: u8,
    /// What one count of `data` is worth.
    pub data_scale: Scale,
    /// Data credits as encoded, 12 bits, likewise.
    pub data: u16,
}

impl FlowControl {
    /// An update for totals granted since initialisation, rounded down to what the scale can express.
    pub const fn update(
        class: FlowClass,
        headers: u64,
        header_scale: Scale,
        data: u64,
        data_scale: Scale,
    ) -> Self {
        Self {
            kind: FlowControlKind::Update,
            class,
            virtual_channel: 0,
            header_scale,
            header: (headers >> header_scale.shift()) as u8,
            data_scale,
            data: (data >> data_scale.shift()) as u16 & 0xfff,
        }
    }

    /// Header credits, modulo the counter size.
    pub const fn header_credits(&self) -> u32 {
        (self.header as u32) << self.header_scale.shift()
    }

    /// Data credits, modulo the counter size.
    pub const fn data_credits(&self) -> u32 {
        (self.data as u32) << self.data_scale.shift()
    }
}

/// Power management DLLPs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PowerManagement {
    /// Requests L1 after the function has entered a lower power state.
    EnterL1 = 0x20,
    /// Requests L2/L3: ready for power removal.
    EnterL23 = 0x21,
    /// Requests L1 because the link is idle (ASPM).
    ActiveStateRequestL1 = 0x23,
    /// Acknowledges the other three.
    RequestAck = 0x24,
}

/// A data link layer packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dllp {
    /// All TLPs up to this number have been received.
    Ack(Sequence),
    /// All TLPs up to this number have been received and the next was bad: replay from there.
    Nak(Sequence),
    /// Credits.
    FlowControl(FlowControl),
    /// A step of entering a power state of the link.
    PowerManagement(PowerManagement),
    /// Data link feature exchange: bit 0 is scaled flow control.
    Feature {
        /// The other end's features have been received.
        acknowledged: bool,
        /// Supported features, 23 bits.
        supported: u32,
    },
    /// No operation.
    Nop,
    /// Vendor-specific.
    Vendor([u8; 3]),
}

/// Why bytes are not a DLLP; receivers drop them (base spec 3.6.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DllpError {
    /// Not six bytes.
    Length(usize),
    /// Wrong CRC.
    Crc {
        /// The CRC of the bytes before it.
        computed: u16,
        /// The CRC in the packet.
        received: u16,
    },
    /// Unsupported type.
    Type(u8),
}

impl fmt::Display for DllpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(n) => write!(f, "bad DLLP: {n} bytes, needs 6"),
            Self::Crc { computed, received } => {
                write!(f, "bad DLLP: CRC is {received:#06x}, computed {computed:#06x}")
            }
            Self::Type(byte) => write!(
                f,
                "unsupported DLLP: type is {byte:#04x}, allowed: Ack 0x00, Feature 0x02, Nak 0x10, \
                 PM 0x20 0x21 0x23 0x24, vendor 0x30, NOP 0x31, InitFC1 0x40 to 0x67, UpdateFC 0x80 to 0xa7, \
                 InitFC2 0xc0 to 0xe7"
            ),
        }
    }
}

impl std::error::Error for DllpError {}

impl Dllp {
    /// Encodes the DLLP.
    pub fn to_bytes(&self) -> [u8; 6] {
        let numbered = |ty: u8, n: Sequence| {
            let [hi, lo] = n.get().to_be_bytes();
            [ty, 0, hi, lo]
        };
        let body = match *self {
            Self::Ack(n) => numbered(0x00, n),
            Self::Nak(n) => numbered(0x10, n),
            Self::PowerManagement(pm) => [pm as u8, 0, 0, 0],
            Self::Nop => [0x31, 0, 0, 0],
            Self::Vendor([a, b, c]) => [0x30, a, b, c],
            Self::Feature { acknowledged, supported } => {
                let [_, a, b, c] = (supported & 0x7f_ffff | u32::from(acknowledged) << 23).to_be_bytes();
                [0x02, a, b, c]
            }
            Self::FlowControl(fc) => {
                let kind = match fc.kind {
                    FlowControlKind::Init1 => 0x40,
                    FlowControlKind::Update => 0x80,
                    FlowControlKind::Init2 => 0xc0,
                };
                [
                    kind | (fc.class.index() as u8) << 4 | fc.virtual_channel & 7,
                    (fc.header_scale as u8) << 6 | fc.header >> 2,
                    fc.header << 6 | (fc.data_scale as u8) << 4 | (fc.data >> 8) as u8 & 0xf,
                    fc.data as u8,
                ]
            }
        };
        let [low, high] = dllp_crc(body).to_le_bytes();
        [body[0], body[1], body[2], body[3], low, high]
    }

    /// Parses six bytes.
    ///
    /// # Errors
    /// [`DllpError`]: wrong length or CRC, unsupported type.
    pub fn parse(bytes: &[u8]) -> Result<Self, DllpError> {
        let Ok(&[a, b, c, d, low, high]) = <&[u8; 6]>::try_from(bytes) else {
            return Err(DllpError::Length(bytes.len()));
        };
        let (computed, received) = (dllp_crc([a, b, c, d]), u16::from_le_bytes([low, high]));
        if computed != received {
            return Err(DllpError::Crc { computed, received });
        }
        let sequence = Sequence::new(u16::from_be_bytes([c, d]));
        let word = u32::from_be_bytes([0, b, c, d]);
        Ok(match a {
            0x00 => Self::Ack(sequence),
            0x10 => Self::Nak(sequence),
            0x02 => Self::Feature { acknowledged: word >> 23 == 1, supported: word & 0x7f_ffff },
            0x20 => Self::PowerManagement(PowerManagement::EnterL1),
            0x21 => Self::PowerManagement(PowerManagement::EnterL23),
            0x23 => Self::PowerManagement(PowerManagement::ActiveStateRequestL1),
            0x24 => Self::PowerManagement(PowerManagement::RequestAck),
            0x30 => Self::Vendor([b, c, d]),
            0x31 => Self::Nop,
            _ => Self::FlowControl(FlowControl {
                kind: match a >> 6 {
                    1 => FlowControlKind::Init1,
                    2 => FlowControlKind::Update,
                    3 => FlowControlKind::Init2,
                    _ => return Err(DllpError::Type(a)),
                },
                class: match (a >> 4 & 3, a & 8) {
                    (0, 0) => FlowClass::Posted,
                    (1, 0) => FlowClass::NonPosted,
                    (2, 0) => FlowClass::Completion,
                    _ => return Err(DllpError::Type(a)),
                },
                virtual_channel: a & 7,
                header_scale: Scale::from_bits(b >> 6),
                header: b << 2 | c >> 6,
                data_scale: Scale::from_bits(c >> 4),
                data: u16::from_be_bytes([c & 0xf, d]),
            }),
        })
    }
}

impl fmt::Display for Dllp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack(n) => write!(f, "Ack {n}"),
            Self::Nak(n) => write!(f, "Nak {n}"),
            Self::FlowControl(fc) => {
                let kind = match fc.kind {
                    FlowControlKind::Init1 => "InitFC1",
                    FlowControlKind::Init2 => "InitFC2",
                    FlowControlKind::Update => "UpdateFC",
                };
                let class = ["P", "NP", "Cpl"][fc.class.index()];
                write!(
                    f,
                    "{kind}-{class} VC{} hdr {} data {}",
                    fc.virtual_channel,
                    fc.header_credits(),
                    fc.data_credits()
                )
            }
            Self::PowerManagement(pm) => f.write_str(match pm {
                PowerManagement::EnterL1 => "PM_Enter_L1",
                PowerManagement::EnterL23 => "PM_Enter_L23",
                PowerManagement::ActiveStateRequestL1 => "PM_Active_State_Request_L1",
                PowerManagement::RequestAck => "PM_Request_Ack",
            }),
            Self::Feature { acknowledged, supported } => {
                write!(f, "Data_Link_Feature {supported:#x} ack {}", u8::from(*acknowledged))
            }
            Self::Nop => f.write_str("NOP"),
            Self::Vendor(b) => write!(f, "Vendor {:02x}{:02x}{:02x}", b[0], b[1], b[2]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_sit_where_the_specification_puts_them() {
        assert_eq!(Dllp::Nak(Sequence::new(0xabc)).to_bytes()[..4], [0x10, 0, 0x0a, 0xbc]);
        let fc = FlowControl {
            kind: FlowControlKind::Init2,
            class: FlowClass::Completion,
            virtual_channel: 3,
            header_scale: Scale::By4,
            header: 0b1010_1101,
            data_scale: Scale::By16,
            data: 0xfed,
        };
        let expected = [0xe3, 0b1010_1011, 0b0111_1111, 0xed];
        assert_eq!(Dllp::FlowControl(fc).to_bytes()[..4], expected);
        assert_eq!((fc.header_credits(), fc.data_credits()), (0xad << 2, 0xfed << 4));
        assert_eq!(Dllp::FlowControl(fc).to_string(), "InitFC2-Cpl VC3 hdr 692 data 65232");
    }

    #[test]
    fn every_bit_error_is_seen() {
        let good = Dllp::Ack(Sequence::new(77)).to_bytes();
        for bit in 0..48 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Dllp::parse(&bad), Err(DllpError::Crc { .. })));
        }
        assert_eq!(Dllp::parse(&good[..5]), Err(DllpError::Length(5)));
    }

    #[test]
    fn every_type_is_known_or_refused() {
        for a in 0..=255u8 {
            let body = [a, 0x12, 0x34, 0x56];
            let [low, high] = dllp_crc(body).to_le_bytes();
            if let Ok(dllp) = Dllp::parse(&[a, 0x12, 0x34, 0x56, low, high]) {
                assert_eq!(dllp.to_bytes()[0], a);
            }
        }
    }

    #[test]
    fn sequence_numbers_wrap() {
        let s = Sequence::new;
        assert_eq!(s(4095).next(), s(0));
        assert_eq!(s(0).previous(), s(4095));
        assert_eq!(s(2).since(s(4094)), 4);
    }

    #[test]
    fn an_update_withholds_what_its_scale_cannot_say() {
        let fc = FlowControl::update(FlowClass::Posted, 1027, Scale::By4, 70_001, Scale::By16);
        assert_eq!(fc.header_credits(), 1024 % 1024);
        assert_eq!(fc.data_credits(), 70_000 % 65_536);
        assert_eq!((Scale::for_headers(128), Scale::for_data(40_000)), (Some(Scale::By4), None));
    }

    proptest! {
        #[test]
        fn what_parses_is_written_back(body in any::<[u8; 4]>()) {
            let [low, high] = dllp_crc(body).to_le_bytes();
            let bytes = [body[0], body[1], body[2], body[3], low, high];
            if let Ok(dllp) = Dllp::parse(&bytes) {
                prop_assert_eq!(Dllp::parse(&dllp.to_bytes()), Ok(dllp));
                prop_assert!(!dllp.to_string().is_empty());
            }
        }
    }
}
