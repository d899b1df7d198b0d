//! Reset values and write masks of a configuration space.

/// Reset values and write masks of a function's registers. Each vector extends only as far as it was set and is zero
/// beyond, since most functions use some hundred of the 4 KiB.
#[derive(Clone, Default)]
pub(super) struct Image {
    /// Reset values.
    pub value: Vec<u8>,
    /// RW: writable bits.
    pub rw: Vec<u8>,
    /// RW1C: cleared by writing 1.
    pub rw1c: Vec<u8>,
    /// Reads as 0; writing 1 triggers an action.
    pub trigger: Vec<u8>,
    /// Sticky: changed only by a fundamental reset.
    pub sticky: Vec<u8>,
}

impl Image {
    /// All registers after reset, as far as there are any.
    pub fn all(&self) -> Vec<u8> {
        let masks = [&self.rw, &self.rw1c, &self.trigger, &self.sticky];
        let len = masks.into_iter().map(Vec::len).fold(self.value.len(), usize::max);
        let mut all = Vec::with_capacity(len);
        all.extend_from_slice(&self.value);
        all.resize(len, 0);
        all
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

    /// Writes the header of an extended capability (base spec 7.6.3), with a link of 0.
    pub fn extended_header(&mut self, at: u16, id: u16, version: u8) -> &mut Self {
        self.value16(at, id).value8(at + 2, version & 0xf)
    }
}

/// Writes registers, with zeros up to them if there were none.
pub(super) fn put<const N: usize>(registers: &mut Vec<u8>, at: u16, bytes: &[u8; N]) {
    let at = usize::from(at);
    if registers.len() < at + N {
        registers.resize((at + N).next_multiple_of(4), 0);
    }
    registers[at..at + N].copy_from_slice(bytes);
}

/// The doubleword that contains `at`; 0 beyond the end.
pub(super) fn word(registers: &[u8], at: u16) -> u32 {
    let at = usize::from(at & 0xffc);
    registers.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&bytes| u32::from_le_bytes(bytes))
}
