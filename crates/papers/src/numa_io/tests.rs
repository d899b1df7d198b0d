//! Checks of the runs: packets are complete and in order; the scheduler follows loads, devices and faults.

use std::fmt::Write;
use std::rc::Rc;

use nearfar::tester::Flow;
use nearfar::virt::placement::IoThreads;
use platform::memory::{PhysAddr, Policy};
use units::Duration;

use super::guests::Guests;
use super::*;
use crate::rig::{self, Rig};

fn options() -> Options {
    Options::whole(1)
}

fn of(point: Point, layout: &Layout) -> GuestRates {
    guests::measure(&options(), point, layout, "").unwrap()
}

#[test]
fn runs_have_names_of_their_own() {
    let names: BTreeSet<String> = runs().into_iter().map(|run| run.name).collect();
    assert_eq!(names.len(), runs().len());
}

/// A virtual NIC moves to another I/O thread and back in the middle of a stream: no packet is lost or reordered.
#[test]
fn moving_a_virtual_nic_between_threads_keeps_every_packet_in_its_place() {
    let point = Point { guest: Guest::Forwards(64, 2), vms: 2 };
    let (sent, returned, moves) = guests::moving(&options(), point, &Layout::heavy(NODES, 2)).unwrap();
    assert!(moves > 4 && sent > 500, "{sent} packets, {moves} moves");
    assert_eq!(sent, returned);
}

/// The scheduler changes its mode when the load steps up and when it falls again, but not under constant load.
#[test]
fn the_scheduler_follows_a_step_and_stays_under_constant_load() {
    let values = live(&options()).unwrap();
    assert_eq!(values["live/late"], 0.0);
    assert!(values["live/followed"] <= FOLLOWED as f64, "{values:?}");
}

/// Lets the scheduler run until it has changed nothing for longer than a migration takes. Returns the final
/// layout.
fn settled(rig: &Rig, nodes: u8) -> Layout {
    let host = rig.host(0);
    let manager = host.manager().unwrap();
    let changes = || (manager.done().switches, manager.done().moves, manager.done().refused);
    let mut before = None;
    while before != Some(changes()) {
        before = Some(changes());
        Guests(rig).pass_periods(25).unwrap();
    }
    Layout::at(nodes, homes(rig), manager.done().switches % 2 == 1)
}

/// Starting from balanced machines, or from a single remote one, the scheduler reaches the layout that the grid uses,
/// with the grid's throughput.
fn ends_as_the_grid_says(points: &[(u8, u16, u8, usize)]) {
    // A 95 % interval (1.96 deviations) is for one number. For twelve differences to hold together with 95 %, each
    // needs 99.6 % (2.87 deviations).
    const OF_TWELVE: f64 = 2.87 / 1.96;
    for &(nodes, frame, load, vms) in points {
        let point = Point { guest: Guest::Forwards(frame, load), vms };
        let still = Layout::still(nodes, vms);
        let given = of(point, &still);
        let known = values(&PointRun::new(point, still.clone()).name, &given);
        let grid = Table(&known).ends((nodes, point)).unwrap();
        // The same run need not be repeated.
        let rates = if grid == still { given } else { of(point, &grid) };
        let begins = if vms == 1 { Layout::at(nodes, vec![1], false) } else { still };
        let live = guests::scheduled(&options(), point, &begins).unwrap();
        let ended = settled(&live, nodes);
        assert_eq!(ended, grid, "{nodes} nodes, {}", point.name());
        let (live, grid) = (Guests(&live).rates(Duration::ZERO, guests::BATCHES), rates);
        let both = OF_TWELVE * (live.interval * live.gbit).hypot(grid.interval * grid.gbit);
        // Batches can be alike, and the two runs still have other phases, and other draws of what is offered.
        let both = both.max(0.015 * grid.gbit);
        assert!((live.gbit - grid.gbit).abs() <= both, "{nodes} nodes, {}: {live:?} {grid:?}", point.name());
    }
}

#[test]
fn one_machine_or_two_end_as_the_grid_says() {
    ends_as_the_grid_says(&[
        (NODES, 512, 25, 1),
        (NODES, 512, 100, 1),
        (FOUR, 512, 100, 1),
        (NODES, 512, 10, 2),
        (NODES, 512, 25, 2),
        (NODES, 512, 10, 4),
    ]);
}

