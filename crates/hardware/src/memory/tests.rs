//! The whole memory system: invariants under random traffic, and latencies of single accesses.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use units::{ByteRate, Bytes, Duration, HostPhysical, Time};

impl From<WriteReply> for AccessReply {
    fn from(write: WriteReply) -> Self {
        Self { ready: write.ready, source: write.source }
    }
}

/// First address of node 1 of [`MemoryParams::example`].
const NODE_1: u64 = 4 << 30;

/// First address of the node that [`expanded`] adds.
const NODE_2: u64 = 8 << 30;

/// Adds CXL memory at socket 0: a node without cores.
fn expanded(mut params: MemoryParams) -> MemoryParams {
    let mut node = params.sockets[0].clone();
    node.cores = 0;
    node.llc.ddio.ways = 0;
    node.memory = vec![params::MemoryRange { base: at(NODE_2), size: Bytes::gib(1) }];
    params.sockets.push(node);
    params.interconnect.links.push(params::InterconnectLink {
        between: (0, 2),
        bandwidth: ByteRate::gb_per_s(8),
        latency: Duration::from_ns(80),
    });
    params
}

fn at(address: u64) -> HostPhysical {
    HostPhysical::new(address)
}

/// The example with caches of a few lines, to force conflicts in random traffic.
fn tiny() -> MemoryParams {
    let mut params = MemoryParams::example();
    let cache = |lines: u64, ways| CacheGeometry {
        size: Bytes::new(64 * lines),
        ways,
        index: SetIndex::Plain,
        replacement: ReplacementPolicy::Lru,
    };
    for socket in &mut params.sockets {
        socket.cores = 2;
        socket.private.l1 = cache(2, 1);
        socket.private.l2 = cache(4, 2);
        socket.llc.geometry = cache(16, 4);
        socket.llc.ddio.ways = 0b11;
    }
    params
}

#[derive(Clone, Copy, Debug)]
enum AnyStep {
    Core(u16, CoreOp),
    Read(u8),
    Write(u8, Coverage),
    Walk(u8),
    Touch(Agent, bool),
}

fn any_step() -> impl Strategy<Value = AnyStep> {
    let op = prop::sample::select(vec![
        CoreOp::Load,
        CoreOp::Store,
        CoreOp::StreamingStore,
        CoreOp::Prefetch,
        CoreOp::FlushLine,
    ]);
    let coverage = prop::sample::select(vec![Coverage::FullLine, Coverage::Partial]);
    let agent = prop_oneof![
        (0u16..4).prop_map(|c| Agent::Core(CoreId(c))),
        (0u8..2).prop_map(|n| Agent::Device(NodeId(n)))
    ];
    prop_oneof![
        4 => (0u16..4, op).prop_map(|(core, op)| AnyStep::Core(core, op)),
        1 => (0u8..2).prop_map(AnyStep::Read),
        3 => (0u8..2, coverage).prop_map(|(node, coverage)| AnyStep::Write(node, coverage)),
        1 => (0u8..2).prop_map(AnyStep::Walk),
        1 => (agent, any::<bool>()).prop_map(|(agent, write)| AnyStep::Touch(agent, write)),
    ]
}

