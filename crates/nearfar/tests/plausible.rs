//! Settings that nobody measured, on every machine: mixed sockets, remote memory behind an IOMMU, small pages where only
//! superpages were seen. Nothing says what they give, but some orders have to hold.

use machine::{Doc, IommuMode, Library, Machine, Part, Sockets};
use nearfar::bench::{Bench, Effort};
use nearfar::compare::{CompareOptions, choose};
use rayon::prelude::*;
use results::pciebench::{Cache, Pattern, Run, Test};
use units::Bytes;

const EFFORT: Effort = Effort { samples: 400, transactions: 4_000 };
/// A window that any IOTLB and any share of a cache holds, and one that none does.
const SMALL: u64 = 64 << 10;
const LARGE: u64 = 64 << 20;
/// A tick of the card's clock: finer orders do not show in a median.
const TICK_NS: f64 = 13.4;

fn bench(machine: &str, sockets: [u32; 3], iommu: IommuMode) -> Bench {
    let library = Library::built_in();
    let [device, memory, warming] = sockets;
    Bench {
        machine: Doc::<Machine>::load(&library, machine).unwrap().read().unwrap(),
        card: Doc::<Part>::load(&library, "nfp6000").unwrap().read().unwrap(),
        sockets: Sockets { device, memory, warming },
        iommu,
        seed: 1,
    }
}

fn value(bench: &Bench, test: Test, cache: Cache, window: u64) -> f64 {
    let run = Run {
        test,
        pattern: Pattern::Random,
        cache,
        host_offset: 0,
        device_offset: 0,
        window: Bytes::new(window),
        transfer: Bytes::new(64),
    };
    // A failed transfer, or one that brought other bytes, is an error.
    bench.run(&run, EFFORT).unwrap_or_else(|e| panic!("{} {run}: {e}", bench.machine.name)).headline()
}

/// Cold and host-warm latency in ns and bandwidth in Gbit/s of reads of 64 B, in a small and a large window.
#[derive(Clone, Copy, Debug)]
struct Values {
    cold_ns: [f64; 2],
    warm_ns: [f64; 2],
    gbit_per_s: [f64; 2],
}

fn values(machine: &str, sockets: [u32; 3], iommu: IommuMode) -> Values {
    let bench = bench(machine, sockets, iommu);
    let both = |test, cache| [SMALL, LARGE].map(|window| value(&bench, test, cache, window));
    Values {
        cold_ns: both(Test::LatDmaRd, Cache::Cold),
        warm_ns: both(Test::LatDmaRd, Cache::HostWarm),
        gbit_per_s: both(Test::BwDmaRd, Cache::HostWarm),
    }
}

/// The machines whose rows repeat, with their sockets.
const MACHINES: [(&str, u32); 5] = [
    ("dell-t430", 2),
    ("dell-t620-ivy", 2),
    ("dell-t620-sandy", 1),
    ("dell-t630", 1),
    ("supermicro-e5-2637v3", 1),
];
/// The one whose IOMMU knows no superpages: asked for them, it has small pages.
const SMALL_PAGES_ONLY: &str = "dell-t620-sandy";

const LOCAL: [u32; 3] = [0, 0, 0];
const REMOTE: [u32; 3] = [0, 1, 1];

