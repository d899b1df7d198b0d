//! Writes the result of a fit: the machine file, a provenance statement for each parameter, and the residuals of each
//! series.

use std::collections::BTreeSet;

use machine::{Determined, Diagnostics, Doc, Kind, Listed, Machine, Provenance, figures};
use results::compare::FamilySummary;
use results::pciebench::family;

use super::measured::MeasuredDirectory;
use super::plan::BY_HAND;
use super::{FitOptions, Fitted, Residuals, is_of};

/// Separates the author's text in a statement from that of a fit.
const SAYS: &str = "; nearfar fit: ";

/// Describes the rows used to fit a parameter.
fn rows(figure: &Fitted) -> String {
    let files: BTreeSet<String> = figure.files.iter().map(|file| family(&format!("{file}.csv"))).collect();
    let files: Vec<String> = files.into_iter().collect();
    let common = match figure.common.as_str() {
        "" => String::new(),
        common => format!(" ({common})"),
    };
    format!("{} rows of {}{common}", figure.rows, files.join(", "))
}

/// The author's text, without its kind and without the text of an earlier fit.
fn of_people(provenance: &Provenance) -> &str {
    let said = provenance.source.split_once(':').map_or("", |(_, said)| said.trim());
    said.split(SAYS).next().unwrap_or_default()
}

/// A parameter's statement after the fit; `None` if it does not change. `same` means that the file already described
/// this machine.
fn statement(figure: &Listed, fitted: Option<&Fitted>, same: bool) -> Option<Provenance> {
    let was = &figure.provenance;
    let adjusted = was.kind.is_free();
    // A parameter fitted to rows is not explained by them.
    let unexplained = same && was.kind == Kind::Empirical;
    let kind = if unexplained { Kind::Empirical } else { Kind::Fitted };
    let said = if same && adjusted { of_people(was) } else { "" };
    let with = |kind: Kind, what: &str| match said {
        "" => format!("{}: {what}", kind.as_str()),
        said => format!("{}: {said}{SAYS}{what}", kind.as_str()),
    };
    let kept = |what: &str| Provenance { source: with(was.kind, what), ..was.clone() };
    match fitted {
        Some(f) if f.determined != Determined::Not && f.given_back.is_none() => Some(Provenance {
            source: with(kind, &rows(f)),
            kind,
            determined: Some(f.determined),
            uncertainty: f.uncertainty.clone(),
            without: was.without.clone().filter(|_| unexplained),
        }),
        _ if !(same && adjusted) => None,
        Some(Fitted { given_back: Some(value), .. }) => {
            let rows = rows(fitted?);
            Some(kept(&format!(
                "{rows} alone give {value}; with what they and others gave, some series were farther off"
            )))
        }
        Some(f) => Some(kept(&format!("not told by {}", rows(f)))),
        None => {
            let why = BY_HAND.iter().find(|(path, _)| figure.path.starts_with(path));
            Some(kept(why.map_or("no row of these directories shows it", |(_, why)| why)))
        }
    }
}

/// Writes the fitted parameters and their statements into the file, and renames the machine.
pub fn write_down(
    mut doc: Doc<Machine>,
    directories: &[MeasuredDirectory],
    fitted: &[Fitted],
    options: &FitOptions,
) -> Result<Doc<Machine>, Diagnostics> {
    let base = doc.read()?;
    let setup = directories.first().and_then(|d| d.setup.clone());
    let cpu = setup.as_ref().map(|s| s.cpu.trim_start_matches("Xeon-").to_owned());
    let same = directories.first().is_some_and(|directory| is_of(&base, directory));
    // Parameters that were not examined keep their statement.
    let looked_at_all = options.figures.is_empty() && !options.keep;
    for figure in figures(&base) {
        let found = fitted.iter().find(|f| f.path == figure.path);
        match (statement(&figure, found, same), found) {
            (Some(provenance), Some(found)) if found.after != found.before => {
                doc.set_figure(&figure.path, &found.after, provenance)?;
            }
            (Some(provenance), _) if found.is_some() || looked_at_all => {
                doc.restate(&figure.path, provenance)?;
            }
            // For another machine, its parameters are a related machine's, however they were obtained there.
            _ if !same && (figure.provenance.kind.is_free() || figure.provenance.kind == Kind::Measured) => {
                let source = format!("relative: {} ({})", base.name, of_people(&figure.provenance));
                let provenance =
                    Provenance { source, kind: Kind::Relative, without: None, ..figure.provenance.clone() };
                doc.restate(&figure.path, provenance)?;
            }
            _ => {}
        }
    }
    doc.set("name", &options.name)?;
    if let (false, Some(setup), Some(cpu)) = (same, &setup, cpu) {
        doc.set("measured_as.cpu", &cpu)?;
        doc.set("measured_as.system", &setup.chassis)?;
        doc.set("summary", &format!("{}, {cpu}, fitted from {}", setup.chassis, base.name))?;
    }
    // These rows no longer test the machine independently, so their comparison has stricter targets.
    let mut seen = base.measured_as.map(|known| known.directories).filter(|_| same).unwrap_or_default();
    let fresh: Vec<String> =
        directories.iter().map(|d| last_part(&d.path)).filter(|name| !seen.contains(name)).collect();
    if !fresh.is_empty() {
        seen.extend(fresh);
        seen.sort();
        // JSON strings are valid TOML strings.
        let names = serde_json::to_string(&seen).expect("names are text");
        doc.set("measured_as.directories", &names)?;
    }
    doc.read()?;
    Ok(doc)
}

