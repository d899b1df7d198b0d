//! The HTML page.

use super::panel::Panel;
use super::{Chart, DataTable, Report, Section};
use crate::Provenance;
use crate::claims::{ClaimResult, Statement, TallyGroup, Verdict, VerdictCounts, statements, words};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

pub(super) fn page(report: &Report) -> String {
    let of = |verdict| report.claims.iter().filter(|c| c.verdict == verdict).collect::<Vec<_>>();
    let (outside, missing) = (of(Verdict::Outside), of(Verdict::NotModelled));
    let pairs = contradictions(&report.claims);
    let anchor = |title: &str| title.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (report.title) }
                @if !report.provenance.version.is_empty() {
                    meta name="generator" content={ "nearfar " (report.provenance.version) };
                }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a class="skip" href="#content" { "Skip to the content" }
                header {
                    h1 { (report.title) }
                    @for paragraph in &report.lead { p class="lead" { (paragraph) } }
                    (tiles(report))
                    nav {
                        @for section in drawn(report) { a href={ "#" (anchor(&section.title)) } { (section.title) } }
                        @if !report.claims.is_empty() {
                            @if !outside.is_empty() || !missing.is_empty() { a href="#misses" { "What misses" } }
                            a href="#claims" { "All statements" }
                        }
                        @if !pairs.is_empty() { a href="#contradictions" { "Contradictions" } }
                        @for section in told(report) { a href={ "#" (anchor(&section.title)) } { (section.title) } }
                    }
                }
                main id="content" tabindex="-1" {
                    @for section in drawn(report) { (body_section(section, &anchor(&section.title))) }
                    @if !outside.is_empty() || !missing.is_empty() { (misses(&outside, &missing)) }
                    @if !report.claims.is_empty() { (claims(&report.claims)) }
                    @if !pairs.is_empty() { (versus(&pairs)) }
                    @for section in told(report) { (body_section(section, &anchor(&section.title))) }
                }
                footer {
                    @for paragraph in &report.colophon { p { (paragraph) } }
                    (made_from(&report.provenance))
                }
            }
        }
    }
    .into_string()
}

/// Whether a section precedes the claims: those with curves do; without claims, all do.
fn is_first(report: &Report, section: &Section) -> bool {
    report.claims.is_empty() || !section.charts.is_empty()
}

fn drawn(report: &Report) -> impl Iterator<Item = &Section> {
    report.sections.iter().filter(|section| is_first(report, section))
}

fn told(report: &Report) -> impl Iterator<Item = &Section> {
    report.sections.iter().filter(|section| !is_first(report, section))
}

/// The provenance of the page.
fn made_from(provenance: &Provenance) -> Markup {
    html! {
        @if !provenance.command.is_empty() {
            p { "Made by nearfar " (provenance.version) ", seed " (provenance.seed) ": " code { (provenance.command) } }
        }
        @if !provenance.changes.is_empty() {
            p { "Changed:" }
            ul { @for change in &provenance.changes { li { code { (change) } } } }
        }
        @if !provenance.files.is_empty() {
            details {
                summary { "The " (provenance.files.len()) " files that went in, with SHA-256" }
                ul {
                    @for file in &provenance.files { li { (file.kind) " " (file.name) " " code { (file.sha256) } } }
                }
            }
        }
    }
}

fn tiles(report: &Report) -> Markup {
    let (structural, others): (Vec<Statement>, Vec<Statement>) =
        statements(&report.claims).into_iter().partition(|statement| statement.structural);
    let verdicts =
        |all: &[Statement]| all.iter().map(|statement| statement.verdict).collect::<VerdictCounts>();
    let share = |tally: VerdictCounts| {
        (tally.simulated() > 0).then(|| format!("{} of {}", tally.within, tally.simulated()))
    };
    let of = |part| share(others.iter().filter(|s| s.part == part).map(|s| s.verdict).collect());
    let label = |part| match part {
        TallyGroup::Predictions => "predicted statements within their tolerance",
        TallyGroup::OnRelatives => "statements predicted on a related machine's figures within theirs",
        TallyGroup::Calibration => "statements used in calibration within theirs",
        TallyGroup::Following => "statements that follow from others or from arithmetic within theirs",
    };
    html! {
        div class="tiles" {
            @for part in TallyGroup::ALL {
                @if let Some(value) = of(part) {
                    div class="tile" { b { (value) } span { (label(part)) } }
                }
            }
            @if let Some(value) = share(verdicts(&structural)) {
                div class="tile" { b { (value) } span { "statements that only a fault could contradict hold" } }
            }
            @for fact in &report.facts {
                div class="tile" { b { (fact.value) } span { (fact.label) } }
            }
        }
    }
}

