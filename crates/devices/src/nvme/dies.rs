//! Timing of the media: channels, the dies behind them, and the housekeeping of flash.
//!
//! A die reads its array into a register, whose content then waits for the channel while the array continues. A channel
//! transfers whatever is ready in the first gap available; it does not wait for dies that were asked earlier.

use std::collections::VecDeque;

use engine::{Busy, Rng};
use platform::device::{Stage, StageKind};
use units::{Bytes, Duration, Time};

use super::flash::{Chores, Translation};
use super::params::MediaTiming;
use super::unmapped::Unmapped;

/// A channel: its reserved intervals, sorted and disjoint.
#[derive(Default)]
struct FlashChannel {
    taken: VecDeque<(Time, Time)>,
    busy: Busy,
}

impl FlashChannel {
    /// Reserves `length` in the first gap after `ready`. Returns its end.
    fn take(&mut self, now: Time, ready: Time, length: Duration) -> Time {
        self.busy.add(now, length);
        while self.taken.front().is_some_and(|&(_, end)| end <= now) {
            self.taken.pop_front();
        }
        let mut start = ready.max(now);
        let mut place = self.taken.len();
        for (n, &(begin, end)) in self.taken.iter().enumerate() {
            if start + length <= begin {
                place = n;
                break;
            }
            start = start.max(end);
        }
        let end = start + length;
        match place.checked_sub(1).and_then(|before| self.taken.get_mut(before)) {
            // Merges adjacent intervals.
            Some(before) if before.1 == start => before.1 = end,
            _ => self.taken.insert(place, (start, end)),
        }
        end
    }
}

/// State of a die.
#[derive(Default)]
struct Die {
    /// When the array is free.
    array: Time,
    /// When the register is free.
    register: Time,
    /// Busy time of the array.
    busy: Busy,
    /// Flash translation layer, for a drive that has been filled.
    flash: Option<Translation>,
}

/// All dies with their channels.
pub struct Dies {
    timing: MediaTiming,
    channels: Vec<FlashChannel>,
    dies: Vec<Die>,
    /// Units deallocated by the host, for flash.
    unmapped: Unmapped,
    rng: Rng,
}

impl Dies {
    /// Idle dies for `capacity` bytes.
    pub fn new(timing: MediaTiming, capacity: u64, rng: Rng) -> Self {
        let channels = usize::from(timing.channels.max(1));
        let dies = channels * usize::from(timing.dies.max(1));
        let units = capacity / timing.unit.get().max(1) / dies as u64;
        let flash = |_| {
            let flash = timing.flash.map(|flash| Translation::worn_in(&flash, units));
            Die { flash, ..Die::default() }
        };
        Self {
            timing,
            channels: (0..channels).map(|_| FlashChannel::default()).collect(),
            dies: (0..dies).map(flash).collect(),
            unmapped: Unmapped::default(),
            rng,
        }
    }

    /// Splits an access into units: number, channel, die and bytes of each.
    fn units(&self, at: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize, u64)> + use<> {
        let unit = self.timing.unit.get().max(1);
        let (channels, dies) = (self.channels.len() as u64, (self.dies.len() / self.channels.len()) as u64);
        let mut done = 0;
        std::iter::from_fn(move || {
            let number = (at + done) / unit;
            let here = (unit - (at + done) % unit).min(length - done);
            done += here;
            let channel = number % channels;
            let die = channel * dies + number / channels % dies;
            (here > 0).then_some((number, channel as usize, die as usize, here))
        })
    }

    /// Reserves a read. Returns for each piece the number of bytes up to its end, and when it arrives.
    pub fn read(&mut self, now: Time, at: u64, length: u64) -> Vec<(u64, Time)> {
        let mut ready = Vec::new();
        let (mut reached, mut last) = (0, now);
        for (_, channel, die, bytes) in self.units(at, length) {
            let die = &mut self.dies[die];
            let fetched = (die.array.max(now) + self.timing.read).max(die.register);
            let carried = self.timing.channel.time_for(Bytes::new(bytes));
            let end = self.channels[channel].take(now, fetched, carried);
            (die.array, die.register) = (fetched, end);
            die.busy.add(now, self.timing.read);
            reached += bytes;
            last = last.max(end);
            ready.push((reached, last));
        }
        ready
    }

