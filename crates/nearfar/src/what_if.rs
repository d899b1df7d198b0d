//! What a tenth more of a resource gains, by simulating again. That is what it means to bind; the sentence that a run ends with
//! is found from counters instead, as that takes one run.

use machine::{Action, ComputerSetup, Count, DeviceFile, Figure, HostSetup, LinkGeneration, Provenance};
use units::{BitRate, Frequency};

use crate::computer::device::{link_of, raise};
use crate::computer::{self, Counts, FinishedProgram};
use crate::counters::{Binding, Kind, Resource};
use crate::progress::Progress;
use crate::tenth::{double, faster, more, more_credits, next, shorter};

/// By how much a resource can be raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Raise {
    /// A tenth more, or a tenth faster.
    Tenth,
    /// The next generation of PCIe: twice as fast.
    NextGeneration,
    /// Rings of twice as many entries, as they are powers of two.
    TwiceAsLong,
}

impl Raise {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Tenth => "a tenth more",
            Self::NextGeneration => "the next generation",
            Self::TwiceAsLong => "twice as many",
        }
    }

    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Link => Self::NextGeneration,
            Kind::Ring => Self::TwiceAsLong,
            _ => Self::Tenth,
        }
    }
}

/// What more of a resource gains.
#[derive(Clone, Debug)]
pub struct Gain {
    /// Host of the resource.
    pub host: String,
    /// The resource.
    pub resource: Resource,
    /// How much more there was of it.
    pub raise: Raise,
    /// Part by which the program's first rate is higher, or its time shorter; negative if it is worse.
    pub gain: f64,
    /// Whether the sentence names it.
    pub is_named: bool,
}

/// What more of each resource gains a program, or programs that share what binds them: such win or lose by chance alone.
#[derive(Clone, Debug)]
pub struct WhatIf {
    /// Their numbers in the scenario.
    pub programs: Vec<usize>,
    /// What the counters say.
    pub binding: Binding,
    /// What was tried, greatest gain first.
    pub gains: Vec<Gain>,
}

/// What is not worth a word: less of a gain than this.
const LITTLE: f64 = 0.005;

impl WhatIf {
    /// Whether a tenth more of what the sentence names gains more than a tenth more of anything else that was tried; `None` if
    /// it names nothing, or what cannot be raised.
    pub fn holds(&self) -> Option<bool> {
        let most = |all: &mut dyn Iterator<Item = &Gain>| all.map(|gain| gain.gain).max_by(f64::total_cmp);
        let named = most(&mut self.gains.iter().filter(|gain| gain.is_named))?;
        // Links and rings have more than a tenth more.
        let is_other = |gain: &&Gain| !gain.is_named && gain.raise == Raise::Tenth;
        let other = most(&mut self.gains.iter().filter(is_other)).unwrap_or(0.0);
        Some(named > LITTLE && other <= named + LITTLE)
    }
}

/// A resource and its host.
type Place = (String, Resource);

/// What a sentence names: one resource, or one for each phase.
fn named(binding: &Binding) -> Vec<Place> {
    match &binding.phases[..] {
        [] => binding.what.iter().cloned().collect(),
        phases => phases.iter().map(|phase| (phase.host.clone(), phase.resource.clone())).collect(),
    }
}

/// What a program uses enough of to be worth a trial, the fullest first: one of each kind on each host, beside what is named.
fn others(hosts: &[crate::counters::HostCounters], named: &[Place]) -> Vec<Place> {
    const WORTH: f64 = 0.2;
    const MOST: usize = 4;
    let on_host = |own: &crate::counters::HostCounters| {
        let used = own.resources.iter().filter(|one| one.on_path && one.share > WORTH).cloned();
        used.map(|one| (own.host.clone(), one)).collect::<Vec<Place>>()
    };
    let mut all: Vec<Place> = hosts.iter().flat_map(on_host).collect();
    all.sort_by(|(_, a), (_, b)| b.share.total_cmp(&a.share));
    let mut found: Vec<Place> = Vec::new();
    for (host, one) in all {
        let is_same = |(other, known): &&Place| (&**other, known.kind) == (&*host, one.kind);
        if found.len() < MOST && !named.iter().chain(&found).any(|known| is_same(&known)) {
            found.push((host, one));
        }
    }
    found
}

