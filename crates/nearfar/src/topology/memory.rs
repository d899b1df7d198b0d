//! Builds the memory system from a machine file.

use hardware::memory::{
    CacheGeometry, CoreDieParams, DdioParams, DramParams, InterconnectLink, InterconnectParams, LlcParams,
    MemoryParams, MemoryRange, PrefetchParams, PrivateParams, RefreshParams, RemoteHit, RemoteWrite,
    RemoteWriteParams, ReplacementPolicy, RowBufferParams, SetIndex, SnoopMode, SocketParams,
};
use machine::Host;
use units::{Bytes, Duration, HostPhysical};

use crate::plain::{Plain, given, narrow, plain, required};

/// Memory below this address, as far as the node has that much.
const LOW_MEMORY: Bytes = Bytes::gib(2);
/// BARs and the interrupt range are between low memory and this address.
const HIGH_MEMORY: Bytes = Bytes::gib(4);

/// The parameters of a host's memory system.
pub fn memory_params(host: &Host, seed: u64) -> MemoryParams {
    let sockets = host.sockets.value.get();
    let expander = host.expander.as_ref().map(|own| expander(host, own));
    MemoryParams {
        sockets: (0..sockets).map(|node| socket(host, node)).chain(expander).collect(),
        interconnect: interconnect(host),
        remote_write: remote_write(host),
        remote_hit: host.interconnect.as_ref().map_or(RemoteHit::AsMemory, |i| i.remote_hit.value),
        seed,
    }
}

/// Address ranges of a node's memory. Low memory belongs to node 0; the rest follows in order of nodes.
pub fn memory_ranges(host: &Host, node: u32) -> Vec<MemoryRange> {
    let size = host.dram.size.value;
    let low = size.min(LOW_MEMORY);
    let range = |base: Bytes, size| MemoryRange { base: HostPhysical::new(base.get()), size };
    if node == 0 {
        let rest = size - low;
        let mut ranges = vec![range(Bytes::ZERO, low)];
        if rest > Bytes::ZERO {
            ranges.push(range(HIGH_MEMORY, rest));
        }
        return ranges;
    }
    if node >= host.memory_nodes() {
        return Vec::new();
    }
    let before = size * u64::from(node) - low;
    vec![range(HIGH_MEMORY + before, size)]
}

fn private(cache: &machine::PrivateCache) -> CacheGeometry {
    plain!(cache => CacheGeometry { size, ways, index: SetIndex::Plain, replacement })
}

fn socket(host: &Host, node: u32) -> SocketParams {
    SocketParams {
        cores: host.core.count.plain(),
        core_die: host
            .core_die
            .as_ref()
            .map(|die| plain!(die => CoreDieParams { cores, reads, writes, write_queue, reads_in_hand })),
        private: PrivateParams {
            l1: private(&host.l1),
            l1_hit: host.l1.hit.value,
            l2: private(&host.l2),
            l2_hit: host.l2.hit.value,
            l1_transfer: given(&host.l1.transfer, Duration::ZERO),
            l2_transfer: given(&host.l2.transfer, Duration::ZERO),
            prefetch: host.prefetch.as_ref().map(|prefetch| {
                plain!(prefetch => PrefetchParams {
                    super_queue, streams, distance, degree, adjacent_line, next_page
                })
            }),
        },
        llc: llc(&host.llc),
        dram: dram(&host.dram),
        memory: memory_ranges(host, node),
    }
}

/// A node without cores. Its lines are in the caches of those that use them.
fn expander(host: &Host, own: &machine::Expander) -> SocketParams {
    let without = socket(host, host.sockets.value.get());
    let LlcParams { ddio, .. } = without.llc;
    SocketParams {
        cores: 0,
        core_die: None,
        // Nothing is kept in it; the geometry is the smallest at hand.
        llc: LlcParams {
            geometry: without.private.l2,
            snoop_filter: None,
            ddio: DdioParams { ways: 0, ..ddio },
            ..without.llc
        },
        dram: plain!(own => DramParams { channels, channel_bandwidth, access, ..without.dram }),
        memory: vec![MemoryRange {
            base: HostPhysical::new((host.memory_end() - own.size.value).get()),
            size: own.size.value,
        }],
        private: without.private,
    }
}

