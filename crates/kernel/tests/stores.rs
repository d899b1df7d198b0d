//! Stores to a device through mappings of each memory type: which TLPs arrive, when, and what the core pays.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::sink::{Machine, Setup, setup};
use hardware::core::EvictionOrder;
use hardware::link::{Credits, LinkId, Side};
use platform::cpu::{Async, Cpu, CpuId};
use platform::kernel::TaskParams;
use platform::lock::SpinLock;
use platform::memory::Policy;
use platform::mmio::MemoryType;
use platform::sync::Completion;
use proptest::prelude::*;
use units::Duration;
use wire::pcie::{Generation, Width};

fn line(n: u8) -> [u8; 64] {
    [n; 64]
}

#[test]
fn each_memory_type_sends_its_own_tlps() {
    type Write = fn(&Cpu, &platform::mmio::Mmio);
    let cases: [(&str, MemoryType, Write, &[usize]); 7] = [
        ("uncached words", MemoryType::Uncached, |cpu, map| map.write(cpu, 0, &line(1)), &[8; 8]),
        ("uncached, unaligned", MemoryType::Uncached, |cpu, map| map.write(cpu, 6, &[1; 8]), &[2, 6]),
        ("uncached, streamed", MemoryType::Uncached, |cpu, map| map.stream(cpu, 0, &line(1)), &[8; 8]),
        ("a combined line", MemoryType::WriteCombining, |cpu, map| map.write(cpu, 0, &line(1)), &[64]),
        ("a streamed line", MemoryType::WriteCombining, |cpu, map| map.stream(cpu, 0, &line(1)), &[64]),
        ("part of a line", MemoryType::WriteCombining, |cpu, map| map.write(cpu, 0, &[1; 60]), &[]),
        ("a direct line", MemoryType::Uncached, |cpu, map| map.write_direct(cpu, 64, &line(1)), &[64]),
    ];
    for (name, kind, write, expected) in cases {
        let machine = Machine::new(&setup());
        machine.run(async move |cpu, device| {
            let map = device.ioremap_bar(0, kind).unwrap();
            write(&cpu, &map);
            cpu.sync().await;
        });
        assert_eq!(machine.lengths(), expected, "{name}");
    }
}

#[test]
fn what_a_program_does_drives_lines_out() {
    type Act = for<'a> fn(&'a Cpu, &'a platform::mmio::Mmio) -> Async<'a, ()>;
    let acts: [(&str, Act); 6] = [
        ("sfence", |cpu, _| Box::pin(async { cpu.sfence() })),
        ("mfence", |cpu, _| Box::pin(cpu.mfence())),
        ("locked", |cpu, _| Box::pin(cpu.locked())),
        ("clflush", |cpu, map| Box::pin(async { cpu.clflush(map.address() + 32, 8) })),
        ("read of the mapping", |cpu, map| {
            Box::pin(async {
                // It comes behind the write.
                assert_eq!(map.read_u64(cpu, 32).await, 0x0101_0101_0101_0101);
            })
        }),
        ("interrupt", |cpu, _| Box::pin(cpu.sleep(Duration::from_us(5)))),
    ];
    for (name, act) in acts {
        let machine = Machine::new(&setup());
        machine.run(async move |cpu, device| {
            let registers = device.ioremap_bar(2, MemoryType::Uncached).unwrap();
            if name == "interrupt" {
                registers.write_u32(&cpu, 0x2000, 1);
                cpu.sync().await;
            }
            let map = device.ioremap_bar(0, MemoryType::WriteCombining).unwrap();
            map.write(&cpu, 32, &[1; 8]);
            act(&cpu, &map).await;
            cpu.sync().await;
        });
        assert_eq!(machine.lengths(), [8], "{name}");
    }
}

