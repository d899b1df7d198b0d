//! Flash of a die. Pages are written once and erased in whole blocks, so valid pages of a block have to be moved before
//! it is erased. With each page written by the host, the drive moves as many as it takes to keep the number of erased
//! blocks constant.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::Rng;

use super::params::FlashParams;

/// Number of blocks that model a die. A real die has more, but only ratios matter.
const BLOCKS: usize = 256;
/// Erased blocks kept in reserve: one to write next, and one spare.
const ERASED: usize = 2;

/// Additional work caused by a page write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chores {
    /// Number of pages to move.
    pub moves: u32,
    /// Erase time.
    pub erase: units::Duration,
}

/// Flash translation layer of a die: which block holds which page.
pub struct Translation {
    params: FlashParams,
    /// Number of valid pages per block.
    valid: Vec<u32>,
    /// Total of valid pages: now, and when nothing is deallocated (`full`).
    total: u64,
    full: u64,
    /// Units of the drive on this die; the modelled pages are a sample of them.
    units: u64,
    /// Units deallocated (positive) or rewritten (negative) that are not yet reflected in the sample, multiplied by
    /// `full`.
    owed: i128,
    /// Per block, numbers of the valid pages whose unit is known; the others date from before the simulation.
    known: Vec<Vec<u64>>,
    /// Block of each known page.
    place: BTreeMap<u64, u16>,
    erased: Vec<u16>,
    open: u16,
    used: u32,
    /// The block being cleaned, and its number of valid pages at the start.
    victim: Option<(u16, u32)>,
    /// Moves owed, in fractions of the pages that cleaning the victim gains.
    debt: u32,
}

/// Fraction of valid pages in the next block to be cleaned under random overwrites: the solution `u` of `(1 - u) / -ln
/// u = filled` (Menon, "A performance comparison of RAID-5 and log-structured arrays", 1995).
fn least_valid(filled: f64) -> f64 {
    let (mut low, mut high) = (1e-9f64, 1.0 - 1e-9);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if (1.0 - middle) / -middle.ln() < filled { low = middle } else { high = middle }
    }
    low
}

impl Translation {
    /// A die after long random overwriting: the older a block, the fewer valid pages it has.
    pub fn worn_in(params: &FlashParams, units: u64) -> Self {
        let least = least_valid(params.filled.clamp(0.01, 0.999));
        let written = BLOCKS - ERASED - 1;
        let share = |n: usize| least.powf((n + 1) as f64 / written as f64);
        let pages = f64::from(params.pages);
        let valid: Vec<u32> =
            (0..BLOCKS).map(|n| if n < written { (share(n) * pages) as u32 } else { 0 }).collect();
        let full = valid.iter().map(|&pages| u64::from(pages)).sum::<u64>();
        Self {
            params: *params,
            valid,
            total: full,
            full,
            units: units.max(full),
            owed: 0,
            known: vec![Vec::new(); BLOCKS],
            place: BTreeMap::new(),
            erased: (written as u16 + 1..BLOCKS as u16).collect(),
            open: written as u16,
            used: 0,
            victim: None,
            debt: 0,
        }
    }

    /// Fraction of the sample's pages that are valid.
    #[cfg(test)]
    fn share_valid(&self) -> f64 {
        self.total as f64 / (BLOCKS as f64 * f64::from(self.params.pages))
    }

    /// Writes a page. `fresh` if the host had deallocated it. Returns the additional work for the die.
    pub fn write(&mut self, number: u64, fresh: bool, rng: &mut Rng) -> Chores {
        if fresh {
            self.owed -= i128::from(self.full);
        }
        match fresh && self.owed <= -i128::from(self.units) {
            // The sample gains a valid page.
            true => self.owed += i128::from(self.units),
            // Rewritten units account for themselves through their share of the sample.
            false => self.forget(number, rng),
        }
        let mut chores = Chores::default();
        self.append(Some(number));
        // Deallocation has left enough free blocks.
        if self.victim.is_none() && self.erased.len() > ERASED {
            return chores;
        }
        let (victim, begun) = match self.victim {
            Some(victim) => victim,
            None => *self.victim.insert(self.next_victim()),
        };
        self.debt += begun;
        // At least 1, as cleaning a fully valid block gains nothing and would never end.
        let gain = self.params.pages.saturating_sub(begun).max(1);
        while self.debt >= gain && self.valid[usize::from(victim)] > 0 {
            self.debt -= gain;
            self.valid[usize::from(victim)] -= 1;
            self.total -= 1;
            let page = self.known[usize::from(victim)].pop();
            self.append(page);
            chores.moves += 1;
        }
        if self.valid[usize::from(victim)] == 0 {
            self.erased.push(victim);
            (self.victim, self.debt) = (None, 0);
            chores.erase = self.params.erase;
        }
        chores
    }

