//! What the analyser shows: a golden listing, bytes that come back from what is printed, and results that do not
//! change because somebody looked.

mod computers;
mod reencode;
mod viewers;

use expect_test::expect;
use machine::{Doc, Library, Scenario, Setup};
use nearfar::bench::Effort;
use nearfar::scenario::{bench_of, runs_of};
use nearfar::trace::{Filter, Recorder, Row as Packet, Span, bench, csv, listing, perfetto};
use results::Provenance;
use results::pciebench::{Contents, LineEnding, Row, to_csv};

fn setup(scenario: &str) -> Setup {
    let library = Library::built_in();
    let doc = Doc::<Scenario>::load(&library, scenario).unwrap();
    Setup::load(&library, &doc).unwrap_or_else(|error| panic!("{error}"))
}

fn span(packets: usize) -> Span {
    Span { packets, ..Span::default() }
}

/// A listing without what depends on figures of machines: the column of times, and the summary.
pub fn without_times(listing: &str) -> String {
    let packets = listing.split("\n\n").next().unwrap_or_default();
    let cut = |line: &str| match line.is_char_boundary(27) && line.len() > 27 && !line.starts_with("        ")
    {
        true => format!("{}{}\n", &line[..14], &line[27..]),
        false => format!("{line}\n"),
    };
    packets.lines().map(cut).collect()
}

#[test]
fn a_read_with_its_acks_and_credits() {
    let (capture, outcome) = bench::trace(&setup("latency-by-size"), 1, span(12)).unwrap();
    assert!(outcome.is_none(), "twelve packets are not the whole run");
    expect![[r#"
        packet  dir    type           seq   tag  req      cpl      address             bytes  BE   credits
             1  down   MWr(32)         43        00:01.0           0xe0000174              4  f/0  P 1/1
                0a000000
             2  down   MWr(32)         44        00:01.0           0xe0000178              4  f/0  P 1/1
                0000c0af
             3  down   MWr(32)         45        00:01.0           0xe000017c              4  f/0  P 1/1
                0a000000
             4  down   MWr(32)         46        00:01.0           0xe0000000              4  f/0  P 1/1
                01000000
             5  up     Ack             46
             6  up     UpdateFC-P                                                                  P 107/1067 total
             7  up     MRd(64)          4     0  01:00.0           0xaac000000             8  f/f  NP 1/0
             8  down   Ack              4
             9  down   UpdateFC-NP                                                                 NP 97/96  total
            10  down   CplD            47     0  01:00.0  00:01.0  SC 8 left               8       Cpl 1/1
                00000000 00000000
            11  up     Ack             47
            12  up     MRd(64)          5     1  01:00.0           0xaac000040             8  f/f  NP 1/0
    "#]].assert_eq(&without_times(&listing::listing(&capture, true, None)));
}

/// Nothing is lost where lines are narrow: what has no room stands in the heading, or below its packet.
#[test]
fn a_narrow_listing_keeps_every_value() {
    let (capture, _) = bench::trace(&setup("latency-by-size"), 1, span(40)).unwrap();
    let wide = listing::listing(&capture, false, None);
    // The first line has the headings.
    let packets = |text: &str| {
        text.split("\n\n")
            .next()
            .and_then(|packets| packets.split_once('\n'))
            .unwrap_or_default()
            .1
            .to_owned()
    };
    for width in [80, 100, 120] {
        let narrow = listing::listing(&capture, false, Some(width));
        assert!(narrow.lines().all(|line| line.chars().count() <= width), "{width}:\n{narrow}");
        for word in packets(&wide).split_whitespace() {
            assert!(narrow.contains(word), "{width}: {word}\n{narrow}");
        }
    }
    assert_eq!(wide, listing::listing(&capture, false, Some(120)), "there is room");
    let folded = listing::listing(&capture, false, Some(80));
    assert!(folded.lines().any(|line| line.starts_with("        ") && line.contains("tag 0")), "{folded}");
}

#[test]
fn a_filter_hides_packets_but_counts_them() {
    let filter: Filter = "cpld".parse().unwrap();
    let (capture, _) = bench::trace(&setup("latency-by-size"), 1, Span { filter, ..span(3) }).unwrap();
    let rows: Vec<Packet<'_>> = Packet::all(&capture).collect();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row.kind() == "CplD"));
    assert!(rows[0].number > 1, "those before it have their numbers");
    assert!(rows[0].since_t0.is_zero(), "T0 is the first packet shown");
}

fn csv_of(row: Row) -> String {
    let contents = match row {
        Row::Latency(row) => Contents::Latency(vec![row]),
        Row::Bandwidth(row) => Contents::Bandwidth(vec![row]),
    };
    to_csv(&contents, LineEnding::Lf)
}

#[test]
fn looking_changes_nothing() {
    for (scenario, number) in [("latency-by-size", 3), ("iommu-window", 1), ("remote-memory", 16)] {
        let setup = setup(scenario);
        let run = runs_of(&setup)[number - 1];
        let effort = Effort { samples: 200, transactions: 1_000 };
        let plain = bench_of(&setup).run(&run, effort).unwrap();
        let recorder = Recorder::new(span(0));
        let watched =
            bench_of(&setup).run_recorded(&run, effort, &recorder).unwrap().expect("it ran to the end");
        assert_eq!(csv_of(plain.row), csv_of(watched.row), "{scenario}");
        assert_eq!(plain.distribution, watched.distribution);
        assert_eq!(plain.tlps, watched.tlps);
        assert!(recorder.borrow_mut().capture().packets.len() > 1_000);
    }
}

/// Everything that a simulation sends can be put together again from the CSV.
#[test]
fn what_is_printed_of_a_run_is_what_was_sent() {
    let (capture, _) = bench::trace(&setup("remote-memory"), 9, span(2_000)).unwrap();
    let table = csv::table(Packet::all(&capture));
    reencode::check(&capture, &table);
}

#[test]
fn a_timeline_is_well_formed() {
    let (capture, _) = bench::trace(&setup("remote-memory"), 9, span(500)).unwrap();
    let timeline = capture.timeline();
    let made_from = Provenance { version: "1.2".into(), ..Provenance::default() };
    let mut text = Vec::new();
    perfetto::write(&mut text, &capture, &timeline, &made_from).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["otherData"]["version"], "1.2");
    let trace = viewers::Trace::read(&json);
    trace.check();
    assert!(trace.count() >= 500);
}
