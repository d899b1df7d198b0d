//! The NIC in the hands of a program, as with vfio-pci and DPDK's poll mode drivers: no interrupts, no kernel per packet.
//!
//! A program takes a function by its file. Its packets lie in pools of 2 MiB pages, which are mapped for a device once, at
//! start or when it first sends from one; nothing is mapped per packet.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::dma::{Direction, DmaOps};
use platform::kernel::Kernel;
use platform::memory::{Pages, PhysAddr, Policy};
use platform::mmio::{MemoryType, Mmio};
use platform::net::{Fragment, MacAddr, Packet, PacketOwner, PollDevice, PollFile, PollSetup};
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use units::{Duration, Iova};
use wire::nic::completion::{END, FAILED, Kind, LEN};
use wire::nic::descriptor::{END as LAST, REPORT};
use wire::nic::registers::{self as regs, control, feature, status};
use wire::nic::{CLASS, DEVICE, RxDescriptor, TxDescriptor, VENDOR};

use super::limits::Limits;
use super::ring::Ring;
use super::steering::write_rss;

/// Cycles per packet to take a completion and fill in its mbuf, and to write a descriptor and take its mbuf back (assumed:
/// a third of the 80 cycles that DPDK's performance reports give for io forwarding with ixgbe's scalar paths each).
const RECEIVE: u64 = 25;
const SEND: u64 = 25;
/// Cycles per call of either (assumed).
const CALL: u64 = 20;
/// Descriptors that are posted, or reported as sent, together (DPDK: `rx_free_thresh`, `tx_rs_thresh`).
const BATCH: u16 = 32;
/// Bytes of a chunk of a pool: a huge page.
const CHUNK: u64 = 2 << 20;
/// Bytes of a buffer: the mbuf, headroom and data (DPDK: `RTE_MBUF_DEFAULT_BUF_SIZE` and 128 bytes).
const BUFFER: u64 = MBUF + HEADROOM + DATA;
const MBUF: u64 = 128;
const HEADROOM: u64 = 128;
const DATA: u64 = 2048;
/// Bytes of an mbuf that each packet writes and reads.
const FIELDS: usize = 32;
/// How often the link's state is read, and how long at most.
const LOOK: Duration = Duration::from_us(10);
const LINK: Duration = Duration::from_ms(2);

/// A driver that hands functions to programs instead of the network stack.
#[derive(Default)]
pub struct NicPollDriver;

/// A function's file.
struct PollBinding {
    kernel: Rc<dyn Kernel>,
    name: String,
    port: Rc<PolledPort>,
}

impl PciDriver for NicPollDriver {
    fn name(&self) -> &'static str {
        "vfio-pci"
    }

    fn ids(&self) -> &[PciMatch] {
        const IDS: [PciMatch; 2] = [PciMatch::device(VENDOR, DEVICE), PciMatch::class(CLASS)];
        &IDS
    }

    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let registers = device.ioremap_bar(0, MemoryType::Uncached)?;
            let limits = Limits::read(cpu, &registers).await?;
            let (dma, kernel) = (device.dma(), device.kernel());
            dma.set_mask(64)?;
            let port = Rc::new(PolledPort {
                kernel: Rc::clone(&kernel),
                device,
                dma,
                registers,
                limits,
                is_taken: Cell::new(false),
                pairs: RefCell::default(),
                chunks: RefCell::default(),
            });
            let file: Rc<dyn PollDevice> = Rc::clone(&port) as _;
            let name = kernel.register_file("uio", Rc::new(PollFile(file)));
            Ok(Rc::new(PollBinding { kernel, name, port }) as Rc<dyn PciBinding>)
        })
    }
}

impl PciBinding for PollBinding {
    fn remove<'a>(&'a self, _: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            self.kernel.unregister_file(&self.name);
            self.port.pairs.borrow_mut().clear();
        })
    }
}

/// One function.
struct PolledPort {
    kernel: Rc<dyn Kernel>,
    device: PciDevice,
    dma: Rc<dyn DmaOps>,
    registers: Mmio,
    limits: Limits,
    /// A program has it.
    is_taken: Cell<bool>,
    /// Queues while it runs.
    pairs: RefCell<Vec<Rc<PolledQueues>>>,
    /// Bus addresses of mapped chunks.
    chunks: RefCell<BTreeMap<PhysAddr, Iova>>,
}

