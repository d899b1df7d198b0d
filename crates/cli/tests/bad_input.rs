//! Bad input of every kind ends with status 2 and says where it is and what would be right, before anything is simulated.

use std::path::{Path, PathBuf};
use std::process::Command;

const BASE: &str = "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n\
    [[host.device]]\nnic = \"modern\"\n[[host.device]]\ndrive = \"optane-900p\"\n\
    [[host]]\nname = \"b\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"modern\"\n\
    [[cable]]\nends = [\"a\", \"b\"]\n[[program]]\nhost = \"a\"\nrun = \"ping 10.0.0.2\"\n";

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs the program in `folder`, which must refuse with these words.
fn refuse(folder: &Path, line: &[&str], words: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_nearfar")).current_dir(folder).args(line).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line:?}: {said}");
    assert!(said.contains(words), "{line:?} should speak of `{words}`: {said}");
}

#[test]
fn files_that_are_none() {
    let folder = folder("files-that-are-none");
    let long = format!("a = {}", "[".repeat(100_000));
    let files: [(&str, &[u8], &str); 11] = [
        ("empty", b"", "`name` is missing"),
        ("binary", &[0, 159, 146, 150, 255], "it is not UTF-8 text"),
        ("utf16", b"\xff\xfen\0a\0", "it is not UTF-8 text"),
        ("cut", b"name = \"x", "cut.toml:1:"),
        ("twice", b"name = \"x\"\nname = \"y\"\n", "twice.toml:2:1"),
        ("deep", long.as_bytes(), "recurse"),
        ("circle", b"name = \"x\"\nextends = \"circle.toml\"\n", "goes in a circle"),
        ("machine", b"name = \"x\"\nsummary = \"x\"\nmachine = \"circle.toml\"\ncard = \"nfp6000\"\n", "`pcie_bench` is missing"),
        ("hostless", b"name = \"x\"\nsummary = \"x\"\n[[program]]\nrun = \"ping 10.0.0.1\"\n", "there is no host"),
        ("nan", b"name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n[[cable]]\nends = [\"a\"]\nloss = nan\n", "`loss` cannot be NaN"),
        ("inf", b"name = \"x\"\nsummary = \"x\"\nseed = -1\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n", "inf.toml:3:8"),
    ];
    for (name, bytes, words) in files {
        let file = format!("{name}.toml");
        std::fs::write(folder.join(&file), bytes).unwrap();
        let command = if name == "circle" { ["machines", &file] } else { ["run", &file] };
        refuse(&folder, &command, words);
    }
    std::fs::create_dir(folder.join("folder.toml")).unwrap();
    refuse(&folder, &["run", "folder.toml"], "it is not a file of a machine, part or scenario");
    refuse(&folder, &["run", "nowhere.toml"], "the path of a .toml file");
    refuse(&folder, &["run", "."], "`.` is a folder");
    // A library in which a folder has a machine's name.
    std::fs::create_dir_all(folder.join("machines/dell-t430.toml")).unwrap();
    std::fs::write(folder.join("base.toml"), BASE).unwrap();
    refuse(&folder, &["--library", ".", "run", "base.toml"], "base.toml:5:11");
    refuse(&folder, &["--library", "base.toml", "machines"], "there is no folder `base.toml`");
}

#[test]
fn changes_that_cannot_be() {
    let folder = folder("changes-that-cannot-be");
    std::fs::write(folder.join("base.toml"), BASE).unwrap();
    for (set, words) in [
        ("host.a.change.host.core.count=100000", "from 1 to 128"),
        ("host.a.change.host.core.frequency=\"1 Hz\"", "from 1 MHz to 100 GHz"),
        ("host.a.change.host.dram.size=\"1 TiB\"", "255 GiB for each of so many sockets"),
        ("host.a.change.host.dram.access=\"61 s\"", "60 s"),
        ("host.a.change.host.iommu.walkers=2000", "from 1 to 1024"),
        ("host.a.change_kernel.cost.syscall=\"2000000000 cycles\"", "from 0 cycles to 1000000000 cycles"),
        ("host.a.change_kernel.steering.entries=4294967295", "from 1 to 1048576"),
        ("host.a.change_kernel.block.cache_limit=\"0 B\"", "1 MiB or more"),
        ("host.a.change_kernel.dma.flush_time=\"0 ns\"", "such as `10 ms`"),
        ("host.a.device.0.change.link.credits.ph=0", "at least 1"),
        ("host.a.device.1.backing=\"/\"", "cannot keep blocks in `/`: it is not below the current folder"),
        ("cable.0.loss=inf", "a finite number"),
        ("cable.0.rate=\"41 Gbit/s\"", "more than `a` has, 40 Gbit/s"),
        ("program.0.run=\"fio --bs=0\"", "--bs=0"),
        ("program.0.start=\"5000000 s\"", "from 0 ps to 86400 s"),
        ("program.1.run=x", "`program.0`"),
        ("capture=[{ port = \"a\", file = \"/\" }]", "cannot write the capture `/`"),
        (".=1", "is not a path"),
        ("x", "write PATH=VALUE"),
    ] {
        refuse(&folder, &["run", "base.toml", "--set", set], words);
    }
    for (over, words) in [
        ("host.a.iommu=off,on", "pass-through"),
        ("host.a.iommu=", "write KEY=VALUES"),
        ("host.a.nosuch=1,2", "unknown key `nosuch`"),
        ("cable.0.rate=10 Gbit/s,800 Gbit/s", "1 to 400 Gbit/s"),
    ] {
        refuse(&folder, &["sweep", "base.toml", "--over", over], words);
    }
    let twice = ["sweep", "base.toml", "--over", "seed=1", "--over", "seed=2"];
    refuse(&folder, &twice, "names `seed` twice");
}

#[test]
fn options_that_cannot_be() {
    let folder = folder("options-that-cannot-be");
    std::fs::write(folder.join("base.toml"), BASE).unwrap();
    let cases: [(&[&str], &str); 14] = [
        (&["run", "base.toml", "--json", "."], "it is a folder; name a file in it"),
        (&["run", "base.toml", "--json", "base.toml/x"], "`base.toml` is a file, not a folder"),
        (&["run", "base.toml", "--json", ""], "--json"),
        (&["reproduce", "kpio-wc", "--report", "base.toml"], "it is a file, not a folder"),
        (&["bench", "--machine", "dell-t430", "-o", "base.toml"], "it is a file, not a folder"),
        (&["bench", "--machine", "dell-t430", "--sockets", "s9-s0-s0"], "numbered 0 to 1"),
        (&["trace", "base.toml", "--csv", "-", "--json", "-"], "--json and --csv both write to `-`"),
        (
            &["trace", "base.toml", "--json", "x", "--perfetto", "x"],
            "--json and --perfetto both write to `x`",
        ),
        (&["trace", "base.toml", "--run", "1"], "--run is for scenarios with pcie-bench"),
        (&["trace", "base.toml", "--from", "1"], "a time takes ps, ns, us, ms, s"),
        (&["trace", "base.toml", "--link", "nowhere"], "there are a/slot,"),
        (&["tree", "remote-memory"], "on which no kernel runs"),
        (&["compare", "base.toml"], "base.toml"),
        (&["fit", ".", "-o", "x.toml"], "no pcie-bench result file"),
    ];
    for (line, words) in cases {
        refuse(&folder, line, words);
    }
}
