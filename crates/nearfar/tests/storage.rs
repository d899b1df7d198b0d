//! Programs on computers with drives, from files to figures.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::scenario::{self, HEAD, host, host_with_drive, loaded, program};
use files::Folder;
use hardware::memory::NodeCounters;
use machine::ComputerSetup;
use nearfar::computer::{self, Account, ComputerError, Computers, FinishedProgram, Observer};
use nearfar::progress::Silent;
use units::Duration;

fn try_run(text: &str) -> Result<Vec<FinishedProgram>, ComputerError> {
    computer::run(&scenario::load(text)?, &Silent)
}

fn run(text: &str) -> Vec<FinishedProgram> {
    try_run(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A host with an Optane 900P, with more lines for the host and for the drive, that runs commands one after another.
fn with_lines(lines: &str, drive: &str, commands: &[&str]) -> Result<Vec<FinishedProgram>, ComputerError> {
    in_folder(Path::new(""), lines, drive, commands)
}

/// As [`with_lines`], with the scenario's files below a folder.
fn in_folder(
    folder: &Path,
    lines: &str,
    drive: &str,
    commands: &[&str],
) -> Result<Vec<FinishedProgram>, ComputerError> {
    let drive = format!("[[host.device]]\ndrive = \"optane-900p\"\n{drive}");
    let mut text = HEAD.to_owned() + &host("a", "dell-t430", &format!("{lines}\n{drive}"));
    for (n, command) in commands.iter().enumerate() {
        text += &format!("[[program]]\ncpus = \"0-3\"\nstart = \"{} ms\"\nrun = \"{command}\"\n", 5 * n);
    }
    computer::run(&ComputerSetup { folder: Folder::new(folder), ..scenario::load(&text)? }, &Silent)
}

fn on_drive(drive: &str, iommu: &str, command: &str) -> FinishedProgram {
    let text = [HEAD, &host_with_drive(drive, iommu), &program("a", "0-3", command)].concat();
    run(&text).remove(0)
}

/// What a drive's data sheet promises, simulated with the whole computer above it. Where the media model is known to
/// do more or less than the sheet says, `machines/README.md` has the figures.
#[test]
fn drives_do_what_their_data_sheets_say() {
    let cases = [
        (
            "optane-900p",
            "--rw=randread --bs=4k --ioengine=libaio --iodepth=32 --numjobs=4",
            "read iops",
            550e3,
            3.0,
        ),
        ("optane-900p", "--rw=read --bs=128k --ioengine=libaio --iodepth=16", "read bw", 2500.0, 5.0),
        ("optane-p4800x", "--rw=read --bs=128k --ioengine=libaio --iodepth=16", "read bw", 2400.0, 5.0),
        ("pm1725a", "--rw=read --bs=128k --ioengine=libaio --iodepth=16", "read bw", 6200.0, 5.0),
    ];
    for (drive, options, quantity, sheet, tolerance) in cases {
        let done = on_drive(drive, "off", &format!("fio {options} --runtime=3ms --ramp_time=2ms"));
        let found = done.outcome.unwrap().get(quantity).unwrap();
        let error = 100.0 * (found / sheet - 1.0);
        assert!(error.abs() <= tolerance, "{drive} {options}: {quantity} {found:.0}, sheet {sheet:.0}");
    }
    let alone = on_drive("optane-900p", "off", "fio --rw=randread --bs=4k --runtime=500us");
    let latency = alone.outcome.unwrap().get("read clat mean").unwrap();
    assert!((8.4..9.3).contains(&latency), "10 us of the sheet are an upper bound: {latency}");
}

/// Each kind of IOMMU has its own tables and commands: what is written comes back. Strict is bound by their queue, which cores keep
/// with VT-d until their pages are forgotten, and with the others only while commands go in.
#[test]
fn every_kind_of_iommu_translates_and_forgets() {
    let rate = |kind: &str, mode: &str| {
        let changes = [("kind", kind), ("invalidation_latency", "2 us")];
        let changes = changes.map(|(key, value)| format!("change.host.iommu.{key} = \"{value}\"\n")).concat();
        let lines = format!("iommu = \"{mode}\"\n{changes}change.host.iommu.posts_interrupts = false");
        let read =
            "fio --direct=1 --rw=randread --bs=4k --ioengine=libaio --iodepth=32 --numjobs=4 --runtime=500us";
        let verify = "dd if=/dev/urandom of=/dev/nvme0n1 bs=24k count=9 seek=3 conv=fsync verify=yes";
        let done = with_lines(&lines, "", &[read, verify]).unwrap();
        done[1].outcome.as_ref().unwrap();
        done[0].outcome.as_ref().unwrap().get("read iops").unwrap()
    };
    let [vtd, amd, smmu] = ["vt-d", "amd-vi", "smmu-v3"].map(|kind| {
        let [lazy, strict] = ["lazy", "strict"].map(|mode| rate(kind, mode));
        assert!(strict < 0.7 * lazy, "{kind}: {strict} {lazy}");
        strict
    });
    assert!(amd > 1.02 * vtd && smmu > 1.02 * vtd, "{vtd} {amd} {smmu}");
}

#[test]
fn what_programs_write_they_verify() {
    for (iommu, command) in [
        ("strict", "dd if=/dev/urandom of=/dev/nvme0n1 bs=24k count=9 seek=3 conv=fsync verify=yes"),
        ("lazy", "dd if=/dev/urandom of=/dev/nvme0n1 bs=64k count=4 oflag=direct verify=yes"),
        (
            "off",
            "fio --rw=randwrite --bs=512 --size=64k --offset=1m --ioengine=libaio --iodepth=8 --verify=pattern",
        ),
        ("pass-through", "fio --rw=write --bs=12k --size=480k --direct=0 --verify=pattern"),
    ] {
        let done = on_drive("optane-900p", iommu, command);
        let report = done.outcome.unwrap_or_else(|failure| panic!("{command}: {failure}"));
        assert!(report.get("verified").unwrap() > 0.0, "{command}");
    }
}

#[test]
fn the_same_scenario_gives_the_same_figures() {
    let once = || {
        let done = on_drive(
            "pm1725a",
            "lazy",
            "fio --rw=randrw --bs=4k --ioengine=libaio --iodepth=8 --numjobs=3 --runtime=300us",
        );
        (done.took, done.outcome)
    };
    assert_eq!(once(), once());
}

#[test]
fn stream_gets_more_from_more_cores() {
    let rate = |cpus: &str| {
        // A small LLC, so that small arrays exceed it.
        let text = format!(
            "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n\
             change.host.llc = {{ size = {{ value = \"5 MiB\", source = \"assumed: small\" }}, \
             slices = {{ value = 2, source = \"assumed: small\" }} }}\n\
             [[program]]\ncpus = \"{cpus}\"\nrun = \"stream --array-size 1000000 --ntimes 2\"\n"
        );
        run(&text).remove(0).outcome.unwrap().get("triad").unwrap()
    };
    let (one, four, ten) = (rate("0"), rate("0-3"), rate("0-9"));
    // One core of a faster E5-2697A v4 obtains 11.0 GB/s (docs/memory.md), which only prefetchers reach: ten buffers, each for
    // the 85 ns of a line from memory, are 7.5.
    assert!((10_000.0..11_100.0).contains(&one), "{one:.0} MB/s by one core");
    assert!((3.1..3.6).contains(&(four / one)), "{four:.0} MB/s by four cores, {one:.0} by one");
    // Four channels of 17 GB/s, of which 3/4 are STREAM's own, less what turns between reads and writes take.
    assert!((38_000.0..45_000.0).contains(&ten), "{ten:.0} MB/s by ten cores, {four:.0} by four");
}

#[test]
fn a_backing_file_keeps_what_was_written_for_the_next_run() {
    const LENGTH: usize = 64 << 10;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.img");
    let backing = "backing = \"drive.img\"";
    let content = |at: usize| {
        let mut bytes = vec![0; LENGTH];
        let mut file = std::fs::File::open(&path).unwrap();
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.read_exact(&mut bytes).unwrap();
        bytes
    };
    let write = "dd if=/dev/urandom of=/dev/nvme0n1 bs=16k count=4 oflag=direct";
    in_folder(folder.path(), "", backing, &[write]).unwrap().remove(0).outcome.unwrap();
    let written = content(0);
    assert!(written.iter().any(|byte| *byte != 0));
    // The next run finds it, and puts it elsewhere too.
    let copy = "dd if=/dev/nvme0n1 of=/dev/nvme0n1 bs=16k count=4 seek=100 iflag=direct oflag=direct";
    in_folder(folder.path(), "", backing, &[copy]).unwrap().remove(0).outcome.unwrap();
    assert!(content(0) == written && content(100 * (16 << 10)) == written);
    // As long as the drive, and next to nothing of it on the disk.
    let metadata = std::fs::metadata(&path).unwrap();
    assert!(metadata.len() > 200 << 30, "{}", metadata.len());
    #[cfg(unix)]
    assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) * 512 < 1 << 20);
}

