//! Parameters of the NIC's driver in a scenario.

use crate::kpio::{self, KpioFormat, KpioSelect};
use crate::nic::RINGS;
use crate::placed::{Placed, Several};
use crate::read::{Check, record};
use crate::scalar::{Count, names};
use settings::{Loads, Stores};
use units::{Bytes, Duration};

names! {
    /// Node of memory shared by a device and a core.
    pub enum RingPlace {
        /// That of the core that polls the ring.
        Core = "core",
        /// That of the socket at whose root port the device is.
        Device = "device",
    }
}

record! {
    /// Parameters of the NIC's driver; the driver's defaults apply to keys that are not given.
    pub struct NicDriverEntry {
        /// Pairs of queues; as many as cores and NIC support if not given.
        channels: Option<Placed<Count>>,
        /// Whether NICs are reserved for programs that poll them (`dpdk-testpmd`, `l2fwd`), as with vfio-pci; the kernel
        /// has no network devices for them then. False if not given.
        user_space: Option<Placed<bool>>,
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
    for (key, given, other, asked) in [
        ("held_loads", driver.held_loads.is_some(), "held_up_to", driver.held_up_to.is_some()),
        ("inline_direct", driver.inline_direct.is_some(), "inline_up_to", driver.inline_up_to.is_some()),
    ] {
        check.require(!given || asked, key, "nothing asks for it", format!("add `{other}`, or leave it out"));
    }
    kpio::check(driver, check);
}
