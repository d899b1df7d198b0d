//! CPU costs of kernel code in cycles, and parameters of a core.
//!
//! Only instructions are counted here. Memory access times come from the simulated caches, and those of devices and
//! IOMMU from their models.

use platform::costs;
use platform::costs::linux;
use units::{Cycles, Duration, Frequency};

/// Parameters of a core, without its caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreParams {
    /// Clock (data sheet).
    pub frequency: Frequency,
    /// Line fill buffers, so most outstanding misses (Intel optimisation manual: 10 from Nehalem to Broadwell).
    pub fill_buffers: u16,
    /// Store buffer entries: stores retired but not yet written (Intel optimisation manual: 42 Haswell, 56 Skylake).
    pub store_buffer: u16,
    /// Cycles between accesses to consecutive lines of one instruction stream: 64 B take two 32 B loads or stores
    /// (Intel optimisation manual). Divided by the store interval, it gives the stores per line.
    pub issue: Cycles,
    /// Cycles between stores (Intel optimisation manual: one per cycle, of up to 16 bytes on Sandy Bridge).
    pub store_interval: Cycles,
}

impl CoreParams {
    /// A Haswell-like core at `frequency`.
    pub const fn haswell(frequency: Frequency) -> Self {
        Self {
            frequency,
            fill_buffers: 10,
            store_buffer: 42,
            issue: Cycles::new(2),
            store_interval: Cycles::new(1),
        }
    }
}

costs! {
    /// CPU costs of kernel code, in cycles. Every value is a parameter of the machine.
    KernelCosts in "cost" {
    /// From an interrupt's arrival to its handler: microcode, entry code, vector lookup.
    irq_entry,
    /// From the end of a handler back to the interrupted program: end of interrupt, `iret`.
    irq_exit,
    /// To start and end deferred work.
    softirq,
    /// To schedule a poll, or end it.
    napi,
    /// To send an inter-processor interrupt (IPI): a write to the interrupt controller's command register.
    ipi_send,
    /// Until an IPI arrives.
    ipi_transit,
    /// To leave the idle loop and the processor's idle state.
    idle_exit,
    /// A task switch, including the address space. Also to the idle loop and from it.
    context_switch,
    /// To make a task runnable.
    wake_up,
    /// To set or cancel a timer, or to handle one that has expired.
    timer,
    /// To allocate or free a page through a core's list.
    page,
    /// To allocate pages that a core's list does not have.
    page_slow,
    /// To replace a mapped page by another in the page tables, without the copy.
    migrate_page,
    /// A TLB shootdown: the wait until no core holds the old translation.
    tlb_shootdown,
    /// An uncached store, until the next instruction. Waits for earlier stores, combining buffers and the link are
    /// extra.
    mmio_write,
    /// An `sfence` or `mfence` with nothing to wait for.
    fence,
    /// The lock prefix of a locked instruction.
    locked,
    /// To issue a `clflush`.
    line_flush,
    /// To map or unmap without an IOMMU: address arithmetic and checks.
    dma_direct,
    /// To find an IOVA range in a core's cache.
    iova_cached,
    /// To find an IOVA range in the tree.
    iova_slow,
    /// A page table walk in software, without its memory accesses.
    page_table_edit,
    /// To write a descriptor to the invalidation queue and ring its doorbell.
    invalidation,
    /// Common transmit path, per packet: queue selection and lock.
    net_transmit,
    /// Common receive path, per packet: metadata and protocol lookup.
    net_receive,
    /// To enqueue a packet before a driver, or dequeue it.
    net_queue,
    /// To check whether a received segment continues another, and join it (GRO).
    gro,
    /// To look up core and queue of a received packet.
    net_steer,
    /// IP receive, per packet: checks and destination.
    ip_input,
    /// IP transmit, per packet: route, header, neighbour.
    ip_output,
    /// To find the other fragments of a packet and add one.
    ip_fragment,
    /// TCP receive, per packet of one or more segments.
    tcp_input,
    /// TCP transmit, per packet.
    tcp_output,
    /// UDP receive, per datagram, and once more for its reader.
    udp_input,
    /// UDP transmit, per datagram.
    udp_output,
    /// To send, answer or receive an echo.
    icmp,
    /// A socket call without the protocol: file, lock, checks.
    socket,
    /// Entry and exit of a system call.
    syscall,
    /// Block layer, per request from program to driver: checks, tag, plug.
    block_submit,
    /// Block layer, per completed request.
    block_complete,
    /// To try to merge a request with the previous one.
    block_merge,
    /// To copy a line from and to the core's caches, without misses.
    copy_line,
    /// To find or insert a page of the page cache, with its accounting.
    cache_page,
    /// To put an unmapped range onto a lazy flush queue.
    flush_queue,
    }
}

/// Scheduler parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchedParams {
    /// Time in which every runnable task of a core gets a turn (Linux: `sched_latency`, 6 ms times one plus log2 of
    /// the number of cores, which counts as at most 8).
    pub latency: Duration,
    /// Shortest time slice (Linux: `sched_min_granularity`, 0.75 ms times the same factor).
    pub granularity: Duration,
    /// Minimum lag at which a waking task preempts the current one (Linux: `sched_wakeup_granularity`).
    pub wakeup_granularity: Duration,
    /// Number of cores to use, starting with the first (Linux: `maxcpus`).
    pub cores: usize,
}

impl SchedParams {
    /// Linux's values for eight or more cores.
    pub const fn linux() -> Self {
        Self {
            latency: Duration::from_ps(const { linux("scheduler", "latency") }),
            granularity: Duration::from_ps(const { linux("scheduler", "granularity") }),
            wakeup_granularity: Duration::from_ps(const { linux("scheduler", "wakeup_granularity") }),
            cores: usize::MAX,
        }
    }
}