fn llc(llc: &machine::Llc) -> LlcParams {
    let index = match llc.slices.value.get() {
        1 => SetIndex::Hashed,
        slices => SetIndex::Sliced { slices: narrow(slices), fold: llc.slice_fold.value },
    };
    let snoop_filter = llc.snoop_filter_size.as_ref().zip(llc.snoop_filter_ways.as_ref());
    plain!(llc => LlcParams {
        geometry: plain!(llc => CacheGeometry { size, ways, index: index, replacement }),
        snoop_filter: snoop_filter.map(|(size, ways)| CacheGeometry {
            size: size.value,
            ways: ways.plain(),
            index: SetIndex::Hashed,
            replacement: ReplacementPolicy::Lru,
        }),
        eviction_notice, core_hit, device_lookup, device_return, device_commit, device_service, core_snoop,
        streaming_waits: given(&llc.streaming_waits, false),
        snoop_lookup, remote_home_hit,
        ddio: plain!(llc => DdioParams {
            ways: if llc.ddio_ways.value == 0 { 0 } else { u32::MAX >> (32 - llc.ddio_ways.value.min(32)) },
            acquire, dirty_eviction
        }),
        device_reads_allocate, walks_allocate
    })
}

fn dram(dram: &machine::Dram) -> DramParams {
    let refresh = dram.refresh_interval.as_ref().zip(dram.refresh_duration.as_ref());
    plain!(dram => DramParams {
        channels, ranks, interleave, channel_bandwidth, access, access_spread, banks, row_cycle,
        refresh: refresh.map(|(interval, duration)| RefreshParams {
            interval: interval.value,
            duration: duration.value,
            staggered: given(&dram.refresh_staggered, true),
        }),
        // The file's reader requires all of these or none.
        row_buffer: dram.row.as_ref().map(|row| RowBufferParams {
            row: row.value,
            activate: required(&dram.row_activate),
            precharge: required(&dram.row_precharge),
            idle: required(&dram.row_idle),
        }),
        write_queue,
        write_batch: given(&dram.write_batch, 1),
        write_turnaround: given(&dram.write_turnaround, Duration::ZERO),
        rank_switch: given(&dram.rank_switch, Duration::ZERO)
    })
}

fn interconnect(host: &Host) -> InterconnectParams {
    let Some(file) = &host.interconnect else {
        return InterconnectParams {
            links: Vec::new(),
            header: Bytes::new(8),
            data_header: Bytes::new(8),
            home_agent: Duration::ZERO,
            snoop: SnoopMode::Broadcast,
            io_directory_cache: 0,
        };
    };
    let link = |(pair, bandwidth, latency): (&[u32], _, _)| InterconnectLink {
        between: (narrow(pair[0]), narrow(pair[1])),
        bandwidth,
        latency,
    };
    let expander = host.expander.as_ref().map(|own| InterconnectLink {
        between: (narrow(own.socket.value), narrow(host.sockets.value.get())),
        bandwidth: own.bandwidth.value,
        latency: own.latency.value,
    });
    plain!(file => InterconnectParams {
        links: file.all_links().map(link).chain(expander).collect(),
        header,
        data_header: given(&file.data_header, file.header.value),
        home_agent, snoop,
        io_directory_cache: given(&file.io_directory_cache, 64)
    })
}

fn remote_write(host: &Host) -> RemoteWriteParams {
    let Some(file) = &host.interconnect else {
        let to = RemoteWrite::AllocateAtHomeSocket;
        return RemoteWriteParams { to, waits_for_home: false, grant: Duration::ZERO };
    };
    RemoteWriteParams {
        to: file.remote_write.value,
        waits_for_home: file.remote_write_waits.value,
        grant: file.remote_write_grant.value,
    }
}
