//! The cluster of a scenario: cables between NTB adapters, switches between them, and lent functions.

use std::collections::BTreeMap;

use crate::computer::{HostSetup, PassedSetup};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::doc::Doc;
use crate::library::Library;
use crate::link::LinkWidth;
use crate::names::{self, NotFound};
use crate::ntb::{ClusterSwitch, Ntb};
use crate::placed::Placed;
use crate::read::{Check, record};
use crate::scenario::Changes;
use crate::suggest;
use settings::{FunctionHolder, FunctionReach, IsolationRefusal, ReachExtent, isolation};
use units::{Bytes, Duration};

record! {
    /// A cable between two NTB adapters, or between one and a cluster switch.
    pub struct NtbCableEntry {
        /// Name, if something else refers to it.
        name: Option<Placed<String>>,
        /// Its ends: `a:n0` for the adapter `n0` of host `a`, `cs` for cluster switch `cs`.
        ends: Vec<Placed<String>>,
        /// Number of lanes; what the adapters' file says if not given.
        lanes: Option<Placed<LinkWidth>>,
        /// Delay from one end to the other, without the latency of the ends; 10 ns (about 2 m) if not given.
        propagation: Option<Duration>,
    }
    check |cable: &NtbCableEntry, check: &mut Check<'_>| {
        let count = cable.ends.len();
        let help = "`ends = [\"a:n0\", \"b:n0\"]`";
        check.require(count == 2, "ends", format!("a cable has two ends, not {count}"), help);
        let short = cable.propagation.is_none_or(|time| time <= Duration::from_ms(1));
        check.require(short, "propagation", "no TLP is under way for as long", "1 ms at most");
    }
}

record! {
    /// A switch between cables of NTB adapters.
    pub struct ClusterSwitchEntry {
        /// Name, by which the ends of cables refer to it.
        name: Placed<String>,
        /// The switch: a name, or the path of a file.
        part: Placed<String>,
        /// Changes to the switch, with the keys of its file.
        change: Option<Changes>,
    }
}

record! {
    /// A function of one host that another host borrows.
    pub struct BorrowEntry {
        /// The device: `b:gpu0` for the device `gpu0` of host `b`, `b:nic:vf0` for the first virtual function of its NIC `nic`.
        function: Placed<String>,
        /// The borrower: a host, or `a/x` for the virtual machine `x` of host `a`.
        by: Placed<String>,
        /// Start of the loan; before the programs start if not given.
        from: Option<Duration>,
        /// End of the loan; the end of the run if not given.
        until: Option<Duration>,
    }
    check |borrow: &BorrowEntry, check: &mut Check<'_>| {
        let from = borrow.from.unwrap_or(Duration::ZERO);
        let is_some = borrow.until.is_none_or(|until| until > from);
        check.require(is_some, "until", "it is over before it has begun", "later than `from`");
    }
}

/// The end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterEnd {
    /// An adapter: indices of host and device.
    Adapter(usize, usize),
    /// A cluster switch, by its index.
    Switch(usize),
}

/// A cable with its ends resolved.
#[derive(Debug, Clone)]
pub struct NtbCableSetup {
    /// Name in the scenario, if events or reports refer to it.
    pub name: Option<String>,
    /// What its connectors are plugged into.
    pub ends: [ClusterEnd; 2],
    /// Number of lanes: the entry's, or the fewest of its adapters' files.
    pub lanes: u32,
    /// Delay from one end to the other, without the latency of the ends.
    pub propagation: Duration,
}

/// A borrowed function.
#[derive(Debug, Clone)]
pub struct BorrowSetup {
    /// The borrowed function as the scenario writes it, such as `b:gpu0`.
    pub name: Placed<String>,
    /// The host that lends it.
    pub lender: usize,
    /// The function on the lender.
    pub function: PassedSetup,
    /// The borrowing host, or the host of the borrowing virtual machine.
    pub by: usize,
    /// The borrowing virtual machine.
    pub vm: Option<usize>,
    /// Start of the loan, relative to the programs' start; zero if it starts before them.
    pub from: Duration,
    /// End of the loan.
    pub until: Option<Duration>,
}

