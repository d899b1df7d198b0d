//! Clusters of hosts with NTB adapters: what a scenario says is found, and what cannot be is told at its line with a remedy.

use machine::{ClusterEnd, ComputerScenario, ComputerSetup, Diagnostics, Doc, Library};

const GOOD: &str = include_str!("../../../scenarios/lend-nvme.toml");

fn load(text: &str) -> Result<ComputerSetup, Diagnostics> {
    let library = Library::built_in();
    ComputerSetup::load(&library, &Doc::<ComputerScenario>::from_text(&library, "my.toml", text))
}

#[test]
fn who_is_joined_and_who_borrows_is_found() {
    let setup = load(GOOD).unwrap_or_else(|error| panic!("{}", error.render(false)));
    let cluster = &setup.cluster;
    assert_eq!(cluster.cables[0].ends, [ClusterEnd::Adapter(0, 1), ClusterEnd::Adapter(1, 1)]);
    let borrow = &cluster.borrows[0];
    let drive = machine::PassedSetup { device: 0, vf: None };
    assert_eq!((cluster.cables[0].lanes, borrow.by, borrow.lender, borrow.function), (8, 0, 1, drive));
    assert!(cluster.lends(&setup.hosts, 1, 0) && !cluster.lends(&setup.hosts, 0, 0));
}

/// What a function that is lent can get at, of the borrower and of its lender.
#[test]
fn what_a_lent_function_reaches_is_said() {
    let said = |iommu: &str| {
        let host = "[[host]]\nname = \"b\"\n";
        assert!(GOOD.contains(host));
        let setup = load(&GOOD.replacen(host, &format!("{host}iommu = \"{iommu}\"\n"), 1));
        let setup = setup.unwrap_or_else(|error| panic!("{}", error.render(false)));
        setup.cluster.borrows[0].reach(&setup.hosts)
    };
    for mode in ["strict", "lazy", "pass-through"] {
        assert_eq!(said(mode), "b:ssd for a: it reaches what drivers map of 1 GiB there, and nothing of b");
    }
    let without = said("off");
    assert!(
        without.contains("no IOMMU keeps it") && without.contains("all memory, devices and interrupts of b"),
        "{without}"
    );
}

/// What is told if one line is another, or others follow: the message with its line, and what would be right.
#[track_caller]
fn refused(from: &str, to: &str, message: &str, line: &str, remedy: &str) {
    assert!(GOOD.contains(from), "{from}");
    told(&GOOD.replacen(from, to, 1), message, line, remedy);
}

/// What is told of a scenario: the message, at a line that has this, and what would be right.
#[track_caller]
fn told(text: &str, message: &str, line: &str, remedy: &str) {
    let error = load(text).expect_err("should be refused").render(false);
    for part in [message, line, remedy] {
        assert!(error.contains(part), "no `{part}` in\n{error}");
    }
    let mut places = text.lines().zip(1..).filter(|(own, _)| own.contains(line));
    let is_place = |(_, number): (&str, u32)| error.contains(&format!("my.toml:{number}:"));
    assert!(places.any(is_place), "no line with `{line}` in\n{error}");
}

#[test]
fn a_cable_to_nowhere() {
    let cable = "ends = [\"a:n0\", \"b:n0\"]";
    let known = "cables lead to `a:n0`, `b:n0`";
    refused(cable, "ends = [\"a:n0\", \"b:n1\"]", "`b` has no NTB adapter `n1`", "n1\"]", known);
    refused(cable, "ends = [\"a:n0\", \"b:ssd\"]", "`b` has no NTB adapter `ssd`", "ssd\"]", known);
    refused(cable, "ends = [\"a:n0\", \"c:n0\"]", "there is no host `c`", "c:n0", known);
    refused(
        cable,
        "ends = [\"a:n0\"]",
        "a cable has two ends, not 1",
        "ends",
        "`ends = [\"a:n0\", \"b:n0\"]`",
    );
    refused(cable, "ends = [\"a:n0\", \"a:n0\"]", "both ends are at `a:n0`", "ends", "two adapters");
}

#[test]
fn more_cables_than_an_adapter_has_ports_for() {
    let cable = "[[ntb_cable]]\nname = \"cable\"\nends = [\"a:n0\", \"b:n0\"]\n";
    let three = format!("{cable}{}{}", cable.replace("cable\"", "x\""), cable.replace("cable\"", "y\""));
    refused(cable, &three, "the cables of `a:n0` take 24 lanes", "ends", "pxh830 has 16; `lanes`");
    let wide = cable.replace("name = \"cable\"", "lanes = 16");
    refused(cable, &format!("{wide}{wide}"), "take 32 lanes", "ends", "pxh830 has 16");
}

#[test]
fn two_in_one_slot() {
    refused(
        "name = \"n0\"",
        "name = \"n0\"\nslot = \"slot\"\nntb = \"pxh830\"\n[[host.device]]\nname = \"x\"\nslot = \"slot\"",
        "is taken",
        "slot = \"slot\"",
        "line",
    );
}