/// Simulates a scenario again for each resource that could bind one of its programs, with more of that resource.
pub fn what_if(setup: &ComputerSetup, counts: &Counts, progress: &dyn Progress) -> Vec<WhatIf> {
    // Programs of a command that share what binds them are judged by their sum.
    let mut all: Vec<WhatIf> = Vec::new();
    let mut places: Vec<Vec<(Place, bool)>> = Vec::new();
    let command = |program: usize| {
        let done = counts.done.iter().find(|done| done.number() == Some(program));
        done.and_then(|done| done.run.split_whitespace().next())
    };
    let key = |binding: &Binding| {
        let what = binding.what.clone().map(|(host, one)| (host, one.kind, one.place));
        (binding.part.clone(), what)
    };
    for counted in &counts.counted {
        let binding = counted.window.binding(counts.host_of(counted.program));
        let shares = |one: &WhatIf| {
            let is_alike = command(one.programs[0]) == command(counted.program);
            is_alike && one.binding.what.is_some() && key(&one.binding) == key(&binding)
        };
        match all.iter_mut().find(|one| shares(one)) {
            Some(one) => one.programs.push(counted.program),
            None => {
                let named = named(&binding);
                let others = others(&counted.window.hosts, &named);
                let named = named.into_iter().map(|place| (place, true));
                places.push(named.chain(others.into_iter().map(|place| (place, false))).collect());
                all.push(WhatIf { programs: vec![counted.program], binding, gains: Vec::new() });
            }
        }
    }
    // Each resource once, whoever uses it.
    let mut tried: Vec<(Place, ComputerSetup)> = Vec::new();
    for (place, _) in places.iter().flatten() {
        let is_same = |((host, one), _): &(Place, ComputerSetup)| host == &place.0 && one.is(&place.1);
        if !tried.iter().any(is_same)
            && let Some(more) = raised(setup, &place.0, &place.1)
        {
            tried.push((place.clone(), more));
        }
    }
    let setups: Vec<&ComputerSetup> = tried.iter().map(|(_, setup)| setup).collect();
    let done = computer::run_all(&setups, "with more of what could bind", progress);
    for (one, places) in all.iter_mut().zip(places) {
        for ((host, resource), is_named) in places {
            let of_place = tried.iter().position(|((other, tried), _)| *other == host && tried.is(&resource));
            let Some(Ok(more)) = of_place.map(|position| &done[position]) else { continue };
            let sum = |counts: &Counts| merit_of(counts, &one.programs);
            let Some(gain) = sum(more).zip(sum(counts)).map(|(more, own)| more / own - 1.0) else { continue };
            let raise = Raise::of(resource.kind);
            one.gains.push(Gain { host, resource, raise, gain, is_named });
        }
        one.gains.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    }
    all
}

/// What programs are judged by, together; `None` if one has not come to its end.
fn merit_of(counts: &Counts, programs: &[usize]) -> Option<f64> {
    let one = |program: usize| counts.done.iter().find(|done| done.number() == Some(program)).map(merit);
    programs.iter().map(|&program| one(program)).sum()
}

/// What a program is judged by: the first rate that it reports, or else the inverse of its first time or of its own.
fn merit(done: &FinishedProgram) -> f64 {
    let readings = done.outcome.as_ref().map(|report| &report.readings[..]).unwrap_or_default();
    let rate = readings.iter().find(|reading| reading.unit.ends_with("/s") && reading.value > 0.0);
    let frames = readings.iter().find(|reading| reading.quantity == "frames");
    let time = readings.iter().find(|reading| ["ns", "us", "µs", "ms", "s"].contains(&&*reading.unit));
    match (rate, time) {
        (Some(rate), _) => rate.value,
        (None, _) if frames.is_some() => frames.map_or(0.0, |frames| frames.value) / done.took.as_s_f64(),
        (None, Some(time)) if time.value > 0.0 => 1.0 / time.value,
        _ => 1.0 / done.took.as_s_f64(),
    }
}

