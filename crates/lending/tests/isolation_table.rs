//! Every mode of the lender's and of the borrower's IOMMU, for a host and for a guest, with and without peers: what the table
//! refuses is refused, and a rogue function reaches what the table says and nothing else. The table of the documentation is
//! compared with [`settings::isolation`] here, too.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::rc::Rc;

use crate::common::Cluster;
use crate::common::copiers::CopierBinding;
use crate::guest::{self, Guest, MEMORY};
use devices::rogue::{LINE, Rogue, RogueHandle, RogueTries};
use engine::Seed;
use hardware::{RequestEnd, RequestStop};
use kernel::DmaMode;
use settings::{FunctionHolder, FunctionReach, ReachExtent, isolation};
use units::Duration;

const MODES: [DmaMode; 4] = [DmaMode::Off, DmaMode::PassThrough, DmaMode::Strict, DmaMode::Lazy];

/// Hosts of a cell: a third one has no part in it, and its IOMMU is off.
const BORROWER: usize = 0;
const LENDER: usize = 1;
const OTHER: usize = 2;

/// RogueTries of each cell: more with `NEARFAR_ROGUE_TRIES=100000`.
fn tries() -> usize {
    let given = std::env::var("NEARFAR_ROGUE_TRIES").ok();
    given.map_or(400, |given| given.parse().expect("a number of tries"))
}

/// A cell of the table.
#[derive(Clone, Copy, Debug)]
struct Cell {
    lender: DmaMode,
    borrower: DmaMode,
    for_guest: bool,
    /// The borrower has a second function of the lender, which the first may reach.
    peers: bool,
}

impl Cell {
    fn holder(self) -> FunctionHolder {
        if self.for_guest {
            FunctionHolder::RemoteGuest(self.borrower)
        } else {
            FunctionHolder::Host(self.borrower)
        }
    }
}

fn cells() -> impl Iterator<Item = Cell> {
    let all = MODES.into_iter().flat_map(|lender| MODES.map(|borrower| (lender, borrower)));
    all.flat_map(|(lender, borrower)| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(for_guest, peers)| Cell {
            lender,
            borrower,
            for_guest,
            peers,
        })
    })
}

/// A cell's cluster while a function of the lender is lent.
struct Lent {
    cluster: Cluster,
    guest: Option<Guest>,
    rogue: RogueHandle,
}

impl Lent {
    /// Lends, or is refused.
    fn new(cell: Cell) -> Option<Self> {
        let cluster = Cluster::new(&[cell.borrower, cell.lender, DmaMode::Off], 2);
        let functions = if cell.peers { 0..2 } else { 0..1 };
        let guest = cell.for_guest.then(|| guest::guest(&cluster, BORROWER));
        for n in functions {
            match &guest {
                Some(guest) => drop(guest.lend(&cluster, LENDER, n).ok()?),
                None => drop(cluster.borrow(BORROWER, LENDER, n).ok()?),
            }
        }
        if let Some(guest) = &guest {
            guest.boot(&cluster);
            cluster.run_for(Duration::from_ms(5));
        }
        let mut handle = None;
        cluster.simulation.with(|fabric, _| {
            fabric.endpoint_mut(cluster.hosts[LENDER].copiers[0]).wrap(|inner| {
                let (rogue, own) = Rogue::new(inner, 0);
                handle = Some(own);
                Box::new(rogue)
            });
        });
        Some(Self { cluster, guest, rogue: handle.unwrap() })
    }

    /// What the drivers of who has the lent functions have for them, the rogue one first.
    fn copiers(&self) -> Vec<Rc<CopierBinding>> {
        let driver = match &self.guest {
            Some(guest) => &guest.driver,
            None => &self.cluster.hosts[BORROWER].driver,
        };
        let bound = driver.bound.borrow();
        bound[bound.len() - self.lent()..].to_vec()
    }

    fn lent(&self) -> usize {
        self.cluster.service(LENDER).leases().len()
    }

    fn works(&self) -> bool {
        match &self.guest {
            Some(guest) => guest.copies(&self.cluster, 5),
            None => self.cluster.copies(BORROWER, 5),
        }
    }

    /// Bus addresses at which the function finds the memory of who has it, as far as the table lets it.
    fn allowed(&self, of_holder: ReachExtent) -> Vec<Range<u64>> {
        // Each function has a window of its own, in all of which the host's addresses are the same.
        let segment = |at: u64| at & !((1 << 28) - 1);
        let own = segment(self.copiers()[0].memory.bus.get());
        let bus = |copier: Rc<CopierBinding>| {
            let at = copier.memory.bus.get();
            let at = at - segment(at) + own;
            at..at + copier.memory.length
        };
        match of_holder {
            ReachExtent::Guest => self.guest.as_ref().unwrap().bus_ranges(),
            ReachExtent::Mapped => self.copiers().into_iter().map(bus).collect(),
            _ => std::iter::once(0..u64::MAX).collect(),
        }
    }

