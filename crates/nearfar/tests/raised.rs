//! The rule behind what binds: a tenth more of what is named improves the result by more than a tenth more of anything
//! else that the program uses, or nothing is said to bind.
//!
//! A few shipped scenarios here; all of them with `NEARFAR_ALL=1 cargo test --release -p nearfar --test all raised -- --nocapture`,
//! which prints each program and the share for which the rule holds; with another value, those whose names begin with it,
//! or those of a folder, such as `/tmp/mine/`.

use std::collections::BTreeMap;

use machine::{
    Action, ComputerScenario, ComputerSetup, Count, DeviceFile, Doc, Figure, HostSetup, Library,
    LinkGeneration, Provenance,
};
use nearfar::computer::{self, Counted, Counts, FinishedProgram};
use nearfar::counters::{Binding, Kind, Resource};
use nearfar::progress::Silent;
use units::{BitRate, ByteRate, Duration, Frequency};

/// What is not worth a word: less of an improvement than this.
const LITTLE: f64 = 0.005;

/// A tenth more of a number of places, at least one.
fn more(count: &mut Count) {
    let n = count.get();
    *count = Count::new(n + n.div_ceil(10)).unwrap();
}

/// A tenth less of a time.
fn shorter(time: &mut Duration) {
    *time = Duration::from_ps(time.as_ps() * 10 / 11);
}

fn faster(rate: &mut ByteRate) {
    *rate = ByteRate::from_bytes_per_s(rate.bytes_per_s() / 10 * 11);
}

/// A link has no tenth more: its next generation is twice as fast.
fn next(generation: &mut LinkGeneration) {
    if let Some(next) = LinkGeneration::new(generation.get() + 1) {
        *generation = next;
    }
}

