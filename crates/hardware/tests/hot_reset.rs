//! A link goes down under load: operations in flight end exactly once, and later ones work.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{config, dma, function};
use engine::{Completion, Simulation};
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::link::{CreditLimits, Credits, LinkId, LinkParams, Side};
use hardware::memory::{CoreId, MemoryParams, MemorySystem};
use hardware::root::{HostId, RootPortParams};
use hardware::{Fabric, HostFirmware};
use platform::device::{BarAccess, Device, DeviceBus, Dma, DmaError, Function, PortIndex, Reset, Token};
use proptest::prelude::*;
use units::{Duration, HostPhysical};
use wire::pcie::config::{header, pcie_cap};
use wire::pcie::{Bdf, FlowClass, Generation, Width};

const BAR: u64 = 0xe000_0000;
const SOURCE: u64 = 0x10_0000;
const TARGET: u64 = 0x20_0000;
const SLOTS: u64 = 16;
const SLOT: u64 = 1024;
const DEVICE: Bdf = Bdf::new(1, 0, 0);
const ROOT: Bdf = Bdf::new(0, 1, 0);

/// Notifications to a device, by generation of its tokens, which increases with each reset.
#[derive(Default)]
struct Journal {
    life: u64,
    outcomes: Vec<(u64, u64, bool)>,
    resets: usize,
}

/// Copies all slots from source to target when its register is written; a read returns the value written.
struct Copier {
    journal: Rc<RefCell<Journal>>,
    register: u32,
}

impl Copier {
    fn dma(&self, base: u64, slot: u64) -> Dma {
        dma(base + slot * SLOT, SLOT as u32, self.journal.borrow().life << 32 | slot)
    }

    fn note(&self, token: Token, good: bool) {
        let mut journal = self.journal.borrow_mut();
        let (life, slot) = (token.0 >> 32, token.0 & 0xffff_ffff);
        assert_eq!(life, journal.life, "a device hears nothing of what it began before a reset");
        journal.outcomes.push((life, slot, good));
    }
}

impl Device for Copier {
    fn functions(&self) -> Vec<Function> {
        function(config(256).bar64(0, 4096, false))
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {
        let mut journal = self.journal.borrow_mut();
        (journal.life, journal.resets) = (journal.life + 1, journal.resets + 1);
        self.register = 0;
    }
    fn bar_read(&mut self, _: &mut dyn DeviceBus, _: BarAccess, data: &mut [u8]) -> Duration {
        data.copy_from_slice(&self.register.to_le_bytes()[..data.len()]);
        Duration::from_ns(300)
    }
    fn bar_write(&mut self, bus: &mut dyn DeviceBus, _: BarAccess, data: &[u8]) {
        self.register = u32::from_le_bytes(data.try_into().unwrap());
        for slot in 0..SLOTS {
            bus.read(self.dma(SOURCE, slot));
        }
    }
    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        match outcome {
            Ok(data) => bus.write(self.dma(TARGET, token.0 & 0xffff_ffff), data),
            Err(_) => self.note(token, false),
        }
    }
    fn write_done(&mut self, _: &mut dyn DeviceBus, token: Token) {
        self.note(token, true);
    }
}

struct Rig {
    simulation: Simulation<Fabric>,
    host: HostId,
    journal: Rc<RefCell<Journal>>,
}

impl Rig {
    fn new(outbound_ns: u64, completion_ns: u64) -> Self {
        let journal = Rc::new(RefCell::new(Journal::default()));
        let mut fabric = Fabric::new();
        let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
        let mut link = LinkParams::example(Generation::Gen3, Width::X8);
        for receiver in &mut link.receivers {
            let few = Some(Credits { header: 6, data: 64 });
            receiver.credits = CreditLimits { posted: few, non_posted: few, completion: few };
        }
        let port = RootPortParams {
            outbound_latency: Duration::from_ns(outbound_ns),
            completion_latency: Duration::from_ns(completion_ns),
            ..RootPortParams::ideal()
        };
        let link = fabric.add_root_port(host, port, link, 1..=1);
        let device = Copier { journal: Rc::clone(&journal), register: 0 };
        fabric.add_endpoint(EndpointParams::ideal(32), &[link], Box::new(device));
        fabric.host_mut(host).add_window(HostPhysical::new(BAR), 4096, 0);
        let rig = Self { simulation: Simulation::new(fabric), host, journal };
        for slot in 0..SLOTS {
            rig.fill(SOURCE + slot * SLOT, slot as u8 + 1);
        }
        rig
    }

