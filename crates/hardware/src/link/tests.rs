//! What must always hold on a link: credits, order, exactly-once delivery.

use engine::{Rng, Scheduler, Seed};
use proptest::prelude::*;
use units::{Duration, Time};
use wire::pcie::ordering::Passing;
use wire::pcie::{Bdf, FlowClass, Generation, MemoryRequest, Tlp, TlpKind, Width, may_pass};
use wire::pcie::{CompletionHeader, CompletionStatus};

use super::*;
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

fn tlp(kind: u8, number: u32, dwords: u16, relaxed: bool) -> Tlp {
    let requester = Bdf::new(1, 0, 0);
    let address = u64::from(number) * 4096;
    let mut tlp = Tlp::new(match kind {
        0 => TlpKind::MemoryWrite(MemoryRequest::for_bytes(requester, 0, address, u32::from(dwords) * 4)),
        1 => TlpKind::MemoryRead(MemoryRequest::for_bytes(requester, 0, address, u32::from(dwords) * 4)),
        _ => TlpKind::CompletionData(CompletionHeader {
            completer: Bdf::default(),
            status: CompletionStatus::Successful,
            byte_count: dwords * 4,
            lower_address: 0,
            requester,
            tag: 0,
            length_dw: dwords,
        }),
    });
    tlp.common.relaxed_ordering = relaxed;
    tlp
}

/// A link with somebody at both ends who takes what arrives after a while.
struct Bench {
    link: Link,
    packets: PacketPool,
    scheduler: Scheduler<Event>,
    /// By receiving side: number given to each TLP in the order of sending, and what was sent.
    sent: [Vec<(Tlp, u32)>; 2],
    arrived: [Vec<u32>; 2],
    arrivals: Vec<Time>,
    hold: Duration,
    /// What is given to the link at some time, to leave at another: the time, the side, the TLP.
    given: Vec<(Time, Side, Tlp)>,
    /// Whether the link is told at once what is to leave later.
    plans: bool,
    events: u64,
}

impl Bench {
    fn new(credits: CreditLimits, hold: Duration) -> Self {
        Self {
            link: Link::new(LinkId(0), params(credits)),
            packets: PacketPool::new(),
            scheduler: Scheduler::new(),
            sent: Default::default(),
            arrived: Default::default(),
            arrivals: Vec::new(),
            hold,
            given: Vec::new(),
            plans: false,
            events: 0,
        }
    }

    fn send(&mut self, side: Side, tlp: Tlp) {
        let sent = &mut self.sent[side.opposite() as usize];
        let number = sent.len() as u32;
        sent.push((tlp, number));
        let packet = self.packets.encode(&tlp, &[]);
        // The number travels in the payload where there is one; headers are told apart by address.
        let mut cx = LinkContext { packets: &mut self.packets, scheduler: &mut self.scheduler };
        let mut released = Vec::new();
        self.link.send(&mut cx, side, packet, &mut released);
        assert!(released.is_empty());
    }

    fn run(&mut self) {
        while let Some(event) = self.scheduler.pop() {
            self.events += 1;
            assert!(self.events < 1_000_000, "the link never comes to rest");
            if let Event::Root(_, RootEvent::Access { slot }) = event {
                self.give(slot as usize);
                continue;
            }
            let mut cx = LinkContext { packets: &mut self.packets, scheduler: &mut self.scheduler };
            let mut released = Vec::new();
            match event {
                Event::Deliver { end, packet } => {
                    if !self.link.receive(&mut cx, end.side, packet, &mut released) {
                        continue;
                    }
                    let (tlp, _) = cx.packets.decode(packet).expect("what passes the LCRC is a TLP");
                    let held = cx.packets.hop(packet).held.expect("a delivered TLP holds its buffer");
                    let at = cx.scheduler.now() + self.hold;
                    cx.packets.free(packet);
                    self.link.give_back(&mut cx, held, at);
                    let sent = &self.sent[end.side as usize];
                    let arrived = &mut self.arrived[end.side as usize];
                    let number = sent
                        .iter()
                        .position(|(other, number)| *other == tlp && !arrived.contains(number))
                        .expect("only what was sent arrives, once");
                    arrived.push(number as u32);
                    self.arrivals.push(cx.scheduler.now());
                }
                // One that was to leave now.
                Event::Root(_, RootEvent::Send { port, packet }) => {
                    let side = [Side::Upstream, Side::Downstream][usize::from(port)];
                    self.link.send(&mut cx, side, packet, &mut released);
                }
                Event::LinkWake(end) => self.link.on_wake(&mut cx, end.side, &mut released),
                Event::Replay(end) => self.link.replay(&mut cx, end.side, &mut released),
                Event::ReplayTimer(end) => self.link.on_replay_timer(&mut cx, end.side, &mut released),
                Event::LinkError(..) => {}
                _ => unreachable!("nothing else is on a bare link"),
            }
            self.check_credits();
        }
    }

    /// Lets `tlp` leave `side` at `at`; the link is given it at `now`.
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
        let mut cx = LinkContext { packets: &mut self.packets, scheduler: &mut self.scheduler };
        if !(self.plans && at > cx.scheduler.now() && self.link.plan(&mut cx, side, packet, at)) {
            let port = side as u8;
            self.scheduler.at(at, Event::Root(HostId(0), RootEvent::Send { port, packet }));
        }
        self.check_credits();
    }

    fn check_credits(&self) {
        for side in [Side::Upstream, Side::Downstream] {
            for class in classes() {
                let limit = self.link.params().receivers[side.opposite() as usize].credits.of(class);
                assert_eq!(self.link.credits_in_all_places(side, class), limit, "{side:?} {class:?}");
            }
        }
    }

    /// Nothing passed what it must not pass.
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

