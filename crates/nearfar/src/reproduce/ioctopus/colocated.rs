//! Network traffic beside other programs, and memcached (sections 5.1.3 and 5.2, Figures 10 to 13).

use std::rc::Rc;

use platform::cpu::Node;
use platform::memory::Policy;
use units::Duration;

use super::server::{Bench, Organisation};
use super::streams::{self, CORE, DRIVER, receiving};
use crate::reproduce::rig::{self, Rig};
use crate::reproduce::runs::{Values, named};

const BATCH: Duration = Duration::from_us(40);
const BATCHES: usize = 45;
/// Elements of an array of STREAM, so that it exceeds the caches: 64 MiB.
const ELEMENTS: u64 = 8 << 20;
/// Clients of memcached.
const CLIENTS: u16 = 14;
/// Objects of each client: enough to exceed the caches together, and few enough to be put there in some milliseconds.
const OBJECTS: u16 = 3;
/// PageRank: 2^18 nodes with 16 edges each, 17 MB of edges that lie in memory. One iteration reads each once, as of a graph that
/// no cache holds.
const GRAPH: &str = "pr -g 18 -k 16 -i 1";
/// Threads of PageRank on each socket.
const RANKERS: u16 = 8;

/// Starts so many instances of STREAM, in pairs on one socket and then the other, all in memory remote to them: one of a pair
/// reads, the other writes.
fn load_interconnect(bench: &Bench, rig: &Rig, instances: u16) -> Result<(), String> {
    for n in 0..instances {
        let (pair, only) = (n / 2, ["read", "write"][usize::from(n % 2)]);
        let socket = pair % 2;
        let core = bench.core(socket, 1 + pair / 2 * 2 + n % 2);
        let line = format!("stream --only {only} --array-size {ELEMENTS} --ntimes 1000");
        let memory = Policy::Bind(Node(1 - socket as u8));
        rig::start(Rc::clone(&rig.host(0).kernel), &[core], memory, &line)?;
    }
    Ok(())
}

/// A received stream beside instances of STREAM (Figure 11).
pub fn throughput(bench: &Bench, organisation: Organisation, instances: u16) -> Result<Values, String> {
    let (rig, running) = receiving(bench, organisation, 65536)?;
    load_interconnect(bench, &rig, instances)?;
    let rates = streams::settled(&rig, &running)?;
    let place = format!("{}/{instances}", organisation.name());
    let others = [("link", rates.link), ("memory", rates.memory)];
    Ok(named("qpi", &place, rates.interval, &[("gbit", rates.gbit)], &others))
}

/// Latency of messages of 64 B beside them (Figure 12).
pub fn latency(bench: &Bench, organisation: Organisation, instances: u16) -> Result<Values, String> {
    let at_once = "adaptive = false\ncoalescing = \"0 us\"\ncoalescing_packets = 1";
    let text = format!(
        "{}{}[[cable]]\nends = [\"server\", \"client\"]\n",
        bench.host("server", organisation, at_once),
        bench.host("client", Organisation::Local, at_once)
    );
    let rig = bench.boot(&text)?;
    rig.start(0, &[CORE], "sockperf server")?;
    load_interconnect(bench, &rig, instances)?;
    rig.pass(Duration::from_us(300));
    let running = rig.start(1, &[CORE], "sockperf ping-pong -i 10.0.0.1 -m 64 -t 0.0012")?;
    let report = rig.report(&running)?;
    let place = format!("{}/{instances}", organisation.name());
    let each = [("us", "latency mean"), ("p99", "latency p99")];
    let value = |(what, name)| Ok((format!("qpi-{what}/{place}"), rig::of(&report, name)?));
    each.into_iter().map(value).collect()
}

/// Starts a server's memcached on cores of socket 0 and the client's load on as many of its own.
fn memcached(
    bench: &Bench,
    rig: &Rig,
    cores: &[u16],
    (value, set, time): (u32, u32, &str),
) -> Result<rig::Running, String> {
    let threads = cores.len();
    rig.start(0, cores, &format!("memcached -t {threads} -m 1024"))?;
    let line = format!(
        "memaslap -s 10.0.0.1:11211 -c {CLIENTS} -t {time} -X {value} -w {OBJECTS} --key 256 --set {}",
        f64::from(set) / 100.0
    );
    let clients: Vec<u16> = (0..bench.cores).collect();
    rig.start(1, &clients, &line)
}

