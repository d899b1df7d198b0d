//! Network devices: what a driver offers and what it is asked.

use std::rc::Rc;

use units::{BitRate, Duration};

use crate::cpu::{Async, Cpu, CpuId, Node};
use crate::error::Error;
use crate::irq::{Irq, NapiHandle};

pub use crate::packet::{Checksum, Fragment, Packet, PacketDevice, PacketOwner, PacketQueue, TxFlow};
pub use wire::ethernet::MacAddr;
use wire::pcie::FunctionAddress;

/// What a network device can do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetFeatures {
    /// Sums checksums of sent packets.
    pub tx_checksum: bool,
    /// Checks those of received ones.
    pub rx_checksum: bool,
    /// Cuts TCP segments.
    pub tso: bool,
    /// Most bytes of a packet to be cut.
    pub tso_max: u32,
    /// Most fragments of a packet.
    pub max_fragments: u16,
    /// Spreads received packets over queues by their hash.
    pub rss: bool,
    /// Steers flows to queues (for ARFS).
    pub flow_steering: bool,
}

/// What has passed a network device, as its kernel counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetCounters {
    /// Packets that were received.
    pub rx_packets: u64,
    /// Their bytes, without check sequence.
    pub rx_bytes: u64,
    /// Received packets that nobody wanted.
    pub rx_unwanted: u64,
    /// Packets given to the driver.
    pub tx_packets: u64,
    /// Their bytes, without check sequence.
    pub tx_bytes: u64,
    /// Packets that the driver has reported as gone.
    pub tx_done: u64,
    /// Packets dropped because the queue before the driver was full.
    pub tx_dropped: u64,
    /// Packets dropped because the device was down, gone or without carrier.
    pub tx_no_link: u64,
    /// How often a packet had to wait because the driver's ring was full.
    pub tx_stopped: u64,
    /// How often a packet had to wait because the driver had bytes enough.
    pub tx_limited: u64,
    /// How often a sending queue was stuck.
    pub tx_timeouts: u64,
    /// Time that the driver took to take packets: descriptors, mappings, doorbells.
    pub tx_driver: Duration,
}

/// What a device and its driver have counted of sending since the driver came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxStatistics {
    /// Frames that the device has sent.
    pub frames: u64,
    /// Frames that it could not send: bad descriptors, failed reads.
    pub failed: u64,
    /// Frames that it dropped for want of a carrier.
    pub no_carrier: u64,
    /// Packets that were in the device when it was stopped or reset.
    pub lost: u64,
    /// Packets that the driver could not give it: wrong fragments, no mapping.
    pub refused: u64,
    /// How often the device was reset.
    pub resets: u64,
    /// Packets sent by programmed I/O.
    pub lines: u64,
    /// Packets by descriptor though programmed I/O is chosen, because their queue has no way for it.
    pub no_lines: u64,
    /// Packets by descriptor because they are too long for programmed I/O.
    pub too_long: u64,
    /// Packets by programmed I/O that the device has given up, as their lines did not come or were mixed.
    pub lines_dropped: u64,
    /// Numbers of such packets that it has missed: of those that it has given up, and of those that never began.
    pub lines_missing: u64,
}

/// What else a device has counted since the driver came, which no sender needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceStatistics {
    /// Received frames that it dropped because their queue had no buffer.
    pub rx_no_buffer: u64,
    /// Received frames that it dropped because its own memory was full.
    pub rx_overflow: u64,
    /// Received frames with a wrong check sequence.
    pub rx_damaged: u64,
    /// Received frames that were too short or too long.
    pub rx_length_errors: u64,
    /// Received frames for nobody here.
    pub rx_filtered: u64,
    /// Received frames whose queue does not run.
    pub rx_no_queue: u64,
    /// How often it has given up waiting for a line.
    pub line_waits: u64,
}

/// What a network device is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetLimits {
    /// Prefix of the device's name.
    pub kind: &'static str,
    /// Its address.
    pub mac: MacAddr,
    /// Sending queues.
    pub tx_queues: u16,
    /// Receiving queues.
    pub rx_queues: u16,
    /// Largest packet without its Ethernet header.
    pub max_mtu: u16,
    /// Speed of its port.
    pub speed: BitRate,
    /// What it can do.
    pub features: NetFeatures,
    /// The node that its function is near to (`/sys/class/net/eth0/device/numa_node`); none of a device without a function.
    pub node: Option<Node>,
}

