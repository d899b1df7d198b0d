//! Computers watched: Figure 5 of the kPIO+WC paper as a listing, stories, and programs that do not notice.

use expect_test::expect;
use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::computer;
use nearfar::progress::Silent;
use nearfar::trace::Timeline;
use nearfar::trace::{Row, Span, computers};
use units::Duration;

fn setup(scenario: &str) -> ComputerSetup {
    let library = Library::built_in();
    let doc = Doc::<ComputerScenario>::load(&library, scenario).unwrap();
    ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{error}"))
}

fn seen(scenario: &str, packets: usize) -> computers::Observed {
    // Before it sends, pktgen reads what the NIC has sent so far.
    let span = Span { from: Duration::from_us(8), packets, ..Span::default() };
    computers::trace(&setup(scenario), span, &[], &Silent).unwrap().0
}

/// Names of the tracks of the longest story.
fn longest_story(timeline: &Timeline) -> Vec<String> {
    let stories = timeline.stories();
    let story = stories.values().max_by_key(|slices| slices.len()).unwrap();
    let track = |&slice: &usize| {
        let track = &timeline.tracks[timeline.slices[slice].track];
        format!("{}: {}", track.process, track.name)
    };
    story.iter().map(track).collect()
}

#[test]
fn a_frame_by_lines_as_in_figure_5() {
    let seen = seen("kpio-send", 10);
    let row = |row: Row<'_>| {
        format!("{:<4}  {:>6.0} ns  {}\n", row.direction(), row.since_t0.as_ns_f64(), row.kind())
    };
    let rows: String = Row::all(&seen.capture).map(row).collect();
    expect![[r#"
        down       0 ns  MWr(64)
        down      96 ns  MWr(64)
        up       492 ns  Ack
        up       492 ns  UpdateFC-P
        up       588 ns  Ack
        up       588 ns  UpdateFC-P
        up      1292 ns  MWr(32)
        up      1376 ns  MWr(32)
        up      1436 ns  MWr(32)
        up      1472 ns  MRd(32)
    "#]]
    .assert_eq(&rows);
}

/// Writes that tell a device of work name the queue, and its end that moves.
#[test]
fn doorbells_are_told() {
    let told = |scenario: &str| {
        let span = Span { packets: 200, ..Span::default() };
        let seen = computers::trace(&setup(scenario), span, &[], &Silent).unwrap().0;
        let all: Vec<String> = Row::all(&seen.capture).filter_map(|row| row.doorbell).collect();
        let listed = nearfar::trace::listing::listing(&seen.capture, false, None);
        assert_eq!(listed.matches("doorbell: ").count(), all.len());
        all
    };
    let of_drive = told("fio-randread");
    let is_submission = |one: &&String| one.starts_with("submission queue ") && one.contains(", tail ");
    assert!(of_drive.iter().filter(is_submission).count() > 3, "{of_drive:?}");
    assert!(of_drive.iter().any(|one| one.starts_with("completion queue ")), "{of_drive:?}");
    let of_nic = told("descriptor-send");
    assert!(of_nic.iter().any(|one| one.starts_with("TX queue ")), "{of_nic:?}");
}

#[test]
fn a_frame_is_followed_from_the_program_to_memory() {
    let by_lines = longest_story(&seen("kpio-send", 60).timeline());
    let by_descriptor = longest_story(&seen("descriptor-send", 60).timeline());
    let begins = |story: &[String], what: &str| assert!(story[0].starts_with(what), "{story:?}");
    begins(&by_lines, "host a: core 0, tasks");
    begins(&by_descriptor, "host a: core 0, tasks");
    let count = |story: &[String], what: &str| story.iter().filter(|track| track.contains(what)).count();
    assert_eq!(count(&by_lines, "write-combining buffer"), 2, "{by_lines:?}");
    assert_eq!(count(&by_lines, "down, TLPs"), 2, "{by_lines:?}");
    assert!(count(&by_lines, "up, TLPs") >= 2, "{by_lines:?}");
    // Doorbell, descriptor, data in one completion.
    assert_eq!(count(&by_descriptor, "down, TLPs"), 3, "{by_descriptor:?}");
    assert_eq!(count(&by_descriptor, "cable 0"), 1, "{by_descriptor:?}");
    assert!(count(&by_descriptor, "up, TLPs") >= 3, "{by_descriptor:?}");
}

#[test]
fn programs_do_not_notice() {
    for scenario in ["kpio-send", "descriptor-send"] {
        let setup = setup(scenario);
        let alone = computer::run(&setup, &Silent).unwrap();
        let (_, watched) = computers::trace(&setup, Span::default(), &[], &Silent).unwrap();
        assert_eq!(alone.len(), watched.len());
        for (alone, watched) in alone.iter().zip(&watched) {
            assert_eq!(alone.took, watched.took);
            let (alone, watched) = (alone.outcome.as_ref().unwrap(), watched.outcome.as_ref().unwrap());
            // What a run adds about the link comes from counters that it reads itself.
            assert_eq!(alone.readings, watched.readings, "{scenario}");
        }
    }
}

/// A GPU reads 4 times 64 KiB from another, 256 bytes at a time (section 7.1 and the discussion of the Device Lending paper).
#[test]
fn a_root_complex_cuts_reads_of_peers_or_does_not() {
    let setup = setup("peer-reads");
    let arrived = |slot: &str| {
        let (seen, _) = computers::trace(&setup, Span::default(), &[slot.to_owned()], &Silent).unwrap();
        Row::all(&seen.capture)
            .filter(|row| row.direction() == "down" && row.kind().starts_with("MRd"))
            .count()
    };
    assert_eq!((arrived("intel/slot"), arrived("zen/slot")), (4 * 4 * 256, 4 * 256));
}
