//! Parameters of a drive: identity, limits, timing.

use units::{ByteRate, Bytes, Duration};
use wire::pcie::config::PcieParams;
use wire::pcie::{Generation, Width};

/// BAR of the controller memory buffer.
pub const BUFFER_BAR: u8 = 2;

/// Parameters of a drive.
#[derive(Clone, Debug)]
pub struct NvmeParams {
    /// PCI vendor and device ID.
    pub ids: (u16, u16),
    /// Serial number, at most 20 characters.
    pub serial: String,
    /// Model, at most 40 characters.
    pub model: String,
    /// Firmware revision, at most 8 characters.
    pub firmware: String,
    /// PCIe capabilities of each port.
    pub pcie: PcieParams,
    /// Ports, each with a controller; all share the namespaces.
    pub ports: u8,
    /// Maximum entries of a queue, 2 to 65536.
    pub queue_entries: u32,
    /// Maximum I/O queue pairs per controller.
    pub io_queues: u16,
    /// MSI-X vectors per controller; 0 for a legacy interrupt only, as vector 0.
    pub vectors: u16,
    /// Doorbell stride: log2, in units of 4 bytes.
    pub doorbell_stride: u8,
    /// Largest transfer: log2, in units of 4 KiB; 0 for no limit.
    pub max_transfer_shift: u8,
    /// Size of the controller memory buffer in bytes, a power of two of at least 4 KiB; 0 for none.
    pub memory_buffer: u64,
    /// Size of each namespace.
    pub namespaces: Vec<Bytes>,
    /// Log2 of the block size in bytes: 9 or 12.
    pub block_shift: u8,
    /// Blocks written atomically across a power failure, minus one.
    pub atomic_blocks: u16,
    /// Whether the write buffer loses its contents with power.
    pub volatile_buffer: bool,
    /// Maximum concurrent Abort commands.
    pub aborts: u8,
    /// Maximum outstanding Asynchronous Event Requests.
    pub event_requests: u8,
    /// Latencies of registers, queues and commands in each controller.
    pub timing: ControllerTiming,
    /// Latencies and rates of the dies, channels and write buffer, which the controllers share.
    pub media: MediaTiming,
    /// Seed for the outcome of unfinished writes at a power cut.
    pub seed: u64,
}

/// Timing of the controller's own work.
#[derive(Clone, Copy, Debug)]
pub struct ControllerTiming {
    /// Latency of a register read.
    pub register: Duration,
    /// From a doorbell to the fetch of entries.
    pub fetch: Duration,
    /// Maximum concurrent fetches, from different queues.
    pub fetches: u8,
    /// From the arrival of an entry to the start of its command.
    pub decode: Duration,
    /// Minimum interval between the starts of two commands.
    pub command_interval: Duration,
    /// From the end of a command to the write of its completion entry.
    pub completion: Duration,
    /// Rate of the data path between link and media, both directions together.
    pub data_path: ByteRate,
    /// Maximum commands in progress.
    pub commands_in_hand: u16,
    /// From setting CC.EN to the controller being ready.
    pub enable: Duration,
}

/// Timing of the media: dies behind channels.
#[derive(Clone, Copy, Debug)]
pub struct MediaTiming {
    /// Number of channels.
    pub channels: u16,
    /// Dies per channel.
    pub dies: u16,
    /// Stripe unit: consecutive bytes on one die. The next unit is on the next channel.
    pub unit: Bytes,
    /// From a read request to the unit's data being in the die's register.
    pub read: Duration,
    /// From a unit's data being in a die's register to its being stored.
    pub program: Duration,
    /// Read rate of a channel.
    pub channel: ByteRate,
    /// Rate at which a channel takes data to its dies.
    pub channel_write: ByteRate,
    /// Bytes of writes that may be acknowledged before they are on the media; 0 for write-through.
    pub write_buffer: Bytes,
    /// Flash of a drive that has long been overwritten at random, and therefore collects garbage. Without it, the drive
    /// is fresh, or its media can be overwritten in place.
    pub flash: Option<FlashParams>,
}

/// Flash that cannot be overwritten in place.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashParams {
    /// Units per erase block.
    pub pages: u32,
    /// Fraction of the flash that full namespaces occupy.
    pub filled: f64,
    /// Time to erase a block.
    pub erase: Duration,
}

impl NvmeParams {
    /// A drive for tests with two namespaces of 4 MiB, a volatile write cache and a memory buffer. No real drive has
    /// these values.
    pub fn example() -> Self {
        Self {
            ids: (0x1b36, 0x0010),
            serial: "EXAMPLE0001".into(),
            model: "Example drive".into(),
            firmware: "1.0".into(),
            pcie: PcieParams::endpoint(Generation::Gen3, Width::X4),
            ports: 1,
            queue_entries: 256,
            io_queues: 8,
            vectors: 9,
            doorbell_stride: 0,
            max_transfer_shift: 5,
            memory_buffer: 64 << 10,
            namespaces: vec![Bytes::mib(4), Bytes::mib(4)],
            block_shift: 9,
            atomic_blocks: 7,
            volatile_buffer: true,
            aborts: 4,
            event_requests: 4,
            timing: ControllerTiming {
                register: Duration::from_ns(50),
                fetch: Duration::from_ns(200),
                fetches: 4,
                decode: Duration::from_ns(500),
                command_interval: Duration::from_ns(500),
                completion: Duration::from_ns(100),
                data_path: ByteRate::gb_per_s(4),
                commands_in_hand: 64,
                enable: Duration::from_us(100),
            },
            media: MediaTiming {
                channels: 4,
                dies: 2,
                unit: Bytes::new(4096),
                read: Duration::from_us(5),
                program: Duration::from_us(20),
                channel: ByteRate::gb_per_s(1),
                channel_write: ByteRate::gb_per_s(1),
                write_buffer: Bytes::mib(1),
                flash: None,
            },
            seed: 1,
        }
    }
}