/// Replaces the residuals of each series in the file.
pub fn write_residuals(doc: &mut Doc<Machine>, residuals: &[Residuals]) -> Result<(), Diagnostics> {
    doc.remove("residuals")?;
    for of in residuals {
        let directory = last_part(&of.directory);
        for family in &of.after.families {
            if let Some(spelt) = residual(family) {
                doc.set_entry(&["residuals", &directory, &family.family], &spelt);
            }
        }
    }
    doc.read()?;
    Ok(())
}

/// A series' errors as TOML; `None` if no row counts.
fn residual(family: &FamilySummary) -> Option<String> {
    let (median, p90, worst) = (family.median_pct?, family.p90_pct?, family.worst_pct?);
    let rows = family.counted;
    Some(format!("{{ rows = {rows}, median_pct = {median:.2}, p90_pct = {p90:.2}, worst_pct = {worst:.2} }}"))
}

fn last_part(path: &std::path::Path) -> String {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    resolved.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(source: &str) -> Listed {
        let provenance = Provenance::stated(source).unwrap();
        Listed {
            path: "host.dram.access".into(),
            value: "\"64 ns\"".into(),
            number: Some(64e3),
            choices: Vec::new(),
            provenance,
        }
    }

    fn fitted(determined: Determined, given_back: Option<&str>) -> Fitted {
        Fitted {
            path: "host.dram.access".into(),
            before: "64 ns".into(),
            after: "64 ns".into(),
            determined,
            uncertainty: Some("1 ns".into()),
            files: vec!["lat_cmd_sweep_rd_rnd_08".into(), "lat_cmd_sweep_rd_rnd_64".into()],
            rows: 12,
            common: "cold, local".into(),
            given_back: given_back.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn each_figure_says_what_fitting_found() {
        let by_hand = figure("fitted by hand: cold against warm");
        let said = |of: &Listed, fitted: Option<&Fitted>| statement(of, fitted, true).unwrap().source;
        let well = fitted(Determined::Well, None);
        let now = said(&by_hand, Some(&well));
        assert_eq!(now, "fitted: cold against warm; nearfar fit: 12 rows of lat_cmd_sweep_* (cold, local)");
        assert_eq!(said(&figure(&now), Some(&well)), now, "a second fit replaces what the first said");
        let back = fitted(Determined::Well, Some("70 ns"));
        assert!(said(&by_hand, Some(&back)).contains("alone give 70 ns"));
        assert!(said(&by_hand, Some(&back)).starts_with("fitted by hand: "));
        let not = fitted(Determined::Not, None);
        assert!(said(&by_hand, Some(&not)).ends_with("not told by 12 rows of lat_cmd_sweep_* (cold, local)"));
        assert!(said(&by_hand, None).ends_with("no row of these directories shows it"));
        assert_eq!(statement(&figure("datasheet: a book"), None, true), None);
        let empirical = Listed {
            provenance: Provenance {
                without: Some("0 ns: worse".into()),
                ..figure("empirical: nobody knows").provenance
            },
            ..by_hand.clone()
        };
        let again = statement(&empirical, Some(&well), true).unwrap();
        assert_eq!((again.kind, again.without.as_deref()), (Kind::Empirical, Some("0 ns: worse")));
        let other = statement(&by_hand, Some(&well), false).unwrap().source;
        assert_eq!(other, "fitted: 12 rows of lat_cmd_sweep_* (cold, local)", "another machine's words");
    }
}
