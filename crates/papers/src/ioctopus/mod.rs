//! "IOctopus: Outsmarting Nonuniform DMA", ASPLOS 2020.
//!
//! Each run is a scenario: the paper's server in one of its configurations, a workload, and counters of hardware and
//! kernel over a window in which the workload's rate is steady.

mod colocated;
mod cores;
mod derived;
mod files;
mod latency;
mod migration;
mod packets;
mod server;
mod storage;
mod streams;
mod trends;

use machine::Diagnostics;
use nearfar::Progress;
use results::claims::ClaimFile;
#[cfg(test)]
use results::claims::Verdict;

use super::runs::{self as all, NamedRun, Values};
use super::{AskedClaims, Options, Reproduction, selection};
use server::{Organisation, ServerBench};
use storage::Drives;

/// Sizes of netperf's buffers (Figures 6 and 7), of frames (Figure 8) and of messages (Figure 9). The paper's axis
/// labels are lost.
const BUFFERS: [u32; 7] = [64, 256, 1024, 1500, 4096, 16384, 65536];
const FRAMES: [u32; 6] = [64, 128, 256, 512, 1024, 1500];
const MESSAGES: [u32; 7] = [1, 64, 1024, 4096, 8192, 16384, 65536];

/// Shares of SET requests (Figure 10), and numbers of STREAM instances (Figures 11 and 12).
const SETS: [u32; 6] = [0, 20, 40, 60, 80, 100];
const INSTANCES: [u16; 10] = [0, 2, 4, 6, 8, 10, 12, 16, 20, 24];

/// All runs, the longest first.
fn runs() -> Vec<NamedRun<ServerBench>> {
    use Organisation::{
        Bond, DdioOff, Local, Octo, OctoWide, OneDriver, Remote, RemoteDdioDevice, RemoteDdioHome, TwoNetdevs,
    };
    let mut runs: Vec<NamedRun<ServerBench>> = Vec::new();
    let mut add = |name: String, run| runs.push(NamedRun { name, run });
    add("PageRank alone".into(), Box::new(|bench| colocated::ranks(bench, None)));
    // Where the paper says that an octoNIC equals a local one, run it only at the most sensitive point.
    let few = |organisation: Organisation, count: usize| if organisation == Octo { count - 1 } else { 0 };
    for organisation in [Local, Remote, Octo] {
        let name = organisation.name();
        for load in ["memcached", "netperf"] {
            let run = move |bench: &ServerBench| colocated::ranks(bench, Some((organisation, load)));
            add(format!("PageRank beside {load} {name}"), Box::new(run));
        }
        for set in SETS {
            let run = move |bench: &ServerBench| colocated::store(bench, organisation, set);
            add(format!("memcached {name} {set}"), Box::new(run));
        }
        for way in cores::Streams::ALL {
            let run = move |bench: &ServerBench| cores::all(bench, way, organisation);
            add(format!("all cores {name} {}", way.name()), Box::new(run));
        }
        for instances in INSTANCES.into_iter().skip(few(organisation, INSTANCES.len())) {
            let run = move |bench: &ServerBench| colocated::throughput(bench, organisation, instances);
            add(format!("RX beside STREAM {name} {instances}"), Box::new(run));
            let run = move |bench: &ServerBench| colocated::latency(bench, organisation, instances);
            add(format!("UDP beside STREAM {name} {instances}"), Box::new(run));
        }
    }
    for (organisation, name) in [(Octo, "octo-2x8"), (OctoWide, "octo-2x16")] {
        let run = move |bench: &ServerBench| cores::one_socket(bench, organisation, name);
        add(format!("one socket {name}"), Box::new(run));
    }
    for (drives, step) in [(Drives::Remote, 1), (Drives::Local, 1), (Drives::Octo, 5)] {
        for instances in (0..=5).step_by(step) {
            let run = move |bench: &ServerBench| storage::run(bench, drives, instances);
            add(format!("fio {} {instances}", drives.name()), Box::new(run));
        }
    }
    for instances in 1..=5 {
        let run = move |bench: &ServerBench| storage::streams_alone(bench, instances);
        add(format!("STREAM without fio {instances}"), Box::new(run));
    }
    for (organisation, name) in
        [(Octo, "octo"), (OneDriver, "octo-driver"), (TwoNetdevs, "standard"), (Bond, "bond")]
    {
        let run = move |bench: &ServerBench| migration::run(bench, organisation, name);
        add(format!("migration {name}"), Box::new(run));
    }
    for organisation in [Local, Remote, Octo, OneDriver] {
        let name = organisation.name();
        let few = organisation == OneDriver;
        for buffer in BUFFERS.into_iter().rev().take(if few { 1 } else { BUFFERS.len() }) {
            let run = move |bench: &ServerBench| {
                let rates = streams::receive(bench, organisation, buffer)?;
                Ok(streams::values("rx", organisation, buffer, &rates))
            };
            add(format!("RX {name} {buffer}"), Box::new(run));
            let run = move |bench: &ServerBench| {
                let rates = streams::send(bench, organisation, buffer, true)?;
                Ok(streams::values("tx", organisation, buffer, &rates))
            };
            add(format!("TX {name} {buffer}"), Box::new(run));
        }
        for frame in FRAMES.into_iter().take(if few { 1 } else { FRAMES.len() }) {
            let run = move |bench: &ServerBench| packets::run(bench, organisation, frame);
            add(format!("pktgen {name} {frame}"), Box::new(run));
        }
    }
    for organisation in [Local, Remote, Octo] {
        let run = move |bench: &ServerBench| {
            let rates = streams::send(bench, organisation, 65536, false)?;
            Ok(streams::values("tx-no-tso", organisation, 65536, &rates))
        };
        add(format!("TX {} without TSO", organisation.name()), Box::new(run));
    }
    for organisation in [TwoNetdevs, Octo] {
        let run = move |bench: &ServerBench| files::send(bench, organisation);
        add(format!("sendfile {}", organisation.name()), Box::new(run));
    }
    for organisation in [Local, Octo] {
        let run = move |bench: &ServerBench| packets::new_each(bench, organisation, 64);
        add(format!("pktgen {} 64, each packet new", organisation.name()), Box::new(run));
    }
    let at_device = |bench: &ServerBench| packets::ring_at_device(bench);
    add("pktgen ring at the device".into(), Box::new(at_device));
    add("trend of cores and NICs".into(), Box::new(|_| Ok(trends::lines(&ClaimFile::of("ioctopus")))));
    for organisation in [DdioOff, RemoteDdioDevice, RemoteDdioHome] {
        let name = organisation.name();
        let run = move |bench: &ServerBench| {
            let rates = streams::receive(bench, organisation, 65536)?;
            Ok(streams::values("rx", organisation, 65536, &rates))
        };
        add(format!("RX {name} 65536"), Box::new(run));
        let run = move |bench: &ServerBench| packets::run(bench, organisation, 64);
        add(format!("pktgen {name} 64"), Box::new(run));
    }
    for organisation in [Local, Remote, DdioOff, Octo, RemoteDdioHome, RemoteDdioDevice] {
        let all = matches!(organisation, Local | Remote | DdioOff | Octo);
        for bytes in MESSAGES.into_iter().filter(|&bytes| all || bytes == 64) {
            let run = move |bench: &ServerBench| latency::run(bench, organisation, bytes);
            add(format!("RR {} {bytes}", organisation.name()), Box::new(run));
        }
    }
    runs
}

