//! Settings of the path by programmed I/O.

use platform::costs;
pub use settings::Stores;

/// How the last line of a frame leaves a write-combining buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ending {
    /// It is filled up.
    #[default]
    Stuffed,
    /// It is flushed by a fence. For the format with length and checksum alone.
    Fenced,
}

/// What keeps the driver from writing more than the device has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flow {
    /// It counts lines: the device writes to memory how many are free, and interrupts who waits.
    #[default]
    Counted,
    /// The link's credits: the core stands still until the device takes its stores. As lines leave a core in any order, the
    /// driver fences those that the device has room for from those behind.
    Link,
}

/// Which packets go by programmed I/O, as far as they are short enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Select {
    /// All packets go by descriptors.
    #[default]
    None,
    /// All packets go by lines.
    All,
    /// Those of TCP connections one of whose ports is in the range.
    TcpPorts {
        /// The lowest port number, which takes part.
        first: u16,
        /// The highest, which takes part, too.
        last: u16,
    },
    /// Those of at most so many bytes.
    UpTo(u32),
}

costs! {
    /// Cycles that sending by lines computes; its stores cost by themselves.
    KpioCosts in "kpio_cost" {
        /// To write a packet: length, lines, room.
        send,
        /// To choose the path of a packet by its connection or size.
        select,
        /// Checksum of eight bytes of a frame.
        crc_word,
        /// Internet checksum of eight bytes by software, where the format cannot ask the device.
        sum_word,
    }
}

/// Settings of the path by programmed I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KpioParams {
    /// Which packets take it; can be changed while the device runs.
    pub select: Select,
    /// Frames have length and checksum; else the paper's signature.
    pub framed: bool,
    /// How lines are stored.
    pub stores: Stores,
    /// How the last line of a frame leaves.
    pub ending: Ending,
    /// What keeps it from writing too much.
    pub flow: Flow,
    /// Lines after which a fence lets all buffers empty; 0 for never. 1 uses one buffer at a time.
    pub fence_every: u16,
    /// One queue under a lock, in place of one for each channel.
    pub shared: bool,
    /// Lines after which the device tells of free ones.
    pub report_every: u16,
    /// Packets of a connection that keep to a path which the others of their size would not take, until that path has
    /// let go of the connection; then the next one waits for that.
    pub most_stays: u16,
    /// What the code costs.
    pub costs: KpioCosts,
}

impl Default for KpioParams {
    /// All packets, with length and checksum, through all buffers, without fences.
    fn default() -> Self {
        Self {
            select: Select::All,
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
    /// As the paper's driver: its format, all connections, and a core that stalls when the link does not drain (section
    /// IV).
    pub fn papers() -> Self {
        Self { framed: false, flow: Flow::Link, ..Self::default() }
    }

    /// Plain programmed I/O: uncached, eight bytes at a time.
    pub fn uncached() -> Self {
        Self { stores: Stores::Uncached, ..Self::default() }
    }
}

/// What the device says of its queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KpioLimits {
    pub queues: u16,
    /// Log2 of the lines that a queue has memory for.
    pub log2_lines: u8,
    /// Log2 of the positions in a queue's window.
    pub log2_positions: u8,
}

impl KpioLimits {
    /// Reads the register; `None` if there are no queues, or what it says cannot be.
    pub fn of(register: u32) -> Option<Self> {
        let [queues, log2_lines, log2_positions, _] = register.to_le_bytes();
        let is_sane = queues > 0 && (1..=log2_positions).contains(&log2_lines) && log2_positions <= 16;
        is_sane.then_some(Self { queues: queues.into(), log2_lines, log2_positions })
    }
}
