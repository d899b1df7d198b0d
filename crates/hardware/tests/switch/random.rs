//! Properties of random trees of switches.

use engine::Completion;
use hardware::link::{CreditLimits, Credits, LinkId, LinkParams};
use hardware::memory::NodeId;
use hardware::root::{PeerReads, RootPortParams};
use hardware::switch::SwitchParams;
use proptest::prelude::*;
use units::{Duration, Time};
use wire::pcie::config::{acs, header};
use wire::pcie::{Generation, Width};

use super::hops::Analysers;
use super::tree::{Leaf, MEMORY, Node, Tree};
use super::ways::Sent;
use super::{link, read_latency, reflecting, switch, write_latency};

/// A tree with up to three levels of switches.
fn any_node(depth: u32, links: BoxedStrategy<LinkParams>) -> BoxedStrategy<Node> {
    let device = prop::sample::select(vec![1, 8, 32]).prop_map(|tags| Node::Device { tags });
    if depth == 0 {
        return device.boxed();
    }
    let below = (links.clone(), any_node(depth - 1, links));
    let node = (0..200u64, any::<[bool; 2]>(), prop::collection::vec(below, 1..4));
    let node = node.prop_map(|(latency, [through, input_queued], below)| {
        Node::Switch(SwitchParams { input_queued, ..switch(latency, through) }, below)
    });
    prop_oneof![1 => device, 3 => node].boxed()
}

/// Credits for a few TLPs.
fn few_credits() -> BoxedStrategy<CreditLimits> {
    let some = (1..6u32, 32..80u32).prop_map(|(header, data)| {
        let some = Some(Credits { header, data });
        CreditLimits { posted: some, non_posted: some, completion: some }
    });
    some.boxed()
}

/// Credits for a few TLPs of some classes, infinite ones for others.
fn any_credits() -> BoxedStrategy<CreditLimits> {
    let some = (few_credits(), any::<[bool; 3]>()).prop_map(|(few, finite)| CreditLimits {
        posted: few.posted.filter(|_| finite[0]),
        non_posted: few.non_posted.filter(|_| finite[1]),
        completion: few.completion.filter(|_| finite[2]),
    });
    some.boxed()
}

/// Links of any speed, latency and replay buffer. Both ends send their Acks and credit updates after a delay.
fn any_link(credits: BoxedStrategy<CreditLimits>, delay_ns: BoxedStrategy<u64>) -> BoxedStrategy<LinkParams> {
    let generation =
        prop::sample::select(vec![Generation::Gen1, Generation::Gen2, Generation::Gen3, Generation::Gen4]);
    let width = prop::sample::select(vec![Width::X1, Width::X4, Width::X8, Width::X16]);
    let any = (generation, width, credits, 0..100u64, delay_ns, prop::sample::select(vec![4, 8, 64]));
    let any = any.prop_map(|(generation, width, credits, latency_ns, delay_ns, replay_tlps)| {
        let mut link = link(generation, width, credits);
        link.latency = Duration::from_ns(latency_ns);
        for receiver in &mut link.receivers {
            receiver.replay_tlps = replay_tlps;
            receiver.ack_delay = Duration::from_ns(delay_ns);
            receiver.credit_update_delay = Duration::from_ns(delay_ns);
        }
        link
    });
    any.boxed()
}

/// Links with credits for a few TLPs.
fn narrow() -> BoxedStrategy<LinkParams> {
    any_link(few_credits(), Just(30).boxed())
}

fn any_root_port() -> impl Strategy<Value = RootPortParams> {
    let times = [0..10u64, 0..5, 0..300, 0..200].map(|ns| ns.prop_map(Duration::from_ns));
    (times, any::<bool>(), 0..2u8).prop_map(|(times, cuts, socket)| {
        let [intake_per_request, intake_per_line, request_latency, peer_latency] = times;
        let peer_reads = cuts.then_some(PeerReads { largest: 64, places: 4 });
        let node = NodeId(socket);
        RootPortParams {
            intake_per_request,
            intake_per_line,
            request_latency,
            peer_latency,
            peer_reads,
            node,
            ..reflecting()
        }
    })
}

type Roots = Vec<(RootPortParams, LinkParams, Node)>;

fn any_tree(links: BoxedStrategy<LinkParams>) -> impl Strategy<Value = Roots> {
    prop::collection::vec((any_root_port(), links.clone(), any_node(3, links)), 1..3)
}

