//! Stream table (section 5.2) and context descriptors (section 5.4).
//!
//! ```text
//! level 1 descriptor  51:6 table of level 2, 4:0 span: binary logarithm of its entries, plus 1
//! stream table entry  word 0: 63:59 S1CDMax, 51:6 context descriptor, 5:4 S1Fmt, 3:1 Config, 0 V
//!                     word 1: 45:44 SHCFG, 29:28 EATS, 7:6 S1CSH, 5:4 S1COR, 3:2 S1CIR
//! context descriptor  word 0: 63:48 ASID, 47 ASET, 46 A, 45 R, 41 AA64, 34:32 IPS, 31 V, 30 EPD1, 13:12 SH0, 11:10 OR0, 9:8 IR0,
//!                             7:6 TG0, 5:0 T0SZ
//!                     word 1: 51:4 TTB0
//! ```
//! Entries have eight words, of which the others are zero here.

use units::HostPhysical;

use crate::vtd::{ContextEntry, DomainId, FaultReason, Features, TranslationType, level_shift};

/// Bytes of a stream table entry, and of a context descriptor: a line.
pub const ENTRY_BYTES: u64 = 64;
/// Binary logarithm of the entries of a table of level 2, which has those of one bus (`STRTAB_BASE_CFG.SPLIT`).
pub const SPLIT: u32 = 8;
/// Bits of an address in all these.
const ADDRESS: u64 = 0x000f_ffff_ffff_ffc0;

const VALID: u64 = 1;
const CONFIG: u64 = 7 << 1;
const ABORT: u64 = 0;
const BYPASS: u64 = 4 << 1;
const STAGE_1: u64 = 5 << 1;
/// Inner shareable, inner and outer write-back, as all memory of a kernel is.
const CACHED: u64 = 3 << 6 | 1 << 4 | 1 << 2;
/// EATS: full ATS.
const ATS: u64 = 1 << 28;
const EATS: u64 = 3 << 28;
/// SHCFG: as the request says.
const INCOMING: u64 = 1 << 44;

const CD_VALID: u64 = 1 << 31;
const AA64: u64 = 1 << 41;
/// Faults are recorded.
const RECORD: u64 = 1 << 45;
/// Faults are answered by an abort.
const ANSWER: u64 = 1 << 46;
/// The ASID is not shared with cores.
const PRIVATE: u64 = 1 << 47;
/// No table for the upper half of the address space.
const EPD1: u64 = 1 << 30;
/// Inner shareable, outer and inner write-back, of table walks.
const WALKS_CACHED: u64 = 3 << 12 | 1 << 10 | 1 << 8;

/// What an entry means that lets addresses pass.
pub const BYPASS_ENTRY: ContextEntry = ContextEntry {
    domain: DomainId(0),
    translation: TranslationType::PassThrough,
    levels: 4,
    page_table: HostPhysical::new(0),
    fault_processing_disabled: false,
};

/// A descriptor of level 1 for the entries of one bus.
pub const fn level_1(table: HostPhysical) -> u64 {
    table.get() & ADDRESS | (SPLIT as u64 + 1)
}

/// The table of level 2, if the descriptor has one that holds all functions of a bus.
pub const fn level_2(word: u64) -> Option<HostPhysical> {
    match word & 0x1f {
        span if span == SPLIT as u64 + 1 => Some(HostPhysical::new(word & ADDRESS)),
        _ => None,
    }
}

/// What a stream table entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEntry {
    /// Every request is aborted.
    Abort,
    /// Addresses pass unchanged.
    Bypass,
    /// Stage 1 translates, by this context descriptor.
    Translate {
        /// Where the descriptor is.
        context: HostPhysical,
        /// Whether ATS is allowed.
        ats: bool,
    },
}

impl StreamEntry {
    /// The first two words of the entry. An aborting one keeps the place of a descriptor for later.
    pub const fn encode(self, context: HostPhysical) -> [u64; 2] {
        let place = context.get() & ADDRESS;
        match self {
            Self::Abort => [place | ABORT | VALID, 0],
            Self::Bypass => [place | BYPASS | VALID, INCOMING],
            Self::Translate { context, ats } => {
                [context.get() & ADDRESS | STAGE_1 | VALID, CACHED | if ats { ATS } else { 0 }]
            }
        }
    }

