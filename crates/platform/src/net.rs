//! Network devices: the interface between stack and drivers.

use std::borrow::Cow;
use std::rc::Rc;

use units::{BitRate, Duration};

use crate::cpu::{Async, Cpu, CpuId, Node};
use crate::error::Error;
use crate::irq::{Irq, NapiHandle};

pub use crate::packet::{Checksum, Fragment, Packet, PacketDevice, PacketOwner, PacketQueue, TxFlow};
pub use wire::ethernet::MacAddr;
use wire::pcie::FunctionAddress;

/// Features of a network device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetFeatures {
    /// Computes checksums of sent packets.
    pub tx_checksum: bool,
    /// Verifies checksums of received packets.
    pub rx_checksum: bool,
    /// Segments TCP packets (TSO).
    pub tso: bool,
    /// Most bytes of a packet to segment.
    pub tso_max: u32,
    /// Most fragments of a packet.
    pub max_fragments: u16,
    /// Spreads received packets over queues by a hash of the flow (RSS).
    pub rss: bool,
    /// Steers flows to queues (for ARFS).
    pub flow_steering: bool,
}

impl NetFeatures {
    /// Features of devices that act as one: what both have.
    pub fn of_both(&self, other: &Self) -> Self {
        Self {
            tx_checksum: self.tx_checksum && other.tx_checksum,
            rx_checksum: self.rx_checksum && other.rx_checksum,
            tso: self.tso && other.tso,
            tso_max: self.tso_max.min(other.tso_max),
            max_fragments: self.max_fragments.min(other.max_fragments),
            rss: self.rss && other.rss,
            flow_steering: self.flow_steering && other.flow_steering,
        }
    }
}

/// What is on of a network device's offloads (`ethtool -k`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offloads {
    /// Those of the device.
    pub device: NetFeatures,
    /// The stack coalesces received segments (GRO).
    pub gro: bool,
}

/// Packet counters of a network device, kept by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes of those, without check sequence.
    pub rx_bytes: u64,
    /// Received packets without a receiver.
    pub rx_unwanted: u64,
    /// Packets passed to the driver.
    pub tx_packets: u64,
    /// Bytes of those, without check sequence.
    pub tx_bytes: u64,
    /// Packets that the driver has completed.
    pub tx_done: u64,
    /// Packets dropped because the queue in front of the driver was full.
    pub tx_dropped: u64,
    /// Packets dropped because the device was down, removed or without a link.
    pub tx_no_link: u64,
    /// Times that packets had to wait because the driver's ring was full.
    pub tx_stopped: u64,
    /// Times that packets had to wait because of the driver's byte limit.
    pub tx_limited: u64,
    /// Times that a TX queue was stuck.
    pub tx_timeouts: u64,
    /// CPU time of the driver for accepting packets: descriptors, mappings, doorbells.
    pub tx_driver: Duration,
}

impl NetCounters {
    /// Adds the counters of another device.
    pub fn add(&mut self, other: &Self) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        self.rx_unwanted += other.rx_unwanted;
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        self.tx_done += other.tx_done;
        self.tx_dropped += other.tx_dropped;
        self.tx_no_link += other.tx_no_link;
        self.tx_stopped += other.tx_stopped;
        self.tx_limited += other.tx_limited;
        self.tx_timeouts += other.tx_timeouts;
        self.tx_driver += other.tx_driver;
    }
}

/// Counters that only some devices have: name and value.
pub type OwnCounters = Vec<(&'static str, u64)>;

/// Adds counters to those of the same name.
fn add_own_counters(sums: &mut OwnCounters, more: &OwnCounters) {
    for (name, value) in more {
        match sums.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += value,
            None => sums.push((name, *value)),
        }
    }
}

/// Transmit counters of a device and its driver since the driver was loaded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TxStatistics {
    /// Frames sent by the device.
    pub frames: u64,
    /// Frames that the device failed to send: bad descriptors, failed reads.
    pub failed: u64,
    /// Frames dropped by the device for lack of a link.
    pub no_carrier: u64,
    /// Packets in the device when it was stopped or reset.
    pub lost: u64,
    /// Packets refused by the driver: too many fragments, no mapping.
    pub refused: u64,
    /// Device resets.
    pub resets: u64,
    /// Packets that the device accepted and dropped for other reasons.
    pub dropped: u64,
    /// The driver's own counters.
    pub own: OwnCounters,
}

