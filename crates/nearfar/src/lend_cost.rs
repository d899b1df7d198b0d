//! What lending costs: the programs of a scenario that use a borrowed function, and the same on its own host.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use machine::{
    BorrowSetup, ClusterEnd, ClusterSetup, ComputerScenario, ComputerSetup, Diagnostics, Doc, Library,
    ProgramSetup,
};
use serde_json::json;
use units::Duration;
use workloads::{Disk, Reading};

use crate::computer::{self, ComputerError, Counts, FinishedProgram};
use crate::experiment::{Changes, ExperimentError};
use crate::progress::Progress;
use crate::records::Record;

/// A quantity of a program, of an own device and of a lent one.
#[derive(Clone, Debug)]
pub struct CostRow {
    /// The quantity.
    pub quantity: String,
    /// Its unit; empty for a count.
    pub unit: Cow<'static, str>,
    /// With the device of the program's own host.
    pub own: f64,
    /// With the borrowed device.
    pub lent: f64,
}

/// A program, with an own device and with a lent one.
#[derive(Debug)]
pub struct ProgramCost {
    /// Its command line on the borrower.
    pub run: String,
    /// What it measured, and the time of cores that it took.
    pub rows: Vec<CostRow>,
    /// What binds, with an own device and with a lent one.
    pub binds: [String; 2],
}

/// What it costs to use a function of another host.
#[derive(Debug)]
pub struct LendCost {
    /// The scenario's setup with the loan.
    pub setup: ComputerSetup,
    /// The borrowed function as the scenario writes it, such as `b:ssd`.
    pub function: String,
    /// The host that lends it.
    pub lender: String,
    /// The host that borrows it, or its virtual machine.
    pub borrower: String,
    /// Cables and cluster switches between the two.
    pub hops: (usize, usize),
    /// The programs that use it.
    pub programs: Vec<ProgramCost>,
    /// How the two runs differ besides the loan.
    pub notes: Vec<String>,
    /// Failed programs, with the reason.
    pub failed: Vec<String>,
}

