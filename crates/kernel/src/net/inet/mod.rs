//! The Internet protocols of the kernel.
//!
//! The protocols themselves are state machines in crate `inet`. This module gives them packets, time, memory and CPU
//! costs. A received packet is checked by `input`, moved to the core of its reader by `steering`, and processed there by `tcp`
//! or `udp`. A packet to send goes through `output` to a device, or through `loopback` to the host itself.
//!
//! | file | subject |
//! |---|---|
//! | `buffers` | packet memory, views of received packets |
//! | `stack` | connects the parts; interface to devices and programs |
//! | `means` | shared state: memory, tasks, costs, counters |
//! | `output` | transmit: headers, checksums, fragmentation |
//! | `input` | receive: checks, dispatch |
//! | `interfaces` | addresses, routes, neighbours |
//! | `resolver` | ARP, and packets that wait for it |
//! | `fragments` | reassembly |
//! | `loopback` | packets of the host to itself |
//! | `steering` | receive flow steering |
//! | `timers` | timers, deferred work of the core that set them |
//! | `icmp`, `udp` | echo, datagrams |
//! | `tcp` | connections: buffers, coalescing, sockets |

mod buffers;
mod fragments;
mod icmp;
mod input;
mod interfaces;
mod loopback;
mod means;
mod output;
mod resolver;
mod stack;
mod steering;
mod tcp;
mod timers;
mod udp;
mod upward;

use platform::costs::linux;
use units::Duration;

pub use inet::fragments::FragmentParams;
pub use inet::tcp::EcnMode;

pub(crate) use stack::Stack;
pub use steering::SteeringParams;

/// Parameters of the protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InetParams {
    /// TCP's use of explicit congestion notification (ECN).
    pub ecn: EcnMode,
    /// Whether a partial segment waits while the device still has segments of its connection (Linux:
    /// `tcp_autocorking`).
    pub autocorking: bool,
    /// Limits of IP reassembly.
    pub fragments: FragmentParams,
    /// Receive flow steering.
    pub steering: SteeringParams,
}

impl InetParams {
    /// Linux's defaults.
    pub const fn linux() -> Self {
        Self {
            ecn: EcnMode::Accept,
            autocorking: const { linux("inet", "autocorking") } == 1,
            fragments: FragmentParams {
                memory: const { linux("inet", "fragment_memory") },
                time: Duration::from_ps(const { linux("inet", "fragment_time") }),
            },
            steering: SteeringParams::linux(),
        }
    }
}
