//! The client's memory, as a function may access it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::request::VfioRefusal;

/// Largest number of mappings of a function, as of VFIO in the kernel; the client is told.
pub const MOST_MAPS: usize = 65_535;

/// A range of the client's memory.
#[derive(Debug)]
pub struct DmaMap {
    /// Bytes.
    pub size: u64,
    /// Start in the file.
    pub offset: u64,
    /// What holds it; `None` for memory that is no file, such as another device's BAR.
    pub file: Option<File>,
    /// The function may read it.
    pub reads: bool,
    /// The function may write it.
    pub writes: bool,
}

/// Ranges that do not overlap, by the addresses that the function uses.
#[derive(Default, Debug)]
pub struct ClientMemory(BTreeMap<u64, DmaMap>);

impl ClientMemory {
    /// Maps a range.
    ///
    /// # Errors
    /// If part of it is mapped, or there are too many.
    pub fn map(&mut self, address: u64, map: DmaMap) -> Result<(), VfioRefusal> {
        let last = address.saturating_add(map.size - 1);
        let overlaps = self.0.range(..=last).next_back().is_some_and(|(at, before)| {
            // Of the ranges that begin before the end of this one, the last ends last.
            at.saturating_add(before.size - 1) >= address
        });
        if overlaps {
            return Err(VfioRefusal::Mapped);
        }
        if self.0.len() >= MOST_MAPS {
            return Err(VfioRefusal::Full);
        }
        self.0.insert(address, map);
        Ok(())
    }

    /// Unmaps all ranges within a range.
    ///
    /// # Errors
    /// If a range is partly outside: nothing is unmapped then.
    pub fn unmap(&mut self, address: u64, size: u64) -> Result<(), VfioRefusal> {
        let last = address.saturating_add(size - 1);
        let within = self.0.range(address..=last);
        let leaves = within.clone().any(|(at, map)| at.saturating_add(map.size - 1) > last);
        let enters = self.0.range(..address).next_back();
        if leaves || enters.is_some_and(|(at, map)| at.saturating_add(map.size - 1) >= address) {
            return Err(VfioRefusal::Invalid);
        }
        let within: Vec<u64> = within.map(|(&at, _)| at).collect();
        within.iter().for_each(|at| drop(self.0.remove(at)));
        Ok(())
    }

    /// The file of the largest range that has one; `None` if nothing is mapped, or no range is of a file.
    pub fn largest_file(&self) -> Option<&File> {
        let files = self.0.values().filter_map(|map| Some((map.size, map.file.as_ref()?)));
        files.max_by_key(|(size, _)| *size).map(|(_, file)| file)
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Unmaps everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The pieces of a range with their mappings: offset in the file, first byte of the range, bytes. Less than the range if
    /// part of it is not mapped.
    fn pieces(&self, address: u64, length: usize) -> impl Iterator<Item = (&DmaMap, u64, usize, usize)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = address.checked_add(done as u64).filter(|_| done < length)?;
            let (start, map) = self.0.range(..=at).next_back()?;
            let inside = at - start;
            let left = map.size.checked_sub(inside).filter(|&left| left > 0)?;
            let take = usize::try_from(left).map_or(length - done, |left| left.min(length - done));
            done += take;
            Some((map, map.offset + inside, done - take, take))
        })
    }

    /// Whether the function may access all of a range, and the range is of files.
    pub fn allows(&self, address: u64, length: usize, writes: bool) -> bool {
        let pieces = self.pieces(address, length);
        let allowed = pieces.take_while(|(map, ..)| {
            let may = if writes { map.writes } else { map.reads };
            may && map.file.is_some()
        });
        allowed.map(|(.., take)| take).sum::<usize>() == length
    }

    /// Where an address is in its file, if it is mapped.
    pub fn place(&self, address: u64) -> Option<u64> {
        self.pieces(address, 1).next().map(|(_, offset, ..)| offset)
    }

    /// Reads a range. Returns whether all of it could be read.
    pub fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let length = into.len();
        self.allows(address, length, false)
            && self.pieces(address, length).all(|(map, offset, first, take)| {
                let file = map.file.as_ref();
                file.is_some_and(|file| file.read_exact_at(&mut into[first..first + take], offset).is_ok())
            })
    }

    /// Writes a range. Returns whether all of it could be written.
    pub fn write(&self, address: u64, from: &[u8]) -> bool {
        self.allows(address, from.len(), true)
            && self.pieces(address, from.len()).all(|(map, offset, first, take)| {
                let file = map.file.as_ref();
                file.is_some_and(|file| file.write_all_at(&from[first..first + take], offset).is_ok())
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(size: u64) -> DmaMap {
        DmaMap { size, offset: 0, file: None, reads: true, writes: true }
    }

    #[test]
    fn ranges_do_not_overlap() {
        let mut memory = ClientMemory::default();
        assert_eq!(memory.map(0x1000, map(0x1000)), Ok(()));
        assert_eq!(memory.map(0x1fff, map(1)), Err(VfioRefusal::Mapped));
        assert_eq!(memory.map(0, map(0x1001)), Err(VfioRefusal::Mapped));
        assert_eq!(memory.map(0, map(u64::MAX)), Err(VfioRefusal::Mapped));
        assert_eq!(memory.map(0x2000, map(u64::MAX - 0x1fff)), Ok(()), "up to the last address");
        assert_eq!(memory.unmap(0, 0x1800), Err(VfioRefusal::Invalid), "a range is not split");
        assert_eq!(memory.unmap(0x1800, 0x1000), Err(VfioRefusal::Invalid));
        assert_eq!(memory.unmap(0, u64::MAX), Err(VfioRefusal::Invalid), "the last address is left out");
        assert_eq!(memory.unmap(0, 0x2000), Ok(()));
        assert_eq!(memory.map(0x1000, map(0x1000)), Ok(()));
    }

    #[test]
    fn what_is_no_file_cannot_be_accessed() {
        let mut memory = ClientMemory::default();
        memory.map(0x1000, map(0x1000)).unwrap();
        assert!(!memory.read(0x1000, &mut [0; 4]) && !memory.write(0x1000, &[0; 4]));
        assert_eq!((memory.place(0x1004), memory.place(0x2000)), (Some(4), None));
    }
}
