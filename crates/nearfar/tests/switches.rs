//! PCIe switches of scenarios: where they are, what kernels find behind them, what they cost, and what is refused.

use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::computer::{Computers, SysNode, run, tree};
use nearfar::progress::Silent;
use units::Duration;

/// A host without devices.
const HOST: &str = "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n";

fn load(text: &str) -> Result<ComputerSetup, machine::Diagnostics> {
    let library = Library::built_in();
    ComputerSetup::load(&library, &Doc::<ComputerScenario>::from_text(&library, "test.toml", text))
}

fn shipped(name: &str) -> ComputerSetup {
    let library = Library::built_in();
    let doc = Doc::<ComputerScenario>::load(&library, name).unwrap();
    ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{error}"))
}

/// How many bridges are above the function with a folder.
fn depth(folder: &SysNode, name: &str) -> Option<usize> {
    if folder.folder(name).is_some() {
        return Some(0);
    }
    folder.children.iter().find_map(|child| Some(depth(child, name)? + 1))
}

#[test]
fn drives_pay_for_each_switch_above_them() {
    let setup = shipped("fio-switch");
    let trees = tree(&setup).unwrap();
    let depths =
        ["block/nvme0n1", "block/nvme1n1", "block/nvme2n1"].map(|name| depth(&trees[0].1, name).unwrap());
    // A root port alone; with it, two bridges of each switch.
    assert_eq!(depths.map(|deep| deep - depths[2]), [4, 2, 0]);
    let done = run(&setup, &Silent).unwrap();
    let latency = |n: usize| done[n].outcome.as_ref().unwrap().get("read clat mean").unwrap();
    let [two, one, none] = [latency(0), latency(1), latency(2)];
    // A read of 4 KiB passes a switch four times that are waited for: doorbell, the fetch of the command and back, and
    // the last of data, completion and interrupt. Each costs the switch's 132 or 150 ns, and its link.
    for (more, switch) in [(one - none, 0.132), (two - one, 0.150)] {
        assert!((4.0 * switch..4.0 * (switch + 0.080)).contains(&more), "{none} {one} {two} us");
    }
}

/// Where an IOMMU is on, requests between devices go by way of it, and drives behind switches work.
#[test]
fn access_is_controlled_where_an_iommu_judges_it() {
    for (iommu, services) in [("off", 0), ("strict", 0x1d)] {
        let text = include_str!("../../../scenarios/fio-switch.toml")
            .replace("machine = \"dell-t430\"", &format!("machine = \"dell-t430\"\niommu = \"{iommu}\""));
        let setup = load(&text).unwrap();
        let computers = Computers::new(&setup).unwrap();
        computers.boot().unwrap();
        computers.simulation().with(|fabric, _| {
            for &(switch, _) in &computers.hosts()[0].switches {
                for port in &fabric.switch(switch).ports()[1..] {
                    assert_eq!(port.config().acs_control(), services, "{iommu}");
                }
            }
        });
        let done = run(&setup, &Silent).unwrap();
        assert_eq!(done.len(), 3);
        for one in done {
            assert!(one.outcome.unwrap().get("read iops").unwrap() > 50_000.0);
        }
    }
}

/// Round trips between GPUs below three switches in a row pay for each switch on their way: those between both GPUs, or with
/// access control those up to the root and down. The narrowest part of a copy is always a GPU's link.
#[test]
fn gpus_in_a_row_pay_for_each_switch_on_their_way() {
    let readings = |iommu: &str| {
        let text = include_str!("../../../scenarios/gpu-row.toml");
        let setup =
            load(&text.replace("name = \"a\"", &format!("name = \"a\"\niommu = \"{iommu}\""))).unwrap();
        let done = run(&setup, &Silent).unwrap();
        ["round trip", "bandwidth"].map(|name| {
            let each = done.iter().filter_map(|one| one.outcome.as_ref().unwrap().get(name));
            each.collect::<Vec<_>>()
        })
    };
    let [straight, fast] = readings("off");
    let [by_root, slow] = readings("pass-through");
    // Of GPUs 2 and 3, 1 and 2, 0 and 1, 0 and 2.
    for (round_trips, switches) in [(&straight, [1, 2, 2, 3]), (&by_root, [6, 5, 3, 4])] {
        // A switch's 110 ns, a link's 25, and the header on the wire, there and back.
        let of_switches = |count: i32| round_trips[2] + 0.273 * f64::from(count - switches[2]);
        for (found, count) in round_trips.iter().zip(switches) {
            // Each GPU looks every 50 ns.
            assert!((found - of_switches(count)).abs() < 0.08, "{count} switches: {round_trips:?} us");
        }
    }
    // The same three switches, and 27 and 25 ns of the root complex and one more link of 25.
    let root = by_root[2] - straight[3];
    assert!((root - 2.0 * 0.077).abs() < 0.08, "{root} us");
    for rates in [&fast, &slow] {
        let [least, most] = [f64::min, f64::max].map(|pick| rates.iter().copied().reduce(pick).unwrap());
        assert!(rates.len() == 4 && most / least < 1.04, "{rates:?} GB/s");
    }
    // Writes by the root are of 64 bytes instead of 256.
    assert!(fast.iter().zip(&slow).all(|(fast, slow)| fast > slow), "{fast:?} {slow:?} GB/s");
}