impl BorrowSetup {
    /// A sentence on what the function reaches while it is lent.
    pub fn reach(&self, hosts: &[HostSetup]) -> String {
        let [lender, by] = [self.lender, self.by].map(|host| &hosts[host]);
        let (name, reached) = (&self.name.value, self.reached(hosts));
        let Ok(FunctionReach { of_own, of_holder }) = isolation(lender.iommu, holder(by, self.vm)) else {
            unreachable!("the loan was checked when it was read")
        };
        let there = match of_holder {
            ReachExtent::Nothing => "nothing there".to_owned(),
            ReachExtent::Guest => format!("the {reached} of the guest"),
            ReachExtent::Mapped => format!("what drivers map of {reached} there"),
            ReachExtent::Memory => format!("all {reached} there"),
            ReachExtent::Everything => format!("all {reached} and every interrupt there"),
        };
        match of_own {
            ReachExtent::Nothing => {
                format!("{name} for {}: it reaches {there}, and nothing of {}", by.name, lender.name)
            }
            _ => format!(
                "{name} for {}: no IOMMU keeps it from anything; it reaches {there}, all memory, devices and interrupts of {}, \
                 and what windows of its adapter lead to",
                by.name, lender.name
            ),
        }
    }

    /// Whether a host itself borrows it.
    pub fn is_by_host(&self, host: usize) -> bool {
        self.by == host && self.vm.is_none()
    }

    /// Whether another loan is of the same function.
    fn is_of_same(&self, other: &Self) -> bool {
        (self.lender, self.function) == (other.lender, other.function)
    }

    /// Whether a virtual machine of a host borrows it.
    pub fn is_by_vm(&self, host: usize, vm: usize) -> bool {
        self.by == host && self.vm == Some(vm)
    }

    /// Size of the borrower's memory that it reaches.
    fn reached(&self, hosts: &[HostSetup]) -> Bytes {
        match self.vm {
            Some(vm) => hosts[self.by].vms[vm].memory,
            None => hosts[self.by].reached_by_borrowed(),
        }
    }
}

/// A scenario's cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterSetup {
    /// Cluster switches: name and file.
    pub switches: Vec<(String, ClusterSwitch)>,
    /// Cables between adapters and cluster switches, in the scenario's order.
    pub cables: Vec<NtbCableSetup>,
    /// Loans, in order of their start.
    pub borrows: Vec<BorrowSetup>,
}

impl ClusterSetup {
    /// The functions that a borrower gets for the first time; a function that comes back keeps its kernel name.
    pub fn first_borrows<'a>(
        &'a self,
        is_by: impl Fn(&BorrowSetup) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = &'a BorrowSetup> {
        let had = move |n: usize, borrow: &BorrowSetup| {
            self.borrows[..n].iter().any(|earlier| is_by(earlier) && earlier.is_of_same(borrow))
        };
        let first = move |&(n, borrow): &(usize, &BorrowSetup)| is_by(borrow) && !had(n, borrow);
        self.borrows.iter().enumerate().filter(first).map(|(_, borrow)| borrow)
    }
}

/// Maximum number of adapters: each has a bit in a register.
const MOST_ADAPTERS: usize = 64;
/// Default cable delay.
const PROPAGATION: Duration = Duration::from_ns(10);
/// Segments that the service uses per neighbour, for memory and registers.
const MAIL_SEGMENTS: u64 = 2;
/// Segments of a loan: for messages on the lender, and for BARs on the borrower (most devices have up to two).
const LEASE_SEGMENTS: u64 = 2;

/// Who has a function: a host, or a guest of it.
fn holder(by: &HostSetup, vm: Option<usize>) -> FunctionHolder {
    if vm.is_some() { FunctionHolder::RemoteGuest(by.iommu) } else { FunctionHolder::Host(by.iommu) }
}

/// What the file of an NTB adapter says; `None` for other devices.
pub fn adapter(host: &HostSetup, device: usize) -> Option<&Ntb> {
    host.devices[device].kind.ntb()
}

/// A host's adapters and their device indices.
fn adapters(host: &HostSetup) -> impl Iterator<Item = (usize, &Ntb)> {
    (0..host.devices.len()).filter_map(|device| Some((device, adapter(host, device)?)))
}

/// The cluster node number of an adapter: adapters are counted across all hosts, from 0.
pub fn node(hosts: &[HostSetup], host: usize, device: usize) -> u8 {
    let before: usize = hosts[..host].iter().map(|host| adapters(host).count()).sum();
    (before + adapters(&hosts[host]).filter(|(other, _)| *other < device).count()) as u8
}

/// The PCI segment in which other hosts' kernels see the functions that a host lends through its first adapter.
pub(crate) fn segment(hosts: &[HostSetup], lender: usize) -> u16 {
    let first = adapters(&hosts[lender]).next().map_or(0, |(device, _)| device);
    u16::from(node(hosts, lender, first)) + 1
}

