//! Packets as comma-separated values: every field of every header, so that the bytes can be put together again.

use wire::pcie::tlp::{AddressType, Common, Message};
use wire::pcie::{Dllp, TlpKind};

use super::row::{Decoded, Row};

/// The columns. Times in nanoseconds after T0, lengths in bytes, identifiers and byte enables in hexadecimal.
pub const COLUMNS: [&str; 28] = [
    "packet",
    "link",
    "direction",
    "time_ns",
    "duration_ns",
    "type",
    "sequence",
    "traffic_class",
    "attributes",
    "requester",
    "tag",
    "completer",
    "target",
    "address",
    "length_bytes",
    "first_be",
    "last_be",
    "status",
    "byte_count",
    "lower_address",
    "message",
    "credit_class",
    "credit_headers",
    "credit_data",
    "wire_bytes",
    "payload",
    "remark",
    "bytes",
];

/// All rows with a header line.
pub fn table<'a>(rows: impl Iterator<Item = Row<'a>>) -> String {
    let mut text = COLUMNS.join(",");
    text.push('\n');
    for row in rows {
        text.push_str(&fields(&row).join(","));
        text.push('\n');
    }
    text
}

/// A row's values in the order of [`COLUMNS`]; empty where a packet has no such field.
pub fn fields(row: &Row<'_>) -> [String; COLUMNS.len()] {
    let mut fields = COLUMNS.map(|_| String::new());
    for (column, value) in present(row).into_iter().chain([("bytes", hex(row.bytes))]) {
        let at = COLUMNS.iter().position(|&name| name == column).expect("a column of the table");
        fields[at] = value;
    }
    fields
}

/// The fields that a packet has, but for its bytes as a whole.
pub(super) fn present(row: &Row<'_>) -> Vec<(&'static str, String)> {
    let mut fields = Vec::with_capacity(COLUMNS.len());
    let mut set = |column: &'static str, value: String| {
        if !value.is_empty() {
            fields.push((column, value));
        }
    };
    set("packet", row.number.to_string());
    set("link", row.link.to_owned());
    set("direction", row.direction().to_owned());
    set("time_ns", nanoseconds(row.since_t0.as_ps()));
    set("duration_ns", nanoseconds(row.duration.as_ps()));
    set("type", row.kind());
    set("wire_bytes", row.wire_bytes.to_string());
    match &row.decoded {
        Decoded::Tlp { sequence, tlp, payload, digest, intact } => {
            set("sequence", sequence.to_string());
            set("traffic_class", tlp.common.traffic_class.to_string());
            set("attributes", attributes(&tlp.common));
            let (class, headers, data) = tlp.credits();
            set("credit_class", CLASSES[class.index()].to_owned());
            set("credit_headers", headers.to_string());
            set("credit_data", data.to_string());
            set("payload", hex(payload));
            set("requester", tlp.requester().to_string());
            set("tag", tlp.tag().to_string());
            match &tlp.kind {
                TlpKind::MemoryRead(r) | TlpKind::MemoryWrite(r) => {
                    set("address", format!("{:#x}", r.address));
                    set("length_bytes", (u32::from(r.length_dw) * 4).to_string());
                    set("first_be", format!("{:x}", r.first_be));
                    set("last_be", format!("{:x}", r.last_be));
                }
                TlpKind::IoRead(r) | TlpKind::IoWrite(r) => {
                    set("address", format!("{:#x}", r.address));
                    set("length_bytes", "4".to_owned());
                    set("first_be", format!("{:x}", r.first_be));
                }
                TlpKind::ConfigRead(r) | TlpKind::ConfigWrite(r) => {
                    set("target", r.target.to_string());
                    set("address", format!("{:#x}", r.register));
                    set("length_bytes", "4".to_owned());
                    set("first_be", format!("{:x}", r.first_be));
                }
                TlpKind::Completion(c) | TlpKind::CompletionData(c) => {
                    set("completer", c.completer.to_string());
                    set("length_bytes", (u32::from(c.length_dw) * 4).to_string());
                    set("status", c.status.to_string());
                    set("byte_count", c.byte_count.to_string());
                    set("lower_address", format!("{:#x}", c.lower_address));
                }
                TlpKind::Message(m) => {
                    set("length_bytes", (u32::from(m.length_dw) * 4).to_string());
                    set("message", message(m));
                }
            }
            let mut remarks = Vec::new();
            if !digest.is_empty() {
                remarks.push(format!("ECRC {}", hex(digest)));
            }
            if !intact {
                remarks.push("bad LCRC".to_owned());
            }
            set("remark", remarks.join("; "));
        }
        Decoded::Dllp(dllp) => match dllp {
            Dllp::Ack(sequence) | Dllp::Nak(sequence) => set("sequence", sequence.to_string()),
            Dllp::FlowControl(fc) => {
                set("credit_class", CLASSES[fc.class.index()].to_owned());
                set("credit_headers", fc.header_credits().to_string());
                set("credit_data", fc.data_credits().to_string());
            }
            other => set("remark", other.to_string()),
        },
        Decoded::Malformed { why, bytes } => {
            set("payload", hex(bytes));
            set("remark", why.replace(',', ";"));
        }
    }
    fields
}

/// Posted, non-posted, completion.
const CLASSES: [&str; 3] = ["P", "NP", "Cpl"];

/// Nanoseconds with three digits: whole picoseconds.
fn nanoseconds(ps: u64) -> String {
    format!("{}.{:03}", ps / 1000, ps % 1000)
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte)]).collect()
}

/// `RO NS IDO EP TD AT=translated`, those that are set.
fn attributes(common: &Common) -> String {
    let plain = Common { traffic_class: 0, ..*common };
    debug_assert!(common.address_type != AddressType::Reserved, "the parser refuses it");
    plain.to_string().trim_start().to_owned()
}

/// Routing (0 to 5), code and the header's last eight bytes.
fn message(message: &Message) -> String {
    format!("{} {:02x} {}", message.routing as u8, message.code.0, hex(&message.content))
}
