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
    }
    check |nic: &Nic, check: &mut Check<'_>| {
        let entries = nic.controller.ring_entries.value.get();
        check.at("controller").require(
            entries.is_power_of_two() && (2..=32768).contains(&entries),
            "ring_entries",
            format!("a ring cannot have {entries} entries"),
            "a power of two from 2 to 32768",
        );
        for (name, queues) in [("tx_queues", &nic.controller.tx_queues), ("rx_queues", &nic.controller.rx_queues)] {
            check.at("controller").require(
                queues.value.get() <= 256,
                name,
                format!("{} queues cannot be told apart", queues.value),
                "at most 256",
            );
        }
        let table = nic.controller.rss_entries.value.get();
        check.at("controller").require(
            table.is_power_of_two() && table <= 1024,
            "rss_entries",
            format!("the table of the receive hash cannot have {table} entries"),
            "a power of two, at most 1024",
        );
        for (name, path) in [("tx", &nic.tx), ("rx", &nic.rx)] {
            check.at(name).require(
                path.cache.value.get().is_power_of_two(),
                "cache",
                format!("{} descriptors do not make a cache", path.cache.value),
                "a power of two",
            );
        }
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
        /// Reads of the link that may be outstanding at once.
        tags: Figure<Count>,
        /// Largest single read of a frame's data (bytes).
        read_chunk: Figure<Bytes>,
        /// From a doorbell's arrival until the queue is looked at.
        doorbell: Figure<Duration>,
        /// A register read.
        register_read: Figure<Duration>,
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
