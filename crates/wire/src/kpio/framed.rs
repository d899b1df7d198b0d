//! A format with length and checksum, which adds eight bytes to each frame.
//!
//! ```text
//! 0                  2        4            4 + length      8 + length
//! length 14, flags 2 | number | the frame  | checksum      | anything, up to the end of the line
//! ```
//! All numbers are little-endian. The checksum is CRC-32C of everything before it (the polynomial of x86's `crc32`
//! instruction). Frames are numbered, so that frames of which nothing arrived are counted, too.
//!
//! No unintended frame is sent. A frame is accepted if its first line was written to the upper half of the window and
//! the following lines to the lower half, no byte was written twice, its number is new and its checksum correct. A
//! payload can neither begin a frame, which takes the address, nor end one, which takes the length. If writers without
//! a lock mix lines of different frames (and write no byte twice), only the checksum protects: one mixture in 2³²
//! passes, 2.3 × 10⁻¹⁰; none that differs by fewer than four bits in frames up to 2³¹ bits, nor by a single burst of 32
//! bits (Castagnoli et al., IEEE Trans. Commun. 41(6), 1993).

use super::{Drop, Drops, LINE, Line, Outcome};

/// Header bytes before the frame.
pub const HEADER_LEN: usize = 4;
/// Checksum bytes behind the frame.
pub const CHECKSUM_LEN: usize = 4;
/// Bytes that the format adds to a frame, without padding.
pub const OVERHEAD: usize = HEADER_LEN + CHECKSUM_LEN;
/// Longest frame that the length field can express.
pub const LONGEST: usize = (1 << 14) - 1;
/// Shortest frame: an Ethernet header.
pub const SHORTEST: usize = crate::ethernet::HEADER_LEN;

/// Lines of a frame of `length` bytes.
pub const fn lines(length: usize) -> usize {
    (length + OVERHEAD).div_ceil(LINE)
}

/// The header before a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Length of the frame in bytes.
    pub length: u16,
    /// Fill in the checksum of the IPv4 header.
    pub network_checksum: bool,
    /// Fill in the checksum of TCP or UDP.
    pub transport_checksum: bool,
    /// Frame number within the queue.
    pub number: u16,
}

impl Header {
    /// Decodes a header; any bytes are valid.
    pub fn parse(bytes: [u8; HEADER_LEN]) -> Self {
        let first = u16::from_le_bytes([bytes[0], bytes[1]]);
        Self {
            length: first & 0x3fff,
            network_checksum: first & 0x4000 != 0,
            transport_checksum: first & 0x8000 != 0,
            number: u16::from_le_bytes([bytes[2], bytes[3]]),
        }
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let flags = u16::from(self.network_checksum) << 14 | u16::from(self.transport_checksum) << 15;
        let [a, b] = (self.length & 0x3fff | flags).to_le_bytes();
        let [c, d] = self.number.to_le_bytes();
        [a, b, c, d]
    }
}

/// Appends a frame's lines to `out`. The header's length field is ignored in favour of the frame's.
pub fn encode(header: Header, frame: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    let header = Header { length: frame.len() as u16, ..header };
    out.extend_from_slice(&header.emit());
    out.extend_from_slice(frame);
    let checksum = crc32c::crc32c(&out[begin..]);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.resize(begin + lines(frame.len()) * LINE, 0);
}

/// Reassembles frames from lines.
#[derive(Clone, Debug)]
pub struct FramedDecoder {
    longest: usize,
    /// The stream from the header on.
    bytes: Vec<u8>,
    header: Header,
    is_inside: bool,
    /// A line of the frame was written twice.
    is_spoilt: bool,
    next: u16,
    missing: u64,
    dropped: Drops,
}

impl FramedDecoder {
    /// A decoder for frames of at most `longest` bytes, beginning with number 0.
    pub fn new(longest: usize) -> Self {
        Self {
            longest,
            bytes: Vec::new(),
            header: Header::default(),
            is_inside: false,
            is_spoilt: false,
            next: 0,
            missing: 0,
            dropped: Drops::default(),
        }
    }

    /// Processes the next line.
    pub fn line(&mut self, line: Line<'_>) -> Outcome {
        if line.is_first {
            self.give_up();
            self.begin(line)
        } else if self.is_inside {
            self.take(line)
        } else {
            self.drop(Drop::Stray)
        }
    }

    fn drop(&mut self, why: Drop) -> Outcome {
        self.dropped.add(why);
        Outcome::Dropped(why)
    }

    fn begin(&mut self, line: Line<'_>) -> Outcome {
        self.bytes.clear();
        self.is_spoilt = false;
        let Some(header) = line.bytes.first_chunk() else { return self.drop(Drop::Header) };
        self.header = Header::parse(*header);
        let length = usize::from(self.header.length);
        if length < SHORTEST || length > self.longest {
            return self.drop(Drop::Header);
        }
        self.is_inside = true;
        self.take(line)
    }

