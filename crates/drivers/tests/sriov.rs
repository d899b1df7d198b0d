//! Virtual functions of a NIC: enabled by the kernel, driven by the NIC's driver, apart from one another.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use crate::common::streams::{bytes, receive, send};
use crate::common::{self, Pair, Setup};
use devices::nic::{NicParams, VirtualParams};
use kernel::DmaMode;
use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::device::{Dma, DmaAttributes, FunctionIndex, Token};
use platform::dma::Coherent;
use platform::kernel::Kernel;
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use units::{Duration, Iova};
use wire::nic::{DEVICE, VENDOR, VIRTUAL_DEVICE};
use wire::pcie::config::{caps, sriov};
use wire::pcie::{Bdf, FunctionAddress};

const VIRTUAL: VirtualParams = VirtualParams { count: 12, queues: 2, vectors: 3, device: VIRTUAL_DEVICE };
const PORT: u16 = 7;

fn setup(mode: DmaMode) -> Setup {
    let nic = |params: &mut NicParams| params.virtual_functions = Some(VIRTUAL);
    Setup { mode, nic, ..Setup::default() }
}

/// The physical function of host 0.
fn physical(pair: &Pair) -> FunctionAddress {
    let functions = pair.hosts[0].kernel.pci();
    functions.iter().find(|f| (f.identity.vendor, f.identity.device) == (VENDOR, DEVICE)).unwrap().address()
}

fn set_virtual_functions(pair: &Pair, count: u16) -> Result<(), Error> {
    let of = physical(pair);
    let done = pair.hosts[0].kernel.set_virtual_functions(of, count);
    pair.simulation.block_on(done).expect("the kernel answers")
}

fn devices(pair: &Pair) -> Vec<String> {
    pair.hosts[0].kernel.net().devices().iter().map(|device| device.name().to_owned()).collect()
}

#[test]
fn virtual_functions_come_and_go() {
    let pair = Pair::up(&setup(DmaMode::Strict));
    assert_eq!(set_virtual_functions(&pair, 13), Err(Error::Invalid));
    // More than eight: those behind need the upper bits of the function number.
    assert_eq!(set_virtual_functions(&pair, 12), Ok(()));
    assert_eq!(set_virtual_functions(&pair, 2), Err(Error::Busy));
    let of = physical(&pair).bdf;
    let functions = pair.hosts[0].kernel.pci();
    let virtuals: Vec<_> = functions.iter().filter(|f| f.physical == Some(of)).collect();
    assert_eq!(virtuals.len(), 12);
    for (n, function) in virtuals.iter().enumerate() {
        assert_eq!(function.bdf, Bdf::new_ari(of.bus(), 1 + n as u8));
        assert_eq!((function.identity.vendor, function.identity.device), (VENDOR, VIRTUAL_DEVICE));
        assert_eq!((function.driver, function.irqs.len()), (Some("nic"), 3));
        let (bar, before) = (function.bars[0].1, n.checked_sub(1).map(|n| virtuals[n].bars[0].1));
        assert!(before.is_none_or(|before| bar.address == before.address + before.size));
    }
    assert_eq!(devices(&pair).len(), 13);
    // The port above forwards to all of them, and the device is told so.
    let control = pair.simulation.with(|fabric, _| {
        let registers = fabric.endpoint(pair.hosts[0].nic).core.registers.config(FunctionIndex(0));
        let at =
            caps::find_extended(&|at| registers.dword(at), caps::extended_id::SRIOV).expect("it has one");
        registers.read(at + sriov::CONTROL, 2) as u16
    });
    assert_eq!(control, sriov::ENABLE | sriov::MEMORY | sriov::ARI_HIERARCHY);
    let text = pair.hosts[0].kernel.pci_text();
    assert!(text.contains(&format!("virtual of {of}")), "{text}");
    assert_eq!(set_virtual_functions(&pair, 0), Ok(()));
    assert_eq!(devices(&pair), ["eth0"]);
    assert!(pair.hosts[0].kernel.pci().iter().all(|f| f.physical.is_none()));
    // And again.
    assert_eq!(set_virtual_functions(&pair, 3), Ok(()));
    assert_eq!(devices(&pair).len(), 4);
}

#[test]
fn a_nic_without_them_says_so() {
    let pair = Pair::up(&Setup::default());
    assert_eq!(set_virtual_functions(&pair, 1), Err(Error::NotSupported));
}