/// Runs everything and judges the claims and figures by the results.
///
/// # Errors
/// If a machine, part or scenario file is invalid.
pub(super) fn reproduce(options: &Options, progress: &dyn Progress) -> Result<Reproduction, Diagnostics> {
    let AskedClaims { file, experiments } = asked(options);
    made_of(options, file, |name| experiments.iter().any(|wanted| wanted == name), progress)
}

/// What of the paper is asked for.
pub(super) fn asked(options: &Options) -> AskedClaims {
    let names = runs().into_iter().map(|run| run.name).collect();
    AskedClaims::new(ClaimFile::of("ioctopus"), names, gives, options)
}

/// Beginnings of values' names, and of the names of the runs that give them; the first that fits counts.
const GIVEN_BY: [(&str, &[&str]); 18] = [
    ("qpi-udp", &["UDP beside"]),
    ("qpi-latency", &["UDP beside"]),
    ("qpi-", &["RX beside"]),
    ("rx-", &["RX "]),
    ("tx-", &["TX "]),
    ("pktgen-over-tx", &["pktgen", "TX local"]),
    ("pktgen-", &["pktgen"]),
    ("rr-", &["RR "]),
    (
        "run-",
        &["all cores", "one socket", "sendfile", "TX local without", "TX remote without", "TX octo without"],
    ),
    ("multicore-", &["all cores"]),
    ("octo-2x", &["one socket"]),
    ("memcached-", &["memcached"]),
    ("pagerank-", &["PageRank"]),
    ("migration/", &["migration"]),
    ("trend", &["trend"]),
    ("fio-stream", &["fio", "STREAM without fio"]),
    ("fio-", &["fio"]),
    ("sendfile-", &["sendfile"]),
];

/// Whether a run gives a value, or one that it is derived from.
fn gives(run: &str, key: &str) -> bool {
    let found = GIVEN_BY.iter().find(|(start, _)| key.starts_with(start));
    let gives = |starts: &[&str]| starts.iter().any(|start| run.starts_with(start));
    // Streams beside others have values of their own.
    found.is_some_and(|(start, runs)| gives(runs) && (*start != "rx-" || !run.starts_with("RX beside")))
}

