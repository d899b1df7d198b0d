//! Settings of transmit by programmed I/O.

use platform::costs;
pub use settings::{PacketSelect, Stores};

/// How the last, partly filled line of a frame leaves its write-combining buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ending {
    /// Padded to a full line.
    #[default]
    Stuffed,
    /// Flushed by a fence. Only for the format with length and checksum.
    Fenced,
}

/// Flow control: what keeps the driver from overrunning the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flow {
    /// Lines are counted. The device writes the number of free lines to memory and interrupts waiting channels.
    #[default]
    Counted,
    /// PCIe credits: the core stalls until the device accepts its stores. Lines leave a core in any order, so the
    /// driver puts a fence between lines that the device has room for and later ones.
    Link,
}

costs! {
    /// Cycles that the driver computes to send by lines, on top of its stores.
    KpioCosts in "kpio_cost" {
        /// To write a packet: length, lines, room.
        send,
        /// To choose the path of a packet by its connection or size.
        select,
        /// CRC of eight bytes of a frame.
        crc_word,
        /// Internet checksum of eight bytes in software, for the format that cannot ask the device for it.
        sum_word,
    }
}

/// Settings of transmit by programmed I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KpioParams {
    /// Which packets take this path. Can be changed while the device runs.
    pub select: PacketSelect,
    /// Frames carry length and checksum, rather than the paper's signature.
    pub framed: bool,
    /// The kind of store that writes lines.
    pub stores: Stores,
    /// How the last line of a frame leaves.
    pub ending: Ending,
    /// Flow control.
    pub flow: Flow,
    /// Lines between fences that drain all buffers; 0 for no fences. 1 uses one buffer at a time.
    pub fence_every: u16,
    /// One queue under a lock for all channels, rather than one each.
    pub shared: bool,
    /// Lines after which the device reports free ones.
    pub report_every: u16,
    /// Packets in a row that a connection may keep on a path that does not suit their size, while earlier packets are
    /// in flight there. After that many, the next packet waits for those instead.
    pub most_stays: u16,
    /// CPU costs.
    pub costs: KpioCosts,
}

impl Default for KpioParams {
    /// All packets, with length and checksum, through all buffers, without fences.
    fn default() -> Self {
        Self {
            select: PacketSelect::All,
            framed: true,
            stores: Stores::Combining,
            ending: Ending::Stuffed,
            flow: Flow::Counted,
            fence_every: 0,
            shared: false,
            report_every: 16,
            most_stays: 64,
            costs: KpioCosts::linux(),
        }
    }
}

impl KpioParams {
    /// The paper's driver: its format, all connections, and a core that stalls when the link does not drain (section
    /// IV).
    pub fn papers() -> Self {
        Self { framed: false, flow: Flow::Link, ..Self::default() }
    }

    /// Plain programmed I/O: uncached stores of eight bytes.
    pub fn uncached() -> Self {
        Self { stores: Stores::Uncached, ..Self::default() }
    }
}