#[test]
fn what_was_written_without_a_sync_is_in_the_backing_file_after_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let content = |sync: &str| {
        let path = folder.path().join(format!("drive{sync}.img"));
        let backing = format!("backing = \"drive{sync}.img\"");
        let write = format!("dd if=/dev/urandom of=/dev/nvme0n1 bs=64k count=4 seek=2 {sync}");
        in_folder(folder.path(), "", &backing, &[&write]).unwrap().remove(0).outcome.unwrap();
        let mut bytes = vec![0; 6 << 16];
        std::fs::File::open(&path).unwrap().read_exact(&mut bytes).unwrap();
        bytes
    };
    let (without, with) = (content(""), content("conv=fsync"));
    assert!(with[2 << 16..].chunks(4096).all(|page| page.iter().any(|byte| *byte != 0)));
    assert!(without == with);
}

#[test]
fn a_long_copy_does_not_let_other_cores_wait() {
    let latency = |other: Option<&str>| {
        let fio = "fio --rw=randread --bs=4k --runtime=2ms";
        let mut text = HEAD.to_owned() + &host_with_drive("optane-900p", "off") + &program("a", "1", fio);
        text += &other.map_or(String::new(), |run| program("a", "3", run));
        let done = run(&text);
        assert!(done.iter().all(|done| done.outcome.is_ok()), "{done:?}");
        done[0].outcome.as_ref().unwrap().get("read clat max").unwrap()
    };
    let alone = latency(None);
    for other in
        ["dd if=/dev/zero of=/dev/nvme0n1 bs=8M count=1", "dd if=/dev/urandom of=/dev/null bs=8M count=1"]
    {
        let beside = latency(Some(other));
        assert!(beside < alone + 4.0, "{beside} us beside `{other}`, {alone} us alone");
    }
}

