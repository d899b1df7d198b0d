//! What a GPU is made of.

use units::{ByteRate, Bytes, Duration};
use wire::pcie::config::PcieParams;

/// A GPU.
#[derive(Clone, Debug)]
pub struct GpuParams {
    /// PCI vendor and device number.
    pub ids: (u16, u16),
    /// Capabilities that it announces.
    pub pcie: PcieParams,
    /// It has an interrupt message (MSI), not its legacy interrupt alone.
    pub message: bool,
    /// Its memory, whole MiB.
    pub memory: Bytes,
    /// What of it the aperture shows, a power of two of at least a MiB.
    pub aperture: Bytes,
    /// Rate at which its memory is copied within itself.
    pub memory_rate: ByteRate,
    /// Engines that copy.
    pub copy_engines: u8,
    /// Reads that each of them has under way at most.
    pub tags: u16,
    /// Bytes of such a read.
    pub read_request: u32,
    /// Writes of up to 4 KiB that each of them has in hand: with two, one waits behind the other so that the link never does.
    pub writes: u8,
    /// Rate at which writes leave, headers not counted; as fast as the link takes them if there is none.
    pub write_rate: Option<ByteRate>,
    /// From a copy's command until the engine's first request.
    pub copy_start: Duration,
    /// What an engine takes to decode a command.
    pub command: Duration,
    /// Entries of a channel's ring that are fetched at once.
    pub fetch_entries: u16,
    /// From a channel being chosen until the engine has its state and begins to fetch.
    pub channel_load: Duration,
    /// Between two looks at a semaphore for which a channel waits.
    pub acquire_interval: Duration,
    /// From a launch's command until the program's first instruction, and from its last to the next command.
    pub launch: Duration,
    /// From an instruction's load until the request is at the link, and from its answer there to the instruction.
    pub access: Duration,
    /// From an instruction's store until its write is at the link.
    pub store: Duration,
    /// A load from its own memory.
    pub local_load: Duration,
    /// From a write of others at the link until its programs see it in its memory.
    pub incoming: Duration,
    /// Between two looks of a program at memory that it waits for.
    pub poll_interval: Duration,
    /// A register read, or a read through the aperture.
    pub register: Duration,
}

impl GpuParams {
    /// Round figures, for tests.
    pub fn example() -> Self {
        let ns = Duration::from_ns;
        Self {
            ids: (0x10de, 0x0ff3),
            pcie: PcieParams::endpoint(wire::pcie::Generation::Gen2, wire::pcie::Width::X16),
            message: true,
            memory: Bytes::mib(64),
            aperture: Bytes::mib(16),
            memory_rate: ByteRate::gb_per_s(10),
            copy_engines: 2,
            tags: 16,
            read_request: 256,
            writes: 2,
            write_rate: None,
            copy_start: ns(1_000),
            command: ns(100),
            fetch_entries: 128,
            channel_load: ns(3_000),
            acquire_interval: ns(500),
            launch: ns(1_000),
            access: ns(200),
            store: ns(200),
            local_load: ns(300),
            incoming: ns(100),
            poll_interval: ns(100),
            register: ns(500),
        }
    }
}
