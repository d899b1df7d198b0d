//! Invariants of a link: credits, ordering, exactly-once delivery.

use engine::{Rng, Scheduler, Seed};
use proptest::prelude::*;
use units::{Duration, Time};
use wire::pcie::ordering::Passing;
use wire::pcie::{Bdf, FlowClass, Generation, MemoryRequest, Tlp, TlpKind, Width, may_pass};
use wire::pcie::{CompletionHeader, CompletionStatus, ConfigRequest, ConfigType};

use super::queues::Queues;
use super::*;
use crate::packet::Summary;
use crate::root::{HostId, RootEvent};

fn params(credits: CreditLimits) -> LinkParams {
    let receiver = ReceiverParams {
        credits,
        ack_delay: Duration::from_ns(50),
        credit_update_delay: Duration::from_ns(30),
        replay_tlps: 16,
        cut_through: false,
    };
    LinkParams {
        generation: Generation::Gen3,
        width: Width::X8,
        latency: Duration::from_ns(60),
        beats: [1, 1],
        receivers: [receiver.clone(), receiver],
        retrain_time: Duration::from_us(1),
    }
}

fn small_credits() -> CreditLimits {
    CreditLimits {
        posted: Some(Credits { header: 4, data: 32 }),
        non_posted: Some(Credits { header: 3, data: 4 }),
        completion: Some(Credits { header: 4, data: 32 }),
    }
}

/// Kind (write, read, completion, configuration write), doublewords, sender, relaxed ordering, ID-based ordering.
type Shape = (u8, u16, u8, bool, bool);

fn tlp(number: u32, (kind, dwords, sender, relaxed, id_based): Shape) -> Tlp {
    let sender = Bdf::new(1, sender, 0);
    let address = u64::from(number) * 4096;
    let memory = |tag| MemoryRequest::for_bytes(sender, tag, address, u32::from(dwords) * 4);
    let mut tlp = Tlp::new(match kind {
        0 => TlpKind::MemoryWrite(memory(0)),
        1 => TlpKind::MemoryRead(memory(0)),
        2 => TlpKind::CompletionData(CompletionHeader {
            completer: sender,
            status: CompletionStatus::Successful,
            byte_count: dwords * 4,
            lower_address: 0,
            requester: Bdf::default(),
            // Few tags, so that some completions belong to the same request.
            tag: dwords % 4,
            length_dw: dwords,
        }),
        _ => TlpKind::ConfigWrite(ConfigRequest {
            requester: sender,
            tag: number as u16 & 0xff,
            target: Bdf::default(),
            register: 0,
            first_be: 0xf,
            config_type: ConfigType::Type0,
        }),
    });
    // Configuration requests have no attributes.
    tlp.common.relaxed_ordering = relaxed && kind < 3;
    tlp.common.id_based_ordering = id_based && kind < 3;
    tlp
}

fn plain(kind: u8, number: u32, dwords: u16) -> Tlp {
    tlp(number, (kind, dwords, 0, false, false))
}

/// A link with a receiver at each end that frees its buffers after `hold`.
struct Bench {
    link: Link,
    packets: PacketPool,
    scheduler: Scheduler<Event>,
    released: Vec<ReceiveSpace>,
    /// By receiving side: TLPs in sending order and their numbers.
    sent: [Vec<(Tlp, u32)>; 2],
    arrived: [Vec<u32>; 2],
    arrivals: Vec<Time>,
    hold: Duration,
    /// TLPs handed to the link ahead of their departure: departure time, side, TLP.
    given: Vec<(Time, Side, Tlp)>,
    /// Hand TLPs to the link ahead of their departure.
    plans: bool,
    /// When error injection stops.
    errors_end: Option<Time>,
    events: u64,
}

impl Bench {
    fn new(credits: CreditLimits, hold: Duration) -> Self {
        Self {
            link: Link::new(LinkId(0), params(credits)),
            packets: PacketPool::new(),
            scheduler: Scheduler::new(),
            released: Vec::new(),
            sent: Default::default(),
            arrived: Default::default(),
            arrivals: Vec::new(),
            hold,
            given: Vec::new(),
            plans: false,
            errors_end: None,
            events: 0,
        }
    }

    fn split(&mut self) -> (&mut Link, LinkContext<'_>) {
        let Self { link, packets, scheduler, released, .. } = self;
        (link, LinkContext { packets, scheduler, released })
    }

    fn send(&mut self, side: Side, tlp: Tlp) {
        let sent = &mut self.sent[side.opposite() as usize];
        let number = sent.len() as u32;
        sent.push((tlp, number));
        let packet = self.packets.encode(&tlp, &[]);
        // The payload carries the number if there is one; headers differ by address.
        let (link, mut cx) = self.split();
        link.send(&mut cx, side, packet);
        assert!(self.released.is_empty());
    }