/// A pair of queues, which one core uses at a time.
struct PolledQueues {
    rx: Ring,
    tx: Ring,
    pool: Rc<Mbufs>,
    /// By place in the RX ring: the buffer that the device holds there.
    posted: RefCell<Vec<PhysAddr>>,
    /// Counts of buffers posted, and of those that came back.
    rx_tail: Cell<u16>,
    rx_done: Cell<u16>,
    /// By place in the TX ring: the packet of its last descriptor.
    sending: RefCell<Vec<Option<Packet>>>,
    /// Counts of descriptors written and finished, of completions seen, and of descriptors since one was asked for.
    tx_tail: Cell<u16>,
    tx_done: Cell<u16>,
    tx_seen: Cell<u16>,
    unreported: Cell<u16>,
}

/// Mbufs of a queue: the last one returned is the next one taken, as in a mempool's cache.
struct Mbufs {
    free: RefCell<Vec<PhysAddr>>,
    lists: RefCell<Vec<Vec<Fragment>>>,
}

impl Mbufs {
    /// At least so many, in whole chunks.
    fn new(cpu: &Cpu, kernel: &Rc<dyn Kernel>, count: u64) -> Result<Rc<Self>, Error> {
        let each = CHUNK / BUFFER;
        let mut free = Vec::new();
        for _ in 0..count.div_ceil(each) {
            let chunk = kernel.alloc_pages(cpu, Pages::order_for(CHUNK), Policy::Task)?;
            free.extend((0..each).rev().map(|n| chunk.start + n * BUFFER));
        }
        Ok(Rc::new(Self { free: RefCell::new(free), lists: RefCell::default() }))
    }
}

impl PacketOwner for Mbufs {
    fn released(&self, _: &Cpu, packet: &mut Packet) {
        let mut list = core::mem::take(&mut packet.fragments);
        let mut free = self.free.borrow_mut();
        free.extend(list.drain(..).map(|fragment| PhysAddr(fragment.at.0 - HEADROOM - MBUF)));
        self.lists.borrow_mut().push(list);
    }
}

impl PolledQueues {
    /// Posts free buffers in whole batches.
    fn refill(&self, cpu: &Cpu, port: &PolledPort) -> Result<(), Error> {
        let given = self.rx_tail.get().wrapping_sub(self.rx_done.get());
        // One place stays empty, so that a full ring differs from an empty one.
        let missing = self.rx.entries() - 1 - given;
        let begin = self.rx_tail.get();
        for _ in 0..missing / BATCH * BATCH {
            let Some(buffer) = self.pool.free.borrow_mut().pop() else { break };
            let address = port.bus(cpu, buffer + (MBUF + HEADROOM))?;
            let descriptor = RxDescriptor { address: address.get(), length: DATA as u16 };
            let tail = self.rx_tail.get();
            self.posted.borrow_mut()[self.rx.index(tail)] = buffer;
            cpu.store(self.rx.descriptor(tail), &descriptor.emit());
            self.rx_tail.set(tail.wrapping_add(1));
        }
        if self.rx_tail.get() != begin {
            self.rx.ring(cpu, self.rx_tail.get());
        }
        Ok(())
    }

    /// The next received packet.
    fn next(&self, cpu: &Cpu) -> Option<Packet> {
        let done = self.rx_done.get();
        if done == self.rx_tail.get() {
            return None;
        }
        let completion = self.rx.completion(cpu, done)?;
        cpu.work(RECEIVE);
        let buffer = self.posted.borrow()[self.rx.index(done)];
        self.rx_done.set(done.wrapping_add(1));
        cpu.store(buffer, &[0; FIELDS]);
        let mut fragments = self.pool.lists.borrow_mut().pop().unwrap_or_default();
        let length = completion.length.into();
        fragments.push(Fragment { pages: None, at: buffer + (MBUF + HEADROOM), length });
        let owner = Some(Rc::clone(&self.pool) as Rc<dyn PacketOwner>);
        let packet = Packet { fragments, owner, hash: completion.hash, ..Packet::default() };
        let is_whole = completion.kind == Kind::Received && completion.has(END) && !completion.has(FAILED);
        if is_whole {
            return Some(packet);
        }
        packet.release(cpu);
        self.next(cpu)
    }

