//! DRAM of one node: channels, banks, refresh, row buffers, write queues.

use super::LINE;
use super::bank::{Bank, RowTimes};
use super::params::DramParams;
use super::turns::Turns;
use engine::Rng;
use units::hash::spread;
use units::{Bytes, Duration, Time};

/// DRAM of one node.
#[derive(Clone, Debug)]
pub(super) struct Dram {
    params: DramParams,
    /// Channel occupancy of a line.
    service: Duration,
    /// Channel occupancy of a write, including its share of the bus turnarounds of its batch.
    write_slot: Duration,
    /// How far ahead a batch may be scheduled before a write has to wait.
    write_backlog: Duration,
    /// Consecutive lines on a channel before the next channel follows.
    interleave: u64,
    channels: Vec<Turns>,
    /// By channel: the rank that has been read last.
    last_read: Vec<usize>,
    writes: Vec<WriteBatch>,
    /// Banks of all ranks.
    banks: Vec<Bank>,
    times: RowTimes,
    /// Distance in lines between different rows of a bank.
    row: u64,
    /// By rank of each channel: the refresh near the last access.
    refreshes: Vec<Refresh>,
    /// Draws an access's latency from the spread.
    rng: Rng,
}

/// Writes to a channel. They wait for a full batch, since each bus turnaround between reads and writes costs time.
#[derive(Clone, Debug)]
struct WriteBatch {
    waiting: u16,
    /// Rows of the waiting writes, each once, with their banks.
    rows: Vec<(usize, u64)>,
    /// Start of the last batch.
    begins: Time,
    /// How long that batch waits for the channel.
    waits: Duration,
}

impl WriteBatch {
    fn new(batch: u16) -> Self {
        Self { waiting: 0, rows: Vec::with_capacity(batch.into()), begins: Time::ZERO, waits: Duration::ZERO }
    }
}

/// Refresh of a rank, in picoseconds since time zero.
#[derive(Clone, Copy, Debug)]
struct Refresh {
    /// When it is due.
    due: u64,
    /// When it starts.
    begins: u64,
    /// Identifies the rank, since ranks postpone refreshes independently.
    rank: u64,
}

/// Inverse of the fraction of an interval by which a refresh may be postponed. Controllers may postpone several whole
/// ones (JEDEC JESD79-4, 4.26: up to eight) to refresh when there is least to do. An eighth is assumed: it is enough to
/// keep periodic programs from running in step with the refreshes.
const PUT_OFF: u64 = 8;

impl Refresh {
    /// The `number`th refresh of `rank`, due at `due`.
    fn new(due: u64, number: u64, interval: u64, rank: u64) -> Self {
        let mixed = spread((number ^ rank << 32).wrapping_add(1));
        let put_off = (interval / PUT_OFF).max(1);
        Self { due, begins: due + (mixed ^ mixed >> 29) % put_off, rank }
    }
}

/// Parts of an address as decoded by the DRAM controller.
struct DramPlace {
    channel: usize,
    /// Index of the rank among all ranks of the node.
    rank: usize,
    bank: usize,
}

impl Dram {
    pub(super) fn new(params: &DramParams, rng: Rng) -> Self {
        let service = params.channel_bandwidth.time_for(Bytes::new(LINE));
        let units = usize::from(params.channels) * usize::from(params.ranks);
        let interval = params.refresh.map_or(0, |r| r.interval.as_ps());
        let staggered = params.refresh.is_some_and(|r| r.staggered);
        Self {
            params: *params,
            service,
            write_slot: service + params.write_turnaround / u64::from(params.write_batch),
            write_backlog: service * u64::from(params.write_queue),
            interleave: params.interleave.get() / LINE,
            channels: vec![Turns::default(); usize::from(params.channels)],
            last_read: vec![0; usize::from(params.channels)],
            writes: (0..params.channels).map(|_| WriteBatch::new(params.write_batch)).collect(),
            banks: (0..units * usize::from(params.banks)).map(|_| Bank::default()).collect(),
            times: RowTimes {
                cycle: params.row_cycle,
                activate: params.row_buffer.map_or(Duration::ZERO, |rows| rows.activate),
                precharge: params.row_buffer.map_or(Duration::ZERO, |rows| rows.precharge),
                idle: params.row_buffer.map_or(Duration::ZERO, |rows| rows.idle),
            },
            // A row of a bank holds lines of one bank group of each channel.
            row: params
                .row_buffer
                .map_or(1, |rows| rows.row.get() / LINE * u64::from(params.channels) * BANK_GROUPS),
            refreshes: (0..units as u64)
                .map(|unit| if staggered { (interval * unit / units as u64, unit) } else { (0, 0) })
                .map(|(due, rank)| Refresh::new(due, 0, interval, rank))
                .collect(),
            rng,
        }
    }