/// Host, namespace and address of a device.
type End = (usize, Rc<dyn Kernel>, Ipv4Addr);

/// Host 0's physical function and two virtual ones, each in a namespace of its own, and host 1.
fn four(mode: DmaMode) -> (Pair, Vec<End>) {
    let pair = Pair::new(&setup(mode));
    set_virtual_functions(&pair, 2).unwrap();
    let faces = [
        (0, pair.hosts[0].kernel.face(), "eth0"),
        (0, pair.hosts[0].kernel.namespace(), "eth1"),
        (0, pair.hosts[0].kernel.namespace(), "eth2"),
        (1, pair.hosts[1].kernel.face(), "eth0"),
    ];
    let mut ends = Vec::new();
    for (n, (host, face, device)) in (1..).zip(faces) {
        let (address, network) = (Ipv4Addr::new(10, 0, 0, n), face.network());
        let configure = move |cpu: Cpu| -> Async<'static, _> {
            Box::pin(async move { network.configure(&cpu, device, address, 24).await })
        };
        pair.run(host, 0, configure).unwrap();
        ends.push((host, face, address));
    }
    (pair, ends)
}

#[test]
fn everybody_answers_everybodys_echoes() {
    let (pair, ends) = four(DmaMode::Strict);
    for (host, face, own) in &ends {
        for (_, _, address) in ends.iter().filter(|(_, _, address)| address != own) {
            let (network, to) = (face.network(), *address);
            let echo = pair.run(*host, 0, move |cpu| {
                Box::pin(async move {
                    let socket = network.ping(&cpu).unwrap();
                    socket.send(&cpu, to, 1, 56)?;
                    socket.recv(&cpu, cpu.now() + Duration::from_ms(5_000)).await
                })
            });
            assert_eq!(echo.map(|echo| (echo.from, echo.intact)), Ok((to, true)), "{own} asks {to}");
        }
    }
    assert_eq!(pair.hosts[0].kernel.iommu_faults(), []);
}

#[test]
fn streams_between_virtual_functions_and_over_the_wire() {
    let (pair, ends) = four(DmaMode::Strict);
    for (from, to) in [(1, 2), (2, 0), (1, 3), (3, 2)] {
        let before = pair.device(1).counters();
        let data = bytes(150_000, from as u64);
        let (host, face, address) = ends[to].clone();
        let server = pair.spawn(host, 1, move |cpu| {
            Box::pin(async move {
                let listener = face.network().listen(&cpu, SocketAddrV4::new(address, PORT), 4).unwrap();
                let stream = listener.accept(&cpu).await.unwrap();
                listener.close(&cpu);
                let received = receive(&cpu, &face, &*stream, 8192).await;
                stream.close(&cpu);
                received
            })
        });
        let (host, face, _) = ends[from].clone();
        let sent = data.clone();
        let client = pair.spawn(host, 0, move |cpu| {
            Box::pin(async move {
                let stream = face.network().connect(&cpu, SocketAddrV4::new(address, PORT)).await.unwrap();
                send(&cpu, &face, &*stream, &sent, 16_384).await;
                stream.close(&cpu);
            })
        });
        let received = pair.simulation.block_on(async move {
            client.wait().await;
            server.wait().await
        });
        assert!(received.unwrap() == data, "from {from} to {to}");
        // What stays in the NIC, the host at the other end of the wire does not see.
        if from < 3 && to < 3 {
            let asked = 1; // Who has the address?
            assert!(pair.device(1).counters().rx_packets <= before.rx_packets + asked);
        }
    }
    assert_eq!(pair.hosts[0].kernel.iommu_faults(), []);
    // Nothing stays mapped once the devices are down.
    set_virtual_functions(&pair, 0).unwrap();
    let device = pair.device(0);
    pair.run(0, 0, move |cpu| Box::pin(async move { device.stop(&cpu).await }));
    assert_eq!(pair.mapped(0), 0);
}

