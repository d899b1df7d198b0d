//! Registers of the DMA-engine cards on which pcie-bench runs.
//!
//! BAR 0 holds the parameters of one test and starts it. Registers are little
//! endian and may be written in any order while no test runs.

/// Size of BAR 0 in bytes.
pub const BAR_BYTES: u64 = 4096;
/// Writing [`START`] starts the test that the other registers describe.
pub const CONTROL: u64 = 0x00;
/// 0 idle, 1 running, 2 done.
pub const STATUS: u64 = 0x04;
/// Number of the test, as listed in [`Test`].
pub const TEST: u64 = 0x08;
/// 0 for the DMA engine, 1 for the command interface.
pub const INTERFACE: u64 = 0x0c;
/// 0 for sequential addresses, 1 for random ones.
pub const RANDOM: u64 = 0x10;
/// Bytes of one transfer.
pub const TRANSFER: u64 = 0x14;
/// Bytes of the window in the host's buffer.
pub const WINDOW: u64 = 0x18;
/// Offset of each transfer from the start of its unit in the window.
pub const HOST_OFFSET: u64 = 0x1c;
/// Offset of each transfer in the card's memory.
pub const DEVICE_OFFSET: u64 = 0x20;
/// Number of transactions.
pub const TRANSACTIONS: u64 = 0x24;
/// Seed of the addresses, 64 bits.
pub const SEED: u64 = 0x28;
/// Bus addresses of the buffer's chunks, 64 bits each, [`CHUNKS`] of them.
pub const CHUNK_ADDRESSES: u64 = 0x100;
/// Number of chunks of the host's buffer.
pub const CHUNKS: usize = 16;
/// Size of a chunk in bytes; its memory is contiguous.
pub const CHUNK_BYTES: u64 = 4 << 20;
/// Value of [`CONTROL`] that starts a test.
pub const START: u32 = 1;
/// Value of [`STATUS`] once a test is over.
pub const DONE: u32 = 2;

/// The five tests of pcie-bench (SIGCOMM 2018, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Test {
    /// Latency of single reads.
    LatencyRead = 0,
    /// Latency of a write followed by a read of the same address.
    LatencyWriteRead = 1,
    /// Bandwidth of reads, as many in parallel as the engine can.
    BandwidthRead = 2,
    /// Bandwidth of writes, as many in parallel as the engine can.
    BandwidthWrite = 3,
    /// Bandwidth of alternating reads and writes.
    BandwidthReadWrite = 4,
}

impl Test {
    /// The test with this number.
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::LatencyRead,
            1 => Self::LatencyWriteRead,
            2 => Self::BandwidthRead,
            3 => Self::BandwidthWrite,
            4 => Self::BandwidthReadWrite,
            _ => return None,
        })
    }

    /// Whether single transfers are timed.
    pub const fn is_latency(self) -> bool {
        matches!(self, Self::LatencyRead | Self::LatencyWriteRead)
    }
}
