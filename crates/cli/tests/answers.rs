//! Commands answer what was asked: in a sentence, for the part that was asked for, and by the names that were given.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("answers-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn nearfar(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    command.current_dir(folder).env("NEARFAR_CACHE", folder.join("cache")).env("COLUMNS", "100");
    command.args(arguments).output().expect("the program starts")
}

/// What it prints, without line breaks.
fn told(folder: &Path, arguments: &[&str]) -> String {
    let output = nearfar(folder, arguments);
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {out}{err}");
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = nearfar(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The difference between programs alike, and provenance only where it is asked for.
#[test]
fn a_run_ends_with_its_answer() {
    let folder = folder("run");
    let printed = told(&folder, &["run", "fio-remote", "--json", "out.json"]);
    has(
        &printed,
        &["answer: remote is 1.0", "times slower than local (read iops: ", "what binds: nothing is full"],
    );
    assert!(!printed.contains("machines/dell-t430.toml"), "{printed}");
    has(
        &told(&folder, &["run", "fio-remote", "-v"]),
        &["seed 1: nearfar run fio-remote -v", "machines/dell-t430.toml"],
    );
    let json = std::fs::read_to_string(folder.join("out.json")).unwrap();
    assert!(json.contains("machines/dell-t430.toml"));
    // Two programs of one result are compared by their names.
    let compared =
        told(&folder, &["diff", "out.json", "out.json", "--map", "local=remote", "--least", "0.1"]);
    has(&compared, &["read iops", "read clat mean"]);
    let wrong = refused(&folder, &["diff", "out.json", "out.json", "--map", "locl=remote"]);
    has(&wrong, &["no host, device or program of out.json is called `locl`"]);
}

#[test]
fn a_part_of_a_paper_is_counted_alone() {
    let folder = folder("reproduce");
    let listed = told(&folder, &["reproduce", "ioctopus", "--figure", "8", "--list"]);
    has(&listed, &["fig8/ratio/64", "11 claims, 3 figures; ", "pktgen local 64"]);
    assert!(!listed.contains("fig7/") && !listed.contains("experiments simulated"), "{listed}");
    let json = nearfar(&folder, &["reproduce", "--only", "fig8/ratio/64", "--list", "--json", "-"]);
    let rows: Vec<Value> = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["id"], "ioctopus/fig8/ratio/64");
    let one = told(&folder, &["reproduce", "ioctopus", "--only", "RR local 64"]);
    has(&one, &["1 experiments simulated"]);
    assert!(!one.contains("not modelled") && !one.contains("0 of "), "{one}");
    has(&refused(&folder, &["reproduce", "ioctopus", "--figure", "99"]), &["figure `99`", "fig8"]);
    has(&refused(&folder, &["reproduce", "--only", "nothing like it"]), &["nothing like it", "--list"]);
    let wrong = refused(&folder, &["reproduce", "ioctopus", "--figure", "8", "--set", "host.llc.ddio_way=0"]);
    has(&wrong, &["host.llc.ddio_way", "did you mean `host.llc.ddio_ways`?"]);
}

/// A changed machine is what is simulated, and the output says so.
#[test]
fn what_is_changed_in_a_paper_is_told() {
    let folder = folder("reproduce-set");
    let of = |more: &[&str]| {
        told(&folder, &[&["reproduce", "ioctopus", "--only", "RR local 64"][..], more].concat())
    };
    let (plain, changed) = (of(&["-v"]), of(&["-v", "--set", "host.core.frequency=1.1 GHz"]));
    has(
        &changed,
        &[
            "--set in machines/dell-r730.toml: host.core.frequency = 1.1 GHz",
            "verdicts are about what was changed",
        ],
    );
    let us = |text: &str| -> f64 {
        let (_, rest) = text.split_once("rr-us/ll/64 = ").unwrap_or_else(|| panic!("{text}"));
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    assert!(us(&changed) > 1.3 * us(&plain), "{} {}", us(&changed), us(&plain));
}

#[test]
fn options_of_programs_are_swept_over_numbers() {
    let folder = folder("sweep");
    let over = ["sweep", "pktgen", "--set", "program.0.n=3000", "--over", "program.pktgen.size=64..256x2"];
    let printed = told(&folder, &[&over[..], &["--json", "out.json", "--plot", "rate.svg"]].concat());
    has(&printed, &["pktgen size (B)", "pktgen -i eth0 -s … -n 3000", "answer: "]);
    let rows: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(folder.join("out.json")).unwrap()).unwrap();
    let sizes: Vec<&Value> =
        rows.iter().filter(|row| row["quantity"] == "rate").map(|row| &row["program.pktgen.size"]).collect();
    assert_eq!(sizes, [64, 128, 256]);
    let picture = std::fs::read_to_string(folder.join("rate.svg")).unwrap();
    has(&picture, &["\n64 B\n", "\npktgen size\n", "rate over pktgen size"]);
    assert!(!picture.contains("var(--"), "every program reads its colours");
    told(&folder, &[&over[..], &["--plot", "rate.pdf"]].concat());
    assert!(std::fs::read(folder.join("rate.pdf")).unwrap().starts_with(b"%PDF-"));
    let wrong = refused(&folder, &["run", "pktgen", "--set", "program.0.sise=64"]);
    has(&wrong, &["pktgen has no option `sise`"]);
    let wrong = refused(&folder, &["run", "pktgen", "--set", "program.7.size=64"]);
    has(&wrong, &["there is no program `7`", "0: pktgen"]);
}

#[test]
fn what_more_would_bring_is_a_table() {
    let folder = folder("what-if");
    let printed = told(&folder, &["run", "fio-randread", "--what-if", "--json", "out.json"]);
    has(&printed, &["What more would bring `fio ", "simulated again with gain", "(named) a tenth more +"]);
    has(&printed, &["More of what is named helps most."]);
    let rows: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(folder.join("out.json")).unwrap()).unwrap();
    let gains: Vec<&Value> = rows.iter().filter(|row| row["kind"] == "gain").collect();
    let named = gains.iter().find(|gain| gain["named"] == true).expect("what is named");
    assert!(named["gain_pct"].as_f64().unwrap() > 1.0, "{named}");
    assert!(gains.len() > 1, "{gains:?}");
    has(
        &refused(&folder, &["run", "latency-by-size", "--what-if"]),
        &["--what-if are for scenarios with computers"],
    );
}

