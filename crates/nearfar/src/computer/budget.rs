//! Traffic on the link to a NIC by kind, while network programs ran, beside the analytic model of pcie-bench's
//! section 3 for the same frames.
//!
//! The model gets the batch sizes of part and driver, and the number and mean size of frames in each direction. What
//! only the simulation has is shown in rows of its own: DLLPs, for which the model reduces the link rate in advance,
//! transmit beats filled by the root port, and completions of register reads.

use analytic::{Link, Nic, Part, Traffic};
use drivers::nic::NicDriverParams;
use machine::{HostSetup, NicDriverEntry};
use units::Bytes;
use wire::nic::registers::counter;
use workloads::{Report, TrafficKind};

use super::finished::{FinishedProgram, Subject};
use super::packets::{DirectionTraffic, NicCounts};

/// Bytes of data of a message-signalled interrupt.
const MSI: f64 = 4.0;

/// Traffic of one kind, in bytes from the NIC and to it.
struct BudgetRow {
    kind: &'static str,
    simulated: [f64; 2],
    model: [f64; 2],
}

/// Differences of the counters over a run.
struct Carried {
    /// From the NIC and to it.
    directions: [DirectionTraffic; 2],
    nic: Vec<f64>,
    interrupts: f64,
}

impl Carried {
    fn between(before: &NicCounts, after: &NicCounts) -> Option<Self> {
        if after.nic.is_empty() || after.nic.len() != before.nic.len() {
            return None;
        }
        Some(Self {
            directions: after.since(before),
            nic: after
                .nic
                .iter()
                .zip(&before.nic)
                .map(|(after, before)| since(*after, *before) as f64)
                .collect(),
            interrupts: since(after.interrupts, before.interrupts) as f64,
        })
    }

    /// Frames of a direction and their mean size.
    fn frames(&self, frames: usize, bytes: usize) -> (f64, Bytes) {
        let number = self.nic[frames];
        (number, Bytes::new((self.nic[bytes] / number.max(1.0)).round() as u64))
    }

    /// `by_core`: packets are also moved by stores and loads of the host's cores.
    fn rows(&self, model: &Nic, link: &Link, by_core: bool) -> Vec<BudgetRow> {
        let [up, down] = self.directions;
        // Requests without data show the size of framing and header.
        let header = if up.tlps[1] > 0.0 { up.bytes[1] / up.tlps[1] } else { 24.0 };
        let fetch_requests = self.nic[counter::FETCHES] * header;
        let written_back = self.nic[counter::WRITTEN_BACK] + self.nic[counter::WRITE_BACKS] * header;
        let interrupts = self.interrupts * (header + MSI);
        // Completions with descriptors are like all others: estimate them by their share of the data.
        let fetched = self.nic[counter::FETCHED] * 16.0;
        let data = down.bytes[2] - 20.0 * down.tlps[2];
        let fetched = if data > 0.0 { down.bytes[2] * fetched / data } else { 0.0 };
        let simulated = |part: Part| match part {
            Part::Doorbells => [0.0, down.bytes[0]],
            Part::Descriptors => [fetch_requests, fetched],
            Part::Packets => [
                up.bytes[1] - fetch_requests + up.bytes[0] - written_back - interrupts,
                down.bytes[2] - fetched,
            ],
            Part::WriteBacks => [written_back, 0.0],
            Part::Interrupts => [interrupts, 0.0],
            Part::Pointers => [up.bytes[2], down.bytes[1]],
        };
        let (sent, sent_size) = self.frames(counter::TX_FRAMES, counter::TX_BYTES);
        let (received, received_size) = self.frames(counter::RX_FRAMES, counter::RX_BYTES);
        let of_model = |part: Part| {
            let mut total = [0.0; 2];
            for (traffic, number, size) in
                [(Traffic::Transmit, sent, sent_size), (Traffic::Receive, received, received_size)]
            {
                if number > 0.0 {
                    for (_, up, down) in
                        model.wire_parts(link, traffic, size).into_iter().filter(|(of, ..)| *of == part)
                    {
                        total = [total[0] + number * up, total[1] + number * down];
                    }
                }
            }
            total
        };
        let kinds = [
            ("packets", Part::Packets),
            ("descriptors", Part::Descriptors),
            ("write-backs", Part::WriteBacks),
            (if by_core { "packets and doorbells, stored" } else { "doorbells" }, Part::Doorbells),
            ("interrupts", Part::Interrupts),
            (if by_core { "packets and registers, loaded" } else { "register reads" }, Part::Pointers),
        ];
        let row = |(kind, part)| BudgetRow { kind, simulated: simulated(part), model: of_model(part) };
        let mut rows: Vec<BudgetRow> = kinds.into_iter().map(row).collect();
        rows.push(BudgetRow { kind: "DLLPs", simulated: [up.dllps, down.dllps], model: [0.0; 2] });
        rows.push(BudgetRow { kind: "fill", simulated: [up.fill(), down.fill()], model: [0.0; 2] });
        rows
    }
}

