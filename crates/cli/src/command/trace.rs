//! `nearfar trace`: the packets on a link.

use std::path::PathBuf;
use std::process::ExitCode;

use nearfar::LinkState;
use nearfar::experiment::Experiment;
use nearfar::scenario::{bench_of, runs_of};
use nearfar::trace::{
    Capture, Filter, Row, Span, Stall, Timeline, UnknownType, Until, bench, computers, csv, human, listing,
    pcapng, perfetto,
};
use results::Provenance;
use units::Duration;

use crate::failure::Failure;
use crate::output::Records;
use crate::{Common, input, output, progress};

/// Show the packets on a link, like a PCIe analyser.
///
/// Times are when a packet's first symbol leaves its sender, relative to the first packet shown (T0). A TLP's credits
/// are those that it consumes (headers/units of 16 B); an UpdateFC's are totals granted since link training, modulo
/// the counter's size.
#[derive(clap::Args)]
#[command(after_help = "\
Types: TLP, DLLP, MRd, MWr, Cpl, CplD, CfgRd0, CfgWr0, Msg, Ack, Nak, UpdateFC; MRd(32) and MRd(64) for one form.

Examples:
  nearfar trace latency-by-size --packets 12
  nearfar trace remote-memory --type MRd,CplD --csv reads.csv
  nearfar trace pktgen --link a/slot --from 20us
  nearfar trace nic-slot --until stall                  the last packets before the first wait of 1 us
  nearfar trace pktgen --pcapng pcie.pcapng             for Wireshark, which reads it by tools/pcie.lua
  nearfar trace pktgen --perfetto trace.json            cores, links and cables; open it at https://ui.perfetto.dev")]
pub struct TraceArgs {
    /// The scenario, by name or path (`nearfar machines` lists them).
    pub scenario: String,
    /// Change a value of the scenario, such as `pcie_bench.window="1 MiB"` or `change.host.dram.access="90 ns"`.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    pub set: Vec<(String, String)>,
    /// The folder below which the scenario's own files are written: captures and drives' blocks. By default, the folder
    /// of the scenario's file; for a built-in scenario, the current one.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Number of the scenario's pcie-bench run, counted from 1; by default, the first.
    #[arg(long, value_name = "N")]
    run: Option<usize>,
    /// Only links of these slots, separated by commas, as SLOT or HOST/SLOT; by default, all.
    #[arg(long, value_name = "SLOTS", value_delimiter = ',')]
    link: Vec<String>,
    /// Start recording this long after the start of the experiment.
    #[arg(long, value_name = "TIME", default_value = "0 ns")]
    from: Duration,
    /// Stop recording at this time after the start, or at the first `stall`: a wait for credits, tags, a read buffer or a
    /// place in a ring of at least 1 µs, or of the time given as `stall:500ns`. Then the last packets before it are shown.
    #[arg(long, value_name = "TIME|stall", value_parser = until)]
    until: Option<Until>,
    /// Number of packets to show; 0 shows all. 100 by default, and all with `--until TIME`.
    #[arg(long, value_name = "N")]
    packets: Option<usize>,
    /// Show only these types, separated by commas. Numbers and utilization still count all packets.
    #[arg(long = "type", value_name = "TYPES", value_parser = types)]
    types: Option<Filter>,
    /// Show the data of TLPs, too.
    #[arg(long)]
    data: bool,
    #[command(flatten)]
    records: Records,
    /// Write the packets' bytes as a capture file: `wireshark -X lua_script:tools/pcie.lua FILE` reads it.
    #[arg(long, value_name = "FILE", value_parser = output::binary)]
    pcapng: Option<PathBuf>,
    /// Write a trace for ui.perfetto.dev; - for standard output.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    perfetto: Option<PathBuf>,
}

/// A time, `stall`, or `stall` with the shortest wait that counts.
fn until(text: &str) -> Result<Until, String> {
    let time = |text: &str| text.trim().parse::<Duration>().map_err(|error| error.to_string());
    let wait = |text: &str| match time(text)? {
        short if short < Duration::from_ns(1) => Err("a wait of at least 1 ns".to_owned()),
        wait => Ok(Until::Stall(wait)),
    };
    match text.trim().strip_prefix("stall") {
        Some("") => Ok(Until::Stall(Duration::from_us(1))),
        Some(rest) => wait(rest.trim_start_matches([':', '=', '>', ' '])),
        None => time(text).map(Until::Time).map_err(|error| format!("{error}; or `stall`")),
    }
}

fn types(text: &str) -> Result<Filter, UnknownType> {
    text.parse()
}

impl TraceArgs {
    fn named(&self) -> input::Named<'_> {
        input::Named { scenario: &self.scenario, folder: self.folder.as_deref() }
    }

    fn span(&self) -> Span {
        let packets =
            self.packets.unwrap_or(if matches!(self.until, Some(Until::Time(_))) { 0 } else { 100 });
        Span { from: self.from, until: self.until, packets, filter: self.types.clone().unwrap_or_default() }
    }
}

