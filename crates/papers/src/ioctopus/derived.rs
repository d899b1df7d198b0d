//! Values derived from several runs.

use super::colocated;
use super::{BUFFERS, FRAMES, INSTANCES, MESSAGES, SETS};
use crate::runs::{self, Known, Values};

struct Runs<'a>(&'a Values);

impl Runs<'_> {
    fn of(&self, key: &str) -> Option<Known> {
        Some((*self.0.get(key)?, runs::half_width(self.0, key).unwrap_or(f64::NAN)))
    }

    /// A ratio, with the half interval propagated from its two values.
    fn ratio(&self, over: &str, under: &str) -> Option<Known> {
        let ((over, over_half), (under, under_half)) = (self.of(over)?, self.of(under)?);
        Some((over / under, over / under * (over_half / over).hypot(under_half / under)))
    }

    /// The ratio's difference from 1, in percent.
    fn gain(&self, over: &str, under: &str) -> Option<Known> {
        self.ratio(over, under).map(|(times, half)| (100.0 * (times - 1.0), 100.0 * half))
    }

    fn percent(&self, over: &str, under: &str) -> Option<Known> {
        self.ratio(over, under).map(|(share, half)| (100.0 * share, 100.0 * half))
    }

    /// Ratios over an axis in ascending order, if all points are known.
    fn ratios(&self, key: &str, over: &str, under: &str, at: &[u32]) -> Option<Vec<Known>> {
        let ratio = |x: &u32| self.ratio(&format!("{key}/{over}/{x}"), &format!("{key}/{under}/{x}"));
        let mut ratios = at.iter().map(ratio).collect::<Option<Vec<Known>>>()?;
        ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
        Some(ratios)
    }

    /// Least and greatest ratio next to STREAM.
    fn extremes(&self, key: &str, over: &str, under: &str) -> Option<[Known; 2]> {
        let some: Vec<u32> = INSTANCES.into_iter().filter(|&n| n > 0).map(u32::from).collect();
        let ratios = self.ratios(key, over, under, &some)?;
        Some([*ratios.first()?, *ratios.last()?])
    }

    /// The ratio of octo to a local NIC's runs, `local`, that differs most from 1.
    fn octo(&self, key: &str, local: &str, at: &[u32]) -> Option<Known> {
        let apart = |known: &Known| (known.0 - 1.0).abs();
        let ratios = self.ratios(key, "octo", local, at)?;
        ratios.into_iter().max_by(|one, other| apart(one).total_cmp(&apart(other)))
    }

    /// Greatest value over the points of an axis that were run.
    fn most(&self, key: &str, at: &[u32]) -> Option<Known> {
        let values = at.iter().filter_map(|x| self.of(&format!("{key}/{x}")));
        values.max_by(|one, other| one.0.total_cmp(&other.0))
    }

    /// Least value over an axis, if all points are known.
    fn least(&self, key: &str, at: &[u32]) -> Option<Known> {
        let values: Option<Vec<Known>> = at.iter().map(|x| self.of(&format!("{key}/{x}"))).collect();
        values?.into_iter().min_by(|one, other| one.0.total_cmp(&other.0))
    }
}

