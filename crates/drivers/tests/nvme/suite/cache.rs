//! The page cache when something goes wrong, or something else happens at the same time.

use devices::nvme::{Fault, FaultKind};
use platform::Error;
use platform::block::{BlockOp, Segment};
use platform::cpu::{CpuId, Node};
use platform::kernel::TaskParams;
use platform::memory::{PAGE, PhysAddr, Policy};
use platform::storage::{IoCompletions, IoRequest};
use platform::sync::Completion;
use units::{Bytes, Duration};
use wire::nvme::Status;

use super::machine::{Machine, Setup};

const WRITE: BlockOp = BlockOp::Write { fua: false };
/// What the drive holds, what programs write, and what is left in memory that nobody uses.
const OLD: u8 = 0x5a;
const NEW: u8 = 0x11;
const GARBAGE: u8 = 0xee;

fn segment(at: PhysAddr, length: u64) -> Vec<Segment> {
    vec![Segment { at, length: length as u32 }]
}

/// A machine whose drive begins with `pages` of old content, and a program's memory with as many of new content.
fn with_old_content(setup: &Setup, pages: u64) -> (Machine, PhysAddr) {
    let machine = Machine::new(setup);
    let at = machine.memory(pages, 1);
    machine.put(at, &vec![OLD; (pages * PAGE) as usize]);
    machine.direct(0, WRITE, 0, segment(at, pages * PAGE), pages * PAGE).unwrap();
    machine.put(at, &vec![NEW; (pages * PAGE) as usize]);
    (machine, at)
}

/// The next read command fails for good.
fn fail_next_read(machine: &Machine) {
    let kind = FaultKind::Fail(Status::READ_ERROR.dnr());
    machine.control.inject(Fault { queue: None, opcode: Some(2), after: 0, kind });
}

/// Whether a page is all of one byte.
fn is_all(page: &[u8], byte: u8) -> bool {
    page.iter().all(|found| *found == byte)
}

/// What a buffered read of one page gives.
fn page(machine: &Machine, at: PhysAddr, index: u64) -> Vec<u8> {
    let file = machine.file();
    let read = machine
        .run(2, move |cpu| Box::pin(async move { file.read(&cpu, index * PAGE, &segment(at, PAGE)).await }));
    assert_eq!(read, Ok(()), "page {index}");
    machine.get(at, PAGE as usize)
}

/// A page is as it was or as it was to be, and the same on the drive after a sync.
fn is_whole(machine: &Machine, at: PhysAddr, index: u64) {
    let cached = page(machine, at, index);
    let first = cached[0];
    assert!(first == OLD || first == NEW, "page {index} begins with {first:#x}");
    assert!(is_all(&cached, first), "page {index} is torn");
    let file = machine.file();
    machine.run(0, move |cpu| Box::pin(async move { file.sync(&cpu).await })).unwrap();
    machine.direct(0, BlockOp::Read, index * PAGE, segment(at, PAGE), PAGE).unwrap();
    assert!(machine.get(at, PAGE as usize) == cached, "page {index} is another on the drive");
}

#[test]
fn a_write_that_runs_out_of_memory_leaves_no_garbage() {
    let (machine, at) = with_old_content(&Setup { memory: Bytes::mib(4), ..Setup::default() }, 4);
    let (kernel, file) = (machine.kernel.face(), machine.file());
    let written = machine.run(0, move |cpu| {
        Box::pin(async move {
            let mut held = Vec::new();
            while let Ok(pages) = kernel.alloc_pages(&cpu, 0, Policy::Local) {
                cpu.store(pages.start, &[GARBAGE; PAGE as usize]);
                held.push(pages);
            }
            // Enough for half of it.
            held.drain(..2).for_each(|pages| kernel.free_pages(&cpu, pages));
            let written = file.write(&cpu, 0, &segment(at, 4 * PAGE)).await;
            held.into_iter().for_each(|pages| kernel.free_pages(&cpu, pages));
            written
        })
    });
    assert_eq!(written, Err(Error::NoMemory));
    (0..4).for_each(|index| is_whole(&machine, at, index));
}

#[test]
fn a_write_whose_last_page_cannot_be_read_leaves_no_garbage() {
    let (machine, at) = with_old_content(&Setup::default(), 4);
    fail_next_read(&machine);
    let file = machine.file();
    let written = machine
        .run(0, move |cpu| Box::pin(async move { file.write(&cpu, 0, &segment(at, 3 * PAGE + 512)).await }));
    assert_eq!(written, Err(Error::Io));
    (0..3).for_each(|index| is_whole(&machine, at, index));
    assert!(is_all(&page(&machine, at, 3), OLD));
}

#[test]
fn who_reads_while_a_write_waits_sees_no_garbage() {
    let (machine, at) = with_old_content(&Setup::default(), 4);
    let file = machine.file();
    machine.kernel.spawn(TaskParams::named("writer").on(CpuId(1)), move |cpu| {
        Box::pin(async move { file.write(&cpu, 0, &segment(at, 3 * PAGE + 512)).await.unwrap() })
    });
    let (file, into) = (machine.file(), machine.memory(1, 0));
    machine.run(2, move |cpu| {
        Box::pin(async move {
            // The writer waits for the page that it writes in part.
            cpu.sleep(Duration::from_us(4)).await;
            file.read(&cpu, 0, &segment(into, PAGE)).await.unwrap();
        })
    });
    let seen = machine.get(into, PAGE as usize);
    assert!(is_all(&seen, OLD) || is_all(&seen, NEW), "{:#x}", seen[0]);
}

