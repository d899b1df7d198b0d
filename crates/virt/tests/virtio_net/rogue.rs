//! Guests whose rings make no sense: all of it is stopped and counted, the host's memory is its own, and the other guests go on.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::irq::IrqReturn;
use platform::memory::{PhysAddr, Policy};
use platform::virtio::VirtualNic;
use units::Duration;
use virt::net::VnicCounters;
use wire::virtio::{Descriptor, NetHeader, Ring};

use super::machine::{HOST, Machine, Place, frame};

const MS: Duration = Duration::from_ms(1);
const ROGUE: Place = Place::Guest(0);
const ENTRIES: u16 = 256;
/// Memory of a guest.
const MEMORY: u64 = 32 << 20;
/// A value that nobody else writes.
const MARK: u64 = 0x5afe_c0de_5afe_c0de;

/// What a rogue guest has to do with.
#[derive(Clone)]
struct Tools {
    cpu: Cpu,
    nic: Rc<dyn VirtualNic>,
    receive: Ring,
    send: Ring,
    /// Pages of its own.
    at: PhysAddr,
    offered: u16,
}

impl Tools {
    fn descriptor(&self, ring: Ring, number: u16, (address, length): (u64, u32), flags: u16, next: u16) {
        let descriptor = Descriptor { address, length, flags, next };
        self.cpu.store(PhysAddr(ring.descriptor(number)), &descriptor.emit());
    }

    /// Offers a chain for sending that begins with this descriptor, and tells.
    async fn offer(&mut self, first: u16) {
        let entry = self.send.available_entry(self.offered);
        self.cpu.store(PhysAddr(entry), &first.to_le_bytes());
        self.offered = self.offered.wrapping_add(1);
        self.count(self.offered).await;
    }

    /// Says that it has offered so many.
    async fn count(&self, offered: u16) {
        self.cpu.store(PhysAddr(self.send.available() + 2), &offered.to_le_bytes());
        self.nic.notify(&self.cpu);
        self.cpu.sleep(Duration::from_us(100)).await;
    }

    fn used(&self) -> u16 {
        let mut count = [0; 2];
        self.cpu.load(PhysAddr(self.send.used() + 2), &mut count);
        u16::from_le_bytes(count)
    }
}

/// Lets the first of two guests do something to its rings; says what its NIC counts then. The host's memory stays as it is, and
/// frames of the other guest come and go.
fn lets(rogue: impl AsyncFnOnce(Tools) + 'static) -> VnicCounters {
    let machine = Machine::new(2);
    machine.open(1);
    let host = Rc::clone(&machine.pair.hosts[HOST].kernel);
    let face = host.face();
    let kept = host.run(platform::kernel::TaskParams::named("test").on(CpuId(0)), async move |cpu: Cpu| {
        let at = face.alloc_pages(&cpu, 8, Policy::Local).unwrap().start;
        (0..256 * 512).for_each(|word: u64| cpu.store_u64(at + word * 8, MARK ^ word));
        at
    });
    let kept = machine.wait(async move { kept.wait().await });
    // The first page, where a place that is none might lead.
    let mut first = [0; 4096];
    assert!(host.ground().peek(PhysAddr(0), &mut first));
    let (face, nic) = (machine.kernel(ROGUE).face(), Rc::clone(&machine.guests[0].way));
    machine.run(ROGUE, 0, move |cpu| {
        Box::pin(async move {
            let pages = |order| face.alloc_pages(&cpu, order, Policy::Local).unwrap().start;
            let rings = [pages(3), pages(3)];
            for ring in rings {
                cpu.store(ring, &[0; 8 * 4096]);
            }
            let [receive, send] = rings.map(|at| Ring { start: at.0, entries: ENTRIES });
            let at = pages(4);
            nic.request_irq(&cpu, Rc::new(|_: &Cpu| IrqReturn::Handled)).unwrap();
            nic.start(&cpu, receive, send).await.unwrap();
            rogue(Tools { cpu: cpu.clone(), nic, receive, send, at, offered: 0 }).await;
        })
    });
    let (other, outside) = (Place::Guest(1), Place::Outside);
    let listeners = [other, outside].map(|at| machine.listen(at));
    machine.send(other, outside.mac(), 0, 200, &[60, 1514]);
    machine.send(outside, other.mac(), 0, 200, &[60, 1514]);
    machine.run_for(MS * 10);
    let all: Vec<u32> = (0..200).collect();
    assert_eq!(machine.received(other, outside, other.mac(), &listeners[0]), all);
    assert_eq!(machine.received(outside, other, outside.mac(), &listeners[1]), all);
    let mut bytes = vec![0; 256 * 4096];
    assert!(host.ground().peek(kept, &mut bytes));
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    assert!((0..).zip(words).all(|(n, word)| word == MARK ^ n), "the host's memory is its own");
    let mut now = [0; 4096];
    assert!(host.ground().peek(PhysAddr(0), &mut now));
    assert_eq!(now, first);
    machine.guests[0].vnic.counters()
}