    fn tx_free(&self) -> u16 {
        self.tx.entries() - 1 - self.tx_tail.get().wrapping_sub(self.tx_done.get())
    }

    /// Releases packets that the device has sent.
    fn reap(&self, cpu: &Cpu) {
        while self.tx_done.get() != self.tx_tail.get()
            && let Some(completion) = self.tx.completion(cpu, self.tx_seen.get())
        {
            self.tx_seen.set(self.tx_seen.get().wrapping_add(1));
            while self.tx_done.get() != completion.count && self.tx_done.get() != self.tx_tail.get() {
                let at = self.tx.index(self.tx_done.get());
                self.tx_done.set(self.tx_done.get().wrapping_add(1));
                let packet = self.sending.borrow_mut()[at].take();
                if let Some(packet) = packet {
                    packet.release(cpu);
                }
            }
        }
    }

    /// Writes a packet's descriptors. Gives it back if they have no room.
    fn put(&self, cpu: &Cpu, port: &PolledPort, packet: Packet) -> Result<(), Packet> {
        let pieces = packet.fragments.len() as u16;
        if pieces == 0 || pieces > self.tx_free() {
            return Err(packet);
        }
        cpu.work(SEND);
        // Address and length are in the mbuf in front of the data.
        cpu.load(PhysAddr(packet.fragments[0].at.0 - HEADROOM - MBUF), &mut [0; FIELDS]);
        let mut tail = self.tx_tail.get();
        let unreported = self.unreported.get() + pieces;
        let reports = unreported >= BATCH.min(self.tx.entries() / 4);
        for (n, fragment) in packet.fragments.iter().enumerate() {
            let Ok(address) = port.bus(cpu, fragment.at) else { return Err(packet) };
            let is_last = n + 1 == packet.fragments.len();
            let flags = if is_last { LAST | if reports { REPORT } else { 0 } } else { 0 };
            let descriptor = TxDescriptor {
                address: address.get(),
                length: fragment.length as u16,
                flags,
                ..TxDescriptor::default()
            };
            cpu.store(self.tx.descriptor(tail), &descriptor.emit());
            tail = tail.wrapping_add(1);
        }
        self.unreported.set(if reports { 0 } else { unreported });
        self.sending.borrow_mut()[self.tx.index(tail.wrapping_sub(1))] = Some(packet);
        self.tx_tail.set(tail);
        Ok(())
    }
}

impl PolledPort {
    /// Bus address of memory of a pool, whose chunk is mapped the first time.
    fn bus(&self, cpu: &Cpu, at: PhysAddr) -> Result<Iova, Error> {
        let start = at.align_down(CHUNK);
        let known = self.chunks.borrow().get(&start).copied();
        let bus = match known {
            Some(bus) => bus,
            None => {
                let bus = self.dma.map(cpu, start, CHUNK, Direction::Bidirectional)?;
                self.chunks.borrow_mut().insert(start, bus);
                bus
            }
        };
        Ok(Iova::new(bus.get() + (at.0 - start.0)))
    }

    fn pair(&self, queue: u16) -> Option<Rc<PolledQueues>> {
        self.pairs.borrow().get(usize::from(queue)).cloned()
    }

