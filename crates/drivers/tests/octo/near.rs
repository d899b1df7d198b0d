//! What is near stays near.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use hardware::memory::Cause;
use platform::cpu::{Cpu, CpuId, Node};
use platform::memory::Policy;
use platform::net::{Fragment, Packet, PacketOwner, PacketQueue};
use units::Duration;
use wire::nic::registers::feature;

use super::{
    By, CORES, PORT, came, crossed, dropped, forget_the_beginning, left, nothing_crossed, pair, pair_of,
    set_link, stream,
};
use crate::common::streams::bytes;
use crate::common::{Buffers, Pair, Setup, TYPE, bytes_of, check, frame};

/// A program receives and sends through the function of its own socket, and nothing that its card does crosses to the other.
#[test]
fn what_is_near_stays_near() {
    for by in By::BOTH {
        for (function, on) in CORES.into_iter().enumerate() {
            for receives in [true, false] {
                let pair = pair(by);
                let data = bytes(3_000_000, 5);
                let stream = stream(&pair, PORT, data.clone(), receives, on);
                stream.until(&pair, 300_000);
                forget_the_beginning(&pair);
                let (before, [frames, sent]) = (crossed(&pair), [came(&pair), left(&pair)]);
                stream.until(&pair, 2_700_000);
                assert_eq!(
                    nothing_crossed(&pair, &before),
                    Ok(()),
                    "{by:?}, core {on}, receives: {receives}"
                );
                let [frames_after, sent_after] = [came(&pair), left(&pair)];
                let other = 1 - function;
                assert!(frames_after[function] - frames[function] > 20, "{frames_after:?}");
                assert!(sent_after[function] - sent[function] > 20, "{sent_after:?}");
                assert_eq!((frames_after[other], sent_after[other]), (frames[other], sent[other]));
                assert!(stream.end(&pair) == data);
            }
        }
    }
}

/// What the test above asserts does not hold if a single doorbell goes to the other function.
#[test]
fn one_doorbell_to_the_other_function_shows() {
    for by in By::BOTH {
        let pair = pair(by);
        let data = bytes(1_000_000, 5);
        let stream = stream(&pair, PORT, data.clone(), true, CORES[0]);
        stream.until(&pair, 300_000);
        forget_the_beginning(&pair);
        let before = crossed(&pair);
        stream.until(&pair, 500_000);
        assert_eq!(nothing_crossed(&pair, &before), Ok(()), "{by:?}");
        // The other function's first queue.
        let (name, queue) = if by == By::Team { ("eth1", 0) } else { ("eth0", 16) };
        let far = pair.hosts[1].kernel.face().packet_device(name).unwrap();
        let buffers = Buffers::new(&pair.hosts[1].kernel);
        pair.run(1, CORES[0], move |cpu| {
            Box::pin(async move {
                let packet = buffers.packet(&cpu, &frame(2, 60, 0), 4096);
                assert!(far.send_directly(&cpu, queue, packet, false).is_ok());
                cpu.sync().await;
            })
        });
        stream.until(&pair, 900_000);
        let crossed = nothing_crossed(&pair, &before).expect_err("the doorbell has crossed");
        let doorbell = crossed.iter().find(|(cause, _)| *cause == Cause::MmioDoorbell);
        assert!(doorbell.is_some_and(|&(_, bytes)| bytes > 0), "{by:?}: {crossed:?}");
        assert!(stream.end(&pair) == data);
    }
}

/// A program that moves takes its traffic with it, with either firmware.
#[test]
fn traffic_follows_a_program() {
    for by in By::BOTH {
        for (receives, global) in [(true, false), (true, true), (false, false)] {
            let nic: fn(&mut devices::nic::NicParams) = match global {
                true => |nic| nic.features |= feature::GLOBAL_RULES,
                false => |_| {},
            };
            let pair = pair_of(by, Setup { nic, ..Setup::default() });
            let data = bytes(4_000_000, 6);
            let stream = stream(&pair, PORT, data.clone(), receives, CORES[0]);
            stream.until(&pair, 1_500_000);
            let face = pair.hosts[1].kernel.face();
            face.set_affinity(stream.task, &[CpuId(CORES[1])]).unwrap();
            pair.run_for(Duration::from_us(200));
            forget_the_beginning(&pair);
            let moved = || if receives { came(&pair) } else { left(&pair) };
            let (before, passed) = (crossed(&pair), moved());
            stream.until(&pair, 3_500_000);
            let after = moved();
            assert!(after[1] - passed[1] > 20, "{passed:?} {after:?}");
            assert_eq!(after[0], passed[0]);
            assert_eq!(nothing_crossed(&pair, &before), Ok(()), "{by:?}, receives: {receives}");
            assert!(stream.end(&pair) == data);
            let counted = (stream.again(&pair), stream.out_of_order.get(), dropped(&pair));
            assert_eq!(counted, (0, 0, 0), "nothing was lost or overtaken: {by:?}, receives: {receives}");
        }
    }
}