#[test]
fn a_backing_file_that_cannot_be_is_complained_about_at_its_place() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine.txt"), "not a drive").unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    for (path, words) in [
        ("folder", "not a regular file"),
        ("none/drive.img", "a file that can be written"),
        ("/dev/null", "not below"),
        ("../drive.img", "not below"),
        ("mine.txt", "does not say at its end"),
    ] {
        let refused = in_folder(folder.path(), "", &format!("backing = {path:?}"), &["stream"]);
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("test.toml:9:") && error.contains("cannot keep blocks in"), "{error}");
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("mine.txt")).unwrap(), "not a drive");
}

#[test]
fn a_backing_file_is_for_one_drive() {
    let folder = tempfile::tempdir().unwrap();
    let files = Folder::new(folder.path());
    let backing = "backing = \"drive.img\"";
    // Somebody else has it.
    let other = files.blocks("drive.img", 280_065_171_456).unwrap();
    let error = in_folder(folder.path(), "", backing, &["stream"]).unwrap_err().to_string();
    assert!(error.contains("test.toml:9:") && error.contains("drive.img"), "{error}");
    assert!(
        error.contains("another drive has its blocks there") && error.contains("a file for each"),
        "{error}"
    );
    drop(other);
    // Several runs on one file wait for each other.
    let text = HEAD.to_owned()
        + &host("a", "dell-t430", &format!("[[host.device]]\ndrive = \"optane-900p\"\n{backing}"))
        + &program("a", "0", "dd if=/dev/urandom of=/dev/nvme0n1 bs=16k count=4 verify=yes");
    let setup = ComputerSetup { folder: files, ..scenario::loaded(&text) };
    let all = computer::run_all(&[&setup; 3], "three", &Silent);
    assert!(all.iter().all(|done| done.as_ref().is_ok_and(|left| left.done[0].outcome.is_ok())));
    // Two drives of one scenario.
    let two = format!(
        "{backing}\n[[host.device]]\nslot = \"slot-socket1\"\ndrive = \"optane-900p\"\nbacking = \"./drive.img\""
    );
    let text = HEAD.to_owned()
        + &host("a", "dell-t430", &format!("[[host.device]]\ndrive = \"optane-900p\"\n{two}"));
    let error = scenario::load(&text).unwrap_err().to_string();
    assert!(error.contains("test.toml:12:") && error.contains("already holds the blocks"), "{error}");
}

