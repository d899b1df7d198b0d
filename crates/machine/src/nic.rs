//! What a NIC's file says.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::part::LinkCapability;
use crate::read::{Check, record};
use crate::scalar::Count;
use units::{BitRate, Bytes, Duration};

record! {
    /// A NIC as its file describes it.
    pub struct Nic {
        /// The name by which it is referred to: the file's without `.toml`.
        name: String,
        /// The NIC file whose contents this one changes and adds to.
        extends: Option<String>,
        /// What the NIC is, in a line.
        summary: String,
        /// What its PCIe port can do.
        link: LinkCapability,
        /// Its controller.
        controller: NicController,
        /// Sending.
        tx: NicPath,
        /// Receiving.
        rx: NicPath,
        /// Flow control at its Ethernet ports, where it is on.
        flow_control: Option<NicFlowControl>,
        /// Queues for programmed I/O, where it has them.
        kpio: Option<NicKpio>,
        /// Virtual functions (SR-IOV), where it can have them.
        virtual_functions: Option<NicVirtual>,
        /// How its Linux driver sets it up; as ixgbe does if not given.
        driver: Option<NicDefaults>,
    }
    check |nic: &Nic, check: &mut Check<'_>| {
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
            of.require_within("queue_pairs", own.queue_pairs.value.get().into(), (1, 256), "cannot be told apart");
            of.require_within("vectors", own.vectors.value.get().into(), (2, 1024), "are not possible");
            of.require(
                // Eight bits tell functions apart.
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
        // One for a pair of queues and one for events; its registers have room for so many.
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
    /// Whether what it sends goes round inside and arrives at its other port.
    pub fn is_looped(&self) -> bool {
        let controller = &self.controller;
        controller.loopback.is_some() && controller.looped.as_ref().is_none_or(|looped| looped.value)
    }
}

impl Kindred for Nic {
    const WHAT: &'static str = "NIC";
    const FOLDER: &'static str = "machines/nics";
}

record! {
    /// What a NIC's functions have.
    pub struct NicController {
        /// PCI vendor and device number, such as `8086:10fb`.
        pci_id: Figure<String>,
        /// Ethernet ports, each with a function of its own.
        ports: Figure<Count>,
        /// Speed of a port.
        rate: Figure<BitRate>,
        /// Sending queues of a function.
        tx_queues: Figure<Count>,
        /// Receiving queues of a function.
        rx_queues: Figure<Count>,
        /// Interrupt vectors of a function.
        vectors: Figure<Count>,
        /// Most entries of a ring.
        ring_entries: Figure<Count>,
        /// Bytes of a completion in a ring of its own: 16, or a line of 64 written whole; 16 if not given.
        completion: Option<Figure<Bytes>>,
        /// Longest frame without its check sequence (bytes).
        max_frame: Figure<Bytes>,
        /// Most fragments of a frame.
        max_fragments: Figure<Count>,
        /// Most bytes of a frame that is cut into segments.
        tso_max: Figure<Bytes>,
        /// Entries of the receive hash's table.
        rss_entries: Figure<Count>,
        /// Rules that steer flows to queues, for each function; 0 for none.
        flow_rules: Figure<u32>,
        /// Ethernet addresses that a function takes frames for beside its own, each with a queue (VMDq); none if not given.
        addresses: Option<Figure<u32>>,
        /// Reads of the link that may be outstanding at once.
        tags: Figure<Count>,
        /// Largest single read of a frame's data (bytes).
        read_chunk: Figure<Bytes>,
        /// Largest single write of a frame's data (bytes); whole buffers if not given.
        write_chunk: Option<Figure<Bytes>>,
        /// From a read's last completion until what it brought is used; at once if not given.
        read_use: Option<Figure<Duration>>,
        /// From a doorbell's arrival until the queue is looked at.
        doorbell: Figure<Duration>,
        /// A register read.
        register_read: Figure<Duration>,
        /// Frames go round inside, from port 0 to port 1 and back: how long that takes. To the wire if not given.
        loopback: Option<Figure<Duration>>,
        /// Whether they do; so that a change can put ports that have a `loopback` on cables. They do if
        /// not given.
        looped: Option<Figure<bool>>,
        /// Whether they then arrive in the other of two subnets: the lowest bit of the third byte of IPv4 addresses changes on the
        /// way. They stay as they are if not given.
        loop_subnets: Option<Figure<bool>>,
        /// Whether descriptors can hold short packets, and doorbells descriptors; they cannot if not given.
        inline: Option<Figure<bool>>,
        /// Whether the functions behind its links share an Ethernet address and are one to the network; each has its own if not
        /// given.
        shared_address: Option<Figure<bool>>,
        /// Whether its firmware knows which function each queue is of, so that a rule that names a queue names the function, too;
        /// otherwise its internal switch has rules of its own.
        global_rules: Option<Figure<bool>>,
    }
}

record! {
    /// When a NIC asks the other end of its cable to send nothing (IEEE 802.3, annex 31B).
    pub struct NicFlowControl {
        /// Received bytes in its memory from which on it asks.
        stop: Figure<Bytes>,
        /// Bytes at which it takes that back.
        go_on: Figure<Bytes>,
    }
}

record! {
    /// A NIC's virtual functions.
    pub struct NicVirtual {
        /// Most for each port.
        count: Figure<Count>,
        /// Queues of each, so many to send and so many to receive.
        queue_pairs: Figure<Count>,
        /// Interrupt vectors of each.
        vectors: Figure<Count>,
        /// PCI vendor and device number.
        pci_id: Figure<String>,
    }
}

record! {
    /// How a NIC's Linux driver sets it up unless `[host.nic_driver]` of a scenario says otherwise.
    pub struct NicDefaults {
        /// Descriptors of a sending queue.
        tx_ring: Figure<Count>,
        /// Descriptors of a receiving queue.
        rx_ring: Figure<Count>,
        /// Longest wait from a packet to its interrupt.
        coalescing: Figure<Duration>,
        /// Packets after which the interrupt comes at once; 0 for no limit.
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

/// Descriptors that a ring may have.
pub(crate) const RINGS: std::ops::RangeInclusive<u32> = 8..=32_768;

record! {
    /// A NIC's queues for frames that cores write into it (kPIO+WC).
    pub struct NicKpio {
        /// Queues of a function.
        queues: Figure<Count>,
        /// Lines of 64 B that each queue has memory for.
        lines: Figure<Count>,
        /// Positions of lines in each queue's window, at least as many, for the format with length and checksum; the paper's
        /// has as many as lines.
        positions: Figure<Count>,
        /// From a line's arrival until the frame that it ends can leave.
        latency: Figure<Duration>,
        /// How long a line is waited for that others have passed.
        patience: Figure<Duration>,
        /// How long freed lines wait for others before the driver is told.
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

record! {
    /// One of a NIC's directions.
    pub struct NicPath {
        /// Descriptors that one read fetches.
        fetch: Figure<Count>,
        /// Descriptors that a queue keeps in the NIC.
        cache: Figure<Count>,
        /// Completions that are written at once.
        write_back: Figure<Count>,
        /// How long a completion waits for others.
        write_back_delay: Figure<Duration>,
        /// Least time from one packet to the next.
        packet_interval: Figure<Duration>,
        /// Memory for packets (bytes).
        memory: Figure<Bytes>,
        /// From a packet's data being there until its first bit, or from its last bit until the first write.
        latency: Figure<Duration>,
    }
}
