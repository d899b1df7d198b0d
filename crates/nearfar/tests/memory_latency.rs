//! Memory of hosts of today as Intel's Memory Latency Checker has measured it
//! (`../shared/measured/today/hosts-mlc-nvbandwidth.csv`, `mlc-xeon-6980p.csv`), against `mlc` on their models.

use crate::scenario::{HEAD, host, loaded, program};
use nearfar::Silent;
use nearfar::computer::run;

/// Readings of `mlc` on some cores of a machine, each with what was measured and the error allowed in percent.
fn assert_near(machine: &str, cores: &str, options: &str, measured: &[(&str, f64)], allowed: f64) {
    let text = [HEAD, &host("a", machine, ""), &program("a", cores, &format!("mlc {options}"))].concat();
    let done = run(&loaded(&text), &Silent).unwrap();
    let report = done[0].outcome.as_ref().unwrap();
    for &(name, expected) in measured {
        let found = report.get(name).unwrap_or_else(|| panic!("{machine}: no {name} in {report:?}"));
        let error = 100.0 * (found / expected - 1.0);
        assert!(error.abs() <= allowed, "{machine} {name}: {found:.1}, measured {expected} ({error:+.1} %)");
    }
}

#[test]
fn idle_latencies_between_nodes_are_as_measured() {
    let sockets = [("idle latency 0 0", 81.2), ("idle latency 0 1", 130.2), ("idle latency 1 0", 130.2)];
    assert_near("xeon-8280", "0,28", "--latency_matrix", &sockets, 5.0);
    let clusters = [
        ("idle latency 0 0", 107.5),
        ("idle latency 0 1", 117.1),
        ("idle latency 0 2", 200.7),
        ("idle latency 3 0", 199.0),
    ];
    assert_near("epyc-9224", "0,12,24,36", "-r --latency_matrix", &clusters, 5.0);
    // 410 and 449 ns were measured, one for each direction.
    let sockets = [("idle latency 0 0", 130.7), ("idle latency 0 1", 429.6)];
    assert_near("xeon-6980p", "0,128", "--latency_matrix", &sockets, 5.0);
}

#[test]
fn dies_of_cores_read_what_their_links_carry() {
    let of_node = [
        ("reads bandwidth 0 0", 99_833.0),
        ("reads bandwidth 0 1", 99_794.0),
        ("reads bandwidth 0 2", 76_592.0),
    ];
    assert_near("epyc-9224", "0-11", "--bandwidth_matrix -t 0.00002", &of_node, 10.0);
}

/// The expander's latency from node 0 and what its link carries were fitted, the others follow.
#[test]
fn cxl_memory_is_a_node_without_cores() {
    let latencies = [
        ("idle latency 0 4", 279.4),
        ("idle latency 1 4", 278.8),
        ("idle latency 2 4", 363.8),
        ("idle latency 3 4", 363.5),
    ];
    assert_near("epyc-9224-cxl", "0,12,24,36", "-r --latency_matrix -b 20000", &latencies, 5.0);
    let reads = [("reads bandwidth 0 4", 17_594.0)];
    assert_near("epyc-9224-cxl", "0-11", "--bandwidth_matrix -t 0.00001", &reads, 10.0);
}

/// Nothing was fitted to what all cores move together.
#[test]
fn channels_carry_what_turns_of_their_buses_leave() {
    let reads = [("reads bandwidth 0 0", 122_098.0), ("reads bandwidth 0 1", 51_328.0)];
    assert_near("xeon-8280", "0-27", "--bandwidth_matrix -t 0.00001", &reads, 10.0);
    let mixed = [("peak 3:1", 219_132.0)];
    assert_near("xeon-8280", "0-55", "--peak_injection_bandwidth -t 0.00001 -W 3", &mixed, 10.0);
}

#[test]
fn lines_come_from_other_cores_caches_as_measured() {
    let hits = [
        ("L2 to L2 hit", 55.5),
        ("L2 to L2 hitm", 55.6),
        ("L2 to L2 hitm, writer 0 reader 1, home of reader", 178.2),
        ("L2 to L2 hitm, writer 0 reader 1, home of writer", 115.6),
    ];
    assert_near("xeon-8280", "0,1,28", "--c2c_latency", &hits, 15.0);
}

/// A delay between accesses leaves less load, and less latency.
#[test]
fn a_loaded_memory_takes_longer() {
    let latency = |delay: u32| {
        let options = format!("--loaded_latency -d {delay} -t 0.00001");
        let text =
            [HEAD, &host("a", "dell-t430", ""), &program("a", "0-9", &format!("mlc {options}"))].concat();
        let done = run(&loaded(&text), &Silent).unwrap();
        let report = done[0].outcome.as_ref().unwrap();
        let of = |what: &str| report.get(&format!("delay {delay}: {what}")).unwrap();
        (of("loaded latency"), of("bandwidth"))
    };
    let (all, some) = (latency(0), latency(1000));
    assert!(all.1 > 4.0 * some.1 && all.0 > 1.3 * some.0, "{all:?} {some:?}");
}

/// The one core that measures has nobody to load memory meanwhile.
#[test]
fn one_core_alone_measures_an_idle_memory() {
    let text =
        [HEAD, &host("a", "dell-t430", ""), &program("a", "0", "mlc --loaded_latency -d 0 -t 0.00001")]
            .concat();
    let done = run(&loaded(&text), &Silent).unwrap();
    let report = done[0].outcome.as_ref().unwrap();
    let of = |what: &str| report.get(&format!("delay 0: {what}")).unwrap();
    assert!((60.0..120.0).contains(&of("loaded latency")) && of("bandwidth") < 1500.0, "{report:?}");
}
