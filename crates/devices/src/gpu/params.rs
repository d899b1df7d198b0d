//! Parameters of a GPU.

use units::{ByteRate, Bytes, Duration};
use wire::pcie::config::PcieParams;

/// What distinguishes a model of GPU from others: identity, sizes, rates and latencies.
#[derive(Clone, Debug)]
pub struct GpuParams {
    /// PCI vendor and device ID.
    pub ids: (u16, u16),
    /// PCIe capabilities.
    pub pcie: PcieParams,
    /// Has an interrupt message (MSI) besides its legacy interrupt.
    pub message: bool,
    /// Memory size in whole MiB.
    pub memory: Bytes,
    /// Size of the aperture into memory, a power of two of at least a MiB.
    pub aperture: Bytes,
    /// Largest size to which the aperture can be resized; it cannot if `None`.
    pub aperture_most: Option<Bytes>,
    /// Rate of copies within GPU memory.
    pub memory_rate: ByteRate,
    /// Number of copy engines.
    pub copy_engines: u8,
    /// Seed of the order in which several copy engines write.
    pub seed: u64,
    /// Maximum reads in flight per copy engine.
    pub tags: u16,
    /// Maximum reads in flight of all copy engines together.
    pub all_tags: u16,
    /// Bytes per read.
    pub read_request: u32,
    /// Writes of up to 4 KiB in flight per copy engine. With two, one is always queued, so that the link never idles.
    pub writes: u8,
    /// Rate at which writes leave, without headers; limited by the link alone if `None`.
    pub write_rate: Option<ByteRate>,
    /// From a copy command to the engine's first request.
    pub copy_start: Duration,
    /// Time for an engine to decode a command.
    pub command: Duration,
    /// Ring entries per fetch.
    pub fetch_entries: u16,
    /// Context switch: from the choice of a channel until the engine has its state and begins to fetch.
    pub channel_load: Duration,
    /// Interval at which the semaphore of a waiting channel is polled.
    pub acquire_interval: Duration,
    /// By how much its clock is slower than what these times say, in parts per billion: all that its programs do
    /// takes longer by as much.
    pub clock_error_ppb: i32,
    /// From a launch command to the program's first instruction, and from its last to the next command.
    pub launch: Duration,
    /// From a load instruction to its request at the link, and from the completion there back to the instruction.
    pub access: Duration,
    /// From a store instruction to its write at the link.
    pub store: Duration,
    /// Latency of a load from GPU memory.
    pub local_load: Duration,
    /// From the arrival of a peer's write at the link until GPU programs see it in memory.
    pub incoming: Duration,
    /// Polling interval of a program that waits for a memory location.
    pub poll_interval: Duration,
    /// Latency of a register read, or of a read through the aperture.
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
            aperture_most: None,
            memory_rate: ByteRate::gb_per_s(10),
            copy_engines: 2,
            seed: 1,
            tags: 16,
            all_tags: 32,
            read_request: 256,
            writes: 2,
            write_rate: None,
            copy_start: ns(1_000),
            command: ns(100),
            fetch_entries: 128,
            channel_load: ns(3_000),
            acquire_interval: ns(500),
            clock_error_ppb: 0,
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