    /// Reads a line. Returns when it is at the LLC.
    #[inline]
    pub(super) fn read(&mut self, at: Time, line: u64) -> Time {
        let place = self.place(line);
        let at = self.after_refresh(at, place.rank);
        let ready = self.banks[place.bank].access(at, line / self.row, &self.times);
        let last_read = std::mem::replace(&mut self.last_read[place.channel], place.rank);
        let switch = if last_read == place.rank { Duration::ZERO } else { self.params.rank_switch };
        let begun = self.channels[place.channel].reserve(ready, self.service + switch);
        let (latency, width) =
            (self.params.access.saturating_sub(self.times.activate), self.params.access_spread);
        begun + (latency + self.part_of(width)).saturating_sub(width / 2)
    }

    /// How long its channels were busy up to `now`, all together.
    pub(super) fn busy(&self, now: Time) -> Duration {
        self.channels.iter().map(|channel| channel.busy(now)).sum()
    }

    /// Discards state that only matters before `now`.
    pub(super) fn pass(&mut self, now: Time) {
        self.channels.iter_mut().for_each(|channel| channel.pass(now));
        self.banks.iter_mut().for_each(|bank| bank.pass(now));
    }

    /// A random part of `width`, from zero to all of it.
    fn part_of(&mut self, width: Duration) -> Duration {
        if width.is_zero() { width } else { Duration::from_ps(self.rng.below(width.as_ps())) }
    }

    /// Writes a line. Returns when the channel's queue has accepted it.
    #[inline]
    pub(super) fn write(&mut self, at: Time, line: u64) -> Time {
        let place = self.place(line);
        // The queue absorbs refreshes; only lack of bandwidth fills it for long.
        let writes = &mut self.writes[place.channel];
        writes.waiting += 1;
        let row = (place.bank, line / self.row);
        if !writes.rows.contains(&row) {
            writes.rows.push(row);
        }
        if writes.waiting == self.params.write_batch {
            writes.waiting = 0;
            let ends =
                self.channels[place.channel].reserve_parts(at, self.write_slot, self.params.write_batch);
            writes.begins =
                at + ends.since(at).saturating_sub(self.write_slot * u64::from(self.params.write_batch));
            writes.waits = writes.begins.since(at);
            for (bank, row) in writes.rows.drain(..) {
                self.banks[bank].access(writes.begins, row, &self.times);
            }
        }
        // A batch that is late because a core is ahead of the clock delays nobody now.
        at + writes.begins.since(at).min(writes.waits).saturating_sub(self.write_backlog)
    }

    /// Channel, rank and bank of a line. Upper address bits are folded in, as controllers do, so that power-of-two
    /// strides use all channels.
    #[inline]
    fn place(&self, line: u64) -> DramPlace {
        let block = if self.interleave.is_power_of_two() {
            line >> self.interleave.trailing_zeros()
        } else {
            line / self.interleave
        };
        let (channels, ranks) = (u64::from(self.params.channels), u64::from(self.params.ranks));
        let channel = fold(block) % channels as u32;
        let rank = fold(line >> 6) % ranks as u32;
        let rank = (channel * ranks as u32 + rank) as usize;
        let banks = usize::from(self.params.banks);
        DramPlace {
            channel: channel as usize,
            rank,
            bank: rank * banks + bank(line, self.params.banks) as usize,
        }
    }

    /// `at`, or the end of the refresh of `rank` in progress at `at`.
    #[inline]
    fn after_refresh(&mut self, at: Time, rank: usize) -> Time {
        let Some(refresh) = self.params.refresh else { return at };
        let (interval, now) = (refresh.interval.as_ps(), at.as_ps());
        let near = &mut self.refreshes[rank];
        if now.wrapping_sub(near.due) >= interval {
            // Not the interval of the last access; there is no refresh before the first one is due.
            let Some(since_first) = now.checked_sub(near.due % interval) else { return at };
            *near = Refresh::new(now - since_first % interval, since_first / interval, interval, near.rank);
        }
        match now.checked_sub(near.begins) {
            Some(phase) => at + refresh.duration.saturating_sub(Duration::from_ps(phase)),
            None => at,
        }
    }
}

