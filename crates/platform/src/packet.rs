//! Packets, and network devices as seen by programs that make their own frames.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::memory::{Pages, PhysAddr};
use crate::net::{
    Coalescing, DeviceStatistics, NetCounters, NetDriver, NetLimits, NetUpper, Offloads, TxStatistics,
};
use crate::sync::WaitQueue;

/// A contiguous piece of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// The pages that contain it, for the packet's [owner](Packet::owner).
    pub pages: Option<Pages>,
    /// Start address.
    pub at: PhysAddr,
    /// Bytes.
    pub length: u32,
}

/// Checksum state of a received packet, or checksum request for a sent one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksum {
    /// Not checked; nothing to do.
    #[default]
    None,
    /// Received: verified by the device.
    Good,
    /// To send: sum from `start` to the end and store the result.
    Offload {
        /// Where the sum starts.
        start: u16,
        /// Where to store it, relative to `start`.
        offset: u16,
    },
}

/// Owner of a packet's buffers.
pub trait PacketOwner {
    /// The packet was sent, dropped or consumed; its buffers can be reused.
    fn released(&self, cpu: &Cpu, packet: &mut Packet);
}

/// Packets of a socket, which have to stay in order.
#[derive(Default)]
pub struct TxFlow {
    /// The TX queue that they use.
    pub queue: Cell<Option<u16>>,
    /// Packets not yet [released](Packet::release). The queue only changes when there are none.
    pub outstanding: Cell<u32>,
    /// Bytes of those.
    pub bytes: Cell<u64>,
}

/// A packet. It is [released](Self::release) exactly once, by whoever holds it last.
#[derive(Default)]
pub struct Packet {
    /// Data in order; the headers are in the first fragment.
    pub fragments: Vec<Fragment>,
    /// Checksum state.
    pub checksum: Checksum,
    /// To send: payload bytes per segment, 0 for no segmentation (TSO). Received: payload per coalesced segment.
    pub segment: u16,
    /// Length of the headers, which each segment repeats.
    pub headers: u16,
    /// Received: the RSS hash.
    pub hash: u32,
    /// May be sent on another queue without regard to earlier packets of its flow.
    pub may_reorder: bool,
    /// To send: the flow that has to stay in order; set by [`join`](Self::join).
    pub flow: Option<Rc<TxFlow>>,
    /// Owner of the buffers. Packets of one owner may be joined.
    pub owner: Option<Rc<dyn PacketOwner>>,
}

impl Packet {
    /// A packet in one piece of memory; everything else has its default.
    pub fn of(fragment: Fragment, owner: Option<Rc<dyn PacketOwner>>) -> Self {
        Self { fragments: vec![fragment], owner, ..Self::default() }
    }

    /// Total length (bytes).
    pub fn length(&self) -> u32 {
        self.fragments.iter().map(|f| f.length).sum()
    }

    /// Frames that a device makes of it.
    pub fn frames(&self) -> u32 {
        match u32::from(self.segment) {
            0 => 1,
            segment => self.length().saturating_sub(self.headers.into()).div_ceil(segment).max(1),
        }
    }

    /// Adds the packet to a flow.
    pub fn join(&mut self, flow: &Rc<TxFlow>) {
        self.may_reorder = flow.outstanding.get() == 0;
        flow.outstanding.set(flow.outstanding.get() + 1);
        flow.bytes.set(flow.bytes.get() + u64::from(self.length()));
        self.flow = Some(Rc::clone(flow));
    }

    /// Returns its buffers to their owner.
    pub fn release(mut self, cpu: &Cpu) {
        if let Some(flow) = self.flow.take() {
            flow.outstanding.set(flow.outstanding.get().saturating_sub(1));
            flow.bytes.set(flow.bytes.get().saturating_sub(self.length().into()));
        }
        if let Some(owner) = self.owner.take() {
            owner.released(cpu, &mut self);
        }
    }

    /// Loads its first bytes through the caches. Returns how many there were.
    pub fn load(&self, cpu: &Cpu, into: &mut [u8]) -> usize {
        self.load_from(cpu, 0, into)
    }

    /// As [`load`](Self::load), starting behind `skipped` bytes.
    pub fn load_from(&self, cpu: &Cpu, skipped: usize, into: &mut [u8]) -> usize {
        let (mut filled, mut skipped) = (0, skipped as u64);
        for fragment in &self.fragments {
            let here = skipped.min(fragment.length.into());
            skipped -= here;
            let length = (into.len() - filled).min(fragment.length as usize - here as usize);
            if length > 0 {
                cpu.load(fragment.at + here, &mut into[filled..filled + length]);
                filled += length;
            }
        }
        filled
    }
}

/// A queue of received packets for a program.
pub struct PacketQueue {
    ether_type: Option<u16>,
    depth: usize,
    packets: RefCell<VecDeque<Packet>>,
    dropped: Cell<u64>,
    arrived: WaitQueue,
}