fn badge(verdict: Verdict) -> Markup {
    let (class, sign) = match verdict {
        Verdict::Within => ("within", "✓"),
        Verdict::Outside => ("outside", "✗"),
        Verdict::Undetermined => ("undetermined", "?"),
        Verdict::NotModelled => ("not-modelled", "–"),
        Verdict::NotPublished => ("not-published", "·"),
    };
    html! { span class={ "badge " (class) } { (sign) " " (verdict) } }
}

fn role(part: TallyGroup) -> Markup {
    let (class, why, text) = match part {
        TallyGroup::Predictions => ("prediction", "no parameter has seen this value", "prediction"),
        TallyGroup::OnRelatives => (
            "prediction",
            "no parameter has seen this value, and some of the machine's figures are a related machine's",
            "prediction, relative's figures",
        ),
        TallyGroup::Calibration => {
            ("calibration", "the machine files were fitted to data that contain this value", "calibration")
        }
        TallyGroup::Following => {
            ("calibration", "follows from other statements, or from arithmetic", "follows")
        }
    };
    html! { span class={ "badge " (class) } title=(why) { (text) } }
}

/// A value with its unit; "yes" or "no" for yes/no.
fn value(v: Option<f64>, unit: &str) -> String {
    words::value(v, unit).replace('-', "−")
}

fn simulated(claim: &ClaimResult) -> String {
    words::simulated(claim).replace('-', "−")
}

fn error(claim: &ClaimResult) -> String {
    words::error(claim).replace('-', "−")
}

fn tolerance(claim: &ClaimResult) -> String {
    words::tolerance(claim)
}

fn misses(outside: &[&ClaimResult], missing: &[&ClaimResult]) -> Markup {
    html! {
        section id="misses" {
            h2 { "What misses" }
            p { "Statements of the paper that the simulation does not reproduce within their tolerance, with what is known about the reason." }
            @if outside.is_empty() { p { "None." } }
            div class="cards" {
                @for claim in outside { (card(claim)) }
            }
            @if !missing.is_empty() {
                details open[outside.is_empty()] {
                    summary { "Not simulated (" (missing.len()) ")" }
                    div class="cards" { @for claim in missing { (card(claim)) } }
                }
            }
        }
    }
}

fn card(claim: &ClaimResult) -> Markup {
    html! {
        div class="card" {
            (badge(claim.verdict)) " " (role(claim.part()))
            p { (claim.text) }
            p class="values" {
                "published " b { (value(claim.published, &claim.unit)) }
                ", simulated " b { (simulated(claim)) }
                @if claim.error_pct.is_some() && claim.unit != "yes/no" {
                    " (" (error(claim)) ", allowed " (tolerance(claim)) ")"
                }
            }
            @if let Some(note) = &claim.note { p class="note" { (note) } }
            @if let Some(ours) = &claim.ours { p class="note" { "Ours, not the paper's: " (ours) } }
            @if let Some(why) = &claim.follows { p class="note" { "Not counted for itself: " (why) } }
            p class="where" { (claim.source) " · " (claim.quantity) }
        }
    }
}

