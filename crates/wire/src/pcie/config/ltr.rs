//! Latency tolerance reporting (base spec 6.18, 7.8.2), of functions with a link above. Offsets are relative to its header.

use super::image::Image;
use units::Duration;

/// Longest latency that the function may report for requests that snoop; 0 after a reset.
pub const MAX_SNOOP: u16 = 4;
/// The same for requests that do not.
pub const MAX_NO_SNOOP: u16 = 6;
/// Bytes of the capability.
pub const LEN: u16 = 8;

/// Bit of a message's latency that says that there is a requirement.
const REQUIREMENT: u16 = 1 << 15;
/// Bits of a value, and of its scale.
const VALUE: u16 = 0x3ff;
const SCALE: u32 = 10;
/// Largest scale: units of 2^25 ns.
const LARGEST: u16 = 5;

/// Encodes a latency for a register: the closest one that is not longer.
pub fn encode(latency: Duration) -> u16 {
    let ns = latency.as_ps() / 1000;
    let fits = |scale: u16| ns >> (5 * scale) <= u64::from(VALUE);
    match (0..=LARGEST).find(|&scale| fits(scale)) {
        Some(scale) => (ns >> (5 * scale)) as u16 | scale << SCALE,
        None => VALUE | LARGEST << SCALE,
    }
}

/// Decodes a register; the two reserved scales count as the largest.
pub fn decode(register: u16) -> Duration {
    let scale = (register >> SCALE & 7).min(LARGEST);
    Duration::from_ns(u64::from(register & VALUE) << (5 * scale))
}

/// Encodes a latency for a message, or that none is required.
pub fn encode_requirement(latency: Option<Duration>) -> u16 {
    latency.map_or(0, |latency| encode(latency) | REQUIREMENT)
}

/// Decodes a message's latency; `None` if none is required.
pub fn decode_requirement(bits: u16) -> Option<Duration> {
    (bits & REQUIREMENT != 0).then(|| decode(bits))
}

pub(super) fn emit(image: &mut Image, at: u16) {
    image.rw16(at + MAX_SNOOP, 0x1fff).rw16(at + MAX_NO_SNOOP, 0x1fff);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Base spec 7.8.2.2: value in bits 9:0; scales 1, 32, 1024, 32,768, 1,048,576 and 33,554,432 ns in bits 12:10. The first two are
    /// what lspci prints for firmware's 0x1003 and 0x0846.
    #[test]
    fn latencies_are_encoded_as_the_specification_says() {
        for (ns, register) in [
            (3_145_728, 0x1003),
            (71_680, 0x0846),
            (0, 0),
            (1023, 1023),
            (1024, 0x400 | 32),
            (33_554_432 * 1023, 0x1400 | 1023),
        ] {
            assert_eq!(decode(register), Duration::from_ns(ns), "{register:#x}");
            assert_eq!(decode(encode(Duration::from_ns(ns))), Duration::from_ns(ns));
        }
        assert_eq!(encode(Duration::from_ns(1024)), 0x0420);
        assert_eq!(encode_requirement(Some(Duration::from_ns(5))), 0x8005);
        assert_eq!((encode_requirement(None), decode_requirement(0x1003)), (0, None));
    }

    proptest! {
        /// What is reported is no longer than what is tolerated, and less than a 32nd shorter.
        #[test]
        fn a_report_never_promises_more(ns in 0u64..33_554_432 * 1023) {
            let told = decode(encode(Duration::from_ns(ns))).as_ps() / 1000;
            prop_assert!(told <= ns && told + told / 32 + 1 > ns, "{told}");
        }
    }
}
