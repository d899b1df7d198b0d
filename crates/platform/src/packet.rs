//! Packets, and network devices as programs that make their own frames see them.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::memory::{Pages, PhysAddr};
use crate::net::{Coalescing, DeviceStatistics, NetCounters, NetDriver, NetLimits, NetUpper, TxStatistics};
use crate::sync::WaitQueue;

/// A piece of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// The pages it lies in, for the packet's [owner](Packet::owner).
    pub pages: Option<Pages>,
    /// Where it begins.
    pub at: PhysAddr,
    /// Bytes.
    pub length: u32,
}

/// What a device found about checksums of a received packet, or is to do for a sent one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksum {
    /// Nothing.
    #[default]
    None,
    /// Received: it was right.
    Good,
    /// To send: sum from `start` to the end and put it `offset` bytes behind.
    Offload {
        /// Where the sum begins.
        start: u16,
        /// Where it goes, from there.
        offset: u16,
    },
}

/// Whose a packet's buffers are.
pub trait PacketOwner {
    /// The packet has been sent, dropped or consumed: its buffers can be used again.
    fn released(&self, cpu: &Cpu, packet: &mut Packet);
}

/// Packets that must not pass each other: those of a socket.
#[derive(Default)]
pub struct TxFlow {
    /// The sending queue that they go to.
    pub queue: Cell<Option<u16>>,
    /// Those that have not been [released](Packet::release): while there are any, the queue stays.
    pub outstanding: Cell<u32>,
    /// Their bytes.
    pub bytes: Cell<u64>,
}

/// A packet. Every one is [released](Self::release) once, by whoever has it then.
#[derive(Default)]
pub struct Packet {
    /// Its bytes, in order; the headers lie in the first fragment.
    pub fragments: Vec<Fragment>,
    /// Checksum state.
    pub checksum: Checksum,
    /// To send: payload bytes of each segment, 0 if it is not to be cut (TSO). Received: of each coalesced.
    pub segment: u16,
    /// Length of the headers that each segment repeats.
    pub headers: u16,
    /// Received: the RSS hash.
    pub hash: u32,
    /// No packet of its flow is under way: it may take another queue and none passes another.
    pub may_reorder: bool,
    /// To send: whom it must not pass; set it by [`join`](Self::join).
    pub flow: Option<Rc<TxFlow>>,
    /// Whose buffers they are. Packets of one owner may be put together.
    pub owner: Option<Rc<dyn PacketOwner>>,
}

impl Packet {
    /// A packet of one piece.
    pub fn of(fragment: Fragment, owner: Option<Rc<dyn PacketOwner>>) -> Self {
        Self { fragments: vec![fragment], owner, ..Self::default() }
    }

    /// Bytes in all.
    pub fn length(&self) -> u32 {
        self.fragments.iter().map(|f| f.length).sum()
    }

    /// Makes it one of a flow's.
    pub fn join(&mut self, flow: &Rc<TxFlow>) {
        self.may_reorder = flow.outstanding.get() == 0;
        flow.outstanding.set(flow.outstanding.get() + 1);
        flow.bytes.set(flow.bytes.get() + u64::from(self.length()));
        self.flow = Some(Rc::clone(flow));
    }

    /// Lets its buffers go.
    pub fn release(mut self, cpu: &Cpu) {
        if let Some(flow) = self.flow.take() {
            flow.outstanding.set(flow.outstanding.get().saturating_sub(1));
            flow.bytes.set(flow.bytes.get().saturating_sub(self.length().into()));
        }
        if let Some(owner) = self.owner.take() {
            owner.released(cpu, &mut self);
        }
    }

    /// Its first bytes, loaded through the caches; gives how many there were.
    pub fn load(&self, cpu: &Cpu, into: &mut [u8]) -> usize {
        self.load_from(cpu, 0, into)
    }

    /// As [`load`](Self::load), behind its first `skipped` bytes.
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

/// Received packets that wait for a program.
pub struct PacketQueue {
    ether_type: Option<u16>,
    depth: usize,
    packets: RefCell<VecDeque<Packet>>,
    dropped: Cell<u64>,
    arrived: WaitQueue,
}

impl PacketQueue {
    /// For kernels: takes packets of one type or of all, `depth` at most.
    pub fn new(ether_type: Option<u16>, depth: usize) -> Rc<Self> {
        Rc::new(Self {
            ether_type,
            depth,
            packets: RefCell::default(),
            dropped: Cell::new(0),
            arrived: WaitQueue::new(),
        })
    }

