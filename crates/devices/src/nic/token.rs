//! Notes about DMA requests and timers, packed into their tokens.

use engine::Epoch;
use platform::device::{Dma, DmaAttributes, FunctionIndex, Token};
use units::Iova;

/// Kind of request or timer, and the meaning of the two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Read: TX descriptors; index of the first, and count.
    TxFetch,
    /// Read: free buffers; index of the first, and count. With count 0: a fence and its number.
    RxFetch,
    /// Read: a part of a frame; job and part.
    TxData,
    /// Write: a part of a received frame; bytes.
    RxData,
    /// Write: completions of a TX queue; packets, and the index up to which they become visible.
    TxCompletion,
    /// Write: completions of an RX queue; packets, and the index up to which they become visible.
    RxCompletion,
    /// Timer: write the pending completions of a TX queue.
    TxFlush,
    /// Timer: write the pending completions of an RX queue.
    RxFlush,
    /// Timer: process a TX queue's doorbell.
    Doorbell,
    /// Timer: a packet can be sent.
    TxPump,
    /// Timer: a packet can be received.
    RxPump,
    /// Timer: coalescing of a vector expired (`queue` is the lower half of its number).
    Vector,
    /// Timer: a queue for programmed I/O has waited long enough for a line.
    MissingLine,
    /// Timer or write: report freed lines of such a queue to the driver.
    FreedLines,
    /// Timer: a port's multiplexer can hand on a frame.
    Mux,
    /// Timer: a frame has passed the loopback.
    Loopback,
    /// Write: an entry of a vector's event queue; the vector.
    Event,
}

const KINDS: [Kind; 17] = [
    Kind::TxFetch,
    Kind::RxFetch,
    Kind::TxData,
    Kind::RxData,
    Kind::TxCompletion,
    Kind::RxCompletion,
    Kind::TxFlush,
    Kind::RxFlush,
    Kind::Doorbell,
    Kind::TxPump,
    Kind::RxPump,
    Kind::Vector,
    Kind::MissingLine,
    Kind::FreedLines,
    Kind::Mux,
    Kind::Loopback,
    Kind::Event,
];

/// Bits of a token for the life of a queue.
const LIFE_BITS: u32 = 11;

/// Content of a token: `kind` 5 bits, `life` 11, `function` 8, `queue` 8, two numbers of 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    pub kind: Kind,
    life: u16,
    pub function: u8,
    pub queue: u8,
    pub first: u16,
    pub second: u16,
}

impl Note {
    /// A note for a function's queue in this life; it is ignored in later ones.
    pub fn new(kind: Kind, life: Epoch, function: u8, queue: u8) -> Self {
        Self { kind, life: life.low(LIFE_BITS), function, queue, first: 0, second: 0 }
    }

    /// A note for a function's vectors.
    pub fn of_function(kind: Kind, function: u8) -> Self {
        Self { kind, life: 0, function, queue: 0, first: 0, second: 0 }
    }

    /// A note for what all functions share.
    pub fn of_device(kind: Kind) -> Self {
        Self::of_function(kind, 0)
    }

    /// Whether it was made in this life of its queue.
    pub const fn is_of(self, life: Epoch) -> bool {
        self.life == life.low(LIFE_BITS)
    }

    pub fn with(self, first: u16, second: u16) -> Self {
        Self { first, second, ..self }
    }

    pub fn token(self) -> Token {
        Token(
            (self.kind as u64) << 59
                | u64::from(self.life) << 48
                | u64::from(self.function) << 40
                | u64::from(self.queue) << 32
                | u64::from(self.first) << 16
                | u64::from(self.second),
        )
    }

    /// Decodes a token; `None` if the NIC did not create it.
    pub fn of(Token(token): Token) -> Option<Self> {
        Some(Self {
            kind: *KINDS.get((token >> 59) as usize)?,
            life: (token >> 48) as u16 & ((1 << LIFE_BITS) - 1),
            function: (token >> 40) as u8,
            queue: (token >> 32) as u8,
            first: (token >> 16) as u16,
            second: token as u16,
        })
    }
}

/// A DMA request of a function.
pub fn request(function: u8, address: u64, length: u32, note: Note) -> Dma {
    let (address, token) = (Iova::new(address), note.token());
    // Completions say that the payload before them is there.
    let attributes = match note.kind {
        Kind::TxData | Kind::RxData => DmaAttributes::PAYLOAD,
        _ => DmaAttributes::default(),
    };
    Dma { function: FunctionIndex(function), address, length, token, attributes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back() {
        for kind in KINDS {
            let note = Note { kind, life: 0x5bc, function: 3, queue: 255, first: 0xffff, second: 17 };
            assert_eq!(Note::of(note.token()), Some(note));
        }
        assert_eq!(Note::of(Token(u64::MAX)), None);
    }

    #[test]
    fn only_payload_may_pass_other_writes() {
        for kind in KINDS {
            let attributes = request(0, 0, 64, Note::of_device(kind)).attributes;
            let is_payload = matches!(kind, Kind::TxData | Kind::RxData);
            assert_eq!(attributes.relaxed_ordering, is_payload, "{kind:?}");
        }
    }
}
