//! Options of the driver, and what its code costs.

use platform::costs;
use units::Duration;

/// Options set when the driver is loaded (Linux's module parameters, in brackets).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvmeOptions {
    /// I/O commands are aborted after this time (`io_timeout`, 30 s).
    pub io_timeout: Duration,
    /// Admin commands time out after this time (`admin_timeout`, 60 s).
    pub admin_timeout: Duration,
    /// Entries of an I/O queue (`io_queue_depth`, 1024).
    pub queue_entries: u16,
    /// Most I/O queue pairs; `None` for one per core.
    pub queues: Option<u16>,
    /// Use the legacy interrupt, shared by all queues, even if messages are available.
    pub legacy_interrupt: bool,
    /// Retries of a command that failed or was interrupted by a reset (`max_retries`, 5).
    pub retries: u8,
    /// Place submission queues in the controller memory buffer, if supported (`use_cmb_sqs`).
    pub use_memory_buffer: bool,
    /// Average segment size (bytes) from which SGLs are used (`sgl_threshold`, 32 KiB); 0 for never.
    pub sgl_threshold: u32,
    /// Combine the paths to a namespace into one block device (`multipath`), which prefers the controller local to
    /// the submitting core (`iopolicy=numa`). If off, each controller has its own block device.
    pub multipath: bool,
    /// CPU costs.
    pub costs: NvmeCosts,
}

impl Default for NvmeOptions {
    fn default() -> Self {
        Self {
            io_timeout: Duration::from_ms(30_000),
            admin_timeout: Duration::from_ms(60_000),
            queue_entries: 1024,
            queues: None,
            legacy_interrupt: false,
            retries: 5,
            use_memory_buffer: true,
            sgl_threshold: 32 << 10,
            multipath: false,
            costs: NvmeCosts::linux(),
        }
    }
}

costs! {
    /// Cycles that the driver computes; loads, stores and doorbells are charged separately.
    NvmeCosts in "nvme_cost" {
        /// To build a command and fill its slot.
        submit,
        /// For each segment.
        segment,
        /// To complete a command.
        complete,
        /// To check a completion queue.
        look,
    }
}
