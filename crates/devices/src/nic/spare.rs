//! Recycled buffers, so that in steady state a frame costs no allocation.

/// Buffers of frames that have left.
#[derive(Default)]
pub struct Spare(Vec<Vec<u8>>);

impl Spare {
    /// Copies `bytes`, into a recycled buffer if there is one.
    pub fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.0.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        copy
    }

    /// Recycles a buffer.
    pub fn put(&mut self, buffer: Vec<u8>) {
        self.0.push(buffer);
    }
}
