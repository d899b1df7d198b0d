//! A traffic source at a cable sends to a computer, from files to figures.

use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::computer::{self, Done};
use nearfar::progress::Silent;

/// A host with a server and a source with a cable between them, and what the cable has besides.
fn scenario(cable: &str, source: &str) -> String {
    format!(
        r#"
        name = "test"
        summary = "test"
        [[host]]
        name = "a"
        machine = "dell-t430"
        device = [{{ nic = "modern" }}]
        [[source]]
        name = "t"
        time = "2 ms"
        {source}
        [[cable]]
        ends = ["t", "a"]
        rate = "10 Gbit/s"
        {cable}
        [[program]]
        cpus = "0"
        run = "iperf -s"
        "#
    )
}

fn load(text: &str) -> Result<ComputerSetup, machine::Diagnostics> {
    let library = Library::built_in();
    ComputerSetup::load(&library, &Doc::<ComputerScenario>::from_text(&library, "test.toml", text))
}

fn run(text: &str) -> Vec<Done> {
    let setup = load(text).unwrap_or_else(|error| panic!("{}", error.render(false)));
    computer::run(&setup, &Silent).unwrap_or_else(|error| panic!("{error}"))
}

fn readings(done: &[Done]) -> [f64; 3] {
    let done = done.iter().find(|done| done.host == "t").expect("the source has ended");
    let report = done.outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"));
    ["transfer", "bandwidth", "sent again"].map(|quantity| report.get(quantity).expect("it is reported"))
}

/// 1448 bytes of 1538 on the wire, but for the beginning, when the window opens.
#[test]
fn a_source_fills_its_cable() {
    let [_, bandwidth, again] = readings(&run(&scenario("", "to = \"10.0.0.1:5001\"")));
    assert!((8_500.0..9_415.0).contains(&bandwidth), "{bandwidth} Mbit/s");
    assert_eq!(again, 0.0);
}

#[test]
fn what_is_lost_is_sent_again() {
    let [bytes, _, again] = readings(&run(&scenario("loss = 0.01", "to = \"10.0.0.1:5001\"")));
    assert!(bytes > 50_000.0 && again >= 1.0, "{bytes} B, {again} again");
}

#[test]
fn who_does_not_receive_is_told() {
    for (to, why) in [("10.0.0.1:7", "refused"), ("10.0.0.9:7", "nobody has the address")] {
        let done = run(&scenario("", &format!("to = \"{to}\"")));
        let failure = done.iter().find(|done| done.host == "t").and_then(|done| done.outcome.as_ref().err());
        let failure = failure.map(ToString::to_string).unwrap_or_default();
        assert!(failure.contains(why), "{to}: {failure:?}");
    }
    let wrong = load(&scenario("", "to = \"a:x\"")).unwrap_err().render(false);
    assert!(wrong.contains("`a:x` is no address") && wrong.contains("such as `10.0.0.1:5001`"), "{wrong}");
}
