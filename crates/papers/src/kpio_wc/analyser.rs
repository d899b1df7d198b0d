//! The paper's host with a card in its slot, and an analyser on the card's link.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use machine::HostSetup;
use nearfar::computer::nic_driver;
use nearfar::drivers::nic::NicDriverParams;
use nearfar::hardware::link::{LinkId, Packet, Side};
use nearfar::hardware::memory::{CoreId, NodeCounters};
use nearfar::trace::{Capture, Decoded, Recorder, Row, Span};
use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::{Pages, PhysAddr, Policy};
use platform::net::{Fragment, Packet as Frame, PacketDevice, PacketOwner};
use platform::pci::PciDriver;
use platform::sync::Completion;
use units::{Duration, Time};
use wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN, MacAddr};
use wire::ip::{Ipv4Header, TcpHeader, ipv4, protocol};
use wire::pcie::TlpKind;

use crate::Options;
use crate::rig::Rig;

/// The only card's link.
const LINK: LinkId = LinkId(0);
/// The sending core; interrupts go to another.
const SENDER: CpuId = CpuId(1);
/// Bytes of headers before a message, in the paper's accounting: 12 of Ethernet and 24 of IP (section IV.A).
pub const HEADERS: u32 = 36;
/// Time for the system to become idle.
const REST: Duration = Duration::from_us(200);

/// Size of a frame buffer.
const PAGE: u64 = 4096;
/// A MAC address that no card has.
pub const NOBODY: MacAddr = MacAddr([2, 0, 0, 0, 0xff, 0xff]);

/// The card in the slot.
#[derive(Clone, Copy)]
pub struct Card<'a> {
    /// The NIC's file.
    pub nic: &'a str,
    /// Changes to it and to the host, in scenario syntax below `[[host.device]]` and `[[host]]`.
    pub change: &'a str,
    pub change_host: &'a str,
    /// Connect its two ports by a cable; for cards without internal loopback.
    pub cable: bool,
}

/// The paper's FPGA.
pub const FPGA: Card<'static> = Card { nic: "kpio-fpga", change: "", change_host: "", cable: false };
/// As `FPGA`, but the host accepts a cache line only 200 ns after the core sent it: a hypothesis checked against the
/// paper's numbers.
pub const SLOW: Card<'static> =
    Card { change_host: "change.host.root_complex.outbound_accept = \"200 ns\"", ..FPGA };
/// The paper's ordinary NIC of Figure 6.
pub const ORDINARY: Card<'static> = Card { nic: "82575eb", change: "", change_host: "", cable: true };

/// A TLP captured by the analyser.
pub struct SeenPacket {
    pub at: Time,
    pub until: Time,
    /// Direction: host to card.
    pub is_down: bool,
    pub kind: PacketKind,
    /// Bytes of data, and bytes on the lanes.
    pub payload: u64,
    pub wire: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketKind {
    Write,
    Read,
    Completion,
    Other,
}

/// The booted host with the analyser.
pub struct Watched {
    rig: Rig,
    recorder: Rc<RefCell<Recorder>>,
}

impl Watched {
    /// Boots it with these drivers.
    ///
    /// # Errors
    /// If a file is invalid or the host does not boot.
    pub fn new(options: &Options, card: Card<'_>, drivers: Vec<Rc<dyn PciDriver>>) -> Result<Self, String> {
        Self::boot(options, card, |_| drivers.clone())
    }

    /// Boots it with the NIC's driver, whose code costs what the kernel's file states.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_nic(options: &Options, card: Card<'_>, params: NicDriverParams) -> Result<Self, String> {
        Self::boot(options, card, |host| vec![nic_driver(host, params.clone()) as _])
    }

    fn boot(
        options: &Options,
        card: Card<'_>,
        drivers: impl Fn(&HostSetup) -> Vec<Rc<dyn PciDriver>>,
    ) -> Result<Self, String> {
        let Card { nic, change, change_host, cable } = card;
        let cable = if cable { "[[cable]]\nends = [\"a:0\", \"a:1\"]\n" } else { "" };
        let text = format!(
            "[[host]]\nname = \"a\"\nmachine = \"i5-2400s\"\n{change_host}\n\
             [[host.device]]\nnic = \"{nic}\"\naddress = [\"10.0.0.1/24\", \"10.0.1.2/24\"]\n{change}\n{cable}"
        );
        let recorder = Recorder::new(Span::default());
        let rig = Rig::boot_with(options, "kpio-wc", &text, drivers, |computers| {
            computers.simulation().with(|fabric, _| Recorder::tap(&recorder, fabric, LINK, "card"));
        })?;
        // Link traffic left over from boot is not part of an experiment.
        rig.pass(REST);
        Ok(Self { rig, recorder })
    }

    pub fn kernel(&self) -> Rc<dyn Kernel> {
        self.rig.host(0).kernel.face()
    }

    /// Counters of the host's memory.
    pub fn memory(&self) -> NodeCounters {
        let host = self.rig.host(0).host;
        self.rig.computers.simulation().with(|fabric, _| fabric.host(host).memory.counters().nodes[0].clone())
    }

