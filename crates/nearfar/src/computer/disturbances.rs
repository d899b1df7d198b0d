//! What disturbed a program: bit errors of links, retraining, dropped and retransmitted packets, IOMMU flushes. Each in
//! one sentence, if it cost more than one per cent.

use std::collections::BTreeSet;

use units::Duration;

use crate::counters::{Counter, HostCounters};

/// Shares below this are not told.
const TOLD: f64 = 0.01;
/// Shares of lost packets below this are not: TCP halves its rate or nearly so for each.
const LOSSES_TOLD: f64 = 0.0005;

/// A host's disturbances within a window of this length, as sentences.
pub(super) fn of(host: &HostCounters, length: Duration) -> Vec<String> {
    let all = Disturbances { host, length };
    [all.links(), all.drops(), all.damaged(), all.transport(), all.flushes()].concat()
}

struct Disturbances<'a> {
    host: &'a HostCounters,
    length: Duration,
}

impl Disturbances<'_> {
    /// Places with a counter of this name.
    fn places(&self, what: &str) -> BTreeSet<&str> {
        let has = |counter: &&Counter| counter.name[counter.place().len()..].trim_start_matches('/') == what;
        let places = self.host.counters.iter().filter(has).map(Counter::place);
        places.filter(|place| self.is_used(place)).collect()
    }

    /// Whether a place is on the way of the program's work, as all are whose resources are not known.
    fn is_used(&self, place: &str) -> bool {
        let mut own = self.host.resources.iter().filter(|resource| resource.owner() == place).peekable();
        own.peek().is_none() || own.any(|resource| resource.on_path)
    }

    fn share(&self, ps: u64) -> f64 {
        ps as f64 / self.length.as_ps().max(1) as f64
    }

    /// Replays after bit errors, of all TLPs, and retraining, of the time.
    fn links(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let ways = [
            ("link-up", "link", "to the host"),
            ("link-down", "link", "to the device"),
            ("uplink-up", "uplink", "to the host"),
            ("uplink-down", "uplink", "from the host"),
            ("cable-out", "cable", "outwards"),
            ("cable-in", "cable", "inwards"),
        ];
        for (way, link, words) in ways {
            for place in self.places(&format!("{way}-replays")) {
                let tlps = self.host.sum(&format!("{place}/{way}-tlps/"));
                let replays = self.host.of(&format!("{place}/{way}-replays"));
                let rejected = self.host.of(&format!("{place}/{way}-rejected")).max(replays);
                let share = rejected as f64 / (tlps + rejected).max(1) as f64;
                if share > TOLD {
                    notes.push(format!(
                        "bit errors on the {link} of {}'s {place}, {words}: {replays} replays, {:.1} % of its TLPs were sent again",
                        self.host.host,
                        100.0 * share
                    ));
                }
            }
        }
        let mut links = self.places("link-up-retraining");
        links.extend(self.places("link-down-retraining"));
        for place in links {
            let of =
                |what: &str| ["up", "down"].map(|way| self.host.of(&format!("{place}/link-{way}-{what}")));
            let [times, times_down] = of("retrains");
            let [time, time_down] = of("retraining");
            let share = self.share(time.max(time_down));
            if share > TOLD {
                notes.push(format!(
                    "the link of {}'s {place} retrained {} times, {:.1} % of the time",
                    self.host.host,
                    times.max(times_down),
                    100.0 * share
                ));
            }
        }
        notes
    }

    /// Packets that a NIC or a driver dropped.
    fn drops(&self) -> Vec<String> {
        let reasons = [
            ("rx-no-buffer", "for want of a receive buffer"),
            ("rx-overflow", "for want of room in the NIC"),
        ];
        let places: BTreeSet<&str> =
            reasons.iter().flat_map(|(what, _)| self.places(what)).chain(self.places("tx-dropped")).collect();
        let mut notes = Vec::new();
        for place in places {
            let counted = |what: &str| self.host.of(&format!("{place}/{what}"));
            let received = counted("rx-frames");
            let told =
                reasons.iter().map(|(what, why)| (counted(what), *why)).filter(|(dropped, _)| *dropped > 0);
            let told: Vec<(u64, &str)> = told.collect();
            let dropped: u64 = told.iter().map(|(dropped, _)| dropped).sum();
            let share = dropped as f64 / (received + dropped).max(1) as f64;
            if share > TOLD {
                let causes = told.iter().map(|(dropped, why)| format!("{dropped} {why}")).collect::<Vec<_>>();
                notes.push(format!(
                    "{}'s {place} dropped {:.1} % of the packets that arrived: {}",
                    self.host.host,
                    100.0 * share,
                    causes.join(", ")
                ));
            }
            let (sent, refused) = (counted("tx-packets"), counted("tx-dropped"));
            let share = refused as f64 / (sent + refused).max(1) as f64;
            if share > TOLD {
                let host = &self.host.host;
                notes.push(format!(
                    "{:.1} % of the packets for {host}'s {place} were dropped before it",
                    100.0 * share
                ));
            }
        }
        notes
    }

    /// Frames that the cable damaged. Few of them slow TCP much, which takes each for congestion.
    fn damaged(&self) -> Vec<String> {
        let of_place = |place: &&str| {
            let [damaged, whole] =
                ["rx-fcs-errors", "rx-frames"].map(|what| self.host.of(&format!("{place}/{what}")));
            let share = damaged as f64 / (damaged + whole).max(1) as f64;
            let host = &self.host.host;
            (share > LOSSES_TOLD).then(|| {
                format!("{damaged} frames came damaged to {host}'s {place}, {:.2} % of all", 100.0 * share)
            })
        };
        self.places("rx-fcs-errors").iter().filter_map(of_place).collect()
    }

    /// What TCP sent again, after a timeout or as a tail loss probe, too, of the packets that were sent.
    fn transport(&self) -> Vec<String> {
        let of = |what: &str| self.host.of(&format!("kernel/tcp/{what}"));
        let (timeouts, probes) = (of("timeouts"), of("tail-probes"));
        let is_sent = |counter: &&Counter| counter.name.ends_with("/tx-packets");
        let sent: u64 = self.host.counters.iter().filter(is_sent).map(|counter| counter.value).sum();
        let share = (timeouts + probes) as f64 / sent.max(1) as f64;
        let again = of("segments-again");
        let host = &self.host.host;
        let mut notes = Vec::new();
        if sent > 0 && share > TOLD {
            notes.push(format!(
                "TCP of {host}: {timeouts} timeouts and {probes} tail loss probes, for {:.1} % of the packets sent",
                100.0 * share
            ));
        }
        if sent > 0 && again as f64 / sent as f64 > LOSSES_TOLD {
            notes.push(format!("TCP of {host} sent {again} segments again, and slows down for each loss"));
        }
        notes
    }

    /// Flushes of the IOMMU's caches, with the time of cores that mapping and flushing took.
    fn flushes(&self) -> Vec<String> {
        let flushes: u64 =
            self.places("invalidations").iter().map(|p| self.host.of(&format!("{p}/invalidations"))).sum();
        let is_dma =
            |counter: &&Counter| counter.name.starts_with("core") && counter.name.ends_with("/busy/dma");
        let cores = self
            .host
            .counters
            .iter()
            .filter(is_dma)
            .filter(|counter| self.is_used(counter.place()))
            .map(|counter| (self.share(counter.value), counter.place()));
        let most = cores.max_by(|one, other| one.0.total_cmp(&other.0)).filter(|(share, _)| *share > TOLD);
        let Some((share, core)) = most.filter(|_| flushes > 0) else { return Vec::new() };
        vec![format!(
            "IOMMU of {}: {flushes} flushes; mapping and flushing took {:.1} % of the time of {core}",
            self.host.host,
            100.0 * share
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Kind, Resource, Unit};

    fn host(counters: &[(&str, Unit, u64)]) -> HostCounters {
        let counter = |&(name, unit, value): &(&str, Unit, u64)| Counter { name: name.into(), unit, value };
        HostCounters {
            host: "a".into(),
            counters: counters.iter().map(counter).collect(),
            resources: Vec::new(),
        }
    }

    #[test]
    fn what_costs_more_than_a_hundredth_is_told() {
        let window = Duration::from_us(100);
        let ps = |us: u64| Duration::from_us(us).as_ps();
        let all = host(&[
            ("nic0/link-up-tlps/posted", Unit::Events, 1000),
            ("nic0/link-up-replays", Unit::Events, 50),
            ("nic0/link-up-retrains", Unit::Events, 3),
            ("nic0/link-up-retraining", Unit::Time, ps(6)),
            ("nic0/rx-frames", Unit::Events, 900),
            ("nic0/rx-no-buffer", Unit::Events, 100),
            ("eth0/tx-packets", Unit::Events, 1000),
            ("kernel/tcp/timeouts", Unit::Events, 30),
            ("iommu0/invalidations", Unit::Events, 77),
            ("core3/busy/dma", Unit::Time, ps(20)),
        ]);
        let notes = of(&all, window);
        for part in [
            "bit errors on the link of a's nic0, to the host: 50 replays, 4.8 %",
            "retrained 3 times, 6.0 % of the time",
            "nic0 dropped 10.0 % of the packets that arrived: 100 for want of a receive buffer",
            "30 timeouts and 0 tail loss probes, for 3.0 %",
            "77 flushes; mapping and flushing took 20.0 % of the time of core3",
        ] {
            assert!(notes.iter().any(|note| note.contains(part)), "{part}: {notes:?}");
        }
        assert_eq!(notes.len(), 5);
    }

    #[test]
    fn what_others_use_is_not_told() {
        let ps = |us: u64| Duration::from_us(us).as_ps();
        let mut all = host(&[
            ("nic0/link-up-tlps/posted", Unit::Events, 1000),
            ("nic0/link-up-replays", Unit::Events, 50),
            ("iommu0/invalidations", Unit::Events, 77),
            ("core3/busy/dma", Unit::Time, ps(20)),
            ("core4/busy/dma", Unit::Time, ps(10)),
        ]);
        let resource = |kind, place: &str, on_path| Resource {
            kind,
            place: place.to_owned(),
            of: 1,
            share: 0.5,
            on_path,
        };
        all.resources = vec![
            resource(Kind::Link, "nic0/link-up", false),
            resource(Kind::Core, "core3", false),
            resource(Kind::Core, "core4", true),
        ];
        let notes = of(&all, Duration::from_us(100));
        assert!(notes.len() == 1 && notes[0].ends_with("10.0 % of the time of core4"), "{notes:?}");
    }

    #[test]
    fn what_costs_less_is_not() {
        let few = host(&[
            ("nic0/link-up-tlps/posted", Unit::Events, 10_000),
            ("nic0/link-up-replays", Unit::Events, 5),
            ("nic0/rx-frames", Unit::Events, 10_000),
            ("nic0/rx-overflow", Unit::Events, 5),
            ("eth0/tx-packets", Unit::Events, 10_000),
            ("kernel/tcp/tail-probes", Unit::Events, 5),
            ("core3/busy/dma", Unit::Time, 1),
        ]);
        assert_eq!(of(&few, Duration::from_us(100)), [""; 0]);
    }
}