#[test]
fn a_scenario_chooses_namespaces_queues_and_the_memory_buffer() {
    let commands = [
        "dd if=/dev/urandom of=/dev/nvme0n1 bs=16k count=8 oflag=direct verify=yes",
        "dd if=/dev/urandom of=/dev/nvme0n2 bs=16k count=8 verify=yes",
        "fio --filename=/dev/nvme0n2 --rw=randread --bs=4k --ioengine=libaio --iodepth=64 --runtime=500us",
        "fio --filename=/dev/nvme0n2 --rw=randread --bs=4k --runtime=200us",
    ];
    let measured = |entries: u32, buffer: &str| {
        let host = format!("nvme_driver = {{ queues = 2, queue_entries = {entries} }}");
        let drive = format!("namespaces = [\"1 GiB\", \"16 MiB\"]\n{buffer}");
        let done = with_lines(&host, &drive, &commands).unwrap();
        assert!(done[..2].iter().all(|done| done.outcome.is_ok()), "{done:?}");
        let read = |n: usize, quantity| done[n].outcome.as_ref().unwrap().get(quantity).unwrap();
        (read(2, "read iops"), read(3, "read clat mean"))
    };
    let ((deep, latency), (shallow, _)) = (measured(64, ""), measured(3, ""));
    assert!(shallow < 0.7 * deep, "{shallow:.0} with two commands in flight, {deep:.0} with many");
    // Entries in the drive need not be fetched over the link.
    let (_, buffered) = measured(64, "change.controller.memory_buffer = \"64 KiB\"");
    assert!(buffered < latency - 0.05, "{buffered:.2} us from the memory buffer, {latency:.2} us without");
}

/// Bytes that went to and from each node's memory while programs ran.
#[derive(Default)]
struct Traffic(Vec<u64>);

fn dram_bytes(computers: &Computers) -> Vec<u64> {
    computers.simulation().with(|fabric, _| {
        let counters = fabric.host(computers.hosts()[0].host).memory.counters();
        let total = |node: &NodeCounters| (node.dram_read.total() + node.dram_written.total()).get();
        counters.nodes.iter().map(total).collect()
    })
}

impl Observer for Traffic {
    fn booted(&mut self, computers: &Computers) {
        self.0 = dram_bytes(computers);
    }

    fn has_enough(&self) -> bool {
        false
    }

    fn ended(&mut self, computers: &Computers) {
        self.0.iter_mut().zip(dram_bytes(computers)).for_each(|(bytes, now)| *bytes = now - *bytes);
    }
}

#[test]
fn a_program_uses_the_memory_that_it_is_bound_to() {
    // The second one's memory is the page cache above all.
    for command in
        ["stream --array-size 400000 --ntimes 2", "fio --rw=read --bs=64k --direct=0 --runtime=1ms"]
    {
        let traffic = |memory: &str| {
            let text = format!(
                "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n\
                 [[host.device]]\ndrive = \"pm1725a\"\n[[program]]\ncpus = \"0-1\"\n\
                 memory = \"{memory}\"\nrun = \"{command}\"\n"
            );
            let setup = loaded(&text);
            let mut traffic = Traffic::default();
            let done = computer::run_watched(&setup, &Silent, &mut traffic).unwrap();
            assert!(done[0].outcome.is_ok(), "{:?}", done[0].outcome);
            (traffic.0[0], traffic.0[1])
        };
        let all = ["local", "node0", "node1", "preferred node1", "interleave"].map(traffic);
        let [local, near, far, preferred, interleaved] = all;
        assert!(local.0 > 10_000 && local.1 == 0 && near == local, "{command}: {all:?}");
        assert!(far.1 > 10_000 && far.0 < local.0 && preferred == far, "{command}: {all:?}");
        assert!(interleaved.0 > 10_000 && interleaved.1 > 10_000, "{command}: {all:?}");
    }
}

