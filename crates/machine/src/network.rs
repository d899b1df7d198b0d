//! What a scenario says of the network between its hosts: cables, switches, captures.

use crate::computer::{DeviceFile, HostSetup};
use crate::diagnostic::Diagnostic;
use crate::placed::Placed;
use crate::read::{Check, record};
use crate::traffic::SourceEntry;
use units::{BitRate, Bytes, Duration};

record! {
    /// A cable between two ports.
    pub struct CableEntry {
        /// The ports: `a` for the first Ethernet port of host `a`, `a:1` for its second, `s:3` for port 3 of switch `s`,
        /// `s` for its next free one, `t` for traffic source `t`.
        ends: Vec<Placed<String>>,
        /// Its speed; if not given, that of the slower end.
        rate: Option<BitRate>,
        /// From one end to the other, transceivers included; 20 ns (about 4 m) if not given.
        propagation: Option<Duration>,
        /// Share of frames that are lost.
        loss: Option<f64>,
        /// Share of frames in which a bit is flipped.
        corruption: Option<f64>,
        /// Share of frames that arrive twice.
        duplication: Option<f64>,
        /// Share of frames that are held back, so that later ones pass.
        reordering: Option<f64>,
        /// For how long such frames are held back at most; 100 µs if not given.
        longest_delay: Option<Duration>,
    }
    check |cable: &CableEntry, check: &mut Check<'_>| {
        let count = cable.ends.len();
        check.require(count == 2, "ends", format!("a cable has two ends, not {count}"), "`ends = [\"a\", \"b\"]`");
        let shares = [
            ("loss", cable.loss),
            ("corruption", cable.corruption),
            ("duplication", cable.duplication),
            ("reordering", cable.reordering),
        ];
        for (name, share) in shares {
            let share = share.unwrap_or(0.0);
            check.require((0.0..=1.0).contains(&share), name, format!("{share} is no share"), "from 0 to 1");
        }
    }
}

record! {
    /// An Ethernet switch.
    pub struct SwitchEntry {
        /// What the scenario calls it.
        name: Placed<String>,
        /// Its ports; as many as cables lead to it if not given.
        ports: Option<u32>,
        /// Speed of its ports; 100 Gbit/s if not given.
        rate: Option<BitRate>,
        /// From a frame's last bit in to its first bit out, when nothing is in its way; 300 ns if not given.
        latency: Option<Duration>,
        /// Bytes that may wait at a port; 384 KiB if not given.
        queue: Option<Bytes>,
        /// Bytes that wait at a port from which on frames are marked as having met congestion, if their senders use ECN;
        /// none is marked if not given.
        mark: Option<Bytes>,
    }
}

record! {
    /// A capture of what passes a port.
    pub struct CaptureEntry {
        /// The port, as a cable's end is called.
        port: Placed<String>,
        /// The pcapng file to write. Captures of several ports may share one.
        file: String,
    }
}

/// A port of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortSetup {
    /// An Ethernet port: host, device, port of the device.
    Host(usize, usize, u8),
    /// A switch and its port.
    Switch(usize, u8),
    /// The port of a traffic source.
    Source(usize),
}

/// A cable with its ends found.
#[derive(Debug, Clone)]
pub struct CableSetup {
    /// Its ends.
    pub ends: [PortSetup; 2],
    /// Its speed.
    pub rate: BitRate,
    /// What the scenario says of it.
    pub entry: CableEntry,
}

/// The network of a scenario.
#[derive(Debug, Clone, Default)]
pub struct NetworkSetup {
    /// Switches, and how many ports each has.
    pub switches: Vec<(SwitchEntry, u8)>,
    /// Cables.
    pub cables: Vec<CableSetup>,
    /// Ports at which frames are captured, and the file of each.
    pub captures: Vec<(PortSetup, String, String)>,
}

/// What is at the far ends of a network.
#[derive(Clone, Copy)]
pub(crate) struct Stations<'a> {
    /// Hosts, with their devices.
    pub hosts: &'a [HostSetup],
    /// Traffic sources.
    pub sources: &'a [SourceEntry],
}