    fn run(&mut self) {
        while let Some(event) = self.scheduler.pop() {
            self.events += 1;
            assert!(self.events < 1_000_000, "the link never comes to rest");
            if self.errors_end.take_if(|end| *end <= self.scheduler.now()).is_some() {
                self.link.inject_errors(None);
            }
            if let Event::Root(_, RootEvent::Access { slot }) = event {
                self.give(slot as usize);
                continue;
            }
            let hold = self.hold;
            let (link, mut cx) = self.split();
            match event {
                Event::Deliver { end, packet } => {
                    if !link.receive(&mut cx, end.side, packet) {
                        continue;
                    }
                    let &tlp = cx.packets.header(packet).expect("what passes the LCRC is a TLP");
                    let held = cx.packets.hop(packet).held;
                    let now = cx.scheduler.now();
                    cx.packets.free(packet);
                    if let Some(held) = held
                        && link.give_back(&held, now + hold)
                    {
                        link.arrange_wake(&mut cx, held.end.side);
                    }
                    let sent = &self.sent[end.side as usize];
                    let arrived = &mut self.arrived[end.side as usize];
                    let number = sent
                        .iter()
                        .position(|(other, number)| *other == tlp && !arrived.contains(number))
                        .expect("only what was sent arrives, once");
                    arrived.push(number as u32);
                    self.arrivals.push(now);
                }
                // A TLP due to leave now.
                Event::Root(_, RootEvent::Send { port, packet }) => {
                    let side = [Side::Upstream, Side::Downstream][usize::from(port)];
                    link.send(&mut cx, side, packet);
                }
                Event::LinkWake(end) => link.on_wake(&mut cx, end.side),
                Event::Replay(end) => link.replay(&mut cx, end.side),
                Event::ReplayTimer(end) => link.on_replay_timer(&mut cx, end.side),
                Event::LinkError(..) => {}
                _ => unreachable!("nothing else is on a bare link"),
            }
            self.check_credits();
        }
    }

    /// Hands `tlp` to the link at `now`, to leave `side` at `at`.
    fn give_at(&mut self, now: Time, at: Time, side: Side, tlp: Tlp) {
        let slot = self.given.len() as u32;
        self.given.push((at, side, tlp));
        self.scheduler.at(now, Event::Root(HostId(0), RootEvent::Access { slot }));
    }

    fn give(&mut self, slot: usize) {
        let (at, side, tlp) = self.given[slot];
        let sent = &mut self.sent[side.opposite() as usize];
        sent.push((tlp, sent.len() as u32));
        let packet = self.packets.encode(&tlp, &[]);
        let plans = self.plans;
        let (link, mut cx) = self.split();
        if !(plans && at > cx.scheduler.now() && link.plan(&mut cx, side, packet, at)) {
            let port = side as u8;
            self.scheduler.at(at, Event::Root(HostId(0), RootEvent::Send { port, packet }));
        }
        self.check_credits();
    }

    fn check_credits(&self) {
        for side in [Side::Upstream, Side::Downstream] {
            for class in FlowClass::ALL {
                let limit = self.link.params().receivers[side.opposite() as usize].credits.of(class);
                let credits = self.link.credits_in_all_places(&self.packets, side, class);
                assert_eq!(credits, limit, "{side:?} {class:?}");
            }
        }
    }

