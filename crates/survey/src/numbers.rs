//! Sets of small numbers: CPUs, nodes, interrupts.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of CPUs, nodes or interrupts, shown as the kernel's lists: `0-3,8`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumberSet(BTreeSet<u32>);

/// Numbers from here on are taken for damage: no kernel counts so many CPUs or interrupts.
const LIMIT: u32 = 1 << 17;

impl NumberSet {
    /// A mask, as the kernel (`ff,00000000`) and hwloc (`0x000000ff,,0x0`) write it; `None` if it is none.
    pub fn from_mask(text: &str) -> Option<Self> {
        let mut set = BTreeSet::new();
        // hwloc's infinite sets begin so; there are no CPUs to tell.
        let words: Vec<&str> = text.trim().split(',').filter(|word| *word != "0xf...f").collect();
        if words.len() > LIMIT as usize / 32 {
            return None;
        }
        for (place, word) in words.iter().rev().enumerate() {
            let word = word.trim().trim_start_matches("0x");
            let bits = if word.is_empty() { 0 } else { u64::from_str_radix(word, 16).ok()? };
            // A single word may be longer than 32 bits; several are of 32 bits each.
            if words.len() > 1 && bits > u64::from(u32::MAX) {
                return None;
            }
            set.extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| bit + 32 * place as u32));
        }
        Some(Self(set))
    }

    /// As a mask that the kernel reads: words of 32 bits, the highest first.
    pub fn to_mask(&self) -> String {
        let last = self.0.last().map_or(0, |last| last / 32);
        let word = |place: u32| {
            let own = self.0.range(32 * place..=32 * place + 31);
            format!("{:08x}", own.fold(0u32, |bits, number| bits | 1 << (number % 32)))
        };
        (0..=last).rev().map(word).collect::<Vec<_>>().join(",")
    }

    /// Whether a number is in it.
    pub fn contains(&self, number: u32) -> bool {
        self.0.contains(&number)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Whether any number is in both.
    pub fn meets(&self, other: &Self) -> bool {
        self.0.intersection(&other.0).next().is_some()
    }
}

impl FromIterator<u32> for NumberSet {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().filter(|&number| number < LIMIT).collect())
    }
}

impl FromStr for NumberSet {
    type Err = ();

    /// A list as the kernel writes it, `0-3,8`; or numbers between spaces.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut set = BTreeSet::new();
        for part in text.split([',', ' ', '\t', '\n']).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().map_err(drop)?, last.parse().map_err(drop)?);
            if first > last || last >= LIMIT {
                return Err(());
            }
            set.extend(first..=last);
        }
        Ok(Self(set))
    }
}

impl fmt::Display for NumberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.iter().peekable();
        let mut is_first = true;
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if(|&next| next == last + 1) {
                last = next;
            }
            let comma = if is_first { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
            is_first = false;
        }
        Ok(())
    }
}

/// The first names of a list, and how many more there are.
pub fn some_of(names: &[String], most: usize) -> String {
    let shown = names[..names.len().min(most)].join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A word as a shell takes it: in quotes, if it has anything but letters, digits and what has no meaning there.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_lists_are_the_same_sets() {
        for (mask, list) in [
            ("0x00000055,0x55555555", "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38"),
            ("0x00000303,0x03030000,,0x03030303", "0-1,8-9,16-17,24-25,80-81,88-89,96-97,104-105"),
            ("000000ff,ffff0000,00ffffff", "0-23,48-71"),
            ("ff", "0-7"),
            ("0x0", ""),
        ] {
            let set = NumberSet::from_mask(mask).unwrap();
            assert_eq!(set.to_string(), list);
            assert_eq!(list.parse(), Ok(set));
        }
        assert_eq!(NumberSet::from_mask("0xf...f,0x1").unwrap().to_string(), "0");
        assert_eq!(NumberSet::from_mask("node"), None);
        assert!("3-1".parse::<NumberSet>().is_err());
        assert!("0-4294967295".parse::<NumberSet>().is_err());
    }
}
