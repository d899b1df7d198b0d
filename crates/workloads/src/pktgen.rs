//! pktgen: sends UDP packets as fast as a device accepts them, like Linux's in-kernel generator.
//!
//! The options are those of its sample scripts (`samples/pktgen/parameters.sh`). Packets go directly to the driver,
//! bypassing the stack's queue; each thread has its core's TX queue to itself. Sizes exclude the check sequence: the
//! minimum is 60.

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

use crate::options::check_length;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::Unmodelled;

/// Magic number of pktgen's own header, before sequence number and time.
const MAGIC: u32 = 0xbe9b_e955;
/// Bytes of all headers: Ethernet, IPv4, UDP and pktgen's own.
const HEADERS: usize = HEADER_LEN + 20 + 8 + 16;
/// The discard port, source and destination of packets.
const PORT: u16 = 9;
/// Cycles to allocate and fill a packet, without its stores (assumed).
const FILL: u64 = 150;
/// Cycles of the loop per packet (assumed).
const LOOP: u64 = 25;
/// Packets given to the driver before the simulation catches up, without bursts.
const TURN: u32 = 8;

/// Time without progress after which the remaining packets count as lost (assumed: well above any timeout of a card).
const QUIET: Duration = Duration::from_us(200);
/// Polling interval of the device's counters (assumed).
const LOOK: Duration = Duration::from_us(1);

/// Options without an effect of their own here.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-v", "the report has everything"),
    Unmodelled::harmless("-x", "there is no debug output"),
    Unmodelled::harmless("-a", "each program has threads of its own"),
    Unmodelled::refused("-f THREAD", "the program's key `cpus` says on which cores it runs"),
    Unmodelled::refused("-p PORTS", "packets go to the discard port, 9"),
    Unmodelled::refused("-6", "hosts have IPv4 addresses"),
];

/// Sends frames as fast as possible, bypassing the network stack, like the kernel's packet generator.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "pktgen", disable_help_flag = true)]
pub struct Pktgen {
    /// Network device that sends.
    #[arg(short = 'i', default_value = "eth0")]
    device: String,
    /// Frame size without check sequence, bytes.
    #[arg(short = 's', default_value_t = 60, value_parser = clap::value_parser!(u16).range(60..=9014))]
    size: u16,
    /// Packets per thread.
    #[arg(short = 'n', default_value_t = 100_000, value_parser = packets)]
    count: u64,
    /// Number of threads, each on its own core.
    #[arg(short = 't', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// How often each packet is repeated before a new one is built; not on a team.
    #[arg(short = 'c', default_value_t = 0)]
    clones: u32,
    /// Packets per doorbell; more than one not on a team.
    #[arg(short = 'b', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    burst: u32,
    /// MAC address of the receiver; broadcast by default.
    #[arg(short = 'm', default_value = "ff:ff:ff:ff:ff:ff")]
    mac: MacAddr,
    /// IPv4 address of the receiver.
    #[arg(short = 'd', default_value = "198.18.0.42")]
    address: Ipv4Addr,
    /// Nanoseconds between packets; 0 for maximum rate.
    #[arg(short = 'w', default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    delay_ns: u64,
}

/// A number of packets. The original's 0, without end, would never end a run.
fn packets(text: &str) -> Result<u64, String> {
    let number = text.parse().map_err(|_| format!("`{text}` is not a number of packets"))?;
    if number == 0 { Err("a run ends: write how many packets, 1 or more".into()) } else { Ok(number) }
}

/// A packet's memory, which may be in the device several times at once.
struct Template {
    pages: Pages,
    /// Number of references: one per copy in the device, and one while it may be repeated.
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
    /// The packet being repeated, and the remaining repetitions.
    current: RefCell<Option<(Rc<Template>, u32)>>,
    /// Number of packets in the device.
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

    /// The next packet: a repetition or a new one.
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

    /// A template with new headers, with one reference.
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
                // The content after the headers is written once.
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

    /// Waits until the device has no packets left, and frees the memory.
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

    /// Like the original, neither repeats packets nor sends bursts on a device that may change a packet which is sent
    /// again.
    fn check_repeats(&self, shares_packets: bool) -> Result<(), Refused> {
        let option = if self.clones > 0 { "-c" } else { "-b" };
        let message = format!(
            "pktgen: {option} sends a packet again, which {}, a device above others, does not allow",
            self.device
        );
        let repeats = self.clones > 0 || self.burst > 1;
        Refused::unless(shares_packets || !repeats, message, "leave -c and -b out: each packet is then new")
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

    /// Sends one thread's packets.
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
                    // Like the original, it stops when the link goes down.
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

    /// Reports what happened to the packets given to the NIC.
    fn report(&self, given: u64, took: Duration, [before, after]: [TxStatistics; 2]) -> Report {
        // Other traffic may have passed the device, too.
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
            ("lost when the device was reset or removed", after.lost - before.lost),
            ("refused by the driver", after.refused - before.refused),
            ("dropped by the device", after.dropped - before.dropped),
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

/// Waits until the device has sent or dropped everything it was given, or until [`QUIET`] passes without progress.
///
/// Returns the final counters, and the time of the last progress unless everything was done at the first check:
/// packets written into the device by programmed I/O leave the driver before the device has sent them.
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
        // Without further progress, the last packet finished before the first check.
        seen = Some(news);
        after = now;
    }
    (after, seen)
}

/// Packets whose outcome is known.
fn settled_of(before: &TxStatistics, after: &TxStatistics) -> u64 {
    let sum = |s: &TxStatistics| s.frames + s.failed + s.no_carrier + s.lost + s.refused + s.dropped;
    sum(after) - sum(before)
}

/// Totals of a thread.
#[derive(Default)]
struct Thread {
    /// Packets given to the driver.
    given: u64,
    /// Number of times the queue was full.
    refused: u64,
    /// Time waited for room in the queue.
    waited: Duration,
    /// The device or its carrier was lost.
    stopped: bool,
}

impl Program for Pktgen {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let link = premises.link("pktgen", &self.device)?;
        self.check_cores(premises.cores)?;
        self.check_carrier(link.has_carrier)?;
        self.check_repeats(link.shares_packets)?;
        check_length("pktgen", self.count, Duration::from_ns(self.delay_ns))?;
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
            self.check_repeats(device.limits().shares_packets)?;
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
            if self.delay_ns > 0 {
                let asked = f64::from(self.threads) * 1e9 / self.delay_ns as f64;
                report.set_pace("-w", asked, all.given as f64 / took.as_s_f64());
            }
            Ok(report)
        })
    }
}
