//! The fabric as a back-end: a host with one root port, a link, the drive.

use std::cell::RefCell;
use std::rc::Rc;

use devices::nvme::Nvme;
use engine::Simulation;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::link::{CreditLimits, LinkParams, ReceiverParams};
use hardware::memory::{CoreId, MemoryParams, MemorySystem};
use hardware::root::{HostId, InterruptMessage, InterruptSink, RootPortParams};
use hardware::{Fabric, HostFirmware};
use platform::device::Reset;
use units::{Duration, HostPhysical};
use wire::pcie::{Bdf, Generation, Width};

use super::back_end::BackEnd;

/// BAR addresses, 1 MiB apart.
const BARS: u64 = 0xc000_0000;
const DRIVE: Bdf = Bdf::new(1, 0, 0);

/// Lower vectors are reserved for processor exceptions.
const FIRST_VECTOR: u16 = 0x20;

struct Sink(Rc<RefCell<Vec<u16>>>);

impl InterruptSink for Sink {
    fn deliver(&mut self, message: InterruptMessage) {
        self.0.borrow_mut().push(u16::from(message.interrupt.vector) - FIRST_VECTOR);
    }
}

pub struct OnFabric {
    simulation: Simulation<Fabric>,
    host: HostId,
    drive: EndpointId,
    vectors: u16,
    table: u64,
    interrupts: Rc<RefCell<Vec<u16>>>,
}

impl OnFabric {
    pub fn new(drive: Nvme, vectors: u16, io_queues: u16) -> Self {
        let mut fabric = Fabric::new();
        let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
        let receiver = ReceiverParams {
            credits: CreditLimits::default(),
            ack_delay: Duration::from_ns(50),
            credit_update_delay: Duration::from_ns(30),
            replay_tlps: 64,
            cut_through: false,
        };
        let link = LinkParams {
            generation: Generation::Gen3,
            width: Width::X4,
            latency: Duration::from_ns(60),
            beats: [1, 1],
            receivers: [receiver.clone(), receiver],
            retrain_time: Duration::from_us(1),
        };
        let link = fabric.add_root_port(host, RootPortParams::ideal(), link, 1..=1);
        let drive = fabric.add_endpoint(EndpointParams::ideal(256), &[link], Box::new(drive));
        fabric.host_mut(host).add_window(HostPhysical::new(BARS), 16 << 20, 0);
        let interrupts = Rc::new(RefCell::new(Vec::new()));
        fabric.host_mut(host).interrupts.connect(Box::new(Sink(Rc::clone(&interrupts))));
        let doorbells = 2 * (u64::from(io_queues) + 1) * 4;
        let table = (0x1000 + doorbells).next_multiple_of(0x1000);
        let mut this = Self { simulation: Simulation::new(fabric), host, drive, vectors, table, interrupts };
        this.boot();
        this
    }

    fn with<R>(
        &mut self,
        act: impl FnOnce(&mut hardware::root::Host, &mut hardware::wires::Context<'_>) -> R,
    ) -> R {
        let host = self.host;
        self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(host, scheduler);
            act(host, &mut cx)
        })
    }

    fn config_write(&mut self, register: u16, value: u32) {
        let access = self.with(|host, cx| host.config_write(cx, CoreId(0), DRIVE, register, value, 0xf));
        let _ = self.simulation.block_on(access.data);
    }

    fn config_read(&mut self, register: u16) -> u32 {
        let access = self.with(|host, cx| host.config_read(cx, CoreId(0), DRIVE, register));
        let data = self.simulation.block_on(access.data).unwrap().unwrap();
        u32::from_le_bytes(*data.first_chunk().unwrap())
    }

    /// Sets up BARs, bus mastering and MSI-X.
    fn boot(&mut self) {
        let firmware = HostFirmware::new(self.simulation.handle(), self.host, CoreId(0));
        let bars = [0, 2].map(|bar| (bar, HostPhysical::new(BARS + (u64::from(bar) << 20))));
        self.simulation.block_on(async move { firmware.enable(DRIVE, &bars).await }).unwrap();
        for vector in 0..u64::from(self.vectors) {
            let words = [0xfee0_0000, 0, vector as u32 + u32::from(FIRST_VECTOR), 0];
            for (n, word) in words.iter().enumerate() {
                let at = self.table + 16 * vector + 4 * n as u64;
                self.bar_write(0, 0, at, &u32::to_le_bytes(*word));
            }
        }
        let mut at = self.config_read(0x34) as u16 & 0xff;
        while at != 0 {
            let header = self.config_read(at);
            if header & 0xff == 0x11 {
                self.config_write(at, 1 << 31);
            }
            at = (header >> 8) as u16 & 0xff;
        }
    }
}

impl BackEnd for OnFabric {
    fn read(&mut self, address: u64, into: &mut [u8]) {
        self.with(|host, _| host.memory.bytes().read(HostPhysical::new(address), into)).unwrap();
    }
    fn write(&mut self, address: u64, from: &[u8]) {
        self.with(|host, _| host.memory.bytes_mut().write(HostPhysical::new(address), from)).unwrap();
    }
    fn bar_read(&mut self, _: u8, bar: u8, offset: u64) -> u32 {
        let at = HostPhysical::new(BARS + (u64::from(bar) << 20) + offset);
        let access = self.with(|host, cx| host.mmio_read(cx, CoreId(0), at, 4)).unwrap();
        let data = self.simulation.block_on(access.data).unwrap().unwrap();
        u32::from_le_bytes(*data.first_chunk().unwrap())
    }
    fn bar_write(&mut self, _: u8, bar: u8, offset: u64, data: &[u8]) {
        let at = HostPhysical::new(BARS + (u64::from(bar) << 20) + offset);
        self.with(|host, cx| host.mmio_write(cx, CoreId(0), at, data)).unwrap();
        // Writes are posted, and tests rely on their having arrived.
        self.run_for(Duration::from_ns(500));
    }
    fn run_for(&mut self, time: Duration) {
        self.simulation.run_until(self.simulation.now() + time);
    }
    fn interrupts(&mut self) -> Vec<u16> {
        std::mem::take(&mut *self.interrupts.borrow_mut())
    }
    fn reset(&mut self) {
        let drive = self.drive;
        self.simulation
            .with(|fabric, scheduler| fabric.running(scheduler).reset_device(drive, Reset::Fundamental));
        self.boot();
    }
}