#[test]
fn cached_mappings_keep_lines_until_they_are_flushed() {
    let machine = Machine::new(&setup());
    machine.run(async |cpu, device| {
        let through = device.ioremap_bar(0, MemoryType::WriteThrough).unwrap();
        assert_eq!(through.read_u64(&cpu, 0).await, 0);
        let before = cpu.now();
        assert_eq!(through.read_u64(&cpu, 8).await, 0);
        cpu.sync().await;
        assert!(cpu.now().since(before) < Duration::from_ns(5), "the line is there");
        // A store goes through, and to the line.
        through.write_u64(&cpu, 8, 7);
        assert_eq!(through.read_u64(&cpu, 8).await, 7);
        cpu.mfence().await;
        // What changes behind the cache's back is not seen before the line is flushed.
        let uncached = device.ioremap_bar(0, MemoryType::Uncached).unwrap();
        uncached.write_u64(&cpu, 8, 9);
        assert_eq!(through.read_u64(&cpu, 8).await, 7);
        cpu.clflush(through.address() + 8, 1);
        assert_eq!(through.read_u64(&cpu, 8).await, 9);
    });
    assert_eq!(machine.lengths(), [8, 8]);

    let machine = Machine::new(&setup());
    machine.run(async |cpu, device| {
        let back = device.ioremap_bar(0, MemoryType::WriteBack).unwrap();
        back.write(&cpu, 0, &line(1));
        back.write(&cpu, 64, &[2; 12]);
        assert_eq!(back.read_u64(&cpu, 64).await, 0x0202_0202_0202_0202);
        cpu.mfence().await;
        cpu.sleep(Duration::from_us(10)).await;
        let uncached = device.ioremap_bar(0, MemoryType::Uncached).unwrap();
        assert_eq!(uncached.read_u64(&cpu, 0).await, 0, "nothing has left");
        cpu.clflush(back.address(), 128);
        cpu.mfence().await;
    });
    assert_eq!(machine.lengths(), [64, 8, 4]);
}

#[test]
fn streaming_loads_fetch_lines_side_by_side() {
    let machine = Machine::new(&setup());
    let times = machine.run(async |cpu, device| {
        let map = device.ioremap_bar(0, MemoryType::WriteCombining).unwrap();
        let bytes: Vec<u8> = (0..640).map(|n| n as u8).collect();
        map.stream(&cpu, 0, &bytes);
        // The link shall be idle again.
        cpu.mfence().await;
        cpu.sleep(Duration::from_us(5)).await;
        let mut times = Vec::new();
        for (start, length) in [(0usize, 64usize), (0, 640), (5, 100)] {
            let mut read = vec![0; length];
            let before = cpu.now();
            map.read_stream(&cpu, start as u64, &mut read).await;
            times.push(cpu.now().since(before).as_ps() / 1000);
            assert_eq!(read, bytes[start..start + length]);
        }
        let before = cpu.now();
        map.read(&cpu, 0, &mut [0; 64]).await;
        times.push(cpu.now().since(before).as_ps() / 1000);
        times
    });
    let [one, ten, two, words] = times[..] else { unreachable!() };
    // Ten lines come one behind the other: each takes 84 ns of the link.
    assert!(ten < one + 9 * 90 && ten > one + 9 * 80, "{times:?}");
    assert!(two < one + 100, "{times:?}");
    // Eight loads of 8 bytes take a round trip each.
    assert!(words > 6 * one, "{times:?}");
}

/// How long a load from memory takes, of a line that is not cached or of one that is, while so many lines combine; and how
/// many of them had to leave.
fn load_beside(lines: u64, length: usize, is_cached: bool) -> (Duration, u64) {
    let machine = Machine::new(&setup());
    let time = machine.run(async move |cpu, device| {
        let map = device.ioremap_bar(0, MemoryType::WriteCombining).unwrap();
        let pages = device.kernel().alloc_pages(&cpu, 0, Policy::Local).unwrap();
        let mut bytes = vec![0; length];
        if is_cached {
            cpu.load(pages.start, &mut bytes);
        } else {
            cpu.clflush(pages.start, 4096);
            cpu.mfence().await;
        }
        for n in 0..lines {
            map.write(&cpu, 64 * n, &[1; 8]);
        }
        cpu.work(100);
        cpu.sync().await;
        let begin = cpu.now();
        cpu.load(pages.start, &mut bytes);
        let time = cpu.now().since(begin);
        cpu.sync().await;
        time
    });
    (time, machine.counters().pressed_lines)
}

