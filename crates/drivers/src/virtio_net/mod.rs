//! Guest driver of virtio's network device.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | the device: open, transmit, receive by interrupt and polling |
//! | `buffers` | RX buffers |
//!
//! A program can also take the device exclusively and poll it, as DPDK's driver does: see [`PollDevice`].

mod buffers;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::costs;
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::irq::{IrqReturn, Napi, NapiHandle};
use platform::kernel::Kernel;
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use platform::net::{
    Checksum, Fragment, MacAddr, NetCore, NetDriver, NetFeatures, NetLimits, Packet, PollDevice, PollFile,
    PollSetup,
};
use platform::virtio::VirtualNic;
use units::BitRate;
use wire::virtio::{Descriptor, NetHeader};

use crate::virtio_ring::DriverRing;
use buffers::Buffers;

costs! {
    /// CPU costs in cycles. Loads and stores are charged separately; exits are charged by the hypervisor.
    VirtioNetCosts in "virtio_net_cost" {
        /// To put a packet into the ring.
        send,
        /// To free a sent packet.
        sent,
        /// To build a packet from a filled buffer.
        received,
        /// To post a buffer to the device.
        refill,
        /// A poll, without its packets.
        poll,
        /// The interrupt handler.
        handler,
    }
}

/// Entries of each ring (QEMU's default).
const ENTRIES: u16 = 256;
/// Most fragments of a packet (Linux: `MAX_SKB_FRAGS` plus its head).
const MOST_FRAGMENTS: u16 = 18;
/// Packets handled between syncs with the simulation clock.
const TURN: usize = 4;

/// A packet in the TX ring, and the index of its header.
type Sending = (Packet, u16);

/// Both rings, while the device is open.
struct VirtioRings {
    receive: DriverRing<PhysAddr>,
    send: DriverRing<Sending>,
    buffers: Rc<Buffers>,
    /// Headers of packets to send, by slot.
    headers: Pages,
    free_headers: RefCell<Vec<u16>>,
}

/// A virtual NIC in a guest.
pub struct VirtioNet {
    me: Weak<Self>,
    kernel: Rc<dyn Kernel>,
    nic: Rc<dyn VirtualNic>,
    costs: VirtioNetCosts,
    rings: RefCell<Option<Rc<VirtioRings>>>,
    core: RefCell<Option<Rc<dyn NetCore>>>,
    napi: RefCell<Option<NapiHandle>>,
    /// A packet was refused for lack of room.
    stopped: Cell<bool>,
    /// A program polls the device.
    polled: Cell<bool>,
    has_irq: Cell<bool>,
}

