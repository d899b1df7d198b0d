//! Events while the programs of a scenario run: a link is cut, a task is moved, a host crashes.
//!
//! The names in an event are resolved when the scenario is read, so that unknown names are reported at their line.

use crate::cluster::{ClusterSetup, NtbCableSetup};
use crate::computer::{HypervisorSetup, PassedSetup, Placement, SlotSetup};
use crate::diagnostic::Diagnostic;
use crate::kernel::ErrorTrigger;
use crate::kpio::packets;
use crate::names::{self, NotFound};
use crate::network::{NetworkSetup, Stations, SwitchEntry};
use crate::placed::Placed;
use crate::placement::{MemoryPolicy, cores_help, cpu_list};
use crate::program::ProgramSetup;
use crate::read::{Check, record};
use crate::scalar::{Count, names};
use crate::setting::{self, NetSetting, cannot_be};
use crate::suggest;
use settings::PacketSelect;
use units::{Bytes, Duration};

names! {
    /// Kinds of events.
    pub enum Deed {
        /// Move a program and its children to other cores.
        MoveTask = "move-task",
        /// Deliver interrupts to other cores.
        SetAffinity = "set-affinity",
        /// Cut a link.
        Cut = "cut",
        /// Repair a cut link.
        Mend = "mend",
        /// Set the bit error rate of a link.
        ErrorRate = "error-rate",
        /// Senders of a PCIe link poison TLPs with data.
        Poison = "poison",
        /// A PCIe link's receivers lose completions that they have acknowledged.
        LoseCompletions = "lose-completions",
        /// Senders of a PCIe link damage data before its check sum is computed.
        DamageData = "damage-data",
        /// The same for headers, so that TLPs are malformed.
        DamageHeaders = "damage-headers",
        /// Mask interrupts in the function that sends them.
        Mask = "mask",
        /// Unmask them.
        Unmask = "unmask",
        /// Software has the port above a link contain what is below (DPC).
        Contain = "contain",
        /// Remove a device without notice.
        Remove = "remove",
        /// Plug a removed device back in.
        Plug = "plug",
        /// Move a device's link to another slot, like a programmable switch: hot removal, then hot plug.
        Assign = "assign",
        /// The lender takes back what it lends, whatever its state.
        Revoke = "revoke",
        /// A function ignores its driver: it reads, writes and interrupts at random addresses.
        Rogue = "rogue",
        /// Change a setting.
        Set = "set",
        /// Stop a host's cores.
        Crash = "crash",
        /// Power off a host or a virtual machine.
        PowerOff = "power-off",
        /// Power-cycle a host, which then boots.
        Reboot = "reboot",
    }
}

record! {
    /// Something that happens while the programs run: at a time, or when a counter exceeds a value.
    pub struct EventEntry {
        /// Time, counted from when all hosts have booted; exactly one of `at` and `when`.
        at: Option<Duration>,
        /// Condition on a counter: `a:eth0.rx_packets > 1e5`; exactly one of `at` and `when`.
        when: Option<Placed<String>>,
        /// The kind of event.
        deed as "do": Placed<Deed>,
        /// The object of the event.
        what: Placed<String>,
        /// Destination: cores in taskset syntax, or with `assign` one of the link's slots.
        to: Option<Placed<String>>,
        /// Probability that a bit is flipped, for `error-rate`; that a TLP is poisoned or damaged, or a completion lost.
        rate: Option<Placed<f64>>,
        /// New value; for `set`.
        value: Option<Placed<String>>,
        /// Time until the host has power again and its firmware has finished; for `reboot`, at least 1 ms.
        takes: Option<Duration>,
        /// Requests that the function sends; for `rogue`.
        tries: Option<Placed<Count>>,
        /// Seed of their addresses, instead of the scenario's; for `rogue`.
        seed: Option<u64>,
    }
    check |entry: &EventEntry, check: &mut Check<'_>| {
        check.require(
            entry.at.is_some() != entry.when.is_some(),
            if entry.at.is_some() { "when" } else { "at" },
            "an event has one moment",
            "give a time (`at = \"5 ms\"`) or a condition (`when = \"a:eth0.rx_packets > 1e5\"`)",
        );
        let deed = entry.deed.value;
        let keys = [
            (
                "to",
                entry.to.is_some(),
                &[Deed::MoveTask, Deed::SetAffinity, Deed::Assign][..],
                "such as `to = \"0-3,8\"`, or a slot for `assign`",
            ),
            (
                "rate",
                entry.rate.is_some(),
                &[Deed::ErrorRate, Deed::Poison, Deed::LoseCompletions, Deed::DamageData, Deed::DamageHeaders],
                "such as `rate = 1e-9`; 0 for no errors",
            ),
            ("value", entry.value.is_some(), &[Deed::Set], "such as `value = \"20 us\"`"),
            ("takes", entry.takes.is_some(), &[Deed::Reboot], "such as `takes = \"50 ms\"`"),
            ("tries", entry.tries.is_some(), &[Deed::Rogue], "such as `tries = 1000`"),
        ];
        for (key, is_given, of, such_as) in keys {
            let (message, help) = match of.contains(&deed) {
                true => (format!("`{deed}` needs it"), such_as),
                false => (format!("`{deed}` has none"), "leave it out"),
            };
            check.require(is_given == of.contains(&deed), key, message, help);
        }
        let has_seed = entry.seed.is_some() && deed != Deed::Rogue;
        check.require(!has_seed, "seed", format!("`{deed}` has none"), "leave it out");
        let rate = entry.rate.as_ref().map_or(0.0, |rate| rate.value);
        let (most, help) = if deed == Deed::ErrorRate { (1e-3, "from 0 to 1e-3") } else { (1.0, "from 0 to 1") };
        check.require((0.0..=most).contains(&rate), "rate", format!("no link works with {rate}"), help);
        let takes = entry.takes.is_none_or(|takes| takes >= Duration::from_ms(1));
        check.require(takes, "takes", "what is under way must have ended", "1 ms or more");
    }
}

