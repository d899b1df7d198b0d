//! Function IDs: bus, device, function and segment numbers.

use std::fmt;
use std::str::FromStr;

/// Bus, device and function number: the 16-bit requester or completer ID.
///
/// ```text
///  15            8 7         3 2      0
/// +---------------+-----------+--------+
/// |      bus      |  device   |function|   without ARI
/// +---------------+-----------+--------+
/// |      bus      |      function      |   with ARI (base spec 6.13)
/// +---------------+--------------------+
/// ```
///
/// The segment is not included: TLPs carry one only in FLIT mode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bdf(u16);

impl Bdf {
    /// From the 16 bits of an ID field.
    #[inline]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Takes bus, device (0 to 31) and function (0 to 7); higher bits of device and function are ignored.
    #[inline]
    pub const fn new(bus: u8, device: u8, function: u8) -> Self {
        Self((bus as u16) << 8 | ((device & 0x1f) as u16) << 3 | (function & 7) as u16)
    }

    /// Takes the bus and the 8-bit function number of an ARI device.
    #[inline]
    pub const fn new_ari(bus: u8, function: u8) -> Self {
        Self((bus as u16) << 8 | function as u16)
    }

    /// The 16 bits of the ID field.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Bus number.
    #[inline]
    pub const fn bus(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Device number, 0 to 31, without ARI.
    #[inline]
    pub const fn device(self) -> u8 {
        (self.0 >> 3) as u8 & 0x1f
    }

    /// Function number, 0 to 7, without ARI.
    #[inline]
    pub const fn function(self) -> u8 {
        self.0 as u8 & 7
    }

    /// Function number, 0 to 255, with ARI.
    #[inline]
    pub const fn ari_function(self) -> u8 {
        self.0 as u8
    }
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus(), self.device(), self.function())
    }
}

impl fmt::Debug for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A PCI segment group: a configuration space of 256 buses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Segment(pub u16);

/// Segment and BDF: a function's address within a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FunctionAddress {
    /// Segment group.
    pub segment: Segment,
    /// Bus, device, function.
    pub bdf: Bdf,
}

impl fmt::Display for FunctionAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{}", self.segment.0, self.bdf)
    }
}

/// Error: the text is not a BDF or function address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdError {
    text: String,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no PCI address: expected [segment:]bus:device.function in hexadecimal, \
             bus 00 to ff, device 00 to 1f, function 0 to 7",
            self.text
        )
    }
}

impl std::error::Error for IdError {}

fn hex(text: &str, max_digits: usize, max: u16) -> Option<u16> {
    let plain = text.len() <= max_digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    u16::from_str_radix(text, 16).ok().filter(|&n| plain && n <= max)
}

fn bdf_of(text: &str) -> Option<Bdf> {
    let (bus, rest) = text.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    Some(Bdf::new(hex(bus, 2, 0xff)? as u8, hex(device, 2, 0x1f)? as u8, hex(function, 1, 7)? as u8))
}

impl FromStr for Bdf {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        bdf_of(text).ok_or_else(|| IdError { text: text.into() })
    }
}

impl FromStr for FunctionAddress {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let parse = || {
            if text.matches(':').count() < 2 {
                return Some(Self { segment: Segment(0), bdf: bdf_of(text)? });
            }
            let (segment, rest) = text.split_once(':')?;
            Some(Self { segment: Segment(hex(segment, 4, 0xffff)?), bdf: bdf_of(rest)? })
        };
        parse().ok_or_else(|| IdError { text: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_sit_where_the_specification_puts_them() {
        let bdf = Bdf::new(0x5e, 0x1f, 7);
        assert_eq!(bdf.bits(), 0x5eff);
        assert_eq!((bdf.bus(), bdf.device(), bdf.function()), (0x5e, 0x1f, 7));
        assert_eq!(Bdf::new_ari(0x5e, 0x81).bits(), 0x5e81);
    }

    #[test]
    fn text_round_trip() {
        let address: FunctionAddress = "0001:5e:1f.7".parse().unwrap();
        assert_eq!(address.to_string(), "0001:5e:1f.7");
        assert_eq!("5e:00.1".parse::<Bdf>().unwrap(), Bdf::new(0x5e, 0, 1));
        assert_eq!("5e:00.1".parse::<FunctionAddress>().unwrap().segment, Segment(0));
    }

    #[test]
    fn bad_text_is_told() {
        for bad in ["", "5e", "5e:20.0", "5e:00.8", "100:00.0", "+1:00.0", "5e:00", "0:5e:00.0:1"] {
            assert!(bad.parse::<FunctionAddress>().is_err(), "{bad}");
        }
        assert!("5e:20.0".parse::<Bdf>().unwrap_err().to_string().contains("device 00 to 1f"));
    }
}
