//! The setup of a measurement, as encoded in the directory's name.

use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};
pub use settings::IommuMode;

/// The sockets of one experiment, as in `s0-s1-s1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sockets {
    /// Socket of the device.
    pub device: u32,
    /// Socket of the buffer's memory.
    pub memory: u32,
    /// Socket of the program that warms or thrashes the cache.
    pub program: u32,
}

impl Sockets {
    /// Whether the buffer is on another socket than the device.
    pub const fn remote_memory(&self) -> bool {
        self.device != self.memory
    }
}

impl fmt::Display for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}-s{}-s{}", self.device, self.memory, self.program)
    }
}

/// Error: a text that is not of the form `s0-s1-s1`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not name the sockets of device, memory and program as in `s0-s1-s1`")]
pub struct BadSockets(String);

impl FromStr for Sockets {
    type Err = BadSockets;
    fn from_str(text: &str) -> Result<Self, BadSockets> {
        let number = |part: &str| part.strip_prefix('s').and_then(|n| n.parse::<u32>().ok());
        match text.split('-').map(number).collect::<Vec<_>>()[..] {
            [Some(device), Some(memory), Some(program)] => Ok(Self { device, memory, program }),
            _ => Err(BadSockets(text.into())),
        }
    }
}

impl Serialize for Sockets {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sockets {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Setup parsed from a directory's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setup {
    /// The name itself.
    pub name: String,
    /// The card and its clock (`nfp6000-1.2GHz`).
    pub card: String,
    /// The CPU's generation (`bdw`, `hsw`, `ib`, `snb`); derived from its model if the name does not say.
    pub generation: String,
    /// The CPU's model in normalized spelling (`Xeon-E5-2630v4`).
    pub cpu: String,
    /// The chassis (`dell-t430`).
    pub chassis: String,
    /// Sockets of device, memory and program; all 0 if the name does not say.
    pub sockets: Sockets,
    /// Mode of the IOMMU; off if the name does not say.
    pub iommu: IommuMode,
    /// Parts of the name that are unknown or contradictory.
    pub doubts: Vec<String>,
}

impl Setup {
    /// Parses a directory's name, `CARD_GENERATION-MODEL_BOX[-sX-sY-sZ][-iommu[-nosp]]`. After the card, `_` and `-`
    /// are equivalent separators, case does not matter, and the parts after the box may be in any order.
    ///
    /// # Errors
    /// The missing part of the name.
    pub fn parse(name: &str) -> Result<Self, &'static str> {
        let (card, rest) = name.split_once('_').ok_or("the card (everything before the first `_`)")?;
        let mut words: Vec<&str> = rest.split(['_', '-', ' ']).filter(|word| !word.is_empty()).collect();
        let model = words.iter().position(|word| begins_with_digits(word, 4));
        let model = model.ok_or("the CPU's model (a part that begins with four digits)")?;
        let mut tail = words.split_off(model + 1);
        let mut version = String::new();
        if tail.first().is_some_and(|word| is_version(word)) {
            version = tail.remove(0).to_ascii_lowercase();
        }
        let number = words.pop().unwrap_or_default();
        let named = words.first().filter(|word| is_generation(word)).map(|word| word.to_ascii_lowercase());
        if named.is_some() {
            words.remove(0);
        }
        let cpu = spell_cpu(&words, number, &version);
        let known = generation_of(&cpu);
        let mut doubts = Vec::new();
        if let (Some(named), Some(known)) = (&named, known)
            && named != known
        {
            doubts.push(format!("the name says `{named}`, but a {cpu} is of generation `{known}`"));
        }
        let generation = known.map(str::to_owned).or(named).ok_or("the CPU's generation")?;
        let end = tail.iter().position(|word| Mark::of(word).is_some()).unwrap_or(tail.len());
        let chassis = tail[..end].join("-");
        if chassis.is_empty() {
            return Err("the computer");
        }
        let (sockets, iommu) = marks(&tail[end..], &mut doubts);
        let (name, card) = (name.into(), card.into());
        Ok(Self { name, card, generation, cpu, chassis, sockets, iommu, doubts })
    }
}

/// Meaning of a word after the box's name.
enum Mark {
    Socket(u32),
    Iommu,
    SmallPages,
    Superpages,
}

impl Mark {
    fn of(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        let socket = || word.strip_prefix('s').filter(|n| n.len() <= 2)?.parse().ok();
        match word.as_str() {
            "iommu" => Some(Self::Iommu),
            "nosp" => Some(Self::SmallPages),
            "sp" => Some(Self::Superpages),
            _ => socket().map(Self::Socket),
        }
    }
}

/// Sockets and IOMMU from the words after the box, in any order.
fn marks(words: &[&str], doubts: &mut Vec<String>) -> (Sockets, IommuMode) {
    let (mut named, mut iommu, mut small, mut superpages) = (Vec::new(), false, false, false);
    for word in words {
        match Mark::of(word) {
            Some(Mark::Socket(socket)) => named.push(socket),
            Some(Mark::Iommu) => iommu = true,
            Some(Mark::SmallPages) => small = true,
            Some(Mark::Superpages) => superpages = true,
            None => doubts.push(format!("`{word}` in the name is not understood and changes nothing")),
        }
    }
    let sockets = match named[..] {
        [] => Sockets::default(),
        [device, memory, program] => Sockets { device, memory, program },
        _ => {
            let count = named.len();
            doubts.push(format!(
                "the name gives {count} sockets where device, memory and program are three (`s0-s1-s1`); taken for s0-s0-s0"
            ));
            Sockets::default()
        }
    };
    if small && superpages {
        doubts.push("the name says both `sp` and `nosp`; taken for 4 KiB pages".into());
    }
    if (small || superpages) && !iommu {
        doubts.push("the name speaks of pages but not of `iommu`; taken for on".into());
    }
    let iommu = match (iommu || small || superpages, small) {
        (false, _) => IommuMode::Off,
        (true, true) => IommuMode::Pages4k,
        (true, false) => IommuMode::Superpages,
    };
    (sockets, iommu)
}