#[test]
fn a_reset_of_the_physical_function_brings_the_virtual_ones_back() {
    let (pair, ends) = four(DmaMode::Strict);
    pair.hosts[0].handle.set_hung(true);
    let ping = |deadline: u64| {
        let (network, to) = (ends[1].1.network(), ends[3].2);
        pair.run(0, 0, move |cpu| {
            Box::pin(async move {
                let socket = network.ping(&cpu).unwrap();
                socket.send(&cpu, to, 1, 56)?;
                socket.recv(&cpu, cpu.now() + Duration::from_ms(deadline)).await
            })
        })
    };
    assert!(ping(10).is_err(), "its firmware hangs");
    // Somebody sends by the physical function; its driver sees that nothing moves, and resets it.
    let buffers = common::Buffers::new(&pair.hosts[0].kernel);
    let device = pair.device(0);
    pair.run(0, 0, move |cpu| {
        Box::pin(async move {
            for n in 0..600 {
                let packet = buffers.packet(&cpu, &common::frame(1, 60, n), 4096);
                assert!(device.send(&cpu, packet, false).is_ok());
            }
        })
    });
    while pair.counters(0).resets.get() == 0 {
        pair.run_for(Duration::from_ms(1));
    }
    // The firmware starts anew with the function.
    pair.run_for(Duration::from_ms(50));
    pair.hosts[0].handle.set_hung(false);
    // Until the neighbour that did not answer is asked again.
    pair.run_for(Duration::from_ms(2_000));
    assert!(ping(5_000).is_ok());
    assert!(pair.hosts[0].kernel.log().iter().any(|(_, line)| line.contains("after an error of the bus")));
}

/// Takes virtual functions and does nothing with them.
#[derive(Default)]
struct Holder(RefCell<Vec<(PciDevice, Coherent)>>);

struct Held;

impl PciBinding for Held {
    fn remove<'a>(&'a self, _: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async {})
    }
}

impl PciDriver for Holder {
    fn name(&self) -> &'static str {
        "holder"
    }

    fn ids(&self) -> &[PciMatch] {
        const { &[PciMatch::device(VENDOR, VIRTUAL_DEVICE)] }
    }

    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            device.set_master(cpu, true).await;
            device.dma().set_mask(64)?;
            let memory = device.dma().alloc_coherent(cpu, 64, None)?;
            self.0.borrow_mut().push((device, memory));
            Ok(Rc::new(Held) as _)
        })
    }
}

/// A virtual function has a domain of its own: an address means its own memory, and whatever it writes to, it reaches
/// neither the other's nor the physical function's.
#[test]
fn a_virtual_function_reaches_its_own_memory_alone() {
    let holder = Rc::new(Holder::default());
    let pair = Pair::new(&Setup { others: vec![Rc::clone(&holder) as _], ..setup(DmaMode::Strict) });
    set_virtual_functions(&pair, 2).unwrap();
    let held = holder.0.borrow().clone();
    let memory = |n: usize| held[n].1;
    let (kernel, nic) = (&pair.hosts[0].kernel, pair.hosts[0].nic);
    let write = |function: u8, address: Iova, byte: u8| {
        let dma = Dma {
            function: FunctionIndex(function),
            address,
            length: 64,
            token: Token(u64::MAX),
            attributes: DmaAttributes::default(),
        };
        pair.simulation.handle().with(|fabric, scheduler| {
            fabric.running(scheduler).with_device(nic, |_, bus| bus.write(dma, &[byte; 64]));
        });
        pair.run_for(Duration::from_us(10));
    };
    let read = |n: usize| {
        let at = memory(n).cpu;
        pair.run(0, 0, move |cpu| {
            Box::pin(async move {
                let mut bytes = [0; 64];
                cpu.load(at, &mut bytes);
                bytes
            })
        })
    };
    // Indices 1 and 2 are the virtual functions, behind physical function 0. Both have the same address.
    assert_eq!(memory(0).bus, memory(1).bus);
    write(1, memory(0).bus, 0x11);
    write(2, memory(1).bus, 0x22);
    assert_eq!((read(0), read(1)), ([0x11; 64], [0x22; 64]));
    assert_eq!(kernel.iommu_faults(), []);
    // By the host's addresses nobody gets anywhere.
    let (first, second) = (held[0].0.address().bdf, held[1].0.address().bdf);
    write(1, Iova::new(memory(1).cpu.0), 0x33);
    write(2, Iova::new(memory(0).cpu.0), 0x44);
    write(2, Iova::new(memory(0).cpu.0), 0x44);
    assert_eq!((read(0), read(1)), ([0x11; 64], [0x22; 64]));
    assert_eq!(kernel.iommu_faults(), [(first, 1), (second, 2)]);
    // Disabled, they send nothing.
    set_virtual_functions(&pair, 0).unwrap();
    write(1, Iova::new(memory(1).cpu.0), 0x55);
    assert_eq!(kernel.iommu_faults(), [(first, 1), (second, 2)]);
}
