//! `verify`: writes every block of the range once in the pattern's order, then reads and compares all. A read-only
//! pattern compares with what an earlier job with the same `randseed` has written.

use platform::block::{BlockOp, Segment};
use platform::cpu::Cpu;
use platform::storage::{BlockFile, IoCompletions, IoRequest};

use super::job::RequestBuffers;
use super::options::JobOptions;
use super::pattern::RequestKind;
use super::tally::RequestTally;
use crate::program::{Environment, Failure};
use crate::random::{Random, content};

pub(super) async fn run(
    options: &JobOptions,
    cpu: &Cpu,
    environment: &Environment,
    file: &dyn BlockFile,
    range: core::ops::Range<u64>,
) -> Result<(RequestTally, u64), Failure> {
    let bs = options.most();
    let mut order: Vec<u64> = range.step_by(bs as usize).collect();
    let mut random = Random::new(environment.seed, 0);
    if options.rw.is_random {
        random.shuffle(&mut order);
    }
    let buffers = RequestBuffers::new(&*environment.kernel, cpu, options.depth(), bs)?;
    let mut tally = RequestTally::default();
    let mut done = Ok(());
    let writes = options.rw.writes();
    if writes {
        done = pass(options, cpu, environment, file, &buffers, &order, true, &mut tally).await;
    }
    if done.is_ok() && writes {
        done = file.sync(cpu).await.map_err(|error| Failure::about("fio: fsync", error));
    }
    if done.is_ok() && !options.is_direct() {
        // Reads must come from the device.
        done = file.drop_cache(cpu).await.map_err(|error| Failure::about("fio: drop_caches", error));
    }
    if done.is_ok() {
        order.sort_unstable();
        done = pass(options, cpu, environment, file, &buffers, &order, false, &mut tally).await;
    }
    buffers.free(&*environment.kernel, cpu);
    done?;
    Ok((tally, order.len() as u64 * bs))
}

/// Writes or reads and compares all blocks.
#[allow(clippy::too_many_arguments)]
async fn pass(
    options: &JobOptions,
    cpu: &Cpu,
    environment: &Environment,
    file: &dyn BlockFile,
    buffers: &RequestBuffers,
    order: &[u64],
    write: bool,
    tally: &mut RequestTally,
) -> Result<(), Failure> {
    let what = if write { "write" } else { "verify" };
    let failure =
        |at: u64, error| Failure::about(format!("fio: {}: {what} at {at}", options.filename), error);
    let (bs, depth) = (options.most(), options.depth() as usize);
    let completions = IoCompletions::new();
    let mut free: Vec<usize> = (0..depth).collect();
    let mut under_way = vec![(0, cpu.now()); depth];
    let mut places = order.iter().copied();
    let (began, mut failed) = (cpu.now(), None);
    loop {
        while let Some(slot) = free.pop() {
            let Some(at) = places.next().filter(|_| failed.is_none()) else {
                free.push(slot);
                break;
            };
            let memory = buffers.memory(slot, bs);
            if write {
                store(cpu, &memory, &content(environment.seed, at, bs as usize)).await;
            }
            under_way[slot] = (at, cpu.now());
            if options.is_direct() {
                let op = if write { BlockOp::Write { fua: false } } else { BlockOp::Read };
                let request = IoRequest { op, offset: at, length: bs, memory, token: slot as u64 };
                file.submit(cpu, vec![request], &completions);
                cpu.sync().await;
                continue;
            }
            let result = match write {
                true => file.write(cpu, at, &memory).await,
                false => file.read(cpu, at, &memory).await,
            };
            completions.push(platform::storage::IoDone { token: slot as u64, result });
        }
        if free.len() == depth {
            break;
        }
        let done = completions.next().await;
        let slot = done.token as usize;
        let (at, since) = under_way[slot];
        free.push(slot);
        match done.result {
            Err(error) => failed = failed.or(Some(failure(at, error))),
            Ok(()) => {
                tally.ended(if write { RequestKind::Write } else { RequestKind::Read }, bs, since, cpu.now());
                if !write
                    && !holds(cpu, &buffers.memory(slot, bs), &content(environment.seed, at, bs as usize))
                        .await
                {
                    let message =
                        format!("fio: {}: verify: what is at {at} was not written there", options.filename);
                    failed = failed.or(Some(Failure(message)));
                }
            }
        }
    }
    tally.took(&[if write { RequestKind::Write } else { RequestKind::Read }], began, cpu.now());
    failed.map_or(Ok(()), Err)
}

/// Stores bytes into scattered memory.
pub(crate) async fn store(cpu: &Cpu, memory: &[Segment], bytes: &[u8]) {
    let mut done = 0;
    for segment in memory {
        cpu.store_long(segment.at, &bytes[done..done + segment.length as usize]).await;
        done += segment.length as usize;
    }
}

/// Whether scattered memory holds these bytes.
pub(crate) async fn holds(cpu: &Cpu, memory: &[Segment], bytes: &[u8]) -> bool {
    let mut done = 0;
    for segment in memory {
        let mut found = vec![0; segment.length as usize];
        cpu.load_long(segment.at, &mut found).await;
        if found != bytes[done..done + found.len()] {
            return false;
        }
        done += found.len();
    }
    true
}
