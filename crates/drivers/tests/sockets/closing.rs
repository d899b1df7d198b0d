//! Connections that end before their time, and readers that do not read.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::Error;
use platform::block::Segment;
use platform::cpu::Cpu;
use platform::kernel::Kernel;
use platform::memory::{Pages, Policy};
use platform::socket::TcpListener;
use platform::sync::Completion;
use units::Duration;

use super::{ADDRESSES, PORT, connected, network};
use crate::common::{Pair, Setup};

/// Runs a program on a core of a host, which gets the kernel's face.
fn program<T: 'static, F: Future<Output = T> + 'static>(
    pair: &Pair,
    (host, core): (usize, u16),
    program: impl FnOnce(Cpu, Rc<dyn Kernel>) -> F + 'static,
) -> Completion<T> {
    let face = pair.hosts[host].kernel.face();
    pair.spawn(host, core, move |cpu| Box::pin(program(cpu, face)))
}

/// Listens at the port that everybody here connects to.
fn listen(cpu: &Cpu, face: &Rc<dyn Kernel>) -> Rc<dyn TcpListener> {
    face.network().listen(cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT), 4).unwrap()
}

/// Who closes with unread bytes resets the connection, whatever waits in the queues below.
#[test]
fn a_reset_passes_full_queues() {
    let pair = connected(&Setup::default());
    let server = program(&pair, (1, 1), move |cpu, face| async move {
        let listener = listen(&cpu, &face);
        let stream = listener.accept(&cpu).await.unwrap();
        let pages = face.alloc_pages(&cpu, 4, Policy::Local).unwrap();
        stream.send(&cpu, Segment { at: pages.start, length: 1 }).await.unwrap();
        let into = Segment { at: pages.start, length: pages.len() as u32 };
        let end = loop {
            match stream.recv(&cpu, into).await {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        stream.close(&cpu);
        end
    });
    let client = program(&pair, (0, 0), move |cpu, face| async move {
        let stream = face.network().connect(&cpu, SocketAddrV4::new(ADDRESSES[1], PORT)).await.unwrap();
        cpu.sleep(Duration::from_us(200)).await;
        let pages = face.alloc_pages(&cpu, Pages::order_for(256 << 10), Policy::Local).unwrap();
        for _ in 0..4 {
            stream.send(&cpu, Segment { at: pages.start, length: pages.len() as u32 }).await.unwrap();
        }
        stream.close(&cpu);
    });
    let end = pair.simulation.block_on(async move {
        client.wait().await;
        server.wait().await
    });
    assert_eq!(end.expect("the server hears of it"), Err(Error::Reset));
    assert_eq!(network(&pair, 0).counters().no_memory, 0);
}

/// The address of a device that was taken out is nobody's.
#[test]
fn an_address_goes_with_its_device() {
    let pair = connected(&Setup::default());
    let to_itself = || {
        let client = program(&pair, (1, 0), move |cpu, face| async move {
            face.network().connect(&cpu, SocketAddrV4::new(ADDRESSES[1], PORT)).await.map(|_| ())
        });
        pair.simulation.block_on(async move { client.wait().await }).expect("it is told")
    };
    assert_eq!(to_itself(), Err(Error::Refused), "it is there, and nobody listens");
    let nic = pair.hosts[1].nic;
    pair.simulation.with(|fabric, scheduler| fabric.running(scheduler).remove_device(nic));
    pair.run_for(Duration::from_ms(10));
    assert_eq!(to_itself(), Err(Error::Unreachable));
}

/// Whoever connects to a program that stops listening meanwhile is told.
#[test]
fn nobody_waits_for_a_listener_that_has_gone() {
    for delay in 0..16 {
        let pair = connected(&Setup::default());
        let server = program(&pair, (1, 1), move |cpu, face| async move {
            let listener = listen(&cpu, &face);
            cpu.sleep(Duration::from_us(50 + 2 * delay)).await;
            listener.close(&cpu);
        });
        let client = program(&pair, (0, 0), move |cpu, face| async move {
            cpu.sleep(Duration::from_us(50)).await;
            let Ok(stream) = face.network().connect(&cpu, SocketAddrV4::new(ADDRESSES[1], PORT)).await else {
                return;
            };
            let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let _ = stream.recv(&cpu, Segment { at: pages.start, length: 100 }).await;
            stream.close(&cpu);
            face.free_pages(&cpu, pages);
        });
        pair.simulation
            .block_on(async move {
                server.wait().await;
                client.wait().await;
            })
            .unwrap_or_else(|error| panic!("closed {} us after the SYN: {error}", 2 * delay));
    }
}

/// Datagrams without a byte take memory, too: a reader that does not read holds no more of it than others.
#[test]
fn empty_datagrams_fill_a_socket() {
    let pair = connected(&Setup::default());
    let at = SocketAddrV4::new(ADDRESSES[1], 53);
    let server = program(&pair, (1, 0), move |cpu, face| async move {
        let socket = face.network().udp(&cpu, at).unwrap();
        cpu.sleep(Duration::from_ms(2)).await;
        let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
        socket.recv_from(&cpu, Segment { at: pages.start, length: 64 }).await.unwrap();
        socket.close(&cpu);
        face.free_pages(&cpu, pages);
    });
    let client = program(&pair, (0, 0), move |cpu, face| async move {
        let socket = face.network().udp(&cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
        cpu.sleep(Duration::from_us(100)).await;
        for _ in 0..300 {
            // No room in the device's queue: the next one finds some.
            let _ = socket.send_to(&cpu, at, Segment { at: pages.start, length: 0 }).await;
            cpu.sleep(Duration::from_us(2)).await;
        }
        socket.close(&cpu);
        face.free_pages(&cpu, pages);
    });
    pair.simulation
        .block_on(async move {
            client.wait().await;
            server.wait().await;
        })
        .expect("both programs end");
    let dropped = network(&pair, 1).counters().socket_full;
    assert!((150..300).contains(&dropped), "{dropped} of 300 found the socket full");
}

/// Hosts that are not needed any more are gone, whatever was under way.
#[test]
fn nothing_is_left_of_hosts_that_are_dropped() {
    let pair = connected(&Setup::default());
    let face = pair.hosts[0].kernel.face();
    pair.spawn(0, 0, move |cpu| {
        Box::pin(async move {
            let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let socket = face.network().udp(&cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            let to = SocketAddrV4::new(ADDRESSES[1], PORT);
            let _ = socket.send_to(&cpu, to, Segment { at: pages.start, length: 100 }).await;
            let _ = face.network().connect(&cpu, SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), 1)).await;
        })
    });
    pair.run_for(Duration::from_us(200));
    let kernels = [0, 1].map(|host: usize| std::rc::Rc::downgrade(&pair.hosts[host].kernel.face()));
    drop(pair);
    assert_eq!(kernels.map(|kernel| kernel.strong_count()), [0, 0]);
}
