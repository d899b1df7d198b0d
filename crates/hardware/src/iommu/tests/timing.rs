//! Translation latencies.

use super::*;

const RW: Permissions = Permissions::READ_WRITE;

#[test]
fn disabled_it_costs_nothing() {
    let mut m = Machine::new(IommuParams::default());
    m.iommu.set_enabled(false);
    let reply = m.translate(us(1), 0x1234_5678, Access::Write);
    assert_eq!((reply.ready, address(&reply)), (us(1), 0x1234_5678));
    assert_eq!(m.iommu.counters(), IommuCounters::default());
}

#[test]
fn pass_through_costs_nothing_once_the_context_is_known() {
    let mut m = Machine::new(IommuParams::default());
    m.join(NIC, TranslationType::PassThrough);
    m.translate(us(1), 0x1000, Access::Read);
    let reply = m.translate(us(2), 0x1234_5678, Access::Write);
    assert_eq!((reply.ready, address(&reply)), (us(2), 0x1234_5678));
    assert_eq!(m.iommu.counters().passed, 2);
}

#[test]
fn a_walk_reads_one_entry_per_level_that_is_not_cached() {
    let mut m = Machine::new(bare());
    m.map(0x1000, 0x5000, 0x3000, RW);
    m.map(1 << 39, 0x5000, 0x1000, RW);
    // Root entry, context entry, four levels.
    assert_eq!(m.latency(us(1), 0x1000), READ * 6);
    // The level 1 table is cached.
    assert_eq!(m.latency(us(2), 0x2000), READ);
    assert_eq!(m.latency(us(3), 0x2fff), Duration::ZERO);
    // Another 512 GiB region: no page table entry on its path is cached.
    assert_eq!(m.latency(us(4), 1 << 39), READ * 4);
    let c = m.iommu.counters().pages;
    assert_eq!((c.walks, c.walk_steps, c.hits, c.shortened_walks), (3, 9, 1, 1));
}

#[test]
fn overheads_add_up_as_documented() {
    let params = IommuParams {
        hit_latency: Duration::from_ns(3),
        walk_overhead: Duration::from_ns(100),
        replay_latency: Duration::from_ns(20),
        ..bare()
    };
    let mut m = Machine::new(params);
    m.map(0x1000, 0x5000, 0x2000, RW);
    m.latency(us(1), 0x1000);
    assert_eq!(m.latency(us(5), 0x2000), Duration::from_ns(100 + 80 + 20 + 3));
    assert_eq!(m.latency(us(6), 0x2000), Duration::from_ns(3));
}

#[test]
fn a_superpage_is_one_entry_and_one_step_less() {
    let mut m = Machine::new(bare());
    m.map(0x20_0000, 0x40_0000, 0x20_0000, RW);
    assert_eq!(m.latency(us(1), 0x20_0000), READ * 5);
    let reply = m.translate(us(2), 0x3f_f123, Access::Write);
    assert_eq!((reply.ready, address(&reply)), (us(2), 0x5f_f123));
    assert_eq!(reply.outcome.unwrap().page, PageSize::Size2MiB);
}

#[test]
fn a_second_miss_to_a_page_waits_for_the_walk_of_the_first() {
    let mut m = Machine::new(bare());
    m.map(0x1000, 0x5000, 0x2000, RW);
    m.latency(us(1), 0x1000);
    let first = m.translate(us(2), 0x2000, Access::Read);
    let second = m.translate(us(2) + Duration::from_ns(30), 0x2800, Access::Write);
    assert_eq!(second.ready, first.ready);
    let c = m.iommu.counters().pages;
    assert_eq!((c.walks, c.merged), (2, 1));
}

