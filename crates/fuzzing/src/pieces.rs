//! Received data that has to be returned like packet buffers: dropping it is a leak.

use inet::tcp::Payload;

/// A number of bytes without content.
#[derive(Debug)]
pub struct Piece {
    length: u32,
    is_owed: bool,
}

impl Piece {
    pub fn new(length: u32) -> Self {
        Self { length, is_owed: true }
    }

    pub fn give_back(mut self) {
        self.is_owed = false;
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        assert!(!self.is_owed || std::thread::panicking(), "a piece of {} bytes leaked", self.length);
    }
}

impl Payload for Piece {
    fn empty() -> Self {
        Self { length: 0, is_owed: false }
    }
    fn len(&self) -> u32 {
        self.length
    }
    fn drop_front(&mut self, bytes: u32) {
        self.length -= bytes.min(self.length);
    }
    fn truncate(&mut self, bytes: u32) {
        self.length = self.length.min(bytes);
    }
}

/// Takes numbers from arbitrary bytes, then zeros.
pub struct Numbers<'a>(pub &'a [u8]);

impl Numbers<'_> {
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}
