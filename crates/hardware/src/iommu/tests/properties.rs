//! Invariants over random inputs.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Pages in the small address space of these tests: just over 4 MiB, so that superpages fit.
const PAGES: u64 = 1200;

#[derive(Clone, Debug)]
enum IommuStep {
    /// Maps `pages` pages from page `page` to frames from `frame`.
    Map {
        page: u64,
        pages: u64,
        frame: u64,
        permissions: Permissions,
        largest: PageSize,
    },
    /// Unmaps and invalidates, and optionally waits.
    Unmap {
        page: u64,
        pages: u64,
        wait: bool,
    },
    Access {
        page: u64,
        access: Access,
    },
}

fn step() -> impl Strategy<Value = IommuStep> {
    let permissions =
        prop::sample::select(vec![Permissions::READ, Permissions::WRITE, Permissions::READ_WRITE]);
    let pages = prop_oneof![4 => 1u64..6, 1 => Just(512u64), 1 => 1u64..600];
    let page = prop_oneof![3 => 0u64..PAGES, 1 => Just(512u64)];
    let frame = prop_oneof![0u64..2048, Just(1024u64)];
    let largest = prop::sample::select(PageSize::ALL.to_vec());
    let access = prop::sample::select(vec![Access::Read, Access::Write]);
    prop_oneof![
        1 => (page.clone(), pages.clone(), frame, permissions, largest).prop_map(
            |(page, pages, frame, permissions, largest)| IommuStep::Map { page, pages, frame, permissions, largest }
        ),
        1 => (page.clone(), pages, any::<bool>())
            .prop_map(|(page, pages, wait)| IommuStep::Unmap { page, pages, wait }),
        6 => (page, access).prop_map(|(page, access)| IommuStep::Access { page, access }),
    ]
}

fn params() -> impl Strategy<Value = IommuParams> {
    let replacement = prop::sample::select(vec![
        IotlbReplacement::Lru,
        IotlbReplacement::TreePlru,
        IotlbReplacement::Random,
    ]);
    let order = prop::sample::select(vec![
        PipelineOrder::Unordered,
        PipelineOrder::PerDirection,
        PipelineOrder::Global,
    ]);
    let geometry = prop::sample::select(vec![(0, 0), (1, 0), (8, 0), (8, 2), (64, 4), (128, 0)]);
    (replacement, order, geometry, 0usize..4, 1usize..5, 0usize..5, any::<bool>(), any::<bool>())
        .prop_map(
            |(replacement, order, (entries, ways), structures, walkers, depth, serialised, in_order)| {
                IommuParams {
                    iotlb: Geometry { entries, ways, replacement },
                    paging_structure_caches: PagingStructureCaches {
                        level1: structures,
                        level2: structures / 2,
                        level3: structures,
                        level4: 0,
                    },
                    context_cache: Geometry {
                        entries: structures,
                        ways: 1,
                        replacement: IotlbReplacement::Lru,
                    },
                    walkers,
                    read_depth: depth,
                    write_depth: depth,
                    order,
                    walks_begin_in_order: in_order,
                    serialised_walk_region: serialised.then_some(Bytes::mib(2)),
                    ..IommuParams::default()
                }
            },
        )
        .prop_filter("a geometry that can be built", |p| p.validate().is_ok())
}

/// The reference model: the mapping of each page.
type Reference = BTreeMap<u64, (u64, Permissions)>;