    fn new_pair(&self, cpu: &Cpu, number: u16, setup: PollSetup) -> Result<PolledQueues, Error> {
        let are_wide = self.limits.features & feature::WIDE_COMPLETIONS != 0;
        let stride = if are_wide { regs::WIDE_STRIDE } else { LEN.ilog2() as u8 };
        let ring = |first, entries: u32| {
            let sizes = (entries.ilog2() as u8, stride);
            Ring::new(cpu, &self.dma, &self.registers, (first, number), sizes, [cpu.node(); 2])
        };
        let (rx, tx) = (ring(regs::RX_QUEUES, setup.rings.rx)?, ring(regs::TX_QUEUES, setup.rings.tx)?);
        let buffers = u64::from(setup.rings.rx) + u64::from(setup.rings.tx) + 2 * u64::from(BATCH);
        let sending = (0..setup.rings.tx).map(|_| None).collect();
        Ok(PolledQueues {
            pool: Mbufs::new(cpu, &self.kernel, buffers)?,
            posted: RefCell::new(vec![PhysAddr::default(); setup.rings.rx as usize]),
            sending: RefCell::new(sending),
            rx,
            tx,
            rx_tail: Cell::default(),
            rx_done: Cell::default(),
            tx_tail: Cell::default(),
            tx_done: Cell::default(),
            tx_seen: Cell::default(),
            unreported: Cell::default(),
        })
    }

    async fn bring_up(&self, cpu: &Cpu, setup: PollSetup) -> Result<(), Error> {
        let fits =
            |entries: u32| entries.is_power_of_two() && entries.ilog2() <= self.limits.log2_ring.into();
        if !(1..=self.limits.queues).contains(&setup.queues) || !fits(setup.rings.rx) || !fits(setup.rings.tx)
        {
            return Err(Error::Invalid);
        }
        self.device.set_master(cpu, true).await;
        self.registers.write_u32(cpu, regs::CONTROL, control::RESET);
        for number in 0..setup.queues {
            let pair = self.new_pair(cpu, number, setup)?;
            // Nobody asks for an interrupt.
            pair.rx.start(cpu, regs::NO_VECTOR as u16);
            pair.tx.start(cpu, regs::NO_VECTOR as u16);
            pair.refill(cpu, self)?;
            self.pairs.borrow_mut().push(Rc::new(pair));
            cpu.sync().await;
        }
        self.registers.write_u32(cpu, regs::MAX_FRAME, u32::from(self.limits.max_frame).min(DATA as u32));
        let wanted = feature::PROMISCUOUS | if setup.queues > 1 { feature::RSS } else { 0 };
        self.registers.write_u32(cpu, regs::ENABLED, self.limits.features & wanted);
        let table: Vec<u16> = (0..setup.queues).cycle().take(self.limits.rss_entries.into()).collect();
        write_rss(cpu, &self.registers, &table);
        self.registers.write_u32(cpu, regs::CONTROL, control::ENABLE);
        let until = cpu.now() + LINK;
        while self.registers.read_u32(cpu, regs::STATUS).await & status::LINK_UP == 0 && cpu.now() < until {
            cpu.sleep(LOOK).await;
        }
        Ok(())
    }
}

impl PollDevice for PolledPort {
    fn start<'a>(&'a self, cpu: &'a Cpu, setup: PollSetup) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            if self.is_taken.replace(true) {
                return Err(Error::Busy);
            }
            self.bring_up(cpu, setup).await
        })
    }

    fn mac(&self) -> MacAddr {
        self.limits.mac
    }

    fn receive(&self, cpu: &Cpu, queue: u16, into: &mut Vec<Packet>, most: usize) {
        let Some(pair) = self.pair(queue) else { return };
        cpu.work(CALL);
        while into.len() < most
            && let Some(packet) = pair.next(cpu)
        {
            into.push(packet);
        }
        // Without memory, the ring runs dry, and the device counts what it drops.
        let _ = pair.refill(cpu, self);
    }

    fn send(&self, cpu: &Cpu, queue: u16, packets: &mut Vec<Packet>) {
        let Some(pair) = self.pair(queue) else { return };
        if packets.is_empty() {
            return;
        }
        cpu.work(CALL);
        if usize::from(pair.tx_free()) < packets.len().max(BATCH.into()) {
            pair.reap(cpu);
        }
        let (mut left, mut is_full) = (Vec::new(), false);
        let before = pair.tx_tail.get();
        for packet in packets.drain(..) {
            match if is_full { Err(packet) } else { pair.put(cpu, self, packet) } {
                Ok(()) => {}
                Err(packet) => {
                    is_full = true;
                    left.push(packet);
                }
            }
        }
        *packets = left;
        if pair.tx_tail.get() != before {
            pair.tx.ring(cpu, pair.tx_tail.get());
        }
    }
}