pub fn run(common: &Common, arguments: &TraceArgs) -> Result<ExitCode, Failure> {
    let library = input::library(common);
    let mut places = arguments.records.places(&[
        ("--perfetto", arguments.perfetto.as_deref()),
        ("--pcapng", arguments.pcapng.as_deref()),
    ])?;
    let experiment = input::scenario(&library, &arguments.named(), "--set", &arguments.set)?;
    input::places(&mut places, &library, &experiment)?;
    let to_stdout = places.to_stdout;
    let setup = match experiment {
        Experiment::Computers(_) if arguments.run.is_some() => {
            let message = "--run is for scenarios with pcie-bench: on computers, all programs run together";
            return Err(Failure::new(message));
        }
        Experiment::Computers(setup) => {
            let progress = progress::of(common);
            let (seen, _) = computers::trace(&setup, arguments.span(), &arguments.link, progress.as_ref())?;
            let end = match arguments.until {
                Some(Until::Stall(wait)) => {
                    Some(stall_line(wait, seen.stall.as_ref(), seen.longest_wait.as_ref()))
                }
                Some(Until::Time(_)) | None => None,
            };
            let provenance = output::provenance(setup.seed, &[("--set", &arguments.set)], &library);
            let about = TraceText { title: &setup.summary, links: &seen.links, end };
            return show(arguments, to_stdout, about, &seen.capture, &provenance, || seen.timeline());
        }
        Experiment::Bench(_) if matches!(arguments.until, Some(Until::Stall(_))) => {
            let message = "--until stall is for scenarios with computers; --until TIME works here, and `nearfar run` tells how \
                           long tags and credits were waited for";
            return Err(Failure::new(message));
        }
        Experiment::Bench(setup) => setup,
    };
    let runs = runs_of(&setup);
    let number = arguments.run.unwrap_or(1);
    let Some(run) = number.checked_sub(1).and_then(|index| runs.get(index)) else {
        return Err(Failure::new(format!("{} has runs 1 to {}", setup.scenario.name, runs.len())));
    };
    if let Some(other) = arguments.link.iter().find(|&link| *link != setup.slot) {
        return Err(Failure::new(format!("no link leads to a slot `{other}` here; there is {}", setup.slot)));
    }
    let (capture, _) = bench::trace(&setup, number, arguments.span())?;
    let title =
        format!("{} in {} of {}: {run}", setup.card.name, output::place(&setup.slot), setup.machine.name);
    let seed = setup.scenario.seed.unwrap_or(1);
    let provenance = output::provenance(seed, &[("--set", &arguments.set)], &library);
    let link = LinkState::of_bench(&bench_of(&setup));
    let about = TraceText { title: &title, links: link.as_slice(), end: None };
    show(arguments, to_stdout, about, &capture, &provenance, || capture.timeline())
}

/// What ended the recording.
fn stall_line(wait: Duration, found: Option<&Stall>, longest: Option<&Stall>) -> String {
    match (found, longest) {
        (Some(stall), _) => format!(
            "stopped {} after the start: {} waited for {} without a break",
            human(stall.at),
            stall.what,
            human(stall.waited)
        ),
        (None, Some(stall)) => format!(
            "nothing was waited for as long as {}: the longest wait was {}, for {}, {} after the start",
            human(wait),
            human(stall.waited),
            stall.what,
            human(stall.at)
        ),
        (None, None) => "nothing was waited for: neither credits nor tags, buffers or rings".to_owned(),
    }
}

/// What stands above and below a listing.
struct TraceText<'a> {
    title: &'a str,
    links: &'a [LinkState],
    /// What ended the recording, if it was asked for.
    end: Option<String>,
}

/// Writes the requested files, and the listing unless a file goes to standard output.
fn show(
    arguments: &TraceArgs,
    to_stdout: bool,
    TraceText { title, links, end }: TraceText<'_>,
    capture: &Capture,
    provenance: &Provenance,
    timeline: impl FnOnce() -> Timeline,
) -> Result<ExitCode, Failure> {
    if let Some(path) = &arguments.perfetto {
        output::write_with(path, |out| perfetto::write(out, capture, &timeline(), provenance))?;
    }
    let why_empty = capture.why_empty();
    if let Some(path) = &arguments.pcapng {
        let bytes = pcapng::capture(capture, &provenance.lines().join("\n")).map_err(Failure::new)?;
        output::write(path, &bytes)?;
    }
    if let Some(path) = arguments.records.csv() {
        output::with_origin(path, csv::table(Row::all(capture)).as_bytes(), provenance)?;
    }
    let rows = || Row::all(capture).map(|row| json_row(&row)).collect();
    arguments.records.write_typed(rows, provenance)?;
    if !to_stdout {
        output::heading(provenance);
        output::print(&output::prose(title));
        output::print(&(output::link_lines(links) + "\n"));
        if why_empty.is_none() {
            output::print(listing::listing(capture, arguments.data, output::width()).trim_end());
        }
        if let Some(end) = end {
            output::print(&output::prose(&format!("\n{end}")));
        }
    }
    if let Some(why) = why_empty {
        output::complain(&format!("note: {why}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// A packet's fields; numbers are typed.
fn json_row(row: &Row<'_>) -> serde_json::Value {
    let json = |value: csv::Value<'_>| match value {
        csv::Value::Integer(number) => number.into(),
        csv::Value::Time(time) => time.as_ns_f64().into(),
        other => other.to_string().into(),
    };
    let fields = csv::COLUMNS.into_iter().zip(csv::values(row));
    fields
        .filter_map(|((name, _), value)| Some((name.to_owned(), json(value?))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