#[test]
fn the_accounts_add_up_to_the_cores_time() {
    let text = "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n\
                [[host.device]]\ndrive = \"optane-900p\"\n[[program]]\ncpus = \"0-1\"\n\
                run = \"fio --rw=read --bs=64k --direct=0 --numjobs=2 --runtime=1ms\"\n";
    let setup = loaded(text);
    let computer::Counts { done, accounts, .. } = computer::run_counted(&setup, &Silent).unwrap();
    let account = |name: &str| accounts.iter().find(|account| account.name == name).unwrap();
    let elapsed = done[0].took * 20;
    let total: Duration = accounts.iter().map(|account| account.total()).sum();
    assert!((total.as_s_f64() / elapsed.as_s_f64() - 1.0).abs() < 0.01, "{total} of {elapsed}");
    let jobs = ["fio/0", "fio/1"].map(account);
    for job in jobs {
        assert!(["user", "block", "copy"].iter().all(|part| !job.of(part).is_zero()), "{job:?}");
        assert!(job.of("idle").is_zero() && job.tasks == 1, "{job:?}");
    }
    // One reads from the drive what the other then finds.
    assert!(jobs.iter().any(|job| !job.of("driver").is_zero()), "{jobs:?}");
    let interrupts = account(Account::INTERRUPTS);
    assert!(!interrupts.of("irq").is_zero() && interrupts.of("user").is_zero(), "{interrupts:?}");
    assert!(account(Account::IDLE).total() > elapsed / 2);
}

/// Sweeps run many computers in one process.
#[cfg(target_os = "linux")]
#[test]
fn a_run_leaves_no_drive_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.img");
    let is_ours = |entry: std::fs::DirEntry| std::fs::read_link(entry.path()).is_ok_and(|file| file == path);
    let open =
        || std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(is_ours).filter(|&ours| ours).count();
    let backing = "backing = \"drive.img\"";
    for command in ["stream", "dd if=/dev/urandom of=/dev/nvme0n1 bs=16k count=4 oflag=direct"] {
        in_folder(folder.path(), "", backing, &[command]).unwrap().remove(0).outcome.unwrap();
        assert_eq!(open(), 0, "{command}");
    }
}

/// What fio measured with these options on a drive.
fn fio(options: &str) -> workloads::Report {
    let line = format!("fio --name=x {options}");
    on_drive("optane-900p", "off", &line).outcome.unwrap_or_else(|failure| panic!("{line}: {failure}"))
}

fn note(report: &workloads::Report, words: &str) -> bool {
    report.notes.iter().any(|note| note.contains(words))
}

/// "Whichever occurs first": only `time_based` goes over the range again (fio's HOWTO, `runtime`).
#[test]
fn a_size_ends_fio_unless_it_is_time_based() {
    let ends = |options: &str| fio(&format!("--rw=read --bs=4k {options}")).get("read requests").unwrap();
    assert_eq!(ends("--size=1m --runtime=20ms"), 256.0);
    assert_eq!(ends("--size=1m --io_size=2m --runtime=20ms"), 512.0);
    assert_eq!(ends("--size=64k --loops=3"), 48.0);
    assert_eq!(ends("--size=1m --number_ios=10"), 10.0);
    assert!(ends("--size=64k --runtime=1ms --time_based") > 100.0);
    assert!(ends("--size=1g --runtime=1ms") < 200.0);
    // Each block once, then again.
    assert_eq!(fio("--rw=randread --bs=4k --size=64k").get("read requests"), Some(16.0));
}

/// fio waits for what is in flight when its time is over, and counts it.
#[test]
fn requests_in_flight_at_the_end_are_counted() {
    let event = "[[event]]\nat = \"1 ms\"\ndo = \"error-rate\"\nwhat = \"a:d\"\nrate = 1e-3\n";
    let host = host("a", "dell-t430", "[[host.device]]\nname = \"d\"\ndrive = \"optane-900p\"");
    let line = "fio --name=x --filename=/dev/nvme0n1 --rw=randread --bs=4k --ioengine=libaio --iodepth=8 --runtime=3ms";
    let done = run(&[HEAD, &host, &program("a", "0", line), event].concat()).remove(0);
    let report = done.outcome.unwrap();
    let (requests, p99) = (report.get("read requests").unwrap(), report.get("read clat 99 %").unwrap());
    assert!(requests > 500.0 && p99 > 1000.0, "{report:?}");
    assert!(done.took.as_s_f64() > 0.01 && report.get("read clat 99.9 %").is_none());
    assert!(note(&report, "99.9 % needs 1000 samples"), "{:?}", report.notes);
}

