//! Counters of a window, as a summary and as a table.

use std::collections::BTreeMap;

use nearfar::counters::{Counter, HostCounters, Kind, Resource, Unit, Window};
use nearfar::records::{of_network, rate};
use results::claims::Sample;
use results::report::{Chart, Curve, Scale};
use results::table::wrapped;
use units::{Bytes, Duration};

use super::{Fit, TextTable, width};

pub fn counter_table(window: &Window) -> String {
    let mut table =
        TextTable::new(["counter", "host", "value", "unit", "a second", "of the network's"], Fit::Fold(2))
            .numbers(2..6);
    for host in &window.hosts {
        for counter in &host.counters {
            let rate = rate(counter, window).map(|rate| match counter.unit {
                Unit::Bytes => format!("{:.3} GB", rate / 1e9),
                Unit::Events => format!("{:.3} M", rate / 1e6),
                Unit::Time => format!("{:.1} %", 100.0 * rate),
                Unit::Held => format!("{rate:.1} on average"),
                Unit::Kept => String::new(),
            });
            let multiple = of_network(counter, host).map(|multiple| format!("{multiple:.2}x"));
            table.add(vec![
                counter.name.clone(),
                host.host.clone(),
                format!("{:.0}", counter.amount()),
                counter.unit.name().to_owned(),
                rate.unwrap_or_default(),
                multiple.unwrap_or_default(),
            ]);
        }
    }
    for host in &window.hosts {
        for resource in host.resources.iter().filter(|resource| resource.share > 0.0) {
            table.add(vec![
                format!("{}/full/{}", resource.place, resource.kind.name()),
                host.host.clone(),
                format!("{:.1}", 100.0 * resource.share),
                "%".into(),
                String::new(),
                String::new(),
            ]);
        }
    }
    format!("{}\n", table.render(width()))
}

/// Summary of a window's counters, a few lines per host.
pub fn counter_summary(window: &Window) -> String {
    let mut text = String::new();
    for host in &window.hosts {
        let lines = Lines { host, window };
        let all: Vec<(String, String)> =
            [lines.cores(), lines.vms(), lines.sockets(), lines.iommus(), lines.devices()].concat();
        if all.is_empty() {
            continue;
        }
        text += &format!("counters of {} in {}\n", host.host, nearfar::trace::human(window.length));
        let widest = all.iter().map(|(place, _)| place.chars().count()).max().unwrap_or(0);
        for (place, said) in all {
            // Continuation lines are indented to the start of the text.
            let (begin, indent) = (format!("  {place:<widest$}  "), widest + 4);
            let lines = wrapped(&said, indent, width().unwrap_or(usize::MAX));
            text += &format!("{begin}{}\n", lines.join("\n").trim_start());
        }
    }
    text
}

/// Chart of the most utilized resources while each of several programs ran.
pub fn fullness<'a>(windows: impl Iterator<Item = (String, &'a Window)>) -> Chart {
    /// Number of resources shown; the rest are not bottlenecks.
    const SHOWN: usize = 9;
    let windows: Vec<_> = windows.collect();
    let mut fullest: BTreeMap<String, f64> = BTreeMap::new();
    let all = |window: &Window| -> Vec<(String, f64)> {
        let of = |host: &HostCounters| -> Vec<(String, f64)> {
            let named = |resource: &Resource| {
                let place = format!("{} {}", host.host, resource.place.replace('/', " "));
                let name = match resource.kind {
                    // Their names already say what they are.
                    Kind::Core | Kind::Interconnect => place,
                    kind if place.contains(kind.name()) => place,
                    kind => format!("{place} {}", kind.name()),
                };
                (name, 100.0 * resource.share.min(1.0))
            };
            host.resources.iter().map(named).collect()
        };
        window.hosts.iter().flat_map(of).collect()
    };
    for (name, share) in windows.iter().flat_map(|(_, window)| all(window)) {
        let most = fullest.entry(name).or_default();
        *most = most.max(share);
    }
    let mut names: Vec<(String, f64)> = fullest.into_iter().collect();
    names.sort_by(|a, b| b.1.total_cmp(&a.1));
    names.truncate(SHOWN);
    let names: Vec<String> = names.into_iter().map(|(name, _)| name).collect();
    let curve = |(run, window): &(String, &Window)| {
        let shares = all(window).into_iter().filter_map(|(name, y)| {
            let x = names.iter().position(|other| *other == name)? as f64;
            Some(Sample { x, y, low: None, high: None })
        });
        Curve { label: run.clone(), simulated: shares.collect(), measured: Vec::new() }
    };
    Chart {
        id: "fullness".into(),
        title: "How full resources were".into(),
        text: "The share of the time for which each worked, was full or was waited for.".into(),
        x: ("resource".into(), Scale::Linear),
        y: ("share of the time (%)".into(), Scale::Linear),
        from_zero: true,
        rings: String::new(),
        curves: windows.iter().map(curve).collect(),
        names,
    }
}

