//! Additional sections of the report: assumptions of the machine files, results of the measured files, and the closed
//! form.

use std::collections::BTreeMap;

use machine::{Determined, Diagnostics, Doc, Kind, Listed, Machine};
use results::claims::{ClaimFile, Evidence, Sample, Verdict};
use results::report::{Chart, Curve, DataTable, Scale, Section};

use super::ModelPoint;

/// The sections, in order.
///
/// # Errors
/// If a machine file is invalid.
pub fn sections(
    file: &ClaimFile,
    evidence: &Evidence,
    measured: Option<&Evidence>,
    closed_form: &[ModelPoint],
    machines: &BTreeMap<String, Doc<Machine>>,
) -> Result<Vec<Section>, Diagnostics> {
    Ok(vec![by_the_files(file, evidence, measured), closed_form_section(closed_form), assumptions(machines)?])
}

/// Claims judged by the measured files, next to the simulation.
fn by_the_files(file: &ClaimFile, evidence: &Evidence, measured: Option<&Evidence>) -> Section {
    let title = "The same statements by the measured files".to_owned();
    let Some(measured) = measured else {
        let prose = vec![
            "The measured directories are not here, so this table is left out. The rings in the charts above do \
             not need them."
                .into(),
        ];
        return Section { title, prose, ..Section::default() };
    };
    let of_files = file.judge_claims(measured);
    let number = |value: Option<f64>| value.map_or_else(|| "–".into(), |v| format!("{v:.1}"));
    let rows = of_files
        .iter()
        .zip(file.judge_claims(evidence))
        .filter(|(files, _)| files.verdict != Verdict::NotModelled)
        .map(|(files, simulated)| {
            vec![
                files.id.trim_start_matches("pcie-bench/").to_owned(),
                files.quantity.clone(),
                files.unit.clone(),
                number(files.published),
                number(files.simulated),
                number(simulated.simulated),
            ]
        })
        .collect();
    let header = ["statement", "quantity", "unit", "paper", "files", "simulated"];
    Section {
        title,
        prose: vec![
            "The paper's authors published the results that its text summarises. Where both can be compared, they \
             do not always agree: the text rounds, and some numbers come from other runs. A simulation can be \
             right about the machine and miss the sentence."
                .into(),
        ],
        tables: vec![DataTable {
            title: String::new(),
            header: header.map(String::from).to_vec(),
            rows,
            numbers_from: 3,
        }],
        ..Section::default()
    }
}

fn closed_form_section(closed_form: &[ModelPoint]) -> Section {
    let number = |value: Option<f64>| value.map_or_else(|| "–".into(), |v| format!("{v:.2}"));
    let rows = closed_form
        .iter()
        .map(|c| {
            vec![
                c.test.to_string(),
                format!("{} B", c.transfer),
                format!("{:.2}", c.closed_form),
                number(c.ideal),
                number(c.card),
            ]
        })
        .collect();
    let mut curves: BTreeMap<String, Curve> = BTreeMap::new();
    for c in closed_form {
        let sample = |y: f64| Sample { x: c.transfer as f64, y, low: None, high: None };
        let label = format!("{}: ideal engine", c.test);
        let curve = curves.entry(label.clone()).or_insert_with(|| Curve {
            label,
            simulated: Vec::new(),
            measured: Vec::new(),
        });
        curve.simulated.extend(c.ideal.map(sample));
        curve.measured.push(sample(c.closed_form));
    }
    let chart = Chart {
        names: Vec::new(),
        id: "closed-form".into(),
        title: "Closed form and simulation".into(),
        text: "What a Gen3 x8 link could carry if nothing waited (rings), and an engine without overheads in the \
               simulated Haswell machine (lines)."
            .into(),
        x: ("transfer size (bytes)".into(), Scale::Log2),
        y: ("goodput (Gbit/s)".into(), Scale::Linear),
        from_zero: true,
        rings: "closed form".into(),
        curves: curves.into_values().collect(),
    };
    let header = ["test", "transfer", "closed form", "ideal engine", "NFP-6000"];
    Section {
        title: "Closed form and simulation".into(),
        prose: vec![
            "The paper's model counts bytes on the wire and lets nothing wait. It allows for acknowledgements and \
             credit updates as often as the specification recommends, more than real links send: an engine \
             without overheads may exceed it by up to a tenth. Gbit/s, per direction."
                .into(),
            "Where the ideal engine's reads stay below, the host cuts their data finer than the model's payload of 256 B: \
             this machine answers most requests in completions of 128 B, the last of them line by line, and pads each \
             to 16 B on its way to the link. Simulated with completions of 256 B throughout, reads of 257 B rise from 41.7 to \
             50.0 Gbit/s, of 256 B and 1024 B from 49.8 and 48.8 to 55.4 and 55.5; reads of 64 B, one completion each, stay \
             at 41.5: 84 bytes take 96. The NFP-6000 has 32 tags and times of its own besides."
                .into(),
        ],
        charts: vec![chart],
        tables: vec![DataTable {
            title: String::new(),
            header: header.map(String::from).to_vec(),
            rows,
            numbers_from: 1,
        }],
    }
}

