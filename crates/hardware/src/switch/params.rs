//! What a switch is made of.

use units::Duration;

/// A switch, apart from its links.
#[derive(Clone, Debug)]
pub struct SwitchParams {
    /// Vendor and device ID of its ports.
    pub ids: (u16, u16),
    /// From a TLP's header being at one port, or all of it where it is stored first, until it can leave another.
    pub latency: Duration,
    /// Whether a TLP goes on before its end has come, where that can be.
    pub cut_through: bool,
    /// How long a port takes to answer a configuration request.
    pub config_latency: Duration,
    /// Largest payload in bytes.
    pub max_payload: u32,
    /// Access control services of downstream ports, bits of [`acs`](wire::pcie::config::acs).
    pub acs: u16,
}

impl SwitchParams {
    /// A switch that takes no time, with all services, for tests and as an upper bound.
    pub fn ideal() -> Self {
        Self {
            ids: (0x10b5, 0x8733),
            latency: Duration::ZERO,
            cut_through: true,
            config_latency: Duration::ZERO,
            max_payload: 512,
            acs: wire::pcie::config::acs::USUAL,
        }
    }
}
