//! A core uses a device below another socket: what crosses the interconnect, for what, and who waits for it.

use crate::common;
use crate::common::sink::{Machine, Setup, setup};
use hardware::memory::{Cause, LINE, MemoryCounters, NodeId};
use platform::cpu::{Cpu, CpuId};
use platform::mmio::{MemoryType, Mmio};
use units::{Bytes, Duration};

/// From the example of memory systems: a message's header, the time of a link, its bytes per nanosecond.
const HEADER: u64 = 8;
const WAY_PS: u64 = 30_000;
const BYTES_PER_NS: u64 = 16;

/// The device's socket; programs run on core 0, in the other one.
fn device_on(node: u8) -> Setup {
    let mut setup = setup();
    setup.port.node = NodeId(node);
    setup
}

/// How long a message with so many bytes is under way between the sockets.
fn way(bytes: u64) -> Duration {
    Duration::from_ps(WAY_PS + (HEADER + bytes) * 1000 / BYTES_PER_NS)
}

fn counters(machine: &Machine) -> MemoryCounters {
    machine.simulation.with(|fabric, _| fabric.host(machine.host).memory.counters())
}

/// Bytes for a cause from the core's socket to the device's, and back.
fn crossed(after: &MemoryCounters, before: &MemoryCounters, cause: Cause) -> (u64, u64) {
    let of = |counters: &MemoryCounters, from: u8| {
        let link = counters.links.iter().find(|link| link.from == NodeId(from)).unwrap();
        link.bytes.of(cause).get()
    };
    (of(after, 0) - of(before, 0), of(after, 1) - of(before, 1))
}

/// Bytes that crossed for a cause, to the device and back.
type Crossed = (Cause, (u64, u64));

/// Does something with the device's BAR 0 on core 0. Gives how long the program took and when what it wrote had arrived at
/// the device since it began, both in picoseconds; and what crossed for each cause.
fn act(
    node: u8,
    kind: MemoryType,
    program: impl AsyncFn(&Cpu, &Mmio) + 'static,
) -> (u64, Vec<u64>, Vec<Crossed>) {
    let machine = Machine::new(&device_on(node));
    let before = counters(&machine);
    let (began, took) = machine.run(async move |cpu, device| {
        let map = device.ioremap_bar(0, kind).unwrap();
        // Nothing of the boot is left on the link.
        cpu.sleep(Duration::from_us(20)).await;
        let began = cpu.now();
        program(&cpu, &map).await;
        cpu.sync().await;
        (began, cpu.now().since(began))
    });
    let after = counters(&machine);
    after.check_conservation().unwrap();
    let arrived = machine.seen.borrow().iter().map(|(at, ..)| at.since(began).as_ps()).collect();
    let causes = Cause::ALL.map(|cause| (cause, crossed(&after, &before, cause)));
    let crossed = causes.into_iter().filter(|&(_, bytes)| bytes != (0, 0)).collect();
    (took.as_ps(), arrived, crossed)
}

#[test]
fn a_register_read_crosses_both_ways_and_takes_that_time() {
    let read = async |cpu: &Cpu, map: &Mmio| {
        map.read_u64(cpu, 0).await;
    };
    let (near, _, nothing) = act(0, MemoryType::Uncached, read);
    let (far, _, crossed) = act(1, MemoryType::Uncached, read);
    assert_eq!(far - near, (way(0) + way(8)).as_ps());
    assert_eq!(nothing, []);
    assert_eq!(crossed, [(Cause::MmioRegister, (HEADER, HEADER + 8))]);
}

#[test]
fn a_doorbell_crosses_and_is_answered_and_its_core_goes_on() {
    let ring = async |cpu: &Cpu, map: &Mmio| map.write_u32(cpu, 0, 1);
    let (near, near_arrived, nothing) = act(0, MemoryType::Uncached, ring);
    let (far, far_arrived, crossed) = act(1, MemoryType::Uncached, ring);
    assert_eq!(far, near, "the core waits for nothing");
    assert_eq!(far_arrived[0] - near_arrived[0], way(4).as_ps());
    assert_eq!(nothing, []);
    assert_eq!(crossed, [(Cause::MmioDoorbell, (HEADER + 4, HEADER))]);
}

