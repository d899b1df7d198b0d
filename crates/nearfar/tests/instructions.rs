//! How many instructions the simulation takes for a TLP, a packet, a segment, a read: counted, so that a busy machine does not
//! count, and held against what it took before.
//!
//! Each number is the difference of two runs under callgrind, one longer than the other, so that what comes before the first
//! packet is no part of it. The program runs itself under valgrind as it was built for the tests, which takes no build of its own:
//! counts are those of that profile (with optimisation level 1, about twice those of a release), and in others they are printed
//! and not judged. `instructions WORK LENGTH` does the work once, for a profiler.

mod scenario;

use std::process::{Command, ExitCode};

use machine::{Doc, IommuMode, Library, Machine, Part, Sockets};
use nearfar::bench::{Bench, Effort};
use nearfar::computer;
use nearfar::progress::Silent;
use needs::Need;
use results::pciebench::{Cache, Pattern, Run, Test};
use scenario::{HEAD, cable, host, host_with_drive, host_with_nic, loaded, program, two_hosts};
use units::Bytes;

/// The compiler with which the counts below were taken. Others may differ by some percent.
const COMPILER: &str = "1.95.0";
/// How many more instructions than before are too many.
const ALLOWED: f64 = 0.15;
/// Something that is done many times.
struct Work {
    name: &'static str,
    /// What is counted.
    unit: &'static str,
    /// How long the shorter and the longer run are.
    lengths: [u64; 2],
    /// Does it, and gives how often.
    run: fn(u64) -> u64,
    /// Instructions for one, in the profile of the tests, when they were counted last.
    before: f64,
    /// How many more are too many.
    allowed: f64,
}

const WORK: [Work; 4] = [
    Work {
        name: "tlps",
        unit: "TLP",
        lengths: [10_000, 30_000],
        run: tlps,
        before: 2_019.0,
        allowed: ALLOWED,
    },
    Work {
        name: "packets",
        unit: "packet sent",
        lengths: [2_000, 6_000],
        run: packets,
        before: 16_915.0,
        allowed: ALLOWED,
    },
    Work {
        name: "segments",
        unit: "segment received",
        lengths: [300, 900],
        run: segments,
        before: 410_997.0,
        allowed: ALLOWED,
    },
    Work {
        name: "reads",
        unit: "4 KiB read of a drive",
        lengths: [1_000, 3_000],
        run: reads,
        before: 238_257.0,
        allowed: ALLOWED,
    },
];

/// The same segments by a NIC's driver alone, by a team above the functions of an octoNIC, and by the driver's one device of these
/// functions: the latter two may take a tenth more.
const BY_NIC: Work = Work {
    name: "segments-nic",
    unit: "segment received by a NIC",
    lengths: [300, 600],
    run: |us| segments_by("[[host.device]]\nnic = \"connectx4\"\nslot = \"slot\"\nchange.link.width = 8", us),
    before: 0.0,
    allowed: 0.0,
};
const BY_OCTO: Work = Work {
    name: "segments-octo",
    unit: "segment received by an octoNIC",
    run: |us| {
        let octo = "[[host.device]]\nname = \"nic\"\nnic = \"connectx4-octo\"\n\
                    links = [{ slot = \"slot\", lanes = 8 }, { slot = \"slot-socket1\", lanes = 8 }]\n\
                    [[host.team]]\nname = \"team0\"\nmode = \"octo\"\nmembers = [\"nic:0\", \"nic:1\"]";
        segments_by(octo, us)
    },
    ..BY_NIC
};
const BY_MULTI_PF: Work = Work {
    name: "segments-multi-pf",
    unit: "segment received by an octoNIC without a team",
    run: |us| {
        let octo = "nic_driver.multi_pf = true\n[[host.device]]\nname = \"nic\"\nnic = \"connectx4-octo\"\n\
                    links = [{ slot = \"slot\", lanes = 8 }, { slot = \"slot-socket1\", lanes = 8 }]";
        segments_by(octo, us)
    },
    ..BY_NIC
};
const ALLOWED_FOR_OCTO: f64 = 0.10;

/// Segments that a host receives with packets that follow their reader.
fn segments_by(device: &str, us: u64) -> u64 {
    let seconds = us as f64 / 1e6;
    let lines = format!("change_kernel.steering = {{ rfs = true, arfs = true }}\n{device}");
    let text = [HEAD, &host("b", "dell-t430", &lines), &host_with_nic("a"), &cable("a", "b", "")].concat()
        + &program("b", "0", "netserver")
        + &program("a", "0", &format!("netperf -H 10.0.0.1 -t TCP_STREAM -l {seconds}"));
    (reading(&text, "received") / 1448.0) as u64
}