impl TxStatistics {
    /// Adds the counters of another device.
    pub fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        self.failed += other.failed;
        self.no_carrier += other.no_carrier;
        self.lost += other.lost;
        self.refused += other.refused;
        self.resets += other.resets;
        self.dropped += other.dropped;
        add_own_counters(&mut self.own, &other.own);
    }
}

/// Other counters of a device since the driver was loaded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceStatistics {
    /// Received frames dropped because their queue had no buffer.
    pub rx_no_buffer: u64,
    /// Received frames dropped because the device's own memory was full.
    pub rx_overflow: u64,
    /// Received frames with a bad check sequence.
    pub rx_damaged: u64,
    /// Received frames that were too short or too long.
    pub rx_length_errors: u64,
    /// Received frames for other addresses.
    pub rx_filtered: u64,
    /// Received frames whose queue is stopped.
    pub rx_no_queue: u64,
    /// The driver's own counters.
    pub own: OwnCounters,
}

impl DeviceStatistics {
    /// Adds the counters of another device.
    pub fn add(&mut self, other: &Self) {
        self.rx_no_buffer += other.rx_no_buffer;
        self.rx_overflow += other.rx_overflow;
        self.rx_damaged += other.rx_damaged;
        self.rx_length_errors += other.rx_length_errors;
        self.rx_filtered += other.rx_filtered;
        self.rx_no_queue += other.rx_no_queue;
        add_own_counters(&mut self.own, &other.own);
    }
}

/// Fixed properties of a network device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetLimits {
    /// Name of the network device, in which `%d` stands for the first free number (Linux: `alloc_netdev`).
    pub name: Cow<'static, str>,
    /// Ethernet address.
    pub mac: MacAddr,
    /// Number of TX queues.
    pub tx_queues: u16,
    /// Number of RX queues.
    pub rx_queues: u16,
    /// Largest MTU.
    pub max_mtu: u16,
    /// Port speed.
    pub speed: BitRate,
    /// Offloads that the device has; see [`NetDriver::set_features`] for those that are on.
    pub features: NetFeatures,
    /// Whether a packet may be sent again while it is still in the device (Linux: `IFF_TX_SKB_SHARING`).
    pub shares_packets: bool,
}

/// Interrupt moderation of a queue pair (`ethtool -C`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coalescing {
    /// Longest delay from a packet to its interrupt.
    pub time: Duration,
    /// Packets after which the interrupt is raised at once; 0 for no limit.
    pub packets: u32,
    /// Whether the device shortens the delay at low load.
    pub adaptive: bool,
}

/// Descriptors of a queue pair's rings (`ethtool -G`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rings {
    /// Of the TX ring.
    pub tx: u32,
    /// Of the RX ring.
    pub rx: u32,
}

/// A flow in a steering table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey {
    /// IP protocol number.
    pub protocol: u8,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
    /// Source and destination port.
    pub ports: (u16, u16),
}

/// ID of a steering rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleId(pub u32);

/// A network device of a driver.
pub trait NetDriver {
    /// Fixed properties: address, queues, sizes.
    fn limits(&self) -> NetLimits;

    /// Opens the device: rings, interrupts, link.
    fn open<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;

    /// Closes the device. Afterwards no packet is delivered, and all sent packets have been released.
    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;

    /// Sends a packet on a queue. With `more`, others follow at once and the doorbell may be delayed.
    ///
    /// # Errors
    /// Returns the packet if the queue is full; [`NetCore::wake_queue`] follows when it is not.
    fn transmit(&self, cpu: &Cpu, queue: u16, packet: Packet, more: bool) -> Result<(), Packet>;

    /// Rings the doorbell for packets sent with `more`, since no other packet follows after all.
    fn flush(&self, cpu: &Cpu, queue: u16) {
        let _ = (cpu, queue);
    }

    /// A TX queue has been full for too long: recovers it, in a task.
    fn timed_out<'a>(&'a self, cpu: &'a Cpu, queue: u16) -> Async<'a, ()> {
        let _ = (cpu, queue);
        Box::pin(async {})
    }

