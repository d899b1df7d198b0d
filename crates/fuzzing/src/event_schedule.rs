//! Any bytes as a schedule of events of a scenario with most that can have any: accepted or refused at a line, never a
//! panic.

use machine::{ComputerScenario, ComputerSetup, Doc, Library};

use crate::pieces::Numbers;

const BASE: &str = r#"
name = "events"
summary = "events"
switch = [{ name = "s" }]
[[host]]
name = "a"
machine = "dell-t430"
iommu = "strict"
[[host.device]]
name = "nic"
nic = "modern"
[[host.device]]
name = "ssd"
slot = "slot-socket1"
drive = "optane-900p"
[[host]]
name = "b"
machine = "dell-t430"
[[host.device]]
name = "nic"
nic = "modern"
[[cable]]
name = "c"
ends = ["a:nic", "s"]
[[cable]]
ends = ["s", "b:nic"]
[[program]]
name = "p"
host = "a"
run = "ping -c 1 10.0.0.2"
"#;

const DEEDS: [&str; 20] = [
    "move-task",
    "set-affinity",
    "cut",
    "mend",
    "error-rate",
    "poison",
    "lose-completions",
    "damage-headers",
    "mask",
    "unmask",
    "contain",
    "damage-data",
    "remove",
    "plug",
    "assign",
    "revoke",
    "set",
    "crash",
    "power-off",
    "reboot",
];
const WHATS: [&str; 14] = [
    "a",
    "b",
    "a:nic",
    "a:ssd",
    "b:nic",
    "c",
    "p",
    "s",
    "s:1",
    "a:eth0",
    "a:eth0.rx_usecs",
    "a:nvme0n1",
    "a:nic:0",
    "x:y.z",
];
const VALUES: [&str; 10] =
    ["20 us", "0", "1e-9", "0-3", "0,8", "99", "-1", "18446744073709551616", "x", "slot-socket1"];
const WHENS: [&str; 5] =
    ["a:eth0.rx_packets > 1", "b:eth0.rx_packets > 1e300", "a:eth0.nosuch > 1", "a > b", "a:nic/x/dma > 0"];

/// Tests an input: a few bytes for each event.
pub fn run(data: &[u8]) {
    let mut numbers = Numbers(data);
    let mut text = BASE.to_owned();
    for _ in 0..data.len().div_ceil(6).min(12) {
        let mut pick = |words: &[&'static str]| words[usize::from(numbers.byte()) % words.len()];
        let (deed, what, value) = (pick(&DEEDS), pick(&WHATS), pick(&VALUES));
        text += &format!("[[event]]\ndo = \"{deed}\"\nwhat = \"{what}\"\n");
        let when = pick(&WHENS);
        let (keys, time) = (numbers.byte(), numbers.byte());
        text += &match time % 4 {
            0 => format!("when = \"{when}\"\n"),
            _ => format!("at = \"{} us\"\n", u64::from(time).pow(u32::from(time) % 9)),
        };
        for (n, key) in ["to", "value", "takes"].into_iter().enumerate() {
            if keys & 1 << n != 0 {
                text += &format!("{key} = \"{value}\"\n");
            }
        }
        if keys & 8 != 0 {
            text += "rate = 1e-4\n";
        }
    }
    let library = Library::built_in();
    match ComputerSetup::load(&library, &Doc::<ComputerScenario>::from_text(&library, "fuzz.toml", &text)) {
        Ok(setup) => assert!(setup.events.iter().all(|event| !event.text.is_empty())),
        Err(complaints) => {
            let first = complaints.iter().next().expect("a reason");
            assert!(first.line > 1 || !first.file.ends_with(".toml"), "{first}");
            first.render(false);
        }
    }
}