#[test]
fn a_load_waits_for_a_buffer_where_all_combine() {
    let (free, nine, ten) = (load_beside(0, 8, false), load_beside(9, 8, false), load_beside(10, 8, false));
    assert_eq!((free.1, nine, ten.1), (0, free, 1));
    // A line leaves for it, which the root complex accepts in 100 ns.
    assert_eq!(ten.0, free.0 + Duration::from_ns(100));
    assert_eq!(load_beside(10, 8, true), load_beside(0, 8, true), "one that hits needs none");
    // Sixteen lines: ten at once, or one by one.
    let (ten_at_once, one_by_one) = (load_beside(0, 1024, false).0, load_beside(9, 1024, false).0);
    assert!(one_by_one > ten_at_once * 4, "{one_by_one} against {ten_at_once}");
}

/// How long it takes to load so many lines right after as many others were stored, none of which is cached.
fn load_behind(stored: usize, loaded: usize) -> Duration {
    let machine = Machine::new(&setup());
    machine.run(async move |cpu, device| {
        let pages = device.kernel().alloc_pages(&cpu, 1, Policy::Local).unwrap();
        cpu.clflush(pages.start, 8192);
        cpu.mfence().await;
        cpu.sync().await;
        if stored > 0 {
            cpu.store(pages.start, &vec![1; stored * 64]);
        }
        let begin = cpu.now();
        cpu.load(pages.start + 4096, &mut vec![0; loaded * 64]);
        cpu.now().since(begin)
    })
}

#[test]
fn stores_that_miss_hold_buffers_until_their_lines_have_come() {
    let (one, ten, thirty) = (load_behind(0, 1), load_behind(0, 10), load_behind(0, 30));
    assert!(ten < one * 2 && thirty > one * 2 && thirty < one * 5, "{one}, {ten}, {thirty}: ten at once");
    // The lines that ten stores fetch hold all buffers once more, and thirty three times.
    let (behind_ten, behind_thirty) = (load_behind(10, 30), load_behind(30, 30));
    assert!(behind_ten > thirty + one / 2 && behind_ten < thirty + one * 2, "{behind_ten} against {thirty}");
    assert!(behind_thirty > behind_ten + one && behind_thirty < thirty + one * 5, "{behind_thirty}");
}

#[test]
fn mfence_waits_and_sfence_does_not() {
    let times = [false, true].map(|waits| {
        Machine::new(&setup()).run(async move |cpu, device| {
            let map = device.ioremap_bar(0, MemoryType::WriteCombining).unwrap();
            cpu.sync().await;
            let before = cpu.now();
            map.stream(&cpu, 0, &line(1));
            if waits {
                cpu.mfence().await;
            } else {
                cpu.sfence();
            }
            cpu.sync().await;
            cpu.now().since(before).as_ps()
        })
    });
    // Four stores of a cycle each, then 100 ns until the line is accepted.
    assert_eq!(times, [1_600, 101_600]);
}

#[test]
fn ten_buffers_fill_at_twenty_gigabytes_per_second() {
    let machine = Machine::new(&setup());
    let took = machine.run(async move |cpu, device| {
        let map = device.ioremap_bar(0, MemoryType::WriteCombining).unwrap();
        cpu.sync().await;
        let before = cpu.now();
        map.write(&cpu, 0, &[1; 640]);
        cpu.sync().await;
        cpu.now().since(before)
    });
    // 8 bytes a cycle at 2.5 GHz; nothing waited.
    assert_eq!(took.as_ps(), 32_000);
    assert_eq!(machine.counters().waited, Duration::ZERO);
    assert_eq!(machine.lengths(), [64; 10]);
}

