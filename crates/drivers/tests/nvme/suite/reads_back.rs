//! What was written reads back, however it went, and nothing stays mapped.

use hardware::link::Side;
use kernel::DmaMode;
use platform::Error;
use platform::block::{BlockOp, Segment};
use platform::cpu::CpuId;
use platform::kernel::TaskParams;
use platform::storage::{IoCompletions, IoRequest};
use platform::sync::Completion;
use proptest::prelude::*;
use units::Bytes;

use super::machine::{Machine, Setup, scattered};

const WRITE: BlockOp = BlockOp::Write { fua: false };

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|n| (n.wrapping_mul(seed | 1).wrapping_add(n >> 9) >> 3) as u8).collect()
}

#[test]
fn a_drive_is_found_and_reads_what_was_written() {
    let machine = Machine::new(&Setup::default());
    let file = machine.file();
    assert_eq!((file.bytes(), file.block_bytes()), (4 << 20, 512));
    assert!(machine.kernel.face().open_block("nvme0n2").is_some());
    let at = machine.memory(16, 0);
    let data = pattern(17, 64 << 10);
    machine.put(at, &data);
    let whole = |at| vec![Segment { at, length: 64 << 10 }];
    machine.direct(3, WRITE, 4096, whole(at), 64 << 10).unwrap();
    machine.put(at, &vec![0; 64 << 10]);
    machine.direct(5, BlockOp::Read, 4096, whole(at), 64 << 10).unwrap();
    assert_eq!(machine.get(at, 64 << 10), data);
    assert_eq!(machine.mapped(), 0);
}

#[test]
fn cores_that_share_a_queue_ring_its_doorbell_in_turn() {
    let mut setup = Setup::default();
    setup.options.queues = Some(1);
    let machine = Machine::new(&setup);
    let at = machine.memory(16, 0);
    let ends: Vec<_> = (0..8u16)
        .map(|core| {
            let (ended, file) = (Completion::new(), machine.file());
            let end = ended.clone();
            machine.kernel.spawn(TaskParams::named("reads").on(CpuId(core)), move |cpu| {
                Box::pin(async move {
                    let completions = IoCompletions::new();
                    let memory = vec![Segment { at: at + u64::from(core) * 4096, length: 4096 }];
                    let mut failed = 0;
                    for _ in 0..10 {
                        for token in 0..4 {
                            let memory = memory.clone();
                            let read =
                                IoRequest { op: BlockOp::Read, offset: 4096, length: 4096, memory, token };
                            file.submit(&cpu, vec![read], &completions);
                        }
                        for _ in 0..4 {
                            failed += u32::from(completions.next().await.result.is_err());
                        }
                    }
                    end.complete(failed);
                })
            });
            ended
        })
        .collect();
    for ended in ends {
        assert_eq!(machine.simulation.block_on(async move { ended.wait().await }), Ok(0));
    }
    let counters = machine.controller().counters();
    assert_eq!((counters.unknown_completions, counters.wrong_heads, counters.errors), (0, 0, 0));
    assert_eq!((counters.resets, counters.retries), (0, 0), "{counters:?}");
}

