//! Switches: ordering, latency as the sum of the parts, and no leaked resources.

#[path = "../common/mod.rs"]
mod common;
mod tree;

use hardware::link::{CreditLimits, Credits, LinkEnd, LinkId, LinkParams, Side};
use hardware::memory::{Cause, NodeId};
use hardware::root::{PeerReads, RootPortParams};
use hardware::switch::SwitchParams;
use proptest::prelude::*;
use tree::{BAR, Leaf, MEMORY, Node, Tree};
use units::{Bytes, Duration, Time};
use wire::pcie::config::{acs, header};
use wire::pcie::{FlowClass, Generation, Width};

fn link(generation: Generation, width: Width, credits: CreditLimits) -> LinkParams {
    let mut link = LinkParams::example(generation, width);
    link.receivers.iter_mut().for_each(|receiver| receiver.credits = credits);
    link
}

fn switch(latency_ns: u64, cut_through: bool) -> SwitchParams {
    SwitchParams { latency: Duration::from_ns(latency_ns), cut_through, ..SwitchParams::ideal() }
}

/// A link of Gen3 x8 with infinite credits.
fn plain() -> LinkParams {
    link(Generation::Gen3, Width::X8, CreditLimits::default())
}

fn below(nodes: Vec<Node>) -> Vec<(LinkParams, Node)> {
    nodes.into_iter().map(|node| (plain(), node)).collect()
}

fn reflecting() -> RootPortParams {
    // Shorter than the devices' timeout, so that a request to a missing peer does not block others until then.
    let completion_timeout = Duration::from_us(500);
    RootPortParams { reflects_peers: true, max_payload: 512, completion_timeout, ..RootPortParams::ideal() }
}

/// Three switches in a row, with one device below each of the first two and two below the third.
fn row(latency_ns: [u64; 3]) -> Tree {
    let third = Node::Switch(switch(latency_ns[2], true), below(vec![Node::Device, Node::Device]));
    let second = Node::Switch(switch(latency_ns[1], true), below(vec![Node::Device, third]));
    let first = Node::Switch(switch(latency_ns[0], true), below(vec![Node::Device, second]));
    Tree::new(&[(reflecting(), plain(), first)])
}

/// Transmitting link ends on the path between two devices by their nearest common switch, the number of switches that
/// they have in common, and the number of switches above `from`.
fn way(from: &Leaf, to: &Leaf) -> (Vec<LinkEnd>, usize, usize) {
    let common = from.switches.iter().zip(&to.switches).take_while(|(a, b)| a == b).count();
    let up = from.links[common..].iter().rev().map(|&link| LinkEnd { link, side: Side::Downstream });
    let down = to.links[common..].iter().map(|&link| LinkEnd { link, side: Side::Upstream });
    (up.chain(down).collect(), common, from.switches.len())
}

/// Latency of a write from one device to the BAR of another.
fn write_latency(tree: &Tree, from: usize, to: usize, bytes: usize) -> Duration {
    let at = tree.simulation.now();
    tree.dma_write(from, 0, tree.leaves[to].bar, &vec![0x77; bytes]);
    tree.run_for(Duration::from_us(100));
    let notes = tree.leaves[to].notes.borrow();
    let (arrived, ..) = notes.writes.last().unwrap_or_else(|| panic!("{from} to {to}: nothing arrived"));
    assert!(*arrived >= at, "{from} to {to}: nothing arrived");
    arrived.since(at)
}

fn read_latency(tree: &Tree, from: usize, address: u64, bytes: u32) -> Duration {
    let at = tree.simulation.now();
    tree.dma_read(from, 0, address, bytes);
    tree.run_for(Duration::from_us(100));
    let notes = tree.leaves[from].notes.borrow();
    let &(_, good, done) = notes.outcomes.last().unwrap();
    assert!(good && done >= at, "from {from}");
    done.since(at)
}

/// The minimum of several tries: some collide with an ordered set on a wire or a DRAM refresh.
fn least(measure: impl Fn() -> Duration) -> Duration {
    (0..6).map(|_| measure()).min().unwrap()
}