    /// The host deallocated `count` valid units within `range`.
    pub fn deallocate(&mut self, range: Range<u64>, count: u64, rng: &mut Rng) {
        self.owed += i128::from(count) * i128::from(self.full);
        let known: Vec<u64> = self.place.range(range).map(|(&number, _)| number).collect();
        for number in known {
            self.owed -= i128::from(self.units);
            self.forget(number, rng);
        }
        let pages = (self.owed / i128::from(self.units)).clamp(0, self.total.into());
        self.owed -= pages * i128::from(self.units);
        self.forget_many(pages as u64, rng);
    }

    /// Invalidates `count` random pages: from each block its share, rounded at random.
    fn forget_many(&mut self, count: u64, rng: &mut Rng) {
        // For small counts, the pages are picked one by one.
        if count < self.valid.len() as u64 / 8 {
            return (0..count).for_each(|_| self.forget_any(rng));
        }
        let (mut left, mut pages) = (count, self.total);
        self.total -= count;
        for block in 0..self.valid.len() {
            let here = u64::from(self.valid[block]);
            if here == 0 {
                continue;
            }
            // The remaining blocks cannot lose more pages than they have.
            let share = (here * left + rng.below(pages)) / pages;
            let gone = share.clamp((left + here).saturating_sub(pages), here.min(left));
            (left, pages) = (left - gone, pages - here);
            // Most blocks have no known pages.
            let draws = if self.known[block].is_empty() { 0 } else { gone };
            for lost in 0..draws {
                let number = rng.below(here - lost) as usize;
                if number < self.known[block].len() {
                    let forgotten = self.known[block].swap_remove(number);
                    self.place.remove(&forgotten);
                }
            }
            self.valid[block] -= gone as u32;
        }
    }

    /// Invalidates the old content of a page.
    fn forget(&mut self, number: u64, rng: &mut Rng) {
        match self.place.remove(&number) {
            Some(block) => {
                let block = usize::from(block);
                self.known[block].retain(|&page| page != number);
                self.valid[block] -= 1;
                self.total -= 1;
            }
            // A page from before the simulation may be anywhere.
            None if self.total > 0 => self.forget_any(rng),
            None => {}
        }
    }

    /// Invalidates a random valid page.
    fn forget_any(&mut self, rng: &mut Rng) {
        let mut number = rng.below(self.total);
        let holds = |valid: &u32| {
            let here = number < u64::from(*valid);
            number -= if here { 0 } else { u64::from(*valid) };
            here
        };
        let Some(block) = self.valid.iter().position(holds) else { return };
        if (number as usize) < self.known[block].len() {
            let forgotten = self.known[block].swap_remove(number as usize);
            self.place.remove(&forgotten);
        }
        self.valid[block] -= 1;
        self.total -= 1;
    }

    fn append(&mut self, page: Option<u64>) {
        if self.used == self.params.pages {
            // There is always an erased block: each victim frees at least what it uses.
            self.open = self.erased.pop().unwrap_or(self.open);
            self.used = 0;
        }
        self.used += 1;
        self.valid[usize::from(self.open)] += 1;
        self.total += 1;
        if let Some(page) = page {
            self.known[usize::from(self.open)].push(page);
            self.place.insert(page, self.open);
        }
    }