impl VirtioNet {
    /// Registers a virtual NIC as a network device, and as a file for programs that poll it.
    pub fn new(kernel: Rc<dyn Kernel>, nic: Rc<dyn VirtualNic>, costs: VirtioNetCosts) -> Rc<Self> {
        let device = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            napi: RefCell::new(Some(kernel.napi(Rc::new(VirtioNapi(me.clone()))))),
            kernel,
            nic,
            costs,
            rings: RefCell::new(None),
            core: RefCell::new(None),
            stopped: Cell::new(false),
            polled: Cell::new(false),
            has_irq: Cell::new(false),
        });
        let core = device.kernel.register_net(Rc::clone(&device) as _);
        *device.core.borrow_mut() = Some(core);
        device.kernel.register_file("uio", Rc::new(PollFile(Rc::clone(&device) as _)));
        device
    }

    fn core(&self) -> Option<Rc<dyn NetCore>> {
        self.core.borrow().clone()
    }

    fn rings(&self) -> Option<Rc<VirtioRings>> {
        self.rings.borrow().clone()
    }

    /// Creates the rings and passes them to the hypervisor.
    async fn start(&self, cpu: &Cpu, interrupts: bool) -> Result<(), Error> {
        if self.rings.borrow().is_some() {
            return Ok(());
        }
        let headers = self.kernel.alloc_pages(cpu, 1, Policy::Local)?;
        let rings = Rc::new(VirtioRings {
            receive: DriverRing::new(cpu, &self.kernel, ENTRIES)?,
            send: DriverRing::new(cpu, &self.kernel, ENTRIES)?,
            buffers: Buffers::new(Rc::clone(&self.kernel)),
            headers,
            free_headers: RefCell::new((0..ENTRIES).rev().collect()),
        });
        rings.receive.set_interrupts(cpu, interrupts);
        rings.send.set_interrupts(cpu, interrupts);
        self.refill(cpu, &rings);
        if interrupts && !self.has_irq.replace(true) {
            let (napi, cost) = (self.napi.borrow().clone(), self.costs.handler);
            let me = self.me.clone();
            let handler = Rc::new(move |cpu: &Cpu| {
                cpu.work(cost);
                if let (Some(napi), Some(me)) = (&napi, me.upgrade()) {
                    me.set_interrupts(cpu, false);
                    napi.schedule(cpu);
                }
                IrqReturn::Handled
            });
            self.nic.request_irq(cpu, handler)?;
        }
        self.nic.start(cpu, rings.receive.place(), rings.send.place()).await?;
        *self.rings.borrow_mut() = Some(rings);
        Ok(())
    }

    async fn end(&self, cpu: &Cpu) {
        self.nic.stop(cpu).await;
        let Some(rings) = self.rings.borrow_mut().take() else { return };
        for buffer in rings.receive.free(cpu, &self.kernel) {
            rings.buffers.give(buffer);
        }
        for (packet, _) in rings.send.free(cpu, &self.kernel) {
            self.sent(cpu, packet);
        }
        self.kernel.free_pages(cpu, rings.headers);
        rings.buffers.close(cpu);
    }

    fn set_interrupts(&self, cpu: &Cpu, on: bool) {
        if let Some(rings) = self.rings() {
            rings.receive.set_interrupts(cpu, on);
            rings.send.set_interrupts(cpu, on);
        }
    }

    /// Posts buffers while there are any and the ring has room.
    fn refill(&self, cpu: &Cpu, rings: &VirtioRings) {
        while rings.receive.room() > 0 {
            let Some(buffer) = rings.buffers.take(cpu) else { break };
            cpu.work(self.costs.refill);
            let piece = std::iter::once((buffer, buffers::BUFFER as u32, Descriptor::WRITE));
            rings.receive.offer(cpu, piece, buffer);
        }
        rings.receive.publish(cpu);
    }

    /// The next received packet.
    fn next(&self, cpu: &Cpu, rings: &VirtioRings) -> Option<Packet> {
        let (buffer, length) = rings.receive.take(cpu)?;
        cpu.work(self.costs.received);
        let mut header = [0; NetHeader::LEN];
        cpu.load(buffer, &mut header);
        let length = length.saturating_sub(NetHeader::LEN as u32);
        let mut packet = rings.buffers.packet(buffer, length);
        let Ok(header) = NetHeader::parse(&header) else { return Some(packet) };
        // Packets from a guest of the same host were never on a wire, so their checksums are trusted.
        if header.flags & (NetHeader::DATA_VALID | NetHeader::NEEDS_CHECKSUM) != 0 {
            packet.checksum = Checksum::Good;
        }
        if header.gso != NetHeader::GSO_NONE {
            packet.segment = header.segment;
        }
        for _ in 1..header.buffers {
            let Some((buffer, length)) = rings.receive.take(cpu) else { break };
            packet.fragments.push(Fragment { pages: None, at: buffer, length });
        }
        Some(packet)
    }

    fn put(&self, cpu: &Cpu, rings: &VirtioRings, packet: Packet) -> Result<(), Packet> {
        let pieces = packet.fragments.len() + 1;
        let place = if rings.send.room() < pieces { None } else { rings.free_headers.borrow_mut().pop() };
        let Some(place) = place else { return Err(packet) };
        cpu.work(self.costs.send);
        let mut header =
            NetHeader { headers: packet.headers, segment: packet.segment, ..NetHeader::default() };
        if packet.segment > 0 {
            header.gso = NetHeader::GSO_TCPV4;
        }
        if let Checksum::Offload { start, offset } = packet.checksum {
            header.flags = NetHeader::NEEDS_CHECKSUM;
            (header.checksum_start, header.checksum_offset) = (start, offset);
        }
        let at = rings.headers.start + u64::from(place) * HEADER_PLACE;
        cpu.store(at, &header.emit());
        let mut all = Vec::with_capacity(pieces);
        all.push((at, NetHeader::LEN as u32, 0));
        all.extend(packet.fragments.iter().map(|fragment| (fragment.at, fragment.length, 0)));
        rings.send.offer(cpu, all.into_iter(), (packet, place));
        Ok(())
    }

    fn tell(&self, cpu: &Cpu, rings: &VirtioRings) {
        if rings.send.publish(cpu) {
            self.nic.notify(cpu);
        }
    }

    /// Frees sent packets, and returns their number and bytes.
    fn reap(&self, cpu: &Cpu, rings: &VirtioRings) -> (u32, u64) {
        let (mut packets, mut bytes) = (0, 0);
        while let Some(((packet, place), _)) = rings.send.take(cpu) {
            cpu.work(self.costs.sent);
            rings.free_headers.borrow_mut().push(place);
            packets += 1;
            bytes += u64::from(packet.length());
            packet.release(cpu);
        }
        (packets, bytes)
    }

    fn sent(&self, cpu: &Cpu, packet: Packet) {
        let bytes = packet.length();
        packet.release(cpu);
        if let Some(core) = self.core() {
            core.sent(cpu, 0, 1, bytes.into());
        }
    }

    async fn poll(&self, cpu: &Cpu, budget: usize) -> usize {
        let (Some(rings), Some(core), Some(napi)) = (self.rings(), self.core(), self.napi.borrow().clone())
        else {
            return 0;
        };
        let _part = cpu.book(Part::Driver);
        cpu.work(self.costs.poll);
        let (packets, bytes) = self.reap(cpu, &rings);
        if packets > 0 {
            core.sent(cpu, 0, packets, bytes);
            if self.stopped.replace(false) {
                core.wake_queue(cpu, 0);
            }
        }
        let (mut received, mut ahead) = (0, 0);
        while received < budget {
            if ahead == TURN {
                cpu.sync().await;
                ahead = 0;
            }
            let Some(packet) = self.next(cpu, &rings) else { break };
            core.receive(cpu, &napi, 0, packet);
            (received, ahead) = (received + 1, ahead + 1);
        }
        core.poll_end(cpu, 0, received < budget);
        self.refill(cpu, &rings);
        if received == budget {
            return budget;
        }
        cpu.sync().await;
        if napi.complete(cpu) {
            self.set_interrupts(cpu, true);
            cpu.sync().await;
            // Packets may have arrived before the hypervisor saw that interrupts are on.
            if rings.receive.has_used(cpu) || rings.send.has_used(cpu) {
                self.set_interrupts(cpu, false);
                napi.schedule(cpu);
            }
        }
        received
    }
}