/// Streams `lines` and gives the mean interval of their arrivals in the second half, and how long the core took.
fn stream(setup: &Setup, lines: u64) -> (f64, Duration) {
    let machine = Machine::new(setup);
    let took = machine.run(async move |cpu, device| {
        let map = device.ioremap_bar(0, MemoryType::WriteCombining).unwrap();
        cpu.sync().await;
        let before = cpu.now();
        for n in 0..lines {
            map.stream(&cpu, n * 64 % (32 << 10), &line(n as u8));
            cpu.sync().await;
        }
        cpu.now().since(before)
    });
    let seen = machine.seen.borrow();
    assert_eq!(seen.len() as u64, lines);
    let half = seen.len() / 2;
    let span = seen[seen.len() - 1].0.since(seen[half].0);
    (span.as_ps() as f64 / 1000.0 / (seen.len() - 1 - half) as f64, took)
}

#[test]
fn a_slow_link_lets_the_core_stand_still() {
    let (interval, took) = stream(&setup(), 400);
    // 64 B and 24 B of header and framing at 1 GB/s; the BAR is above 4 GiB. SKP sets add 0.3 %.
    assert!((88.0..88.6).contains(&interval), "{interval} ns");
    // The core is ahead by what buffers and port hold, no more.
    let lines = (10 + 16 + 42 / 4) as f64;
    let expected = (400.0 - lines) * interval;
    let took = took.as_ps() as f64 / 1000.0;
    assert!((took - expected).abs() < 300.0, "{took} ns, expected about {expected} ns");
}

#[test]
fn a_device_that_keeps_its_credits_lets_the_core_stand_still() {
    let mut setup = setup();
    setup.holds = Duration::from_us(1);
    setup.link.receivers[1].credits.posted = Some(Credits { header: 4, data: 128 });
    let (interval, _) = stream(&setup, 200);
    // Four at a time, each for 1 us, and the way of the credits back.
    assert!((1000.0..1400.0).contains(&(interval * 4.0)), "{interval} ns");
}

#[test]
fn more_buffers_overlap_until_the_link_is_full() {
    let mut setup = setup();
    (setup.link.generation, setup.link.width) = (Generation::Gen3, Width::X16);
    let rates: Vec<f64> = (1..=10)
        .map(|buffers| {
            setup.stores.combining_buffers = buffers;
            64.0 / stream(&setup, 400).0
        })
        .collect();
    // A buffer is taken for 100 ns. A line takes 5.6 ns of a Gen3 x16 link: ten of them do not fill it.
    for (buffers, rate) in (1u32..).zip(&rates) {
        assert!((rate / (0.64 * f64::from(buffers)) - 1.0).abs() < 0.03, "{rates:?} GB/s");
    }
}

#[test]
fn two_cores_share_a_port() {
    let machine = Machine::new(&setup());
    let device = machine.driver.bound.borrow().clone().unwrap();
    for core in 0..2u16 {
        let device = device.clone();
        machine.kernel.spawn(TaskParams::named("stream").on(CpuId(core)), move |cpu| {
            Box::pin(async move {
                let map = device.ioremap_bar(0, MemoryType::WriteCombining).unwrap();
                for n in 0..100 {
                    map.stream(&cpu, u64::from(core) * 0x8000 + n * 64, &line(core as u8 + 1));
                    cpu.sync().await;
                }
            })
        });
    }
    machine.simulation.run();
    let seen = machine.seen.borrow();
    assert_eq!(seen.len(), 200);
    // While both want to, neither gets more than its share.
    let firsts = seen[40..140].iter().filter(|(_, offset, _)| *offset < 0x8000).count();
    assert!((45..=55).contains(&firsts), "{firsts} of 100 lines are core 0's");
}