/// Simulates a scenario that lends a function, and once more without the loan and with the same programs at the lender.
/// What else runs on the borrower, or uses drives on other borrowers, is left out of both.
///
/// # Errors
/// If the scenario is invalid, lends nothing, or no program uses what is lent.
pub fn cost(
    library: &Library,
    name: &str,
    option: &str,
    changes: &Changes,
    progress: &dyn Progress,
) -> Result<LendCost, ExperimentError> {
    let mut doc = Doc::<ComputerScenario>::load(library, name)?;
    crate::experiment::set_all(&mut doc, option, changes)?;
    let mut setup = ComputerSetup::load(library, &doc)?;
    computer::check_syntax(&setup)?;
    let wrong = |message: &str, help: &str| Diagnostics::about(name, message, Some(help.to_owned()));
    let Some(borrow) = setup.cluster.borrows.first().cloned() else {
        return Err(wrong("it lends nothing", "add a [[borrow]], as lend-nvme has one").into());
    };
    let mut own = doc.clone();
    own.remove("borrow")?;
    // The run with the loan writes it.
    own.remove("capture")?;
    let mut text = own.to_text()?;
    for other in others(&setup) {
        let by = place_name(&setup, (other.by, other.vm));
        text += &format!("\n[[borrow]]\nfunction = {:?}\nby = {by:?}\n", other.name.value);
    }
    let mut own = Doc::<ComputerScenario>::from_text(library, name, &text);
    let at_home = ComputerSetup::load(library, &own)?;
    let mut moved = programs_of(&setup, &borrow, &at_home)?;
    for (_, line) in &mut moved {
        *line = with_addresses(&setup, &at_home, line);
    }
    if moved.is_empty() {
        return Err(wrong(
            "no program of the borrower uses what it borrows",
            "give one that does, such as `fio --filename=/dev/disk/by-id/nvme-b:ssd`",
        )
        .into());
    }
    let lender = setup.hosts[borrow.lender].name.clone();
    for (number, line) in &moved {
        own.set(&format!("program.{number}.host"), &format!("{lender:?}"))?;
        own.set(&format!("program.{number}.run"), &crate::experiment::toml_string(line))?;
    }
    let mut at_home = ComputerSetup::load(library, &own)?;
    let is_compared = |number: usize| moved.iter().any(|(own, _)| *own == number);
    let by_others = |host: usize| setup.cluster.borrows.iter().any(|other| other.by == host);
    let is_about_another =
        |own: &ProgramSetup| own.host == borrow.by || by_others(own.host) && own.run.value.contains("/dev/");
    let stays: Vec<bool> = (0..)
        .zip(&setup.programs)
        .map(|(number, own)| is_compared(number) || !is_about_another(own))
        .collect();
    for programs in [&mut setup.programs, &mut at_home.programs] {
        let mut stay = stays.iter();
        programs.retain(|_| stay.next() == Some(&true));
    }
    computer::check_syntax(&at_home)?;
    let mut counts = computer::run_all(&[&at_home, &setup], name, progress).into_iter();
    let (Some(own), Some(lent)) = (counts.next(), counts.next()) else {
        return Err(wrong("it was not simulated", "try again").into());
    };
    let (own, lent) = (own?, lent?);
    let program = |(number, _): &(usize, String)| {
        program_cost(stays[..*number].iter().filter(|stays| **stays).count(), &own, &lent)
    };
    let failures = |which: &'static str, counts: &Counts| {
        let failure = |done: &FinishedProgram| {
            done.failure().map(|failure| format!("{which}, {}: {}: {failure}", done.host, done.run))
        };
        counts.done.iter().filter_map(failure).collect::<Vec<_>>()
    };
    Ok(LendCost {
        function: borrow.name.value.clone(),
        notes: differences(&setup, &borrow),
        borrower: place_name(&setup, (borrow.by, borrow.vm)),
        hops: hops(&setup.cluster, &borrow),
        programs: moved.iter().filter_map(program).collect(),
        failed: [failures("own", &own), failures("lent", &lent)].concat(),
        lender,
        setup,
    })
}

/// A host by its name, or a guest as `host/guest`.
fn place_name(setup: &ComputerSetup, (host, vm): (usize, Option<usize>)) -> String {
    let host = &setup.hosts[host];
    vm.map_or_else(|| host.name.clone(), |vm| format!("{}/{}", host.name, host.vms[vm].name))
}

/// Further loans that stay: NICs, through which others are reached.
fn others(setup: &ComputerSetup) -> impl Iterator<Item = &BorrowSetup> {
    let is_nic = |other: &&BorrowSetup| {
        let device = &setup.hosts[other.lender].devices[other.function.device];
        device.kind.nic().is_some() && other.from == Duration::ZERO && other.until.is_none()
    };
    setup.cluster.borrows.iter().skip(1).filter(is_nic)
}

/// A command line with the addresses that hosts have without the loan: they are numbered anew.
fn with_addresses(setup: &ComputerSetup, at_home: &ComputerSetup, line: &str) -> String {
    let places = |setup: &ComputerSetup| -> Vec<(usize, Option<usize>)> {
        let guests = |n: usize| (0..setup.hosts[n].vms.len()).map(Some);
        (0..setup.hosts.len())
            .flat_map(|n| [None].into_iter().chain(guests(n)).map(move |vm| (n, vm)).collect::<Vec<_>>())
            .collect()
    };
    let of = |setup: &ComputerSetup, (host, vm): (usize, Option<usize>)| -> Vec<Ipv4Addr> {
        let interfaces = vm.map_or(&setup.hosts[host].interfaces, |vm| &setup.hosts[host].vms[vm].interfaces);
        interfaces.iter().map(|interface| interface.address).collect()
    };
    let pairs: Vec<(String, String)> = places(setup)
        .into_iter()
        .flat_map(|place| of(setup, place).into_iter().zip(of(at_home, place)))
        .map(|(before, after)| (before.to_string(), after.to_string()))
        .collect();
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let word = |word: &str| {
        pairs.iter().find(|(before, _)| before == word).map_or(word, |(_, after)| after).to_owned()
    };
    let (mut text, mut left) = (String::new(), line);
    while let Some(at) = left.find(is_part) {
        let end = left[at..].find(|c| !is_part(c)).map_or(left.len(), |length| at + length);
        text += &left[..at];
        text += &word(&left[at..end]);
        left = &left[end..];
    }
    text + left
}

