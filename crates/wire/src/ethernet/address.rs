//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

/// An Ethernet address (EUI-48).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Reaches all stations.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// A locally administered unicast address with number `n`.
    pub const fn local(n: u32) -> Self {
        let [a, b, c, d] = n.to_be_bytes();
        Self([2, 0, a, b, c, d])
    }

    /// Whether it is a group address, including broadcast.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it is the broadcast address.
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Error: not an Ethernet address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoMacAddr(String);

impl fmt::Display for NoMacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no Ethernet address, such as 02:00:00:00:00:01", self.0)
    }
}

impl std::error::Error for NoMacAddr {}

impl FromStr for MacAddr {
    type Err = NoMacAddr;

    fn from_str(text: &str) -> Result<Self, NoMacAddr> {
        let wrong = || NoMacAddr(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2 && p.is_ascii()).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        assert_eq!("02:00:00:00:01:ff".parse(), Ok(MacAddr::local(0x1ff)));
        assert_eq!(MacAddr::local(0x1ff).to_string(), "02:00:00:00:01:ff");
        for wrong in ["", "02:00:00:00:01", "02:00:00:00:01:ff:00", "2:0:0:0:0:1", "02:00:00:00:01:zz"] {
            assert!(wrong.parse::<MacAddr>().is_err(), "{wrong}");
        }
    }
}
