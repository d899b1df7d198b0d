//! The report: a self-contained HTML file for readers who do not know the paper.

mod axis;
mod chart;
mod html;
mod overlap;
mod panel;
mod pdf;
mod picture;

pub use axis::Scale;
pub use chart::{Chart, Curve};
pub use pdf::pdf;
pub use picture::picture;

use crate::Provenance;
use crate::claims::{
    Assumption, ClaimFile, ClaimResult, Evidence, TallyGroup, Verdict, VerdictCounts, statements,
};
use std::collections::BTreeSet;

/// What a page shows, in the order of the page.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Heading of the page, and its title in the browser.
    pub title: String,
    /// Summary: what was simulated, and its accuracy.
    pub lead: Vec<String>,
    /// Numbers for the top of the page, in addition to those about the claims.
    pub facts: Vec<Fact>,
    /// Its sections, after the misses and the claims.
    pub sections: Vec<Section>,
    /// The claims judged.
    pub claims: Vec<ClaimResult>,
    /// Where the published values come from.
    pub colophon: Vec<String>,
    /// Program, command line and files that led to it, for the end of the page.
    pub provenance: Provenance,
}

/// A number with a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The number with its unit.
    pub value: String,
    /// What the number is.
    pub label: String,
}

/// A part of the report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Section {
    /// Heading of the section.
    pub title: String,
    /// Paragraphs.
    pub prose: Vec<String>,
    /// Charts, below the prose.
    pub charts: Vec<Chart>,
    /// Tables, below the charts.
    pub tables: Vec<DataTable>,
}

/// A table of a report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DataTable {
    /// Heading above the table.
    pub title: String,
    /// The headings.
    pub header: Vec<String>,
    /// The rows; columns from `numbers_from` on are right-aligned.
    pub rows: Vec<Vec<String>>,
    /// Index of the first column of numbers.
    pub numbers_from: usize,
}

/// The assumptions where the paper is silent.
fn assumptions(file: &ClaimFile) -> Section {
    let row =
        |a: &Assumption| vec![a.quantity.clone(), a.source.clone(), a.value.to_string(), a.unit.clone()];
    let table = DataTable {
        title: "Assumptions".into(),
        header: ["Quantity", "Source", "Value", "Unit"].map(str::to_owned).into(),
        rows: file.assumptions.iter().map(row).collect(),
        numbers_from: 2,
    };
    let prose =
        vec!["The runs need these. The paper gives none of them, unless the source names it.".to_owned()];
    Section { title: "What is assumed".into(), prose, tables: vec![table], ..Section::default() }
}

impl Report {
    /// The standard report on a paper: its claims, and a chart per figure. The caller adds sections on the assumptions
    /// of machine files.
    pub fn of_claims(title: impl Into<String>, file: &ClaimFile, evidence: &Evidence) -> Self {
        let claims = file.judge_claims(evidence);
        let charts = |beyond: bool| {
            let figures = file.figures.iter().filter(move |f| f.assumes.is_some() == beyond);
            figures.map(|f| Chart::of_figure(file, f, evidence)).collect::<Vec<_>>()
        };
        let prose = vec![
            "Lines are simulated, rings are measured on the real machine. Where there are no rings, nothing was \
             measured or given: the line is a prediction."
                .to_owned(),
        ];
        let mut sections =
            vec![Section { title: "Curves".into(), prose, charts: charts(false), tables: Vec::new() }];
        let beyond = charts(true);
        if !beyond.is_empty() {
            let prose = vec![
                "Nobody has measured these: the model is taken to where the paper did not go. Each chart says what was \
                 assumed."
                    .to_owned(),
            ];
            sections.push(Section {
                title: "Beyond the paper".into(),
                prose,
                charts: beyond,
                tables: Vec::new(),
            });
        }
        if !file.assumptions.is_empty() {
            sections.push(assumptions(file));
        }
        let mut report = Self {
            title: title.into(),
            lead: vec![Self::count(&claims), file.about.trim().into(), simulated(evidence)],
            facts: point_facts(&file.judge_figures(evidence)),
            sections,
            claims,
            colophon: vec![format!("Published values: {}.", file.paper)],
            provenance: Provenance::default(),
        };
        if evidence.outcomes.is_empty() && evidence.observed.values().all(Result::is_err) {
            report.lead = vec![file.about.trim().into(), "Nothing was simulated.".into()];
        }
        report
    }

    /// Summary of the verdicts in one or two sentences.
    fn count(claims: &[ClaimResult]) -> String {
        let statements = statements(claims);
        let of = |part| {
            let own = statements.iter().filter(|statement| !statement.structural && statement.part == part);
            let tally: VerdictCounts = own.map(|statement| statement.verdict).collect();
            (tally.within, tally.simulated())
        };
        let part = |(within, all): (usize, usize), which: &str| {
            let none =
                if all == 0 { Some(format!("none of the statements {which} was simulated")) } else { None };
            none.unwrap_or_else(|| {
                format!(
                    "of the paper's statements {which}, {within} of {all} came out within their tolerance"
                )
            })
        };
        let text = format!(
            "{}; {}.",
            part(of(TallyGroup::Predictions), "on which no parameter was fitted"),
            part(of(TallyGroup::Calibration), "that helped to fit one")
        );
        let text = match of(TallyGroup::OnRelatives) {
            (_, 0) => text,
            (within, all) => format!(
                "{text} {all} more predictions are of machines some of whose figures are a related machine's; {within} of them \
                 came out within theirs."
            ),
        };
        let text = match of(TallyGroup::Following) {
            (_, 0) => text,
            (within, all) => format!(
                "{text} {all} more repeat these or follow by arithmetic, and are not counted again; {within} of \
                 them came out within theirs."
            ),
        };
        let missing = claims.iter().filter(|c| c.verdict == Verdict::NotModelled).count();
        let missing = match missing {
            0 => String::new(),
            1 => " One statement was not simulated.".to_owned(),
            _ => format!(" {missing} statements were not simulated."),
        };
        let mut letters = text.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        format!("{first}{}{missing}", letters.as_str())
    }

    /// The page.
    pub fn to_html(&self) -> String {
        files::shown(&html::page(self)).into_owned()
    }
}

/// A sentence on what was simulated.
fn simulated(evidence: &Evidence) -> String {
    let machines: BTreeSet<&str> = evidence.outcomes.keys().map(|e| e.cpu.as_str()).collect();
    let names: Vec<&str> = machines.iter().copied().collect();
    if names.is_empty() {
        let values = evidence.observed.values().filter(|value| value.is_ok()).count();
        return format!("Here {values} values were observed in simulations of its experiments.");
    }
    format!(
        "Here {} of its runs were simulated on models of {} machines (Xeon {}).",
        evidence.outcomes.len(),
        names.len(),
        names.join(", ")
    )
}

/// Median errors of the figures' points.
fn point_facts(points: &[ClaimResult]) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (unit, name) in [("ns", "latencies"), ("Gbit/s", "bandwidths")] {
        let of_unit = points.iter().filter(|p| p.unit == unit);
        let mut errors: Vec<f64> = of_unit.filter_map(|p| p.error_pct).map(f64::abs).collect();
        errors.sort_by(f64::total_cmp);
        if let Some(median) = crate::compare::median(&errors) {
            let label = format!("median error of {} measured {name} in the curves below", errors.len());
            facts.push(Fact { value: format!("{median:.1} %"), label });
        }
    }
    facts
}