/// How the lender differs from the borrower besides the loan.
fn differences(setup: &ComputerSetup, borrow: &BorrowSetup) -> Vec<String> {
    let (by, lender) = (&setup.hosts[borrow.by], &setup.hosts[borrow.lender]);
    let mut notes = Vec::new();
    if by.iommu != lender.iommu {
        notes.push(format!(
            "the IOMMU of {} is {}, that of {} {}: part of the difference is theirs; `--set host.{}.iommu={}` makes them alike",
            by.name, by.iommu, lender.name, lender.iommu, lender.name, by.iommu
        ));
    }
    if let Some(vm) = borrow.vm {
        let guest = &by.vms[vm].name;
        notes.push(format!(
            "lent, it is used in guest {guest}, own, by {} itself: part of the difference is the guest's",
            lender.name
        ));
    }
    notes
}

/// The programs that use a borrowed function, with their command lines at the lender: those that name a drive of the
/// lender's, or else all of the borrower.
fn programs_of(
    setup: &ComputerSetup,
    borrow: &BorrowSetup,
    at_home: &ComputerSetup,
) -> Result<Vec<(usize, String)>, ComputerError> {
    let disks = computer::disks_of(setup, (borrow.by, borrow.vm))?;
    let lenders = computer::disks_of(at_home, (borrow.lender, None))?;
    let drive = setup.hosts[borrow.lender].devices[borrow.function.device].kind.drive();
    let lent: Vec<String> = drive.into_iter().flat_map(|drive| drive.disks()).map(|disk| disk.id).collect();
    let own: Vec<(usize, &str)> = setup
        .programs
        .iter()
        .enumerate()
        .filter(|(_, program)| (program.host, program.vm) == (borrow.by, borrow.vm))
        .map(|(number, program)| (number, &*program.run.value))
        .collect();
    let at_lender = |&(number, line): &(usize, &str)| {
        let words = line.split(' ').map(|word| {
            let (option, path) = word.split_once('=').unwrap_or(("", word));
            let borrowed = Disk::find(&disks, path.strip_prefix("/dev/").unwrap_or(path))?;
            let id = borrowed.id.as_ref().filter(|id| lent.contains(id))?;
            let home = lenders.iter().find(|disk| disk.id.as_ref() == Some(id))?.name.as_ref()?;
            Some(format!("{option}{}/dev/{home}", if option.is_empty() { "" } else { "=" }))
        });
        let words: Vec<(Option<String>, &str)> = words.zip(line.split(' ')).collect();
        let uses = words.iter().any(|(changed, _)| changed.is_some());
        let line = words.into_iter().map(|(changed, word)| changed.unwrap_or_else(|| word.to_owned()));
        uses.then(|| (number, line.collect::<Vec<_>>().join(" ")))
    };
    let named: Vec<_> = own.iter().filter_map(at_lender).collect();
    Ok(match named.is_empty() {
        // Those of drives are about another device.
        true => own
            .into_iter()
            .filter(|(_, line)| !line.contains("/dev/"))
            .map(|(number, line)| (number, line.to_owned()))
            .collect(),
        false => named,
    })
}