/// 64 B reads of a card, the IOMMU off.
fn tlps(transactions: u64) -> u64 {
    let library = Library::built_in();
    let machine = Doc::<Machine>::load(&library, "dell-t430").and_then(|doc| doc.read());
    let bench = Bench {
        machine: machine.unwrap_or_else(|error| panic!("{error}")),
        card: Doc::<Part>::load(&library, "nfp6000")
            .and_then(|doc| doc.read())
            .expect("a part of the repository"),
        sockets: Sockets { device: 0, memory: 0, warming: 0 },
        iommu: IommuMode::Off,
        seed: 1,
    };
    let run = Run {
        test: Test::BwDmaRd,
        pattern: Pattern::Random,
        cache: Cache::HostWarm,
        host_offset: 0,
        device_offset: 0,
        window: Bytes::kib(256),
        transfer: Bytes::new(64),
    };
    bench.run(&run, Effort { transactions, ..Effort::default() }).expect("the machine can do it").tlps
}

/// What the last program left under a name.
fn reading(text: &str, quantity: &str) -> f64 {
    let done = computer::run(&loaded(text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let report =
        done.iter().rev().filter_map(|done| done.outcome.as_ref().ok()).find_map(|r| r.get(quantity));
    report.unwrap_or_else(|| panic!("{quantity} in {done:?}"))
}

fn packets(count: u64) -> u64 {
    let switch =
        [HEAD, "switch = [{ name = \"s\", ports = 2 }]\n", &host_with_nic("a"), &cable("a", "s", "")];
    let pktgen = program("a", "0", &format!("pktgen -s 60 -n {count} -c 1000 -b 32"));
    reading(&(switch.concat() + &pktgen), "sent") as u64
}

fn segments(us: u64) -> u64 {
    let seconds = us as f64 / 1e6;
    let text = two_hosts("")
        + &program("b", "0", "netserver")
        + &program("a", "0", &format!("netperf -H 10.0.0.2 -t TCP_STREAM -l {seconds}"));
    // Bytes of payload in a segment of a frame of 1514 B, timestamps on.
    (reading(&text, "received") / 1448.0) as u64
}

fn reads(us: u64) -> u64 {
    let seconds = us as f64 / 1e3;
    let fio = format!(
        "fio --name=x --filename=/dev/nvme0n1 --rw=randread --bs=4k --iodepth=1 --runtime={seconds}ms"
    );
    let text = HEAD.to_owned() + &host_with_drive("optane-900p", "off") + &program("a", "0", &fio);
    reading(&text, "read requests") as u64
}

/// Instructions of one run, and how often it did its work.
fn counted(work: &Work, length: u64) -> (u64, u64) {
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([work.name, &length.to_string()])
        .output()
        .expect("valgrind starts");
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let collected = told.lines().find_map(|line| line.split_once("Collected :"));
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (collected.and_then(|(_, count)| number(count)), number(&said)) {
        (Some(instructions), Some(times)) => (instructions, times),
        _ => panic!("{} {length} under valgrind: {said}{told}", work.name),
    }
}

/// Instructions for one.
fn of_one(work: &Work) -> f64 {
    let [few, many] = work.lengths.map(|length| counted(work, length));
    (many.0 - few.0) as f64 / (many.1 - few.1) as f64
}

/// Counts what one takes and holds it against what it took before.
fn judge(work: &Work) {
    let now = of_one(work);
    let change = now / work.before - 1.0;
    let said = format!(
        "{now:.0} instructions for a {}, {:+.1} % against {}",
        work.unit,
        100.0 * change,
        work.before
    );
    if !cfg!(debug_assertions) {
        println!("{said}, counted in another profile: not judged");
        return;
    }
    println!("{said}");
    let compiler = Command::new("rustc").arg("--version").output();
    let compiler = compiler.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let compiler = compiler.unwrap_or_else(|_| "unknown".to_owned());
    assert!(
        change <= work.allowed,
        "{said}: more than {:.0} % above. Counted with rustc {COMPILER}, and this is {compiler}",
        100.0 * work.allowed
    );
}

fn a_tlp() {
    judge(&WORK[0]);
}

fn a_packet_sent() {
    judge(&WORK[1]);
}

fn a_segment_received() {
    judge(&WORK[2]);
}

fn a_read_of_a_drive() {
    judge(&WORK[3]);
}

fn an_octo_nics_segment() {
    let nic = of_one(&BY_NIC);
    for work in [&BY_OCTO, &BY_MULTI_PF] {
        let octo = of_one(work);
        println!("{octo:.0} instructions for a {}, {nic:.0} for one {}", work.unit, BY_NIC.unit);
        assert!(octo <= (1.0 + ALLOWED_FOR_OCTO) * nic, "{}: {octo:.0} against {nic:.0}", work.name);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let work = arguments.first().and_then(|name| {
        WORK.iter().chain([&BY_NIC, &BY_OCTO, &BY_MULTI_PF]).find(|work| work.name == *name)
    });
    if let (Some(work), Some(Ok(length))) = (work, arguments.get(1).map(|length| length.parse())) {
        println!("{}", (work.run)(length));
        return ExitCode::SUCCESS;
    }
    let tests: Vec<(&'static str, fn())> = vec![
        ("a_tlp", a_tlp),
        ("a_packet_sent", a_packet_sent),
        ("a_segment_received", a_segment_received),
        ("a_read_of_a_drive", a_read_of_a_drive),
        ("an_octo_nics_segment", an_octo_nics_segment),
    ];
    needs::run([(Need::Program("valgrind"), tests)])
}
