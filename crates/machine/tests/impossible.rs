//! Scenarios with computers that ask for what cannot be: each is refused when it is read, with its line and what would be right.

use machine::{ComputerScenario, ComputerSetup, Diagnostic, Diagnostics, Doc, Library};

/// Two hosts, a switch between them, a source at a port of the second, and whatever can be said of them.
const GOOD: &str = r#"name = "x"
summary = "x"
[[host]]
name = "a"
machine = "dell-t430"
nic_driver = { channels = 4, rss = [0, 3] }
nvme_driver = { queues = 4, queue_entries = 64 }
[[host.device]]
nic = "modern"
[[host.device]]
drive = "optane-900p"
[[host.route]]
to = "10.9.0.0/24"
gateway = "10.0.0.2"
[[host]]
name = "b"
machine = "dell-t430"
[[host.device]]
nic = "modern"
change.controller.ports = 2
[[switch]]
name = "s"
rate = "100 Gbit/s"
[[source]]
name = "t"
to = "10.0.0.2:5001"
rate = "25 Gbit/s"
[[cable]]
ends = ["a", "s"]
[[cable]]
ends = ["s", "b"]
[[cable]]
ends = ["t", "b:1"]
rate = "10 Gbit/s"
[[program]]
host = "a"
run = "stream"
"#;

fn load(text: &str) -> Result<ComputerSetup, Diagnostics> {
    let library = Library::built_in();
    ComputerSetup::load(&library, &Doc::<ComputerScenario>::from_text(&library, "x.toml", text))
}

/// Replaces a piece of the good one: there must be a complaint with these words, at the line with which the new piece ends.
fn refuse(cases: &[(&str, &str, &str)]) {
    for (from, to, words) in cases {
        refuse_at(from, to, to.lines().last().unwrap_or_default(), words);
    }
}

/// As [`refuse`], with what stands in the line of the complaint.
fn refuse_at(from: &str, to: &str, at: &str, words: &str) {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    let said = load(&text).err().unwrap_or_else(|| panic!("`{to}` is taken"));
    let is_meant = |one: &Diagnostic| {
        let line = text.lines().nth(one.line - 1).unwrap_or_default();
        line.contains(at) && one.to_string().contains(words)
    };
    assert!(said.iter().any(is_meant), "`{to}`: {said}");
}

#[test]
fn cables_are_no_faster_than_their_ends() {
    let setup = load(GOOD).unwrap_or_else(|said| panic!("{said}"));
    let rates: Vec<_> =
        setup.network.cables.iter().map(|cable| cable.rate.bits_per_s() / 1_000_000_000).collect();
    assert_eq!(rates, [40, 40, 10]);
    let cable = "rate = \"10 Gbit/s\"";
    refuse(&[
        (
            cable,
            "rate = \"26 Gbit/s\"",
            "more than `t` has, 25 Gbit/s (25 Gbit/s at most, or change its own `rate`",
        ),
        (cable, "rate = \"800 Gbit/s\"", "Ethernet has 1 to 400 Gbit/s"),
        (cable, "rate = \"10 Mbit/s\"", "Ethernet has 1 to 400 Gbit/s"),
        ("rate = \"25 Gbit/s\"", "rate = \"401 Gbit/s\"", "Ethernet has 1 to 400 Gbit/s"),
        ("rate = \"100 Gbit/s\"", "rate = \"1 Tbit/s\"", "Ethernet has 1 to 400 Gbit/s"),
        (
            "ends = [\"a\", \"s\"]",
            "ends = [\"a\", \"s\"]\nrate = \"50 Gbit/s\"",
            "`change.controller.rate` of its NIC",
        ),
        (
            "change.controller.ports = 2",
            "change.controller = { ports = 2, rate = \"800 Gbit/s\" }\n[[host.device]]\nnic = \"modern\"\n\
             change.controller.rate = \"800 Gbit/s\"\n[[cable]]\nends = [\"b:0\", \"b:2\"]",
            "a cable of 800 Gbit/s",
        ),
    ]);
}