    /// Where an entry has, or had, a context descriptor.
    pub const fn context_of(low: u64) -> Option<HostPhysical> {
        match low & ADDRESS {
            0 => None,
            at => Some(HostPhysical::new(at)),
        }
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// The fault of a request that uses it (C_BAD_STE).
    pub const fn decode([low, high]: [u64; 2], features: Features) -> Result<Self, FaultReason> {
        if low & VALID == 0 {
            return Err(FaultReason::ContextNotPresent);
        }
        match low & CONFIG {
            ABORT => Ok(Self::Abort),
            BYPASS => Ok(Self::Bypass),
            STAGE_1 => {
                let context = low & ADDRESS;
                // A format of several descriptors, or a place beyond memory.
                if low >> 59 != 0 || context >> features.host_address_bits != 0 {
                    return Err(FaultReason::ContextReserved);
                }
                let context = HostPhysical::new(context);
                match high & EATS {
                    0 => Ok(Self::Translate { context, ats: false }),
                    ATS => Ok(Self::Translate { context, ats: true }),
                    _ => Err(FaultReason::ContextInvalid),
                }
            }
            _ => Err(FaultReason::ContextInvalid),
        }
    }
}

/// IPS of a width of addresses in bits: the least that holds it.
const fn size_of_addresses(bits: u8) -> u64 {
    match bits {
        0..=32 => 0,
        33..=36 => 1,
        37..=40 => 2,
        41..=42 => 3,
        43..=44 => 4,
        45..=48 => 5,
        _ => 6,
    }
}

/// The first two words of the context descriptor of a domain.
pub const fn encode_context(entry: ContextEntry, features: Features) -> [u64; 2] {
    let t0sz = 64 - level_shift(entry.levels + 1) as u64;
    let record = if entry.fault_processing_disabled { 0 } else { RECORD };
    let size = size_of_addresses(features.host_address_bits) << 32;
    let fixed = CD_VALID | AA64 | ANSWER | PRIVATE | EPD1 | WALKS_CACHED;
    [(entry.domain.0 as u64) << 48 | fixed | record | size | t0sz, entry.page_table.get() & !0xfff]
}

/// Decodes a context descriptor.
///
/// # Errors
/// The fault of a request that uses it (C_BAD_CD).
pub const fn decode_context(
    [low, high]: [u64; 2],
    ats: bool,
    features: Features,
) -> Result<ContextEntry, FaultReason> {
    if low & CD_VALID == 0 || low & AA64 == 0 || low >> 6 & 3 != 0 {
        return Err(FaultReason::ContextInvalid);
    }
    let levels = match low & 0x3f {
        25 => 3,
        16 => 4,
        _ => return Err(FaultReason::ContextInvalid),
    };
    let page_table = high & 0x000f_ffff_ffff_fff0;
    if page_table >> features.host_address_bits != 0 {
        return Err(FaultReason::ContextReserved);
    }
    Ok(ContextEntry {
        domain: DomainId((low >> 48) as u16),
        translation: if ats { TranslationType::WithAts } else { TranslationType::Untranslated },
        levels,
        page_table: HostPhysical::new(page_table & !0xfff),
        fault_processing_disabled: low & RECORD == 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Features = Features { host_address_bits: 48, ..Features::ALL };

    #[test]
    fn entries_have_the_specified_layout() {
        let at = HostPhysical::new(0x1_2345_6780);
        assert_eq!(level_1(HostPhysical::new(0x8000)), 0x8009);
        assert_eq!(level_2(0x8009), Some(HostPhysical::new(0x8000)));
        assert_eq!(level_2(0x8008), None, "half of the functions");
        let stage_1 = StreamEntry::Translate { context: at, ats: false };
        assert_eq!(stage_1.encode(at), [0x1_2345_678b, 0xd4]);
        assert_eq!(
            StreamEntry::Translate { context: at, ats: true }.encode(at),
            [0x1_2345_678b, 0x1000_00d4]
        );
        assert_eq!(StreamEntry::Bypass.encode(HostPhysical::new(0)), [9, 0x1000_0000_0000]);
        assert_eq!(StreamEntry::Abort.encode(at), [0x1_2345_6781, 0]);
        assert_eq!(StreamEntry::context_of(0x1_2345_6781), Some(at));
        for stream in [stage_1, StreamEntry::Bypass, StreamEntry::Abort] {
            assert_eq!(StreamEntry::decode(stream.encode(at), NARROW), Ok(stream));
        }
        assert_eq!(StreamEntry::decode([0, 0], NARROW), Err(FaultReason::ContextNotPresent));
        assert_eq!(StreamEntry::decode([0xd, 0], NARROW), Err(FaultReason::ContextInvalid), "stage 2");
        assert_eq!(StreamEntry::decode([1 << 48 | 0xb, 0], NARROW), Err(FaultReason::ContextReserved));
        assert_eq!(StreamEntry::decode([1 << 59 | 0xb, 0], NARROW), Err(FaultReason::ContextReserved));
    }

    #[test]
    fn context_descriptors_have_the_specified_layout() {
        let entry = ContextEntry {
            domain: DomainId(0x1234),
            translation: TranslationType::Untranslated,
            levels: 4,
            page_table: HostPhysical::new(0xabc_d000),
            fault_processing_disabled: false,
        };
        // ASID, ASET, A, R, AA64; IPS of 48 bits; V, EPD1; SH0, OR0, IR0; T0SZ of 48 bits.
        let words = encode_context(entry, NARROW);
        assert_eq!(words, [0x1234_e205_c000_3510, 0xabc_d000]);
        assert_eq!(decode_context(words, false, NARROW), Ok(entry));
        let short = ContextEntry { levels: 3, fault_processing_disabled: true, ..entry };
        assert_eq!(encode_context(short, NARROW)[0], 0x1234_c205_c000_3519);
        assert_eq!(decode_context(encode_context(short, NARROW), false, NARROW), Ok(short));
        let refused = |word| decode_context([word, 0], false, NARROW) == Err(FaultReason::ContextInvalid);
        assert!(refused(words[0] & !CD_VALID) && refused(words[0] | 1 << 6) && refused(words[0] + 1));
    }
}
