//! The Toeplitz hash of receive side scaling (RSS).
//!
//! Source: Microsoft, "RSS hashing functions" and "Verifying the RSS hash calculation" (Windows driver documentation).

use std::cell::OnceCell;
use std::net::IpAddr;

use crate::ip::Flow;

/// Bytes of a key.
pub const KEY_LEN: usize = 40;
/// Maximum input in bytes: two IPv6 addresses and two ports.
const INPUT_LEN: usize = 36;

/// The key of the specification's examples, which many drivers use.
pub const EXAMPLE_KEY: [u8; KEY_LEN] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// A key, prepared for hashing byte by byte.
#[derive(Clone)]
pub struct Toeplitz {
    key: [u8; KEY_LEN],
    /// Contribution of each byte value at each input position. Computed with the first hash, as most functions never
    /// need it.
    table: OnceCell<Box<[[u32; 256]]>>,
}

impl Toeplitz {
    /// Creates a key.
    pub fn new(key: &[u8; KEY_LEN]) -> Self {
        Self { key: *key, table: OnceCell::new() }
    }

    #[cold]
    fn make_table(key: &[u8; KEY_LEN]) -> Box<[[u32; 256]]> {
        // The 32 key bits from `bit` on: a window that moves one bit per input bit.
        let window = |bit: usize| {
            let five = (0..5).fold(0u64, |all, i| all << 8 | u64::from(key[bit / 8 + i]));
            (five >> (8 - bit % 8)) as u32
        };
        let row = |place: usize| {
            let windows: [u32; 8] = std::array::from_fn(|bit| window(8 * place + bit));
            std::array::from_fn(|value| {
                (0..8).filter(|bit| value >> (7 - bit) & 1 == 1).fold(0, |hash, bit| hash ^ windows[bit])
            })
        };
        (0..INPUT_LEN).map(row).collect()
    }

    /// The hash of `input`. Only the first 36 bytes count.
    #[inline]
    pub fn hash(&self, input: &[u8]) -> u32 {
        let table = self.table.get_or_init(|| Self::make_table(&self.key));
        input.iter().zip(table).fold(0, |hash, (&byte, row)| hash ^ row[usize::from(byte)])
    }

    /// The hash of a packet's addresses, and of its ports if `with_ports` and it has any.
    #[inline]
    pub fn hash_flow(&self, flow: &Flow, with_ports: bool) -> u32 {
        let mut input = [0; INPUT_LEN];
        let addresses = match (flow.source, flow.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                input[..4].copy_from_slice(&source.octets());
                input[4..8].copy_from_slice(&destination.octets());
                8
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                input[..16].copy_from_slice(&source.octets());
                input[16..32].copy_from_slice(&destination.octets());
                32
            }
            _ => 0,
        };
        let mut len = addresses;
        if let (Some((source, destination)), true) = (flow.ports, with_ports) {
            input[len..len + 2].copy_from_slice(&source.to_be_bytes());
            input[len + 2..len + 4].copy_from_slice(&destination.to_be_bytes());
            len += 4;
        }
        self.hash(&input[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors that Microsoft published for IPv4 and IPv6: destination, source, hash of addresses, with ports.
    #[test]
    fn published_vectors() {
        let hash = Toeplitz::new(&EXAMPLE_KEY);
        let vectors = [
            ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
            ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
            ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
            ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
            ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
            ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
            ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
            (
                "fe80::200:f8ff:fe21:67cf",
                38024,
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44251,
                0x4b61_e985,
                0x02d1_feef,
            ),
        ];
        for (destination, to, source, from, addresses, with_ports) in vectors {
            let flow = Flow {
                protocol: 6,
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
                ports: Some((from, to)),
            };
            assert_eq!(hash.hash_flow(&flow, false), addresses, "{source}");
            assert_eq!(hash.hash_flow(&flow, true), with_ports, "{source}");
        }
    }
}
