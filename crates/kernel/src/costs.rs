//! What kernel code costs in cycles, and what a core is made of.
//!
//! Only instructions are here. What memory adds comes from the simulated caches, what devices and IOMMU add
//! from theirs.

use platform::costs;
use platform::costs::linux;
use units::{Cycles, Duration, Frequency};

/// A core, apart from its caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreParams {
    /// Clock (part data).
    pub frequency: Frequency,
    /// Line fill buffers: misses under way at once (Intel optimisation manual, 10 from Nehalem to Broadwell).
    pub fill_buffers: u16,
    /// Stores that have retired and not been written (Intel optimisation manual: 42 Haswell, 56 Skylake).
    pub store_buffer: u16,
    /// Cycles from one access to a line to the next of the same instruction stream: 64 B copied with two 32 B
    /// loads or stores (Intel optimisation manual). With the interval of stores it tells how many a line takes.
    pub issue: Cycles,
    /// Cycles from one store to the next (Intel optimisation manual: one a cycle, of up to 16 bytes on Sandy Bridge).
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
    /// What kernel code costs, in cycles. Every value is a parameter of the machine.
    KernelCosts in "cost" {
    /// Cycles from an interrupt's arrival to its handler: microcode, entry code, vector look-up.
    irq_entry,
    /// Cycles from the end of a handler to the interrupted program: end of interrupt, `iret`.
    irq_exit,
    /// Cycles to begin and end deferred work.
    softirq,
    /// Cycles to put deferred work on its list, or end it.
    napi,
    /// Cycles to interrupt another core: a write to the interrupt controller's command register.
    ipi_send,
    /// Cycles until such an interrupt arrives.
    ipi_transit,
    /// Cycles to leave the idle loop.
    idle_exit,
    /// Cycles of a switch of tasks, address space included.
    context_switch,
    /// Cycles to make a task runnable.
    wake_up,
    /// Cycles to set or cancel a timer.
    timer,
    /// Cycles to take or give back a page from a core's list.
    page,
    /// Cycles to take pages that a core's list does not have.
    page_slow,
    /// Cycles to take a page out of the tables that map it and put another there, the copy not included.
    migrate_page,
    /// Cycles that a core waits until all that may know an old translation have forgotten it.
    tlb_shootdown,
    /// Cycles of an uncached store until the next instruction. What the one before it, the core's write-combining
    /// buffers and the link add comes from those.
    mmio_write,
    /// Cycles of an `sfence` or `mfence` that finds nothing to wait for.
    fence,
    /// Cycles that a locked instruction takes for being locked.
    locked,
    /// Cycles to issue a `clflush`.
    line_flush,
    /// Cycles to map or unmap with no IOMMU: address arithmetic and checks.
    dma_direct,
    /// Cycles to find an address range in a core's cache of them.
    iova_cached,
    /// Cycles to find an address range in the tree of all of them.
    iova_slow,
    /// Cycles of a page table walk by software, its memory accesses not included.
    page_table_edit,
    /// Cycles to put a descriptor into the invalidation queue and ring its doorbell.
    invalidation,
    /// Cycles of the stack's common part for a packet to send: choosing the queue, its lock.
    net_transmit,
    /// Cycles of the stack's common part for a received packet: its metadata, who wants it.
    net_receive,
    /// Cycles to put a packet into the queue before a driver, or to take it out.
    net_queue,
    /// Cycles to look whether a received segment continues another one, and to join it.
    gro,
    /// Cycles to look up the core and the queue for a received packet.
    net_steer,
    /// Cycles of IP for a received packet: checks, whose it is.
    ip_input,
    /// Cycles of IP for a packet to send: route, header, neighbour.
    ip_output,
    /// Cycles to find the other fragments of a packet and put one among them.
    ip_fragment,
    /// Cycles of TCP for a received packet, of one or more segments.
    tcp_input,
    /// Cycles of TCP for a packet to send.
    tcp_output,
    /// Cycles of UDP for a received datagram, and once more for its reader.
    udp_input,
    /// Cycles of UDP for a datagram to send.
    udp_output,
    /// Cycles to answer, ask or take an echo.
    icmp,
    /// Cycles of a socket's call beside the protocol: file, lock, checks.
    socket,
    /// Cycles of a system call's entry and exit.
    syscall,
    /// Cycles of the block layer for a request from a program to the driver: checks, tag, plug.
    block_submit,
    /// Cycles of the block layer for a request's end.
    block_complete,
    /// Cycles to try to merge a request with the one before it.
    block_merge,
    /// A line that the kernel copies from and to its caches; what it misses comes on top.
    copy_line,
    /// Cycles to find or insert a page of the page cache, and its accounting.
    cache_page,
    /// Cycles to put an unmapped range onto a lazy flush queue.
    flush_queue,
    }
}

/// How the scheduler shares cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchedParams {
    /// Time for which every runnable task of a core gets a turn (Linux: `sched_latency`, 6 ms, times one plus the
    /// binary logarithm of the cores, at most 8).
    pub latency: Duration,
    /// Shortest turn (Linux: `sched_min_granularity`, 0.75 ms times the same factor).
    pub granularity: Duration,
    /// By how much a task that wakes must be behind to take the core (Linux: `sched_wakeup_granularity`).
    pub wakeup_granularity: Duration,
    /// Most cores that it uses, the first ones (Linux: `maxcpus`).
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
