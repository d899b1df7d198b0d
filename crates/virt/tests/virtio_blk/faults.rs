//! Full rings, busy cores, guests that move, are reset and killed: what was acknowledged is on the drive, and nothing is left.

use std::cell::Cell;
use std::rc::Rc;

use platform::Error;
use platform::block::{BlockOp, Segment};
use platform::cpu::{Cpu, CpuId, Node};
use platform::kernel::TaskParams;
use platform::memory::{PhysAddr, Policy};
use platform::storage::{IoCompletions, IoRequest};
use platform::sync::Completion;
use units::Duration;
use virt::placement::{Client, IoThreads};

use super::machine::{Machine, Setup};

const BLOCK: u64 = 4096;

/// Requests of a block each, so many at once, for as long as they succeed: writes, each of the number of its place. Says how many
/// were acknowledged, each place after the one before.
fn write_on(machine: &Machine, at_once: u64) -> Rc<Cell<u64>> {
    let (kernel, done) = (machine.vm.kernel(), Rc::new(Cell::new(0)));
    let (face, told) = (kernel.face(), Rc::clone(&done));
    kernel.spawn(TaskParams::named("writer").on(CpuId(1)), move |cpu| {
        Box::pin(async move {
            let file = face.open_block("/dev/vda").expect("it has a disk");
            let order = (at_once * BLOCK / 4096).next_power_of_two().trailing_zeros() as u8;
            let memory = face.alloc_pages(&cpu, order, Policy::Local).unwrap().start;
            let completions = IoCompletions::new();
            for round in 0.. {
                let request = |n: u64| {
                    let (number, at) = (round * at_once + n, memory + n * BLOCK);
                    (0..BLOCK / 8).for_each(|word| cpu.store_u64(at + word * 8, number));
                    let memory = vec![Segment { at, length: BLOCK as u32 }];
                    let op = BlockOp::Write { fua: false };
                    IoRequest { op, offset: number * BLOCK, length: BLOCK, memory, token: n }
                };
                file.submit(&cpu, (0..at_once).map(request).collect(), &completions);
                for _ in 0..at_once {
                    if completions.next().await.result.is_err() {
                        return;
                    }
                }
                told.set(told.get() + at_once);
            }
        })
    });
    done
}

/// What was acknowledged is on the drive, each block with the number of its place, says the host; how much that is.
fn acknowledged(machine: &Machine, done: &Cell<u64>) -> u64 {
    let blocks = done.get();
    let right = in_host(machine, {
        let face = machine.host.face();
        let drive = machine.host.block().devices().into_iter().next().expect("it has a drive").open();
        async move |cpu: &Cpu| {
            let at = face.alloc_pages(cpu, 0, Policy::Local).unwrap().start;
            let completions = IoCompletions::new();
            let mut right = 0;
            for number in 0..blocks {
                let memory = vec![Segment { at, length: BLOCK as u32 }];
                let op = BlockOp::Read;
                let read = IoRequest { op, offset: number * BLOCK, length: BLOCK, memory, token: 0 };
                drive.submit(cpu, vec![read], &completions);
                assert_eq!(completions.next().await.result, Ok(()));
                right += u64::from((0..BLOCK / 8).all(|word| cpu.load_u64(at + word * 8) == number));
            }
            right
        }
    });
    assert_eq!(right, blocks);
    blocks
}

fn in_host<T: 'static>(machine: &Machine, work: impl AsyncFnOnce(&Cpu) -> T + 'static) -> T {
    let done = Completion::new();
    let told = done.clone();
    machine.host.spawn(TaskParams::named("test").on(CpuId(0)), move |cpu| {
        Box::pin(async move {
            let value = work(&cpu).await;
            cpu.sync().await;
            told.complete(value);
        })
    });
    machine.wait(async move { done.wait().await })
}

fn run_for(machine: &Machine, time: Duration) {
    let end = machine.simulation.now() + time;
    machine.simulation.run_until(end);
}

#[test]
fn more_requests_than_the_ring_has_wait() {
    let machine = Machine::new(&Setup::default());
    let done = write_on(&machine, 512);
    run_for(&machine, Duration::from_ms(20));
    assert!(acknowledged(&machine, &done) >= 1024);
    assert_eq!(machine.vdisk.counters().malformed, 0);
}

