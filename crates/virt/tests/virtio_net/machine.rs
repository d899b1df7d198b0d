//! What the suite runs on: a host whose NIC is for guests, and another one at the other end of the cable.

use std::cell::RefCell;
use std::rc::Rc;

use drivers::virtio_net::{VirtioNet, VirtioNetCosts};
use kernel::{DmaMode, Kernel};
use platform::cpu::{Async, Cpu, CpuId, Node};
use platform::kernel::TaskParams;
use platform::net::{MacAddr, PacketDevice, PacketQueue};
use platform::sync::Completion;
use platform::virtio::VirtualNic;
use units::{Bytes, Duration};
use virt::net::{Network, Vnic};
use virt::{GuestNode, InterruptSupport, VhostCosts, VirtCosts, Vm, VmParams};
use wire::ethernet::{EthernetHeader, HEADER_LEN};

use crate::common::{Buffers, Pair, Setup, TYPE, bytes_of};
use crate::ground::board;

/// The host with guests, and the one outside.
pub const HOST: usize = 0;
pub const OUTSIDE: usize = 1;
/// Ethernet addresses of the NICs of both.
const OF_OUTSIDE: u32 = 2;
/// Of the first guest.
const OF_GUESTS: u32 = 10;

/// Who sends and receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Outside,
    Guest(usize),
}

impl Place {
    pub fn mac(self) -> MacAddr {
        MacAddr::local(match self {
            Self::Outside => OF_OUTSIDE,
            Self::Guest(n) => OF_GUESTS + n as u32,
        })
    }
}

pub struct Guest {
    pub vm: Rc<Vm>,
    pub vnic: Rc<Vnic>,
    pub way: Rc<dyn VirtualNic>,
}

pub struct Machine {
    pub pair: Pair,
    pub network: Rc<Network>,
    pub guests: Vec<Guest>,
    /// Buffers of programs, for the outside and then each guest.
    buffers: RefCell<Vec<Rc<Buffers>>>,
}

/// The `number`th frame from one place to another.
pub fn frame(from: Place, to: MacAddr, length: usize, number: u32) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..length).map(|n| ((n as u32 * 31) ^ number) as u8).collect();
    EthernetHeader::new(from.mac(), to, TYPE).emit(&mut frame);
    frame[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&number.to_le_bytes());
    frame
}

impl Machine {
    /// Guests that have booted, each with a virtual NIC that nobody drives, and with two cores of the host to itself.
    pub fn new(guests: usize) -> Self {
        Self::on_cores(guests, 2 * guests as u16)
    }

    /// Guests that share so many cores.
    fn on_cores(guests: usize, shared: u16) -> Self {
        let pair = Pair::up(&Setup::default());
        let host = Rc::clone(&pair.hosts[HOST].kernel);
        let network = Network::new(&host, "eth0", VhostCosts::linux()).expect("its NIC is for guests");
        let buffers = RefCell::new(vec![Buffers::new(&pair.hosts[OUTSIDE].kernel)]);
        let mut machine = Self { pair, network, guests: Vec::new(), buffers };
        for n in 0..guests {
            let cores = [2 * n as u16, 2 * n as u16 + 1].map(|core| 2 + core % shared);
            let vm = machine.vm(n, &cores);
            let (vnic, way) = machine.network.add(&vm, Place::Guest(n).mac(), 0);
            machine.buffers.borrow_mut().push(Buffers::new(&vm.kernel()));
            machine.guests.push(Guest { vm, vnic, way });
        }
        machine
    }

    fn vm(&self, n: usize, cores: &[u16]) -> Rc<Vm> {
        let params = VmParams {
            name: format!("x{n}"),
            vcpus: cores.iter().map(|&core| vec![CpuId(core)]).collect(),
            nodes: vec![GuestNode { memory: Bytes::mib(32), host: Node(0) }],
            slots: 0,
            pin_limit: None,
            interrupts: InterruptSupport::Software,
            costs: VirtCosts::linux(),
            kernel: board::kernel(DmaMode::Off),
        };
        let host = &self.pair.hosts[HOST].kernel;
        let vm = Vm::start(&self.pair.simulation.handle(), host, params, Vec::new());
        let vm = self.pair.simulation.block_on(vm).expect("it is put together").expect("there is memory");
        self.pair.simulation.block_on(vm.kernel().boot()).expect("it boots");
        vm
    }

    /// As [`new`](Self::new), the NICs driven and open.
    pub fn up(guests: usize) -> Self {
        Self::opened(Self::new(guests))
    }

    /// The same of guests that share so many cores.
    pub fn crowded(guests: usize, shared: u16) -> Self {
        Self::opened(Self::on_cores(guests, shared))
    }

    fn opened(machine: Self) -> Self {
        (0..machine.guests.len()).for_each(|n| machine.open(n));
        machine
    }