    /// For kernels: whether a packet of this type is wanted.
    pub fn wants(&self, ether_type: u16) -> bool {
        self.ether_type.is_none_or(|wanted| wanted == ether_type)
    }

    /// For kernels: a packet arrived.
    pub fn put(&self, cpu: &Cpu, packet: Packet) {
        if self.packets.borrow().len() >= self.depth {
            self.dropped.set(self.dropped.get() + 1);
            packet.release(cpu);
            return;
        }
        self.packets.borrow_mut().push_back(packet);
        self.arrived.wake_one();
    }

    /// The next packet, if one is there. Who takes it releases it.
    pub fn try_take(&self) -> Option<Packet> {
        self.packets.borrow_mut().pop_front()
    }

    /// Waits for the next packet.
    pub async fn take(&self) -> Packet {
        self.arrived.wait_for(|| self.try_take()).await
    }

    /// Packets that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}

/// A network device as programs that make their own frames see it.
pub trait PacketDevice {
    /// As `ip link` shows it, such as `eth0`.
    fn name(&self) -> String;
    /// What cannot be changed of it: address, queues, lengths.
    fn limits(&self) -> NetLimits;
    /// Whether something is at the other end of its cable.
    fn has_carrier(&self) -> bool;
    /// What has passed it.
    fn counters(&self) -> NetCounters;
    /// What its device and its driver have counted of sending; nothing if they have gone.
    fn statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, TxStatistics>;
    /// What else its device has counted; nothing if it has gone.
    fn device_statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, DeviceStatistics>;
    /// Starts it.
    ///
    /// # Errors
    /// If the driver cannot; [`Error::NoDevice`] if it is gone.
    fn open<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;
    /// `ip link set down`: no packet passes until it is opened again.
    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;
    /// The sending queue at home on a core.
    fn tx_queue_for(&self, cpu: &Cpu) -> u16;
    /// Sends a frame as the stack does: through the queue before the driver.
    ///
    /// # Errors
    /// If it was dropped; it has been released.
    fn send(&self, cpu: &Cpu, packet: Packet, more: bool) -> Result<(), Error>;
    /// Gives a frame straight to the driver, as Linux's pktgen does. Nobody else may send by that queue.
    ///
    /// # Errors
    /// Gives the packet back if the queue is full or there is no carrier.
    fn send_directly(&self, cpu: &Cpu, queue: u16, packet: Packet, more: bool) -> Result<(), Packet>;
    /// Waits until a queue that was full has room, or `false` if the device has gone or has no carrier.
    fn room(&self, queue: u16) -> Async<'_, bool>;
    /// From now on takes received frames of an EtherType, or all, from the stack; until the queue is dropped.
    fn listen(&self, ether_type: Option<u16>, depth: usize) -> Rc<PacketQueue>;
    /// Sets which queue each value of the RSS hash goes to (`ethtool -X`), from now on and over resets.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device cannot, [`Error::Invalid`] if it has no such queue.
    fn set_indirection(&self, cpu: &Cpu, table: &[u16]) -> Result<(), Error>;
    /// Sets how long the interrupt of a pair of queues waits (`ethtool -C`), from now on and over resets.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device cannot, [`Error::Invalid`] if it has no such queue.
    fn set_coalescing(&self, cpu: &Cpu, queue: u16, wanted: Coalescing) -> Result<(), Error>;
    /// That table; empty if there is none.
    fn indirection(&self) -> Vec<u16>;
    /// How long it waits; `None` if nobody knows.
    fn coalescing(&self, queue: u16) -> Option<Coalescing>;
    /// Takes frames of any address, not just its own.
    fn set_promiscuous(&self, cpu: &Cpu, on: bool);
    /// Its driver, for a device that is made of others; none if it has gone.
    fn driver(&self) -> Option<Rc<dyn NetDriver>>;
    /// Puts somebody above it in place of the stack, for as long as it is there.
    ///
    /// # Errors
    /// [`Error::Busy`] if there is somebody.
    fn set_upper(&self, upper: Weak<dyn NetUpper>) -> Result<(), Error>;
}
