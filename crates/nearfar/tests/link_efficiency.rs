//! What every generation, width and maximum payload size carries, against the closed form of the analytic model.

use analytic::{Direction, Generation as ModelGeneration, Link as ModelLink};
use engine::Scheduler;
use hardware::Event;
use hardware::link::{Credits, Link, LinkContext, LinkId, LinkParams, Side};
use hardware::packet::PacketPool;
use units::{Bytes, Time};
use wire::pcie::{Bdf, Generation, MemoryRequest, Tlp, TlpKind, Width};

const PAYLOADS: [u32; 6] = [128, 256, 512, 1024, 2048, 4096];
/// Enough that a SKP ordered set more or less makes no difference: one is due every few packets.
const WRITES: u64 = 3000;

/// A stream of writes from each of `senders`, as fast as the link takes them.
/// Returns the payload's rate in one direction, in bits per second.
fn stream(generation: Generation, width: Width, payload: u32, senders: &[Side]) -> f64 {
    let mut params = LinkParams::example(generation, width);
    // More than the fastest link has under way, and few enough that most writes take their turns with DLLPs.
    let credits = Credits { header: 512, data: 512 * 256 };
    // As often as the specification's guidance has acknowledgements and credits, as the model.
    let guidance = model(generation, width, payload);
    let interval = guidance.raw_rate().time_for(guidance.dllp_interval());
    for receiver in &mut params.receivers {
        receiver.credits.posted = Some(credits);
        receiver.replay_tlps = 1024;
        receiver.ack_delay = interval;
        receiver.credit_update_delay = interval;
    }
    let mut link = Link::new(LinkId(0), params);
    let (mut packets, mut scheduler) = (PacketPool::new(), Scheduler::new());
    let mut released = Vec::new();
    for number in 0..WRITES {
        for &side in senders {
            // Above 4 GiB, so that the header has four doublewords, as the model's.
            let address = (1 << 40) + number * 4096;
            let tlp = Tlp::new(TlpKind::MemoryWrite(MemoryRequest::for_bytes(
                Bdf::new(1, 0, 0),
                0,
                address,
                payload,
            )));
            let packet = packets.encode(&tlp, &[]);
            let (packets, scheduler, released) = (&mut packets, &mut scheduler, &mut released);
            let mut cx = LinkContext { packets, scheduler, released };
            link.send(&mut cx, side, packet);
        }
    }
    let (mut arrived, mut first, mut last) = ([0u64; 2], [Time::ZERO; 2], [Time::ZERO; 2]);
    while let Some(event) = scheduler.pop() {
        let (packets, scheduler, released) = (&mut packets, &mut scheduler, &mut released);
        let mut cx = LinkContext { packets, scheduler, released };
        match event {
            Event::Deliver { end, packet } => {
                assert!(link.receive(&mut cx, end.side, packet), "nothing is damaged here");
                let held = cx.packets.hop(packet).held.expect("a delivered TLP holds its buffer");
                let now = cx.scheduler.now();
                cx.packets.free(packet);
                if link.give_back(&held, now) {
                    link.arrange_wake(&mut cx, end.side);
                }
                let side = end.side as usize;
                if arrived[side] == 0 {
                    first[side] = now;
                }
                arrived[side] += 1;
                last[side] = now;
            }
            Event::LinkWake(end) => link.on_wake(&mut cx, end.side),
            Event::ReplayTimer(end) => link.on_replay_timer(&mut cx, end.side),
            other => panic!("a link without errors has no {other:?}"),
        }
    }
    let side = senders[0].opposite() as usize;
    assert_eq!(arrived[side], WRITES);
    // From the end of the first to the end of the last: one packet less than were sent.
    (WRITES - 1) as f64 * f64::from(payload) * 8.0 / (last[side].since(first[side]).as_ns_f64() * 1e-9)
}

fn model(generation: Generation, width: Width, payload: u32) -> ModelLink {
    let generation = ModelGeneration::ALL[usize::from(generation.number()) - 1];
    let payload = Bytes::new(u64::from(payload));
    ModelLink::new(generation, u32::from(width.lanes()), payload, payload).expect("a link that exists")
}

/// Bytes of a write beside its data.
fn overhead(generation: Generation) -> u32 {
    16 + generation.framing().tlp_overhead() as u32
}

fn every_link() -> impl Iterator<Item = (Generation, Width, u32)> {
    Generation::ALL.into_iter().flat_map(|generation| {
        Width::ALL
            .into_iter()
            .flat_map(move |width| PAYLOADS.into_iter().map(move |payload| (generation, width, payload)))
    })
}

/// One way: acknowledgements travel the other way, so header, framing and SKP ordered sets are all that is lost.
#[test]
fn writes_one_way_reach_what_headers_and_encoding_leave() {
    for (generation, width, payload) in every_link() {
        let got = stream(generation, width, payload, &[Side::Downstream]);
        // Sequence number, LCRC and framing: 8 bytes, none in FLITs; header: 16; SKP: 4 of 1542 symbols at most.
        let raw = model(generation, width, payload).raw_rate().bits_per_s() as f64;
        let most = raw * f64::from(payload) / f64::from(payload + overhead(generation));
        let ratio = got / most;
        assert!((0.99..=1.0005).contains(&ratio), "{generation} {width} MPS {payload}: {ratio} of {most}");
    }
}

/// Both ways: acknowledgements share the wire with writes, but less often than the pessimistic guidance of the
/// specification has them, which the model follows.
#[test]
fn writes_both_ways_lie_between_the_model_and_a_wire_without_dllps() {
    for (generation, width, payload) in every_link() {
        let got = stream(generation, width, payload, &[Side::Downstream, Side::Upstream]);
        let link = model(generation, width, payload);
        let least = link.goodput(Direction::Write, Bytes::new(u64::from(payload))).bits_per_s() as f64;
        let most = link.raw_rate().bits_per_s() as f64 * f64::from(payload)
            / f64::from(payload + overhead(generation));
        assert!(
            got >= 0.99 * least && got <= most,
            "{generation} {width} MPS {payload}: {least} {got} {most}"
        );
    }
}