    fn take(&mut self, line: Line<'_>) -> Outcome {
        self.bytes.extend_from_slice(line.bytes);
        self.is_spoilt |= !line.is_intact;
        let length = usize::from(self.header.length);
        if self.bytes.len() < length + OVERHEAD {
            return Outcome::More;
        }
        self.is_inside = false;
        let (covered, rest) = self.bytes.split_at(HEADER_LEN + length);
        let is_right =
            rest.first_chunk().is_some_and(|sum| u32::from_le_bytes(*sum) == crc32c::crc32c(covered));
        // Serial number arithmetic: the nearer half of the range is ahead.
        let ahead = self.header.number.wrapping_sub(self.next);
        if self.is_spoilt {
            self.drop(Drop::Overwritten)
        } else if !is_right {
            self.drop(Drop::Checksum)
        } else if ahead >= 1 << 15 {
            self.drop(Drop::Repeated)
        } else {
            self.missing += u64::from(ahead);
            self.next = self.header.number.wrapping_add(1);
            Outcome::Frame(self.header)
        }
    }

    /// The frame of the last outcome.
    pub fn frame(&self) -> &[u8] {
        self.bytes.get(HEADER_LEN..HEADER_LEN + usize::from(self.header.length)).unwrap_or_default()
    }

    /// Whether a frame has begun that is not complete.
    pub fn is_inside(&self) -> bool {
        self.is_inside
    }

    /// Missing lines of the current frame.
    pub fn lines_left(&self) -> usize {
        if self.is_inside { self.left().div_ceil(LINE) } else { 0 }
    }

    fn left(&self) -> usize {
        (usize::from(self.header.length) + OVERHEAD).saturating_sub(self.bytes.len())
    }

    /// Bytes needed of the next line; the rest is padding. A first line must have begun.
    pub fn needs(&self, is_first: bool, begun: &[u8]) -> usize {
        match begun.first_chunk() {
            _ if !is_first && self.is_inside => self.left().min(LINE),
            Some(header) if is_first => (usize::from(Header::parse(*header).length) + OVERHEAD).min(LINE),
            _ => LINE,
        }
    }

    /// Gives up the rest of the frame.
    pub fn give_up(&mut self) {
        if core::mem::take(&mut self.is_inside) {
            self.dropped.add(Drop::Cut);
        }
    }

