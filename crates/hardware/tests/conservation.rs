//! No byte is lost or counted twice between device, link, root complex, caches, interconnect and DRAM.

use crate::common::{config, dma, function};
use engine::Simulation;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::link::{LinkId, LinkParams, Side};
use hardware::memory::{Cause, CoreId, LINE, MemoryParams, MemorySystem, NodeId, RemoteWrite};
use hardware::root::{HostId, RootPortParams};
use hardware::{Fabric, HostFirmware};
use platform::device::{BarAccess, Device, DeviceBus, DmaError, Function, Reset, Token};
use proptest::prelude::*;
use units::{Duration, HostPhysical, Time};
use wire::pcie::{Bdf, Generation, Width};

const BAR: u64 = 0xe000_0000;
const DEVICE: Bdf = Bdf::new(1, 0, 0);
const CORE: CoreId = CoreId(0);
/// Start of the second node's memory in the example.
const NODE_1: u64 = 4 << 30;

/// A device controlled by the test.
struct Told;

impl Device for Told {
    fn functions(&self) -> Vec<Function> {
        function(config(256).bar64(0, 4096, false))
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}
    fn bar_read(&mut self, _: &mut dyn DeviceBus, _: BarAccess, data: &mut [u8]) -> Duration {
        data.fill(0);
        Duration::from_ns(100)
    }
    fn bar_write(&mut self, _: &mut dyn DeviceBus, _: BarAccess, _: &[u8]) {}
    fn read_done(&mut self, _: &mut dyn DeviceBus, _: Token, outcome: Result<&[u8], DmaError>) {
        outcome.unwrap();
    }
}

/// A step of the test.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read {
        remote: bool,
        line: u64,
        offset: u64,
        length: u32,
    },
    Write {
        remote: bool,
        line: u64,
        offset: u64,
        length: u32,
    },
    /// A core of the first socket loads or stores a line.
    Core {
        remote: bool,
        line: u64,
        store: bool,
    },
    Doorbell,
    Register,
    Pause(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let dma = || (any::<bool>(), 0..512u64, 0..64u64, 1..600u32);
    prop_oneof![
        4 => dma().prop_map(|(remote, line, offset, length)| Step::Read { remote, line, offset, length }),
        4 => dma().prop_map(|(remote, line, offset, length)| Step::Write { remote, line, offset, length }),
        3 => (any::<bool>(), 0..512u64, any::<bool>()).prop_map(|(remote, line, store)| Step::Core { remote, line, store }),
        1 => Just(Step::Doorbell),
        1 => Just(Step::Register),
        2 => (1..2000u64).prop_map(Step::Pause),
    ]
}

struct Rig {
    simulation: Simulation<Fabric>,
    host: HostId,
    device: EndpointId,
    link: LinkId,
}

impl Rig {
    /// A device below socket 1, so that accesses of socket 0's cores cross the interconnect.
    fn new(remote_write: RemoteWrite) -> Self {
        let mut params = MemoryParams::example();
        params.remote_write.to = remote_write;
        for socket in &mut params.sockets {
            // Small, so that lines are evicted.
            socket.llc.geometry.size = units::Bytes::kib(32);
            socket.private.l2.size = units::Bytes::kib(8);
            socket.private.l1.size = units::Bytes::kib(4);
        }
        let mut fabric = Fabric::new();
        let host = fabric.add_host(MemorySystem::new(&params), Vec::new());
        let port = RootPortParams { node: NodeId(1), ..RootPortParams::ideal() };
        let link = fabric.add_root_port(host, port, LinkParams::example(Generation::Gen3, Width::X8), 1..=1);
        let device = fabric.add_endpoint(EndpointParams::ideal(32), &[link], Box::new(Told));
        fabric.host_mut(host).add_window(HostPhysical::new(BAR), 4096, 0);
        let rig = Self { simulation: Simulation::new(fabric), host, device, link };
        let firmware = HostFirmware::new(rig.simulation.handle(), rig.host, CORE);
        rig.simulation
            .block_on(async move { firmware.enable(DEVICE, &[(0, HostPhysical::new(BAR))]).await })
            .unwrap();
        rig
    }

    fn step(&self, step: Step) {
        let at = |remote: bool, line: u64| (if remote { 0 } else { NODE_1 }) + 0x10_0000 + line * LINE;
        self.simulation.with(|fabric, scheduler| match step {
            Step::Read { remote, line, offset, length } => {
                fabric.running(scheduler).with_device(self.device, |_, bus| {
                    bus.read(dma(at(remote, line) + offset, length, 0));
                })
            }
            Step::Write { remote, line, offset, length } => {
                fabric.running(scheduler).with_device(self.device, |_, bus| {
                    bus.write(dma(at(remote, line) + offset, length, 0), &vec![1; length as usize]);
                });
            }
            Step::Core { remote, line, store } => {
                use hardware::memory::CoreOp;
                let op = if store { CoreOp::Store } else { CoreOp::Load };
                let memory = &mut fabric.host_mut(self.host).memory;
                memory.core(scheduler.now(), CORE, HostPhysical::new(at(remote, line)), op);
            }
            Step::Doorbell => {
                let (host, mut cx) = fabric.host_in(self.host, scheduler);
                host.mmio_write(&mut cx, CORE, HostPhysical::new(BAR), &[0; 4]).unwrap();
            }
            Step::Register => {
                let (host, mut cx) = fabric.host_in(self.host, scheduler);
                host.mmio_read(&mut cx, CORE, HostPhysical::new(BAR), 8).unwrap();
            }
            Step::Pause(_) => {}
        });
        if let Step::Pause(ns) = step {
            self.simulation.run_until(self.simulation.now() + Duration::from_ns(ns));
        }
    }
}

