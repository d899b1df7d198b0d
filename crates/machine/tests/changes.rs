//! Setting, getting and writing back.

use expect_test::expect;
use machine::{Determined, Doc, Kind, Library, Machine, Part, Provenance, Scenario, figures, set_number};
use proptest::prelude::*;

fn t430() -> Doc<Machine> {
    Doc::load(&Library::built_in(), "dell-t430").unwrap()
}

#[test]
fn what_is_set_is_got() {
    let mut doc = t430();
    assert_eq!(doc.get("host.llc.ddio_ways").unwrap().as_deref(), Some("2"));
    doc.set("host.llc.ddio_ways", "4").unwrap();
    doc.set("host.dram.access", "71.5 ns").unwrap();
    doc.set("host.interconnect.remote_write", "to-home-memory").unwrap();
    doc.set("host.port.slot.mps_bytes", "128").unwrap();
    assert_eq!(doc.get("host.llc.ddio_ways").unwrap().as_deref(), Some("4"));
    assert_eq!(doc.get("host.dram.access").unwrap().as_deref(), Some("\"71.5 ns\""));
    assert_eq!(doc.get("host.nothing").unwrap(), None);
    let machine = doc.read().unwrap();
    assert_eq!(machine.host.llc.ddio_ways.provenance.kind, Kind::Override);
    assert_eq!(machine.host.port["slot"].mps_bytes.value.get(), 128);
    assert_eq!(machine.host.port["slot-socket1"].mps_bytes.value.get(), 256);
}

/// A key below a text is a mistake, and the text stays.
#[test]
fn nothing_is_below_a_text() {
    let mut doc = t430();
    doc.set("host.cpu.nonsense", "4 GHz").unwrap();
    let wrong = doc.read().unwrap_err().to_string();
    assert!(wrong.contains("`host.cpu` is text, which has no `nonsense`"), "{wrong}");
}