#[test]
fn a_device_has_vendor_and_device_id() {
    let nic = "nic = \"modern\"";
    for id in ["hello", "8086", "zz:zz", "+086:1572", "8086:15720"] {
        for device in [nic, "drive = \"optane-900p\"", "gpu = \"k420\""] {
            let changed = format!("{device}\nchange.controller.pci_id = \"{id}\"");
            refuse(&[(nic, &changed, &format!("`{id}` is not an ID"))]);
        }
    }
}

#[test]
fn cables_switches_and_sources_are_possible() {
    let cable = "rate = \"10 Gbit/s\"";
    let switch = "rate = \"100 Gbit/s\"";
    let source = "rate = \"25 Gbit/s\"";
    refuse(&[
        (cable, "loss = 0.6\ncorruption = 0.6", "come to 1.2"),
        (cable, "loss = -0.1", "from 0 to 1"),
        (cable, "loss = nan", "`loss`"),
        (cable, "longest_delay = \"1 us\"", "add `reordering`"),
        (cable, "propagation = \"2 s\"", "1 s at most"),
        ("ends = [\"t\", \"b:1\"]", "ends = [\"t:1\", \"b:1\"]", "has one port"),
        ("ends = [\"t\", \"b:1\"]", "ends = [\"t\", \"s:255\"]", "its ports are 0 to 254"),
        ("ends = [\"t\", \"b:1\"]", "ends = [\"t\", \"b:2\"]", "it has ports 0 to 1"),
        (switch, "ports = 0", "from 1 to 255"),
        (switch, "ports = 300", "from 1 to 255"),
        (switch, "queue = \"100 B\"", "1518 B to 4 GiB"),
        (switch, "queue = \"8 GiB\"", "1518 B to 4 GiB"),
        (switch, "mark = \"384 KiB\"", "would ever be marked"),
        (switch, "latency = \"2 s\"", "1 s at most"),
        ("name = \"s\"", "name = \"a\"", "two hosts, sources, sinks or switches called `a`"),
        ("name = \"b\"", "name = \"b:1\"", "letters, digits"),
        ("name = \"b\"", "name = \"\"", "letters, digits"),
        (source, "time = \"0 ns\"", "it would send nothing"),
        (source, "start = \"5000000 s\"", "from 0 ps to 86400 s"),
        (source, "address = \"10.0.0.1\"", "a port has the address 10.0.0.1 already"),
        (source, "address = \"224.0.0.1\"", "is not an address"),
        ("to = \"10.0.0.2:5001\"", "to = \"10.0.0.2:0\"", "is not an address"),
        ("run = \"stream\"", "run = \"stream\"\nstart = \"5000000 s\"", "from 0 ps to 86400 s"),
        (
            "run = \"stream\"",
            "run = \"stream\"\nnamespace = \"eth1\"",
            "the host's network devices are `eth0`",
        ),
    ]);
    refuse_at(
        "ends = [\"t\", \"b:1\"]",
        "ends = [\"b:1\", \"s\"]",
        "name = \"t\"",
        "no cable leads to source `t`",
    );
    refuse_at(
        "[[program]]",
        "[[sink]]\nname = \"u\"\n[[program]]",
        "name = \"u\"",
        "no cable leads to sink `u`",
    );
    let taken = "[[sink]]\nname = \"u\"\naddress = \"10.0.0.1\"\n[[program]]";
    refuse_at("[[program]]", taken, "address", "has the address 10.0.0.1 already");
    refuse_at(switch, "ports = 1", "ends = [\"s\", \"b\"]", "its ports are 0 to 0");
    let capture = |port: &str| format!("[[capture]]\nport = \"{port}\"\nfile = \"x\"\n[[program]]");
    refuse_at("[[program]]", &capture("c"), "port = \"c\"", "there is no `c`");
    refuse_at("[[program]]", &capture("s:7"), "port = \"s:7\"", "cables lead to `a`, `s`");
}