    /// Checks that no TLP passed one that it must not pass.
    fn check_order(&self) {
        for (sent, arrived) in self.sent.iter().zip(&self.arrived) {
            let mut place = vec![0; sent.len()];
            for (index, &number) in arrived.iter().enumerate() {
                place[number as usize] = index;
            }
            for later in 0..sent.len() {
                for earlier in 0..later {
                    let passed = place[later] < place[earlier];
                    let allowed = may_pass(&sent[later].0, &sent[earlier].0) != Passing::MustNot;
                    assert!(!passed || allowed, "{} passed {}", sent[later].0, sent[earlier].0);
                }
            }
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    (0u8..4, 1u16..=64, 0u8..2, any::<bool>(), any::<bool>())
}

/// Any number of credits, or infinite, but enough for the largest TLP.
fn limits() -> impl Strategy<Value = CreditLimits> {
    let class = || {
        prop::option::weighted(0.8, (1u32..8, 16u32..64).prop_map(|(header, data)| Credits { header, data }))
    };
    (class(), class(), class()).prop_map(|(posted, non_posted, completion)| CreditLimits {
        posted,
        non_posted,
        completion,
    })
}

fn traffic() -> impl Strategy<Value = Vec<(bool, Shape)>> {
    prop::collection::vec((any::<bool>(), shape()), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Planning a send ahead saves events and changes nothing else.
    #[test]
    fn what_is_planned_arrives_as_if_it_were_sent_at_its_time(
        traffic in traffic(), limits in limits(),
        gaps in prop::collection::vec((0u64..60_000, 1u64..400_000), 80), hold_ns in 0u64..500,
    ) {
        let [told, untold] = [true, false].map(|plans| {
            let mut bench = Bench { plans, ..Bench::new(limits, Duration::from_ns(hold_ns)) };
            let (mut now, mut leaves) = (Time::from_ps(1), [Time::ZERO; 2]);
            for (number, (&(up, shape), &(gap, delay))) in traffic.iter().zip(&gaps).enumerate() {
                let side = if up { Side::Downstream } else { Side::Upstream };
                now += Duration::from_ps(gap);
                // Non-posted requests leave at once; writes and completions stay in order.
                let last = &mut leaves[side as usize];
                let is_request = matches!(shape.0, 1 | 3);
                let at = if is_request { now } else { (now + Duration::from_ps(delay)).max(*last) };
                *last = if is_request { *last } else { at };
                bench.give_at(now, at, side, tlp(number as u32 + 1, shape));
            }
            bench.run();
            bench
        });
        prop_assert_eq!(&told.arrived, &untold.arrived);
        prop_assert_eq!(&told.arrivals, &untold.arrivals);
        prop_assert_eq!(told.link.counters(Side::Upstream), untold.link.counters(Side::Upstream));
        prop_assert_eq!(told.packets.in_flight(), 0);
    }

    #[test]
    fn everything_arrives_once_in_a_legal_order(traffic in traffic(), hold_ns in 0u64..2000) {
        let mut bench = Bench::new(small_credits(), Duration::from_ns(hold_ns));
        for (number, &(up, shape)) in traffic.iter().enumerate() {
            let side = if up { Side::Downstream } else { Side::Upstream };
            bench.send(side, tlp(number as u32 + 1, shape));
        }
        bench.run();
        for side in 0..2 {
            prop_assert_eq!(bench.arrived[side].len(), bench.sent[side].len());
        }
        bench.check_order();
        prop_assert_eq!(bench.packets.in_flight(), 0);
    }

    /// The whole of table 2-40: a TLP behind others that lack credits is sent if and only if it may pass them.
    #[test]
    fn the_table_decides_who_goes(
        earlier in prop::collection::vec(shape(), 1..6), waiting in shape(), has_headers in any::<bool>(),
    ) {
        let stuck = |class| earlier.iter().any(|&shape| tlp(0, shape).class() == class);
        // The earlier TLPs lack data credits or header credits.
        let limit = |class| stuck(class).then_some(Credits { header: 64 * u32::from(has_headers), data: 0 });
        let limits = CreditLimits {
            posted: limit(FlowClass::Posted),
            non_posted: limit(FlowClass::NonPosted),
            completion: limit(FlowClass::Completion),
        };
        let mut queues = Queues::new(&limits);
        let mut packets = PacketPool::new();
        let mut enqueue = |tlp: &Tlp, credits| {
            let packet = packets.encode(tlp, &[]);
            queues.enqueue(packet, Summary { class: tlp.class(), credits }, packets.ordering(packet));
            packet
        };
        let earlier: Vec<Tlp> = (1..).zip(&earlier).map(|(number, &shape)| tlp(number, shape)).collect();
        for tlp in &earlier {
            enqueue(tlp, Credits { header: 1, data: 1 });
        }
        let waiting = tlp(99, waiting);
        let packet = enqueue(&waiting, Credits { header: 1, data: 0 });
        let has_credits = has_headers || !stuck(waiting.class());
        let expected = has_credits && earlier.iter().all(|tlp| may_pass(&waiting, tlp) != Passing::MustNot);
        prop_assert_eq!(queues.take_next(Time::ZERO), expected.then_some(packet));
    }

    #[test]
    fn bit_errors_and_lost_dllps_cost_time_only(traffic in traffic(), seed in any::<u64>()) {
        let mut bench = Bench::new(small_credits(), Duration::from_ns(10));
        let rng: Rng = Seed::new(seed).component("link");
        bench.link.inject_errors(Some(ErrorInjector::new(1e-4, 0.1, Duration::from_us(3), rng)));
        for (number, &(up, shape)) in traffic.iter().enumerate() {
            let side = if up { Side::Downstream } else { Side::Upstream };
            bench.send(side, tlp(number as u32 + 1, shape));
        }
        bench.run();
        for side in 0..2 {
            prop_assert_eq!(bench.arrived[side].len(), bench.sent[side].len());
        }
        bench.check_order();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// After errors stop, damaged TLPs and those sent after them are replayed as before.
    #[test]
    fn errors_that_end_leave_nothing_behind(traffic in traffic(), seed in any::<u64>(), end_ns in 1u64..20_000, gap in 1u64..400_000) {
        let mut bench = Bench::new(small_credits(), Duration::from_ns(10));
        let rng: Rng = Seed::new(seed).component("link");
        bench.link.inject_errors(Some(ErrorInjector::new(1e-3, 0.1, Duration::from_us(3), rng)));
        bench.errors_end = Some(Time::from_ps(end_ns * 1000));
        let mut now = Time::from_ps(1);
        for (number, &(up, shape)) in traffic.iter().enumerate() {
            let side = if up { Side::Downstream } else { Side::Upstream };
            now += Duration::from_ps(gap);
            bench.give_at(now, now, side, tlp(number as u32 + 1, shape));
        }
        bench.run();
        for side in 0..2 {
            prop_assert_eq!(bench.arrived[side].len(), bench.sent[side].len());
        }
        bench.check_order();
    }
}

#[test]
fn the_oldest_is_not_passed_for_ever() {
    let posted = Some(Credits { header: 100, data: 30 });
    let mut queues = Queues::new(&CreditLimits { posted, ..CreditLimits::default() });
    let mut packets = PacketPool::new();
    let mut enqueue = |number, dwords| {
        let packet = packets.encode(&tlp(number, (0, dwords, 0, true, false)), &[]);
        queues.enqueue(packet, packets.summary(packet), packets.ordering(packet));
    };
    enqueue(0, 128);
    (1..50).for_each(|number| enqueue(number, 1));
    let passed = (0..).take_while(|_| queues.take_next(Time::ZERO).is_some()).count();
    assert_eq!(passed, 16, "then what comes free is kept for the one that is too large");
}

#[test]
fn posted_requests_pass_reads_that_lack_credits() {
    let mut bench = Bench::new(small_credits(), Duration::from_us(5));
    for number in 0..8 {
        bench.send(Side::Downstream, plain(1, number, 16));
    }
    bench.send(Side::Downstream, plain(0, 100, 16));
    bench.run();
    let arrived = &bench.arrived[Side::Upstream as usize];
    let write = arrived.iter().position(|&n| n == 8).unwrap();
    assert_eq!(write, 3, "the write follows the three reads that had credits: {arrived:?}");
}

#[test]
fn a_stream_of_writes_fills_the_wire() {
    let mut bench = Bench::new(CreditLimits::default(), Duration::ZERO);
    let mut params = params(CreditLimits::default());
    // Enough replay buffer that the wire is the bottleneck.
    params.receivers.iter_mut().for_each(|receiver| receiver.replay_tlps = 1000);
    bench.link = Link::new(LinkId(0), params);
    let (count, dwords) = (500, 64);
    for number in 0..count {
        bench.send(Side::Downstream, plain(0, number + 2_000_000, dwords));
    }
    let wire = bench.link.wire_free(Side::Downstream);
    let bytes = u64::from(count) * (24 + u64::from(dwords) * 4);
    let rate = bytes as f64 * 8.0 / wire.since(Time::ZERO).as_ns_f64();
    // 8 GT/s x 8 x 128/130 = 63.02 Gbit/s, less SKP ordered sets.
    assert!((62.6..63.02).contains(&rate), "{rate} Gbit/s");
    // Half of it has been sent by half of the time.
    let half = Duration::from_ps(wire.since(Time::ZERO).as_ps() / 2);
    let busy = bench.link.counters_until(Side::Downstream, Time::ZERO + half).busy;
    assert!(busy <= half && busy.as_ns_f64() > 0.98 * half.as_ns_f64(), "{busy} of {half}");
}

#[test]
fn a_link_that_goes_down_loses_what_it_carries() {
    let mut bench = Bench::new(small_credits(), Duration::ZERO);
    for number in 0..20 {
        bench.send(Side::Downstream, plain(0, number, 16));
    }
    let (link, mut cx) = bench.split();
    link.take_down(&mut cx);
    bench.run();
    assert!(bench.arrived[Side::Upstream as usize].is_empty());
    assert_eq!(bench.packets.in_flight(), 0);
    let (link, mut cx) = bench.split();
    link.bring_up(&mut cx);
    bench.sent = Default::default();
    bench.send(Side::Downstream, plain(0, 1, 16));
    bench.run();
    assert_eq!(bench.arrived[Side::Upstream as usize], vec![0]);
}
