//! Counters of computers while programs run on them, and where the programs' interrupts went.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::rc::Rc;

use machine::{ComputerSetup, HostSetup};
use platform::cpu::CpuId;
use platform::irq::Irq;
use serde::{Deserialize, Serialize};
use tester::Flow;
use units::{Duration, Time};

use super::computers::Computers;
use super::disturbances;
use super::host::Computer;
use super::observer::Observer;
use super::programs::parse;
use super::reading::reading;
use super::scope::{InterruptCore, Scope, addresses};
use crate::counters::{Moment, OfferedLoad, Resource, Samples, Waited, Window};

/// An interrupt of a device that arrived while a program ran.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Arrival {
    /// The host's name in the scenario.
    pub host: String,
    /// What the driver calls it.
    pub line: String,
    /// How often it arrived.
    pub count: u64,
    /// At which core.
    pub core: u16,
    /// Socket of that core, and of the memory that a driver takes there.
    pub core_node: u8,
    /// Socket of the device.
    pub device_node: u8,
}

/// What was counted while a program ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counted {
    /// The program's number in the scenario, behind which sources of traffic follow.
    pub program: usize,
    /// What was counted.
    pub window: Window,
    /// The devices' interrupts.
    pub arrivals: Vec<Arrival>,
}

impl Counted {
    /// Where the interrupts of NICs arrived, and those of other devices that arrived far from them: in sentences. Those
    /// at hosts that the program does not name are others'.
    pub fn placement(&self, setup: &ComputerSetup) -> Vec<String> {
        let mut notes = Vec::new();
        let program = setup.programs.get(self.program);
        let is_concerned = |&(n, host): &(usize, &HostSetup)| {
            program.is_none_or(|program| program.host == n || names(&program.command, host))
        };
        for (_, host) in setup.hosts.iter().enumerate().filter(is_concerned) {
            let arrivals: Vec<&Arrival> = self.arrivals.iter().filter(|a| a.host == host.name).collect();
            let most = arrivals.iter().map(|arrival| arrival.count).max().unwrap_or(0);
            // Not those of which a few came by the way.
            let told = |a: &&&Arrival| {
                a.count * 20 >= most && (a.line.starts_with("nic-") || a.core_node != a.device_node)
            };
            let mut cores: BTreeMap<(u8, u8), Vec<u16>> = BTreeMap::new();
            for arrival in arrivals.iter().filter(told) {
                let cores = cores.entry((arrival.device_node, arrival.core_node)).or_default();
                if !cores.contains(&arrival.core) {
                    cores.push(arrival.core);
                }
            }
            for ((device, node), cores) in cores {
                let many = if cores.len() == 1 { "core" } else { "cores" };
                let list = cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let where_to = match device == node {
                    true => format!("socket {node}, the device's"),
                    false => format!("socket {node}, REMOTE from the device on socket {device}"),
                };
                notes.push(format!(
                    "interrupts at {}: {many} {list} ({where_to}), buffers in memory of socket {node}",
                    host.name
                ));
            }
        }
        for (_, host) in setup.hosts.iter().enumerate().filter(is_concerned) {
            let counted = self.window.host(&host.name);
            notes.extend(
                counted.into_iter().flat_map(|counted| disturbances::of(counted, self.window.length)),
            );
        }
        if let Some(program) = program
            && let Some(note) = program_placement(setup, program, &self.arrivals)
        {
            notes.push(note);
        }
        notes
    }
}

/// Whether a command line has an address of a host or of its guests.
fn names(run: &str, host: &HostSetup) -> bool {
    let guests = host.vms.iter().flat_map(|vm| &vm.interfaces);
    let is_own = |address: Ipv4Addr| {
        host.interfaces.iter().chain(guests.clone()).any(|interface| interface.address == address)
    };
    addresses(run).any(is_own)
}

