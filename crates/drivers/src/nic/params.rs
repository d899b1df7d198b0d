//! Driver settings and CPU costs.

use platform::costs;
use platform::net::{Coalescing, Rings};
pub use settings::Loads;
use units::Duration;

use super::kpio::params::KpioParams;

costs! {
    /// Cycles that the driver computes; loads, stores and register accesses are charged separately. Sending comes to
    /// about 150 cycles a packet, to match pktgen's 14.8 million packets per second on one core of about 3 GHz
    /// (Brouer, "Network stack challenges at increasing speeds", 2015).
    NicCosts in "nic_cost" {
        /// To put a packet into the ring.
        send,
        /// For each fragment of it.
        fragment,
        /// To free a sent packet.
        sent,
        /// To build a packet from a filled buffer: metadata, checksum and hash.
        received,
        /// To post a buffer to the device.
        refill,
        /// To take a buffer from the pool or return it.
        pool,
        /// A poll, without its packets.
        poll,
        /// The interrupt handler.
        handler,
        /// To choose another function for a packet whose own is down, if one network device has several.
        reroute,
    }
}

/// Settings of inline doorbells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InlineParams {
    /// Longest packet sent inline (bytes).
    pub up_to: u32,
    /// Uses direct stores (`movdir64b`) rather than write-combining buffers flushed by a fence.
    pub direct: bool,
}

/// Receive by programmed I/O: short frames stay in the device until the core fetches them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldParams {
    /// Longest frame that stays (bytes). Longer ones, and those for which the device has no room, arrive by DMA.
    pub up_to: u16,
    /// The kind of load that fetches them.
    pub loads: Loads,
}

/// Driver settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NicDriverParams {
    /// Pairs of queues, each with an interrupt; `None` for one per core.
    pub channels: Option<u16>,
    /// Use the legacy interrupt, and so only one pair of queues, even if messages are available.
    pub legacy_interrupt: bool,
    /// One network device for all functions of a card that share an address, rather than one each (Linux: multi-PF
    /// netdev).
    pub multi_pf: bool,
    /// Spread channels over the nodes in turn, rather than using the device's node first.
    pub over_nodes: bool,
    /// Log2 of the descriptors of a TX queue.
    pub log2_tx: u8,
    /// Log2 of the descriptors of an RX queue.
    pub log2_rx: u8,
    /// Bytes of a receive buffer: a power of two, at most a page.
    pub buffer: u16,
    /// Buffers posted per batch.
    pub refill: u16,
    /// Most packets sent with `more` per requested completion.
    pub report_every: u16,
    /// Longest delay from a packet to its interrupt.
    pub coalescing: Duration,
    /// Packets after which the interrupt is raised at once; 0 for no limit.
    pub coalescing_packets: u32,
    /// The device shortens the delay at low load.
    pub adaptive: bool,
    /// RX queues that RSS spreads flows over, in turn; all if empty.
    pub rss: Vec<u16>,
    /// Completions are written to memory of the device's node rather than of the polling core's.
    pub completions_at_device: bool,
    /// Interval at which the service task checks queues; it stops after 30 intervals without traffic.
    pub service: Duration,
    /// Short packets go in their descriptors, and these in the doorbell, if the device supports it.
    pub inline: Option<InlineParams>,
    /// Log2 of the bytes per completion, 5 to 8. If the device supports it, frames that fit are written there, and
    /// the driver copies them to their buffers. `None` for completions only.
    pub rx_slot: Option<u8>,
    /// Receive by programmed I/O, if the device supports it.
    pub held: Option<HeldParams>,
    /// Transmit by programmed I/O, if the device supports it.
    pub kpio: Option<KpioParams>,
    /// CPU costs.
    pub costs: NicCosts,
}

impl Default for NicDriverParams {
    /// ixgbe's values: 512 descriptors, 2 KiB buffers, a service timer of 2 s, batches of 16 buffers, and adaptive
    /// moderation of at most 50 µs (20,000 interrupts per second; ixgbe's "bulk latency" is 8,000 and "low latency"
    /// 20,000).
    fn default() -> Self {
        Self {
            channels: None,
            legacy_interrupt: false,
            multi_pf: false,
            over_nodes: false,
            log2_tx: 9,
            log2_rx: 9,
            buffer: 2048,
            refill: 16,
            report_every: 1,
            coalescing: Duration::from_us(50),
            coalescing_packets: 64,
            adaptive: true,
            rss: Vec::new(),
            completions_at_device: false,
            service: Duration::from_ms(2_000),
            inline: None,
            rx_slot: None,
            held: None,
            kpio: None,
            costs: NicCosts::linux(),
        }
    }
}

impl NicDriverParams {
    /// Interrupt moderation at start.
    pub(super) const fn coalescing(&self) -> Coalescing {
        Coalescing { time: self.coalescing, packets: self.coalescing_packets, adaptive: self.adaptive }
    }

    /// Sizes of rings at start, on a device with at most 2^`most` descriptors.
    pub(super) fn rings(&self, most: u8) -> Rings {
        Rings { tx: 1 << self.log2_tx.min(most), rx: 1 << self.log2_rx.min(most) }
    }
}