/// The worker has its core for half of the time.
#[test]
fn a_worker_whose_core_is_busy_is_late_and_loses_nothing() {
    let written = |busy: bool| {
        let machine = Machine::new(&Setup::default());
        let face = machine.host.face();
        let threads = machine.storage.threads();
        threads.iter().for_each(|&(thread, _)| face.set_affinity(thread, &[CpuId(3)]).unwrap());
        if busy {
            machine.host.spawn(TaskParams::named("busy").on(CpuId(3)), |cpu| {
                Box::pin(async move {
                    loop {
                        cpu.stall(Duration::from_us(1));
                        cpu.sync().await;
                    }
                })
            });
        }
        let done = write_on(&machine, 1);
        run_for(&machine, Duration::from_ms(30));
        acknowledged(&machine, &done)
    };
    let (alone, shared) = (written(false), written(true));
    assert!(shared > 8 && shared < alone * 3 / 4, "{shared}, alone {alone}");
}

#[test]
fn a_guest_killed_while_it_writes_leaves_nothing() {
    let machine = Machine::new(&Setup::default());
    let (free, done) = (machine.free(), write_on(&machine, 16));
    run_for(&machine, Duration::from_us(1703));
    let killed = machine.vm.kill();
    machine.wait(killed);
    let taken = machine.vdisk.counters();
    assert!(machine.free() > free + (127 << 20), "{} after {free}", machine.free());
    assert_eq!(machine.mapped(), 0);
    run_for(&machine, Duration::from_ms(5));
    assert_eq!(machine.vdisk.counters(), taken);
    assert!(acknowledged(&machine, &done) > 16);
}

/// What the drive has under way goes on meanwhile; nothing new comes.
#[test]
fn a_guest_paused_while_it_writes_loses_nothing() {
    let machine = Machine::new(&Setup::default());
    let done = write_on(&machine, 16);
    for _ in 0..8 {
        run_for(&machine, Duration::from_us(503));
        machine.vm.pause();
        run_for(&machine, Duration::from_ms(2));
        let paused = (done.get(), machine.vdisk.counters());
        run_for(&machine, Duration::from_ms(2));
        assert_eq!((done.get(), machine.vdisk.counters()), paused);
        machine.vm.resume();
    }
    run_for(&machine, Duration::from_ms(2));
    assert!(acknowledged(&machine, &done) > 64);
}

#[test]
fn a_guest_that_is_reset_has_its_disk_again() {
    let machine = Machine::new(&Setup::default());
    let done = write_on(&machine, 16);
    run_for(&machine, Duration::from_us(1703));
    let reset = machine.vm.reset();
    machine.wait(reset);
    assert!(acknowledged(&machine, &done) > 16);
    let kernel = machine.vm.kernel();
    machine.wait(async move { kernel.boot().await });
    machine.probe();
    let again = write_on(&machine, 16);
    run_for(&machine, Duration::from_ms(3));
    assert!(acknowledged(&machine, &again) > 16);
}

/// Pages that the drive reaches stay, those that it does not move, and all of them do when the disk is held.
#[test]
fn pages_move_while_requests_come_and_go() {
    let machine = Machine::new(&Setup::default());
    let done = write_on(&machine, 16);
    let (mut moved, mut busy) = (0, 0);
    for n in 0..12 {
        let (memory, storage) = (Rc::clone(machine.vm.memory()), Rc::clone(&machine.storage));
        let disk = Rc::new(virt::disk::ServedDisk { storage, vdisk: Rc::clone(&machine.vdisk) });
        let ground = machine.host.ground();
        let result = in_host(&machine, async move |cpu: &Cpu| {
            if n % 2 == 1 {
                disk.hold().await;
            }
            let mut all = Vec::new();
            for page in 0..64u64 {
                let page = PhysAddr(page << 21);
                // Where the kernel has its rings, and the writer its memory.
                let to = if memory.node_of(page) == Some(Node(0)) { Node(1) } else { Node(0) };
                let is_used = {
                    let mut bytes = vec![0; 2 << 20];
                    assert!(ground.peek(memory.place(page).unwrap().0, &mut bytes));
                    bytes.iter().any(|&byte| byte != 0)
                };
                if is_used {
                    all.push(memory.move_page(cpu, page, to));
                    cpu.sync().await;
                }
            }
            if n % 2 == 1 {
                disk.go_on(cpu);
            }
            all
        });
        for result in result {
            match result {
                Ok(()) => moved += 1,
                Err(Error::Busy) if n % 2 == 0 => busy += 1,
                Err(error) => panic!("{error}"),
            }
        }
        run_for(&machine, Duration::from_us(307));
    }
    assert!(moved > 6 && busy > 0, "{moved} moved, {busy} stayed");
    run_for(&machine, Duration::from_ms(2));
    assert!(acknowledged(&machine, &done) > 100);
}