fn any_params() -> impl Strategy<Value = MemoryParams> {
    let remote_write = prop::sample::select(vec![
        (RemoteWrite::AllocateAtDeviceSocket, true, Duration::from_ns(10)),
        (RemoteWrite::AllocateAtDeviceSocket, false, Duration::ZERO),
        (RemoteWrite::WriteHomeKeepCopy, true, Duration::from_ns(10)),
        (RemoteWrite::AllocateAtHomeSocket, true, Duration::ZERO),
        (RemoteWrite::ToHomeMemory, true, Duration::ZERO),
    ]);
    let notice =
        prop::sample::select(vec![EvictionNotice::Silent, EvictionNotice::Dirty, EvictionNotice::Always]);
    let policy = prop::sample::select(vec![
        ReplacementPolicy::Lru,
        ReplacementPolicy::NotRecentlyUsed,
        ReplacementPolicy::TreePlru,
        ReplacementPolicy::Random,
    ]);
    let ways = prop::sample::select(vec![0u32, 1, 3]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (remote_write, notice, policy, ways, flags).prop_map(
        |(
            (to, waits_for_home, grant),
            notice,
            policy,
            ways,
            (inclusive, broadcast, from_cache, reads_allocate, is_expanded),
        )| {
            let mut params = tiny();
            params.remote_write = RemoteWriteParams { to, waits_for_home, grant };
            params.remote_hit = if from_cache { RemoteHit::FromCache } else { RemoteHit::AsMemory };
            params.interconnect.snoop = if broadcast { SnoopMode::Broadcast } else { SnoopMode::Directory };
            for socket in &mut params.sockets {
                socket.llc.eviction_notice = notice;
                socket.llc.geometry.replacement = policy;
                socket.llc.ddio.ways = ways;
                socket.llc.device_reads_allocate = reads_allocate;
                if !inclusive {
                    socket.llc.snoop_filter =
                        Some(CacheGeometry { size: Bytes::new(64 * 6), ways: 2, ..socket.llc.geometry });
                }
            }
            if is_expanded { expanded(params) } else { params }
        },
    )
}

fn run(memory: &mut MemorySystem, step: AnyStep, now: Time, address: HostPhysical) -> Option<AccessReply> {
    Some(match step {
        AnyStep::Core(core, op) => memory.core(now, CoreId(core), address, op),
        AnyStep::Read(node) => memory.dma_read(now, NodeId(node), address),
        AnyStep::Write(node, coverage) => memory.dma_write(now, NodeId(node), address, coverage).into(),
        AnyStep::Walk(node) => memory.walk_read(now, NodeId(node), address),
        AnyStep::Touch(agent, write) => {
            memory.touch(agent, address, write);
            return None;
        }
    })
}

/// Whether a step leaves the latest data of its line in DRAM.
fn writes_memory(step: AnyStep, access: Option<AccessReply>) -> bool {
    match (step, access) {
        (AnyStep::Core(_, CoreOp::StreamingStore), _) => true,
        (AnyStep::Write(..), Some(a)) => matches!(a.source, Source::Dram | Source::RemoteDram),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// One writer, no line dirty in two caches, inclusion, consistent counters, and no write lost before it reaches
    /// DRAM.
    #[test]
    fn coherence_and_conservation_hold_under_random_traffic(
        params in any_params(),
        steps in prop::collection::vec((any_step(), 0u64..14, 0usize..3, 0u64..200), 1..150),
    ) {
        let mut memory = MemorySystem::new(&params);
        let nodes = [0, NODE_1, NODE_2];
        let mut now = Time::ZERO;
        let mut newer_than_dram: BTreeSet<u64> = BTreeSet::new();
        for (step, line, node, pause) in steps {
            now += Duration::from_ns(pause);
            let address = at(line * 64 + nodes[node % params.sockets.len()]);
            memory.caches().log.clear();
            let access = run(&mut memory, step, now, address);
            if let Some(access) = access {
                prop_assert!(access.ready >= now);
            }
            if let Err(broken) = memory.check_coherence() {
                return Err(TestCaseError::fail(format!("{broken} after {step:?} of {address}")));
            }
            memory.counters().check_conservation().map_err(|e| TestCaseError::fail(e.to_string()))?;
            let line = address.get() >> 6;
            let dirty: BTreeSet<u64> = memory.caches().sockets().iter().flat_map(|s| s.dirty_lines()).collect();
            for written in &memory.caches().log {
                prop_assert!(newer_than_dram.contains(written) || *written == line, "a clean line was written back");
                newer_than_dram.remove(written);
            }
            if writes_memory(step, access) || matches!(step, AnyStep::Touch(..)) && !dirty.contains(&line) {
                newer_than_dram.remove(&line);
            }
            let lost: Vec<_> = newer_than_dram.difference(&dirty).collect();
            prop_assert!(lost.is_empty(), "{lost:x?} lost by {step:?} of {address}");
            newer_than_dram = dirty;
        }
    }

    /// Device writes never occupy more lines than the DDIO ways hold.
    #[test]
    fn ddio_keeps_to_its_ways(
        ways in 1u32..16, reads in any::<bool>(),
        steps in prop::collection::vec((0u64..200, any::<bool>()), 1..300),
    ) {
        let mut params = tiny();
        params.sockets[0].llc.device_reads_allocate = reads;
        params.sockets[0].llc.ddio.ways = ways;
        let mut memory = MemorySystem::new(&params);
        for (line, write) in steps {
            if write {
                memory.dma_write(Time::ZERO, NodeId(0), at(line * 64), Coverage::FullLine);
            } else {
                memory.dma_read(Time::ZERO, NodeId(0), at(line * 64));
            }
            let llc = &memory.caches().sockets()[0].llc();
            prop_assert!(llc.lines().all(|(_, slot, _)| ways & (1 << llc.way(slot)) != 0));
        }
    }

    /// A memory system created from the cache state of another behaves the same.
    #[test]
    fn a_state_is_all_that_caches_remember(
        params in any_params(),
        before in prop::collection::vec((any_step(), 0u64..14, any::<bool>()), 0..80),
        after in prop::collection::vec((any_step(), 0u64..14, any::<bool>()), 1..40),
    ) {
        let prepared = || {
            let mut memory = MemorySystem::new(&params);
            for &(step, line, far) in &before {
                if let AnyStep::Touch(..) = step {
                    run(&mut memory, step, Time::ZERO, at(line * 64 + if far { NODE_1 } else { 0 }));
                }
            }
            memory
        };
        let (mut first, caches) = (prepared(), prepared().into_cache_state());
        let mut second = MemorySystem::with_caches(&params, caches);
        for (step, line, far) in after {
            let address = at(line * 64 + if far { NODE_1 } else { 0 });
            let access = run(&mut first, step, Time::ZERO, address);
            prop_assert_eq!(access, run(&mut second, step, Time::ZERO, address));
        }
        prop_assert_eq!(first.counters(), second.counters());
    }

    /// An untimed touch leaves the caches in the same state as a timed access.
    #[test]
    fn touching_is_accessing_without_time(
        params in any_params(),
        steps in prop::collection::vec((0u16..4, 0u8..3, 0u64..14, any::<bool>()), 1..80),
    ) {
        let (mut touched, mut accessed) = (MemorySystem::new(&params), MemorySystem::new(&params));
        for (who, kind, line, write) in steps {
            let address = at(line * 64 + if kind == 0 { NODE_1 } else { 0 });
            if kind == 2 {
                let node = NodeId(who as u8 % 2);
                touched.touch(Agent::Device(node), address, write);
                if write {
                    accessed.dma_write(Time::ZERO, node, address, Coverage::FullLine);
                } else {
                    accessed.dma_read(Time::ZERO, node, address);
                }
            } else {
                touched.touch(Agent::Core(CoreId(who)), address, write);
                let op = if write { CoreOp::Store } else { CoreOp::Load };
                accessed.core(Time::ZERO, CoreId(who), address, op);
            }
            for (a, b) in touched.caches().sockets().iter().zip(accessed.caches().sockets()) {
                prop_assert!(a.llc().lines().eq(b.llc().lines()));
                prop_assert_eq!(a.dirty_lines(), b.dirty_lines());
            }
        }
        let untouched = MemorySystem::new(&params);
        prop_assert_eq!(touched.counters(), untouched.counters());
    }
}

/// Data that a device has read stays cached only where reads allocate.
#[test]
fn device_reads_allocate_where_the_machine_says_so() {
    for allocate in [false, true] {
        let mut params = tiny();
        params.sockets[0].llc.device_reads_allocate = allocate;
        let mut memory = MemorySystem::new(&params);
        let mut read = || memory.dma_read(Time::ZERO, NodeId(0), at(64)).source;
        assert_eq!(read(), Source::Dram);
        assert_eq!(read(), if allocate { Source::Llc } else { Source::Dram });
        assert_eq!(
            memory.counters().nodes[0].llc[CacheUser::Device as usize].allocations,
            u64::from(allocate)
        );
    }
}

/// The example without DRAM refresh, so that latencies are exact sums.
fn still() -> MemoryParams {
    let mut params = MemoryParams::example();
    for socket in &mut params.sockets {
        socket.dram.refresh = None;
    }
    params
}

/// A memory system with a clock that waits one second between accesses.
struct Quiet {
    memory: MemorySystem,
    now: Time,
}

impl Quiet {
    fn new(params: &MemoryParams) -> Self {
        Self { memory: MemorySystem::new(params), now: Time::ZERO }
    }

    /// Latency in nanoseconds and source of the access made by `f`.
    fn take(&mut self, f: impl FnOnce(&mut MemorySystem, Time) -> AccessReply) -> (f64, Source) {
        self.now += Duration::from_ms(1_000);
        let access = f(&mut self.memory, self.now);
        ((access.ready - self.now).as_ns_f64(), access.source)
    }

    fn read(&mut self, address: u64) -> (f64, Source) {
        self.take(|m, now| m.dma_read(now, NodeId(0), at(address)))
    }

    fn write(&mut self, address: u64, coverage: Coverage) -> f64 {
        self.take(|m, now| m.dma_write(now, NodeId(0), at(address), coverage).into()).0
    }

    fn core(&mut self, core: u16, op: CoreOp) -> (f64, Source) {
        self.take(|m, now| m.core(now, CoreId(core), at(0), op))
    }

    fn touch(&mut self, agent: Agent, address: u64) {
        self.memory.touch(agent, at(address), true);
    }
}

#[test]
fn a_device_read_costs_what_it_finds() {
    let mut quiet = Quiet::new(&still());
    assert_eq!(quiet.read(0), (130.0, Source::Dram), "30 to look, 70 DRAM, 30 back");
    assert_eq!(quiet.read(0).1, Source::Dram, "device reads allocate nothing");
    quiet.touch(Agent::Device(NodeId(0)), 0);
    assert_eq!(quiet.read(0), (60.0, Source::Llc));
    quiet.touch(Agent::Core(CoreId(0)), 64);
    assert_eq!(quiet.read(64), (78.0, Source::LlcOwnedByCore));
    assert_eq!(quiet.read(64).1, Source::LlcOwnedByCore, "the core keeps the line");
    assert_eq!(quiet.write(64, Coverage::FullLine), 58.0);
    assert_eq!(quiet.read(64), (60.0, Source::Llc), "a device write takes it from the core");
    assert_eq!(quiet.read(3 << 30).1, Source::Unmapped);
    assert_eq!(quiet.memory.counters().unmapped, 1);
}

#[test]
fn a_remote_read_pays_for_the_way_and_no_less_for_a_warm_line() {
    let mut quiet = Quiet::new(&still());
    // 130 as for local DRAM, 2 x 30 link, 5 home agent, 0.5 + 4.5 serialisation.
    assert_eq!(quiet.read(NODE_1), (200.0, Source::RemoteDram));
    quiet.touch(Agent::Device(NodeId(1)), NODE_1);
    assert_eq!(quiet.read(NODE_1), (200.0, Source::RemoteLlc), "the home node reads DRAM meanwhile");
    let mut params = still();
    params.remote_hit = RemoteHit::FromCache;
    let mut quiet = Quiet::new(&params);
    quiet.touch(Agent::Device(NodeId(1)), NODE_1);
    assert_eq!(quiet.read(NODE_1), (150.0, Source::RemoteLlc), "20 of lookup instead of 70");
}

#[test]
fn a_write_pays_for_ownership_merging_and_the_way_home() {
    let write = |params: &MemoryParams, address, coverage| {
        let first = Quiet::new(params).write(address, coverage);
        let mut quiet = Quiet::new(params);
        quiet.touch(Agent::Device(NodeId(0)), address);
        (first, quiet.write(address, coverage))
    };
    let mut params = still();
    assert_eq!(write(&params, 0, Coverage::FullLine), (80.0, 40.0), "40 to acquire");
    assert_eq!(write(&params, 0, Coverage::Partial), (110.0, 40.0), "70 to fetch the rest");
    // The home node is asked: 2 x 30.5 link, 5 home agent, 70 for the directory read.
    assert_eq!(write(&params, NODE_1, Coverage::FullLine), (216.0, 40.0));
    params.interconnect.snoop = SnoopMode::Broadcast;
    // The other socket is snooped: 2 x 30.5 link, 20 lookup; the fetch takes longer than the DRAM.
    assert_eq!(write(&params, 0, Coverage::FullLine), (161.0, 40.0));
    assert_eq!(write(&params, 0, Coverage::Partial), (121.0, 40.0));
}

#[test]
fn memory_without_cores_is_reached_by_its_link_and_asked_for_no_line() {
    let params = expanded(still());
    let read = |params: &MemoryParams, address| {
        let mut memory = MemorySystem::new(params);
        let read = memory.core(Time::ZERO, CoreId(0), at(address), CoreOp::Load);
        (read.ready.as_ns_f64(), memory.counters().sent.of(Cause::Snoop))
    };
    let (near, _) = read(&params, 0);
    // The link both ways: 8 and 72 B at 8 GB/s and 80 ns each; its agent takes 5 ns.
    assert_eq!(read(&params, NODE_2).0, near + 1.0 + 80.0 + 5.0 + 9.0 + 80.0);
    let mut asked = expanded(still());
    asked.interconnect.snoop = SnoopMode::Broadcast;
    assert_eq!(read(&asked, 0).1, Bytes::new(16), "the other socket alone is asked, and answers");
    let mut memory = MemorySystem::new(&params);
    let written = memory.dma_write(Time::ZERO, NodeId(0), at(NODE_2), Coverage::FullLine);
    assert!(memory.check_coherence().is_ok() && written.ready > Time::ZERO);
    assert!(memory.caches().sockets()[2].dirty_lines().is_empty(), "it has no cache that devices could use");
}

#[test]
fn without_ddio_writes_go_to_memory() {
    let mut params = still();
    params.sockets[0].llc.ddio.ways = 0;
    let mut memory = MemorySystem::new(&params);
    memory.touch(Agent::Core(CoreId(0)), at(0), true);
    let access = memory.dma_write(Time::ZERO, NodeId(0), at(0), Coverage::FullLine);
    assert_eq!(access.source, Source::Dram);
    let core = memory.core(access.ready, CoreId(0), at(0), CoreOp::Load);
    assert_eq!(core.source, Source::Dram, "the core's copy is gone");
    let node = &memory.counters().nodes[0];
    assert_eq!(node.dram_written.of(Cause::Dma), Bytes::new(64));
    assert_eq!(
        node.dram_written.of(Cause::WriteBack),
        Bytes::ZERO,
        "what is overwritten is not written back"
    );
    assert_eq!(node.dram_read.of(Cause::Core), Bytes::new(64));
}

#[test]
fn remote_writes_go_where_the_policy_says() {
    let bytes_on_link = |remote_write| {
        let mut params = still();
        params.remote_write.to = remote_write;
        let mut memory = MemorySystem::new(&params);
        let access = memory.dma_write(Time::ZERO, NodeId(0), at(NODE_1), Coverage::FullLine);
        let there = memory.core(access.ready, CoreId(8), at(NODE_1), CoreOp::Load).source;
        (access.source, there, memory.counters().links[0].bytes.of(Cause::Dma).get())
    };
    assert_eq!(bytes_on_link(RemoteWrite::AllocateAtDeviceSocket), (Source::Llc, Source::RemoteLlc, 0));
    assert_eq!(bytes_on_link(RemoteWrite::WriteHomeKeepCopy), (Source::RemoteDram, Source::Dram, 8 + 72));
    assert_eq!(bytes_on_link(RemoteWrite::AllocateAtHomeSocket), (Source::RemoteLlc, Source::Llc, 72));
    assert_eq!(bytes_on_link(RemoteWrite::ToHomeMemory), (Source::RemoteDram, Source::Dram, 72));
}

/// Of a window larger than the DDIO ways, exactly the capacity of those ways stays cached.
#[test]
fn a_window_written_by_a_device_stays_up_to_the_ddio_capacity() {
    let mut params = still();
    params.sockets[0].llc.geometry = CacheGeometry {
        size: Bytes::mib(25),
        ways: 20,
        index: SetIndex::Sliced { slices: 10, fold: SliceFold::Wrap },
        replacement: ReplacementPolicy::Lru,
    };
    for (mib, resident) in [(1, 1.0), (2, 1.0), (4, 2.5 / 4.0), (16, 2.5 / 16.0)] {
        let mut memory = MemorySystem::new(&params);
        let lines = mib * (1 << 20) / 64;
        for line in (0..2 * lines).map(|l| l % lines) {
            memory.touch(Agent::Device(NodeId(0)), at(line * 64), true);
        }
        let hits = memory.caches().sockets()[0].llc().occupied();
        let share = f64::from(hits) / lines as f64;
        assert!((share - resident).abs() < 0.001, "{mib} MiB: {share} of {resident}");
    }
}

#[test]
fn cores_pay_for_level_and_ownership() {
    let mut quiet = Quiet::new(&still());
    assert_eq!(quiet.core(0, CoreOp::Load), (90.0, Source::Dram));
    assert_eq!(quiet.core(0, CoreOp::Load), (2.0, Source::OwnCache));
    assert_eq!(quiet.core(0, CoreOp::Store), (2.0, Source::OwnCache), "E becomes M silently");
    assert_eq!(quiet.core(1, CoreOp::Load), (38.0, Source::LlcOwnedByCore));
    assert_eq!(quiet.core(2, CoreOp::Load), (20.0, Source::Llc), "shared by now");
    assert_eq!(quiet.core(0, CoreOp::Store), (38.0, Source::LlcOwnedByCore), "the others are told");
    assert_eq!(quiet.core(8, CoreOp::Load).1, Source::RemoteLlc);
    assert_eq!(quiet.memory.counters().written_back, 1, "a line shared between sockets is clean");
    assert_eq!(quiet.core(8, CoreOp::FlushLine).1, Source::RemoteDram);
    // The directory still lists a sharer: 2 x 30.5 link and 20 lookup, in parallel to DRAM.
    assert_eq!(quiet.core(0, CoreOp::Load), (101.0, Source::Dram));
    assert_eq!(quiet.core(0, CoreOp::FlushLine).1, Source::Dram);
    assert_eq!(quiet.core(0, CoreOp::Load), (90.0, Source::Dram));
    quiet.memory.counters().check_conservation().unwrap();
}

#[test]
fn remote_device_bandwidth_ends_at_the_link() {
    let mut memory = MemorySystem::new(&still());
    let lines = 20_000u64;
    let last =
        (0..lines).map(|l| memory.dma_read(Time::ZERO, NodeId(0), at(NODE_1 + l * 64)).ready).max().unwrap();
    let rate = (lines * 64) as f64 / (last.as_ns_f64() - 200.0);
    // At 16 GB/s, 64 of every 72 bytes are data.
    assert!((14.1..14.3).contains(&rate), "{rate} GB/s");
    let link = &memory.counters().links;
    assert_eq!(link[1].bytes.of(Cause::Dma), Bytes::new(lines * 72));
    assert_eq!(link[0].bytes.of(Cause::Dma), Bytes::new(lines * 8));
}

/// DRAM lines read and written at the home node for each line of a buffer that a device of the other socket writes and
/// a core of the home node then reads (receive), or the other way round (send).
fn home_traffic(remote_write: RemoteWrite, snoop: SnoopMode, receives: bool) -> (u64, u64) {
    let mut params = MemoryParams::example();
    params.remote_write.to = remote_write;
    params.interconnect.snoop = snoop;
    let mut memory = MemorySystem::new(&params);
    let lines = 256;
    let buffer: Vec<_> = (0..lines).map(|n| at(NODE_1 + n * LINE)).collect();
    let (core, device) = (CoreId(params.sockets[0].cores), NodeId(0));
    let mut now = Time::ZERO;
    let mut round = |memory: &mut MemorySystem| {
        for &line in &buffer {
            now = match receives {
                true => memory.dma_write(now, device, line, Coverage::FullLine).ready,
                false => memory.core(now, core, line, CoreOp::Store).ready,
            };
        }
        for &line in &buffer {
            now = match receives {
                true => memory.core(now, core, line, CoreOp::Load).ready,
                false => memory.dma_read(now, device, line).ready,
            };
        }
    };
    // The buffer has been used before, so its reader's copies are invalidated.
    round(&mut memory);
    let before = memory.counters().nodes[1].clone();
    round(&mut memory);
    memory.check_coherence().unwrap();
    let after = &memory.counters().nodes[1];
    let read = after.dram_read.total() - before.dram_read.total();
    let written = after.dram_written.total() - before.dram_written.total();
    (read.get() / LINE / lines, written.get() / LINE / lines)
}

/// The table of published/notes/measured-hardware.md: what each hypothesis about remote writes costs the home's DRAM.
/// IOctopus measured three times the network's bandwidth on receive and once on send.
#[test]
fn remote_buffers_cost_the_home_what_the_policy_says() {
    let (keeps_dirty, writes_home) = (RemoteWrite::AllocateAtDeviceSocket, RemoteWrite::WriteHomeKeepCopy);
    let hypotheses = [
        (writes_home, SnoopMode::Directory, "`write-home-keep-copy`, `directory`", (1, 2)),
        (keeps_dirty, SnoopMode::Directory, "`allocate-at-device-socket`, `directory`", (2, 2)),
        (keeps_dirty, SnoopMode::Broadcast, "`allocate-at-device-socket`, `broadcast`", (1, 1)),
        (RemoteWrite::ToHomeMemory, SnoopMode::Broadcast, "`to-home-memory`, `broadcast`", (1, 1)),
        (RemoteWrite::AllocateAtHomeSocket, SnoopMode::Directory, "`allocate-at-home-socket`", (0, 0)),
    ];
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../published/notes/measured-hardware.md");
    let document = std::fs::read_to_string(document).expect("the document is there");
    for (remote_write, snoop, name, expected) in hypotheses {
        let received = home_traffic(remote_write, snoop, true);
        let sent = home_traffic(remote_write, snoop, false);
        let row = format!("({name}) | {} + {} | {} + {} |", received.0, received.1, sent.0, sent.1);
        println!("{row}");
        assert_eq!((received, sent), (expected, (1, 0)), "{name}");
        assert!(document.contains(&row), "published/notes/measured-hardware.md lacks: {row}");
    }
}

/// Completion times, in ps, of core 0's loads of consecutive lines in node 0 that all start at once, with the lines in
/// its L2 or the LLC.
fn loads_at_once(params: &MemoryParams, lines: std::ops::Range<u64>, warm: Agent) -> Vec<u64> {
    let mut memory = MemorySystem::new(params);
    lines.clone().for_each(|line| memory.touch(warm, at(line * 64), false));
    let mut load = |line: u64| memory.core(Time::ZERO, CoreId(0), at(line * 64), CoreOp::Load).ready.as_ps();
    lines.map(&mut load).collect()
}

#[test]
fn lines_pass_an_l2_one_after_the_other() {
    let mut params = MemoryParams::example();
    let (l1, l2) = (Duration::from_ns(3), Duration::from_ns(4));
    for socket in &mut params.sockets {
        (socket.private.l1_transfer, socket.private.l2_transfer) = (l1, l2);
    }
    let from_llc = loads_at_once(&params, 0..4, Agent::Core(CoreId(1)));
    let after: Vec<u64> = from_llc.iter().map(|ready| ready - from_llc[0]).collect();
    assert_eq!(after, [0, 7_000, 14_000, 21_000]);
    // 1,024 lines exceed the L1 but fit into the L2: the first 512 have left the L1.
    let all = loads_at_once(&params, 0..1024, Agent::Core(CoreId(0)));
    assert_eq!(all[1] - all[0], 3_000);
}

#[test]
fn a_streaming_store_is_posted_where_it_does_not_wait_for_other_sockets() {
    let store = |waits| {
        let mut params = MemoryParams::example();
        params.interconnect.snoop = SnoopMode::Broadcast;
        params.sockets[0].llc.streaming_waits = waits;
        MemorySystem::new(&params).core(Time::ZERO, CoreId(0), at(0), CoreOp::StreamingStore).ready.as_ps()
    };
    assert_eq!(store(false), 20_000, "as far as the LLC");
    // Round trip over a link of 30 ns and 16 GB/s, and the other socket's lookup.
    assert_eq!(store(true), 20_000 + 2 * 30_500 + 20_000);
}

/// A line that another socket's core has modified: its home asks for it at once, or when it has read that it has to.
#[test]
fn a_home_that_reads_its_directory_in_memory_asks_later() {
    let read = |memory_first| {
        let mut params = MemoryParams::example();
        params.interconnect.snoop =
            if memory_first { SnoopMode::DirectoryFirst } else { SnoopMode::Directory };
        let mut memory = MemorySystem::new(&params);
        let other = CoreId(params.sockets[0].cores);
        memory.core(Time::ZERO, other, at(0), CoreOp::Store);
        let now = Time::ZERO + Duration::from_us(1);
        memory.core(now, CoreId(0), at(0), CoreOp::Load).ready.since(now)
    };
    assert!(read(true) > read(false) + Duration::from_ns(30), "{} {}", read(true), read(false));
}