/// A switch that goes takes all below it along; what is beside it goes on.
#[test]
fn a_switch_that_is_pulled_takes_what_is_below_along() {
    let setup = shipped("fio-switch");
    let computers = Computers::new(&setup).unwrap();
    computers.boot().unwrap();
    let host = &computers.hosts()[0];
    let (_, link) = host.switches[0];
    computers.simulation().with(|fabric, scheduler| fabric.running(scheduler).pull(link));
    computers.simulation().run_until(computers.simulation().now() + Duration::from_ms(2_000));
    let open = |name: &str| host.face(None).open_block(name).is_some();
    let found = ["nvme0n1", "nvme1n1", "nvme2n1"].map(open);
    assert_eq!(found, [false, false, true], "{:?}", host.kernel.log());
    let left = host.kernel.pci().iter().filter(|function| function.parent.is_some()).count();
    assert_eq!(left, 1, "{:?}", host.kernel.log());
    computers.simulation().with(|fabric, _| assert_eq!(fabric.wires.packets.in_flight(), 0));
    // Back again, its bridges are found as at boot, and so are the drives.
    computers.simulation().with(|fabric, scheduler| fabric.running(scheduler).plug(link));
    computers.simulation().run_until(computers.simulation().now() + Duration::from_ms(2_000));
    let drives = host.kernel.pci().iter().filter(|function| function.identity.class == 0x01_0802).count();
    assert_eq!(drives, 3, "{:?}", host.kernel.log());
}

/// How many endpoints have a driver once a scenario's first host has booted, and what its kernel says.
fn driven(text: &str) -> (usize, String) {
    let computers = Computers::new(&load(text).unwrap()).unwrap();
    computers.boot().unwrap();
    let kernel = &computers.hosts()[0].kernel;
    let driven = kernel.pci().iter().filter(|function| function.driver.is_some()).count();
    (driven, format!("{:?}", kernel.log()))
}

/// Room for hot-plug is given from what is left of 2 GiB: none where each of four ports has a GPU's 256 MiB, and for three of
/// four that have a drive.
#[test]
fn room_behind_slots_takes_no_address_space_from_devices_that_are_present() {
    for (device, without) in [("gpu = \"k420\"", 4), ("drive = \"optane-900p\"", 1)] {
        let mut text = HOST.replace("dell-t430", "dell-r840");
        text += "change_kernel.pci.hpmmiosize = \"512 MiB\"\n";
        for slot in ["slot", "slot-socket1", "slot-socket2", "slot-socket3"] {
            text += &format!("[[host.device]]\n{device}\nslot = \"{slot}\"\n");
        }
        let (driven, log) = driven(&text);
        assert_eq!(driven, 4, "{log}");
        assert_eq!(log.matches("with room for hot-plug").count(), without, "{log}");
    }
}

#[test]
fn places_that_cannot_be_are_told() {
    let switch = "[[host.switch]]\nname = \"sw\"\npart = \"pex8733\"\nslot = \"slot\"\n";
    let drive = |slot: &str| format!("[[host.device]]\ndrive = \"optane-900p\"\nslot = \"{slot}\"\n");
    let one = |more: String| format!("{HOST}{switch}{more}");
    for (text, words) in [
        (one(drive("sw:1") + &drive("sw:1")), "`sw:1` is taken"),
        (one(drive("sw:1") + &drive("sw:1")), "by what is in line 12"),
        (one(drive("sw:0")), "`sw:1` to `sw:17`"),
        (one(drive("sw:18")), "`sw:1` to `sw:17`"),
        (one(drive("ws:1")), "host `a` has no switch `ws`"),
        (one(drive("slot")), "slot `slot` is taken"),
        (one(drive("nowhere")), "a switch's are `sw:1` and so on"),
        (format!("{HOST}{}", drive("sw:1")), "add a `[[host.switch]]`"),
        (one(switch.into()), "two switches, risers or devices called `sw`"),
        (
            one("[[host.device]]\nname = \"sw\"\ndrive = \"optane-900p\"\n".into()),
            "two switches, risers or devices called `sw`",
        ),
        (
            one(switch.replace("\"sw\"", "\"sx\"").replace("\"slot\"", "\"sw:1\"") + &drive("sw:2")),
            "take 36 lanes",
        ),
        (
            format!(
                "{HOST}{}{}",
                switch.replace("\"slot\"", "\"sx:1\""),
                switch.replace("\"sw\"", "\"sx\"").replace("\"slot\"", "\"sw:1\"")
            ),
            "is below itself",
        ),
    ] {
        let said = load(&text).map(|_| ()).expect_err(&text).to_string();
        assert!(said.contains(words), "{words}: {said}");
    }
}
