//! pktgen: sends UDP packets as fast as a device takes them, as Linux's in-kernel generator does.
//!
//! The options are those of its sample scripts (`samples/pktgen/parameters.sh`). Packets go straight to the driver, past
//! the stack's queue; each thread has its core's sending queue for itself. A size is that of the frame without
//! its check sequence: 60 for the smallest.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, Part};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::{Pages, Policy};
use platform::net::{Fragment, Packet, PacketDevice, PacketOwner, TxStatistics};
use platform::sync::WaitQueue;
use units::{Duration, Time};
use wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN, MacAddr};
use wire::ip::{Ipv4Header, UdpHeader, protocol};

use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};

/// The first word of pktgen's own header, in front of sequence number and time.
const MAGIC: u32 = 0xbe9b_e955;
/// Bytes of all headers: Ethernet, IPv4, UDP and pktgen's own.
const HEADERS: usize = HEADER_LEN + 20 + 8 + 16;
/// Discard, where packets go and come from.
const PORT: u16 = 9;
/// Cycles to allocate and fill a packet, its stores apart (assumed).
const FILL: u64 = 150;
/// Cycles of the loop for a packet (assumed).
const LOOP: u64 = 25;
/// Packets given to the driver before the simulation catches up, if there are no bursts.
const TURN: u32 = 8;

/// How long it is waited for what the device still has, from the last that came of it (assumed: well above what a card
/// waits for anything).
const QUIET: Duration = Duration::from_us(200);
/// From one look at the device's counters to the next (assumed).
const LOOK: Duration = Duration::from_us(1);

/// Sends frames as fast as the kernel's packet generator, without a network stack.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "pktgen", disable_help_flag = true)]
pub struct Pktgen {
    /// The device.
    #[arg(short = 'i', default_value = "eth0")]
    device: String,
    /// Bytes of a frame without its check sequence.
    #[arg(short = 's', default_value_t = 60, value_parser = clap::value_parser!(u16).range(60..=9014))]
    size: u16,
    /// Packets of each thread.
    #[arg(short = 'n', default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Threads, each on a core of its own.
    #[arg(short = 't', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// How often each packet is sent again before a new one is made.
    #[arg(short = 'c', default_value_t = 0)]
    clones: u32,
    /// Packets for one doorbell.
    #[arg(short = 'b', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    burst: u32,
    /// Ethernet address of the receiver; everybody if not given.
    #[arg(short = 'm', default_value = "ff:ff:ff:ff:ff:ff")]
    mac: MacAddr,
    /// IPv4 address of the receiver.
    #[arg(short = 'd', default_value = "198.18.0.42")]
    address: Ipv4Addr,
    /// Nanoseconds from one packet to the next; 0 for as fast as it goes.
    #[arg(short = 'w', default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    delay_ns: u64,
}

/// A packet's memory, which may be in the device several times.
struct Template {
    pages: Pages,
    /// How often the device has it, and once more while it may be sent again.
    holds: Cell<u32>,
    me: Weak<Self>,
    home: Weak<Packets>,
}

impl PacketOwner for Template {
    fn released(&self, _: &Cpu, packet: &mut Packet) {
        let Some(home) = self.home.upgrade() else { return };
        let mut list = core::mem::take(&mut packet.fragments);
        list.clear();
        home.lists.borrow_mut().push(list);
        self.let_go(&home);
        home.out.set(home.out.get() - 1);
        if home.out.get() == 0 {
            home.quiet.wake_all();
        }
    }
}

impl Template {
    fn let_go(&self, home: &Packets) {
        self.holds.set(self.holds.get() - 1);
        if self.holds.get() == 0 {
            home.free.borrow_mut().extend(self.me.upgrade());
        }
    }
}

/// A thread's packets.
struct Packets {
    kernel: Rc<dyn Kernel>,
    free: RefCell<Vec<Rc<Template>>>,
    lists: RefCell<Vec<Vec<Fragment>>>,
    /// The one that is sent again, and how often it may be.
    current: RefCell<Option<(Rc<Template>, u32)>>,
    /// Packets that the device has.
    out: Cell<u64>,
    quiet: WaitQueue,
}

impl Packets {
    fn new(kernel: Rc<dyn Kernel>) -> Rc<Self> {
        Rc::new(Self {
            kernel,
            free: RefCell::default(),
            lists: RefCell::default(),
            current: RefCell::new(None),
            out: Cell::new(0),
            quiet: WaitQueue::new(),
        })
    }

    /// The next packet: one that was sent before, or a new one.
    fn next(
        self: &Rc<Self>,
        cpu: &Cpu,
        what: &Pktgen,
        source: MacAddr,
        number: u64,
    ) -> Result<Packet, Error> {
        let (template, left) = match self.current.borrow_mut().take() {
            Some((template, left)) => (template, left - 1),
            None => (self.make(cpu, what, source, number)?, what.clones),
        };
        let fragment = Fragment { pages: None, at: template.pages.start, length: what.size.into() };
        let mut fragments = self.lists.borrow_mut().pop().unwrap_or_default();
        fragments.push(fragment);
        self.out.set(self.out.get() + 1);
        template.holds.set(template.holds.get() + 1);
        if left > 0 {
            *self.current.borrow_mut() = Some((Rc::clone(&template), left));
        } else {
            template.let_go(self);
        }
        Ok(Packet { fragments, owner: Some(template), ..Packet::default() })
    }

