//! What a kernel's file says: what its code costs and how it is set up.

use std::collections::BTreeMap;

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::link::PayloadLimit;
use crate::read::record;
use crate::scalar::{Count, names};
use units::{Bytes, Cycles, Duration};

record! {
    /// A kernel as its file describes it. What memory and devices add to its costs is theirs.
    pub struct KernelFile {
        /// The name by which it is referred to: the file's without `.toml`.
        name: String,
        /// The kernel file whose contents this one changes and adds to.
        extends: Option<String>,
        /// What the kernel is, in a line.
        summary: String,
        /// What pieces of its code cost, by name.
        cost: BTreeMap<String, Figure<Cycles>>,
        /// What pieces of the NIC's driver cost, by name.
        nic_cost: BTreeMap<String, Figure<Cycles>>,
        /// What pieces of that driver's sending by programmed I/O cost.
        kpio_cost: BTreeMap<String, Figure<Cycles>>,
        /// What pieces of the NVMe driver cost.
        nvme_cost: BTreeMap<String, Figure<Cycles>>,
        /// How it reads ahead and caches blocks.
        block: BlockFile,
        /// How it shares cores.
        scheduler: SchedulerFile,
        /// How it maps memory for devices.
        dma: DmaFile,
        /// How its Internet protocols are set up.
        inet: InetFile,
        /// How received packets find the cores of those who read them.
        steering: SteeringFile,
        /// Largest read request that it lets functions make (bytes).
        max_read_request: Figure<PayloadLimit>,
    }
}

impl Kindred for KernelFile {
    const WHAT: &'static str = "kernel";
    const FOLDER: &'static str = "machines/kernels";
}

record! {
    /// How a kernel shares cores.
    pub struct SchedulerFile {
        /// Time for which every runnable task of a core gets a turn.
        latency: Figure<Duration>,
        /// Shortest turn.
        granularity: Figure<Duration>,
        /// By how much a task that wakes must be behind to take the core.
        wakeup_granularity: Figure<Duration>,
    }
}

record! {
    /// How a kernel reads ahead and caches blocks.
    pub struct BlockFile {
        /// How far sequential reads are ahead of the program.
        read_ahead: Figure<Bytes>,
        /// Dirty pages of a device that let writers wait until they are written.
        dirty_limit: Figure<Bytes>,
        /// Most that the page cache of a device holds.
        cache_limit: Figure<Bytes>,
    }
}

record! {
    /// How a kernel maps memory for devices.
    pub struct DmaFile {
        /// Ranges that a core collects before a lazy flush.
        flush_entries: Figure<Count>,
        /// Longest wait of a lazy flush.
        flush_time: Figure<Duration>,
        /// Whether addresses below 4 GiB are used first.
        low_first: Figure<bool>,
    }
}

names! {
    /// Whether TCP uses explicit congestion notification (RFC 3168).
    pub enum Ecn {
        /// Never.
        Off = "off",
        /// If the peer asks for it.
        Accept = "accept",
        /// Own connections ask for it, too.
        Ask = "ask",
    }
}

record! {
    /// How a kernel's Internet protocols are set up.
    pub struct InetFile {
        /// Whether TCP uses explicit congestion notification.
        ecn: Figure<Ecn>,
        /// Bytes that fragments may take that wait for others of their packets.
        fragment_memory: Figure<Bytes>,
        /// How long they wait.
        fragment_time: Figure<Duration>,
    }
}

record! {
    /// How received packets find the cores of those who read them (receive flow steering).
    pub struct SteeringFile {
        /// Places in the tables of sockets' cores and of flows.
        entries: Figure<Count>,
        /// Whether packets are sent to the core on which their socket is used.
        rfs: Figure<bool>,
        /// Whether devices are asked to steer flows to that core's queue.
        arfs: Figure<bool>,
        /// For how long a flow is silent until its device forgets it.
        idle: Figure<Duration>,
        /// How often silent flows are looked for.
        scan: Figure<Duration>,
    }
}
