//! Parameters of a device's PCIe core.

use platform::device::DmaAttributes;
use units::Duration;

/// The PCIe core of a device, without its registers and firmware.
#[derive(Clone, Copy, Debug)]
pub struct EndpointParams {
    /// Maximum outstanding non-posted requests: 32 without extended tags, 256 with, 768 with 10-bit tags.
    pub tags: u16,
    /// Maximum outstanding read data in bytes; a single request may be larger.
    pub read_buffer: u32,
    /// Largest read request of the core in bytes, whatever MRRS allows.
    pub max_read_request: u32,
    /// Minimum time between two read requests.
    pub issue_interval: Duration,
    /// From processing a tag's last completion until the tag is free.
    pub tag_release: Duration,
    /// Writes in progress at once, until their data has been fetched.
    pub writes_in_hand: u16,
    /// Completion timeout; the PCIe base specification allows 50 us to 50 ms by default.
    pub completion_timeout: Duration,
    /// Latency of completing a configuration request.
    pub config_latency: Duration,
    /// Attributes that the part gives to requests that may have them; none in an ideal core.
    pub attributes: DmaAttributes,
}

impl EndpointParams {
    /// A core without delays, for tests and as an upper bound.
    pub fn ideal(tags: u16) -> Self {
        Self {
            tags,
            read_buffer: u32::MAX,
            max_read_request: 4096,
            issue_interval: Duration::ZERO,
            tag_release: Duration::ZERO,
            writes_in_hand: 64,
            completion_timeout: Duration::from_ms(50),
            config_latency: Duration::ZERO,
            attributes: DmaAttributes::default(),
        }
    }
}