    /// Transmit counters, read from the device (like `ethtool -S`).
    fn statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, TxStatistics> {
        let _ = cpu;
        Box::pin(async { TxStatistics::default() })
    }

    /// Other counters, read from the device.
    fn device_statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, DeviceStatistics> {
        let _ = cpu;
        Box::pin(async { DeviceStatistics::default() })
    }

    /// The TX queue of a core (XPS).
    fn tx_queue_for(&self, cpu: CpuId) -> u16;

    /// Turns features on or off. Returns those that are on afterwards.
    fn set_features(&self, cpu: &Cpu, wanted: &NetFeatures) -> NetFeatures;

    /// The RX queue polled on a core, or near it (ARFS).
    fn rx_queue_for(&self, cpu: CpuId) -> u16 {
        self.tx_queue_for(cpu)
    }

    /// Node of the function behind an RX queue (Linux: `dev_to_node`, of the queue's device where it differs from the
    /// network device's, `netdev_queue_get_dma_dev`); `None` if there is no such queue or its function is down.
    fn node_of(&self, queue: u16) -> Option<Node> {
        let _ = queue;
        None
    }

    /// Most packets that an RX queue can hold, which is its number of buffers; `None` if unknown.
    fn rx_outstanding(&self, queue: u16) -> Option<u32> {
        let _ = queue;
        None
    }

    /// Sets the RSS indirection table.
    ///
    /// # Errors
    /// If the device has none.
    fn set_indirection(&self, cpu: &Cpu, table: &[u16]) -> Result<(), Error> {
        let _ = (cpu, table);
        Err(Error::NotSupported)
    }

    /// Accepts packets for any address (promiscuous mode).
    fn set_promiscuous(&self, cpu: &Cpu, on: bool) {
        let _ = (cpu, on);
    }

    /// Steers a flow to an RX queue (ARFS), or changes its queue. Rules survive a device reset.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the table is full, [`Error::NotSupported`] if there is none.
    fn steer(&self, cpu: &Cpu, flow: FlowKey, queue: u16) -> Result<RuleId, Error> {
        let _ = (cpu, flow, queue);
        Err(Error::NotSupported)
    }

    /// Removes a rule.
    fn unsteer(&self, cpu: &Cpu, rule: RuleId) {
        let _ = (cpu, rule);
    }

    /// Accepts frames for a further Ethernet address into a queue of its own (VMDq), or changes its queue without
    /// reordering frames. `None` removes the address. Survives a device reset.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the table is full, [`Error::NotSupported`] if there is none, [`Error::Invalid`] if there
    /// is no such queue, [`Error::Busy`] if the device is closed.
    fn set_address(&self, cpu: &Cpu, mac: MacAddr, queue: Option<u16>) -> Result<(), Error> {
        let _ = (cpu, mac, queue);
        Err(Error::NotSupported)
    }

    /// Poll handle of a queue pair; `None` if there is no such pair.
    fn poll_of(&self, queue: u16) -> Option<NapiHandle> {
        let _ = queue;
        None
    }

    /// Interrupt of a queue pair; `None` if there is no such pair.
    fn interrupt_of(&self, queue: u16) -> Option<Irq> {
        let _ = queue;
        None
    }

    /// RSS indirection table; empty if there is none.
    fn indirection(&self) -> Vec<u16> {
        Vec::new()
    }

    /// Sets the interrupt moderation of a queue pair. Survives resets.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device cannot, [`Error::Invalid`] if there is no such queue.
    fn set_coalescing(&self, cpu: &Cpu, queue: u16, wanted: Coalescing) -> Result<(), Error> {
        let _ = (cpu, queue, wanted);
        Err(Error::NotSupported)
    }

    /// Interrupt moderation of a queue pair; `None` if unknown.
    fn coalescing(&self, queue: u16) -> Option<Coalescing> {
        let _ = queue;
        None
    }

