//! Device table entries (section 2.2.2), of four words each.
//!
//! ```text
//! word 0: 62 IW, 61 IR, 51:12 page table, 11:9 mode: its levels, 1 TV, 0 V
//! word 1: 34 SA: no events of page faults, 32 I: ATS, 15:0 domain
//! ```
//! The table has one for each requester ID: an entry without V lets everything pass, so that a kernel fills it first.

use units::HostPhysical;

use crate::vtd::{ContextEntry, DomainId, FaultReason, Features, TranslationType};

/// Bytes of an entry.
pub const ENTRY_BYTES: u64 = 32;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const VALID: u64 = 1 | 1 << 1;
const READ: u64 = 1 << 61;
const WRITE: u64 = 1 << 62;
const ATS: u64 = 1 << 32;
const SUPPRESSED: u64 = 1 << 34;

/// The first two words of an entry that blocks all requests of a function.
pub const BLOCKED: [u64; 2] = [VALID, 0];

/// Encodes the first two words of the entry that assigns a function to a domain.
pub const fn encode(entry: ContextEntry) -> [u64; 2] {
    let suppressed = if entry.fault_processing_disabled { SUPPRESSED } else { 0 };
    let high = entry.domain.0 as u64 | suppressed;
    let low = VALID | READ | WRITE;
    let translated = low | (entry.levels as u64) << 9 | entry.page_table.get() & ADDRESS;
    match entry.translation {
        TranslationType::PassThrough => [low, high],
        TranslationType::Untranslated => [translated, high],
        TranslationType::WithAts => [translated, high | ATS],
    }
}

/// Decodes an entry.
///
/// # Errors
/// The fault of a request that uses it.
pub const fn decode([low, high]: [u64; 2], features: Features) -> Result<ContextEntry, FaultReason> {
    let mode = (low >> 9 & 7) as u8;
    let passes = ContextEntry {
        domain: DomainId(high as u16),
        translation: TranslationType::PassThrough,
        levels: 5,
        page_table: HostPhysical::new(0),
        fault_processing_disabled: high & SUPPRESSED != 0,
    };
    if low & 1 == 0 {
        return Ok(passes);
    }
    if low & (READ | WRITE) == 0 {
        return Err(FaultReason::ContextNotPresent);
    }
    if low & VALID != VALID || mode == 0 {
        return Ok(passes);
    }
    let page_table = low & ADDRESS;
    if page_table >> features.host_address_bits != 0 {
        return Err(FaultReason::ContextReserved);
    }
    if mode < 3 || mode > 5 {
        return Err(FaultReason::ContextInvalid);
    }
    Ok(ContextEntry {
        translation: if high & ATS != 0 { TranslationType::WithAts } else { TranslationType::Untranslated },
        levels: mode,
        page_table: HostPhysical::new(page_table),
        ..passes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_specified_layout() {
        let entry = ContextEntry {
            domain: DomainId(0x1234),
            translation: TranslationType::Untranslated,
            levels: 4,
            page_table: HostPhysical::new(0xabc_d000),
            fault_processing_disabled: false,
        };
        let cases = [
            (entry, [0x6000_0000_0abc_d803, 0x1234]),
            (
                ContextEntry { translation: TranslationType::WithAts, levels: 3, ..entry },
                [0x6000_0000_0abc_d603, 0x1_0000_1234],
            ),
            (
                ContextEntry {
                    translation: TranslationType::PassThrough,
                    levels: 5,
                    page_table: HostPhysical::new(0),
                    fault_processing_disabled: true,
                    ..entry
                },
                [0x6000_0000_0000_0003, 0x4_0000_1234],
            ),
        ];
        for (entry, words) in cases {
            assert_eq!(encode(entry), words, "{entry:?}");
            assert_eq!(decode(words, Features::ALL), Ok(entry));
        }
        assert_eq!(decode(BLOCKED, Features::ALL), Err(FaultReason::ContextNotPresent));
        let cleared = decode([0, 0], Features::ALL).map(|entry| entry.translation);
        assert_eq!(cleared, Ok(TranslationType::PassThrough), "an empty entry blocks nothing");
        let with_mode =
            |mode: u64| decode([VALID | READ | mode << 9, 0], Features::ALL).map(|entry| entry.levels);
        assert_eq!(with_mode(7), Err(FaultReason::ContextInvalid));
        assert_eq!(with_mode(5), Ok(5));
    }
}