fn expected(reference: &Reference, page: u64, access: Access) -> Option<u64> {
    reference.get(&page).filter(|(_, p)| p.allow(access)).map(|&(frame, _)| frame << 12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// If every unmapping is invalidated and waited for, the IOMMU agrees with the reference. Without waiting, it never
    /// uses an old translation after the wait would have ended.
    #[test]
    fn agrees_with_a_reference_and_never_uses_what_is_stale(
        params in params(),
        steps in prop::collection::vec((step(), 0u64..200), 1..120),
    ) {
        let mut m = Machine::new(params);
        let mut reference = Reference::new();
        let mut now = us(1);
        let mut last_ready = Time::ZERO;
        let mut accesses = 0;
        for (step, gap) in steps {
            now += Duration::from_ns(gap);
            match step {
                IommuStep::Map { page, pages, frame, permissions, largest } => {
                    let free = (page..page + pages).all(|p| !reference.contains_key(&p));
                    let result = m.table.map(
                        &mut m.memory.bytes, &mut m.frames, Iova::new(page << 12),
                        HostPhysical::new(frame << 12), Bytes::new(pages << 12), permissions, largest,
                    );
                    prop_assert_eq!(result.is_ok(), free);
                    if free {
                        reference.extend((0..pages).map(|n| (page + n, (frame + n, permissions))));
                    }
                }
                IommuStep::Unmap { page, pages, wait } => {
                    let before = reference.len();
                    reference.retain(|p, _| !(page..page + pages).contains(p));
                    let done = m.table.unmap(
                        &mut m.memory.bytes, &mut m.frames, Iova::new(page << 12), Bytes::new(pages << 12),
                    ).unwrap();
                    prop_assert_eq!(done.bytes.get() >> 12, (before - reference.len()) as u64);
                    let mask = (page ^ (page + pages - 1)).checked_ilog2().map_or(0, |b| b as u8 + 1);
                    let scope = Scope::Pages { domain: DOMAIN, address: Iova::new(page << 12), mask };
                    let completed = m.invalidate(now, scope);
                    // When the wait completes, all earlier translations have been used.
                    prop_assert!(completed >= last_ready);
                    if wait {
                        now = completed;
                    }
                }
                IommuStep::Access { page, access } => {
                    let reply = m.translate(now, page << 12 | 0x123, access);
                    prop_assert!(reply.ready >= now);
                    accesses += 1;
                    last_ready = last_ready.max(reply.ready);
                    let found = reply.outcome.ok().map(|t| t.address.get() & !0xfff);
                    prop_assert_eq!(found, expected(&reference, page, access), "page {}", page);
                }
            }
        }
        let c = m.iommu.counters();
        prop_assert_eq!(c.pages.hits + c.pages.merged + c.pages.misses + c.passed + c.refused_early, accesses);
        // Software walks agree as well.
        for page in 0..PAGES {
            let found = m.table.lookup(&m.memory.bytes, Iova::new(page << 12)).unwrap();
            let found = found.map(|f| (f.resolve(Iova::new(page << 12)).get() >> 12, f.permissions));
            prop_assert_eq!(found, reference.get(&page).copied());
        }
    }

    /// There are never more concurrent walks than walkers, translations leave in order if configured so, and no request
    /// is looked up while `depth` others are in the pipeline.
    #[test]
    fn bounds_and_order_hold(
        params in params(),
        requests in prop::collection::vec((0u64..400, 0u64..60, any::<bool>()), 1..200),
    ) {
        let mut m = Machine::new(params);
        m.map(0, 0x10_0000, 400 << 12, Permissions::READ_WRITE);
        let mut now = us(1);
        let mut replies = Vec::new();
        for (page, gap, write) in requests {
            now += Duration::from_ns(gap);
            let access = if write { Access::Write } else { Access::Read };
            replies.push((now, access, m.translate(now, page << 12, access).ready));
        }
        // Reads of one walk are sequential, so concurrent reads are concurrent walks.
        let mut reads = m.memory.reads.clone();
        reads.sort();
        for (n, &at) in reads.iter().enumerate() {
            let overlapping = reads[..n].iter().filter(|&&before| before + READ > at).count() + 1;
            prop_assert!(overlapping <= params.walkers, "{} at {}", overlapping, at);
        }
        let ordered = |access: Option<Access>| {
            let times: Vec<_> =
                replies.iter().filter(|r| access.is_none_or(|a| a == r.1)).map(|r| r.2).collect();
            times.is_sorted()
        };
        match params.order {
            PipelineOrder::Unordered => {}
            PipelineOrder::PerDirection => {
                prop_assert!(ordered(Some(Access::Read)) && ordered(Some(Access::Write)));
            }
            PipelineOrder::Global => prop_assert!(ordered(None)),
        }
    }

    /// Any table content and any request lead to a translation or a fault, never a panic.
    #[test]
    fn any_bytes_in_the_tables_are_survived(
        bytes in prop::collection::vec(any::<u64>(), 64),
        small in prop::collection::vec((0u64..64, 0u64..8), 64),
        requests in prop::collection::vec((any::<u16>(), any::<u64>(), any::<u64>(), any::<u32>(), 0u8..4), 1..60),
        root in any::<u64>(),
        near in any::<bool>(),
    ) {
        let mut m = Machine::new(IommuParams::default());
        m.iommu.set_interrupt_table(Some(InterruptTable {
            base: HostPhysical::new(if near { 0 } else { root }),
            order: (root & 31) as u8,
            x2apic: root & 32 != 0,
            allow_compatibility: root & 64 != 0,
        }));
        m.iommu.set_root_table(HostPhysical::new(if near { root & 0xff_f000 } else { root }));
        m.iommu.set_invalidation_queue(HostPhysical::new(if near { root & 0xff_f000 } else { root }), root as u8);
        // Fill memory with random words and words that look like pointers into installed memory.
        for frame in 0..4096u64 {
            for n in 0..8u64 {
                let pick = (frame.wrapping_mul(31) + n) as usize % 64;
                let word = if n % 2 == 0 { small[pick].0 << 12 | small[pick].1 } else { bytes[pick] };
                let offset = (bytes[(pick + 7) % 64] ^ n) % 512 * 8;
                m.memory.bytes.write_u64(HostPhysical::new(frame << 12 | offset), word).unwrap();
            }
            m.memory.bytes.write_u64(HostPhysical::new(frame << 12), small[frame as usize % 64].0 << 12 | 1).unwrap();
        }
        for (n, (who, address, data, word, kind)) in requests.into_iter().enumerate() {
            let (now, who) = (us(n as u64), Bdf::from_bits(who));
            let narrow = Iova::new(if word & 1 == 0 { address } else { address >> 16 });
            let access = if word & 2 == 0 { Access::Read } else { Access::Write };
            match kind {
                0 | 1 => {
                    let request = DmaRequest::new(who, narrow, access);
                    let request = DmaRequest { is_translated: kind == 1, ..request };
                    m.iommu.translate(now, request, &mut m.memory);
                }
                2 => {
                    let message = MsiMessage { address: 0xfee0_0000 | address & 0xf_ffff, data: word };
                    m.iommu.remap_interrupt(now, who, message, &mut m.memory);
                }
                _ => {
                    m.iommu.write_invalidation_tail(now, data & 0xff0, &mut m.memory, &mut m.actions);
                    m.iommu.clear_invalidation_queue_error();
                }
            }
        }
    }
}