/// A list of PRPs is in memory, where the drive has to fetch it; an SGL of one segment is in the command.
#[test]
fn requests_use_sgls_as_soon_as_the_threshold_says_so() {
    let mut setup = Setup::default();
    setup.options.sgl_threshold = 0;
    let machine = Machine::new(&setup);
    let at = machine.memory(16, 0);
    let asked = || {
        machine.simulation.with(|fabric, _| {
            let link = fabric.endpoint(machine.drive).links().next().unwrap();
            let link = fabric.wires.link(link);
            // Non-posted, of both directions.
            link.counters(Side::Upstream).tlps[1] + link.counters(Side::Downstream).tlps[1]
        })
    };
    let requests = || {
        let before = asked();
        let memory = vec![Segment { at, length: 64 << 10 }];
        machine.direct(0, BlockOp::Read, 0, memory, 64 << 10).unwrap();
        asked() - before
    };
    let with_list = requests();
    machine.driver.set_sgl_threshold(32 << 10);
    assert!(requests() < with_list);
    machine.driver.set_sgl_threshold(1 << 20);
    assert_eq!(requests(), with_list);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever the IOMMU does, wherever memory is, however many queues there are and whatever the size.
    #[test]
    fn what_was_written_reads_back(
        mode in prop::sample::select(vec![DmaMode::Off, DmaMode::PassThrough, DmaMode::Strict, DmaMode::Lazy]),
        queues in 1u16..9,
        (drive, memory) in (0u8..2, 0u8..2),
        (writer, reader) in (0u16..16, 0u16..16),
        sgl in prop::sample::select(vec![0u32, 1, 32 << 10]),
        buffer in any::<bool>(),
        places in prop::collection::vec((0u64..6000, 1u64..300, any::<bool>(), 0u64..8), 1..5),
        buffered in any::<bool>(),
    ) {
        let mut setup = Setup { mode, node: drive, ..Setup::default() };
        setup.options.queues = Some(queues);
        setup.options.sgl_threshold = sgl;
        setup.options.use_memory_buffer = buffer;
        let machine = Machine::new(&setup);
        prop_assert_eq!(machine.controller().queues(), queues.min(8));
        let mut expected = vec![0u8; 4 << 20];
        let at = machine.memory(64, memory);
        for (n, &(block, blocks, backwards, inset)) in places.iter().enumerate() {
            let length = (blocks * 512) as usize;
            let data = pattern(n as u64 + 3, length);
            expected[block as usize * 512..][..length].copy_from_slice(&data);
            // A first piece that begins within its page.
            let inset = if backwards { 0 } else { inset * 512 };
            let memory = match backwards {
                true => scattered(at, length as u64, true),
                false => vec![Segment { at: at + inset, length: length as u32 }],
            };
            let mut done = 0;
            for segment in &memory {
                machine.put(segment.at, &data[done..done + segment.length as usize]);
                done += segment.length as usize;
            }
            if buffered {
                let file = machine.file();
                let result = machine.run(writer, move |cpu| {
                    Box::pin(async move { file.write(&cpu, block * 512, &memory).await })
                });
                prop_assert_eq!(result, Ok(()));
            } else {
                prop_assert_eq!(machine.direct(writer, WRITE, block * 512, memory, length as u64), Ok(()));
            }
        }
        for (n, &(block, blocks, ..)) in places.iter().enumerate() {
            let length = blocks * 512;
            machine.put(at, &vec![0xa5; length as usize]);
            let whole = vec![Segment { at, length: length as u32 }];
            // What one writes buffered another reads directly, and the other way round.
            if n % 2 == 0 {
                prop_assert_eq!(machine.direct(reader, BlockOp::Read, block * 512, whole, length), Ok(()));
            } else {
                let file = machine.file();
                let result = machine.run(reader, move |cpu| {
                    Box::pin(async move { file.read(&cpu, block * 512, &whole).await })
                });
                prop_assert_eq!(result, Ok(()));
            }
            let found = machine.get(at, length as usize);
            prop_assert!(found == expected[block as usize * 512..][..length as usize], "place {n}");
        }
        // What was written last may be on its way, since nobody has the drive open.
        machine.settle();
        prop_assert_eq!(machine.mapped(), 0);
        prop_assert!(machine.kernel.iommu_faults().is_empty());
        let counters = machine.controller().counters();
        prop_assert_eq!(counters.unknown_completions + counters.errors + counters.timeouts, 0);
    }

    /// What a flush acknowledged survives the power going; what had been written before is whole.
    #[test]
    fn a_flush_survives_a_power_cut(
        blocks in prop::collection::vec((0u64..512, 1u64..32), 1..8),
        late in prop::collection::vec((512u64..1024, 1u64..32), 0..4),
    ) {
        let machine = Machine::new(&Setup::default());
        let at = machine.memory(16, 0);
        let mut expected = vec![0u8; 512 * 512 + 32 * 512];
        for (n, &(block, count)) in blocks.iter().enumerate() {
            let data = pattern(n as u64 + 9, count as usize * 512);
            machine.put(at, &data);
            expected[block as usize * 512..][..data.len()].copy_from_slice(&data);
            let segment = Segment { at, length: count as u32 * 512 };
            prop_assert_eq!(machine.direct(1, WRITE, block * 512, vec![segment], count * 512), Ok(()));
        }
        prop_assert_eq!(machine.direct(1, BlockOp::Flush, 0, vec![], 0), Ok(()));
        for &(block, count) in &late {
            let segment = Segment { at, length: count as u32 * 512 };
            let start = (block + 64) * 512;
            prop_assert_eq!(machine.direct(1, WRITE, start, vec![segment], count * 512), Ok(()));
        }
        machine.control.power_cut().unwrap();
        let mut found = vec![0; 512 * 512 + 32 * 512];
        machine.control.peek(0, &mut found).unwrap();
        prop_assert!(found == expected);
    }
}