/// A scenario with a tenth more of a resource; `None` if none of the figures stands for it alone.
fn raised(setup: &ComputerSetup, host: &str, resource: &Resource) -> Option<ComputerSetup> {
    let mut setup = setup.clone();
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
        Kind::Device | Kind::Tags => {
            let device = device(&mut setup.hosts[number], owner)?;
            match (device, part) {
                (DeviceFile::Nic(nic), "packets") => shorter(&mut nic.tx.packet_interval.value),
                (DeviceFile::Nic(nic), "received-packets") => shorter(&mut nic.rx.packet_interval.value),
                (DeviceFile::Nic(nic), "") if resource.kind == Kind::Tags => {
                    more(&mut nic.controller.tags.value)
                }
                (DeviceFile::Drive(drive), "") if resource.kind == Kind::Tags => {
                    more(&mut drive.file.controller.tags.value)
                }
                (DeviceFile::Gpu(gpu), _) if resource.kind == Kind::Tags => {
                    more(&mut gpu.copy_engine.tags.value)
                }
                (DeviceFile::Ntb(ntb), _) if resource.kind == Kind::Tags => more(&mut ntb.requesters.value),
                (DeviceFile::Drive(drive), "commands") => {
                    shorter(&mut drive.file.controller.command_interval.value)
                }
                (DeviceFile::Drive(drive), "data-path") => faster(&mut drive.file.controller.data_path.value),
                (DeviceFile::Drive(drive), "channels") => {
                    let media = &mut drive.file.media;
                    faster(&mut media.channel_rate.value);
                    media.channel_write_rate.iter_mut().for_each(|rate| faster(&mut rate.value));
                }
                (DeviceFile::Drive(drive), "dies") => {
                    shorter(&mut drive.file.media.read.value);
                    shorter(&mut drive.file.media.program.value);
                }
                (DeviceFile::Gpu(gpu), "issue") => shorter(&mut gpu.copy_engine.read_interval.value),
                (DeviceFile::Gpu(gpu), "transmit") => {
                    gpu.copy_engine.write_rate.as_mut().map(|rate| faster(&mut rate.value))?;
                }
                (DeviceFile::Card(part), "") if resource.kind == Kind::Tags => {
                    more(&mut part.dma_engine.tags.value)
                }
                _ => return None,
            }
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
        Kind::Ring => {
            // Rings are powers of two, and twice as long is the least that is more.
            let double = |count: &mut Count| *count = Count::new(2 * count.get()).expect("not 0");
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
        Kind::Buffer => match device(&mut setup.hosts[number], owner)? {
            DeviceFile::Card(part) => {
                let bytes = &mut part.dma_engine.read_buffer.value;
                *bytes = units::Bytes::new(bytes.get() + bytes.get().div_ceil(10));
            }
            DeviceFile::Drive(drive) if part == "write-buffer" => {
                let bytes = &mut drive.file.media.write_buffer.value;
                *bytes = units::Bytes::new(bytes.get() + bytes.get().div_ceil(10));
            }
            _ => return None,
        },
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

fn link_of(device: &mut DeviceFile) -> &mut machine::LinkCapability {
    match device {
        DeviceFile::Drive(drive) => &mut drive.file.link,
        DeviceFile::Nic(nic) => &mut nic.link,
        DeviceFile::Gpu(gpu) => &mut gpu.link,
        DeviceFile::Card(part) => &mut part.link,
        DeviceFile::Ntb(ntb) => &mut ntb.link,
    }
}

fn more_credits(credits: &mut machine::Credits) {
    for count in [&mut credits.ph, &mut credits.pd, &mut credits.nph, &mut credits.npd] {
        count.value += count.value.div_ceil(10);
    }
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

/// A scenario as it is, and with more of what has been tried.
struct Trials {
    setup: ComputerSetup,
    counts: Counts,
    raised: BTreeMap<(String, Kind, String), Option<Counts>>,
}

impl Trials {
    /// The first word of a program's command line.
    fn name_of(&self, program: usize) -> Option<String> {
        let done = self.counts.done.iter().find(|done| done.number() == Some(program))?;
        done.run.split_whitespace().next().map(str::to_owned)
    }

    /// By how much programs together improve with a tenth more of a resource; `None` if that cannot be tried.
    fn gain(&mut self, programs: &[usize], (host, resource): (&str, &Resource)) -> Option<f64> {
        let one = |counts: &Counts, program: usize| {
            counts.done.iter().find(|done| done.number() == Some(program)).map(merit)
        };
        let of = |counts: &Counts| programs.iter().map(|&program| one(counts, program)).sum::<Option<f64>>();
        let run = || computer::run_counted(&raised(&self.setup, host, resource)?, &Silent).ok();
        let key = (host.to_owned(), resource.kind, resource.place.clone());
        let raised = self.raised.entry(key).or_insert_with(run);
        Some(of(raised.as_ref()?)? / of(&self.counts)? - 1.0)
    }
}

/// Whether the rule holds for each program of a scenario for which it can be tried; tells what it found.
fn holds(name: &str) -> Vec<bool> {
    let library = Library::built_in();
    let doc = Doc::<ComputerScenario>::load(&library, name).unwrap();
    let setup = ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{name}: {error}"));
    let counts = computer::run_counted(&setup, &Silent).unwrap();
    let counted_all = counts.counted.clone();
    let mut trials = Trials { setup, counts, raised: BTreeMap::new() };
    let binding_of =
        |trials: &Trials, counted: &Counted| counted.window.binding(trials.counts.host_of(counted.program));
    let bindings: Vec<Binding> = counted_all.iter().map(|counted| binding_of(&trials, counted)).collect();
    let mut verdicts = Vec::new();
    for (counted, binding) in counted_all.iter().zip(&bindings) {
        // Programs that share what binds them win or lose by chance, but not together.
        let place = |counted: &Counted, binding: &Binding| {
            let what = binding.what.clone().map(|(host, one)| (host, one.kind, one.place));
            (trials.name_of(counted.program), what)
        };
        let own = place(counted, binding);
        let shares = |(other, binding): &(&Counted, &Binding)| place(other, binding) == own;
        let sharing = counted_all.iter().zip(&bindings).filter(shares);
        let programs: Vec<usize> = sharing.map(|(counted, _)| counted.program).collect();
        let named: Vec<(&str, &Resource)> = match &binding.phases[..] {
            [] => binding.what.iter().map(|(host, resource)| (&**host, resource)).collect(),
            phases => phases.iter().map(|phase| (&*phase.host, &phase.resource)).collect(),
        };
        if named.is_empty() {
            println!("holds: {name} {}: nothing binds", counted.program);
            verdicts.push(true);
            continue;
        }
        let gains: Option<Vec<f64>> = named.iter().map(|&one| trials.gain(&programs, one)).collect();
        let Some(gains) = gains else {
            println!("untried: {name} {}: {binding}", counted.program);
            continue;
        };
        // One of each kind and host, the fullest first. Links and rings are raised twofold, which is more than a tenth.
        let mut others: Vec<(&str, &Resource)> = Vec::new();
        let hosts = counted.window.hosts.iter();
        let mut all: Vec<_> =
            hosts.flat_map(|own| own.resources.iter().map(|one| (&*own.host, one))).collect();
        all.sort_by(|a, b| b.1.share.total_cmp(&a.1.share));
        let is_same = |a: (&str, &Resource), b: (&str, &Resource)| a.0 == b.0 && a.1.kind == b.1.kind;
        for one in all {
            let is_other =
                one.1.on_path && one.1.share > 0.2 && !matches!(one.1.kind, Kind::Link | Kind::Ring);
            if is_other && !named.iter().chain(&others).any(|&other| is_same(one, other)) && others.len() < 4
            {
                others.push(one);
            }
        }
        let best = gains.iter().copied().fold(f64::MIN, f64::max);
        let beaten = others.iter().filter_map(|&one| Some((one, trials.gain(&programs, one)?)));
        let beaten = beaten.filter(|(_, gain)| *gain > best + LITTLE).max_by(|a, b| a.1.total_cmp(&b.1));
        let verdict = beaten.is_none() && best > LITTLE;
        let word = if verdict { "holds" } else { "FAILS" };
        let other = beaten.map_or(String::new(), |((host, one), gain)| {
            format!("; {:.1} % by {host} {} {}", 100.0 * gain, one.kind.name(), one.place)
        });
        println!("{word}: {name} {}: {:.1} % by {binding}{other}", counted.program, 100.0 * best);
        verdicts.push(verdict);
    }
    verdicts
}

/// The files of a folder, in order.
fn scenarios_of(folder: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut names: Vec<String> = files.map(|path| path.display().to_string()).collect();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    names
}

#[test]
fn more_of_what_binds_helps_most() {
    let scenarios: Vec<String> = match std::env::var_os("NEARFAR_ALL") {
        None => ["82599-send", "fio-randread", "dd-verify", "gpu-peer", "l2fwd"].map(str::to_owned).to_vec(),
        Some(begin) => {
            let begin = begin.to_string_lossy();
            let library = Library::built_in();
            let is_of_computers = |name: &String| {
                Doc::<ComputerScenario>::load(&library, name).is_ok_and(|doc| doc.read().is_ok())
            };
            let names = match begin.ends_with('/') {
                true => scenarios_of(&begin),
                false => library.names("scenarios"),
            };
            let is_meant = |name: &String| begin == "1" || name.starts_with(&*begin);
            names.into_iter().filter(is_meant).filter(is_of_computers).collect()
        }
    };
    let verdicts: Vec<bool> = scenarios.iter().flat_map(|name| holds(name)).collect();
    let held = verdicts.iter().filter(|held| **held).count();
    println!("{held} of {} programs", verdicts.len());
    assert!(held as f64 >= 0.9 * verdicts.len() as f64);
}
