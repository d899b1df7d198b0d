//! `nearfar compare` with outputs of other tools than pcie-bench.

use std::path::PathBuf;
use std::process::ExitCode;

use nearfar::compare::{ToolComparison, ToolOptions, compare_tools, error_pct};

use crate::failure::Failure;
use crate::output::{Fit, Records, TextTable};
use crate::{Common, output, progress};

pub fn run(
    common: &Common,
    paths: &[PathBuf],
    options: &ToolOptions,
    records: &Records,
    seed: u64,
) -> Result<ExitCode, Failure> {
    let places = records.places(&[])?;
    places.reads(paths)?;
    places.reads_machine(&options.machine)?;
    places.reads(&options.card)?;
    let all = compare_tools(paths, options, progress::of(common).as_ref()).map_err(Failure::new)?;
    let mut provenance = output::provenance(seed, &[("--set", &options.set)], &options.library);
    for path in paths {
        provenance.files.push(output::measured(path)?);
    }
    if !places.to_stdout {
        let mut file = None;
        for one in &all {
            if file.replace(&one.file) != Some(&one.file) {
                output::print(&format!("{} ({})", one.file.display(), one.tool));
            }
            output::print(&shown(one));
        }
        let simulated = all.iter().filter(|one| one.skipped.is_none()).count();
        output::print(&format!("{} tests, {simulated} simulated on {}", all.len(), options.machine));
        output::heading(&provenance);
    }
    records.write(all.iter().flat_map(ToolComparison::records).collect(), &provenance)?;
    Ok(ExitCode::SUCCESS)
}

/// A test with its values side by side.
fn shown(one: &ToolComparison) -> String {
    let mut text = format!("\n{}\n", one.title);
    if !one.run.is_empty() {
        text += &format!("  simulated: {}\n", one.run);
    }
    let mut table =
        TextTable::new(["", "measured", "simulated", "error", "unit"], Fit::Wrap).numbers([1, 2, 3]);
    for (quantity, unit, measured, simulated) in &one.rows {
        let error = simulated.and_then(|value| error_pct(*measured, value));
        table.add(vec![
            quantity.clone(),
            output::number(*measured),
            simulated.map_or("-".into(), output::number),
            error.map_or("-".into(), |error| format!("{error:+.1} %")),
            (*unit).to_owned(),
        ]);
    }
    if !one.rows.is_empty() {
        text += &(table.render(output::width()) + "\n");
    }
    if !one.binds.is_empty() {
        text += &(output::prose(&format!("what binds: {}", one.binds)) + "\n");
    }
    if let Some(why) = &one.skipped {
        text += &(output::prose(&format!("not simulated: {why}")) + "\n");
    }
    for note in &one.notes {
        text += &(output::prose(&format!("note: {note}")) + "\n");
    }
    text.trim_end().to_owned()
}