/// That a program runs on another socket than the devices' interrupts arrive at.
fn program_placement(
    setup: &ComputerSetup,
    program: &machine::ProgramSetup,
    arrivals: &[Arrival],
) -> Option<String> {
    // A guest's interrupts are not among those of its host's devices.
    if program.vm.is_some() {
        return None;
    }
    let host = &setup.hosts[program.host];
    let per_socket = u64::from(host.machine.host.core.count.value.get()).max(1);
    let mut sockets: Vec<u64> = program.cpus.iter().map(|&core| u64::from(core) / per_socket).collect();
    sockets.dedup();
    let [own] = sockets[..] else { return None };
    let busiest = arrivals.iter().filter(|a| a.host == host.name).max_by_key(|arrival| arrival.count)?;
    (u64::from(busiest.core_node) != own).then(|| {
        format!(
            "the program runs on socket {own} of {}, REMOTE from core {}, where most of its interrupts arrive",
            host.name, busiest.core
        )
    })
}

/// How long each host's resources have been waited for so far.
pub(crate) fn readings(setup: &ComputerSetup, computers: &Computers) -> Vec<(String, Vec<Waited>)> {
    let now = computers.simulation().now();
    computers.simulation().with(|fabric, _| {
        let hosts = computers.hosts().iter().zip(&setup.hosts);
        hosts
            .map(|(host, setup)| (host.name.clone(), reading(fabric, now, host, setup).waits(&host.name)))
            .collect()
    })
}

/// How often each interrupt of each host has arrived.
type Arrivals = Vec<BTreeMap<Irq, u64>>;

/// What all hosts have counted at one time.
struct HostCounts {
    moment: Moment,
    arrivals: Arrivals,
    /// By generator and receiver.
    flows: Vec<Vec<Flow>>,
}

/// What was counted while a program measured, once of several times.
struct CountedSpan {
    window: Window,
    from: Time,
    until: Time,
    interrupts: Vec<InterruptCore>,
    arrivals: Vec<Arrival>,
}

/// Counts from when each program starts to when it has ended.
pub struct Counting<'a> {
    setup: &'a ComputerSetup,
    /// Which programs are servers.
    serves: Vec<bool>,
    /// What each program does one after the other.
    parts: Vec<Vec<String>>,
    /// When each program began; many begin together.
    began: BTreeMap<usize, (Time, Rc<HostCounts>)>,
    /// What each program that has ended had opened.
    opened: BTreeMap<usize, BTreeSet<String>>,
    /// What was counted while programs that run measured.
    spans: BTreeMap<usize, Vec<CountedSpan>>,
    samples: Samples,
    counted: Vec<Counted>,
}

impl<'a> Counting<'a> {
    /// Counts the programs of a scenario.
    pub fn new(setup: &'a ComputerSetup) -> Self {
        // What is no valid command line is told before anything is counted.
        let programs = parse(setup).unwrap_or_default();
        let serves = programs.iter().map(|program| program.serves()).collect();
        let parts = programs.iter().map(|program| program.parts()).collect();
        let (began, opened, spans, samples, counted) = Default::default();
        Self { setup, serves, parts, began, opened, spans, samples, counted }
    }

    /// What was counted while each program ran that is no server, by their numbers.
    pub fn counted(mut self) -> Vec<Counted> {
        self.counted.sort_by_key(|counted| counted.program);
        self.counted
    }

    fn counts(&self, computers: &Computers) -> HostCounts {
        let moment = computers.moment(self.setup);
        let arrivals = |host: &Computer| {
            host.kernel.interrupts().into_iter().map(|(irq, _, _, count)| (irq, count)).collect()
        };
        let flows = computers.generators().iter().map(|generator| generator.handle.flows()).collect();
        HostCounts { moment, arrivals: computers.hosts().iter().map(arrivals).collect(), flows }
    }

    /// Cores at which interrupts of devices have arrived.
    fn interrupt_cores(&self, computers: &Computers, before: &Arrivals) -> Vec<InterruptCore> {
        let hosts = computers.hosts().iter().zip(before).enumerate();
        let of_host = |(host, (own, before)): (usize, (&Computer, &BTreeMap<Irq, u64>))| {
            let all = arrived(own, before, |_| true).into_iter();
            let core = |(function, _, core, _): ArrivedInterrupt| InterruptCore {
                host,
                device: computers.device_of(host, function.address()),
                core: core.0,
            };
            all.map(core).collect::<Vec<_>>()
        };
        hosts.flat_map(of_host).collect()
    }

