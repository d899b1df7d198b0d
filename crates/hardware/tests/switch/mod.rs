//! Switches: ordering, latency as the sum of the parts, and no leaked resources.

mod hops;
mod random;
mod tree;
mod ways;

use hardware::link::{CreditLimits, LinkId, LinkParams, Side};
use hardware::memory::{Cause, NodeId};
use hardware::root::{PeerReads, RootPortParams};
use hardware::switch::SwitchParams;
use tree::{BAR, MEMORY, Node, Tree};
use units::{Bytes, Duration};
use ways::Sent;
use wire::pcie::config::{acs, caps, header, pcie_cap};
use wire::pcie::{Bdf, FlowClass, Generation, Width};

/// A device with few tags.
const DEVICE: Node = Node::Device { tags: 8 };

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
    let third = Node::Switch(switch(latency_ns[2], true), below(vec![DEVICE, DEVICE]));
    let second = Node::Switch(switch(latency_ns[1], true), below(vec![DEVICE, third]));
    let first = Node::Switch(switch(latency_ns[0], true), below(vec![DEVICE, second]));
    Tree::new(&[(reflecting(), plain(), first)])
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
                let way = fast.way(&fast.leaves[from], &fast.leaves[to], Sent::Write(64));
                let moved = if way.passes(fast.switches[n]) { X } else { 0 };
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
    let passed = |tree: &Tree| -> usize {
        tree.simulation.with(|fabric, _| {
            tree.switches.iter().map(|&switch| fabric.switch(switch).counters().forwarded as usize).sum()
        })
    };
    for services in [0, acs::REQUEST_REDIRECT | acs::UPSTREAM_FORWARDING, acs::USUAL] {
        tree.control(&[services]);
        for from in 0..4 {
            for to in (0..4).filter(|&to| to != from) {
                let before = passed(&tree);
                write_latency(&tree, from, to, 64);
                let (a, b) = (&tree.leaves[from], &tree.leaves[to]);
                let (up, down) = (a.switches.len(), b.switches.len());
                // Switches further up that could route a redirected request directly forward it upstream as well.
                let expected = if services == 0 { up.abs_diff(down) + 1 } else { up + down };
                assert_eq!(passed(&tree) - before, expected, "{from} to {to}, services {services:#x}");
                let write = least(|| write_latency(&tree, from, to, 64));
                let way = tree.way(a, b, Sent::Write(64));
                assert_eq!(write, tree.sum_of_parts(&[way]), "{from} to {to}, services {services:#x}");
                let read = least(|| read_latency(&tree, from, b.bar, 64));
                let ways = tree.ways_of_read(a, b, 64);
                assert_eq!(read, tree.sum_of_parts(&ways), "{from} of {to}, services {services:#x}");
            }
        }
    }
    tree.check_clean();
}