/// Ratios of configurations at each point, and what the text says over all points.
pub fn derived(values: &Values) -> Values {
    let runs = Runs(values);
    let mut derived = Values::new();
    let mut set = |key: &str, known: Option<Known>| {
        if let Some(known) = known {
            runs::set_known(&mut derived, key, known);
        }
    };
    for buffer in BUFFERS {
        let [local, remote] = ["local", "remote"].map(|name| format!("rx-gbit/{name}/{buffer}"));
        set(&format!("rx-gain/{buffer}"), runs.gain(&local, &remote));
    }
    for place in ["local", "remote"] {
        let least = |of: &str, at: &[u32]| runs.least(&format!("{of}/{place}"), at);
        set(&format!("rx-cpu/{place}/least"), least("rx-cpu", &BUFFERS));
        set(&format!("pktgen-cpu/{place}/least"), least("pktgen-cpu", &FRAMES));
    }
    for (key, at) in [
        ("rx-gbit", &BUFFERS[..]),
        ("tx-gbit", &BUFFERS),
        ("pktgen-mpps", &FRAMES),
        ("memcached-rate", &SETS),
    ] {
        set(&format!("{key}-octo/worst"), runs.octo(key, "local", at));
    }
    for quantile in ["rr-p90", "rr-p99"] {
        set(&format!("{quantile}-octo/worst"), runs.octo(quantile, "ll", &MESSAGES));
    }
    for (of, at) in [("rx", &BUFFERS[..]), ("tx", &BUFFERS), ("rr", &MESSAGES), ("memcached", &SETS)] {
        let key = format!("{of}-link-io/octo");
        set(&format!("{key}/most"), runs.most(&key, at));
    }
    // Runs without an axis of their own, with the first and the last part of their keys.
    for what in ["gbit", "cpu", "memory"] {
        for place in ["local", "remote", "octo", "two-netdevs"] {
            for (n, (of, at)) in [
                ("tx-no-tso", format!("{place}/65536")),
                ("multicore-rx", place.to_owned()),
                ("multicore-tx", place.to_owned()),
                ("multicore-tx-no-tso", place.to_owned()),
                ("sendfile", place.to_owned()),
            ]
            .into_iter()
            .enumerate()
            {
                set(&format!("run-{what}/{place}/{n}"), runs.of(&format!("{of}-{what}/{at}")));
            }
        }
        for (n, card) in [(5, "octo-2x8"), (6, "octo-2x16")] {
            set(&format!("run-{what}/octo/{n}"), runs.of(&format!("{card}-{what}/one-socket")));
        }
    }
    let over_tx = runs.ratio("pktgen-mpps/local/64", "tx-kpps/local/65536");
    set("pktgen-over-tx/local", over_tx.map(|(times, half)| (1e3 * times, 1e3 * half)));
    for bytes in MESSAGES {
        for name in ["rr", "llnd", "octo"] {
            let [over, under] = [name, "ll"].map(|name| format!("rr-us/{name}/{bytes}"));
            set(&format!("rr-times/{name}/{bytes}"), runs.ratio(&over, &under));
        }
    }
    for share in SETS {
        let [local, remote] = ["local", "remote"].map(|name| format!("memcached-rate/{name}/{share}"));
        set(&format!("memcached-gain/{share}"), runs.gain(&local, &remote));
    }
    if let Some([least, most]) = runs.extremes("qpi-gbit", "local", "remote") {
        set("qpi-gain/least", Some(least));
        set("qpi-gain/most", Some(most));
    }
    if let Some([least, most]) = runs.extremes("qpi-udp-us", "remote", "local") {
        let less = |(times, half): Known| (100.0 * (1.0 - 1.0 / times), 100.0 * half / times.powi(2));
        set("qpi-latency-gain/least", Some(less(least)));
        set("qpi-latency-gain/most", Some(less(most)));
        set("qpi-latency-times/most", Some(most));
    }
    for place in ["local", "remote", "octo"] {
        let besides = ["alone".to_owned(), format!("{place}/netperf"), format!("{place}/memcached")];
        for (n, beside) in besides.iter().enumerate() {
            set(&format!("pagerank-beside/{place}/{n}"), runs.of(&format!("pagerank-time/{beside}")));
            for what in ["workload", "cpu", "memory"] {
                let known = runs.of(&format!("pagerank-{what}/{beside}"));
                set(&format!("pagerank-beside-{what}/{place}/{n}"), known);
            }
        }
    }
    for load in ["netperf", "memcached"] {
        let [local, remote, octo] = ["local", "remote", "octo"].map(|name| format!("{name}/{load}"));
        let longer = colocated::times_as_long(values, (&remote, &local));
        let longer = longer.map(|(times, half)| (100.0 * (times - 1.0), 100.0 * half));
        set(&format!("pagerank-longer/remote/{load}"), longer);
        set(&format!("pagerank-times/octo/{load}"), colocated::times_as_long(values, (&octo, &local)));
        let [local, remote] = [local, remote].map(|place| format!("pagerank-workload/{place}"));
        set(&format!("pagerank-workload-times/remote/{load}"), runs.ratio(&remote, &local));
    }
    // Relative to the program alone: fio without STREAM, and as many instances of STREAM without fio.
    for instances in 0..=5 {
        for drives in ["local", "remote", "octo"] {
            let [at, alone] = [instances, 0].map(|n| format!("fio-gbyte/{drives}/{n}"));
            set(&format!("fio-share/{drives}/{instances}"), runs.percent(&at, &alone));
            let [at, alone] = [drives, "none"].map(|drives| format!("fio-stream/{drives}/{instances}"));
            set(&format!("fio-stream-share/{drives}/{instances}"), runs.percent(&at, &alone));
        }
    }
    derived
}