#[test]
fn several_machines_end_as_the_grid_says() {
    ends_as_the_grid_says(&[
        (NODES, 1500, 25, 4),
        (NODES, 1500, 50, 4),
        (NODES, 1500, 100, 4),
        (FOUR, 512, 100, 4),
        (NODES, 512, 10, 8),
        (NODES, 512, 50, 8),
    ]);
}

/// The mechanism: data copied by an I/O thread on the other socket crosses the interconnect, and a guest's packets
/// are complete and in order wherever the guest is.
#[test]
fn only_what_is_far_crosses_and_nothing_is_lost_at_little_load() {
    let point = Point { guest: Guest::Forwards(512, 10), vms: 1 };
    let near = of(point, &Layout::light(NODES, 1));
    let far = of(point, &Layout { nodes: NODES, threads: vec![1], vms: vec![(1, 0)] });
    assert!(near.loss < 1.0 && far.loss < 1.0, "{near:?} {far:?}");
    assert!(near.link_dma < 0.02 * near.gbit && far.link_dma > 0.9 * far.gbit, "{near:?} {far:?}");
    assert!(far.threads > near.threads, "{near:?} {far:?}");
}

/// Two uplinks, one per node, and four forwarding machines, the last of which starts remote from its uplink. Takes
/// further lines of the host and of the scenario.
fn two_uplinks(of_host: &str, more: &str) -> Rig {
    let mut text = String::from(
        "[[host]]\nname = \"a\"\nmachine = \"dell-r720\"\n\
         [host.hypervisor]\nplacement = \"numa\"\nperiod = \"1 ms\"\n\
         [host.nic_driver]\nchannels = 2\nover_nodes = true\n\
         [[host.device]]\nname = \"n0\"\nnic = \"82599\"\nslot = \"slot\"\n\
         [[host.device]]\nname = \"n1\"\nnic = \"82599\"\nslot = \"slot-socket1\"\n",
    ) + of_host;
    for (n, (uplink, home)) in [(0, 0), (1, 1), (0, 0), (1, 0)].into_iter().enumerate() {
        write!(
            text,
            "[[host.vm]]\nname = \"v{n}\"\nvcpus = \"{}\"\nmemory = \"64 MiB\"\nnode = {home}\nuplink = \"n{uplink}\"\n\
             polled = true\n",
            6 * home + n + 1
        )
        .unwrap();
    }
    // Each NIC has two ports.
    for (n, to) in ["\"a/v0\", \"a/v2\"", "\"a/v1\", \"a/v3\""].into_iter().enumerate() {
        write!(
            text,
            "[[generator]]\nname = \"t{n}\"\nto = [{to}]\nframe = \"512 B\"\nload = {LOAD_OF_EACH}\n\
             [[cable]]\nends = [\"a:{}\", \"t{n}\"]\n",
            2 * n
        )
        .unwrap();
    }
    begun(&(text + more), 0)
}

/// Boots `text`, and starts forwarding on all machines but the `first` ones.
fn begun(text: &str, first: usize) -> Rig {
    let rig = Rig::boot(&options(), "numa-io", text).unwrap();
    for vm in &rig.host(0).vms()[first..] {
        rig::start(vm.kernel(), &[0], Policy::Local, "l2fwd").unwrap();
    }
    rig.pass(Duration::from_us(50));
    rig.computers.start_sources();
    rig
}

/// Share of line rate per generator: one I/O thread suffices, and two machines that share it are I/O-intensive.
const LOAD_OF_EACH: f64 = 0.1;

fn flows(rig: &Rig) -> Vec<Flow> {
    rig.computers.generators().iter().flat_map(|generator| generator.handle.flows()).collect()
}

fn set_load(rig: &Rig, load: f64) {
    rig.computers.generators().iter().for_each(|generator| generator.handle.set_load(load));
    rig.pass(Duration::from_ms(1));
}

/// Home nodes of the running machines.
fn homes(rig: &Rig) -> Vec<u8> {
    let node = |vm: &Rc<nearfar::virt::Vm>| Some(vm.memory().node_of(PhysAddr(0))?.0);
    rig.host(0).vms().iter().filter_map(node).collect()
}

