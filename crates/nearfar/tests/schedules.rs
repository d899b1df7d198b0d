//! Random schedules of events on the scenarios that come with the program: whatever happens, accounts add up, programs end or are
//! told to hang, and the same seed gives the same results.
//!
//! `NEARFAR_SCHEDULES=10000 cargo test -p nearfar --test all schedules -- --ignored --nocapture` runs many, on all cores;
//! `NEARFAR_SCHEDULE=lend-pool/17` runs one of them, and shows its events. Debug builds check `computer::violations` at the end of
//! every run.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration as RealTime, Instant};

use drivers::nic::PacketSelect;
use engine::{Rng, Seed};
use machine::{
    Action, ComputerScenario, ComputerSetup, Doc, EventSetup, HostSetup, Library, LinkErrors, LinkPlace,
    MemoryPolicy, NetSetting, PassedSetup, Placement, Setting, Trigger,
};
use nearfar::Progress;
use nearfar::computer::{ComputerError, Counts, run_counted};
use rayon::prelude::*;
use units::Duration;

/// Longest real time of a run. Programs end after some simulated milliseconds or seconds, of which few are dense.
const PATIENCE: RealTime = RealTime::from_secs(300);

/// Gives up after [`PATIENCE`].
struct Patience(Instant);

impl Progress for Patience {
    fn is_awaited(&self) -> bool {
        self.0.elapsed() < PATIENCE
    }
}

/// A scenario of programs by name; `None` if it is one of pcie-bench.
fn setup(name: &str) -> Option<ComputerSetup> {
    let library = Library::built_in();
    let doc = Doc::<ComputerScenario>::load(&library, name).ok()?;
    ComputerSetup::load(&library, &doc).ok()
}

/// Draws one of several.
fn one<T: Clone>(rng: &mut Rng, all: &[T]) -> Option<T> {
    (!all.is_empty()).then(|| all[rng.below(all.len() as u64) as usize].clone())
}

/// A time, with all orders of magnitude from a microsecond to ten milliseconds alike.
fn time(rng: &mut Rng) -> Duration {
    Duration::from_ps(10f64.powf(6.0 + 4.0 * rng.unit_f64()) as u64)
}

/// Some of a host's cores.
fn cores(rng: &mut Rng, of: u32) -> Vec<u16> {
    let first = rng.below(of.into()) as u16;
    let count = 1 + rng.below(4).min(u64::from(of) - u64::from(first) - 1) as u16;
    (first..first + count).collect()
}

fn links(setup: &ComputerSetup) -> Vec<LinkPlace> {
    let cables = (0..setup.network.cables.len()).map(LinkPlace::Cable);
    let ntb_cables = (0..setup.cluster.cables.len()).map(LinkPlace::NtbCable);
    let hosts = setup.hosts.iter().enumerate();
    let of_host = hosts.flat_map(|(n, host)| {
        let switches = (0..host.switches.len()).map(move |switch| LinkPlace::Switch(n, switch));
        let devices = host.devices.iter().enumerate();
        let links = devices.flat_map(move |(d, device)| {
            (0..device.links.len() as u8).map(move |link| LinkPlace::Device(n, d, link))
        });
        switches.chain(links)
    });
    cables.chain(ntb_cables).chain(of_host).collect()
}

/// Names of the block devices of a host's own drives.
fn disks(host: &HostSetup) -> Vec<String> {
    let drives = host.devices.iter().filter_map(|device| device.kind.drive());
    drives.flat_map(|drive| drive.disks()).map(|disk| format!("disk/by-id/{}", disk.id)).collect()
}

