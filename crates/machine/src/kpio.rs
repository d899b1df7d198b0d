//! Programmed I/O in the files of NICs and in the parameters of their driver.

use settings::PacketSelect;
use units::{Bytes, Duration};

use crate::figure::Figure;
use crate::nic_driver::NicDriverEntry;
use crate::read::{Check, record};
use crate::scalar::{Count, names};

record! {
    /// A NIC's queues for frames written by cores (kPIO+WC).
    pub struct NicKpio {
        /// Queues per function.
        queues: Figure<Count>,
        /// Capacity of each queue in lines of 64 B.
        lines: Figure<Count>,
        /// Positions of lines in each queue's window, at least `lines`, for the format with length and checksum; the
        /// paper's window has as many positions as lines.
        positions: Figure<Count>,
        /// Time from a line's arrival until the frame that it completes can be sent.
        latency: Figure<Duration>,
        /// How long a missing line is waited for after later ones have arrived.
        patience: Figure<Duration>,
        /// How long freed lines wait for others before they are reported to the driver.
        report_delay: Figure<Duration>,
    }
    check |kpio: &NicKpio, check: &mut Check<'_>| {
        let (lines, positions) = (kpio.lines.value.get(), kpio.positions.value.get());
        check.require(kpio.queues.value.get() <= 64, "queues", format!("{} queues", kpio.queues.value), "at most 64");
        for (name, count, least) in [("lines", lines, 2), ("positions", positions, lines)] {
            check.require(
                count.is_power_of_two() && count >= least && count <= 1 << 16,
                name,
                format!("there cannot be {count}"),
                format!("a power of two from {least} to 65536"),
            );
        }
    }
}

names! {
    /// Which packets use programmed I/O.
    pub enum KpioSelect {
        /// None.
        Off = "off",
        /// All that fit.
        All = "all",
        /// Those of TCP connections in a range of ports.
        TcpPorts = "tcp-ports",
        /// Those up to a size.
        UpTo = "up-to",
    }
}

/// Reads `off`, `all`, `tcp-ports 5001-5010`, `up-to 256 B`.
pub(crate) fn packets(text: &str) -> Option<PacketSelect> {
    match text.split_once(' ').unwrap_or((text, "")) {
        ("off", "") => Some(PacketSelect::None),
        ("all", "") => Some(PacketSelect::All),
        ("tcp-ports", ports) => {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some(PacketSelect::TcpPorts { first, last })
        }
        ("up-to", size) => Some(PacketSelect::UpTo(u32::try_from(size.parse::<Bytes>().ok()?.get()).ok()?)),
        _ => None,
    }
}

impl NicDriverEntry {
    /// Which packets use programmed I/O when the driver is loaded; `None` if it is loaded without.
    pub fn packets(&self) -> Option<PacketSelect> {
        let port = |port: Option<u32>, otherwise: u16| port.map_or(otherwise, |port| port as u16);
        Some(match self.kpio.as_ref()?.value {
            KpioSelect::Off => PacketSelect::None,
            KpioSelect::All => PacketSelect::All,
            KpioSelect::TcpPorts => PacketSelect::TcpPorts {
                first: port(self.kpio_first_port, 0),
                last: port(self.kpio_last_port, u16::MAX),
            },
            KpioSelect::UpTo => {
                PacketSelect::UpTo(self.kpio_up_to.map_or(u32::MAX, |bytes| bytes.get() as u32))
            }
        })
    }
}

names! {
    /// How the end of a frame is marked.
    pub enum KpioFormat {
        /// By the paper's 64-bit signature.
        Signature = "signature",
        /// By a length, with a checksum.
        Framed = "framed",
    }
}

/// Checks the driver's keys. An explicit `off` is accepted with those that refine another choice, since it may be one of a sweep's
/// values.
pub(crate) fn check(driver: &NicDriverEntry, check: &mut Check<'_>) {
    let port = |port: Option<u32>| port.is_none_or(|port| port <= 65535);
    check.require(port(driver.kpio_first_port), "kpio_first_port", "there is no such port", "0 to 65535");
    check.require(port(driver.kpio_last_port), "kpio_last_port", "there is no such port", "0 to 65535");
    let ordered = driver.kpio_first_port.unwrap_or(0) <= driver.kpio_last_port.unwrap_or(65535);
    let message = "it lies below `kpio_first_port`: no connection would be meant";
    check.require(ordered, "kpio_last_port", message, "no less than it");
    let short = driver.kpio_up_to.is_none_or(|size| size.get() <= 65_535);
    check.require(short, "kpio_up_to", "no packet is as long", "up to 65535 B");
    let seldom = driver.kpio_fence_every.is_none_or(|lines| lines <= 65_535);
    check.require(seldom, "kpio_fence_every", "too many lines", "0 (never) to 65535");
    let select = driver.kpio.as_ref().map(|kpio| kpio.value);
    let (first, last) = (driver.kpio_first_port.is_some(), driver.kpio_last_port.is_some());
    for (key, given, wanted) in [
        ("kpio_first_port", first, KpioSelect::TcpPorts),
        ("kpio_last_port", last, KpioSelect::TcpPorts),
        ("kpio_up_to", driver.kpio_up_to.is_some(), KpioSelect::UpTo),
    ] {
        let holds = !given || select == Some(wanted) || select == Some(KpioSelect::Off);
        check.require(
            holds,
            key,
            "nothing asks for it",
            format!("give `kpio = \"{wanted}\"`, or leave it out"),
        );
    }
    let sized = select != Some(KpioSelect::UpTo) || driver.kpio_up_to.is_some();
    check.require(sized, "kpio", "it does not say up to which size", "add `kpio_up_to`, such as `\"128 B\"`");
    for (key, given) in [
        ("kpio_format", driver.kpio_format.is_some()),
        ("kpio_stores", driver.kpio_stores.is_some()),
        ("kpio_fenced", driver.kpio_fenced.is_some()),
        ("kpio_fence_every", driver.kpio_fence_every.is_some()),
        ("kpio_shared", driver.kpio_shared.is_some()),
        ("kpio_stalls", driver.kpio_stalls.is_some()),
    ] {
        check.require(
            !given || select.is_some(),
            key,
            "nothing goes by programmed I/O",
            "add `kpio`, such as `\"all\"`",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_spelt() {
        let good = [
            ("off", PacketSelect::None),
            ("all", PacketSelect::All),
            ("tcp-ports 80", PacketSelect::TcpPorts { first: 80, last: 80 }),
            ("tcp-ports 5001-5010", PacketSelect::TcpPorts { first: 5001, last: 5010 }),
            ("up-to 256 B", PacketSelect::UpTo(256)),
        ];
        for (text, choice) in good {
            assert_eq!(packets(text), Some(choice), "{text}");
        }
        for text in
            ["", "on", "off 1", "tcp-ports", "tcp-ports 9-8", "tcp-ports 70000", "up-to", "up-to 5 GiB"]
        {
            assert_eq!(packets(text), None, "{text}");
        }
    }
}