/// Writes a packet with its header, in one piece.
fn packet(tools: &Tools, header: NetHeader, length: usize) -> (u64, u32) {
    let mut bytes = header.emit().to_vec();
    bytes.extend(frame(ROGUE, Place::Outside.mac(), length, 7));
    tools.cpu.store(tools.at, &bytes);
    (tools.at.0, bytes.len() as u32)
}

#[test]
fn a_ring_outside_its_memory_is_refused() {
    let machine = Machine::new(1);
    let nic = Rc::clone(&machine.guests[0].way);
    machine.run(ROGUE, 0, move |cpu| {
        Box::pin(async move {
            let good = Ring { start: 1 << 20, entries: ENTRIES };
            let bad = [
                (MEMORY, ENTRIES),
                (MEMORY - 4096, ENTRIES),
                (4 << 30, ENTRIES),
                (3 << 30, ENTRIES),
                (u64::MAX - 4095, ENTRIES),
                (u64::MAX - 4095, 32768),
                (1 << 63, ENTRIES),
                ((1 << 20) + 16, ENTRIES),
                (1 << 20, 0),
                (1 << 20, 100),
            ];
            for (start, entries) in bad {
                let bad = Ring { start, entries };
                assert_eq!(nic.start(&cpu, bad, good).await, Err(Error::Invalid), "{bad:?}");
                assert_eq!(nic.start(&cpu, good, bad).await, Err(Error::Invalid), "{bad:?}");
            }
        })
    });
}

#[test]
fn descriptors_outside_its_memory_are_stopped() {
    const BAD: [(u64, u32); 8] = [
        (MEMORY, 100),
        (MEMORY - 50, 100),
        (4 << 30, 100),
        ((4 << 30) - 50, 100),
        (u64::MAX - 50, 100),
        (u64::MAX, 1),
        (1 << 45, 1514),
        (0, u32::MAX),
    ];
    let counters = lets(async |mut tools| {
        let good = packet(&tools, NetHeader::default(), 60);
        for bad in BAD {
            tools.descriptor(tools.send, 0, bad, 0, 0);
            tools.offer(0).await;
            // Behind a good one.
            tools.descriptor(tools.send, 1, good, Descriptor::NEXT, 2);
            tools.descriptor(tools.send, 2, bad, 0, 0);
            tools.offer(1).await;
        }
        assert_eq!(usize::from(tools.used()), 2 * BAD.len(), "all were given back");
    });
    assert_eq!((counters.malformed, counters.sent), (2 * BAD.len() as u64, 0), "{counters:?}");
}

#[test]
fn chains_that_lead_nowhere_are_stopped() {
    let counters = lets(async |mut tools| {
        let (at, _) = packet(&tools, NetHeader::default(), 1514);
        let ring = tools.send;
        // To itself; round; to a descriptor that there is not; one that begins there.
        tools.descriptor(ring, 0, (at, 4), Descriptor::NEXT, 0);
        tools.offer(0).await;
        tools.descriptor(ring, 1, (at, 4), Descriptor::NEXT, 2);
        tools.descriptor(ring, 2, (at, 4), Descriptor::NEXT, 1);
        tools.offer(1).await;
        tools.descriptor(ring, 3, (at, 100), Descriptor::NEXT, ENTRIES);
        tools.offer(3).await;
        tools.offer(ENTRIES).await;
        tools.offer(u16::MAX).await;
        // Tables of descriptors were not agreed on, and what is to be sent is not to be written.
        tools.descriptor(ring, 4, (at, 100), 4, 0);
        tools.offer(4).await;
        tools.descriptor(ring, 5, (at, 100), Descriptor::WRITE, 0);
        tools.offer(5).await;
        tools.descriptor(ring, 6, (at, 12), Descriptor::WRITE | Descriptor::NEXT, 7);
        tools.descriptor(ring, 7, (at, 100), 0, 0);
        tools.offer(6).await;
        // Nothing at all.
        tools.descriptor(ring, 8, (at, 0), 0, 0);
        tools.offer(8).await;
    });
    assert_eq!((counters.malformed, counters.sent), (9, 0), "{counters:?}");
}

#[test]
fn lengths_of_4_gib_are_stopped() {
    let counters = lets(async |mut tools| {
        let ring = tools.send;
        for number in 0..ENTRIES {
            let next = (number + 1) % ENTRIES;
            let flags = if next == 0 { 0 } else { Descriptor::NEXT };
            tools.descriptor(ring, number, (0, MEMORY as u32), flags, next);
        }
        // All of its memory 256 times, 128 times, and once.
        for first in [0, ENTRIES - 128, ENTRIES - 1] {
            tools.offer(first).await;
        }
        tools.descriptor(ring, 0, (0, u32::MAX), 0, 0);
        tools.offer(0).await;
    });
    assert_eq!((counters.malformed, counters.sent), (4, 0), "{counters:?}");
}

