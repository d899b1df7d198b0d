//! netperf through a slot that is narrower than the wire, against the analytic model of pcie-bench's section 3.

use crate::scenario::{HEAD, cable, host, loaded, program};
use nearfar::computer::{FinishedProgram, run};
use nearfar::progress::Silent;
use workloads::Report;

/// Streams from host a to host b, of which one has a slot with few lanes.
fn streams(count: u32, narrow: &str, lanes: u32, ms: f64) -> Vec<FinishedProgram> {
    let end = |name: &str| {
        let lanes = if name == narrow { lanes } else { 8 };
        let width = format!("{{ value = {lanes}, source = \"assumed: narrower than the wire\" }}");
        host(name, "dell-t430", &format!("[[host.device]]\nnic = \"modern\"\nchange.link.width = {width}"))
    };
    let client = |cpu: u32| program("a", &cpu.to_string(), &format!("netperf -H 10.0.0.2 -l {}", ms / 1e3));
    let mut text =
        [HEAD, &end("a"), &end("b"), &cable("a", "b", ""), &program("b", "0-4", "netserver")].concat();
    text.extend((0..count).map(client));
    run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"))
}

fn report<'a>(done: &'a [FinishedProgram], host: &str, run: &str) -> &'a Report {
    let done = done.iter().find(|done| done.host == host && done.run.starts_with(run)).expect("it ran");
    done.outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"))
}

/// What the direction that limits carried is what the model says, within 5 %, and it was full. A receiver's link carries that
/// in TLPs alone. A sender's carries less, as frames that the NIC cuts share descriptors, doorbells and headers, and nearly as
/// much in beats of the root port's transmitter that are not filled: the report has both.
#[test]
fn netperf_fills_a_narrow_slot_as_the_model_says() {
    for (narrow, direction) in [("b", "from the NIC"), ("a", "to the NIC")] {
        let done = streams(2, narrow, 2, 6.0);
        let link = report(&done, narrow, "link");
        let get = |quantity: &str| link.get(&format!("{quantity}, {direction}")).unwrap_or_default();
        let model = |quantity: &str| link.get(&format!("{quantity}, {direction}, model")).unwrap_or_default();
        let near = |simulated: f64, model: f64| (simulated / model - 1.0).abs() < 0.05;
        let (all, fill, dllps) = (get("all"), get("fill"), get("DLLPs"));
        println!(
            "{narrow}: {all:.1} B a frame, of which {fill:.1} B fill and {dllps:.1} B DLLPs, model {:.1} B; busy {:.1} %",
            model("all"),
            get("busy")
        );
        assert!(near(all - dllps, model("all")) && near(get("packets"), model("packets")), "{link:?}");
        if direction == "from the NIC" {
            for kind in ["descriptors", "write-backs"] {
                assert!(near(get(kind), model(kind)), "{kind}: {link:?}");
            }
            assert_eq!(fill, 0.0, "only root ports have beats");
        } else {
            assert!(
                get("descriptors") + get("doorbells") < 0.5 * (model("descriptors") + model("doorbells"))
            );
        }
        assert!(get("busy") > 90.0, "with the beginning and the end of the streams: {link:?}");
    }
}

/// Three streams overflow the memory of a receiver's NIC in a slot of two lanes, and some lose a tail. They go on after a
/// few round trips, not after the 200 ms of the retransmission timer (RFC 8985, section 7): a test of 6 ms would not end.
#[test]
fn streams_that_lose_their_tails_do_not_stand_still() {
    let done = streams(3, "b", 2, 6.0);
    let mut all = 0.0;
    for stream in done.iter().filter(|done| done.run.starts_with("netperf")) {
        let report = stream.outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"));
        all += report.get("throughput").unwrap_or_default();
        println!("{} {:?} {:?}", stream.run, stream.took, report);
        assert!(stream.took < units::Duration::from_ms(40), "{} took {}", stream.run, stream.took);
    }
    assert!(all > 8_000.0, "{all} Mbit/s of the 16 Gbit/s that two lanes carry");
}

/// A stream that changes over to the other function of its card is counted on the links of both.
#[test]
fn a_card_with_two_links_is_counted_over_both() {
    let done = run(&loaded(include_str!("../../../scenarios/octo.toml")), &Silent)
        .unwrap_or_else(|error| panic!("{error}"));
    let link = report(&done, "a", "link");
    let (packets, model) = ("packets, from the NIC", "packets, from the NIC, model");
    let (packets, model) = (link.get(packets).unwrap(), link.get(model).unwrap());
    assert!((packets / model - 1.0).abs() < 0.05, "{link:?}");
    assert!(link.readings.iter().all(|reading| reading.value >= 0.0), "{link:?}");
}