/// Numbers of migrations, mode changes and refused migrations.
fn changes(rig: &Rig) -> (u64, u64, u64) {
    let done = rig.host(0).manager().unwrap().done();
    (done.moves, done.switches, done.refused)
}

/// Powers off a machine.
fn kill(rig: &Rig, vm: usize) {
    let killed = rig.host(0).vms()[vm].kill();
    rig.computers.simulation().block_on(killed).unwrap();
}

/// For each flow, packets sent and packets lost while machines forward and `happens` runs.
fn lost_while(rig: &Rig, happens: impl FnOnce(&Rig)) -> Vec<(u64, u64)> {
    set_load(rig, 0.0);
    let before = flows(rig);
    set_load(rig, LOAD_OF_EACH);
    happens(rig);
    rig.pass(Duration::from_ms(2));
    set_load(rig, 0.0);
    // Packets may be late if they wait for a core that runs another task.
    rig.pass(Duration::from_ms(8));
    let after = flows(rig);
    assert!(after.iter().all(|flow| flow.reordered + flow.damaged == 0), "{after:?}");
    let lost = |(before, after): (&Flow, &Flow)| {
        let sent = after.sent - before.sent;
        (sent, sent - (after.returned - before.returned))
    };
    before.iter().zip(&after).map(lost).collect()
}

/// A machine remote from its device moves there, once; the others stay. Removing a device and killing a machine in
/// mid-stream costs the others no packet and no reordering.
#[test]
fn machines_go_to_their_own_devices_and_faults_stay_with_whom_they_meet() {
    let rig = two_uplinks("", "");
    rig.pass(Duration::from_ms(40));
    let periods = || rig.host(0).manager().unwrap().done().periods;
    let before = periods();
    assert_eq!((changes(&rig), homes(&rig)), ((1, 0, 0), vec![0, 1, 0, 1]));

    // v0 and v2 forward through the first device; v1 and v3, whose flows come last, through the second.
    let lost = lost_while(&rig, |_| ());
    assert!(lost.iter().all(is_whole), "{lost:?}");
    let lost = lost_while(&rig, |rig| rig.computers.set_present((0, 1), false));
    assert!(lost[..2].iter().all(is_whole) && !lost[2..].iter().any(is_whole), "{lost:?}");
    let lost = lost_while(&rig, |rig| kill(rig, 2));
    assert!(is_whole(&lost[0]) && lost[1].1 > 0, "{lost:?}");
    assert!(periods() > before);
    assert_eq!(changes(&rig), (1, 0, 0));
}

/// Whether a flow was active and lost nothing.
fn is_whole(&(sent, lost): &(u64, u64)) -> bool {
    sent > 100 && lost == 0
}

/// Another host borrows a device in mid-stream, while a machine is about to move there: it gets the device, the other
/// device's machines lose no packet, and the scheduler continues.
#[test]
fn a_device_is_lent_away_from_under_its_machines() {
    let rig = two_uplinks(
        "[[host.device]]\nname = \"ntb\"\nntb = \"pxh830\"\n",
        "[[host]]\nname = \"b\"\nmachine = \"dell-r720\"\n[[host.device]]\nname = \"ntb\"\nntb = \"pxh830\"\n\
         [[ntb_cable]]\nends = [\"a:ntb\", \"b:ntb\"]\n\
         [[borrow]]\nfunction = \"a:n1\"\nby = \"b\"\nfrom = \"1 s\"\n",
    );
    let lost = lost_while(&rig, |rig| {
        let borrowed = rig.computers.simulation().block_on(rig.computers.cluster().borrow(0)).unwrap();
        assert_eq!(borrowed, Ok(()));
    });
    assert!(lost[..2].iter().all(is_whole) && !lost[2..].iter().any(is_whole), "{lost:?}");
    let all = rig.host(1).kernel.pci();
    assert_eq!(all.iter().find(|found| found.segment.0 > 0).map(|found| found.driver), Some(Some("nic")));
    // A machine was about to move, which takes time; under load, each reaches its place.
    set_load(&rig, LOAD_OF_EACH);
    rig.pass(Duration::from_ms(130));
    let settled = changes(&rig);
    assert_eq!((settled.1, settled.2, homes(&rig)), (0, 0, vec![0, 1, 0, 1]), "{settled:?}");
    let lost = lost_while(&rig, |rig| rig.pass(Duration::from_ms(10)));
    assert!(lost[..2].iter().all(is_whole), "{lost:?}");
    assert_eq!(changes(&rig), settled);
}

