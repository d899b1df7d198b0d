//! Parameters of the NIC's driver in a scenario.

use crate::nic::RINGS;
use crate::placed::{Placed, Several};
use crate::read::{Check, record};
use crate::scalar::{Count, names};
use settings::{Loads, PacketSelect, Stores};
use units::{Bytes, Duration};

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

names! {
    /// Node of memory shared by a device and a core.
    pub enum RingPlace {
        /// The core's.
        Core = "core",
        /// The device's.
        Device = "device",
    }
}

record! {
    /// Parameters of the NIC's driver; the driver's defaults apply to keys that are not given.
    pub struct NicDriverEntry {
        /// Pairs of queues; as many as cores and NIC support if not given.
        channels: Option<Placed<Count>>,
        /// Whether to use the legacy interrupt (INTx), shared by a single pair of queues and all events, even if a
        /// NIC supports MSI-X; false if not given.
        legacy_interrupt: Option<bool>,
        /// Whether the functions of a card that share a MAC address are one network device, named after the first link
        /// (Linux: multi-PF netdev); otherwise, each is one of its own.
        multi_pf: Option<Placed<bool>>,
        /// Whether to distribute pairs of queues over the nodes in turn; otherwise, those of the NIC's node come
        /// first.
        over_nodes: Option<bool>,
        /// Descriptors of a TX ring: a power of two; the value in the first NIC's file if not given, or 512.
        tx_ring: Option<Placed<Count>>,
        /// Descriptors of an RX ring, likewise.
        rx_ring: Option<Placed<Count>>,
        /// Maximum delay from a packet to its interrupt; the value in the NIC's file if not given, or 50 us.
        coalescing: Option<Duration>,
        /// Whether the device shortens that delay at low load; true if not given.
        adaptive: Option<bool>,
        /// Number of packets that triggers an interrupt immediately; 0 for no limit; the value in the NIC's file if
        /// not given, or 64.
        coalescing_packets: Option<u32>,
        /// Node of the rings to which the device writes completions; the core's if not given.
        completions: Option<RingPlace>,
        /// RX queues to which the values of the RSS hash are assigned in turn; all if not given.
        rss: Option<Placed<Several<u32>>>,
        /// Which packets use programmed I/O; none if not given.
        kpio: Option<Placed<KpioSelect>>,
        /// First TCP port for `kpio = "tcp-ports"`; 0 if not given.
        kpio_first_port: Option<u32>,
        /// Last TCP port; 65535 if not given.
        kpio_last_port: Option<u32>,
        /// Maximum frame size for `kpio = "up-to"`; all if not given.
        kpio_up_to: Option<Bytes>,
        /// Frame format; with length and checksum if not given.
        kpio_format: Option<KpioFormat>,
        /// How lines are stored; through write-combining buffers if not given.
        kpio_stores: Option<Stores>,
        /// Whether a fence, rather than padding, flushes a frame's last line, for the framed format; false if not
        /// given.
        kpio_fenced: Option<bool>,
        /// Number of lines after which a fence drains the buffers; 0 (never) if not given, 1 to use one buffer at a
        /// time.
        kpio_fence_every: Option<u32>,
        /// Whether all cores share a queue with a lock; each has its own if not given.
        kpio_shared: Option<bool>,
        /// Whether a core stalls when the queue is full, until link and device accept its stores, as in the paper;
        /// the default depends on the format. Otherwise, it counts lines and gets an interrupt when there is room.
        kpio_stalls: Option<bool>,
        /// Maximum size of received frames that stay in the device for the core to fetch; none if not given.
        held_up_to: Option<Placed<Bytes>>,
        /// How they are fetched; by streaming loads if not given.
        held_loads: Option<Loads>,
        /// Maximum size of frames inside their descriptor, with the descriptor in the doorbell; none if not given.
        inline_up_to: Option<Placed<Bytes>>,
        /// Whether such doorbells are direct stores instead of write-combining ones; write-combining if not given.
        inline_direct: Option<bool>,
    }
    check check
}

/// Maximum size in bytes of a frame after its descriptor in an inline doorbell, and of a frame held in the device.
const INLINE_MOST: u64 = 240;
const HELD_MOST: u64 = 2048;

impl NicDriverEntry {
    /// How packets reach the NIC, if not by descriptors.
    pub fn other_path(&self) -> Option<&'static str> {
        match (self.kpio.as_ref().map(|kpio| kpio.value), self.inline_up_to.as_ref()) {
            (Some(select), _) if select != KpioSelect::Off => Some("packets go by programmed I/O"),
            (_, Some(_)) => Some("short packets go inline"),
            _ => None,
        }
    }
}

fn check(driver: &NicDriverEntry, check: &mut Check<'_>) {
    for (key, ring) in [("tx_ring", &driver.tx_ring), ("rx_ring", &driver.rx_ring)] {
        let fits = ring
            .as_ref()
            .is_none_or(|ring| ring.value.get().is_power_of_two() && RINGS.contains(&ring.value.get()));
        check.require(fits, key, "a ring cannot have as many descriptors", "a power of two from 8 to 32768");
    }
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
    let soon = driver.coalescing.is_none_or(|time| time <= Duration::from_ms(1_000));
    check.require(soon, "coalescing", "no interrupt waits as long", "1 s at most");
    for (key, size, most) in
        [("inline_up_to", &driver.inline_up_to, INLINE_MOST), ("held_up_to", &driver.held_up_to, HELD_MOST)]
    {
        let size = size.as_ref().map_or(1, |size| size.value.get());
        check.require(
            (1..=most).contains(&size),
            key,
            format!("no frame of {size} B fits there"),
            format!("1 to {most} B; without the key, none"),
        );
    }
    check_dependent(driver, check);
}

/// Reports keys that refine a feature that is not used. An explicit `off` is accepted with them, since it may be one
/// of a sweep's values.
fn check_dependent(driver: &NicDriverEntry, check: &mut Check<'_>) {
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
    for (key, given, other, asked) in [
        ("held_loads", driver.held_loads.is_some(), "held_up_to", driver.held_up_to.is_some()),
        ("inline_direct", driver.inline_direct.is_some(), "inline_up_to", driver.inline_up_to.is_some()),
    ] {
        check.require(!given || asked, key, "nothing asks for it", format!("add `{other}`, or leave it out"));
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