#[test]
fn each_hop_takes_once_of_a_write_and_twice_of_a_read() {
    const X: u64 = 37;
    for (n, more) in [[X, 0, 0], [0, X, 0], [0, 0, X]].into_iter().enumerate() {
        let base = [110, 132, 150];
        let (slow, fast) = (row([base[0] + more[0], base[1] + more[1], base[2] + more[2]]), row(base));
        for from in 0..4 {
            for to in (0..4).filter(|&to| to != from) {
                let (_, common, _) = way(&fast.leaves[from], &fast.leaves[to]);
                let deepest = |leaf: usize| fast.leaves[leaf].switches.len();
                // Switches on the path: from the nearest common one down to either device.
                let passes = (common - 1..deepest(from).max(deepest(to))).contains(&n);
                let moved = if passes { X } else { 0 };
                let write = |tree: &Tree| least(|| write_latency(tree, from, to, 64));
                assert_eq!(
                    write(&slow) - write(&fast),
                    Duration::from_ns(moved),
                    "{from} to {to}, switch {n}"
                );
                let read = |tree: &Tree| least(|| read_latency(tree, from, tree.leaves[to].bar, 64));
                assert_eq!(
                    read(&slow) - read(&fast),
                    Duration::from_ns(2 * moved),
                    "{from} of {to}, switch {n}"
                );
            }
            let passes = n < fast.leaves[from].switches.len();
            let read = |tree: &Tree| least(|| read_latency(tree, from, MEMORY, 64));
            let moved = if passes { 2 * X } else { 0 };
            assert_eq!(read(&slow) - read(&fast), Duration::from_ns(moved), "{from} of memory, switch {n}");
        }
    }
}

#[test]
fn redirected_requests_go_up_to_the_root_and_come_back() {
    let tree = row([100; 3]);
    let to_root = |leaf: &Leaf| leaf.switches.len() as u64;
    let passed = |tree: &Tree| -> u64 {
        tree.simulation.with(|fabric, _| {
            tree.switches.iter().map(|&switch| fabric.switch(switch).counters().forwarded).sum()
        })
    };
    for services in [0, acs::REQUEST_REDIRECT | acs::UPSTREAM_FORWARDING, acs::USUAL] {
        tree.control(services);
        for from in 0..4 {
            for to in (0..4).filter(|&to| to != from) {
                let before = passed(&tree);
                write_latency(&tree, from, to, 64);
                let (a, b) = (&tree.leaves[from], &tree.leaves[to]);
                let (_, common, _) = way(a, b);
                let straight = to_root(a) + to_root(b) - 2 * common as u64 + 1;
                let by_root = to_root(a) + to_root(b);
                // Switches further up that could route a redirected request directly forward it upstream as well.
                let expected = if services == 0 { straight } else { by_root };
                assert_eq!(passed(&tree) - before, expected, "{from} to {to}, services {services:#x}");
                read_latency(&tree, from, b.bar, 64);
            }
        }
    }
    tree.check_clean();
}

/// Two devices below root ports of the same or of different sockets.
fn two_roots(nodes: [u8; 2], peer_reads: Option<PeerReads>) -> Tree {
    let root =
        |node| (RootPortParams { peer_reads, node: NodeId(node), ..reflecting() }, plain(), Node::Device);
    Tree::new(&nodes.map(root))
}