/// Bytes of a header's slot.
const HEADER_PLACE: u64 = 16;
const _: () = assert!(HEADER_PLACE * ENTRIES as u64 <= 2 * PAGE);

/// The device as the kernel polls it.
struct VirtioNapi(Weak<VirtioNet>);

impl Napi for VirtioNapi {
    fn poll<'a>(&'a self, cpu: &'a Cpu, budget: usize) -> Async<'a, usize> {
        Box::pin(async move {
            match self.0.upgrade() {
                Some(device) => device.poll(cpu, budget).await,
                None => 0,
            }
        })
    }
}

impl NetDriver for VirtioNet {
    fn limits(&self) -> NetLimits {
        NetLimits {
            name: "eth%d".into(),
            mac: self.nic.mac(),
            tx_queues: 1,
            rx_queues: 1,
            max_mtu: 1500,
            // Nominal speed; nothing limits packets to it.
            speed: BitRate::gbit_per_s(10),
            features: self.features(),
            shares_packets: true,
        }
    }

    fn open<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            if self.polled.get() {
                return Err(Error::Busy);
            }
            let _part = cpu.book(Part::Driver);
            self.start(cpu, true).await?;
            if let Some(napi) = &*self.napi.borrow() {
                napi.enable();
            }
            if let Some(core) = self.core() {
                core.set_carrier(true);
            }
            Ok(())
        })
    }

    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            let napi = self.napi.borrow().clone();
            if let Some(napi) = napi {
                napi.disable().await;
            }
            self.end(cpu).await;
            if let Some(core) = self.core() {
                core.set_carrier(false);
            }
        })
    }

    fn transmit(&self, cpu: &Cpu, _: u16, packet: Packet, more: bool) -> Result<(), Packet> {
        let _part = cpu.book(Part::Driver);
        let Some(rings) = self.rings() else { return Err(packet) };
        if packet.fragments.len() > usize::from(MOST_FRAGMENTS) {
            self.sent(cpu, packet);
            return Ok(());
        }
        let put = self.put(cpu, &rings, packet);
        if put.is_err() {
            self.stopped.set(true);
        }
        if !more || put.is_err() {
            self.tell(cpu, &rings);
        }
        put
    }

    fn flush(&self, cpu: &Cpu, _: u16) {
        if let Some(rings) = self.rings() {
            let _part = cpu.book(Part::Driver);
            self.tell(cpu, &rings);
        }
    }

    fn tx_queue_for(&self, _: CpuId) -> u16 {
        0
    }

    fn set_features(&self, _: &Cpu, _: &NetFeatures) -> NetFeatures {
        self.features()
    }
}

impl VirtioNet {
    fn features(&self) -> NetFeatures {
        NetFeatures {
            tx_checksum: true,
            rx_checksum: true,
            tso: true,
            tso_max: 65_536,
            max_fragments: MOST_FRAGMENTS,
            ..NetFeatures::default()
        }
    }
}

impl PollDevice for VirtioNet {
    fn start<'a>(&'a self, cpu: &'a Cpu, setup: PollSetup) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            if setup.queues != 1 {
                return Err(Error::Invalid);
            }
            if self.rings.borrow().is_some() {
                return Err(Error::Busy);
            }
            self.polled.set(true);
            self.start(cpu, false).await
        })
    }

    fn mac(&self) -> MacAddr {
        self.nic.mac()
    }

    fn receive(&self, cpu: &Cpu, _: u16, into: &mut Vec<Packet>, most: usize) {
        let Some(rings) = self.rings() else { return };
        while into.len() < most
            && let Some(packet) = self.next(cpu, &rings)
        {
            into.push(packet);
        }
    }

    fn send(&self, cpu: &Cpu, _: u16, packets: &mut Vec<Packet>) {
        let Some(rings) = self.rings() else { return };
        self.reap(cpu, &rings);
        let mut left = Vec::new();
        for packet in packets.drain(..) {
            if let Err(packet) = self.put(cpu, &rings, packet) {
                left.push(packet);
            }
        }
        *packets = left;
        self.tell(cpu, &rings);
        self.refill(cpu, &rings);
    }
}