#[test]
fn a_synchronous_engine_has_one_request_in_flight() {
    let rate = |options: &str| {
        let report = fio(&format!("--rw=randread --bs=4k --iodepth=8 --runtime=1ms {options}"));
        (report.get("read iops").unwrap(), note(&report, "--iodepth=8 acts as 1"))
    };
    let ((none, told), (psync, _), (libaio, quiet)) =
        (rate(""), rate("--ioengine=psync"), rate("--ioengine=libaio"));
    assert_eq!(none, psync);
    assert!(told && !quiet && libaio > 3.0 * none, "{none} {libaio}");
    let report = fio("--direct=0 --rw=read --ioengine=libaio --iodepth=8 --size=64k");
    assert!(note(&report, "--iodepth=8 acts as 1 without --direct=1"));
}

#[test]
fn several_jobs_are_reported_each_and_together() {
    let two = "--rw=randread --size=64k --name=y --rw=randwrite --bs=8k --size=64k";
    let apart = fio(two);
    assert_eq!(apart.get("x: read requests"), Some(16.0));
    assert_eq!(apart.get("y: write requests"), Some(8.0));
    assert_eq!((apart.get("read requests"), apart.get("write requests")), (Some(16.0), Some(8.0)));
    let together = fio(&format!("{two} --name=global --group_reporting"));
    assert_eq!(together.get("x: read requests"), Some(16.0), "what is global is for jobs that follow");
    let line = format!("fio --group_reporting=1 --name=x {two}");
    let together = on_drive("optane-900p", "off", &line).outcome.unwrap();
    assert_eq!((together.get("read requests"), together.get("x: read requests")), (Some(16.0), None));
    let one_by_one = fio(&format!("{two} --stonewall"));
    assert_eq!((one_by_one.get("y: write requests"), one_by_one.get("read requests")), (Some(8.0), None));
}

#[test]
fn a_job_file_lies_beside_its_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    std::fs::create_dir(folder.path().join("jobs")).unwrap();
    std::fs::write(
        folder.path().join("jobs/j.fio"),
        "[global]\nsize=64k\n[a]\nrw=read\n[b]\nrw=write\nbs=16k\n",
    )
    .unwrap();
    let load = |run: &str| {
        let text = [HEAD, &host_with_drive("optane-900p", "off"), &program("a", "0-3", run)].concat();
        std::fs::write(&path, text).unwrap();
        let library = machine::Library::built_in();
        let doc = machine::Doc::load(&library, path.to_str().unwrap()).unwrap();
        machine::ComputerSetup::load(&library, &doc).map(|setup| (setup, library.used()))
    };
    let (setup, used) = load("fio --direct=1 jobs/j.fio").unwrap();
    assert!(used.files.keys().any(|name| name.ends_with("jobs/j.fio")), "{used:?}");
    let report = computer::run(&setup, &Silent).unwrap().remove(0).outcome.unwrap();
    assert_eq!((report.get("a: read requests"), report.get("b: write requests")), (Some(16.0), Some(4.0)));
    let (setup, _) = load("fio --section=b jobs/j.fio").unwrap();
    let report = computer::run(&setup, &Silent).unwrap().remove(0).outcome.unwrap();
    assert_eq!((report.get("read requests"), report.get("write requests")), (None, Some(4.0)));
    std::os::unix::fs::symlink("/etc/hostname", folder.path().join("out.fio")).unwrap();
    for (name, words) in [("../x.fio", "not below"), ("/etc/hostname", "not below"), ("out.fio", "leads out")]
    {
        let said = load(&format!("fio {name}")).map(drop).unwrap_err().render(false);
        assert!(said.contains(words), "{name}: {said}");
    }
}