/// Summary lines of one host.
struct Lines<'a> {
    host: &'a HostCounters,
    window: &'a Window,
}

impl Lines<'_> {
    /// The parts of counters `place/what/...`, with their values, the largest first.
    fn parts(&self, place: &str, what: &str) -> Vec<(&str, u64)> {
        let begin = format!("{place}/{what}/");
        let part = |c: &&Counter| c.name.starts_with(&begin);
        let mut parts: Vec<_> =
            self.host.counters.iter().filter(part).map(|c| (&c.name[begin.len()..], c.value)).collect();
        parts.sort_by_key(|&(_, value)| std::cmp::Reverse(value));
        parts
    }

    /// Places with this prefix, in order.
    fn places(&self, begin: &str) -> Vec<&str> {
        let mut places: Vec<&str> = Vec::new();
        for place in self.host.counters.iter().map(Counter::place).filter(|place| place.starts_with(begin)) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// Shares of a total, as text.
    fn shares(parts: &[(&str, u64)]) -> String {
        let total = parts.iter().map(|&(_, value)| value).sum::<u64>().max(1) as f64;
        let share = |&(name, value): &(&str, u64)| (name.to_owned(), 100.0 * value as f64 / total);
        let shares = parts.iter().map(share).filter(|&(_, share)| share >= 1.0);
        shares.map(|(name, share)| format!("{name} {share:.0} %")).collect::<Vec<_>>().join(", ")
    }

    fn gb_per_s(&self, bytes: u64) -> String {
        format!("{:.2} GB/s", self.per_s(bytes) / 1e9)
    }

    /// Whether a number of bytes is more than nothing, as shown.
    fn shows(&self, bytes: u64) -> bool {
        self.per_s(bytes) >= 0.005e9
    }

    /// A number a second; 0 in a window without length.
    fn per_s(&self, number: u64) -> f64 {
        match self.window.length {
            Duration::ZERO => 0.0,
            length => number as f64 / length.as_s_f64(),
        }
    }

    fn cores(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        for place in self.places("core") {
            let parts = self.parts(place, "busy");
            let busy = parts.iter().map(|&(_, ps)| ps).sum::<u64>();
            let share = 100.0 * busy as f64 / self.window.length.as_ps().max(1) as f64;
            if share >= 1.0 {
                let mut said = format!("{share:.0} % busy: {}", Self::shares(&parts));
                let waited = self.host.of(&format!("{place}/lines-waited")) as f64;
                let waited = 100.0 * waited / self.window.length.as_ps().max(1) as f64;
                if waited >= 1.0 {
                    said += &format!("; {waited:.0} % waiting for lines");
                }
                lines.push((place.to_owned(), said));
            }
        }
        lines
    }

    /// Exits of virtual machines by reason, delivery of their interrupts, and device references to their memory.
    fn vms(&self) -> Vec<(String, String)> {
        let line = |place: &str| {
            let exits = self.parts(place, "exits");
            let total = exits.iter().map(|&(_, times)| times).sum::<u64>();
            let [requests, packets, held] =
                ["requests", "packets", "held"].map(|what| self.host.of(&format!("{place}/{what}")));
            let each = match (requests, packets) {
                (0, 0) => String::new(),
                (0, packets) => format!(", {:.2} a packet", total as f64 / packets as f64),
                (requests, _) => format!(", {:.2} a request", total as f64 / requests as f64),
            };
            let mut said = format!("left {total} times{each}");
            if total > 0 {
                said += &format!(": {}", Self::shares(&exits));
            }
            for (way, times) in self.parts(place, "interrupts") {
                said += &format!("; {times} interrupts {way}");
            }
            if held > 0 {
                said += &format!("; {} held for devices", Bytes::new(held));
            }
            (place.to_owned(), said)
        };
        self.places("vm-").into_iter().map(line).collect()
    }

    fn sockets(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        for place in self.places("socket") {
            if place.contains('-') {
                let parts = self.parts(place, "bytes");
                let bytes = parts.iter().map(|&(_, bytes)| bytes).sum();
                if self.shows(bytes) {
                    lines.push((
                        place.to_owned(),
                        format!("{}: {}", self.gb_per_s(bytes), Self::shares(&parts)),
                    ));
                }
                continue;
            }
            let hits: Vec<String> = ["core", "dma", "walk"]
                .iter()
                .filter_map(|user| {
                    let of = |what: &str| self.host.of(&format!("{place}/llc-{what}/{user}"));
                    let (hits, all) = (of("hits"), of("hits") + of("misses"));
                    (all > 0).then(|| format!("{user} {:.0} % of {all}", 100.0 * hits as f64 / all as f64))
                })
                .collect();
            if !hits.is_empty() {
                lines.push((format!("{place} LLC"), format!("hits: {}", hits.join(", "))));
            }
            let (read, written) = (self.parts(place, "dram-read"), self.parts(place, "dram-written"));
            let bytes = |parts: &[(&str, u64)]| parts.iter().map(|&(_, bytes)| bytes).sum::<u64>();
            let (r, w) = (bytes(&read), bytes(&written));
            if self.shows(r.max(w)) {
                let network = self.host.network_bytes();
                let multiple = match network {
                    0 => String::new(),
                    network => format!("; {:.2}x the network's", (r + w) as f64 / network as f64),
                };
                let ways = [("read", r, read), ("written", w, written)];
                let ways = ways.iter().filter(|(_, bytes, _)| self.shows(*bytes));
                let said = ways
                    .map(|(way, b, parts)| format!("{} {way} ({})", self.gb_per_s(*b), Self::shares(parts)));
                let said = said.collect::<Vec<_>>().join(", ");
                lines.push((format!("{place} DRAM"), format!("{said}{multiple}")));
            }
        }
        lines
    }

    fn iommus(&self) -> Vec<(String, String)> {
        let line = |place: &str| {
            let (lookups, walks) = (self.parts(place, "lookups"), self.host.of(&format!("{place}/walks")));
            let total = lookups.iter().map(|&(_, value)| value).sum::<u64>();
            (place.to_owned(), format!("{total} lookups ({}), {walks} walks", Self::shares(&lookups)))
        };
        self.places("iommu").into_iter().map(line).collect()
    }

    fn devices(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        let is_device = |place: &&str| {
            self.host
                .counters
                .iter()
                .any(|c| c.place() == *place && c.name[place.len()..].starts_with("/link-"))
        };
        for place in self.places("").into_iter().filter(is_device) {
            for (way, words) in [("up", "to the host"), ("down", "to the device")] {
                let parts = self.parts(place, &format!("link-{way}-bytes"));
                let bytes = parts.iter().map(|&(_, bytes)| bytes).sum::<u64>();
                if bytes > 0 {
                    let busy = self.host.of(&format!("{place}/link-{way}-busy")) as f64;
                    let busy = 100.0 * busy / self.window.length.as_ps().max(1) as f64;
                    let said = format!(
                        "{} {words}, {busy:.0} % busy: {}",
                        self.gb_per_s(bytes),
                        Self::shares(&parts)
                    );
                    lines.push((format!("{place} link"), said));
                }
            }
            let frames = ["tx", "rx"].map(|way| self.host.of(&format!("{place}/{way}-frames")));
            let dropped = ["rx-no-buffer", "rx-overflow"].map(|why| self.host.of(&format!("{place}/{why}")));
            if frames.iter().sum::<u64>() > 0 {
                let mut said = format!("{} frames sent, {} received", frames[0], frames[1]);
                if dropped.iter().sum::<u64>() > 0 {
                    said += &format!(", dropped {} for want of a buffer, {} of room", dropped[0], dropped[1]);
                }
                for counter in &self.host.counters {
                    if let (Unit::Held, Some(ring)) = (counter.unit, counter.name.strip_prefix(place)) {
                        let mean = counter.value as f64 / self.window.length.as_ps().max(1) as f64;
                        if ring.starts_with("/tx") && mean >= 0.05 {
                            let ring =
                                ring.trim_start_matches('/').trim_end_matches("-filled").replace('-', " ");
                            said += &format!(", {mean:.1} descriptors in {ring}");
                        }
                    }
                }
                lines.push((place.to_owned(), said));
            }
        }
        lines
    }
}