/// What a setting can be, where the scenario has something to set.
fn setting(setup: &ComputerSetup, rng: &mut Rng) -> Option<Setting> {
    let host = rng.below(setup.hosts.len() as u64) as usize;
    let own = &setup.hosts[host];
    match rng.below(6) {
        0 | 1 => {
            let interface = one(rng, &own.interfaces)?;
            let is_team = own.teams.iter().any(|team| team.name == interface.name);
            let ring = |rng: &mut Rng| 8 << rng.below(10);
            let setting = match rng.below(if is_team { 5 } else { 8 }) {
                0 => NetSetting::Coalescing(Duration::from_us(rng.below(100))),
                1 => NetSetting::CoalescingPackets(rng.below(64) as u32),
                2 => NetSetting::Adaptive(rng.bool()),
                3 => NetSetting::Tso(rng.bool()),
                4 => NetSetting::Mtu((68 + rng.below(9000 - 68)) as u16),
                5 => NetSetting::TxRing(ring(rng)),
                6 => NetSetting::RxRing(ring(rng)),
                _ => NetSetting::Rss((0..4).map(|_| rng.below(4) as u16).collect()),
            };
            Some(Setting::Net(host, interface.name, setting))
        }
        2 => one(rng, &disks(own)).map(|disk| Setting::IoTimeout(host, disk, time(rng))),
        3 => Some(Setting::SglThreshold(host, 1 << rng.below(17))),
        4 if !setup.programs.is_empty() => {
            let program = rng.below(setup.programs.len() as u64) as usize;
            let nodes = setup.hosts[setup.programs[program].host].machine.host.memory_nodes();
            let node = rng.below(u64::from(nodes.max(1))) as u8;
            let all = [MemoryPolicy::Local, MemoryPolicy::Preferred(node), MemoryPolicy::Interleave];
            one(rng, &all).map(|policy| Setting::Memory(program, policy))
        }
        _ => {
            let has_kpio = own.nic_driver.as_ref().is_some_and(|driver| driver.kpio.is_some());
            let is_placed = own.hypervisor.is_some_and(|own| own.placement != Placement::Fixed);
            let placement = [Placement::Blind, Placement::Numa, Placement::Local];
            match (has_kpio, is_placed) {
                (true, _) => {
                    one(rng, &[PacketSelect::None, PacketSelect::All]).map(|s| Setting::Packets(host, s))
                }
                (_, true) => one(rng, &placement).map(|placement| Setting::Placement(host, placement)),
                _ => None,
            }
        }
    }
}

/// One thing that may happen in a scenario; `None` if the scenario lacks what was drawn.
fn action(setup: &ComputerSetup, rng: &mut Rng) -> Option<Action> {
    let host = rng.below(setup.hosts.len() as u64) as usize;
    let own = &setup.hosts[host];
    let device = |rng: &mut Rng| {
        (!own.devices.is_empty()).then(|| (host, rng.below(own.devices.len() as u64) as usize))
    };
    match rng.below(17) {
        0 if !setup.programs.is_empty() => {
            let program = rng.below(setup.programs.len() as u64) as usize;
            let entry = &setup.programs[program];
            let of = match entry.vm {
                Some(vm) => setup.hosts[entry.host].vms[vm].vcpus.len() as u32,
                None => setup.hosts[entry.host].cores(),
            };
            Some(Action::MoveTask { program, cpus: cores(rng, of) })
        }
        1 => {
            let virtuals = |name: &String| own.teams.iter().any(|team| team.name == *name);
            let nets = own.interfaces.iter().map(|own| own.name.clone()).filter(|name| !virtuals(name));
            let all: Vec<String> = nets.chain(disks(own)).collect();
            let device = one(rng, &all)?;
            let number = rng.bool().then(|| rng.below(4) as usize);
            Some(Action::SetAffinity { host, device, number, cpus: cores(rng, own.cores()) })
        }
        2..=5 => one(rng, &links(setup)).map(|link| Action::Link { link, up: rng.bool() }),
        6 => one(rng, &links(setup)).map(|link| {
            let all = [LinkErrors::Bits, LinkErrors::Poisoned, LinkErrors::LostCompletions];
            let errors = match link {
                LinkPlace::Cable(_) => LinkErrors::Bits,
                _ => all[rng.below(3) as usize],
            };
            Action::ErrorRate { link, errors, rate: 10f64.powf(-3.0 - 6.0 * rng.unit_f64()) }
        }),
        7 | 8 => device(rng).map(|device| Action::Device { device, present: rng.bool() }),
        9 => {
            let (host, device) = device(rng)?;
            let link = rng.below(own.devices[device].links.len() as u64) as u8;
            let slots = 1 + own.devices[device].links[usize::from(link)].others.len() as u64;
            (slots > 1)
                .then(|| Action::Assign { link: (host, device, link), slot: rng.below(slots) as usize })
        }
        10 if !setup.cluster.borrows.is_empty() => {
            Some(Action::Revoke(rng.below(setup.cluster.borrows.len() as u64) as usize))
        }
        11 | 12 => setting(setup, rng).map(Action::Set),
        13 => Some(if rng.bool() { Action::Crash(host) } else { Action::PowerOff(host) }),
        14 if !own.vms.is_empty() => Some(Action::PowerOffVm(host, rng.below(own.vms.len() as u64) as usize)),
        15 => {
            // Whole devices: its driver goes on with one that ignores it.
            let (host, device) = device(rng)?;
            (own.devices[device].links.len() == 1).then(|| Action::Rogue {
                host,
                function: PassedSetup { device, vf: None },
                tries: 1 + rng.below(8) as u32,
                seed: None,
            })
        }
        16 => Some(Action::Reboot(host, Duration::from_us(1000 + rng.below(2000)))),
        _ => None,
    }
}

