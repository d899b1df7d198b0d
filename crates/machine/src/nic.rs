//! The file of a NIC.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::kpio::NicKpio;
use crate::part::LinkCapability;
use crate::read::{Check, record};
use crate::scalar::Count;
use units::{BitRate, Bytes, Duration};

record! {
    /// A NIC as its file describes it.
    pub struct Nic {
        /// Name for references: the file's name without `.toml`.
        name: String,
        /// The NIC file that this one extends.
        extends: Option<String>,
        /// Description, in one line.
        summary: String,
        /// Capability of its PCIe port.
        link: LinkCapability,
        /// What both directions share: ports, queues, limits, latencies.
        controller: NicController,
        /// Transmit path.
        tx: NicPath,
        /// Receive path.
        rx: NicPath,
        /// Flow control of its Ethernet ports, if enabled.
        flow_control: Option<NicFlowControl>,
        /// Queues for programmed I/O, if supported.
        kpio: Option<NicKpio>,
        /// Virtual functions (SR-IOV), if supported.
        virtual_functions: Option<NicVirtual>,
        /// Defaults of its Linux driver; those of ixgbe if not given.
        driver: Option<NicDefaults>,
    }
    check |nic: &Nic, check: &mut Check<'_>| {
        check.at("controller").require_pci_id(&nic.controller.pci_id.value);
        let completion = nic.controller.completion.as_ref().map_or(16, |entry| entry.value.get());
        check.at("controller").require(
            completion == 16 || completion == 64,
            "completion",
            format!("completions of {completion} B are not modelled"),
            "16 B or 64 B",
        );
        let entries = nic.controller.ring_entries.value.get();
        check.at("controller").require(
            entries.is_power_of_two() && (2..=32768).contains(&entries),
            "ring_entries",
            format!("a ring cannot have {entries} entries"),
            "a power of two from 2 to 32768",
        );
        check_controller(nic, &mut check.at("controller"));
        if let Some(own) = &nic.virtual_functions {
            let (count, ports) = (own.count.value.get(), nic.controller.ports.value.get());
            let of = &mut check.at("virtual_functions");
            of.require_pci_id(&own.pci_id.value);
            of.require_within("queue_pairs", own.queue_pairs.value.get().into(), (1, 256), "cannot be told apart");
            of.require_within("vectors", own.vectors.value.get().into(), (2, 1024), "are not possible");
            of.require(
                // Function numbers have eight bits.
                u64::from(ports) * (1 + u64::from(count)) <= 256,
                "count",
                format!("{count} virtual functions for each of {ports} ports"),
                "all functions together at most 256",
            );
        }
        if let Some(own) = &nic.flow_control {
            let (stop, go_on, memory) = (own.stop.value, own.go_on.value, nic.rx.memory.value);
            let of = &mut check.at("flow_control");
            of.require(stop < memory, "stop", format!("`rx.memory` is {memory}, and full before"), "less than `rx.memory`");
            of.require(go_on < stop, "go_on", format!("asked to stop from {stop} on"), "less than `stop`");
        }
        let table = nic.controller.rss_entries.value.get();
        check.at("controller").require(
            table.is_power_of_two() && table <= 1024,
            "rss_entries",
            format!("the table of the receive hash cannot have {table} entries"),
            "a power of two, at most 1024",
        );
        for (name, path) in [("tx", &nic.tx), ("rx", &nic.rx)] {
            for (key, count) in [("fetch", &path.fetch), ("cache", &path.cache), ("write_back", &path.write_back)] {
                check.at(name).require_within(key, count.value.get().into(), (1, 32_768), "descriptors are not possible");
            }
            let memory = path.memory.value.get();
            check.at(name).require_within("memory", memory, (64, 1 << 30), "B are not possible");
            check.at(name).require(
                path.cache.value.get().is_power_of_two(),
                "cache",
                format!("{} descriptors do not make a cache", path.cache.value),
                "a power of two",
            );
        }
    }
}