/// Two devices below root ports of the same or of different sockets.
fn two_roots(nodes: [u8; 2], peer_reads: Option<PeerReads>) -> Tree {
    let root = |node| (RootPortParams { peer_reads, node: NodeId(node), ..reflecting() }, plain(), DEVICE);
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

/// The device and the root complex do not wait for a timeout.
#[test]
fn reads_of_a_peer_that_is_pulled_end_at_once() {
    let tree = two_roots([0, 0], Some(PeerReads { largest: 64, places: 2 }));
    tree.dma_read(0, 7, tree.leaves[1].bar, 256);
    tree.run_for(Duration::from_ns(100));
    tree.simulation.with(|fabric, scheduler| {
        assert!(fabric.host(tree.host).requests_under_way() > 0, "pieces are under way");
        fabric.running(scheduler).pull(tree.leaves[1].links[0]);
    });
    tree.run_for(Duration::from_us(1));
    let outcomes: Vec<_> = tree.leaves[0].notes.borrow().outcomes.iter().map(|o| (o.0, o.1)).collect();
    assert_eq!(outcomes, [(7, false)]);
    tree.check_clean();
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
    tree.control(&[acs::SOURCE_VALIDATION]);
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
        tree.simulation.with(|fabric, scheduler| fabric.running(scheduler).pull(cable));
        tree.run_for(Duration::from_ms(1_000));
        tree.simulation.with(|fabric, scheduler| fabric.running(scheduler).plug(cable));
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

/// A card that is plugged in while its port holds its bus in reset, or has its link disabled, gets a link when the port
/// lets go, not before.
#[test]
fn the_link_of_a_port_in_reset_stays_down_whatever_is_plugged_in() {
    let tree = Tree::new(&[
        (reflecting(), plain(), DEVICE),
        (reflecting(), plain(), Node::Switch(switch(100, true), below(vec![DEVICE]))),
    ]);
    let pull = |link| tree.simulation.with(|fabric, scheduler| fabric.running(scheduler).pull(link));
    let plug = |link| tree.simulation.with(|fabric, scheduler| fabric.running(scheduler).plug(link));
    for (leaf, port) in tree.leaves.iter().zip([Bdf::new(0, 1, 0), tree.ports[0]]) {
        let link = *leaf.links.last().unwrap();
        let read = |at: u16| tree.read(port, at);
        let pcie = caps::find(&read, caps::id::PCI_EXPRESS).expect("a port has it");
        let reset = (header::INTERRUPT_LINE, u32::from(header::BRIDGE_SECONDARY_RESET) << 16);
        let disable = (pcie + pcie_cap::LINK_CONTROL, u32::from(pcie_cap::LINK_CONTROL_DISABLE));
        let set = |(register, bit): (u16, u32), on| {
            let others = tree.read(port, register) & !bit;
            tree.write(port, register, if on { others | bit } else { others });
            tree.run_for(Duration::from_us(10));
        };
        for (held, other) in [(reset, disable), (disable, reset)] {
            // It was there before.
            set(held, true);
            assert!(tree.is_down(link), "{port}");
            pull(link);
            plug(link);
            assert!(tree.is_down(link), "{port}: exchanged in reset");
            set(held, false);
            assert!(!tree.is_down(link), "{port}: the reset is over");
            // It comes into an empty slot.
            pull(link);
            set(held, true);
            plug(link);
            assert!(tree.is_down(link), "{port}: plugged in in reset");
            set(other, true);
            set(held, false);
            assert!(tree.is_down(link), "{port}: held down by the other bit");
            set(other, false);
            assert!(!tree.is_down(link), "{port}: nothing holds it");
            // It goes.
            set(held, true);
            pull(link);
            set(held, false);
            assert!(tree.is_down(link), "{port}: an empty slot");
            plug(link);
            assert!(!tree.is_down(link), "{port}: plugged in");
        }
    }
}

/// Devices 0 and 1 write to device 2, whose link has to carry both, and then device 0 writes to device 3, whose link is idle. In a
/// queue of its egress, the last write passes those before it; in an input queue, it waits until the last of them has left.
#[test]
fn a_write_to_a_busy_port_blocks_those_behind_it_in_an_input_queue() {
    const WRITES: usize = 32;
    let arrives = |input_queued: bool| {
        let params = SwitchParams { input_queued, ..switch(100, true) };
        let tree = Tree::new(&[(reflecting(), plain(), Node::Switch(params, below(vec![DEVICE; 4])))]);
        let began = tree.simulation.now();
        for _ in 0..WRITES {
            for from in [0, 1] {
                tree.dma_write(from, 0, tree.leaves[2].bar, &[0x77; 256]);
            }
        }
        tree.dma_write(0, 0, tree.leaves[3].bar, &[0x77; 256]);
        tree.run_for(Duration::from_us(100));
        let last =
            |leaf: usize| tree.leaves[leaf].notes.borrow().writes.last().map(|note| note.0.since(began));
        tree.check_clean();
        (last(2).unwrap().as_ns_f64(), last(3).unwrap().as_ns_f64())
    };
    let (all, passing) = arrives(false);
    let (same, blocked) = arrives(true);
    assert!((same / all - 1.0).abs() < 0.02, "{all} {same}: the busy link carries as much");
    // Its own link took half of that time to send those before it.
    assert!((0.45..0.65).contains(&(passing / all)), "{passing} of {all}");
    assert!((0.9..1.05).contains(&(blocked / all)), "{blocked} of {all}");
}
