//! What a drive is made of: identity, limits, timing.

use units::{ByteRate, Bytes, Duration};
use wire::pcie::config::PcieParams;
use wire::pcie::{Generation, Width};

/// A drive.
#[derive(Clone, Debug)]
pub struct NvmeParams {
    /// PCI vendor and device number.
    pub ids: (u16, u16),
    /// Serial number, at most 20 characters.
    pub serial: String,
    /// Model, at most 40 characters.
    pub model: String,
    /// Firmware revision, at most 8 characters.
    pub firmware: String,
    /// Capabilities of each port.
    pub pcie: PcieParams,
    /// Ports, each with a controller; all share the namespaces.
    pub ports: u8,
    /// Most entries of a queue, 2 to 65536.
    pub queue_entries: u32,
    /// Most I/O queue pairs of a controller.
    pub io_queues: u16,
    /// MSI-X vectors of a controller; with none it has its legacy interrupt alone, as vector 0.
    pub vectors: u16,
    /// Doorbells are 4 bytes times two to this apart.
    pub doorbell_stride: u8,
    /// Largest transfer: 4 KiB times two to this; 0 is no limit.
    pub max_transfer_shift: u8,
    /// Bytes of the controller memory buffer, a power of two of at least 4 KiB; 0 for none.
    pub memory_buffer: u64,
    /// Bytes of each namespace.
    pub namespaces: Vec<Bytes>,
    /// Bytes of a block as a power of two: 9 or 12.
    pub block_shift: u8,
    /// Blocks that power failure does not tear, less one.
    pub atomic_blocks: u16,
    /// Whether the write buffer loses its contents with power.
    pub volatile_buffer: bool,
    /// Abort commands at once.
    pub aborts: u8,
    /// Asynchronous Event Requests at once.
    pub event_requests: u8,
    /// Time that the controller's own work takes.
    pub timing: ControllerTiming,
    /// The media.
    pub media: MediaTiming,
    /// Seed for what a power cut leaves of unfinished writes.
    pub seed: u64,
}

/// What the controller's own work costs.
#[derive(Clone, Copy, Debug)]
pub struct ControllerTiming {
    /// A register read.
    pub register: Duration,
    /// From a doorbell until entries are fetched.
    pub fetch: Duration,
    /// Fetches under way at once, of different queues.
    pub fetches: u8,
    /// From an entry being there until its command is decoded and begun.
    pub decode: Duration,
    /// Least interval between two commands being begun.
    pub command_interval: Duration,
    /// From a command's end until its completion entry is sent.
    pub completion: Duration,
    /// Rate at which data passes between link and media, both ways together.
    pub data_path: ByteRate,
    /// Commands in hand at once.
    pub commands_in_hand: u16,
    /// From CC.EN being set until the controller is ready.
    pub enable: Duration,
}

/// The media: dies behind channels.
#[derive(Clone, Copy, Debug)]
pub struct MediaTiming {
    /// Channels.
    pub channels: u16,
    /// Dies of each channel.
    pub dies: u16,
    /// Bytes that stand together on a die; the next ones are on the next channel.
    pub unit: Bytes,
    /// From a die being asked until a unit's data is in its register.
    pub read: Duration,
    /// From a unit's data being in a die's register until it is stored.
    pub program: Duration,
    /// Rate of a channel.
    pub channel: ByteRate,
    /// Its rate when it writes.
    pub channel_write: ByteRate,
    /// Bytes of writes that may be acknowledged before they are on the media; none: written through.
    pub write_buffer: Bytes,
    /// Of a drive that has been overwritten at random for long, and so collects garbage: its flash. Without, a drive is
    /// taken as fresh, or its media can be written in place.
    pub flash: Option<FlashParams>,
}

/// Flash in which nothing can be written in place.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashParams {
    /// Units of a block, which is erased as a whole.
    pub pages: u32,
    /// Share of the flash that the namespaces take when they are full.
    pub filled: f64,
    /// Erasing a block.
    pub erase: Duration,
}

impl NvmeParams {
    /// A drive for tests with two namespaces of 4 MiB, a volatile write cache and a memory buffer. No real drive has these values.
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
