//! The fabric as a back-end: hosts with one device each on its own link; Ethernet ports back to back.

use std::cell::RefCell;
use std::rc::Rc;

use engine::Simulation;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::ethernet::CableParams;
use hardware::link::LinkParams;
use hardware::memory::{CoreId, MemoryParams, MemorySystem};
use hardware::root::{Host, HostId, InterruptMessage, InterruptSink, RootPortParams};
use hardware::wires::Context;
use hardware::{Fabric, HostFirmware};
use platform::device::{Device, Reset};
use platform::ethernet::EthernetPort;
use units::{BitRate, Duration, HostPhysical};
use wire::pcie::{Bdf, Generation, Width};

/// BAR addresses, 16 MiB apart.
const BARS: u64 = 0xc000_0000;
const BAR: u64 = 16 << 20;
const DEVICE: Bdf = Bdf::new(1, 0, 0);
/// Lower vectors are reserved for processor exceptions.
const FIRST_VECTOR: u16 = 0x20;
/// Maximum vectors assigned to a device.
const VECTORS: u64 = 16;

struct Sink(usize, Rc<RefCell<Vec<(usize, u16)>>>);

impl InterruptSink for Sink {
    fn deliver(&mut self, message: InterruptMessage) {
        self.1.borrow_mut().push((self.0, u16::from(message.interrupt.vector) - FIRST_VECTOR));
    }
}

/// Hosts and their devices.
pub struct Machines {
    simulation: Simulation<Fabric>,
    hosts: Vec<(HostId, EndpointId)>,
    interrupts: Rc<RefCell<Vec<(usize, u16)>>>,
}

impl Machines {
    /// Creates a host per device, and connects the first ports of two devices.
    pub fn new(devices: Vec<Box<dyn Device>>) -> Self {
        let mut fabric = Fabric::new();
        let interrupts = Rc::new(RefCell::new(Vec::new()));
        let mut hosts = Vec::new();
        for (n, device) in devices.into_iter().enumerate() {
            let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
            let params = LinkParams::example(Generation::Gen3, Width::X8);
            let link = fabric.add_root_port(host, RootPortParams::ideal(), params, 1..=1);
            fabric.host_mut(host).add_window(HostPhysical::new(BARS), 3 * BAR, 0);
            fabric.host_mut(host).interrupts.connect(Box::new(Sink(n, Rc::clone(&interrupts))));
            hosts.push((host, fabric.add_endpoint(EndpointParams::ideal(256), &[link], device)));
        }
        let has_port =
            |fabric: &Fabric, at: EndpointId| !fabric.endpoint(at).device().ethernet_ports().is_empty();
        if let [(_, a), (_, b)] = hosts[..]
            && has_port(&fabric, a)
        {
            let ports = [a, b].map(|card| fabric.ethernet_port(card, EthernetPort(0)));
            let rate = BitRate::gbit_per_s(40);
            let params = CableParams { rate, propagation: Duration::from_ns(10), faults: None };
            fabric.connect_ethernet(ports, params);
        }
        let mut this = Self { simulation: Simulation::new(fabric), hosts, interrupts };
        (0..this.hosts.len()).for_each(|host| this.boot(host));
        this
    }

    fn with<R>(&mut self, host: usize, act: impl FnOnce(&mut Host, &mut Context<'_>) -> R) -> R {
        let host = self.hosts[host].0;
        self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(host, scheduler);
            act(host, &mut cx)
        })
    }

    fn config_write(&mut self, host: usize, register: u16, value: u32) {
        let access =
            self.with(host, |host, cx| host.config_write(cx, CoreId(0), DEVICE, register, value, 0xf));
        let _ = self.simulation.block_on(access.data);
    }

    fn config_read(&mut self, host: usize, register: u16) -> u32 {
        let access = self.with(host, |host, cx| host.config_read(cx, CoreId(0), DEVICE, register));
        let data = self.simulation.block_on(access.data).unwrap().unwrap();
        u32::from_le_bytes(*data.first_chunk().unwrap())
    }

    /// Setup by firmware and kernel: BARs, bus mastering, MSI-X.
    fn boot(&mut self, host: usize) {
        let firmware = HostFirmware::new(self.simulation.handle(), self.hosts[host].0, CoreId(0));
        let bars = [0, 1, 2].map(|n| (2 * n, HostPhysical::new(BARS + u64::from(n) * BAR)));
        self.simulation.block_on(async move { firmware.enable(DEVICE, &bars).await }).unwrap();
        let mut at = self.config_read(host, 0x34) as u16 & 0xff;
        while at != 0 {
            let header = self.config_read(host, at);
            if header & 0xff == 0x11 {
                let place = self.config_read(host, at + 4);
                let (bar, table) = (place as u8 & 7, u64::from(place & !7));
                let count = u64::from(header >> 16 & 0x7ff) + 1;
                for vector in 0..count.min(VECTORS) {
                    let words = [0xfee0_0000, 0, vector as u32 + u32::from(FIRST_VECTOR), 0];
                    for (n, word) in words.iter().enumerate() {
                        let at = table + 16 * vector + 4 * n as u64;
                        self.bar_write(host, bar, at, &u32::to_le_bytes(*word));
                    }
                }
                self.config_write(host, at, 1 << 31);
            }
            at = (header >> 8) as u16 & 0xff;
        }
    }

    pub fn read(&mut self, host: usize, address: u64, into: &mut [u8]) {
        self.with(host, |host, _| host.memory.bytes().read(HostPhysical::new(address), into)).unwrap();
    }

    pub fn write(&mut self, host: usize, address: u64, from: &[u8]) {
        self.with(host, |host, _| host.memory.bytes_mut().write(HostPhysical::new(address), from)).unwrap();
    }

    pub fn bar_read(&mut self, host: usize, bar: u8, offset: u64) -> u32 {
        let at = HostPhysical::new(BARS + u64::from(bar / 2) * BAR + offset);
        let access = self.with(host, |host, cx| host.mmio_read(cx, CoreId(0), at, 4)).unwrap();
        let data = self.simulation.block_on(access.data).unwrap().unwrap();
        u32::from_le_bytes(*data.first_chunk().unwrap())
    }

    /// Writes and waits for arrival, as tests rely on writes having taken effect.
    pub fn bar_write(&mut self, host: usize, bar: u8, offset: u64, data: &[u8]) {
        let at = HostPhysical::new(BARS + u64::from(bar / 2) * BAR + offset);
        self.with(host, |host, cx| host.mmio_write(cx, CoreId(0), at, data)).unwrap();
        self.run_for(Duration::from_ns(500));
    }

    pub fn run_for(&mut self, time: Duration) {
        self.simulation.run_until(self.simulation.now() + time);
    }

    /// Interrupts since the last call, as host and vector.
    pub fn interrupts(&mut self) -> Vec<(usize, u16)> {
        std::mem::take(&mut *self.interrupts.borrow_mut())
    }

    /// A fundamental reset, followed by the host's setup.
    pub fn reset(&mut self, host: usize) {
        let device = self.hosts[host].1;
        self.simulation
            .with(|fabric, scheduler| fabric.running(scheduler).reset_device(device, Reset::Fundamental));
        self.boot(host);
    }
}