#[test]
fn hits_wait_behind_misses_if_the_part_is_in_order() {
    for (order, read_waits, write_waits) in [
        (PipelineOrder::Unordered, false, false),
        (PipelineOrder::PerDirection, true, false),
        (PipelineOrder::Global, true, true),
    ] {
        let mut m = Machine::new(IommuParams { order, ..bare() });
        m.map(0x1000, 0x5000, 0x2000, RW);
        m.latency(us(1), 0x1000);
        let miss = m.translate(us(2), 0x2000, Access::Read);
        for (access, waits) in [(Access::Write, write_waits), (Access::Read, read_waits)] {
            let hit = m.translate(us(2), 0x1000, access);
            assert_eq!(hit.ready, if waits { miss.ready } else { us(2) }, "{order:?} {access:?}");
        }
    }
}

#[test]
fn walks_beyond_the_walkers_queue() {
    let mut m = Machine::new(IommuParams { walkers: 2, order: PipelineOrder::Unordered, ..bare() });
    m.map(0x0, 0x10_0000, 0x8000, RW);
    m.latency(us(1), 0);
    let ready: Vec<_> =
        (1..6).map(|n| m.translate(us(2), n << 12, Access::Read).ready.since(us(2)) / READ).collect();
    assert_eq!(ready, [1, 1, 2, 2, 3]);
    assert_eq!(m.iommu.counters().pages.walker_queueing, READ * (1 + 1 + 2));
}

#[test]
fn walkers_stay_busy_after_walks_for_reads() {
    let hold = Duration::from_ns(42);
    let params = IommuParams { walkers: 1, walker_hold_read: hold, ..bare() };
    let mut m = Machine::new(params);
    m.map(0x0, 0x10_0000, 0x8000, RW);
    m.latency(us(1), 0);
    let ready =
        |m: &mut Machine, page: u64, access| m.translate(us(2), page << 12, access).ready.since(us(2));
    assert_eq!(ready(&mut m, 1, Access::Read), READ);
    assert_eq!(ready(&mut m, 2, Access::Write), READ * 2 + hold);
    assert_eq!(ready(&mut m, 3, Access::Read), READ * 3 + hold);
}

#[test]
fn walks_within_a_region_can_be_serialised() {
    let params = IommuParams {
        order: PipelineOrder::Unordered,
        serialised_walk_region: Some(Bytes::mib(2)),
        ..bare()
    };
    let mut m = Machine::new(params);
    m.map(0x0, 0x10_0000, 0x4000, RW);
    m.map(0x20_0000, 0x10_0000, 0x4000, RW);
    m.latency(us(1), 0);
    m.latency(us(2), 0x20_0000);
    let ready: Vec<_> = [0x1000, 0x2000, 0x20_1000, 0x3000, 0x20_2000]
        .map(|a| m.translate(us(3), a, Access::Read).ready.since(us(3)) / READ)
        .into();
    assert_eq!(ready, [1, 2, 1, 3, 2]);
    // A region that was left long ago delays nobody.
    assert_eq!(m.latency(us(4), 0x20_3000), READ);
}

#[test]
fn walks_that_begin_in_order_hold_up_those_behind() {
    let params = IommuParams {
        order: PipelineOrder::Unordered,
        walks_begin_in_order: true,
        serialised_walk_region: Some(Bytes::mib(2)),
        ..bare()
    };
    let mut m = Machine::new(params);
    m.map(0x0, 0x10_0000, 0x4000, RW);
    m.map(0x20_0000, 0x10_0000, 0x4000, RW);
    m.latency(us(1), 0);
    m.latency(us(2), 0x20_0000);
    let ready: Vec<_> = [0x1000, 0x2000, 0x20_1000]
        .map(|a| m.translate(us(3), a, Access::Read).ready.since(us(3)) / READ)
        .into();
    assert_eq!(ready, [1, 2, 2]);
}

#[test]
fn a_full_pipeline_holds_up_lookups() {
    let mut m = Machine::new(IommuParams { read_depth: 2, ..bare() });
    m.map(0x0, 0x10_0000, 0x8000, RW);
    m.latency(us(1), 0);
    let ready: Vec<_> =
        (1..6).map(|n| m.translate(us(2), n << 12, Access::Read).ready.since(us(2)) / READ).collect();
    assert_eq!(ready, [1, 1, 2, 2, 3]);
    assert_eq!(m.iommu.counters().pages.walker_queueing, Duration::ZERO);
    assert_eq!(m.iommu.counters().pipeline_queueing, READ * (1 + 1 + 2));
}