/// Bytes in whole doublewords.
fn doublewords(at: u64, length: u64) -> u64 {
    ((at & 3) + length).div_ceil(4) * 4
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bytes_are_the_same_on_every_level(
        steps in prop::collection::vec(any_step(), 1..120),
        mode in 0..4usize,
    ) {
        let modes = [
            RemoteWrite::AllocateAtDeviceSocket,
            RemoteWrite::AllocateAtHomeSocket,
            RemoteWrite::ToHomeMemory,
            RemoteWrite::WriteHomeKeepCopy,
        ];
        let rig = Rig::new(modes[mode]);
        let counted = |rig: &Rig| rig.simulation.with(|fabric, _| {
            let host = fabric.host(rig.host);
            let link = fabric.wires.link(rig.link);
            let requester = fabric.endpoint(rig.device).core.requester(platform::device::PortIndex(0));
            (
                host.memory.counters(),
                host.counters().clone(),
                link.counters(Side::Downstream).clone(),
                link.counters(Side::Upstream).clone(),
                requester.counters().clone(),
            )
        });
        rig.simulation.run();
        let before = counted(&rig);
        steps.iter().for_each(|&step| rig.step(step));
        rig.simulation.run();
        prop_assert!(rig.simulation.now() > Time::ZERO);
        let (memory, root, up, down, requester) = counted(&rig);

        // The device's requests match the root complex's traffic, and its cache lines.
        let (mut read, mut written, mut lines) = ([0u64; 2], 0, [0u64; 2]);
        let (mut doorbells, mut registers) = (0, 0);
        for step in &steps {
            match *step {
                Step::Read { line, offset, length, .. } | Step::Write { line, offset, length, .. } => {
                    let which = usize::from(matches!(step, Step::Write { .. }));
                    let (at, length) = (line * LINE + offset, u64::from(length));
                    let touched = (at + length).div_ceil(LINE) - at / LINE;
                    lines[which] += touched;
                    if which == 0 { read[0] += length } else { written += length }
                    if which == 1 {
                        // A write is split into full payloads, so only its ends have partial doublewords.
                        read[1] += doublewords(at, length);
                    }
                }
                Step::Doorbell => doorbells += 1,
                Step::Register => registers += 1,
                _ => {}
            }
        }
        prop_assert_eq!(requester.bytes_read - before.4.bytes_read, read[0]);
        prop_assert_eq!(root.device_read_bytes - before.1.device_read_bytes, read[0]);
        prop_assert_eq!(requester.bytes_written - before.4.bytes_written, written);
        prop_assert_eq!(root.device_write_bytes - before.1.device_write_bytes, written);
        let node = &memory.nodes[1];
        prop_assert!(node.device.writes >= lines[1], "{} of {} lines", node.device.writes, lines[1]);

        // The link carried these bytes in TLPs, plus framing (8 B) and headers of three or four doublewords.
        let posted = up.tlp_bytes[0].get() - before.2.tlp_bytes[0].get();
        let writes = up.tlps[0] - before.2.tlps[0];
        let headers = posted - read[1];
        prop_assert!((20 * writes..=24 * writes).contains(&headers), "{headers} B for {writes} headers");
        prop_assert_eq!(down.tlps[0] - before.3.tlps[0], doorbells);
        prop_assert_eq!(down.tlps[1] - before.3.tlps[1], registers);

        // Caches: each line of a device was a hit or a miss.
        for (n, node) in memory.nodes.iter().enumerate() {
            let dma = &node.llc[1];
            let target = match modes[mode] { RemoteWrite::AllocateAtHomeSocket => None, _ => Some(n) };
            if target.is_some() {
                prop_assert_eq!(dma.hits + dma.misses, node.device.reads + node.device.writes);
            }
        }
        memory.check_conservation().unwrap();

        // The interconnect: doorbells one way, registers both, each with a header of 8 B.
        let crossed = |from: u8, cause: Cause| {
            let of = |m: &hardware::memory::MemoryCounters| {
                m.links.iter().find(|l| l.from == NodeId(from)).unwrap().bytes.of(cause).get()
            };
            of(&memory) - of(&before.0)
        };
        prop_assert_eq!(crossed(0, Cause::MmioDoorbell), doorbells * 12);
        prop_assert_eq!(crossed(1, Cause::MmioDoorbell), 0);
        prop_assert_eq!(crossed(0, Cause::MmioRegister), registers * 8);
        prop_assert_eq!(crossed(1, Cause::MmioRegister), registers * 16);
    }
}