/// A scenario with a tenth more of a resource; `None` if none of the figures stands for it alone.
fn raised(setup: &ComputerSetup, host: &str, resource: &Resource) -> Option<ComputerSetup> {
    let mut setup = setup.without_files();
    let number = setup.hosts.iter().position(|own| own.name == host)?;
    let (owner, part) = resource.place.split_once('/').unwrap_or((&resource.place, ""));
    let owner = owner.split(':').next()?;
    match resource.kind {
        Kind::Wire => {
            // Both ends of a cable have the same rate, and so has a switch between them.
            let rate = |rate: &mut BitRate| *rate = BitRate::from_bits_per_s(rate.bits_per_s() / 10 * 11);
            let devices = setup.hosts.iter_mut().flat_map(|host| &mut host.devices);
            for device in devices {
                if let DeviceFile::Nic(nic) = &mut device.kind {
                    rate(&mut nic.controller.rate.value);
                }
            }
            setup.network.cables.iter_mut().for_each(|cable| rate(&mut cable.rate));
        }
        Kind::Link => {
            // The fastest there is cannot be raised.
            let of_device =
                device(&mut setup.hosts[number], owner).map(|device| link_of(device).generation.value);
            if of_device.is_some_and(|generation| LinkGeneration::new(generation.get() + 1).is_none()) {
                return None;
            }
            for host in &mut setup.hosts {
                host.machine.host.port.values_mut().for_each(|port| next(&mut port.generation.value));
                host.switches.iter_mut().for_each(|switch| next(&mut switch.file.link.generation.value));
                host.devices
                    .iter_mut()
                    .for_each(|device| next(&mut link_of(&mut device.kind).generation.value));
            }
        }
        Kind::Tags if owner == "root" => {
            // What a machine's file does not state is the default.
            let provenance = Provenance::stated("assumed: like a device without extended tags")?;
            let stated = || Figure { value: Count::new(32).expect("not 0"), provenance };
            more(
                &mut setup.hosts[number]
                    .machine
                    .host
                    .root_complex
                    .peer_reads
                    .get_or_insert_with(stated)
                    .value,
            );
        }
        Kind::Device | Kind::Tags | Kind::Buffer => {
            raise(device(&mut setup.hosts[number], owner)?, resource.kind, part)?;
        }
        Kind::Dram => faster(&mut setup.hosts[number].machine.host.dram.channel_bandwidth.value),
        Kind::Interconnect => {
            faster(&mut setup.hosts[number].machine.host.interconnect.as_mut()?.bandwidth.value)
        }
        Kind::Invalidations => {
            let own = &mut setup.hosts[number];
            let iommu = own.machine.host.iommu.as_mut()?;
            shorter(&mut iommu.invalidation_latency.value);
            shorter(&mut iommu.status_write_latency.value);
            let cost = own.kernel.cost.get_mut("invalidation")?;
            cost.value = units::Cycles::new(cost.value.get() * 10 / 11);
        }
        Kind::Data => return None,
        Kind::Lines => {
            let host = &mut setup.hosts[number].machine.host;
            more(&mut host.core.line_fill_buffers.value);
            more(&mut host.prefetch.as_mut()?.super_queue.value);
        }
        Kind::Credits => {
            for host in &mut setup.hosts {
                host.machine.host.port.values_mut().for_each(|port| more_credits(&mut port.credits));
                host.devices
                    .iter_mut()
                    .for_each(|device| more_credits(&mut link_of(&mut device.kind).credits));
            }
        }
        Kind::RootPort if owner.starts_with("quadrant") => {
            let root = &mut setup.hosts[number].machine.host.root_complex;
            faster(&mut root.quadrant_rate.as_mut()?.value);
        }
        Kind::RootPort => {
            let root = &mut setup.hosts[number].machine.host.root_complex;
            match part {
                "peer-link" => faster(
                    &mut setup.hosts[number].machine.host.interconnect.as_mut()?.peer_link.as_mut()?.value,
                ),
                "writes" if owner.starts_with("stack") => more(&mut root.stack_writes.as_mut()?.value),
                "peer-writes" => shorter(&mut root.peer_write_interval.as_mut()?.value),
                "ordered-writes" => more(&mut root.ordered_writes.as_mut()?.value),
                "ordered-peer-writes" => more(&mut root.ordered_peer_writes.as_mut()?.value),
                _ => {
                    shorter(&mut root.intake_per_request.value);
                    shorter(&mut root.intake_per_line.value);
                }
            }
        }
        Kind::Lookups => {
            shorter(&mut setup.hosts[number].machine.host.iommu.as_mut()?.lookup_interval.value);
        }
        Kind::Translations => {
            let iommu = setup.hosts[number].machine.host.iommu.as_mut()?;
            more(if part == "reads" { &mut iommu.read_depth.value } else { &mut iommu.write_depth.value });
        }
        Kind::Walkers => more(&mut setup.hosts[number].machine.host.iommu.as_mut()?.walkers.value),
        Kind::Llc => shorter(&mut setup.hosts[number].machine.host.llc.device_service.value),
        Kind::Ring if part.starts_with("submission-ring") => {
            let own = &mut setup.hosts[number];
            double(&mut own.nvme_driver.as_mut()?.queue_entries.as_mut()?.value);
            let DeviceFile::Drive(drive) = device(own, owner)? else { return None };
            double(&mut drive.file.controller.queue_entries.value);
        }
        Kind::Ring => {
            for device in &mut setup.hosts[number].devices {
                let DeviceFile::Nic(nic) = &mut device.kind else { continue };
                double(&mut nic.controller.ring_entries.value);
                let defaults = nic.driver.as_mut()?;
                double(&mut defaults.rx_ring.value);
                double(&mut defaults.tx_ring.value);
            }
        }
        Kind::Replays => {
            for event in &mut setup.events {
                if let Action::ErrorRate { rate, .. } = &mut event.action {
                    *rate /= 1.1;
                }
            }
        }
        Kind::Core => {
            let frequency = &mut setup.hosts[number].machine.host.core.frequency.value;
            *frequency = Frequency::from_hz(frequency.hz() / 10 * 11);
        }
        Kind::Moderation => {
            let own = &mut setup.hosts[number];
            if let Some(time) = own.nic_driver.as_mut().and_then(|driver| driver.coalescing.as_mut()) {
                shorter(time);
            }
            let DeviceFile::Nic(nic) = device(own, owner)? else { return None };
            shorter(&mut nic.driver.as_mut()?.coalescing.value);
        }
    }
    Some(setup)
}

/// A host's device by the name that counters have for it.
fn device<'a>(host: &'a mut HostSetup, name: &str) -> Option<&'a mut DeviceFile> {
    let mut numbers = std::collections::BTreeMap::<&str, usize>::new();
    let position = host.devices.iter().position(|device| {
        let number = numbers.entry(device.kind.kind()).or_default();
        *number += 1;
        let counted = format!("{}{}", device.kind.kind(), *number - 1);
        device.name.as_deref().unwrap_or(&counted) == name
    });
    Some(&mut host.devices[position?].kind)
}
