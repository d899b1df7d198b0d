//! Resolves the ports in a scenario's cables and captures, and checks them.

use std::collections::BTreeSet;

use super::{CableEntry, CableSetup, CaptureEntry, MOST_PORTS, NetworkSetup, PortSetup, SwitchEntry};
use crate::computer::HostSetup;
use crate::diagnostic::Diagnostic;
use crate::limits::{ETHERNET, is_ethernet};
use crate::names;
use crate::placed::Placed;
use crate::traffic::{GeneratorEntry, SinkEntry, SourceEntry};
use units::BitRate;

#[derive(Clone, Copy)]
pub(crate) struct Stations<'a> {
    /// Hosts, with their devices.
    pub hosts: &'a [HostSetup],
    /// Traffic sources.
    pub sources: &'a [SourceEntry],
    pub sinks: &'a [SinkEntry],
    pub generators: &'a [GeneratorEntry],
}

/// Resolves ports by their names in the scenario.
struct Finder<'a> {
    stations: Stations<'a>,
    switches: &'a [SwitchEntry],
    used: Vec<PortSetup>,
}

impl NetworkSetup {
    /// Resolves the entries.
    pub(crate) fn find(
        stations: Stations<'_>,
        switches: &[SwitchEntry],
        cables: &[CableEntry],
        captures: &[CaptureEntry],
        wrong: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut finder = Finder { stations, switches, used: Vec::new() };
        let mut found = Self::default();
        for entry in cables {
            let mut ends = Vec::new();
            for end in &entry.ends {
                match finder.end(end) {
                    Ok(port) => ends.push(port),
                    Err(diagnostic) => wrong.push(*diagnostic),
                }
            }
            if let [first, second] = ends[..] {
                match finder.cable_rate([first, second], entry) {
                    Ok(rate) => {
                        found.cables.push(CableSetup { ends: [first, second], rate, entry: entry.clone() })
                    }
                    Err(diagnostic) => wrong.push(*diagnostic),
                }
            }
        }
        finder.check_testers(wrong);
        for capture in captures {
            match finder.port(&capture.port) {
                Ok(port) if finder.used.contains(&port) => {
                    found.captures.push((port, capture.port.value.clone(), capture.file.clone()));
                }
                Ok(_) => {
                    let message = format!("no cable leads to `{}`", capture.port.value);
                    let ends = cables.iter().flat_map(|cable| &cable.ends).map(|end| end.value.as_str());
                    let help = match crate::suggest::list(ends) {
                        ends if ends.is_empty() => "there is no cable: add `[[cable]]`".to_owned(),
                        ends => format!("cables lead to {ends}"),
                    };
                    wrong.push(Diagnostic::new(&capture.port.place, message).help(help));
                }
                Err(diagnostic) => wrong.push(*diagnostic),
            }
        }
        let highest = |switch: usize| {
            let ports = finder.used.iter().filter_map(|port| match port {
                PortSetup::Switch(of, port) if *of == switch => Some(port + 1),
                _ => None,
            });
            ports.max().unwrap_or(2)
        };
        found.switches = switches
            .iter()
            .enumerate()
            .map(|(n, entry)| {
                (entry.clone(), entry.ports.map_or(highest(n), |ports| ports.min(MOST_PORTS.into()) as u8))
            })
            .collect();
        found
    }
}

/// The port `name`, in the syntax of a cable's end: `a`, `a:1`, `s:3`.
pub(crate) fn port(
    stations: Stations<'_>,
    switches: &[SwitchEntry],
    name: &Placed<String>,
) -> Result<PortSetup, Box<Diagnostic>> {
    Finder { stations, switches, used: Vec::new() }.port(name)
}

