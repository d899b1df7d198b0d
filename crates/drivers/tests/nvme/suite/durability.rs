//! What a sync has acknowledged is on the drive, who wrote hears if something is not, and nothing else is promised.

use std::cell::RefCell;
use std::rc::Rc;

use devices::nvme::{Fault, FaultKind, NvmeParams};
use platform::Error;
use platform::block::{BlockOp, Segment};
use platform::cpu::CpuId;
use platform::kernel::TaskParams;
use platform::memory::{PAGE, PhysAddr};
use platform::storage::{BlockFile, IoCompletions, IoRequest};
use platform::sync::Completion;
use proptest::prelude::*;
use units::Duration;
use wire::nvme::Status;
use wire::nvme::io::opcode;

use super::machine::{Machine, Setup};

const WRITE: BlockOp = BlockOp::Write { fua: false };

fn segment(at: PhysAddr, length: u64) -> Vec<Segment> {
    vec![Segment { at, length: length as u32 }]
}

/// A page that says which it is, in each of its blocks: writer, page, version.
fn content(writer: u64, page: u64, version: u64) -> Vec<u8> {
    let block = |n: u64| {
        let word = (writer << 48 | page << 32 | version).to_le_bytes();
        let mut block = word.repeat(64);
        block[8] = n as u8;
        block
    };
    (0..8).flat_map(block).collect()
}

/// The version of a piece of a page, if it is whole; that of zeroes is zero.
fn version(found: &[u8], writer: u64, page: u64, offset: usize) -> Option<u64> {
    let version = u64::from(u32::from_le_bytes(*found.first_chunk()?));
    let expected = match version {
        0 => vec![0; found.len()],
        _ => content(writer, page, version)[offset..offset + found.len()].to_vec(),
    };
    (found == expected).then_some(version)
}

fn peek(machine: &Machine, at: u64, length: u64) -> Vec<u8> {
    let mut found = vec![0; length as usize];
    machine.control.peek(at, &mut found).unwrap();
    found
}

fn fail_next_write(machine: &Machine) {
    let kind = FaultKind::Fail(Status::WRITE_FAULT.dnr());
    machine.control.inject(Fault { queue: None, opcode: Some(opcode::WRITE), after: 0, kind });
}

#[test]
fn a_sync_waits_for_what_the_sync_of_another_writes() {
    const PAGES: u64 = 64;
    for volatile in [false, true] {
        // The other's begins while the first writes into the cache, while it pauses, or at any time of its sync.
        for delay in (0..200).step_by(8) {
            let drive = if volatile { |_: &mut _| {} } else { without_buffer };
            let machine = Machine::new(&Setup { drive, ..Setup::default() });
            let (at, other) = (machine.memory(PAGES, 0), machine.memory(1, 0));
            let data: Vec<u8> = (0..PAGES).flat_map(|page| content(1, page, 1)).collect();
            machine.put(at, &data);
            let (first, second) = (machine.file(), machine.file());
            machine.kernel.spawn(TaskParams::named("other").on(CpuId(1)), move |cpu| {
                Box::pin(async move {
                    cpu.sleep(Duration::from_us(delay)).await;
                    second.write(&cpu, 2 << 20, &segment(other, PAGE)).await.unwrap();
                    second.sync(&cpu).await.unwrap();
                })
            });
            let control = machine.control.clone();
            machine.run(0, move |cpu| {
                Box::pin(async move {
                    first.write(&cpu, 0, &segment(at, PAGES * PAGE)).await.unwrap();
                    cpu.sleep(Duration::from_us(20)).await;
                    first.sync(&cpu).await.unwrap();
                    control.power_cut().unwrap();
                })
            });
            assert!(peek(&machine, 0, PAGES * PAGE) == data, "volatile: {volatile}, after {delay} us");
        }
    }
}

fn without_buffer(drive: &mut NvmeParams) {
    drive.volatile_buffer = false;
    drive.media.write_buffer = units::Bytes::ZERO;
}

#[test]
fn who_wrote_hears_of_a_failure_whoever_syncs_first() {
    let machine = Machine::new(&Setup::default());
    let at = machine.memory(1, 0);
    let open = || machine.file();
    let (writer, other) = (open(), open());
    fail_next_write(&machine);
    let results = machine.run(0, move |cpu| {
        Box::pin(async move {
            writer.write(&cpu, 0, &segment(at, PAGE)).await.unwrap();
            let first = other.sync(&cpu).await;
            let second = writer.sync(&cpu).await;
            (first, second, writer.sync(&cpu).await, other.sync(&cpu).await)
        })
    });
    assert_eq!(results, (Err(Error::Io), Err(Error::Io), Ok(()), Ok(())));
    let late = open();
    assert_eq!(machine.run(0, move |cpu| Box::pin(async move { late.sync(&cpu).await })), Ok(()));
    assert_eq!(machine.file().counters().lost_pages, 1);
}