/// Finds ports by what the scenario calls them.
struct Finder<'a> {
    stations: Stations<'a>,
    switches: &'a [SwitchEntry],
    used: Vec<PortSetup>,
}

impl NetworkSetup {
    /// Finds what the entries name.
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
                let slower = finder.rate(first).min(finder.rate(second));
                let rate = entry.rate.unwrap_or(slower);
                found.cables.push(CableSetup { ends: [first, second], rate, entry: entry.clone() });
            }
        }
        for capture in captures {
            match finder.port(&capture.port) {
                Ok(port) if finder.used.contains(&port) => {
                    found.captures.push((port, capture.port.value.clone(), capture.file.clone()));
                }
                Ok(_) => {
                    let message = format!("no cable leads to `{}`", capture.port.value);
                    wrong.push(Diagnostic::new(&capture.port.place, message));
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
                (entry.clone(), entry.ports.map_or(highest(n), |ports| ports.clamp(1, 255) as u8))
            })
            .collect();
        found
    }
}

// A diagnostic is large, and made once before the program ends.
#[allow(clippy::result_large_err)]
impl Finder<'_> {
    /// A port for the end of a cable, which must be free.
    fn end(&mut self, end: &Placed<String>) -> Result<PortSetup, Box<Diagnostic>> {
        let mut port = self.port(end)?;
        if let PortSetup::Switch(switch, number) = &mut port
            && !end.value.contains(':')
        {
            while self.used.contains(&PortSetup::Switch(*switch, *number)) {
                *number += 1;
            }
        }
        if self.used.contains(&port) {
            return Err(Diagnostic::new(&end.place, format!("`{}` has a cable already", end.value)).into());
        }
        if let PortSetup::Switch(switch, number) = port
            && self.switches[switch].ports.is_some_and(|ports| u32::from(number) >= ports)
        {
            return Err(Diagnostic::new(&end.place, format!("the switch has no port {number}")).into());
        }
        self.used.push(port);
        Ok(port)
    }

    fn port(&self, end: &Placed<String>) -> Result<PortSetup, Box<Diagnostic>> {
        let (name, number) = match end.value.split_once(':') {
            None => (end.value.as_str(), 0),
            Some((name, number)) => (name, self.number(end, number)?),
        };
        if let Some(switch) = self.switches.iter().position(|switch| switch.name.value == name) {
            return Ok(PortSetup::Switch(switch, number));
        }
        let Stations { hosts, sources } = self.stations;
        if let Some(source) = sources.iter().position(|source| source.name.value == name && number == 0) {
            return Ok(PortSetup::Source(source));
        }
        let Some(host) = hosts.iter().position(|host| host.name == name) else {
            let names = hosts.iter().map(|host| host.name.as_str());
            let names = names.chain(self.switches.iter().map(|switch| switch.name.value.as_str()));
            let names = names.chain(sources.iter().map(|source| source.name.value.as_str()));
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

    fn number(&self, end: &Placed<String>, text: &str) -> Result<u8, Box<Diagnostic>> {
        let wrong =
            || Diagnostic::new(&end.place, format!("`{text}` is no port")).help("a number, as in `a:0`");
        text.parse().map_err(|_| wrong().into())
    }

    /// The Ethernet ports of a host: device and port.
    fn ports_of(&self, host: usize) -> Vec<(usize, u8)> {
        let devices = self.stations.hosts[host].devices.iter().enumerate();
        devices
            .flat_map(|(n, device)| {
                let ports = match &device.kind {
                    DeviceFile::Nic(nic) => nic.controller.ports.value.get().min(8) as u8,
                    _ => 0,
                };
                (0..ports).map(move |port| (n, port))
            })
            .collect()
    }

    fn rate(&self, port: PortSetup) -> BitRate {
        match port {
            PortSetup::Host(host, device, _) => match &self.stations.hosts[host].devices[device].kind {
                DeviceFile::Nic(nic) => nic.controller.rate.value,
                _ => BitRate::gbit_per_s(1),
            },
            PortSetup::Switch(switch, _) => self.switches[switch].rate.unwrap_or(BitRate::gbit_per_s(100)),
            PortSetup::Source(source) => self.stations.sources[source].speed(),
        }
    }
}