#[test]
fn a_trace_ends_at_a_time_or_a_stall() {
    let folder = folder("trace");
    let all = ["trace", "pktgen", "--link", "a/slot", "--csv", "out.csv"];
    told(&folder, &[&all[..], &["--until", "15 us"]].concat());
    let csv = std::fs::read_to_string(folder.join("out.csv")).unwrap();
    assert!(csv.lines().count() > 20, "{csv}");
    let stalled = told(
        &folder,
        &["trace", "pktgen", "--until", "stall:100ns", "--packets", "5", "--set", "program.0.size=1500"],
    );
    has(&stalled, &["stopped ", "non-posted header credits on the link of a's nic0, to the host waited for"]);
    has(&refused(&folder, &["trace", "pktgen", "--until", "soon"]), &["soon", "stall"]);
}

#[test]
fn what_lending_costs_is_a_table() {
    let folder = folder("lend");
    let printed = told(&folder, &["lend", "cost", "lend-nvme", "--json", "out.json"]);
    has(&printed, &["b:ssd in b", "own lent difference change", "read clat mean", "CPU for each operation"]);
    has(&printed, &["answer: b:ssd lent to a is 1.", "times slower than the own device"]);
    let rows: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(folder.join("out.json")).unwrap()).unwrap();
    let mean = rows.iter().find(|row| row["quantity"] == "read clat mean").expect("a latency");
    assert!(mean["lent"].as_f64() > mean["own"].as_f64(), "{mean}");
    assert_eq!((&mean["cables"], &mean["lender"]), (&1.into(), &"b".into()));
    has(&refused(&folder, &["lend", "cost", "ping"]), &["it lends nothing"]);
}

/// What disturbs a program is told where it costs something, and only there.
#[test]
fn disturbances_that_cost_something_are_told() {
    let folder = folder("disturbed");
    let scenario = "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\niommu = \"strict\"\n\
        [[host.device]]\nname = \"ssd\"\ndrive = \"optane-900p\"\n\
        [[program]]\nrun = \"fio --rw=randread --bs=4k --ioengine=libaio --iodepth=8 --runtime=1ms\"\n";
    let errors = "[[event]]\nat = \"100 us\"\ndo = \"error-rate\"\nwhat = \"a:ssd\"\nrate = 2e-5\n";
    std::fs::write(folder.join("clean.toml"), scenario).unwrap();
    std::fs::write(folder.join("errors.toml"), scenario.to_owned() + errors).unwrap();
    let clean = told(&folder, &["run", "clean.toml"]);
    has(&clean, &["IOMMU of a: ", "flushes; mapping and flushing took "]);
    assert!(!clean.contains("bit errors"), "{clean}");
    has(&told(&folder, &["run", "errors.toml"]), &["bit errors on the link of a's ssd, to the host: "]);
    let off = told(&folder, &["run", "clean.toml", "--set", "host.a.iommu=off"]);
    assert!(!off.contains("flushes"), "{off}");
}