    /// The first network device.
    ///
    /// # Errors
    /// If the driver did not bind to it.
    pub fn device(&self) -> Result<Rc<dyn PacketDevice>, String> {
        self.kernel().packet_device("eth0").ok_or_else(|| "the card has no network device".to_owned())
    }

    /// An address that no card has.
    pub fn nobody(&self) -> MacAddr {
        NOBODY
    }

    /// The MAC address of the card's other port.
    ///
    /// # Errors
    /// If the card has one port.
    pub fn other(&self) -> Result<MacAddr, String> {
        let device = self.kernel().packet_device("eth1");
        device.map(|device| device.limits().mac).ok_or_else(|| "the card has one port".to_owned())
    }

    /// Starts a program on a core.
    pub fn spawn<T: 'static>(
        &self,
        core: u16,
        program: impl AsyncFnOnce(Cpu) -> T + 'static,
    ) -> Completion<T> {
        let kernel = &self.rig.host(0).kernel;
        kernel.run(TaskParams::named("program").on(CpuId(core)), program)
    }

    /// Waits for a program to end.
    ///
    /// # Errors
    /// If it does not end.
    pub fn wait<T: 'static>(&self, program: &Completion<T>) -> Result<T, String> {
        self.rig.wait(program)
    }

    /// Waits for several programs to end.
    ///
    /// # Errors
    /// If one does not end.
    pub fn wait_all<T: 'static>(&self, programs: &[Completion<T>]) -> Result<Vec<T>, String> {
        self.rig.wait_all(programs)
    }

    /// Time when the core's last store left its store buffer for a combining buffer.
    ///
    /// # Errors
    /// If that takes unreasonably long.
    pub fn stored(&self, core: u16) -> Result<Time, String> {
        let simulation = self.rig.computers.simulation();
        let host = self.rig.host(0).host;
        let last = simulation.now() + REST;
        while simulation.now() < last {
            if simulation.with(|fabric, _| fabric.host(host).stores.of(CoreId(core)).pending()) == 0 {
                return Ok(simulation.now());
            }
            simulation.run_until(simulation.now() + Duration::from_ps(100));
        }
        Err("stores do not leave the store buffer".to_owned())
    }

    /// Simulates for a time.
    pub fn run_for(&self, time: Duration) {
        self.rig.pass(time);
    }

    /// Disturbs the card's link: retrains it without loss, or takes it down and up, losing packets in flight.
    pub fn disturb_link(&self, is_lost: bool) {
        let host = self.rig.host(0).host;
        self.rig.computers.simulation().with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(host, scheduler);
            cx.with(LINK, |link, cx| {
                if is_lost {
                    link.take_down(cx);
                    link.bring_up(cx);
                } else {
                    link.retrain(cx);
                }
            });
            host.link_drained(&mut cx, 0);
        });
    }

    /// Runs a program on a core of its own until everything is idle. Returns its result and the TLPs on the link.
    ///
    /// # Errors
    /// If it does not end.
    pub fn record<T: 'static>(
        &self,
        program: impl AsyncFnOnce(Cpu) -> T + 'static,
    ) -> Result<(T, Vec<SeenPacket>), String> {
        let (result, capture) = self.capture(program)?;
        Ok((result, seen(&capture)))
    }

    /// As [`record`](Self::record), with everything on the link.
    ///
    /// # Errors
    /// If it does not end.
    pub fn capture<T: 'static>(
        &self,
        program: impl AsyncFnOnce(Cpu) -> T + 'static,
    ) -> Result<(T, Capture), String> {
        let simulation = self.rig.computers.simulation();
        self.recorder.borrow_mut().start(simulation.now());
        let sender = TaskParams::named("sender").on(SENDER);
        let result = self.rig.wait(&self.rig.host(0).kernel.run(sender, program))?;
        self.rig.pass(REST);
        Ok((result, self.recorder.borrow_mut().capture()))
    }
}

/// The TLPs of a capture.
pub fn seen(capture: &Capture) -> Vec<SeenPacket> {
    let tlps = capture.packets.iter().filter(|passed| matches!(passed.packet, Packet::Tlp { .. }));
    let seen = tlps.enumerate().map(|(n, passed)| {
        let row = Row::of(capture, n + 1, passed, Time::ZERO);
        let (kind, payload) = match &row.decoded {
            Decoded::Tlp { tlp, payload, .. } => match &tlp.kind {
                TlpKind::MemoryWrite(r) => (PacketKind::Write, r.byte_range().1 as u64),
                TlpKind::MemoryRead(_) => (PacketKind::Read, 0),
                TlpKind::CompletionData(_) => (PacketKind::Completion, payload.len() as u64),
                _ => (PacketKind::Other, 0),
            },
            _ => (PacketKind::Other, 0),
        };
        let is_down = passed.from == Side::Upstream;
        SeenPacket { at: passed.at, until: passed.until, is_down, kind, payload, wire: row.wire_bytes }
    });
    seen.collect()
}

/// A source of frames from one buffer, or from several in turn.
pub struct FrameSource {
    pages: Pages,
    /// One-page buffers, and the index of the next one.
    buffers: u64,
    next: Cell<u64>,
    out: Cell<u32>,
}

