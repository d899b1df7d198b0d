//! Arrival of frames, and counting of faults.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use engine::{Scheduler, Seed, Simulation, World};
use hardware::Event;
use hardware::endpoint::EndpointId;
use hardware::ethernet::{CableEnd, CableParams, Capture, Ethernet, EthernetSwitchParams, FaultParams, Plug};
use platform::ethernet::EthernetPort;
use units::{BitRate, Duration, Time};
use wire::ethernet::{EtherType, EthernetHeader, MacAddr, append_fcs, fcs_is_right};

#[derive(Default)]
struct Lan {
    ethernet: Ethernet,
    received: Vec<(Time, EndpointId, Vec<u8>)>,
}

impl World for Lan {
    type Event = Event;
    fn handle(&mut self, event: Event, scheduler: &mut Scheduler<Event>) {
        let Event::Ethernet(event) = event else { return };
        if let Some(delivery) = self.ethernet.handle(scheduler, event) {
            self.received.push((scheduler.now(), delivery.endpoint, delivery.frame.clone()));
            self.ethernet.recycle(delivery.frame);
        }
    }
}

fn frame(from: u32, to: MacAddr, length: usize, number: u8) -> Vec<u8> {
    let mut frame = vec![number; length - 4];
    EthernetHeader::new(MacAddr::local(from), to, EtherType::EXPERIMENTAL).emit(&mut frame);
    append_fcs(&mut frame);
    frame
}

fn device(n: u16) -> Plug {
    Plug::Device(EndpointId(n), EthernetPort(0), Duration::ZERO)
}

fn cable(faults: Option<FaultParams>) -> CableParams {
    CableParams { rate: BitRate::gbit_per_s(10), propagation: Duration::from_ns(5), faults }
}

fn run(simulation: &Simulation<Lan>) {
    let handle = simulation.handle();
    let _ = simulation.block_on(async move { handle.sleep(Duration::from_ms(1)).await });
}

#[test]
fn a_frame_takes_its_wire_time() {
    let mut lan = Lan::default();
    lan.ethernet.connect([device(0), device(1)], cable(None));
    let simulation = Simulation::new(lan);
    simulation.handle().with(|lan, scheduler| {
        for number in 0..2 {
            let bytes = frame(1, MacAddr::local(2), 64, number);
            lan.ethernet.send_from_device(scheduler, EndpointId(0), EthernetPort(0), Time::ZERO, &bytes);
        }
    });
    run(&simulation);
    simulation.handle().with(|lan, _| {
        let times: Vec<f64> = lan.received.iter().map(|(at, ..)| at.as_ns_f64()).collect();
        // 72 bytes to the last bit, 5 ns of cable; the next one 84 bytes later.
        assert_eq!(times, [62.6, 129.8]);
        assert!(lan.received.iter().all(|(_, to, bytes)| *to == EndpointId(1) && fcs_is_right(bytes)));
    });
}

#[test]
fn a_switch_floods_learns_and_drops() {
    let mut lan = Lan::default();
    let params = EthernetSwitchParams { queue_bytes: 200, ..EthernetSwitchParams::generic(4) };
    let switch = lan.ethernet.add_switch(params);
    for n in 0..3 {
        lan.ethernet.connect([device(n), Plug::Switch(switch, n as u8)], cable(None));
    }
    let simulation = Simulation::new(lan);
    let send = |from: u16, to: MacAddr, spoil: bool| {
        simulation.handle().with(|lan, scheduler| {
            let mut bytes = frame(from.into(), to, 64, 0);
            bytes[20] ^= u8::from(spoil);
            lan.ethernet.send_from_device(scheduler, EndpointId(from), EthernetPort(0), Time::ZERO, &bytes);
        });
    };
    let received = || {
        simulation.handle().with(|lan, _| lan.received.drain(..).map(|(_, to, _)| to.0).collect::<Vec<_>>())
    };
    let settle = || run(&simulation);
    send(0, MacAddr::local(1), false);
    settle();
    assert_eq!(received(), [1, 2], "nobody knows the address yet");
    send(1, MacAddr::local(0), false);
    settle();
    assert_eq!(received(), [0]);
    send(0, MacAddr::local(1), true);
    send(2, MacAddr::BROADCAST, false);
    settle();
    assert_eq!(received(), [0, 1]);
    // Two senders into one port with room for three frames: some are dropped, and counted.
    for _ in 0..10 {
        send(1, MacAddr::local(0), false);
        send(2, MacAddr::local(0), false);
    }
    settle();
    let arrived = received().len() as u64;
    simulation.handle().with(|lan, _| {
        let counters = lan.ethernet.switch_counters(switch);
        assert_eq!((counters.damaged, arrived + counters.overflowed), (1, 20));
        assert!(counters.overflowed > 0 && lan.ethernet.in_flight() == 0);
    });
}

/// A datagram of a flow, identified by its ports.
fn datagram(from: u32, to: MacAddr, ports: (u16, u16)) -> Vec<u8> {
    let mut frame = vec![0; 60];
    EthernetHeader::new(MacAddr::local(from), to, EtherType::IPV4).emit(&mut frame);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&ports.0.to_be_bytes());
    frame[36..38].copy_from_slice(&ports.1.to_be_bytes());
    frame[39] = 26;
    append_fcs(&mut frame);
    frame
}