#[test]
fn a_write_to_a_page_whose_read_fails_is_not_lost() {
    let (machine, at) = with_old_content(&Setup::default(), 1);
    fail_next_read(&machine);
    let (file, into) = (machine.file(), machine.memory(1, 0));
    let read = Completion::new();
    let told = read.clone();
    machine.kernel.spawn(TaskParams::named("reader").on(CpuId(1)), move |cpu| {
        Box::pin(async move { told.complete(file.read(&cpu, 0, &segment(into, PAGE)).await) })
    });
    let file = machine.file();
    let done = machine.run(2, move |cpu| {
        Box::pin(async move {
            while file.counters().in_flight == 0 {
                cpu.sleep(Duration::from_ns(100)).await;
            }
            // The page is on its way.
            assert!(file.counters().cached_pages > 0);
            let written = file.write(&cpu, 0, &segment(at, PAGE)).await;
            (read.wait().await, written, file.sync(&cpu).await)
        })
    });
    assert_eq!(done, (Err(Error::Io), Ok(()), Ok(())));
    let mut found = vec![0; PAGE as usize];
    machine.control.peek(0, &mut found).unwrap();
    assert!(is_all(&found, NEW), "{:#x}", found[0]);
    assert_eq!(machine.file().counters().dirty_pages, 0);
}

#[test]
fn what_was_written_directly_is_what_the_cache_then_reads() {
    const PAGES: u64 = 8;
    const TRIALS: u64 = 24;
    let (machine, at) = with_old_content(&Setup::default(), PAGES);
    for trial in 0..TRIALS {
        let offset = (trial + 1) * PAGES * PAGE;
        let (file, into) = (machine.file(), machine.memory(PAGES, 0));
        machine.kernel.spawn(TaskParams::named("reader").on(CpuId(1)), move |cpu| {
            Box::pin(async move { file.read(&cpu, offset, &segment(into, PAGES * PAGE)).await.unwrap() })
        });
        let file = machine.file();
        let at_last = offset + (PAGES - 1) * PAGE;
        machine.run(2, move |cpu| {
            Box::pin(async move {
                // While the page comes, a little later in each trial.
                cpu.sleep(Duration::from_ns(500 * trial)).await;
                let completions = IoCompletions::new();
                let memory = segment(at, PAGE);
                let request = IoRequest { op: WRITE, offset: at_last, length: PAGE, memory, token: 0 };
                file.submit(&cpu, vec![request], &completions);
                assert_eq!(completions.next().await.result, Ok(()));
                // The reader too shall have ended.
                cpu.sleep(Duration::from_us(100)).await;
            })
        });
        let seen = page(&machine, into, at_last / PAGE);
        assert!(is_all(&seen, NEW), "trial {trial}: {:#x}", seen[0]);
    }
}

#[test]
fn memory_that_a_request_uses_stays_on_its_node() {
    let (machine, at) = with_old_content(&Setup::default(), 4);
    let (kernel, file) = (machine.kernel.face(), machine.file());
    machine.run(0, move |cpu| {
        Box::pin(async move {
            cpu.store(at, &[NEW; PAGE as usize]);
            file.write(&cpu, 3 * PAGE, &segment(at, PAGE)).await.unwrap();
            let mine = kernel.alloc_pages(&cpu, 0, Policy::Bind(Node(0))).unwrap();
            let completions = IoCompletions::new();
            let memory = segment(mine.start, PAGE);
            let request = IoRequest { op: BlockOp::Read, offset: 3 * PAGE, length: PAGE, memory, token: 0 };
            file.submit(&cpu, vec![request], &completions);
            assert_eq!(kernel.move_pages(&cpu, mine, Node(1)), Err(Error::Busy));
            assert_eq!(completions.next().await.result, Ok(()));
            let moved = kernel.move_pages(&cpu, mine, Node(1)).unwrap();
            let mut found = [0; PAGE as usize];
            cpu.load(moved.start, &mut found);
            assert!(is_all(&found, NEW), "a direct read finds what was written");
        })
    });
}

#[test]
fn what_the_cache_keeps_does_not_grow() {
    let (machine, at) = with_old_content(&Setup::default(), 4);
    let free = |machine: &Machine| machine.kernel.memory().iter().map(|node| node.free.get()).sum::<u64>();
    let mut left = Vec::new();
    for _ in 0..20 {
        let file = machine.file();
        machine.run(0, move |cpu| {
            Box::pin(async move {
                file.write(&cpu, 0, &segment(at, 4 * PAGE)).await.unwrap();
                let held = file.cached(&cpu, 0, 4 * PAGE, Policy::Task).await.unwrap();
                // Pages that a direct write makes stale leave the cache, though somebody holds them.
                file.sync(&cpu).await.unwrap();
                let completions = IoCompletions::new();
                let memory = segment(at, 4 * PAGE);
                let request = IoRequest { op: WRITE, offset: 0, length: 4 * PAGE, memory, token: 0 };
                let cached = file.counters().cached_pages;
                file.submit(&cpu, vec![request], &completions);
                assert_eq!(completions.next().await.result, Ok(()));
                assert_eq!(file.counters().cached_pages, cached - 4);
                drop(held);
                file.read(&cpu, 0, &segment(at, 4 * PAGE)).await.unwrap();
                // What is read ahead is still coming.
                cpu.sleep(Duration::from_us(100)).await;
                file.drop_cache(&cpu).await.unwrap();
                assert_eq!(file.counters().cached_pages, 0);
            })
        });
        left.push(free(&machine));
    }
    // The first round took what the driver keeps: memory for lists of pages.
    assert!(left.iter().all(|free| *free == left[0]), "{left:?}");
}