    /// What was counted in a program's spans together. Marks what its work goes through, and finds what was full in parts of
    /// the time: in each span, or in equal parts of a single one.
    fn together(&self, program: usize, spans: Vec<CountedSpan>) -> Counted {
        let opened = self.opened.get(&program);
        let (mut windows, mut interrupts, mut arrivals) = (Vec::new(), Vec::new(), Vec::<Arrival>::new());
        let only = if let [span] = &spans[..] { Some((span.from, span.until)) } else { None };
        for span in spans {
            windows.push(span.window);
            interrupts.extend(span.interrupts);
            for arrival in span.arrivals {
                let is_same = |own: &&mut Arrival| {
                    (&own.host, &own.line, own.core) == (&arrival.host, &arrival.line, arrival.core)
                };
                match arrivals.iter_mut().find(is_same) {
                    Some(own) => own.count += arrival.count,
                    None => arrivals.push(arrival),
                }
            }
        }
        let scope = Scope::new(self.setup, &self.serves, program, opened, &interrupts);
        let mark = |host: &str, resource: &mut Resource| {
            resource.on_path = scope.as_ref().is_none_or(|scope| scope.has(host, resource));
        };
        for host in windows.iter_mut().flat_map(|window| &mut window.hosts) {
            host.resources.iter_mut().for_each(|resource| mark(&host.host, resource));
        }
        let own = self.setup.programs.get(program).map(|entry| &self.setup.hosts[entry.host].name);
        let own = own.map_or("", String::as_str);
        let mut window = Window::together(&windows);
        match only {
            Some((from, until)) => {
                let names: Vec<String> = window.hosts.iter().map(|host| host.host.clone()).collect();
                window.find_phases(&self.samples.between(from, until, &names, mark), own, false);
            }
            None => {
                let slices = windows.into_iter().map(|window| (window.length.as_s_f64(), window.hosts));
                window.find_phases(&slices.collect::<Vec<_>>(), own, true);
            }
        }
        Counted { program, window, arrivals }
    }

    /// What was counted since a program has begun.
    fn span(
        &self,
        (from, before): &(Time, Rc<HostCounts>),
        now: &HostCounts,
        computers: &Computers,
    ) -> CountedSpan {
        CountedSpan {
            window: before.moment.until(&now.moment),
            from: *from,
            until: computers.simulation().now(),
            interrupts: self.interrupt_cores(computers, &before.arrivals),
            arrivals: self.arrivals(computers, &before.arrivals),
        }
    }

    /// The generator of a guest's packets, if they come back as fast as it sends them. Those that do not are on their
    /// way: as many as come back in the mean time that they take, twice as many if a queue grows meanwhile.
    fn offered(
        &self,
        program: usize,
        took: Duration,
        before: &HostCounts,
        now: &HostCounts,
    ) -> Option<OfferedLoad> {
        const GROWS: f64 = 1.5;
        /// Little enough to have been on the way by chance.
        const CHANCE: f64 = 0.01;
        let entry = self.setup.programs.get(program)?;
        let (nic, _) = self.setup.hosts[entry.host].vms[entry.vm?].virtual_nic()?;
        let keeps_up = |n: &usize| {
            let to = &self.setup.generators[*n].to;
            let Some(receiver) = to.iter().position(|(mac, _)| *mac == nic.mac) else { return false };
            let (before, now) = (before.flows[*n][receiver], now.flows[*n][receiver]);
            let (sent, returned) = (now.sent - before.sent, now.returned - before.returned);
            let on_way = (now.time - before.time).as_ns_f64() / took.as_ns_f64();
            let missing = sent.saturating_sub(returned) as f64;
            returned > 0 && missing <= GROWS * on_way + CHANCE * sent as f64
        };
        let found = (0..self.setup.generators.len()).find(keeps_up)?;
        Some(OfferedLoad::Generator(self.setup.generators[found].name.clone()))
    }

