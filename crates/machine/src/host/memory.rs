//! DRAM and interconnect.

use crate::figure::Figure;
use crate::read::{Check, record};
use crate::scalar::Count;
use settings::{RemoteHit, RemoteWrite, SnoopMode};
use units::{ByteRate, Bytes, Duration};

record! {
    /// The DRAM of one NUMA node.
    pub struct Dram {
        /// Capacity of the node (bytes).
        size: Figure<Bytes>,
        /// Number of sockets with memory modules, from the first on; all if not given. Other nodes have cores but no
        /// memory.
        sockets: Option<Figure<Count>>,
        /// Number of channels, with the node's lines interleaved over them.
        channels: Figure<Count>,
        /// Ranks per channel, with pages interleaved over them.
        ranks: Figure<Count>,
        /// Consecutive bytes on a channel.
        interleave: Figure<Bytes>,
        /// Peak bandwidth of one channel (bytes per second).
        channel_bandwidth: Figure<ByteRate>,
        /// Latency from the LLC's miss to the arrival of the line there, without load.
        access: Figure<Duration>,
        /// Width of the uniform distribution of `access` around its mean.
        access_spread: Figure<Duration>,
        /// Banks per rank, a power of two.
        banks: Figure<Count>,
        /// tRC: minimum interval between opening two rows of a bank.
        row_cycle: Figure<Duration>,
        /// tREFI: interval between refreshes of a rank; no refreshes if not given.
        refresh_interval: Option<Figure<Duration>>,
        /// tRFC: duration of a refresh, during which the rank is unavailable; requires `refresh_interval`.
        refresh_duration: Option<Figure<Duration>>,
        /// Whether the ranks of a node refresh in turn; otherwise, all at once.
        refresh_staggered: Option<Figure<bool>>,
        /// Size of a row in bytes if rows stay open; otherwise, each access closes its row.
        row: Option<Figure<Bytes>>,
        /// tRCD: how much faster than `access` a hit in an open row is; requires `row`.
        row_activate: Option<Figure<Duration>>,
        /// tRP: additional latency if another row of the bank is open; requires `row`.
        row_precharge: Option<Figure<Duration>>,
        /// How long an unused row stays open; requires `row`.
        row_idle: Option<Figure<Duration>>,
        /// Capacity of a channel's write queue.
        write_queue: Figure<Count>,
        /// Number of writes that leave the queue back to back; 1 if not given.
        write_batch: Option<Figure<Count>>,
        /// tRTW and tWTR: idle time of a channel around each such batch; zero if not given.
        write_turnaround: Option<Figure<Duration>>,
        /// tRTRS: idle time of a channel between reads of two ranks; zero if not given.
        rank_switch: Option<Figure<Duration>>,
    }
    check check_dram
}

fn check_dram(dram: &Dram, check: &mut Check<'_>) {
    // The maximum depends on the number of nodes: see `Host`.
    check.require(dram.size.value.get() >= 1 << 20, "size", "a node needs memory", "at least 1 MiB");
    let count = |figure: &Figure<Count>| u64::from(figure.value.get());
    check.require_within("channels", count(&dram.channels), (1, 64), "channels of a node are not modelled");
    check.require_within("ranks", count(&dram.ranks), (1, 64), "ranks of a channel are not modelled");
    check.require_within("write_queue", count(&dram.write_queue), (1, 65_535), "writes are too many");
    if let Some(batch) = &dram.write_batch {
        let most = count(&dram.write_queue).max(1);
        check.require_within("write_batch", count(batch), (1, most), "writes do not leave the queue at once");
    }
    for (key, rests) in [("write_turnaround", &dram.write_turnaround), ("rank_switch", &dram.rank_switch)] {
        if let Some(rests) = rests {
            let quick = rests.value <= Duration::from_ms(1);
            check.require(quick, key, format!("{} for a turn", rests.value), "1 ms at most");
        }
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
        format!("{} is not an interleaving", dram.interleave.value),
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

record! {
    /// CXL memory on a link of its own (CXL.mem, a type 3 device): a NUMA node without cores, numbered after the sockets.
    pub struct Expander {
        /// The node whose root complex it hangs at.
        socket: Figure<u32>,
        /// Capacity (bytes).
        size: Figure<Bytes>,
        /// Bandwidth of the link per direction, with a line's share of flits (bytes per second).
        bandwidth: Figure<ByteRate>,
        /// Latency of the link per direction with both controllers, without serialization.
        latency: Figure<Duration>,
        /// Number of its memory's channels.
        channels: Figure<Count>,
        /// Peak bandwidth of one channel (bytes per second).
        channel_bandwidth: Figure<ByteRate>,
        /// Latency from the request's arrival to the line.
        access: Figure<Duration>,
    }
    check |expander: &Expander, check: &mut Check<'_>| {
        let channels = expander.channels.value.get().into();
        check.require_within("channels", channels, (1, 64), "channels are not modelled");
        let size = expander.size.value;
        let is_whole = size >= Bytes::mib(1) && size.get() % 64 == 0;
        check.require(is_whole, "size", format!("{size} is no node's memory"), "whole lines of 64 B, 1 MiB or more");
        for (key, time) in [("latency", &expander.latency), ("access", &expander.access)] {
            let quick = time.value <= Duration::from_ms(1);
            check.require(quick, key, format!("{} for a line", time.value), "1 ms at most");
        }
    }
}

record! {
    /// Links between nodes of one package.
    pub struct NearLinks {
        /// Pairs of nodes with a direct link.
        links: Figure<Vec<Vec<u32>>>,
        /// Bandwidth of such a link per direction (bytes per second).
        bandwidth: Figure<ByteRate>,
        /// Latency of such a link per direction, without serialization.
        latency: Figure<Duration>,
    }
    check |near: &NearLinks, check: &mut Check<'_>| {
        check_links(&near.links, check);
    }
}