    /// What is worth attacking.
    fn worth(&self) -> Vec<Range<u64>> {
        let copier = &self.copiers()[0];
        let own = copier.memory.bus.get();
        let window = own & !((1 << 28) - 1);
        let memory = 0..self.cluster.hosts[LENDER].kernel.memory_end().0;
        let mut all = vec![own..own + copier.memory.length, own - (1 << 16)..own + (1 << 16), memory];
        all.extend([window..window + (1 << 30), window + 0xfee0_0000..window + 0xfef0_0000, 0..MEMORY.get()]);
        self.cluster.simulation.with(|fabric, _| {
            let side = &self.cluster.hosts[LENDER];
            for &device in side.copiers.iter().chain([&side.adapter]) {
                let config = fabric.endpoint(device).core.registers.config(Default::default());
                let bars = (0..6).filter_map(|n| config.bar(n));
                all.extend(bars.map(|bar| bar.address..bar.address + bar.size));
            }
        });
        all
    }

    /// Interrupts that came to a host, but for those of adapters and of the functions themselves; and how many more cores got
    /// than drivers were told of.
    fn strange_interrupts(&self, host: usize) -> u64 {
        let all = self.cluster.hosts[host].kernel.interrupts();
        let strange = all.iter().filter(|i| !["ntb", "copier"].contains(&&*i.1)).map(|i| i.3).sum::<u64>();
        let counters = self.cluster.hosts[host].kernel.irq_counters();
        strange + counters.spurious + counters.lost
    }
}

/// Counts of where tries ended.
type Ends = BTreeMap<&'static str, u64>;

/// Attacks, and compares what is reached with what may be.
fn attack(cell: Cell, lent: &Lent, reach: FunctionReach, tries: usize) -> Ends {
    let cluster = &lent.cluster;
    let device = cluster.hosts[LENDER].copiers[0];
    let allowed = lent.allowed(reach.of_holder);
    let confined = reach.of_own == ReachExtent::Nothing;
    let before: Vec<u64> = (0..3).map(|host| lent.strange_interrupts(host)).collect();
    let mut counts = Ends::new();
    let messages = || (0..3).map(|host| cluster.service(host).counters().messages).sum::<u64>();
    for one in RogueTries::new(Seed::new(44).component("rogue"), lent.worth()).take(tries) {
        let sent = messages();
        let start = cluster.simulation.with(|fabric, scheduler| {
            let start = fabric.request_ends();
            let mut running = fabric.running(scheduler);
            running.with_device(device, |_, bus| lent.rogue.send(bus, Default::default(), one));
            start
        });
        cluster.run_for(Duration::from_us(3));
        // Longer than reads time out.
        for _ in 0..300 {
            if lent.rogue.heard().is_some() {
                break;
            }
            cluster.run_for(Duration::from_us(100));
        }
        if messages() != sent {
            // Services ask each other whether they are there: which counter is whose is not known, but lines are.
            cluster.run_for(Duration::from_us(100));
            *counts.entry("unknown").or_default() += 1;
            continue;
        }
        let end = cluster.simulation.with(|fabric, _| fabric.request_ends()).end_since(&start, one.bytes());
        let is_allowed = allowed.iter().any(|range| range.contains(&one.address));
        match end {
            Some(RequestEnd::Memory(OTHER)) => {
                panic!("{cell:?}: {one:x?} reached a host that has no part in it")
            }
            Some(RequestEnd::Memory(LENDER)) => {
                assert!(!confined, "{cell:?}: {one:x?} reached the lender's memory")
            }
            Some(RequestEnd::Memory(_)) => {
                // Where the lender does not translate, a window stands for all of the borrower's memory.
                assert!(is_allowed, "{cell:?}: {one:x?} reached memory of the borrower");
            }
            // Registers of a peer, or one of the adapter's doorbells.
            None if confined && !cell.peers => {
                panic!("{cell:?}: {one:x?} reached a device: {:?}", lent.rogue.heard())
            }
            _ => {}
        }
        *counts.entry(name(end)).or_default() += 1;
    }
    for (host, before) in before.into_iter().enumerate() {
        let may = match host {
            LENDER => !confined,
            BORROWER => reach.of_holder == ReachExtent::Everything,
            _ => false,
        };
        assert!(may || lent.strange_interrupts(host) == before, "{cell:?}: host {host} was interrupted");
    }
    assert_eq!(counts.values().sum::<u64>(), tries as u64);
    counts
}

fn name(end: Option<RequestEnd>) -> &'static str {
    match end {
        None => "a device",
        Some(RequestEnd::Memory(LENDER)) => "lender's memory",
        Some(RequestEnd::Memory(_)) => "holder's memory",
        Some(RequestEnd::Interrupt(_)) => "interrupts",
        Some(RequestEnd::Stopped(stop)) => stop.as_str(),
    }
}