#[test]
fn a_direct_request_fails_with_the_write_back_that_it_waited_for() {
    for op in [BlockOp::Read, WRITE] {
        let machine = Machine::new(&Setup::default());
        let (at, direct) = (machine.memory(1, 0), machine.memory(2, 0));
        let file = machine.file();
        fail_next_write(&machine);
        let results = machine.run(0, move |cpu| {
            Box::pin(async move {
                file.write(&cpu, 0, &segment(at, PAGE)).await.unwrap();
                let completions = IoCompletions::new();
                let request = |n: u64| {
                    let memory = segment(direct + n * PAGE, PAGE);
                    let op = if n == 0 { op } else { BlockOp::Read };
                    IoRequest { op, offset: n * 16 * PAGE, length: PAGE, memory, token: n }
                };
                file.submit(&cpu, (0..2).map(request).collect(), &completions);
                let mut results = [completions.next().await, completions.next().await];
                results.sort_by_key(|done| done.token);
                (results.map(|done| done.result), file.sync(&cpu).await)
            })
        });
        assert_eq!(results, ([Err(Error::Io), Ok(())], Err(Error::Io)), "{op:?}");
        assert_eq!(machine.mapped(), 0);
    }
}

#[test]
fn a_direct_read_finds_what_is_on_its_way_to_the_drive() {
    let machine = Machine::new(&Setup::default());
    let (at, into) = (machine.memory(1, 0), machine.memory(1, 0));
    machine.put(at, &content(1, 0, 1));
    let (file, syncs) = (machine.file(), machine.file());
    machine
        .run(0, move |cpu| Box::pin(async move { file.write(&cpu, 0, &segment(at, PAGE)).await.unwrap() }));
    machine.kernel.spawn(TaskParams::named("syncs").on(CpuId(1)), move |cpu| {
        Box::pin(async move { syncs.sync(&cpu).await.unwrap() })
    });
    let file = machine.file();
    machine.run(2, move |cpu| {
        Box::pin(async move {
            while file.counters().dirty_pages > 0 {
                cpu.sleep(Duration::from_ns(100)).await;
            }
            let completions = IoCompletions::new();
            let memory = segment(into, PAGE);
            let read = IoRequest { op: BlockOp::Read, offset: 0, length: PAGE, memory, token: 0 };
            file.submit(&cpu, vec![read], &completions);
            assert_eq!(completions.next().await.result, Ok(()));
        })
    });
    assert!(machine.get(into, PAGE as usize) == content(1, 0, 1));
}

#[test]
fn who_closes_last_lets_the_rest_be_written() {
    let machine = Machine::new(&Setup::default());
    let at = machine.memory(1, 0);
    machine.put(at, &content(1, 0, 1));
    let (file, other) = (machine.file(), machine.file());
    machine
        .run(0, move |cpu| Box::pin(async move { file.write(&cpu, 0, &segment(at, PAGE)).await.unwrap() }));
    machine.settle();
    assert_eq!(other.counters().dirty_pages, 1, "somebody has it open");
    drop(other);
    machine.settle();
    assert_eq!(machine.file().counters().dirty_pages, 0);
    assert!(peek(&machine, 0, PAGE) == content(1, 0, 1));
}

/// What a writer does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Pages from one on, through the cache.
    Buffered(u64, u64),
    /// The same, each as a direct request.
    Direct(u64, u64),
    Sync,
    Pause(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..PAGES_EACH, 1u64..5).prop_map(|(page, count)| Step::Buffered(page, count)),
        3 => (0..PAGES_EACH, 1u64..5).prop_map(|(page, count)| Step::Direct(page, count)),
        2 => Just(Step::Sync),
        1 => (0u64..100).prop_map(Step::Pause),
    ]
}

const PAGES_EACH: u64 = 8;

/// Where a writer's page is: not beside another's.
const fn place(writer: u64, page: u64) -> u64 {
    (2 * writer * PAGES_EACH + page) * PAGE
}

/// What is known of a writer's pages.
#[derive(Clone, Default, Debug)]
struct Pages {
    /// The last version that somebody began to write.
    begun: [u64; PAGES_EACH as usize],
    /// The last that was written, into the cache or to the drive.
    written: [u64; PAGES_EACH as usize],
    /// The last that a sync acknowledged.
    durable: [u64; PAGES_EACH as usize],
    /// How many since then went through the cache.
    cached: [u64; PAGES_EACH as usize],
}