/// Reports what is no pair of nodes.
fn check_links(links: &Figure<Vec<Vec<u32>>>, check: &mut Check<'_>) {
    let wrong = links.value.iter().find(|link| link.len() != 2 || link[0] == link[1]);
    check.require(
        wrong.is_none(),
        "links",
        format!("{:?} is not a link", wrong.map_or(&[][..], Vec::as_slice)),
        "pairs of different sockets, such as [[0, 1]]",
    );
}

record! {
    /// The interconnect between sockets (QPI, UPI).
    pub struct Interconnect {
        /// Pairs of sockets with a direct link.
        links: Figure<Vec<Vec<u32>>>,
        /// Bandwidth of a link per direction (bytes per second).
        bandwidth: Figure<ByteRate>,
        /// Latency of a link per direction, without serialization.
        latency: Figure<Duration>,
        /// Rate of the one of several parallel links between sockets that a root port's traffic to peers takes; it takes all of them if
        /// not given.
        peer_link: Option<Figure<ByteRate>>,
        /// Links between nodes of one package: quadrants of an I/O die, or clusters of a mesh.
        near: Option<NearLinks>,
        /// Overhead of a message (bytes).
        header: Figure<Bytes>,
        /// Overhead of a message with a line (bytes); `header` if not given.
        data_header: Option<Figure<Bytes>>,
        /// Additional latency of the home node's agent for remote requests.
        home_agent: Figure<Duration>,
        /// Which sockets a home node snoops before it answers.
        snoop: Figure<SnoopMode>,
        /// Entries of a home agent's I/O directory cache: outstanding writes of remote devices. 64 if not given.
        io_directory_cache: Option<Figure<Count>>,
        /// Destination of a device's writes to another socket's memory.
        remote_write: Figure<RemoteWrite>,
        /// Whether such a write is ordered only after the home node's response.
        remote_write_waits: Figure<bool>,
        /// Time for the home node to grant ownership to such a write, in addition to snoops and `home_agent`.
        remote_write_grant: Figure<Duration>,
        /// Cost of a read of a line held by another socket's cache.
        remote_hit: Figure<RemoteHit>,
    }
    check |interconnect: &Interconnect, check: &mut Check<'_>| {
        check.require_within("header", interconnect.header.value.get(), (1, 4096), "B are not possible for a header");
        if let Some(header) = &interconnect.data_header {
            check.require_within("data_header", header.value.get(), (1, 4096), "B are not possible for a header");
        }
        check_links(&interconnect.links, check);
    }
}

impl Interconnect {
    /// All links, those within packages too: the pair, its bandwidth and its latency.
    pub fn all_links(&self) -> impl Iterator<Item = (&[u32], ByteRate, Duration)> {
        let far = self.links.value.iter().map(|pair| (&**pair, self.bandwidth.value, self.latency.value));
        let near = self.near.iter().flat_map(|near| {
            near.links.value.iter().map(|pair| (&**pair, near.bandwidth.value, near.latency.value))
        });
        far.chain(near)
    }

    /// Whether all of `sockets` sockets are reachable from socket 0.
    pub fn joins(&self, sockets: u32) -> bool {
        let mut reached = vec![false; sockets as usize];
        reached[0] = true;
        for _ in 0..sockets {
            for (link, ..) in self.all_links() {
                if let &[a, b] = link {
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
