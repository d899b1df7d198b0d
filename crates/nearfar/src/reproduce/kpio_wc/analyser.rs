//! The paper's host with a card in its slot, and an analyser on the card's link.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use drivers::nic::NicDriverParams;
use hardware::link::{LinkId, Packet, Side};
use hardware::memory::{CoreId, NodeCounters};
use machine::HostSetup;
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

use crate::computer::nic_driver;
use crate::reproduce::Options;
use crate::reproduce::rig::Rig;
use crate::trace::{Capture, Decoded, Recorder, Row, Span};

/// The link of the only card.
const LINK: LinkId = LinkId(0);
/// The core that sends; interrupts come to another.
const SENDER: CpuId = CpuId(1);
/// Bytes of headers before a message, as the paper counts them: 12 of Ethernet and 24 of IP (section IV.A).
pub const HEADERS: u32 = 36;
/// Time for everything to come to rest.
const REST: Duration = Duration::from_us(200);

/// Bytes of a buffer for a frame.
const PAGE: u64 = 4096;
/// An address that no card has.
pub const NOBODY: MacAddr = MacAddr([2, 0, 0, 0, 0xff, 0xff]);

/// What is in the slot.
#[derive(Clone, Copy)]
pub struct Card<'a> {
    /// The NIC's file.
    pub nic: &'a str,
    /// What to change in it and in the host, as a scenario has it below `[[host.device]]` and `[[host]]`.
    pub change: &'a str,
    pub change_host: &'a str,
    /// A cable between its ports, where it has no loop inside.
    pub cable: bool,
}

/// The paper's FPGA.
pub const FPGA: Card<'static> = Card { nic: "kpio-fpga", change: "", change_host: "", cable: false };
/// The same where the host accepts a line 200 ns after it left its core: a supposition, held against the paper's numbers.
pub const SLOW: Card<'static> =
    Card { change_host: "change.host.root_complex.outbound_accept = \"200 ns\"", ..FPGA };
/// The paper's ordinary NIC of Figure 6.
pub const ORDINARY: Card<'static> = Card { nic: "82575eb", change: "", change_host: "", cable: true };

/// A TLP that the analyser saw.
pub struct SeenPacket {
    pub at: Time,
    pub until: Time,
    /// From the host to the card.
    pub is_down: bool,
    pub kind: PacketKind,
    /// Bytes of data, and of everything on the lanes.
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

/// The host, booted, and the analyser.
pub struct Watched {
    rig: Rig,
    recorder: Rc<RefCell<Recorder>>,
}

impl Watched {
    /// Boots it with the drivers.
    ///
    /// # Errors
    /// What is wrong with the files, or keeps it from booting.
    pub fn new(options: &Options, card: Card<'_>, drivers: Vec<Rc<dyn PciDriver>>) -> Result<Self, String> {
        Self::boot(options, card, |_| drivers.clone())
    }

    /// Boots it with the NIC's driver, whose code costs what the kernel's file says.
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
        // What booting still does on the link is no part of an experiment.
        rig.pass(REST);
        Ok(Self { rig, recorder })
    }

    /// The kernel.
    pub fn kernel(&self) -> Rc<dyn Kernel> {
        self.rig.host(0).kernel.face()
    }

    /// What the host's memory has done so far.
    pub fn memory(&self) -> NodeCounters {
        let host = self.rig.host(0).host;
        self.rig.computers.simulation().with(|fabric, _| fabric.host(host).memory.counters().nodes[0].clone())
    }

    /// The first network device.
    ///
    /// # Errors
    /// If its driver did not take it.
    pub fn device(&self) -> Result<Rc<dyn PacketDevice>, String> {
        self.kernel().packet_device("eth0").ok_or_else(|| "the card has no network device".to_owned())
    }

    /// An address that no card has.
    pub fn nobody(&self) -> MacAddr {
        NOBODY
    }

    /// The address of the card's other port.
    ///
    /// # Errors
    /// If it has none.
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