#[test]
fn root_complexes_read_from_peers_in_pieces() {
    let sent = |tree: &Tree| {
        tree.simulation.with(|fabric, _| {
            let link = fabric.wires.link(tree.leaves[1].links[0]);
            link.counters(Side::Upstream).tlps[FlowClass::NonPosted as usize]
        })
    };
    // A read of 256 bytes takes four pieces; one of 100 bytes at 32 takes three, since pieces end at multiples of 64
    // bytes.
    for (at, bytes, pieces) in [(0, 256, 4), (32, 100, 3), (64, 64, 1)] {
        for (peer_reads, expected) in [(None, 1), (Some(PeerReads { largest: 64, places: 2 }), pieces)] {
            let tree = two_roots([0, 0], peer_reads);
            tree.dma_write(0, 0, tree.leaves[1].bar + at, &[0xa5; 256]);
            tree.run_for(Duration::from_us(10));
            let before = sent(&tree);
            read_latency(&tree, 0, tree.leaves[1].bar + at, bytes);
            assert_eq!(sent(&tree) - before, expected, "{bytes} bytes at {at}");
            assert_eq!(tree.leaves[0].notes.borrow().data.last(), Some(&0xa5a5_a5a5_a5a5_a5a5));
            tree.check_clean();
        }
    }
}

#[test]
fn peers_on_two_sockets_pay_for_the_way_between() {
    let [near, far] = [[0, 0], [0, 1]].map(|nodes| two_roots(nodes, None));
    let crossed = |tree: &Tree| {
        let host = tree.host;
        tree.simulation.with(|fabric, _| {
            let links = &fabric.host(host).memory.counters().links;
            Bytes::new(links.iter().map(|link| link.bytes.of(Cause::Dma).get()).sum())
        })
    };
    let write = |tree: &Tree| least(|| write_latency(tree, 0, 1, 64));
    let read = |tree: &Tree| least(|| read_latency(tree, 0, tree.leaves[1].bar, 64));
    let (more_write, more_read) = (write(&far) - write(&near), read(&far) - read(&near));
    assert!(more_write > Duration::from_ns(20), "{more_write}");
    assert!(more_read > more_write, "there and back: {more_read}");
    assert_eq!(crossed(&near), Bytes::ZERO);
    assert!(crossed(&far) >= Bytes::new(6 * 64));
}

#[test]
fn a_request_in_anothers_name_is_stopped() {
    let tree = row([100; 3]);
    tree.control(acs::SOURCE_VALIDATION);
    // The device still uses its old bus number: the port above was renumbered without it.
    let leaf = &tree.leaves[0];
    let port = tree.ports[0];
    let bus = leaf.bdf.bus();
    tree.write(port, header::BUS_NUMBERS, u32::from(port.bus()) | 0xee << 8 | 0xee << 16);
    tree.dma_write(0, 1, MEMORY, &[1; 64]);
    tree.run_for(Duration::from_us(10));
    let violations =
        tree.simulation.with(|fabric, _| fabric.switch(tree.switches[0]).counters().acs_violations);
    assert_eq!(violations, 1);
    tree.write(port, header::BUS_NUMBERS, u32::from(port.bus()) | u32::from(bus) << 8 | u32::from(bus) << 16);
    tree.dma_write(0, 2, MEMORY, &[1; 64]);
    tree.run_for(Duration::from_us(10));
    tree.check_clean();
}

/// A link that was down for a long time is not slower afterwards.
#[test]
fn a_link_that_comes_back_is_as_fast_as_before() {
    let mut tree = row([100; 3]);
    let before = least(|| read_latency(&tree, 3, MEMORY, 64));
    for cable in (0..tree.simulation.with(|fabric, _| fabric.wires.len() as u16)).map(LinkId) {
        tree.simulation.with(|fabric, scheduler| fabric.pull(scheduler, cable));
        tree.run_for(Duration::from_ms(1_000));
        tree.simulation.with(|fabric, scheduler| fabric.plug(scheduler, cable));
        tree.run_for(Duration::from_us(10));
        tree.set_up();
        assert_eq!(least(|| read_latency(&tree, 3, MEMORY, 64)), before, "{cable:?}");
    }
}