/// Access control services of some ports. Ports above a redirecting one forward upstream, so all do.
fn any_services() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>().prop_map(|any| any & acs::USUAL | acs::UPSTREAM_FORWARDING), 1..6)
}

/// A posted write or a read from one device to another's BAR or, if both are the same, to memory.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    from: usize,
    to: usize,
    write: bool,
    bytes: u32,
}

fn transfers(most: usize) -> impl Strategy<Value = Vec<(usize, usize, bool, u32)>> {
    let bytes = prop::sample::select(vec![8u32, 64, 100, 256, 512, 1024]);
    prop::collection::vec((any::<usize>(), any::<usize>(), any::<bool>(), bytes), 1..most)
}

/// Starts all transfers at once.
fn start(tree: &Tree, what: &[(usize, usize, bool, u32)]) -> Vec<Transfer> {
    let count = tree.leaves.len();
    let all = what.iter().map(|&(from, to, write, bytes)| Transfer {
        from: from % count,
        to: to % count,
        write,
        bytes,
    });
    let all: Vec<_> = all.collect();
    for (number, transfer) in (0u64..).zip(&all) {
        let target = if transfer.from == transfer.to {
            MEMORY + transfer.from as u64 * 0x1_0000
        } else {
            tree.leaves[transfer.to].bar + transfer.from as u64 % 32 * 2048
        };
        if transfer.write {
            let mut data = vec![0; transfer.bytes as usize];
            data[..8].copy_from_slice(&(number + 1).to_le_bytes());
            tree.dma_write(transfer.from, number, target, &data);
        } else {
            tree.dma_read(transfer.from, number, target, transfer.bytes);
        }
    }
    all
}

/// Measures again while a latency exceeds the expected one: a SKP ordered set on a wire may delay a TLP.
fn unskipped(expected: Duration, measure: impl Fn() -> Duration) -> Duration {
    let once = |_| Some(measure()).filter(|&found| found <= expected);
    (0..6).find_map(once).unwrap_or_else(measure)
}

/// Starts a core's read of each device, of bytes that no transfer writes.
fn start_core_reads(tree: &Tree) -> Vec<Completion<Vec<u8>>> {
    tree.leaves.iter().map(|leaf| tree.core_read(leaf, 1024)).collect()
}

/// Checks that nothing is left behind of traffic of lost devices, and that the others' ends, with success among
/// themselves.
fn check_others(
    tree: &Tree,
    all: &[Transfer],
    reads: Vec<Completion<Vec<u8>>>,
    is_lost: &[bool],
) -> Result<(), TestCaseError> {
    // A root port does not wait for what was below it.
    let is_known = |leaf: &Leaf| tree.is_down(leaf.links[0]);
    let mut reads: Vec<_> = tree.leaves.iter().zip(reads).zip(is_lost).collect();
    reads.sort_by_key(|((leaf, _), _)| !is_known(leaf));
    let at = tree.simulation.now();
    for ((leaf, read), &is_lost) in reads {
        let data = tree.simulation.block_on(read).expect("a read ends").expect("with data, if all ones");
        prop_assert!(data == [0; 8] || is_lost && data == [0xff; 8], "{:x?}", data);
        let took = tree.simulation.now().since(at);
        prop_assert!(!is_known(leaf) || took < Duration::from_us(1), "a read of {} ends at once", leaf.bdf);
    }
    // Longer than all timeouts.
    tree.run_for(Duration::from_ms(1_030));
    tree.check_clean();
    for (n, leaf) in tree.leaves.iter().enumerate().filter(|&(n, _)| !is_lost[n]) {
        let notes = leaf.notes.borrow();
        let own: Vec<_> = (0u64..).zip(all).filter(|(_, transfer)| transfer.from == n).collect();
        prop_assert_eq!(notes.outcomes.len(), own.len(), "every request ends");
        for (number, transfer) in own.iter().filter(|(_, transfer)| !is_lost[transfer.to]) {
            let outcome = notes.outcomes.iter().find(|(of, ..)| of == number);
            prop_assert!(outcome.is_some_and(|&(_, good, _)| good), "{:?}", transfer);
        }
    }
    Ok(())
}

