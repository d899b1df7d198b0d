//! Two hosts exchange frames through drivers, devices and the fabric.

use std::net::Ipv4Addr;
use std::rc::Rc;

use crate::common::{Buffers, Pair, Setup, TYPE, bytes_of, check, frame};
use drivers::nic::InlineParams;
use kernel::DmaMode;
use platform::net::Checksum;
use units::Duration;
use wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN, MacAddr};
use wire::ip::{Ipv4Header, protocol};

/// Sends frames of these lengths from host 0 and gives the numbers of those that arrive, each checked.
fn exchange(pair: &Pair, lengths: Vec<usize>, piece: usize) -> Vec<u32> {
    let listener = pair.device(1).listen(Some(TYPE.0), 1 << 16);
    let device = pair.device(0);
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    let mine = Rc::clone(&buffers);
    let count = lengths.len();
    pair.run(0, 0, move |cpu| {
        Box::pin(async move {
            for (n, length) in lengths.into_iter().enumerate() {
                let packet = mine.packet(&cpu, &frame(1, length, n as u32), piece);
                device.send(&cpu, packet, n % 8 != 7 && n + 1 != count).unwrap();
                cpu.sync().await;
            }
        })
    });
    pair.run_for(Duration::from_ms(1));
    let received = pair.run(1, 0, move |cpu| {
        Box::pin(async move {
            let mut received = Vec::new();
            while let Some(packet) = listener.try_take() {
                received.push(check(&bytes_of(&cpu, &packet), 1));
                packet.release(&cpu);
            }
            received
        })
    });
    assert_eq!(buffers.out.get(), 0, "all buffers came back");
    received
}

#[test]
fn frames_cross_two_hosts_in_order_and_unchanged() {
    for mode in [DmaMode::Off, DmaMode::Strict, DmaMode::Lazy] {
        let pair = Pair::up(&Setup { mode, ..Setup::default() });
        let lengths: Vec<usize> = (60..1514).step_by(7).collect();
        let count = lengths.len() as u32;
        let received = exchange(&pair, lengths, 4096);
        assert_eq!(received, (0..count).collect::<Vec<_>>(), "{mode:?}");
        let (sent, got) = (pair.device(0).counters(), pair.device(1).counters());
        assert_eq!(
            (sent.tx_packets, sent.tx_done, got.rx_packets),
            (count.into(), count.into(), count.into())
        );
        assert_eq!(pair.counters(0).resets.get() + pair.counters(1).malformed.get(), 0);
    }
}

#[test]
fn frames_in_pieces_and_over_several_buffers() {
    let mut setup = Setup::default();
    setup.driver.buffer = 2048;
    let pair = Pair::up(&setup);
    let lengths = vec![9014, 60, 4097, 2048, 2049, 5000, 9000];
    assert_eq!(exchange(&pair, lengths, 700), [0, 1, 2, 3, 4, 5, 6]);
}

/// A driver that asks for a completion once in many packets asks for one with the last before each doorbell: when the kernel
/// holds the others back because the driver has bytes enough, nothing else would tell it that the NIC is done.
#[test]
fn completions_come_although_few_are_asked_for() {
    for (inline, lengths) in [(false, vec![9014; 40]), (true, vec![60; 40]), (true, vec![9014, 60, 9014])] {
        let mut setup = Setup::default();
        setup.driver.report_every = 32;
        setup.driver.inline = inline.then_some(InlineParams { up_to: 128, direct: false });
        setup.nic = |nic| nic.features |= wire::nic::registers::feature::INLINE;
        let pair = Pair::up(&setup);
        let expected: Vec<u32> = (0..lengths.len() as u32).collect();
        assert_eq!(exchange(&pair, lengths, 4096), expected, "inline: {inline}");
        assert_eq!(pair.device(0).counters().tx_timeouts, 0);
    }
}

/// Two packets of 64 KiB that the NIC cuts fill what the driver may hold.
#[test]
fn two_segmented_packets_are_reported_although_few_are() {
    let mut setup = Setup::default();
    setup.driver.report_every = 32;
    let pair = Pair::up(&setup);
    let device = pair.device(0);
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    let mine = Rc::clone(&buffers);
    pair.run(0, 0, move |cpu| {
        Box::pin(async move {
            for _ in 0..6 {
                let mut frame = frame(1, 64 << 10, 0);
                EthernetHeader::new(MacAddr::local(1), MacAddr::local(2), EtherType::IPV4).emit(&mut frame);
                let (from, to) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
                let length = frame.len() - HEADER_LEN - 20;
                Ipv4Header::new(from, to, protocol::TCP, length as u16).emit(&mut frame[HEADER_LEN..]);
                frame[HEADER_LEN + 32] = 5 << 4;
                let mut packet = mine.packet(&cpu, &frame, 4096);
                packet.checksum = Checksum::Offload { start: 34, offset: 16 };
                (packet.segment, packet.headers) = (1448, 54);
                device.send(&cpu, packet, true).unwrap();
            }
            cpu.sync().await;
        })
    });
    pair.run_for(Duration::from_ms(1));
    assert_eq!(buffers.out.get(), 0, "{:?}", pair.device(0).counters());
    assert!(pair.device(1).counters().rx_packets > 6 * 40);
}
