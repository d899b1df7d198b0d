//! A virtual NIC: its rings, and the copies between them and packets of the host.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::irq::IrqHandler;
use platform::net::{Checksum, MacAddr, Packet, TxFlow};
use platform::virtio::VirtualNic;
use units::{Duration, Time};
use wire::virtio::{NetHeader, Ring};

use super::Network;
use super::buffers::Buffers;
use crate::costs::VhostCosts;
use crate::exits::Exit;
use crate::machine::Machine;
use crate::ring::{Chain, DeviceRing};

/// Longest time from a frame's last bit on the wire until it is in memory (assumed: some hundred times the usual).
const ON_THE_WAY: Duration = Duration::from_ms(1);

/// Counters of a virtual NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VnicCounters {
    /// Packets delivered to the guest.
    pub received: u64,
    /// Bytes of those.
    pub received_bytes: u64,
    /// Packets dropped because the guest had no buffer.
    pub dropped: u64,
    /// Packets sent by the guest.
    pub sent: u64,
    /// Bytes of those.
    pub sent_bytes: u64,
    /// Malformed packets and ring entries of the guest.
    pub malformed: u64,
    /// Packets of the guest dropped for lack of host memory.
    pub no_memory: u64,
    /// Interrupts to the guest.
    pub interrupts: u64,
}

/// Both rings of a guest.
struct Rings {
    receive: DeviceRing,
    send: DeviceRing,
    /// Chains used for the packet being received, with the bytes written to each. Kept to avoid allocation.
    taken: RefCell<Vec<(u16, u32)>>,
}

/// Bytes of an Ethernet header.
const ETHERNET: u32 = wire::ethernet::HEADER_LEN as u32;
/// Longest packet before segmentation (bytes).
const LONGEST: u32 = 65_550;

/// Whether a packet's header is consistent with its length.
fn makes_sense(header: &NetHeader, length: u32) -> bool {
    let sum_ends = u32::from(header.checksum_start) + u32::from(header.checksum_offset) + 2;
    let is_summed = header.flags & NetHeader::NEEDS_CHECKSUM == 0 || sum_ends <= length;
    let (headers, segment) = (u32::from(header.headers), header.segment);
    let is_cut = header.gso == NetHeader::GSO_NONE || segment > 0 && headers > 0 && headers < length;
    (ETHERNET..=LONGEST).contains(&length) && is_summed && is_cut
}

/// Header for the guest. A packet from another guest needs no checksum and is not segmented (Linux:
/// `CHECKSUM_PARTIAL` and GSO packets cross a bridge unchanged).
fn header_of(packet: &Packet) -> [u8; NetHeader::LEN] {
    let mut header = NetHeader { buffers: 1, ..NetHeader::default() };
    match packet.checksum {
        Checksum::Good => header.flags = NetHeader::DATA_VALID,
        Checksum::Offload { start, offset } => {
            header.flags = NetHeader::NEEDS_CHECKSUM;
            (header.checksum_start, header.checksum_offset) = (start, offset);
        }
        _ => {}
    }
    if packet.segment > 0 && packet.headers > 0 {
        header.gso = NetHeader::GSO_TCPV4;
        (header.segment, header.headers) = (packet.segment, packet.headers);
    }
    header.emit()
}

/// Copies `length` bytes of a packet, starting at `from`, into the current chain behind the first `skipped` bytes.
fn copy_in(cpu: &Cpu, ring: &DeviceRing, skipped: u32, packet: &Packet, from: u32, length: u32) {
    let (mut before, mut done) = (0, 0);
    for fragment in &packet.fragments {
        let begin = (from + done).saturating_sub(before).min(fragment.length);
        let here = (fragment.length - begin).min(length - done);
        ring.each(skipped + done, here, |offset, piece| {
            cpu.copy(piece.at, fragment.at + u64::from(begin + offset), piece.length.into());
        });
        (before, done) = (before + fragment.length, done + here);
    }
}

/// The hypervisor's side of a virtual NIC.
pub struct Vnic {
    /// Ethernet address.
    pub mac: MacAddr,
    pub(super) machine: Rc<Machine>,
    rings: RefCell<Option<Rc<Rings>>>,
    /// Core and vector of the guest's interrupt.
    vector: Cell<Option<(usize, u8)>>,
    /// The I/O thread that serves it.
    context: Cell<usize>,
    /// Whether it is queued for that thread.
    listed: Cell<bool>,
    /// Whether it got packets that the guest was not notified of.
    untold: Cell<bool>,
    /// The previous queue, while packets may still arrive there. Packets on the new queue wait until that is empty or
    /// has delivered everything it held.
    behind: Cell<Option<u16>>,
    /// Packet count of the old queue's thread at which that is so.
    through_at: Cell<u64>,
    /// Queue of the last packet sent, and packets in flight there.
    sent_by: Cell<Option<u16>>,
    flow: Rc<TxFlow>,
    /// Whether packets to send wait for those.
    waits: Cell<bool>,
    held: RefCell<VecDeque<Packet>>,
    left_at: Cell<Time>,
    counters: Cell<VnicCounters>,
    malformed: Rc<Cell<u64>>,
}

