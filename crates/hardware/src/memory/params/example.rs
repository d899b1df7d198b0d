//! Memory parameters for tests.

use units::{ByteRate, Bytes, Duration, HostPhysical};

use super::*;

impl MemoryParams {
    /// A two-socket machine for tests: 8 cores and a 4 MiB, 16-way LLC with two DDIO ways each. No real machine has
    /// these values.
    pub fn example() -> Self {
        let cache =
            |size, ways, index| CacheGeometry { size, ways, index, replacement: ReplacementPolicy::Lru };
        let socket = |base| SocketParams {
            cores: 8,
            core_die: None,
            private: PrivateParams {
                l1: cache(Bytes::kib(32), 8, SetIndex::Plain),
                l1_hit: Duration::from_ns(2),
                l2: cache(Bytes::kib(256), 8, SetIndex::Plain),
                l2_hit: Duration::from_ns(5),
                l1_transfer: Duration::ZERO,
                l2_transfer: Duration::ZERO,
                prefetch: None,
            },
            llc: LlcParams {
                geometry: cache(Bytes::mib(4), 16, SetIndex::Hashed),
                snoop_filter: None,
                eviction_notice: EvictionNotice::Dirty,
                core_hit: Duration::from_ns(20),
                device_lookup: Duration::from_ns(30),
                device_return: Duration::from_ns(30),
                device_commit: Duration::from_ns(10),
                device_service: Duration::from_ns(2),
                core_snoop: Duration::from_ns(18),
                streaming_waits: true,
                snoop_lookup: Duration::from_ns(20),
                remote_home_hit: Duration::ZERO,
                ddio: DdioParams {
                    ways: 0b11,
                    acquire: Duration::from_ns(40),
                    dirty_eviction: Duration::from_ns(20),
                },
                device_reads_allocate: false,
                walks_allocate: true,
            },
            dram: DramParams {
                channels: 4,
                ranks: 2,
                interleave: Bytes::new(256),
                channel_bandwidth: ByteRate::gb_per_s(16),
                access: Duration::from_ns(70),
                access_spread: Duration::ZERO,
                banks: 16,
                row_cycle: Duration::from_ns(46),
                refresh: Some(RefreshParams {
                    interval: Duration::from_ns(7_800),
                    duration: Duration::from_ns(260),
                    staggered: true,
                }),
                row_buffer: None,
                write_queue: 32,
                write_batch: 1,
                write_turnaround: Duration::ZERO,
                rank_switch: Duration::ZERO,
            },
            memory: vec![MemoryRange { base: HostPhysical::new(base), size: Bytes::gib(1) }],
        };
        Self {
            sockets: vec![socket(0), socket(4 << 30)],
            interconnect: InterconnectParams {
                links: vec![InterconnectLink {
                    between: (0, 1),
                    bandwidth: ByteRate::gb_per_s(16),
                    latency: Duration::from_ns(30),
                }],
                header: Bytes::new(8),
                data_header: Bytes::new(8),
                home_agent: Duration::from_ns(5),
                snoop: SnoopMode::Directory,
                io_directory_cache: 64,
            },
            remote_write: RemoteWriteParams {
                to: RemoteWrite::AllocateAtDeviceSocket,
                waits_for_home: true,
                grant: Duration::ZERO,
            },
            remote_hit: RemoteHit::AsMemory,
            seed: 1,
        }
    }
}
