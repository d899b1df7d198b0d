//! What a user of the driver can set, and what its code costs.

use platform::costs;
use platform::net::Coalescing;
pub use settings::Loads;
use units::Duration;

use super::kpio::params::KpioParams;

costs! {
    /// Cycles that the driver computes; its loads, stores and register accesses cost by themselves. Sending comes to about 150
    /// cycles a packet, as pktgen's 14.8 million packets a second on one core of about 3 GHz ask for (Brouer, "Network stack
    /// challenges at increasing speeds", 2015).
    NicCosts in "nic_cost" {
        /// To put a packet into the ring.
        send,
        /// For each of its fragments.
        fragment,
        /// To let go of a sent packet.
        sent,
        /// To make a packet of a filled buffer: metadata, checksum and hash.
        received,
        /// To give a buffer to the device.
        refill,
        /// To take a buffer from the pool, or put it there.
        pool,
        /// A poll apart from its packets.
        poll,
        /// The interrupt handler.
        handler,
    }
}

/// Inline doorbells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InlineParams {
    /// Longest packet that goes into one (bytes).
    pub up_to: u32,
    /// By direct stores (`movdir64b`) in place of write-combining buffers that a fence flushes.
    pub direct: bool,
}

/// Receiving by programmed I/O: short frames stay in the device, and the core fetches them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldParams {
    /// Longest frame that stays; longer ones, and those for which the device has no place, come by DMA.
    pub up_to: u16,
    /// How they are fetched.
    pub loads: Loads,
}

/// Settings of the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NicDriverParams {
    /// Pairs of queues, each with an interrupt; `None` for as many as there are cores.
    pub channels: Option<u16>,
    /// The legacy interrupt is used even if there are messages: there is one pair of queues.
    pub legacy_interrupt: bool,
    /// They are spread over the nodes, one at each in turn, in place of all of the device's node first.
    pub over_nodes: bool,
    /// Log2 of the descriptors of a sending queue.
    pub log2_tx: u8,
    /// Log2 of the descriptors of a receiving queue.
    pub log2_rx: u8,
    /// Bytes of a receive buffer: a power of two, at most a page.
    pub buffer: u16,
    /// Buffers given to the device at once.
    pub refill: u16,
    /// Packets sent with `more` for which one completion is asked at most.
    pub report_every: u16,
    /// Longest wait from a packet to its interrupt.
    pub coalescing: Duration,
    /// Packets after which the interrupt comes at once; 0 for no limit.
    pub coalescing_packets: u32,
    /// The device shortens the wait when there is little to do.
    pub adaptive: bool,
    /// Which receiving queues the values of the RSS hash go to in turn; all, if empty.
    pub rss: Vec<u16>,
    /// Completions are written to memory of the device's node, not of the core's that reads them.
    pub completions_at_device: bool,
    /// How often queues are looked at without an interrupt, until nothing has moved for 30 times that.
    pub service: Duration,
    /// Short packets in their descriptors, and these in the doorbell, where the device can.
    pub inline: Option<InlineParams>,
    /// Log2 of the bytes that the device has for a completion, 5 to 8, where it can put frames there that fit: they are
    /// copied into their buffers from there. `None` for completions alone.
    pub rx_slot: Option<u8>,
    /// Receiving by programmed I/O, where the device can.
    pub held: Option<HeldParams>,
    /// Sending by programmed I/O, where the device can.
    pub kpio: Option<KpioParams>,
    /// What its code costs.
    pub costs: NicCosts,
}

impl Default for NicDriverParams {
    /// ixgbe's values: 512 descriptors, 2 KiB buffers, a service timer of 2 s; buffers in batches of 16 and moderation
    /// by load of at most 50 µs (20 000 interrupts a second, its "bulk latency" is 8000 and "low latency" 20 000).
    fn default() -> Self {
        Self {
            channels: None,
            legacy_interrupt: false,
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
    /// How long interrupts wait until somebody says otherwise.
    pub(super) const fn coalescing(&self) -> Coalescing {
        Coalescing { time: self.coalescing, packets: self.coalescing_packets, adaptive: self.adaptive }
    }
}