    fn fill(&self, at: u64, value: u8) {
        self.simulation.with(|fabric, _| {
            let memory = fabric.host_mut(self.host).memory.bytes_mut();
            memory.write(HostPhysical::new(at), &[value; SLOT as usize]).unwrap();
        });
    }

    fn config(&self, target: Bdf, register: u16, value: u32, enables: u8) {
        let written = self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(self.host, scheduler);
            host.config_write(&mut cx, CoreId(0), target, register, value, enables)
        });
        self.ended(written.data);
    }

    fn config_read(&self, target: Bdf, register: u16) -> u32 {
        let read = self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(self.host, scheduler);
            host.config_read(&mut cx, CoreId(0), target, register)
        });
        u32::from_le_bytes(self.ended(read.data).try_into().unwrap())
    }

    /// Result of an access.
    fn ended(&self, access: Completion<Vec<u8>>) -> Vec<u8> {
        self.simulation
            .block_on(access)
            .expect("an access ends")
            .expect("somebody answers it, if with all ones")
    }

    /// Firmware's configuration of the device after each reset.
    fn enumerate(&self) {
        let firmware = HostFirmware::new(self.simulation.handle(), self.host, CoreId(0));
        self.simulation
            .block_on(async move { firmware.enable(DEVICE, &[(0, HostPhysical::new(BAR))]).await })
            .unwrap();
    }

    fn start(&self, value: u32) {
        self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(self.host, scheduler);
            host.mmio_write(&mut cx, CoreId(0), HostPhysical::new(BAR), &value.to_le_bytes()).unwrap();
        });
    }

    fn read(&self) -> Completion<Vec<u8>> {
        self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(self.host, scheduler);
            host.mmio_read(&mut cx, CoreId(0), HostPhysical::new(BAR), 4).unwrap().data
        })
    }

    fn pause(&self, ns: u64) {
        self.simulation.run_until(self.simulation.now() + Duration::from_ns(ns));
    }

    /// Everything is idle, and nothing is lost.
    fn check_rest(&self) {
        self.simulation.with(|fabric, _| {
            let link = fabric.wires.link(LinkId(0));
            for side in [Side::Upstream, Side::Downstream] {
                for class in FlowClass::ALL {
                    let limit = link.params().receivers[side.opposite() as usize].credits.of(class);
                    assert_eq!(
                        link.credits_in_all_places(&fabric.wires.packets, side, class),
                        limit,
                        "{side:?} {class:?}"
                    );
                }
                assert_eq!(link.waiting(side), 0);
            }
            assert_eq!(fabric.wires.packets.in_flight(), 0);
            assert_eq!(fabric.endpoint(EndpointId(0)).core.requester(PortIndex(0)).tags_in_use(), 0);
            let requester = fabric.endpoint(EndpointId(0)).core.requester(PortIndex(0)).counters();
            assert_eq!(requester.unexpected_completions, 0);
            assert_eq!(fabric.host(self.host).counters().unexpected_completions, 0);
        });
    }
}

/// How the link goes down and up again.
#[derive(Clone, Copy, Debug)]
enum How {
    SecondaryBusReset,
    LinkDisable,
    /// The card is removed and reinserted.
    Removal,
}