/// A channel of two links acts as one port for its link partner: every flow uses one link, nothing arrives twice, and
/// frames from one link are not sent back on the other. If a link is cut, the other takes over its flows.
#[test]
fn flows_keep_to_a_link_of_a_channel() {
    let mut lan = Lan::default();
    let params = EthernetSwitchParams { channels: vec![vec![0, 1]], ..EthernetSwitchParams::generic(4) };
    let switch = lan.ethernet.add_switch(params);
    let cables: Vec<_> = (0..3)
        .map(|n| lan.ethernet.connect([device(n), Plug::Switch(switch, n as u8)], cable(None)))
        .collect();
    let simulation = Simulation::new(lan);
    let send = |from: u16, bytes: Vec<u8>| {
        simulation.handle().with(|lan, scheduler| {
            lan.ethernet.send_from_device(scheduler, EndpointId(from), EthernetPort(0), Time::ZERO, &bytes);
        });
        run(&simulation);
        let drain = |lan: &mut Lan| lan.received.drain(..).map(|(_, to, _)| to.0).collect::<Vec<_>>();
        simulation.handle().with(|lan, _| drain(lan))
    };
    // The station behind the channel sends on both links.
    assert_eq!(send(0, datagram(9, MacAddr::BROADCAST, (1, 1))), [2]);
    assert_eq!(send(1, datagram(9, MacAddr::BROADCAST, (2, 1))), [2]);
    let way = |port| send(2, datagram(2, MacAddr::local(9), (port, 80)));
    let ways: Vec<Vec<u16>> = (0..32).map(way).collect();
    assert!(ways.iter().all(|way| way == &[0] || way == &[1]), "{ways:?}");
    assert!([0, 1].iter().all(|link| ways.iter().filter(|way| way[0] == *link).count() > 4), "{ways:?}");
    assert_eq!(ways, (0..32).map(way).collect::<Vec<_>>(), "the same each time");
    assert_eq!(send(2, datagram(2, MacAddr::BROADCAST, (7, 7))).len(), 1, "a group gets one copy");
    simulation.handle().with(|lan, _| lan.ethernet.set_up(cables[0], false));
    assert!((0..32).all(|port| way(port) == [1]));
}

#[test]
fn faults_are_counted_and_damage_is_seen() {
    let mut lan = Lan::default();
    let faults = FaultParams {
        loss: 0.1,
        corruption: 0.1,
        duplication: 0.1,
        reordering: 0.1,
        longest_delay: Duration::from_us(1),
        ..FaultParams::none(Seed::new(1))
    };
    let id = lan.ethernet.connect([device(0), device(1)], cable(Some(faults)));
    let simulation = Simulation::new(lan);
    simulation.handle().with(|lan, scheduler| {
        for number in 0..=255 {
            let bytes = frame(1, MacAddr::local(2), 64, number);
            lan.ethernet.send_from_device(scheduler, EndpointId(0), EthernetPort(0), Time::ZERO, &bytes);
        }
    });
    run(&simulation);
    simulation.handle().with(|lan, _| {
        let counters = lan.ethernet.sent(CableEnd { cable: id, end: 0 }).clone();
        assert!(
            [counters.lost, counters.corrupted, counters.duplicated, counters.delayed]
                .iter()
                .all(|n| (10..50).contains(n))
        );
        assert_eq!(lan.received.len() as u64, 256 - counters.lost + counters.duplicated);
        let damaged = lan.received.iter().filter(|(.., bytes)| !fcs_is_right(bytes)).count() as u64;
        assert_eq!(damaged, counters.corrupted);
        let order: Vec<u8> = lan.received.iter().map(|(.., bytes)| bytes[30]).collect();
        assert!(!order.is_sorted(), "some frames pass others");
    });
}

#[test]
fn what_is_on_a_cable_that_goes_down_is_lost() {
    let mut lan = Lan::default();
    let id = lan.ethernet.connect([device(0), device(1)], cable(None));
    let simulation = Simulation::new(lan);
    simulation.handle().with(|lan, scheduler| {
        let bytes = frame(1, MacAddr::local(2), 64, 0);
        let send = |lan: &mut Lan, scheduler: &mut Scheduler<Event>| {
            lan.ethernet.send_from_device(scheduler, EndpointId(0), EthernetPort(0), Time::ZERO, &bytes)
        };
        assert!(send(lan, scheduler).is_some());
        assert_eq!(lan.ethernet.set_up(id, false).len(), 2);
        assert!(send(lan, scheduler).is_none());
        assert_eq!(lan.ethernet.set_up(id, true).len(), 2);
        assert!(send(lan, scheduler).is_some());
    });
    run(&simulation);
    simulation.handle().with(|lan, _| assert_eq!(lan.received.len(), 1));
}

/// Output that a test can read back.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn captures_are_in_order_of_time() {
    let mut lan = Lan::default();
    let id = lan.ethernet.connect([device(0), device(1)], cable(None));
    let out = Shared::default();
    let capture = Rc::new(RefCell::new(Capture::new(Box::new(out.clone()), "").unwrap()));
    for end in [0, 1] {
        lan.ethernet.capture(CableEnd { cable: id, end }, &format!("port{end}"), capture.clone());
    }
    let simulation = Simulation::new(lan);
    let sent = Cell::new(0);
    simulation.handle().with(|lan, scheduler| {
        for number in 0..4 {
            for from in [0, 1] {
                let bytes = frame(1, MacAddr::local(2), 100, number);
                lan.ethernet.send_from_device(
                    scheduler,
                    EndpointId(from),
                    EthernetPort(0),
                    Time::ZERO,
                    &bytes,
                );
                sent.set(sent.get() + 1);
            }
        }
    });
    run(&simulation);
    assert_eq!(capture.borrow_mut().finish().unwrap(), 2 * sent.get());
    let bytes = out.0.borrow();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut times) = (0, Vec::new());
    while at < bytes.len() {
        if word(at) == 6 {
            times.push(word(at + 16));
        }
        at += word(at + 4) as usize;
    }
    assert!(times.len() == 16 && times.is_sorted(), "{times:?}");
}
