//! Functions that ignore their driver: each request is counted where it ends.

use std::collections::BTreeMap;
use std::ops::Range;

use devices::rogue::{LINE, Rogue, RogueHandle, RogueHeard, RogueTries};
use engine::{Handle, Rng, Seed};
use hardware::endpoint::EndpointId;
use hardware::root::HostId;
use hardware::{Fabric, RequestEnd};
use machine::{ComputerSetup, PassedSetup, ProgramSetup};
use platform::cpu::Async;
use platform::device::PortIndex;
use units::Duration;
use workloads::{Failure, Firmware, Report};

use super::computers::Computers;
use super::passed::Passed;
use super::programs;

/// Long enough for a posted request to arrive, wherever it goes: several times the way through two adapters and a switch.
const SETTLES: Duration = Duration::from_us(10);

/// Longest completion timeout that a function can have (base spec 7.5.3.16, range D).
const NEVER_ANSWERED: Duration = Duration::from_ms(64_000);

/// The end of a try, as reports call it.
fn end_of(end: Option<RequestEnd>, heard: Option<&RogueHeard>, names: &[String]) -> String {
    match (end, heard) {
        (Some(RequestEnd::Stopped(stop)), _) => format!("stopped by {}", stop.as_str()),
        (Some(RequestEnd::Memory(host)), _) => format!("reached memory of {}", names[host]),
        (Some(RequestEnd::Interrupt(host)), _) => format!("interrupted {}", names[host]),
        (None, None | Some(RogueHeard::Refused(_))) => "never answered".to_owned(),
        (None, Some(RogueHeard::Data(_))) => "reached a device".to_owned(),
        (None, Some(RogueHeard::Sent)) => "reached a device or nothing".to_owned(),
    }
}

/// A function of a host, and what it may attack.
#[derive(Clone)]
pub(super) struct Attacker {
    hw: Handle<Fabric>,
    who: Passed,
    host: HostId,
    /// Devices of its host.
    devices: Vec<EndpointId>,
    /// All hosts, and their names.
    hosts: Vec<HostId>,
    names: Vec<String>,
}

impl Attacker {
    /// The function of the host with this index.
    pub fn new(setup: &ComputerSetup, computers: &Computers, (host, function): (usize, PassedSetup)) -> Self {
        let own = &computers.hosts()[host];
        Self {
            hw: computers.simulation().handle(),
            who: Passed::new(&setup.hosts[host], &own.devices, function),
            host: own.host,
            devices: own.devices.clone(),
            hosts: computers.hosts().iter().map(|host| host.host).collect(),
            names: setup.hosts.iter().map(|host| host.name.clone()).collect(),
        }
    }
}

/// Functions that a program can turn rogue, by name.
pub(super) struct Functions(BTreeMap<String, Attacker>);

impl Functions {
    /// Those of a program's host or guest.
    pub fn new(setup: &ComputerSetup, computers: &Computers, entry: &ProgramSetup) -> Self {
        let all = programs::functions(setup, entry).into_iter();
        Self(all.map(|(name, own)| (name, Attacker::new(setup, computers, own))).collect())
    }
}

impl Firmware for Functions {
    fn turn_rogue(&self, function: &str, tries: u32, seed: u64) -> Async<'static, Result<Report, Failure>> {
        match self.0.get(function).cloned() {
            Some(attacker) => Box::pin(attack(attacker, tries, Seed::new(seed).component("rogue"))),
            None => Box::pin(async { Err(Failure("there is no such function".to_owned())) }),
        }
    }
}

/// Lets a function try that often to reach what is not its own, and counts where each try ends. Last come all hosts.
pub(super) async fn attack(own: Attacker, tries: u32, mut rng: Rng) -> Result<Report, Failure> {
    let Attacker { hw, who, host, devices, hosts, names } = own;
    let found = hw.with(|fabric, _| who.function(fabric));
    let (device, function) = found.ok_or_else(|| Failure("the function does not exist now".to_owned()))?;
    let handle = hw.with(|fabric, _| turn(fabric, device, rng.u64()));
    let worth = hw.with(|fabric, _| worth(fabric, host, &devices));
    let mut ends = BTreeMap::<String, u32>::new();
    for one in RogueTries::new(rng, worth).take(tries as usize) {
        let is_master =
            hw.with(|fabric, _| fabric.endpoint(device).core.registers.master(function).is_some());
        if !is_master {
            *ends.entry("stopped by bus master enable".to_owned()).or_default() += 1;
            continue;
        }
        let before = hw.with(|fabric, scheduler| {
            let before = fabric.request_ends();
            fabric.running(scheduler).with_device(device, |_, bus| handle.send(bus, function, one));
            before
        });
        let sent = hw.now();
        hw.sleep(SETTLES).await;
        while handle.heard().is_none() && hw.now().since(sent) < NEVER_ANSWERED {
            hw.sleep(SETTLES).await;
        }
        let end = hw.with(|fabric, _| fabric.request_ends()).end_since(&before, one.bytes());
        *ends.entry(end_of(end, handle.heard().as_ref(), &names)).or_default() += 1;
    }
    let mut report = Report::default();
    report.add("tries", "", tries.into());
    ends.into_iter().for_each(|(end, count)| report.add(end, "", count.into()));
    for (name, &id) in names.iter().zip(&hosts) {
        let lines = hw.with(|fabric, _| lines(fabric, id));
        report.add(format!("its lines in memory of {name}"), "", lines as f64);
    }
    Ok(report)
}

/// Lines in a host's memory that only a rogue function writes.
fn lines(fabric: &Fabric, host: HostId) -> usize {
    let written = fabric.host(host).memory.bytes().written();
    written.flat_map(|(_, bytes)| bytes.chunks(LINE.len())).filter(|line| *line == LINE).count()
}

/// Turns a device rogue. It goes on working.
fn turn(fabric: &mut Fabric, device: EndpointId, mark: u64) -> RogueHandle {
    let mut handle = None;
    fabric.endpoint_mut(device).wrap(|inner| {
        let (rogue, own) = Rogue::new(inner, mark);
        handle = Some(own);
        Box::new(rogue)
    });
    handle.expect("the wrapper was called")
}

/// Bus addresses of a host that are worth attacking: its memory, the registers and windows of its devices.
fn worth(fabric: &Fabric, host: HostId, devices: &[EndpointId]) -> Vec<Range<u64>> {
    let own = fabric.host(host);
    let mut all: Vec<_> = own.memory.bytes().ranges().collect();
    for &device in devices {
        let registers = &fabric.endpoint(device).core.registers;
        let functions =
            (0..registers.ports() as u8).flat_map(|port| registers.physical_below(PortIndex(port)));
        let bars =
            functions.flat_map(|function| (0..6).filter_map(move |n| registers.config(function).bar(n)));
        all.extend(bars.map(|bar| bar.address..bar.address + bar.size));
    }
    all
}
