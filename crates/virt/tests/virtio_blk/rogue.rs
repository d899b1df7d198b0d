//! Guests whose requests make no sense: all of them are stopped and counted, and the host's memory is its own.

use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use platform::irq::IrqReturn;
use platform::kernel::TaskParams;
use platform::memory::{PhysAddr, Policy};
use platform::virtio::VirtualDisk;
use units::Duration;
use virt::disk::VdiskCounters;
use wire::virtio::{BlockHeader, Descriptor, Ring};

use super::machine::{Machine, Setup};

const ENTRIES: u16 = 128;
/// Memory of the guest.
const MEMORY: u64 = 128 << 20;
const NEXT: u16 = Descriptor::NEXT;
const WRITE: u16 = Descriptor::WRITE;
/// Nobody has answered.
const NONE: u8 = 0xee;

/// What a rogue guest has to do with.
struct Tools {
    cpu: Cpu,
    disk: Rc<dyn VirtualDisk>,
    ring: Ring,
    /// Pages of its own: a header and an answer, then data.
    header: PhysAddr,
    answer: PhysAddr,
    data: PhysAddr,
    offered: u16,
}

impl Tools {
    fn descriptor(&self, number: u16, (address, length): (u64, u32), flags: u16, next: u16) {
        let descriptor = Descriptor { address, length, flags, next };
        self.cpu.store(PhysAddr(self.ring.descriptor(number)), &descriptor.emit());
    }

    /// Offers a chain, without telling.
    fn put(&mut self, first: u16) {
        let entry = self.ring.available_entry(self.offered);
        self.cpu.store(PhysAddr(entry), &first.to_le_bytes());
        self.offered = self.offered.wrapping_add(1);
    }

    /// Says that it has offered so many.
    async fn count(&self, offered: u16) {
        self.cpu.store(PhysAddr(self.ring.available() + 2), &offered.to_le_bytes());
        self.disk.notify(&self.cpu);
        self.cpu.sleep(Duration::from_us(400)).await;
    }

    async fn offer(&mut self, first: u16) {
        self.put(first);
        self.count(self.offered).await;
    }

    /// A request for these bytes of data, in the three descriptors from `first` on.
    fn request(&self, first: u16, kind: u32, sector: u64, data: (u64, u32)) {
        self.cpu.store(self.header, &BlockHeader { kind, sector }.emit());
        self.cpu.store(self.answer, &[NONE]);
        let flags = if kind == BlockHeader::READ { WRITE } else { 0 };
        self.descriptor(first, (self.header.0, 16), NEXT, first + 1);
        self.descriptor(first + 1, data, flags | NEXT, first + 2);
        self.descriptor(first + 2, (self.answer.0, 1), WRITE, 0);
    }

    fn answered(&self) -> u8 {
        let mut answer = [0];
        self.cpu.load(self.answer, &mut answer);
        answer[0]
    }

    fn used(&self) -> u16 {
        let mut count = [0; 2];
        self.cpu.load(PhysAddr(self.ring.used() + 2), &mut count);
        u16::from_le_bytes(count)
    }
}

fn lets(rogue: impl AsyncFnOnce(Tools) + 'static) -> (VdiskCounters, Machine) {
    let machine = Machine::undriven(&Setup::default());
    let face = machine.host.face();
    let kept = machine.host.run(TaskParams::named("test"), async move |cpu: Cpu| {
        let at = face.alloc_pages(&cpu, 8, Policy::Local).unwrap().start;
        (0..256 * 512).for_each(|word: u64| cpu.store_u64(at + word * 8, word * 5));
        at
    });
    let kept = machine.wait(async move { kept.wait().await });
    let mut first = [0; 4096];
    assert!(machine.host.ground().peek(PhysAddr(0), &mut first));
    let (face, disk) = (machine.kernel.face(), Rc::clone(&machine.way));
    machine.run(0, move |cpu| {
        Box::pin(async move {
            let pages = |order| face.alloc_pages(&cpu, order, Policy::Local).unwrap().start;
            let (ring, header, data) = (pages(3), pages(0), pages(4));
            cpu.store(ring, &[0; 8 * 4096]);
            let ring = Ring { start: ring.0, entries: ENTRIES };
            disk.request_irq(&cpu, Rc::new(|_: &Cpu| IrqReturn::Handled)).unwrap();
            disk.start(&cpu, ring).await.unwrap();
            let answer = header + 64;
            rogue(Tools { cpu: cpu.clone(), disk, ring, header, answer, data, offered: 0 }).await;
        })
    });
    let mut bytes = vec![0; 256 * 4096];
    assert!(machine.host.ground().peek(kept, &mut bytes));
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    assert!((0..).zip(words).all(|(n, word)| word == n * 5), "the host's memory is its own");
    let mut now = [0; 4096];
    assert!(machine.host.ground().peek(PhysAddr(0), &mut now));
    assert_eq!(now, first);
    (machine.vdisk.counters(), machine)
}

#[test]
fn a_ring_outside_its_memory_is_refused() {
    lets(async |tools| {
        for start in [MEMORY, MEMORY - 4096, 4 << 30, u64::MAX - 4095, 1 << 63, tools.ring.start + 8] {
            let ring = Ring { start, entries: ENTRIES };
            assert_eq!(tools.disk.start(&tools.cpu, ring).await, Err(Error::Invalid), "{ring:?}");
        }
    });
}

