//! DRAM, and what joins sockets.

use crate::figure::Figure;
use crate::read::{Check, record};
use crate::scalar::{Count, names};
use settings::{RemoteHit, SnoopMode};
use units::{ByteRate, Bytes, Duration};

record! {
    /// The DRAM of one NUMA node.
    pub struct Dram {
        /// Capacity of the node (bytes).
        size: Figure<Bytes>,
        /// Sockets with modules in their slots, the first ones; all if not given. The other nodes have cores and no memory.
        sockets: Option<Figure<Count>>,
        /// Number of channels, over which the node's lines are interleaved.
        channels: Figure<Count>,
        /// Ranks of each channel, over which pages are interleaved.
        ranks: Figure<Count>,
        /// Consecutive bytes on one channel before the next one follows.
        interleave: Figure<Bytes>,
        /// Peak bandwidth of one channel (bytes per second).
        channel_bandwidth: Figure<ByteRate>,
        /// From the LLC's miss to the line's arrival there, idle.
        access: Figure<Duration>,
        /// Width of the uniform spread of `access` about its mean.
        access_spread: Figure<Duration>,
        /// Banks of each rank, a power of two.
        banks: Figure<Count>,
        /// tRC: for how long opening a row keeps its bank from opening another one.
        row_cycle: Figure<Duration>,
        /// tREFI: the interval between refreshes of a rank; no refreshes if not given.
        refresh_interval: Option<Figure<Duration>>,
        /// tRFC: for how long a refresh makes the rank unavailable; goes with `refresh_interval`.
        refresh_duration: Option<Figure<Duration>>,
        /// Whether the ranks of a node refresh in turn; otherwise all at the same time.
        refresh_staggered: Option<Figure<bool>>,
        /// Bytes of a row, where rows stay open; otherwise each access closes its row.
        row: Option<Figure<Bytes>>,
        /// tRCD: by how much a hit in an open row is faster than `access`; goes with `row`.
        row_activate: Option<Figure<Duration>>,
        /// tRP: by how much an access to a bank with another row open is slower; goes with `row`.
        row_precharge: Option<Figure<Duration>>,
        /// For how long a row that nobody uses stays open; goes with `row`.
        row_idle: Option<Figure<Duration>>,
        /// Writes that a channel's queue holds before the next one has to wait.
        write_queue: Figure<Count>,
        /// Writes that leave the queue one behind the other. 1 if not given.
        write_batch: Option<Figure<Count>>,
        /// tRTW and tWTR: for how long a channel rests around each such batch. None if not given.
        write_turnaround: Option<Figure<Duration>>,
    }
    check check_dram
}

fn check_dram(dram: &Dram, check: &mut Check<'_>) {
    // How much there may be depends on the number of nodes, too: see `Host`.
    check.require(dram.size.value.get() >= 1 << 20, "size", "a node needs memory", "at least 1 MiB");
    let count = |figure: &Figure<Count>| u64::from(figure.value.get());
    check.require_within("channels", count(&dram.channels), (1, 64), "channels of a node are not modelled");
    check.require_within("ranks", count(&dram.ranks), (1, 64), "ranks of a channel are not modelled");
    check.require_within("write_queue", count(&dram.write_queue), (1, 65_535), "writes are too many");
    if let Some(batch) = &dram.write_batch {
        let most = count(&dram.write_queue).max(1);
        check.require_within("write_batch", count(batch), (1, most), "writes do not leave the queue at once");
    }
    if let Some(rests) = &dram.write_turnaround {
        let quick = rests.value <= Duration::from_ms(1);
        check.require(quick, "write_turnaround", format!("{} for a turn", rests.value), "1 ms at most");
    }
    check.require_within("banks", count(&dram.banks), (1, 64), "banks of a rank are not modelled");
    check.require(
        dram.banks.value.get().is_power_of_two(),
        "banks",
        format!("{} banks cannot be told apart by address bits", dram.banks.value.get()),
        "a power of two, as 8 (DDR3) or 16 (DDR4)",
    );
    if let Some(row) = &dram.row {
        check.require_bytes("row", row.value, (Bytes::new(64), Bytes::mib(1)));
    }
    if let Some(saves) = &dram.row_activate {
        check.require(
            saves.value <= dram.access.value,
            "row_activate",
            format!("{} of an access of {}", saves.value, dram.access.value),
            "at most `access`",
        );
    }
    let interleave = dram.interleave.value.get();
    check.require(
        interleave >= 64 && interleave.is_power_of_two(),
        "interleave",
        format!("{} is no interleaving", dram.interleave.value),
        "a power of two of at least 64 B",
    );
    let interval = dram.refresh_interval.as_ref().map(|figure| figure.value);
    let duration = dram.refresh_duration.as_ref().map(|figure| figure.value);
    check.require(
        interval.is_some() == duration.is_some(),
        if interval.is_some() { "refresh_interval" } else { "refresh_duration" },
        "a refresh has an interval and a duration",
        "give both `refresh_interval` and `refresh_duration`, or neither",
    );
    if let (Some(interval), Some(duration)) = (interval, duration) {
        check.require(
            duration < interval,
            "refresh_duration",
            format!("a refresh of {duration} does not end within its interval of {interval}"),
            "less than `refresh_interval`",
        );
    }
    let given = [
        dram.row.is_some(),
        dram.row_activate.is_some(),
        dram.row_precharge.is_some(),
        dram.row_idle.is_some(),
    ];
    check.require(
        given.iter().all(|&is| is == given[0]),
        "row",
        "open rows are described in part",
        "give `row`, `row_activate`, `row_precharge` and `row_idle`, or none of them",
    );
}

