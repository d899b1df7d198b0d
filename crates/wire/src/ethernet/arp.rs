//! Address resolution for IPv4 over Ethernet (RFC 826).

use std::fmt;
use std::net::Ipv4Addr;

use super::MacAddr;
use crate::malformed::Malformed;

/// Bytes of a packet.
pub const LEN: usize = 28;
/// Hardware type Ethernet, protocol type IPv4, lengths of both addresses.
const FORMAT: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// Operation of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArpOperation {
    /// Request: who has this address?
    Request,
    /// Reply: the sender has it.
    Reply,
}

/// An ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Arp {
    /// Request or reply.
    pub operation: ArpOperation,
    /// The sender's Ethernet address.
    pub sender_mac: MacAddr,
    /// The sender's IP address.
    pub sender_ip: Ipv4Addr,
    /// The target's Ethernet address; zeros in a request.
    pub target_mac: MacAddr,
    /// The target's IP address.
    pub target_ip: Ipv4Addr,
}

impl Arp {
    /// Reads a packet; padding behind it is ignored.
    ///
    /// # Errors
    /// If the bytes end too early, or it is about other addresses than IPv4 on Ethernet.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; LEN] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        if bytes[..6] != FORMAT {
            return Err(Malformed::Unsupported);
        }
        let operation = match u16::from_be_bytes([bytes[6], bytes[7]]) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return Err(Malformed::Unsupported),
        };
        let mac = |at: usize| MacAddr(std::array::from_fn(|i| bytes[at + i]));
        let ip = |at: usize| Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|i| bytes[at + i]));
        Ok(Self { operation, sender_mac: mac(8), sender_ip: ip(14), target_mac: mac(18), target_ip: ip(24) })
    }

    /// Writes the packet to the beginning of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is too short.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[..6].copy_from_slice(&FORMAT);
        let operation: u16 = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        bytes[6..8].copy_from_slice(&operation.to_be_bytes());
        bytes[8..14].copy_from_slice(&self.sender_mac.0);
        bytes[14..18].copy_from_slice(&self.sender_ip.octets());
        bytes[18..24].copy_from_slice(&self.target_mac.0);
        bytes[24..28].copy_from_slice(&self.target_ip.octets());
    }
}

impl fmt::Display for Arp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            ArpOperation::Request => write!(f, "who has {}? tell {}", self.target_ip, self.sender_ip),
            ArpOperation::Reply => write!(f, "{} is at {}", self.sender_ip, self.sender_mac),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn question_and_answer() {
        let ask = Arp {
            operation: ArpOperation::Request,
            sender_mac: MacAddr::local(1),
            sender_ip: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: MacAddr::default(),
            target_ip: Ipv4Addr::new(10, 0, 0, 2),
        };
        let mut bytes = [0; 46];
        ask.emit(&mut bytes);
        assert_eq!(Arp::parse(&bytes), Ok(ask));
        assert_eq!(ask.to_string(), "who has 10.0.0.2? tell 10.0.0.1");
        assert_eq!(Arp::parse(&bytes[..27]), Err(Malformed::Truncated));
        bytes[1] = 6;
        assert_eq!(Arp::parse(&bytes), Err(Malformed::Unsupported));
    }

    proptest! {
        #[test]
        fn what_parses_comes_back(tail in any::<[u8; 22]>()) {
            let mut bytes = [0; LEN];
            bytes[..6].copy_from_slice(&FORMAT);
            bytes[6..].copy_from_slice(&tail);
            bytes[6] = 0;
            bytes[7] &= 3;
            if let Ok(arp) = Arp::parse(&bytes) {
                let mut again = [0; LEN];
                arp.emit(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