/// Banks used in turn by consecutive lines of a channel.
const BANK_GROUPS: u64 = 2;

/// Bank of a line within its rank: address bit 6 and those from 19 on, each XORed with a higher one. Measured on
/// Haswell-EP with DDR4 (Pessl et al., "DRAMA", USENIX Security 2016, table 2); other generations are assumed to be
/// similar.
#[inline]
fn bank(line: u64, banks: u8) -> u64 {
    let last = u64::from(banks) - 1;
    ((line & 1 | line >> 13 << 1) ^ line >> 16) & last
}

/// Folds upper bits into lower ones.
#[inline]
fn fold(n: u64) -> u32 {
    (n ^ (n >> 7) ^ (n >> 15) ^ (n >> 23)) as u32
}

#[cfg(test)]
mod tests {
    use super::super::params::{MemoryParams, RowBufferParams};
    use super::*;
    use proptest::prelude::*;

    fn rng() -> engine::Rng {
        engine::Seed::new(1).component("dram")
    }

    fn params() -> DramParams {
        MemoryParams::example().sockets[0].dram
    }

    /// Rows of 8 KiB that close after 4 us.
    fn open_rows() -> Option<RowBufferParams> {
        Some(RowBufferParams {
            row: Bytes::kib(8),
            activate: Duration::from_ns(14),
            precharge: Duration::from_ns(13),
            idle: Duration::from_us(4),
        })
    }

    #[test]
    fn peak_bandwidth_is_reached_and_not_exceeded() {
        let row_buffer = open_rows();
        let mut dram = Dram::new(&DramParams { refresh: None, row_buffer, ..params() }, rng());
        let lines = 40_000;
        let last = (0..lines).map(|line| dram.read(Time::ZERO, line)).max().unwrap();
        let rate = lines as f64 * 64.0 / (last.as_ns_f64() - 56.0);
        assert!((63.0..=64.01).contains(&rate), "{rate} GB/s of 64");
    }

    #[test]
    fn refresh_delays_as_many_reads_as_its_share_of_time() {
        let mut dram = Dram::new(&params(), rng());
        let slow = (0..100_000u64)
            .filter(|i| {
                let at = Time::from_ps(i * 77_777);
                dram.read(at, i * 1_001) - at > Duration::from_ns(75)
            })
            .count();
        // 260 of 7,800 ns are 3.3 %; the last 5 ns of a refresh do not count as slow here.
        assert!((3_000..3_500).contains(&slow), "{slow} of 100,000");
    }

    fn one_bank(row_buffer: Option<RowBufferParams>) -> Dram {
        let one = DramParams { refresh: None, row_buffer, channels: 1, ranks: 1, banks: 1, ..params() };
        Dram::new(&one, rng())
    }

    #[test]
    fn an_open_row_is_faster_and_another_one_slower_until_it_closes() {
        let mut dram = one_bank(open_rows());
        let mut took = |at: u64, line| {
            let at = Time::from_ps(at * 1_000_000);
            dram.read(at, line) - at
        };
        assert_eq!(took(0, 0), Duration::from_ns(70));
        assert_eq!(took(1, 1), Duration::from_ns(56));
        assert_eq!(took(2, 128 * BANK_GROUPS), Duration::from_ns(83), "the bank has another row open");
        assert_eq!(took(7, 0), Duration::from_ns(70), "closed after 4 us");
    }

    #[test]
    fn a_bank_opens_one_row_after_the_other() {
        let mut dram = one_bank(None);
        let read = |dram: &mut Dram, line| dram.read(Time::ZERO, line).as_ps();
        assert_eq!((0..3).map(|n| read(&mut dram, n * 256)).collect::<Vec<_>>(), [70_000, 116_000, 162_000]);
    }

    #[test]
    fn neighbours_and_distant_rows_lie_in_different_banks() {
        let of = |line| bank(line, 16);
        assert_ne!(of(0), of(1));
        assert_eq!(of(0), of(2), "the next line of the same channel and group");
        let mib = 1 << 14;
        let banks: std::collections::BTreeSet<_> = (0..8 * mib).map(of).collect();
        assert_eq!(banks.len(), 16);
        let within: std::collections::BTreeSet<_> = (0..mib / 2).map(of).collect();
        assert_eq!(within.len(), 2, "half a MiB lies in two banks of each rank");
    }

