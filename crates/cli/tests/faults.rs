//! Every operation on files of a run fails once: the status says so, or the result is the right one; each file is the old one
//! or the new one, and nothing is left behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HEAD: &str = "name = \"x\"\nsummary = \"x\"\n";
const HOSTS: &str = "[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"modern\"\n\
    [[host]]\nname = \"b\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"modern\"\n\
    [[cable]]\nends = [\"a\", \"b\"]\n[[program]]\nhost = \"a\"\nrun = \"ping -c 1 10.0.0.2\"\n";
const DRIVE: &str = "[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n[[host.device]]\ndrive = \"optane-900p\"\n\
    backing = \"x.img\"\n[[program]]\nhost = \"a\"\n\
    run = \"dd if=/dev/urandom of=/dev/nvme0n1 bs=4k count=2 oflag=direct conv=fsync\"\n";

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("faults-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let capture = "capture = [{ port = \"a\", file = \"x.pcapng\" }]\n";
    fs::write(folder.join("hosts.toml"), [HEAD, HOSTS].concat()).unwrap();
    fs::write(folder.join("capture.toml"), [HEAD, capture, HOSTS].concat()).unwrap();
    fs::write(folder.join("drive.toml"), [HEAD, DRIVE].concat()).unwrap();
    folder
}

fn nearfar(folder: &Path, at: &str, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    command.current_dir(folder).env("NEARFAR_CACHE", folder.join(".cache")).env("NEARFAR_FAIL_AT", at);
    command.args(line.split(' ')).output().expect("the program starts")
}

/// All files but the cache, and blocks of a drive, which a run changes as it goes.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let named = files.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path));
    named.filter(|(name, _)| name != "x.img").map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

/// Fails each operation of a command, alone or with all that follow. Says how many there are.
fn fails_well(name: &str, line: &str, outputs: &[&str], goes_on: &str) -> usize {
    let folder = folder(name);
    let done = nearfar(&folder, "0", line);
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    let new = contents(&folder);
    for number in 1.. {
        // Files that a user had there. A capture, or what says where an output comes from, is replaced only by its like.
        let is_ours = |output: &&&str| output.ends_with("x.pcapng") || output.ends_with(".provenance.json");
        for output in outputs.iter().filter(|output| !is_ours(output)) {
            fs::write(folder.join(output), "old").unwrap();
        }
        let old = contents(&folder);
        let output = nearfar(&folder, &format!("{number}{goes_on}"), line);
        let told = String::from_utf8_lossy(&output.stderr);
        if !told.contains("fails as asked for") {
            assert!(output.status.success() && contents(&folder) == new, "{line}: {told}");
            return number - 1;
        }
        let what = format!("{line}, operation {number}{goes_on}: {told}");
        assert!(!told.contains("panicked"), "{what}");
        assert!(matches!(output.status.code(), Some(0 | 2)), "{what}: {:?}", output.status);
        let now = contents(&folder);
        assert!(
            now.keys().eq(new.keys()) || now.keys().all(|name| new.contains_key(name)),
            "{what}: {:?}",
            now.keys()
        );
        for (name, bytes) in &now {
            assert!(
                Some(bytes) == old.get(name) || Some(bytes) == new.get(name),
                "{what}: {name} is neither"
            );
        }
        if output.status.success() {
            assert!(now == new, "{what}: status 0 without the result");
        }
        assert!(!told.contains("I/O error") || !told.contains("dd:"), "{what}: the drive is blamed");
    }
    unreachable!("the numbers do not end")
}

#[test]
fn every_operation_on_files_fails_well() {
    // Only such builds fail when asked.
    if !cfg!(debug_assertions) {
        return;
    }
    let csv = ["x.json", "x.csv", "x.csv.provenance.json"];
    let page = ["x.html", "x.svg", "x.svg.provenance.json"];
    let mut least = 0;
    for goes_on in ["", "+"] {
        least += fails_well("run", "run hosts.toml -q --json x.json --csv x.csv", &csv, goes_on);
        least += fails_well("capture", "run capture.toml -q", &["x.pcapng"], goes_on);
        least += fails_well("drive", "run drive.toml -q --json x.json", &["x.json"], goes_on);
        least += fails_well(
            "sweep",
            "sweep hosts.toml --over seed=1,2 -q --report x.html --plot x.svg",
            &page,
            goes_on,
        );
        least += fails_well("model", "model --parquet x.parquet --no-cache", &["x.parquet"], goes_on);
    }
    assert!(least > 100, "{least} operations");
}