impl ClusterSetup {
    /// Resolves the names in the entries.
    ///
    /// # Errors
    /// If a switch's file is invalid.
    pub(crate) fn find(
        library: &Library,
        hosts: &[HostSetup],
        (switches, cables, borrows): (&[ClusterSwitchEntry], &[NtbCableEntry], &[BorrowEntry]),
        wrong: &mut Vec<Diagnostic>,
    ) -> Result<Self, Diagnostics> {
        let mut found = Self::default();
        for entry in switches {
            let mut doc = Doc::<ClusterSwitch>::load_at(library, &entry.part.value, &entry.part.place)?;
            for changed in entry.change.iter().flat_map(|changes| &changes.0) {
                doc.lay(changed)?;
            }
            found.switches.push((entry.name.value.clone(), doc.read()?));
        }
        let all: Vec<&HostSetup> = hosts.iter().flat_map(|host| adapters(host).map(move |_| host)).collect();
        if let Some(host) = all.get(MOST_ADAPTERS) {
            let message = format!("there are {} NTB adapters", all.len());
            return Err(host.complaint(message, Some(format!("{MOST_ADAPTERS} at most"))));
        }
        let mut lanes: BTreeMap<ClusterEnd, u32> = BTreeMap::new();
        for entry in cables {
            found.add_cable(hosts, entry, &mut lanes, wrong);
        }
        if wrong.is_empty() {
            for entry in borrows {
                match found.borrow(hosts, entry) {
                    Ok(borrow) => found.borrows.push(borrow),
                    Err((place, (message, help))) => {
                        wrong.push(Diagnostic::new(&place.place, message).help(help));
                    }
                }
            }
            found.borrows.sort_by_key(|borrow| borrow.from);
            found.check_tables(hosts, wrong);
        }
        Ok(found)
    }

    /// Whether a whole device of a host is lent before the programs start, so that the host's own drivers do not bind
    /// to it: until it is borrowed, the driver for virtual machines holds it.
    pub fn lends(&self, hosts: &[HostSetup], host: usize, device: usize) -> bool {
        self.lends_function(host, PassedSetup { device, vf: None }) && !hosts[host].serves_vms(device)
    }

    /// Whether a device or one of its virtual functions is ever lent.
    pub(crate) fn lends_function(&self, host: usize, function: PassedSetup) -> bool {
        self.lent_by(host).any(|lent| lent == function)
    }

    /// The functions that a host lends, once per loan.
    pub fn lent_by(&self, host: usize) -> impl Iterator<Item = PassedSetup> {
        self.borrows.iter().filter(move |borrow| borrow.lender == host).map(|borrow| borrow.function)
    }

    fn add_cable(
        &mut self,
        hosts: &[HostSetup],
        entry: &NtbCableEntry,
        used: &mut BTreeMap<ClusterEnd, u32>,
        wrong: &mut Vec<Diagnostic>,
    ) {
        let mut ends = Vec::new();
        for end in &entry.ends {
            match self.end(hosts, &end.value) {
                Ok(end) => ends.push(end),
                Err((message, help)) => wrong.push(Diagnostic::new(&end.place, message).help(help)),
            }
        }
        let [first, second] = ends[..] else { return };
        if first == second {
            let message = format!("both ends are at `{}`", entry.ends[1].value);
            wrong.push(
                Diagnostic::new(&entry.ends[1].place, message).help("two adapters, or one and a switch"),
            );
            return;
        }
        let files = [first, second].map(|end| match end {
            ClusterEnd::Adapter(host, device) => adapter(&hosts[host], device),
            ClusterEnd::Switch(_) => None,
        });
        let usual = files.iter().flatten().map(|ntb| ntb.cable_lanes.value.get()).min();
        let lanes = entry.lanes.as_ref().map(|lanes| lanes.value.get()).or(usual).unwrap_or(8);
        for ((end, file), said) in [first, second].into_iter().zip(files).zip(&entry.ends) {
            let taken = used.entry(end).or_default();
            let complaint = match (file, end) {
                (Some(ntb), _) => {
                    *taken += lanes;
                    let has = ntb.cable.width.value.get();
                    (*taken > has).then(|| {
                        let message = format!("the cables of `{}` take {taken} lanes", said.value);
                        (message, format!("{} has {has}; `lanes` lets a cable have fewer", ntb.name))
                    })
                }
                (None, ClusterEnd::Switch(switch)) => {
                    *taken += 1;
                    let file = &self.switches[switch].1;
                    let has = file.ports.value.get();
                    (*taken > has).then(|| {
                        (
                            format!("{taken} cables lead to `{}`", said.value),
                            format!("{} has {has} ports", file.name),
                        )
                    })
                }
                (None, ClusterEnd::Adapter(..)) => None,
            };
            if let Some((message, help)) = complaint {
                wrong.push(Diagnostic::new(&said.place, message).help(help));
            }
        }
        self.cables.push(NtbCableSetup {
            name: entry.name.as_ref().map(|name| name.value.clone()),
            ends: [first, second],
            lanes,
            propagation: entry.propagation.unwrap_or(PROPAGATION),
        });
    }

