//! General limits: Ethernet speeds, ranges of numbers, names.

use crate::diagnostic::Diagnostic;
use crate::figure::Figure;
use crate::placed::Placed;
use crate::read::Check;
use units::{BitRate, Bytes, Duration};

/// Slower than a megabyte per second is unrealistic; models use 32 bits of picoseconds.
const PER_BYTE: Duration = Duration::from_us(1);

/// Whether Ethernet has this speed: 1 to 400 Gbit/s (IEEE 802.3-2022; values in between are allowed).
pub(crate) fn is_ethernet(rate: BitRate) -> bool {
    (1_000_000_000..=400_000_000_000).contains(&rate.bits_per_s())
}

/// Describes the range of [`is_ethernet`].
pub(crate) const ETHERNET: &str = "Ethernet has 1 to 400 Gbit/s";

impl Check<'_> {
    /// Reports a speed under `key` that Ethernet does not have.
    pub(crate) fn require_ethernet(&mut self, key: &str, rate: Option<BitRate>) {
        let holds = rate.is_none_or(is_ethernet);
        let message = || format!("no port has {}", rate.unwrap_or(BitRate::gbit_per_s(1)));
        self.require(holds, key, message(), ETHERNET);
    }

    /// Reports an amount of data under `key` outside `least` to `most`.
    pub(crate) fn require_bytes(&mut self, key: &str, amount: Bytes, (least, most): (Bytes, Bytes)) {
        let holds = (least..=most).contains(&amount);
        self.require(holds, key, format!("{amount} cannot be"), format!("from {least} to {most}"));
    }

    /// Reports a completion timeout outside the default range (PCIe Base Specification 6.0, 7.5.3.16).
    pub(crate) fn require_completion_timeout(&mut self, given: Option<&Figure<Duration>>) {
        let time = given.map_or(Duration::from_ms(50), |figure| figure.value);
        let holds = (Duration::from_us(50)..=Duration::from_ms(50)).contains(&time);
        self.require(holds, "completion_timeout", format!("not {time}"), "from 50 us to 50 ms");
    }

    /// Reports a time per byte under `key` that is unrealistically long.
    pub(crate) fn require_per_byte(&mut self, key: &str, time: Duration) {
        let holds = time <= PER_BYTE;
        self.require(holds, key, format!("{time} for each byte"), format!("at most {PER_BYTE}"));
    }

    /// Reports a number under `key` outside `least` to `most`; `what` completes the message after the number.
    pub(crate) fn require_within(&mut self, key: &str, number: u64, (least, most): (u64, u64), what: &str) {
        let holds = (least..=most).contains(&number);
        self.require(holds, key, format!("{number} {what}"), format!("from {least} to {most}"));
    }

    /// Reports a `pci_id` that is not vendor and device ID.
    pub(crate) fn require_pci_id(&mut self, id: &str) {
        let is_hex = |part: &str| part.len() == 4 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
        let holds = id.split_once(':').is_some_and(|(vendor, device)| is_hex(vendor) && is_hex(device));
        self.require(
            holds,
            "pci_id",
            format!("`{id}` is not an ID"),
            "vendor and device, such as `10b5:8733`",
        );
    }
}

/// Reports a name that would be ambiguous in cables, options or reports.
pub(crate) fn check_name(name: &Placed<String>, wrong: &mut Vec<Diagnostic>) {
    let is_plain = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    if name.value.is_empty() || !name.value.chars().all(is_plain) {
        let message = format!("`{}` is not a valid name", name.value);
        wrong.push(Diagnostic::new(&name.place, message).help("letters, digits, `-` and `_`, at least one"));
    }
}
