//! Programs that move every 50 us, wherever their packets are, whatever else happens meanwhile: what is read is what was
//! written. Where no frame is lost, none is overtaken either.

use engine::Seed;
use hardware::ethernet::FaultParams;
use hardware::link::LinkParams;
use platform::cpu::CpuId;
use platform::device::FunctionIndex;
use proptest::prelude::*;
use units::Duration;
use wire::nic::registers::{counter, feature};
use wire::pcie::{Generation, Width};

use super::{By, PORT, Stream, cases, dropped, pair_of, set_link, steering, stream};
use crate::common::streams::bytes;
use crate::common::{Pair, Setup};
use kernel::SteeringParams;

/// Time from one move of a program to the next.
const PAUSE: Duration = Duration::from_us(50);
/// Fewest moves of each program before its stream ends.
const FEWEST: u64 = 12;
/// How often the rings are looked at in between.
const LOOKS: u64 = 10;

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
    /// Programs, each with a stream.
    streams: u16,
    /// Frames are lost, damaged, doubled and held back by the cable.
    bad_cable: bool,
    /// RX rings have few descriptors.
    short_rings: bool,
    /// The first function's link is narrow, so that what was written through it is in memory later.
    narrow: bool,
    /// The card has fewer rules than there are flows.
    few_rules: bool,
    /// For each move: the programs' cores, and what happens besides.
    moves: Vec<([u16; 3], Mishap)>,
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
        prop::collection::vec(([0u16..16, 0..16, 0..16], mishap), 15..50)
    };
    let links = prop::sample::select(vec![2u8, 4]);
    let kind = (prop::sample::select(&By::BOTH[..]), links, any::<bool>(), 1u16..4);
    (kind, any::<[bool; 6]>(), any::<u64>()).prop_flat_map(
        move |((by, links, global, streams), flags, seed)| {
            let [receives, bad_cable, short_rings, narrow, few_rules, fails] = flags;
            moves(links, fails).prop_map(move |moves| Storm {
                by,
                links,
                global,
                receives,
                streams,
                bad_cable,
                short_rings,
                narrow,
                few_rules,
                moves,
                seed,
            })
        },
    )
}

/// Whether frames that have arrived wait for the driver at two or more of a team's members at once.
fn are_at_two(pair: &Pair, storm: &Storm) -> bool {
    let host = &pair.hosts[1];
    let waits = |&function: &u8| {
        let device = host.kernel.net().device(&format!("eth{function}"));
        let read = device.map_or(0, |device| device.counters().rx_packets);
        host.handle.counter(FunctionIndex(function), counter::RX_FRAMES) > read
    };
    storm.by == By::Team && (0..storm.links).filter(waits).count() > 1
}

/// What a storm was like.
#[derive(Default)]
struct Seen {
    /// Moves of a program that was still running.
    moves: u64,
    /// Moves after which frames waited at two functions at once.
    at_two: u64,
    /// Packets that waited for earlier ones of their flow in another ring.
    held: u64,
}

fn rage(storm: &Storm) -> Result<Seen, TestCaseError> {
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
    let length = 6_000_000 / usize::from(storm.streams);
    let data: Vec<Vec<u8>> = (0..storm.streams).map(|n| bytes(length, storm.seed ^ u64::from(n))).collect();
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
    let (mut links, mut seen, mut failed) = (vec![true; usize::from(storm.links)], Seen::default(), false);
    for &(cores, mishap) in &storm.moves {
        for (stream, core) in streams.iter().zip(cores) {
            // A program that has ended does not move.
            seen.moves += u64::from(face.set_affinity(stream.task, &[CpuId(core)]).is_ok());
        }
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
        let mut at_two = false;
        for _ in 0..LOOKS {
            pair.run_for(PAUSE / LOOKS);
            at_two |= are_at_two(&pair, storm);
        }
        seen.at_two += u64::from(at_two);
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
    let counters = pair.hosts[1].kernel.face().network().counters();
    if !failed {
        prop_assert_eq!(counters.bad_checksums, 0);
    }
    seen.held = counters.steer_held;
    // With a bad cable, some may have ended before others connect.
    let move_all = if storm.bad_cable { 1 } else { u64::from(storm.streams) };
    prop_assert!(seen.moves >= FEWEST * move_all, "{} moves", seen.moves);
    Ok(seen)
}

/// In fair weather, each of them. A lone flow is at two functions in the midst of its moves.
#[test]
fn moves_alone_lose_and_reorder_nothing() {
    let mut rng = Seed::new(1).component("moves");
    let (mut at_two, mut held) = (0, 0);
    for number in 0..32 {
        let bit = |n: u32| number >> n & 1 == 1;
        let storm = Storm {
            by: By::BOTH[usize::from(bit(0))],
            links: if bit(1) { 4 } else { 2 },
            global: bit(2),
            receives: bit(3),
            streams: if bit(0) ^ bit(2) ^ bit(4) { 3 } else { 1 },
            bad_cable: false,
            short_rings: false,
            narrow: bit(4),
            few_rules: false,
            moves: (0..30).map(|_| ([(); 3].map(|()| rng.below(16) as u16), Mishap::None)).collect(),
            seed: number,
        };
        let seen = rage(&storm).unwrap_or_else(|error| panic!("{error}: {storm:?}"));
        if storm.receives && storm.streams == 1 {
            at_two += seen.at_two;
            held += seen.held;
        }
    }
    assert!(at_two > 5, "{at_two} moves with frames at both functions");
    assert!(held > 100, "{held} frames behind others of their flow at another function");
}

/// Both functions are reset at once: packets that waited for either are sent once one is back.
#[test]
fn resets_at_once_strand_no_packet() {
    let calm = |cores: [[u16; 3]; 3]| cores.map(|cores| (cores, Mishap::None)).to_vec();
    let moves = [
        calm([[0, 2, 0], [0, 0, 0], [1, 0, 1]]),
        calm([[2, 8, 2], [14, 13, 9], [3, 8, 6]]),
        vec![([15, 1, 4], Mishap::Spoil)],
        calm([[14, 12, 12], [13, 1, 9], [0, 7, 12]]),
        vec![([10, 0, 6], Mishap::Spoil)],
        calm([[3, 11, 2], [2, 10, 4], [5, 2, 14]]),
    ];
    for by in By::BOTH {
        let storm = Storm {
            by,
            links: 2,
            global: true,
            receives: false,
            streams: 3,
            bad_cable: true,
            short_rings: false,
            narrow: false,
            few_rules: false,
            moves: moves.concat(),
            seed: 5_985_032_272_862_966_336,
        };
        rage(&storm).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(24), max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_storm_of_moves_loses_nothing(storm in storm()) {
        rage(&storm)?;
    }
}