    /// The end of a cable with this name.
    fn end(&self, hosts: &[HostSetup], name: &str) -> Result<ClusterEnd, NotFound> {
        if let Some(switch) = self.switches.iter().position(|(own, _)| own == name) {
            return Ok(ClusterEnd::Switch(switch));
        }
        let all = || {
            let named = hosts.iter().flat_map(|host| {
                let names = adapters(host).filter_map(|(device, _)| host.devices[device].name.as_deref());
                names.map(|name| format!("{}:{name}", host.name)).collect::<Vec<_>>()
            });
            named.chain(self.switches.iter().map(|(name, _)| name.clone())).collect::<Vec<_>>()
        };
        let help = || {
            let all = all();
            match suggest::list(all.iter().map(String::as_str)) {
                names if names.is_empty() => "give a `[[host.device]]` with an `ntb` a `name`".to_owned(),
                names => format!("cables lead to {names}"),
            }
        };
        let refused = |message: String| (message, help());
        let (host, device) =
            name.split_once(':').ok_or_else(|| refused(format!("`{name}` is not an end of a cable")))?;
        let number = names::host(hosts, host).map_err(|(message, _)| refused(message))?;
        let own = &hosts[number];
        let found = names::find_device(own, device).filter(|&found| adapter(own, found).is_some());
        let found = found.ok_or_else(|| refused(format!("`{host}` has no NTB adapter `{device}`")))?;
        Ok(ClusterEnd::Adapter(number, found))
    }

