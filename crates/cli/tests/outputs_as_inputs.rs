//! Every output of every command goes into every command that could take it: it is read or refused, and nothing panics or
//! hangs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const BENCH: &str = "name = \"x\"\nsummary = \"x\"\nmachine = \"dell-t430\"\ncard = \"nfp6000\"\n\
    [pcie_bench]\ntest = [\"LAT_RD\", \"BW_WR\"]\npattern = \"rand\"\ncache = \"host-warm\"\nwindow = \"64 KiB\"\n\
    transfer = [\"64 B\", \"128 B\"]\nsamples = 200\n";
const HOSTS: &str = "name = \"x\"\nsummary = \"x\"\ncapture = [{ port = \"a\", file = \"x.pcapng\" }]\n\
    [[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"modern\"\n\
    [[host]]\nname = \"b\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"modern\"\n\
    [[cable]]\nends = [\"a\", \"b\"]\n[[program]]\nhost = \"a\"\nrun = \"ping -c 1 10.0.0.2\"\n";

/// What writes files, `PIPE` before what goes to a file.
const WRITERS: &[&str] = &[
    "run bench.toml --json run-bench.json --csv run-bench.csv --parquet run-bench.parquet --plot run-bench.svg",
    "run hosts.toml --accounting --json run.json --csv run.csv --parquet run.parquet --plot run.svg --folded run.folded",
    "sweep bench.toml --over dma_engine.tags=8,16 --json sweep.json --csv sweep.csv --report sweep.html",
    "trace bench.toml --packets 5 --json trace.json --csv trace.csv --pcapng trace.pcapng --perfetto trace-perfetto.json",
    "tree hosts.toml --json tree.json --csv tree.csv --lspci lspci",
    "machines --json machines.json --csv machines.csv",
    "machines dell-t430 --json machine.json",
    "machines --sources --json sources.json",
    "machines hosts.toml --json scenario.json",
    "programs --json programs.json",
    "programs ping --json program.json",
    "model --json model.json --csv model.csv --plot model.svg",
    "reference nic --schema schema.json --markdown reference.md",
    "new nic new-nic.toml",
    "new scenario new-scenario.toml",
    "bench --machine dell-t630 --short --files lat_cmd_sizes -o out --json bench.json",
    "compare out --machine dell-t630 --card nfp6000 --sockets s0-s0-s0 --json compare.json --summary-json summary.json \
     --markdown compare.md --report compare.html",
    "manual pages",
    "diff run.json run.json --json diff.json --csv diff.csv",
    "PIPE completions bash",
    "PIPE run hosts.toml",
    "PIPE --help",
];

/// What takes a file, `FILE`.
const READERS: &[&str] = &[
    "diff FILE FILE",
    "diff FILE run.json",
    "diff dell-t430 FILE",
    "diff FILE FILE --json again.json",
    "machines ./FILE",
    "run ./FILE",
    "sweep ./FILE --over seed=1,2",
    "trace ./FILE",
    "tree ./FILE",
    "bench --machine ./FILE --short --files lat_cmd_sizes -o FILE.out",
    "bench --machine dell-t630 --card ./FILE --short --files lat_cmd_sizes -o FILE.out",
    "compare FILE --machine dell-t630",
    "fit FILE -o FILE.toml",
    "run hosts.toml --set host.a.machine=./FILE",
    "run hosts.toml --set host.a.device.0.nic=./FILE",
    "run bench.toml --set card=./FILE",
];

fn command(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    command.current_dir(folder).args(line.split_whitespace()).args(["--no-cache", "--quiet"]);
    command
}

/// Runs a command; says what is wrong with how it ended.
fn wrong(folder: &Path, line: &str) -> Option<String> {
    const LONGEST: Duration = Duration::from_secs(60);
    let said = tempfile::tempfile().unwrap();
    let mut child = command(folder, line)
        .stdout(Stdio::null())
        .stderr(said.try_clone().unwrap())
        .spawn()
        .expect("the program starts");
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > LONGEST {
            let _ = child.kill();
            let _ = child.wait();
            return Some(format!("`{line}` does not end"));
        }
        thread::sleep(Duration::from_millis(2));
    };
    (!matches!(status.code(), Some(0..=2))).then(|| {
        use std::io::{Read as _, Seek as _};
        let (mut said, mut text) = (said, String::new());
        said.rewind().unwrap();
        let _ = said.read_to_string(&mut text);
        format!("`{line}` ends with {status}: {text}")
    })
}

#[test]
fn every_output_is_read_or_refused() {
    let folder: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outputs-as-inputs");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("bench.toml"), BENCH).unwrap();
    fs::write(folder.join("hosts.toml"), HOSTS).unwrap();
    for (n, line) in WRITERS.iter().enumerate() {
        let (line, to_file) = match line.strip_prefix("PIPE ") {
            Some(line) => (line, Some(fs::File::create(folder.join(format!("printed-{n}"))).unwrap())),
            None => (*line, None),
        };
        let output = match line.starts_with("--") {
            true => Command::new(env!("CARGO_BIN_EXE_nearfar")).arg(line).stdout(to_file.unwrap()).output(),
            false => command(&folder, line).stdout(to_file.map_or_else(Stdio::null, Into::into)).output(),
        };
        let output = output.unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut files: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != "bench.toml" && name != "hosts.toml")
        .collect();
    files.extend(
        ["lspci/a.lspci", "out/provenance.json", "out/lat_cmd_sizes.csv", "pages/nearfar.1"].map(Into::into),
    );
    assert!(files.len() > 40, "{files:?}");
    let lines = files.iter().flat_map(|file| READERS.iter().map(move |line| line.replace("FILE", file)));
    // Templates are scenarios and devices that work, which other tests run.
    let lines = Mutex::new(lines.filter(|line| !line.contains("./new-")).collect::<Vec<_>>().into_iter());
    let all = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(line) = { lines.lock().unwrap().next() } {
                    all.lock().unwrap().extend(wrong(&folder, &line));
                }
            });
        }
    });
    let all = all.into_inner().unwrap();
    assert!(all.is_empty(), "{}", all.join("\n"));
    // What cannot be read names what can.
    let output = command(&folder, "diff run.parquet run.parquet").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2) && told.contains("it is a Parquet file") && told.contains("--json"),
        "{told}"
    );
    for (first, second) in
        [("tree.json", "tree.json"), ("machine.json", "machine.json"), ("model.json", "model.json")]
    {
        let output = command(&folder, &format!("diff {first} {second}")).output().unwrap();
        assert!(output.status.code().is_some_and(|code| code != 101), "{first}");
    }
}
