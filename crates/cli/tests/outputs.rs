//! Outputs say what they were made from, and are whole or not there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde_json::Value;

const BENCH: &str = "name = \"x\"\nsummary = \"x\"\nmachine = \"dell-t430\"\ncard = \"nfp6000\"\n\
    change.host.llc.ddio_ways = 1\n\
    [pcie_bench]\ntest = [\"LAT_RD\", \"BW_WR\"]\npattern = \"rand\"\ncache = \"host-warm\"\nwindow = \"64 KiB\"\n\
    transfer = \"64 B\"\nsamples = 500\n";
const HOSTS: &str = "name = \"x\"\nsummary = \"x\"\n\
    capture = [{ port = \"a\", file = \"x.pcapng\" }]\n\
    [[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"modern\"\n\
    [[host]]\nname = \"b\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"modern\"\n\
    [[cable]]\nends = [\"a\", \"b\"]\n[[program]]\nhost = \"a\"\nrun = \"ping -c 2 10.0.0.2\"\n";

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("bench.toml"), BENCH).unwrap();
    std::fs::write(folder.join("hosts.toml"), HOSTS).unwrap();
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    command.current_dir(folder).env("NEARFAR_CACHE", folder.join("cache")).args(arguments);
    command
}

fn nearfar(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(path: PathBuf) -> String {
    text(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn done(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

const SET: &str = "host.dram.access=90 ns";

#[test]
fn every_output_says_what_was_changed_and_what_went_in() {
    let folder = folder("provenance");
    let printed = done(nearfar(&folder, &["run", "bench.toml", "-v", "--set", SET, "--json", "run.json"]));
    let wanted = ["seed 1", "--set 'host.dram.access=90 ns'", "ddio_ways = 1", "machines/dell-t430.toml"];
    wanted.iter().for_each(|part| assert!(printed.contains(part), "{part}: {printed}"));
    assert!(printed.contains("link slot: Gen3 x8, MPS 256 B"), "{printed}");
    let rows: Vec<Value> = serde_json::from_str(&read(folder.join("run.json"))).unwrap();
    let provenance = &rows[0]["provenance"];
    assert_eq!(provenance["changes"][0], "--set 'host.dram.access=90 ns'");
    assert!(provenance["command"].as_str().unwrap().starts_with("nearfar run bench.toml"));
    let files = provenance["files"].as_array().unwrap();
    let scenario = files.iter().find(|file| file["name"] == "bench.toml").expect("the scenario");
    assert_eq!(scenario["sha256"].as_str().unwrap().len(), 64);
    assert!(files.iter().any(|file| file["kind"] == "part") && rows[1]["provenance"].is_null());

    let outputs = ["--csv", "t.csv", "--json", "t.json", "--perfetto", "p.json"];
    done(nearfar(
        &folder,
        &[&["trace", "bench.toml", "--packets", "9", "--set", SET][..], &outputs].concat(),
    ));
    for file in ["t.csv.provenance.json", "t.json", "p.json"] {
        assert!(read(folder.join(file)).contains("host.dram.access=90 ns"), "{file}");
    }

    let over =
        ["--over", "dma_engine.tags=8..32x2", "--csv", "s.csv", "--report", "s.html", "--plot", "s.svg"];
    let printed = done(nearfar(&folder, &[&["sweep", "bench.toml", "-v", "--set", SET][..], &over].concat()));
    assert!(printed.contains("--over dma_engine.tags=8,16,32"), "{printed}");
    assert!(read(folder.join("s.html")).contains("dma_engine.tags=8,16,32"));
    assert!(read(folder.join("s.svg")).contains("<svg"));
    let csv = read(folder.join("s.csv"));
    assert!(csv.starts_with("kind,") && csv.lines().count() == 1 + 2 * 3, "{csv}");

    done(nearfar(&folder, &["run", "hosts.toml", "--set", "seed=7"]));
    let capture = std::fs::read(folder.join("x.pcapng")).unwrap();
    assert!(capture.windows(6).any(|part| part == b"seed 7"));
}

/// What cannot be written ends with status 2, and before anything is simulated where that can be known.
#[test]
fn what_cannot_be_written_is_told() {
    let folder = folder("unwritten");
    if Path::new("/dev/full").exists() {
        for arguments in [
            &["--help"][..],
            &["sweep", "--help"],
            &["machines"],
            &["run", "bench.toml"],
            &["run", "bench.toml", "--json", "-"],
        ] {
            let full = std::fs::File::create("/dev/full").unwrap();
            let output = command(&folder, arguments).stdout(full).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}");
            assert!(text(&output.stderr).contains("standard output cannot be written"), "{arguments:?}");
        }
    }
    // A folder that others made is told.
    let output = nearfar(&folder, &["run", "bench.toml", "--json", "new/x.json"]);
    assert!(text(&output.stderr).contains("made the folder new"), "{}", text(&output.stderr));
    // A scenario that would run for days: what cannot be written is told first.
    let days = BENCH.replace("samples = 500", "samples = 2000000000");
    std::fs::write(folder.join("days.toml"), days).unwrap();
    for option in ["--json", "--csv"] {
        let arguments = ["sweep", "days.toml", "--over", "seed=1,2", option, "/proc/nearfar.json"];
        let output = nearfar(&folder, &arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("cannot be written"), "{}", text(&output.stderr));
    }
    std::fs::write(folder.join("ever.toml"), BENCH.replace("samples = 500", "samples = 9000000000000000000"))
        .unwrap();
    let output = nearfar(&folder, &["run", "ever.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("ever.toml:12"), "{}", text(&output.stderr));
}

/// Results of one set-up do not come to lie among those of another.
#[test]
fn a_folder_of_results_is_of_one_set_up() {
    let folder = folder("set-ups");
    let bench = |more: &[&str]| {
        let fixed = ["bench", "--machine", "dell-t630", "--short", "--files", "lat_cmd_sizes"];
        nearfar(&folder, &[&fixed[..], more].concat())
    };
    done(bench(&["-o", "out"]));
    done(bench(&["-o", "out"]));
    let other = bench(&["-o", "out", "--set", "host.llc.ddio_ways=1"]);
    assert_eq!(other.status.code(), Some(2));
    let message = text(&other.stderr);
    assert!(message.contains("another set-up (nearfar bench") && message.contains("-o"), "{message}");
    let card = bench(&["-o", "y", "--card-set", "dma_engine.tag=1"]);
    assert!(text(&card.stderr).contains("--card-set:1:"), "{}", text(&card.stderr));
    // Beside the tables those for gnuplot.
    let dat = read(folder.join("out/lat_cmd_sizes.dat"));
    assert!(dat.starts_with("#        Test"), "{dat}");
    assert_eq!(read(folder.join("out/bw_calc.dat")).lines().count(), 1 + 2048);
}

/// Files of one's own of every kind are shown, and a name that is nearly right is guessed.
#[test]
fn ones_own_files_are_shown() {
    let folder = folder("own-files");
    let cases = [
        (
            "part.toml",
            "extends = \"nfp6000\"\nname = \"mine\"\ndma_engine.tags = { value = 16, source = \"assumed: fewer\" }\n",
            "dma_engine.tags",
        ),
        ("nic.toml", "extends = \"modern\"\nname = \"mine\"\n", "rx."),
        ("box.toml", "extends = \"dell-t430\"\nname = \"mine\"\n", "host.llc.ddio_ways"),
    ];
    for (name, file, wanted) in cases {
        std::fs::write(folder.join(name), file).unwrap();
        let printed = done(nearfar(&folder, &["machines", name]));
        assert!(printed.contains(wanted), "{name}: {printed}");
    }
    let output = nearfar(&folder, &["machines", "dell-t43"]);
    assert!(text(&output.stderr).contains("did you mean `dell-t430`"), "{}", text(&output.stderr));
}

/// What was simulated once is not simulated again, and comes out the same; a run that was killed leaves nothing half done.
#[test]
fn what_was_simulated_before_is_found_and_is_the_same() {
    let folder = folder("kept");
    let sweep = ["sweep", "bench.toml", "--over", "dma_engine.tags=8..32x2", "--json", "out.json", "--quiet"];
    let once = |more: &[&str]| {
        done(nearfar(&folder, &[&sweep[..], more].concat()));
        let rows: Vec<Value> = serde_json::from_str(&read(folder.join("out.json"))).unwrap();
        let rows = rows.into_iter().map(|mut row| {
            row.as_object_mut().unwrap().remove("provenance");
            row
        });
        rows.collect::<Vec<_>>()
    };
    let alone = once(&["--no-cache"]);
    assert!(!folder.join("cache").exists());
    // Killed at once, and when some of it is done.
    for wait in [0, 30, 120] {
        let mut child = command(&folder, &sweep).stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait));
        let _ = child.kill();
        let _ = child.wait();
        if let Ok(text) = std::fs::read_to_string(folder.join("out.json")) {
            serde_json::from_str::<Value>(&text).expect("the old file or the new one");
        }
    }
    assert_eq!(once(&[]), alone);
    let kept = || {
        let folders = std::fs::read_dir(folder.join("cache")).unwrap().flatten();
        folders.map(|folder| std::fs::read_dir(folder.path()).unwrap().count()).sum::<usize>()
    };
    assert!(kept() >= 6, "{}", kept());
    let before = kept();
    assert_eq!(once(&[]), alone);
    assert_eq!(kept(), before);
    // A scenario that leaves a capture is run each time.
    done(nearfar(&folder, &["run", "hosts.toml"]));
    std::fs::remove_file(folder.join("x.pcapng")).unwrap();
    done(nearfar(&folder, &["run", "hosts.toml"]));
    assert!(folder.join("x.pcapng").exists());
}

/// All files below a folder but those that begin with a point: what a kill leaves beside a file's place, and the cache.
fn contents(folder: &Path, above: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = above.join(entry.file_name());
        match (entry.path().is_dir(), entry.file_name().to_string_lossy().starts_with('.')) {
            (_, true) => {}
            (true, _) => contents(&entry.path(), &path, all),
            (false, _) => drop(all.insert(path, std::fs::read(entry.path()).unwrap())),
        }
    }
}

/// Kills a command at ten moments of its run, each time in a new folder, and runs it again there: in the end each folder is as one in
/// which nobody disturbed it.
fn ends_the_same_after_kills(name: &str, prepare: impl Fn(&Path), arguments: &[&str]) {
    let run = |folder: &Path| {
        let mut command = command(folder, arguments);
        command.env("NEARFAR_CACHE", folder.join(".cache"));
        command
    };
    let prepared = |n: usize| {
        let folder = folder(&format!("kill-{name}-{n}"));
        prepare(&folder);
        folder
    };
    let files = |folder: &Path| {
        let mut all = BTreeMap::new();
        contents(folder, Path::new(""), &mut all);
        all
    };
    let alone = prepared(0);
    let began = Instant::now();
    done(run(&alone).output().unwrap());
    let took = began.elapsed();
    let wanted = files(&alone);
    for n in 1..=10_u32 {
        let folder = prepared(n as usize);
        let mut child = run(&folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Spread over the run without a pattern: multiples of the golden ratio's fraction.
        std::thread::sleep(took.mul_f64((f64::from(n) * 0.618).fract()));
        let _ = child.kill();
        let _ = child.wait();
        for (path, bytes) in files(&folder) {
            // What a run before the kill wrote is whole. Of a folder, some files may be there already.
            assert_eq!(wanted.get(&path), Some(&bytes), "{}, kill {n}", path.display());
        }
        done(run(&folder).output().unwrap());
        let found = files(&folder);
        let (paths, same): (Vec<_>, Vec<_>) = (
            found.keys().collect(),
            wanted.keys().filter(|path| found.get(*path) != wanted.get(*path)).collect(),
        );
        assert_eq!(paths, wanted.keys().collect::<Vec<_>>());
        assert!(same.is_empty(), "{name}, kill {n}: {same:?} differ");
    }
}

#[test]
fn a_sweep_that_was_killed_ends_as_one_that_was_not() {
    let arguments = [
        "sweep",
        "bench.toml",
        "--over",
        "dma_engine.tags=8..32x2",
        "--json",
        "out.json",
        "--csv",
        "out.csv",
        "--report",
        "out.html",
        "--plot",
        "out.svg",
    ];
    ends_the_same_after_kills("sweep", |_| {}, &arguments);
}

const SUITE: [&str; 6] = ["bench", "--machine", "dell-t630", "--short", "--files", "lat_dma_sizes"];

#[test]
fn a_bench_that_was_killed_ends_as_one_that_was_not() {
    ends_the_same_after_kills("bench", |_| {}, &[&SUITE[..], &["-o", "out", "--json", "rows.json"]].concat());
}

#[test]
fn a_comparison_that_was_killed_ends_as_one_that_was_not() {
    const DIRECTORY: &str = "nfp6000-simulated_hsw-Xeon-E5-2620v3_dell-t630";
    let made = folder("kill-compare-from");
    done(nearfar(&made, &[&SUITE[..], &["-o", DIRECTORY]].concat()));
    let copy = |folder: &Path| {
        std::fs::create_dir_all(folder.join(DIRECTORY)).unwrap();
        for entry in std::fs::read_dir(made.join(DIRECTORY)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.join(DIRECTORY).join(entry.file_name())).unwrap();
        }
    };
    let arguments = ["compare", DIRECTORY, "--report", "out.html", "--json", "out.json"];
    ends_the_same_after_kills("compare", copy, &arguments);
}

/// Who stops a command is told that what was finished is kept.
#[cfg(unix)]
#[test]
fn a_command_that_is_stopped_says_what_is_kept() {
    let folder = folder("stopped");
    let whole = ["bench", "--machine", "dell-t630", "-o", "out"];
    let mut child = command(&folder, &whole).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let has_kept = || {
        let folders = std::fs::read_dir(folder.join("cache")).into_iter().flatten().flatten();
        folders.filter_map(|folder| std::fs::read_dir(folder.path()).ok()).flatten().count() > 1
    };
    while !has_kept() {
        assert!(child.try_wait().unwrap().is_none(), "it ends before anything is kept");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let stopped = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let ended = child.wait_with_output().unwrap();
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("are kept; the same command goes on from there"), "{said}");
}

/// A table for other programs says what it was made from, too, and is no text.
#[test]
fn parquet_says_what_it_was_made_from() {
    let folder = folder("parquet");
    done(nearfar(&folder, &["run", "bench.toml", "--set", SET, "--parquet", "rows.parquet"]));
    let bytes = std::fs::read(folder.join("rows.parquet")).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    assert!(bytes.windows(22).any(|part| part == b"host.dram.access=90 ns"));
    let refused = nearfar(&folder, &["run", "bench.toml", "--parquet", "-"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("cannot go to a terminal"), "{}", text(&refused.stderr));
}

/// One row for each value, held against the first.
#[test]
fn a_sweep_on_computers_is_a_table() {
    let folder = folder("sweep-computers");
    let hosts = HOSTS.replace("capture = [{ port = \"a\", file = \"x.pcapng\" }]\n", "");
    std::fs::write(folder.join("hosts.toml"), hosts).unwrap();
    let over = ["--over", "host.a.iommu=off,strict", "--json", "out.json", "--accounting"];
    let printed = done(nearfar(&folder, &[&["sweep", "hosts.toml"][..], &over].concat()));
    assert!(
        printed.contains("a.iommu") && printed.contains("strict") && printed.contains(" %)"),
        "{printed}"
    );
    assert!(printed.contains("what binds") && printed.contains("(idle)"), "{printed}");
    let rows: Vec<Value> = serde_json::from_str(&read(folder.join("out.json"))).unwrap();
    assert!(rows.iter().all(|row| row["kind"].is_string()), "{rows:?}");
    let strict = rows.iter().filter(|row| row["host.a.iommu"] == "strict");
    assert_eq!(2 * strict.count(), rows.iter().filter(|row| !row["host.a.iommu"].is_null()).count());
}

/// Where figures come from is said at the end; with drawn figures, each result is an interval.
#[test]
fn results_say_how_far_to_trust_them() {
    let folder = folder("trust");
    let printed = done(nearfar(&folder, &["run", "bench.toml", "--uncertainty", "3", "--json", "run.json"]));
    let said = printed.split_once("rests on ").expect("what results rest on").1.replace('\n', " ");
    assert!(said.contains(" figures: ") && said.contains(" assumed") && said.contains(" fitted"), "{said}");
    assert!(printed.contains("3 runs, each with the figures drawn anew"), "{printed}");
    let records: Vec<Value> = serde_json::from_str(&read(folder.join("run.json"))).unwrap();
    let of = |kind: &str| records.iter().filter(|record| record["kind"] == kind).collect::<Vec<_>>();
    assert_eq!(of("origins").len(), 1);
    let figures = of("figure");
    let access = figures.iter().find(|figure| figure["path"] == "host.dram.access").expect("it is in use");
    assert_eq!(
        (access["file"].as_str(), access["source_kind"].as_str()),
        (Some("dell-t430"), Some("fitted by hand"))
    );
    // Both sockets were there, and nothing crossed; no IOMMU translated.
    assert!(
        figures.iter().all(|figure| !figure["path"].as_str().unwrap().starts_with("host.iommu")),
        "unused"
    );
    let changed = figures.iter().find(|figure| figure["path"] == "host.llc.ddio_ways").unwrap();
    assert_eq!((changed["source_kind"].as_str(), changed["deviation"].as_str()), (Some("override"), None));
    // Of 500 samples, none lies beyond 99.9 % for sure.
    assert!(of("row")[0]["p999_ns"].is_null() && of("row")[0]["p95_ns"].is_number());
    let quantities: Vec<&str> = of("interval").iter().map(|one| one["quantity"].as_str().unwrap()).collect();
    assert_eq!(quantities, ["median", "95th percentile", "goodput"]);
    for text in ["0", "1"] {
        let refused = nearfar(&folder, &["run", "bench.toml", "--uncertainty", text]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(complaints(&refused).contains("takes several runs"), "{}", complaints(&refused));
    }
    let refused = nearfar(&folder, &["run", "hosts.toml", "--uncertainty", "2"]);
    assert!(complaints(&refused).contains("cannot be run again and again"), "{}", complaints(&refused));
}

/// What a command complained of, on one line.
fn complaints(output: &Output) -> String {
    text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}
