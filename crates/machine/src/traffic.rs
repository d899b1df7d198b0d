//! What a scenario says of network testers: sources that send to a host, and sinks that receive, instead of a second one.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::computer::HostSetup;
use crate::diagnostic::Diagnostic;
use crate::placed::Placed;
use crate::port::is_host;
use crate::read::{Check, record};
use units::{BitRate, Bytes, Duration};

/// The address before that of the first source that is given none.
const FIRST: u32 = Ipv4Addr::new(10, 0, 255, 0).to_bits();

record! {
    /// A source of a TCP stream at the end of a cable, without a computer behind it.
    pub struct SourceEntry {
        /// What the scenario calls it.
        name: Placed<String>,
        /// Who receives, such as `10.0.0.1:5001`: a program there listens.
        to: Placed<String>,
        /// Its own IPv4 address; 10.0.255.*n* for the *n*th source, counted from 1, if not given.
        address: Option<Placed<String>>,
        /// For how long it sends; 10 ms if not given.
        time: Option<Duration>,
        /// When it begins, counted from when all hosts have booted; at once if not given.
        start: Option<Duration>,
        /// Speed of its port; 100 Gbit/s if not given.
        rate: Option<BitRate>,
    }
    check |source: &SourceEntry, check: &mut Check<'_>| {
        check.require_ethernet("rate", source.rate);
        let sends = source.time.is_none_or(|time| time > Duration::ZERO);
        check.require(sends, "time", "it would send nothing", "such as `10 ms`");
    }
}

impl SourceEntry {
    /// Speed of its port.
    pub(crate) fn speed(&self) -> BitRate {
        self.rate.unwrap_or(BitRate::gbit_per_s(100))
    }
}

/// A traffic source of a scenario.
#[derive(Debug, Clone)]
pub struct SourceSetup {
    /// What the scenario calls it.
    pub name: String,
    /// Who receives.
    pub to: SocketAddrV4,
    /// Its own address.
    pub address: Ipv4Addr,
    /// For how long it sends.
    pub time: Duration,
    /// When it begins.
    pub start: Duration,
    /// Speed of its port.
    pub rate: BitRate,
}

impl SourceSetup {
    /// The sources of a scenario's entries; what is wrong with those that are missing.
    pub(crate) fn find(
        entries: &[SourceEntry],
        hosts: &[HostSetup],
        wrong: &mut Vec<Diagnostic>,
    ) -> Vec<Self> {
        let interfaces = hosts.iter().flat_map(|host| &host.interfaces);
        let mut taken: BTreeSet<Ipv4Addr> = interfaces.map(|interface| interface.address).collect();
        (1..).zip(entries).filter_map(|(n, entry)| Self::of(n, entry, &mut taken, wrong)).collect()
    }

    fn of(
        n: u32,
        entry: &SourceEntry,
        taken: &mut BTreeSet<Ipv4Addr>,
        wrong: &mut Vec<Diagnostic>,
    ) -> Option<Self> {
        let to = entry.to.value.parse().ok();
        let to = to.filter(|to: &SocketAddrV4| to.port() > 0 && is_host(*to.ip()));
        if to.is_none() {
            let message = format!("`{}` is no address", entry.to.value);
            let help = "a host's IPv4 address and a port, such as `10.0.0.1:5001`";
            wrong.push(Diagnostic::new(&entry.to.place, message).help(help));
        }
        let address = address(entry.address.as_ref(), FIRST + n, &entry.name, taken, wrong);
        Some(Self {
            name: entry.name.value.clone(),
            to: to?,
            address: address?,
            time: entry.time.unwrap_or(Duration::from_ms(10)),
            start: entry.start.unwrap_or_default(),
            rate: entry.speed(),
        })
    }
}

/// The address before that of the first sink.
const FIRST_SINK: u32 = Ipv4Addr::new(10, 0, 254, 0).to_bits();

record! {
    /// A sink of TCP streams at the end of a cable, without a computer behind it.
    pub struct SinkEntry {
        /// What the scenario calls it.
        name: Placed<String>,
        /// Its own IPv4 address; 10.0.254.*n* for the *n*th sink, counted from 1, if not given.
        address: Option<Placed<String>>,
        /// Speed of its port; 100 Gbit/s if not given.
        rate: Option<BitRate>,
    }
    check |sink: &SinkEntry, check: &mut Check<'_>| {
        check.require_ethernet("rate", sink.rate);
    }
}

/// A sink of a scenario.
#[derive(Debug, Clone)]
pub struct SinkSetup {
    /// What the scenario calls it.
    pub name: String,
    /// Its own address.
    pub address: Ipv4Addr,
    /// Speed of its port.
    pub rate: BitRate,
}

impl SinkEntry {
    /// Speed of its port.
    pub(crate) fn speed(&self) -> BitRate {
        self.rate.unwrap_or(BitRate::gbit_per_s(100))
    }
}

