//! `nearfar lend`: what lending a device costs, and lending between real hosts.

use std::process::ExitCode;

use nearfar::lend_cost::{self, CostRow, LendCost, ProgramCost};
use place::LendingHost;
use results::answer::{ComparedValue, is_time, sentence};
use workloads::Reading;

use super::exchange::{self, FunctionArgs, ListArgs, WatchArgs};
use crate::failure::Failure;
use crate::output::{Fit, Records, TextTable, answer};
use crate::{Common, input, output, progress};

/// Lent devices: what they cost, and lending between real hosts.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar lend cost lend-nvme                            a drive of the own host against the same, lent
  nearfar lend offer 0000:01:00.0                        on a real host: its drive can be borrowed
  nearfar lend borrow 01:00.0                            on the host at the other end of the cable")]
pub struct LendArgs {
    #[command(subcommand)]
    pub what: LendCommand,
}

#[derive(clap::Subcommand)]
pub enum LendCommand {
    Cost(LendCostArgs),
    List(ListArgs),
    /// Lend a function of this host: its driver gives it up.
    Offer(FunctionArgs),
    /// Take a lent function back, in use or not; its own driver has it again.
    Revoke(FunctionArgs),
    /// Borrow a function that the other host lends.
    Borrow(FunctionArgs),
    /// Return a borrowed function; refused while it is in use.
    Return(FunctionArgs),
    Watch(WatchArgs),
}

/// Own device against lent device, in one table: the scenario with its loan, and the same programs on the lender.
#[derive(clap::Args)]
#[command(after_help = "\
The scenario needs a [[borrow]] and a program of the borrower that uses what it borrows. It is simulated as it is, and once \
more without the loan, with the program on the host that the device is in.

Examples:
  nearfar lend cost lend-nvme
  nearfar lend cost lend-nvme --set program.1.bs=64k --json cost.json")]
pub struct LendCostArgs {
    /// The scenario, by name or path (`nearfar machines` lists them).
    pub scenario: String,
    /// Change a value of the scenario in both runs, as `run` does.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    pub set: Vec<(String, String)>,
    #[command(flatten)]
    records: Records,
}

pub fn run(common: &Common, arguments: &LendArgs) -> Result<ExitCode, Failure> {
    match &arguments.what {
        LendCommand::Cost(arguments) => cost(common, arguments),
        LendCommand::List(arguments) => exchange::list(arguments),
        LendCommand::Offer(function) => exchange::act(function, LendingHost::offer, "is lent"),
        LendCommand::Revoke(function) => exchange::act(function, LendingHost::revoke, "is this host's again"),
        LendCommand::Borrow(function) => exchange::act(function, LendingHost::borrow, "is borrowed"),
        LendCommand::Return(function) => exchange::act(function, LendingHost::give_back, "is returned"),
        LendCommand::Watch(arguments) => exchange::watch(arguments),
    }
}

fn cost(common: &Common, arguments: &LendCostArgs) -> Result<ExitCode, Failure> {
    let mut places = arguments.records.places(&[])?;
    let library = input::library(common);
    let named = input::Named { scenario: &arguments.scenario, folder: None };
    let experiment = input::scenario(&library, &named, "--set", &arguments.set)?;
    input::places(&mut places, &library, &experiment)?;
    let to_stdout = places.to_stdout;
    let progress = progress::of(common);
    let cost = lend_cost::cost(&library, &arguments.scenario, "--set", &arguments.set, progress.as_ref())?;
    let provenance = output::provenance(cost.setup.seed, &[("--set", &arguments.set)], &library);
    arguments.records.write(cost.records(), &provenance)?;
    if !to_stdout {
        output::heading(&provenance);
        show(&cost);
    }
    Ok(output::complain_of(&cost.failed))
}

fn show(cost: &LendCost) {
    let LendCost { function, lender, borrower, hops: (cables, switches), .. } = cost;
    let many = |count: usize, one: &str, several: &str| {
        format!("{count} {}", if count == 1 { one } else { several })
    };
    let way = match switches {
        0 => many(*cables, "cable", "cables"),
        _ => format!("{} and {}", many(*cables, "cable", "cables"), many(*switches, "switch", "switches")),
    };
    output::print(&output::prose(&format!(
        "{function} in {lender}, own: used by {lender}; lent: used by {borrower}, over {way}\n"
    )));
    for ProgramCost { run, rows, .. } in &cost.programs {
        output::print(&output::prose(run));
        // With one cable, each costs the difference.
        let has_each = *cables > 1;
        let header = ["", "own", "lent", "difference", "change"].into_iter();
        let header = header.chain(has_each.then_some("for each cable"));
        let mut table = TextTable::new(header, Fit::Fold(1)).numbers(1..5 + usize::from(has_each));
        for row in rows {
            let CostRow { quantity, unit, own, lent } = row;
            let change = if *own == 0.0 {
                String::new()
            } else {
                format!("{:+.1} %", 100.0 * (lent - own) / own.abs())
            };
            // A way back and forth over a cable is one hop of a latency.
            let each = match (is_time(unit), cables) {
                (true, 1..) => output::number((lent - own) / *cables as f64),
                _ => String::new(),
            };
            let name = format!("  {quantity} {unit}").trim_end().to_owned();
            let numbers = [*own, *lent, lent - own].map(output::number);
            table.add(
                [name].into_iter().chain(numbers).chain([change]).chain(has_each.then_some(each)).collect(),
            );
        }
        output::print(&(table.render(output::width()) + "\n"));
    }
    for note in &cost.notes {
        output::print(&output::prose(&format!("note: {note}")));
    }
    let values: Vec<ComparedValue> =
        cost.programs.iter().flat_map(|program| compared(cost, program)).collect();
    if let Some(answer) = sentence(&values) {
        output::print(&output::prose(&format!("answer: {answer}")));
    }
}

/// The program's headline, own and lent.
fn compared(cost: &LendCost, program: &ProgramCost) -> Vec<ComparedValue> {
    let readings: Vec<Reading> =
        program.rows.iter().map(|row| Reading::new(&*row.quantity, row.unit.clone(), row.lent)).collect();
    let Some(headline) = answer::headline(&readings) else { return Vec::new() };
    let row = program.rows.iter().find(|row| row.quantity == headline.quantity && row.unit == headline.unit);
    let Some(row) = row else { return Vec::new() };
    let [own_binds, lent_binds] = &program.binds;
    let value = |label: String, value: f64, binds: &String| ComparedValue {
        group: if cost.programs.len() > 1 { program.run.clone() } else { String::new() },
        label,
        quantity: row.quantity.clone(),
        unit: row.unit.to_string(),
        value,
        binds: binds.clone(),
    };
    vec![
        value("the own device".to_owned(), row.own, own_binds),
        value(format!("{} lent to {}", cost.function, cost.borrower), row.lent, lent_binds),
    ]
}