/// An event of a scenario.
#[derive(Debug, Clone)]
pub struct EventSetup {
    /// When it happens.
    pub trigger: Trigger,
    /// What happens.
    pub action: Action,
    /// Description for reports.
    pub text: String,
}

/// When an event happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Trigger {
    /// This long after all hosts have booted.
    At(Duration),
    /// As soon as a counter exceeds a value.
    Counter(Condition),
}

/// A threshold of a host's counter.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// Index of the host that has the counter.
    pub host: usize,
    /// What is compared with the threshold.
    pub counter: EventCounter,
    /// The threshold.
    pub more_than: f64,
}

/// A counter that can trigger an event.
#[derive(Debug, Clone, PartialEq)]
pub enum EventCounter {
    /// A counter of the network device with this name.
    Net(String, NetCounter),
    /// A counter by its published name, `place/what/cause`. It can be checked only when the hosts have booted.
    Published(Placed<String>),
}

names! {
    /// A counter of a network device (those of `ip -s link`).
    pub enum NetCounter {
        /// Packets accepted by the driver.
        TxPackets = "tx_packets",
        /// Their bytes.
        TxBytes = "tx_bytes",
        /// Packets delivered by the driver.
        RxPackets = "rx_packets",
        /// Their bytes.
        RxBytes = "rx_bytes",
    }
}

/// What an event does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Moves a program and its children to other cores.
    MoveTask {
        /// Index of the program.
        program: usize,
        /// The cores.
        cpus: Vec<u16>,
    },
    /// Delivers interrupts to other cores.
    SetAffinity {
        /// Index of the host.
        host: usize,
        /// The network or block device of the interrupts.
        device: String,
        /// Index of the interrupt; `None` for all, distributed over the cores in turn.
        number: Option<usize>,
        /// The cores.
        cpus: Vec<u16>,
    },
    /// Masks or unmasks interrupts in the function that sends them.
    Mask {
        /// Index of the host.
        host: usize,
        /// The network or block device of the interrupts.
        device: String,
        /// Index of the interrupt; `None` for all.
        number: Option<usize>,
        /// Whether they are masked afterwards.
        masked: bool,
    },
    /// The port above a link contains what is below it.
    Contain {
        /// Index of the port's host.
        host: usize,
        /// The link.
        link: LinkPlace,
    },
    /// Cuts or repairs a link.
    Link {
        /// What is cut or repaired.
        link: LinkPlace,
        /// Whether it is up afterwards.
        up: bool,
    },
    /// Moves a device's link to another slot.
    Assign {
        /// Indices of host, device and link.
        link: (usize, usize, u8),
        /// Index of the slot: 0 is the initial one, then `other_slots` in order.
        slot: usize,
    },
    /// Lets a link make errors.
    ErrorRate {
        /// Where they are made from then on.
        link: LinkPlace,
        /// What goes wrong; on an Ethernet cable only bits.
        errors: LinkErrors,
        /// Probability of each.
        rate: f64,
    },
    /// Removes a device or plugs it in.
    Device {
        /// Indices of host and device.
        device: (usize, usize),
        /// Whether it is in its slot afterwards.
        present: bool,
    },
    /// The lender revokes the loan with this index.
    Revoke(usize),
    /// A function ignores its driver.
    Rogue {
        /// Index of the function's host.
        host: usize,
        /// The function.
        function: PassedSetup,
        /// Requests that it sends.
        tries: u32,
        /// Seed of their addresses, if the event has its own.
        seed: Option<u64>,
    },
    /// Changes a setting.
    Set(Setting),
    /// Stops a host's cores.
    Crash(usize),
    /// Powers off a host.
    PowerOff(usize),
    /// Powers off a virtual machine of a host.
    PowerOffVm(usize, usize),
    /// Power-cycles a host, which boots after that time.
    Reboot(usize, Duration),
}

