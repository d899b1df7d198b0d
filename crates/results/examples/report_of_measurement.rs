//! The report with the measurement in the place of the simulation: shows what
//! the page looks like, and what the paper's own data say about its claims.
//!
//! `cargo run -p nearfar-results --example report_of_measurement -- MEASURED_DIR OUT.html`

use results::claims::{ClaimFile, Evidence};
use results::pciebench::read_directory;
use results::report::{DataTable, Report, Section};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(measured), Some(out)) = (arguments.next(), arguments.next()) else {
        return Err("usage: report_of_measurement MEASURED_DIR OUT.html".into());
    };
    let mut evidence = Evidence::default();
    let mut paths: Vec<_> = std::fs::read_dir(measured)?.filter_map(|e| e.ok().map(|e| e.path())).collect();
    paths.sort();
    for path in paths.iter().filter(|p| p.is_dir()) {
        evidence.add_measured(&read_directory(path)?);
    }
    let file = ClaimFile::of("pcie-bench");
    let mut report = Report::of_claims("pcie-bench, judged by its own measurements", &file, &evidence);
    report.sections.push(Section {
        title: "What the machine files assume".into(),
        prose: vec!["Nothing here: the values are measured, not simulated.".into()],
        tables: vec![DataTable {
            title: "Directories".into(),
            header: vec!["directory".into()],
            rows: paths.iter().filter_map(|p| Some(vec![p.file_name()?.to_str()?.to_owned()])).collect(),
            numbers_from: 0,
        }],
        ..Section::default()
    });
    std::fs::write(out, report.to_html())?;
    Ok(())
}
