//! Any lines in any order, given to both decoders of the kPIO queue: no panic, and all frames have a valid length.

use wire::kpio::{Decoder, Format, LINE, Line, Outcome, framed, signature};

const LONGEST: usize = 1518;

/// Tests an input.
pub fn run(data: &[u8]) {
    for format in [Format::Signature(signature::EOP), Format::Framed] {
        let mut decoder = Decoder::new(format, LONGEST);
        for (n, chunk) in data.chunks(LINE + 1).enumerate() {
            let [how, bytes @ ..] = chunk else { continue };
            // Every fourth line is a valid one, to reach the checks behind the checksum.
            let mut made = Vec::new();
            let bytes = if how & 3 == 0 {
                let header = framed::Header { number: n as u16, ..framed::Header::default() };
                format.encode(header, bytes, &mut made);
                &made[..LINE]
            } else {
                bytes
            };
            let line = Line { bytes, is_first: how & 4 == 0, is_intact: how & 8 == 0 };
            if let Outcome::Frame(header) = decoder.line(line) {
                let length = decoder.frame().len();
                assert!(length > 0 && length <= LONGEST.next_multiple_of(signature::WORD));
                if format == Format::Framed {
                    assert!(length >= framed::SHORTEST && length == usize::from(header.length));
                }
            }
        }
    }
}