/// What goes wrong on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkErrors {
    /// Bits are flipped on the wire.
    Bits,
    /// A sender marks data of a TLP as unusable (EP, base spec 2.7.2).
    Poisoned,
    /// A completion is lost after it was acknowledged, so that its request times out (base spec 2.8).
    LostCompletions,
    /// A bit of data is flipped before the LCRC is computed, which only ECRC detects (base spec 2.7.1).
    DamagedData,
    /// The same of a header, which its receiver finds malformed (base spec 2.3).
    DamagedHeaders,
}

/// A link of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkPlace {
    /// An Ethernet cable, by index.
    Cable(usize),
    /// An NTB cable, by index.
    NtbCable(usize),
    /// Upstream link of a PCIe switch: indices of host and switch.
    Switch(usize, usize),
    /// Upstream link of a device: indices of host, device and link.
    Device(usize, usize, u8),
}

/// A setting and its new value.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// A setting of a host's network device, by name.
    Net(usize, String, NetSetting),
    /// Timeout of requests to a host's block device, by name (Linux: `queue/io_timeout`).
    IoTimeout(usize, String, Duration),
    /// Minimum average segment size for SGLs (bytes): a parameter of a host's NVMe driver.
    SglThreshold(usize, u32),
    /// Memory policy of a program and its children.
    Memory(usize, MemoryPolicy),
    /// Which packets a host's NIC driver sends by programmed I/O: a parameter of its module.
    Packets(usize, PacketSelect),
    /// Placement policy of a host's hypervisor, never [`Placement::Fixed`].
    Placement(usize, Placement),
}

/// The objects that events may refer to.
pub(crate) struct Surroundings<'a> {
    /// Hosts and traffic sources.
    pub stations: Stations<'a>,
    /// Ethernet switches.
    pub switches: &'a [SwitchEntry],
    /// Cables.
    pub network: &'a NetworkSetup,
    /// Cables between NTB adapters.
    pub cluster: &'a ClusterSetup,
    /// Programs, which events can move to other cores.
    pub programs: &'a [ProgramSetup],
}

/// As [`NotFound`], with the offending value.
type Wrong<'p> = (&'p Placed<String>, NotFound);

