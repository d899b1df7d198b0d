//! Internet protocols: IPv4, ICMP, UDP, TCP, their checksums, and frame parsing as in a NIC.

pub mod checksum;
pub mod cut;
pub mod dissect;
pub mod ecn;
pub mod icmp;
pub mod ipv4;
pub mod tcp;
pub mod udp;

pub use checksum::Sum;
pub use cut::{Cutter, NotCuttable};
pub use dissect::{Dissection, Flow, Verdict};
pub use icmp::IcmpEcho;
pub use ipv4::Ipv4Header;
pub use tcp::{TcpFlags, TcpHeader, TcpOptions};
pub use udp::UdpHeader;

/// Protocol numbers (IANA).
pub mod protocol {
    /// ICMP (RFC 792).
    pub const ICMP: u8 = 1;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
}