/// Cores that take turns behind a lock: what they store in turn arrives in turn, although a store is under way for 100 ns and
/// the next core finds its own buffers empty.
#[test]
fn a_lock_is_seen_free_after_the_stores_before_its_release() {
    // Also where the device lets the port fill up.
    for holds in [Duration::ZERO, Duration::from_us(1)] {
        let mut setup = setup();
        setup.holds = holds;
        let machine = Machine::new(&setup);
        let device = machine.driver.bound.borrow().clone().unwrap();
        let shared = Rc::new((SpinLock::default(), Cell::new(0u64)));
        for core in 0..4u16 {
            let (device, shared) = (device.clone(), Rc::clone(&shared));
            machine.kernel.spawn(TaskParams::named("turns").on(CpuId(core)), move |cpu| {
                Box::pin(async move {
                    let map = device.ioremap_bar(0, MemoryType::Uncached).unwrap();
                    for n in 0..40 {
                        cpu.work(u64::from(core) * 7 + 1);
                        {
                            let _held = shared.0.lock(&cpu);
                            for _ in 0..1 + (n + core) % 3 {
                                map.write_u64(&cpu, 0, shared.1.replace(shared.1.get() + 1));
                            }
                        }
                        cpu.sync().await;
                    }
                })
            });
        }
        machine.simulation.run();
        let seen = machine.seen.borrow();
        assert_eq!(seen.len() as u64, shared.1.get());
        let order = seen.iter().map(|(.., data)| u64::from_le_bytes(data[..].try_into().unwrap()));
        assert!(order.eq(0..shared.1.get()), "held for {holds}");
    }
}

#[test]
fn combining_stores_are_not_ordered_by_a_lock_but_by_a_fence() {
    for fenced in [false, true] {
        let machine = Machine::new(&setup());
        let device = machine.driver.bound.borrow().clone().unwrap();
        let lock = Rc::new(SpinLock::default());
        for core in 0..2u16 {
            let (device, lock) = (device.clone(), Rc::clone(&lock));
            machine.kernel.spawn(TaskParams::named("turns").on(CpuId(core)), move |cpu| {
                Box::pin(async move {
                    let combining = device.ioremap_bar(0, MemoryType::WriteCombining).unwrap();
                    let uncached = device.ioremap_bar(0, MemoryType::Uncached).unwrap();
                    let _held = lock.lock(&cpu);
                    if core == 0 {
                        // Half a line stays in its buffer.
                        combining.write(&cpu, 0, &[1; 32]);
                        if fenced {
                            cpu.sfence();
                        }
                    } else {
                        uncached.write_u64(&cpu, 0x1000, 2);
                    }
                })
            });
        }
        machine.simulation.run();
        let first = machine.seen.borrow()[0].1;
        assert_eq!(first, if fenced { 0 } else { 0x1000 });
    }
}

#[test]
fn stores_to_a_device_that_goes_away_are_not_waited_for() {
    let mut setup = setup();
    // It never gives its credits back.
    setup.holds = Duration::from_ms(1000);
    setup.link.receivers[1].credits.posted = Some(Credits { header: 2, data: 128 });
    let machine = Machine::new(&setup);
    let device = machine.driver.bound.borrow().clone().unwrap();
    let done = Completion::new();
    let end = done.clone();
    machine.kernel.spawn(TaskParams::named("stream").on(CpuId(0)), move |cpu| {
        Box::pin(async move {
            let map = device.ioremap_bar(0, MemoryType::WriteCombining).unwrap();
            for n in 0..100 {
                map.stream(&cpu, n * 64, &line(1));
                cpu.sync().await;
            }
            end.complete(cpu.now());
        })
    });
    let start = machine.simulation.now();
    machine.simulation.run_until(start + Duration::from_us(50));
    machine.simulation.with(|fabric, scheduler| {
        fabric.running(scheduler).remove_device(hardware::endpoint::EndpointId(0));
    });
    let ended = machine.simulation.block_on(async move { done.wait().await }).expect("the core goes on");
    assert!(ended.since(start) < Duration::from_us(200), "{}", ended.since(start));
}

