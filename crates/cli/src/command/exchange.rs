//! `nearfar lend list`, `offer`, `revoke`, `borrow`, `return`, `watch`: functions of real hosts with `linux/nearfar_lender` and
//! `linux/nearfar_borrower`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use place::{ExchangeError, FunctionOwner, HostRoot, LendingHost, SharedFunction};
use serde_json::json;

use super::place::period;
use crate::failure::Failure;
use crate::output;
use crate::output::{Fit, TextTable, complain};

/// A function of this host, or of the other one.
#[derive(clap::Args)]
pub struct FunctionArgs {
    /// Its address: as `lspci -D` shows it for one of this host, as `list` shows it for the other host's.
    #[arg(value_name = "FUNCTION")]
    function: String,
    #[command(flatten)]
    at: RootArgs,
}

#[derive(clap::Args)]
struct RootArgs {
    /// The folder to take for /.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl RootArgs {
    fn host(&self) -> Result<LendingHost, Failure> {
        let wrong = |error| Failure::new(format!("`{}`: {error}", self.root.display()));
        LendingHost::new(HostRoot::new(&self.root).map_err(wrong)?).map_err(Failure::new)
    }
}

/// What this host lends, what the other one lends, and what is borrowed from it.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    at: RootArgs,
    /// Write it as JSON; - for standard output.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    json: Option<PathBuf>,
}

/// Say what is lent and borrowed, and each change of it, until it is stopped.
#[derive(clap::Args)]
pub struct WatchArgs {
    #[command(flatten)]
    at: RootArgs,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = period)]
    period: f64,
}

pub fn list(arguments: &ListArgs) -> Result<ExitCode, Failure> {
    let places = output::Places::new(&[("--json", arguments.json.as_deref())])?;
    places.reads_sources(std::slice::from_ref(&arguments.at.root))?;
    let (functions, problems) = arguments.at.host()?.functions();
    problems.iter().for_each(|problem| complain(&format!("note: {problem}")));
    output::json(arguments.json.as_deref(), &json!({ "functions": functions }))?;
    if output::is_stdout(arguments.json.as_deref()) {
        return Ok(ExitCode::SUCCESS);
    }
    if functions.is_empty() {
        output::print("nothing is lent at either end; `nearfar lend offer FUNCTION` lends a function");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = TextTable::new(["", "function", "device", "state"], Fit::Fold(1));
    functions.iter().for_each(|function| table.add(words(function).to_vec()));
    output::print(&table.render(output::width()));
    Ok(ExitCode::SUCCESS)
}

fn words(function: &SharedFunction) -> [String; 4] {
    let owner = match function.owner {
        FunctionOwner::This => "this host's",
        FunctionOwner::Other => "the other host's",
        FunctionOwner::Borrowed => "borrowed",
    };
    [owner.to_owned(), function.address.clone(), function.device.clone(), function.state.clone()]
}

/// Does something with a function, and says `done` of it.
pub fn act(
    arguments: &FunctionArgs,
    what: impl Fn(&LendingHost, &str) -> Result<(), ExchangeError>,
    done: &str,
) -> Result<ExitCode, Failure> {
    what(&arguments.at.host()?, &arguments.function).map_err(Failure::new)?;
    output::print(&format!("{} {done}", arguments.function));
    Ok(ExitCode::SUCCESS)
}

pub fn watch(arguments: &WatchArgs) -> Result<ExitCode, Failure> {
    let host = arguments.at.host()?;
    let mut before: Vec<String> = Vec::new();
    loop {
        let (functions, problems) = host.functions();
        let lines = functions.iter().map(|function| words(function).join("  "));
        let now: Vec<_> = lines.chain(problems.iter().map(ToString::to_string)).collect();
        let gone = before.iter().filter(|line| !now.contains(line)).map(|line| format!("- {line}"));
        let new = now.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}"));
        gone.chain(new).for_each(|line| output::print(&line));
        before = now;
        output::is_heard()?;
        thread::sleep(Duration::from_secs_f64(arguments.period));
    }
}