#[test]
fn what_leads_nowhere_is_answered() {
    let tree = row([100; 3]);
    // A missing device, a missing bus, and an unassigned address below the switch.
    assert_eq!(tree.read(hardware_bdf(2, 9), 0), u32::MAX);
    assert_eq!(tree.read(hardware_bdf(200, 0), 0), u32::MAX);
    let at = tree.simulation.now();
    tree.dma_read(3, 0, tree.leaves[0].bar + BAR + 4096, 64);
    tree.run_for(Duration::from_us(50));
    let notes = tree.leaves[3].notes.borrow();
    assert!(notes.outcomes.last().is_some_and(|&(_, good, done)| !good && done > at));
    drop(notes);
    tree.check_clean();
}

fn hardware_bdf(bus: u8, device: u8) -> wire::pcie::Bdf {
    wire::pcie::Bdf::new(bus, device, 0)
}

/// A tree with up to three levels of switches, links of any speed, and credits for a few TLPs each.
fn any_node(depth: u32, few: bool) -> BoxedStrategy<Node> {
    if depth == 0 {
        return Just(Node::Device).boxed();
    }
    let node =
        (0..200u64, any::<bool>(), prop::collection::vec((any_link(few), any_node(depth - 1, few)), 1..4));
    let node = node.prop_map(|(latency, through, below)| {
        let below = below
            .into_iter()
            .map(|((generation, width, credits), node)| (link(generation, width, credits), node));
        Node::Switch(switch(latency, through), below.collect())
    });
    prop_oneof![1 => Just(Node::Device), 3 => node].boxed()
}

fn any_link(few: bool) -> impl Strategy<Value = (Generation, Width, CreditLimits)> {
    let credits = (1..6u32, 32..80u32).prop_map(move |(header, data)| {
        let some = few.then_some(Credits { header, data });
        CreditLimits { posted: some, non_posted: some, completion: some }
    });
    let generation =
        prop::sample::select(vec![Generation::Gen1, Generation::Gen2, Generation::Gen3, Generation::Gen4]);
    (generation, prop::sample::select(vec![Width::X1, Width::X4, Width::X8, Width::X16]), credits)
}

type Roots = Vec<(RootPortParams, LinkParams, Node)>;