    /// Gives a guest's NIC a driver, and opens it.
    pub fn open(&self, guest: usize) {
        let own = &self.guests[guest];
        let face = own.vm.kernel().face();
        VirtioNet::new(Rc::clone(&face), Rc::clone(&own.way), VirtioNetCosts::linux());
        self.buffers.borrow_mut()[guest + 1] = Buffers::new(&own.vm.kernel());
        let device = self.device(Place::Guest(guest));
        let opened =
            self.run(Place::Guest(guest), 0, move |cpu| Box::pin(async move { device.open(&cpu).await }));
        assert_eq!(opened, Ok(()));
    }

    pub fn kernel(&self, at: Place) -> Rc<Kernel> {
        match at {
            Place::Outside => Rc::clone(&self.pair.hosts[OUTSIDE].kernel),
            Place::Guest(n) => self.guests[n].vm.kernel(),
        }
    }

    pub fn device(&self, at: Place) -> Rc<dyn PacketDevice> {
        self.kernel(at).face().packet_device("eth0").expect("it has a NIC")
    }

    pub fn listen(&self, at: Place) -> Rc<PacketQueue> {
        self.device(at).listen(Some(TYPE.0), 1 << 16)
    }

    pub fn buffers(&self, at: Place) -> Rc<Buffers> {
        let number = match at {
            Place::Outside => 0,
            Place::Guest(n) => n + 1,
        };
        Rc::clone(&self.buffers.borrow()[number])
    }

    pub fn spawn<T: 'static>(
        &self,
        at: Place,
        on: u16,
        program: impl FnOnce(Cpu) -> Async<'static, T> + 'static,
    ) -> Completion<T> {
        let (result, kernel) = (Completion::new(), self.kernel(at));
        let end = result.clone();
        kernel.spawn(TaskParams::named("test").on(CpuId(on)), move |cpu| {
            Box::pin(async move {
                let value = program(cpu.clone()).await;
                cpu.sync().await;
                end.complete(value);
            })
        });
        result
    }

    /// Runs a program on a core to its end.
    pub fn run<T: 'static>(
        &self,
        at: Place,
        on: u16,
        program: impl FnOnce(Cpu) -> Async<'static, T> + 'static,
    ) -> T {
        let result = self.spawn(at, on, program);
        let ended = self.pair.simulation.block_on(async move { result.wait().await });
        ended.unwrap_or_else(|deadlock| panic!("{deadlock}: {:#?}", self.kernel(at).log()))
    }

    /// Lets a program send frames numbered from `first`, of these lengths in turn, each when there is room for it.
    pub fn send(
        &self,
        from: Place,
        to: MacAddr,
        first: u32,
        count: u32,
        lengths: &[usize],
    ) -> Completion<()> {
        let (device, buffers) = (self.device(from), self.buffers(from));
        let lengths = lengths.to_vec();
        self.spawn(from, 0, move |cpu| {
            Box::pin(async move {
                for number in first..first + count {
                    let length = lengths[number as usize % lengths.len()];
                    let packet = buffers.packet(&cpu, &frame(from, to, length, number), 4096);
                    let queue = device.tx_queue_for(&cpu);
                    device.room(queue).await;
                    // A device that has stopped takes nothing any more.
                    let _ = device.send(&cpu, packet, false);
                    cpu.sync().await;
                }
            })
        })
    }

    pub fn run_for(&self, time: Duration) {
        self.pair.run_for(time);
    }

    /// The numbers of the frames that have come to a place, each as it was sent.
    pub fn received(&self, at: Place, from: Place, to: MacAddr, listener: &Rc<PacketQueue>) -> Vec<u32> {
        let listener = Rc::clone(listener);
        self.run(at, 1, move |cpu| {
            Box::pin(async move {
                let take = |cpu: &Cpu| {
                    let packet = listener.try_take()?;
                    let bytes = bytes_of(cpu, &packet);
                    packet.release(cpu);
                    let number = u32::from_le_bytes(bytes[HEADER_LEN..HEADER_LEN + 4].try_into().unwrap());
                    assert!(bytes == frame(from, to, bytes.len(), number), "frame {number} is damaged");
                    Some(number)
                };
                std::iter::from_fn(|| take(&cpu)).collect()
            })
        })
    }

    /// Frames from the cable that the host's NIC has dropped, as the worker was late.
    pub fn dropped_by_uplink(&self) -> u64 {
        let (kernel, done) = (Rc::clone(&self.pair.hosts[HOST].kernel), Completion::new());
        let (device, told) = (kernel.face().packet_device("eth0").expect("it has a NIC"), done.clone());
        kernel.spawn(TaskParams::named("test"), move |cpu| {
            Box::pin(async move {
                let statistics = device.device_statistics(&cpu).await;
                told.complete(statistics.rx_no_buffer + statistics.rx_overflow);
            })
        });
        self.wait(async move { done.wait().await })
    }

    /// Bytes of the host's memory that are free.
    pub fn free(&self) -> u64 {
        self.pair.hosts[HOST].kernel.memory().iter().map(|node| node.free.get()).sum()
    }

    /// Lets a future of the host's come to its end.
    pub fn wait<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.pair.simulation.block_on(future).expect("it ends")
    }
}
