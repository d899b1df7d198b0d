//! Capabilities of functions that the kernel sets up: BARs that can be resized, latency that is tolerated, masked vectors.

use std::rc::Rc;

use crate::common::{Copier, CopierDriver, Machine, Model, link, machine_of, params};
use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::EndpointParams;
use hardware::memory::{MemoryParams, MemorySystem};
use hardware::root::{HostId, RootPortParams};
use hardware::switch::SwitchParams;
use kernel::{DmaMode, Kernel, KernelParams};
use platform::pci::PciDriver;
use units::{Duration, Iova};

/// Two copiers whose second BAR of 1 MiB can have up to 16 GiB.
fn resizable(asked: Option<u64>, space: Option<u64>) -> Machine {
    let mut params = params(DmaMode::Off);
    (params.pci.resizable_bars, params.pci.high_space) = (asked, space);
    let machine = machine_of(params, Model { most_bar: Some(16 << 30), ..Model::default() });
    machine.boot();
    machine
}

/// Sizes of the copiers' BARs, as the kernel and the devices have them.
fn sizes(machine: &Machine) -> Vec<u64> {
    let all = machine.kernel.pci();
    let bars = all.iter().flat_map(|function| function.bars.iter().filter(|(number, _)| *number == 2));
    let known: Vec<u64> = bars.map(|(_, bar)| bar.size).collect();
    machine.simulation.with(|fabric, _| {
        let config = |&copier| fabric.endpoint(copier).core.registers.config(Default::default()).bar(2);
        let own: Vec<u64> = machine.copiers.iter().map(|copier| config(copier).unwrap().size).collect();
        assert_eq!(own, known);
    });
    known
}

#[test]
fn bars_get_what_is_asked_as_far_as_the_address_space_suffices() {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    for (asked, space, expected, told) in [
        (None, None, [MIB; 2], false),
        (Some(8 * GIB), None, [8 * GIB; 2], false),
        // The device's largest.
        (Some(64 * GIB), None, [16 * GIB; 2], false),
        // Less than they have: they cannot shrink.
        (Some(MIB / 2), None, [MIB; 2], false),
        (Some(16 * GIB), Some(24 * GIB), [16 * GIB, 8 * GIB], true),
        (Some(16 * GIB), Some(16 * GIB), [8 * GIB; 2], true),
        (Some(16 * GIB), Some(3 * GIB), [2 * GIB, GIB], true),
    ] {
        let machine = resizable(asked, space);
        let mut found = sizes(&machine);
        found.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(found, expected, "{asked:?} {space:?}: {:?}", machine.kernel.log());
        let warned =
            machine.kernel.warnings().iter().any(|(_, line)| line.contains("no address space for 16 GiB"));
        assert_eq!(warned, told, "{:?}", machine.kernel.warnings());
        assert_eq!(machine.driver.bound.borrow().len(), 2);
    }
}

#[test]
fn a_resized_bar_decodes_to_its_end_also_after_a_reset() {
    let machine = resizable(Some(16 << 30), None);
    let copier = machine.copier(0);
    let far = (16 << 30) - 8;
    let reads_back = |value: u32| {
        let copier = Rc::clone(&copier);
        machine.run(0, move |cpu| {
            Box::pin(async move {
                let bar = copier.device.ioremap_bar(2, platform::mmio::MemoryType::Uncached).unwrap();
                assert_eq!(bar.length(), 16 << 30);
                let near = bar.read_u32(&cpu, 16).await;
                bar.write_u32(&cpu, 16, value);
                // Nothing is stored there, but the device answers.
                let end = bar.read_u32(&cpu, far).await;
                (near, bar.read_u32(&cpu, 16).await, end)
            })
        })
    };
    assert_eq!(reads_back(7), (0, 7, 0));
    let reset = Rc::clone(&copier);
    machine.run(0, move |cpu| Box::pin(async move { reset.device.reset(&cpu).await.unwrap() }));
    assert_eq!(reads_back(9), (0, 9, 0));
    assert_eq!(sizes(&machine), [16 << 30; 2]);
}

/// A copier that tolerates a latency below a switch, and another below a root port.
struct Tolerant {
    // Dropped first: tasks hold what the kernel holds.
    simulation: Simulation<Fabric>,
    kernel: Kernel,
    host: HostId,
    slot: hardware::link::LinkId,
}

