//! The kernel file: CPU costs and configuration.

use std::collections::BTreeMap;

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::link::PayloadLimit;
use crate::read::{Check, record};
use crate::scalar::{Count, names};
use settings::EcnMode;
use units::{Bytes, Cycles, Duration};

record! {
    /// A kernel. Costs are without those of memory and devices.
    pub struct KernelFile {
        /// Name for references: the file's name without `.toml`.
        name: String,
        /// The kernel file that this one extends.
        extends: Option<String>,
        /// Description, in one line.
        summary: String,
        /// CPU costs, by name.
        cost: BTreeMap<String, Figure<Cycles>>,
        /// CPU costs of the NIC's driver, by name.
        nic_cost: BTreeMap<String, Figure<Cycles>>,
        /// CPU costs of that driver's programmed I/O.
        kpio_cost: BTreeMap<String, Figure<Cycles>>,
        /// CPU costs of the team driver.
        team_cost: BTreeMap<String, Figure<Cycles>>,
        /// CPU costs of the virtual NIC driver.
        virtio_net_cost: BTreeMap<String, Figure<Cycles>>,
        /// CPU costs of the virtual disk driver.
        virtio_blk_cost: BTreeMap<String, Figure<Cycles>>,
        /// CPU costs of the NVMe driver.
        nvme_cost: BTreeMap<String, Figure<Cycles>>,
        /// Costs of guest exits and their handling.
        virt_cost: BTreeMap<String, Figure<Cycles>>,
        /// CPU costs of threads that serve virtual NICs, per packet without copies, and virtual disks, per request.
        vhost_cost: BTreeMap<String, Figure<Cycles>>,
        /// Block layer: read-ahead and page cache.
        block: BlockFile,
        /// The CPU scheduler.
        scheduler: SchedulerFile,
        /// Configuration of PCI functions.
        pci: PciFile,
        /// DMA mapping.
        dma: DmaFile,
        /// Internet protocols.
        inet: InetFile,
        /// Receive flow steering.
        steering: SteeringFile,
        /// Maximum read request size for functions (bytes).
        max_read_request: Figure<PayloadLimit>,
    }
}

impl Kindred for KernelFile {
    const WORD: &'static str = "kernel";
    const FOLDER: &'static str = "machines/kernels";
    const ABOUT: &'static str = "An operating system's kernel: what its work costs.";
    const TEMPLATE: Option<[&'static str; 2]> =
        Some(["linux", "cost.syscall = { value = \"300 cycles\", source = \"measured: ...\" }"]);

    fn summary(&self) -> &str {
        &self.summary
    }
}

record! {
    /// The CPU scheduler.
    pub struct SchedulerFile {
        /// Period in which every runnable task of a core gets a time slice.
        latency: Figure<Duration>,
        /// Minimum time slice.
        granularity: Figure<Duration>,
        /// How far behind a waking task must be to preempt the running one.
        wakeup_granularity: Figure<Duration>,
        /// Number of cores used, from the first on (Linux: `maxcpus`); all if not given.
        maxcpus: Option<Figure<Count>>,
    }
    check |scheduler: &SchedulerFile, check: &mut Check<'_>| {
        let (latency, turn) = (scheduler.latency.value, scheduler.granularity.value);
        check.require(turn > Duration::ZERO, "granularity", "a turn takes some time", "such as `3 ms`");
        check.require(turn <= latency, "latency", "it does not hold a single turn", format!("{turn} or more"));
    }
}

record! {
    /// Read-ahead and page cache.
    pub struct BlockFile {
        /// Maximum read-ahead of sequential reads.
        read_ahead: Figure<Bytes>,
        /// Limit of a device's dirty pages above which writers wait for writeback.
        dirty_limit: Figure<Bytes>,
        /// Maximum size of a device's page cache.
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

names! {
    /// Errors for which a port takes its link down.
    pub enum ErrorTrigger {
        /// None.
        Off = "off",
        /// Fatal ones.
        Fatal = "fatal",
        /// All that are uncorrectable.
        NonFatal = "non-fatal",
    }
}

record! {
    /// Configuration of PCI functions by firmware and kernel. Resources reserved behind each hot-plug slot have the names of Linux's
    /// `pci=` options.
    pub struct PciFile {
        /// Bus numbers.
        hpbussize: Figure<u32>,
        /// Address space below 4 GiB (bytes).
        hpmmiosize: Figure<Bytes>,
        /// Address space above 4 GiB, for prefetchable BARs of 64 bits (bytes).
        hpmmioprefsize: Figure<Bytes>,
        /// Address space above 4 GiB for all such BARs (bytes); 31 TiB and more if not given.
        mmio_high: Option<Figure<Bytes>>,
        /// Size to which BARs that can be resized are set at boot, if they and the address space allow it, a power of two; what is next
        /// below if not. They keep the size after a reset if not given.
        resizable_bars: Option<Figure<Bytes>>,
        /// Errors for which ports with `containment` take their link down (DPC); `fatal` if not given (Linux:
        /// drivers/pci/pcie/dpc.c).
        containment: Option<Figure<ErrorTrigger>>,
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
        if let Some(space) = &pci.mmio_high {
            check.require_bytes("mmio_high", space.value, (Bytes::gib(1), Bytes::gib(1 << 14)));
        }
        if let Some(size) = &pci.resizable_bars {
            let bytes = size.value.get();
            check.require(
                bytes.is_power_of_two() && (1 << 20..=1 << 40).contains(&bytes),
                "resizable_bars",
                format!("{} is not a size of a BAR", size.value),
                "a power of two from 1 MiB to 1 TiB",
            );
        }
    }
}

impl PciFile {
    /// Errors for which ports take their link down.
    pub fn containment(&self) -> ErrorTrigger {
        self.containment.as_ref().map_or(ErrorTrigger::Fatal, |given| given.value)
    }
}

record! {
    /// DMA mapping.
    pub struct DmaFile {
        /// Ranges that a core collects before a lazy flush.
        flush_entries: Figure<Count>,
        /// Maximum delay of a lazy flush.
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
    /// Internet protocols.
    pub struct InetFile {
        /// Whether TCP uses explicit congestion notification.
        ecn: Figure<EcnMode>,
        /// Whether a partial segment waits while the device has others of its connection.
        autocorking: Figure<bool>,
        /// Maximum memory for incomplete fragmented packets, bytes.
        fragment_memory: Figure<Bytes>,
        /// Maximum time that fragments wait for others.
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
    /// Receive flow steering: how received packets reach the core of their reader.
    pub struct SteeringFile {
        /// Entries of the tables of sockets' cores and of flows.
        entries: Figure<Count>,
        /// Whether packets are sent to the core that uses their socket.
        rfs: Figure<bool>,
        /// Whether devices are programmed to steer flows to that core's queue.
        arfs: Figure<bool>,
        /// Idle time after which a flow's rule is removed from the device.
        idle: Figure<Duration>,
        /// Interval between scans for idle flows.
        scan: Figure<Duration>,
    }
    check |steering: &SteeringFile, check: &mut Check<'_>| {
        check.require_within("entries", steering.entries.value.get().into(), (1, 1 << 20), "places are not possible");
        let scan = steering.scan.value;
        check.require(scan > Duration::ZERO, "scan", "it would do nothing else", "such as `1 s`");
    }
}