// Diagnostics are large, but occur only once before the program exits.
#[allow(clippy::result_large_err)]
impl Finder<'_> {
    /// A port for the end of a cable; it must be free.
    fn end(&mut self, end: &Placed<String>) -> Result<PortSetup, Box<Diagnostic>> {
        let mut port = self.port(end)?;
        if let PortSetup::Switch(switch, number) = &mut port
            && !end.value.contains(':')
        {
            let mut free = (0..MOST_PORTS).filter(|&n| !self.used.contains(&PortSetup::Switch(*switch, n)));
            *number = free.next().unwrap_or(MOST_PORTS);
        }
        if self.used.contains(&port) {
            let message = format!("`{}` has a cable already", end.value);
            return Err(Diagnostic::new(&end.place, message)
                .help("a port has one cable; a switch joins several")
                .into());
        }
        if let PortSetup::Switch(switch, number) = port {
            let ports = self.switches[switch].ports.unwrap_or(MOST_PORTS.into());
            if u32::from(number) >= ports {
                let message = format!("the switch has no port {number}");
                let help = format!("its ports are 0 to {}", ports.saturating_sub(1));
                return Err(Diagnostic::new(&end.place, message).help(help).into());
            }
        }
        if let PortSetup::Host(host, device, _) = port
            && let Some(nic) = self.stations.hosts[host].devices[device].kind.nic()
            && nic.is_looped()
        {
            let message =
                format!("no cable reaches `{}`: {} sends its frames round inside", end.value, nic.name);
            let help = "`change.controller.looped = false` in its `[[host.device]]`";
            return Err(Diagnostic::new(&end.place, message).help(help).into());
        }
        self.used.push(port);
        Ok(port)
    }

    fn port(&self, end: &Placed<String>) -> Result<PortSetup, Box<Diagnostic>> {
        let (name, number) = match end.value.split_once(':') {
            None => (end.value.as_str(), 0),
            Some((name, port)) => match self.named_port(name, port) {
                Some(port) => return Ok(port),
                None => (name, self.number(end, port)?),
            },
        };
        if let Some(switch) = self.switches.iter().position(|switch| switch.name.value == name) {
            return Ok(PortSetup::Switch(switch, number));
        }
        let Stations { hosts, sources, sinks, generators } = self.stations;
        let source = sources.iter().position(|source| source.name.value == name).map(PortSetup::Source);
        let sink = sinks.iter().position(|sink| sink.name.value == name).map(PortSetup::Sink);
        let generator = generators.iter().position(|own| own.name.value == name).map(PortSetup::Generator);
        if let Some(tester) = source.or(sink).or(generator) {
            let only = Diagnostic::new(&end.place, format!("`{name}` has one port"));
            let only = only.help(format!("call it `{name}`"));
            return if number == 0 { Ok(tester) } else { Err(only.into()) };
        }
        let Ok(host) = names::host(hosts, name) else {
            let names = hosts.iter().map(|host| host.name.as_str());
            let names = names.chain(self.switches.iter().map(|switch| switch.name.value.as_str()));
            let names = names.chain(sources.iter().map(|source| source.name.value.as_str()));
            let names = names.chain(sinks.iter().map(|sink| sink.name.value.as_str()));
            let names = names.chain(generators.iter().map(|own| own.name.value.as_str()));
            let help = format!("there are {}", crate::suggest::list(names));
            return Err(Diagnostic::new(&end.place, format!("there is no `{name}`")).help(help).into());
        };
        let ports = self.ports_of(host);
        match ports.get(usize::from(number)) {
            Some(&(device, port)) => Ok(PortSetup::Host(host, device, port)),
            None => {
                let message = format!("host `{name}` has no Ethernet port {number}");
                let help = match ports.len() {
                    0 => "put a NIC into it: `[[host.device]]` with `nic`".to_owned(),
                    n => format!("it has ports 0 to {}", n - 1),
                };
                Err(Diagnostic::new(&end.place, message).help(help).into())
            }
        }
    }

    /// The port of a NIC by its name, as in `a:nic`, and `a:nic:1` for its second.
    fn named_port(&self, host: &str, text: &str) -> Option<PortSetup> {
        let (name, number) = text.split_once(':').unwrap_or((text, "0"));
        let host = names::host(self.stations.hosts, host).ok()?;
        let device = names::find_device(&self.stations.hosts[host], name)?;
        let port = number.parse().ok()?;
        self.ports_of(host).contains(&(device, port)).then_some(PortSetup::Host(host, device, port))
    }

    fn number(&self, end: &Placed<String>, text: &str) -> Result<u8, Box<Diagnostic>> {
        let wrong = || {
            let wrong = Diagnostic::new(&end.place, format!("`{text}` is not a port"));
            wrong.help("a number, as in `a:0`, or the name of a NIC, as in `a:nic`")
        };
        text.parse().map_err(|_| wrong().into())
    }

    /// The Ethernet ports of a host: device and port.
    fn ports_of(&self, host: usize) -> Vec<(usize, u8)> {
        let devices = self.stations.hosts[host].devices.iter().enumerate();
        devices
            .flat_map(|(n, device)| {
                let ports = device.kind.nic().map_or(0, |nic| nic.controller.ports.value.get() as u8);
                (0..ports).map(move |port| (n, port))
            })
            .collect()
    }

    /// The speed of a cable between two ports, limited by both ports.
    fn cable_rate(&self, ends: [PortSetup; 2], entry: &CableEntry) -> Result<BitRate, Box<Diagnostic>> {
        let (slower, end) = if self.rate(ends[1]) < self.rate(ends[0]) { (ends[1], 1) } else { (ends[0], 0) };
        let (most, end) = (self.rate(slower), &entry.ends[end]);
        let (rate, place) = match &entry.rate {
            Some(rate) => (rate.value, &rate.place),
            None => (most, &end.place),
        };
        if rate > most {
            let message = format!("`rate`: {rate} is more than `{}` has, {most}", end.value);
            let own = match slower {
                PortSetup::Host(..) => "`change.controller.rate` of its NIC",
                PortSetup::Switch(..)
                | PortSetup::Source(_)
                | PortSetup::Sink(_)
                | PortSetup::Generator(_) => "its own `rate`",
            };
            let help = format!("{most} at most, or change {own}");
            return Err(Diagnostic::new(place, message).help(help).into());
        }
        if !is_ethernet(rate) {
            let message = format!("a cable of {rate} is none of Ethernet's");
            return Err(Diagnostic::new(place, message).help(ETHERNET).into());
        }
        Ok(rate)
    }

    /// Reports sources and sinks without a cable.
    fn check_testers(&self, wrong: &mut Vec<Diagnostic>) {
        let used: BTreeSet<_> = self.used.iter().collect();
        let Stations { sources, sinks, generators, .. } = self.stations;
        let sources =
            sources.iter().enumerate().map(|(n, source)| (PortSetup::Source(n), "source", &source.name));
        let sinks = sinks.iter().enumerate().map(|(n, sink)| (PortSetup::Sink(n), "sink", &sink.name));
        let generators =
            generators.iter().enumerate().map(|(n, own)| (PortSetup::Generator(n), "generator", &own.name));
        for (port, what, name) in sources.chain(sinks).chain(generators) {
            if !used.contains(&port) {
                let help = format!("add `[[cable]]` with `{}` as one of its `ends`", name.value);
                let message = format!("no cable leads to {what} `{}`", name.value);
                wrong.push(Diagnostic::new(&name.place, message).help(help));
            }
        }
    }

    fn rate(&self, port: PortSetup) -> BitRate {
        match port {
            PortSetup::Host(host, device, _) => {
                let nic = self.stations.hosts[host].devices[device].kind.nic();
                nic.map_or(BitRate::gbit_per_s(1), |nic| nic.controller.rate.value)
            }
            PortSetup::Switch(switch, _) => self.switches[switch].rate.unwrap_or(BitRate::gbit_per_s(100)),
            PortSetup::Source(source) => self.stations.sources[source].speed(),
            PortSetup::Sink(sink) => self.stations.sinks[sink].speed(),
            PortSetup::Generator(generator) => self.stations.generators[generator].speed(),
        }
    }
}
