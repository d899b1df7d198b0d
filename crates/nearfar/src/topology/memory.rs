//! Builds the memory system from a machine file.

use hardware::memory::{
    CacheGeometry, DdioParams, DramParams, Inclusion, InterconnectLink, InterconnectParams, LlcParams,
    MemoryParams, MemoryRange, PrefetchParams, PrivateParams, RefreshParams, RemoteHit, RemoteWrite,
    ReplacementPolicy, RowBufferParams, SetIndex, SnoopMode, SocketParams,
};
use machine::Host;
use units::{ByteRate, Bytes, Duration, HostPhysical};

use super::narrow;

/// Memory below this address, as far as the node has that much.
const LOW_MEMORY: Bytes = Bytes::gib(2);
/// BARs and the interrupt range are between low memory and this address.
const HIGH_MEMORY: Bytes = Bytes::gib(4);

/// The parameters of a host's memory system.
pub fn memory_params(host: &Host, seed: u64) -> MemoryParams {
    let sockets = host.sockets.value.get();
    MemoryParams {
        sockets: (0..sockets).map(|node| socket(host, node)).collect(),
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
    CacheGeometry {
        size: cache.size.value,
        ways: narrow(cache.ways.value.get()),
        index: SetIndex::Plain,
        replacement: cache.replacement.value,
    }
}

fn transfer(cache: &machine::PrivateCache) -> Duration {
    cache.transfer.as_ref().map_or(Duration::ZERO, |figure| figure.value)
}

fn socket(host: &Host, node: u32) -> SocketParams {
    SocketParams {
        cores: narrow(host.core.count.value.get()),
        private: PrivateParams {
            l1: private(&host.l1),
            l1_hit: host.l1.hit.value,
            l2: private(&host.l2),
            l2_hit: host.l2.hit.value,
            l1_transfer: transfer(&host.l1),
            l2_transfer: transfer(&host.l2),
            prefetch: host.prefetch.as_ref().map(|prefetch| PrefetchParams {
                super_queue: narrow(prefetch.super_queue.value.get()),
                streams: narrow(prefetch.streams.value.get()),
                distance: narrow(prefetch.distance.value.get()),
                degree: narrow(prefetch.degree.value.get()),
                adjacent_line: prefetch.adjacent_line.value,
                next_page: prefetch.next_page.value,
            }),
        },
        llc: llc(host),
        dram: dram(&host.dram),
        memory: memory_ranges(host, node),
    }
}

fn llc(host: &Host) -> LlcParams {
    let llc = &host.llc;
    let index = match llc.slices.value.get() {
        1 => SetIndex::Hashed,
        slices => SetIndex::Sliced { slices: narrow(slices), fold: llc.slice_fold.value },
    };
    LlcParams {
        geometry: CacheGeometry {
            size: llc.size.value,
            ways: narrow(llc.ways.value.get()),
            index,
            replacement: llc.replacement.value,
        },
        inclusion: match (llc.inclusion.value, &llc.snoop_filter_size, &llc.snoop_filter_ways) {
            (machine::Inclusion::NonInclusive, Some(size), Some(ways)) => Inclusion::NonInclusive {
                snoop_filter: CacheGeometry {
                    size: size.value,
                    ways: narrow(ways.value.get()),
                    index: SetIndex::Hashed,
                    replacement: ReplacementPolicy::Lru,
                },
            },
            _ => Inclusion::Inclusive,
        },
        eviction_notice: llc.eviction_notice.value,
        core_hit: llc.core_hit.value,
        device_lookup: llc.device_lookup.value,
        device_return: llc.device_return.value,
        device_commit: llc.device_commit.value,
        device_service: llc.device_service.value,
        core_snoop: llc.core_snoop.value,
        streaming_waits: llc.streaming_waits.as_ref().is_some_and(|waits| waits.value),
        snoop_lookup: llc.snoop_lookup.value,
        remote_home_hit: llc.remote_home_hit.value,
        ddio: DdioParams {
            ways: if llc.ddio_ways.value == 0 { 0 } else { u32::MAX >> (32 - llc.ddio_ways.value.min(32)) },
            acquire: llc.acquire.value,
            dirty_eviction: llc.dirty_eviction.value,
        },
        device_reads_allocate: llc.device_reads_allocate.value,
        walks_allocate: llc.walks_allocate.value,
    }
}

fn dram(dram: &machine::Dram) -> DramParams {
    DramParams {
        channels: narrow(dram.channels.value.get()),
        ranks: narrow(dram.ranks.value.get()),
        interleave: dram.interleave.value,
        channel_bandwidth: dram.channel_bandwidth.value,
        access: dram.access.value,
        access_spread: dram.access_spread.value,
        banks: narrow(dram.banks.value.get()),
        row_cycle: dram.row_cycle.value,
        refresh: match (&dram.refresh_interval, &dram.refresh_duration) {
            (Some(interval), Some(duration)) => Some(RefreshParams {
                interval: interval.value,
                duration: duration.value,
                staggered: dram.refresh_staggered.as_ref().is_none_or(|staggered| staggered.value),
            }),
            _ => None,
        },
        row_buffer: match (&dram.row, &dram.row_activate, &dram.row_precharge, &dram.row_idle) {
            (Some(row), Some(activate), Some(precharge), Some(idle)) => Some(RowBufferParams {
                row: row.value,
                activate: activate.value,
                precharge: precharge.value,
                idle: idle.value,
            }),
            _ => None,
        },
        write_queue: narrow(dram.write_queue.value.get()),
        write_batch: dram.write_batch.as_ref().map_or(1, |batch| narrow(batch.value.get())),
        write_turnaround: dram.write_turnaround.as_ref().map_or(Duration::ZERO, |figure| figure.value),
    }
}

fn interconnect(host: &Host) -> InterconnectParams {
    let Some(params) = &host.interconnect else {
        return InterconnectParams {
            links: Vec::new(),
            header: Bytes::new(8),
            data_header: Bytes::new(8),
            home_agent: Duration::ZERO,
            snoop: SnoopMode::Broadcast,
            io_directory_cache: 0,
        };
    };
    let link = |pair: &Vec<u32>| InterconnectLink {
        between: (narrow(pair[0]), narrow(pair[1])),
        bandwidth: ByteRate::from_bytes_per_s(params.bandwidth.value.bytes_per_s()),
        latency: params.latency.value,
    };
    InterconnectParams {
        links: params.links.value.iter().map(link).collect(),
        header: params.header.value,
        data_header: params.data_header.as_ref().unwrap_or(&params.header).value,
        home_agent: params.home_agent.value,
        io_directory_cache: params
            .io_directory_cache
            .as_ref()
            .map_or(64, |entries| narrow(entries.value.get())),
        snoop: params.snoop.value,
    }
}

fn remote_write(host: &Host) -> RemoteWrite {
    let Some(interconnect) = &host.interconnect else { return RemoteWrite::AllocateAtHomeSocket };
    match interconnect.remote_write.value {
        machine::RemoteWrite::AllocateAtDeviceSocket => RemoteWrite::AllocateAtDeviceSocket {
            waits_for_home: interconnect.remote_write_waits.value,
            grant: interconnect.remote_write_grant.value,
        },
        machine::RemoteWrite::WriteHomeKeepCopy => {
            RemoteWrite::WriteHomeKeepCopy { grant: interconnect.remote_write_grant.value }
        }
        machine::RemoteWrite::AllocateAtHomeSocket => RemoteWrite::AllocateAtHomeSocket,
        machine::RemoteWrite::ToHomeMemory => RemoteWrite::ToHomeMemory,
    }
}
