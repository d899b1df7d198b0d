//! Data in descriptors, descriptors in doorbells: the frame is the same, and the ring need not be read.

use devices::nic::{NicHandle, NicParams};
use platform::device::FunctionIndex;
use units::Duration;
use wire::nic::completion::{END as WHOLE, INLINE as WITH};
use wire::nic::descriptor::{END, INLINE, LEN, REPORT, inline_address, inline_entries};
use wire::nic::registers::{INLINE_BAR, INLINE_BYTES, counter, feature, queue};
use wire::nic::{Completion, TxDescriptor};

use super::bench::Bench;
use super::driver::{Queue, enable};
use super::kpio::{padded, sent};
use super::{frame, mac, pair_of};

const F0: FunctionIndex = FunctionIndex(0);

fn pair() -> (Bench, [NicHandle; 2]) {
    let mut a = NicParams::modern(mac(1));
    a.features |= feature::INLINE;
    let (mut bench, handles) = pair_of(a, NicParams::modern(mac(2)));
    enable(&mut bench, 0, 0, 0);
    (bench, handles)
}

/// Puts a frame into the ring with its descriptor. Returns the content of an inline doorbell for it.
fn put(bench: &mut Bench, tx: &mut Queue, frame: &[u8]) -> Vec<u8> {
    let length = frame.len() as u16;
    let entries = 1 + inline_entries(length);
    let descriptor = TxDescriptor { length, flags: INLINE | END | REPORT, ..TxDescriptor::default() };
    let mut block = descriptor.emit().to_vec();
    block.extend_from_slice(frame);
    block.resize(usize::from(entries) * LEN, 0);
    let count = tx.tail;
    for entry in block.chunks_exact(LEN) {
        tx.put_descriptor(bench, entry.try_into().unwrap());
    }
    block[..8].copy_from_slice(&inline_address(count, entries).to_le_bytes());
    block
}

#[test]
fn inline_data_is_sent_from_the_ring() {
    let (mut bench, handles) = pair();
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    let frames: Vec<Vec<u8>> = [14, 60, 61, 240, 100].map(|n| frame(1, mac(2), n.max(18), n as u32)).to_vec();
    for frame in &frames {
        put(&mut bench, &mut tx, frame);
    }
    tx.ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(10));
    assert!(sent(&bench) == frames.iter().map(|f| padded(f)).collect::<Vec<_>>());
    while tx.poll(&mut bench).is_some() {}
    assert_eq!((tx.done, handles[0].counter(F0, counter::INLINE_PACKETS)), (tx.tail, 0));
}

#[test]
fn an_inline_doorbell_needs_no_read() {
    let (mut bench, handles) = pair();
    let mut tx = Queue::start(&mut bench, (0, 0, 3, true), 6, queue::TO_RING);
    let mut frames = Vec::new();
    for n in 0..40 {
        let frame = frame(1, mac(2), 20 + 5 * n as usize, n);
        let block = put(&mut bench, &mut tx, &frame);
        let at = 3 * 2 * INLINE_BYTES + u64::from(n % 2) * INLINE_BYTES;
        // Lines in reverse order, the first one in two pieces.
        for (line, bytes) in block.chunks(64).enumerate().rev() {
            let (a, b) = bytes.split_at(bytes.len() / 2);
            bench.write_bar(0, 0, INLINE_BAR, at + 64 * line as u64 + a.len() as u64, b);
            bench.write_bar(0, 0, INLINE_BAR, at + 64 * line as u64, a);
        }
        frames.push(frame);
        bench.run_for(Duration::from_us(4));
        while tx.poll(&mut bench).is_some() {}
        assert_eq!(tx.done, tx.tail);
    }
    assert!(sent(&bench) == frames.iter().map(|f| padded(f)).collect::<Vec<_>>());
    assert_eq!(handles[0].counter(F0, counter::INLINE_PACKETS), 40);
    assert_eq!(handles[0].counter(F0, counter::FETCHES), 0);
}

#[test]
fn an_inline_doorbell_behind_others_is_a_plain_one() {
    let (mut bench, handles) = pair();
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    let frames: Vec<Vec<u8>> = (0..3).map(|n| frame(1, mac(2), 100, n)).collect();
    tx.send(&mut bench, &frames[0], 2000, TxDescriptor::default());
    tx.ring_doorbell(&mut bench);
    tx.send(&mut bench, &frames[1], 2000, TxDescriptor::default());
    let block = put(&mut bench, &mut tx, &frames[2]);
    bench.write_bar(0, 0, INLINE_BAR, 0, &block);
    bench.run_for(Duration::from_us(10));
    assert!(sent(&bench) == frames);
    assert_eq!(handles[0].counter(F0, counter::INLINE_PACKETS), 0);
}

#[test]
fn short_frames_stand_in_front_of_their_completions() {
    let (mut bench, handles) = pair();
    let mut rx = Queue::start(&mut bench, (0, 0, 0, false), 5, queue::TO_RING);
    let completions = 0x8_0000u64;
    rx.set(&mut bench, queue::CONTROL, 0);
    bench.write(0, 0, rx.register(queue::COMPLETIONS), &completions.to_le_bytes());
    rx.set(&mut bench, queue::STRIDE, 7);
    rx.set(&mut bench, queue::CONTROL, queue::TO_RING | queue::ENABLE);
    rx.give(&mut bench, 32);
    bench.run_for(Duration::from_us(2));
    let lengths = [60usize, 112, 113, 300, 100];
    for (n, &length) in lengths.iter().enumerate() {
        let mut bytes = frame(2, mac(1), length, n as u32);
        wire::ethernet::append_fcs(&mut bytes);
        bench.inject(0, 0, &bytes);
    }
    bench.run_for(Duration::from_us(10));
    for (n, &length) in lengths.iter().enumerate() {
        let end = completions + 128 * (n as u64 + 1);
        let entry: [u8; LEN] = bench.world.bytes(0, end - 16, 16).unwrap().try_into().unwrap();
        let (completion, owner) = Completion::parse(&entry);
        assert!(owner && completion.has(WHOLE) && usize::from(completion.length) == length);
        assert_eq!(completion.has(WITH), length <= 112);
        let at = if length <= 112 { end - 16 - length as u64 } else { rx.buffer_at(n as u16) };
        let bytes = bench.world.bytes(0, at, length).unwrap().to_vec();
        assert!(bytes == frame(2, mac(1), length, n as u32), "{length} B");
    }
    assert_eq!(handles[0].counter(F0, counter::WRITE_BACKS), 5);
}
