//! The media with its staged writes, and the time that accesses take.

use std::collections::VecDeque;
use std::io;

use engine::{Rng, Seed, WaitTime};
use platform::device::{Stage, StageKind};
use units::Time;

use super::dies::Dies;
use super::media::Media;
use super::params::{MediaTiming, NvmeParams};

/// A write that is not on the media yet.
struct Staged {
    at: u64,
    data: Vec<u8>,
    /// When it will be on the media. Never before older writes, so that a newer write always wins.
    due: Time,
}

/// Media and staged writes.
pub struct Store {
    media: Box<dyn Media>,
    timing: MediaTiming,
    staged: VecDeque<Staged>,
    /// Bytes of all staged writes.
    held: u64,
    last_due: Time,
    /// How long writes have waited for room.
    waited: WaitTime,
    dies: Dies,
    atomic: u64,
    volatile: bool,
    rng: Rng,
}

impl Store {
    /// The store of a drive on `media`.
    pub fn new(params: &NvmeParams, media: Box<dyn Media>) -> Self {
        let timing = params.media;
        Self {
            media,
            timing,
            staged: VecDeque::new(),
            held: 0,
            last_due: Time::ZERO,
            waited: WaitTime::default(),
            dies: Dies::new(
                timing,
                params.namespaces.iter().map(|bytes| bytes.get()).sum(),
                Seed::new(params.seed).component("nvme/flash"),
            ),
            atomic: (u64::from(params.atomic_blocks) + 1) << params.block_shift,
            volatile: params.volatile_buffer,
            rng: Seed::new(params.seed).component("nvme/power-cut"),
        }
    }

    /// Stages of the media, with their busy times up to `now`, and the buffer before them.
    pub fn stages(&self, now: Time) -> [Stage; 3] {
        let [channels, dies] = self.dies.stages(now);
        let (name, busy) = ("write-buffer".to_owned(), self.waited.until(now));
        [channels, dies, Stage { name, kind: StageKind::Buffer, of: 1, busy }]
    }

    /// Reserves a read. Returns for each piece the number of bytes up to its end, and when it arrives.
    pub fn schedule_read(&mut self, now: Time, at: u64, length: u64) -> Vec<(u64, Time)> {
        self.dies.read(now, at, length)
    }

    /// Stages a write. Returns when it is on the media. Earlier writes that are due move there, so that no more is kept than
    /// the buffer of the drive holds.
    ///
    /// # Errors
    /// If the media fail.
    pub fn stage(&mut self, now: Time, at: u64, data: Vec<u8>) -> io::Result<Time> {
        self.settle(now)?;
        let due = self.dies.write(now, at, data.len() as u64).max(self.last_due);
        self.last_due = due;
        self.held += data.len() as u64;
        self.staged.push_back(Staged { at, data, due });
        Ok(due)
    }

    /// When the write buffer has room for `length` bytes, for which a write waits.
    pub fn room_at(&mut self, now: Time, length: u64) -> Time {
        let capacity = self.timing.write_buffer.get();
        let (mut held, mut at) = (self.held, now);
        // Sorted by due time.
        for staged in &self.staged {
            if staged.due > now {
                if held + length <= capacity {
                    break;
                }
                at = staged.due;
            }
            held -= staged.data.len() as u64;
        }
        self.waited.pass(now, at);
        at
    }

    /// Whether writes may be acknowledged before they are on the media.
    pub fn has_buffer(&self) -> bool {
        self.timing.write_buffer.get() > 0
    }

    /// When everything staged so far is on the media.
    pub fn drained_at(&self, now: Time) -> Time {
        self.staged.back().map_or(now, |staged| staged.due.max(now))
    }

    /// Moves writes that are due to the media.
    ///
    /// # Errors
    /// If the media fail.
    pub fn settle(&mut self, now: Time) -> io::Result<()> {
        while self.staged.front().is_some_and(|staged| staged.due <= now) {
            if let Some(staged) = self.staged.pop_front() {
                self.held -= staged.data.len() as u64;
                self.media.write(staged.at, &staged.data)?;
            }
        }
        Ok(())
    }

    /// Reads the data that a host would see.
    ///
    /// # Errors
    /// If the media fail.
    pub fn read(&mut self, now: Time, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.settle(now)?;
        self.media.read(at, into)?;
        let end = at + into.len() as u64;
        for staged in &self.staged {
            let (start, stop) = (staged.at.max(at), (staged.at + staged.data.len() as u64).min(end));
            if start < stop {
                let from = &staged.data[(start - staged.at) as usize..(stop - staged.at) as usize];
                into[(start - at) as usize..(stop - at) as usize].copy_from_slice(from);
            }
        }
        Ok(())
    }

    /// Zeroes and deallocates blocks; durable with the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// If the media fail.
    pub fn discard(&mut self, at: u64, length: u64) -> io::Result<()> {
        self.dies.deallocate(at, length);
        self.zero(at, length)
    }

    /// Zeroes blocks; durable with the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// If the media fail.
    pub fn zero(&mut self, at: u64, length: u64) -> io::Result<()> {
        // Staged writes must not overwrite the range later: zero their part in it, too.
        let end = at + length;
        for staged in &mut self.staged {
            let (start, stop) = (staged.at.max(at), (staged.at + staged.data.len() as u64).min(end));
            if start < stop {
                staged.data[(start - staged.at) as usize..(stop - staged.at) as usize].fill(0);
            }
        }
        self.media.discard(at, length)
    }

    /// Makes what is on the media durable.
    ///
    /// # Errors
    /// If the media fail.
    pub fn sync(&mut self, now: Time) -> io::Result<()> {
        self.settle(now)?;
        self.media.sync()
    }

    /// Power is lost: any part of each staged write may have reached the media, but atomic units are all or nothing.
    ///
    /// # Errors
    /// If the media fail.
    pub fn power_cut(&mut self, now: Time) -> io::Result<()> {
        self.settle(now)?;
        self.held = 0;
        for staged in std::mem::take(&mut self.staged) {
            let piece = if staged.data.len() as u64 <= self.atomic { staged.data.len() } else { 512 };
            for (n, part) in staged.data.chunks(piece.max(1)).enumerate() {
                if !self.volatile || self.rng.bool() {
                    self.media.write(staged.at + (n * piece) as u64, part)?;
                }
            }
        }
        self.dies.stop(now);
        self.waited.cancel(now);
        self.last_due = now;
        self.media.sync()
    }
}

/// The end of a simulation is not a power cut: acknowledged writes reach the media.
impl Drop for Store {
    fn drop(&mut self) {
        // An error cannot be reported from here.
        let _ = self.settle(Time::NEVER).and_then(|()| self.media.sync());
    }
}

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::super::media::MemoryMedia;
    use super::*;

    /// Writes that come more slowly than the media take them: nothing ever waits for room.
    #[test]
    fn what_is_on_the_media_is_not_kept() {
        let mut store = Store::new(&NvmeParams::example(), Box::new(MemoryMedia::default()));
        let (mut now, mut most) = (Time::ZERO, 0);
        for number in 0..1_000u64 {
            now =
                store.stage(now, number % 4 * 4096, vec![number as u8; 4096]).unwrap() + Duration::from_us(1);
            most = most.max(store.staged.len());
        }
        assert_eq!((most, store.held), (1, 4096));
        let mut byte = [0];
        store.read(now, 3 * 4096, &mut byte).unwrap();
        assert_eq!(byte, [999u64 as u8]);
    }
}