#[test]
fn requests_without_data_do_what_they_say() {
    let machine = Machine::new(&Setup::default());
    let at = machine.memory(4, 0);
    let data = pattern(5, 16 << 10);
    machine.put(at, &data);
    let whole = vec![Segment { at, length: 16 << 10 }];
    let fua = BlockOp::Write { fua: true };
    machine.direct(0, fua, 0, whole.clone(), 16 << 10).unwrap();
    machine.direct(0, BlockOp::WriteZeroes, 4096, vec![], 4096).unwrap();
    machine.direct(0, BlockOp::Discard, 12288, vec![], 4096).unwrap();
    machine.direct(0, BlockOp::Read, 0, whole, 16 << 10).unwrap();
    let mut expected = data;
    expected[4096..8192].fill(0);
    expected[12288..].fill(0);
    assert_eq!(machine.get(at, 16 << 10), expected);
}

#[test]
fn wrong_requests_are_refused() {
    let machine = Machine::new(&Setup::default());
    let at = machine.memory(4, 0);
    let read = |offset, at, length: u32, bytes| {
        machine.direct(0, BlockOp::Read, offset, vec![Segment { at, length }], bytes)
    };
    assert_eq!(read(100, at, 512, 512), Err(Error::Invalid));
    assert_eq!(read(0, at, 100, 100), Err(Error::Invalid));
    assert_eq!(read(0, at + 2, 512, 512), Err(Error::Invalid));
    assert_eq!(read(0, at, 512, 1024), Err(Error::Invalid));
    assert_eq!(read(4 << 20, at, 512, 512), Err(Error::NoSpace));
    assert_eq!(read(u64::MAX - 511, at, 512, 512), Err(Error::Invalid));
    assert_eq!(read(0, at, 512, 512), Ok(()));
    assert_eq!(machine.mapped(), 0);
}

#[test]
fn small_neighbours_go_to_the_drive_as_one() {
    let machine = Machine::new(&Setup::default());
    let at = machine.memory(16, 0);
    let file = machine.file();
    machine.run(0, move |cpu| {
        Box::pin(async move {
            let completions = platform::storage::IoCompletions::new();
            let request = |n: u64| platform::storage::IoRequest {
                op: BlockOp::Read,
                offset: n * 4096,
                length: 4096,
                memory: vec![Segment { at: at + n * 4096, length: 4096 }],
                token: n,
            };
            file.submit(&cpu, (0..16).map(request).collect(), &completions);
            for _ in 0..16 {
                assert_eq!(completions.next().await.result, Ok(()));
            }
        })
    });
    let counters = machine.file().counters();
    assert_eq!((counters.requests, counters.merges), (1, 15));
}

#[test]
fn submission_queues_can_be_in_the_drives_memory() {
    // 64 KiB hold eight queues of 128 entries.
    let mut setup = Setup::default();
    setup.options.queue_entries = 128;
    let machine = Machine::new(&setup);
    assert!(machine.controller().uses_memory_buffer());
    let at = machine.memory(1, 0);
    for n in 0..300u64 {
        machine.put(at, &n.to_le_bytes());
        let segment = vec![Segment { at, length: 512 }];
        machine.direct(0, WRITE, n % 8 * 512, segment, 512).unwrap();
    }
    let mut found = [0; 8];
    machine.control.peek(3 * 512, &mut found).unwrap();
    assert_eq!(u64::from_le_bytes(found), 299);
}

#[test]
fn a_cache_without_room_goes_on() {
    let mut setup = Setup::default();
    setup.block.cache_limit = Bytes::kib(64);
    setup.block.dirty_limit = Bytes::kib(32);
    let machine = Machine::new(&setup);
    let at = machine.memory(64, 0);
    let data = pattern(3, 256 << 10);
    machine.put(at, &data);
    let file = machine.file();
    machine.run(0, move |cpu| {
        Box::pin(async move {
            for chunk in 0..32u64 {
                let part = [Segment { at: at + chunk * 8192, length: 8192 }];
                file.write(&cpu, chunk * 8192, &part).await.unwrap();
            }
            file.sync(&cpu).await.unwrap();
            for chunk in 0..32u64 {
                let part = [Segment { at: at + chunk * 8192, length: 8192 }];
                file.read(&cpu, chunk * 8192, &part).await.unwrap();
            }
        })
    });
    assert_eq!(machine.get(at, 256 << 10), data);
    let counters = machine.file().counters();
    assert!(counters.cached_pages <= 16 + 2 + 4 && counters.dirty_pages == 0, "{counters:?}");
}
