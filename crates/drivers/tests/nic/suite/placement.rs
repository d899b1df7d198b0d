//! Where a NIC's work is done and where its memory is, when programs and interrupts move.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use crate::common::{Pair, Setup};
use kernel::SteeringParams;
use platform::block::Segment;
use platform::cpu::{CpuId, Node};
use platform::kernel::TaskParams;
use platform::memory::Policy;
use units::{BitRate, Duration};

const SENDER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 5000);
const READER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 5000);

fn pair(steering: SteeringParams) -> Pair {
    let mut setup = Setup { rate: BitRate::gbit_per_s(10), steering, ..Setup::default() };
    setup.driver.coalescing = Duration::from_us(5);
    setup.driver.adaptive = false;
    let pair = Pair::new(&setup);
    for (host, at) in [SENDER, READER].into_iter().enumerate() {
        let network = pair.hosts[host].kernel.face().network();
        let up = pair.run(host, 0, move |cpu| {
            Box::pin(async move { network.configure(&cpu, "eth0", *at.ip(), 24).await })
        });
        up.unwrap();
    }
    pair
}

/// A program that sends datagrams from memory of node 0, 2 us apart, in rounds of 100; how many it has sent in all.
fn sender(pair: &Pair) -> (platform::kernel::TaskId, Rc<Cell<u32>>) {
    let (face, sent) = (pair.hosts[0].kernel.face(), Rc::new(Cell::new(0)));
    let count = Rc::clone(&sent);
    let task = pair.hosts[0].kernel.spawn(TaskParams::named("sender").on(CpuId(0)), move |cpu| {
        Box::pin(async move {
            let socket = face.network().udp(&cpu, SENDER).unwrap();
            let pages = face.alloc_pages(&cpu, 0, Policy::Bind(Node(0))).unwrap();
            loop {
                let _ = socket.send_to(&cpu, READER, Segment { at: pages.start, length: 200 }).await;
                count.set(count.get() + 1);
                cpu.sleep(Duration::from_us(2)).await;
            }
        })
    });
    (task, sent)
}

/// A program that reads datagrams on a core; how many it has read.
fn reader(pair: &Pair, on: u16) -> Rc<Cell<u32>> {
    let (face, read) = (pair.hosts[1].kernel.face(), Rc::new(Cell::new(0)));
    let count = Rc::clone(&read);
    pair.hosts[1].kernel.spawn(TaskParams::named("reader").on(CpuId(on)), move |cpu| {
        Box::pin(async move {
            let socket = face.network().udp(&cpu, READER).unwrap();
            let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            loop {
                let into = Segment { at: pages.start, length: 1400 };
                if socket.recv_from(&cpu, into).await.is_err() {
                    return;
                }
                count.set(count.get() + 1);
                cpu.sync().await;
            }
        })
    });
    read
}

/// Memory for headers does not change its node: what a sender left behind on another node is not taken for the next packets.
#[test]
fn headers_are_near_their_sender_wherever_it_has_been() {
    let pair = pair(SteeringParams::linux());
    let _read = reader(&pair, 0);
    let (task, sent) = sender(&pair);
    let crossed = || {
        pair.simulation.with(|fabric, _| {
            let links = &fabric.host(pair.hosts[0].host).memory.counters().links;
            links.iter().map(|link| link.bytes.total().get()).sum::<u64>()
        })
    };
    pair.run_for(Duration::from_us(400));
    let before = crossed();
    pair.run_for(Duration::from_us(400));
    assert_eq!(crossed() - before, 0, "a sender that has never moved");
    for round in 0..6 {
        let to = CpuId(if round % 2 == 0 { 9 } else { 0 });
        pair.hosts[0].kernel.face().set_affinity(task, &[to]).unwrap();
        pair.run_for(Duration::from_us(400));
    }
    // Nothing that it wrote there is left in caches.
    pair.simulation.with(|fabric, _| fabric.host_mut(pair.hosts[0].host).memory.flush_all());
    let (before, packets) = (crossed(), sent.get());
    pair.run_for(Duration::from_ms(1));
    let packets = sent.get() - packets;
    assert!(packets > 100, "{packets} packets");
    assert_eq!(crossed() - before, 0, "back on its node");
}

/// Packets of who reads where an interrupt has been moved to are steered there, and sent there.
#[test]
fn queues_follow_their_interrupts() {
    let steering = SteeringParams { rfs: true, arfs: true, ..SteeringParams::linux() };
    let pair = pair(steering);
    let kernel = &pair.hosts[1].kernel;
    let irq = |name: &str| {
        let found = kernel.interrupts().into_iter().find(|(_, known, ..)| known.ends_with(name));
        found.unwrap_or_else(|| panic!("{:?}", kernel.interrupts()))
    };
    let (queue, events) = (irq("-1").0, irq("-events"));
    let network = kernel.face().network();
    // The channels are at home on cores 0 and 1.
    for (irq, to) in [(queue, 12), (events.0, 13)] {
        pair.simulation.block_on(kernel.set_irq_affinity(irq, CpuId(to))).expect("it ends").unwrap();
    }
    let read = reader(&pair, 12);
    let (_, sent) = sender(&pair);
    pair.run_for(Duration::from_us(300));
    let (before, busy) = (network.counters().to_other_core, kernel.core_times(CpuId(1)).total());
    pair.run_for(Duration::from_ms(1));
    assert!(read.get() > 200 && read.get() + 10 > sent.get(), "{} of {}", read.get(), sent.get());
    assert_eq!(network.counters().to_other_core, before, "the device sends them to core 12");
    assert_eq!(kernel.core_times(CpuId(1)).total(), busy);
    // The thread of the other interrupt follows, too.
    pair.simulation.with(|fabric, scheduler| fabric.running(scheduler).set_ethernet_up(pair.cable, false));
    pair.run_for(Duration::from_ms(1));
    let thread = kernel.tasks().into_iter().find(|task| task.name.ends_with("-events")).unwrap();
    assert_eq!(thread.cpu, CpuId(13));
    assert!(irq("-events").3 > events.3);
}