/// Cables and cluster switches on the shortest way between lender and borrower.
fn hops(cluster: &ClusterSetup, borrow: &BorrowSetup) -> (usize, usize) {
    let place = |end: &ClusterEnd| match *end {
        ClusterEnd::Adapter(host, _) => (true, host),
        ClusterEnd::Switch(switch) => (false, switch),
    };
    let (mut ways, mut known) = (vec![((true, borrow.by), 0, 0)], Vec::new());
    while !ways.is_empty() {
        let (at, cables, switches) = ways.remove(0);
        if at == (true, borrow.lender) {
            return (cables, switches);
        }
        known.push(at);
        for cable in &cluster.cables {
            let [one, other] = [place(&cable.ends[0]), place(&cable.ends[1])];
            for (from, to) in [(one, other), (other, one)] {
                if from == at && !known.contains(&to) {
                    ways.push((to, cables + 1, switches + usize::from(!to.0)));
                }
            }
        }
    }
    (0, 0)
}

/// What a program measured in both runs; `None` if it failed in one.
fn program_cost(number: usize, own: &Counts, lent: &Counts) -> Option<ProgramCost> {
    let of = |counts: &'_ Counts| -> Option<(String, Vec<Reading>)> {
        let done = counts.done.iter().find(|done| done.number() == Some(number))?;
        let report = done.outcome.as_ref().ok()?;
        let readings = report.readings.iter().filter(|reading| reading.way.is_none()).cloned();
        Some((done.run.clone(), readings.chain(cpu(counts, number, &done.host, &report.readings)).collect()))
    };
    let binds = [own, lent].map(|counts| counts.binding_of(number));
    let ((_, own), (run, lent)) = (of(own)?, of(lent)?);
    let row = |reading: &Reading| {
        let other =
            own.iter().find(|other| (&other.quantity, &other.unit) == (&reading.quantity, &reading.unit))?;
        let (quantity, unit) = (reading.quantity.clone(), reading.unit.clone());
        Some(CostRow { quantity, unit, own: other.value, lent: reading.value })
    };
    Some(ProgramCost { run, rows: lent.iter().filter_map(row).collect(), binds })
}

/// The time of cores that its host spent while a program ran: as a share of one core, and for each operation.
fn cpu(counts: &Counts, number: usize, host: &str, readings: &[Reading]) -> Vec<Reading> {
    let own = host.split('/').next().unwrap_or(host);
    let window =
        counts.counted.iter().find(|counted| counted.program == number).map(|counted| &counted.window);
    let Some((window, host)) = window.and_then(|window| Some((window, window.host(own)?))) else {
        return Vec::new();
    };
    let is_busy =
        |name: &str| name.starts_with("core") && name.contains("/busy/") && !name.ends_with("/poll");
    let ps: u64 = host.counters.iter().filter(|c| is_busy(&c.name)).map(|counter| counter.value).sum();
    let share = ps as f64 / window.length.as_ps().max(1) as f64;
    let mut all = vec![Reading::new("CPU of the host", "% of a core", 100.0 * share)];
    let rate = readings.iter().find(|reading| reading.unit == "1/s" || reading.unit == "transactions/s");
    if let Some(rate) = rate.filter(|rate| rate.value > 0.0) {
        all.push(Reading::new("CPU for each operation", "µs", 1e6 * share / rate.value));
    }
    all
}

impl LendCost {
    /// A record for each quantity.
    pub fn records(&self) -> Vec<Record> {
        let row = |run: &str, row: &CostRow| {
            let change = (row.own != 0.0).then(|| 100.0 * (row.lent - row.own) / row.own.abs());
            json!({
                "kind": "lend-cost", "scenario": self.setup.name, "function": self.function, "lender": self.lender,
                "borrower": self.borrower, "cables": self.hops.0, "switches": self.hops.1, "run": run,
                "quantity": row.quantity, "unit": row.unit, "own": row.own, "lent": row.lent, "change_pct": change,
            })
        };
        self.programs.iter().flat_map(|of| of.rows.iter().map(|one| row(&of.run, one))).collect()
    }
}