#[test]
fn drivers_settings_are_any_for_the_devices() {
    let nic = "nic_driver = { channels = 4, rss = [0, 3] }";
    let nvme = "nvme_driver = { queues = 4, queue_entries = 64 }";
    refuse(&[
        (nic, "nic_driver.channels = 1000", "1 to 20"),
        (nic, "nic_driver = { channels = 4, rss = [0, 4] }", "there is no receiving queue 4 (0 to 3)"),
        (nic, "nic_driver.rss = [0, 99]", "there is no receiving queue 99 (0 to 19)"),
        (nic, "nic_driver.rss = []", "empty list"),
        (nic, "nic_driver.coalescing = \"3 s\"", "1 s at most"),
        (nic, "nic_driver.kpio_format = \"framed\"", "add `kpio`"),
        (nic, "nic_driver = { kpio = \"all\", kpio_up_to = \"64 B\" }", "give `kpio = \"up-to\"`"),
        (nic, "nic_driver.kpio = \"up-to\"", "add `kpio_up_to`"),
        (nic, "nic_driver.held_loads = \"uncached\"", "add `held_up_to`"),
        (nic, "nic_driver.held_up_to = \"64 B\"", "no NIC of host `a` keeps received frames"),
        (nic, "nic_driver.held_up_to = \"64 KiB\"", "1 to 2048 B"),
        (nic, "nic_driver.inline_up_to = \"64 B\"", "no NIC of host `a` takes packets inside"),
        (nic, "nic_driver.inline_up_to = \"1 KiB\"", "1 to 240 B"),
        (nvme, "nvme_driver.queues = 21", "1 to 20"),
        (nvme, "nvme_driver.memory_buffer = true", "no drive of host `a` has a controller memory buffer"),
        (nvme, "nvme_driver.io_timeout = \"0 ns\"", "aborted at once"),
        (nvme, "nvme_driver.sgl_threshold = \"2 GiB\"", "up to 1 GiB"),
        ("nic = \"modern\"", "nic = \"modern\"\nworn_in = true", "`worn_in` is for drives"),
    ]);
    refuse_at("nic = \"modern\"", "card = \"nfp6000\"", "nic_driver", "host `a` has no NIC");
    refuse_at("drive = \"optane-900p\"", "card = \"nfp6000\"", "nvme_driver", "host `a` has no drive");
    let small = "drive = \"optane-900p\"\nchange.controller.queue_entries = 32";
    refuse_at(
        "drive = \"optane-900p\"",
        small,
        "nvme_driver",
        "no drive of host `a` has queues of 64 entries",
    );
    // What an `off` that is spelt out leaves without effect may be one of a sweep's values.
    let off = "nic_driver = { kpio = \"off\", kpio_up_to = \"64 B\", kpio_shared = true }";
    assert!(load(&GOOD.replacen(nic, off, 1)).is_ok());
}

#[test]
fn devices_are_possible() {
    let ports = "change.controller.ports = 2";
    let drive = "drive = \"optane-900p\"";
    let all = |figures: &str| format!("change.controller = {{ {figures} }}");
    for (figures, words) in [
        ("ports = 9", "from 1 to 8"),
        ("vectors = 1", "from 2 to 1024"),
        ("tags = 5000", "`tag_bits`"),
        ("max_frame = \"70000 B\"", "from 64 to 65535"),
        ("max_fragments = 256", "from 1 to 255"),
        ("tx_queues = 257", "from 1 to 256"),
    ] {
        refuse(&[(ports, &all(figures), words)]);
    }
    for (figures, words) in [
        ("ports = 5", "from 1 to 4"),
        ("queue_pairs = 65535", "from 1 to 2047"),
        ("queue_entries = 1", "from 3 to 65536"),
        ("max_transfer = \"5 KiB\"", "a power of two from 4 KiB"),
        ("capacity = \"1000 B\"", "a multiple of"),
    ] {
        refuse(&[(drive, &format!("{drive}\n{}", all(figures)), words)]);
    }
    refuse(&[(drive, &format!("{drive}\nchange.media.channels = 100000"), "from 1 to 1024")]);
}