/// A host with 256 MiB per node, and machines with given cores, memory and home behind the NIC of node 0. A generator
/// sends to all but the first.
fn small_host(vms: &[(&str, &str, u8)], load: f64) -> String {
    let mut text = String::from(
        "[[host]]\nname = \"a\"\nmachine = \"dell-r720\"\n\
         change.host.dram.size = { value = \"256 MiB\", source = \"assumed: little\" }\n\
         [host.hypervisor]\nplacement = \"numa\"\nperiod = \"1 ms\"\n\
         [host.nic_driver]\nchannels = 2\nover_nodes = true\n\
         [[host.device]]\nname = \"nic\"\nnic = \"82599\"\nslot = \"slot\"\n",
    );
    for (n, (vcpus, memory, node)) in vms.iter().enumerate() {
        write!(
            text,
            "[[host.vm]]\nname = \"v{n}\"\nvcpus = \"{vcpus}\"\nmemory = \"{memory}\"\nnode = {node}\nuplink = \"nic\"\n\
             polled = true\n"
        )
        .unwrap();
    }
    let to: Vec<_> = (1..vms.len()).map(|n| format!("\"a/v{n}\"")).collect();
    let to = to.join(", ");
    write!(
        text,
        "[[generator]]\nname = \"t\"\nto = [{to}]\nframe = \"512 B\"\nload = {load}\n[[cable]]\nends = [\"a\", \"t\"]\n"
    )
    .unwrap();
    text
}

/// A machine does not move to a node without enough memory or cores, and is served remotely. When the machine that
/// occupies them powers off, it moves.
#[test]
fn a_machine_waits_for_room_at_its_device() {
    // Leaves less than 64 MiB, or no core besides the I/O thread's.
    for (vcpus, memory) in [("1", "208 MiB"), ("1-5", "64 MiB")] {
        let text = small_host(&[(vcpus, memory, 0), ("7", "64 MiB", 1)], LOAD_OF_EACH);
        let rig = begun(&text, 1);
        rig.pass(Duration::from_ms(10));
        assert_eq!((changes(&rig), homes(&rig)), ((0, 0, 0), vec![0, 1]), "{vcpus}");
        let lost = lost_while(&rig, |_| ());
        assert!(lost.iter().all(is_whole), "{lost:?}");
        kill(&rig, 0);
        set_load(&rig, LOAD_OF_EACH);
        rig.pass(Duration::from_ms(50));
        assert_eq!((changes(&rig), homes(&rig)), ((1, 0, 0), vec![0]), "{vcpus}");
    }
}

/// If more machines want to move than the device's node has memory for, as many move as fit; the others are served
/// remotely. A machine that fits nowhere is refused by name.
#[test]
fn of_more_machines_than_fit_the_others_stay_and_are_served() {
    let mut vms = vec![("1", "64 MiB", 0), ("7", "64 MiB", 1), ("8", "64 MiB", 1), ("9", "64 MiB", 1)];
    let rig = begun(&small_host(&vms, 2.0 * LOAD_OF_EACH), 1);
    rig.pass(Duration::from_ms(80));
    let mut homes = homes(&rig);
    homes.sort_unstable();
    assert_eq!((changes(&rig), homes), ((2, 0, 0), vec![0, 0, 0, 1]));
    let lost = lost_while(&rig, |rig| rig.pass(Duration::from_ms(1)));
    assert!(lost.iter().all(is_whole), "{lost:?}");

    vms.push(("10", "64 MiB", 1));
    let refused = Rig::boot(&options(), "numa-io", &small_host(&vms, 0.1)).err().unwrap();
    assert!(refused.contains("47:8") && refused.contains("out of memory"), "{refused}");
    assert!(refused.contains("another `node`"), "{refused}");
}