impl EventSetup {
    /// Resolves an entry.
    pub(crate) fn find(
        around: &Surroundings<'_>,
        entry: &EventEntry,
        wrong: &mut Vec<Diagnostic>,
    ) -> Option<Self> {
        let trigger = match (&entry.at, &entry.when) {
            (Some(at), _) => Ok(Trigger::At(*at)),
            (_, Some(when)) => around.condition(when).map(Trigger::Counter).map_err(|why| (when, why)),
            (None, None) => unreachable!("the entry's check asks for one"),
        };
        let (deed, what) = (entry.deed.value, &entry.what);
        let to = entry.to.as_ref();
        let action = match (deed, to) {
            (Deed::MoveTask, Some(to)) => around.move_task(what, to),
            (Deed::SetAffinity, Some(to)) => around.set_affinity(what, to),
            (Deed::Assign, Some(to)) => around.assign(what, to),
            (Deed::Mask | Deed::Unmask, _) => around.interrupts(what).map(|(host, device, number)| {
                Action::Mask { host, device, number, masked: deed == Deed::Mask }
            }),
            (Deed::Contain, _) => around.contain(what),
            (Deed::Cut | Deed::Mend, _) => {
                around.link(what).map(|link| Action::Link { link, up: deed == Deed::Mend })
            }
            (
                Deed::ErrorRate
                | Deed::Poison
                | Deed::LoseCompletions
                | Deed::DamageData
                | Deed::DamageHeaders,
                _,
            ) => {
                let errors = match deed {
                    Deed::Poison => LinkErrors::Poisoned,
                    Deed::LoseCompletions => LinkErrors::LostCompletions,
                    Deed::DamageData => LinkErrors::DamagedData,
                    Deed::DamageHeaders => LinkErrors::DamagedHeaders,
                    _ => LinkErrors::Bits,
                };
                let rate = entry.rate.as_ref().map_or(0.0, |rate| rate.value);
                around.link(what).and_then(|link| match link {
                    LinkPlace::Cable(_) if errors != LinkErrors::Bits => {
                        let message = format!("`{}` is an Ethernet cable, which carries no TLPs", what.value);
                        Err((
                            what,
                            (message, "a device with a `name`, such as `a:nic`, or an NTB cable".to_owned()),
                        ))
                    }
                    link => Ok(Action::ErrorRate { link, errors, rate }),
                })
            }
            (Deed::Remove | Deed::Plug, _) => around
                .device(&what.value)
                .map(|device| Action::Device { device, present: deed == Deed::Plug })
                .map_err(|why| (what, why)),
            (Deed::Rogue, _) => {
                around.function(&what.value).map_err(|why| (what, why)).map(|(host, function)| {
                    let tries = entry.tries.as_ref().map_or(0, |tries| tries.value.get());
                    Action::Rogue { host, function, tries, seed: entry.seed }
                })
            }
            (Deed::Revoke, _) => around.borrowing(&what.value).map(Action::Revoke).map_err(|why| (what, why)),
            (Deed::Set, _) => {
                let value = entry.value.as_ref().expect("the entry's check asks for a value");
                around.setting(what, value).map(Action::Set)
            }
            (Deed::Crash, _) => around.host(what, &what.value).map(Action::Crash),
            (Deed::PowerOff, _) => {
                let action = |(host, vm): (usize, Option<usize>)| {
                    vm.map_or(Action::PowerOff(host), |vm| Action::PowerOffVm(host, vm))
                };
                names::place(around.stations.hosts, &what.value).map(action).map_err(|why| (what, why))
            }
            (Deed::Reboot, _) => around
                .host(what, &what.value)
                .map(|host| Action::Reboot(host, entry.takes.unwrap_or_default())),
            (Deed::MoveTask | Deed::SetAffinity | Deed::Assign, None) => {
                unreachable!("the entry's check asks where to")
            }
        };
        let mut told = |place: &Placed<String>, (message, help): NotFound| {
            wrong.push(Diagnostic::new(&place.place, message).help(help));
        };
        let trigger = trigger.map_err(|(place, why)| told(place, why));
        let action = action.map_err(|(place, why)| told(place, why));
        let to = to.map_or_else(String::new, |to| format!(" to {}", to.value));
        let to = entry.rate.as_ref().map_or(to, |rate| format!(" {}", rate.value));
        let to = entry.value.as_ref().map_or(to, |value| format!(" to {}", value.value));
        Some(Self {
            trigger: trigger.ok()?,
            action: action.ok()?,
            text: format!("{deed} {}{to}", what.value),
        })
    }
}

