//! Parameters of the NVMe driver in a scenario.

use crate::placed::Placed;
use crate::read::{Check, record};
use crate::scalar::Count;
use units::{Bytes, Duration};

record! {
    /// Parameters of the NVMe driver; the driver's defaults apply to keys that are not given.
    pub struct NvmeDriverEntry {
        /// Maximum I/O queue pairs; one per core if not given.
        queues: Option<Placed<Count>>,
        /// Whether to use the legacy interrupt (INTx), shared by all queues, even if a drive supports MSI-X; false if
        /// not given.
        legacy_interrupt: Option<bool>,
        /// Entries of each I/O queue, one of which stays unused (Linux: `io_queue_depth`); 1024 if not given.
        queue_entries: Option<Placed<Count>>,
        /// Whether to place submission queues in the controller memory buffer, if there is one (Linux:
        /// `use_cmb_sqs`); true if not given.
        memory_buffer: Option<Placed<bool>>,
        /// Minimum average segment size for SGLs; 0 for never (Linux: `sgl_threshold`); 32 KiB if not given.
        sgl_threshold: Option<Bytes>,
        /// Whether drives are reserved for user-space drivers, as with vfio-pci; the kernel has no block devices for
        /// them then. False if not given.
        user_space: Option<bool>,
        /// Timeout of an I/O command before it is aborted (Linux: `io_timeout`); 30 s if not given.
        io_timeout: Option<Duration>,
        /// Whether a drive with several ports to the host is one block device, whose requests use the port local to
        /// the submitting core (Linux: `nvme_core.multipath` with `iopolicy=numa`); one block device per port if not
        /// given.
        multipath: Option<bool>,
    }
    check |driver: &NvmeDriverEntry, check: &mut Check<'_>| {
        for (key, count, least, most) in
            [("queues", &driver.queues, 1, 65_535), ("queue_entries", &driver.queue_entries, 3, 4096)]
        {
            let count = count.as_ref().map_or(least, |count| count.get().into());
            check.require_within(key, count, (least, most), "are not possible");
        }
        let small = driver.sgl_threshold.is_none_or(|bytes| bytes.get() <= 1 << 30);
        check.require(small, "sgl_threshold", "no segment is as long", "up to 1 GiB; 0 for never");
        let waits = driver.io_timeout.is_none_or(|time| time > Duration::ZERO);
        check.require(waits, "io_timeout", "every command would be aborted at once", "such as `30 s`");
    }
}
