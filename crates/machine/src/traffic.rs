//! What a scenario says of traffic sources: network testers that send to a host instead of a second one.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::computer::HostSetup;
use crate::diagnostic::Diagnostic;
use crate::placed::Placed;
use crate::port::is_host;
use crate::read::{Check, record};
use units::{BitRate, Duration};

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
        let mut complain = |text: &Placed<String>, message: String, help: &str| {
            wrong.push(Diagnostic::new(&text.place, message).help(help));
        };
        let to = entry.to.value.parse().ok();
        let to = to.filter(|to: &SocketAddrV4| to.port() > 0 && is_host(*to.ip()));
        if to.is_none() {
            let message = format!("`{}` is no address", entry.to.value);
            complain(&entry.to, message, "a host's IPv4 address and a port, such as `10.0.0.1:5001`");
        }
        let own = entry.address.as_ref();
        let address = own.map_or(Some(Ipv4Addr::from_bits(FIRST + n)), |text| text.value.parse().ok());
        let address = address.filter(|&address| is_host(address));
        let place = own.unwrap_or(&entry.name);
        match address {
            None => complain(
                place,
                format!("`{}` is no address", place.value),
                "an IPv4 address, such as `10.0.255.1`",
            ),
            Some(address) if !taken.insert(address) => {
                complain(
                    place,
                    format!("a port has the address {address} already"),
                    "an `address` of its own",
                );
            }
            Some(_) => {}
        }
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