    /// The next block to clean: the one with the fewest valid pages.
    fn next_victim(&self) -> (u16, u32) {
        let blocks = (0u16..).zip(&self.valid);
        let full = blocks.filter(|(block, _)| *block != self.open && !self.erased.contains(block));
        full.min_by_key(|&(block, &valid)| (valid, block)).map_or((0, 0), |(block, &valid)| (block, valid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Seed;
    use units::Duration;

    const FLASH: FlashParams = FlashParams { pages: 512, filled: 0.75, erase: Duration::from_ms(5) };

    fn moves_per_write(mut page: impl FnMut(&mut Rng) -> u64, writes: u32) -> f64 {
        let mut rng = Seed::new(1).component("test");
        let mut die = Translation::worn_in(&FLASH, 10_000_000);
        let before: u32 = die.valid.iter().sum();
        let moves: u32 = (0..writes)
            .map(|_| {
                let number = page(&mut rng);
                die.write(number, false, &mut rng).moves
            })
            .sum();
        assert_eq!(die.valid.iter().sum::<u32>(), before, "as many pages are valid as before");
        assert_eq!(die.place.len(), die.known.iter().map(Vec::len).sum::<usize>());
        assert!((1..=ERASED + 1).contains(&die.erased.len()));
        f64::from(moves) / f64::from(writes)
    }

    #[test]
    fn random_writes_move_what_theory_says_from_the_first_to_the_last() {
        // Pages moved per page written, u / (1 - u) with (1 - u) / -ln u = 0.75: the value for cleaning by age, which
        // cleaning by valid pages must not exceed.
        let least = least_valid(0.75);
        let theory = least / (1.0 - least);
        assert!((1.1..1.3).contains(&theory), "{theory}");
        for writes in [20_000, 200_000] {
            let moves = moves_per_write(|rng| rng.below(1 << 40), writes);
            assert!((0.85 * theory..1.1 * theory).contains(&moves), "{moves} over {writes}, not {theory}");
        }
    }

    #[test]
    fn the_same_pages_again_and_again_keep_the_books_right() {
        moves_per_write(|rng| rng.below(100), 20_000);
    }

    /// Deallocation in many steps or in one leaves equally many pages within random variation, and exactly none at the
    /// end.
    #[test]
    fn deallocating_takes_its_share_of_every_block() {
        const UNITS: u64 = 400_000;
        let mut rng = Seed::new(3).component("test");
        let mut die = Translation::worn_in(&FLASH, UNITS);
        for number in 0..20_000 {
            die.write(number, false, &mut rng);
        }
        let before = (die.share_valid(), die.valid.clone());
        for step in 0..40 {
            die.deallocate(step * 5_000..(step + 1) * 5_000, 5_000, &mut rng);
        }
        assert!((die.share_valid() / before.0 - 0.5).abs() < 0.05, "{} of {}", die.share_valid(), before.0);
        assert!(die.place.range(..200_000).next().is_none(), "what was written by number is gone");
        let least = die.valid.iter().zip(&before.1).filter(|&(_, &before)| before > 400);
        assert!(
            least.clone().count() > 20 && least.clone().all(|(&now, &before)| now * 4 > before),
            "from all"
        );
        die.deallocate(200_000..UNITS, 200_000, &mut rng);
        assert_eq!((die.total, die.valid.iter().sum::<u32>(), die.place.len()), (0, 0, 0));
    }

    /// When a fraction of the drive is deallocated, blocks hold correspondingly less: fewer pages are moved, and none
    /// once all is deallocated. After a rewrite, the drive is as before.
    #[test]
    fn deallocating_lets_fewer_pages_move_until_all_is_written_again() {
        const UNITS: u64 = 400_000;
        let mut rng = Seed::new(2).component("test");
        let mut die = Translation::worn_in(&FLASH, UNITS);
        let per_write = |die: &mut Translation, rng: &mut Rng, range: Range<u64>, fresh: bool| {
            let moves: u32 = range
                .clone()
                .map(|n| if fresh { n } else { rng.below(UNITS) })
                .collect::<Vec<_>>()
                .into_iter()
                .map(|number| die.write(number, fresh, rng).moves)
                .sum();
            f64::from(moves) / (range.end - range.start) as f64
        };
        let worn = per_write(&mut die, &mut rng, 0..100_000, false);
        assert!(worn > 1.0, "{worn}");
        die.deallocate(0..UNITS, UNITS, &mut rng);
        assert_eq!((die.total, die.place.len()), (0, 0));
        let first = per_write(&mut die, &mut rng, 0..UNITS / 2, true);
        assert!(first < 0.3 * worn, "{first}");
        let share = die.total as f64 / die.full as f64;
        assert!((0.48..0.52).contains(&share), "half is written again: {share}");
        per_write(&mut die, &mut rng, UNITS / 2..UNITS, true);
        let again = per_write(&mut die, &mut rng, 0..200_000, false);
        assert!((0.9 * worn..1.1 * worn).contains(&again), "{again}, {worn}");
        assert_eq!(die.total, die.valid.iter().map(|&valid| u64::from(valid)).sum::<u64>());
    }
}