    fn arrivals(&self, computers: &Computers, before: &Arrivals) -> Vec<Arrival> {
        let mut all = Vec::new();
        for (host, before) in computers.hosts().iter().zip(before) {
            let node = |core: CpuId| {
                computers.simulation().with(|fabric, _| {
                    let node = fabric.host(host.host).memory.node_of_core(hardware::memory::CoreId(core.0));
                    node.map_or(0, |node| node.0)
                })
            };
            // Root ports have interrupts too, of hot plug and errors.
            for (function, line, core, count) in arrived(host, before, |function| function.buses.is_none()) {
                all.push(Arrival {
                    host: host.name.clone(),
                    line,
                    count,
                    core: core.0,
                    core_node: node(core),
                    device_node: function.node,
                });
            }
        }
        all
    }
}

/// An interrupt that has arrived: the function that sent it, its name, its core, and how often.
type ArrivedInterrupt = (kernel::FunctionInfo, String, CpuId, u64);

/// Interrupts of a host's functions of a kind that have arrived since each had `before`.
fn arrived(
    host: &Computer,
    before: &BTreeMap<Irq, u64>,
    is_meant: impl Fn(&kernel::FunctionInfo) -> bool,
) -> Vec<ArrivedInterrupt> {
    let functions = host.kernel.pci();
    let since = |(irq, line, core, count): (Irq, String, CpuId, u64)| {
        // Those of a kernel that has started anew count from zero.
        let earlier = before.get(&irq).copied().unwrap_or_default();
        let count = count.checked_sub(earlier).unwrap_or(count);
        let function = functions.iter().find(|own| own.irqs.contains(&irq) && is_meant(own))?;
        (count > 0).then(|| (function.clone(), line, core, count))
    };
    host.kernel.interrupts().into_iter().filter_map(since).collect()
}

impl Observer for Counting<'_> {
    fn booted(&mut self, _: &Computers) {}

    fn began(&mut self, programs: &[usize], computers: &Computers) {
        let (now, counts) = (computers.simulation().now(), Rc::new(self.counts(computers)));
        self.began.extend(programs.iter().map(|&program| (program, (now, Rc::clone(&counts)))));
        if !self.samples.have_begun() {
            let readings = computers.readings(self.setup).into_iter().map(|(_, reading)| reading);
            self.samples.take(now, readings);
        }
    }

    fn opened(&mut self, program: usize, devices: &BTreeSet<String>) {
        self.opened.insert(program, devices.clone());
    }

    fn look(&mut self, computers: &Computers) -> Option<Time> {
        let now = computers.simulation().now();
        if self.samples.next() <= now {
            let readings = computers.readings(self.setup).into_iter().map(|(_, reading)| reading);
            self.samples.take(now, readings);
        }
        Some(self.samples.next())
    }

    fn measured(&mut self, program: usize, computers: &Computers) {
        let Some(began) = self.began.remove(&program) else { return };
        let span = self.span(&began, &self.counts(computers), computers);
        let parts = self.parts.get(program).map_or(&[][..], Vec::as_slice);
        if parts.is_empty() {
            self.spans.entry(program).or_default().push(span);
            return;
        }
        let before = self.counted.iter().filter(|other| other.program == program).count();
        let part = parts.get(before).cloned().unwrap_or_default();
        let mut counted = self.together(program, vec![span]);
        counted.window.part = part;
        self.counted.push(counted);
    }

    fn done(&mut self, programs: &[usize], computers: &Computers) {
        let mut now = None;
        for &program in programs {
            let began = self.began.remove(&program);
            if let Some(spans) = self.spans.remove(&program) {
                self.counted.push(self.together(program, spans));
                continue;
            }
            let Some(began) = began else { continue };
            // Many end together.
            let now = now.get_or_insert_with(|| self.counts(computers));
            let span = self.span(&began, now, computers);
            let offered = self.offered(program, span.until.since(span.from), &began.1, now);
            let mut counted = self.together(program, vec![span]);
            counted.window.offered = offered;
            self.counted.push(counted);
        }
    }

    fn has_enough(&self) -> bool {
        false
    }

    fn ended(&mut self, _: &Computers) {}
}