impl SinkSetup {
    /// The sinks of a scenario's entries; what is wrong with those that are missing.
    pub(crate) fn find(
        entries: &[SinkEntry],
        hosts: &[HostSetup],
        sources: &[SourceSetup],
        wrong: &mut Vec<Diagnostic>,
    ) -> Vec<Self> {
        let interfaces = hosts.iter().flat_map(|host| &host.interfaces);
        let mut taken: BTreeSet<Ipv4Addr> = interfaces.map(|interface| interface.address).collect();
        taken.extend(sources.iter().map(|source| source.address));
        let find = |(n, entry): (u32, &SinkEntry)| {
            let address = address(entry.address.as_ref(), FIRST_SINK + n, &entry.name, &mut taken, wrong)?;
            Some(Self { name: entry.name.value.clone(), address, rate: entry.speed() })
        };
        (1..).zip(entries).filter_map(find).collect()
    }
}

record! {
    /// A generator of UDP packets at the end of a cable, which also takes what comes back of them.
    pub struct GeneratorEntry {
        /// What the scenario calls it.
        name: Placed<String>,
        /// Virtual machines that receive, in turn: `a/x` for `x` of host `a`. Each has a virtual NIC.
        to: Vec<Placed<String>>,
        /// Bytes of a frame with its check sequence; 64 if not given.
        frame: Option<Bytes>,
        /// How much of its port's speed it sends with, from 0 to 1; 1 if not given.
        load: Option<f64>,
        /// Speed of its port; 10 Gbit/s if not given.
        rate: Option<BitRate>,
    }
    check |generator: &GeneratorEntry, check: &mut Check<'_>| {
        check.require_ethernet("rate", generator.rate);
        let fits = generator.frame.is_none_or(|frame| (64..=1518).contains(&frame.get()));
        check.require(fits, "frame", "Ethernet has no such frames", "from 64 B to 1518 B");
        let shares = generator.load.is_none_or(|load| (0.0..=1.0).contains(&load));
        check.require(shares, "load", "it is a share of the port's speed", "from 0 to 1");
        check.require(!generator.to.is_empty(), "to", "it would send nothing", "such as `[\"a/x\"]`");
    }
}

impl GeneratorEntry {
    /// Speed of its port.
    pub(crate) fn speed(&self) -> BitRate {
        self.rate.unwrap_or(BitRate::gbit_per_s(10))
    }
}

/// A generator of a scenario.
#[derive(Debug, Clone)]
pub struct GeneratorSetup {
    /// What the scenario calls it.
    pub name: String,
    /// Its own address.
    pub address: Ipv4Addr,
    /// Who receives: Ethernet and own addresses.
    pub to: Vec<([u8; 6], Ipv4Addr)>,
    /// Bytes of a frame with its check sequence.
    pub frame: u16,
    /// Share of its port's speed.
    pub load: f64,
    /// Speed of its port.
    pub rate: BitRate,
}

impl GeneratorSetup {
    /// The generators of a scenario's entries; what is wrong with those that are missing.
    pub(crate) fn find(
        entries: &[GeneratorEntry],
        hosts: &[HostSetup],
        wrong: &mut Vec<Diagnostic>,
    ) -> Vec<Self> {
        let virtual_nic = |name: &str| {
            let (host, vm) = name.split_once('/')?;
            let host = hosts.iter().find(|own| own.name == host)?;
            host.vms.iter().find(|own| own.name == vm)?.virtual_nic()
        };
        let mut found = Vec::new();
        for (n, entry) in (1u32..).zip(entries) {
            let mut to = Vec::new();
            for name in &entry.to {
                let Some((nic, interface)) = virtual_nic(&name.value) else {
                    let message = format!("`{}` is no virtual machine with a virtual NIC", name.value);
                    let help = "`HOST/NAME` of a `[[host.vm]]` with `uplink`";
                    wrong.push(Diagnostic::new(&name.place, message).help(help));
                    continue;
                };
                to.push((nic.mac, interface.address));
            }
            found.push(Self {
                name: entry.name.value.clone(),
                address: Ipv4Addr::from_bits(FIRST_GENERATOR + n),
                to,
                frame: entry.frame.map_or(64, |frame| frame.get() as u16),
                load: entry.load.unwrap_or(1.0),
                rate: entry.speed(),
            });
        }
        found
    }
}

/// The address before that of the first generator.
const FIRST_GENERATOR: u32 = Ipv4Addr::new(10, 0, 253, 0).to_bits();

/// A tester's own address, the one given or `usual`, that nobody else may have.
fn address(
    given: Option<&Placed<String>>,
    usual: u32,
    name: &Placed<String>,
    taken: &mut BTreeSet<Ipv4Addr>,
    wrong: &mut Vec<Diagnostic>,
) -> Option<Ipv4Addr> {
    let address = given.map_or(Some(Ipv4Addr::from_bits(usual)), |text| text.value.parse().ok());
    let place = given.unwrap_or(name);
    match address.filter(|&address| is_host(address)) {
        None => {
            let message = format!("`{}` is no address", place.value);
            wrong.push(Diagnostic::new(&place.place, message).help("an IPv4 address, such as `10.0.255.1`"));
            None
        }
        Some(address) if !taken.insert(address) => {
            let message = format!("a port has the address {address} already");
            wrong.push(Diagnostic::new(&place.place, message).help("an `address` of its own"));
            None
        }
        Some(address) => Some(address),
    }
}