/// Makes the runs whose names are wanted.
fn made_of(
    options: &Options,
    mut file: ClaimFile,
    wants: impl Fn(&str) -> bool,
    progress: &dyn Progress,
) -> Result<Reproduction, Diagnostics> {
    let mut runs = runs();
    runs.retain(|run| wants(&run.name));
    let run = |run: &NamedRun<ServerBench>, options: &Options| (run.run)(&ServerBench::new(options)?);
    let made = all::make(("ioctopus", options), &runs, progress, |run| &run.name, run);
    let mut observed = made.values.clone();
    observed.extend(derived::derived(&observed));
    selection::keep_known(&mut file, &observed, &made.failed, options);
    let evidence = all::evidence(&file, &observed, &made, gives, options);
    let values = all::told(&observed, options);
    let of = Reproduction::new("IOctopus, simulated", file, evidence, made.count, Vec::new(), made.failed);
    Ok(of.with_values(values).resting_on(made.rests))
}

#[cfg(test)]
mod tests {
    use super::server::Server;
    use super::*;

    fn options() -> Options {
        Options::whole(1)
    }

    /// Every value used by a claim is produced by a run.
    #[test]
    fn claims_name_what_runs_give() {
        let file = ClaimFile::of("ioctopus");
        let names: Vec<String> = runs().into_iter().map(|run| run.name).collect();
        assert!(names.iter().collect::<std::collections::BTreeSet<_>>().len() == names.len());
        for key in file.observed() {
            assert!(names.iter().any(|run| gives(run, &key)), "{key}");
        }
    }

    /// The mechanism behind Figures 6 to 8: the traffic of a remote NIC crosses the interconnect, that of a local one
    /// never does.
    #[test]
    fn only_a_remote_nic_crosses_the_interconnect() {
        let bench = ServerBench::new(&options()).unwrap();
        let [local, remote, octo] = [Organisation::Local, Organisation::Remote, Organisation::Octo]
            .map(|organisation| streams::send(&bench, organisation, 65536, true).unwrap());
        assert!(remote.of(|rates| rates.link_dma / rates.gbit).0 > 0.9);
        assert!(local.of(|rates| rates.link_dma / rates.gbit).0 < 0.02);
        assert!(remote.of(|rates| rates.memory).0 > 3.0 * local.of(|rates| rates.memory).0);
        assert!(octo.of(|rates| rates.link_io).0 == 0.0 && remote.of(|rates| rates.link_io).0 > 0.0);
    }

    /// Claims whose runs are short, of all that an octoNIC is for: nothing crosses, and it is as fast as a local NIC, which
    /// is faster than a remote one.
    #[test]
    fn claims_of_short_runs_hold() {
        let runs = [
            "RX octo 65536",
            "TX octo 65536",
            "TX local 65536",
            "TX remote 65536",
            "pktgen local 64",
            "pktgen remote 64",
            "pktgen octo 64",
            "pktgen octo 64, each packet new",
            "RR local 64",
            "RR remote 64",
            "RR octo 64",
            "sendfile octo",
            "sendfile two-netdevs",
        ];
        let made =
            made_of(&options(), ClaimFile::of("ioctopus"), |name| runs.contains(&name), &nearfar::Silent)
                .unwrap();
        assert_eq!((made.experiments, &made.notes[..]), (runs.len(), &[][..]));
        let claims = made.claims();
        let judged: Vec<_> = claims.iter().filter(|claim| claim.simulated.is_some()).collect();
        let crosses = |id: &str| id.starts_with("ioctopus/text/octo-link/");
        for claim in judged.iter().filter(|claim| crosses(&claim.id)) {
            assert_eq!(claim.simulated, Some(0.0), "{}", claim.id);
        }
        assert_eq!(judged.iter().filter(|claim| crosses(&claim.id)).count(), 5);
        for id in [
            "fig7/ratio/65536",
            "fig8/ratio/64",
            "text/pktgen/remote",
            "fig9/rr-us/64",
            "text/octo/stream-tx",
            "text/octo/pktgen",
            "text/octo/rr",
        ] {
            let claim = claims.iter().find(|claim| claim.id == format!("ioctopus/{id}"));
            let claim = claim.unwrap_or_else(|| panic!("there is no claim {id}"));
            assert_eq!(claim.verdict, Verdict::Within, "{id}: {:?}", claim.simulated);
        }
    }

    /// The count behind "no out-of-order packets": zero on a cable that keeps the order, and not on one that does not.
    #[test]
    fn packets_that_overtake_others_are_counted() {
        let bench = ServerBench::new(&options()).unwrap();
        let overtaking = |cable: &str| {
            let text = [
                bench.host("server", Organisation::Octo, streams::DRIVER),
                bench.host("client", Organisation::Local, streams::DRIVER),
                ServerBench::cable(Organisation::Octo) + cable,
            ];
            let rig = bench.boot(&text.concat()).unwrap();
            rig.start(0, &[0], "netserver").unwrap();
            rig.start(1, &[0], "netperf -H 10.0.0.1 -t TCP_STREAM -l 1").unwrap();
            rig.pass(units::Duration::from_ms(2));
            Server(&rig).overtaking()
        };
        assert_eq!(overtaking(""), 0);
        assert!(overtaking("reordering = 0.01\nlongest_delay = \"20 us\"\n") > 10);
    }
}
