//! Utilization of a link during the recording.

use std::collections::BTreeMap;
use std::fmt;

use hardware::link::{Packet, Side};
use units::{BitRate, Duration};
use wire::pcie::link::data_rate;

use super::row::{Decoded, direction, wire_bytes};
use super::{Capture, mnemonic};

/// Summary of a link.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The link's name.
    pub link: String,
    /// `Gen3 x8`.
    pub negotiated: String,
    /// Data rate per direction after line coding.
    pub rate: BitRate,
    /// From the start of the first packet to the end of the last.
    pub time: Duration,
    /// Downstream, then upstream.
    pub directions: [DirectionSummary; 2],
}

/// One direction of a link.
#[derive(Clone, Debug, Default)]
pub struct DirectionSummary {
    /// `down` (away from the root) or `up`.
    pub direction: &'static str,
    /// Number of TLPs, payload and bytes on the wire, by type.
    pub types: BTreeMap<&'static str, (u64, u64, u64)>,
    /// Number of DLLPs, and their bytes on the wire.
    pub dllps: (u64, u64),
    /// Time during which the wire was busy.
    pub busy: Duration,
}

impl DirectionSummary {
    /// Totals over all types: TLPs, payload and bytes on the wire.
    pub fn tlps(&self) -> (u64, u64, u64) {
        self.types.values().fold((0, 0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1, sum.2 + of.2))
    }
}

impl Summary {
    /// Summarizes all links of a capture.
    pub fn of(capture: &Capture) -> Vec<Self> {
        let first = capture.packets.iter().map(|passed| passed.at).min();
        let last = capture.packets.iter().map(|passed| passed.until).max();
        let time = first.zip(last).map_or(Duration::ZERO, |(first, last)| last.since(first));
        let mut summaries = Vec::new();
        for link in &capture.links {
            let framing = link.generation.framing();
            let mut directions = [Side::Upstream, Side::Downstream]
                .map(|from| DirectionSummary { direction: direction(from), ..DirectionSummary::default() });
            for passed in capture.packets.iter().filter(|passed| passed.link == link.id) {
                let to = &mut directions[passed.from as usize];
                let bytes = wire_bytes(passed, framing);
                to.busy += passed.until.since(passed.at);
                match (&passed.packet, Decoded::of(&passed.packet)) {
                    (Packet::Dllp(_), _) => to.dllps = (to.dllps.0 + 1, to.dllps.1 + bytes),
                    (_, decoded) => {
                        let (kind, payload) = match &decoded {
                            Decoded::Tlp { tlp, payload, .. } => (mnemonic(tlp), payload.len() as u64),
                            _ => ("malformed", 0),
                        };
                        let of = to.types.entry(kind).or_default();
                        *of = (of.0 + 1, of.1 + payload, of.2 + bytes);
                    }
                }
            }
            summaries.push(Self {
                link: link.name.clone(),
                negotiated: format!("{} {}", link.generation, link.width),
                rate: data_rate(link.generation, link.width),
                time,
                directions,
            });
        }
        summaries
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, {}, {:.2} Gbit/s each way, over {}",
            self.link,
            self.negotiated,
            self.rate.as_gbit_per_s_f64(),
            human(self.time)
        )?;
        for direction in &self.directions {
            let (tlps, payload, bytes) = direction.tlps();
            let (dllps, dllp_bytes) = direction.dllps;
            let share = |part: f64, whole: f64| if whole == 0.0 { 0.0 } else { 100.0 * part / whole };
            let used = share(direction.busy.as_ns_f64(), self.time.as_ns_f64());
            let efficiency = share(payload as f64, (bytes + dllp_bytes) as f64);
            writeln!(
                f,
                "  {:<4}  {used:5.1} % of the time in use, {tlps} TLPs of {bytes} B, {dllps} DLLPs of {dllp_bytes} B, payload \
                 {payload} B ({efficiency:.1} %)",
                direction.direction
            )?;
            let types = direction.types.iter().map(|(kind, (count, ..))| format!("{count} {kind}"));
            if tlps > 0 {
                writeln!(f, "        {}", types.collect::<Vec<_>>().join(", "))?;
            }
        }
        Ok(())
    }
}

/// A time in a suitable unit, with three digits or whole nanoseconds.
pub fn human(time: Duration) -> String {
    let ns = time.as_ns_f64();
    match ns {
        _ if ns < 1e4 => format!("{ns:.1} ns"),
        _ if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
        _ if ns < 1e9 => format!("{:.3} ms", ns / 1e6),
        _ => format!("{:.3} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let texts = [1_450_400, 23_586_600_000, 9_039_581_620_000].map(|ps| human(Duration::from_ps(ps)));
        assert_eq!(texts, ["1450.4 ns", "23.587 ms", "9.040 s"]);
    }
}