    fn borrow<'e>(
        &self,
        hosts: &[HostSetup],
        entry: &'e BorrowEntry,
    ) -> Result<BorrowSetup, (&'e Placed<String>, NotFound)> {
        let of_by = |message: String, help: String| (&entry.by, (message, help));
        let of_function = |message: String, help: String| (&entry.function, (message, help));
        let (by, vm) = names::place(hosts, &entry.by.value).map_err(|why| (&entry.by, why))?;
        let found = names::on_host(hosts, &entry.function.value, "b:ssd").and_then(|(lender, name)| {
            let device = name.split_once(':').map_or(name, |(device, _)| device);
            Ok((lender, name, names::device(&hosts[lender], device)?))
        });
        let (lender, name, found) = found.map_err(|why| (&entry.function, why))?;
        let own = &hosts[lender];
        if adapter(own, found).is_some() {
            return Err(of_function(
                "an NTB adapter is not lent".to_owned(),
                "it is what devices are lent by".to_owned(),
            ));
        }
        if let Err(refusal) = isolation(own.iommu, holder(&hosts[by], vm)) {
            let wrong = (refusal.to_string(), refusal.remedy(&own.name, &hosts[by].name));
            return Err(match refusal {
                IsolationRefusal::Unconfined => (&entry.function, wrong),
                IsolationRefusal::Scattered => (&entry.by, wrong),
            });
        }
        let function = names::function(own, name).map_err(|why| (&entry.function, why))?;
        if own.passes_function(function) {
            return Err(of_function(
                "it is passed through to a virtual machine of its host".to_owned(),
                "another device, or not both".to_owned(),
            ));
        }
        // A lender's windows lead through its adapter to other hosts; its own guests get functions only by VFIO.
        if lender == by {
            let help = match vm.map(|vm| &own.vms[vm].name) {
                None => "another host, or no `[[borrow]]`".to_owned(),
                Some(vm) => {
                    format!("pass it through: no `[[borrow]]`, and `devices = [\"{name}\"]` for `{vm}`")
                }
            };
            return Err(of_by(format!("it is `{}`'s own device", own.name), help));
        }
        for (number, at) in [(by, &entry.by), (lender, &entry.function)] {
            if adapters(&hosts[number]).next().is_none() {
                let message = format!("host `{}` has no NTB adapter", hosts[number].name);
                return Err((at, (message, "a `[[host.device]]` with `ntb = \"pxh830\"`".to_owned())));
            }
        }
        if !self.reaches(by, lender) {
            let message = format!("no cable leads from `{}` to `{}`", hosts[by].name, hosts[lender].name);
            return Err(of_by(message, "a `[[ntb_cable]]` between their adapters".to_owned()));
        }
        Ok(BorrowSetup {
            name: entry.function.clone(),
            lender,
            function,
            by,
            vm,
            from: entry.from.unwrap_or(Duration::ZERO),
            until: entry.until,
        })
    }

    /// Whether cables and switches connect the first adapters of two hosts.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let is_of = |end: &ClusterEnd, host: usize| matches!(end, ClusterEnd::Adapter(of, _) if *of == host);
        let mut seen: Vec<ClusterEnd> =
            self.cables.iter().flat_map(|cable| cable.ends).filter(|end| is_of(end, from)).collect();
        let mut next = 0;
        while let Some(&at) = seen.get(next) {
            next += 1;
            for cable in self.cables.iter().filter(|cable| cable.ends.contains(&at)) {
                let other = if cable.ends[0] == at { cable.ends[1] } else { cable.ends[0] };
                if is_of(&other, to) {
                    return true;
                }
                // Adapters do not forward.
                if matches!(other, ClusterEnd::Switch(_)) && !seen.contains(&other) {
                    seen.push(other);
                }
            }
        }
        false
    }

    /// Number of hosts with which a host's service communicates.
    fn neighbours(&self, hosts: &[HostSetup], of: usize) -> u64 {
        (0..hosts.len()).filter(|&other| other != of && self.reaches(of, other)).count() as u64
    }

    /// Checks that the adapters' tables are large enough for concurrent loans.
    fn check_tables(&self, hosts: &[HostSetup], wrong: &mut Vec<Diagnostic>) {
        let meets = |a: &BorrowSetup, b: &BorrowSetup| {
            let is_before = |a: &BorrowSetup, b: &BorrowSetup| a.until.is_some_and(|until| until <= b.from);
            !is_before(a, b) && !is_before(b, a)
        };
        for borrow in &self.borrows {
            let (lender, by) = (borrow.lender, borrow.by);
            let others = || self.borrows.iter().filter(|other| meets(borrow, other));
            if others().any(|other| other.is_of_same(borrow) && !std::ptr::eq(other, borrow)) {
                // Loans are exclusive: a conflicting later one is reported at run time.
                continue;
            }
            let lent = others().filter(|other| other.lender == lender).count() as u64;
            let borrowed = others().filter(|other| other.by == by).count() as u64;
            let [(_, at_lender), (_, at_borrower)] =
                [lender, by].map(|host| adapters(&hosts[host]).next().expect("it has an adapter"));
            let requesters = |ntb: &Ntb| u64::from(ntb.requesters.value.get());
            let bytes = |ntb: &Ntb| ntb.window.value.get() / u64::from(ntb.segments.value.get());
            let reached = borrow.reached(hosts);
            let segments = others()
                .filter(|other| other.lender == lender)
                .map(|other| other.reached(hosts).get().div_ceil(bytes(at_lender)) + LEASE_SEGMENTS)
                .sum::<u64>()
                + MAIL_SEGMENTS * self.neighbours(hosts, lender);
            let problems = [
                // One for the root port and one per function; in addition, one per neighbour's root port.
                (
                    lender,
                    at_lender,
                    "requesters",
                    requesters(at_lender),
                    (1 + lent).max(self.neighbours(hosts, lender)),
                ),
                (
                    by,
                    at_borrower,
                    "requesters",
                    requesters(at_borrower),
                    self.neighbours(hosts, by) + borrowed,
                ),
                (lender, at_lender, "segments", u64::from(at_lender.segments.value.get()), segments),
                // At least one per function, for its registers.
                (
                    by,
                    at_borrower,
                    "segments for registers",
                    u64::from(at_borrower.segments.value.get()),
                    MAIL_SEGMENTS * self.neighbours(hosts, by) + borrowed,
                ),
            ];
            for (host, ntb, what, has, needs) in problems {
                if needs > has {
                    let message = format!("the adapter of `{}` has too few {what} for it", hosts[host].name);
                    let help = match what {
                        "segments" => format!(
                            "it needs {needs} of {} and {} has {has}: `{}` lets a function reach {reached} of its memory; \
                             `dma_window` makes that less where its IOMMU is on, `change.window` of the adapter more",
                            Bytes::new(bytes(ntb)),
                            ntb.name,
                            hosts[by].name
                        ),
                        _ => format!(
                            "it needs {needs} and {} has {has}; fewer neighbours or functions at a time",
                            ntb.name
                        ),
                    };
                    wrong.push(Diagnostic::new(&borrow.name.place, message).help(help));
                }
            }
        }
    }
}
