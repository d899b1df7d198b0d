//! Files from strangers and bad days: nothing is overwritten that was not meant, and nothing half done is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Two hosts; `ping` takes a moment.
const HOSTS: &str = "name = \"x\"\nsummary = \"x\"\n\
    [[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"modern\"\n\
    [[host]]\nname = \"b\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"modern\"\n\
    [[cable]]\nends = [\"a\", \"b\"]\n[[program]]\nhost = \"a\"\nrun = \"ping -c 1 10.0.0.2\"\n";
/// A host with a drive that keeps its blocks.
const DRIVE: &str = "name = \"d\"\nsummary = \"d\"\n\
    [[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n[[host.device]]\ndrive = \"optane-900p\"\nbacking = \"x.img\"\n\
    [[program]]\nhost = \"a\"\nrun = \"dd if=/dev/urandom of=/dev/nvme0n1 bs=64k count=2 oflag=direct\"\n";

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("strangers-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("hosts.toml"), HOSTS).unwrap();
    fs::write(folder.join("drive.toml"), DRIVE).unwrap();
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    command.current_dir(folder).env("NEARFAR_CACHE", folder.join(".cache")).args(arguments);
    command
}

fn nearfar(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("the program starts")
}

fn shell(folder: &Path, script: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.current_dir(folder).env("NEARFAR_CACHE", folder.join(".cache"));
    shell
        .env("nearfar", env!("CARGO_BIN_EXE_nearfar"))
        .args(["-c", script])
        .output()
        .expect("there is a shell")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn done(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    said(&output)
}

/// All files of a folder but the cache.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.is_file() && !path.ends_with("x.img"));
    files
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect()
}

