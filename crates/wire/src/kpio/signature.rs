//! The paper's format: a frame, zeros up to a multiple of eight bytes, then signatures up to the end of the line, at
//! least one.
//!
//! ```text
//! 120 bytes (packet A)   frame 64 | frame 56, 1 signature
//!  64 bytes (packet B)   frame 64 | 8 signatures
//! 240 bytes (packet C)   frame 64 | frame 64 | frame 64 | frame 48, 2 signatures
//! 104 bytes (the ping)   frame 64 | frame 40, 3 signatures
//! ```
//! (Section III.A, Figure 3 as far as the text tells of it, and section IV.A.)

use super::{Drop, Drops, LINE, Outcome, framed::Header};

/// Bytes of a signature.
pub const WORD: usize = 8;

/// Default signature (assumed: the paper does not print its own).
pub const EOP: u64 = 0x9b5c_e37a_21d8_46f1;

/// Lines of a frame of `length` bytes.
pub const fn lines(length: usize) -> usize {
    (length.next_multiple_of(WORD) + WORD).div_ceil(LINE)
}

/// Appends a frame's lines to `out`.
pub fn encode(frame: &[u8], eop: u64, out: &mut Vec<u8>) {
    let end = out.len() + lines(frame.len()) * LINE;
    out.extend_from_slice(frame);
    out.resize(out.len() + frame.len().next_multiple_of(WORD) - frame.len(), 0);
    while out.len() < end {
        out.extend_from_slice(&eop.to_le_bytes());
    }
}

/// The EOP filter: removes the signatures and finds the frames between them.
///
/// A frame ends at the first word that equals the signature; the rest of that line is padding, whatever it contains.
#[derive(Clone, Debug)]
pub struct SignatureDecoder {
    eop: [u8; WORD],
    longest: usize,
    frame: Vec<u8>,
    /// The frame was already returned.
    is_done: bool,
    /// The frame is too long: data is discarded until its end.
    is_overrun: bool,
    dropped: Drops,
}

impl SignatureDecoder {
    /// A decoder for frames of at most `longest` bytes.
    pub fn new(eop: u64, longest: usize) -> Self {
        Self {
            eop: eop.to_le_bytes(),
            longest,
            frame: Vec::new(),
            is_done: true,
            is_overrun: false,
            dropped: Drops::default(),
        }
    }

    /// Processes the next line.
    pub fn line(&mut self, line: &[u8]) -> Outcome {
        if self.is_done {
            self.frame.clear();
            self.is_done = false;
        }
        for word in line.chunks(WORD) {
            if word == self.eop {
                let was_empty = self.frame.is_empty();
                self.is_done = true;
                return match core::mem::take(&mut self.is_overrun) {
                    true => {
                        self.dropped.add(Drop::TooLong);
                        Outcome::Dropped(Drop::TooLong)
                    }
                    false if was_empty => Outcome::More,
                    false => Outcome::Frame(Header::default()),
                };
            }
            // A frame may have the maximum length, rounded up.
            self.is_overrun |= self.frame.len() + word.len() > self.longest.next_multiple_of(WORD);
            if !self.is_overrun {
                self.frame.extend_from_slice(word);
            }
        }
        Outcome::More
    }

    /// The frame of the last outcome.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Whether a frame has begun that is not complete.
    pub fn is_inside(&self) -> bool {
        !self.is_done && (self.is_overrun || !self.frame.is_empty())
    }

