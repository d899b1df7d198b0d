//! Packets as text, a line each, as on an analyser's screen.

use std::fmt::Write;

use wire::pcie::dllp::FlowControlKind;
use wire::pcie::{Dllp, Tlp, TlpKind};

use super::row::{Decoded, Row};
use super::{Capture, Summary};

/// Bytes of data on a line of its own.
const DATA_PER_LINE: usize = 32;

/// The listing with its headings; `data` adds the payloads.
pub fn listing(capture: &Capture, data: bool) -> String {
    let several = capture.links.len() > 1;
    let mut text = String::new();
    let name = capture.links.iter().map(|link| link.name.len()).max().unwrap_or(0).max(4);
    let link = |name_of: &str| if several { format!("{name_of:<name$}  ") } else { String::new() };
    line(
        &mut text,
        &format!(
            "{:>6}  {}{:<4}  {:>12}  {:<12}{:>5}  {:>4}  {:<7}  {:<7}  {:<18}  {:>5}  {:<3}  {:<9}",
            "packet",
            link("link"),
            "dir",
            "ns since T0",
            "type",
            "seq",
            "tag",
            "req",
            "cpl",
            "address",
            "bytes",
            "BE",
            "credits"
        ),
    );
    for row in Row::all(capture) {
        let columns = columns(&row);
        line(
            &mut text,
            &format!(
                "{:>6}  {}{:<4}  {:>12.1}  {:<12}{:>5}  {:>4}  {:<7}  {:<7}  {:<18}  {:>5}  {:<3}  {:<9}{}",
                row.number,
                link(row.link),
                row.direction(),
                row.since_t0.as_ns_f64(),
                row.kind(),
                columns.sequence,
                columns.tag,
                columns.requester,
                columns.completer,
                columns.address,
                columns.bytes,
                columns.enables,
                columns.credits,
                columns.remark,
            ),
        );
        if let (true, Decoded::Tlp { payload, .. }) = (data, &row.decoded) {
            for chunk in payload.chunks(DATA_PER_LINE) {
                let words =
                    chunk.chunks(4).map(|word| word.iter().map(|b| format!("{b:02x}")).collect::<String>());
                line(&mut text, &format!("{:>8}{}", "", words.collect::<Vec<_>>().join(" ")));
            }
        }
    }
    text.push('\n');
    for summary in Summary::of(capture) {
        text.push_str(&summary.to_string());
    }
    text
}

/// Adds a line without blanks at its end.
fn line(text: &mut String, line: &str) {
    let _ = writeln!(text, "{}", line.trim_end());
}

#[derive(Default)]
struct Columns {
    sequence: String,
    tag: String,
    requester: String,
    completer: String,
    address: String,
    bytes: String,
    enables: String,
    credits: String,
    remark: String,
}

fn columns(row: &Row<'_>) -> Columns {
    match &row.decoded {
        Decoded::Tlp { sequence, tlp, intact, .. } => {
            let mut columns = of_tlp(tlp);
            columns.sequence = sequence.to_string();
            let (class, headers, data) = tlp.credits();
            columns.credits = format!("{} {headers}/{data}", ["P", "NP", "Cpl"][class.index()]);
            columns.remark = tlp.common.to_string();
            if !intact {
                columns.remark.push_str(" bad LCRC");
            }
            columns
        }
        Decoded::Dllp(Dllp::Ack(sequence) | Dllp::Nak(sequence)) => {
            Columns { sequence: sequence.to_string(), ..Columns::default() }
        }
        Decoded::Dllp(Dllp::FlowControl(fc)) => {
            let class = ["P", "NP", "Cpl"][fc.class.index()];
            let what = if fc.kind == FlowControlKind::Update { "total" } else { "limit" };
            Columns {
                credits: format!("{class} {}/{}", fc.header_credits(), fc.data_credits()),
                remark: format!(" {what}"),
                ..Columns::default()
            }
        }
        Decoded::Dllp(other) => Columns { remark: other.to_string(), ..Columns::default() },
        Decoded::Malformed { why, .. } => Columns { remark: why.clone(), ..Columns::default() },
    }
}

fn of_tlp(tlp: &Tlp) -> Columns {
    let mut columns = Columns { requester: tlp.requester().to_string(), ..Columns::default() };
    let tag = tlp.tag().to_string();
    match &tlp.kind {
        TlpKind::MemoryRead(r) | TlpKind::MemoryWrite(r) => {
            columns.address = format!("{:#x}", r.address);
            columns.bytes = (u32::from(r.length_dw) * 4).to_string();
            columns.enables = format!("{:x}/{:x}", r.first_be, r.last_be);
            // A write's tag says nothing.
            if matches!(tlp.kind, TlpKind::MemoryRead(_)) {
                columns.tag = tag;
            }
        }
        TlpKind::IoRead(r) | TlpKind::IoWrite(r) => {
            columns.tag = tag;
            columns.address = format!("{:#x}", r.address);
            columns.bytes = "4".to_owned();
            columns.enables = format!("{:x}", r.first_be);
        }
        TlpKind::ConfigRead(r) | TlpKind::ConfigWrite(r) => {
            columns.tag = tag;
            columns.completer = r.target.to_string();
            columns.address = format!("register {:#x}", r.register);
            columns.bytes = "4".to_owned();
            columns.enables = format!("{:x}", r.first_be);
        }
        TlpKind::Completion(c) | TlpKind::CompletionData(c) => {
            columns.tag = tag;
            columns.completer = c.completer.to_string();
            columns.address = format!("{} {} left", c.status, c.byte_count);
            columns.bytes = (u32::from(c.length_dw) * 4).to_string();
        }
        TlpKind::Message(m) => {
            columns.address = format!("{:?}", m.code);
            columns.bytes = (u32::from(m.length_dw) * 4).to_string();
        }
    }
    columns
}