fn refused(folder: &Path, arguments: &[&str], words: &str) {
    let before = contents(folder);
    let output = nearfar(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
    let told = said(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains(words), "{arguments:?}: {told}");
    assert_eq!(contents(folder), before, "{arguments:?} touched something");
}

fn with_capture(file: &str) -> String {
    HOSTS.replacen("[[host]]", &format!("[[capture]]\nport = \"a\"\nfile = {file:?}\n[[host]]"), 1)
}

#[test]
fn a_scenario_writes_only_what_is_its_own() {
    let folder = folder("own");
    fs::write(folder.join("notes.txt"), "mine").unwrap();
    fs::create_dir(folder.join("below")).unwrap();
    let outside = folder.join("outside");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, folder.join("link")).unwrap();
    let absolute = folder.join("abs.pcapng").display().to_string();
    for (file, words) in [
        ("cap.toml", "not a capture that nearfar wrote"),
        ("notes.txt", "not a capture that nearfar wrote"),
        ("../x.pcapng", "not below"),
        (&*absolute, "not below"),
        ("link/x.pcapng", "symbolic link"),
        (".bashrc", "does not begin with a point"),
    ] {
        fs::write(folder.join("cap.toml"), with_capture(file)).unwrap();
        // What is read is told first, and is as well refused.
        let words = if file == "cap.toml" { "is read" } else { words };
        refused(&folder, &["run", "cap.toml", "--json", "out.json"], words);
    }
    for file in ["notes.txt", "drive.toml", "../x.img", &absolute, "link/x.img"] {
        fs::write(folder.join("drive.toml"), DRIVE.replace("x.img", file)).unwrap();
        refused(&folder, &["run", "drive.toml"], if file == "drive.toml" { "is read" } else { "x" });
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // Twice what is its own, below its folder from anywhere, and below another one.
    fs::write(folder.join("cap.toml"), with_capture("below/x.pcapng")).unwrap();
    for _ in 0..2 {
        done(nearfar(&outside, &["run", "../cap.toml", "--no-cache"]));
    }
    assert!(folder.join("below/x.pcapng").exists() && fs::read_dir(&outside).unwrap().count() == 0);
    fs::create_dir(outside.join("below")).unwrap();
    done(nearfar(&folder, &["run", "cap.toml", "--folder", "outside"]));
    assert!(outside.join("below/x.pcapng").exists());
    refused(&folder, &["run", "cap.toml", "--folder", "none"], "there is no folder `none`");
    // Points of a sweep would replace each other's.
    refused(
        &folder,
        &["sweep", "cap.toml", "--over", "seed=1,2"],
        "at each point of a sweep, where it is left out",
    );
}

#[test]
fn a_drive_keeps_its_blocks_in_what_is_its_own() {
    let folder = folder("blocks");
    done(nearfar(&folder, &["run", "drive.toml"]));
    done(nearfar(&folder, &["run", "drive.toml"]));
    let length = fs::metadata(folder.join("x.img")).unwrap().len();
    for line in [
        "export drive.toml -o x.img",
        "export drive.toml --as capture -o ./x.img",
        "draw drive.toml -o x.img",
    ] {
        let output = nearfar(&folder, &line.split(' ').collect::<Vec<_>>());
        assert!(
            output.status.code() == Some(2) && said(&output).contains("both write to"),
            "{line}: {}",
            said(&output)
        );
    }
    refused(
        &folder,
        &["run", "drive.toml", "--set", "host.a.device.0.drive=optane-p4800x"],
        "it holds a drive of",
    );
    assert_eq!(fs::metadata(folder.join("x.img")).unwrap().len(), length);
    refused(&folder, &["run", "drive.toml", "--json", "./x.img"], "both write to");
    // Whoever only looks leaves nothing, and what cannot be is told before.
    fs::remove_file(folder.join("x.img")).unwrap();
    done(nearfar(&folder, &["export", "drive.toml", "-o", "a.xml"]));
    done(nearfar(&folder, &["tree", "drive.toml"]));
    refused(&folder, &["run", "drive.toml", "--uncertainty", "2"], "cannot be run again and again");
    refused(&folder, &["tree", "drive.toml", "--nvme", "x.img"], "both write to");
    assert!(!folder.join("x.img").exists());
}

#[test]
fn an_output_is_no_input_and_no_second_output() {
    let folder = folder("apart");
    done(nearfar(&folder, &["run", "hosts.toml", "-q", "--json", "a.json"]));
    fs::hard_link(folder.join("a.json"), folder.join("hard.json")).unwrap();
    std::os::unix::fs::symlink("hosts.toml", folder.join("soft.toml")).unwrap();
    std::os::unix::fs::symlink(".", folder.join("here")).unwrap();
    std::os::unix::fs::symlink("x", folder.join("dangling")).unwrap();
    let read = "is read";
    let both = "both write to";
    let cases: [(&[&str], &str); 18] = [
        (&["run", "hosts.toml", "--json", "hosts.toml"], read),
        (&["run", "hosts.toml", "--json", "./hosts.toml"], read),
        (&["run", "hosts.toml", "--json", "soft.toml"], read),
        (&["run", "soft.toml", "--csv", "here/hosts.toml"], read),
        (&["run", "hosts.toml", "--json", "x", "--csv", "./x"], both),
        (&["run", "hosts.toml", "--json", "x", "--csv", "here/x"], both),
        (&["run", "hosts.toml", "--json", "x", "--csv", "dangling"], both),
        (&["run", "hosts.toml", "--json", "a.json", "--parquet", "hard.json"], both),
        (&["run", "hosts.toml", "--csv", "x", "--json", "x.provenance.json"], both),
        (&["run", "hosts.toml", "--json", "-", "--csv", "/dev/stdout"], both),
        (&["sweep", "hosts.toml", "--over", "seed=1", "--report", "x", "--plot", "./x"], both),
        (&["sweep", "hosts.toml", "--over", "seed=1", "--report", "./hosts.toml"], read),
        (&["trace", "hosts.toml", "--pcapng", "soft.toml"], read),
        (&["tree", "hosts.toml", "--json", "hosts.toml"], read),
        (&["diff", "a.json", "hard.json", "--json", "./a.json"], read),
        (&["machines", "hosts.toml", "--json", "hosts.toml"], read),
        (&["reference", "nic", "--markdown", "x", "--schema", "./x"], both),
        (&["bench", "--machine", "dell-t430", "--short", "-o", "o", "--json", "o/provenance.json"], both),
    ];
    for (arguments, words) in cases {
        refused(&folder, arguments, words);
    }
    let printed = shell(&folder, "$nearfar run hosts.toml -q --json same > same");
    assert_eq!(printed.status.code(), Some(2), "{}", said(&printed));
    // Nothing is kept by a device, so it may be named twice.
    done(nearfar(&folder, &["run", "hosts.toml", "-q", "--json", "/dev/null", "--csv", "/dev/null"]));
    assert!(!Path::new("/dev/null.provenance.json").exists());
}

/// What is read about real machines, and other tools' outputs, is no output either.
#[test]
fn an_output_is_no_source() {
    let folder = folder("sources");
    let write = |name: &str, text: &str| {
        fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        fs::write(folder.join(name), text).unwrap();
    };
    write("hwloc.xml", include_str!("../../fuzzing/corpus/survey_source/hwloc1.xml"));
    write("numa.txt", include_str!("../../fuzzing/corpus/survey_source/numactl.txt"));
    write("fio.json", include_str!("../../fuzzing/corpus/tool_output/fio.json"));
    write("lent.toml", include_str!("../../../scenarios/lend-nvme.toml"));
    write("live.toml", include_str!("../../../tools/live/nics.toml"));
    write("m.toml", include_str!("../../../machines/dell-t430.toml"));
    write("child.toml", "extends = \"./m.toml\"\n");
    write("img/proc/cpuinfo", "processor: 0\n");
    write("img/sys/devices/system/node/node0/cpulist", "0\n");
    std::os::unix::fs::symlink("img/proc/cpuinfo", folder.join("soft")).unwrap();
    std::os::unix::fs::symlink(".", folder.join("here")).unwrap();
    let cpuinfo = folder.join("img/proc/cpuinfo");
    let live = |rest: &[&'static str]| {
        let all = [
            "live",
            "live.toml",
            "--qemu",
            "here/qemu",
            "--kernel",
            "kernel",
            "--initrd",
            "initrd",
            "--disk",
            "disk",
        ];
        [&all[..], rest].concat()
    };
    for name in ["qemu", "kernel", "initrd", "disk"] {
        write(name, "mine");
    }
    write("gpu.toml", include_str!("../../../machines/gpus/k420.toml"));
    let cases: [&[&str]; 23] = [
        &live(&["--record", "./disk"]),
        &live(&["--record", "here/kernel"]),
        &live(&["--pcapng", "initrd"]),
        &live(&["--pcapng", "qemu"]),
        &["p2p", "m.toml", "--gpu", "gpu.toml", "--json", "here/gpu.toml"],
        &["export", "hosts.toml", "-o", "./hosts.toml"],
        &["export", "hwloc.xml", "--as", "nccl", "-o", "here/hwloc.xml"],
        &["inspect", "hwloc.xml", "numa.txt", "--json", "./numa.txt"],
        &["inspect", "hwloc.xml", "--svg", "here/hwloc.xml"],
        &["inspect", ".", "--json", "numa.txt"],
        &["inspect", "img", "--json", "img/proc/cpuinfo"],
        &["inspect", "img", "--svg", "soft"],
        &["capture", "--root", "img", "-o", "here/img/proc/cpuinfo"],
        &["import", "hwloc.xml", "--from", "m.toml", "-o", ".", "--name", "m"],
        &["compare", "fio.json", "--machine", "dell-t430", "--csv", "./fio.json"],
        &["compare", "fio.json", "--machine", "m.toml", "--json", "here/m.toml"],
        &["lend", "cost", "lent.toml", "--json", "./lent.toml"],
        &["lend", "cost", "lent.toml", "--set", "host.a.machine=./m.toml", "--json", "m.toml"],
        &["p2p", "m.toml", "--json", "./m.toml"],
        &["machines", "child.toml", "--json", "m.toml"],
        &["serve", "live.toml", "--pcapng", "here/live.toml"],
        &["tree", "hosts.toml", "--lspci", ".", "--json", "./a.lspci"],
        &["place", "--root", "img", "--json", "soft"],
    ];
    let before = || (contents(&folder), fs::read(&cpuinfo).unwrap());
    for arguments in cases {
        let kept = before();
        let output = nearfar(&folder, arguments);
        let told = said(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains("is read") || told.contains("both write to"), "{arguments:?}: {told}");
        assert_eq!(before(), kept, "{arguments:?} touched something");
    }
    // Twice the same beside sources that do not name it.
    for _ in 0..2 {
        done(nearfar(&folder, &["inspect", ".", "--json", "beside.json"]));
    }
    // A plan is no record of what was done, and stays.
    write("plan.json", "{\"writes\":[],\"notes\":[],\"kept\":1,\"applied\":false}");
    let undone = nearfar(&folder, &["place", "--root", "img", "--undo", "--undo-file", "plan.json"]);
    assert!(undone.status.code() == Some(2) && said(&undone).contains("is damaged"), "{}", said(&undone));
    assert!(folder.join("plan.json").exists() && !folder.join("plan.lock").exists());
    // What a host lends is read below its root, through a link too.
    write("img/sys/bus/pci/drivers/nearfar_ntb/module", "");
    for output in ["img/proc/cpuinfo", "here/img/proc/cpuinfo", "soft"] {
        let kept = before();
        let listed = nearfar(&folder, &["lend", "list", "--root", "img", "--json", output]);
        assert_eq!(listed.status.code(), Some(2), "{output}: {}", said(&listed));
        assert_eq!(before(), kept, "{output} was touched");
    }
}

/// A scenario chooses the names of sockets and pages: what is called so already stays.
#[test]
fn a_server_replaces_only_what_servers_left() {
    let folder = folder("server");
    fs::write(folder.join("live.toml"), include_str!("../../../tools/live/nvme.toml")).unwrap();
    fs::write(folder.join("lockstep.so"), "").unwrap();
    fs::write(folder.join("a.page"), [7; 4096]).unwrap();
    let lockstep = ["serve", "live.toml", "--clock", "lock-step", "--plugin", "lockstep.so"];
    refused(&folder, &lockstep, "a.page");
    fs::remove_file(folder.join("a.page")).unwrap();
    let started = shell(
        &folder,
        "$nearfar serve live.toml > out & p=$!; until grep -q qemu out || ! kill -0 $p; do sleep 0.05; done; ls *.sock; kill -TERM $p; wait $p",
    );
    let said = said(&started);
    let socket = said.split_whitespace().find(|word| word.ends_with(".sock")).expect("a socket").to_owned();
    fs::write(folder.join(&socket), "mine").unwrap();
    refused(&folder, &["serve", "live.toml"], "it is no socket");
}

#[test]
fn pipes_and_open_files_are_outputs() {
    let folder = folder("pipes");
    let whole =
        |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok_and(|json| json.is_array());
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    done(shell(&folder, "mkfifo f; cat f > got & $nearfar run hosts.toml -q --json f; wait"));
    assert!(whole(&read("got")), "{}", read("got"));
    for (script, wanted) in [
        ("$nearfar run hosts.toml -q --json /dev/stdout", true),
        ("$nearfar run hosts.toml -q --json /dev/fd/1 | cat", true),
        ("$nearfar run hosts.toml -q --json /dev/stderr 2>&1 >/dev/null", true),
        ("$nearfar run hosts.toml -q --json /dev/fd/3 3>&1 >/dev/null", true),
        ("$nearfar run hosts.toml -q --csv /dev/fd/3 3>file >/dev/null; cat file", false),
    ] {
        let output = shell(&folder, script);
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(output.status.code(), Some(0), "{script}: {}", said(&output));
        assert!(if wanted { whole(&text) } else { text.starts_with("kind,") }, "{script}: {text}");
    }
    // An input as well, and whoever waits there says so: it is written once that is said.
    let waits = shell(
        &folder,
        "mkfifo g; $nearfar diff g got 2>told & for _ in $(seq 300); do grep -q waiting told && break; sleep 0.1; done; \
         cat got > g; wait $!; status=$?; cat told >&2; rm told; exit $status",
    );
    assert!(done(waits).contains("waiting for somebody to write to `g`"));
    let names = shell(&folder, "ls -A");
    assert!(!said(&names).contains("part") && !said(&names).contains("provenance"), "{}", said(&names));
}

/// A pipe that nobody writes, and a device without an end, where files are read that the user did not name: in a folder of
/// results, in the cache, as a record.
#[test]
fn what_never_ends_is_not_waited_for() {
    let folder = folder("endless");
    let made =
        ["bench", "--machine", "dell-t630", "--short", "--files", "lat_cmd_sizes", "-q", "-o", "results"];
    done(nearfar(&folder, &made));
    done(shell(
        &folder,
        "mkfifo pipe; mkfifo results/lat_dma_sizes.csv; ln -s /dev/zero results/bw_dma_sizes.csv; \
         mkdir made; cp results/*lat_cmd* made; mkfifo made/provenance.json",
    ));
    for line in [
        "compare results --machine dell-t630",
        "fit results -o fitted.toml",
        "bench --machine dell-t630 --short --files lat_cmd_sizes -o made",
        "fit made --ablate pipe",
        "fit made --ablate /dev/zero",
        "place --root . --undo --undo-file pipe",
        "diff /dev/zero /dev/zero",
        "inspect /dev/zero",
    ] {
        let output = nearfar(&folder, &line.split(' ').collect::<Vec<_>>());
        assert!(matches!(output.status.code(), Some(0..=2)), "{line}: {}", said(&output));
    }
    let whole = done(nearfar(&folder, &["run", "hosts.toml", "-q"]));
    for other in ["mkfifo $f", "ln -s /dev/zero $f", "mkdir $f"] {
        done(shell(
            &folder,
            &format!(
                "for f in $(find .cache -mindepth 2 ! -type d) .cache/speed; do rm -rf $f; {other}; done"
            ),
        ));
        assert_eq!(done(nearfar(&folder, &["run", "hosts.toml", "-q"])), whole, "{other}");
    }
}

/// Files and lines that ask for more than anybody has are told so at once.
#[test]
fn what_is_too_much_is_told() {
    let folder = folder("much");
    let function = |n: u32| {
        let (bus, device) = (n >> 5 & 0xff, n & 31);
        format!(
            "<object type=\"PCIDev\" pci_busid=\"{:04x}:{bus:02x}:{device:02x}.0\" pci_type=\"0200 [8086:1572] [8086:1572] 01\"/>",
            n >> 13
        )
    };
    let topology = |functions: String| {
        let all = format!(
            "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x1\">{functions}</object></topology>"
        );
        fs::write(folder.join("many.xml"), all).unwrap();
        done(nearfar(&folder, &["inspect", "many.xml"]))
    };
    let many = topology((0..20_000).map(function).collect());
    assert!(many.contains("it has 20000 functions; the first 4096 are looked at"), "{many}");
    let alike = topology(function(7).repeat(20_000));
    assert!(alike.contains("more than 64 functions have this address"), "{alike}");
    for node in 0..2_000 {
        let node = folder.join(format!("wide/sys/devices/system/node/node{node}"));
        fs::create_dir_all(&node).unwrap();
        fs::write(node.join("cpulist"), "\n").unwrap();
        fs::write(node.join("distance"), "10 ".repeat(2_000)).unwrap();
    }
    let wide = done(nearfar(&folder, &["inspect", "wide"]));
    assert!(wide.contains("it has 2000 nodes; the first 256 are read"), "{wide}");
    let over = "host.a.device.0.change.controller.tags=1..1000+1";
    let sweep = ["sweep", "hosts.toml", "--over", over, "--over", "seed=1..1000+1"];
    refused(&folder, &sweep, "more than 100000 combinations");
    let peers = include_str!("../../../scenarios/gpu-switches.toml");
    let (start, _) = peers.split_once("[[program]]").expect("a program");
    for run in ["p2pBandwidthLatencyTest --bytes=16777215t", "all_reduce_perf -b 18446744073709551615"] {
        fs::write(folder.join("gpus.toml"), format!("{start}[[program]]\nrun = \"{run}\"\n")).unwrap();
        let output = nearfar(&folder, &["run", "gpus.toml", "-q"]);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{run}: {}", said(&output));
        assert!(!said(&output).contains("panicked"), "{}", said(&output));
    }
}

#[test]
fn a_closed_standard_output_is_told() {
    let folder = folder("closed");
    for line in ["machines", "run hosts.toml -q --json -", "run hosts.toml -q", "--help", "completions bash"]
    {
        let closed = shell(&folder, &format!("$nearfar {line} >&-"));
        assert_eq!(closed.status.code(), Some(2), "{line}: {}", said(&closed));
        assert!(
            said(&closed).contains("standard output cannot be written: it is closed"),
            "{}",
            said(&closed)
        );
        let null = shell(&folder, &format!("$nearfar {line} 1<>/dev/null"));
        assert_eq!(null.status.code(), Some(0), "{line}: {}", said(&null));
    }
    done(shell(&folder, "$nearfar machines | head -1"));
    // What is watched ends with whoever watches it.
    fs::write(folder.join("numa.txt"), include_str!("../../fuzzing/corpus/survey_source/numactl.txt"))
        .unwrap();
    fs::create_dir_all(folder.join("host/sys/bus/pci/drivers/nearfar_ntb")).unwrap();
    for watched in ["inspect numa.txt --watch", "lend watch --root host"] {
        for end in [">&-", "| true"] {
            let script = format!(
                "exec 2>told; {{ timeout 60 $nearfar {watched} --period 0.1; echo $? > status; }} {end}; cat status >&2"
            );
            let closed = shell(&folder, &script);
            let status = fs::read_to_string(folder.join("status")).unwrap();
            assert_eq!(status.trim(), "2", "{watched} {end}: {}", said(&closed));
        }
    }
    done(nearfar(&folder, &["run", "hosts.toml", "-q", "--json", "x.json"]));
}

/// Entries of the cache that change places are each whole, and neither is what its name says.
#[test]
fn the_cache_believes_an_entry_only_under_its_key() {
    let folder = folder("swapped");
    let sweep = |out| ["sweep", "hosts.toml", "--over", "seed=1,2", "-q", "--json", out];
    done(nearfar(&folder, &sweep("a.json")));
    let subfolders = fs::read_dir(folder.join(".cache")).unwrap().map(|entry| entry.unwrap().path());
    let files = subfolders.filter(|path| path.is_dir()).flat_map(|path| fs::read_dir(path).unwrap());
    let entries: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    assert!(entries.len() >= 2, "{entries:?}");
    for pair in entries.chunks_exact(2) {
        let (first, second) = (fs::read(&pair[0]).unwrap(), fs::read(&pair[1]).unwrap());
        fs::write(&pair[0], second).unwrap();
        fs::write(&pair[1], first).unwrap();
    }
    done(nearfar(&folder, &sweep("b.json")));
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap().replace("b.json", "a.json");
    assert_eq!(read("a.json"), read("b.json"));
    // A link is no entry, and where it leads stays.
    fs::write(folder.join("mine"), "mine").unwrap();
    for entry in &entries {
        fs::remove_file(entry).unwrap();
        std::os::unix::fs::symlink(folder.join("mine"), entry).unwrap();
    }
    done(nearfar(&folder, &sweep("b.json")));
    assert_eq!(read("a.json"), read("b.json"));
    assert_eq!(fs::read_to_string(folder.join("mine")).unwrap(), "mine");
    assert!(entries.iter().all(|entry| entry.symlink_metadata().unwrap().is_file()));
}

/// An escape, the title of a window, a change of direction, the one-byte form of an escape: in a name, a summary and where a
/// mistake is shown.
const BAD: &str = "\\u001b[31mred\\u001b]0;title\\u0007 \\u202eabc\\u009b2J<img src=x onerror=alert(1)>";

#[test]
fn texts_from_files_do_not_act_on_terminals_and_pages() {
    let folder = folder("terminals");
    let bad = HOSTS.replace("summary = \"x\"", &format!("summary = \"{BAD}\""));
    fs::write(folder.join("bad.toml"), &bad).unwrap();
    fs::write(folder.join("wrong.toml"), bad.replace("\"modern\"", &format!("\"{BAD}\""))).unwrap();
    fs::write(folder.join("raw.toml"), HOSTS.replace("name = \"x\"", "name = 7 # \u{202e}\u{9b}2J")).unwrap();
    fs::write(
        folder.join("key.toml"),
        HOSTS.replace("name = \"x\"", &format!("name = \"x\"\n\"{BAD}\" = 1")),
    )
    .unwrap();
    fs::write(folder.join("bad.json"), format!("[{{\"kind\":\"{BAD}\",\"{BAD}\":\"{BAD}\",\"value\":1}}]"))
        .unwrap();
    fs::write(folder.join("worse.json"), format!("[{{\"kind\":\"{BAD}\",\"{BAD}\":\"{BAD}\",\"value\":2}}]"))
        .unwrap();
    let acts = |letter: char| (letter.is_control() && !"\n\t".contains(letter)) || letter == '\u{202e}';
    let harmless = |what: &str, text: &str| assert!(!text.contains(acts), "{what}: {text:?}");
    let lines: [&[&str]; 12] = [
        &["run", "bad.toml"],
        &["run", "bad.toml", "--json", "-"],
        &["run", "bad.toml", "--csv", "-"],
        &["run", "wrong.toml"],
        &["run", "raw.toml"],
        &["run", "key.toml"],
        &["tree", "bad.toml"],
        &["trace", "bad.toml"],
        &["machines", "raw.toml"],
        &["diff", "bad.json", "worse.json"],
        &["diff", "bad.json", "worse.json", "--csv", "-"],
        &[
            "sweep", "bad.toml", "--over", "seed=1,2", "--report", "x.html", "--plot", "x.svg", "--csv",
            "x.csv",
        ],
    ];
    for arguments in lines {
        let output = nearfar(&folder, arguments);
        assert!(matches!(output.status.code(), Some(0 | 2)), "{}", said(&output));
        harmless(&arguments.join(" "), &said(&output));
    }
    // Sources about a real machine.
    let evil = include_str!("../../fuzzing/corpus/survey_source/hwloc1.xml")
        .replace("value=\"Box\"", "value=\"Box&#x202e;&#x9b;2J&lt;img src=x&gt;\"");
    assert!(evil.contains("202e"));
    fs::write(folder.join("evil.xml"), evil).unwrap();
    for line in [
        "inspect evil.xml --json e.json --svg e.svg",
        "inspect evil.xml --everything",
        "import evil.xml -o evil",
        "export evil.xml -o e.xml",
        "export evil.xml --as nccl -o e.nccl.xml",
        "run evil/evil.toml",
    ] {
        let output = nearfar(&folder, &line.split(' ').collect::<Vec<_>>());
        assert!(matches!(output.status.code(), Some(0 | 2)), "{}", said(&output));
        harmless(line, &said(&output));
    }
    for name in ["e.json", "e.svg", "e.xml", "e.nccl.xml", "evil/evil.toml"] {
        harmless(name, &fs::read_to_string(folder.join(name)).unwrap());
    }
    done(nearfar(&folder, &["machines", "evil/evil.toml"]));
    let typed = "\u{1b}[31mred\u{1b}]0;title\u{7}\u{202e}\u{9b}2J";
    for arguments in [
        &[typed][..],
        &["run", "hosts.toml", typed],
        &["completions", typed],
        &["new", "nic", typed],
        &["run", typed],
    ] {
        let output = nearfar(&folder, arguments);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        harmless(&format!("{arguments:?}"), &said(&output));
    }
    for name in ["x.html", "x.svg", "x.csv"] {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        harmless(name, &text);
        assert!(name == "x.csv" || !text.contains("<img"), "{name}");
    }
}

/// What says where an output comes from replaces only its like; a folder that was made for nothing does not stay; what names can do
/// to terminals and shells is no name of a scenario's file; what is no folder is not waited for.
#[test]
fn what_lies_beside_outputs_is_not_touched() {
    let folder = folder("beside");
    fs::write(folder.join("hosts.toml"), HOSTS).unwrap();
    for (origin, arguments) in [
        ("x.csv", &["run", "hosts.toml", "--csv", "x.csv"][..]),
        ("x.svg", &["draw", "hosts.toml", "-o", "x.svg"]),
    ] {
        let beside = format!("{origin}.provenance.json");
        fs::write(folder.join(&beside), "mine").unwrap();
        refused(&folder, arguments, "a file of somebody else");
        assert_eq!(fs::read_to_string(folder.join(&beside)).unwrap(), "mine");
        fs::remove_file(folder.join(&beside)).unwrap();
        done(nearfar(&folder, arguments));
        done(nearfar(&folder, arguments));
    }
    for name in ["a\\u001b[31mb", "a\\u202eb", "-", "-rf", " ", "a/ b", "\\nx"] {
        let capture = format!("[[capture]]\nport = \"a\"\nfile = \"{name}\"\n[[host]]");
        fs::write(folder.join("named.toml"), HOSTS.replacen("[[host]]", &capture, 1)).unwrap();
        refused(&folder, &["run", "named.toml"], "control characters");
    }
    done(shell(&folder, "mkfifo pipe"));
    refused(&folder, &["place", "--root", "pipe"], "pipe");
    let nul = "\0".repeat(1 << 20);
    fs::write(folder.join("zero.fio"), nul).unwrap();
    let text = HOSTS.to_owned() + "[[program]]\nhost = \"a\"\ncpus = \"0\"\nrun = \"fio zero.fio\"\n";
    fs::write(folder.join("zero.toml"), text).unwrap();
    let output = nearfar(&folder, &["run", "zero.toml"]);
    assert!(output.status.code() == Some(2) && said(&output).len() < 2_000, "{}", said(&output).len());
}

/// What `kill -9` left goes with the next run; what Ctrl-C stopped leaves nothing.
#[test]
fn nothing_half_written_is_left() {
    let folder = folder("left");
    let left = || {
        let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name.ends_with(".part"))
            .collect::<Vec<_>>()
    };
    let ever = with_capture("x.pcapng").replace("-c 1", "-c 60000 -i 0.01");
    fs::write(folder.join("ever.toml"), ever).unwrap();
    for (signal, status) in [("INT", Some(130)), ("TERM", Some(143)), ("HUP", Some(129)), ("KILL", None)] {
        let mut child = command(&folder, &["run", "ever.toml", "-q", "--no-cache"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while left().is_empty() {
            assert!(child.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(
            Command::new("kill")
                .args([&format!("-{signal}"), &*child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(child.wait().unwrap().code(), status);
        assert_eq!(left().len(), usize::from(signal == "KILL"), "{signal}: {:?}", left());
    }
    done(nearfar(&folder, &["run", "hosts.toml", "-q", "--json", "x.json"]));
    assert!(left().is_empty(), "{:?}", left());
    // A shell without job control has what it starts in the background ignore Ctrl-C; `nohup` has hangups ignored.
    let stopped = shell(
        &folder,
        "$nearfar run ever.toml -q >/dev/null 2>&1 & p=$!; while ! ls -A | grep -q part$; do sleep 0.05; done; kill -INT $p; wait $p; echo $?",
    );
    assert!(said(&stopped).contains("130"), "{}", said(&stopped));
    let goes_on = shell(
        &folder,
        "trap '' HUP; $nearfar run ever.toml -q >/dev/null 2>&1 & p=$!; while ! ls -A | grep -q part$; do sleep 0.05; done; kill -HUP $p; sleep 0.2; kill -TERM $p; wait $p; echo $?",
    );
    assert!(said(&goes_on).contains("143"), "{}", said(&goes_on));
}