    /// A template with fresh headers, held once.
    fn make(
        self: &Rc<Self>,
        cpu: &Cpu,
        what: &Pktgen,
        source: MacAddr,
        number: u64,
    ) -> Result<Rc<Template>, Error> {
        let frame = what.frame(source, cpu.now(), number);
        let free = self.free.borrow_mut().pop();
        let template = match free {
            Some(template) => template,
            None => {
                let order = Pages::order_for(what.size.into());
                let pages = self.kernel.alloc_pages(cpu, order, Policy::Task)?;
                // The content behind the headers is made once.
                cpu.store(pages.start, &frame);
                let home = Rc::downgrade(self);
                Rc::new_cyclic(|me| Template { pages, holds: Cell::new(0), me: me.clone(), home })
            }
        };
        cpu.work(FILL);
        cpu.store(template.pages.start, &frame[..HEADERS.min(frame.len())]);
        template.holds.set(1);
        Ok(template)
    }

    /// Waits until the device has none, and gives the memory back.
    async fn end(&self, cpu: &Cpu) {
        self.quiet.wait_for(|| (self.out.get() == 0).then_some(())).await;
        if let Some((template, _)) = self.current.take() {
            template.let_go(self);
        }
        self.free.borrow_mut().drain(..).for_each(|template| self.kernel.free_pages(cpu, template.pages));
    }
}

impl Pktgen {
    fn check_cores(&self, cores: usize) -> Result<(), Refused> {
        let message = format!("pktgen: {} threads, each of which takes a core", self.threads);
        Refused::unless(usize::from(self.threads) <= cores, message, format!("-t 1 to {cores}"))
    }

    fn check_carrier(&self, is_there: bool) -> Result<(), Refused> {
        let message =
            format!("pktgen: {}: no carrier: nothing is at the other end of the cable", self.device);
        Refused::unless(is_there, message, "add a `[[cable]]` that leads to the device's port")
    }

    fn frame(&self, source: MacAddr, now: Time, number: u64) -> Vec<u8> {
        let mut frame = vec![0; self.size.into()];
        EthernetHeader::new(source, self.mac, EtherType::IPV4).emit(&mut frame);
        let from = Ipv4Addr::new(198, 18, 0, 1);
        let length = self.size - HEADER_LEN as u16 - 20;
        Ipv4Header::new(from, self.address, protocol::UDP, length).emit(&mut frame[HEADER_LEN..]);
        UdpHeader { source: PORT, destination: PORT, len: length, checksum: 0 }
            .emit(&mut frame[HEADER_LEN + 20..]);
        let us = now.as_ps() / 1_000_000;
        let own = [MAGIC, number as u32, (us / 1_000_000) as u32, (us % 1_000_000) as u32];
        for (word, place) in own.into_iter().zip(frame[HEADER_LEN + 28..].chunks_exact_mut(4)) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        frame
    }

    /// One thread's packets.
    async fn send(
        &self,
        cpu: &Cpu,
        kernel: Rc<dyn Kernel>,
        device: Rc<dyn PacketDevice>,
    ) -> Result<Thread, Error> {
        let _part = cpu.book(Part::Kernel);
        let mut done = Thread::default();
        let packets = Packets::new(kernel);
        let queue = device.tx_queue_for(cpu);
        let source = device.limits().mac;
        let mut next = cpu.now();
        'packets: for number in 0..self.count {
            cpu.work(LOOP);
            let is_last_of_burst = (number + 1) % u64::from(self.burst) == 0;
            let more = !is_last_of_burst && number + 1 < self.count;
            let mut packet = packets.next(cpu, self, source, number)?;
            while let Err(back) = device.send_directly(cpu, queue, packet, more) {
                let since = cpu.now();
                let is_open = device.room(queue).await;
                done.waited += cpu.now().since(since);
                if !is_open {
                    // As Linux's does, it stops when the link goes down.
                    back.release(cpu);
                    done.stopped = true;
                    break 'packets;
                }
                done.refused += 1;
                packet = back;
            }
            done.given += 1;
            let turn = if self.burst > 1 { self.burst.min(32) } else { TURN };
            if (number + 1) % u64::from(turn) == 0 {
                cpu.sync().await;
            }
            if self.delay_ns > 0 && !more {
                next += Duration::from_ns(self.delay_ns * u64::from(self.burst));
                cpu.sleep_until(next).await;
            }
        }
        cpu.sync().await;
        packets.end(cpu).await;
        Ok(done)
    }

    /// What the NIC has made of what it was given.
    fn report(&self, given: u64, took: Duration, [before, after]: [TxStatistics; 2]) -> Report {
        // Frames of others may have gone the same way.
        let sent = given.min(after.frames - before.frames);
        let ns = took.as_ns_f64();
        let mut report = Report::default();
        report.add("sent", "packets", sent as f64);
        report.add("time", "µs", ns / 1e3);
        report.add("rate", "Mpackets/s", sent as f64 / ns * 1e3);
        report.add("throughput", "Mbit/s", sent as f64 * f64::from(self.size) * 8.0 / ns * 1e3);
        let counted = [
            ("failed in the device", after.failed - before.failed),
            ("dropped for want of a carrier", after.no_carrier - before.no_carrier),
            ("lost in resets of the device", after.lost - before.lost),
            ("refused by the driver", after.refused - before.refused),
            ("dropped by the device, as not all of their lines came", by_lines(&after) - by_lines(&before)),
        ];
        if sent < given {
            let reasons = counted.iter().filter(|(_, packets)| *packets > 0);
            let reasons: Vec<String> = reasons.map(|(why, packets)| format!("{packets} {why}")).collect();
            let reasons = if reasons.is_empty() { "nobody knows why".to_owned() } else { reasons.join(", ") };
            report.notes.push(format!("{} packets were not sent: {reasons}", given - sent));
        }
        match after.resets - before.resets {
            0 => {}
            resets => report.notes.push(format!("the device was reset {resets} times")),
        }
        report
    }
}

