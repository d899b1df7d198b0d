//! The program as its users call it: exit codes, messages, files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn nearfar(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    // What the program is to simulate, it simulates.
    command.args(arguments).arg("--no-cache").output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn wrong_names_are_told_with_the_right_ones() {
    let cases: [(&[&str], &str); 10] = [
        (&["run", "latency-by-sizes"], "did you mean `latency-by-size`"),
        (&["bench", "--machine", "dell-t43"], "did you mean `dell-t430`"),
        (&["run", "latency-by-size", "--set", "change.host.llc.ddio_wys=1"], "did you mean `ddio_ways`"),
        (&["bench", "--machine", "dell-t630", "--sockets", "s0-s1-s1", "--short"], "its only socket is 0"),
        (&["model", "--lanes", "3"], "x3 is not a link width"),
        (&["trace", "latency-by-size", "--type", "MRdd"], "MRd, MRd(32)"),
        (&["trace", "latency-by-size", "--link", "nowhere"], "there is slot"),
        (&["trace", "kpio-send", "--link", "nowhere"], "there are slot"),
        (&["trace", "latency-by-size", "--run", "99"], "has runs 1 to"),
        (&["compare", "/nowhere"], "/nowhere"),
    ];
    for (arguments, wanted) in cases {
        let output = nearfar(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let message = text(&output.stderr);
        assert!(message.contains(wanted), "{arguments:?}: {message}");
    }
}

/// Runs that find caches alike share them, whichever of them comes first.
#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let folder = folder("threads");
    for (setting, file) in [
        (&["--sockets", "s0-s1-s1", "--iommu", "4k"][..], "bw_dma_win_sweep_wr_rnd_64.csv"),
        (&["--sockets", "s0-s0-s1"][..], "lat_dma_sweep_wrrd_rnd_64.csv"),
    ] {
        let written = ["1", "2", "5"].map(|jobs| {
            let output = folder.join(format!("{jobs}-{file}"));
            let fixed = ["bench", "--machine", "dell-t430", "--short", "--files", file, "--jobs", jobs, "-o"];
            let done = nearfar(&[&fixed[..], &[output.to_str().unwrap()], setting].concat());
            assert!(done.status.success(), "{}", text(&done.stderr));
            std::fs::read(output.join(file)).unwrap()
        });
        assert!(written.windows(2).all(|two| two[0] == two[1]), "{file} {setting:?}");
    }
}