/// What a program does next to the device.
#[derive(Clone, Debug)]
enum Act {
    Write(u64, usize),
    Stream(u64, usize),
    Direct(u64),
    Fence,
    Flush(u64),
    Sleep(u64),
    Read(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0u64..4000, 1usize..200).prop_map(|(at, n)| Act::Write(at, n)),
        4 => (0u64..4000, 1usize..200).prop_map(|(at, n)| Act::Stream(at, n)),
        1 => (0u64..60).prop_map(|line| Act::Direct(line * 64)),
        1 => Just(Act::Fence),
        1 => (0u64..4000).prop_map(Act::Flush),
        1 => (0u64..2000).prop_map(Act::Sleep),
        1 => (0u64..4000).prop_map(Act::Read),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// However the link stalls, retrains and starves: what a program stored last is what the device has, and what the
    /// program reads back; nothing arrives twice; no buffer, place or credit is lost.
    #[test]
    fn the_device_ends_up_with_what_was_stored_last(
        acts in prop::collection::vec(act(), 1..60),
        buffers in 1u16..11,
        places in 1u32..5,
        headers in 1u32..6,
        holds_ns in 0u64..400,
        any_order: bool,
        retrain_ns in prop::option::of(500u64..5000),
    ) {
        let mut setup = setup();
        setup.stores.combining_buffers = buffers;
        setup.stores.eviction_order = if any_order { EvictionOrder::Any } else { EvictionOrder::AsTold };
        setup.port.posted_places = places;
        setup.holds = Duration::from_ns(holds_ns);
        setup.link.receivers[1].credits.posted = Some(Credits { header: headers, data: 128 });
        let machine = Machine::new(&setup);
        if let Some(ns) = retrain_ns {
            let handle = machine.simulation.handle();
            machine.simulation.spawn(async move {
                handle.sleep(Duration::from_ns(ns)).await;
                handle.with(|fabric, scheduler| {
                    fabric.context(scheduler).with(LinkId(0), |link, cx| link.retrain(cx));
                });
            });
        }
        let stored = machine.run(async move |cpu, device| {
            let map = device.ioremap_bar(0, MemoryType::WriteCombining).unwrap();
            let mut model = vec![0u8; 8192];
            let mut written = vec![0u32; 8192];
            let mut value = 0u8;
            for act in acts {
                value = value.wrapping_add(1);
                let mut note = |at: u64, n: usize| {
                    model[at as usize..at as usize + n].fill(value);
                    written[at as usize..at as usize + n].iter_mut().for_each(|w| *w += 1);
                };
                match act {
                    Act::Write(at, n) => {
                        note(at, n);
                        map.write(&cpu, at, &vec![value; n]);
                    }
                    Act::Stream(at, n) => {
                        note(at, n);
                        map.stream(&cpu, at, &vec![value; n]);
                    }
                    Act::Direct(at) => {
                        note(at, 64);
                        map.write_direct(&cpu, at, &line(value));
                    }
                    Act::Fence => cpu.sfence(),
                    Act::Flush(at) => cpu.clflush(map.address() + at, 1),
                    Act::Sleep(ns) => cpu.sleep(Duration::from_ns(ns)).await,
                    Act::Read(at) => {
                        let mut read = [0; 16];
                        map.read(&cpu, at, &mut read).await;
                        assert_eq!(read, model[at as usize..at as usize + 16]);
                    }
                }
                cpu.sync().await;
            }
            cpu.mfence().await;
            (model, written)
        });
        let (model, written) = stored;
        let mut memory = vec![0u8; 8192];
        let mut arrived = vec![0u32; 8192];
        for (_, at, data) in machine.seen.borrow().iter() {
            let at = *at as usize;
            memory[at..at + data.len()].copy_from_slice(data);
            arrived[at..at + data.len()].iter_mut().for_each(|a| *a += 1);
        }
        prop_assert_eq!(memory, model);
        prop_assert!(arrived.iter().zip(&written).all(|(a, w)| a <= w && (*w == 0 || *a > 0)));
        machine.simulation.with(|fabric, _| {
            let host = fabric.host(machine.host);
            prop_assert!(host.stores.of(hardware::memory::CoreId(0)).is_empty());
            let link = fabric.wires.link(LinkId(0));
            let credits = link.credits_in_all_places(&fabric.wires.packets, Side::Upstream, wire::pcie::FlowClass::Posted);
            prop_assert_eq!(credits, Some(Credits { header: headers, data: 128 }));
            Ok(())
        })?;
    }
}