fn tolerant(takes: [bool; 2], latencies: [u64; 2]) -> Tolerant {
    let mut fabric = Fabric::new();
    let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
    let port = RootPortParams { latency_reports: takes[0], ..RootPortParams::ideal() };
    let slot = fabric.add_root_port(host, port.clone(), link(), 0..=0);
    let switch = fabric.add_switch(SwitchParams { latency_reports: takes[1], ..SwitchParams::ideal() }, slot);
    for (number, us) in (1..).zip(latencies) {
        let link = fabric.add_switch_slot(switch, number, link());
        let tolerance = Some(Duration::from_us(us)).filter(|latency| !latency.is_zero());
        let model = Model { tolerance, ..Model::default() };
        fabric.add_endpoint(EndpointParams::ideal(64), &[link], Box::new(Copier::of(model)));
    }
    let simulation = Simulation::new(fabric);
    let params: KernelParams = params(DmaMode::Off);
    let kernel = Kernel::new(&simulation.handle(), host, params);
    kernel.add_driver(Rc::new(CopierDriver::default()) as Rc<dyn PciDriver>);
    simulation.block_on(kernel.boot()).expect("the kernel boots");
    simulation.run();
    Tolerant { simulation, kernel, host, slot }
}

impl Tolerant {
    /// What the root port knows, in microseconds.
    fn tolerated(&self) -> Option<u64> {
        let port = |fabric: &mut Fabric| fabric.host(self.host).port(0).tolerated();
        self.simulation.with(|fabric, _| port(fabric)).map(|latency| latency.as_ps() / 1_000_000)
    }
}

#[test]
fn the_shortest_latency_below_reaches_the_root_port_if_all_above_it_take_reports() {
    for (takes, latencies, expected) in [
        ([true; 2], [100, 50], Some(50)),
        ([true; 2], [20, 50], Some(20)),
        ([true; 2], [0, 50], Some(50)),
        ([true; 2], [0, 0], None),
        // Longer than what may be reported, 3,145,728 ns.
        ([true; 2], [5_000, 0], Some(3_145)),
        ([false, true], [100, 50], None),
        ([true, false], [100, 50], None),
    ] {
        // Encoded latencies are up to a 32nd shorter.
        let near = |found: Option<u64>| match (found, expected) {
            (Some(found), Some(expected)) => found <= expected && found * 33 >= expected * 31,
            (found, expected) => found == expected,
        };
        let tolerant = tolerant(takes, latencies);
        assert!(near(tolerant.tolerated()), "{takes:?} {latencies:?}: {:?}", tolerant.tolerated());
        // A link that goes down requires nothing; when it is back, it does again.
        tolerant.simulation.with(|fabric, scheduler| fabric.running(scheduler).pull(tolerant.slot));
        tolerant.simulation.run();
        assert_eq!(tolerant.tolerated(), None);
        tolerant.simulation.with(|fabric, scheduler| fabric.running(scheduler).plug(tolerant.slot));
        tolerant.simulation.run();
        assert!(near(tolerant.tolerated()), "{:?} {:?}", tolerant.tolerated(), tolerant.kernel.log());
    }
}

/// Pending bits of the first copier.
fn pending(machine: &Machine) -> u32 {
    let copier = machine.copier(0);
    machine.run(2, move |cpu| Box::pin(async move { copier.registers.read_u32(&cpu, 0x3000).await }))
}

#[test]
fn masked_vectors_are_pending_until_they_are_unmasked() {
    for whole in [false, true] {
        let machine = Machine::booted(DmaMode::Off);
        let copier = machine.copier(0);
        let irqs = if whole { copier.irqs.clone() } else { vec![copier.irqs[3]] };
        let mask = |on| machine.simulation.block_on(machine.kernel.mask_irqs(irqs.clone(), on)).unwrap();
        let came = || machine.kernel.interrupts().iter().find(|own| own.0 == copier.irqs[3]).unwrap().3;
        mask(true).unwrap();
        let from = copier.memory.bus;
        let start = Rc::clone(&copier);
        machine.run(0, move |cpu| {
            Box::pin(async move { start.start(&cpu, from, Iova::new(from.get() + 4096), 64, 3) })
        });
        machine.simulation.run();
        assert_eq!((came(), pending(&machine)), (0, 1 << 3), "{whole}");
        mask(false).unwrap();
        machine.simulation.run();
        assert_eq!((came(), pending(&machine)), (1, 0), "{whole}");
    }
    let machine = Machine::booted(DmaMode::Off);
    let both = vec![machine.copier(0).irqs[0], machine.copier(1).irqs[0]];
    for wrong in [both, Vec::new()] {
        assert!(machine.simulation.block_on(machine.kernel.mask_irqs(wrong, true)).unwrap().is_err());
    }
}
