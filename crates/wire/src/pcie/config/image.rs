//! Values and masks of a configuration space while it is laid out and after.

use super::SIZE;

/// What a function's registers are after reset and which bits can be changed.
#[derive(Clone)]
pub(super) struct Image {
    /// Values after reset.
    pub value: [u8; SIZE],
    /// RW: takes what is written.
    pub rw: [u8; SIZE],
    /// RW1C: a written 1 clears.
    pub rw1c: [u8; SIZE],
    /// Reads 0, a written 1 sets something off.
    pub trigger: [u8; SIZE],
    /// Keeps its value through every reset but the fundamental one.
    pub sticky: [u8; SIZE],
}

impl Image {
    pub fn new() -> Box<Self> {
        let zero = [0; SIZE];
        Box::new(Self { value: zero, rw: zero, rw1c: zero, trigger: zero, sticky: zero })
    }

    pub fn value8(&mut self, at: u16, value: u8) -> &mut Self {
        put(&mut self.value, at, &[value]);
        self
    }

    pub fn value16(&mut self, at: u16, value: u16) -> &mut Self {
        put(&mut self.value, at, &value.to_le_bytes());
        self
    }

    pub fn value32(&mut self, at: u16, value: u32) -> &mut Self {
        put(&mut self.value, at, &value.to_le_bytes());
        self
    }

    pub fn rw8(&mut self, at: u16, mask: u8) -> &mut Self {
        put(&mut self.rw, at, &[mask]);
        self
    }

    pub fn rw16(&mut self, at: u16, mask: u16) -> &mut Self {
        put(&mut self.rw, at, &mask.to_le_bytes());
        self
    }

    pub fn rw32(&mut self, at: u16, mask: u32) -> &mut Self {
        put(&mut self.rw, at, &mask.to_le_bytes());
        self
    }

    pub fn rw1c16(&mut self, at: u16, mask: u16) -> &mut Self {
        put(&mut self.rw1c, at, &mask.to_le_bytes());
        self
    }

    pub fn rw1c32(&mut self, at: u16, mask: u32) -> &mut Self {
        put(&mut self.rw1c, at, &mask.to_le_bytes());
        self
    }

    pub fn trigger16(&mut self, at: u16, mask: u16) -> &mut Self {
        put(&mut self.trigger, at, &mask.to_le_bytes());
        self
    }

    pub fn sticky32(&mut self, at: u16, mask: u32) -> &mut Self {
        put(&mut self.sticky, at, &mask.to_le_bytes());
        self
    }

    /// Header of an extended capability (base spec 7.6.3), its link still 0.
    pub fn extended_header(&mut self, at: u16, id: u16, version: u8) -> &mut Self {
        self.value16(at, id).value8(at + 2, version & 0xf)
    }
}

fn put<const N: usize>(array: &mut [u8; SIZE], at: u16, bytes: &[u8; N]) {
    let at = usize::from(at);
    array[at..at + N].copy_from_slice(bytes);
}

pub(super) fn word(bytes: &[u8; SIZE], at: u16) -> u32 {
    let at = usize::from(at & 0xffc);
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