impl<'a> Surroundings<'a> {
    /// Parses `host:name`: index of the host, and the name.
    fn on_host<'t>(&self, what: &'t str, such_as: &str) -> Result<(usize, &'t str), NotFound> {
        names::on_host(self.stations.hosts, what, such_as)
    }

    /// A program by name, or by first word of its command line, behind its host or guest as in `a:fio` or `a/v:fio`.
    fn program(&self, what: &str) -> Result<usize, NotFound> {
        let named = |program: &&'a ProgramSetup| program.name.as_deref();
        if let Some(found) = self.programs.iter().position(|program| named(&program) == Some(what)) {
            return Ok(found);
        }
        let names: Vec<&str> = self.programs.iter().filter_map(|program| named(&program)).collect();
        let Some((host, word)) = what.split_once(':') else {
            let help = match names.is_empty() {
                true => "give it a `name`, or say `HOST:COMMAND`, such as `a:netserver`".to_owned(),
                false => {
                    suggest::among(what, names, "there are") + "; or `HOST:COMMAND`, such as `a:netserver`"
                }
            };
            return Err((format!("there is no program `{what}`"), help));
        };
        let (number, vm) = names::place(self.stations.hosts, host)?;
        let is_here =
            move |program: &ProgramSetup| program.host == number && (vm.is_none() || program.vm == vm);
        let here = || self.programs.iter().enumerate().filter(move |(_, program)| is_here(program));
        let first = |program: &'a ProgramSetup| program.command.split_whitespace().next().unwrap_or_default();
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

    fn cores(&self, host: usize, to: &str) -> Result<Vec<u16>, NotFound> {
        let cores = self.stations.hosts[host].cores();
        cpu_list(to, cores).map_err(|message| (message, cores_help(cores)))
    }

    fn move_task<'p>(&self, what: &'p Placed<String>, to: &'p Placed<String>) -> Result<Action, Wrong<'p>> {
        let program = self.program(&what.value).map_err(|why| (what, why))?;
        let ProgramSetup { host, vm, .. } = self.programs[program];
        let cores = match vm {
            None => self.stations.hosts[host].cores(),
            Some(vm) => self.stations.hosts[host].vms[vm].vcpus.len() as u32,
        };
        let cpus = cpu_list(&to.value, cores).map_err(|message| (to, (message, cores_help(cores))))?;
        Ok(Action::MoveTask { program, cpus })
    }

    fn set_affinity<'p>(
        &self,
        what: &'p Placed<String>,
        to: &'p Placed<String>,
    ) -> Result<Action, Wrong<'p>> {
        let (host, device, number) = self.interrupts(what)?;
        let cpus = self.cores(host, &to.value).map_err(|why| (to, why))?;
        Ok(Action::SetAffinity { host, device, number, cpus })
    }

    /// All interrupts of a network or block device, `a:eth0`, or one of them, `a:eth0:3`: host, device and number. Its
    /// kernel tells whether it has the device.
    fn interrupts<'p>(&self, what: &'p Placed<String>) -> Result<(usize, String, Option<usize>), Wrong<'p>> {
        let found = self.on_host(&what.value, "a:eth0").and_then(|(host, name)| {
            let (name, number) = match name.split_once(':') {
                None => (name, None),
                Some((name, number)) => {
                    let refused = |_| {
                        (
                            format!("`{number}` is not the number of an interrupt"),
                            "as in `a:eth0:3`".to_owned(),
                        )
                    };
                    (name, Some(number.parse().map_err(refused)?))
                }
            };
            let teams = &self.stations.hosts[host].teams;
            match teams.iter().find(|team| team.name == name) {
                None => Ok((host, name.to_owned(), number)),
                Some(team) => {
                    let members = suggest::list(team.members.iter().map(|member| member.name.as_str()));
                    let message = format!("the team `{name}` has no interrupts");
                    Err((message, format!("its members have: {members}")))
                }
            }
        });
        found.map_err(|why| (what, why))
    }

    /// The link above a device or switch, if the port above it can contain what is below and its kernel lets it.
    fn contain<'p>(&self, what: &'p Placed<String>) -> Result<Action, Wrong<'p>> {
        let such_as = "a device with a `name` or a PCIe switch, such as `a:nic`";
        let link = self.slot_link(&what.value).unwrap_or_else(|| {
            Err((format!("`{}` is not a link of a device or switch", what.value), such_as.to_owned()))
        });
        let link = link.map_err(|why| (what, why))?;
        let hosts = self.stations.hosts;
        let above = match link {
            LinkPlace::Switch(host, switch) => &hosts[host].switches[switch].links[0],
            LinkPlace::Device(host, device, number) => {
                &hosts[host].devices[device].links[usize::from(number)]
            }
            LinkPlace::Cable(_) | LinkPlace::NtbCable(_) => unreachable!("they are in no slot"),
        };
        let own = &hosts[above.host];
        let given = |figure: &Option<crate::figure::Figure<bool>>| figure.as_ref().is_some_and(|on| on.value);
        let (can, whose) = match above.slot {
            SlotSetup::Root(_) => {
                (given(&own.machine.host.root_complex.containment), "change.host.root_complex.containment")
            }
            SlotSetup::Switch(switch, _) => {
                (given(&own.switches[switch].file.containment), "change.containment")
            }
        };
        if !can {
            let message = format!("the port above `{}` cannot contain what is below", what.value);
            let whose = if whose.contains("host") {
                format!("the host's `{whose}`")
            } else {
                format!("the switch's `{whose}`")
            };
            return Err((what, (message, format!("{whose} gives it that"))));
        }
        if own.kernel.pci.containment() == ErrorTrigger::Off {
            let message = format!("the kernel of `{}` does not let its ports contain errors", own.name);
            return Err((what, (message, "leave `change_kernel.pci.containment` out".to_owned())));
        }
        Ok(Action::Contain { host: above.host, link })
    }

    /// A cable by name or by one of its ends, or a device's upstream link by the device's name.
    fn link<'p>(&self, what: &'p Placed<String>) -> Result<LinkPlace, Wrong<'p>> {
        let cables = &self.network.cables;
        let is_named =
            |name: &Option<Placed<String>>| name.as_ref().is_some_and(|name| name.value == what.value);
        if let Some(found) = cables.iter().position(|cable| is_named(&cable.entry.name)) {
            return Ok(LinkPlace::Cable(found));
        }
        let is_named = |cable: &NtbCableSetup| cable.name.as_deref() == Some(&what.value);
        if let Some(found) = self.cluster.cables.iter().position(is_named) {
            return Ok(LinkPlace::NtbCable(found));
        }
        let port = match self.interface_port(&what.value) {
            Some(port) => port,
            None => match self.slot_link(&what.value) {
                Some(link) => return link.map_err(|why| (what, why)),
                None => crate::network::port(self.stations, self.switches, what).map_err(|wrong| {
                    let names = cables.iter().filter_map(|cable| cable.entry.name.as_ref());
                    let names = suggest::list(names.map(|name| name.value.as_str()));
                    let named = if names.is_empty() { names } else { format!("; cables are called {names}") };
                    let help = format!(
                        "a port at one of its ends, such as `a` or `a:eth0`; a device with a `name` or a PCIe switch, such as `a:nic`, for \
                         the link above it{named}"
                    );
                    (what, (wrong.message, help))
                })?,
            },
        };
        let found = cables.iter().position(|cable| cable.ends.contains(&port));
        found.map(LinkPlace::Cable).ok_or_else(|| {
            let ends = cables.iter().flat_map(|cable| &cable.entry.ends);
            let ends = suggest::list(ends.map(|end| end.value.as_str()));
            (what, (format!("no cable leads to `{}`", what.value), format!("cables lead to {ends}")))
        })
    }

    /// A device's link and its new slot.
    fn assign<'p>(&self, what: &'p Placed<String>, to: &'p Placed<String>) -> Result<Action, Wrong<'p>> {
        let link = self.slot_link(&what.value).transpose().map_err(|why| (what, why))?;
        let Some(LinkPlace::Device(host, device, number)) = link else {
            let message = format!("`{}` is not a link of a device", what.value);
            return Err((
                what,
                (message, "a device with a `name`, such as `a:nic` or `a:octo:0`".to_owned()),
            ));
        };
        let usual = &self.stations.hosts[host].devices[device].links[usize::from(number)];
        let slots = || std::iter::once(usual).chain(&usual.others).map(|link| link.name.as_str());
        match slots().position(|slot| slot == to.value) {
            Some(slot) => Ok(Action::Assign { link: (host, device, number), slot }),
            None => {
                let message = format!("`{}` cannot be given to slot `{}`", what.value, to.value);
                let known = suggest::list(slots());
                Err((
                    to,
                    (message, format!("it can be in {known}; `other_slots` of the device's link says which")),
                ))
            }
        }
    }

    /// The link of `host:device` or `host:device:link`; `None` if no device has the name.
    fn slot_link(&self, what: &str) -> Option<Result<LinkPlace, NotFound>> {
        let (host, name) = what.split_once(':')?;
        let (name, number) = match name.split_once(':') {
            None => (name, None),
            Some((name, number)) => (name, Some(number)),
        };
        let host = names::host(self.stations.hosts, host).ok()?;
        let switches = &self.stations.hosts[host].switches;
        if let Some(switch) =
            switches.iter().position(|switch| switch.name == name).filter(|_| number.is_none())
        {
            return Some(Ok(LinkPlace::Switch(host, switch)));
        }
        let device = names::find_device(&self.stations.hosts[host], name)?;
        let links = self.stations.hosts[host].devices[device].links.len();
        let known = || match links {
            1 => format!("it has one: `{name}`"),
            _ => format!("it has `{name}:0` to `{name}:{}`", links - 1),
        };
        let number = match number {
            None if links == 1 => 0,
            None => return Some(Err((format!("`{what}` does not say which link of the device"), known()))),
            Some(number) => match number.parse::<u8>().ok().filter(|&number| usize::from(number) < links) {
                Some(number) => number,
                None => return Some(Err((format!("the device has no link `{number}`"), known()))),
            },
        };
        Some(Ok(LinkPlace::Device(host, device, number)))
    }

    /// A device by name, or by the name of one of its network devices.
    fn device(&self, what: &str) -> Result<(usize, usize), NotFound> {
        let (host, name) = self.on_host(what, "a:eth0")?;
        let own = &self.stations.hosts[host];
        let interface = || own.interfaces.iter().find(|interface| interface.name == name);
        let of_interface = || interface().map(|interface| (interface.port.0, interface.port.1));
        let found = names::find_device(own, name).map(|device| (host, device)).or_else(of_interface);
        found.ok_or_else(|| {
            let devices = own.devices.iter().filter_map(|device| device.name.as_deref());
            let interfaces = own.interfaces.iter().map(|interface| interface.name.as_str());
            names::no_device(name, devices.chain(interfaces))
        })
    }

    /// A device's only function, or one of its virtual ones, as in `b:ssd` and `b:nic:vf0`.
    fn function(&self, what: &str) -> Result<(usize, PassedSetup), NotFound> {
        let (host, name) = self.on_host(what, "b:ssd")?;
        let (name, vf) = name.split_once(':').map_or((name, None), |(name, vf)| (name, Some(vf)));
        let own = &self.stations.hosts[host];
        let (_, device) = self.device(&format!("{}:{name}", own.name))?;
        match vf {
            None => Ok((host, PassedSetup { device, vf: None })),
            Some(_) => {
                names::function_of(&own.devices[device], device, (name, vf)).map(|passed| (host, passed))
            }
        }
    }

    /// The loan with this name.
    fn borrowing(&self, what: &str) -> Result<usize, NotFound> {
        let borrows = &self.cluster.borrows;
        borrows.iter().position(|borrow| borrow.name.value == what).ok_or_else(|| {
            let names = || borrows.iter().map(|borrow| borrow.name.value.as_str());
            let help = match names().next() {
                None => "a `[[borrow]]` names what a host borrows".to_owned(),
                Some(_) => suggest::among(what, names(), "there is borrowed:"),
            };
            (format!("nobody borrows `{what}`"), help)
        })
    }

    fn host<'p>(&self, what: &'p Placed<String>, name: &str) -> Result<usize, Wrong<'p>> {
        names::host(self.stations.hosts, name).map_err(|why| (what, why))
    }

    /// Parses `host:device.setting` or `program.setting`.
    fn setting<'p>(&self, what: &'p Placed<String>, value: &'p Placed<String>) -> Result<Setting, Wrong<'p>> {
        let (owner, name) = what
            .value
            .rsplit_once('.')
            .ok_or_else(|| (what, (format!("`{}` is not a setting", what.value), setting::known())))?;
        match (owner.split_once(':'), name) {
            (Some((host, "nic_driver")), "kpio") => self.packets(what, host, value),
            (Some((host, "nic_driver")), _) => Err((what, setting::of_nic_driver(host, name))),
            (Some((host, "nvme_driver")), "sgl_threshold") => self.sgl_threshold(what, host, value),
            (Some((host, "nvme_driver")), _) => Err((what, setting::of_nvme_driver(host, name))),
            (Some((host, "hypervisor")), "placement") => self.placement(what, host, value),
            (_, "memory") => self.memory(what, owner, value),
            (_, "io_timeout") => self.io_timeout(what, owner, value),
            _ if setting::NET.contains(&name) => self.of_net(what, (owner, name), value),
            _ => Err((what, (format!("there is no setting `{name}`"), setting::known()))),
        }
    }

    fn of_net<'p>(
        &self,
        what: &'p Placed<String>,
        (owner, setting): (&str, &str),
        value: &'p Placed<String>,
    ) -> Result<Setting, Wrong<'p>> {
        let (host, name) = self.on_host(owner, "a:eth0.mtu").map_err(|why| (what, why))?;
        names::interface(&self.stations.hosts[host].interfaces, name).map_err(|why| (what, why))?;
        let team = self.stations.hosts[host].teams.iter().find(|team| team.name == name);
        let lacks = match setting {
            "rss" => Some("table of RX queues"),
            "tx_ring" | "rx_ring" => Some("rings"),
            _ => None,
        };
        if let Some(lacks) = lacks.filter(|_| team.is_some()) {
            let message = format!("the team `{name}` has no {lacks}");
            return Err((what, (message, "its members have their own".to_owned())));
        }
        NetSetting::parse(setting, &value.value)
            .map(|setting| Setting::Net(host, name.to_owned(), setting))
            .map_err(|help| (value, (cannot_be(setting, value), help)))
    }

    fn memory<'p>(
        &self,
        what: &'p Placed<String>,
        program: &str,
        value: &'p Placed<String>,
    ) -> Result<Setting, Wrong<'p>> {
        let program = self.program(program).map_err(|why| (what, why))?;
        let nodes = self.stations.hosts[self.programs[program].host].machine.host.nodes();
        MemoryPolicy::parse(&value.value, nodes)
            .map(|policy| Setting::Memory(program, policy))
            .map_err(|message| (value, (message, MemoryPolicy::help(nodes))))
    }

    fn io_timeout<'p>(
        &self,
        what: &'p Placed<String>,
        owner: &str,
        value: &'p Placed<String>,
    ) -> Result<Setting, Wrong<'p>> {
        let (host, name) = self.on_host(owner, "a:nvme0n1.io_timeout").map_err(|why| (what, why))?;
        match value.value.parse() {
            Ok(time) if time > Duration::ZERO => Ok(Setting::IoTimeout(host, name.to_owned(), time)),
            _ => Err((value, (cannot_be("io_timeout", value), "a time, such as `30 s`".to_owned()))),
        }
    }

    fn sgl_threshold<'p>(
        &self,
        what: &'p Placed<String>,
        host: &str,
        value: &'p Placed<String>,
    ) -> Result<Setting, Wrong<'p>> {
        let host = self.host(what, host)?;
        match value.value.parse::<Bytes>() {
            Ok(bytes) if bytes.get() <= 1 << 30 => Ok(Setting::SglThreshold(host, bytes.get() as u32)),
            _ => {
                let help = "up to 1 GiB, such as `32 KiB`; `0 B` for never".to_owned();
                Err((value, (cannot_be("sgl_threshold", value), help)))
            }
        }
    }

    fn packets<'p>(
        &self,
        what: &'p Placed<String>,
        host: &str,
        value: &'p Placed<String>,
    ) -> Result<Setting, Wrong<'p>> {
        let host = self.host(what, host)?;
        let driver = self.stations.hosts[host].nic_driver.as_ref();
        if driver.is_none_or(|driver| driver.kpio.is_none()) {
            let help = "give the host `[host.nic_driver]` with `kpio = \"off\"`, so that its queues exist";
            return Err((what, ("its driver is loaded without programmed I/O".to_owned(), help.to_owned())));
        }
        match packets(&value.value) {
            Some(select) => Ok(Setting::Packets(host, select)),
            None => {
                let help = "`off`, `all`, `tcp-ports 5001-5010` or `up-to 256 B`";
                Err((value, (cannot_be("kpio", value), help.to_owned())))
            }
        }
    }

    fn placement<'p>(
        &self,
        what: &'p Placed<String>,
        host: &str,
        value: &'p Placed<String>,
    ) -> Result<Setting, Wrong<'p>> {
        let host = self.host(what, host)?;
        let fixed = |hypervisor: HypervisorSetup| hypervisor.placement == Placement::Fixed;
        if self.stations.hosts[host].hypervisor.is_none_or(fixed) {
            let help = "give the host `[host.hypervisor]` with another `placement` than `fixed`";
            return Err((what, ("nothing places its virtual machines".to_owned(), help.to_owned())));
        }
        let choices = || Placement::ALL.iter().filter(|(_, choice)| *choice != Placement::Fixed);
        match choices().find(|(spelt, _)| *spelt == value.value) {
            Some((_, choice)) => Ok(Setting::Placement(host, *choice)),
            None => {
                let help = format!("one of {}", suggest::list(choices().map(|(spelt, _)| *spelt)));
                Err((value, (cannot_be("placement", value), help)))
            }
        }
    }

    /// The port of `host:ethN`, if it has this form.
    fn interface_port(&self, what: &str) -> Option<crate::network::PortSetup> {
        let (host, name) = what.split_once(':')?;
        let number = names::host(self.stations.hosts, host).ok()?;
        let interfaces = &self.stations.hosts[number].interfaces;
        let (device_host, device, port) = interfaces[names::interface(interfaces, name).ok()?].port;
        Some(crate::network::PortSetup::Host(device_host, device, port))
    }

    /// Parses `host:device.counter > number` or `host:place/what/cause > number`.
    fn condition(&self, when: &Placed<String>) -> Result<Condition, NotFound> {
        let text = &*when.value;
        let such_as = "`a:eth0.rx_packets > 1e5` or `a:nic0/interrupts > 100`";
        let refused = |what: &str| {
            (format!("`{what}` is not a condition"), format!("a counter and a number, such as {such_as}"))
        };
        let (left, right) = text.split_once('>').ok_or_else(|| refused(text))?;
        let more_than = right.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let more_than = more_than.ok_or_else(|| refused(right.trim()))?;
        if left.contains('/') {
            let (host, name) = self.on_host(left.trim(), "a:nic0/interrupts > 100")?;
            let name = Placed { value: name.to_owned(), place: when.place.clone() };
            return Ok(Condition { host, counter: EventCounter::Published(name), more_than });
        }
        let (what, counter) = left.trim().split_once('.').ok_or_else(|| refused(left.trim()))?;
        let (host, name) = self.on_host(what, "a:eth0.rx_packets > 1e5")?;
        names::interface(&self.stations.hosts[host].interfaces, name)?;
        let all = NetCounter::ALL.iter();
        let Some((_, counter)) = all.clone().find(|(spelt, _)| *spelt == counter) else {
            let help = suggest::among(counter, all.map(|(spelt, _)| *spelt), "there are");
            return Err((format!("a network device has no counter `{counter}`"), help));
        };
        Ok(Condition { host, counter: EventCounter::Net(name.to_owned(), *counter), more_than })
    }
}