    #[test]
    fn a_write_waits_only_behind_a_full_queue() {
        let mut dram = Dram::new(&DramParams { channels: 1, refresh: None, ..params() }, rng());
        let accepted: Vec<_> = (0..40).map(|line| dram.write(Time::ZERO, line).as_ps()).collect();
        assert!(accepted[..33].iter().all(|&t| t == 0));
        assert_eq!(accepted[33], 4_000, "one service of 64 B at 16 GB/s");
        assert_eq!(accepted[39], 28_000);
    }

    #[test]
    fn a_channel_rests_between_reads_of_two_ranks() {
        let ranks = DramParams { rank_switch: Duration::from_ns(1), ranks: 2, channels: 1, ..params() };
        let took = |rank: &dyn Fn(u64) -> u64| {
            let mut dram = Dram::new(&DramParams { refresh: None, row_buffer: open_rows(), ..ranks }, rng());
            // Pages of 4 KiB are of one rank or the other.
            (0..40).map(|n| dram.read(Time::ZERO, rank(n) * 64 + n)).max().unwrap().as_ps()
        };
        let (same, turns, two_and_two) = (took(&|_| 1), took(&|n| n % 2), took(&|n| n / 2 % 2));
        // The first reads open their rows meanwhile.
        assert!((36_000..=39_000).contains(&(turns - same)), "each read: {} ps", turns - same);
        assert!(
            (17_000..=20_000).contains(&(two_and_two - same)),
            "half as often: {} ps",
            two_and_two - same
        );
    }

    #[test]
    fn writes_of_later_times_keep_no_earlier_write_waiting() {
        let mut dram = Dram::new(&DramParams { channels: 1, refresh: None, ..params() }, rng());
        let later = Time::ZERO + Duration::from_us(20);
        (0..16).for_each(|line| assert_eq!(dram.write(later, line), later));
        assert_eq!(dram.write(Time::ZERO, 16), Time::ZERO);
    }

    #[test]
    fn writes_wait_for_a_batch_around_which_the_channel_rests() {
        let batch = DramParams { write_batch: 4, write_turnaround: Duration::from_ns(20), ..params() };
        let mut dram = Dram::new(&DramParams { channels: 1, refresh: None, ..batch }, rng());
        let read = |dram: &mut Dram, line| dram.read(Time::ZERO, line).as_ps();
        // Each address in a bank of its own.
        let bank = |n: u64| n << 14;
        (0..3).for_each(|n| assert_eq!(dram.write(Time::ZERO, bank(n)), Time::ZERO));
        assert_eq!(read(&mut dram, bank(3)), 70_000, "three writes wait");
        dram.write(Time::ZERO, bank(4));
        assert_eq!(
            read(&mut dram, bank(5)),
            70_000 + 4_000 + 4 * 4_000 + 20_000,
            "behind the read and the batch"
        );
    }

    proptest! {
        /// The cached refresh must agree with plain arithmetic.
        #[test]
        fn refreshes_are_periodic(times in prop::collection::vec(0u64..100_000_000, 1..100), rank in 0usize..8) {
            let mut dram = Dram::new(&params(), rng());
            let first = 7_800_000 * rank as u64 / 8;
            for at in times {
                let number = at.saturating_sub(first) / 7_800_000;
                let due = first + number * 7_800_000;
                let begins = Refresh::new(due, number, 7_800_000, rank as u64).begins;
                prop_assert!((due..due + 975_000).contains(&begins));
                let wait = if at < begins { 0 } else { (begins + 260_000).saturating_sub(at) };
                prop_assert_eq!(dram.after_refresh(Time::from_ps(at), rank).as_ps(), at + wait);
            }
        }

        /// A program whose period nearly divides the refresh interval meets no more refreshes than others.
        #[test]
        fn no_period_is_in_step_with_refreshes(period in 1_050_000u64..1_150_000) {
            let mut dram = Dram::new(&params(), rng());
            let (mut at, mut waited) = (Time::ZERO, 0);
            for _ in 0..20_000 {
                let from = at;
                // A delayed access delays the next one.
                at = dram.after_refresh(at, 0);
                waited += at.since(from).as_ps();
                at += Duration::from_ps(period);
            }
            // 3.3 % of accesses wait half of 260 ns: 87 us.
            prop_assert!((55_000_000..120_000_000).contains(&waited), "{waited} ps");
        }
    }
}