#[test]
fn a_request_in_pieces_takes_a_place_for_each() {
    let mut m = Machine::new(IommuParams { read_depth: 4, ..bare() });
    m.map(0x0, 0x10_0000, 0x8000, RW);
    m.latency(us(1), 0);
    let mut read = |page: u64| {
        let request = DmaRequest::new(NIC, Iova::new(page << 12), Access::Read);
        let reply = m.iommu.translate(us(2), DmaRequest { pieces: 2, ..request }, &mut m.memory);
        reply.ready.since(us(2)) / READ
    };
    assert_eq!([read(1), read(2), read(3), read(4)], [1, 1, 2, 2]);
}

#[test]
fn lookups_keep_their_distance() {
    let interval = Duration::from_ns(5);
    let mut m = Machine::new(IommuParams { lookup_interval: interval, ..bare() });
    m.map(0x0, 0x10_0000, 0x1000, RW);
    m.latency(us(1), 0);
    for n in 0..4 {
        assert_eq!(m.translate(us(2), 0, Access::Read).ready, us(2) + interval * n);
    }
}

#[test]
fn requests_that_waited_for_a_walk_are_looked_up_again_one_by_one() {
    let interval = Duration::from_ns(5);
    let mut m = Machine::new(IommuParams { retry_interval: interval, ..bare() });
    m.map(0x1000, 0x5000, 0x2000, RW);
    m.latency(us(1), 0x1000);
    let walked = m.translate(us(2), 0x2000, Access::Write).ready;
    for n in 1..5 {
        let at = us(2) + Duration::from_ns(10) * n;
        assert_eq!(m.translate(at, 0x2000, Access::Write).ready, walked + interval * n, "{n}");
    }
    assert_eq!(m.translate(us(9), 0x2000, Access::Write).ready, us(9), "nobody waits afterwards");
}

#[test]
fn walks_of_one_region_follow_when_those_that_wait_have_been_looked_up_again() {
    let retry = Duration::from_ns(20);
    let walks = |pieces, shares| {
        let mut m = Machine::new(IommuParams {
            retry_interval: retry,
            same_page_shares_place: shares,
            serialised_walk_region: Some(Bytes::mib(2)),
            ..bare()
        });
        m.map(0x0, 0x10_0000, 0x8000, RW);
        m.latency(us(1), 0);
        let mut walk = |page: u64| {
            let request = DmaRequest::new(NIC, Iova::new(page << 12), Access::Read);
            m.iommu.translate(us(2), DmaRequest { pieces, ..request }, &mut m.memory).ready
        };
        [1, 1, 2, 3].map(|page| walk(page).since(us(2)))
    };
    // Both requests for the first page, then the one for the second, are looked up again before the next walk.
    assert_eq!(walks(1, false), [READ, READ + retry, READ * 2 + retry * 2, READ * 3 + retry * 3]);
    // Each piece is looked up; a request that shares its predecessor's slot does not delay the walk.
    assert_eq!(walks(2, false)[2], READ * 2 + retry * 4);
    assert_eq!(walks(1, true)[2], READ * 2 + retry);
}

#[test]
fn more_pages_than_entries_miss_in_proportion() {
    // Random addresses over twice as many pages as IOTLB entries: half of the lookups miss.
    let mut m = Machine::new(IommuParams { iotlb_reserved: 28, ..bare() });
    m.map(0x0, 0x10_0000, 200 << 12, RW);
    let mut state = 1u64;
    for n in 0..20_000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        m.translate(us(n), ((state >> 33) % 200) << 12, Access::Read);
    }
    let c = m.iommu.counters().pages;
    assert!((9_600..10_400).contains(&c.misses), "{c:?}");
    assert_eq!(c.hits + c.merged + c.misses, 20_000);
}