impl PacketOwner for FrameSource {
    fn released(&self, _: &Cpu, _: &mut Frame) {
        self.out.set(self.out.get() - 1);
    }
}

impl FrameSource {
    /// Uses one buffer.
    ///
    /// # Errors
    /// If no memory is left.
    pub fn new(cpu: &Cpu, kernel: &Rc<dyn Kernel>) -> Result<Rc<Self>, Error> {
        Self::in_turn(cpu, kernel, 0)
    }

    /// Uses 2 to the `order` one-page buffers in turn.
    ///
    /// # Errors
    /// If no memory is left.
    pub fn in_turn(cpu: &Cpu, kernel: &Rc<dyn Kernel>, order: u8) -> Result<Rc<Self>, Error> {
        let pages = kernel.alloc_pages(cpu, order, Policy::Local)?;
        Ok(Rc::new(Self { pages, buffers: 1 << order, next: Cell::new(0), out: Cell::new(0) }))
    }

    /// Advances to the next buffer.
    pub fn turn(&self) {
        self.next.set((self.next.get() + 1) % self.buffers);
    }

    fn buffer(&self) -> PhysAddr {
        self.pages.start + self.next.get() * PAGE
    }

    fn frame(self: &Rc<Self>, length: u32) -> Frame {
        self.out.set(self.out.get() + 1);
        let fragment = Fragment { pages: None, at: self.buffer(), length };
        Frame::of(fragment, Some(Rc::clone(self) as _))
    }

    /// Sends `count` frames of `length` bytes directly to the driver, addressed to nobody. Waits while the driver has
    /// no room, and until all frames are released.
    pub async fn send(self: &Rc<Self>, cpu: &Cpu, device: &Rc<dyn PacketDevice>, length: u32, count: u32) {
        self.send_to(cpu, device, NOBODY, length, count).await;
    }

    /// As [`send`](Self::send), addressed to `to`.
    pub async fn send_to(
        self: &Rc<Self>,
        cpu: &Cpu,
        device: &Rc<dyn PacketDevice>,
        to: MacAddr,
        length: u32,
        count: u32,
    ) {
        self.store(cpu, &experimental(device, to, length)).await;
        for _ in 0..count {
            self.send_again(cpu, device, length).await;
        }
        self.wait(cpu).await;
    }

    /// Writes a frame of `length` bytes, addressed to nobody, into the buffer and sends it.
    pub async fn send_one(self: &Rc<Self>, cpu: &Cpu, device: &Rc<dyn PacketDevice>, length: u32) {
        self.store(cpu, &experimental(device, NOBODY, length)).await;
        self.send_again(cpu, device, length).await;
    }

    /// Writes a frame into the buffer.
    pub async fn store(&self, cpu: &Cpu, bytes: &[u8]) {
        cpu.store(self.buffer(), bytes);
        cpu.sync().await;
    }

    /// Sends the buffer directly to the driver; waits while the driver has no room.
    pub async fn send_again(self: &Rc<Self>, cpu: &Cpu, device: &Rc<dyn PacketDevice>, length: u32) {
        self.send_more(cpu, device, length, false).await;
    }

    /// As [`send_again`](Self::send_again). If `more` follow at once, one doorbell is rung for all.
    pub async fn send_more(
        self: &Rc<Self>,
        cpu: &Cpu,
        device: &Rc<dyn PacketDevice>,
        length: u32,
        more: bool,
    ) {
        let queue = device.tx_queue_for(cpu);
        let mut frame = self.frame(length);
        while let Err(back) = device.send_directly(cpu, queue, frame, more) {
            if !device.room(queue).await {
                back.release(cpu);
                return;
            }
            frame = back;
        }
        cpu.sync().await;
    }

    /// Waits until all frames are released.
    pub async fn wait(&self, cpu: &Cpu) {
        while self.out.get() > 0 {
            cpu.sleep(REST).await;
        }
    }
}

/// A frame of `length` bytes with the experimental EtherType.
fn experimental(device: &Rc<dyn PacketDevice>, to: MacAddr, length: u32) -> Vec<u8> {
    let mut bytes = vec![0x5a; length as usize];
    EthernetHeader::new(device.limits().mac, to, EtherType::EXPERIMENTAL).emit(&mut bytes);
    bytes
}

/// A TCP segment over IPv4 from a port, `length` bytes in total.
pub fn tcp_frame(to: MacAddr, port: u16, length: usize) -> Vec<u8> {
    let mut bytes = vec![0x5a; length];
    EthernetHeader::new(MacAddr::local(1), to, EtherType::IPV4).emit(&mut bytes);
    let carried = (length - HEADER_LEN - ipv4::HEADER_LEN) as u16;
    Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 1, 1].into(), protocol::TCP, carried)
        .emit(&mut bytes[HEADER_LEN..]);
    let header = TcpHeader { source: port, destination: 9, ..TcpHeader::default() };
    header.emit(&mut bytes[HEADER_LEN + ipv4::HEADER_LEN..]);
    bytes
}