/// How long the interrupt of a pair of queues waits for more packets (`ethtool -C`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coalescing {
    /// Longest wait from a packet to its interrupt.
    pub time: Duration,
    /// Packets after which it comes at once; 0 for no limit.
    pub packets: u32,
    /// The device shortens the wait when there is little to do.
    pub adaptive: bool,
}

/// A flow, as steering tables know it.
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

/// A rule of a steering table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleId(pub u32);

/// A driver's network device.
pub trait NetDriver {
    /// What cannot be changed of it: address, queues, lengths.
    fn limits(&self) -> NetLimits;

    /// Starts it: rings, interrupts, link.
    fn open<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;

    /// Stops it. No packet is delivered, and none sent stays unreleased, after this.
    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;

    /// Sends a packet on a queue. With `more`, others follow at once and the doorbell can wait.
    ///
    /// # Errors
    /// Gives the packet back if the queue is full; [`NetCore::wake_queue`] says when it is not.
    fn transmit(&self, cpu: &Cpu, queue: u16, packet: Packet, more: bool) -> Result<(), Packet>;

    /// Rings the doorbell for what was sent with `more`, as no other packet follows after all.
    fn flush(&self, cpu: &Cpu, queue: u16) {
        let _ = (cpu, queue);
    }

    /// A sending queue has been full for too long: whatever it takes to make it go on, in a task.
    fn timed_out<'a>(&'a self, cpu: &'a Cpu, queue: u16) -> Async<'a, ()> {
        let _ = (cpu, queue);
        Box::pin(async {})
    }

    /// What was sent and what was not, by the device's own registers (as `ethtool -S` reads them).
    fn statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, TxStatistics> {
        let _ = cpu;
        Box::pin(async { TxStatistics::default() })
    }

    /// What else the device has counted, by its own registers.
    fn device_statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, DeviceStatistics> {
        let _ = cpu;
        Box::pin(async { DeviceStatistics::default() })
    }

    /// The core at which a sending queue is at home (XPS).
    fn tx_queue_for(&self, cpu: CpuId) -> u16;

    /// Turns features on or off; gives what is on afterwards.
    fn set_features(&self, cpu: &Cpu, wanted: &NetFeatures) -> NetFeatures;

    /// The receiving queue that is polled on a core, or near it (ARFS).
    fn rx_queue_for(&self, cpu: CpuId) -> u16 {
        self.tx_queue_for(cpu)
    }

    /// The nodes to which it is local: several if its functions are at several.
    fn nodes(&self) -> Vec<Node> {
        self.limits().node.into_iter().collect()
    }

    /// Packets that may wait in a receiving queue, at most: buffers that the device has. None if that is not known.
    fn rx_outstanding(&self, queue: u16) -> Option<u32> {
        let _ = queue;
        None
    }

    /// Sets which queue each value of the RSS hash goes to.
    ///
    /// # Errors
    /// If the device cannot.
    fn set_indirection(&self, cpu: &Cpu, table: &[u16]) -> Result<(), Error> {
        let _ = (cpu, table);
        Err(Error::NotSupported)
    }

    /// Takes packets of any address, not just its own.
    fn set_promiscuous(&self, cpu: &Cpu, on: bool) {
        let _ = (cpu, on);
    }

    /// Steers a flow to a receiving queue (ARFS), or elsewhere than before. Rules outlive a reset of the device.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the table is full, [`Error::NotSupported`] if there is none.
    fn steer(&self, cpu: &Cpu, flow: FlowKey, queue: u16) -> Result<RuleId, Error> {
        let _ = (cpu, flow, queue);
        Err(Error::NotSupported)
    }

    /// Forgets a rule.
    fn unsteer(&self, cpu: &Cpu, rule: RuleId) {
        let _ = (cpu, rule);
    }