impl Vnic {
    pub(super) fn new(machine: Rc<Machine>, mac: MacAddr, context: usize) -> Rc<Self> {
        Rc::new(Self {
            mac,
            machine,
            rings: RefCell::new(None),
            vector: Cell::new(None),
            context: Cell::new(context),
            listed: Cell::new(false),
            untold: Cell::new(false),
            behind: Cell::new(None),
            through_at: Cell::new(u64::MAX),
            sent_by: Cell::new(None),
            flow: Rc::default(),
            waits: Cell::new(false),
            held: RefCell::default(),
            left_at: Cell::new(Time::ZERO),
            counters: Cell::default(),
            malformed: Rc::default(),
        })
    }

    /// What it has counted so far.
    pub fn counters(&self) -> VnicCounters {
        VnicCounters { malformed: self.malformed.get(), ..self.counters.get() }
    }

    fn count(&self, change: impl FnOnce(&mut VnicCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    fn count_malformed(&self) {
        self.malformed.set(self.malformed.get() + 1);
    }

    /// The I/O thread that serves it.
    pub(super) fn context(&self) -> usize {
        self.context.get()
    }

    /// Another I/O thread serves it from now on. Returns the one before.
    pub(super) fn serve_by(&self, context: usize) -> usize {
        self.context.replace(context)
    }

    /// Queues it for its thread. Returns whether it was not queued.
    pub(super) fn list(&self) -> bool {
        !self.listed.replace(true)
    }

    /// It is no longer queued.
    pub(super) fn unlist(&self) {
        self.listed.set(false);
    }

    /// It has moved away from queue `old`, whose packets go first.
    pub(super) fn left_queue(&self, old: u16, now: Time) {
        self.behind.set(Some(old));
        self.through_at.set(u64::MAX);
        self.left_at.set(now);
    }

    /// Releases waiting packets at this packet count of the old queue, even if the queue is never empty.
    pub(super) fn is_through_at(&self, packets: u64) {
        self.through_at.set(packets);
    }

    /// Whether it still waits for packets of its old queue, or may have to: until its own queue has delivered
    /// packets, and for longer than a frame can take from the wire to memory.
    pub(super) fn is_moving(&self, now: Time) -> bool {
        self.behind.get().is_some()
            && (!self.held.borrow().is_empty() || now < self.left_at.get() + ON_THE_WAY)
    }

    /// Queue `queue` was found empty or has reached this packet count: releases waiting packets. Returns whether
    /// there were any.
    pub(super) fn queue_polled(
        &self,
        cpu: &Cpu,
        queue: u16,
        emptied: bool,
        given: u64,
        costs: &VhostCosts,
    ) -> bool {
        let is_through = emptied || given >= self.through_at.get();
        if self.behind.get() != Some(queue) || !is_through || self.held.borrow().is_empty() {
            return false;
        }
        self.wait_no_more(cpu, costs);
        true
    }

    /// Stops waiting for packets of the old queue.
    pub(super) fn wait_no_more(&self, cpu: &Cpu, costs: &VhostCosts) {
        self.behind.set(None);
        for packet in self.held.take() {
            self.put(cpu, &packet, costs);
            packet.release(cpu);
        }
    }

    /// Delivers a packet from the uplink or another guest. Returns the old queue to poll, if this is the first packet
    /// on a new one.
    pub(super) fn deliver(
        &self,
        cpu: &Cpu,
        queue: Option<u16>,
        packet: Packet,
        costs: &VhostCosts,
    ) -> Option<u16> {
        if let (Some(old), Some(queue)) = (self.behind.get(), queue)
            && old != queue
        {
            self.held.borrow_mut().push_back(packet);
            return (self.held.borrow().len() == 1).then_some(old);
        }
        self.put(cpu, &packet, costs);
        packet.release(cpu);
        None
    }

    /// Whether packets that it sent are in flight in another queue.
    pub(super) fn is_behind(&self, queue: u16) -> bool {
        self.sent_by.get().is_some_and(|by| by != queue) && self.flow.outstanding.get() > 0
    }

    /// Whether its packets have to wait for those in another queue than its thread's. Then
    /// [`may_go_on`](Self::may_go_on) says when they can go.
    pub(super) fn waits_for_other_queue(&self) -> bool {
        let waits = self.is_behind(self.context.get() as u16);
        self.waits.set(self.waits.get() || waits);
        waits
    }

    pub(super) fn sends_by(&self, queue: u16) {
        self.sent_by.set(Some(queue));
    }

    /// Packets have left through `queue`. Returns whether deferred packets can go now.
    pub(super) fn may_go_on(&self, queue: u16) -> bool {
        let left = self.sent_by.get() == Some(queue) && self.flow.outstanding.get() == 0;
        left && self.waits.replace(false)
    }

    /// Copies a packet into as many guest buffers as needed.
    pub(super) fn put(&self, cpu: &Cpu, packet: &Packet, costs: &VhostCosts) {
        let rings = self.rings.borrow().clone();
        let written = rings.as_ref().and_then(|rings| self.fill(cpu, rings, packet, costs));
        self.count(|c| match written {
            Some(()) => {
                c.received += 1;
                c.received_bytes += u64::from(packet.length());
            }
            None => c.dropped += 1,
        });
    }

    fn fill(&self, cpu: &Cpu, rings: &Rings, packet: &Packet, costs: &VhostCosts) -> Option<()> {
        const HEADER: u32 = NetHeader::LEN as u32;
        let memory = &self.machine.memory;
        let total = HEADER + packet.length();
        let (ring, mut taken) = (&rings.receive, rings.taken.borrow_mut());
        taken.clear();
        let (mut done, mut count_at) = (0, [None; 2]);
        while done < total {
            let Some(Chain { first, readable, writable }) = ring.take(memory, cpu) else {
                ring.take_back(taken.len() as u16);
                return None;
            };
            if readable > 0 || writable < if done == 0 { HEADER } else { 1 } {
                self.count_malformed();
                taken.push((first, 0));
                taken.iter().for_each(|&(first, _)| ring.give(memory, cpu, first, 0));
                self.untold.set(true);
                return None;
            }
            let skipped = if done == 0 { HEADER } else { 0 };
            if done == 0 {
                cpu.work(costs.receive);
                let header = header_of(packet);
                ring.each(0, HEADER, |offset, piece| {
                    cpu.store(piece.at, &header[offset as usize..(offset + piece.length) as usize]);
                });
                ring.each(HEADER - 2, 2, |offset, piece| {
                    (0..piece.length).for_each(|n| {
                        count_at[(offset + n) as usize] = Some(piece.at + u64::from(n));
                    });
                });
            }
            let here = (writable - skipped).min(total - done - skipped);
            copy_in(cpu, ring, skipped, packet, done + skipped - HEADER, here);
            taken.push((first, skipped + here));
            done += skipped + here;
        }
        if taken.len() > 1 {
            let count = (taken.len() as u16).to_le_bytes();
            count_at.iter().flatten().zip(count).for_each(|(&at, byte)| cpu.store(at, &[byte]));
        }
        taken.iter().for_each(|&(first, length)| ring.give(memory, cpu, first, length));
        self.untold.set(true);
        Some(())
    }

    /// Takes the next packet from the guest and copies it to host buffers; `Some(None)` if it was malformed.
    pub(super) fn next(
        &self,
        cpu: &Cpu,
        buffers: &Rc<Buffers>,
        costs: &VhostCosts,
    ) -> Option<Option<Packet>> {
        let rings = self.rings.borrow().clone()?;
        let memory = &self.machine.memory;
        if !buffers.has_room() {
            return None;
        }
        let Chain { first, readable, writable } = rings.send.take(memory, cpu)?;
        cpu.work(costs.send);
        let mut header = [0; NetHeader::LEN];
        rings.send.each(0, NetHeader::LEN as u32, |offset, piece| {
            cpu.load(piece.at, &mut header[offset as usize..(offset + piece.length) as usize]);
        });
        let length = readable.saturating_sub(NetHeader::LEN as u32);
        let parsed = NetHeader::parse(&header).ok();
        let parsed = parsed.filter(|header| writable == 0 && makes_sense(header, length));
        if parsed.is_none() {
            self.count_malformed();
        }
        let packet = parsed.and_then(|header| {
            let Some(mut packet) = buffers.packet(cpu, length) else {
                self.count(|c| c.no_memory += 1);
                return None;
            };
            let mut done = 0;
            for fragment in &packet.fragments {
                rings.send.each(NetHeader::LEN as u32 + done, fragment.length, |offset, piece| {
                    cpu.copy(fragment.at + u64::from(offset), piece.at, piece.length.into());
                });
                done += fragment.length;
            }
            if header.flags & NetHeader::NEEDS_CHECKSUM != 0 {
                let (start, offset) = (header.checksum_start, header.checksum_offset);
                packet.checksum = Checksum::Offload { start, offset };
            }
            if header.gso == NetHeader::GSO_TCPV4 {
                (packet.segment, packet.headers) = (header.segment, header.headers);
            }
            packet.join(&self.flow);
            Some(packet)
        });
        rings.send.give(memory, cpu, first, 0);
        self.untold.set(true);
        if packet.is_some() {
            self.count(|c| {
                c.sent += 1;
                c.sent_bytes += u64::from(length);
            });
        }
        Some(packet)
    }

    /// Whether the guest has more to send.
    pub(super) fn has_more(&self, cpu: &Cpu) -> bool {
        let rings = self.rings.borrow().clone();
        rings.is_some_and(|rings| rings.send.has_more(&self.machine.memory, cpu))
    }

    /// Turns notifications by the guest on or off.
    pub(super) fn set_notify(&self, cpu: &Cpu, on: bool) {
        if let Some(rings) = &*self.rings.borrow() {
            rings.send.set_notify(&self.machine.memory, cpu, on);
        }
    }

    /// Publishes delivered packets, and interrupts the guest if it asked for that.
    pub(super) fn tell(&self, cpu: &Cpu, costs: &VhostCosts) {
        if !self.untold.replace(false) {
            return;
        }
        let Some(rings) = self.rings.borrow().clone() else { return };
        let memory = &self.machine.memory;
        let wants = [&rings.receive, &rings.send].map(|ring| ring.publish(memory, cpu));
        if let Some((core, vector)) = self.vector.get().filter(|_| wants.contains(&true)) {
            cpu.work(costs.interrupt);
            self.count(|c| c.interrupts += 1);
            self.machine.inject(cpu, core, vector);
        }
    }

    /// Returns the rings to the guest, which stops or is gone.
    pub(super) fn stop(&self, cpu: &Cpu) {
        self.rings.borrow_mut().take();
        self.behind.set(None);
        self.held.take().into_iter().for_each(|packet| packet.release(cpu));
    }
}

/// A guest's interface to its virtual NIC.
pub struct GuestNic {
    pub(super) vnic: Rc<Vnic>,
    pub(super) network: Weak<Network>,
}

impl GuestNic {
    /// Exits to the hypervisor for `work`.
    async fn call(&self, cpu: &Cpu, work: impl FnOnce(&Rc<Vnic>, &Network, &Cpu) + 'static) {
        let (vnic, network) = (Rc::clone(&self.vnic), self.network.clone());
        let done = self.vnic.machine.call(cpu.id(), Exit::Call, move |cpu| {
            if let Some(network) = network.upgrade() {
                work(&vnic, &network, cpu);
            }
        });
        let _ = cpu.stall_on(done).await;
    }
}

impl VirtualNic for GuestNic {
    fn mac(&self) -> MacAddr {
        self.vnic.mac
    }

    fn start<'a>(&'a self, cpu: &'a Cpu, receive: Ring, send: Ring) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let memory = &self.vnic.machine.memory;
            let ring = |ring| DeviceRing::new(memory, ring, Rc::clone(&self.vnic.malformed));
            let rings = (ring(receive), ring(send));
            let (Some(receive), Some(send)) = rings else { return Err(Error::Invalid) };
            let rings = Rc::new(Rings { receive, send, taken: RefCell::default() });
            self.call(cpu, |vnic, network, cpu| {
                *vnic.rings.borrow_mut() = Some(rings);
                network.started(vnic, cpu);
            })
            .await;
            Ok(())
        })
    }

    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(self.call(cpu, |vnic, network, cpu| network.stopped(vnic, cpu)))
    }

    fn notify(&self, cpu: &Cpu) {
        let (vnic, network) = (Rc::clone(&self.vnic), self.network.clone());
        drop(self.vnic.machine.call(cpu.id(), Exit::Call, move |cpu| {
            let _part = cpu.book(Part::Virt);
            if let Some(network) = network.upgrade() {
                network.kick(&vnic, cpu);
            }
        }));
    }

    fn request_irq(&self, cpu: &Cpu, handler: IrqHandler) -> Result<(), Error> {
        let kernel = self.vnic.machine.guest().ok_or(Error::NoDevice)?;
        let CpuId(core) = cpu.id();
        let vector = kernel.add_interrupt(cpu.id(), "virtio-net", handler)?;
        self.vnic.vector.set(Some((core.into(), vector)));
        Ok(())
    }
}
