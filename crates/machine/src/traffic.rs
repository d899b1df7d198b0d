//! Network testers of a scenario: sources that send to a host and sinks that receive, in place of a second host.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::computer::HostSetup;
use crate::diagnostic::Diagnostic;
use crate::names;
use crate::placed::Placed;
use crate::port::is_host;
use crate::read::{Check, record};
use units::{BitRate, Bytes, Duration};

/// Base of the default addresses of sources.
const FIRST: u32 = Ipv4Addr::new(10, 0, 255, 0).to_bits();

record! {
    /// A TCP source at the end of a cable, without a computer.
    pub struct SourceEntry {
        /// Name, by which the end of a cable refers to it.
        name: Placed<String>,
        /// The receiver, such as `10.0.0.1:5001`: a program must listen there.
        to: Placed<String>,
        /// Its IPv4 address; 10.0.255.*n* for the *n*th source, counted from 1, if not given.
        address: Option<Placed<String>>,
        /// Duration of sending; 10 ms if not given.
        time: Option<Duration>,
        /// Start time, counted from when all hosts have booted; zero if not given.
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
    /// Name in the scenario.
    pub name: String,
    /// The receiver.
    pub to: SocketAddrV4,
    /// IPv4 address: the given one, or one that follows from its number.
    pub address: Ipv4Addr,
    /// Duration of sending.
    pub time: Duration,
    /// Start time.
    pub start: Duration,
    /// Speed of its port.
    pub rate: BitRate,
}

impl SourceSetup {
    /// Resolves a scenario's entries; reports errors.
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
            let message = format!("`{}` is not an address", entry.to.value);
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

/// Base of the default addresses of sinks.
const FIRST_SINK: u32 = Ipv4Addr::new(10, 0, 254, 0).to_bits();

record! {
    /// A TCP sink at the end of a cable, without a computer.
    pub struct SinkEntry {
        /// Name, by which the end of a cable refers to it.
        name: Placed<String>,
        /// Its IPv4 address; 10.0.254.*n* for the *n*th sink, counted from 1, if not given.
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
    /// Name in the scenario.
    pub name: String,
    /// IPv4 address: the given one, or one that follows from its number.
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
    /// Resolves a scenario's entries; reports errors.
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
    /// A UDP packet generator at the end of a cable, which also checks the packets it gets back.
    pub struct GeneratorEntry {
        /// Name, by which the end of a cable refers to it.
        name: Placed<String>,
        /// Receiving virtual machines in turn: `a/x` for `x` of host `a`. Each needs a virtual NIC.
        to: Vec<Placed<String>>,
        /// Frame size including check sequence (bytes); 64 if not given.
        frame: Option<Bytes>,
        /// Load as a share of its port's speed, from 0 to 1; 1 if not given.
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
    /// Name in the scenario.
    pub name: String,
    /// IPv4 address, which follows from its number.
    pub address: Ipv4Addr,
    /// The receivers: MAC and IP addresses.
    pub to: Vec<([u8; 6], Ipv4Addr)>,
    /// Frame size including check sequence (bytes).
    pub frame: u16,
    /// Load as a share of its port's speed.
    pub load: f64,
    /// Speed of its port.
    pub rate: BitRate,
}

impl GeneratorSetup {
    /// Resolves a scenario's entries; reports errors.
    pub(crate) fn find(
        entries: &[GeneratorEntry],
        hosts: &[HostSetup],
        wrong: &mut Vec<Diagnostic>,
    ) -> Vec<Self> {
        let virtual_nic = |name: &str| {
            let (host, vm) = names::place(hosts, name).ok()?;
            hosts[host].vms[vm?].virtual_nic()
        };
        let mut found = Vec::new();
        for (n, entry) in (1u32..).zip(entries) {
            let mut to = Vec::new();
            for name in &entry.to {
                let Some((nic, interface)) = virtual_nic(&name.value) else {
                    let message = format!("`{}` is not a virtual machine with a virtual NIC", name.value);
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

/// Base of the default addresses of generators.
const FIRST_GENERATOR: u32 = Ipv4Addr::new(10, 0, 253, 0).to_bits();

/// A tester's own address: the configured one or `usual`; it must be unique.
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
            let message = format!("`{}` is not an address", place.value);
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