/// What has been counted since a counter was `before`. Those of a device that was reset count from zero.
fn since(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// Report on the links of a host's NIC, if it sent or received frames. It has the form of a program's report, so that
/// it is printed and written alike.
pub(super) fn report(
    host: &HostSetup,
    nic: &machine::Nic,
    link: &Link,
    before: &NicCounts,
    after: &NicCounts,
) -> Option<FinishedProgram> {
    let carried = Carried::between(before, after)?;
    let frames = carried.nic[counter::TX_FRAMES] + carried.nic[counter::RX_FRAMES];
    if frames == 0.0 {
        return None;
    }
    let figure = |figure: &machine::Figure<machine::Count>| figure.value.get();
    let model = Nic {
        tx_fetch: figure(&nic.tx.fetch),
        tx_write_back: figure(&nic.tx.write_back),
        tx_doorbell: 1,
        free_list: NicDriverParams::default().refill.into(),
        rx_pointer: 1,
        interrupt: if carried.interrupts > 0.0 { (frames / carried.interrupts).round() as u32 } else { 0 },
        reads_pointers: false,
    };
    let took = after.at.since(before.at);
    let mut report = Report::default();
    report.add("frames sent", "", carried.nic[counter::TX_FRAMES]);
    report.add("frames received", "", carried.nic[counter::RX_FRAMES]);
    let mut totals = [[0.0; 2]; 2];
    let path = host.nic_driver.as_ref().and_then(NicDriverEntry::other_path);
    let rows = carried.rows(&model, link, path.is_some());
    for (n, direction) in ["from the NIC", "to the NIC"].into_iter().enumerate() {
        let measured = TrafficKind { direction: direction.into(), is_model: false };
        let modelled = TrafficKind { direction: direction.into(), is_model: true };
        for row in &rows {
            totals[n] = [totals[n][0] + row.simulated[n], totals[n][1] + row.model[n]];
            if row.simulated[n] > 0.0 || row.model[n] > 0.0 {
                report.add_way(row.kind, &measured, "B/frame", row.simulated[n] / frames);
                if path.is_none() {
                    report.add_way(row.kind, &modelled, "B/frame", row.model[n] / frames);
                }
            }
        }
        report.add_way("all", &measured, "B/frame", totals[n][0] / frames);
        if path.is_none() {
            report.add_way("all", &modelled, "B/frame", totals[n][1] / frames);
        }
        let time = (took.as_ps().max(1) * after.links.max(1) as u64) as f64;
        let busy = carried.directions[n].busy * after.ps_per_byte / time;
        report.add_way("busy", &measured, "% of time", 100.0 * busy);
    }
    match path {
        Some(path) => report.notes.push(format!("{path}, for which there is no model")),
        None => report.notes.push(aside(link, after.links)),
    }
    let completions = carried.directions[1].tlps[2];
    report.notes.push(format!(
        "the host answered {} reads with {completions} completions, cut as its root port does",
        carried.directions[0].tlps[1]
    ));
    let run = format!("link to {}", nic.name);
    Some(FinishedProgram::new(Subject::Link, host.name.clone(), run, took, Ok(report)))
}

/// Explains what the model subtracts from the link rate, and what it does not know.
fn aside(link: &Link, links: usize) -> String {
    let raw = link.raw_rate().as_gbit_per_s_f64();
    let allowance = 100.0 * (1.0 - link.tlp_rate().as_gbit_per_s_f64() / raw);
    let each = if links > 1 { format!(" of each of {links} links") } else { String::new() };
    format!(
        "of {raw:.1} Gbit/s a direction{each} the model sets {allowance:.1} % aside for DLLPs and skips; it knows no fill: whole \
         beats of the root port's transmitter, padded completions; frames that TSO cuts share descriptors, and requests to \
         addresses below 4 GiB have headers 4 B shorter than the model's"
    )
}