    /// Waits for a program.
    ///
    /// # Errors
    /// If it does not end.
    pub fn wait<T: 'static>(&self, program: &Completion<T>) -> Result<T, String> {
        self.rig.wait(program)
    }

    /// Waits for programs.
    ///
    /// # Errors
    /// If one does not end.
    pub fn wait_all<T: 'static>(&self, programs: &[Completion<T>]) -> Result<Vec<T>, String> {
        self.rig.wait_all(programs)
    }

    /// When the last store that a core has executed has left its store buffer for a combining buffer.
    ///
    /// # Errors
    /// If that takes longer than anything should.
    pub fn stored(&self, core: u16) -> Result<Time, String> {
        let simulation = self.rig.computers.simulation();
        let host = self.rig.host(0).host;
        let last = simulation.now() + REST;
        while simulation.now() < last {
            if simulation.with(|fabric, _| fabric.host(host).stores_of(CoreId(core)).pending()) == 0 {
                return Ok(simulation.now());
            }
            simulation.run_until(simulation.now() + Duration::from_ps(100));
        }
        Err("stores do not leave the store buffer".to_owned())
    }

    /// Lets time pass.
    pub fn run_for(&self, time: Duration) {
        self.rig.pass(time);
    }

    /// Retrains the card's link; nothing is lost. Or it goes down and comes back, and what was under way is.
    pub fn disturb_link(&self, is_lost: bool) {
        let host = self.rig.host(0).host;
        self.rig.computers.simulation().with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(host, scheduler);
            cx.with(LINK, |link, cx, released| {
                if is_lost {
                    link.take_down(cx, released);
                    link.bring_up(cx);
                } else {
                    link.retrain(cx, released);
                }
            });
            host.link_drained(&mut cx, 0);
        });
    }

    /// Runs a program on a core of its own, and what follows from it; gives what it gave, and the TLPs that passed the
    /// link.
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

    /// As [`record`](Self::record), with all that passed the link.
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

/// The capture's TLPs.
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

/// Frames from one buffer, or from many in turn.
pub struct FrameSource {
    pages: Pages,
    /// Buffers of a page each, and the one of the next frame.
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
    /// One buffer.
    ///
    /// # Errors
    /// If there is none.
    pub fn new(cpu: &Cpu, kernel: &Rc<dyn Kernel>) -> Result<Rc<Self>, Error> {
        Self::in_turn(cpu, kernel, 0)
    }

    /// 2 to the `order` buffers of a page each, which frames come from in turn.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn in_turn(cpu: &Cpu, kernel: &Rc<dyn Kernel>, order: u8) -> Result<Rc<Self>, Error> {
        let pages = kernel.alloc_pages(cpu, order, Policy::Local)?;
        Ok(Rc::new(Self { pages, buffers: 1 << order, next: Cell::new(0), out: Cell::new(0) }))
    }

    /// Goes on to the next buffer.
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

    /// Sends `count` frames of `length` bytes straight to the driver, for nobody, waiting where it has no room, and until
    /// they have come back.
    pub async fn send(self: &Rc<Self>, cpu: &Cpu, device: &Rc<dyn PacketDevice>, length: u32, count: u32) {
        self.send_to(cpu, device, NOBODY, length, count).await;
    }

    /// As [`send`](Self::send), for `to`.
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

    /// Writes a frame of `length` bytes for nobody into the buffer and sends it.
    pub async fn send_one(self: &Rc<Self>, cpu: &Cpu, device: &Rc<dyn PacketDevice>, length: u32) {
        self.store(cpu, &experimental(device, NOBODY, length)).await;
        self.send_again(cpu, device, length).await;
    }

    /// Puts a frame into the buffer.
    pub async fn store(&self, cpu: &Cpu, bytes: &[u8]) {
        cpu.store(self.buffer(), bytes);
        cpu.sync().await;
    }

    /// Sends what is in the buffer straight to the driver, waiting where it has no room.
    pub async fn send_again(self: &Rc<Self>, cpu: &Cpu, device: &Rc<dyn PacketDevice>, length: u32) {
        self.send_more(cpu, device, length, false).await;
    }

    /// As [`send_again`](Self::send_again), perhaps to be followed at once by `more`, which rings the doorbell for all.
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

    /// Waits until all have come back.
    pub async fn wait(&self, cpu: &Cpu) {
        while self.out.get() > 0 {
            cpu.sleep(REST).await;
        }
    }
}

/// A frame of `length` bytes of no protocol.
fn experimental(device: &Rc<dyn PacketDevice>, to: MacAddr, length: u32) -> Vec<u8> {
    let mut bytes = vec![0x5a; length as usize];
    EthernetHeader::new(device.limits().mac, to, EtherType::EXPERIMENTAL).emit(&mut bytes);
    bytes
}

/// A TCP segment over IPv4 of `length` bytes in all, from a port.
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