#[test]
fn rates_are_kept() {
    let report = fio("--rw=randread --bs=4k --rate_iops=20k --runtime=5ms");
    let rate = report.get("read iops").unwrap();
    // 20k is 20,480 here, as kb_base is 1024.
    assert!((20_000.0..20_700.0).contains(&rate), "{rate}");
    let rate = fio("--rw=read --bs=4k --ioengine=libaio --iodepth=4 --rate=100m --runtime=5ms")
        .get("read bw")
        .unwrap();
    assert!((103.0..106.0).contains(&rate), "{rate} MB/s of 104.9");
    let rate = fio("--rw=read --thinktime=100 --size=40k").get("read iops").unwrap();
    assert!(rate < 10_000.0, "{rate}");
    // Neither direction waits for the other's rate, and one without a rate has none.
    let both = fio("--rw=randrw --bs=4k --ioengine=libaio --iodepth=8 --rate_iops=20k,5k --runtime=5ms");
    for (quantity, rate) in [("read iops", 20e3), ("write iops", 5e3)] {
        let kept = both.get(quantity).unwrap();
        assert!((0.9..1.05).contains(&(kept / rate)), "{quantity} {kept}");
    }
    let free = fio("--rw=randrw --bs=4k --ioengine=libaio --iodepth=8 --rate_iops=,5k --runtime=5ms");
    let [reads, writes] = ["read iops", "write iops"].map(|quantity| free.get(quantity).unwrap());
    assert!(reads > 10.0 * writes && (4500.0..5250.0).contains(&writes), "{reads} and {writes}");
    let line = "fio --rw=read --rate_min=1g --rate_cycle=1 --runtime=5ms";
    let failure = on_drive("optane-900p", "off", line).outcome.unwrap_err();
    assert!(failure.0.contains("rate_min=1073741824/s not met"), "{failure}");
}

#[test]
fn patterns_have_their_mixtures() {
    let report =
        fio("--rw=randrw --rwmixwrite=20 --bssplit=4k/50:64k/50,4k --size=8m --ioengine=libaio --iodepth=8");
    let of = |name: &str| report.get(name).unwrap();
    let share = of("read requests") / (of("read requests") + of("write requests"));
    assert!((0.7..0.9).contains(&share), "{share}");
    let report = fio("--rw=trimwrite --bs=64k --size=1m --fsync=4 --end_fsync");
    assert_eq!((report.get("trim requests"), report.get("write requests")), (Some(16.0), Some(16.0)));
    assert_eq!(report.get("fsync requests"), Some(5.0));
    let report =
        fio("--rw=randread --random_distribution=zipf:1.2 --size=1m --direct=0 --percentage_random=90");
    assert_eq!(report.get("read requests"), Some(256.0));
    // Popular blocks come from the page cache.
    let report = fio("--rw=randread --random_distribution=zipf:1.2 --size=64m --io_size=4m --direct=0");
    let zipf = report.get("read clat mean").unwrap();
    let uniform = fio("--rw=randread --size=64m --io_size=4m --direct=0").get("read clat mean").unwrap();
    assert!(zipf < 0.8 * uniform, "{zipf} {uniform}");
}