fn any_tree(few: bool) -> impl Strategy<Value = Roots> {
    let root = (any_link(few), any_node(3, few), any::<bool>(), 0..2u8);
    prop::collection::vec(root, 1..3).prop_map(|roots| {
        let roots = roots.into_iter().map(|((generation, width, credits), node, cuts, socket)| {
            let peer_reads = cuts.then_some(PeerReads { largest: 64, places: 4 });
            let root = RootPortParams { peer_reads, node: NodeId(socket), ..reflecting() };
            (root, link(generation, width, credits), node)
        });
        roots.collect()
    })
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// The latency of a write between any two devices is the sum of the latencies on its path.
    #[test]
    fn latency_is_the_sum_of_the_parts(roots in any_tree(true), bytes in prop::sample::select(vec![4usize, 64, 128])) {
        let tree = Tree::new(&roots);
        for from in 0..tree.leaves.len() {
            for to in 0..tree.leaves.len() {
                let (a, b) = (&tree.leaves[from], &tree.leaves[to]);
                if from == to || a.links[0] != b.links[0] {
                    continue;
                }
                let (ends, common, _) = way(a, b);
                let params = |switch| tree.simulation.with(|fabric, _| fabric.switch(switch).params().clone());
                let up = a.switches[common - 1..].iter().rev();
                let switches: Vec<_> = up.chain(&b.switches[common..]).map(|&switch| params(switch)).collect();
                prop_assert_eq!(switches.len() + 1, ends.len());
                // No SKP ordered set is due between the set-up TLPs and this one.
                let skips = tree.expected(&ends, &switches, 12 + bytes as u64);
                let found = write_latency(&tree, from, to, bytes);
                let apart = found.as_ps().abs_diff(skips.as_ps());
                prop_assert!(apart <= 64_000, "{} to {}: {} for {}", from, to, found, skips);
            }
        }
        tree.check_clean();
    }

    /// The bandwidth of writes between any two devices is that of the slowest link on their path.
    #[test]
    fn bandwidth_is_that_of_the_slowest_part(roots in any_tree(false)) {
        const COUNT: usize = 400;
        let tree = Tree::new(&roots);
        for to in 1..tree.leaves.len() {
            let (a, b) = (&tree.leaves[0], &tree.leaves[to]);
            if a.links[0] != b.links[0] {
                continue;
            }
            let (ends, ..) = way(a, b);
            let on_wire = tree.simulation.with(|fabric, _| {
                let time = |end: &LinkEnd| {
                    let link = fabric.wires.link(end.link);
                    link.wire_time(end.side, 12 + 128 + link.framing_bytes())
                };
                ends.iter().map(time).max().unwrap()
            });
            b.notes.borrow_mut().writes.clear();
            for number in 0..COUNT as u64 {
                tree.dma_write(0, number, b.bar, &[1; 128]);
            }
            tree.run_for(Duration::from_ms(2));
            let notes = b.notes.borrow();
            prop_assert_eq!(notes.writes.len(), COUNT);
            let took = notes.writes[COUNT - 1].0.since(notes.writes[COUNT / 4].0);
            let expected = on_wire.as_ps() * (COUNT - 1 - COUNT / 4) as u64;
            let share = took.as_ps() as f64 / expected as f64;
            prop_assert!((0.99..1.02).contains(&share), "to {}: {} of the time", to, share);
        }
        tree.check_clean();
    }

    /// All requests complete with the right data, even over lossy links, and writes from one device to another stay in
    /// order.
    #[test]
    fn all_traffic_arrives_in_order(
        roots in any_tree(true),
        what in transfers(60),
        services in prop::sample::select(vec![0, acs::REQUEST_REDIRECT | acs::UPSTREAM_FORWARDING, acs::USUAL]),
        damaged in any::<u16>(),
    ) {
        let tree = Tree::new(&roots);
        tree.control(services);
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

    /// Pulling a cable under load leaks no credit, tag or buffer, and traffic that does not cross it continues.
    #[test]
    fn a_pulled_cable_leaves_nothing_behind(roots in any_tree(true), what in transfers(60), cable in any::<usize>(), after_ns in 0..20_000u64) {
        let mut tree = Tree::new(&roots);
        let all = start(&tree, &what);
        tree.run_for(Duration::from_ns(after_ns));
        let links = tree.simulation.with(|fabric, _| fabric.wires.len());
        let cable = LinkId((cable % links) as u16);
        tree.simulation.with(|fabric, scheduler| fabric.pull(scheduler, cable));
        tree.run_for(Duration::from_ms(1_030));
        tree.check_clean();
        let is_cut = |leaf: usize| tree.leaves[leaf].links.contains(&cable);
        for (n, leaf) in tree.leaves.iter().enumerate().filter(|&(n, _)| !is_cut(n)) {
            let notes = leaf.notes.borrow();
            let own: Vec<_> = (0u64..).zip(&all).filter(|(_, transfer)| transfer.from == n).collect();
            prop_assert_eq!(notes.outcomes.len(), own.len(), "every request ends");
            for (number, transfer) in own.iter().filter(|(_, transfer)| !is_cut(transfer.to)) {
                let outcome = notes.outcomes.iter().find(|(of, ..)| of == number);
                prop_assert!(outcome.is_some_and(|&(_, good, _)| good), "{:?}", transfer);
            }
        }
        // After it is plugged in and set up again, everything works.
        tree.simulation.with(|fabric, scheduler| fabric.plug(scheduler, cable));
        tree.run_for(Duration::from_us(10));
        tree.set_up();
        let from = tree.simulation.now();
        for leaf in &tree.leaves {
            leaf.notes.borrow_mut().outcomes.clear();
        }
        let again = start(&tree, &what);
        tree.run_for(Duration::from_ms(1_030));
        tree.check_clean();
        let ended: usize = tree.leaves.iter().map(|leaf| leaf.notes.borrow().outcomes.iter().filter(|&&(_, good, at)| good && at > Time::ZERO).count()).sum();
        prop_assert_eq!(ended, again.len(), "after {}", from);
    }
}