/// The scenario with some events at random times. Short ones end with all hosts' power.
fn scheduled(name: &str, number: u64, is_short: bool) -> Option<ComputerSetup> {
    let mut setup = setup(name)?;
    let rng = &mut Seed::new(number).component(name);
    setup.seed = number;
    let count = 1 + rng.below(6);
    let mut events: Vec<(Duration, Action)> =
        (0..20).filter_map(|_| Some((time(rng), action(&setup, rng)?))).take(count as usize).collect();
    if is_short {
        let end = Duration::from_us(300 + rng.below(2_700));
        events.extend((0..setup.hosts.len()).map(|host| (end, Action::PowerOff(host))));
    }
    let event = |(at, action): (Duration, Action)| EventSetup {
        trigger: Trigger::At(at),
        text: format!("{action:?}"),
        action,
    };
    setup.events.extend(events.into_iter().map(event));
    Some(setup)
}

/// All that a run tells.
fn told(counts: &Counts) -> String {
    format!("{:?}\n{:?}\n{:?}\n{:?}", counts.done, counts.accounts, counts.counted, counts.warnings)
}

fn run(setup: &ComputerSetup) -> Result<String, String> {
    let counted = catch_unwind(AssertUnwindSafe(|| run_counted(setup, &Patience(Instant::now()))));
    match counted {
        Ok(Ok(counts)) => Ok(told(&counts)),
        Ok(Err(ComputerError::Unwanted)) => Err(format!("it hangs: no end after {PATIENCE:?}")),
        Ok(Err(error)) => Err(format!("it does not run: {error}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned())
        }
    }
}

/// Runs a schedule, at times twice. Returns what is wrong.
fn problem(name: &str, number: u64, is_short: bool) -> Option<String> {
    let setup = scheduled(name, number, is_short)?;
    let events = || {
        let events = setup.events.iter().map(|event| format!("{:?} {}", event.trigger, event.text));
        events.collect::<Vec<_>>().join("\n    ")
    };
    let wrong = match run(&setup) {
        Err(wrong) => Some(wrong),
        Ok(told) if number % 8 == 0 => (run(&setup) != Ok(told)).then(|| "another result".to_owned()),
        Ok(_) => None,
    };
    wrong.map(|wrong| format!("{name}/{number}: {wrong}\n    {}", events()))
}

/// Scenarios whose programs end soon.
const SHORT: [&str; 26] = [
    "82599-send",
    "dd-verify",
    "descriptor-send",
    "dual-port",
    "fio-guest",
    "fio-remote",
    "fio-switch",
    "gpu-guest",
    "gpu-peer",
    "kpio-ping",
    "kpio-send",
    "l2fwd",
    "lend-guest",
    "lend-nvme",
    "lend-pool",
    "lend-vfs",
    "nic-guest",
    "octo",
    "octo-ssd",
    "octo-four-ssd",
    "one-disk",
    "peer-reads",
    "ping",
    "ping-vfs",
    "root-disk",
    "two-socket-nic",
];

/// A sample, on scenarios of every kind.
#[test]
fn accounts_add_up_for_schedules_of_all_kinds() {
    let all: Vec<(&str, u64)> = SHORT.iter().flat_map(|&name| (0..2).map(move |n| (name, n))).collect();
    let wrong: Vec<String> = all.par_iter().filter_map(|&(name, n)| problem(name, n, true)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "as many as NEARFAR_SCHEDULES says, for minutes or hours"]
fn accounts_add_up_for_many_schedules() {
    if let Ok(one) = std::env::var("NEARFAR_SCHEDULE") {
        let (name, number) = one.split_once('/').expect("SCENARIO/NUMBER");
        let number = number.parse().expect("a number");
        let setup = scheduled(name, number, number % 2 == 0).expect("a scenario of programs");
        setup.events.iter().for_each(|event| println!("{:?} {}", event.trigger, event.text));
        let counts = run_counted(&setup, &Patience(Instant::now())).unwrap();
        counts
            .done
            .iter()
            .for_each(|done| println!("{} {} {:?} {:?}", done.host, done.run, done.took, done.outcome));
        return;
    }
    let count: u64 =
        std::env::var("NEARFAR_SCHEDULES").map_or(1_000, |count| count.parse().expect("a number"));
    let first: u64 = std::env::var("NEARFAR_FIRST").map_or(0, |first| first.parse().expect("a number"));
    let only = std::env::var("NEARFAR_ONLY").ok();
    let names = Library::built_in().names("scenarios");
    let names: Vec<String> = names.into_iter().filter(|name| setup(name).is_some()).collect();
    let names: Vec<&String> = names
        .iter()
        .filter(|name| only.as_ref().is_none_or(|only| only.split(',').any(|own| own == *name)))
        .collect();
    let done = AtomicU64::new(0);
    let wrong: Vec<String> = (first..first + count)
        .into_par_iter()
        .filter_map(|n| {
            let (name, number) = (names[n as usize % names.len()], n / names.len() as u64);
            let began = Instant::now();
            let wrong = problem(name, number, number % 2 == 0);
            let took = began.elapsed();
            if let Some(wrong) = &wrong {
                println!("{wrong}");
            }
            if took > RealTime::from_secs(30) {
                println!("{name}/{number} took {took:?}");
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done % 100 == 0 {
                println!("{done} of {count}");
            }
            wrong
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {count}", wrong.len());
}

/// Every kind of event is among the schedules.
#[test]
fn schedules_have_all_kinds_of_events() {
    let all = SHORT.map(|name| (name, 40)).into_iter().chain([("octo-switches", 200)]);
    let setups = all.flat_map(|(name, count)| (0..count).filter_map(move |n| scheduled(name, n, false)));
    let kind = |text: &str| text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned();
    let drawn = setups.flat_map(|setup| setup.events).map(|event| kind(&event.text));
    let kinds: BTreeSet<String> = drawn.filter(|kind| kind.starts_with(char::is_uppercase)).collect();
    let all = [
        "Assign",
        "Crash",
        "Device",
        "ErrorRate",
        "Link",
        "MoveTask",
        "PowerOff",
        "PowerOffVm",
        "Reboot",
        "Revoke",
        "Rogue",
        "Set",
        "SetAffinity",
    ];
    assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), all);
}
