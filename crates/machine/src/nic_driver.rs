//! What a scenario says of the NIC's driver: its module parameters.

use crate::placed::Placed;
use crate::read::{Check, record};
use crate::scalar::{Count, names};
use units::{Bytes, Duration};

names! {
    /// Which packets go by programmed I/O.
    pub enum KpioSelect {
        /// None.
        Off = "off",
        /// All that fit.
        All = "all",
        /// Those of TCP connections in the range of ports.
        TcpPorts = "tcp-ports",
        /// Those up to a size.
        UpTo = "up-to",
    }
}

names! {
    /// How lines are stored into the device.
    pub enum KpioStores {
        /// Through write-combining buffers.
        Combining = "combining",
        /// Uncached, eight bytes at a time.
        Uncached = "uncached",
        /// Directly, 64 bytes at a time.
        Direct = "direct",
    }
}

names! {
    /// How a frame's end is known.
    pub enum KpioFormat {
        /// By the paper's 64-bit signature.
        Signature = "signature",
        /// By a length, with a checksum.
        Framed = "framed",
    }
}

names! {
    /// How the core fetches frames that stay in the device.
    pub enum HeldLoads {
        /// Streaming loads of whole lines from a write-combining mapping.
        Streaming = "streaming",
        /// Uncached loads of eight bytes.
        Uncached = "uncached",
    }
}

record! {
    /// The parameters with which the NIC's driver is loaded; what is not given is as the driver has it.
    pub struct NicDriverEntry {
        /// Pairs of queues.
        channels: Option<Count>,
        /// Longest wait from a packet to its interrupt.
        coalescing: Option<Duration>,
        /// Whether the device shortens that wait when there is little to do.
        adaptive: Option<bool>,
        /// Packets after which an interrupt comes at once; 0 for no limit.
        coalescing_packets: Option<u32>,
        /// Which receiving queues the values of the RSS hash go to in turn; all if not given.
        rss: Option<Vec<u32>>,
        /// Which packets go by programmed I/O; none if not given.
        kpio: Option<Placed<KpioSelect>>,
        /// First TCP port of `kpio = "tcp-ports"`.
        kpio_first_port: Option<u32>,
        /// Last TCP port.
        kpio_last_port: Option<u32>,
        /// Longest frame of `kpio = "up-to"`.
        kpio_up_to: Option<Bytes>,
        /// The format; with length and checksum if not given.
        kpio_format: Option<KpioFormat>,
        /// How lines are stored; through write-combining buffers if not given.
        kpio_stores: Option<KpioStores>,
        /// Whether a fence flushes a frame's last line in place of stuffing. For the framed format.
        kpio_fenced: Option<bool>,
        /// Lines after which a fence lets the buffers empty; 0 for never, 1 to use one buffer at a time.
        kpio_fence_every: Option<u32>,
        /// Whether all cores share a queue under a lock.
        kpio_shared: Option<bool>,
        /// Whether a core that finds the queue full stands still until the link and the device take its stores, as the
        /// paper's does; the default for its format. Else it counts lines and is interrupted when there is room.
        kpio_stalls: Option<bool>,
        /// Longest received frame that stays in the device for the core to fetch; none if not given.
        held_up_to: Option<Bytes>,
        /// How it is fetched; by streaming loads if not given.
        held_loads: Option<HeldLoads>,
        /// Longest frame that goes into its descriptor, and that into the doorbell; none if not given.
        inline_up_to: Option<Bytes>,
        /// Whether such doorbells are direct stores in place of write-combining ones.
        inline_direct: Option<bool>,
    }
    check |driver: &NicDriverEntry, check: &mut Check<'_>| {
        let port = |port: Option<u32>| port.is_none_or(|port| port <= 65535);
        check.require(port(driver.kpio_first_port), "kpio_first_port", "there is no such port", "0 to 65535");
        check.require(port(driver.kpio_last_port), "kpio_last_port", "there is no such port", "0 to 65535");
        let ordered = driver.kpio_first_port.unwrap_or(0) <= driver.kpio_last_port.unwrap_or(65535);
        check.require(ordered, "kpio_last_port", "it lies below `kpio_first_port`: no connection would be meant", "no less than it");
        let short = driver.kpio_up_to.is_none_or(|size| size.get() <= 65_535);
        check.require(short, "kpio_up_to", "no packet is as long", "up to 65535 B");
        let seldom = driver.kpio_fence_every.is_none_or(|lines| lines <= 65_535);
        check.require(seldom, "kpio_fence_every", "too many lines", "0 (never) to 65535");
    }
}