#[test]
fn chains_that_make_no_sense_are_stopped() {
    let (counters, _) = lets(async |mut tools| {
        let (data, header, answer) = (tools.data.0, tools.header.0, tools.answer.0);
        // Data outside its memory.
        for bad in [(MEMORY, 512), (MEMORY - 100, 512), (u64::MAX, 512), (4 << 30, 512), (data, u32::MAX)] {
            for kind in [BlockHeader::READ, BlockHeader::WRITE] {
                tools.request(0, kind, 0, bad);
                tools.offer(0).await;
                assert_eq!(tools.answered(), NONE);
            }
        }
        // A loop, a descriptor that there is not, a header that is none, no answer, an answer before what is to be read.
        tools.descriptor(10, (header, 16), NEXT, 10);
        tools.descriptor(11, (header, 16), NEXT, ENTRIES);
        tools.descriptor(12, (header, 15), NEXT, 13);
        tools.descriptor(13, (answer, 1), WRITE, 0);
        tools.descriptor(14, (header, 16), NEXT, 15);
        tools.descriptor(15, (data, 512), 0, 0);
        tools.descriptor(16, (header, 16), NEXT, 17);
        tools.descriptor(17, (answer, 1), WRITE | NEXT, 15);
        for first in [10, 11, 12, 14, 16, ENTRIES, u16::MAX] {
            tools.offer(first).await;
        }
        // All of its memory, again and again.
        for number in 0..ENTRIES {
            tools.descriptor(
                number,
                (0, MEMORY as u32),
                if number == 0 { NEXT } else { WRITE | NEXT },
                number + 1,
            );
        }
        tools.offer(0).await;
        assert_eq!(tools.used(), tools.offered);
    });
    assert_eq!((counters.malformed, counters.refused), (18, 0), "{counters:?}");
}

#[test]
fn requests_beyond_the_disk_are_refused() {
    let (counters, _) = lets(async |mut tools| {
        let (end, data) = (tools.disk.sectors(), tools.data.0);
        for kind in [BlockHeader::READ, BlockHeader::WRITE] {
            for sector in [end, end - 1, u64::MAX, u64::MAX / 512, 1 << 55] {
                tools.request(0, kind, sector, (data, 4096));
                tools.offer(0).await;
                assert_eq!(tools.answered(), BlockHeader::FAILED, "{sector}");
            }
        }
        tools.request(0, 77, 0, (data, 4096));
        tools.offer(0).await;
        assert_eq!(tools.answered(), BlockHeader::UNSUPPORTED);
        // What is no whole block, or nowhere that the drive reaches, is the host's block layer to refuse.
        for bad in [(data, 100), (data + 1, 4096), (data, 4097), (data, 0)] {
            tools.request(0, BlockHeader::READ, 0, bad);
            tools.offer(0).await;
            assert_eq!(tools.answered(), BlockHeader::FAILED, "{bad:?}");
        }
        tools.request(0, BlockHeader::READ, 0, (data, 4096));
        tools.offer(0).await;
        assert_eq!(tools.answered(), BlockHeader::OK);
    });
    assert_eq!((counters.malformed, counters.refused), (0, 12), "{counters:?}");
}

/// A request that is offered twice is done once; the drive reaches nothing of the guest's when it has gone.
#[test]
fn a_request_offered_twice_is_done_once() {
    let (counters, machine) = lets(async |mut tools| {
        tools.request(0, BlockHeader::READ, 0, (tools.data.0, 65_536));
        for _ in 0..16 {
            tools.put(0);
        }
        tools.count(tools.offered).await;
        assert_eq!(tools.answered(), BlockHeader::OK);
        assert_eq!(tools.used(), 1);
        for _ in 0..16 {
            tools.put(0);
        }
        tools.cpu.store(PhysAddr(tools.ring.available() + 2), &tools.offered.to_le_bytes());
        tools.disk.notify(&tools.cpu);
        // It is killed when the worker has just taken them.
        tools.cpu.sleep(Duration::from_us(10)).await;
    });
    assert!(counters.malformed >= 15, "{counters:?}");
    let killed = machine.vm.kill();
    machine.wait(killed);
    assert_eq!(machine.mapped(), 0);
    // Whoever gets its memory now keeps what is his.
    let face = machine.host.face();
    let own = machine.host.run(TaskParams::named("test"), async move |cpu: Cpu| {
        let mut all = Vec::new();
        while let Ok(pages) = face.alloc_pages(&cpu, 9, Policy::Local) {
            cpu.store(pages.start, &[0x77; 65_536]);
            all.push(pages.start);
        }
        cpu.sleep(Duration::from_ms(3)).await;
        let mut bytes = [0; 65_536];
        all.iter().all(|&at| {
            cpu.load(at, &mut bytes);
            bytes == [0x77; 65_536]
        })
    });
    assert!(machine.wait(async move { own.wait().await }));
}

#[test]
fn a_count_beyond_the_ring_ends_it() {
    let (counters, _) = lets(async |mut tools| {
        tools.request(0, BlockHeader::READ, 0, (tools.data.0, 4096));
        tools.count(ENTRIES + 1).await;
        tools.offer(0).await;
        assert_eq!((tools.used(), tools.answered()), (0, NONE));
        tools.cpu.store(PhysAddr(tools.ring.available()), &[0; 4]);
        tools.disk.start(&tools.cpu, tools.ring).await.unwrap();
        tools.offered = 0;
        tools.offer(0).await;
        assert_eq!((tools.used(), tools.answered()), (1, BlockHeader::OK));
    });
    assert_eq!((counters.malformed, counters.requests), (1, 1), "{counters:?}");
}
