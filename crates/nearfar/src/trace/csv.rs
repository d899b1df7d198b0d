//! Packets as comma-separated values: every field of every header, so that the bytes can be reconstructed.

use std::borrow::Cow;
use std::fmt;

use units::Duration;
use wire::pcie::tlp::{AddressType, Common, Message};
use wire::pcie::{Dllp, TlpKind};

use super::row::{Decoded, Row};

/// Type of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// A decimal integer.
    Integer,
    /// A time in nanoseconds with three decimals.
    Time,
    /// An integer shown in hexadecimal.
    Hex,
    /// Words.
    Text,
    /// Bytes in hexadecimal.
    Bytes,
}

/// The columns. Times are relative to T0, lengths in bytes.
pub const COLUMNS: [(&str, Holds); 28] = [
    ("packet", Holds::Integer),
    ("link", Holds::Text),
    ("direction", Holds::Text),
    ("time_ns", Holds::Time),
    ("duration_ns", Holds::Time),
    ("type", Holds::Text),
    ("sequence", Holds::Integer),
    ("traffic_class", Holds::Integer),
    ("attributes", Holds::Text),
    ("requester", Holds::Text),
    ("tag", Holds::Integer),
    ("completer", Holds::Text),
    ("target", Holds::Text),
    ("address", Holds::Hex),
    ("length_bytes", Holds::Integer),
    ("first_be", Holds::Text),
    ("last_be", Holds::Text),
    ("status", Holds::Text),
    ("byte_count", Holds::Integer),
    ("lower_address", Holds::Hex),
    ("message", Holds::Text),
    ("credit_class", Holds::Text),
    ("credit_headers", Holds::Integer),
    ("credit_data", Holds::Integer),
    ("wire_bytes", Holds::Integer),
    ("payload", Holds::Bytes),
    ("remark", Holds::Text),
    ("bytes", Holds::Bytes),
];

