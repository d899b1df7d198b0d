//! What happens while the programs of a scenario run: a cable is cut, a task is moved.
//!
//! What an event names is found when the scenario is read, so that a name that nothing has is told at its line.

use crate::computer::HostSetup;
use crate::diagnostic::Diagnostic;
use crate::network::{NetworkSetup, Stations, SwitchEntry};
use crate::placed::Placed;
use crate::program::{ProgramSetup, cores_help, cpu_list};
use crate::read::{Check, record};
use crate::scalar::names;
use crate::suggest;
use units::Duration;

names! {
    /// What can happen.
    pub enum Deed {
        /// A program and what it has started go to other cores.
        MoveTask = "move-task",
        /// Interrupts arrive at other cores.
        SetAffinity = "set-affinity",
        /// A cable carries nothing any more.
        Cut = "cut",
        /// It does again.
        Mend = "mend",
    }
}

record! {
    /// Something that happens.
    pub struct EventEntry {
        /// When, counted from when all hosts have booted.
        at: Option<Duration>,
        /// When a counter passes a number: `a:eth0.rx_packets > 1e5`.
        when: Option<Placed<String>>,
        /// What.
        deed as "do": Placed<Deed>,
        /// To whom.
        what: Placed<String>,
        /// Where to: cores, as taskset spells them.
        to: Option<Placed<String>>,
    }
    check |entry: &EventEntry, check: &mut Check<'_>| {
        check.require(
            entry.at.is_some() != entry.when.is_some(),
            if entry.at.is_some() { "when" } else { "at" },
            "an event has one moment",
            "give a time (`at = \"5 ms\"`) or a condition (`when = \"a:eth0.rx_packets > 1e5\"`)",
        );
        let goes = matches!(entry.deed.value, Deed::MoveTask | Deed::SetAffinity);
        let deed = entry.deed.value;
        let (message, help) = match goes {
            true => (format!("`{deed}` needs cores"), "such as `to = \"0-3,8\"`"),
            false => (format!("`{deed}` takes nothing anywhere"), "leave it out"),
        };
        check.require(entry.to.is_some() == goes, "to", message, help);
    }
}

/// An event of a scenario.
#[derive(Debug, Clone)]
pub struct EventSetup {
    /// When it happens.
    pub trigger: Trigger,
    /// What happens.
    pub action: Action,
    /// Both, as a report calls them.
    pub text: String,
}

/// When an event happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Trigger {
    /// So long after all hosts have booted.
    At(Duration),
    /// As soon as a counter has passed a number.
    Counter(Condition),
}

/// A counter of a network device, and when it has gone far enough.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The device's host.
    pub host: usize,
    /// The device's name.
    pub device: String,
    /// Which of its counters.
    pub counter: NetCounter,
    /// It has gone far enough when it is more than this.
    pub more_than: f64,
}

names! {
    /// A counter of a network device (those of `ip -s link`).
    pub enum NetCounter {
        /// Packets that its driver took.
        TxPackets = "tx_packets",
        /// Their bytes.
        TxBytes = "tx_bytes",
        /// Packets that its driver handed up.
        RxPackets = "rx_packets",
        /// Their bytes.
        RxBytes = "rx_bytes",
    }
}

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A program and what it has started go to other cores.
    MoveTask {
        /// The program's number in the scenario.
        program: usize,
        /// The cores.
        cpus: Vec<u16>,
    },
    /// Interrupts arrive at other cores.
    SetAffinity {
        /// The host.
        host: usize,
        /// The network or block device whose interrupts they are.
        device: String,
        /// Which of them; all, in turn on the cores, if not given.
        number: Option<usize>,
        /// The cores.
        cpus: Vec<u16>,
    },
    /// An Ethernet cable goes down or comes up.
    Cable {
        /// Its number in the scenario.
        cable: usize,
        /// Whether it is up from now on.
        up: bool,
    },
}

/// What events may name.
pub(crate) struct Surroundings<'a> {
    /// Hosts and traffic sources.
    pub stations: Stations<'a>,
    /// Ethernet switches.
    pub switches: &'a [SwitchEntry],
    /// Cables.
    pub network: &'a NetworkSetup,
    /// Programs.
    pub programs: &'a [ProgramSetup],
}

/// Why something is not found: what, and what there is.
type Refused = (String, String);