/// Waits until a device has sent what it was given or has said why not, or until nothing more has come of it for [`QUIET`].
///
/// Gives what it has counted by then, and when the last of that was seen, unless all was there at once: packets that
/// were written into the device are the driver's no longer when it still has to send them.
async fn settled(
    cpu: &Cpu,
    device: &dyn PacketDevice,
    before: &TxStatistics,
    given: u64,
) -> (TxStatistics, Option<Time>) {
    let mut seen = None;
    let mut after = device.statistics(cpu).await;
    let mut news = cpu.now();
    while settled_of(before, &after) < given && cpu.now().since(news) < QUIET {
        cpu.sleep(LOOK).await;
        let now = device.statistics(cpu).await;
        if settled_of(before, &now) > settled_of(before, &after) {
            news = cpu.now();
        }
        // Without more, the last was under way before the first look.
        seen = Some(news);
        after = now;
    }
    (after, seen)
}

/// Packets by programmed I/O that the device has dropped: most have a number that it misses as well.
fn by_lines(statistics: &TxStatistics) -> u64 {
    statistics.lines_dropped.max(statistics.lines_missing)
}

/// Packets of which it is known what became of them.
fn settled_of(before: &TxStatistics, after: &TxStatistics) -> u64 {
    let sum = |s: &TxStatistics| s.frames + s.failed + s.no_carrier + s.lost + s.refused + by_lines(s);
    sum(after) - sum(before)
}

/// What a thread has done.
#[derive(Default)]
struct Thread {
    /// Packets given to the driver.
    given: u64,
    /// How often the queue was full.
    refused: u64,
    /// How long it waited for it to have room.
    waited: Duration,
    /// The device or its carrier went.
    stopped: bool,
}

impl Program for Pktgen {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let link = premises.link("pktgen", &self.device)?;
        self.check_cores(premises.cores)?;
        self.check_carrier(link.has_carrier)?;
        let message = format!("pktgen: {} sends no frames of {} bytes", self.device, self.size);
        Refused::unless(
            u64::from(self.size) <= link.max_frame,
            message,
            format!("-s 60 to {}", link.max_frame),
        )
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let Environment { kernel, cpus, .. } = environment;
            let device = kernel.packet_device(&self.device);
            let device = device.ok_or_else(|| Failure::about(&self.device, Error::NoDevice))?;
            self.check_cores(cpus.len())?;
            self.check_carrier(device.has_carrier())?;
            let before = device.statistics(&cpu).await;
            let began = cpu.now();
            let mut threads = Vec::new();
            for (n, &on) in cpus[..usize::from(self.threads)].iter().enumerate() {
                let (what, device, face) = (Rc::clone(&self), Rc::clone(&device), Rc::clone(&kernel));
                let thread = async move |cpu: Cpu| what.send(&cpu, face, device).await;
                threads.push(kernel.run(TaskParams::named(format!("kpktgend_{n}")).on(on).of(&cpu), thread));
            }
            let mut all = Thread::default();
            for thread in threads {
                let done = thread.wait().await.map_err(|error| Failure::about(&self.device, error))?;
                all.given += done.given;
                all.refused += done.refused;
                all.waited += done.waited;
                all.stopped |= done.stopped;
            }
            let handed_over = cpu.now();
            let (after, seen) = settled(&cpu, &*device, &before, all.given).await;
            let took = seen.unwrap_or(handed_over).since(began);
            let mut report = self.report(all.given, took, [before, after]);
            let time = f64::from(self.threads) * took.as_ns_f64();
            report.add("waited for room", "% of time", 100.0 * all.waited.as_ns_f64() / time);
            if all.stopped {
                report.notes.push(format!("{} went down, or its link did", self.device));
            }
            report.add("ring full", "times", all.refused as f64);
            Ok(report)
        })
    }
}