fn claims(claims: &[ClaimResult]) -> Markup {
    html! {
        section id="claims" {
            h2 { "All statements" }
            p {
                "What the paper says, in plain words, and what the simulation says. A " (role(TallyGroup::Predictions))
                " is a value that no parameter was fitted to; a " (role(TallyGroup::Calibration))
                " is contained in data that fixed one, so that agreement there shows only that one machine file can "
                "hold all of them at once. What \"follows\" is such a value over again, or arithmetic: it is judged, "
                "and counted apart, as are predictions for machines some of whose figures are a related machine's. Changes in percent are compared in percentage points."
            }
            @if claims.len() < LONG_TABLE {
                (claims_table(claims))
            } @else {
                details {
                    summary { "All " (claims.len()) " statements" }
                    (claims_table(claims))
                }
            }
        }
    }
}

fn claims_table(claims: &[ClaimResult]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="All statements" {
            table class="claims" {
                thead {
                    tr {
                        th { "statement" } th class="number" { "published" }
                        th class="number" { "simulated" } th class="number" { "error" }
                        th class="number" { "tolerance" } th { "role" } th { "verdict" }
                    }
                }
                tbody {
                    @for claim in claims {
                        tr id=(claim.id) {
                            td {
                                (claim.text)
                                @if let Some(note) = &claim.note { div class="note" { (note) } }
                                @if let Some(ours) = &claim.ours { div class="note" { "Ours, not the paper's: " (ours) } }
                                @if let Some(why) = &claim.follows {
                                    div class="note" { "Not counted for itself: " (why) }
                                }
                                div class="where" { (claim.source) " · " (claim.quantity) }
                            }
                            td class="number" data-label="published" { (value(claim.published, &claim.unit)) }
                            td class="number" data-label="simulated" { (simulated(claim)) }
                            td class="number" data-label="error" { (error(claim)) }
                            td class="number" data-label="tolerance" { (tolerance(claim)) }
                            td { (role(claim.part())) }
                            td { (badge(claim.verdict)) }
                        }
                    }
                }
            }
        }
    }
}

/// Pairs of contradicting claims, each pair once.
fn contradictions(claims: &[ClaimResult]) -> Vec<(&ClaimResult, &ClaimResult)> {
    let mut pairs = Vec::new();
    for (i, claim) in claims.iter().enumerate() {
        let Some(other) = &claim.contradicts else {
            continue;
        };
        if let Some(other) = claims[i + 1..].iter().find(|c| c.id == *other) {
            pairs.push((claim, other));
        }
    }
    pairs
}

fn versus(pairs: &[(&ClaimResult, &ClaimResult)]) -> Markup {
    html! {
        section id="contradictions" {
            h2 { "Contradictions" }
            p { "Where sources disagree, both sides are judged; at most one of them can be within its tolerance. Which one the simulated machine assumes stands in its machine file." }
            @for (a, b) in pairs {
                div class="versus" { (card(a)) (card(b)) }
            }
        }
    }
}

fn body_section(section: &Section, anchor: &str) -> Markup {
    html! {
        section id=(anchor) {
            h2 { (section.title) }
            @for paragraph in &section.prose { p { (paragraph) } }
            @if !section.charts.is_empty() {
                div class="charts" { @for chart in &section.charts { (figure(chart)) } }
            }
            @for table in &section.tables { (data_table(table)) }
        }
    }
}

