//! Flow control initialisation, and which credits can be advertised (base spec 3.4.1 and 2.6.1).

use engine::{Simulation, Trace};
use hardware::Fabric;
use hardware::link::{CreditLimits, Credits, LinkEnd, LinkId, LinkParams, Packet, Side};
use hardware::memory::{MemoryParams, MemorySystem};
use hardware::root::RootPortParams;
use units::Time;
use wire::pcie::dllp::{FlowControlKind, Scale};
use wire::pcie::tlp::MemoryRequest;
use wire::pcie::{Bdf, Dllp, FlowClass, Generation, Tlp, TlpKind, Width};

const LINK: LinkId = LinkId(0);

fn params(generation: Generation, posted: Credits) -> LinkParams {
    let mut params = LinkParams::example(generation, Width::X8);
    let few = Some(Credits { header: 16, data: 16 });
    for receiver in &mut params.receivers {
        receiver.credits = CreditLimits { posted: Some(posted), non_posted: few, completion: None };
    }
    params
}

#[test]
fn a_link_that_comes_up_again_exchanges_its_credits_before_any_tlp() {
    let mut fabric = Fabric::new();
    let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
    let params = params(Generation::Gen4, Credits { header: 500, data: 3000 });
    let trained = Time::ZERO + params.retrain_time;
    fabric.add_root_port(host, RootPortParams::ideal(), params, 1..=1);
    let (trace, passed) = Trace::collect();
    fabric.wires.tap(LINK, trace);
    let simulation = Simulation::new(fabric);
    simulation.with(|fabric, scheduler| {
        fabric.context(scheduler).with(LINK, |link, cx| {
            link.take_down(cx);
            link.bring_up(cx);
        });
        let write = MemoryRequest::for_bytes(Bdf::new(1, 0, 0), 0, 0x1000, 4);
        let packet = fabric.wires.packets.encode(&Tlp::new(TlpKind::MemoryWrite(write)), &[1; 4]);
        fabric.context(scheduler).send(LinkEnd { link: LINK, side: Side::Downstream }, packet);
    });
    simulation.run();
    let passed = passed.borrow();
    let mut inits = Vec::new();
    let mut last = Time::ZERO;
    for passed in passed.iter() {
        match &passed.packet {
            Packet::Dllp(bytes) => {
                if let Ok(Dllp::FlowControl(fc)) = Dllp::parse(bytes)
                    && fc.kind != FlowControlKind::Update
                {
                    assert!(passed.at >= trained);
                    last = last.max(passed.until);
                    inits.push((passed.from, fc));
                }
            }
            Packet::Tlp { .. } => {
                assert!(passed.at > last, "{} before the credits were known at {last}", passed.at);
                assert_eq!(inits.len(), 12, "two steps, two ends, three classes");
            }
        }
    }
    for side in [Side::Upstream, Side::Downstream] {
        for kind in [FlowControlKind::Init1, FlowControlKind::Init2] {
            let of = |class| {
                let found = inits.iter().find(|(from, fc)| (*from, fc.kind, fc.class) == (side, kind, class));
                found.expect("each class is initialised").1
            };
            let posted = of(FlowClass::Posted);
            assert_eq!((posted.header_credits(), posted.data_credits()), (500, 3000));
            assert_eq!((posted.header_scale, posted.data_scale), (Scale::By4, Scale::By4));
            let completion = of(FlowClass::Completion);
            assert_eq!((completion.header_credits(), completion.data_credits()), (0, 0), "infinite");
        }
    }
}

#[test]
fn no_more_is_advertised_than_the_generation_can_say() {
    let most = |header, data| Credits { header, data };
    for (generation, asked, expected) in [
        (Generation::Gen3, most(1_000_000, 1_000_000), most(127, 2047)),
        (Generation::Gen3, most(96, 768), most(96, 768)),
        (Generation::Gen4, most(1_000_000, 1_000_000), most(2032, 32752)),
        (Generation::Gen4, most(500, 3000), most(500, 3000)),
        // Units of four and sixteen cannot express every count: the rest is withheld.
        (Generation::Gen5, most(501, 8190), most(500, 8176)),
    ] {
        let mut fabric = Fabric::new();
        let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
        fabric.add_root_port(host, RootPortParams::ideal(), params(generation, asked), 1..=1);
        let link = fabric.wires.link(LINK);
        for side in [Side::Upstream, Side::Downstream] {
            let advertised = link.credits_in_all_places(&fabric.wires.packets, side, FlowClass::Posted);
            assert_eq!(advertised, Some(expected), "{generation:?} {asked:?}");
        }
    }
}