/// Checks that everything works once all devices are back and set up.
fn check_again(
    tree: &mut Tree,
    services: &[u16],
    what: &[(usize, usize, bool, u32)],
) -> Result<(), TestCaseError> {
    tree.run_for(Duration::from_us(10));
    tree.set_up();
    tree.control(services);
    for leaf in &tree.leaves {
        leaf.notes.borrow_mut().outcomes.clear();
    }
    let again = start(tree, what);
    tree.run_for(Duration::from_ms(1_030));
    tree.check_clean();
    let good = |leaf: &Leaf| leaf.notes.borrow().outcomes.iter().filter(|&&(_, good, _)| good).count();
    prop_assert_eq!(tree.leaves.iter().map(good).sum::<usize>(), again.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// The latency of a write between any two devices is the sum of the latencies on its way, that of a read the sum
    /// of both ways.
    #[test]
    fn latency_is_the_sum_of_the_parts(
        // Acks and credit updates come when the TLP is at its target.
        roots in any_tree(any_link(few_credits(), Just(40_000).boxed())),
        services in any_services(),
        bytes in prop::sample::select(vec![4u32, 32, 64, 128]),
    ) {
        let tree = Tree::new(&roots);
        tree.control(&services);
        for from in 0..tree.leaves.len() {
            for to in (0..tree.leaves.len()).filter(|&to| to != from) {
                let (a, b) = (&tree.leaves[from], &tree.leaves[to]);
                let sum = tree.sum_of_parts(&[tree.way(a, b, Sent::Write(bytes.into()))]);
                let write = unskipped(sum, || write_latency(&tree, from, to, bytes as usize));
                prop_assert_eq!(write, sum, "write, {} to {}", from, to);
                // Larger reads may take several TLPs.
                let bytes = bytes.min(64);
                let sum = tree.sum_of_parts(&tree.ways_of_read(a, b, bytes.into()));
                let read = unskipped(sum, || read_latency(&tree, from, b.bar, bytes));
                prop_assert_eq!(read, sum, "read, {} of {}", from, to);
            }
        }
        tree.check_clean();
    }

    /// The bandwidth between any two devices is that of the narrowest part of the way: of a wire, a root port or the
    /// interconnect, or of credits, replay buffers, tags or a root complex's places for their round trip.
    #[test]
    fn bandwidth_is_that_of_the_narrowest_part(
        roots in any_tree(any_link(any_credits(), (0..50u64).boxed())),
        services in any_services(),
        from in any::<usize>(),
        is_write: bool,
    ) {
        const COUNT: usize = 1000;
        let tree = Tree::new(&roots);
        tree.control(&services);
        let from = from % tree.leaves.len();
        for to in (0..tree.leaves.len()).filter(|&to| to != from) {
            let (a, b) = (&tree.leaves[from], &tree.leaves[to]);
            let ways = match is_write {
                true => vec![tree.way(a, b, Sent::Write(128))],
                false => tree.ways_of_read(a, b, 64).to_vec(),
            };
            a.notes.borrow_mut().outcomes.clear();
            b.notes.borrow_mut().writes.clear();
            for number in 0..COUNT as u64 {
                match is_write {
                    true => tree.dma_write(from, number, b.bar, &[1; 128]),
                    false => tree.dma_read(from, number, b.bar, 64),
                }
            }
            tree.run_for(Duration::from_ms(20));
            let done: Vec<Time> = match is_write {
                true => b.notes.borrow().writes.iter().map(|&(at, ..)| at).collect(),
                false => a.notes.borrow().outcomes.iter().map(|&(.., at)| at).collect(),
            };
            prop_assert_eq!(done.len(), COUNT);
            let measured = done[COUNT / 4..].iter();
            let (first, last) = (measured.clone().min().unwrap(), measured.clone().max().unwrap());
            let interval = last.since(*first).as_ps() as f64 / (measured.len() - 1) as f64;
            let (least, most) = tree.narrowest_part(&ways, a);
            // SKP ordered sets take 0.3 % of a wire. Of requests and completions on one wire, several may wait at once.
            let is_shared = ways.windows(2).any(|ways| ways[0].shares_wire(&ways[1]));
            let slack = if is_shared { 1.25 } else if is_write { 1.005 } else { 1.02 };
            // The measurement may begin and end within a burst.
            let is_right = (0.99 * least..slack * most).contains(&interval);
            prop_assert!(is_right, "{} to {}: {} ps, not {} to {}", from, to, interval, least, most);
        }
        tree.check_clean();
    }

    /// All requests complete with the right data, even over lossy links, and writes from one device to another stay in
    /// order.
    #[test]
    fn all_traffic_arrives_in_order(
        roots in any_tree(narrow()),
        what in transfers(60),
        services in any_services(),
        damaged in any::<u16>(),
    ) {
        let tree = Tree::new(&roots);
        tree.control(&services);
        tree.damage(damaged);
        let all = start(&tree, &what);
        tree.run_for(Duration::from_ms(40));
        tree.check_clean();
        for (n, leaf) in tree.leaves.iter().enumerate() {
            let notes = leaf.notes.borrow();
            let own = all.iter().filter(|transfer| transfer.from == n).count();
            prop_assert_eq!(notes.outcomes.len(), own);
            prop_assert!(notes.outcomes.iter().all(|&(_, good, _)| good), "{:?}", notes.outcomes);
            for from in (0..tree.leaves.len()).filter(|&from| from != n) {
                let of: Vec<u64> = notes.writes.iter()
                    .filter(|(_, at, ..)| *at == from as u64 % 32 * 2048)
                    .map(|&(.., number, _)| number).filter(|&number| number > 0).collect();
                let sent: Vec<u64> = (1..).zip(&all)
                    .filter(|(_, t)| t.write && t.from % 32 == from % 32 && t.to == n && t.from != n)
                    .map(|(number, _)| number).collect();
                prop_assert_eq!(of, sent);
            }
        }
    }

    /// On every hop, no TLP is sent without credits, lost, doubled, or passes one that it must not pass.
    #[test]
    fn credits_and_order_hold_on_every_hop(
        roots in any_tree(narrow()),
        what in transfers(60),
        services in any_services(),
    ) {
        let tree = Tree::new(&roots);
        tree.control(&services);
        tree.run_for(Duration::from_us(100));
        let analysers = Analysers::connect(&tree);
        start(&tree, &what);
        tree.run_for(Duration::from_ms(40));
        tree.check_clean();
        analysers.check_credits(&tree)?;
        analysers.check_switches(&tree)?;
    }

    /// Pulling a cable under load leaks no credit, tag or buffer, and traffic that does not cross it continues.
    #[test]
    fn a_pulled_cable_leaves_nothing_behind(
        roots in any_tree(narrow()),
        what in transfers(60),
        services in any_services(),
        cable in any::<usize>(),
        after_ns in 0..20_000u64,
    ) {
        let mut tree = Tree::new(&roots);
        tree.control(&services);
        let all = start(&tree, &what);
        let reads = start_core_reads(&tree);
        tree.run_for(Duration::from_ns(after_ns));
        let links = tree.simulation.with(|fabric, _| fabric.wires.len());
        let cable = LinkId((cable % links) as u16);
        tree.simulation.with(|fabric, scheduler| fabric.running(scheduler).pull(cable));
        let is_lost: Vec<_> = tree.leaves.iter().map(|leaf| leaf.links.contains(&cable)).collect();
        check_others(&tree, &all, reads, &is_lost)?;
        tree.simulation.with(|fabric, scheduler| fabric.running(scheduler).plug(cable));
        check_again(&mut tree, &services, &what)?;
    }

    /// So does a hot reset of everything below a bridge, which lasts until software ends it.
    #[test]
    fn a_hot_reset_leaves_nothing_behind(
        roots in any_tree(narrow()),
        what in transfers(60),
        services in any_services(),
        bridge in any::<prop::sample::Index>(),
        after_ns in 0..20_000u64,
    ) {
        let mut tree = Tree::new(&roots);
        tree.control(&services);
        let bridge = *bridge.get(&tree.bridges);
        let is_lost: Vec<_> = tree.leaves.iter().map(|leaf| tree.is_below(leaf, bridge)).collect();
        let all = start(&tree, &what);
        let reads = start_core_reads(&tree);
        tree.run_for(Duration::from_ns(after_ns));
        let reset = u32::from(header::BRIDGE_SECONDARY_RESET) << 16;
        tree.write(bridge, header::INTERRUPT_LINE, reset);
        check_others(&tree, &all, reads, &is_lost)?;
        for (leaf, _) in tree.leaves.iter().zip(&is_lost).filter(|(_, lost)| **lost) {
            prop_assert!(leaf.links.iter().any(|&link| tree.is_down(link)), "{} is held in reset", leaf.bdf);
            prop_assert_eq!(tree.read(leaf.bdf, 0), u32::MAX, "{} does not answer", leaf.bdf);
        }
        tree.write(bridge, header::INTERRUPT_LINE, 0);
        check_again(&mut tree, &services, &what)?;
    }
}
