//! Invariants for any order of operations.

use std::collections::BTreeMap;

use devices::nvme::{Fault, FaultKind, NvmeParams};
use proptest::collection::vec;
use proptest::prelude::*;
use units::Duration;
use wire::nvme::io::Blocks;
use wire::nvme::*;

use super::driver::Driver;

#[derive(Clone, Debug)]
enum Step {
    /// Submits a read, write or flush to a queue.
    Submit(u16, u8),
    Abort(u16),
    Poll(u16),
    Run(u32),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1u16..4, 0u8..3).prop_map(|(queue, what)| Step::Submit(queue, what)),
        1 => (1u16..4).prop_map(Step::Abort),
        4 => (1u16..4).prop_map(Step::Poll),
        4 => (1u32..20_000).prop_map(Step::Run),
        1 => Just(Step::Reset),
    ]
}

/// Consumes completions; one for a command that is not outstanding is an error.
fn take(d: &mut Driver, queue: u16, open: &mut BTreeMap<(u16, u16), ()>) -> Result<(), TestCaseError> {
    while let Some(entry) = d.poll(queue) {
        let known = open.remove(&(entry.submission_queue, entry.id));
        prop_assert!(known.is_some(), "completed twice or never submitted: {}", entry);
        prop_assert!(entry.status.is_success() || entry.status.is(Status::ABORT_REQUESTED), "{}", entry);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_command_completes_exactly_once(steps in vec(step(), 1..80)) {
        let mut d = Driver::on_bench(NvmeParams::example());
        let mut buffer = 0;
        let start = |d: &mut Driver, buffer: &mut u64| {
            d.enable();
            (1..4).for_each(|queue| d.create_pair(queue, 8));
            *buffer = d.pages(1);
        };
        start(&mut d, &mut buffer);
        let mut open = BTreeMap::new();
        let mut resets = 0;
        for step in steps {
            match step {
                Step::Submit(queue, what) => {
                    if d.pairs[&queue].tail.free() == 0 {
                        continue;
                    }
                    let blocks = Blocks::new(u64::from(queue) * 8, 8);
                    let command = [IoCommand::Read(blocks), IoCommand::Write(blocks), IoCommand::Flush];
                    let pointer = DataPointer::Prp { first: buffer, second: 0 };
                    let command = command[usize::from(what)].command(0, 1).with_data(pointer);
                    let id = d.submit(queue, command);
                    open.insert((queue, id), ());
                }
                Step::Abort(queue) => {
                    let oldest = open.keys().find(|(of, _)| *of == queue).map_or(0, |(_, id)| *id);
                    let abort = AdminCommand::Abort { queue, id: oldest }.command(0, 0);
                    prop_assert!(d.run(0, abort).status.is_success());
                }
                Step::Poll(queue) => take(&mut d, queue, &mut open)?,
                Step::Run(ns) => d.host.run_for(Duration::from_ns(u64::from(ns))),
                Step::Reset if resets < 8 => {
                    // Commands in flight are lost, and must not complete later.
                    resets += 1;
                    d.disable();
                    open.clear();
                    start(&mut d, &mut buffer);
                }
                Step::Reset => {}
            }
        }
        for _ in 0..50 {
            d.host.run_for(Duration::from_us(100));
            for queue in 1..4 {
                take(&mut d, queue, &mut open)?;
            }
        }
        prop_assert!(open.is_empty(), "never completed: {:?}", open);
    }

    #[test]
    fn what_is_written_reads_back(
        writes in vec((0u64..200, 1u32..64, 0u64..1024, any::<u8>()), 1..12),
        fabric in any::<bool>(),
    ) {
        let params = NvmeParams::example();
        let d = if fabric { Driver::on_fabric(params) } else { Driver::on_bench(params) };
        let mut d = d.ready();
        let mut expected = vec![0u8; 264 * 512];
        for (start, count, offset, seed) in writes {
            let length = count as usize * 512;
            let data: Vec<u8> = (0..length).map(|n| (n * 7 + n / 251) as u8 ^ seed).collect();
            let at = d.pages(10) + offset * 4;
            d.host.write(at, &data);
            let write = IoCommand::Write(Blocks::new(start, count));
            prop_assert!(d.blocks(write, at, length as u64).is_success());
            expected[start as usize * 512..][..length].copy_from_slice(&data);
        }
        for part in [0u64, 132] {
            let read = d.read_blocks(part, 132 * 512).unwrap();
            prop_assert!(read == expected[part as usize * 512..][..132 * 512]);
        }
    }

    #[test]
    fn a_power_cut_loses_nothing_that_was_flushed(
        writes in vec((0u64..32, any::<u8>(), any::<bool>(), 0u32..200), 1..20),
        seed in any::<u64>(),
    ) {
        let mut d = Driver::on_bench(NvmeParams { seed, ..NvmeParams::example() }).ready();
        // For each 4 KiB: the last flushed value, and the values that may have replaced it.
        let mut sure = [0u8; 32];
        let mut may: Vec<Vec<u8>> = vec![Vec::new(); 32];
        for (place, value, flush, pause) in writes {
            prop_assert!(d.write_blocks(place * 8, &[value; 4096]).is_success());
            may[place as usize].push(value);
            d.host.run_for(Duration::from_us(u64::from(pause)));
            if flush {
                prop_assert!(d.flush().is_success());
                for (sure, may) in sure.iter_mut().zip(&mut may) {
                    *sure = may.pop().unwrap_or(*sure);
                    may.clear();
                }
            }
        }
        d.control.power_cut().unwrap();
        d.host.reset();
        let mut d = d.ready();
        for place in 0..32 {
            let found = d.read_blocks(place as u64 * 8, 4096).unwrap();
            // 4 KiB is this drive's atomic unit, so values must not mix.
            prop_assert!(found.iter().all(|&byte| byte == found[0]), "torn at {}", place);
            let fine = found[0] == sure[place] || may[place].contains(&found[0]);
            prop_assert!(fine, "{} holds {}, not {} or {:?}", place, found[0], sure[place], may[place]);
        }
    }

    #[test]
    fn any_command_is_answered(words in any::<[u64; 8]>(), queue in 0u16..2) {
        let mut d = Driver::on_bench(NvmeParams::example()).ready();
        let mut bytes = [0; 64];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        // Small opcodes, namespaces and addresses are more likely to be valid.
        bytes[0] &= 0x1f;
        bytes[4] &= 3;
        bytes[5..8].fill(0);
        bytes[27..32].fill(0);
        bytes[35..39].fill(0);
        let command = Command::parse(&bytes);
        if queue == 0 && command.opcode == admin::opcode::ASYNC_EVENT_REQUEST {
            return Ok(());
        }
        // The command may delete the queue; then only the admin queue still works.
        let entry = d.run(queue, command);
        prop_assert_eq!(entry.submission_queue, queue);
        d.disable();
        d.ready();
    }
}

#[test]
fn a_hung_command_holds_nobody_else() {
    let mut d = Driver::on_bench(NvmeParams::example()).ready();
    d.control.inject(Fault { queue: Some(1), opcode: None, after: 0, kind: FaultKind::Hang });
    d.submit(1, IoCommand::Flush.command(0, 1));
    for _ in 0..20 {
        assert!(d.flush().is_success());
    }
    d.disable();
    let mut d = d.ready();
    assert!(d.flush().is_success());
}
