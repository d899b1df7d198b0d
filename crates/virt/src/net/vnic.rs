//! A virtual NIC: its rings, and copying between them and packets of the host.

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
use super::context::Buffers;
use crate::costs::VhostCosts;
use crate::exits::Exit;
use crate::ring::{Chain, DeviceRing};
use crate::vm::Machine;

/// From a frame's last bit until it is in memory, at most (assumed: some hundred times what it takes).
const ON_THE_WAY: Duration = Duration::from_ms(1);

/// What has passed a virtual NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VnicCounters {
    /// Packets given to the guest.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets for which the guest had no buffer.
    pub dropped: u64,
    /// Packets that the guest sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets of the guest, and what of its rings, that made no sense.
    pub malformed: u64,
    /// Packets of the guest for which the host had no memory.
    pub no_memory: u64,
    /// Interrupts of the guest.
    pub interrupts: u64,
}

/// Both rings of a guest.
struct Rings {
    receive: DeviceRing,
    send: DeviceRing,
    /// Chains that the packet takes that is being received, each with the bytes that go there; kept so that packets do not allocate.
    taken: RefCell<Vec<(u16, u32)>>,
}

/// Bytes of a frame's header.
const ETHERNET: u32 = wire::ethernet::HEADER_LEN as u32;
/// The longest packet, one that is still to be cut.
const LONGEST: u32 = 65_550;

/// Whether a guest's packet of so many bytes can be what its header says.
fn makes_sense(header: &NetHeader, length: u32) -> bool {
    let sum_ends = u32::from(header.checksum_start) + u32::from(header.checksum_offset) + 2;
    let is_summed = header.flags & NetHeader::NEEDS_CHECKSUM == 0 || sum_ends <= length;
    let (headers, segment) = (u32::from(header.headers), header.segment);
    let is_cut = header.gso == NetHeader::GSO_NONE || segment > 0 && headers > 0 && headers < length;
    (ETHERNET..=LONGEST).contains(&length) && is_summed && is_cut
}

/// What a guest is told of a packet. One that another guest has sent needs no checksum on its way, and is not cut (Linux:
/// `CHECKSUM_PARTIAL` and GSO pass a bridge as they are).
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

/// Copies `length` bytes of a packet from `from` on behind the first `skipped` bytes of the chain that was taken last.
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

/// A virtual NIC, as the hypervisor has it.
pub struct Vnic {
    /// Its Ethernet address.
    pub mac: MacAddr,
    pub(super) machine: Rc<Machine>,
    rings: RefCell<Option<Rc<Rings>>>,
    /// By which core and vector the guest is interrupted.
    vector: Cell<Option<(usize, u8)>>,
    /// The context that serves it.
    pub(super) context: Cell<usize>,
    /// It waits to be served by that one.
    pub(super) listed: Cell<bool>,
    /// Something was given to the guest that it has not been told of.
    untold: Cell<bool>,
    /// Packets may still come by a queue that it had before: those that come by its own wait until that one is empty, or has given
    /// all that was in it.
    behind: Cell<Option<u16>>,
    /// Packets that the old queue's context has had when all that was there before the first by the new one is through.
    through_at: Cell<u64>,
    /// The queue by which its last packet was sent, and what of its packets has not left.
    sent_by: Cell<Option<u16>>,
    flow: Rc<TxFlow>,
    /// It has something to send that waits for these.
    pub(super) waits: Cell<bool>,
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

    /// What has passed it.
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

    /// Another queue has its packets from now on: those of the old one go first.
    pub(super) fn left_queue(&self, old: u16, now: Time) {
        self.behind.set(Some(old));
        self.through_at.set(u64::MAX);
        self.left_at.set(now);
    }

    /// What waits goes on once the old queue's context has had so many packets, should the queue never be empty.
    pub(super) fn is_through_at(&self, packets: u64) {
        self.through_at.set(packets);
    }

    /// Whether packets by a queue that it has left are waited for, or may be: until there are none that came by its own queue, and
    /// for longer than any frame is on its way from the wire to memory.
    pub(super) fn is_moving(&self, now: Time) -> bool {
        self.behind.get().is_some()
            && (!self.held.borrow().is_empty() || now < self.left_at.get() + ON_THE_WAY)
    }

    /// A queue was found empty, or has given so many packets: what waited for that goes on. Says whether there was anything.
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

    /// What comes by a queue that it has left is not waited for any more.
    pub(super) fn wait_no_more(&self, cpu: &Cpu, costs: &VhostCosts) {
        self.behind.set(None);
        for packet in self.held.take() {
            self.put(cpu, &packet, costs);
            packet.release(cpu);
        }
    }

    /// A packet for the guest came by a queue of the uplink, or from another guest. Gives the queue that is to be looked at, as
    /// this is the first packet by a new one.
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

    /// Whether what it sent by another queue has not left.
    pub(super) fn is_behind(&self, queue: u16) -> bool {
        self.sent_by.get().is_some_and(|by| by != queue) && self.flow.outstanding.get() > 0
    }

    pub(super) fn sends_by(&self, queue: u16) {
        self.sent_by.set(Some(queue));
    }

    /// Packets have left by a queue: whether what waited for that can go on.
    pub(super) fn may_go_on(&self, queue: u16) -> bool {
        let left = self.sent_by.get() == Some(queue) && self.flow.outstanding.get() == 0;
        left && self.waits.replace(false)
    }

    /// Copies a packet into buffers of the guest: into as many as it takes.
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

    /// Takes the next packet that the guest sends, copied into buffers of the host; `Some(None)` if it made no sense.
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

    /// Whether the guest is to tell of what it sends.
    pub(super) fn set_notify(&self, cpu: &Cpu, on: bool) {
        if let Some(rings) = &*self.rings.borrow() {
            rings.send.set_notify(&self.machine.memory, cpu, on);
        }
    }

    /// Tells the guest of what it was given, and interrupts it if it wants that.
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

    /// What its guest has given is the guest's again: it stops, or has gone.
    pub(super) fn stop(&self, cpu: &Cpu) {
        self.rings.borrow_mut().take();
        self.behind.set(None);
        self.held.take().into_iter().for_each(|packet| packet.release(cpu));
    }
}

/// The way of a guest to its virtual NIC.
pub struct GuestNic {
    pub(super) vnic: Rc<Vnic>,
    pub(super) network: Weak<Network>,
}

impl GuestNic {
    /// Leaves the guest for `work`.
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