/// The NIC's node has no memory, or no core: its machines stay on the other node without loss, and the I/O thread
/// runs where cores are.
#[test]
fn a_node_with_no_memory_or_no_core_has_no_machine() {
    let of_host = [
        ("change.host.dram.sockets = { value = 1, source = \"assumed: modules taken out\" }", 1),
        ("change_kernel.scheduler.maxcpus = { value = 6, source = \"assumed: booted so\" }", 0),
    ];
    for (line, node_of_thread) in of_host {
        let text = small_host(&[("1", "64 MiB", 0), ("2", "64 MiB", 0)], LOAD_OF_EACH)
            .replace("slot = \"slot\"", "slot = \"slot-socket1\"")
            .replace("[host.hypervisor]", &format!("{line}\n[host.hypervisor]"));
        let rig = begun(&text, 1);
        rig.pass(Duration::from_ms(20));
        assert_eq!((changes(&rig), homes(&rig)), ((0, 0, 0), vec![0, 0]), "{line}");
        let kernel = &rig.host(0).kernel;
        let (thread, _) = rig.host(0).networks()[0].threads()[0];
        assert_eq!(kernel.face().node_of(kernel.core_of(thread).unwrap()).0, node_of_thread, "{line}");
        let lost = lost_while(&rig, |rig| rig.pass(Duration::from_ms(1)));
        assert!(lost.iter().all(is_whole), "{line}: {lost:?}");
    }
    let there = small_host(&[("1", "64 MiB", 0), ("7", "64 MiB", 1)], LOAD_OF_EACH)
        .replace("[host.hypervisor]", &format!("{}\n[host.hypervisor]", of_host[0].0));
    let refused = Rig::boot(&options(), "numa-io", &there).err().unwrap();
    assert!(refused.contains("node 1 of the host has no memory"), "{refused}");
}

/// With a card that has a function at each node, every machine is local: the scheduler moves none at any load, and
/// with a thread per node no DMA crosses.
#[test]
fn behind_a_card_at_every_node_nobody_moves() {
    let mut text = String::from(
        "[[host]]\nname = \"a\"\nmachine = \"dell-r720\"\n\
         [host.hypervisor]\nplacement = \"numa\"\nperiod = \"1 ms\"\n\
         [host.nic_driver]\nchannels = 1\n\
         [[host.device]]\nname = \"octo\"\nnic = \"connectx4-octo\"\n\
         links = [{ slot = \"slot\", lanes = 8 }, { slot = \"slot-socket1\", lanes = 8 }]\n\
         [[host.team]]\nname = \"team0\"\nmode = \"octo\"\nmembers = [\"octo:0\", \"octo:1\"]\n",
    );
    for n in 0..4 {
        let home = n % 2;
        write!(
            text,
            "[[host.vm]]\nname = \"v{n}\"\nvcpus = \"{}\"\nmemory = \"64 MiB\"\nnode = {home}\nuplink = \"octo\"\npolled = true\n",
            6 * home + n + 1
        )
        .unwrap();
    }
    text += "[[generator]]\nname = \"t\"\nto = [\"a/v0\", \"a/v1\", \"a/v2\", \"a/v3\"]\nframe = \"512 B\"\nload = 0.2\n\
             [[cable]]\nends = [\"a\", \"t\"]\n";
    let rig = Rig::boot(&options(), "numa-io", &text).unwrap();
    Guests(&rig).start("l2fwd").unwrap();
    rig.pass(Duration::from_us(50));
    rig.computers.start_sources();
    rig.pass(Duration::from_ms(4));
    let manager = rig.computers.hosts()[0].manager().unwrap();
    assert_eq!((manager.done().moves, manager.done().switches), (0, 0));
    set_load(&rig, 1.0);
    rig.pass(Duration::from_ms(4));
    let heavy = Guests(&rig).rates(Duration::ZERO, guests::BATCHES);
    assert_eq!((manager.done().moves, manager.done().switches), (0, 1));
    assert!(heavy.gbit > 4.0 && heavy.link_dma < 0.01 * heavy.gbit && heavy.wrong == 0, "{heavy:?}");
}