names! {
    /// Where a device's writes to another socket's memory go.
    pub enum RemoteWrite {
        /// Into the LLC of the device's socket, as local writes do, after
        /// ownership was asked of the home node.
        AllocateAtDeviceSocket = "allocate-at-device-socket",
        /// To the home node's DRAM, after ownership was asked of it; a clean copy stays in the LLC of the device's socket.
        WriteHomeKeepCopy = "write-home-keep-copy",
        /// Over the interconnect into the LLC of the home socket.
        AllocateAtHomeSocket = "allocate-at-home-socket",
        /// Over the interconnect into DRAM; cached copies are invalidated.
        ToHomeMemory = "to-home-memory",
    }
}

record! {
    /// What joins the sockets (QPI, UPI).
    pub struct Interconnect {
        /// Pairs of sockets with a link between them.
        links: Figure<Vec<Vec<u32>>>,
        /// Bandwidth of a link in each direction (bytes per second).
        bandwidth: Figure<ByteRate>,
        /// Latency of one direction of a link, serialisation not included.
        latency: Figure<Duration>,
        /// Bytes of a message beside its data.
        header: Figure<Bytes>,
        /// What the home node's agent adds to a request from another node.
        home_agent: Figure<Duration>,
        /// Which sockets a home node asks before it answers.
        snoop: Figure<SnoopMode>,
        /// Entries of a home agent's I/O directory cache: writes of devices of other sockets under way. 64 if not given.
        io_directory_cache: Option<Figure<Count>>,
        /// Where a device's writes to another socket's memory go.
        remote_write: Figure<RemoteWrite>,
        /// Whether such a write is ordered only when the home node has answered.
        remote_write_waits: Figure<bool>,
        /// What granting ownership to it takes at the home node, beyond snoops and `home_agent`.
        remote_write_grant: Figure<Duration>,
        /// What a read costs whose line another socket's cache holds.
        remote_hit: Figure<RemoteHit>,
    }
    check |interconnect: &Interconnect, check: &mut Check<'_>| {
        check.require_within("header", interconnect.header.value.get(), (1, 4096), "B are no header");
        let wrong = interconnect.links.value.iter().find(|link| link.len() != 2 || link[0] == link[1]);
        check.require(
            wrong.is_none(),
            "links",
            format!("{:?} is no link", wrong.map_or(&[][..], Vec::as_slice)),
            "pairs of different sockets, such as [[0, 1]]",
        );
    }
}

impl Interconnect {
    /// Whether every one of `sockets` sockets can be reached from socket 0.
    pub fn joins(&self, sockets: u32) -> bool {
        let mut reached = vec![false; sockets as usize];
        reached[0] = true;
        for _ in 0..sockets {
            for link in &self.links.value {
                if let &[a, b] = link.as_slice() {
                    let (a, b) = (a as usize, b as usize);
                    if a < reached.len() && b < reached.len() && (reached[a] || reached[b]) {
                        reached[a] = true;
                        reached[b] = true;
                    }
                }
            }
        }
        reached.into_iter().all(|is| is)
    }
}
