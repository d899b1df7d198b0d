//! Drives with two ports: both paths lead to the same blocks, and one that goes leaves the other.

use std::ops::Range;

use hardware::memory::Cause;
use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::computer::{Computer, Computers};
use platform::Error;
use platform::block::{BlockOp, Segment};
use platform::cpu::CpuId;
use platform::device::PortIndex;
use platform::kernel::TaskParams;
use platform::memory::Policy;
use platform::storage::{IoCompletions, IoRequest};
use platform::sync::Completion;
use units::Duration;

const PIECE: u64 = 16_384;
const BOTH: &str = "links = [{ slot = \"slot\" }, { slot = \"slot-socket1\" }]";
const WRITE: BlockOp = BlockOp::Write { fua: false };

fn load(text: &str) -> Result<ComputerSetup, machine::Diagnostics> {
    let library = Library::built_in();
    ComputerSetup::load(&library, &Doc::<ComputerScenario>::from_text(&library, "test.toml", text))
}

fn computers(more: &str, second: &str) -> Computers {
    let text = format!(
        "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\niommu = \"strict\"\n\
         [[host.device]]\ndrive = \"pm1725a-dual\"\n{second}\n{more}"
    );
    let setup = load(&text).unwrap_or_else(|error| panic!("{error}"));
    let computers = Computers::new(&setup).unwrap_or_else(|error| panic!("{error}"));
    computers.boot().unwrap();
    computers
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..PIECE).map(|n| (n % 251) as u8 ^ (n >> 8) as u8 ^ seed).collect()
}

/// Direct requests for a device of a host, one after the other: what was read, and how they went.
fn access(
    computers: &Computers,
    host: &Computer,
    device: &'static str,
    what: Vec<(BlockOp, u64, Vec<u8>)>,
) -> Vec<Result<Vec<u8>, Error>> {
    access_on(computers, host, device, None, what)
}

/// Writes pages of the first disk while the port of the host's drive that it came by first goes; tells how many fail.
fn write_while_a_port_goes(
    computers: &Computers,
    host: &Computer,
    params: TaskParams,
    pages: Range<u64>,
) -> Completion<u32> {
    let (drive, remove) = (host.devices[0], computers.simulation().handle());
    let (face, done) = (host.kernel.face(), Completion::new());
    let told = done.clone();
    host.kernel.spawn(params, move |cpu| {
        Box::pin(async move {
            let memory = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let file = face.open_block("nvme0n1").unwrap();
            let completions = IoCompletions::new();
            let memory = vec![Segment { at: memory.start, length: 4096 }];
            let request = |n: u64| IoRequest {
                op: WRITE,
                offset: n * 4096,
                length: 4096,
                memory: memory.clone(),
                token: n,
            };
            file.submit(&cpu, pages.clone().map(request).collect(), &completions);
            cpu.sleep(Duration::from_us(10)).await;
            remove.with(|fabric, scheduler| fabric.running(scheduler).remove_path(drive, PortIndex(0)));
            let mut failed = 0;
            for _ in pages {
                failed += u32::from(completions.next().await.result.is_err());
            }
            told.complete(failed);
        })
    });
    done
}

/// The same on a core.
fn access_on(
    computers: &Computers,
    host: &Computer,
    device: &'static str,
    core: Option<u16>,
    what: Vec<(BlockOp, u64, Vec<u8>)>,
) -> Vec<Result<Vec<u8>, Error>> {
    let (face, result) = (host.kernel.face(), Completion::new());
    let told = result.clone();
    let params = TaskParams::named("test");
    let params = match core {
        Some(core) => params.on(CpuId(core)),
        None => params,
    };
    host.kernel.spawn(params, move |cpu| {
        Box::pin(async move {
            let mut all = Vec::new();
            let pages = face.alloc_pages(&cpu, 2, Policy::Local).unwrap();
            let completions = IoCompletions::new();
            for (op, offset, data) in what {
                let Some(file) = face.open_block(device) else {
                    all.push(Err(Error::NoDevice));
                    continue;
                };
                cpu.store(pages.start, &data);
                let memory = vec![Segment { at: pages.start, length: PIECE as u32 }];
                let request = IoRequest { op, offset, length: PIECE, memory, token: 0 };
                file.submit(&cpu, vec![request], &completions);
                let went = completions.next().await.result;
                let mut data = vec![0; PIECE as usize];
                cpu.load(pages.start, &mut data);
                all.push(went.map(|()| data));
            }
            face.free_pages(&cpu, pages);
            told.complete(all);
        })
    });
    computers.simulation().block_on(async move { result.wait().await }).expect("they end")
}

fn write(n: u64, seed: u8) -> (BlockOp, u64, Vec<u8>) {
    (WRITE, n * PIECE, pattern(seed))
}

fn read(n: u64) -> (BlockOp, u64, Vec<u8>) {
    (BlockOp::Read, n * PIECE, vec![0xee; PIECE as usize])
}

