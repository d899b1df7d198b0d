//! Virtual functions of one device are lent to different hosts, as functions of their own.

use std::net::Ipv4Addr;
use std::rc::Rc;

use crate::common::{Cluster, Hosts};
use devices::nic::{Nic, NicParams, VirtualParams};
use hardware::ethernet::CableParams;
use kernel::DmaMode;
use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::device::{Device, Dma, DmaAttributes, FunctionIndex, Token};
use platform::ethernet::EthernetPort;
use units::{BitRate, Duration, Iova};
use wire::ethernet::MacAddr;
use wire::nic::VIRTUAL_DEVICE;
use wire::pcie::{Bdf, FunctionAddress, Segment};

/// The first host has a NIC, whose virtual functions it lends, with a cable to another one.
fn cluster(shape: Hosts) -> Cluster {
    let nic = |n| {
        let mut params = NicParams::modern(MacAddr::local(n));
        params.virtual_functions =
            Some(VirtualParams { count: 4, queues: 2, vectors: 3, device: VIRTUAL_DEVICE });
        Box::new(Nic::new(params).unwrap().0) as Box<dyn Device>
    };
    let nics = |host: usize| if host == 0 { vec![nic(1), nic(2)] } else { Vec::new() };
    let cluster = Cluster::build(&[DmaMode::Strict; 3], 0, shape, nics);
    let nics = cluster.hosts[0].copiers.clone();
    cluster.simulation.with(|fabric, scheduler| {
        let ends = [nics[0], nics[1]].map(|nic| fabric.ethernet_port(nic, EthernetPort(0)));
        let params =
            CableParams { rate: BitRate::gbit_per_s(40), propagation: Duration::from_ns(10), faults: None };
        let cable = fabric.connect_ethernet(ends, params);
        [false, true].into_iter().for_each(|up| fabric.running(scheduler).set_ethernet_up(cable, up));
    });
    cluster
}

/// Enables two of them; gives what the lender calls them.
fn enable(cluster: &Cluster) -> Vec<Bdf> {
    let physical = cluster.function(0, 0);
    let of = FunctionAddress { segment: Segment(0), bdf: physical };
    let enabled = cluster.hosts[0].kernel.set_virtual_functions(of, 2);
    assert_eq!(cluster.simulation.block_on(enabled), Ok(Ok(())));
    let all = cluster.hosts[0].kernel.pci();
    all.iter().filter(|function| function.physical == Some(physical)).map(|function| function.bdf).collect()
}

fn borrow(cluster: &Cluster, by: usize, function: Bdf) -> Result<FunctionAddress, Error> {
    cluster.simulation.block_on(cluster.service(by).borrow(cluster.node(0), function)).expect("it ends")
}

fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host as u8)
}

/// Whether the other borrower answers.
fn answers(cluster: &Cluster, host: usize, other: usize) -> bool {
    let network = cluster.hosts[host].kernel.face().network();
    let echo = cluster.run(host, move |cpu| {
        Box::pin(async move {
            let socket = network.ping(&cpu).unwrap();
            socket.send(&cpu, address(other), 1, 1000)?;
            socket.recv(&cpu, cpu.now() + Duration::from_ms(50)).await
        })
    });
    echo.is_ok_and(|echo| echo.intact && echo.from == address(other))
}

#[test]
fn two_of_one_nic_serve_two_hosts() {
    let cluster = cluster(Hosts::default());
    let functions = enable(&cluster);
    assert_eq!(functions.len(), 2);
    for (n, by) in [(0, 1), (1, 2)] {
        let borrowed = borrow(&cluster, by, functions[n]);
        assert!(borrowed.is_ok(), "{borrowed:?} {:?}", cluster.hosts[0].kernel.log());
        let network = cluster.hosts[by].kernel.face().network();
        let up = cluster.run(by, move |cpu: Cpu| -> Async<'static, _> {
            Box::pin(async move { network.configure(&cpu, "eth0", address(by), 24).await })
        });
        assert_eq!(up, Ok(()), "{:?}", cluster.hosts[by].kernel.log());
    }
    assert_eq!(cluster.service(0).leases(), [(functions[0], 2), (functions[1], 3)]);
    assert_eq!(borrow(&cluster, 1, functions[1]), Err(Error::Busy));
    // The NIC passes frames from one to the other.
    assert!(answers(&cluster, 1, 2) && answers(&cluster, 2, 1));
    for host in &cluster.hosts {
        assert_eq!(host.kernel.iommu_faults(), []);
    }
    // Each reaches its own borrower alone: the first's windows are nothing to the second.
    let (nic, before) = (cluster.hosts[0].copiers[0], cluster.written());
    for at in (0..64u64).map(|n| n << 30) {
        for function in [1, 2] {
            let dma = Dma {
                function: FunctionIndex(function),
                address: Iova::new(at),
                length: 64,
                token: Token(u64::MAX),
                attributes: DmaAttributes::default(),
            };
            cluster.simulation.with(|fabric, scheduler| {
                fabric.running(scheduler).with_device(nic, |_, bus| bus.write(dma, &[0xee; 64]));
            });
            cluster.run_for(Duration::from_us(1));
        }
    }
    assert_eq!(cluster.written(), before);
    let faults: Vec<Bdf> = cluster.hosts[0].kernel.iommu_faults().into_iter().map(|(of, _)| of).collect();
    assert_eq!(faults, functions, "each by its own name");
    // One goes back while the other works on.
    let given = cluster.service(1).give_back(cluster.node(0), functions[0]);
    assert_eq!(cluster.simulation.block_on(given), Ok(Ok(())));
    assert!(!answers(&cluster, 2, 1));
    assert_eq!((cluster.foreign(1), cluster.foreign(2), cluster.isolated(0)), (0, 1, 1));
    borrow(&cluster, 1, functions[0]).unwrap();
    let network = Rc::clone(&cluster.hosts[1].kernel.face()).network();
    cluster
        .run(1, move |cpu| Box::pin(async move { network.configure(&cpu, "eth0", address(1), 24).await }))
        .unwrap();
    assert!(answers(&cluster, 1, 2));
}

/// A virtual function sends payloads as large as its physical one may (base spec 9.3.5.4), so it does not go where only smaller ones pass.
#[test]
fn one_that_cannot_be_held_to_smaller_payloads_is_not_lent() {
    let cluster = cluster(Hosts { first_payload: 128, ..Hosts::default() });
    let functions = enable(&cluster);
    assert_eq!(borrow(&cluster, 1, functions[0]), Err(Error::NotSupported));
    let log = cluster.hosts[0].kernel.log();
    let said =
        format!("{} cannot be lent: payloads of 256 B pass to it, of 128 B to the adapter", functions[0]);
    assert!(log.iter().any(|(_, line)| line.contains(&said)), "{log:?}");
    assert_eq!((cluster.service(0).leases(), cluster.isolated(0)), (vec![], 0));
}
