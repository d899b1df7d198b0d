//! What kernel code costs in cycles, and what a core is made of.
//!
//! Only instructions are here. What memory adds comes from the simulated caches, what devices and IOMMU add
//! from theirs.

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

macro_rules! costs {
    ($($(#[$doc:meta])* $name:ident = $value:expr,)*) => {
        /// What kernel code costs. Every value is a parameter of the machine.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct KernelCosts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl KernelCosts {
            /// Linux 4.x to 6.x on x86, mitigations off, as `machines/kernels/linux.toml` has it for programs: the
            /// sources are with the fields.
            pub const fn linux() -> Self {
                Self { $($name: $value,)* }
            }

            /// The names of all costs, as files spell them.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The costs that `cycles` gives for each name.
            ///
            /// # Errors
            /// The first name for which there is none.
            pub fn by_name(mut cycles: impl FnMut(&str) -> Option<u64>) -> Result<Self, &'static str> {
                Ok(Self { $($name: cycles(stringify!($name)).ok_or(stringify!($name))?,)* })
            }

            /// No costs at all, to see those of the hardware alone.
            pub const fn none() -> Self {
                Self { $($name: { let _ = $value; 0 },)* }
            }
        }
    };
}

costs! {
    /// Cycles from an interrupt's arrival to its handler: microcode, entry code, vector look-up
    /// (assumed; interrupt delivery takes several hundred cycles on x86).
    irq_entry = 600,
    /// Cycles from the end of a handler to the interrupted program: end of interrupt, `iret` (assumed).
    irq_exit = 300,
    /// Cycles to begin and end deferred work (assumed).
    softirq = 150,
    /// Cycles to put deferred work on its list, or end it (assumed).
    napi = 60,
    /// Cycles to interrupt another core: a write to the interrupt controller's command register (assumed; a serialising
    /// `wrmsr` takes about that).
    ipi_send = 150,
    /// Cycles until such an interrupt arrives (assumed: an interrupt from core to core takes about half a microsecond to
    /// its handler, of which `irq_entry` is one part).
    ipi_transit = 400,
    /// Cycles to leave the idle loop (assumed: polling idle or C1).
    idle_exit = 500,
    /// Cycles of a switch of tasks, address space included (assumed: about 1 µs with the scheduler's choice).
    context_switch = 2_000,
    /// Cycles to make a task runnable (assumed).
    wake_up = 500,
    /// Cycles to set or cancel a timer (assumed).
    timer = 150,
    /// Cycles to take or give back a page from a core's list (assumed).
    page = 100,
    /// Cycles to take pages that a core's list does not have (assumed).
    page_slow = 400,
    /// Cycles to take a page out of the tables that map it and put another there, the copy not included (assumed: two
    /// walks of the reverse map, locks and accounting, about 1 µs).
    migrate_page = 2_500,
    /// Cycles that a core waits until all that may know an old translation have forgotten it (assumed: interrupts to
    /// the cores of two sockets and their answers, some µs).
    tlb_shootdown = 8_000,
    /// Cycles of an uncached store until the next instruction (assumed). What the one before it, the core's
    /// write-combining buffers and the link add comes from those.
    mmio_write = 100,
    /// Cycles of an `sfence` or `mfence` that finds nothing to wait for (kPIO+WC paper, III.A: about 100).
    fence = 100,
    /// Cycles that a locked instruction takes for being locked (Intel optimisation manual and instruction tables: about
    /// 20 on Sandy Bridge and later).
    locked = 20,
    /// Cycles to issue a `clflush` (instruction tables: a few; its way to memory is not waited for).
    line_flush = 5,
    /// Cycles to map or unmap with no IOMMU: address arithmetic and checks (assumed).
    dma_direct = 20,
    /// Cycles to find an address range in a core's cache of them (Peleg et al., USENIX ATC 2015: short).
    iova_cached = 60,
    /// Cycles to find an address range in the tree of all of them (assumed).
    iova_slow = 600,
    /// Cycles of a page table walk by software, its memory accesses not included (assumed).
    page_table_edit = 80,
    /// Cycles to put a descriptor into the invalidation queue and ring its doorbell (assumed).
    invalidation = 200,
    /// Cycles of the stack's common part for a packet to send: choosing the queue, its lock (assumed).
    net_transmit = 200,
    /// Cycles of the stack's common part for a received packet: its metadata, who wants it (assumed).
    net_receive = 210,
    /// Cycles to put a packet into the queue before a driver, or to take it out (assumed).
    net_queue = 50,
    /// Cycles to look whether a received segment continues another one, and to join it (assumed).
    gro = 100,
    /// Cycles to look up the core and the queue for a received packet (assumed; the tables' lines come on top).
    net_steer = 40,
    /// Cycles of IP for a received packet: checks, whose it is (assumed).
    ip_input = 150,
    /// Cycles of IP for a packet to send: route, header, neighbour (assumed).
    ip_output = 200,
    /// Cycles to find the other fragments of a packet and put one among them (assumed: as a packet's input and a look-up
    /// in Linux's `inet_frag_find`).
    ip_fragment = 250,
    /// Cycles of TCP for a received packet, of one or more segments (assumed: the established path of
    /// Linux's `tcp_v4_rcv` takes some hundred instructions).
    tcp_input = 600,
    /// Cycles of TCP for a packet to send (assumed: as much).
    tcp_output = 1900,
    /// Cycles of UDP for a received datagram, and once more for its reader (assumed).
    udp_input = 200,
    /// Cycles of UDP for a datagram to send (assumed).
    udp_output = 300,
    /// Cycles to answer, ask or take an echo (assumed).
    icmp = 300,
    /// Cycles of a socket's call beside the protocol: file, lock, checks (assumed).
    socket = 150,
    /// Cycles of a system call's entry and exit (assumed: about 70 ns with mitigations off).
    syscall = 150,
    /// Cycles of the block layer for a request from a program to the driver: checks, tag, plug (assumed: half of what
    /// Linux's direct I/O path takes beside the driver, about 0.5 µs).
    block_submit = 700,
    /// Cycles of the block layer for a request's end (assumed: the other part of that path).
    block_complete = 400,
    /// Cycles to try to merge a request with the one before it (assumed).
    block_merge = 40,
    /// A line that the kernel copies from and to its caches; what it misses comes on top.
    copy_line = 10,
    /// Cycles to find or insert a page of the page cache, and its accounting (assumed: two tree look-ups).
    cache_page = 150,
    /// Cycles to put an unmapped range onto a lazy flush queue (assumed).
    flush_queue = 40,
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
}

impl SchedParams {
    /// Linux's values for eight or more cores.
    pub const fn linux() -> Self {
        Self {
            latency: Duration::from_ms(24),
            granularity: Duration::from_ms(3),
            wakeup_granularity: Duration::from_ms(4),
        }
    }
}
