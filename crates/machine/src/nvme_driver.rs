//! What a scenario says of the NVMe driver: its module parameters.

use crate::read::{Check, record};
use crate::scalar::Count;
use units::{Bytes, Duration};

record! {
    /// The parameters with which the NVMe driver is loaded; what is not given is as the driver has it.
    pub struct NvmeDriverEntry {
        /// Most I/O queue pairs; as many as there are cores if not given.
        queues: Option<Count>,
        /// Entries of each I/O queue, one of which stays free (Linux: `io_queue_depth`).
        queue_entries: Option<Count>,
        /// Whether submission queues go into the controller memory buffer, if there is one (Linux: `use_cmb_sqs`).
        memory_buffer: Option<bool>,
        /// SGLs describe segments of at least so many bytes on average; 0 for never (Linux: `sgl_threshold`).
        sgl_threshold: Option<Bytes>,
        /// How long an I/O command may take before it is aborted (Linux: `io_timeout`).
        io_timeout: Option<Duration>,
    }
    check |driver: &NvmeDriverEntry, check: &mut Check<'_>| {
        let within = |count: &Option<Count>, least, most| {
            count.as_ref().is_none_or(|count| (least..=most).contains(&count.get()))
        };
        check.require(within(&driver.queues, 1, 65535), "queues", "that is no number of queues", "1 to 65535");
        check.require(
            within(&driver.queue_entries, 2, 4096),
            "queue_entries",
            "a queue cannot have so many entries",
            "2 to 4096",
        );
    }
}
