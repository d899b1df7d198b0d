//! Every command of the guide runs, from the first page to the last, and what its sentences name is there.

use std::path::{Path, PathBuf};
use std::process::Command;

const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/src");

/// The guide's pages, with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(PAGES).expect("the guide is there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).expect("text"))).collect()
}

/// The command lines of a page's blocks.
fn commands(text: &str) -> Vec<Vec<&str>> {
    let mut is_block = false;
    let mut all = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            // Blocks in a language are no command lines.
            is_block = !is_block && line == "```";
        } else if let Some(rest) = line.strip_prefix("nearfar ").filter(|_| is_block) {
            all.push(rest.split_whitespace().collect());
        }
    }
    all
}

#[test]
fn every_command_of_the_guide_runs() {
    let mut count = 0;
    for (page, text) in pages() {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("guide").join(page.file_stem().expect("a name"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        for words in commands(&text) {
            let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
            let output = command.args(&words).args(["--no-cache", "--quiet"]).current_dir(&folder).output();
            let output = output.expect("the program starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: nearfar {}: {said}", page.display(), words.join(" "));
            count += 1;
        }
    }
    assert!(count >= 25, "the guide has {count} commands");
}

/// Cells with a median and a 90th percentile.
fn errors(text: &str) -> impl Iterator<Item = &str> {
    text.split('|').map(str::trim).filter(|cell| cell.ends_with('%') && cell.contains(" / "))
}

#[test]
fn what_the_guide_says_of_accuracy_is_what_was_measured() {
    let root = Path::new(PAGES).join("../../..");
    let of = |path: &str| std::fs::read_to_string(root.join(path)).expect("a page of the repository");
    let measured = of("docs/accuracy.md");
    let measured: Vec<&str> = errors(&measured).collect();
    let model = of("docs/guide/src/model.md");
    assert!(errors(&model).count() >= 8, "it has a table");
    for said in errors(&model) {
        assert!(measured.contains(&said), "the guide says {said}, docs/accuracy.md does not");
    }
    // README has no table: pairs of numbers in its sentences.
    let readme = of("README.md");
    let words: Vec<&str> = readme.split_whitespace().collect();
    let pairs = words.windows(4).filter(|w| w[1] == "/" && w[3].starts_with('%'));
    let pairs: Vec<String> = pairs.map(|w| format!("{} / {} %", w[0], w[2])).collect();
    assert!(pairs.len() >= 4, "{pairs:?}");
    for said in &pairs {
        assert!(measured.contains(&said.as_str()), "README says {said}, docs/accuracy.md does not");
    }
}

/// Cells of a table's rows.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|line| line.starts_with("| ")).map(|line| line.split('|').map(str::trim).collect())
}

/// Words of a cell in backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn what_is_said_of_empirical_figures_is_in_their_files() {
    let root = Path::new(PAGES).join("../../..");
    let of = |path: &str| std::fs::read_to_string(root.join(path)).expect("a file of the repository");
    let files = [
        ("T430", "machines/dell-t430.toml"),
        ("T620 Sandy", "machines/dell-t620-sandy.toml"),
        ("T620 Ivy", "machines/dell-t620-ivy.toml"),
        ("E3", "machines/fujitsu-tx1310.toml"),
    ];
    let page = of("docs/accuracy.md");
    let (_, table) = page.split_once("| Figure | Machine, files |").expect("a table of empirical figures");
    let (table, _) = table.split_once("\n\n").expect("an end of the table");
    let mut count = 0;
    for row in rows(table) {
        let [_, figures, place, without, with, _] = row[..] else { panic!("{row:?}") };
        let machine = place.split(',').next().expect("never empty");
        let (_, file) = files.iter().find(|(name, _)| *name == machine).expect("a machine of the table");
        let text = of(file) + &of("machines/parts/nfp6000.toml");
        let [family] = quoted(place)[..] else { panic!("{row:?}") };
        let names = quoted(figures.split(':').next().expect("never empty"));
        assert_eq!(names.len(), without.split(',').count(), "{row:?}");
        for (name, without) in names.into_iter().zip(without.split(", ")) {
            let figure = text.lines().find(|line| {
                line.starts_with(&format!("{name} = ")) && line.contains(family) && line.contains("without")
            });
            let said =
                figure.and_then(|line| line.split_once("without = ")).unwrap_or_else(|| panic!("{row:?}"));
            let instead = said.1.split_once(" instead of ").unwrap_or_else(|| panic!("{row:?}"));
            assert!(instead.0.contains(without) && instead.1.contains(with), "{name}: {row:?} {said:?}");
            count += 1;
        }
    }
    assert!(count >= 17, "{count} figures");
}

#[test]
fn what_pages_say_of_sources_is_what_is_counted() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_nearfar")).args(["machines", "--sources", "--json", "-"]).output();
    let output = output.expect("the program starts");
    let counted: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let of = |name: &str| counted.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}"));
    let free = ["dell-t430", "dell-t630", "dell-t620-ivy", "dell-t620-sandy", "fujitsu-tx1310", "nfp6000"];
    let free: u64 = free.into_iter().map(|name| of(name)["free"].as_u64().expect("a count")).sum();
    let linux = of("linux");
    let page =
        |path: &str| std::fs::read_to_string(Path::new(PAGES).join("../..").join(path)).expect("a page");
    let said = |path: &str, what: String| assert!(page(path).contains(&what), "{path} does not say: {what}");
    said("accuracy.md", format!("{free} in the five files and one card"));
    let assumed = format!("{} of {} figures are assumed", linux["kinds"]["assumed"], linux["figures"]);
    said("kernel-costs.md", assumed.clone());
    said("../README.md", assumed);
}

/// What a page's command draws, the page shows. `UPDATE_EXPECT=1` draws it anew.
#[test]
fn every_figure_that_a_command_draws_is_in_its_page() {
    let mut count = 0;
    for (page, text) in pages() {
        for words in commands(&text) {
            let drawn = words.iter().position(|word| *word == "--plot").map(|option| words[option + 1]);
            let Some(name) = drawn else { continue };
            assert!(text.contains(&format!("]({name})")), "{}: {name} is not shown", page.display());
            if std::env::var_os("UPDATE_EXPECT").is_some() {
                let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
                let done = command.args(&words).arg("--quiet").current_dir(PAGES).status();
                assert!(done.is_ok_and(|status| status.success()), "nearfar {}", words.join(" "));
                std::fs::remove_file(Path::new(PAGES).join(format!("{name}.provenance.json")))
                    .expect("beside it");
            }
            count += 1;
        }
    }
    assert!(count > 0, "the guide draws figures");
}

#[test]
fn every_page_is_in_the_table_of_contents_and_every_link_leads_somewhere() {
    let pages = pages();
    let contents =
        &pages.iter().find(|(path, _)| path.ends_with("SUMMARY.md")).expect("a table of contents").1;
    for (path, text) in &pages {
        let name = path.file_name().expect("a name").to_string_lossy();
        assert!(
            name == "SUMMARY.md" || contents.contains(&format!("({name})")),
            "{name} is not in SUMMARY.md"
        );
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().expect("never empty");
            let is_there = file.is_empty() || file.contains("://") || Path::new(PAGES).join(file).exists();
            assert!(is_there, "{name}: there is no {link}");
        }
    }
}