fn check_controller(nic: &Nic, check: &mut Check<'_>) {
    let controller = &nic.controller;
    for (key, count, limits, what) in [
        ("ports", &controller.ports, (1, 8), "ports are not possible"),
        ("tx_queues", &controller.tx_queues, (1, 256), "queues cannot be told apart"),
        ("rx_queues", &controller.rx_queues, (1, 256), "queues cannot be told apart"),
        // One per pair of queues and one for events; limited by the registers.
        ("vectors", &controller.vectors, (2, 1024), "interrupt vectors are not possible"),
        ("max_fragments", &controller.max_fragments, (1, 255), "fragments are not possible"),
        (
            "tags",
            &controller.tags,
            (1, nic.link.tag_bits.value.tags()),
            "cannot be told apart by the link's `tag_bits`",
        ),
    ] {
        let limits = (limits.0, limits.1.into());
        check.require_within(key, count.value.get().into(), limits, what);
    }
    let rules = controller.flow_rules.value.into();
    check.require_within("flow_rules", rules, (0, 65_535), "rules are not possible");
    if let Some(addresses) = &controller.addresses {
        check.require_within("addresses", addresses.value.into(), (0, 65_535), "addresses are not possible");
    }
    for (key, size, limits) in [
        ("max_frame", &controller.max_frame, (64, 65_535)),
        ("tso_max", &controller.tso_max, (64, 1 << 20)),
        ("read_chunk", &controller.read_chunk, (1, 1 << 20)),
    ] {
        check.require_within(key, size.value.get(), limits, "B are not possible");
    }
    if let Some(chunk) = &controller.write_chunk {
        check.require_within("write_chunk", chunk.value.get(), (1, 1 << 20), "B are not possible");
    }
}

impl Nic {
    /// Whether transmitted frames are looped back to its other port.
    pub fn is_looped(&self) -> bool {
        let controller = &self.controller;
        controller.loopback.is_some() && controller.looped.as_ref().is_none_or(|looped| looped.value)
    }

    /// Whether the functions behind its links share a MAC address.
    pub(crate) fn shares_address(&self) -> bool {
        self.controller.shared_address.as_ref().is_some_and(|shared| shared.value)
    }

    /// Whether these functions can steer flows to each other, so that a driver can make one network device of them.
    pub(crate) fn functions_are_one_station(&self) -> bool {
        self.shares_address() && self.controller.flow_rules.value > 0
    }
}