    /// Reserves a write. Returns when all of it is stored.
    pub fn write(&mut self, now: Time, at: u64, length: u64) -> Time {
        let mut due = now;
        for (number, channel, die, bytes) in self.units(at, length) {
            let carried = self.timing.channel_write.time_for(Bytes::new(bytes));
            let there = self.channels[channel].take(now, now, carried);
            let die = &mut self.dies[die];
            die.array = die.array.max(there) + self.timing.program;
            die.busy.add(now, self.timing.program);
            due = due.max(die.array);
            let Some(flash) = &mut die.flash else { continue };
            let fresh = self.unmapped.remove(number);
            let Chores { moves, erase } = flash.write(number, fresh, &mut self.rng);
            // Moved pages pass through the controller and back, for error correction.
            let unit = self.timing.unit;
            let carried = self.timing.channel.time_for(unit) + self.timing.channel_write.time_for(unit);
            for _ in 0..moves {
                self.channels[channel].take(now, now, carried);
            }
            let chores = (self.timing.read + self.timing.program) * u64::from(moves) + erase;
            die.array += chores;
            die.busy.add(now, chores);
        }
        due
    }

    /// The host deallocates these bytes. Partial units are kept.
    pub fn deallocate(&mut self, at: u64, length: u64) {
        if self.timing.flash.is_none() {
            return;
        }
        let unit = self.timing.unit.get().max(1);
        let (start, end) = (at.div_ceil(unit), (at + length) / unit);
        let (channels, all) = (self.channels.len() as u64, self.dies.len() as u64);
        let Self { dies, rng, unmapped, .. } = self;
        unmapped.add(start, end, |start, end| {
            // Units are striped over all dies, so each has `n` or `n + 1` of them.
            for turn in 0..all.min(end - start) {
                let number = start + turn;
                let die = number % channels * (all / channels) + number / channels % (all / channels);
                let count = (end - start - turn).div_ceil(all);
                if let Some(flash) = &mut dies[die as usize].flash {
                    flash.deallocate(start..end, count, rng);
                }
            }
        });
    }

    /// Channels and dies, with their busy times up to `now`.
    pub fn stages(&self, now: Time) -> [Stage; 2] {
        let stage = |name: &str, of: usize, busy| Stage {
            name: name.to_owned(),
            kind: StageKind::Server,
            of: of as u64,
            busy,
        };
        [
            stage(
                "channels",
                self.channels.len(),
                self.channels.iter().map(|channel| channel.busy.until(now)).sum(),
            ),
            stage("dies", self.dies.len(), self.dies.iter().map(|die| die.busy.until(now)).sum()),
        ]
    }

    /// Cancels everything in progress.
    pub fn stop(&mut self, now: Time) {
        for channel in &mut self.channels {
            channel.taken.clear();
            channel.busy.cancel(now);
        }
        for die in &mut self.dies {
            (die.array, die.register) = (now, now);
            die.busy.cancel(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_carries_what_is_ready_first() {
        let at = |us: u64| Time::ZERO + Duration::from_us(us);
        let (mut channel, long) = (FlashChannel::default(), Duration::from_us(10));
        assert_eq!(channel.take(at(0), at(100), long), at(110));
        assert_eq!(channel.take(at(0), at(5), long), at(15), "before the one that was asked earlier");
        assert_eq!(channel.take(at(0), at(95), long), at(120), "the gap is too small");
        assert_eq!(channel.take(at(0), at(10), long), at(25));
        assert_eq!(channel.take(at(16), at(16), long), at(35));
    }

    /// What is asked of dies at once keeps them busy for long; when the power is lost, what has not happened does not count.
    #[test]
    fn dies_are_busy_for_as_long_as_they_work() {
        let media = MediaTiming {
            unit: Bytes::new(4096),
            channels: 1,
            dies: 2,
            program: Duration::from_us(200),
            flash: None,
            ..super::super::params::NvmeParams::example().media
        };
        let at = |us: u64| Time::ZERO + Duration::from_us(us);
        let mut dies = Dies::new(media, 1 << 20, engine::Seed::new(1).component("test"));
        (0..8).for_each(|unit| _ = dies.write(at(0), unit * 4096, 4096));
        let busy = |dies: &Dies, us| dies.stages(at(us))[1].busy;
        assert_eq!(busy(&dies, 100), Duration::from_us(200), "two dies");
        dies.stop(at(250));
        assert_eq!(busy(&dies, 10_000), Duration::from_us(500));
    }
}