/// A packet's value in a column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// For integer columns.
    Integer(u64),
    /// For time columns.
    Time(Duration),
    /// For hexadecimal columns.
    Hex(u64),
    /// For text columns.
    Text(Cow<'a, str>),
    /// For byte columns.
    Bytes(&'a [u8]),
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Time(time) => write!(f, "{}.{:03}", time.as_ps() / 1000, time.as_ps() % 1000),
            Self::Hex(number) => write!(f, "{number:#x}"),
            Self::Text(text) => f.write_str(text),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// All rows, with a header line.
pub fn table<'a>(rows: impl Iterator<Item = Row<'a>>) -> String {
    let mut text = COLUMNS.map(|(name, _)| name).join(",");
    text.push('\n');
    for row in rows {
        let fields = values(&row).map(|value| value.map_or_else(String::new, |value| value.to_string()));
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}

/// A row's values in the order of [`COLUMNS`]; `None` for fields that the packet does not have.
pub fn values<'r>(row: &'r Row<'_>) -> [Option<Value<'r>>; COLUMNS.len()] {
    let mut values = COLUMNS.map(|_| None);
    for (column, value) in present(row).into_iter().chain([("bytes", Value::Bytes(row.bytes))]) {
        let at = COLUMNS.iter().position(|&(name, _)| name == column).expect("a column of the table");
        values[at] = Some(value);
    }
    values
}

/// A packet's fields, except its complete bytes.
pub(super) fn present<'r>(row: &'r Row<'_>) -> Vec<(&'static str, Value<'r>)> {
    let mut fields = Vec::with_capacity(COLUMNS.len());
    let mut set = |column: &'static str, value: Value<'r>| {
        if !matches!(&value, Value::Text(text) if text.is_empty()) && value != Value::Bytes(&[]) {
            fields.push((column, value));
        }
    };
    let number = |number: u32| Value::Integer(number.into());
    let words = |text: String| Value::Text(text.into());
    set("packet", Value::Integer(row.number as u64));
    set("link", Value::Text(row.link.into()));
    set("direction", Value::Text(row.direction().into()));
    set("time_ns", Value::Time(row.since_t0));
    set("duration_ns", Value::Time(row.duration));
    set("type", words(row.kind()));
    set("wire_bytes", Value::Integer(row.wire_bytes));
    match &row.decoded {
        Decoded::Tlp { sequence, tlp, payload, digest, intact } => {
            set("sequence", number(sequence.get().into()));
            set("traffic_class", number(tlp.common.traffic_class.into()));
            set("attributes", words(attributes(&tlp.common)));
            let (class, headers, data) = tlp.credits();
            set("credit_class", Value::Text(CLASSES[class.index()].into()));
            set("credit_headers", number(headers.into()));
            set("credit_data", number(data.into()));
            set("payload", Value::Bytes(payload));
            set("requester", words(tlp.requester().to_string()));
            set("tag", number(tlp.tag().into()));
            match &tlp.kind {
                TlpKind::MemoryRead(r) | TlpKind::MemoryWrite(r) => {
                    set("address", Value::Hex(r.address));
                    set("length_bytes", number(u32::from(r.length_dw) * 4));
                    set("first_be", words(format!("{:x}", r.first_be)));
                    set("last_be", words(format!("{:x}", r.last_be)));
                }
                TlpKind::IoRead(r) | TlpKind::IoWrite(r) => {
                    set("address", Value::Hex(r.address.into()));
                    set("length_bytes", number(4));
                    set("first_be", words(format!("{:x}", r.first_be)));
                }
                TlpKind::ConfigRead(r) | TlpKind::ConfigWrite(r) => {
                    set("target", words(r.target.to_string()));
                    set("address", Value::Hex(r.register.into()));
                    set("length_bytes", number(4));
                    set("first_be", words(format!("{:x}", r.first_be)));
                }
                TlpKind::Completion(c) | TlpKind::CompletionData(c) => {
                    set("completer", words(c.completer.to_string()));
                    set("length_bytes", number(u32::from(c.length_dw) * 4));
                    set("status", words(c.status.to_string()));
                    set("byte_count", number(c.byte_count.into()));
                    set("lower_address", Value::Hex(c.lower_address.into()));
                }
                TlpKind::Message(m) => {
                    set("length_bytes", number(u32::from(m.length_dw) * 4));
                    set("message", words(message(m)));
                }
            }
            let mut remarks: Vec<String> = Vec::new();
            remarks.extend(
                row.doorbell.iter().map(|doorbell| format!("doorbell: {}", doorbell.replace(',', ""))),
            );
            if !digest.is_empty() {
                remarks.push(format!("ECRC {}", Value::Bytes(digest)));
            }
            if !intact {
                remarks.push("bad LCRC".to_owned());
            }
            set("remark", words(remarks.join("; ")));
        }
        Decoded::Dllp(dllp) => match dllp {
            Dllp::Ack(sequence) | Dllp::Nak(sequence) => set("sequence", number(sequence.get().into())),
            Dllp::FlowControl(fc) => {
                set("credit_class", Value::Text(CLASSES[fc.class.index()].into()));
                set("credit_headers", number(fc.header_credits()));
                set("credit_data", number(fc.data_credits()));
            }
            other => set("remark", words(other.to_string())),
        },
        Decoded::Malformed { why, bytes } => {
            set("payload", Value::Bytes(bytes));
            set("remark", words(why.replace(',', ";")));
        }
    }
    fields
}

/// Posted, non-posted, completion.
const CLASSES: [&str; 3] = ["P", "NP", "Cpl"];

/// The attributes that are set, of `RO NS IDO EP TD AT=translated`.
fn attributes(common: &Common) -> String {
    let plain = Common { traffic_class: 0, ..*common };
    debug_assert!(common.address_type != AddressType::Reserved, "the parser refuses it");
    plain.to_string().trim_start().to_owned()
}

/// Routing (0 to 5), code and the last eight bytes of the header.
fn message(message: &Message) -> String {
    format!("{} {:02x} {}", message.routing as u8, message.code.0, Value::Bytes(&message.content))
}
