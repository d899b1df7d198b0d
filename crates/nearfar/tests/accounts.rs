//! Accounts add up whatever happens: no resource is used for more than the time that passes, and what cores do adds up to their
//! time. Each run checks this at its end (`computer::violations`).

use crate::scenario::loaded;
use machine::{Action, ComputerScenario, ComputerSetup, Doc, EventSetup, LinkPlace, Trigger};
use nearfar::computer::{Counts, run_counted};
use nearfar::counters::Kind;
use nearfar::{Library, Silent};
use units::Duration;

fn counts(text: &str) -> Counts {
    run_counted(&loaded(text), &Silent).unwrap_or_else(|error| panic!("{error}"))
}

/// The largest share of a resource whose place ends like this, in percent.
fn share(counts: &Counts, kind: Kind, place: &str) -> f64 {
    let windows = counts.counted.iter().flat_map(|counted| &counted.window.hosts);
    let resources = windows.flat_map(|host| &host.resources);
    let own = resources.filter(|resource| resource.kind == kind && resource.place.ends_with(place));
    own.map(|resource| 100.0 * resource.share).fold(f64::NAN, f64::max)
}

/// Programs of pages that were ordered before a crash, or before the power was lost, are not counted before they happen.
#[test]
fn dies_are_busy_only_while_they_work() {
    let share_of = |deed: &str| {
        let counts = counts(&format!(
            r#"
            name = "share"
            summary = "share of a resource"
            [[host]]
            name = "a"
            machine = "dell-t430"
            [[host.device]]
            drive = "pm1725a"
            [[program]]
            run = "fio --ioengine=libaio --rw=randwrite --bs=4k --size=4m --iodepth=16 --verify=pattern"
            [[event]]
            at = "300 us"
            do = "{deed}"
            what = "a"
            "#
        ));
        share(&counts, Kind::Device, "drive0/dies")
    };
    for deed in ["crash", "power-off"] {
        let dies = share_of(deed);
        assert!((30.0..=100.0).contains(&dies), "{deed}: {dies} %");
    }
}

/// The accounts of a host that reboots hold what both of its kernels did.
#[test]
fn accounts_of_a_reboot_are_of_both_kernels() {
    let text = |event: &str| {
        format!(
            r#"
            name = "accounts-reboot"
            summary = "CPU time of a host that reboots"
            [[host]]
            name = "a"
            machine = "dell-t430"
            [[host.device]]
            nic = "modern"
            [[host.device]]
            nic = "modern"
            [[program]]
            host = "a"
            cpus = "0"
            run = "netperf -H 10.0.0.2 -t TCP_STREAM -l 0.005"
            {event}
            "#
        )
    };
    let of = |text: &str| {
        let all = counts(text).accounts;
        let netperf = all.iter().find(|account| account.name == "netperf").expect("it ran").total();
        (all.iter().map(|account| account.share_pct(account.total())).sum::<f64>(), netperf)
    };
    let (sum, ran) = of(&text("[[event]]\nat = \"145 us\"\ndo = \"reboot\"\nwhat = \"a\"\ntakes = \"1 ms\""));
    assert!((sum - 2_000.0).abs() < 1e-6, "{sum} % of 20 cores");
    let (_, crashed) = of(&text("[[event]]\nat = \"145 us\"\ndo = \"crash\"\nwhat = \"a\""));
    assert_eq!(ran, crashed, "what the first kernel's task did is not forgotten");
}

#[test]
fn a_pool_of_lent_drives_is_full_at_most() {
    let library = Library::built_in();
    let doc = Doc::<ComputerScenario>::load(&library, "lend-pool").unwrap();
    let counts = run_counted(&ComputerSetup::load(&library, &doc).unwrap(), &Silent).unwrap();
    let channels = share(&counts, Kind::Device, "ssd/channels");
    assert!((80.0..=100.0).contains(&channels), "{channels} %");
}

/// Runs a scenario with events, which itself checks all shares.
fn run_with<const N: usize>(name: &str, events: [(Duration, Action); N]) {
    let library = Library::built_in();
    let doc = Doc::<ComputerScenario>::load(&library, name).unwrap();
    let mut setup = ComputerSetup::load(&library, &doc).unwrap();
    setup.events.extend(events.map(|(at, action)| EventSetup {
        trigger: Trigger::At(at),
        text: format!("{action:?}"),
        action,
    }));
    run_counted(&setup, &Silent).unwrap();
}

/// The borrower's adapter disappears while its driver starts: handlers that unmap interrupt tasks that do, and a core waits once at a
/// time.
#[test]
fn a_core_waits_for_one_invalidation_at_a_time() {
    for cut in [6_036, 8_156, 8_911] {
        let (cut, end) = (Duration::from_ns(cut), Duration::from_us(2_104));
        run_with(
            "lend-nvme",
            [
                (cut, Action::Link { link: LinkPlace::Device(0, 1, 0), up: false }),
                (end, Action::PowerOff(0)),
                (end, Action::PowerOff(1)),
            ],
        );
    }
}

/// A task whose turn is over goes on at a core that is on its way to the idle loop.
#[test]
fn a_core_that_a_task_comes_to_on_its_way_to_idle_is_busy_once() {
    for end in [2_000, 2_300, 2_700] {
        run_with(
            "netperf",
            [
                (Duration::from_ns(1_072), Action::Device { device: (0, 0), present: false }),
                (Duration::from_ns(end), Action::PowerOff(0)),
            ],
        );
    }
}