/// What `bench` writes, `compare` reads; the same run is the same result, whatever the number of threads.
#[test]
fn a_simulated_directory_compares_with_itself() {
    let folder = folder("self");
    let directory = folder.join("nfp6000-simulated_hsw-Xeon-E5-2620v3_dell-t630");
    let directory = directory.to_str().unwrap();
    let bench = |jobs, output| {
        let arguments = ["bench", "--machine", "dell-t630", "--files", "lat_dma_sizes.csv", "--jobs", jobs];
        let output = nearfar(&[&arguments[..], &["--short", "-o", output]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    bench("1", directory);
    let other = folder.join("again");
    bench("2", other.to_str().unwrap());
    let read = |folder: &Path| std::fs::read(folder.join("lat_dma_sizes.csv")).unwrap();
    assert_eq!(read(Path::new(directory)), read(&other));
    let rows = folder.join("rows.json");
    let output = nearfar(&["compare", directory, "--check", "--json", rows.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(rows).unwrap()).unwrap();
    let keys: Vec<&String> = rows[0].as_object().unwrap().keys().collect();
    let mut wanted = vec![
        "file",
        "row",
        "test",
        "pattern",
        "cache",
        "window_bytes",
        "transfer_bytes",
        "host_offset",
        "device_offset",
        "quantity",
        "unit",
        "measured",
        "simulated",
        "error_pct",
        // Beyond what the format promises.
        "artefact",
        "cause",
        "directory",
        "machine",
        "p95",
        "p999",
        // Of the first record alone.
        "provenance",
    ];
    wanted.sort_unstable();
    let mut keys: Vec<&str> = keys.into_iter().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, wanted);
    assert!(rows.iter().all(|row| row["error_pct"] == 0.0), "{rows:?}");
}

/// One bad file is told, the others are compared, and the status says so.
#[test]
fn a_bad_file_does_not_hide_the_others() {
    let folder = folder("bad").join("nfp6000-simulated_hsw-Xeon-E5-2620v3_dell-t630");
    let path = folder.to_str().unwrap();
    let made =
        nearfar(&["bench", "--machine", "dell-t630", "--files", "lat_cmd_sizes", "--short", "-o", path]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    std::fs::write(folder.join("lat_dma_sizes.csv"), "").unwrap();
    let output = nearfar(&["compare", path]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("lat_dma_sizes.csv") && message.contains("empty"), "{message}");
    assert!(text(&output.stdout).contains("lat_cmd_sizes"), "{}", text(&output.stdout));
}

/// A folder whose name does not say what it is of can be compared by the command that `bench` tells.
#[test]
fn a_folder_of_any_name_is_compared_by_the_command_that_is_told() {
    let folder = folder("named");
    let path = folder.join("mine");
    let path = path.to_str().unwrap();
    let set_up = ["bench", "--machine", "dell-t430", "--sockets", "s0-s1-s1", "--iommu", "4k"];
    let what = ["--files", "lat_cmd_sizes", "--short", "-o", path];
    let made = nearfar(&[&set_up[..], &what].concat());
    let told = text(&made.stderr);
    let command = told.split('`').find(|part| part.starts_with("nearfar compare")).expect("it is told");
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    assert!(words.ends_with(&["--sockets", "s0-s1-s1", "--iommu", "4k"]), "{command}");
    let compared = nearfar(&words);
    assert!(compared.status.success(), "{}", text(&compared.stderr));
    let like_pcie_bench = folder.join("nfp6000-simulated_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0");
    let made = nearfar(&[
        "bench",
        "--machine",
        "dell-t430",
        "--files",
        "lat_cmd_sizes",
        "--short",
        "-o",
        like_pcie_bench.to_str().unwrap(),
    ]);
    assert!(!text(&made.stderr).contains("nearfar compare"), "{}", text(&made.stderr));
}

/// Two simulations that differ by a change are held to nothing, in whatever form they are shown.
#[test]
fn no_target_holds_a_folder_that_was_simulated() {
    let folder = folder("simulated").join("nfp6000-simulated_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0");
    let path = folder.to_str().unwrap();
    let made =
        nearfar(&["bench", "--machine", "dell-t430", "--files", "lat_dma_sizes", "--short", "-o", path]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let [page, summary] = ["page.html", "summary.json"].map(|name| folder.with_file_name(name));
    let change = ["--set", "host.llc.device_lookup=\"400 ns\"", "--check"];
    let outputs = ["--report", page.to_str().unwrap(), "--summary-json", summary.to_str().unwrap()];
    let output = nearfar(&[&["compare", path][..], &change, &outputs].concat());
    assert!(output.status.success(), "nothing is outside: {}", text(&output.stderr));
    let page = std::fs::read_to_string(page).unwrap();
    for (shown, words) in
        [(&text(&output.stdout), "OUTSIDE"), (&page, "Measured directories"), (&page, "verdict")]
    {
        assert!(!shown.contains(words), "{words}: {shown}");
    }
    let summaries: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(summary).unwrap()).unwrap();
    let families = summaries[0]["summary"]["families"].as_array().unwrap();
    assert!(families.iter().any(|family| family["worst_pct"].as_f64() > Some(10.0)), "{families:?}");
    assert!(families.iter().all(|family| family["target"].is_null() && family["within"].is_null()));
}

#[test]
fn machines_and_model_are_listed() {
    let output = nearfar(&["machines", "--json", "-"]);
    let all: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(all.iter().any(|one| one["name"] == "dell-t430" && one["kind"] == "machine"));
    let output = nearfar(&["machines", "dell-t430"]);
    assert!(text(&output.stdout).contains("host.llc.ddio_ways"));
    let output = nearfar(&["model"]);
    // With and without what pcie-bench's public code leaves out.
    for rate in ["42.10", "12.19", "16.47", "18.88", "13.23", "18.44", "21.51"] {
        assert!(text(&output.stdout).contains(rate), "{rate}: {}", text(&output.stdout));
    }
}

/// A sweep runs every combination.
#[test]
fn a_sweep_has_a_row_for_each_value() {
    let arguments = [
        "sweep",
        "latency-by-size",
        "--over",
        "pcie_bench.test=\"LAT_RD\"",
        "--over",
        "host.llc.ddio_ways=1,2",
    ];
    let output = nearfar(&[&arguments[..], &["--json", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    // Where the figures come from follows.
    assert_eq!(rows.iter().filter(|row| row["kind"] == "row").count(), 2 * 9);
    assert_eq!((&rows[0]["host.llc.ddio_ways"], &rows[0]["kind"]), (&1.into(), &"row".into()));
}

/// Programs on computers: rows with what they measured, and exit codes that say how it went.
#[test]
fn programs_of_a_scenario_are_run_and_reported() {
    let output = nearfar(&["run", "dd-verify", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let verified = rows.iter().filter(|row| row["quantity"] == "verified").count();
    assert_eq!(verified, 2, "{rows:?}");
    let folder = folder("programs");
    let run = |program: &str| {
        let path = folder.join("x.toml");
        let host = "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n";
        std::fs::write(&path, format!("{host}[[program]]\nrun = \"{program}\"\n")).unwrap();
        nearfar(&["run", path.to_str().unwrap()])
    };
    let failed = run("iperf -c 127.0.0.1");
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stdout).contains("connection refused"), "{}", text(&failed.stdout));
    let crash = "ping -c 9 127.0.0.1\"\n[[event]]\nat = \"1 ms\"\ndo = \"crash\"\nwhat = \"a";
    let stopped = run(crash);
    assert_eq!(stopped.status.code(), Some(0), "as it was meant");
    for words in ["its host crashed at 1 ms", "event: crash a", "happened"] {
        assert!(text(&stopped.stdout).contains(words), "{words}: {}", text(&stopped.stdout));
    }
    // What cannot be is bad input, whichever command reads the scenario.
    let scenario = folder.join("x.toml");
    let scenario = scenario.to_str().unwrap();
    for (line, words) in
        [("fio --rw=randomread", "randread"), ("dd if=/dev/nvme0n1 of=/dev/null", "no block device")]
    {
        assert_eq!(run(line).status.code(), Some(2));
        for arguments in [vec!["run", scenario], vec!["tree", scenario], vec!["trace", scenario]] {
            let wrong = nearfar(&arguments);
            let message = text(&wrong.stderr);
            assert_eq!(wrong.status.code(), Some(2), "{arguments:?}: {message}");
            assert!(message.contains("x.toml:7") && message.contains(words), "{arguments:?}: {message}");
        }
    }
}

/// What `trace` writes is what it shows, in the formats of its files.
#[test]
fn trace_formats_tell_the_same_packets() {
    let folder = folder("trace");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (csv, json, perfetto) = (path("t.csv"), path("t.json"), path("t.perfetto.json"));
    let arguments =
        ["trace", "kpio-send", "--packets", "24", "--csv", &csv, "--json", &json, "--perfetto", &perfetto];
    let output = nearfar(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let listing = text(&output.stdout);
    assert!(listing.contains("MWr(64)") && listing.contains("Gen1 x4"), "{listing}");
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&csv).lines().count(), 1 + 24);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&read(&json)).unwrap();
    assert_eq!(rows.len(), 24);
    // Before it sends, pktgen reads how much the NIC has sent.
    assert_eq!((rows[0]["type"].as_str(), rows[0]["time_ns"].as_f64()), (Some("MRd(32)"), Some(0.0)));
    let trace: serde_json::Value = serde_json::from_str(&read(&perfetto)).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|event| event["ph"] == "f"));
}

#[test]
fn a_scenario_is_accounted_for() {
    let folder = folder("accounting");
    let (scenario, json) = (folder.join("short.toml"), folder.join("rows.json"));
    let lines = "name = \"short\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n\
                 [[host.device]]\ndrive = \"optane-900p\"\n[[program]]\ncpus = \"0\"\n\
                 run = \"fio --rw=randread --runtime=200us\"\n";
    std::fs::write(&scenario, lines).unwrap();
    let (scenario, json) = (scenario.to_str().unwrap(), json.to_str().unwrap());
    let output = nearfar(&["run", scenario, "--accounting", "--json", json]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    for word in ["% of a core", "fio/0", "(interrupts)", "(idle)", "driver", "block", "read iops"] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    let rows: Vec<serde_json::Value> = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let idle = rows.iter().find(|row| row["account"] == "(idle)").unwrap();
    assert!(idle["part"] == "idle" && idle["time_ns"].as_f64().unwrap() > 0.0, "{idle}");
    // Without an operating system there is nothing to account for.
    let output = nearfar(&["run", "latency-by-size", "--accounting"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("scenarios with computers"));
}

/// An empty trace says why it is empty; a sweep says what has no effect; tables keep the width.
#[test]
fn what_is_empty_or_without_effect_is_told() {
    let cases: [(&[&str], &str); 4] = [
        (&["trace", "kpio-send", "--from", "5s"], "give an earlier --from"),
        (&["trace", "latency-by-size", "--type", "IORd"], "there were Ack, CplD, MRd(64)"),
        (
            &["trace", "dd-verify", "--link", "slot", "--type", "Msg", "--packets", "5"],
            "of a type that --type",
        ),
        (
            &["sweep", "remote-memory", "--over", "host.llc.core_hit=20 ns,21 ns"],
            "no row depends on `host.llc.core_hit`",
        ),
    ];
    for (arguments, wanted) in cases {
        let output = nearfar(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(wanted), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn tables_fit_the_terminal() {
    let cases: [&[&str]; 6] = [
        &["machines"],
        &["machines", "dell-t430"],
        &["programs"],
        &["model"],
        &["run", "latency-by-size"],
        &["tree", "pktgen"],
    ];
    for arguments in cases {
        for width in [80, 100] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
            let output = command.args(arguments).env("COLUMNS", width.to_string()).output().unwrap();
            let printed = text(&output.stdout);
            let widest = printed.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width, "{arguments:?} takes {widest} of {width} columns:\n{printed}");
        }
    }
}

/// Whatever the library has can be shown by its name, and by the path of its file.
#[test]
fn everything_listed_can_be_shown() {
    let all = nearfar(&["machines", "--json", "-"]);
    let all: Vec<serde_json::Value> = serde_json::from_slice(&all.stdout).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = |path: &str| root.join(path).to_str().unwrap().to_owned();
    let paths = ["machines/parts/nfp6000.toml", "machines/nics/modern.toml", "scenarios/netperf.toml"];
    let names = all.iter().map(|one| one["name"].as_str().unwrap().to_owned());
    for name in names.chain(paths.map(file)) {
        let output = nearfar(&["machines", &name]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
        assert!(text(&output.stdout).lines().count() > 3, "{name}");
    }
}