impl EventSetup {
    /// The event of an entry, or what is wrong with it.
    pub(crate) fn find(
        around: &Surroundings<'_>,
        entry: &EventEntry,
        wrong: &mut Vec<Diagnostic>,
    ) -> Option<Self> {
        let trigger = match (&entry.at, &entry.when) {
            (Some(at), _) => Ok(Trigger::At(*at)),
            (_, Some(when)) => around.condition(&when.value).map(Trigger::Counter).map_err(|why| (when, why)),
            (None, None) => unreachable!("the entry's check asks for one"),
        };
        let (deed, what) = (entry.deed.value, &entry.what);
        let to = entry.to.as_ref();
        let action = match (deed, to) {
            (Deed::MoveTask, Some(to)) => around.move_task(what, to),
            (Deed::SetAffinity, Some(to)) => around.set_affinity(what, to),
            (Deed::Cut | Deed::Mend, _) => {
                around.cable(what).map(|cable| Action::Cable { cable, up: deed == Deed::Mend })
            }
            (Deed::MoveTask | Deed::SetAffinity, None) => unreachable!("the entry's check asks for cores"),
        };
        let mut told = |place: &Placed<String>, (message, help): Refused| {
            wrong.push(Diagnostic::new(&place.place, message).help(help));
        };
        let trigger = trigger.map_err(|(place, why)| told(place, why));
        let action = action.map_err(|(place, why)| told(place, why));
        let to = to.map_or_else(String::new, |to| format!(" to {}", to.value));
        Some(Self {
            trigger: trigger.ok()?,
            action: action.ok()?,
            text: format!("{deed} {}{to}", what.value),
        })
    }
}