/// The forms that scripts read.
#[test]
fn fio_prints_its_own_forms_on_request() {
    let options = "--rw=randread --size=1m --numjobs=2 --group_reporting";
    assert_eq!(fio(options).text, None);
    let json = fio(&format!("{options} --output-format=json")).text.unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let read = &json["jobs"][0]["read"];
    assert_eq!((&read["total_ios"], &read["io_kbytes"]), (&512.into(), &2048.into()));
    let clat = &read["clat_ns"];
    assert!(clat["percentile"]["99.000000"].as_u64() >= clat["percentile"]["50.000000"].as_u64());
    assert_eq!((&clat["N"], &clat["percentile"]["99.990000"]), (&512.into(), &serde_json::Value::Null));
    let text = fio(&format!("{options} --output-format=normal")).text.unwrap();
    for words in [
        "x: (g=0): rw=randread, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=psync, iodepth=1",
        "Starting 2 processes",
        "x: (groupid=0, jobs=2): err= 0",
        "  read: IOPS=",
        "    clat percentiles (",
        "  IO depths    : 1=100.0%, 2=0.0%",
        "     issued rwts: total=512,0,0,0 short=0,0,0,0 dropped=0,0,0,0",
        "Run status group 0 (all jobs):\n   READ: bw=",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    let terse = fio(&format!("{options} --minimal")).text.unwrap();
    let fields: Vec<&str> = terse.trim_end().split(';').collect();
    assert_eq!((fields[0], fields[2], fields[5]), ("3", "x", "2048"));
    // As many fields as version 3 has, without those of disks: 5 of the job, 41 of each direction, 5, 7, 10 and 12.
    assert_eq!(fields.len(), 121, "{terse}");
}

#[test]
fn dd_prints_its_own_lines_on_request() {
    let line = "dd if=/dev/zero of=/dev/nvme0n1 bs=1M count=2 oflag=direct status=progress";
    let text = on_drive("optane-900p", "off", line).outcome.unwrap().text.unwrap();
    let start = "2+0 records in\n2+0 records out\n2097152 bytes (2.1 MB, 2.0 MiB) copied, 0.00";
    assert!(text.starts_with(start) && text.ends_with(" GB/s\n"), "{text}");
    let durable = |flag: &str| {
        let line = format!("dd if=/dev/zero of=/dev/nvme0n1 bs=4k count=16 {flag}");
        on_drive("optane-900p", "off", &line).outcome.unwrap().get("rate").unwrap()
    };
    assert!(durable("oflag=dsync") < 0.5 * durable(""), "each write waits for the drive");
    let parts =
        on_drive("optane-900p", "off", "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=10000B status=noxfer");
    let report = parts.outcome.unwrap();
    assert_eq!(report.text.as_deref(), Some("2+1 records in\n2+1 records out\n"));
    assert_eq!((report.get("records"), report.get("copied")), (Some(3.0), Some(10_000.0)));
}

/// `taskset` and `numactl` do what `cpus` and `memory` do.
#[test]
fn prefixes_place_a_program() {
    let took = |before: &str, keys: &str| {
        let run = format!("{before}stream --array-size 400000 --ntimes 2");
        let text =
            format!("{HEAD}{}[[program]]\nhost = \"a\"\n{keys}run = \"{run}\"\n", host("a", "dell-t430", ""));
        self::run(&text).remove(0).took
    };
    assert_eq!(took("taskset -c 0-1 ", ""), took("", "cpus = \"0-1\"\n"));
    assert_eq!(took("numactl -C 0 -m 1 ", ""), took("", "cpus = \"0\"\nmemory = \"node1\"\n"));
    assert!(took("numactl -C 0 -m 1 ", "") > took("numactl -C 0 -m 0 ", ""));
}

/// fio's limits, pauses and groups do what they do in the original.
#[test]
fn options_of_jobs_are_carried_out() {
    let fio = |options: &str| {
        let line = format!("fio --filename=/dev/nvme0n1 --rw=randread --bs=4k --runtime=1ms {options}");
        on_drive("optane-900p", "off", &line)
    };
    let failure = fio("--max_latency=3").failure().unwrap().to_string();
    assert!(failure.contains("above max_latency=3 µs"), "{failure}");
    assert!(fio("--max_latency=1ms").failure().is_none());
    // A request of 9 us and a pause of 40 us, asleep or not.
    for options in ["--thinktime=40", "--thinktime=40us --thinktime_spin=30"] {
        let done = fio(options);
        let iops = done.outcome.as_ref().unwrap().get("read iops").unwrap();
        assert!((18_000.0..21_000.0).contains(&iops), "{options}: {iops}");
    }
    let text = fio("--output-format=json --group_reporting --name=a --name=b --name=c --new_group")
        .outcome
        .unwrap()
        .text;
    let json: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
    let groups: Vec<u64> =
        json["jobs"].as_array().unwrap().iter().map(|job| job["groupid"].as_u64().unwrap()).collect();
    assert_eq!(groups, [0, 1]);
}

/// The scheduler prefers the program that `chrt` or `nice` put before the other on the same core.
#[test]
fn priorities_share_a_core() {
    let rates = |before: &str| {
        let line =
            "fio --filename=/dev/nvme0n1 --rw=randread --bs=4k --ioengine=libaio --iodepth=16 --runtime=4ms";
        let programs = [program("a", "0", &format!("{before} {line}")), program("a", "0", line)].concat();
        let done = run(&[HEAD, &host_with_drive("optane-p4800x", "off"), &programs].concat());
        let rate = |done: &FinishedProgram| done.outcome.as_ref().unwrap().get("read iops").unwrap();
        rate(&done[0]) / rate(&done[1])
    };
    let [alike, nice, first] = ["time", "nice -n 15", "chrt -f 10"].map(rates);
    assert!((0.8..1.25).contains(&alike), "{alike}");
    assert!(nice < 0.8 && first > 1.25, "{nice} {first}");
}
