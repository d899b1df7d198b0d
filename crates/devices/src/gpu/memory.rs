//! The GPU's memory. Bytes never written read as zero and take no space.

/// Allocation granularity in bytes.
const BLOCK: usize = 64 << 10;

pub(super) struct GpuMemory {
    blocks: Vec<Option<Box<[u8]>>>,
}

/// Splits a range into blocks: block, offset in it, offset in the range.
fn pieces(at: u64, length: usize) -> impl Iterator<Item = (usize, usize, core::ops::Range<usize>)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        (done < length).then(|| {
            let here = at as usize + done;
            let (block, inside) = (here / BLOCK, here % BLOCK);
            let piece = done..length.min(done + BLOCK - inside);
            done = piece.end;
            (block, inside, piece)
        })
    })
}

impl GpuMemory {
    pub fn new(bytes: u64) -> Self {
        Self { blocks: vec![None; bytes.div_ceil(BLOCK as u64) as usize] }
    }

    pub fn clear(&mut self) {
        self.blocks.fill(None);
    }

    /// Reads; zeros beyond the end of memory.
    pub fn read(&self, at: u64, into: &mut [u8]) {
        for (block, inside, piece) in pieces(at, into.len()) {
            let into = &mut into[piece];
            match self.blocks.get(block) {
                Some(Some(bytes)) => into.copy_from_slice(&bytes[inside..inside + into.len()]),
                _ => into.fill(0),
            }
        }
    }

    /// Writes; ignored beyond the end of memory.
    pub fn write(&mut self, at: u64, from: &[u8]) {
        for (block, inside, piece) in pieces(at, from.len()) {
            if let Some(block) = self.blocks.get_mut(block) {
                let bytes = block.get_or_insert_with(|| vec![0; BLOCK].into());
                bytes[inside..inside + piece.len()].copy_from_slice(&from[piece]);
            }
        }
    }

    pub fn read_u64(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Copies within the memory.
    pub fn copy(&mut self, to: u64, from: u64, length: u64) {
        let mut bytes = vec![0; length.min(BLOCK as u64) as usize];
        for done in (0..length).step_by(BLOCK) {
            let piece = &mut bytes[..(length - done).min(BLOCK as u64) as usize];
            self.read(from + done, piece);
            self.write(to + done, piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_crosses_blocks_comes_back() {
        let mut memory = GpuMemory::new(4 * BLOCK as u64);
        let bytes: Vec<u8> = (0..2 * BLOCK + 5).map(|n| n as u8).collect();
        memory.write(BLOCK as u64 - 3, &bytes);
        let mut back = vec![1; bytes.len() + 2];
        memory.read(BLOCK as u64 - 4, &mut back);
        assert_eq!((back[0], &back[1..=bytes.len()], back[bytes.len() + 1]), (0, &bytes[..], 0));
        memory.copy(7, BLOCK as u64 - 3, 100);
        memory.read(7, &mut back[..100]);
        assert_eq!(back[..100], bytes[..100]);
        memory.read(1 << 40, &mut back[..3]);
        assert_eq!(back[..3], [0; 3]);
    }
}
