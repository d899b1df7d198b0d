//! Network traffic next to other programs, and memcached (sections 5.1.3 and 5.2, Figures 10 to 13).

use std::rc::Rc;

use platform::cpu::Node;
use platform::memory::Policy;
use units::Duration;

use super::server::{COSTS, Organisation, Server, ServerBench};
use super::streams::{self, CORE, DRIVER, receiving};
use crate::rig::{self, Rig};
use crate::runs::{Known, Values, named, set_known};

const BATCH: Duration = Duration::from_us(40);
/// Initial and maximum duration of the message exchange.
const FIRST: Duration = Duration::from_us(1200);
const MOST: Duration = Duration::from_us(38_400);
/// Elements of a STREAM array: 64 MiB, larger than the caches.
const ELEMENTS: u64 = 8 << 20;
/// Clients of memcached.
const CLIENTS: u16 = 14;
/// Objects per client, instead of the 10,000 of memaslap: together they have 112 MiB, three times the LLC, and are stored
/// within some 20 ms.
const OBJECTS: u16 = 16;
/// Duration of memaslap's mix after that.
const MIX: &str = "40ms";
/// PageRank on a graph of 2^20 nodes with the default degree of the GAP suite's generator: 67 MB of edges in memory,
/// and 4 MB of ranks. The paper does not name its graph. One iteration reads each edge once, as with a graph larger
/// than any cache.
const GRAPH: &str = "pr -g 20 -k 16 -i 1";
/// PageRank threads per socket.
const RANKERS: u16 = 8;

