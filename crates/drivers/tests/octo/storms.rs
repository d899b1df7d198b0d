//! Programs that move every 50 us, wherever their packets are, whatever else happens meanwhile: what is read is what was
//! written. Where no frame is lost, none is overtaken either.

use engine::Seed;
use hardware::ethernet::FaultParams;
use hardware::link::LinkParams;
use platform::cpu::CpuId;
use proptest::prelude::*;
use units::Duration;
use wire::nic::registers::feature;
use wire::pcie::{Generation, Width};

use super::{By, PORT, Stream, cases, dropped, pair_of, set_link, steering, stream};
use crate::common::Setup;
use crate::common::streams::bytes;
use kernel::SteeringParams;

/// Time from one move of a program to the next.
const PAUSE: Duration = Duration::from_us(50);

/// What else happens in a storm.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    None,
    Cut(u8),
    Mend(u8),
    /// A completion makes no sense: its function is reset.
    Spoil,
}

/// A storm of moves.
#[derive(Clone, Debug)]
struct Storm {
    by: By,
    links: u8,
    /// The firmware with one table from queues to functions.
    global: bool,
    receives: bool,
    /// Frames are lost, damaged, doubled and held back by the cable.
    bad_cable: bool,
    /// RX rings have few descriptors.
    short_rings: bool,
    /// The first function's link is narrow, so that what was written through it is in memory later.
    narrow: bool,
    /// The card has fewer rules than there are flows.
    few_rules: bool,
    /// For each move: the core, and what happens besides.
    moves: Vec<(u16, Mishap)>,
    seed: u64,
}

fn mishap(links: u8) -> impl Strategy<Value = Mishap> {
    prop_oneof![
        6 => Just(Mishap::None),
        1 => (0..links).prop_map(Mishap::Cut),
        1 => (0..links).prop_map(Mishap::Mend),
        1 => Just(Mishap::Spoil),
    ]
}

fn storm() -> impl Strategy<Value = Storm> {
    let moves = |links, fails: bool| {
        let mishap = if fails { mishap(links).boxed() } else { Just(Mishap::None).boxed() };
        prop::collection::vec((0u16..16, mishap), 15..50)
    };
    let kind = (prop::sample::select(&By::BOTH[..]), prop::sample::select(vec![2u8, 4]), any::<bool>());
    (kind, any::<[bool; 6]>(), any::<u64>()).prop_flat_map(move |((by, links, global), flags, seed)| {
        let [receives, bad_cable, short_rings, narrow, few_rules, fails] = flags;
        moves(links, fails).prop_map(move |moves| Storm {
            by,
            links,
            global,
            receives,
            bad_cable,
            short_rings,
            narrow,
            few_rules,
            moves,
            seed,
        })
    })
}

fn rage(storm: &Storm) -> Result<(), TestCaseError> {
    let faults = storm.bad_cable.then(|| FaultParams {
        loss: 0.004,
        corruption: 0.004,
        duplication: 0.01,
        reordering: 0.01,
        longest_delay: Duration::from_us(30),
        ..FaultParams::none(Seed::new(storm.seed))
    });
    let nic: fn(&mut devices::nic::NicParams) = match (storm.global, storm.few_rules) {
        (false, false) => |_| {},
        (true, false) => |nic| nic.features |= feature::GLOBAL_RULES,
        (false, true) => |nic| (nic.flow_rules, nic.switch_rules) = (1, 1),
        (true, true) => |nic| {
            nic.features |= feature::GLOBAL_RULES;
            (nic.flow_rules, nic.switch_rules) = (1, 1);
        },
    };
    // Rules of silent flows are used again soon, but not while their last frames may wait for a narrow link.
    let steering = match storm.few_rules && !storm.narrow {
        true => SteeringParams { idle: Duration::from_us(300), scan: Duration::from_us(200), ..steering() },
        false => steering(),
    };
    let mut setup = Setup { links: storm.links, faults, nic, steering, ..Setup::default() };
    setup.first_link = storm.narrow.then(|| LinkParams::example(Generation::Gen3, Width::X1));
    if storm.short_rings {
        setup.driver.log2_rx = 4;
        setup.driver.refill = 4;
    }
    let pair = pair_of(storm.by, setup);
    let data: Vec<Vec<u8>> = (0..3).map(|n| bytes(400_000, storm.seed ^ n)).collect();
    let streams: Vec<Stream> = (0u16..)
        .zip(&data)
        .map(|(n, data)| stream(&pair, PORT + n, data.clone(), storm.receives, n * 5))
        .collect();
    // Connections are made in fair weather.
    for _ in 0..10_000 {
        if streams.iter().all(|stream| *stream.so_far.borrow() > 0) {
            break;
        }
        pair.run_for(Duration::from_us(5));
    }
    let face = pair.hosts[1].kernel.face();
    let (mut links, mut moved, mut failed) = (vec![true; usize::from(storm.links)], 0, false);
    for (n, &(core, mishap)) in storm.moves.iter().enumerate() {
        // A program that has ended does not move.
        moved += usize::from(face.set_affinity(streams[n % 3].task, &[CpuId(core)]).is_ok());
        let mut set = |port: u8, up: bool| {
            if std::mem::replace(&mut links[usize::from(port)], up) != up {
                set_link(&pair, port, up);
                failed = true;
            }
        };
        match mishap {
            Mishap::None => {}
            Mishap::Cut(port) => set(port, false),
            Mishap::Mend(port) => set(port, true),
            Mishap::Spoil => {
                pair.hosts[1].handle.spoil_completions(1);
                failed = true;
            }
        }
        pair.run_for(PAUSE);
    }
    for (port, up) in (0..).zip(links) {
        if !up {
            set_link(&pair, port, true);
        }
    }
    for (stream, data) in streams.iter().zip(&data) {
        prop_assert!(stream.end(&pair) == *data);
    }
    // Frames that a card drops are lost, as those of the cable.
    let is_whole = !storm.bad_cable && !failed && dropped(&pair) == 0;
    for stream in streams.iter().filter(|_| is_whole) {
        prop_assert_eq!((stream.again(&pair), stream.out_of_order.get()), (0, 0), "sent again, overtaken");
    }
    prop_assert!(moved > 2, "{moved} moves");
    if !failed {
        prop_assert_eq!(pair.hosts[1].kernel.face().network().counters().bad_checksums, 0);
    }
    Ok(())
}

/// In fair weather, each of them.
#[test]
fn moves_alone_lose_and_reorder_nothing() {
    let mut rng = Seed::new(1).component("moves");
    for number in 0..32 {
        let bit = |n: u32| number >> n & 1 == 1;
        let storm = Storm {
            by: By::BOTH[usize::from(bit(0))],
            links: if bit(1) { 4 } else { 2 },
            global: bit(2),
            receives: bit(3),
            bad_cable: false,
            short_rings: false,
            narrow: bit(4),
            few_rules: false,
            moves: (0..30).map(|_| (rng.below(16) as u16, Mishap::None)).collect(),
            seed: number,
        };
        rage(&storm).unwrap_or_else(|error| panic!("{error}: {storm:?}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(24), max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_storm_of_moves_loses_nothing(storm in storm()) {
        rage(&storm)?;
    }
}