impl PacketQueue {
    /// For kernels: a queue for one EtherType, or all, of at most `depth` packets.
    pub fn new(ether_type: Option<u16>, depth: usize) -> Rc<Self> {
        Rc::new(Self {
            ether_type,
            depth,
            packets: RefCell::default(),
            dropped: Cell::new(0),
            arrived: WaitQueue::new(),
        })
    }

    /// For kernels: whether the queue accepts this type.
    pub fn wants(&self, ether_type: u16) -> bool {
        self.ether_type.is_none_or(|wanted| wanted == ether_type)
    }

    /// For kernels: adds a received packet.
    pub fn put(&self, cpu: &Cpu, packet: Packet) {
        if self.packets.borrow().len() >= self.depth {
            self.dropped.set(self.dropped.get() + 1);
            packet.release(cpu);
            return;
        }
        self.packets.borrow_mut().push_back(packet);
        self.arrived.wake_one();
    }

    /// Takes the next packet, if any. The caller releases it.
    pub fn try_take(&self) -> Option<Packet> {
        self.packets.borrow_mut().pop_front()
    }

    /// Waits for the next packet.
    pub async fn take(&self) -> Packet {
        self.arrived.wait_for(|| self.try_take()).await
    }

    /// Packets dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}

/// A network device as seen by programs that make their own frames.
pub trait PacketDevice {
    /// Name as in `ip link`, such as `eth0`.
    fn name(&self) -> String;
    /// Fixed properties: address, queues, sizes.
    fn limits(&self) -> NetLimits;
    /// Whether its link is up.
    fn has_carrier(&self) -> bool;
    /// Packets and bytes sent, received and dropped so far.
    fn counters(&self) -> NetCounters;
    /// Transmit counters of device and driver; zero if they are gone.
    fn statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, TxStatistics>;
    /// Other counters of the device; zero if it is gone.
    fn device_statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, DeviceStatistics>;
    /// Opens the device.
    ///
    /// # Errors
    /// If the driver fails; [`Error::NoDevice`] if it is gone.
    fn open<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;
    /// Closes the device (`ip link set down`).
    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;
    /// The TX queue of a core.
    fn tx_queue_for(&self, cpu: &Cpu) -> u16;
    /// Sends a frame as the stack does, through the queue in front of the driver.
    ///
    /// # Errors
    /// If it was dropped; it has been released.
    fn send(&self, cpu: &Cpu, packet: Packet, more: bool) -> Result<(), Error>;
    /// Passes a frame directly to the driver, like Linux's pktgen. Nothing else may use that queue.
    ///
    /// # Errors
    /// Returns the packet if the queue is full or the link is down.
    fn send_directly(&self, cpu: &Cpu, queue: u16, packet: Packet, more: bool) -> Result<(), Packet>;
    /// Waits until a full queue has room; `false` if the device is gone or its link is down.
    fn room(&self, queue: u16) -> Async<'_, bool>;
    /// Diverts received frames of an EtherType, or all, from the stack, until the queue is dropped.
    fn listen(&self, ether_type: Option<u16>, depth: usize) -> Rc<PacketQueue>;
    /// Sets the RSS indirection table (`ethtool -X`). Survives resets.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device has none, [`Error::Invalid`] if it has no such queue.
    fn set_indirection(&self, cpu: &Cpu, table: &[u16]) -> Result<(), Error>;
    /// Sets the interrupt moderation of a queue pair (`ethtool -C`). Survives resets.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device cannot, [`Error::Invalid`] if it has no such queue.
    fn set_coalescing(&self, cpu: &Cpu, queue: u16, wanted: Coalescing) -> Result<(), Error>;
    /// RSS indirection table; empty if there is none.
    fn indirection(&self) -> Vec<u16>;
    /// Interrupt moderation of a queue pair; `None` if unknown.
    fn coalescing(&self, queue: u16) -> Option<Coalescing>;
    /// Largest packet without its Ethernet header.
    fn mtu(&self) -> u16;
    /// Offloads that are on (`ethtool -k`).
    fn offloads(&self) -> Offloads;
    /// Turns offloads on or off (`ethtool -K`). Returns those that are on afterwards: a device does not turn on what it
    /// does not have.
    fn set_offloads(&self, cpu: &Cpu, wanted: &Offloads) -> Offloads;
    /// Accepts frames for any address (promiscuous mode).
    fn set_promiscuous(&self, cpu: &Cpu, on: bool);
    /// Its driver, for stacked devices (Linux: `netdev_ops`); `None` if it is gone.
    fn driver(&self) -> Option<Rc<dyn NetDriver>>;
    /// Attaches a stacked device in place of the stack, for as long as that lives (Linux:
    /// `netdev_rx_handler_register`).
    ///
    /// # Errors
    /// [`Error::Busy`] if there is one already.
    fn set_upper(&self, upper: Weak<dyn NetUpper>) -> Result<(), Error>;
}