impl Kindred for Nic {
    const WORD: &'static str = "nic";
    const WHAT: &'static str = "NIC";
    const FOLDER: &'static str = "machines/nics";
    const ABOUT: &'static str = "A network card.";
    const TEMPLATE: Option<[&'static str; 2]> =
        Some(["modern", "controller.tags = { value = 64, source = \"datasheet: ...\" }"]);

    fn summary(&self) -> &str {
        &self.summary
    }
}

record! {
    /// Properties of a NIC's functions.
    pub struct NicController {
        /// PCI vendor and device number, such as `8086:10fb`.
        pci_id: Figure<String>,
        /// Ethernet ports, each with its own function.
        ports: Figure<Count>,
        /// Speed of a port.
        rate: Figure<BitRate>,
        /// TX queues per function.
        tx_queues: Figure<Count>,
        /// RX queues per function.
        rx_queues: Figure<Count>,
        /// Interrupt vectors per function.
        vectors: Figure<Count>,
        /// Maximum entries of a ring.
        ring_entries: Figure<Count>,
        /// Size of a completion in a separate ring: 16, or a whole line of 64; 16 if not given.
        completion: Option<Figure<Bytes>>,
        /// Whether it writes an entry of 64 B to an event queue before each interrupt, for the handler to read; false if
        /// not given.
        event_queues: Option<Figure<bool>>,
        /// Maximum frame size without check sequence (bytes).
        max_frame: Figure<Bytes>,
        /// Maximum fragments of a frame.
        max_fragments: Figure<Count>,
        /// Maximum size of a packet for segmentation offload (bytes).
        tso_max: Figure<Bytes>,
        /// Entries of the receive hash table.
        rss_entries: Figure<Count>,
        /// Flow steering rules per function; 0 for none.
        flow_rules: Figure<u32>,
        /// Additional MAC addresses of a function, each with a queue (VMDq); none if not given.
        addresses: Option<Figure<u32>>,
        /// Maximum outstanding reads on the link.
        tags: Figure<Count>,
        /// Maximum size of a read of frame data (bytes).
        read_chunk: Figure<Bytes>,
        /// Maximum size of a write of frame data (bytes); whole buffers if not given.
        write_chunk: Option<Figure<Bytes>>,
        /// Time from a read's last completion until its data are used; zero if not given.
        read_use: Option<Figure<Duration>>,
        /// Time from a doorbell's arrival until the queue is processed.
        doorbell: Figure<Duration>,
        /// Latency of a register read.
        register_read: Figure<Duration>,
        /// Latency of the internal loopback between port 0 and port 1; no loopback if not given.
        loopback: Option<Figure<Duration>>,
        /// Whether the loopback is active, so that a change can use such ports with cables; true if not given.
        looped: Option<Figure<bool>>,
        /// Whether looped frames arrive in the other of two subnets: the lowest bit of the third byte of IPv4
        /// addresses is flipped. Unchanged if not given.
        loop_subnets: Option<Figure<bool>>,
        /// Whether descriptors can contain short packets, and doorbells descriptors; false if not given.
        inline: Option<Figure<bool>>,
        /// Whether the functions behind its links share a MAC address and appear as one to the network; each has its
        /// own if not given.
        shared_address: Option<Figure<bool>>,
        /// Whether its firmware maps queues to functions, so that a rule for a queue implies the function; otherwise,
        /// its internal switch has separate rules.
        global_rules: Option<Figure<bool>>,
    }
}

record! {
    /// When a NIC sends PAUSE frames (IEEE 802.3, annex 31B).
    pub struct NicFlowControl {
        /// Fill level of its receive memory from which it pauses the peer (bytes).
        stop: Figure<Bytes>,
        /// Fill level below which the peer may continue (bytes).
        go_on: Figure<Bytes>,
    }
}

record! {
    /// A NIC's virtual functions.
    pub struct NicVirtual {
        /// Maximum number per port.
        count: Figure<Count>,
        /// Pairs of TX and RX queues per function.
        queue_pairs: Figure<Count>,
        /// Interrupt vectors per function.
        vectors: Figure<Count>,
        /// PCI vendor and device number.
        pci_id: Figure<String>,
    }
}

record! {
    /// Defaults of a NIC's Linux driver, unless `[host.nic_driver]` of a scenario overrides them.
    pub struct NicDefaults {
        /// Descriptors of a TX ring.
        tx_ring: Figure<Count>,
        /// Descriptors of an RX ring.
        rx_ring: Figure<Count>,
        /// Maximum delay from a packet to its interrupt.
        coalescing: Figure<Duration>,
        /// Number of packets that triggers an interrupt immediately; 0 for no limit.
        coalescing_packets: Figure<u32>,
    }
    check |driver: &NicDefaults, check: &mut Check<'_>| {
        for (key, ring) in [("tx_ring", &driver.tx_ring), ("rx_ring", &driver.rx_ring)] {
            let entries = ring.value.get();
            let fits = entries.is_power_of_two() && RINGS.contains(&entries);
            check.require(fits, key, format!("a ring of {entries} descriptors"), "a power of two from 8 to 32768");
        }
        let soon = driver.coalescing.value <= Duration::from_ms(1_000);
        check.require(soon, "coalescing", "no interrupt waits as long", "1 s at most");
    }
}

/// Allowed sizes of a ring.
pub(crate) const RINGS: std::ops::RangeInclusive<u32> = 8..=32_768;

record! {
    /// One direction of a NIC.
    pub struct NicPath {
        /// Descriptors per fetch.
        fetch: Figure<Count>,
        /// Descriptors that a queue caches in the NIC.
        cache: Figure<Count>,
        /// Completions per write.
        write_back: Figure<Count>,
        /// How long a completion waits for others.
        write_back_delay: Figure<Duration>,
        /// Minimum interval between packets.
        packet_interval: Figure<Duration>,
        /// Packet memory (bytes).
        memory: Figure<Bytes>,
        /// Time from having a packet's data until its first bit, or from its last bit until the first write.
        latency: Figure<Duration>,
    }
}