/// What the machine files state about their parameters.
fn assumptions(machines: &BTreeMap<String, Doc<Machine>>) -> Result<Section, Diagnostics> {
    let kinds = [
        Kind::Fitted,
        Kind::FittedByHand,
        Kind::Empirical,
        Kind::Measured,
        Kind::Datasheet,
        Kind::Specification,
        Kind::Relative,
        Kind::Assumed,
        Kind::Override,
    ];
    let mut counts = Vec::new();
    let mut tables = Vec::new();
    for (cpu, doc) in machines {
        let figures = doc.list()?;
        let of = |kind: Kind| figures.iter().filter(|f| f.provenance.kind == kind).count();
        let mut row = vec![cpu.clone()];
        row.extend(kinds.iter().map(|&kind| of(kind).to_string()));
        counts.push(row);
        let told = figures
            .iter()
            .filter(|f| !matches!(f.provenance.kind, Kind::Measured | Kind::Datasheet | Kind::Specification));
        tables.extend(without(cpu, &figures));
        tables.push(DataTable {
            title: format!("{cpu}: what was fitted, taken from a relative, or assumed"),
            header: ["figure", "value", "kind", "determined", "from what"].map(String::from).to_vec(),
            rows: told.map(figure_row).collect(),
            numbers_from: 0,
        });
    }
    let mut header = vec!["machine".to_owned()];
    header.extend(kinds.iter().map(|kind| kind.as_str().to_owned()));
    tables.insert(0, DataTable { title: "Figures by source".into(), header, rows: counts, numbers_from: 1 });
    Ok(Section {
        title: "What the machine files assume".into(),
        prose: vec![
            "No figure belongs to an experiment: one file describes a machine for all of them, and each figure says \
             where it comes from. \"Fitted\" were adjusted until simulated results met measured ones; \"empirical\" too, but \
             nobody knows what in the hardware they stand for, so each says how far off results are without it; \
             \"relative\" were taken from the nearest related machine because nothing measured determines them; \
             \"assumed\" are round numbers on which results depend little or not at all."
                .into(),
            "On the contradictions above the files side with the measurements: an IOTLB of about 128 entries \
             rather than 64, and DMA writes to remote memory that allocate in the cache of the card's own socket."
                .into(),
        ],
        charts: Vec::new(),
        tables,
    })
}

/// Results without each empirical parameter; `None` if there is none.
fn without(cpu: &str, figures: &[Listed]) -> Option<DataTable> {
    let row = |figure: &Listed| {
        let value = figure.value.trim().trim_matches('"').to_owned();
        Some(vec![
            figure.path.trim_start_matches("host.").to_owned(),
            value,
            figure.provenance.without.clone()?,
        ])
    };
    let rows: Vec<Vec<String>> = figures.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| DataTable {
        title: format!("{cpu}: empirical figures, and results without each"),
        header: ["figure", "value", "without it"].map(String::from).to_vec(),
        rows,
        numbers_from: 3,
    })
}

fn figure_row(figure: &Listed) -> Vec<String> {
    let provenance = &figure.provenance;
    let determined = provenance.determined.map_or("", Determined::as_str);
    let determined = match &provenance.uncertainty {
        Some(by) => format!("{determined} ± {by}").trim().to_owned(),
        None => determined.to_owned(),
    };
    let source =
        provenance.source.split_once(':').map_or(provenance.source.as_str(), |(_, rest)| rest.trim());
    vec![
        figure.path.trim_start_matches("host.").to_owned(),
        figure.value.trim().trim_matches('"').to_owned(),
        provenance.kind.as_str().to_owned(),
        determined,
        source.to_owned(),
    ]
}