/// Lines that a rogue function has written where it may not: in the memory of hosts, but for what is allowed.
fn strange_lines(lent: &Lent, reach: FunctionReach) -> Vec<(usize, u64)> {
    let cluster = &lent.cluster;
    let mut found = Vec::new();
    for host in [BORROWER, LENDER, OTHER] {
        let allowed: Vec<Range<u64>> = match (host, reach.of_holder, &lent.guest) {
            (LENDER, ..) if reach.of_own != ReachExtent::Nothing => continue,
            (BORROWER, ReachExtent::Memory | ReachExtent::Everything, _) => continue,
            (BORROWER, _, Some(guest)) => guest.host_ranges(),
            (BORROWER, ..) => {
                let own = |copier: Rc<CopierBinding>| {
                    copier.memory.cpu.0..copier.memory.cpu.0 + copier.memory.length
                };
                lent.copiers().into_iter().map(own).collect()
            }
            _ => Vec::new(),
        };
        cluster.simulation.with(|fabric, _| {
            let memory = fabric.host(cluster.hosts[host].host).memory.bytes();
            for (at, bytes) in memory.written() {
                let lines = (at.get()..).step_by(64).zip(bytes.chunks(64)).filter(|(_, line)| *line == LINE);
                let strange =
                    lines.map(|(at, _)| at).filter(|at| !allowed.iter().any(|own| own.contains(at)));
                found.extend(strange.map(|at| (host, at)));
            }
        });
    }
    found
}

#[test]
fn a_rogue_function_reaches_what_the_table_says() {
    for cell in cells() {
        let lent = Lent::new(cell);
        let judged = isolation(cell.lender, cell.holder());
        assert_eq!(lent.is_some(), judged.is_ok(), "{cell:?}: {judged:?}");
        let (Some(lent), Ok(reach)) = (lent, judged) else { continue };
        assert!(lent.works(), "{cell:?}: it does what it is for");
        let counts = attack(cell, &lent, reach, tries());
        assert_eq!(strange_lines(&lent, reach), [], "{cell:?}");
        println!("{cell:?}: {counts:?}");
        let reached = |what: &str| counts.get(what).copied().unwrap_or(0);
        // The attack is one: it finds what is open.
        assert!(reached("holder's memory") > 0, "{cell:?}: {counts:?}");
        assert_eq!(
            reached("lender's memory") > 0,
            reach.of_own == ReachExtent::Everything,
            "{cell:?}: {counts:?}"
        );
        let iommu = reached(RequestStop::Iommu.as_str());
        assert_eq!(iommu > 0, cell.lender.is_on() || cell.borrower.is_on(), "{cell:?}: {counts:?}");
    }
}

/// The table in the documentation, a row for each lender and a column for each borrower.
fn table() -> String {
    let mut table = String::from(
        "| `iommu` of the function's host | Lent to a host | Lent to a guest of another host | Passed to its own guest |\n\
         |---|---|---|---|\n",
    );
    let others = |own, holder: fn(DmaMode) -> FunctionHolder| {
        let each = MODES.map(|mode| (mode, said(isolation(own, holder(mode)))));
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for (mode, said) in each {
            match groups.iter_mut().find(|(other, _)| *other == said) {
                Some((_, modes)) => modes.push(format!("`{mode}`")),
                None => groups.push((said, vec![format!("`{mode}`")])),
            }
        }
        match &groups[..] {
            [(said, _)] => said.clone(),
            all => {
                let each = all.iter().map(|(said, modes)| format!("{}: {said}", modes.join(", ")));
                each.collect::<Vec<_>>().join(".<br>")
            }
        }
    };
    for own in MODES {
        let (host, guest) = (others(own, FunctionHolder::Host), others(own, FunctionHolder::RemoteGuest));
        let local = said(isolation(own, FunctionHolder::OwnGuest));
        writeln!(table, "| `{own}` | {host} | {guest} | {local} |").unwrap();
    }
    table
}

fn said(judged: Result<FunctionReach, settings::IsolationRefusal>) -> String {
    let extent = |extent| match extent {
        ReachExtent::Nothing => "nothing",
        ReachExtent::Guest => "the guest's memory and interrupts",
        ReachExtent::Mapped => "what drivers map, own interrupts",
        ReachExtent::Memory => "all memory, own interrupts",
        ReachExtent::Everything => "everything",
    };
    match judged {
        Err(refusal) => format!("refused: {refusal}"),
        Ok(FunctionReach { of_own, of_holder }) if of_own == of_holder => extent(of_own).to_owned(),
        Ok(FunctionReach { of_own: ReachExtent::Nothing, of_holder }) => extent(of_holder).to_owned(),
        Ok(FunctionReach { of_own, of_holder }) => {
            format!("{}; of the function's host {}", extent(of_holder), extent(of_own))
        }
    }
}

#[test]
fn the_documentation_has_the_table() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/isolation.md");
    let text = std::fs::read_to_string(page).expect("the page is there");
    let (begin, end) = ("<!-- table: isolation -->\n", "<!-- end -->");
    let (before, rest) = text.split_once(begin).expect("the table begins");
    let (_, after) = rest.split_once(end).expect("the table ends");
    let wanted = format!("{before}{begin}{}{end}{after}", table());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(page, &wanted).expect("the page can be written");
    }
    assert_eq!(text, wanted, "UPDATE_EXPECT=1 writes it");
}