    /// Frame numbers that were skipped: frames dropped, and frames of which nothing arrived.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Frames dropped, by reason.
    pub fn dropped(&self) -> &Drops {
        &self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::super::signature;
    use super::*;
    use proptest::prelude::*;

    const LONGEST_HERE: usize = 600;

    fn frame(length: usize, seed: u8) -> Vec<u8> {
        (0..length).map(|i| (i as u8).wrapping_mul(29).wrapping_add(seed)).collect()
    }

    fn encoded(number: u16, frame: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(Header { number, ..Header::default() }, frame, &mut out);
        out
    }

    /// Lines of consecutive frames: bytes, and whether it is a first line.
    fn stream(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, bool)> {
        let lines = |(n, frame): (usize, &Vec<u8>)| -> Vec<(Vec<u8>, bool)> {
            let bytes = encoded(n as u16, frame);
            bytes.chunks(LINE).enumerate().map(|(n, line)| (line.to_vec(), n == 0)).collect()
        };
        frames.iter().enumerate().flat_map(lines).collect()
    }

    fn feed(decoder: &mut FramedDecoder, (bytes, is_first): &(Vec<u8>, bool)) -> Outcome {
        decoder.line(Line { bytes, is_first: *is_first, is_intact: true })
    }

    fn decoded(decoder: &mut FramedDecoder, lines: &[(Vec<u8>, bool)]) -> Vec<Vec<u8>> {
        let frame = |line| matches!(feed(decoder, line), Outcome::Frame(_)).then(|| decoder.frame().to_vec());
        lines.iter().filter_map(frame).collect()
    }

    #[test]
    fn costs_eight_bytes_and_no_line_more_than_the_papers() {
        for length in SHORTEST..2000 {
            let bytes = encoded(0, &frame(length, 0));
            assert_eq!(bytes.len(), (length + 8).next_multiple_of(LINE));
            assert!(bytes.len() <= signature::lines(length) * LINE, "{length}");
        }
    }

    #[test]
    fn packets_of_figure_3_and_odd_lengths_come_back_as_they_were() {
        for length in (SHORTEST..260).chain([120, 64, 240, 104]) {
            let mut decoder = FramedDecoder::new(LONGEST_HERE);
            let frames = [frame(length, 1), frame(length + 1, 2)];
            assert_eq!(decoded(&mut decoder, &stream(&frames)), frames);
        }
    }

    #[test]
    fn a_signature_and_a_whole_packet_are_payload_like_any_other() {
        let mut inner = frame(300, 3);
        inner[128..136].copy_from_slice(&signature::EOP.to_le_bytes());
        // A forged frame in the payload, in the right format and aligned to lines.
        let forged = encoded(1, &frame(50, 9));
        inner[124..124 + forged.len()].copy_from_slice(&forged);
        let frames = [inner, frame(64, 4)];
        assert_eq!(decoded(&mut FramedDecoder::new(LONGEST_HERE), &stream(&frames)), frames);
        // Even if its first line is lost, the rest cannot begin a frame.
        let mut decoder = FramedDecoder::new(LONGEST_HERE);
        assert_eq!(decoded(&mut decoder, &stream(&frames)[1..]), frames[1..]);
        assert_eq!((decoder.missing(), decoder.dropped().of(Drop::Stray)), (1, 4));
    }

    #[test]
    fn why_frames_are_dropped() {
        let mut decoder = FramedDecoder::new(100);
        let mut drop = |bytes: &[u8], is_first, is_intact| decoder.line(Line { bytes, is_first, is_intact });
        let good = encoded(0, &frame(40, 0));
        let mut bad = good.clone();
        bad[20] ^= 1;
        assert_eq!(drop(&bad, true, true), Outcome::Dropped(Drop::Checksum));
        assert_eq!(drop(&good, true, false), Outcome::Dropped(Drop::Overwritten));
        assert_eq!(drop(&encoded(0, &frame(13, 0)), true, true), Outcome::Dropped(Drop::Header));
        assert_eq!(drop(&encoded(0, &frame(101, 0))[..64], true, true), Outcome::Dropped(Drop::Header));
        assert_eq!(drop(&good, false, true), Outcome::Dropped(Drop::Stray));
        assert!(matches!(drop(&good, true, true), Outcome::Frame(_)));
        assert_eq!(drop(&good, true, true), Outcome::Dropped(Drop::Repeated));
        assert_eq!(drop(&encoded(1, &frame(100, 0))[..64], true, true), Outcome::More);
        assert!(
            matches!(drop(&encoded(5, &frame(20, 0)), true, true), Outcome::Frame(_)),
            "the next is whole"
        );
        assert_eq!((decoder.dropped().of(Drop::Cut), decoder.missing()), (1, 4));
    }

    #[test]
    fn a_line_need_not_be_longer_than_what_it_says() {
        let mut decoder = FramedDecoder::new(LONGEST_HERE);
        let bytes = encoded(0, &frame(70, 0));
        assert_eq!(decoder.needs(true, &bytes[..4]), 64);
        assert_eq!(
            decoder.line(Line { bytes: &bytes[..64], is_first: true, is_intact: true }),
            Outcome::More
        );
        assert_eq!((decoder.needs(false, &[]), decoder.lines_left()), (14, 1));
        let last = Line { bytes: &bytes[64..78], is_first: false, is_intact: true };
        assert!(matches!(decoder.line(last), Outcome::Frame(_)));
        assert_eq!(decoder.frame(), frame(70, 0));
    }

    /// What can happen to a line on its way.
    #[derive(Clone, Copy, Debug)]
    enum LineFault {
        Lost,
        Twice,
        /// Arrives after the following line.
        Late,
        /// Some of its bytes are those of the following line, possibly of another frame.
        Mixed(usize),
    }

    fn fault() -> impl Strategy<Value = LineFault> {
        prop_oneof![
            Just(LineFault::Lost),
            Just(LineFault::Twice),
            Just(LineFault::Late),
            (1usize..LINE).prop_map(LineFault::Mixed)
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn headers_come_back(bytes in any::<[u8; HEADER_LEN]>()) {
            prop_assert_eq!(Header::parse(bytes).emit(), bytes);
        }

        /// Whatever happens to lines, each frame that comes out went in, comes out once and in order; all frames are
        /// counted, and undamaged frames behind an undamaged one are complete.
        #[test]
        fn nothing_is_sent_that_was_not_meant(
            lengths in proptest::collection::vec(SHORTEST..300, 2..12),
            faults in proptest::collection::vec((any::<proptest::sample::Index>(), fault()), 0..6),
        ) {
            let frames: Vec<Vec<u8>> =
                lengths.iter().enumerate().map(|(n, &length)| frame(length, n as u8 * 7)).collect();
            let mut lines = stream(&frames);
            for (at, fault) in faults {
                let at = at.index(lines.len());
                match fault {
                    LineFault::Lost if lines.len() > 1 => drop(lines.remove(at)),
                    LineFault::Twice => lines.insert(at, lines[at].clone()),
                    LineFault::Late if at + 1 < lines.len() => lines.swap(at, at + 1),
                    LineFault::Mixed(from) if at + 1 < lines.len() => {
                        let other = lines[at + 1].0[from..].to_vec();
                        lines[at].0[from..].copy_from_slice(&other);
                    }
                    _ => {}
                }
            }
            let mut decoder = FramedDecoder::new(LONGEST_HERE);
            let out = decoded(&mut decoder, &lines);
            let mut left = frames.iter();
            for frame in &out {
                prop_assert!(left.any(|sent| sent == frame), "a frame that was not sent, or not then");
            }
            // A last frame completes the count.
            let last = frame(20, 99);
            let bytes = encoded(frames.len() as u16, &last);
            let outcome = decoder.line(Line { bytes: &bytes, is_first: true, is_intact: true });
            prop_assert!(matches!(outcome, Outcome::Frame(_)));
            prop_assert_eq!(decoder.frame(), &last[..]);
            prop_assert_eq!(out.len() as u64 + decoder.missing(), frames.len() as u64);
        }
    }
}