#[test]
fn both_sockets_of_a_host_reach_the_same_blocks_by_paths_of_their_own() {
    let computers = computers("", BOTH);
    let [host] = computers.hosts() else { panic!("one host") };
    for (n, by, other) in [(0, "nvme0n1", "nvme1n1"), (7, "nvme1n1", "nvme0n1")] {
        let seed = n as u8 + 1;
        assert!(access(&computers, host, by, vec![write(n, seed)])[0].is_ok());
        assert_eq!(access(&computers, host, other, vec![read(n)]), [Ok(pattern(seed))], "by {other}");
    }
    let nodes: Vec<_> = host.kernel.pci().iter().filter(|f| f.parent.is_some()).map(|f| f.node).collect();
    assert_eq!(nodes.len(), 2);
    assert_ne!(nodes[0], nodes[1], "each path is its own socket's");
}

#[test]
fn a_path_that_goes_leaves_the_other_and_comes_back() {
    let computers = computers("", BOTH);
    let [host] = computers.hosts() else { panic!("one host") };
    assert!(access(&computers, host, "nvme0n1", vec![write(1, 1)])[0].is_ok());
    // Writes by both paths while the first goes.
    let drive = host.devices[0];
    let under_way: Vec<_> = (0..40).map(|n| write(100 + n, n as u8)).collect();
    let done = write_while_a_port_goes(&computers, host, TaskParams::named("remover"), 10_000..10_032);
    let other = access(&computers, host, "nvme1n1", under_way);
    assert!(other.iter().all(Result::is_ok), "the other path does not notice: {:?}", host.kernel.log());
    let failed = computers.simulation().block_on(async move { done.wait().await }).unwrap();
    assert!(failed > 0, "what was under way by the first path is told to have failed");
    assert_eq!(access(&computers, host, "nvme0n1", vec![read(1)]), [Err(Error::NoDevice)]);
    let all: Vec<_> = [read(1)].into_iter().chain((0..40).map(|n| read(100 + n))).collect();
    let found = access(&computers, host, "nvme1n1", all);
    assert_eq!(found[0], Ok(pattern(1)), "what was acknowledged by the first path is there");
    for (n, data) in found[1..].iter().enumerate() {
        assert!(*data == Ok(pattern(n as u8)), "piece {n}");
    }
    // Back again it is a path again, by the next free name.
    computers
        .simulation()
        .handle()
        .with(|fabric, scheduler| fabric.running(scheduler).insert_path(drive, PortIndex(0)));
    let end = computers.simulation().now() + Duration::from_ms(2_000);
    computers.simulation().run_until(end);
    let again = ["nvme0n1", "nvme2n1"].into_iter().find(|name| host.kernel.face().open_block(name).is_some());
    let again = again.unwrap_or_else(|| panic!("{:?}", host.kernel.log()));
    assert_eq!(access(&computers, host, again, vec![read(1)]), [Ok(pattern(1))]);
}

const AS_ONE: &str = "[host.nvme_driver]\nmultipath = true\n";

/// With multipath both ports are one block device, whose requests take the port of the submitter's socket: nothing crosses between
/// the sockets, neither data nor doorbells nor interrupts, whoever submits.
#[test]
fn one_block_device_takes_the_port_of_the_submitters_socket() {
    let computers = computers(AS_ONE, BOTH);
    let [host] = computers.hosts() else { panic!("one host") };
    assert!(host.kernel.face().open_block("nvme1n1").is_none(), "paths have no devices of their own");
    let crossed = || {
        computers.simulation().handle().with(|fabric, _| {
            let links = &fabric.host(host.host).memory.counters().links;
            let of = |link: &hardware::memory::LinkCounters| {
                let causes = [Cause::Dma, Cause::MmioDoorbell, Cause::MmioRegister, Cause::Interrupt];
                causes.map(|cause| link.bytes.of(cause).get()).iter().sum::<u64>()
            };
            links.iter().map(of).sum::<u64>()
        })
    };
    // The first requests set up what each core has; then none crosses.
    for (round, core) in [0, 10, 0, 10].into_iter().enumerate() {
        let began = crossed();
        let all = (0..20).map(|n| write(n, n as u8)).chain((0..20).map(read)).collect();
        let found = access_on(&computers, host, "nvme0n1", Some(core), all);
        assert!(found.iter().all(Result::is_ok), "{found:?}");
        assert_eq!(found[39], Ok(pattern(19)));
        if round > 1 {
            assert_eq!(crossed() - began, 0, "by core {core}");
        }
    }
}