fn of_all(
    machines: impl IntoIterator<Item = (&'static str, u32)>,
    settings: &[([u32; 3], IommuMode)],
) -> Vec<(&'static str, Vec<Values>)> {
    let machines: Vec<_> = machines.into_iter().collect();
    let of = |&(machine, _): &(&'static str, u32)| {
        (machine, settings.par_iter().map(|&(sockets, iommu)| values(machine, sockets, iommu)).collect())
    };
    machines.par_iter().map(of).collect()
}

#[test]
fn an_iommu_costs_where_its_tlb_does_not_reach() {
    for sockets in [LOCAL, REMOTE] {
        let settings =
            [IommuMode::Off, IommuMode::Superpages, IommuMode::Pages4k].map(|mode| (sockets, mode));
        let machines = MACHINES.into_iter().filter(|&(_, count)| sockets == LOCAL || count > 1);
        for (machine, found) in of_all(machines, &settings) {
            let [off, superpages, small] = found[..] else { unreachable!("three settings") };
            println!("{machine} {sockets:?}\n  {off:.1?}\n  {superpages:.1?}\n  {small:.1?}");
            // Superpages always hit, small pages in a small window, and a hit takes next to nothing.
            let always = if machine == SMALL_PAGES_ONLY { small } else { superpages };
            let reach = if machine == SMALL_PAGES_ONLY { 0 } else { 1 };
            for (hits, window) in [(superpages, 0), (always, reach), (small, 0)] {
                let more = hits.cold_ns[window] - off.cold_ns[window];
                assert!(
                    (-TICK_NS..=30.0 + TICK_NS).contains(&more),
                    "{machine} {sockets:?}: a hit takes {more} ns"
                );
                let ratio = hits.gbit_per_s[window] / off.gbit_per_s[window];
                assert!((0.9..=1.02).contains(&ratio), "{machine} {sockets:?}: {ratio} of the bandwidth");
            }
            // A walk takes what a few accesses to memory take.
            let walk = small.cold_ns[1] - off.cold_ns[1];
            assert!((150.0..=600.0).contains(&walk), "{machine} {sockets:?}: a walk takes {walk} ns");
            let ratio = small.gbit_per_s[1] / off.gbit_per_s[1];
            assert!(
                (0.1..=0.7).contains(&ratio),
                "{machine} {sockets:?}: {ratio} of the bandwidth with walks"
            );
        }
    }
}

#[test]
fn the_other_socket_costs_its_way() {
    for iommu in [IommuMode::Off, IommuMode::Superpages, IommuMode::Pages4k] {
        let sockets = [LOCAL, REMOTE, [0, 1, 0], [0, 0, 1], [1, 1, 1], [1, 0, 0]];
        let machines = MACHINES.into_iter().filter(|&(_, count)| count > 1);
        for (machine, found) in of_all(machines, &sockets.map(|sockets| (sockets, iommu))) {
            let [local, remote, warmed_here, warmed_there, other, other_remote] = found[..] else {
                unreachable!("six settings")
            };
            for (sockets, values) in sockets.iter().zip(&found) {
                println!("{machine} {iommu} {sockets:?} {values:.1?}");
            }
            for window in 0..2 {
                let way = remote.cold_ns[window] - local.cold_ns[window];
                assert!((30.0..=220.0).contains(&way), "{machine} {iommu}: {way} ns to the other socket");
                // Memory of the other socket is never nearer, whoever warmed its lines.
                for far in [remote, warmed_here] {
                    assert!(
                        far.warm_ns[window] >= local.warm_ns[window] - TICK_NS,
                        "{machine} {iommu}: {found:?}"
                    );
                    assert!(
                        far.gbit_per_s[window] <= 1.01 * local.gbit_per_s[window],
                        "{machine} {iommu}: {found:?}"
                    );
                }
                // Lines in another socket's cache, of memory here, are no nearer than those in the cache here.
                assert!(warmed_there.warm_ns[window] >= local.warm_ns[window] - TICK_NS, "{machine} {iommu}");
            }
            // Both sockets are alike.
            for (here, there) in [(local, other), (remote, other_remote)] {
                for window in 0..2 {
                    let apart = there.cold_ns[window] - here.cold_ns[window];
                    assert!(apart.abs() <= 2.0 * TICK_NS, "{machine} {iommu}: sockets {apart} ns apart");
                }
            }
        }
    }
}

/// Where the small pages stop fitting is 512 times below where superpages would: 4 KiB against 2 MiB.
#[test]
fn small_pages_fill_an_iotlb() {
    let knees: Vec<_> = MACHINES
        .par_iter()
        .map(|&(machine, _)| {
            let small = bench(machine, LOCAL, IommuMode::Pages4k);
            let entries = small.machine.host.iommu.as_ref().unwrap().iotlb.entries.value.get();
            let hit = value(&small, Test::LatDmaRd, Cache::Cold, SMALL);
            let misses = |window| value(&small, Test::LatDmaRd, Cache::Cold, window) > hit + 100.0;
            let reach = u64::from(entries) * 4096;
            (machine, entries, misses(reach.next_power_of_two() * 4), misses(reach.next_power_of_two() / 4))
        })
        .collect();
    for (machine, entries, beyond, within) in knees {
        assert!(beyond && !within, "{machine}: {entries} entries, misses {beyond} beyond, {within} within");
    }
}

/// The bench of a directory of this name, which is nowhere.
fn named(name: &str) -> (Bench, Vec<String>) {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let chosen = choose(&path, &CompareOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(!chosen.seen, "{name}");
    (chosen.bench, chosen.notes)
}

/// Machines without a file, and machines whose file knows fewer sockets, are their nearest relatives, and say so.
#[test]
fn unseen_machines_are_like_their_relatives() {
    let machines = [
        ("hsw-Xeon-E5-2620v3_dell-t630", "dell-t630"),
        ("snb-Xeon-E5-2630_dell-t620", "dell-t620-sandy"),
        ("hsw-Xeon-E5-2637v3_supermicro", "supermicro-e5-2637v3"),
        ("hsw-Xeon-E5-2699v3_dell-r730", "dell-t630"),
        ("bdw-Xeon-E5-2680v4_dell-r630", "dell-t430"),
        ("ib-Xeon-E5-2680v2_dell-r620", "dell-t620-ivy"),
        ("skl-Xeon-Silver-4110_dell-t440", "dell-t430"),
    ];
    let found: Vec<_> = machines
        .par_iter()
        .map(|&(machine, nearest)| {
            let of = |rest: &str| named(&format!("nfp6000-1.2GHz_{machine}-{rest}"));
            let value = |rest: &str| value(&of(rest).0, Test::LatDmaRd, Cache::Cold, LARGE);
            let (bench, notes) = of("s0-s1-s1-iommu-nosp");
            assert_eq!(bench.machine.name, nearest, "{machine}");
            assert!(!notes.is_empty(), "{machine}: that something is taken from a relative is told");
            (machine, ["s0-s0-s0", "s0-s1-s1", "s0-s0-s0-iommu-nosp", "s0-s1-s1-iommu-nosp"].map(value))
        })
        .collect();
    for (machine, [local, remote, local_walk, remote_walk]) in found {
        println!("{machine} {local:.0} {remote:.0} {local_walk:.0} {remote_walk:.0}");
        let (way, walk) = (remote - local, local_walk - local);
        assert!((30.0..=220.0).contains(&way), "{machine}: {way} ns to the other socket");
        assert!((150.0..=600.0).contains(&walk), "{machine}: a walk takes {walk} ns");
        // Tables lie at the card's socket: the walk is the same.
        let both = remote_walk - local;
        assert!(
            (both - way - walk).abs() <= 3.0 * TICK_NS,
            "{machine}: {way} + {walk} ns apart, {both} together"
        );
    }
}

/// Where they cannot help, a larger window, a larger transfer and a worse cache do not.
#[test]
fn more_is_not_faster() {
    let windows = [16 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
    MACHINES.par_iter().for_each(|&(machine, _)| {
        let bench = bench(machine, LOCAL, IommuMode::Pages4k);
        for (test, cache) in [
            (Test::LatDmaRd, Cache::Cold),
            (Test::LatDmaRd, Cache::HostWarm),
            (Test::LatDmaWrRd, Cache::Cold),
            (Test::LatDmaWrRd, Cache::DeviceWarm),
        ] {
            let found = windows.map(|window| value(&bench, test, cache, window));
            assert!(
                found.windows(2).all(|pair| pair[1] >= pair[0] - TICK_NS),
                "{machine} {test} {cache}: {found:.0?} ns over {windows:?} bytes"
            );
        }
        let both = [Cache::HostWarm, Cache::Cold].map(|cache| value(&bench, Test::LatDmaRd, cache, SMALL));
        assert!(both[0] <= both[1] + TICK_NS, "{machine}: warm and cold {both:?} ns");
    });
}