    /// Frames dropped, by reason.
    pub fn dropped(&self) -> &Drops {
        &self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 7 + 1) as u8).collect()
    }

    fn encoded(frame: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(frame, EOP, &mut out);
        out
    }

    /// Output of the filter for the given lines.
    fn decoded(lines: &[u8]) -> Vec<Vec<u8>> {
        let mut decoder = SignatureDecoder::new(EOP, 2048);
        let mut frames = Vec::new();
        for line in lines.chunks(LINE) {
            if let Outcome::Frame(_) = decoder.line(line) {
                frames.push(decoder.frame().to_vec());
            }
        }
        frames
    }

    /// Number of lines, and of signatures at their end.
    fn shape(length: usize) -> (usize, usize) {
        let lines = encoded(&frame(length));
        let eops = lines.chunks(WORD).rev().take_while(|word| *word == EOP.to_le_bytes()).count();
        (lines.len() / LINE, eops)
    }

    #[test]
    fn packets_of_figure_3() {
        assert_eq!(shape(120), (2, 1), "A: a single signature");
        assert_eq!(shape(64), (2, 8), "B: another 64 bytes of stuffing");
        assert_eq!(shape(240), (4, 2), "C: two signatures");
        assert_eq!(shape(104), (2, 3), "the ping of section IV.A");
        // The fourth packet's length is only in the drawing: the queue with all those that the text names, and a fourth
        // that needs one line.
        let lengths = [120, 64, 240, 20];
        let lines: Vec<u8> = lengths.iter().flat_map(|&length| encoded(&frame(length))).collect();
        let back = decoded(&lines);
        assert_eq!(back.iter().map(Vec::len).collect::<Vec<_>>(), [120, 64, 240, 24]);
        for (length, frame_back) in lengths.into_iter().zip(back) {
            assert_eq!(frame_back[..length], frame(length));
        }
    }

    #[test]
    fn lengths_off_eight_bytes_are_lost() {
        for length in 1..200 {
            let back = decoded(&encoded(&frame(length)));
            assert_eq!(back[0].len(), length.next_multiple_of(8), "{length} bytes");
        }
    }

    /// Section III.A: "the false transmit payload will effectively be treated as a dropped packet". Nothing in the
    /// format ensures that: two unintended frames leave, and only their checksums may happen to be wrong.
    #[test]
    fn a_signature_in_the_payload_makes_two_frames_of_one() {
        let mut packet = frame(300);
        packet[128..136].copy_from_slice(&EOP.to_le_bytes());
        let back = decoded(&encoded(&packet));
        assert_eq!(back.len(), 2);
        assert_eq!(back[0], packet[..128], "the front, cut at the signature");
        // The rest of the line with the false signature is taken for padding.
        assert_eq!(
            back[1][..300 - 192],
            packet[192..],
            "and the rest, which begins in the middle of the payload"
        );
        // When not aligned to eight bytes, it is payload like any other.
        let mut packet = frame(300);
        packet[129..137].copy_from_slice(&EOP.to_le_bytes());
        assert_eq!(decoded(&encoded(&packet))[0][..300], packet);
    }

    #[test]
    fn a_lost_end_makes_one_frame_of_two() {
        let (a, b) = (frame(120), frame(104));
        let mut lines = encoded(&a);
        lines.truncate(LINE);
        lines.extend(encoded(&b));
        let back = decoded(&lines);
        assert_eq!(back.len(), 1);
        assert_eq!(back[0], [&a[..64], &b[..]].concat());
    }

    #[test]
    fn what_never_ends_is_dropped_as_one() {
        let mut decoder = SignatureDecoder::new(EOP, 128);
        for _ in 0..5 {
            assert_eq!(decoder.line(&[1; LINE]), Outcome::More);
        }
        assert_eq!(decoder.line(&encoded(&[])), Outcome::Dropped(Drop::TooLong));
        let lines = encoded(&frame(128));
        assert_eq!(decoder.line(&lines[..64]), Outcome::More);
        assert_eq!(decoder.line(&lines[64..128]), Outcome::More);
        assert!(decoder.is_inside());
        assert_eq!(decoder.line(&lines[128..]), Outcome::Frame(Header::default()));
        assert_eq!(decoder.frame(), frame(128));
    }

    proptest! {
        /// Frames of whole words without the signature survive, however many follow each other.
        #[test]
        fn whole_words_come_back(words in proptest::collection::vec(1usize..40, 1..6), fill in any::<u8>()) {
            let frames: Vec<Vec<u8>> = words.iter().map(|n| vec![fill; 8 * n]).collect();
            let lines: Vec<u8> = frames.iter().flat_map(|frame| encoded(frame)).collect();
            prop_assert_eq!(decoded(&lines), frames);
        }

        #[test]
        fn never_more_than_it_takes(length in 0usize..3000) {
            let lines = encoded(&vec![0; length]);
            prop_assert_eq!(lines.len(), lines_of(length) * LINE);
            prop_assert!(lines.len() >= length + 8 && lines.len() < length + 16 + LINE);
        }
    }

    fn lines_of(length: usize) -> usize {
        super::lines(length)
    }
}