    /// Sets the sizes of all rings. A device that is open restarts, and loses the packets in its rings. Survives resets.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device cannot, [`Error::Invalid`] if it has no such rings, [`Error::Io`] if it
    /// does not start again.
    fn set_rings<'a>(&'a self, cpu: &'a Cpu, wanted: Rings) -> Async<'a, Result<(), Error>> {
        let _ = (cpu, wanted);
        Box::pin(async { Err(Error::NotSupported) })
    }

    /// Sizes of the rings; `None` if unknown.
    fn rings(&self) -> Option<Rings> {
        None
    }

    /// PCI function of the device.
    fn function(&self) -> Option<FunctionAddress> {
        None
    }
}

/// How a program wants a device that it polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollSetup {
    /// Pairs of queues.
    pub queues: u16,
    /// Descriptors of each ring, powers of two. A paravirtual device has rings of its own size.
    pub rings: Rings,
}

/// A network device that one program owns and polls, bypassing the kernel (DPDK). Packets to send lie in memory of whole
/// huge pages of 2 MiB, or are received ones.
pub trait PollDevice {
    /// Takes the device from the kernel, accepts all frames, and waits for the link.
    ///
    /// # Errors
    /// [`Error::Busy`] if the kernel or another program uses it, [`Error::Invalid`] if it has no such queues or rings,
    /// or the device's error.
    fn start<'a>(&'a self, cpu: &'a Cpu, setup: PollSetup) -> Async<'a, Result<(), Error>>;
    /// Ethernet address.
    fn mac(&self) -> MacAddr;
    /// Takes received packets of a queue until `into` has `most`, or there are no more, and posts free buffers.
    fn receive(&self, cpu: &Cpu, queue: u16, into: &mut Vec<Packet>, most: usize);
    /// Sends packets on a queue. Packets without room stay in `packets`.
    fn send(&self, cpu: &Cpu, queue: u16, packets: &mut Vec<Packet>);
}

/// File by which programs find such a device.
pub struct PollFile(pub Rc<dyn PollDevice>);

/// A stacked device above a network device, in place of the stack: a team, or the switch of virtual machines.
///
/// In Linux, a stacked device registers an `rx_handler` and a notifier. It needs nothing for transmitted packets, as they
/// wait in queues of the device below it, nor at the end of a poll, as Linux lets packets be reordered for a moment when
/// a device changes a flow's queue. Here packets wait in queues of the upper device, and none is reordered.
pub trait NetUpper {
    /// A packet was received on a queue, in the poll of `napi` (Linux: `rx_handler`).
    fn receive(&self, cpu: &Cpu, napi: &NapiHandle, queue: u16, packet: Packet);
    /// A poll of an RX queue ends, as in [`NetCore::poll_end`] (Linux: none).
    fn poll_end(&self, cpu: &Cpu, queue: u16, emptied: bool);
    /// Packets of a TX queue were sent or have failed (Linux: none).
    fn sent(&self, cpu: &Cpu, queue: u16, packets: u32, bytes: u64);
    /// A TX queue has room again (Linux: none).
    fn queue_woken(&self, cpu: &Cpu, queue: u16);
    /// The link went up or down, or the device is gone (Linux: `NETDEV_CHANGE`, `NETDEV_UNREGISTER`).
    fn changed(&self);
}

/// The kernel's interface for network drivers.
pub trait NetCore {
    /// Device name.
    fn name(&self) -> String;
    /// A packet was received on a queue, in the poll of `napi`.
    fn receive(&self, cpu: &Cpu, napi: &NapiHandle, queue: u16, packet: Packet);
    /// A poll of an RX queue ends: passes on coalesced packets. `emptied` if the device had written nothing more to
    /// the queue just now.
    fn poll_end(&self, cpu: &Cpu, queue: u16, emptied: bool) {
        let _ = (cpu, queue, emptied);
    }
    /// Packets of a TX queue were sent or have failed.
    fn sent(&self, cpu: &Cpu, queue: u16, packets: u32, bytes: u64) {
        let _ = (cpu, queue, packets, bytes);
    }
    /// A TX queue has room again.
    fn wake_queue(&self, cpu: &Cpu, queue: u16);
    /// The link went up or down.
    fn set_carrier(&self, up: bool);
    /// Removes the device.
    fn unregister<'a>(self: Rc<Self>, cpu: &'a Cpu) -> Async<'a, ()>;
}