/// A port that goes is not noticed: what was under way by it goes by the other one. Back again, it is a path again.
#[test]
fn one_block_device_outlives_a_port() {
    let computers = computers(AS_ONE, BOTH);
    let [host] = computers.hosts() else { panic!("one host") };
    let drive = host.devices[0];
    let params = TaskParams::named("writer").on(CpuId(0));
    let done = write_while_a_port_goes(&computers, host, params, 0..64);
    let failed = computers.simulation().block_on(async move { done.wait().await }).unwrap();
    assert_eq!(failed, 0, "{:?}", host.kernel.log());
    let all = [write(3, 9), read(3)];
    assert_eq!(access_on(&computers, host, "nvme0n1", Some(0), all.into())[1], Ok(pattern(9)));
    let handle = computers.simulation().handle();
    handle.with(|fabric, scheduler| fabric.running(scheduler).insert_path(drive, PortIndex(0)));
    let end = computers.simulation().now() + Duration::from_ms(2_000);
    computers.simulation().run_until(end);
    handle.with(|fabric, scheduler| fabric.running(scheduler).remove_path(drive, PortIndex(1)));
    assert_eq!(access_on(&computers, host, "nvme0n1", Some(10), vec![read(3)]), [Ok(pattern(9))]);
}

#[test]
fn two_hosts_share_a_drive() {
    let b = "[[host]]\nname = \"b\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"modern\"\nvfs = 2\n";
    let computers = computers(b, "links = [{ slot = \"slot\" }, { host = \"b\", slot = \"slot.1\" }]");
    let [a, b] = computers.hosts() else { panic!("two hosts") };
    assert!(access(&computers, a, "nvme0n1", vec![write(3, 5)])[0].is_ok());
    assert_eq!(access(&computers, b, "nvme0n1", vec![read(3)]), [Ok(pattern(5))]);
    assert!(access(&computers, b, "nvme0n1", vec![write(4, 6)])[0].is_ok());
    assert_eq!(access(&computers, a, "nvme0n1", vec![read(4), read(3)]), [Ok(pattern(6)), Ok(pattern(5))]);
    assert_eq!(b.kernel.net().devices().len(), 3, "the NIC's virtual functions are where they belong");
}

#[test]
fn a_second_port_that_cannot_be_is_told() {
    let scenario = |drive: &str, second: &str| {
        let text = format!(
            "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n\
             [[host.device]]\n{drive}\n{second}\n"
        );
        load(&text).unwrap_err().to_string()
    };
    let (one, two) = ("drive = \"optane-900p\"", "drive = \"pm1725a-dual\"");
    for (drive, second, words) in [
        (one, BOTH, "optane-900p has one port"),
        (two, "links = [{ slot = \"slot\" }, { slot = \"nowhere\" }]", "has no slot `nowhere`"),
        (two, "links = [{ slot = \"slot\" }, { slot = \"slot\" }]", "slot `slot` is taken"),
        (two, "links = [{ slot = \"slot\" }, { host = \"z\", slot = \"slot\" }]", "there is no host `z`"),
        (two, "links = [{ lanes = 2 }, { lanes = 4 }]", "6 lanes are more than pm1725a-dual has"),
        (two, "links = []", "at least one link"),
        (two, "slot = \"slot\"\nlinks = [{ lanes = 2 }]", "`links` says where"),
        (two, "second_slot = \"slot\"", "`links` has an entry for each port"),
        ("nic = \"modern\"", "links = [{ lanes = 16 }]", "16 lanes are more than modern has"),
        (
            "nic = \"modern\"",
            "slot = \"slot\"\n[[host.device]]\nnic = \"modern\"\nslot = \"slot\"",
            "by what is in line 8",
        ),
    ] {
        let error = scenario(drive, second);
        assert!(error.contains(words), "{second}: {error}");
    }
}

/// A NIC with a link to each socket has a function below each, whose traffic passes its own link alone.
#[test]
fn each_socket_has_a_function_of_a_nic_with_two_links() {
    let text = "name = \"x\"\nsummary = \"x\"\ncable = [{ ends = [\"a\", \"b\"] }]\n\
         [[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n[[host.device]]\nname = \"octo\"\nnic = \"connectx4\"\n\
         links = [{ slot = \"slot\", lanes = 8 }, { slot = \"slot-socket1\", lanes = 8 }]\naddress = [\"10.1.0.1/24\", \"10.1.0.2/24\"]\n\
         [[host]]\nname = \"b\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"connectx4\"\naddress = \"10.1.0.3/24\"\n";
    let setup = load(text).unwrap_or_else(|error| panic!("{error}"));
    let computers = Computers::new(&setup).unwrap_or_else(|error| panic!("{error}"));
    computers.boot().unwrap();
    let host = &computers.hosts()[0];
    let functions = host.kernel.pci();
    let nodes: Vec<_> = functions.iter().filter(|f| f.parent.is_some()).map(|f| f.node).collect();
    assert_eq!(nodes, [0, 1], "a function for each socket");
    let names: Vec<_> = host.kernel.net().devices().iter().map(|one| one.name().to_string()).collect();
    assert_eq!(names, ["eth0", "eth1"]);
    computers.simulation().with(|fabric, _| {
        let links: Vec<_> = fabric.endpoint(host.devices[0]).links().collect();
        assert_eq!(links.len(), 2);
        for link in links {
            assert_eq!(fabric.wires.link(link).params().width.lanes(), 8);
        }
    });
}