impl<'a> Surroundings<'a> {
    /// `host:name`: the host's number, and the name.
    fn on_host<'t>(&self, what: &'t str, such_as: &str) -> Result<(usize, &'t str), Refused> {
        let hosts = self.stations.hosts;
        let names =
            || format!("the hosts are {}", suggest::list(hosts.iter().map(|host| host.name.as_str())));
        let Some((host, name)) = what.split_once(':') else {
            return Err((
                format!("`{what}` does not say on which host"),
                format!("`{such_as}`; {}", names()),
            ));
        };
        match hosts.iter().position(|own| own.name == host) {
            Some(number) => Ok((number, name)),
            None => Err((format!("there is no host `{host}`"), names())),
        }
    }

    /// A program by its name, or by its host and the first word of its command line.
    fn program(&self, what: &str) -> Result<usize, Refused> {
        let named = |program: &&'a ProgramSetup| program.name.as_deref();
        if let Some(found) = self.programs.iter().position(|program| named(&program) == Some(what)) {
            return Ok(found);
        }
        let names: Vec<&str> = self.programs.iter().filter_map(|program| named(&program)).collect();
        let Some((host, word)) = what.split_once(':') else {
            let near = suggest::nearest(what, names.iter().copied());
            let near = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
            let help = match names.is_empty() {
                true => "give it a `name`, or say `HOST:COMMAND`, such as `a:netserver`".to_owned(),
                false => format!(
                    "{near}there are {}; or `HOST:COMMAND`, such as `a:netserver`",
                    suggest::list(names)
                ),
            };
            return Err((format!("there is no program `{what}`"), help));
        };
        let (number, _) = self.on_host(&format!("{host}:"), "a:netserver")?;
        let here = || self.programs.iter().enumerate().filter(|(_, program)| program.host == number);
        let first =
            |program: &'a ProgramSetup| program.run.value.split_whitespace().next().unwrap_or_default();
        let mut such = here().filter(|(_, program)| first(program) == word);
        match (such.next(), such.next()) {
            (Some((found, _)), None) => Ok(found),
            (Some(_), Some(_)) => {
                let message = format!("several programs of host `{host}` are a `{word}`");
                Err((message, "give the one that is meant a `name`".to_owned()))
            }
            (None, _) => {
                let words = suggest::list(here().map(|(_, program)| first(program)));
                Err((format!("host `{host}` runs no `{word}`"), format!("it runs {words}")))
            }
        }
    }

    /// Cores of a host.
    fn cores(&self, host: usize, to: &str) -> Result<Vec<u16>, Refused> {
        let cores = self.stations.hosts[host].cores();
        cpu_list(to, cores).map_err(|message| (message, cores_help(cores)))
    }

    fn move_task<'p>(
        &self,
        what: &'p Placed<String>,
        to: &'p Placed<String>,
    ) -> Result<Action, (&'p Placed<String>, Refused)> {
        let program = self.program(&what.value).map_err(|why| (what, why))?;
        let cpus = self.cores(self.programs[program].host, &to.value).map_err(|why| (to, why))?;
        Ok(Action::MoveTask { program, cpus })
    }

    fn set_affinity<'p>(
        &self,
        what: &'p Placed<String>,
        to: &'p Placed<String>,
    ) -> Result<Action, (&'p Placed<String>, Refused)> {
        let found = self.on_host(&what.value, "a:eth0").and_then(|(host, name)| {
            let (name, number) = match name.split_once(':') {
                None => (name, None),
                Some((name, number)) => {
                    let refused = |_| {
                        (format!("`{number}` is no number of an interrupt"), "as in `a:eth0:3`".to_owned())
                    };
                    (name, Some(number.parse().map_err(refused)?))
                }
            };
            let device = device(&self.stations.hosts[host], name)?;
            Ok((host, device, number))
        });
        let (host, device, number) = found.map_err(|why| (what, why))?;
        let cpus = self.cores(host, &to.value).map_err(|why| (to, why))?;
        Ok(Action::SetAffinity { host, device, number, cpus })
    }

    /// A cable by its name, or by what is at one of its ends.
    fn cable<'p>(&self, what: &'p Placed<String>) -> Result<usize, (&'p Placed<String>, Refused)> {
        let cables = &self.network.cables;
        let is_named =
            |name: &Option<Placed<String>>| name.as_ref().is_some_and(|name| name.value == what.value);
        if let Some(found) = cables.iter().position(|cable| is_named(&cable.entry.name)) {
            return Ok(found);
        }
        let port = self.interface_port(&what.value).map_or_else(
            || {
                crate::network::port(self.stations, self.switches, what).map_err(|wrong| {
                    let names = suggest::list(
                        cables.iter().filter_map(|cable| cable.entry.name.as_deref().map(String::as_str)),
                    );
                    let named = if names.is_empty() { names } else { format!("; cables are called {names}") };
                    (wrong.message, format!("a port at one of its ends, such as `a` or `a:eth0`{named}"))
                })
            },
            Ok,
        );
        let port = port.map_err(|why| (what, why))?;
        let found = cables.iter().position(|cable| cable.ends.contains(&port));
        found.ok_or_else(|| {
            let ends = suggest::list(
                cables.iter().flat_map(|cable| &cable.entry.ends).map(|end| end.value.as_str()),
            );
            (what, (format!("no cable leads to `{}`", what.value), format!("cables lead to {ends}")))
        })
    }

    /// The port of `host:ethN`, if that is one.
    fn interface_port(&self, what: &str) -> Option<crate::network::PortSetup> {
        let (host, name) = what.split_once(':')?;
        let number = self.stations.hosts.iter().position(|own| own.name == host)?;
        let interface = self.stations.hosts[number].interfaces.iter().find(|own| own.name == name)?;
        let (device_host, device, port) = interface.port;
        Some(crate::network::PortSetup::Host(device_host, device, port))
    }

    /// `host:device.counter > number`.
    fn condition(&self, text: &str) -> Result<Condition, Refused> {
        let such_as = "`a:eth0.rx_packets > 1e5`";
        let refused = |what: &str| {
            (format!("`{what}` is no condition"), format!("a counter and a number, such as {such_as}"))
        };
        let (left, right) = text.split_once('>').ok_or_else(|| refused(text))?;
        let more_than = right.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let more_than = more_than.ok_or_else(|| refused(right.trim()))?;
        let (what, counter) = left.trim().split_once('.').ok_or_else(|| refused(left.trim()))?;
        let (host, name) = self.on_host(what, "a:eth0.rx_packets > 1e5")?;
        let own = &self.stations.hosts[host];
        if !own.interfaces.iter().any(|interface| interface.name == name) {
            return Err((
                format!("there is no network device `{name}`"),
                crate::route::known(&own.interfaces),
            ));
        }
        let all = NetCounter::ALL.iter();
        let Some((_, counter)) = all.clone().find(|(spelt, _)| *spelt == counter) else {
            let near = suggest::nearest(counter, all.clone().map(|(spelt, _)| *spelt));
            let near = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
            let help = format!("{near}there are {}", suggest::list(all.map(|(spelt, _)| *spelt)));
            return Err((format!("a network device has no counter `{counter}`"), help));
        };
        Ok(Condition { host, device: name.to_owned(), counter: *counter, more_than })
    }
}

/// A network or block device of a host, by the name that its kernel gives it; a namespace of a drive stands for the drive.
fn device(host: &HostSetup, name: &str) -> Result<String, Refused> {
    let names = || {
        let net = host.interfaces.iter().map(|interface| interface.name.as_str());
        net.chain(host.disks.iter().map(|disk| disk.name.as_str()))
    };
    if names().any(|own| own == name) {
        return Ok(name.to_owned());
    }
    let near = suggest::nearest(name, names());
    let near = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
    Err((format!("there is no device `{name}`"), format!("{near}the host's are {}", suggest::list(names()))))
}