fn traffic() -> impl Strategy<Value = Vec<(bool, u8, u16, bool)>> {
    prop::collection::vec((any::<bool>(), 0u8..3, 1u16..=64, any::<bool>()), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Being told before saves events and changes nothing else.
    #[test]
    fn what_is_planned_arrives_as_if_it_were_sent_at_its_time(
        traffic in traffic(), gaps in prop::collection::vec((0u64..60_000, 1u64..400_000), 80), hold_ns in 0u64..500,
    ) {
        let [told, untold] = [true, false].map(|plans| {
            let mut bench = Bench { plans, ..Bench::new(small_credits(), Duration::from_ns(hold_ns)) };
            let (mut now, mut leaves) = (Time::from_ps(1), [Time::ZERO; 2]);
            for (number, (&(up, kind, dwords, relaxed), &(gap, delay))) in traffic.iter().zip(&gaps).enumerate() {
                let side = if up { Side::Downstream } else { Side::Upstream };
                now += Duration::from_ps(gap);
                // Reads go when they come; writes and completions in their order.
                let last = &mut leaves[side as usize];
                let at = if kind == 1 { now } else { (now + Duration::from_ps(delay)).max(*last) };
                *last = if kind == 1 { *last } else { at };
                bench.give_at(now, at, side, tlp(kind, number as u32 + 1, dwords, relaxed && kind == 2));
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
        for (number, &(up, kind, dwords, relaxed)) in traffic.iter().enumerate() {
            let side = if up { Side::Downstream } else { Side::Upstream };
            bench.send(side, tlp(kind, number as u32 + 1, dwords, relaxed && kind == 2));
        }
        bench.run();
        for side in 0..2 {
            prop_assert_eq!(bench.arrived[side].len(), bench.sent[side].len());
        }
        bench.check_order();
        prop_assert_eq!(bench.packets.in_flight(), 0);
    }

    #[test]
    fn bit_errors_and_lost_dllps_cost_time_only(traffic in traffic(), seed in any::<u64>()) {
        let mut bench = Bench::new(small_credits(), Duration::from_ns(10));
        let rng: Rng = Seed::new(seed).component("link");
        bench.link.inject_errors(Some(ErrorInjector::new(1e-4, 0.1, Duration::from_us(3), rng)));
        for (number, &(up, kind, dwords, _)) in traffic.iter().enumerate() {
            let side = if up { Side::Downstream } else { Side::Upstream };
            bench.send(side, tlp(kind, number as u32 + 1, dwords, false));
        }
        bench.run();
        for side in 0..2 {
            prop_assert_eq!(bench.arrived[side].len(), bench.sent[side].len());
        }
        bench.check_order();
    }
}

#[test]
fn posted_requests_pass_reads_that_lack_credits() {
    let mut bench = Bench::new(small_credits(), Duration::from_us(5));
    for number in 0..8 {
        bench.send(Side::Downstream, tlp(1, number, 16, false));
    }
    bench.send(Side::Downstream, tlp(0, 100, 16, false));
    bench.run();
    let arrived = &bench.arrived[Side::Upstream as usize];
    let write = arrived.iter().position(|&n| n == 8).unwrap();
    assert_eq!(write, 3, "the write follows the three reads that had credits: {arrived:?}");
}

#[test]
fn a_stream_of_writes_fills_the_wire() {
    let mut bench = Bench::new(CreditLimits::default(), Duration::ZERO);
    // Enough replay space, so that the wire is the limit.
    bench.link.receivers[0].params.replay_tlps = 1000;
    bench.link.receivers[1].params.replay_tlps = 1000;
    let (count, dwords) = (500, 64);
    for number in 0..count {
        bench.send(Side::Downstream, tlp(0, number + 2_000_000, dwords, false));
    }
    let wire = bench.link.transmitters[Side::Downstream as usize].wire_free;
    let bytes = u64::from(count) * (24 + u64::from(dwords) * 4);
    let rate = bytes as f64 * 8.0 / wire.since(Time::ZERO).as_ns_f64();
    // 8 GT/s x 8 x 128/130 = 63.02 Gbit/s, less SKP ordered sets.
    assert!((62.6..63.02).contains(&rate), "{rate} Gbit/s");
}

#[test]
fn a_link_that_goes_down_loses_what_it_carries() {
    let mut bench = Bench::new(small_credits(), Duration::ZERO);
    for number in 0..20 {
        bench.send(Side::Downstream, tlp(0, number, 16, false));
    }
    let mut cx = LinkContext { packets: &mut bench.packets, scheduler: &mut bench.scheduler };
    let mut released = Vec::new();
    bench.link.take_down(&mut cx, &mut released);
    bench.run();
    assert!(bench.arrived[Side::Upstream as usize].is_empty());
    assert_eq!(bench.packets.in_flight(), 0);
    let mut cx = LinkContext { packets: &mut bench.packets, scheduler: &mut bench.scheduler };
    bench.link.bring_up(&mut cx);
    bench.sent = Default::default();
    bench.send(Side::Downstream, tlp(0, 1, 16, false));
    bench.run();
    assert_eq!(bench.arrived[Side::Upstream as usize], vec![0]);
    let _ = FlowClass::Posted;
}