/// A guest that says that it has offered more than its ring has is heard no more, until it starts again.
#[test]
fn a_count_beyond_the_ring_ends_it() {
    let counters = lets(async |mut tools| {
        let good = packet(&tools, NetHeader::default(), 60);
        tools.descriptor(tools.send, 0, good, 0, 0);
        tools.count(ENTRIES + 1).await;
        assert_eq!(tools.used(), 0);
        tools.offer(0).await;
        assert_eq!(tools.used(), 0);
        tools.nic.stop(&tools.cpu).await;
        tools.cpu.store(PhysAddr(tools.send.available()), &[0; 4]);
        tools.nic.start(&tools.cpu, tools.receive, tools.send).await.unwrap();
        tools.offered = 0;
        tools.offer(0).await;
        assert_eq!(tools.used(), 1);
    });
    assert_eq!((counters.malformed, counters.sent), (1, 1), "{counters:?}");
}

#[test]
fn headers_that_make_no_sense_are_stopped() {
    let summed = |start, offset| NetHeader {
        flags: NetHeader::NEEDS_CHECKSUM,
        checksum_start: start,
        checksum_offset: offset,
        ..NetHeader::default()
    };
    let cut =
        |headers, segment| NetHeader { gso: NetHeader::GSO_TCPV4, headers, segment, ..NetHeader::default() };
    let headers = [
        (summed(59, 0), 60),
        (summed(0, 59), 60),
        (summed(u16::MAX, u16::MAX), 1514),
        (cut(54, 0), 1514),
        (cut(0, 1460), 1514),
        (cut(1514, 1460), 1514),
        (cut(u16::MAX, 1), 1514),
        (NetHeader::default(), 13),
        (NetHeader { gso: 3, ..NetHeader::default() }, 60),
    ];
    let wrong = headers.len() as u64;
    let counters = lets(async move |mut tools| {
        for (header, length) in headers {
            let all = packet(&tools, header, length.max(18));
            tools.descriptor(tools.send, 0, (all.0, (length + NetHeader::LEN) as u32), 0, 0);
            tools.offer(0).await;
        }
        // Segments that are strange and can be cut do no harm either: of one byte, of headers that are none.
        for header in [cut(54, 1), cut(1, 1), cut(1500, u16::MAX), cut(60, 7)] {
            let all = packet(&tools, header, 1514);
            tools.descriptor(tools.send, 0, all, 0, 0);
            tools.offer(0).await;
        }
    });
    assert_eq!((counters.malformed, counters.sent), (wrong, 4), "{counters:?}");
}

/// Buffers to receive into that are outside its memory, or not for writing: frames are dropped, and nothing is written there.
#[test]
fn buffers_outside_its_memory_receive_nothing() {
    let machine = Machine::new(1);
    let (face, nic) = (machine.kernel(ROGUE).face(), Rc::clone(&machine.guests[0].way));
    let at = machine.run(ROGUE, 0, move |cpu| {
        Box::pin(async move {
            let pages = |order| face.alloc_pages(&cpu, order, Policy::Local).unwrap().start;
            let rings = [pages(3), pages(3)];
            rings.iter().for_each(|&ring| cpu.store(ring, &[0; 8 * 4096]));
            let [receive, send] = rings.map(|at| Ring { start: at.0, entries: ENTRIES });
            let at = pages(0);
            cpu.store(at, &[0xaa; 4096]);
            let bad = [
                (MEMORY, 2048, Descriptor::WRITE),
                (MEMORY - 100, 2048, Descriptor::WRITE),
                (u64::MAX - 100, 2048, Descriptor::WRITE),
                (at.0, 2048, 0),
                (at.0, 20, Descriptor::WRITE),
                (at.0, 2048, Descriptor::WRITE | Descriptor::NEXT),
            ];
            for (n, (address, length, flags)) in (0u16..).zip(bad) {
                let descriptor = Descriptor { address, length, flags, next: n };
                cpu.store(PhysAddr(receive.descriptor(n)), &descriptor.emit());
                cpu.store(PhysAddr(receive.available_entry(n)), &n.to_le_bytes());
            }
            cpu.store(PhysAddr(receive.available() + 2), &(bad.len() as u16).to_le_bytes());
            nic.start(&cpu, receive, send).await.unwrap();
            at
        })
    });
    machine.send(Place::Outside, ROGUE.mac(), 0, 10, &[1514]);
    machine.run_for(MS * 2);
    let counters = machine.guests[0].vnic.counters();
    assert_eq!((counters.received, counters.dropped), (0, 10), "{counters:?}");
    // All but the one that is too small for a frame, and may have the beginning of one.
    assert_eq!(counters.malformed, 5, "{counters:?}");
    let mut bytes = [0; 4096];
    assert!(machine.kernel(ROGUE).ground().peek(at, &mut bytes));
    assert_eq!(bytes[20..], [0xaa; 4076]);
}