fn two_hosts(bench: &Bench, organisation: Organisation) -> Result<Rig, String> {
    bench.boot(&format!(
        "{}{}[[cable]]\nends = [\"server\", \"client\"]\n",
        bench.host("server", organisation, DRIVER),
        bench.host("client", organisation_of_client(organisation), DRIVER)
    ))
}

/// "Server and clients use the NIC local or remote, respectively" (section 5.1.3).
fn organisation_of_client(organisation: Organisation) -> Organisation {
    if organisation == Organisation::Remote { Organisation::Remote } else { Organisation::Local }
}

/// memcached under its clients, with so many percent of SET requests (Figure 10).
pub fn store(bench: &Bench, organisation: Organisation, set: u32) -> Result<Values, String> {
    let rig = two_hosts(bench, organisation)?;
    let cores: Vec<u16> = (0..bench.cores.min(CLIENTS)).collect();
    let running = memcached(bench, &rig, &cores, (512 << 10, set, "1s"))?;
    // The objects are put there first.
    let objects = u64::from(CLIENTS) * u64::from(OBJECTS) * (512 << 10);
    let host = rig.host(0).kernel.net().device(organisation.device()).ok_or("the server has no device")?;
    while host.counters().rx_bytes < objects {
        rig.pass(Duration::from_us(100));
        running.still_runs()?;
    }
    let bytes = || host.counters().rx_bytes + host.counters().tx_bytes;
    let (began, before) = (rig.computers.simulation().now(), bytes());
    let rates = rig.measure(&cores, BATCH, BATCHES);
    let took = rig.computers.simulation().now().since(began);
    running.still_runs()?;
    // Values in both directions; what else passes is a hundredth.
    let rate = (bytes() - before) as f64 * 8.0 / took.as_ns_f64();
    let place = format!("{}/{set}", organisation.name());
    let others = [("memory", rates.memory), ("memory-share", 100.0 * rates.memory / rate)];
    Ok(named("memcached", &place, rates.interval, &[("rate", rate)], &others))
}

/// PageRank on eight cores of each socket, alone or beside memcached or netperf on the others (Figure 13).
pub fn ranks(bench: &Bench, beside: Option<(Organisation, &str)>) -> Result<Values, String> {
    let organisation = beside.map_or(Organisation::Local, |(organisation, _)| organisation);
    let rig = two_hosts(bench, organisation)?;
    let free: Vec<u16> = (RANKERS..bench.cores).collect();
    let mut loads = Vec::new();
    match beside {
        None => {}
        Some((_, "memcached")) => loads.push(memcached(bench, &rig, &free, (256 << 10, 50, "1s"))?),
        Some(_) => {
            for (n, &core) in (0u16..).zip(&free) {
                rig.start(0, &[core], &format!("netserver -p {}", 13_000 + n))?;
                let line =
                    format!("netperf -H 10.0.0.1 -p {} -t TCP_STREAM -l 1 -- -m 65536 -M 65536", 13_000 + n);
                loads.push(rig.start(1, &[n], &line)?);
            }
        }
    }
    rig.pass(Duration::from_us(500));
    let rankers: Vec<u16> =
        (0..2).flat_map(|socket| (0..RANKERS).map(move |n| bench.core(socket, n))).collect();
    let running = rig.start(0, &rankers, GRAPH)?;
    let bytes = || -> u64 {
        let devices = rig.host(0).kernel.net().devices();
        devices.iter().map(|device| device.counters().rx_bytes + device.counters().tx_bytes).sum()
    };
    let (began, before) = (rig.computers.simulation().now(), bytes());
    let report = rig.report(&running)?;
    let took = rig.computers.simulation().now().since(began);
    let gbit = (bytes() - before) as f64 * 8.0 / took.as_ns_f64();
    let time = rig::of(&report, "trial time")?;
    Ok(match beside {
        None => Values::from([("pagerank-time/alone".to_owned(), time)]),
        Some((organisation, load)) => {
            let place = format!("{}/{load}", organisation.name());
            Values::from([
                (format!("pagerank-time/{place}"), time),
                (format!("pagerank-workload/{place}"), gbit),
            ])
        }
    })
}
