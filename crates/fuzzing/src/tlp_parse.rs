//! TLP headers and framed packets from arbitrary bytes: whatever parses is valid and encodes to the same bytes.

use wire::pcie::frame::{self, Frame};
use wire::pcie::{Framing, Tlp, crc, may_pass};

fn header(bytes: &[u8]) {
    let Ok((tlp, len)) = Tlp::parse(bytes) else { return };
    assert_eq!(tlp.check(), Ok(()));
    let mut buf = [0; 16];
    tlp.emit(&mut buf);
    assert_eq!(Tlp::parse(&buf[..len]), Ok((tlp, len)));
    let _ = (tlp.to_string(), tlp.credits(), tlp.packet_len(), crc::ecrc_is_right(bytes));
    if let Ok((second, _)) = Tlp::parse(&bytes[len..]) {
        let _ = may_pass(&tlp, &second);
    }
}

/// Tests an input.
pub fn run(bytes: &[u8]) {
    header(bytes);
    for framing in [Framing::Symbols, Framing::Tokens] {
        if let Ok((Frame::Tlp { packet, .. }, len)) = frame::parse(framing, bytes) {
            assert!(len <= bytes.len());
            header(packet);
        }
    }
}