#[test]
fn a_fence_behind_a_doorbell_waits_until_it_is_known_to_be_there() {
    // Longer than the core's own socket takes to accept it.
    let fenced = async |cpu: &Cpu, map: &Mmio| {
        map.write_u32(cpu, 0, 1);
        cpu.sleep(Duration::from_ns(20)).await;
        cpu.mfence().await;
    };
    let run = |node, uncached| {
        let mut setup = device_on(node);
        setup.stores.uncached_latency = uncached;
        let machine = Machine::new(&setup);
        machine.run(async move |cpu, device| {
            let map = device.ioremap_bar(0, MemoryType::Uncached).unwrap();
            cpu.sync().await;
            let began = cpu.now();
            fenced(&cpu, &map).await;
            cpu.now().since(began)
        })
    };
    assert_eq!(run(0, Duration::from_ns(10)), Duration::from_ns(20));
    assert_eq!(run(1, Duration::from_ns(10)), way(4) + way(0) + Duration::from_ns(10));
    assert_eq!(run(1, Duration::from_ns(100)), way(4) + way(0) + Duration::from_ns(100));
}

#[test]
fn a_combined_line_is_accepted_a_round_trip_later() {
    let write = async |cpu: &Cpu, map: &Mmio| {
        map.write(cpu, 0, &[1; LINE as usize]);
        cpu.mfence().await;
    };
    let (near, near_arrived, nothing) = act(0, MemoryType::WriteCombining, write);
    let (far, far_arrived, crossed) = act(1, MemoryType::WriteCombining, write);
    assert_eq!(far - near, (way(LINE) + way(0)).as_ps());
    assert_eq!(far_arrived[0] - near_arrived[0], way(LINE).as_ps());
    assert_eq!(nothing, []);
    assert_eq!(crossed, [(Cause::MmioWriteCombining, (HEADER + LINE, HEADER))]);
}

#[test]
fn a_read_does_not_pass_a_doorbell() {
    let machine = Machine::new(&device_on(1));
    // Other messages leave gaps on the interconnect that a request without data fits into and a doorbell does not.
    let begin = machine.simulation.now() + Duration::from_us(20);
    machine.simulation.with(|fabric, _| {
        let memory = &mut fabric.host_mut(machine.host).memory;
        for n in 0..200 {
            let at = begin + Duration::from_ps(1_100) * n;
            memory.charge_interconnect(at, Cause::Core, NodeId(0), NodeId(1), Bytes::ZERO);
        }
    });
    machine.run(async move |cpu, device| {
        let map = device.ioremap_bar(0, MemoryType::Uncached).unwrap();
        cpu.sleep_until(begin + Duration::from_ns(10)).await;
        map.write_u64(&cpu, 0, 7);
        assert_eq!(map.read_u64(&cpu, 0).await, 7);
        let since = cpu.now().since(begin);
        assert!(since > Duration::from_ns(220), "the interconnect was free before: {since}");
    });
}

#[test]
fn an_interrupt_crosses_to_the_core_that_it_is_for() {
    let sent = |node: u8, core: u16| {
        let machine = common::Machine::booted(kernel::DmaMode::Strict);
        let copier = machine.copier(usize::from(node));
        let counters = |machine: &common::Machine| {
            machine.simulation.with(|fabric, _| fabric.host(machine.host).memory.counters())
        };
        let moved = machine.kernel.set_irq_affinity(copier.irqs[0], CpuId(core));
        machine.simulation.block_on(moved).unwrap().unwrap();
        let before = counters(&machine);
        let on = machine.run(core, move |cpu| {
            Box::pin(async move {
                let memory = copier.memory.bus;
                copier.copy(&cpu, memory, memory + 4096, 64, 0).await
            })
        });
        assert_eq!(on, Ok(CpuId(core)));
        crossed(&counters(&machine), &before, Cause::Interrupt)
    };
    assert_eq!(sent(0, 0), (0, 0));
    assert_eq!(sent(1, 9), (0, 0));
    assert_eq!(sent(0, 9), (HEADER + 4, 0));
    assert_eq!(sent(1, 0), (0, HEADER + 4));
}
