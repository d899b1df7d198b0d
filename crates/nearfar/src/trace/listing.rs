//! Packets as text, one line each, like an analyser's display.

use std::fmt::Write;

use results::table::wrapped;
use wire::pcie::dllp::FlowControlKind;
use wire::pcie::{Dllp, Tlp, TlpKind};

use super::row::{Decoded, Row};
use super::{Capture, Summary};

/// Bytes of data per line.
const DATA_PER_LINE: usize = 32;
/// Spaces between columns.
const GAP: usize = 2;
/// Indentation of details below a packet.
const INDENT: usize = 8;

/// A column: heading, default width, and whether it is right-aligned.
struct Column(&'static str, usize, bool);

/// All columns, in order.
const COLUMNS: [Column; 13] = [
    Column("packet", 6, true),
    Column("link", 4, false),
    Column("dir", 4, false),
    Column("ns since T0", 12, true),
    Column("type", 12, false),
    Column("seq", 4, true),
    Column("tag", 4, true),
    Column("req", 7, false),
    Column("cpl", 7, false),
    Column("address", 18, false),
    Column("bytes", 5, true),
    Column("BE", 3, false),
    Column("credits", 15, false),
];
const LINK: usize = 1;
const TAG: usize = 6;
const REQUESTER: usize = 7;
const COMPLETER: usize = 8;
const ADDRESS: usize = 9;
const ENABLES: usize = 11;

/// A packet's values in the order of [`COLUMNS`]; empty if it has none.
type Cells = [String; COLUMNS.len()];

/// The listing with headings; `data` includes payloads. If the columns do not fit into `width`, values common to all
/// packets move to the heading, and remaining columns go below each packet.
pub fn listing(capture: &Capture, data: bool, width: Option<usize>) -> String {
    let layout = ColumnLayout::of(capture, width);
    let mut text = layout.heading();
    for row in Row::all(capture) {
        text += &layout.lines(&cells(&row));
        if let Some(doorbell) = &row.doorbell {
            let _ = writeln!(text, "{:INDENT$}doorbell: {doorbell}", "");
        }
        if let (true, Decoded::Tlp { payload, .. }) = (data, &row.decoded) {
            for chunk in payload.chunks(DATA_PER_LINE) {
                let words =
                    chunk.chunks(4).map(|word| word.iter().map(|b| format!("{b:02x}")).collect::<String>());
                let _ = writeln!(text, "{:INDENT$}{}", "", words.collect::<Vec<_>>().join(" "));
            }
        }
    }
    text.push('\n');
    for summary in Summary::of(capture) {
        for line in summary.to_string().lines() {
            match width {
                Some(width) if line.chars().count() > width => {
                    let mut lines = wrapped(line, INDENT, width);
                    // The first column keeps its normal position.
                    lines[0] = format!("  {}", lines[0].trim_start());
                    lines.iter().for_each(|line| text += &format!("{line}\n"));
                }
                _ => text += &format!("{line}\n"),
            }
        }
    }
    text
}

/// Selected columns and their layout.
struct ColumnLayout {
    /// Columns side by side, with their widths.
    shown: Vec<(usize, usize)>,
    /// Columns shown below their packet.
    below: Vec<usize>,
    /// Columns with a single value.
    same: Vec<(usize, String)>,
}

impl ColumnLayout {
    fn of(capture: &Capture, width: Option<usize>) -> Self {
        let link = capture.links.iter().map(|link| link.name.len()).max().unwrap_or(0);
        let all = COLUMNS.iter().enumerate().map(|(at, column)| match at {
            LINK => (at, column.1.max(link)),
            _ => (at, column.1),
        });
        let shown = all.filter(|&(at, _)| at != LINK || capture.links.len() > 1).collect();
        let usual = Self { shown, below: Vec::new(), same: Vec::new() };
        match width {
            Some(width) if usual.width() > width => usual.narrow(capture, width),
            _ => usual,
        }
    }

    fn width(&self) -> usize {
        self.shown.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP)
    }

    /// Fits columns to their content, moves single values into the heading, and moves columns below while `width` is
    /// exceeded.
    fn narrow(mut self, capture: &Capture, width: usize) -> Self {
        /// Columns that may move below, the least important first.
        const BELOW: [usize; 5] = [ENABLES, COMPLETER, REQUESTER, TAG, ADDRESS];
        /// Columns that may move into the heading.
        const SHARED: [usize; 4] = [LINK, REQUESTER, COMPLETER, ENABLES];
        let mut widest = [0; COLUMNS.len()];
        let mut values: [Option<(String, bool)>; COLUMNS.len()] = Default::default();
        for row in Row::all(capture) {
            for (at, cell) in cells(&row).into_iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
                widest[at] = widest[at].max(cell.chars().count());
                match &mut values[at] {
                    Some((value, is_shared)) => *is_shared &= *value == cell,
                    first => *first = Some((cell, true)),
                }
            }
        }
        for at in SHARED {
            if let Some((value, true)) = &values[at]
                && self.shown.iter().any(|&(shown, _)| shown == at)
            {
                self.same.push((at, value.clone()));
                widest[at] = 0;
            }
        }
        self.shown.retain_mut(|(at, width)| {
            *width = widest[*at].max(COLUMNS[*at].0.len());
            widest[*at] > 0
        });
        for at in BELOW {
            if self.width() > width && self.shown.iter().any(|&(shown, _)| shown == at) {
                self.shown.retain(|&(shown, _)| shown != at);
                self.below.push(at);
            }
        }
        self.below.sort_unstable();
        self
    }

    /// The columns' names, below a line with the values that all packets share.
    fn heading(&self) -> String {
        let names: Cells = COLUMNS.each_ref().map(|column| column.0.to_owned());
        let named = |(at, value): &(usize, String)| format!("{} {value}", COLUMNS[*at].0);
        let same: Vec<String> = self.same.iter().map(named).collect();
        let same = match same.is_empty() {
            true => String::new(),
            false => format!("The same in all packets that have it: {}.\n", same.join(", ")),
        };
        same + &self.row(&names)
    }

    /// The lines of a packet.
    fn lines(&self, cells: &Cells) -> String {
        let named = |&at: &usize| match at {
            // The address column labels itself.
            ADDRESS => cells[at].clone(),
            _ => format!("{} {}", COLUMNS[at].0, cells[at]),
        };
        let below: Vec<String> = self.below.iter().filter(|&&at| !cells[at].is_empty()).map(named).collect();
        let below = match below.is_empty() {
            true => String::new(),
            false => format!("{:INDENT$}{}\n", "", below.join("  ")),
        };
        self.row(cells) + &below
    }

    /// A row of values, without trailing spaces.
    fn row(&self, cells: &Cells) -> String {
        let mut line = String::new();
        for &(at, width) in &self.shown {
            let gap = if line.is_empty() { 0 } else { GAP };
            let _ = match COLUMNS[at].2 {
                true => write!(line, "{:gap$}{:>width$}", "", cells[at]),
                false => write!(line, "{:gap$}{:<width$}", "", cells[at]),
            };
        }
        line.trim_end().to_owned() + "\n"
    }
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

fn cells(row: &Row<'_>) -> Cells {
    let Columns { sequence, tag, requester, completer, address, bytes, enables, credits, remark } =
        columns(row);
    let credits = if remark.is_empty() { credits } else { format!("{credits:<9}{remark}") };
    [
        row.number.to_string(),
        row.link.to_owned(),
        row.direction().to_owned(),
        format!("{:.1}", row.since_t0.as_ns_f64()),
        row.kind(),
        sequence,
        tag,
        requester,
        completer,
        address,
        bytes,
        enables,
        credits,
    ]
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
            // A write's tag is meaningless.
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