fn begins_with_digits(word: &str, count: usize) -> bool {
    word.len() >= count && word.bytes().take(count).all(|b| b.is_ascii_digit())
}

/// `v3`.
fn is_version(word: &str) -> bool {
    word.strip_prefix(['v', 'V']).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// A word of letters before the CPU's name, such as `hsw`, except the vendor's.
fn is_generation(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    !["xeon", "core", "intel", "gold", "silver", "platinum", "bronze"].contains(&word.as_str())
        && word.bytes().all(|b| b.is_ascii_alphabetic())
}

/// Builds `Xeon-E5-2630v4` from the words of a name.
fn spell_cpu(words: &[&str], number: &str, version: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for word in words {
        let lower = word.to_ascii_lowercase();
        let mut letters = lower.chars();
        let first = letters.next().unwrap_or_default();
        let family = letters.clone().all(|c| c.is_ascii_digit());
        parts.push(match (first, family) {
            ('i', true) => lower,
            _ => first.to_ascii_uppercase().to_string() + letters.as_str(),
        });
    }
    let is_e = |part: &String| part.len() == 2 && part.starts_with('E');
    if parts.first().is_some_and(is_e) {
        parts.insert(0, "Xeon".into());
    }
    // `2620V3`: the version's letter must be lower case.
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    let suffix = &number[digits..];
    let suffix = if is_version(suffix) { suffix.to_ascii_lowercase() } else { suffix.to_owned() };
    parts.push(format!("{}{suffix}{version}", &number[..digits]));
    parts.join("-")
}

/// Generation of a Xeon E3, E5 or E7 from the version in its name (Intel ARK); `None` for others.
fn generation_of(cpu: &str) -> Option<&'static str> {
    let model = ["Xeon-E3-", "Xeon-E5-", "Xeon-E7-"].iter().find_map(|family| cpu.strip_prefix(family))?;
    match model.rsplit_once('v').map(|(_, version)| version) {
        None => Some("snb"),
        Some("2") => Some("ib"),
        Some("3") => Some("hsw"),
        Some("4") => Some("bdw"),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> String {
        let s = Setup::parse(name).unwrap();
        format!("{} {} {} {} {:?} {}", s.generation, s.cpu, s.chassis, s.sockets, s.iommu, s.doubts.len())
    }

    #[test]
    fn both_forms_of_name_are_understood() {
        assert_eq!(
            read("nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s1-s1-iommu-nosp"),
            "bdw Xeon-E5-2630v4 dell-t430 s0-s1-s1 Pages4k 0"
        );
        assert_eq!(
            read("nfp6000-1.2GHz_hsw-Xeon-E5-2620v3_dell-t630-iommu"),
            "hsw Xeon-E5-2620v3 dell-t630 s0-s0-s0 Superpages 0"
        );
        assert_eq!(
            read("nfp6000-1.2GHz_snb-Xeon-E5-2630_dell-t620"),
            "snb Xeon-E5-2630 dell-t620 s0-s0-s0 Off 0"
        );
    }

    #[test]
    fn order_case_and_separators_do_not_matter() {
        let plain = "bdw Xeon-E5-2630v4 dell-t430 s0-s1-s1";
        let card = "nfp6000-1.2GHz";
        assert_eq!(
            read(&format!("{card}_bdw-xeon-e5-2630-v4_dell_t430-iommu-s0-s1-s1")),
            format!("{plain} Superpages 0")
        );
        assert_eq!(
            read(&format!("{card}_BDW_E5-2630V4_dell-t430_s0_s1_s1_nosp_iommu")),
            format!("{plain} Pages4k 0")
        );
        assert_eq!(
            read(&format!("{card}_Xeon-E5-2630v4_dell-t430-s0-s1-s1-iommu-sp")),
            format!("{plain} Superpages 0")
        );
        assert_eq!(
            read("nfp6000_skx-Xeon-Gold-6130_dell-r740"),
            "skx Xeon-Gold-6130 dell-r740 s0-s0-s0 Off 0"
        );
    }

    #[test]
    fn what_is_not_understood_is_told() {
        let doubts = |name| Setup::parse(name).unwrap().doubts.join("; ");
        assert!(doubts("n_hsw-Xeon-E5-2630_dell-t620").contains("generation `snb`"));
        assert!(doubts("n_bdw-Xeon-E5-2630v4-dell-t430-s0-s1").contains("2 sockets"));
        assert!(doubts("n_bdw-Xeon-E5-2630v4-dell-t430-iommu-turbo").contains("`turbo`"));
        assert!(doubts("n_bdw-Xeon-E5-2630v4-dell-t430-nosp").contains("`iommu`"));
    }

    #[test]
    fn other_names_say_what_is_missing() {
        assert!(Setup::parse("results").unwrap_err().contains("card"));
        assert!(Setup::parse("nfp_hsw-whatever").unwrap_err().contains("four digits"));
        assert!(Setup::parse("nfp_hsw-Xeon-E5-2620v3").unwrap_err().contains("computer"));
    }
}
