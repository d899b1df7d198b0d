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

const LENT: &str = include_str!("../../../scenarios/lend-nvme.toml");
const LIVE: &str = include_str!("../../../tools/live/nics.toml");
const FIO: &str = include_str!("../../fuzzing/corpus/tool_output/fio.json");

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
    "draw hosts.toml -o draw.svg",
    "export hosts.toml -o hwloc.xml",
    "export hosts.toml --as nccl -o nccl.xml",
    "export hosts.toml --as lspci -o export.lspci",
    "export hosts.toml --as capture -o export.tar.gz",
    "inspect export.tar.gz --json inspect.json --svg inspect.svg",
    "import export.tar.gz -o box",
    "place eth0 --root root --json place.json",
    "place eth0 --root root --apply --undo-file place.undo.json",
    "lend cost lent.toml --json cost.json --csv cost.csv --parquet cost.parquet",
    "p2p gpu-switches --bytes 4096 --json p2p.json --csv p2p.csv --svg p2p.svg",
    "compare fio.json --machine dell-t430 --card optane-900p --json tools.json --csv tools.csv",
    "PIPE inspect export.tar.gz --everything",
    "PIPE place --unit",
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
    "inspect FILE",
    "inspect FILE export.tar.gz --json again.json",
    "import FILE -o FILE.box --name x",
    "import export.tar.gz --from ./FILE -o FILE.from --name x",
    "export FILE --as nccl",
    "draw ./FILE",
    "lend cost ./FILE",
    "p2p ./FILE --bytes 4096",
    "serve ./FILE",
    "place --root root --undo --undo-file FILE",
    "compare fio.json --machine ./FILE --card optane-900p",
    "compare fio.json --machine dell-t430 --card ./FILE",
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

/// A folder laid out like `/`, with an interface of one queue.
fn real_host(root: &Path) {
    let device = "sys/devices/pci0000:00/0000:00:01.0";
    for (name, text) in [
        ("sys/devices/system/cpu/cpu0/topology/core_id", "0"),
        ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0"),
        ("sys/devices/system/node/node0/cpulist", "0"),
        (&format!("{device}/numa_node"), "0"),
        (&format!("{device}/class"), "0x020000"),
        (&format!("{device}/msi_irqs/40"), "msix"),
        (&format!("{device}/net/eth0/queues/tx-0/xps_cpus"), "0"),
        ("proc/irq/40/smp_affinity_list", "0"),
        ("proc/interrupts", "   CPU0\n 40: 9 IR-PCI-MSI 40-edge eth0-TxRx-0"),
    ] {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    let link = |target: &str, name: &str| {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, root.join(name)).unwrap();
    };
    link(&format!("../../../{device}/net/eth0"), "sys/class/net/eth0");
    link(&format!("../../../../{device}"), "sys/bus/pci/devices/0000:00:01.0");
    link("../../../0000:00:01.0", &format!("{device}/net/eth0/device"));
}

/// What a server writes at its end.
const SERVED: &str = "$nearfar serve live.toml --pcapng serve.pcapng --counters > serve.txt 2>serve.err & p=$!; \
     until grep -q qemu serve.txt || ! kill -0 $p; do sleep 0.05; done; kill -INT $p; wait $p; cat serve.err >&2";

#[test]
fn every_output_is_read_or_refused() {
    let folder: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outputs-as-inputs");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("bench.toml"), BENCH).unwrap();
    fs::write(folder.join("hosts.toml"), HOSTS).unwrap();
    fs::write(folder.join("lent.toml"), LENT.replace("1ms", "100us")).unwrap();
    fs::write(folder.join("live.toml"), LIVE).unwrap();
    fs::write(folder.join("fio.json"), FIO.replace("\"runtime\" : \"30\"", "\"runtime\" : \"1\"")).unwrap();
    real_host(&folder.join("root"));
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
    let mut shell = Command::new("sh");
    shell.current_dir(&folder).env("nearfar", env!("CARGO_BIN_EXE_nearfar")).args(["-c", SERVED]);
    let served = shell.output().unwrap();
    assert!(folder.join("serve.pcapng").exists(), "{}", String::from_utf8_lossy(&served.stderr));
    let mut files: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| folder.join(name).is_file())
        .filter(|name| !["bench.toml", "hosts.toml", "lent.toml", "live.toml"].contains(&&**name))
        .collect();
    files.extend(
        ["lspci/a.lspci", "out/provenance.json", "out/lat_cmd_sizes.csv", "pages/nearfar.1", "box/box.toml"]
            .map(Into::into),
    );
    assert!(files.len() > 65, "{files:?}");
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