impl Pages {
    /// Whether what the drive has is possible now, in whole units. A page that is written again in the cache while the drive
    /// fetches it may be torn there, as in Linux without stable pages.
    fn allow(&self, found: &[u8], writer: u64, page: u64, unit: usize) -> bool {
        let p = page as usize;
        let unit = if self.cached[p] > 1 { 64 } else { unit };
        let versions = self.durable[p]..=self.begun[p];
        found.chunks(unit).enumerate().all(|(n, found)| {
            version(found, writer, page, n * unit).is_some_and(|version| versions.contains(&version))
        })
    }
}

/// Does the steps of one writer, whose pages nobody else writes.
async fn write(
    cpu: &platform::cpu::Cpu,
    file: &dyn BlockFile,
    writer: u64,
    at: PhysAddr,
    steps: &[Step],
    pages: &RefCell<Pages>,
) {
    let base = place(writer, 0);
    let begin = |first: u64, count: u64| {
        for page in first..(first + count).min(PAGES_EACH) {
            let mut pages = pages.borrow_mut();
            pages.begun[page as usize] += 1;
            cpu.store(at + page * PAGE, &content(writer, page, pages.begun[page as usize]));
        }
        first..(first + count).min(PAGES_EACH)
    };
    for step in steps {
        match *step {
            Step::Pause(us) => cpu.sleep(Duration::from_us(us)).await,
            Step::Sync => {
                let Pages { written, cached, .. } = pages.borrow().clone();
                file.sync(cpu).await.unwrap();
                let mut pages = pages.borrow_mut();
                pages.durable = written;
                pages.cached.iter_mut().zip(cached).for_each(|(now, then)| *now -= then);
            }
            Step::Buffered(first, count) => {
                let range = begin(first, count);
                let length = (range.end - range.start) * PAGE;
                range.clone().for_each(|page| pages.borrow_mut().cached[page as usize] += 1);
                file.write(cpu, base + first * PAGE, &segment(at + first * PAGE, length)).await.unwrap();
                range.for_each(|page| {
                    let mut pages = pages.borrow_mut();
                    pages.written[page as usize] = pages.begun[page as usize];
                });
            }
            Step::Direct(first, count) => {
                let range = begin(first, count);
                let completions = IoCompletions::new();
                let request = |page: u64| {
                    let memory = segment(at + page * PAGE, PAGE);
                    IoRequest { op: WRITE, offset: base + page * PAGE, length: PAGE, memory, token: page }
                };
                file.submit(cpu, range.clone().map(request).collect(), &completions);
                for _ in range {
                    let done = completions.next().await;
                    assert_eq!(done.result, Ok(()));
                    let mut pages = pages.borrow_mut();
                    pages.written[done.token as usize] = pages.begun[done.token as usize];
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The power goes while several write, directly and through the cache: what a sync had acknowledged is there or
    /// something newer is, and what the drive writes as a whole is whole: a block, or all of what is written here together.
    #[test]
    fn the_power_goes_at_any_time(
        plans in prop::collection::vec(prop::collection::vec(step(), 1..24), 2..5),
        cut in 0u64..1_000,
        volatile in any::<bool>(),
        atomic in any::<bool>(),
    ) {
        let drive = match (volatile, atomic) {
            (true, false) => |_: &mut _| {},
            (true, true) => |drive: &mut NvmeParams| drive.atomic_blocks = (PAGES_EACH * PAGE / 512 - 1) as u16,
            (false, _) => without_buffer,
        };
        let unit = if atomic { PAGE as usize } else { 512 };
        let machine = Machine::new(&Setup { drive, ..Setup::default() });
        let mut all = Vec::new();
        for (writer, steps) in (1..).zip(plans) {
            let (at, file) = (machine.memory(PAGES_EACH, 0), machine.file());
            let pages = Rc::new(RefCell::new(Pages::default()));
            all.push((writer, Rc::clone(&pages)));
            machine.kernel.spawn(TaskParams::named("writer").on(CpuId(2 * writer as u16)), move |cpu| {
                Box::pin(async move { write(&cpu, &*file, writer, at, &steps, &pages).await })
            });
        }
        let (hw, control, off) = (machine.simulation.handle(), machine.control.clone(), Completion::new());
        let told = off.clone();
        machine.simulation.spawn(async move {
            hw.sleep(Duration::from_us(cut)).await;
            control.power_cut().unwrap();
            told.complete(());
        });
        machine.simulation.block_on(async move { off.wait().await }).unwrap();
        for (writer, pages) in all {
            let pages = pages.borrow();
            for page in 0..PAGES_EACH {
                let found = peek(&machine, place(writer, page), PAGE);
                prop_assert!(
                    pages.allow(&found, writer, page, unit),
                    "writer {}, page {}: {:?} of {:?}", writer, page, version(&found, writer, page, 0), *pages
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Whatever befalls writes and flushes: each that succeeds is on the drive afterwards, and after a flush that succeeds
    /// it stays there when the power goes.
    #[test]
    fn what_writes_and_flushes_acknowledge_is_so(
        faults in prop::collection::vec((any::<bool>(), 1u16..4, 0u64..8, 0usize..7), 1..5),
        queues in 1u16..4,
        writers in 1u16..4,
        rounds in 1u64..4,
        buffered in any::<bool>(),
    ) {
        const EACH: u64 = PAGES_EACH;
        let kinds = [
            FaultKind::Hang,
            FaultKind::DropCompletion,
            FaultKind::DropInterrupt,
            FaultKind::WrongPhase,
            FaultKind::WrongId,
            FaultKind::Fail(Status::WRITE_FAULT.dnr()),
            FaultKind::Fatal,
        ];
        let mut setup = Setup::default();
        setup.options.queues = Some(queues);
        let machine = Machine::new(&setup);
        for (flush, queue, after, kind) in faults {
            let opcode = Some(if flush { opcode::FLUSH } else { opcode::WRITE });
            let after = if flush { after / 4 } else { after };
            // Not of the queue 0, where the same codes are of other commands.
            let queue = Some((queue - 1) % queues + 1);
            machine.control.inject(Fault { queue, opcode, after, kind: kinds[kind] });
        }
        // Page by page: which version a write or sync acknowledged last, and which was begun last.
        let ends: Vec<_> = (1..=u64::from(writers)).map(|writer| {
            let (at, file, end) = (machine.memory(EACH, 0), machine.file(), Completion::new());
            let told = end.clone();
            machine.kernel.spawn(TaskParams::named("writer").on(CpuId(2 * writer as u16)), move |cpu| {
                Box::pin(async move {
                    let completions = IoCompletions::new();
                    let (mut acknowledged, mut durable) = ([0; EACH as usize], [0; EACH as usize]);
                    for round in 1..=rounds {
                        let mut written = [false; EACH as usize];
                        for page in 0..EACH {
                            cpu.store(at + page * PAGE, &content(writer, page, round));
                            let memory = segment(at + page * PAGE, PAGE);
                            if buffered {
                                file.write(&cpu, place(writer, page), &memory).await.unwrap();
                                written[page as usize] = true;
                                continue;
                            }
                            let offset = place(writer, page);
                            let request = IoRequest { op: WRITE, offset, length: PAGE, memory, token: page };
                            // One by one, so that they are not merged.
                            file.submit(&cpu, vec![request], &completions);
                        }
                        for _ in 0..if buffered { 0 } else { EACH } {
                            let done = completions.next().await;
                            written[done.token as usize] = done.result.is_ok();
                        }
                        let synced = file.sync(&cpu).await.is_ok();
                        for page in 0..EACH as usize {
                            if written[page] && (synced || !buffered) {
                                acknowledged[page] = round;
                            }
                            if written[page] && synced {
                                durable[page] = round;
                            }
                        }
                    }
                    told.complete((acknowledged, durable));
                })
            });
            (writer, end)
        }).collect();
        machine.settle();
        let known: Vec<_> = ends.into_iter().map(|(writer, end)| (writer, end.try_take())).collect();
        for cut in [false, true] {
            if cut {
                machine.control.power_cut().unwrap();
            }
            for (writer, known) in &known {
                let Some((acknowledged, durable)) = known else {
                    return Err(TestCaseError::fail(format!("writer {writer} hangs: {:?}", machine.kernel.log())));
                };
                let least = if cut { durable } else { acknowledged };
                for page in 0..EACH {
                    let (found, least) = (peek(&machine, place(*writer, page), PAGE), least[page as usize]);
                    // What no flush has acknowledged the power cut may leave in parts, of a block each.
                    let unit = if cut { 512 } else { PAGE as usize };
                    let ok = found.chunks(unit).enumerate().all(|(n, found)| {
                        let version = version(found, *writer, page, n * unit);
                        version.is_some_and(|version| (least..=rounds).contains(&version))
                    });
                    prop_assert!(ok, "cut {}, writer {}, page {}, acknowledged {}", cut, writer, page, least);
                }
            }
        }
        prop_assert_eq!(machine.mapped(), 0);
        prop_assert_eq!(machine.file().counters().in_flight, 0);
    }
}