#[test]
fn a_fitted_figure_is_written_with_its_statement_and_comments_stay() {
    let text = "# A machine.\nname = \"mine\"\nextends = \"dell-t430\"\nsummary = \"Mine\"\n\n\
                [host.llc] # the cache\nddio_ways = { value = 3, source = \"assumed: three\" } # a guess\n";
    let mut doc = Doc::<Machine>::from_text(&Library::built_in(), "mine.toml", text);
    assert_eq!(doc.read().unwrap().host.llc.ddio_ways.value, 3);
    let fitted = |source: &str, uncertainty: &str| Provenance {
        source: source.into(),
        kind: Kind::Fitted,
        determined: Some(Determined::Well),
        uncertainty: Some(uncertainty.into()),
        without: None,
    };
    doc.set_figure("host.llc.ddio_ways", "2", fitted("fitted: lat_dma_sweep_wrrd", "10 %")).unwrap();
    doc.set_figure("host.dram.access", "68.2 ns", fitted("lat_dma_sweep_rd, cold", "0.4 ns")).unwrap();
    doc.set("summary", "Mine, fitted").unwrap();
    let written = doc.to_text().unwrap();
    expect![[r##"
        # A machine.
        name = "mine"
        extends = "dell-t430"
        summary = "Mine, fitted"

        [host.llc] # the cache
        ddio_ways = { value = 2, source = "fitted: lat_dma_sweep_wrrd", determined = "well", uncertainty = "10 %" } # a guess

        [host.dram]
        access = { value = "68.2 ns", source = "lat_dma_sweep_rd, cold", kind = "fitted", determined = "well", uncertainty = "0.4 ns" }
    "##]]
    .assert_eq(&written);
    let again = Doc::<Machine>::from_text(&Library::built_in(), "mine.toml", &written).read().unwrap();
    assert_eq!(again, doc.read().unwrap());
}

#[test]
fn a_restated_figure_keeps_its_spelling_and_residuals_are_no_relatives() {
    let text = "name = \"mine\"\nsummary = \"Mine\"\nextends = \"dell-t430\"\n\n[host.dram]\n\
                access = { value = \"0.068 us\", source = \"assumed: some\" }\n\n\
                [residuals.\"a-1.2GHz\"]\n\"lat_*\" = { rows = 2, median_pct = 1.0, p90_pct = 2.0, worst_pct = 2.0 }\n";
    let library = Library::built_in();
    let mut doc = Doc::<Machine>::from_text(&library, "mine.toml", text);
    doc.restate("host.dram.access", Provenance::stated("fitted: rows").unwrap()).unwrap();
    doc.restate("host.llc.acquire", Provenance::stated("relative: dell-t430").unwrap()).unwrap();
    let written = doc.to_text().unwrap();
    assert!(written.contains(r#"access = { value = "0.068 us", source = "fitted: rows" }"#), "{written}");
    assert!(
        written.contains(r#"acquire = { value = "14.5 ns", source = "relative: dell-t430" }"#),
        "{written}"
    );
    let own = doc.read().unwrap().residuals;
    assert_eq!((own.len(), own["a-1.2GHz"]["lat_*"].rows), (1, 2), "the base's are not this machine's");
    doc.remove("residuals").unwrap();
    doc.set_entry(
        &["residuals", "b-1.2GHz", "bw_*"],
        "{ rows = 1, median_pct = 0.5, p90_pct = 0.5, worst_pct = 0.5 }",
    );
    let written = doc.to_text().unwrap();
    assert!(!written.contains("a-1.2GHz"), "{written}");
    assert!(written.contains("[residuals.\"b-1.2GHz\"]\n\"bw_*\" = { rows = 1,"), "{written}");
    doc.set_entry(
        &["residuals", "b-1.2GHz", "bw_*"],
        "{ rows = 1, median_pct = 0.5, p90_pct = 0.4, worst_pct = 0.5 }",
    );
    assert!(doc.read().is_err(), "a 90th percentile below the median");
}

#[test]
fn a_value_laid_over_a_base_brings_its_own_source() {
    let text = "name = \"mine\"\nextends = \"dell-t430\"\nsummary = \"Mine\"\n[host.l1]\nsize = \"48 KiB\"\nways = 12\n\
                replacement = \"lru\"\n";
    let doc = Doc::<Machine>::from_text(&Library::built_in(), "mine.toml", text);
    let error = doc.read().unwrap_err().to_string();
    assert!(error.contains("`size` does not say where its value comes from"), "{error}");
}

#[test]
fn every_figure_of_every_file_has_a_path_that_sets_it() {
    let library = Library::built_in();
    for name in library.names("machines") {
        let mut doc = Doc::<Machine>::load(&library, &name).unwrap();
        let before = doc.list().unwrap();
        assert!(before.len() > 100, "{name} lists {} figures", before.len());
        for figure in &before {
            doc.set(&figure.path, &figure.value).unwrap();
        }
        let after = doc.list().unwrap_or_else(|e| panic!("{}", e.render(false)));
        let values = |list: &[machine::Listed]| {
            list.iter().map(|f| (f.path.clone(), f.value.clone())).collect::<Vec<_>>()
        };
        assert_eq!(values(&before), values(&after));
    }
}

#[test]
fn numbers_are_set_without_text() {
    let mut machine = t430().read().unwrap();
    assert!(set_number(&mut machine, "host.dram.access", 71_234.4));
    assert_eq!(machine.host.dram.access.value.as_ps(), 71_234);
    assert!(!set_number(&mut machine, "host.dram.access", -1.0));
    assert!(!set_number(&mut machine, "host.port.slot.width", 3.0));
    assert!(!set_number(&mut machine, "host.core.count", 0.0));
    assert!(!set_number(&mut machine, "host.nothing", 1.0));
    assert!(!set_number(&mut machine, "host.llc.replacement", 1.0));
    let mut card = Doc::<Part>::load(&Library::built_in(), "nfp6000").unwrap().read().unwrap();
    assert!(set_number(&mut card, "dma_engine.tags", 16.0));
    assert_eq!(figures(&card).iter().find(|f| f.path == "dma_engine.tags").unwrap().number, Some(16.0));
}

#[test]
fn a_file_of_the_user_goes_before_one_of_the_program() {
    let folder = std::env::temp_dir().join(format!("nearfar-library-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("machines")).unwrap();
    let mut doc = t430();
    doc.set("host.llc.ddio_ways", "7").unwrap();
    doc.save(&folder.join("machines/dell-t430.toml")).unwrap();
    let library = Library::built_in().with_folder(&folder);
    let found = Doc::<Machine>::load(&library, "dell-t430").unwrap().read();
    let by_path = Doc::<Machine>::load(&library, folder.join("machines/dell-t430.toml").to_str().unwrap())
        .unwrap()
        .read();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(found.unwrap().host.llc.ddio_ways.value, 7);
    assert_eq!(by_path.unwrap().host.llc.ddio_ways.value, 7);
}

/// A machine or scenario file with a random piece replaced by random text.
fn damaged(path: &'static str) -> impl Strategy<Value = String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let text = std::fs::read_to_string(path).unwrap();
    (0..text.len(), 0usize..40, "([\\[\\]{}=\".,#0-9a-z \né-]{0,12}|\\PC{0,8})").prop_map(
        move |(at, length, piece)| {
            let boundary = |mut at: usize| {
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                at
            };
            let (start, end) = (boundary(at), boundary((at + length).min(text.len())));
            format!("{}{piece}{}", &text[..start], &text[end..])
        },
    )
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let library = Library::built_in();
        let _ = Doc::<Machine>::from_text(&library, "x", &text).read().map_err(|e| e.render(true));
        let _ = Doc::<Part>::from_text(&library, "x", &text).read().map_err(|e| e.render(true));
        let _ = Doc::<Scenario>::from_text(&library, "x", &text).read().map_err(|e| e.render(true));
    }

    #[test]
    fn no_damaged_machine_panics(text in damaged("machines/dell-t430.toml")) {
        let doc = Doc::<Machine>::from_text(&Library::built_in(), "x", &text);
        match doc.read() {
            Ok(machine) => prop_assert_eq!(figures(&machine), doc.list().unwrap()),
            Err(error) => {
                prop_assert!(error.iter().count() > 0);
                let _ = error.render(false);
            }
        }
    }

    #[test]
    fn no_damaged_scenario_panics(text in damaged("scenarios/more-ddio.toml")) {
        let library = Library::built_in();
        let doc = Doc::<Scenario>::from_text(&library, "x", &text);
        let _ = machine::Setup::load(&library, &doc).map_err(|error| error.render(false));
    }

    #[test]
    fn no_override_panics(path in "(host|host\\.llc|[a-z.]{0,12}|\\PC{0,8})", value in "\\PC{0,20}") {
        let mut doc = t430();
        if doc.set(&path, &value).is_ok() {
            let _ = doc.read().map_err(|error| error.render(false));
            let _ = doc.to_text();
        }
    }
}
