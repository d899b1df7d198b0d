//! PCIe switches of scenarios: where they are, what kernels find behind them, what they cost, and what is refused.

use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::computer::{Computers, SysNode, run, tree};
use nearfar::progress::Silent;
use units::Duration;

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
                    assert_eq!(port.config.acs_control(), services, "{iommu}");
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

/// A switch that goes takes all below it along; what is beside it goes on.
#[test]
fn a_switch_that_is_pulled_takes_what_is_below_along() {
    let setup = shipped("fio-switch");
    let computers = Computers::new(&setup).unwrap();
    computers.boot().unwrap();
    let host = &computers.hosts()[0];
    let (_, link) = host.switches[0];
    computers.simulation().with(|fabric, scheduler| fabric.pull(scheduler, link));
    computers.simulation().run_until(computers.simulation().now() + Duration::from_ms(2_000));
    let open = |name: &str| host.face(None).open_block(name).is_some();
    let found = ["nvme0n1", "nvme1n1", "nvme2n1"].map(open);
    assert_eq!(found, [false, false, true], "{:?}", host.kernel.log());
    let left = host.kernel.pci().iter().filter(|function| function.parent.is_some()).count();
    assert_eq!(left, 1, "{:?}", host.kernel.log());
    computers.simulation().with(|fabric, _| assert_eq!(fabric.wires.packets.in_flight(), 0));
    // Back again, its bridges are found as at boot, and so are the drives.
    computers.simulation().with(|fabric, scheduler| fabric.plug(scheduler, link));
    computers.simulation().run_until(computers.simulation().now() + Duration::from_ms(2_000));
    let drives = host.kernel.pci().iter().filter(|function| function.identity.class == 0x01_0802).count();
    assert_eq!(drives, 3, "{:?}", host.kernel.log());
}

#[test]
fn places_that_cannot_be_are_told() {
    let host = "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n";
    let switch = "[[host.switch]]\nname = \"sw\"\npart = \"pex8733\"\nslot = \"slot\"\n";
    let drive = |slot: &str| format!("[[host.device]]\ndrive = \"optane-900p\"\nslot = \"{slot}\"\n");
    let one = |more: String| format!("{host}{switch}{more}");
    for (text, words) in [
        (one(drive("sw:1") + &drive("sw:1")), "`sw:1` is taken"),
        (one(drive("sw:1") + &drive("sw:1")), "by what is in line 12"),
        (one(drive("sw:0")), "`sw:1` to `sw:17`"),
        (one(drive("sw:18")), "`sw:1` to `sw:17`"),
        (one(drive("ws:1")), "host `a` has no switch `ws`"),
        (one(drive("slot")), "slot `slot` is taken"),
        (one(drive("nowhere")), "a switch's are `sw:1` and so on"),
        (format!("{host}{}", drive("sw:1")), "add a `[[host.switch]]`"),
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
                "{host}{}{}",
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
