//! What the NIC notes about its DMA requests and timers, packed into their tokens.

use platform::device::{Dma, DmaAttributes, FunctionIndex, Token};
use units::Iova;

/// What a token is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Read: descriptors to send; the count of the first, and how many.
    TxFetch,
    /// Read: free buffers; the count of the first, and how many. Of none: a fence, its number.
    RxFetch,
    /// Read: a part of a frame; the job, and the part.
    TxData,
    /// Write: a part of a received frame; its bytes.
    RxData,
    /// Write: completions of a TX queue; packets, and the count that they make visible.
    TxCompletion,
    /// Write: completions of an RX queue; packets, and the count that they make visible.
    RxCompletion,
    /// Timer: completions of a TX queue have waited long enough.
    TxFlush,
    /// Timer: completions of an RX queue have waited long enough.
    RxFlush,
    /// Timer: a doorbell of a TX queue is looked at.
    Doorbell,
    /// Timer: something can be sent.
    TxPump,
    /// Timer: something can be received.
    RxPump,
    /// Timer: a vector has waited long enough (`queue` is the lower half of its number).
    Vector,
    /// Timer: a kPIO queue has waited long enough for a line.
    KpioPatience,
    /// Timer: the driver is told of a kPIO queue's lines.
    KpioReport,
    /// Timer: a port's multiplexer can hand on a frame.
    Mux,
    /// Timer: a frame has gone round inside.
    Loopback,
}

const KINDS: [Kind; 16] = [
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
    Kind::KpioPatience,
    Kind::KpioReport,
    Kind::Mux,
    Kind::Loopback,
];

/// A token's content: `kind` 4 bits, `life` 12, `function` 8, `queue` 8, two numbers of 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    pub kind: Kind,
    /// Life of the queue: notes of an earlier one mean nothing any more.
    pub life: u16,
    pub function: u8,
    pub queue: u8,
    pub first: u16,
    pub second: u16,
}

impl Note {
    pub fn new(kind: Kind, life: u16, function: u8, queue: u8) -> Self {
        Self { kind, life: life & 0xfff, function, queue, first: 0, second: 0 }
    }

    pub fn with(self, first: u16, second: u16) -> Self {
        Self { first, second, ..self }
    }

    pub fn token(self) -> Token {
        Token(
            (self.kind as u64) << 60
                | u64::from(self.life & 0xfff) << 48
                | u64::from(self.function) << 40
                | u64::from(self.queue) << 32
                | u64::from(self.first) << 16
                | u64::from(self.second),
        )
    }

    /// What is in a token; `None` if the NIC did not make it.
    pub fn of(Token(token): Token) -> Option<Self> {
        Some(Self {
            kind: *KINDS.get((token >> 60) as usize)?,
            life: (token >> 48) as u16 & 0xfff,
            function: (token >> 40) as u8,
            queue: (token >> 32) as u8,
            first: (token >> 16) as u16,
            second: token as u16,
        })
    }
}

/// A read or a write by a function.
pub fn request(function: u8, address: u64, length: u32, note: Note) -> Dma {
    let (address, token) = (Iova::new(address), note.token());
    Dma { function: FunctionIndex(function), address, length, token, attributes: DmaAttributes::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back() {
        for kind in KINDS {
            let note = Note::new(kind, 0xabc, 3, 255).with(0xffff, 17);
            assert_eq!(Note::of(note.token()), Some(note));
        }
        assert_eq!(Note::of(Token(u64::MAX)).map(|note| note.kind), Some(Kind::Loopback));
    }
}