#[test]
fn what_cannot_be_borrowed() {
    let by = "by = \"a\"";
    refused(by, "by = \"c\"", "there is no host `c`", "by", "the hosts are `a`, `b`");
    refused(by, "by = \"b\"", "it is `b`'s own device", "by", "another host");
    let function = "function = \"b:ssd\"";
    refused(
        function,
        "function = \"b:hdd\"",
        "there is no device `hdd`",
        "hdd",
        "there are `ssd`, `n0`; other devices need a `name`",
    );
    refused(function, "function = \"b:n0\"", "an NTB adapter is not lent", "n0", "what devices are lent by");
    refused(
        function,
        "function = \"b:ssd:vf0\"",
        "it has no virtual functions",
        "ssd:vf0",
        "give the NIC `vfs`",
    );
    refused(function, "function = \"ssd\"", "`ssd` does not say on which host", "ssd", "`b:ssd`");
    refused(
        by,
        "by = \"a\"\n[[event]]\nat = \"1 ms\"\ndo = \"revoke\"\nwhat = \"b:sdd\"",
        "nobody borrows `b:sdd`",
        "b:sdd",
        "did you mean `b:ssd`?",
    );
    refused(
        by,
        "by = \"a\"\nfrom = \"2 ms\"\nuntil = \"1 ms\"",
        "it is over before it has begun",
        "until",
        "later than",
    );
    let cable = "[[ntb_cable]]\nname = \"cable\"\nends = [\"a:n0\", \"b:n0\"]\n";
    refused(cable, "", "no cable leads from `a` to `b`", "by", "a `[[ntb_cable]]` between");
}

#[test]
fn a_guest_does_not_borrow_what_its_own_host_has() {
    let start = GOOD.find("[[ntb_cable]]").expect("a cable");
    let hosts = GOOD[..start].replacen("name = \"b\"", "name = \"b\"\niommu = \"strict\"", 1);
    let vm = "[[host.vm]]\nname = \"x\"\nvcpus = \"2\"\nmemory = \"256 MiB\"\n";
    let borrow = "[[borrow]]\nfunction = \"b:ssd\"\nby = \"b/x\"\n";
    let fio = "fio --filename=/dev/nvme0n1 --rw=randread --bs=4k --runtime=1ms";
    let program = format!("[[program]]\nhost = \"b/x\"\ncpus = \"0\"\nrun = \"{fio}\"\n");
    let cable = "[[ntb_cable]]\nends = [\"a:n0\", \"b:n0\"]\n";
    // A cluster switch leads from an adapter back to itself.
    let switch = "[[cluster_switch]]\nname = \"cs\"\npart = \"ixs600\"\n\
        [[ntb_cable]]\nends = [\"a:n0\", \"cs\"]\n[[ntb_cable]]\nends = [\"b:n0\", \"cs\"]\n";
    for way in [cable, switch] {
        let text = [&hosts, vm, way, borrow, &program].concat();
        let remedy = "no `[[borrow]]`, and `devices = [\"ssd\"]` for `x`";
        told(&text, "it is `b`'s own device", "by = \"b/x\"", remedy);
    }
    let passed = [&hosts, vm, "devices = [\"ssd\"]\n", cable, &program].concat();
    if let Err(error) = load(&passed) {
        panic!("what is told to be right is refused:\n{}", error.render(false));
    }
}

#[test]
fn tables_that_are_too_small() {
    let few = "name = \"n0\"\nchange.requesters = 2";
    let text = GOOD.replace("name = \"n0\"", few);
    // Two drives at once: the root port's entry and two more.
    let second = "[[host.device]]\nname = \"other\"\ndrive = \"optane-900p\"\n[[host.device]]\nname = \"n0\"";
    let at = text.rfind("[[host.device]]\nname = \"n0\"").expect("b's adapter");
    let text = format!("{}{second}{}", &text[..at], &text[at + "[[host.device]]\nname = \"n0\"".len()..]);
    let text = text.replacen("[[program]]", "[[borrow]]\nfunction = \"b:other\"\nby = \"a\"\n[[program]]", 1);
    let few = "the adapter of `b` has too few requesters for it";
    told(&text, few, "function", "it needs 3 and pxh830 has 2");
    // The borrower's: two for the other service's mail, and one for the function's registers.
    let segments = "name = \"n0\"\nchange.segments = 2\nchange.window = \"512 MiB\"";
    let text = GOOD.replacen("name = \"n0\"", segments, 1);
    told(
        &text,
        "the adapter of `a` has too few segments for registers",
        "function",
        "it needs 3 and pxh830 has 2",
    );
}

#[test]
fn a_window_larger_than_its_bar() {
    refused(
        "iommu = \"strict\"",
        "iommu = \"strict\"\ndma_window = \"256 GiB\"",
        "the adapter of `b` has too few segments for it",
        "function",
        "`dma_window` makes that less",
    );
    refused(
        "iommu = \"strict\"",
        "iommu = \"strict\"\ndma_window = \"3 GiB\"",
        "a window of 3 GiB",
        "3 GiB",
        "a power of two",
    );
    refused(
        "ntb = \"pxh830\"",
        "ntb = \"pxh830\"\nchange.window = \"3 GiB\"",
        "a window of 3 GiB",
        "3 GiB",
        "a power of two",
    );
    refused(
        "ntb = \"pxh830\"",
        "ntb = \"pxh830\"\nchange.segments = 48",
        "48 segments",
        "48",
        "a power of two",
    );
}