/// The slot of a card may be a riser, whose links it then has; wrong ones are told at the riser.
#[test]
fn risers_lead_somewhere() {
    let card = "nic = \"modern\"";
    let in_riser = format!("{card}\nslot = \"r\"");
    let riser =
        |name: &str, links: &str| format!("{in_riser}\n[[host.riser]]\nname = \"{name}\"\nlinks = [{links}]");
    let one = "{ slot = \"slot\" }";
    let setup = load(&GOOD.replacen(card, &riser("r", "{ slot = \"slot-socket1\" }"), 1));
    assert_eq!(setup.unwrap().hosts[0].devices[0].links[0].name, "slot-socket1");
    refuse(&[
        (card, &riser("r", ""), "a riser to nowhere"),
        (card, &riser("r", "{ slot = \"nowhere\" }"), "has no slot `nowhere`"),
        (
            card,
            &riser("r", "{ slot = \"slot\", lanes = 16 }, { lanes = 8 }"),
            "24 lanes are more than modern has",
        ),
    ]);
    refuse_at(card, &riser("q", one), "slot = \"r\"", "has no slot `r`");
    let twice = format!("{}\n[[host.device]]\n{in_riser}", riser("r", one));
    refuse(&[(card, &twice, "riser `r` is taken")]);
    let named = format!("{}\n[[host.device]]\nname = \"r\"\n{card}", riser("r", one));
    refuse_at(card, &named, "name = \"r\"", "two switches, risers or devices called `r`");
}

#[test]
fn routes_lead_somewhere() {
    let (to, gateway) = ("to = \"10.9.0.0/24\"", "gateway = \"10.0.0.2\"");
    refuse(&[
        (
            gateway,
            "device = \"eth7\"",
            "there is no network device `eth7` (the host's network devices are `eth0`)",
        ),
        (gateway, "gateway = \"10.0.0.1\"", "the host's own address"),
        (gateway, "gateway = \"10.7.0.1\"", "these are: 10.0.0.0/16 (eth0)"),
        (gateway, "gateway = \"10.9.0.1\"", "at no link"),
        (gateway, "gateway = \"224.0.0.1\"", "not a host's address"),
        (gateway, "gateway = \"b\"", "not a host's address"),
        (to, "to = \"10.9.0.1/24\"", "zeros behind it"),
        (
            to,
            "to = \"10.0.0.0/16\"",
            "a route to `10.0.0.0/16` is there already (one route to a network; that by eth0 counts)",
        ),
    ]);
    refuse_at(gateway, "", "to = ", "nothing says where it leads");
    refuse_at("nic = \"modern\"", "card = \"nfp6000\"", gateway, "add a NIC");
    let twice = "gateway = \"10.0.0.2\"\n[[host.route]]\ndevice = \"eth0\"\nto = \"10.9.0.0/24\"";
    refuse(&[(gateway, twice, "is there already")]);
    // A gateway may be where an earlier route leads.
    let chain = "device = \"eth0\"\n[[host.route]]\nto = \"0.0.0.0/0\"\ngateway = \"10.9.0.1\"";
    assert!(load(&GOOD.replacen(gateway, chain, 1)).is_ok());
}

/// A NIC is named as an event would name it.
#[test]
fn a_cable_leads_to_a_named_nic() {
    let named = GOOD.replacen("nic = \"modern\"\nchange", "nic = \"modern\"\nname = \"n\"\nchange", 1);
    let ends = |text: &str| {
        load(text).unwrap().network.cables.into_iter().map(|cable| cable.ends).collect::<Vec<_>>()
    };
    let by_name = named.replace("\"b\"]", "\"b:n\"]").replace("b:1", "b:n:1");
    assert_ne!(by_name, named);
    assert_eq!(ends(&by_name), ends(&named));
    refuse_at("ends = [\"t\", \"b:1\"]", "ends = [\"t\", \"b:m\"]", "ends", "`m` is not a port");
}
