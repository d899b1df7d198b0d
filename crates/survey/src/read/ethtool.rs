//! Interrupt coalescing of network interfaces: `ethtool -c`, and the kernel's answer over netlink, which needs no rights.

use std::fmt::Write as _;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketType, bind, netlink, recv, send, socket, sockopt,
};

use crate::fact::Origin;
use crate::model::Survey;

/// Whether a text is of `ethtool -c`.
pub fn is(text: &str) -> bool {
    text.starts_with("Coalesce parameters for ")
}

/// `ethtool -c`, of one interface or several.
pub fn read(text: &str, source: usize) -> Survey {
    let from = |what| Origin { source, what };
    let mut survey = Survey::default();
    let mut interface = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("Coalesce parameters for ") {
            interface = Some(name.trim_end_matches(':').to_owned()).filter(|name| name.len() < 64);
            continue;
        }
        let Some(own) = interface.as_ref().map(|name| survey.interfaces.entry(name.clone()).or_default())
        else {
            continue;
        };
        let Some((name, value)) = line.split_once(':') else { continue };
        let number = value.trim().parse::<u32>().ok();
        match name {
            "Adaptive RX" => match value.split_whitespace().next() {
                Some("on") => own.adaptive_rx.set(true, from("Adaptive RX")),
                Some("off") => own.adaptive_rx.set(false, from("Adaptive RX")),
                _ => {}
            },
            "rx-usecs" => number.into_iter().for_each(|us| own.rx_usecs.set(us, from("rx-usecs"))),
            "rx-frames" => number.into_iter().for_each(|count| own.rx_frames.set(count, from("rx-frames"))),
            "tx-usecs" => number.into_iter().for_each(|us| own.tx_usecs.set(us, from("tx-usecs"))),
            "tx-frames" => number.into_iter().for_each(|count| own.tx_frames.set(count, from("tx-frames"))),
            _ => {}
        }
    }
    survey
}

/// Numbers of generic netlink (linux/genetlink.h) and of its family `ethtool` (linux/ethtool_netlink.h).
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const COALESCE_GET: u8 = 19;
const HEADER: u16 = 1;
const HEADER_DEVICE: u16 = 2;
const NESTED: u16 = 1 << 15;
const REQUEST: u16 = 1;
/// Bytes of the headers of netlink and of generic netlink.
const HEADERS: usize = 20;
/// What is told of an interface: attribute, and `ethtool -c`'s word.
const TOLD: [(u16, &str); 4] = [(2, "rx-usecs"), (3, "rx-frames"), (6, "tx-usecs"), (7, "tx-frames")];
const ADAPTIVE_RX: u16 = 11;
const ADAPTIVE_TX: u16 = 12;

/// What the kernel says of an interface's coalescing, as `ethtool -c` prints it; `None` if it does not say.
pub fn ask(interface: &str) -> Option<String> {
    let family = asked(CONTROLLER, GET_FAMILY, &attribute(FAMILY_NAME, b"ethtool\0"))?;
    let id = found(&family, FAMILY_ID)?;
    let id = u16::from_le_bytes(id.get(..2)?.try_into().ok()?);
    let device = attribute(HEADER_DEVICE, format!("{interface}\0").as_bytes());
    let answer = asked(id, COALESCE_GET, &attribute(HEADER | NESTED, &device))?;
    let on = |kind| match found(&answer, kind).and_then(|value| value.first().copied()) {
        None => "n/a",
        Some(0) => "off",
        Some(_) => "on",
    };
    let mut text = format!(
        "Coalesce parameters for {interface}:\nAdaptive RX: {}  TX: {}\n",
        on(ADAPTIVE_RX),
        on(ADAPTIVE_TX)
    );
    for (kind, name) in TOLD {
        if let Some(four) = found(&answer, kind).and_then(|value| value.get(..4)?.try_into().ok()) {
            let _ = writeln!(text, "{name}: {}", u32::from_le_bytes(four));
        }
    }
    Some(text)
}

/// An attribute: length, kind, value, up to the next four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((value.len() as u16 + 4).to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// An attribute's value.
fn found(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let [a, b, c, d, ..] = attributes {
        let (length, kind) =
            (usize::from(u16::from_le_bytes([*a, *b])), u16::from_le_bytes([*c, *d]) & !NESTED);
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// Asks the kernel; returns the attributes of its answer. Netlink has the machine's own byte order, which is little-endian on all that
/// this is built for.
fn asked(family: u16, command: u8, attributes: &[u8]) -> Option<Vec<u8>> {
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::GENERIC)).ok()?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_millis(200))).ok()?;
    bind(&socket, &netlink::SocketAddrNetlink::new(0, 0)).ok()?;
    let mut message = Vec::new();
    message.extend((HEADERS as u32 + attributes.len() as u32).to_le_bytes());
    message.extend(family.to_le_bytes());
    message.extend(REQUEST.to_le_bytes());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    send(&socket, &message, SendFlags::empty()).ok()?;
    let mut buffer = vec![0; 8192];
    let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty()).ok()?;
    let answer = buffer.get(..length)?;
    let kind = u16::from_le_bytes(answer.get(4..6)?.try_into().ok()?);
    // Errors are messages of their own.
    (kind == family).then(|| answer.get(HEADERS..).map(<[u8]>::to_vec))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_again() {
        let all = [attribute(1, b"abc"), attribute(7 | NESTED, b"four"), attribute(9, b"")].concat();
        assert_eq!(all.len(), 8 + 8 + 4);
        assert_eq!(found(&all, 1), Some(&b"abc"[..]));
        assert_eq!(found(&all, 7), Some(&b"four"[..]));
        assert_eq!((found(&all, 9), found(&all, 2)), (Some(&b""[..]), None));
        // A length of nothing, or of more than there is.
        assert_eq!(found(&[0, 0, 1, 0, 0, 0, 0, 0], 2), None);
        assert_eq!(found(&[255, 0, 1, 0], 1), None);
    }
}