fn figure(chart: &Chart) -> Markup {
    let any = |measured: bool| {
        let samples = |c: &super::Curve| if measured { c.measured.len() } else { c.simulated.len() };
        chart.curves.iter().any(|c| samples(c) > 0)
    };
    html! {
        figure id=(chart.id) {
            figcaption {
                h3 { (chart.title) }
                p { (chart.text) }
            }
            @let panels = chart.panels();
            @for panel in &panels {
                @let legend = panel.legend();
                ul class="legend" hidden[legend.is_empty() || chart.needs_no_legend()] {
                    @for entry in legend {
                        @let broken = ["solid", "dashed", "dotted"][entry.breaks.min(2)];
                        li { i style={ "border-color:var(--curve-" (entry.colour) ");border-top-style:" (broken) } {} (entry.label) }
                    }
                }
                @if let Some(svg) = panel.to_svg(true) { (PreEscaped(svg)) }
            }
            @if panels.is_empty() { p class="note" { "Nothing to draw: neither simulated nor measured." } }
            p class="key" {
                @if any(false) {
                    (PreEscaped(r#"<svg viewBox="0 0 26 12" aria-hidden="true"><path d="M1 6H25" stroke="currentColor" stroke-width="2"/></svg>"#))
                    " simulated "
                }
                @if any(true) {
                    (PreEscaped(r#"<svg viewBox="0 0 26 12" aria-hidden="true"><circle cx="13" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="2"/></svg>"#))
                    " " (chart.rings) " "
                }
                @if panels.iter().flat_map(Panel::legend).any(|entry| entry.breaks > 0) { " · broken: lies on another line " }
                @if chart.has_bars() { " · bars: minimum to 95th percentile " }
                " · "
                a class="download" download={ (chart.id) ".csv" } href={ "data:text/csv;charset=utf-8," (percent_encoded(&chart.to_csv())) } {
                    "data as CSV"
                }
                @if let Some(picture) = chart.to_picture() {
                    " · "
                    a class="download" download={ (chart.id) ".svg" } href={ "data:image/svg+xml;charset=utf-8," (percent_encoded(&picture)) } {
                        "picture as SVG"
                    }
                }
            }
            @if !panels.is_empty() { (folded_table(&chart.values(), "")) }
        }
    }
}

/// Tables with at least this many rows are collapsed.
const LONG_TABLE: usize = 16;

fn data_table(table: &DataTable) -> Markup {
    html! {
        @if table.rows.len() < LONG_TABLE {
            (open_table(table, &table.title))
        } @else {
            (folded_table(table, &format!(", {} rows", table.rows.len())))
        }
    }
}

/// A collapsed table.
fn folded_table(table: &DataTable, more: &str) -> Markup {
    html! {
        details {
            summary { (if table.title.is_empty() { "Table" } else { &table.title }) (more) }
            (open_table(table, ""))
        }
    }
}

fn open_table(table: &DataTable, title: &str) -> Markup {
    let class = |column: usize| {
        if column >= table.numbers_from && table.numbers_from > 0 { "number" } else { "text" }
    };
    html! {
        // A focused element wider than the page can be scrolled by keyboard.
        div class="scroll" tabindex="0" role="region" aria-label=(if table.title.is_empty() { "Table" } else { &table.title }) {
            table {
                @if !title.is_empty() { caption { (title) } }
                thead { tr { @for (i, h) in table.header.iter().enumerate() { th class=(class(i)) { (h) } } } }
                tbody {
                    @for row in &table.rows {
                        tr { @for (i, cell) in row.iter().enumerate() { td class=(class(i)) { (cell) } } }
                    }
                }
            }
        }
    }
}

/// Text for a `data:` URI in an attribute. Only characters special in URIs or HTML are encoded; browsers accept the
/// rest.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 5 / 4);
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && !b"\"#%&<>\\^`{|}".contains(&byte) {
            encoded.push(byte as char);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{ClaimFile, Evidence};

    #[test]
    fn the_page_needs_nothing_else() {
        let report = Report::of_claims("Test <1>", &ClaimFile::of("pcie-bench"), &Evidence::default());
        let page = report.to_html();
        assert!(page.contains("Test &lt;1&gt;"));
        for outside in ["http://", "https://", "<script", "<link", "@import", "url("] {
            // The SVG namespace is never fetched.
            let page = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("prefers-color-scheme: dark") && page.contains("id=\"contradictions\""));
    }

    #[test]
    fn values_are_written_for_readers() {
        assert_eq!(value(Some(1.0), "yes/no"), "yes");
        assert_eq!(value(Some(-22.14), "%"), "−22.1 %");
        assert_eq!(value(Some(427.2), "ns"), "427 ns");
        assert_eq!(percent_encoded("a,b\r\n\"é"), "a,b%0D%0A%22%C3%A9");
    }
}
