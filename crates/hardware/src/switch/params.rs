//! Parameters of a switch.

use units::Duration;

/// A switch without its links.
#[derive(Clone, Debug)]
pub struct SwitchParams {
    /// Vendor and device ID of its ports.
    pub ids: (u16, u16),
    /// From the arrival of a TLP's header at one port (or of the whole TLP if stored and forwarded) until it can leave
    /// another.
    pub latency: Duration,
    /// Whether TLPs are forwarded before their end has arrived, where possible.
    pub cut_through: bool,
    /// Whether the TLPs of a class leave an ingress port in the order in which they arrived, whatever egress they have, so that
    /// one whose egress is busy blocks those behind it; otherwise, each egress has a queue of its own.
    pub input_queued: bool,
    /// Latency of completing a configuration request.
    pub config_latency: Duration,
    /// Largest payload in bytes.
    pub max_payload: u32,
    /// Access control services of downstream ports, bits of [`acs`](wire::pcie::config::acs).
    pub acs: u16,
    /// Whether downstream ports can contain errors below them.
    pub containment: bool,
    /// Whether it passes on reports of tolerated latency.
    pub latency_reports: bool,
}

impl SwitchParams {
    /// A switch without delays and with all services, for tests and as an upper bound.
    pub fn ideal() -> Self {
        Self {
            ids: (0x10b5, 0x8733),
            latency: Duration::ZERO,
            cut_through: true,
            input_queued: false,
            config_latency: Duration::ZERO,
            max_payload: 512,
            acs: wire::pcie::config::acs::USUAL,
            containment: false,
            latency_reports: false,
        }
    }
}
