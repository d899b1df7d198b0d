//! The Internet protocols: what arrives finds its socket, what programs send finds its way.
//!
//! The protocols themselves are state machines of the `inet` crate; here they get their packets, their time, their
//! memory and their costs.
//!
//! | file | subject |
//! |---|---|
//! | `buffers` | memory of packets, views of received ones |
//! | `stack` | the parts put together, as devices and programs see them |
//! | `means` | what all parts work with: memory, tasks, costs, counters |
//! | `output` | the way down: headers, checksums, fragments |
//! | `input` | the way up: checks, who gets what |
//! | `interfaces` | devices with addresses, ways, neighbours |
//! | `resolver` | ARP, and packets that wait for it |
//! | `fragments` | packets larger than a frame, put together |
//! | `loopback` | packets of the host to itself |
//! | `steering` | packets follow the programs that read them |
//! | `timers` | one task that wakes sockets and asks neighbours again |
//! | `icmp`, `udp` | echo and datagrams |
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

use platform::costs::linux;
use units::Duration;

pub use inet::fragments::FragmentParams;
pub use inet::tcp::EcnMode;

pub(crate) use stack::Stack;
pub use steering::SteeringParams;

/// How a kernel's protocols are set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InetParams {
    /// Whether TCP uses explicit congestion notification.
    pub ecn: EcnMode,
    /// Whether a segment that is not full waits while the device has others of its connection (Linux: `tcp_autocorking`).
    pub autocorking: bool,
    /// Bounds of fragments that wait for others.
    pub fragments: FragmentParams,
    /// How received packets find the cores of those who read them.
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
