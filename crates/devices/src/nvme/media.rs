//! Storage of the blocks: memory, or a sparse file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use rustix::fs::{FallocateFlags, fallocate};

/// Persistent bytes. Bytes that were never written read as zero.
pub trait Media {
    /// Reads from byte `at` into `into`.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    fn read(&mut self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes `from` at byte `at`.
    ///
    /// # Errors
    /// If the bytes cannot be written.
    fn write(&mut self, at: u64, from: &[u8]) -> io::Result<()>;

    /// Zeroes `length` bytes from `at` on.
    ///
    /// # Errors
    /// If that fails.
    fn discard(&mut self, at: u64, length: u64) -> io::Result<()>;

    /// Returns once all writes would survive a crash of the machine that runs the simulator.
    ///
    /// # Errors
    /// If they would not.
    fn sync(&mut self) -> io::Result<()>;
}

const PAGE: u64 = 4096;
/// Granularity in bytes at which written parts of a file are tracked.
const PIECE: u64 = 1 << 20;

/// Media in memory; only pages that were written take space.
#[derive(Default)]
pub struct MemoryMedia {
    pages: BTreeMap<u64, Box<[u8; PAGE as usize]>>,
}

/// Splits `length` bytes from `at` on into pages: page, offset in it, offset in the data, length.
fn pieces(at: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (page, offset) = ((at + done) / PAGE, (at + done) % PAGE);
        let here = (PAGE - offset).min(length - done);
        let piece = (page, offset as usize, done as usize, here as usize);
        done += here;
        (here > 0).then_some(piece)
    })
}

impl Media for MemoryMedia {
    fn read(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        for (page, offset, place, length) in pieces(at, into.len() as u64) {
            let into = &mut into[place..place + length];
            match self.pages.get(&page) {
                Some(bytes) => into.copy_from_slice(&bytes[offset..offset + length]),
                None => into.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> io::Result<()> {
        for (page, offset, place, length) in pieces(at, from.len() as u64) {
            let bytes = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE as usize]));
            bytes[offset..offset + length].copy_from_slice(&from[place..place + length]);
        }
        Ok(())
    }

    fn discard(&mut self, at: u64, length: u64) -> io::Result<()> {
        for (page, offset, _, length) in pieces(at, length) {
            if length == PAGE as usize {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                bytes[offset..offset + length].fill(0);
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Media in a file, which is sparse where nothing was written (if the file system supports it).
pub struct FileMedia {
    file: File,
    /// Whether the file can be found after a crash, so that syncing it makes sense.
    durable: bool,
    /// For a file that was empty: the pieces of [`PIECE`] bytes that have been written.
    written: Option<BTreeSet<u64>>,
}

impl FileMedia {
    /// Media in `file`, opened for reading and writing, which has the blocks from its first byte on. It `is_new` if none of
    /// them was ever written.
    pub fn new(file: File, is_new: bool) -> Self {
        Self { file, durable: true, written: is_new.then(BTreeSet::new) }
    }

    /// Media of `capacity` bytes in a temporary file, which is never synced to disk.
    ///
    /// # Errors
    /// If the file cannot have that length.
    pub fn temporary(file: File, capacity: u64) -> io::Result<Self> {
        file.set_len(capacity)?;
        Ok(Self { durable: false, ..Self::new(file, true) })
    }
}

impl Media for FileMedia {
    fn read(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(at))?;
        self.file.read_exact(into)
    }

    fn write(&mut self, at: u64, from: &[u8]) -> io::Result<()> {
        if let Some(written) = &mut self.written {
            written.extend(at / PIECE..(at + from.len() as u64).div_ceil(PIECE));
        }
        self.file.seek(SeekFrom::Start(at))?;
        self.file.write_all(from)
    }

    /// Punches holes if the file system can; otherwise writes zeros, but only over nonzero data.
    fn discard(&mut self, at: u64, length: u64) -> io::Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if length > 0 && fallocate(&self.file, hole, at, length).is_ok() {
            return Ok(());
        }
        let end = at + length;
        let Some(written) = &self.written else { return self.zero(at, length) };
        // Parts never written are skipped, so that discarding a whole drive is fast.
        let pieces: Vec<u64> = written.range(at / PIECE..end.div_ceil(PIECE)).copied().collect();
        pieces.into_iter().try_for_each(|piece| {
            let (from, to) = (at.max(piece * PIECE), end.min((piece + 1) * PIECE));
            self.zero(from, to - from)
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.durable { self.file.sync_data() } else { Ok(()) }
    }
}

impl FileMedia {
    fn zero(&mut self, at: u64, length: u64) -> io::Result<()> {
        let mut page = [0; PAGE as usize];
        for (number, offset, _, length) in pieces(at, length) {
            let at = number * PAGE + offset as u64;
            self.read(at, &mut page[..length])?;
            if page[..length].iter().any(|&byte| byte != 0) {
                self.write(at, &[0; PAGE as usize][..length])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_is_discarded_takes_no_room() {
        let path = std::env::temp_dir().join(format!("nearfar-media-{}", std::process::id()));
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let file = open();
        file.set_len(8 << 20).unwrap();
        let mut media = FileMedia::new(file, true);
        media.write(5_000, &vec![7; 1 << 20]).unwrap();
        media.discard(6_000, 1 << 20).unwrap();
        let mut bytes = vec![1; 4_000];
        media.read(4_000, &mut bytes).unwrap();
        let room = std::fs::metadata(&path).map(|file| (file.len(), file.blocks() * 512)).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(
            bytes[..1_000].iter().chain(&bytes[2_000..]).all(|&b| b == 0)
                && bytes[1_000..2_000].iter().all(|&b| b == 7)
        );
        assert_eq!(room.0, 8 << 20);
        // If the file system cannot punch holes, the space stays allocated.
        assert!(room.1 <= (1 << 20) + 65_536, "{} bytes", room.1);
    }
}
