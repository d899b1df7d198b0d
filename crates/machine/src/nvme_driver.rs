//! What a scenario says of the NVMe driver: its module parameters.

use crate::placed::Placed;
use crate::read::{Check, record};
use crate::scalar::Count;
use units::{Bytes, Duration};

record! {
    /// The parameters with which the NVMe driver is loaded; what is not given is as the driver has it.
    pub struct NvmeDriverEntry {
        /// Most I/O queue pairs; as many as there are cores if not given.
        queues: Option<Placed<Count>>,
        /// Whether the legacy interrupt (INTx) is used, one for all queues, even if a drive has messages (MSI-X); it is not if not given.
        legacy_interrupt: Option<bool>,
        /// Entries of each I/O queue, one of which stays free (Linux: `io_queue_depth`); 1024 if not given.
        queue_entries: Option<Placed<Count>>,
        /// Whether submission queues go into the controller memory buffer, if there is one (Linux: `use_cmb_sqs`); they
        /// do if not given.
        memory_buffer: Option<Placed<bool>>,
        /// SGLs describe segments of at least so many bytes on average; 0 for never (Linux: `sgl_threshold`); 32 KiB if
        /// not given.
        sgl_threshold: Option<Bytes>,
        /// Programs drive the drives by themselves, as with vfio-pci: the kernel has no block devices of them. If not given, it has.
        user_space: Option<bool>,
        /// How long an I/O command may take before it is aborted (Linux: `io_timeout`); 30 s if not given.
        io_timeout: Option<Duration>,
        /// Whether a drive that the host reaches by several ports is one block device, whose requests take the port that is local to
        /// the submitting core (Linux: `nvme_core.multipath` with `iopolicy=numa`); each port has one of its own if not given.
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