    /// Takes frames for a further Ethernet address, into a queue of its own (VMDq), or into another one than before: none of them
    /// passes another. Without a queue they are not taken any more. It outlives a reset of the device.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the table is full, [`Error::NotSupported`] if there is none, [`Error::Invalid`] if there is no such
    /// queue, [`Error::Busy`] if the device is not open.
    fn set_address(&self, cpu: &Cpu, mac: MacAddr, queue: Option<u16>) -> Result<(), Error> {
        let _ = (cpu, mac, queue);
        Err(Error::NotSupported)
    }

    /// What polls a pair of queues; none if there is no such pair.
    fn poll_of(&self, queue: u16) -> Option<NapiHandle> {
        let _ = queue;
        None
    }

    /// The interrupt of a pair of queues; none if there is no such pair.
    fn interrupt_of(&self, queue: u16) -> Option<Irq> {
        let _ = queue;
        None
    }

    /// Which queue each value of the RSS hash goes to; empty if there is no such table.
    fn indirection(&self) -> Vec<u16> {
        Vec::new()
    }

    /// Sets how long the interrupt of a pair of queues waits, from now on and over resets.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device cannot, [`Error::Invalid`] if there is no such queue.
    fn set_coalescing(&self, cpu: &Cpu, queue: u16, wanted: Coalescing) -> Result<(), Error> {
        let _ = (cpu, queue, wanted);
        Err(Error::NotSupported)
    }

    /// How long it waits; `None` if nobody knows.
    fn coalescing(&self, queue: u16) -> Option<Coalescing> {
        let _ = queue;
        None
    }

    /// The PCI function behind it.
    fn function(&self) -> Option<FunctionAddress> {
        None
    }

    /// What its device is to be called; if nobody cares, its kind with a number.
    fn name(&self) -> Option<String> {
        None
    }
}

/// A network device that one program has for itself and polls, past the kernel (DPDK's drivers).
pub trait PollDevice {
    /// Takes it.
    ///
    /// # Errors
    /// [`Error::Busy`] if the kernel uses it, or another program; what the device says.
    fn start<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;
    /// Takes received packets, until `into` has so many or no more are there.
    fn receive(&self, cpu: &Cpu, into: &mut Vec<Packet>, most: usize);
    /// Sends packets and gives the device buffers again; packets for which there is no room are left.
    fn send(&self, cpu: &Cpu, packets: &mut Vec<Packet>);
}

/// The file by which programs find such a device.
pub struct PollFile(pub Rc<dyn PollDevice>);

/// Who stands above a network device in place of the stack: a device that is made of others (Linux: `rx_handler`, and the
/// notifications of network devices).
pub trait NetUpper {
    /// The device has received a packet on a queue, in the poll of `napi`.
    fn receive(&self, cpu: &Cpu, napi: &NapiHandle, queue: u16, packet: Packet);
    /// A poll of a receiving queue ends, as in [`NetCore::poll_end`].
    fn poll_end(&self, cpu: &Cpu, queue: u16, emptied: bool);
    /// Packets of a sending queue have left, or have failed.
    fn sent(&self, cpu: &Cpu, queue: u16, packets: u32, bytes: u64);
    /// A sending queue has room again.
    fn queue_woken(&self, cpu: &Cpu, queue: u16);
    /// The device's link came up or went down, or the device has gone.
    fn changed(&self);
}

/// What a network driver hands things to.
pub trait NetCore {
    /// The device's name.
    fn name(&self) -> String;
    /// A packet was received on a queue, in the poll of `napi`.
    fn receive(&self, cpu: &Cpu, napi: &NapiHandle, queue: u16, packet: Packet);
    /// A poll of a receiving queue ends: what was held back to be coalesced goes on. `emptied` if the device had
    /// written nothing more to the queue when it was looked at last, just now.
    fn poll_end(&self, cpu: &Cpu, queue: u16, emptied: bool) {
        let _ = (cpu, queue, emptied);
    }
    /// Packets of a sending queue have left, or have failed.
    fn sent(&self, cpu: &Cpu, queue: u16, packets: u32, bytes: u64) {
        let _ = (cpu, queue, packets, bytes);
    }
    /// A sending queue has room again.
    fn wake_queue(&self, cpu: &Cpu, queue: u16);
    /// The link came up or went down.
    fn set_carrier(&self, up: bool);
    /// Takes the device back.
    fn unregister<'a>(self: Rc<Self>, cpu: &'a Cpu) -> Async<'a, ()>;
}
