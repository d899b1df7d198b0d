//! What a kernel's file says: what its code costs and how it is set up.

use std::collections::BTreeMap;

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::link::PayloadLimit;
use crate::read::{Check, record};
use crate::scalar::Count;
use settings::EcnMode;
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
        /// What pieces of the team driver cost.
        team_cost: BTreeMap<String, Figure<Cycles>>,
        /// What pieces of the driver of virtual NICs cost.
        virtio_net_cost: BTreeMap<String, Figure<Cycles>>,
        /// What pieces of the driver of virtual disks cost.
        virtio_blk_cost: BTreeMap<String, Figure<Cycles>>,
        /// What pieces of the NVMe driver cost.
        nvme_cost: BTreeMap<String, Figure<Cycles>>,
        /// What a guest's being left costs, and what follows.
        virt_cost: BTreeMap<String, Figure<Cycles>>,
        /// What a packet costs a thread that serves virtual NICs, its copies apart, and a request one that serves virtual disks.
        vhost_cost: BTreeMap<String, Figure<Cycles>>,
        /// How it reads ahead and caches blocks.
        block: BlockFile,
        /// How it shares cores.
        scheduler: SchedulerFile,
        /// How it sets PCI functions up.
        pci: PciFile,
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
        /// Cores that it uses, the first ones (Linux: `maxcpus`); all if not given.
        maxcpus: Option<Figure<Count>>,
    }
    check |scheduler: &SchedulerFile, check: &mut Check<'_>| {
        let (latency, turn) = (scheduler.latency.value, scheduler.granularity.value);
        check.require(turn > Duration::ZERO, "granularity", "a turn takes some time", "such as `3 ms`");
        check.require(turn <= latency, "latency", "it does not hold a single turn", format!("{turn} or more"));
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
    check |block: &BlockFile, check: &mut Check<'_>| {
        let most = block.cache_limit.value;
        check.require(most >= Bytes::mib(1), "cache_limit", format!("{most} do not cache much"), "1 MiB or more");
        for (key, figure) in [("read_ahead", &block.read_ahead), ("dirty_limit", &block.dirty_limit)] {
            let message = format!("{} are more than the page cache holds", figure.value);
            check.require(figure.value <= most, key, message, format!("up to `cache_limit`, {most}"));
        }
        let dirty = block.dirty_limit.value >= Bytes::kib(4);
        check.require(dirty, "dirty_limit", "writers would wait for ever", "a page of 4 KiB or more");
    }
}

record! {
    /// How a kernel sets PCI functions up: what it keeps free behind each hot-plug slot, as Linux's options `pci=` call it.
    pub struct PciFile {
        /// Bus numbers.
        hpbussize: Figure<u32>,
        /// Address space below 4 GiB (bytes).
        hpmmiosize: Figure<Bytes>,
        /// Address space above 4 GiB, for prefetchable BARs of 64 bits (bytes).
        hpmmioprefsize: Figure<Bytes>,
    }
    check |pci: &PciFile, check: &mut Check<'_>| {
        check.require_within("hpbussize", pci.hpbussize.value.into(), (0, 255), "bus numbers are not possible");
        let (memory, prefetchable) = (pci.hpmmiosize.value, pci.hpmmioprefsize.value);
        check.require_bytes("hpmmiosize", memory, (Bytes::new(0), Bytes::mib(512)));
        check.require_bytes("hpmmioprefsize", prefetchable, (Bytes::new(0), Bytes::gib(1 << 10)));
        for (key, size) in [("hpmmiosize", memory), ("hpmmioprefsize", prefetchable)] {
            let whole = size.get() % (1 << 20) == 0;
            check.require(whole, key, format!("no window of a bridge has {size}"), "whole MiB");
        }
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
    check |dma: &DmaFile, check: &mut Check<'_>| {
        let entries = dma.flush_entries.value.get().into();
        check.require_within("flush_entries", entries, (1, 1 << 20), "ranges are not possible");
        let time = dma.flush_time.value;
        check.require(time > Duration::ZERO, "flush_time", "a flush that is lazy waits", "such as `10 ms`");
    }
}

record! {
    /// How a kernel's Internet protocols are set up.
    pub struct InetFile {
        /// Whether TCP uses explicit congestion notification.
        ecn: Figure<EcnMode>,
        /// Whether a segment that is not full waits while the device has others of its connection.
        autocorking: Figure<bool>,
        /// Bytes that fragments may take that wait for others of their packets.
        fragment_memory: Figure<Bytes>,
        /// How long they wait.
        fragment_time: Figure<Duration>,
    }
    check |inet: &InetFile, check: &mut Check<'_>| {
        let memory = inet.fragment_memory.value;
        let message = format!("{memory} do not hold a packet of 64 KiB");
        check.require(memory >= Bytes::kib(128), "fragment_memory", message, "128 KiB or more");
        let time = inet.fragment_time.value;
        check.require(time > Duration::ZERO, "fragment_time", "every fragment would be given up at once", "such as `30 s`");
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
    check |steering: &SteeringFile, check: &mut Check<'_>| {
        check.require_within("entries", steering.entries.value.get().into(), (1, 1 << 20), "places are not possible");
        let scan = steering.scan.value;
        check.require(scan > Duration::ZERO, "scan", "it would do nothing else", "such as `1 s`");
    }
}
