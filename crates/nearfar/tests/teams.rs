//! A card with a link to each socket, as one network device: from a scenario's file to what crosses between the sockets.

mod scenario;

use nearfar::computer::{self, Done};
use nearfar::progress::Silent;
use scenario::{HEAD, cable, host, host_with_nic, load, loaded, program};

const TEAM: &str = "[[host.team]]\nname = \"team0\"\nmode = \"octo\"\nmembers = [\"octo:0\", \"octo:1\"]\n";

fn octo(links: &str, nic: &str, team: &str) -> String {
    let lines = format!(
        "change_kernel.steering = {{ rfs = true, arfs = true }}\n[[host.device]]\nname = \"octo\"\nnic = \"{nic}\"\n\
         links = [{links}]\n{team}"
    );
    host("a", "dell-t430", &lines)
}

const LINKS: &str = "{ slot = \"slot\", lanes = 8 }, { slot = \"slot-socket1\", lanes = 8 }";

fn reading(done: &[Done], program: &str, quantity: &str) -> f64 {
    let done = done.iter().find(|done| done.run.starts_with(program)).expect("it ran");
    let report = done.outcome.as_ref().unwrap_or_else(|failure| panic!("{}: {failure}", done.run));
    report.get(quantity).unwrap_or_else(|| panic!("{quantity} of {report:?}"))
}

#[test]
fn a_team_is_one_device_to_programs() {
    let hosts = [HEAD, &octo(LINKS, "connectx4-octo", TEAM), &host_with_nic("b")].concat();
    let text = [
        hosts,
        cable("a", "b", ""),
        program("a", "0", "iperf -s"),
        program("a", "10", "netserver"),
        program("b", "0", "iperf -c 10.0.0.1 -t 0.0005"),
        program("b", "1", "netperf -H 10.0.0.1 -t TCP_RR -l 0.0005"),
        program("b", "2", "ping -c 2 10.0.0.1"),
    ]
    .concat();
    let done = computer::run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    assert!(reading(&done, "iperf -c", "bandwidth") > 2_000.0);
    assert!(reading(&done, "netperf", "transactions") > 10.0);
    assert_eq!(reading(&done, "ping", "received"), 2.0);
}

#[test]
fn impossible_teams_are_told_with_their_line() {
    let text = |links: &str, nic: &str, team: &str| [HEAD, &octo(links, nic, team)].concat();
    for (links, nic, team, words) in [
        (LINKS, "connectx4", TEAM, "have addresses of their own"),
        (LINKS, "connectx4-octo", &*TEAM.replace("octo:1", "octo:2"), "has no link 2"),
        (LINKS, "connectx4-octo", &*TEAM.replace("octo:1", "octa:1"), "there is no `octa:1`"),
        (LINKS, "connectx4-octo", &*TEAM.replace("octo:1", "octo:0"), "is a member already"),
        (LINKS, "connectx4-octo", &*TEAM.replace("team0", "eth7"), "may call another device `eth7`"),
        (LINKS, "connectx4-octo", &*TEAM.replace("\"octo\"\nmembers", "\"squid\"\nmembers"), "squid"),
        ("{ slot = \"slot\", lanes = 8 }", "connectx4-octo", TEAM, "has no link 1"),
    ] {
        let said = load(&text(links, nic, team)).err().unwrap_or_else(|| panic!("{links} {team} is taken"));
        assert!(said.render(false).contains(words), "{words}: {}", said.render(false));
    }
}