/// Pages of both nodes; counts those that came back.
#[derive(Default)]
struct BothNodes {
    released: Cell<u32>,
}

impl PacketOwner for BothNodes {
    fn released(&self, _: &Cpu, packet: &mut Packet) {
        self.released.set(self.released.get() + packet.fragments.len() as u32);
    }
}

/// Frames in three pieces, in the memory of one node, the other, and the first one again.
fn in_both_nodes(pair: &Pair, owner: &Rc<BothNodes>, numbers: Range<u32>) -> Vec<Packet> {
    let (kernel, owner) = (pair.hosts[1].kernel.face(), Rc::clone(owner));
    pair.run(1, CORES[0], move |cpu| {
        Box::pin(async move {
            let packet = |number| {
                let mut packet = Packet { owner: Some(Rc::clone(&owner) as _), ..Packet::default() };
                for (n, piece) in (0..).zip(frame(2, 1200, number).chunks(500)) {
                    let pages = kernel.alloc_pages(&cpu, 0, Policy::Bind(Node(n % 2))).unwrap();
                    cpu.store(pages.start, piece);
                    let length = piece.len() as u32;
                    packet.fragments.push(Fragment { pages: Some(pages), at: pages.start, length });
                }
                packet
            };
            numbers.map(packet).collect()
        })
    })
}

/// Sends packets from the first function's node, one each 2 us. Those that cannot be sent are lost.
fn send_each(pair: &Pair, by: By, packets: Vec<Packet>) {
    let device = pair.hosts[1].kernel.face().packet_device(by.device()).unwrap();
    pair.spawn(1, CORES[0], move |cpu| {
        Box::pin(async move {
            for packet in packets {
                let _ = device.send(&cpu, packet, false);
                cpu.sleep(Duration::from_us(2)).await;
            }
        })
    });
}

/// The numbers of the frames that have arrived, as they were sent.
fn numbers(pair: &Pair, arrived: &PacketQueue) -> Vec<u32> {
    let packets: Vec<Packet> = std::iter::from_fn(|| arrived.try_take()).collect();
    pair.run(0, 0, move |cpu| {
        Box::pin(async move { packets.iter().map(|packet| check(&bytes_of(&cpu, packet), 2)).collect() })
    })
}

/// What lies in the memory of both nodes, as pages of a file may, is read by both functions: each its own (IOctoSG).
#[test]
fn a_packet_in_both_nodes_memory_crosses_nothing() {
    for by in By::BOTH {
        let pair = pair(by);
        let arrived = pair.device(0).listen(Some(TYPE.0), 64);
        let packets = in_both_nodes(&pair, &Rc::default(), 0..40);
        // As pages of a file that a drive has written, they are in no cache.
        forget_the_beginning(&pair);
        let before = crossed(&pair);
        send_each(&pair, by, packets);
        pair.run_for(Duration::from_us(300));
        assert_eq!(numbers(&pair, &arrived), (0..40).collect::<Vec<_>>());
        assert_eq!(nothing_crossed(&pair, &before), Ok(()), "{by:?}");
    }
}

/// A function is lost while both read packets: its link is cut, or it is reset. What arrives is as it was sent, all buffers come
/// back, and once the function is back, so do all packets.
#[test]
fn a_function_that_is_lost_while_both_read_damages_nothing() {
    for (by, mishap) in By::BOTH.into_iter().flat_map(|by| (0..3).map(move |mishap| (by, mishap))) {
        let mut lost = 0;
        for after in 0..6 {
            let pair = pair(by);
            let arrived = pair.device(0).listen(Some(TYPE.0), 256);
            let owner = Rc::<BothNodes>::default();
            send_each(&pair, by, in_both_nodes(&pair, &owner, 0..60));
            // At any moment of a packet.
            pair.run_for(Duration::from_us(60) + Duration::from_ns(330) * after);
            let case = format!("{by:?}, {mishap}, {after}");
            match mishap {
                2 => pair.hosts[1].handle.spoil_completions(1),
                port => set_link(&pair, port, false),
            }
            pair.run_for(Duration::from_ms(3));
            if mishap < 2 {
                set_link(&pair, mishap, true);
                // A slot waits until what is in it has trained and is ready.
                pair.run_for(Duration::from_ms(150));
            }
            let came = numbers(&pair, &arrived);
            assert!(came.is_sorted() && (30..=60).contains(&came.len()), "{case}: {came:?}");
            lost += 60 - came.len();
            assert_eq!(owner.released.get(), 60 * 3, "{case}: all pieces came back");
            send_each(&pair, by, in_both_nodes(&pair, &owner, 60..100));
            pair.run_for(Duration::from_ms(1));
            assert_eq!(numbers(&pair, &arrived), (60..100).collect::<Vec<_>>(), "{case}");
            assert_eq!(owner.released.get(), 100 * 3, "{case}");
        }
        // Before a reset, the driver waits for what it has begun.
        assert!(lost > 0 || mishap == 2, "{by:?}, {mishap}: no packet was in the midst of it");
    }
}
