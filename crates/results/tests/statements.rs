//! Tables from the papers' paragraphs to claims, tests and scenarios: what they name exists, and they name every claim.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use results::claims::ClaimFile;

const HEADER: &str = "place,statement,kind,where";
const KINDS: [&str; 3] = ["number", "order", "mechanism"];

/// Each paper's parts that state something. Of pcie-bench's, sections 1 to 6.1 and most of 6.2 are lost; slides have titles.
const PARTS: [(&str, &str); 5] = [
    ("pcie-bench", "6.2; 6.3; 6.4; 6.5; 7; Table 2; 8; 9"),
    (
        "ioctopus",
        "Abstract; 1; 2; 2.1; 2.2; 2.3; 2.4; 2.5; 2.6; 3.1; 3.2; 3.3; 3.4; 4.1; 4.2; 5; 5.1.1; 5.1.2; 5.1.3; 5.2; 5.3; \
         5.4; 6",
    ),
    ("kpio-wc", "Abstract; I; II; III; III.A; III.B; IV; IV.A; IV.B; Table 1; V"),
    (
        "numa-io",
        "Non-Uniform Memory Access; Modern Server Architecture; Non-Uniform I/O Access; Non Uniform I/O Access; Intel DDIO; \
         Ideal Situation; Real Situation; DDIO benefits vs Local I/O: 1VM; DDIO benefits vs Local I/O: 4VM; \
         NUMA I/O Scheduler; NUMA I/O: Light load; NUMA I/O: Heavy load; Hardware Support; Improvement: Light load; \
         Improvement: Light Load; Improvement: Heavy load; Recap: NUMA aware I/O",
    ),
    (
        "device-lending",
        "Abstract; 1; 2; 2.1; 2.2; 2.3; 3.1; 3.2; 3.3; 4; 5; 6; 7.1; 7.2; 7.3; 7.4; 7.5; 8.1; 8.2; 8.3; 8.4; 9; Figure 10; \
         Figure 12; Footnote 1; Footnote 2; Footnote 3; Footnote 4",
    ),
];

/// A row of a table, with its line for messages.
struct Row {
    line: String,
    place: String,
    kind: String,
    /// What shows it: a kind of reference and what it refers to.
    references: Vec<(String, String)>,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of a paper's table. No cell has a comma, so none is quoted.
fn rows(seed: &str) -> Vec<Row> {
    let path = format!("published/statements/{seed}.csv");
    let text =
        std::fs::read_to_string(repository().join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut lines = (1..).zip(text.lines());
    assert_eq!(lines.next(), Some((1, HEADER)), "{path}");
    let row = |(number, line): (usize, &str)| {
        let told = format!("{path}:{number}: {line}");
        let cells: Vec<&str> = line.split(',').collect();
        let [place, statement, kind, references] = cells[..] else { panic!("{told}: not four cells") };
        assert!(
            cells.iter().all(|cell| !cell.is_empty() && *cell == cell.trim()),
            "{told}: an empty or padded cell"
        );
        assert!(!statement.contains('"'), "{told}: a quotation");
        let reference = |one: &str| match one.split_once(':') {
            Some((kind, what)) if !what.trim().is_empty() => (kind.to_owned(), what.trim().to_owned()),
            _ => panic!("{told}: `{one}` is no reference"),
        };
        let references = references.split("; ").map(reference).collect();
        Row { place: place.to_owned(), kind: kind.to_owned(), references, line: told }
    };
    lines.map(row).collect()
}

/// Whether a place is in this part: `7` is the part of `7 par 2`, not of `7.1 par 2`.
fn is_in(place: &str, part: &str) -> bool {
    place.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[test]
fn what_the_tables_name_exists() {
    for (seed, _) in PARTS {
        for row in rows(seed) {
            assert!(KINDS.contains(&row.kind.as_str()), "{}: a kind is one of {KINDS:?}", row.line);
            for (kind, what) in &row.references {
                match kind.as_str() {
                    // Compared with the claims below; a reason needs no more than to be there.
                    "claim" | "not-modelled" => {}
                    "test" => {
                        let (file, name) =
                            what.split_once("::").unwrap_or_else(|| panic!("{}: no name", row.line));
                        let text = std::fs::read_to_string(repository().join(file));
                        let text = text.unwrap_or_else(|error| panic!("{}: {file}: {error}", row.line));
                        assert!(text.contains(&format!("fn {name}(")), "{}: no test `{name}`", row.line);
                    }
                    "scenario" => {
                        let path = repository().join(format!("scenarios/{what}.toml"));
                        assert!(path.is_file(), "{}: no scenario `{what}`", row.line);
                    }
                    other => panic!("{}: `{other}` is no kind of reference", row.line),
                }
            }
        }
    }
}

#[test]
fn every_claim_belongs_to_a_statement() {
    for (seed, _) in PARTS {
        let file = ClaimFile::of(seed);
        let mut named = BTreeSet::new();
        for row in rows(seed) {
            for (_, what) in row.references.iter().filter(|(kind, _)| kind == "claim") {
                let id = format!("{seed}/{what}");
                let of = |claim: &&str| {
                    claim.strip_prefix(&id).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                let claims: Vec<&str> =
                    file.claims.iter().map(|claim| claim.id.as_str()).filter(of).collect();
                assert!(!claims.is_empty(), "{}: no claim `{id}`", row.line);
                named.extend(claims.into_iter().map(str::to_owned));
            }
        }
        let missing: Vec<&str> =
            file.claims.iter().map(|claim| claim.id.as_str()).filter(|id| !named.contains(*id)).collect();
        assert!(missing.is_empty(), "published/statements/{seed}.csv names no row for {missing:?}");
    }
}

#[test]
fn every_part_of_a_paper_has_statements() {
    for (seed, parts) in PARTS {
        let rows = rows(seed);
        for part in parts.split("; ") {
            assert!(rows.iter().any(|row| is_in(&row.place, part)), "{seed}: nothing of `{part}`");
        }
        for row in &rows {
            assert!(parts.split("; ").any(|part| is_in(&row.place, part)), "{}: no such part", row.line);
        }
    }
}