/// Starts STREAM instances, in pairs on alternating sockets, all with remote memory: one of a pair reads, the other
/// writes.
fn load_interconnect(bench: &ServerBench, rig: &Rig, instances: u16) -> Result<(), String> {
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

/// A received stream next to STREAM instances (Figure 11).
pub fn throughput(bench: &ServerBench, organisation: Organisation, instances: u16) -> Result<Values, String> {
    let (rig, running) = receiving(bench, organisation, 65536)?;
    load_interconnect(bench, &rig, instances)?;
    let run = streams::settled(&rig, &running)?;
    // What STREAM reads and writes is in the other socket's memory.
    let each = run.each([("gbit", |rates| rates.gbit), ("stream", |rates| rates.link_core)]);
    Ok(named("qpi", &format!("{}/{instances}", organisation.name()), each.into_iter().chain(run.each(COSTS))))
}

/// Latency of 64 B messages next to STREAM instances (Figure 12).
pub fn latency(bench: &ServerBench, organisation: Organisation, instances: u16) -> Result<Values, String> {
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
    let line = |seconds| format!("sockperf ping-pong -i 10.0.0.1 -m 64 -t {seconds}");
    let (latency, run) = Server(&rig).round_trips(organisation, (1, CORE), line, (FIRST, MOST))?;
    let each = [("us", latency.mean), ("p90", latency.p90), ("p99", latency.p99)];
    Ok(named(
        "qpi-udp",
        &format!("{}/{instances}", organisation.name()),
        each.into_iter().chain(run.each(COSTS)),
    ))
}

/// Starts memcached on these cores of the server and its load on these cores of the client.
fn memcached(
    rig: &Rig,
    (cores, clients): (&[u16], &[u16]),
    to: &str,
    (value, set, time): (u32, u32, &str),
) -> Result<rig::Running, String> {
    let threads = cores.len();
    let (_, port) = to.split_once(':').ok_or("no port")?;
    rig.start(0, cores, &format!("memcached -t {threads} -m 1024 -p {port}"))?;
    let line = format!(
        "memaslap -s {to} -c {CLIENTS} -t {time} -X {value} -w {OBJECTS} --key 256 --set {}",
        f64::from(set) / 100.0
    );
    rig.start(1, clients, &line)
}

fn two_hosts(bench: &ServerBench, organisation: Organisation) -> Result<Rig, String> {
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

/// memcached with the given percentage of SET requests (Figure 10).
pub fn store(bench: &ServerBench, organisation: Organisation, set: u32) -> Result<Values, String> {
    let rig = two_hosts(bench, organisation)?;
    let cores: Vec<u16> = (0..bench.cores.min(CLIENTS)).collect();
    let clients: Vec<u16> = (0..bench.cores).collect();
    let running = memcached(&rig, (&cores, &clients), "10.0.0.1:11211", (512 << 10, set, MIX))?;
    stored(&rig, std::slice::from_ref(&running), 512 << 10)?;
    let (report, run) = Server(&rig).measure_until_end(&cores, &running, BATCH)?;
    // Requests per millisecond. Those of clients in step end together, so the few of a part of the run do not tell its
    // rate; how steady it is shows in what passes the device.
    let rate = 1e3 * report.samples.len() as f64 / report.samples.iter().sum::<f64>();
    let (passed, half) = run.of(|rates| rates.passed);
    let rate = ("rate", (rate, rate * half / passed));
    let each = run.each([("memory-share", |rates| 100.0 * rates.memory / rates.passed)]);
    let place = format!("{}/{set}", organisation.name());
    Ok(named("memcached", &place, [rate].into_iter().chain(each).chain(run.each(COSTS))))
}

/// Waits until these clients, each of a server of its own, have stored their objects of `value` bytes.
fn stored(rig: &Rig, clients: &[rig::Running], value: u64) -> Result<(), String> {
    let objects = clients.len() as u64 * u64::from(CLIENTS) * u64::from(OBJECTS) * value;
    // A team's traffic passes its members, too.
    let devices = rig.host(0).kernel.net().devices();
    let members = || devices.iter().filter(|device| device.name() != "team0");
    while members().map(|device| device.counters().rx_bytes).sum::<u64>() < objects {
        rig.pass(Duration::from_us(100));
        clients.iter().try_for_each(rig::Running::still_runs)?;
    }
    Ok(())
}

/// Loads the server cores that PageRank leaves free, six per socket, with memcached or a receiving netperf. Each
/// group of six uses the local or the remote network device, as do the client cores that talk to it; an octoNIC has
/// one address for all.
fn load_free_cores(
    bench: &ServerBench,
    rig: &Rig,
    organisation: Organisation,
    load: &str,
) -> Result<Vec<rig::Running>, String> {
    let mut loads = Vec::new();
    for socket in 0..2 {
        let device = if organisation == Organisation::Remote { 1 - socket } else { socket };
        let address = if organisation == Organisation::Octo { 0 } else { device };
        let address = format!("10.0.{address}.1");
        let cores = |from: u16, to: u16| (from..to).map(|n| bench.core(socket, n)).collect::<Vec<u16>>();
        let (free, clients) = (cores(RANKERS, bench.cores), cores(0, bench.cores - RANKERS));
        if load == "memcached" {
            let to = format!("{address}:{}", 11_211 + socket);
            loads.push(memcached(rig, (&free, &clients), &to, (256 << 10, 50, "1s"))?);
            continue;
        }
        for (&core, &client) in free.iter().zip(&clients) {
            let port = 13_000 + core;
            rig.start(0, &[core], &format!("netserver -p {port}"))?;
            let line = format!("netperf -H {address} -p {port} -t TCP_STREAM -l 1 -- -m 65536 -M 65536");
            loads.push(rig.start(1, &[client], &line)?);
        }
    }
    Ok(loads)
}

/// PageRank on eight cores per socket, alone or next to memcached or netperf on the other cores (Figure 13).
pub fn ranks(bench: &ServerBench, beside: Option<(Organisation, &str)>) -> Result<Values, String> {
    let wired = match beside {
        Some((Organisation::Octo, _)) => Organisation::Octo,
        _ => Organisation::TwoNetdevs,
    };
    let rig = bench.boot(&format!(
        "{}{}{}",
        bench.host("server", wired, DRIVER),
        bench.host("client", wired, DRIVER),
        ServerBench::cable(wired)
    ))?;
    let loads = match beside {
        Some((organisation, load)) => load_free_cores(bench, &rig, organisation, load)?,
        None => Vec::new(),
    };
    // Wait until every flow has its steering rule.
    rig.pass(Duration::from_ms(6));
    if matches!(beside, Some((_, "memcached"))) {
        stored(&rig, &loads, 256 << 10)?;
    }
    let cores = |of: core::ops::Range<u16>| -> Vec<u16> {
        (0..2).flat_map(|socket| of.clone().map(move |n| bench.core(socket, n))).collect()
    };
    let running = rig.start(0, &cores(0..RANKERS), GRAPH)?;
    // CPU time is that of the cores beside PageRank's.
    let (report, run) = Server(&rig).measure_until_end(&cores(RANKERS..bench.cores), &running, BATCH)?;
    loads.iter().try_for_each(rig::Running::still_runs)?;
    let place = match beside {
        None => "alone".to_owned(),
        Some((organisation, load)) => format!("{}/{load}", organisation.name()),
    };
    let time = ("time", rig::of_steps(rig::of(&report, "trial time")?, &report.samples));
    let workload = ("workload", run.of(|rates| rates.passed));
    let each = [time, workload].into_iter().chain(run.each(COSTS));
    let mut values = named("pagerank", &place, each);
    for (n, &step) in report.samples.iter().enumerate() {
        set_known(&mut values, &step_at(&place, n), (step, f64::NAN));
    }
    Ok(values)
}

/// Name of a PageRank step next to a load at `place`.
fn step_at(place: &str, step: usize) -> String {
    format!("pagerank-step/{place}/{step}")
}

/// Ratio of PageRank's times at two places. Both run the same graph in the same steps; that some steps take longer
/// than others does not affect the precision of the ratio.
pub fn times_as_long(values: &Values, (over, under): (&str, &str)) -> Option<Known> {
    let steps = |place: &str| -> Vec<f64> {
        (0..).map_while(|step| values.get(&step_at(place, step)).copied()).collect()
    };
    let time = |place: &str| values.get(&format!("pagerank-time/{place}")).copied();
    Some(rig::of_pairs(time(over)? / time(under)?, (&steps(over), &steps(under))))
}