impl Rig {
    fn link(&self, how: How, up: bool) {
        let link_control = self.simulation.with(|fabric, _| {
            fabric.host(self.host).port(0).config().pcie_offset().unwrap() + pcie_cap::LINK_CONTROL
        });
        match how {
            How::SecondaryBusReset => {
                let value = if up { 0 } else { u32::from(header::BRIDGE_SECONDARY_RESET) << 16 };
                self.config(ROOT, header::INTERRUPT_LINE, value, 0b1100);
            }
            How::LinkDisable => {
                let value = if up { 0 } else { pcie_cap::LINK_CONTROL_DISABLE.into() };
                self.config(ROOT, link_control, value, 0b0011);
            }
            How::Removal => self.simulation.with(|fabric, scheduler| match up {
                false => fabric.running(scheduler).remove_device(EndpointId(0)),
                true => fabric.running(scheduler).insert_device(EndpointId(0)),
            }),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_was_under_way_ends_once_and_the_device_works_again(
        how in prop::sample::select(vec![How::SecondaryBusReset, How::LinkDisable, How::Removal]),
        before_ns in 0u64..6_000, down_ns in 0u64..2_000, outbound_ns in 0u64..1_500, completion_ns in 0u64..1_500,
        gaps in prop::collection::vec(0u64..700, 1..8),
    ) {
        let rig = Rig::new(outbound_ns, completion_ns);
        rig.enumerate();
        rig.start(0x1234);
        let began = rig.simulation.now();
        let reads: Vec<_> = gaps.iter().map(|&gap| { rig.pause(gap); rig.read() }).collect();
        rig.simulation.run_until(rig.simulation.now().max(began + Duration::from_ns(before_ns)));
        rig.link(how, false);
        // While it is down, reads return all ones.
        let read_while_down = rig.read();
        rig.pause(down_ns);
        rig.link(how, true);
        // Before the device has captured its addresses: unsupported, so all ones again, but never an old completion.
        let read_at_once = rig.read();
        rig.enumerate();
        let target = |slot: u64| {
            let mut bytes = vec![0; SLOT as usize];
            rig.simulation.with(|fabric, _| {
                let from = HostPhysical::new(TARGET + slot * SLOT);
                fabric.host(rig.host).memory.bytes().read(from, &mut bytes).unwrap();
            });
            bytes
        };
        for slot in 0..SLOTS {
            // Other values, to detect old completions.
            rig.fill(SOURCE + slot * SLOT, 0x80 + slot as u8);
        }
        rig.start(0x5678);
        let last_read = rig.read();
        rig.simulation.run();
        for read in reads {
            let value = rig.ended(read);
            let expected = [0x1234u32, u32::MAX].map(u32::to_le_bytes);
            prop_assert!(expected.iter().any(|e| e[..] == value[..]), "{:x?}", value);
        }
        let ones = vec![0xff; 4];
        prop_assert_eq!(&rig.ended(read_while_down), &ones);
        prop_assert_eq!(&rig.ended(read_at_once), &ones);
        let last = rig.ended(last_read);
        prop_assert_eq!(last, 0x5678u32.to_le_bytes().to_vec());
        for slot in 0..SLOTS {
            prop_assert_eq!(target(slot), vec![0x80 + slot as u8; SLOT as usize], "slot {}", slot);
        }
        let journal = rig.journal.borrow();
        prop_assert_eq!(journal.resets, 1);
        let mut slots: Vec<_> = journal.outcomes.iter().filter(|o| o.0 == 1).map(|o| (o.1, o.2)).collect();
        slots.sort_unstable();
        prop_assert_eq!(slots, (0..SLOTS).map(|slot| (slot, true)).collect::<Vec<_>>());
        rig.check_rest();
    }
}

/// Software lowers the speed of a link under load and raises it again.
#[test]
fn software_retrains_a_link_under_load() {
    let rig = Rig::new(50, 50);
    rig.enumerate();
    let at = rig
        .simulation
        .with(|fabric, _| fabric.host(rig.host).port(0).config().pcie_offset().expect("a root port has one"));
    for (round, speed) in [1u32, 2, 3, 5].into_iter().enumerate() {
        rig.start(round as u32);
        rig.pause(700);
        rig.config(ROOT, at + pcie_cap::LINK_CONTROL_2, speed, 0b0011);
        rig.config(ROOT, at + pcie_cap::LINK_CONTROL, pcie_cap::LINK_CONTROL_RETRAIN.into(), 0b0011);
        let status = || rig.config_read(ROOT, at + pcie_cap::LINK_CONTROL) >> 16;
        assert_ne!(status() & u32::from(pcie_cap::LINK_STATUS_TRAINING), 0, "training takes a while");
        rig.simulation.run();
        assert_eq!(status() & 0xf, speed.min(3), "not faster than both ends can");
        assert_eq!(status() & u32::from(pcie_cap::LINK_STATUS_TRAINING), 0);
        assert_eq!(rig.journal.borrow().outcomes.len(), (round + 1) * SLOTS as usize);
        rig.check_rest();
    }
    assert!(rig.journal.borrow().outcomes.iter().all(|&(.., good)| good));
    assert_eq!(rig.journal.borrow().resets, 0);
}
