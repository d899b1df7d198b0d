//! What a device's PCIe core is made of.

use units::Duration;

/// The PCIe core of a device, apart from what its registers and firmware do.
#[derive(Clone, Copy, Debug)]
pub struct EndpointParams {
    /// Non-posted requests that may be outstanding: 32 without extended tags, 256 with, 768 with 10-bit tags.
    pub tags: u16,
    /// Data of read requests that may be outstanding, in bytes; a single request may be larger.
    pub read_buffer: u32,
    /// Largest read request that the core makes, whatever MRRS allows, in bytes.
    pub max_read_request: u32,
    /// Least time between two read requests.
    pub issue_interval: Duration,
    /// From a tag's last completion having been dealt with until the tag is free.
    pub tag_release: Duration,
    /// Writes that it takes in hand at once: until their data has been fetched.
    pub writes_in_hand: u16,
    /// How long a request waits for its completion; the PCIe base specification allows 50 us to 50 ms by default.
    pub completion_timeout: Duration,
    /// How long the core takes to answer a configuration request.
    pub config_latency: Duration,
}

impl EndpointParams {
    /// A core that takes no time, for tests and as an upper bound.
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
        }
    }
}
